"""Run folders: a posterior as four files that a person, a spreadsheet and the next version can read.

``edges.csv`` (source, target, probability), ``summary.json`` (what came out), ``config.json`` (how it was made, enough
to make it again) and ``posterior.npz`` (all numbers). No pickle: loading a run never executes anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from vcuda.arguments import finite
from vcuda.checks.findings import Checks
from vcuda.data.messages import shortened
from vcuda.data.spreadsheets import as_cell, quoting
from vcuda.errors import RunError, VcudaError
from vcuda.posterior.archives import (
    UNREADABLE,
    check_square_arrays,
    read_arrays,
    save_arrays,
)
from vcuda.posterior.checks import check_graph_posterior_arrays, check_probabilities
from vcuda.posterior.drafts import DRAFTS, workshop
from vcuda.posterior.graph_posterior import GraphPosterior, GraphPosteriorKinds
from vcuda.posterior.imputed import MEMBER_KINDS, ImputedMixture
from vcuda.posterior.locks import LOCK
from vcuda.posterior.mixed_graphs import HiddenCausesPosterior, MixedGraphSamples
from vcuda.posterior.posterior import NOT_CHECKED, Posterior, Status
from vcuda.posterior.provenance import checked_config
from vcuda.posterior.run_folders import config_of, file_of, read_json
from vcuda.posterior.samples import GraphSamples

FORMAT = 1
# The folder in a run where ``vcuda fit`` keeps what it has worked out.
CHECKPOINT = "checkpoint"
GRAPH_POSTERIORS = GraphPosteriorKinds(
    {
        **MEMBER_KINDS.homes,
        ImputedMixture.kind: ("vcuda.posterior.imputed", "ImputedMixture"),
        MixedGraphSamples.kind: ("vcuda.posterior.mixed_graphs", "MixedGraphSamples"),
    }
)
FILES = ("posterior.npz", "config.json", "edges.csv", "summary.json")
SMALLEST_LISTED_PROBABILITY = 1e-4
LONGEST_REASON = 300
# Beside what the readers raise, what graph posteriors raise when arrays do not fit together.
DAMAGED: tuple[type[Exception], ...] = (*UNREADABLE, VcudaError, AttributeError, ArithmeticError)


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Refuse, before any work is done, a place where a run cannot be written."""
    path = Path(folder)
    try:
        return _checked_folder(path)
    except (OSError, ValueError) as error:  # a name that is too long, a working directory that was deleted
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"no run can be written into {shortened(path)}: {reason}; choose another folder") from error


def _checked_folder(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; give the name of a folder to write the run into")
    if path.is_dir() and not (path / "config.json").exists() and not all(_is_ours(each) for each in path.iterdir()):
        raise RunError(f"the folder {path} holds other files; give a new folder, or one with an earlier run")
    checkpoint_in(path)
    above = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not os.access(above, os.W_OK):
        raise RunError(f"no permission to write in {above}; choose another folder")
    return path


def checkpoint_in(run: Path) -> Path:
    """Where a run keeps what it has worked out; refused where that is a link, since a run may be somebody else's."""
    path = run / CHECKPOINT
    if path.is_symlink():
        raise RunError(f"{path} is a link, and files would be written and deleted where it leads; remove it")
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
        "law": {"kind": posterior.graph_posterior.kind, **posterior.graph_posterior.config()},
        "status": posterior.status.arithmetic._asdict(),
        "diagnostics": posterior.diagnostics,
        "provenance": posterior.provenance,
        "checks": posterior.checked.to_json(),
    }
    arrays: dict[str, Any] = {
        "edge_probabilities": posterior.edge_probabilities.to_numpy(),
        **{f"law.{name}": array for name, array in posterior.graph_posterior.arrays().items()},
        **{f"trace.{name}": array for name, array in posterior.trace.items()},
    }
    cells = {name: as_cell(name) for name in posterior.names}
    edges = posterior.edges(minimum=SMALLEST_LISTED_PROBABILITY)
    edges = edges.assign(source=edges["source"].map(cells), target=edges["target"].map(cells))
    table = edges.to_csv(index=False, float_format="%.6f", quoting=quoting(cells))
    writers: dict[str, Callable[[IO[bytes]], Any]] = {
        "posterior.npz": lambda file: save_arrays(file, arrays, compressed=True),
        "config.json": lambda file: file.write(_json_bytes(config)),
        "edges.csv": lambda file: file.write(table.encode()),
        "summary.json": lambda file: file.write(_json_bytes(posterior.summary())),
    }
    try:
        path.mkdir(parents=True, exist_ok=True)
        with workshop(path) as drafts:
            for name in FILES:
                with open(drafts / name, "wb") as file:
                    writers[name](file)
            # A folder without a config is no run: whoever kills us in between leaves no mixture of two runs.
            (path / "config.json").unlink(missing_ok=True)
            for name in sorted(FILES, key=lambda name: name == "config.json"):
                os.replace(drafts / name, path / name)
    except OSError as error:
        raise RunError(f"cannot write the run into {path}: {error.strerror or error}") from error


def load(folder: str | os.PathLike[str]) -> Posterior:
    """Read a run folder back into the posterior that was saved.

    The folder may come from somebody else: nothing in it is executed, only files inside it are opened, and what it
    claims is checked before it is used.
    """
    path = Path(folder)
    stored, numbers = config_of(path), file_of(path, "posterior.npz")
    try:
        config = read_json(stored)
        _check_format(path, config)
        config = checked_config(config)
        check_square_arrays(len(config["names"]))
        arrays = read_arrays(numbers)
        described, own_arrays = config["law"], _part(arrays, "law.")
        check_graph_posterior_arrays(own_arrays, len(config["names"]))
        graph_posterior = GRAPH_POSTERIORS[described["kind"]].restore(described, own_arrays)
        for pool in _pools(graph_posterior):
            if pool.names != tuple(config["names"]):
                raise ValueError("its graphs are about other columns")
            if not pool.all_acyclic():
                raise ValueError("one of its graphs has a cycle")
        kind = HiddenCausesPosterior if isinstance(graph_posterior, MixedGraphSamples) else Posterior
        posterior = kind(
            names=tuple(config["names"]),
            graph_posterior=graph_posterior,
            status=Status(config["status"]["code"], config["status"]["sentence"]),
            diagnostics=config["diagnostics"],
            trace=_part(arrays, "trace."),
            provenance=config["provenance"],
        )
        check_probabilities(graph_posterior.edge_probabilities(), len(posterior.names))
        return posterior.with_checks(Checks.from_json(config["checks"]) if "checks" in config else NOT_CHECKED)
    except RunError:
        raise
    except MemoryError as error:
        reason = str(error)[:LONGEST_REASON] or type(error).__name__
        raise RunError(
            f"the run {path} does not fit into the memory that is free ({reason}); open it where there is more"
        ) from error
    except DAMAGED as error:
        reason = str(error)[:LONGEST_REASON] or type(error).__name__
        raise RunError(f"the run {path} is damaged and cannot be read ({reason}); fit it again") from error


def _check_format(path: Path, config: Any) -> None:
    number = config.get("format") if isinstance(config, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError("its config names no format")
    if number > FORMAT:
        raise RunError(
            f"the run {path} was written by a newer vcuda (format {number}, this one reads up to {FORMAT}); upgrade "
            "with: pip install --upgrade vcuda"
        )


def _pools(graph_posterior: GraphPosterior) -> Iterator[GraphSamples]:
    """The graphs that a graph posterior holds, and those of its members."""
    for name in ("pool", "graphs"):
        if isinstance(held := getattr(graph_posterior, name, None), GraphSamples):
            yield held
    for member in getattr(graph_posterior, "members", ()):
        yield from _pools(member)


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _json_bytes(content: Any) -> bytes:
    """JSON as people read it; numbers that JSON does not know (infinity) become null."""
    return (json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
