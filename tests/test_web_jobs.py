import logging
import threading
from collections.abc import Iterator

import pytest

from blackout.web import limits
from blackout.web.jobs import Event, Job, JobQueue, QueueFull
from pages import IDLE, until


@pytest.fixture
def queue() -> Iterator[JobQueue]:
    queue = JobQueue()
    yield queue
    queue.close()


class Clients:
    """Jobs that record when they run; a job with `hold` runs until the gate opens, while others are submitted."""

    def __init__(self, queue: JobQueue) -> None:
        self.queue = queue
        self.gate, self.begun = threading.Event(), threading.Event()
        self.served: list[str] = []
        self.events: dict[str, list[Event]] = {}

    def submit(self, name: str, *, hold: bool = False) -> Job:
        """`name` is the client's letter and the number of the job."""

        def work(job: Job) -> Event:
            self.begun.set()
            while hold and not self.gate.wait(0.01):
                job.check()
            self.served.append(name)
            return {"event": "done"}

        job = Job(ord(name[0]), work, self.events.setdefault(name, []).append)
        self.queue.submit(job)
        return job

    def positions(self, name: str) -> list[int]:
        return [event["ahead"] for event in self.events[name] if event["event"] == "queued"]


@pytest.fixture
def clients(queue: JobQueue) -> Clients:
    return Clients(queue)


def test_clients_are_served_round_robin(clients: Clients) -> None:
    clients.submit("a1", hold=True)
    assert clients.begun.wait(5)
    for name in ("a2", "a3", "b1", "c1", "b2", "d1"):
        clients.submit(name)
    assert clients.positions("a3") == [2, 3, 4, 5, 6]
    assert clients.positions("b1") == [1]
    clients.gate.set()
    assert until(lambda: len(clients.served) == 7)
    assert clients.served == ["a1", "b1", "c1", "d1", "a2", "b2", "a3"]
    assert clients.positions("a3") == [2, 3, 4, 5, 6, 5, 4, 3, 2, 1, 0]


def test_a_waiting_client_is_not_overtaken(clients: Clients) -> None:
    clients.submit("a1")
    assert until(lambda: clients.served == ["a1"])
    clients.submit("b1", hold=True)
    assert until(lambda: clients.queue.state() == {"running": 1, "waiting": 0})
    for name in ("a2", "c1", "b2", "d1"):
        clients.submit(name)
    clients.gate.set()
    assert until(lambda: len(clients.served) == 6)
    assert clients.served[1:] == ["b1", "a2", "c1", "d1", "b2"]


def test_a_client_may_have_so_many_waiting_jobs(clients: Clients, queue: JobQueue) -> None:
    """Others are not affected: the next one is served after the job that runs."""
    clients.submit("a1", hold=True)
    clients.begun.wait(5)
    for k in range(limits.WAITING):
        clients.submit(f"a{k + 2}")
    with pytest.raises(QueueFull, match="4 of your jobs are waiting already"):
        clients.submit("a9")
    clients.submit("b1")
    assert queue.state() == {"running": 1, "waiting": limits.WAITING + 1}
    clients.gate.set()
    assert until(lambda: len(clients.served) == 2 + limits.WAITING)
    assert clients.served[:2] == ["a1", "b1"]


def test_cancelled_jobs_are_not_run_and_others_move_up(clients: Clients, queue: JobQueue) -> None:
    running = clients.submit("a1", hold=True)
    clients.begun.wait(5)
    waiting = clients.submit("b1")
    clients.submit("c1")
    queue.cancel(waiting)
    assert clients.positions("c1") == [2, 1]
    queue.cancel(running)
    assert until(lambda: clients.served == ["c1"])
    assert clients.events["a1"][-1] == {"event": "stopped"}
    queue.cancel(running)  # again, without effect
    assert until(lambda: queue.state() == IDLE)


def test_failures_are_reported_and_the_queue_continues(
    clients: Clients, queue: JobQueue, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []
    for error in (ValueError("steps must be\n at least 1"), RuntimeError("out of memory"), KeyError("x")):

        def work(_: Job, error: Exception = error) -> Event:
            raise error

        queue.submit(Job(1, work, events.append))
        assert until(lambda: events[-1:] != [] and events[-1]["event"] == "error")
        assert until(lambda: queue.state()["running"] == 0)
        events.append({"event": "next"})
    assert [event["error"] for event in events if event["event"] == "error"] == [
        "steps must be at least 1",
        "sampling failed: RuntimeError out of memory",
        "sampling failed: KeyError 'x'",
    ]
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]
    clients.submit("b1")
    assert until(lambda: clients.served == ["b1"])


def test_a_job_has_left_the_queue_when_its_last_event_is_emitted(queue: JobQueue) -> None:
    states: list[dict[str, int]] = []

    def emit(event: Event) -> None:
        if event["event"] == "done":
            states.append(queue.state())

    queue.submit(Job(1, lambda _: {"event": "done"}, emit))
    assert until(lambda: states == [IDLE], 5)


def test_closing_cancels_all_jobs(clients: Clients, queue: JobQueue) -> None:
    clients.submit("a1", hold=True)
    clients.begun.wait(5)
    clients.submit("b1")
    queue.close()
    assert clients.served == []
    assert clients.events["a1"][-1] == clients.events["b1"][-1] == {"event": "stopped"}
    with pytest.raises(QueueFull, match="the server is shutting down"):
        clients.submit("c1")
