"""DiBS (Lorch et al. 2021): particles in a continuous space of graphs, moved to the posterior by Stein's method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import numpy as np

from vcuda.baselines.augmented_lagrangian import acyclic_part
from vcuda.baselines.base import appended, check_options, found, is_finite, ranking
from vcuda.baselines.dibs_program import Program, State
from vcuda.errors import ConfigError
from vcuda.graphs import is_dag
from vcuda.infer.compilation import double_precision
from vcuda.infer.devices import taking_turns
from vcuda.infer.engine import Engine, Info, Plan, Problem, Resources, interrupted
from vcuda.posterior.point import Networks
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.samples import GraphSamples

Model = Literal["bge", "linear", "nonlinear"]
GraphPrior = Literal["er", "sf"]
Estimator = Literal["score", "reparam"]
Weighting = Literal["graph", "node"]
ParticleWeights = Literal["equal", "likelihood"]
Array = jax.Array | np.ndarray

# Steps between two lines of the trace.
WINDOW = 50
# For each particle, sampled graph, step, row and pair of columns of a joint model: 7.7 hours for 100 particles, 128
# graphs and 3,000 steps at 10 columns and 1,000 rows.
SECONDS_A_PAIR = 7.2e-9
LEAST_SIZES = {"samples": 8, "particles": 10, "steps": 1000}


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
    models: ClassVar[dict[str, dict[str, Any]]] = {"linear": {}, "mlp": {"likelihood": "nonlinear"}}

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
    def corrected(cls, **changes: Any) -> Dibs:
        """As its paper has it: only DAGs count, parameters start from their prior, no mean is taken to be zero."""
        return replace(cls(), **changes)

    def within(self, seconds: float, *, rows: int, columns: int) -> Dibs:
        """Return the spec with as many sampled graphs, then particles, then steps as end in about so many seconds.

        Only the joint models need it: each of their steps takes all particles, sampled graphs, rows and pairs of
        columns, 9 seconds at 10 columns and 1,000 rows. There is a least of each, below which nothing is learned.
        """
        if self.likelihood == "bge":
            return self
        work = self.particles * self.samples * self.steps * rows * columns**2
        share = seconds / (SECONDS_A_PAIR * work)
        sized = self
        for name, least in LEAST_SIZES.items():
            if share >= 1:
                break
            full = getattr(sized, name)
            fewer = max(min(full, least), int(full * share))
            sized, share = replace(sized, **{name: fewer}), share * full / fewer
        return sized


# Kept so that fits in one process that differ only in what the host does compile once.
_kept = lru_cache(maxsize=8)(Program)


def _program(spec: Dibs) -> Program:
    return _kept(replace(spec, steps=1, centre=True, weights="equal", cyclic_in_scores=False))


TRACED = ("step", "edges", "acyclic")


class Course(NamedTuple):
    """Between two chunks of steps; ``trace`` ``(k, 3)`` has a row for every window of them."""

    now: State
    trace: np.ndarray
    broken: bool


class Moving(Engine[Course]):
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

    def __init__(self, spec: Dibs, problem: Problem, resources: Resources) -> None:
        super().__init__(spec, problem, resources)
        data = problem.rows
        self.program = _program(spec)
        self.means = data.values.mean(axis=0) if spec.centre else np.zeros(data.d)
        self.values = data.values - self.means
        self.prepared, self.key = self.program.likelihood.prepare(self.values), jax.random.key(problem.seed)

    @staticmethod
    def precision() -> AbstractContextManager[Any]:
        return double_precision()

    def init(self) -> Course:
        first = self.program.init(np.random.default_rng(self.problem.seed), self.problem.table.d)
        return Course(first, np.zeros((0, len(TRACED))), False)

    def is_done(self, state: Course) -> bool:
        return int(state.now.taken) >= self.spec.steps or state.broken

    def advance(self, state: Course, plan: Plan) -> tuple[Course, Info]:
        spec, taken = self.spec, int(state.now.taken)
        steps = min(plan.steps, spec.steps - taken, WINDOW - taken % WINDOW)
        with taking_turns():
            moved = jax.block_until_ready(self.program.advance(state.now, self.key, self.prepared, steps))
        graphs, strengths = _hard(moved.particles.latent)
        later = taken + steps
        info = Info(steps, later, spec.steps, "moving particles", report=later == spec.steps)
        if not is_finite((strengths, moved.particles)):
            return state._replace(broken=True), info
        trace = state.trace
        if later % WINDOW == 0 or later == spec.steps:
            acyclic = float(np.mean([is_dag(graph) for graph in graphs]))
            trace = appended(trace, later, graphs.sum() / len(graphs), acyclic)
        return Course(moved, trace, False), info

    def finish(self, state: Course, stopped: str | None) -> Outcome:
        spec, program = self.spec, self.program
        particles = jax.device_get(state.now.particles)
        graphs, strengths = _hard(particles.latent)
        chosen = _choose(spec, graphs, strengths, lambda: program.evidence(self.prepared, particles.theta, graphs))
        own_theta = jax.tree.map(lambda array: np.asarray(array)[chosen.which], particles.theta)
        functions = program.likelihood.networks(self.values, own_theta, chosen.graphs)
        diagnostics = {
            "steps": int(state.now.taken),
            "particles": spec.particles,
            "acyclic_particles": chosen.acyclic,
            "distinct_graphs": len(np.unique(graphs.reshape(len(graphs), -1), axis=0)),
            "effective_samples": float(1 / np.sum(chosen.weights**2)),
            "mean_edges": float(graphs.sum() / len(graphs)),
        }
        return found(
            self.problem,
            GraphSamples.from_dense(self.problem.table.names, chosen.graphs, chosen.weights),
            ranking(chosen.scores),
            _status(diagnostics, state.broken, stopped),
            diagnostics,
            dict(zip(TRACED, state.trace.T, strict=True)),
            _shifted(functions, chosen.graphs, self.means),
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


def _status(info: dict[str, Any], broken: bool, stopped: str | None) -> Status:
    if broken:
        return Status(
            "failed",
            "The particles broke down (numbers that are not finite); what is left is the last sound state: do not use "
            "it. Standardised columns usually help.",
        )
    early = interrupted(stopped, f"{info['steps']:,} steps")
    if early is not None:
        return early
    acyclic, count = info["acyclic_particles"], info["particles"]
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
