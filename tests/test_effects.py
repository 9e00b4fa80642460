"""Effects: draws that match the scores' own posteriors, units, logarithms, curves, and coverage of the truth."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

import vcuda
from benchmarks.effects import draw_truth, effect_lines, experiment_lines, share_and_error
from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError
from vcuda.graphs import ancestors
from vcuda.models import MLP, Linear
from vcuda.models.additive import AdditiveBasis
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.linear import BGe, EqualNoise
from vcuda.posterior.mechanisms import draw_models
from vcuda.posterior.point import Networks, ScoredGraphs
from vcuda.posterior.posterior import Posterior, Status
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples
from vcuda.posterior.status import ASSUMED
from vcuda.posterior.trained import TrainedMixture

SPECS = {
    "known noise": EqualNoise(variance=0.8),
    "bge": BGe(mean_rows=2.0, excess=3.0),
    "additive": AdditiveBasis(amplitudes=(0.3, 4.0), noise_shape=1.5, noise_scale=0.7),
    "gp": GaussianProcess(amplitudes=(0.3, 4.0), noise_shape=1.5, noise_scale=0.7, length_scale=1.3),
}


def posterior_of(graph_posterior, names):
    return Posterior(tuple(names), graph_posterior, Status("ok", "Made by hand."), {}, {}, {})


def bent_table(rows, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 3))
    values[:, 0] = np.sin(2 * values[:, 1]) + 0.5 * values[:, 2] + 0.4 * rng.normal(size=rows)
    return vcuda.as_dataset(values * [1.0, 3.0, 0.5] + [0.0, 10.0, -1.0])


@pytest.mark.parametrize("parents", [[], [1], [1, 2]], ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_drawn_functions_and_noise_give_the_predictive_density_of_the_score(name, parents):
    """The mean over draws of N(y; f(x), noise²) is what the score says of a new row, weights and noise integrated."""
    data = bent_table(25)
    predictive = SPECS[name].prepare(data.values).predictive(data)
    new = predictive.scaling.apply(bent_table(6, seed=1).values)
    chosen = np.array(parents, dtype=np.int64)
    node, rng, size = predictive.node(0, chosen), np.random.default_rng(2), 2000
    densities = np.empty((size, len(new)))
    for k in range(size):
        drawn = node.draw(rng, getattr(predictive, "variance", None))
        standard = (new[:, 0] - drawn.function(new[:, chosen])) / drawn.noise
        densities[k] = np.exp(-0.5 * standard**2) / (np.sqrt(2 * np.pi) * drawn.noise)
    seen = np.exp(predictive.column(0, chosen, new).log_density)
    error = densities.std(axis=0) / np.sqrt(size)
    # 72 comparisons of independent draws, five standard errors each; features may cost a Gaussian process .001.
    assert (np.abs(densities.mean(axis=0) - seen) < 5 * error + 1e-3 * seen).all()


def test_a_linear_mechanism_tells_the_slopes_of_its_function():
    data = bent_table(25)
    predictive = BGe().prepare(data.values).predictive(data)
    drawn = predictive.node(0, np.array([1, 2])).draw(np.random.default_rng(0), None)
    rows = np.random.default_rng(1).normal(size=(5, 2))
    np.testing.assert_allclose(drawn.function(rows), rows @ drawn.slopes + drawn.intercept)


def test_few_features_draw_almost_the_same_gaussian_process(monkeypatch):
    data = bent_table(200)
    predictive = GaussianProcess().prepare(data.values).predictive(data)
    rows, parents = np.random.default_rng(0).normal(size=(50, 2)), np.array([1, 2])
    full = predictive.node(0, parents)
    monkeypatch.setattr("vcuda.models.gaussian_process.prediction.MOST_FEATURES", 60)
    few = predictive.node(0, parents)
    assert len(few.regressions[0].whitened) == 61 < len(full.regressions[0].whitened)
    means = [np.linalg.solve(node.regressions[1].factor.T, node.regressions[1].whitened) for node in (full, few)]
    curves = [node.regressions[1].design(rows) @ mean for node, mean in zip((full, few), means, strict=True)]
    assert np.abs(curves[0] - curves[1]).max() < 0.05  # of a column with standard deviation one


def test_a_shared_noise_is_drawn_from_its_posterior_given_the_graph():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(15, 3))
    values[:, 1] += values[:, 0]
    data = vcuda.as_dataset(values)
    score = EqualNoise(noise_shape=2.0, noise_scale=0.5).prepare(values)
    predictive = score.predictive(data, value=0.9)
    graph = np.zeros((3, 3), dtype=bool)
    graph[0, 1] = True
    size = 4000
    samples = GraphSamples.from_dense(data.names, np.repeat(graph[None], size, axis=0))
    drawn = [np.log(model.mechanism(2, model.parents(2)).noise ** 2) for model in draw_models(predictive, samples, rng)]
    grid = np.linspace(-4, 4, 2001)
    parents = [[], [0], []]
    log_density = np.array(
        [sum(score.at(v).score(j, parents[j]) for j in range(3)) + score.log_prior(v) + np.log(v) for v in np.exp(grid)]
    )
    weights = np.exp(log_density - logsumexp(log_density))
    mean = weights @ grid
    spread = np.sqrt(weights @ (grid - mean) ** 2)
    # Five standard errors; the standard deviation of 4,000 nearly normal draws is known within 1.1 %.
    assert np.mean(drawn) == pytest.approx(mean, abs=5 * spread / np.sqrt(size))
    assert np.std(drawn) == pytest.approx(spread, rel=5 * 0.012)


def linear_networks(weights, noise=0.5):
    sets, nodes = len(weights), weights.shape[1]
    return Networks((weights[..., None],), (), np.full((sets, nodes), 2 * np.log(noise)))


def test_linear_effects_are_sums_over_paths():
    rng = np.random.default_rng(0)
    graph = np.triu(np.ones((5, 5), dtype=bool), k=1)
    graph[1, 3] = False
    weights = rng.normal(size=(1, 5, 5)) * graph
    order = rng.permutation(5)
    back = np.ix_(order, order)
    graph_posterior = ScoredGraphs(
        GraphSamples.from_dense("abcde", graph[back]), graph[back] * 1.0, linear_networks(weights[:, *back])
    )
    posterior = posterior_of(graph_posterior, "abcde")
    total = np.linalg.inv(np.eye(5) - weights[0][back])
    upstream = ancestors(graph[back])
    table = posterior.effects(draws=2).set_index(["cause", "outcome"])
    for i, cause in enumerate("abcde"):
        for j, outcome in enumerate("abcde"):
            if i == j:
                continue
            found = posterior.effect(cause, outcome, draws=3, at=[0, 2])
            expected = total[i, j] if upstream[i, j] else 0.0
            np.testing.assert_allclose(found.draws, expected, atol=1e-12)
            assert found.probability_zero == (0.0 if upstream[i, j] else 1.0)
            np.testing.assert_allclose(found.curve["mean"], [0.0, 2 * expected], atol=1e-12)
            assert table.loc[(cause, outcome), "mean"] == pytest.approx(expected, abs=1e-12)
            assert table.loc[(cause, outcome), "probability_zero"] == found.probability_zero


def test_zero_effects_get_the_probability_of_no_path():
    graphs = np.zeros((4, 2, 2), dtype=bool)
    graphs[0, 0, 1] = True
    weights = np.full((4, 2, 2), 3.0)
    graph_posterior = ScoredGraphs(GraphSamples.from_dense("ab", graphs), graphs.mean(axis=0), linear_networks(weights))
    found = posterior_of(graph_posterior, "ab").effect("a", "b", draws=4)
    assert found.probability_zero == 0.75
    assert sorted(found.draws.tolist()) == [0.0, 0.0, 0.0, 3.0]
    assert found.mean == 0.75
    assert "with probability 0.75 not at all" in repr(found)
    # Nobody said where to look: a is N(0, .5²) in every model.
    np.testing.assert_allclose(found.curve.x.iloc[[0, -1]], [-0.75, 0.75])


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["equal", "unequal"])
def test_effects_follow_the_units(noise):
    """Equal noise knows one unit for all columns; unequal noise has one for each."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(80, 4))
    values[:, 1] += values[:, 0]
    values[:, 2] += 0.6 * values[:, 1]
    units = np.array([4.0, 0.125, 64.0, 1.0]) if noise == "unequal" else np.full(4, 32.0)
    plain, other = (
        vcuda.fit(vcuda.as_dataset(table, names=list("abcd")), model="linear", noise=noise, engine="exact", seed=0)
        for table in (values, values * units)
    )
    for cause, outcome in (("a", "b"), ("a", "c"), ("c", "a"), ("d", "b")):
        first, second = (posterior.effect(cause, outcome, draws=200) for posterior in (plain, other))
        i, j = "abcd".index(cause), "abcd".index(outcome)
        np.testing.assert_allclose(second.draws, first.draws * units[j] / units[i], rtol=1e-9)
        assert second.probability_zero == first.probability_zero
        np.testing.assert_allclose(second.curve.x, first.curve.x * units[i], rtol=1e-9)
        np.testing.assert_allclose(second.curve["mean"], first.curve["mean"] * units[j], rtol=1e-6, atol=1e-9)


def chain_law(spec, table, logarithm):
    """The graph a -> b -> c is known, its functions are not."""
    scaling = Scaling(np.zeros(3), np.ones(3), logarithm)
    logged = vcuda.as_dataset(table, names=list("abc")).with_logarithms(logarithm)
    graph = np.zeros((3, 3), dtype=bool)
    graph[0, 1] = graph[1, 2] = True
    score = spec.prepare(logged.values)
    pool = GraphSamples.from_dense("abc", graph)
    return SampledGraphs(pool, graph * 1.0, score.predictive(logged, scaling=scaling))


@pytest.mark.parametrize("spec", [BGe(), AdditiveBasis()], ids=["linear", "simulated"])
def test_logarithms_give_curves_in_the_users_units(spec):
    """a and c on a logarithmic scale: log b... c = exp(.8 b + e), b = .5 log a + e, so E[c | do(a)] is a power of a."""
    rng = np.random.default_rng(0)
    log_a = rng.normal(1.0, 0.5, size=4000)
    b = 0.5 * log_a + 0.3 * rng.normal(size=4000)
    log_c = 0.8 * b + 0.4 * rng.normal(size=4000)
    table = np.column_stack([np.exp(log_a), b, np.exp(log_c)])
    graph_posterior = chain_law(spec, table, np.array([True, False, True]))
    at = np.array([1.5, 2.7, 4.0])
    found = posterior_of(graph_posterior, "abc").effect("a", "c", at=at, draws=100)
    expected = np.exp(0.4 * np.log(at) + 0.5 * (0.8**2 * 0.3**2 + 0.4**2))
    # Slopes are known within .4 / sqrt(4,000) / .3 = 2 %, and levels within 1 %; simulated rows add 1 %.
    np.testing.assert_allclose(found.curve["mean"], expected, rtol=0.04)
    assert (found.curve.low < expected * 1.03).all()
    assert (found.curve.high > expected * 0.97).all()
    assert not found.linear
    assert found.mean == pytest.approx((expected[-1] - expected[0]) / (at[-1] - at[0]), rel=0.1)
    assert "on average between 1.5 and 4" in found.sentence
    assert ASSUMED in found.sentence
    usual = posterior_of(graph_posterior, "abc").effect("a", "c", draws=20).curve.x
    np.testing.assert_allclose(np.log(usual.iloc[[0, -1]]), [1 - 0.75, 1 + 0.75], atol=0.1)
    with pytest.raises(ConfigError, match="positive values, not -1"):
        posterior_of(graph_posterior, "abc").effect("a", "c", at=[-1, 2])
    with pytest.raises(ConfigError, match="curves"):
        posterior_of(graph_posterior, "abc").effects(draws=2)


@pytest.mark.parametrize("spec", [AdditiveBasis(), GaussianProcess()], ids=["additive", "gp"])
def test_a_curve_that_bends_is_found_with_its_band(spec):
    """c = b² + e with b = a + e / 2: E[c | do(a = x)] = x² + 1/4."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=500)
    b = a + 0.5 * rng.normal(size=500)
    table = np.column_stack([a, b, b**2 + 0.3 * rng.normal(size=500)])
    graph_posterior = chain_law(spec, table, np.zeros(3, dtype=bool))
    at = np.linspace(-1.5, 1.5, 9)
    found = posterior_of(graph_posterior, "abc").effect("a", "c", at=at)
    assert found.draws.shape == (200,)
    expected = at**2 + 0.25
    # The band is 3.3 standard deviations wide. Nine points that hang together: three of them, and a twentieth of the
    # outcome's standard deviation of 1.8 for what smooth functions take away from a parabola.
    spread = (found.curve.high - found.curve.low) / 3.29
    assert (np.abs(found.curve["mean"] - expected) < 3 * spread + 0.09).all()
    assert (spread < 0.3).all()
    assert abs(found.mean) < 3 * found.draws.std()  # a parabola rises as much as it falls
    back = posterior_of(graph_posterior, "abc").effect("c", "a", draws=5)
    assert back.probability_zero == 1.0
    assert (back.draws == 0).all()
    with pytest.raises(ConfigError, match="bend"):
        posterior_of(graph_posterior, "abc").effects(draws=2)


@pytest.mark.parametrize("model", [Linear(), Linear(noise="equal", bias=False), MLP(hidden=(4, 3)), MLP(bias=False)])
def test_trained_functions_on_the_host_are_those_of_the_model(model):
    nodes, restarts = 3, 2
    shapes = jax.eval_shape(lambda key: model.init(key, nodes), jax.random.key(0))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: rng.normal(size=(restarts, *leaf.shape)).astype(np.float32), shapes)
    params = params._replace(log_variance=np.full_like(params.log_variance, 0.3))
    graph_posterior = TrainedMixture(
        dags=None,
        model=model,
        dag_params=None,
        model_params=params,
        weights=np.full(restarts, 0.5),
        scaling=Scaling(np.zeros(nodes), np.ones(nodes)),
        allowed=~np.eye(nodes, dtype=bool),
    )
    networks = graph_posterior._networks()
    rows = np.random.default_rng(0).normal(size=(6, nodes))
    graph = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
    for k in range(restarts):
        one = jax.tree.map(lambda leaf, k=k: leaf[k], params)
        expected = np.asarray(model.predict(one, rows.astype(np.float32), graph.astype(np.float32)))
        for node in range(nodes):
            parents = np.flatnonzero(graph[:, node])
            drawn = networks.mechanism(node, parents, index=k)
            np.testing.assert_allclose(drawn.function(rows[:, parents]), expected[:, node], atol=1e-5)
            assert drawn.noise == pytest.approx(np.exp(0.15))
            assert (drawn.slopes is not None) == isinstance(model, Linear)


def test_runs_from_before_a_noise_prior_was_kept_still_load():
    data = bent_table(30)
    predictive = EqualNoise().prepare(data.values).predictive(data, value=0.5)
    stored = predictive.config()
    assert stored["noise_prior"] == (1.0, 1.0)
    old = {name: value for name, value in stored.items() if name != "noise_prior"}
    again = type(predictive).restore(old, predictive.arrays())
    assert again.noise_prior is None
    assert type(predictive).restore(stored | {"noise_prior": [1.0, 1.0]}, predictive.arrays()).noise_prior == (1.0, 1.0)
    samples = GraphSamples.from_dense(data.names, np.zeros((3, 3), dtype=bool))
    model = next(draw_models(again, samples, np.random.default_rng(0)))
    assert model.mechanism(0, model.parents(0)).noise == pytest.approx(np.sqrt(0.5))


def test_what_cannot_be_answered_is_refused_in_a_sentence():
    graphs = GraphSamples.from_dense("ab", np.zeros((2, 2), dtype=bool))
    with pytest.raises(ConfigError, match="no functions, and so no effects"):
        posterior_of(SampledGraphs(graphs, np.zeros((2, 2)), None), "ab").effect("a", "b")
    bare = ScoredGraphs(graphs, np.zeros((2, 2)))
    with pytest.raises(ConfigError, match="no functions, and so no effects"):
        posterior_of(bare, "ab").effect("a", "b")
    with_functions = posterior_of(replace(bare, networks=linear_networks(np.ones((1, 2, 2)))), "ab")
    with pytest.raises(ConfigError, match="at least two different finite values of 'a'"):
        with_functions.effect("a", "b", at=[1.0, 1.0])
    with pytest.raises(ConfigError, match="draws must be a whole number at least 1"):
        with_functions.effect("a", "b", draws=0)
    with pytest.raises(ConfigError, match="do not fit into 1 GB"):
        with_functions.effects(draws=10**9)


def test_a_truth_of_the_prior_has_the_effects_of_its_paths():
    rng = np.random.default_rng(0)
    for noise in ("unit", "unequal"):
        truth = draw_truth(rng, noise=noise, nodes=4, rows=20_000)
        upstream = ancestors(truth.graph)
        assert np.array_equal(truth.effects != 0, upstream)
        # A root has no confounder: its regression slope is its total effect.
        root = int(np.flatnonzero(~truth.graph.any(axis=0))[0])
        x = truth.values - truth.values.mean(axis=0)
        slopes = x.T @ x[:, root] / (x[:, root] @ x[:, root])
        scale = x.std(axis=0) / x[:, root].std()
        others = np.delete(np.arange(4), root)
        np.testing.assert_allclose(
            (slopes - truth.effects[root])[others] / scale[others], 0.0, atol=5 / np.sqrt(20_000)
        )


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["unit", "equal", "unequal"])
def test_intervals_hold_the_truth_as_often_as_they_say_when_it_is_drawn_from_the_prior(noise):
    rows = 500 if noise == "unequal" else 100  # more rows, more directions that are sure
    lines = effect_lines(noise, tables=60, nodes=5, rows=rows, draws=200, seed=0)
    # A posterior is calibrated given anything that it says itself, such as that there is probably an effect. Errors are
    # over tables, about .025; three of them.
    likely = lines[lines.probability_zero < 0.5]
    assert len(likely) >= 200
    share, error = share_and_error(likely, "covered")
    assert abs(share - 0.9) < 3 * error
    # Over all pairs more than 90 %: an interval that is zero alone, because zero has nearly all of the mass, is right
    # as often as that mass says.
    share, error = share_and_error(lines, "covered")
    assert 0.85 < share < 0.95 + 2 * error
    share, error = share_and_error(lines.assign(off=~lines.path - lines.probability_zero), "off")
    assert abs(share) < 3 * error


@pytest.mark.slow
def test_the_experiment_put_first_orients_more_than_a_random_one():
    lines = experiment_lines(tables=20, nodes=6, rows=300, seed=100)
    gain = lines.next_experiment - lines.random
    assert gain.mean() > 2 * gain.std() / np.sqrt(len(gain))
    assert lines.next_experiment.mean() <= lines.best.mean()
