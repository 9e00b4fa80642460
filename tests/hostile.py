"""Inputs that somebody might send to do harm, or by accident, each small: tables, knowledge files and run folders.

Each has what the refusal must say, or None if the input is accepted. A case that ``make fuzz`` breaks
comes here when it is fixed.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

ROWS = b"1.5,2,3\n2,0.5,4\n3,2,2\n4,1,9\n5,1.5,3\n6,0.7,8\n"
LONG = "n" * 100_000


class Hostile(NamedTuple):
    name: str
    content: bytes
    refusal: str | None


def parquet(metadata: dict[bytes, bytes] | None = None, **columns: Any) -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(pa.table(columns).replace_schema_metadata(metadata), sink)
    return sink.getvalue()


def stream(**columns: Any) -> bytes:
    sink, table = io.BytesIO(), pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def far_texts() -> pa.Array:
    offsets = np.array([0, 1, 2, 2_000_000_000, 4, 5, 6], dtype=np.int32)
    return pa.StringArray.from_buffers(6, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"123456"))


def far_codes() -> pa.Array:
    codes = pa.array([0, 1, 0, 1, 0, 1_000_000_000], pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(["x", "y"]), safe=False)


NUMBERS = {"a": [1.5, 2.0, 3.0, 4.0, 6.0, 5.0], "b": [2.0, 1.0, 4.0, 3.0, 9.0, 5.0]}


def archive(**members: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return sink.getvalue()


def database(*statements: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(f"{folder}/t.sqlite")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        return Path(folder, "t.sqlite").read_bytes()


CSV = b"a,b,c\n" + ROWS
BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a "0123456789">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + k, b"&%c;" % (97 + k) * 10) for k in range(9))
    + b"]><workbook>&j;</workbook>"
)
CONTENT_TYPES = (
    b'<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override '
    b'PartName="/xl/workbook.xml" '
    b'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
    b"</Types>"
)

TABLES: dict[str, Hostile] = {
    # Archives, workbooks and databases.
    "a path in an archive that climbs": Hostile("t.zip", archive(**{"../../t.csv": CSV}), "holds no table"),
    "an archive in an archive": Hostile("t.zip", archive(**{"t.zip": archive(**{"t.csv": CSV})}), "holds no table"),
    "an archive that is no workbook": Hostile("t.xlsx", archive(**{"t.csv": CSV}), "cannot be read"),
    "entities of entities": Hostile(
        "t.xlsx", archive(**{"[Content_Types].xml": CONTENT_TYPES, "xl/workbook.xml": BOMB}), "cannot be read"
    ),
    "a billion rows of one": Hostile(
        "t.ods",
        archive(**{"content.xml": b'<t number-rows-repeated="1000000000"/>'}),
        "repeats a row 1,000,000,000 times",
    ),
    "a database of nothing": Hostile("t.sqlite", database(), "is empty|holds no table"),
    "a table without rows": Hostile("t.sqlite", database("create table t (a real, b real)"), "no rows"),
    "bytes in a database": Hostile(
        "t.sqlite",
        database("create table t (a, b)", *(f"insert into t values ({k}, x'ff0{k}')" for k in range(6))),
        "holds values of type list",
    ),
    "text that is not UTF-8 in a database": Hostile(
        "t.sqlite",
        database(
            "create table t (a, b)",
            *(f"insert into t values ({k}.5, cast(x'ff' as text) || {k % 2})" for k in range(6)),
        ),
        None,
    ),
    "infinity in JSON": Hostile("t.json", b'{"a": [1, 2, 3, 4, 5], "b": [1, 3, 2, 9, Infinity]}', "not finite"),
    "large numbers in JSON": Hostile(
        "t.json", b'{"a": [1, 2, 3, 4, 5], "b": [1, 3, 2, 9, 1' + b"0" * 400 + b"]}", "not finite"
    ),
    # Names and cells that are strange but sound.
    "a name of 100,000 letters": Hostile("t.csv", f"{LONG},b,c\n".encode() + ROWS, None),
    "names from right to left": Hostile("t.csv", "שלום,مرحبا,\u202ec\n".encode() + ROWS, None),
    "emoji": Hostile("t.csv", "👩‍👩‍👧‍👦,🧬,e\u0301\n".encode() + ROWS, None),
    "control codes in a name": Hostile("t.csv", b"\x1b[31mred,b,c\n" + ROWS, None),
    "a name with a line break": Hostile("t.csv", b'"a\nb",b,c\n' + ROWS, None),
    "a mark of byte order": Hostile("t.csv", b"\xef\xbb\xbfa,b,c\n" + ROWS, None),
    "semicolons": Hostile("t.csv", b"a;b;c\n" + ROWS.replace(b",", b";"), None),
    "lines that end in CR": Hostile("t.csv", (b"a,b,c\n" + ROWS).replace(b"\n", b"\r"), None),
    "an archive of two parts": Hostile("t.csv.gz", gzip.compress(b"a,b,c\n") + gzip.compress(ROWS), None),
    "denormal numbers": Hostile("t.csv", b"a,b,c\n" + ROWS + b"7,5e-324,1e-310\n", None),
    # What is refused.
    "two names of 100,000 letters": Hostile("t.csv", f"{LONG},{LONG},c\n".encode() + ROWS, "a name of its own"),
    "a cell of 100,000 letters": Hostile("t.csv", b"a,b,c\n" + ROWS + b"1," + b"x" * 100_000 + b",2\n", "not a number"),
    "a cell of a megabyte": Hostile("t.csv", b"x" * 1_000_000 + b",b,c\n" + ROWS, "field larger than"),
    "numbers of 5,000 digits": Hostile("t.csv", b"a,b,c\n" + ROWS + b"9" * 5000 + b",1,2\n", "not finite"),
    "1e308": Hostile("t.csv", b"a,b,c\n" + ROWS + b"1e308,1,2\n", "too large to be squared"),
    "hexadecimal numbers": Hostile("t.csv", b"a,b,c\n" + ROWS + b"0x1.8p3,1,2\n", "'0x1.8p3', which is not a number"),
    "decimal commas": Hostile("t.csv", b"a;b\n" + b"1,5;2,5\n2,5;1,5\n" * 3, None),
    "dates": Hostile("t.csv", b"a,b\n" + b"1,2024-01-31T10:00:00Z\n2,2024-02-01T10:00:00Z\n" * 3, "dates or times"),
    "UTF-16": Hostile("t.csv", ("a,b,c\n" + ROWS.decode()).encode("utf-16"), None),
    "UTF-16 in an archive that is cut": Hostile(
        "t.csv.gz", gzip.compress(("größe,b\n" + ROWS.decode() * 50).encode("utf-16"))[:-9], "cannot be read|not UTF-8"
    ),
    "an archive with a tail": Hostile(
        "t.csv.gz", gzip.compress(b"a,b\xff,c\n" + ROWS) + b"tail", "not UTF-8|cannot be read"
    ),
    "one line that is no text": Hostile("t.csv.gz", gzip.compress(b"\xff" + b"a" * 1_000_000), "field larger than"),
    "a line late in the file that is no text": Hostile(
        "t.csv", b"a,b,c\n" + ROWS * 20_000 + b"1,\xe2\x82,3\n" + ROWS, "line 120,002 of the file"
    ),
    "an archive of blank lines": Hostile("t.csv.gz", gzip.compress(b"\n" * 1_000_000), "too many are blank"),
    "no archive": Hostile("t.csv.gz", b"a,b,c\n" + ROWS, "cannot be read"),
    "an open quote": Hostile("t.csv", b'a,b,c\n"' + ROWS, "line 7 has one cell|cannot be read|header has"),
    "nothing but commas": Hostile("t.csv", b"," * 1000, "no name"),
    "nothing but zeros": Hostile("t.csv", b"\x00" * 1000, "only one column|no name|cannot be read"),
    # Arrow read the first letters as the length of what follows, and asked for two gigabytes.
    "text named as Feather": Hostile("t.feather", b"a,b,c\n" + ROWS, "no mark of an Arrow or Feather file"),
    "a stream that is cut": Hostile("t.arrow", stream(**NUMBERS)[:200], "cannot be read"),
    "a stream whose length is a lie": Hostile(
        "t.arrow", b"\xff\xff\xff\xff\xff\xff\xff\x7f" + stream(**NUMBERS)[8:], "cannot be read"
    ),
    # Whoever follows these reads, or crashes, far outside of the file.
    "texts outside of their buffer": Hostile("t.arrow", stream(a=NUMBERS["a"], b=far_texts()), "cannot be read"),
    "codes without labels": Hostile("t.feather", stream(a=NUMBERS["a"], b=far_codes()), "cannot be read"),
    "Parquet that is cut": Hostile("t.parquet", parquet(**NUMBERS)[:-20], "cannot be read"),
    "metadata that are no mapping": Hostile("t.parquet", parquet({b"pandas": b"[]"}, **NUMBERS), None),
    "metadata without a list": Hostile("t.parquet", parquet({b"pandas": b'{"index_columns": 5}'}, **NUMBERS), None),
    "metadata that are no JSON": Hostile("t.parquet", parquet({b"pandas": b"{"}, **NUMBERS), "cannot be read"),
    "metadata that are no text": Hostile("t.parquet", parquet({b"pandas": b"\xff"}, **NUMBERS), "cannot be read"),
    "bytes in Parquet": Hostile("t.parquet", parquet(a=NUMBERS["a"], b=[b"\xff"] * 6), "leave the column out"),
}

KNOWLEDGE: dict[str, Hostile] = {
    "brackets in brackets": Hostile("k.toml", b"required = " + b"[" * 100_000, "nested too deeply"),
    # The parser takes the square of the number of parts.
    "keys in keys": Hostile("k.toml", b"a" + b".a" * 100_000 + b" = 1", "more than 20 parts"),
    "a header of keys in keys": Hostile("k.toml", b"[" + b'"a" . ' * 100_000 + b"a]\nx = 1", "more than 20 parts"),
    "a text of dots": Hostile("k.toml", b'roots = ["' + b"a." * 100 + b'"]', "which is no column of the table"),
    "a text that does not end": Hostile("k.toml", b'\\"""\n' * 2_000, "not TOML"),
    "a root of 100,000 letters": Hostile("k.toml", f'roots = ["{LONG}"]'.encode(), "which is no column of the table"),
    "a text where a list should be": Hostile("k.toml", f'sinks = "{LONG}"'.encode(), "must be a list"),
    "a key of 100,000 letters": Hostile("k.toml", f"{LONG} = 1".encode(), "no key"),
    "an edge of 100,000 letters": Hostile("k.toml", f'required = ["{LONG}"]'.encode(), "must hold edges"),
    "a cycle of 5,000 columns": Hostile(
        "k.toml",
        ("required = [" + ", ".join(f'"v{k} -> v{(k + 1) % 5000}"' for k in range(5000)) + "]").encode(),
        "form a cycle",
    ),
    "a probability of 400 digits": Hostile(
        "k.toml", b'probabilities = {"a -> b" = ' + b"9" * 400 + b"}", "must lie between 0 and 1"
    ),
    "a number of 5,000 digits": Hostile("k.toml", b"required = " + b"9" * 5000, "not TOML"),
    "a date": Hostile("k.toml", b"required = 2024-01-31", "must be a list"),
    "bytes": Hostile("k.toml", b"\xff\xfe\x00", "not TOML"),
    "UTF-16 in a CSV": Hostile("k.csv", "source,target,kind\na,b,required\n".encode("utf-16")[:-1], "not UTF-8"),
    "a column of 100,000 letters": Hostile("k.csv", f"source,target,kind,{LONG}\n".encode(), "there may be"),
    "a kind of 100,000 letters": Hostile("k.csv", f"source,target,kind\na,b,{LONG}\n".encode(), "write one of"),
}


# Run folders: each entry changes a copy of a sound run --------------------------------------------------------


class Payload:
    """What a pickle would do if anybody opened it: leave a folder behind."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, ("executed",)


def config(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def harm(run: Path) -> None:
        content = json.loads((run / "config.json").read_text(encoding="utf-8"))
        change(content)
        (run / "config.json").write_text(json.dumps(content), encoding="utf-8")

    return harm


def text(content: str) -> Callable[[Path], None]:
    return lambda run: (run / "config.json").write_text(content, encoding="utf-8") and None


def array(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[Path], None]:
    def harm(run: Path) -> None:
        with np.load(run / "posterior.npz") as stored:
            arrays = dict(stored)
        arrays[name] = np.asanyarray(change(arrays[name]))
        np.savez_compressed(run / "posterior.npz", **arrays)

    return harm


def member(name: str, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> Callable[[Path], None]:
    """One more file in the archive of arrays."""

    def harm(run: Path) -> None:
        with zipfile.ZipFile(run / "posterior.npz", "a", method) as archive:
            archive.writestr(name, content)

    return harm


def link(name: str, aim: str) -> Callable[[Path], None]:
    def harm(run: Path) -> None:
        (run / name).rename(run.parent / "elsewhere")
        os.symlink(aim, run / name)

    return harm


def pipe(run: Path) -> None:
    (run / "posterior.npz").unlink()
    os.mkfifo(run / "posterior.npz")


def inner_link(run: Path) -> None:
    (run / "posterior.npz").rename(run / "numbers.npz")
    os.symlink("numbers.npz", run / "posterior.npz")


def swapped(run: Path) -> None:
    other = Path(__file__).parent / "fixtures" / "run-format-1" / "variational-linear" / "posterior.npz"
    (run / "posterior.npz").write_bytes(other.read_bytes())


def with_value(values: np.ndarray, at: Any, value: Any) -> np.ndarray:
    changed = values.copy()
    changed[at] = value
    return changed


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def first_graph(*edges: tuple[int, int]) -> Callable[[Path], None]:
    """Other edges in the first of the stored graphs."""

    def harm(run: Path) -> None:
        with np.load(run / "posterior.npz") as stored:
            arrays = dict(stored)
        before = arrays["law.offsets"][1]
        arrays["law.offsets"] = np.concatenate([[0], arrays["law.offsets"][1:] - before + len(edges)])
        for name, nodes in zip(("law.sources", "law.targets"), zip(*edges, strict=True), strict=True):
            arrays[name] = np.concatenate([np.array(nodes, dtype=np.int32), arrays[name][before:]])
        np.savez_compressed(run / "posterior.npz", **arrays)

    return harm


def provenance(key: str, value: Any) -> Callable[[Path], None]:
    return config(lambda seen: seen["provenance"].update({key: value}))


RUNS: dict[str, tuple[Callable[[Path], None], str | None]] = {
    "nothing": (lambda run: None, None),
    "a link inside the folder": (inner_link, None),
    "a link out of the folder": (link("posterior.npz", "../elsewhere"), "leads out of the folder"),
    "a config that is a link out": (link("config.json", "../elsewhere"), "leads out of the folder"),
    "a link to itself": (link("posterior.npz", "posterior.npz"), "has no file posterior.npz"),
    "a link to a device": (link("posterior.npz", "/dev/zero"), "has no file posterior.npz"),
    "a pipe": (pipe, "has no file posterior.npz"),
    "brackets in brackets": (text("[" * 200_000), "more than 50 times"),
    "diagnostics in diagnostics": (
        config(lambda c: c["diagnostics"].update(x=json.loads("[" * 60 + "]" * 60))),
        "more than 50 times",
    ),
    "no mapping": (text("[]"), "names no format"),
    "a format of 400 digits": (config(lambda c: c.update(format=10**400)), "more than 20 digits"),
    "a format that is a text": (config(lambda c: c.update(format="1")), "names no format"),
    "a later format": (config(lambda c: c.update(format=2)), "newer vcuda"),
    "infinity": (config(lambda c: c["provenance"].update(seconds=float("inf"))), "no number that JSON has"),
    "half a surrogate": (config(lambda c: c["names"].__setitem__(0, "\ud800")), "surrogates not allowed"),
    "names twice": (config(lambda c: c.update(names=["a"] * 4)), "no names that vcuda can use"),
    "other names for the graphs": (config(lambda c: c.update(names=list("abcd"))), "about other columns"),
    "names that are numbers": (config(lambda c: c.update(names=[1, 2, 3, 4])), "no names"),
    "a status of its own": (config(lambda c: c["status"].update(code="<script>")), "no status"),
    "checks that are a text": (config(lambda c: c.update(checks="<script>")), "no checks"),
    "a finding of its own severity": (
        config(lambda c: c.update(checks={"findings": [{"severity": "<b>"}], "made": [], "not_made": ""})),
        "no checks",
    ),
    "no engine": (config(lambda c: c["provenance"].pop("engine")), "no engine"),
    "rows that are a text": (config(lambda c: c["provenance"]["data"].update(rows="x")), "no data"),
    "a line of a program in a name": (
        provenance("model", {"name": "x\nimport os", "noise": None}),
        "no model that vcuda can use",
    ),
    "a line of a program in a key": (provenance("engine", {"name": "exact", "x\nimport os": 1}), "no engine"),
    "a line of a program in the fingerprint": (
        config(lambda c: c["provenance"]["data"].update(fingerprint="\nimport os")),
        "no data",
    ),
    "a line of a program in a number": (provenance("imputations", "1)\nimport os"), "no imputations"),
    "knowledge that contradicts itself": (provenance("knowledge", {"required": ["a -> a"]}), "knowledge cannot be"),
    "knowledge in words": (provenance("knowledge", {"required": ["a -> b"]}), None),
    # Weights of a thousand million, beside which solvers lose the ones of the identity: effects had a singular matrix.
    "a noise of 19 digits": (config(lambda c: c["law"]["predictive"].update(variance=2**63)), None),
    "a ridge below zero": (config(lambda c: c["law"]["predictive"].update(ridge=-1)), "no ridge"),
    "swapped arrays": (swapped, "damaged"),
    "probabilities that are none": (
        array("law.marginals", lambda old: with_value(old, (0, 1), np.nan)),
        "not finite",
    ),
    "probabilities above one": (array("law.marginals", lambda old: old + 2), "between 0 and 1"),
    "weights that do not sum to one": (array("law.weights", lambda old: 2 * old), "sum to one"),
    "a cycle": (first_graph((0, 1), (1, 0)), "has a cycle"),
    "one edge seven times": (first_graph(*[(0, 1)] * 7), "more edges than it can have"),
    "a product of columns that cannot be": (array("law.gram", lambda old: -old), "not a matrix of cross products"),
    "products that do not go together": (
        array("law.gram", lambda old: with_value(with_value(old, (0, 1), 1e6), (1, 0), 1e6)),
        "not a matrix of cross products",
    ),
    "a scale of zero": (array("law.scale", lambda old: 0 * old), "must be positive"),
    "text in place of numbers": (array("law.gram", lambda old: old.astype("U8")), "elements of type"),
    "whole numbers that are real": (array("law.offsets", lambda old: old + 0.5), "elements of type"),
    "big-endian numbers": (array("law.gram", lambda old: old.astype(">f8")), None),
    "numbers column by column": (array("law.gram", np.asfortranarray), None),
    "a pickle": (array("law.gram", lambda old: np.array([Payload()], dtype=object)), "none of plain numbers"),
    "a header to evaluate": (
        member("law.x.npy", header("__import__('os').mkdir('executed')")),
        "none of plain numbers",
    ),
    "a header of brackets": (member("law.x.npy", header("[" * 9000)), "none of plain numbers"),
    "a header of digits": (
        member("law.x.npy", header("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1" * 9000 + "), }")),
        "none of plain numbers",
    ),
    "a shape that is a lie": (
        member("law.x.npy", header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }")),
        "declares the shape",
    ),
    "an axis without end": (
        member("law.x.npy", header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 0), }")),
        "without elements",
    ),
    "a way out of the archive": (member("../../executed.npy", b""), "has no valid header"),
    "a file that is no array": (member("readme.txt", b"hello"), "is no array"),
    "another compression": (member("law.x.npy", b"", zipfile.ZIP_LZMA), "does not use"),
    "an archive that is cut": (
        lambda run: os.truncate(run / "posterior.npz", 3000),
        "damaged",
    ),
}
