"""Rows in time, rows from several environments, causes that are not in the table, and single rows.

Each suite is a module with its data sets, how one is measured, and the tables made of all stored lines. Every data set
is run and reported. A run is one JSON line, written as soon as it is done, so that the benchmark goes on where it was
stopped. Peers run in an interpreter of their own, given by ``--peers``; without it they are left out.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from time import monotonic

from benchmarks.records import Records

PAGE = Path(__file__).parents[2] / "docs" / "results-worlds.md"
# Each has `TITLE`, `cases()`, `measure(case, peers)` and `tables(lines)`.
SUITES = ("time", "contexts", "rows", "hidden")
OPENING = """# Worlds: time, environments, hidden causes and single rows

`python -m benchmarks worlds --write-docs` makes this page from the lines in `benchmarks/results/worlds-*.jsonl`, one a
run, with its commit and versions; do not edit it. All sets are reported.
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks worlds", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, action="append", help="only this suite; repeat for more")
    parser.add_argument("--limit-minutes", type=float, default=float("inf"), help="begin no run after that")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has the peers installed")
    parser.add_argument("--results", type=Path, help="folder of the lines, if not the one of the repository")
    parser.add_argument("--table", action="store_true", help="only print the tables of what is stored")
    parser.add_argument("--write-docs", action="store_true", help=f"write {PAGE.name} from what is stored, no more")
    options = parser.parse_args(arguments)
    deadline = monotonic() + 60 * options.limit_minutes
    parts = []
    for name in options.suite or SUITES:
        suite, records = import_module(f"benchmarks.worlds.{name}"), Records(f"worlds-{name}", folder=options.results)
        if not (options.table or options.write_docs):
            for case in suite.cases():
                if records.find(case) is None and monotonic() < deadline:
                    found = suite.measure(case, options.peers)
                    if found is not None:
                        records.add(case, found)
                        print(case, found, file=sys.stderr, flush=True)
        parts.append(f"## {suite.TITLE}\n\n{suite.tables(records.lines)}")
    text = "\n\n".join(parts)
    if options.write_docs:
        PAGE.write_text(f"{OPENING}\n{text}\n", encoding="utf-8")
        print(f"Wrote {PAGE}.")
    else:
        print(text)
    return 0
