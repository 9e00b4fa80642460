"""Random graphs, functions, noise and columns of every kind: what simulated tables are drawn from."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky
from scipy.spatial.distance import pdist, squareform
from scipy.special import expit

from vcuda.data.kinds import Kind
from vcuda.data.raw_table import FloatArray

NoiseFamily = Literal["gaussian", "uniform", "laplace", "gumbel", "exponential", "t3", "two-humped"]
IntArray = npt.NDArray[np.int64]

HIDDEN_UNITS = 16
EXACT_GP_ROWS = 5_000
FOURIER_FEATURES = 1_000
# White noise of standard deviation 0.001 on a GP draw, a thousandth of the noise of the data, keeps the
# Cholesky factor real: rounding reaches about 1e-16 * rows * (largest eigenvalue <= rows): 3e-9 at 5,000.
JITTER = 1e-6
# The humps of two-humped noise lie at plus and minus this; their own standard deviation gives the variance 1.
HUMP = 0.9
# How strongly all causes together act on a column that is no number: the standard deviation of its log odds (of two
# labels against each other, too) and of its log rate. Rows stay far from certain, and rates within two powers of ten.
LOG_ODDS_SD, LOG_RATE_SD = 2.0, 0.7
# The standard deviation of the log sd of noise that depends on the causes: between rows in which the log sd lies two
# standard deviations apart, the noise differs by a factor of 2.7.
LOG_SCALE_SD = 0.5
LABELS, ORDERED_LEVELS = (3, 5), (4, 6)  # fewest and most levels
LARGEST_LOG_RATE = 30.0  # so that counts do not overflow where a cause lies far out
RATES, SIZES = (2.0, 6.0), (1.0, 10.0)  # of counts: mean where causes are at their mean; size, if negative binomial
# Half of the columns of a mixed table are numbers; the other kinds take turns.
MIX: tuple[Kind, ...] = ("number", "label", "number", "count", "number", "yes/no", "number", "ordered")


# Graphs -------------------------------------------------------------------------------------------------------


class Edges(NamedTuple):
    """Edges sorted by target; those into node j are ``starts[j]:starts[j + 1]``."""

    sources: IntArray
    targets: IntArray
    starts: IntArray

    @classmethod
    def of(cls, sources: IntArray, targets: IntArray, nodes: int) -> Edges:
        by_target = np.lexsort((sources, targets))
        starts = np.searchsorted(targets[by_target], np.arange(nodes + 1))
        return cls(sources[by_target], targets[by_target], starts)

    def into(self, node: int) -> slice:
        return slice(self.starts[node], self.starts[node + 1])


def erdos_renyi(rng: np.random.Generator, nodes: int, edges: int) -> tuple[IntArray, IntArray]:
    """Undirected pairs, each present with probability edges / (number of pairs), in O(edges)."""
    possible = nodes * (nodes - 1) // 2
    present = rng.binomial(possible, edges / possible)
    chosen = rng.choice(possible, size=present, replace=False, shuffle=False)
    # Pair number k of the list (0,1), (0,2), (1,2), (0,3), ... ; exact while 8 k stays below 2**52.
    high = ((1 + np.sqrt(1 + 8 * chosen.astype(np.float64))) / 2).astype(np.int64)
    return chosen - high * (high - 1) // 2, high


def barabasi_albert(rng: np.random.Generator, nodes: int, edges: int) -> tuple[IntArray, IntArray]:
    """Undirected pairs of a graph that grows: a new node joins old ones in proportion to their degree."""
    joins = round(edges / nodes)
    old: list[int] = list(range(joins))
    new: list[int] = [joins] * joins
    ends = old + new  # every node as often as it has edges, so that a uniform pick is a pick by degree
    for node in range(joins + 1, nodes):
        chosen: set[int] = set()
        while len(chosen) < joins:
            chosen.add(ends[rng.integers(len(ends))])
        old += sorted(chosen)
        new += [node] * joins
        ends += [*sorted(chosen), *[node] * joins]
    return np.array(old, dtype=np.int64), np.array(new, dtype=np.int64)


def oriented(rng: np.random.Generator, one: IntArray, other: IntArray, nodes: int) -> Edges:
    """Direct every pair along one random order of the nodes."""
    place = rng.permutation(nodes)
    forward = place[one] < place[other]
    return Edges.of(np.where(forward, one, other), np.where(forward, other, one), nodes)


# Functions and noise ------------------------------------------------------------------------------------------


def standard_noise(rng: np.random.Generator, family: NoiseFamily, size: int) -> FloatArray:
    """Independent draws with mean 0 and variance 1."""
    if family == "gaussian":
        return rng.standard_normal(size)
    if family == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), size)
    if family == "laplace":
        return rng.laplace(0.0, np.sqrt(0.5), size)
    if family == "gumbel":
        scale = np.sqrt(6) / np.pi
        return rng.gumbel(-np.euler_gamma * scale, scale, size)
    if family == "exponential":
        return rng.exponential(size=size) - 1
    if family == "t3":
        return rng.standard_t(3, size) / np.sqrt(3)
    return rng.choice([-HUMP, HUMP], size) + np.sqrt(1 - HUMP**2) * rng.standard_normal(size)


def kernel(inputs: FloatArray) -> FloatArray:
    """exp(-||x - x'||² / 2) between the columns of ``(k, rows)``."""
    covariance = squareform(np.exp(-0.5 * pdist(inputs.T, "sqeuclidean")))
    np.fill_diagonal(covariance, 1.0)
    return covariance


def kernel_factor(inputs: FloatArray) -> FloatArray:
    """The lower Cholesky factor of the kernel, with the jitter on its diagonal."""
    covariance = kernel(inputs)
    np.fill_diagonal(covariance, 1.0 + JITTER)
    return cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)


def draw_gp(rng: np.random.Generator, inputs: FloatArray) -> FloatArray:
    """The values ``(rows,)`` of one function of the parents, drawn from the Gaussian process of `kernel`."""
    parents, rows = inputs.shape
    if rows <= EXACT_GP_ROWS:
        return kernel_factor(inputs) @ rng.standard_normal(rows)
    # Bochner: cosines with standard normal frequencies and uniform phases have this kernel as covariance.
    frequencies = rng.standard_normal((FOURIER_FEATURES, parents))
    phases = rng.uniform(0, 2 * np.pi, FOURIER_FEATURES)
    amplitudes = rng.standard_normal(FOURIER_FEATURES) * np.sqrt(2 / FOURIER_FEATURES)
    values = np.empty(rows)
    for start in range(0, rows, EXACT_GP_ROWS):
        block = slice(start, start + EXACT_GP_ROWS)
        values[block] = amplitudes @ np.cos(frequencies @ inputs[:, block] + phases[:, None])
    return values


def draw_network(rng: np.random.Generator, inputs: FloatArray) -> FloatArray:
    """The values ``(rows,)`` of one random network of the parents."""
    first = 2 * rng.standard_normal((HIDDEN_UNITS, len(inputs)))
    biases = 2 * rng.standard_normal((HIDDEN_UNITS, 1))
    last = rng.standard_normal(HIDDEN_UNITS) * np.sqrt(6 / HIDDEN_UNITS)
    return last @ np.tanh(first @ inputs + biases)


# Columns of every kind ----------------------------------------------------------------------------------------


def standardised(values: FloatArray) -> FloatArray:
    """The values ``(rows,)`` with mean 0 and standard deviation 1; zeros where nothing varies."""
    centred = values - values.mean()
    scale = centred.std()
    return centred / scale if scale > 0 else centred


def as_cause(rng: np.random.Generator, kind: Kind, values: FloatArray) -> FloatArray:
    """A column ``(rows,)`` as those see it that it causes: standardised; each label has a random effect of its own."""
    if kind == "label":
        values = rng.standard_normal(int(values.max()) + 1)[values.astype(np.int64)]
    return standardised(values)


def draw_yes_no(rng: np.random.Generator, log_odds: FloatArray) -> FloatArray:
    """0 or 1 in each row; ``log_odds`` has mean zero, and a random number is added to all of them."""
    chance = expit(log_odds + rng.uniform(-1, 1))
    return (rng.random(log_odds.size) < chance).astype(np.float64)


def draw_labels(rng: np.random.Generator, log_odds: FloatArray) -> FloatArray:
    """A code from 0 on in each row, by softmax of ``(labels, rows)`` plus a random number for each label."""
    levels = rng.normal(scale=0.5, size=(len(log_odds), 1))
    # The largest of the log odds with standard Gumbel noise is a draw from their softmax.
    return np.argmax(log_odds + levels + rng.gumbel(size=log_odds.shape), axis=0).astype(np.float64)


def draw_ordered(rng: np.random.Generator, log_odds: FloatArray, levels: int) -> FloatArray:
    """1 to ``levels`` in each row, by cumulative logits; the share of each level is random."""
    latent = log_odds + rng.logistic(size=log_odds.size)
    shares = rng.dirichlet(np.full(levels, 5.0))
    cuts = np.quantile(latent, np.cumsum(shares)[:-1])
    return 1.0 + np.searchsorted(cuts, latent).astype(np.float64)


def draw_counts(rng: np.random.Generator, log_rate: FloatArray) -> FloatArray:
    """A count in each row, Poisson or negative binomial with equal probability; ``log_rate`` has mean zero."""
    rate = _log_uniform(rng, RATES) * np.exp(np.minimum(log_rate, LARGEST_LOG_RATE))
    if rng.random() < 0.5:
        size = _log_uniform(rng, SIZES)
        rate = rate * rng.gamma(size, 1 / size, rate.size)
    return rng.poisson(rate).astype(np.float64)


def _log_uniform(rng: np.random.Generator, between: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(*np.log(between))))
