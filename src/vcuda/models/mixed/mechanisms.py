"""Mechanisms drawn from the posterior: a column given its parents, to expect its value or to simulate it.

Parents and simulated values are in the units of the score: as in the table, and logarithms where these were taken.
Simulation takes one number between 0 and 1 for each row and returns that quantile, so the same numbers can be used for
every setting of a cause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, log_ndtr, nbdtrik, ndtr, ndtri, pdtr, pdtrik

from vcuda.models.glm.likelihoods import Sieve
from vcuda.models.mixed.ranks import NormalScores

# Of parents (n, k): location and scale of every row, both (n,).
LocationAndScale = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
# Quantiles beyond these are not simulated.
LEAST_CHANCE = 1e-6
# Noise of any shape: its distribution function is tabulated here, in units of its scale.
GRID = np.concatenate([-np.geomspace(60.0, 6.0, 400), np.linspace(-6.0, 6.0, 1601)[1:-1], np.geomspace(6.0, 60.0, 400)])
# The mean of an exponential is taken over so many quantiles: the widest components, of which few rows speak, have
# exponentials of a mean that no table shows.
QUANTILES = (np.arange(400) + 0.5) / 400


class Bounds(NamedTuple):
    """Where simulated values may lie: the range of the column in the table, and half of it on each side. A function
    that was learned from the table says nothing far away from it."""

    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> Bounds:
        low, high = float(values.min()), float(values.max())
        return cls(low - 0.5 * (high - low), high + 0.5 * (high - low))


class Noise:
    """The shape of the noise of a number, in units of its scale: normal, or a mixture with the sieve's components.

    Parameters
    ----------
    logits
        (K,) of the components; None for normal noise.
    """

    def __init__(self, logits: np.ndarray | None = None) -> None:
        self.shares = None if logits is None else np.exp(logits - np.logaddexp.reduce(logits))

    @property
    def mean(self) -> float:
        return 0.0 if self.shares is None else float(self.shares @ Sieve.means)

    def quantile(self, chances: np.ndarray) -> np.ndarray:
        """The noise below which it lies with each of these probabilities."""
        kept = np.clip(chances, LEAST_CHANCE, 1 - LEAST_CHANCE)
        return ndtri(kept) if self.shares is None else np.interp(kept, self._below, GRID)

    def tails(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The probabilities of less and of more noise than each of the values (n,)."""
        if self.shares is None:
            return ndtr(values), ndtr(-values)
        away = (values[:, None] - Sieve.means) / Sieve.scales
        return ndtr(away) @ self.shares, ndtr(-away) @ self.shares

    @cached_property
    def _below(self) -> np.ndarray:
        assert self.shares is not None
        return np.asarray(ndtr((GRID[:, None] - Sieve.means) / Sieve.scales) @ self.shares)

    def mean_exponential(self, location: np.ndarray, scale: np.ndarray, bounds: Bounds) -> np.ndarray:
        """E exp(location + scale * noise) for each location and scale (n,), of values that end at the bounds.

        Without bounds the mean is that of the few rows that lie beyond everything the table showed, and infinite where
        the scale is large.
        """
        if self.shares is None:
            return _mean_lognormal(location, scale, bounds)
        total = np.zeros_like(location)
        for point in self.quantile(QUANTILES).tolist():
            total += np.exp(np.clip(location + scale * point, *bounds))
        return total / QUANTILES.size


def _mean_lognormal(location: np.ndarray, scale: np.ndarray, bounds: Bounds) -> np.ndarray:
    """E exp(x) of normal x (n,) that ends at the bounds."""
    low, high = ((bound - location) / scale for bound in bounds)
    # Weighted by exp(x), x is normal again, its location scale**2 higher: what lies between the bounds, by the tail in
    # which differences keep their digits, and in logarithms, since the mean without bounds may be infinite.
    lower, upper = low - scale, high - scale
    lower, upper = np.where(lower > 0, -upper, lower), np.where(lower > 0, -lower, upper)
    between = log_ndtr(upper) + np.log(-np.expm1(log_ndtr(lower) - log_ndtr(upper)))
    inside = np.exp(location + 0.5 * scale**2 + between)
    return np.asarray(np.exp(bounds.low) * ndtr(low) + inside + np.exp(bounds.high) * ndtr(-high))


@dataclass(frozen=True, eq=False)
class NumberMechanism:
    """A number: location and scale, both functions of the parents (n, k), and noise.

    Parameters
    ----------
    logarithm
        The number is the logarithm of the column.
    """

    location_and_scale: LocationAndScale
    noise: Noise
    bounds: Bounds
    logarithm: bool = False
    slopes: None = None
    levels: None = None

    def expected(self, inputs: np.ndarray) -> np.ndarray:
        """The expected value (n,) in the user's units."""
        location, scale = self.location_and_scale(inputs)
        if not self.logarithm:
            return location + scale * self.noise.mean
        return self.noise.mean_exponential(location, scale, self.bounds)

    def simulate(self, inputs: np.ndarray, chances: np.ndarray) -> np.ndarray:
        location, scale = self.location_and_scale(inputs)
        return np.clip(location + scale * self.noise.quantile(chances), *self.bounds)

    noise_is_identified = True

    def noise_of(self, inputs: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The noise (n,) of the values (n,), in units of its scale."""
        location, scale = self.location_and_scale(inputs)
        return (values - location) / scale

    def with_noise(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        location, scale = self.location_and_scale(inputs)
        return location + scale * noise

    def any_noise(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        return self.noise.quantile(rng.random(rows))


@dataclass(frozen=True, eq=False)
class NormalScoreMechanism:
    """A number by the normal scores of its ranks: their location and scale, functions of the parents, and normal
    noise."""

    location_and_scale: LocationAndScale
    normal_scores: NormalScores
    bounds: Bounds
    logarithm: bool = False
    slopes: None = None
    levels: None = None

    noise_is_identified = True

    def expected(self, inputs: np.ndarray) -> np.ndarray:
        """The expected value (n,) in the user's units, of values that end at the bounds."""
        location, scale = self.location_and_scale(inputs)
        total = np.zeros_like(location)
        for point in ndtri(QUANTILES).tolist():
            values = np.clip(self.normal_scores.to_values(location + scale * point), *self.bounds)
            total += np.exp(values) if self.logarithm else values
        return total / QUANTILES.size

    def simulate(self, inputs: np.ndarray, chances: np.ndarray) -> np.ndarray:
        kept = np.clip(chances, LEAST_CHANCE, 1 - LEAST_CHANCE)
        return np.clip(self.with_noise(inputs, ndtri(kept)), *self.bounds)

    def noise_of(self, inputs: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The noise (n,) of the values (n,), in units of its scale."""
        location, scale = self.location_and_scale(inputs)
        return (self.normal_scores.of_values(values) - location) / scale

    def with_noise(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        location, scale = self.location_and_scale(inputs)
        return self.normal_scores.to_values(location + scale * noise)

    def any_noise(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        return rng.standard_normal(rows)


class _ByQuantile:
    """The noise of a column with steps is a quantile, of which a value leaves an interval; one of it is drawn."""

    noise_is_identified = False

    def interval(self, inputs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest quantile, both (n,), that make the values (n,) of parents (n, k)."""
        raise NotImplementedError

    def simulate(self, inputs: np.ndarray, chances: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def noise_of(self, inputs: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        low, high = self.interval(inputs, values)
        return low + rng.random(low.size) * (high - low)

    def with_noise(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return self.simulate(inputs, noise)

    def any_noise(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        return rng.random(rows)


@dataclass(frozen=True, eq=False)
class CountMechanism(_ByQuantile):
    """A count: its mean, a function of the parents (n, k), and a size if it varies more than a Poisson one."""

    mean: Callable[[np.ndarray], np.ndarray]
    size: float | None
    bounds: Bounds
    slopes: None = None
    levels: None = None

    def expected(self, inputs: np.ndarray) -> np.ndarray:
        """The expected count (n,), at most the largest that is simulated."""
        return np.minimum(self.mean(inputs), np.ceil(self.bounds.high))

    def simulate(self, inputs: np.ndarray, chances: np.ndarray) -> np.ndarray:
        mean = self.mean(inputs)
        kept = np.clip(chances, LEAST_CHANCE, 1 - LEAST_CHANCE)
        found = pdtrik(kept, mean) if self.size is None else nbdtrik(kept, self.size, self.size / (self.size + mean))
        # Far beyond the table the quantile may not be found; its place is the bound.
        return np.clip(np.ceil(np.nan_to_num(found, nan=self.bounds.high)), 0.0, np.ceil(self.bounds.high))

    def interval(self, inputs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = self.mean(inputs)

        def below(counts: np.ndarray) -> np.ndarray:
            known = np.maximum(counts, 0.0)
            if self.size is None:
                found = pdtr(known, mean)
            else:
                found = betainc(self.size, known + 1.0, self.size / (self.size + mean))
            return np.where(counts < 0, 0.0, found)

        return below(values - 1.0), below(values)


@dataclass(frozen=True, eq=False)
class CodedMechanism(_ByQuantile):
    """Yes/no, ordered or a label: the probabilities (n, L) of its ``levels`` (L,), a function of the parents (n, k)."""

    probabilities: Callable[[np.ndarray], np.ndarray]
    levels: np.ndarray
    slopes: None = None

    def expected(self, inputs: np.ndarray) -> np.ndarray:
        """The expected value (n,), if the levels are numbers."""
        return self.probabilities(inputs) @ self.levels

    def simulate(self, inputs: np.ndarray, chances: np.ndarray) -> np.ndarray:
        below = np.cumsum(self.probabilities(inputs), axis=1)[:, :-1]
        return np.asarray(self.levels[(below < chances[:, None]).sum(axis=1)])

    def interval(self, inputs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shares = self.probabilities(inputs)
        ends = np.concatenate([np.zeros((len(shares), 1)), np.cumsum(shares, axis=1)], axis=1)
        place, rows = np.searchsorted(self.levels, values), np.arange(len(shares))
        return ends[rows, place], ends[rows, place + 1]


MixedMechanism = NumberMechanism | NormalScoreMechanism | CountMechanism | CodedMechanism
