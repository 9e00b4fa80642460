"""Tables whose rows are steps in time: from times and units to lagged edges, impulse responses and forecasts."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.data.series import SeriesOptions, series_of
from vcuda.errors import ConfigError, DataError, KnowledgeError, VcudaError
from vcuda.outputs.exports import to_networkx, to_tigramite

STEPS = 200
# x -> y at once, x -> z two steps later, and each column depends on its own last step.
NOW, BEFORE = 0.8, 0.6
TRUE = {("x", "y", 0), ("x", "z", 2), ("x", "x", 1), ("y", "y", 1), ("z", "z", 1)}


def series(steps=STEPS, seed=0, own=(0.5, 0.8, 0.4)):
    rng = np.random.default_rng(seed)
    values = np.zeros((steps + 20, 3))
    for t in range(2, len(values)):
        noise = rng.standard_normal(3) * [1.0, 0.7, 1.3]
        values[t] = np.array(own) * values[t - 1] + noise
        values[t, 1] += NOW * values[t, 0]
        values[t, 2] += BEFORE * values[t - 2, 0]
    return pd.DataFrame(values[20:], columns=["x", "y", "z"])


def months(steps=STEPS, start="2010-01-01"):
    return pd.date_range(start, periods=steps, freq="MS").strftime("%Y-%m-%d")


def monthly(steps=STEPS, seed=0):
    return series(steps, seed).assign(month=months(steps))


def sure(posterior):
    return {(row.source, row.target, row.lag) for row in posterior.edges(minimum=0.9).itertuples()}


@pytest.fixture(scope="module")
def fitted():
    return vcuda.fit(monthly(), lags=2, time="month")


# Data ------------------------------------------------------------------------------------------------------------


def test_lagged_edges_are_found_and_said(fitted):
    assert sure(fitted) >= TRUE
    assert len(sure(fitted) - TRUE) == 0
    assert fitted.names[:5] == ("x", "y", "z", "x.lag1", "y.lag1")
    assert list(fitted.edges().columns) == ["source", "target", "lag", "probability"]
    assert len(fitted.edges()) == 6 + 2 * 9
    assert fitted.sample(50).all_acyclic()
    assert fitted.status.code == "ok"
    said = " ".join(fitted.summary()["choice"])
    assert "one month apart" in said
    assert "linear functions" in said
    probabilities = fitted.edge_probabilities
    assert (probabilities.loc[:, "x.lag1":] == 0).all(axis=None)
    assert fitted.summary_graph(draws=100).loc["x", "z"] > 0.9


@pytest.mark.slow
def test_rows_in_any_order_are_sorted_by_time(fitted):
    shuffled = monthly().sample(frac=1, random_state=3)
    again = vcuda.fit(shuffled, lags=2, time="month", checks=False)
    np.testing.assert_allclose(again.edge_probabilities, fitted.edge_probabilities)
    by_index = series().set_index(pd.to_datetime(months()))
    np.testing.assert_allclose(vcuda.fit(by_index, lags=2, checks=False).edge_probabilities, fitted.edge_probabilities)


@pytest.mark.parametrize(
    ("times", "step"),
    [
        (months(), "month"),
        (pd.date_range("2010-01-31", periods=STEPS, freq="ME").strftime("%d.%m.%Y"), "month"),
        ([f"{2000 + k // 4}Q{k % 4 + 1}" for k in range(STEPS)], "quarter"),
        (pd.bdate_range("2020-01-01", periods=STEPS), "weekday"),
        (pd.date_range("2020-01-01", periods=STEPS, freq="15min"), "15 minutes"),
        (np.arange(STEPS) * 0.5, "0.5"),
        (np.arange(STEPS) + 1900, "step"),
        ([202001 + 100 * (k // 12) + k % 12 for k in range(STEPS)], "month"),
    ],
    ids=["months", "month ends", "quarters", "weekdays", "minutes", "numbers", "years", "yyyymm"],
)
def test_times_in_many_forms(times, step):
    table = vcuda.as_dataset(series())
    cells = tuple(str(time) for time in times)
    found = series_of(replace(table, beside={"t": cells}), SeriesOptions(2, "t"))
    assert found.clock.step == step
    np.testing.assert_array_equal(found.clock.steps, np.arange(2, STEPS))
    np.testing.assert_array_equal(found.table.values[1:, 3:6], found.table.values[:-1, :3])


def test_missing_steps_leave_out_the_rows_that_need_them():
    table = monthly().drop(index=[50, 51])
    posterior = vcuda.fit(table, lags=2, time="month", checks=False)
    assert posterior.provenance["series"]["rows"] == STEPS - 2 - 2 - 2
    assert "2 of 200 steps are missing" in " ".join(posterior.summary()["choice"])


def test_units_have_levels_of_their_own_and_no_common_past():
    rng = np.random.default_rng(2)
    parts = [series(60, seed=k) + 20 * rng.standard_normal(3) for k in range(4)]
    table = pd.concat([part.assign(shop=f"shop {k}") for k, part in enumerate(parts)])
    posterior = vcuda.fit(table, lags=2, unit="shop", checks=False)
    assert sure(posterior) <= TRUE
    assert len(sure(posterior)) >= 4
    assert "the level of each unit" in " ".join(posterior.summary()["choice"])
    assert posterior.provenance["series"]["rows"] == 4 * 58


@pytest.mark.slow
def test_trend_and_season_are_found_and_taken_out():
    table = monthly()
    phase = np.arange(STEPS)
    for name, size in (("x", 2.0), ("y", -3.0), ("z", 2.5)):
        table[name] += size * np.sin(2 * np.pi * phase / 12) + 0.05 * phase * size
    posterior = vcuda.fit(table, lags=2, time="month", checks=False)
    said = " ".join(posterior.summary()["choice"])
    assert "a straight trend and a season of 12 steps" in said
    assert posterior.provenance["series"]["season"] == 12
    assert sure(posterior) <= TRUE
    assert len(sure(posterior)) >= 4
    kept = vcuda.fit(table, lags=2, time="month", trend="none", season=0, checks=False)
    assert kept.provenance["series"]["levels"] is None
    plain = vcuda.fit(monthly(), lags=2, time="month", checks=False)
    assert plain.provenance["series"]["levels"] is None


@pytest.mark.slow
def test_lags_by_evidence_and_logarithms():
    posterior = vcuda.fit(monthly(), lags="auto", time="month", checks=False)
    assert posterior.lagged.lags == 2
    assert "lags=2" in " ".join(posterior.summary()["choice"])
    growing = monthly()
    growing["x"] = np.exp(growing["x"])
    found = vcuda.fit(growing, lags=2, time="month", checks=False)
    assert found.provenance["logarithm"] == ["x"]
    assert sure(found) == TRUE


@pytest.mark.slow
def test_resampled_rows_are_means_of_their_period():
    days = pd.date_range("2010-01-01", "2026-08-31", freq="D")
    by_month = (days.year - 2010) * 12 + days.month - 1
    table = series().iloc[by_month].reset_index(drop=True)
    table["day"] = days
    posterior = vcuda.fit(table, lags=2, time="day", resample="month", checks=False)
    assert posterior.provenance["series"]["step"] == "month"
    assert sure(posterior) == TRUE


# Bad input -------------------------------------------------------------------------------------------------------

BAD = {
    "irregular times": (
        {"time": "t"},
        lambda t: t.assign(t=np.r_[np.arange(100), 100.4 + np.arange(100)]),
        "irregular",
    ),
    "the same time twice": ({"time": "t"}, lambda t: t.assign(t=np.r_[0, np.arange(STEPS - 1)]), "same time"),
    "no time": ({"time": "t"}, lambda t: t.assign(t=["soon"] * STEPS), "no time"),
    "a missing time": ({"time": "t"}, lambda t: t.assign(t=[*range(STEPS - 1), None]), "has no time"),
    "no such column": ({"time": "when"}, lambda t: t.assign(t=range(STEPS)), "no column 'when'"),
    "a unit with too few rows": (
        {"unit": "u"},
        lambda t: t.assign(u=["a"] * (STEPS - 2) + ["b"] * 2),
        "unit 'b'.*too few",
    ),
    "a season longer than the series": ({"season": 120}, lambda t: t, "seen at least twice"),
    "more lags than rows": ({"lags": 100}, lambda t: t.head(40), "fewer lags"),
    "too few rows": ({"lags": 9}, lambda t: t.head(15), "too few"),
    "lags that are none": ({"lags": 0}, lambda t: t, "from 1 to 100"),
    "lags as a word": ({"lags": "many"}, lambda t: t, "whole number of steps or auto"),
    "time without lags": ({"lags": None, "time": "t"}, lambda t: t.assign(t=range(STEPS)), "lags=2"),
    "an engine for rows": ({"engine": "variational"}, lambda t: t, "exact or orders"),
    "a shared noise": ({"noise": "equal"}, lambda t: t, "unequal"),
    "a name that an earlier step gets": ({}, lambda t: t.rename(columns={"z": "x.lag1"}), "rename"),
    "a period that is none": (
        {"time": "t", "resample": "fortnight"},
        lambda t: t.assign(t=months()),
        "resample must be one of",
    ),
    "robust": ({"robust": True}, lambda t: t, "leave it out with lags"),
    "a logarithm of what is negative": ({"log": ["x"]}, lambda t: t, "logarithm"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_a_sentence(case):
    options, change, words = BAD[case]
    with pytest.raises(VcudaError, match=words) as refusal:
        vcuda.fit(change(series()), **{"lags": 2, **options})
    assert isinstance(refusal.value, DataError | ConfigError)


@pytest.mark.slow
def test_the_command_line_fits_asks_and_refuses(run, tmp_path, fitted):
    file, folder = tmp_path / "steps.csv", tmp_path / "run"
    monthly().to_csv(file, index=False)
    made = run("fit", file, "-o", folder, "--lags", "2", "--time", "month", "--no-report")
    assert made.code == 0, made.err
    assert "lag" in made.out
    stored = vcuda.Posterior.load(folder)
    np.testing.assert_allclose(stored.edge_probabilities, fitted.edge_probabilities)
    assert pd.read_csv(folder / "edges.csv").columns.tolist() == ["source", "target", "lag", "probability"]
    asked = run("effect", folder, "x", "z", "--horizon", "3", "--json")
    response = pd.DataFrame(json.loads(asked.out)["response"])
    pd.testing.assert_frame_equal(response, fitted.effect("x", "z", horizon=3).table)
    assert "2 months later" in run("effect", folder, "x", "z").out
    monthly().assign(month="2010-01-01").to_csv(file, index=False)
    refused = run("fit", file, "-o", tmp_path / "other", "--lags", "2", "--time", "month")
    assert refused.code == 2
    assert "data row 1 and data row 2" in refused.err


# Results ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_impulse_responses_follow_the_closed_form(fitted):
    """Each draw: a change of x by one unit is simulated, step by step and without noise, in the drawn model."""
    found = fitted.effect("x", "z", horizon=6, draws=20)
    models = fitted.graph_posterior.models(np.random.default_rng([0, 1]), fitted.names, 20)
    for draw, model in zip(found.draws, models, strict=True):
        weights, scale = np.zeros((9, 3)), model.scaling.scale
        for node in range(3):
            parents = model.parents(node)
            slopes = model.mechanism(node, parents).slopes
            weights[parents, node] = slopes * scale[node] / scale[parents]
        path = np.zeros((9, 3))
        for step in range(2, 9):
            for _ in range(3):  # effects within a step go through at most two others
                path[step] = path[step] @ weights[:3] + path[step - 1] @ weights[3:6] + path[step - 2] @ weights[6:]
                if step == 2:
                    path[step, 0] = 1.0
        np.testing.assert_allclose(draw, path[2:, 2], atol=1e-8)
    table = fitted.effect("x", "y", horizon=12).table
    assert table.low[0] < NOW < table.high[0]
    truth = 0.5 * NOW + NOW * 0.8  # by the past of x, and by that of y
    assert table.low[1] < truth < table.high[1]
    assert fitted.effect("z", "x", horizon=3).probability_zero > 0.5
    every = fitted.effects(draws=50)
    assert set(every.horizon) == {0, 1, 2}


@pytest.mark.slow
def test_curves_are_found_and_simulated():
    rng = np.random.default_rng(1)
    values = np.zeros((320, 2))
    for t in range(1, len(values)):
        values[t, 0] = 0.3 * values[t - 1, 0] + rng.standard_normal()
        values[t, 1] = np.abs(values[t - 1, 0]) + 0.4 * np.tanh(values[t, 0]) + 0.4 * rng.standard_normal()
    posterior = vcuda.fit(pd.DataFrame(values[20:], columns=["a", "b"]), lags=1, checks=False)
    assert posterior.provenance["model"]["name"] == "additive"
    assert {("a", "b", 0), ("a", "b", 1)} <= sure(posterior)
    response = posterior.effect("a", "b", horizon=2, draws=30)
    assert not response.linear
    # The mean slope over a standard deviation s, around points x of that spread.
    x, s = np.random.default_rng(0).standard_normal(10_000) * 1.05, 1.05
    slope = np.mean(0.4 * (np.tanh(x + s / 2) - np.tanh(x - s / 2)) / s)
    assert response.table.low[0] - 0.03 < slope < response.table.high[0] + 0.03


@pytest.mark.slow
def test_tables_of_several_kinds():
    table = series(120)
    table["rain"] = np.where(np.random.default_rng(3).random(120) < 0.4, "yes", "no")
    table["y"] += 2.0 * (table["rain"] == "yes")
    posterior = vcuda.fit(table[["x", "y", "rain"]], lags=1, subsamples=0, checks=False)
    assert posterior.provenance["model"]["name"] == "mixed"
    assert {("rain", "y", 0), ("x", "y", 0)} <= sure(posterior)
    assert np.isfinite(posterior.effect("rain", "y", horizon=1, draws=5).draws).all()
    labels = table[["rain"]].assign(day=["wet", "dry", "dry"] * 40, wind=["n", "s"] * 60)
    assert vcuda.fit(labels, lags=1, model="categorical", checks=False).lagged.lags == 1


@pytest.mark.slow
def test_missing_cells_are_imputed_with_one_value_for_each_step():
    table = series()
    table.loc[[10, 40, 41, 70], "y"] = np.nan
    posterior = vcuda.fit(table, lags=2, imputations=2, model="linear", checks=False)
    assert {("x", "y", 0), ("x", "z", 2)} <= sure(posterior)
    found = series_of(vcuda.as_dataset(table, missing="keep"), SeriesOptions(1))
    imputed = replace(found.table, values=np.nan_to_num(found.table.values, nan=7.0))
    imputed.values.flags.writeable = True
    imputed.values[9, 1], imputed.values[10, 4] = 3.0, 5.0  # the cell itself, and as the past of the next step
    assert found.consistent(imputed).values[10, 4] == 3.0


def test_interventions_say_nothing_of_the_causes_of_what_they_set():
    table = series(160)
    changed = np.arange(160) % 2 == 0
    table["set"] = np.where(changed, "y", "")
    table.loc[changed, "y"] = np.random.default_rng(0).standard_normal(80)
    posterior = vcuda.fit(table, lags=2, interventions="set", checks=False)
    assert ("x", "y", 0) in sure(posterior)
    assert not {edge for edge in sure(posterior) if edge[1] == "x" and edge[0] == "y"}


def test_steps_are_predicted_from_those_before(fitted):
    later = monthly(240).tail(42)
    ahead = fitted.predict(later)
    assert len(ahead) == 40
    assert ahead.step.iloc[0] == STEPS
    actual = later[["x", "y", "z"]].to_numpy()[2:]
    errors = ((ahead[["x", "y", "z"]].to_numpy() - actual) ** 2).mean()
    scores = fitted.held_out(later)
    assert scores["mse"] == pytest.approx(errors)
    assert errors < (actual**2).mean()
    # The density of a step given those before it: noise of these spreads has this entropy, and the mean over 40 rows a
    # standard error of sqrt(3 / 2 / 40) = .19.
    entropy = 1.5 * np.log(2 * np.pi * np.e) + np.log(1.0 * 0.7 * 1.3)
    assert scores["log_likelihood"] == pytest.approx(-entropy, abs=0.7)
    with pytest.raises(DataError, match="steps before it"):
        fitted.predict(later.iloc[[0, 3, 6, 9, 12]])


@pytest.mark.slow
def test_runs_are_stored_and_repeated(fitted, tmp_path):
    fitted.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    pd.testing.assert_frame_equal(again.edges(), fitted.edges())
    pd.testing.assert_frame_equal(again.effect("x", "y").table, fitted.effect("x", "y").table)
    pd.testing.assert_frame_equal(again.predict(monthly().tail(9)), fitted.predict(monthly().tail(9)))
    assert again.held_out(monthly().tail(9)) == fitted.held_out(monthly().tail(9))
    options = again.provenance.options
    assert (options["lags"], options["time"]) == (2, "month")
    repeated = vcuda.fit(monthly(), lags=2, time="month", checks=False, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(repeated.sample(20).dense(), fitted.sample(20).dense())
    for question in (again.cpdag, again.next_experiment, lambda: again.why("x", "y")):
        with pytest.raises(ConfigError, match="independent"):
            question()
    with pytest.raises(ConfigError, match="horizon counts"):
        again.effect("x.lag1", "y")


@pytest.mark.slow
def test_checks_are_made_again_from_the_table(fitted):
    again = fitted.checks(monthly())
    assert [finding.check for finding in again.findings] == [finding.check for finding in fitted.checks().findings]
    with pytest.raises(DataError, match="the table that was fitted"):
        fitted.checks(monthly().drop(columns="z"))


@pytest.mark.slow
def test_the_report_has_a_section_on_time(fitted, tmp_path):
    fitted.report(tmp_path / "report.html", curves=0)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "x acts on z 2 months later" in page
    assert "What follows when a cause is one unit higher at one step" in page


def test_exports_know_the_lags(fitted):
    network = to_networkx(fitted, minimum=0.5)
    assert network.edges["x.lag2", "z"]["lag"] == 2
    assert network.nodes["x.lag2"] == {"variable": "x", "lag": 2}
    arrays = to_tigramite(fitted)
    assert arrays["var_names"] == ["x", "y", "z"]
    assert arrays["graph"].shape == (3, 3, 3)
    assert arrays["graph"][0, 2, 2] == "-->"
    assert (arrays["graph"][0, 1, 0], arrays["graph"][1, 0, 0]) == ("-->", "<--")
    assert arrays["val_matrix"][0, 2, 2] == fitted.edge_probabilities.loc["x.lag2", "z"]


# Knowledge -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_knowledge_speaks_of_lags():
    def of(**known):
        return vcuda.fit(series(), lags=2, knowledge=vcuda.Knowledge(**known), checks=False)

    single = of(forbidden=["x.lag2 -> z"]).edge_probabilities
    assert single.loc["x.lag2", "z"] == 0
    assert single.loc["x.lag1", "z"] > 0
    everywhere = of(forbidden=["x -> z"]).summary_graph(draws=50)
    assert everywhere.loc["x", "z"] == 0
    required = of(required=["y.lag2 -> x"])
    assert required.edge_probabilities.loc["y.lag2", "x"] == 1
    assert all(graph[7, 0] for graph in required.sample(20))
    tiers = of(tiers=[["z"], ["x", "y"]]).summary_graph(draws=50)
    assert tiers.loc["x", "z"] == 0
    assert tiers.loc["x", "x"] > 0.9
    roots = of(roots=["z"]).summary_graph(draws=50)
    assert roots.loc["z", "z"] > 0.9
    assert roots["z"].drop("z").max() == 0
    without = vcuda.fit(series(), lags=2, contemporaneous=False, checks=False)
    assert (without.edge_probabilities.iloc[:3, :3] == 0).all(axis=None)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"forbidden": ["x.lag3 -> z"]}, "lags=3"),
        ({"forbidden": ["x -> z.lag1"]}, "effect in the past"),
        ({"forbidden": ["w.lag1 -> z"]}, "no column"),
        ({"required": ["x.lag1 -> z"], "forbidden": ["x -> z"]}, "required, but"),
    ],
)
def test_knowledge_that_cannot_be_is_refused(known, words):
    with pytest.raises(KnowledgeError, match=words):
        vcuda.fit(series(), lags=2, knowledge=vcuda.Knowledge(**known))


# Checks ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_columns_that_wander_and_causes_that_act_late_are_noted(fitted):
    assert "longest lag" in [finding.check for finding in fitted.checks().findings]
    wandering = pd.DataFrame(np.random.default_rng(0).standard_normal((150, 2)).cumsum(axis=0), columns=["a", "b"])
    found = {one.check: one for one in vcuda.fit(wandering, lags=1).checks().findings}
    assert "random walk" in found["unit root"].sentence
    assert "unit root" not in [finding.check for finding in fitted.checks().findings]


@pytest.mark.filterwarnings("ignore::vcuda.errors.ModelCheckWarning")
def test_rows_that_look_like_steps_are_pointed_to_the_option():
    table = series(300, own=(0.9, 0.85, 0.9)).assign(day=pd.date_range("2020-01-01", periods=300))
    posterior = vcuda.fit(table, model="linear", robust=False)
    remedies = [finding.remedy for finding in posterior.checks().warnings]
    assert any("lags=2, time='day' (--lags 2 --time day)" in remedy for remedy in remedies)
