"""What the score-based engines leave behind: a pool of DAGs, their edge probabilities, and what they predict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from vcuda.errors import ConfigError
from vcuda.posterior.categorical import CategoricalPredictive
from vcuda.posterior.graph_posterior import Prediction, check_shapes
from vcuda.posterior.mechanisms import CausalModel, draw_models
from vcuda.posterior.predictive import Predictive
from vcuda.posterior.predictives import restore_predictive
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


def predict_rows(
    predictive: Predictive | None, drawn: GraphSamples, values: np.ndarray, names: Sequence[str] | None
) -> Prediction:
    """Rows ``(n, d)`` in the user's units, or codes of categories, averaged over graphs of equal weight.

    Column by column, each set of parents once, however many graphs share it.
    """
    if predictive is None:
        raise ConfigError(
            "this model gives edge probabilities and graphs, but no predictions; fit model linear, gp or additive "
            "for those"
        )
    if isinstance(predictive, CategoricalPredictive):
        return _predict_labels(predictive, drawn, values.astype(np.int64))
    scaling = predictive.scaling
    scaled = scaling.apply(values, names)
    size, nodes = len(drawn), drawn.nodes
    mean, squared, log_density = np.zeros(values.shape), 0.0, np.zeros((size, len(values)))
    for target, parents, members in _parent_sets(drawn):
        prediction = predictive.column(target, parents, scaled)
        share = len(members) / size
        mean[:, target] += share * prediction.mean
        undone = scaling.of(target).undo(prediction.mean[:, None])[:, 0]
        squared += share * float(np.mean((values[:, target] - undone) ** 2))
        log_density[members] += prediction.log_density
    total = logsumexp(log_density, axis=0) - np.log(size) + scaling.log_jacobian(values)
    return Prediction(scaling.undo(mean), squared / nodes, total)


def _predict_labels(predictive: CategoricalPredictive, drawn: GraphSamples, codes: np.ndarray) -> Prediction:
    """The most probable label of every cell, its probability averaged over graphs; codes are those of the law."""
    size, rows = len(drawn), np.arange(len(codes))
    shares = [np.zeros((len(codes), levels)) for levels in predictive.levels.tolist()]
    log_density = np.zeros((size, len(codes)))
    for target, parents, members in _parent_sets(drawn):
        prediction = predictive.probabilities(target, parents, codes)
        shares[target] += len(members) / size * prediction
        log_density[members] += np.log(prediction[rows, codes[:, target]])
    likely = np.stack([share.argmax(axis=1) for share in shares], axis=1)
    total = logsumexp(log_density, axis=0) - np.log(size)
    return Prediction(likely.astype(np.float64), np.nan, total, accuracy=float(np.mean(likely == codes)))


def _parent_sets(drawn: GraphSamples) -> Iterator[tuple[int, np.ndarray, list[int]]]:
    """Node by node each set of parents that it has in some graph, and the graphs in which it has them."""
    size = len(drawn)
    graph = np.repeat(np.arange(size), drawn.edge_counts())
    order = np.lexsort((drawn.sources, graph, drawn.targets))
    sources, graph = drawn.sources[order].astype(np.int64), graph[order]
    spans = np.searchsorted(drawn.targets[order], np.arange(drawn.nodes + 1))
    for target in range(drawn.nodes):
        span = slice(spans[target], spans[target + 1])
        sets = np.split(sources[span], np.searchsorted(graph[span], np.arange(1, size)))
        shared: dict[bytes, list[int]] = {}
        for k, parents in enumerate(sets):
            shared.setdefault(parents.tobytes(), []).append(k)
        for members in shared.values():
            yield target, sets[members[0]], members
