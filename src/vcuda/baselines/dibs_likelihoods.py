"""The likelihoods of DiBS: of a graph with all parameters integrated out (BGe), or of a graph and its parameters.

Each is a frozen dataclass that reduces the table once (``prepare``) and then answers log p(x_j, theta_j | parents of j)
for every node j of a graph, whose entries may lie between 0 and 1; a graph's own answer is the sum over its nodes. A
particle's parameters theta are ``()`` for BGe, the ``(d, d)`` weights of the linear model, or the layers of networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from vcuda.baselines.dibs_families import distinct_families
from vcuda.baselines.networks import predict
from vcuda.models.functional.mlp import Layers
from vcuda.models.linear import BGeScore
from vcuda.models.linear.score import LOG_TWO_PI
from vcuda.posterior.point import Networks

Array = jax.Array | np.ndarray

# Up to so many nodes the scores of all d 2^(d-1) families are tabulated once: 4 MB, which still fits a cache.
TABLE_NODES = 16
# Families that are scored together, when there is no table.
FAMILIES = 256


class Likelihood(Protocol):
    def prepare(self, values: np.ndarray) -> Any:
        """What of a table ``(n, d)`` all graphs share, as a NamedTuple of arrays."""
        ...

    def start(self, rng: np.random.Generator, particles: int, nodes: int) -> Any:
        """Parameters of all particles, with a first axis for them."""
        ...

    def local(self, prepared: Any, theta: Any, graph: jax.Array) -> jax.Array:
        """The logarithm for every node ``(d,)`` of one soft graph ``(d, d)``; can be differentiated."""
        ...

    def local_many(self, prepared: Any, theta: Any, graphs: jax.Array) -> jax.Array:
        """The same for boolean graphs ``(b, m, d, d)`` of b particles: ``(b, m, d)``."""
        ...

    def cells(self, rows: int, nodes: int) -> int:
        """About how many numbers ``local`` keeps in order to be differentiated."""
        ...

    def networks(self, values: np.ndarray, theta: Any, graphs: np.ndarray) -> Networks:
        """What to predict with, for graphs ``(s, d, d)`` with their parameters."""
        ...


class Moments(NamedTuple):
    """R of the BGe score, the rows, and the table of all families ``(d, 2^(d-1))`` or ``(d, 0)``."""

    matrix: Array
    rows: Array
    table: Array


@dataclass(frozen=True)
class BGeLikelihood:
    """The BGe score on the columns as they are, with mean 0, alpha_mu = 1, alpha_w = d + 2 and T = I/2.

    It is that of `vcuda.models.scores.BGe` but for the standardised columns there; so units matter here.
    """

    excess = 2.0
    mean_rows = 1.0
    ridge = 0.5

    def score(self, values: np.ndarray) -> BGeScore:
        """The score as the engines have it, for the table as it comes."""
        rows, mean = len(values), values.mean(axis=0)
        centred = values - mean
        shift = rows * self.mean_rows / (rows + self.mean_rows)
        gram = centred.T @ centred + shift * np.outer(mean, mean)
        return BGeScore(gram, rows, self.ridge, self.ridge, 0.0, None, self.excess, self.mean_rows)

    def prepare(self, values: np.ndarray) -> Moments:
        score = self.score(values)
        nodes = score.nodes
        table = np.zeros((nodes, 0))
        if nodes <= TABLE_NODES:
            table = score.tables(range(nodes), _others(nodes), np.zeros((nodes, 0), dtype=np.int64))
        matrix = score.gram + self.ridge * np.eye(nodes)
        return Moments(matrix, np.array(float(score.rows)), table)

    def start(self, rng: np.random.Generator, particles: int, nodes: int) -> tuple[()]:
        return ()

    def local(self, prepared: Moments, theta: tuple[()], graph: jax.Array) -> jax.Array:
        """By log |q q' ∘ R + (1 - q q') ∘ I| for the soft parents q of a node, without and with the node itself."""
        identity = jnp.eye(len(graph), dtype=graph.dtype)

        def log_det(chosen: jax.Array) -> jax.Array:
            both = chosen[:, None] * chosen[None, :]
            return _log_diagonal(both * prepared.matrix + (1 - both) * identity).sum()

        parents = jax.vmap(log_det)(graph.T)
        family = jax.vmap(log_det)(graph.T + identity)
        return self._combine(prepared.rows, graph.sum(axis=0), parents, family - parents)

    def _combine(self, rows: Array, sizes: jax.Array, log_det: jax.Array, log_residual: jax.Array) -> jax.Array:
        """From the number of parents, log |R_QQ|, and the log of the node's residual given them."""
        prior = 0.5 * (self.excess + sizes + 1)
        posterior = prior + 0.5 * rows
        constant = 0.5 * jnp.log(self.mean_rows / (rows + self.mean_rows)) - 0.5 * rows * np.log(np.pi)
        constant += gammaln(posterior) - gammaln(prior) + (prior + 0.5 * sizes) * np.log(self.ridge)
        return constant - posterior * log_residual - 0.5 * log_det

    def local_many(self, prepared: Moments, theta: tuple[()], graphs: jax.Array) -> jax.Array:
        nodes = graphs.shape[-1]
        if nodes > TABLE_NODES:
            return self._by_family(prepared, graphs)
        places = np.zeros((nodes, nodes), dtype=np.int32)
        others = _others(nodes)
        for target in range(nodes):
            places[others[target], target] = 1 << np.arange(nodes - 1)
        # With the samples last, as they come, so that sums run over long rows: (b, source, target, m).
        index = jnp.sum(jnp.where(jnp.moveaxis(graphs, 1, -1), places[..., None], 0), axis=1)
        found = jnp.asarray(prepared.table)[jnp.arange(nodes)[:, None], index]
        return jnp.moveaxis(found, -1, 1)

    def _by_family(self, prepared: Moments, graphs: jax.Array) -> jax.Array:
        """Score each family that occurs only once, with factorisations of about its size.

        When the edges are nearly settled the samples of a particle differ in few families: at 100 nodes most of 12,800
        are the same few hundred, with a handful of parents each.
        """
        _, samples, _, nodes = graphs.shape
        by_sample = jnp.moveaxis(graphs, 1, -1)  # as they come: what runs over samples then runs over long rows
        count = len(graphs) * samples * nodes
        distinct = distinct_families(by_sample, room=-(-count // FAMILIES) * FAMILIES)
        widths = [width for width in (2, 4, 8, 16, 32, 64, 128, 256) if width < nodes - 1] + [nodes - 1]

        def some(turn: jax.Array, scores: jax.Array) -> jax.Array:
            which = jax.lax.dynamic_slice(distinct.first, (turn * FAMILIES,), (FAMILIES,))
            particle, sample, targets = jnp.unravel_index(which, (len(graphs), samples, nodes))
            chosen = by_sample[particle, :, targets, sample]
            branch = jnp.searchsorted(np.array(widths), chosen.sum(axis=1).max())
            branches = [lambda _, width=width: self._families(prepared, chosen, targets, width) for width in widths]
            return jax.lax.dynamic_update_slice(scores, jax.lax.switch(branch, branches, 0), (turn * FAMILIES,))

        turns = (distinct.total - 1) // FAMILIES + 1
        scores = jax.lax.fori_loop(0, turns, some, jnp.zeros(len(distinct.first), dtype=prepared.matrix.dtype))
        return scores[distinct.number].reshape(graphs.shape[:-1])

    def _families(self, prepared: Moments, chosen: jax.Array, targets: jax.Array, width: int) -> jax.Array:
        """The scores of families with at most ``width`` parents, given by ``chosen`` (f, d) and ``targets`` (f,)."""
        seen = jnp.cumsum(chosen, axis=1)
        places = jnp.arange(width)
        # The k-th parent is where so many columns have passed with at most k parents among them.
        parents = jnp.sum(seen[:, :, None] <= places, axis=1)
        sizes = seen[:, -1]
        columns = jnp.concatenate([jnp.minimum(parents, chosen.shape[1] - 1), targets[:, None]], axis=1)
        real = jnp.concatenate([places < sizes[:, None], jnp.ones((len(chosen), 1), dtype=bool)], axis=1)
        gathered = jnp.asarray(prepared.matrix)[columns[:, :, None], columns[:, None, :]]
        matrices = jnp.where(real[:, :, None] & real[:, None, :], gathered, jnp.eye(width + 1))
        logs = _log_diagonal(matrices)
        return self._combine(prepared.rows, sizes, logs[:, :-1].sum(axis=1), logs[:, -1])

    def cells(self, rows: int, nodes: int) -> int:
        return 8 * nodes**3

    def networks(self, values: np.ndarray, theta: tuple[()], graphs: np.ndarray) -> Networks:
        """Posterior means: x_j = mu_j + R_jQ R_QQ^-1 (x_Q - mu_Q), and of the variance of the noise."""
        score = self.score(values)
        nodes, rows = score.nodes, score.rows
        matrix = score.gram + self.ridge * np.eye(nodes)
        mean = values.mean(axis=0) * rows / (rows + self.mean_rows)
        weights, variance = np.zeros((len(graphs), nodes, nodes)), np.empty((len(graphs), nodes))
        for k, graph in enumerate(graphs):
            for target in range(nodes):
                parents = np.flatnonzero(graph[:, target])
                slopes = np.linalg.solve(matrix[np.ix_(parents, parents)], matrix[parents, target])
                weights[k, parents, target] = slopes
                residual = matrix[target, target] - matrix[target, parents] @ slopes
                variance[k, target] = residual / (rows + self.excess + len(parents) - 1)
        offsets = mean - np.einsum("i,sij->sj", mean, weights)
        return Networks((weights[..., None],), (offsets[..., None],), np.log(variance))


class Products(NamedTuple):
    """X'X and the number of rows: all that a linear model with known noise needs of a table."""

    gram: Array
    rows: Array


@dataclass(frozen=True)
class LinearLikelihood:
    """x = x (G ∘ theta) + noise of a known variance; weights of edges are N(0, 1).

    ``min_edge`` pushes the weights away from zero at the start.
    """

    noise_variance: float
    min_edge: float

    def prepare(self, values: np.ndarray) -> Products:
        return Products(values.T @ values, np.array(float(len(values))))

    def start(self, rng: np.random.Generator, particles: int, nodes: int) -> np.ndarray:
        drawn = rng.normal(size=(particles, nodes, nodes))
        return drawn + self.min_edge * np.sign(drawn)

    def local(self, prepared: Products, theta: jax.Array, graph: jax.Array) -> jax.Array:
        """By |x_j - X w|² = C_jj - 2 C_j w + w' C w with C = X'X: O(d³) whatever the rows."""
        weights = graph * theta
        gram = jnp.asarray(prepared.gram)
        squares = jnp.diagonal(gram) + jnp.sum(weights * (gram @ weights - 2 * gram), axis=0)
        likelihood = -0.5 * squares / self.noise_variance
        likelihood -= 0.5 * prepared.rows * (LOG_TWO_PI + np.log(self.noise_variance))
        return likelihood + jnp.sum(graph * _log_standard_normal(theta), axis=0)

    def local_many(self, prepared: Products, theta: jax.Array, graphs: jax.Array) -> jax.Array:
        return _one_by_one(self, prepared, theta, graphs, chunk=graphs.shape[1])

    def cells(self, rows: int, nodes: int) -> int:
        return 4 * nodes**2

    def networks(self, values: np.ndarray, theta: np.ndarray, graphs: np.ndarray) -> Networks:
        noise = np.full(graphs.shape[:2], np.log(self.noise_variance))
        return Networks((np.asarray(theta)[..., None],), (np.zeros((*graphs.shape[:2], 1)),), noise)


class Rows(NamedTuple):
    values: Array


@dataclass(frozen=True)
class NetworkLikelihood:
    """x_j = f_j(G_j ∘ x) + noise of a known variance, f_j a rectifier network with N(0, 1) weights and biases.

    The prior of a weight of the first layer counts as much as its edge does, that of all others fully. The networks
    are computed in single precision, as they are the cost.
    """

    hidden: tuple[int, ...]
    noise_variance: float

    def prepare(self, values: np.ndarray) -> Rows:
        return Rows(values.astype(np.float32))

    def start(self, rng: np.random.Generator, particles: int, nodes: int) -> Layers:
        weights, biases = [], []
        for fan_in, fan_out in pairwise((nodes, *self.hidden, 1)):
            weights.append(rng.normal(size=(particles, nodes, fan_in, fan_out)))
            biases.append(rng.normal(size=(particles, nodes, fan_out)))
        return Layers(tuple(weights), tuple(biases))  # type: ignore[arg-type]

    def local(self, prepared: Rows, theta: Layers, graph: jax.Array) -> jax.Array:
        single = jax.tree.map(lambda array: array.astype(jnp.float32), theta)
        residual = prepared.values - predict(single, graph.astype(jnp.float32), prepared.values, 0.0)
        squares = jnp.sum(residual**2, axis=0).astype(graph.dtype)
        likelihood = -0.5 * squares / self.noise_variance
        likelihood -= 0.5 * len(prepared.values) * (LOG_TWO_PI + np.log(self.noise_variance))
        prior = jnp.sum(graph * _log_standard_normal(theta.weights[0]).sum(axis=-1), axis=0)
        for array in (*theta.weights[1:], *theta.biases):
            prior += _log_standard_normal(array).reshape(len(graph), -1).sum(axis=1)
        return likelihood + prior

    def local_many(self, prepared: Rows, theta: Layers, graphs: jax.Array) -> jax.Array:
        particles, samples = graphs.shape[:2]
        fitting = cells_within(len(prepared.values) * graphs.shape[-1] * sum((*self.hidden, 1)) * particles, samples)
        return _one_by_one(self, prepared, theta, graphs, chunk=fitting)

    def cells(self, rows: int, nodes: int) -> int:
        return 2 * rows * nodes * sum((*self.hidden, 1))

    def networks(self, values: np.ndarray, theta: Layers, graphs: np.ndarray) -> Networks:
        noise = np.full(graphs.shape[:2], np.log(self.noise_variance))
        weights, biases = (tuple(np.asarray(array) for array in arrays) for arrays in theta)
        return Networks(weights, biases, noise)


def cells_within(cells: int, count: int, budget: int = 1 << 22) -> int:
    """The largest divisor of ``count`` that stays within the budget, each of them taking so many cells; at least 1."""
    return max(size for size in range(1, count + 1) if count % size == 0 and (size == 1 or size * cells <= budget))


def _one_by_one(likelihood: Likelihood, prepared: Any, theta: Any, graphs: jax.Array, chunk: int) -> jax.Array:
    """Graphs ``(b, m, d, d)`` through ``local``, ``chunk`` of the m samples of each particle together."""
    precision = jnp.zeros(0).dtype

    def particle(own: Any, samples: jax.Array) -> jax.Array:
        return jax.vmap(lambda graph: likelihood.local(prepared, own, graph.astype(precision)))(samples)

    particles, samples, nodes, _ = graphs.shape
    pieces = jnp.swapaxes(graphs.reshape(particles, samples // chunk, chunk, nodes, nodes), 0, 1)
    answers = jax.lax.map(lambda piece: jax.vmap(particle)(theta, piece), pieces)
    return jnp.swapaxes(answers, 0, 1).reshape(particles, samples, nodes)


def _log_standard_normal(array: jax.Array) -> jax.Array:
    return -0.5 * (array**2 + LOG_TWO_PI)


def _log_diagonal(matrices: jax.Array) -> jax.Array:
    """Twice the logarithms of the diagonal of the Cholesky factor; they sum to the log determinant."""
    factor = jax.lax.linalg.cholesky(matrices, symmetrize_input=False)
    return 2 * jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1))


def _others(nodes: int) -> np.ndarray:
    """For every node all other ones in order, ``(d, d - 1)``."""
    return np.array([[other for other in range(nodes) if other != node] for node in range(nodes)], dtype=np.int64)
