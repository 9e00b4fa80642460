"""Inputs that nobody should send: valid tables, knowledge files and run folders, grown from a grammar and then bent.

Each case follows from its kind, a seed and a number alone. A case is a set of files, written into a folder of its own.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RUNS = Path(__file__).parents[1] / "tests" / "fixtures" / "run-format-1"

LONG = "n" * 100_000
NAMES = (
    "a", "b", "dose", "größe", "x y", " padded ", "", "1.5", "Unnamed: 0", "__index_level_0__", "source", "target",
    "naïve,comma", 'quo"te', "new\nline", "tab\there", "cr\rhere", "שלום", "مرحبا", "\u202eesrever", "👩‍👩‍👧‍👦", "🧬",
    "e\u0301", "\x00nul", "\x1b[31mred", "=cmd()", "../../up", "nan", "None", "-> arrow ->", "a -> b", "\ufeffbom",
    "%s{0}", LONG, "\U0001d56c" * 5_000, "<script>alert(1)</script>",
)  # fmt: skip
CELLS = (
    "", " ", "NA", "nan", "NaN", "null", "inf", "-inf", "Infinity", "0x1.8p3", "0x10", "1e308", "-1e308", "1.8e308",
    "5e-324", "1e-310", "-0", "+5", " 5 ", "1_000", "1,5", "1.234,5", "1e", "e5", ".5", "5.", "1e400", "9" * 400,
    "9" * 5_000, "0." + "3" * 5_000, "\uff11\uff12", "٣", "½", "\u22125", "true", "False", "2024-01-31", "31/01/2024",
    "12:30", "2024-01-31T12:30:00Z", "text", "null\x00byte", '"', '""', "'", "=1+1", "1;2", "a\nb", "🧬", "\u202e1",
    "1e5000", "18446744073709551616", "-9223372036854775809", "0b1", "1j", "(1)", "$5", "5%", "-", "x" * 70_000,
)  # fmt: skip
ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-7")
SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 10**400, 0.5, -0.5, 1e308, 5e-324, float("nan"),
    float("inf"), -float("inf"), "", "a", "nan", "linear", "../../etc/passwd", "\ud800", "x\ny", "<script>", LONG, [],
    {}, [[]], [None], [1, 2], ["a"], ["a", "b"], {"name": "linear"}, {"name": "__import__"}, [[[[[[[]]]]]]], {"": 0},
)  # fmt: skip


class Case:
    """The files of one case, by their names inside its folder; ``entry`` is what is opened."""

    def __init__(self, kind: str, seed: int, number: int) -> None:
        self.rng = random.Random(f"{kind}/{seed}/{number}")
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.pipes: list[str] = []
        self.entry = "."
        {"tables": _table, "knowledge": _knowledge, "runs": _run}[kind](self)

    def write(self, folder: Path) -> Path:
        """Write all files and links, and return the path that is to be opened."""
        folder.mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        for name, aim in self.links.items():
            (folder / name).unlink(missing_ok=True)
            os.symlink(aim, folder / name)
        for name in self.pipes:
            (folder / name).unlink(missing_ok=True)
            os.mkfifo(folder / name)
        return folder / self.entry


# Bytes ------------------------------------------------------------------------------------------------------


def bent(rng: random.Random, content: bytes, *, most: int = 6) -> bytes:
    """Bytes with some of them flipped, cut, doubled, moved or put in."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(changed) + 1)
        some = rng.choice((1, 2, 8, 64, 1000))
        way = rng.randrange(7)
        if way == 0 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << rng.randrange(8)
        elif way == 1:
            del changed[at : at + some]
        elif way == 2:
            changed[at:at] = changed[at : at + some]
        elif way == 3:
            changed[at:at] = rng.randbytes(some)
        elif way == 4:
            changed[at : at + 4] = rng.choice((b"\xff" * 4, b"\x00" * 4, b"\x7f\xff\xff\xff", b"\x00\x00\x00\x80"))
        elif way == 5:
            changed[at:at] = rng.choice((b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b"\r", b"\n\n", b",", b"]" * 9))
        else:
            del changed[at:]
    return bytes(changed)


# Tables -----------------------------------------------------------------------------------------------------


def _good_cell(rng: random.Random, kind: str) -> str:
    if kind == "real":
        return f"{rng.gauss(0, 1):.4f}"
    if kind == "integer":
        return str(rng.randrange(40))
    return rng.choice(("low", "mid", "high") if kind == "label" else ("true", "false"))


def _quoted(cell: str, separator: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if set(cell) & {separator, '"', "\n", "\r"} else cell


def _text_table(rng: random.Random) -> bytes:
    width, height = rng.choice((1, 2, 3, 3, 4, 8, 40)), rng.choice((0, 1, 4, 6, 6, 20, 60))
    strange = rng.choice((0.0, 0.0, 0.01, 0.05, 0.3, 1.0))
    kinds = [rng.choice(("real", "integer"))] * width
    if rng.random() < 0.3:
        kinds = [rng.choice(("real", "integer", "label", "truth")) for _ in range(width)]
    odd_names = rng.choice((0.0, 0.1, 0.5))
    header = [rng.choice(NAMES) if rng.random() < odd_names else f"v{k}" for k in range(width)]
    rows = [
        [rng.choice(CELLS) if rng.random() < strange else _good_cell(rng, kind) for kind in kinds]
        for _ in range(height)
    ]
    if rows and rng.random() < 0.1:
        rng.choice(rows).append("1")
    if rows and rng.random() < 0.05:
        rng.choice(rows).pop()
    separator = rng.choice((",", ",", ",", ";", "\t", "|"))
    end = rng.choice(("\n", "\n", "\r\n", "\r", "\n\n"))
    keep_quotes = rng.random() < 0.9
    lines = [
        separator.join(_quoted(cell, separator) if keep_quotes else cell for cell in row) for row in (header, *rows)
    ]
    if separator == ";" and rng.random() < 0.5:
        lines[1:] = [line.replace(".", ",") for line in lines[1:]]
    text = end.join(lines) + rng.choice(("", end, end * 3, "\x1a"))
    return text.encode(rng.choice(ENCODINGS), errors="replace")


def _arrow_table(rng: random.Random, ending: str) -> bytes:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    height = rng.choice((0, 1, 6, 20, 60))

    def column() -> Any:
        numbers = [rng.gauss(0, 1) for _ in range(height)]
        way = rng.randrange(14)
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
    names = [rng.choice(NAMES) if rng.random() < 0.2 else f"v{k}" for k in range(width)]
    table = pa.Table.from_arrays([column() for _ in range(width)], names=names)
    if rng.random() < 0.2:
        said = rng.choice((b"{}", b"{", b'{"index_columns": ["v0"]}', b'{"index_columns": 5}', b"[]", b"\xff", b"null"))
        table = table.replace_schema_metadata({b"pandas": said})
    sink = io.BytesIO()
    if ending == ".parquet":
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


def _table(case: Case) -> None:
    rng = case.rng
    ending = rng.choice((".csv",) * 6 + (".tsv", ".CSV", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".arrow", ".pq"))
    if ending in (".parquet", ".feather"):
        content = _arrow_table(rng, ending)
    else:
        content = _text_table(rng) if rng.random() < 0.97 else rng.randbytes(rng.randrange(3000))
    if ending.endswith(".gz"):
        if rng.random() < 0.02:
            content = _bomb(rng)
        else:
            content = gzip.compress(bent(rng, content) if rng.random() < 0.3 else content)
            content += rng.choice((b"", b"", content, b"tail"))
    if rng.random() < 0.35:
        content = bent(rng, content)
    case.entry = f"table{ending}"
    case.files[case.entry] = content


# Knowledge --------------------------------------------------------------------------------------------------

KNOWN = ("a", "b", "c", "d", "naïve", "x y")
KEYS = ("required", "forbidden", "tiers", "within_tiers", "roots", "sinks", "probabilities", "proba", "", "a.b")


def _toml_value(rng: random.Random, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=rng.random() < 0.5)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(rng, item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(rng, item)}" for key, item in value.items()) + "}"
    return (
        rng.choice(("1", "nan", "inf", "1e400", "0x1F", "2024-01-31", "12:30:00", "9" * 5000))
        if value is None
        else repr(value)
    )


def _knowledge(case: Case) -> None:
    rng = case.rng

    def name() -> str:
        return rng.choice(NAMES) if rng.random() < 0.08 else rng.choice(KNOWN)

    def edge() -> Any:
        way = rng.random()
        if way < 0.5:
            return [name(), name()]
        return f"{name()} -> {name()}" if way < 0.95 else rng.choice(SCALARS)

    def of(key: str) -> Any:
        if rng.random() < 0.08:
            return rng.choice(SCALARS)
        some = range(rng.randrange(4))
        if key in ("required", "forbidden"):
            return [edge() for _ in some]
        if key == "tiers":
            return [[name() for _ in range(rng.randrange(3))] for _ in some]
        if key == "within_tiers":
            return rng.random() < 0.5
        if key == "probabilities":
            return {f"{name()} -> {name()}": rng.choice((0.3, 0.9, 0, 1, -1, None, "x")) for _ in some}
        return [name() for _ in some]

    if rng.random() < 0.6:
        case.entry = "known.toml"
        if rng.random() < 0.04:
            depth = rng.choice((50, 500, 5_000, 100_000))
            text = rng.choice(("required = " + "[" * depth, "a" + ".a" * depth + " = 1", "x = " + "{a=" * depth))
        else:
            keys = [key for key in KEYS if rng.random() < (0.4 if key in KEYS[:7] else 0.02)]
            text = "\n".join(
                f"{json.dumps(key) if key not in KEYS[:7] else key} = {_toml_value(rng, of(key))}" for key in keys
            )
    else:
        case.entry = rng.choice(("known.csv", "known.tsv"))
        mark = "\t" if case.entry.endswith("tsv") else rng.choice(",,,;")
        header = ["source", "target", "kind", "probability"][: rng.choice((4, 4, 4, 3, 2))]
        lines = [header] if rng.random() < 0.95 else []
        for _ in range(rng.randrange(6)):
            kind = rng.choice(("required", "forbidden", "probability", "probability", rng.choice(NAMES)))
            given = rng.choice(("0.3", "0.7", "nan", "2", "1e-400", *CELLS[:12])) if kind == "probability" else ""
            lines.append([name(), name(), kind, given][: len(header)])
        text = "\n".join(mark.join(_quoted(cell, mark) for cell in line) for line in lines)
    content = text.encode(rng.choice(ENCODINGS) if rng.random() < 0.1 else "utf-8", errors="replace")
    case.files[case.entry] = bent(rng, content) if rng.random() < 0.25 else content


# Runs -------------------------------------------------------------------------------------------------------


class Payload:
    """What a pickle would do if anybody opened it: leave a file behind."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, ("executed-by-a-pickle",)


def _places(tree: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(tree, dict):
        inner = [place for key, value in tree.items() for place in _places(value, (*way, key))]
    elif isinstance(tree, list):
        inner = [place for key, value in enumerate(tree[:8]) for place in _places(value, (*way, key))]
    else:
        inner = []
    return [way, *inner] if way else inner


def _bent_json(rng: random.Random, tree: Any) -> Any:
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        places = _places(tree)
        if not places:
            return tree
        *way, last = rng.choice(places)
        holder = tree
        for key in way:
            holder = holder[key]
        what = rng.random()
        if what < 0.6:
            holder[last] = rng.choice(SCALARS)
        elif what < 0.75:
            del holder[last]
        elif what < 0.85 and isinstance(holder, dict):
            holder[rng.choice(("name", "kind", "x\ny", "__class__", "format"))] = holder[last]
        elif isinstance(holder, list):
            holder.append(rng.choice(holder))
        elif isinstance(holder[last], int | float):
            holder[last] = rng.choice((-1, 2, 1000, 1e9, 0.1)) * holder[last]
    return tree


def _bent_array(rng: random.Random, array: np.ndarray) -> Any:
    if array.dtype.kind not in "biuf":  # bent before
        return array
    way = rng.randrange(18)
    if way < 8 and array.size:
        changed = array.astype(np.float64) if way < 3 and array.dtype.kind != "f" else array.copy()
        at = rng.randrange(array.size)
        if changed.dtype.kind == "f":
            changed.flat[at] = rng.choice((np.nan, np.inf, -np.inf, -1.0, 2.0, 1e308, -1e30, 5e-324, 0.0))
        elif changed.dtype.kind == "b":
            changed.flat[at] = not changed.flat[at]
        else:
            bits = 8 * changed.dtype.itemsize - (changed.dtype.kind == "i")
            least = -(2**bits) if changed.dtype.kind == "i" else 0
            changed.flat[at] = rng.choice((0, 1, 5, 2**bits - 1, least))
        return changed
    if way == 8:
        return array[..., None]
    if way == 9:
        return array[:-1]
    if way == 10:
        return array.reshape(-1)
    if way == 11:
        return np.zeros(rng.choice(((), (0,), (1,), (0, 5), (3, 3), (1,) * 32)), dtype=array.dtype)
    if way == 12:
        return array.astype(rng.choice(("S4", "U4", "c16", "i8", "f2", "u1", ">f8", "i4", "b1")))
    if way == 13:
        return np.array([Payload()] * rng.choice((1, 4)), dtype=object)
    if way == 14:
        return np.zeros(array.shape, dtype=[("f", "f8"), ("g", "i4")])
    if way == 15:
        return np.zeros(array.shape, dtype="datetime64[s]")
    if way == 16:
        return np.asfortranarray(array * (np.array(np.nan) if array.dtype.kind == "f" else np.array(1, array.dtype)))
    return np.full(array.shape, rng.choice((0, 1, -1, 1e300)))


def _forged_header(rng: random.Random) -> bytes:
    """An .npy file that declares more than it holds."""
    shape = rng.choice(
        ("(1000000000000,)", "(4294967296, 4294967296)", "(-1,)", "(2.5,)", "()", "(" + "1," * 100 + ")", "'x'")
    )
    descr = rng.choice(("'<f8'", "'|O'", "'|V1000000000'", "'<U250000000'", "[('a', '<f8', (1000000,))]", "'<x9'"))
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    if rng.random() < 0.2:
        header = rng.choice(
            (b"[" * 9000, b"__import__('os').mkdir('executed-by-a-header')", b"{" * 200, b"-" * 9000 + b"1")
        )
    return (
        b"\x93NUMPY" + rng.choice((b"\x01\x00", b"\x02\x00", b"\x09\x00"))[:2] + struct.pack("<H", len(header)) + header
    )


def _zipped(rng: random.Random, arrays: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    method = rng.choice((zipfile.ZIP_DEFLATED,) * 6 + (zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, array in arrays.items():
            inner = io.BytesIO()
            if isinstance(array, bytes):
                inner.write(array)
            else:
                np.save(inner, array, allow_pickle=True)
            archive.writestr(name if isinstance(array, bytes) else f"{name}.npy", inner.getvalue())
    return sink.getvalue()


def _run(case: Case) -> None:
    rng = case.rng
    folders = sorted(folder for folder in RUNS.iterdir() if (folder / "config.json").is_file())
    folder, other = rng.choice(folders), rng.choice(folders)
    case.files = {name: (folder / name).read_bytes() for name in ("config.json", "posterior.npz", "edges.csv")}
    config = json.loads(case.files["config.json"])
    with np.load(folder / "posterior.npz") as stored:
        arrays: dict[str, Any] = dict(stored)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        way = rng.random()
        if way < 0.35:
            config = _bent_json(rng, config)
            case.files["config.json"] = json.dumps(config, ensure_ascii=True).encode()
        elif way < 0.75:
            for name in rng.sample(sorted(arrays), k=min(len(arrays), rng.choice((1, 1, 1, 2)))):
                what = rng.random()
                if what < 0.8 and isinstance(arrays[name], np.ndarray):
                    arrays[name] = _bent_array(rng, arrays[name])
                elif what < 0.9:
                    del arrays[name]
                else:
                    arrays[rng.choice(("../../evil", "/tmp/evil", "law.extra", "x" * 60_000, name))] = arrays.pop(name)
            if rng.random() < 0.1:
                arrays[rng.choice(("law.weights.npy", "law.gram.npy", "../evil.npy", "readme.txt"))] = _forged_header(
                    rng
                )
            if rng.random() < 0.02:
                arrays["law.bomb"] = np.zeros(rng.choice((30, 300)) * 1_000_000, dtype=np.uint8)
            case.files["posterior.npz"] = _zipped(rng, arrays)
        elif way < 0.85:
            name = rng.choice(("config.json", "posterior.npz"))
            case.files[name] = bent(rng, case.files[name])
        elif way < 0.9:
            name = rng.choice(("config.json", "posterior.npz"))
            case.files[name] = (other / name).read_bytes()
        elif way < 0.95:
            name = rng.choice(("config.json", "posterior.npz"))
            aims = (
                "../around.npz",
                "../around.json",
                "edges.csv",
                "nowhere",
                name,
                "/etc/passwd",
                "/dev/zero",
                "..",
                str(RUNS),
            )
            case.links[name] = rng.choice(aims)
        elif way < 0.97:
            case.pipes.append(rng.choice(("config.json", "posterior.npz")))
        else:
            depth = rng.choice((100, 5_000, 200_000))
            texts = (
                "[" * depth,
                '{"a":' * depth,
                "9" * depth,
                '{"format": 1e' + "9" * 10 + "}",
                '{"format": NaN}',
                "null",
                "[]",
            )
            case.files["config.json"] = rng.choice(texts).encode()
    for name in (*case.links, *case.pipes):
        case.files.pop(name, None)
    case.pipes = sorted(set(case.pipes) - set(case.links))
