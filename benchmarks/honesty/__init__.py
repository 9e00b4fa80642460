"""What is stated of tables that break the model, and what is true: sure edges, effects, and whether the status warns.

Each table departs from the model in one way; controls do not. Every data set is run and reported. A run is one JSON
line, written as soon as it is done, so that the benchmark goes on where it was stopped; the tables are made of all
stored lines. The first set of every departure comes first, then the second ones and so on. ``--part 1/2`` and
``--part 2/2`` share the runs between two processes that can run at the same time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.honesty.cases import Case, grid
from benchmarks.honesty.known import section
from benchmarks.honesty.tables import page, tables
from benchmarks.processes import Runner, first_cases, left_to_run, part_of, part_option, selected
from benchmarks.records import Records

MEASURING = "benchmarks.honesty.measuring"
PAGE = Path(__file__).parents[2] / "docs" / "results-honesty.md"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks honesty", description=__doc__)
    parser.add_argument("--part", type=part_option, default=(1, 1), metavar="K/N", help="only part K of N of the sets")
    parser.add_argument("--only", metavar="TEXT", help="only runs whose words, as --list prints them, contain this")
    parser.add_argument("--limit", type=int, metavar="RUNS", help="measure at most so many runs now")
    parser.add_argument("--limit-minutes", type=float, default=float("inf"), help="begin no run after that")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored already (of these runs)")
    parser.add_argument("--retry", action="store_true", help="measure again what failed (of these runs)")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="sets side by side; 1 to time them")
    parser.add_argument("--results", type=Path, help="folder of the lines, if not the one of the repository")
    parser.add_argument("--table", action="store_true", help="only print the tables of what is stored")
    parser.add_argument("--list", action="store_true", help="only print the runs that the benchmark consists of")
    parser.add_argument("--write-docs", action="store_true", help=f"write {PAGE.name} from what is stored, no more")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * options.limit_minutes
    records = Records("honesty", folder=options.results)
    if options.write_docs:
        people = section(Records("known", folder=options.results).lines)
        PAGE.write_text("\n".join(filter(None, (page(records.lines), people))), encoding="utf-8")
        print(f"Wrote {PAGE}.")
        return 0
    groups = part_of(selected(grid(), options.only), options.part)
    if options.list:
        print(*(case.words() for group in groups for case in group), sep="\n")
        return 0
    done = True
    if not options.table:
        try:
            done = _run(groups, records, options, deadline)
        except KeyboardInterrupt:
            print("Stopped; the same command goes on with the runs that are left.", file=sys.stderr)
            return 130
    print(tables(records.lines))
    if not done:
        print("Runs are left; the same command goes on with them.", file=sys.stderr)
    return 0


def _run(groups: Sequence[Sequence[Case]], records: Records, options: argparse.Namespace, deadline: float) -> bool:
    missing = left_to_run(groups, records, fresh=options.fresh, retry=options.retry)
    now = first_cases(missing, options.limit)
    runner = Runner[Case](MEASURING, records, jobs=options.jobs, deadline=deadline, report=_report)
    return runner.run(now) and sum(map(len, now)) == sum(map(len, missing))


def _report(case: Case, line: dict[str, Any]) -> None:
    if "error" in line:
        shown = line["error"]
    else:
        shown = (
            f"{line['sure_true']} of {line['sure']} sure edges true, status {line['status']}, {line['seconds']:.1f} s"
        )
    print(f"{case.words()}: {shown}", file=sys.stderr, flush=True)
