"""What the Tab key offers: names of columns, from the header of a table or the config of a run.

A shell asks at every key, so nothing is imported that reads whole tables, and whatever goes wrong offers nothing.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import typer

from vcuda.errors import VcudaError


def run_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """The columns of the run that stands before on the command line."""
    from vcuda.posterior.run_folders import variables_of

    run = ctx.params.get("run")
    return [] if run is None else _beginning(variables_of(Path(run)), incomplete)


def table_columns(incomplete: str) -> list[str]:
    """The columns of the text file that stands on the command line."""
    return _beginning(_header(), incomplete)


def listed_columns(incomplete: str) -> list[str]:
    """The same after the last comma of a list."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(_header(), last.lstrip())]


def choice_of(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """What completes one of several names."""

    def completed(incomplete: str) -> list[str]:
        return _beginning(choices, incomplete)

    return completed


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _header() -> list[str]:
    """The first line of the table. An option whose value is missing hides it from the parser, so the line is read."""
    from vcuda.data.formats import FILE_KINDS, extension_of

    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    with suppress(ValueError, OSError, RuntimeError, StopIteration, VcudaError):
        paths = (Path(word).expanduser() for word in shlex.split(line))
        table = next(path for path in paths if FILE_KINDS.get(extension_of(path)[0]) == "text" and path.is_file())
        from vcuda.data.text_files import text_records

        return [name.strip() for name in next(text_records(table))[1]]
    return []
