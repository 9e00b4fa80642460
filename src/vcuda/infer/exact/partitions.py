"""Sums over DAGs, each counted once, for a prior that knows no orders.

A DAG has exactly one partition of its nodes into layers: the roots, then, layer by layer, the nodes all of whose
parents are in earlier layers, at least one of them in the layer just before. So a sum over sequences of layers is a sum
over DAGs (the partitions of Kuipers and Moffa, 2017). With S the nodes up to a layer, T the layer itself, T' the next
one and H_j as in ``lattice``,

    F(S, T)    = log sum over the graphs on S whose last layer is T
    D_j(S, T)  = log (exp H_j(S) - exp H_j(S - T))             parents in S, at least one of them in T
    F(S + T', T') = log sum over T of exp(F(S, T) + sum over j in T' of D_j(S, T))

and G(S, T) sums in the same way over all that can follow. No sum has terms of either sign. In D_j digits are lost only
where parents in T hardly count; the same node then weighs as much with its parents before T, in a graph that is summed
elsewhere, so what is lost is lost beside that. The same holds for terms that underflow because they are 700 nats below
the largest one of their S. Time O(4^d), mostly in products of matrices; memory 3^d float64 numbers, twice for edge
probabilities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact.drawing import DrawnOrders
from vcuda.infer.exact.lattice import (
    ParentSums,
    as_bits,
    nothing_obeys,
    others_of,
    parent_marginals,
    subset_sums,
    sum_over_parents,
    without,
)
from vcuda.infer.progress import Progress, ProgressCallback, silent
from vcuda.models.protocol import LocalScore

SUMMING = "summing over layers of nodes"
# Sums over sets between two calls of the progress callback.
SETS_AT_A_TIME = 512


class Partitions(NamedTuple):
    """Sums over the graphs on each set of nodes by their last layer, F (3**d,), and what they are made of.

    The index of (S, T) has, in base 3, the digit 0 for a node outside S, 1 for one of S and 2 for one of T.
    """

    parents: ParentSums
    layers: np.ndarray

    @property
    def nodes(self) -> int:
        return len(self.parents.sums)

    @property
    def log_total(self) -> float:
        return _log_total(self.layers, self.nodes) + self.parents.shift


class _Step(NamedTuple):
    """What can follow the nodes of one set S: ``last`` (t,) are the sets T, ``next`` (2**c,) the sets T' of the c nodes
    outside, ``codes`` of both the indices of (S, T) and (S + T', T').

    ``ratios`` (c, t) are exp(D_j(S, T) - H_j(S)), ``low`` (t, 2**a) and ``high`` (t, 2**b) their products over the
    subsets of the first a and the other b nodes, and ``log_most`` (2**c,) the sums of H_j(S) over T'.
    """

    outside: np.ndarray
    last: np.ndarray
    last_codes: np.ndarray
    next_codes: np.ndarray
    ratios: np.ndarray
    low: np.ndarray
    high: np.ndarray
    log_most: np.ndarray


class _Walk:
    """Makes the steps of all sets, from sums over sets of parents (d, 2**(d-1))."""

    def __init__(self, sums: np.ndarray) -> None:
        self.nodes = len(sums)
        every = np.arange(1 << self.nodes, dtype=np.int64)
        # By sets of all nodes, so that one look-up serves all nodes.
        self.sums = np.stack([sums[node][without(every & ~(1 << node), node)] for node in range(self.nodes)])
        self.powers = subset_sums(3 ** np.arange(self.nodes, dtype=np.int64))
        self.bits = 1 << np.arange(self.nodes, dtype=np.int64)

    def step(self, nodes: int) -> _Step:
        inside = self.bits & nodes != 0
        outside = np.flatnonzero(~inside)
        last = subset_sums(self.bits[inside])[1:]
        most = self.sums[outside, nodes]
        ratios = self.ratios(nodes, last, outside)
        half = outside.size // 2
        return _Step(
            outside=outside,
            last=last,
            last_codes=self.powers[nodes] + self.powers[last],
            next_codes=self.powers[nodes] + 2 * self.powers[subset_sums(self.bits[outside])],
            ratios=ratios,
            low=_subset_products(ratios[:half]),
            high=_subset_products(ratios[half:]),
            log_most=subset_sums(most),
        )

    def ratios(self, nodes: int, last: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """Return exp(D_j(S, T) - H_j(S)) for nodes outside (c,) and sets T (t,): (c, t)."""
        most = self.sums[outside, nodes]
        less = self.sums[outside[:, None], nodes & ~last]
        known = np.where(np.isfinite(most), most, 0.0)[:, None]
        return np.where(np.isfinite(most)[:, None], -np.expm1(np.minimum(less - known, 0.0)), 0.0)


def _subset_products(factors: np.ndarray) -> np.ndarray:
    """Return the products (t, 2**c) of the factors (c, t) of every subset."""
    products = np.ones((factors.shape[1], 1))
    for factor in factors:
        products = np.concatenate([products, products * factor[:, None]], axis=1)
    return products


def _log_total(layers: np.ndarray, nodes: int) -> float:
    powers = subset_sums(3 ** np.arange(nodes, dtype=np.int64))
    return float(logsumexp(layers[powers[-1] + powers[1:]]))


def _logarithm(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(values)


def _sum_over_layers(sums: np.ndarray, progress: ProgressCallback = silent) -> np.ndarray:
    """Return F (3**d,)."""
    walk = _Walk(sums)
    layers = np.full(3**walk.nodes, -np.inf)
    layers[2 * walk.powers[1:]] = subset_sums(walk.sums[:, 0])[1:]
    everything = (1 << walk.nodes) - 1
    for nodes in range(1, everything):
        step = walk.step(nodes)
        values = layers[step.last_codes]
        top = values.max()
        if top > -np.inf:
            weights = np.exp(values - top)[:, None]
            following = (step.high * weights).T @ step.low
            layers[step.next_codes[1:]] = (_logarithm(following.ravel()) + top + step.log_most)[1:]
        if nodes % SETS_AT_A_TIME == 0:
            progress(Progress(nodes, everything, SUMMING))
    return layers


def build_partitions(score: LocalScore, prior: EdgePrior, progress: ProgressCallback, *, keep: bool) -> Partitions:
    """Sum over all DAGs."""
    parents = sum_over_parents(score, prior, progress, keep=keep)
    found = Partitions(parents, _sum_over_layers(parents.sums, progress))
    if found.log_total == -np.inf:
        raise nothing_obeys(score)
    return found


def partition_edge_marginals(partitions: Partitions, prior: EdgePrior, progress: ProgressCallback) -> np.ndarray:
    """Return P(i -> j) for all pairs (d, d), by a sweep back over the layers.

    Given S and T the parents of a node of the next layer are a subset of S but not of S - T. A sum over such subsets is
    one over those of S less one over those of S - T: so each set of possible parents gets a positive weight where it is
    S and a negative one where it is S - T.
    """
    walk, layers = _Walk(partitions.parents.sums), partitions.layers
    nodes, everything = walk.nodes, (1 << walk.nodes) - 1
    log_total = _log_total(layers, nodes)
    after = np.full(3**nodes, -np.inf)
    after[walk.powers[-1] + walk.powers[1:]] = 0.0
    possible = np.zeros((nodes, 1 << nodes))
    for members in range(everything - 1, 0, -1):
        step = walk.step(members)
        values = after[step.next_codes] + step.log_most
        values[0] = -np.inf
        top = values.max()
        if top > -np.inf:
            weights = np.exp(values - top).reshape(step.high.shape[1], -1)
            by_low, by_high = step.low * (step.high @ weights), step.high * (step.low @ weights.T)
            after[step.last_codes] = top + _logarithm(by_low.sum(axis=1))
            joint = np.exp(layers[step.last_codes] + top - log_total)[:, None]
            chosen = np.concatenate([_by_member(joint * by_low), _by_member(joint * by_high)], axis=1).T
            shares = np.divide(chosen, step.ratios, out=np.zeros_like(chosen), where=step.ratios > 0)
            possible[step.outside, members] += shares.sum(axis=1)
            possible[step.outside[:, None], members & ~step.last] -= shares * (1.0 - step.ratios)
        if members % SETS_AT_A_TIME == 0:
            progress(Progress(everything - members, everything, "edge probabilities"))
    edges = np.zeros((nodes, nodes))
    for node in range(nodes):
        others = subset_sums(walk.bits[others_of(node, nodes)])
        edges[:, node] = parent_marginals(partitions.parents.sums[node], possible[node][others], prior, node)
    return np.clip(edges, 0.0, 1.0)


def _by_member(weights: np.ndarray) -> np.ndarray:
    """Return the sums of weights (t, 2**c) over the sets that have each of the c members: (t, c)."""
    members = weights.shape[1].bit_length() - 1
    return weights @ (np.arange(weights.shape[1])[:, None] >> np.arange(members) & 1).astype(np.float64)


def sample_partitions(partitions: Partitions, size: int, rng: np.random.Generator) -> DrawnOrders:
    """Draw the layers of graphs, last layer first; the order within a layer is that of the columns."""
    walk, nodes = _Walk(partitions.parents.sums), partitions.nodes
    everything = (1 << nodes) - 1
    before, touched = np.zeros((2, size, nodes), dtype=np.int64)
    # Draws that have come to the same set and layer go on together.
    waiting: dict[tuple[int, int], list[np.ndarray]] = {(everything, 0): [np.arange(size)]} if size else {}
    while waiting:
        (left, following), parts = waiting.popitem()
        draws = np.concatenate(parts)
        members = np.flatnonzero(walk.bits & following)
        last = subset_sums(walk.bits[walk.bits & left != 0])[1:]
        log_weights = partitions.layers[walk.powers[left] + walk.powers[last]]
        log_weights = log_weights + _logarithm(walk.ratios(left, last, members)).sum(axis=0)
        weights = np.cumsum(np.exp(log_weights - log_weights.max()))
        places = np.searchsorted(weights, rng.random(draws.size) * weights[-1], side="right")
        picks = last[np.minimum(places, last.size - 1)]
        before[draws[:, None], members] = left
        touched[draws[:, None], members] = picks[:, None]
        for layer in np.unique(picks).tolist():
            if left != layer:
                waiting.setdefault((left & ~layer, layer), []).append(draws[picks == layer])
    # The nodes before a node are fewer the earlier its layer.
    orders = np.argsort(np.bitwise_count(before), axis=1, kind="stable")
    return DrawnOrders(orders, before, touched)


def log_dag_weight(prior: EdgePrior) -> float:
    """Return the log sum over all DAGs that obey of the product of the odds of their edges."""
    nodes = prior.nodes
    if prior.treats_edges_alike:
        return _log_weight_of_counts(nodes, float(prior.log_odds.max()))
    sums = np.empty((nodes, 1 << (nodes - 1)))
    for node in range(nodes):
        others = others_of(node, nodes)
        # Edges that are required have odds of 1, and no choice; those that are forbidden have odds of 0.
        must = prior.required[others, node]
        sums[node] = subset_sums(np.where(must, 0.0, np.logaddexp(0.0, prior.log_odds[others, node])))
        needed = as_bits(np.flatnonzero(must))
        sums[node, np.arange(sums.shape[1]) & needed != needed] = -np.inf
    return _log_total(_sum_over_layers(sums), nodes)


def _log_weight_of_counts(nodes: int, log_odds: float) -> float:
    """The same where all edges have the same odds: only the sizes of the layers count."""
    log_any = np.arange(nodes + 1) * np.logaddexp(0.0, log_odds)
    by_size = np.full((nodes + 1, nodes + 1), -np.inf)
    by_size[np.arange(1, nodes + 1), np.arange(1, nodes + 1)] = -gammaln(np.arange(2, nodes + 2))
    for done in range(1, nodes):
        last = np.arange(1, done + 1)
        log_touching = log_any[done] + np.log(-np.expm1(log_any[done - last] - log_any[done]))
        for more in range(1, nodes - done + 1):
            by_size[done + more, more] = logsumexp(by_size[done, last] + more * log_touching) - gammaln(more + 1)
    return float(logsumexp(by_size[nodes]) + gammaln(nodes + 1))
