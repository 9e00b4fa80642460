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
from vcuda.errors import DataError

FloatArray = npt.NDArray[np.float64]

TEXT_REMEDY = f"leave the column out {HOW_TO_LEAVE_OUT} or code it as numbers"
DATE_REMEDY = f"leave the column out {HOW_TO_LEAVE_OUT} or turn it into a number, such as days since the start"
COMPLEX_REMEDY = "give the real and the imaginary part as two columns"
# A column of text in which more than this share of the cells are numbers is one of numbers, with bad cells.
MOSTLY = 0.5
DATE = re.compile(r"(\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4})(\D.*)?", flags=re.DOTALL)
DECIMAL_COMMA = re.compile(r"\s*[+-]?[\d.]*,\d+\s*")

Kind = Literal["real", "integer", "truth", "labels"]


class Labels(NamedTuple):
    """The labels of a column, as its numbers 0, 1, 2, ... count them; ``ordered`` if somebody chose that order."""

    names: tuple[str, ...]
    ordered: bool = False


class Column(NamedTuple):
    """One column as it was read: ``values`` (n,), NaN where a cell is missing, and what they stand for."""

    values: npt.ArrayLike
    kind: Kind
    labels: Labels | None = None


class Cells(NamedTuple):
    """Columns as they were read: ``values`` (n, k), the kind of each, and the labels of those that have any."""

    values: FloatArray
    kinds: tuple[Kind, ...]
    labels: dict[int, Labels]

    @classmethod
    def of(cls, rows: int, columns: Sequence[int], read: Callable[[int], Column]) -> Cells:
        """Fill a new C-order matrix column by column."""
        values = np.empty((rows, len(columns)))
        kinds: list[Kind] = []
        labels: dict[int, Labels] = {}
        for place, k in enumerate(columns):
            values[:, place], kind, own = read(k)
            kinds.append(kind)
            if own is not None:
                labels[place] = own
        return cls(values, tuple(kinds), labels)


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
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Says what is wrong with one column of a table, and where."""

    source: str
    name: str
    place: Callable[[int], str]

    def __call__(self, fault: str, remedy: str) -> NoReturn:
        raise DataError(f"{self.source}: column {shortened(self.name)} {fault}: {remedy}.")

    def cell(self, row: int, cell: object, fault: str, remedy: str) -> NoReturn:
        where = f"{self.place(row)} of column {shortened(self.name)}"
        raise DataError(f"{self.source}: {where} holds {shortened(cell)}, {fault}: {remedy}.")


def as_labels(cells: Iterable[Any]) -> list[str]:
    """Cells as text without spaces around it; empty where one is missing."""
    return ["" if cell is None or cell != cell else str(cell).strip() for cell in cells]


def numbered(names: Sequence[Any], codes: FloatArray, *, ordered: bool) -> Column:
    """Categories that another library has numbered; equal but for spaces they are one, and an empty one is missing."""
    labels = as_labels(names)
    distinct = {label: number for number, label in enumerate(dict.fromkeys(label for label in labels if label))}
    again = np.array([distinct.get(label, np.nan) for label in labels] + [np.nan])
    values = again[np.where(np.isnan(codes), len(labels), codes).astype(np.int64)]
    return Column(values, "labels", Labels(tuple(distinct), ordered))


def plain_cells(cells: Iterable[Any], refuse: Refusal) -> Column:
    """Cells that are Python objects: numbers, or text, which is not parsed; missing ones are taken."""
    held = list(cells)
    missing = [_is_missing(cell) for cell in held]
    if not all(missing) and all(none or isinstance(cell, str) for cell, none in zip(held, missing, strict=True)):
        read = _numbered_text([None if none else cell for cell, none in zip(held, missing, strict=True)])
        if _share_of_numbers(read) > MOSTLY:
            row = int(np.argmin(missing))
            refuse.cell(row, held[row], "which is text and not a number", f"{TEXT_REMEDY} (pandas.to_numeric)")
        return _no_dates(read, refuse)
    numbers: list[float] = []
    for row, (cell, none) in enumerate(zip(held, missing, strict=True)):
        if none:
            numbers.append(np.nan)
        elif isinstance(cell, (Real, Decimal, np.bool_)):
            numbers.append(_float(cell))
        elif isinstance(cell, (str, bytes)):
            refuse.cell(row, cell, "which is text and not a number", f"{TEXT_REMEDY} (pandas.to_numeric)")
        elif isinstance(cell, complex):
            refuse.cell(row, cell, "a complex number", COMPLEX_REMEDY)
        else:
            kind = type(cell).__name__
            date = kind.lower().startswith(("date", "time"))
            refuse.cell(row, cell, f"which is a {kind}, not a number", DATE_REMEDY if date else TEXT_REMEDY)
    present = [cell for cell, none in zip(held, missing, strict=True) if not none]
    if present and all(isinstance(cell, (bool, np.bool_)) for cell in present):
        return Column(numbers, "truth")
    return Column(numbers, "integer" if all(isinstance(cell, Integral) for cell in present) else "real")


def _is_missing(cell: Any) -> bool:
    if cell is None or cell is np.ma.masked or type(cell).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(cell, (float, np.floating)) and bool(np.isnan(cell))


def parsed_text(cells: Sequence[str | None], refuse: Refusal) -> Column:
    """Cells of a text file in a column that Arrow did not take as numbers, most often for a reason."""
    read = _numbered_text(cells)
    assert read.labels is not None
    names, values = read.labels.names, np.asarray(read.values)
    numbers = [_number(name) for name in names]
    if None not in numbers:
        known = np.array([*numbers, np.nan], dtype=np.float64)
        whole = not any(set(name.lower()) & set(".einf") for name in names)
        return Column(
            known[np.where(np.isnan(values), len(names), values).astype(np.int64)], "integer" if whole else "real"
        )
    if _share_of_numbers(read) <= MOSTLY:
        return _no_dates(read, refuse)
    bad = int(np.argmax(np.isin(values, [k for k, number in enumerate(numbers) if number is None])))
    remedy = "write a number there, or leave out the row or the column"
    if DECIMAL_COMMA.fullmatch(str(cells[bad])):
        remedy = "write numbers with a decimal point and without commas"
    return refuse.cell(bad, cells[bad], "which is not a number", remedy)


def _numbered_text(cells: Iterable[str | None]) -> Column:
    """Text as numbered labels, in the order of their first appearance; spaces around them do not count."""
    numbers: dict[str, int] = {}
    values = []
    for cell in cells:
        label = "" if cell is None else str(cell).strip()
        values.append(float(numbers.setdefault(label, len(numbers))) if label else np.nan)
    return Column(np.array(values, dtype=np.float64), "labels", Labels(tuple(numbers)))


def _share_of_numbers(column: Column) -> float:
    """Of the cells of a column of text that are there; those with a decimal comma are numbers too."""
    assert column.labels is not None
    values = np.asarray(column.values)
    counts = np.bincount(values[~np.isnan(values)].astype(np.int64), minlength=1)
    alike = [_number(name) is not None or bool(DECIMAL_COMMA.fullmatch(name)) for name in column.labels.names]
    return float(counts[: len(alike)][alike].sum() / max(counts.sum(), 1))


def _no_dates(column: Column, refuse: Refusal) -> Column:
    assert column.labels is not None
    if column.labels.names and all(DATE.fullmatch(name) for name in column.labels.names):
        refuse("holds dates or times", DATE_REMEDY)
    return column


def _number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)  # Python reads 1_000 as a number; people do not
    except ValueError:
        return None


def is_number(cell: str) -> bool:
    """Whether a text is a number to people."""
    return _number(cell) is not None


def _float(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return np.inf
