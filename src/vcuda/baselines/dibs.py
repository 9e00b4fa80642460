"""DiBS (Lorch et al. 2021): particles in a continuous space of graphs, moved to the posterior by Stein's method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.baselines.augmented_lagrangian import acyclic_part
from vcuda.baselines.base import BaselineResult, Course, check_options, ranking
from vcuda.baselines.dibs_likelihoods import (
    BGeLikelihood,
    Likelihood,
    LinearLikelihood,
    NetworkLikelihood,
    cells_within,
)
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.graphs import is_dag
from vcuda.infer.compilation import double_precision, use_compilation_cache
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.posterior.point import Networks
from vcuda.posterior.posterior import Status
from vcuda.posterior.samples import GraphSamples

Model = Literal["bge", "linear", "nonlinear"]
GraphPrior = Literal["er", "sf"]
Estimator = Literal["score", "reparam"]
Weighting = Literal["graph", "node"]
ParticleWeights = Literal["equal", "likelihood"]
Array = jax.Array | np.ndarray

# Steps between two lines of the trace.
WINDOW = 50
# The prior's edge probability 2 edges_per_node / (d - 1) reaches one in small tables, and its log odds infinity.
HIGHEST_EDGE_PROBABILITY = 0.9
# Entries of sampled graphs that are held at once, unless a single particle needs more.
BLOCK_ENTRIES = 1 << 19


@dataclass(frozen=True)
class Dibs:
    """How DiBS is run; the presets are :meth:`reference` and :meth:`fixed`.

    Parameters
    ----------
    likelihood
        ``"bge"`` integrates all parameters out; ``"linear"`` and ``"nonlinear"`` move them together with the graphs.
    particles, steps
        How many, and how often they are moved; there is no rule to stop before.
    graph_prior, edges_per_node
        ``"er"``: every edge alike, so many a node expected; ``"sf"``: in-degrees with a power law.
    alpha, beta
        Growth, a step, of the edge logits and of the weight of the acyclicity constraint; alpha None is 1 for
        ``"bge"`` and 0.05 for the others.
    estimator
        Of the likelihood's gradient: ``"score"`` needs its values for graphs, ``"reparam"`` its slope at soft graphs;
        None is ``"score"`` for ``"bge"`` and ``"reparam"`` for the others.
    samples, constraint_samples
        Graphs a particle and step for the gradients of the likelihood and of the constraint.
    weighting
        Sampled graphs are weighted by their likelihood as a whole (``"graph"``), where with many rows one of them has
        all the weight; or column by column (``"node"``, for the score estimator), which has the same expectation in
        the limit, since edges are independent and the likelihood is a product over nodes. No preset uses the latter.
    latent_dim
        k, the length of the two vectors of each node; None is d.
    learning_rate, latent_bandwidth, theta_bandwidth
        Of RMSprop, and h of the kernels exp(-|z - z'|²/h).
    hidden, noise_variance, min_edge
        Of the joint models: units of the networks; the known variance of the noise; how far the first weights of the
        linear model are pushed from zero (a habit of the authors' data generator that reaches their start).
    centre
        Take the columns less their means; the joint models have no intercept otherwise.
    weights
        Of the particles: ``"equal"`` (DiBS), or ``"likelihood"``: by p(D | G) or p(D, theta | G), without the prior of
        the graph (DiBS+).
    cyclic_in_scores
        Let particles with cycles count in the scores, as the wrapper that made VCUDA's figures does; the authors of
        DiBS leave them out. They are never among the samples.
    """

    likelihood: Model = "bge"
    particles: int = 100
    steps: int = 3000
    graph_prior: GraphPrior = "er"
    edges_per_node: float = 2.0
    alpha: float | None = None
    beta: float = 1.0
    estimator: Estimator | None = None
    samples: int = 128
    constraint_samples: int = 32
    weighting: Weighting = "graph"
    latent_dim: int | None = None
    learning_rate: float = 0.005
    latent_bandwidth: float = 5.0
    theta_bandwidth: float = 500.0
    hidden: tuple[int, ...] = (5,)
    noise_variance: float = 1.0
    min_edge: float = 0.0
    centre: bool = True
    weights: ParticleWeights = "equal"
    cyclic_in_scores: bool = False
    name: ClassVar[str] = "dibs"

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if not self.hidden or any(not isinstance(width, int) or width < 1 for width in self.hidden):
            raise ConfigError(f"hidden of dibs must be layers of at least one unit, not {self.hidden}")
        counts = ("particles", "steps", "samples", "constraint_samples", "latent_dim")
        least = dict.fromkeys(counts, 1.0) | dict.fromkeys(("alpha", "beta", "learning_rate", "min_edge"), 0.0)
        choices: dict[str, Sequence[str]] = {
            "likelihood": get_args(Model),
            "graph_prior": get_args(GraphPrior),
            "weighting": get_args(Weighting),
            "weights": get_args(ParticleWeights),
        }
        if self.estimator is not None:
            choices["estimator"] = get_args(Estimator)
        check_options(self, at_least=least, choices=choices)
        for option in ("edges_per_node", "latent_bandwidth", "theta_bandwidth", "noise_variance"):
            if not getattr(self, option) > 0:
                raise ConfigError(f"{option} of dibs must be positive, not {getattr(self, option)}")
        if self.weighting == "node" and self.estimator_used == "reparam":
            raise ConfigError("weighting 'node' of dibs goes with the estimator 'score'; choose that, or 'graph'")

    @property
    def alpha_used(self) -> float:
        return self.alpha if self.alpha is not None else 1.0 if self.likelihood == "bge" else 0.05

    @property
    def estimator_used(self) -> Estimator:
        return self.estimator or ("score" if self.likelihood == "bge" else "reparam")

    @classmethod
    def reference(cls, **changes: Any) -> Dibs:
        """As VCUDA's authors ran it (BGe for all data, ``graph_prior="sf"`` for scale-free ones and Sachs); the joint
        models as the authors of DiBS have them."""
        return replace(cls(noise_variance=0.1, min_edge=0.5, centre=False, cyclic_in_scores=True), **changes)

    @classmethod
    def fixed(cls, **changes: Any) -> Dibs:
        """As its paper has it: only DAGs count, parameters start from their prior, no mean is taken to be zero."""
        return replace(cls(), **changes)


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

        def one(block: tuple[jax.Array, Particles]) -> Particles:
            return self._block_slopes(block[1], jax.random.fold_in(key, block[0]), step, prepared)

        slopes = jax.lax.map(one, (jnp.arange(count // size), blocks))
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


# Kept so that fits in one process that differ only in what the host does compile once.
_kept = lru_cache(maxsize=8)(Program)


def _program(spec: Dibs) -> Program:
    return _kept(replace(spec, steps=1, centre=True, weights="equal", cyclic_in_scores=False))


def run_dibs(
    spec: Dibs,
    data: Dataset,
    *,
    seed: int,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
) -> BaselineResult:
    """Move the particles, and take the edges with a positive score as each one's graph.

    A step costs O(p s d³ log d) for the constraint with s samples, and for the likelihood with p particles of m samples
    O(p m d) from a table up to 16 nodes, at most O(p m d⁴) beyond (a factorisation for every different family), O(p m
    d³) for the linear model, O(p m n d² h) for networks.

    Memory: particles are taken in blocks of at most 2^19 sampled entries, or one by one. At 100 nodes with 128 samples
    a block is one particle with 128 · 100² = 1.3 million entries, 5 MB as noise; 12,800 families with a hash each, 0.1
    MB; and 256 of them at a time as matrices, 256 · 100² · 8 bytes = 20 MB, a few times over. All particles are 100 ·
    2 · 100² · 8 bytes = 16 MB, and so are RMSprop's squares, the slopes and the directions. The joint models
    differentiate through at most 2^22 numbers at a time, 34 MB, or through one sample. That is below 1 GB in all, where
    all samples at once would be 100 · 128 · 100 matrices of 100 x 100, or 51 GB.

    A step is never divided: a deadline ends the run after the step in which it passes.
    """
    use_compilation_cache()
    with double_precision():
        return _run(spec, data, seed, Course(progress, deadline))


def _run(spec: Dibs, data: Dataset, seed: int, course: Course) -> BaselineResult:
    program = _program(spec)
    means = data.values.mean(axis=0) if spec.centre else np.zeros(data.d)
    values = data.values - means
    prepared, key = program.likelihood.prepare(values), jax.random.key(seed)
    state = program.init(np.random.default_rng(seed), data.d)
    trace: dict[str, list[float]] = {"step": [], "edges": [], "acyclic": []}
    broken = False
    with course.underway():
        while (taken := int(state.taken)) < spec.steps and not broken:
            steps = min(course.pace.steps, spec.steps - taken, WINDOW - taken % WINDOW)
            with course.pace.timing(steps):
                moved = jax.block_until_ready(program.advance(state, key, prepared, steps))
            graphs, strengths = _hard(moved.particles.latent)
            broken = not all(np.isfinite(leaf).all() for leaf in (strengths, *jax.tree.leaves(moved.particles)))
            if broken:
                continue
            state, taken = moved, taken + steps
            if taken % WINDOW == 0 or taken == spec.steps:
                acyclic = np.mean([is_dag(graph) for graph in graphs])
                for name, value in zip(trace, (taken, graphs.sum() / len(graphs), acyclic), strict=True):
                    trace[name].append(float(value))
            course.tell(taken, spec.steps, "moving particles")
    particles = jax.device_get(state.particles)
    graphs, strengths = _hard(particles.latent)
    chosen = _choose(spec, graphs, strengths, lambda: program.evidence(prepared, particles.theta, graphs))
    own_theta = jax.tree.map(lambda array: np.asarray(array)[chosen.which], particles.theta)
    functions = program.likelihood.networks(values, own_theta, chosen.graphs)
    diagnostics = {
        "steps": int(state.taken),
        "particles": spec.particles,
        "acyclic_particles": chosen.acyclic,
        "distinct_graphs": len(np.unique(graphs.reshape(len(graphs), -1), axis=0)),
        "effective_samples": float(1 / np.sum(chosen.weights**2)),
        "mean_edges": float(graphs.sum() / len(graphs)),
        **course.seconds(),
    }
    return BaselineResult(
        samples=GraphSamples.from_dense(data.names, chosen.graphs, chosen.weights),
        scores=ranking(chosen.scores),
        status=_status(course, diagnostics, broken),
        diagnostics=diagnostics,
        trace={name: np.array(series) for name, series in trace.items()},
        functions=_shifted(functions, chosen.graphs, means),
    )


def _hard(latent: Array) -> tuple[np.ndarray, np.ndarray]:
    """The graphs of the particles, the edges with a positive score, and the scores."""
    sources, targets = np.moveaxis(np.asarray(latent), 1, 0)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends the run with a status of its own
        strengths = sources @ np.swapaxes(targets, 1, 2)
    return (strengths > 0) & ~np.eye(strengths.shape[-1], dtype=bool), strengths


class _Chosen(NamedTuple):
    """The samples, which particles they are, their weights, the score matrix, and how many particles are DAGs."""

    graphs: np.ndarray
    which: np.ndarray
    weights: np.ndarray
    scores: np.ndarray
    acyclic: int


def _choose(spec: Dibs, graphs: np.ndarray, strengths: np.ndarray, evidence: Callable[[], Array]) -> _Chosen:
    """Keep the particles that are DAGs; if none is, the likeliest one is cut to be one, and all count in the scores."""
    acyclic = np.array([is_dag(graph) for graph in graphs])
    needed = spec.weights == "likelihood" or not acyclic.any()
    logs = np.asarray(evidence()) if needed else np.zeros(len(graphs))
    logs = np.where(np.isnan(logs), -np.inf, logs)

    def shares(which: np.ndarray) -> np.ndarray:
        if spec.weights == "equal" or not np.isfinite(logs[which]).any():
            return np.full(len(which), 1 / len(which))
        relative = np.exp(logs[which] - logs[which].max())
        return relative / relative.sum()

    everyone, which = np.arange(len(graphs)), np.flatnonzero(acyclic)
    counted = everyone if spec.cyclic_in_scores or not len(which) else which
    scores = np.einsum("s,sij->ij", shares(counted), graphs[counted])
    if len(which):
        return _Chosen(graphs[which], which, shares(which), scores, len(which))
    likeliest = int(np.argmax(logs))
    cut, _ = acyclic_part(graphs[likeliest], strengths[likeliest])
    return _Chosen(cut[None], np.array([likeliest]), np.ones(1), scores, 0)


def _shifted(networks: Networks, graphs: np.ndarray, means: np.ndarray) -> Networks:
    """Networks of the columns less their means as networks of the columns themselves."""
    biases = list(networks.biases)
    biases[0] = biases[0] - np.einsum("i,sij,sijh->sjh", means, graphs, networks.weights[0])
    biases[-1] = biases[-1] + means[None, :, None]
    return replace(networks, biases=tuple(biases))


def _status(course: Course, told: dict[str, Any], broken: bool) -> Status:
    if broken:
        return Status(
            "failed",
            "The particles broke down (numbers that are not finite); what is left is the last sound state: do not use "
            "it. Standardised columns usually help.",
        )
    stopped = course.interrupted(f"{told['steps']:,} steps")
    if stopped is not None:
        return stopped
    acyclic, count = told["acyclic_particles"], told["particles"]
    if acyclic == 0:
        return Status("warning", "No particle is a DAG: the likeliest one was cut to be one. Give it more steps.")
    if acyclic < 0.9 * count:
        return Status(
            "warning", f"Only {acyclic} of {count} particles are DAGs, and only these are samples: give it more steps."
        )
    return Status(
        "ok",
        f"{acyclic} of {count} particles are DAGs; the method has no test of its own whether they cover the posterior.",
    )
