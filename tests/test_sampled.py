"""Predictions of the score-based engines: weights and noise integrated out, in the user's units."""

import numpy as np
import pytest
from scipy.integrate import quad

import vcuda
from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError
from vcuda.models.linear import BGe, EqualNoise, LinearPredictive
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples


@pytest.fixture(scope="module")
def simulation():
    return vcuda.simulate("er", nodes=5, edges=6, rows=300, test_rows=200, seed=2)


def predictive(data, *, variance):
    scaled = (data.values - data.mean) / data.scale
    return LinearPredictive(scaled.T @ scaled, Scaling(data.mean, data.scale), data.n, 0.5, variance=variance), scaled


@pytest.mark.parametrize("variance", [0.7, None])
def test_the_mean_is_ridge_regression_and_the_density_integrates_to_one(simulation, variance):
    graph_posterior, scaled = predictive(simulation.train, variance=variance)
    parents = np.array([1, 3])
    row = np.array([[0.3, -1.0, 0.5, 2.0, 0.1]])
    inputs, target = scaled[:, parents], scaled[:, 0]
    weights = np.linalg.solve(inputs.T @ inputs + 0.5 * np.eye(2), inputs.T @ target)
    assert graph_posterior.column(0, parents, row).mean[0] == pytest.approx(row[0, parents] @ weights)

    def density(value):
        return float(np.exp(graph_posterior.column(0, parents, np.array([[value, *row[0, 1:]]])).log_density[0]))

    assert quad(density, -30, 30, limit=200)[0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("spec", [EqualNoise(variance=1.0), BGe()], ids=["equal", "bge"])
def test_the_density_of_a_row_is_what_the_score_gains_by_it(simulation, spec):
    """log p(row | table) = log p(table and row) - log p(table), whatever the formula.

    The scores put the prior of intercept and units at the table's own mean and scale, which one row in 300 moves a
    little: a hundredth of a nat.
    """
    train, parents = simulation.train, [1, 3]
    graph_posterior = spec.prepare(train.values).predictive(train)
    for row in simulation.test.values[:5]:
        more = np.vstack([train.values, row])

        def evidence(values):
            score = spec.prepare(values)
            # The Jacobian belongs to all columns; the share of column 0 is what its own scale gives.
            own = 0.0 if isinstance(spec, EqualNoise) else -len(values) * np.log(values[:, 0].std())
            return score.score(0, parents) + own

        gained = evidence(more) - evidence(train.values)
        seen = graph_posterior.column(0, np.array(parents), graph_posterior.scaling.apply(row[None])).log_density[
            0
        ] - np.log(graph_posterior.scaling.scale[0])
        assert seen == pytest.approx(gained, abs=0.03)


@pytest.mark.parametrize("noise", ["equal", "unequal"])
def test_held_out_rows_are_predicted_almost_as_well_as_they_can_be(simulation, noise):
    """The noise has variance one, so 1 is the floor of the error and 1.419 that of the nats a cell."""
    seen = vcuda.fit(simulation.train, engine="exact", model="linear", noise=noise).held_out(simulation.test)
    if (
        noise == "equal"
    ):  # the graph is identified: 200 rows of 5 columns have a standard error of sqrt(2 / 1000) = 0.045
        assert seen["mse"] == pytest.approx(1.0, abs=4 * 0.045)
    assert seen["nll"] == pytest.approx(0.5 * np.log(2 * np.pi * np.e), abs=0.12)


def test_units_change_the_numbers_as_they_should(simulation):
    units = np.array([1.0, 1e3, 1e-3, 7.0, 2.0])
    asked = {"engine": "exact", "model": "linear", "noise": "unequal"}
    plain = vcuda.fit(simulation.train, **asked)
    scaled = vcuda.fit(simulation.train.to_frame() * units + 5, **asked)
    np.testing.assert_allclose(scaled.edge_probabilities, plain.edge_probabilities, atol=1e-6)
    seen = scaled.held_out(simulation.test.to_frame() * units + 5)["log_likelihood"]
    assert seen == pytest.approx(plain.held_out(simulation.test)["log_likelihood"] - np.log(units).sum(), abs=1e-6)


@pytest.mark.parametrize("model", ["additive", "gp"])
def test_nonlinear_models_predict_bent_columns_better_than_linear_ones(model):
    rng = np.random.default_rng(0)
    first, second, noise = rng.normal(size=(3, 400))
    table = np.column_stack([first, second, np.sin(2 * first) + second**2 + 0.3 * noise])
    asked = {"engine": "exact", "noise": "unequal"}
    linear, bent = (
        vcuda.fit(table[:200], model=name, **asked).held_out(table[200:])["log_likelihood"]
        for name in ("linear", model)
    )
    # Of the third column's variance of 2.6 a line explains about a tenth, and the rest is noise of .3: log(1.5 / .3) =
    # 1.6 nats a row are there to be had, of which 200 rows teach most.
    assert bent > linear + 1.0


def test_a_score_without_predictions_says_so(simulation):
    pool = GraphSamples.from_dense(simulation.train.names, np.zeros((5, 5)))
    graph_posterior = SampledGraphs(pool, np.zeros((5, 5)), None)
    with pytest.raises(ConfigError, match="no predictions"):
        graph_posterior.predict(np.random.default_rng(0), simulation.test.values, 10)


def test_predictions_are_the_average_over_graphs_one_by_one(simulation):
    """Sharing parent sets between graphs must not change what the graphs say together."""
    train, test = simulation.train, simulation.test.values
    graphs = np.zeros((3, 5, 5), dtype=bool)
    graphs[0, 1, 0] = graphs[0, 3, 0] = graphs[1, 1, 0] = graphs[1, 3, 0] = graphs[1, 2, 4] = graphs[2, 0, 2] = True
    predictive = BGe().prepare(train.values).predictive(train)
    alone = [
        SampledGraphs(GraphSamples.from_dense(train.names, graph), graph.astype(float), predictive).predict(
            np.random.default_rng(0), test, 1
        )
        for graph in graphs
    ]
    pool = GraphSamples.from_dense(train.names, graphs)
    together = SampledGraphs(pool, graphs.mean(axis=0), predictive).predict(np.random.default_rng(0), test, 3)
    np.testing.assert_allclose(together.mean, np.mean([one.mean for one in alone], axis=0), atol=1e-12)
    assert together.mse == pytest.approx(np.mean([one.mse for one in alone]))
    assert together.mse != pytest.approx(alone[0].mse)
    densities = np.mean(np.exp([one.log_density for one in alone]), axis=0)
    np.testing.assert_allclose(together.log_density, np.log(densities), atol=1e-9)
