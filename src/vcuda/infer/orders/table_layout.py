"""Score tables as the compiled sweeps take them: one long table, neighbours in padded rows, nodes in few classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vcuda.infer.orders.sweeps import ORDER_COST, Classes, Network, pad_up
from vcuda.infer.orders.tables import ParentTables

# Tables grow with the rounds; with room for 4 MB most never outgrow it, and the sweeps are compiled once.
LEAST_TABLE = 1 << 20
NEIGHBOUR_STEPS = (8, 16, 32, 48, 64, 96)


def network_of(tables: ParentTables, *, width: int = 1, before: Classes | None = None) -> tuple[Network, Classes]:
    """Return the arrays of tables for the compiled sweeps, and the classes of nodes.

    ``width`` is the least number of candidates to make room for, ``before`` are the classes of an earlier
    round: with the same sizes the program need not be compiled again.
    """
    nodes = tables.nodes
    pairs = _neighbour_pairs(tables.candidates, tables.fixed)
    counts = np.bincount(pairs[0], minlength=nodes)
    width = max(width, *(c.size for c in tables.candidates))
    classes = _classes(counts, before)
    most = classes.widths[-1]
    node, other, own_bit, child_bit, own_cost, child_cost = pairs
    position = np.arange(node.size) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (nodes + 1, most)
    neighbours = np.full(shape, nodes, dtype=np.int32)
    own_bits, child_bits = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int32)
    own_costs, child_costs = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    for array, values in zip(
        (neighbours, own_bits, child_bits, own_costs, child_costs),
        (other, own_bit, child_bit, own_cost, child_cost),
        strict=True,
    ):
        array[node, position] = values
    candidates = np.full((nodes, width), nodes, dtype=np.int32)
    corrections = np.zeros((nodes, width), dtype=np.float32)
    for j, (chosen, terms) in enumerate(zip(tables.candidates, tables.corrections, strict=True)):
        candidates[j, : chosen.size] = chosen
        corrections[j, : chosen.size] = terms
    table = np.zeros(pad_up(max(tables.sums.size + 1, LEAST_TABLE)), dtype=np.float32)
    table[: tables.sums.size] = tables.sums
    offsets = tables.offsets.astype(np.int32)
    return (
        Network(
            table,
            offsets,
            neighbours,
            own_bits,
            child_bits,
            own_costs,
            child_costs,
            candidates,
            corrections,
        ),
        classes,
    )


def _classes(counts: np.ndarray, before: Classes | None) -> Classes:
    """Divide the nodes by their number of neighbours (d,) into few classes, since each is compiled for
    itself."""
    nodes = counts.size
    most = pad_up(int(counts.max(initial=1)), steps=NEIGHBOUR_STEPS)
    if before is not None and before.widths[-1] >= most:
        widths, lengths = before.widths, [members.size for members in before.members]
    else:
        usual = pad_up(int(np.quantile(counts, 0.8)), steps=NEIGHBOUR_STEPS)
        many = pad_up(int(np.quantile(counts, 0.97)), steps=NEIGHBOUR_STEPS)
        widths = tuple(sorted({usual, many, most} if most > 2 * many else {usual, most}))
        lengths = [0] * len(widths)
    which = np.searchsorted(widths, counts)
    members = []
    for index in range(len(widths)):
        inside = np.flatnonzero(which == index)
        # Lengths in steps of an eighth: little is wasted, and a few nodes that change class change no shape, nor
        # do those that leave it while a quarter more is not yet too long.
        step = max(4, 1 << max(int(inside.size).bit_length() - 3, 0))
        length = -(-max(inside.size, 1) // step) * step
        if length < lengths[index] <= 1.25 * length + 4:
            length = lengths[index]
        members.append(np.append(inside, np.full(length - inside.size, nodes)).astype(np.int32))
    return Classes(tuple(members), widths)


def _neighbour_pairs(candidates: Sequence[np.ndarray], fixed: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return, sorted by node, for all pairs of neighbours: node, other, own bit, child bit, own cost, child
    cost."""
    nodes = len(candidates)
    sources = np.concatenate([*candidates, *fixed]).astype(np.int64)
    targets = np.repeat(np.tile(np.arange(nodes), 2), [c.size for c in (*candidates, *fixed)])
    bits = np.concatenate(
        [1 << np.arange(c.size, dtype=np.int64) for c in candidates] + [np.zeros(f.size, dtype=np.int64) for f in fixed]
    )
    costs = np.where(bits == 0, ORDER_COST, 0.0)
    # Seen from the target the source is a candidate of its own, seen from the source the target is a child.
    keys = np.concatenate([targets * nodes + sources, sources * nodes + targets])
    distinct, inverse = np.unique(keys, return_inverse=True)
    as_own, as_child = inverse[: sources.size], inverse[sources.size :]
    own_bit, child_bit = np.zeros(distinct.size, dtype=np.int64), np.zeros(distinct.size, dtype=np.int64)
    own_cost, child_cost = np.zeros(distinct.size), np.zeros(distinct.size)
    own_bit[as_own], child_bit[as_child] = bits, bits
    own_cost[as_own], child_cost[as_child] = costs, costs
    return distinct // nodes, distinct % nodes, own_bit, child_bit, own_cost, child_cost
