"""What several commands share: options, arguments and exit codes."""

from pathlib import Path
from typing import Annotated

import typer

from vcuda.arguments import LARGEST_SEED

UNUSABLE_INPUT = 2

TABLE = typer.Argument(
    metavar="TABLE",
    help="A file with one column a variable (CSV, Excel, Parquet, JSON, SPSS, Stata, SAS, SQLite, DuckDB), a folder of "
    "CSV or Parquet files, - for standard input, the address of a database, or a bundled table.",
    show_default=False,
)
Table = Annotated[str, TABLE]
OptionalTable = Annotated[str | None, TABLE]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that vcuda fit wrote.", show_default=False)]
Seed = Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="The same seed gives the same result.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs on standard output, nothing else.")]
