"""What several commands share: options, arguments and exit codes."""

from pathlib import Path
from typing import Annotated

import typer

from vcuda.arguments import LARGEST_SEED

UNUSABLE_INPUT = 2

TABLE = typer.Argument(
    metavar="TABLE",
    help="A CSV, TSV, Parquet or Feather file with one column a variable, a folder of such files, or a bundled table.",
    show_default=False,
)
Table = Annotated[str, TABLE]
OptionalTable = Annotated[str | None, TABLE]
Interventions = Annotated[
    str | None,
    typer.Option(
        "--interventions",
        metavar="COLUMN",
        help="A column that names what an experiment set in each row: empty, a variable, or several joined by ';'.",
        show_default=False,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar='"A,B"',
        help="Take only these columns; repeat for more. The others are not read.",
        show_default=False,
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar='"A,B"',
        help="Leave out these columns, such as an identifier or a date; repeat for more.",
        show_default=False,
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that vcuda fit wrote.", show_default=False)]
Seed = Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="The same seed gives the same result.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs on standard output, nothing else.")]


def names_of(lines: list[str] | None) -> list[str] | None:
    """The names in all lines of an option that can be repeated; None where it was not given."""
    from vcuda.data.columns import names_in

    return None if lines is None else [name for line in lines for name in names_in(line)]
