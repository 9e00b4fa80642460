"""What nonlinear scores share: a noise variance of its own for every node, integrated out.

A function is as large as the noise lets it be: y ~ N(0, sigma2 (a K + 1 1' + I)), sigma2 inverse gamma, so that the
evidence has a closed form; it is averaged over the ``amplitudes`` a. Columns are standardised, so that units do not
matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp

from vcuda.errors import ConfigError
from vcuda.models.scores import (
    LOG_TWO_PI,
)


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
        constant -= 0.5 * self.rows * LOG_TWO_PI
        return constant - 0.5 * log_det - posterior * np.log(self.scale + 0.5 * residual)


def average_evidences(evidences: Sequence[np.ndarray]) -> np.ndarray:
    return logsumexp(np.stack(evidences), axis=0) - np.log(len(evidences))


def check_amplitudes(amplitudes: tuple[float, ...]) -> None:
    if not amplitudes or not all(np.isfinite(a) and a > 0 for a in amplitudes):
        raise ConfigError(f"amplitudes must be one or more positive numbers, got {amplitudes}")
