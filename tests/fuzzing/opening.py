"""The process that opens cases: what it does with each, and what it must not do meanwhile.

A case breaks when anything but a VcudaError comes out, when a sentence is not short, or when something is written, run
or opened that is none of its business. Time is kept by the process that asks, memory by a limit of this one.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT
from fuzzing import checkpoints
from fuzzing.files import copied
from fuzzing.knowledge import KNOWN
from fuzzing.runs import RUNS
from vcuda.posterior import Posterior

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
# Of these, what is done to a link itself and not to what it leads to.
OF_THE_NAME = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link"}
RUNS_CODE = {
    "pickle.find_class",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "socket.connect",
    "socket.getaddrinfo",
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
        if event in RUNS_CODE:
            self.seen.append(f"{event} {arguments[:1]!r}"[:200])
        elif event == "open":
            writing = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            self._note("opened", arguments[:1], () if writing else self.may_read)
        elif event in WRITES:
            self._note(event, arguments[:2], ())

    def _note(self, what: str, paths: tuple[Any, ...], allowed: tuple[str, ...]) -> None:
        for given in paths:
            if isinstance(given, str | bytes):
                path = os.path.realpath(os.fsdecode(given))  # where a link leads
                if what in OF_THE_NAME:
                    folder, name = os.path.split(os.path.abspath(os.fsdecode(given)))
                    path = os.path.join(os.path.realpath(folder), name)
                if not path.startswith((str(self.home), *allowed)):
                    self.seen.append(f"{what} {path}"[:200])

    @contextmanager
    def over(self, home: Path) -> Iterator[list[str]]:
        """The list that fills with what happens outside ``home`` in the meantime."""
        self.seen, self.home = [], home.resolve()
        try:
            yield self.seen
        finally:
            self.home = None


def snapshot(folder: Path) -> dict[str, Any]:
    """Everything in a folder: its kind, size and time of change."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            reports = os.lstat(os.path.join(parent, name))
            found[os.path.relpath(os.path.join(parent, name), folder)] = (
                reports.st_mode,
                reports.st_size,
                reports.st_mtime_ns,
            )
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
    for read in (lambda: vcuda.as_dataset(path, interventions="v1", missing="keep"), lambda: read_in_blocks(path)):
        try:
            read()
        except vcuda.errors.VcudaError as error:
            check_sentence(str(error))
    code, said = command("check", str(path))
    if code != (0 if failed is None else 2):
        raise AssertionError(f"vcuda check ended with {code}: {said[-500:]}")
    if failed is not None:
        raise failed


def read_in_blocks(path: Path) -> None:
    from vcuda.data.streaming.streams import open_stream

    for _ in open_stream(path).blocks():
        pass


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
    ask_everything(posterior)
    code, said = command("edges", str(path), "--most", "3")
    if code != 0:
        raise AssertionError(f"vcuda edges ended with {code}: {said[-500:]}")


def ask_everything(posterior: Posterior) -> None:
    """Whatever can be asked of a run that was accepted; an answer may be a refusal."""
    import pandas as pd

    from vcuda.errors import VcudaError

    first, last = posterior.names[0], posterior.names[-1]
    for question in (
        lambda: posterior.map(draws=20),
        lambda: posterior.cpdag(draws=20),
        lambda: posterior.ancestors(draws=20),
        lambda: posterior.paths(first, last, draws=20),
        lambda: posterior.blanket(first, draws=20),
        lambda: posterior.effect(first, last, draws=5),
        lambda: posterior.next_experiment(draws=20),
        lambda: posterior.compare(posterior),
        lambda: posterior.predict(pd.DataFrame(dict.fromkeys(posterior.names, range(6))), graphs=3),
    ):
        try:
            question()
        except VcudaError as error:
            check_sentence(str(error))


def open_checkpoint(path: Path, outputs: Path) -> None:
    """Resumed in copies, by the journal alone and by the command, since what is damaged is deleted."""
    from vcuda.infer.checkpoint_files import Checkpoint, CheckpointFiles

    code, said = command("fit", "--resume", str(outputs / "run"), "--quiet")
    if code not in (0, 2) or "Traceback" in said:
        raise AssertionError(f"vcuda fit --resume ended with {code}: {said[-500:]}")
    check_sentence(said or "it was resumed")
    if (outputs / "again" / checkpoints.FOLDER).is_symlink():
        return  # whoever names a link in Python means where it leads
    request = {"arguments": checkpoints.ARGUMENTS, "versions": checkpoints.VERSIONS}
    kept = Checkpoint(outputs / "again" / checkpoints.FOLDER, resume=True)
    for _ in range(2):
        checkpointer = CheckpointFiles(kept, request)
        for name in checkpoints.NAMES:
            checkpointer.recall(name, checkpoints.GIVEN)
        memory = checkpointer.sets(checkpoints.GIVEN)
        assert memory is not None
        memory.recall((0, 1))
        checkpointer.write()


TARGETS = {"tables": open_table, "knowledge": open_knowledge, "runs": open_run, "checkpoints": open_checkpoint}


def command(*words: str) -> tuple[int, str]:
    """The exit code of a command line in this process, and what it said."""
    from vcuda.cli import main

    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main(words)
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()


def check_sentence(reports: str) -> None:
    assert 10 < len(reports) < LONGEST_SENTENCE, f"a message of {len(reports)} characters: {reports[:300]!r}"


def opened(kind: str, entry: Path, around: Path, watch: Watch) -> dict[str, Any]:
    """What became of a case: accepted, refused with a sentence, or broken."""
    import vcuda

    outputs = around / "outputs"
    outputs.mkdir(exist_ok=True)
    before = snapshot(around)
    for name in ("run", "again") if kind == "checkpoints" else ():
        copied(entry, outputs / name)
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
_baseline = 0


def measure_line(what: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Open one case, in the process that serves many; the first call sets the bound on memory."""
    global _watch, _baseline
    if _watch is None:
        _watch = _prepared(what["memory"], runs=what["runs"])
        _baseline = resident_peak()
    around = folder / "around"
    shutil.rmtree(around, ignore_errors=True)
    around.mkdir()
    os.chdir(around)
    # What links of a case lead to.
    shutil.copy(RUNS / "exact-linear" / "posterior.npz", around / "around.npz")
    shutil.copy(RUNS / "exact-linear" / "config.json", around / "around.json")
    # Made by whoever asks: what making it takes is no memory of opening it.
    os.rename(what["files"], around / "case")
    entry = around / "case" / what["entry"]
    began = time.process_time()
    result = opened(what["kind"], entry, around, _watch)
    return result | {"seconds": time.process_time() - began, "megabytes": (resident_peak() - _baseline) / 1e6}


def resident_peak() -> int:
    """The most memory that this process has held so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _prepared(memory: float, *, runs: bool) -> Watch:
    """Import what cases need, then bound the memory that may be taken beyond that."""
    import vcuda
    import vcuda.cli
    import vcuda.outputs.report
    import vcuda.posterior.storage

    # What is compiled or imported once is no memory of a case.
    for run in sorted(RUNS.iterdir()) if runs else ():
        posterior = vcuda.Posterior.load(run)
        with tempfile.TemporaryDirectory() as place:
            posterior.report(Path(place) / "report.html", curves=1)
    command("check", "sachs")
    vcuda.cli.ADDRESS_SPACE = 0  # the libraries are loaded: what the bound leaves is for the case
    read_in_blocks(ROOT / "src" / "vcuda" / "data" / "tables" / "sachs.csv")
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(memory * 1e9), resource.RLIM_INFINITY))
    return watched()


def watched() -> Watch:
    """A watch that lets what is installed and what the system tells be read."""
    watch = Watch()
    installed = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, ROOT)}
    watch.may_read = (*installed, "/proc/", "/sys/", "/usr/", "/dev/null")
    return watch
