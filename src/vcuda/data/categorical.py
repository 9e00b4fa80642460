"""Columns of labels: which columns they are, their labels in order, and integer codes.

A table is one of numbers or one of categories. Text and what other libraries call categories decide for the latter;
truth values and few whole numbers go with either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vcuda.data.findings import FEW_ROWS_A_COLUMN
from vcuda.data.messages import HOW_TO_LEAVE_OUT, data_row, listed, shortened
from vcuda.data.raw_table import Cells, FloatArray
from vcuda.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from vcuda.data.dataset import Dataset

Categories = tuple[tuple[str, ...], ...]

# A column with more labels is no variable with categories but an identifier, or free text.
MOST_LABELS = 50
# Whole numbers beside categories are categories too, if there are no more different ones than this.
FEW_VALUES = 10
# When no column has more different numbers than this, they may well stand for categories.
VERY_FEW_VALUES = 5
TRUTH = ("false", "true")


class Coded(NamedTuple):
    """A table (n, d) of numbers, ``categories`` None, or of codes for the labels of each column; and remarks."""

    values: FloatArray
    categories: Categories | None
    notes: tuple[str, ...]


def coded(cells: Cells, names: Sequence[str], *, source: str, place: Callable[[int], str] = data_row) -> Coded:
    """Decide whether a table holds numbers or categories; refuse one that holds both, and labels that are none."""
    for k, found in cells.labels.items():
        _check_labels(cells.values[:, k], found.names, names[k], source, place)
    truth = [k for k, kind in enumerate(cells.kinds) if kind == "truth"]
    if not cells.labels and not truth:
        return Coded(cells.values, None, ())
    whole = [k for k, kind in enumerate(cells.kinds) if kind == "integer" and _has_few_values(cells.values[:, k])]
    numbers = [k for k, kind in enumerate(cells.kinds) if kind in ("real", "integer") and k not in whole]
    if numbers and not cells.labels:
        # Truth values among numbers are 0 and 1.
        return Coded(cells.values, None, ())
    if numbers:
        some = next(iter(cells.labels))
        raise DataError(
            f"{source}: column {shortened(names[some])} holds labels ({listed(cells.labels[some].names, 3)}) and "
            f"column {shortened(names[numbers[0]])} holds numbers, and a table must be all of one kind: code the "
            f"labels as numbers (0 and 1 for two of them), leave them out {HOW_TO_LEAVE_OUT}, or bin the numbers "
            "into categories (pandas.qcut)."
        )
    values, categories = np.empty_like(cells.values), []
    for k, name in enumerate(names):
        column = cells.values[:, k]
        _refuse_missing(column, name, source, place)
        if k in cells.labels:
            given = cells.labels[k]
            present = np.unique(column).astype(np.int64).tolist()
            order = present if given.ordered else sorted(present, key=lambda code: _label_key(given.names[code]))
            labels = tuple(given.names[code] for code in order)
        else:
            order = np.unique(column).tolist()
            labels = tuple(TRUTH[int(value)] if k in truth else number_label(value) for value in order)
        if len(labels) == 1:
            raise DataError(
                f"{source}: column {shortened(name)} does not vary ({shortened(labels[0])} in every row): leave out "
                f"what is constant {HOW_TO_LEAVE_OUT}, it has neither causes nor effects."
            )
        values[:, k] = _positions(column, order)
        categories.append(labels)
    notes = []
    if whole:
        which = listed([names[k] for k in whole])
        subject = f"Columns {which} hold" if len(whole) > 1 else f"Column {which} holds"
        were = "they were taken as categories too" if len(whole) > 1 else "it was taken as categories too"
        notes.append(f"{subject} few different whole numbers beside columns of categories: {were}.")
    return Coded(values, tuple(categories), tuple(notes))


def number_label(value: float) -> str:
    """A number as the label of a category: as short as it can be read back.

    Examples
    --------
    >>> number_label(2.0), number_label(0.1)
    ('2', '0.1')
    """
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def as_categories(data: Dataset, *, most: int = MOST_LABELS) -> Dataset:
    """The table with a category for each different value of a column, and only for labels that occur."""
    if data.missing is not None:
        k = int(np.flatnonzero(data.missing.any(axis=0))[0])
        _refuse_missing(data.values[:, k], data.names[k], data.source, data_row)
    values, categories = np.empty_like(data.values), []
    for k, name in enumerate(data.names):
        present = np.unique(data.values[:, k])
        if present.size > most:
            raise DataError(
                f"{data.source}: column {shortened(name)} has {present.size:,} different values, more than the {most} "
                "that model categorical takes as categories: bin the column into fewer (pandas.qcut), leave it out "
                f"{HOW_TO_LEAVE_OUT}, or use a model for numbers."
            )
        values[:, k] = _positions(data.values[:, k], present.tolist())
        if data.categories is None:
            categories.append(tuple(number_label(value) for value in present))
        else:
            categories.append(tuple(data.categories[k][int(code)] for code in present))
    return replace(data, values=values, categories=tuple(categories))


def codes_by_label(data: Dataset, categories: Categories) -> FloatArray:
    """The cells (n, d) as codes for these labels, whatever codes the table itself has for them."""
    table = as_categories(data)
    assert table.categories is not None
    values = np.empty_like(table.values)
    for k, (own, known) in enumerate(zip(table.categories, categories, strict=True)):
        strange = [code for code, label in enumerate(own) if label not in known]
        if strange:
            row = int(np.argmax(np.isin(table.values[:, k], strange)))
            raise DataError(
                f"{data.source}: {data_row(row)} of column {shortened(data.names[k])} holds "
                f"{shortened(own[strange[0]])}, which the fitted table did not ({listed(known)}): leave out such rows, "
                "or fit again with some of them."
            )
        values[:, k] = np.array([known.index(label) for label in own], dtype=np.float64)[
            table.values[:, k].astype(np.int64)
        ]
    return values


def labelled_frame(names: Sequence[str], codes: FloatArray, categories: Categories) -> pd.DataFrame:
    """Codes (n, d) as a pandas DataFrame of their labels, which keeps their order."""
    import pandas as pd

    def cells(own: FloatArray, labels: tuple[str, ...] | None) -> Any:
        return own if labels is None else pd.Categorical.from_codes(own.astype(np.int64), pd.Index(labels))

    return pd.DataFrame(
        {name: cells(own, labels) for name, own, labels in zip(names, codes.T, categories, strict=True)}
    )


def category_findings(data: Dataset) -> list[str]:
    """Few rows, and columns that determine each other's labels, in words."""
    notes = []
    if data.n < FEW_ROWS_A_COLUMN * data.d:
        notes.append(
            f"{data.n:,} rows are few for {data.d:,} columns (less than {FEW_ROWS_A_COLUMN} rows a column): "
            "expect uncertain edges."
        )
    alike: dict[bytes, list[str]] = {}
    for k, name in enumerate(data.names):
        # Numbered by first appearance, columns that divide the rows in the same way are equal.
        _, first, codes = np.unique(data.values[:, k], return_index=True, return_inverse=True)
        alike.setdefault(np.argsort(np.argsort(first))[codes].astype(np.uint8).tobytes(), []).append(name)
    notes += [
        f"Columns {listed(group)} divide the rows in the same way: the data cannot distinguish them, leave out all but "
        "one."
        for group in alike.values()
        if len(group) > 1
    ]
    return notes


def number_findings(data: Dataset) -> list[str]:
    """That all numbers are so few that they may stand for categories."""
    if data.missing is not None or not all(_has_few_values(data.values[:, k], VERY_FEW_VALUES) for k in range(data.d)):
        return []
    return [
        f"No column has more than {VERY_FEW_VALUES} different numbers: if they stand for categories, ask for model "
        "categorical."
    ]


def _has_few_values(column: FloatArray, most: int = FEW_VALUES) -> bool:
    # Most columns show in their first rows that they have many.
    return all(np.unique(part[~np.isnan(part)]).size <= most for part in (column[:100], column))


def _positions(column: FloatArray, order: Sequence[float]) -> FloatArray:
    """Where each value (n,) stands in an order of all that occur."""
    present, inverse = np.unique(column, return_inverse=True)
    place = {value: position for position, value in enumerate(order)}
    return np.array([place[value] for value in present.tolist()], dtype=np.float64)[inverse]


def _label_key(label: str) -> tuple[int, float, str]:
    """Labels that are numbers by their value, before all others by the alphabet."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _check_labels(
    codes: FloatArray, labels: Sequence[str], name: str, source: str, place: Callable[[int], str]
) -> None:
    """Refuse labels that cannot be categories: too many of them, or another one in each row."""
    present = np.unique(codes[~np.isnan(codes)]).astype(np.int64)
    if not present.size:
        raise DataError(
            f"{source}: there is no value in column {shortened(name)}: leave out what is empty {HOW_TO_LEAVE_OUT}."
        )
    row = int(np.argmin(np.isnan(codes)))
    example = f"column {shortened(name)} ({shortened(labels[int(codes[row])])} in {place(row)})"
    if present.size == len(codes):
        raise DataError(
            f"{source}: {example} holds another label in every row, as an identifier or free text does: leave the "
            f"column out {HOW_TO_LEAVE_OUT}, or join its labels into few categories."
        )
    if present.size > MOST_LABELS:
        raise DataError(
            f"{source}: {example} has {present.size:,} different labels, more than {MOST_LABELS}, as an identifier or "
            f"free text does: leave the column out {HOW_TO_LEAVE_OUT}, or join its labels into fewer categories."
        )


def _refuse_missing(column: FloatArray, name: str, source: str, place: Callable[[int], str]) -> None:
    missing = np.isnan(column)
    if missing.any():
        count = int(missing.sum())
        fault = "one category is missing" if count == 1 else f"{count:,} categories are missing"
        first = (
            f"in {place(int(np.argmax(missing)))}" if count == 1 else f"the first in {place(int(np.argmax(missing)))}"
        )
        raise DataError(
            f'{source}: {fault} in column {shortened(name)}, {first}: give it a label of its own, such as "unknown", '
            "or leave out the row or the column."
        )
