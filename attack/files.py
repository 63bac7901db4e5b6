"""Damaged files: bits flipped, blocks zeroed, files cut off or replaced, JSON values of other types, pickles."""

import json
import os
import pickle
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from attack import child
from attack.findings import Failure, Tally, judge, last_line, numbers
from attack.world import MAX_STATE, PART, SHAPE, TRAIN, World
from blackout.files import SEAL, write_json

Reader = Callable[[], Any]
_VALUES: list[Any] = [
    None, True, 0, 1, -1, 2, 3, 0.5, 1e308, 2**31, 10**40, "", "a", "0", [], [1], [[]], {}, {"a": 1}, float("nan"),
]  # fmt: skip


@dataclass(frozen=True)
class Target:
    """Files, and a function that reads them and returns what depends on them."""

    files: str
    """A pattern."""
    read: Reader
    ours: bool = False
    """Whether the package wrote them: a bit that is flipped must then be found, or change nothing."""


def attack(world: World, tally: Tally, *, seed: int, minutes: float, cases: int | None, case: int | None) -> None:
    """Read damaged files."""
    targets = _targets()
    folder = world.copy()
    child.learn((target.read for target in targets), folder)
    expected = {}
    for target in targets:
        folder = world.copy()
        outcome = child.run(_printed(target), folder, seconds=60)
        if outcome.status:
            raise RuntimeError(f"{target.files}: {outcome.err}")
        expected[target.files] = last_line(outcome.out)
    for number in numbers(case, minutes, cases):
        rng = random.Random(f"files-{seed}-{number}")
        target = rng.choice(targets)
        folder = world.copy()
        file = rng.choice(sorted(path for path in folder.glob(target.files) if path.is_file()))
        damage = rng.choice(_JSON_DAMAGES if file.suffix == ".json" and rng.random() < 0.5 else _DAMAGES)
        damage(rng, file)
        outcome = child.run(_printed(target), folder, seconds=40)
        wrong = judge(outcome)
        bitwise = target.ours and damage in _BITWISE
        if not wrong and not outcome.status and bitwise and last_line(outcome.out) != expected[target.files]:
            wrong = "silent: the damage is not noticed and changes the result"
        tally.count(file.suffix.removeprefix(".") or "other")
        what = f"{file.relative_to(folder)}, {damage.__name__.strip('_').replace('_', ' ')}: {wrong}"
        tally.add(Failure(what, f"python -m attack files --seed {seed} --case {number}") if wrong else None)
        if case is not None:
            print(f"  {what or 'no failure'}\n  status {outcome.status}: {(outcome.err or outcome.out).strip()[-300:]}")


def _printed(target: Target) -> Callable[[], None]:
    """In the child: print what was read; a ValueError is an answer like any other."""

    def call() -> None:
        try:
            print(target.read())
        except (ValueError, OSError) as error:
            print(f"blackout: {error}", file=sys.stderr)
            sys.exit(2)

    return call


def _command(*words: str) -> Reader:
    return child.command(list(words))


def _targets() -> list[Target]:
    return [
        Target("model/*", _read_model, ours=True),
        Target("labels/*", _command("sample", "labels", "--num", "1", "--steps", "1")),
        Target("run/checkpoints/*/*", _resume, ours=True),
        Target("run/*.json*", _resume),
        Target("cells-model/*", _read_cells_model, ours=True),
        Target("cells-run/*", _command("cells", "sample", "cells-run", "--num", "1", "--steps", "1")),
        Target("part.npz.shards/*.[jn]*", _finish_part, ours=True),
        Target("images.np?", _read_images),
        Target("pictures/*", lambda: _dataset("pictures")),
        Target("picture.png", _read_observed),
        Target("observed.npy", _read_observed),
        Target("mask.*", _read_masks),
        Target("config.json", _command(*TRAIN, "--steps", "1", "--out", "new")),
        Target("spec.toml", lambda: _spec("spec.toml")),
        Target("cells.h5ad", lambda: _counts("cells.h5ad")),
        Target("cells.h5", lambda: _counts("cells.h5")),
        Target("tenx/*", lambda: _counts("tenx")),
        Target("cells.csv", lambda: _counts("cells.csv")),
        Target("cells.npz", lambda: _counts("cells.npz")),
        Target(
            "cells.h5a*", _command("cells", "impute", "cells-model", "--data", "cells.h5ad", "--mask", "cell-mask.npy",
                                   "--steps", "1", "--resample", "0"),
        ),
        Target("cell-mask.*", _read_cell_masks),
    ]  # fmt: skip


def _read_model() -> Any:
    import blackout as bo

    return bo.load("model").sample(1, num_steps=2).flatten().tolist()


def _read_cells_model() -> Any:
    import blackout as bo

    return bo.CountModel.load("cells-model").sample(1, num_steps=2).X.toarray().tolist()


def _resume() -> Any:
    from blackout.io import checksum, load

    try:
        child.command([*TRAIN, "--steps", "3", "--out", "run"])()
    except SystemExit as end:
        if end.code:
            raise
    return checksum(load("run"))


def _finish_part() -> Any:
    from blackout.io import load, write_samples

    write_samples(load("model"), "part.npz", **PART)
    return numpy.load("part.npz")["x"].tolist()


def _dataset(path: str) -> Any:
    from blackout.data import open_dataset

    return tuple(open_dataset(path, folder=path).x.shape)


def _read_images() -> Any:
    return _dataset("images.npy"), _dataset("images.npz")


def _read_observed() -> Any:
    from blackout.io import read_observed

    return [read_observed(name, SHAPE, MAX_STATE).shape for name in ("picture.png", "observed.npy")]


def _read_masks() -> Any:
    from blackout.io import read_mask

    return [read_mask(name, SHAPE).shape for name in ("mask.png", "mask.npy")]


def _spec(path: str) -> Any:
    from blackout.evaluation import read_spec

    return read_spec(path).title


def _counts(path: str) -> Any:
    from blackout.cells.read import read_counts

    return read_counts(path, empty="keep").x.sum()


def _read_cell_masks() -> Any:
    from blackout.cells.observed import read_observed

    return [read_observed("cells.h5ad", name).mask.sum() for name in ("cell-mask.npy", "cell-mask.csv")]


def _bit_flipped(rng: random.Random, file: Path) -> None:
    content = bytearray(file.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def _block_zeroed(rng: random.Random, file: Path) -> None:
    content = bytearray(file.read_bytes())
    start = rng.randrange(max(1, len(content)))
    length = min(rng.choice((1, 8, 64, 512, 4096)), len(content) - start)
    content[start : start + length] = bytes(length)
    file.write_bytes(content)


def _cut_off(rng: random.Random, file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(max(1, len(content)))])


def _bytes_inserted(rng: random.Random, file: Path) -> None:
    content, size = file.read_bytes(), rng.choice((1, 8, 100))
    start = rng.randrange(len(content) + 1)
    file.write_bytes(content[:start] + rng.randbytes(size) + content[start:])


def _bytes_removed(rng: random.Random, file: Path) -> None:
    content, size = file.read_bytes(), rng.choice((1, 8, 100))
    start = rng.randrange(len(content) + 1)
    file.write_bytes(content[:start] + content[start + size :])


def _bytes_replaced(rng: random.Random, file: Path) -> None:
    content, size = bytearray(file.read_bytes()), rng.choice((1, 4, 8, 32))
    start = rng.randrange(len(content) + 1)
    content[start : start + size] = rng.choice((rng.randbytes(size), b"\xff" * size, b"\x00" * size, b"9" * size))
    file.write_bytes(content)


def _emptied(rng: random.Random, file: Path) -> None:
    file.write_bytes(b"")


class _Trap:
    """Unpickled, it would leave a file."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("unpickled",)


def _made_a_pickle(rng: random.Random, file: Path) -> None:
    file.write_bytes(pickle.dumps(rng.choice((_Trap(), [1, 2], numpy.array([_Trap()], dtype=object)))))


def _made_another_file(rng: random.Random, file: Path) -> None:
    others = sorted(path for path in file.parent.rglob("*") if path.is_file() and path != file) or [file]
    shutil.copyfile(rng.choice(others), file)


def _made_a_folder(rng: random.Random, file: Path) -> None:
    file.unlink()
    file.mkdir()


def _made_a_loop(rng: random.Random, file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def _removed(rng: random.Random, file: Path) -> None:
    file.unlink()


def _value_replaced(rng: random.Random, file: Path) -> None:
    content = json.loads(file.read_text())
    node, key = rng.choice(list(_places(content)) or [(None, None)])
    if node is not None:
        node[key] = rng.choice(_VALUES)
    _write_json(rng, file, content)


def _value_removed(rng: random.Random, file: Path) -> None:
    content = json.loads(file.read_text())
    node, key = rng.choice(list(_places(content)) or [(None, None)])
    if node is not None:
        del node[key]
    _write_json(rng, file, content)


def _write_json(rng: random.Random, file: Path, content: Any) -> None:
    """Write an edited file, often with a new checksum, so that its values are looked at."""
    if isinstance(content, dict) and SEAL in content and rng.random() < 0.7:
        write_json(file, {name: value for name, value in content.items() if name != SEAL})
    else:
        file.write_text(json.dumps(content))


def _nested_deeply(rng: random.Random, file: Path) -> None:
    depth = rng.choice((100, 2000, 100_000))
    file.write_text("[" * depth + "]" * depth if rng.random() < 0.5 else '{"a":' * depth + "1" + "}" * depth)


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every value of a tree of JSON, as a container and a key."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
    return [(node, key) for key in keys] + [place for key in keys for place in _places(node[key])]


_BITWISE = (_bit_flipped, _block_zeroed, _cut_off, _bytes_inserted, _bytes_removed, _bytes_replaced)
_DAMAGES = (
    *_BITWISE, *_BITWISE, *_BITWISE, _emptied, _made_a_pickle, _made_another_file, _made_a_folder, _made_a_loop,
    _removed,
)  # fmt: skip
_JSON_DAMAGES = (_value_replaced, _value_replaced, _value_replaced, _value_removed, _nested_deeply)
