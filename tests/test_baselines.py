"""One list of promises that every baseline keeps, whatever its method, and the law that holds its result."""

import json
import time
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from problems import run_baseline

import vcuda
from vcuda.baselines import BASELINES
from vcuda.baselines.base import check_options, found, ranking
from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError
from vcuda.infer.engine import Problem
from vcuda.posterior.point import Networks, ScoredGraphs
from vcuda.posterior.posterior import Outcome, Posterior, Status
from vcuda.posterior.samples import GraphSamples
from vcuda.specs import from_json, to_json

NODES = 5
# Enough to go through every part of a method once, and no more.
SMALL = {
    "base-rate": {"samples": 20},
    "grandag": {"hidden": (4,), "iterations": 250},
    "mcsl": {"hidden": (4,), "rounds": 3, "steps": 40},
    "dds": {"hidden": (4,), "epochs": 6},
    "dibs": {"particles": 4, "steps": 60, "samples": 16, "constraint_samples": 4},
    "bayesdag": {"chains": 3, "samples": 7, "epochs": 2, "thin": 2},
}
# Options with which a method would run for minutes, and never ends by itself before a deadline.
LONG = {
    "grandag": {"hidden": (4,), "iterations": 10_000_000, "tolerance": 0.0, "clamp": 0.0},
    "mcsl": {"hidden": (4,), "rounds": 10_000, "steps": 100_000},
    "dds": {"hidden": (4,), "epochs": 10_000_000, "patience": 10_000_000},
    "dibs": {"particles": 4, "steps": 100_000_000},
    "bayesdag": {"chains": 3, "samples": 7, "epochs": 10_000_000},
}
METHODS = [
    pytest.param(name, preset, marks=[pytest.mark.slow] if name in LONG else [])
    for name in BASELINES
    for preset in ("reference", "corrected")
]


def table():
    return vcuda.simulate("sf", nodes=NODES, edges=NODES, rows=80, test_rows=10, seed=5).train


@lru_cache
def result_of(name, preset, seed=1):
    return run_baseline(getattr(BASELINES[name].spec, preset)(**SMALL.get(name, {})), table(), seed=seed)


@pytest.mark.parametrize(("name", "preset"), METHODS)
class TestContract:
    def test_the_spec_survives_json_and_is_hashable(self, name, preset):
        kind = BASELINES[name].spec
        spec = getattr(kind, preset)(**SMALL.get(name, {}))
        again = from_json(
            json.loads(json.dumps(to_json(spec))), {name: method.spec for name, method in BASELINES.items()}
        )
        assert again == spec
        assert hash(again) == hash(spec)
        assert to_json(spec)["name"] == name == kind.name

    def test_graphs_are_acyclic_and_named(self, name, preset):
        result = result_of(name, preset)
        assert isinstance(result, Outcome)
        assert result.graph_posterior.graphs.names == table().names
        assert result.graph_posterior.graphs.all_acyclic()

    def test_scores_rank_edges(self, name, preset):
        scores = result_of(name, preset).graph_posterior.scores
        assert scores.shape == (NODES, NODES)
        assert scores.dtype == np.float64
        assert np.isfinite(scores).all()
        assert scores.min() >= 0
        assert not np.diag(scores).any()

    def test_the_same_seed_gives_the_same_result(self, name, preset):
        spec = getattr(BASELINES[name].spec, preset)(**SMALL.get(name, {}))
        first, again = result_of(name, preset).graph_posterior, run_baseline(spec, table(), seed=1).graph_posterior
        np.testing.assert_array_equal(first.scores, again.scores)
        np.testing.assert_array_equal(first.graphs.dense(), again.graphs.dense())

    def test_the_table_is_untouched(self, name, preset):
        data = table()
        before = data.values.copy()
        run_baseline(getattr(BASELINES[name].spec, preset)(**SMALL.get(name, {})), data, seed=2)
        np.testing.assert_array_equal(data.values, before)

    def test_what_is_told_can_be_stored(self, name, preset):
        result = result_of(name, preset)
        assert json.loads(json.dumps(result.diagnostics)) == result.diagnostics
        assert all(isinstance(series, np.ndarray) for series in result.trace.values())
        assert result.status.sentence.endswith(".")

    def test_a_deadline_ends_it_with_a_whole_result(self, name, preset):
        spec = getattr(BASELINES[name].spec, preset)(**LONG.get(name, {}))
        begun = time.monotonic()
        result = run_baseline(spec, table(), seed=1, deadline=begun + 0.3)
        # Compiling, which no deadline can cut short, takes seconds on a busy machine; the whole run would take minutes.
        assert time.monotonic() - begun < 60
        assert result.graph_posterior.graphs.all_acyclic()
        assert np.isfinite(result.graph_posterior.scores).all()
        assert result.status.code == ("interrupted" if name in LONG else "ok")

    def test_it_survives_a_run_folder(self, name, preset, tmp_path):
        result = result_of(name, preset)
        seen = {
            "engine": {"name": name, **to_json(getattr(BASELINES[name].spec, preset)())},
            "model": {"name": name},
            "seed": 1,
            "seconds": 1.0,
            "versions": {},
            "data": {"rows": 80, "columns": NODES, "notes": []},
        }
        posterior = Posterior(table().names, *result, seen)
        posterior.save(tmp_path / "run")
        again = Posterior.load(tmp_path / "run")
        np.testing.assert_array_equal(again.graph_posterior.scores, result.graph_posterior.scores)
        np.testing.assert_array_equal(again.edge_probabilities, result.graph_posterior.edge_probabilities())
        np.testing.assert_array_equal(again.sample(10).dense(), posterior.sample(10).dense())
        if result.graph_posterior.networks is None:
            with pytest.raises(ConfigError, match="no functions to predict with"):
                again.predict(table())
        else:
            assert again.held_out(table()) == posterior.held_out(table())


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LONG))
def test_the_user_can_interrupt(name):
    def stop(progress):
        raise KeyboardInterrupt

    result = run_baseline(BASELINES[name].spec.corrected(**LONG[name]), table(), seed=1, progress=stop)
    assert result.status.code == "interrupted"
    assert "the user" in result.status.sentence


@pytest.mark.slow
def test_numbers_that_are_not_finite_end_in_a_failure_with_a_sound_state():
    far_too_fast = {"grandag": {"learning_rate": 1e200}, "mcsl": {"learning_rate": 1e30}}
    for name, changes in far_too_fast.items():
        result = run_baseline(BASELINES[name].spec.corrected(**SMALL[name] | changes), table(), seed=1)
        assert result.status.code == "failed"
        assert np.isfinite(result.graph_posterior.scores).all()
        assert result.graph_posterior.graphs.all_acyclic()


@pytest.mark.slow
def test_the_smallest_table_will_do():
    data = vcuda.as_dataset(np.random.default_rng(0).normal(size=(5, 2)))
    for name, method in BASELINES.items():
        result = run_baseline(method.spec.corrected(**SMALL.get(name, {})), data, seed=0)
        assert result.graph_posterior.scores.shape == (2, 2)
        assert result.graph_posterior.graphs.all_acyclic()


class TestRanking:
    def test_the_diagonal_is_never_above_an_edge(self):
        logits = np.array([[0.0, -5.0, 2.0], [-1.0, 0.0, -9.0], [3.0, 1.0, 0.0]])
        edges = ~np.eye(3, dtype=bool)
        scores = ranking(logits)
        assert scores[edges].min() == 0
        np.testing.assert_array_equal(np.argsort(scores[edges]), np.argsort(logits[edges]))
        assert logits[0, 1] == -5  # not changed in place

    def test_what_is_not_a_number_comes_last(self):
        assert ranking(np.array([[0.0, np.nan], [2.0, 0.0]])).tolist() == [[0, 0], [2, 0]]


def test_options_out_of_range_are_refused_by_name():
    spec = BASELINES["base-rate"].spec()
    with pytest.raises(ConfigError, match="samples of base-rate must be at least 1, not 0"):
        replace(spec, samples=0)
    with pytest.raises(ConfigError, match="scores of grandag must be one of jacobian, paths, final paths, not 'best'"):
        BASELINES["grandag"].spec(scores="best")
    check_options(spec, at_least={"samples": 1})


class TestScoredGraphs:
    def graphs(self):
        cube = np.zeros((2, 2, 2), dtype=bool)
        cube[0, 0, 1] = cube[1, 1, 0] = True
        return GraphSamples.from_dense(("a", "b"), cube, np.array([0.25, 0.75]))

    def networks(self):
        """a's function of b has weight 2, b's of a has weight 3; two noise variances."""
        weights = np.array([[0.0, 3.0], [2.0, 0.0]])[None, :, :, None]
        return Networks((weights,), (np.array([[[1.0], [0.0]]]),), np.log([[4.0, 1.0]]))

    def test_predictions_by_hand(self):
        graph_posterior = ScoredGraphs(self.graphs(), np.zeros((2, 2)), self.networks())
        rows = np.array([[1.0, 5.0]])
        drawn = graph_posterior.sample(np.random.default_rng(0), ("a", "b"), 4000).edge_probabilities()[1, 0]
        seen = graph_posterior.predict(np.random.default_rng(0), rows, 4000)
        # a -> b predicts (1, 3), b -> a predicts (11, 0); `drawn` is the share of the second among the same draws.
        np.testing.assert_allclose(seen.mean, [[1 + 10 * drawn, 3 * (1 - drawn)]])
        np.testing.assert_allclose(seen.mse, (1 - drawn) * (0 + 4) / 2 + drawn * (100 + 25) / 2)
        first = np.exp(-0.5 * (0 / 4 + 4)) / (2 * np.pi * 2)
        second = np.exp(-0.5 * (100 / 4 + 25)) / (2 * np.pi * 2)
        np.testing.assert_allclose(np.exp(seen.log_density), [(1 - drawn) * first + drawn * second])

    def test_probabilities_are_those_of_the_graphs(self):
        graph_posterior = ScoredGraphs(self.graphs(), np.array([[0.0, 7.0], [3.0, 0.0]]))
        assert graph_posterior.edge_probabilities().tolist() == [[0, 0.25], [0.75, 0]]

    def test_shapes_that_do_not_fit_are_refused(self):
        with pytest.raises(ConfigError, match="scores must have the shape"):
            ScoredGraphs(self.graphs(), np.zeros((3, 3)))
        three = Networks((np.zeros((3, 2, 2, 1)),), (), np.zeros((3, 2)))
        with pytest.raises(ConfigError, match="2 graphs of 2 nodes need networks"):
            ScoredGraphs(self.graphs(), np.zeros((2, 2)), three)
        with pytest.raises(ConfigError, match="one output"):
            Networks((np.zeros((1, 2, 2, 3)),), (), np.zeros((1, 2)))


def test_an_outcome_is_what_an_engine_returns():
    samples = GraphSamples.from_dense(("a", "b"), [[False, True], [False, False]])
    units = Scaling(np.ones(2), np.full(2, 3.0))
    problem = Problem(vcuda.as_dataset(np.random.default_rng(0).normal(size=(5, 2)), names=["a", "b"]), 0, units=units)
    status, trace = Status("ok", "Done."), {"loss": np.ones(2)}
    outcome = found(problem, samples, np.eye(2)[::-1] * 4.0, status, {"steps": 3}, trace)
    assert outcome.graph_posterior.scores[0, 1] == 4.0
    assert outcome.graph_posterior.edge_probabilities()[0, 1] == 1.0
    assert outcome.graph_posterior.units is units
    assert outcome[1:] == (status, {"steps": 3}, trace)
