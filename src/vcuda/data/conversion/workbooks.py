"""Spreadsheets: Excel by openpyxl, OpenDocument by pandas and odfpy, both of the extra ``excel``."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from vcuda.data.copies import BATCH_ROWS, ArrowCopy, arrow_column
from vcuda.data.messages import listed, nearest, shortened
from vcuda.data.raw_table import is_number
from vcuda.errors import DataError, MissingExtraError
from vcuda.memory import memory_available

# Python's objects take about so many times the bytes of a workbook's text.
OBJECT_COPIES = 4
# Rows at the top that may be a title; the names stand below.
MOST_TITLE_ROWS = 20
REPEATED = re.compile(rb'number-(?:rows|columns)-repeated="(\d+)"')
# No sheet of LibreOffice has more rows.
LONGEST_SHEET = 1 << 20
HOW_TO_CHOOSE_SHEET = "(sheet=, --sheet)"

Row = Sequence[Any]


def read_workbook(path: Path, sheet: str | None, copy: ArrowCopy) -> list[str]:
    """Add the rows of a sheet: that of this name, or the first with two columns or more."""
    _check_size(path)
    opened = _open_document if path.suffix.lower() == ".ods" else _excel
    with opened(path) as (names, rows_of):
        chosen = [_known(path, names, sheet)] if sheet is not None else list(names)
        # A sheet with one column is no table, and refused if there is no other.
        for fewest in (2, 1):
            for name in chosen:
                rows = rows_of(name)
                found = _header(rows)
                if found is not None and len(found[1]) >= fewest:
                    _check_names(path, name, found[1])
                    _add(path, found[1], rows, copy)
                    return _notes(name, names, found[0], asked=sheet is not None)
    what = "the workbook" if sheet is None else f"the sheet {shortened(sheet)}"
    raise DataError(f"{path}: {what} is empty: a table needs a row of names and rows of numbers.")


def _check_names(path: Path, sheet: str, names: Sequence[str]) -> None:
    if all(map(is_number, names)):
        raise DataError(
            f"{path}: the first row of the sheet {shortened(sheet)} holds only numbers ({listed(list(names), 3)}) "
            "where names should be: add a row of names above it, or put a letter before each name."
        )


def _notes(name: str, names: Sequence[str], title_rows: int, *, asked: bool) -> list[str]:
    notes = []
    if len(names) > 1 and not asked:
        others = [other for other in names if other != name]
        notes.append(f"The sheet {shortened(name)} was read, and not {listed(others)} {HOW_TO_CHOOSE_SHEET}.")
    if title_rows:
        rows = "The first row" if title_rows == 1 else f"The first {title_rows} rows"
        notes.append(f"{rows} of the sheet above the names were left out, as a title.")
    return notes


def _known(path: Path, names: Sequence[str], sheet: str) -> str:
    by_lower = {name.strip().lower(): name for name in names}
    if sheet in names or sheet.strip().lower() in by_lower:
        return sheet if sheet in names else by_lower[sheet.strip().lower()]
    raise DataError(
        f"{path}: there is no sheet {shortened(sheet)}{nearest(sheet, names)}: the sheets are {listed(list(names))} "
        f"{HOW_TO_CHOOSE_SHEET}."
    )


# Rows ---------------------------------------------------------------------------------------------------------


def _header(rows: Iterator[Row]) -> tuple[int, list[str]] | None:
    """How many rows are a title, and the names below it; None where there are no cells."""
    above, single = 0, None
    for row in islice(rows, MOST_TITLE_ROWS + 1):
        filled = [cell for cell in row if not _is_blank(cell)]
        if len(filled) > 1:
            names = ["" if _is_blank(cell) else _as_text(cell) for cell in row]
            while names and not names[-1]:
                names.pop()
            return above, names
        if filled:
            single = row
        above += bool(filled)
    if single is None:
        return None
    return 0, [_as_text(next(cell for cell in single if not _is_blank(cell)))]


def _add(path: Path, names: list[str], rows: Iterator[Row], copy: ArrowCopy) -> None:
    """Add all rows with a cell; columns beyond the names must be empty, and one that is empty and nameless is none."""
    width = len(names)
    used = [bool(name) for name in names]
    parts = []
    while batch := [_cut(path, row, width) for row in islice(rows, BATCH_ROWS)]:
        kept = [row for row in batch if any(cell is not None for cell in row)]
        for k in range(width):
            used[k] = used[k] or any(row[k] is not None for row in kept)
        parts.append(kept)
        if all(used):
            _flush(names, parts, range(width), copy)
            parts = []
    _flush(names, parts, [k for k in range(width) if used[k]], copy)


def _flush(names: Sequence[str], parts: Sequence[Sequence[Row]], columns: Sequence[int], copy: ArrowCopy) -> None:
    for part in parts or ([] if copy.rows else [[]]):
        copy.add([names[k] for k in columns], [arrow_column([row[k] for row in part]) for k in columns])


def _cut(path: Path, row: Row, width: int) -> list[Any]:
    cells = [None if _is_blank(cell) else cell for cell in row]
    beyond = next((k for k in range(width, len(cells)) if cells[k] is not None), None)
    if beyond is not None:
        raise DataError(
            f"{path}: column {beyond + 1:,} holds {shortened(cells[beyond])} and has no name: give it one, or remove "
            "what stands beside the table."
        )
    return [*cells[:width], *[None] * (width - len(cells))]


def _is_blank(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())


def _as_text(cell: Any) -> str:
    return f"{cell:g}" if isinstance(cell, float) and cell.is_integer() else str(cell)


# Files --------------------------------------------------------------------------------------------------------


def _check_size(path: Path) -> None:
    """Refuse a workbook that unfolds to more than the memory holds."""
    with zipfile.ZipFile(path) as archive:
        needed = OBJECT_COPIES * sum(member.file_size for member in archive.infolist())
    available = memory_available()
    if needed > available:
        raise DataError(
            f"{path}: reading the workbook takes about {needed / 1e9:,.1f} GB of memory and {available / 1e9:,.1f} GB "
            "are free: save the sheet as CSV, which is read piece by piece."
        )


@contextmanager
def _excel(path: Path) -> Iterator[Any]:
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError("openpyxl", "excel", f"{path}: reading Excel files") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions, which are not read
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            sheets = {sheet.title: sheet for sheet in book.worksheets}

            def rows_of(name: str) -> Iterator[Row]:
                # The size that a file says its sheet has may be wrong.
                sheets[name].reset_dimensions()
                return iter(sheets[name].iter_rows(values_only=True))

            visible = [name for name, sheet in sheets.items() if sheet.sheet_state == "visible"]
            yield visible or list(sheets), rows_of
        finally:
            book.close()


@contextmanager
def _open_document(path: Path) -> Iterator[Any]:
    import pandas as pd

    try:
        import odf.opendocument
    except ImportError as error:
        raise MissingExtraError("odfpy", "excel", f"{path}: reading OpenDocument files") from error
    assert odf.opendocument
    with zipfile.ZipFile(path) as archive:
        times = [int(count) for count in REPEATED.findall(archive.read("content.xml"))]
    if max(times, default=0) > LONGEST_SHEET:
        raise DataError(f"{path}: the file repeats a row {max(times):,} times, more than a sheet has: save it again.")
    with pd.ExcelFile(path, engine="odf") as book:

        def rows_of(name: str) -> Iterator[Row]:
            frame = pd.read_excel(book, sheet_name=name, header=None, dtype=object, keep_default_na=False)
            return frame.itertuples(index=False, name=None)

        yield [str(name) for name in book.sheet_names], rows_of
