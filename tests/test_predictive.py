"""Predictions of new rows: what a score gains by a row, in the user's units, through logarithms and run folders."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp

import vcuda
from vcuda.dags.priority import PriorityDags, PriorityParams
from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError, DataError, RunError
from vcuda.models import Linear
from vcuda.models.additive import AdditiveBasis
from vcuda.models.categorical import BDeu
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.gaussian_process import prediction as predictive_module
from vcuda.models.gaussian_process import score as score_module
from vcuda.models.gaussian_process.score import _kernel_features
from vcuda.models.linear import BGe, EqualNoise
from vcuda.posterior.mixture import OrderMixture
from vcuda.posterior.posterior import Posterior, Status
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples
from vcuda.posterior.storage import load, save
from vcuda.posterior.trained import TrainedMixture

SPECS = {
    "known noise": EqualNoise(variance=0.8),
    "shared noise": EqualNoise(),
    "bge": BGe(mean_rows=2.0, excess=3.0),
    "additive": AdditiveBasis(amplitudes=(0.3, 4.0), noise_shape=1.5, noise_scale=0.7),
    "gp": GaussianProcess(amplitudes=(0.3, 4.0), noise_shape=1.5, noise_scale=0.7, length_scale=1.3),
}
PARENTS = [[], [1], [3, 1], [1, 2, 3]]


def table(rows, seed=0):
    """Four columns of different units; the first bends with the second and third."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 4))
    values[:, 0] = np.sin(2 * values[:, 1]) + values[:, 2] * values[:, 3] + 0.3 * rng.normal(size=rows)
    return values * [1.0, 3.0, 0.5, 2.0] + [0.0, 10.0, -1.0, 2.0]


def prepared(name, data, **settings):
    score = SPECS[name].prepare(data.values)
    variance = 0.6 if name == "shared noise" else None
    return (score.at(variance) if variance else score), score.predictive(data, value=variance, **settings)


def score_of_rows(score, rows):
    """The same score, its units and its basis as they are, of other rows: these need not have mean zero any more.

    The intercept, with the noise's variance (for BGe that over ``mean_rows``), leaves I - 1 1' / (n + 1).
    """
    count = len(rows)

    def products(left, right, mean_rows=1.0):
        return left.T @ right - np.outer(left.sum(axis=0), right.sum(axis=0)) / (count + mean_rows)

    if hasattr(score, "bases"):
        design = np.concatenate([score.bases.of(j).at(rows[:, j]) for j in range(score.nodes)], axis=1)
        return replace(
            score,
            gram=products(design, design),
            products=products(design, rows),
            squares=np.diag(products(rows, rows)),
            noise=replace(score.noise, rows=count),
        )
    if score.columns is not None:
        features = tuple(_kernel_features(column, score.length_scale) for column in rows.T)
        return replace(score, columns=rows, features=features, noise=replace(score.noise, rows=count))
    return replace(score, gram=products(rows, rows, getattr(score, "mean_rows", 1.0)), rows=count)


@pytest.mark.parametrize("parents", PARENTS, ids=str)
@pytest.mark.parametrize("name", [name for name in SPECS if name != "gp"])
def test_the_density_of_a_row_is_what_the_score_gains_by_it(name, parents):
    data = vcuda.as_dataset(table(60))
    score, predictive = prepared(name, data)
    scaled = predictive.scaling.apply(data.values)
    before = score.score(0, parents)
    assert score_of_rows(score, scaled).score(0, parents) == pytest.approx(before, abs=1e-9)
    new = predictive.scaling.apply(table(5, seed=1))
    reports = predictive.column(0, np.array(parents, dtype=np.int64), new).log_density
    gained = [score_of_rows(score, np.vstack([scaled, row])).score(0, parents) - before for row in new]
    np.testing.assert_allclose(reports, gained, atol=1e-9)


def full_kernel_evidence(score, rows, parents):
    """log p of column 0 with the covariance written out, one amplitude after the other."""
    inputs, evidences = rows[:, parents] / score.length_scale, []
    kernel = np.exp(-0.5 * ((inputs[:, None] - inputs) ** 2).sum(axis=2)) if parents else np.zeros((len(rows),) * 2)
    for amplitude in score.amplitudes:
        covariance = amplitude * kernel + 1.0 + np.eye(len(rows))
        residual = rows[:, 0] @ np.linalg.solve(covariance, rows[:, 0])
        noise = replace(score.noise, rows=len(rows))
        evidences.append(noise.log_evidence(residual, np.linalg.slogdet(covariance)[1]))
    return logsumexp(evidences)


@pytest.mark.parametrize("parents", PARENTS, ids=str)
@pytest.mark.parametrize(("budget", "tolerance"), [(0.0, 1e-5), (predictive_module.KERNEL_BUDGET, 1e-3)])
def test_a_gaussian_process_gains_the_same_with_features_and_with_the_full_kernel(
    monkeypatch, budget, tolerance, parents
):
    """Columns in single precision cost 1e-6; what features may leave out is a thousandth, over all rows."""
    monkeypatch.setattr(predictive_module, "KERNEL_BUDGET", budget)
    monkeypatch.setattr(predictive_module, "BLOCK_ROWS", 2)
    data = vcuda.as_dataset(table(200))
    score, predictive = prepared("gp", data)
    scaled, new = predictive.scaling.apply(data.values), predictive.scaling.apply(table(5, seed=1))
    new[0, 1:] = 9.0  # where nothing was seen, only the prior speaks
    reports = predictive.column(0, np.array(parents, dtype=np.int64), new).log_density
    before = full_kernel_evidence(score, scaled, parents)
    gained = [full_kernel_evidence(score, np.vstack([scaled, row]), parents) - before for row in new]
    np.testing.assert_allclose(reports, gained, atol=tolerance)
    if parents:  # without parents this score knows centred columns only
        # The score itself leaves out features: it is within .03, .02 and .08 nats of the full kernel for one, two and
        # three parents.
        near = [score_of_rows(score, np.vstack([scaled, row])).score(0, parents) for row in new]
        np.testing.assert_allclose(
            reports, np.array(near) - score.score(0, parents), atol=[0.03, 0.02, 0.08][len(parents) - 1]
        )


def test_few_features_do_for_one_parent_and_many_parents_take_the_full_kernel():
    rows = np.random.default_rng(0).normal(size=(400, 5))
    assert len(predictive_module._pivots(rows[:, :1])) < 30
    assert predictive_module._pivots(rows) is None


def test_a_large_table_keeps_some_rows_and_predicts_almost_the_same(monkeypatch):
    monkeypatch.setattr(score_module, "KERNEL_ROWS", 150)
    data = vcuda.as_dataset(table(600))
    _, kept = prepared("gp", data)
    assert kept.columns.shape == (150, 4)
    assert kept.noise.rows == 150
    monkeypatch.setattr(score_module, "KERNEL_ROWS", 4000)
    _, full = prepared("gp", data)
    new = full.scaling.apply(table(100, seed=1))
    few, all_rows = (graph_posterior.column(0, np.array([1, 2, 3]), new) for graph_posterior in (kept, full))
    # The noise is .3 against a spread of 1.3 of the column; a quarter of the rows must not cost more than that noise.
    error, more_error = (np.mean((graph_posterior.mean - new[:, 0]) ** 2) for graph_posterior in (all_rows, few))
    assert error < more_error < error + (0.3 / 1.3) ** 2
    assert all_rows.log_density.mean() > few.log_density.mean()


@pytest.mark.parametrize("name", SPECS)
def test_densities_integrate_to_one_around_the_mean(name):
    data = vcuda.as_dataset(table(40))
    _, predictive = prepared(name, data)
    row = predictive.scaling.apply(table(1, seed=3))

    def density(value):
        changed = row.copy()
        changed[0, 0] = value
        return float(np.exp(predictive.column(0, np.array([1, 3]), changed).log_density[0]))

    span = 60 * np.sqrt(np.mean(predictive.scaling.apply(data.values)[:, 0] ** 2))
    assert quad(density, -span, span, points=[0.0], limit=400)[0] == pytest.approx(1.0, abs=1e-5)
    centre = quad(lambda value: value * density(value), -span, span, points=[0.0], limit=400)[0]
    assert predictive.column(0, np.array([1, 3]), row).mean[0] == pytest.approx(centre, abs=1e-4)


def test_categories_have_no_predictions_and_a_shared_noise_needs_its_variance():
    data = vcuda.as_dataset(np.random.default_rng(0).integers(0, 3, size=(30, 3)).astype(float))
    assert BDeu().prepare(data.values).predictive(data) is None
    with pytest.raises(ConfigError, match="the noise variance is needed"):
        EqualNoise().prepare(data.values).predictive(data)


def test_scalings_undo_what_they_apply_and_compose():
    values = np.exp(np.random.default_rng(0).normal(size=(6, 4)))
    before = values.copy()
    first = Scaling(
        np.array([0.5, 1.0, 0.0, 0.0]), np.array([2.0, 3.0, 4.0, 1.0]), np.array([True, False, False, False])
    )
    second = Scaling(
        np.array([0.1, -1.0, 0.3, 0.2]), np.array([0.5, 5.0, 2.0, 3.0]), np.array([False, False, True, True])
    )
    np.testing.assert_allclose(first.apply(values)[:, 0], (np.log(values[:, 0]) - 0.5) / 2)
    np.testing.assert_allclose(first.undo(first.apply(values)), values)
    both = first.then(second)
    np.testing.assert_allclose(both.apply(values), second.apply(first.apply(values)))
    np.testing.assert_allclose(both.undo(both.apply(values)), values)
    np.testing.assert_array_equal(both.logarithm, [True, False, True, True])
    # d(scaled)/d(x) by differences, for every cell.
    step = 1e-6
    slopes = (both.apply(values + step) - both.apply(values - step)) / (2 * step)
    np.testing.assert_allclose(both.log_jacobian(values), np.log(slopes).sum(axis=1), atol=1e-7)
    np.testing.assert_array_equal(values, before)
    np.testing.assert_array_equal(Scaling(np.zeros(3), np.ones(3)).logarithm, [False] * 3)
    for impossible in (first, Scaling(np.array([0.0, 0.0, 1.0, 0.0]), np.ones(4))):
        with pytest.raises(ConfigError, match="logarithm of a column"):
            impossible.then(Scaling(np.zeros(4), np.ones(4), np.array([True, False, True, False])))


def log_table(rows, seed):
    """The same with positive, skewed second and fourth columns."""
    values = table(rows, seed)
    values[:, [1, 3]] = np.exp((values[:, [1, 3]] - [10.0, 2.0]) / [3.0, 2.0]) * [50.0, 0.01]
    return values


LOGARITHM = np.array([False, True, False, True])
GRAPH = np.zeros((4, 4), dtype=bool)
GRAPH[[1, 2, 3, 3], [0, 0, 0, 1]] = True
NAMES = ("force", "dose", "offset", "mass")


OUTER = Scaling(np.array([1.0, 2.0, 0.0, -1.0]), np.array([2.0, 0.5, 3.0, 1.0]), LOGARITHM)


def one_graph(predictive):
    return SampledGraphs(GraphSamples.from_dense(NAMES, GRAPH), GRAPH.astype(float), predictive)


def logarithmic_law(name):
    """A law of one graph, fitted on a table that was made with logarithms."""
    return one_graph(prepared(name, vcuda.as_dataset(OUTER.apply(log_table(80, 0))), scaling=OUTER)[1])


@pytest.mark.parametrize("name", SPECS)
def test_logarithmic_columns_are_predicted_in_the_users_units(name):
    """Against the law of the table as it was given, which has never heard of logarithms, with all the rest by hand."""
    test = log_table(30, 1)
    reports = logarithmic_law(name).predict(np.random.default_rng(0), test, 3)
    logged = np.column_stack([test[:, 0], np.log(test[:, 1]), test[:, 2], np.log(test[:, 3])])
    unknowing = one_graph(prepared(name, vcuda.as_dataset(OUTER.apply(log_table(80, 0))))[1])
    by_hand = unknowing.predict(np.random.default_rng(0), (logged - OUTER.centre) / OUTER.scale, 3)
    expected = by_hand.mean * OUTER.scale + OUTER.centre
    expected[:, [1, 3]] = np.exp(expected[:, [1, 3]])
    np.testing.assert_allclose(reports.mean, expected, rtol=1e-6)
    jacobian = -np.log(2.0 * 0.5 * 3.0) - logged[:, 1] - logged[:, 3]
    np.testing.assert_allclose(reports.log_density, by_hand.log_density + jacobian, atol=1e-6)
    assert reports.mse == pytest.approx(np.mean((test - expected) ** 2), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bge", "gp"])
def test_a_logarithmic_column_has_a_density_in_its_own_unit_and_its_median_is_the_prediction(name):
    """Column 1 is a parent of column 0: with column 0 taken out of the graph, the row's density over column 1 alone,
    divided by that of the other columns, must integrate to one, and to a half up to the prediction."""
    graph_posterior, test = logarithmic_law(name), log_table(30, 1)
    alone = replace(graph_posterior, pool=GraphSamples.from_dense(NAMES, GRAPH * [[0, 1, 1, 1]]))
    row = test[:1]

    def log_row(value):
        changed = row.copy()
        changed[0, 1] = value
        return alone.predict(np.random.default_rng(0), changed, 1)

    reference = log_row(row[0, 1])
    scaled = graph_posterior.predictive.scaling.apply(row)
    own = graph_posterior.predictive.column(1, np.array([3]), scaled).log_density[0]
    own += graph_posterior.predictive.scaling.of(1).log_jacobian(row[:, 1:2])[0]

    def density(power):
        value = np.exp(power)
        return float(np.exp(log_row(value).log_density[0] - reference.log_density[0] + own)) * value

    middle = float(np.log(reference.mean[0, 1]))
    assert quad(density, middle - 30, middle, limit=200)[0] == pytest.approx(0.5, abs=1e-4)
    assert quad(density, middle, middle + 30, limit=200)[0] == pytest.approx(0.5, abs=1e-4)


def test_a_value_without_a_logarithm_is_refused_by_the_name_of_its_column():
    graph_posterior, test = logarithmic_law("bge"), log_table(30, 1)
    for value in (0.0, -2.0):
        changed = test.copy()
        changed[4, 3] = value
        with pytest.raises(DataError, match=r"'mass' was fitted on its logarithm, but data row 5 has .*positive"):
            graph_posterior.predict(np.random.default_rng(0), changed, 2)
    with pytest.raises(DataError, match="'weight'"):
        graph_posterior.predict(np.random.default_rng(0), changed, 2, names=("a", "b", "c", "weight"))


def trained_law():
    rng = np.random.default_rng(3)
    logits = np.float32(rng.normal(size=(2, 4, 4)))
    model = Linear()
    params = [jax.device_get(model.init(jax.random.key(k), 4)) for k in range(2)]
    return TrainedMixture(
        dags=PriorityDags(scale="per_node"),
        model=model,
        dag_params=PriorityParams(logits, np.float32(rng.normal(size=(2, 4))), np.zeros((2, 4), np.float32)),
        model_params=jax.tree.map(lambda *parts: np.stack(parts), *params),
        weights=np.array([0.25, 0.75]),
        scaling=Scaling(np.zeros(4), np.ones(4), LOGARITHM),
        allowed=~np.eye(4, dtype=bool),
    )


def law_named(name):
    if name.startswith("sampled "):
        graph_posterior = logarithmic_law("bge" if name == "sampled alone" else name.removeprefix("sampled "))
        return replace(graph_posterior, predictive=None) if name == "sampled alone" else graph_posterior
    if name == "trained mixture":
        return trained_law()
    rng = np.random.default_rng(5)
    return OrderMixture.of(
        rng.normal(size=(3, 4, 4)),
        means=rng.normal(size=(3, 4)),
        log_scale=rng.normal(size=(3, 4)),
        weights=np.array([0.2, 0.3, 0.5]),
        predictive=logarithmic_law("additive").predictive if name == "order mixture" else None,
    )


LAWS = [
    *(f"sampled {name}" for name in SPECS),
    "sampled alone",
    "order mixture",
    "order mixture alone",
    "trained mixture",
]


def posterior_of(graph_posterior):
    provenance = {
        "engine": {"name": "some"},
        "model": {"name": "some"},
        "seconds": 1.0,
        "seed": 0,
        "versions": {},
        "data": {"rows": 80, "columns": 4, "notes": []},
    }
    return Posterior(NAMES, graph_posterior, Status("ok", "All is well."), {}, {}, provenance)


@pytest.mark.parametrize("name", LAWS)
def test_every_law_survives_a_run_folder(name, tmp_path):
    graph_posterior = law_named(name)
    save(posterior_of(graph_posterior), tmp_path / "run")
    again = load(tmp_path / "run").graph_posterior
    assert type(again) is type(graph_posterior)
    np.testing.assert_array_equal(again.edge_probabilities(), graph_posterior.edge_probabilities())
    drawn, drawn_again = (one.sample(np.random.default_rng(1), NAMES, 50) for one in (graph_posterior, again))
    np.testing.assert_array_equal(drawn.dense(), drawn_again.dense())
    rows = log_table(7, 2)
    if getattr(graph_posterior, "predictive", graph_posterior) is None:
        with pytest.raises(ConfigError, match="no predictions"):
            again.predict(np.random.default_rng(1), rows, 5)
        return
    reports, told_again = (
        one.predict(np.random.default_rng(1), rows, 5, names=NAMES) for one in (graph_posterior, again)
    )
    for number, number_again in zip(reports, told_again, strict=True):
        np.testing.assert_array_equal(number, number_again)
    assert np.isfinite(reports.log_density).all()
    rows[3, 1] = 0.0
    with pytest.raises(DataError, match="'dose'"):
        again.predict(np.random.default_rng(1), rows, 5, names=NAMES)


def rewritten(folder, change_arrays=None, change_config=None):
    with np.load(folder / "posterior.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    config = json.loads((folder / "config.json").read_text())
    if change_arrays:
        change_arrays(arrays)
    if change_config:
        change_config(config)
    np.savez(folder / "posterior.npz", **arrays)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["sampled bge", "trained mixture"])
def test_runs_from_before_there_were_logarithms_can_be_read(name, tmp_path):
    def plain(scaling):
        return Scaling(scaling.centre, scaling.scale)

    graph_posterior = law_named(name)
    if name == "trained mixture":
        graph_posterior = replace(graph_posterior, scaling=plain(graph_posterior.scaling))
    else:
        graph_posterior = replace(
            graph_posterior,
            predictive=replace(graph_posterior.predictive, scaling=plain(graph_posterior.predictive.scaling)),
        )
    save(posterior_of(graph_posterior), tmp_path / "run")
    rewritten(
        tmp_path / "run",
        lambda arrays: arrays.pop("law.logarithm"),
        lambda config: config["law"].get("predictive", {}).pop("kind", None),
    )
    rows = log_table(7, 2)
    reports = load(tmp_path / "run").graph_posterior.predict(np.random.default_rng(1), rows, 5)
    np.testing.assert_array_equal(reports.mean, graph_posterior.predict(np.random.default_rng(1), rows, 5).mean)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sampled bge", "sampled additive", "sampled gp", "order mixture", "trained mixture"])
def test_damaged_arrays_are_refused(name, tmp_path):
    """Each array in turn loses the end of its last axis, its last axis, or itself."""
    harms = (lambda array: array[..., :-1], lambda array: array[..., 0], None)
    graph_posterior, tried = law_named(name), 0
    for array in graph_posterior.arrays():
        for harm in harms:
            folder = tmp_path / f"{array}{tried}"
            save(posterior_of(graph_posterior), folder)

            def change(arrays, key=f"law.{array}", harm=harm):
                if harm is None:
                    arrays.pop(key)
                else:
                    arrays[key] = harm(arrays[key])

            if harm is None and array == "logarithm":  # a run from before there were any
                continue
            rewritten(folder, change)
            with pytest.raises(RunError, match=r"damaged|shape|another set"):
                load(folder)
            tried += 1
    assert tried >= 3 * 6
