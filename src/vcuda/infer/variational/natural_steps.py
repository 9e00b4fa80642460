"""Compiled steps of the variational engine with integrated weights: edges, order and noise of all restarts at once.

What they do and why is told in ``collapsed``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri

from vcuda.infer.variational.toggles import Regressions, Tiers, toggle_graphs

# Logits beyond this are certain for every purpose, and slow to come back from.
LARGEST_LOGIT = 8.0


class OrderParams(NamedTuple):
    """Means and log standard deviations of the priorities, each (r, d)."""

    means: Any
    log_scale: Any


class State(NamedTuple):
    """All restarts between two steps; ``elbo`` and ``left_out`` (steps, r) are written as the steps go."""

    logits: Any
    order: OrderParams
    first_moment: OrderParams
    second_moment: OrderParams
    variance: Any
    elbo: Any
    left_out: Any


class Schedule(NamedTuple):
    """What changes from step to step: of the order the ``temper`` and the learning rate ``speed`` (steps, r); of the
    edges ``edge_temper`` and ``rate``, and the ``noise`` variance's rate, each (steps,)."""

    temper: np.ndarray
    speed: np.ndarray
    edge_temper: np.ndarray
    rate: np.ndarray
    noise: np.ndarray


class Problem(NamedTuple):
    """What does not change during a fit: ``pairs`` is the share of edges that move in a step, ``noise_prior`` shape and
    scale of a shared variance's inverse gamma."""

    regressions: Regressions
    prior_logits: Any
    allowed: Any
    pairs: float
    noise_prior: tuple[float, float]


def _edge_kl(logits: jax.Array, problem: Problem) -> jax.Array:
    present = jax.nn.sigmoid(logits)
    log_odds, prior = jax.nn.log_sigmoid, problem.prior_logits
    kl = present * (log_odds(logits) - log_odds(prior)) + (1 - present) * (log_odds(-logits) - log_odds(-prior))
    return jnp.where(problem.allowed, kl, 0.0)


def _precedence(order: OrderParams) -> jax.Array:
    """Phi (r, d, d): the probability that i comes before j."""
    variances = jnp.exp(2 * order.log_scale)
    gaps = order.means[:, None, :] - order.means[:, :, None]
    return ndtr(gaps / jnp.sqrt(variances[:, None, :] + variances[:, :, None]))


def _order_kl(order: OrderParams) -> jax.Array:
    by_node = 0.5 * (jnp.exp(2 * order.log_scale) + order.means**2 - 1) - order.log_scale
    return jnp.sum(by_node, axis=1)


def _step(
    problem: Problem, schedule: Schedule, count: int, tiers: Tiers, key: jax.Array, number: jax.Array, state: State
) -> State:
    """Draw ``count`` graphs of each restart, and move edges, order and noise."""
    restarts, nodes = state.order.means.shape
    # One call of the generator for all that a step needs: compiling it is a good part of what a small fit waits for.
    shape = (restarts, count * (nodes + 1) + nodes, nodes)
    uniform = jax.random.uniform(jax.random.fold_in(key, number), shape, jnp.float32, minval=1e-7)
    chosen = uniform[:, -nodes:] < problem.pairs
    uniform = uniform[:, :-nodes].reshape(restarts, count, nodes + 1, nodes)

    present = jax.nn.sigmoid(state.logits)
    spread = jnp.exp(state.order.log_scale)[:, None] * ndtri(uniform[:, :, -1])
    priorities = state.order.means[:, None] + spread
    before = priorities[..., :, None] < priorities[..., None, :]
    graphs = (uniform[:, :, :-1] < present[:, None]) & before & problem.allowed
    toggled, left_out = toggle_graphs(
        problem.regressions,
        graphs.reshape(-1, nodes, nodes),
        jnp.repeat(present, count, axis=0),
        jnp.repeat(state.variance, count),
        tiers,
    )
    gains = jnp.mean(toggled.gains.reshape(restarts, count, nodes, nodes), axis=1)
    kl = _edge_kl(state.logits, problem)
    scores = jnp.mean(jnp.sum(toggled.score, axis=1).reshape(restarts, count), axis=1)
    elbo = scores - jnp.sum(_precedence(state.order) * kl, axis=(1, 2)) - _order_kl(state.order)

    worth = jnp.where(problem.allowed, present * gains - kl, 0.0) * schedule.temper[number][:, None, None]
    gradient = jax.grad(lambda order: jnp.sum(_order_kl(order)) - jnp.sum(worth * _precedence(order)))(state.order)
    first = jax.tree.map(lambda mean, new: 0.9 * mean + 0.1 * new, state.first_moment, gradient)
    second = jax.tree.map(lambda mean, new: 0.999 * mean + 0.001 * new**2, state.second_moment, gradient)
    taken = (number + 1).astype(elbo.dtype)
    pace = schedule.speed[number][:, None]
    order = jax.tree.map(
        lambda value, m, v: value - pace * m / (1 - 0.9**taken) / (jnp.sqrt(v / (1 - 0.999**taken)) + 1e-8),
        state.order,
        first,
        second,
    )

    aims = jnp.clip(problem.prior_logits + schedule.edge_temper[number] * gains, -LARGEST_LOGIT, LARGEST_LOGIT)
    logits = state.logits + schedule.rate[number] * chosen * (aims - state.logits)

    variance = state.variance
    if problem.regressions.weight_variance is not None:
        # An EM step: the expected squares of the noise, against its inverse-gamma prior.
        squares = jnp.mean(jnp.sum(toggled.squares, axis=1).reshape(restarts, count), axis=1)
        shape_, scale = problem.noise_prior
        best = (scale + 0.5 * squares) / (shape_ + 1 + 0.5 * problem.regressions.evidence.rows * nodes)
        variance = variance * (best / variance) ** schedule.noise[number]
    most = jnp.max(left_out.reshape(restarts, -1), axis=1).astype(state.left_out.dtype)
    return State(
        logits,
        order,
        first,
        second,
        variance,
        state.elbo.at[number].set(elbo),
        state.left_out.at[number].set(most),
    )


@partial(jax.jit, static_argnames=("count", "tiers"))
def advance(
    problem: Problem,
    schedule: Schedule,
    key: jax.Array,
    state: State,
    first: int,
    steps: int,
    *,
    count: int,
    tiers: Tiers,
) -> State:
    """Take ``steps`` steps from number ``first`` on; both are ordinary arguments, so that one program serves all."""

    def body(index: jax.Array, state: State) -> State:
        return _step(problem, schedule, count, tiers, key, first + index, state)

    return jax.lax.fori_loop(0, steps, body, state)
