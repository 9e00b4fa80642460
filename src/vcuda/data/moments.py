"""Rows, means, centred products and extremes of a table, which add up over its parts without losing digits."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcuda.data.raw_table import FloatArray

# Numbers that differ by no more than so many units in the last place are one number with different rounding.
ROUNDING_UNITS = 16


def varies(least: FloatArray, largest: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether columns vary by more than rounding, from their ``least`` and ``largest`` values.

    The one rule for what is constant, for the checks of a table and for the scores.
    """
    last_place = np.spacing(np.maximum(np.abs(least), np.abs(largest)))
    return np.asarray(largest - least > ROUNDING_UNITS * last_place)


class Moments(NamedTuple):
    """``rows`` n, ``mean`` (d,), ``gram`` (d, d) of the centred columns, ``least`` and ``largest`` (d,).

    Of no rows, the mean is zero, and the extremes are infinite, each on the other's side.
    """

    rows: int
    mean: FloatArray
    gram: FloatArray
    least: FloatArray
    largest: FloatArray

    @classmethod
    def none(cls, columns: int) -> Moments:
        """The moments of no rows."""
        ends = np.full(columns, np.inf)
        return cls(0, np.zeros(columns), np.zeros((columns, columns)), ends, -ends)

    @classmethod
    def of(cls, values: FloatArray) -> Moments:
        """The moments of a table (n, d) in memory, in two passes: the means first."""
        rows, columns = values.shape
        if rows == 0:
            return cls.none(columns)
        # Contiguous columns are summed pairwise, which loses no digits to a large mean.
        by_column = np.ascontiguousarray(values.T)
        mean = by_column.mean(axis=1)
        centred = by_column - mean[:, None]
        # The mean is rounded, which matters where it is large beside the spread. What is left of it is small and exact.
        centred -= centred.mean(axis=1, keepdims=True)
        return cls(rows, mean, centred @ centred.T, by_column.min(axis=1), by_column.max(axis=1))

    @property
    def scale(self) -> FloatArray:
        """The standard deviations (d,), division by n."""
        return np.sqrt(np.diag(self.gram) / max(self.rows, 1))


def merge(first: Moments, second: Moments) -> Moments:
    """The moments of the rows of both, by the update of Chan, Golub and LeVeque (1983).

    Products stay centred throughout, so that nothing is lost when means are large beside the standard deviations.
    """
    if not first.rows or not second.rows:
        return first if first.rows else second
    rows = first.rows + second.rows
    apart = second.mean - first.mean
    gram = np.outer(apart, apart)
    gram *= first.rows * (second.rows / rows)
    gram += first.gram
    gram += second.gram
    return Moments(
        rows,
        first.mean + apart * (second.rows / rows),
        gram,
        np.minimum(first.least, second.least),
        np.maximum(first.largest, second.largest),
    )


def merged(parts: Iterable[Moments], columns: int) -> Moments:
    """The moments of the rows of all parts, of which there may be none."""
    return reduce(merge, parts, Moments.none(columns))
