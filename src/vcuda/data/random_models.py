"""Random graphs, functions and noise: what simulated tables are drawn from."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky
from scipy.spatial.distance import pdist, squareform

from vcuda.data.raw_table import FloatArray

NoiseFamily = Literal["gaussian", "uniform", "laplace", "gumbel"]
IntArray = npt.NDArray[np.int64]

HIDDEN_UNITS = 16
EXACT_GP_ROWS = 5_000
FOURIER_FEATURES = 1_000
# White noise of standard deviation 0.001 on a GP draw, a thousandth of the noise of the data, keeps the
# Cholesky factor real: rounding reaches about 1e-16 * rows * (largest eigenvalue <= rows): 3e-9 at 5,000.
JITTER = 1e-6


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
    scale = np.sqrt(6) / np.pi
    return rng.gumbel(-np.euler_gamma * scale, scale, size)


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
