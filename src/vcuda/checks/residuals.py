"""Checks of the residuals, column by column and pair by pair: shape, spread, curves, dependence, what was predicted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtr, chdtrc, ndtr

from vcuda.checks.statistics import added_features_test, moments_test, normal_scores, smallest, two_sided
from vcuda.checks.subject import Subject

# Skewness and excess kurtosis of residuals within these change nothing that matters: what is left of exponential and
# uniform noise by a model whose noise may have any shape.
SKEWNESS, LIGHT, HEAVY = 0.8, -1.0, 1.5
# The same for the share of variance that causes explain of a residual, or of its size.
EXPLAINED = 0.05
# And for correlations between residuals of two columns.
CORRELATION = 0.15
# And for the ratio of the spread of the residuals to what the model expects.
RATIO = 1.15
# Residuals that hardly any table of normal ones has.
OUTLIER = 5.0
# Causes whose products are looked at, and all whose powers are.
MOST_PRODUCTS, MOST_CAUSES = 4, 8


class Departure(NamedTuple):
    """One column, or a pair, in which the rows differ from the model.

    ``p_value`` is that of this column alone. ``matters`` says whether the departure is large enough to change anything,
    ``words`` how large it is.
    """

    columns: tuple[int, ...]
    p_value: float
    statistic: float
    matters: bool
    words: str


class Tested(NamedTuple):
    """What one check has tested: how many p-values there are, the smallest after their correction, and departures."""

    p_value: float | None
    tests: int
    departures: list[Departure]


def _tested(departures: list[Departure]) -> Tested:
    return Tested(smallest([one.p_value for one in departures]), len(departures), departures)


def shape(subject: Subject) -> Tested:
    """Whether residuals are skewed or have heavy or light tails."""
    found = []
    for column in subject.columns:
        skewness, kurtosis, p_value = moments_test(subject.residuals[:, column])
        matters = abs(skewness) > SKEWNESS or not LIGHT < kurtosis < HEAVY
        words = f"skewness {skewness:.2g}, excess kurtosis {kurtosis:.2g}"
        statistic = skewness if abs(skewness) > SKEWNESS else kurtosis
        found.append(Departure((column,), p_value, statistic, matters, words))
    return _tested(found)


def _causes(subject: Subject, column: int) -> np.ndarray:
    """The parents of a column on the scale of ranks ``(n, k)``, not too many."""
    return subject.scores[:, subject.parents(column)[:MOST_CAUSES]]


def spread(subject: Subject) -> Tested:
    """Whether the size of residuals depends on the causes."""
    found, rng = [], subject.rng(1)
    for column in subject.columns:
        causes = _causes(subject, column)
        if not causes.shape[1]:
            continue
        size = normal_scores(np.abs(subject.residuals[:, column]), rng)
        features = np.concatenate([causes, causes**2 - 1], axis=1)
        share, p_value = added_features_test(size, np.zeros((subject.n, 0)), features)
        words = f"causes explain {share:.0%} of the size of its residuals"
        found.append(Departure((column,), p_value, share, share > EXPLAINED, words))
    return _tested(found)


def curves(subject: Subject) -> Tested:
    """Whether residuals still depend on the causes, by curves or products."""
    found = []
    for column in subject.columns:
        causes = _causes(subject, column)
        if not causes.shape[1]:
            continue
        k = min(causes.shape[1], MOST_PRODUCTS)
        products = [causes[:, a] * causes[:, b] for a in range(k) for b in range(a)]
        added = np.column_stack([causes**2, causes**3, *products])
        own = subject.scaled[:, subject.parents(column)[:MOST_CAUSES]]
        share, p_value = added_features_test(subject.residuals[:, column], np.column_stack([own, causes]), added)
        words = f"curves explain {share:.0%} of its residuals"
        found.append(Departure((column,), p_value, share, share > EXPLAINED, words))
    return _tested(found)


def pairs(subject: Subject) -> Tested:
    """Whether residuals of different columns, or their sizes, go together."""
    columns, rng = list(subject.columns), subject.rng(2)
    own = np.stack([normal_scores(subject.residuals[:, k], rng) for k in columns], axis=1)
    size = np.stack([normal_scores(np.abs(subject.residuals[:, k]), rng) for k in columns], axis=1)
    first, second = np.triu_indices(len(columns), 1)
    # Residuals of an effect do not go with its causes: the fit has seen to that.
    apart = ~(subject.graph | subject.graph.T)[np.ix_(columns, columns)][first, second]
    found = []
    for block, what, asked in ((own, "residuals", apart), (size, "sizes of residuals", np.ones_like(apart))):
        centred = block - block.mean(axis=0)
        unit = centred / np.sqrt((centred**2).sum(axis=0))
        correlation = (unit.T @ unit)[first, second]
        p_values = two_sided(correlation * np.sqrt(subject.n - 1))
        found += [
            Departure(
                (columns[a], columns[b]),
                float(p_values[t]),
                float(correlation[t]),
                bool(abs(correlation[t]) > CORRELATION),
                f"the {what} have a correlation of {correlation[t]:.2f}",
            )
            for t, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True))
            if asked[t]
        ]
    return _tested(found)


def predictive(subject: Subject) -> Tested:
    """Numbers of the rows that the model should predict: the spread of each column, and its largest residual."""
    found, n = [], subject.n
    for column in subject.columns:
        own = subject.residuals[:, column]
        squares = float((own**2).sum())
        p_spread = 2 * float(min(chdtr(n, squares), chdtrc(n, squares)))
        largest = float(np.abs(own).max())
        p_largest = float(-np.expm1(n * np.log1p(-2 * ndtr(-largest))))
        p_value = smallest([p_spread, p_largest])
        ratio = float(np.sqrt(squares / n))
        if p_largest < p_spread:
            words = f"a value lies {largest:.1f} standard deviations from what is expected"
            found.append(Departure((column,), p_value, largest, largest > OUTLIER, words))
        else:
            words = f"its spread is {ratio:.2f} times what is expected"
            matters = ratio > RATIO or ratio < 1 / RATIO
            found.append(Departure((column,), p_value, ratio, matters, words))
    return _tested(found)
