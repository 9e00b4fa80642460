"""The evidence of a regression by Laplace's method: Newton's steps to the most probable weights, many sets at once.

log p(y | parents) is the log density at the best weights, plus their log prior density there, less half the log
determinant of the curvature. The weights have standard normal priors: what makes one more or less plausible is in the
scale of its feature.

The posterior of the weights of a sieve is skewed, so that its evidence comes out too low: by about one nat at 200 rows
of strongly skewed noise (``tests/test_glm.py``). The other families are within .1 nats there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from vcuda.models.glm.likelihoods import LOG_TWO_PI, Likelihood

MOST_STEPS = 60
# A step that promises less than this many nats is not taken, only counted: what it promises is as good.
DECREMENT = 3e-3
# What is counted of a step that was not taken because there were too many.
MOST_HOPED = 5.0
LONGEST_STEP = 4.0


class Fitted(NamedTuple):
    """For B sets: the log evidence (B,), the best weights (B, q, p + 1) with the intercept first, the best shared
    numbers (B, m), and whether they were found (B,).

    ``precision`` (B, P, P) is that of the normal distribution around the best: of the weights that a family has, in
    their order, and the shared numbers behind them.
    """

    log_evidence: np.ndarray
    weights: np.ndarray
    shared: np.ndarray
    converged: np.ndarray
    precision: np.ndarray


def better(one: Fitted, other: Fitted) -> Fitted:
    """Of two fits of the same sets the one with more evidence, set by set."""
    wins = other.log_evidence > one.log_evidence
    parts = []
    for left, right in zip(one, other, strict=True):
        parts.append(np.where(wins.reshape(-1, *[1] * (left.ndim - 1)), right, left))
    return Fitted(*parts)


class _Heights(NamedTuple):
    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


def fit(
    likelihood: Likelihood,
    y: np.ndarray,
    design: np.ndarray,
    precision: np.ndarray,
    weights: np.ndarray,
    shared: np.ndarray,
    most_steps: int = MOST_STEPS,
) -> Fitted:
    """Maximise, and integrate around the maximum.

    Parameters
    ----------
    likelihood
        Of the column.
    y
        (n,) the column.
    design
        (B, p + 1, n) features of the parents, a row of ones first.
    precision
        (q, p + 1) of the prior of each weight; infinite where a predictor has no such weight.
    weights, shared
        (B, q, p + 1) and (B, m) where to begin.
    most_steps
        Few are enough where the beginning is the best of nearly the same rows.
    """
    sets, width, _ = design.shape
    q, m = likelihood.predictors, shared.shape[1]
    free = np.flatnonzero(np.isfinite(precision).reshape(-1))
    kept = np.concatenate([free, q * width + np.arange(m)])
    penalty = precision.reshape(-1)[free]

    def evaluate(theta: np.ndarray, own: Likelihood, rows: np.ndarray) -> _Heights:
        count = len(theta)
        weight = np.zeros((count, q * width))
        weight[:, free] = theta[:, : free.size]
        psi = theta[:, free.size :]
        eta = np.matmul(weight.reshape(count, q, width), rows)
        found = own.rows(y, eta, psi)
        prior, prior_slope, prior_curvature = own.log_prior(psi)
        value = found.value.sum(axis=1) + prior - 0.5 * (theta[:, : free.size] ** 2) @ penalty
        slope = np.empty((count, q * width + m))
        slope[:, : q * width] = np.matmul(found.slope, np.swapaxes(rows, 1, 2)).reshape(count, -1)
        slope[:, q * width :] = found.shared_slope.sum(axis=2) + prior_slope
        curvature = np.empty((count, q * width + m, q * width + m))
        turned = np.swapaxes(rows, 1, 2)
        for k in range(q):
            here = slice(k * width, (k + 1) * width)
            for other in range(k, q):
                there = slice(other * width, (other + 1) * width)
                block = np.matmul(rows * found.curvature[:, k, other, None], turned)
                curvature[:, here, there] = block
                if other != k:
                    curvature[:, there, here] = np.swapaxes(block, 1, 2)
            if m:
                block = np.matmul(found.mixed[:, :, k], turned)
                curvature[:, q * width :, here] = block
                curvature[:, here, q * width :] = np.swapaxes(block, 1, 2)
        own_block = found.shared_curvature.copy()
        own_block[:, np.arange(m), np.arange(m)] += prior_curvature
        curvature[:, q * width :, q * width :] = own_block
        slope = slope[:, kept]
        slope[:, : free.size] -= penalty * theta[:, : free.size]
        bent = -curvature if kept.size == q * width + m else -curvature[:, kept[:, None], kept[None, :]]
        bent[:, np.arange(free.size), np.arange(free.size)] += penalty
        return _Heights(value, slope, bent)

    theta = np.concatenate([weights.reshape(sets, -1)[:, free], shared], axis=1)
    final = evaluate(theta, likelihood, design)
    converged = np.zeros(sets, dtype=bool)
    hoped = np.zeros(sets)
    damping = np.zeros(sets)
    going, own, rows = np.arange(sets), likelihood, design
    for number in range(most_steps + 1):
        damped = damping[going]
        steps, promised = _newton_steps(_Heights(*(part[going] for part in final)), damped)
        damping[going] = damped
        # The last step need not be taken: what it promises is as good as what it would bring.
        last = (promised < DECREMENT) | (number == most_steps)
        ends = going[last]
        converged[ends] = promised[last] < DECREMENT
        hoped[ends] = np.where(np.isfinite(promised[last]), np.minimum(promised[last], MOST_HOPED), 0.0)
        theta[ends[converged[ends]]] += steps[last & (promised < DECREMENT)]
        if last.all():
            break
        if last.any():
            stay = np.flatnonzero(~last)
            going, rows, own, steps = going[stay], rows[stay], own.take(stay), steps[stay]
        tried = theta[going] + steps
        new = evaluate(tried, own, rows)
        old = final.value[going]
        better = np.isfinite(new.value) & (new.value >= old - 1e-9 * np.abs(old))
        taken = going[better]
        theta[taken] = tried[better]
        for kept_part, fresh in zip(final, new, strict=True):
            kept_part[taken] = fresh[better]
        damping[taken] = np.where(damping[taken] > 1.0, damping[taken] / 8, 0.0)
        damping[going[~better]] = np.maximum(6 * damping[going[~better]], 1.0)
    log_det = _log_determinants(final.curvature)
    log_evidence = final.value + hoped + 0.5 * np.log(penalty).sum() + 0.5 * m * LOG_TWO_PI - 0.5 * log_det
    weight = np.zeros((sets, q * width))
    weight[:, free] = theta[:, : free.size]
    return Fitted(log_evidence, weight.reshape(sets, q, width), theta[:, free.size :], converged, final.curvature)


def _newton_steps(heights: _Heights, damping: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps (B, P) uphill, and what they promise to gain (B,).

    The damping (B,) is added to the diagonal; it is raised, in place, to where the curvature is that of a hill.
    """
    steps = np.empty_like(heights.slope)
    promised = np.empty(len(steps))
    for item, (slope, curvature) in enumerate(zip(heights.slope, heights.curvature, strict=True)):
        factor, fault = dpotrf(_damped(curvature, damping[item]), lower=1, clean=0)
        if fault != 0:
            deepest = float(np.linalg.eigvalsh(curvature)[0])
            damping[item] = max(1.0 - 1.5 * deepest, 2 * damping[item])
            factor, fault = dpotrf(_damped(curvature, damping[item]), lower=1, clean=0)
        step, _ = dpotrs(factor, slope, lower=1)
        promised[item] = 0.5 * slope @ step if damping[item] == 0 else np.inf
        longest = np.abs(step).max()
        steps[item] = step if longest <= LONGEST_STEP else step * (LONGEST_STEP / longest)
    return steps, promised


def _damped(curvature: np.ndarray, damping: float) -> np.ndarray:
    if damping == 0:
        return curvature
    damped = curvature.copy()
    np.einsum("ii->i", damped)[...] += damping
    return damped


def _log_determinants(curvature: np.ndarray) -> np.ndarray:
    found = np.empty(len(curvature))
    for item, matrix in enumerate(curvature):
        factor, fault = dpotrf(matrix, lower=1, clean=0)
        if fault == 0:
            found[item] = 2 * np.log(np.diag(factor)).sum()
        else:
            sizes = np.linalg.eigvalsh(matrix)
            found[item] = np.log(np.maximum(np.abs(sizes), 1e-6)).sum()
    return found
