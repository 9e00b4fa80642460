"""Locks of folders, so that no two fits write into the same one; the system lifts them when a process dies."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import IO, Self

from vcuda.errors import RunError
from vcuda.interrupts import undone

LOCK = ".lock"


class FolderLock:
    """A folder that is ours while this lasts.

    It is made if need be; at the end an empty one is removed if it was made now, or if it is ``ours`` alone. The lock
    is the operating system's, on a file in the folder: a file that a killed process left is no obstacle.
    """

    def __init__(self, folder: str | os.PathLike[str], *, ours: bool = False) -> None:
        self.folder = Path(folder)
        self._file: IO[bytes] | None = None
        self._removed = ours

    def __enter__(self) -> Self:
        self._undone = undone(self._release)
        self._undone.__enter__()
        try:
            self._removed = self._removed or not self.folder.exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            while self._file is None:
                self._file = self._locked()
        except BaseException as error:
            self._undone.__exit__(None, None, None)
            if not isinstance(error, OSError):
                raise
            raise RunError(
                f"cannot write into {self.folder}: {error.strerror or error}; choose another folder, or make room there"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._release()
        self._undone.__exit__(None, None, None)

    def _release(self) -> None:
        if self._file is not None:
            if sys.platform == "win32":
                # There an open file cannot be removed.
                self._file.close()
            # Removed before it is unlocked: who holds the file opened sees that it is no longer the folder's.
            with contextlib.suppress(OSError):
                (self.folder / LOCK).unlink()
            self._file.close()
            self._file = None
        if self._removed:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def _locked(self) -> IO[bytes] | None:
        """The file, locked; None where it was removed meanwhile, so that another one must be tried."""
        path = self.folder / LOCK
        # Neither read nor written; opened for appending so that it is made where there is none.
        file = open(path, "ab")  # noqa: SIM115
        try:
            if not _lock(file):
                raise RunError(
                    f"another fit is writing into {self.folder}; wait until it has ended, or give another folder"
                )
            if os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        return None


def _lock(file: IO[bytes]) -> bool:
    """Lock an open file, or say that another process has."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks is no reason to refuse a fit.
        return True
    return True
