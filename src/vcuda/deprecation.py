"""Old public names: each works for one release, and says which name to use instead."""

from __future__ import annotations

import warnings


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that ``old`` will go, and name what to use instead; the warning points at the caller's caller."""
    warnings.warn(
        f"{old} is now {new}; the next release removes the old name", DeprecationWarning, stacklevel=stacklevel
    )
