"""What a worker runs: one item, with the versions and threads of the fitting process."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

from vcuda.errors import ClusterError, MissingExtraError, VcudaError
from vcuda.infer.blas import one_blas_thread

# Below a whole number the versions of what makes numbers must agree; of Python, which only runs them, the first two.
PACKAGES = ("vcuda", "numpy", "scipy", "jax", "jaxlib")


class Answer(NamedTuple):
    """What a worker sends back: a result, or what is wrong with the request, which would fail on any worker."""

    result: Any = None
    refusal: VcudaError | None = None


def versions() -> dict[str, str]:
    """The versions of all that makes numbers, in this process."""
    found = {package: version(package) for package in PACKAGES}
    return {"python": ".".join(platform.python_version_tuple()[:2]), **found}


@cache
def _keep_freed_memory() -> None:
    """Undo in this process, where the C library is GNU's, that Dask has every freed array given back to the system.

    Sets of a Gaussian process then took 2.5 times as long, for arrays that are made, freed and made again. Up to 128 MB
    are kept from now on, as a process does by itself.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(mmap_threshold, 1 << 25)
        mallopt(trim_threshold, 1 << 27)


@cache
def _own_versions() -> dict[str, str]:
    """The same, looked up once: it takes longer than many an item."""
    return versions()


def run_item(expected: dict[str, str], function: Callable[[Any, Any], Any], shared: Any, item: Any) -> Answer:
    """Run a function on a worker, with one thread of BLAS, as in the process that asked."""
    if _own_versions() != expected:
        return Answer(refusal=disagreement({platform.node(): _own_versions()}, expected))
    _keep_freed_memory()
    try:
        with one_blas_thread():
            return Answer(function(shared, item))
    except MissingExtraError as error:
        return Answer(refusal=VcudaError(str(error)))  # its own arguments are not its message, so it cannot travel
    except VcudaError as error:
        return Answer(refusal=error)


def unpacked(payload: bytes) -> Any:
    """What was packed where the fit runs."""
    import cloudpickle

    return cloudpickle.loads(payload)


def disagreement(differing: dict[str, dict[str, str]], expected: dict[str, str]) -> ClusterError:
    worker, versions = next(iter(differing.items()))
    apart = [
        f"{name} {versions.get(name)} and not {own}" for name, own in expected.items() if versions.get(name) != own
    ]
    return ClusterError(
        f"the worker {worker} has {', '.join(apart)}: the same seed might give other numbers there. Install the same "
        "versions everywhere"
    )
