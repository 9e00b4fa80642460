"""Files that are there as a whole or not at all: written in a folder beside their place, and then moved there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vcuda.interrupts import undone

# The beginning of the names of such folders.
DRAFTS = ".writing-"


@contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """A new folder inside ``folder`` to write files into; it vanishes at the end, with what was not moved elsewhere.

    Not the temporary folder of the standard library: interrupted while that removes itself, it closes a descriptor
    twice (Python 3.11), and the error of the second time takes the place of the interrupt.
    """
    made = Path(tempfile.mkdtemp(prefix=DRAFTS, dir=folder))
    with undone(lambda: _remove(made)):
        try:
            yield made
        finally:
            _remove(made)


def _remove(made: Path) -> None:
    with suppress(OSError):
        for draft in made.iterdir():
            draft.unlink()
        made.rmdir()
