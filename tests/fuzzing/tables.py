"""Hostile tables: sound ones grown from a grammar with strange names and cells, in every format, and then bent."""

from __future__ import annotations

import gzip
import io
import random
from typing import Any

import numpy as np

from fuzzing.bending import CELLS, ENCODINGS, NAMES, bent, quoted
from fuzzing.files import Files

ODDITIES = (
    "narrow", "short", "mixed", "names", "names", "cells", "cells", "ragged", "gaps", "separator", "lines", "quotes",
    "commas", "encoding",
)  # fmt: skip


def _good_cell(rng: random.Random, kind: str) -> str:
    if kind == "real":
        return f"{rng.gauss(0, 1):.4f}"
    if kind == "integer":
        return str(rng.randrange(40))
    return rng.choice(("low", "mid", "high") if kind == "label" else ("true", "false"))


def _text_table(rng: random.Random, ending: str) -> bytes:
    # Few oddities at a time, or no table would come further than to the first check.
    odd = set(rng.choices(ODDITIES, k=rng.choice((0, 1, 1, 1, 2, 4))))
    width = 1 if "narrow" in odd else rng.choice((2, 3, 3, 4, 8, 40))
    height = rng.choice((0, 1, 4)) if "short" in odd else rng.choice((6, 6, 20, 60))
    kinds = [rng.choice(("real", "real", "integer", "label", "truth"))] * width
    if "mixed" in odd:
        kinds = [rng.choice(("real", "integer", "label", "truth")) for _ in range(width)]
    strange_names = rng.choice((0.1, 0.5)) if "names" in odd else 0.0
    strange_cells = rng.choice((0.01, 0.05, 0.3, 1.0)) if "cells" in odd else 0.0
    header = [rng.choice(NAMES) if rng.random() < strange_names else f"v{k}" for k in range(width)]
    rows = [
        [rng.choice(CELLS) if rng.random() < strange_cells else _good_cell(rng, kind) for kind in kinds]
        for _ in range(height)
    ]
    if rows and "ragged" in odd:
        rng.choice(rows).append("1")
    if rows and "gaps" in odd:
        rng.choice(rows)[rng.randrange(width)] = ""
    separator = "\t" if ending.startswith(".tsv") else rng.choice((",", ",", ",", ";", "\t"))
    if "separator" in odd:
        separator = rng.choice(("|", ",", " "))
    end = rng.choice(("\r", "\n\n", "\n \n")) if "lines" in odd else rng.choice(("\n", "\n", "\r\n"))
    lines = [
        separator.join(cell if "quotes" in odd else quoted(cell, separator) for cell in row) for row in (header, *rows)
    ]
    if "commas" in odd:
        lines[1:] = [line.replace(".", ",") for line in lines[1:]]
    text = end.join(lines) + rng.choice(("", end, end, end * 3, "\x1a"))
    return text.encode(rng.choice(ENCODINGS) if "encoding" in odd else "utf-8", errors="replace")


def _arrow_table(rng: random.Random, ending: str) -> bytes:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    height = rng.choice((0, 1, 6, 6, 20, 60))
    strange = rng.choice((0.0, 0.0, 0.2, 1.0))

    def column() -> Any:
        numbers = [rng.gauss(0, 1) for _ in range(height)]
        way = rng.randrange(14) if rng.random() < strange else 0
        if way < 5:
            return pa.array(numbers)
        if way == 5:
            return pa.array([int(10 * number) for number in numbers], pa.int8())
        if way == 6:
            return pa.array(numbers, pa.float16() if hasattr(np, "float16") and rng.random() < 0.3 else pa.float32())
        if way == 7:
            return pa.array([rng.choice("xyz") for _ in numbers]).dictionary_encode()
        if way == 8:
            return pa.array([rng.choice(CELLS) for _ in numbers])
        if way == 9:
            return pa.array([None if rng.random() < 0.3 else number for number in numbers])
        if way == 10:
            return pa.nulls(height)
        if way == 11:
            return pa.array([[number] for number in numbers], pa.list_(pa.float64()))
        if way == 12:
            return pa.array(range(height), rng.choice((pa.timestamp("ns"), pa.date32(), pa.duration("s"), pa.int64())))
        return pa.array([rng.choice((b"\xff\xfe", b"1")) for _ in numbers], pa.binary())

    width = rng.choice((1, 2, 3, 5))
    names = [rng.choice(NAMES) if rng.random() < strange / 4 else f"v{k}" for k in range(width)]
    table = pa.Table.from_arrays([column() for _ in range(width)], names=names)
    if rng.random() < 0.2:
        said = rng.choice((b"{}", b"{", b'{"index_columns": ["v0"]}', b'{"index_columns": 5}', b"[]", b"\xff", b"null"))
        table = table.replace_schema_metadata({b"pandas": said})
    sink = io.BytesIO()
    if ending in (".parquet", ".pq"):
        pa.parquet.write_table(table, sink, compression=rng.choice(("none", "snappy", "zstd", "gzip")))
    elif rng.random() < 0.5:
        pa.feather.write_feather(table, sink, compression=rng.choice(("uncompressed", "lz4", "zstd")))
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def _bomb(rng: random.Random) -> bytes:
    """A small archive of much text: one line, one cell, no names, or many rows."""
    piece = rng.choice((b"0", b"\n", b",", b'"', b"1,2,3\n", b"a,", b" ", b"\x00", b"1"))
    size = rng.choice((3, 30, 300)) * 1_000_000
    return gzip.compress(b"a,b,c\n" * rng.randrange(2) + piece * (size // len(piece)), compresslevel=1)


def table(case: Files) -> None:
    rng = case.rng
    ending = rng.choice((".csv",) * 6 + (".tsv", ".CSV", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".arrow", ".pq"))
    if ending in (".parquet", ".pq", ".feather", ".arrow") and rng.random() < 0.9:
        content = _arrow_table(rng, ending)
    else:
        content = _text_table(rng, ending) if rng.random() < 0.97 else rng.randbytes(rng.randrange(3000))
    if ending.endswith(".gz"):
        if rng.random() < 0.02:
            content = _bomb(rng)
        else:
            content = gzip.compress(bent(rng, content) if rng.random() < 0.3 else content)
            content += rng.choice((b"", b"", content, b"tail"))
    if rng.random() < 0.25:
        content = bent(rng, content)
    case.entry = f"table{ending}"
    case.files[case.entry] = content
