"""A shared unknown noise variance, averaged over by the trapezoid rule on its logarithm."""

from __future__ import annotations

import numpy as np

from vcuda.errors import DataError
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact.lattice import (
    Lattice,
    build_lattice,
)
from vcuda.infer.progress import ProgressCallback
from vcuda.models.scores import SharedNoise

# With a step of 1.5 standard deviations the trapezoid rule errs by 2 exp(-2 pi² / 1.5²) = 3e-4 on a Gaussian.
NOISE_STEP = 1.5
# It may end where the weight is this many nats below the top: 2.8 standard deviations out, five or six points.
NOISE_DEPTH = 4.0
NOISE_POINTS = 7
# Scores that rounding may change by more nats than this say nothing.
MOST_ROUNDING = 1.0


class RoundingError(DataError):
    """One noise variance for all columns cannot be computed: next to the largest column the noise is rounded away."""


def _least_log_variance(score: SharedNoise) -> float:
    """Return the log of the noise variance below which rounding spoils the scores.

    Sums of squares in units of the noise are differences of products of columns, and the largest of these is rounded
    by its 2**-52nd part. With columns of like scales that is far below any noise.
    """
    largest = float(np.max(np.diag(score.known.gram)))
    if not np.isfinite(largest):
        raise _too_different(score)
    return float(np.log(np.finfo(np.float64).eps * largest / MOST_ROUNDING))


def _too_different(score: SharedNoise) -> RoundingError:
    largest = float(np.max(np.diag(score.known.gram)))
    spread = f"{np.sqrt(largest / score.rows):.0e}" if np.isfinite(largest) else "more than 1e+150"
    return RoundingError(
        f"equal noise cannot be computed for columns of so different scales: the largest varies {spread} times as much "
        "as the smallest; use unequal noise, standardise, or leave out columns that repeat others"
    )


def _log_variance_guess(score: SharedNoise) -> float:
    """Return the log of a noise variance near the best.

    With equal noise the node of the smallest variance given those already taken comes next: a Cholesky
    factorisation that takes the smallest pivot. The k-th pivot has n - 1 - k degrees of freedom.
    """
    rest = score.known.gram.copy()
    squares, freedom = 0.0, 0
    for taken in range(min(score.nodes, score.rows - 1)):
        smallest = int(np.argmin(np.diag(rest)))
        pivot = max(float(rest[smallest, smallest]), 0.0)
        squares += pivot
        freedom += score.rows - 1 - taken
        # A column that those before it repeat leaves nothing, or rounding, and explains nothing more.
        row = rest[smallest] / np.sqrt(pivot) if pivot > 0 else np.zeros(len(rest))
        rest = np.delete(np.delete(rest - np.outer(row, row), smallest, axis=0), smallest, axis=1)
    return float(np.log(squares / freedom)) if squares > 0 else 0.0


def noise_grid(
    score: SharedNoise, prior: EdgePrior, progress: ProgressCallback, *, keep: bool
) -> tuple[list[Lattice], np.ndarray, np.ndarray]:
    """Return lattices at a grid of noise variances, their log weights in the evidence, and the variances.

    Given a graph the log evidence is nearly c - A u - B exp(-u) with u the log variance, A = n d / 2 and B
    half the sum of squared residuals; two evaluations give B and so the best u, and repeating it follows the
    graphs as they change with u. The posterior of u has a standard deviation of about 1 / sqrt(A); the grid
    starts near the best u and grows on both sides until its ends do not count. The first two evaluations are
    points of a grid around the guess, which is nearly always good enough to keep them. Raises a RoundingError where
    variances count that are too small to be computed.
    """
    least = _least_log_variance(score)
    half_cells = 0.5 * score.cells
    step = NOISE_STEP * half_cells**-0.5

    def evaluate(log_variance: float) -> tuple[Lattice, float]:
        if log_variance < least:
            raise _too_different(score)
        variance = float(np.exp(log_variance))
        lattice = build_lattice(score.at(variance), prior, progress, keep=keep)
        return lattice, lattice.log_total + score.log_prior(variance) + log_variance

    centre = max(_log_variance_guess(score), least)
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
