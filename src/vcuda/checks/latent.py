"""Linear models with something hidden, fitted and searched, compiled.

Three models of the correlations of d columns, all beside a DAG with normal noise: nothing hidden; a factor, one hidden
cause with a load on several columns; errors of measurement, the same share of the variance of every column, so that the
DAG is one of values that nobody saw. Given the factor, or the values without errors, all columns are regressions on
their parents: the models are fitted by expectation and maximisation, and scored by BIC.

Graphs are bit masks: ``parents[j]`` has the bits of the parents of j, and bit d if the factor loads on it.
"""

from __future__ import annotations

import numpy as np

from vcuda.infer.admg.districts import count_bits, is_ancestor, places, regression
from vcuda.machine_code import compiled

# Rounds of a fit: of a changed graph, to compare it with others, and of one that is kept. Less gain than this ends it.
QUICK_FITS, FULL_FITS, LEAST_GAIN = 6, 150, 0.05
# A change of the graph must gain so many nats.
LEAST_STEP = 0.01
# The load with which a column joins the others.
FIRST_LOAD = 0.1
# Relative to the variance of a column: a fit leaves no less noise.
LEAST_NOISE = 1e-3


@compiled
def expected_with_factor(
    correlations: np.ndarray, loads: np.ndarray, weights: np.ndarray, noise: np.ndarray, moments: np.ndarray
) -> float:
    """Fill in the moments ``(d + 1, d + 1)`` of columns and factor given the table; returns the log likelihood of a
    row, times -2."""
    d = len(noise)
    precision, log_det = 0.0, 0.0
    for j in range(d):
        precision += loads[j] * loads[j] / noise[j]
        log_det += np.log(noise[j])
    left = 1.0 / (1.0 + precision)
    # What each column says of the factor.
    says = np.zeros(d)
    for j in range(d):
        own = loads[j] / noise[j]
        says[j] += own
        for i in range(d):
            says[i] -= weights[i, j] * own
    total, squared = log_det - np.log(left), 0.0
    for i in range(d):
        sums = 0.0
        for j in range(d):
            moments[i, j] = correlations[i, j]
            sums += correlations[i, j] * says[j]
        moments[i, d] = moments[d, i] = left * sums
        squared += says[i] * sums
    moments[d, d] = left * left * squared + left
    for j in range(d):
        # The square of the residual of a column.
        own = 0.0
        for a in range(d):
            first = (1.0 if a == j else 0.0) - weights[a, j]
            if first != 0.0:
                for b in range(d):
                    second = (1.0 if b == j else 0.0) - weights[b, j]
                    own += first * second * correlations[a, b]
        total += own / noise[j]
    return total - left * squared


@compiled
def expected_without_errors(
    correlations: np.ndarray, share: float, weights: np.ndarray, noise: np.ndarray, moments: np.ndarray
) -> float:
    """Fill in the moments ``(d, d)`` of the values without errors given the table; returns the log likelihood of a row,
    times -2."""
    d = len(noise)
    # The precision of these values, those of the row known, and its inverse by elimination.
    precision, inverse = np.zeros((d, d)), np.zeros((d, d))
    total = d * np.log(share)
    for j in range(d):
        total += np.log(noise[j])
        for a in range(d):
            first = (1.0 if a == j else 0.0) - weights[a, j]
            if first != 0.0:
                for b in range(d):
                    precision[a, b] += first * ((1.0 if b == j else 0.0) - weights[b, j]) / noise[j]
    for j in range(d):
        precision[j, j] += 1.0 / share
        inverse[j, j] = 1.0
    for j in range(d):
        pivot = precision[j, j]
        total += np.log(pivot)
        for b in range(d):
            precision[j, b] /= pivot
            inverse[j, b] /= pivot
        for a in range(d):
            factor = precision[a, j]
            if a != j and factor != 0.0:
                for b in range(d):
                    precision[a, b] -= factor * precision[j, b]
                    inverse[a, b] -= factor * inverse[j, b]
    half = precision
    for a in range(d):
        total += correlations[a, a] / share
        for b in range(d):
            sums = 0.0
            for m in range(d):
                sums += inverse[a, m] * correlations[m, b]
            half[a, b] = sums / share
        total -= half[a, a] / share
    for a in range(d):
        for b in range(a + 1):
            sums = 0.0
            for m in range(d):
                sums += half[a, m] * inverse[m, b]
            moments[a, b] = moments[b, a] = sums / share + inverse[a, b]
    return total


@compiled
def fit(
    correlations: np.ndarray,
    rows: int,
    share: float,
    parents: np.ndarray,
    loads: np.ndarray,
    weights: np.ndarray,
    noise: np.ndarray,
    most: int,
) -> float:
    """Fit a graph from the given numbers, which are changed in place; returns its BIC in nats.

    ``share`` is that of the errors; where it is zero and no column has a load, nothing is hidden.
    """
    d = len(noise)
    parameters, loaded = d, 0
    for j in range(d):
        parameters += count_bits(parents[j])
        loaded += (parents[j] >> d) & 1
    if share > 0.0:
        parameters += 1
    hidden = share > 0.0 or loaded > 0
    moments, work, solved = np.zeros((d + 1, d + 1)), np.empty((d + 1, d + 1)), np.empty(d + 1)
    best = np.inf
    for _ in range(most if hidden else 2):
        if share > 0.0:
            now = expected_without_errors(correlations, share, weights, noise, moments)
        else:
            now = expected_with_factor(correlations, loads, weights, noise, moments)
        if hidden and 0.5 * rows * (best - now) < LEAST_GAIN:
            best = min(best, now)
            break
        best = now
        # Loads are those of a factor of variance one; to let it vary in the fit and to rescale it is faster.
        scale = np.sqrt(moments[d, d])
        for j in range(d):
            above = places(parents[j])
            noise[j] = max(regression(j, above, moments, solved, work), LEAST_NOISE)
            loads[j] = 0.0
            for i in range(d):
                weights[i, j] = 0.0
            for a in range(len(above)):
                if above[a] == d:
                    loads[j] = solved[a] * scale
                else:
                    weights[above[a], j] = solved[a]
    return -0.5 * rows * best - 0.5 * np.log(rows) * parameters


@compiled
def closes_a_cycle(parents: np.ndarray, source: int, target: int, visible: np.ndarray) -> bool:
    """Whether an edge would, in place of the one the other way round if there is one; ``visible`` is room for the graph
    without the factor."""
    nodes = len(parents)
    for j in range(nodes):
        visible[j] = parents[j] & ((1 << nodes) - 1)
    visible[source] &= ~(1 << target)
    return is_ancestor(visible, target, source)


@compiled
def climb(
    correlations: np.ndarray,
    rows: int,
    share: float,
    least_loads: int,
    parents: np.ndarray,
    loads: np.ndarray,
    weights: np.ndarray,
    noise: np.ndarray,
) -> float:
    """Change the graph by the best of all additions, removals and reversals of an edge, and of a load, while BIC gains.

    Everything is changed in place. Fewer than ``least_loads`` columns have no load; if it is zero, no load is added.
    """
    d = len(noise)
    visible, new_parents, best_parents = np.empty(d, np.int64), np.empty(d, np.int64), np.empty(d, np.int64)
    new_loads, new_weights, new_noise = np.empty(d), np.empty((d, d)), np.empty(d)
    score = fit(correlations, rows, share, parents, loads, weights, noise, FULL_FITS)
    for _ in range(d * d):
        best, loaded = score + LEAST_STEP, 0
        for j in range(d):
            loaded += (parents[j] >> d) & 1
        found = False
        for j in range(d):
            for i in range(d + 1 if least_loads else d):
                present = (parents[j] >> i) & 1 == 1
                if i == j or (i == d and present and loaded <= least_loads):
                    continue
                if i < d and not present and ((parents[i] >> j) & 1 == 1 or closes_a_cycle(parents, i, j, visible)):
                    continue
                for turn in range(2 if present and i < d else 1):
                    if turn and closes_a_cycle(parents, j, i, visible):
                        continue
                    for a in range(d):
                        new_parents[a], new_loads[a], new_noise[a] = parents[a], loads[a], noise[a]
                        for b in range(d):
                            new_weights[a, b] = weights[a, b]
                    new_parents[j] ^= 1 << i
                    if i == d:
                        new_loads[j] = 0.0 if present else FIRST_LOAD
                    else:
                        new_weights[i, j] = 0.0
                    if turn:
                        new_parents[i] |= 1 << j
                    gained = fit(correlations, rows, share, new_parents, new_loads, new_weights, new_noise, QUICK_FITS)
                    if gained > best:
                        best, found = gained, True
                        for a in range(d):
                            best_parents[a] = new_parents[a]
        if not found:
            break
        for j in range(d):
            for i in range(d):
                if not (best_parents[j] >> i) & 1:
                    weights[i, j] = 0.0
            if (best_parents[j] ^ parents[j]) >> d:
                loads[j] = 0.0 if (parents[j] >> d) & 1 else FIRST_LOAD
        for j in range(d):
            parents[j] = best_parents[j]
        score = fit(correlations, rows, share, parents, loads, weights, noise, FULL_FITS)
    return score
