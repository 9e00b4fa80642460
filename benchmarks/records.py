"""One JSON line a run: what was run, on which commit and versions, and what came out."""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vcuda.fitting.fit import versions

RESULTS = Path(__file__).parent / "results"

Line = dict[str, Any]


@cache
def environment() -> dict[str, Any]:
    """The commit (marked when the tree has other changes than lines and what is made of them) and all versions."""
    commit = _git("describe", "--always")
    made = (":(top,exclude)benchmarks/results", ":(top,exclude)docs")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", *made)
    return {"commit": f"{commit or 'unknown'}{'-dirty' if changed else ''}", "versions": versions()}


def _git(*arguments: str) -> str:
    seen = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=RESULTS.parent, check=False)
    return seen.stdout.strip()


class Records:
    """The stored lines of one benchmark; a run that is stored is not run again unless ``fresh``.

    Each line is written as soon as it is there, so that a benchmark which is stopped goes on where it was.
    """

    def __init__(self, name: str, *, fresh: bool = False, keep: bool = True, folder: Path | None = None) -> None:
        self.path = (folder or RESULTS) / f"{name}.jsonl"
        self.keep = keep
        self.lines: list[Line] = []
        self._found: dict[tuple[str, ...], dict[str, Line]] = {}
        if self.path.exists() and keep:
            if fresh:
                self.path.unlink()
            else:
                self.lines = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]

    def find(self, what: dict[str, Any]) -> Line | None:
        """The stored line of a run, or None."""
        keys = tuple(sorted(what))
        if keys not in self._found:
            complete = (line for line in self.lines if all(key in line for key in keys))
            self._found[keys] = {}
            for line in complete:
                self._found[keys].setdefault(_identity(line, keys), line)
        return self._found[keys].get(_identity(what, keys))

    def add(self, what: dict[str, Any], found: dict[str, Any]) -> Line:
        """Write the line of a run that was measured now."""
        line = what | found | environment()
        self.lines.append(line)
        self._found.clear()
        if self.keep:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return line

    def forget(self, runs: Iterable[dict[str, Any]]) -> None:
        """Drop the stored lines of these runs, so that they are measured again; the others stay."""
        dropped = {id(line) for line in map(self.find, runs) if line is not None}
        if not dropped:
            return
        self.lines = [line for line in self.lines if id(line) not in dropped]
        self._found.clear()
        if self.keep:
            # Written beside and then moved: an interrupt in between loses nothing.
            beside = self.path.with_suffix(".tmp")
            beside.write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")
            os.replace(beside, self.path)

    def run(self, what: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> Line:
        """The line of a run: stored, or measured now and stored."""
        return self.find(what) or self.add(what, measure())


def _identity(line: Line, keys: Sequence[str]) -> str:
    return json.dumps([line[key] for key in keys], sort_keys=True)


def grouped(lines: Iterable[Line], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Line]]:
    """Lines that agree in all of these keys together, in the order in which groups first come."""
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        groups[tuple(line[key] for key in keys)].append(line)
    return groups


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; numbers are given as the caller wrote them."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
