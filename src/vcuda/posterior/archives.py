"""Safe reading of files that somebody else may have made: JSON and arrays, within bounds, without pickle.

Sizes are known before anything is unfolded, only plain arrays of numbers are made, and no file is opened that lies
outside the folder it was asked from.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Mapping
from typing import IO

import numpy as np

from vcuda.data.checks import memory_needed
from vcuda.data.formats import UNREADABLE as UNREADABLE_TABLE
from vcuda.errors import ConfigError
from vcuda.memory import memory_available

MOST_ARRAYS = 100_000
# Each array is read into the place where it stays, and checks make others of its size.
SHARE_OF_MEMORY = 0.5
# An axis of an array without elements takes no memory, however long; but whoever goes along it never ends.
LONGEST_EMPTY = 1 << 20
# Of an archive, at a time.
BLOCK_BYTES = 1 << 20
# As NumPy writes it for plain arrays of truth values, numbers or text; nothing else is understood, let alone evaluated.
HEADER = re.compile(
    rb"\{'descr': '([<>|=][biufU]\d{1,9})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,15}, )*(?:\d{1,15},?)?)\), *\} *\n?"
)
LONGEST_HEADER = 1 << 16
# What the readers raise about files that are not what they should be.
UNREADABLE: tuple[type[Exception], ...] = (*UNREADABLE_TABLE, zipfile.BadZipFile, RecursionError, ConfigError)


def check_square_arrays(columns: int) -> None:
    """Refuse so many columns that tables of all their pairs cannot be held, however few numbers a file has of them."""
    needed = memory_needed(columns)
    if needed > memory_available():
        raise MemoryError(f"tables of all pairs of its {columns:,} columns would take {needed / 1e9:,.2g} GB")


def save_arrays(file: IO[bytes], arrays: Mapping[str, np.ndarray], *, compressed: bool) -> None:
    """Write what :func:`read_arrays` reads."""
    write = np.savez_compressed if compressed else np.savez
    try:
        write(file, **arrays)  # type: ignore[arg-type]
    except ValueError as error:
        # An archive that is left in the middle of an array cannot be closed, and says so in place of what ended it: an
        # interrupt, or a disk that is full.
        if isinstance(error.__context__, KeyboardInterrupt | OSError):
            raise error.__context__ from None
        raise


def read_arrays(path: str | os.PathLike[str], *, kinds: str = "biuf", packed: bool = True) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name, if together they take at most half of the memory that is free.

    ``kinds`` are NumPy's letters for the types of elements that there may be; an archive that is not ``packed`` may
    have no compressed arrays, and so none that are larger than the file. Raises MemoryError before anything is
    read, ValueError, zipfile.BadZipFile and what else the readers raise.
    """
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        _check_members(members, packed=packed)
        arrays = {}
        for member in members:
            with archive.open(member) as content:
                arrays[member.filename.removesuffix(".npy")] = _read_array(content, member.file_size, kinds)
    return arrays


def _check_members(members: list[zipfile.ZipInfo], *, packed: bool) -> None:
    names = [member.filename for member in members]
    if len(names) > MOST_ARRAYS or len(set(names)) < len(names):
        raise ValueError(f"an archive has at most {MOST_ARRAYS:,} arrays, each with a name of its own")
    for member in members:
        if not member.filename.endswith(".npy"):
            raise ValueError(f"{member.filename[:40]!r} is no array")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[: 1 + packed] or member.flag_bits & 1:
            raise ValueError(f"{member.filename[:40]!r} is encrypted, or compressed in a way that NumPy does not use")
    size, most = sum(member.file_size for member in members), SHARE_OF_MEMORY * memory_available()
    if size > most:
        raise MemoryError(f"its arrays would take {size / 1e9:,.2g} GB, more than half of the memory that is free")


def _read_array(content: IO[bytes], size: int, kinds: str) -> np.ndarray:
    """One array, if what its header declares is what the file holds."""
    start = content.read(8)
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}.get(start)
    if width is None:
        raise ValueError("an array has no valid header")
    length = int.from_bytes(content.read(width), "little")
    found = HEADER.fullmatch(content.read(length)) if length <= LONGEST_HEADER else None
    if found is None:
        raise ValueError("an array is none of plain numbers, or its header is damaged")
    dtype = np.dtype(found[1].decode())
    shape = tuple(int(part) for part in found[3].decode().replace(",", " ").split())
    if dtype.kind not in kinds or len(shape) > 32:
        raise ValueError(f"an array has elements of type {dtype}, or too many axes")
    if 0 in shape and max(shape) > LONGEST_EMPTY:
        raise ValueError(f"an array without elements has the shape {shape}")
    if math.prod(shape) * dtype.itemsize != size - len(start) - width - length:
        raise ValueError(f"an array declares the shape {shape}, and does not have it")
    order = "F" if found[2] == b"True" else "C"
    values = np.empty(shape, dtype=dtype, order=order)  # type: ignore[call-overload]
    _fill(values.reshape(-1, order=order), content)
    return values if dtype.isnative else values.astype(dtype.newbyteorder("="))


def _fill(values: np.ndarray, content: IO[bytes]) -> None:
    """Read so many bytes as flat values have; piece by piece, since a whole array would be held twice meanwhile."""
    place = values.view(np.uint8).data
    read = 0
    while read < len(place):
        piece = content.read(min(BLOCK_BYTES, len(place) - read))
        if not piece:
            raise ValueError("an array ends before it should")
        place[read : read + len(piece)] = piece
        read += len(piece)
    if content.read(1):
        raise ValueError("an array goes on after it should end")
