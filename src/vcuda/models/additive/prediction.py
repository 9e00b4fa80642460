"""New rows under the additive score, and sums of smooth functions to draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from vcuda.data.scaling import Scaling, check_shapes
from vcuda.models.additive.basis import ColumnBasis
from vcuda.models.integrated_noise import (
    Component,
    FeatureNode,
    NoiseIntegrated,
    Regression,
    average_components,
    component_tails,
)
from vcuda.models.prediction import Predicted, Predictive, Tails

if TYPE_CHECKING:
    from vcuda.models.protocol import LocalScore


@dataclass(frozen=True, eq=False)
class AdditivePredictive(Predictive):
    """New rows under the additive score: Student-t distributions around sums of functions of single parents, mixed.

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
        return average_components(self.noise, scaled[:, target], self._components(target, parents, scaled))

    def tails(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Tails:
        return component_tails(self.noise, scaled[:, target], self._components(target, parents, scaled))

    def _components(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> list[Component]:
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
                Component(
                    mean=solved.T @ whitened,
                    spread=1 + 1 / (self.noise.rows + 1) + np.einsum("kn,kn->n", solved, solved),
                    residual=float(self.squares[target] - whitened @ whitened),
                    log_det=float(2 * np.log(np.diag(factor)).sum() + np.log1p(self.noise.rows)),
                )
            )
        return components

    def node(self, target: int, parents: np.ndarray) -> FeatureNode:
        return _node(self, target, parents)

    def local_score(self) -> LocalScore:
        # The score predicts by this module.
        from vcuda.models.additive.score import AdditiveBasisScore

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


def _node(predictive: AdditivePredictive, target: int, parents: np.ndarray) -> FeatureNode:
    block = predictive.bases.means.shape[1]
    where = (parents[:, None] * block + np.arange(block)).reshape(-1)
    regressions = []
    for amplitude in predictive.amplitudes:
        root = np.sqrt(amplitude)

        def design(inputs: np.ndarray, root: float = root) -> np.ndarray:
            parts = [predictive.bases.of(int(parent)).at(inputs[:, k]) for k, parent in enumerate(parents)]
            return root * np.concatenate([*parts, np.empty((len(inputs), 0))], axis=1)

        factor = np.linalg.cholesky(amplitude * predictive.gram[np.ix_(where, where)] + np.eye(where.size))
        whitened = np.linalg.solve(factor, root * predictive.products[where, target])
        residual = float(predictive.squares[target] - whitened @ whitened)
        log_det = float(2 * np.log(np.diag(factor)).sum() + np.log1p(predictive.noise.rows))
        regressions.append(Regression(factor, whitened, residual, log_det, design))
    return FeatureNode.of(predictive.noise, tuple(regressions), free_intercept=True)
