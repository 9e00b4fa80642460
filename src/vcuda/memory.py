"""How much memory this process may still take; known without importing anything heavy."""

from __future__ import annotations

import os
import re
from pathlib import Path


def memory_available() -> int:
    """The bytes that this process may still take, as far as the system tells, otherwise 8 GB."""
    limits: list[int] = []
    for file, pattern, unit in (
        ("/proc/meminfo", r"MemAvailable:\s+(\d+) kB", 1024),
        ("/sys/fs/cgroup/memory.max", r"(\d+)", 1),
    ):
        try:
            match = re.search(pattern, Path(file).read_text())
        except OSError:
            continue
        if match:
            limits.append(int(match.group(1)) * unit)
    space = address_space_left()
    if space is not None:
        limits.append(space)
    if not limits:
        try:
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, ValueError, OSError):
            limits.append(8_000_000_000)
    return min(limits)


def address_space_left() -> int | None:
    """The bytes that a limit on the process itself (ulimit -v) leaves; None where there is no limit."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return None
    if limit == resource.RLIM_INFINITY:
        return None
    return max(limit - pages * resource.getpagesize(), 0)
