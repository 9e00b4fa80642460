"""The benchmarks: their grids, measured lines, the draws from the prior, resumption, and honest tables."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.accuracy import MEASURING, main
from benchmarks.accuracy.calibration import draw, measure_block, score_of
from benchmarks.accuracy.cases import Case, in_random_units
from benchmarks.accuracy.lines import difference_to_exact, told_difference
from benchmarks.accuracy.measuring import measure
from benchmarks.accuracy.oracle import known_order_posterior
from benchmarks.accuracy.suites import SUITES
from benchmarks.accuracy.tables import tables
from benchmarks.measures import Compiling
from benchmarks.paper import main as paper_main
from benchmarks.paper.measuring import Watch, measure_fit
from benchmarks.paper.plan import load
from benchmarks.paper.runs import Draw, Fit
from benchmarks.problems import problem
from benchmarks.processes import Runner, selected
from benchmarks.records import Records
from vcuda.errors import ConfigError
from vcuda.infer.progress import Progress

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
        runner = Runner[Case](
            MEASURING,
            records,
            jobs=1,
            deadline=deadline,
            report=lambda case, line: seen.append(case.index),
            extend=told_difference,
        )
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


GRID = """
[methods.empty]
title = "empty graph"
engine = "empty"
preset = "reference"

[methods.dibs]
title = "DiBS"
engine = "dibs"
preset = "reference"
[[methods.dibs.where]]
graph = "sf"
options = { graph_prior = "sf" }
[[methods.dibs.where]]
graph = "sf"
columns = "standardised"
options = { particles = 7 }

[methods.variance-sort]
title = "sorted by variance"
engine = "variance-sort"
preset = "reference"

[[runs]]
experiment = "small"
nodes = [5]
edges_per_node = [1]
mechanism = ["linear"]
graph = ["er", "sf"]
columns = ["raw"]
sets = 2
methods = ["empty", "variance-sort"]

[[sampling]]
experiment = "time"
nodes = [20]
distributions = ["any", "topk"]

[quick]
limit_minutes = 0.5
end_minutes = 2
[[quick.runs]]
experiment = "Sachs"
source = "sachs"
columns = ["standardised"]
sets = 1
methods = ["dibs"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_grid_that_is_shipped_can_be_run_and_has_what_the_paper_has() -> None:
    plan, small = load(), load(quick=True)
    fits = [run for group in plan.groups for run in group if isinstance(run, Fit)]
    assert len({json.dumps(run.what(), sort_keys=True) for run in fits}) == len(fits)
    for group in plan.groups:
        assert len({(run.what() | {"index": None}).__repr__() for run in group}) == 1
    sets = Counter((run.nodes, run.mechanism, run.graph, run.columns, run.method) for run in fits if run.edges)
    for mechanism, graph in product(("linear", "gp"), ("er", "sf")):
        for method in ("vcuda-paper", "auto", "dibs-reference", "bayesdag-reference", "grandag-reference"):
            assert sets[10, mechanism, graph, "raw", method] >= 10
            assert sets[10, mechanism, graph, "standardised", method] >= 3
    assert sum(run.source == "sachs" and run.method == "vcuda-paper" for run in fits) == 10
    assert {run.options["order_temperature"] for run in fits if run.method.startswith("vcuda-t")} == {
        0.1,
        0.3,
        0.5,
        1.0,
    }
    assert {run.nodes for group in plan.groups for run in group if isinstance(run, Draw)} == {500, 1000, 3000, 5000}
    assert small.end_minutes is not None
    # The last run begins before the end and is ended from outside half a limit after its own.
    assert small.end_minutes + 1.5 * small.limit_minutes <= 10
    assert {run.nodes for group in small.groups for run in group if isinstance(run, Fit)} <= {10, 11}


def test_methods_mean_what_their_conditions_say(tmp_path: Path) -> None:
    text = GRID.replace('["empty", "variance-sort"]', '["dibs"]').replace('["raw"]', '["raw", "standardised"]')
    runs = {run.words(): run for group in load(written(tmp_path, text)).groups for run in group if isinstance(run, Fit)}
    assert runs["paper er linear d=5 e=5 raw dibs index=0"].options == {}
    assert runs["paper sf linear d=5 e=5 raw dibs index=1"].options == {"graph_prior": "sf"}
    assert runs["paper sf linear d=5 e=5 standardised dibs index=0"].options == {"graph_prior": "sf", "particles": 7}
    assert len(runs) == 8


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"empty", "variance-sort"', '"emty"', "methods in runs 1 names 'emty'; did you mean 'empty'?"),
        ('engine = "dibs"', 'engine = "dibbs"', "engine in method 'dibs' names 'dibbs'; did you mean 'dibs'?"),
        ("edges_per_node = [1]", "edges_pr_node = [1]", "runs 1 has a key 'edges_pr_node'; did you mean"),
        ("sets = 2", "sets = 0", "sets in runs 1 must be whole numbers of at least 1, not 0"),
        ("sets = 2\n", "", "runs 1 of the grid needs sets"),
        ('mechanism = ["linear"]', 'mechanism = ["linaer"]', "did you mean 'linear'?"),
        ("particles = 7", "partikles = 7", "engine dibs does not take the options"),
        ('preset = "reference"', 'preset = "paper"', "preset of engine empty must be one of reference, fixed"),
        ('"any", "topk"', '"top"', "did you mean 'topk'?"),
        ("limit_minutes = 0.5", "limit_minutes = -1", "limit_minutes of grid.toml must be a positive number"),
        ("[methods.empty]", "[methods.empty", "grid.toml is no TOML file"),
    ],
)
def test_mistakes_in_the_grid_are_told_in_a_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in GRID
    text = GRID.replace('"empty", "variance-sort"', '"empty", "dibs"') if "preset" not in old else GRID
    text = text.replace('columns = ["raw"]', 'columns = ["standardised"]')
    old = old.replace("variance-sort", "dibs")
    with pytest.raises(ConfigError) as raised:
        load(written(tmp_path, text.replace(old, new)), quick="limit" in old)
    assert sentence in str(raised.value)


def test_a_fit_of_the_grid_has_all_measures_and_a_method_without_functions_no_error() -> None:
    case = Fit("paper", "er", "linear", 5, 5, 1000, "standardised", "exact", "exact", "default", {"model": "linear"})
    line = measure_fit(case)
    assert set(line) >= {"auc", "ap", "auc_full", "ap_full", "expected_shd", "brier", "mse", "nll", "variance"}
    assert set(line) >= {"seconds", "seconds_compilation", "peak_mb", "status", "scores", "precision_at_recall"}
    # Columns of variance one whose fresh rows are predicted from the same functions: better than their mean.
    assert 0 < line["mse"] < 0.95 * line["variance"]
    assert sum(line["bin_pairs"]) == 20
    assert sum(line["bin_true"]) == line["true_edges"]
    assert line["precision_at_recall"][0] >= line["precision_at_recall"][-1]
    assert json.loads(json.dumps(line)) == line
    bare = measure_fit(replace(case, method="variance-sort", engine="variance-sort", preset="reference", options={}))
    assert "mse" not in bare
    assert bare["expected_shd"] >= 0


def test_compilation_is_counted_once_and_only_while_watched() -> None:
    watch = Compiling()
    watch._spans = [(0.0, 2.0), (1.0, 1.5), (3.0, 4.0), (3.5, 5.0)]  # one inside another, two that overlap
    assert watch.seconds == pytest.approx(4.0)
    jax.jit(lambda x: x * 2.5)(jax.numpy.ones(3))
    assert watch.seconds == pytest.approx(4.0)
    with watch.watched():
        jax.jit(lambda x: x * 3.5)(jax.numpy.ones(3))
    assert 0 < watch.seconds < 30


def test_runs_over_their_limit_are_ended_and_hopeless_ones_given_up() -> None:
    def told(engine: str, done: list[float]) -> Watch:
        """Told of so many of 1,000 steps, once a second, with a limit of ten seconds."""
        seconds = iter(range(100))
        watch = Watch(engine, 10.0, clock=lambda: float(next(seconds)))
        try:
            for steps in done:
                watch(Progress(steps, 1000, ""))
        except KeyboardInterrupt:
            assert watch.over
        return watch

    # A step a second, of which a thousand are needed.
    assert told("dibs", [1, 2, 3]).foreseen == pytest.approx(1000, rel=0.01)
    # Slow at first and quick afterwards, before a quarter of the limit has passed: no reason to give up.
    assert not told("dibs", [1, 100, 300]).over
    assert not told("grandag", [1, 2, 3]).over  # it may end before all its steps are taken
    late = told("grandag", [*range(11)])
    assert late.over
    assert late.foreseen is None


@pytest.mark.slow
def test_the_grid_is_resumed_where_it_was_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = written(tmp_path, GRID)
    common = ["--grid", str(grid), "--results", str(tmp_path)]
    assert paper_main([*common, "--only", "er linear d=5 e=5 raw empty"]) == 0
    first = (tmp_path / "paper.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in first.splitlines()]
    assert [line["index"] for line in lines] == [0, 1]
    assert all(set(line) >= {"commit", "versions", "first", "jobs", "seconds", "status"} for line in lines)
    capsys.readouterr()
    assert paper_main([*common, "--only", "er linear", "--limit-minutes", "0"]) == 0
    assert "4 runs, 2 of them stored (ok 2)" in capsys.readouterr().err
    assert paper_main([*common, "--only", "er linear"]) == 0
    second = (tmp_path / "paper.jsonl").read_text(encoding="utf-8")
    assert second.startswith(first)
    assert len(second.splitlines()) == 4
    assert paper_main([*common, "--list"]) == 0
    assert capsys.readouterr().out.count("\n") == 10
    assert paper_main(["--grid", str(written(tmp_path, GRID.replace('"empty", ', '"emty", ')))]) == 2
    assert "did you mean 'empty'?" in capsys.readouterr().err


def test_a_run_that_does_not_answer_is_ended_and_told(tmp_path: Path) -> None:
    records = Records("paper", folder=tmp_path)
    case = Fit("paper", "er", "linear", 5, 5, 1000, "raw", "empty", "empty", "reference")
    runner = Runner[Fit](
        "benchmarks.paper.measuring",
        records,
        sent={"processor_limit": 1.0, "clock_limit": 1.0},
        jobs=1,
        deadline=math.inf,
        report=lambda case, line: None,
        patience=0.05,  # a process needs longer to start
    )
    assert runner.run([[case]])
    assert "ended from outside" in records.lines[0]["error"]
