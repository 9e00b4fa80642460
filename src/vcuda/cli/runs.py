"""``vcuda sample``, ``evaluate`` and ``check``, on a folder that ``vcuda fit`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcuda.arguments import position
from vcuda.cli.options import EDGES_IN_DOUBT, Json, Run, Seed
from vcuda.cli.terminal import drafts, results, say, show_json, show_table
from vcuda.errors import ConfigError

if TYPE_CHECKING:
    from vcuda.posterior import Posterior

EDGES_LISTED = 20
MEANINGS = {
    "auroc": "chance that a true edge ranks above a pair without one; 0.5 is guessing, 1 perfect",
    "average_precision": "precision averaged over recall; guessing gives the share of true edges",
    "auroc_full": "auroc with the diagonal counted, as in the paper's tables",
    "average_precision_full": "average precision with the diagonal counted, as in the paper's tables",
    "skeleton_average_precision": "average precision when directions do not count",
    "true_edges": "edges of the true graph, which is also the distance of the empty graph",
    "brier": "mean squared error of the probabilities; smaller is better",
    "base_rate_brier": "the same for a forecast of the share of true edges alone",
    "calibration_error": "mean difference between stated probability and true share; 0 is best",
    "expected_edges": "edges that the posterior expects",
    "expected_shd": "pairs to correct in a sampled graph, on average; smaller is better",
    "expected_f1": "balance of precision and recall of a sampled graph, on average; 1 is perfect",
    "expected_cpdag_shd": "pairs to correct between equivalence classes, on average; smaller is better",
    "mse": "mean squared error of held-out cells, in the units of the table; smaller is better",
    "accuracy": "share of held-out cells whose most probable label is the right one; 1 is perfect",
    "log_likelihood": "mean log density of a held-out row; larger is better",
    "nll": "mean negative log density of a held-out row, for each cell; smaller is better",
}


def opened(run: Path, *variables: str) -> Posterior:
    """The posterior in a folder, of which ``variables`` are asked.

    A folder that is no run, or has no such variable, is refused before the libraries are imported that read it.
    """
    from vcuda.posterior.run_folders import config_of, variables_of

    config_of(run)
    if variables and (names := variables_of(run)):
        for name in variables:
            position(names, name)
    from vcuda.posterior import Posterior

    return Posterior.load(run)


def sample(
    run: Run,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many graphs.")] = 100,
    seed: Seed = 0,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The file to write. CSV: one line for each edge (sample, source, target; a graph without "
            "edges has no line). NPZ: arrays (names, offsets, sources, targets, weights).",
        ),
    ] = Path("samples.csv"),
    as_json: Json = False,
) -> None:
    """Draw causal graphs from a fitted posterior; every one of them is acyclic."""
    if output.suffix.lower() not in (".csv", ".npz"):
        raise ConfigError(f"{output}: graphs are written as .csv or .npz; end the name with one of them")

    from vcuda.posterior.drafts import check_new_file

    check_new_file(output)
    graphs = opened(run).sample(number, seed=seed)
    with drafts(output.parent) as folder:
        graphs.save(folder / output.name)
    edges = float(graphs.weights @ graphs.edge_counts())
    if as_json:
        show_json({"file": str(output), "graphs": len(graphs), "mean_edges": edges})
        return
    say(results(), f"Wrote {len(graphs):,} graphs with {edges:.1f} edges on average to {output}.")


def evaluate(
    run: Run,
    truth: Annotated[
        str,
        typer.Option(
            help="The true graph: a CSV file with the columns source and target or with a matrix of 0 and 1, "
            "a graph of DAGitty, Tetrad or BIF, or a bundled table (sachs).",
            show_default=False,
        ),
    ],
    test: Annotated[
        str | None,
        typer.Option(help="A table of rows that were not fitted, to be predicted.", show_default=False),
    ] = None,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="Whether the first line of the table of --test holds names.")
    ] = True,
    samples: Annotated[int, typer.Option(min=1, help="Graphs drawn from the posterior for the distances.")] = 1_000,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare a fitted posterior with a graph that is known, and with rows that were not fitted."""
    posterior = opened(run)
    from vcuda.data.library import read_graph
    from vcuda.data.reading import new_rows
    from vcuda.metrics import evaluate as all_metrics

    graph = read_graph(truth, posterior.names)
    held_out = None if test is None else new_rows(test, posterior.names, header=header)
    numbers = all_metrics(posterior, graph, samples=samples, seed=seed)
    if held_out is not None:
        numbers |= posterior.held_out(held_out, seed=seed)
    if as_json:
        show_json(numbers)
        return
    console = results()
    say(console, f"{run} against the {int(graph.sum()):,} edges of {truth}:")
    show_table(
        console,
        {"metric": "left", "value": "right", "meaning": "left"},
        ((name.replace("_", " "), f"{value:.4g}", MEANINGS.get(name, "")) for name, value in numbers.items()),
    )


def show_model_checks(run: Path, *, as_json: bool) -> None:
    """Print what the model checks of a run found; exit code 3 where they put sure edges in doubt."""
    posterior = opened(run)
    checks, status = posterior.checks(), posterior.status
    if as_json:
        show_json(
            {
                "run": str(run),
                "status": status.code,
                "status_sentence": status.sentence,
                "status_parts": status.to_json(),
                **checks.to_json(),
            }
        )
    else:
        _print_findings(posterior)
    if checks.warnings:
        raise typer.Exit(EDGES_IN_DOUBT)


def _print_findings(posterior: Posterior) -> None:
    from vcuda.posterior.posterior import as_sentence
    from vcuda.posterior.status import edges_in_words

    console, checks, status, summary = results(), posterior.checks(), posterior.status, posterior.summary()
    size = f"{summary['rows']:,} rows and {summary['columns']:,} columns"
    say(
        console,
        f"Model {summary['model']} of {size} of {posterior.provenance['data']['source']}.",
        f"Status: {status.code}. {checks.summary}",
    )
    for finding in checks:
        say(console, "", f"{finding.severity.capitalize()}, {finding.check}: {finding.sentence}")
        if finding.edges:
            say(console, f"  Edges in doubt: {edges_in_words(finding.edges, most=EDGES_LISTED)}.")
        say(console, *(f"  {said}" for said in (finding.changes, finding.remedy) if said))
    if checks.made and checks.not_made:
        say(console, "", as_sentence([checks.not_made]))
    say(console, "", status.unseen.sentence, status.arithmetic.sentence, "")
    if checks.made:
        show_table(
            console,
            {"check": "left", "p-value": "right", "rows": "right", "seconds": "right"},
            (
                (one.check, "" if one.p_value is None else f"{one.p_value:.2g}", f"{one.rows:,}", f"{one.seconds:.2f}")
                for one in checks.made
            ),
        )
