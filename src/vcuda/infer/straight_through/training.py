"""The paper's engine: a distribution over DAGs and the functions of all nodes, trained together on the ELBO."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.dags.lifting import Lift
from vcuda.data.scaling import Scaling
from vcuda.infer.checkpoint import LastDraw, generator_state
from vcuda.infer.compilation import single_precision
from vcuda.infer.devices import devices_of, divided, mesh_for, place
from vcuda.infer.engine import Engine, Info, Plan, Resources, interrupted
from vcuda.infer.engine import Problem as Asked
from vcuda.infer.restarts import Members, can_be_apart, picked, run_in_parts
from vcuda.infer.straight_through.early_stopping import EarlyStopping
from vcuda.infer.straight_through.elbo import Known, Terms, Trained, shuffled_rows, split_rows
from vcuda.infer.straight_through.parts import Moving, Part, Setting, restart_axes, run_part, steps_keys
from vcuda.infer.straight_through.program import Problem, State, Stretch, foreseen_seconds, program_for
from vcuda.infer.straight_through.settings import StraightThrough, rate_at, scaling_rule
from vcuda.infer.workers import WORTH_SECONDS
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.trained import TrainedMixture


class TrainingState(NamedTuple):
    """All restarts between two chunks of steps.

    ``sums`` are the terms of the ELBO added up over the steps ``taken`` since the last look at the validation rows, and
    ``shuffle`` is the generator as it was before the rows of the epoch at work were shuffled.
    """

    trained: Trained
    optimiser: Any
    sums: Terms
    taken: int
    shuffle: np.ndarray
    watch: EarlyStopping


class Training(Engine[TrainingState]):
    """Train all restarts by stochastic gradients of the ELBO (Eq. 9 of the paper), and mix them.

    Every ``check_every`` epochs the validation rows are looked at; a restart that is not finite any more goes back to
    its last finite state and stops. Steps are keyed by restart and number, so that neither chunks, devices nor workers
    change a number.
    """

    def __init__(self, spec: StraightThrough, problem: Asked, resources: Resources) -> None:
        super().__init__(spec, problem, resources)
        data, model, prior = problem.rows, problem.model, problem.prior
        assert model is not None
        self.model = model
        self.scaling = Scaling.choose(data, scaling_rule(spec, model))
        train, validation = split_rows(
            self.scaling.apply(data.values),
            held_out_share=spec.validation_share,
            batch_size=spec.batch_size,
            interventions=data.interventions,
        )
        edges = problem.edge_prior()
        # What is required costs nothing and is not learned.
        self.free = edges.free
        odds = None if edges.edge_probability is not None else jnp.asarray(np.where(self.free, edges.log_odds, 0.0))
        known = Known(odds, Lift.of(edges.required))
        self.required = None if known.lift is None else edges.required
        self.mesh = mesh_for(spec.restarts)
        self.setting = Setting(
            spec, model, prior, problem.seed, Problem(train, validation, jnp.asarray(self.free), known)
        )
        self.rows = place(self.setting.problem, self.mesh)
        self.program = program_for(spec, model, prior, self.mesh)
        self.an_epoch = self.program.steps_an_epoch(train)
        self.checks = -(-spec.epochs // spec.check_every)
        self.steps_a_check = spec.check_every * self.an_epoch
        # What is drawn once for all restarts uses a generator that compiles in a third of the time.
        drawn_once = jax.random.key(problem.seed, impl="unsafe_rbg")
        self.init_key, self.validation_key, self.elbo_key = jax.random.split(drawn_once, 3)
        self.orders = LastDraw[np.ndarray]()

    @staticmethod
    def precision() -> AbstractContextManager[Any]:
        return single_precision()

    def init(self) -> TrainingState:
        spec, seed = self.spec, self.problem.seed
        keys = jax.random.split(self.init_key, spec.restarts)
        start = self.program.init(keys, steps_keys(seed, spec.restarts), self.problem.table.d)
        first = place(start, self.mesh, divided())
        self.step_keys = first.key
        # One restart after the other takes 1.1 to 1.2 times as long as all at once (MLPs of 30 and 60 columns), but
        # those that have stopped take none, and who runs which changes no bit.
        seconds = spec.epochs * self.an_epoch * foreseen_seconds(self.program, first.trained, self.rows.train)
        self.apart = can_be_apart(spec.restarts, self.mesh) and seconds > WORTH_SECONDS
        return TrainingState(
            trained=first.trained,
            optimiser=first.optimiser,
            sums=self._no_sums(),
            taken=0,
            shuffle=generator_state(np.random.default_rng(seed)),
            watch=EarlyStopping.start(first.trained, spec.restarts),
        )

    def is_done(self, state: TrainingState) -> bool:
        return state.watch.checks >= self.checks or not state.watch.active.any()

    def has_result(self, state: TrainingState) -> bool:
        return state.watch.checks > 0 or state.taken > 0

    def advance(self, state: TrainingState, plan: Plan) -> tuple[TrainingState, Info]:
        """Some steps of all active restarts, at most to the end of the epoch; or a look, where one is due."""
        if state.taken == self.steps_a_check:
            looked = self._look(state)
            return looked, self._info(looked, 0)._replace(report=True)
        if plan.workers.count > 1:
            steps = min(plan.steps, self.steps_a_check - state.taken)
            stretches, shuffle = self._stretches(state, steps)
            trained, optimiser, sums = self._moved_elsewhere(state, stretches, plan)
        else:
            steps = min(plan.steps, self.an_epoch - state.taken % self.an_epoch)
            (stretch,), shuffle = self._stretches(state, steps)
            moved, total = self._moved(state, stretch)
            trained, optimiser, sums = moved.trained, moved.optimiser, jax.device_get(total)
        later = TrainingState(trained, optimiser, sums, state.taken + steps, shuffle, state.watch)
        return later, self._info(later, steps)

    def _info(self, state: TrainingState, steps: int) -> Info:
        watch, share = state.watch, state.taken / self.steps_a_check
        left = (self.checks - watch.checks) * self.steps_a_check - state.taken
        apart = int(watch.active.sum()) if self.apart else 1
        return Info(steps, watch.checks + share, self.checks, watch.describe, apart=apart, left=left)

    def _no_sums(self) -> Terms:
        return Terms(*np.zeros((len(Terms._fields), self.spec.restarts), dtype=np.float32))

    def _program_state(self, state: TrainingState) -> State:
        return State(state.trained, state.optimiser, self.step_keys)

    def _look(self, state: TrainingState) -> TrainingState:
        """Judge all restarts by the validation rows."""
        spec, watch = self.spec, state.watch
        key = self.validation_key
        if spec.validation == "authors":
            key = jax.random.fold_in(key, watch.checks)
        loss = np.asarray(self.program.validate(self._program_state(state), key, self.rows))
        mean = jax.tree.map(lambda value: value.astype(np.float64) / state.taken, state.sums)
        looked = watch.look(state.trained, mean, loss, patience=spec.patience, keep_best=spec.validation == "averaged")
        return state._replace(watch=looked, taken=0, sums=self._no_sums())

    def _stretches(self, state: TrainingState, steps: int) -> tuple[list[Stretch], np.ndarray]:
        """So many steps, epoch by epoch, and the generator for the shuffle of the epoch after them."""
        watch, at, shuffle = state.watch, state.taken, state.shuffle
        rate = rate_at(self.spec, watch.checks / self.checks)
        found = []
        while at < state.taken + steps:
            first = at % self.an_epoch
            order, after = self.orders.of(shuffle, self._shuffled)
            some = min(state.taken + steps - at, self.an_epoch - first)
            number = watch.checks * self.steps_a_check + at
            found.append(Stretch(watch.active, order, first, some, number, rate, state.sums))
            at += some
            if at % self.an_epoch == 0:
                shuffle = after
        return found, shuffle

    def _shuffled(self, rng: np.random.Generator) -> np.ndarray:
        """The rows of an epoch, in an order for each restart."""
        return shuffled_rows(rng, self.rows.train, self.spec.restarts)

    def _moved(self, state: TrainingState, stretch: Stretch) -> tuple[State, Terms]:
        start = self._program_state(state)
        if not self.apart:
            return jax.block_until_ready(self.program.advance(start, stretch, self.rows))
        members = Members.of(np.flatnonzero(stretch.active), self.spec.restarts)
        return jax.block_until_ready(self.program.advance_apart(start, stretch, members, self.rows))

    def _moved_elsewhere(self, state: TrainingState, stretches: list[Stretch], plan: Plan) -> Moving:
        moving = Moving(state.trained, state.optimiser, state.sums)

        def part(places: np.ndarray) -> Part:
            own = [stretch._replace(order=stretch.order[places]) for stretch in stretches]
            return Part(places, picked(moving, restart_axes(moving), places), own)

        found = run_in_parts(
            plan.workers,
            run_part,
            moving,
            restart_axes(moving),
            places=np.flatnonzero(state.watch.active),
            part=part,
            shared=self.setting,
            on_progress=plan.on_progress,
        )
        return Moving(place(found.trained, None), place(found.optimiser, None), found.sums)

    def finish(self, state: TrainingState, stopped: str | None) -> Outcome:
        spec = self.spec
        watch = state.watch if state.watch.checks else self._look(state).watch
        if spec.restarts > 1:
            elbo = np.asarray(self.program.final_elbo(watch.kept, self.elbo_key, self.rows), dtype=np.float64)
        else:  # nothing to weigh, so the last estimate of the training will do
            elbo = np.asarray(watch.last_elbo, dtype=np.float64)
        elbo = np.where(np.isfinite(elbo) & ~watch.failed, elbo, -np.inf)
        weights = _softmax(elbo) if np.isfinite(elbo).any() else np.full(spec.restarts, 1 / spec.restarts)
        units = self.problem.units
        graph_posterior = TrainedMixture(
            dags=spec.dags,
            model=self.model,
            dag_params=jax.device_get(watch.kept.dags),
            model_params=jax.device_get(watch.kept.model),
            weights=weights,
            scaling=self.scaling if units is None else units.then(self.scaling),
            allowed=self.free,
            required=self.required,
        )
        diagnostics = {
            "elbo": elbo.tolist(),
            "restart_weights": weights.tolist(),
            "restart_disagreement": _disagreement(graph_posterior),
            "epochs": (watch.stopped_at * spec.check_every).tolist(),
            "restarts_failed": int(watch.failed.sum()),
            "kl_weight": spec.kl_weight,
            "devices": devices_of(self.mesh),
        }
        return Outcome(graph_posterior, _status(watch, weights, diagnostics, stopped), diagnostics, watch.trace())


def _softmax(values: np.ndarray) -> np.ndarray:
    shifted = np.exp(values - values.max())
    return shifted / shifted.sum()


def _disagreement(graph_posterior: TrainedMixture) -> float:
    """The largest difference in one edge's probability between two restarts that both carry weight."""
    probabilities = graph_posterior.component_probabilities()[graph_posterior.weights > 0.01]
    return float(np.max(probabilities.max(axis=0) - probabilities.min(axis=0)))


def _status(watch: EarlyStopping, weights: np.ndarray, diagnostics: dict[str, Any], stopped: str | None) -> Status:
    best = int(np.argmax(weights))
    if watch.failed.all():
        return Status(
            "failed",
            "Training broke down in every restart (numbers that are not finite): do not use this result. "
            "A smaller learning rate or standardised columns usually help.",
        )
    early = interrupted(stopped, f"{diagnostics['epochs'][best]} epochs")
    if early is not None:
        return early
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
