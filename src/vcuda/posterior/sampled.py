"""What the score-based engines leave behind: a pool of DAGs, their edge probabilities, and linear predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from vcuda.errors import ConfigError
from vcuda.posterior.laws import Prediction, Scaling
from vcuda.posterior.samples import GraphSamples


class Predicted(NamedTuple):
    """One column given its parents, for every row: mean and log density, both ``(n,)``, in scaled units."""

    mean: np.ndarray
    log_density: np.ndarray


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
    """

    gram: np.ndarray
    scaling: Scaling
    rows: int
    ridge: float
    variance: float | None = None
    excess: float = 2.0
    mean_rows: float = 1.0

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        """Predict column ``target`` of the scaled rows ``(n, d)`` from its parents."""
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
        # The Student-t density, spelt out because importing scipy.stats takes longer than a small fit.
        freedom = self.rows + self.excess + len(parents) + 1
        residual = self.gram[target, target] + self.ridge - self.gram[parents, target] @ weights
        squared_scale = residual / freedom * spread
        normaliser = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(np.pi * freedom * squared_scale)
        return Predicted(mean, normaliser - (freedom + 1) / 2 * np.log1p(squares / (freedom * squared_scale)))


@dataclass(frozen=True, eq=False)
class SampledGraphs:
    """A pool of weighted DAGs, with edge probabilities that the engine knows better than the pool does."""

    pool: GraphSamples
    marginals: np.ndarray
    predictive: LinearPredictive | None
    kind: ClassVar[str] = "sampled graphs"

    def edge_probabilities(self) -> np.ndarray:
        return self.marginals

    def sample(self, rng: np.random.Generator, names: Sequence[str], size: int) -> GraphSamples:
        """Different members of the pool as long as there are enough with equal weights, else with repetition."""
        equal = np.ptp(self.pool.weights) == 0
        chosen = rng.choice(len(self.pool), size, replace=not equal or size > len(self.pool), p=self.pool.weights)
        return self.pool.take(chosen)

    def predict(self, rng: np.random.Generator, values: np.ndarray, graphs: int) -> Prediction:
        """Each set of parents is solved once, however many graphs share it."""
        if self.predictive is None:
            raise ConfigError(
                "this model gives edge probabilities and graphs, but no predictions; fit model linear for those"
            )
        predictive = self.predictive
        scaled = predictive.scaling.apply(values)
        known: dict[tuple[int, bytes], Predicted] = {}
        total, squared, densities = np.zeros(values.shape), 0.0, []
        drawn = self.sample(rng, self.pool.names, graphs)
        for k in range(graphs):
            sources, targets = drawn.edges(k)
            mean, density = np.empty(values.shape), np.zeros(len(values))
            for target in range(values.shape[1]):
                parents = np.sort(sources[targets == target])
                key = (target, parents.tobytes())
                if key not in known:
                    known[key] = predictive.column(target, parents, scaled)
                mean[:, target] = known[key].mean
                density += known[key].log_density
            in_units = predictive.scaling.undo(mean)
            total += in_units
            squared += float(np.mean((values - in_units) ** 2))
            densities.append(density + predictive.scaling.log_jacobian)
        return Prediction(total / graphs, squared / graphs, logsumexp(np.stack(densities), axis=0) - np.log(graphs))

    def config(self) -> dict[str, Any]:
        told = {"names": list(self.pool.names)}
        if self.predictive is None:
            return told
        numbers = ("rows", "ridge", "variance", "excess", "mean_rows")
        return told | {"predictive": {name: getattr(self.predictive, name) for name in numbers}}

    def arrays(self) -> dict[str, np.ndarray]:
        pool = {name: getattr(self.pool, name) for name in ("offsets", "sources", "targets", "weights")}
        stored = pool | {"marginals": self.marginals}
        if self.predictive is not None:
            scaling = self.predictive.scaling
            stored |= {"gram": self.predictive.gram, "centre": scaling.centre, "scale": scaling.scale}
        return stored

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> SampledGraphs:
        pool = {name: arrays[name] for name in ("offsets", "sources", "targets", "weights")}
        predictive = None
        if "predictive" in config:
            scaling = Scaling(arrays["centre"], arrays["scale"])
            predictive = LinearPredictive(gram=arrays["gram"], scaling=scaling, **config["predictive"])
        return cls(GraphSamples(names=tuple(config["names"]), **pool), arrays["marginals"], predictive)
