"""Columns on the scale of their ranks, where an increasing function that bent their values changes nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

# So many standard deviations: nothing lies further out.
FAR = 40.0
# Beyond the table a value goes on as steeply as it does over the last part of the different values.
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
        low_slope = (present[last] - present[0]) / (scores[last] - scores[0])
        high_slope = (present[-1] - present[-1 - last]) / (scores[-1] - scores[-1 - last])
        return cls(
            np.concatenate([[present[0] - low_slope * FAR], present, [present[-1] + high_slope * FAR]]),
            np.concatenate([[scores[0] - FAR], scores, [scores[-1] + FAR]]),
        )

    def of_values(self, values: np.ndarray) -> np.ndarray:
        """The normal scores of values."""
        return np.interp(values, self.values, self.scores)

    def to_values(self, scores: np.ndarray) -> np.ndarray:
        """The values that have these normal scores."""
        return np.interp(scores, self.scores, self.values)
