"""Tables that need not fit into memory: files and folders of files, read block by block.

A block holds about a million cells, or 256 rows of a very wide table. A pass holds a few blocks of 8 MB, and what the
format needs: of CSV a few pieces of 4 MB, of Parquet up to 64 MB of buffers and the pages that are being read, with the
usual pages about 3 MB a column. None of it grows with the number of rows. Arrow files are mapped into memory, which the
system takes back at need; a compressed one is unpacked one record batch at a time, as its writer cut it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import LARGEST_VALUE, _is_number, check_cells, check_memory, check_rows, checked_names
from vcuda.data.files import (
    FILE_KINDS,
    READABLE,
    _arrow_reader,
    _extension,
    _refuse_ragged,
    _separator,
    _unreadable_refused,
    existing_file,
    from_path,
)
from vcuda.data.interventions import set_cells
from vcuda.data.sources import TEXT_REMEDY, FloatArray, RawTable, as_labels, cells_from_arrow, nearest, shortened
from vcuda.errors import DataError

# Blocks of 8 MB: the matrix products run at full speed, and what works on a block finds most of it in the cache.
BLOCK_CELLS = 1 << 20
# Fewer rows, and adding up the squares of a wide table would cost more than making them; more bring nothing.
FEWEST_BLOCK_ROWS, MOST_BLOCK_ROWS = 256, 1 << 16
PARQUET_BUFFERS = 1 << 26
TEXT_PIECE = 1 << 22
# Numbers of six digits with a separator; gzip makes a third of them.
TEXT_BYTES_A_CELL, TEXT_COMPRESSION = 8, 3


class Reading(NamedTuple):
    """How far a pass is: rows read so far, and the share of all bytes, between 0 and 1."""

    rows: int
    share: float


Told = Callable[[Reading], None]
# Runs a function, as ``mapped(function, items, shared=..., told=...)``, on all items somewhere else: the results of
# ``function(shared, item)`` in the order of the items.
Mapped = Callable[..., list[Any]]


def silent(reading: Reading) -> None:
    """Tell nobody."""


class Block(NamedTuple):
    """Some rows that follow each other: a new array each time, which the one who asked for it may change.

    ``values`` (n_b, d), each column contiguous; ``start``, the first row's place in the whole table; ``least`` and
    ``largest`` (d,) of these rows; ``targets``, the sets of columns that some of these rows say were set, by position,
    and ``regime`` (n_b,), which of the sets each row has. Without a column of targets there is one set, the empty one.
    """

    values: FloatArray
    start: int
    least: FloatArray
    largest: FloatArray
    targets: tuple[tuple[int, ...], ...]
    regime: npt.NDArray[np.intp]


@dataclass(frozen=True)
class Stream:
    """A table on disk whose names passed every check, and whose cells are checked as they are read.

    Build it with `open_stream`, or with `partitions.open_partitions`, which has ``tables`` to be computed in place of
    files. It holds no open file: every call of `blocks` is a new pass.
    """

    source: str
    names: tuple[str, ...]
    files: tuple[RawTable, ...]
    target_column: str | None = None
    notes: tuple[str, ...] = ()
    tables: tuple[Any, ...] | None = None

    def block_rows(self, width: int | None = None) -> int:
        """How many rows a block has, for rows that become ``width`` numbers (d unless said)."""
        fitting = BLOCK_CELLS // max(1, width or len(self.names))
        return min(max(fitting, FEWEST_BLOCK_ROWS), MOST_BLOCK_ROWS)

    def blocks(self, *, rows: int | None = None, told: Told = silent) -> Iterator[Block]:
        """Read the table once, in blocks of at most so many rows; ``told`` hears of every block that is done.

        Raises
        ------
        DataError
            At the first cell that is text, missing, infinite or too large, with its file, column and row; at the end
            if there were too few rows.
        """
        done = 0
        for number in range(len(self.files)):
            for block in self.blocks_of(number, start=done, rows=rows, told=told):
                yield block
                done = block.start + len(block.values)
        self.finish(done, told=told)

    def blocks_of(
        self, number: int, *, start: int, rows: int | None = None, told: Told = silent, table: Any = None
    ) -> Iterator[Block]:
        """Read one of the files, whose first row is row ``start`` of the table; ``table`` if it is computed already."""
        most = rows or self.block_rows()
        before, size, total = sum(self._sizes[:number]), self._sizes[number], sum(self._sizes)
        reader = self._reader(number, start, table)
        for block in reader.blocks(most, start=start):
            yield block
            share = (before + reader.share * size) / max(1, total)
            told(Reading(block.start + len(block.values), min(share, 1.0)))

    def finish(self, rows: int, *, told: Told = silent) -> None:
        """Refuse a table that turned out to be too short."""
        check_rows(self.described(), np.empty((rows, 0)))
        told(Reading(rows, 1.0))

    def rows_of(self, number: int, table: Any = None) -> int:
        """How many rows one of the files has; of text all of it must be read."""
        if table is not None:
            return len(table)
        reader = _Reader(self.files[number], self.names, self.target_column)
        with _unreadable_refused(reader.path):
            return reader.rows()

    @cached_property
    def _sizes(self) -> list[int]:
        """What each file adds to the work, in bytes where they are known."""
        if self.tables is not None or not all(os.path.exists(file.source) for file in self.files):
            return [1] * len(self.files)
        return [os.path.getsize(file.source) for file in self.files]

    def _reader(self, number: int, start: int, table: Any) -> TableReader:
        if table is None and self.tables is None:
            return _Reader(self.files[number], self.names, self.target_column)
        from vcuda.data.partitions import PartitionReader

        computed = table if table is not None or self.tables is None else self.tables[number].compute()
        return PartitionReader(self.files[number], self.names, self.target_column, computed, start)

    def described(self) -> RawTable:
        """The whole table as the checks of small tables take one, for messages that are about no single file."""
        return replace(self.files[0], source=self.source)


def open_stream(path: str | os.PathLike[str], *, interventions: str | None = None) -> Stream:
    """Open a table that need not fit into memory; only its names are read, and checked as `as_dataset` does.

    Parameters
    ----------
    path
        A CSV, TSV (also with .gz), Parquet or Feather file, or a folder of files of one kind with the same columns,
        which are read in the order of their names. Files whose name begins with a dot or an underscore are left out.
    interventions
        The name of a column that says for each row what was set, as `as_dataset` takes it.
    """
    given = Path(path).expanduser()
    paths = _files_in(given) if given.is_dir() else [existing_file(given)]
    files = tuple(from_path(each) for each in paths)
    names: tuple[str, ...] = ()
    notes: dict[str, None] = {}
    for file in files:
        every = [name.strip() for name in file.names]
        if interventions is not None and interventions not in every:
            raise DataError(
                f"{file.source}: there is no column {shortened(interventions)} that could tell what was set in each "
                f"row{nearest(interventions, every)}: give the name of such a column."
            )
        own, remarks = checked_names(file, [k for k, name in enumerate(every) if name != interventions])
        names = names or own
        _check_same_names(file, own, files[0], names)
        notes |= dict.fromkeys((*file.notes, *remarks))
    check_memory(files[0], len(names))
    return Stream(str(given), names, files, interventions, tuple(notes))


def _files_in(folder: Path) -> list[Path]:
    """The files of a folder in the order of their names; whatever would have to be passed over is refused."""
    found = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    kinds: dict[str, str] = {}
    for entry in found:
        kind = FILE_KINDS.get(_extension(entry)[0])
        if entry.is_dir() or kind is None:
            what = "a folder" if entry.is_dir() else "no table"
            raise DataError(
                f"{folder}: {shortened(entry.name)} in it is {what}: a folder that is read as one table may hold only "
                f"{READABLE} files; move what is something else."
            )
        kinds.setdefault(kind, entry.name)
    if not found:
        raise DataError(
            f"{folder}: this is a folder, and it holds no files: give the path of one file, or put parts of a table "
            f"there, as {READABLE}."
        )
    if len(kinds) > 1:
        first, other = list(kinds.values())[:2]
        raise DataError(
            f"{folder}: {shortened(first)} and {shortened(other)} are of different kinds, and might be one table saved "
            "twice: keep one kind in the folder."
        )
    return found


def _check_same_names(file: RawTable, names: Sequence[str], first: RawTable, expected: Sequence[str]) -> None:
    lacking = [name for name in expected if name not in set(names)]
    surplus = [name for name in names if name not in set(expected)]
    if lacking:
        fault = f"has no column {shortened(lacking[0])}, and {first.source} has one"
    elif surplus:
        fault = f"has a column {shortened(surplus[0])}, and {first.source} has none"
    else:
        return
    raise DataError(f"{file.source}: the file {fault}: give all files of a folder the same columns.")


# One file ---------------------------------------------------------------------------------------------------


def cells_on_disk(path: Path) -> float:
    """About how many cells a file holds: of text by its size, of Arrow's formats by what they say."""
    extension, compressed = _extension(path)
    kind = FILE_KINDS.get(extension)
    if kind == "text":
        return path.stat().st_size / TEXT_BYTES_A_CELL * (TEXT_COMPRESSION if compressed else 1)
    if kind is None:
        return 0.0
    with _unreadable_refused(path), open(path, "rb") as file:
        if kind == "parquet":
            from pyarrow.parquet import ParquetFile

            told = ParquetFile(file).metadata
            return float(told.num_rows * told.num_columns)
        columns = len(_arrow_reader(file, kind).schema.names)
    return max(path.stat().st_size / 8, float(columns))


class TableReader:
    """One pass over a part of a table: ``done`` rows so far, and the ``share`` of the part that they are."""

    kind: str

    def __init__(self, raw: RawTable, names: Sequence[str], target_column: str | None) -> None:
        self.raw, self.names, self.target_column = raw, names, target_column
        # As they stand in the file, which may have spaces around names, and another order than the first file.
        written = {name.strip(): name for name in raw.names}
        self.columns = [written[name] for name in names]
        self.target = None if target_column is None else written[target_column]
        self.done, self.share = 0, 0.0

    def batches(self, most: int) -> Iterator[Any]:
        """Record batches of Arrow, of about so many rows or of as many as the format has."""
        raise NotImplementedError

    def blocks(self, most: int, *, start: int) -> Iterator[Block]:
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
        least, largest = by_column.min(axis=1), by_column.max(axis=1)
        # One comparison that is false for NaN finds every bad cell; which it was is asked afterwards.
        if not ((least >= -LARGEST_VALUE) & (largest <= LARGEST_VALUE)).all():
            self._refuse(by_column.T)
        targets, regime = self._regimes(batch)
        return Block(by_column.T, start + self.done, least, largest, targets, regime)

    def _numbers(self, batch: Any, column: str) -> Any:
        import pyarrow as pa

        cells = batch.column(column)
        if str(cells.type) == "double" and cells.null_count == 0:
            return cells.to_numpy()
        if self.kind == "text" and str(cells.type) == "string":
            try:
                return cells.cast("float64").to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                pass  # what Arrow does not take, such as +1.5, is read as a small table is, or refused with its row
        table = pa.Table.from_arrays([cells], names=[column])
        read = cells_from_arrow(table, self.raw.source, self._place, text_is_parsed=self.kind == "text")
        if read.kinds[0] == "labels":
            self._refuse_labels(column, None if str(cells.type).startswith("dictionary") else cells.to_pylist())
        return read.values[:, 0]

    def _refuse_labels(self, column: str, cells: list[Any] | None) -> None:
        remedy = f"{TEXT_REMEDY} (categories are taken from tables that fit into memory)"
        if cells is None:
            raise DataError(f"{self.raw.source}: column {shortened(column)} holds categories: {remedy}.")
        row = next((row for row, cell in enumerate(cells) if cell is not None and not _is_number(cell)), 0)
        where = f"{self._place(row)} of column {shortened(column)}"
        raise DataError(f"{self.raw.source}: {where} holds {shortened(cells[row])}, which is not a number: {remedy}.")

    def _place(self, row: int) -> str:
        return self.raw.place(self.done + row)

    def _refuse(self, values: FloatArray) -> None:
        """Tell of the first row with a bad cell; how many more there are, only the whole file could say."""
        row = int(np.argmax(~(np.abs(values) <= LARGEST_VALUE).all(axis=1)))
        missing = np.flatnonzero(np.isnan(values[row]))
        if missing.size:
            raise DataError(
                f"{self.raw.source}: a value is missing in column {shortened(self.names[missing[0]])}, in "
                f"{self._place(row)}, the first that was met: fill in what is missing, or leave out such rows or the "
                "column."
            )
        place = self._place(row)
        check_cells(replace(self.raw, place=lambda _: place), self.names, values[row : row + 1])

    def _regimes(self, batch: Any) -> tuple[tuple[tuple[int, ...], ...], npt.NDArray[np.intp]]:
        if self.target is None:
            return ((),), np.zeros(batch.num_rows, dtype=np.intp)
        cells = batch.column(self.target)
        if str(cells.type).startswith("dictionary"):
            cells = cells.dictionary_decode()
        # Few labels for many rows: each is understood once.
        encoded = cells.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.intp)
        held = set_cells(
            as_labels(encoded.dictionary.to_pylist()),
            self.names,
            column=self.target_column or "",
            source=self.raw.source,
            place=lambda label: self._place(int(np.argmax(codes == label))),
        )
        sets = [tuple(np.flatnonzero(row).tolist()) for row in held]
        targets = tuple(dict.fromkeys(sets))
        return targets, np.array([targets.index(each) for each in sets], dtype=np.intp)[codes]

    def _wanted(self) -> list[str]:
        return self.columns if self.target is None else [*self.columns, self.target]


class _Reader(TableReader):
    """One pass over one file."""

    def __init__(self, raw: RawTable, names: Sequence[str], target_column: str | None) -> None:
        super().__init__(raw, names, target_column)
        self.path = Path(raw.source)
        self.kind = FILE_KINDS[_extension(self.path)[0]]

    def batches(self, most: int) -> Iterator[Any]:
        read = {"text": self._text_batches, "parquet": self._parquet_batches, "arrow": self._arrow_batches}[self.kind]
        batches = read(most)
        while True:
            with _unreadable_refused(self.path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def rows(self) -> int:
        """How many rows the file has."""
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile

        if self.kind == "parquet":
            with ParquetFile(str(self.path)) as file:
                return int(file.metadata.num_rows)
        if self.kind == "arrow":
            return sum(batch.num_rows for batch in self._arrow_batches(MOST_BLOCK_ROWS))
        return sum(batch.num_rows for batch in self._text_pieces(dict.fromkeys(self._wanted(), pa.string())))

    def _parquet_batches(self, most: int) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        # Buffered streams read a row group piece by piece. Without them all of it is loaded, and Arrow's datasets load
        # several at once: for 2 million rows of 20 columns they took 780 MB where this takes 240, and were slower.
        buffer = min(1 << 20, max(1 << 13, PARQUET_BUFFERS // len(self.columns)))
        with ParquetFile(str(self.path), buffer_size=buffer, pre_buffer=False) as file:
            total, read = file.metadata.num_rows, 0
            for batch in file.iter_batches(batch_size=most, columns=self._wanted()):
                read += batch.num_rows
                self.share = read / total
                yield batch

    def _arrow_batches(self, most: int) -> Iterator[Any]:
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as file:
            reader = _arrow_reader(file, "arrow")
            if not hasattr(reader, "num_record_batches"):
                for batch in reader:
                    self.share = file.tell() / file.size()
                    batch.validate(full=True)  # offsets and codes must lie inside their buffers
                    yield batch
                return
            for number in range(reader.num_record_batches):
                self.share = (number + 1) / reader.num_record_batches
                batch = reader.get_batch(number)
                batch.validate(full=True)
                yield batch

    def _text_batches(self, most: int) -> Iterator[Any]:
        """Cells as numbers; from where Arrow finds one that is none, all as text, which is parsed or refused later."""
        import pyarrow as pa

        read = 0
        try:
            for batch in self._text_pieces(self._text_types()):
                read += batch.num_rows
                yield batch
            return
        except pa.ArrowInvalid:
            pass
        try:
            for batch in self._text_pieces(dict.fromkeys(self._wanted(), pa.string())):
                skipped = min(read, batch.num_rows)
                read -= skipped
                yield batch.slice(skipped)
        except pa.ArrowInvalid:
            _refuse_ragged(self.path, len(self.raw.names))
            raise

    def _text_types(self) -> dict[str, Any]:
        """Numbers wherever the first piece has numbers or nothing; of other columns what Arrow takes them for."""
        import pyarrow as pa

        with closing(self._text_pieces({})) as pieces:
            first = next(pieces, None)
        types = {} if first is None else {field.name: field.type for field in first.schema}
        numeric = [name for name, kind in types.items() if str(kind) in {"int64", "double", "null"}]
        types |= dict.fromkeys(numeric, pa.float64())
        return types | ({} if self.target is None else {self.target: pa.string()})

    def _text_pieces(self, types: dict[str, Any]) -> Generator[Any, None, None]:
        import pyarrow as pa
        from pyarrow import csv

        with pa.OSFile(str(self.path)) as file:
            size = file.size()
            compressed = self.path.suffix.lower() == ".gz"
            pieces = csv.open_csv(
                pa.CompressedInputStream(file, "gzip") if compressed else file,
                # A piece must hold a whole line; 64 characters a cell are more than a number ever needs.
                read_options=csv.ReadOptions(block_size=max(TEXT_PIECE, 64 * len(self.raw.names))),
                parse_options=csv.ParseOptions(delimiter=_separator(self.path), newlines_in_values=True),
                convert_options=csv.ConvertOptions(
                    strings_can_be_null=True, include_columns=self._wanted(), column_types=types
                ),
            )
            with pieces:
                for batch in pieces:
                    self.share = file.tell() / size
                    yield batch
