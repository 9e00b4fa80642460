"""Run folders: a posterior as four files that a person, a spreadsheet and the next version can read.

``edges.csv`` (source, target, probability), ``summary.json`` (what came out), ``config.json`` (how it was made, enough
to make it again) and ``posterior.npz`` (all numbers). No pickle: loading a run never executes anything.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from vcuda.errors import ConfigError, RunError
from vcuda.posterior.imputed import MEMBER_LAWS, ImputedMixture
from vcuda.posterior.laws import Law
from vcuda.posterior.locks import LOCK
from vcuda.posterior.posterior import Posterior, Status

FORMAT = 1
# The folder in a run where ``vcuda fit`` keeps what it has worked out, and the beginning of the names of drafts.
CHECKPOINT, DRAFTS = "checkpoint", ".writing-"
LAWS: dict[str, type[Law]] = {**MEMBER_LAWS, ImputedMixture.kind: ImputedMixture}
FILES = ("posterior.npz", "config.json", "edges.csv", "summary.json")
SMALLEST_LISTED_PROBABILITY = 1e-4


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Refuse, before any work is done, a place where a run cannot be written."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; give the name of a folder to write the run into")
    if path.is_dir() and not (path / "config.json").exists() and not all(_is_ours(each) for each in path.iterdir()):
        raise RunError(f"the folder {path} holds other files; give a new folder, or one with an earlier run")
    above = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not os.access(above, os.W_OK):
        raise RunError(f"no permission to write in {above}; choose another folder")
    return path


def _is_ours(path: Path) -> bool:
    """Whether a file is what a fit leaves that was killed before it had a config."""
    return path.name in (*FILES, LOCK, CHECKPOINT) or path.name.startswith(DRAFTS)


def save(posterior: Posterior, folder: str | os.PathLike[str]) -> None:
    """Write all files under other names first and rename them at the end, so that no file is ever half-written."""
    path = check_folder(folder)
    config = {
        "format": FORMAT,
        "names": list(posterior.names),
        "law": {"kind": posterior.law.kind, **posterior.law.config()},
        "status": {"code": posterior.status.code, "sentence": posterior.status.sentence},
        "diagnostics": posterior.diagnostics,
        "provenance": posterior.provenance,
    }
    arrays: dict[str, Any] = {
        "edge_probabilities": posterior.edge_probabilities.to_numpy(),
        **{f"law.{name}": array for name, array in posterior.law.arrays().items()},
        **{f"trace.{name}": array for name, array in posterior.trace.items()},
    }
    edges = posterior.edges(minimum=SMALLEST_LISTED_PROBABILITY)
    writers: dict[str, Callable[[IO[bytes]], Any]] = {
        "posterior.npz": lambda file: np.savez_compressed(file, **arrays),
        "config.json": lambda file: file.write(_json_bytes(config)),
        "edges.csv": lambda file: file.write(edges.to_csv(index=False, float_format="%.6f").encode()),
        "summary.json": lambda file: file.write(_json_bytes(posterior.summary())),
    }
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=DRAFTS, dir=path) as workshop:
            for name in FILES:
                with open(Path(workshop) / name, "wb") as file:
                    writers[name](file)
            # A folder without a config is no run: whoever kills us in between leaves no mixture of two runs.
            (path / "config.json").unlink(missing_ok=True)
            for name in sorted(FILES, key=lambda name: name == "config.json"):
                os.replace(Path(workshop) / name, path / name)
    except OSError as error:
        raise RunError(f"cannot write the run into {path}: {error.strerror or error}") from error
    except ValueError as error:
        # An archive that is left in the middle of an array cannot be closed, and says so in place of the interrupt.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


def load(folder: str | os.PathLike[str]) -> Posterior:
    """Read a run folder back into the posterior that was saved."""
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise RunError(f"{path} is not a run of vcuda: it has no config.json; make one with: vcuda fit TABLE -o {path}")
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if config["format"] > FORMAT:
            raise RunError(
                f"the run {path} was written by a newer vcuda (format {config['format']}, this one reads up to "
                f"{FORMAT}); upgrade with: pip install --upgrade vcuda"
            )
        # NumPy leaves a file open that turns out not to be an archive, so we open it ourselves.
        with open(path / "posterior.npz", "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        law_config = config["law"]
        law = LAWS[law_config["kind"]].restore(law_config, _part(arrays, "law."))
        posterior = Posterior(
            names=tuple(config["names"]),
            law=law,
            status=Status(**config["status"]),
            diagnostics=config["diagnostics"],
            trace=_part(arrays, "trace."),
            provenance=config["provenance"],
        )
        nodes = len(posterior.names)
        if law.edge_probabilities().shape != (nodes, nodes):
            raise RunError(f"the run {path} has {nodes} names but numbers for another set of columns")
        return posterior
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ConfigError, zipfile.BadZipFile) as error:
        raise RunError(f"the run {path} is damaged and cannot be read ({error}); fit it again") from error


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _json_bytes(content: Any) -> bytes:
    """JSON as people read it; numbers that JSON does not know (infinity) become null."""
    return (json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if isinstance(content, float | np.floating):
        return float(content) if np.isfinite(content) else None
    if isinstance(content, np.integer):
        return int(content)
    return content
