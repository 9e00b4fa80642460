"""A smooth function of all parents together: the evidence of a Gaussian process, from features of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from vcuda.data.scaling import Scaling, units_log_jacobian
from vcuda.errors import ConfigError
from vcuda.models.additive import AdditiveBasis
from vcuda.models.checks import centred_columns, check_max_parents, check_positive
from vcuda.models.gaussian_process.prediction import GaussianProcessPredictive
from vcuda.models.integrated_noise import NoiseIntegrated, average_evidences, check_amplitudes
from vcuda.models.protocol import LocalScore, PowerLaw, ScoreSpec, SetKey
from vcuda.models.sets import checked_candidates

COSTS: Mapping[str, PowerLaw] = {"orders": PowerLaw(3.1, 0.049, 1.69, 0.0, 0.49, 9.2e-3, 1.0)}
# Trace of a column's kernel that its features may miss; what matters comes later, by the budgets of sets.
COLUMN_BUDGET = 1e-6
# Trace of a set's kernel that may be treated as independent noise. At n = 1,000 the scores of one, two and
# three parents were then within .03, .02 and .08 nats of the full kernel, with about 10, 90 and 350 features,
# for normal, correlated and heavy-tailed columns.
SET_BUDGET = (0.0, 0.02, 0.02)
LARGE_SET_BUDGET = 0.5
# Up to this many rows a set that needs more than n / 2 features is scored with its full kernel.
DENSE_ROWS = 4000
MAX_FEATURES = 1000
# Rows that predictions keep: they cost the cube of these for large sets of parents.
KERNEL_ROWS = 4000


def _kernel_features(column: np.ndarray, length_scale: float) -> np.ndarray:
    """Return orthogonal features (n, r), largest first, whose products are the kernel of a column (n,) or of points
    (n, k).

    Pivoted Cholesky of exp(-(x - x')² / (2 length_scale²)): about 15 features for normal columns, one for
    each value of a column with few values, and one more for each distant outlier.
    """
    scaled = column.reshape(len(column), -1) / length_scale
    rows = len(scaled)
    missing = np.ones(rows)
    factor = np.empty((rows, 16))
    rank = 0
    while missing.sum() > COLUMN_BUDGET * rows and rank < rows:
        pivot = int(np.argmax(missing))
        kernel = np.exp(-0.5 * ((scaled - scaled[pivot]) ** 2).sum(axis=1))
        if rank == factor.shape[1]:
            factor = np.concatenate([factor, np.empty_like(factor)], axis=1)
        new = (kernel - factor[:, :rank] @ factor[pivot, :rank]) / np.sqrt(missing[pivot])
        factor[:, rank] = new
        missing = np.maximum(missing - new**2, 0.0)
        missing[pivot] = 0.0
        rank += 1
    factor = factor[:, :rank]
    _, rotation = np.linalg.eigh(factor.T @ factor)
    return factor @ rotation[:, ::-1]


def _largest(sizes: np.ndarray, budget: float) -> np.ndarray:
    """Return indices by falling size, without the smallest, whose sum stays below the budget."""
    order = np.argsort(sizes)
    dropped = int(np.searchsorted(np.cumsum(sizes[order]), budget))
    return order[dropped:][::-1]


@dataclass(frozen=True, eq=False)
class GaussianProcessScore(LocalScore):
    """Gaussian process evidence of sets of parents; one factorisation of a set serves all targets.

    The kernel of a set is the product of its columns' kernels, so products of their features are features of
    the set; the smallest are dropped, and the diagonal that they leave is added as independent noise (as in
    the fully independent training conditional). At n = 1,000 and three parents 50 random frequencies are 8 to
    22 nats too low, these features at most .08. Time O(n r²) a set for r features, r about 10, 80, 350 for 1,
    2, 3 parents; larger sets use the full kernel, n³ / 3 operations per amplitude, up to 4,000 rows, and
    beyond that their 1,000 largest features.
    """

    columns: np.ndarray = field()
    features: tuple[np.ndarray, ...]
    noise: NoiseIntegrated
    amplitudes: tuple[float, ...]
    length_scale: float
    log_jacobian: float
    full_parents: int = field()
    max_parents: int
    margin: float = field()

    slow_sets = True
    shares_sets = True
    costs = COSTS

    @property
    def nodes(self) -> int:
        return int(self.columns.shape[1])

    @property
    def rows(self) -> int:
        return self.noise.rows

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        return float(self.evaluate(self.set_key(target, chosen.tolist()))[target])

    def screen(self) -> LocalScore:
        return AdditiveBasis().prepare(self.columns)

    @property
    def content(self) -> tuple[Any, ...]:
        return self.columns, self.amplitudes, self.length_scale, self.noise

    def table_seconds(self) -> float:
        """How many larger sets must be scored depends on the data: about d³ / 6, and several times that where many weak
        parents compete."""
        nodes, rows = self.nodes, self.rows
        # Full kernels of n² entries and their factorisations, or as many features as there may be.
        large = 1e-8 * rows**2 + 1.1e-11 * rows**3 if rows <= DENSE_ROWS else 1e-4 * rows
        costs = [1e-6 * rows, 2.3e-6 * rows, min(1.4e-5 * rows, large)]
        full = sum(
            comb(nodes, size) * (costs[size - 1] if size <= 3 else large) for size in range(1, self.full_parents + 1)
        )
        return full + (nodes**3 / 6 * large if self.full_parents < min(self.max_parents, nodes - 1) else 0)

    def predictive_in(self, units: Scaling) -> GaussianProcessPredictive:
        columns = self.columns
        if len(columns) > KERNEL_ROWS:
            columns = columns[np.sort(np.random.default_rng(0).choice(len(columns), KERNEL_ROWS, replace=False))]
        noise = NoiseIntegrated(len(columns), self.noise.shape, self.noise.scale)
        kept = columns.astype(np.float32)
        return GaussianProcessPredictive(kept, units, noise, self.amplitudes, self.length_scale)

    def evaluate(self, key: SetKey) -> np.ndarray:
        """Compute the scores (d,) of all targets with these parents, in ascending order; what stands at the parents
        themselves means nothing."""
        parents = key
        if not parents:
            squares = np.einsum("nd,nd->d", self.columns, self.columns)
            return self.noise.log_evidence(squares, np.log1p(float(self.noise.rows)) * np.ones(self.nodes))
        features = self._set_features(parents)
        if features is not None:
            return average_evidences([self._feature_evidence(features, amplitude) for amplitude in self.amplitudes])
        kernel = self._kernel(parents)
        return average_evidences([self._dense_evidence(kernel, amplitude) for amplitude in self.amplitudes])

    def _set_features(self, parents: tuple[int, ...]) -> np.ndarray | None:
        """Return the features (n, r) of a set, or None when the full kernel costs less."""
        rows = self.noise.rows
        budget = SET_BUDGET[len(parents)] if len(parents) < len(SET_BUDGET) else LARGE_SET_BUDGET
        product = self.features[parents[0]]
        product = product[:, _largest(np.einsum("nr,nr->r", product, product), budget / len(parents))]
        for parent in parents[1:]:
            other = self.features[parent]
            sizes = np.square(product).T @ np.square(other)
            kept = _largest(sizes.reshape(-1), budget / len(parents))
            if kept.size > rows // 2 and rows <= DENSE_ROWS:
                return None
            first, second = np.divmod(kept[:MAX_FEATURES], other.shape[1])
            product = product[:, first] * other[:, second]
        return product

    def _feature_evidence(self, features: np.ndarray, amplitude: float) -> np.ndarray:
        lacking = np.maximum(1.0 - np.einsum("nr,nr->n", features, features), 0.0)
        diagonal = 1.0 + amplitude * lacking
        weights = np.sqrt(1.0 / diagonal)[:, None]
        design = np.concatenate([np.sqrt(amplitude) * features, np.ones((len(features), 1))], axis=1) * weights
        targets = self.columns * weights
        gram = design.T @ design
        gram[np.diag_indices_from(gram)] += 1.0
        factor = cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
        projected = solve_triangular(factor, design.T @ targets, lower=True, check_finite=False)
        residual = np.einsum("nd,nd->d", targets, targets) - np.einsum("rd,rd->d", projected, projected)
        log_det = 2 * np.log(np.diag(factor)).sum() + np.log(diagonal).sum()
        return self.noise.log_evidence(residual, log_det)

    def _kernel(self, parents: tuple[int, ...]) -> np.ndarray:
        """Return the full kernel (n, n) of a set in single precision, which costs the scores about .001
        nats."""
        # Products of small factors take a fifth of the time of exponentials.
        kernel = np.ones((self.noise.rows, self.noise.rows), dtype=np.float32)
        for parent in parents:
            factor = self.features[parent].astype(np.float32)
            kernel *= factor @ factor.T
        return kernel

    def _dense_evidence(self, kernel: np.ndarray, amplitude: float) -> np.ndarray:
        covariance = np.float32(amplitude) * kernel + np.float32(1.0)
        covariance[np.diag_indices_from(covariance)] = amplitude + 2.0
        # Symmetric, so that its transpose is the same matrix in the order that LAPACK overwrites without a
        # copy.
        factor = cholesky(covariance.T, lower=True, overwrite_a=True, check_finite=False)
        targets = self.columns.astype(np.float32)
        whitened = solve_triangular(factor, targets, lower=True, check_finite=False).astype(np.float64)
        log_det = 2 * np.log(np.diag(factor).astype(np.float64)).sum()
        return self.noise.log_evidence(np.einsum("nd,nd->d", whitened, whitened), log_det)


@dataclass(frozen=True)
class GaussianProcess(ScoreSpec):
    """A smooth function of all parents together, a Gaussian process, and noise of unknown variance in each
    node; free of units.

    Parameters
    ----------
    amplitudes
        Variances of the function in units of the noise variance, over which the evidence is averaged.
    length_scale
        Of the squared exponential kernel, in standard deviations of a parent.
    noise_shape, noise_scale
        Inverse-gamma prior of the noise variance of a standardised column.
    full_parents, max_parents, margin
        Tables hold all sets of up to ``full_parents`` parents, and larger ones up to ``max_parents`` if they
        add one parent to a set that is at most ``margin`` nats below the best; single sets of any size can be
        scored.
    """

    amplitudes: tuple[float, ...] = (0.5, 2.0)
    length_scale: float = 1.0
    noise_shape: float = 1.0
    noise_scale: float = 1.0
    full_parents: int = 3
    max_parents: int = 6
    margin: float = 10.0

    def __post_init__(self) -> None:
        check_amplitudes(self.amplitudes)
        check_positive(length_scale=self.length_scale, noise_shape=self.noise_shape, noise_scale=self.noise_scale)
        check_max_parents(self.max_parents)
        if self.full_parents < 1 or not self.margin >= 0:
            raise ConfigError(
                f"full_parents must be at least 1 and margin at least 0, got {self.full_parents} and {self.margin}"
            )

    def prepare(
        self,
        values: np.ndarray,
        *,
        scale: np.ndarray | None = None,
        points: Sequence[np.ndarray] | None = None,
    ) -> GaussianProcessScore:
        """Standardise a table (n, d) and find the features of each column's kernel.

        ``points`` say where rows lie by a column as a cause, (n, k) for each, if it is no number.
        """
        centred, units = centred_columns(values, scale)
        columns = centred / units
        return GaussianProcessScore(
            columns=columns,
            features=tuple(
                _kernel_features(column, self.length_scale) for column in (columns.T if points is None else points)
            ),
            noise=NoiseIntegrated(len(columns), self.noise_shape, self.noise_scale),
            amplitudes=self.amplitudes,
            length_scale=self.length_scale,
            log_jacobian=units_log_jacobian(len(columns), units),
            full_parents=self.full_parents,
            max_parents=self.max_parents,
            margin=self.margin,
        )
