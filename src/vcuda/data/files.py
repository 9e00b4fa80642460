"""Tables in files that Arrow reads where they are: text, Parquet and Feather, the header first and cells when asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vcuda.data.formats import (
    FILE_KINDS,
    READABLE,
    arrow_reader,
    extension_of,
    has_table_ending,
    mapped_file,
    unreadable_refused,
)
from vcuda.data.in_memory import cells_from_arrow, columns_without_index, default_names
from vcuda.data.messages import data_row
from vcuda.data.number_styles import NumberStyle, found_style
from vcuda.data.packing import arrow_stream
from vcuda.data.paths import existing_file
from vcuda.data.raw_table import Cells, RawTable, as_labels
from vcuda.data.text_files import TextFormat, check_text_size, refuse_ragged, text_format, text_records
from vcuda.errors import ConfigError, DataError

# The metadata of an Arrow file in which text that is numbers counts as numbers: a copy of a file without types.
TEXT_IS_PARSED = {b"vcuda.text": b"parsed"}
# So many rows show whether a file has decimal commas.
ROWS_SHOWN = 1_000


def from_path(path: Path, *, header: bool = True, also_known: Iterable[str] = ()) -> RawTable:
    """A table in a file, with its format given by the extension; ``header``: the first line of a text holds names."""
    path = existing_file(path, also_known=also_known)
    extension, compressed = extension_of(path)
    if not has_table_ending(path):
        ending = "".join(path.suffixes[-2:]) if compressed else path.suffix
        raise DataError(f"{path}: the extension {ending!r} names no known format: save the table as {READABLE}.")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty: a table needs a line of names and rows of numbers.")
    kind = FILE_KINDS[extension]
    if kind != "text":
        refuse_without_header(header, f"{path} is")
        return _from_arrow_file(path, kind)
    return _from_text(path, header)


def refuse_without_header(header: bool, found: str) -> None:
    """Refuse that the first line of a table is data where there are no lines."""
    if not header:
        raise ConfigError(
            f"header=False (--no-header) is for CSV and TSV files; {found} a table with names of its own: leave it out."
        )


def _from_text(path: Path, header: bool) -> RawTable:
    _, first = next(text_records(path), (0, []))
    if not first or (len(first) == 1 and not first[0].strip()):
        raise DataError(f"{path}: the file is empty: a table needs a line of names and rows of numbers.")
    names = tuple(first) if header else default_names(len(first))

    def place(row: int) -> str:
        # The file is read again only when a message needs the line: quoted line breaks and blank lines count.
        for index, (line, _) in enumerate(text_records(path), start=-1 if header else 0):
            if index == row:
                return f"{data_row(row)} (line {line:,} of the file)"
        return data_row(row)

    written = text_format(path)

    def read(columns: Sequence[int]) -> Cells:
        check_text_size(path, share=len(columns) / len(names))
        table = _read_text(path, names, columns, header, written)
        comma_first = has_decimal_commas(table)
        if comma_first and (numbers := [field.name for field in table.schema if str(field.type) == "double"]):
            # What Arrow took for a decimal point stands between thousands, unless the cells say otherwise.
            table = _read_text(path, names, columns, header, written, as_text=numbers)
        comma_first = comma_first or written.separator == ";"
        return cells_from_arrow(table, str(path), place, text_is_parsed=True, comma_first=comma_first)

    def labels(column: int) -> list[str]:
        records = text_records(path)
        if header:
            next(records)
        return as_labels(record[column] if column < len(record) else "" for _, record in records)

    return RawTable(
        str(path), names, read, labels, place, has_header_line=header, notes=written.notes, text_is_parsed=True
    )


def has_decimal_commas(table: Any) -> bool:
    """Whether a column of text certainly has commas before decimals, as its first rows show."""
    for field in table.schema:
        if str(field.type) != "string":
            continue
        texts = dict.fromkeys(as_labels(table.column(field.name).slice(0, ROWS_SHOWN).to_pylist()))
        style = found_style(list(texts))
        if isinstance(style, NumberStyle) and style.certain and style.decimal == ",":
            return True
    return False


def _read_text(
    path: Path,
    names: Sequence[str],
    columns: Sequence[int],
    header: bool,
    written: TextFormat,
    *,
    as_text: Sequence[str] = (),
) -> Any:
    """The cells of some columns, whose names no other column has; the others are not converted."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    chosen = [names[k] for k in columns]
    with unreadable_refused(path):
        # A block must hold a whole line; 64 characters a cell are more than a number ever needs.
        named = None if header else list(names)
        block = max(1 << 22, 64 * len(names))
        reading = arrow_csv.ReadOptions(block_size=block, column_names=named, encoding=written.arrow_encoding)
        parsing = arrow_csv.ParseOptions(delimiter=written.separator, newlines_in_values=True)
        converting = arrow_csv.ConvertOptions(
            strings_can_be_null=True, column_types=dict.fromkeys(as_text, pa.string())
        )
        try:
            if len(chosen) < len(names):
                with (
                    pa.OSFile(str(path)) as file,
                    arrow_csv.open_csv(arrow_stream(path, file), reading, parsing, converting) as start,
                ):
                    _check_width(path, len(names), len(start.schema))
                converting.include_columns = chosen
            with pa.OSFile(str(path)) as file:
                table = arrow_csv.read_csv(arrow_stream(path, file), reading, parsing, converting)
        except pa.ArrowInvalid:
            refuse_ragged(path, len(names), header=header)
            raise
        _check_width(path, len(chosen), table.num_columns)
        if pa.binary() in table.schema.types:  # what Arrow takes text for that is not UTF-8
            raise UnicodeDecodeError("utf-8", b"", 0, 0, "a column is not text")
        return table


def _check_width(path: Path, expected: int, found: int) -> None:
    if found != expected:
        raise DataError(
            f"{path}: the first line can be read as {expected:,} or as {found:,} names, depending on what its quotes "
            "mean: save the table again, with quotes around whole cells only."
        )


def _from_arrow_file(path: Path, kind: str) -> RawTable:
    with unreadable_refused(path), mapped_file(path) as file:
        reader = arrow_reader(file, kind)
        _, names, notes = columns_without_index(reader.schema)
        parsed = (reader.schema.metadata or {}).items() >= TEXT_IS_PARSED.items()
        rows = reader.count_rows() if hasattr(reader, "count_rows") else None

    def table(columns: Sequence[int]) -> Any:
        with unreadable_refused(path), mapped_file(path) as file:
            chosen = [names[k] for k in columns]
            read = arrow_reader(file, kind, chosen).read_all().select(chosen)
            # What Arrow takes on trust, above all that offsets and codes lie inside their buffers.
            read.validate(full=True)
            return read

    def cells(columns: Sequence[int]) -> Cells:
        found = table(columns)
        with unreadable_refused(path):
            return cells_from_arrow(found, str(path), data_row, text_is_parsed=parsed)

    def labels(column: int) -> list[str]:
        with unreadable_refused(path):
            return as_labels(table([column]).column(0).to_pylist())

    return RawTable(str(path), names, cells, labels, data_row, notes=notes, rows=rows, text_is_parsed=parsed)
