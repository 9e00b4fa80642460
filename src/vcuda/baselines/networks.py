"""Small networks, one for each node, trained together: what GraN-DAG and MCSL fit."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.models.functional.mlp import Layers
from vcuda.posterior.point import Networks

Array = jax.Array | np.ndarray


# Starting weights come from the host: to compile JAX's generators for every shape takes longer than many a fit.
def xavier_layers(rng: np.random.Generator, nodes: int, hidden: tuple[int, ...]) -> Layers:
    """Weights uniform on ±gain sqrt(6 / (fan in + fan out)) with the gain of a leaky rectifier, and zero biases."""
    gain = (2 / (1 + 0.01**2)) ** 0.5
    weights, biases = [], []
    for fan_in, fan_out in pairwise((nodes, *hidden, 1)):
        bound = gain * (6 / (fan_in + fan_out)) ** 0.5
        weights.append(rng.uniform(-bound, bound, (nodes, fan_in, fan_out)))
        biases.append(np.zeros((nodes, fan_out)))
    return Layers(tuple(weights), tuple(biases))  # type: ignore[arg-type]


def fan_in_layers(rng: np.random.Generator, nodes: int, hidden: tuple[int, ...]) -> Layers:
    """Weights and biases uniform on ±1/sqrt(fan in), where a node's own column is no input."""
    weights, biases = [], []
    for layer, (inputs, fan_out) in enumerate(pairwise((nodes, *hidden, 1))):
        bound = max(inputs - 1 if layer == 0 else inputs, 1) ** -0.5
        weights.append(rng.uniform(-bound, bound, (nodes, inputs, fan_out)))
        biases.append(rng.uniform(-bound, bound, (nodes, fan_out)))
    return Layers(tuple(weights), tuple(biases))  # type: ignore[arg-type]


def predict(layers: Layers, mask: Array, rows: Array, slope: float) -> jax.Array:
    """What every node's network makes of rows ``(b, d)``, input i of node j weighted by ``mask[i, j]``: ``(b, d)``.

    The mask is folded into the first layer, whose product is then one matrix product; the next ones are one batch of d.
    Rows come last in all of them, because they are many and units are few.
    """
    nodes, size = len(mask), len(rows)
    masked = (layers.weights[0] * mask[:, :, None]).reshape(nodes, -1)
    units = (masked.T @ rows.T).reshape(nodes, -1, size) + layers.biases[0][:, :, None]
    for weight, bias in zip(layers.weights[1:], layers.biases[1:], strict=True):
        units = jnp.einsum("jhk,jhb->jkb", weight, jax.nn.leaky_relu(units, slope)) + bias[:, :, None]
    return units[:, 0, :].T


def path_strengths(layers: Layers, mask: Array) -> jax.Array:
    """How strongly input i reaches the output of node j: the mean over paths of the product of |weights|, ``(d, d)``.

    Zero exactly when the network of j does not depend on i by any path.
    """
    reach = jnp.ones((len(mask), 1))
    for weight in reversed(layers.weights[1:]):
        reach = jnp.einsum("jhk,jk->jh", jnp.abs(weight), reach) / weight.shape[1]
    return jnp.einsum("ijh,jh->ij", jnp.abs(layers.weights[0]), reach) * mask


def slopes(layers: Layers, mask: Array, row: Array, slope: float) -> jax.Array:
    """The derivative of every node's prediction by every input, at one row ``(d,)``: ``(d, d)``, input i of node j."""

    def total(inputs: jax.Array) -> jax.Array:
        """Inputs of its own for each node, so that one backward pass tells all derivatives apart."""
        units = jnp.einsum("ij,ijh->jh", inputs * mask, layers.weights[0]) + layers.biases[0]
        for weight, bias in zip(layers.weights[1:], layers.biases[1:], strict=True):
            units = jnp.einsum("jh,jhk->jk", jax.nn.leaky_relu(units, slope), weight) + bias
        return units.sum()

    return jax.grad(total)(jnp.broadcast_to(row[:, None], mask.shape))


def as_networks(layers: Layers, log_variance: np.ndarray, slope: float) -> Networks:
    """The trained layers as the law of a point estimate keeps them."""
    one = [np.asarray(array, dtype=np.float64)[None] for array in (*layers.weights, *layers.biases)]
    depth = len(layers.weights)
    return Networks(tuple(one[:depth]), tuple(one[depth:]), np.asarray(log_variance, dtype=np.float64)[None], slope)
