"""The chains of BayesDAG, compiled: steps of preconditioned Hamiltonian Monte Carlo, and of the helper's Adam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh

from vcuda.baselines.bayesdag_model import (
    Dense,
    Functions,
    edge_logits,
    helper_layers,
    messages_of,
    ordered,
    predict,
    start_functions,
)
from vcuda.baselines.dds_program import Batches
from vcuda.dags.base import edge_entropy, no_self_loops
from vcuda.dags.relaxation import masked_bernoulli
from vcuda.infer.devices import WHOLE, divide, divided

if TYPE_CHECKING:
    from vcuda.baselines.bayesdag import BayesDag

Array = jax.Array | np.ndarray

ORDER_SCALE = 0.1
EDGE_TEMPERATURE = 0.2
MOMENTUM_DECAY, SQUARE_DECAY = 0.9, 0.99


class Chain(NamedTuple):
    """What is sampled, with momentum and mean squared gradient of the same shape; the first axis is the chain's."""

    value: Any
    momentum: Any
    square: Any

    @classmethod
    def at(cls, value: Any) -> Chain:
        nothing = jax.tree.map(jnp.zeros_like, value)
        return cls(value, nothing, nothing)


def hamiltonian_step(
    chain: Chain, gradient: Any, kick: Any, *, noise: float, learning_rate: float, square_decay: float = SQUARE_DECAY
) -> Chain:
    """One step of stochastic-gradient Hamiltonian Monte Carlo, preconditioned as Adam is.

    ``gradient`` is that of the energy, -log posterior of all rows, and ``kick`` is standard normal. For a constant
    preconditioner and small steps the values settle at exp(-energy / noise²); the term that would correct for a
    changing one is left out, as in the authors' program.
    """
    step = learning_rate**0.5
    spread = noise * (2 * (1 - MOMENTUM_DECAY) - learning_rate) ** 0.5
    square = jax.tree.map(lambda old, g: square_decay * old + (1 - square_decay) * g**2, chain.square, gradient)
    scale = jax.tree.map(lambda mean: (1e-8 + jnp.sqrt(1e-8 + mean)) ** -0.5, square)
    momentum = jax.tree.map(
        lambda r, s, g, k: MOMENTUM_DECAY * r + step * s * g + spread * k, chain.momentum, scale, gradient, kick
    )
    value = jax.tree.map(lambda x, s, r: x - step * s * r, chain.value, scale, momentum)
    return Chain(value, momentum, square)


class Helped(NamedTuple):
    """What Adam trains: the network that proposes edges, and each chain's noise scales ``(c, d)``, as logarithms."""

    helper: Dense
    log_scale: jax.Array


class State(NamedTuple):
    """Between two steps."""

    orders: Chain
    functions: Chain
    helped: Helped
    optimiser: Any
    taken: Array


class Problem(NamedTuple):
    """The table ``(n, d)``, how many of its rows are trained on, and the weights of the losses' terms.

    They are what an edge costs, a chain's part in the loss, and how often the entropy of the edges counts. Ordinary
    arguments, so that one program serves presets, costs and held-out rows.
    """

    values: Array
    rows: Array | float
    sparsity: Array | float
    part: Array | float = 1.0
    entropy_weight: Array | float = 1.0


class Batch(NamedTuple):
    """Rows ``(b, d)`` of one step, and a weight of 0 for those that only fill it up."""

    rows: Array
    weight: Array


class Program:
    """The compiled pieces for one spec, vectorised over chains, which the devices of a ``mesh`` share.

    All chains teach one helper, so that devices wait for each other at every step.
    """

    def __init__(self, spec: BayesDag, mesh: Mesh | None = None) -> None:
        self.spec, self.mesh = spec, mesh
        helped = Helped(WHOLE, divided())  # type: ignore[arg-type]
        of_chains = (divided(), divided(), divided(), helped, divided(), WHOLE)
        self.drawn_fits = divide(self._drawn_fits, mesh, of_chains, divided())
        self._messages = divide(self._own_messages, mesh, (divided(), WHOLE), divided())
        self.optimiser = optax.adam(spec.helper_learning_rate)
        self.offset = -1.0 if spec.sparse_start else 0.0
        self._start = jax.jit(self._begin)
        self.advance = jax.jit(self._advance)
        self.logits = jax.jit(jax.vmap(self._logits, in_axes=(None, 0)))
        self.held_out = jax.jit(self._held_out)

    def init(self, rng: np.random.Generator, nodes: int) -> State:
        chains, nonlinear = self.spec.chains, self.spec.nonlinear
        orders = (0.01 * rng.normal(size=(chains, nodes))).astype(np.float32)
        normalise = self.spec.normalise_layers
        each = [start_functions(rng, nodes, nonlinear=nonlinear, normalise=normalise) for _ in range(chains)]
        functions = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
        seen = {"sees_ranks": self.spec.helper_sees_ranks, "normalise": self.spec.normalise_helper}
        helper = helper_layers(rng, nodes, **seen)
        return self._start(orders, functions, Helped(helper, np.zeros((chains, nodes), dtype=np.float32)))  # type: ignore[arg-type]

    def _begin(self, orders: Array, functions: Functions, helped: Helped) -> State:
        taken = jnp.array(0, dtype=jnp.int32)
        return State(Chain.at(orders), Chain.at(functions), helped, self.optimiser.init(helped), taken)

    def _logits(self, helper: Dense, numbers: jax.Array) -> jax.Array:
        return self._proposed(helper, numbers, ordered(numbers, self.spec.sinkhorn_iterations).ranks)

    def _proposed(self, helper: Dense, numbers: jax.Array, ranks: jax.Array) -> jax.Array:
        return edge_logits(helper, numbers, ranks, sees_ranks=self.spec.helper_sees_ranks) + self.offset

    def chain_graph(
        self, noise: jax.Array, numbers: jax.Array, helper: Dense
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The graph of one chain and ``(d, d)`` logistic noise, how many edges it has, and their logits."""
        order = ordered(numbers, self.spec.sinkhorn_iterations)
        logits = self._proposed(helper, numbers, order.ranks)
        allowed = jnp.asarray(no_self_loops(numbers.shape[0]))
        edges = masked_bernoulli(logits, noise, allowed, temperature=EDGE_TEMPERATURE)
        graph = edges.straight_through() * order.admitted
        # The derivative of the sum of |A| by straight-through edges, as PyTorch takes it: edges that are not there are
        # not pulled at. JAX's derivative of |x| at zero is one; with that orders freeze within some hundred steps.
        return graph, jnp.sum(jax.lax.stop_gradient(graph) * graph), logits

    def fits(
        self,
        graphs: jax.Array,
        functions: Functions,
        messages: jax.Array | None,
        log_scale: jax.Array,
        batch: Batch,
    ) -> jax.Array:
        """The mean log density of a row in each chain, ``(c,)``; messages that are not given are computed."""
        rows = jnp.asarray(batch.rows)

        def fit(of_chain: tuple[jax.Array, Functions, jax.Array | None, jax.Array]) -> jax.Array:
            graph, functions, sent, log_scale = of_chain
            sent = messages_of(functions, rows) if sent is None else sent
            residual = rows - predict(functions, graph, sent)
            cells = 0.5 * (residual * jnp.exp(-log_scale)) ** 2 + log_scale + 0.5 * jnp.log(2 * jnp.pi)
            return -jnp.sum(cells.sum(axis=1) * batch.weight) / jnp.sum(batch.weight)

        chains = (graphs, functions, messages, log_scale)
        if not self.spec.nonlinear:
            return jax.vmap(fit)(chains)
        # One chain after the other, forward and backward at once: what a chain writes down then stays in the cache,
        # which takes less than half of the time.
        return jax.lax.map(jax.checkpoint(fit, prevent_cse=False), chains)

    def _drawn_fits(
        self,
        orders: jax.Array,
        functions: Functions,
        messages: jax.Array | None,
        helped: Helped,
        noise: jax.Array,
        batch: Batch,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """How well a graph of each chain fits, ``(c,)``, how many edges it has, and the logits of all edges."""
        drawn = jax.vmap(self.chain_graph, in_axes=(0, 0, None))
        graphs, edges, logits = drawn(noise, orders, helped.helper)
        return self.fits(graphs, functions, messages, helped.log_scale, batch), edges, logits

    def losses(
        self,
        orders: jax.Array,
        functions: Functions,
        messages: jax.Array | None,
        helped: Helped,
        noise: jax.Array,
        problem: Problem,
        batch: Batch,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Those of orders, functions and helper, a row's share of each."""
        total = problem.rows
        fits, edges, logits = self.drawn_fits(orders, functions, messages, helped, noise, batch)
        shared = fits.sum() - problem.sparsity / total * edges.sum()
        order_prior = -0.5 * jnp.sum((orders / ORDER_SCALE) ** 2)
        function_prior = -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(functions))
        unsure = logits - self.offset if self.spec.entropy_of_raw_logits else logits
        allowed = no_self_loops(orders.shape[1])
        entropy = jnp.sum(jax.vmap(lambda chain: edge_entropy(chain, allowed))(unsure)) * problem.entropy_weight
        parts = [-(shared + prior / total) * problem.part for prior in (order_prior, function_prior, entropy)]
        return parts[0], parts[1], parts[2]

    def _move_orders(
        self, state: State, messages: jax.Array, noise: jax.Array, kick: jax.Array, problem: Problem, batch: Batch
    ) -> State:
        def energy(orders: jax.Array) -> jax.Array:
            parts = self.losses(orders, state.functions.value, messages, state.helped, noise, problem, batch)
            return parts[0] * problem.rows

        size = {"noise": self.spec.order_noise, "learning_rate": self.spec.learning_rate}
        gradient = jax.grad(energy)(state.orders.value)
        return state._replace(orders=hamiltonian_step(state.orders, gradient, kick, **size))

    def _help(self, state: State, messages: jax.Array, noise: jax.Array, problem: Problem, batch: Batch) -> State:
        def loss(helped: Helped) -> jax.Array:
            return self.losses(state.orders.value, state.functions.value, messages, helped, noise, problem, batch)[2]

        updates, optimiser = self.optimiser.update(jax.grad(loss)(state.helped), state.optimiser)
        return state._replace(helped=optax.apply_updates(state.helped, updates), optimiser=optimiser)

    def _move_functions(self, state: State, noise: jax.Array, kick: Any, problem: Problem, batch: Batch) -> State:
        def energy(functions: Functions) -> jax.Array:
            parts = self.losses(state.orders.value, functions, None, state.helped, noise, problem, batch)
            return parts[1] * problem.rows

        size = {"noise": self.spec.noise, "learning_rate": self.spec.learning_rate}
        moved = hamiltonian_step(state.functions, jax.grad(energy)(state.functions.value), kick, **size)
        return state._replace(functions=moved, taken=state.taken + 1)

    def _noise(self, key: jax.Array, state: State) -> tuple[jax.Array, jax.Array, Any]:
        """All that a step draws, in few calls and flat: to compile draws of several axes takes six times as long.

        Logistic noise of edges for one step of orders, one of the helper and one of the functions; normal noise for
        the orders; and for the functions.
        """
        orders = state.orders.value
        flat, unravel = ravel_pytree(state.functions.value)
        edge_key, kick_key = jax.random.split(jax.random.fold_in(key, state.taken))
        edges = jax.random.logistic(edge_key, (3 * orders.size * orders.shape[1],))
        kicks = jax.random.normal(kick_key, (orders.size + flat.size,))
        edges = edges.reshape(3, *orders.shape, orders.shape[1])
        return edges, kicks[: orders.size].reshape(orders.shape), unravel(kicks[orders.size :])

    def _advance(
        self,
        state: State,
        key: jax.Array,
        problem: Problem,
        batches: Batches,
        first: int,
        last: int,
        helping: bool,
    ) -> State:
        """Steps on the batches ``first`` to ``last``: orders, helper and functions, each with edges of its own.

        When not ``helping`` the helper stays as it is, to draw from the chains.
        """
        values, batches = jnp.asarray(problem.values), jax.tree.map(jnp.asarray, batches)

        def body(position: jax.Array, state: State) -> State:
            batch = Batch(values[batches.rows[position]], batches.weight[position])
            edges, order_kick, function_kick = self._noise(key, state)
            messages = self._messages(state.functions.value, batch.rows)
            state = self._move_orders(state, messages, edges[0], order_kick, problem, batch)
            state = jax.lax.cond(
                helping,
                lambda moved: self._help(moved, messages, edges[1], problem, batch),
                lambda moved: moved,
                state,
            )
            return self._move_functions(state, edges[2], function_kick, problem, batch)

        return jax.lax.fori_loop(first, last, body, state)

    def _own_messages(self, functions: Functions, rows: Array) -> jax.Array:
        """Of every chain; they are the same for all graphs."""
        if self.spec.nonlinear:
            return jax.lax.map(lambda of_chain: messages_of(of_chain, rows), functions)
        return jnp.broadcast_to(rows, (len(functions.weights), *rows.shape))

    def _held_out(self, state: State, key: jax.Array, rows: Array) -> jax.Array:
        """The mean log density of rows, over chains and 16 draws of their edges."""
        orders, functions = state.orders.value, state.functions.value
        noise = jax.random.logistic(key, (16 * orders.size * orders.shape[1],))
        noise = noise.reshape(16, *orders.shape, orders.shape[1])
        batch, messages = Batch(rows, jnp.ones(rows.shape[0])), self._messages(functions, rows)

        def fit(noise: jax.Array) -> jax.Array:
            return self.drawn_fits(orders, functions, messages, state.helped, noise, batch)[0].mean()

        return jax.lax.map(fit, noise).mean()
