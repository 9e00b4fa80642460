"""Files that need not fit into memory: one pass over one file, piece by piece as its format has it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from vcuda.data.formats import (
    FILE_KINDS,
    STREAMED_KINDS,
    arrow_reader,
    extension_of,
    mapped_file,
    unreadable_refused,
)
from vcuda.data.packing import arrow_stream
from vcuda.data.raw_table import RawTable
from vcuda.data.streaming.blocks import BlockReader
from vcuda.data.text_files import refuse_ragged, text_format, unpacked_cells

PARQUET_BUFFERS = 1 << 26
TEXT_PIECE = 1 << 22
# Numbers of six digits with a separator.
TEXT_BYTES_A_CELL = 8


def cells_on_disk(path: Path, *, enough: float) -> float:
    """About how many cells a file holds: of text by its size, of Arrow's formats by what they say.

    The size of compressed text says nothing, so that it is unpacked until ``enough`` cells are counted; how many more
    there are follows from the part of the file that is left.
    """
    extension, compressed = extension_of(path)
    kind = FILE_KINDS.get(extension)
    if kind not in STREAMED_KINDS or not path.stat().st_size:
        return 0.0
    if kind == "text":
        return unpacked_cells(path, enough=enough) if compressed else path.stat().st_size / TEXT_BYTES_A_CELL
    with unreadable_refused(path), mapped_file(path) as file:
        if kind == "parquet":
            from pyarrow.parquet import ParquetFile

            metadata = ParquetFile(file).metadata
            return float(metadata.num_rows * metadata.num_columns)
        columns = len(arrow_reader(file, kind).schema.names)
    return max(path.stat().st_size / 8, float(columns))


class FileReader(BlockReader):
    """One pass over one file."""

    def __init__(
        self, raw: RawTable, names: Sequence[str], target_column: str | None, contexts: Sequence[str] = ()
    ) -> None:
        super().__init__(raw, names, target_column, contexts)
        self.path = Path(raw.source)
        self.kind = FILE_KINDS[extension_of(self.path)[0]]

    def batches(self, most: int) -> Generator[Any, None, None]:
        if self.kind == "parquet":
            batches = self._parquet_batches(most)
        else:  # pieces as they stand in the file, which are sliced later
            batches = self._text_batches() if self.kind == "text" else self._arrow_batches()
        while True:
            with unreadable_refused(self.path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def rows(self) -> int:
        """How many rows the file has; of text all of it is read."""
        with unreadable_refused(self.path):
            return self._rows()

    def _rows(self) -> int:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile

        if self.kind == "parquet":
            with ParquetFile(str(self.path)) as file:
                return int(file.metadata.num_rows)
        if self.kind == "arrow":
            return sum(batch.num_rows for batch in self._arrow_batches())
        return sum(batch.num_rows for batch in self._text_pieces(dict.fromkeys(self.wanted(), pa.string())))

    def _parquet_batches(self, most: int) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        # Buffered streams read a row group piece by piece. Without them all of it is loaded, and Arrow's datasets load
        # several at once: for 2 million rows of 20 columns they took 780 MB where this takes 240, and were slower.
        buffer = min(1 << 20, max(1 << 13, PARQUET_BUFFERS // len(self.columns)))
        with ParquetFile(str(self.path), buffer_size=buffer, pre_buffer=False) as file:
            total, read = file.metadata.num_rows, 0
            for batch in file.iter_batches(batch_size=most, columns=self.wanted()):
                read += batch.num_rows
                self.share = read / total
                yield batch

    def _arrow_batches(self) -> Iterator[Any]:
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as file:
            reader = arrow_reader(file, "arrow", self.wanted())
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

    def _text_batches(self) -> Iterator[Any]:
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
            for batch in self._text_pieces(dict.fromkeys(self.wanted(), pa.string())):
                skipped = min(read, batch.num_rows)
                read -= skipped
                yield batch.slice(skipped)
        except pa.ArrowInvalid:
            refuse_ragged(self.path, len(self.raw.names), header=self.raw.has_header_line)
            raise

    def _text_types(self) -> dict[str, Any]:
        """Numbers wherever the first piece has numbers or nothing; of other columns what Arrow takes them for."""
        import pyarrow as pa

        with closing(self._text_pieces({})) as pieces:
            first = next(pieces, None)
        types = {} if first is None else {field.name: field.type for field in first.schema}
        numeric = [name for name, kind in types.items() if str(kind) in {"int64", "double", "null"}]
        types |= dict.fromkeys(numeric, pa.float64())
        aside = [*self.context_columns, *([] if self.target is None else [self.target])]
        return types | dict.fromkeys(aside, pa.string())

    def _text_pieces(self, types: dict[str, Any]) -> Generator[Any, None, None]:
        import pyarrow as pa
        from pyarrow import csv

        written = text_format(self.path)
        with pa.OSFile(str(self.path)) as file:
            size = file.size()
            pieces = csv.open_csv(
                arrow_stream(self.path, file),
                # A piece must hold a whole line; 64 characters a cell are more than a number ever needs.
                read_options=csv.ReadOptions(
                    block_size=max(TEXT_PIECE, 64 * len(self.raw.names)),
                    column_names=None if self.raw.has_header_line else list(self.raw.names),
                    encoding=written.arrow_encoding,
                ),
                parse_options=csv.ParseOptions(delimiter=written.separator, newlines_in_values=True),
                convert_options=csv.ConvertOptions(
                    strings_can_be_null=True, include_columns=self.wanted(), column_types=types
                ),
            )
            with pieces:
                for batch in pieces:
                    self.share = file.tell() / size
                    yield batch
