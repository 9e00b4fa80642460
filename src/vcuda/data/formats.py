"""File formats: which extension means which, how files are opened, and the errors for those that cannot be read."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from vcuda.data.checks import CELL_COPIES
from vcuda.data.messages import HOW_TO_CHOOSE
from vcuda.errors import DataError
from vcuda.memory import memory_available

FILE_KINDS = {
    ".csv": "text",
    ".tsv": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".ipc": "arrow",
}
# What readers raise about content that is not what it should be; Arrow's own errors are among them.
UNREADABLE = (
    OSError,
    EOFError,
    zlib.error,
    csv.Error,
    ValueError,
    LookupError,
    TypeError,
    NotImplementedError,
    MemoryError,
)
LONGEST_REASON = 200
# Characters of a line, or of all lines that a cell in quotes goes over: 100,000 names of 160 letters.
LONGEST_RECORD = 1 << 24
# A line counts as so many characters more, since going on to the next takes time as well: 16 million blank ones, which
# a small archive can hold, would take half a minute.
LINE_COST = 64
# What ends a cell; decimal commas are counted with them, which errs on the safe side.
CELL_ENDS = (b",", b";", b"\t", b"\n", b"\r")
# Deflate makes a byte out of no less than 1/1032 of one.
HIGHEST_COMPRESSION = 1032
# How the two forms of Arrow's files begin.
ARROW_FILE, ARROW_STREAM = b"ARROW1", b"\xff\xff\xff\xff"
TABLE_ENDINGS = (*FILE_KINDS, *(f"{ending}.gz" for ending, kind in FILE_KINDS.items() if kind == "text"))
READABLE = f"CSV, TSV, Parquet or Feather ({', '.join(TABLE_ENDINGS)})"


def extension_of(path: Path) -> tuple[str, bool]:
    """The extension of a file in lower case, without .gz, and whether the file is compressed (.gz)."""
    compressed = path.suffix.lower() == ".gz"
    return (Path(path.stem) if compressed else path).suffix.lower(), compressed


def has_table_ending(path: Path) -> bool:
    """Whether the extension of a file names a format that can be read."""
    extension, compressed = extension_of(path)
    return f"{extension}.gz" in TABLE_ENDINGS if compressed else extension in TABLE_ENDINGS


@contextmanager
def unreadable_refused(path: Path) -> Iterator[None]:
    """A sentence in place of what readers raise about the content of a file."""
    try:
        yield
    except UNREADABLE as error:
        line = _undecodable_line(path) if isinstance(error, UnicodeDecodeError) else None
        if line is not None:
            raise DataError(
                f"{path}: line {line:,} is not UTF-8 text: save the file as UTF-8, or read it with "
                "pandas.read_csv(..., encoding=...) and pass that table."
            ) from None
        reason = str(getattr(error, "strerror", None) or str(error).split("\n")[0].rstrip("."))
        reason = reason[:LONGEST_REASON] or "it asks for more memory than there is"
        raise DataError(
            f"{path}: the file cannot be read ({reason}): check that it is complete, that its extension names "
            "its format, and that you may open it."
        ) from None


def _undecodable_line(path: Path) -> int | None:
    """The first line of a text file that is not UTF-8; None where the file is no text, or cannot be read so far."""
    if FILE_KINDS.get(extension_of(path)[0], "text") != "text":
        return None
    line, decoder = 1, codecs.getincrementaldecoder("utf-8")()
    try:
        with _open_bytes(path) as content:
            while block := content.read(1 << 20):
                decoder.decode(block)
                line += block.count(b"\n")
    except UnicodeDecodeError as error:
        return line + error.object[: error.start].count(b"\n")
    except UNREADABLE:
        return None
    return line


# Text ---------------------------------------------------------------------------------------------------------


def check_text_size(path: Path, *, share: float = 1.0) -> None:
    """Refuse text whose cells the memory cannot hold, also where a small archive unfolds to it.

    ``share`` is that of the columns that are wanted.
    """
    available, cell = memory_available() / share, 8 * CELL_COPIES
    most_text = path.stat().st_size * (HIGHEST_COMPRESSION if extension_of(path)[1] else 1)
    if (1 + cell) * most_text <= available:  # even if it has nothing but empty cells
        return
    needed = 0
    with unreadable_refused(path), _open_bytes(path) as content:
        while needed <= available and (block := content.read(1 << 20)):
            needed += len(block) + cell * sum(map(block.count, CELL_ENDS))
    if needed > available:
        raise DataError(
            f"{path}: the cells of the table would need more than the {share * available / 1e9:,.2g} GB of memory "
            f"that are free: take fewer rows or columns {HOW_TO_CHOOSE}, or use a machine with more memory."
        )


def unpacked_cells(path: Path, *, enough: float) -> float:
    """About how many cells a compressed text holds: counted up to ``enough``, beyond that by the part that is left."""
    found = 0
    with unreadable_refused(path), open(path, "rb") as packed, gzip.open(packed) as content:
        while block := content.read(1 << 20):
            found += sum(map(block.count, CELL_ENDS))
            if found > enough:
                return found * max(1.0, path.stat().st_size / max(1, packed.tell()))
    return float(found)


def text_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV or TSV file, each with the line on which it ends; blank lines are left out."""
    with unreadable_refused(path):
        separator = separator_of(path)
        with _open_text(path) as lines:
            bounded = _BoundedLines(lines)
            reader = csv.reader(bounded, delimiter=separator)
            for record in reader:
                if record:
                    bounded.left = LONGEST_RECORD
                    yield reader.line_num, record


class _BoundedLines:
    """The lines of a text, of which those of one record, and blank ones, must not go on for ever."""

    def __init__(self, text: IO[str]) -> None:
        self._text, self.left = text, LONGEST_RECORD

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(self.left + 1):
            self.left -= len(line) + LINE_COST
            if self.left < 0:
                raise ValueError(f"one of its lines has more than {LONGEST_RECORD:,} characters, or too many are blank")
            yield line


def separator_of(path: Path) -> str:
    """Tab for TSV, otherwise the first of comma, semicolon and tab that the header has outside quotes."""
    if extension_of(path)[0] == ".tsv":
        return "\t"
    with _open_text(path) as text:
        first = next((line for line in _BoundedLines(text) if line.strip()), "")
    unquoted = re.sub(r'"[^"]*"', "", first)
    return next((mark for mark in ",;\t" if mark in unquoted), ",")


def _open_text(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _open_bytes(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")  # type: ignore[return-value]


def refuse_ragged(path: Path, width: int, *, header: bool) -> None:
    """Refuse a text with a line that has more or fewer cells than the first one, which is said to have ``width``."""
    expected, given = (f"the header has {width:,} names", "names") if header else (f"the first has {width:,}", "in it")
    for number, (line, record) in enumerate(text_records(path)):
        if len(record) != width:
            remedy = f"give every line as many cells as there are {given}"
            if header and number == 1 and len(record) == width + 1:
                remedy += " (R writes row names that have no name: use write.csv with row.names = FALSE)"
            cells = "one cell" if len(record) == 1 else f"{len(record):,} cells"
            raise DataError(f"{path}: line {line:,} has {cells} where {expected}: {remedy}.")


# Arrow and Parquet --------------------------------------------------------------------------------------------


def mapped_file(path: Path) -> Any:
    """The file as Arrow maps it: a length that the file only claims to have then takes no memory."""
    import pyarrow as pa

    return pa.memory_map(str(path))


class _ParquetReader:
    """Parquet with the two words of an Arrow reader: the schema at once, the cells when asked."""

    def __init__(self, file: Any, columns: Sequence[str] | None) -> None:
        from pyarrow.parquet import ParquetFile

        self._file, self._columns = ParquetFile(file), columns
        self.schema = self._file.schema_arrow

    def count_rows(self) -> int:
        return int(self._file.metadata.num_rows)

    def read_all(self) -> Any:
        # Arrow brings what begins with such a name and a dot as well.
        return self._file.read(columns=self._columns)


def arrow_reader(file: Any, kind: str, columns: Sequence[str] | None = None) -> Any:
    """A reader of a file that Arrow has mapped: its ``schema`` at once, the cells by ``read_all``.

    Of a file with other columns than those that are named it may bring some of the others, and reads no more.
    """
    if kind == "parquet":
        return _ParquetReader(file, columns)
    import pyarrow as pa

    start = file.read(8)
    file.seek(0)
    is_file = start.startswith(ARROW_FILE)
    # Streams of before 2019 begin with the length of the schema, which the file must hold.
    if not is_file and not start.startswith(ARROW_STREAM) and int.from_bytes(start[:4], "little") > file.size():
        raise ValueError("it has no mark of an Arrow or Feather file")
    opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
    reader = opened(file)
    every = reader.schema.names  # once: Arrow makes a new list each time
    wanted = set(every if columns is None else columns)
    fields = [k for k, name in enumerate(every) if name in wanted]
    if len(fields) in (0, len(every)):  # Arrow takes a list of none for one of all
        return reader
    file.seek(0)
    return opened(file, options=pa.ipc.IpcReadOptions(included_fields=fields))
