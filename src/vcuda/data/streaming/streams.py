"""Tables that need not fit into memory, opened: files, folders of files and Dask DataFrames, in passes of blocks.

A block holds about a million cells, or 256 rows of a very wide table. A pass holds a few blocks of 8 MB, and what the
format needs: of CSV a few pieces of 4 MB, of Parquet up to 64 MB of buffers and the pages that are being read, with the
usual pages about 3 MB a column. None of it grows with the number of rows. Arrow files are mapped into memory, which the
system takes back at need; a compressed one is unpacked one record batch at a time, as its writer cut it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vcuda.data.checks import check_memory, check_rows, checked_names
from vcuda.data.columns import EVERY_COLUMN, ColumnChoice, variable_columns
from vcuda.data.files import from_path, refuse_without_header
from vcuda.data.formats import FILE_KINDS, STREAMABLE, STREAMED_KINDS, extension_of
from vcuda.data.in_memory import cells_from_arrow
from vcuda.data.messages import shortened
from vcuda.data.paths import existing_file
from vcuda.data.raw_table import Cells, RawTable
from vcuda.data.streaming.blocks import Block, BlockReader, OnProgress, Reading, silent
from vcuda.data.streaming.file_readers import FileReader
from vcuda.data.streaming.partitions import SOURCE, PartitionReader, described, is_partitioned, narrowed
from vcuda.errors import DataError

# Blocks of 8 MB: the matrix products run at full speed, and what works on a block finds most of it in the cache.
BLOCK_CELLS = 1 << 20
# Fewer rows, and adding up the squares of a wide table would cost more than making them; more bring nothing.
FEWEST_BLOCK_ROWS, MOST_BLOCK_ROWS = 256, 1 << 16


@dataclass(frozen=True)
class Stream:
    """A table on disk whose names passed every check, and whose cells are checked as they are read.

    Build it with `open_stream`. It holds no open file: every call of `blocks` is a new pass. A Dask DataFrame has
    ``tables``, to be computed, in place of files.
    """

    source: str
    names: tuple[str, ...]
    files: tuple[RawTable, ...]
    target_column: str | None = None
    notes: tuple[str, ...] = ()
    tables: tuple[Any, ...] | None = None
    contexts: tuple[str, ...] = ()

    def block_rows(self, width: int | None = None) -> int:
        """How many rows a block has, for rows that become ``width`` numbers (d unless said)."""
        fitting = BLOCK_CELLS // max(1, width or len(self.names))
        return min(max(fitting, FEWEST_BLOCK_ROWS), MOST_BLOCK_ROWS)

    def blocks(self, *, rows: int | None = None, on_progress: OnProgress = silent) -> Iterator[Block]:
        """Read the table once, in blocks of at most so many rows; ``on_progress`` is called after every block.

        Raises
        ------
        DataError
            At the first cell that is text, missing, infinite or too large, with its file, column and row; at the end
            if there were too few rows.
        """
        done = 0
        for number in range(len(self.files)):
            for block in self.blocks_of(number, start=done, rows=rows, on_progress=on_progress):
                yield block
                done = block.start + len(block.values)
        self.finish(done, on_progress=on_progress)

    def blocks_of(
        self, number: int, *, start: int, rows: int | None = None, on_progress: OnProgress = silent, table: Any = None
    ) -> Iterator[Block]:
        """Read one of the files, whose first row is row ``start`` of the table; ``table`` if it is computed already."""
        most = rows or self.block_rows()
        before, size, total = sum(self._sizes[:number]), self._sizes[number], sum(self._sizes)
        reader = self._reader(number, start, table)
        for block in reader.blocks(most, start=start):
            yield block
            share = (before + reader.share * size) / max(1, total)
            on_progress(Reading(block.start + len(block.values), min(share, 1.0)))

    def head(self, rows: int) -> Cells | None:
        """The first rows of the first file, as they were read; None of a Dask DataFrame, which would be computed."""
        import pyarrow as pa

        if self.tables is not None:
            return None
        reader = self._file_reader(0)
        with closing(reader.batches(rows)) as batches:
            first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return None
        table = pa.Table.from_batches([first.slice(0, rows)]).select(reader.columns)
        first = self.files[0]
        return cells_from_arrow(table, first.source, first.place, text_is_parsed=first.text_is_parsed)

    def finish(self, rows: int, *, on_progress: OnProgress = silent) -> None:
        """Refuse a table that turned out to be too short."""
        check_rows(self.described(), np.empty((rows, 0)))
        on_progress(Reading(rows, 1.0))

    def rows_of(self, number: int, table: Any = None) -> int:
        """How many rows one of the files has; of text all of it must be read."""
        if table is not None:
            return len(table)
        return self._file_reader(number).rows()

    @cached_property
    def _sizes(self) -> list[int]:
        """What each file adds to the work, in bytes where they are known."""
        if self.tables is not None or not all(os.path.exists(file.source) for file in self.files):
            return [1] * len(self.files)
        return [os.path.getsize(file.source) for file in self.files]

    def _reader(self, number: int, start: int, table: Any) -> BlockReader:
        if table is None and self.tables is None:
            return self._file_reader(number)
        computed = table if table is not None or self.tables is None else self.tables[number].compute()
        return PartitionReader(self.files[number], self.names, self.target_column, computed, start, self.contexts)

    def _file_reader(self, number: int) -> FileReader:
        return FileReader(self.files[number], self.names, self.target_column, self.contexts)

    def described(self) -> RawTable:
        """The whole table as the checks of small tables take one, for messages that are about no single file."""
        return replace(self.files[0], source=self.source)


def open_stream(
    data: Any,
    *,
    interventions: str | None = None,
    contexts: tuple[str, ...] = (),
    choice: ColumnChoice = EVERY_COLUMN,
) -> Stream:
    """Open a table that need not fit into memory; only its names are read, and checked as `as_dataset` does.

    Parameters
    ----------
    data
        The path of a text (also compressed), Parquet or Feather file, or of a folder of files of one kind with the
        same columns, which are read in the order of their names. Files whose name begins with a dot or an underscore
        are left out. Or a Dask DataFrame, which is read partition by partition.
    interventions
        The name of a column that says for each row what was set, as `as_dataset` takes it.
    contexts
        The columns that name the environment of each row.
    choice
        Which columns to take. The others are neither read nor checked.
    """
    if is_partitioned(data):
        refuse_without_header(choice.header, "a Dask DataFrame is")
        whole = described(data)
        names, notes = _names_of((whole,), interventions, contexts, choice)
        at = {name.strip(): k for k, name in enumerate(whole.names)}
        wanted = dict.fromkeys((*names, *(() if interventions is None else (interventions,)), *contexts))
        tables = tuple(narrowed(data, [at[name] for name in wanted]).to_delayed())
        return Stream(SOURCE, names, (whole,) * len(tables), interventions, notes, tables, contexts)
    given = Path(data).expanduser()
    paths = _files_in(given) if given.is_dir() else [existing_file(given)]
    files = tuple(from_path(each, header=choice.header) for each in paths)
    names, notes = _names_of(files, interventions, contexts, choice)
    return Stream(str(given), names, files, interventions, notes, contexts=contexts)


def _names_of(
    files: Sequence[RawTable], interventions: str | None, contexts: Sequence[str], choice: ColumnChoice
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the variables, which all files must have, and what is to be noted of them."""
    names: tuple[str, ...] = ()
    notes: dict[str, None] = {}
    for file in files:
        # Other files may lack what is left out; what they lack of the rest shows in the comparison with the first.
        kept = variable_columns(file, interventions, choice, contexts=contexts, all_known=file is files[0])
        own, remarks = checked_names(file, kept)
        names = names or own
        _check_same_names(file, own, files[0], names)
        notes |= dict.fromkeys((*file.notes, *remarks))
    check_memory(files[0], len(names))
    return names, tuple(notes)


def _files_in(folder: Path) -> list[Path]:
    """The files of a folder in the order of their names; whatever would have to be passed over is refused."""
    found = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    kinds: dict[str, str] = {}
    for entry in found:
        kind = FILE_KINDS.get(extension_of(entry)[0])
        if entry.is_dir() or kind not in STREAMED_KINDS:
            what = "a folder" if entry.is_dir() else "no table" if kind is None else f"a file of another kind ({kind})"
            raise DataError(
                f"{folder}: {shortened(entry.name)} in it is {what}: a folder that is read as one table may hold only "
                f"{STREAMABLE} files; move what is something else."
            )
        kinds.setdefault(kind, entry.name)
    if not found:
        raise DataError(
            f"{folder}: this is a folder, and it holds no files: give the path of one file, or put parts of a table "
            f"there, as {STREAMABLE}."
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
