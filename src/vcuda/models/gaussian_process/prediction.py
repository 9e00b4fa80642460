"""New rows under the Gaussian process score, and smooth functions of all parents to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling, check_shapes
from vcuda.models.integrated_noise import (
    Component,
    FeatureNode,
    NoiseIntegrated,
    Regression,
    average_components,
    component_tails,
)
from vcuda.models.prediction import Predicted, Predictive, Tails

# Trace of the kernel of all kept rows that features may leave to independent noise. Log densities of 200 new rows,
# outlying ones among them, were then at most .0011 away from those of the full kernel, for normal, correlated and
# heavy-tailed columns; sets that need more than an eighth as many features as rows get the full kernel itself.
KERNEL_BUDGET = 1e-4
# A row whose kernel lacks less than this is known as far as rounding goes; as a pivot it would spoil the factor.
ROUNDING = 1e-12
# New rows at a time: their kernel with the kept rows stays at 64 MB.
BLOCK_ROWS = 2000
# Features that a function is drawn with, at most: their cube is what a set of parents costs.
MOST_FEATURES = 400


@dataclass(frozen=True, eq=False)
class GaussianProcessPredictive(Predictive):
    """New rows under the Gaussian process score: a mixture of Student-t distributions given the rows that were fitted.

    Of more than 4,000 rows it keeps 4,000 that are drawn once, always the same, and so it is a little less sure than
    the score. The kernel of a set of parents is exact, or has so many features that it makes no difference: O(n r²) for
    r features, some 15 for one parent and 120 for two, and n³ / 3 for sets that need more than n / 8.

    Parameters
    ----------
    columns
        ``(n, d)`` the standardised rows, in single precision.
    scaling
        To standardised columns and back.
    noise, amplitudes, length_scale
        The score's priors; ``noise.rows`` is n.
    """

    columns: np.ndarray
    scaling: Scaling
    noise: NoiseIntegrated
    amplitudes: tuple[float, ...]
    length_scale: float
    kind: ClassVar[str] = "gaussian process"
    quick_rows: ClassVar[int] = 1000

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        return average_components(self.noise, scaled[:, target], self._components(target, parents, scaled))

    def tails(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Tails:
        return component_tails(self.noise, scaled[:, target], self._components(target, parents, scaled))

    def learned_from(self, values: np.ndarray, held: np.ndarray | None) -> GaussianProcessPredictive:
        if len(self.columns) <= len(values):
            return self
        rows = self.scaling.apply(values).astype(np.float32)
        return replace(self, columns=rows, noise=replace(self.noise, rows=len(rows)))

    def _components(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> list[Component]:
        fitted = self.columns[:, parents].astype(np.float64) / self.length_scale
        values = self.columns[:, target].astype(np.float64)
        rows = scaled[:, parents] / self.length_scale
        pivots = _pivots(fitted)
        components = []
        # A node without parents has a constant only, whatever the amplitude.
        for amplitude in self.amplitudes if len(parents) else (0.0,):
            if pivots is None:
                components.append(_by_kernel(fitted, values, rows, amplitude))
            else:
                components.append(_by_features(fitted, pivots, values, rows, amplitude))
        return components

    def node(self, target: int, parents: np.ndarray) -> FeatureNode:
        return _node(self, target, parents)

    def fitted_table(self, names: Sequence[str]) -> Dataset:
        return Dataset(tuple(names), self.scaling.undo(self.columns.astype(np.float64)))

    def config(self) -> dict[str, Any]:
        numbers = {"amplitudes": list(self.amplitudes), "length_scale": self.length_scale}
        return {"kind": self.kind, "noise": asdict(self.noise)} | numbers

    def arrays(self) -> dict[str, np.ndarray]:
        return {"columns": self.columns} | self.scaling.arrays()

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        scaling, noise = Scaling.restore(arrays), NoiseIntegrated(**config["noise"])
        check_shapes(arrays, {"columns": (noise.rows, len(scaling.centre))})
        return cls(arrays["columns"], scaling, noise, tuple(config["amplitudes"]), config["length_scale"])


def _kernel(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Squared exponential kernel (n, m) of rows (n, k) and (m, k) in units of the length scale."""
    distances = np.zeros((len(first), len(second)))
    for column in range(first.shape[1]):
        distances += np.subtract.outer(first[:, column], second[:, column]) ** 2
    return np.exp(-0.5 * distances)


def kernel_pivots(rows: np.ndarray, *, most: int) -> tuple[np.ndarray, bool]:
    """Rows whose kernels span those of all rows (n, k), by pivoted Cholesky, and whether so many are enough."""
    if not rows.shape[1]:
        return np.empty(0, dtype=np.int64), True
    missing, most = np.ones(len(rows)), min(most, len(rows))
    factor = np.empty((len(rows), most))
    pivots: list[int] = []
    while missing.sum() > KERNEL_BUDGET and missing.max() > ROUNDING:
        if len(pivots) == most:
            return np.array(pivots, dtype=np.int64), False
        pivot, rank = int(np.argmax(missing)), len(pivots)
        kernel = _kernel(rows, rows[pivot : pivot + 1])[:, 0]
        factor[:, rank] = (kernel - factor[:, :rank] @ factor[pivot, :rank]) / np.sqrt(missing[pivot])
        missing = np.maximum(missing - factor[:, rank] ** 2, 0.0)
        missing[pivot] = 0.0
        pivots.append(pivot)
    return np.array(pivots, dtype=np.int64), True


def _pivots(rows: np.ndarray) -> np.ndarray | None:
    """The same, and None where it takes more than n / 8."""
    pivots, enough = kernel_pivots(rows, most=len(rows) // 8)
    return pivots if enough else None


def kernel_design(chosen: np.ndarray, amplitude: float) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Features (r + 1, n) of rows (n, k) that the chosen rows (r, k) give, a constant last, and the noise (n,).

    The noise is one, in units of its variance, and what the features lack of the diagonal.
    """
    triangle = np.linalg.cholesky(_kernel(chosen, chosen))

    def design(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        features = np.sqrt(amplitude) * np.linalg.solve(triangle, _kernel(chosen, inputs))
        lacking = np.maximum(amplitude - np.einsum("kn,kn->n", features, features), 0.0)
        return np.concatenate([features, np.ones((1, len(inputs)))]), 1.0 + lacking

    return design


def _blocks(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[start : start + BLOCK_ROWS] for start in range(0, max(len(rows), 1), BLOCK_ROWS)]


def _by_kernel(fitted: np.ndarray, values: np.ndarray, rows: np.ndarray, amplitude: float) -> Component:
    """Condition on the fitted rows (n, k) and their values (n,) with the full kernel."""
    covariance = amplitude * _kernel(fitted, fitted) + 1.0 + np.eye(len(fitted))
    factor = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
    whitened = solve_triangular(factor, values, lower=True, check_finite=False)
    means, spreads = [], []
    for block in _blocks(rows):
        cross = amplitude * _kernel(fitted, block) + 1.0
        solved = solve_triangular(factor, cross, lower=True, overwrite_b=True, check_finite=False)
        means.append(solved.T @ whitened)
        spreads.append(amplitude + 2.0 - np.einsum("kn,kn->n", solved, solved))
    log_det = float(2 * np.log(np.diag(factor)).sum())
    return Component(np.concatenate(means), np.concatenate(spreads), float(whitened @ whitened), log_det)


def _by_features(
    fitted: np.ndarray, pivots: np.ndarray, values: np.ndarray, rows: np.ndarray, amplitude: float
) -> Component:
    """The same with the features that the pivots give; what these lack of the diagonal is independent noise."""
    design = kernel_design(fitted[pivots], amplitude)
    features, noise = design(fitted)
    weighted = features / np.sqrt(noise)
    factor = np.linalg.cholesky(weighted @ weighted.T + np.eye(len(features)))
    whitened = np.linalg.solve(factor, features @ (values / noise))
    means, spreads = [], []
    for block in _blocks(rows):
        new, new_noise = design(block)
        solved = np.linalg.solve(factor, new)
        means.append(solved.T @ whitened)
        spreads.append(new_noise + np.einsum("kn,kn->n", solved, solved))
    residual = float(values @ (values / noise) - whitened @ whitened)
    log_det = float(2 * np.log(np.diag(factor)).sum() + np.log(noise).sum())
    return Component(np.concatenate(means), np.concatenate(spreads), residual, log_det)


def _node(predictive: GaussianProcessPredictive, target: int, parents: np.ndarray) -> FeatureNode:
    """A Gaussian process by its features, the constant among them; what they lack is independent noise.

    Sets of parents that need more features than ``MOST_FEATURES`` get that many, and are a little less sure.
    """
    length = predictive.length_scale
    fitted = predictive.columns[:, parents].astype(np.float64) / length
    values = predictive.columns[:, target].astype(np.float64)
    pivots, _ = kernel_pivots(fitted, most=MOST_FEATURES)
    regressions = []
    for amplitude in predictive.amplitudes if len(parents) else (0.0,):
        build = kernel_design(fitted[pivots], amplitude)
        features, noise = build(fitted)
        factor = np.linalg.cholesky((features / noise) @ features.T + np.eye(len(features)))
        whitened = np.linalg.solve(factor, features @ (values / noise))
        residual = float(values @ (values / noise) - whitened @ whitened)
        log_det = float(2 * np.log(np.diag(factor)).sum() + np.log(noise).sum())

        def design(inputs: np.ndarray, build: Callable[..., tuple[np.ndarray, ...]] = build) -> np.ndarray:
            return build(inputs / length)[0].T

        regressions.append(Regression(factor, whitened, residual, log_det, design))
    return FeatureNode.of(predictive.noise, tuple(regressions))
