"""The run folder under real kills, signals, full disks and files of the wrong kind."""

import filecmp
import json
import os
import pickle
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import small_runs
from blackout.files import append_line
from blackout.training.checkpoints import KEPT, Checkpoint, RunFolder
from blackout.training.config import TrainConfig
from blackout.training.fingerprint import tie_to_data
from blackout.training.loop import Report, Trainer
from blackout.training.weights import read_tensors
from processes import Process
from small_runs import IMAGES

BASE = small_runs.BASE.replace(steps=5, checkpoint_every=1, dropout=0.2, stratified=False, learning_rate=2e-4)
Start = Callable[..., Process]
GROUPS = ("weights", "averaged", "optimizer")


def trainer(folder: Path, **changes: object) -> Trainer:
    return small_runs.trainer(folder, base=BASE, **changes)


def steps(folder: Path) -> list[int]:
    """Steps of the checkpoints, every one of which can be read."""
    found = [Checkpoint(path) for path in RunFolder(folder).checkpoints()]
    assert all(checkpoint.tensors(group) for checkpoint in found for group in GROUPS)
    return [checkpoint.step for checkpoint in found]


def reported(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


START = """
import os, resource, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from blackout.training.signals import Stopped
from test_run_folder import IMAGES, RunFolder, steps, torch, trainer
folder = Path(sys.argv[1])
"""

TRAIN = """
try:
    trainer(folder, steps=int(sys.argv[2])).run(IMAGES)
except Stopped as stopped:
    print(stopped)
    sys.exit(stopped.exit_code)
"""

FULL_DISK = """
def fill(report, run):
    if report.step == 3:  # from now on no file may grow beyond 50 kB
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    trainer(folder).run(IMAGES, listener=fill)
except OSError as error:
    print(error)
"""

# Saves in children that kill themselves before their first, second, ... touch of the file system.
KILLED_IN_SAVE = """
import itertools, shutil
tensors = {group: {"a": torch.arange(9.0)} for group in ("weights", "averaged", "optimizer")}
for number in itertools.count():
    run = RunFolder(folder / str(number))
    for step in (1, 2):
        run.save(step, tensors)
    child = os.fork()
    if child == 0:
        touched = 0
        def touch(event, arguments):
            global touched
            if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
                touched += 1
                if touched > number:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(touch)
        run.save(3, tensors)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
print(number)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs a script in a process of its own; none outlives its test."""
    script, running = tmp_path / "script.py", []

    def start(body: str, *arguments: object) -> Process:
        script.write_text(START.format(tests=str(Path(__file__).parent)) + body)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        running.append(Process(script, *arguments, env=environment))
        return running[-1]

    yield start
    for process in running:
        with process:
            process.kill()


def finish(process: Process) -> str:
    """What the process printed; it must end well."""
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output


def wait_for_step(process: Process, folder: Path, step: int) -> None:
    deadline = time.monotonic() + 60
    while not any(int(path.name[5:]) >= step for path in RunFolder(folder).checkpoints()):
        assert process.poll() is None, "the training has ended"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_runs_killed_again_and_again_end_with_the_weights_of_an_undisturbed_one(tmp_path: Path, start: Start) -> None:
    total, draw, killed, whole = 40, random.Random(0), tmp_path / "killed", tmp_path / "whole"
    undisturbed = start(TRAIN, whole, total)
    for _ in range(6):
        last = max(steps(killed), default=0)
        process = start(TRAIN, killed, total)
        wait_for_step(process, killed, last + 1)
        time.sleep(draw.uniform(0, 0.1))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert max(steps(killed)) > last
    finish(start(TRAIN, killed, total))
    finish(undisturbed)
    assert steps(killed) == steps(whole) == [total - 1, total]
    for group in GROUPS:
        one, other = (folder / f"checkpoints/step-{total:09d}/{group}.safetensors" for folder in (killed, whole))
        assert filecmp.cmp(one, other, shallow=False), group
    assert reported(killed) == reported(whole) == list(range(1, total + 1))


def test_a_kill_at_any_moment_of_a_save_leaves_only_complete_checkpoints(tmp_path: Path, start: Start) -> None:
    moments = int(finish(start(KILLED_IN_SAVE, tmp_path)))
    assert moments > 10
    broken = []
    for number in range(moments + 1):
        try:
            assert len(steps(tmp_path / str(number))) >= KEPT
        except ValueError as error:
            broken.append(str(error))
    assert not broken


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends_the_run_which_is_locked_meanwhile(
    tmp_path: Path, start: Start, number: signal.Signals
) -> None:
    folder = tmp_path / "run"
    process = start(TRAIN, folder, 100_000)
    wait_for_step(process, folder, 2)
    with pytest.raises(ValueError, match=f"{folder} is in use"):
        trainer(folder).run(IMAGES)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert output == f"stopped by {number.name}\n"
    assert steps(folder)[-1] == reported(folder)[-1]
    assert reported(folder) == list(range(1, steps(folder)[-1] + 1))
    trainer(folder, steps=steps(folder)[-1] + 1).run(IMAGES)


def test_a_full_disk_names_the_checkpoint_and_the_last_good_one(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "run"
    output = finish(start(FULL_DISK, folder))
    checkpoints = folder / "checkpoints"
    assert f"cannot write checkpoint {checkpoints / 'step-000000003'}" in output
    assert f"the last good one is {checkpoints / 'step-000000002'}" in output
    assert steps(folder) == [1, 2]
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-000000001", "step-000000002"]
    trainer(folder).run(IMAGES)
    assert steps(folder) == [4, 5]
    assert reported(folder) == [1, 2, 3, 4, 5]


def test_only_the_last_two_checkpoints_are_kept_and_unfinished_ones_go(tmp_path: Path) -> None:
    unfinished = tmp_path / "checkpoints" / "step-000000009.partial"
    unfinished.mkdir(parents=True)
    trainer(tmp_path).run(IMAGES)
    assert steps(tmp_path) == [4, 5]
    assert not unfinished.exists()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, with a checkpoint of each."""
    folder = tmp_path_factory.mktemp("undisturbed")
    trainer(folder, steps=2).run(IMAGES)
    return folder


def last_weights(folder: Path) -> bytes:
    return (RunFolder(folder).checkpoints()[-1] / "weights.safetensors").read_bytes()


def flipped(content: bytes) -> bytes:
    """The same but for one bit in the middle."""
    changed = bytearray(content)
    changed[len(content) // 2] ^= 4
    return bytes(changed)


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "truncated": ("averaged.safetensors", lambda content: content[:-1]),
    "empty": ("weights.safetensors", lambda content: b""),
    "flipped weights": ("weights.safetensors", flipped),
    "flipped optimiser": ("optimizer.safetensors", flipped),
    "flipped manifest": ("manifest.json", flipped),
    "edited step": ("manifest.json", lambda content: content.replace(b'"step": 2', b'"step": 1')),
    "edited seconds": ("manifest.json", lambda content: content.replace(b'"seconds": ', b'"seconds": 1')),
    "no object": ("manifest.json", lambda content: b"[]"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_run_falls_back_from_a_damaged_checkpoint_which_it_names(
    tmp_path: Path, undisturbed: Path, kind: str
) -> None:
    run = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    name, damage = DAMAGES[kind]
    path = run / "checkpoints" / "step-000000002" / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(UserWarning, match=f"{path}.*falling back to .*step-000000001"):
        trainer(run, steps=2).run(IMAGES)
    assert steps(run) == [1, 2]
    assert reported(run) == [1, 2]
    assert last_weights(run) == last_weights(undisturbed)


def test_a_run_without_a_good_checkpoint_is_not_started_anew(tmp_path: Path, undisturbed: Path) -> None:
    run = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    paths = [checkpoint / "weights.safetensors" for checkpoint in RunFolder(run).checkpoints()]
    for path in paths:
        path.unlink()
    with pytest.raises(ValueError, match=f"{paths[1]} is missing; {paths[0]} is missing; no checkpoint of {run}"):
        trainer(run).run(IMAGES)


def test_a_damaged_later_checkpoint_does_not_count_as_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (1, 2, 9):
        folder.save(step, {"weights": {"a": torch.zeros(1)}})
    (tmp_path / "checkpoints" / "step-000000009" / "manifest.json").write_text("{}")
    with pytest.warns(UserWarning, match="step-000000009"):
        assert [folder.last_good()] == [Checkpoint(tmp_path / "checkpoints" / "step-000000002")]
    folder.save(3, {"weights": {"a": torch.zeros(1)}})
    assert [Checkpoint(path).step for path in folder.checkpoints()] == [2, 3]


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_in_place_of_weights_is_rejected_and_does_not_run(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "trap"
    (tmp_path / "raw").write_bytes(pickle.dumps(Payload(trap), protocol=protocol))
    torch.save({"a": Payload(trap)}, tmp_path / "saved", pickle_protocol=max(2, protocol))
    torch.save({"a": Payload(trap)}, tmp_path / "old", pickle_protocol=2, _use_new_zipfile_serialization=False)
    for name in ("raw", "saved", "old"):
        with pytest.raises(ValueError, match=f"{tmp_path / name}"):
            read_tensors(tmp_path / name)
    with pytest.raises(ValueError, match="pickled"):
        read_tensors(tmp_path / "saved")
    assert not trap.exists()


def test_every_safetensors_file_can_be_read_whatever_its_header_begins_with(tmp_path: Path) -> None:
    first = set()
    for length in range(1, 300):
        save_file({"a" * length: torch.ones(1)}, tmp_path / "file")
        first.add((tmp_path / "file").read_bytes()[0])
        assert list(read_tensors(tmp_path / "file")) == ["a" * length]
    assert 0x80 in first


def test_metrics_cut_short_or_ahead_of_the_checkpoint_are_made_again(tmp_path: Path) -> None:
    trainer(tmp_path, steps=3).run(IMAGES)
    append_line(tmp_path / "metrics.jsonl", {"step": 4, "loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    trainer(tmp_path).run(IMAGES)
    assert reported(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("damage", [b'"step": 3', b'{"step": 2', b"\xff\x00", b"[" * 100_000, b"[2]", b"null", b""])
def test_damaged_lines_of_metrics_are_named_and_left_out(damage: bytes, tmp_path: Path) -> None:
    trainer(tmp_path, steps=3).run(IMAGES)
    path = tmp_path / "metrics.jsonl"
    first, second, third, _ = path.read_bytes().split(b"\n")
    second = second.replace(b'"step": 2', damage) if b"step" in damage else damage
    path.write_bytes(b"\n".join([first, second, third, b""]))
    with pytest.warns(UserWarning, match=r"metrics\.jsonl is damaged: line 2 left out"):
        trainer(tmp_path).run(IMAGES)
    assert reported(tmp_path) == [1, 3, 4, 5]


def test_metrics_of_a_run_that_broke_before_its_first_checkpoint_are_made_again(tmp_path: Path) -> None:
    def break_down(report: Report, run: Trainer) -> None:
        if report.step == 2:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        trainer(tmp_path, checkpoint_every=5).run(IMAGES, listener=break_down)
    trainer(tmp_path).run(IMAGES)
    assert reported(tmp_path) == [1, 2, 3, 4, 5]


def test_a_checkpoint_of_another_network_is_rejected_by_name(tmp_path: Path) -> None:
    trainer(tmp_path, steps=2).run(IMAGES)
    with pytest.raises(ValueError, match=f"{tmp_path}.*does not fit the network"):
        trainer(tmp_path, width=16).run(IMAGES)
    assert TrainConfig.read(tmp_path / "config.json").network.width == 8


def test_a_run_that_ends_in_time_resumes_as_if_it_had_not(tmp_path: Path) -> None:
    for _ in range(3):
        trainer(tmp_path / "pieces", max_minutes=1e-9).run(IMAGES)  # a step each
    assert steps(tmp_path / "pieces")[-1] == reported(tmp_path / "pieces")[-1] == 3
    trainer(tmp_path / "pieces").run(IMAGES)
    trainer(tmp_path / "whole").run(IMAGES)
    pieces, whole = (Checkpoint(RunFolder(tmp_path / name).checkpoints()[-1]) for name in ("pieces", "whole"))
    for group in GROUPS:
        for name, value in whole.tensors(group).items():
            assert torch.equal(pieces.tensors(group)[name], value), name


@pytest.mark.parametrize("text", ['{"number": 2}', "[" * 100_000])
def test_a_damaged_fingerprint_of_the_data_is_named(tmp_path: Path, text: str) -> None:
    tie_to_data(tmp_path, torch.tensor([[1], [2]]))
    (tmp_path / "data.json").write_text(text)
    with pytest.raises(ValueError, match=r"data\.json (is damaged|cannot be read)"):
        tie_to_data(tmp_path, torch.tensor([[1], [2]]))
