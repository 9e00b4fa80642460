"""Sweeps over priorities: exact Gibbs steps on the place of one node in the order, compiled.

A chain is a vector of priorities p in (0, 1), one for each node, with a uniform prior: every order is equally
likely. The log posterior is the sum over nodes of a table at the mask of those candidate parents that come
before the node. As a function of one priority it is constant between the priorities of the node's neighbours
(its candidates, and the nodes whose candidate it is), so that the conditional is drawn without rejection: an
interval with probability proportional to its length times exp(beta * score), then a uniform point in it. A
step costs O(neighbours²) whatever the number of nodes and the distance that the node moves.

All chains update the same node at the same time; chains lie on the last axis. Random numbers and permutations
are drawn outside: there is neither sorting nor a generator inside the compiled loop, which compiles five
times faster for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from vcuda.infer.devices import WHOLE, divide, divided, own_place

Array = jax.Array | np.ndarray
# Nats (at any temperature) for an order that puts a node before one of its fixed parents: practically never.
ORDER_COST = 1e4
UNROLLED = 16
PADDING = 2.0  # the priority of the node that fills up short lists of neighbours: after everything


class Network(NamedTuple):
    """Tables and neighbours of all nodes, as the compiled sweeps need them.

    ``table`` (t,) holds the tables of all nodes one after the other, node j from ``offsets[j]`` on. Row i of
    ``neighbours`` (d + 1, m) lists the nodes that matter for the place of i, filled up with d; ``own_bits``
    says which bit of i's mask a neighbour is, ``child_bits`` which bit of the neighbour's mask i is (0 for
    none); ``own_costs`` is what it costs when i comes before the neighbour, ``child_costs`` when the
    neighbour comes before i. ``candidates`` (d, k) are the candidate parents in the order of their bits,
    filled up with d, and ``corrections`` (d, k) the part of the table's difference with and without a
    candidate that is prior of the order, not of the edge.
    """

    table: Array
    offsets: Array
    neighbours: Array
    own_bits: Array
    child_bits: Array
    own_costs: Array
    child_costs: Array
    candidates: Array
    corrections: Array


class Chains(NamedTuple):
    """Priorities (d + 1, c), and which chain of each replica is at which temperature, ``holders`` (r, l)."""

    priorities: Array
    holders: Array


class Classes(NamedTuple):
    """Nodes with few and with many neighbours, so that hubs do not slow everybody: for each class its
    ``members``, filled up with d to a length that lasts for some rounds, and the ``widths`` that are enough
    for their neighbours."""

    members: tuple[np.ndarray, ...]
    widths: tuple[int, ...]


class Noise(NamedTuple):
    """What is random in a block of b sweeps.

    For each class of m nodes ``nodes`` (b, m) are permutations and ``places`` (b, m, 2, c) uniform numbers;
    ``swaps`` (b, r, l) are uniform numbers too, and one above 1 forbids the swap.
    """

    nodes: tuple[np.ndarray, ...]
    places: tuple[np.ndarray, ...]
    swaps: np.ndarray


class Block(NamedTuple):
    """What a block of b sweeps saw.

    ``energies`` (b, r, l) are log scores by temperature after each sweep (before the swap), ``cold`` (b, r,
    d) the priorities of the chains at temperature one, ``edges`` (r, d, k) the sums over the sweeps of
    P(candidate -> node | order) in those chains, ``swapped`` (l,) how often the levels l and l + 1 were
    swapped, on g devices (g, l) by each.
    """

    energies: jax.Array
    cold: jax.Array
    edges: jax.Array
    swapped: jax.Array


def draw_noise(
    rng: np.random.Generator, classes: Classes, *, sweeps: int, replicas: int, levels: int, swap: bool
) -> Noise:
    """Draw the permutations and uniform numbers of a block."""
    chains = replicas * levels
    nodes = tuple(rng.permuted(np.tile(members, (sweeps, 1)), axis=1) for members in classes.members)
    places = tuple(rng.random((*some.shape, 2, chains), dtype=np.float32) for some in nodes)
    swaps = rng.random((sweeps, replicas, levels), dtype=np.float32)
    return Noise(nodes, places, swaps if swap else np.full_like(swaps, 2.0))


def spread(rng: np.random.Generator, orders: np.ndarray) -> np.ndarray:
    """Draw priorities (d + 1, c) given orders (c, d), first node first: sorted uniform numbers."""
    chains, nodes = orders.shape
    # Spacings of exponential variables are sorted uniforms without a sort, and never tie in double precision.
    gaps = rng.standard_exponential((chains, nodes + 1))
    ranked = np.cumsum(gaps, axis=1)
    priorities = np.full((nodes + 1, chains), PADDING, dtype=np.float32)
    np.put_along_axis(priorities[:-1].T, orders, (ranked[:, :-1] / ranked[:, -1:]).astype(np.float32), axis=1)
    return priorities


@jax.jit
def masks_of(network: Network, priorities: jax.Array) -> jax.Array:
    """Return the masks (d + 1, c) of the candidates that come before each node."""
    bits = 1 << jnp.arange(network.candidates.shape[1], dtype=jnp.int32)
    before = priorities[network.candidates] < priorities[:-1, None]
    masks = jnp.sum(jnp.where(before, bits[:, None], 0), axis=1)
    return jnp.concatenate([masks, jnp.zeros((1, priorities.shape[1]), dtype=jnp.int32)])


# How chains and what they see are divided among devices: by replicas.
DIVIDED_CHAINS = Chains(divided(1), divided())  # type: ignore[arg-type]
DIVIDED_NOISE = Noise(WHOLE, divided(3), divided(1))  # type: ignore[arg-type]
DIVIDED_BLOCK = Block(divided(1), divided(1), divided(), divided())  # type: ignore[arg-type]


@partial(jax.jit, static_argnames=("widths", "mesh"))
def run_block(
    network: Network,
    chains: Chains,
    noise: Noise,
    betas: jax.Array,
    *,
    widths: tuple[int, ...],
    mesh: Mesh | None = None,
) -> tuple[Chains, Block]:
    """Run a block of sweeps; ``betas`` (b, r, l) are the inverse temperatures of each sweep, level 0 being
    the cold one. The devices of a ``mesh`` share the replicas."""
    if mesh is None:
        return _run_block(network, chains, noise, betas, widths)

    def run_own(network: Network, chains: Chains, noise: Noise, betas: jax.Array) -> tuple[Chains, Block]:
        first = own_place() * chains.priorities.shape[1]
        own = chains._replace(holders=chains.holders - first)
        moved, block = _run_block(network, own, noise, betas, widths)
        return moved._replace(holders=moved.holders + first), block._replace(swapped=block.swapped[None])

    takes, gives = (WHOLE, DIVIDED_CHAINS, DIVIDED_NOISE, divided(1)), (DIVIDED_CHAINS, DIVIDED_BLOCK)
    return divide(run_own, mesh, takes, gives)(network, chains, noise, betas)


def _run_block(
    network: Network, chains: Chains, noise: Noise, betas: jax.Array, widths: tuple[int, ...]
) -> tuple[Chains, Block]:
    replicas, levels = chains.holders.shape

    def sweep(
        carry: tuple[Chains, jax.Array, jax.Array, jax.Array], inputs: tuple[Any, ...]
    ) -> tuple[tuple[Chains, jax.Array, jax.Array, jax.Array], tuple[jax.Array, ...]]:
        current, masks, edges, swapped = carry
        nodes, places, swaps, level_betas, parity = inputs
        chain_betas = jnp.zeros(replicas * levels).at[current.holders.reshape(-1)].set(level_betas.reshape(-1))
        priorities = jnp.asarray(current.priorities)
        priorities, masks = _sweep(network, priorities, masks, nodes, places, chain_betas, widths)
        energies = energies_of(network, masks)[current.holders]
        cold = current.holders[:, 0]
        edges = edges + _edges_given_order(network, masks[:-1][:, cold])
        holders, accepted = _swap(jnp.asarray(current.holders), energies, level_betas, swaps, parity)
        return (Chains(priorities, holders), masks, edges, swapped + accepted), (energies, priorities[:-1, cold].T)

    start = (
        chains,
        masks_of(network, chains.priorities),
        jnp.zeros((replicas, *network.candidates.shape)),
        jnp.zeros(levels, dtype=jnp.int32),
    )
    parities = jnp.arange(betas.shape[0], dtype=jnp.int32) % 2
    (chains, _, edges, swapped), (energies, cold) = jax.lax.scan(
        sweep, start, (noise.nodes, noise.places, noise.swaps, betas, parities)
    )
    return chains, Block(energies, cold, edges, swapped)


def _sweep(
    network: Network,
    priorities: jax.Array,
    masks: jax.Array,
    nodes: tuple[jax.Array, ...],
    places: tuple[jax.Array, ...],
    betas: jax.Array,
    widths: tuple[int, ...],
) -> tuple[jax.Array, jax.Array]:
    """Update every node once, one class after the other, in the given sequence."""

    carry = (priorities, masks)
    for width, some_nodes, some_places in zip(widths, nodes, places, strict=True):

        def step(
            carry: tuple[jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array], width: int = width
        ) -> tuple[tuple[jax.Array, jax.Array], None]:
            node, uniforms = inputs
            return _move(network, carry[0], carry[1], node, uniforms, betas, width=width), None

        carry, _ = jax.lax.scan(step, carry, (some_nodes, some_places))
    return carry


def _move(
    network: Network,
    priorities: jax.Array,
    masks: jax.Array,
    node: jax.Array,
    uniforms: jax.Array,
    betas: jax.Array,
    *,
    width: int,
) -> tuple[jax.Array, jax.Array]:
    """Draw the priority of one node from its conditional, in all chains; ``width`` is enough for its
    neighbours."""
    near = network.neighbours[node, :width]
    own_bits = network.own_bits[node, :width, None]
    child_bits = network.child_bits[node, :width, None]
    around = priorities[near]
    near_masks = masks[near]
    starts = network.offsets[near][:, None]
    as_parent = network.table[starts + (near_masks | child_bits)]
    not_parent = network.table[starts + (near_masks & ~child_bits)]
    # Costs do not depend on the temperature; dividing them here lets one sum carry both.
    if_before = as_parent - not_parent + network.own_costs[node, :width, None] * (-1.0 / betas)
    if_after = network.child_costs[node, :width, None] * (-1.0 / betas)

    edges = jnp.concatenate([jnp.zeros((1, around.shape[1])), around])

    def pass_neighbour(sums: tuple[jax.Array, ...], rows: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        own_masks, score, nearest = sums
        there, bit, after, before = rows
        behind = there <= edges  # seen from a point just right of the edge
        return (
            own_masks + jnp.where(behind, bit, 0),
            score + jnp.where(behind, after, before),
            jnp.minimum(nearest, jnp.where(behind, 1.0, there)),
        )

    nothing = (jnp.zeros(edges.shape, dtype=jnp.int32), jnp.zeros(edges.shape), jnp.ones(edges.shape))
    own_masks, score, nearest = _fold(pass_neighbour, nothing, (around, own_bits, if_after, if_before))
    score = score + network.table[network.offsets[node] + own_masks]
    lengths = jnp.minimum(nearest, 1.0) - edges
    usable = lengths > 0
    logits = jnp.where(usable, betas * score, -jnp.inf)
    weights = jnp.where(usable, lengths * jnp.exp(logits - jnp.max(logits, axis=0)), 0.0)

    # A piece by its share of the weights, summed up in the sequence of the neighbours. A product with a matrix is the
    # quickest way to such sums of few rows.
    size = edges.shape[0]
    cumulated = jnp.tril(jnp.ones((size, size))) @ weights
    drawn = uniforms[0] * cumulated[-1]
    # Where rounding leaves all sums below what was drawn, the first piece that has a length.
    number = jnp.arange(size)[:, None]
    if_not_passed = jnp.where(cumulated > drawn, number, size + number)
    which = jnp.min(jnp.where(weights > 0, if_not_passed, 2 * size), axis=0) % size
    left = jnp.take_along_axis(edges, which[None], axis=0)[0]
    place = left + uniforms[1] * jnp.take_along_axis(lengths, which[None], axis=0)[0]

    # Ties (place equal to a neighbour's priority after rounding) put neither before the other, in both masks
    # alike.
    own_mask = jnp.sum(jnp.where(around < place, own_bits, 0), axis=0)
    near_masks = jnp.where(place < around, near_masks | child_bits, near_masks & ~child_bits)
    masks = masks.at[near].set(near_masks).at[node].set(own_mask)
    # The node that only fills up stays after everything.
    place = jnp.where(node == priorities.shape[0] - 1, PADDING, place)
    return priorities.at[node].set(place), masks


def _fold(
    add: Callable[[tuple[jax.Array, ...], tuple[jax.Array, ...]], tuple[jax.Array, ...]],
    sums: tuple[jax.Array, ...],
    arrays: tuple[Array, ...],
) -> tuple[jax.Array, ...]:
    """Add up over the rows of arrays (width, c), unrolled in pieces of 16 rows.

    A sum over a broadcast cube says the same, but on a CPU its inner loop is not vectorised and takes three
    times as long; unrolled as a whole, a hub's loop takes long to compile and spills its registers.
    """
    width = arrays[0].shape[0]
    if width <= UNROLLED:
        for k in range(width):
            sums = add(sums, tuple(jnp.asarray(array[k]) for array in arrays))
        return sums

    def piece(sums: tuple[jax.Array, ...], rows: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], None]:
        return _fold(add, sums, rows), None

    pieces = tuple(jnp.reshape(array, (-1, UNROLLED, *array.shape[1:])) for array in arrays)
    return jax.lax.scan(piece, sums, pieces)[0]


def energies_of(network: Network, masks: jax.Array) -> jax.Array:
    """Return the log score (c,) of every chain at temperature one."""
    return jnp.sum(network.table[network.offsets[:-1, None] + masks[:-1]], axis=0)


@jax.jit
def energies_of_priorities(network: Network, priorities: jax.Array) -> jax.Array:
    """Return the log score (c,) of every chain at temperature one, from priorities (d + 1, c)."""
    return energies_of(network, masks_of(network, priorities))


def _edges_given_order(network: Network, masks: jax.Array) -> jax.Array:
    """Return P(candidate -> node | order) for masks (d, r): (r, d, k)."""
    bits = 1 << jnp.arange(network.candidates.shape[1], dtype=jnp.int32)[:, None]
    starts, held = network.offsets[:-1, None, None], masks[:, None]
    lacking = network.table[starts + (held & ~bits)] + network.corrections[:, :, None]
    change = jnp.minimum(lacking - network.table[starts + held], 0.0)
    return jnp.where(held & bits != 0, -jnp.expm1(change), 0.0).transpose(2, 0, 1)


def _swap(
    holders: jax.Array, energies: jax.Array, betas: jax.Array, uniforms: jax.Array, parity: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Exchange chains between neighbouring temperatures, even and odd pairs in turn."""
    levels = holders.shape[1]
    if levels == 1:
        return holders, jnp.zeros(1, dtype=jnp.int32)
    ratio = (betas[:, :-1] - betas[:, 1:]) * (energies[:, 1:] - energies[:, :-1])
    turn = jnp.arange(levels - 1) % 2 == parity
    accept = turn & (jnp.log(jnp.maximum(uniforms[:, :-1], 1e-30)) < ratio) & (uniforms[:, :-1] <= 1.0)
    none = jnp.zeros((holders.shape[0], 1), dtype=bool)
    with_next = jnp.concatenate([accept, none], axis=1)
    with_previous = jnp.concatenate([none, accept], axis=1)
    swapped = jnp.where(
        with_next, jnp.roll(holders, -1, axis=1), jnp.where(with_previous, jnp.roll(holders, 1, axis=1), holders)
    )
    counts = jnp.sum(with_next, axis=0, dtype=jnp.int32)
    return swapped, counts


def pad_up(count: int, *, steps: Sequence[int] = ()) -> int:
    """Return the next of ``steps``, or power of two, that is not below ``count``."""
    for step in steps:
        if count <= step:
            return step
    return 1 << max(int(count) - 1, 0).bit_length()
