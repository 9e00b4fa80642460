"""Equal noise: where its variance lies, and an order from the causes down, always the node that is explained best."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaincinv, ndtri

if TYPE_CHECKING:
    from vcuda.models.linear.score import EqualNoiseScore

# A node whose residual variance exceeds the noise by this many standard errors has lost a parent on the way; of many
# nodes one exceeds more by chance.
STUCK = 2.5
# Sums of squares below this part of a column's own are rounding: differences of products that agree in 12 digits. A
# column of which its fellow parents leave so little is no parent, so that their matrix is never singular.
ROUNDED = 1e-12


def likely_noise(variances: np.ndarray, rows: int) -> float:
    """Estimate an equal noise variance from the columns' variances (d,): those of nodes without parents are
    the least.

    The smallest of m such variances lies well below the noise (17 % for 2,000 of them at 1,000 rows), so it
    is divided by the quantile at which the smallest of m is expected; m are the columns that are not above
    the quantile where the largest of m is.
    """
    freedom = 0.5 * (rows - 1)
    noise, roots = float(variances.min()), variances.size
    for _ in range(20):
        lowest, highest = gammaincinv(freedom, np.array([0.5 / roots, 1 - 0.5 / roots])) / freedom
        noise = float(variances.min() / lowest)
        found = max(1, int(np.sum(variances <= noise * highest)))
        if found == roots:
            break
        roots = found
    return noise


def noise_by_pivots(gram: np.ndarray, rows: int) -> float:
    """Return an equal noise variance near the best, from products (d, d) of the columns.

    The node of the smallest variance given those already taken comes next: a Cholesky factorisation that takes the
    smallest pivot. The k-th pivot has n - 1 - k degrees of freedom.
    """
    rest = gram.copy()
    squares, freedom = 0.0, 0
    for taken in range(min(len(gram), rows - 1)):
        smallest = int(np.argmin(np.diag(rest)))
        pivot = max(float(rest[smallest, smallest]), 0.0)
        squares += pivot
        freedom += rows - 1 - taken
        # A column that those before it repeat leaves nothing, or rounding, and explains nothing more.
        row = rest[smallest] / np.sqrt(pivot) if pivot > 0 else np.zeros(len(rest))
        rest = np.delete(np.delete(rest - np.outer(row, row), smallest, axis=0), smallest, axis=1)
    return squares / freedom if squares > 0 else 1.0


def top_down_order(
    score: EqualNoiseScore, log_odds: np.ndarray, *, go_on: Callable[[], bool] = lambda: True
) -> np.ndarray:
    """Construct an order (d,) for equal noise: always next the node that those before it explain down to the
    noise.

    Each new node is tested as a parent of all that remain. The test takes the residual variance as unknown,
    because a node whose other parents are still to come has more than the noise. O(d² k) with k the number of
    parents. Where ``go_on`` says no (time is short), the others follow by their residual variances so far.
    """
    nodes, gram, rows = score.nodes, score.gram, score.rows
    noise = rows * score.variance
    explained = noise * (1 + max(STUCK, float(ndtri(1 - 1 / max(nodes, 2)))) * np.sqrt(2 / rows))
    parents: list[np.ndarray] = [np.zeros(0, dtype=np.int64) for _ in range(nodes)]
    room = 8
    index, weights = np.zeros((nodes, room), dtype=np.int64), np.zeros((nodes, room))
    counts = np.zeros(nodes, dtype=np.int64)
    residuals = np.diag(gram).copy()
    waiting = np.ones(nodes, dtype=bool)
    refitted = np.full(nodes, -nodes - 10)
    order: list[int] = []

    def fit(node: int, chosen: np.ndarray) -> None:
        nonlocal index, weights
        kept, coefficients, residual = _pruned_regression(score, log_odds, node, chosen)
        if kept.size > index.shape[1]:
            grown = kept.size + 8
            index = np.pad(index, ((0, 0), (0, grown - index.shape[1])))
            weights = np.pad(weights, ((0, 0), (0, grown - weights.shape[1])))
        parents[node], residuals[node], counts[node] = kept, residual, kept.size
        index[node, : kept.size], weights[node] = kept, 0.0
        weights[node, : kept.size] = coefficients

    for _ in range(nodes):
        if not go_on():
            others = np.flatnonzero(waiting)
            return np.append(np.array(order, dtype=np.int64), others[np.argsort(residuals[others], kind="stable")])
        if residuals[waiting].min() > explained:
            # Parents are missed when others that come later hide their effect, most of all those of a hub;
            # look again, the most hopeful first, until a node is explained. A node that was looked at rests until
            # the pool has grown by a hundredth, and by ten if it is far from explained.
            for node in np.argsort(np.where(waiting, residuals, np.inf))[: waiting.sum()]:
                rest = len(order) // 100 + (10 if residuals[node] > 4 * noise else 0)
                if len(order) - refitted[node] <= rest:
                    continue
                refitted[node] = len(order)
                fit(int(node), _forward_robust(score, log_odds, int(node), parents[node], ~waiting))
                if residuals[node] <= explained or not go_on():
                    break
        best = int(np.argmin(np.where(waiting, residuals, np.inf)))
        order.append(best)
        waiting[best] = False
        covariance = gram[best] - np.einsum("jk,jk->j", gram[best][index], weights)
        # The pivot of the new parent is at least the noise, so this bounds the gain from above.
        hopeful_gain = _robust_gain(rows, residuals, np.minimum(covariance**2 / noise, residuals - 0.5 * noise))
        hopeful = np.flatnonzero(waiting & (hopeful_gain + log_odds[best] > 0))
        pivots = _pivots(score, best, index[hopeful], counts[hopeful])
        gains = _robust_gain(rows, residuals[hopeful], covariance[hopeful] ** 2 / pivots)
        gains += log_odds[best, hopeful] - 0.5 * np.log(pivots / score.ridge)
        gains[pivots <= ROUNDED * gram[best, best]] = -np.inf
        for node in hopeful[gains > 0]:
            fit(int(node), np.append(parents[node], best))
    return np.array(order, dtype=np.int64)


def _pivots(score: EqualNoiseScore, source: int, index: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return what is left of the quadratic form of a column given the parents of m nodes, the first ``counts`` (m,) in
    each row of ``index`` (m, k)."""
    pivots = np.full(len(counts), score.gram[source, source] + score.ridge)
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        chosen = index[rows, :count]
        shared = score.gram[source][chosen]
        matrices = score.gram[chosen[:, :, None], chosen[:, None, :]] + score.ridge * np.eye(count)
        pivots[rows] -= np.einsum("mk,mk->m", shared, np.linalg.solve(matrices, shared[:, :, None])[:, :, 0])
    return np.maximum(pivots, ROUNDED * score.gram[source, source])


def _robust_gain(rows: int, residual: np.ndarray | float, explained: np.ndarray | float) -> np.ndarray:
    """Return the gain in log likelihood, the variance fitted, when ``explained`` leaves the residual
    quadratic form."""
    left = np.maximum(1.0 - np.asarray(explained) / residual, 1e-12)
    return np.asarray(-0.5 * rows * np.log(left))


def _pruned_regression(
    score: EqualNoiseScore, log_odds: np.ndarray, target: int, parents: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Regress on the parents less those that the robust test finds superfluous: kept, weights, residual."""
    gram, rows = score.gram, score.rows
    while True:
        inverse = np.linalg.inv(gram[np.ix_(parents, parents)] + score.ridge * np.eye(parents.size))
        weights = inverse @ gram[parents, target]
        residual = max(float(gram[target, target] - weights @ gram[parents, target]), ROUNDED * gram[target, target])
        if not parents.size:
            return parents, weights, residual
        spread = np.diag(inverse)
        losses = 0.5 * rows * np.log1p(weights**2 / spread / residual) + 0.5 * np.log(spread * score.ridge)
        losses = losses + log_odds[parents, target]
        weakest = int(np.argmin(losses))
        if losses[weakest] >= 0:
            return parents, weights, residual
        parents = np.delete(parents, weakest)


def _forward_robust(
    score: EqualNoiseScore, log_odds: np.ndarray, target: int, parents: np.ndarray, pool: np.ndarray
) -> np.ndarray:
    """Add parents from the pool (d,) while the robust gain is worth it."""
    gram = score.gram
    squares = np.diag(gram)
    for _ in range(128):
        factor = np.linalg.cholesky(gram[np.ix_(parents, parents)] + score.ridge * np.eye(parents.size))
        projected = np.linalg.solve(factor, gram[parents])
        residual = max(gram[target, target] - projected[:, target] @ projected[:, target], ROUNDED * squares[target])
        covariance = gram[:, target] - projected.T @ projected[:, target]
        pivots = squares + score.ridge - np.einsum("kd,kd->d", projected, projected)
        apart = pivots > ROUNDED * squares
        pivots = np.where(apart, pivots, squares)
        gains = _robust_gain(score.rows, residual, covariance**2 / pivots) - 0.5 * np.log(pivots / score.ridge)
        gains = np.where(pool & apart, gains + log_odds[:, target], -np.inf)
        gains[parents] = -np.inf
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            return parents
        parents = np.append(parents, best)
    return parents
