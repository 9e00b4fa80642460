"""The accuracy suites: their grids, a measured line, the draws from the prior, resumption, and honest tables."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy import main
from benchmarks.accuracy.calibration import draw, measure_block, score_of
from benchmarks.accuracy.cases import Case, in_random_units, problem
from benchmarks.accuracy.lines import difference_to_exact
from benchmarks.accuracy.measuring import measure
from benchmarks.accuracy.oracle import known_order_posterior
from benchmarks.accuracy.processes import Runner
from benchmarks.accuracy.suites import SUITES, selected
from benchmarks.accuracy.tables import tables
from benchmarks.records import Records

FIELDS = {
    *("ap", "auc", "skeleton_ap", "ap_full", "auc_full", "brier", "calibration_error", "expected_edges"),
    *("true_edges", "status", "log_evidence", "seconds", "peak_mb", "edge_probabilities", "expected_shd"),
}
TINY = Case(
    suite="paper-d10",
    source="fresh",
    graph="er",
    mechanism="linear",
    nodes=4,
    edges=3,
    rows=60,
    engine="exact",
    model="linear",
    noise="unequal",
)


def test_the_grid_of_every_suite_is_what_it_should_be() -> None:
    cases = {name: [case for group in suite() for case in group] for name, suite in SUITES.items()}
    for name, several in cases.items():
        assert {case.suite for case in several} == {name}
        assert len({json.dumps(case.what()) for case in several}) == len(several)
    counts = {name: len(several) for name, several in cases.items()}
    # paper-d10: 2 graph families x (6 linear + 8 nonlinear) groups x 10 sets.
    # d50-d100: 2 sizes x (2 families x 6, and the oracle) x 5 sets, and 2 densities x 2 x 2 x 2 families x 3 sets.
    # scale: 2 x 2 families x 2 engines x 2 sets, 2 families x 2 sets at 2,000 nodes, one at 5,000.
    # calibration: (3 noises x 3 engines + 3) x 16 blocks.
    # auto: 8 settings x 10 paper sets, 4 x 10 fresh ones, 6 x 5 in random units, Sachs.
    # crossover: 3 sizes x (5 linear + 5 nonlinear) x 2 sets, 2 sizes x 2 engines x 2 sets.
    # sachs: 3 scales x (11 fits + auto + 2 models x 3 restarts of the authors' program).
    assert counts == {
        "paper-d10": 280,
        "d50-d100": 178,
        "scale": 21,
        "calibration": 192,
        "auto": 151,
        "sachs": 54,
        "crossover": 68,
    }
    paper = Counter((case.mechanism, case.columns, case.engine, case.model, case.noise) for case in cases["paper-d10"])
    assert paper["linear", "raw", "exact", "linear", "equal"] == 20
    assert paper["gp", "standardised", "orders", "gp", "unequal"] == 20
    assert {case.index for case in cases["paper-d10"]} == set(range(10))
    assert {case.nodes for case in cases["scale"]} == {500, 1000, 2000, 5000}
    assert max(case.nodes for case in cases["scale"] if case.engine == "variational") == 1000


def test_every_group_has_one_engine_and_only_selects_within_groups() -> None:
    for suite in SUITES.values():
        for group in suite():
            assert len({(case.engine, case.model, case.noise, case.columns) for case in group}) == 1
    chosen = selected(SUITES["paper-d10"](), "sf gp d=10 e=10 n=1000 raw exact additive unequal index=3")
    assert [[case.index for case in group] for group in chosen] == [[3]]


def test_a_measured_line_has_all_fields() -> None:
    line = measure(TINY)
    assert set(line) >= FIELDS
    assert np.shape(line["edge_probabilities"]) == (4, 4)
    assert line["status"] == "ok"
    assert line["seconds"] > 0
    assert line["peak_mb"] > 10
    assert math.isfinite(line["log_evidence"])
    assert json.loads(json.dumps(line)) == line


def test_the_evidence_of_standardised_columns_is_told_for_the_cells() -> None:
    # BGe standardises anyway, so that the evidence of the cells must not depend on what was done before.
    raw, standardised = measure(TINY), measure(replace(TINY, columns="standardised"))
    assert standardised["log_evidence_of_cells"] == pytest.approx(raw["log_evidence_of_cells"], rel=1e-9)
    assert standardised["log_evidence"] != pytest.approx(raw["log_evidence"], rel=1e-3)


def test_standardised_columns_and_random_units() -> None:
    data = problem(replace(TINY, columns="standardised")).data.values
    np.testing.assert_allclose(data.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(data.std(axis=0), 1)
    ratio = in_random_units(data, 1) / data
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[0], ratio.shape))
    assert ratio[0].min() >= 1e-3
    assert ratio[0].max() <= 1e3
    assert len(set(ratio[0])) == 4


def test_a_rescaled_table_has_the_same_posterior() -> None:
    assert measure(replace(TINY, kind="rescaling"))["largest_change"] < 1e-6


@pytest.mark.parametrize("noise", ["unit", "equal", "unequal"])
def test_drawn_tables_follow_the_score_in_prior_units(noise: str) -> None:
    """As many edges are true as the exact probabilities say."""
    engine_case = replace(
        TINY, kind="calibration", source="prior", columns="prior units", noise=noise, nodes=3, rows=20
    )
    found = measure_block(engine_case, 40)
    pairs, stated, true = (np.array(found[key]) for key in ("bin_pairs", "bin_stated", "bin_true"))
    assert pairs.sum() == 40 * 6
    # Given the tables, hits are independent between data sets with variance at most sum p (1 - p); edges of one set
    # are negatively or weakly related. Four standard deviations, with room for the latter.
    variance = float(np.sum(stated * (1 - stated / np.maximum(pairs, 1))))
    assert abs(true.sum() - stated.sum()) < 4 * np.sqrt(2 * variance)


def test_prior_units_change_nothing_but_means_and_scales() -> None:
    values, truth = draw("unit", 4, 50, np.random.default_rng(0))
    centred = values - values.mean(axis=0)
    one, other = (score_of("unit", centred, prior_units=flag) for flag in (True, False))
    assert one.score(0, [1, 2]) == pytest.approx(other.score(0, [1, 2]))  # type: ignore[union-attr]
    assert not truth.diagonal().any()


def test_the_oracle_finds_a_clear_parent_and_obeys_the_order() -> None:
    rng = np.random.default_rng(0)
    cause = rng.standard_normal(120)
    values = np.stack([cause, np.sin(2 * cause) + 0.2 * rng.standard_normal(120), rng.standard_normal(120)], axis=1)
    truth = np.zeros((3, 3), dtype=bool)
    truth[0, 1] = True
    edges = known_order_posterior(values, truth)
    assert edges[0, 1] > 0.99
    assert edges[1, 0] == 0
    assert np.all(edges * edges.T == 0)


def test_runs_are_resumed_and_failures_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = replace(TINY, index=1, noise="no such noise")
    monkeypatch.setitem(SUITES, "paper-d10", lambda: [[TINY, failing]])
    seen: list[int] = []

    def run(deadline: float = math.inf) -> tuple[Records, bool]:
        records = Records("accuracy-paper-d10", folder=tmp_path)
        runner = Runner(records, jobs=1, deadline=deadline, report=lambda case, line: seen.append(case.index))
        return records, runner.run([[TINY, failing]])

    assert run(deadline=0.0)[1] is False
    assert seen == []
    records, complete = run()
    assert complete
    assert seen == [0, 1]
    first, second = records.lines
    assert set(first) >= FIELDS | {"first", "jobs", "commit", "versions"}
    assert first["first"]
    assert "no such noise" in second["error"]
    records, _ = run()
    assert seen == [0, 1]
    assert len(records.lines) == 2
    told = tables("paper-d10", records.lines)
    assert "2 of 2 runs are stored, 1 of them failed" in told
    assert "no such noise" in told.splitlines()[-1]
    assert "| 1 of 1 |" in told
    assert "| 0 of 1 |" in told
    records.forget([failing.what()])
    assert Records("accuracy-paper-d10", folder=tmp_path).lines == [first]


def test_the_difference_to_exact_is_that_of_the_same_data_and_model() -> None:
    exact = TINY.what() | {"edge_probabilities": [[0.0, 0.75], [0.25, 0.0]]}
    other = replace(TINY, engine="orders").what() | {"edge_probabilities": [[0.0, 0.5], [0.25, 0.0]]}
    assert difference_to_exact(other, [exact, other]) == pytest.approx(0.25)
    assert difference_to_exact(exact, [exact, other]) is None
    assert difference_to_exact(other | {"noise": "equal"}, [exact, other]) is None


def test_tables_of_nothing_and_the_list_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suite in SUITES:
        assert main(["--suite", suite, "--table", "--results", str(tmp_path)]) == 0
        assert "0 of " in capsys.readouterr().out
    assert main(["--suite", "scale", "--list", "--only", "d=5000"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
