"""What trained restarts say together: the mixture of them, its edge probabilities, and whether to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from scipy.special import ndtr as normal_cdf

from vcuda.dags.lifting import Lift
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.scored import ScoredTable
from vcuda.infer.variational.edge_gains import Tiers
from vcuda.infer.variational.natural_gradient import State
from vcuda.infer.variational.settings import STILL_STEPS
from vcuda.models.protocol import LocalScore
from vcuda.posterior.mixture import OrderMixture
from vcuda.posterior.posterior import Outcome, Status, as_sentence

WARN_DISAGREEMENT = 0.25
WARN_RISE = 0.01


def mixed(
    state: State,
    free: np.ndarray,
    prior: EdgePrior,
    score: LocalScore,
    table: ScoredTable,
    taken: int,
    steps: int,
    tiers: Tiers,
    stopped: str | None,
) -> Outcome:
    """Mix the restarts with weights softmax(ELBO).

    The ELBO of a restart bounds the log evidence of the table in the user's units from below, up to the error of an
    estimate from some 64 graphs. A shared noise variance is that of the best restart.
    """
    means, log_scale = (np.asarray(part, dtype=np.float64) for part in state.order)
    logits = np.where(free, np.asarray(state.logits, dtype=np.float64), -np.inf)
    each = expit(logits) * _precedences(means, log_scale, Lift.of(prior.required))
    each[:, prior.required] = 1.0
    trace = np.asarray(state.elbo[:taken], dtype=np.float64) + score.log_jacobian
    # The median, because a rare graph without a strong edge costs thousands of nats and would decide the mean.
    elbo = np.median(trace[max(0, min(steps, taken - 1)) :], axis=0)
    shared = score.nuisance
    if shared is not None:
        elbo = elbo + [shared.log_prior(float(variance)) for variance in state.variance]
    sound = np.isfinite(elbo) & np.isfinite(each).all(axis=(1, 2))
    elbo = np.where(sound, elbo, -np.inf)
    weights = softmax(elbo) if sound.any() else np.full(elbo.size, 1 / elbo.size)
    best = int(np.argmax(weights))
    probabilities = np.tensordot(weights, np.where(sound[:, None, None], each, 0.0), axes=1)
    probabilities[prior.required] = 1.0
    parents = probabilities.sum(axis=0)
    missed = np.asarray(state.left_out[:taken])[-STILL_STEPS:, best]
    counted = each[weights > 0.01]
    noise_variance = None if shared is None else float(state.variance[best])
    diagnostics: dict[str, Any] = {
        "noise_variance": noise_variance,
        "elbo": (elbo + table.log_jacobian).tolist(),
        "restart_weights": weights.tolist(),
        "restart_disagreement": float(np.max(counted.max(axis=0) - counted.min(axis=0))),
        "restarts_failed": int((~sound).sum()),
        "steps": min(taken, steps),
        "elbo_rise": _late_rise(trace[: min(taken, steps), best]),
        "most_expected_parents": float(parents.max()),
        "max_parents": tiers.wide,
        "parents_left_out": float(np.mean(missed > 0)),
    }
    equivalent = any(part.score_equivalent for part in score.parts)
    crowded = (parents > 0.75 * tiers.wide) & (tiers.wide < len(parents) - 1)
    labels = [table.data.names[j] for j in np.flatnonzero(crowded)]
    graph_posterior = OrderMixture.of(
        logits,
        means=means,
        log_scale=log_scale,
        weights=weights,
        predictive=table.predictive(noise_variance),
        required=prior.required,
    )
    status = _status(diagnostics, sound, labels, stopped, equivalent=equivalent)
    return Outcome(graph_posterior, status, diagnostics, {"elbo": trace})


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
