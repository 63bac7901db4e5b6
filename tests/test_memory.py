from pathlib import Path

import psutil
import pytest

from blackout import memory
from blackout.memory import available_memory, check_memory, readable


def test_free_memory_is_less_than_that_of_the_machine() -> None:
    assert 0 < available_memory() <= psutil.virtual_memory().total
    assert available_memory("cpu") > 0


def test_work_that_does_not_fit_is_rejected_with_both_sizes_and_advice() -> None:
    check_memory("a batch of 1", 1000, "use a smaller batch")
    with pytest.raises(
        ValueError, match=r"^a batch of 9 needs about 909 TiB of memory, but [\d.]+ [MGT]iB are free; no$"
    ):
        check_memory("a batch of 9", 1e15, "no")


def test_sizes_have_units() -> None:
    sizes = (0, 999, 1024, 1536, 20 * 2**20, 3.25 * 2**30, 10**40)
    assert [readable(size) for size in sizes[:-1]] == [
        "0 bytes",
        "999 bytes",
        "1.0 KiB",
        "1.5 KiB",
        "20 MiB",
        "3.2 GiB",
    ]
    assert readable(sizes[-1]).endswith(" EiB")


@pytest.mark.parametrize(
    ("controllers", "limit", "usage"),
    [("", "memory.max", "memory.current"), ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")],
)
def test_limits_of_control_groups_count(
    controllers: str, limit: str, usage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest of all groups that hold the process; pages of files are free."""
    groups = Path("/proc/self/cgroup").read_text().splitlines() if Path("/proc/self/cgroup").exists() else []
    mine = next((line.split(":", 2)[2] for line in groups if line.split(":", 2)[1] == controllers), None)
    if mine is None:
        pytest.skip("this system has no such control groups")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    group = tmp_path / controllers / mine.lstrip("/")
    group.mkdir(parents=True, exist_ok=True)
    (group / limit).write_text("5000000\n")
    (group / usage).write_text("4000000\n")
    (group / "memory.stat").write_text("anon 3000000\ninactive_file 250000\n")
    assert available_memory() == 1_250_000
    (group / limit).write_text("max\n")
    assert available_memory() > 5_000_000


def test_a_limit_of_the_address_space_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    used = psutil.Process().memory_info().vms
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (used + 2**30, resource.RLIM_INFINITY))
    assert 0 < available_memory() < 1.1 * 2**30
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (used // 2, resource.RLIM_INFINITY))
    assert available_memory() == 0
