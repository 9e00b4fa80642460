"""MCSL, or Masked-DAG (Ng et al. 2022): a network for each node behind a soft random mask, made acyclic as a whole."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vcuda.baselines.augmented_lagrangian import SubproblemSchedule, acyclic_part, acyclicity, penalty
from vcuda.baselines.base import appended, check_options, found, is_finite, ranking
from vcuda.baselines.networks import as_networks, fan_in_layers, predict
from vcuda.baselines.selection import Candidates
from vcuda.errors import ConfigError
from vcuda.graphs import is_dag
from vcuda.infer.compilation import double_precision
from vcuda.infer.engine import Engine, Info, Plan, Problem, Resources, interrupted
from vcuda.models.functional.mlp import Layers
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.samples import GraphSamples

Sparsity = Literal["entries", "largest column"]
Scores = Literal["logits", "saturated"]
Array = jax.Array | np.ndarray

SLOPE = 0.05
# A mask this small is none to a network in single precision, whose numbers below 1e-38 cost a hundred times the time.
CLOSED = 1e-15


@dataclass(frozen=True)
class Mcsl:
    """How MCSL is trained; the presets are :meth:`reference` and :meth:`fixed`.

    Parameters
    ----------
    hidden
        Units of each hidden layer; none makes the model linear.
    rounds, steps
        At most so many updates of the multiplier, and steps of Adam on all rows for each subproblem.
    learning_rate, temperature
        Of Adam, and of the logistic noise that makes the mask random.
    sparsity_weight, sparsity
        The weight of the mask's 1-norm, and which one is meant: the sum of its ``"entries"``; or its
        ``"largest column"``, the norm of a matrix as an operator, which is what the authors' program computes and which
        leaves all nodes free but the one with the most inputs.
    tolerance
        Of the constraint tr exp(m∘m) - d, m the last mask.
    initial_parents
        The inputs that a node is expected to have at first. None starts with every input half open: then the penalty
        of 50 nodes is 10^13 and drives all inputs out before the data are heard.
    same_noise
        Draw the same noise at every step, as gcastle's own version does (the paper's authors had removed that).
    preselect_from
        From so many nodes on, inputs are chosen by random trees first; None never does.
    scores
        The ``"logits"`` of the mask; or ``"saturated"``, their logistic function at the temperature, where most edges
        are tied at 0 or 1, as in the paper's figures.
    """

    hidden: tuple[int, ...] = (16, 16, 16, 16)
    rounds: int = 25
    steps: int = 1000
    learning_rate: float = 3e-2
    temperature: float = 0.2
    sparsity_weight: float = 2e-3
    sparsity: Sparsity = "entries"
    tolerance: float = 1e-10
    initial_parents: float | None = 1.0
    same_noise: bool = False
    preselect_from: int | None = None
    scores: Scores = "logits"
    name: ClassVar[str] = "mcsl"
    models: ClassVar[dict[str, dict[str, Any]]] = {"linear": {"hidden": ()}, "mlp": {}}

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if any(not isinstance(width, int) or width < 1 for width in self.hidden):
            raise ConfigError(f"hidden of mcsl must be layers of at least one unit, not {self.hidden}")
        least: dict[str, float] = {"rounds": 1, "steps": 1, "preselect_from": 2}
        check_options(
            self,
            at_least=least | {"learning_rate": 0, "sparsity_weight": 0, "tolerance": 0},
            choices={"sparsity": get_args(Sparsity), "scores": get_args(Scores)},
        )
        if not self.temperature > 0 or not (self.initial_parents is None or self.initial_parents > 0):
            raise ConfigError(
                f"temperature and initial_parents of mcsl must be positive, not {self.temperature} and "
                f"{self.initial_parents}"
            )

    @classmethod
    def reference(cls, **changes: Any) -> Mcsl:
        """As VCUDA's authors ran it; ``hidden=()`` made their linear figures."""
        authors = cls(sparsity="largest column", initial_parents=None, scores="saturated")
        return replace(authors, **changes)

    @classmethod
    def corrected(cls, **changes: Any) -> Mcsl:
        """As its paper has it, from a start that the constraint does not overwhelm."""
        return replace(cls(), **changes)


class Trained(NamedTuple):
    """The networks, in single precision as they are the cost, and the ``(d, d)`` logits of the mask, in double."""

    layers: Layers
    logits: jax.Array


class State(NamedTuple):
    """Between two steps; ``constraint`` is that of the mask of the last step."""

    trained: Trained
    optimiser: Any
    constraint: Array
    taken: Array


class Program:
    """The compiled pieces for one spec."""

    def __init__(self, spec: Mcsl) -> None:
        self.spec = spec
        self.optimiser = optax.adam(spec.learning_rate)
        self._start = jax.jit(self._begin)
        self.advance = jax.jit(self._advance)

    def init(self, rng: np.random.Generator, nodes: int) -> State:
        """Networks that have seen nothing yet, and a mask that is half open or nearly closed."""
        layers = jax.tree.map(np.float32, fan_in_layers(rng, nodes, self.spec.hidden))
        logits = rng.uniform(-1e-10, 1e-10, (nodes, nodes))
        if self.spec.initial_parents is not None:
            # An input is open with the probability sigma(logit).
            share = min(self.spec.initial_parents / max(nodes - 1, 1), 0.5)
            logits += np.log(share / (1 - share))
        return self._start(Trained(layers, logits))  # type: ignore[arg-type]

    def _begin(self, trained: Trained) -> State:
        # With explicit types, or else the first chunk would be compiled a second time for what it returns.
        constraint, taken = jnp.array(np.inf, dtype=jnp.float64), jnp.array(0, dtype=jnp.int32)
        return State(trained, self.optimiser.init(trained), constraint, taken)

    def _mask(self, logits: jax.Array, key: jax.Array, allowed: Array) -> jax.Array:
        noise = jax.random.logistic(key, logits.shape)  # the difference of two Gumbel variables
        return jax.nn.sigmoid((logits + noise) / self.spec.temperature) * allowed

    def lagrangian(
        self, trained: Trained, key: jax.Array, values: Array, allowed: Array, multiplier: float, weight: float
    ) -> tuple[jax.Array, jax.Array]:
        """Half the squares of a row + sparsity + λ h + (μ/2) h² for one random mask, and h itself."""
        mask = self._mask(trained.logits, key, allowed)
        inputs = jnp.where(mask > CLOSED, mask, 0.0).astype(jnp.float32)
        residual = values - predict(trained.layers, inputs, values, SLOPE)
        squares = 0.5 * jnp.sum(residual**2) / len(values)
        columns = jnp.sum(mask, axis=0)
        size = jnp.sum(columns) if self.spec.sparsity == "entries" else jnp.max(columns)
        constraint = acyclicity(mask * mask)
        penalised = penalty(constraint, multiplier, weight)
        return squares + self.spec.sparsity_weight * size + penalised, constraint

    def _advance(
        self, state: State, key: jax.Array, values: Array, allowed: Array, steps: int, multiplier: float, weight: float
    ) -> State:
        def body(_: jax.Array, state: State) -> State:
            step_key = key if self.spec.same_noise else jax.random.fold_in(key, state.taken)
            slope = jax.grad(self.lagrangian, has_aux=True)
            gradient, constraint = slope(state.trained, step_key, values, allowed, multiplier, weight)
            updates, optimiser = self.optimiser.update(gradient, state.optimiser)
            return State(optax.apply_updates(state.trained, updates), optimiser, constraint, state.taken + 1)

        return jax.lax.fori_loop(0, steps, body, state)


# Kept so that fits in one process that differ only in what the host does compile once.
_kept = lru_cache(maxsize=8)(Program)


def _program(spec: Mcsl) -> Program:
    return _kept(replace(spec, rounds=1, steps=1, tolerance=0.0, preselect_from=None, scores="logits"))


TRACED = ("constraint", "multiplier", "weight")


class Course(NamedTuple):
    """Between two chunks of a subproblem, of which ``done`` steps are taken.

    ``sound`` is the state at the end of the last subproblem, and ``trace`` ``(k, 3)`` has a row for each of them.
    """

    candidates: Candidates
    now: State
    sound: State
    done: int
    schedule: SubproblemSchedule
    trace: np.ndarray
    broken: bool


class MaskTraining(Engine[Course]):
    """Train mask and networks by the augmented Lagrangian, and take the open inputs that make a DAG.

    A step costs O(n d² h) for the networks and O(d³) for the constraint; there are at most 44 subproblems.

    Of two opposite edges not the one of the worse DAG gives way, but the one that is missed less while the others are
    still open and nodes are predicted from their children too; what is closed stays closed. In a chain x -> y -> z with
    coefficients of 1.5 and unit noise, once x and z are no inputs of each other, y without x costs 0.08 in mean squares
    since z tells the same, and x without y costs 0.69: x -> y was turned round in twelve tables of twelve, and by
    gcastle's program too in the one that it was given.
    """

    def __init__(self, spec: Mcsl, problem: Problem, resources: Resources) -> None:
        super().__init__(spec, problem, resources)
        self.program, self.noise_key = _program(spec), jax.random.key(problem.seed)
        self.values = jnp.asarray(problem.rows.values, dtype=jnp.float32)

    @staticmethod
    def precision() -> AbstractContextManager[Any]:
        return double_precision()

    def init(self) -> Course:
        spec, nodes = self.spec, self.problem.table.d
        first = self.program.init(np.random.default_rng(self.problem.seed), nodes)
        schedule = SubproblemSchedule(rounds=spec.rounds, tolerance=float(spec.tolerance))
        candidates = Candidates.start(nodes, spec.preselect_from)
        return Course(candidates, first, first, 0, schedule, np.zeros((0, len(TRACED))), False)

    def is_done(self, state: Course) -> bool:
        return state.schedule.finished or state.broken

    def advance(self, state: Course, plan: Plan) -> tuple[Course, Info]:
        spec, schedule = self.spec, state.schedule
        if not state.candidates.is_complete:
            candidates = state.candidates.select(self.problem.rows.values, self.problem.seed)
            return state._replace(candidates=candidates), candidates.info()
        steps = min(plan.steps, spec.steps - state.done)
        weights = (schedule.multiplier, schedule.weight)
        allowed = state.candidates.allowed.astype(np.float64)
        moved = self.program.advance(state.now, self.noise_key, self.values, allowed, steps, *weights)
        now, done = jax.block_until_ready(moved), state.done + steps
        detail = f"round {schedule.round}, penalty weight {schedule.weight:.0e}"
        info = Info(steps, schedule.round - 1 + done / spec.steps, spec.rounds + 1, detail)
        later = state._replace(now=now, done=done, broken=not is_finite(now.trained))
        return (self._judged(later) if later.broken or done == spec.steps else later), info

    def _judged(self, state: Course) -> Course:
        """The course after a subproblem."""
        constraint, schedule = float(state.now.constraint), state.schedule
        if state.broken or not np.isfinite(constraint):
            return state._replace(now=state.sound, broken=True)
        return state._replace(
            sound=state.now,
            done=0,
            schedule=schedule.record(constraint),
            trace=appended(state.trace, constraint, schedule.multiplier, schedule.weight),
        )

    def finish(self, state: Course, stopped: str | None) -> Outcome:
        spec, allowed, schedule = self.spec, state.candidates.allowed, state.schedule
        learned = np.asarray(state.now.trained.logits)
        open_inputs = (learned > 0) & allowed
        graph, threshold = acyclic_part(open_inputs, learned)
        logits = np.where(allowed, learned, learned[allowed].min(initial=0.0) - 1.0)  # no candidate is below all
        scores = logits if spec.scores == "logits" else _saturated(logits / spec.temperature) * allowed
        diagnostics = {
            "steps": int(state.now.taken),
            "rounds": min(schedule.round, spec.rounds),
            "constraint": float(state.now.constraint),
            "constraint_met": schedule.met,
            "acyclic_by_itself": is_dag(open_inputs),
            "edges_before_dag": int(open_inputs.sum()),
            "dag_threshold": max(threshold, 0.0),
        }
        names = self.problem.table.names
        return found(
            self.problem,
            GraphSamples.from_dense(names, graph),
            ranking(scores),
            _status(schedule, diagnostics, state.broken, stopped),
            diagnostics,
            dict(zip(TRACED, state.trace.T, strict=True)),
            as_networks(state.now.trained.layers, np.zeros(len(names)), SLOPE),
        )


def _saturated(scaled: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(scaled, -700, 700)))


def _status(schedule: SubproblemSchedule, info: dict[str, Any], broken: bool, stopped: str | None) -> Status:
    if broken:
        return Status(
            "failed",
            "Training broke down (numbers that are not finite); what is left is the last sound state: do not use it. "
            "Standardised columns usually help.",
        )
    early = interrupted(stopped, f"{info['steps']:,} steps")
    if early is not None:
        return early
    if not info["acyclic_by_itself"]:
        return Status(
            "warning",
            f"The {info['edges_before_dag']} edges that were found have cycles; those above the lowest threshold "
            "without one were kept.",
        )
    if not schedule.met:
        return Status(
            "warning", f"The constraint was not met after {info['steps']:,} steps, though the graph is a DAG."
        )
    return Status("ok", "The training met its constraint. This is one graph, and says nothing of how sure it is.")
