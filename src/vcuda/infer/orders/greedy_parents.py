"""Parents of a node as far as greed goes: from a pool of columns, or from all that come first in an order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.progress import always
from vcuda.models.protocol import LocalScore

MOST_PARENTS = 64
# Log odds that nothing can be worth more than.
CERTAIN = 1e12


def choose_parents(
    score: LocalScore,
    prior: EdgePrior,
    target: int,
    pool: np.ndarray,
    *,
    tolerance: float,
    start: np.ndarray | None = None,
    most: int = MOST_PARENTS,
) -> tuple[np.ndarray, np.ndarray]:
    """Select parents forward from a pool (d,) of booleans, then prune; also return what is nearly as good.

    The first array are the parents with which the weight of the set is largest as far as greed goes, the
    second the other members of the pool whose addition would gain more than minus ``tolerance``, best first.
    """
    odds = prior.log_odds[:, target]
    parents = np.zeros(0, dtype=np.int64) if start is None else np.array(start, dtype=np.int64)
    limit = most if score.max_parents is None else min(most, score.max_parents)
    usable = pool & np.isfinite(odds)
    for _ in range(2 * limit):
        if parents.size:
            losses = score.losses(target, parents) + odds[parents]
            weakest = int(np.argmin(losses))
            if losses[weakest] < 0:
                parents = np.delete(parents, weakest)
                continue
        gains = np.where(usable, score.gains(target, parents.tolist()) + odds, -np.inf)
        best = int(np.argmax(gains))
        if gains[best] <= 0 or parents.size >= limit:
            break
        parents = np.append(parents, best)
    gains[parents] = -np.inf
    near = np.flatnonzero(gains > -tolerance)
    return parents, near[np.argsort(-gains[near], kind="stable")]


def best_parents(
    score: LocalScore,
    prior: EdgePrior,
    target: int,
    pool: np.ndarray,
    *,
    required: np.ndarray | None = None,
    most: int = MOST_PARENTS,
) -> np.ndarray:
    """The best parents from a pool (d,); those that are ``required``, (d, d), in any case."""
    must = np.zeros(0, dtype=np.int64) if required is None else np.flatnonzero(required[:, target])
    if not must.size:
        return choose_parents(score, prior, target, pool, tolerance=0.0, most=most)[0]
    # Taken for all but certain, they are there from the start and no gain is lost by dropping them.
    odds = prior.log_odds.copy()
    odds[must, target] = CERTAIN
    kept = prior._replace(log_odds=odds)
    return choose_parents(score, kept, target, pool, tolerance=0.0, start=must, most=max(most, must.size))[0]


def parents_in_order(
    score: LocalScore,
    prior: EdgePrior,
    order: np.ndarray,
    *,
    required: np.ndarray | None = None,
    most: int = MOST_PARENTS,
    go_on: Callable[[], bool] = always,
) -> list[np.ndarray]:
    """The best parents of every node among its predecessors in an order (d,), first node first.

    Where ``go_on`` says no (time is short), a node gets only what is required.
    """
    rank = np.argsort(order)
    nobody = np.zeros(score.nodes, dtype=bool)
    return [
        best_parents(score, prior, node, rank < rank[node] if go_on() else nobody, required=required, most=most)
        for node in range(score.nodes)
    ]
