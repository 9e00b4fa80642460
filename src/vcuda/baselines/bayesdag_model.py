"""The model of one BayesDAG chain: an order from d numbers, edges from a helper network, and a node's function."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.dags.permutation import order_mask
from vcuda.dags.relaxation import straight_through

Array = jax.Array | np.ndarray
# Effects of rows and columns, the following ones of rows, and the iterations done.
Balance = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

# The numbers times 10 [1, ..., d], at temperature 0.2, and how far from one a sum of rows or columns may be.
SHARPNESS = 10.0 / 0.2
TOLERANCE = 1e-3
SLOPE = 0.01


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def soft_ranks(numbers: jax.Array, iterations: int) -> jax.Array:
    """Which node has which rank, the smallest number first: doubly stochastic, ``(d, d)``, node by rank.

    The fixed point of Sinkhorn's iterations on exp(numbers × ranks). Its derivative comes from the equations of the
    fixed point: through up to 3,000 iterations it would take as many times the memory.
    """
    return _balanced(numbers, iterations)


def _balanced(numbers: jax.Array, iterations: int) -> jax.Array:
    nodes = numbers.shape[0]
    # Centred, which changes nothing but row and column effects, and keeps single precision exact enough.
    centred = numbers - jnp.mean(numbers)
    values = SHARPNESS * centred[:, None] * _centred_ranks(nodes)[None, :]
    # Where no two nodes would gain by changing places, whatever the numbers: from here a few iterations are enough, and
    # from zero it takes hundreds when the numbers are far apart.
    ascending = jnp.sort(centred)
    between = SHARPNESS * (ascending[1:] + ascending[:-1]) / 2
    start = jnp.concatenate([jnp.zeros(1), jnp.cumsum(between)])

    def rows_for(columns: jax.Array) -> jax.Array:
        return jax.nn.logsumexp(values - columns[None, :], axis=1)

    def unbalanced(carry: Balance) -> jax.Array:
        rows, _, following, done = carry
        return (jnp.max(jnp.abs(jnp.expm1(following - rows))) > TOLERANCE) & (done < iterations)

    def body(carry: Balance) -> Balance:
        _, _, rows, done = carry
        columns = jax.nn.logsumexp(values - rows[:, None], axis=0)
        return rows, columns, rows_for(columns), done + 1

    first = (jnp.full(nodes, -jnp.inf), start, rows_for(start), jnp.array(0))
    rows, columns, _, _ = jax.lax.while_loop(unbalanced, body, first)
    return jnp.exp(values - rows[:, None] - columns[None, :])


def _centred_ranks(nodes: int) -> jax.Array:
    return jnp.arange(nodes) - (nodes - 1) / 2


def _soft_ranks_forward(numbers: jax.Array, iterations: int) -> tuple[jax.Array, jax.Array]:
    balanced = _balanced(numbers, iterations)
    return balanced, balanced


def _soft_ranks_backward(iterations: int, balanced: jax.Array, upstream: jax.Array) -> tuple[jax.Array]:
    """With P = exp(X - a - b) and its sums held fast, dP = P * (dX - da - db): two effects are solved for."""
    del iterations
    nodes = balanced.shape[0]
    weighted = balanced * upstream
    sums = balanced.sum(axis=1)
    scaled = balanced / sums[:, None]
    # Constants cancel between the effects of rows and columns, in each group of ranks that is apart from all others;
    # what is added chooses among them. With the sums as they came out on the diagonal, and not ones, the constants are
    # in the kernel up to rounding, far below 1e-5: with ones a node far off made the system singular.
    system = jnp.diag((1 + 1e-5) * balanced.sum(axis=0)) - balanced.T @ scaled + 1 / nodes
    columns = jnp.linalg.solve(system, weighted.sum(axis=0) - scaled.T @ weighted.sum(axis=1))
    rows = (weighted.sum(axis=1) - balanced @ columns) / sums
    by_values = balanced * (upstream - rows[:, None] - columns[None, :])
    return (SHARPNESS * by_values @ _centred_ranks(nodes),)


soft_ranks.defvjp(_soft_ranks_forward, _soft_ranks_backward)


class Ordered(NamedTuple):
    """The order of d numbers: which edges it admits, ``(d, d)``, and each node's rank, ``(d, d)`` with one 1 a row."""

    admitted: jax.Array
    ranks: jax.Array


def ordered(numbers: jax.Array, iterations: int) -> Ordered:
    """a -> b is admitted when a has the larger number; the derivatives are those of the soft ranks.

    The best assignment of ranks to numbers sorts them, so that no assignment problem has to be solved.
    """
    nodes = numbers.shape[0]
    soft = soft_ranks(numbers, iterations)
    order = jnp.argsort(-jax.lax.stop_gradient(numbers))
    hard = jnp.eye(nodes, dtype=numbers.dtype)[nodes - 1 - jnp.argsort(order)]
    return Ordered(order_mask(soft.T[::-1], order), straight_through(hard, soft))


class Dense(NamedTuple):
    """One network: ``(in, out)`` and ``(out,)`` a layer.

    Where hidden layers are normalised they have gains and offsets, ``(out,)`` each, for what the next layer is given.
    """

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]
    gains: tuple[jax.Array, ...] = ()
    offsets: tuple[jax.Array, ...] = ()

    def given(self, layer: int, units: jax.Array) -> jax.Array:
        """What the next layer is given of the units ``(out,)`` of a hidden one."""
        return _standardised(units) * self.gains[layer] + self.offsets[layer] if self.gains else units


def dense_layers(rng: np.random.Generator, *widths: int, normalise: bool) -> Dense:
    """Uniform on ±1/sqrt(fan in), as PyTorch starts them."""
    weights, biases = [], []
    for fan_in, fan_out in pairwise(widths):
        bound = fan_in**-0.5
        weights.append(rng.uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32))
        biases.append(rng.uniform(-bound, bound, fan_out).astype(np.float32))
    hidden = widths[1:-1] if normalise else ()
    gains, offsets = ([fill(width, dtype=np.float32) for width in hidden] for fill in (np.ones, np.zeros))
    return Dense(tuple(weights), tuple(biases), tuple(gains), tuple(offsets))  # type: ignore[arg-type]


def _standardised(units: jax.Array) -> jax.Array:
    """Mean zero and variance one along the last axis."""
    centred = units - units.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def helper_layers(rng: np.random.Generator, nodes: int, *, sees_ranks: bool, normalise: bool) -> Dense:
    """The network that proposes edges for an order; one for all chains. With ranks as input it is always normalised."""
    inputs, width = (nodes**2, 128) if sees_ranks else (nodes, 48)
    return dense_layers(rng, inputs, width, width, nodes**2, normalise=normalise or sees_ranks)


def edge_logits(helper: Dense, numbers: jax.Array, ranks: jax.Array, *, sees_ranks: bool) -> jax.Array:
    """What the helper makes of an order, ``(d, d)``: two hidden layers, the second beside a way around it."""
    inputs = _standardised(numbers) if helper.gains else numbers
    if sees_ranks:
        inputs = ranks.reshape(-1)
    (first, second, last), (bias, second_bias, last_bias) = helper.weights, helper.biases
    units = jax.nn.relu(inputs @ first + bias)
    units = units + jax.nn.relu(helper.given(0, units) @ second + second_bias)
    nodes = numbers.shape[0]
    return (helper.given(1, units) @ last + last_bias).reshape(nodes, nodes)


class Functions(NamedTuple):
    """What a chain's nodes are computed with: weights ``(d, d)`` of edges, and for curves what all nodes share.

    ``embeddings`` are ``(d, d)``, a row for each node; ``messages`` makes a vector of a parent's value and embedding,
    ``outputs`` a prediction of their weighted sum and the node's own embedding. A linear model has none of them.
    """

    weights: jax.Array
    embeddings: jax.Array | None = None
    messages: Dense | None = None
    outputs: Dense | None = None


def start_functions(rng: np.random.Generator, nodes: int, *, nonlinear: bool, normalise: bool) -> Functions:
    weights = (0.1 * rng.normal(size=(nodes, nodes)) * ~np.eye(nodes, dtype=bool)).astype(np.float32)
    if not nonlinear:
        return Functions(weights)  # type: ignore[arg-type]
    embeddings = (0.01 * rng.normal(size=(nodes, nodes))).astype(np.float32)
    width = max(4 * nodes, 64)
    networks = [dense_layers(rng, 2 * nodes, width, nodes, normalise=normalise) for _ in range(2)]
    return Functions(weights, embeddings, *networks)  # type: ignore[arg-type]


# In what follows units come first and rows last, because they are many: products are then of two whole matrices, and
# all else runs along the rows.
def messages_of(functions: Functions, rows: Array) -> jax.Array:
    """What each node sends to its children, whatever the graph: its value, ``(b, d)``, or a vector, ``(d, d, b)``.

    A message's input is the node's value at the node's place, zeros elsewhere, and its embedding: its first product is
    then one row of the weights times the value.
    """
    rows = jnp.asarray(rows)
    if functions.embeddings is None or functions.messages is None:
        return rows
    nodes, network = rows.shape[1], functions.messages
    constant = _constant(network, functions.embeddings)
    units = jax.nn.leaky_relu(network.weights[0][:nodes].T[:, :, None] * rows.T + constant, SLOPE)
    gained, offset = _last_layer(network)
    products = (gained.T @ units.reshape(len(gained), -1)).reshape(nodes, *rows.T.shape)
    if network.gains:
        mean, scale = _moments(units)
        products = (products - gained.sum(axis=0)[:, None, None] * mean) * scale
    return (products + offset[:, None, None]).transpose(1, 0, 2)


def predict(functions: Functions, graph: Array, messages: jax.Array) -> jax.Array:
    """The mean of every node given its parents, ``(b, d)``: O(b d²) for a linear model, O(b d² h) for curves.

    Of the d outputs of the second network each node reads its own.
    """
    weighted = functions.weights * graph
    if functions.embeddings is None or functions.outputs is None:
        return messages @ weighted
    nodes, network = weighted.shape[0], functions.outputs
    received = (weighted.T @ messages.reshape(nodes, -1)).reshape(messages.shape).transpose(1, 0, 2)
    constant = _constant(network, functions.embeddings)
    products = (network.weights[0][:nodes].T @ received.reshape(nodes, -1)).reshape(-1, *received.shape[1:])
    units = jax.nn.leaky_relu(products + constant, SLOPE)
    gained, offset = _last_layer(network)
    read = jnp.sum(gained[:, :, None] * units, axis=0)
    if network.gains:
        mean, scale = _moments(units)
        read = (read - gained.sum(axis=0)[:, None] * mean) * scale
    # A product that changes nothing but is never merged with other loops: without it the derivative by the units takes
    # in that of the likelihood, is not vectorised, and a step takes twice as long (JAX 0.10 on a CPU, d = 10).
    return (jnp.eye(nodes, dtype=read.dtype) @ read + offset[:, None]).T


def _constant(network: Dense, embeddings: jax.Array) -> jax.Array:
    """What a node's embedding adds to hidden units, ``(h, d, 1)``."""
    into, bias = network.weights[0][len(embeddings) :], network.biases[0]
    return (embeddings @ into + bias).T[:, :, None]


def _last_layer(network: Dense) -> tuple[jax.Array, jax.Array]:
    """Weights and bias of the last layer, gains and offsets taken in, lest normalised units are written down."""
    out, bias = network.weights[1], network.biases[1]
    return (network.gains[0][:, None] * out, network.offsets[0] @ out + bias) if network.gains else (out, bias)


def _moments(units: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean over units ``(h, d, b)`` and one over their standard deviation, ``(d, b)`` each."""
    mean = units.mean(axis=0)
    # The mean is of the order of the spread, so that this difference costs no more than a digit.
    variance = jnp.maximum(jnp.mean(units * units, axis=0) - mean * mean, 0.0)
    return mean, jax.lax.rsqrt(variance + 1e-5)
