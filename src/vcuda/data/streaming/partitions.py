"""Dask DataFrames: small ones computed into memory, large ones read partition by partition."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vcuda.data.in_memory import from_pandas
from vcuda.data.messages import HOW_TO_CHOOSE, data_row
from vcuda.data.raw_table import RawTable
from vcuda.data.streaming.blocks import BlockReader, Mapped, OnlyInMemoryError
from vcuda.errors import DataError
from vcuda.memory import memory_available

SOURCE = "Dask table"
# Bytes that a table in memory takes for each cell, as it is read, checked, standardised and compared.
BYTES_A_CELL = 40


def is_partitioned(data: object) -> bool:
    """Whether a table is a Dask DataFrame, which no program has that has not imported Dask's."""
    dataframe = sys.modules.get("dask.dataframe")
    return dataframe is not None and isinstance(data, dataframe.DataFrame)


def described(frame: Any) -> RawTable:
    """A Dask DataFrame without its rows: its names, for whoever chooses some of its columns."""
    return from_pandas(frame._meta, source=SOURCE)


def narrowed(frame: Any, columns: Sequence[int]) -> Any:
    """The frame with no other columns than those at these positions: the others need not be computed."""
    return frame if list(columns) == list(range(len(frame.columns))) else frame.iloc[:, list(columns)]


def cells_in(frame: Any, *, mapped: Mapped | None = None) -> int:
    """How many cells a Dask DataFrame has; its partitions are computed for it, one after the other or by ``mapped``."""
    return sum(lengths(frame.to_delayed(), mapped=mapped)) * len(frame.columns)


def lengths(parts: Sequence[Any], *, mapped: Mapped | None = None) -> list[int]:
    """The rows of each partition."""
    if mapped is not None:
        return list(mapped(_length, [(part,) for part in parts]))
    return [len(part.compute()) for part in parts]


def _length(shared: None, item: tuple[Any]) -> int:
    return len(item[0])


def in_memory(frame: Any) -> RawTable:
    """A Dask DataFrame as a table in memory, of which the columns that are asked for must have room there."""

    def computed(columns: Sequence[int]) -> RawTable:
        part = narrowed(frame, columns)
        cells = cells_in(part)
        if BYTES_A_CELL * cells > memory_available():
            raise DataError(
                f"{SOURCE}: its {cells:,} cells do not fit into memory: give it to fit, which reads it partition by "
                f"partition, or take a part of it {HOW_TO_CHOOSE}."
            )
        return from_pandas(part.compute(), source=SOURCE)

    return replace(
        described(frame),
        read=lambda columns: computed(columns).read(range(len(columns))),
        labels=lambda column: computed([column]).labels(0),
    )


class PartitionReader(BlockReader):
    """One pass over one partition, a pandas table that has only the columns that are `wanted`, in their order.

    Messages count rows from the first of the whole table.
    """

    kind = "arrow"

    def __init__(
        self,
        raw: RawTable,
        names: Sequence[str],
        target_column: str | None,
        table: Any,
        start: int,
        contexts: Sequence[str] = (),
    ) -> None:
        super().__init__(replace(raw, place=lambda row: data_row(start + row)), names, target_column, contexts)
        self.table = table

    def batches(self, most: int) -> Iterator[Any]:
        import pyarrow as pa

        frame = self.table.set_axis(self.wanted(), axis="columns")
        try:
            batch = pa.RecordBatch.from_pandas(frame, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            reason = str(error).split("\n")[0].rstrip(".")
            raise OnlyInMemoryError(f"{SOURCE}: a partition cannot be read as a table ({reason}).") from error
        self.share = 1.0
        yield batch
