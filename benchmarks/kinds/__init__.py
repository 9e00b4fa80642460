"""What the default makes of the tables that people have: several kinds of columns, noise of every shape, many columns.

Every data set of a suite is run and reported. A run is one JSON line, written as soon as it is done, so that a suite
goes on where it was stopped; the tables are made of all stored lines. ``--part 1/2`` and ``--part 2/2`` share the runs
between two processes that can run at the same time. DirectLiNGAM needs the extra ``peers``, here or in an environment
of its own (``--python``), and is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.kinds.cases import SUITES, Case
from benchmarks.kinds.tables import page, tables
from benchmarks.processes import Runner, first_cases, left_to_run, part_of, part_option, selected
from benchmarks.records import Records

MEASURING = "benchmarks.kinds.measuring"
PAGE = Path(__file__).parents[2] / "docs" / "results-kinds.md"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks kinds", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, help="by default all, one after the other")
    parser.add_argument(
        "--part", type=part_option, default=(1, 1), metavar="K/N", help="only part K of N parts of the runs"
    )
    parser.add_argument("--only", metavar="TEXT", help="only runs whose words, as --list prints them, contain this")
    parser.add_argument("--limit", type=int, metavar="RUNS", help="measure at most so many runs of each suite now")
    parser.add_argument("--limit-minutes", type=float, default=float("inf"), help="begin no run after that")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored already (of these runs)")
    parser.add_argument("--retry", action="store_true", help="measure again what failed (of these runs)")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="groups side by side; 1 to time them")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the extra `peers`")
    parser.add_argument("--results", type=Path, help="folder of the lines, if not the one of the repository")
    parser.add_argument("--table", action="store_true", help="only print the tables of what is stored")
    parser.add_argument("--list", action="store_true", help="only print the runs that the suite consists of")
    parser.add_argument("--write-docs", action="store_true", help=f"write {PAGE.name} from what is stored, no more")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * options.limit_minutes
    names = [options.suite] if options.suite else list(SUITES)
    if options.write_docs:
        stored = {name: Records(f"kinds-{name}", folder=options.results).lines for name in SUITES}
        PAGE.write_text(page(stored), encoding="utf-8")
        print(f"Wrote {PAGE}.")
        return 0
    done = True
    for name in names:
        groups = part_of(selected(SUITES[name](), options.only), options.part)
        if options.list:
            print(*(case.words() for group in groups for case in group), sep="\n")
            continue
        records = Records(f"kinds-{name}", folder=options.results)
        if not options.table:
            try:
                done &= _run(groups, records, options, deadline)
            except KeyboardInterrupt:
                print("Stopped; the same command goes on with the runs that are left.", file=sys.stderr)
                return 130
        print(f"## Suite `{name}`\n\n{tables(name, records.lines)}\n")
    if not done:
        print("Runs are left; the same command goes on with them.", file=sys.stderr)
    return 0


def _run(groups: Sequence[Sequence[Case]], records: Records, options: argparse.Namespace, deadline: float) -> bool:
    missing = left_to_run(groups, records, fresh=options.fresh, retry=options.retry)
    if any(case.method == "lingam" for group in missing for case in group) and not _has_lingam(options.python):
        print("DirectLiNGAM is left out: the package lingam is not installed (extra `peers`).", file=sys.stderr)
        missing = [[case for case in group if case.method != "lingam"] for group in missing]
    now = first_cases(missing, options.limit)
    runner = Runner[Case](
        MEASURING, records, sent={"python": options.python}, jobs=options.jobs, deadline=deadline, report=_report
    )
    return runner.run(now) and sum(map(len, now)) == sum(map(len, missing))


def _has_lingam(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", "import lingam"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _report(case: Case, line: dict[str, Any]) -> None:
    shown = [f"AP {line['ap']:.3f}, {line['sure_true']} of {line['sure']} sure edges true"] if "ap" in line else []
    shown += [f"{line['seconds']:.1f} s"] if "seconds" in line else []
    print(case.words() + ":", line.get("error") or ", ".join(shown), file=sys.stderr, flush=True)
