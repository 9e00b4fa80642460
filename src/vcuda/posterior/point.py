"""What the baselines leave behind: graphs, a score for every edge, and networks where the method trained some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from vcuda.data.scaling import Scaling, check_shapes
from vcuda.errors import ConfigError
from vcuda.models.prediction import Mechanism, Prediction
from vcuda.posterior.mechanisms import CausalModel
from vcuda.posterior.samples import GraphSamples


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks of all nodes, one set for all graphs (m = 1) or one for each graph (m = s).

    Parameters
    ----------
    weights
        A layer each: ``(m, d, d, h)`` (source, target, unit), then ``(m, d, h, h')``, the last with one unit; a linear
        function is one layer with one unit.
    biases
        A layer each, ``(m, d, h)``; or none at all.
    log_variance
        Of the noise, ``(m, d)``.
    slope
        Of the rectifier below zero.
    """

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    log_variance: np.ndarray
    slope: float = 0.0

    def __post_init__(self) -> None:
        sets, nodes = self.log_variance.shape
        inputs = nodes
        expected: dict[str, tuple[int, ...]] = {}
        for k, layer in enumerate(self.weights):
            expected[f"weight_{k}"] = (sets, nodes, inputs, layer.shape[-1])
            inputs = layer.shape[-1]
            if self.biases:
                expected[f"bias_{k}"] = (sets, nodes, inputs)
        if inputs != 1 or len(self.biases) not in (0, len(self.weights)):
            raise ConfigError(f"networks need one output, not {inputs}, and a bias in every layer or in none")
        check_shapes(self.arrays(), expected)

    def predict(self, graph: np.ndarray, rows: np.ndarray, *, index: int = 0) -> np.ndarray:
        """The mean of every cell of rows ``(n, d)`` given its parents in a ``(d, d)`` graph."""
        masked = self.weights[0][index] * graph[:, :, None]
        nodes = len(graph)
        units = (rows @ masked.reshape(nodes, -1)).reshape(len(rows), nodes, -1).transpose(1, 0, 2)
        for layer, following in enumerate((*self.weights[1:], None)):
            if self.biases:
                units = units + self.biases[layer][index][:, None, :]
            if following is not None:
                units = np.maximum(units, 0.0) + self.slope * np.minimum(units, 0.0)
                units = units @ following[index]
        return units[:, :, 0].T

    def mechanism(self, target: int, parents: np.ndarray, *, index: int = 0) -> Mechanism:
        """One node as a function of these parents, without the others."""
        layers = [self.weights[0][index][parents, target], *(layer[index][target] for layer in self.weights[1:])]
        biases = [bias[index][target] for bias in self.biases] or [np.zeros(layer.shape[-1]) for layer in layers]
        noise = float(np.exp(0.5 * self.log_variance[index, target]))
        if len(layers) == 1:
            return Mechanism.linear(layers[0][:, 0], float(biases[0][0]), noise)

        def function(inputs: np.ndarray) -> np.ndarray:
            units = inputs @ layers[0] + biases[0]
            for layer, bias in zip(layers[1:], biases[1:], strict=True):
                units = (np.maximum(units, 0.0) + self.slope * np.minimum(units, 0.0)) @ layer + bias
            return units[:, 0]

        return Mechanism(function, noise)

    def log_density(self, residual: np.ndarray, *, index: int = 0) -> np.ndarray:
        """Of each row ``(n,)``, from what its cells differ from their means."""
        log_variance = self.log_variance[index]
        cells = residual**2 * np.exp(-log_variance) + log_variance + np.log(2 * np.pi)
        return -0.5 * cells.sum(axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        layers = {f"weight_{k}": layer for k, layer in enumerate(self.weights)}
        offsets = {f"bias_{k}": bias for k, bias in enumerate(self.biases)}
        return layers | offsets | {"log_variance": self.log_variance}

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Networks:
        layers = range(int(config["layers"]))
        biases = tuple(arrays[f"bias_{k}"] for k in layers) if config["biases"] else ()
        weights = tuple(arrays[f"weight_{k}"] for k in layers)
        return cls(weights, biases, arrays["log_variance"], float(config["slope"]))

    def config(self) -> dict[str, Any]:
        return {"layers": len(self.weights), "biases": bool(self.biases), "slope": self.slope}


@dataclass(frozen=True, eq=False)
class ScoredGraphs:
    """Weighted DAGs with a ``(d, d)`` matrix that ranks edges; a point estimate is one DAG.

    ``units`` lead from the user's units to those of the networks; None where they are the same.
    """

    graphs: GraphSamples
    scores: np.ndarray
    networks: Networks | None = None
    units: Scaling | None = None
    kind: ClassVar[str] = "scored graphs"

    def __post_init__(self) -> None:
        nodes = self.graphs.nodes
        check_shapes({"scores": self.scores}, {"scores": (nodes, nodes)})
        if self.networks is not None and (
            self.networks.log_variance.shape[1] != nodes or len(self.networks.log_variance) not in (1, len(self.graphs))
        ):
            raise ConfigError(
                f"{len(self.graphs)} graphs of {nodes} nodes need networks of shape (1, {nodes}, ...) or "
                f"({len(self.graphs)}, {nodes}, ...), not {self.networks.log_variance.shape}"
            )

    def edge_probabilities(self) -> np.ndarray:
        """The weighted shares of the graphs; scores need not be probabilities, so they are not told as such."""
        return self.graphs.edge_probabilities()

    def sample(self, rng: np.random.Generator, names: Sequence[str], size: int) -> GraphSamples:
        drawn = self.graphs.take(self._draw(rng, size))
        return GraphSamples(tuple(names), drawn.offsets, drawn.sources, drawn.targets, drawn.weights)

    def _draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Which graphs; different ones as long as there are enough with equal weights."""
        weights = self.graphs.weights
        return rng.choice(len(weights), size, replace=np.ptp(weights) > 0 or size > len(weights), p=weights)

    def predict(
        self, rng: np.random.Generator, values: np.ndarray, graphs: int, *, names: Sequence[str] | None = None
    ) -> Prediction:
        """Each drawn graph once, however often it was drawn."""
        if self.networks is None:
            raise ConfigError(
                "this method gives graphs and scores of edges, but no functions to predict with; fit another engine, "
                "such as orders, for predictions"
            )
        chosen, counts = np.unique(self._draw(rng, graphs), return_counts=True)
        mean, squared = np.zeros(values.shape), 0.0
        densities = np.empty((len(chosen), len(values)))
        own = len(self.networks.log_variance) > 1
        units = self._units()
        rows, gained = units.apply(values, names), units.log_jacobian(values)
        for k, (which, share) in enumerate(zip(chosen, counts / graphs, strict=True)):
            index = int(which) if own else 0
            scaled = self.networks.predict(self.graphs.graph(which), rows, index=index)
            predicted = units.undo(scaled)
            mean += share * predicted
            squared += share * float(np.mean((values - predicted) ** 2))
            densities[k] = self.networks.log_density(rows - scaled, index=index) + gained
        return Prediction(mean, squared, logsumexp(densities, axis=0, b=(counts / graphs)[:, None]))

    def models(self, rng: np.random.Generator, names: Sequence[str], size: int) -> Iterator[CausalModel]:
        """The functions as they were trained: they have no uncertainty of their own, apart from that of the graphs."""
        networks = self.networks
        if networks is None:
            raise ConfigError(
                "this method gives graphs and scores of edges, but no functions, and so no effects; fit another "
                "engine, such as orders, for those"
            )
        units = self._units()
        for which in self._draw(rng, size).tolist():
            mechanism = partial(networks.mechanism, index=which if len(networks.log_variance) > 1 else 0)
            yield CausalModel(*self.graphs.edges(which), units, mechanism)

    def _units(self) -> Scaling:
        nodes = self.graphs.nodes
        return Scaling(np.zeros(nodes), np.ones(nodes)) if self.units is None else self.units

    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"names": list(self.graphs.names)}
        return config if self.networks is None else config | {"networks": self.networks.config()}

    def arrays(self) -> dict[str, np.ndarray]:
        graphs = {name: getattr(self.graphs, name) for name in ("offsets", "sources", "targets", "weights")}
        stored = graphs | {"scores": self.scores} | ({} if self.units is None else self.units.arrays())
        return stored if self.networks is None else stored | self.networks.arrays()

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ScoredGraphs:
        lists = {name: arrays[name] for name in ("offsets", "sources", "targets", "weights")}
        networks = Networks.restore(config["networks"], arrays) if "networks" in config else None
        units = Scaling.restore(arrays) if "centre" in arrays else None
        return cls(GraphSamples(names=tuple(config["names"]), **lists), arrays["scores"], networks, units)
