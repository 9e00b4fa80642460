"""Fits in which some columns are no nodes of the graph: their edges are summed out, and drawn afterwards.

Engines see the first d columns of a wide table with a score that sums over the others
(:mod:`vcuda.models.summed_out`). What they find becomes graphs of all columns here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling, units_log_jacobian
from vcuda.fitting.routes import Request
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.scored import ScoredTable
from vcuda.models.protocol import LocalScore
from vcuda.models.summed_out import NuisancePrior, summed_out
from vcuda.posterior.posterior import Outcome
from vcuda.posterior.predictions import parent_sets
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples


def nodes_of(request: Request) -> int:
    """How many columns are nodes of the graph that is searched, from the first on."""
    return request.table.d if request.series is None else request.series.nodes


def searched_edges(request: Request) -> EdgePrior:
    """The prior of the edges among these."""
    if request.series is None:
        return request.edges
    inner = request.edges.among(np.arange(request.series.nodes))
    free = inner.log_odds[inner.free]
    same = free.size > 0 and bool(np.all(free == free[0]))
    return inner._replace(edge_probability=float(1 / (1 + np.exp(-free[0]))) if same else None)


def summed(request: Request, score: LocalScore, table: Dataset) -> LocalScore:
    """The score that engines take: as it is, or with the columns summed out that are no nodes."""
    if request.series is None:
        return score
    nodes = request.series.nodes
    lagged = np.arange(nodes, request.edges.nodes)
    prior = NuisancePrior(
        request.edges.log_odds[lagged, :nodes],
        request.edges.log_absent[lagged, :nodes],
        request.edges.required[lagged, :nodes],
    )
    cells = table.free_counts[:nodes]
    jacobian = 0.0 if _is_labelled(table) else units_log_jacobian(cells, table.scale[:nodes])
    return summed_out(score, prior, jacobian)


def _is_labelled(table: Dataset) -> bool:
    return table.categories is not None and all(own is not None for own in table.categories)


def searched_table(request: Request, scored: ScoredTable) -> ScoredTable:
    """The table and score that engines take."""
    if request.series is None:
        return scored
    nodes = request.series.nodes
    assert isinstance(scored.data, Dataset)
    units = Scaling(scored.units.centre[:nodes], scored.units.scale[:nodes], scored.units.logarithm[:nodes])
    return ScoredTable(scored.data.take(range(nodes)), scored.score, units, scored.log_jacobian)


def with_all_columns(request: Request, outcome: Outcome, score: Any, *, number: int = 0) -> Outcome:
    """An outcome with graphs and probabilities of all columns: those that were summed out are drawn given the others.

    ``number`` tells several draws of one fit apart.
    """
    found = outcome.graph_posterior
    if request.series is None or not isinstance(found, SampledGraphs):
        return outcome
    nodes, wide, pool = request.series.nodes, request.edges.nodes, found.pool
    rng = np.random.default_rng([request.seed, 31, number])
    lagged = np.zeros((wide - nodes, nodes))
    graphs, sources, targets = [np.repeat(np.arange(len(pool)), pool.edge_counts())], [pool.sources], [pool.targets]
    by_target: dict[int, list[tuple[np.ndarray, list[int]]]] = {}
    for target, parents, members in parent_sets(pool):
        by_target.setdefault(target, []).append((parents, members))
    for target, several in by_target.items():
        several.sort(key=lambda one: one[0].size)
        posteriors = score.nuisance_posteriors(target, [parents.tolist() for parents, _ in several])
        for (_, members), posterior in zip(several, posteriors, strict=True):
            lagged[:, target] += pool.weights[members].sum() * posterior.marginals()
            for member in members:
                drawn = nodes + posterior.draw(rng)
                graphs.append(np.full(drawn.size, member))
                sources.append(drawn)
                targets.append(np.full(drawn.size, target))
    order = np.argsort(np.concatenate(graphs), kind="stable")
    counts = np.bincount(np.concatenate(graphs), minlength=len(pool))
    samples = GraphSamples.from_counts(
        request.table.names, counts, np.concatenate(sources)[order], np.concatenate(targets)[order], pool.weights
    )
    marginals = np.zeros((wide, wide))
    marginals[:nodes, :nodes] = found.marginals
    marginals[nodes:, :nodes] = np.minimum(lagged, 1.0)
    return outcome._replace(graph_posterior=SampledGraphs(samples, request.edges.hold(marginals), None))
