"""The training of DDS, compiled: one graph a step, and two Adams; and batches of shuffled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vcuda.baselines.networks import fan_in_layers
from vcuda.dags.base import edge_kl
from vcuda.dags.permutation import SinkhornParams, TopKParams
from vcuda.models.functional.mlp import Layers

if TYPE_CHECKING:
    from vcuda.baselines.dds import Dds

Array = jax.Array | np.ndarray


class Trained(NamedTuple):
    """The distribution over graphs, and the networks."""

    dags: TopKParams | SinkhornParams
    layers: Layers


class State(NamedTuple):
    """Between two steps."""

    trained: Trained
    optimiser: Any
    taken: Array


class Batches(NamedTuple):
    """Rows for several steps: their indices ``(steps, b)``, and a weight of 0 for those that only fill up a batch."""

    rows: np.ndarray
    weight: np.ndarray


def shuffled_batches(rng: np.random.Generator, rows: int, size: int, epochs: int) -> Batches:
    """Every row once an epoch, in a new order each; the last batch of an epoch may be short."""
    steps = -(-rows // size)
    indices = np.zeros((epochs, steps * size), dtype=np.int32)
    for epoch in indices:
        epoch[:rows] = rng.permutation(rows)
    weight = np.broadcast_to(np.arange(steps * size) < rows, indices.shape)
    return Batches(indices.reshape(-1, size), weight.reshape(-1, size).astype(np.float32))


def predict(layers: Layers, graph: Array, rows: Array) -> jax.Array:
    """What every node's network makes of rows ``(b, d)``, given its parents: ``(b, d)``.

    With a rectifier whose derivative at zero is zero: without biases a node without parents sits exactly there, and
    must not be drawn to any.
    """
    nodes, size = graph.shape[0], rows.shape[0]
    masked = (layers.weights[0] * graph[:, :, None]).reshape(nodes, -1)
    units = (masked.T @ rows.T).reshape(nodes, -1, size)
    for layer, following in enumerate((*layers.weights[1:], None)):
        if layers.biases:
            units = units + layers.biases[layer][:, :, None]
        if following is not None:
            units = jnp.einsum("jhk,jhb->jkb", following, jax.nn.relu(units))
    return units[:, 0, :].T


class Program:
    """The compiled pieces for one spec."""

    def __init__(self, spec: Dds) -> None:
        self.spec = spec
        rates = {"graph": optax.adam(spec.graph_learning_rate), "networks": optax.adam(spec.learning_rate)}
        self.optimiser = optax.multi_transform(rates, Trained(dags="graph", layers="networks"))  # type: ignore[arg-type]
        self._start = jax.jit(self._begin)
        self.advance = jax.jit(self._advance)
        self.loss = jax.jit(self._loss)

    def init(self, rng: np.random.Generator, nodes: int) -> State:
        """Every order equally likely, edges a little likelier than not, and networks that have seen nothing."""
        layers = fan_in_layers(rng, nodes, self.spec.hidden)
        # Here a node's own column is an input too, though it is always masked.
        narrower = (max(nodes - 1, 1) / nodes) ** 0.5
        weights = (layers.weights[0] * narrower, *layers.weights[1:])
        biases = (layers.biases[0] * narrower, *layers.biases[1:]) if self.spec.bias else ()
        logits = jnp.asarray(rng.uniform(size=(nodes, nodes)), dtype=jnp.float32)
        dags: TopKParams | SinkhornParams
        if self.spec.order == "topk":
            dags = TopKParams(logits, jnp.asarray(np.zeros(nodes, dtype=np.float32)))
        else:
            dags = SinkhornParams(logits, jnp.asarray(np.zeros((nodes, nodes), dtype=np.float32)))
        return self._start(Trained(dags, jax.tree.map(np.float32, Layers(weights, biases))))

    def _begin(self, trained: Trained) -> State:
        return State(trained, self.optimiser.init(trained), jnp.array(0, dtype=jnp.int32))

    def _loss(self, trained: Trained, graph: Array, rows: Array, weight: Array, allowed: Array) -> jax.Array:
        """The mean squared error of weighted rows under one graph, and the prior's part."""
        squares = jnp.sum((rows - predict(trained.layers, graph, rows)) ** 2, axis=1)
        nodes, probability = graph.shape[0], self.spec.edge_probability
        logits = trained.dags.edge_logits
        if self.spec.prior == "kl":
            cost = edge_kl(logits, probability, allowed)
        else:
            cost = jnp.sum(jnp.where(allowed, probability * (jnp.log(probability) - logits), 0.0))
        return jnp.sum(squares * weight) / (jnp.sum(weight) * nodes) + self.spec.prior_weight * cost / nodes**2

    def sampled_loss(self, trained: Trained, key: jax.Array, rows: Array, weight: Array, allowed: Array) -> jax.Array:
        """The same under one graph drawn from what is trained, with straight-through derivatives."""
        graph = self.spec.dags.sample(key, trained.dags, allowed)  # type: ignore[arg-type]
        return self._loss(trained, graph, rows, weight, allowed)

    def _advance(
        self, state: State, key: jax.Array, values: Array, batches: Batches, first: int, last: int, allowed: Array
    ) -> State:
        """Steps on the batches ``first`` to ``last``."""

        def body(position: jax.Array, state: State) -> State:
            rows, weight = values[batches.rows[position]], batches.weight[position]
            step_key = jax.random.fold_in(key, state.taken)
            gradient = jax.grad(self.sampled_loss)(state.trained, step_key, rows, weight, allowed)
            updates, optimiser = self.optimiser.update(gradient, state.optimiser)
            return State(optax.apply_updates(state.trained, updates), optimiser, state.taken + 1)

        values, batches = jnp.asarray(values), jax.tree.map(jnp.asarray, batches)
        return jax.lax.fori_loop(first, last, body, state)
