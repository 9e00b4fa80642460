"""TOML files, which may come from somebody else: read within bounds, and written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Strings and comments of TOML, so that what is left has none; one that does not end goes on to the end of the text.
_QUOTED = re.compile(
    r"""
    \"{3}(?:\\.|[^\\])*?(?:\"{3}|\\?\Z)
  | '{3}.*?(?:'{3}|\Z)
  | "(?:\\.|[^"\\\n])*+"?
  | '[^'\n]*+'?
  | \#[^\n]*+
    """,
    re.VERBOSE | re.DOTALL,
)
# The parser takes the square of the number of parts of a key; ours have two.
_LONG_KEY = re.compile(r"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){20}")


def read_toml(file: Path) -> dict[str, Any]:
    """What a file holds; a ValueError with a sentence where it cannot be read or is not TOML."""
    try:
        text = file.read_bytes().decode("utf-8")
        if _LONG_KEY.search(_QUOTED.sub("_", text)):
            raise ValueError("a key has more than 20 parts")
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"{file}: brackets are nested too deeply: correct that line") from None
    except (OSError, ValueError) as error:  # also of what is not TOML or not UTF-8
        reason = str(getattr(error, "strerror", None) or error)
        raise ValueError(f"{file}: this is not TOML ({reason[:200]}): correct that line") from None


def toml_of(value: Any) -> str:
    """A value as TOML writes it on one line.

    Examples
    --------
    >>> print(toml_of({"a": ["x", 1, 0.5, True]}))
    {"a" = ["x", 1, 0.5, true]}
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match[0]):04x}", escaped) + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_of(str(key))} = {toml_of(own)}" for key, own in value.items()) + "}"
    return f"[{', '.join(map(toml_of, value))}]"
