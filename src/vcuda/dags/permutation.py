"""Distributions over DAGs whose order is a permutation matrix P: Gumbel-Top-k and Gumbel-Sinkhorn.

Row r of P names the node of rank r, and A = W * (P^T U P) with U strictly upper triangular, all ones.
Written out, P^T U P is a product of d x d matrices and costs O(d^3), forward and backward; ``order_mask``
gives the same value and the same gradient in O(d^2).
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import log_expit

from vcuda.dags.base import (
    DagPrior,
    Kl,
    edge_kl,
    initial_edge_logits,
    lifted_priorities,
    require_positive,
    with_required,
)
from vcuda.dags.lifting import Lift
from vcuda.dags.relaxation import logistic_noise, masked_bernoulli, uniform_noise
from vcuda.errors import ConfigError


@jax.custom_vjp
def order_mask(soft_permutation: Array, order: Array) -> Array:
    """Which edges an order admits (d, d): one at [a, b] when a comes before b, which is P^T U P.

    ``order`` (d,) lists the nodes by rank. ``soft_permutation`` (d, d) only receives the gradient, straight
    through the hard P.
    """
    del soft_permutation
    ranks = jnp.argsort(order)
    return (ranks[:, None] < ranks[None, :]).astype(jnp.float32)


def _order_mask_forward(soft_permutation: Array, order: Array) -> tuple[Array, Array]:
    return order_mask(soft_permutation, order), order


def _order_mask_backward(order: Array, upstream: Array) -> tuple[Array, None]:
    # The gradient is U P G^T + U^T P G for the upstream G. P gathers rows, U sums the rows below, U^T the rows
    # above, so that with X = P G^T and Y = P G one running sum is enough: (sum of all X) - X + (sum above of Y - X).
    # A scan over rows, because jnp.cumsum is an associative scan and takes eight times as long at d = 5000.
    transposed = upstream.T

    def next_rank(above: Array, node: Array) -> tuple[Array, Array]:
        return above + upstream[node] - transposed[node], above - transposed[node]

    _, gradient = jax.lax.scan(next_rank, upstream.sum(axis=1), order)
    return gradient, None


order_mask.defvjp(_order_mask_forward, _order_mask_backward)


class TopKParams(NamedTuple):
    """Edge logits (d, d), and log weights (d,) of the Plackett-Luce order: a high one comes early."""

    edge_logits: Array
    order_logits: Array


@dataclasses.dataclass(frozen=True)
class TopKDags:
    """Order by log weights plus Gumbel noise, a Plackett-Luce order, with SoftSort backward; all in O(d^2).

    Attributes
    ----------
    order_temperature
        Temperature of the softmax in the soft permutation of the backward pass.
    edge_temperature
        Temperature of the relaxed edge indicators.
    initial_logit_low, initial_logit_high
        Edge logits start uniform between these two; all log weights start at zero, that is at the uniform
        order.
    """

    order_temperature: float = 1.0
    edge_temperature: float = 1.0
    initial_logit_low: float = 0.0
    initial_logit_high: float = 1.0

    name: ClassVar[str] = "topk"
    exact_marginals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(order_temperature=self.order_temperature, edge_temperature=self.edge_temperature)

    def init(self, key: Array, nodes: int) -> TopKParams:
        """Draw starting parameters: those of DDS."""
        edge_logits = initial_edge_logits(key, nodes, self.initial_logit_low, self.initial_logit_high)
        return TopKParams(edge_logits, jnp.zeros(nodes))

    def soft_permutation(self, scores: Array, order: Array) -> Array:
        """SoftSort (d, d): row r is the softmax over nodes of minus their distance to the score of rank r."""
        distances = jnp.abs(scores[None, :] - scores[order][:, None])
        return jax.nn.softmax(-distances / self.order_temperature, axis=1)

    def sample(self, key: Array, params: TopKParams, allowed: Array | np.ndarray, lift: Lift | None = None) -> Array:
        """Draw one graph (d, d): exactly 0 or 1 and acyclic forward, a straight-through estimate backward."""
        edge_key, order_key = jax.random.split(key)
        nodes = params.order_logits.shape[0]
        noise = logistic_noise(uniform_noise(edge_key, (nodes, nodes)))
        edges = masked_bernoulli(params.edge_logits, noise, jnp.asarray(allowed), temperature=self.edge_temperature)
        scores = jax.nn.log_softmax(params.order_logits) + jax.random.gumbel(order_key, (nodes,))
        # Not the largest entry of each row of the soft permutation: with tied scores that names one node
        # twice.
        if lift is None:
            order = jnp.argsort(-jax.lax.stop_gradient(scores))
            return edges.straight_through() * order_mask(self.soft_permutation(scores, order), order)
        scores = -lifted_priorities(-scores, lift)
        order = jnp.lexsort((jnp.asarray(lift.ranks), -jax.lax.stop_gradient(scores)))
        graph = edges.straight_through() * order_mask(self.soft_permutation(scores, order), order)
        return with_required(graph, lift)

    def edge_probabilities(self, params: TopKParams, allowed: Array | np.ndarray) -> Array:
        """Exact probability of every edge (d, d), sigmoid(L_ab) * sigmoid(psi_a - psi_b)."""
        admitted = jax.nn.sigmoid(params.order_logits[:, None] - params.order_logits[None, :])
        return jnp.where(jnp.asarray(allowed), jax.nn.sigmoid(params.edge_logits) * admitted, 0.0)

    def kl(
        self,
        params: TopKParams,
        prior: DagPrior,
        allowed: Array | np.ndarray,
        log_odds: Array | np.ndarray | None = None,
    ) -> Kl:
        """Divergence of the edge indicators, and an upper bound on that of the order from the uniform one.

        The order term is the divergence between the Gumbel scores that make the order and scores with one
        common location, the location that makes it smallest: sum(psi) + d log mean(exp(-psi)). It is zero
        exactly at the uniform order and, as the order, does not change when all psi shift. The prior's
        ``order_scale`` has no part in it. DDS uses no such term.
        """
        nodes = params.order_logits.shape[0]
        common = jax.nn.logsumexp(-params.order_logits) - jnp.log(nodes)
        bound = jnp.sum(params.order_logits) + nodes * common
        return Kl(edge_kl(params.edge_logits, prior.edge_probability, allowed, log_odds), bound)

    def priorities(self, rng: np.random.Generator, params: TopKParams, size: int) -> np.ndarray:
        """Draw node priorities (size, d) on the host: the scores, negated, since a high one comes early."""
        logits = np.asarray(params.order_logits, dtype=np.float64)
        return -(logits + rng.gumbel(size=(size, len(logits))))


class SinkhornParams(NamedTuple):
    """Edge logits (d, d), and logits (d, d) of the assignment of ranks (rows) to nodes (columns)."""

    edge_logits: Array
    order_logits: Array


@dataclasses.dataclass(frozen=True)
class SinkhornDags:
    """Order by the best assignment under Gumbel noise, with the Sinkhorn relaxation backward.

    A sample solves an assignment problem on the host, O(d^3) at worst. The order has no closed-form distribution:
    edge probabilities are means over samples.

    Attributes
    ----------
    order_temperature
        Temperature of the relaxed permutation. Below about 0.1 the default number of iterations leaves it
        far from doubly stochastic, and the gradient's bias grows.
    noise_factor
        Factor of the Gumbel noise.
    iterations
        Row and column normalisations.
    edge_temperature
        Temperature of the relaxed edge indicators.
    initial_logit_low, initial_logit_high
        Edge logits start uniform between these two; all assignment logits start at zero, that is at the
        uniform order.
    """

    order_temperature: float = 1.0
    noise_factor: float = 1.0
    iterations: int = 20
    edge_temperature: float = 1.0
    initial_logit_low: float = 0.0
    initial_logit_high: float = 1.0

    name: ClassVar[str] = "sinkhorn"
    exact_marginals: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_positive(
            order_temperature=self.order_temperature,
            noise_factor=self.noise_factor,
            iterations=self.iterations,
            edge_temperature=self.edge_temperature,
        )

    def init(self, key: Array, nodes: int) -> SinkhornParams:
        """Draw starting parameters: those of DDS."""
        edge_logits = initial_edge_logits(key, nodes, self.initial_logit_low, self.initial_logit_high)
        return SinkhornParams(edge_logits, jnp.zeros((nodes, nodes)))

    def sample(
        self, key: Array, params: SinkhornParams, allowed: Array | np.ndarray, lift: Lift | None = None
    ) -> Array:
        """Draw one graph (d, d): exactly 0 or 1 and acyclic forward, a straight-through estimate backward."""
        edge_key, order_key = jax.random.split(key)
        shape = params.edge_logits.shape
        noise = logistic_noise(uniform_noise(edge_key, shape))
        edges = masked_bernoulli(params.edge_logits, noise, jnp.asarray(allowed), temperature=self.edge_temperature)
        values = jax.nn.log_sigmoid(params.order_logits) + self.noise_factor * jax.random.gumbel(order_key, shape)
        values = values / self.order_temperature
        soft = jnp.exp(log_sinkhorn(values, iterations=self.iterations))
        order = best_assignment(values)
        if lift is None:
            return edges.straight_through() * order_mask(soft, order)
        places = lifted_priorities(jnp.argsort(order), lift)
        order = jnp.lexsort((jnp.asarray(lift.ranks), places))
        return with_required(edges.straight_through() * order_mask(soft, order), lift)

    def edge_probabilities(self, params: SinkhornParams, allowed: Array | np.ndarray) -> Array:
        """Refuse: there is no closed form."""
        raise ConfigError(
            "Gumbel-Sinkhorn has no exact edge probabilities; take the mean over sampled graphs, or choose "
            "the priority or Top-k distribution"
        )

    def kl(
        self,
        params: SinkhornParams,
        prior: DagPrior,
        allowed: Array | np.ndarray,
        log_odds: Array | np.ndarray | None = None,
    ) -> Kl:
        """Divergence of the edge indicators, and an upper bound on that of the order from the uniform one.

        The order term is the divergence between the Gumbel scores that make the assignment and scores whose
        locations are a row effect plus a column effect, which make all assignments equally likely. The
        effects that make it smallest scale exp(-locations) to equal row and column sums, which is Sinkhorn's
        problem; after a finite number of iterations it is still a bound. The prior's ``order_scale`` has no
        part in it. DDS uses no such term.
        """
        locations = jax.nn.log_sigmoid(params.order_logits) / self.noise_factor
        scaled = log_sinkhorn(-locations, iterations=self.iterations)
        bound = -jnp.sum(scaled + jnp.log(len(locations)))
        return Kl(edge_kl(params.edge_logits, prior.edge_probability, allowed, log_odds), bound)

    def priorities(self, rng: np.random.Generator, params: SinkhornParams, size: int) -> np.ndarray:
        """Draw node priorities (size, d) on the host: the ranks, one assignment problem for each draw."""
        from scipy.optimize import linear_sum_assignment

        locations = log_expit(np.asarray(params.order_logits, dtype=np.float64))
        ranks = np.empty((size, len(locations)))
        for draw in ranks:
            order = linear_sum_assignment(
                locations + self.noise_factor * rng.gumbel(size=locations.shape), maximize=True
            )[1]
            draw[order] = np.arange(len(order))
        return ranks


def log_sinkhorn(values: Array, *, iterations: int) -> Array:
    """Scale exp(values) (d, d) towards row and column sums of one, in logarithms; the columns come last.

    The iterates differ from ``values`` by a row and a column effect only, so that the loop carries two
    vectors and its gradient recomputes the rest: memory O(d^2) and not O(d^2 * iterations).
    """

    @jax.checkpoint
    def step(effects: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        rows = jax.nn.logsumexp(values - effects[1][None, :], axis=1)
        return (rows, jax.nn.logsumexp(values - rows[:, None], axis=0)), None

    start = (jnp.zeros(values.shape[0]), jnp.zeros(values.shape[1]))
    (rows, columns), _ = jax.lax.scan(step, start, None, length=iterations)
    return values - rows[:, None] - columns[None, :]


def best_assignment(values: Array) -> Array:
    """Column of each row (d,) in the assignment with the largest sum of values (d, d); has no gradient."""
    result = jax.ShapeDtypeStruct(values.shape[:-1], np.int32)
    return jax.pure_callback(_host_assignment, result, jax.lax.stop_gradient(values), vmap_method="broadcast_all")


def _host_assignment(values: Array | np.ndarray) -> np.ndarray:
    from scipy.optimize import (
        linear_sum_assignment,
    )  # inside, because the import takes longer than all others of this file

    batch = np.asarray(values)
    flat = batch.reshape(-1, *batch.shape[-2:])
    columns = [linear_sum_assignment(one, maximize=True)[1] for one in flat]
    return np.asarray(columns, dtype=np.int32).reshape(batch.shape[:-1])
