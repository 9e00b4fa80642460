"""How a long fit tells where it is, and is told to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """``done`` of ``total`` units of work, and what is being done, in a few words."""

    done: float
    total: float
    detail: str


ProgressCallback = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Tell nobody."""
