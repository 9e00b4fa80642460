"""Some restarts of the variational engine on a worker, for a stretch of steps."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import numpy as np

from vcuda.infer.compilation import double_precision, single_precision, use_compilation_cache
from vcuda.infer.restarts import Members, picked, widened
from vcuda.infer.variational.edge_gains import Tiers
from vcuda.infer.variational.natural_gradient import STATE_AXES, Problem, Schedule, State, advance


class Setting(NamedTuple):
    """What does not change during a fit."""

    problem: Problem
    schedule: Schedule
    seed: int
    graph_samples: int
    tiers: Tiers


class Part(NamedTuple):
    """The restarts at ``places`` of so many, and the steps that they are to take from number ``first`` on."""

    places: np.ndarray
    state: State
    restarts: int
    first: int
    steps: int


def run_part(setting: Setting, part: Part) -> State:
    """Take the steps; JAX may be settled otherwise on the worker than where the fit runs."""
    use_compilation_cache()
    with precision_of(part.state.logits.dtype):
        state = widened(part.state, STATE_AXES, part.places, part.restarts)
        moved = advance(
            jax.device_put(setting.problem),
            jax.device_put(setting.schedule),
            steps_key(setting.seed),
            jax.device_put(state),
            Members.of(part.places, part.restarts),
            part.first,
            part.steps,
            count=setting.graph_samples,
            tiers=setting.tiers,
            apart=True,
        )
        return picked(jax.device_get(moved), STATE_AXES, part.places)


def steps_key(seed: int) -> jax.Array:
    """The key that steps are drawn by; its generator compiles in a third of the time of the usual one."""
    return jax.random.key(seed, impl="unsafe_rbg")


def precision_of(dtype: Any) -> AbstractContextManager[Any]:
    """Double precision inside where the arrays are double, single precision elsewhere."""
    return double_precision() if dtype == np.float64 else single_precision()
