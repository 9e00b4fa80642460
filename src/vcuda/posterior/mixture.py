"""What the variational engine has learned: restarts, each a law of priorities and of the edges that they allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, ndtr

from vcuda.dags.bulk import BulkSampler
from vcuda.dags.lifting import Lift
from vcuda.data.scaling import check_shapes
from vcuda.errors import ConfigError
from vcuda.models.prediction import Prediction, Predictive
from vcuda.posterior.graph_posterior import sample_mixture
from vcuda.posterior.mechanisms import CausalModel, draw_models
from vcuda.posterior.predictions import predict_rows, restore_predictive
from vcuda.posterior.samples import GraphSamples

# Half of the pairs of a sure order point against it; forgetting them halves a run folder. At d = 1,000 all that is
# forgotten adds up to less than .001 edges.
SMALLEST_PROBABILITY = 1e-9
# Pairs at a time, so that temporary arrays stay small beside the logits.
STRIPE_PAIRS = 1 << 21


@dataclass(frozen=True, eq=False)
class OrderMixture:
    """A mixture of r restarts: priorities are normal, and an edge from lower to higher priority is a coin of its own.

    Parameters
    ----------
    edge_logits
        ``(r, d, d)`` in single precision: the edge i -> j is there with probability sigmoid of it if i comes before j;
        minus infinity for edges that never are. 4 r d² bytes, 8 MB for two restarts of 1,000 nodes.
    means, log_scale
        ``(r, d)``: of the priorities.
    weights
        ``(r,)``, not negative, summing to one.
    predictive
        What the score says of new rows, or None.
    required
        ``(d, d)`` edges that are in every graph, or None for none; the priorities are lifted until they obey.
    """

    edge_logits: np.ndarray
    means: np.ndarray
    log_scale: np.ndarray
    weights: np.ndarray
    predictive: Predictive | None
    required: np.ndarray | None = None
    kind: ClassVar[str] = "order mixture"

    def __post_init__(self) -> None:
        if self.means.ndim != 2 or not self.means.size:
            raise ConfigError(f"means must have the shape (restarts, nodes), not {self.means.shape}")
        restarts, nodes = self.means.shape
        expected: dict[str, tuple[int, ...]]
        expected = {"edge_logits": (restarts, nodes, nodes), "log_scale": (restarts, nodes), "weights": (restarts,)}
        if self.required is not None:
            expected["required"] = (nodes, nodes)
        check_shapes({name: getattr(self, name) for name in expected}, expected)
        if np.isnan(self.edge_logits).any() or not (np.isfinite(self.means) & np.isfinite(self.log_scale)).all():
            raise ConfigError("edge_logits, means and log_scale must be numbers; the training has diverged")
        if not np.all(self.weights >= 0) or not np.isclose(self.weights.sum(), 1.0, atol=1e-6):
            raise ConfigError("the weights of restarts must not be negative and must sum to one")

    @classmethod
    def of(
        cls,
        edge_logits: np.ndarray,
        *,
        means: np.ndarray,
        log_scale: np.ndarray,
        weights: np.ndarray,
        predictive: Predictive | None,
        required: np.ndarray | None = None,
    ) -> OrderMixture:
        """From what the engine has learned: without loops, and without edges whose probability is below 1e-9."""
        graph_posterior = cls(
            np.array(edge_logits, dtype=np.float32),
            np.array(means, dtype=np.float64),
            np.array(log_scale, dtype=np.float64),
            np.array(weights, dtype=np.float64),
            predictive,
            None if required is None or not np.any(required) else np.array(required, dtype=bool),
        )
        for k, logits in enumerate(graph_posterior.edge_logits):
            np.fill_diagonal(logits, -np.inf)
            if graph_posterior.required is not None:
                logits[graph_posterior.required] = -np.inf
            for rows in graph_posterior._stripes():
                logits[rows][graph_posterior._member_probabilities(k, rows) < SMALLEST_PROBABILITY] = -np.inf
        return graph_posterior

    @property
    def nodes(self) -> int:
        return int(self.means.shape[1])

    def _stripes(self) -> list[slice]:
        height = max(1, STRIPE_PAIRS // self.nodes)
        return [slice(start, start + height) for start in range(0, self.nodes, height)]

    @cached_property
    def _lift(self) -> Lift | None:
        return Lift.of(self.required)

    @cached_property
    def _lifted_before(self) -> list[np.ndarray]:
        """P(i comes before j) (d, d) in each restart, where required edges lift the priorities."""
        assert self._lift is not None
        return [self._lift.normal_precedence(*one) for one in zip(self.means, np.exp(self.log_scale), strict=True)]

    def _member_probabilities(self, k: int, rows: slice) -> np.ndarray:
        """Probabilities of the edges out of some nodes in restart k: sigmoid(L_ij) P(p_i < p_j)."""
        if self._lift is not None:
            return expit(self.edge_logits[k, rows].astype(np.float64)) * self._lifted_before[k][rows]
        variances = np.exp(2 * self.log_scale[k])
        spread = np.sqrt(variances[rows, None] + variances)
        before = ndtr((self.means[k] - self.means[k, rows, None]) / spread)
        return expit(self.edge_logits[k, rows].astype(np.float64)) * before

    def edge_probabilities(self) -> np.ndarray:
        """Exact: sum_k w_k sigmoid(L_ij) Phi((m_j - m_i) / sqrt(s_i² + s_j²)), ``(d, d)``."""
        probabilities = np.zeros((self.nodes, self.nodes))
        for k, weight in enumerate(self.weights):
            for rows in self._stripes():
                probabilities[rows] += weight * self._member_probabilities(k, rows)
        return probabilities if self.required is None else np.where(self.required, 1.0, probabilities)

    def _draw(self, rng: np.random.Generator, index: int, size: int, names: Sequence[str]) -> GraphSamples:
        sampler = BulkSampler.from_probabilities(expit(self.edge_logits[index]))
        noise = rng.standard_normal((size, self.nodes))
        priorities = self.means[index] + np.exp(self.log_scale[index]) * noise
        if self._lift is None:
            lists = sampler.sample_many(rng, priorities)
        else:
            lists = self._lift.add_required(sampler.sample_many(rng, self._lift.lifted_ranks(priorities)))
        return GraphSamples.from_counts(names, *lists)

    def sample(self, rng: np.random.Generator, names: Sequence[str], size: int) -> GraphSamples:
        return sample_mixture(rng, names, self.weights, size, self._draw)

    def predict(
        self, rng: np.random.Generator, values: np.ndarray, graphs: int, *, names: Sequence[str] | None = None
    ) -> Prediction:
        numbered = [str(node) for node in range(self.nodes)]
        return predict_rows(self.predictive, self.sample(rng, names or numbered, graphs), values, names)

    def models(self, rng: np.random.Generator, names: Sequence[str], size: int) -> Iterator[CausalModel]:
        return draw_models(self.predictive, self.sample(rng, names, size), rng)

    def config(self) -> dict[str, Any]:
        return {} if self.predictive is None else {"predictive": self.predictive.config()}

    def arrays(self) -> dict[str, np.ndarray]:
        order = {"priority_means": self.means, "priority_log_scale": self.log_scale}
        stored = {"edge_logits": self.edge_logits, "weights": self.weights} | order
        if self.required is not None:
            stored["required"] = self.required
        return stored if self.predictive is None else stored | self.predictive.arrays()

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> OrderMixture:
        return cls(
            edge_logits=arrays["edge_logits"],
            means=arrays["priority_means"],
            log_scale=arrays["priority_log_scale"],
            weights=arrays["weights"],
            predictive=restore_predictive(config, arrays, nodes=arrays["priority_means"].shape[-1]),
            required=arrays.get("required"),
        )
