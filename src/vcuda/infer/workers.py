"""Where pure functions are run: in this process, or on the workers of a cluster.

Engines hand work out by one call, `Workers.map`, and never learn where it was done. The functions are defined at the
top of a module and depend on nothing but their two arguments, and their results come back in the order of the items: so
the place changes no number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
# Below so many seconds of one core compiled work stays where it is: a worker compiles a program of its own first.
WORTH_SECONDS = 15.0
# About what is done elsewhere between two looks at the clock.
SECONDS_A_STRETCH = 4.0
# Hears now and then which share of the items is done; what it raises ends the work.
OnProgress = Callable[[float], None]


def no_progress(share: float) -> None:
    """Report nothing."""


class Workers(Protocol):
    """Somewhere to run functions: ``count`` of them at once."""

    @property
    def count(self) -> int: ...

    def map(
        self,
        function: Callable[[Any, Item], Result],
        items: Sequence[Item],
        *,
        shared: Any = None,
        on_progress: OnProgress = no_progress,
        kept: dict[int, Result] | None = None,
    ) -> list[Result]:
        """Return ``function(shared, item)`` of all items, in their order.

        ``shared`` is sent to a worker once, however many items use it, and must not be changed afterwards. ``kept``, if
        given, gets every result by its place as soon as it is there, so that an interrupt does not lose it.
        """
        ...


class Serial:
    """This process, one item after the other."""

    count = 1

    def map(
        self,
        function: Callable[[Any, Item], Result],
        items: Sequence[Item],
        *,
        shared: Any = None,
        on_progress: OnProgress = no_progress,
        kept: dict[int, Result] | None = None,
    ) -> list[Result]:
        results = {} if kept is None else kept
        for place, item in enumerate(items):
            on_progress(place / len(items))
            results[place] = function(shared, item)
        return [results[place] for place in range(len(items))]


SERIAL = Serial()


def mapped_by(workers: Workers) -> Callable[..., list[Any]] | None:
    """What passes over the parts of a table are handed to; None where that is this process."""
    return None if workers.count == 1 else workers.map


def chunked(items: Sequence[Item], hands: int) -> list[list[Item]]:
    """Deal items out like cards: as many hands as asked for, or as there are items, none longer than another by two."""
    count = max(1, min(hands, len(items)))
    return [list(items[hand::count]) for hand in range(count)]
