"""Sums over all sets of nodes, in the log domain: parents of a node, orders of the nodes, edge probabilities."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from vcuda.errors import KnowledgeError
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.progress import Progress, ProgressCallback
from vcuda.models.protocol import LocalScore

# Sets of predecessors that are less probable than this do not count: 2**24 of them would weigh 2e-11.
NEGLIGIBLE = 1e-18
THREADS = min(os.cpu_count() or 1, 8)
SCORING = "scoring all parent sets"


class ParentSums(NamedTuple):
    """Sums over all sets of parents under one score: H (d, 2**(d-1)) less its ``shift``.

    ``weights`` (d, 2**(d-1)) are what H sums over, each node's less their maximum; None when there is no
    memory for them.
    """

    score: LocalScore
    weights: np.ndarray | None
    sums: np.ndarray
    shift: float


class Lattice(NamedTuple):
    """Sums over all orders of each set of nodes, L (2**d,), from the sums over sets of parents."""

    parents: ParentSums
    first: np.ndarray

    @property
    def log_total(self) -> float:
        return float(self.first[-1]) + self.parents.shift


def others_of(node: int, nodes: int) -> np.ndarray:
    return np.delete(np.arange(nodes), node)


def as_bits(positions: np.ndarray) -> int:
    return sum(1 << int(position) for position in positions)


def subset_sums(terms: np.ndarray) -> np.ndarray:
    """Return the sum of the terms (c,) of every subset (2**c,)."""
    sums = np.zeros(1, dtype=terms.dtype)
    for term in terms:
        sums = np.concatenate([sums, sums + term])
    return sums


def weighted_scores(
    score: LocalScore, prior: EdgePrior, node: int, table: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Return scores with prior log odds of all parent sets (2**(d-1),) less their maximum, and the maximum.

    ``table`` (2**(d-1),) holds the scores if they are known.
    """
    others = others_of(node, score.nodes)
    odds = prior.log_odds[others, node]
    # Scores that leave out unpromising sets must not judge them beside parents that are forbidden.
    allowed = np.flatnonzero(odds > -np.inf)
    weighted = np.full(1 << others.size, -np.inf)
    sets = subset_sums(1 << allowed)
    scores = score.table(node, others[allowed]) if table is None else table[sets]
    weighted[sets] = scores + subset_sums(odds[allowed])
    must = np.flatnonzero(prior.required[others, node])
    if must.size:
        holds = sets & as_bits(must) == as_bits(must)
        weighted[sets[~holds]] = -np.inf
        # Nor may they leave out the required parents, alone and with one more.
        most = must.size + 1 if score.max_parents is None else min(must.size + 1, score.max_parents)
        left_out = holds & (weighted[sets] == -np.inf) & (np.bitwise_count(sets) <= most)
        for index in sets[left_out].tolist():
            chosen = np.flatnonzero(index >> np.arange(others.size) & 1)
            weighted[index] = score.score(node, others[chosen].tolist()) + odds[chosen].sum()
    largest = float(weighted.max())
    if np.isfinite(largest):
        weighted -= largest
    return weighted, largest


def sum_over_subsets(values: np.ndarray) -> None:
    """Replace log weights of sets (2**c,) by log sums over all their subsets, in place: the zeta
    transform."""
    bits = values.size.bit_length() - 1
    low = min(bits, 6)
    # The lowest bits are summed on a transposed copy with long rows; in place rows would have 1, 2, 4
    # entries.
    turned = np.ascontiguousarray(values.reshape(-1, 1 << low).T)
    for bit in range(low):
        columns = turned.reshape(-1, 2, 1 << bit, turned.shape[1])
        np.logaddexp(columns[:, 0], columns[:, 1], out=columns[:, 1])
    values.reshape(-1, 1 << low)[...] = turned.T
    for bit in range(low, bits):
        pairs = values.reshape(-1, 2, 1 << bit)
        np.logaddexp(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])


def build_lattice(score: LocalScore, prior: EdgePrior, progress: ProgressCallback, *, keep: bool) -> Lattice:
    """Sum over all graphs and the orders that they agree with."""
    parents = sum_over_parents(score, prior, progress, keep=keep)
    first = sweep(parents.sums, forward=True)
    if first[-1] == -np.inf:
        raise nothing_obeys(score)
    return Lattice(parents, first)


def nothing_obeys(score: LocalScore) -> KnowledgeError:
    return KnowledgeError(
        "no graph obeys all that was required and forbidden within the score's largest number of parents "
        f"({score.max_parents}); require fewer edges or raise that number"
    )


def sum_over_parents(score: LocalScore, prior: EdgePrior, progress: ProgressCallback, *, keep: bool) -> ParentSums:
    """Score all sets of parents and sum over the subsets of each set; ``keep`` the scores as well."""
    nodes = score.nodes
    tables = score.all_tables(
        np.arange(nodes),
        [prior.allowed_parents(node) for node in range(nodes)],
        threads=THREADS,
        on_progress=lambda share: progress(Progress(share * nodes, nodes, SCORING)),
    )
    sums = np.empty((nodes, 1 << (nodes - 1)))
    # Weights take the place of the scores that they are made of.
    weights = tables if tables is not None else np.empty_like(sums) if keep else None

    def weigh(node: int) -> float:
        values, largest = weighted_scores(score, prior, node, None if tables is None else tables[node])
        if weights is not None:
            weights[node] = values
        sums[node] = values
        return largest

    def transform(node: int) -> None:
        sum_over_subsets(sums[node])
        sums[node] += subset_sums(prior.log_absent[others_of(node, nodes), node])

    shift = 0.0
    # A table in the making takes nine times its own size, which must not come to more than the stages of the
    # draws.
    with ThreadPoolExecutor(max(1, min(THREADS, nodes // 9))) as pool:
        try:
            # NumPy's loops let two threads run; scores that go set by set in Python, or remember sets, gain
            # nothing.
            parallel = score.cheap_tables or tables is not None
            found = (pool.map if parallel else map)(weigh, range(nodes))
            tasks = []
            for node, largest in enumerate(found):
                shift += largest
                tasks.append(pool.submit(transform, node))
                progress(Progress(node + 1, nodes, SCORING))
            for task in tasks:
                task.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return ParentSums(score, weights, sums, shift)


def without(sets: np.ndarray, node: int) -> np.ndarray:
    """Return the index, among sets of the other nodes, of sets that lack ``node``: its bit is cut out."""
    return (sets & ((1 << node) - 1)) | ((sets >> (node + 1)) << node)


def sweep(sums: np.ndarray, *, forward: bool) -> np.ndarray:
    """Return L (2**d,) from the empty set upwards, or R (2**d,) from the full set downwards, size by size."""
    nodes = len(sums)
    everything = np.arange(1 << nodes, dtype=np.int64)
    sizes = np.bitwise_count(everything)
    by_size = np.split(np.argsort(sizes, kind="stable"), np.cumsum(np.bincount(sizes))[:-1])
    total = np.full(1 << nodes, -np.inf)
    total[0 if forward else -1] = 0.0

    def fill(sets: np.ndarray) -> None:
        reached = np.full(sets.size, -np.inf)
        for node in range(nodes):
            bit = 1 << node
            fits = np.flatnonzero(sets & bit if forward else ~sets & bit)
            before = sets[fits] & ~bit
            step = sums[node][without(before, node)] + total[before if forward else before | bit]
            reached[fits] = np.logaddexp(reached[fits], step)
        total[sets] = reached

    with ThreadPoolExecutor(THREADS) as pool:
        for layer in by_size[1:] if forward else by_size[-2::-1]:
            # Small layers are not worth a hand-over; large ones are cut so that working arrays stay small.
            parts = max(1, min(layer.size >> 12, THREADS * -(-layer.size >> 17)))
            list(pool.map(fill, np.array_split(layer, parts)))
    return total


def edge_marginals(lattice: Lattice, prior: EdgePrior, progress: ProgressCallback) -> np.ndarray:
    """Return P(i -> j) for all pairs (d, d)."""
    nodes = len(lattice.parents.sums)
    last = sweep(lattice.parents.sums, forward=False)
    edges = np.zeros((nodes, nodes))
    for node in range(nodes):
        before = lattice.first.reshape(-1, 2, 1 << node)[:, 0].reshape(-1)
        after = last.reshape(-1, 2, 1 << node)[:, 1].reshape(-1)
        probability = np.exp(before + after + lattice.parents.sums[node] - lattice.first[-1])
        edges[:, node] = parent_marginals(lattice.parents.sums[node], probability, prior, node)
        progress(Progress(node + 1, nodes, "edge probabilities"))
    return np.minimum(edges, 1.0)


def parent_marginals(sums: np.ndarray, probability: np.ndarray, prior: EdgePrior, node: int) -> np.ndarray:
    """Return P(i -> node) for all i (d,), from the ``probability`` of each set of possible parents, (2**(d-1),) like
    the sums over their subsets."""
    edges = np.zeros(prior.nodes)
    likely = np.flatnonzero(np.abs(probability) > NEGLIGIBLE)
    weights = probability[likely]
    for position, other in enumerate(others_of(node, prior.nodes)):
        holds = np.flatnonzero(likely & (1 << position))
        sets = likely[holds]
        # P(i is no parent, given the predecessors); the factor 1 - pi of i itself stands in one of the
        # two.
        log_lacking = sums[sets & ~(1 << position)] + prior.log_absent[other, node] - sums[sets]
        edges[other] = weights[holds] @ -np.expm1(np.minimum(log_lacking, 0.0))
    return edges


def log_order_count(required: np.ndarray) -> float:
    """Return the log number of orders of all nodes that point every required edge forward."""
    nodes = len(required)
    if not required.any():
        return float(gammaln(nodes + 1))
    sums = np.zeros((nodes, 1 << (nodes - 1)))
    for node in range(nodes):
        needed = as_bits(np.flatnonzero(required[others_of(node, nodes), node]))
        sums[node, np.arange(sums.shape[1]) & needed != needed] = -np.inf
    return float(sweep(sums, forward=True)[-1])
