"""The command line: options in, words and files out; what the commands do is done in the modules below.

Nothing heavy is imported before a command needs it, so that ``vcuda --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from vcuda import interrupts
from vcuda.cli.app import app as app_command
from vcuda.cli.config import init
from vcuda.cli.fitting import fit
from vcuda.cli.options import UNUSABLE_INPUT
from vcuda.cli.questions import (
    compare,
    drivers,
    edges,
    effect,
    export,
    next_experiment,
    paths,
    report,
    sensitivity,
    targets,
    why,
)
from vcuda.cli.rows import attribute, counterfactual
from vcuda.cli.runs import evaluate, sample
from vcuda.cli.tables import check, datasets, simulate
from vcuda.cli.terminal import give_up_output, remarks, say, shortened
from vcuda.errors import ConfigError, VcudaError
from vcuda.memory import address_space_left

DEBUG = "VCUDA_DEBUG"
# Bytes of address space that the libraries take before anything is read (NumPy, Arrow, SciPy) or fitted (JAX as well).
ADDRESS_SPACE, ADDRESS_SPACE_TO_FIT = 1_500_000_000, 2_500_000_000
TOO_LITTLE_MEMORY = (
    "there is too little memory for this: close other programs, raise the limit (ulimit -v), or take a smaller table."
)


class Commands(TyperGroup):
    """All commands, with one answer to errors that the user can fix and to Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except VcudaError as error:
            say(remarks(), f"vcuda: {error}")
            raise typer.Exit(UNUSABLE_INPUT) from None
        except KeyboardInterrupt:
            say(remarks(), f"vcuda: {interrupts.sentence()}")
            raise typer.Exit(interrupts.EXIT_CODE) from None


class Command(TyperCommand):
    """A command that is refused where it cannot even be loaded: compiled libraries end the process then."""

    def invoke(self, ctx: Any) -> Any:
        left, needed = address_space_left(), ADDRESS_SPACE_TO_FIT if ctx.info_name == "fit" else ADDRESS_SPACE
        if left is not None and left < needed:
            raise ConfigError(
                f"a limit (ulimit -v) leaves {left / 1e9:.1f} GB of address space to this process, and vcuda "
                f"{ctx.info_name} takes at least {needed / 1e9:.1f} GB: raise the limit"
            )
        return super().invoke(ctx)


def _is_debugged() -> bool:
    return os.environ.get(DEBUG, "0") not in ("", "0")


def _of_the_system(error: OSError) -> str:
    """What the operating system does not let us do."""
    if isinstance(error, FileNotFoundError) and not _has_working_directory():
        return "the working directory was deleted: change into another one (cd), or give absolute paths."
    about = f" ({shortened(error.filename)})" if error.filename else ""
    return f"the operating system reports: {error.strerror or error}{about}."


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: vcuda fit sachs -o run, or in a browser: vcuda app",
)


def _command(function: Callable[..., None], *examples: str, name: str | None = None) -> None:
    """Add a command; its help ends with lines to try."""
    shown = "".join(f"\n\n  {example}" for example in examples)
    app.command(name, cls=Command, epilog=f"Examples:{shown}")(function)


_command(init, "vcuda init table.csv", "vcuda init table.csv --exclude id -o small.toml")
_command(
    fit,
    "vcuda fit table.csv -o run",
    "vcuda fit customers.xlsx --exclude since --kind grade=ordered --forbid 'churned -> price'",
    "vcuda fit --resume run",
)
_command(app_command, "vcuda app", "vcuda app churn.csv", "vcuda app --folder runs --no-browser", name="app")
_command(check, "vcuda check table.csv", "vcuda check table.csv --missing -999 --json", "vcuda check run")
_command(edges, "vcuda edges run --minimum 0.5", "vcuda edges run --consensus --json")
_command(paths, "vcuda paths run Raf Erk")
_command(drivers, "vcuda drivers run churn")
_command(effect, "vcuda effect run Mek Erk", "vcuda effect run Mek Erk --at 10 --at 100")
_command(sensitivity, "vcuda sensitivity run Mek Erk", "vcuda sensitivity run Mek Erk --data table.csv")
_command(why, "vcuda why run Mek Erk", "vcuda why run Mek Erk --data table.csv")
_command(next_experiment, "vcuda next run --already Mek", name="next")
_command(targets, "vcuda targets run --minimum 0.5")
_command(counterfactual, "vcuda counterfactual run table.csv --row 7 --do dose=20")
_command(attribute, "vcuda attribute run table.csv outcome --row 7")
_command(compare, "vcuda compare run other-run")
_command(report, "vcuda report run -o report.html")
_command(export, "vcuda export run -o edges.graphml --minimum 0.5", "vcuda export run -o graph.dagitty --consensus")
_command(sample, "vcuda sample run -n 100 -o graphs.csv")
_command(evaluate, "vcuda evaluate run --truth graph.csv --test test.csv")
_command(
    simulate,
    "vcuda simulate -o simulated --nodes 20 --edges 40 --mechanism gp",
    "vcuda simulate -o simulated --kinds mixed",
)
_command(datasets, "vcuda datasets")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"vcuda {version('vcuda')}")
        raise typer.Exit


@app.callback()
def vcuda(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Which variable causes which, and how sure can we be? A posterior over causal graphs from a table."""


def _occupy_closed_streams() -> None:
    """Where standard streams are closed, the next files would get their numbers, and what is printed there."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(opened)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave.

    Exit code 0, 2 for errors that the user can fix, 3 where model checks put sure edges in doubt, 130 after Ctrl-C,
    otherwise 1.
    """
    _occupy_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name that the terminal's encoding does not have is spelt out; it is no reason to lose a fit.
            stream.reconfigure(errors="backslashreplace")
    with interrupts.answered():
        try:
            try:
                app(args=arguments, prog_name="vcuda")
            finally:
                # Not when the interpreter ends, where nobody can answer for what fails.
                if sys.stdout is not None:
                    sys.stdout.flush()
        except Exception as error:
            if _is_debugged():
                raise
            sentence, code = _answer_to(error)
            give_up_output()
            if sentence:
                say(remarks(), f"vcuda: {sentence}")
            sys.exit(code)
    sys.exit(0)


def _answer_to(error: Exception) -> tuple[str, int]:
    """What is said about an error that no command expects, and the exit code."""
    if isinstance(error, BrokenPipeError):  # a reader that has seen enough
        return "", 1
    if isinstance(error, OSError):
        return _of_the_system(error), UNUSABLE_INPUT
    # Where address space is short, libraries cannot be loaded, and say so in many ways.
    is_short = (left := address_space_left()) is not None and left < ADDRESS_SPACE
    if isinstance(error, MemoryError) or (is_short and isinstance(error, ImportError)):
        return TOO_LITTLE_MEMORY, UNUSABLE_INPUT
    return (
        f"an unexpected error, which is a fault of vcuda: {type(error).__name__}: {error}. "
        f"Set {DEBUG}=1 and run it again to see where, and please report it.",
        1,
    )
