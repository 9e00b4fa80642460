"""Which columns are better explained by their logarithm, by the evidence of a linear model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.moments import varies
from vcuda.data.scaling import Scaling
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.hill_climbing import climb
from vcuda.infer.orders.greedy_parents import MOST_PARENTS
from vcuda.infer.progress import always
from vcuda.infer.scored import column_log_jacobians
from vcuda.models import FAMILIES
from vcuda.models.interventions import prepare

# A logarithm is taken when it wins by this: odds of 150 to 1. Where both fit alike, a column stays as it is.
LOGARITHM_MARGIN = 5.0
SCALE_ROUNDS = 4


def choose_logarithms(
    data: Dataset,
    prior: EdgePrior,
    rng: np.random.Generator,
    *,
    positive: np.ndarray | None = None,
    given_graph: bool = True,
    go_on: Callable[[], bool] = always,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns (d,) that are better explained by their logarithm, and how much each gains (d,) in nats.

    Under linear functions with unequal noise: at first each column alone, then given its parents and children in the
    best graph found (unless ``given_graph`` is false), again until nothing changes. ``positive`` (d,) marks what may be
    taken where the table is a sample of a larger one. Where ``go_on`` says no (time is short), columns that were not
    looked at stay as they are.
    """
    able = np.asarray((data.values > 0).all(axis=0) if positive is None else positive)
    gains = np.full(data.d, -np.inf)
    chosen = np.zeros(data.d, dtype=bool)
    if not able.any():
        return chosen, gains
    logs = np.log(np.where(able, data.values, 1.0))
    # Where the mean is large beside the spread, rounding may leave nothing of the logarithm.
    able = able & varies(logs.min(axis=0), logs.max(axis=0))
    jacobian = column_log_jacobians(data, Scaling(np.zeros(data.d), np.ones(data.d), able))
    spec = FAMILIES["linear"].specs["unequal"]

    def local(node: int, parents: np.ndarray, mask: np.ndarray) -> float:
        columns = np.append(parents, node)
        values = np.where(mask[columns], logs[:, columns], data.values[:, columns])[data.free_rows(node)]
        if not len(values):
            return 0.0
        score = spec.prepare(values)
        own = -len(values) * float(np.log(np.std(values[:, -1]))) + (jacobian[node] if mask[node] else 0.0)
        return score.score(len(parents), list(range(len(parents)))) + own

    def flip_gain(node: int, graph: np.ndarray, mask: np.ndarray) -> float:
        """What the logarithm of this column gains over the column itself, the others being as they are."""
        masks = [mask.copy(), mask.copy()]
        masks[0][node], masks[1][node] = False, True
        touched = [node, *np.flatnonzero(graph[node])]
        before, after = (sum(local(j, np.flatnonzero(graph[:, j]), m) for j in touched) for m in masks)
        return float(after - before)

    graph = np.zeros((data.d, data.d), dtype=bool)
    for _ in range(SCALE_ROUNDS):
        before = chosen.copy()
        for node in np.flatnonzero(able):
            if not go_on():
                return chosen, gains
            gains[node] = flip_gain(int(node), graph, chosen)
            chosen[node] = gains[node] > LOGARITHM_MARGIN
        if np.array_equal(before, chosen) or not given_graph:
            break
        score = prepare(spec, np.where(chosen, logs, data.values), data.interventions)
        graph = climb(score, prior, rng, max_parents=MOST_PARENTS, go_on=go_on)[1]
    return chosen, gains
