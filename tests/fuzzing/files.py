"""The files of a case: made in memory, written into a folder of their own."""

from __future__ import annotations

import os
import random
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Files:
    """Files, links and pipes by their names inside a folder; ``entry`` is what is opened."""

    rng: random.Random
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    pipes: list[str] = field(default_factory=list)
    entry: str = "."

    def write(self, folder: Path) -> Path:
        """Write all files and links, and return the path that is to be opened."""
        folder.mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        for name, aim in self.links.items():
            (folder / name).unlink(missing_ok=True)
            (folder / name).parent.mkdir(exist_ok=True)
            os.symlink(aim, folder / name)
        for name in self.pipes:
            (folder / name).unlink(missing_ok=True)
            os.mkfifo(folder / name)
        return folder / self.entry


def copied(folder: Path, aim: Path) -> None:
    """Copy a case as it is: links as links, pipes as pipes."""
    shutil.copytree(folder, aim, symlinks=True, copy_function=_copied)


def _copied(source: str, aim: str) -> None:
    if stat.S_ISFIFO(os.lstat(source).st_mode):
        os.mkfifo(aim)
    else:
        shutil.copy2(source, aim)
