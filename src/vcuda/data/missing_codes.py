"""Cells that stand for missing values: texts such as "?", numbers such as -999, and those that somebody names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vcuda.data.kinds import ColumnLabels
from vcuda.data.messages import listed
from vcuda.data.raw_table import Cells, FloatArray, as_number
from vcuda.errors import ConfigError

# Numbers that stand for missing values in many tables.
MISSING_CODES = tuple(
    sign * number for sign in (-1.0, 1.0) for number in (99, 999, 9999, 99999, 999999, 888, 8888, 777, 7777)
)

# By these words a note on such a number is known again: it stands first among what could be wrong.
LIKE_A_CODE = "as a code for missing values does"


def checked_missing_values(given: Any) -> tuple[str, ...]:
    """Cells that stand for missing values, as text; one may stand alone."""
    if given is None:
        return ()
    single = isinstance(given, str | int | float) or not isinstance(given, Iterable)
    cells = [given] if single else list(given)
    if not all(isinstance(cell, str | int | float | np.integer | np.floating) for cell in cells):
        raise ConfigError(f"missing_values must be a list of cells, such as [-999], not {given!r}.")
    return tuple(dict.fromkeys(str(cell).strip() for cell in cells))


def mark_notes(read: Cells, names: Sequence[str]) -> list[str]:
    """Texts that were taken as missing values, in words."""
    marks = dict.fromkeys(mark for own in read.marks.values() for mark in own)
    if not marks:
        return []
    chosen = [names[k] for k in read.marks]
    subject = "columns" if len(chosen) > 1 else "column"
    return [f"Cells {listed(list(marks))} of {subject} {listed(chosen)} were taken as missing values."]


def with_missing_values(
    values: FloatArray, labels: Mapping[int, Sequence[str]], missing_values: Sequence[str]
) -> tuple[FloatArray, list[str]]:
    """The cells with NaN where they hold what stands for a missing value, and a note of how many do."""
    numbers = [number for cell in missing_values if (number := as_number(cell)) is not None]
    of_numbers = np.array([k not in labels for k in range(values.shape[1])])
    absent: npt.NDArray[np.bool_] = np.isin(values, numbers) & of_numbers
    for k, texts in labels.items():
        absent[:, k] = np.isin(values[:, k], [code for code, text in enumerate(texts) if text in missing_values])
    count = int(absent.sum())
    which = listed(missing_values)
    if not count:
        return values, [f"No cell holds {which}, which missing_values names."]
    sentence = f"{count:,} cells that hold {which} were" if count > 1 else f"One cell that holds {which} was"
    return np.where(absent, np.nan, values), [f"{sentence} taken as missing values."]


def missing_codes(values: FloatArray, labels: ColumnLabels | None) -> dict[float, list[int]]:
    """Numbers such as -999 that lie far from all others, as codes for missing values do, with their columns."""
    least, largest = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    found: dict[float, list[int]] = {}
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
                found.setdefault(float(ends[k]), []).append(k)
    return found


def missing_code_notes(names: Sequence[str], values: FloatArray, labels: ColumnLabels | None) -> list[str]:
    """Such numbers, in words."""
    return [
        f"{code:g} in column{'s' if len(chosen) > 1 else ''} {listed([names[k] for k in chosen])} lies far from all "
        f"other cells, {LIKE_A_CODE}: if it is one, say so (missing_values=, --missing {code:g})."
        for code, chosen in missing_codes(values, labels).items()
    ]
