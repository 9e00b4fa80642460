"""Independent orders and graphs, drawn backwards through the sums over sets."""

from __future__ import annotations

import numpy as np

from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact.lattice import (
    Lattice,
    others_of,
    weighted_scores,
    without,
)
from vcuda.infer.progress import Progress, ProgressCallback


def sample_orders(lattice: Lattice, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw orders (size, d), last node first; also return the sets before each node (size, d)."""
    nodes = len(lattice.sums)
    orders = np.zeros((size, nodes), dtype=np.int64)
    before = np.zeros((size, nodes), dtype=np.int64)
    left = np.full(size, (1 << nodes) - 1, dtype=np.int64)
    for rank in range(nodes - 1, -1, -1):
        log_weights = np.full((size, nodes), -np.inf)
        for node in range(nodes):
            holds = np.flatnonzero(left & (1 << node))
            rest = left[holds] & ~(1 << node)
            log_weights[holds, node] = lattice.first[rest] + lattice.sums[node][without(rest, node)]
        orders[:, rank] = np.argmax(log_weights + rng.gumbel(size=(size, nodes)), axis=1)
        chosen = orders[:, rank]
        left &= ~(1 << chosen)
        before[np.arange(size), chosen] = left
    return orders, before


def sample_graphs(
    lattice: Lattice,
    prior: EdgePrior,
    before: np.ndarray,
    rng: np.random.Generator,
    progress: ProgressCallback,
) -> np.ndarray:
    """Draw the parents of every node given the sets before it (s, d): graphs (s, d, d).

    The subset transform is repeated with all its stages kept; walking back from the last stage, each bit is
    decided by one comparison.
    """
    size, nodes = before.shape
    graphs = np.zeros((size, nodes, nodes), dtype=bool)
    if size == 0:
        return graphs
    known = lattice.weights
    for node in range(nodes):
        stages = _stages(weighted_scores(lattice.score, prior, node)[0] if known is None else known[node])
        sets = without(before[:, node], node)
        others = others_of(node, nodes)
        for position in range(nodes - 2, -1, -1):
            bit = 1 << position
            holds = np.flatnonzero(sets & bit)
            lacking = sets[holds] & ~bit
            log_lacking = stages[position][lacking] - stages[position + 1][sets[holds]]
            keeps = rng.random(holds.size) >= np.exp(log_lacking)
            sets[holds] = np.where(keeps, sets[holds], lacking)
            graphs[holds[keeps], others[position], node] = True
        # Before the next table is made.
        del stages
        progress(Progress(node + 1, nodes, "drawing graphs"))
    return graphs


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
