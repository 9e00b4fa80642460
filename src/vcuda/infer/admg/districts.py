"""The score of a graph with bidirected edges, district by district, compiled.

A bidirected edge i <-> j stands for a hidden common cause: the noises of i and j go together. Nodes that such edges
join are a district. The likelihood of a linear Gaussian model is a product over districts D of p(x_D | parents of D),
each a seemingly unrelated regression, which is maximised by residual iterative conditional fitting (Drton, Eichler and
Richardson, 2009): node by node a regression on its parents and on the residuals of its spouses, given the rest. Each
district is scored by its maximum less half a log number of rows for each parameter (BIC). A district of one node is one
ordinary regression.

Graphs are bit masks: ``parents[j]`` has the bits of the parents of j, ``spouses[j]`` of those that bidirected edges
join to it.
"""

from __future__ import annotations

import numpy as np

from vcuda.machine_code import compiled

# Sweeps of the fit of a district, and the gain in nats below which it ends.
MOST_FITS, GAIN = 60, 3e-3
# Relative to the variance of a column: less is not left of it.
LEAST_VARIANCE = 1e-9


@compiled
def count_bits(mask: int) -> int:
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@compiled
def places(mask: int) -> np.ndarray:
    """The nodes of a mask, in order."""
    found = np.empty(count_bits(mask), np.int64)
    number, node = 0, 0
    while mask:
        if mask & 1:
            found[number] = node
            number += 1
        mask >>= 1
        node += 1
    return found


@compiled
def district_of(spouses: np.ndarray, node: int) -> int:
    """The mask of all nodes that bidirected edges join to a node, itself among them."""
    reached, waiting = 1 << node, 1 << node
    while waiting:
        new = 0
        for other in places(waiting):
            new |= spouses[other]
        waiting = new & ~reached
        reached |= waiting
    return reached


@compiled
def is_ancestor(parents: np.ndarray, node: int, of: int) -> bool:
    """Whether there is a directed path from a node to another."""
    reached, waiting = 0, parents[of]
    while waiting:
        reached |= waiting
        new = 0
        for other in places(waiting):
            new |= parents[other]
        waiting = new & ~reached
    return (reached >> node) & 1 == 1


@compiled
def solve(matrix: np.ndarray, values: np.ndarray, size: int) -> None:
    """Solve a positive definite system of the first rows in place, by Cholesky; the solution takes the place of values.

    What depends on other columns but for rounding gets no weight.
    """
    for j in range(size):
        pivot = matrix[j, j]
        for m in range(j):
            pivot -= matrix[j, m] * matrix[j, m]
        pivot = np.sqrt(pivot) if pivot > LEAST_VARIANCE * matrix[j, j] else np.inf
        for i in range(j + 1, size):
            total = matrix[i, j]
            for m in range(j):
                total -= matrix[i, m] * matrix[j, m]
            matrix[i, j] = total / pivot
        matrix[j, j] = pivot
    for j in range(size):
        total = values[j]
        for m in range(j):
            total -= matrix[j, m] * values[m]
        values[j] = total / matrix[j, j]
    for step in range(size):
        j = size - 1 - step
        total = values[j]
        for m in range(j + 1, size):
            total -= matrix[m, j] * values[m]
        values[j] = total / matrix[j, j]


@compiled
def regression(node: int, above: np.ndarray, covariance: np.ndarray, weights: np.ndarray, work: np.ndarray) -> float:
    """The variance that some columns leave of a node; ``weights`` are theirs."""
    for a in range(len(above)):
        weights[a] = covariance[above[a], node]
        for b in range(len(above)):
            work[a, b] = covariance[above[a], above[b]]
    solve(work, weights, len(above))
    variance = covariance[node, node]
    for a in range(len(above)):
        variance -= weights[a] * covariance[above[a], node]
    return max(variance, LEAST_VARIANCE * covariance[node, node])


@compiled
def district_score(district: int, parents: np.ndarray, spouses: np.ndarray, covariance: np.ndarray, rows: int) -> float:
    """Maximal log likelihood of a district given its parents, less the cost of its parameters, without a constant."""
    own, nodes = places(district), len(parents)
    parameters = len(own)
    for node in own:
        parameters += count_bits(parents[node])
    cost = 0.5 * np.log(rows)
    if len(own) == 1:
        above = places(parents[own[0]])
        variance = regression(own[0], above, covariance, np.empty(nodes), np.empty((nodes, nodes)))
        return -0.5 * rows * (np.log(variance) + 1.0) - cost * parameters
    joined = 0
    for node in own:
        joined += count_bits(spouses[node])
    return fit_district(own, parents, spouses, covariance, rows) - cost * (parameters + joined // 2)


@compiled
def fit_district(own: np.ndarray, parents: np.ndarray, spouses: np.ndarray, covariance: np.ndarray, rows: int) -> float:
    """The maximal log likelihood of a district of the nodes ``own`` (k,), by regressions in turn.

    The noise covariance is kept as its inverse and log determinant, both of which a change of one row updates.
    """
    k, nodes = len(own), len(parents)
    weights, work = np.empty(2 * nodes), np.empty((2 * nodes, 2 * nodes))
    # Products (k, nodes) of each residual with all columns, and (k, k) of the residuals.
    with_columns, spread = np.empty((k, nodes)), np.empty((k, k))
    slopes = np.zeros((k, nodes))
    precision, log_det = np.zeros((k, k)), 0.0
    pseudo, own_part = np.empty((k, k)), np.empty(k)
    for j in range(k):
        above = places(parents[own[j]])
        variance = regression(own[j], above, covariance, weights, work)
        for a in range(len(above)):
            slopes[j, above[a]] = weights[a]
        precision[j, j], log_det = 1.0 / variance, log_det + np.log(variance)
        _residual(j, own, above, slopes, covariance, with_columns)
    for j in range(k):
        _products(j, own, places(parents[own[j]]), slopes, with_columns, spread)
    best = -np.inf
    for _ in range(MOST_FITS):
        for i in range(k):
            above, mine = places(parents[own[i]]), spouses[own[i]]
            # The precision of the others' noise alone.
            for a in range(k):
                for b in range(k):
                    pseudo[a, b] = precision[a, b] - precision[a, i] * precision[i, b] / precision[i, i]
            log_det += np.log(precision[i, i])
            width = len(above)
            mates = np.empty(count_bits(mine), np.int64)
            for m in range(k):
                if (mine >> own[m]) & 1:
                    mates[width - len(above)] = m
                    width += 1
            for a in range(width):
                for b in range(a + 1):
                    if a < len(above):
                        work[a, b] = covariance[above[a], above[b]]
                    elif b < len(above):
                        total = 0.0
                        for m in range(k):
                            total += pseudo[mates[a - len(above)], m] * with_columns[m, above[b]]
                        work[a, b] = total
                    else:
                        total = 0.0
                        for m in range(k):
                            for other in range(k):
                                total += (
                                    pseudo[mates[a - len(above)], m]
                                    * spread[m, other]
                                    * pseudo[other, mates[b - len(above)]]
                                )
                        work[a, b] = total
                    work[b, a] = work[a, b]
                if a < len(above):
                    weights[a] = covariance[above[a], own[i]]
                else:
                    total = 0.0
                    for m in range(k):
                        total += pseudo[mates[a - len(above)], m] * with_columns[m, own[i]]
                    weights[a] = total
            target = weights[:width].copy()
            solve(work, weights, width)
            left = covariance[own[i], own[i]]
            for a in range(width):
                left -= weights[a] * target[a]
            left = max(left, LEAST_VARIANCE * covariance[own[i], own[i]])
            for a in range(len(above)):
                slopes[i, above[a]] = weights[a]
            # What the others' noise says of this one's: its row of the covariance, and the inverse that follows.
            for m in range(k):
                total = 0.0
                for a in range(len(mates)):
                    total += pseudo[m, mates[a]] * weights[len(above) + a]
                own_part[m] = total
            for a in range(k):
                for b in range(k):
                    precision[a, b] = pseudo[a, b] + own_part[a] * own_part[b] / left
            for m in range(k):
                precision[m, i] = precision[i, m] = -own_part[m] / left
            precision[i, i] = 1.0 / left
            log_det += np.log(left)
            _residual(i, own, above, slopes, covariance, with_columns)
            _products(i, own, above, slopes, with_columns, spread)
        trace = 0.0
        for a in range(k):
            for b in range(k):
                trace += precision[a, b] * spread[b, a]
        now = -0.5 * rows * (log_det + trace)
        if not now - best > GAIN:
            return max(now, best)
        best = now
    return best


@compiled
def _residual(
    j: int, own: np.ndarray, above: np.ndarray, slopes: np.ndarray, covariance: np.ndarray, with_columns: np.ndarray
) -> None:
    """The products of one residual with all columns."""
    for column in range(len(covariance)):
        total = covariance[own[j], column]
        for a in above:
            total -= slopes[j, a] * covariance[a, column]
        with_columns[j, column] = total


@compiled
def _products(
    j: int, own: np.ndarray, above: np.ndarray, slopes: np.ndarray, with_columns: np.ndarray, spread: np.ndarray
) -> None:
    """The products of one residual with all residuals."""
    for m in range(len(own)):
        total = with_columns[m, own[j]]
        for a in above:
            total -= slopes[j, a] * with_columns[m, a]
        spread[m, j] = spread[j, m] = total
