"""Which cells of a table an experiment set, whatever their causes: read from a column or a mask, and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcuda.data.messages import listed, nearest, shortened
from vcuda.data.moments import varies
from vcuda.data.raw_table import FloatArray
from vcuda.errors import DataError

BoolArray = npt.NDArray[np.bool_]

# What people write where nothing was set, apart from an empty cell.
NOTHING = {"none", "no", "nothing", "observational", "observation", "control", "-", "na", "n/a", "nan", "null"}
# Beside what is set in some rows, a column needs rows in which it was free, to learn its causes.
FEWEST_FREE_ROWS = 5


def set_cells(
    cells: Sequence[str],
    names: Sequence[str],
    *,
    column: str,
    source: str,
    place: Callable[[int], str],
    left_out: Collection[str] = (),
) -> BoolArray:
    """The mask (n, d) that a column of targets stands for, one cell a row.

    A cell is empty or a word for nothing, the name of a variable, or several names joined by semicolons, commas or
    plus signs; a name that holds such a sign itself is understood when it stands alone. Columns that are left out may
    have been set as well: that marks no cell.
    """
    at: dict[str, int | None] = dict.fromkeys(left_out)
    at |= {name: k for k, name in enumerate(names)}
    known: dict[str, list[int]] = {}
    held = np.zeros((len(cells), len(names)), dtype=bool)
    for row, cell in enumerate(cells):
        if cell not in known:
            set_here = [at[name] for name in _targets(cell, at, column, source, place, row)]
            known[cell] = [k for k in set_here if k is not None]
        held[row, known[cell]] = True
    return held


def _targets(
    cell: str, at: Collection[str], column: str, source: str, place: Callable[[int], str], row: int
) -> list[str]:
    if cell in at:
        return [cell]
    if not cell or cell.lower() in NOTHING:
        return []
    targets = [part.strip() for part in re.split(r"[;,+|]", cell) if part.strip()]
    for target in targets:
        if target not in at:
            raise DataError(
                f"{source}: {place(row)} of column {shortened(column)} says that {shortened(target)} was set, which is "
                f"no column{nearest(target, at)}: write the name of a column, several joined by a semicolon, or none."
            )
    return targets


def as_mask(mask: Any, names: Sequence[str], rows: int) -> BoolArray:
    """A mask (n, d) of booleans or of 0 and 1; of a table with named columns, those that it lacks were never set."""
    if hasattr(mask, "columns"):
        labels = [str(label) for label in mask.columns]
        for label in labels:
            if label not in names:
                raise DataError(
                    f"interventions: the mask has a column {shortened(label)} that the table does not "
                    f"have{nearest(label, names)}: give it the names of the table's columns."
                )
        cells = np.zeros((len(mask), len(names)))
        cells[:, [list(names).index(label) for label in labels]] = np.asarray(mask, dtype=np.float64)
    else:
        try:
            cells = np.asarray(mask, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError("interventions: expected a mask of true and false, or the name of a column.") from None
    if cells.shape != (rows, len(names)):
        raise DataError(
            f"interventions: the mask has the shape {cells.shape}, the table {(rows, len(names))}: give one cell for "
            "each cell of the table."
        )
    if not np.isin(cells, (0.0, 1.0)).all():
        raise DataError("interventions: the mask may hold only true and false, or 1 and 0.")
    return cells == 1.0


class Design(NamedTuple):
    """What experiments set, in numbers of rows: something in ``touched`` of all ``rows``; each column (d,) in ``held``
    rows, and ``alone`` in so many of them."""

    rows: int
    touched: int
    held: npt.NDArray[np.int64]
    alone: npt.NDArray[np.int64]

    @classmethod
    def of(cls, held: BoolArray) -> Design:
        """From the cells (n, d) that were set."""
        count = held.sum(axis=1)
        alone = held & (count == 1)[:, None]
        return cls(len(held), int((count > 0).sum()), held.sum(axis=0), alone.sum(axis=0))

    @property
    def always(self) -> BoolArray:
        """The columns (d,) that were set in every row."""
        return self.held == self.rows


def in_words(design: Design | None, names: Sequence[str]) -> list[str]:
    """What was set in a table, in plain sentences; nothing where nothing was."""
    if design is None:
        return []
    some = [names[k] for k in np.flatnonzero(design.held).tolist()]
    sentences = [
        f"In {design.touched:,} of {design.rows:,} rows experiments set {listed(some)}; these cells count for what "
        "they cause, not for what causes them."
    ]
    always = [names[k] for k in np.flatnonzero(design.always).tolist()]
    if always:
        sentences.append(f"Columns that were set in every row have no causes in the table: {listed(always)}.")
    return sentences


def check_free_cells(values: FloatArray, held: BoolArray, names: Sequence[str], source: str) -> None:
    """Refuse a column that is free in too few rows, or does not vary in them: nothing would show its causes."""
    free = (~held).sum(axis=0)
    few = np.flatnonzero((free > 0) & (free < FEWEST_FREE_ROWS))
    if few.size:
        raise DataError(
            f"{source}: column {shortened(names[few[0]])} was set or is missing in all but {free[few[0]]} of "
            f"{len(values):,} rows, too few to learn what it depends on: leave these rows out, or have at least "
            f"{FEWEST_FREE_ROWS}."
        )
    masked = np.where(held, np.nan, values)
    known = np.flatnonzero(free)
    still = known[~varies(np.nanmin(masked[:, known], axis=0), np.nanmax(masked[:, known], axis=0))].tolist()
    if still:
        raise DataError(
            f"{source}: column {listed([names[k] for k in still])} does not vary in the rows in which it was not set: "
            "if it depends on nothing else in the table, mark it as set in every row."
        )
