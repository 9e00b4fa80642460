"""How a long fit reports where it is, how much it does between two reports, and what ends it early."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

SECONDS_A_CHUNK = 1.0
# Of the whole work: how far a report may lie before an earlier one of the same work, and what is too little to tell a
# pace from, unless so many seconds have passed.
STEP_BACK, TOO_EARLY, LONG = 0.1, 0.1, 60.0
TIME_LIMIT, USER = "the time limit", "the user"


class Progress(NamedTuple):
    """``done`` of ``total`` units of work, and what is being done, in a few words.

    ``seconds_left`` is about how long it will still take at most, where that is known.
    """

    done: float
    total: float
    detail: str
    seconds_left: float | None = None


ProgressCallback = Callable[[Progress], None]


def duration(seconds: float) -> str:
    """A time as people say it.

    Examples
    --------
    >>> duration(3.21), duration(75), duration(7300)
    ('3.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {round(seconds) % 60} s"
    return f"{minutes // 60} h {minutes % 60} min"


class Remaining:
    """Time left, from the pace since the first report of a stretch of work: what came before that was compilation.

    Work that goes back a little, such as the steps of one part of the rows, goes on where it was. In the first tenth
    the pace is that of a few steps, the first of which are slow: nothing is said before, unless that takes long.
    """

    def __init__(self) -> None:
        self._first = self._furthest = Progress(0.0, 0.0, "")
        self._started = 0.0

    def __call__(self, progress: Progress) -> str:
        left = self.seconds(progress)
        # An engine may stop earlier, when nothing improves any more.
        return "" if left is None else f"at most {duration(left)} left"

    def seconds(self, progress: Progress) -> float | None:
        """The same as a number; None where nothing is known yet."""
        now, total = time.perf_counter(), progress.total
        if total != self._furthest.total or progress.done < self._furthest.done - STEP_BACK * total:
            self._first = self._furthest = progress
            self._started = now
        if progress.done > self._furthest.done:
            self._furthest = progress
        if progress.seconds_left is not None:
            return progress.seconds_left
        gained, taken = self._furthest.done - self._first.done, now - self._started
        if gained <= 0 or (self._furthest.done < TOO_EARLY * total and taken < LONG):
            return None
        return taken / gained * (total - self._furthest.done)


def silent(progress: Progress) -> None:
    """Report nothing."""


def always() -> bool:
    """Whether to go on, where there is no limit."""
    return True


def in_time(deadline: float | None) -> Callable[[], bool]:
    """Return a question: is the deadline, on the clock of ``time.monotonic``, still to come?"""
    return always if deadline is None else lambda: time.monotonic() <= deadline


class Clock:
    """The deadline of a fit, on the clock of ``time.monotonic``, and the callback for its progress."""

    def __init__(self, progress: ProgressCallback = silent, deadline: float | None = None) -> None:
        self.progress, self.deadline = progress, deadline
        self._first: tuple[float, float] | None = None

    def seconds_left(self) -> float | None:
        """Until the deadline; None without one."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def report(self, done: float, total: float, detail: str) -> None:
        """Report progress; what the callback raises ends the fit."""
        self.progress(Progress(done, total, detail, self._remaining(done, total)))

    def _remaining(self, done: float, total: float) -> float | None:
        """By the pace since the first report, before which programs were compiled; no more than the deadline allows."""
        now = time.monotonic()
        if self._first is None:
            self._first = (done, now)
        gained = done - self._first[0]
        if gained <= 0:
            return None
        remaining = (now - self._first[1]) / gained * max(total - done, 0.0)
        return remaining if self.deadline is None else min(remaining, max(self.deadline - now, 0.0))


class Pace:
    """How many steps fill about a second, or another time, how long they have taken without compilation, and when to
    report.

    The first stretch is one step long by default, because it is also compiled; it does not count.
    """

    def __init__(self, seconds_a_chunk: float | None = None, *, steps: int = 1) -> None:
        self.steps = steps
        self.seconds = 0.0
        self.seconds_a_step: float | None = None
        self._seconds_a_chunk = SECONDS_A_CHUNK if seconds_a_chunk is None else seconds_a_chunk
        self._compiled = False
        self._reported = time.perf_counter()

    def note(self, steps: int, seconds: float) -> None:
        """So many steps took so long; no steps say nothing."""
        if steps == 0:
            return
        if not self._compiled:
            self._compiled = True
            return
        self.seconds += seconds
        self.seconds_a_step = max(seconds, 1e-6) / steps
        fitting = int(self._seconds_a_chunk / self.seconds_a_step)
        self.steps = max(1, min(fitting, 8 * self.steps))

    def is_due(self) -> bool:
        """Whether a chunk's time has passed since the last time that this was so."""
        now = time.perf_counter()
        if now - self._reported < SECONDS_A_CHUNK:
            return False
        self._reported = now
        return True
