"""Commands that answer questions about a run folder: edges, their sources, paths, effects, the next experiment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcuda.cli.completion import run_columns
from vcuda.cli.options import Json, Run, Seed
from vcuda.cli.runs import opened
from vcuda.cli.terminal import remarks, results, say, shortened, show_json, show_table, shown_progress

if TYPE_CHECKING:
    import pandas as pd

    from vcuda.summaries.categorical_effects import CategoryEffect
    from vcuda.summaries.simulated_effects import SimulatedEffect

Draws = Annotated[int, typer.Option(min=1, help="Graphs drawn from the posterior.")]
Most = Annotated[int, typer.Option("--most", min=1, help="The most lines to print.")]


def edges(
    run: Run,
    minimum: Annotated[float, typer.Option(min=0.0, max=1.0, help="Leave out edges below this probability.")] = 0.1,
    consensus: Annotated[
        bool, typer.Option("--consensus", help="Only the edges of one DAG, which agrees with the posterior best.")
    ] = False,
    most: Most = 50,
    as_json: Json = False,
) -> None:
    """Which variable causes which? The edges and their probabilities, the surest first."""
    posterior = opened(run)
    if consensus:
        graph = posterior.consensus()
        found, rule = graph.edges(), graph.rule
        found = found[found.probability >= minimum]
    else:
        found, rule = posterior.edges(minimum=minimum), f"Edges with a probability of {minimum:g} or more."
    if as_json:
        show_json({"rule": rule, "edges": found.to_dict("records")})
        return
    say(results(), rule)
    show(found, most)


def paths(
    run: Run,
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="The variable where the path starts.", autocompletion=run_columns)
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="The variable where it ends.", autocompletion=run_columns)
    ],
    most: Most = 10,
    draws: Draws = 1_000,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Is one variable upstream of another, and by which way?"""
    found = opened(run, source, target).paths(source, target, most=most, draws=draws, seed=seed)
    if as_json:
        show_json({"probability": found.probability, "paths": found.table.to_dict("records")})
        return
    say(results(), f"{source} is upstream of {target} with probability {found.probability:.2f}.")
    show(found.table, most, shorten=str)


def effect(
    run: Run,
    cause: Annotated[
        str, typer.Argument(metavar="CAUSE", help="The variable that is set.", autocompletion=run_columns)
    ],
    outcome: Annotated[
        str, typer.Argument(metavar="OUTCOME", help="The variable that may change.", autocompletion=run_columns)
    ],
    at: Annotated[
        list[float] | None,
        typer.Option("--at", help="A value of the cause for the curve; repeat for more.", show_default=False),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(min=0, help="Of a time series: steps after the change, by default 12.", show_default=False),
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Causal models drawn from the posterior.", show_default=False)
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """What happens to one variable when another is set? In the units of the table."""
    posterior = opened(run, cause, outcome)
    from vcuda.summaries.categorical_effects import CategoryEffect
    from vcuda.summaries.impulses import ImpulseResponse
    from vcuda.summaries.simulated_effects import SimulatedEffect

    found = posterior.effect(cause, outcome, at=at, horizon=horizon, draws=draws, seed=seed)
    if isinstance(found, ImpulseResponse):
        if as_json:
            answer = {"sentence": found.sentence, "linear": found.linear, "caveat": found.caveat}
            show_json({**answer, "response": found.table.to_dict("records")})
            return
        say(results(), found.sentence)
        show(found.table, len(found.table))
        return
    if isinstance(found, SimulatedEffect):
        _show_simulated_effect(found, as_json=as_json)
        return
    if isinstance(found, CategoryEffect):
        _show_category_effect(found, as_json=as_json)
        return
    if as_json:
        low, high = found.interval
        show_json(
            {
                "sentence": found.sentence,
                "mean": found.mean,
                "low": low,
                "high": high,
                "probability_zero": found.probability_zero,
                "linear": found.linear,
                "caveat": found.caveat,
                "hidden_cause": found.hidden_cause,
                "curve": found.curve.to_dict("records"),
            }
        )
        return
    say(results(), found.sentence)
    if at is not None or not found.linear:
        say(results(), f"Expected {outcome} when {cause} is set to x, with the band that holds 90 %:")
        show(found.curve, len(found.curve))


def _show_simulated_effect(found: SimulatedEffect, *, as_json: bool) -> None:
    if as_json:
        low, high = found.interval
        show_json(
            {
                "sentence": found.sentence,
                "measure": found.main.measure.words,
                "unit": found.main.measure.unit,
                "before": found.main.before,
                "after": found.main.after,
                "mean": found.mean,
                "low": low,
                "high": high,
                "probability_zero": found.probability_zero,
                "caveat": found.caveat,
                "hidden_cause": found.hidden_cause,
                "table": found.table.to_dict("records"),
                "curve": found.curve.to_dict("records"),
            }
        )
        return
    say(results(), found.sentence)
    say(results(), f"Changes of {found.outcome} when {found.cause} is set, with the interval that holds 90 %:")
    show(found.table, len(found.table), shorten=str)


def _show_category_effect(found: CategoryEffect, *, as_json: bool) -> None:
    if as_json:
        risk = found.risk_difference
        show_json(
            {
                "sentence": found.sentence,
                "probability_zero": found.probability_zero,
                "risk_difference": None if risk is None else risk._asdict(),
                "caveat": found.caveat,
                "hidden_cause": found.hidden_cause,
                "table": found.table.to_dict("records"),
            }
        )
        return
    say(results(), found.sentence)
    say(results(), f"Probabilities of {found.outcome} when {found.cause} is set, with the band that holds 90 %:")
    show(found.table, len(found.table))


def drivers(
    run: Run,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="The variable that is driven; by default the target of the fit.",
            show_default=False,
            autocompletion=run_columns,
        ),
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Of how many causes, the likeliest, to get effects.")] = 10,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Causal models drawn for an effect.", show_default=False)
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """What drives a variable? Its direct and upstream causes, by what they change in it."""
    posterior = opened(run, *(target,) if target is not None else ())
    found = posterior.drivers(target, most=most, draws=draws, seed=seed)
    if as_json:
        show_json(found.to_dict())
        return
    say(results(), f"What drives {found.target}:", *(f"- {sentence}" for sentence in found.sentences), found.caveat)
    if found.drivers:
        show(found.table.drop(columns=["measure", "value_before", "value_after"]), len(found.drivers))


def why(
    run: Run,
    cause: Annotated[
        str, typer.Argument(metavar="CAUSE", help="The variable where the edge starts.", autocompletion=run_columns)
    ],
    effect: Annotated[
        str, typer.Argument(metavar="EFFECT", help="The variable where it ends.", autocompletion=run_columns)
    ],
    data: Annotated[
        str | None,
        typer.Option(help="The table that was fitted, where the run does not keep its rows.", show_default=False),
    ] = None,
    subsamples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Parts of the rows that are described, of those that were fitted; by default as many as take about "
            "20 seconds.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Where does the probability of an edge come from, and what decides it?"""
    posterior, console = opened(run, cause, effect), remarks()
    with shown_progress(console, quiet=as_json or not console.is_interactive, doing="Describing") as progress:
        found = posterior.why(cause, effect, data=data, subsamples=subsamples, progress=progress)
    if as_json:
        show_json(found.to_dict())
        return
    say(results(), *found.sentences)
    for title, table in found.tables():
        say(results(), title)
        show(table, len(table))
    if found.notes:
        say(results(), *found.notes)


def sensitivity(
    run: Run,
    cause: Annotated[
        str, typer.Argument(metavar="CAUSE", help="The variable that is set.", autocompletion=run_columns)
    ],
    outcome: Annotated[
        str, typer.Argument(metavar="OUTCOME", help="The variable that may change.", autocompletion=run_columns)
    ],
    data: Annotated[
        str | None,
        typer.Option(help="The table that was fitted, where the run does not keep its rows.", show_default=False),
    ] = None,
    draws: Draws = 1_000,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """How strong would a hidden common cause have to be to explain an effect away?"""
    found = opened(run, cause, outcome).sensitivity(cause, outcome, data=data, draws=draws, seed=seed)
    if as_json:
        show_json(
            {
                "sentence": found.sentence,
                "probability": found.probability,
                "holds_up_to": found.holds_up_to(),
                "curve": found.curve.to_dict("records"),
                "covariates": found.covariates.to_dict("records"),
            }
        )
        return
    say(results(), found.sentence)
    say(
        results(),
        f"The probability that {cause} has an effect on {outcome} which holds, by the hidden cause's strength:",
    )
    show(found.curve.iloc[::10], len(found.curve))
    if not found.covariates.empty:
        say(results(), f"Measured causes of {cause}, and how strong they are:")
        show(found.covariates, len(found.covariates))


def next_experiment(
    run: Run,
    already: Annotated[
        list[str] | None,
        typer.Option(
            "--already",
            autocompletion=run_columns,
            help="A variable that was set already; repeat for more. By default the interventions of the fit.",
            show_default=False,
        ),
    ] = None,
    most: Most = 10,
    draws: Draws = 1_000,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Which experiment next? The variables, by what setting one of them is expected to teach about the graph."""
    found = opened(run, *already or ()).next_experiment(already=already, draws=draws, seed=seed)
    if as_json:
        show_json({"experiments": found.to_dict("records")})
        return
    if not (found.information > 0).any():
        say(results(), "No experiment on a single variable is expected to settle a direction that is still open.")
        return
    say(results(), "By the expected information from setting each variable, in bits, with the directions it settles:")
    show(found, most)


def targets(
    run: Run,
    minimum: Annotated[float, typer.Option(min=0.0, max=1.0, help="Leave out changes below this probability.")] = 0.1,
    most: Most = 50,
    as_json: Json = False,
) -> None:
    """Which environment changed which column? For a fit with --contexts, the surest changes first."""
    posterior = opened(run)
    found = posterior.targets(minimum=minimum)
    reference = posterior.provenance["contexts"]["reference"]
    if as_json:
        show_json({"reference": reference, "targets": found.to_dict("records")})
        return
    if found.empty:
        say(results(), f"No environment differs from {reference} with a probability of {minimum:g} or more.")
        return
    say(results(), f"Changes from {reference} with a probability of {minimum:g} or more:")
    show(found, most)


def compare(
    run: Run,
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="Another such folder.", show_default=False)],
    most: Most = 15,
    as_json: Json = False,
) -> None:
    """What changed between two posteriors of the same variables?"""
    found = opened(run).compare(opened(other))
    if as_json:
        show_json(
            {
                "sum_of_differences": found.sum_of_differences,
                "pairs_that_differ": found.pairs_that_differ,
                "only_here": list(found.only_here),
                "only_there": list(found.only_there),
                "edges": found.edges.to_dict("records"),
            }
        )
        return
    for names, folder in ((found.only_here, run), (found.only_there, other)):
        if names:
            say(results(), f"Only in {folder}: {', '.join(map(shortened, names))}.")
    say(
        results(),
        f"The probabilities of all edges differ by {found.sum_of_differences:.2f} together; graphs of the two differ "
        f"about at least {found.pairs_that_differ:.1f} pairs. What changed most:",
    )
    show(found.edges[found.edges.difference.abs() >= 0.005], most)


def report(
    run: Run,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; by default report.html in RUN.", show_default=False),
    ] = None,
    curves: Annotated[int, typer.Option(min=0, help="Nonlinear effects to draw as curves; each takes seconds.")] = 3,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Write one HTML file to show: the graph, the edges, the effects, and how far to trust them."""
    path = output or run / "report.html"
    opened(run).report(path, curves=curves, seed=seed)
    if as_json:
        show_json({"file": str(path)})
        return
    say(results(), f"Wrote {path}; it needs no network, and opens in any browser.")


def export(
    run: Run,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The file to write; its ending says the format: .csv, .json, .dot, .graphml or .gml; or, for one DAG "
            "without probabilities, .dagitty, .tetrad or .bif.",
            show_default=False,
        ),
    ],
    minimum: Annotated[float, typer.Option(min=0.0, max=1.0, help="Leave out edges below this probability.")] = 0.0,
    consensus: Annotated[
        bool, typer.Option("--consensus", help="Only the edges of one DAG, which agrees with the posterior best.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the edges and their probabilities for other programs."""
    posterior = opened(run)
    from vcuda.outputs.exports import write_edges

    if output.is_symlink():
        output.unlink()  # a run of somebody else may hold a link to a file of yours
    write_edges(posterior.consensus() if consensus else posterior, output, minimum=minimum)
    if as_json:
        show_json({"file": str(output)})
        return
    say(results(), f"Wrote {output}.")


def show(table: pd.DataFrame, most: int, *, shorten: Callable[[object], str] = shortened) -> None:
    """The first lines of a table: names as they are, numbers to four digits, those between 0 and 1 to two decimals."""
    numeric = {name: table[name].dtype.kind in "fi" for name in table.columns}
    shares = {name for name in table.columns if numeric[name] and table[name].abs().max() <= 1}

    def cell(name: str, value: Any) -> str:
        if not numeric[name]:
            return shorten(value)
        return f"{value:.2f}" if name in shares else f"{value:.4g}"

    if table.empty:
        say(results(), "None.")
        return
    show_table(
        results(),
        {name.replace("_", " "): "right" if numeric[name] else "left" for name in table.columns},
        ([cell(name, row[name]) for name in table.columns] for row in table.head(most).to_dict("records")),
    )
    if len(table) > most:
        say(results(), f"... and {len(table) - most:,} more; --most prints more of them.")
