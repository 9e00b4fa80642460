"""What every distribution over DAGs can do, and the prior that it is compared with.

Each distribution here draws two independent things: edge indicators W, Bernoulli with logits
``edge_logits``, and an order of the nodes. The graph has the edge i -> j when W[i, j] is one and i comes
before j, so that no sample ever has a cycle and every DAG can be sampled (Theorem 1 of the paper). The
distributions differ in the law of the order alone.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from vcuda.arguments import number
from vcuda.dags.lifting import Lift
from vcuda.errors import ConfigError
from vcuda.specs import from_json

ParamsT = TypeVar("ParamsT", bound=tuple[Any, ...])


class Kl(NamedTuple):
    """Divergence from the prior in nats, by part; both are scalars."""

    edges: Array
    order: Array


class Entropy(NamedTuple):
    """Entropy in nats, by part; both are scalars."""

    edges: Array
    order: Array


@dataclasses.dataclass(frozen=True)
class DagPrior:
    """Independent edges given a uniformly random order of the nodes.

    A DAG counts once for every order that it agrees with; :class:`UniformDags` counts each DAG once.

    Attributes
    ----------
    edge_probability
        Probability of an edge i -> j given that i comes before j. Before data are seen, each ordered pair
        therefore has half of it.
    order_scale
        Standard deviation of the Gaussian prior on the priorities. It does not change the prior of the
        order, which is uniform for every scale; it holds the priorities within reach of the order
        temperature, which it should be tied to.
    """

    edge_probability: float
    order_scale: float = 0.1
    name: ClassVar[str] = "orders"
    over: ClassVar[Literal["orders", "graphs"]] = "orders"

    def __post_init__(self) -> None:
        # Plain numbers, whatever was passed: a spec is hashed, and stored as JSON.
        for name in ("edge_probability", "order_scale"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        _check_edge_probability(self.edge_probability)
        require_positive(order_scale=self.order_scale)

    @classmethod
    def for_nodes(cls, nodes: int, *, expected_parents: float = 1.0, order_scale: float = 0.1) -> Self:
        """Prior with a given expected number of parents of a node, at most an edge probability of one half.

        >>> DagPrior.for_nodes(11).edge_probability
        0.2
        """
        require_positive(nodes=nodes, expected_parents=expected_parents)
        return cls(min(0.5, 2.0 * expected_parents / max(nodes - 1, 1)), order_scale)


@dataclasses.dataclass(frozen=True)
class UniformDags:
    """All DAGs with the same number of edges are equally likely, each DAG counted once.

    The probability of a DAG with e edges is proportional to (p / (1 - p))^e, p the edge probability. With the default
    of one half all DAGs are equally likely. Engines exact and orders take it, for at most 20 columns.

    Attributes
    ----------
    edge_probability
        p, from which the odds of an edge come. It is not the share of DAGs that have the edge.
    """

    edge_probability: float = 0.5
    name: ClassVar[str] = "uniform"
    over: ClassVar[Literal["orders", "graphs"]] = "graphs"

    def __post_init__(self) -> None:
        object.__setattr__(self, "edge_probability", number("edge_probability", self.edge_probability))
        _check_edge_probability(self.edge_probability)


GraphPrior = DagPrior | UniformDags
PRIORS: dict[str, type] = {kind.name: kind for kind in (DagPrior, UniformDags)}


def prior_from_json(stored: Mapping[str, Any]) -> GraphPrior:
    """The prior that ``to_json`` described; without a name it is one over orders, as earlier versions stored it."""
    return from_json({"name": DagPrior.name} | dict(stored), PRIORS)


def _check_edge_probability(probability: float) -> None:
    if not 0.0 < probability < 1.0:
        raise ConfigError(
            f"edge_probability is {probability}, but must lie strictly between 0 and 1; "
            "say what is certain as required or forbidden edges instead"
        )


class DagDistribution(Protocol[ParamsT]):
    """A family of distributions over DAGs: a frozen spec whose methods are pure functions of ``params``.

    ``params`` is a NamedTuple of arrays with at least ``edge_logits`` (d, d). ``allowed`` is a (d, d)
    boolean array, false on the diagonal and wherever an edge is forbidden: such an edge occurs in no sample
    and has no part in divergences and gradients, whatever its logit.

    ``lift`` holds required edges: they are in every sample, and the priorities are lifted until they obey (see
    ``lifting``). Such edges must not be ``allowed``, since what is certain costs no divergence. ``log_odds`` (d, d) are
    prior log odds of single edges, in place of the prior's one probability.
    """

    name: ClassVar[str]
    exact_marginals: ClassVar[bool]
    """Whether ``edge_probabilities`` has a closed form; without one it raises, and samples are averaged."""

    def init(self, key: Array, nodes: int) -> ParamsT:
        """Draw starting parameters."""
        ...

    def sample(self, key: Array, params: ParamsT, allowed: Array | np.ndarray, lift: Lift | None = None) -> Array:
        """Draw one graph (d, d), float32: exactly 0 or 1 and acyclic forward, straight-through backward."""
        ...

    def edge_probabilities(self, params: ParamsT, allowed: Array | np.ndarray) -> Array:
        """Exact probability of every edge (d, d), without sampling and without required edges."""
        ...

    def kl(
        self, params: ParamsT, prior: DagPrior, allowed: Array | np.ndarray, log_odds: Array | np.ndarray | None = None
    ) -> Kl:
        """Divergence from the prior, of edge indicators and of order; each family says what the latter is."""
        ...

    def priorities(self, rng: np.random.Generator, params: ParamsT, size: int) -> np.ndarray:
        """Draw node priorities (size, d) on the host: i -> j is possible when i has the smaller priority."""
        ...


def no_self_loops(nodes: int) -> np.ndarray:
    """Allow every edge but the one from a node to itself: the (d, d) mask when nothing is known."""
    return ~np.eye(nodes, dtype=bool)


def initial_edge_logits(key: Array, nodes: int, low: float, high: float) -> Array:
    """Draw edge logits (d, d) uniformly between two values; those on the diagonal are never used."""
    return jax.random.uniform(key, (nodes, nodes), minval=low, maxval=high)


def edge_kl(
    edge_logits: Array,
    edge_probability: float,
    allowed: Array | np.ndarray,
    log_odds: Array | np.ndarray | None = None,
) -> Array:
    """Divergence of the allowed edge indicators from those of the prior, in nats.

    The prior is one probability, or log odds (d, d) that are finite wherever an edge is allowed.
    """
    logits = jnp.where(allowed, edge_logits, 0.0)
    present, absent = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
    if log_odds is None:
        prior_present, prior_absent = jnp.log(edge_probability), jnp.log1p(-edge_probability)
    else:
        odds = jnp.where(allowed, jnp.asarray(log_odds, dtype=logits.dtype), 0.0)
        prior_present, prior_absent = jax.nn.log_sigmoid(odds), jax.nn.log_sigmoid(-odds)
    by_edge = jnp.exp(present) * (present - prior_present) + jnp.exp(absent) * (absent - prior_absent)
    return jnp.sum(jnp.where(allowed, by_edge, 0.0))


def lifted_priorities(priorities: Array, lift: Lift) -> Array:
    """Lift priorities (..., d) until no required edge points backwards, up to ties: what the traced programs use."""
    return jnp.max(jnp.where(lift.upwards, priorities[..., :, None], -jnp.inf), axis=-2)


def lifted_before(lifted: Array, lift: Lift) -> Array:
    """Whether i comes before j (..., d, d) by lifted priorities (..., d), ties by the order of the required edges."""
    first, second = lifted[..., :, None], lifted[..., None, :]
    ranks = jnp.asarray(lift.ranks)
    return (first < second) | ((first == second) & (ranks[:, None] < ranks[None, :]))


def with_required(graph: Array, lift: Lift) -> Array:
    """A graph (d, d) with the required edges, which have no derivative."""
    return jnp.where(lift.required, jnp.ones_like(graph), graph)


def edge_entropy(edge_logits: Array, allowed: Array | np.ndarray) -> Array:
    """Entropy of the allowed edge indicators in nats."""
    logits = jnp.where(allowed, edge_logits, 0.0)
    present, absent = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
    by_edge = -jnp.exp(present) * present - jnp.exp(absent) * absent
    return jnp.sum(jnp.where(allowed, by_edge, 0.0))


def require_positive(**values: float) -> None:
    """Refuse options that are not positive finite numbers, by name."""
    for name, value in values.items():
        if not 0.0 < value < float("inf"):
            raise ConfigError(f"{name} is {value}, but must be a positive finite number")
