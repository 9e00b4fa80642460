"""File formats: which extension means which, how files are opened, and the errors for those that cannot be read."""

from __future__ import annotations

import codecs
import csv
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vcuda.data.packing import PACKINGS, packing_of, unpacked
from vcuda.errors import DataError

try:
    import lzma

    LZMA_ERRORS: tuple[type[Exception], ...] = (lzma.LZMAError,)
except ImportError:  # Python was built without it
    LZMA_ERRORS = ()

# What Arrow reads where it is, piece by piece.
STREAMED_KINDS = ("text", "parquet", "arrow")
FILE_KINDS = {
    ".csv": "text",
    ".tsv": "text",
    ".txt": "text",
    ".dat": "text",
    ".tab": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".ipc": "arrow",
    # All others are copied to an Arrow file first.
    ".xlsx": "workbook",
    ".xlsm": "workbook",
    ".ods": "workbook",
    ".json": "json",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
    ".sav": "statistics",
    ".zsav": "statistics",
    ".dta": "statistics",
    ".sas7bdat": "statistics",
    ".xpt": "statistics",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".duckdb": "duckdb",
}
ARCHIVE = ".zip"
# What readers raise about content that is not what it should be; Arrow's own errors are among them.
UNREADABLE: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    zlib.error,
    *LZMA_ERRORS,
    csv.Error,
    ValueError,
    LookupError,
    TypeError,
    NotImplementedError,
    MemoryError,
    zipfile.BadZipFile,
)
LONGEST_REASON = 200
# How the two forms of Arrow's files begin.
ARROW_FILE, ARROW_STREAM = b"ARROW1", b"\xff\xff\xff\xff"
# What the first bytes say of a format.
BEGINNINGS = {
    b"\x1f\x8b": ".csv.gz",
    b"BZh": ".csv.bz2",
    b"\xfd7zXZ\x00": ".csv.xz",
    b"\x28\xb5\x2f\xfd": ".csv.zst",
    b"PAR1": ".parquet",
    ARROW_FILE: ".feather",
    ARROW_STREAM: ".arrow",
    b"SQLite format 3\x00": ".sqlite",
    b"$FL2": ".sav",
    b"$FL3": ".zsav",
    b"<stata_dta>": ".dta",
    b"PK\x03\x04": ARCHIVE,
}
# What an archive holds that is a spreadsheet.
WORKBOOK_PARTS = {"xl/workbook.xml": ".xlsx", "content.xml": ".ods"}
# DuckDB has a checksum before its mark.
DUCKDB_MARK = slice(8, 12), b"DUCK"
STREAMED_ENDINGS = (
    *(ending for ending, kind in FILE_KINDS.items() if kind in STREAMED_KINDS),
    *(f"{ending}{packing}" for ending, kind in FILE_KINDS.items() if kind == "text" for packing in PACKINGS),
)
TABLE_ENDINGS = (*STREAMED_ENDINGS, *(ending for ending in FILE_KINDS if ending not in STREAMED_ENDINGS), ARCHIVE)
READABLE = (
    "CSV, Excel, Parquet, Feather, JSON, SPSS, Stata, SAS, SQLite or DuckDB "
    f"({', '.join([*FILE_KINDS, ARCHIVE])}; each also compressed, {', '.join(PACKINGS)})"
)
STREAMABLE = f"CSV, TSV, Parquet or Feather ({', '.join(STREAMED_ENDINGS[:10])})"


def extension_of(path: Path) -> tuple[str, bool]:
    """The extension of a file in lower case, without that of its compression, and whether it is compressed."""
    compressed = bool(packing_of(path))
    return (Path(path.stem) if compressed else path).suffix.lower(), compressed


def has_table_ending(path: Path) -> bool:
    """Whether the extension of a file names a format that can be read."""
    extension, compressed = extension_of(path)
    return extension in FILE_KINDS or (extension == ARCHIVE and not compressed)


def guessed_ending(path: Path) -> str | None:
    """The ending that the first bytes of a file call for; None where they say nothing."""
    with open(path, "rb") as file:
        first = file.read(64)
    if first[DUCKDB_MARK[0]] == DUCKDB_MARK[1]:
        return ".duckdb"
    ending = next((ending for mark, ending in BEGINNINGS.items() if first.startswith(mark)), None)
    if ending == ARCHIVE and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = set(archive.namelist())
        return next((ending for part, ending in WORKBOOK_PARTS.items() if part in members), ARCHIVE)
    return ending


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
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> DataError:
    """The sentence for a file with a content that is not what it should be."""
    reason = str(getattr(error, "strerror", None) or str(error).strip().split("\n")[0].rstrip("."))
    reason = reason[:LONGEST_REASON] or "it asks for more memory than there is"
    return DataError(
        f"{path}: the file cannot be read ({reason}): check that it is complete, that its extension names its format, "
        "and that you may open it."
    )


def _undecodable_line(path: Path) -> int | None:
    """The first line of a text file that is not UTF-8; None where the file is no text, or cannot be read so far."""
    if FILE_KINDS.get(extension_of(path)[0], "text") != "text":
        return None
    line, decoder = 1, codecs.getincrementaldecoder("utf-8")()
    try:
        with unpacked(path) as (content, _):
            while block := content.read(1 << 20):
                decoder.decode(block)
                line += block.count(b"\n")
    except UnicodeDecodeError as error:
        return line + error.object[: error.start].count(b"\n")
    except UNREADABLE:
        return None
    return line


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
