"""The Python of README.md and of the recipes in CONTRIBUTING.md is run as it stands."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.outputs import exports
from vcuda.outputs.exports.files import _Format

README = Path(__file__).parent.parent / "README.md"
RECIPES = README.with_name("CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_there_is_a_quick_start():
    assert BLOCKS


@pytest.mark.slow
@pytest.mark.parametrize("code", BLOCKS)
def test_the_quick_start_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a convergence warning is part of the answer, not a failure
        exec(compile(code, str(README), "exec"), scope)
    printed = capsys.readouterr().out
    assert "source" in printed
    assert scope["again"].edges().equals(scope["posterior"].edges())


def recipe(title: str) -> dict:
    """What the first block of Python under a heading of CONTRIBUTING.md defines."""
    scope: dict = {}
    code = RECIPES.split(f"## {title}\n")[1].split("```python\n")[1].split("```")[0]
    exec(compile(code, title, "exec"), scope)
    return scope


@pytest.fixture(scope="module")
def posterior():
    rows = np.random.default_rng(0).normal(size=(50, 3)).cumsum(axis=1)
    return vcuda.fit(pd.DataFrame(rows, columns=["a b", '"', "ü\n"]), model="linear", engine="exact")


def test_the_recipe_of_a_question_answers(posterior):
    found = recipe("Add a question on the posterior")["number_of_effects"](posterior, '"', draws=400, seed=3)
    assert found.sum() == pytest.approx(1)
    expected = posterior.sample(400, seed=3).edge_probabilities()[1].sum()
    assert (found.index.to_numpy() * found).sum() == pytest.approx(expected)


def test_the_recipe_of_an_export_comes_back(posterior, tmp_path, monkeypatch):
    made = recipe("Add an export")
    monkeypatch.setitem(exports.FORMATS, "lines", _Format((".jsonl",), made["to_lines"], made["from_lines"]))
    exports.write_edges(posterior, tmp_path / "graph.jsonl")
    assert exports.read_edges(tmp_path / "graph.jsonl").equals(posterior.edge_probabilities)
    (tmp_path / "graph.jsonl").write_text("no JSON")
    with pytest.raises(vcuda.DataError, match="write the file again"):
        exports.read_edges(tmp_path / "graph.jsonl")
