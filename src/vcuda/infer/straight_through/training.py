"""The paper's engine: a distribution over DAGs and the functions of all nodes, trained together on the ELBO."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from vcuda.dags.base import DagDistribution, DagPrior
from vcuda.dags.lifting import Lift
from vcuda.dags.priority import PriorityDags
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.infer.compilation import single_precision, use_compilation_cache
from vcuda.infer.devices import WHOLE, devices_of, divide, divided, mesh_for, place
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.journal import (
    FORGETFUL,
    Journal,
    fingerprint,
    generator_state,
    set_generator,
    tree_arrays,
    tree_like,
)
from vcuda.infer.progress import Pace, Progress, ProgressCallback, silent
from vcuda.infer.straight_through.elbo import (
    NOTHING_KNOWN,
    Known,
    Rows,
    Terms,
    Trained,
    elbo_terms,
    shuffled_rows,
    split_rows,
)
from vcuda.infer.straight_through.watch import Watch, choose
from vcuda.models.base import FunctionalModel, ModelParams, Noise
from vcuda.posterior.laws import ColumnScaling, Scaling
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.trained import TrainedMixture

ScalingRule = Literal["auto", "raw", "common", "columns"]
Validation = Literal["averaged", "authors"]
Array = jax.Array | np.ndarray

FINAL_GRAPHS = 64


@dataclass(frozen=True)
class StraightThrough:
    """How the ELBO is climbed; presets are :meth:`for_rows` and :meth:`paper`.

    Parameters
    ----------
    dags
        The family of distributions over DAGs, with its temperatures and its straight-through variant.
    epochs, batch_size
        Passes over the training rows, and rows a step (None: all of them).
    graph_samples
        K, the graphs drawn for each step; the variance of the gradient falls with 1/K.
    restarts
        Independent starts, trained in parallel and mixed with weights softmax(ELBO).
    kl_weight
        Weight of the KL terms against the likelihood of all rows. 1 is the ELBO with the functions' weights taken as
        known; because they are fitted to the same rows, a false edge then gains more than it costs, and 5 ranks edges
        better. ``"batch"`` is n / (2 batch_size), which is what the authors' program does without saying so.
    learning_rate, graph_learning_rate
        Adam's, for the functions and for everything else.
    final_learning_rate
        The share of both that is left at the last epoch, falling along a cosine; 1 keeps them.
    weight_decay
        Coupled L2 on the functions (added to the gradient, as in Adam and not AdamW).
    validation_share, check_every, patience
        Rows held out, epochs between two looks at them, and looks without a better value before a restart stops.
    validation
        ``"averaged"`` estimates the ELBO of the held-out rows with ``validation_graphs`` graphs and the same random
        numbers each time, and keeps the best state; ``"authors"`` takes one fresh graph and keeps the last state.
    scaling
        What is done to the columns first: nothing (``raw``), one factor for all (``common``), or z-scores
        (``columns``). ``auto`` takes what leaves the model's noise assumption true: raw for unit noise, common for
        equal, columns for unequal.
    """

    dags: DagDistribution = field(default_factory=PriorityDags)
    epochs: int = 500
    batch_size: int | None = 64
    graph_samples: int = 2
    restarts: int = 4
    kl_weight: float | Literal["batch"] = 5.0
    learning_rate: float = 5e-3
    graph_learning_rate: float = 1e-2
    final_learning_rate: float = 1.0
    weight_decay: float = 1e-4
    validation_share: float = 0.1
    validation_graphs: int = 16
    validation: Validation = "averaged"
    check_every: int = 10
    patience: int = 10
    scaling: ScalingRule = "auto"

    def __post_init__(self) -> None:
        positive = ("epochs", "graph_samples", "restarts", "validation_graphs", "check_every", "patience")
        for name in positive:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, or None for all rows, not {self.batch_size}")
        if not 0 < self.validation_share < 1:
            raise ConfigError(f"validation_share must lie between 0 and 1, not {self.validation_share}")
        if self.kl_weight != "batch" and not (isinstance(self.kl_weight, int | float) and self.kl_weight >= 0):
            raise ConfigError(f"kl_weight must be a number of at least 0, or 'batch', not {self.kl_weight!r}")
        if self.validation not in get_args(Validation) or self.scaling not in get_args(ScalingRule):
            raise ConfigError(
                f"validation must be one of {get_args(Validation)} and scaling one of {get_args(ScalingRule)}"
            )

    @classmethod
    def for_rows(cls, rows: int) -> StraightThrough:
        """Preset ``default``: about 14 steps an epoch, however long the table."""
        return cls(batch_size=max(64, rows // 14))

    @classmethod
    def paper(cls, *, batch_size: int = 64, **changes: Any) -> StraightThrough:
        """The authors' program: 64 rows a step made their linear figures, 256 their nonlinear ones and Sachs."""
        authors: dict[str, Any] = {
            "batch_size": batch_size,
            "graph_samples": 1,
            "restarts": 1,
            "kl_weight": "batch",
            "validation": "authors",
        }
        return cls(**authors | changes)


class OutOfTimeError(Exception):
    """The deadline has passed; it does not leave this module."""


class State(NamedTuple):
    """One restart between two steps."""

    trained: Trained
    optimiser: Any
    key: jax.Array


class Problem(NamedTuple):
    """What does not change during a fit."""

    train: Rows
    validation: Rows
    allowed: jax.Array
    known: Known = NOTHING_KNOWN


class Stretch(NamedTuple):
    """What the host tells of the steps to take next: ``steps`` of the epoch from step ``first`` on.

    They are ordinary arguments, so one program serves however far the host lets it run. ``order`` is ``(r, rows)``, the
    shuffle of this epoch's rows, ``rate`` the share of the learning rates, ``number`` counts all steps before, and
    ``sums`` are the terms of the ELBO added up since the last look: so the last digits do not hang on the chunks.
    """

    active: Array
    order: Array
    first: Array | int
    steps: Array | int
    number: Array | int
    rate: Array | float
    sums: Terms


# How restarts are divided among devices.
DIVIDED_STRETCH = Stretch(divided(), divided(), WHOLE, WHOLE, WHOLE, WHOLE, divided())  # type: ignore[arg-type]


def _optimiser(engine: StraightThrough) -> optax.GradientTransformation:
    functions = optax.chain(optax.add_decayed_weights(engine.weight_decay), optax.adam(engine.learning_rate))
    rest = optax.adam(engine.graph_learning_rate)
    groups = Trained(dags="rest", model=ModelParams(functions="functions", log_variance="rest"))  # type: ignore[arg-type]
    return optax.multi_transform({"functions": functions, "rest": rest}, groups)


class Program:
    """The compiled pieces of a fit, vectorised over restarts, for one choice of engine, model and prior; the devices of
    a ``mesh`` share the restarts."""

    def __init__(
        self, engine: StraightThrough, model: FunctionalModel, prior: DagPrior, mesh: Mesh | None = None
    ) -> None:
        self.engine = engine
        self.model = model
        self.terms = partial(elbo_terms, engine.dags, model, prior)
        self.optimiser = _optimiser(engine)
        self.init = jax.jit(jax.vmap(self._init, in_axes=(0, 0, None)), static_argnums=2)
        self.advance = jax.jit(divide(self._advance, mesh, (divided(), DIVIDED_STRETCH, WHOLE), divided()))
        of_each = ((divided(), WHOLE, WHOLE), divided())
        self.validate = jax.jit(divide(jax.vmap(self._validate, in_axes=(0, None, None)), mesh, *of_each))
        self.final_elbo = jax.jit(divide(self._final_elbo, mesh, *of_each))

    def batch(self, train: Rows) -> int:
        padded = train.values.shape[0]
        return padded if self.engine.batch_size is None else min(self.engine.batch_size, padded)

    def steps_an_epoch(self, train: Rows) -> int:
        """Batches that hold a row which is not padding."""
        return -(-int(train.total) // self.batch(train))

    def _init(self, key: jax.Array, step_key: jax.Array, nodes: int) -> State:
        dags_key, model_key = jax.random.split(key)
        trained = Trained(self.engine.dags.init(dags_key, nodes), self.model.init(model_key, nodes))
        return State(trained, self.optimiser.init(trained), step_key)

    def _weights(self, train: Rows) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Rows of a full batch, the weight of the KL, and the unit of the loss.

        The loss is the negative ELBO in the authors' units, (sum of squares of a batch + KL) / d for unit noise:
        Adam does not feel the factor, but the coupled weight decay does.
        """
        batch_rows = jnp.minimum(float(self.batch(train)), train.total)
        if self.engine.kl_weight == "batch":
            kl_weight = train.total / (2 * batch_rows)
        else:
            kl_weight = jnp.asarray(self.engine.kl_weight)
        return batch_rows, kl_weight, 2 * batch_rows / (train.total * train.values.shape[1])

    def _step(
        self, problem: Problem, rate: Array | float, number: Array, start: Array, state: State, order: Array
    ) -> tuple[State, Terms]:
        """One step of one restart on the rows from ``start`` on; also the terms of the ELBO before it."""
        train = problem.train
        batch = self.batch(train)
        batch_rows, kl_weight, unit = self._weights(train)
        if batch == train.values.shape[0]:
            rows = train
        else:
            taken = jax.lax.dynamic_slice(order, (start,), (batch,))
            rows = train.take(taken, batch_rows)

        def loss(trained: Trained) -> tuple[jax.Array, Terms]:
            keys = jax.random.split(jax.random.fold_in(state.key, number), self.engine.graph_samples)
            terms = self.terms(trained, keys, rows, train.total, problem.allowed, problem.known)
            return -unit * (terms.likelihood - kl_weight * (terms.kl_edges + terms.kl_order)), terms

        (_, terms), gradient = jax.value_and_grad(loss, has_aux=True)(state.trained)
        updates, optimiser = self.optimiser.update(gradient, state.optimiser, state.trained)
        trained = jax.tree.map(lambda value, update: value + rate * update, state.trained, updates)
        return State(trained, optimiser, state.key), terms

    def _advance(self, state: State, stretch: Stretch, problem: Problem) -> tuple[State, Terms]:
        """Take a stretch of steps; restarts that are not active stay as they are.

        Returns the sum of the ELBO's terms since the last look, for each restart.
        """
        batch = self.batch(problem.train)

        def body(step: jax.Array, carry: tuple[State, Terms]) -> tuple[State, Terms]:
            one = partial(self._step, problem, stretch.rate, stretch.number + step, (stretch.first + step) * batch)
            moved, terms = jax.vmap(one)(carry[0], stretch.order)
            return moved, jax.tree.map(jnp.add, carry[1], terms)

        moved, total = jax.lax.fori_loop(0, stretch.steps, body, (state, stretch.sums))
        return jax.tree.map(partial(choose, stretch.active), moved, state), total

    def _validate(self, state: State, key: jax.Array, problem: Problem) -> jax.Array:
        """The loss of the validation rows."""
        batch_rows, kl_weight, unit = self._weights(problem.train)
        rows = problem.validation
        authors = self.engine.validation == "authors"
        keys = jax.random.split(key, 1 if authors else self.engine.validation_graphs)
        scaled_to = rows.total if authors else batch_rows
        terms = self.terms(state.trained, keys, rows, scaled_to, problem.allowed, problem.known)
        nodes = rows.values.shape[1]
        return -2 / nodes * terms.likelihood + unit * kl_weight * (terms.kl_edges + terms.kl_order)

    def _final_elbo(self, trained: Trained, key: jax.Array, problem: Problem) -> jax.Array:
        """The ELBO of the training rows, from many graphs: the mixture's weights hang on it."""
        keys = jax.random.split(key, FINAL_GRAPHS)
        rows = problem.train
        return jax.lax.map(
            lambda one: self.terms(one, keys, rows, rows.total, problem.allowed, problem.known).elbo, trained
        )


# Kept so that equal fits in one process compile once.
_program = lru_cache(maxsize=16)(Program)


@single_precision()
def run_straight_through(
    engine: StraightThrough,
    data: Dataset,
    *,
    model: FunctionalModel,
    prior: DagPrior,
    seed: int,
    allowed: np.ndarray | None = None,
    required: np.ndarray | None = None,
    log_odds: np.ndarray | None = None,
    units: Scaling | None = None,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
    journal: Journal = FORGETFUL,
) -> Outcome:
    """Train all restarts, and mix them.

    The host looks at the numbers between compiled chunks of about a second: progress is told, and a keyboard
    interrupt, or the ``deadline`` on the clock of ``time.monotonic``, ends the training with what is there. Every
    ``check_every`` epochs it looks at the validation rows; a restart that is not finite any more is put back to its
    last finite state and stopped. ``units`` leads from the user's units to those of ``data``, if they differ.
    ``allowed`` and ``required`` (d, d) say which edges may be and which must be, ``log_odds`` (d, d) the prior of
    single edges in place of the one probability of ``prior``. The state after the last chunk is kept in the
    ``journal``, and taken up again when the fit is resumed.
    """
    use_compilation_cache()
    started = time.perf_counter()
    scaling = Scaling.choose(data, _scaling_rule(engine, model))
    train, validation = split_rows(
        scaling.apply(data.values),
        held_out_share=engine.validation_share,
        batch_size=engine.batch_size,
        interventions=data.interventions,
    )
    edges = edge_prior(data.d, prior.edge_probability, log_odds=log_odds, allowed=allowed, required=required)
    # What is required costs nothing and is not learned.
    free = np.isfinite(edges.log_odds) & ~edges.required
    odds = None if log_odds is None else jnp.asarray(np.where(free, edges.log_odds, 0.0))
    known = Known(odds, Lift.of(edges.required))
    mesh = mesh_for(engine.restarts)
    problem = place(Problem(train, validation, jnp.asarray(free), known), mesh)
    program = _program(engine, model, prior, mesh)
    an_epoch = program.steps_an_epoch(train)
    checks = -(-engine.epochs // engine.check_every)
    steps_a_check = engine.check_every * an_epoch

    # Steps are keyed by restart and number, so that neither chunks nor devices change a number. What is drawn once for
    # all restarts uses a generator that compiles in a third of the time.
    step_keys = jax.random.split(jax.random.key(seed), engine.restarts)
    once = jax.random.key(seed, impl="unsafe_rbg")
    init_key, validation_key, elbo_key = jax.random.split(once, 3)
    shuffle = np.random.default_rng(seed)
    state = place(program.init(jax.random.split(init_key, engine.restarts), step_keys, data.d), mesh, divided())
    watch = Watch(
        state.trained,
        restarts=engine.restarts,
        patience=engine.patience,
        keep_best=engine.validation == "averaged",
    )
    pace = Pace()
    nothing = Terms(*np.asarray(jnp.zeros((3, engine.restarts))))
    taken, sums = 0, nothing
    given = fingerprint(engine, model, prior, seed, train, validation, free, odds, edges.required)
    before, order = generator_state(shuffle), np.zeros((engine.restarts, 0), dtype=np.int32)
    last = journal.recall("state", given)
    if last is not None:
        taken, sums = int(last["taken"]), Terms(*last["sums"])
        state = state._replace(
            trained=tree_like("trained", state.trained, last), optimiser=tree_like("optimiser", state.optimiser, last)
        )
        watch.restore(last)
        # The rows of the epoch at work are shuffled as they were.
        before = last["before the shuffle"]
        set_generator(shuffle, before)
        order = shuffled_rows(shuffle, train, engine.restarts)

    def kept() -> dict[str, np.ndarray]:
        return {
            "taken": np.array(taken),
            "sums": np.stack(sums),
            "before the shuffle": before,
            **tree_arrays("trained", state.trained),
            **tree_arrays("optimiser", state.optimiser),
            **watch.arrays(),
        }

    def look(steps: int) -> None:
        key = validation_key
        if engine.validation == "authors":
            key = jax.random.fold_in(validation_key, watch.checks)
        loss = np.asarray(program.validate(state, key, problem))
        watch.look(state.trained, jax.tree.map(lambda value: value.astype(np.float64) / steps, sums), loss)

    stopped = None
    try:
        while watch.checks < checks and watch.active.any():
            rate = _rate(engine, watch.checks / checks)
            while taken < steps_a_check:
                first = taken % an_epoch
                if first == 0:
                    before = generator_state(shuffle)
                    order = shuffled_rows(shuffle, train, engine.restarts)
                steps = min(pace.steps, an_epoch - first)
                number = watch.checks * steps_a_check + taken
                stretch = Stretch(watch.active, order, first, steps, number, rate, sums)
                with pace.timing(steps):
                    state, total = jax.block_until_ready(program.advance(state, stretch, problem))
                taken += steps
                sums = jax.device_get(total)
                journal.keep("state", given, kept)
                if deadline is not None and time.monotonic() > deadline:
                    raise OutOfTimeError
                if pace.is_due():
                    progress(Progress(watch.checks + taken / steps_a_check, checks, watch.describe()))
            look(taken)
            taken, sums = 0, nothing
            progress(Progress(watch.checks, checks, watch.describe()))
    except (KeyboardInterrupt, OutOfTimeError) as reason:
        if watch.checks == 0:
            if taken == 0:
                raise
            look(taken)
        stopped = "the time limit" if isinstance(reason, OutOfTimeError) else "the user"

    chosen = watch.kept()
    if engine.restarts > 1:
        elbo = np.asarray(program.final_elbo(chosen, elbo_key, problem), dtype=np.float64)
    else:  # nothing to weigh, so the last estimate of the training will do
        elbo = np.asarray(watch.last_elbo, dtype=np.float64)
    elbo = np.where(np.isfinite(elbo) & ~watch.failed, elbo, -np.inf)
    weights = _softmax(elbo) if np.isfinite(elbo).any() else np.full(engine.restarts, 1 / engine.restarts)
    law = TrainedMixture(
        dags=engine.dags,
        model=model,
        dag_params=jax.device_get(chosen.dags),
        model_params=jax.device_get(chosen.model),
        weights=weights,
        scaling=scaling if units is None else units.then(scaling),
        allowed=free,
        required=None if known.lift is None else edges.required,
    )
    diagnostics = {
        "elbo": elbo.tolist(),
        "restart_weights": weights.tolist(),
        "restart_disagreement": _disagreement(law),
        "epochs": (watch.stopped_at * engine.check_every).tolist(),
        "restarts_failed": int(watch.failed.sum()),
        "kl_weight": engine.kl_weight,
        "devices": devices_of(mesh),
        "seconds_training": pace.seconds,
        "seconds_compilation": time.perf_counter() - started - pace.seconds,
    }
    return Outcome(law, _status(watch, weights, diagnostics, stopped), diagnostics, watch.trace())


def _scaling_rule(engine: StraightThrough, model: FunctionalModel) -> ColumnScaling:
    if engine.scaling != "auto":
        return engine.scaling
    natural: dict[Noise, ColumnScaling] = {"unit": "raw", "equal": "common", "unequal": "columns"}
    return natural[model.noise]


def _rate(engine: StraightThrough, share_done: float) -> float:
    cosine = 0.5 * (1 + np.cos(np.pi * share_done))
    return engine.final_learning_rate + (1 - engine.final_learning_rate) * cosine


def _softmax(values: np.ndarray) -> np.ndarray:
    shifted = np.exp(values - values.max())
    return shifted / shifted.sum()


def _disagreement(law: TrainedMixture) -> float:
    """The largest difference in one edge's probability between two restarts that both carry weight."""
    probabilities = law.component_probabilities()[law.weights > 0.01]
    return float(np.max(probabilities.max(axis=0) - probabilities.min(axis=0)))


def _status(watch: Watch, weights: np.ndarray, diagnostics: dict[str, Any], stopped: str | None) -> Status:
    best = int(np.argmax(weights))
    if watch.failed.all():
        return Status(
            "failed",
            "Training broke down in every restart (numbers that are not finite): do not use this result. "
            "A smaller learning rate or standardised columns usually help.",
        )
    if stopped is not None:
        return Status("interrupted", f"Stopped by {stopped} after {diagnostics['epochs'][best]} epochs: not finished.")
    if watch.active[best]:
        return Status(
            "warning",
            "The validation ELBO was still rising when the epochs ran out: give it more epochs before you trust it.",
        )
    if watch.failed.any():
        return Status(
            "warning",
            f"{int(watch.failed.sum())} restarts broke down and were left out; the others converged.",
        )
    return Status(
        "ok",
        "The training converged. A variational posterior tends to be surer than it should: "
        "read 0.95 as 'likely', not as 19 in 20.",
    )
