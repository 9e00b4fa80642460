"""What people give as a table, made a file that Arrow reads: standard input and pipes, archives, files of other
programs, and databases. All of these are copied to a temporary folder; files that Arrow reads stay where they are."""

from __future__ import annotations

import csv
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcuda.data.conversion.databases import read_address, shown_address
from vcuda.data.conversion.kinds import WHOLE, TablePart, converted_file
from vcuda.data.copies import ArrowCopy, copy_bytes, named_as_given, temporary_folder
from vcuda.data.formats import (
    ARCHIVE,
    FILE_KINDS,
    STREAMED_KINDS,
    extension_of,
    has_table_ending,
    unreadable_refused,
)
from vcuda.data.messages import listed, nearest, shortened
from vcuda.data.packing import packing_of, unpacked
from vcuda.data.paths import ADDRESS, STANDARD_INPUT, WEB_ADDRESS, existing_file, is_piped, is_there, parted
from vcuda.data.pipes import spooled, spooled_input
from vcuda.data.text_files import is_irregular, text_format, text_records
from vcuda.errors import ConfigError, DataError


@dataclass(frozen=True)
class Copy:
    """A copy of a table, what it is a copy of, and what is to be noted."""

    path: Path
    shown: str
    notes: tuple[str, ...]
    folders: tuple[Path, ...] = ()

    def remove(self) -> None:
        """Remove the copy, once all of it is in memory."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """The copy, for who reads it: messages name what it is a copy of, and it is removed if it is refused."""
        try:
            with named_as_given([self.path], self.shown):
                yield self.path
        except BaseException:
            self.remove()
            raise


@dataclass
class _Copying:
    """The copies that one table has taken so far."""

    shown: str
    paths: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def folder(self) -> Path:
        self.folders.append(temporary_folder())
        return self.folders[-1]

    def now_at(self, path: Path) -> Path:
        self.paths.append(path)
        return path


def copied(data: Any, part: TablePart = WHOLE) -> Copy | None:
    """A copy of a table that cannot be read where it is; None where it can, or is no file at all.

    Parameters
    ----------
    data
        A path, "-" for standard input, or an address of SQLAlchemy; a table in memory has no copy. After the name of a
        workbook, a database or an archive a ``#`` and the name of a sheet, a table or a file may follow.
    part
        Which table is meant where there are several.
    """
    if not isinstance(data, (str, os.PathLike)):
        part.refuse("this table")
        return None
    text = os.fspath(data)
    if WEB_ADDRESS.match(text):
        raise DataError(
            f"{shortened(text, 60)}: this is an address, and vcuda fetches nothing from the network: download the file "
            "first, then give its path."
        )
    work = _Copying("standard input" if text == STANDARD_INPUT else text)
    try:
        if ADDRESS.match(text):
            path = _from_address(work, part)
        else:
            with named_as_given(work.paths, work.shown):
                path = _in_place(work, *_first(work, text, part))
    except BaseException:
        Copy(Path(), "", (), tuple(work.folders)).remove()
        raise
    return Copy(path, work.shown, tuple(work.notes), tuple(work.folders)) if work.folders else None


def _from_address(work: _Copying, part: TablePart) -> Path:
    """The rows of a query, or of a table that is named after ``#``."""
    address, _, name = work.shown.partition("#")
    part.refuse(shown_address(address), query=True)
    if part.query is not None and name:
        raise ConfigError(f"#{name} names a table, and query= (--query) asks for another one: leave out one of them")
    work.shown = shown_address(work.shown)
    copy = ArrowCopy(work.folder(), work.shown)
    try:
        work.notes += read_address(address, part.query, name or None, copy)
        return work.now_at(copy.finish())
    finally:
        copy.close()


def _first(work: _Copying, given: str, part: TablePart) -> tuple[Path, TablePart]:
    """The file that was given, or a copy of what comes through a pipe; and what is meant of it."""
    if given == STANDARD_INPUT:
        if sys.stdin is not None and os.isatty(0):
            raise DataError(
                "standard input: it is a terminal: send a table, as in vcuda check - < table.csv, or give a path."
            )
        return work.now_at(spooled_input(work.folder())), part
    path, name = parted(given)
    if is_piped(path):
        return work.now_at(spooled(path, work.folder())), part
    return path, part if name is None else part._replace(name=name)


def _in_place(work: _Copying, path: Path, part: TablePart) -> Path:
    """The file that Arrow reads: this one, or a copy of it or of what it holds."""
    extension, compressed = extension_of(path)
    kind = FILE_KINDS.get(extension)
    found = is_there(path)
    if part != WHOLE and not found:
        existing_file(path)
    if not found or path.is_dir() or not has_table_ending(path):
        part.refuse(str(path))
        return path  # a folder of files, or refused by who reads it
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty: a table needs a line of names and rows of numbers.")
    if extension == ARCHIVE:
        member = _member(work, path, part.name)
        return _in_place(work, member, part._replace(name=None))
    if kind == "text":
        part.refuse(str(path))
        return _regular_copy(work, path) if is_irregular(path) else path
    if compressed:
        return _in_place(work, _unpacked_copy(work, path), part)
    if kind in STREAMED_KINDS:
        part.refuse(str(path))
        return path
    copy, notes = converted_file(path, part, work.folder())
    work.notes += notes
    return work.now_at(copy)


def _unpacked_copy(work: _Copying, path: Path) -> Path:
    copy = work.folder() / f"table{extension_of(path)[0]}"
    with unreadable_refused(path), unpacked(path) as (content, _):
        copy_bytes(content, copy, str(path))
    assert not packing_of(copy)
    return work.now_at(copy)


def _member(work: _Copying, path: Path, name: str | None) -> Path:
    """A copy of the only table in an archive, or of the one that is named; names of members become no paths."""
    with unreadable_refused(path), zipfile.ZipFile(path) as archive:
        found = [
            one.filename
            for one in archive.infolist()
            if not one.is_dir() and has_table_ending(Path(one.filename)) and not _is_hidden(one.filename)
        ]
        tables = [one for one in found if extension_of(Path(one))[0] != ARCHIVE]
        if name is not None and name not in tables:
            raise DataError(
                f"{path}: there is no table {shortened(name)} in the archive{nearest(name, tables)}: it holds "
                f"{listed(tables)}."
            )
        if name is None and len(tables) != 1:
            fault = f"the tables {listed(tables)}" if tables else "no table"
            remedy = f"choose one ({path.name}#{tables[0]})" if tables else "check what is in it"
            raise DataError(f"{path}: the archive holds {fault}: {remedy}.")
        chosen = tables[0] if name is None else name
        ending = "".join(Path(chosen).suffixes[-2:]) if packing_of(Path(chosen)) else Path(chosen).suffix
        copy = work.folder() / f"table{ending.lower()}"
        with archive.open(chosen) as content:
            copy_bytes(content, copy, str(path))
    return work.now_at(copy)


def _is_hidden(member: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in Path(member).parts)


def _regular_copy(work: _Copying, path: Path) -> Path:
    """A copy with one tab between cells, and a name, if an empty one, for rows that R has numbered; every record stays
    on its line."""
    copy = work.folder() / "table.tsv"
    with open(copy, "w", encoding="utf-8", newline="") as file:
        writer, last = csv.writer(file, delimiter="\t", lineterminator="\n"), 0
        for line, record in text_records(path):
            if not last and text_format(path).numbered:
                record.insert(0, "")
            file.write("\n" * (line - last - 1 - "".join(record).count("\n")))
            writer.writerow(record)
            last = line
    return work.now_at(copy)
