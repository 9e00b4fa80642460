"""Start orders where none can be constructed: greedy search over DAGs, from several sides."""

from __future__ import annotations

import numpy as np

from vcuda.graphs import ancestors, topological_order
from vcuda.infer.edge_prior import EdgePrior
from vcuda.models.scores import LocalScore

# Gains below this are rounding, or the two directions of an edge that the score cannot tell apart.
LEAST_GAIN = 1e-6
# In place of minus infinity, so that differences stay numbers.
FORBIDDEN = -1e12


def climb_orders(
    score: LocalScore, prior: EdgePrior, rng: np.random.Generator, *, count: int, climbs: int, max_parents: int
) -> list[np.ndarray]:
    """Return orders (d,) of the ``count`` best DAGs that ``climbs`` greedy climbs end at, the best first."""
    found = [climb(score, prior, rng, max_parents=max_parents) for _ in range(climbs)]
    found.sort(key=lambda end: -end[0])
    orders = []
    for _, graph in found[:count]:
        # Of the orders that a DAG leaves open, any.
        shuffled = rng.permutation(score.nodes)
        orders.append(shuffled[np.asarray(topological_order(graph[np.ix_(shuffled, shuffled)]))])
    return orders


def climb(
    score: LocalScore, prior: EdgePrior, rng: np.random.Generator, *, max_parents: int
) -> tuple[float, np.ndarray]:
    """Add, drop or turn the edge that gains most until none does; return the total and the DAG (d, d).

    Every gain is multiplied by a random factor between 1/2 and 1 that belongs to the ordered pair, so that repeated
    climbs take different ways. Only nodes whose parents changed are scored again: O(d k²) a move for k parents, beside
    the check for cycles.
    """
    nodes = score.nodes
    graph = np.zeros((nodes, nodes), dtype=bool)
    gains = np.stack([_toggles(score, prior, j, graph[:, j]) for j in range(nodes)], axis=1)
    favour = rng.uniform(0.5, 1.0, size=(nodes, nodes))
    # A climb visits no graph twice, but a table can be such that it takes long to end.
    for _ in range(20 * nodes):
        best = _moves(graph, gains, max_parents) * favour
        kind, i, j = (int(part) for part in np.unravel_index(np.argmax(best), (3, nodes, nodes)))
        if best[kind, i, j] <= LEAST_GAIN:
            break
        graph[i, j] = kind == 0
        changed = [j]
        if kind == 2:
            graph[j, i] = True
            changed.append(i)
        for node in changed:
            gains[:, node] = _toggles(score, prior, node, graph[:, node])
    total = sum(score.score(j, np.flatnonzero(graph[:, j]).tolist()) for j in range(nodes))
    return total + float(prior.log_odds[graph].sum()), graph


def _toggles(score: LocalScore, prior: EdgePrior, target: int, parents: np.ndarray) -> np.ndarray:
    """What each column gains (d,) as a parent of the target against not being one, prior odds included."""
    chosen = np.flatnonzero(parents)
    gained = np.array(score.gains(target, chosen.tolist()))
    here = score.score(target, chosen.tolist())
    for parent in chosen:
        gained[parent] = here - score.score(target, chosen[chosen != parent].tolist())
    return np.maximum(gained + prior.log_odds[:, target], FORBIDDEN)


def _moves(graph: np.ndarray, gains: np.ndarray, max_parents: int) -> np.ndarray:
    """Gains (3, d, d) of adding, dropping and turning each edge, ``FORBIDDEN`` where that cannot be done."""
    above = ancestors(graph)
    room = graph.sum(axis=0) < max_parents
    free = ~graph & ~above.T & room
    np.fill_diagonal(free, False)
    # i -> j can be turned unless another way leads from i to j, over a parent of j that descends from i.
    other_way = (above.astype(np.float32) @ graph.astype(np.float32)) > 0
    turnable = graph & ~other_way & room[:, None]
    possible = np.stack([free, graph, turnable])
    return np.where(possible, np.stack([gains, -gains, gains.T - gains]), FORBIDDEN)
