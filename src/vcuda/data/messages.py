"""How messages name rows, cells and columns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

LONGEST_COMPARED = 100
# The options of Python and of the command line, as messages add them to what is to be done.
HOW_TO_CHOOSE = "(columns=, --columns)"
HOW_TO_LEAVE_OUT = "(exclude=, --exclude)"


def data_row(row: int) -> str:
    """How messages name a row: counted from 1, without the header."""
    return f"data row {row + 1:,}"


def shortened(cell: object, limit: int = 30) -> str:
    """A cell in quotes, on one line, and not longer than a message can bear."""
    text = str(cell)
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def listed(names: Sequence[str], limit: int = 6) -> str:
    """Names in quotes, joined as in a sentence, the tail counted when there are many.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    "'a', 'b' and 'c'"
    >>> listed([])
    'nothing'
    """
    if not names:
        return "nothing"
    shown = [shortened(name) for name in names[:limit]]
    if len(names) > limit:
        shown.append(f"{len(names) - limit:,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def nearest(wanted: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: " (did you mean 'x'?)", or nothing when none is near."""
    # Comparing two texts costs the product of their lengths; nobody mistypes a name of more letters than this.
    by_lower = {name.lower(): name for name in known if len(name) <= LONGEST_COMPARED}
    if len(wanted) > LONGEST_COMPARED:
        return ""
    matches = difflib.get_close_matches(wanted.lower(), by_lower, n=1, cutoff=0.6)
    return f" (did you mean {by_lower[matches[0]]!r}?)" if matches else ""
