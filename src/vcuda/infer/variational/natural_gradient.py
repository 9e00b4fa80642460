"""Compiled steps of the variational engine with integrated weights: edges, order and noise of all restarts at once.

What they do and why is told in ``training``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats.norm import pdf as normal_density
from jax.sharding import Mesh

from vcuda.dags.base import lifted_before, lifted_priorities
from vcuda.dags.lifting import Lift
from vcuda.infer.devices import WHOLE, devices_of, divide, divided, own_place
from vcuda.infer.restarts import Members
from vcuda.infer.variational.edge_gains import Tiers, toggle_graphs
from vcuda.models.regressions import Regressions

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


class Required(NamedTuple):
    """Required edges: how they lift the priorities, and all of them as ``sources`` and ``targets`` (m,), in an order in
    which every edge into a node stands before those out of it."""

    lift: Lift
    sources: Any
    targets: Any

    @classmethod
    def of(cls, edges: np.ndarray) -> Required | None:
        """From a DAG (d, d); None without edges."""
        lift = Lift.of(edges)
        if lift is None:
            return None
        sources, targets = np.nonzero(edges)
        order = np.argsort(lift.ranks[targets], kind="stable")
        return cls(lift, sources[order], targets[order])


class Problem(NamedTuple):
    """What does not change during a fit: ``pairs`` is the share of edges that move in a step, ``noise_prior`` shape and
    scale of a shared variance's inverse gamma, ``required`` the edges that must be, which are not ``allowed``."""

    regressions: Regressions
    prior_logits: Any
    allowed: Any
    pairs: float
    noise_prior: tuple[float, float]
    required: Required | None


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


def _lifted_precedence(order: OrderParams, required: Required) -> jax.Array:
    """Nearly P(i comes before j) (r, d, d) after lifting, for the gradient of the order.

    The largest of two normal variables is taken as normal with its mean and variance (Clark 1961), edge after edge, and
    lifted priorities as independent; what required edges decide is exact.
    """

    def raise_target(carry: OrderParams, edge: tuple[jax.Array, jax.Array]) -> tuple[OrderParams, None]:
        means, variances = carry.means, jnp.exp(2 * carry.log_scale)
        source, target = edge
        m1, v1, m2, v2 = means[:, target], variances[:, target], means[:, source], variances[:, source]
        spread = jnp.sqrt(v1 + v2)
        gap = (m1 - m2) / spread
        above, density = ndtr(gap), normal_density(gap)
        raised = m2 + (m1 - m2) * above + spread * density
        # Around the new mean and not around zero, so that no digits are lost.
        squares = (v1 + (m1 - raised) ** 2) * above + (v2 + (m2 - raised) ** 2) * (1 - above)
        variance = squares + (m1 + m2 - 2 * raised) * spread * density
        log_scale = 0.5 * jnp.log(jnp.maximum(variance, 0.1 * jnp.minimum(v1, v2)))
        return OrderParams(means.at[:, target].set(raised), carry.log_scale.at[:, target].set(log_scale)), None

    lifted, _ = jax.lax.scan(raise_target, order, (required.sources, required.targets))
    upwards = jnp.asarray(required.lift.upwards)
    return jnp.where(upwards, 1.0, jnp.where(upwards.T, 0.0, _precedence(lifted)))


def _order_kl(order: OrderParams) -> jax.Array:
    by_node = 0.5 * (jnp.exp(2 * order.log_scale) + order.means**2 - 1) - order.log_scale
    return jnp.sum(by_node, axis=1)


_EACH = OrderParams(0, 0)
# The axis of restarts in a state.
STATE_AXES = State(0, _EACH, _EACH, _EACH, 0, 1, 1)
# How restarts are divided among devices.
DIVIDED_STATE = jax.tree.map(divided, STATE_AXES)
DIVIDED_SCHEDULE = Schedule(divided(1), divided(1), WHOLE, WHOLE, WHOLE)  # type: ignore[arg-type]


def _step(
    problem: Problem, now: Schedule, count: int, tiers: Tiers, uniform: jax.Array, number: jax.Array, state: State
) -> State:
    """Draw ``count`` graphs of each restart, and move edges, order and noise, as the schedule says for ``now``."""
    restarts, nodes = state.order.means.shape
    chosen = uniform[:, -nodes:] < problem.pairs
    uniform = uniform[:, :-nodes].reshape(restarts, count, nodes + 1, nodes)

    present = jax.nn.sigmoid(state.logits)
    spread = jnp.exp(state.order.log_scale)[:, None] * ndtri(uniform[:, :, -1])
    priorities = state.order.means[:, None] + spread
    required = problem.required
    importance = present
    if required is None:
        before = priorities[..., :, None] < priorities[..., None, :]
        graphs = (uniform[:, :, :-1] < present[:, None]) & before & problem.allowed
    else:
        before = lifted_before(lifted_priorities(priorities, required.lift), required.lift)
        graphs = (uniform[:, :, :-1] < present[:, None]) & before & problem.allowed | required.lift.required
        # Where there are more parents than can be held, these are the last to be left out.
        importance = jnp.where(required.lift.required, 1.0, present)
    toggled, left_out = toggle_graphs(
        problem.regressions,
        graphs.reshape(-1, nodes, nodes),
        jnp.repeat(importance, count, axis=0),
        jnp.repeat(state.variance, count),
        tiers,
    )
    gains = jnp.mean(toggled.gains.reshape(restarts, count, nodes, nodes), axis=1)
    kl = _edge_kl(state.logits, problem)
    scores = jnp.mean(jnp.sum(toggled.score, axis=1).reshape(restarts, count), axis=1)
    if required is None:
        edges = jnp.sum(_precedence(state.order) * kl, axis=(1, 2))
    else:
        edges = jnp.sum(jnp.mean(before, axis=1) * kl, axis=(1, 2))
    elbo = scores - edges - _order_kl(state.order)

    worth = jnp.where(problem.allowed, present * gains - kl, 0.0) * now.temper[:, None, None]

    def precedence(order: OrderParams) -> jax.Array:
        return _precedence(order) if required is None else _lifted_precedence(order, required)

    def cost(order: OrderParams) -> jax.Array:
        return jnp.sum(_order_kl(order)) - jnp.sum(worth * precedence(order))

    gradient = jax.grad(cost)(state.order)
    first = jax.tree.map(lambda mean, new: 0.9 * mean + 0.1 * new, state.first_moment, gradient)
    second = jax.tree.map(lambda mean, new: 0.999 * mean + 0.001 * new**2, state.second_moment, gradient)
    taken = (number + 1).astype(elbo.dtype)
    pace = now.speed[:, None]
    order = jax.tree.map(
        lambda value, m, v: value - pace * m / (1 - 0.9**taken) / (jnp.sqrt(v / (1 - 0.999**taken)) + 1e-8),
        state.order,
        first,
        second,
    )

    aims = jnp.clip(problem.prior_logits + now.edge_temper * gains, -LARGEST_LOGIT, LARGEST_LOGIT)
    logits = state.logits + now.rate * chosen * (aims - state.logits)

    variance = state.variance
    if problem.regressions.weight_variance is not None:
        # An EM step: the expected squares of the noise, against its inverse-gamma prior.
        squares = jnp.mean(jnp.sum(toggled.squares, axis=1).reshape(restarts, count), axis=1)
        shape_, scale = problem.noise_prior
        best = (scale + 0.5 * squares) / (shape_ + 1 + 0.5 * problem.regressions.cells)
        variance = variance * (best / variance) ** now.noise
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


@partial(jax.jit, static_argnames=("count", "tiers", "apart", "mesh"))
def advance(
    problem: Problem,
    schedule: Schedule,
    key: jax.Array,
    state: State,
    members: Members,
    first: int,
    steps: int,
    *,
    count: int,
    tiers: Tiers,
    apart: bool = False,
    mesh: Mesh | None = None,
) -> State:
    """Take ``steps`` steps from number ``first`` on; both are ordinary arguments, so that one program serves all.

    All restarts take a step at once, and the devices of a ``mesh`` share them. Where they are taken ``apart``, one
    after the other and only those of ``members``, none depends on which others there are, in any bit.
    """

    def own(
        problem: Problem, schedule: Schedule, key: jax.Array, state: State, members: Members, first: int, steps: int
    ) -> State:
        restarts, nodes = state.order.means.shape

        def body(index: jax.Array, state: State) -> State:
            number = first + index
            # One call of the generator for all that a step needs: compiling it is a good part of what a small fit waits
            # for.
            shape = (devices_of(mesh) * restarts, count * (nodes + 1) + nodes, nodes)
            uniform = jax.random.uniform(jax.random.fold_in(key, number), shape, jnp.float32, minval=1e-7)
            if mesh is not None:
                # Those of all restarts are drawn on each device, so that they are the same however many there are.
                uniform = jax.lax.dynamic_slice_in_dim(uniform, own_place() * restarts, restarts)
            now = jax.tree.map(lambda series: series[number], schedule)
            if not apart:
                return _step(problem, now, count, tiers, uniform, number, state)

            def one(member: jax.Array, state: State) -> State:
                at = partial(jax.lax.dynamic_slice_in_dim, start_index=members.places[member], slice_size=1)
                alone = now._replace(temper=at(now.temper), speed=at(now.speed))
                mine = jax.tree.map(lambda array, axis: at(array, axis=axis), state, STATE_AXES)
                moved = _step(problem, alone, count, tiers, at(uniform), number, mine)
                return jax.tree.map(
                    lambda array, new, axis: jax.lax.dynamic_update_slice_in_dim(
                        array, new, members.places[member], axis
                    ),
                    state,
                    moved,
                    STATE_AXES,
                )

            return jax.lax.fori_loop(0, members.size, one, state)

        return jax.lax.fori_loop(0, steps, body, state)

    takes = (WHOLE, DIVIDED_SCHEDULE, WHOLE, DIVIDED_STATE, WHOLE, WHOLE, WHOLE)
    return divide(own, mesh, takes, DIVIDED_STATE)(problem, schedule, key, state, members, first, steps)
