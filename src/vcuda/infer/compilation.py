"""How programs are compiled: in the precision that we choose (``vcuda.models.precision``), kept between runs in JAX's
persistent cache, and not kept for ever in a process that makes more and more of them."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from vcuda.models.precision import double_precision, single_precision

__all__ = ["bounded_programs", "cache_folder", "double_precision", "single_precision", "use_compilation_cache"]

VARIABLE = "VCUDA_CACHE"
# A compiled program holds 2 or 3 MB of a process, so that these are well below 1 GB. A fit of a new shape has 1 to 46.
KEPT_PROGRAMS = 256
# Programs on disk, in bytes; beyond this those that were not used for longest are deleted, down to half of it.
KEPT_ON_DISK = 1 << 30
COMPILED = "/jax/core/compile/backend_compile_duration"


def cache_folder() -> Path | None:
    """Where compiled programs are kept; None if switched off.

    The environment variable ``VCUDA_CACHE`` names another folder, or switches the cache off with ``off``. The folder
    is safe to delete at any time.
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen.lower() in {"off", "0", "no"}:
        return None
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "vcuda" / "compiled"


def use_compilation_cache() -> None:
    """Turn the persistent cache on, unless the user has set one of their own or switched it off."""
    folder = cache_folder()
    if folder is None or getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _prune(folder, KEPT_ON_DISK)
    except OSError:
        return  # a home that cannot be written costs seconds, not results
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # By default programs that compile in under a second are not kept; several of those are what a small fit waits for.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _prune(folder: Path, most: int) -> None:
    """Delete the files that were not used for longest, until half of ``most`` bytes are left, if there are more.

    JAX has a limit of its own, but looks at all files for every program that it adds, and needs another package.
    """
    files = [(entry, entry.stat()) for entry in os.scandir(folder) if entry.is_file()]
    total = sum(found.st_size for _, found in files)
    if total <= most:
        return
    for entry, found in sorted(files, key=lambda file: max(file[1].st_atime, file[1].st_mtime)):
        try:
            os.unlink(entry.path)
        except OSError:
            continue  # in use, or another process was faster
        total -= found.st_size
        if total <= most // 2:
            return


class _Programs:
    """How many programs were compiled, or read from disk, since they were last dropped."""

    def __init__(self) -> None:
        self.count = 0
        self._counting = False
        self._lock = threading.Lock()

    def watch(self) -> None:
        with self._lock:
            if not self._counting:
                jax.monitoring.register_event_duration_secs_listener(self._note)
                self._counting = True

    def _note(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILED:
            self.count += 1

    def drop(self, most: int) -> None:
        """Drop all of them if there are more than ``most``; a program that is running in another thread runs on."""
        with self._lock:
            if self.count <= most:
                return
            self.count = 0
        jax.clear_caches()


_programs = _Programs()


@contextmanager
def bounded_programs() -> Iterator[None]:
    """Around a fit: after it, drop all compiled programs of the process if there are more than ``KEPT_PROGRAMS``.

    JAX keeps a program for every new shape of a table, and fits of hundreds of shapes would fill the memory. Fits of a
    few shapes stay below the limit and find their programs as before.
    """
    _programs.watch()
    before = _programs.count
    try:
        yield
    finally:
        if _programs.count > before:
            _programs.drop(KEPT_PROGRAMS)
            _give_back()


def _give_back() -> None:
    """Return freed memory to the system; the C library keeps what the compiler used, up to 100 MB after one program."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only of the GNU library
    if trim is not None:
        trim(0)
