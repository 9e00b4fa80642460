"""The bundles of the front end are those of its sources, and name what they hold."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import vcuda

ROOT = Path(__file__).parents[1]
FRONTEND = ROOT / "frontend"
PACKAGE = Path(vcuda.__file__).parent
BUNDLES = {
    "app": PACKAGE / "app" / "static" / "app.js",
    "graph": PACKAGE / "outputs" / "report" / "assets" / "graph.js",
}
BESIDE = ("build.mjs", "package.json", "package-lock.json", "tsconfig.json", "app.html")


def sources_hash():
    """As frontend/build.mjs computes it."""
    found = [*BESIDE, *(path.relative_to(FRONTEND).as_posix() for path in (FRONTEND / "src").rglob("*.*"))]
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name}\n".encode() + (FRONTEND / name).read_bytes() + b"\n")
    return digest.hexdigest()


@pytest.mark.parametrize("key", BUNDLES)
def test_a_bundle_is_made_of_the_sources_that_are_there(key):
    head = BUNDLES[key].read_text(encoding="utf-8")[:200]
    stated = re.search(r"sources sha256:([0-9a-f]{64})", head)
    assert stated is not None
    assert stated[1] == sources_hash(), "the sources changed: run make frontend"


@pytest.mark.parametrize("key", BUNDLES)
def test_a_bundle_holds_licences_and_no_address_to_ask(key):
    text = BUNDLES[key].read_text(encoding="utf-8")
    assert "The Cytoscape Consortium" in text[:6000]
    assert "Chris Pettitt" in text[:6000]
    assert not re.search(r"""(fetch|import|src=|XMLHttpRequest)\W{0,3}["'(]+https?:""", text)
    assert "</script" not in text.lower()


@pytest.mark.slow
def test_building_again_gives_the_same_bundles(tmp_path):
    if shutil.which("node") is None or not (FRONTEND / "node_modules" / "vite").is_dir():
        pytest.skip("Node or the packages of the front end are not here (make frontend installs them)")
    subprocess.run(["node", "build.mjs", "all", str(tmp_path)], cwd=FRONTEND, check=True, capture_output=True)
    for key, bundle in BUNDLES.items():
        for file in (bundle, bundle.with_suffix(".css")):
            assert (tmp_path / key / file.name).read_bytes() == file.read_bytes(), file.name
