"""The paper's experiments, every method on the same data sets with the same measures.

What is run stands in ``benchmarks/paper/grid.toml``. A run is one JSON line, written as soon as it is done, so that the
same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.paper.document import DOCS, write
from benchmarks.paper.figures import draw_all
from benchmarks.paper.findings import all_findings
from benchmarks.paper.lines import Results
from benchmarks.paper.plan import GRID, Plan, load
from benchmarks.paper.runs import Run
from benchmarks.paper.tables import all_tables
from benchmarks.processes import Runner, selected
from benchmarks.records import Records
from vcuda.cluster import DaskWorkers, connected
from vcuda.errors import VcudaError

MEASURING = "benchmarks.paper.measuring"
# By the clock a run may take so many times its limit, which is of the processor: others may use the machine as well.
CLOCK_TIMES = 3.0
# A run is ended from outside when it is so far over that: a step that cannot be divided, or predictions.
GRACE_SECONDS = 600.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks paper", description=__doc__)
    parser.add_argument("--grid", type=Path, default=GRID, help="another file that says what is run")
    parser.add_argument("--quick", action="store_true", help="the small grid that ends in ten minutes, stored apart")
    parser.add_argument("--jobs", type=int, default=1, help="groups side by side, each on its share of the cores")
    parser.add_argument("--dask", metavar="ADDRESS", help="groups on a cluster: tcp://host:8786, local, or a number")
    parser.add_argument("--only", metavar="TEXT", help="only runs whose words, as --list prints them, contain this")
    parser.add_argument("--limit-minutes", type=float, default=float("inf"), help="begin no run after that")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored already (of --only)")
    parser.add_argument("--results", type=Path, help="folder of the lines, if not the one of the repository")
    parser.add_argument("--data", type=Path, help="folder in which nonlinear data sets are kept between commands")
    parser.add_argument("--list", action="store_true", help="only print the runs, and how many are stored")
    parser.add_argument("--tables", action="store_true", help="run nothing; print tables of what is stored")
    parser.add_argument("--findings", action="store_true", help="run nothing; print in sentences what is stored")
    parser.add_argument("--figures", action="store_true", help="run nothing; draw what is stored, as PNG and PDF")
    parser.add_argument("--write-docs", action="store_true", help="run nothing; make results.md and its figures anew")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of results.md, with figures below it")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, not {options.jobs}")
    if options.quick and options.write_docs:
        parser.error("--write-docs is for the whole grid; --quick has one set of each kind")
    try:
        plan = load(options.grid, quick=options.quick)
        records = Records("paper-quick" if options.quick else "paper", folder=options.results)
        if options.tables or options.findings or options.figures or options.write_docs:
            return _show(Results(plan, records), options)
    except VcudaError as error:
        print(error, file=sys.stderr)
        return 2
    groups = selected(plan.groups, options.only)
    if options.list:
        print(*(run.words() for group in groups for run in group), sep="\n")
        print(_counted(groups, records), file=sys.stderr)
        return 0
    return _run(plan, groups, records, options)


def _show(results: Results, options: argparse.Namespace) -> int:
    if options.tables:
        print(all_tables(results))
    if options.findings:
        print(all_findings(results))
    if options.figures and not options.write_docs:
        drawn = draw_all(results, options.docs / "figures")
        print(f"Drawn in {options.docs / 'figures'}: {len(drawn)} files.", file=sys.stderr)
    if options.write_docs:
        print(f"Written: {write(results, options.docs)}", file=sys.stderr)
    return 0


def _run(plan: Plan, groups: list[list[Run]], records: Records, options: argparse.Namespace) -> int:
    if options.fresh:
        records.forget(run.what() for group in groups for run in group)
    minutes = min(options.limit_minutes, plan.end_minutes or float("inf"))
    limit = 60 * plan.limit_minutes
    # The small grid promises when it ends, and so goes by the clock.
    clock = limit if options.quick else CLOCK_TIMES * limit
    runner = Runner[Run](
        MEASURING,
        records,
        sent={"processor_limit": limit, "clock_limit": clock},
        jobs=options.jobs,
        deadline=time.monotonic() + 60 * minutes,
        report=_report,
        patience=1.5 * clock if options.quick else clock + GRACE_SECONDS,
        data=options.data,
    )
    try:
        if options.dask is None:
            done = runner.run(groups)
        else:
            with connected(options.dask) as client:
                done = runner.run(groups, workers=DaskWorkers(client))
    except VcudaError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped; the same command goes on with the runs that are left.", file=sys.stderr)
        return 130
    print(_counted(groups, records), file=sys.stderr)
    if not done:
        print("The time is over; the same command goes on with the runs that are left.", file=sys.stderr)
    return 0


def _counted(groups: list[list[Run]], records: Records) -> str:
    """How much is planned, stored and failed, and the hours that the stored runs took."""
    runs = [run for group in groups for run in group]
    lines = [line for line in (records.find(run.what()) for run in runs) if line is not None]
    statuses = Counter("error" if "error" in line else line["status"] for line in lines)
    hours = sum(line.get("seconds", 0.0) + line.get("seconds_predicting", 0.0) for line in lines) / 3600
    seen = ", ".join(f"{code} {count}" for code, count in sorted(statuses.items()))
    return f"{len(runs)} runs, {len(lines)} of them stored ({seen or 'none'}), {hours:.2f} hours of measuring."


def _report(run: Run, line: dict[str, Any]) -> None:
    numbers = {"auc": "AUC {:.3f}", "ap": "AP {:.3f}", "seconds": "{:.1f} s", "peak_mb": "{:.0f} MB"}
    shown = [form.format(line[key]) for key, form in numbers.items() if key in line]
    seen = line.get("error") or ", ".join([*shown, line["status"]])
    print(f"{time.strftime('%H:%M:%S')} {run.words()}: {seen}", file=sys.stderr, flush=True)
