"""``vcuda fit --resume``: what a fit was asked for, stored beside its checkpoints and read again."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vcuda import interrupts
from vcuda.cli.fit_options import is_given
from vcuda.errors import ConfigError, RunError
from vcuda.fitting.spec import OPTIONS, current_names

if TYPE_CHECKING:
    from vcuda.infer.checkpoint_files import Checkpoint

# What is stored beside the options of the fit, by its types in JSON; of these a resumed fit may change the last two.
STORED: dict[str, tuple[type, ...]] = {
    "table": (str, type(None)),
    "folder": (str, type(None)),
    "samples": (int,),
    "no_report": (bool,),
}
CHANGEABLE = ("samples", "no_report", *(name for name, one in OPTIONS.items() if one.changeable))
# Options that belong to this call: where the fit runs, and what is shown of it.
OF_THIS_CALL = ("table", "resume", "dask", "quiet", "as_json")


def place_of(table: str) -> dict[str, Any]:
    """Where a table is to be found again; a pipe is not."""
    from vcuda.data.paths import BUNDLED, file_of

    try:
        if table not in BUNDLED and file_of(table) is None:
            return {"table": None, "folder": None}
    except (OSError, RuntimeError, ValueError):  # no file has such a name, as who reads it will say
        return {"table": None, "folder": None}
    try:
        return {"table": table, "folder": os.getcwd()}
    except OSError:  # it was deleted
        return {"table": table, "folder": None}


def stored_options(context: typer.Context, run: Path, table: str | None) -> dict[str, Any]:
    """The options of the fit that was begun in a folder, with those that are given now and may differ."""
    from vcuda.infer.checkpoint_files import Checkpoint
    from vcuda.posterior.storage import checkpoint_in

    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in (*CHANGEABLE, *OF_THIS_CALL) and is_given(context, name):
            raise ConfigError(f"--resume goes on with what was asked for at first; leave {_flag_of(parameter)} out")
    request = Checkpoint(checkpoint_in(run)).stored_request()
    if request is None:
        raise RunError(_nothing_to_resume(run))
    options = _checked(request["notes"], run)
    options |= {name: context.params[name] for name in CHANGEABLE if is_given(context, name)}
    if table is not None:
        options["table"] = table
    # No command of ours stores an address, and a checkpoint of somebody else must not lead into the network.
    elif options["table"] is None or "://" in options["table"]:
        raise RunError(
            f"the table of this fit was no file that can be found again; give it: vcuda fit TABLE --resume {run}"
        )
    elif options["folder"] is not None and os.getcwd() != options["folder"]:
        from vcuda.data.paths import file_of

        there = str(Path(options["folder"]) / Path(options["table"]).expanduser())
        options["table"] = options["table"] if file_of(there) is None else there
    return options


def _flag_of(parameter: Any) -> str:
    """The shortest name of an option, as people type it."""
    return min((*parameter.opts, *parameter.secondary_opts), key=len)


def _checked(notes: Any, run: Path) -> dict[str, Any]:
    """What ``vcuda fit`` stored, by the names of today; options that came later have their defaults."""
    options = {name: one.default for name, one in OPTIONS.items()} | current_names(notes, lambda old, new: None)
    # Whose folder it is we do not know.
    expected = all(type(options.get(name, ...)) in kinds for name, kinds in STORED.items())
    if not expected or not all(one.is_plain(options[name]) for name, one in OPTIONS.items()):
        raise RunError(f"the checkpoint in {run} was not written by vcuda fit; resume it from Python")
    return {name: options[name] for name in (*STORED, *OPTIONS)}


def _nothing_to_resume(run: Path) -> str:
    if (run / "config.json").exists():
        return f"the fit in {run} has finished: there is nothing to resume"
    return (
        f"{run} holds no checkpoint of a fit (the first is written after a few seconds); start one with: "
        f"vcuda fit TABLE -o {shlex.quote(str(run))}"
    )


def clear_drafts(run: Path) -> None:
    """Remove what a fit left half-written that was killed while it saved."""
    from vcuda.posterior.drafts import DRAFTS

    for path in run.glob(f"{DRAFTS}*"):
        shutil.rmtree(path, ignore_errors=True)


def go_on_with(run: Path) -> str:
    """The command that resumes a fit."""
    return f"vcuda fit --resume {shlex.quote(str(run))}"


def stopped_in_words(checkpoint: Checkpoint, run: Path) -> str:
    """What is left of a fit that is interrupted before it has a result."""
    if not checkpoint.has_request:
        return interrupts.NOTHING_SAVED
    return f"stopped before there was a result; only a checkpoint was saved. Go on with: {go_on_with(run)}"


def saved_in_words(run: Path) -> str:
    """What is left of a fit that is interrupted after its result was saved."""
    return f"stopped; the result so far is saved in {run}."


def with_remedy(error: RunError | OSError, checkpoint: Checkpoint, run: Path) -> RunError:
    """What went wrong while the result was written, and that it is not lost, if it is not."""
    sentence = str(error)
    if isinstance(error, OSError):
        sentence = f"cannot write the run into {run}: {error.strerror or error}"
    if not checkpoint.has_request:
        return RunError(sentence)
    return RunError(f"{sentence}; the checkpoint is kept: when the folder is writable, go on with {go_on_with(run)}")


def resumed_in_words(times: int | None) -> str:
    """How often a fit was resumed, as the end of a sentence."""
    return "" if not times else ", resumed once" if times == 1 else f", resumed {times} times"
