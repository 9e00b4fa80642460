"""Tables as they were read, before any check: their names, and their cells as numbers or numbered labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from vcuda.data.messages import HOW_TO_LEAVE_OUT, shortened
from vcuda.data.number_styles import CONFLICTS, NumberStyle, found_style, is_dressed, number_in_style
from vcuda.errors import DataError

FloatArray = npt.NDArray[np.float64]

TEXT_REMEDY = f"leave the column out {HOW_TO_LEAVE_OUT} or code it as numbers"
DATE_REMEDY = f"leave the column out {HOW_TO_LEAVE_OUT} or turn it into a number, such as days since the start"
COMPLEX_REMEDY = "give the real and the imaginary part as two columns"
# A column of text in which more than this share of the cells are numbers is one of numbers, with bad cells.
MOSTLY = 0.5
# Unless it has so few different cells, and so many rows have each of the words: these are answers, such as 9, 10 and
# other, and no slips.
MOST_ANSWERS, LEAST_GIVEN = 15, 2
DATE = re.compile(r"(\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4})(\D.*)?", flags=re.DOTALL)
# A letter behind a whole number makes a code, such as house number 136A, and not a number that was mistyped.
LETTERED = re.compile(r"\d+ ?[A-Za-z]")
# What people write where a value is missing, in lower case; files have some more that Arrow knows.
MISSING_MARKS = {"?", "??", "*", "-", "--", "---", ".", "..", "na", "n/a", "n.a.", "#n/a", "#na", "nan", "null", "<na>"}
# Errors of spreadsheets, which have no value.
MISSING_MARKS |= {"#div/0!", "#value!", "#ref!", "#num!", "#name?", "#null!"}

CellType = Literal["real", "integer", "truth", "labels"]


class Labels(NamedTuple):
    """The labels of a column, as its numbers 0, 1, 2, ... count them.

    ``in_order`` if somebody chose that order, ``ordered`` if the type of the column says that the order has a meaning.
    """

    names: tuple[str, ...]
    in_order: bool = False
    ordered: bool = False


class Column(NamedTuple):
    """One column as it was read: ``values`` (n,), NaN where a cell is missing, and what they stand for.

    ``marks`` are texts such as "?" that were taken as missing values; ``style`` is how numbers are written that are not
    written plainly.
    """

    values: npt.ArrayLike
    type: CellType
    labels: Labels | None = None
    marks: tuple[str, ...] = ()
    style: NumberStyle | None = None


class ColumnError(DataError):
    """One column cannot be used; ``is_date`` if it holds dates or times, which are left out by default."""

    def __init__(self, message: str, *, is_date: bool = False) -> None:
        super().__init__(message)
        self.is_date = is_date


class Cells(NamedTuple):
    """Columns as they were read: ``values`` (n, k), the type of each, and by position the labels of those that have
    any, texts that were taken as missing values, what is wrong with those that cannot be used, and how numbers are
    written that are not written plainly."""

    values: FloatArray
    types: tuple[CellType, ...]
    labels: dict[int, Labels]
    marks: dict[int, tuple[str, ...]]
    faults: dict[int, ColumnError]
    styles: dict[int, NumberStyle]

    @classmethod
    def of(cls, rows: int, columns: Sequence[int], read: Callable[[int], Column]) -> Cells:
        """Fill a new C-order matrix column by column; one that cannot be used is NaN."""
        found = cls(np.empty((rows, len(columns))), (), {}, {}, {}, {})
        types: list[CellType] = []
        for place, k in enumerate(columns):
            try:
                column = read(k)
            except ColumnError as fault:
                column, found.faults[place] = Column(np.nan, "real"), fault
            found.values[:, place] = column.values
            types.append(column.type)
            if column.labels is not None:
                found.labels[place] = column.labels
            if column.marks:
                found.marks[place] = column.marks
            if column.style is not None:
                found.styles[place] = column.style
        return found._replace(types=tuple(types))

    def sound(self) -> Cells:
        """The same, if every column can be used."""
        for fault in self.faults.values():
            raise fault
        return self


@dataclass(frozen=True)
class RawTable:
    """A table that nobody has checked yet: its names are known, its cells are read when `read` is called.

    Names before cells, so that a table too wide for the machine is refused before it is loaded.
    """

    source: str
    names: tuple[str, ...]
    read: Callable[[Sequence[int]], Cells]  # some of the columns, by their positions
    labels: Callable[[int], list[str]]  # the cells of one column as text, empty where one is missing
    place: Callable[[int], str]  # row index, from 0 -> how a person finds that row
    has_header_line: bool = False  # the names are the first line of a text file, or what was taken for it
    rows: int | None = None  # where they are known before a cell is read
    text_is_parsed: bool = False  # text that is numbers is taken for numbers
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Says what is wrong with one column of a table, and where."""

    source: str
    name: str
    place: Callable[[int], str]

    def __call__(self, fault: str, remedy: str) -> NoReturn:
        raise ColumnError(f"{self.source}: column {shortened(self.name)} {fault}: {remedy}.")

    def dates(self) -> NoReturn:
        fault = f"{self.source}: column {shortened(self.name)} holds dates or times: {DATE_REMEDY}."
        raise ColumnError(fault, is_date=True)

    def cell(self, row: int, cell: object, fault: str, remedy: str) -> NoReturn:
        where = f"{self.place(row)} of column {shortened(self.name)}"
        raise ColumnError(f"{self.source}: {where} holds {shortened(cell)}, {fault}: {remedy}.")


def as_labels(cells: Iterable[Any]) -> list[str]:
    """Cells as text without spaces around it; empty where one is missing."""
    return ["" if cell is None or cell != cell else str(cell).strip() for cell in cells]


def numbered(names: Sequence[Any], codes: FloatArray, *, in_order: bool, ordered: bool) -> Column:
    """Categories that another library has numbered; equal but for spaces they are one, and an empty one is missing."""
    labels = as_labels(names)
    distinct = {label: number for number, label in enumerate(dict.fromkeys(label for label in labels if label))}
    again = np.array([distinct.get(label, np.nan) for label in labels] + [np.nan])
    values = again[np.where(np.isnan(codes), len(labels), codes).astype(np.int64)]
    return without_marks(Column(values, "labels", Labels(tuple(distinct), in_order, ordered)))


def plain_cells(cells: Iterable[Any], refuse: Refusal) -> Column:
    """Cells that are Python objects: numbers, or text, which is not parsed; missing ones are taken."""
    held = list(cells)
    missing = [_is_missing(cell) for cell in held]
    if not all(missing) and all(none or isinstance(cell, str) for cell, none in zip(held, missing, strict=True)):
        read = without_marks(_numbered_text([None if none else cell for cell, none in zip(held, missing, strict=True)]))
        if _share_of_numbers(read) > MOSTLY and not _are_words(read):
            row = int(np.argmin(missing))
            refuse.cell(row, held[row], "which is text and not a number", f"{TEXT_REMEDY} (pandas.to_numeric)")
        return _no_dates(read, refuse)
    if any(isinstance(cell, str) for cell in held):
        texts = [None if none else _as_text(cell) for cell, none in zip(held, missing, strict=True)]
        if texts.count(None) == sum(missing):
            read = without_marks(_numbered_text(texts))
            if _are_words(read):
                return read
    numbers: list[float] = []
    marks: dict[str, None] = {}
    for row, (cell, none) in enumerate(zip(held, missing, strict=True)):
        if none:
            numbers.append(np.nan)
        elif isinstance(cell, str) and cell.strip().lower() in MISSING_MARKS:
            numbers.append(np.nan)
            marks[cell.strip()] = None
        elif isinstance(cell, (Real, Decimal, np.bool_)):
            numbers.append(_float(cell))
        elif isinstance(cell, (str, bytes)):
            refuse.cell(row, cell, "which is text and not a number", f"{TEXT_REMEDY} (pandas.to_numeric)")
        elif isinstance(cell, complex):
            refuse.cell(row, cell, "a complex number", COMPLEX_REMEDY)
        else:
            kind = type(cell).__name__
            if all(map(_is_date, (other for other, absent in zip(held, missing, strict=True) if not absent))):
                refuse.dates()
            refuse.cell(row, cell, f"which is a {kind}, not a number", DATE_REMEDY if _is_date(cell) else TEXT_REMEDY)
    present = [cell for cell, none in zip(held, missing, strict=True) if not (none or isinstance(cell, str))]
    if present and all(isinstance(cell, (bool, np.bool_)) for cell in present):
        return Column(numbers, "truth", None, tuple(marks))
    whole = all(isinstance(cell, Integral) for cell in present)
    return Column(numbers, "integer" if whole else "real", None, tuple(marks))


def _is_missing(cell: Any) -> bool:
    if cell is None or cell is np.ma.masked or type(cell).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(cell, (float, np.floating)) and bool(np.isnan(cell))


def _as_text(cell: Any) -> str | None:
    """A word or number as a file would have it; None for anything else."""
    if isinstance(cell, str):
        return cell
    return f"{cell:.15g}" if isinstance(cell, Real) and not isinstance(cell, bool) else None


def _is_date(cell: Any) -> bool:
    return type(cell).__name__.lower().startswith(("date", "time"))


def parsed_text(cells: Sequence[str | None], refuse: Refusal, *, comma_first: bool = False) -> Column:
    """Cells of a text file in a column that Arrow did not take as numbers, most often for a reason.

    ``comma_first``: where the cells leave it open, a comma stands before decimals, and a point between thousands.
    """
    read = without_marks(_numbered_text(cells))
    assert read.labels is not None
    names, values = read.labels.names, np.asarray(read.values)
    style = found_style(names, comma_first=comma_first)
    numbers: list[float | None] = [as_number(name) for name in names]
    plain = None not in numbers
    if isinstance(style, NumberStyle) and (not plain or (style.decimal == "," and any("." in name for name in names))):
        styled = [number_in_style(name, style) for name in names]
        # What is no number in the style of the others may be one as Python writes it, such as inf.
        numbers = [number if own is None else own for own, number in zip(styled, numbers, strict=True)]
        plain = False
    if None not in numbers:
        known = np.array([*numbers, np.nan], dtype=np.float64)
        whole = not any(set(name.lower()) & set(".,einf") for name in names)
        values = known[np.where(np.isnan(values), len(names), values).astype(np.int64)]
        used = style if isinstance(style, NumberStyle) and not plain else None
        return Column(values, "integer" if whole else "real", None, read.marks, used)
    if _share_of_numbers(read) <= MOSTLY or _are_words(read):
        return _no_dates(read, refuse)
    bad = int(np.argmax(np.isin(values, [k for k, number in enumerate(numbers) if number is None])))
    remedy = "write a number there, or leave out the row or the column"
    if is_dressed(str(cells[bad]).strip()):
        key = style if isinstance(style, str) else "sign"
        remedy = CONFLICTS[key]
    return refuse.cell(bad, cells[bad], "which is not a number", remedy)


def _numbered_text(cells: Iterable[str | None]) -> Column:
    """Text as numbered labels, in the order of their first appearance; spaces around them do not count."""
    numbers: dict[str, int] = {}
    values = []
    for cell in cells:
        label = "" if cell is None else str(cell).strip()
        values.append(float(numbers.setdefault(label, len(numbers))) if label else np.nan)
    return Column(np.array(values, dtype=np.float64), "labels", Labels(tuple(numbers)))


def without_marks(column: Column) -> Column:
    """A column of labels in which those that mark a missing value are missing, if there are others that are words."""
    assert column.labels is not None
    names = column.labels.names
    marks = [name.lower() in MISSING_MARKS for name in names]
    # A column of + and - has marks for labels.
    if not any(marks) or not any(
        any(map(str.isalnum, name)) for name, mark in zip(names, marks, strict=True) if not mark
    ):
        return column
    kept = [k for k, mark in enumerate(marks) if not mark]
    again = np.full(len(names) + 1, np.nan)
    again[kept] = np.arange(len(kept))
    values = np.asarray(column.values, dtype=np.float64)
    values = again[np.where(np.isnan(values), len(names), values).astype(np.int64)]
    labels = column.labels._replace(names=tuple(names[k] for k in kept))
    return Column(values, "labels", labels, tuple(name for name, mark in zip(names, marks, strict=True) if mark))


def _share_of_numbers(column: Column) -> float:
    """Of the cells of a column of text that are there; those with a decimal comma or a per cent sign are numbers."""
    assert column.labels is not None
    values = np.asarray(column.values)
    counts = np.bincount(values[~np.isnan(values)].astype(np.int64), minlength=1)
    alike = [as_number(name) is not None or is_dressed(name) for name in column.labels.names]
    return float(counts[: len(alike)][alike].sum() / max(counts.sum(), 1))


def _are_words(column: Column) -> bool:
    """Whether text of which most is numbers is labels all the same: whole numbers, some of which have a letter, or the
    answers to a question."""
    assert column.labels is not None
    names, values = column.labels.names, np.asarray(column.values)
    lettered = [bool(LETTERED.fullmatch(name)) for name in names]
    if any(lettered) and all(own or name.isdigit() for name, own in zip(names, lettered, strict=True)):
        return True
    given = np.bincount(values[~np.isnan(values)].astype(np.int64), minlength=len(names))
    words = [as_number(name) is None for name in names]
    plain = not any(is_dressed(name) for name, word in zip(names, words, strict=True) if word)
    return plain and any(words) and len(names) <= MOST_ANSWERS and bool((given[words] >= LEAST_GIVEN).all())


def _no_dates(column: Column, refuse: Refusal) -> Column:
    assert column.labels is not None
    if column.labels.names and all(DATE.fullmatch(name) for name in column.labels.names):
        refuse.dates()
    return column


def as_number(cell: str) -> float | None:
    """The number that a text stands for; None where it is none."""
    try:
        return None if "_" in cell else float(cell)  # Python reads 1_000 as a number; people do not
    except ValueError:
        return None


def is_number(cell: str) -> bool:
    """Whether a text is a number to people."""
    return as_number(cell) is not None


def _float(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return np.inf
