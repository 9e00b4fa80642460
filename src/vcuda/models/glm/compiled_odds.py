"""The evidence of regressions on the odds of a column's values, by Laplace's method, compiled.

The values fall into groups, in order. Each group has a probability of its own, and causes change the odds of any two:
log p(group k | causes) = a_k + scores_k · W · features + constant. Nothing is assumed of how the column is distributed,
and a column and its cause can change places: their odds ratios stay the same (Chen 2007, semiparametric odds ratio
models). What one of the two explains of the other is therefore as much either way, so that no direction is read from
the shape of a distribution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcuda.models.glm.compiled import compiled
from vcuda.models.glm.laplace import DECREMENT, LONGEST_STEP

MOST_STEPS = 30
# A feature of a line or a label has the prior variance two; beside the scores of a line that would count twice.
UNIT = 1 / np.sqrt(2.0)


class FittedOdds(NamedTuple):
    """The log evidence of the groups, and the weights (k - 1 + m p,): log odds of the groups, then W by rows."""

    log_evidence: float
    weights: np.ndarray


def fit_odds(
    groups: np.ndarray, scores: np.ndarray, features: np.ndarray, start: np.ndarray | None = None
) -> FittedOdds:
    """Maximise, and integrate around the maximum.

    W has a standard normal prior, and the log odds of the groups that of one row (unit information).

    Parameters
    ----------
    groups
        (n,) the group of each row.
    scores
        (k, m) of each group, as features of the column's effects.
    features
        (p, n) of the causes.
    start
        Weights to begin at.
    """
    k, m = scores.shape
    theta = np.zeros(k - 1 + m * len(features)) if start is None else start.copy()
    shares = (np.bincount(groups, minlength=k) + 0.5) / (groups.size + 0.5 * k)
    rest = shares[:-1]
    prior = np.diag(rest) - np.outer(rest, rest)
    contiguous = np.ascontiguousarray(scores), np.ascontiguousarray(features)
    evidence = _fit(groups, *contiguous, np.log(shares), prior, theta, MOST_STEPS)
    return FittedOdds(evidence, theta)


@compiled
def _evaluate(
    groups: np.ndarray,
    scores: np.ndarray,
    features: np.ndarray,
    turned: np.ndarray,
    log_shares: np.ndarray,
    prior: np.ndarray,
    theta: np.ndarray,
    slope: np.ndarray,
    bent: np.ndarray,
) -> float:
    """The log posterior density, up to what the priors have in front; its slope, and minus its curvature."""
    k, m = scores.shape
    p, n = features.shape
    free = k - 1
    base = log_shares.copy()
    base[:free] += theta[:free]
    chance = np.zeros((k, n))
    means = np.zeros((m, n))
    if p:
        pull = UNIT * np.dot(theta[free:].copy().reshape(m, p), features)
        chance = np.dot(scores, pull)
    value = 0.0
    for i in range(n):
        top = -np.inf
        for j in range(k):
            chance[j, i] += base[j]
            top = max(top, chance[j, i])
        own = chance[groups[i], i] - top
        total = 0.0
        for j in range(k):
            chance[j, i] = np.exp(chance[j, i] - top)
            total += chance[j, i]
        value += own - np.log(total)
        for j in range(k):
            chance[j, i] /= total
    expected = chance.sum(axis=1)
    slope[:] = 0.0
    for i in range(n):
        if groups[i] < free:
            slope[groups[i]] += 1.0
    slope[:free] -= expected[:free]
    bent[:] = 0.0
    bent[:free, :free] = prior - np.dot(chance[:free], chance[:free].T)
    for j in range(free):
        bent[j, j] += expected[j]
    away = np.dot(prior, theta[:free].copy())
    slope[:free] -= away
    value -= 0.5 * np.dot(theta[:free].copy(), away)
    if p:
        means = np.dot(scores.T.copy(), chance)
        left = np.empty((m, n))
        weighted, spread = np.empty((free, n)), np.empty((p, n))
        for a in range(m):
            here = free + a * p
            for i in range(n):
                left[a, i] = UNIT * (scores[groups[i], a] - means[a, i])
            for j in range(free):
                for i in range(n):
                    weighted[j, i] = UNIT * chance[j, i] * (scores[j, a] - means[a, i])
            block = np.dot(weighted, turned)
            bent[:free, here : here + p] = block
            bent[here : here + p, :free] = block.T
            for b in range(a + 1):
                there = free + b * p
                both = np.dot((scores[:, a] * scores[:, b]).reshape(1, k).copy(), chance)[0]
                for i in range(n):
                    both[i] = UNIT * UNIT * (both[i] - means[a, i] * means[b, i])
                for r in range(p):
                    for i in range(n):
                        spread[r, i] = features[r, i] * both[i]
                inner = np.dot(spread, turned)
                bent[here : here + p, there : there + p] = inner
                bent[there : there + p, here : here + p] = inner.T
        slope[free:] = np.dot(left, turned).reshape(m * p)
        for r in range(free, theta.size):
            value -= 0.5 * theta[r] * theta[r]
            slope[r] -= theta[r]
            bent[r, r] += 1.0
    return value


@compiled
def _fit(
    groups: np.ndarray,
    scores: np.ndarray,
    features: np.ndarray,
    log_shares: np.ndarray,
    prior: np.ndarray,
    theta: np.ndarray,
    most_steps: int,
) -> float:
    """Newton's steps uphill; the weights begin where they are, and end at the best. The surface has one hill."""
    turned = features.T.copy()
    size = theta.size
    slope, bent = np.empty(size), np.empty((size, size))
    new_slope, new_bent = np.empty(size), np.empty((size, size))
    value = _evaluate(groups, scores, features, turned, log_shares, prior, theta, slope, bent)
    promised = 0.0
    for _ in range(most_steps):
        step = np.linalg.solve(bent, slope)
        promised = 0.5 * np.dot(slope, step)
        if promised < DECREMENT:
            break
        longest = np.abs(step).max()
        if longest > LONGEST_STEP:
            step *= LONGEST_STEP / longest
        while True:
            tried = theta + step
            new = _evaluate(groups, scores, features, turned, log_shares, prior, tried, new_slope, new_bent)
            if new >= value - 1e-9 * abs(value) or np.abs(step).max() < 1e-6:
                break
            step *= 0.25
        theta[:] = tried
        value = new
        slope, new_slope = new_slope, slope
        bent, new_bent = new_bent, bent
    factor = np.linalg.cholesky(bent)
    prior_factor = np.linalg.cholesky(prior)
    log_det = 2 * np.log(np.diag(factor)).sum() - 2 * np.log(np.diag(prior_factor)).sum()
    return value + promised - 0.5 * log_det
