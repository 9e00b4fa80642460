"""The Python of README.md and of the recipes in CONTRIBUTING.md is run as it stands."""

import re
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.fitting.routes import METHODS
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.engine import Plan, Problem, Resources
from vcuda.infer.engines import ENGINES
from vcuda.infer.method import Method
from vcuda.infer.progress import Clock, silent
from vcuda.infer.scored import ScoredTable
from vcuda.outputs import exports
from vcuda.outputs.exports.files import _Format
from vcuda.outputs.report import page

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


def recipe(title: str, module: str = "recipe") -> dict:
    """What the first block of Python under a heading of CONTRIBUTING.md defines."""
    scope: dict = {"__name__": module}
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


def test_the_recipe_of_a_section_is_shown_with_names_as_text(posterior, monkeypatch):
    made = recipe("Add a section to the report")["section"]
    monkeypatch.setattr(page, "CONTENTS", (made, *page.CONTENTS))
    written = page.report_page(posterior)
    assert '<section id="causes" aria-labelledby="causes-title">' in written
    assert '<a href="#causes">Causes</a>' in written
    expected = posterior.edge_probabilities['"'].sum()
    assert f'<bdi>&quot;</bdi></td><td class="number"><bdi>{expected:.1f}</bdi>' in written


def test_the_recipe_of_an_export_comes_back(posterior, tmp_path, monkeypatch):
    made = recipe("Add an export")
    monkeypatch.setitem(exports.FORMATS, "lines", _Format((".jsonl",), made["to_lines"], made["from_lines"]))
    exports.write_edges(posterior, tmp_path / "graph.jsonl")
    assert exports.read_edges(tmp_path / "graph.jsonl").equals(posterior.edge_probabilities)
    (tmp_path / "graph.jsonl").write_text("no JSON")
    with pytest.raises(vcuda.DataError, match="write the file again"):
        exports.read_edges(tmp_path / "graph.jsonl")


@pytest.mark.slow
def test_the_recipe_of_an_engine_samples_the_posterior_whatever_its_stretches(monkeypatch, tmp_path):
    module = ModuleType("toggles_of_the_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module).update(recipe("Add an engine", module.__name__))
    method = Method(module.__name__, "Toggles", "Toggling", "single edges are added or removed")
    for methods in (ENGINES, METHODS):
        monkeypatch.setitem(methods, "toggles", method)
    # Rows that say little: single edges would take long to turn a strong one.
    rows = np.random.default_rng(1).normal(size=(20, 4)) @ (np.eye(4) + 0.3 * np.eye(4, k=1))
    known = vcuda.Knowledge(required=[("X1", "X2")], forbidden=[("X3", "X4")])
    given = {"model": "linear", "knowledge": known, "seed": 0}
    found = vcuda.fit(rows[:15], prior=0.3, engine=module.Toggles(steps=4000, kept=10), **given)
    exact = vcuda.fit(rows[:15], prior=vcuda.UniformDags(0.3), engine="exact", **given)
    # 300 graphs that are 10 steps apart, over 10 edges: at least 100 independent ones, and .2 are four standard errors.
    assert np.abs(found.edge_probabilities - exact.edge_probabilities).to_numpy().max() < 0.2
    assert found.status.code == "ok"
    found.save(tmp_path / "run")
    assert vcuda.Posterior.load(tmp_path / "run").held_out(rows[15:]) == found.held_out(rows[15:])
    scored = ScoredTable.prepare(
        vcuda.as_dataset(rows), vcuda.BGe(), logarithm=np.zeros(4, dtype=bool), standardise=False
    )
    problem = Problem.of_score(scored, seed=1, edges=edge_prior(4, 0.3))
    engine = module.Toggling(module.Toggles(steps=60), problem, Resources(Clock(silent, None)))
    ends = []
    for stretch in (60, 7):
        state = engine.init()
        while not engine.is_done(state):
            state, _ = engine.advance(state, Plan(stretch))
        ends.append(state)
    assert all(np.array_equal(one, other) for one, other in zip(*ends, strict=True))
