"""Tables that come through a pipe (a FIFO, ``<(...)``, ``/dev/stdin``): copied to a file first, since readers seek."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from vcuda.data.copies import copy_bytes, temporary_folder
from vcuda.data.formats import guessed_ending
from vcuda.data.paths import is_piped
from vcuda.errors import DataError


def spooled(path: Path, folder: Path | None = None) -> Path:
    """The file itself, or a copy of what comes through a pipe, which is there until the process ends."""
    if not is_piped(path):
        return path
    try:
        with open(path, "rb") as pipe:
            return _copied(pipe, str(path), folder or temporary_folder())
    except OSError as error:
        raise DataError(f"{path}: the pipe cannot be read ({error.strerror or error}).") from error


def spooled_input(folder: Path) -> Path:
    """A copy of what comes through standard input."""
    try:
        with open(0, "rb", closefd=False) as pipe:
            return _copied(pipe, "standard input", folder)
    except OSError as error:
        raise DataError(f"standard input: it cannot be read ({error.strerror or error}).") from error


def _copied(pipe: IO[bytes], source: str, folder: Path) -> Path:
    copy = folder / "table"
    copy_bytes(pipe, copy, source)
    ending = guessed_ending(copy)
    if ending is None:
        with open(copy, "rb") as file:
            first = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
        ending = ".json" if first[:1] in (b"[", b"{") else ".txt"
    return copy.rename(copy.with_name(f"table{ending}"))
