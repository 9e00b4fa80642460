"""Groups of a column's values, and how well probabilities of their own describe values that heap up."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from vcuda.models.mixed.columns import Column

# A group has this share of the rows or more; values that are as frequent are groups of their own.
SHARE_OF_GROUP = 1 / 16
# A prior of so many rows for each value (Jeffreys).
PRIOR_ROWS = 0.5


def cuts_of(values: np.ndarray) -> np.ndarray:
    """Where one group of values (n,) ends and the next begins."""
    present, rows = np.unique(values, return_counts=True)
    enough = SHARE_OF_GROUP * values.size
    starts, filled = [], 0
    for k, own in enumerate(rows.tolist()):
        if filled and (filled >= enough or own >= enough):
            starts.append(k)
            filled = 0
        filled += own
    last = np.array(starts, dtype=np.int64)
    return (present[last - 1] + present[last]) / 2


def log_evidence_of_values(column: Column, values: np.ndarray) -> float:
    """The log evidence of values (n,) that each have a probability of their own, in the units of the likelihood; minus
    infinity where they are on no grid."""
    if column.is_number and column.step is None:
        return -np.inf
    _, rows = np.unique(values, return_counts=True)
    if rows.size > values.size / 2:
        return -np.inf
    size = PRIOR_ROWS * rows.size
    chance = gammaln(size) - gammaln(size + values.size) + (gammaln(rows + PRIOR_ROWS) - gammaln(PRIOR_ROWS)).sum()
    width = 0.0
    if column.line is not None and column.step is not None:
        step = column.step / np.exp(values) if column.logarithm else np.full(values.size, column.step)
        width = float(np.log(step / column.line.scale).sum())
    return float(chance) - width
