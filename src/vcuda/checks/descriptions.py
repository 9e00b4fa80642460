"""Another description of the same table: all columns jointly normal on the scale of their ranks.

It reads no direction from shapes of noise and effects, and is not misled by them. An edge that it turns round hangs on
the functions and the noise of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcuda.checks.statistics import normal_scores
from vcuda.checks.subject import SURE, Subject
from vcuda.graphs import compelled_edges
from vcuda.infer.exact import exact_posterior
from vcuda.infer.hill_climbing import climb
from vcuda.models.interventions import prepare
from vcuda.models.mixed.screen import DegenerateGaussian

# Up to so many columns the probabilities are exact, in a fraction of a second.
EXACT_COLUMNS = 10
MAX_PARENTS = 8
# Without so many complete rows a column, nothing is compared.
ROWS_A_COLUMN = 10


class OtherView(NamedTuple):
    """Sure edges that the other description turns round, does not have, or leaves open in their direction."""

    turned: list[tuple[int, int]]
    absent: list[tuple[int, int]]
    open: list[tuple[int, int]]

    @property
    def doubted(self) -> list[tuple[int, int]]:
        return [*self.turned, *self.absent, *self.open]


def other_view(subject: Subject) -> OtherView | None:
    """What the other description says of the sure edges; None where the rows are too few to ask it."""
    found = _probabilities(subject)
    if found is None:
        return None
    turned, absent, unsure = [], [], []
    for i, j in subject.sure:
        forth, back = found[i, j], found[j, i]
        if back > 0.5:
            turned.append((i, j))
        elif forth + back < 0.5:
            absent.append((i, j))
        elif forth < SURE * (forth + back):
            unsure.append((i, j))
    return OtherView(turned, absent, unsure)


def _probabilities(subject: Subject) -> np.ndarray | None:
    """Edge probabilities ``(d, d)``; of many columns those of one graph, 1/2 where its class leaves directions open."""
    table = subject.table.select(subject.rows)
    if table.missing is not None:
        table = table.select(~table.missing.any(axis=1))
    if table.n < ROWS_A_COLUMN * table.d or (np.ptp(table.values, axis=0) == 0).any():
        return None
    values, kinds, rng = table.values.copy(), list(table.kinds), subject.rng(6)
    for k, kind in enumerate(kinds):
        if kind in ("number", "count"):
            values[:, k], kinds[k] = normal_scores(values[:, k], rng), "number"
    score = prepare(DegenerateGaussian(kinds=tuple(kinds)), values, table.interventions)
    if table.d <= EXACT_COLUMNS:
        return np.asarray(exact_posterior(score, subject.edges, samples=1, rng=rng).edge_probabilities)
    _, graph = climb(score, subject.edges, rng, max_parents=MAX_PARENTS, go_on=lambda: not subject.late)
    sources, targets = np.nonzero(graph)
    held = () if table.interventions is None else np.flatnonzero(table.interventions.any(axis=0)).tolist()
    compelled = compelled_edges(sources, targets, table.d, intervened=held)
    found = np.zeros((table.d, table.d))
    found[sources, targets] = np.where(compelled, 1.0, 0.5)
    found[targets, sources] = np.maximum(found[targets, sources], np.where(compelled, 0.0, 0.5))
    return found
