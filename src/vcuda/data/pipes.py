"""Tables that come through a pipe (a FIFO, ``<(...)``, ``/dev/stdin``): copied to a file first, since readers seek."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcuda.data.formats import ARROW_FILE, ARROW_STREAM
from vcuda.errors import DataError
from vcuda.interrupts import ANSWER
from vcuda.memory import memory_available

PIECE = 1 << 20
# What the first bytes say of a format; a name such as /dev/fd/63 says nothing.
BEGINNINGS = {b"\x1f\x8b": ".csv.gz", b"PAR1": ".parquet", ARROW_FILE: ".feather", ARROW_STREAM: ".arrow"}
# Where the system shows open files by other names than their own.
OPEN_FILES = ("/dev/", "/proc/")


def is_piped(path: Path) -> bool:
    """Whether a path leads to a pipe, or to an open file that has no name of its own here."""
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(kind) or (str(path).startswith(OPEN_FILES) and stat.S_ISREG(kind))


def spooled(path: Path) -> Path:
    """The file itself, or a copy of what comes through a pipe, which is there until the process ends."""
    if not is_piped(path):
        return path
    folder = Path(tempfile.mkdtemp(prefix="vcuda-"))

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    ANSWER.unfinished.append(remove)
    most = min(memory_available(), shutil.disk_usage(folder).free // 2)
    copy = folder / "table"
    try:
        with open(path, "rb") as pipe, open(copy, "wb") as file:
            first = block = pipe.read(PIECE)
            while block:
                file.write(block)
                if file.tell() > most:
                    raise DataError(
                        f"{path}: more than {most / 1e9:,.2g} GB come through this pipe, which is what memory and "
                        f"{folder.parent} have room for: save the table to a file."
                    )
                block = pipe.read(PIECE)
    except OSError as error:
        remove()
        raise DataError(f"{path}: the pipe cannot be read ({error.strerror or error}).") from error
    except DataError:
        remove()
        raise
    ending = next((ending for mark, ending in BEGINNINGS.items() if first.startswith(mark)), ".csv")
    return copy.rename(copy.with_name(f"table{ending}"))


@contextmanager
def named_as_given(copy: Path, given: Path) -> Iterator[None]:
    """Messages about a copy name what was given."""
    try:
        yield
    except DataError as error:
        if copy == given:
            raise
        raise type(error)(str(error).replace(str(copy), str(given))) from None
