"""Which files make a run folder, and what they hold as JSON; without arrays, so that a wrong folder is refused at once.

Folders may come from somebody else: nothing in them is executed, and what they hold is bounded before it is read.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from vcuda.errors import RunError
from vcuda.memory import memory_available

# Names, labels and remarks of 100,000 columns have less.
LARGEST_JSON = 64_000_000
# The objects that are made of a byte of JSON, at most: three bytes make an empty list.
MEMORY_A_BYTE = 32
# Of lists in lists; a run has six.
MOST_LEVELS = 50


def is_ordinary(path: Path) -> bool:
    """Whether there is a file that is no pipe or device, at a path that can be one."""
    try:
        return path.is_file()
    except OSError:
        return False


def file_of(folder: Path, name: str) -> Path:
    """A file of a folder; one that is a link must lead to a file in the same folder, and pipes and devices are none."""
    path = folder / name
    if not is_ordinary(path):
        raise RunError(f"the run {folder} is damaged: it has no file {name}; fit it again")
    if folder.resolve() not in path.resolve().parents:
        raise RunError(
            f"the run {folder} is refused: {name} is a link that leads out of the folder; ask for the files themselves"
        )
    return path


def read_json(path: Path) -> Any:
    """What a JSON file holds: finite numbers of a size that computers have, and texts that can be written again."""
    check_json_size(path.stat().st_size, path.name)
    return parse_json(path.read_bytes(), path.name)


def check_json_size(size: int, name: str) -> None:
    """Refuse so many bytes of JSON that what is made of them could not be held."""
    most = min(LARGEST_JSON, memory_available() // MEMORY_A_BYTE)
    if size > most:
        raise ValueError(f"{name} has more than {most / 1e6:.0f} MB")


def parse_json(content: bytes, name: str) -> Any:
    """The same of bytes that were read from something of that name."""
    try:
        parsed = json.loads(content.decode("utf-8"), parse_int=_whole, parse_float=_real, parse_constant=_real)
        json.dumps(parsed, ensure_ascii=False).encode()  # half a surrogate pair is no text
        if not _is_deep(parsed):
            return parsed
    except RecursionError:
        pass
    raise ValueError(f"brackets in {name} stand in brackets more than {MOST_LEVELS} times")


def config_of(folder: Path) -> Path:
    """The config of a run; a folder without one is no run."""
    if not is_ordinary(folder / "config.json"):
        raise RunError(
            f"{folder} is not a run of vcuda: it has no config.json; make one with: vcuda fit TABLE -o {folder}"
        )
    return file_of(folder, "config.json")


def is_run(folder: Path) -> bool:
    """Whether a path is a folder that ``vcuda fit`` wrote, and no table."""
    return all(is_ordinary(folder / name) for name in ("config.json", "posterior.npz"))


def variables_of(folder: Path) -> list[str]:
    """The names of the columns of a run; none where they cannot be read in this simple way, as loading it will say."""
    try:
        names = read_json(config_of(folder))["names"]
    except (OSError, ValueError, KeyError, TypeError, MemoryError):
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _whole(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a whole number has more than 20 digits")
    return int(digits)


def _real(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is no number that JSON has")
    return number
