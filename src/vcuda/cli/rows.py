"""Commands about single rows of a table: what one would have been, and which causes made it unusual."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vcuda.cli.completion import run_columns
from vcuda.cli.options import Json, Run, Seed
from vcuda.cli.questions import show
from vcuda.cli.runs import opened
from vcuda.cli.terminal import results, say, show_json
from vcuda.errors import ConfigError

Table = Annotated[Path, typer.Argument(metavar="TABLE", help="A file with the columns of the fit.", show_default=False)]
Row = Annotated[int, typer.Option("--row", min=1, help="Which row of the table, counted from 1 without the header.")]
Models = Annotated[
    int | None, typer.Option("--draws", min=1, help="Causal models drawn from the posterior.", show_default=False)
]


def counterfactual(
    run: Run,
    table: Table,
    do: Annotated[
        list[str],
        typer.Option("--do", metavar="COLUMN=VALUE", help="What is set; repeat for more.", show_default=False),
    ],
    row: Row = 1,
    draws: Models = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """What would a row have been, had a column been set to another value?"""
    setting = dict(_setting(one) for one in do)
    posterior = opened(run, *setting)
    found = posterior.counterfactual(_row_of(posterior, table, row), do=setting, draws=draws, seed=seed)
    lines = found.table.reset_index()
    if as_json:
        rows = lines.to_dict("records")
        show_json({"sentence": found.sentence, "columns": rows, "notes": list(found.notes), "caveat": found.caveat})
        return
    say(results(), found.sentence)
    show(lines, len(lines))
    if found.notes:
        say(results(), *found.notes)


def attribute(
    run: Run,
    table: Table,
    outcome: Annotated[
        str,
        typer.Argument(metavar="OUTCOME", help="The column that is unusual.", autocompletion=run_columns),
    ],
    row: Row = 1,
    draws: Models = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Which causes made a row unusual? What the noise of each column upstream adds to the surprise, in nats."""
    posterior = opened(run, outcome)
    found = posterior.attribute(_row_of(posterior, table, row), outcome, draws=draws, seed=seed)
    lines = found.table.reset_index()
    if as_json:
        surprise = float(found.surprise.mean())
        columns = lines.to_dict("records")
        answer: dict[str, Any] = {"sentence": found.sentence, "surprise": surprise, "columns": columns}
        show_json(answer | {"notes": list(found.notes), "caveat": found.caveat})
        return
    say(results(), found.sentence)
    show(lines, len(lines))
    if found.notes:
        say(results(), *found.notes)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise ConfigError(f"--do takes COLUMN=VALUE, such as --do dose=20, not {text!r}")
    return name.strip(), value.strip()


def _row_of(posterior: Any, table: Path, row: int) -> Any:
    """One row of a file, with labels as they stand there."""
    from vcuda.data.reading import new_rows

    rows = new_rows(table, posterior.names)
    if row > rows.n:
        raise ConfigError(f"--row {row:,} is asked for, and {table} has {rows.n:,} rows")
    return rows.to_frame().iloc[[row - 1]]
