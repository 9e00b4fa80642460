"""The properties of tests/test_hostile.py, searched by Hypothesis with more examples than the tests have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

from benchmarks.processes import ROOT, SINGLE_THREADED

COUNTED = re.compile(r"(\d+) passing(?: examples)?, (\d+) failing")


def properties(what: dict[str, Any]) -> dict[str, Any]:
    """Run them with a seed of their own; every example is checked by the test itself."""
    seen = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", "tests/test_hostile.py", "-k", "any"),
            *("--hypothesis-show-statistics", f"--hypothesis-seed={what['seed'] + what['first']}"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | SINGLE_THREADED | {"HOSTILE_EXAMPLES": str(what["cases"]), "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    counts = [(int(passing), int(failing)) for passing, failing in COUNTED.findall(seen.stdout)]
    broken = sum(failing for _, failing in counts) or int(seen.returncode != 0 or not counts)
    faults = [line for line in seen.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return {"opened": sum(map(sum, counts)), "broken": broken, "faults": faults}
