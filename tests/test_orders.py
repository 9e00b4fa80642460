"""The orders engine, against the exact posterior."""

import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from vcuda.data.simulate import simulate
from vcuda.errors import ConfigError
from vcuda.graphs import cpdag, enumerate_dags
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.infer.orders.diagnostics import judge
from vcuda.infer.orders.graph_weights import weigh_by_orders
from vcuda.infer.orders.hill_climb_check import log_score_of
from vcuda.infer.orders.ladders import parents_first
from vcuda.infer.orders.sampling import Orders, run_orders
from vcuda.metrics import average_precision
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.linear import BGe, EqualNoise
from vcuda.posterior.samples import GraphSamples

# The same sizes in most tests, so that the sweeps are compiled once.
SPEC = Orders(levels=5, hottest=0.1, sweeps=400, max_sweeps=4000, precision=0.004)


@pytest.fixture(scope="module")
def seven():
    return simulate("er", nodes=7, edges=8, noise="unequal", rows=100, test_rows=1, seed=4)


def exact(score, **prior):
    return exact_posterior(score, edge_prior(score.nodes, **prior), samples=10, rng=np.random.default_rng(0))


def assert_close(found, expected):
    """Within five standard errors of the edge that is known worst, as the engine itself estimates them."""
    error = found.diagnostics["standard_error"]
    assert error < 0.02
    assert np.abs(found.edge_probabilities - expected.edge_probabilities).max() < 5 * error + 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("spec", [EqualNoise(variance=1.0), EqualNoise(), BGe()], ids=["equal", "shared", "bge"])
def test_agrees_with_the_exact_posterior(seven, spec):
    score = spec.prepare(seven.train.values)
    expected = exact(score, edge_probability=0.2)
    found = run_orders(SPEC, score, edge_prior(score.nodes, 0.2), seed=1, samples=500, names=seven.train.names)
    assert_close(found, expected)
    assert found.status.code == "ok"
    # Annealed importance sampling of 60 sweeps: its spread between replicas is below 2 nats here.
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=4.0)
    if found.noise_variance is not None:
        # The posterior mode against the mean: both within a fraction of its width sqrt(2 / (n d)) = .05.
        assert found.noise_variance == pytest.approx(expected.noise_variance, rel=0.02)
    assert found.samples.names == seven.train.names
    assert len(found.samples) == 500
    assert found.samples.all_acyclic()
    places = np.argsort(found.orders, axis=1)
    for k in range(0, 500, 25):
        sources, targets = found.samples.edges(k)
        assert np.all(places[k][sources] < places[k][targets])
    # 500 draws of correlated orders count at least as 100: five standard errors of a share are .25.
    assert np.abs(found.samples.edge_probabilities() - found.edge_probabilities).max() < 0.25


@pytest.mark.slow
def test_both_directions_of_every_open_pair_are_found(seven):
    score = BGe().prepare(seven.train.values)
    found = run_orders(SPEC, score, edge_prior(score.nodes, 0.2), seed=2, samples=10)
    pattern = cpdag(seven.graph)
    both = found.edge_probabilities[pattern & pattern.T]
    assert both.size
    expected = exact(score, edge_probability=0.2).edge_probabilities[pattern & pattern.T]
    assert np.all((both > 0.02) == (expected > 0.02))


@pytest.mark.slow
def test_knowledge_is_obeyed_and_weighed_as_in_the_exact_engine(seven):
    score = BGe().prepare(seven.train.values)
    allowed = np.ones((7, 7), dtype=bool)
    allowed[:, 0] = False
    allowed[3, 5] = False
    required = np.zeros((7, 7), dtype=bool)
    required[1, 2] = required[2, 4] = True
    prior: dict[str, Any] = {"edge_probability": 0.3, "allowed": allowed, "required": required}
    expected = exact(score, **prior)
    found = run_orders(SPEC, score, edge_prior(7, **prior), seed=3, samples=200)
    assert_close(found, expected)
    graphs = found.samples.dense()
    assert not graphs[:, ~allowed].any()
    assert graphs[:, 1, 2].all()
    assert graphs[:, 2, 4].all()
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=4.0)


@pytest.mark.slow
def test_single_log_odds_are_those_of_the_exact_engine(seven):
    score = BGe().prepare(seven.train.values)
    odds = np.random.default_rng(0).normal(-1.5, 1.5, (7, 7))
    found = run_orders(SPEC, score, edge_prior(score.nodes, 0.1, log_odds=odds), seed=3, samples=10)
    assert_close(found, exact(score, edge_probability=0.1, log_odds=odds))


@pytest.mark.slow
@pytest.mark.parametrize("knowledge", [False, True])
def test_a_prior_over_graphs_is_that_of_the_exact_engine(seven, knowledge):
    score = BGe().prepare(seven.train.values[:40, :5])
    prior: dict[str, Any] = {"edge_probability": 0.3, "over": "graphs"}
    if knowledge:
        required, allowed = np.zeros((5, 5), dtype=bool), np.ones((5, 5), dtype=bool)
        required[1, 2], allowed[:, 0] = True, False
        prior |= {"required": required, "allowed": allowed}
    expected = exact(score, **prior)
    found = run_orders(SPEC, score, edge_prior(5, **prior), seed=3, samples=1000)
    effective = found.diagnostics["effective_graphs"]
    assert 500 < effective < len(found.samples)
    assert found.status.code == "ok"
    probabilities = expected.edge_probabilities
    # Five standard errors of a share of the effective graphs, and five of the orders that they were drawn from.
    error = np.sqrt(probabilities * (1 - probabilities) / effective) + found.diagnostics["standard_error"]
    assert (np.abs(found.edge_probabilities - probabilities) <= 5 * error + 1e-3).all()
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=4.0)
    # The weights are what makes the difference: without them edges are those of a prior over orders.
    by_orders = exact(score, **(prior | {"over": "orders"})).edge_probabilities
    assert np.abs(by_orders - probabilities).max() > 0.04


@pytest.mark.slow
def test_warns_where_the_weights_of_graphs_leave_few_of_them(seven, monkeypatch):
    monkeypatch.setattr("vcuda.infer.orders.diagnostics.WARN_EFFECTIVE_GRAPHS", 1e6)
    score = BGe().prepare(seven.train.values[:, :4])
    found = run_orders(SPEC, score, edge_prior(4, 0.3, over="graphs"), seed=3, samples=100)
    assert found.status.code == "warning"
    assert "effective ones; use engine exact, fewer columns, or a prior over orders" in found.status.sentence


def test_as_many_graphs_are_weighted_as_there_is_time_for():
    drawn = GraphSamples.from_dense(tuple("abc"), np.repeat(enumerate_dags(3), 20, axis=0))
    every, few = (weigh_by_orders(drawn, go_on=lambda known=known: known) for known in (True, False))
    assert (len(every.samples), len(few.samples)) == (500, 200)
    np.testing.assert_allclose(few.samples.weights, every.samples.weights[:200] / every.samples.weights[:200].sum())
    # The empty graph has six orders, a complete one has one.
    complete = int(np.flatnonzero(every.samples.edge_counts() == 3)[0])
    assert every.samples.weights[complete] == pytest.approx(6 * every.samples.weights[0])


@pytest.mark.slow
def test_chosen_candidates_lose_little(seven):
    score = EqualNoise(variance=1.0).prepare(seven.train.values)
    spec = Orders(levels=5, hottest=0.1, full=0, max_candidates=5, fill=0)
    found = run_orders(spec, score, edge_prior(score.nodes, 0.2), seed=1, samples=10)
    difference = np.abs(found.edge_probabilities - exact(score, edge_probability=0.2).edge_probabilities)
    # What is left out had gains below -4 nats, a share of e^-4 = .02 each.
    assert difference.max() < 0.05


@pytest.mark.slow
def test_same_seed_same_result_and_input_untouched(seven):
    values = seven.train.values.copy()
    spec = Orders(levels=5, hottest=0.1, sweeps=20, max_sweeps=20)
    first, second, other = (
        run_orders(spec, BGe().prepare(values), edge_prior(values.shape[1], 0.2), seed=seed, samples=20)
        for seed in (5, 5, 6)
    )
    assert np.array_equal(first.edge_probabilities, second.edge_probabilities)
    assert np.array_equal(first.samples.sources, second.samples.sources)
    assert first.log_evidence == second.log_evidence
    assert not np.array_equal(first.edge_probabilities, other.edge_probabilities)
    assert np.array_equal(values, seven.train.values)


@pytest.mark.slow
def test_hub_with_more_parents_than_bits():
    truth = simulate("sf", nodes=40, edges=40, seed=8)
    parents = truth.graph.sum(axis=0).max()
    score = EqualNoise(variance=1.0).prepare(truth.train.values)
    spec = Orders(max_candidates=4, sweeps=40)
    found = run_orders(spec, score, edge_prior(score.nodes, 0.05), seed=0, samples=50)
    assert parents > 8
    assert found.diagnostics["fixed_parents"] > 0
    assert np.array_equal(found.edge_probabilities > 0.5, truth.graph)
    assert found.samples.all_acyclic()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_warns_when_stopped_too_early(seed):
    truth = simulate("er", nodes=25, edges=50, rows=300, test_rows=1, seed=seed)
    # The candidates are searched in full, so that only the chains can be blamed.
    spec = Orders(sweeps=4, annealing=1, round_sweeps=1, max_sweeps=4, levels=4, max_candidates=8)
    found = run_orders(spec, BGe().prepare(truth.train.values), edge_prior(truth.train.d, 0.05), seed=seed, samples=10)
    assert found.status.code == "warning"
    assert "too few to judge" in found.status.sentence
    # Not only the count: the replicas themselves do not agree yet.
    numbers = found.diagnostics
    assert numbers["disagreement"] > 0.25 or numbers["replicas_kept"] <= 2 or numbers["effective_draws"] < 30
    # One sweep of annealing knows nothing of the evidence.
    assert numbers["log_evidence_spread"] > 5
    assert found.log_evidence is None


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
def test_warns_when_the_candidates_are_cut(most):
    truth = simulate("er", nodes=40, edges=80, test_rows=1, seed=1)
    # 80 edges in 40 nodes: most nodes have more neighbours than such tables hold. (With equal noise the certain parents
    # need no bit, and nothing is missing.)
    spec = Orders(max_candidates=most, rounds=0, sweeps=40, max_sweeps=40, levels=4)
    found = run_orders(spec, BGe().prepare(truth.train.values), edge_prior(truth.train.d, 0.05), seed=0, samples=10)
    assert found.status.code == "warning"
    assert f"{found.diagnostics['missing_edges']} edges that would improve the fit" in found.status.sentence
    assert "not among the candidates" in found.status.sentence
    assert found.diagnostics["missing_edges"] > 0


def test_agreeing_chains_are_not_trusted_when_another_search_did_better():
    numbers = {
        "replicas": 4,
        "replicas_kept": 4,
        "replica_log_scores": [-10.0, -10.0, -10.0, -10.0],
        "disagreement": 0.01,
        "effective_draws": 500.0,
        "swap_rates": [0.5],
        "sweeps": 300,
        "candidates_converged": True,
        "missing_edges": 0,
        "left_out_edges": 0.4,
        "left_out_probability": 0.03,
        "log_score_fell": 0.0,
        "second_opinion_above": 0.0,
        "doubtful_parents": 0,
    }
    assert judge(numbers, stopped=None).code == "ok"
    assert (
        "about 0.4 are expected among them, none with a probability above 0.03" in judge(numbers, stopped=None).sentence
    )
    doubted = judge(numbers | {"left_out_probability": 0.3}, stopped=None)
    assert doubted.code == "warning"
    assert "An edge of probability 0.30 is not among the candidates" in doubted.sentence
    doubted = judge(numbers | {"second_opinion_above": 55.0}, stopped=None)
    assert doubted.code == "warning"
    assert "55 nats better" in doubted.sentence
    doubted = judge(numbers | {"doubtful_parents": 23}, stopped=None)
    assert doubted.code == "warning"
    assert "23 parents were taken for certain" in doubted.sentence


@pytest.mark.slow
@pytest.mark.parametrize("spec", [EqualNoise(), BGe()], ids=["equal", "unequal"])
def test_improbable_edges_are_candidates_too(spec):
    """Edges of a probability up to .04 used to get 0 where candidates are chosen, and the status was ok."""
    noise = "equal" if isinstance(spec, EqualNoise) else "unequal"
    values = simulate("er", nodes=12, edges=24, noise=noise, rows=100, test_rows=1, seed=1).train.values
    score = spec.prepare(values)
    expected = exact(score, edge_probability=0.2).edge_probabilities
    found = run_orders(Orders(full=0), score, edge_prior(score.nodes, 0.2), seed=0, samples=10)
    left = (found.edge_probabilities == 0) & ~np.eye(12, dtype=bool)
    # Half a percent is where candidates begin.
    assert expected[left].max() < 0.01
    assert found.diagnostics["left_out_edges"] == pytest.approx(expected[left].sum(), abs=0.02)
    # The chains run until the largest standard error is .006 as they estimate it.
    assert np.abs(found.edge_probabilities - expected).max() < 4 * 0.006


def test_sweeps_shrink_smoothly_with_the_number_of_columns():
    usual = [Orders().usual_sweeps(nodes) for nodes in range(2, 2001)]
    assert usual == sorted(usual, reverse=True)
    assert (usual[0], usual[18], usual[198], usual[-1]) == (6000, 6000, 600, 300)
    assert Orders().most_sweeps(200) == 1500
    assert Orders(max_sweeps=700).most_sweeps(50) == 700
    # More columns never cost less.
    work = [nodes * sweeps for nodes, sweeps in enumerate(usual, start=2)]
    assert all(later >= 0.99 * earlier for earlier, later in pairwise(work))


def test_orders_are_changed_only_where_a_fixed_parent_must_come_first():
    none = np.zeros(0, dtype=int)
    parents = [none, np.array([3]), none, np.array([4]), none]
    assert parents_first(np.array([1, 0, 2, 3, 4]), parents).tolist() == [4, 3, 1, 0, 2]
    obeying = np.array([2, 4, 0, 3, 1])
    assert np.array_equal(parents_first(obeying, parents), obeying)


@pytest.mark.slow
def test_dense_graph_beyond_the_tables_runs_and_is_not_trusted():
    # Such chains once kept orders that put nodes before parents fixed later, and the search met cycles.
    truth = simulate("er", nodes=50, edges=200, test_rows=1, seed=1000)
    spec = Orders(max_candidates=8, sweeps=40, max_sweeps=40, rounds=3, levels=4)
    found = run_orders(spec, BGe().prepare(truth.train.values), edge_prior(truth.train.d, 0.16), seed=0, samples=20)
    assert found.samples.all_acyclic()
    assert found.status.code == "warning"


@pytest.mark.slow
def test_second_opinion_mends_a_hub_that_was_fixed_wrongly():
    # 22 parents of one node, more than its table holds. Without the climbs all replicas agreed on a graph 55 nats below
    # the true one, with an average precision of .72.
    truth = simulate("sf", nodes=50, edges=50, test_rows=1, seed=1002)
    score, prior = BGe().prepare(truth.train.values), edge_prior(50, 2 / 49)
    found = run_orders(
        Orders(sweeps=60, max_sweeps=60, levels=4), score, edge_prior(score.nodes, 2 / 49), seed=0, samples=50
    )
    best = max(log_score_of(score, prior, [np.flatnonzero(g[:, j]) for j in range(50)]) for g in found.samples.dense())
    true = log_score_of(score, prior, [np.flatnonzero(truth.graph[:, j]) for j in range(50)])
    assert best > true - 10
    assert average_precision(found.edge_probabilities, truth.graph) > 0.95


@pytest.mark.slow
def test_time_limit_and_interrupt_return_what_is_there(seven):
    score = BGe().prepare(seven.train.values)
    late = run_orders(SPEC, score, edge_prior(score.nodes, 0.2), seed=0, samples=10, deadline=time.monotonic() - 1)
    assert late.status.code == "interrupted"
    assert "time limit" in late.status.sentence
    assert late.samples.all_acyclic()

    def press_keys(progress):
        if progress.detail == "sampling orders":
            raise KeyboardInterrupt

    stopped = run_orders(SPEC, score, edge_prior(score.nodes, 0.2), seed=0, samples=10, progress=press_keys)
    assert stopped.status.code == "interrupted"
    assert "the user" in stopped.status.sentence
    assert stopped.diagnostics["sweeps"] == 10


@pytest.mark.slow
def test_gaussian_process_beyond_full_tables():
    truth = simulate("er", nodes=16, edges=16, mechanism="gp", rows=400, seed=3)
    score = GaussianProcess().prepare(truth.train.values)
    found = run_orders(Orders(max_candidates=10), score, edge_prior(score.nodes, 0.1), seed=0, samples=50)
    probabilities = found.edge_probabilities
    # Nodes of up to three parents are plain at 400 rows; the surest edges must be right.
    surest = np.argsort(-probabilities, axis=None)[: truth.graph.sum() // 2]
    assert truth.graph.reshape(-1)[surest].all()


def test_refuses_settings_that_make_no_sense():
    with pytest.raises(ConfigError, match="replicas"):
        Orders(replicas=1)
    with pytest.raises(ConfigError, match="hottest"):
        Orders(hottest=2.0)
    with pytest.raises(ConfigError, match="24 candidates"):
        Orders(max_candidates=30)
    score = EqualNoise(variance=1.0).prepare(np.random.default_rng(0).standard_normal((20, 3)))
    with pytest.raises(ConfigError, match="start_order"):
        run_orders(Orders(), score, edge_prior(score.nodes, 0.1), start_order=np.array([0, 0, 1]))
