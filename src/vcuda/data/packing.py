"""Compressed files: which ending means which, and how their content is read."""

from __future__ import annotations

import bz2
import gzip
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from vcuda.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

# The codecs of Arrow that read them; Arrow has none for xz.
PACKINGS: dict[str, str | None] = {".gz": "gzip", ".bz2": "bz2", ".xz": None, ".zst": "zstd"}
# Deflate makes a byte out of no less than 1/1032 of one; the others have no such bound.
HIGHEST_COMPRESSION = {".gz": 1032.0, "": 1.0}


class Unpacked(NamedTuple):
    """The content of a file, and the file as it is on disk, whose position says how much was read."""

    content: IO[bytes]
    packed: IO[bytes]


def packing_of(path: Path) -> str:
    """The ending that says how a file is compressed, in lower case; empty where it is not."""
    ending = path.suffix.lower()
    return ending if ending in PACKINGS else ""


@contextmanager
def unpacked(path: Path) -> Iterator[Unpacked]:
    """The bytes of a file, without its compression."""
    packing = packing_of(path)
    with open(path, "rb") as packed:
        if not packing:
            yield Unpacked(packed, packed)
            return
        with _opened(path, packed, packing) as content:
            yield Unpacked(content, packed)


def _opened(path: Path, packed: IO[bytes], packing: str) -> Any:
    if packing == ".gz":
        return gzip.open(packed)
    if packing == ".bz2":
        return bz2.open(packed)
    if packing == ".xz":
        import lzma

        return lzma.open(packed)
    import pyarrow as pa

    _check_codec(path, "zstd")
    return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")


def arrow_stream(path: Path, file: Any) -> Any:
    """A file that Arrow has opened, without its compression."""
    import pyarrow as pa

    packing = packing_of(path)
    if not packing:
        return file
    codec = PACKINGS[packing]
    if codec is None:
        import lzma

        return pa.PythonFile(lzma.open(cast(IO[bytes], file)), mode="r")
    _check_codec(path, codec)
    return pa.CompressedInputStream(file, codec)


def _check_codec(path: Path, codec: str) -> None:
    import pyarrow as pa

    if not pa.Codec.is_available(codec):
        raise DataError(f"{path}: this pyarrow was built without {codec}: unpack the file first.")
