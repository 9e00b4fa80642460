"""GraN-DAG (Lachapelle et al. 2020): a network for each node, made acyclic by what their paths of weights allow."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.baselines.augmented_lagrangian import StationarySchedule, acyclic_part, acyclicity, penalty
from vcuda.baselines.base import appended, check_options, found, ranking
from vcuda.baselines.networks import as_networks, path_strengths, predict, slopes, xavier_layers
from vcuda.baselines.selection import Candidates, significant_parents
from vcuda.errors import ConfigError
from vcuda.infer.checkpoint import LastDraw, generator_of, generator_state
from vcuda.infer.compilation import double_precision
from vcuda.infer.engine import Engine, Info, Plan, Problem, Resources, interrupted
from vcuda.models.functional.mlp import Layers
from vcuda.posterior.posterior import Outcome, Status
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


TRACED = ("constraint", "multiplier", "weight", "validation")


class Stage(IntEnum):
    """What is done next."""

    SELECT, WARM_UP, CONSTRAIN, RETRAIN, END = range(5)


class Stretch(NamedTuple):
    """Steps up to number ``until``, on batches that are drawn a window at a time.

    ``batches`` is the generator before the window at work was drawn, which has ``filled`` batches (0: it is not drawn
    yet), of which ``first`` are taken.
    """

    batches: np.ndarray
    until: int = 0
    filled: int = 0
    first: int = 0


class Constrained(NamedTuple):
    """At the end of the augmented Lagrangian: the state, each edge's mean slope, and the graph before and after
    pruning, all ``(d, d)``."""

    state: State
    jacobian: np.ndarray
    dag: np.ndarray
    graph: np.ndarray


class Retrained(NamedTuple):
    """The networks on the final graph that predicted the held-out rows best, their loss, and the looks since."""

    best: Trained
    loss: float
    since: int


class Course(NamedTuple):
    """Between two chunks of steps; ``sound`` is the last finite state at a look, ``trace`` ``(k, 4)`` a row a look."""

    stage: int
    candidates: Candidates
    now: State
    sound: State
    stretch: Stretch
    schedule: StationarySchedule
    trace: np.ndarray
    constrained: Constrained
    retrained: Retrained
    broken: bool


class PathTraining(Engine[Course]):
    """Train all networks by the augmented Lagrangian, and cut the result down to a DAG.

    A step costs O(b d² h) for the networks and O(d³) for the constraint, in double precision.
    """

    def __init__(self, spec: GranDag, problem: Problem, resources: Resources) -> None:
        super().__init__(spec, problem, resources)
        data = problem.rows
        self.rng, batch_rng = np.random.default_rng(problem.seed).spawn(2)
        order = self.rng.permutation(data.n) if spec.shuffle else np.arange(data.n)
        held_out = min(max(int(spec.validation_share * data.n), 1), data.n - 1)
        self.train = data.values[order[: data.n - held_out]]
        self.held_out = data.values[order[data.n - held_out :]]
        self.batch_rng = batch_rng if spec.batch_seed is None else np.random.default_rng(spec.batch_seed)
        self.program = _program(spec.hidden, spec.learning_rate)
        self.drawn = LastDraw[np.ndarray]()

    @staticmethod
    def precision() -> AbstractContextManager[Any]:
        return double_precision()

    def init(self) -> Course:
        nodes = self.problem.table.d
        candidates = Candidates.start(nodes, self.spec.preselect_from)
        first = self.program.init(self.rng, candidates.allowed)
        # The networks of the final graph are drawn after these, whenever that may be.
        self.retraining_rng = generator_state(self.rng)
        nothing = np.zeros((nodes, nodes))
        course = Course(
            stage=int(Stage.SELECT),
            candidates=candidates,
            now=first,
            sound=first,
            stretch=Stretch(generator_state(self.batch_rng)),
            schedule=StationarySchedule(window=WINDOW),
            trace=np.zeros((0, len(TRACED))),
            constrained=Constrained(first, nothing, nothing > 0, nothing > 0),
            retrained=Retrained(first.trained, np.inf, 0),
            broken=False,
        )
        return self._selected(course) if candidates.is_complete else course

    def is_done(self, state: Course) -> bool:
        return state.stage == Stage.END

    def advance(self, state: Course, plan: Plan) -> tuple[Course, Info]:
        if state.stage == Stage.SELECT:
            candidates = state.candidates.select(self.problem.rows.values, self.problem.seed)
            later = state._replace(candidates=candidates)
            return (self._selected(later) if candidates.is_complete else later), candidates.info()
        terms, detail = self._terms(state)
        later, steps = self._chunk(state, terms, plan.steps)
        info = Info(steps, int(later.now.taken), max(self.spec.iterations, state.stretch.until), detail)
        if int(later.now.taken) < later.stretch.until and float(later.now.constraint) > terms.tolerance:
            return later, info
        after_stretch = {
            Stage.WARM_UP: self._constrain,
            Stage.CONSTRAIN: self._look,
            Stage.RETRAIN: self._look_at_retrained,
        }
        return after_stretch[Stage(state.stage)](self._window_left(later)), info

    def _terms(self, state: Course) -> tuple[Terms, str]:
        """What is minimised at this stage, in numbers and in words."""
        if state.stage == Stage.WARM_UP:
            return Terms(), "fitting without constraint"
        if state.stage == Stage.RETRAIN:
            return Terms(), "fitting the final graph"
        schedule = state.schedule
        detail = f"penalty weight {schedule.weight:.0e}, constraint {float(state.now.constraint):.1e}"
        return Terms(schedule.multiplier, schedule.weight, self.spec.clamp, self.spec.tolerance), detail

    def _chunk(self, state: Course, terms: Terms, most: int) -> tuple[Course, int]:
        """At most so many steps on the batches of one window."""
        stretch = state.stretch
        if stretch.filled == 0:
            stretch = stretch._replace(filled=min(stretch.until - int(state.now.taken), WINDOW))
        batches, _ = self._batches(stretch)
        last = min(stretch.first + most, stretch.filled)
        moved = self.program.advance(state.now, self.train, batches, stretch.first, last, terms)
        later = state._replace(now=jax.block_until_ready(moved), stretch=stretch._replace(first=last))
        if last == stretch.filled:
            later = self._window_left(later)
        return later, last - stretch.first

    def _window_left(self, state: Course) -> Course:
        """The course with the generator after the window at work, if one was drawn."""
        if state.stretch.filled == 0:
            return state
        _, after = self._batches(state.stretch)
        return state._replace(stretch=Stretch(after, state.stretch.until))

    def _batches(self, stretch: Stretch) -> tuple[np.ndarray, np.ndarray]:
        """The batches of a window ``(WINDOW, b)``, and the generator after they were drawn."""
        rows = len(self.train)

        def draw(rng: np.random.Generator) -> np.ndarray:
            batches = np.zeros((WINDOW, min(self.spec.batch_size, rows)), dtype=np.int32)
            for k in range(stretch.filled):
                batches[k] = rng.choice(rows, batches.shape[1], replace=False, shuffle=False)
            return batches

        return self.drawn.of(stretch.batches, draw)

    def _stretched(self, state: Course, stage: Stage, steps: int) -> Course:
        """Go on with so many steps at this stage."""
        until = int(state.now.taken) + steps
        return state._replace(stage=int(stage), stretch=state.stretch._replace(until=until))

    def _selected(self, state: Course) -> Course:
        """All inputs are selected."""
        now = state.now._replace(mask=state.candidates.allowed.astype(np.float64))
        later = state._replace(now=now)
        if self.spec.warm_up:
            return self._stretched(later, Stage.WARM_UP, self.spec.warm_up)
        return self._constrain(later)

    def _constrain(self, state: Course) -> Course:
        """Begin the augmented Lagrangian: a look after the first step, and then after every window."""
        now = state.now._replace(taken=np.array(0, dtype=np.int32), constraint=np.array(np.inf))
        return self._stretched(state._replace(now=now, sound=now), Stage.CONSTRAIN, 1)

    def _look(self, state: Course) -> Course:
        """Judge constraint and held-out loss at the end of a window."""
        spec, now, schedule = self.spec, state.now, state.schedule
        constraint = float(now.constraint)
        loss = float(self.program.loss(now.trained, now.mask, self.held_out))
        if not (np.isfinite(constraint) and np.isfinite(loss)):
            return state._replace(now=state.sound, stage=int(Stage.END), broken=True)
        trace = appended(state.trace, constraint, schedule.multiplier, schedule.weight, loss)
        later = state._replace(sound=now, trace=trace)
        if constraint <= spec.tolerance:
            return self._pruned(later)
        recorded = schedule.record(loss, constraint)
        if len(recorded.constraints) > len(schedule.constraints):
            now = now._replace(squares=jax.tree.map(np.zeros_like, jax.device_get(now.squares)))
        later = later._replace(now=now, schedule=recorded)
        left = spec.iterations - int(now.taken)
        return self._stretched(later, Stage.CONSTRAIN, min(WINDOW, left)) if left > 0 else self._pruned(later)

    def _cut(self, state: State) -> Constrained:
        """The DAG of a state."""
        mask = self._open_inputs(state)
        total = np.asarray(self.program.jacobian(state.trained, mask.astype(np.float64), self.train))
        jacobian = ranking(total / len(self.train))
        dag, _ = acyclic_part(mask, jacobian)
        return Constrained(state, jacobian, dag, dag)

    def _open_inputs(self, state: State) -> np.ndarray:
        opened = np.asarray(state.mask) > 0
        return opened & (np.asarray(state.strengths) > 0) if self._is_met(state) else opened

    def _is_met(self, state: State) -> bool:
        return bool(state.constraint <= self.spec.tolerance)

    def _pruned(self, state: Course) -> Course:
        """The constraint is met, or time for it is over: cut to a DAG, prune, and begin to train again."""
        spec = self.spec
        constrained = self._cut(jax.device_get(state.now))
        if spec.prune:
            graph = significant_parents(self.problem.rows.values, constrained.dag, level=spec.prune_level)
            constrained = constrained._replace(graph=graph)
        later = state._replace(constrained=constrained)
        if not spec.retrain:
            return later._replace(stage=int(Stage.END))
        now = self.program.init(generator_of(self.retraining_rng), constrained.graph)
        loss = float(self.program.loss(now.trained, now.mask, self.held_out))
        later = later._replace(now=now, retrained=Retrained(now.trained, loss, 0))
        return self._stretched(later, Stage.RETRAIN, RETRAINING_WINDOW)

    def _look_at_retrained(self, state: Course) -> Course:
        """Keep the best networks on the final graph."""
        loss = float(self.program.loss(state.now.trained, state.now.mask, self.held_out))
        before = state.retrained
        kept = before._replace(since=before.since + 1)
        if loss < before.loss:
            kept = Retrained(state.now.trained, loss, 0)
        later = state._replace(retrained=kept)
        if int(state.now.taken) >= self.spec.iterations or kept.since >= RETRAINING_PATIENCE:
            return later._replace(stage=int(Stage.END))
        return self._stretched(later, Stage.RETRAIN, RETRAINING_WINDOW)

    def finish(self, state: Course, stopped: str | None) -> Outcome:
        spec, names = self.spec, self.problem.table.names
        is_whole = not state.broken and state.stage in (Stage.RETRAIN, Stage.END)
        constrained = state.constrained if is_whole else self._cut(jax.device_get(state.now))
        last, jacobian = constrained.state, constrained.jacobian
        mask, met, taken = self._open_inputs(last), self._is_met(last), int(last.taken)
        threshold = acyclic_part(mask, jacobian)[1]
        strengths = np.asarray(last.strengths)
        kinds = {"jacobian": jacobian, "paths": strengths * mask, "final paths": strengths * constrained.dag}
        trained = jax.device_get(state.retrained.best) if is_whole and spec.retrain else last.trained
        diagnostics = {
            "iterations": taken,
            "constraint": float(last.constraint),
            "constraint_met": met,
            "edges_before_dag": int(mask.sum()),
            "dag_threshold": threshold if np.isfinite(threshold) else 0.0,
            "edges_before_pruning": int(constrained.dag.sum()),
        }
        return found(
            self.problem,
            GraphSamples.from_dense(names, constrained.graph),
            ranking(kinds[spec.scores]),
            _status(state.broken, met, taken, stopped),
            diagnostics,
            dict(zip(TRACED, state.trace.T, strict=True)),
            as_networks(trained.layers, 2 * np.asarray(trained.log_scale), SLOPE),
        )


def _status(broken: bool, met: bool, taken: int, stopped: str | None) -> Status:
    if broken:
        return Status(
            "failed",
            "Training broke down (numbers that are not finite); what is left is the last sound state: do not use it. "
            "Standardised columns usually help.",
        )
    early = interrupted(stopped, f"{taken:,} iterations")
    if early is not None:
        return early
    if not met:
        return Status(
            "warning",
            f"The graph still had cycles after {taken:,} iterations, and was cut at a threshold to be a DAG: give "
            "it more iterations.",
        )
    return Status("ok", "The training met its constraint. This is one graph, and says nothing of how sure it is.")
