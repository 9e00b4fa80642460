"""Terminal output of the commands: sentences, tables, progress, Ctrl-C, and atomic writes.

Results go to standard output, everything else to standard error. Column names and file names come from the
user's files and are never read as markup or as control codes of the terminal.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from vcuda import interrupts
from vcuda.arguments import finite
from vcuda.errors import RunError
from vcuda.infer.progress import Progress, ProgressCallback, Remaining

if TYPE_CHECKING:
    from rich.console import Console


MAXIMUM_NAME = 40
# Where a fit writes if nothing else is said.
OUTPUT_FOLDER = "run"
PROGRESS = "VCUDA_PROGRESS"


class OutputError(RunError):
    """Results cannot be printed."""


def printable(text: object) -> str:
    """The text on one line, with what a terminal would obey (escapes, reversals of direction) spelt out."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in str(text)
    )


def shortened(name: object) -> str:
    """A name that leaves room for the rest of its line."""
    text = printable(name)
    return text if len(text) <= MAXIMUM_NAME else text[: MAXIMUM_NAME - 1] + "…"


def results() -> Console:
    """Standard output."""
    return _console(stderr=False)


def remarks() -> Console:
    """Standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # Only a terminal has a width; in a file or a pipe a sentence stays on its line.
    width = None if stream is not None and stream.isatty() else 10_000
    return Console(stderr=stderr, width=width)


@contextmanager
def _printing(console: Console) -> Iterator[None]:
    """A sentence where results cannot be printed; remarks that cannot be are lost, which is no reason to lose a fit."""
    if console.stderr:
        with suppress(OSError):
            yield
        return
    if sys.stdout is None:
        raise OutputError("standard output is closed, and results are printed there")
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:  # a reader that has seen enough
            raise
        give_up_output()
        raise OutputError(f"cannot print the results: {error.strerror or error}") from error


def give_up_output() -> None:
    """Print no more results: what is still in Python's buffer would fail once more when the process ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, ValueError):
        pass  # it is closed


def _print(console: Console, *parts: object, **options: Any) -> None:
    if console.stderr and sys.stderr is None:
        return
    with _printing(console):
        console.print(*parts, **options)


def say(console: Console, *sentences: str) -> None:
    """Each on a line of its own, broken between words where a terminal is narrow."""
    from rich.text import Text

    for sentence in sentences:
        _print(console, Text(printable(sentence)))


def suggest(console: Console, command: str, *, label: str = "Go on with") -> None:
    """A line to copy, so it is never broken."""
    from rich.text import Text

    _print(console, Text(printable(f"{label}: {command}")), soft_wrap=True)


def show_table(
    console: Console, columns: Mapping[str, Literal["left", "right"]], rows: Iterable[Iterable[object]]
) -> None:
    """A table with these columns; every cell is shown as it is."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_edge=False)
    for name, justify in columns.items():
        table.add_column(name, justify=justify)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    _print(console, table)
    _print(console)


def show_json(content: Mapping[str, Any]) -> None:
    """JSON on standard output; a number that JSON does not know becomes null."""
    # In ASCII, so that it stays JSON whatever the encoding of the terminal.
    text = json.dumps(finite(content), indent=2, allow_nan=False)
    with _printing(results()):
        print(text, flush=True)


@contextmanager
def shown_progress(console: Console, *, quiet: bool, doing: str = "Fitting") -> Iterator[ProgressCallback]:
    """A callback that shows progress: a bar on a terminal, a line for every tenth of the work elsewhere.

    Only a fit announces itself: what is ``doing`` before it is mostly done at once, or refused. For programs that show
    the progress themselves, VCUDA_PROGRESS=json writes a line of JSON for each report.
    """
    remaining = Remaining()
    if quiet:
        yield lambda progress: None
    elif os.environ.get(PROGRESS) == "json":
        yield _json_lines(remaining, doing)
    elif console.is_interactive:
        from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        with Bar(*columns, console=console, transient=True) as bar:
            task = bar.add_task("Preparing", total=None, note="")

            def show(progress: Progress) -> None:
                note = "; ".join(filter(None, (remaining(progress), printable(progress.detail))))
                total = progress.total if progress.done else None
                bar.update(task, description=doing, total=total, completed=progress.done, note=note)

            yield show
    else:
        if doing == "Fitting":
            say(console, "Preparing ...")
        yield _lines(console, remaining, doing)


def _json_lines(remaining: Remaining, doing: str) -> ProgressCallback:
    def show(progress: Progress) -> None:
        share = progress.done / progress.total if progress.total else 0.0
        said = {"doing": doing, "share": share, "detail": progress.detail, "seconds_left": remaining.seconds(progress)}
        with suppress(OSError):
            os.write(2, json.dumps({"progress": said}).encode() + b"\n")

    return show


def _lines(console: Console, remaining: Callable[[Progress], str], doing: str) -> ProgressCallback:
    shown, before = -1, ""

    def show(progress: Progress) -> None:
        nonlocal shown, before
        note = remaining(progress)
        tenth = int(10 * progress.done / progress.total)
        # Before anything is done, and when all is done but the checks and the files, only what is being done is known.
        if progress.done == 0 or (progress.done == progress.total and not note):
            if progress.detail != before:
                before = progress.detail
                say(console, f"{before[:1].upper()}{before[1:]} ...")
            return
        # The first line comes as soon as the time left is known: after compilation people want to know how long.
        if tenth > shown and note:
            shown = tenth
            share = f"{progress.done / progress.total:.0%}"
            say(console, "; ".join(filter(None, (f"{doing}: {share} done", note, progress.detail))))

    return show


class StopOnRequest:
    """The first Ctrl-C ends a fit at its next report, so that it can be saved; the second, at once.

    Before a report of anything done there is nothing to save, and Ctrl-C ends the process at once. While the result is
    saved (``saving``) all of them wait.
    """

    def __init__(self) -> None:
        self.asked = False
        self._reported = False
        self._saving = False

    def __enter__(self) -> Self:
        self._put_off = interrupts.put_off(self._takes_care)
        self._put_off.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._put_off.__exit__(None, None, None)

    def _takes_care(self) -> bool:
        if not self._saving and (self.asked or not self._reported):
            return False
        if not self.asked:
            when = "at the next report; press Ctrl-C again to stop at once"
            interrupts.write(f"\nStopping {'when the result is written' if self._saving else when}.\n")
        self.asked = True
        return True

    def checked(self, report: ProgressCallback) -> ProgressCallback:
        """The callback, which now also ends the fit when that was asked for."""

        def checked(progress: Progress) -> None:
            self._reported = self._reported or progress.done > 0
            report(progress)
            if self.asked:
                raise KeyboardInterrupt

        return checked

    @contextmanager
    def saving(self) -> Iterator[None]:
        """While files of a result take the place of earlier ones, nothing interrupts."""
        self._saving = True
        try:
            yield
        finally:
            self._saving = False


@contextmanager
def drafts(folder: Path) -> Iterator[Path]:
    """A place to write files; they move into ``folder`` when all are written, and vanish when one fails."""
    from vcuda.posterior.drafts import workshop

    try:
        with workshop(folder) as made:
            yield made
            for draft in sorted(made.iterdir()):
                os.replace(draft, folder / draft.name)
    except OSError as error:
        raise RunError(f"cannot write into {folder}: {error.strerror or error}; choose another place") from error
