"""Independent orders and graphs, drawn backwards through the sums over sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact.lattice import (
    Lattice,
    ParentSums,
    others_of,
    weighted_scores,
    without,
)
from vcuda.infer.progress import Progress, ProgressCallback


class DrawnOrders(NamedTuple):
    """Orders (s, d), first node first, and for each node the set of its possible parents (s, d). Where ``touched``
    (s, d) is not empty, at least one parent is in it."""

    orders: np.ndarray
    before: np.ndarray
    touched: np.ndarray


def sample_orders(lattice: Lattice, size: int, rng: np.random.Generator) -> DrawnOrders:
    """Draw orders, last node first."""
    nodes, sums = len(lattice.parents.sums), lattice.parents.sums
    orders = np.zeros((size, nodes), dtype=np.int64)
    before = np.zeros((size, nodes), dtype=np.int64)
    left = np.full(size, (1 << nodes) - 1, dtype=np.int64)
    for rank in range(nodes - 1, -1, -1):
        log_weights = np.full((size, nodes), -np.inf)
        for node in range(nodes):
            holds = np.flatnonzero(left & (1 << node))
            rest = left[holds] & ~(1 << node)
            log_weights[holds, node] = lattice.first[rest] + sums[node][without(rest, node)]
        orders[:, rank] = np.argmax(log_weights + rng.gumbel(size=(size, nodes)), axis=1)
        chosen = orders[:, rank]
        left &= ~(1 << chosen)
        before[np.arange(size), chosen] = left
    return DrawnOrders(orders, before, np.zeros_like(before))


def sample_graphs(
    parents: ParentSums,
    prior: EdgePrior,
    drawn: DrawnOrders,
    rng: np.random.Generator,
    progress: ProgressCallback,
) -> np.ndarray:
    """Draw the parents of every node given its possible parents: graphs (s, d, d).

    The subset transform is repeated with all its stages kept; walking back from the last stage, each bit is
    decided by one comparison. Where a parent must be in a certain set, sets that have none in it are taken off the
    sums until one is drawn.
    """
    size, nodes = drawn.before.shape
    graphs = np.zeros((size, nodes, nodes), dtype=bool)
    if size == 0:
        return graphs
    known = parents.weights
    for node in range(nodes):
        stages = _stages(weighted_scores(parents.score, prior, node)[0] if known is None else known[node])
        sets, touched = without(drawn.before[:, node], node), without(drawn.touched[:, node], node)
        others = others_of(node, nodes)
        for position in range(nodes - 2, -1, -1):
            bit = 1 << position
            holds = np.flatnonzero(sets & bit)
            lacking = sets[holds] & ~bit
            log_lacking = stages[position][lacking] - stages[position + 1][sets[holds]]
            bound = np.flatnonzero(touched[holds])
            if bound.size:
                log_lacking[bound] = _log_lacking_where_bound(
                    stages[position], sets[holds[bound]], touched[holds[bound]], bit
                )
            keeps = rng.random(holds.size) >= np.exp(log_lacking)
            sets[holds] = np.where(keeps, sets[holds], lacking)
            graphs[holds[keeps], others[position], node] = True
            met = holds[keeps]
            touched[met[touched[met] & bit != 0]] = 0
        # Before the next table is made.
        del stages
        progress(Progress(node + 1, nodes, "drawing graphs"))
    return graphs


def _log_lacking_where_bound(stage: np.ndarray, sets: np.ndarray, touched: np.ndarray, bit: int) -> np.ndarray:
    """Return the log probability that ``bit`` is not in a subset of the sets (s,), given that the subset has a member
    of ``touched`` (s,) at this bit or a lower one."""
    lower = touched & (bit - 1)
    lacking = sets & ~bit
    log_without = _log_difference(stage[lacking], stage[lacking & ~lower])
    log_with = np.where(touched & bit, stage[sets], _log_difference(stage[sets], stage[sets & ~lower]))
    log_total = np.logaddexp(log_without, log_with)
    # Where rounding leaves nothing, the bit is kept: the last one of ``touched`` has to be.
    return np.where(log_total > -np.inf, log_without - np.maximum(log_total, -1e300), -np.inf)


def _log_difference(larger: np.ndarray, smaller: np.ndarray) -> np.ndarray:
    """Return log(exp(larger) - exp(smaller)), minus infinity where rounding leaves nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = larger + np.log(-np.expm1(np.minimum(smaller - larger, 0.0)))
    return np.where(np.isnan(found), -np.inf, found)


def _stages(weights: np.ndarray) -> np.ndarray:
    """Return the stages (c + 1, 2**c) of the subset transform of log weights (2**c,).

    Stage t holds sums over sets that agree with the index from bit t on.
    """
    bits = weights.size.bit_length() - 1
    stages = np.empty((bits + 1, weights.size))
    stages[0] = weights
    for bit in range(bits):
        old, new = stages[bit].reshape(-1, 2, 1 << bit), stages[bit + 1].reshape(-1, 2, 1 << bit)
        new[:, 0] = old[:, 0]
        np.logaddexp(old[:, 0], old[:, 1], out=new[:, 1])
    return stages


def ancestor_shares(graphs: np.ndarray) -> np.ndarray:
    """Return the share of graphs (s, d, d) with a directed path from i to j, for all pairs (d, d)."""
    total = np.zeros(graphs.shape[1:])
    for some in np.array_split(graphs, -(-len(graphs) // 1000)):
        reach = some.astype(np.float32)
        for _ in range(max(1, int(np.ceil(np.log2(graphs.shape[1]))))):
            reach = np.minimum(reach + reach @ reach, 1.0)
        total += reach.sum(axis=0)
    return total / len(graphs)
