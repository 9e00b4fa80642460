"""The evidence of a number with noise of any shape by Laplace's method, compiled: Newton's steps for one set at a time.

A search needs thousands of these fits. ``laplace.fit`` does the same for every family, batched in NumPy; here the rows
of a set stay in the processor's cache, and other threads go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from vcuda.machine_code import compiled as machine_code
from vcuda.models.glm.laplace import DECREMENT, LONGEST_STEP, MOST_HOPED, MOST_STEPS, Fitted
from vcuda.models.glm.likelihoods import LOG_TWO_PI, Number, Sieve

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

# Sums may be taken in any order; infinities and missing numbers keep their meaning.
MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}
SIZE = Sieve.size
MEANS, PRECISIONS = Sieve.means, 1.0 / Sieve.scales**2
LOG_HEIGHTS = -np.log(Sieve.scales) - 0.5 * LOG_TWO_PI
CENTRES, SPREAD = Sieve.centres, Sieve.spread
# The narrow components stand at odd multiples of the first mean; the scales are in the ratio 1 / 20 : 1 / 9 : 1 / 3 : 1
# to the widest. So two exponentials of a residual, and their powers, give the densities of all components.
WIDEST = 0.5 / Sieve.scales[8] ** 2
STEP = Sieve.means[2] / Sieve.scales[2] ** 2
# Further out the powers would vanish, and logarithms are taken.
FAR = 25.0


def compiled(function: FunctionT) -> FunctionT:
    """The function as a program, whose sums may be taken in any order."""
    return machine_code(function, fastmath=MATH)


def fit_numbers(
    likelihood: Number,
    y: np.ndarray,
    features: np.ndarray,
    places: np.ndarray,
    spread_precision: float,
    weights: np.ndarray,
    shared: np.ndarray,
    most_steps: int = MOST_STEPS,
) -> Fitted:
    """Maximise, and integrate around the maximum, as ``laplace.fit`` does.

    Parameters
    ----------
    features
        (f, n) a row of ones first.
    places
        (B, p + 1) which features each set has, the ones first; behind them minus one, where a set has fewer.
    """
    most, m = places.shape[1], likelihood.shared
    size = most + (most - 1 if likelihood.spread else 0) + m
    weights, shared = weights.copy(), shared.copy()
    log_evidence, converged = np.empty(len(places)), np.empty(len(places), dtype=bool)
    bents = np.empty((len(places), size, size))
    _fit_sets(
        y,
        features,
        places,
        likelihood.alpha,
        likelihood.beta,
        likelihood.shape,
        likelihood.spread,
        spread_precision,
        weights,
        shared,
        most_steps,
        log_evidence,
        converged,
        bents,
    )
    return Fitted(log_evidence, weights, shared, converged, bents)


@compiled
def _noise(z: float, log_weights: np.ndarray, heights: np.ndarray, share: np.ndarray) -> float:
    """The log density of a residual, and the share (K,) of each component in it."""
    if abs(z) > FAR:
        top = -np.inf
        for k in range(SIZE):
            share[k] = log_weights[k] + LOG_HEIGHTS[k] - 0.5 * PRECISIONS[k] * (z - MEANS[k]) ** 2
            top = max(top, share[k])
        total = 0.0
        for k in range(SIZE):
            share[k] = math.exp(share[k] - top)
            total += share[k]
        for k in range(SIZE):
            share[k] /= total
        return top + math.log(total)
    wide = math.exp(-WIDEST * z * z)
    wide_4 = (wide * wide) * (wide * wide)
    wide_8 = wide_4 * wide_4
    wide_16 = wide_8 * wide_8
    wide_64 = (wide_16 * wide_16) * (wide_16 * wide_16)
    wide_128 = wide_64 * wide_64
    narrow = (wide_128 * wide_128) * wide_128 * wide_16
    right = math.exp(STEP * z)
    left = 1.0 / right
    right_3, left_3 = right * right * right, left * left * left
    share[0] = heights[0] * (wide_64 * wide_16) * wide
    share[1] = heights[1] * narrow * left
    share[2] = heights[2] * narrow * right
    share[3] = heights[3] * narrow * left_3
    share[4] = heights[4] * narrow * right_3
    share[5] = heights[5] * narrow * left_3 * (left * left)
    share[6] = heights[6] * narrow * right_3 * (right * right)
    share[7] = heights[7] * wide_8 * wide
    share[8] = heights[8] * wide
    total = 0.0
    for k in range(SIZE):
        total += share[k]
    inverse = 1.0 / total
    for k in range(SIZE):
        share[k] *= inverse
    return math.log(total)


@compiled
def _dot(left: np.ndarray, right: np.ndarray) -> float:
    total = 0.0
    for i in range(left.size):
        total += left[i] * right[i]
    return total


@compiled
def _evaluate(
    y: np.ndarray,
    rows: np.ndarray,
    theta: np.ndarray,
    alpha: float,
    beta: float,
    has_shape: bool,
    has_spread: bool,
    spread_precision: float,
    room: np.ndarray,
    product: np.ndarray,
    shares: np.ndarray,
    turns: np.ndarray,
    slope: np.ndarray,
    bent: np.ndarray,
) -> float:
    """The log posterior density, up to what the priors of the weights have in front; its slope, and minus its
    curvature.

    ``room`` (7, n), ``product`` (p + 1, n), ``shares`` (K, n) and ``turns`` (2 K, n) hold what is computed of each
    row, so that it stays in the cache.
    """
    width, n = rows.shape
    extra = width - 1 if has_spread else 0
    at = width + extra
    unit = math.exp(-theta[at])
    log_weights, heights = np.zeros(SIZE), np.zeros(SIZE)
    if has_shape:
        top, total = theta[at + 1], 0.0
        for k in range(1, SIZE):
            top = max(top, theta[at + 1 + k])
        for k in range(SIZE):
            total += math.exp(theta[at + 1 + k] - top)
        for k in range(SIZE):
            log_weights[k] = theta[at + 1 + k] - top - math.log(total)
            heights[k] = math.exp(log_weights[k] + LOG_HEIGHTS[k] - 0.5 * PRECISIONS[k] * MEANS[k] ** 2)
    mean, log_scale = room[0], room[1]
    mean[:] = 0.0
    log_scale[:] = 0.0
    for k in range(width):
        for i in range(n):
            mean[i] += theta[k] * rows[k, i]
    for k in range(extra):
        for i in range(n):
            log_scale[i] += theta[width + k] * rows[1 + k, i]

    value = -n * theta[at]
    tau_slope, tau_bent = -float(n), 0.0
    share, all_shares, cross = np.empty(SIZE), np.zeros(SIZE), np.zeros(SIZE)
    for i in range(n):
        scaled = y[i] * unit
        z, shrink = scaled - mean[i], 1.0
        if has_spread:
            # Beyond this the scale of a row is nonsense, and its square would overflow.
            rho = min(max(log_scale[i], -15.0), 15.0)
            shrink = math.exp(-rho)
            z *= shrink
            scaled *= shrink
            value -= rho
        first, second = -z, -1.0
        if has_shape:
            value += _noise(z, log_weights, heights, share)
            first = 0.0
            second = 0.0
            for k in range(SIZE):
                pull = (MEANS[k] - z) * PRECISIONS[k]
                first += share[k] * pull
                second += share[k] * (pull * pull - PRECISIONS[k])
            second -= first * first
            for k in range(SIZE):
                turn = share[k] * ((MEANS[k] - z) * PRECISIONS[k] - first)
                shares[k, i] = share[k]
                all_shares[k] += share[k]
                cross[k] -= turn * scaled
                turns[k, i] = turn * shrink
                turns[SIZE + k, i] = turn * z
        else:
            value -= 0.5 * (z * z + LOG_TWO_PI)
        both = second * z + first
        tau_slope -= first * scaled
        tau_bent += (second * scaled + first) * scaled
        # By the mean: slope, curvature, with the scale; by the log scale of the row: the same.
        room[0, i] = -first * shrink
        room[1, i] = -second * shrink * shrink
        room[2, i] = -second * scaled * shrink
        room[3, i] = -first * z - 1.0
        room[4, i] = -both * z
        room[5, i] = -both * scaled
        room[6, i] = -both * shrink

    bent[:] = 0.0
    _fill(rows, 0, room[1], room[0], room[2], product, slope, bent, 0, at)
    if has_spread:
        _fill(rows, 1, room[4], room[3], room[5], product, slope, bent, width, at)
        for k in range(width):
            for i in range(n):
                product[k, i] = room[6, i] * rows[k, i]
        for k in range(width):
            for other in range(1, width):
                bent[k, width + other - 1] = bent[width + other - 1, k] = _dot(product[k], rows[other])
    slope[at], bent[at, at] = tau_slope, -tau_bent
    if has_shape:
        for k in range(SIZE):
            here, chance = at + 1 + k, math.exp(log_weights[k])
            slope[here] = all_shares[k] - n * chance
            bent[at, here] = bent[here, at] = -cross[k]
            for other in range(width):
                bent[other, here] = bent[here, other] = _dot(rows[other], turns[k])
            for other in range(extra):
                bent[width + other, here] = bent[here, width + other] = _dot(rows[1 + other], turns[SIZE + k])
            for other in range(k + 1):
                both = _dot(shares[k], shares[other]) - n * chance * math.exp(log_weights[other])
                bent[here, at + 1 + other] = bent[at + 1 + other, here] = both
            bent[here, here] += n * chance - all_shares[k]

    for k in range(at):
        prior = 1.0 if k < width else spread_precision
        value -= 0.5 * prior * theta[k] ** 2
        slope[k] -= prior * theta[k]
        bent[k, k] += prior
    tail = beta * unit * unit
    value += math.log(2.0) + alpha * math.log(beta) - math.lgamma(alpha) - 2 * alpha * theta[at] - tail
    slope[at] += 2 * tail - 2 * alpha
    bent[at, at] += 4 * tail
    for k in range(theta.size - at - 1):
        away = (theta[at + 1 + k] - CENTRES[k]) / SPREAD
        value -= 0.5 * (away * away + LOG_TWO_PI) + math.log(SPREAD)
        slope[at + 1 + k] -= away / SPREAD
        bent[at + 1 + k, at + 1 + k] += 1.0 / SPREAD**2
    return value


@compiled
def _fill(
    rows: np.ndarray,
    first: int,
    curved: np.ndarray,
    sloped: np.ndarray,
    by_scale: np.ndarray,
    product: np.ndarray,
    slope: np.ndarray,
    bent: np.ndarray,
    start: int,
    at: int,
) -> None:
    """Slope and curvature by the weights of one predictor, which has the features from ``first`` on."""
    width, n = rows.shape
    for k in range(width):
        total, with_scale = 0.0, 0.0
        for i in range(n):
            product[k, i] = curved[i] * rows[k, i]
            total += sloped[i] * rows[k, i]
            with_scale += by_scale[i] * rows[k, i]
        if k >= first:
            slope[start + k - first] = total
            bent[start + k - first, at] = bent[at, start + k - first] = with_scale
    for k in range(first, width):
        for other in range(first, k + 1):
            here, there = start + k - first, start + other - first
            bent[here, there] = bent[there, here] = _dot(product[k], rows[other])


@compiled
def _root(matrix: np.ndarray, damping: float, factor: np.ndarray) -> bool:
    """The lower Cholesky factor of a symmetric matrix with its diagonal raised by a share; False if there is none."""
    for i in range(len(matrix)):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i == j:
                total += damping
                if not total > 0.0:
                    return False
                factor[i, i] = math.sqrt(total)
            else:
                factor[i, j] = total / factor[j, j]
    return True


@compiled
def _solve(factor: np.ndarray, right: np.ndarray, step: np.ndarray) -> None:
    """Solve with the lower Cholesky factor of a matrix."""
    size = right.size
    for i in range(size):
        total = right[i]
        for k in range(i):
            total -= factor[i, k] * step[k]
        step[i] = total / factor[i, i]
    for i in range(size - 1, -1, -1):
        total = step[i]
        for k in range(i + 1, size):
            total -= factor[k, i] * step[k]
        step[i] = total / factor[i, i]


@compiled
def _fit_sets(
    y: np.ndarray,
    features: np.ndarray,
    places: np.ndarray,
    alpha: np.ndarray,
    beta: float,
    has_shape: bool,
    has_spread: bool,
    spread_precision: float,
    weights: np.ndarray,
    shared: np.ndarray,
    most_steps: int,
    log_evidence: np.ndarray,
    converged: np.ndarray,
    bents: np.ndarray,
) -> None:
    """Fit every set; weights and shared numbers begin where they are, and end at the best."""
    n = y.size
    most, m = places.shape[1], shared.shape[1]
    shares, turns, room = np.empty((SIZE, n)), np.empty((2 * SIZE, n)), np.empty((7, n))
    for item in range(len(places)):
        width = 0
        while width < most and places[item, width] >= 0:
            width += 1
        rows, product = np.empty((width, n)), np.empty((width, n))
        for k in range(width):
            for i in range(n):
                rows[k, i] = features[places[item, k], i]
        extra = width - 1 if has_spread else 0
        at = width + extra
        size = at + m
        theta, tried, step = np.empty(size), np.empty(size), np.empty(size)
        for k in range(width):
            tried[k] = weights[item, 0, k]
        for k in range(extra):
            tried[width + k] = weights[item, 1, 1 + k]
        for k in range(m):
            tried[at + k] = shared[item, k]
        slope, new_slope = np.empty(size), np.empty(size)
        bent, new_bent, factor = np.empty((size, size)), np.empty((size, size)), np.zeros((size, size))
        value, damping, hoped, done = -np.inf, 0.0, 0.0, False
        for number in range(most_steps + 1):
            new = _evaluate(
                y,
                rows,
                tried,
                alpha[item],
                beta,
                has_shape,
                has_spread,
                spread_precision,
                room,
                product,
                shares,
                turns,
                new_slope,
                new_bent,
            )
            if number == 0 or new >= value - 1e-9 * abs(value):
                theta, tried = tried, theta
                slope, new_slope = new_slope, slope
                bent, new_bent = new_bent, bent
                value, damping = new, damping / 8 if damping > 1.0 else 0.0
            else:
                damping = max(6 * damping, 1.0)
            while not _root(bent, damping, factor):
                damping = max(3 * damping, 1.0)
            _solve(factor, slope, step)
            promised, longest = 0.0, LONGEST_STEP
            for k in range(size):
                promised += 0.5 * slope[k] * step[k]
                longest = max(longest, abs(step[k]))
            # The last step need not be taken: what it promises is as good as what it would bring.
            done = damping == 0.0 and promised < DECREMENT
            if done or number == most_steps:
                hoped = min(promised, MOST_HOPED) if damping == 0.0 else 0.0
                break
            for k in range(size):
                tried[k] = theta[k] + step[k] * (LONGEST_STEP / longest)
        # Where the steps ended before a maximum, the curvature may be that of no hill.
        damping = 0.0
        while not _root(bent, damping, factor):
            damping = max(3 * damping, 1.0)
        log_det = 0.0
        for k in range(size):
            log_det += 2 * math.log(factor[k, k])
        for k in range(size if done else 0):
            theta[k] += step[k]
        log_evidence[item] = (
            value + hoped + 0.5 * extra * math.log(spread_precision) + 0.5 * m * LOG_TWO_PI - 0.5 * log_det
        )
        converged[item] = done
        weights[item] = 0.0
        for k in range(width):
            weights[item, 0, k] = theta[k]
        for k in range(extra):
            weights[item, 1, 1 + k] = theta[width + k]
        for k in range(m):
            shared[item, k] = theta[at + k]
        _place(bents[item], bent, width, extra, most, m, spread_precision)


@compiled
def _place(
    whole: np.ndarray, bent: np.ndarray, width: int, extra: int, most: int, m: int, spread_precision: float
) -> None:
    """Put the curvature where the weights stand; those of features that a set does not have are as their priors."""
    size = len(bent)
    where = np.empty(size, dtype=np.int64)
    for k in range(size):
        where[k] = k if k < width else most + k - width if k < width + extra else len(whole) - m + k - width - extra
    whole[:] = 0.0
    for k in range(len(whole) - m):
        whole[k, k] = 1.0 if k < most else spread_precision
    for k in range(size):
        for other in range(size):
            whole[where[k], where[other]] = bent[k, other]
