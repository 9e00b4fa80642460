"""Replicas of the ladders in groups, each on a worker of its own, for many blocks at a time.

A chain does not see the chains beside it, only the random numbers drawn for it. So a worker is given the state of the
generator, draws what is random for all chains, and runs its own: the generator and every chain end as they do when all
run together, bit for bit (``tests/test_cluster.py`` holds that).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from vcuda.infer.checkpoint import generator_state, set_generator
from vcuda.infer.compilation import single_precision
from vcuda.infer.orders.sweeps import Chains, Classes, Network, Noise, draw_noise, run_block, spread
from vcuda.infer.workers import OnProgress, Workers

# Along which axis the arrays that a block leaves behind are by replica; chains lie replica by replica.
BY_REPLICA = {"energies": 1, "cold": 1, "edges": 0, "orders": 0, "holders": 0}
# Seconds for one neighbour of one chain beside another: 10e-9 with 16 chains and 5e-9 with 24 at 30 columns, on a busy
# machine; not measured at other sizes. It decides where chains run, and no number.
SECONDS_A_PAIR = 5e-9


class Stage(NamedTuple):
    """What does not change while a schedule is run."""

    network: Network
    classes: Classes


class Group(NamedTuple):
    """Some replicas, from ``first`` on: ``orders`` (c, d) of their chains, ``holders`` (r, l) counted from their first
    chain; ``generator``, its state; ``betas`` (k, b, r, l) of k blocks; and how many replicas there are in all."""

    first: int
    orders: np.ndarray
    holders: np.ndarray
    generator: np.ndarray
    betas: np.ndarray
    replicas: int
    swap: bool


@single_precision()
def run_group(stage: Stage, group: Group) -> list[dict[str, np.ndarray]]:
    """Run the blocks of some replicas; returns what each block leaves behind.

    JAX may be settled otherwise on the worker than where the fit runs.
    """
    own, levels = group.holders.shape
    chains = slice(group.first * levels, (group.first + own) * levels)
    rng = np.random.default_rng()
    set_generator(rng, group.generator)
    network = jax.device_put(stage.network)
    # Where the chains of others are is of no interest: their numbers are drawn and left.
    orders = np.tile(np.arange(group.orders.shape[1]), (group.replicas * levels, 1))
    orders[chains], holders = group.orders, group.holders
    left: list[dict[str, np.ndarray]] = []
    for betas in group.betas:
        drawn = draw_noise(
            rng, stage.classes, sweeps=len(betas), replicas=group.replicas, levels=levels, swap=group.swap
        )
        noise = Noise(
            drawn.nodes,
            tuple(np.ascontiguousarray(places[..., chains]) for places in drawn.places),
            drawn.swaps[:, group.first : group.first + own],
        )
        state = Chains(spread(rng, orders)[:, chains], holders)
        state, block = run_block(network, state, noise, betas, widths=stage.classes.widths)
        orders[chains] = np.argsort(np.asarray(state.priorities)[:-1], axis=0, kind="stable").T
        holders = np.asarray(state.holders)
        after = {name: np.asarray(getattr(block, name)) for name in ("energies", "cold", "edges", "swapped")}
        after["orders"], after["holders"] = orders[chains].copy(), holders + np.int32(chains.start)
        after["generator"] = generator_state(rng)
        left.append(after)
    return left


def seconds_of(classes: Classes, *, sweeps: int, chains: int) -> float:
    """About how long sweeps take on one core."""
    pairs = sum(members.size * width**2 for members, width in zip(classes.members, classes.widths, strict=True))
    return SECONDS_A_PAIR * sweeps * chains * pairs


def run_in_groups(
    workers: Workers,
    stage: Stage,
    *,
    orders: np.ndarray,
    holders: np.ndarray,
    rng: np.random.Generator,
    betas: np.ndarray,
    swap: bool,
    on_progress: OnProgress,
) -> list[dict[str, np.ndarray]]:
    """Run blocks of sweeps, ``betas`` (k, b, r, l), of all replicas on workers; ``rng`` is left as it is."""
    replicas, levels = holders.shape
    bounds = np.linspace(0, replicas, min(workers.count, replicas) + 1).round().astype(int)
    state = generator_state(rng)
    groups = [
        Group(
            first=int(first),
            orders=orders[first * levels : last * levels],
            holders=(holders[first:last] - first * levels).astype(np.int32),
            generator=state,
            betas=betas[:, :, first:last],
            replicas=replicas,
            swap=swap,
        )
        for first, last in pairwise(bounds)
    ]
    found = workers.map(run_group, groups, shared=stage, on_progress=on_progress)
    return [_joined(parts) for parts in zip(*found, strict=True)]


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What a block of all replicas leaves behind, from that of each group."""
    joined = {name: np.concatenate([part[name] for part in parts], axis) for name, axis in BY_REPLICA.items()}
    joined["swapped"] = np.stack([part["swapped"] for part in parts]).sum(axis=0, dtype=np.int32)
    joined["generator"] = parts[0]["generator"]
    return joined
