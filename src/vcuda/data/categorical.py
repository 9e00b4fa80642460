"""Columns of labels: their labels in order, and integer codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcuda.data.kinds import MOST_LABELS, ColumnLabels, FloatArray, Kind, default_kinds
from vcuda.data.messages import HOW_TO_LEAVE_OUT, data_row, listed, shortened
from vcuda.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from vcuda.data.dataset import Dataset

Categories = tuple[tuple[str, ...], ...]

TRUTH = ("false", "true")


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
    check_no_label_missing(data, range(data.d))
    values, categories = np.empty_like(data.values), []
    for k, name in enumerate(data.names):
        own = None if data.categories is None else data.categories[k]
        present = np.unique(data.values[:, k])
        if present.size > most:
            raise DataError(
                f"{data.source}: column {shortened(name)} has {present.size:,} different values, more than the {most} "
                "that model categorical takes as categories: bin the column into fewer (pandas.qcut), leave it out "
                f"{HOW_TO_LEAVE_OUT}, or use a model for numbers."
            )
        values[:, k] = positions(data.values[:, k], present.tolist())
        categories.append(tuple(number_label(value) if own is None else own[int(value)] for value in present))
    usual = default_kinds(data.d, tuple(categories))
    kinds = tuple(kind if kind == "ordered" else other for kind, other in zip(data.kinds, usual, strict=True))
    return replace(data, values=values, categories=tuple(categories), kinds=kinds)


def check_no_label_missing(data: Dataset, columns: Iterable[int]) -> None:
    """Refuse missing cells in these columns, whose values are taken as labels."""
    for k in columns:
        missing = np.isnan(data.values[:, k])
        if missing.any():
            count, first = int(missing.sum()), data_row(int(np.argmax(missing)))
            fault = "one label is missing" if count == 1 else f"{count:,} labels are missing"
            where = f"in {first}" if count == 1 else f"the first in {first}"
            raise DataError(
                f"{data.source}: {fault} in column {shortened(data.names[k])}, {where}: give it a label of its own, "
                'such as "unknown", or leave out the row or the column.'
            )


def all_labels(data: Any) -> Categories | None:
    """The labels of a table whose columns all hold labels, otherwise None."""
    found = data.categories
    return None if found is None or None in found else found


def codes_by_label(data: Dataset, categories: ColumnLabels) -> FloatArray:
    """The cells (n, d) with codes for these labels, whatever codes the table itself has for them.

    Columns for which no labels are given hold numbers, and stay as they are.
    """
    values = data.values.copy()
    for k, (name, known) in enumerate(zip(data.names, categories, strict=True)):
        own = None if data.categories is None else data.categories[k]
        if known is None:
            if own is not None:
                raise DataError(
                    f"{data.source}: column {shortened(name)} holds labels ({listed(own, 3)}), and that of the fitted "
                    "table holds numbers: give it numbers."
                )
            continue
        check_no_label_missing(data, [k])
        present, at = np.unique(data.values[:, k], return_inverse=True)
        labels = [number_label(value) if own is None else own[int(value)] for value in present]
        strange = [number for number, label in enumerate(labels) if label not in known]
        if strange:
            row = int(np.argmax(np.isin(at, strange)))
            raise DataError(
                f"{data.source}: {data_row(row)} of column {shortened(name)} holds {shortened(labels[at[row]])}, which "
                f"the fitted table did not ({listed(known)}): leave out such rows, or fit again with some of them."
            )
        values[:, k] = np.array([known.index(label) for label in labels], dtype=np.float64)[at]
    return values


def labelled_frame(
    names: Sequence[str], values: FloatArray, categories: ColumnLabels, kinds: Sequence[Kind] | None = None
) -> pd.DataFrame:
    """Values (n, d) as a pandas DataFrame: codes as their labels, which keep their order, and numbers as they are."""
    import pandas as pd

    frame: dict[str, Any] = {}
    for k, (name, labels) in enumerate(zip(names, categories, strict=True)):
        if labels is None:
            frame[name] = values[:, k].copy()
        else:
            codes = np.where(np.isnan(values[:, k]), -1, values[:, k]).astype(np.int64)
            ordered = kinds is not None and kinds[k] == "ordered"
            frame[name] = pd.Categorical.from_codes(codes, pd.Index(labels), ordered=ordered)
    return pd.DataFrame(frame)


def category_findings(data: Dataset, columns: Sequence[int]) -> list[str]:
    """Columns of labels, of those at these positions, that determine each other's labels, in words."""
    alike: dict[bytes, list[str]] = {}
    for k in columns:
        # Numbered by first appearance, columns that divide the rows in the same way are equal.
        _, first, codes = np.unique(data.values[:, k], return_index=True, return_inverse=True)
        alike.setdefault(np.argsort(np.argsort(first))[codes].astype(np.uint8).tobytes(), []).append(data.names[k])
    return [
        f"Columns {listed(group)} divide the rows in the same way: the data cannot distinguish them, leave out all but "
        "one."
        for group in alike.values()
        if len(group) > 1
    ]


def positions(column: FloatArray, order: Sequence[float]) -> FloatArray:
    """Where each value (n,) stands in an order of all that occur; NaN stays NaN."""
    present, inverse = np.unique(column, return_inverse=True)
    place = {value: position for position, value in enumerate(order)}
    return np.array([place.get(value, np.nan) for value in present.tolist()], dtype=np.float64)[inverse]


def label_key(label: str) -> tuple[int, float, str]:
    """Labels that are numbers by their value, before all others by the alphabet."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label
