"""The command line: options in, words and files out; what the commands do is done in the modules below.

Nothing heavy is imported before a command needs it, so that ``vcuda --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from vcuda import interrupts
from vcuda.cli.fitting import fit
from vcuda.cli.options import UNUSABLE_INPUT
from vcuda.cli.questions import compare, edges, effect, export, next_experiment, paths, report
from vcuda.cli.runs import evaluate, sample
from vcuda.cli.tables import check, datasets, simulate
from vcuda.cli.terminal import remarks, say
from vcuda.errors import VcudaError

DEBUG = "VCUDA_DEBUG"


class Commands(TyperGroup):
    """All commands, with one answer to what the user can mend and to Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except VcudaError as error:
            say(remarks(), f"vcuda: {error}")
            raise typer.Exit(UNUSABLE_INPUT) from None
        except KeyboardInterrupt:
            say(remarks(), f"vcuda: {interrupts.sentence()}")
            raise typer.Exit(interrupts.EXIT_CODE) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: vcuda fit sachs -o run",
)
app.command(epilog="Example: vcuda fit table.csv -o run --model mlp --seed 1")(fit)
app.command(epilog="Example: vcuda check table.csv")(check)
app.command(epilog="Example: vcuda edges run --minimum 0.5")(edges)
app.command(epilog="Example: vcuda paths run Raf Erk")(paths)
app.command(epilog="Example: vcuda effect run Mek Erk")(effect)
app.command("next", epilog="Example: vcuda next run --already Mek")(next_experiment)
app.command(epilog="Example: vcuda compare run other-run")(compare)
app.command(epilog="Example: vcuda report run -o report.html")(report)
app.command(epilog="Example: vcuda export run -o edges.graphml --minimum 0.5")(export)
app.command(epilog="Example: vcuda sample run -n 100 -o graphs.csv")(sample)
app.command(epilog="Example: vcuda evaluate run --truth graph.csv --test test.csv")(evaluate)
app.command(epilog="Example: vcuda simulate -o simulated --nodes 20 --edges 40 --mechanism gp --seed 1")(simulate)
app.command(epilog="Example: vcuda datasets")(datasets)


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


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave: exit code 0, 2 for what the user can mend, 130 after Ctrl-C, otherwise 1."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name that the terminal's encoding does not have is spelt out; it is no reason to lose a fit.
            stream.reconfigure(errors="backslashreplace")
    try:
        with interrupts.answered():
            app(args=arguments, prog_name="vcuda")
    except Exception as error:
        if os.environ.get(DEBUG, "0") not in ("", "0"):
            raise
        say(
            remarks(),
            f"vcuda: an unexpected error, which is a fault of vcuda: {type(error).__name__}: {error}. "
            f"Set {DEBUG}=1 and run it again to see where, and please report it.",
        )
        sys.exit(1)
    sys.exit(0)
