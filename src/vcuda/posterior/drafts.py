"""Files that are there as a whole or not at all: written in a folder beside their place, and then moved there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vcuda.data.messages import shortened
from vcuda.errors import RunError
from vcuda.interrupts import undone

# The beginning of the names of such folders.
DRAFTS = ".writing-"


def check_new_file(path: Path) -> None:
    """Refuse, before any work is done, a path at which no file can be written."""
    try:
        is_folder, has_parent = path.is_dir(), path.parent.is_dir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"no file can be written to {shortened(path)}: {reason}; choose another name") from error
    if is_folder:
        raise RunError(f"{path} is a folder; give the name of a file")
    if not has_parent:
        raise RunError(f"{path}: the folder {path.parent} does not exist; make it first")


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
