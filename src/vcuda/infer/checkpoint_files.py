"""Checkpoints in a folder: numbered parts, each written under another name, flushed to the disk and renamed.

``request.json`` says which fit the parts belong to. A part is an archive of plain arrays with an index of its entries;
at any moment all parts with a proper name are whole, so a process may be killed whenever it likes. A part whose entries
have all been replaced by later ones is deleted once those are safe.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from vcuda.errors import RunError
from vcuda.infer.checkpoint import Arrays, Checkpointer, no_checkpoint
from vcuda.models.caching import SetMemory
from vcuda.posterior.archives import UNREADABLE, read_arrays, save_arrays
from vcuda.posterior.run_folders import check_json_size, is_ordinary, parse_json, read_json

FORMAT = 1
REQUEST = "request.json"
DRAFT = ".writing-"
# A fit that takes less than this leaves no trace.
PATIENCE = 5.0
# Later parts are this share of the fit's time apart, so that there are not too many of them, and writing takes at most
# the other share of it.
APART, WRITING = 0.01, 0.02
FAULTS = {
    "arguments": "belongs to another fit",
    "versions": "was made with other versions, whose numbers may differ",
}
PART_NAME = re.compile(r"[0-9]{6,15}\.npz")
DAMAGED = UNREADABLE
LONGEST_REASON = 200


def warn(sentence: str) -> None:
    """Warn as Python does."""
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit keeps what it has worked out, and whether it takes up what is there.

    Parameters
    ----------
    folder
        Made when there is something to write. Nothing else should be in it.
    resume
        Whether to go on from what an earlier fit with the same data and arguments left there; if not, that is replaced.
    notes
        What whoever resumes the fit wants to know; plain JSON, stored as it is.
    keep
        Whether the folder stays when the fit has ended by itself: for one who saves the result first.
    on_warning
        Called with a sentence when checkpoints cannot be written any more; by default a warning.
    """

    folder: str | os.PathLike[str]
    resume: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)
    keep: bool = False
    on_warning: Callable[[str], None] = warn

    @property
    def has_request(self) -> bool:
        """Whether the folder holds a fit."""
        return is_ordinary(Path(self.folder) / REQUEST)

    def stored_request(self) -> dict[str, Any] | None:
        """What the fit in the folder was asked for, or None if there is none."""
        path = Path(self.folder) / REQUEST
        if not is_ordinary(path):
            return None
        if path.is_symlink():
            raise RunError(
                f"the checkpoint {path.parent} is refused: {REQUEST} is a link; ask for the files themselves"
            )
        try:
            found = read_json(path)
        except DAMAGED as error:
            reason = str(error)[:LONGEST_REASON] or type(error).__name__
            raise RunError(f"the checkpoint {path.parent} cannot be read ({reason}); start the fit again") from error
        parts = ("arguments", "versions", "notes")
        if not isinstance(found, dict) or not all(isinstance(found.get(name), dict) for name in parts):
            raise RunError(f"{path} does not say which fit it belongs to; start the fit again")
        if type(found.get("format")) is not int:
            raise RunError(f"the checkpoint {path.parent} names no format; start the fit again")
        if found["format"] != FORMAT:
            raise RunError(
                f"the checkpoint {path.parent} has format {found['format']}, and this vcuda reads format {FORMAT}; "
                "start the fit again, or resume it with the version that began it"
            )
        return found

    def remove(self) -> None:
        """Delete what is kept; other files in the folder stay."""
        folder = Path(self.folder)
        # The request goes first: without it the parts mean nothing.
        for path in (folder / REQUEST, *parts_in(folder).values(), *folder.glob(f"{DRAFT}*")):
            path.unlink(missing_ok=True)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


class CheckpointFiles:
    """The checkpointer of one fit in the folder of a checkpoint; the caller sees to it that no other fit writes there.

    Attributes
    ----------
    seconds_before, spent_before
        What the fit has taken before it was resumed, and how much of that counts for its time limit: nothing after one
        that was ended early and saved, since who resumes it asks for more.
    resumed
        How many times it was resumed.
    """

    def __init__(self, checkpoint: Checkpoint, request: Mapping[str, Any]) -> None:
        self.checkpoint, self.folder = checkpoint, Path(checkpoint.folder)
        self.request = {"format": FORMAT, **request, "notes": dict(checkpoint.notes)}
        self.seconds_before, self.spent_before, self.resumed = 0.0, 0.0, 0
        self._known: dict[str, _Entry] = {}
        self._home: dict[str, int] = {}
        self._fresh: dict[str, _Entry] = {}
        self._memories: dict[str, _SetScores] = {}
        self._last = 0
        self._begun = self._written = time.monotonic()
        self._wait = PATIENCE
        self._is_ours = self._broken = self._ended = False
        if checkpoint.resume and (stored := checkpoint.stored_request()) is not None:
            _check_same(stored, self.request, self.folder)
            self._is_ours = True
            self._read()

    def __reduce__(self) -> tuple[Any, ...]:
        return (no_checkpoint, ())

    # As a checkpointer ----------------------------------------------------------------------------------------------

    def recall(self, name: str, given: str) -> Arrays | None:
        # Asked for once: the file still has it if the fit is killed again.
        entry = self._known.pop(name, None)
        return entry.arrays if entry is not None and entry.given == given else None

    def keep(self, name: str, given: str, arrays: Callable[[], Arrays]) -> None:
        if self._broken:
            return
        self._fresh[name] = _Entry(given, dict(arrays()))
        self.tick()

    def scope(self, prefix: str) -> Checkpointer:
        return _Scope(self, f"{prefix}/")

    def forget(self) -> None:
        self.forget_under("")

    def sets(self, given: str) -> SetMemory | None:
        if given not in self._memories:
            self._memories[given] = _SetScores(self, f"sets {given}/")
        return self._memories[given]

    # To the disk -----------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """What the fit has taken altogether."""
        return self.seconds_before + time.monotonic() - self._begun

    def tick(self) -> None:
        """Write what is new, if it is time for that."""
        if not self._broken and time.monotonic() - self._written >= self._wait:
            self.write()

    def write(self) -> None:
        """Write what is new as a part; where that fails, the fit goes on without, and older parts stay as they are."""
        started = time.monotonic()
        try:
            self._write()
        except OSError as error:
            self._broken = True
            self._fresh.clear()
            self.checkpoint.on_warning(
                f"No more checkpoints are written, since {self.folder} cannot be written into "
                f"({error.strerror or error}); the fit goes on, and earlier checkpoints stay valid."
            )
        now = time.monotonic()
        self._written = now
        self._wait = max(PATIENCE, APART * self.seconds, (now - started) / WRITING)

    def close(self, ended: Literal["by itself", "early", "not"]) -> None:
        """Write the rest of a fit that ended early; of any other if it has lasted and its checkpoint stays."""
        lasted = self._is_ours or time.monotonic() - self._begun >= PATIENCE
        if ended == "by itself" and not self.checkpoint.keep:
            # What cannot be removed does no harm: whoever resumes from it gets the same result again.
            with contextlib.suppress(OSError):
                self.checkpoint.remove()
        elif not self._broken and (lasted or ended == "early"):
            self._ended = ended == "early"
            self.write()

    def forget_under(self, prefix: str) -> None:
        """Drop all entries whose name begins so; their parts go when the next one is written."""
        for names in (self._known, self._fresh, self._home):
            for name in [name for name in names if name.startswith(prefix)]:
                del names[name]

    def entries_under(self, prefix: str) -> list[Arrays]:
        """All that was kept under names that begin so."""
        return [entry.arrays for name, entry in self._known.items() if name.startswith(prefix)]

    def _write(self) -> None:
        if not self._is_ours:
            # What an earlier fit left in the folder is given up only now: this one has lasted.
            self.checkpoint.remove()
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.request, indent=2).encode()
            self._put(REQUEST, lambda file: file.write(text))
            self._is_ours = True
        entries = dict(self._fresh)
        for memory in self._memories.values():
            entries |= memory.new(self._last + 1)
        index: list[dict[str, Any]] = []
        arrays: dict[str, Any] = {}
        for number, (name, entry) in enumerate(entries.items()):
            index.append({"name": name, "given": entry.given, "arrays": list(entry.arrays)})
            arrays |= {f"{number}.{place}": array for place, array in enumerate(entry.arrays.values())}
        spent = 0.0 if self._ended else self.seconds - self.seconds_before + self.spent_before
        head = {"seconds": self.seconds, "spent": spent, "resumed": self.resumed, "entries": index}
        stored = json.dumps(head).encode()
        arrays["index"] = np.frombuffer(stored, dtype=np.uint8)
        self._put(_part_name(self._last + 1), lambda file: save_arrays(file, arrays, compressed=False))
        self._last += 1
        self._home |= dict.fromkeys(entries, self._last)
        self._fresh.clear()
        for memory in self._memories.values():
            memory.written()
        alive = Counter(self._home.values())
        for number, path in parts_in(self.folder).items():
            if number < self._last and not alive[number]:
                path.unlink(missing_ok=True)

    def _put(self, name: str, write: Callable[[IO[bytes]], Any]) -> None:
        """Write a file that is there as a whole or not at all, even if the power fails."""
        draft = self.folder / f"{DRAFT}{name}"
        try:
            with open(draft, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.folder / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        if hasattr(os, "O_DIRECTORY"):
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _read(self) -> None:
        """Take up all parts, up to the first that is damaged; that one and what follows it is deleted."""
        damaged = False
        for number, path in parts_in(self.folder).items():
            if not damaged:
                try:
                    stored, entries = read_part(path)
                except MemoryError as error:
                    # It may be whole: nothing is deleted.
                    reason = str(error)[:LONGEST_REASON] or type(error).__name__
                    raise RunError(
                        f"the checkpoint {self.folder} does not fit into the memory that is free ({path.name}: "
                        f"{reason}); resume it where there is more"
                    ) from error
                except DAMAGED:
                    damaged = True
            if damaged:
                path.unlink(missing_ok=True)
                continue
            self._known |= entries
            self._home |= dict.fromkeys(entries, number)
            self._last = number
            self.seconds_before, self.spent_before, self.resumed = stored
        self.resumed += 1
        for draft in self.folder.glob(f"{DRAFT}*"):
            draft.unlink(missing_ok=True)


class _Entry:
    """What a step led to, and the fingerprint of what it was given."""

    __slots__ = ("arrays", "given")

    def __init__(self, given: str, arrays: Arrays) -> None:
        self.given, self.arrays = given, arrays


class _Scope:
    """A part of a checkpoint, by the beginning of its names."""

    def __init__(self, whole: CheckpointFiles, prefix: str) -> None:
        self._whole, self._prefix = whole, prefix

    def __reduce__(self) -> tuple[Any, ...]:
        return (no_checkpoint, ())

    def recall(self, name: str, given: str) -> Arrays | None:
        return self._whole.recall(self._prefix + name, given)

    def keep(self, name: str, given: str, arrays: Callable[[], Arrays]) -> None:
        self._whole.keep(self._prefix + name, given, arrays)

    def scope(self, prefix: str) -> Checkpointer:
        return _Scope(self._whole, f"{self._prefix}{prefix}/")

    def forget(self) -> None:
        self._whole.forget_under(self._prefix)

    def sets(self, given: str) -> SetMemory | None:
        return self._whole.sets(given)


class _SetScores:
    """Scores (d,) of sets of parents; those of one part are an entry of their own."""

    def __init__(self, whole: CheckpointFiles, prefix: str) -> None:
        self._whole, self._prefix = whole, prefix
        self._before: dict[tuple[int, ...], np.ndarray] = {}
        self._now: dict[tuple[int, ...], np.ndarray] = {}
        for arrays in whole.entries_under(prefix):
            sets: Any = arrays.get("sets")
            scores: Any = arrays.get("scores")
            if not _fit_together(sets, scores):
                continue
            for members, own in zip(sets, scores, strict=True):
                self._before[tuple(member for member in members.tolist() if member >= 0)] = own

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(None), ())

    def recall(self, parents: tuple[int, ...]) -> np.ndarray | None:
        return self._before.get(parents)

    def keep(self, parents: tuple[int, ...], scores: np.ndarray) -> None:
        self._now[parents] = scores
        self._whole.tick()

    def new(self, number: int) -> dict[str, _Entry]:
        """What is not yet in a part, as entries of part ``number``."""
        if not self._now:
            return {}
        sets = np.full((len(self._now), max(map(len, self._now))), -1, dtype=np.int32)
        for row, parents in enumerate(self._now):
            sets[row, : len(parents)] = parents
        return {f"{self._prefix}{number}": _Entry("", {"sets": sets, "scores": np.stack(list(self._now.values()))})}

    def written(self) -> None:
        self._now.clear()


def _fit_together(sets: Any, scores: Any) -> bool:
    """Whether these are what was written: scores for each set."""
    found = (sets, scores)
    return (
        all(isinstance(array, np.ndarray) and array.ndim == 2 for array in found)
        and (sets.dtype.kind, scores.dtype.kind) == ("i", "f")
        and len(sets) == len(scores)
    )


def _part_name(number: int) -> str:
    return f"{number:06d}.npz"


def parts_in(folder: Path) -> dict[int, Path]:
    """The parts in a folder by their number, the first first."""
    paths = (path for path in folder.glob("*.npz") if PART_NAME.fullmatch(path.name) and is_ordinary(path))
    found = {int(path.stem): path for path in paths}
    return {number: path for number, path in sorted(found.items()) if path.name == _part_name(number)}


def read_part(path: Path) -> tuple[tuple[float, float, int], dict[str, _Entry]]:
    """Seconds, those that count for the time limit, and resumptions, as a part records them; and its entries.

    The folder may come from somebody else: what a part claims is checked, within the bounds of a stored run.
    """
    if path.is_symlink():
        raise ValueError("a part of a checkpoint is no link")
    arrays = read_arrays(path, kinds="biufU", packed=False)
    index = arrays.pop("index")
    check_json_size(index.nbytes, "its index")
    stored = parse_json(index.tobytes(), "its index")
    entries = {}
    for number, one in enumerate(stored["entries"]):
        name, given, names = one["name"], one["given"], one["arrays"]
        if not all(isinstance(text, str) for text in (name, given, *names)):
            raise ValueError("an entry has a name that is no text")
        entries[name] = _Entry(given, {own: arrays[f"{number}.{place}"] for place, own in enumerate(names)})
    seconds, spent, resumed = float(stored["seconds"]), float(stored["spent"]), int(stored["resumed"])
    if min(seconds, spent, resumed) < 0:
        raise ValueError("a part records a negative time")
    return (seconds, spent, resumed), entries


def _check_same(stored: Mapping[str, Any], request: Mapping[str, Any], folder: Path) -> None:
    """Refuse to go on with another fit than the one that is kept."""
    # As JSON has it: a tuple comes back as a list.
    asked = json.loads(json.dumps({name: request[name] for name in FAULTS}))
    for name, fault in FAULTS.items():
        before, now = stored[name], asked[name]
        differ = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if differ:
            changes = ", ".join(
                f"{key} was {_shown(before.get(key))} and is {_shown(now.get(key))}" for key in differ[:3]
            )
            raise RunError(
                f"the checkpoint {folder} {fault}: {changes}; resume it as it was begun, or start anew without resuming"
            )


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
