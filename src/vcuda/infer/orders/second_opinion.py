"""A second opinion on the search: greedy climbs over whole graphs, which share none of its mistakes.

Chains that all start from the same candidate parents can agree on a wrong mode, most of all where the parents of a hub
were fixed wrongly. Climbs over all edges know no candidates and no fixed parents; where one of them ends above the best
sampled graph, the search was wrong, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vcuda.graphs import topological_order
from vcuda.infer.climbing import climb
from vcuda.infer.edge_prior import EdgePrior
from vcuda.models.scores import EqualNoiseScore, GramScore, LocalScore

MOST_CLIMBS = 16
# A climb makes about one move for each edge that it ends with, and a move looks at all columns: 15 climbs with 60 edges
# at 50 columns, 5 with 100 edges at 100 columns. About 4 seconds.
MOST_WORK = 50_000
MOST_NODES = 200
MOST_PARENTS = 32


class Opinion(NamedTuple):
    """The best graph of several climbs: its log score with the prior odds of its edges, the parents of every node, and
    an order (d,) in which they come first."""

    log_score: float
    graph: list[np.ndarray]
    order: np.ndarray


def log_score_of(score: LocalScore, prior: EdgePrior, graph: Sequence[np.ndarray]) -> float:
    """Return the log score of the parents of all nodes, with the log odds of their edges."""
    fits = (score.score(node, parents.tolist()) for node, parents in enumerate(graph))
    return float(sum(fits) + sum(prior.log_odds[parents, node].sum() for node, parents in enumerate(graph)))


def second_opinion(
    score: LocalScore, prior: EdgePrior, rng: np.random.Generator, *, go_on: Callable[[], bool]
) -> Opinion | None:
    """Climb a few times from the empty graph; None where that takes too long, where edges are required, and for equal
    noise, where the constructed order is far better than any climb.
    """
    if not isinstance(score, GramScore) or isinstance(score, EqualNoiseScore):
        return None
    if score.nodes > MOST_NODES or prior.required.any():
        return None
    most = MOST_PARENTS if score.max_parents is None else min(MOST_PARENTS, score.max_parents)
    best: Opinion | None = None
    work = 0
    for _ in range(MOST_CLIMBS):
        if work > MOST_WORK or not go_on():
            break
        log_score, dense = climb(score, prior, rng, max_parents=most)
        work += score.nodes * int(dense.sum())
        if best is None or log_score > best.log_score:
            graph = [np.flatnonzero(dense[:, node]) for node in range(score.nodes)]
            best = Opinion(log_score, graph, np.asarray(topological_order(dense), dtype=np.int64))
    return best
