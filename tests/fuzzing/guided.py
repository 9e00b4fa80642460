"""Bytes that libFuzzer changes as the coverage of the readers guides it, through atheris (pip install atheris)."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT, SINGLE_THREADED
from fuzzing.runs import RUNS
from fuzzing.target import FORMS

TARGET = Path(__file__).with_name("target.py")
LONGEST_INPUT = 30_000
NEW_COVERAGE = re.compile(r"cov: (\d+)")
EXECUTED = re.compile(r"stat::number_of_executed_units:\s+(\d+)")


def guided(what: dict[str, Any], broken: Path) -> dict[str, Any]:
    """Let libFuzzer make so many inputs, from the cases of tests/hostile.py and what earlier pieces found new."""
    if find_spec("atheris") is None:
        raise SystemExit("coverage-guided fuzzing needs atheris: pip install atheris")
    corpus = broken / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for content in seeds():
        (corpus / hashlib.sha1(content).hexdigest()).write_bytes(content)
    crashes = broken / f"guided-{what['seed']}-{what['first']}"
    crashes.mkdir(exist_ok=True)
    path = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    seen = subprocess.run(
        [
            *(sys.executable, "-P", str(TARGET), str(what["memory"]), str(corpus.resolve())),
            *(f"-runs={what['cases']}", f"-seed={1 + what['seed'] + what['first']}", f"-max_len={LONGEST_INPUT}"),
            *(f"-timeout={what['patience']:.0f}", "-rss_limit_mb=0", "-print_final_stats=1", "-len_control=0"),
            f"-artifact_prefix={crashes.resolve()}{os.sep}",
        ],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=ROOT,
        env=os.environ | SINGLE_THREADED | {"VCUDA_CACHE": "off", "PYTHONPATH": os.pathsep.join(path)},
        check=False,
    )
    found = sorted(path.name for path in crashes.iterdir())
    if not found:
        crashes.rmdir()
    faults = [line for line in seen.stderr.splitlines() if re.match(r"\w*(Error|Exception)|==.*ERROR", line)]
    executed, coverage = EXECUTED.search(seen.stderr), [int(number) for number in NEW_COVERAGE.findall(seen.stderr)]
    return {
        "opened": int(executed[1]) if executed else 0,
        "broken": len(found) or int(seen.returncode != 0),
        "faults": [*faults[-5:], *found] if seen.returncode else [],
        "coverage": [coverage[0], coverage[-1]] if coverage else [],
        "corpus": len(list(corpus.iterdir())),
    }


def seeds() -> Iterator[bytes]:
    """What it begins with: each case of the tests that is small, and the parts of all runs of the tests."""
    hostile = import_module("hostile")

    for case in (*hostile.TABLES.values(), *hostile.KNOWLEDGE.values()):
        name = case.name.replace(".arrow", ".feather")
        if name in FORMS and len(case.content) < LONGEST_INPUT:
            yield bytes([FORMS.index(name)]) + case.content
    for number, run in enumerate(sorted(RUNS.iterdir())):
        start = bytes([FORMS.index("config.json"), number])
        yield start + (run / "config.json").read_bytes()
        with zipfile.ZipFile(run / "posterior.npz") as archive:
            for place, member in enumerate(archive.infolist()):
                if member.file_size < LONGEST_INPUT:
                    yield bytes([FORMS.index("posterior.npz"), number, place]) + archive.read(member)
