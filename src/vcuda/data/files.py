"""Tables in files: CSV, TSV, Parquet and Feather, the header first and the cells when asked."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from vcuda.data.sources import (
    Cells,
    RawTable,
    as_labels,
    cells_from_arrow,
    columns_without_index,
    data_row,
    nearest,
)
from vcuda.errors import DataError

FILE_KINDS = {
    ".csv": "text",
    ".tsv": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".ipc": "arrow",
}
READABLE = "CSV, TSV, Parquet or Feather (.csv, .tsv, .csv.gz, .tsv.gz, .parquet, .feather, .arrow)"


def existing_file(path: Path, *, also_known: Iterable[str] = ()) -> Path:
    """The path of a file that is there; what is near is suggested when it is not."""
    path = path.expanduser()
    if path.is_dir():
        raise DataError(f"{path}: this is a folder, not a file: give the path of one file in it.")
    if path.is_file():
        return path
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist: check the path.")
    beside = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    hint = nearest(path.name, [*beside, *also_known])
    raise DataError(f"{path}: there is no such file{hint}: check the path.")


def from_path(path: Path, *, also_known: Iterable[str] = ()) -> RawTable:
    """A table in a file, its format told by the extension."""
    path = existing_file(path, also_known=also_known)
    extension, compressed = _extension(path)
    kind = FILE_KINDS.get(extension)
    if kind is None or (compressed and kind != "text"):
        ending = "".join(path.suffixes[-2:]) if compressed else path.suffix
        raise DataError(f"{path}: the extension {ending!r} tells no known format: save the table as {READABLE}.")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty: a table needs a line of names and rows of numbers.")
    return _from_text(path) if kind == "text" else _from_arrow_file(path, kind)


def _extension(path: Path) -> tuple[str, bool]:
    compressed = path.suffix.lower() == ".gz"
    return (Path(path.stem) if compressed else path).suffix.lower(), compressed


def text_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV or TSV file, each with the line on which it ends; blank lines are left out."""
    with _unreadable_refused(path):
        separator = _separator(path)
        with _open_text(path) as lines:
            reader = csv.reader(lines, delimiter=separator)
            for record in reader:
                if record:
                    yield reader.line_num, record


def _separator(path: Path) -> str:
    """Tab for TSV, otherwise the first of comma, semicolon and tab that the header has outside quotes."""
    if _extension(path)[0] == ".tsv":
        return "\t"
    with _open_text(path) as lines:
        first = next((line for line in lines if line.strip()), "")
    unquoted = re.sub(r'"[^"]*"', "", first)
    return next((mark for mark in ",;\t" if mark in unquoted), ",")


def _open_text(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


@contextmanager
def _unreadable_refused(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: line {_undecodable_line(path):,} is not UTF-8 text: save the file as UTF-8, or read it "
            "with pandas.read_csv(..., encoding=...) and pass that table."
        ) from None
    except (OSError, EOFError, zlib.error, csv.Error, ValueError) as error:  # Arrow's errors are ValueErrors
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0].rstrip(".")
        raise DataError(
            f"{path}: the file cannot be read ({reason}): check that it is whole, that its extension tells "
            "its format, and that you may open it."
        ) from None


def _undecodable_line(path: Path) -> int:
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


def _from_text(path: Path) -> RawTable:
    _, header = next(text_records(path), (0, []))
    if not header or (len(header) == 1 and not header[0].strip()):
        raise DataError(f"{path}: the file is empty: a table needs a line of names and rows of numbers.")
    names = tuple(header)

    def place(row: int) -> str:
        # The file is read again only when a message needs the line: quoted line breaks and blank lines count.
        for index, (line, _) in enumerate(text_records(path), start=-1):
            if index == row:
                return f"{data_row(row)} (line {line:,} of the file)"
        return data_row(row)

    def read(columns: Sequence[int]) -> Cells:
        table = _read_text(path, width=len(names)).select(list(columns))
        return cells_from_arrow(table, str(path), place, text_is_parsed=True)

    def labels(column: int) -> list[str]:
        records = text_records(path)
        next(records)
        return as_labels(record[column] for _, record in records)

    return RawTable(str(path), names, read, labels, place, has_header_line=True)


def _read_text(path: Path, *, width: int) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with _unreadable_refused(path):
        try:
            return arrow_csv.read_csv(
                str(path),
                # A block must hold a whole line; 64 characters a cell are more than a number ever needs.
                read_options=arrow_csv.ReadOptions(block_size=max(1 << 22, 64 * width)),
                parse_options=arrow_csv.ParseOptions(delimiter=_separator(path), newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(strings_can_be_null=True),
            )
        except pa.ArrowInvalid:
            _refuse_ragged(path, width)
            raise


def _refuse_ragged(path: Path, width: int) -> None:
    for number, (line, record) in enumerate(text_records(path)):
        if len(record) != width:
            remedy = "give every line as many cells as there are names"
            if number == 1 and len(record) == width + 1:
                remedy += " (R writes row names that have no name: use write.csv with row.names = FALSE)"
            cells = "one cell" if len(record) == 1 else f"{len(record):,} cells"
            raise DataError(f"{path}: line {line:,} has {cells} where the header has {width:,} names: {remedy}.")


def _from_arrow_file(path: Path, kind: str) -> RawTable:
    with _unreadable_refused(path), open(path, "rb") as file:
        schema = _arrow_reader(file, kind).schema
    kept, names, notes = columns_without_index(schema)

    def table(columns: Sequence[int]) -> Any:
        with _unreadable_refused(path), open(path, "rb") as file:
            return _arrow_reader(file, kind).read_all().select([kept[k] for k in columns])

    return RawTable(
        str(path),
        names,
        lambda columns: cells_from_arrow(table(columns), str(path), data_row),
        lambda column: as_labels(table([column]).column(0).to_pylist()),
        data_row,
        notes=notes,
    )


class _ParquetReader:
    """Parquet with the two words of an Arrow reader: the schema at once, the cells when asked."""

    def __init__(self, file: IO[bytes]) -> None:
        from pyarrow.parquet import ParquetFile

        self._file = ParquetFile(file)
        self.schema = self._file.schema_arrow

    def read_all(self) -> Any:
        return self._file.read()


def _arrow_reader(file: IO[bytes], kind: str) -> Any:
    if kind == "parquet":
        return _ParquetReader(file)
    import pyarrow as pa

    try:
        return pa.ipc.open_file(file)
    except pa.ArrowInvalid:
        file.seek(0)
        return pa.ipc.open_stream(file)
