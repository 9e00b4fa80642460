"""Hostile checkpoints: a sound one of a fit that was killed, with its request, parts and links bent."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import numpy as np

from fuzzing.bending import bent
from fuzzing.files import Files
from fuzzing.runs import RUNS, bent_array, bent_json, forged_header, zipped
from vcuda.fitting.spec import OPTIONS

FOLDER = "checkpoint"
# What the sound one was asked for, and what it keeps.
ARGUMENTS: dict[str, Any] = {"seed": 1, "engine": {"spec": "Orders", "chains": 3}}
VERSIONS = {"numpy": "2"}
NAMES, GIVEN = ("block 1", "part/block 2", "words"), "0123456789abcdef"
NOTES: dict[str, Any] = {
    "table": "table.csv",
    "folder": "outputs/run",  # as seen from where cases are opened
    **{name: option.default for name, option in OPTIONS.items()},
    "knowledge": {},
    "model": "linear",
    "engine": "exact",
    "samples": 0,
    "no_report": True,
}
REQUEST = {"format": 1, "arguments": ARGUMENTS, "versions": VERSIONS, "notes": NOTES}


def _sound_parts() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Index and arrays of each part."""
    entries: list[list[tuple[str, dict[str, np.ndarray]]]] = [
        [(NAMES[0], {"orders": np.arange(12).reshape(3, 4), "scores": np.linspace(0, 1, 3)})],
        [(NAMES[1], {"state": np.arange(6, dtype=np.uint64)}), (NAMES[2], {"words": np.array(["ä", "b"])})],
        [(f"sets {GIVEN}/3", {"sets": np.array([[0, 1], [2, -1]], dtype=np.int32), "scores": np.ones((2, 4))})],
    ]
    parts = []
    for number, kept in enumerate(entries):
        reports = [{"name": name, "given": GIVEN, "arrays": list(arrays)} for name, arrays in kept]
        index = {"seconds": 5.0 * (number + 1), "spent": 5.0 * (number + 1), "resumed": 0, "entries": reports}
        named = {
            f"{entry}.{place}": array
            for entry, (_, arrays) in enumerate(kept)
            for place, array in enumerate(arrays.values())
        }
        parts.append((index, named))
    return parts


def _stored(index: Any, arrays: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, index=np.frombuffer(json.dumps(index).encode(), dtype=np.uint8), **arrays)
    return sink.getvalue()


def _bent_arrays(rng: random.Random, arrays: dict[str, Any]) -> bytes:
    name = rng.choice(sorted(arrays))
    what = rng.random()
    if what < 0.7:
        arrays[name] = bent_array(rng, arrays[name])
    elif what < 0.8:
        del arrays[name]
    elif what < 0.95:
        arrays[rng.choice(("0.0.npy", "index.npy", "../evil.npy", "readme.txt"))] = forged_header(rng)
    else:
        arrays[name] = np.zeros((1 << 40, 0))
    return zipped(rng, arrays)


def checkpoint(case: Files) -> None:
    rng = case.rng
    parts, request = _sound_parts(), json.loads(json.dumps(REQUEST))
    case.files = {f"{FOLDER}/{number:06d}.npz": _stored(*part) for number, part in enumerate(parts, start=1)}
    case.files[f"{FOLDER}/request.json"] = json.dumps(request).encode()
    case.files["table.csv"] = b"a,b,c\n" + b"1.5,2,3\n2,0.5,4\n3,2,2\n4,1,9\n5,1.5,3\n6,0.7,8\n"
    if rng.random() < 0.3:
        run = RUNS / "exact-linear"
        case.files |= {name: (run / name).read_bytes() for name in ("config.json", "posterior.npz")}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        number = rng.randrange(len(parts))
        part = f"{FOLDER}/{number + 1:06d}.npz"
        index, arrays = json.loads(json.dumps(parts[number][0])), dict(parts[number][1])
        way = rng.random()
        if way < 0.25:
            whose = rng.choice((request, request["notes"], request["notes"], request["arguments"]))
            bent_json(rng, whose)
            case.files[f"{FOLDER}/request.json"] = json.dumps(request).encode()
        elif way < 0.4:
            case.files[part] = _stored(bent_json(rng, index), arrays)
        elif way < 0.65:
            arrays["index"] = np.frombuffer(json.dumps(index).encode(), dtype=np.uint8)
            case.files[part] = _bent_arrays(rng, arrays)
        elif way < 0.8:
            name = rng.choice((part, f"{FOLDER}/request.json"))
            case.files[name] = bent(rng, case.files[name])
        elif way < 0.9:
            aims = (
                "../../../around.npz",
                "../../../around.json",
                "request.json",
                "/etc/passwd",
                "/dev/zero",
                "..",
                ".",
            )
            case.links[rng.choice((part, f"{FOLDER}/request.json", f"{FOLDER}/.writing-000009.npz"))] = rng.choice(aims)
        elif way < 0.93:
            case.pipes.append(rng.choice((part, f"{FOLDER}/request.json", f"{FOLDER}/000009.npz")))
        elif way < 0.96:
            case.files[f"{FOLDER}/{rng.choice(('9' * 200, '4', '٣٣٣٣٣٣', '-00001', '../000007'))}.npz"] = case.files[
                part
            ]
        else:
            depth = rng.choice((100, 200_000))
            texts = ("[" * depth, '{"a":' * depth, "9" * depth, '{"format": NaN}', "null", "[]")
            case.files[f"{FOLDER}/request.json"] = rng.choice(texts).encode()
    if rng.random() < 0.03:
        case.files = {name: content for name, content in case.files.items() if not name.startswith(FOLDER)}
        case.links, case.pipes = {FOLDER: rng.choice(("../..", "../../..", "nowhere"))}, []
    for name in (*case.links, *case.pipes):
        case.files.pop(name, None)
    case.pipes = sorted(set(case.pipes) - set(case.links))
