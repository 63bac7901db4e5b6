"""Line: walks wait for the device, and visitors take turns.

One walk runs at a time, in one thread. Whose walk has ended goes to the end of the round: so nobody's second walk goes
before the first one of somebody who waits, and who waits is passed by nobody who comes later.
"""

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from blackout.web import limits

Event = dict[str, Any]
Tell = Callable[[Event], None]

_log = logging.getLogger("blackout.web")


class Stopped(Exception):
    """The visitor has gone, or wants no more of it."""


class Refused(Exception):
    """The line is too long."""


class Job:
    """One piece of work in the line, which gives the last event. `tell` is called from the thread that works."""

    def __init__(self, visitor: str, work: Callable[["Job"], Event], tell: Tell) -> None:
        self.visitor, self.work, self.tell = visitor, work, tell
        self.ahead: int | None = None
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def check(self) -> None:
        """Called by the work between its parts."""
        if self._stop.is_set():
            raise Stopped


class Line:
    """Jobs that wait, the one that runs, and the thread that runs it."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._turns: list[str] = []  # visitors who wait, in the order of their turns; without the one who is served
        self._jobs: dict[str, list[Job]] = {}
        self._running: Job | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="walks", daemon=True)
        self._thread.start()

    def join(self, job: Job) -> None:
        with self._change:
            own, waiting = len(self._jobs.get(job.visitor, ())), len(self._waiting())
            if own >= limits.WAITING:
                raise Refused(f"{own} walks of yours wait already; stop one of them, or wait for it")
            if self._closed:
                raise Refused("the server is about to stop")
            if waiting >= limits.LINE:
                raise Refused(f"{waiting} walks wait already; try again later")
            self._jobs.setdefault(job.visitor, []).append(job)
            if job.visitor not in self._turns and not self._serves(job.visitor):
                self._turns.append(job.visitor)
            self._moved()

    def leave(self, job: Job) -> None:
        """Stop a job, whether it waits or runs; one that has ended is left alone."""
        job.stop()
        with self._change:
            if job in self._jobs.get(job.visitor, ()):
                self._remove(job)
                if job.visitor not in self._jobs and job.visitor in self._turns:
                    self._turns.remove(job.visitor)
                self._moved()

    def state(self) -> dict[str, int]:
        with self._change:
            return {"running": int(self._running is not None), "waiting": len(self._waiting())}

    def close(self) -> None:
        """Stop everything; returns when the thread has ended, which it does after the pass that it is at."""
        with self._change:
            self._closed = True
            for job in self._waiting():
                job.tell({"event": "stopped"})
            self._turns.clear()
            self._jobs.clear()
            if self._running is not None:
                self._running.stop()
            self._change.notify_all()
        self._thread.join(timeout=60)

    def _serves(self, visitor: str) -> bool:
        return self._running is not None and self._running.visitor == visitor

    def _remove(self, job: Job) -> None:
        self._jobs[job.visitor].remove(job)
        if not self._jobs[job.visitor]:
            del self._jobs[job.visitor]

    def _waiting(self) -> list[Job]:
        """All jobs that wait, in the order in which they will be served if nobody else comes."""
        turns = self._turns + [visitor for visitor in self._jobs if self._serves(visitor)]
        rounds = itertools.zip_longest(*(self._jobs[visitor] for visitor in turns))
        return [job for jobs in rounds for job in jobs if job is not None]

    def _moved(self) -> None:
        """Wake the thread, and tell everybody whose place has changed."""
        for place, job in enumerate(self._waiting(), int(self._running is not None)):
            if job.ahead != place:
                job.ahead = place
                job.tell({"event": "place", "ahead": place})
        self._change.notify_all()

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            last = _run(job)
            with self._change:
                self._running = None
                if job.visitor in self._jobs:
                    self._turns.append(job.visitor)
                self._moved()
            job.tell(last)  # now, and not before: who hears it and comes again has nobody ahead

    def _next(self) -> Job | None:
        with self._change:
            self._change.wait_for(lambda: self._turns or self._closed)
            if self._closed:
                return None
            job = self._running = self._jobs[self._turns.pop(0)][0]
            self._remove(job)
            self._moved()
            return job


def _run(job: Job) -> Event:
    """The work of a job, and how it ended; what goes wrong is said in one line, and the thread lives on."""
    try:
        job.check()
        return job.work(job)
    except Stopped:
        return {"event": "stopped"}
    except ValueError as error:
        return {"event": "error", "error": " ".join(str(error).split())}
    except Exception as error:
        _log.exception("a walk failed")
        reason = " ".join(str(error).split())[:200]
        return {"event": "error", "error": f"the walk failed: {type(error).__name__} {reason}"}
