"""Small tests with known error rates: ranks, moments, regressions. All take at most a few thousand rows.

Their reference distributions hold for residuals of fitted models: they do not depend on the mean and the spread that
were fitted, and what the fit has removed already is removed from the alternatives too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, fdtrc, ndtr, ndtri


def normal_scores(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The ranks of values ``(n,)`` as normal quantiles; equal values in random order, missing ones drawn."""
    known = ~np.isnan(values)
    scores = rng.standard_normal(values.size)
    own = values[known]
    order = np.lexsort((rng.random(own.size), own))
    ranks = np.empty(own.size)
    ranks[order] = np.arange(own.size)
    scores[known] = ndtri((ranks + 0.5) / max(own.size, 1))
    return scores


def two_sided(z: float | np.ndarray) -> np.ndarray:
    """The p-value of a standard normal number."""
    return np.asarray(2.0 * ndtr(-np.abs(z)))


class Moments(NamedTuple):
    """Skewness and excess kurtosis of a sample, and the p-value of both together under a normal distribution."""

    skewness: float
    kurtosis: float
    p_value: float


def moments_test(values: np.ndarray) -> Moments:
    """D'Agostino's test of skewness and Anscombe's of kurtosis, as one with two degrees of freedom."""
    n = values.size
    centred = values - values.mean()
    second = float(np.mean(centred**2))
    if n < 20 or second <= 0:
        return Moments(0.0, 0.0, 1.0)
    skewness = float(np.mean(centred**3)) / second**1.5
    kurtosis = float(np.mean(centred**4)) / second**2
    # Skewness: Johnson's transformation to normality.
    y = skewness * np.sqrt((n + 1) * (n + 3) / (6.0 * (n - 2)))
    beta = 3.0 * (n**2 + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2.0) * (n + 5) * (n + 7) * (n + 9))
    w = -1 + np.sqrt(2 * (beta - 1))
    z_skew = np.arcsinh(y / np.sqrt(2.0 / (w - 1))) / np.sqrt(0.5 * np.log(w))
    # Kurtosis: the cube root of a chi-squared variable.
    mean = 3.0 * (n - 1) / (n + 1)
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    x = (kurtosis - mean) / np.sqrt(variance)
    root = 6.0 * (n**2 - 5 * n + 2) / ((n + 7) * (n + 9)) * np.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2.0) * (n - 3)))
    a = 6.0 + 8.0 / root * (2.0 / root + np.sqrt(1 + 4.0 / root**2))
    low = 1 + x * np.sqrt(2 / (a - 4.0))
    term = np.sign(low) * np.cbrt((1 - 2.0 / a) / max(abs(low), 1e-12))
    z_kurt = (1 - 2.0 / (9 * a) - term) / np.sqrt(2.0 / (9 * a))
    return Moments(skewness, kurtosis - 3.0, float(chdtrc(2, z_skew**2 + z_kurt**2)))


class Explained(NamedTuple):
    """The share of variance that features explain beyond others, and its p-value."""

    share: float
    p_value: float


def added_features_test(response: np.ndarray, base: np.ndarray, added: np.ndarray) -> Explained:
    """Whether features ``added`` ``(n, q)`` explain a response ``(n,)`` beyond ``base`` ``(n, p)`` and a constant.

    The F test of a regression. Where the response is a residual of a regression on ``base``, it is what the test of the
    values themselves would be.
    """
    n = response.size
    start = _basis(np.column_stack([np.ones(n), base]))
    left = response - start @ (start.T @ response)
    extra = added - start @ (start.T @ added)
    basis = _basis(extra)
    freedom = n - start.shape[1] - basis.shape[1]
    total = float(left @ left)
    if basis.shape[1] == 0 or freedom < 10 or total <= 0:
        return Explained(0.0, 1.0)
    explained = float(((basis.T @ left) ** 2).sum())
    ratio = explained / basis.shape[1] / max((total - explained) / freedom, 1e-300)
    return Explained(explained / total, float(fdtrc(basis.shape[1], freedom, ratio)))


def _basis(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the columns ``(n, p)``, without those that are combinations of others."""
    lengths = np.sqrt((columns**2).sum(axis=0))
    used = columns[:, lengths > 1e-9 * max(1.0, float(lengths.max(initial=0.0)))]
    if not used.shape[1]:
        return np.zeros((len(columns), 0))
    left, sizes, _ = np.linalg.svd(used / np.sqrt((used**2).sum(axis=0)), full_matrices=False)
    return np.asarray(left[:, sizes > 1e-6])


def smallest(p_values: Sequence[float] | np.ndarray) -> float:
    """The p-value of the smallest of several independent p-values (Šidák)."""
    found = np.asarray(p_values, dtype=np.float64)
    return corrected(float(found.min()), found.size) if found.size else 1.0


def corrected(p_value: float, tests: int) -> float:
    """How often the smallest of so many independent p-values would be as small."""
    return float(-np.expm1(tests * np.log1p(-min(p_value, 1 - 1e-16))))
