"""What nonlinear families share: a noise variance of its own for every node, integrated out.

A function is as large as the noise lets it be: y ~ N(0, sigma2 (a K + 1 1' + I)), sigma2 inverse gamma, so that the
evidence has a closed form; it is averaged over the ``amplitudes`` a. Columns are standardised, so that units do not
matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from vcuda.errors import ConfigError
from vcuda.models.prediction import Mechanism, Predicted, Tails, log_student, student_tails


@dataclass(frozen=True)
class NoiseIntegrated:
    """The closed form of the evidence when the noise variance is inverse gamma (``shape``, ``scale``)."""

    rows: int
    shape: float
    scale: float

    def log_evidence(self, residual: np.ndarray, log_det: np.ndarray) -> np.ndarray:
        """Return log p(y) from quadratic form and log determinant of the covariance over the noise
        variance."""
        posterior = self.shape + 0.5 * self.rows
        constant = gammaln(posterior) - gammaln(self.shape) + self.shape * np.log(self.scale)
        constant -= 0.5 * self.rows * float(np.log(2 * np.pi))
        return constant - 0.5 * log_det - posterior * np.log(self.scale + 0.5 * residual)


def average_evidences(evidences: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Return the log mean over the first axis; the evidences are finite, which makes it ten times as quick as
    ``logsumexp`` for a few numbers."""
    stacked = np.asarray(evidences)
    largest = stacked.max(axis=0)
    return largest + np.log(np.exp(stacked - largest).mean(axis=0))


def check_amplitudes(amplitudes: tuple[float, ...]) -> None:
    if not amplitudes or not all(np.isfinite(a) and a > 0 for a in amplitudes):
        raise ConfigError(f"amplitudes must be one or more positive numbers, got {amplitudes}")


class Component(NamedTuple):
    """One amplitude: mean and variance (over that of the noise) of the new values, both ``(n,)``, and the quadratic
    form and log determinant of the fitted ones."""

    mean: np.ndarray
    spread: np.ndarray
    residual: float
    log_det: float


def average_components(noise: NoiseIntegrated, values: np.ndarray, components: Sequence[Component]) -> Predicted:
    """Student-t distributions of the values ``(n,)``, one an amplitude, mixed by the evidence of the amplitudes."""
    log_weights = _log_weights(noise, components)
    freedom = 2 * noise.shape + noise.rows
    densities = [
        log_student((values - c.mean) ** 2, (2 * noise.scale + c.residual) / freedom * c.spread, freedom)
        for c in components
    ]
    mean = np.exp(log_weights) @ np.stack([c.mean for c in components])
    return Predicted(mean, logsumexp(log_weights[:, None] + np.stack(densities), axis=0))


def component_tails(noise: NoiseIntegrated, values: np.ndarray, components: Sequence[Component]) -> Tails:
    """Where the values ``(n,)`` lie in these distributions."""
    weights, freedom = np.exp(_log_weights(noise, components)), 2 * noise.shape + noise.rows
    every = [
        student_tails(values - c.mean, (2 * noise.scale + c.residual) / freedom * c.spread, freedom) for c in components
    ]
    return Tails(*(weights @ np.stack(part) for part in zip(*every, strict=True)))


def _log_weights(noise: NoiseIntegrated, components: Sequence[Component]) -> np.ndarray:
    evidences = np.array([noise.log_evidence(np.asarray(c.residual), np.asarray(c.log_det)) for c in components])
    return np.asarray(evidences - logsumexp(evidences))


class Regression(NamedTuple):
    """Weights of m features under one amplitude: normal around ``L^-T u`` with covariance v (L L')^-1.

    ``factor`` L is ``(m, m)``, ``whitened`` u ``(m,)``; residual and log determinant are those of the fitted values.
    ``design`` gives the features ``(n, m)`` of new parents ``(n, k)``.
    """

    factor: np.ndarray
    whitened: np.ndarray
    residual: float
    log_det: float
    design: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class FeatureNode:
    """A function that is linear in features: amplitudes by their evidence, noise inverse gamma, weights normal."""

    noise: NoiseIntegrated
    regressions: tuple[Regression, ...]
    shares: np.ndarray
    free_intercept: bool

    @classmethod
    def of(
        cls, noise: NoiseIntegrated, regressions: tuple[Regression, ...], *, free_intercept: bool = False
    ) -> FeatureNode:
        evidences = [noise.log_evidence(np.asarray(r.residual), np.asarray(r.log_det)) for r in regressions]
        return cls(noise, regressions, np.exp(evidences - logsumexp(evidences)), free_intercept)

    def draw(self, rng: np.random.Generator, shared: float | None) -> Mechanism:
        chosen = self.regressions[int(rng.choice(len(self.regressions), p=self.shares))]
        scale = self.noise.scale + 0.5 * chosen.residual
        own = scale / rng.gamma(self.noise.shape + 0.5 * self.noise.rows)
        noisy = chosen.whitened + np.sqrt(own) * rng.standard_normal(len(chosen.whitened))
        weights = np.linalg.solve(chosen.factor.T, noisy)
        # Where the features are centred, the constant is apart from them.
        spread = np.sqrt(own / (self.noise.rows + 1)) if self.free_intercept else 0.0
        intercept = float(spread * rng.standard_normal())
        return Mechanism(lambda inputs: chosen.design(inputs) @ weights + intercept, float(np.sqrt(own)))
