"""A shared unknown noise variance, averaged over by the trapezoid rule on its logarithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from vcuda.models.protocol import LocalScore, Nuisance

# With a step of 1.5 standard deviations the trapezoid rule errs by 2 exp(-2 pi² / 1.5²) = 3e-4 on a Gaussian.
NOISE_STEP = 1.5
# It may end where the weight is this many nats below the top: 2.8 standard deviations out, five or six points.
NOISE_DEPTH = 4.0
NOISE_POINTS = 7


class HasTotal(Protocol):
    """Sums over graphs; ``log_total`` is the sum over all of them."""

    @property
    def log_total(self) -> float: ...


SumsT = TypeVar("SumsT", bound=HasTotal)


def noise_grid(shared: Nuisance, build: Callable[[LocalScore], SumsT]) -> tuple[list[SumsT], np.ndarray, np.ndarray]:
    """Return the sums that are built at a grid of noise variances, their log weights in the evidence, and the
    variances.

    Given a graph the log evidence is nearly c - A u - B exp(-u) with u the log variance, A = n d / 2 and B
    half the sum of squared residuals; two evaluations give B and so the best u, and repeating it follows the
    graphs as they change with u. The posterior of u has a standard deviation of about 1 / sqrt(A); the grid
    starts near the best u and grows on both sides until its ends do not count. The first two evaluations are
    points of a grid around the guess, which is nearly always good enough to keep them. Raises a RoundingError where
    variances count that are too small to be computed.
    """
    least = float(np.log(shared.least()))
    half_cells = 0.5 * shared.cells
    step = NOISE_STEP * half_cells**-0.5

    def evaluate(log_variance: float) -> tuple[SumsT, float]:
        variance = float(np.exp(log_variance))
        sums = build(shared.at(variance))
        return sums, sums.log_total + shared.log_prior(variance) + log_variance

    centre = max(float(np.log(shared.guess())), least)
    for _ in range(20):
        found = {0: evaluate(centre), 1: evaluate(centre + step)}
        slope = found[1][1] - found[0][1] + half_cells * step
        residual = slope / (np.exp(-centre) - np.exp(-centre - step))
        best = float(np.log(residual / half_cells)) if residual > 0 else -np.inf
        # The weights of the grid are right wherever it starts; from far away it would only be long. A step of
        # more than a factor e asks the two evaluations about a region that they do not know.
        best = max(min(max(best, centre - 1.0), centre + 1.0), least)
        if abs(best - centre) < 2 * step:
            break
        centre = best
    low, high = 0, 1
    while True:
        top = max(value for _, value in found.values())
        if found[low][1] < top - NOISE_DEPTH and found[high][1] < top - NOISE_DEPTH:
            break
        if len(found) == NOISE_POINTS:
            # Wider than a single graph's: a step twice as long keeps every other point.
            step *= 2
            found = {k // 2: value for k, value in found.items() if k % 2 == 0}
            low, high = min(found), max(found)
        elif found[low][1] >= found[high][1]:
            low -= 1
            found[low] = evaluate(centre + low * step)
        else:
            high += 1
            found[high] = evaluate(centre + high * step)
    positions = range(low, high + 1)
    log_weights = np.array([found[k][1] for k in positions]) + np.log(step)
    return [found[k][0] for k in positions], log_weights, np.exp(centre + step * np.array(positions))
