"""Functions as compiled programs (Numba) that are kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

from numba import njit

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def compiled(function: FunctionT, *, fastmath: Collection[str] = ()) -> FunctionT:
    """The function as a program that is kept on disk, where there is a place that can be written to.

    ``fastmath`` names liberties that sums may take; none by default.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": set(fastmath)} if fastmath else {"nogil": True}
    try:
        return cast(FunctionT, njit(cache=True, **options)(function))
    except RuntimeError:
        return cast(FunctionT, njit(**options)(function))
