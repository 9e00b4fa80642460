"""One thread for BLAS while anything is fitted, also by several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import threadpoolctl

_lock = threading.Lock()
_inside: set[object] = set()
_limit: list[threadpoolctl.threadpool_limits] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread inside.

    Thousands of small factorisations are made: threads of BLAS that wait for each other took three times as long, and
    changed last digits with the number of cores. The limit is the whole process's, so the first of several fits sets
    it and the last one lifts it; otherwise the first to end would lift it for the others, and the last would set it for
    ever. Where BLAS is built on OpenMP the limit is a thread's own, and each fit has its own.
    """
    token = object()
    with threadpoolctl.ThreadpoolController().select(threading_layer="openmp").limit(limits=1, user_api="blas"):
        try:
            with _lock:
                _inside.add(token)
                if not _limit:
                    _free_control()
                    _limit.append(threadpoolctl.threadpool_limits(1, user_api="blas"))
            yield
        finally:
            with _lock:
                _inside.discard(token)
                if not _inside and _limit:
                    _free_control()
                    _limit.pop().restore_original_limits()
                    _free_control()


def _free_control() -> None:
    """Let this thread set the limit: newer versions of threadpoolctl let only the one do it that was first."""
    controller = getattr(threadpoolctl, "OpenBLASController", None)
    clear = getattr(controller, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
