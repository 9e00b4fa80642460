"""New rows under a local score: each column given its parents, with weights and noise integrated out as the score does.

So log p(new row | table) is what the score of the table gains by the row, in the units and the basis of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import gammaln, logsumexp

from vcuda.models.additive import AdditiveBasisScore, ColumnBasis
from vcuda.models.integrated_noise import NoiseIntegrated
from vcuda.models.scores import BGeScore, EqualNoiseScore, LocalScore
from vcuda.posterior.graph_posterior import Predicted, Scaling, check_shapes

# Trace of the kernel of all kept rows that features may leave to independent noise. Log densities of 200 new rows,
# outlying ones among them, were then at most .0011 away from those of the full kernel, for normal, correlated and
# heavy-tailed columns; sets that need more than an eighth as many features as rows get the full kernel itself.
KERNEL_BUDGET = 1e-4
# New rows at a time: their kernel with the kept rows stays at 64 MB.
BLOCK_ROWS = 2000


class Predictive(Protocol):
    """What a score says of new rows; saved as a JSON-able ``config``, which names the kind, and named ``arrays``."""

    kind: ClassVar[str]

    @property
    def scaling(self) -> Scaling:
        """From the user's units to those of the score."""
        ...

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        """Predict column ``target`` of the scaled rows ``(n, d)`` from its parents."""
        ...

    def config(self) -> dict[str, Any]: ...

    def arrays(self) -> dict[str, np.ndarray]: ...

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self: ...


def _log_student(squares: np.ndarray, squared_scale: np.ndarray, freedom: float) -> np.ndarray:
    # Spelt out because importing scipy.stats takes longer than a small fit.
    normaliser = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(np.pi * freedom * squared_scale)
    return normaliser - (freedom + 1) / 2 * np.log1p(squares / (freedom * squared_scale))


@dataclass(frozen=True, eq=False)
class LinearPredictive:
    """New rows under a linear score, with its weights and its noise integrated out.

    A column given its parents U is normal (noise variance known) or Student-t (unknown, BGe) around
    x_U (S_UU + ridge)^-1 S_Uj; its spread counts the uncertainty of weights and intercept.

    Parameters
    ----------
    gram
        ``(d, d)`` products of the centred columns that were fitted, in scaled units.
    scaling
        To those units and back.
    rows
        How many rows were fitted.
    ridge
        What the prior adds to the diagonal of the parents.
    variance
        The noise variance where it is known; None for BGe, which then needs ``excess`` and ``mean_rows``.
    noise_prior
        Shape and scale of the inverse-gamma prior of a shared noise variance, when ``variance`` is an estimate of it.
    """

    gram: np.ndarray
    scaling: Scaling
    rows: int
    ridge: float
    variance: float | None = None
    excess: float = 2.0
    mean_rows: float = 1.0
    noise_prior: tuple[float, float] | None = None
    kind: ClassVar[str] = "linear"

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        regularised = self.gram[np.ix_(parents, parents)] + self.ridge * np.eye(len(parents))
        inputs = scaled[:, parents]
        solved = np.linalg.solve(regularised, np.column_stack([self.gram[parents, target], inputs.T]))
        weights, leverage = solved[:, 0], np.einsum("nk,kn->n", inputs, solved[:, 1:])
        mean = inputs @ weights
        spread = 1 + 1 / (self.rows + self.mean_rows) + leverage
        squares = (scaled[:, target] - mean) ** 2
        if self.variance is not None:
            squared_scale = self.variance * spread
            return Predicted(mean, -0.5 * (squares / squared_scale + np.log(2 * np.pi * squared_scale)))
        freedom = self.rows + self.excess + len(parents) + 1
        residual = self.gram[target, target] + self.ridge - self.gram[parents, target] @ weights
        return Predicted(mean, _log_student(squares, residual / freedom * spread, freedom))

    def local_score(self) -> LocalScore:
        """The score of sets of parents, in these units."""
        if self.variance is not None:
            return EqualNoiseScore(self.gram, self.rows, self.ridge, 0.0, 0.0, None, self.variance)
        return BGeScore(self.gram, self.rows, self.ridge, self.ridge, 0.0, None, self.excess, self.mean_rows)

    def config(self) -> dict[str, Any]:
        numbers = ("rows", "ridge", "variance", "excess", "mean_rows", "noise_prior")
        return {"kind": self.kind} | {name: getattr(self, name) for name in numbers}

    def arrays(self) -> dict[str, np.ndarray]:
        return {"gram": self.gram} | self.scaling.arrays()

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        scaling = Scaling.restore(arrays)
        check_shapes(arrays, {"gram": (len(scaling.centre),) * 2})
        numbers = {name: value for name, value in config.items() if name not in ("kind", "noise_prior")}
        # Runs from before there was a prior of a shared noise are taken to know its variance.
        prior = config.get("noise_prior")
        return cls(arrays["gram"], scaling, **numbers, noise_prior=None if prior is None else tuple(prior))


class _Component(NamedTuple):
    """One amplitude: mean and variance (over that of the noise) of the new values, both ``(n,)``, and the quadratic
    form and log determinant of the fitted ones."""

    mean: np.ndarray
    spread: np.ndarray
    residual: float
    log_det: float


def _average(noise: NoiseIntegrated, values: np.ndarray, components: Sequence[_Component]) -> Predicted:
    """Student-t laws of the values ``(n,)``, one an amplitude, mixed by the evidence of the amplitudes."""
    evidences = np.array([noise.log_evidence(np.asarray(c.residual), np.asarray(c.log_det)) for c in components])
    log_weights = evidences - logsumexp(evidences)
    freedom = 2 * noise.shape + noise.rows
    densities = [
        _log_student((values - c.mean) ** 2, (2 * noise.scale + c.residual) / freedom * c.spread, freedom)
        for c in components
    ]
    mean = np.exp(log_weights) @ np.stack([c.mean for c in components])
    return Predicted(mean, logsumexp(log_weights[:, None] + np.stack(densities), axis=0))


@dataclass(frozen=True, eq=False)
class AdditivePredictive:
    """New rows under the additive score: a mixture of Student-t laws around sums of functions of single parents.

    Parameters
    ----------
    gram, products, squares, bases
        ``(d m, d m)``, ``(d m, d)``, ``(d,)`` and the functions behind them, as in ``AdditiveBasisScore``.
    scaling
        To standardised columns and back.
    noise, amplitudes
        The score's priors.
    """

    gram: np.ndarray
    products: np.ndarray
    squares: np.ndarray
    bases: ColumnBasis
    scaling: Scaling
    noise: NoiseIntegrated
    amplitudes: tuple[float, ...]
    kind: ClassVar[str] = "additive"

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        block = self.bases.means.shape[1]
        where = (parents[:, None] * block + np.arange(block)).reshape(-1)
        features = np.empty((len(scaled), where.size))
        for position, parent in enumerate(parents):
            features[:, position * block : (position + 1) * block] = self.bases.of(parent).at(scaled[:, parent])
        components = []
        for amplitude in self.amplitudes:
            factor = np.linalg.cholesky(amplitude * self.gram[np.ix_(where, where)] + np.eye(where.size))
            whitened = np.linalg.solve(factor, np.sqrt(amplitude) * self.products[where, target])
            solved = np.linalg.solve(factor, np.sqrt(amplitude) * features.T)
            components.append(
                _Component(
                    mean=solved.T @ whitened,
                    spread=1 + 1 / (self.noise.rows + 1) + np.einsum("kn,kn->n", solved, solved),
                    residual=float(self.squares[target] - whitened @ whitened),
                    log_det=float(2 * np.log(np.diag(factor)).sum() + np.log1p(self.noise.rows)),
                )
            )
        return _average(self.noise, scaled[:, target], components)

    def local_score(self) -> LocalScore:
        """The score of sets of parents, in these units."""
        block = self.bases.means.shape[1]
        products = (self.gram, self.products, self.squares)
        return AdditiveBasisScore(*products, block, self.bases, self.noise, self.amplitudes, 0.0, None)

    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "noise": asdict(self.noise), "amplitudes": list(self.amplitudes)}

    def arrays(self) -> dict[str, np.ndarray]:
        products = {"gram": self.gram, "products": self.products, "squares": self.squares}
        bases = {"anchors": self.bases.anchors, "mixing": self.bases.mixing, "feature_means": self.bases.means}
        return products | bases | self.scaling.arrays()

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        scaling = Scaling.restore(arrays)
        nodes, points, block = arrays["mixing"].shape
        features = nodes * block
        by_feature = {"gram": (features, features), "products": (features, nodes), "feature_means": (nodes, block)}
        check_shapes(arrays, by_feature | {"anchors": (nodes, points), "squares": (nodes,), "centre": (nodes,)})
        return cls(
            gram=arrays["gram"],
            products=arrays["products"],
            squares=arrays["squares"],
            bases=ColumnBasis(arrays["anchors"], arrays["mixing"], arrays["feature_means"]),
            scaling=scaling,
            noise=NoiseIntegrated(**config["noise"]),
            amplitudes=tuple(config["amplitudes"]),
        )


@dataclass(frozen=True, eq=False)
class GaussianProcessPredictive:
    """New rows under the Gaussian process score: a mixture of Student-t laws given the rows that were fitted.

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

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
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
        return _average(self.noise, scaled[:, target], components)

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
    while missing.sum() > KERNEL_BUDGET:
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


def _by_kernel(fitted: np.ndarray, values: np.ndarray, rows: np.ndarray, amplitude: float) -> _Component:
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
    return _Component(np.concatenate(means), np.concatenate(spreads), float(whitened @ whitened), log_det)


def _by_features(
    fitted: np.ndarray, pivots: np.ndarray, values: np.ndarray, rows: np.ndarray, amplitude: float
) -> _Component:
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
    return _Component(np.concatenate(means), np.concatenate(spreads), residual, log_det)
