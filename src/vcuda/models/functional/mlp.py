"""Neural mechanisms: every node is a small network of its parents, plus noise."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from vcuda.errors import ConfigError
from vcuda.models.functional.base import ModelParams, initial_log_variance, uniform_fan_in
from vcuda.models.protocol import Noise, check_noise


class Layers(NamedTuple):
    """The networks of all nodes, layer by layer.

    ``weights[0]`` is ``(d, d, h)``: source, target, hidden unit; the next ones are ``(d, h, h')`` and the last is
    ``(d, h, 1)``. ``biases`` has one ``(d, h)`` array a layer, or none.
    """

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]


@dataclass(frozen=True)
class MLP:
    """x_j = f_j(parents) + noise, f_j a ReLU network of its own for each node.

    Parameters
    ----------
    hidden
        Units of each hidden layer.
    noise
        As in :class:`vcuda.models.functional.linear.Linear`.
    bias
        Without biases a ReLU network of one parent is two rays through the origin, and cannot follow a curve; the
        authors' program has none, so leave them out only to reproduce it.
    """

    hidden: tuple[int, ...] = (32,)
    noise: Noise = "unequal"
    bias: bool = True
    name: ClassVar[str] = "mlp"
    words: ClassVar[str] = "neural network: each variable is a trained function of its direct causes, plus noise"

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if not self.hidden or any(not isinstance(width, int) or width < 1 for width in self.hidden):
            raise ConfigError(f"an MLP needs at least one hidden layer of at least one unit, not {self.hidden}")
        check_noise(self.noise)

    def init(self, key: jax.Array, nodes: int) -> ModelParams:
        widths = (nodes, *self.hidden, 1)
        weights, biases = [], []
        for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
            key, weight_key, bias_key = jax.random.split(key, 3)
            shape = (nodes, nodes, fan_out) if layer == 0 else (nodes, fan_in, fan_out)
            weights.append(uniform_fan_in(weight_key, shape, fan_in))
            biases.append(uniform_fan_in(bias_key, (nodes, fan_out), fan_in))
        layers = Layers(tuple(weights), tuple(biases) if self.bias else ())
        return ModelParams(layers, initial_log_variance(self.noise, nodes))

    def predict(self, params: ModelParams, rows: jax.Array, graph: jax.Array) -> jax.Array:
        """O(b d² h) time and O(d² h + b d h) memory: the mask is folded into the first layer."""
        weights, biases = params.functions
        units = jnp.einsum("bi,ijh->bjh", rows, graph[:, :, None] * weights[0])
        for layer, following in enumerate(weights[1:]):
            units = jax.nn.relu(units + biases[layer] if self.bias else units)
            units = jnp.einsum("bjh,jhk->bjk", units, following)
        return (units + biases[-1] if self.bias else units)[..., 0]

    def layers(self, functions: Layers) -> tuple[list[jax.Array], list[jax.Array]]:
        return list(functions.weights), list(functions.biases)
