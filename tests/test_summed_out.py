"""Scores that sum out nuisance sets agree with sums over all orders, graphs and sets, written out."""

from functools import cache
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy.special import logsumexp

from vcuda.graphs import is_dag
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.models.additive.score import AdditiveBasis
from vcuda.models.caching import cached
from vcuda.models.categorical import BDeu
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.interventions import prepare
from vcuda.models.linear import BGe
from vcuda.models.mixed.columns import columns_of
from vcuda.models.mixed.tables import MixedTable, Tabulation
from vcuda.models.summed_out import NuisancePrior, SummedRegressions, SummedSets, SummedTables, summed_out
from vcuda.models.summed_out.regressions import MOST

NODES, ROWS = 3, 80
PI = 0.4


def windows(lags=1, *, seed=0, nodes=NODES, rows=ROWS):
    """Steps of a series beside those before them."""
    rng = np.random.default_rng(seed)
    values = np.zeros((rows + lags, nodes))
    for t in range(1, len(values)):
        values[t] = 0.6 * np.tanh(values[t - 1] @ rng.permutation(np.eye(nodes))) + rng.standard_normal(nodes)
        values[t, 1] += 0.7 * values[t, 0]
    return np.concatenate([values[lags - lag : len(values) - lag] for lag in range(lags + 1)], axis=1)


def prior_of(extra, nodes=NODES, probability=0.3):
    shape = (extra, nodes)
    odds = np.log(probability / (1 - probability)) + np.linspace(-0.5, 0.5, extra * nodes).reshape(shape)
    return NuisancePrior(odds, -np.logaddexp(0, odds), np.zeros(shape, dtype=bool))


def by_hand(inner, prior, target, parents):
    """The log weights of all nuisance sets beside some parents, as they are defined."""
    extra, found = len(prior.log_odds), {}
    for size in range(extra + 1):
        for some in combinations(range(extra), size):
            present = prior.log_odds[list(some), target].sum()
            score = inner.score(target, [*parents, *(NODES + k for k in some)])
            found[some] = score + present + prior.log_absent[:, target].sum()
    return found


def tabulated(values, kinds):
    allowed = [[k for k in range(values.shape[1]) if k != j] for j in range(NODES)]
    table = MixedTable(columns_of(kinds, values), values, None, NODES)
    return Tabulation(table, allowed, [[]] * NODES).score


def scores():
    values, coded = windows(), windows(seed=4)
    coded[:, [2, 5]] = coded[:, [2, 5]] > 0
    labels = (windows(seed=5) > 0).astype(float)
    yield "linear", BGe().prepare(values), SummedRegressions
    yield "additive", AdditiveBasis(features=3).prepare(values), SummedRegressions
    yield "smooth", cached(GaussianProcess().prepare(values[:40])), SummedSets
    yield "labels", BDeu().prepare(labels), SummedSets
    yield "mixed", tabulated(coded, ("number", "number", "yes/no") * 2), SummedTables


@pytest.mark.parametrize(("inner", "kind"), [pytest.param(s, k, id=n) for n, s, k in scores()])
def test_sums_over_all_orders_graphs_and_sets(inner, kind):
    prior = prior_of(NODES)
    score = summed_out(inner, prior, 0.0)
    assert isinstance(score, kind)
    edges = edge_prior(NODES, PI)
    total, weights, lagged = [], np.zeros((NODES, NODES)), np.zeros((NODES, NODES))
    every = cache(lambda j, parents: by_hand(inner, prior, j, parents))
    graphs = [g.reshape(NODES, NODES) for g in np.array(np.unravel_index(np.arange(512), (2,) * 9)).T.astype(bool)]
    for graph in (one for one in graphs if is_dag(one)):
        parents = [tuple(np.flatnonzero(graph[:, j]).tolist()) for j in range(NODES)]
        orders = sum(
            all(order.index(i) < order.index(j) for i, j in np.argwhere(graph)) for order in permutations(range(NODES))
        )
        sets = [every(j, parents[j]) for j in range(NODES)]
        local = [logsumexp(list(own.values())) for own in sets]
        edges_in = graph.sum()
        total.append(
            (graph, sets, sum(local) + np.log(orders) + edges_in * np.log(PI) + (3 - edges_in) * np.log1p(-PI))
        )
    evidence = logsumexp([weight for *_, weight in total])
    for graph, sets, weight in total:
        share = np.exp(weight - evidence)
        weights += share * graph
        for j in range(NODES):
            inside = logsumexp(list(sets[j].values()))
            for some, own in sets[j].items():
                lagged[list(some), j] += share * np.exp(own - inside)
    found = exact_posterior(score, edges, samples=200, rng=np.random.default_rng(0))
    # Of a Gaussian process tables leave out sets that are far worse than others.
    np.testing.assert_allclose(found.edge_probabilities, weights, atol=1e-3 if inner.slow_sets else 1e-9)
    # The draws of an exact engine, with the sets of each graph summed: 200 graphs leave at most .5 / sqrt(200) = .035,
    # four times that is .14.
    drawn = np.zeros((NODES, NODES))
    for graph in found.samples:
        for j in range(NODES):
            posterior = next(iter(score.nuisance_posteriors(j, [np.flatnonzero(graph[:, j]).tolist()])))
            drawn[:, j] += posterior.marginals() / len(found.samples)
    np.testing.assert_allclose(drawn, lagged, atol=0.14)


@pytest.mark.parametrize("spec", [BGe(), AdditiveBasis(features=3)], ids=["linear", "additive"])
def test_nuisance_sets_given_parents_are_those_of_the_sum(spec):
    inner, prior = spec.prepare(windows()), prior_of(NODES)
    score = summed_out(inner, prior, 0.0)
    for parents in ([], [1], [1, 2]):
        weights = by_hand(inner, prior, 0, parents)
        shares = np.exp(np.array(list(weights.values())) - logsumexp(list(weights.values())))
        marginals = [sum(s for s, some in zip(shares, weights, strict=True) if k in some) for k in range(NODES)]
        found = next(iter(score.nuisance_posteriors(0, [parents])))
        np.testing.assert_allclose(found.marginals(), marginals, atol=1e-9)
        draws = [found.draw(rng) for rng in [np.random.default_rng(1)] for _ in range(400)]
        counted = np.bincount(np.concatenate(draws), minlength=NODES) / 400
        # A share of 400 draws: .5 / sqrt(400) = .025, four times that.
        np.testing.assert_allclose(counted, marginals, atol=0.1)


def test_gains_losses_and_tables_are_differences_of_scores():
    score = summed_out(BGe().prepare(windows(lags=2)), prior_of(2 * NODES), 0.0)
    gains = score.gains(0, [1])
    assert gains[2] == pytest.approx(score.score(0, [1, 2]) - score.score(0, [1]))
    assert np.isneginf(gains[[0, 1]]).all()
    losses = score.losses(0, np.array([1, 2]))
    assert losses[0] == pytest.approx(score.score(0, [1, 2]) - score.score(0, [2]))
    table = score.table(0, np.array([2, 1]))
    np.testing.assert_allclose(table, [score.score(0, own) for own in ([], [2], [1], [1, 2])])
    fixed = score.tables([0], np.array([[2]]), np.array([[1]]))
    np.testing.assert_allclose(fixed, [[score.score(0, [1]), score.score(0, [1, 2])]])


def test_more_columns_than_are_summed_over_are_nearly_summed():
    """Twelve columns where all sets of eight count: a tenth of a nat is far below what decides an edge."""
    inner, prior = BGe().prepare(windows(lags=4, rows=200)), prior_of(4 * NODES, probability=0.15)
    assert len(prior.log_odds) > MOST
    score = summed_out(inner, prior, 0.0)
    for parents in ([], [1, 2]):
        exact = logsumexp(list(by_hand(inner, prior, 0, parents).values()))
        assert score.score(0, parents) == pytest.approx(exact, abs=0.1)


def test_required_sets_and_columns_that_were_always_set():
    values = windows()
    prior = prior_of(NODES)
    required = np.zeros((NODES, NODES), dtype=bool)
    required[1, 0] = True
    odds, absent = np.where(required, 0.0, prior.log_odds), np.where(required, 0.0, prior.log_absent)
    odds[2, 0] = -np.inf
    stated = NuisancePrior(odds, np.where(np.isfinite(odds), absent, 0.0), required)
    score = summed_out(BGe().prepare(values), stated, 0.0)
    found = next(iter(score.nuisance_posteriors(0, [[1]])))
    assert found.marginals()[1] == 1
    assert found.marginals()[2] == 0
    assert 0 < found.marginals()[0] < 1
    held = np.zeros(values.shape, dtype=bool)
    held[:, 0] = True
    held[:40, 1] = True
    by_parts = summed_out(prepare(BGe(), values, held), prior, 0.0)
    assert by_parts.score(0, [1]) == 0
    assert next(iter(by_parts.nuisance_posteriors(0, [[]]))).marginals().sum() == 0
    # The other column is judged by the rows in which it was left free.
    part = prepare(BGe(), values, held).of(1)
    assert by_parts.score(1, [0]) == pytest.approx(logsumexp(list(by_hand(part, prior, 1, [0]).values())))
