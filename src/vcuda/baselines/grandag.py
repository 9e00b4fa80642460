"""GraN-DAG (Lachapelle et al. 2020): a network for each node, made acyclic by what their paths of weights allow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.baselines.augmented_lagrangian import StationarySchedule, acyclic_part, acyclicity, penalty
from vcuda.baselines.base import BaselineResult, Course, check_options, ranking
from vcuda.baselines.networks import as_networks, path_strengths, predict, slopes, xavier_layers
from vcuda.baselines.selection import preliminary_neighbours, significant_parents
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.infer.compilation import double_precision, use_compilation_cache
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.models.functional.mlp import Layers
from vcuda.posterior.posterior import Status
from vcuda.posterior.samples import GraphSamples

Scores = Literal["jacobian", "paths", "final paths"]
Array = jax.Array | np.ndarray

SLOPE = 0.01
WINDOW = 100
# Training again on the final graph: iterations between two looks at the held-out rows, and looks without a better one.
RETRAINING_WINDOW = 1000
RETRAINING_PATIENCE = 10


@dataclass(frozen=True)
class GranDag:
    """How GraN-DAG is trained; the presets are :meth:`reference` and :meth:`fixed`.

    Parameters
    ----------
    hidden
        Units of each hidden layer; none makes the model linear.
    iterations
        At most so many steps; training ends before when the constraint falls to ``tolerance``.
    batch_size, learning_rate
        Rows a step, drawn anew without replacement, and the rate of RMSprop.
    clamp
        An input whose path strength falls to this is cut off for good.
    tolerance
        Of the constraint tr exp(A) - d.
    validation_share
        Rows held out, to see when the training has come to rest.
    shuffle
        Hold out random rows; otherwise the last ones, as gcastle does.
    batch_seed
        Draw batches by this seed whatever the seed of the run, as gcastle does (42); None for the seed of the run.
    warm_up
        Steps of maximum likelihood before anything is penalised or cut off. A linear model needs them: its initial
        penalty is larger than the likelihood (10^7 at 50 nodes), and would cut off edges before any is fitted.
    preselect_from
        From so many nodes on, inputs are chosen by random trees first; None never does.
    prune
        Keep the edges that an additive regression finds significant at ``prune_level``; then ``retrain`` fits new
        networks on what is left.
    scores
        ``"jacobian"``: the mean of |d log p(x_j) / d x_i| before the graph is made acyclic; ``"paths"``: the path
        strengths then; ``"final paths"``: those of the final graph's edges and zero elsewhere, so that what is ranked
        is one graph, as in the paper's figures.
    """

    hidden: tuple[int, ...] = (10, 10)
    iterations: int = 100_000
    batch_size: int = 64
    learning_rate: float = 1e-3
    clamp: float = 1e-4
    tolerance: float = 1e-8
    validation_share: float = 0.2
    shuffle: bool = True
    batch_seed: int | None = None
    warm_up: int = 0
    preselect_from: int | None = 50
    prune: bool = True
    prune_level: float = 1e-3
    retrain: bool = True
    scores: Scores = "jacobian"
    name: ClassVar[str] = "grandag"
    models: ClassVar[dict[str, dict[str, Any]]] = {"linear": {"hidden": ()}, "mlp": {}}

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if any(not isinstance(width, int) or width < 1 for width in self.hidden):
            raise ConfigError(f"hidden of grandag must be layers of at least one unit, not {self.hidden}")
        least: dict[str, float] = {"iterations": 1, "batch_size": 1, "warm_up": 0, "preselect_from": 2}
        check_options(
            self,
            at_least=least | {"learning_rate": 0, "clamp": 0, "tolerance": 0, "prune_level": 0, "batch_seed": 0},
            choices={"scores": get_args(Scores)},
        )
        if not 0 < self.validation_share < 1:
            raise ConfigError(f"validation_share of grandag must lie between 0 and 1, not {self.validation_share}")

    @classmethod
    def reference(cls, **changes: Any) -> GranDag:
        """As VCUDA's authors ran gcastle's version; ``hidden=()`` made their linear figures."""
        authors = cls(
            iterations=10_000,
            shuffle=False,
            batch_seed=42,
            preselect_from=None,
            prune=False,
            retrain=False,
            scores="final paths",
        )
        return replace(authors, **changes)

    @classmethod
    def corrected(cls, **changes: Any) -> GranDag:
        """As its paper has it: time to meet the constraint, selection before (from 50 nodes on), pruning after."""
        spec = replace(cls(), **changes)
        return spec if spec.hidden or "warm_up" in changes else replace(spec, warm_up=2_000)


class Trained(NamedTuple):
    """The networks, and the logarithm of each node's noise scale ``(d,)``."""

    layers: Layers
    log_scale: jax.Array


class State(NamedTuple):
    """Between two steps; ``strengths`` and ``constraint`` are those that the last step started from."""

    trained: Trained
    squares: Trained
    mask: Array
    strengths: Array
    constraint: Array
    taken: Array


class Terms(NamedTuple):
    """What is added to the likelihood, and below what an input is cut off or the stretch ends."""

    multiplier: float = 0.0
    weight: float = 0.0
    clamp: float = -1.0
    tolerance: float = -1.0


class Program:
    """The compiled pieces for networks of one shape."""

    def __init__(self, hidden: tuple[int, ...], learning_rate: float) -> None:
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.advance = jax.jit(self._advance)
        self.loss = jax.jit(self._loss)
        self.jacobian = jax.jit(self._jacobian)

    def init(self, rng: np.random.Generator, mask: np.ndarray) -> State:
        """Networks that have seen nothing yet, with the inputs of a ``(d, d)`` mask."""
        trained = Trained(xavier_layers(rng, len(mask), self.hidden), np.zeros(len(mask)))  # type: ignore[arg-type]
        nothing = jax.tree.map(np.zeros_like, trained)
        opened = mask.astype(np.float64)
        return State(trained, nothing, opened, np.zeros(mask.shape), np.array(np.inf), np.array(0, dtype=np.int32))

    def _loss(self, trained: Trained, mask: Array, rows: Array) -> jax.Array:
        """The mean over rows and nodes of -log p(x_j | inputs)."""
        residual = rows - predict(trained.layers, mask, rows, SLOPE)
        cells = 0.5 * (residual * jnp.exp(-trained.log_scale)) ** 2 + trained.log_scale
        return jnp.mean(cells) + 0.5 * jnp.log(2 * jnp.pi)

    def _step(self, state: State, rows: jax.Array, terms: Terms) -> State:
        def lagrangian(trained: Trained) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            strengths = path_strengths(trained.layers, state.mask)
            constraint = acyclicity(strengths)
            penalised = penalty(constraint, terms.multiplier, terms.weight)
            return self._loss(trained, state.mask, rows) + penalised, (strengths, constraint)

        gradient, (strengths, constraint) = jax.grad(lagrangian, has_aux=True)(state.trained)
        squares = jax.tree.map(lambda old, slope: 0.99 * old + 0.01 * slope**2, state.squares, gradient)
        trained = jax.tree.map(
            lambda value, slope, square: value - self.learning_rate * slope / (jnp.sqrt(square) + 1e-8),
            state.trained,
            gradient,
            squares,
        )
        mask = jnp.where(strengths > terms.clamp, state.mask, 0.0)
        return State(trained, squares, mask, strengths, constraint, state.taken + 1)

    def _advance(self, state: State, values: Array, batches: Array, first: int, last: int, terms: Terms) -> State:
        """Steps on the batches ``first`` to ``last``, fewer if the constraint falls to the tolerance."""

        def going(carry: tuple[jax.Array, State]) -> jax.Array:
            return (carry[0] < last) & (carry[1].constraint > terms.tolerance)

        def body(carry: tuple[jax.Array, State]) -> tuple[jax.Array, State]:
            position, state = carry
            return position + 1, self._step(state, values[batches[position]], terms)

        return jax.lax.while_loop(going, body, (jnp.asarray(first), state))[1]

    def _jacobian(self, trained: Trained, mask: Array, rows: Array) -> jax.Array:
        """The sum over rows of |d log p(x_j) / d x_i|, x_j itself held fast: ``(d, d)``."""
        residual = rows - predict(trained.layers, mask, rows, SLOPE)
        pull = jnp.abs(residual * jnp.exp(-2 * trained.log_scale))

        def one(total: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            return total + jnp.abs(slopes(trained.layers, mask, row[0], SLOPE)) * row[1], None

        return jax.lax.scan(one, jnp.zeros(mask.shape), (jnp.asarray(rows), pull))[0]


# Kept so that equal fits in one process compile once.
_program = lru_cache(maxsize=8)(Program)


def run_grandag(
    spec: GranDag,
    data: Dataset,
    *,
    seed: int,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
) -> BaselineResult:
    """Train all networks by the augmented Lagrangian, and cut the result down to a DAG.

    A step costs O(b d² h) for the networks and O(d³) for the constraint, in double precision.
    """
    use_compilation_cache()
    with double_precision():
        return _Run(spec, data, seed, Course(progress, deadline)).result()


class _Run:
    """One run; what is kept between compiled chunks is in ``state``."""

    def __init__(self, spec: GranDag, data: Dataset, seed: int, course: Course) -> None:
        self.spec, self.data, self.course, self.seed = spec, data, course, seed
        self.rng, batch_rng = np.random.default_rng(seed).spawn(2)
        order = self.rng.permutation(data.n) if spec.shuffle else np.arange(data.n)
        held_out = min(max(int(spec.validation_share * data.n), 1), data.n - 1)
        self.train = data.values[order[: data.n - held_out]]
        self.held_out = data.values[order[data.n - held_out :]]
        self.batch = batch_rng if spec.batch_seed is None else np.random.default_rng(spec.batch_seed)
        self.program = _program(spec.hidden, spec.learning_rate)
        self.schedule = StationarySchedule(window=WINDOW)
        self.trace: dict[str, list[float]] = {"constraint": [], "multiplier": [], "weight": [], "validation": []}
        self.broken = False

    def result(self) -> BaselineResult:
        spec, data = self.spec, self.data
        mask = ~np.eye(data.d, dtype=bool)
        if spec.preselect_from is not None and data.d >= spec.preselect_from:
            mask = preliminary_neighbours(data.values, seed=self.seed)
        self.state = self.program.init(self.rng, mask)
        with self.course.underway():
            if spec.warm_up:
                self._stretch(spec.warm_up, Terms(), "fitting without constraint")
                self.state = self.state._replace(taken=np.array(0, dtype=np.int32), constraint=np.array(np.inf))
            self._constrain()
        state = jax.device_get(self.state)
        met = bool(state.constraint <= spec.tolerance)
        mask = (state.mask > 0) & (state.strengths > 0) if met else state.mask > 0
        jacobian = self._mean_jacobian(state.trained, mask)
        graph, threshold = acyclic_part(mask, jacobian)
        kinds = {"jacobian": jacobian, "paths": state.strengths * mask, "final paths": state.strengths * graph}
        diagnostics = {
            "iterations": int(state.taken),
            "constraint": float(state.constraint),
            "constraint_met": met,
            "edges_before_dag": int(mask.sum()),
            "dag_threshold": threshold if np.isfinite(threshold) else 0.0,
            "edges_before_pruning": int(graph.sum()),
        }
        trained = state.trained
        if self.course.stopped_by is None and not self.broken:
            if spec.prune:
                graph = significant_parents(data.values, graph, level=spec.prune_level)
            if spec.retrain:
                trained = self._retrain(graph)
        return BaselineResult(
            samples=GraphSamples.from_dense(data.names, graph),
            scores=ranking(kinds[spec.scores]),
            status=self._status(met, int(state.taken)),
            diagnostics=diagnostics | self.course.seconds(),
            trace={name: np.array(series) for name, series in self.trace.items()},
            functions=as_networks(trained.layers, 2 * np.asarray(trained.log_scale), SLOPE),
        )

    def _stretch(self, steps: int, terms: Terms, detail: str) -> None:
        """So many steps, in chunks of about a second."""
        rows = len(self.train)
        size, until = min(self.spec.batch_size, rows), int(self.state.taken) + steps
        while (left := until - int(self.state.taken)) > 0 and float(self.state.constraint) > terms.tolerance:
            batches = np.zeros((WINDOW, size), dtype=np.int32)
            filled = min(left, WINDOW)
            for k in range(filled):
                batches[k] = self.batch.choice(rows, size, replace=False, shuffle=False)
            first = 0
            while first < filled and float(self.state.constraint) > terms.tolerance:
                last = min(first + self.course.pace.steps, filled)
                with self.course.pace.timing(last - first):
                    moved = self.program.advance(self.state, self.train, batches, first, last, terms)
                    self.state = jax.block_until_ready(moved)
                first = last
                self.course.tell(int(self.state.taken), max(self.spec.iterations, until), detail)

    def _constrain(self) -> None:
        """The augmented Lagrangian: a look after the first step, and then after every window."""
        spec, schedule = self.spec, self.schedule
        sound = self.state
        steps = 1
        while (taken := int(self.state.taken)) < spec.iterations:
            terms = Terms(schedule.multiplier, schedule.weight, spec.clamp, spec.tolerance)
            detail = f"penalty weight {schedule.weight:.0e}, constraint {float(self.state.constraint):.1e}"
            self._stretch(min(steps, spec.iterations - taken), terms, detail)
            steps = WINDOW
            constraint = float(self.state.constraint)
            loss = float(self.program.loss(self.state.trained, self.state.mask, self.held_out))
            if not (np.isfinite(constraint) and np.isfinite(loss)):
                self.state, self.broken = sound, True
                return
            sound = self.state
            for name, value in zip(self.trace, (constraint, schedule.multiplier, schedule.weight, loss), strict=True):
                self.trace[name].append(value)
            if constraint <= spec.tolerance:
                return
            if schedule.record(loss, constraint):
                nothing = jax.tree.map(np.zeros_like, jax.device_get(self.state.squares))
                self.state = self.state._replace(squares=nothing)

    def _retrain(self, graph: np.ndarray) -> Trained:
        """New networks on the final graph, the best by the held-out rows."""
        self.state = self.program.init(self.rng, graph)
        look = partial(self.program.loss, mask=self.state.mask, rows=self.held_out)
        best, lowest, since = self.state.trained, float(look(self.state.trained)), 0
        with self.course.underway():
            while int(self.state.taken) < self.spec.iterations and since < RETRAINING_PATIENCE:
                self._stretch(RETRAINING_WINDOW, Terms(), "fitting the final graph")
                loss = float(look(self.state.trained))
                since += 1
                if loss < lowest:
                    best, lowest, since = self.state.trained, loss, 0
        return jax.device_get(best)

    def _mean_jacobian(self, trained: Trained, mask: np.ndarray) -> np.ndarray:
        total = self.program.jacobian(trained, mask.astype(np.float64), self.train)
        return ranking(np.asarray(total) / len(self.train))

    def _status(self, met: bool, taken: int) -> Status:
        if self.broken:
            return Status(
                "failed",
                "Training broke down (numbers that are not finite); what is left is the last sound state: do not use "
                "it. Standardised columns usually help.",
            )
        stopped = self.course.interrupted(f"{taken:,} iterations")
        if stopped is not None:
            return stopped
        if not met:
            return Status(
                "warning",
                f"The graph still had cycles after {taken:,} iterations, and was cut at a threshold to be a DAG: give "
                "it more iterations.",
            )
        return Status("ok", "The training met its constraint. This is one graph, and says nothing of how sure it is.")
