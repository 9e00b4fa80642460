"""Variables by their names, as people give them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from vcuda.arguments import whole_number
from vcuda.errors import ConfigError


def position(names: Sequence[str], name: str) -> int:
    """Where a variable stands among the names; one that is not there is refused with the nearest that is.

    Examples
    --------
    >>> position(("Raf", "Mek"), "Mek")
    1
    """
    try:
        return list(names).index(name)
    except ValueError:
        near = get_close_matches(str(name), names, n=1, cutoff=0.5)
        if not near:  # small and capital letters are the commonest mistake
            lowered = {known.lower(): known for known in names}
            near = [lowered[found] for found in get_close_matches(str(name).lower(), list(lowered), n=1, cutoff=0.5)]
        meant = f"did you mean {near[0]!r}?" if near else f"there are {_listed(names)}"
        raise ConfigError(f"the posterior has no variable {name!r}; {meant}") from None


def two_positions(names: Sequence[str], first: str, second: str) -> tuple[int, int]:
    """Two different variables."""
    if first == second:
        raise ConfigError(f"expected two different variables, got {first!r} twice")
    return position(names, first), position(names, second)


def _listed(names: Sequence[str], most: int = 10) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def check_draws(draws: int) -> None:
    whole_number("draws", draws, least=1)
