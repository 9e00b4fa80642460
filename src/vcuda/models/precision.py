"""Single or double precision for each program, whatever the JAX settings of the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import jax


@contextmanager
def single_precision() -> Iterator[None]:
    """Single precision inside; what else is settled is said in :func:`double_precision`."""
    with _settled(double=False):
        yield


@contextmanager
def double_precision() -> Iterator[None]:
    """Double precision inside.

    Everything else that changes numbers is settled as well: products of matrices in full precision (graphics cards
    would otherwise round single precision to ten bits), types of mixed operations, and random generators. All of it
    holds in this thread only.
    """
    with _settled(double=True):
        yield


def _settled(*, double: bool) -> ExitStack:
    with ExitStack() as stack:
        for setting in (
            _x64(double),
            jax.default_matmul_precision("highest"),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
            jax.default_prng_impl("threefry2x32"),
            jax.threefry_partitionable(True),
        ):
            stack.enter_context(setting)
        return stack.pop_all()


def _x64(on: bool) -> AbstractContextManager[Any]:
    """JAX's switch; its name has changed with the versions."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    from jax.experimental import enable_x64  # type: ignore[attr-defined, unused-ignore]

    return enable_x64(on)
