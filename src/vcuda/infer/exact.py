"""Exact posterior by dynamic programming over sets of nodes, for up to about 24 columns.

Prior: every order of the nodes is equally likely, 1 / d!, and given the order each pair (i before j) is an
edge i -> j with probability pi, so that p(graph | order) = pi^e (1 - pi)^(d(d-1)/2 - e). A graph counts once
for every order that it is compatible with, as in the paper.

With score_j(U) = log p(x_j | x_U), V the nodes that come before j, and sums over the subsets U of V,

    H_j(V) = log sum_U exp(score_j(U)) prod_{i in U} pi_ij prod_{i in V - U} (1 - pi_ij)
    L(V)   = log sum over j in V of exp(L(V - j) + H_j(V - j))            orders of V, which come first
    R(V)   = log sum over j not in V of exp(H_j(V) + R(V + j))            orders of the rest, after V

and P(V are the nodes before j) = exp(L(V) + H_j(V) + R(V + j) - L(all)). Everything stays in the log domain:
scores of 1,000 rows span thousands of nats, and sums of their exponentials underflow to quiet nonsense. Time
O(d² 2^d), memory two times d 2^(d-1) float64 numbers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from vcuda.errors import ConfigError, KnowledgeError
from vcuda.graphs import is_dag
from vcuda.infer.progress import Progress, ProgressCallback, silent
from vcuda.models.scores import LocalScore, SharedNoise
from vcuda.posterior.samples import GraphSamples

# Sets of predecessors that are less probable than this do not count: 2**24 of them would weigh 2e-11.
NEGLIGIBLE = 1e-18
# With a step of 1.5 standard deviations the trapezoid rule errs by 2 exp(-2 pi² / 1.5²) = 3e-4 on a Gaussian.
NOISE_STEP = 1.5
# It may end where the weight is this many nats below the top: 2.8 standard deviations out, five or six
# points.
NOISE_DEPTH = 4.0
NOISE_POINTS = 7
THREADS = min(os.cpu_count() or 1, 8)


class ExactResult(NamedTuple):
    """The posterior over DAGs, without approximation.

    ``edge_probabilities`` (d, d) and ``log_evidence`` (of the table in the user's units) are exact.
    ``samples`` are independent draws; the graph of sample k belongs to the order in row k of ``orders`` (s,
    d), first node first. ``ancestor_probabilities`` (d, d), that there is a directed path from i to j, are
    shares of the samples. ``noise_variance`` is the posterior mean of a shared unknown noise variance, in
    units of the smallest column variance, and None for other scores.
    """

    edge_probabilities: np.ndarray
    ancestor_probabilities: np.ndarray
    log_evidence: float
    samples: GraphSamples
    orders: np.ndarray
    noise_variance: float | None


class EdgePrior(NamedTuple):
    """Prior of each edge i -> j given that i comes before j, each (d, d).

    ``log_odds`` of pi_ij, minus infinity where forbidden; ``log_absent``, log(1 - pi_ij); ``required``
    booleans. A certain edge has 0 for both numbers, a forbidden one 0 for the second: what is sure costs
    nothing.
    """

    log_odds: np.ndarray
    log_absent: np.ndarray
    required: np.ndarray


class Lattice(NamedTuple):
    """Sums over all sets of nodes under one score: H (d, 2**(d-1)) less its ``shift``, and L (2**d,)."""

    score: LocalScore
    sums: np.ndarray
    first: np.ndarray
    shift: float

    @property
    def log_total(self) -> float:
        return float(self.first[-1]) + self.shift


def exact_posterior(
    score: LocalScore | SharedNoise,
    *,
    edge_probability: float = 0.1,
    samples: int = 1000,
    rng: np.random.Generator,
    names: Sequence[str] | None = None,
    log_odds: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    required: np.ndarray | None = None,
    memory_gb: float = 4.0,
    progress: ProgressCallback = silent,
) -> ExactResult:
    """Compute edge probabilities and evidence exactly, and draw independent orders and DAGs.

    Parameters
    ----------
    score
        A prepared local score. A shared unknown noise variance is averaged over by the trapezoid rule on its
        logarithm.
    edge_probability
        pi, the prior probability of an edge that the order allows.
    samples
        Number of DAGs to draw.
    rng
        Source of all randomness; only what comes from samples depends on it.
    names
        Names of the d columns; their indices unless given.
    log_odds
        (d, d) log(pi_ij / (1 - pi_ij)) of single edges, instead of ``edge_probability``.
    allowed, required
        (d, d) booleans: what is not allowed never occurs, what is required is in every graph. They set pi_ij
        to 0 and to 1; orders stay equally likely, among those that point every required edge forward.
    memory_gb
        Problems that need more are refused.
    progress
        Called between the steps.
    """
    nodes = score.nodes
    prior = edge_prior(nodes, edge_probability, log_odds=log_odds, allowed=allowed, required=required)
    _check_size(score, samples, memory_gb)
    log_orders = _log_order_count(prior.required)
    labels = tuple(names) if names is not None else tuple(str(j) for j in range(nodes))
    if isinstance(score, SharedNoise):
        lattices, log_weights, variances = _noise_grid(score, prior, progress)
    else:
        lattices = [_lattice(score, prior, progress)]
        log_weights, variances = np.array([lattices[0].log_total]), np.ones(1)
    log_total = float(logsumexp(log_weights))
    shares = np.exp(log_weights - log_total)
    counts = rng.multinomial(samples, shares / shares.sum())
    edges = np.zeros((nodes, nodes))
    graphs = np.zeros((samples, nodes, nodes), dtype=bool)
    orders = np.zeros((samples, nodes), dtype=np.int64)
    # Draws under different noise variances are mixed, so that the first few samples are as good as any.
    places = np.split(rng.permutation(samples), np.cumsum(counts)[:-1])
    for lattice, share, place in zip(lattices, shares, places, strict=True):
        edges += share * _edge_marginals(lattice, prior, progress)
        orders[place], before = _sample_orders(lattice, place.size, rng)
        graphs[place] = _sample_graphs(lattice.score, prior, before, rng, progress)
    return ExactResult(
        edge_probabilities=edges,
        ancestor_probabilities=_ancestor_shares(graphs),
        log_evidence=log_total - log_orders + score.log_jacobian,
        samples=GraphSamples.from_dense(labels, graphs),
        orders=orders,
        noise_variance=float(shares @ variances) if isinstance(score, SharedNoise) else None,
    )


def memory_needed(nodes: int, *, lattices: int = 1) -> int:
    """Return the bytes that the exact engine needs: lattices, stages of one transform, working arrays."""
    half = 1 << max(nodes - 1, 0)
    return 8 * half * ((nodes + 2) * lattices + nodes + 8)


def _check_size(score: LocalScore | SharedNoise, samples: int, memory_gb: float) -> None:
    if samples < 1:
        raise ConfigError(f"samples must be at least 1, got {samples}")
    lattices = NOISE_POINTS if isinstance(score, SharedNoise) else 1
    needed = memory_needed(score.nodes, lattices=lattices) / 1e9
    if needed > memory_gb:
        most = score.nodes
        while memory_needed(most, lattices=lattices) / 1e9 > memory_gb:
            most -= 1
        raise ConfigError(
            f"the exact engine needs {needed:,.1f} GB of memory for {score.nodes} columns, more than the "
            f"limit of {memory_gb:g} GB (memory_gb), which is enough for {most}; use the orders engine, "
            "or fewer columns"
        )


def edge_prior(
    nodes: int,
    edge_probability: float,
    *,
    log_odds: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    required: np.ndarray | None = None,
) -> EdgePrior:
    """Combine one probability, or log odds (d, d) of single edges, with what is forbidden and required."""
    if not 0 < edge_probability < 1:
        raise ConfigError(f"edge_probability must lie between 0 and 1, got {edge_probability}")
    shape = (nodes, nodes)
    for name, matrix in (("log_odds", log_odds), ("allowed", allowed), ("required", required)):
        if matrix is not None and np.shape(matrix) != shape:
            raise ConfigError(f"{name} must have shape {shape}, got {np.shape(matrix)}")
    constant = np.log(edge_probability) - np.log1p(-edge_probability)
    odds = np.full(shape, constant) if log_odds is None else np.array(log_odds, dtype=np.float64)
    forbidden = np.zeros(shape, dtype=bool) if allowed is None else ~np.asarray(allowed, dtype=bool)
    forbidden |= odds == -np.inf
    must = np.zeros(shape, dtype=bool) if required is None else np.array(required, dtype=bool)
    must |= odds == np.inf
    np.fill_diagonal(forbidden, True)
    if (must & forbidden).any():
        i, j = np.argwhere(must & forbidden)[0]
        raise KnowledgeError(f"the edge {i} -> {j} is both required and forbidden; drop one of the two")
    if not is_dag(must):
        raise KnowledgeError("the required edges form a cycle; drop one of them")
    if np.isnan(odds).any():
        raise ConfigError("log_odds must be numbers, got nan")
    certain = must | forbidden
    odds[certain] = 0.0
    absent = -np.logaddexp(0.0, odds)
    absent[certain] = 0.0
    odds[forbidden] = -np.inf
    return EdgePrior(odds, absent, must)


def _others(node: int, nodes: int) -> np.ndarray:
    return np.delete(np.arange(nodes), node)


def _bits(positions: np.ndarray) -> int:
    return sum(1 << int(position) for position in positions)


def subset_sums(terms: np.ndarray) -> np.ndarray:
    """Return the sum of the terms (c,) of every subset (2**c,)."""
    sums = np.zeros(1, dtype=terms.dtype)
    for term in terms:
        sums = np.concatenate([sums, sums + term])
    return sums


def _weighted_scores(score: LocalScore, prior: EdgePrior, node: int) -> tuple[np.ndarray, float]:
    """Return scores with prior log odds of all parent sets (2**(d-1),) less their maximum, and the
    maximum."""
    others = _others(node, score.nodes)
    odds = prior.log_odds[others, node]
    # Scores that leave out unpromising sets must not judge them beside parents that are forbidden.
    allowed = np.flatnonzero(odds > -np.inf)
    weighted = np.full(1 << others.size, -np.inf)
    sets = subset_sums(1 << allowed)
    weighted[sets] = score.table(node, others[allowed]) + subset_sums(odds[allowed])
    must = np.flatnonzero(prior.required[others, node])
    if must.size:
        holds = sets & _bits(must) == _bits(must)
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


def _lattice(score: LocalScore, prior: EdgePrior, progress: ProgressCallback) -> Lattice:
    nodes = score.nodes
    sums = np.empty((nodes, 1 << (nodes - 1)))
    shift = 0.0

    def transform(node: int) -> None:
        sum_over_subsets(sums[node])
        sums[node] += subset_sums(prior.log_absent[_others(node, nodes), node])

    with ThreadPoolExecutor(THREADS) as pool:
        tasks = []
        for node in range(nodes):
            sums[node], largest = _weighted_scores(score, prior, node)
            shift += largest
            tasks.append(pool.submit(transform, node))
            progress(Progress(node + 1, nodes, "scoring all parent sets"))
        for task in tasks:
            task.result()
    first = _sweep(sums, forward=True)
    if first[-1] == -np.inf:
        raise KnowledgeError(
            "no graph obeys all that was required and forbidden within the score's largest number of parents "
            f"({score.max_parents}); require fewer edges or raise that number"
        )
    return Lattice(score, sums, first, shift)


def _without(sets: np.ndarray, node: int) -> np.ndarray:
    """Return the index, among sets of the other nodes, of sets that lack ``node``: its bit is cut out."""
    return (sets & ((1 << node) - 1)) | ((sets >> (node + 1)) << node)


def _sweep(sums: np.ndarray, *, forward: bool) -> np.ndarray:
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
            step = sums[node][_without(before, node)] + total[before if forward else before | bit]
            reached[fits] = np.logaddexp(reached[fits], step)
        total[sets] = reached

    with ThreadPoolExecutor(THREADS) as pool:
        for layer in by_size[1:] if forward else by_size[-2::-1]:
            # Small layers are not worth a hand-over; large ones are cut so that working arrays stay small.
            parts = max(1, min(layer.size >> 12, THREADS * -(-layer.size >> 17)))
            list(pool.map(fill, np.array_split(layer, parts)))
    return total


def _edge_marginals(lattice: Lattice, prior: EdgePrior, progress: ProgressCallback) -> np.ndarray:
    """Return P(i -> j) for all pairs (d, d)."""
    nodes = len(lattice.sums)
    last = _sweep(lattice.sums, forward=False)
    edges = np.zeros((nodes, nodes))
    for node in range(nodes):
        sums = lattice.sums[node]
        before = lattice.first.reshape(-1, 2, 1 << node)[:, 0].reshape(-1)
        after = last.reshape(-1, 2, 1 << node)[:, 1].reshape(-1)
        probability = np.exp(before + after + sums - lattice.first[-1])
        likely = np.flatnonzero(probability > NEGLIGIBLE)
        weights = probability[likely]
        for position, other in enumerate(_others(node, nodes)):
            holds = np.flatnonzero(likely & (1 << position))
            sets = likely[holds]
            # P(i is no parent, given the predecessors); the factor 1 - pi of i itself stands in one of the
            # two.
            log_lacking = sums[sets & ~(1 << position)] + prior.log_absent[other, node] - sums[sets]
            edges[other, node] = weights[holds] @ -np.expm1(np.minimum(log_lacking, 0.0))
        progress(Progress(node + 1, nodes, "edge probabilities"))
    return np.minimum(edges, 1.0)


def _sample_orders(lattice: Lattice, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
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
            log_weights[holds, node] = lattice.first[rest] + lattice.sums[node][_without(rest, node)]
        orders[:, rank] = np.argmax(log_weights + rng.gumbel(size=(size, nodes)), axis=1)
        chosen = orders[:, rank]
        left &= ~(1 << chosen)
        before[np.arange(size), chosen] = left
    return orders, before


def _sample_graphs(
    score: LocalScore,
    prior: EdgePrior,
    before: np.ndarray,
    rng: np.random.Generator,
    progress: ProgressCallback,
) -> np.ndarray:
    """Draw the parents of every node given the sets before it (s, d): graphs (s, d, d).

    The subset transform is repeated with all its stages kept. Stage t holds sums over sets that agree with
    the index from bit t on; walking back from the last stage, each bit is decided by one comparison.
    """
    size, nodes = before.shape
    graphs = np.zeros((size, nodes, nodes), dtype=bool)
    if size == 0:
        return graphs
    for node in range(nodes):
        stages = np.empty((nodes, 1 << (nodes - 1)))
        stages[0] = _weighted_scores(score, prior, node)[0]
        for bit in range(nodes - 1):
            old, new = stages[bit].reshape(-1, 2, 1 << bit), stages[bit + 1].reshape(-1, 2, 1 << bit)
            new[:, 0] = old[:, 0]
            np.logaddexp(old[:, 0], old[:, 1], out=new[:, 1])
        sets = _without(before[:, node], node)
        others = _others(node, nodes)
        for position in range(nodes - 2, -1, -1):
            bit = 1 << position
            holds = np.flatnonzero(sets & bit)
            lacking = sets[holds] & ~bit
            log_lacking = stages[position][lacking] - stages[position + 1][sets[holds]]
            keeps = rng.random(holds.size) >= np.exp(log_lacking)
            sets[holds] = np.where(keeps, sets[holds], lacking)
            graphs[holds[keeps], others[position], node] = True
        progress(Progress(node + 1, nodes, "drawing graphs"))
    return graphs


def _ancestor_shares(graphs: np.ndarray) -> np.ndarray:
    """Return the share of graphs (s, d, d) with a directed path from i to j, for all pairs (d, d)."""
    total = np.zeros(graphs.shape[1:])
    for some in np.array_split(graphs, -(-len(graphs) // 1000)):
        reach = some.astype(np.float32)
        for _ in range(max(1, int(np.ceil(np.log2(graphs.shape[1]))))):
            reach = np.minimum(reach + reach @ reach, 1.0)
        total += reach.sum(axis=0)
    return total / len(graphs)


def _log_order_count(required: np.ndarray) -> float:
    """Return the log number of orders of all nodes that point every required edge forward."""
    nodes = len(required)
    if not required.any():
        return float(gammaln(nodes + 1))
    sums = np.zeros((nodes, 1 << (nodes - 1)))
    for node in range(nodes):
        needed = _bits(np.flatnonzero(required[_others(node, nodes), node]))
        sums[node, np.arange(sums.shape[1]) & needed != needed] = -np.inf
    return float(_sweep(sums, forward=True)[-1])


def _noise_grid(
    score: SharedNoise, prior: EdgePrior, progress: ProgressCallback
) -> tuple[list[Lattice], np.ndarray, np.ndarray]:
    """Return lattices at a grid of noise variances, their log weights in the evidence, and the variances.

    Given a graph the log evidence is nearly c - A u - B exp(-u) with u the log variance, A = n d / 2 and B
    half the sum of squared residuals; two evaluations give B and so the best u, and repeating it follows the
    graphs as they change with u. The posterior of u has a standard deviation of about 1 / sqrt(A); the grid
    starts at the best u and grows on both sides until its ends do not count.
    """
    half_cells = 0.5 * score.rows * score.nodes
    deviation = half_cells**-0.5

    def evaluate(log_variance: float) -> tuple[Lattice, float]:
        variance = float(np.exp(log_variance))
        lattice = _lattice(score.at(variance), prior, progress)
        return lattice, lattice.log_total + score.log_prior(variance) + log_variance

    # Some node has no parents, so that the noise variance is near the smallest column variance, the unit
    # here.
    previous, centre = 0.0, -0.2
    height = evaluate(previous)[1]
    current = evaluate(centre)
    for _ in range(20):
        slope = height - current[1] + half_cells * (previous - centre)
        residual = slope / (np.exp(-centre) - np.exp(-previous))
        best = float(np.log(residual / half_cells)) if residual > 0 else -np.inf
        # A step of more than a factor e asks the two evaluations about a region that they do not know.
        best = min(max(best, centre - 1.0), centre + 1.0)
        if abs(best - centre) < 0.5 * deviation:
            break
        previous, height = centre, current[1]
        centre, current = best, evaluate(best)
    step = NOISE_STEP * deviation
    found = {0: current}
    low = high = 0
    while True:
        top = max(value for _, value in found.values())
        if found[low][1] < top - NOISE_DEPTH and found[high][1] < top - NOISE_DEPTH:
            break
        if len(found) == NOISE_POINTS:
            # Wider than a single graph's: a step twice as long keeps every other point.
            step *= 2
            found = {k // 2: value for k, value in found.items() if k % 2 == 0}
            low, high = min(found), max(found)
        elif found[low][1] >= found[high][1]:
            low -= 1
            found[low] = evaluate(centre + low * step)
        else:
            high += 1
            found[high] = evaluate(centre + high * step)
    positions = range(low, high + 1)
    log_weights = np.array([found[k][1] for k in positions]) + np.log(step)
    return [found[k][0] for k in positions], log_weights, np.exp(centre + step * np.array(positions))
