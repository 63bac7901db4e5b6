"""Failures that an attack found, one for each cause, with the shortest line that shows it again."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from attack.child import Outcome

# Status 1 is for what no input explains: an environment without a connection, or a file system that refuses.
_NOT_OURS = re.compile(
    r"no connections in an attack|no host \S+ in an attack|the loss is \S+ \(|No space left|Permission denied|"
    r"File too large|Input/output error|"
    r"Operation not permitted|Read-only file system|Too many levels|Device or resource busy"
)


@dataclass(frozen=True)
class Failure:
    """What went wrong in one case."""

    what: str
    """One line: the kind of failure and the last line of the process."""
    again: str
    """A command line that shows it again."""

    @property
    def cause(self) -> str:
        """The same for failures that differ in numbers and names only."""
        return re.sub(r"'[^']*'|\"[^\"]*\"|\S*/\S*|\b\d[\w.,+-]*", "·", self.what)[:160]


@dataclass
class Tally:
    """Counts of one kind of attack."""

    name: str
    cases: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    """The shortest of each cause."""
    failed: int = 0
    seconds: float = 0.0

    def count(self, note: str, number: int = 1) -> None:
        self.notes[note] = self.notes.get(note, 0) + number

    def add(self, failure: Failure | None) -> None:
        self.cases += 1
        if failure is None:
            return
        self.failed += 1
        known = self.failures.get(failure.cause)
        if known is None or len(failure.again) < len(known.again):
            self.failures[failure.cause] = failure
        if known is None:
            print(f"  {failure.what}\n    {failure.again}", flush=True)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def judge(outcome: Outcome) -> str:
    """What is wrong with the end of a command; empty if nothing is."""
    last = last_line(outcome.err)[:300]
    if outcome.hung:
        return f"hung: deaf to Ctrl-C for seconds; {last}"
    if "Traceback (most recent call last)" in outcome.err + outcome.out:
        return f"traceback: {last}"
    if "internal error" in outcome.err:
        return f"internal error: {last}"
    if outcome.status < 0:
        return f"ended by signal {-outcome.status}; {last}"
    if outcome.slow:
        return "" if outcome.status in (0, 130) else f"status {outcome.status} after Ctrl-C: {last}"
    if "allocate" in outcome.err:
        return f"memory that no check foresaw: {last}"
    if outcome.status == 1 and not _NOT_OURS.search(outcome.err):
        return f"status 1 where 2 is due: {last}"
    if outcome.status not in (0, 1, 2):
        return f"status {outcome.status}: {last}"
    if outcome.status and not last.startswith("blackout: "):
        return f"status {outcome.status} without a reason: {last}"
    return ""


def numbers(first: int | None, minutes: float, most: int | None) -> Iterator[int]:
    """Numbers of cases: the given one alone, or 0, 1, ... until the time is over or there are enough."""
    end, number = time.monotonic() + 60 * minutes, 0
    if first is not None:
        yield first
        return
    while time.monotonic() < end and (most is None or number < most):
        yield number
        number += 1


def shortened(words: list[str], fails: Callable[[list[str]], bool], keep: int) -> list[str]:
    """A command line without the words after the first `keep` that a failure does not need."""
    place = keep
    while place < len(words):
        for width in (2, 1):
            fewer = words[:place] + words[place + width :]
            if len(fewer) < len(words) and fails(fewer):
                words = fewer
                break
        else:
            place += 1
    return words
