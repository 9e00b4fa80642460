"""How good the posteriors are: every engine and score on data whose graph is known.

Every data set of a suite is run and reported. A run is one JSON line, written as soon as it is done, so that a suite
goes on where it was stopped; the tables are made of all stored lines of the suite.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.lines import told_difference
from benchmarks.accuracy.suites import SUITES
from benchmarks.accuracy.tables import tables
from benchmarks.processes import Runner, selected
from benchmarks.records import Records

MEASURING = "benchmarks.accuracy.measuring"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks accuracy", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, help="by default all, one after the other")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored already (of --only)")
    parser.add_argument("--only", metavar="TEXT", help="only runs whose words, as --list prints them, contain this")
    parser.add_argument("--limit-minutes", type=float, default=float("inf"), help="begin no run after that")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="groups side by side; 1 to time them")
    parser.add_argument("--results", type=Path, help="folder of the lines, if not the one of the repository")
    parser.add_argument("--table", action="store_true", help="only print the tables of what is stored")
    parser.add_argument("--list", action="store_true", help="only print the runs that the suite consists of")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * options.limit_minutes
    done = True
    for name in [options.suite] if options.suite else SUITES:
        groups = selected(SUITES[name](), options.only)
        if options.list:
            print(*(case.words() for group in groups for case in group), sep="\n")
            continue
        records = Records(f"accuracy-{name}", folder=options.results)
        if not options.table:
            if options.fresh:
                records.forget(case.what() for group in groups for case in group)
            try:
                runner = Runner(
                    MEASURING, records, jobs=options.jobs, deadline=deadline, report=_report, extend=told_difference
                )
                done &= runner.run(groups)
            except KeyboardInterrupt:
                print("Stopped; the same command goes on with the runs that are left.", file=sys.stderr)
                return 130
        print(f"## Suite `{name}`\n\n{tables(name, records.lines)}\n")
    if not done:
        print("The time is over; the same command goes on with the runs that are left.", file=sys.stderr)
    return 0


def _report(case: Case, line: dict[str, Any]) -> None:
    shown = [f"AP {line['ap']:.3f}"] if "ap" in line else []
    shown += [f"{line['seconds']:.1f} s"] if "seconds" in line else []
    shown += [f"{line['peak_mb']:.0f} MB"] if "peak_mb" in line else []
    print(case.words() + ":", line.get("error") or ", ".join(shown), file=sys.stderr, flush=True)
