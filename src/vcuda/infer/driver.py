"""The one loop around every engine and baseline: progress, time limit, interrupts, checkpoints and workers."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax

from vcuda.infer.checkpoint import NO_CHECKPOINT, Checkpointer, fingerprint, tree_arrays, tree_like
from vcuda.infer.compilation import use_compilation_cache
from vcuda.infer.engine import Engine, Info, Plan, Problem, Resources
from vcuda.infer.method import Method
from vcuda.infer.progress import TIME_LIMIT, USER, Clock, Pace, ProgressCallback, silent
from vcuda.infer.restarts import Elsewhere
from vcuda.infer.workers import SERIAL, Workers
from vcuda.posterior.posterior import Outcome


def run(
    method: Method,
    spec: Any,
    problem: Problem,
    *,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
    checkpointer: Checkpointer = NO_CHECKPOINT,
    workers: Workers = SERIAL,
) -> Outcome:
    """Advance an engine until it is done, the time is over or the user interrupts, and return its outcome.

    Parameters
    ----------
    method, spec
        The engine, an entry of ``ENGINES`` or ``BASELINES``, and its options.
    problem
        The table with its score or model, the prior, what is known of the edges, and the seed.
    progress
        Called about once a second. A KeyboardInterrupt that it raises, or that comes from the keyboard, ends the fit
        with what is done.
    deadline
        On the clock of ``time.monotonic``. The last stretch of steps is shortened so that it ends there; a single step,
        and compilation, cannot be cut short.
    checkpointer
        Where the state is stored after every stretch of steps, and taken up when the fit is resumed.
    workers
        Where restarts run if that would take long here; this changes no number.
    """
    begun = time.perf_counter()
    use_compilation_cache()
    clock = Clock(progress, deadline)
    with method.engine.precision():
        engine = method.engine(spec, problem, Resources(clock, checkpointer, workers))
        state, given = _first_state(engine, checkpointer)
        pace, info, stopped, has_steps = Pace(), None, None, False
        elsewhere = Elsewhere(workers, pace, deadline)
        try:
            while not engine.is_done(state):
                plan, used = _plan(info, clock, pace, elsewhere)
                started = time.perf_counter()
                state, info = engine.advance(state, plan)
                has_steps = has_steps or info.steps > 0
                used.note(info.steps, time.perf_counter() - started)
                if engine.stores_state:
                    checkpointer.keep("state", given, partial(tree_arrays, "state", state))
                if clock.is_late() and not engine.is_done(state):
                    stopped = TIME_LIMIT
                    break
                if info.report or pace.is_due():
                    _report(clock, info)
        except KeyboardInterrupt:
            if not engine.has_result(state):
                raise
            stopped = None if engine.is_done(state) else USER
        outcome = engine.finish(state, stopped)
    if has_steps:
        training = pace.seconds + elsewhere.seconds
        outcome.diagnostics["seconds_training"] = training
        outcome.diagnostics["seconds_compilation"] = time.perf_counter() - begun - training
    return outcome


def _first_state(engine: Engine[Any], checkpointer: Checkpointer) -> tuple[Any, str]:
    """The state to begin with, from before the fit was resumed if it was, and what a stored one must belong to."""
    state = engine.init()
    if not engine.stores_state:
        return state, ""
    given = fingerprint(engine.spec, engine.problem.fingerprint(), jax.tree.leaves(state))
    known = checkpointer.recall("state", given)
    return (state if known is None else tree_like("state", state, known)), given


def _plan(info: Info | None, clock: Clock, pace: Pace, elsewhere: Elsewhere) -> tuple[Plan, Pace]:
    """How far to go next, and whose pace it will tell: on workers where that is worth it, otherwise here."""
    if info is not None:
        steps = elsewhere.steps(info.left, restarts=info.apart)
        if steps and elsewhere.there is not None:
            plan = Plan(_in_time(steps, clock, elsewhere.there), elsewhere.workers, lambda _: _report(clock, info))
            return plan, elsewhere.there
    return Plan(_in_time(pace.steps, clock, pace)), pace


def _report(clock: Clock, info: Info) -> None:
    clock.report(info.done, info.total, info.detail if isinstance(info.detail, str) else info.detail())


def _in_time(steps: int, clock: Clock, pace: Pace) -> int:
    """As many of these steps as the time allows, and at least one."""
    left = clock.seconds_left()
    if left is None or pace.seconds_a_step is None:
        return steps
    return max(1, min(steps, int(left / pace.seconds_a_step)))
