"""Which sets of parents can matter: those of graphs that are not far from the best one.

The best graph that gives a column some set of parents follows from dynamic programming over sets of columns, as the
exact engine sums over them (Silander and Myllymäki, 2006, for the best graph alone): the columns before it, the column,
and those after it. A set that is far from the best of a column is not enough to be left out: in some order the column
comes first, and has no better one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

Set = tuple[int, ...]

# All sets of more columns would take too much time and memory.
MOST_COLUMNS = 18


def losses(scores: Sequence[Mapping[Set, float]]) -> list[dict[Set, float]]:
    """How much worse than the best graph is the best one in which a column has a set of parents, for all sets.

    Takes O(2^d d²), for d columns.
    """
    d = len(scores)
    size = 1 << d
    places = np.arange(size)
    counts = sum((places >> k) & 1 for k in range(d))
    # The best set of parents of each column among those in a set of columns.
    best = np.full((d, size), -np.inf)
    for column, own in enumerate(scores):
        for parents, score in own.items():
            best[column, _place(parents)] = score
        _spread_up(best[column], d)
    before, after = np.full(size, -np.inf), np.full(size, -np.inf)
    before[0] = after[-1] = 0.0
    by_count = [places[counts == count] for count in range(d)]
    for some in by_count:
        for column in range(d):
            without = some[(some >> column) & 1 == 0]
            with_it = without | (1 << column)
            before[with_it] = np.maximum(before[with_it], before[without] + best[column, without])
    for some in reversed(by_count):
        for column in range(d):
            without = some[(some >> column) & 1 == 0]
            found = after[without | (1 << column)] + best[column, without]
            after[without] = np.maximum(after[without], found)
    top, result = before[-1], []
    for column, own in enumerate(scores):
        others = np.full(size, -np.inf)
        without = places[(places >> column) & 1 == 0]
        others[without] = before[without] + after[without | (1 << column)]
        _spread_down(others, d)
        result.append({parents: float(top - others[_place(parents)] - score) for parents, score in own.items()})
    return result


def _place(parents: Set) -> int:
    return sum(1 << parent for parent in parents)


def _spread_up(values: np.ndarray, d: int) -> None:
    """Replace the value of every set by the largest of its subsets."""
    for k in range(d):
        pairs = values.reshape(-1, 2, 1 << k)
        np.maximum(pairs[:, 1], pairs[:, 0], out=pairs[:, 1])


def _spread_down(values: np.ndarray, d: int) -> None:
    """Replace the value of every set by the largest of the sets that contain it."""
    for k in range(d):
        pairs = values.reshape(-1, 2, 1 << k)
        np.maximum(pairs[:, 0], pairs[:, 1], out=pairs[:, 0])
