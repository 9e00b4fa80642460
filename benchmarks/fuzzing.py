"""Hostile tables, knowledge files and run folders: whatever comes in is accepted, or refused in one sentence.

Cases come from ``hostile_cases``. A process with a bound on its memory opens them one after the other; it is ended when
a case takes too long, and begun again when it dies. A case breaks when anything but a VcudaError comes out, when time
or memory run out, when a sentence is not short, or when something is written, run or opened that is none of its
business. Broken cases are kept as files, so that ``--replay`` opens them again.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from threading import Event, Thread
from typing import Any

from benchmarks.hostile_cases import KNOWN, Case
from benchmarks.processes import ROOT, SINGLE_THREADED

# How many of a hundred cases are of each kind when all are asked for.
SHARES = {"tables": 50, "knowledge": 20, "runs": 30}
LONGEST_SENTENCE = 2000
# What a process may do to files, and what it may never do while it reads those of others.
WRITES = {
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.truncate",
    "os.chmod",
    "os.utime",
}
RUNS_CODE = {
    "pickle.find_class",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "socket.connect",
    "marshal.loads",
}


class Watch:
    """What a process opens, writes and runs while a case is open, by Python's audit events."""

    def __init__(self) -> None:
        self.home: Path | None = None
        self.may_read: tuple[str, ...] = ()
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.home is None:
            return
        if event in RUNS_CODE and event != "marshal.loads":
            self.seen.append(f"{event} {arguments[:1]!r}"[:200])
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            writing = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if not path.startswith(str(self.home)) and (writing or not path.startswith(self.may_read)):
                self.seen.append(f"opened {path}"[:200])
        elif event in WRITES and isinstance(arguments[0], str | bytes):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if not path.startswith(str(self.home)):
                self.seen.append(f"{event} {path}"[:200])

    @contextmanager
    def over(self, home: Path) -> Iterator[list[str]]:
        """The list that fills with what happens outside ``home`` in the meantime."""
        self.seen, self.home = [], home
        try:
            yield self.seen
        finally:
            self.home = None


def snapshot(folder: Path) -> dict[str, Any]:
    """Everything in a folder: its kind, size and time of change."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            told = os.lstat(os.path.join(parent, name))
            found[os.path.relpath(os.path.join(parent, name), folder)] = (told.st_mode, told.st_size, told.st_mtime_ns)
    return found


# What is done with a case -----------------------------------------------------------------------------------


def open_table(path: Path, outputs: Path) -> None:
    import vcuda

    failed = None
    for missing in ("refuse", "keep"):
        try:
            data = vcuda.as_dataset(path, missing=missing)
            repr(data), data.fingerprint, data.to_frame()
        except vcuda.errors.VcudaError as error:
            failed = error
        else:
            failed = None
    try:
        vcuda.as_dataset(path, interventions="v1", missing="keep")
    except vcuda.errors.VcudaError as error:
        check_sentence(str(error))
    code, said = command("check", str(path))
    if code != (0 if failed is None else 2):
        raise AssertionError(f"vcuda check ended with {code}: {said[-500:]}")
    if failed is not None:
        raise failed


def open_knowledge(path: Path, outputs: Path) -> None:
    from vcuda.data.knowledge import Knowledge, as_knowledge

    known = as_knowledge(path)
    known.sentence()
    again = Knowledge.from_dict(json.loads(json.dumps(known.to_dict())))
    assert again == known
    known.for_columns(KNOWN, edge_probability=0.1)


def open_run(path: Path, outputs: Path) -> None:
    import numpy as np

    import vcuda

    posterior = vcuda.Posterior.load(path)
    edges = posterior.edges()
    assert np.isfinite(edges["probability"]).all(), "an edge has no probability"
    assert posterior.sample(5).all_acyclic(), "a drawn graph has a cycle"
    repr(posterior)
    json.dumps(posterior.summary())
    posterior.report(outputs / "report.html", curves=1)
    posterior.save(outputs / "again")
    code, said = command("edges", str(path), "--most", "3")
    if code != 0:
        raise AssertionError(f"vcuda edges ended with {code}: {said[-500:]}")


TARGETS = {"tables": open_table, "knowledge": open_knowledge, "runs": open_run}


def command(*words: str) -> tuple[int, str]:
    """The exit code of a command line in this process, and what it said."""
    from vcuda.cli import main

    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main(words)
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()


def check_sentence(told: str) -> None:
    assert 10 < len(told) < LONGEST_SENTENCE, f"a message of {len(told)} characters: {told[:300]!r}"


def opened(kind: str, entry: Path, around: Path, watch: Watch) -> dict[str, Any]:
    """What became of a case: accepted, refused with a sentence, or broken."""
    import vcuda

    outputs = around / "outputs"
    outputs.mkdir(exist_ok=True)
    before = snapshot(around)
    result: dict[str, Any]
    with watch.over(around) as seen, warnings.catch_warnings():
        warnings.simplefilter("ignore", vcuda.errors.ConvergenceWarning)
        try:
            TARGETS[kind](entry, outputs)
            result = {"end": "accepted"}
        except vcuda.errors.VcudaError as error:
            result = {"end": "refused", "told": str(error)[:400]}
            try:
                check_sentence(str(error))
            except AssertionError as fault:
                result = {"end": "broken", "told": str(fault)}
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)
            place = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(where[-4:]))
            result = {"end": "broken", "told": f"{type(error).__name__}: {str(error)[:300]} at {place}"}
    if seen:
        result = {"end": "broken", "told": f"{seen[0]} ({result})"[:600]}
    shutil.rmtree(outputs, ignore_errors=True)
    outputs.mkdir()
    after = snapshot(around)
    changed = [name for name in before | after if name != "outputs" and before.get(name) != after.get(name)]
    if changed:
        result = {"end": "broken", "told": f"{changed[0]} was changed or made ({result})"[:600]}
    return result


_watch: Watch | None = None


def measure_line(what: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Open one case, in the process that serves many; the first call sets the bound on memory."""
    global _watch
    if _watch is None:
        _watch = _prepared(what["memory"], runs=what["runs"])
    around = folder / "around"
    shutil.rmtree(around, ignore_errors=True)
    around.mkdir()
    os.chdir(around)
    runs = ROOT / "tests" / "fixtures" / "run-format-1" / "exact-linear"
    shutil.copy(runs / "posterior.npz", around / "around.npz")
    shutil.copy(runs / "config.json", around / "around.json")
    if "replay" in what:
        shutil.copytree(what["replay"], around / "case", symlinks=True)
        entry = around / "case" / what["entry"]
    else:
        entry = Case(what["kind"], what["seed"], what["number"]).write(around / "case")
    return opened(what["kind"], entry, around, _watch)


def _prepared(memory: float, *, runs: bool) -> Watch:
    """Import what cases need, then bound the memory that may be taken beyond that."""
    import vcuda
    import vcuda.cli
    import vcuda.outputs.report
    import vcuda.posterior.storage

    # What is compiled or imported once is no memory of a case.
    for run in sorted((ROOT / "tests" / "fixtures" / "run-format-1").iterdir()) if runs else ():
        posterior = vcuda.Posterior.load(run)
        with tempfile.TemporaryDirectory() as place:
            posterior.report(Path(place) / "report.html", curves=1)
    command("check", "sachs")
    vcuda.as_dataset(ROOT / "src" / "vcuda" / "data" / "tables" / "sachs.csv")
    with open("/proc/self/statm", encoding="ascii") as told:
        used = int(told.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(memory * 1e9), resource.RLIM_INFINITY))
    watch = Watch()
    watch.may_read = tuple({sys.prefix, sys.base_prefix, str(ROOT), "/proc/", "/sys/", "/usr/", "/dev/null"})
    return watch


# The process that asks --------------------------------------------------------------------------------------


class _Patience(Thread):
    """Ends a process that has computed for so many seconds, or waited for thirty times as many.

    Not by the clock alone: on a machine that is busy with something else, a case waits longer than it computes.
    """

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        super().__init__(daemon=True)
        self.process, self.seconds = process, seconds
        self.over, self.late = Event(), False

    def run(self) -> None:
        began, used = time.monotonic(), self._computed()
        while not self.over.wait(0.5):
            if self._computed() - used > self.seconds or time.monotonic() - began > 30 * self.seconds:
                self.late = True
                self.process.kill()
                return

    def _computed(self) -> float:
        try:
            told = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


class Child:
    """The process that opens cases, begun when it is needed."""

    def __init__(self, folder: Path, *, patience: float, memory: float, runs: bool) -> None:
        self.folder, self.patience = folder, patience
        self._sent = {"memory": memory, "runs": runs}
        self._process: subprocess.Popen[str] | None = None
        self.begun = 0

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        fresh = self._process is None
        process = self._process or self._begin()
        assert process.stdin is not None
        assert process.stdout is not None
        # A process that has just begun imports and compiles before its first case.
        watch = _Patience(process, self.patience + (300 if fresh else 0))
        watch.start()
        try:
            process.stdin.write(json.dumps(what | self._sent) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.over.set()
        if line.endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer if "end" in answer else {"end": "broken", "told": answer["error"]}
        code = process.wait()
        self._process = None
        told = f"no answer in {self.patience:.0f} seconds" if watch.late else f"the process died with code {code}"
        return {"end": "broken", "told": told}

    def _begin(self) -> subprocess.Popen[str]:
        self.begun += 1
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", "benchmarks.fuzzing", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=os.environ
            | SINGLE_THREADED
            | {"VCUDA_CACHE": "off", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        )
        return self._process

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def cases(count: int, seed: int, kind: str | None) -> Iterator[dict[str, Any]]:
    """What is asked of the process, case by case; the kinds take turns."""
    for number in range(count):
        place, chosen = number * 37 % 100, kind
        for name, share in SHARES.items():
            if chosen is None and place < share:
                chosen = name
            place -= share
        yield {"kind": chosen, "seed": seed, "number": number}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks fuzzing", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=sorted(SHARES))
    parser.add_argument("--start", type=int, default=0, help="leave out the cases before this one")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds for one case")
    parser.add_argument("--memory", type=float, default=1.0, help="gigabytes that a case may take")
    parser.add_argument("--broken", type=Path, default=Path("broken-cases"), help="where broken cases are kept")
    parser.add_argument("--replay", type=Path, help="open one broken case again")
    options = parser.parse_args(arguments)
    ends: dict[str, Counter[str]] = {kind: Counter() for kind in SHARES}
    faults: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as place:
        child = Child(
            Path(place), patience=options.patience, memory=options.memory, runs=options.kind in (None, "runs")
        )
        try:
            if options.replay:
                what = json.loads((options.replay / "case.json").read_text(encoding="utf-8"))
                print(child.ask(what | {"replay": str((options.replay / "files").resolve())}))
                return 0
            for what in cases(options.cases, options.seed, options.kind):
                if what["number"] < options.start:
                    continue
                answer = child.ask(what)
                if what["number"] % 500 == 499:
                    print(f"{what['number'] + 1:,} cases", flush=True)
                ends[what["kind"]][answer["end"]] += 1
                if answer["end"] == "broken":
                    faults[answer["told"].split(" at ")[-1][:150]] += 1
                    print(f"{what['kind']} {what['number']}: {answer['told']}", flush=True)
                    _keep(options.broken, what, answer, Path(place) / "around" / "case")
        finally:
            child.end()
    for kind, counts in ends.items():
        if counts:
            words = ", ".join(f"{counts[end]:,} {end}" for end in ("accepted", "refused", "broken"))
            print(f"{kind}: {sum(counts.values()):,} cases, {words}")
    for fault, number in faults.most_common():
        print(f"{number:>6}  {fault}")
    print(f"processes begun: {child.begun}")
    return int(any(counts["broken"] for counts in ends.values()))


def _keep(broken: Path, what: dict[str, Any], answer: dict[str, Any], files: Path) -> None:
    kept = broken / f"{what['kind']}-{what['seed']}-{what['number']}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    case = Case(what["kind"], what["seed"], what["number"])
    case.write(kept / "files")
    told = what | {"entry": case.entry, "told": answer["told"]}
    (kept / "case.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
