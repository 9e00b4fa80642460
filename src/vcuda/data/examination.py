"""Every column of a table that was read: its kind and labels, or why it is left out or refused.

Left out by default, with a note: columns that are empty or nearly so, or do not vary, dates and times, identifiers, and
text with more labels than a variable has. Refused: cells that are no values, and kinds that a column cannot have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vcuda.data.categorical import TRUTH, label_key, positions
from vcuda.data.checks import LARGEST_VALUE, MINIMUM_PRESENT, Missing, missing_fault
from vcuda.data.kinds import (
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
from vcuda.data.messages import HOW_TO_LEAVE_OUT, data_row, shortened
from vcuda.data.missing_codes import checked_missing_values, mark_notes, missing_code_notes, with_missing_values
from vcuda.data.moments import varies
from vcuda.data.number_styles import style_notes
from vcuda.data.raw_table import Cells, FloatArray, RawTable, as_number
from vcuda.data.unfit import (
    CAMEL_IDENTIFIER_NAME,
    DATES,
    EMPTY,
    FEW_VALUES,
    FEWEST_COUNTED_ROWS,
    IDENTIFIER_LABELS,
    IDENTIFIER_NAME,
    IDENTIFIER_NUMBERS,
    TIME_NAME,
    Unfit,
    constant,
    left_out_notes,
    many_labels,
)
from vcuda.errors import DataError

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset


@dataclass(frozen=True)
class ReadOptions:
    """How the columns of a table are read: kinds by column name, cells that are missing values, and whether columns
    that would be left out are refused instead. Of rows that are read to be predicted all columns are known to be
    variables, whatever these rows look like. Columns ``beside`` the variables say something of the rows, such as when
    each was measured, and are read as text."""

    kinds: Mapping[str, Kind]
    missing_values: tuple[str, ...] = ()
    strict: bool = False
    are_variables: bool = False
    beside: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, kinds: Any = None, missing_values: Any = None, strict: bool = False, beside: Sequence[str | None] = ()
    ) -> ReadOptions:
        """From what was asked for, which is checked as far as that is possible without a table."""
        named = tuple(dict.fromkeys(name for name in beside if name is not None))
        return cls(checked_kinds(kinds), checked_missing_values(missing_values), strict, beside=named)


AS_FOUND = ReadOptions({})


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
    unfit, faults = columns.unfit(imputed=missing == "keep"), columns.faults()
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
    left_out = tuple((name, one.fault[0]) for name, one in by_name.items())
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
        values, notes = with_missing_values(
            data.values, {k: own for k, own in labels.items() if own}, how.missing_values
        )
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
        self.notes = [*mark_notes(read, names), *style_notes(read.styles, names)]
        texts = {k: own.names for k, own in read.labels.items()}
        self.values = read.values
        if how.missing_values:
            self.values, notes = with_missing_values(read.values, texts, how.missing_values)
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

    def unfit(self, *, all_rows: bool = True, imputed: bool = False) -> dict[int, Unfit]:
        """The columns that are no variables, by position; of the first rows, those that others cannot make one.

        ``imputed``: missing values will be, which takes some values of each column.
        """
        found = {k: DATES for k, fault in self.read.faults.items() if fault.is_date}
        if not all_rows:
            many = {k: many_labels() for k, own in self._by_column.items() if len(own) > MOST_LABELS}
            return found | many | self._identifiers()
        readable = [k not in self.read.faults for k in range(len(self.names))]
        for k in np.flatnonzero((self.present == 0) & readable).tolist():
            found[k] = EMPTY
        for k in np.flatnonzero((self.least == self.largest) & readable).tolist():
            own = self._by_column.get(k)
            value = f"{self.least[k]:g}" if own is None else shortened(own[0])
            found[k] = constant(value, everywhere=bool(self.present[k] == len(self.values)))
        if self.how.are_variables:
            return found
        few = imputed & (self.present < min(MINIMUM_PRESENT, len(self.values)))
        for k in np.flatnonzero(few & readable).tolist():
            found.setdefault(k, FEW_VALUES)
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
        if len(labels) == len(self.values):
            found = IDENTIFIER_LABELS
        elif len(labels) > MOST_LABELS:
            found = many_labels(len(labels))
        else:
            return None
        row = int(np.argmin(np.isnan(self.values[:, k])))
        return found._replace(where=f" ({shortened(labels[int(self.values[row, k])])} in {self.raw.place(row)})")

    def _identifies(self, k: int) -> bool:
        """Whether whole numbers are those of an identifier: all different, and named so or counting the rows."""
        rows, name = len(self.values), self.names[k]
        if self.present[k] < rows or self.largest[k] - self.least[k] + 1 < rows:
            return False
        column = self.values[:, k]
        if IDENTIFIER_NAME.fullmatch(name) or CAMEL_IDENTIFIER_NAME.fullmatch(name):
            return np.unique(column).size == rows
        counts = self.least[k] in (0, 1) and rows >= FEWEST_COUNTED_ROWS and bool(np.all(np.diff(column) == 1))
        return counts and not TIME_NAME.fullmatch(name)

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
            why = unfit[name].fault[0] if name in unfit else "it cannot be used as it is"
            reports.append(ColumnReport(name, None, why))
    sentences = [f"{source}: {faults[k]}" for k in sorted(faults)]
    message = sentences[0]
    if len(sentences) > 1:
        more = "one more column" if len(sentences) == 2 else f"{len(sentences) - 1:,} more columns"
        message += f" There are faults in {more}: vcuda check lists all of them."
    return TableError(message, sentences, reports)
