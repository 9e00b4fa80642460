"""The compiled steps of DiBS: soft graphs, gradients by sampling, and Stein's direction for all particles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.baselines.dibs_likelihoods import (
    BGeLikelihood,
    Likelihood,
    LinearLikelihood,
    NetworkLikelihood,
    cells_within,
)
from vcuda.infer.devices import map_divided

if TYPE_CHECKING:
    from vcuda.baselines.dibs import Dibs

Array = jax.Array | np.ndarray

# The prior's edge probability 2 edges_per_node / (d - 1) reaches one in small tables, and its log odds infinity.
HIGHEST_EDGE_PROBABILITY = 0.9
# Entries of sampled graphs that are held at once, unless a single particle needs more.
BLOCK_ENTRIES = 1 << 19


class Particles(NamedTuple):
    """``latent`` is ``(p, 2, d, k)``, u of every node and v of every node; ``theta`` as the likelihood has it."""

    latent: Array
    theta: Any


class State(NamedTuple):
    """Between two steps; ``squares`` are RMSprop's."""

    particles: Particles
    squares: Particles
    taken: Array


def edge_scores(latent: Array) -> jax.Array:
    """q_ij = <u_i, v_j> of each particle: ``(p, d, d)``."""
    return jnp.einsum("pik,pjk->pij", latent[:, 0], latent[:, 1])


def cycles(graphs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """h(G) = tr (I + G/d)^d - d of soft graphs ``(..., d, d)``, and its gradient ((I + G/d)^(d-1))'."""
    nodes = graphs.shape[-1]
    matrices = jnp.eye(nodes, dtype=graphs.dtype) + graphs / nodes
    slopes = jnp.swapaxes(jnp.linalg.matrix_power(matrices, nodes - 1), -1, -2)
    return jnp.sum(slopes * matrices, axis=(-2, -1)) - nodes, slopes


def graph_prior_slopes(spec: Dibs, probabilities: jax.Array) -> jax.Array:
    """The gradient of the log prior by the edge probabilities ``(b, d, d)`` that it is evaluated on."""
    if spec.graph_prior == "sf":
        expected = 1 + jnp.sum(probabilities, axis=-2, keepdims=True)
        return jnp.broadcast_to(-3 / expected, probabilities.shape)
    share = min(2 * spec.edges_per_node / max(probabilities.shape[-1] - 1, 1), HIGHEST_EDGE_PROBABILITY)
    return jnp.full(probabilities.shape, np.log(share / (1 - share)))


def uniforms(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Single-precision numbers strictly between 0 and 1, odd multiples of 2^-24.

    They are a bijective hash of a counter (two rounds of multiplications and shifts), with two words of JAX's own
    generator between the rounds: those alone would take fifteen times as long, and with it most of a step.
    """
    words = jax.random.bits(key, (2,), jnp.uint32)
    counter = jax.lax.iota(jnp.uint32, int(np.prod(shape)))
    hashed = _scramble(_scramble(counter + words[0]) ^ words[1])
    return ((hashed >> 9).astype(jnp.float32) + 0.5).reshape(shape) * np.float32(2.0**-23)


def _scramble(words: jax.Array) -> jax.Array:
    words = (words ^ (words >> 16)) * np.uint32(0x7FEB352D)
    words = (words ^ (words >> 15)) * np.uint32(0x846CA68B)
    return words ^ (words >> 16)


def weighted_slope(function: Callable[[Any, Any], jax.Array], parameters: Any, draws: jax.Array, chunk: int) -> Any:
    """The gradient of log sum_m exp f(parameters, draw_m): the mean of f's gradients with softmax weights.

    One chunk of draws after the other, each rescaled to the largest f so far, so that only one chunk's intermediate
    values are in memory.
    """

    def body(carry: tuple[jax.Array, jax.Array, Any], some: jax.Array) -> tuple[tuple[jax.Array, jax.Array, Any], None]:
        highest, total, slope = carry
        logs, pull_back = jax.vjp(lambda at: jax.vmap(lambda draw: function(at, draw))(some), parameters)
        top = jnp.maximum(highest, logs.max())
        kept, shares = jnp.exp(highest - top), jnp.exp(logs - top)
        added = pull_back(shares)[0]
        return (top, kept * total + shares.sum(), jax.tree.map(lambda old, new: kept * old + new, slope, added)), None

    start = (jnp.array(-jnp.inf), jnp.array(0.0), jax.tree.map(jnp.zeros_like, parameters))
    pieces = draws.reshape(len(draws) // chunk, chunk, *draws.shape[1:])
    (_, total, slope), _ = jax.lax.scan(body, start, pieces)
    return jax.tree.map(lambda array: array / total, slope)


def kernel(tree: Any, bandwidth: float) -> jax.Array:
    """exp(-|a - b|²/h) between the particles of a tree of arrays ``(p, ...)``: ``(p, p)``."""
    flat = jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(tree)], axis=1)
    products = flat @ flat.T
    lengths = jnp.diagonal(products)
    return jnp.exp(-jnp.maximum(lengths[:, None] + lengths[None, :] - 2 * products, 0) / bandwidth)


def stein_direction(shared: jax.Array, own: jax.Array, bandwidth: float, positions: Any, slopes: Any) -> Any:
    """phi(z_i) = (1/p) sum_j [k(z_j, z_i) slope_j + d k(z_j, z_i) / d z_j] for trees of ``(p, ...)``.

    ``shared`` is the kernel that slopes are averaged with, ``own`` the part of it that depends on these positions.
    """

    def leaf(position: jax.Array, slope: jax.Array) -> jax.Array:
        flat = position.reshape(len(position), -1)
        repulsion = (2 / bandwidth) * (own.sum(axis=1, keepdims=True) * flat - own @ flat)
        return ((shared @ slope.reshape(flat.shape) + repulsion) / len(flat)).reshape(position.shape)

    return jax.tree.map(leaf, positions, slopes)


def likelihood_of(spec: Dibs) -> Likelihood:
    if spec.likelihood == "bge":
        return BGeLikelihood()
    if spec.likelihood == "linear":
        return LinearLikelihood(spec.noise_variance, spec.min_edge)
    return NetworkLikelihood(spec.hidden, spec.noise_variance)


class Program:
    """The compiled pieces for one spec."""

    def __init__(self, spec: Dibs) -> None:
        self.spec = spec
        self.likelihood = likelihood_of(spec)
        self.advance = jax.jit(self._advance)
        self.evidence = jax.jit(self._evidence)

    def init(self, rng: np.random.Generator, nodes: int) -> State:
        """Particles that have seen nothing yet."""
        size = self.spec.latent_dim or nodes
        latent = rng.normal(scale=size**-0.5, size=(self.spec.particles, 2, nodes, size))
        particles = Particles(latent, self.likelihood.start(rng, self.spec.particles, nodes))
        return State(particles, jax.tree.map(np.zeros_like, particles), np.array(0, dtype=np.int32))

    def _advance(self, state: State, key: jax.Array, prepared: Any, steps: int) -> State:
        def body(_: jax.Array, state: State) -> State:
            return self._step(state, jax.random.fold_in(key, state.taken), prepared)

        return jax.lax.fori_loop(0, steps, body, state)

    def _step(self, state: State, key: jax.Array, prepared: Any) -> State:
        spec, particles = self.spec, state.particles
        slopes = self.slopes(particles, key, jnp.asarray(state.taken), prepared)
        shared = own = kernel(particles.latent, spec.latent_bandwidth)
        theta = particles.theta
        if jax.tree.leaves(theta):
            of_theta = kernel(theta, spec.theta_bandwidth)
            shared = own + of_theta
            theta = stein_direction(shared, of_theta, spec.theta_bandwidth, theta, slopes.theta)
        latent = stein_direction(shared, own, spec.latent_bandwidth, particles.latent, slopes.latent)
        direction = Particles(latent, theta)
        squares = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new**2, state.squares, direction)
        moved = jax.tree.map(
            lambda position, towards, square: position + spec.learning_rate * towards / jnp.sqrt(square + 1e-8),
            particles,
            direction,
            squares,
        )
        return State(moved, squares, state.taken + 1)

    def slopes(self, particles: Particles, key: jax.Array, step: jax.Array, prepared: Any) -> Particles:
        """The gradient of every particle's log density at this step's alpha and beta, some particles at a time."""
        count, _, nodes, _ = particles.latent.shape
        # An eighth: what is differentiated through may take 2^22 numbers.
        size = cells_within(max(self.spec.samples * nodes**2, self._cells(nodes, prepared) // 8), count, BLOCK_ENTRIES)
        blocks = jax.tree.map(lambda array: jnp.asarray(array).reshape(-1, size, *array.shape[1:]), particles)

        def one(block: tuple[jax.Array, Particles], key: jax.Array, step: jax.Array, prepared: Any) -> Particles:
            return self._block_slopes(block[1], jax.random.fold_in(key, block[0]), step, prepared)

        slopes = map_divided(one, (jnp.arange(count // size), blocks), key, step, prepared)
        return jax.tree.map(lambda array: array.reshape(count, *array.shape[2:]), slopes)

    def _block_slopes(self, particles: Particles, key: jax.Array, step: jax.Array, prepared: Any) -> Particles:
        spec = self.spec
        latent_key, theta_key, constraint_key = jax.random.split(key, 3)
        alpha, beta = spec.alpha_used * step, spec.beta * step
        scores = edge_scores(particles.latent)
        edges = ~np.eye(scores.shape[-1], dtype=bool)
        probabilities = jnp.where(edges, jax.nn.sigmoid(alpha * scores), 0)
        # Everything by the edge scores first: then one product leads from them to the vectors of the nodes.
        by_scores = self.likelihood_slope(scores, particles.theta, latent_key, alpha, prepared)
        by_scores += alpha * probabilities * (1 - probabilities) * graph_prior_slopes(spec, probabilities)
        by_scores -= beta * self.constraint_slope(scores, constraint_key, alpha)
        sources, targets = particles.latent[:, 0], particles.latent[:, 1]
        by_latent = jnp.stack(
            [jnp.einsum("bij,bjk->bik", by_scores, targets), jnp.einsum("bij,bik->bjk", by_scores, sources)], axis=1
        )
        precision = particles.latent.shape[-1]  # of the normal prior with variance 1/k
        by_theta = self.theta_slope(probabilities, particles.theta, theta_key, prepared)
        return Particles(by_latent - precision * particles.latent, by_theta)

    def constraint_slope(self, scores: jax.Array, key: jax.Array, alpha: jax.Array) -> jax.Array:
        """The gradient of E[h(G)] by the edge scores ``(b, d, d)``, from soft graphs, in single precision.

        There is nothing to cancel: the gradient of h has no negative entries.
        """
        count, nodes, _ = scores.shape
        drawn = uniforms(key, (count, self.spec.constraint_samples, nodes, nodes))
        graphs = _soft_graphs((alpha * scores).astype(jnp.float32)[:, None], drawn)
        by_graphs = cycles(graphs)[1]
        return alpha * jnp.mean(by_graphs * graphs * (1 - graphs), axis=1).astype(scores.dtype)

    def likelihood_slope(
        self, scores: jax.Array, theta: Any, key: jax.Array, alpha: jax.Array, prepared: Any
    ) -> jax.Array:
        """The gradient of log E[p(D, theta | G)] by the edge scores ``(b, d, d)``, estimated as the spec says."""
        edges = ~np.eye(scores.shape[-1], dtype=bool)
        if self.spec.estimator_used == "score":
            probabilities = jnp.where(edges, jax.nn.sigmoid(alpha * scores), 0)
            graphs = self._hard_graphs(probabilities, key)
            logs = self.likelihood.local_many(prepared, theta, graphs)
            if self.spec.weighting == "graph":
                logs = logs.sum(axis=-1, keepdims=True)
            shares = jax.nn.softmax(logs, axis=1)[:, :, None, :]
            return alpha * (jnp.sum(jnp.where(graphs, shares, 0), axis=1) - probabilities)
        drawn = uniforms(key, (len(scores), self.spec.samples, *scores.shape[1:]))

        def particle(own_scores: jax.Array, own_theta: Any, own_drawn: jax.Array) -> jax.Array:
            def log_joint(at: jax.Array, one: jax.Array) -> jax.Array:
                return self.likelihood.local(prepared, own_theta, _soft_graphs(alpha * at, one)).sum()

            return weighted_slope(log_joint, own_scores, own_drawn, self._chunk(scores, prepared))

        return jax.vmap(particle)(scores, theta, drawn)

    def theta_slope(self, probabilities: jax.Array, theta: Any, key: jax.Array, prepared: Any) -> Any:
        """The gradient of log E[p(D, theta | G)] by theta, from sampled graphs."""
        if not jax.tree.leaves(theta):
            return theta
        graphs = self._hard_graphs(probabilities, key)

        def particle(own_theta: Any, own_graphs: jax.Array) -> Any:
            def log_joint(at: Any, graph: jax.Array) -> jax.Array:
                return self.likelihood.local(prepared, at, graph.astype(probabilities.dtype)).sum()

            return weighted_slope(log_joint, own_theta, own_graphs, self._chunk(probabilities, prepared))

        return jax.vmap(particle)(theta, graphs)

    def _hard_graphs(self, probabilities: jax.Array, key: jax.Array) -> jax.Array:
        count, nodes, _ = probabilities.shape
        # Samples come last in memory, where what is done to all of them runs over long rows.
        drawn = uniforms(key, (count, nodes, nodes, self.spec.samples))
        return jnp.moveaxis(drawn < probabilities.astype(jnp.float32)[..., None], -1, 1)

    def _cells(self, nodes: int, prepared: Any) -> int:
        """Of one sample of one particle."""
        rows = prepared.values.shape[0] if hasattr(prepared, "values") else 0
        return self.likelihood.cells(rows, nodes)

    def _chunk(self, scores: jax.Array, prepared: Any) -> int:
        """How many samples of each particle of a block are differentiated through together."""
        return cells_within(len(scores) * self._cells(scores.shape[-1], prepared), self.spec.samples)

    def _evidence(self, prepared: Any, theta: Any, graphs: Array) -> jax.Array:
        """log p(D, theta | G) of each particle's own graph: ``(p,)``."""

        def one(particle: tuple[Any, jax.Array]) -> jax.Array:
            own_theta, graph = particle
            return self.likelihood.local_many(prepared, own_theta, graph[:, None]).sum()

        singles = jax.tree.map(lambda array: jnp.asarray(array)[:, None], (theta, jnp.asarray(graphs)))
        return jax.lax.map(one, singles)


def _soft_graphs(logits: jax.Array, drawn: jax.Array) -> jax.Array:
    """sigma(logits + log(u / (1 - u))) for uniform u, without a diagonal: u / (u + (1 - u) exp(-logits))."""
    edges = ~np.eye(logits.shape[-1], dtype=bool)
    uniform = drawn.astype(logits.dtype)
    against = jnp.exp(-jnp.clip(logits, -80, 80))  # beyond, an edge is settled for every u that there is
    return jnp.where(edges, uniform / (uniform + (1 - uniform) * against), 0)
