"""The protocol of functional models: how a node depends on its parents, with parameters trained by gradient."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from vcuda.models.protocol import Noise


class ModelParams(NamedTuple):
    """The functions of all nodes, and the logarithm of their noise variances: ``()`` if shared, ``(d,)`` if not."""

    functions: Any
    log_variance: jax.Array


class FunctionalModel(Hashable, Protocol):
    """x_j = f_j(parents of j) + Gaussian noise, for all j at once. A hashable spec; the methods are pure."""

    name: ClassVar[str]

    @property
    def noise(self) -> Noise: ...

    def init(self, key: jax.Array, nodes: int) -> ModelParams: ...

    def predict(self, params: ModelParams, rows: jax.Array, graph: jax.Array) -> jax.Array:
        """The mean of every node given its parents in ``graph``: ``(b, d)`` from rows ``(b, d)``."""
        ...

    def layers(self, functions: Any) -> tuple[list[jax.Array], list[jax.Array]]:
        """Weights and biases, layer by layer, of networks that are the same functions (``vcuda.posterior.point``)."""
        ...


def initial_log_variance(noise: Noise, nodes: int) -> jax.Array:
    return jnp.zeros((nodes,) if noise == "unequal" else ())


def log_density(model: FunctionalModel, params: ModelParams, rows: jax.Array, graph: jax.Array) -> jax.Array:
    """log N(x_j; f_j(parents), noise variance) of every cell, ``(b, d)``."""
    log_variance = jnp.zeros(()) if model.noise == "unit" else params.log_variance
    residual = rows - model.predict(params, rows, graph)
    return -0.5 * (residual**2 * jnp.exp(-log_variance) + log_variance + jnp.log(2 * jnp.pi))


def uniform_fan_in(key: jax.Array, shape: tuple[int, ...], fan_in: int) -> jax.Array:
    """Uniform on ±1/sqrt(fan_in), the initial weights of the paper's program (methods of PyTorch)."""
    bound = fan_in**-0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
