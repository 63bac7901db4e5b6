"""JobQueue: sampling jobs run one at a time, in one thread; clients are served round-robin.

A client's second job waits until every other waiting client has had one, and a client that waits is not overtaken by
clients that come later. Clients are the sessions of `blackout.web.access`: their number is limited, so a limit for each
of them limits the queue, and none can fill it.
"""

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from blackout.web import limits

Event = dict[str, Any]

_log = logging.getLogger("blackout.web")


class Cancelled(Exception):
    """The client stopped the job or disconnected, or the server is shutting down."""


class QueueFull(Exception):
    """No further job is accepted."""


class Job:
    """Work for the queue: `work(job)` returns the last event; `emit` receives all events, in the worker thread."""

    def __init__(self, client: int, work: Callable[["Job"], Event], emit: Callable[[Event], None]) -> None:
        self.client, self.work, self.emit = client, work, emit
        self.ahead: int | None = None
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        """Raise `Cancelled` if the job was cancelled; the work calls this between its parts."""
        if self._cancelled.is_set():
            raise Cancelled


class JobQueue:
    """Waiting jobs, the running job, and the thread that runs it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turns: list[int] = []  # waiting clients in the order of their turns, without the one being served
        self._jobs: dict[int, list[Job]] = {}
        self._running: Job | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="sampling", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Add a job; raises `QueueFull`."""
        with self._changed:
            own = len(self._jobs.get(job.client, ()))
            if own >= limits.WAITING:
                raise QueueFull(f"{own} of your jobs are waiting already; stop one of them, or wait")
            if self._closed:
                raise QueueFull("the server is shutting down")
            self._jobs.setdefault(job.client, []).append(job)
            if job.client not in self._turns and not self._is_served(job.client):
                self._turns.append(job.client)
            self._notify()

    def cancel(self, job: Job) -> None:
        """Cancel a job, waiting or running; a finished one is left alone."""
        job.cancel()
        with self._changed:
            if job in self._jobs.get(job.client, ()):
                self._remove(job)
                if job.client not in self._jobs and job.client in self._turns:
                    self._turns.remove(job.client)
                self._notify()

    def state(self) -> dict[str, int]:
        with self._changed:
            return {"running": int(self._running is not None), "waiting": len(self._waiting())}

    def close(self) -> None:
        """Cancel all jobs, and wait a little for the thread; a long network pass is not waited for."""
        with self._changed:
            self._closed = True
            for job in [*self._waiting(), *([] if self._running is None else [self._running])]:
                job.emit({"event": "stopped"})
            self._turns.clear()
            self._jobs.clear()
            if self._running is not None:
                self._running.cancel()
            self._changed.notify_all()
        self._thread.join(limits.SECONDS_TO_STOP)

    def _is_served(self, client: int) -> bool:
        return self._running is not None and self._running.client == client

    def _remove(self, job: Job) -> None:
        self._jobs[job.client].remove(job)
        if not self._jobs[job.client]:
            del self._jobs[job.client]

    def _waiting(self) -> list[Job]:
        """Waiting jobs in the order in which they will run if no other client comes."""
        turns = self._turns + [client for client in self._jobs if self._is_served(client)]
        rounds = itertools.zip_longest(*(self._jobs[client] for client in turns))
        return [job for jobs in rounds for job in jobs if job is not None]

    def _notify(self) -> None:
        """Wake the thread, and report new positions to the clients."""
        for position, job in enumerate(self._waiting(), int(self._running is not None)):
            if job.ahead != position:
                job.ahead = position
                job.emit({"event": "queued", "ahead": position})
        self._changed.notify_all()

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            last = _run(job)
            with self._changed:
                self._running = None
                if job.client in self._jobs:
                    self._turns.append(job.client)
                self._notify()
            job.emit(last)  # after the update: a client that submits its next job on this event has no job ahead

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._turns or self._closed)
            if self._closed:
                return None
            job = self._running = self._jobs[self._turns.pop(0)][0]
            self._remove(job)
            self._notify()
            return job


def _run(job: Job) -> Event:
    """The last event of a job; an exception becomes one line, and the thread continues."""
    try:
        job.check()
        return job.work(job)
    except Cancelled:
        return {"event": "stopped"}
    except ValueError as error:
        return {"event": "error", "error": " ".join(str(error).split())}
    except Exception as error:
        _log.exception("sampling failed")
        reason = " ".join(str(error).split())[:200]
        return {"event": "error", "error": f"sampling failed: {type(error).__name__} {reason}"}
