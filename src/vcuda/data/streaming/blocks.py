"""Blocks of rows, each cell checked as it is read: what a table is cut into that need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import LARGEST_VALUE, check_cells
from vcuda.data.columns import left_out
from vcuda.data.contexts import Cells, check_cells_named
from vcuda.data.in_memory import cells_from_arrow
from vcuda.data.interventions import set_cells
from vcuda.data.messages import shortened
from vcuda.data.number_styles import PER_CENT, NumberStyle, number_in_style
from vcuda.data.raw_table import TEXT_REMEDY, FloatArray, RawTable, as_labels, is_number
from vcuda.errors import DataError


class OnlyInMemoryError(DataError):
    """Labels or missing values, which a table in memory may have: they need all of its rows."""


class Reading(NamedTuple):
    """How far a pass is: rows read so far, and the share of all bytes, between 0 and 1."""

    rows: int
    share: float


OnProgress = Callable[[Reading], None]
# ``mapped(function, items, shared=..., on_progress=...)`` runs ``function(shared, item)`` for all items somewhere else
# and returns the results in the order of the items.
Mapped = Callable[..., list[Any]]


def silent(reading: Reading) -> None:
    """Report nothing."""


class Block(NamedTuple):
    """Some rows that follow each other: a new array each time, which the one who asked for it may change.

    ``values`` (n_b, d), each column contiguous; ``start``, the first row's place in the whole table; ``least`` and
    ``largest`` (d,) of these rows; ``targets``, the sets of columns that some of these rows say were set, by position,
    and ``regime`` (n_b,), which of the sets each row has. Without a column of targets there is one set, the empty one.
    With context columns a set stands once for each environment: ``environments`` has the context cells of each set.
    """

    values: FloatArray
    start: int
    least: FloatArray
    largest: FloatArray
    targets: tuple[tuple[int, ...], ...]
    regime: npt.NDArray[np.intp]
    environments: tuple[Cells, ...] = ((),)

    def strata(self) -> list[tuple[tuple[int, ...], Cells]]:
        """What was set in the rows of each regime, and the environment that they come from."""
        return list(zip(self.targets, self.environments, strict=True))


class BlockReader:
    """One pass over a part of a table: ``done`` rows so far, and the ``share`` of the part that they are."""

    kind: str

    def __init__(
        self, raw: RawTable, names: Sequence[str], target_column: str | None, contexts: Sequence[str] = ()
    ) -> None:
        self.raw, self.names, self.target_column = raw, names, target_column
        # As they stand in the file, which may have spaces around names, and another order than the first file.
        written = {name.strip(): name for name in raw.names}
        self.columns = [written[name] for name in names]
        self.target = None if target_column is None else written[target_column]
        self.contexts = contexts
        self.context_columns = [written[name] for name in contexts]
        self.done, self.share = 0, 0.0
        # How numbers are written in columns of text, as the first block shows it, by the name in the file.
        self.styles: dict[str, NumberStyle] = {}

    def batches(self, most: int) -> Iterator[Any]:
        """Record batches of Arrow, of about so many rows or of as many as the format has."""
        raise NotImplementedError

    def blocks(self, most: int, *, start: int) -> Iterator[Block]:
        """The rows in blocks of at most so many; the first row is row ``start`` of the whole table."""
        for batch in self.batches(most):
            for offset in range(0, batch.num_rows, most):
                part = batch.slice(offset, most)
                block = self._block(part, start)
                self.done += part.num_rows
                yield block

    def _block(self, batch: Any, start: int) -> Block:
        rows = batch.num_rows
        by_column = np.empty((len(self.columns), rows))
        for k, column in enumerate(self.columns):
            by_column[k] = self._numbers(batch, column)
        self._check_points(batch, by_column)
        least, largest = by_column.min(axis=1), by_column.max(axis=1)
        # One comparison that is false for NaN finds every bad cell; which it was is asked afterwards.
        if not ((least >= -LARGEST_VALUE) & (largest <= LARGEST_VALUE)).all():
            self._refuse(by_column.T)
        targets, regime = self._regimes(batch)
        environments: tuple[Cells, ...] = ((),) * len(targets)
        if self.contexts:
            targets, environments, regime = self._strata(batch, targets, regime)
        return Block(by_column.T, start + self.done, least, largest, targets, regime, environments)

    def _numbers(self, batch: Any, column: str) -> Any:
        import pyarrow as pa

        cells = batch.column(column)
        if str(cells.type) == "double" and cells.null_count == 0:
            return cells.to_numpy()
        is_text = self.raw.text_is_parsed and str(cells.type) == "string"
        if is_text and column in self.styles:
            return self._styled(column, cells.to_pylist())
        if is_text:
            try:
                return cells.cast("float64").to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                pass  # what Arrow does not take, such as +1.5, is read as a small table is, or refused with its row
        table = pa.Table.from_arrays([cells], names=[column])
        parsed = self.raw.text_is_parsed
        try:
            read = cells_from_arrow(table, self.raw.source, self._place, text_is_parsed=parsed).sound()
        except DataError as error:
            # Whether text is a label or a number that was mistyped, only the whole column says.
            raise OnlyInMemoryError(str(error)) from None
        if read.types[0] == "labels":
            self._refuse_labels(column, None if str(cells.type).startswith("dictionary") else cells.to_pylist())
        if read.styles:
            self._keep_style(column, read.styles[0])
        return read.values[:, 0]

    def _keep_style(self, column: str, style: NumberStyle) -> None:
        """Read what follows in the style of the first block; another one may be that of the whole column."""
        same_before = self.done == 0 or (style.decimal == "." and style.sign != PER_CENT)
        if not style.certain or not same_before:
            raise OnlyInMemoryError(
                f"{self.raw.source}: column {shortened(column)} has numbers such as {shortened(style.example)}, and "
                "what their marks mean shows only in all rows: write numbers with a decimal point and without other "
                "marks, or take a table that fits into memory."
            )
        self.styles[column] = style

    def _styled(self, column: str, cells: list[str | None]) -> list[float]:
        style = self.styles[column]
        numbers = [np.nan if cell is None else number_in_style(cell.strip(), style) for cell in cells]
        if None in numbers:
            row = numbers.index(None)
            where = f"{self._place(row)} of column {shortened(column)}"
            raise OnlyInMemoryError(
                f"{self.raw.source}: {where} holds {shortened(cells[row])}, which is not a number as those above it "
                f"are ({shortened(style.example)}): write all numbers of the column alike."
            )
        return [float(number) for number in numbers if number is not None]

    def _check_points(self, batch: Any, by_column: FloatArray) -> None:
        """Where some columns have decimal commas, a point in another one may stand between thousands."""
        if self.kind != "text" or not any(style.decimal == "," for style in self.styles.values()):
            return
        for column, values in zip(self.columns, by_column, strict=True):
            if column not in self.styles and not (values == np.rint(values)).all():
                comma = next(name for name, style in self.styles.items() if style.decimal == ",")
                raise OnlyInMemoryError(
                    f"{self.raw.source}: column {shortened(comma)} has decimal commas, and column {shortened(column)} "
                    "points, which may stand before decimals or between thousands: write all numbers alike."
                )

    def _refuse_labels(self, column: str, cells: list[Any] | None) -> None:
        remedy = f"{TEXT_REMEDY} (categories are taken from tables that fit into memory)"
        if cells is None:
            raise OnlyInMemoryError(f"{self.raw.source}: column {shortened(column)} holds labels: {remedy}.")
        row = next((row for row, cell in enumerate(cells) if cell is not None and not is_number(cell)), 0)
        where = f"{self._place(row)} of column {shortened(column)}"
        raise OnlyInMemoryError(
            f"{self.raw.source}: {where} holds {shortened(cells[row])}, which is not a number: {remedy}."
        )

    def _place(self, row: int) -> str:
        return self.raw.place(self.done + row)

    def _refuse(self, values: FloatArray) -> None:
        """Raise an error about the first row with a bad cell; only the whole file would show how many there are."""
        row = int(np.argmax(~(np.abs(values) <= LARGEST_VALUE).all(axis=1)))
        missing = np.flatnonzero(np.isnan(values[row]))
        if missing.size:
            raise OnlyInMemoryError(
                f"{self.raw.source}: a value is missing in column {shortened(self.names[missing[0]])}, in "
                f"{self._place(row)}, the first that was met: fill in what is missing, or leave out such rows or the "
                "column (a fit imputes missing values only in tables that fit into memory)."
            )
        place = self._place(row)
        check_cells(replace(self.raw, place=lambda _: place), self.names, values[row : row + 1])

    def _regimes(self, batch: Any) -> tuple[tuple[tuple[int, ...], ...], npt.NDArray[np.intp]]:
        if self.target is None:
            return ((),), np.zeros(batch.num_rows, dtype=np.intp)
        labels, codes = _labels_and_codes(batch.column(self.target))
        held = set_cells(
            labels,
            self.names,
            column=self.target_column or "",
            source=self.raw.source,
            place=partial(self._place_of_label, codes),
            left_out=left_out(self.raw, self.names, self.target_column) - set(self.contexts),
        )
        sets = [tuple(np.flatnonzero(row).tolist()) for row in held]
        targets = tuple(dict.fromkeys(sets))
        return targets, np.array([targets.index(each) for each in sets], dtype=np.intp)[codes]

    def _strata(
        self, batch: Any, targets: tuple[tuple[int, ...], ...], regime: npt.NDArray[np.intp]
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[Cells, ...], npt.NDArray[np.intp]]:
        """The sets of targets once for each environment, the environment of each, and which of them each row has."""
        number = regime
        cells: list[tuple[int, ...]] = [(own,) for own in range(len(targets))]
        by_column: list[list[str]] = []
        for column, name in zip(self.context_columns, self.contexts, strict=True):
            labels, codes = _labels_and_codes(batch.column(column))
            check_cells_named(labels, name, self.raw.source, partial(self._place_of_label, codes))
            by_column.append(labels)
            present, number = np.unique(number * len(labels) + codes, return_inverse=True)
            cells = [(*cells[both // len(labels)], both % len(labels)) for both in present.tolist()]
        sets = tuple(targets[own[0]] for own in cells)
        environments = tuple(
            tuple(labels[code] for labels, code in zip(by_column, own[1:], strict=True)) for own in cells
        )
        return sets, environments, number.astype(np.intp).reshape(-1)

    def _place_of_label(self, codes: npt.NDArray[np.intp], label: int) -> str:
        """The first row that has a label."""
        return self._place(int(np.argmax(codes == label)))

    def wanted(self) -> list[str]:
        """The columns to read, as they stand in the file, each once."""
        also = [] if self.target is None else [self.target]
        return list(dict.fromkeys([*self.columns, *also, *self.context_columns]))


def _labels_and_codes(cells: Any) -> tuple[list[str], npt.NDArray[np.intp]]:
    """The different cells of a column as text, and which of them each row has."""
    if str(cells.type).startswith("dictionary"):
        cells = cells.dictionary_decode()
    # Few labels for many rows: each is understood once.
    encoded = cells.dictionary_encode(null_encoding="encode")
    return as_labels(encoded.dictionary.to_pylist()), encoded.indices.to_numpy().astype(np.intp)
