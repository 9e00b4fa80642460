"""MCSL, or Masked-DAG (Ng et al. 2022): a network for each node behind a soft random mask, made acyclic as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vcuda.baselines.augmented_lagrangian import SubproblemSchedule, acyclic_part, acyclicity, penalty
from vcuda.baselines.base import BaselineResult, Course, check_options, ranking
from vcuda.baselines.networks import as_networks, fan_in_layers, predict
from vcuda.baselines.selection import preliminary_neighbours
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.graphs import is_dag
from vcuda.infer.compilation import double_precision, use_compilation_cache
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.models.functional.mlp import Layers
from vcuda.posterior.posterior import Status
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


def run_mcsl(
    spec: Mcsl,
    data: Dataset,
    *,
    seed: int,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
) -> BaselineResult:
    """Train mask and networks by the augmented Lagrangian, and take the open inputs that make a DAG.

    A step costs O(n d² h) for the networks and O(d³) for the constraint; there are at most 44 subproblems.

    Of two opposite edges not the one of the worse DAG gives way, but the one that is missed less while the others are
    still open and nodes are predicted from their children too; what is closed stays closed. In a chain x -> y -> z with
    coefficients of 1.5 and unit noise, once x and z are no inputs of each other, y without x costs 0.08 in mean squares
    since z tells the same, and x without y costs 0.69: x -> y was turned round in twelve tables of twelve, and by
    gcastle's program too in the one that it was given.
    """
    use_compilation_cache()
    with double_precision():
        return _run(spec, data, seed, Course(progress, deadline))


def _run(spec: Mcsl, data: Dataset, seed: int, course: Course) -> BaselineResult:
    allowed = ~np.eye(data.d, dtype=bool)
    if spec.preselect_from is not None and data.d >= spec.preselect_from:
        allowed &= preliminary_neighbours(data.values, seed=seed)
    program, schedule = _program(spec), SubproblemSchedule(rounds=spec.rounds, tolerance=spec.tolerance)
    noise_key = jax.random.key(seed)
    values = jnp.asarray(data.values, dtype=jnp.float32)
    state = sound = program.init(np.random.default_rng(seed), data.d)
    trace: dict[str, list[float]] = {"constraint": [], "multiplier": [], "weight": []}
    broken = False
    with course.underway():
        while not schedule.finished and not broken:
            weights = (schedule.multiplier, schedule.weight)
            done = 0
            while done < spec.steps and not broken:
                steps = min(course.pace.steps, spec.steps - done)
                with course.pace.timing(steps):
                    moved = program.advance(state, noise_key, values, allowed.astype(np.float64), steps, *weights)
                    state = jax.block_until_ready(moved)
                done += steps
                broken = not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.trained))
                detail = f"round {schedule.round}, penalty weight {schedule.weight:.0e}"
                course.tell(schedule.round - 1 + done / spec.steps, spec.rounds + 1, detail)
            constraint = float(state.constraint)
            if broken or not np.isfinite(constraint):
                state, broken = sound, True
                continue
            sound = state
            for name, value in zip(trace, (constraint, *weights), strict=True):
                trace[name].append(value)
            schedule.record(constraint)
    learned = np.asarray(state.trained.logits)
    open_inputs = (learned > 0) & allowed
    graph, threshold = acyclic_part(open_inputs, learned)
    logits = np.where(allowed, learned, learned[allowed].min(initial=0.0) - 1.0)  # no candidate below all that were
    scores = ranking(logits if spec.scores == "logits" else _saturated(logits / spec.temperature) * allowed)
    diagnostics = {
        "steps": int(state.taken),
        "rounds": min(schedule.round, spec.rounds),
        "constraint": float(state.constraint),
        "constraint_met": schedule.met,
        "acyclic_by_itself": is_dag(open_inputs),
        "edges_before_dag": int(open_inputs.sum()),
        "dag_threshold": max(threshold, 0.0),
        **course.seconds(),
    }
    return BaselineResult(
        samples=GraphSamples.from_dense(data.names, graph),
        scores=scores,
        status=_status(course, schedule, diagnostics, broken),
        diagnostics=diagnostics,
        trace={name: np.array(series) for name, series in trace.items()},
        functions=as_networks(state.trained.layers, np.zeros(data.d), SLOPE),
    )


def _saturated(scaled: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(scaled, -700, 700)))


def _status(course: Course, schedule: SubproblemSchedule, info: dict[str, Any], broken: bool) -> Status:
    if broken:
        return Status(
            "failed",
            "Training broke down (numbers that are not finite); what is left is the last sound state: do not use it. "
            "Standardised columns usually help.",
        )
    stopped = course.interrupted(f"{info['steps']:,} steps")
    if stopped is not None:
        return stopped
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
