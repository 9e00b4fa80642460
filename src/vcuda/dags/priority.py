"""The paper's distribution over DAGs: Gaussian priority scores times Bernoulli edges (Theorem 1)."""

import dataclasses
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from vcuda.dags.base import (
    DagPrior,
    Entropy,
    Kl,
    edge_entropy,
    edge_kl,
    initial_edge_logits,
    lifted_before,
    lifted_priorities,
    require_positive,
    with_required,
)
from vcuda.dags.lifting import Lift
from vcuda.dags.relaxation import (
    LARGE,
    Relaxed,
    logistic_noise,
    masked_bernoulli,
    sigmoid_slope,
    straight_through,
    threshold,
    uniform_noise,
)
from vcuda.errors import ConfigError

# Entries of the stripes of rows that are summed at once, so that what is summed stays in the cache.
STRIPE_ENTRIES = 1 << 18


class PriorityParams(NamedTuple):
    """Edge logits (d, d); means (d,) and log standard deviation, one for all or (d,), of the priorities."""

    edge_logits: Array
    means: Array
    log_scale: Array


class PriorityNoise(NamedTuple):
    """All the randomness of one graph: logistic for edges (d, d), standard normal for priorities (d,)."""

    edges: Array
    priorities: Array


@dataclasses.dataclass(frozen=True)
class PriorityDags:
    """Edges go from lower to higher priority: A = W * 1[p_j > p_i], W Bernoulli, p Gaussian, independent.

    Every operation costs O(d^2).

    Attributes
    ----------
    order_temperature
        Temperature t of sigmoid((p_j - p_i) / t), the backward form of the comparison. It should be of the
        size of the differences between priorities: far above the gradient is flat, far below it vanishes.
    edge_temperature
        Temperature of the relaxed edge indicators.
    straight_through
        ``"product"``, the authors' program: the product of the hard indicator and the soft order is rounded,
        so that an edge in the direction that the order excludes now still gets a gradient, with weight
        sigmoid((p_j - p_i) / t). ``"factors"``, the paper's text: both are rounded, and only edges that the
        order admits get one.
    scale
        ``"shared"``, as in the paper, or ``"per_node"`` standard deviations of the priorities.
    initial_logit_low, initial_logit_high
        Edge logits start uniform between these two.
    initial_mean_scale, initial_scale
        Priority means start normal with this standard deviation; the priorities' own standard deviation
        starts at the second.
    """

    order_temperature: float = 0.3
    edge_temperature: float = 1.0
    straight_through: Literal["product", "factors"] = "product"
    scale: Literal["shared", "per_node"] = "shared"
    initial_logit_low: float = 0.0
    initial_logit_high: float = 1.0
    initial_mean_scale: float = 1.0
    initial_scale: float = 1.0

    name: ClassVar[str] = "priority"
    exact_marginals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(
            order_temperature=self.order_temperature,
            edge_temperature=self.edge_temperature,
            initial_mean_scale=self.initial_mean_scale,
            initial_scale=self.initial_scale,
        )
        if self.straight_through not in ("product", "factors"):
            raise ConfigError(f"straight_through is {self.straight_through!r}, but must be 'product' or 'factors'")
        if self.scale not in ("shared", "per_node"):
            raise ConfigError(f"scale is {self.scale!r}, but must be 'shared' or 'per_node'")

    def init(self, key: Array, nodes: int) -> PriorityParams:
        """Draw starting parameters; with the defaults, those of the authors' program."""
        edge_key, mean_key = jax.random.split(key)
        return PriorityParams(
            edge_logits=initial_edge_logits(edge_key, nodes, self.initial_logit_low, self.initial_logit_high),
            means=self.initial_mean_scale * jax.random.normal(mean_key, (nodes,)),
            log_scale=jnp.full(() if self.scale == "shared" else (nodes,), np.log(self.initial_scale), jnp.float32),
        )

    def noise(self, key: Array, nodes: int) -> PriorityNoise:
        """Draw the randomness of one graph; ``graph`` turns it into one, so that graphs can share it."""
        # One call of the generator instead of three: compiling it is most of what a small fit waits for.
        uniform = uniform_noise(key, (nodes + 1, nodes))
        edges, priorities = uniform[:nodes], uniform[nodes]
        return PriorityNoise(
            edges=logistic_noise(edges),
            priorities=np.sqrt(2.0) * jax.scipy.special.erfinv(2.0 * priorities - 1.0),
        )

    def graph(
        self, params: PriorityParams, noise: PriorityNoise, allowed: Array | np.ndarray, lift: Lift | None = None
    ) -> Array:
        """Turn noise into a graph (d, d), hard forward and straight-through backward."""
        allowed = jnp.asarray(allowed)
        priorities = params.means + jnp.exp(params.log_scale) * noise.priorities
        if lift is None and allowed.size >= LARGE:
            return _large_graph(self, params.edge_logits, noise.edges, priorities, allowed)
        edges = masked_bernoulli(params.edge_logits, noise.edges, allowed, temperature=self.edge_temperature)
        if lift is not None:
            priorities = lifted_priorities(priorities, lift)
        order = threshold(priorities[None, :] - priorities[:, None], temperature=self.order_temperature)
        if lift is not None:
            order = order._replace(hard=lifted_before(priorities, lift).astype(order.hard.dtype))
        graph = self._product(edges, order)
        return graph if lift is None else with_required(graph, lift)

    def _product(self, edges: Relaxed, order: Relaxed) -> Array:
        if self.straight_through == "factors":
            return edges.straight_through() * order.straight_through()
        return straight_through(edges.hard * order.hard, edges.straight_through() * order.soft)

    def sample(
        self, key: Array, params: PriorityParams, allowed: Array | np.ndarray, lift: Lift | None = None
    ) -> Array:
        """Draw one graph (d, d): exactly 0 or 1 and acyclic forward, a straight-through estimate backward."""
        return self.graph(params, self.noise(key, params.means.shape[0]), allowed, lift)

    def edge_probabilities(self, params: PriorityParams, allowed: Array | np.ndarray) -> Array:
        """Exact probability of every edge (d, d): sigmoid(L_ij) * Phi((m_j - m_i) / sqrt(s_i^2 + s_j^2))."""
        variances = jnp.broadcast_to(jnp.exp(2.0 * params.log_scale), params.means.shape)
        gaps = params.means[None, :] - params.means[:, None]
        admitted = jax.scipy.special.ndtr(gaps / jnp.sqrt(variances[None, :] + variances[:, None]))
        return jnp.where(jnp.asarray(allowed), jax.nn.sigmoid(params.edge_logits) * admitted, 0.0)

    def kl(
        self,
        params: PriorityParams,
        prior: DagPrior,
        allowed: Array | np.ndarray,
        log_odds: Array | np.ndarray | None = None,
    ) -> Kl:
        """Divergence of edge indicators and of priorities, which is an upper bound on that of the order."""
        scaled_variance = jnp.exp(2.0 * params.log_scale) / prior.order_scale**2
        scaled_mean = params.means / prior.order_scale
        by_node = 0.5 * (scaled_variance + scaled_mean**2 - 1.0) - (params.log_scale - jnp.log(prior.order_scale))
        return Kl(edge_kl(params.edge_logits, prior.edge_probability, allowed, log_odds), jnp.sum(by_node))

    def entropy(self, params: PriorityParams, allowed: Array | np.ndarray) -> Entropy:
        """Entropy of the edge indicators, and differential entropy of the priorities."""
        by_node = jnp.broadcast_to(0.5 * jnp.log(2.0 * jnp.pi * jnp.e) + params.log_scale, params.means.shape)
        return Entropy(edge_entropy(params.edge_logits, allowed), jnp.sum(by_node))

    def priorities(self, rng: np.random.Generator, params: PriorityParams, size: int) -> np.ndarray:
        """Draw node priorities (size, d) on the host."""
        means = np.asarray(params.means, dtype=np.float64)
        scale = np.exp(np.asarray(params.log_scale, dtype=np.float64))
        return means + scale * rng.standard_normal((size, len(means)))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _large_graph(spec: PriorityDags, logits: Array, noise: Array, priorities: Array, allowed: Array) -> Array:
    """The graph of ``PriorityDags.graph`` with the same gradient, written for few passes over memory.

    At 5,000 nodes a matrix is 100 MB, and storing one takes longer than to draw its noise. Left to JAX, the gradient
    stores six of them on the way; this stores one, of booleans.
    """
    return _large_graph_forward(spec, logits, noise, priorities, allowed)[0]


def _large_graph_forward(
    spec: PriorityDags, logits: Array, noise: Array, priorities: Array, allowed: Array
) -> tuple[Array, tuple[Array, ...]]:
    del spec
    edges = allowed & (logits + noise > 0.0)
    # Ranks that compare as the priorities do, ties included. The compiler would work out the priorities again, with
    # their inverse error function, for each pair; a search it does once.
    ranks = jnp.searchsorted(jnp.sort(priorities), priorities)
    graph = edges & (ranks[None, :] > ranks[:, None])
    return graph.astype(logits.dtype), (logits, noise, priorities, allowed, edges)


def _large_graph_backward(
    spec: PriorityDags, kept: tuple[Array, ...], upstream: Array
) -> tuple[Array, Array, Array, None]:
    logits, noise, priorities, allowed, edges = kept
    gaps = priorities[None, :] - priorities[:, None]
    order = jax.nn.sigmoid(gaps / spec.order_temperature) if spec.straight_through == "product" else gaps > 0.0
    slope = sigmoid_slope((logits + noise) / spec.edge_temperature) / spec.edge_temperature
    to_logits = jnp.where(allowed, upstream * order * slope, 0.0)
    to_priorities = _priorities_gradient(edges, priorities, upstream, temperature=spec.order_temperature)
    return to_logits, to_logits, to_priorities, None


_large_graph.defvjp(_large_graph_forward, _large_graph_backward)


def _priorities_gradient(edges: Array, priorities: Array, upstream: Array, *, temperature: float) -> Array:
    """Gradient of the priorities (d,): the columns' less the rows' sums of the gradient of their differences."""
    nodes = len(priorities)
    rows = min(nodes, max(1, STRIPE_ENTRIES // nodes))

    def add_stripe(columns: Array, first: Array | int, rows: int) -> tuple[Array, Array]:
        drawn, above, own = (jax.lax.dynamic_slice_in_dim(each, first, rows) for each in (edges, upstream, priorities))
        slope = sigmoid_slope((priorities[None, :] - own[:, None]) / temperature) / temperature
        to_gaps = jnp.where(drawn, above * slope, 0.0)
        return columns + to_gaps.sum(axis=0), to_gaps.sum(axis=1)

    whole = nodes - nodes % rows
    columns, by_row = jax.lax.scan(
        partial(add_stripe, rows=rows), jnp.zeros_like(priorities), jnp.arange(0, whole, rows)
    )
    columns, last = add_stripe(columns, whole, nodes % rows)
    return columns - jnp.concatenate([by_row.reshape(whole), last])
