import logging
import threading
from collections.abc import Iterator

import pytest

from blackout.web import limits
from blackout.web.jobs import Event, Job, Line, Refused
from pages import until


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


class Visitors:
    """Jobs that do nothing but say that they have been served; the first one waits until the others stand in line."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.gate, self.begun = threading.Event(), threading.Event()
        self.served: list[str] = []
        self.heard: dict[str, list[Event]] = {}

    def come(self, name: str, *, hold: bool = False) -> Job:
        """`name` is the visitor's letter and the number of the job."""

        def work(job: Job) -> Event:
            self.begun.set()
            while hold and not self.gate.wait(0.01):
                job.check()
            self.served.append(name)
            return {"event": "done"}

        job = Job(name[0], work, self.heard.setdefault(name, []).append)
        self.line.join(job)
        return job

    def places(self, name: str) -> list[int]:
        return [event["ahead"] for event in self.heard[name] if event["event"] == "place"]


@pytest.fixture
def visitors(line: Line) -> Visitors:
    return Visitors(line)


def test_visitors_take_turns(visitors: Visitors) -> None:
    visitors.come("a1", hold=True)
    assert visitors.begun.wait(5)
    for name in ("a2", "a3", "b1", "c1", "b2", "d1"):
        visitors.come(name)
    assert visitors.places("a3") == [2, 3, 4, 5, 6]
    assert visitors.places("b1") == [1]
    visitors.gate.set()
    assert until(lambda: len(visitors.served) == 7)
    # First everybody's first, then everybody's second, in the order in which they came.
    assert visitors.served == ["a1", "b1", "c1", "d1", "a2", "b2", "a3"]
    assert visitors.places("a3") == [2, 3, 4, 5, 6, 5, 4, 3, 2, 1, 0]


def test_who_waits_is_passed_by_nobody_who_comes_later(visitors: Visitors) -> None:
    visitors.come("a1")
    assert until(lambda: visitors.served == ["a1"])
    visitors.come("b1", hold=True)
    assert until(lambda: visitors.line.state() == {"running": 1, "waiting": 0})
    for name in ("a2", "c1", "b2", "d1"):
        visitors.come(name)
    visitors.gate.set()
    assert until(lambda: len(visitors.served) == 6)
    assert visitors.served[1:] == ["b1", "a2", "c1", "d1", "b2"]


def test_the_line_has_a_length(visitors: Visitors, line: Line) -> None:
    visitors.come("a1", hold=True)
    visitors.begun.wait(5)
    for k in range(limits.WAITING):
        visitors.come(f"a{k + 2}")
    with pytest.raises(Refused, match="2 walks of yours wait already"):
        visitors.come("a9")
    letters = [chr(0x100 + k) for k in range(limits.LINE - limits.WAITING)]
    for letter in letters:
        visitors.come(f"{letter}1")
    with pytest.raises(Refused, match="64 walks wait already"):
        visitors.come("b1")
    assert line.state() == {"running": 1, "waiting": limits.LINE}
    visitors.gate.set()
    assert until(lambda: len(visitors.served) == 1 + limits.LINE)


def test_whoever_leaves_is_not_served_and_others_move_up(visitors: Visitors, line: Line) -> None:
    running = visitors.come("a1", hold=True)
    visitors.begun.wait(5)
    waiting = visitors.come("b1")
    visitors.come("c1")
    line.leave(waiting)
    assert visitors.places("c1") == [2, 1]
    line.leave(running)
    assert until(lambda: visitors.served == ["c1"])
    assert visitors.heard["a1"][-1] == {"event": "stopped"}
    line.leave(running)  # once more, which changes nothing
    assert until(lambda: line.state() == {"running": 0, "waiting": 0})


def test_the_thread_outlives_what_goes_wrong(visitors: Visitors, line: Line, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []
    for error in (ValueError("steps must be\n at least 1"), RuntimeError("out of memory"), KeyError("x")):

        def work(_: Job, error: Exception = error) -> Event:
            raise error

        line.join(Job("a", work, heard.append))
        assert until(lambda: heard[-1:] != [] and heard[-1]["event"] == "error")
        assert until(lambda: line.state()["running"] == 0)
        heard.append({"event": "next"})
    errors = [event["error"] for event in heard if event["event"] == "error"]
    assert errors == [
        "steps must be at least 1",
        "the walk failed: RuntimeError out of memory",
        "the walk failed: KeyError 'x'",
    ]
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]
    visitors.come("b1")
    assert until(lambda: visitors.served == ["b1"])


def test_who_hears_the_end_has_left_the_line(line: Line) -> None:
    states: list[dict[str, int]] = []

    def tell(event: Event) -> None:
        if event["event"] == "done":
            states.append(line.state())

    line.join(Job("a", lambda _: {"event": "done"}, tell))
    assert until(lambda: states == [{"running": 0, "waiting": 0}], 5)


def test_closing_stops_what_runs(visitors: Visitors, line: Line) -> None:
    visitors.come("a1", hold=True)
    visitors.begun.wait(5)
    visitors.come("b1")
    line.close()
    assert visitors.served == []
    assert visitors.heard["a1"][-1] == visitors.heard["b1"][-1] == {"event": "stopped"}
    with pytest.raises(Refused, match="the server is about to stop"):
        visitors.come("c1")
