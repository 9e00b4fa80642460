"""Where restarts begin: with orders that the table suggests, or at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from scipy.special import ndtri as normal_quantile

from vcuda.infer.checkpoint import Checkpointer, cached, fingerprint, generator_state, set_generator
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.hill_climbing import climb_orders
from vcuda.infer.orders.ladders import parents_first
from vcuda.infer.progress import always
from vcuda.infer.variational.natural_gradient import OrderParams, State
from vcuda.infer.variational.settings import LINEAR_PARENTS, SMALL, Variational
from vcuda.models.protocol import LocalScore


def first_orders(
    spec: Variational,
    score: LocalScore,
    prior: EdgePrior,
    rng: np.random.Generator,
    restarts: int,
    checkpointer: Checkpointer,
    go_on: Callable[[], bool] = always,
) -> list[np.ndarray]:
    """Return the orders that the first restarts begin with; the others find theirs by tempering.

    There are fewer where ``go_on`` says no (time is short).
    """
    orders: list[np.ndarray] = []
    if spec.constructed and (order := score.start_order(prior.log_odds, go_on=go_on)) is not None:
        orders.append(order)
    if any(part.score_equivalent for part in score.parts):
        # Tempered restarts ended 9 to 24 nats below the evidence on four of five tables of six columns and 1,000 rows,
        # restarts that begin with an order 5 to 10. Probably because undecided arrows, each drawn for itself, make
        # colliders that the data deny.
        most = spec.max_parents or LINEAR_PARENTS
        lacking = restarts - len(orders)
        climbs = lacking * (4 if score.nodes <= SMALL else 2)

        def climbed() -> dict[str, np.ndarray]:
            found = climb_orders(score, prior, rng, count=lacking, climbs=climbs, max_parents=most, go_on=go_on)
            return {"orders": np.array(found, dtype=np.int64), "generator": generator_state(rng)}

        known_orders = cached(
            checkpointer, "first orders", fingerprint(rng, lacking, climbs, most), climbed, complete=go_on
        )
        set_generator(rng, known_orders["generator"])
        orders += list(known_orders["orders"])
    return [obeying(order, prior) for order in orders]


def obeying(order: np.ndarray, prior: EdgePrior) -> np.ndarray:
    """An order (d,) changed as little as the required edges demand."""
    if not prior.required.any():
        return order
    return parents_first(order, prior.required_parents())


def initial_state(
    rng: np.random.Generator,
    prior: EdgePrior,
    score: LocalScore,
    restarts: int,
    steps: int,
    orders: Sequence[np.ndarray],
    dtype: Any,
) -> State:
    """The state before the first step; the first restarts begin with these orders."""
    nodes = score.nodes
    finite = np.isfinite(prior.log_odds)
    logits = np.where(finite, prior.log_odds, 0.0) + 0.1 * rng.standard_normal((restarts, nodes, nodes))
    means = rng.standard_normal((restarts, nodes))
    log_scale = np.full((restarts, nodes), np.log(0.5))
    if prior.required.any():
        for one in means:
            one[obeying(np.argsort(one), prior)] = np.sort(one)
    for restart, order in enumerate(orders):
        means[restart, order] = normal_quantile((np.arange(nodes) + 0.5) / nodes)
        # About the distance of neighbours, so that an edge between them is seen in most graphs.
        log_scale[restart] = np.log(1.0 / max(nodes, 20))
    params = OrderParams(means.astype(dtype), log_scale.astype(dtype))
    nothing = jax.tree.map(np.zeros_like, params)
    return State(
        logits=logits.astype(dtype),
        order=params,
        first_moment=nothing,
        second_moment=nothing,
        variance=np.full(restarts, score.known_variance, dtype),
        elbo=np.zeros((steps, restarts), dtype),
        left_out=np.zeros((steps, restarts), np.int32),
    )
