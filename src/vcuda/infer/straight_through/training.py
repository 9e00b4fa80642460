"""The paper's engine: a distribution over DAGs and the functions of all nodes, trained together on the ELBO."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.dags.base import DagPrior
from vcuda.dags.lifting import Lift
from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling
from vcuda.infer.checkpoint import (
    NO_CHECKPOINT,
    Checkpointer,
    fingerprint,
    generator_state,
    set_generator,
    tree_arrays,
    tree_like,
)
from vcuda.infer.compilation import single_precision, use_compilation_cache
from vcuda.infer.devices import devices_of, divided, mesh_for, place
from vcuda.infer.edge_prior import EdgePrior, edge_prior
from vcuda.infer.progress import Pace, Progress, ProgressCallback, silent
from vcuda.infer.restarts import Elsewhere, Members, can_be_apart, picked, run_in_parts
from vcuda.infer.straight_through.early_stopping import EarlyStopping
from vcuda.infer.straight_through.elbo import Known, Terms, shuffled_rows, split_rows
from vcuda.infer.straight_through.parts import Moving, Part, Setting, restart_axes, run_part, steps_keys
from vcuda.infer.straight_through.program import Problem, State, Stretch, foreseen_seconds, program_for
from vcuda.infer.straight_through.settings import StraightThrough, rate_at, scaling_rule
from vcuda.infer.workers import SERIAL, WORTH_SECONDS, Workers
from vcuda.models.functional.base import FunctionalModel
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.trained import TrainedMixture


class OutOfTimeError(Exception):
    """The deadline has passed; it does not leave this module."""


@single_precision()
def run_straight_through(
    engine: StraightThrough,
    data: Dataset,
    *,
    model: FunctionalModel,
    prior: DagPrior,
    seed: int,
    edges: EdgePrior | None = None,
    units: Scaling | None = None,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
    checkpointer: Checkpointer = NO_CHECKPOINT,
    workers: Workers = SERIAL,
) -> Outcome:
    """Train all restarts, and mix them.

    The host looks at the numbers between compiled chunks of about a second: progress is told, and a keyboard
    interrupt, or the ``deadline`` on the clock of ``time.monotonic``, ends the training with what is there. Every
    ``check_every`` epochs it looks at the validation rows; a restart that is not finite any more is put back to its
    last finite state and stopped. ``units`` leads from the user's units to those of ``data``, if they differ.
    ``edges`` is the prior of every edge, by default the one probability of ``prior`` for all. The state after the last
    chunk is kept in the ``checkpointer``, and taken up again when the fit is resumed. Restarts are trained on the
    ``workers`` if that would take long here.
    """
    use_compilation_cache()
    started = time.perf_counter()
    scaling = Scaling.choose(data, scaling_rule(engine, model))
    train, validation = split_rows(
        scaling.apply(data.values),
        held_out_share=engine.validation_share,
        batch_size=engine.batch_size,
        interventions=data.interventions,
    )
    if edges is None:
        edges = edge_prior(data.d, prior.edge_probability)
    # What is required costs nothing and is not learned.
    free = edges.free
    odds = None if edges.edge_probability is not None else jnp.asarray(np.where(free, edges.log_odds, 0.0))
    known = Known(odds, Lift.of(edges.required))
    mesh = mesh_for(engine.restarts)
    setting = Setting(engine, model, prior, seed, Problem(train, validation, jnp.asarray(free), known))
    problem = place(setting.problem, mesh)
    program = program_for(engine, model, prior, mesh)
    an_epoch = program.steps_an_epoch(train)
    checks = -(-engine.epochs // engine.check_every)
    steps_a_check = engine.check_every * an_epoch

    # Steps are keyed by restart and number, so that neither chunks nor devices change a number. What is drawn once for
    # all restarts uses a generator that compiles in a third of the time.
    step_keys = steps_keys(seed, engine.restarts)
    cached = jax.random.key(seed, impl="unsafe_rbg")
    init_key, validation_key, elbo_key = jax.random.split(cached, 3)
    shuffle = np.random.default_rng(seed)
    state = place(program.init(jax.random.split(init_key, engine.restarts), step_keys, data.d), mesh, divided())
    watch = EarlyStopping(
        state.trained,
        restarts=engine.restarts,
        patience=engine.patience,
        keep_best=engine.validation == "averaged",
    )
    # One restart after the other takes 1.1 to 1.2 times as long as all at once (MLPs of 30 and 60 columns), but those
    # that have stopped take none, and who runs which changes no bit.
    an_epoch_seconds = an_epoch * foreseen_seconds(program, state.trained, train)
    apart = can_be_apart(engine.restarts, mesh) and engine.epochs * an_epoch_seconds > WORTH_SECONDS
    pace = Pace()
    elsewhere = Elsewhere(workers if apart else SERIAL, pace, deadline)
    nothing = Terms(*np.asarray(jnp.zeros((3, engine.restarts))))
    taken, sums = 0, nothing
    given = fingerprint(engine, model, prior, seed, train, validation, free, odds, edges.required)
    before, order = generator_state(shuffle), np.zeros((engine.restarts, 0), dtype=np.int32)
    last = checkpointer.recall("state", given)
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

    def next_stretches(steps: int) -> list[Stretch]:
        """So many steps, epoch by epoch."""
        nonlocal before, order
        found, at = [], taken
        while at < taken + steps:
            first = at % an_epoch
            if first == 0:
                before = generator_state(shuffle)
                order = shuffled_rows(shuffle, train, engine.restarts)
            some = min(taken + steps - at, an_epoch - first)
            number = watch.checks * steps_a_check + at
            found.append(Stretch(watch.active, order, first, some, number, rate, sums))
            at += some
        return found

    def tell(share: float = 0.0) -> None:
        progress(Progress(watch.checks + taken / steps_a_check, checks, watch.describe()))

    def moved(stretch: Stretch) -> tuple[State, Terms]:
        if not apart:
            return jax.block_until_ready(program.advance(state, stretch, problem))
        members = Members.of(np.flatnonzero(watch.active), engine.restarts)
        return jax.block_until_ready(program.advance_apart(state, stretch, members, problem))

    def moved_elsewhere(stretches: list[Stretch]) -> tuple[State, Terms]:
        moving = Moving(state.trained, state.optimiser, sums)

        def part(places: np.ndarray) -> Part:
            own = [stretch._replace(order=stretch.order[places]) for stretch in stretches]
            return Part(places, picked(moving, restart_axes(moving), places), own)

        going = np.flatnonzero(watch.active)
        found = run_in_parts(
            workers, run_part, moving, restart_axes(moving), places=going, part=part, shared=setting, on_progress=tell
        )
        return state._replace(trained=place(found.trained, None), optimiser=place(found.optimiser, None)), found.sums

    stopped = None
    try:
        while watch.checks < checks and watch.active.any():
            rate = rate_at(engine, watch.checks / checks)
            while taken < steps_a_check:
                left = (checks - watch.checks) * steps_a_check - taken
                steps = min(elsewhere.steps(left, restarts=int(watch.active.sum())), steps_a_check - taken)
                if steps:
                    stretches = next_stretches(steps)
                    with elsewhere.timing(steps):
                        state, total = moved_elsewhere(stretches)
                else:
                    steps = min(pace.steps, an_epoch - taken % an_epoch)
                    (stretch,) = next_stretches(steps)
                    with pace.timing(steps):
                        state, total = moved(stretch)
                taken += steps
                sums = jax.device_get(total)
                checkpointer.keep("state", given, kept)
                if deadline is not None and time.monotonic() > deadline:
                    raise OutOfTimeError
                if pace.is_due():
                    tell()
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
    graph_posterior = TrainedMixture(
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
        "restart_disagreement": _disagreement(graph_posterior),
        "epochs": (watch.stopped_at * engine.check_every).tolist(),
        "restarts_failed": int(watch.failed.sum()),
        "kl_weight": engine.kl_weight,
        "devices": devices_of(mesh),
        "seconds_training": pace.seconds + elsewhere.seconds,
        "seconds_compilation": time.perf_counter() - started - pace.seconds - elsewhere.seconds,
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
