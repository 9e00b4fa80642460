"""Fits that are kept on disk while they run, and go on where they were when they were killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from os import PathLike
from typing import Any

from vcuda.errors import ConfigError, RunError, VcudaError
from vcuda.infer.checkpoint import NO_CHECKPOINT, Checkpointer
from vcuda.infer.checkpoint_files import Checkpoint, CheckpointFiles
from vcuda.posterior.locks import FolderLock
from vcuda.posterior.posterior import Status
from vcuda.specs import to_json


@dataclass
class Keeping:
    """The checkpointer of a fit, and what it recorded of the fit before it was resumed."""

    checkpointer: Checkpointer = NO_CHECKPOINT
    seconds_before: float = 0.0
    spent_before: float = 0.0
    resumed: int = 0
    status: Status | None = None

    def to_dict(self) -> dict[str, Any]:
        """What the provenance of a fit that was resumed has beside that of any other."""
        if not self.resumed:
            return {}
        return {"resumed": {"times": self.resumed, "seconds_before": self.seconds_before}}


def as_checkpoint(checkpoint: str | PathLike[str] | Checkpoint | None, resume: bool) -> Checkpoint | None:
    """A folder and whether to go on from it, as one."""
    if isinstance(checkpoint, Checkpoint):
        return checkpoint
    if checkpoint is not None:
        return Checkpoint(checkpoint, resume=resume)
    if resume:
        raise ConfigError("resume goes on from a checkpoint; give its folder as checkpoint")
    return None


@contextmanager
def keeping(checkpoint: Checkpoint | None, arguments: dict[str, Any], versions: dict[str, str]) -> Iterator[Keeping]:
    """The checkpointer of a fit while it lasts; the fit says how it ended by setting ``status``."""
    if checkpoint is None:
        yield Keeping()
        return
    with FolderLock(checkpoint.folder, ours=True):
        files = CheckpointFiles(checkpoint, {"arguments": _plain(arguments), "versions": versions})
        kept = Keeping(files, files.seconds_before, files.spent_before, files.resumed)
        try:
            yield kept
        except BaseException as error:
            files.close("not")
            if files.resumed and isinstance(error, Exception) and not isinstance(error, VcudaError):
                raise RunError(
                    f"{checkpoint.folder}: the fit failed on what its checkpoint holds ({type(error).__name__}), which "
                    "may be damaged or somebody else's: begin anew, without resuming"
                ) from error
            raise
        early = kept.status is not None and kept.status.code == "interrupted"
        files.close("early" if early else "by itself")


def _plain(value: Any) -> Any:
    """Arguments as JSON; a spec goes with the name of its class, so that no two are the same."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {"spec": type(value).__name__, **to_json(value)}
    return to_json(value)
