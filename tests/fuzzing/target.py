"""The process that libFuzzer is in: each input becomes a file or a run folder, and is opened.

The first byte of an input says what it is: a table, a file of knowledge, drawn graphs, or a part of a sound run, of
which it replaces the config or one array. So checksums of archives do not keep the changes from what reads them. It is
run as a program: what is imported before atheris is at work cannot guide it.
"""

from __future__ import annotations

import io
import os
import resource
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path

FORMS = (
    "t.csv", "t.tsv", "t.csv.gz", "t.feather", "t.parquet", "k.toml", "k.csv", "g.npz", "config.json", "posterior.npz"
)  # fmt: skip
INSTRUMENTED = ["vcuda.data", "vcuda.posterior", "vcuda.graphs", "tomllib", "zipfile", "json.decoder"]


def serve(memory: float, arguments: list[str]) -> None:
    atheris = import_module("atheris")

    with atheris.instrument_imports(include=INSTRUMENTED):
        import vcuda
        import vcuda.data.knowledge
        import vcuda.data.reading
        import vcuda.data.streaming.streams
        import vcuda.posterior.samples
        import vcuda.posterior.storage
    from fuzzing.opening import check_sentence, watched
    from fuzzing.runs import RUNS

    runs = sorted(RUNS.iterdir())
    for run in runs:  # what is imported once is no memory of an input
        vcuda.Posterior.load(run)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(memory * 1e9), resource.RLIM_INFINITY))
    home = Path(tempfile.mkdtemp(prefix="fuzzing-"))
    watch = watched()

    def one(content: bytes) -> None:
        if len(content) < 4:
            return
        entry = _written(home, content, runs)
        before = sorted(os.listdir(home))
        with watch.over(home) as seen:
            try:
                _open(entry)
            except vcuda.errors.VcudaError as error:
                check_sentence(str(error))
        if seen or sorted(os.listdir(home)) != before:
            raise AssertionError(f"{seen} {sorted(os.listdir(home))}")

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


def _written(home: Path, content: bytes, runs: list[Path]) -> Path:
    """The input as a file or a run folder, in place of the one before."""
    shutil.rmtree(home)
    home.mkdir()
    form = FORMS[content[0] % len(FORMS)]
    if form not in ("config.json", "posterior.npz"):
        (home / form).write_bytes(content[1:])
        return home / form
    run = runs[content[1] % len(runs)]
    for name in ("config.json", "posterior.npz"):
        shutil.copy(run / name, home / name)
    if form == "config.json":
        (home / form).write_bytes(content[2:])
    else:
        (home / form).write_bytes(_with_member(run / form, content[2], content[3:]))
    return home


def _with_member(archive: Path, place: int, content: bytes) -> bytes:
    import zipfile  # not before atheris has seen it

    sink = io.BytesIO()
    with zipfile.ZipFile(archive) as before, zipfile.ZipFile(sink, "w") as after:
        members = before.infolist()
        for number, member in enumerate(members):
            after.writestr(member.filename, content if number == place % len(members) else before.read(member))
    return sink.getvalue()


def _open(entry: Path) -> None:
    import vcuda
    from fuzzing.knowledge import KNOWN
    from fuzzing.opening import read_in_blocks

    if entry.is_dir():
        posterior = vcuda.Posterior.load(entry)
        assert posterior.edges()["probability"].between(-1e-6, 1 + 1e-6).all()
        assert posterior.sample(5).all_acyclic()
    elif entry.suffix == ".npz":
        vcuda.GraphSamples.load(entry)
    elif entry.name.startswith("k."):
        vcuda.data.knowledge.as_knowledge(entry).for_columns(KNOWN, edge_probability=0.1)
    else:
        vcuda.as_dataset(entry, missing="keep")
        read_in_blocks(entry)


if __name__ == "__main__":
    serve(float(sys.argv[1]), sys.argv[2:])
