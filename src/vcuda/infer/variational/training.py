"""Variational engine with the weights integrated out: the paper's family over DAGs, trained on exact edge gains.

q(p) = N(m_i, s_i²) over priorities, and given them an edge i -> j that the order allows (p_i < p_j) has probability
sigma(L_ij); an edge that it excludes keeps its prior, so that an arrow can still turn. With Phi_ij = P(p_i < p_j),

    ELBO = E_q[sum of local scores] - sum Phi_ij KL(sigma(L_ij) || pi_ij) - KL(q(p) || N(0, I)),

and the edge probabilities are sigma(L_ij) Phi_ij. A step draws K graphs, takes from each the gains D_ij of every edge
given the other parents (``toggles``), and then

- moves the edges along their natural gradient, L <- (1 - r) L + r (logit pi + D), on a random part of the pairs:
  edges that explain each other away would otherwise swing in step;
- moves (m, log s) by Adam along the gradient of sum Phi_ij F_ij - KL, F = b (sigma(L) D - KL_ij), with b tempered from
  almost 0 to 1: the order waits until the edges know what they would gain in either direction.

Required edges are in every graph and lift the priorities (``vcuda.dags.lifting``). The prior of the order is then that
of lifted independent priorities, which is not quite the uniform one of the other engines.

Each node has its own s_i, and Adam's steps shrink in the second half, below the distance of neighbours in the order: on
seven graphs of 50 and 100 nodes that had come out wrong, the mean AP of single restarts rose by this from .92 to .96,
and with 600 steps in place of 300 to .996. Restarts run side by side and are mixed with weights softmax(ELBO).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import expit, softmax
from scipy.special import ndtr as normal_cdf
from scipy.special import ndtri as normal_quantile

from vcuda.dags.lifting import Lift
from vcuda.errors import ConfigError
from vcuda.infer.climbing import climb_orders
from vcuda.infer.compilation import double_precision, single_precision, use_compilation_cache
from vcuda.infer.devices import devices_of, mesh_for, place
from vcuda.infer.edge_prior import EdgePrior, edge_prior
from vcuda.infer.journal import (
    FORGETFUL,
    Journal,
    fingerprint,
    generator_state,
    once,
    set_generator,
    tree_arrays,
    tree_like,
)
from vcuda.infer.orders.ladders import parents_first
from vcuda.infer.orders.top_down import top_down_order
from vcuda.infer.progress import Pace, Progress, ProgressCallback, silent
from vcuda.infer.variational.natural_steps import (
    DIVIDED_SCHEDULE,
    DIVIDED_STATE,
    OrderParams,
    Problem,
    Required,
    Schedule,
    State,
    advance,
)
from vcuda.infer.variational.toggles import Regressions, Tiers, regressions
from vcuda.models.additive import AdditiveBasisScore
from vcuda.models.interventions import InterventionalScore, kind_of, of_most_rows
from vcuda.models.scores import BGeScore, EqualNoiseScore, GramScore, LocalScore, ScoreSpec, SharedNoise
from vcuda.posterior.posterior import Status, as_sentence

SMALL = 20
LARGE = 500
# Steps at the end in which nothing moves, for the ELBO of what was learned.
STILL_STEPS = 32
# A restart that begins with an order learns its edges first; its order moves in the rest of the steps.
ORDER_WAITS = 0.4
LINEAR_PARENTS = 32
ADDITIVE_PARENTS = 5
WARN_DISAGREEMENT = 0.25
WARN_RISE = 0.01


@dataclass(frozen=True)
class Variational:
    """How the ELBO with integrated weights is climbed.

    Parameters
    ----------
    steps
        By default 600 for linear scores of more than 20 columns, and 300 otherwise.
    graph_samples
        K, the graphs drawn for each step.
    restarts
        Independent starts; by default 4 up to 20 columns and 2 above; 16 and 8 for BGe, which has more modes.
    constructed
        Whether the first restart begins with an order that is constructed from the table, where that can be done
        (equal noise); the others begin at random.
    learning_rate
        Adam's, for the order; it falls to a fiftieth in the second half.
    pairs
        Share of the pairs whose edges move in a step.
    first_rate, last_rate
        r, how far they move: from the first to the last step.
    first_temper, tempered
        b at the first step (by default .3 / n for linear and 1 / n for additive scores), and the share of the steps
        after which it is 1.
    max_parents
        Most parents of a node in a drawn graph; by default 32 for linear and 5 for additive scores. If there are
        more, the least sure are left out, and the status says so.
    """

    steps: int | None = None
    graph_samples: int = 2
    restarts: int | None = None
    constructed: bool = True
    learning_rate: float = 0.05
    pairs: float = 0.3
    first_rate: float = 0.3
    last_rate: float = 0.03
    first_temper: float | None = None
    tempered: float = 0.8
    max_parents: int | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "graph_samples", "restarts", "max_parents"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        for name in ("learning_rate", "pairs", "first_rate", "last_rate", "first_temper", "tempered"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ConfigError(f"{name} must lie above 0 and be at most 1, got {value}")


class VariationalResult(NamedTuple):
    """The posterior over DAGs as a mixture of r restarts.

    A graph of restart k: priorities N(``means[k]``, exp(``log_scale[k]``)²), both (r, d), lifted by the required edges,
    all of which it has; and each other edge i -> j with p_i < p_j present with probability
    sigmoid(``edge_logits[k, i, j]``), minus infinity where it is required or not allowed.
    ``edge_probabilities`` (d, d) are exact for the mixture with ``weights`` (r,); ``order`` (d,) is the best restart's,
    first node first. ``elbo`` (r,) bounds the log evidence of the table in the user's units from below, up to the error
    of an estimate from some 64 graphs. ``noise_variance`` is that of the best restart where all nodes share an unknown
    one, in units of the smallest column variance, and None for other scores.
    """

    edge_logits: np.ndarray
    means: np.ndarray
    log_scale: np.ndarray
    weights: np.ndarray
    edge_probabilities: np.ndarray
    elbo: np.ndarray
    order: np.ndarray
    noise_variance: float | None
    status: Status
    diagnostics: dict[str, Any]
    trace: dict[str, np.ndarray]


def run_variational(
    spec: Variational,
    score: LocalScore | SharedNoise | ScoreSpec,
    values: np.ndarray | None = None,
    *,
    edge_probability: float,
    seed: int,
    log_odds: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    required: np.ndarray | None = None,
    start_order: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
    journal: Journal = FORGETFUL,
) -> VariationalResult:
    """Train all restarts, and mix them.

    Parameters
    ----------
    spec
        How long and how many.
    score
        A prepared score, or its spec together with the table ``values`` (n, d). Linear scores (EqualNoise, BGe) and
        AdditiveBasis can be used. A shared unknown noise variance is moved to its posterior mode as the edges settle.
    edge_probability
        pi, the prior probability of an edge that the order allows.
    seed
        The same seed gives the same result on the same machine and versions.
    log_odds
        (d, d) log(pi_ij / (1 - pi_ij)) of single edges, instead of ``edge_probability``.
    allowed, required
        (d, d) booleans: what is not allowed never occurs, what is required is in every graph.
    start_order
        (d,) an order, first node first, for the first restart; in place of the constructed one.
    names
        Names of the d columns, for the status.
    progress
        Called about once a second.
    deadline
        On the clock of ``time.monotonic``: the run then ends after the current chunk and returns what there is.
    journal
        Where the state after the last chunk is kept, and taken up again when the fit is resumed.

    Notes
    -----
    An interrupt from the keyboard does the same as the deadline, once a step was taken. Time O(r K d² k²) a step for k
    parents.
    """
    use_compilation_cache()
    begun = time.perf_counter()
    prepared: Any = score if values is None else score.prepare(values)  # type: ignore[union-attr]
    if not hasattr(prepared, "nodes"):
        raise ConfigError("values, the table (n, d), must come with a score that is not prepared")
    equivalent = isinstance(kind_of(prepared), BGeScore)
    if equivalent:
        prepared = _rounded(prepared)
    nodes, table = prepared.nodes, regressions(prepared)
    prior = edge_prior(nodes, edge_probability, log_odds=log_odds, allowed=allowed, required=required)
    rng = np.random.default_rng(seed)
    restarts = spec.restarts or ((16 if equivalent else 4) if nodes <= SMALL else (8 if equivalent else 2))
    orders = _first_orders(spec, prepared, prior, start_order, rng, restarts, journal)
    tiers = _tiers(spec, table, nodes, prior)
    steps = spec.steps or (300 if nodes <= SMALL or table.block > 1 else 600)
    schedule = _schedule(spec, prepared, steps, restarts, nodes, ordered=len(orders))
    dtype = table.squares.dtype
    state = _initial(rng, prior, prepared, restarts, steps + STILL_STEPS, orders, dtype)

    pace, taken, stopped = Pace(), 0, None
    given = fingerprint(spec, seed, schedule, state, tiers)
    known = journal.recall("state", given)
    if known is not None:
        taken, state = int(known["taken"]), tree_like("state", state, known)
    with _precision(dtype):
        shared = (prepared.shape, prepared.scale) if isinstance(prepared, SharedNoise) else (1.0, 1.0)
        free = np.isfinite(prior.log_odds) & ~prior.required
        prior_logits = np.where(free, prior.log_odds, 0.0).astype(dtype)
        problem = Problem(table, prior_logits, free, spec.pairs, shared, Required.of(prior.required))
        mesh = mesh_for(restarts)
        schedule = place(jax.tree.map(lambda a: a.astype(dtype), schedule), mesh, DIVIDED_SCHEDULE)
        problem, state = place(problem, mesh), place(state, mesh, DIVIDED_STATE)
        key = jax.random.key(seed, impl="unsafe_rbg")
        try:
            while taken < steps + STILL_STEPS:
                if taken and deadline is not None and time.monotonic() > deadline:
                    stopped = "the time limit"
                    break
                more = min(pace.steps, steps + STILL_STEPS - taken)
                with pace.timing(more):
                    options = {"count": spec.graph_samples, "tiers": tiers, "mesh": mesh}
                    state = jax.block_until_ready(advance(problem, schedule, key, state, taken, more, **options))
                taken += more
                journal.keep("state", given, partial(_kept, state, taken))
                if pace.is_due():
                    progress(Progress(min(taken, steps), steps, f"ELBO {np.asarray(state.elbo)[taken - 1].max():,.1f}"))
        except KeyboardInterrupt:
            if taken == 0:
                raise
            stopped = "the user"
    result = _summarise(jax.device_get(state), free, prior, prepared, taken, steps, tiers, stopped, names)
    result.diagnostics["devices"] = devices_of(mesh)
    result.diagnostics["seconds_training"] = pace.seconds
    result.diagnostics["seconds_compilation"] = time.perf_counter() - begun - pace.seconds
    progress(Progress(min(taken, steps), steps, result.status.sentence))
    return result


def _kept(state: State, taken: int) -> dict[str, np.ndarray]:
    """The state after so many steps, as the journal holds it."""
    return {"taken": np.array(taken), **tree_arrays("state", state)}


def _rounded(score: Any) -> Any:
    """A linear score whose last digits do not depend on the units of the columns; a greedy search would follow them."""
    if isinstance(score, InterventionalScore):
        return score.with_parts([_rounded(part) for part in score.parts])
    return replace(score, gram=np.round(score.gram, 7))


def _precision(dtype: Any) -> AbstractContextManager[Any]:
    """Double precision inside where the arrays are double, single precision elsewhere."""
    return double_precision() if dtype == np.float64 else single_precision()


def _first_orders(
    spec: Variational,
    score: Any,
    prior: EdgePrior,
    given: np.ndarray | None,
    rng: np.random.Generator,
    restarts: int,
    journal: Journal,
) -> list[np.ndarray]:
    """Return the orders that the first restarts begin with; the others find theirs by tempering."""
    orders: list[np.ndarray] = []
    if given is not None:
        if not np.array_equal(np.sort(given), np.arange(score.nodes)):
            raise ConfigError(f"start_order must hold each of the columns 0 to {score.nodes - 1} once")
        orders.append(np.asarray(given))
    elif spec.constructed and isinstance(kind_of(score), EqualNoiseScore):
        known = score.at(1.0) if isinstance(score, SharedNoise) else score
        orders.append(top_down_order(of_most_rows(known), prior))
    if isinstance(kind_of(score), BGeScore):
        # Tempered restarts ended 9 to 24 nats below the evidence on four of five tables of six columns and 1,000 rows,
        # restarts that begin with an order 5 to 10. Probably because undecided arrows, each drawn for itself, make
        # colliders that the data deny.
        most = spec.max_parents or LINEAR_PARENTS
        lacking = restarts - len(orders)
        climbs = lacking * (4 if score.nodes <= SMALL else 2)

        def climbed() -> dict[str, np.ndarray]:
            found = climb_orders(score, prior, rng, count=lacking, climbs=climbs, max_parents=most)
            return {"orders": np.array(found, dtype=np.int64), "generator": generator_state(rng)}

        known_orders = once(journal, "first orders", fingerprint(rng, lacking, climbs, most), climbed)
        set_generator(rng, known_orders["generator"])
        orders += list(known_orders["orders"])
    return [_obeying(order, prior) for order in orders]


def _obeying(order: np.ndarray, prior: EdgePrior) -> np.ndarray:
    """An order (d,) changed as little as the required edges demand."""
    if not prior.required.any():
        return order
    return parents_first(order, [np.flatnonzero(column) for column in prior.required.T])


def _tiers(spec: Variational, table: Regressions, nodes: int, prior: EdgePrior) -> Tiers:
    linear = table.block == 1
    narrow, wide = (8, LINEAR_PARENTS) if linear else (3, ADDITIVE_PARENTS)
    # There must be room for all that is required.
    most = int(prior.required.sum(axis=0).max())
    narrow, wide = max(narrow, most), max(min(spec.max_parents or wide, nodes - 1), most)
    if linear and nodes - 1 <= 16:
        return Tiers(0, max(wide, 1), nodes)
    return Tiers(max(min(narrow, wide), 1), max(wide, 1), min(nodes, max(nodes // 8, 8 if linear else 3)))


def _rows(score: Any) -> int:
    kind = kind_of(score)
    return int(kind.noise.rows if isinstance(kind, AdditiveBasisScore) else kind.rows)


def _schedule(spec: Variational, score: Any, steps: int, restarts: int, nodes: int, *, ordered: int) -> Schedule:
    done = np.arange(steps) / steps
    waiting = np.maximum(0.0, 1 - done / spec.tempered)
    linear = isinstance(kind_of(score), GramScore)
    coldest = min(1.0, spec.first_temper or (0.3 if linear else 1.0) / _rows(score))
    temper = np.repeat((coldest**waiting)[:, None], restarts, axis=1)
    speed = np.repeat(spec.learning_rate * (0.02 ** np.maximum(0.0, 2 * done - 1))[:, None], restarts, axis=1)
    temper[:, :ordered] = 1.0
    speed[:, :ordered] *= 0.5 * (done >= ORDER_WAITS)[:, None]
    still = [(0, STILL_STEPS)]
    return Schedule(
        temper=np.pad(temper, [*still, (0, 0)], constant_values=1.0),
        speed=np.pad(speed, [*still, (0, 0)]),
        edge_temper=np.pad((0.01 if nodes >= LARGE else 1.0) ** waiting, still, constant_values=1.0),
        rate=np.pad(spec.first_rate * (spec.last_rate / spec.first_rate) ** done, still),
        noise=np.pad(np.where(done >= 0.6, 0.3, 0.0), still),
    )


def _initial(
    rng: np.random.Generator,
    prior: EdgePrior,
    score: Any,
    restarts: int,
    steps: int,
    orders: Sequence[np.ndarray],
    dtype: Any,
) -> State:
    nodes = score.nodes
    finite = np.isfinite(prior.log_odds)
    logits = np.where(finite, prior.log_odds, 0.0) + 0.1 * rng.standard_normal((restarts, nodes, nodes))
    means = rng.standard_normal((restarts, nodes))
    log_scale = np.full((restarts, nodes), np.log(0.5))
    if prior.required.any():
        for one in means:
            one[_obeying(np.argsort(one), prior)] = np.sort(one)
    for restart, order in enumerate(orders):
        means[restart, order] = normal_quantile((np.arange(nodes) + 0.5) / nodes)
        # About the distance of neighbours, so that an edge between them is seen in most graphs.
        log_scale[restart] = np.log(1.0 / max(nodes, 20))
    params = OrderParams(means.astype(dtype), log_scale.astype(dtype))
    nothing = jax.tree.map(np.zeros_like, params)
    known = kind_of(score).variance if isinstance(kind_of(score), EqualNoiseScore) else 1.0
    return State(
        logits=logits.astype(dtype),
        order=params,
        first_moment=nothing,
        second_moment=nothing,
        variance=np.full(restarts, known, dtype),
        elbo=np.zeros((steps, restarts), dtype),
        left_out=np.zeros((steps, restarts), np.int32),
    )


def _summarise(
    state: State,
    free: np.ndarray,
    prior: EdgePrior,
    score: Any,
    taken: int,
    steps: int,
    tiers: Tiers,
    stopped: str | None,
    names: Sequence[str] | None,
) -> VariationalResult:
    means, log_scale = (np.asarray(part, dtype=np.float64) for part in state.order)
    logits = np.where(free, np.asarray(state.logits, dtype=np.float64), -np.inf)
    each = expit(logits) * _precedences(means, log_scale, Lift.of(prior.required))
    each[:, prior.required] = 1.0
    trace = np.asarray(state.elbo[:taken], dtype=np.float64) + score.log_jacobian
    # The median, because a rare graph without a strong edge costs thousands of nats and would decide the mean.
    elbo = np.median(trace[max(0, min(steps, taken - 1)) :], axis=0)
    if isinstance(score, SharedNoise):
        elbo = elbo + [score.log_prior(float(variance)) for variance in state.variance]
    sound = np.isfinite(elbo) & np.isfinite(each).all(axis=(1, 2))
    elbo = np.where(sound, elbo, -np.inf)
    weights = softmax(elbo) if sound.any() else np.full(elbo.size, 1 / elbo.size)
    best = int(np.argmax(weights))
    probabilities = np.tensordot(weights, np.where(sound[:, None, None], each, 0.0), axes=1)
    probabilities[prior.required] = 1.0
    parents = probabilities.sum(axis=0)
    missed = np.asarray(state.left_out[:taken])[-STILL_STEPS:, best]
    counted = each[weights > 0.01]
    diagnostics: dict[str, Any] = {
        "elbo": elbo.tolist(),
        "restart_weights": weights.tolist(),
        "restart_disagreement": float(np.max(counted.max(axis=0) - counted.min(axis=0))),
        "restarts_failed": int((~sound).sum()),
        "steps": min(taken, steps),
        "elbo_rise": _late_rise(trace[: min(taken, steps), best]),
        "most_expected_parents": float(parents.max()),
        "max_parents": tiers.wide,
        "parents_left_out": float(np.mean(missed > 0)),
    }
    crowded = [int(j) for j in np.flatnonzero(parents > 0.75 * tiers.wide)] if tiers.wide < len(parents) - 1 else []
    labels = [names[j] if names is not None else str(j) for j in crowded]
    return VariationalResult(
        edge_logits=logits,
        means=means,
        log_scale=log_scale,
        weights=weights,
        edge_probabilities=probabilities,
        elbo=elbo,
        order=_obeying(np.argsort(means[best], kind="stable"), prior),
        noise_variance=float(state.variance[best]) if isinstance(score, SharedNoise) else None,
        status=_status(diagnostics, sound, labels, stopped, equivalent=isinstance(kind_of(score), BGeScore)),
        diagnostics=diagnostics,
        trace={"elbo": trace},
    )


def _precedences(means: np.ndarray, log_scale: np.ndarray, lift: Lift | None) -> np.ndarray:
    """P(i comes before j) in each restart (r, d, d)."""
    if lift is not None and np.isfinite(means).all() and np.isfinite(log_scale).all():
        return np.stack([lift.normal_precedence(*one) for one in zip(means, np.exp(log_scale), strict=True)])
    variances = np.exp(2 * log_scale)
    gaps = means[:, None, :] - means[:, :, None]
    return np.asarray(normal_cdf(gaps / np.sqrt(variances[:, None, :] + variances[:, :, None])))


def _late_rise(trace: np.ndarray) -> float:
    """How much the ELBO rose between the last two tenths of the steps, as a share of its rise over all steps."""
    tenth = len(trace) // 10
    if tenth == 0:
        return 0.0
    last, before, first = (np.median(part) for part in (trace[-tenth:], trace[-2 * tenth : -tenth], trace[:tenth]))
    return float((last - before) / max(abs(last - first), 1.0))


def _status(
    diagnostics: dict[str, Any], sound: np.ndarray, crowded: Sequence[str], stopped: str | None, *, equivalent: bool
) -> Status:
    """Turn the diagnostics into a code and a sentence; ``equivalent`` scores cannot direct every edge."""
    if not sound.any():
        return Status("failed", "Every restart broke down (numbers that are not finite): do not use this result.")
    troubles = []
    if stopped is not None:
        troubles.append(f"stopped by {stopped} after {diagnostics['steps']} steps, before the order had settled")
    if not sound.all():
        troubles.append(f"{int((~sound).sum())} restarts broke down and were left out")
    if crowded:
        shown = ", ".join(crowded[:5]) + (" and others" if len(crowded) > 5 else "")
        troubles.append(f"raise max_parents ({diagnostics['max_parents']}), which these columns came near to: {shown}")
    elif diagnostics["parents_left_out"] > 0.1:
        troubles.append("drawn graphs often had more parents than can be held; raise max_parents")
    if equivalent:
        troubles.append(
            "directions that this score cannot tell apart are only roughly shared out between the restarts; "
            "the exact and the orders engine do it better"
        )
    elif diagnostics["restart_disagreement"] > WARN_DISAGREEMENT:
        troubles.append(
            f"restarts of like ELBO differ by {diagnostics['restart_disagreement']:.2f} on an edge; run more of them"
        )
    if stopped is None and diagnostics["elbo_rise"] > WARN_RISE:
        troubles.append("the ELBO was still rising; run more steps")
    if troubles:
        return Status("interrupted" if stopped is not None else "warning", as_sentence(troubles))
    return Status(
        "ok",
        "The restarts settled. A variational posterior tends to be surer than it should: "
        "read 0.95 as 'likely', not as 19 in 20.",
    )
