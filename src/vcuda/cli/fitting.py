"""``vcuda fit``: from a table to a folder with the posterior, told in plain words."""

from __future__ import annotations

import contextlib
import csv
import json
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vcuda.cli.options import INTERRUPTED, Interventions, Json, OptionalTable, Seed
from vcuda.cli.resuming import clear_drafts, go_on_with, place_of, resumed_in_words, stored_options, with_remedy
from vcuda.cli.terminal import (
    StopOnRequest,
    drafts,
    duration,
    remarks,
    results,
    say,
    shortened,
    show_json,
    show_table,
    shown_progress,
    suggest,
)
from vcuda.errors import ConfigError, ConvergenceWarning, RunError

if TYPE_CHECKING:
    from vcuda.data.knowledge import Knowledge
    from vcuda.posterior import Posterior

STRONGEST_EDGES = 15
# With more columns a report takes longer than people wait for unasked.
REPORTED_COLUMNS = 200
SMALLEST_SHOWN_PROBABILITY = 0.01
# Options that the fit itself takes, by its own names for them.
PASSED_ON = (
    "model",
    "noise",
    "logarithm",
    "prior",
    "engine",
    "preset",
    "standardise",
    "imputations",
    "time_limit",
    "seed",
)

Model = Literal["auto", "linear", "mlp", "gp", "additive", "discrete"]
Noise = Literal["unit", "equal", "unequal"]
Engine = Literal[
    "auto",
    "exact",
    "orders",
    "variational",
    "straight-through",
    "empty",
    "base-rate",
    "variance-sort",
    "r2-sort",
    "random-sort",
    "grandag",
    "mcsl",
    "dds",
    "bayesdag",
    "dibs",
]
Preset = Literal["default", "paper"]


def fit(
    context: typer.Context,
    table: OptionalTable = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to write; an earlier run there is replaced.")
    ] = Path("run"),
    model: Annotated[
        Model,
        typer.Option(
            help="How a variable depends on its causes; auto: what the data support best, discrete for categories."
        ),
    ] = "auto",
    noise: Annotated[
        Noise | None,
        typer.Option(
            help="Noise variances: all one, one shared, or one for each variable. By default what the data support "
            "with model auto, unit with preset paper, else unequal.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            metavar="COLUMN",
            help="Take this column by its logarithm; repeat for more. By default the data decide with model auto.",
            show_default=False,
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take no column by its logarithm.")] = False,
    engine: Annotated[
        Engine,
        typer.Option(
            help="How the posterior is found; auto: the best for the size of the table. From empty on: other methods, "
            "to compare with."
        ),
    ] = "auto",
    preset: Annotated[
        Preset, typer.Option(help="paper: the authors' program as it was run, of other methods too.")
    ] = "default",
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Bring every column to mean 0 and variance 1 first.")
    ] = False,
    edge_prior: Annotated[
        float | None,
        typer.Option(
            help="Probability of an edge before data are seen, if the order of the two variables allows it. "
            "By default one expected cause for each variable.",
            show_default=False,
        ),
    ] = None,
    knowledge: Annotated[
        Path | None,
        typer.Option(
            "--knowledge",
            metavar="FILE",
            help="A .toml or .csv file with what is known of the causes; every graph obeys.",
            show_default=False,
        ),
    ] = None,
    interventions: Interventions = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require", metavar='"A -> B"', help="A is a direct cause of B; repeat for more.", show_default=False
        ),
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(
            "--forbid", metavar='"A -> B"', help="A is no direct cause of B; repeat for more.", show_default=False
        ),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            "--tier",
            metavar='"A,B"',
            help="Columns that come before those of the next --tier: no edge points back.",
            show_default=False,
        ),
    ] = None,
    within_tiers: Annotated[
        bool, typer.Option("--within-tiers/--no-within-tiers", help="Whether columns of one tier may cause each other.")
    ] = True,
    root: Annotated[
        list[str] | None,
        typer.Option("--root", metavar="COLUMN", help="A column without causes; repeat for more.", show_default=False),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option("--sink", metavar="COLUMN", help="A column without effects; repeat for more.", show_default=False),
    ] = None,
    imputations: Annotated[
        int,
        typer.Option(
            "--imputations",
            metavar="N",
            min=1,
            help="Fill missing cells in so many times, and take the mean over the fillings.",
        ),
    ] = 10,
    streamed: Annotated[
        bool | None,
        typer.Option(
            "--streamed/--in-memory",
            help="Read the table block by block, or all at once. By default folders and large files are streamed.",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="End after so many seconds with what there is; the status says so.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            min=0,
            help="Also write so many posterior graphs to samples.npz; vcuda sample can do it later.",
        ),
    ] = 0,
    seed: Seed = 0,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="RUN",
            help="Go on with the fit in this folder that was killed or stopped; nothing else need be given.",
            show_default=False,
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            metavar="ADDRESS",
            help="Let a Dask cluster share the work: the address of its scheduler (tcp://host:8786), local for one "
            "process a core of this machine, or a number of local processes. The result is the same.",
            show_default=False,
        ),
    ] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Write no report.html; vcuda report can do it later.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors and warnings.")] = False,
    as_json: Json = False,
) -> None:
    """Learn from a table which variable causes which, and how sure that is.

    Writes edges.csv (source, target, probability), summary.json, config.json, posterior.npz and report.html, a page to
    show, into a folder.
    Ctrl-C saves what is learned so far. A fit that was killed after its first seconds goes on with --resume.
    """
    if table is None and resume is None:
        raise ConfigError("give a table to fit, or --resume and the folder of a fit that was stopped")
    if log and raw:
        raise ConfigError("--log asks for the logarithm of a column and --raw for none; leave one of them out")
    if resume is not None:
        output, options = resume, stored_options(context, resume, table)
    else:
        assert table is not None
        options = {
            **place_of(table),
            "interventions": interventions,
            "streamed": streamed,
            "knowledge": None,
            "model": model,
            "noise": noise,
            "logarithm": () if raw else log,
            "prior": edge_prior,
            "engine": engine,
            "preset": preset,
            "standardise": standardise,
            "imputations": imputations,
            "seed": seed,
            "time_limit": time_limit,
            "samples": samples,
            "no_report": no_report,
        }
    from vcuda.data.large import open_table
    from vcuda.infer.progress import Progress

    workers = mapped = None
    if dask is not None:
        from vcuda.cluster import as_workers, connected
        from vcuda.infer.workers import mapped_by

        # It is closed when the command ends.
        workers = as_workers(context.with_resource(connected(dask)))
        mapped = mapped_by(workers)
    told = remarks()
    # Before the next imports, which take a second: a table that cannot be used is refused at once.
    with shown_progress(told, quiet=quiet, doing="Reading") as report:
        data = open_table(
            table or options["table"],
            interventions=options["interventions"],
            streamed=options["streamed"],
            told=lambda step: report(Progress(step.share, 1, f"{step.rows:,} rows so far")),
            mapped=mapped,
        )
    if options["knowledge"] is None:
        known = _knowledge(knowledge, require, forbid, tier, within_tiers, root, sink)
        options["knowledge"] = known.to_dict()

    from vcuda.data.knowledge import Knowledge
    from vcuda.fitting.fit import fit as fit_posterior
    from vcuda.infer.journal_files import Checkpoint
    from vcuda.posterior.locks import FolderLock
    from vcuda.posterior.storage import CHECKPOINT, check_folder

    run = check_folder(output)
    checkpoint = Checkpoint(
        run / CHECKPOINT, resume=resume is not None, notes=options, keep=True, told=lambda sentence: say(told, sentence)
    )
    with StopOnRequest() as stop, FolderLock(run), warnings.catch_warnings():
        clear_drafts(run)
        # The status says the same, and is printed below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if not quiet:
            if resume is None and checkpoint.has_request:
                say(told, f"A fit in {run} has not ended; this one takes its place.")
                suggest(told, go_on_with(run), label="To go on with the other, stop now and use")
            say(told, f"Fitting {data.n:,} rows and {data.d:,} columns of {data.source}.")
        try:
            with shown_progress(told, quiet=quiet) as report:
                posterior = fit_posterior(
                    data,
                    knowledge=Knowledge.from_dict(options["knowledge"]),
                    progress=stop.checked(report),
                    checkpoint=checkpoint,
                    client=workers,
                    **{name: options[name] for name in PASSED_ON},
                )
        except KeyboardInterrupt:
            if checkpoint.has_request:
                suggest(told, go_on_with(run))
            raise
        try:
            posterior.save(run)
            graphs_file, page = run / "samples.npz", run / "report.html"
            for earlier in (graphs_file, page):  # of an earlier run, which is replaced
                earlier.unlink(missing_ok=True)
            if not options["no_report"] and data.d <= REPORTED_COLUMNS:
                posterior.report(page, curves=0, seed=options["seed"])
            if options["samples"]:
                with drafts(run) as folder:
                    posterior.sample(options["samples"], seed=options["seed"]).save(folder / graphs_file.name)
        except (RunError, OSError) as error:
            raise with_remedy(error, checkpoint, run) from error
        if posterior.status.code != "interrupted":
            # What cannot be removed does no harm.
            with contextlib.suppress(OSError):
                checkpoint.remove()
    if as_json:
        show_json({**json.loads((run / "summary.json").read_text(encoding="utf-8")), "run": str(run)})
    elif not quiet:
        _report(posterior, run)
    if posterior.status.code != "ok" and (quiet or as_json):
        say(told, f"vcuda: {posterior.status.sentence}")
    if posterior.status.code == "interrupted" or stop.asked:
        raise typer.Exit(INTERRUPTED)
    if posterior.status.code == "failed":
        raise typer.Exit(1)


def _knowledge(
    file: Path | None,
    require: list[str] | None,
    forbid: list[str] | None,
    tier: list[str] | None,
    within_tiers: bool,
    root: list[str] | None,
    sink: list[str] | None,
) -> Knowledge:
    """What the file and the options say together."""
    from vcuda.data.knowledge import Knowledge, as_knowledge

    # Read as lines of a CSV file, so that a name with a comma can stand in quotes.
    tiers = [[name.strip() for name in line] for line in csv.reader(tier or (), skipinitialspace=True)]
    told = Knowledge.from_dict(
        {
            "required": require or (),
            "forbidden": forbid or (),
            "tiers": tiers,
            "within_tiers": within_tiers,
            "roots": root or (),
            "sinks": sink or (),
        }
    )
    return as_knowledge(file).joined(told)


def _report(posterior: Posterior, run: Path) -> None:
    console = results()
    summary, provenance = posterior.summary(), posterior.provenance
    size = f"{summary['rows']:,} rows and {summary['columns']:,} columns"
    say(
        console,
        f"Fitted {size} of {provenance['data']['source']} in {duration(summary['seconds'])}: "
        f"model {summary['model']}, {'' if summary['noise'] is None else 'noise ' + summary['noise'] + ', '}"
        f"engine {summary['engine']}, preset {provenance['preset']}, seed {summary['seed']}"
        f"{resumed_in_words(summary.get('resumed'))}.",
        *summary["choice"],
        f"Status: {summary['status']}. {summary['status_sentence']}",
        *(f"Note: {note}" for note in summary["notes"]),
        "",
    )
    edges = posterior.edges(minimum=SMALLEST_SHOWN_PROBABILITY).head(STRONGEST_EDGES)
    if edges.empty:
        say(console, f"No edge has a probability of {SMALLEST_SHOWN_PROBABILITY} or more.", "")
    else:
        say(console, f"{summary['expected_edges']:.1f} edges are expected; the most probable:")
        show_table(
            console,
            {"source": "left", "target": "left", "probability": "right"},
            ((shortened(row.source), shortened(row.target), f"{row.probability:.2f}") for row in edges.itertuples()),
        )
    quoted = shlex.quote(str(run))
    if summary["status"] == "interrupted":
        suggest(console, go_on_with(run), label="To finish it")
    files = ["edges.csv (all edges)", "summary.json", "config.json", "posterior.npz"]
    files += [name for name in ("samples.npz", "report.html") if (run / name).exists()]
    say(console, f"Written to {run}: {', '.join(files)}.")
    suggest(console, f"vcuda sample {quoted} -n 100")
    suggest(console, f"vcuda evaluate {quoted} --truth graph.csv", label="With a known graph")
    suggest(console, f"vcuda.Posterior.load({str(run)!r})", label="In Python")
