"""Random command lines: valid and invalid values of the options of every command."""

import random
import re
import shlex
from collections.abc import Iterator
from typing import Any

import typer

from attack import child
from attack.findings import Failure, Tally, judge, numbers, shortened
from attack.world import TRAIN, TRAIN_CELLS, World

# A quick valid line of each command, with the number of words that name it.
LINES: dict[str, list[str]] = {
    "train": [*TRAIN, "--out", "new"],
    "distill": ["distill", "model", "--data", "images.npy", "--steps", "2", "--updates", "2", "--batch-size", "2"],
    "sample": ["sample", "model", "--num", "2", "--steps", "2"],
    "times": ["times", "model", "--data", "images.npy", "--num-data", "2", "--num-candidates", "3"],
    "evaluate": [
        "evaluate", "model", "--data", "images.npy", "--samples", "0", "--num-data", "2", "--num-times", "1",
        "--num-bound-data", "0",
    ],
    "compare": ["compare", "spec.toml"],
    "figures": ["figures", "--only", "times", "--num", "2", "--steps", "2"],
    "recipes": ["recipes"],
    "data": ["data", "seven-segment"],
    "web": ["web", "model", "--no-open", "--port", "0"],
    "cells train": [*TRAIN_CELLS, "--steps", "2", "--out", "new"],
    "cells sample": ["cells", "sample", "cells-model", "--num", "2", "--steps", "2"],
    "cells distill": [
        "cells", "distill", "cells-run", "--data", "cells.h5ad", "--steps", "2", "--updates", "1", "--out", "student",
    ],
    "cells impute": [
        "cells", "impute", "cells-model", "--data", "cells.h5ad", "--mask", "cell-mask.npy", "--steps", "2",
        "--resample", "0",
    ],
    "cells evaluate": [
        "cells", "evaluate", "cells-run", "--data", "cells.h5ad", "--samples", "0", "--num-times", "1",
        "--num-data", "2",
    ],
}  # fmt: skip
_RARE = {"web": 0.1, "figures": 0.2, "recipes": 0.1, "evaluate": 0.5, "compare": 0.3, "distill": 0.5}
_WRITES = ("train", "distill", "sample", "times", "evaluate", "compare", "cells")
_WORDS = [
    "", " ", "0", "1", "-1", "2", "3", "7", "nan", "inf", "-inf", "1e400", "1e-300", "0.5", "-0.0", "1e9", "10000",
    "2147483648", "9223372036854775807", "9223372036854775808", "1" + "0" * 40, "0x10", "1_0", "True", "None", "null",
    "{}", "[]", "auto", "each", "all", "none", ".", "..", "/", "-", "--", "a" * 300, "ä€", "a,b", "a b", "\t", "%s",
    "cpu", "cuda", "cuda:7", "mps", "meta", "xpu", "cpu:1", "~", "/dev/null", "/dev/full", "/dev/zero", "/proc/1/mem",
]  # fmt: skip
_PATHS = [
    "model", "run", "labels", "cells-model", "cells-run", "images.npy", "images.npz", "pictures", "picture.png",
    "observed.npy", "mask.npy", "mask.png", "config.json", "spec.toml", "cells.h5ad", "cells.h5", "cells.csv",
    "cells.npz", "tenx", "tenx/matrix.mtx", "cell-mask.npy", "cell-mask.csv", "pickle.npy", "not-a-folder",
    "missing", "missing/folder/file.npz", "not-a-folder/x.png", "new.npz", "new.png", "new.h5ad", "new", "model.json",
    "run/metrics.jsonl", "digits", "mnist-binary", "cifar10",
]  # fmt: skip


def attack(world: World, tally: Tally, *, seed: int, minutes: float, cases: int | None, case: int | None) -> None:
    """Run random command lines."""
    options = {name: _options(name) for name in LINES}
    child.learn((child.command(words) for name, words in LINES.items() if name != "web"), world.copy())
    for number in numbers(case, minutes, cases):
        rng = random.Random(f"commands-{seed}-{number}")
        name = rng.choices(list(LINES), [_RARE.get(name, 1.0) for name in LINES])[0]
        words = _line(rng, name, options[name])
        wrong = _wrong(world, name, words)
        if wrong:
            kind = wrong.partition(":")[0]
            keep = len(name.split())

            def fails(fewer: list[str], name: str = name, kind: str = kind) -> bool:
                return _wrong(world, name, fewer).partition(":")[0] == kind

            words = shortened(words, fails, keep)
        tally.count(name)
        tally.add(Failure(f"{name}: {wrong}", _again(words)) if wrong else None)
        if case is not None:
            print(f"  {_again(words)}")


def _again(words: list[str]) -> str:
    return f"cd $(python -m attack world) && blackout {shlex.join(words)}"


def _wrong(world: World, name: str, words: list[str]) -> str:
    """What is wrong with the end of a command line in a new copy of the world; empty if nothing is."""
    folder = world.copy()
    before = world.state()
    outcome = child.run(child.command(words), folder, seconds=1.5 if name == "web" else 12.0)
    wrong = judge(outcome)
    writes = name.startswith(_WRITES) and not {"-h", "--help", "--dry-run"} & set(words)
    if wrong or outcome.status or outcome.slow or not writes:
        return wrong
    if before == world.state() and not _elsewhere(words):
        return f"status 0, but nothing was written; {outcome.out.strip()[-200:]}"
    return ""


def _elsewhere(words: list[str]) -> bool:
    """Whether files may have been written outside the folder."""
    return any(word.startswith(("/", "..")) for word in words)


def _options(name: str) -> list[Any]:
    from blackout.cli import app

    node: Any = typer.main.get_command(app)
    for word in name.split():
        node = node.commands[word]
    return list(node.params)


def _line(rng: random.Random, name: str, options: list[Any]) -> list[str]:
    """The quick line of a command with some of its words changed or left out, and with more options."""
    words = list(LINES[name])
    first = len(name.split())
    if rng.random() < 0.2 and len(words) > first:  # a wrong argument, option or value of the quick line
        words[rng.randrange(first, len(words))] = rng.choice(_WORDS + _PATHS)
    if rng.random() < 0.05 and len(words) > first:
        del words[rng.randrange(first, len(words))]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        words += _option(rng, rng.choice(options))
    if rng.random() < 0.02:
        words.append(rng.choice(("--help", "--no-such-option", "-x", "--device=", "surplus")))
    return words


def _option(rng: random.Random, option: Any) -> Iterator[str] | list[str]:
    """An option with a random value."""
    if option.param_type_name == "argument":
        return [rng.choice(_PATHS + _WORDS)]
    flag = rng.choice([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return [flag]
    return [flag, _value(rng, option)]


def _value(rng: random.Random, option: Any) -> str:
    kind, listed = str(option.type_descriptor.annotation), re.findall(r"[a-z][a-z0-9_:.-]+", option.help or "")
    if rng.random() < 0.35:
        return rng.choice(_WORDS)
    if "int" in kind:
        return str(rng.choice((0, 1, 2, 3, 4, 5, 8, 64, 100, 1000)))
    if "float" in kind:
        return f"{rng.choice((0, 1e-6, 0.01, 0.1, 0.5, 0.9, 1, 1.5, 2, 30)):g}"
    return rng.choice(listed) if listed and rng.random() < 0.6 else rng.choice(_PATHS)
