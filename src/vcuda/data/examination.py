"""Every column of a table that was read: its kind and labels, or why it is left out or refused.

Left out by default, with a note: columns that are empty or do not vary, dates and times, identifiers, and text with
more labels than a variable has. Refused: cells that are no values, and kinds that a column cannot have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcuda.data.categorical import TRUTH, label_key, positions
from vcuda.data.checks import LARGEST_VALUE, MINIMUM_PRESENT, Missing, missing_fault
from vcuda.data.kinds import (
    HOW_TO_SET_KINDS,
    MOST_LABELS,
    ColumnLabels,
    FoundKind,
    Kind,
    check_kind_names,
    checked_kinds,
    found_kinds,
    kind_fault,
    kind_notes,
    whole_columns,
)
from vcuda.data.messages import HOW_TO_LEAVE_OUT, data_row, listed, shortened
from vcuda.data.moments import varies
from vcuda.data.raw_table import Cells, FloatArray, RawTable, as_number
from vcuda.errors import ConfigError, DataError

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset

# A column that counts its rows from 0 or 1 is an identifier if there are so many of them.
FEWEST_COUNTED_ROWS = 20
# Names of identifiers, if all cells are different whole numbers; and names of what may well count the rows.
IDENTIFIER = re.compile(
    r"(.*[\s_.-])?(id|ids|uid|uuid|guid|key|no|nr)[\s_.-]?\d*|index|idx|row|rows|row[\s_.-]?(names?|numbers?|nr|no)",
    flags=re.IGNORECASE,
)
CAMEL_IDENTIFIER = re.compile(r".*[a-z](Id|ID)")
TIME = re.compile(
    r"(?i)(.*[\s_.-])?(t|time|times|date|day|days|week|weeks|month|months|quarter|year|years|hour|hours|minute|minutes|"
    r"second|seconds|step|steps|trial|round|period|epoch|age|dose|depth|position|distance|rank)s?([\s_.-].*)?"
)
# Numbers that stand for missing values in many tables.
MISSING_CODES = tuple(
    sign * number for sign in (-1.0, 1.0) for number in (99, 999, 9999, 99999, 999999, 888, 8888, 777, 7777)
)


@dataclass(frozen=True)
class ReadOptions:
    """How the columns of a table are read: kinds by column name, cells that are missing values, and whether columns
    that would be left out are refused instead. Of rows that are read to be predicted all columns are known to be
    variables, whatever these rows look like."""

    kinds: Mapping[str, Kind]
    missing_values: tuple[str, ...] = ()
    strict: bool = False
    are_variables: bool = False

    @classmethod
    def of(cls, kinds: Any = None, missing_values: Any = None, strict: bool = False) -> ReadOptions:
        """From what was asked for, which is checked as far as that is possible without a table."""
        return cls(checked_kinds(kinds), checked_missing_values(missing_values), strict)

    def to_dict(self) -> dict[str, Any]:
        """What a run stores of the options, beside the choice of columns; nothing for the defaults."""
        return {"kinds": dict(self.kinds)} if self.kinds else {}


AS_FOUND = ReadOptions({})


def checked_missing_values(given: Any) -> tuple[str, ...]:
    """Cells that stand for missing values, as text; one may stand alone."""
    if given is None:
        return ()
    single = isinstance(given, str | int | float) or not isinstance(given, Iterable)
    cells = [given] if single else list(given)
    if not all(isinstance(cell, str | int | float | np.integer | np.floating) for cell in cells):
        raise ConfigError(f"missing_values must be a list of cells, such as [-999], not {given!r}.")
    return tuple(dict.fromkeys(str(cell).strip() for cell in cells))


class ColumnReport(NamedTuple):
    """One column of a table, for people: its kind, or None where it is left out or refused, and why."""

    name: str
    kind: Kind | None
    why: str


class TableError(DataError):
    """What is wrong with a table: all ``faults``, a sentence each, of which the message has the first, and what was
    found in its ``columns``."""

    def __init__(self, message: str, faults: Sequence[str] = (), columns: Sequence[ColumnReport] = ()) -> None:
        super().__init__(message)
        self.faults, self.columns = tuple(faults) or (message,), tuple(columns)


class Unfit(NamedTuple):
    """Why a column is no variable: of one column, of several, and what to do to use it."""

    fault: str
    plural: str
    use: str
    where: str = ""  # an example of its cells

    def refusal(self, name: str) -> str:
        return f"column {shortened(name)}{self.where} {self.fault}: leave the column out {HOW_TO_LEAVE_OUT}{self.use}."


CONSTANT = "; it has neither causes nor effects"
DATES = Unfit(
    "holds dates or times",
    "hold dates or times",
    ", or turn it into a number, such as days since the start, or into labels, such as the weekday",
)


def constant_column(value: str, everywhere: str) -> Unfit:
    """A column with one value."""
    return Unfit(f"does not vary ({value} {everywhere})", "do not vary", CONSTANT)


IDENTIFIER_NUMBERS = Unfit(
    "holds another whole number in every row, as an identifier does",
    "hold another whole number in every row, as identifiers do",
    f", or say that it is a variable by its kind {HOW_TO_SET_KINDS}",
)
MANY_LABELS = Unfit(
    f"has more than {MOST_LABELS} different labels, as an identifier or free text does",
    f"have more than {MOST_LABELS} different labels, as identifiers or free text do",
    ", or join its labels into fewer categories",
)


class Examined(NamedTuple):
    """The columns that are variables: their positions among those that were read, their cells, labels and kinds, notes,
    and names and reasons of those that were left out."""

    kept: list[int]
    values: FloatArray
    categories: ColumnLabels | None
    kinds: tuple[Kind, ...]
    notes: list[str]
    left_out: tuple[tuple[str, str], ...]


def examined(
    read: Cells, names: Sequence[str], raw: RawTable, *, how: ReadOptions, insists: bool, missing: Missing
) -> Examined:
    """Find the kind and labels of every column; leave out those that are no variables, or refuse them.

    ``insists`` if somebody named the columns to take.
    """
    columns = _Columns(read, names, raw, how)
    notes = columns.notes
    unfit, faults = columns.unfit(), columns.faults()
    refused = how.strict or insists
    by_name = {names[k]: unfit[k] for k in sorted(unfit)}
    faults = {k: fault for k, fault in faults.items() if k not in unfit}
    faults |= {k: one.refusal(names[k]) for k, one in unfit.items() if refused or names[k] in how.kinds}
    kept = [k for k in range(len(names)) if k not in unfit]
    if not faults and len(kept) < 2:
        left = f"only {shortened(names[kept[0]])}" if kept else "none"
        few = f" A graph needs at least two columns, and {left} would be left."
        faults = {k: one.refusal(names[k]) + few for k, one in unfit.items()}
    if missing == "refuse" and (lacking := [k for k in kept if columns.present[k] < len(read.values)]):
        at = lacking[0]
        # That a column has few values matters only where missing ones are kept.
        faults = {k: fault for k, fault in faults.items() if k not in lacking or k not in columns.few}
        faults.setdefault(at, missing_fault([names[k] for k in lacking], columns.values[:, lacking], raw.place) + ".")
    values, labels = (columns.values, columns.labels) if len(kept) == len(names) else columns.narrowed(kept)
    ordered = [at for at, k in enumerate(kept) if k in columns.ordered]
    found = found_kinds(values, labels, ordered=ordered, whole=columns.whole[kept])
    for at, k in enumerate(kept):
        asked = how.kinds.get(names[k])
        if asked is None:
            continue
        own = None if labels is None else labels[at]
        fault = None if k in faults else kind_fault(asked, values[:, at], own, raw.place)
        if fault is not None:
            faults[k] = f"column {shortened(names[k])} {fault[0]}: {fault[1]}."
        found[at] = FoundKind(asked, "as asked for")
    if faults:
        raise _refusal(raw.source, names, kept, found, by_name, faults)
    taken = [names[k] for k in kept]
    notes += left_out_notes(by_name)
    notes += kind_notes(taken, found)
    notes += missing_code_notes(taken, values, labels)
    left_out = tuple((name, one.fault) for name, one in by_name.items())
    return Examined(kept, values, labels, tuple(one.kind for one in found), notes, left_out)


def unfit_in_first_rows(
    read: Cells, names: Sequence[str], raw: RawTable, *, how: ReadOptions, insists: bool
) -> dict[str, Unfit]:
    """The columns, by name, that the first rows of a table show to be no variables; refused where somebody insists."""
    unfit = _Columns(read, names, raw, replace(how, kinds={}, missing_values=())).unfit(all_rows=False)
    found = {names[k]: unfit[k] for k in sorted(unfit) if names[k] not in how.kinds}
    if found and (how.strict or insists):
        sentences = [f"{raw.source}: {one.refusal(name)}" for name, one in found.items()]
        raise TableError(sentences[0], sentences)
    return found


def with_read_options(data: Dataset, how: ReadOptions) -> Dataset:
    """A table that was read before, with other kinds and missing values."""
    if how.missing_values:
        labels = dict(enumerate(data.categories or ()))
        values, notes = _with_missing_values(data.values, {k: own for k, own in labels.items() if own}, how)
        data = replace(data, values=values, notes=(*data.notes, *notes))
    if not how.kinds:
        return data
    check_kind_names(how.kinds, data.names, data.source)
    for k, name in enumerate(data.names):
        if name not in how.kinds:
            continue
        own = None if data.categories is None else data.categories[k]
        fault = kind_fault(how.kinds[name], data.values[:, k], own, data_row)
        if fault is not None:
            raise DataError(f"{data.source}: column {shortened(name)} {fault[0]}: {fault[1]}.")
    before = set(notes_on_kinds(data))
    table = replace(data, kinds=tuple(map(how.kinds.get, data.names, data.kinds)))
    others = table.take([k for k, name in enumerate(data.names) if name not in how.kinds])
    kept = [note for note in data.notes if note not in before]
    return replace(table, notes=(*kept, *(notes_on_kinds(others) if len(kept) < len(data.notes) else ())))


def notes_on_kinds(data: Dataset) -> list[str]:
    """The notes on kinds that the rules found and that the table has."""
    found = found_kinds(data.values, data.categories)
    same = [one._replace(note=one.note and one.kind == own) for one, own in zip(found, data.kinds, strict=True)]
    return kind_notes(data.names, same)


def described(data: Dataset) -> list[ColumnReport]:
    """The kind of every column of a table and why, and the columns that were left out."""
    found = found_kinds(data.values, data.categories)
    taken = [
        ColumnReport(name, kind, one.why if one.kind == kind else "as asked for, or by the type of the column")
        for name, kind, one in zip(data.names, data.kinds, found, strict=True)
    ]
    return [*taken, *(ColumnReport(name, None, why) for name, why in data.left_out)]


class _Columns:
    """The columns as they were read, with labels in their order, and what is missing as NaN."""

    def __init__(self, read: Cells, names: Sequence[str], raw: RawTable, how: ReadOptions) -> None:
        self.names, self.raw, self.how, self.read = names, raw, how, read
        check_kind_names(how.kinds, names, raw.source)
        self.notes = _mark_notes(read, names)
        texts = {k: own.names for k, own in read.labels.items()}
        self.values = read.values
        if how.missing_values:
            self.values, notes = _with_missing_values(read.values, texts, how)
            self.notes += notes
        self.ordered = {k for k, own in read.labels.items() if own.ordered}
        self._by_column: dict[int, tuple[str, ...]] = {}
        for k, own in read.labels.items():
            self._order_labels(k, own.names, own.in_order)
        self._label_truth_values()
        self.whole = whole_columns(self.values)
        self.present = (~np.isnan(self.values)).sum(axis=0)
        self.least, self.largest = np.fmin.reduce(self.values, axis=0), np.fmax.reduce(self.values, axis=0)

    @property
    def few(self) -> list[int]:
        """The columns with too few values to impute the others."""
        few = (self.present > 0) & (self.present < min(MINIMUM_PRESENT, len(self.values)))
        return np.flatnonzero(few).tolist()

    @property
    def labels(self) -> ColumnLabels | None:
        return self.narrowed(range(len(self.names)))[1]

    def narrowed(self, kept: Sequence[int]) -> tuple[FloatArray, ColumnLabels | None]:
        """Some of the columns, and their labels."""
        labels = tuple(self._by_column.get(k) for k in kept) if any(k in self._by_column for k in kept) else None
        return (self.values if len(kept) == len(self.names) else self.values[:, list(kept)]), labels

    def _order_labels(self, k: int, texts: tuple[str, ...], in_order: bool) -> None:
        """Number the labels that occur, in the order that somebody chose or that they sort into."""
        column = self.values[:, k]
        present = np.unique(column[~np.isnan(column)]).astype(np.int64).tolist()
        numbers = [as_number(texts[code]) for code in present]
        if self.how.kinds.get(self.names[k]) in ("number", "count") and present and None not in numbers:
            known = dict(zip(present, numbers, strict=True))
            self.values[:, k] = [np.nan if np.isnan(code) else known[int(code)] for code in column]
            return
        order = present if in_order else sorted(present, key=lambda code: label_key(texts[code]))
        self.values[:, k] = positions(column, order)
        self._by_column[k] = tuple(texts[code] for code in order)

    def _label_truth_values(self) -> None:
        """Truth values beside labels, or alone, are labels; among numbers they are 0 and 1."""
        truth = [k for k, own in enumerate(self.read.types) if own == "truth"]
        if not truth or not (self.read.labels or len(truth) == len(self.names)):
            return
        for k in truth:
            column = self.values[:, k]
            present = np.unique(column[~np.isnan(column)]).tolist()
            if present and self.how.kinds.get(self.names[k]) not in ("number", "count"):
                self.values[:, k] = positions(column, present)
                self._by_column[k] = tuple(TRUTH[int(value)] for value in present)

    def unfit(self, *, all_rows: bool = True) -> dict[int, Unfit]:
        """The columns that are no variables, by position; of the first rows, those that others cannot make one."""
        found = {k: DATES for k, fault in self.read.faults.items() if fault.is_date}
        if not all_rows:
            many = {k: MANY_LABELS for k, own in self._by_column.items() if len(own) > MOST_LABELS}
            return found | many | self._identifiers()
        readable = [k not in self.read.faults for k in range(len(self.names))]
        for k in np.flatnonzero((self.present == 0) & readable).tolist():
            found[k] = Unfit("has no value", "have no value", "")
        for k in np.flatnonzero((self.least == self.largest) & readable).tolist():
            own = self._by_column.get(k)
            value = f"{self.least[k]:g}" if own is None else shortened(own[0])
            everywhere = "in every row" if self.present[k] == len(self.values) else "wherever it is not missing"
            found[k] = constant_column(value, everywhere)
        if self.how.are_variables:
            return found
        for k, own in self._by_column.items():
            if k not in found and self.names[k] not in self.how.kinds and (one := self._unfit_labels(k, own)):
                found[k] = one
        return found | {
            k: one for k, one in self._identifiers().items() if k not in found and self.names[k] not in self.how.kinds
        }

    def _identifiers(self) -> dict[int, Unfit]:
        numbers = [k for k in np.flatnonzero(self.whole).tolist() if k not in self._by_column]
        return {k: IDENTIFIER_NUMBERS for k in numbers if self._identifies(k)}

    def _unfit_labels(self, k: int, labels: tuple[str, ...]) -> Unfit | None:
        row = int(np.argmin(np.isnan(self.values[:, k])))
        where = f" ({shortened(labels[int(self.values[row, k])])} in {self.raw.place(row)})"
        if len(labels) == len(self.values):
            return Unfit(
                "holds another label in every row, as an identifier or free text does",
                "hold another label in every row, as identifiers or free text do",
                ", or join its labels into few categories",
                where,
            )
        if len(labels) > MOST_LABELS:
            count = f"has {len(labels):,} different labels, more than {MOST_LABELS}, as an identifier or free text does"
            return MANY_LABELS._replace(fault=count, where=where)
        return None

    def _identifies(self, k: int) -> bool:
        """Whether whole numbers are those of an identifier: all different, and named so or counting the rows."""
        rows, name = len(self.values), self.names[k]
        if self.present[k] < rows or self.largest[k] - self.least[k] + 1 < rows:
            return False
        column = self.values[:, k]
        if IDENTIFIER.fullmatch(name) or CAMEL_IDENTIFIER.fullmatch(name):
            return np.unique(column).size == rows
        counts = self.least[k] in (0, 1) and rows >= FEWEST_COUNTED_ROWS and bool(np.all(np.diff(column) == 1))
        return counts and not TIME.fullmatch(name)

    def faults(self) -> dict[int, str]:
        """What is wrong with cells, by position of their column; sentences without the source of the table."""
        source = f"{self.raw.source}: "
        found = {k: str(fault).removeprefix(source) for k, fault in self.read.faults.items() if not fault.is_date}
        large = ~((self.least >= -LARGEST_VALUE) & (self.largest <= LARGEST_VALUE)) & (self.present > 0)
        for k in np.flatnonzero(large).tolist():
            column = self.values[:, k]
            infinite = np.isinf(column)
            row = int(np.argmax(infinite if infinite.any() else np.abs(column) > LARGEST_VALUE))
            fault = "which is not finite" if infinite.any() else "too large to be squared"
            remedy = "correct the cell or leave out the row" if infinite.any() else "give the column in another unit"
            where = f"{self.raw.place(row)} of column {shortened(self.names[k])}"
            found[k] = f"{where} holds {column[row]:g}, {fault}: {remedy}."
        for k in self.few:
            absent = len(self.values) - self.present[k]
            found.setdefault(
                k,
                f"column {shortened(self.names[k])} has only {self.present[k]} values, and the other {absent:,} are "
                f"missing: leave the column out {HOW_TO_LEAVE_OUT}, or have at least {MINIMUM_PRESENT} values in it.",
            )
        still = ~large & ~varies(self.least, self.largest) & (self.least < self.largest)
        for k in np.flatnonzero(still).tolist():
            spread = f"{self.largest[k] - self.least[k]:.3g} around {self.least[k]:.6g}"
            found.setdefault(
                k,
                f"column {shortened(self.names[k])} varies by only {spread}, which is no more than the rounding of "
                "such numbers: subtract a constant from it before saving it, or leave the column out "
                f"{HOW_TO_LEAVE_OUT}.",
            )
        return found


def _refusal(
    source: str,
    names: Sequence[str],
    kept: Sequence[int],
    found: Sequence[FoundKind],
    unfit: Mapping[str, Unfit],
    faults: Mapping[int, str],
) -> TableError:
    kinds = {k: one for k, one in zip(kept, found, strict=True) if k not in faults}
    reports = []
    for k, name in enumerate(names):
        if k in kinds:
            reports.append(ColumnReport(name, kinds[k].kind, kinds[k].why))
        else:
            why = unfit[name].fault if name in unfit else "it cannot be used as it is"
            reports.append(ColumnReport(name, None, why))
    sentences = [f"{source}: {faults[k]}" for k in sorted(faults)]
    message = sentences[0]
    if len(sentences) > 1:
        more = "one more column" if len(sentences) == 2 else f"{len(sentences) - 1:,} more columns"
        message += f" There are faults in {more}: vcuda check lists all of them."
    return TableError(message, sentences, reports)


def left_out_notes(unfit: Mapping[str, Unfit]) -> list[str]:
    """A sentence for every reason to leave out columns."""
    groups: dict[str, list[str]] = {}
    for name, one in unfit.items():
        groups.setdefault(one.plural, []).append(name)
    notes = []
    for plural, names in groups.items():
        one = unfit[names[0]]
        use = one.use.removeprefix(", or ")
        how = f": to use {'it' if len(names) == 1 else 'them'}, {use}" if use != one.use else one.use
        if len(names) == 1:
            comma = "," if "," in one.fault else ""
            notes.append(f"Column {listed(names)} {one.fault}{comma} and was left out{how}.")
        else:
            for singular, several in ((" its ", " their "), (" it is a variable by its kind", " they are variables")):
                how = how.replace(singular, several)
            how = how.replace("; it has", "; they have").replace("turn it", "turn them")
            comma = "," if "," in plural else ""
            notes.append(f"Columns {listed(names)} {plural}{comma} and were left out{how}.")
    return notes


def _mark_notes(read: Cells, names: Sequence[str]) -> list[str]:
    marks = dict.fromkeys(mark for own in read.marks.values() for mark in own)
    if not marks:
        return []
    chosen = [names[k] for k in read.marks]
    subject = "columns" if len(chosen) > 1 else "column"
    return [f"Cells {listed(list(marks))} of {subject} {listed(chosen)} were taken as missing values."]


def _with_missing_values(
    values: FloatArray, labels: Mapping[int, Sequence[str]], how: ReadOptions
) -> tuple[FloatArray, list[str]]:
    """The cells with NaN where they hold what stands for a missing value, and a note of how many do."""
    numbers = [number for cell in how.missing_values if (number := as_number(cell)) is not None]
    of_numbers = np.array([k not in labels for k in range(values.shape[1])])
    absent: npt.NDArray[np.bool_] = np.isin(values, numbers) & of_numbers
    for k, texts in labels.items():
        absent[:, k] = np.isin(values[:, k], [code for code, text in enumerate(texts) if text in how.missing_values])
    count = int(absent.sum())
    which = listed(how.missing_values)
    if not count:
        return values, [f"No cell holds {which}, which missing_values names."]
    sentence = f"{count:,} cells that hold {which} were" if count > 1 else f"One cell that holds {which} was"
    return np.where(absent, np.nan, values), [f"{sentence} taken as missing values."]


def missing_code_notes(names: Sequence[str], values: FloatArray, labels: ColumnLabels | None) -> list[str]:
    """Numbers such as -999 that lie far from all others, as codes for missing values do, in words."""
    least, largest = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    found: dict[float, list[str]] = {}
    for ends, lower in ((least, True), (largest, False)):
        for k in np.flatnonzero(np.isin(ends, MISSING_CODES)).tolist():
            if labels is not None and labels[k] is not None:
                continue
            column = values[:, k]
            others = column[(column != ends[k]) & ~np.isnan(column)]
            if not others.size:
                continue
            low, high = float(others.min()), float(others.max())
            away = low - ends[k] if lower else ends[k] - high
            # -99 among numbers that are never negative is odd as well, wide as their range may be.
            alone = lower and low >= 0 and away > (high - low) / 10
            if low < high and (away > 2 * (high - low) or alone):
                found.setdefault(float(ends[k]), []).append(names[k])
    return [
        f"{code:g} in column{'s' if len(chosen) > 1 else ''} {listed(chosen)} lies far from all other cells, as a code "
        f"for missing values does: if it is one, say so (missing_values=, --missing {code:g})."
        for code, chosen in found.items()
    ]
