"""The benchmarks: their grids, measured lines, the draws from the prior, resumption, and honest tables."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from benchmarks.paper import findings
from benchmarks.paper import main as paper_main
from benchmarks.paper.document import DOCS, write, written
from benchmarks.paper.figures import draw_all, pictures
from benchmarks.paper.findings import all_findings, main_findings
from benchmarks.paper.lines import Results, leaders, paired
from benchmarks.paper.measuring import Limits, Watch, measure_fit
from benchmarks.paper.plan import load
from benchmarks.paper.published import BESIDE, theirs
from benchmarks.paper.runs import Draw, Fit
from benchmarks.paper.tables import _over, all_tables, by_method
from benchmarks.peers import Setting, _programs_table, pairs
from benchmarks.problems import problem
from benchmarks.processes import Runner, selected
from benchmarks.records import Records
from vcuda.errors import ConfigError, MissingExtraError
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


@pytest.mark.slow
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
    assert one.score(0, [1, 2]) == pytest.approx(other.score(0, [1, 2]))
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


@pytest.mark.slow
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
    reports = tables("paper-d10", records.lines)
    assert "2 of 2 runs are stored, 1 of them failed" in reports
    assert "no such noise" in reports.splitlines()[-1]
    assert "| 1 of 1 |" in reports
    assert "| 0 of 1 |" in reports
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


def grid_file(folder: Path, text: str) -> Path:
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
    runs = {
        run.words(): run for group in load(grid_file(tmp_path, text)).groups for run in group if isinstance(run, Fit)
    }
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
        load(grid_file(tmp_path, text.replace(old, new)), quick="limit" in old)
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
    def report(engine: str, done: list[float]) -> Watch:
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
    assert report("dibs", [1, 2, 3]).foreseen == pytest.approx(1000, rel=0.01)
    # Slow at first and quick afterwards, before a quarter of the limit has passed: no reason to give up.
    assert not report("dibs", [1, 100, 300]).over
    assert not report("grandag", [1, 2, 3]).over  # it may end before all its steps are taken
    late = report("grandag", [*range(11)])
    assert late.over
    assert late.foreseen is None
    # The fit takes every interrupt for one from the keyboard; the line says who it was.
    ended = "Stopped by the user after 10 iterations: not finished."
    limit = "the benchmark's limit of 10 seconds"
    assert late.sentence(ended) == f"Stopped by {limit} after 10 iterations: not finished."
    assert late.sentence("There is no result.") == f"Ended by {limit}: There is no result."
    given_up = report("dibs", [1, 2, 3])
    assert f"by {limit}, which it would have passed ({given_up.foreseen:.0f} seconds foreseen)," in given_up.sentence(
        ended
    )
    assert report("dibs", [1, 100, 300]).sentence(ended) == ended


@pytest.mark.parametrize("engine", ["dibs", "orders", "exact"])
def test_a_fit_that_the_limit_ends_says_that_it_was_the_limit(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*arguments: object, progress: Watch, **options: object) -> None:
        progress(Progress(1, 10, ""))
        raise AssertionError("a run over its limit goes on")

    monkeypatch.setattr("benchmarks.paper.measuring.fit", ended)
    case = Fit("paper", "er", "linear", 5, 5, 1000, "raw", engine, engine, "default")
    line = measure_fit(case, limits=Limits(-1.0, 1e9))
    assert line["over_limit"]
    assert line["status"] == "interrupted"
    assert "benchmark's limit" in line["status_sentence"]
    assert "auc" not in line


@pytest.mark.slow
def test_the_grid_is_resumed_where_it_was_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = grid_file(tmp_path, GRID)
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
    assert paper_main(["--grid", str(grid_file(tmp_path, GRID.replace('"empty", ', '"emty", ')))]) == 2
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


# Three methods of three families on 3 sets of two kinds of columns, an ablation, Sachs and samplers.
SHOWN = """
[methods.exact]
title = "exact"
engine = "exact"
options = { model = "linear" }
[methods.vcuda-paper]
title = "VCUDA, as published"
engine = "straight-through"
preset = "paper"
[methods.dds-reference]
title = "DDS"
engine = "dds"
preset = "reference"
[methods.variance-sort]
title = "sorted by variance"
engine = "variance-sort"
preset = "reference"
[methods.vcuda-t03]
title = "t = 0.3"
engine = "straight-through"
preset = "paper"
options = { order_temperature = 0.3 }
[methods.vcuda-t10]
title = "t = 1.0"
engine = "straight-through"
preset = "paper"
options = { order_temperature = 1.0 }

[[runs]]
experiment = "all"
nodes = [10]
edges_per_node = [1]
mechanism = ["linear"]
graph = ["er"]
columns = ["raw", "standardised"]
sets = 3
methods = ["exact", "vcuda-paper", "dds-reference", "variance-sort"]
[[runs]]
experiment = "time"
nodes = [10, 30]
edges_per_node = [1]
mechanism = ["gp"]
graph = ["er"]
columns = ["raw"]
sets = 1
methods = ["vcuda-paper", "dds-reference"]
[[runs]]
experiment = "ablation"
nodes = [10]
edges_per_node = [1]
mechanism = ["linear"]
graph = ["er"]
columns = ["raw"]
sets = 3
methods = ["vcuda-t03", "vcuda-t10"]
[[runs]]
experiment = "Sachs"
source = "sachs"
columns = ["standardised"]
sets = 2
methods = ["vcuda-paper", "dds-reference"]
[[sampling]]
experiment = "sampling"
nodes = [500, 1000]
distributions = ["priority", "topk"]
"""
APS = {
    "exact": 0.9,
    "vcuda-paper": 0.8,
    "dds-reference": 0.6,
    "variance-sort": 0.7,
    "vcuda-t03": 0.75,
    "vcuda-t10": 0.5,
}


def line_of(run: Fit | Draw, ap: float | None = None) -> dict[str, object]:
    """What a run might have found: its AP is that of the method, a hundredth more with every set."""
    common = {"commit": "abc", "first": True, "jobs": 1, "status": "ok", "seconds": 3.0, "peak_mb": 200.0}
    if isinstance(run, Draw):
        times = {"clock": run.nodes / 100 * (2 if run.distribution == "topk" else 1), "processor": 1.0}
        timing = {"nodes": run.nodes, "distribution": run.distribution, "method": "JAX, graph", "milliseconds": times}
        return run.what() | common | {"timings": [timing | {"ratio": None, "published_gpu_milliseconds": 1.25}]}
    value = (APS.get(run.method, 0.5) if ap is None else ap) + 0.01 * run.index
    ranked = dict.fromkeys(("ap", "auc", "ap_full", "auc_full", "skeleton_ap"), value)
    costs = {"seconds_compilation": 1.0, "processor_seconds": 2.5, "over_limit": False, "status_sentence": "Done."}
    bins = {"bin_pairs": [50, 30, 0, 0, 0, 0, 0, 0, 0, 20], "bin_true": [1, 5, 0, 0, 0, 0, 0, 0, 0, 18]}
    parts = {"bin_stated": [1.0, 4.5, 0, 0, 0, 0, 0, 0, 0, 19.0]}
    stated = {"brier": 0.05, "base_rate_brier": 0.09, "calibration_error": 0.02, "expected_edges": 9.0}
    more = {"true_edges": 10, "expected_shd": 4.0, "mse": 1.2, "precision_at_recall": [value] * 21}
    return run.what() | common | costs | ranked | bins | parts | stated | more


def results_of(folder: Path, lines: list[dict[str, object]], text: str = SHOWN) -> Results:
    (folder / "paper.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return Results(load(grid_file(folder, text)), Records("paper", folder=folder))


def runs_of(folder: Path) -> list[Fit | Draw]:
    return [run for group in load(grid_file(folder, SHOWN)).groups for run in group]


def test_sentences_follow_the_numbers(tmp_path: Path) -> None:
    runs = runs_of(tmp_path)
    reports = all_findings(results_of(tmp_path, [line_of(run) for run in runs]))
    assert f"{len(runs)} of {len(runs)} planned runs are stored. 0 runs failed" in reports
    # All sets differ by the same amount, so that the paired difference has no error.
    assert (
        "- ER linear, raw, d = 10, e = 10 (3 sets): highest mean AP exact 0.910, then VCUDA, as published 0.810 "
        "(difference 0.100 ± 0.000, clear)"
    ) in reports
    assert "has a higher mean AP: exact in 0 of 2. Compared, on the sets that both have, with" in reports
    assert "that have results (DDS in 3 settings): VCUDA as published is not behind any of these in 3 of 3" in reports
    assert (
        "- DDS is behind one in 2 of 2 settings: ER linear, raw, d = 10, e = 10 (0.610, sorted by variance" in reports
    )
    # Published: 0.951 and 0.822 for the AUC of VCUDA and DDS on these sets, and our fake ones are 0.81 and 0.61.
    assert "VCUDA, as published, ER linear, raw, d = 10, e = 10: 0.810, published 0.951 (-0.141)" in reports
    assert "of t = 0.3, 1: best mean AUC at t = 0.3 (0.760)" in reports
    assert (
        "- 500 nodes: the priorities of the paper take 5.00 ms a graph in JAX; Gumbel-Top-k takes 2.00 times" in reports
    )
    better = [line_of(run, 0.95 if getattr(run, "method", "") == "dds-reference" else None) for run in runs]
    reports = all_findings(results_of(tmp_path, better))
    assert "has a higher mean AP: exact in 2 of 2." in reports
    assert (
        "- ER linear, standardised, d = 10, e = 10: exact has a lower mean AP than DDS (0.910 against 0.960 on 3 sets, "
        "clear)."
    ) in reports
    assert "highest mean AP DDS 0.960" in reports
    tied = [line_of(run, 0.9 if getattr(run, "method", "") == "dds-reference" else None) for run in runs]
    assert "highest mean AP exact and DDS 0.910" in all_findings(results_of(tmp_path, tied))


def test_the_table_by_method_agrees_with_the_sentences(tmp_path: Path) -> None:
    results = results_of(tmp_path, [line_of(run) for run in runs_of(tmp_path)])
    rows = {line.split(" | ")[0]: line for line in by_method(results).splitlines()}
    # DDS: 2 settings of linear data, 2 of nonlinear, Sachs. AP 0.61 on both kinds of columns, behind 0.71 by variance.
    assert rows["| DDS"] == "| DDS | 5 | 0 of 5 | 2 of 2 | 0.610 → 0.610 (1) | 5 of 5 | 0.020 |"
    assert rows["| exact"] == "| exact | 2 | 2 of 2 | 0 of 2 | 0.910 → 0.910 (1) | 2 of 2 | 0.020 |"
    assert rows["| sorted by variance"].startswith("| sorted by variance | 2 | 0 of 2 |  |")
    brief = main_findings(results)
    assert "exact in 0 of 2. Compared" in brief
    assert "Further away" not in brief


def test_different_precision_of_equal_probabilities_is_explained() -> None:
    setting: Any = SimpleNamespace(words="Sachs")
    exact: Any = SimpleNamespace(method="exact", done=[{"ap": 0.4, "scores": [[0, 1.0], [0.2, 0]]}])
    orders: Any = SimpleNamespace(method="orders", done=[{"ap": 0.3, "scores": [[0, 1.0], [0.203, 0]]}])
    (reports,) = findings._tied(setting, [exact, orders])
    assert "differ by at most 0.003, and their AP are 0.400 and 0.300: 1 edge" in reports
    assert not list(findings._tied(setting, [exact, exact]))


def test_only_what_was_run_is_shown_and_the_rest_is_told(tmp_path: Path) -> None:
    wanted = "er linear d=10 e=10 raw"
    runs = [run for run in runs_of(tmp_path) if wanted in run.words() and "vcuda-t" not in run.words()]
    lines = [line_of(run) for run in runs if run.words() != f"paper {wanted} dds-reference index=2"]
    for line in lines:
        if line["method"] == "exact" and line["index"] == 1:
            line.update(over_limit=True, ap=0.0, status_sentence="Stopped by the limit.")
    lines.append({"kind": "fit", "method": "of another grid", "commit": "abc"})
    results = results_of(tmp_path, lines)
    page = written(results)
    everything = f"{all_findings(results)}\n\n{all_tables(results)}"
    assert "1 run did not end within 60 minutes" in page
    assert "1 stored line of runs that the grid no longer has" in page
    assert "- over the limit: exact; ER linear, raw, d = 10, e = 10, set 1: Stopped by the limit." in page
    assert "- not run: ER linear, raw, d = 10, e = 10: DDS (1 of 3), t = 0.3 (3 of 3), t = 1.0 (3 of 3)" in page
    assert "- not run: ER linear, standardised, d = 10, e = 10: nothing of 12 planned runs" in page
    # Sets 0 and 2 of `exact`: its run over the limit counts for nothing.
    assert "| exact | 2 of 3 | 0.910 ± 0.010 |" in everything
    assert "0.910 / 0.910 (2) |" in page
    # It is not ranked with those of three sets, but is ahead on the two that it has.
    assert "highest mean AP VCUDA, as published 0.810" in everything
    assert "On the 2 sets of exact, it has 0.910 where VCUDA, as published has 0.810." in everything
    for text in (everything, page):
        shown = text[: text.index("## What is not there")]
        for absent in ("standardised,", "nonlinear,", "Sachs,", "d = 30", "t = 0.3 |", "nodes |"):
            assert absent not in shown
    assert [picture.name for picture in pictures(results)] == [
        "paper-d10-e10-linear-raw",
        "paper-precision-recall-d10-e10",
        "paper-calibration-d10-e10",
    ]
    empty = results_of(tmp_path, [])
    assert list(pictures(empty)) == []
    assert f"0 of {empty.planned} planned runs are stored" in all_findings(empty)
    assert "|" not in all_tables(empty)


def test_hours_that_were_foreseen_are_a_range_only_where_they_differ() -> None:
    short, long = {"foreseen_seconds": 7200.0}, {"foreseen_seconds": 9000.0}
    assert _over([]) == ""
    assert _over([{}]) == "1"
    assert _over([short]) == "1; foreseen 2.0 hours"
    assert _over([long, {}, short]) == "3; foreseen 2.0 to 2.5 hours"


def test_a_difference_is_that_of_common_sets(tmp_path: Path) -> None:
    runs = [run for run in runs_of(tmp_path) if isinstance(run, Fit) and "linear d=10 e=10 raw" in run.words()]
    values = {"exact": [0.9, 0.5, 0.4], "variance-sort": [0.8, 0.6, math.nan]}
    lines = [line_of(run) | {"ap": values[run.method][run.index]} for run in runs if run.method in values]
    one, other = next(iter(results_of(tmp_path, lines).compared().values()))
    pair = paired(one, other, "ap")
    assert pair is not None
    assert pair.sets == 2
    # Differences 0.1 and -0.1: standard deviation 0.1 sqrt 2, over sqrt 2.
    assert (pair.one, pair.other, pair.error) == pytest.approx((0.7, 0.7, 0.1))
    assert not pair.clear
    # Differences 0.1, 0.1 and 0.04 on three sets: mean 0.08 and error 0.02, four times it. That would be clear by twice
    # the error, but with two degrees of freedom the 95 % quantile of t is 4.30.
    values = {"exact": [0.9, 0.9, 0.84], "variance-sort": [0.8, 0.8, 0.8]}
    lines = [line_of(run) | {"ap": values[run.method][run.index]} for run in runs if run.method in values]
    pair = paired(*next(iter(results_of(tmp_path, lines).compared().values())), "ap")
    assert pair is not None
    assert (pair.difference, pair.error) == pytest.approx((0.08, 0.02))
    assert not pair.clear
    restarts = [line_of(run) for run in runs_of(tmp_path) if "sachs" in run.words()]
    pair = paired(*next(iter(results_of(tmp_path, restarts).sachs().values())), "ap")
    assert pair is not None
    assert pair.error is None  # one table is no sample of tables
    assert [group.method for group in leaders([one, other], "ap")] == ["exact"]  # the other lacks a number


@pytest.mark.slow
def test_figures_and_page_are_written_and_the_same_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = runs_of(tmp_path)
    results = results_of(tmp_path, [line_of(run) for run in runs])
    common = ["--grid", str(tmp_path / "grid.toml"), "--results", str(tmp_path), "--docs", str(tmp_path)]
    assert paper_main([*common, "--write-docs", "--tables", "--findings"]) == 0
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert page == written(results)
    assert capsys.readouterr().out == f"{all_tables(results)}\n{all_findings(results)}\n"
    drawn = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    names = {picture.name for picture in pictures(results)}
    assert names >= {"paper-d10-e10-linear-raw", "paper-sachs", "paper-time", "paper-temperature", "paper-sampling"}
    assert set(drawn) == {f"{name}.{ending}" for name in names for ending in ("png", "pdf")}
    assert all(data.startswith(b"\x89PNG" if name.endswith("png") else b"%PDF") for name, data in drawn.items())
    assert all(f"](figures/{name})" in page for name in drawn)
    # Sachs: ours, Table 1, the ten runs of the authors.
    assert "| VCUDA, as published | standardised | 2 of 2 | 0.805 ± 0.005 | 0.710 ± 0.040 | 0.714 ± 0.048 |" in page
    # With fewer lines the figures that they do not give are gone, and the others are the same to the last byte.
    write(results_of(tmp_path, [line_of(run) for run in runs if isinstance(run, Draw)]), tmp_path)
    left = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert left == {name: drawn[name] for name in ("paper-sampling.png", "paper-sampling.pdf")}


def test_without_matplotlib_the_install_line_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_of(tmp_path, [line_of(run) for run in runs_of(tmp_path)])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "paper-time" in {picture.name for picture in pictures(results)}
    with pytest.raises(MissingExtraError, match="vcuda\\[plots\\]"):
        draw_all(results, tmp_path)


@pytest.mark.slow
def test_every_run_of_the_shipped_grid_can_be_shown(tmp_path: Path) -> None:
    plan = load()
    lines = [line_of(run) for group in plan.groups for run in group]
    (tmp_path / "paper.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    results = Results(plan, Records("paper", folder=tmp_path))
    page = written(results)
    assert "## What is not there" not in page
    assert all(title in page for title in plan.titles().values() if not title.startswith("VCUDA, t ="))
    assert {group.method for group in results.groups if group.family == "ablation"} == {
        *("vcuda-t01", "vcuda-t03", "vcuda-t05", "vcuda-t10")
    }
    # Four settings of six methods at d = 10, and no number for what the authors did not run at d = 100.
    assert all(
        theirs(method, 10, 10, graph, kind) for method in BESIDE for graph in ("er", "sf") for kind in ("linear", "gp")
    )
    assert theirs("dibs-reference", 100, 100, "er", "linear") is None
    assert theirs("vcuda-paper", 10, 20, "er", "linear") is None


@pytest.mark.slow
def test_the_page_of_results_is_what_the_stored_lines_make() -> None:
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    assert page == written(Results(load(), Records("paper")))
    assert page.count("\n") < 350


def test_beside_other_programs_each_side_is_the_mean_of_its_seeds() -> None:
    setting: Setting = ("er", "linear")
    pair = pairs(setting, "short")[0]
    which = {"program": pair.program, "graph": setting[0], "mechanism": setting[1], "options": pair.theirs}

    def run(auc: float) -> dict[str, float]:
        return {"auc_full": auc, "seconds": 1.0, "seconds_cpu": 1.0}

    lines = [which | {"index": i, "ours": run(0.7), "theirs": run(0.8 + 0.1 * i)} for i in range(2)]
    ours = [which | {"index": i, "auc_full": [0.6, 0.8]} for i in range(2)]
    more = [which | {"index": i, "auc_full": [0.5, 0.5 - 0.1 * i]} for i in range(2)]

    def cells(*again: list[dict[str, object]]) -> list[str]:
        row = _programs_table(lines, *again).splitlines()[2]
        return [cell.strip() for cell in row.split("|")][5:11]

    assert cells([], []) == ["0.700", "0.850", "-0.150 (0.050)", "", "", ""]
    assert cells(ours, []) == ["0.700", "0.850", "-0.150 (0.050)", "0.700", "", "-0.150 (0.050)"]
    assert cells(ours, more[:1]) == cells(ours, [])
    assert cells(ours, more) == ["0.700", "0.850", "-0.150 (0.050)", "0.700", "0.600", "+0.100 (0.000)"]
