"""The page about other libraries is run as it stands; a block whose package is not installed is left out, and told."""

import importlib.util
import re
import warnings
from pathlib import Path

import pytest

from vcuda.outputs import exports

PAGE = Path(__file__).parent.parent / "docs" / "interoperability.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?:<!-- needs (\w+) -->\n)?```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", TEXT, flags=re.DOTALL)


def is_here(package: str) -> bool:
    return not package or importlib.util.find_spec(package) is not None


@pytest.mark.slow
def test_every_block_runs_and_prints_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    assert len(BLOCKS) == TEXT.count("```python") > 8
    for cost, code, shown in BLOCKS:
        if not is_here(cost):
            continue
        with warnings.catch_warnings():
            if cost:
                warnings.simplefilter("ignore")  # of other packages, about each other
            exec(compile(code, str(PAGE), "exec"), scope)
        printed = capsys.readouterr().out
        assert len(printed.splitlines()) == len(shown.splitlines()), code
        # Words stay what they are; numbers may differ in their last digits on other machines.
        assert re.findall(r"[A-Za-z]{4,}", printed) == re.findall(r"[A-Za-z]{4,}", shown), code


@pytest.mark.parametrize("package", sorted({cost for cost, _, _ in BLOCKS if cost}))
def test_blocks_that_need_a_package_were_run(package):
    if not is_here(package):
        pytest.skip(f"{package} is not installed: its block was not run")


def test_every_export_has_its_place_on_the_page():
    for name in exports.__all__:
        if name.startswith(("to_", "write", "read", "weighted", "average", "dowhy")):
            known = name in TEXT or name in ("to_csv", "to_json", "to_graphml")  # the sisters of to_dot
            assert known, name
