"""How a long fit reports its progress, and is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

SECONDS_A_CHUNK = 1.0


class Progress(NamedTuple):
    """``done`` of ``total`` units of work, and what is being done, in a few words."""

    done: float
    total: float
    detail: str


ProgressCallback = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""


def always() -> bool:
    """Whether to go on, where there is no limit."""
    return True


def in_time(deadline: float | None) -> Callable[[], bool]:
    """Return a question: is the deadline, on the clock of ``time.monotonic``, still to come?"""
    return always if deadline is None else lambda: time.monotonic() <= deadline


class Pace:
    """How many steps fill about a second, or another time, how long they have taken without compilation, and when to
    report it.

    The first stretch is one step long by default, because it is also compiled; it does not count.
    """

    def __init__(self, seconds_a_chunk: float = SECONDS_A_CHUNK, *, steps: int = 1) -> None:
        self.steps = steps
        self.seconds = 0.0
        self.seconds_a_step: float | None = None
        self._seconds_a_chunk = seconds_a_chunk
        self._compiled = False
        self._told = time.perf_counter()

    @contextmanager
    def timing(self, steps: int) -> Iterator[None]:
        started = time.perf_counter()
        yield
        elapsed = time.perf_counter() - started
        if not self._compiled:
            self._compiled = True
            return
        self.seconds += elapsed
        self.seconds_a_step = max(elapsed, 1e-6) / steps
        fitting = int(self._seconds_a_chunk / self.seconds_a_step)
        self.steps = max(1, min(fitting, 8 * self.steps))

    def is_due(self) -> bool:
        """Whether a chunk's time has passed since the last time that this was so."""
        now = time.perf_counter()
        if now - self._told < SECONDS_A_CHUNK:
            return False
        self._told = now
        return True
