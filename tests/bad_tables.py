"""Tables that must be refused, shared by the tests of the data checks and of the command line.

`BAD_TABLES` maps what is wrong to a function that writes such a table into a folder and returns its path, and
to pieces of text that the message must hold: where the fault is, and what to do about it.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from vcuda.data.checks import memory_available, memory_needed

GOOD_ROWS = ["1,2.5,0.1", "2,0.5,0.4", "3,2.0,0.2", "4,1.0,0.9", "5,1.5,0.3", "6,0.7,0.8"]


class BadTable(NamedTuple):
    write: Callable[[Path], Path]
    fragments: tuple[str, ...]


def text(*lines: str, name: str = "table.csv", encoding: str = "utf-8") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
        return path

    return write


def good_text_with(row: int, line: str) -> Callable[[Path], Path]:
    """A sound table in which one data row, counted from 1, is another."""
    rows = [*GOOD_ROWS]
    rows[row - 1] = line
    return text("a,b,c", *rows)


def binary(content: bytes, name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def parquet(**columns: object) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        table = pa.table({"a": pa.array([1.0, 2.0, 3.0, 4.0, 6.0]), **columns})
        pa.parquet.write_table(table, folder / "table.parquet")
        return folder / "table.parquet"

    return write


def missing_file(folder: Path) -> Path:
    (folder / "measurements.csv").write_text("a,b\n1,2\n")
    return folder / "mesurements.csv"


def a_folder(folder: Path) -> Path:
    (folder / "tables").mkdir()
    return folder / "tables"


def a_cut_archive(folder: Path) -> Path:
    whole = gzip.compress("\n".join(["a,b,c", *GOOD_ROWS * 200]).encode())
    (folder / "table.csv.gz").write_bytes(whole[: len(whole) // 2])
    return folder / "table.csv.gz"


def too_wide(folder: Path) -> Path:
    """50,000 columns, or more on a machine on which so many would fit."""
    columns = 50_000
    while memory_needed(columns) < 2 * memory_available():
        columns *= 2
    names = ",".join(f"gene{k}" for k in range(columns))
    # The cells are text, so that reading them would give another message than the width does.
    (folder / "wide.csv").write_text(names + "\n" + "x,y\n")
    return folder / "wide.csv"


BAD_TABLES: dict[str, BadTable] = {
    "missing file": BadTable(missing_file, ("no such file", "did you mean 'measurements.csv'?", "check the path")),
    "missing folder": BadTable(lambda folder: folder / "nowhere" / "a.csv", ("nowhere does not exist",)),
    "a folder": BadTable(a_folder, ("is a folder", "give the path of one file")),
    "unknown extension": BadTable(text("a,b", "1,2", name="t.xls"), ("'.xls'", "save the table as CSV")),
    "no extension": BadTable(text("a,b", "1,2", name="sachs"), ("extension ''", "save the table as CSV")),
    "empty file": BadTable(text(), ("the file is empty", "a line of names")),
    "blank file": BadTable(text("", "  "), ("the file is empty", "a line of names")),
    "header only": BadTable(text("a,b,c"), ("no rows", "add at least 5 rows")),
    "one column": BadTable(text("a", "1", "2", "3"), ("only one column, 'a'", "at least two", "commas")),
    "spaces between cells": BadTable(text("a b", "1 2"), ("only one column, 'a b'", "separated", "commas")),
    "four rows": BadTable(text("a,b,c", *GOOD_ROWS[:4]), ("only 4 rows", "at least 5")),
    "duplicate names": BadTable(text("a,b,a", *GOOD_ROWS), ("'a'", "columns 1 and 3", "a name of its own")),
    "names equal but for spaces": BadTable(text("a,b, a", *GOOD_ROWS), ("'a'", "columns 1 and 3")),
    "empty name": BadTable(text("a,,c", *GOOD_ROWS), ("column 2 has no name", "give it one")),
    "separator at the end": BadTable(
        text("a,b,c,", *(row + "," for row in GOOD_ROWS)), ("column 4 has no name", "separator at the end")
    ),
    "no header": BadTable(
        text(*GOOD_ROWS),
        ("first line holds only numbers", "'2.5'", "--no-header", "X1,X2,X3", "put a letter before each"),
    ),
    "not a number": BadTable(
        good_text_with(3, "3,oops,0.2"),
        ("data row 3 (line 4 of the file)", "column 'b'", "'oops'", "write a number"),
    ),
    "not a number after a blank line": BadTable(
        good_text_with(3, "\n3,oops,0.2"), ("data row 3 (line 5 of the file)", "column 'b'", "'oops'")
    ),
    "not a number, very long": BadTable(
        good_text_with(2, "2,0.5," + "long " * 50), ("data row 2", "column 'c'", "'long long", "...'")
    ),
    "two decimal marks": BadTable(
        text("a;b", "1;2,5", "2;3.5", "3;4,5", "4;1,0", "5;0"), ("data row 1", "'b'", "'2,5'", "same decimal mark")
    ),
    "two currencies": BadTable(
        text("a,b", *(f"{k % 3},{'$€'[k % 2]}{k}.50" for k in range(6))),
        ("data row 1", "'b'", "'$0.50'", "one currency"),
    ),
    "per cent here and there": BadTable(
        text("a,b", *(f"{k % 3},{k}{'%' * (k % 2)}" for k in range(6))), ("data row 2", "'b'", "'1%'", "in per cent")
    ),
    "text column": BadTable(
        text("a,city", "1,Rome", "2,Bern", "3,Oslo", "4,Riga", "5,Wien"),
        ("'city'", "'Rome'", "leave the column out"),
    ),
    "many labels": BadTable(
        text("a,word", *(f"{k % 3},word{k % 60}" for k in range(90))),
        ("'word'", "60 different labels", "leave the column out"),
    ),
    "one label": BadTable(
        text("a,city", *(f"{k},Rome" for k in range(6))),
        ("'city' does not vary", "'Rome' in every row", "only 'a' would be left"),
    ),
    "dates written otherwise": BadTable(
        text("a,day", *(f"{k},{k}/12/2024" for k in (1, 2, 1, 2, 1, 2))), ("'day'", "dates or times", "days since")
    ),
    "dates": BadTable(
        text("a,day", *(f"{k},2024-01-0{k}" for k in range(1, 7))), ("'day'", "dates or times", "days since")
    ),
    "infinity": BadTable(
        good_text_with(5, "5,inf,0.3"),
        ("data row 5 (line 6 of the file)", "'b'", "not finite", "correct the cell"),
    ),
    "missing column": BadTable(text("a,b", *(f"{k}," for k in range(6))), ("'b' has no value", "leave the column out")),
    "rounding alone": BadTable(
        text("a,b", *(f"{k},{(0.3, 0.1 + 0.2)[k % 2]!r}" for k in range(6))),
        ("'b' varies by only 5.55e-17 around 0.3", "rounding", "subtract a constant", "leave the column out"),
    ),
    "too large": BadTable(
        good_text_with(2, "2,0.5,-1e200"),
        ("data row 2 (line 3 of the file)", "'c'", "-1e+200", "another unit"),
    ),
    "too small": BadTable(
        text("a,b", *(f"{k},{k * k}e-170" for k in range(6))),
        ("'b'", "too little to be squared", "another unit"),
    ),
    "too many columns": BadTable(too_wide, (" columns would need about", "GB of memory", "choose at most")),
    "a short line": BadTable(good_text_with(2, "2,0.5"), ("line 3 has 2 cells", "header has 3 names", "as many cells")),
    "a long line": BadTable(
        good_text_with(6, "6,0.7,0.8,9"), ("line 7 has 4 cells", "header has 3 names", "as many cells")
    ),
    "row names of R": BadTable(
        text("a,b", *(f"row{row}" for row in GOOD_ROWS)),
        ("line 2 has 3 cells", "header has 2 names", "row.names = FALSE"),
    ),
    "UTF-8 with a bad byte": BadTable(
        binary("größe,b,c\n1,ä\xff,2\n2,ö,3\n".encode().replace("\xff".encode(), b"\xff"), "t.csv"),
        ("line 2 is not UTF-8", "save the file as UTF-8"),
    ),
    "no text": BadTable(binary(b"a,b\n\x00\x81\x8d,2\n", "t.csv"), ("cannot be read", "not text")),
    "no letters of Windows-1252": BadTable(binary(b"a,b\n\x81\x8d,2\n", "t.csv"), ("line 2 is not UTF-8",)),
    "UTF-16 that is cut": BadTable(binary("a,b,c\n".encode("utf-16")[:-1], "t.csv"), ("UTF-8",)),
    "cut archive": BadTable(a_cut_archive, ("cannot be read", "check that it is complete")),
    "not Parquet": BadTable(binary(b"a,b\n1,2\n", "t.parquet"), ("cannot be read", "its extension names")),
    "not Feather": BadTable(binary(b"a,b\n1,2\n", "t.feather"), ("cannot be read", "its extension names")),
    "text in Parquet": BadTable(
        parquet(city=["Rome", "Bern", "Oslo", "Riga", "Wien"]),
        ("data row 1", "'city'", "'Rome'", "leave the column", "only 'a' would be left"),
    ),
    "times in Parquet": BadTable(
        parquet(when=pa.array([1, 2, 3, 4, 5], pa.timestamp("s"))), ("'when'", "dates or times", "days since")
    ),
    "lists in Parquet": BadTable(parquet(many=[[1], [2], [3], [4], [5]]), ("'many'", "list", "leave the column out")),
}

# What a fit fills in, and everything else refuses.
TABLES_WITH_GAPS: dict[str, BadTable] = {
    "missing cell": BadTable(
        good_text_with(4, "4,,0.9"),
        ("one value is missing", "column 'b'", "data row 4 (line 5 of the file)", "fill it in"),
    ),
    "missing cells": BadTable(
        text("a,b,c", *GOOD_ROWS, "7,NA,1", "8,nan,2", "9,1,NULL"),
        ("3 values are missing", "columns 'b' and 'c'", "data row 7 (line 8 of the file)", "leave out"),
    ),
    "missing label": BadTable(
        text("a,city", "1,Rome", "2,Bern", "3,Rome", "4,", "5,Bern"),
        ("one value is missing", "'city'", "data row 4 (line 5 of the file)", "fill it in"),
    ),
    "missing in Parquet": BadTable(
        parquet(b=pa.array([1, 2, None, 5, 4])),
        ("one value is missing", "'b'", "in data row 3:", "fill it in"),
    ),
}
