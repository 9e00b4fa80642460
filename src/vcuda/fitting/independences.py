"""Directions that are read from independences alone: all columns jointly normal, on the scale of their ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import logit

from vcuda.data.dataset import Dataset
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.hill_climbing import climb
from vcuda.models.contexts import prepare as prepare_contexts
from vcuda.models.linear import BGe
from vcuda.models.mixed.ranks import normal_scores
from vcuda.models.mixed.screen import DegenerateGaussian
from vcuda.models.mixed.tables import MAX_PARENTS
from vcuda.models.protocol import LocalScore, ScoreSpec

# Effects may be expected to be as weak as so many rows more of independent columns make them; the evidence of the table
# chooses. Columns of people hang together weakly: if only strong effects are expected, weak ones are held to be none,
# and a root with many of them looks like the effect of the column that is nearest to it.
PRIOR_ROWS: tuple[float, ...] = (1, 5, 10, 20, 40, 80)
# What is joined is joined without doubt at so many nats.
JOINED = 12.0


def independences_of(table: Dataset, prior_rows: float, *, in_time: bool = False) -> LocalScore:
    """What shows the independences of columns: all jointly normal, on the scale of their ranks."""
    values, kinds = by_ranks(table)
    spec: ScoreSpec = DegenerateGaussian(kinds=kinds, excess=prior_rows + 1)
    if in_time and set(kinds) == {"number"}:
        spec = BGe(excess=prior_rows + 1)  # sums over earlier steps are faster
    return prepare_contexts(spec, replace(table, values=values))


def likely_prior_rows(table: Dataset, edges: EdgePrior, seed: int) -> float:
    """How weak the effects in a table are: with so many prior rows its best graph has the highest evidence."""

    def height(rows: float) -> float:
        rng = np.random.default_rng([seed, 15])
        return climb(independences_of(table, rows), edges, rng, max_parents=MAX_PARENTS)[0]

    return max(PRIOR_ROWS, key=height)


def joined_by(likely: np.ndarray) -> np.ndarray:
    """By how many nats pairs (d, d) are joined, given the probabilities of their edges: none where that is open."""
    either = np.minimum(likely + likely.T, 1.0)
    return np.clip(logit(either), 0.0, JOINED)


def by_ranks(table: Dataset) -> tuple[np.ndarray, tuple[str, ...]]:
    """The values (n, d) with numbers and counts as normal scores of their ranks, and the kinds that they then have."""
    values, kinds = table.values.copy(), [str(kind) for kind in table.kinds]
    for k, kind in enumerate(kinds):
        if kind in ("number", "count"):
            values[:, k], kinds[k] = normal_scores(values[:, k]), "number"
    return values, tuple(kinds)
