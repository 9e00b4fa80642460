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
    counts: np.ndarray, scores: np.ndarray, features: np.ndarray, start: np.ndarray | None = None
) -> FittedOdds:
    """Maximise, and integrate around the maximum.

    W has a standard normal prior. All log odds of the groups are as likely before the table is seen, so that the log
    evidence has a constant of its own: it compares sets of causes on the same rows. Only so is what one column explains
    of another the same either way: a prior would hold back the odds of one of them where both go closely together.

    Parameters
    ----------
    counts
        (k, u) rows of each group, by the causes that they have in common.
    scores
        (k, m) of each group, as features of the column's effects.
    features
        (p, u) of the causes.
    start
        Weights to begin at.
    """
    k, m = scores.shape
    weights = np.zeros(k - 1 + m * len(features)) if start is None else start.copy()
    odds = np.append(weights[: k - 1], 0.0)
    # On a part of the rows some groups may be empty: nothing is known of their odds.
    totals = counts.sum(axis=1)
    kept = totals > 0
    known = odds[kept]
    theta = np.concatenate([known[:-1] - known[-1], weights[k - 1 :]])
    rows, own, causes = (
        np.ascontiguousarray(some, dtype=np.float64) for some in (counts[kept], scores[kept], features)
    )
    evidence = _fit(rows, own, causes, np.log(totals[kept]), theta, MOST_STEPS)
    odds[kept] = np.append(theta[: known.size - 1], 0.0)
    return FittedOdds(evidence, np.concatenate([odds[:-1] - odds[-1], theta[known.size - 1 :]]))


@compiled
def _evaluate(
    counts: np.ndarray,
    scores: np.ndarray,
    features: np.ndarray,
    turned: np.ndarray,
    log_totals: np.ndarray,
    theta: np.ndarray,
    slope: np.ndarray,
    bent: np.ndarray,
) -> float:
    """The log posterior density, up to what the priors have in front; its slope, and minus its curvature."""
    k, m = scores.shape
    p, n = features.shape
    free = k - 1
    base = log_totals.copy()
    base[:free] += theta[:free]
    expected = np.zeros((k, n))
    if p:
        expected = np.dot(scores, UNIT * np.dot(theta[free:].copy().reshape(m, p), features))
    # Chances of the groups, and how many rows of each would be expected.
    value, sizes = 0.0, np.empty(n)
    for i in range(n):
        top, total, rows = -np.inf, 0.0, 0.0
        for j in range(k):
            expected[j, i] += base[j]
            top = max(top, expected[j, i])
        for j in range(k):
            away = expected[j, i] - top
            value += counts[j, i] * away
            rows += counts[j, i]
            expected[j, i] = np.exp(away)
            total += expected[j, i]
        value -= rows * np.log(total)
        for j in range(k):
            expected[j, i] *= rows / total
        sizes[i] = rows
    left = counts - expected
    slope[:free] = left.sum(axis=1)[:free]
    weighted = expected[:free] / sizes
    bent[:free, :free] = -np.dot(weighted, expected[:free].T)
    totals = expected.sum(axis=1)
    for j in range(free):
        bent[j, j] += totals[j]
    if p:
        slope[free:] = (UNIT * np.dot(np.dot(scores.T.copy(), left), turned)).reshape(m * p)
        means = np.dot(scores.T.copy(), expected) / sizes
        spread = np.empty((p, n))
        for a in range(m):
            here = free + a * p
            for j in range(free):
                for i in range(n):
                    weighted[j, i] = UNIT * expected[j, i] * (scores[j, a] - means[a, i])
            block = np.dot(weighted, turned)
            bent[:free, here : here + p] = block
            bent[here : here + p, :free] = block.T
            for b in range(a + 1):
                there = free + b * p
                both = np.dot((scores[:, a] * scores[:, b]).reshape(1, k), expected)[0]
                for i in range(n):
                    both[i] = UNIT * UNIT * (both[i] - sizes[i] * means[a, i] * means[b, i])
                for r in range(p):
                    for i in range(n):
                        spread[r, i] = features[r, i] * both[i]
                inner = np.dot(spread, turned)
                bent[here : here + p, there : there + p] = inner
                bent[there : there + p, here : here + p] = inner.T
        for r in range(free, theta.size):
            value -= 0.5 * theta[r] * theta[r]
            slope[r] -= theta[r]
            bent[r, r] += 1.0
    return value


@compiled
def _fit(
    counts: np.ndarray,
    scores: np.ndarray,
    features: np.ndarray,
    log_totals: np.ndarray,
    theta: np.ndarray,
    most_steps: int,
) -> float:
    """Newton's steps uphill; the weights begin where they are, and end at the best. The surface has one hill."""
    turned = features.T.copy()
    size = theta.size
    slope, bent = np.empty(size), np.empty((size, size))
    new_slope, new_bent = np.empty(size), np.empty((size, size))
    value = _evaluate(counts, scores, features, turned, log_totals, theta, slope, bent)
    promised = 0.0
    for _ in range(most_steps):
        step = np.linalg.solve(bent, slope)
        promised = 0.5 * np.dot(slope, step)
        # The last step need not be taken: what it promises is as good as what it would bring.
        if promised < DECREMENT:
            break
        step *= min(1.0, LONGEST_STEP / np.abs(step).max())
        tried = theta + step
        new = _evaluate(counts, scores, features, turned, log_totals, tried, new_slope, new_bent)
        while new < value - 1e-9 * abs(value) and np.abs(step).max() > 1e-6:
            step *= 0.25
            tried = theta + step
            new = _evaluate(counts, scores, features, turned, log_totals, tried, new_slope, new_bent)
        theta[:] = tried
        value = new
        slope, new_slope = new_slope, slope
        bent, new_bent = new_bent, bent
    return value + promised - np.log(np.diag(np.linalg.cholesky(bent))).sum()
