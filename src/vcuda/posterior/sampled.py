"""What the score-based engines leave behind: a pool of DAGs, their edge probabilities, and what they predict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vcuda.data.scaling import check_shapes
from vcuda.models.prediction import Prediction, Predictive
from vcuda.posterior.mechanisms import CausalModel, draw_models
from vcuda.posterior.predictions import predict_rows, restore_predictive
from vcuda.posterior.samples import GraphSamples


@dataclass(frozen=True, eq=False)
class SampledGraphs:
    """A pool of weighted DAGs, with edge probabilities that the engine knows better than the pool does."""

    pool: GraphSamples
    marginals: np.ndarray
    predictive: Predictive | None
    kind: ClassVar[str] = "sampled graphs"

    def edge_probabilities(self) -> np.ndarray:
        return self.marginals

    def sample(self, rng: np.random.Generator, names: Sequence[str], size: int) -> GraphSamples:
        """Different members of the pool as long as there are enough with equal weights, else with repetition."""
        equal = np.ptp(self.pool.weights) == 0
        chosen = rng.choice(len(self.pool), size, replace=not equal or size > len(self.pool), p=self.pool.weights)
        return self.pool.take(chosen)

    def predict(
        self, rng: np.random.Generator, values: np.ndarray, graphs: int, *, names: Sequence[str] | None = None
    ) -> Prediction:
        known = self.pool.names if names is None else names
        return predict_rows(self.predictive, self.sample(rng, known, graphs), values, known)

    def models(self, rng: np.random.Generator, names: Sequence[str], size: int) -> Iterator[CausalModel]:
        return draw_models(self.predictive, self.sample(rng, names, size), rng)

    def config(self) -> dict[str, Any]:
        prediction: dict[str, Any] = {"names": list(self.pool.names)}
        return prediction if self.predictive is None else prediction | {"predictive": self.predictive.config()}

    def arrays(self) -> dict[str, np.ndarray]:
        pool = {name: getattr(self.pool, name) for name in ("offsets", "sources", "targets", "weights")}
        stored = pool | {"marginals": self.marginals}
        return stored if self.predictive is None else stored | self.predictive.arrays()

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> SampledGraphs:
        names = tuple(config["names"])
        check_shapes(arrays, {"marginals": (len(names), len(names))})
        pool = {name: arrays[name] for name in ("offsets", "sources", "targets", "weights")}
        predictive = restore_predictive(config, arrays, nodes=len(names))
        return cls(GraphSamples(names=names, **pool), arrays["marginals"], predictive)
