"""Fits killed by SIGKILL at random moments and resumed: do they end in the posterior of a fit that was left alone?

Every case is a command line. It runs once to its end. Then it is begun again and again and killed, some runs several
times, at moments drawn from the seconds between its first line and its end; ``vcuda fit --resume`` goes on with it
until one is let through. All arrays of the run and what its config says of the result must be the same, to the last
bit. After each kill every file of the checkpoint must be whole. A run that was killed before its first checkpoint, or
when it had ended, does not count and is begun anew. Checkpoints come after ``--patience`` seconds, sooner than usual,
so that short fits will do.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import Line, Records, markdown

PROGRAM = (
    "import sys; import vcuda.infer.checkpoint_files as files; files.PATIENCE = float(sys.argv[1]); "
    "from vcuda.cli import main; main(sys.argv[2:])"
)
# Columns, rows, share of cells taken away, and options of vcuda fit.
CASES: dict[str, tuple[int, int, float, tuple[str, ...]]] = {
    "orders, linear": (24, 200, 0.0, ("--model", "linear", "--engine", "orders")),
    "orders, equal noise": (30, 200, 0.0, ("--model", "linear", "--noise", "equal", "--engine", "orders")),
    "orders, Gaussian process": (15, 80, 0.0, ("--model", "gp", "--engine", "orders")),
    "orders, model chosen": (14, 80, 0.0, ("--engine", "orders")),
    "variational": (16, 200, 0.0, ("--model", "linear", "--engine", "variational")),
    "straight-through": (6, 200, 0.0, ("--model", "mlp", "--engine", "straight-through")),
    "gaps": (8, 200, 0.03, ("--model", "linear", "--engine", "orders", "--imputations", "4")),
}
RUNS = 20
MOST_KILLS = 3
# Of the config: what tells of the result, and not of the time that it took.
RESULT = ("names", "law", "status")
PASSED = 0, 130


def write_table(path: Path, *, nodes: int, rows: int, gaps: float, seed: int) -> None:
    """A table of smooth functions of a sparse random graph, some cells of which may be missing."""
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.normal(size=(nodes, nodes)) * (rng.random((nodes, nodes)) < 3.0 / nodes), 1)
    values = np.zeros((rows, nodes))
    for node in range(nodes):
        drive = values @ weights[:, node]
        values[:, node] = 0.5 * drive + np.tanh(drive) + rng.normal(size=rows)
    missing = rng.random(values.shape) < gaps
    lines = [
        ",".join("" if gap else repr(float(value)) for value, gap in zip(row, gone, strict=True))
        for row, gone in zip(values, missing, strict=True)
    ]
    path.write_text("\n".join([",".join(f"X{k}" for k in range(nodes)), *lines]) + "\n", encoding="utf-8")


def begun(arguments: Sequence[str], patience: float) -> tuple[subprocess.Popen[str], float]:
    """Start a command and wait until it says that it fits, or ends; also the time of that moment."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(patience), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("Fitting "):
            break
    return process, time.perf_counter()


def ended(process: subprocess.Popen[str], since: float) -> float:
    """Wait for the end of a command; the seconds since it began to fit."""
    _, seen = process.communicate()
    if process.returncode not in PASSED:
        raise RuntimeError(f"a fit ended with {process.returncode}: {seen}")
    return time.perf_counter() - since


def killed(arguments: Sequence[str], patience: float, seconds: float) -> float | None:
    """Kill a command so many seconds after it began to fit; where it ended before, the seconds that it took."""
    process, since = begun(arguments, patience)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return None
    return ended(process, since)


def checkpoint_is_whole(run: Path) -> bool:
    """Whether all that a killed fit left under its proper name can be read."""
    from vcuda.infer.checkpoint_files import DAMAGED, Checkpoint, parts_in, read_part
    from vcuda.posterior import Posterior

    checkpoint = Checkpoint(run / "checkpoint")
    checkpoint.stored_request()
    try:
        # Not the drafts: a kill may leave one half-written, and nobody reads it.
        for part in parts_in(run / "checkpoint").values():
            read_part(part)
        if (run / "config.json").exists():
            Posterior.load(run)
    except DAMAGED:
        return False
    return True


def differences(one: Path, other: Path) -> list[str]:
    """Names of the arrays and of the parts of the config in which two runs differ by a bit."""
    with np.load(one / "posterior.npz") as left, np.load(other / "posterior.npz") as right:
        found = sorted(set(left.files) ^ set(right.files))
        for name in set(left.files) & set(right.files):
            a, b = left[name], right[name]
            if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
                found.append(name)
    configs = [json.loads((run / "config.json").read_text(encoding="utf-8")) for run in (one, other)]
    return found + [name for name in RESULT if configs[0][name] != configs[1][name]]


def measure(what: dict[str, Any], folder: Path, alone: Path, seconds: float, patience: float) -> dict[str, Any]:
    """Kill one run as often as its number says, let it end, and compare it with the one that was left alone."""
    rng = np.random.default_rng([what["run"], len(what["case"])])
    run = folder / f"killed-{what['run']}"
    begin, resume = [*command(what["case"], folder), "-o", str(run)], ["fit", "--resume", str(run)]
    moments: list[float] = []
    whole, begun_anew, kills = True, 0, 1 + what["run"] % MOST_KILLS
    while len(moments) < kills:
        moment = float(rng.uniform(0.05, 1.0) * seconds)
        took = killed(resume if is_kept(run) else begin, patience, moment)
        whole = whole and (took is not None or checkpoint_is_whole(run))
        if took is None and is_kept(run):
            moments.append(round(moment, 2))
        elif moments:
            break
        else:
            # Before the first checkpoint, or at its end already: there is nothing to resume.
            begun_anew += 1
            seconds = seconds if took is None else min(took, 0.9 * seconds)
            shutil.rmtree(run, ignore_errors=True)
    last = ended(*begun(resume, patience)) if is_kept(run) else 0.0
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    strays = sorted({path.name for path in run.iterdir()} ^ {path.name for path in alone.iterdir()})
    return {
        "killed_after": moments,
        "begun_anew": begun_anew,
        "resumed": summary.get("resumed", 0),
        "whole": whole,
        "differs": differences(alone, run),
        "left_behind": strays,
        "seconds_alone": round(seconds, 2),
        "seconds_last": round(last, 2),
    }


def is_kept(run: Path) -> bool:
    """Whether there is something to resume."""
    return (run / "checkpoint" / "request.json").exists()


def command(case: str, folder: Path) -> list[str]:
    return ["fit", str(folder / f"{case}.csv"), *CASES[case][3]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks kills", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs over all cases (default {RUNS})")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--patience", type=float, default=0.3, help="seconds before the first checkpoint (default 0.3)")
    parser.add_argument("--fresh", action="store_true", help="run again what is stored")
    parser.add_argument("--no-store", action="store_true", help="store nothing")
    options = parser.parse_args(arguments)
    records = Records("kills", fresh=options.fresh, keep=not options.no_store)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        left_alone: dict[str, tuple[Path, float]] = {}
        for number in range(options.runs):
            case = options.cases[number % len(options.cases)]
            what = {"case": case, "run": number, "patience": options.patience}
            line = records.find(what)
            if line is None:
                if case not in left_alone:
                    left_alone[case] = _left_alone(case, folder, options.patience)
                line = records.add(what, measure(what, folder, *left_alone[case], options.patience))
            lines.append(line)
            print(_told(line), file=sys.stderr, flush=True)
    header = ["case", "run", "killed after (s)", "resumed", "files whole", "equal", "alone (s)", "last leg (s)"]
    print(markdown(header, [_cells(line) for line in lines]))
    wrong = [line for line in lines if line["differs"] or line["left_behind"] or not line["whole"]]
    kills = sum(len(line["killed_after"]) for line in lines)
    print(f"\n{len(lines)} runs, {kills} kills, {len(lines) - len(wrong)} equal to the run that was left alone")
    return int(bool(wrong))


def _left_alone(case: str, folder: Path, patience: float) -> tuple[Path, float]:
    """The run of a case that nobody kills, and its seconds."""
    nodes, rows, gaps, _ = CASES[case]
    write_table(folder / f"{case}.csv", nodes=nodes, rows=rows, gaps=gaps, seed=len(case))
    alone = folder / f"alone, {case}"
    return alone, ended(*begun([*command(case, folder), "-o", str(alone)], patience))


def _told(line: Line) -> str:
    same = "equal" if not line["differs"] else f"differs in {', '.join(line['differs'])}"
    return f"{line['case']}, run {line['run']}: killed after {line['killed_after']}, {same}"


def _cells(line: Line) -> list[str]:
    moments = ", ".join(f"{moment:.1f}" for moment in line["killed_after"]) or "not in time"
    return [
        line["case"],
        str(line["run"]),
        moments,
        str(line["resumed"]),
        "yes" if line["whole"] else "no",
        "no" if line["differs"] or line["left_behind"] else "yes",
        f"{line['seconds_alone']:.1f}",
        f"{line['seconds_last']:.1f}",
    ]
