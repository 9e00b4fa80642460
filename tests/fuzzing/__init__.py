"""Hostile tables, knowledge, runs and checkpoints: whatever comes in is accepted, or refused in one sentence.

Three ways to find what is not: cases grown from a grammar and bent, properties that Hypothesis searches (those of
tests/test_hostile.py, with more examples), and bytes that libFuzzer changes as coverage guides it (needs atheris). A
piece of work is a line of tests/fuzzing/results.jsonl, and one that is stored is not done again. What breaks is kept as
files, which ``--replay`` opens again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.records import Line, Records, markdown
from fuzzing.asking import Child
from fuzzing.cases import grown
from fuzzing.files import copied
from fuzzing.guided import guided
from fuzzing.properties import properties

HERE = Path(__file__).parent
PIECE = 250
# How many cases of each kind there are; by coverage and by property, so many inputs of all kinds together.
CASES = {"tables": 5000, "knowledge": 2500, "runs": 2500, "checkpoints": 1000}
GUIDED_PIECE, GUIDED = 2_000, 20_000
PROPERTY_PIECE, PROPERTY = 250, 1_000
ENDS = ("accepted", "refused", "broken")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("--kind", choices=[*CASES, "property", "guided"], help="by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="so much of the usual number of cases")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds that a case may compute")
    parser.add_argument("--memory", type=float, default=1.0, help="gigabytes that a case may take")
    parser.add_argument("--broken", type=Path, default=Path("broken-cases"), help="where broken cases are kept")
    parser.add_argument("--replay", type=Path, help="open one broken case again")
    parser.add_argument("--results", type=Path, help="folder of results.jsonl, if not this one")
    parser.add_argument("--table", action="store_true", help="only print the table of what is stored")
    options = parser.parse_args(arguments)
    if options.replay:
        return _replay(options)
    records = Records("results", folder=options.results or HERE)
    if not options.table:
        for what in pieces(options):
            if records.find(what) is None:
                line = records.add(what, measured(what, options))
                seen = ", ".join(f"{line[end]:,} {end}" for end in ("opened", *ENDS) if end in line)
                print(f"{what['kind']} from {what['first']:,}: {seen}", *line["faults"], sep="\n", flush=True)
    print(table(records.lines))
    return int(any(line["broken"] for line in records.lines))


def pieces(options: argparse.Namespace) -> list[dict[str, Any]]:
    """What there is to do, each in a line of its own."""
    sizes = {kind: (PIECE, count) for kind, count in CASES.items()}
    sizes |= {"property": (PROPERTY_PIECE, PROPERTY), "guided": (GUIDED_PIECE, GUIDED)}
    bounds = {"patience": options.patience, "memory": options.memory}
    return [
        {"kind": kind, "seed": options.seed, "first": first, "cases": size, **bounds}
        for kind, (size, count) in sizes.items()
        if options.kind in (None, kind)
        for first in range(0, max(size, round(options.share * count)), size)
    ]


def measured(what: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    if what["kind"] == "property":
        found = properties(what)
    elif what["kind"] == "guided":
        found = guided(what, options.broken)
    else:
        found = in_processes(what, options.broken)
    return found | {"seconds": time.monotonic() - began}


def in_processes(what: dict[str, Any], broken: Path) -> dict[str, Any]:
    """Open the cases of a piece one after the other."""
    ends: Counter[str] = Counter()
    faults: list[str] = []
    slowest = largest = 0.0
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as place:
        child = Child(Path(place), patience=what["patience"], memory=what["memory"], runs=what["kind"] == "runs")
        try:
            for number in range(what["first"], what["first"] + what["cases"]):
                case = {"kind": what["kind"], "seed": what["seed"], "number": number}
                files = Path(place) / "grown"
                shutil.rmtree(files, ignore_errors=True)
                made = grown(**case)
                made.write(files)
                answer = child.ask(case | {"files": str(files), "entry": made.entry})
                ends[answer["end"]] += 1
                slowest = max(slowest, answer.get("seconds", what["patience"]))
                largest = max(largest, answer.get("megabytes", 0.0))
                if answer["end"] == "broken":
                    faults.append(f"{number}: {answer['told']}")
                    _keep(broken, case, answer)
        finally:
            child.end()
    return {
        "opened": ends.total(),
        **{end: ends[end] for end in ENDS},
        "faults": faults,
        "slowest_seconds": slowest,
        "largest_mb": largest,
        "processes": child.begun,
    }


def table(lines: list[Line]) -> str:
    """All that is stored, by kind."""
    rows = []
    for kind in dict.fromkeys(line["kind"] for line in lines):
        own = [line for line in lines if line["kind"] == kind]
        slowest = max((line["slowest_seconds"] for line in own if "slowest_seconds" in line), default=None)
        largest = max((line["largest_mb"] for line in own if "largest_mb" in line), default=None)
        rows.append(
            (
                kind,
                f"{sum(line['opened'] for line in own):,}",
                *(f"{sum(line[end] for line in own):,}" if end in own[0] else "" for end in ENDS),
                "" if slowest is None else f"{slowest:.1f}",
                "" if largest is None else f"{largest:.0f}",
            )
        )
    return markdown(("kind", "cases", *ENDS, "slowest, s", "largest, MB"), rows)


def _replay(options: argparse.Namespace) -> int:
    what = json.loads((options.replay / "case.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as place:
        child = Child(Path(place), patience=options.patience, memory=options.memory, runs=what["kind"] == "runs")
        try:
            copied(options.replay / "files", Path(place) / "grown")
            answer = child.ask(what | {"files": str(Path(place) / "grown")})
        finally:
            child.end()
    print(answer)
    return int(answer["end"] == "broken")


def _keep(broken: Path, what: dict[str, Any], answer: dict[str, Any]) -> None:
    kept = broken / f"{what['kind']}-{what['seed']}-{what['number']}"
    shutil.rmtree(kept, ignore_errors=True)
    case = grown(what["kind"], what["seed"], what["number"])
    case.write(kept / "files")
    seen = what | {"entry": case.entry, "told": answer["told"]}
    (kept / "case.json").write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")
