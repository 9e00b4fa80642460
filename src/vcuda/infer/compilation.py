"""How programs are compiled: kept between runs in JAX's persistent cache, and in double precision where asked for."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax

VARIABLE = "VCUDA_CACHE"


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
    except OSError:
        return  # a home that cannot be written costs seconds, not results
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # By default programs that compile in under a second are not kept; several of those are what a small fit waits for.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def double_precision() -> AbstractContextManager[Any]:
    """Double precision inside; the name of JAX's switch has changed with its versions."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined, unused-ignore]

    return enable_x64()
