"""Some restarts of the paper's engine on a worker, for some stretches of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from vcuda.dags.base import DagPrior
from vcuda.infer.compilation import single_precision, use_compilation_cache
from vcuda.infer.restarts import Members, picked, widened
from vcuda.infer.straight_through.elbo import Terms, Trained
from vcuda.infer.straight_through.program import Problem, State, Stretch, program_for
from vcuda.infer.straight_through.settings import StraightThrough
from vcuda.models.functional.base import FunctionalModel


class Setting(NamedTuple):
    """What does not change during a fit."""

    engine: StraightThrough
    model: FunctionalModel
    prior: DagPrior
    seed: int
    problem: Problem


class Moving(NamedTuple):
    """What steps change, of all restarts or of some."""

    trained: Trained
    optimiser: Any
    sums: Terms


class Part(NamedTuple):
    """The restarts at ``places``, and the steps that they are to take; the stretches hold the ``order`` of their rows
    only."""

    places: np.ndarray
    moving: Moving
    stretches: Sequence[Stretch]


@single_precision()
def run_part(setting: Setting, part: Part) -> Moving:
    """Take the steps; JAX may be settled otherwise on the worker than where the fit runs."""
    use_compilation_cache()
    restarts, places = setting.engine.restarts, part.places
    program = program_for(setting.engine, setting.model, setting.prior, None)
    problem = jax.device_put(setting.problem)
    moving = widened(part.moving, restart_axes(part.moving), places, restarts)
    trained, optimiser, sums = moving
    state = State(jax.device_put(trained), jax.device_put(optimiser), steps_keys(setting.seed, restarts))
    for stretch in part.stretches:
        now = stretch._replace(order=widened(stretch.order, 0, places, restarts), sums=sums)
        state, sums = program.advance_apart(state, now, Members.of(places, restarts), problem)
    found = Moving(*jax.device_get((state.trained, state.optimiser, sums)))
    return picked(found, restart_axes(found), places)


def restart_axes(tree: Any) -> Any:
    """The first axis is that of restarts everywhere."""
    return jax.tree.map(lambda _: 0, tree)


def steps_keys(seed: int, restarts: int) -> jax.Array:
    """A key for the steps of each restart."""
    return jax.random.split(jax.random.key(seed), restarts)
