"""What several commands share: options, arguments and exit codes."""

from pathlib import Path
from typing import Annotated

import typer

from vcuda.arguments import LARGEST_SEED

UNUSABLE_INPUT = 2
# The result is there, but the model checks say that edges it is sure of are likely wrong.
EDGES_IN_DOUBT = 3

TABLE_HELP = (
    "A file with one column a variable (CSV, Excel, Parquet, JSON, SPSS, Stata, SAS, SQLite, DuckDB), a folder of "
    "CSV or Parquet files, - for standard input, the address of a database, or a bundled table"
)
OptionalTable = Annotated[str | None, typer.Argument(metavar="TABLE", help=f"{TABLE_HELP}.", show_default=False)]
TableOrRun = Annotated[
    str,
    typer.Argument(metavar="TABLE|RUN", help=f"{TABLE_HELP}; or a folder that vcuda fit wrote.", show_default=False),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that vcuda fit wrote.", show_default=False)]
Seed = Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="The same seed gives the same result.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A file with options, as vcuda init writes it; by default vcuda.toml in this folder, if it is there.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs on standard output, nothing else.")]
