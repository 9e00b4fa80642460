"""``vcuda fit``: from a table to a folder with the posterior, with a summary in plain words."""

from __future__ import annotations

import contextlib
import json
import shlex
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vcuda import interrupts
from vcuda.cli.config import config_for
from vcuda.cli.fit_options import current_flags, is_given, knowledge_from_options, takes_fit_options, with_config
from vcuda.cli.options import EDGES_IN_DOUBT, ConfigFile, Json, OptionalTable
from vcuda.cli.resuming import (
    clear_drafts,
    go_on_with,
    place_of,
    resumed_in_words,
    saved_in_words,
    stopped_in_words,
    stored_options,
    with_remedy,
)
from vcuda.cli.terminal import (
    OUTPUT_FOLDER,
    OutputError,
    StopOnRequest,
    drafts,
    remarks,
    results,
    say,
    shortened,
    show_json,
    show_table,
    shown_progress,
    suggest,
)
from vcuda.data.paths import check_is_there
from vcuda.errors import ConfigError, ConvergenceWarning, ModelCheckWarning, RunError
from vcuda.fitting.spec import OPTIONS, FitCall
from vcuda.infer.progress import Progress, duration

if TYPE_CHECKING:
    from vcuda.posterior import Posterior

STRONGEST_EDGES = 15
# With more columns a report takes longer than people wait for unasked.
REPORTED_COLUMNS = 200
SMALLEST_SHOWN_PROBABILITY = 0.1
Output = Annotated[Path, typer.Option("--output", "-o", help="The folder to write; an earlier run there is replaced.")]
Raw = Annotated[bool, typer.Option("--raw", help="Take no column by its logarithm.")]
Required = Annotated[
    list[str] | None,
    typer.Option(
        "--require", metavar='"A -> B"', help="A is a direct cause of B; repeat for more.", show_default=False
    ),
]
Forbidden = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid", metavar='"A -> B"', help="A is no direct cause of B; repeat for more.", show_default=False
    ),
]
UpstreamOf = Annotated[
    list[str] | None,
    typer.Option(
        "--upstream",
        metavar='"A -> B"',
        help="A is a cause of B, directly or by others; repeat for more. Engines exact and orders.",
        show_default=False,
    ),
]
Tiers = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        metavar='"A,B"',
        help="Columns that come before those of the next --tier: no edge points back.",
        show_default=False,
    ),
]
WithinTiers = Annotated[
    bool, typer.Option("--within-tiers/--no-within-tiers", help="Whether columns of one tier may cause each other.")
]
Roots = Annotated[
    list[str] | None,
    typer.Option("--root", metavar="COLUMN", help="A column without causes; repeat for more.", show_default=False),
]
Sinks = Annotated[
    list[str] | None,
    typer.Option("--sink", metavar="COLUMN", help="A column without effects; repeat for more.", show_default=False),
]
Samples = Annotated[
    int,
    typer.Option(
        min=0,
        help="Also write so many posterior graphs to samples.npz; vcuda sample can do it later.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="RUN",
        help="Go on with the fit in this folder that was killed or stopped; no other option is needed.",
        show_default=False,
    ),
]
DaskAddress = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Let a Dask cluster share the work: the address of its scheduler (tcp://host:8786), local for one "
        "process a core of this machine, or a number of local processes. The result is the same.",
        show_default=False,
    ),
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.html; vcuda report can do it later.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors and warnings.")]


@takes_fit_options(*OPTIONS)
def fit(
    context: typer.Context,
    table: OptionalTable = None,
    output: Output = Path(OUTPUT_FOLDER),
    config: ConfigFile = None,
    raw: Raw = False,
    require: Required = None,
    forbid: Forbidden = None,
    upstream: UpstreamOf = None,
    tier: Tiers = None,
    within_tiers: WithinTiers = True,
    root: Roots = None,
    sink: Sinks = None,
    samples: Samples = 0,
    resume: Resume = None,
    dask: DaskAddress = None,
    no_report: NoReport = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Learn from a table which variable causes which, and how sure that is.

    Writes edges.csv (source, target, probability), summary.json, config.json, posterior.npz and report.html, a page to
    show, into a folder.
    Ctrl-C saves what is learned so far. A fit that was killed after its first seconds goes on with --resume.
    """
    found = config_for(config, table, quiet=quiet) if resume is None else None
    if found is not None:
        table = found.table if table is None else table
        output = output if is_given(context, "output") or found.output is None else found.output
    if table is None and resume is None:
        raise ConfigError(
            "give a table to fit, or --resume and the folder of a fit that was stopped, or write a config with: vcuda "
            "init TABLE"
        )
    if table is not None:
        check_is_there(table)
    from vcuda.data.knowledge import Knowledge

    given = with_config(context, current_flags(given), {} if found is None else found.options)
    if is_given(context, "log") and raw:
        raise ConfigError("--log asks for the logarithm of a column and --raw for none; leave one of them out")
    if resume is not None:
        output, options = resume, stored_options(context, resume, table)
        known = Knowledge.from_dict(options["knowledge"] or {})
    else:
        assert table is not None
        known = knowledge_from_options(given["knowledge"], require, forbid, upstream, tier, within_tiers, root, sink)
        options = {
            **place_of(table),
            **given,
            "log": () if raw else given["log"],
            "knowledge": known.to_dict(),
            "samples": samples,
            "no_report": no_report,
        }

    workers = mapped = None
    if dask is not None:
        from vcuda.cluster import as_workers, connected
        from vcuda.infer.workers import mapped_by

        # It is closed when the command ends.
        workers = as_workers(context.with_resource(connected(dask)))
        mapped = mapped_by(workers)
    console = remarks()
    call = FitCall(**{name: options[name] for name in OPTIONS} | {"knowledge": known})
    from vcuda.fitting.names import check_header, check_table_names

    check_header(call, str(table or options["table"]))
    # Before the next imports, which take a second: a table that cannot be used is refused at once.
    with shown_progress(console, quiet=quiet, doing="Reading") as report:
        data = call.open(
            table or options["table"],
            on_progress=lambda step: report(Progress(step.share, 1, f"{step.rows:,} rows so far")),
            mapped=mapped,
        )
    check_table_names(call, data)
    from vcuda.fitting.fit import fit_table
    from vcuda.infer.checkpoint_files import Checkpoint
    from vcuda.posterior.locks import FolderLock
    from vcuda.posterior.storage import CHECKPOINT, check_folder

    run = check_folder(output)
    checkpoint = Checkpoint(
        run / CHECKPOINT,
        resume=resume is not None,
        notes=options,
        keep=True,
        on_warning=lambda sentence: say(console, sentence),
    )
    with StopOnRequest() as stop, FolderLock(run), warnings.catch_warnings():
        clear_drafts(run)
        # The status says the same, and is printed below.
        for category in (ConvergenceWarning, ModelCheckWarning):
            warnings.simplefilter("ignore", category)
        if not quiet:
            if resume is None and checkpoint.has_request:
                say(console, f"A fit in {run} has not ended; this one takes its place.")
                suggest(console, go_on_with(run), label="To go on with the other, stop now and use")
            say(console, f"Fitting {data.n:,} rows and {data.d:,} columns of {data.source}.")
        interrupts.leaves(lambda: stopped_in_words(checkpoint, run))
        with shown_progress(console, quiet=quiet) as report:
            call = replace(call, progress=stop.checked(report), checkpoint=checkpoint, client=workers)
            posterior = fit_table(data, call)
            report(Progress(1, 1, "writing the result"))
        try:
            graphs_file, page = run / "samples.npz", run / "report.html"
            with stop.saving():
                posterior.save(run)
                interrupts.leaves(lambda: saved_in_words(run))
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
    try:
        if as_json:
            show_json({**json.loads((run / "summary.json").read_text(encoding="utf-8")), "run": str(run)})
        elif not quiet:
            _report(posterior, run)
    except OutputError as error:
        raise OutputError(f"{error}; the result is saved in {run}") from error
    if posterior.status.code != "ok" and (quiet or as_json):
        say(console, f"vcuda: {posterior.status.sentence}")
    if stop.asked:
        say(console, f"vcuda: {saved_in_words(run)}")
    # A fit that ends at its own time limit did what was asked.
    if stop.asked or (posterior.status.code == "interrupted" and options["time_limit"] is None):
        raise typer.Exit(interrupts.EXIT_CODE)
    if posterior.status.code == "failed":
        raise typer.Exit(1)
    if posterior.checks().warnings:
        raise typer.Exit(EDGES_IN_DOUBT)


def _report(posterior: Posterior, run: Path) -> None:
    """The answer first: what was found, how sure it is, what could be wrong; then how it was made."""
    from vcuda.outputs.report.sentences import found_in_short, how_sure, perhaps_missing, verdict
    from vcuda.posterior.status import in_percent

    console = results()
    summary, provenance = posterior.summary(), posterior.provenance
    if provenance.target is not None:
        found = posterior.drivers()
        say(console, f"What drives {found.target}:", *(f"- {sentence}" for sentence in found.sentences), "")
    say(console, f"What was found: {found_in_short(posterior, posterior.consensus())}")
    edges = posterior.edges(minimum=SMALLEST_SHOWN_PROBABILITY).head(STRONGEST_EDGES)
    if not edges.empty:
        heads: dict[str, Literal["left", "right"]] = {"source": "left", "target": "left"}
        columns = [[shortened(name) for name in edges["source"]], [shortened(name) for name in edges["target"]]]
        if "lag" in edges:
            heads["lag"] = "right"
            columns.append([str(lag) for lag in edges["lag"]])
        columns.append([in_percent(probability) for probability in edges["probability"]])
        show_table(console, heads | {"probability": "right"}, zip(*columns, strict=True))
    say(console, f"How sure it is: {' '.join(how_sure(posterior))}", "")
    say(console, f"What could be wrong: {verdict(posterior)}.", *perhaps_missing(posterior))
    say(console, f"Status: {summary['status']}. {summary['status_sentence']}", "")
    size = f"{summary['rows']:,} rows and {summary['columns']:,} columns"
    say(
        console,
        f"How it was made: fitted {size} of {provenance['data']['source']} in {duration(summary['seconds'])}: "
        f"model {summary['model']}, {'' if summary['noise'] is None else 'noise ' + summary['noise'] + ', '}"
        f"engine {summary['engine']}, preset {provenance['preset']}, seed {summary['seed']}"
        f"{resumed_in_words(summary.get('resumed'))}.",
        *summary["choice"],
        *(f"Note: {note}" for note in summary["notes"] if note not in perhaps_missing(posterior)),
        "",
    )
    quoted = shlex.quote(str(run))
    if summary["status"] == "interrupted":
        suggest(console, go_on_with(run), label="To finish it")
    files = ["edges.csv (all edges)", "summary.json", "config.json", "posterior.npz"]
    files += [name for name in ("samples.npz", "report.html") if (run / name).exists()]
    say(console, f"Written to {run}: {', '.join(files)}.")
    if posterior.checks().findings:
        suggest(console, f"vcuda check {quoted}", label="What the model checks found")
    if provenance.target is None and len(posterior.names) > 1:
        suggest(console, f"vcuda drivers {quoted} COLUMN", label="What drives a column")
    suggest(console, f"vcuda effect {quoted} CAUSE OUTCOME", label="What setting a column does")
    suggest(console, f"vcuda.Posterior.load({str(run)!r})", label="In Python")
