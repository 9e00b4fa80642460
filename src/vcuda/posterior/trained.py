"""What the gradient-trained engine has learned: restarts, each a distribution over DAGs with functions of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logsumexp

from vcuda.dags import DAG_DISTRIBUTIONS
from vcuda.dags.bulk import BulkSampler
from vcuda.dags.lifting import Lift
from vcuda.data.scaling import Scaling, check_shapes
from vcuda.errors import RunError
from vcuda.models import MODELS
from vcuda.models.prediction import Prediction
from vcuda.posterior.graph_posterior import mixture_shares, sample_mixture
from vcuda.posterior.mechanisms import CausalModel
from vcuda.posterior.point import Networks
from vcuda.posterior.samples import GraphSamples
from vcuda.specs import from_json, to_json

# Graphs for estimates of edge probabilities without a closed form, and edges of graphs that are drawn at once.
DRAWS_FOR_MARGINALS, EDGES_AT_ONCE = 2_000, 1 << 25


@dataclass(frozen=True, eq=False)
class TrainedMixture:
    """Restarts of the gradient-trained engine: each a distribution over DAGs with functions of its own.

    ``dag_params`` and ``model_params`` are the specs' own NamedTuples with a leading axis of restarts. ``allowed``
    (d, d) are the edges that may be, ``required`` (d, d) those that always are, which are not among the former; None
    for none.
    """

    dags: Any
    model: Any
    dag_params: Any
    model_params: Any
    weights: np.ndarray
    scaling: Scaling
    allowed: np.ndarray
    required: np.ndarray | None = None
    kind: ClassVar[str] = "trained mixture"

    @cached_property
    def _lift(self) -> Lift | None:
        return Lift.of(self.required)

    def _component(self, params: Any, index: int) -> Any:
        import jax

        return jax.tree.map(lambda stacked: stacked[index], params)

    def component_probabilities(self) -> np.ndarray:
        """Edge probabilities of each restart, ``(r, d, d)``: exact where the family has a closed form."""
        if self._lift is not None and self.dags.name == "priority":
            return np.stack([self._lifted_probabilities(self._lift, k) for k in range(len(self.weights))])
        if self._lift is None and self.dags.exact_marginals:
            return np.stack(
                [
                    np.asarray(self.dags.edge_probabilities(self._component(self.dag_params, k), self.allowed))
                    for k in range(len(self.weights))
                ]
            ).astype(np.float64)
        rng = np.random.default_rng(0)
        return np.stack([self._drawn_probabilities(rng, k) for k in range(len(self.weights))])

    def _drawn_probabilities(self, rng: np.random.Generator, index: int) -> np.ndarray:
        """Shares of edges among draws; graphs with so many edges that they cannot be held at once come in turn."""
        names = [str(node) for node in range(len(self.allowed))]
        logits = self._component(self.dag_params, index).edge_logits
        most = float((expit(np.float64(logits)) * self.allowed).sum())
        size = int(np.clip(EDGES_AT_ONCE // max(most, 1.0), 1, DRAWS_FOR_MARGINALS))
        if size == DRAWS_FOR_MARGINALS:
            return self._draw(rng, index, size, names).edge_probabilities()
        total = np.zeros(self.allowed.shape)
        for first in range(0, DRAWS_FOR_MARGINALS, size):
            some = min(size, DRAWS_FOR_MARGINALS - first)
            total += some * self._draw(rng, index, some, names).edge_probabilities()
        return total / DRAWS_FOR_MARGINALS

    def _lifted_probabilities(self, lift: Lift, index: int) -> np.ndarray:
        params = self._component(self.dag_params, index)
        means = np.asarray(params.means, dtype=np.float64)
        scales = np.broadcast_to(np.exp(np.asarray(params.log_scale, dtype=np.float64)), means.shape)
        drawn = expit(np.float64(params.edge_logits)) * self.allowed * lift.normal_precedence(means, scales)
        return np.where(lift.required, 1.0, drawn)

    def edge_probabilities(self) -> np.ndarray:
        mixed = np.tensordot(self.weights, self.component_probabilities(), axes=1)
        return mixed if self.required is None else np.where(self.required, 1.0, mixed)

    def _draw(self, rng: np.random.Generator, index: int, size: int, names: Sequence[str]) -> GraphSamples:
        params = self._component(self.dag_params, index)
        sampler = BulkSampler.from_probabilities(expit(np.float64(params.edge_logits)) * self.allowed)
        priorities = self.dags.priorities(rng, params, size)
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
        """One graph at a time, so memory stays at a few ``(n, d)`` arrays."""
        from vcuda.models.precision import single_precision

        with single_precision():
            return self._predict(rng, values, graphs, names)

    def _predict(
        self, rng: np.random.Generator, values: np.ndarray, graphs: int, names: Sequence[str] | None
    ) -> Prediction:
        import jax
        import jax.numpy as jnp

        from vcuda.models.functional.base import log_density

        @jax.jit
        def one(params: Any, rows: jax.Array, graph: jax.Array) -> tuple[jax.Array, jax.Array]:
            densities = log_density(self.model, params, rows, graph)
            return self.model.predict(params, rows, graph), densities.sum(axis=1)

        rows = jnp.asarray(self.scaling.apply(values, names), dtype=jnp.float32)
        numbered = [str(node) for node in range(values.shape[1])]
        total = np.zeros(values.shape)
        squared, densities = 0.0, []
        for k, n in mixture_shares(rng, self.weights, graphs):
            params = self._component(self.model_params, k)
            for graph in self._draw(rng, k, n, numbered):
                predicted, density = one(params, rows, jnp.asarray(graph, dtype=jnp.float32))
                mean = np.asarray(predicted, dtype=np.float64)
                total += mean
                squared += float(np.mean((values - self.scaling.undo(mean)) ** 2))
                densities.append(np.asarray(density, dtype=np.float64))
        log_mean = logsumexp(np.stack(densities), axis=0) - np.log(graphs)
        return Prediction(
            self.scaling.undo(total / graphs), squared / graphs, log_mean + self.scaling.log_jacobian(values)
        )

    def models(self, rng: np.random.Generator, names: Sequence[str], size: int) -> Iterator[CausalModel]:
        """The functions as each restart trained them: their uncertainty is that between restarts, and of the graphs."""
        networks = self._networks()
        drawn = []
        for k, n in mixture_shares(rng, self.weights, size):
            graphs = self._draw(rng, k, n, names)
            mechanism = partial(networks.mechanism, index=k)
            drawn += [CausalModel(*graphs.edges(number), self.scaling, mechanism) for number in range(n)]
        # Mixed, so that the first few are as good as any.
        return (drawn[number] for number in rng.permutation(size).tolist())

    def _networks(self) -> Networks:
        """The functions of all restarts on the host."""
        weights, biases = self.model.layers(self.model_params.functions)
        shape = (len(self.weights), len(self.allowed))
        log_variance = np.zeros(shape)
        if self.model.noise != "unit":
            learned = np.asarray(self.model_params.log_variance, dtype=np.float64)
            log_variance = np.broadcast_to(learned.reshape(shape[0], -1), shape)
        return Networks(
            weights=tuple(np.asarray(layer, dtype=np.float64) for layer in weights),
            biases=tuple(np.asarray(layer, dtype=np.float64) for layer in biases) if self.model.bias else (),
            log_variance=log_variance,
        )

    def config(self) -> dict[str, Any]:
        return {"dags": to_json(self.dags), "model": to_json(self.model)}

    def arrays(self) -> dict[str, np.ndarray]:
        import jax

        named = {
            f"{part}_{k}": np.asarray(leaf)
            for part, tree in (("dags", self.dag_params), ("model", self.model_params))
            for k, leaf in enumerate(jax.tree.leaves(tree))
        }
        known = {"allowed": self.allowed} | ({} if self.required is None else {"required": self.required})
        return named | {"weights": self.weights} | known | self.scaling.arrays()

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> TrainedMixture:
        dags = from_json(config["dags"], DAG_DISTRIBUTIONS)
        model = from_json(config["model"], MODELS)
        nodes, restarts = len(arrays["centre"]), len(arrays["weights"])
        expected: dict[str, tuple[int, ...]] = {"weights": (restarts,), "allowed": (nodes, nodes)}
        check_shapes(arrays, expected | ({"required": (nodes, nodes)} if "required" in arrays else {}))
        return cls(
            dags=dags,
            model=model,
            dag_params=_restore_tree(dags, nodes, restarts, "dags", arrays),
            model_params=_restore_tree(model, nodes, restarts, "model", arrays),
            weights=arrays["weights"],
            scaling=Scaling.restore(arrays),
            allowed=arrays["allowed"],
            required=arrays.get("required"),
        )


def _restore_tree(spec: Any, nodes: int, restarts: int, part: str, arrays: Mapping[str, np.ndarray]) -> Any:
    """Stored leaves back into the spec's own structure, which a dry run of its ``init`` gives."""
    import jax

    expected = jax.eval_shape(lambda key: spec.init(key, nodes), jax.random.key(0))
    leaves, structure = jax.tree.flatten(expected)
    stored = [arrays[f"{part}_{k}"] for k in range(len(leaves))]
    for leaf, found in zip(leaves, stored, strict=True):
        if found.shape != (restarts, *leaf.shape):
            raise RunError(f"the run's {part} has an array of shape {found.shape}, not {(restarts, *leaf.shape)}")
    return jax.tree.unflatten(structure, stored)
