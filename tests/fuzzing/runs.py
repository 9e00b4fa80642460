"""Hostile run folders: sound ones of every engine, with their words, arrays, archives and links bent."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import warnings
import zipfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.bending import SCALARS, bent
from fuzzing.files import Files

RUNS = Path(__file__).parents[1] / "fixtures" / "run-format-1"


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


def bent_json(rng: random.Random, tree: Any) -> Any:
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
            holder[last] = deepcopy(rng.choice(SCALARS))  # or the next case would find it bent
        elif what < 0.75:
            del holder[last]
        elif what < 0.85 and isinstance(holder, dict):
            holder[rng.choice(("name", "kind", "x\ny", "__class__", "format"))] = deepcopy(holder[last])
        elif isinstance(holder, list):
            holder.append(deepcopy(rng.choice(holder)))
        elif isinstance(holder[last], int | float):
            holder[last] = rng.choice((-1, 2, 1000, 1e9, 0.1)) * holder[last]
    return tree


def bent_array(rng: random.Random, array: np.ndarray) -> Any:
    if array.dtype.kind not in "biuf":  # bent before
        return array
    way = rng.randrange(18)
    if way < 8 and array.size:
        changed = array.astype(np.float64) if way < 3 and array.dtype.kind != "f" else array.copy()
        at = rng.randrange(array.size)
        if changed.dtype.kind == "f":
            with np.errstate(over="ignore"):
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


def forged_header(rng: random.Random) -> bytes:
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


def zipped(rng: random.Random, arrays: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    method = rng.choice((zipfile.ZIP_DEFLATED,) * 6 + (zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(sink, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, array in arrays.items():
            inner = io.BytesIO()
            if isinstance(array, bytes):
                inner.write(array)
            else:
                np.save(inner, array, allow_pickle=True)
            archive.writestr(name if isinstance(array, bytes) else f"{name}.npy", inner.getvalue())
    return sink.getvalue()


def run(case: Files) -> None:
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
            config = bent_json(rng, config)
            case.files["config.json"] = json.dumps(config, ensure_ascii=True).encode()
        elif way < 0.75:
            for name in rng.sample(sorted(arrays), k=min(len(arrays), rng.choice((1, 1, 1, 2)))):
                what = rng.random()
                if what < 0.8 and isinstance(arrays[name], np.ndarray):
                    arrays[name] = bent_array(rng, arrays[name])
                elif what < 0.9:
                    del arrays[name]
                else:
                    arrays[rng.choice(("../../evil", "/tmp/evil", "law.extra", "x" * 60_000, name))] = arrays.pop(name)
            if rng.random() < 0.1:
                arrays[rng.choice(("law.weights.npy", "law.gram.npy", "../evil.npy", "readme.txt"))] = forged_header(
                    rng
                )
            if rng.random() < 0.02:
                arrays["law.bomb"] = np.zeros(rng.choice((30, 300)) * 1_000_000, dtype=np.uint8)
            case.files["posterior.npz"] = zipped(rng, arrays)
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
