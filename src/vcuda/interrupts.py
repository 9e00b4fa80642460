"""Ctrl-C on the command line: one answer, whatever the program is doing at that moment.

Python's own answer is an exception wherever the program happens to be. Inside imports, callbacks and compiled libraries
such an exception is swallowed, becomes a traceback, or ends the process by a signal. Here nothing is raised: the answer
to a signal ends the process, with a sentence that says what was saved, or is put off by whoever has something to save.

This module imports next to nothing, so that it can be at work before anything else is imported.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 130  # 128 + the number of SIGINT, as shells count
NOTHING_SAVED = "stopped before there was a result; nothing was saved."
# Clear the line of a progress bar, and show the cursor that it hid.
PLAIN_TERMINAL = b"\r\x1b[2K\x1b[?25h"


class _Answer:
    """What an interrupt leads to at the moment; there is one for the process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nothing is saved, nothing is put off, nothing is under way."""
        self.sentence: Callable[[], str] = lambda: NOTHING_SAVED
        self.put_off: Callable[[], bool] = lambda: False
        # What leaving at once must undo, the last first: drafts of files, locks, empty folders.
        self.unfinished: list[Callable[[], object]] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.put_off():
            return
        sentence = self.sentence()
        while self.unfinished:
            with contextlib.suppress(Exception):
                self.unfinished.pop()()
        end(f"vcuda: {sentence}\n")


ANSWER = _Answer()


def write(text: str) -> None:
    """Write to standard error without Python's buffers, which an interrupt may find in the middle of a write."""
    with contextlib.suppress(OSError):
        os.write(2, (PLAIN_TERMINAL if os.isatty(2) else b"") + text.encode("ascii", "backslashreplace"))


def end(text: str) -> None:
    """End the process at once: compiled libraries that are at work are in no state to be asked."""
    write(text)
    os._exit(EXIT_CODE)


def sentence() -> str:
    """What an interrupt at this moment leaves behind."""
    return ANSWER.sentence()


def install() -> None:
    """Answer interrupts for the rest of the process."""
    signal.signal(signal.SIGINT, ANSWER)


@contextmanager
def answered() -> Iterator[None]:
    """Answer interrupts while this lasts, where that is possible: not outside the main thread."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is ANSWER:
        yield
        return
    before = signal.signal(signal.SIGINT, ANSWER)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        ANSWER.forget()


def leaves(sentence: Callable[[], str]) -> None:
    """From now on an interrupt leaves behind what this sentence says, asked at the moment of the interrupt."""
    ANSWER.sentence = sentence


@contextmanager
def put_off(by: Callable[[], bool]) -> Iterator[None]:
    """Let somebody put interrupts off while this lasts: ``by`` is called for each, and says whether it takes care."""
    before, ANSWER.put_off = ANSWER.put_off, by
    try:
        yield
    finally:
        ANSWER.put_off = before


@contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """While this lasts, leaving at once undoes first what was begun."""
    ANSWER.unfinished.append(undo)
    try:
        yield
    finally:
        # Not there any more when the process is being left.
        with contextlib.suppress(ValueError):
            ANSWER.unfinished.remove(undo)
