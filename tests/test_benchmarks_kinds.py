"""The benchmark of mixed tables: its grid, its tables of data, measured lines, parts, and what its pages say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import kinds
from benchmarks.kinds import main
from benchmarks.kinds.cases import DATA, SUITES, Case
from benchmarks.kinds.measuring import aligned, measure, problem
from benchmarks.kinds.tables import page, tables
from benchmarks.measures import pair_log_loss, sure_edges
from benchmarks.processes import part_of
from vcuda.models.mixed.screen import DegenerateGaussian
from vcuda.models.protocol import LocalScore

TINY = Case("gaussian", "gaussian", "linear", 4, 60, "bge")


def test_the_grid_has_what_is_to_be_shown() -> None:
    cases = {name: [case for group in suite() for case in group] for name, suite in SUITES.items()}
    for name, several in cases.items():
        assert {case.suite for case in several} == {name}
        assert len({json.dumps(case.what()) for case in several}) == len(several)
    settings = {(case.nodes, case.rows, case.mechanism) for case in cases["mixed"] if case.method == "default"}
    assert settings == {(d, n, f) for d in (8, 20) for n in (200, 500, 5000) for f in ("linear", "gp")}
    assert {case.index for case in cases["mixed"]} == set(range(10))
    assert {case.data for case in cases["shapes"]} == set(DATA) - {"mixed", "gaussian"}
    assert {case.method for case in cases["gaussian"]} == {"default", "bge", "lingam"}
    sizes = [(11, 1000), (12, 1600), (30, 2000), (100, 1000), (1000, 500)]
    assert [(case.nodes, case.rows) for case in cases["times"]] == sizes
    assert [case.data for case in cases["bundled"]] == ["sachs", "sachs-experiments"]


def test_parts_share_all_groups() -> None:
    groups = SUITES["shapes"]()
    parts = [part_of(groups, (k, 3)) for k in (1, 2, 3)]
    words = sorted(case.words() for part in parts for group in part for case in group)
    assert words == sorted(case.words() for group in groups for case in group)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("data", DATA)
def test_every_table_is_as_a_file_has_it(data: str) -> None:
    made = problem(Case("shapes", data, "linear", 8, 120))
    assert isinstance(made.table, pd.DataFrame)
    assert made.table.shape == made.codes.values.shape == (120, 8)
    assert made.truth.shape == (8, 8)
    assert made.codes.categories is None
    text = [name for name in made.table if not pd.api.types.is_numeric_dtype(made.table[name])]
    whole = [name for name in made.table if pd.api.types.is_integer_dtype(made.table[name])]
    assert len(text) == (data == "mixed")
    assert len(whole) == {"mixed": 3, "half counts": 4, "half yes/no": 4}.get(data, 0)
    numbers = [k for k, name in enumerate(made.table) if name not in (*text, *whole)]
    step = made.codes.values[:, numbers] / 0.5
    assert np.array_equal(step, np.round(step)) == (data == "rounded")


def test_a_measured_line_has_all_fields() -> None:
    line = measure(TINY)
    fields = {"ap", "auc", "skeleton_ap", "pair_log_loss", "sure", "sure_true", "seconds", "seconds_cpu", "peak_mb"}
    assert set(line) >= fields | {"status", "true_edges", "edge_probabilities"}
    assert json.loads(json.dumps(line)) == line


def test_the_degenerate_gaussian_is_bge_without_labels() -> None:
    plain, blocks = measure(TINY), measure(replace(TINY, method="degenerate"))
    np.testing.assert_allclose(blocks["edge_probabilities"], plain["edge_probabilities"], atol=1e-4)


def test_the_degenerate_gaussian_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def prepare(self: DegenerateGaussian, values: np.ndarray) -> LocalScore:
        asked.append(self.kinds)
        return original(self, values)

    original = DegenerateGaussian.prepare
    monkeypatch.setattr(DegenerateGaussian, "prepare", prepare)
    case = Case("mixed", "mixed", "linear", 4, 200, "degenerate")
    edges = np.array(measure(case)["edge_probabilities"])
    assert asked == [tuple(problem(case).kinds)]
    assert "label" in asked[0]
    assert 0 < edges.max() <= 1


def test_a_fit_that_leaves_out_columns_is_an_error() -> None:
    with pytest.raises(ValueError, match="left out columns b"):
        aligned(np.zeros((2, 2), dtype=bool), ("a", "b"), ("a",))


def test_log_loss_of_a_pair_and_sure_edges() -> None:
    truth = np.zeros((3, 3), dtype=bool)
    truth[0, 1] = True
    stated = np.array([[0.0, 0.95, 0.0], [0.05, 0.0, 0.9], [0.0, 0.0, 0.0]])
    # 0 -> 1 has .95, no edge between 0 and 2 has 1, none between 1 and 2 has .1; each plus the floor.
    expected = -np.mean(np.log((np.array([0.95, 1.0, 0.1]) + 1e-3) / 1.003))
    assert pair_log_loss(stated, truth) == pytest.approx(expected)
    assert pair_log_loss(stated.T, truth.T) == pytest.approx(expected)
    assert sure_edges(stated, truth) == {"sure": 2, "sure_true": 1}


@pytest.mark.slow
def test_runs_are_limited_resumed_and_failed_ones_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = Case("gaussian", "no such data", "linear", 4, 60, "bge")
    group = [TINY, replace(TINY, index=1), replace(TINY, index=2, method="lingam")]
    monkeypatch.setattr(kinds, "SUITES", {"gaussian": lambda: [group, [failing]]})
    monkeypatch.setitem(SUITES, "gaussian", lambda: [group, [failing]])
    common = ["--suite", "gaussian", "--results", str(tmp_path), "--python", str(tmp_path / "no-interpreter")]

    def stored() -> list[dict[str, object]]:
        return [json.loads(line) for line in (tmp_path / "kinds-gaussian.jsonl").read_text().splitlines()]

    assert main([*common, "--part", "1/2", "--limit", "1"]) == 0
    assert [line["index"] for line in stored()] == [0]
    said = capsys.readouterr()
    assert "DirectLiNGAM is left out" in said.err
    assert "Runs are left" in said.err
    assert main(common) == 0
    assert [line["index"] for line in stored()] == [0, 1, 0]
    assert "KeyError" in str(stored()[-1]["error"])
    assert "Runs are left" not in capsys.readouterr().err
    assert main(common) == 0
    assert len(stored()) == 3
    assert main([*common, "--retry"]) == 0
    assert len(stored()) == 3
    shown = capsys.readouterr().out
    assert "3 of 4 runs are stored, 1 of them failed" in shown
    assert "failed: no such data, linear, 4 columns, 60 rows" in shown


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b"])
def test_parts_that_are_none_are_refused(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--part", part])
    assert "expected K/N" in capsys.readouterr().err


def made_line(case: Case, **found: object) -> dict[str, object]:
    usual = {
        "ap": 1.0,
        "auc": 1.0,
        "skeleton_ap": 1.0,
        "pair_log_loss": 0.1,
        "sure": 10,
        "sure_true": 10,
        "first": True,
    }
    usual |= {"seconds": 5.0, "seconds_cpu": 6.0, "peak_mb": 300.0, "status": "ok", "commit": "abc", "jobs": 1}
    return case.what() | usual | found


def test_tables_say_what_holds_and_what_does_not() -> None:
    mixed = Case("mixed", "mixed", "linear", 8, 500)
    shown = tables("mixed", [made_line(mixed, ap=0.9), made_line(replace(mixed, index=1), ap=0.98, sure_true=8)])
    assert "| linear, 8 columns, 500 rows: AP at least 0.95 | 0.940 | **no** |" in shown
    assert "at least 95% of the sure edges are true | 18 of 20 (0.90) | **no** |" in shown
    assert "2 of 360 runs are stored, 0 of them failed. Commits: abc." in shown
    gaussian = Case("gaussian", "gaussian", "linear", 8, 500)
    lines = [made_line(gaussian, sure=5, sure_true=5), made_line(replace(gaussian, method="bge"), sure=9, sure_true=9)]
    assert "of those of BGe alone | 5 against 9 | **no** |" in tables("gaussian", lines)
    lines[0]["sure"] = lines[0]["sure_true"] = 6
    assert "of those of BGe alone | 6 against 9 | yes |" in tables("gaussian", lines)
    times = Case("times", "mixed", "linear", 11, 1000)
    assert "11 columns, 1,000 rows, mixed: under 20 s | 5 s | yes |" in tables("times", [made_line(times)])
    shape = Case("shapes", "uniform", "linear", 8, 500)
    assert "uniform, linear, 500 rows: AP at least 0.95 | 1.000 | yes |" in tables("shapes", [made_line(shape)])
    counts = replace(shape, data="half counts")
    assert "AP at least" not in tables("shapes", [made_line(counts)]), "directions between counts may stay open"


def test_the_page_has_every_suite_even_without_a_line() -> None:
    text = page({name: [] for name in SUITES})
    assert text.count("\n## ") == len(SUITES)
    assert text.count("0 of ") >= len(SUITES)
