"""The law of the variational engine: exact edge probabilities, samples that follow them, shared predictions."""

import numpy as np
import pytest
from scipy.stats import norm

import vcuda
from vcuda.dags.priority import PriorityDags, PriorityParams
from vcuda.errors import ConfigError
from vcuda.models.linear import BGe
from vcuda.posterior.mixture import SMALLEST_PROBABILITY, OrderMixture
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples

NODES = 6
NAMES = tuple("abcdef")


def parameters(seed=0, restarts=3):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(restarts, NODES, NODES))
    logits[:, 0, 3] = -np.inf
    return {
        "edge_logits": logits,
        "means": rng.normal(size=(restarts, NODES)),
        "log_scale": 0.5 * rng.normal(size=(restarts, NODES)),
        "weights": np.array([0.5, 0.3, 0.2])[:restarts] / np.sum([0.5, 0.3, 0.2][:restarts]),
    }


def law_of(settings, predictive=None):
    rest = {name: value for name, value in settings.items() if name != "edge_logits"}
    return OrderMixture.of(settings["edge_logits"], predictive=predictive, **rest)


def test_samples_follow_the_edge_probabilities():
    graph_posterior = law_of(parameters())
    expected, size = graph_posterior.edge_probabilities(), 20_000
    samples = graph_posterior.sample(np.random.default_rng(1), NAMES, size)
    assert samples.names == NAMES
    assert len(samples) == size
    assert samples.take(np.arange(500)).all_acyclic()
    possible = expected > 0
    assert not possible[np.diag_indices(NODES)].any()
    assert not possible[0, 3]
    assert possible.sum() == NODES * (NODES - 1) - 1
    found = samples.edge_probabilities()
    assert (found[~possible] == 0).all()
    # The share of each restart is random too, so every draw is one of the mixture: a binomial count for each edge. The
    # largest of 29 z-scores is above 4.2 in one of 1,300 seeds.
    scores = (found - expected)[possible] / np.sqrt(expected * (1 - expected) / size)[possible]
    assert np.abs(scores).max() < 4.2
    # Their squares sum to about 29, with a standard deviation of at most sqrt(2 * 29) = 7.6 times a little correlation.
    assert 5 < np.sum(scores**2) < 75


@pytest.mark.slow
def test_edge_probabilities_are_those_of_the_distribution_restart_by_restart():
    settings = parameters()
    allowed = ~np.eye(NODES, dtype=bool)
    allowed[0, 3] = False
    members = [
        np.asarray(
            PriorityDags(scale="per_node").edge_probabilities(
                PriorityParams(*(np.float32(settings[name][k]) for name in ("edge_logits", "means", "log_scale"))),
                allowed,
            )
        )
        for k in range(3)
    ]
    expected = np.tensordot(settings["weights"], members, axes=1)
    np.testing.assert_allclose(law_of(settings).edge_probabilities(), expected, atol=1e-6)


def test_edges_that_never_are_get_forgotten_and_the_others_are_kept(monkeypatch):
    monkeypatch.setattr("vcuda.posterior.mixture.STRIPE_PAIRS", 2 * NODES)  # stripes of two nodes
    settings = parameters(restarts=1)
    settings["means"] = 4.0 * np.arange(NODES)[None]
    settings["log_scale"] = np.zeros((1, NODES))
    settings["edge_logits"][0, 1, 2] = -30.0
    before = settings["edge_logits"].copy()
    graph_posterior = law_of(settings)
    np.testing.assert_array_equal(settings["edge_logits"], before)
    gaps = settings["means"][0] - settings["means"][0][:, None]
    exact = norm.cdf(gaps / np.sqrt(2)) / (1 + np.exp(-before[0]))
    np.fill_diagonal(exact, 0.0)
    forgotten = np.isneginf(graph_posterior.edge_logits[0])
    np.testing.assert_array_equal(forgotten, exact < SMALLEST_PROBABILITY)
    assert forgotten[1, 2]
    assert forgotten[5, 0]
    assert not forgotten[1, 0]  # against the order, but 4 / sqrt(2) deviations are not out of the question
    np.testing.assert_allclose(graph_posterior.edge_probabilities(), exact, rtol=1e-6, atol=SMALLEST_PROBABILITY)


def test_predictions_are_those_of_the_sampled_graphs():
    """A mixture that is sure of one graph predicts what that graph predicts."""
    simulation = vcuda.simulate("er", nodes=NODES, edges=7, rows=100, test_rows=20, seed=2)
    train = simulation.train
    predictive = BGe().prepare(train.values).predictive(train)
    graph = np.triu(np.random.default_rng(0).random((NODES, NODES)) < 0.5, k=1)
    graph_posterior = OrderMixture.of(
        np.where(graph, 60.0, -np.inf)[None],
        means=100.0 * np.arange(NODES)[None],
        log_scale=np.zeros((1, NODES)),
        weights=np.ones(1),
        predictive=predictive,
    )
    seen = graph_posterior.predict(np.random.default_rng(0), simulation.test.values, 4, names=train.names)
    pool = GraphSamples.from_dense(train.names, graph)
    expected = SampledGraphs(pool, graph, predictive).predict(np.random.default_rng(1), simulation.test.values, 1)
    np.testing.assert_allclose(seen.mean, expected.mean)
    np.testing.assert_allclose(seen.log_density, expected.log_density)
    assert seen.mse == pytest.approx(expected.mse)
    with pytest.raises(ConfigError, match="no predictions"):
        law_of(parameters()).predict(np.random.default_rng(0), simulation.test.values, 4)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("edge_logits", np.zeros((3, NODES, NODES + 1)), "edge_logits"),
        ("edge_logits", np.full((3, NODES, NODES), np.nan), "diverged"),
        ("means", np.full((3, NODES), np.inf), "diverged"),
        ("means", np.zeros(NODES), "means"),
        ("weights", np.array([0.5, 0.3, 0.3]), "sum to one"),
    ],
)
def test_what_is_no_mixture_is_refused(name, value, message):
    with pytest.raises(ConfigError, match=message):
        law_of(parameters() | {name: value})
