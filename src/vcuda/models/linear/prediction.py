"""New rows under a linear score, and linear mechanisms to draw: weights and noise integrated out as the score does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import ndtr

from vcuda.data.scaling import Scaling, check_shapes
from vcuda.models.prediction import (
    Mechanism,
    NodePosterior,
    Predicted,
    Predictive,
    SharedParameter,
    Tails,
    log_student,
    student_tails,
)

if TYPE_CHECKING:
    from vcuda.models.protocol import LocalScore

# A shared noise variance of more cells than this is known within half a per cent, and is not drawn.
CELLS_THAT_TELL_THE_NOISE = 100_000


@dataclass(frozen=True, eq=False)
class LinearPredictive(Predictive):
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

    def _student(
        self, target: int, parents: np.ndarray, scaled: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float | None]:
        """Means and squared scales of new values, both ``(n,)``, and their degrees of freedom; None if normal."""
        regularised = self.gram[np.ix_(parents, parents)] + self.ridge * np.eye(len(parents))
        inputs = scaled[:, parents]
        solved = np.linalg.solve(regularised, np.column_stack([self.gram[parents, target], inputs.T]))
        weights, leverage = solved[:, 0], np.einsum("nk,kn->n", inputs, solved[:, 1:])
        mean = inputs @ weights
        spread = 1 + 1 / (self.rows + self.mean_rows) + leverage
        if self.variance is not None:
            return mean, self.variance * spread, None
        freedom = self.rows + self.excess + len(parents) + 1
        residual = self.gram[target, target] + self.ridge - self.gram[parents, target] @ weights
        return mean, residual / freedom * spread, freedom

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        mean, squared_scale, freedom = self._student(target, parents, scaled)
        squares = (scaled[:, target] - mean) ** 2
        if freedom is None:
            return Predicted(mean, -0.5 * (squares / squared_scale + np.log(2 * np.pi * squared_scale)))
        return Predicted(mean, log_student(squares, squared_scale, freedom))

    def tails(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Tails:
        mean, squared_scale, freedom = self._student(target, parents, scaled)
        away = scaled[:, target] - mean
        if freedom is None:
            return Tails(ndtr(away / np.sqrt(squared_scale)), ndtr(-away / np.sqrt(squared_scale)))
        return student_tails(away, squared_scale, freedom)

    def node(self, target: int, parents: np.ndarray) -> LinearNode:
        return LinearNode.of(self, target, parents)

    def shared_parameter(self, cells: int | None = None) -> SharedParameter | None:
        if self.variance is None:
            return None
        known = self.rows * len(self.gram) if cells is None else cells
        if self.noise_prior is None or known > CELLS_THAT_TELL_THE_NOISE:
            return _KnownNoise(self.variance)
        return _SharedNoise(self.variance, self.noise_prior, known)

    def local_score(self) -> LocalScore:
        # The score predicts by this module.
        from vcuda.models.linear.score import BGeScore, EqualNoiseScore

        if self.variance is not None:
            return EqualNoiseScore(self.gram, self.rows, self.ridge, 0.0, 0.0, None, self.variance)
        return BGeScore(self.gram, self.rows, self.ridge, self.ridge, 0.0, None, self.excess, self.mean_rows)

    def column_products(self, outcome: int) -> tuple[int, np.ndarray]:
        return self.rows, self.gram

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


@dataclass(frozen=True, eq=False)
class LinearNode:
    """Weights given the noise variance v are N((S + r)^-1 s, v (S + r)^-1), S and s products with the parents.

    S is kept as eigenvalues ``(k,)`` and ``rotation`` ``(k, k)``, so that any ridge r costs O(k²). Under a shared noise
    the ridge is v over the ``weight_variance``; otherwise v is inverse gamma with ``freedom`` / 2 and half the
    residual, and r is ``ridge``.
    """

    eigenvalues: np.ndarray
    rotation: np.ndarray
    products: np.ndarray
    square: float
    rows: int
    mean_rows: float
    ridge: float
    weight_variance: float | None
    freedom: float

    @classmethod
    def of(cls, predictive: LinearPredictive, target: int, parents: np.ndarray) -> LinearNode:
        gram = predictive.gram
        eigenvalues, rotation = np.linalg.eigh(gram[np.ix_(parents, parents)])
        variance = predictive.variance
        return cls(
            eigenvalues=np.maximum(eigenvalues, 0.0),
            rotation=rotation,
            products=rotation.T @ gram[parents, target],
            square=float(gram[target, target]),
            rows=predictive.rows,
            mean_rows=predictive.mean_rows,
            ridge=predictive.ridge,
            weight_variance=None if variance is None else variance / predictive.ridge,
            freedom=predictive.rows + predictive.excess + len(parents) + 1,
        )

    def draw(self, rng: np.random.Generator, shared: float | None) -> Mechanism:
        variance = shared
        ridge = self.ridge if variance is None or self.weight_variance is None else variance / self.weight_variance
        inverse = 1.0 / (self.eigenvalues + ridge)
        if variance is None:
            residual = self.square + ridge - float(self.products @ (inverse * self.products))
            variance = 0.5 * residual / rng.gamma(0.5 * self.freedom)
        spread = np.sqrt(variance * inverse) * rng.standard_normal(len(inverse))
        intercept = np.sqrt(variance / (self.rows + self.mean_rows)) * rng.standard_normal()
        return Mechanism.linear(
            self.rotation @ (inverse * self.products + spread), float(intercept), float(np.sqrt(variance))
        )

    def log_evidence(self, variances: np.ndarray) -> np.ndarray:
        """Of the column under each shared noise variance ``(v,)``, apart from what does not depend on it."""
        assert self.weight_variance is not None
        ridges = variances / self.weight_variance
        shifted = self.eigenvalues[:, None] + ridges
        residual = self.square - (self.products[:, None] ** 2 / shifted).sum(axis=0)
        log_det = (np.log(shifted) - np.log(ridges)).sum(axis=0)
        return -0.5 * (residual / variances + log_det + self.rows * np.log(variances))


class _KnownNoise(NamedTuple):
    """A noise variance that is known, or as good as known."""

    variance: float

    def draw(self, rng: np.random.Generator, nodes: Callable[[], Sequence[NodePosterior]]) -> float:
        return self.variance


class _SharedNoise:
    """The noise variance that all nodes share, drawn given a graph from its posterior on a grid of its logarithm."""

    def __init__(self, variance: float, noise_prior: tuple[float, float], cells: int) -> None:
        # The logarithm has a standard deviation of about sqrt(2 / cells) around a value that the engine found.
        width = np.sqrt(2 / cells)
        self.logarithms = np.log(variance) + width * np.linspace(-8.0, 8.0, 65)
        self.variances = np.exp(self.logarithms)
        shape, scale = noise_prior
        self.log_prior = -shape * self.logarithms - scale / self.variances
        self.known: dict[LinearNode, np.ndarray] = {}

    def draw(self, rng: np.random.Generator, nodes: Callable[[], Sequence[NodePosterior]]) -> float:
        own = [node for node in nodes() if isinstance(node, LinearNode)]
        for node in own:
            if node not in self.known:
                self.known[node] = node.log_evidence(self.variances)
        log_density = self.log_prior + sum(self.known[node] for node in own)
        density = np.exp(log_density - log_density.max())
        heaps = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        return float(np.exp(np.interp(rng.random() * heaps[-1], heaps, self.logarithms)))
