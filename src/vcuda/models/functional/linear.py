"""Linear mechanisms: every node is a weighted sum of its parents, plus noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from vcuda.models.functional.base import ModelParams, initial_log_variance, uniform_fan_in
from vcuda.models.protocol import Noise, check_noise


class LinearFunctions(NamedTuple):
    """``weights[i, j]`` is the effect of i on j if the edge is there; ``bias`` is ``(d,)``, or empty without biases."""

    weights: jax.Array
    bias: jax.Array


@dataclass(frozen=True)
class Linear:
    """x_j = bias_j + sum over parents i of weights[i, j] x_i + noise.

    Parameters
    ----------
    noise
        Noise variance: ``"unit"`` fixes it at one in the units of the fit, ``"equal"`` learns one for all nodes,
        ``"unequal"`` learns one for each node.
    bias
        The authors' program has none; leave them out only to reproduce it.
    """

    noise: Noise = "unequal"
    bias: bool = True
    name: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        check_noise(self.noise)

    def init(self, key: jax.Array, nodes: int) -> ModelParams:
        functions = LinearFunctions(
            weights=uniform_fan_in(key, (nodes, nodes), nodes), bias=jnp.zeros(nodes if self.bias else 0)
        )
        return ModelParams(functions, initial_log_variance(self.noise, nodes))

    def predict(self, params: ModelParams, rows: jax.Array, graph: jax.Array) -> jax.Array:
        """O(b d²): the mask is folded into the weights, so no ``(b, d, d)`` array is made."""
        weights, bias = params.functions
        predicted = rows @ (graph * weights)
        return predicted + bias if self.bias else predicted

    def layers(self, functions: LinearFunctions) -> tuple[list[jax.Array], list[jax.Array]]:
        return [functions.weights[..., None]], [functions.bias[..., None]]
