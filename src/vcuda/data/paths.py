"""Where a table is: a path, a part of a file, a pipe or an address. Imports nothing heavy: a path that leads nowhere is
refused before anything that reads tables is imported."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from vcuda.data.formats import ARCHIVE, FILE_KINDS, extension_of, has_table_ending
from vcuda.data.messages import nearest, shortened
from vcuda.errors import DataError

# The tables that come with the package; each name can stand where a path is asked for.
BUNDLED = ("sachs", "sachs-experiments")
STANDARD_INPUT = "-"
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# A path that was made of an address has lost one of the slashes.
WEB_ADDRESS = re.compile(
    r"(https?|ftps?|sftp|s3a?|gs|gcs|az|abfss?|adl|hdfs|webhdfs|file|data|ssh|scp|smb):/", re.IGNORECASE
)
PARTED_KINDS = ("workbook", "sqlite", "duckdb")
# Where the system shows open files by other names than their own.
OPEN_FILES = ("/dev/", "/proc/")


def check_is_there(text: str) -> None:
    """Refuse a table whose file is not there."""
    if text in BUNDLED or text == STANDARD_INPUT or ADDRESS.match(text) or WEB_ADDRESS.match(text):
        return
    path = parted(text)[0]
    if not is_there(path):
        existing_file(path, also_known=BUNDLED)


def existing_file(path: Path, *, also_known: Iterable[str] = ()) -> Path:
    """The path of a file that is there; what is near is suggested when it is not."""
    try:
        path = path.expanduser()
        is_folder, is_file, has_parent = path.is_dir(), path.is_file(), path.parent.is_dir()
        missing = has_parent and not is_folder and not is_file
        beside = [entry.name for entry in path.parent.iterdir() if entry.is_file()] if missing else []
    except (
        OSError,
        RuntimeError,
        ValueError,
    ) as error:  # a name too long, a folder that is locked, the home of nobody
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{shortened(path)}: no file can be found there ({reason}): check the path.") from None
    if is_folder:
        raise DataError(f"{path}: this is a folder, not a file: give the path of one file in it.")
    if is_file:
        return path
    if path.exists():
        raise DataError(f"{path}: this is a device or a socket, not a file: give the path of a file, or of a pipe.")
    if not has_parent:
        raise DataError(f"{path}: the folder {path.parent} does not exist: check the path.")
    hint = nearest(path.name, [*beside, *also_known])
    raise DataError(f"{path}: there is no such file{hint}: check the path.")


def file_of(text: str) -> Path | None:
    """The file that a table is in, if it is in one that can be found again."""
    path = parted(text)[0]
    return path if is_there(path) and not is_piped(path) and (path.is_file() or path.is_dir()) else None


def is_source(text: str) -> bool:
    """Whether a text names a file of a table by its ending, or a part of one."""
    return bool(text) and (has_table_ending(Path(text)) or parted(text)[1] is not None)


def parted(text: str) -> tuple[Path, str | None]:
    """A path, and the name of a part of it after ``#``; a file whose own name has that sign is taken as it is."""
    before, mark, name = text.rpartition("#")
    path = at_home(text)
    if not mark or not before or not name or is_there(path):
        return path, None
    file = at_home(before)
    extension = extension_of(file)[0]
    if FILE_KINDS.get(extension) in PARTED_KINDS or extension == ARCHIVE:
        return file, name
    return path, None


def at_home(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # the home of nobody
        return Path(text)


def is_there(path: Path) -> bool:
    """Whether a path leads anywhere; one that no file can have does not, as who reads files says in a sentence."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_piped(path: Path) -> bool:
    """Whether a path leads to a pipe, or to an open file without a name."""
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(kind) or (str(path).startswith(OPEN_FILES) and stat.S_ISREG(kind))
