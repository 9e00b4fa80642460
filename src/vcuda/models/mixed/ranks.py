"""Columns on the scale of their ranks, where an increasing function that bent their values changes nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

# So many standard deviations: nothing lies further out.
FAR = 40.0
# Beyond the table a value goes on as steeply as it does over the last part of the rows.
LAST_PART = 0.1


def normal_scores(values: np.ndarray) -> np.ndarray:
    """Where values (n,) would lie in a normal distribution, by their ranks; those that are alike lie in the middle."""
    _, place, rows = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(ndtri((np.cumsum(rows) - rows / 2)[place] / values.size))


class NormalScores(NamedTuple):
    """The normal scores (k,) of the different values (k,) of a column, both in order, and lines between them."""

    values: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> NormalScores:
        """From a column (n,) that varies; beyond its ends it is a line to points that are far away."""
        present, first = np.unique(values, return_index=True)
        scores = normal_scores(values)[first]
        last = max(1, int(LAST_PART * present.size))
        ends = []
        for end, inner in ((0, last), (-1, -1 - last)):
            steepness = (present[end] - present[inner]) / (scores[end] - scores[inner])
            ends.append((present[end], scores[end], steepness))
        (low, low_score, low_slope), (high, high_score, high_slope) = ends
        return cls(
            np.concatenate([[low - low_slope * FAR], present, [high + high_slope * FAR]]),
            np.concatenate([[low_score - FAR], scores, [high_score + FAR]]),
        )

    def of_values(self, values: np.ndarray) -> np.ndarray:
        """The normal scores of values."""
        return np.interp(values, self.values, self.scores)

    def to_values(self, scores: np.ndarray) -> np.ndarray:
        """The values that have these normal scores."""
        return np.interp(scores, self.scores, self.values)
