"""Which numbers are described by their logarithm: those that are described better, given what may cause them.

A skewed column may be the exponential of something, or a sum whose noise is skewed; its own distribution does not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.stats import rankdata

from vcuda.models.mixed.columns import Column, columns_of
from vcuda.models.mixed.evidence import ColumnEvidence, Rows, Set

# Likely causes of a column, and rows by which its scale is judged.
CAUSES = 5
MOST_ROWS = 1000
MOST_PARENTS = 3
# Columns whose largest value is less than so many times their smallest look the same as their logarithm.
LEAST_RATIO = 3.0
# A logarithm must be better by so many nats.
CLEAR = 3.0


def choose_logarithms(kinds: Sequence[str], values: np.ndarray, free: np.ndarray, seed: int) -> np.ndarray:
    """The columns (d,) of a table (n, d) that are described by their logarithm; ``free`` (n, d) are the cells that no
    experiment set."""
    n, d = values.shape
    rows = np.sort(np.random.default_rng([seed, 5]).choice(n, min(n, MOST_ROWS), replace=False))
    values, free = values[rows], free[rows]
    marked = np.zeros(d, dtype=bool)
    doubtful = [k for k, kind in enumerate(kinds) if kind == "number" and _has_both_scales(values[:, k])]
    if not doubtful:
        return marked
    ranks = np.apply_along_axis(rankdata, 0, values)
    ranks -= ranks.mean(axis=0)
    spread = np.maximum(np.sqrt((ranks**2).sum(axis=0)), 1e-12)
    for k in doubtful:
        strength = np.abs(ranks[:, k] @ ranks) / (spread[k] * spread)
        strength[k] = -1.0
        causes = np.argsort(-strength, kind="stable")[: min(CAUSES, d - 1)]
        own = free[:, k] if free[:, k].any() else np.ones(len(free), dtype=bool)
        chosen = [k, *causes.tolist()]
        table = values[own][:, chosen]
        others = columns_of([kinds[cause] for cause in causes], table[:, 1:])
        raw = _height((Column.of("number", table[:, 0]), *others), table)
        logs = np.concatenate([np.log(table[:, :1]), table[:, 1:]], axis=1)
        by_logarithm = _height((Column.of("number", logs[:, 0], logarithm=True), *others), logs) - logs[:, 0].sum()
        marked[k] = by_logarithm > raw + CLEAR
    return marked


def _height(columns: Sequence[Column], table: np.ndarray) -> float:
    """The evidence of the first column with the best of few sets of the others."""
    evidence = ColumnEvidence(0, Rows(columns, table))
    best: list[Set] = [()]
    for size in range(1, min(MOST_PARENTS, len(columns) - 1) + 1):
        sets = list(combinations(range(1, len(columns)), size))
        best.append(sets[int(np.argmax(evidence.cheap(sets)))])
    return float(evidence.average(best, together=False).max()) + columns[0].log_jacobian(len(table))


def _has_both_scales(values: np.ndarray) -> bool:
    """Whether a column is positive, and varies so much that its logarithm is something else."""
    return bool(values.min() > 0 and values.max() > LEAST_RATIO * values.min())
