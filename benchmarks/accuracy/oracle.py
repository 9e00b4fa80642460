"""What could be known about nonlinear parents if the order were: a ceiling for engines that have to find it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vcuda.dags.base import DagPrior
from vcuda.graphs import topological_order_edges
from vcuda.models.caching import CachedScore, SetCache
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.sets import set_sizes

POOL, LARGEST_POOL = 10, 20
SPEC = GaussianProcess()
# Pairs are all scored; larger sets add one parent to the best so many of each size that are within the margin, in nats,
# of the best of all, up to the largest size.
BEAM, MARGIN, LARGEST_SET = 20, 10.0, 12


def known_order_posterior(values: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Edge probabilities (d, d) given a true order, under the Gaussian process score.

    The order is one in which every true edge points forward. The parents of a node are then independent of those of
    all others, and its posterior is a sum over sets: of the `POOL` best single predecessors and the true parents, all
    sets of up to two, larger ones grown from the `BEAM` best of each size, and in any case the true set, what it is
    without one or two of its members, and with one more. The oracle is thus told the order and where to look, never
    what is true there.
    """
    nodes = len(truth)
    sources, targets = np.nonzero(truth)
    order = topological_order_edges(sources, targets, nodes)
    prior = DagPrior.for_nodes(nodes).edge_probability
    prepared = SPEC.prepare(values)
    score = CachedScore(prepared, SetCache())
    singles = np.stack([prepared.evaluate((node,)) for node in range(nodes)])
    edges = np.zeros((nodes, nodes))
    for place, node in enumerate(order.tolist()):
        before = order[:place]
        best_first = before[np.argsort(-singles[before, node])]
        # True parents before all others; beyond so many a table of all subsets would not fit, nor an edge be seen.
        true_first = best_first[np.argsort(~truth[best_first, node], kind="stable")]
        wanted = truth[true_first, node] | np.isin(true_first, best_first[:POOL])
        pool = np.sort(true_first[wanted][:LARGEST_POOL])
        edges[pool, node] = _marginals(score, node, pool, truth[pool, node], prior)
    return edges


def _marginals(
    score: CachedScore, node: int, pool: np.ndarray, true: np.ndarray, edge_probability: float
) -> np.ndarray:
    """The probability of each member of the pool (c,) to be a parent."""
    sizes = set_sizes(pool.size)
    table = np.full(sizes.size, -np.inf)

    def fill(sets: Iterable[int]) -> None:
        for index in sets:
            if table[index] == -np.inf:
                table[index] = score.score(node, pool[_members(index, pool.size)].tolist())

    fill(np.flatnonzero(sizes <= 2).tolist())
    bits = 1 << np.arange(pool.size)
    for size in range(3, min(LARGEST_SET, pool.size) + 1):
        alive = np.flatnonzero((sizes == size - 1) & (table >= table.max() - MARGIN))
        best = alive[np.argsort(-table[alive], kind="stable")[:BEAM]]
        extended = np.unique(best[:, None] | bits)
        fill(extended[sizes[extended] == size].tolist())
    fill(_near(true))
    table = table + sizes * (np.log(edge_probability) - np.log1p(-edge_probability))
    weights = np.exp(table - table.max())
    weights /= weights.sum()
    sets = np.arange(table.size)
    shares = np.array([weights[sets >> position & 1 == 1].sum() for position in range(pool.size)])
    return np.minimum(shares, 1.0)  # a certain parent's share may round to more


def _members(index: int, size: int) -> np.ndarray:
    return np.flatnonzero(index >> np.arange(size) & 1)


def _near(true: np.ndarray) -> set[int]:
    """Bit masks of the true set, of it without one or two members, and of it with one more."""
    bits = [1 << position for position in range(true.size)]
    whole = sum(bit for bit, present in zip(bits, true, strict=True) if present)
    inside = [bit for bit in bits if whole & bit]
    less = {whole & ~one & ~other for one in inside for other in inside}
    return {whole} | less | {whole | bit for bit in bits}
