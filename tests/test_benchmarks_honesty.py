"""The benchmark of tables that break the model: its generators, true effects, measured lines, order, and tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import kurtosis, skew

from benchmarks import honesty
from benchmarks.honesty import cases, main
from benchmarks.honesty.cases import Case, grid
from benchmarks.honesty.departures import DEPARTURES, Made, make, selecting
from benchmarks.honesty.measuring import changes, measure, said
from benchmarks.honesty.tables import page, tables
from benchmarks.honesty.worlds import World, curves, of_kinds
from benchmarks.processes import part_of
from vcuda.data.random_models import Edges
from vcuda.data.simulate import simulate
from vcuda.graphs import ancestors, is_dag
from vcuda.summaries.simulated_effects import Measure, SimulatedEffect

TINY = Case("linear, unequal noise", 60, nodes=4)
LONG = 20_000


def long(name: str, seed: int = 0, nodes: int = 7) -> Made:
    return make(name, nodes=nodes, rows=LONG, seed=seed)


def residuals(made: Made) -> np.ndarray:
    """What the true causes leave of each column (n, d), by least squares."""
    values = made.table.to_numpy(dtype=float)
    left = values - values.mean(axis=0)
    found = left.copy()
    for node, causes in enumerate(made.truth.T):
        if causes.any():
            weights = np.linalg.lstsq(left[:, causes], left[:, node], rcond=None)[0]
            found[:, node] -= left[:, causes] @ weights
    return found


def off_diagonal(values: np.ndarray) -> np.ndarray:
    """The correlations of all pairs of columns."""
    return np.corrcoef(values, rowvar=False)[np.triu_indices(values.shape[1], 1)]


# Generators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEPARTURES)
def test_every_table_is_as_a_file_has_it_and_comes_again_with_its_seed(name: str) -> None:
    made = make(name, nodes=5, rows=40, seed=3)
    assert made.table.shape == (40, 5)
    assert made.truth.shape == (5, 5)
    assert is_dag(made.truth)
    assert (made.table.nunique() > 1).all()
    again = make(name, nodes=5, rows=40, seed=3)
    assert made.table.equals(again.table)
    assert not made.table.equals(make(name, nodes=5, rows=40, seed=4).table)
    above = ancestors(made.truth)
    for cause, outcome in np.argwhere(~np.eye(5, dtype=bool)).tolist():
        assert (made.change(cause, outcome, 0.0, 1.0) != 0) == above[cause, outcome]


def test_the_same_graph_has_any_number_of_rows_and_almost_all_departures() -> None:
    graphs = {name: make(name, nodes=7, rows=30, seed=1).truth for name in DEPARTURES}
    assert not graphs.pop("random walks").any()
    dense = graphs["many weak edges"]
    for name, graph in graphs.items():
        assert graph is dense or np.array_equal(graph, graphs["linear, unequal noise"]), name
        assert np.array_equal(graph, make(name, nodes=7, rows=60, seed=1).truth), name


@pytest.mark.parametrize(
    ("name", "skewness", "excess"),
    [
        # The standard error of the kurtosis of exponential noise, the largest, is about 0.5 in each column; the median
        # of seven has less.
        ("linear, equal noise", 0, 0),
        ("linear, unequal noise", 0, 0),
        ("uniform noise", 0, -1.2),
        ("exponential noise", 2, 6),
        ("Laplace noise", 0, 3),
    ],
)
def test_noise_has_the_shape_of_its_name(name: str, skewness: float, excess: float) -> None:
    found = residuals(long(name))
    assert np.median(skew(found)) == pytest.approx(skewness, abs=0.1)
    assert np.median(kurtosis(found)) == pytest.approx(excess, abs=0.6)
    variances = found.var(axis=0)
    assert (variances.max() / variances.min() < 1.1) == (name == "linear, equal noise")
    # Independent noise: correlations of 21 pairs have a standard error of 0.007.
    assert np.abs(off_diagonal(found)).max() < 0.03


def test_curves_bend_and_their_noise_has_its_shape() -> None:
    for name, skewness in (("smooth functions", 0), ("curves, exponential noise", 2)):
        made = long(name)
        roots = ~made.truth.any(axis=0)
        assert skew(made.table.to_numpy()[:, roots]) == pytest.approx(skewness, abs=0.2)
    dag = Edges.of(np.array([0]), np.array([1]), 2)
    world = World(dag, 2, curves(np.array([1.0, 0.1]), "gaussian"), seed=0)
    steps = [world.change(0, 1, low, low + 0.5) for low in (-1.5, -0.5, 0.5)]
    assert np.ptp(steps) > 0.1, "a straight line has equal steps"


def test_spread_depends_on_causes() -> None:
    def dependence(name: str) -> float:
        made = long(name)
        found, values = np.log(np.abs(residuals(made))), made.table.to_numpy()
        return max(
            abs(np.corrcoef(found[:, effect], values[:, cause])[0, 1]) for cause, effect in np.argwhere(made.truth)
        )

    assert dependence("spread by causes") > 0.2
    assert dependence("linear, unequal noise") < 0.03


def test_cubed_effects_have_long_tails_and_squashed_ones_none() -> None:
    cubed, squashed = long("cubed effects"), long("squashed effects")
    effects, roots = cubed.truth.any(axis=0), ~cubed.truth.any(axis=0)
    tails = kurtosis(cubed.table.to_numpy())
    assert np.abs(tails[roots]).max() < 0.3
    # The cube of a Gaussian has a kurtosis of 10,395 / 15² = 46; that of 20,000 rows varies much.
    first = effects & ~(cubed.truth & effects[:, None]).any(axis=0)
    assert first.any()
    assert tails[first].min() > 8
    assert tails.max() < 200, "no cube of cubes"
    values = squashed.table.to_numpy()
    assert np.abs(values[:, effects]).max() <= 1
    assert np.abs(values[:, roots]).max() > 2


def test_one_cell_in_a_hundred_is_an_outlier() -> None:
    values = long("outliers").table.to_numpy()
    centre = np.median(values, axis=0)
    spread = np.median(np.abs(values - centre), axis=0) * 1.4826
    # Of Gaussian columns hardly a cell lies beyond 4.5 standard deviations (7e-6 of them).
    assert np.mean(np.abs(values - centre) > 4.5 * spread) == pytest.approx(0.01, abs=0.001)


def test_every_second_column_is_of_another_kind() -> None:
    for name in ("0/1 columns", "cut at the median", "counts"):
        table = make(name, nodes=7, rows=500, seed=0).table
        whole = [np.issubdtype(kind, np.integer) for kind in table.dtypes]
        assert whole == [False, True, False, True, False, True, False]
        counts = table.iloc[:, [1, 3, 5]]
        assert (counts >= 0).all(axis=None)
        assert (counts.nunique() > 3).all() if name == "counts" else (counts.nunique() == 2).all()
    halves = make("cut at the median", nodes=7, rows=500, seed=0).table.iloc[:, [1, 3, 5]]
    assert (halves.mean() == 0.5).all()


def test_hidden_causes_add_dependence_that_the_graph_does_not_explain() -> None:
    pairs = np.array(
        [np.sort(np.abs(off_diagonal(residuals(long("hidden causes of pairs", seed))))) for seed in (0, 1)]
    )
    every = np.array([np.abs(off_diagonal(residuals(long("one hidden cause", seed)))) for seed in (0, 1)])
    controls = np.abs(off_diagonal(residuals(long("linear, unequal noise"))))
    assert controls.max() < 0.03
    # Least squares give a part of it to the edges, so that some pairs show little.
    assert pairs[:, -2:].min() > 0.1
    assert (every > 0.05).mean() > 0.5 > (pairs > 0.05).mean()
    # Without edges three of 21 pairs depend on each other, or all.
    assert (np.abs(off_diagonal(_without_edges("hidden causes of pairs"))) > 0.05).sum() == 3
    assert (np.abs(off_diagonal(_without_edges("one hidden cause"))) > 0.05).all()


def _without_edges(name: str) -> np.ndarray:
    """The noise (n, d) of a table of this departure: the true weights are taken off."""
    made = long(name)
    weights = simulate("er", nodes=7, edges=7, noise="unequal", rows=1, test_rows=1, seed=0).weights
    assert weights is not None
    values = made.table.to_numpy()
    return np.asarray(values - values @ weights)


def test_measured_columns_have_a_reliability_of_seven_tenths() -> None:
    exact = simulate("er", nodes=7, edges=7, noise="unequal", rows=LONG, test_rows=1, seed=0).train.values
    measured = long("errors of measurement").table.to_numpy()
    assert (exact.var(axis=0) / measured.var(axis=0)) == pytest.approx(0.7, abs=0.02)
    assert np.abs(off_diagonal(measured - exact)).max() < 0.03


def test_selected_rows_are_the_upper_half_of_a_column_with_causes() -> None:
    made = make("selected rows", nodes=7, rows=500, seed=0)
    everything = simulate("er", nodes=7, edges=7, noise="unequal", rows=1000, test_rows=1, seed=0).train.values
    column = selecting(made.truth)
    assert made.truth[:, column].sum() == made.truth.sum(axis=0).max()
    kept = everything[everything[:, column] > np.median(everything[:, column])]
    assert np.array_equal(made.table.to_numpy(), kept)


def test_two_populations_differ_in_means_and_weights() -> None:
    made = long("two populations")
    found = residuals(made)
    assert np.abs(off_diagonal(found)).max() > 0.1, "the populations are a hidden cause"
    # The rows are mixed: the means of both halves of the table agree.
    first, last = found[: LONG // 2], found[LONG // 2 :]
    errors = found.std(axis=0) * np.sqrt(4 / LONG)
    assert (np.abs(first.mean(axis=0) - last.mean(axis=0)) / errors).max() < 4


def test_rows_depend_on_the_row_before_in_series_only() -> None:
    def lagged(name: str) -> np.ndarray:
        found = residuals(long(name)) if name != "random walks" else long(name).table.to_numpy()
        return np.array([np.corrcoef(own[1:], own[:-1])[0, 1] for own in found.T])

    assert lagged("AR rows") == pytest.approx(0.9, abs=0.02)
    assert np.abs(lagged("linear, unequal noise")).max() < 0.03
    assert lagged("random walks").min() > 0.99
    # Random walks that have nothing to do with each other look dependent; their steps do not.
    walks = long("random walks").table.to_numpy()
    assert np.abs(off_diagonal(walks)).max() > 0.3
    assert np.abs(off_diagonal(np.diff(walks, axis=0))).max() < 0.03


# Effects ------------------------------------------------------------------------------------------------------


def test_true_effects_along_paths_and_by_simulation_agree() -> None:
    """A world of linear regressions on standardised causes, and the same by its weights."""
    dag = Edges.of(np.array([0, 0, 1]), np.array([1, 2, 2]), 3)
    world = World(dag, 3, of_kinds(np.ones(3), ["number"] * 3), seed=0)
    values = world.rows(LONG)
    first = np.polyfit(values[:, 0], values[:, 1], 1)[0]
    design = np.column_stack([values[:, :2], np.ones(LONG)])
    direct, second, _ = np.linalg.lstsq(design, values[:, 2], rcond=None)[0]
    # Coefficients of 20,000 rows with noise 1 have errors of about 0.01.
    assert world.change(0, 1, -1, 1) == pytest.approx(2 * first, abs=0.08)
    assert world.change(0, 2, -1, 1) == pytest.approx(2 * (direct + first * second), abs=0.15)
    assert world.change(1, 2, 0, 3) == pytest.approx(3 * second, abs=0.12)
    assert world.change(2, 0, 0, 1) == 0


def test_setting_a_binary_cause_shows_the_difference_between_its_groups() -> None:
    """Without confounding, doing is seeing."""
    dag = Edges.of(np.array([0, 1]), np.array([1, 2]), 3)
    world = World(dag, 3, of_kinds(np.ones(3), ["yes/no", "number", "count"]), seed=1)
    values = world.rows(LONG)
    on = values[:, 0] == 1
    for outcome in (1, 2):
        seen = values[on, outcome].mean() - values[~on, outcome].mean()
        assert world.change(0, outcome, 0, 1) == pytest.approx(seen, abs=0.15)


def test_setting_a_column_that_was_cut_moves_it_to_the_other_half() -> None:
    made = long("cut at the median", seed=7)
    above = ancestors(made.truth)
    roots = [k for k in (1, 3, 5) if not made.truth[:, k].any() and above[k].any()]
    assert roots == [1, 5]
    for cause in roots:
        on = made.table.iloc[:, cause] == 1
        for outcome in np.flatnonzero(above[cause]).tolist():
            column = made.table.iloc[:, outcome]
            # Doing is seeing for a column without causes; errors of two means of 10,000 rows: 0.014 of the sd.
            seen = column[on].mean() - column[~on].mean()
            assert made.change(cause, outcome, 0, 1) == pytest.approx(seen, abs=0.07 * column.std())


def test_changes_of_probabilities_are_read_in_parts_of_one() -> None:
    responses = np.array([[[10.0], [30.0]], [[20.0], [60.0]]])
    effect = SimulatedEffect(
        cause="a",
        outcome="b",
        cause_kind="yes/no",
        outcome_kind="yes/no",
        settings=("0", "1"),
        x=None,
        measures=(Measure("the probability that b is 1", "percentage points"),),
        responses=responses,
        reference=0,
        probability_zero=0.0,
    )
    assert changes(effect, 1.0) == pytest.approx([0.2, 0.4])
    with pytest.raises(TypeError, match="not compared"):
        changes(object(), 1.0)


# Lines --------------------------------------------------------------------------------------------------------


def test_a_measured_line_has_all_fields() -> None:
    line = measure(TINY)
    fields = {"ap", "sure", "sure_true", "sure_wrong", "status", "flagged", "seconds", "seconds_cpu_effects"}
    assert set(line) >= fields | {"edge_probabilities", "truth", "effects", "chosen", "pair_log_loss"}
    assert line["flagged"] == (line["status"] != "ok")
    assert line["sure_wrong"] == line["sure"] - line["sure_true"]
    assert len(line["effects"]) == 5
    for one in line["effects"]:
        assert one["covered"] == (one["low"] - 1e-12 <= one["truth"] <= one["high"] + 1e-12)
    assert json.loads(json.dumps(line)) == line
    assert measure(TINY)["effects"] == line["effects"]


def test_a_graph_without_edges_has_no_average_precision() -> None:
    line = measure(Case("random walks", 40, nodes=3))
    assert line["ap"] is None
    assert all(one["truth"] == 0 for one in line["effects"])
    assert "NaN" not in json.dumps(line)


def test_parts_of_a_status_and_findings_are_kept_where_there_are_any() -> None:
    finding = SimpleNamespace(check="lag", severity="warning", columns=("X1",), edges=(("X1", "X2"),))

    class Findings(list[Any]):
        seconds = 0.5

    posterior: Any = SimpleNamespace(
        status=SimpleNamespace(
            code="warning",
            sentence="Rows depend on each other.",
            arithmetic=SimpleNamespace(code="ok"),
            description=SimpleNamespace(code="warning"),
        ),
        provenance={"engine": {"name": "exact"}, "model": {"name": "linear"}},
        summary=lambda: {"choice": []},
        checks=lambda: Findings([finding]),
    )
    found = said(posterior)
    assert found["flagged"]
    assert found["status_parts"] == {"arithmetic": "ok", "description": "warning"}
    assert found["checks"] == [{"check": "lag", "severity": "warning", "columns": ["X1"], "edges": [["X1", "X2"]]}]
    assert found["seconds_checks"] == 0.5


# Runs ---------------------------------------------------------------------------------------------------------


def test_the_grid_visits_every_departure_with_one_set_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    for robust in (False, True):

        def fit(data: Any, **options: Any) -> None: ...

        def fit_with_option(data: Any, *, robust: bool | None = None) -> None: ...

        monkeypatch.setattr(cases.vcuda, "fit", fit_with_option if robust else fit)
        groups = grid()
        assert [{case.index for case in group} for group in groups] == [{index} for index in range(100, 110)]
        methods = {"default", "unrobust"} if robust else {"default"}
        for group in groups:
            seen = [(case.departure, case.rows, case.method) for case in group]
            assert sorted(seen) == sorted((name, n, how) for name in DEPARTURES for n in (500, 5000) for how in methods)
        words = [case.words() for group in groups for case in group]
        assert len(set(words)) == len(words)
        halves = [case.words() for k in (1, 2) for group in part_of(groups, (k, 2)) for case in group]
        assert sorted(halves) == sorted(words)


@pytest.mark.slow
def test_runs_are_limited_resumed_and_failed_ones_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = [[TINY, replace(TINY, departure="no such table")], [replace(TINY, index=1)]]
    monkeypatch.setattr(honesty, "grid", lambda: planned)
    common = ["--results", str(tmp_path)]

    def stored() -> list[dict[str, object]]:
        return [json.loads(line) for line in (tmp_path / "honesty.jsonl").read_text().splitlines()]

    assert main([*common, "--limit-minutes", "0"]) == 0
    assert not (tmp_path / "honesty.jsonl").exists()
    assert main([*common, "--limit", "1"]) == 0
    assert [line["index"] for line in stored()] == [0]
    assert "Runs are left" in capsys.readouterr().err
    assert main(common) == 0
    assert [line["index"] for line in stored()] == [0, 0, 1]
    assert "KeyError" in str(stored()[1]["error"])
    shown = capsys.readouterr()
    assert "Runs are left" not in shown.err
    assert "failed: no such table, 60 rows, by default, sets 0: KeyError" in shown.out
    assert main([*common, "--retry"]) == 0
    assert len(stored()) == 3


def test_the_runs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "random walks n=500 default", "--part", "2/2"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed == [f"random walks n=500 default index={index}" for index in (101, 103, 105, 107, 109)]


# Tables -------------------------------------------------------------------------------------------------------


def made_line(case: Case, **found: object) -> dict[str, Any]:
    pair = {"cause": 0, "outcome": 1, "probability_zero": 0.0, "truth": 0.5, "low": 0.0, "high": 1.0, "covered": True}
    usual = {"ap": 0.9, "sure": 4, "sure_true": 4, "flagged": False, "seconds": 2.0, "commit": "abc", "effects": [pair]}
    line = case.what() | usual | found
    return line | {"sure_wrong": line["sure"] - line["sure_true"]}


def test_tables_say_what_holds_and_what_does_not() -> None:
    walk, control = Case("random walks", 500), Case("linear, equal noise", 500)
    apart = {"cause": 0, "outcome": 1, "probability_zero": 1.0, "truth": 0.0, "low": 0.0, "high": 0.0, "covered": True}
    first = made_line(control)
    lines = [
        first | {"effects": [*first["effects"], apart]},
        made_line(replace(control, method="unrobust"), ap=0.95, sure=4),
        made_line(walk, ap=None, sure_true=0, flagged=True),
        made_line(replace(walk, index=1), ap=None, sure_true=0),
        made_line(Case("uniform noise", 5000), sure_true=1, flagged=True),
        made_line(Case("two populations", 5000), sure=20, sure_true=19),
    ]
    shown = tables(lines)
    assert "controls: at most 5% of the tables are flagged | 0 of 1 (0.00) | yes |" in shown
    assert "controls: AP within 2% of the fit with `robust=False` | 0.900 against 0.950 | **no** |" in shown
    assert "controls: sure edges within 2% of the fit with `robust=False` | 4.000 against 4.000 | yes |" in shown
    assert "controls: 90 % intervals hold the truth in at least 85% | 2 of 2 (1.00) | yes |" in shown
    assert "controls: those of effects stated with certainty, in 85% to 95% | 1 of 1 (1.00) | **no** |" in shown
    assert "random walks, 500 rows: no sure edge without a flag | 1 of 2 tables have one | **no** |" in shown
    assert "flagged | no sure edges, 0 of 1 tables not flagged | yes |" in shown
    assert "are true in tables that are not flagged | 19 of 20 (0.95) | yes |" in shown
    assert "all departures: the same | 2 of 3 (0.67) | **no** |" in shown
    assert "| random walks | 500 | by default | 2 |  | 8 | 0 of 8 (0.00) | 0 of 4 (0.00) | 1 of 2 (0.50) |" in shown
    assert f"of {sum(map(len, grid()))} runs are stored, 0 of them failed. Commits: abc." in shown
    assert "What the checks found" not in shown


def test_checks_are_counted_by_table() -> None:
    twice = [{"check": "lag", "severity": "warning", "columns": [], "edges": []}] * 2
    note = [{"check": "shape", "severity": "note", "columns": [], "edges": []}]
    case = Case("AR rows", 500)
    lines = [made_line(case, checks=twice + note, seconds_checks=0.5)]
    lines += [made_line(replace(case, index=1), checks=twice, seconds_checks=1.5)]
    assert "| AR rows | 500 | lag 2 | shape 1 | 1.0 |" in tables(lines)


def test_the_page_explains_every_departure_even_without_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert all(f"| {name} | " in page([]) for name in DEPARTURES)
    monkeypatch.setattr(honesty, "PAGE", tmp_path / "page.md")
    assert main(["--write-docs", "--results", str(tmp_path)]) == 0
    written = (tmp_path / "page.md").read_text()
    assert written == page([])
    assert "0 of " in written
