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
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.hill_climbing import climb, climb_on
from vcuda.models.protocol import LocalScore

MOST_CLIMBS = 8
# A move looks at all columns, and a climb makes about one for each edge that it ends with.
MOST_WORK = 300_000
CLIMBING_SHARE = 0.1
MOST_NODES = 200
MOST_PARENTS = 32


class HillClimbCheck(NamedTuple):
    """The best graph of several climbs: its log score with the prior odds of its edges, the parents of every node, and
    an order (d,) in which they come first."""

    log_score: float
    graph: list[np.ndarray]
    order: np.ndarray


def log_score_of(score: LocalScore, prior: EdgePrior, graph: Sequence[np.ndarray]) -> float:
    """Return the log score of the parents of all nodes, with the log odds of their edges."""
    fits = (score.score(node, parents.tolist()) for node, parents in enumerate(graph))
    return float(sum(fits) + sum(prior.log_odds[parents, node].sum() for node, parents in enumerate(graph)))


def hill_climb_check(
    score: LocalScore,
    prior: EdgePrior,
    rng: np.random.Generator,
    sampled: Sequence[np.ndarray],
    *,
    go_on: Callable[[], bool],
) -> HillClimbCheck | None:
    """Climb a few times from the empty graph and on from the best of these climbs, then on from the better of that and
    the best sampled graph; None where that takes too long.
    """
    if not score.cheap_tables or score.nodes > MOST_NODES:
        return None
    most = MOST_PARENTS if score.max_parents is None else min(MOST_PARENTS, score.max_parents)
    start = np.zeros((score.nodes, score.nodes), dtype=bool)
    for node, parents in enumerate(sampled):
        start[parents, node] = True

    def improved(graph: np.ndarray, work: int) -> tuple[float, np.ndarray]:
        return climb_on(
            score,
            prior,
            rng,
            graph,
            max_parents=max(most, int(graph.sum(axis=0).max())),
            patience=score.nodes,
            most_moves=work // score.nodes,
            go_on=go_on,
        )

    best, graph = log_score_of(score, prior, sampled), start
    # With equal noise the constructed order is far better than any climb.
    if not score.tells_direction:
        ends, work = [climb(score, prior, rng, max_parents=most, go_on=go_on)], 0
        while work < CLIMBING_SHARE * MOST_WORK and len(ends) < MOST_CLIMBS and go_on():
            ends.append(climb(score, prior, rng, max_parents=most, go_on=go_on))
            work += score.nodes * int(ends[-1][1].sum())
        # From a climb, not from the sampled graph: a good graph that is wrong is harder to leave than a bad one.
        reached, other = improved(max(ends, key=lambda end: end[0])[1], MOST_WORK // 2)
        if reached > best:
            best, graph = reached, other
    best, graph = improved(graph, MOST_WORK // 2)
    parents_of = [np.flatnonzero(graph[:, node]) for node in range(score.nodes)]
    return HillClimbCheck(best, parents_of, np.asarray(topological_order(graph), dtype=np.int64))
