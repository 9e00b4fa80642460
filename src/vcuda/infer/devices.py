"""Several devices: replicas, restarts and particles are divided among them, everything else is on all.

What is divided runs on each device by itself, with the random numbers that it would have on one device. No device waits
for another, so that programs which several threads start at once cannot stand in each other's way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "devices"
WHOLE = PartitionSpec()

Tree = TypeVar("Tree")
Function = TypeVar("Function", bound=Callable[..., Any])
_turn = threading.Lock()


def divided(axis: int = 0) -> PartitionSpec:
    """Arrays of which each device has a part along this axis."""
    return PartitionSpec(*[None] * axis, AXIS)


def mesh_for(count: int) -> Mesh | None:
    """The devices that share ``count`` equal pieces of work: the largest number of them that divides it.

    None where that is one, or where the user has chosen a device (``jax.default_device``): then nothing is divided, and
    JAX puts everything where it always does.
    """
    if getattr(jax.config, "jax_default_device", None) is not None:
        return None
    devices = jax.local_devices()
    used = max(number for number in range(1, min(count, len(devices)) + 1) if count % number == 0)
    return None if used == 1 else Mesh(np.array(devices[:used]), (AXIS,))


def devices_of(mesh: Mesh | None) -> int:
    """How many devices are at work."""
    return 1 if mesh is None else int(mesh.size)


def place(tree: Tree, mesh: Mesh | None, specs: Any = WHOLE) -> Tree:
    """Put arrays on the devices; ``specs`` says for the tree, or for parts of it, whether they are divided."""
    if mesh is None:
        return jax.device_put(tree)
    return jax.device_put(tree, jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=_is_spec))


def _is_spec(leaf: Any) -> bool:
    return isinstance(leaf, PartitionSpec)


def divide(function: Function, mesh: Mesh | None, takes: Any, gives: Any) -> Function:
    """The function on each device's own parts; ``takes`` and ``gives`` are specs of its arguments and results.

    Without a mesh it is the function itself. Inside, :func:`own_place` says which parts they are.
    """
    if mesh is None:
        return function
    if hasattr(jax, "shard_map"):
        # What is the same on all devices is not checked: loops begin with constants, and end with parts.
        return jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives, check_vma=False)
    from jax.experimental.shard_map import shard_map  # type: ignore[import-not-found, unused-ignore]

    return shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives, check_rep=False)  # type: ignore[return-value, no-any-return, unused-ignore]


def own_place() -> jax.Array:
    """Inside :func:`divide`: the number of this device, from 0."""
    return jax.lax.axis_index(AXIS)


def map_divided(function: Callable[..., Any], pieces: Any, *shared: Any) -> Any:
    """``jax.lax.map`` of ``function(piece, *shared)`` over the first axis of ``pieces``, which devices share.

    What follows in the same program may need the results of all pieces; devices then wait for each other, and only one
    such program may run at a time (:func:`taking_turns`).
    """
    mesh = mesh_for(len(jax.tree.leaves(pieces)[0]))

    def own(pieces: Any, *shared: Any) -> Any:
        return jax.lax.map(lambda piece: function(piece, *shared), pieces)

    return divide(own, mesh, (divided(), *[WHOLE] * len(shared)), divided())(pieces, *shared)


def taking_turns() -> AbstractContextManager[Any]:
    """Around a program whose devices wait for each other: two of them, started in different order on different
    devices, would wait for ever."""
    return nullcontext() if len(jax.local_devices()) == 1 else _turn
