"""``vcuda check``, ``vcuda simulate`` and ``vcuda datasets``: tables before a fit; ``vcuda check`` takes runs too."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vcuda.cli.config import config_for
from vcuda.cli.fit_options import TABLE_OPTIONS, current_flags, takes_fit_options, with_config
from vcuda.cli.options import UNUSABLE_INPUT, ConfigFile, Json, Seed, TableOrRun
from vcuda.cli.runs import show_model_checks
from vcuda.cli.terminal import drafts, remarks, results, say, shortened, show_json, show_table, suggest
from vcuda.data.paths import check_is_there
from vcuda.errors import ConfigError, RunError
from vcuda.fitting.spec import OPTIONS, FitSpec
from vcuda.posterior.run_folders import is_run

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.data.examination import ColumnReport
    from vcuda.data.streaming import StreamedTable

LISTED_COLUMNS = 200

GraphFamily = Literal["er", "sf"]
Mechanism = Literal["linear", "gp", "mlp"]
NoiseScales = Literal["equal", "unequal"]
NoiseFamily = Literal["gaussian", "uniform", "laplace", "gumbel", "exponential", "t3", "two-humped"]
Spread = Literal["constant", "causes"]


@takes_fit_options(*TABLE_OPTIONS)
def check(
    context: typer.Context,
    table: TableOrRun,
    config: ConfigFile = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Say what is in a table and whether it can be used; of a run, whether its model describes the rows.

    Of a table: the kind of each column, what is odd, and what a fit would refuse; nothing is fitted. Of a run: what the
    model checks found, which edges are in doubt, and what to do; exit code 3 where edges that it is sure of are likely
    wrong.
    """
    of_run = is_run(Path(table))
    if not of_run:
        check_is_there(table)
    options = current_flags(given)
    if of_run:
        about_tables = [OPTIONS[name].flag for name, value in options.items() if value != OPTIONS[name].default]
        if about_tables:
            raise ConfigError(f"{about_tables[0]} is about a table, and {shortened(table)} is a run; leave it out")
        show_model_checks(Path(table), as_json=as_json)
        return
    stored = config_for(config, table, quiet=as_json)
    options = with_config(context, options, {} if stored is None else stored.options)
    from vcuda.data.conversion.databases import shown_address
    from vcuda.data.examination import TableError, described
    from vcuda.data.interventions import in_words
    from vcuda.data.streaming import StreamedTable

    try:
        data = FitSpec(**options).open(table)
    except TableError as error:
        if as_json:
            columns = [report._asdict() for report in error.columns]
            show_json({"usable": False, "columns": columns, "faults": list(error.faults), "notes": []})
        else:
            if error.columns:
                _show_kinds(error.columns)
            say(remarks(), *(f"vcuda: {fault}" for fault in error.faults))
        raise typer.Exit(UNUSABLE_INPUT) from None
    streamed = isinstance(data, StreamedTable)
    reports = described(data.sample if isinstance(data, StreamedTable) else data)
    if as_json:
        show_json(
            {
                "usable": True,
                "source": data.source,
                "rows": data.n,
                "columns": [report._asdict() for report in reports],
                "missing": 0 if data.missing is None else int(data.missing.sum()),
                "faults": [],
                "notes": list(data.notes),
            }
        )
        return
    console = results()
    say(console, f"{data.source}: {data.n:,} rows, {data.d:,} columns{', read block by block' if streamed else ''}.")
    _show_columns(data, reports)
    if data.d > LISTED_COLUMNS:
        say(console, f"... and {data.d - LISTED_COLUMNS:,} more columns.")
    if data.missing is not None:
        rows, cells = int(data.missing.any(axis=1).sum()), int(data.missing.sum())
        say(
            console,
            f"{cells:,} of {data.missing.size:,} cells are missing, in {rows:,} rows and "
            f"{int(data.missing.any(axis=0).sum()):,} columns; a fit imputes them (--imputations).",
        )
    environments = [] if data.contexts is None else [data.contexts.in_words()]
    say(console, *in_words(data.design, data.names), *environments, *(f"Note: {note}" for note in data.notes))
    found = "with the notes above in mind" if data.notes else "nothing odd was found"
    say(console, f"It can be used, {found}.")
    suggest(console, f"vcuda fit {shlex.join(_fit_words(shown_address(table), options))} -o run")


def _fit_words(table: str, options: dict[str, Any]) -> list[str]:
    """The table and the options about it, as the command line of a fit takes them."""
    given = [(OPTIONS[name], value) for name, value in options.items() if value != OPTIONS[name].default]
    return [table, *(word for option, value in given for word in option.flag_words(value))]


def _show_kinds(reports: Sequence[ColumnReport]) -> None:
    """The kind of every column and why."""
    show_table(
        results(),
        {"column": "left", "kind": "left", "why": "left"},
        ((shortened(one.name), one.kind or "-", one.why) for one in reports[:LISTED_COLUMNS]),
    )


def _show_columns(data: Dataset | StreamedTable, reports: Sequence[ColumnReport]) -> None:
    """The kind of every column and why, and what its cells are like: labels first, then numbers."""
    from vcuda.data.dataset import Dataset

    labels = data.categories or (None,) * data.d
    shown = range(min(data.d, LISTED_COLUMNS))
    missing = None if data.missing is None else data.missing.sum(axis=0)

    def described(k: int, *cells: str) -> tuple[str, ...]:
        more = () if missing is None else (f"{missing[k]:,}",)
        return (shortened(data.names[k]), reports[k].kind or "", reports[k].why, *cells, *more)

    def show(heads: Mapping[str, Literal["left", "right"]], rows: list[tuple[str, ...]]) -> None:
        last: dict[str, Literal["left", "right"]] = {} if missing is None else {"missing": "right"}
        if rows:
            show_table(results(), {"column": "left", "kind": "left", "why": "left", **heads, **last}, rows)

    rows = []
    for k in shown:
        if (own := labels[k]) is not None:
            cells = (data if isinstance(data, Dataset) else data.sample).values[:, k]
            counts = [int((cells == code).sum()) for code in range(len(own))]
            share = f"{max(counts) / max(1, sum(counts)):.0%}"
            rows.append(described(k, shortened(own[counts.index(max(counts))]), share, str(min(counts))))
    show({"most frequent": "left", "share": "right", "rarest, rows": "right"}, rows)
    numbers = (data.mean, data.scale, *data.extremes)
    show(
        dict.fromkeys(("mean", "sd", "min", "max"), "right"),
        [described(k, *(f"{number[k]:.4g}" for number in numbers)) for k in shown if labels[k] is None],
    )


def simulate(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write into.", show_default=False)],
    graph: Annotated[GraphFamily, typer.Option(help="Erdős-Rényi, or scale-free with hubs.")] = "er",
    nodes: Annotated[int, typer.Option(help="Variables.")] = 10,
    edges: Annotated[int, typer.Option(help="Edges (with er: expected edges).")] = 10,
    mechanism: Annotated[
        Mechanism, typer.Option(help="Linear functions, Gaussian process draws, or random networks.")
    ] = "linear",
    noise: Annotated[NoiseScales, typer.Option(help="Noise variances.")] = "equal",
    noise_family: Annotated[NoiseFamily, typer.Option(help="Shape of the noise.")] = "gaussian",
    kinds: Annotated[
        str | None,
        typer.Option(
            help="Kinds of the columns (number, count, yes/no, ordered, label): mixed, one kind for all, a list with "
            "one for each column, or the columns that are no numbers, as in X1=label,X3=count.",
            show_default="number",
        ),
    ] = None,
    spread: Annotated[
        Spread, typer.Option(help="Whether the standard deviation of the noise depends on the causes.")
    ] = "constant",
    outliers: Annotated[float, typer.Option(help="Share of the cells of numbers to replace by far values.")] = 0.0,
    rounded: Annotated[
        float | None, typer.Option(help="Round numbers to multiples of this.", show_default="not rounded")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows to learn from.")] = 1_000,
    test_rows: Annotated[int, typer.Option(help="Rows to test on, from the same functions.")] = 1_000,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Make a table whose true graph is known: train.csv, test.csv and graph.csv (source, target)."""
    if output.exists() and not output.is_dir():
        raise RunError(f"{output} is a file; give the name of a folder")
    taken = [name for name in ("train.csv", "test.csv", "graph.csv") if (output / name).exists()]
    if taken:
        raise RunError(f"the folder {output} already holds {taken[0]}; give another folder")

    from vcuda.data.library import write_graph
    from vcuda.data.simulate import simulate as draw

    drawn = draw(
        graph,
        nodes=nodes,
        edges=edges,
        mechanism=mechanism,
        noise=noise,
        noise_family=noise_family,
        kinds=_kinds(kinds),
        spread=spread,
        outliers=outliers,
        rounded=rounded,
        rows=rows,
        test_rows=test_rows,
        seed=seed,
    )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the folder {output}: {error.strerror}; choose another place") from error
    with drafts(output) as folder:
        drawn.train.to_frame().to_csv(folder / "train.csv", index=False)
        drawn.test.to_frame().to_csv(folder / "test.csv", index=False)
        write_graph(folder / "graph.csv", drawn.graph, drawn.train.names)
    if as_json:
        show_json(
            {
                "folder": str(output),
                "rows": rows,
                "test_rows": test_rows,
                "columns": [
                    {"name": name, "kind": kind} for name, kind in zip(drawn.train.names, drawn.kinds, strict=True)
                ],
                "edges": len(drawn.sources),
            }
        )
        return
    train, test, true_graph = (shlex.quote(str(output / name)) for name in ("train.csv", "test.csv", "graph.csv"))
    console = results()
    say(
        console,
        f"Wrote {rows:,} rows to train.csv, {test_rows:,} rows to test.csv and {len(drawn.sources):,} edges "
        f"to graph.csv in {output}.",
    )
    suggest(console, f"vcuda fit {train} -o run")
    suggest(console, f"vcuda evaluate run --truth {true_graph} --test {test}", label="And then")


def _kinds(text: str | None) -> str | list[str] | dict[str, str] | None:
    """``mixed`` or one kind; ``number,label``: one kind a column; ``X1=label,X3=count``: kinds by column."""
    if text is None or not ("," in text or "=" in text):
        return text
    parts = [part.strip() for part in text.split(",")]
    if "=" not in text:
        return parts
    named = [part.partition("=") for part in parts]
    if any(not (column and equals and kind) for column, equals, kind in named):
        raise ConfigError(f"--kinds {text}: expected COLUMN=KIND between commas, as in X1=label,X3=count")
    return {column.strip(): kind.strip() for column, _, kind in named}


def datasets(as_json: Json = False) -> None:
    """List the tables that come with vcuda; each name can stand where a file is asked for."""
    from vcuda.data import library

    if as_json:
        fields = ("name", "title", "rows", "columns", "source", "licence", "citation", "note")
        cards = [library.card(name) for name in library.names()]
        show_json({"datasets": [{name: getattr(one, name) for name in fields} for one in cards]})
        return
    console = results()
    for name in library.names():
        card = library.card(name)
        say(
            console,
            f"{name}: {card.title}",
            f"  {card.rows:,} rows, {len(card.columns):,} columns: {', '.join(card.columns)}",
            f"  Source: {card.source}",
            f"  Licence: {card.licence}",
            f"  Note: {card.note}",
        )
        suggest(console, f"vcuda fit {name} -o run; vcuda evaluate run --truth {name}", label="  Try")
