"""``vcuda check``, ``vcuda simulate`` and ``vcuda datasets``: tables before a fit."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vcuda.cli.fit_options import current_flags, takes_fit_options
from vcuda.cli.options import Seed, Table
from vcuda.cli.terminal import drafts, results, say, shortened, show_table, suggest
from vcuda.errors import RunError
from vcuda.fitting.spec import FitSpec

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.data.streaming import StreamedTable

LISTED_COLUMNS = 30

GraphFamily = Literal["er", "sf"]
Mechanism = Literal["linear", "gp", "mlp"]
NoiseScales = Literal["equal", "unequal"]
NoiseFamily = Literal["gaussian", "uniform", "laplace", "gumbel"]


@takes_fit_options("interventions", "columns", "exclude", "header")
def check(table: Table, **given: Any) -> None:
    """Say what is in a table and whether it can be used, without fitting anything."""
    from vcuda.data.columns import line_of
    from vcuda.data.interventions import in_words
    from vcuda.data.streaming import StreamedTable

    options = current_flags(given)
    data = FitSpec(**options).open(table)
    console = results()
    if isinstance(data, StreamedTable):
        say(console, f"{data.source}: {data.n:,} rows, {data.d:,} columns, read block by block.")
        _show_numbers(data)
    elif data.categories is not None:
        say(console, f"{data.source}: {data.n:,} rows, {data.d:,} columns of categories.")
        _show_categories(data)
    else:
        say(console, f"{data.source}: {data.n:,} rows, {data.d:,} columns.")
        _show_numbers(data)
    if data.d > LISTED_COLUMNS:
        say(console, f"... and {data.d - LISTED_COLUMNS:,} more columns.")
    if data.missing is not None:
        rows, cells = int(data.missing.any(axis=1).sum()), int(data.missing.sum())
        say(
            console,
            f"{cells:,} of {data.missing.size:,} cells are missing, in {rows:,} rows and "
            f"{int(data.missing.any(axis=0).sum()):,} columns; a fit imputes them (--imputations).",
        )
    say(console, *in_words(data.design, data.names), *(f"Note: {note}" for note in data.notes))
    found = "with the notes above in mind" if data.notes else "nothing odd was found"
    say(console, f"It can be used, {found}.")
    words = [table] if options["interventions"] is None else [table, "--interventions", options["interventions"]]
    for option in ("columns", "exclude"):
        words += [f"--{option}", line_of(options[option])] if options[option] else []
    words += [] if options["header"] else ["--no-header"]
    suggest(console, f"vcuda fit {shlex.join(words)} -o run")


def _show_categories(data: Dataset) -> None:
    assert data.categories is not None
    rows = []
    for name, codes, labels in zip(data.names[:LISTED_COLUMNS], data.values.T, data.categories, strict=False):
        counts = [int((codes == code).sum()) for code in range(len(labels))]
        most = counts.index(max(counts))
        share = f"{max(counts) / data.n:.0%}"
        rows.append((shortened(name), str(len(labels)), shortened(labels[most]), share, str(min(counts))))
    show_table(
        results(),
        {"column": "left", "levels": "right", "most frequent": "left", "share": "right", "rarest, rows": "right"},
        rows,
    )


def _show_numbers(data: Dataset | StreamedTable) -> None:
    heads = ["mean", "sd", "min", "max"]
    columns = [data.mean, data.scale, *data.extremes]
    if data.missing is not None:
        heads, columns = [*heads, "missing"], [*columns, data.missing.sum(axis=0)]
    show_table(
        results(),
        {"column": "left", **dict.fromkeys(heads, "right")},
        (
            (shortened(name), *(f"{number:.4g}" for number in numbers))
            for name, *numbers in zip(data.names[:LISTED_COLUMNS], *columns, strict=False)
        ),
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
    rows: Annotated[int, typer.Option(help="Rows to learn from.")] = 1_000,
    test_rows: Annotated[int, typer.Option(help="Rows to test on, from the same functions.")] = 1_000,
    seed: Seed = 0,
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
    train, test, true_graph = (shlex.quote(str(output / name)) for name in ("train.csv", "test.csv", "graph.csv"))
    console = results()
    say(
        console,
        f"Wrote {rows:,} rows to train.csv, {test_rows:,} rows to test.csv and {len(drawn.sources):,} edges "
        f"to graph.csv in {output}.",
    )
    suggest(console, f"vcuda fit {train} -o run")
    suggest(console, f"vcuda evaluate run --truth {true_graph} --test {test}", label="And then")


def datasets() -> None:
    """List the tables that come with vcuda; each name can stand where a file is asked for."""
    from vcuda.data import library

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
        suggest(console, f"vcuda fit {name} -o run && vcuda evaluate run --truth {name}", label="  Try")
