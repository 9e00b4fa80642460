"""Columns on the scale of their ranks, where an increasing function that bent their values changes nothing."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri


def normal_scores(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Where values (k,) would lie in a normal distribution, by their ranks among others (n,); those that are alike lie
    in the middle of their ranks."""
    ordered = np.sort(among)
    ranks = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    # Nothing lies further out than the first and the last of the others.
    return np.asarray(ndtri(np.clip(ranks, 0.5, ordered.size - 0.5) / ordered.size))
