"""Values of options as plain Python values: each function takes what a person passed, and returns it or refuses it.

NumPy numbers and arrays that hold a single number become numbers of Python, so that whatever passes can be stored as
JSON and read again.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from vcuda.errors import ConfigError

LARGEST_SEED = 2**32 - 1


def plain(value: Any) -> Any:
    """A scalar of NumPy or JAX, or an array that holds one, as Python's own; everything else as it is.

    Examples
    --------
    >>> import numpy as np
    >>> plain(np.float32(0.5)), plain(np.array(True)), plain("text")
    (0.5, True, 'text')
    """
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def finite(content: Any) -> Any:
    """Content for JSON, inner parts included: a number that JSON does not know (infinity) becomes None.

    Examples
    --------
    >>> finite({"a": [1.5, float("inf")]})
    {'a': [1.5, None]}
    """
    if isinstance(content, dict):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    content = plain(content)
    return None if isinstance(content, float) and not math.isfinite(content) else content


def whole_number(name: str, value: Any, *, least: int = 0, most: int | None = None) -> int:
    """A whole number within bounds; True and False are none.

    Examples
    --------
    >>> whole_number("draws", 3, least=1)
    3
    """
    given = plain(value)
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise ConfigError(f"{name} must be a whole number, not {_shown(value)}")
    found = int(given)
    if found < least or (most is not None and found > most):
        bounds = f"at least {least:,}" if most is None else f"from {least} to {most:,}"
        raise ConfigError(f"{name} must be a whole number {bounds}, not {_shown(value)}")
    return found


def number(name: str, value: Any) -> float:
    """A number that is not NaN; neither a text nor True or False."""
    given = plain(value)
    if isinstance(given, bool) or not isinstance(given, Real):
        raise ConfigError(f"{name} must be a number, not {_shown(value)}")
    try:
        found = float(given)
    except OverflowError:
        raise ConfigError(f"{name} is too large a number: {_shown(value)}") from None
    if math.isnan(found):
        raise ConfigError(f"{name} must be a number, not NaN")
    return found


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    given = plain(value)
    if not isinstance(given, bool):
        raise ConfigError(f"{name} must be True or False, not {_shown(value)}")
    return given


def seed_of(value: Any) -> int:
    """A seed from 0 to 4,294,967,295; None draws one, which whoever asks should keep.

    Examples
    --------
    >>> seed_of(7)
    7
    """
    if value is None:
        return secrets.randbelow(LARGEST_SEED + 1)
    return whole_number("seed", value, least=0, most=LARGEST_SEED)


def time_limit_of(value: Any) -> float | None:
    """Seconds, more than none; None and infinity are no limit."""
    if value is None:
        return None
    seconds = number("time_limit", value)
    if seconds <= 0:
        raise ConfigError(f"time_limit must be a positive number of seconds, not {_shown(value)}")
    return None if math.isinf(seconds) else seconds


def check_draws(draws: Any) -> None:
    """Refuse what is no number of draws."""
    whole_number("draws", draws, least=1)


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


def _shown(value: Any, longest: int = 60) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print numbers of thousands of digits
        text = f"a {type(value).__name__} of very many digits"
    return text if len(text) <= longest else f"{text[:longest]}..."
