"""Column names for display: untrusted text, in which control characters and changes of direction are shown."""

from __future__ import annotations

import unicodedata

# These change the direction of what comes after them, which need not be the name's own text.
_TURNING = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSEEN_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")


def visible(text: object) -> str:
    r"""The text with control characters, half surrogates and reversals of direction spelt out.

    Letters of every script, accents and joined emoji stay as they are.

    Examples
    --------
    >>> visible("dose\n(mg)")
    'dose\\n(mg)'
    """
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if character in _TURNING or unicodedata.category(character) in _UNSEEN_CATEGORIES
        else character
        for character in str(text)
    )


def shortened(text: object, most: int = 24) -> str:
    """The visible text, cut to at most ``most`` characters.

    Examples
    --------
    >>> shortened("phosphorylation", 8)
    'phospho…'
    """
    shown = visible(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"
