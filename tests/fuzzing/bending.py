"""What all hostile cases are made of: strange words, strange cells, and bytes that are bent."""

from __future__ import annotations

import random
from typing import Any

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


def quoted(cell: str, separator: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if set(cell) & {separator, '"', "\n", "\r"} else cell
