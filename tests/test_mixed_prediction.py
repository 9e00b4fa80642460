"""Predictions and mechanisms of the mixed family, against simulated posteriors and against each other."""

import pickle

import mixed_tables
import numpy as np
import pandas as pd
import pytest
from mixed_tables import KINDS, LABELS, LOGARITHM, NAMES
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError, DataError
from vcuda.models.gaussian_process import GaussianProcess, GaussianProcessPredictive
from vcuda.models.glm.likelihoods import Sieve
from vcuda.models.mixed import MixedPredictive
from vcuda.models.mixed.columns import columns_of
from vcuda.models.mixed.evidence import TOGETHER, ColumnEvidence, Rows, descriptions_of, prior_precision
from vcuda.models.mixed.mechanisms import Bounds, CountMechanism, Noise, NumberMechanism
from vcuda.models.mixed.nodes import Inputs, MixedNode, _Closed, _CodedLaplace, _Laplace
from vcuda.posterior.imputed import ImputedMixture
from vcuda.posterior.samples import GraphSamples

# A number, a count, yes/no, ordered and a label, each with two parents of other kinds.
NODES = [("income", ("age", "region")), ("visits", ("age", "smoker")), ("smoker", ("age", "sex"))]
NODES += [("grade", ("smoker", "visits")), ("plan", ("sex", "grade"))]
SMALL = 60


def chosen_columns(target: str, parents: tuple[str, ...]) -> list[int]:
    return [NAMES.index(name) for name in (target, *parents)]


def scaled(rows: int, seed: int) -> np.ndarray:
    values = mixed_tables.simulated(rows, seed)
    values[:, LOGARITHM] = np.log(values[:, LOGARITHM])
    return values


def cases():
    for target, parents in NODES:
        for how in descriptions_of(KINDS[NAMES.index(target)]):
            if how.has_distribution and not how.together:
                yield pytest.param(target, parents, how, id=f"{target}: {how.name}")


def small_node(target, parents):
    """A node of 60 rows, the levels known from 2,000, and ten new rows."""
    which = chosen_columns(target, parents)
    kinds = [KINDS[k] for k in which]
    columns = columns_of(kinds, scaled(2000, 0)[:, which])
    return columns, scaled(SMALL, 1)[:, which], scaled(10, 2)[:, which]


def laplace_of(how, evidence, likelihood, found):
    kind = _CodedLaplace if hasattr(likelihood, "probabilities") else _Laplace
    return kind.of(how, evidence, (1, 2), likelihood, found, (0,))


@pytest.mark.parametrize(("target", "parents", "how"), list(cases()))
def test_predictions_are_those_of_the_posterior(target, parents, how):
    columns, values, new = small_node(target, parents)
    evidence = ColumnEvidence(0, Rows(columns, values))
    inputs, y = Inputs(columns[1:], new[:, 1:]), columns[0].scaled(new[:, 0])
    likelihood, found = evidence.fitted(how, [(1, 2)])
    if columns[0].is_number and how.is_closed:
        posterior = _Closed.of(how, evidence, (1, 2))
    else:
        posterior = laplace_of(how, evidence, likelihood, found)
    predicted = posterior.predict(inputs, y)
    exact = simulated_posterior(evidence, how, likelihood, found, inputs, y)
    # Closed forms differ by the error of the simulation alone. At 60 rows the others are 64 draws of a normal
    # approximation, which is worst where the shape of the noise is free.
    most = 0.03 if isinstance(posterior, _Closed) else 0.2 if how.shape else 0.08
    assert np.abs(predicted.log_density - exact).mean() < most


def simulated_posterior(evidence, how, likelihood, found, inputs, y, chains=32, steps=800):
    """Log densities of new rows, from random walks over the weights that begin at draws of the approximation."""
    rng = np.random.default_rng(3)
    laplace = laplace_of(how, evidence, likelihood, found)
    width = laplace.best.size
    features = evidence.rows.features(how.smooth)
    design = np.concatenate([np.ones((1, evidence.rows.count)), features[1], features[2]])
    design = np.pad(design, ((0, found.weights.shape[2] - len(design)), (0, 0)))
    precision = prior_precision(how, likelihood, design.shape[0])
    penalty = np.where(np.isfinite(precision), precision, 0.0)
    own = likelihood.take(np.zeros(chains, dtype=np.int64))

    def height(normal):
        weights, shared = laplace.draws(normal)
        rows = own.rows(evidence.y, np.matmul(weights[:, :, : len(design)], design), shared).value.sum(axis=1)
        return rows - 0.5 * (penalty * weights**2).sum(axis=(1, 2)) + own.log_prior(shared)[0]

    now = rng.standard_normal((chains, width))
    heights, densities = height(now), []
    for step in range(steps):
        tried = now + 2.0 / np.sqrt(width) * rng.standard_normal(now.shape)
        new = height(tried)
        taken = np.log(rng.random(chains)) < new - heights
        now, heights = np.where(taken[:, None], tried, now), np.where(taken, new, heights)
        if step >= steps // 4 and step % 20 == 0:
            weights, shared = laplace.draws(now)
            densities.append(own.rows(y, inputs.predictors(how.smooth, weights), shared).value)
    every = np.concatenate(densities)
    return logsumexp(every, axis=0) - np.log(len(every))


def test_a_closed_form_predicts_what_the_evidence_gains_by_a_row():
    columns, values, new = small_node("income", ("age", "region"))
    node = MixedNode.of(columns, values, free=np.ones(SMALL, dtype=bool), logarithm=True, seed=(0,))
    for how in descriptions_of("number")[:2]:
        closed = _Closed.of(how, ColumnEvidence(0, Rows(columns, values)), (1, 2))
        for row in new:
            both = np.concatenate([values, row[None]])
            evidences = [ColumnEvidence(0, Rows(columns, table)).evidence(how, [(1, 2)]) for table in (both, values)]
            own = closed.predict(node.inputs(row[None, 1:]), columns[0].scaled(row[:1])).log_density
            assert own[0] == pytest.approx((evidences[0] - evidences[1])[0], abs=1e-6)


@pytest.mark.parametrize(("target", "parents"), [*NODES, ("age", ("income", "visits")), ("age", ())])
def test_drawn_mechanisms_have_the_distribution_that_is_predicted(target, parents):
    """Simulated values and expectations, averaged over draws, are those of the prediction."""
    which = chosen_columns(target, parents)
    columns = columns_of([KINDS[k] for k in which], scaled(300, 0)[:, which])
    node = MixedNode.of(columns, scaled(300, 0)[:, which], free=np.ones(300, dtype=bool), logarithm=False, seed=(0,))
    rng = np.random.default_rng(5)
    inputs = scaled(4, 6)[:, which[1:]]
    drawn = [node.draw(rng, None) for _ in range(400)]
    expected = np.stack([one.expected(inputs) for one in drawn])
    chances = (np.arange(64) + 0.5) / 64
    simulated = np.stack([one.simulate(np.repeat(inputs, 64, axis=0), np.tile(chances, 4)) for one in drawn])
    simulated = simulated.reshape(400, 4, 64)
    error = expected.std(axis=0) / np.sqrt(400) + 1e-9
    if node.own.levels.size:
        shares = np.stack([one.probabilities(inputs) for one in drawn])
        predicted = node.probabilities(inputs)
        z = (shares.mean(axis=0) - predicted) / (shares.std(axis=0) / np.sqrt(400) + 0.005)
        assert np.abs(z).max() < 4
        counted = (simulated[..., None] == node.own.levels).mean(axis=2)
        # 64 evenly spaced quantiles miss a share by at most 1/64 for each of its two borders.
        assert np.abs(counted - shares).max() < 2 / 64
        return
    mean = node.predict(inputs, scaled(4, 6)[:, which[0]]).mean
    # 64 draws of the weights stand behind the predicted mean, 400 behind the other.
    assert np.abs((expected.mean(axis=0) - mean) / (error * np.sqrt(1 + 400 / 64))).max() < 4
    spread = simulated.std(axis=2).mean()
    assert np.abs(simulated.mean(axis=2) - expected).mean() < 0.05 * spread


def test_noise_of_any_shape_is_simulated_by_its_quantiles():
    logits = np.linspace(1.0, -1.0, Sieve.size)
    logits[Sieve.scales > 5] = -40.0  # its exponential has a mean that no number of quantiles shows
    noise = Noise(logits)
    drawn = noise.quantile((np.arange(200_000) + 0.5) / 200_000)
    assert drawn.mean() == pytest.approx(noise.mean, abs=2e-3)
    location, scale = np.array([0.5, -0.5]), np.array([0.1, 0.3])
    values = np.exp(location[:, None] + scale[:, None] * drawn).mean(axis=1)
    assert noise.mean_exponential(location, scale, Bounds(-50.0, 50.0)) == pytest.approx(values, rel=5e-3)


@pytest.mark.parametrize("logits", [None, np.linspace(1.0, -1.0, Sieve.size)], ids=["normal", "any shape"])
def test_the_mean_of_a_logarithm_ends_where_its_simulation_does(logits):
    """From locations and scales that no table shows, as a function far from its rows has them."""
    location = np.array([0.0, 1.0, -900.0, 900.0, 3.0, 0.0, -5.0])
    scale = np.array([0.3, 1.0, 1.0, 5.0, 80.0, 2.0, 0.01])
    bounds = Bounds(-2.0, 4.0)
    mechanism = NumberMechanism(lambda inputs: (location, scale), Noise(logits), bounds, logarithm=True)
    expected = mechanism.expected(np.zeros((7, 0)))
    chances = (np.arange(20_000) + 0.5) / 20_000
    simulated = np.stack([mechanism.simulate(np.zeros((7, 0)), np.full(7, chance)) for chance in chances])
    # 400 quantiles stand behind the mean of noise of any shape.
    assert expected == pytest.approx(np.exp(simulated).mean(axis=0), rel=1e-3 if logits is None else 1e-2)
    assert expected.max() <= np.exp(bounds.high) * (1 + 1e-12)


def test_the_bounds_of_a_column_are_in_the_units_of_its_score():
    data = Dataset(("y", "x"), np.exp(np.random.default_rng(0).normal(size=(100, 2))))
    node = MixedPredictive.of(data, np.array([True, False])).node(0, np.array([1]))
    low, high = np.log(data.values[:, 0]).min(), np.log(data.values[:, 0]).max()
    assert node.bounds == pytest.approx((1.5 * low - 0.5 * high, 1.5 * high - 0.5 * low))


def test_no_expected_count_lies_beyond_those_that_are_simulated():
    mechanism = CountMechanism(lambda inputs: np.array([3.0, 1e30]), None, Bounds(-2.0, 20.5))
    assert mechanism.expected(np.zeros((2, 0))).tolist() == [3.0, 21.0]


def test_a_function_of_all_parents_together_is_predicted_and_drawn():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((300, 3))
    values[:, 0] = 3 * np.sin(1.5 * values[:, 1]) * values[:, 2] + 0.3 * rng.standard_normal(300) + 5
    predictive = MixedPredictive.of(Dataset(("y", "a", "b"), values), np.zeros(3, dtype=bool))
    node = predictive.node(0, np.array([1, 2]))
    assert node.names[int(node.weights.argmax())] == "one function of all causes"
    new = rng.uniform(-1.5, 1.5, (200, 3))
    truth = 3 * np.sin(1.5 * new[:, 1]) * new[:, 2] + 5
    assert np.sqrt(np.mean((predictive.column(0, np.array([1, 2]), new).mean - truth) ** 2)) < 0.25
    drawn = np.mean([node.draw(rng, None).expected(new[:, 1:]) for _ in range(30)], axis=0)
    assert np.sqrt(np.mean((drawn - truth) ** 2)) < 0.25


def test_a_function_of_numbers_and_labels_is_scored_predicted_and_drawn():
    """The slope of one cause turns round with the label of another, which no sum of curves can say."""
    rng = np.random.default_rng(4)
    group, visits = rng.choice(3, size=300).astype(float), rng.poisson(3.0, size=300).astype(float)
    x = rng.normal(size=300)
    slope = np.array([1.5, -1.5, 0.0])
    y = slope[group.astype(int)] * x + 0.2 * np.sqrt(visits) + 0.3 * rng.normal(size=300)
    values = np.stack([y, x, group, visits], axis=1)
    columns = columns_of(("number", "number", "label", "count"), values)
    evidence = ColumnEvidence(0, Rows(columns, values))
    found = evidence.density(TOGETHER, [(1, 2, 3)])[0]
    points = np.concatenate([column.points(values[:, k]) for k, column in enumerate(columns)][1:], axis=1)
    own, kernel = evidence.y, np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(axis=2))
    noise, dense = GaussianProcess(), []
    for amplitude in noise.amplitudes:
        # Student-t, as the noise variance is inverse gamma.
        shape, scale = noise.noise_shape, noise.noise_scale
        covariance = amplitude * kernel + 1.0 + np.eye(300)
        dense.append(multivariate_t(shape=scale / shape * covariance, df=2 * shape).logpdf(own))
    assert found == pytest.approx(logsumexp(dense) - np.log(len(dense)), abs=0.2)
    assert found > max(one.max() for name, one in evidence.by_description([(1, 2, 3)]).items() if name != TOGETHER.name)
    data = Dataset(("y", "x", "group", "visits"), values, categories=(None, None, ("a", "b", "c"), None))
    node = MixedPredictive.of(data, np.zeros(4, dtype=bool)).node(0, np.array([1, 2, 3]))
    new = np.array([[1.0, 0, 3], [1.0, 1, 3], [1.0, 2, 3]])
    expected = slope + 0.2 * np.sqrt(3)
    np.testing.assert_allclose(node.predict(new, np.zeros(3)).mean, expected, atol=0.25)
    drawn = np.mean([node.draw(rng, None).expected(new) for _ in range(20)], axis=0)
    np.testing.assert_allclose(drawn, expected, atol=0.25)


def test_labels_lie_as_far_apart_as_any_two_rows_on_average():
    rng = np.random.default_rng(5)
    values = np.stack([rng.choice(4, p=[0.4, 0.3, 0.2, 0.1], size=500), rng.random(500) < 0.2, rng.normal(size=500)])
    for column in columns_of(("label", "yes/no", "number"), values.astype(float).T):
        points = column.points(column.values)
        squares = ((points[:, None] - points) ** 2).sum(axis=2)
        assert squares.mean() == pytest.approx(2.0, abs=1e-6)
        if column.levels.size:
            assert np.unique(squares.round(9)).size == 2


def test_draws_of_a_function_of_all_parents_share_one_factorised_kernel(monkeypatch):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((200, 3))
    values[:, 0] = 3 * np.sin(1.5 * values[:, 1]) * values[:, 2] + 0.3 * rng.standard_normal(200)
    node = MixedPredictive.of(Dataset(("y", "a", "b"), values), np.zeros(3, dtype=bool)).node(0, np.array([1, 2]))
    assert node.weights[node.names.index("one function of all causes")] > 0.99
    made, factorise = [], GaussianProcessPredictive.node
    monkeypatch.setattr(GaussianProcessPredictive, "node", lambda *args: made.append(1) or factorise(*args))
    for _ in range(20):
        node.draw(rng, None)
    assert len(made) == 1


def test_rare_answers_stay_rare_where_the_table_does_not_say_how_rare():
    """With 3 yes in 2,000 rows and 20 labels, the odds of most labels are low, but nobody knows how low."""
    rng = np.random.default_rng(0)
    values = np.stack([np.arange(2000) < 3, rng.integers(0, 20, 2000)], axis=1).astype(float)
    labels = (("no", "yes"), tuple("abcdefghijklmnopqrst"))
    data = Dataset(("rare", "group"), values, kinds=("yes/no", "label"), categories=labels)
    node = MixedPredictive.of(data, np.zeros(2, dtype=bool)).node(0, np.array([1]))
    groups = np.arange(20.0)[:, None]
    assert node.probabilities(groups)[:, 1].mean() < 0.01
    drawn = [node.draw(rng, None).probabilities(groups)[:, 1].mean() for _ in range(100)]
    assert np.mean(drawn) < 0.01


def test_new_rows_may_lack_a_logarithm_that_a_cause_had():
    """An effect may be straight in the logarithm of a cause that is positive in the table."""
    rng = np.random.default_rng(0)
    cause = np.exp(rng.standard_normal(300))
    data = Dataset(("y", "x"), np.stack([np.log(cause) + 0.3 * rng.standard_normal(300), cause], axis=1))
    predictive = MixedPredictive.of(data, np.zeros(2, dtype=bool))
    found = predictive.column(0, np.array([1]), np.array([[0.0, -1.0], [0.0, 1.0]]))
    assert np.isfinite(found.mean).all()
    assert np.isfinite(predictive.node(0, np.array([1])).draw(rng, None).expected(np.array([[0.0]]))).all()


def test_a_separated_column_is_predicted_without_overflow():
    x = np.random.default_rng(0).standard_normal(500)
    data = Dataset(("y", "x"), np.stack([x > 0, x], axis=1).astype(float), kinds=("yes/no", "number"))
    predictive = MixedPredictive.of(data, np.zeros(2, dtype=bool))
    found = predictive.column(0, np.array([1]), np.array([[1.0, 2.0], [0.0, -2.0], [1.0, -2.0]]))
    assert found.mean.tolist() == [1.0, 0.0, 0.0]
    assert (found.log_density[:2] > -0.01).all()
    assert -1000 < found.log_density[2] < -3


def test_rows_of_all_kinds_are_predicted_and_judged():
    posterior = mixed_tables.posterior()
    new = mixed_tables.dataset(2000, seed=7)
    predicted, frame = posterior.predict(new, graphs=3), new.to_frame()
    assert list(predicted.columns) == list(NAMES)
    assert set(predicted.plan) <= set(LABELS[-1])
    assert predicted.grade.isin([1, 2, 3, 4]).all()
    held_out = posterior.held_out(new, graphs=3)
    assert set(held_out) == {"mse", "accuracy", "log_likelihood", "nll"}
    coded = ["sex", "region", "smoker", "grade", "plan"]
    right = np.mean([(predicted[name].astype(str) == frame[name].astype(str)).mean() for name in coded])
    assert held_out["accuracy"] == pytest.approx(right)
    # One graph, so that the error is that of the mean itself.
    errors = [np.mean((predicted[name] - frame[name]) ** 2) for name in ("age", "visits", "income")]
    assert held_out["mse"] == pytest.approx(np.mean(errors), rel=1e-6)


def test_the_density_of_new_rows_is_close_to_that_of_the_true_model():
    """At 1,000 rows the loss is about half a nat for each hundred free numbers of the right model."""
    new = mixed_tables.simulated(2000, seed=8)
    posterior = mixed_tables.posterior()
    found = posterior.held_out(Dataset(NAMES, new, kinds=KINDS, categories=LABELS), graphs=1)
    empty = mixed_tables.posterior(None, ()).held_out(Dataset(NAMES, new, kinds=KINDS, categories=LABELS), graphs=1)
    assert found["log_likelihood"] > empty["log_likelihood"] + 0.5


def test_a_label_that_only_new_rows_have_is_named_with_its_row():
    posterior = mixed_tables.posterior()
    frame = mixed_tables.dataset(20, seed=9).to_frame()
    frame["region"] = frame.region.astype(str)
    frame.loc[4, "region"] = "south"
    with pytest.raises(DataError, match=r"data row 5 of column 'region' holds 'south'.*'west'.*leave out"):
        posterior.predict(frame)
    frame = mixed_tables.dataset(20, seed=9).to_frame()
    frame.loc[2, "grade"] = 9
    with pytest.raises(DataError, match=r"data row 3 of column 'grade' holds '9'.*leave out such rows"):
        posterior.predict(frame)
    frame = mixed_tables.dataset(20, seed=9).to_frame()
    frame.loc[1, "visits"] = 1.5
    with pytest.raises(DataError, match=r"data row 2 of column 'visits' holds '1.5'.*whole number"):
        posterior.predict(frame)
    frame = mixed_tables.dataset(20, seed=9).to_frame()
    frame["age"] = pd.Series(["old"] * 10 + ["young"] * 10)
    with pytest.raises(DataError, match="'age' holds labels"):
        posterior.predict(frame)


def test_rows_in_which_an_experiment_set_a_column_say_nothing_of_its_causes():
    values = mixed_tables.simulated(400, 0)
    held = np.zeros(values.shape, dtype=bool)
    held[:200, NAMES.index("visits")] = True
    values[:200, NAMES.index("visits")] = 7
    data = Dataset(NAMES, values, kinds=KINDS, categories=LABELS, interventions=held)
    node = MixedPredictive.of(data, LOGARITHM).node(4, np.array([0, 3]))
    alone = MixedPredictive.of(data.select(slice(200, None)), LOGARITHM).node(4, np.array([0, 3]))
    inputs = mixed_tables.simulated(5, 1)[:, [0, 3]]
    means = [one.predict(inputs, np.zeros(5)).mean for one in (node, alone)]
    # The features of age are scaled by all rows, or by those alone.
    assert means[0] == pytest.approx(means[1], rel=0.1)


def test_of_a_large_table_some_rows_are_kept_with_every_level():
    values = np.zeros((20_000, 2))
    values[:, 0] = np.random.default_rng(0).standard_normal(20_000)
    values[17_123, 1] = 2
    values[::2, 1] = 1
    data = Dataset(("x", "label"), values, kinds=("number", "label"), categories=(None, ("a", "b", "rare")))
    predictive = MixedPredictive.of(data, np.zeros(2, dtype=bool))
    assert predictive.rows.shape == (5000, 2)
    assert set(predictive.rows[:, 1]) == {0, 1, 2}


def test_a_stored_prediction_is_the_same():
    predictive = MixedPredictive.of(mixed_tables.dataset(200), LOGARITHM)
    restored = MixedPredictive.restore(predictive.config(), predictive.arrays())
    new = predictive.scaling.apply(mixed_tables.simulated(20, 3))
    for target, parents in NODES:
        own, *others = chosen_columns(target, parents)
        first, again = (one.column(own, np.array(others), new) for one in (predictive, restored))
        assert np.array_equal(first.log_density, again.log_density)
    assert (restored.labels, restored.kinds) == (LABELS, KINDS)
    copied = pickle.loads(pickle.dumps(predictive))
    assert np.array_equal(copied.rows, predictive.rows)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda config, arrays: config.update(kinds=["number"] * 7 + ["date"]), "kinds of columns"),
        (lambda config, arrays: config.update(kinds=["count", *KINDS[1:]]), "counts"),
        (lambda config, arrays: config["column_labels"].__setitem__(2, ["east"]), "codes of its 1 labels"),
        (lambda config, arrays: arrays.update(rows=-arrays["rows"]), "column 1 must hold codes of its 2 labels"),
        (lambda config, arrays: arrays.update(rows=arrays["rows"][:, :5]), "rows must have the shape"),
        (lambda config, arrays: arrays.update(held=np.zeros((2, 8), dtype=bool)), "held must have the shape"),
        (lambda config, arrays: arrays.update(scale=np.full(8, 2.0)), "no scaling but"),
    ],
)
def test_a_stored_table_that_no_fit_wrote_is_refused(change, fault):
    predictive = MixedPredictive.of(mixed_tables.dataset(50), LOGARITHM)
    config, arrays = predictive.config(), dict(predictive.arrays())
    change(config, arrays)
    with pytest.raises(ConfigError, match=fault):
        MixedPredictive.restore(config, arrays)


def test_imputed_tables_vote_by_probability():
    """A mixture over imputations averages the probabilities of labels, not their codes."""
    first, second = (mixed_tables.posterior(mixed_tables.dataset(300, seed)).graph_posterior for seed in (1, 2))
    mixture = ImputedMixture((first, second))
    values = mixed_tables.simulated(50, 3)
    rng = np.random.default_rng(0)
    found = mixture.predict(rng, values, 10, names=NAMES)
    assert set(found.mean[:, NAMES.index("plan")]) <= {0, 1, 2}
    assert 0 < found.accuracy < 1
    assert found.shares[2].sum(axis=1) == pytest.approx(1.0)


def test_runs_of_several_kinds_are_stored_and_loaded(tmp_path):
    posterior = mixed_tables.posterior(mixed_tables.dataset(150))
    posterior.save(tmp_path / "run")
    loaded = type(posterior).load(tmp_path / "run")
    assert (loaded.kinds, loaded.categories) == (KINDS, LABELS)
    new = mixed_tables.dataset(30, seed=2)
    assert loaded.held_out(new, graphs=1) == posterior.held_out(new, graphs=1)
    assert isinstance(loaded.sample(1), GraphSamples)
