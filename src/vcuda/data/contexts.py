"""Environments: rows that come from different sites, batches or experiments, named by columns of the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcuda.data.messages import listed, nearest, shortened
from vcuda.errors import ConfigError, DataError

# The cells of the context columns in one row.
Cells = tuple[str, ...]
# An environment with fewer rows cannot show that its mechanisms differ, and fits to it are not defined.
FEWEST_ROWS = 5


@dataclass(frozen=True)
class Contexts:
    """The environments of a table.

    Parameters
    ----------
    columns
        The columns that name them; they are no variables.
    names
        The environments, the reference first.
    rows
        How many rows each has.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    rows: tuple[int, ...]

    @property
    def reference(self) -> str:
        """The environment that the others are compared with."""
        return self.names[0]

    def with_rows(self, environment: npt.NDArray[np.intp]) -> Contexts:
        """The same of other rows, given the environment of each (n,)."""
        counts = np.bincount(environment, minlength=len(self.names))
        return Contexts(self.columns, self.names, tuple(counts.tolist()))

    def in_words(self) -> str:
        """In a sentence for the summary of a fit."""
        others = [f"{name} ({rows:,} rows)" for name, rows in zip(self.names[1:], self.rows[1:], strict=True)]
        return (
            f"Rows come from {len(self.names)} environments, by {listed(self.columns)}: {self.reference} "
            f"({self.rows[0]:,} rows), the reference, and {listed_plain(others)}."
        )


@dataclass(frozen=True)
class ContextOptions:
    """What was asked for: the columns that name environments, and the reference."""

    columns: tuple[str, ...] = ()
    reference: str | None = None

    @classmethod
    def of(cls, columns: Any, reference: str | None = None) -> ContextOptions:
        """Checked as far as that is possible without a table."""
        given = (columns,) if isinstance(columns, str) else tuple(columns or ())
        if not all(isinstance(name, str) and name.strip() for name in given):
            raise ConfigError(f"contexts must name columns, not {columns!r}")
        if reference is not None and not given:
            raise ConfigError("reference names an environment, and there are none: give contexts, the column that does")
        return cls(tuple(dict.fromkeys(name.strip() for name in given)), reference)

    def __bool__(self) -> bool:
        return bool(self.columns)


NO_CONTEXTS = ContextOptions()


def listed_plain(words: Sequence[str], limit: int = 8) -> str:
    """Words joined as in a sentence, the tail counted when there are many."""
    shown = [*words[:limit], *([f"{len(words) - limit:,} more"] if len(words) > limit else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def environment_name(columns: Sequence[str], cells: Cells) -> str:
    """How people call an environment: the cell of one column, or each column with its cell."""
    return cells[0] if len(columns) == 1 else ", ".join(f"{k}={v}" for k, v in zip(columns, cells, strict=True))


def contexts_of(asked: ContextOptions, counts: dict[Cells, int], source: str) -> tuple[Contexts, list[Cells]]:
    """The environments from how many rows have which cells, and the cells of each in the same order.

    Refused where they cannot show anything: one environment only, or one with too few rows.
    """
    columns = asked.columns
    what = f"column {shortened(columns[0])}" if len(columns) == 1 else f"columns {listed(columns)}"
    total = sum(counts.values())
    if len(counts) < 2:
        name = environment_name(columns, next(iter(counts)))
        raise DataError(
            f"{source}: {what} says that all rows come from one environment, {shortened(name)}: leave contexts out, or "
            "name a column that differs between rows."
        )
    if len(counts) > total / 2:
        raise DataError(
            f"{source}: {what} gives nearly every row an environment of its own ({len(counts):,} of {total:,} rows): "
            "contexts takes columns such as a site or a batch, each with many rows; leave out identifiers."
        )
    ordered = sorted(counts, key=lambda cells: [_sort_key(cell) for cell in cells])
    names = [environment_name(columns, cells) for cells in ordered]
    few = [k for k, cells in enumerate(ordered) if counts[cells] < FEWEST_ROWS]
    if few:
        rows = counts[ordered[few[0]]]
        more = f" (and {len(few) - 1:,} more have too few)" if len(few) > 1 else ""
        raise DataError(
            f"{source}: environment {shortened(names[few[0]])} of {what} has {rows} row{'s' if rows > 1 else ''}"
            f"{more}, too few to show what changed there: leave these rows out, join environments, or have at least "
            f"{FEWEST_ROWS} rows in each."
        )
    first = max(range(len(ordered)), key=lambda k: (counts[ordered[k]], -k))
    if asked.reference is not None:
        if asked.reference not in names:
            raise DataError(
                f"{source}: reference names {shortened(asked.reference)}, and there is no such "
                f"environment{nearest(asked.reference, names)}: they are {listed(names)}."
            )
        first = names.index(asked.reference)
    order = [first, *(k for k in range(len(ordered)) if k != first)]
    rows_of = tuple(counts[ordered[k]] for k in order)
    return Contexts(columns, tuple(names[k] for k in order), rows_of), [ordered[k] for k in order]


def environments_of_rows(
    asked: ContextOptions, cells: Sequence[Sequence[str]], source: str, place: Callable[[int], str]
) -> tuple[Contexts, npt.NDArray[np.intp]]:
    """The environments of a table in memory, from the cells of each context column, and that of each row (n,)."""
    for column, own in zip(asked.columns, cells, strict=True):
        check_cells_named(own, column, source, place)
    rows = list(zip(*cells, strict=True))
    counts: dict[Cells, int] = {}
    for row in rows:
        counts[row] = counts.get(row, 0) + 1
    contexts, ordered = contexts_of(asked, counts, source)
    at = {own: k for k, own in enumerate(ordered)}
    return contexts, np.array([at[row] for row in rows], dtype=np.intp)


def check_cells_named(cells: Sequence[str], column: str, source: str, place: Callable[[int], str]) -> None:
    """Refuse an empty cell: nobody knows where such a row comes from."""
    for row, cell in enumerate(cells):
        if not cell or cell.lower() in ("nan", "<na>"):
            raise DataError(
                f"{source}: {place(row)} of context column {shortened(column)} is empty: fill it in, or leave such "
                "rows out."
            )


def _sort_key(cell: str) -> tuple[tuple[int, float, str], ...]:
    """Numbers inside names in the order of their values: site 2 before site 10."""
    pieces = re.findall(r"\d+|\D+", cell)
    return tuple((0, float(piece), "") if piece.isdigit() else (1, 0.0, piece) for piece in pieces)
