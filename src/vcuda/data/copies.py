"""Copies of tables in a temporary folder, for what readers cannot seek in or Arrow cannot read: pipes, archives,
workbooks, databases. They are there until the process ends."""

from __future__ import annotations

import atexit
import datetime
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from vcuda.data.examination import TableError
from vcuda.data.files import TEXT_IS_PARSED
from vcuda.errors import DataError, VcudaError
from vcuda.interrupts import ANSWER
from vcuda.memory import memory_available

PIECE = 1 << 20
# Rows that are taken at a time.
BATCH_ROWS = 10_000
# A copy of a small file may have so many bytes, and that of a larger one so many for each of its own: a view in a
# database of somebody else may have rows without end.
LEAST_ROOM, MOST_UNFOLDED = 1 << 29, 100
TEMPORAL = (datetime.date, datetime.time, datetime.timedelta)  # a datetime is a date


# Folders and bytes --------------------------------------------------------------------------------------------


def temporary_folder() -> Path:
    """A new folder that is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="vcuda-"))

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    ANSWER.unfinished.append(remove)
    return folder


def copy_bytes(content: IO[bytes], copy: Path, source: str, *, most: int | None = None) -> None:
    """Copy all that comes; refuse more than memory and disk have room for, or than ``most``."""
    most = min(memory_available(), shutil.disk_usage(copy.parent).free // 2) if most is None else most
    try:
        with open(copy, "wb") as file:
            while block := content.read(PIECE):
                file.write(block)
                if file.tell() > most:
                    raise DataError(
                        f"{source}: more than {most / 1e9:,.2g} GB come out of it, which is what memory and "
                        f"{copy.parent.parent} have room for: save the table to a file that needs no copy (CSV, "
                        "Parquet)."
                    )
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


@contextmanager
def named_as_given(copies: Sequence[Path], given: str) -> Iterator[None]:
    """Messages about copies name what was given."""
    try:
        yield
    except VcudaError as error:

        def renamed(text: str) -> str:
            for copy in reversed(copies):
                text = text.replace(str(copy), given)
            return text

        error.args = tuple(renamed(each) if isinstance(each, str) else each for each in error.args)
        if isinstance(error, TableError):
            error.faults = tuple(map(renamed, error.faults))
        raise


# Tables -------------------------------------------------------------------------------------------------------


class ArrowCopy:
    """An Arrow file that grows batch by batch; where a later batch does not fit its types, it is written again.

    Columns go by their positions, so that two of one name are not mixed up. It may take half of what is free on the
    disk, and of a file of ``size`` bytes no more than a file of that size holds.
    """

    def __init__(self, folder: Path, source: str, *, size: int | None = None) -> None:
        self.path, self._source = folder / "table.arrow", source
        self._names: list[str] = []
        self._types: list[Any] = []
        self._writer: Any = None
        self._file: Any = None
        self.rows = 0
        self._room = shutil.disk_usage(folder).free // 2
        if size is not None:
            self._room = min(self._room, LEAST_ROOM + MOST_UNFOLDED * size)

    def add(self, names: Sequence[str], columns: Sequence[Any]) -> None:
        """Add rows, as arrays of Arrow; names may become more, and those that a batch lacks are missing in it."""
        import pyarrow as pa

        arrays = [_plain(column) for column in columns]
        rows = len(arrays[0]) if arrays else 0
        types = [
            _wider(self._types[k], array.type) if k < len(self._types) else array.type for k, array in enumerate(arrays)
        ]
        types += self._types[len(types) :]
        if self._writer is None or types != self._types or len(names) > len(self._names):
            self._names = [*names, *self._names[len(names) :]]
            self._rewrite(types)
        if not rows:
            return
        arrays += [pa.nulls(rows, kind) for kind in self._types[len(arrays) :]]
        schema = self._writer_schema
        batch = [_cast(array, kind) for array, kind in zip(arrays, self._types, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(batch, schema=schema))
        self.rows += rows
        if self._file.tell() > self._room:
            self.close()
            raise DataError(
                f"{self._source}: a copy of the table would take more than {self._room / 1e9:,.2g} GB, which is more "
                f"than such a file should hold, or half of what is free in {self.path.parent.parent}: take fewer rows "
                "or columns, or save the table as Parquet."
            )

    def relabel(self, relabelled: dict[int, tuple[Any, Callable[[Any], Any]]]) -> None:
        """Write the file again with new fields, by position, each with what turns the old column into it."""
        if relabelled:
            self._rewrite(self._types, relabelled)

    def finish(self) -> Path:
        """The file, complete."""
        if self._writer is None:
            self._rewrite([])
        self.close()
        return self.path

    def close(self) -> None:
        if self._file is not None and not self._file.closed:
            self._writer.close()
            self._file.close()

    def _rewrite(self, types: list[Any], relabelled: dict[int, tuple[Any, Callable[[Any], Any]]] | None = None) -> None:
        """Begin the file, or write it again with other columns."""
        import pyarrow as pa

        before, relabelled = self._writer is not None, relabelled or {}
        self.close()
        old = self.path.with_name("before.arrow")
        if before:
            self.path.rename(old)
        self._types = types
        fields = [pa.field(name, kind) for name, kind in zip(self._names, types, strict=True)]
        fields = [relabelled[k][0] if k in relabelled else field for k, field in enumerate(fields)]
        self._writer_schema = pa.schema(fields, metadata=TEXT_IS_PARSED)
        self._file = pa.OSFile(str(self.path), "wb")
        self._writer = pa.ipc.new_file(self._file, self._writer_schema)
        if not before:
            return
        with pa.memory_map(str(old)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                arrays = [_cast(array, kind) for array, kind in zip(batch.columns, types, strict=False)]
                arrays += [pa.nulls(batch.num_rows, kind) for kind in types[len(arrays) :]]
                arrays = [relabelled[k][1](array) if k in relabelled else array for k, array in enumerate(arrays)]
                self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._writer_schema))
        old.unlink()


def arrow_column(cells: Sequence[Any]) -> Any:
    """Cells of Python as an array of Arrow: numbers if all are numbers, text where there is some.

    Dates and times have their type and no values, since no fit uses them. What is neither, such as a list, has a type
    that is refused.
    """
    import pyarrow as pa

    kinds = set(map(type, cells)) - {type(None)}
    if not kinds:
        return pa.nulls(len(cells))
    if kinds == {bool}:
        return pa.array(cells, pa.bool_())
    if all(issubclass(kind, int | float | Decimal) for kind in kinds):
        if all(issubclass(kind, int) for kind in kinds):
            try:
                return pa.array(cells, pa.int64())
            except (OverflowError, pa.ArrowInvalid):
                pass  # a number of many digits
        return pa.array([None if cell is None else _float(cell) for cell in cells], pa.float64())
    if all(issubclass(kind, TEMPORAL) for kind in kinds):
        return pa.nulls(len(cells), pa.timestamp("us"))
    if any(not issubclass(kind, (str, int, float, Decimal, *TEMPORAL)) for kind in kinds):
        return pa.array([None if cell is None else [str(cell)] for cell in cells], pa.list_(pa.string()))
    return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf")


def _plain(column: Any) -> Any:
    """An array without what files and passes over them need not know: dictionaries, and other sizes of text."""
    if hasattr(column, "combine_chunks") and hasattr(column, "num_chunks"):
        column = column.combine_chunks()
    kind = str(column.type)
    if kind.startswith("dictionary"):
        column, kind = column.dictionary_decode(), str(column.type.value_type)
    return column.cast("string") if kind in ("large_string", "string_view") else column


def _wider(first: Any, second: Any) -> Any:
    """A type that holds what both hold."""
    import pyarrow as pa

    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    nested = [kind for kind in (first, second) if pa.types.is_nested(kind) or pa.types.is_binary(kind)]
    if nested:
        return nested[0]
    if all(_is_number(kind) for kind in (first, second)):
        return pa.int64() if all(map(pa.types.is_signed_integer, (first, second))) else pa.float64()
    return pa.string()


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    )


def _cast(array: Any, kind: Any) -> Any:
    import pyarrow as pa

    if array.type == kind:
        return array
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return pa.nulls(len(array), kind)  # refused by its type
    if pa.types.is_boolean(array.type) and kind == pa.float64():
        array = array.cast("uint8")
    return array.cast(kind, safe=False)
