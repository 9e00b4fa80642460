"""The validated table that everything else takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vcuda.data.categorical import labelled_frame
from vcuda.data.columns import EVERY_COLUMN, ColumnChoice
from vcuda.data.contexts import Contexts
from vcuda.data.interventions import BoolArray, Design
from vcuda.data.kinds import ColumnLabels, Kind, default_kinds, grid_step
from vcuda.data.moments import varies
from vcuda.data.raw_table import FloatArray
from vcuda.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A table of finite numbers, n rows by d named columns, that passed every check; NaN where a cell is missing.

    Build it with `as_dataset`; the constructor takes values that are known to be sound.

    Parameters
    ----------
    names
        The d column names.
    values
        The (n, d) numbers in the user's units; kept as float64, C-order and read-only, copied where need be.
    source
        Where the table came from, in words.
    notes
        What the checks found that does not forbid a fit, one sentence each.
    interventions
        The (n, d) cells that an experiment set, whatever their causes; None when nothing was set.
    target_column
        The column of the user's table that said so, if one did; it is none of the d columns.
    categories
        The labels of each column that holds labels, for which its ``values`` are codes 0, 1, 2, ...; None for each
        column of numbers, whatever its kind, and in place of all where no column holds labels.
    choice
        Which columns were taken of the user's table, if somebody said so.
    kinds
        The kind of each column. By default columns of labels are yes/no or label, by their number, and all others are
        numbers; `as_dataset` finds kinds by the rules of `vcuda.data.kinds`.
    left_out
        Names of columns that are no variables, with the reason.
    beside
        Columns that are no variables and say something of the rows, such as when each was measured: n texts by name.
    contexts
        The environments that the rows come from, if columns of the user's table name them.
    environment
        (n,) which of them each row comes from; None where there are none.
    """

    names: tuple[str, ...]
    values: FloatArray
    source: str = "array"
    notes: tuple[str, ...] = ()
    interventions: BoolArray | None = None
    target_column: str | None = None
    categories: ColumnLabels | None = None
    choice: ColumnChoice = EVERY_COLUMN
    kinds: tuple[Kind, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    contexts: Contexts | None = None
    environment: npt.NDArray[np.intp] | None = None

    def __post_init__(self) -> None:
        values = self.values
        if values.dtype != np.float64 or values.flags.writeable or not values.flags.owndata:
            values = np.array(values, dtype=np.float64, order="C")
        values = np.ascontiguousarray(values)
        values.flags.writeable = False
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise DataError(f"{self.source}: values of shape {values.shape} do not fit {len(self.names)} names.")
        if self.categories is not None and len(self.categories) != len(self.names):
            fault = f"labels of {len(self.categories)} columns do not fit {len(self.names)} names"
            raise DataError(f"{self.source}: {fault}.")
        if self.kinds and len(self.kinds) != len(self.names):
            raise DataError(f"{self.source}: kinds of {len(self.kinds)} columns do not fit {len(self.names)} names.")
        if self.categories is not None and not any(self.categories):
            object.__setattr__(self, "categories", None)
        object.__setattr__(self, "kinds", tuple(self.kinds or default_kinds(len(self.names), self.categories)))
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "notes", tuple(self.notes))

    def __repr__(self) -> str:
        return f"Dataset({self.n:,} rows x {self.d:,} columns from {self.source!r})"

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.values.shape[0]

    @property
    def d(self) -> int:
        """The number of columns."""
        return self.values.shape[1]

    @cached_property
    def missing(self) -> BoolArray | None:
        """The (n, d) cells that are missing; None when nothing is."""
        missing = np.isnan(self.values)
        return read_only(missing) if missing.any() else None

    @cached_property
    def mean(self) -> FloatArray:
        """The mean of each column, in the user's units, shape (d,); of what is not missing."""
        if self.missing is None:
            return read_only(self.values.mean(axis=0))
        return read_only(np.where(self.missing, 0.0, self.values).sum(axis=0) / (~self.missing).sum(axis=0))

    @property
    def extremes(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest value of each column (d,), in the user's units."""
        return np.fmin.reduce(self.values, axis=0), np.fmax.reduce(self.values, axis=0)

    @cached_property
    def scale(self) -> FloatArray:
        """The standard deviation of each column (division by its number of values), in the user's units, (d,)."""
        scale = np.empty(self.d)
        present = np.full(self.d, self.n) if self.missing is None else (~self.missing).sum(axis=0)
        width = max(1, 4_000_000 // max(self.n, 1))  # columns at a time, so that the copies stay small
        for start in range(0, self.d, width):
            block = slice(start, start + width)
            centred = self.values[:, block] - self.mean[block]
            if self.missing is not None:
                centred[self.missing[:, block]] = 0.0
            # Divided by the largest first: the square of 1e-170 would be zero.
            largest = np.abs(centred).max(axis=0, initial=0.0)
            centred /= np.where(largest > 0, largest, 1.0)
            scale[block] = largest * np.sqrt(np.sum(centred**2, axis=0) / present[block])
        return read_only(scale)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256, in hexadecimal, of names, shape and values: equal tables have equal fingerprints."""
        digest = hashlib.sha256(json.dumps([self.names, self.values.shape]).encode())
        # There are many ways to write NaN; the fingerprint knows one.
        values = self.values if self.missing is None else np.where(self.missing, np.nan, self.values)
        digest.update(values.astype("<f8", copy=False).data)
        if self.interventions is not None:
            digest.update(np.packbits(self.interventions).data)
        if self.categories is not None:
            digest.update(json.dumps(self.categories).encode())
        # Tables of numbers, or of labels alone, have the fingerprints that they had before there were kinds.
        if self.kinds != default_kinds(self.d, self.categories):
            digest.update(json.dumps(self.kinds).encode())
        if self.contexts is not None and self.environment is not None:
            digest.update(json.dumps([self.contexts.columns, self.contexts.names]).encode())
            digest.update(self.environment.astype("<i8").data)
        return digest.hexdigest()

    @cached_property
    def steps(self) -> tuple[float | None, ...]:
        """The step of the grid that the cells of a column lie on, for numbers and counts that were rounded; else None.

        A column counts as rounded where many of its cells are equal.
        """
        return tuple(
            grid_step(self.values[:, k]) if kind in ("number", "count") else None for k, kind in enumerate(self.kinds)
        )

    def free_rows(self, column: int) -> BoolArray | slice:
        """The rows in which a column was not set by an experiment, as an index."""
        return slice(None) if self.interventions is None else ~self.interventions[:, column]

    @cached_property
    def design(self) -> Design | None:
        """What experiments set, in numbers of rows; None where they set nothing."""
        return None if self.interventions is None else Design.of(self.interventions)

    @property
    def free_counts(self) -> npt.NDArray[np.int64]:
        """How many cells of each column (d,) were not set by an experiment."""
        return np.full(self.d, self.n) if self.interventions is None else (~self.interventions).sum(axis=0)

    def standardised(self) -> FloatArray:
        """A new (n, d) array in which each column has mean zero and standard deviation one."""
        # A selection of rows may leave a column constant, which then is zero.
        return (self.values - self.mean) / np.where(self.scale > 0, self.scale, 1.0)

    def with_logarithms(self, columns: npt.ArrayLike) -> Dataset:
        """The table with the natural logarithms of the columns marked in (d,) booleans, which must be positive."""
        marked = np.asarray(columns, dtype=bool)
        if not marked.any():
            return self
        least = np.fmin.reduce(self.values, axis=0)
        if (least[marked] <= 0).any():
            column = int(np.flatnonzero(marked & (least <= 0))[0])
            raise DataError(
                f"column {self.names[column]!r} reaches down to {least[column]:g}, and only positive numbers have a "
                "logarithm; leave the column as it is, or shift it"
            )
        values = self.values.copy()
        values[:, marked] = np.log(values[:, marked])
        still = marked & ~varies(np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0))
        if still.any():
            raise DataError(
                f"the logarithm of column {self.names[int(np.argmax(still))]!r} does not vary by more than rounding; "
                "leave the column as it is"
            )
        kinds = tuple("number" if mark else kind for mark, kind in zip(marked, self.kinds, strict=True))
        return replace(self, values=values, kinds=kinds)

    def take(self, columns: Sequence[int]) -> Dataset:
        """The table of some columns, by their positions and in their order; the checks are not repeated."""
        held = None if self.interventions is None else self.interventions[:, columns]
        return replace(
            self,
            names=tuple(self.names[k] for k in columns),
            values=self.values[:, columns],
            interventions=None if held is None or not held.any() else read_only(held),
            categories=None if self.categories is None else tuple(self.categories[k] for k in columns),
            kinds=tuple(self.kinds[k] for k in columns),
        )

    def select(self, rows: npt.ArrayLike | slice) -> Dataset:
        """The table of some rows, by indices, a boolean mask or a slice; the checks are not repeated."""
        chosen = rows if isinstance(rows, slice) else np.asarray(rows)
        held = None if self.interventions is None else self.interventions[chosen].copy()
        places = np.arange(self.n)[chosen].tolist() if self.beside else []
        beside = {name: tuple(cells[k] for k in places) for name, cells in self.beside.items()}
        found = replace(self, values=self.values[chosen].copy(), interventions=held, beside=beside)
        if self.contexts is None or self.environment is None:
            return found
        environment = self.environment[chosen].copy()
        return replace(found, environment=environment, contexts=self.contexts.with_rows(environment))

    def without_contexts(self) -> Dataset:
        """The same rows as if they all came from one environment."""
        return replace(self, contexts=None, environment=None)

    def to_frame(self) -> pd.DataFrame:
        """The table as a new pandas DataFrame; columns of labels hold these."""
        import pandas as pd

        if self.categories is not None:
            return labelled_frame(self.names, self.values, self.categories, self.kinds)
        return pd.DataFrame(self.values.copy(), columns=list(self.names))


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array
