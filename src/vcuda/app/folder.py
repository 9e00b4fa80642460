"""The folder of an app: runs as the command line writes them, uploaded tables, knowledge files, and what was asked.

Names that come from a browser are looked up among what is there, and never joined to a path.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import unicodedata
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from vcuda.errors import DataError, RunError

TABLES, KNOWLEDGE, ASKED = "tables", "knowledge", ".vcuda-app"
LARGEST_SUMMARY = 16_000_000
MOST_RUNS = 500
# Bytes of the disk that an upload leaves free.
KEPT_FREE = 500_000_000
LONGEST_NAME = 100
UNFINISHED = ".part"
# What Windows gives to devices.
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


class Folder:
    """The places of an app, and what is there."""

    def __init__(self, path: str | os.PathLike[str], *, table: str | None = None) -> None:
        self.path = Path(path).absolute()
        # A table that stays where it is: the one that the app was opened with.
        self.opened = Path(table).absolute() if table is not None else None

    def make(self) -> None:
        """Make the folder where there is none; a sentence where that cannot be."""
        try:
            for name in ("", TABLES, KNOWLEDGE, ASKED):
                (self.path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the folder {self.path}: {error.strerror or error}; choose another") from error
        # Uploads that ended half-way.
        for left in (self.path / TABLES).glob(f"*{UNFINISHED}"):
            with suppress(OSError):
                left.unlink()

    def tables(self) -> dict[str, Path]:
        """Tables by name: the one that the app was opened with, then those that were uploaded, the latest first."""
        found = {} if self.opened is None else {self.opened.name: self.opened}
        uploaded = [file for file in _children(self.path / TABLES) if file.is_file() and file.suffix != UNFINISHED]
        uploaded.sort(key=lambda file: file.stat().st_mtime, reverse=True)
        return found | {file.name: file for file in uploaded if file.name not in found}

    def run(self, name: str) -> Path:
        """The folder of a run, by its name."""
        found = {run.name: run for run in self._run_folders()}
        if name not in found:
            raise RunError(f"there is no run {name!r} in {self.path}; choose another one")
        return found[name]

    def _run_folders(self) -> list[Path]:
        hidden = (TABLES, KNOWLEDGE)
        return [child for child in _children(self.path) if child.is_dir() and child.name not in hidden]

    def runs(self) -> list[dict[str, Any]]:
        """Every run with what its summary says, the latest first."""
        found = []
        for run in self._run_folders():
            config, checkpoint = run / "config.json", run / "checkpoint"
            finished = config.is_file() and not config.is_symlink()
            begun = not checkpoint.is_symlink() and (checkpoint / "request.json").is_file()
            if finished or begun:
                when = (config if finished else checkpoint).stat().st_mtime
                found.append((when, run.name, {"finished": finished, "resumable": begun}))
        found.sort(reverse=True, key=lambda one: one[:2])
        return [
            {"name": name, "when": when, **state, **self._summary(name), "asked": self.asked(name)}
            for when, name, state in found[:MOST_RUNS]
        ]

    def _summary(self, name: str) -> dict[str, Any]:
        stored = _read_json(self.path / name / "summary.json")
        wanted = ("status", "rows", "columns", "seconds", "model", "engine")
        return {key: stored[key] for key in wanted if isinstance(stored.get(key), str | int | float)}

    def asked(self, name: str) -> dict[str, Any]:
        """What somebody asked of a run in this app: question, table, command; empty for runs from elsewhere."""
        return _read_json(self.path / ASKED / f"{name}.json")

    def note(self, name: str, asked: dict[str, Any]) -> None:
        """Keep what was asked of a run."""
        (self.path / ASKED / f"{name}.json").write_text(json.dumps(asked), encoding="utf-8")

    def new_run(self, name: str) -> Path:
        """A folder for a run, under this name or, where that is taken, with a number."""
        wanted = safe_name(name, "run")
        if wanted in (TABLES, KNOWLEDGE):
            wanted += "-run"
        path = _free(self.path / wanted)
        try:
            # Taken from now on, also by a fit that still waits.
            path.mkdir()
        except OSError as error:
            raise RunError(
                f"cannot write into {self.path}: {error.strerror or error}; choose another folder"
            ) from error
        return path

    def knowledge_file(self, run: str) -> Path:
        return self.path / KNOWLEDGE / f"{run}.toml"

    async def store(self, name: str, chunks: AsyncIterator[bytes], *, size: int | None, most: int) -> Path:
        """Write an upload as it comes, a piece at a time, and take it into the tables when it is complete."""
        room = shutil.disk_usage(self.path).free - KEPT_FREE
        _check_size(size or 0, most, room)
        folder = self.path / TABLES
        draft = _free(folder / f"{safe_name(name, 'table')}.{os.urandom(6).hex()}{UNFINISHED}")
        written = 0
        try:
            with open(draft, "xb") as file:
                async for chunk in chunks:
                    written += len(chunk)
                    _check_size(written, most, room)
                    file.write(chunk)
            if written == 0:
                raise DataError("the file is empty: choose another one")
            # No await from here on, so that no other upload takes the name in between.
            path = _free(folder / safe_name(name, "table"))
            os.replace(draft, path)
            return path
        except OSError as error:
            raise RunError(f"cannot store the upload in {folder}: {error.strerror or error}") from error
        finally:
            with suppress(OSError):
                draft.unlink()


def _check_size(size: int, most: int, room: int) -> None:
    if size > most:
        raise DataError(
            f"the file has more than {most / 1e9:,.1f} GB, the most that the app takes: start it with that file "
            "(vcuda app FILE), and it is read where it is, or with a larger --upload-limit"
        )
    if size > room:
        raise DataError("there is too little room on the disk for this file: delete others, or choose another --folder")


def safe_name(name: str, otherwise: str) -> str:
    """A name of a file for what somebody called theirs: no folders, no control characters, no hidden files."""
    base = unicodedata.normalize("NFC", name).replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join(letter if letter.isalnum() or letter in " ._-()" else "_" for letter in base).strip(" .")
    if len(kept.encode()) > LONGEST_NAME:
        stem, dot, ending = kept.rpartition(".")
        tail = f".{ending[:12]}" if dot else ""
        kept = (stem or ending).encode()[: LONGEST_NAME - len(tail)].decode(errors="ignore").strip(" .") + tail
    if not kept.strip("_") or RESERVED.fullmatch(kept):
        kept = f"{otherwise}{Path(kept).suffix}" if kept else otherwise
    return kept


def _free(path: Path) -> Path:
    """The path, or the first with a number that is not taken."""
    number, free = 1, path
    suffixes = "".join(path.suffixes[-2:]) if path.suffixes else ""
    stem = path.name.removesuffix(suffixes)
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{stem}-{number}{suffixes}")
    return free


def _children(folder: Path) -> list[Path]:
    """What a folder holds, without links, which may lead anywhere, and hidden files."""
    try:
        return [child for child in folder.iterdir() if not child.is_symlink() and not child.name.startswith(".")]
    except OSError:
        return []


def _read_json(path: Path) -> dict[str, Any]:
    """A small file of JSON; empty where there is none, or where it is something else."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST_SUMMARY:
            return {}
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def today() -> str:
    return time.strftime("%Y-%m-%d %H:%M")
