"""Single rows: counterfactuals, and which causes made a row unusual."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import vcuda
from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError, DataError
from vcuda.models.glm.likelihoods import Sieve
from vcuda.models.mixed.mechanisms import Bounds, CodedMechanism, CountMechanism, Noise, NumberMechanism
from vcuda.models.prediction import Mechanism
from vcuda.posterior.mechanisms import CausalModel
from vcuda.summaries.attribution import _shapley, contributions
from vcuda.summaries.single_rows import counterfactual_row


def linear_model(weights, noise, intercepts, scaling=None):
    """A causal model with these weights (d, d), and nothing drawn."""
    sources, targets = np.nonzero(weights)

    def mechanism(node, parents):
        return Mechanism.linear(weights[parents, node], float(intercepts[node]), float(noise[node]))

    d = len(weights)
    return CausalModel(sources, targets, scaling or Scaling(np.zeros(d), np.ones(d)), mechanism)


WEIGHTS = np.array([[0, 1.5, 0, -0.7], [0, 0, 0.8, 0.4], [0, 0, 0, 2.0], [0, 0, 0, 0]], dtype=float)
NOISE = np.array([1.0, 0.5, 2.0, 0.3])


def test_a_linear_counterfactual_is_the_closed_form():
    """x' = x + (do - x_b) times the total effects of b, whatever the noise: (I - W)^-1 without the edges into b."""
    rng = np.random.default_rng(0)
    row, intercepts = rng.standard_normal(4), rng.standard_normal(4)
    scaling = Scaling(np.array([1.0, -2.0, 0.5, 3.0]), np.array([2.0, 0.1, 5.0, 1.0]))
    found, unknown = counterfactual_row(linear_model(WEIGHTS, NOISE, intercepts, scaling), row, {1: 4.0}, rng)
    cut = WEIGHTS * scaling.scale / scaling.scale[:, None]
    cut[:, 1] = 0.0
    total = np.linalg.inv(np.eye(4) - cut)[1]
    np.testing.assert_allclose(found, row + (4.0 - row[1]) * total, atol=1e-12)
    assert found[0] == row[0]
    assert not unknown
    # Nothing changes where a column is set to what it was; two columns may be set.
    same, _ = counterfactual_row(linear_model(WEIGHTS, NOISE, intercepts), row, {1: row[1]}, rng)
    np.testing.assert_allclose(same, row, atol=1e-12)
    both, _ = counterfactual_row(linear_model(WEIGHTS, NOISE, intercepts), row, {1: 1.0, 2: 2.0}, rng)
    assert both[3] == pytest.approx(row[3] + 0.4 * (1.0 - row[1]) + 2.0 * (2.0 - row[2]))


@pytest.mark.parametrize("logits", [None, np.linspace(-1, 1, Sieve.means.size)])
def test_the_noise_of_a_number_makes_the_number_again(logits):
    own = NumberMechanism(lambda x: (x[:, 0] ** 2, 1 + x[:, 0] ** 2), Noise(logits), Bounds(-100, 100))
    rng, inputs, values = np.random.default_rng(1), np.array([[0.3], [2.0]]), np.array([1.0, -5.0])
    np.testing.assert_allclose(own.with_noise(inputs, own.noise_of(inputs, values, rng)), values)
    assert own.noise_is_identified


def test_the_noise_of_steps_is_drawn_from_what_the_value_leaves():
    rng, inputs = np.random.default_rng(2), np.zeros((400, 1))
    count = CountMechanism(lambda x: 2.5 + x[:, 0], None, Bounds(0, 40))
    more = CountMechanism(lambda x: 2.5 + x[:, 0], 3.0, Bounds(0, 40))
    label = CodedMechanism(lambda x: np.tile([0.2, 0.5, 0.3], (len(x), 1)), np.array([0.0, 1.0, 2.0]))
    counts, labels = rng.poisson(2.5, 400), rng.integers(3, size=400)
    for own, values in ((count, counts), (more, counts), (label, labels)):
        found = own.noise_of(inputs, values.astype(float), rng)
        assert found.min() >= 0
        assert found.max() <= 1
        np.testing.assert_array_equal(own.with_noise(inputs, found), values)
        assert not own.noise_is_identified
    # Of values that the mechanism itself draws, all noise is as likely as any: the mean of 4,000 is .5 +- .005.
    inputs = np.zeros((4000, 1))
    drawn = count.with_noise(inputs, count.any_noise(rng, 4000))
    assert count.noise_of(inputs, drawn, rng).mean() == pytest.approx(0.5, abs=0.02)


def test_contributions_sum_up_to_the_surprise_and_agree_with_all_orders():
    """Two causes and their sum: Shapley values written out by hand from normal tails."""
    weights = np.array([[0, 0, 1.0], [0, 0, 2.0], [0, 0, 0]])
    model = linear_model(weights, np.array([1.0, 0.5, 0.5]), np.zeros(3))
    row = np.array([4.0, 0.1, 4.0])
    found, _ = contributions(model, row, 2, np.random.default_rng(0))
    terms, variances = np.array([4.0, 0.2, -0.2]), np.array([1.0, 1.0, 0.25])

    def v(fixed):
        free = [k for k in range(3) if k not in fixed]
        if not free:
            return 0.0
        spread = np.sqrt(variances[free].sum())
        place = terms[list(fixed)].sum()
        return np.log(norm.sf(4.0, place, spread) + norm.cdf(-4.0, place, spread))

    orders = [(a, b, c) for a in range(3) for b in range(3) for c in range(3) if len({a, b, c}) == 3]
    expected = np.zeros(3)
    for order in orders:
        for place, k in enumerate(order):
            expected[k] += (v(order[: place + 1]) - v(order[:place])) / len(orders)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert found.sum() == pytest.approx(-v(()))
    assert found.argmax() == 0


def test_orders_that_are_drawn_agree_with_all_sets():
    """An additive function of sets has the same contribution in every order, so few orders give it exactly."""
    worth = np.array([3.0, -1.0, 0.5, 2.0])
    rng = np.random.default_rng(0)
    every = _shapley(lambda sets: sets @ worth, 4, rng, 12, 1)
    some = _shapley(lambda sets: sets @ worth, 4, rng, 2, 3)
    np.testing.assert_allclose(every, worth)
    np.testing.assert_allclose(some, worth)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    a, c = rng.standard_normal((2, 300))
    b = 1.2 * a + 0.5 * rng.standard_normal(300)
    d = 0.8 * b - 0.7 * c + 0.5 * rng.standard_normal(300)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d})


KNOWN = vcuda.Knowledge(tiers=[["a", "c"], ["b"], ["d"]])
ROW = {"a": 0.0, "b": 3.0, "c": 0.0, "d": 2.6}


@pytest.fixture(scope="module")
def posterior(table):
    return vcuda.fit(table, model="linear", knowledge=KNOWN, checks=False)


@pytest.mark.slow
def test_a_posterior_answers_for_one_row(posterior, table, run, tmp_path):
    found = posterior.counterfactual(ROW, do={"b": 0.0})
    # d falls by 3 times its slope of .8, which 300 rows know within .03 or so; nothing else moves.
    assert found.table.loc["d", "counterfactual"] == pytest.approx(2.6 - 2.4, abs=0.25)
    assert found.table.loc["a", "unchanged"] == 1.0
    assert "Had b = 0 been set" in found.sentence
    assert posterior.counterfactual(pd.Series(ROW), do={"b": 0.0}).table.equals(found.table)
    why = posterior.attribute(pd.DataFrame([ROW]), "d")
    assert why.table.index[0] == "b"
    assert why.table.contribution.sum() == pytest.approx(why.surprise.mean())
    assert why.table["share"].sum() == pytest.approx(1.0)
    assert "b (" in why.sentence
    assert posterior.attribute({**ROW, "b": 0.0, "d": 0.1}, "d").sentence.find("nothing to explain") > 0
    posterior.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    assert again.attribute(ROW, "d").table.equals(why.table)
    pd.concat([pd.DataFrame([ROW]), table]).to_csv(tmp_path / "rows.csv", index=False)
    shown = run("counterfactual", tmp_path / "run", tmp_path / "rows.csv", "--do", "b=0", "--json")
    assert json.loads(shown.out)["columns"][3]["counterfactual"] == pytest.approx(found.table.counterfactual["d"])
    shown = run("attribute", tmp_path / "run", tmp_path / "rows.csv", "d", "--json")
    assert json.loads(shown.out)["columns"][0]["column"] == "b"
    assert "What is unusual comes from b" in run("attribute", tmp_path / "run", tmp_path / "rows.csv", "d").out
    for line in (["--do", "b"], ["--do", "b=0", "--row", "400"], ["--do", "e=0"]):
        assert run("counterfactual", tmp_path / "run", tmp_path / "rows.csv", *line).code == 2


@pytest.mark.slow
def test_kinds_whose_noise_is_not_known(table):
    rng = np.random.default_rng(5)
    mixed = table.drop(columns="a").assign(
        e=np.where(table.d + 0.5 * rng.logistic(size=300) > 0, "yes", "no"), n=rng.poisson(np.exp(0.4 * table.b))
    )
    known = vcuda.Knowledge(tiers=[["c", "b"], ["d"], ["e", "n"]], forbidden=["b -> c", "c -> b"])
    posterior = vcuda.fit(mixed, knowledge=known, checks=False, subsamples=1)
    row = {"b": 3.0, "c": 0.0, "d": 2.6, "e": "yes", "n": 4}
    found = posterior.counterfactual(row, do={"b": -3.0}, draws=30)
    assert found.table.loc["e", "counterfactual"] == "no"
    assert found.table.loc["n", "counterfactual"] < 2
    assert any("not known from the row" in note for note in found.notes)
    assert posterior.counterfactual(row, do={"e": "no"}, draws=5).table.loc["d", "unchanged"] == 1.0
    why = posterior.attribute(row, "d", draws=10)
    assert why.table.index[0] == "b"
    with pytest.raises(DataError, match="no label 'maybe'"):
        posterior.counterfactual({**row, "e": "maybe"}, do={"b": 0.0})


def test_what_cannot_be_answered_is_refused(posterior):
    for change, options, sentence in (
        (ROW, {}, "do says what is set"),
        (ROW, {"bb": 1.0}, "bb"),
        ({"a": 1.0}, {"b": 1.0}, "no value for 'b', 'c' and 'd'"),
        ({**ROW, "a": np.nan}, {"b": 1.0}, "'a' is missing"),
        ({**ROW, "a": "high"}, {"b": 1.0}, "holds numbers"),
        (pd.DataFrame([ROW, ROW]), {"b": 1.0}, "one of them"),
        (3.0, {"b": 1.0}, "a row is a mapping"),
    ):
        with pytest.raises((DataError, ConfigError), match=sentence):
            posterior.counterfactual(change, do=options)
    labels = pd.DataFrame({"x": ["a", "b"] * 20, "y": ["c", "d", "d", "c"] * 10})
    with pytest.raises(ConfigError, match="fit model mixed"):
        vcuda.fit(labels, checks=False).counterfactual({"x": "a", "y": "c"}, do={"x": "b"})
    with pytest.raises(ConfigError, match="outcome"):
        posterior.attribute(ROW, "outcome")
