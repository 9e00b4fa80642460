"""Tables with missing cells: what is kept of them, how they are filled in, and what a fit makes of the fillings."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bad_tables import TABLES_WITH_GAPS

import vcuda
from vcuda.data.dataset import Dataset
from vcuda.data.imputation import DrawnRegression, imputations, lognormal_columns, strongest
from vcuda.data.reading import as_dataset
from vcuda.errors import ConfigError, ConvergenceWarning, DataError
from vcuda.fitting import imputed as route
from vcuda.posterior.imputed import ImputedMixture

PAGE = Path(__file__).parent.parent / "docs" / "missing-values.md"
NAMES = ("a", "b", "c", "d")


def chain(rows: int, seed: int = 0) -> np.ndarray:
    """a -> b -> c with weights one, and d apart; correlation of a and b .71."""
    values = np.random.default_rng(seed).standard_normal((rows, 4))
    values[:, 1] += values[:, 0]
    values[:, 2] += values[:, 1]
    return values


def with_gaps(values: np.ndarray, share: float = 0.15, seed: int = 1) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(values.shape) < share, np.nan, values)


@pytest.fixture(scope="module")
def gappy():
    return pd.DataFrame(with_gaps(chain(120)), columns=list(NAMES))


@pytest.fixture(scope="module")
def posterior(gappy):
    return vcuda.fit(gappy, model="linear", engine="exact", imputations=4, seed=3)


# Tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES_WITH_GAPS)
def test_the_refusal_says_what_fills_gaps(name, tmp_path):
    with pytest.raises(DataError, match=r"a fit .* imputes missing values by itself"):
        as_dataset(TABLES_WITH_GAPS[name].write(tmp_path))


def test_gaps_are_kept_when_asked_for(gappy):
    data = as_dataset(gappy, missing="keep")
    np.testing.assert_array_equal(data.missing, gappy.isna())
    np.testing.assert_array_equal(data.values, gappy)
    np.testing.assert_allclose(data.mean, gappy.mean(), rtol=1e-13)
    np.testing.assert_allclose(data.scale, gappy.std(ddof=0), rtol=1e-13)
    np.testing.assert_allclose(np.nanstd(data.standardised(), axis=0), 1.0, rtol=1e-12)
    assert as_dataset(data, missing="keep") is data
    with pytest.raises(DataError, match="values are missing in columns 'a', 'b', 'c' and 'd'"):
        as_dataset(data)
    with pytest.raises(ValueError, match="read-only"):
        data.missing[0, 0] = True
    assert as_dataset(chain(50), missing="keep").missing is None
    with pytest.raises(ConfigError, match="refuse or keep, not 'drop'"):
        as_dataset(gappy, missing="drop")


def test_moments_of_a_complete_table_are_what_they_were():
    values = chain(200) * [1e-100, 1.0, 1e100, 3.0]
    data = as_dataset(values)
    centred = values - values.mean(axis=0)
    largest = np.abs(centred).max(axis=0)
    np.testing.assert_array_equal(data.mean, values.mean(axis=0))
    np.testing.assert_array_equal(data.scale, largest * np.sqrt(np.mean((centred / largest) ** 2, axis=0)))


def test_the_fingerprint_knows_one_kind_of_gap(gappy):
    odd = gappy.to_numpy().copy()
    odd[np.isnan(odd)] = np.frombuffer(np.uint64(0xFFF8000000000001).tobytes(), dtype=np.float64)[0]
    prints = {as_dataset(table, missing="keep").fingerprint for table in (gappy, gappy.convert_dtypes())}
    assert prints == {Dataset(NAMES, odd).fingerprint}
    assert as_dataset(gappy.fillna(0.0)).fingerprint not in prints


def test_logarithms_leave_gaps_open(gappy):
    data = as_dataset(np.exp(gappy), missing="keep")
    logged = data.with_logarithms([True, False, True, True])
    np.testing.assert_allclose(logged.values[:, 2], gappy["c"], rtol=1e-12)
    np.testing.assert_array_equal(logged.missing, data.missing)
    with pytest.raises(DataError, match="only positive numbers have a logarithm"):
        as_dataset(gappy, missing="keep").with_logarithms([True, False, False, False])


REFUSED = {
    "an empty column": ([np.nan] * 8, "column 'odd' has no value"),
    "few values": ([1.0, 2.0, 3.0, 4.0, *[np.nan] * 4], "column 'odd' has fewer than 5 values"),
    "one value": ([7.0] * 6 + [np.nan] * 2, "column 'odd' does not vary \\(7 wherever it is not missing\\)"),
    "infinity": ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, np.nan, np.inf], "column 'odd' holds inf, which is not finite"),
    "too small": ([*np.arange(7) * 1e-160, np.nan], "column 'odd' varies by only .* too little to be squared"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_filled_in_is_refused_by_name(name):
    column, message = REFUSED[name]
    table = pd.DataFrame({"a": np.arange(8.0) ** 2, "odd": column})
    with pytest.raises(DataError, match=message):
        vcuda.fit(table)


def test_rows_without_a_value_are_left_out_with_a_note(gappy):
    longer = pd.concat([gappy, pd.DataFrame(np.nan, index=range(2), columns=list(NAMES))])
    data = as_dataset(longer, missing="keep")
    assert data.n == int((~gappy.isna().all(axis=1)).sum())
    assert data.notes[-1] == f"{len(longer) - data.n} rows without any value were left out."
    held = np.zeros(longer.shape, dtype=bool)
    held[:20, 0] = held[-1, 2] = True
    with_experiments = as_dataset(longer, interventions=held, missing="keep")
    np.testing.assert_array_equal(with_experiments.interventions[:, 0].sum(), 20)
    assert with_experiments.interventions.shape == with_experiments.values.shape


def test_a_column_that_is_missing_in_most_rows_is_noted():
    values = chain(60)
    values[:40, 1] = np.nan
    notes = as_dataset(values, names=NAMES, missing="keep").notes
    assert notes == ("Column 'b' is missing in 67% of the rows: its edges rest on few values.",)


def test_copies_are_found_in_the_complete_rows():
    values = chain(100)
    values[:, 3] = -2 * values[:, 0]
    assert "are the same up to unit" in " ".join(as_dataset(with_gaps(values), missing="keep").notes)
    # Two rows always are.
    few = with_gaps(chain(40), share=0.6)
    few[:2] = chain(40)[:2]
    assert not any("the same" in note for note in as_dataset(few, missing="keep").notes)


# Fillings ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fillings_keep_what_is_there_and_depend_on_the_seed_alone(gappy):
    data = as_dataset(gappy, missing="keep")
    three, again, others = (
        [filling.values for filling in imputations(data, count, seed=seed)] for count, seed in ((3, 5), (1, 5), (1, 6))
    )
    for values in three:
        np.testing.assert_array_equal(values[~data.missing], data.values[~data.missing])
        assert np.isfinite(values).all()
    np.testing.assert_array_equal(three[0], again[0])
    assert not np.isclose(three[0], three[1])[data.missing].any()
    assert not np.isclose(three[0], others[0])[data.missing].any()
    assert next(imputations(as_dataset(chain(30)), 2)).missing is None
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        imputations(data, 0)


@pytest.mark.parametrize("mechanism", ["at random", "by another column"])
def test_the_covariance_of_fillings_is_not_shrunk(mechanism):
    """Entries of the covariance of 4,000 rows have a standard error of at most 3 sqrt(2 / 4000) = .067 (the variance of
    c is 3); with a fifth of b and c missing the error grows by about sqrt(1.25). Four of these are .3.

    Filled by means, the variance of c would be .8 * 3 = 2.4 if cells were missing at random; what is missing by a,
    taken from complete rows alone, moves the mean of b by more than .3.
    """
    truth = chain(4000, seed=4)
    values = truth.copy()
    rng = np.random.default_rng(8)
    if mechanism == "at random":
        values[rng.random((4000, 4)) < [0.0, 0.2, 0.2, 0.0]] = np.nan
    else:
        # The larger a, the likelier that b is missing, and b where c is not: a fifth to a half of the rows.
        values[rng.random(4000) < 1 / (1 + np.exp(-2 * truth[:, 0])), 1] = np.nan
        assert abs(np.nanmean(values[:, 1])) > 0.3
    imputed_tables = [filling.values for filling in imputations(as_dataset(values, missing="keep"), 3)]
    expected = np.array([[1, 1, 1, 0], [1, 2, 2, 0], [1, 2, 3, 0], [0, 0, 0, 1]])
    np.testing.assert_allclose(np.mean([np.cov(v.T) for v in imputed_tables], axis=0), expected, atol=0.3)
    np.testing.assert_allclose(np.mean([v.mean(axis=0) for v in imputed_tables], axis=0), 0.0, atol=0.12)


def test_weights_are_drawn_once_for_all_rows():
    """A draw is one line for all rows. Of 40 rows the slope has the variance s² / Sxx, with s² itself drawn from an
    inverse chi² of 38 degrees of freedom, of mean 38 / 36 of the estimate. Variances of 400 draws have a relative
    standard error of sqrt(2 / 399) = .07, and those of the noise vary by sqrt(2 / 38) = .23 of the estimate.
    """
    rng = np.random.default_rng(3)
    x, y = chain(40)[:, :1], chain(40)[:, 1]
    drawn = [DrawnRegression(rng, lambda: None).fit(x, y) for _ in range(400)]
    where = np.array([[-1.0], [0.0], [2.0]])
    mean, deviation = drawn[0].predict(where, return_std=True)
    assert mean[2] - mean[1] == pytest.approx(2 * (mean[1] - mean[0]))
    assert np.ptp(deviation) == 0
    least_squares = np.polyfit(x[:, 0], y, 1)
    residual = np.sum((y - np.polyval(least_squares, x[:, 0])) ** 2) / 38
    expected = residual * 38 / 36 / (40 * x.var())
    slopes, variances = np.array([one.weights[0] for one in drawn]), np.array([one.noise**2 for one in drawn])
    # BayesianRidge shrinks the slope by a factor of about 1 - s² / (Sxx slope²) = .97.
    assert slopes.mean() == pytest.approx(least_squares[0], rel=0.08)
    assert slopes.var() == pytest.approx(expected, rel=0.3)
    assert variances.mean() == pytest.approx(residual * 38 / 36, rel=0.1)
    assert variances.std() == pytest.approx(0.23 * residual, rel=0.35)


def test_positive_columns_stay_positive():
    values = np.exp(chain(200, seed=2))
    values[:, 3] = np.random.default_rng(5).poisson(0.7, 200)
    data = as_dataset(with_gaps(values, 0.3), names=NAMES, missing="keep")
    assert lognormal_columns(data).tolist() == [True, True, True, False]
    raw, logged = (next(imputations(data, 1, logarithm=marked)).values for marked in (None, [True, True, True, False]))
    least = np.fmin.reduce(data.values, axis=0)
    assert (raw >= least).all()
    assert (logged[:, :3] > 0).all()
    assert (logged[:, :3] < least[:3]).any()
    assert not lognormal_columns(as_dataset(with_gaps(chain(200)), missing="keep")).any()


def test_cells_that_were_set_are_told_to_the_regressions():
    """b was set to about 10 in the last rows; where it is missing there, what is filled in lies near 10, not near 0."""
    values = chain(300)
    held = np.zeros(values.shape, dtype=bool)
    held[200:, 1] = True
    values[200:, 1] = 10 + 0.1 * values[200:, 3]
    values[250:, 1] = values[:50, 1] = np.nan
    values[:, 2] = np.random.default_rng(1).standard_normal(300)
    data = as_dataset(values, interventions=held, missing="keep")
    filled = next(imputations(data, 1)).values[:, 1]
    assert abs(filled[250:].mean() - 10) < 1 > abs(filled[:50].mean())


def test_columns_that_tell_most_are_regressed_on():
    values = np.random.default_rng(0).standard_normal((50, 100))
    response = values[:, 7] - values[:, 50] + 0.1 * values[:, 99]
    assert {7, 50} <= set(strongest(values, response, 5).tolist())
    assert strongest(values[:, :4], response, 5).tolist() == [0, 1, 2, 3]


def test_many_columns_are_filled_in():
    rng = np.random.default_rng(6)
    values = rng.standard_normal((60, 320))
    values[:, 11] = values[:, 300] + 0.1 * values[:, 11]
    gaps = values.copy()
    gaps[:12, 11] = np.nan
    filled = next(imputations(as_dataset(gaps, missing="keep"), 1)).values
    # Of 320 columns, the one that tells is found; a guess from the others would be off by 1.
    assert np.sqrt(np.mean((filled[:12, 11] - values[:12, 11]) ** 2)) < 0.6


def test_the_estimator_is_cloned_with_its_generator():
    from sklearn.base import clone

    rng = np.random.default_rng(0)
    values = chain(30)
    first, second = (
        clone(DrawnRegression(rng, lambda: None)).fit(values[:, :2], values[:, 2]).weights for _ in range(2)
    )
    assert not np.isclose(first, second).any()


# Fits -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_posterior_is_the_mean_over_fillings(gappy, posterior):
    assert isinstance(posterior.graph_posterior, ImputedMixture)
    data = as_dataset(gappy, missing="keep")
    alone = [vcuda.fit(filling, model="linear", engine="exact") for filling in imputations(data, 4, seed=3)]
    members = np.stack([one.edge_probabilities.to_numpy() for one in alone])
    np.testing.assert_allclose(posterior.graph_posterior.member_probabilities(), members, atol=1e-12)
    np.testing.assert_allclose(posterior.edge_probabilities, members.mean(axis=0), atol=1e-12)
    reports = posterior.diagnostics
    spread = members.std(axis=0, ddof=1)[~np.eye(4, dtype=bool)]
    assert reports["imputation_sd_mean"] == pytest.approx(spread.mean())
    assert reports["imputation_sd_largest"] == pytest.approx(spread.max())
    assert reports["imputations"] == len(reports["fillings"]) == posterior.provenance["imputations"] == 4
    assert reports["missing_share"] == pytest.approx(gappy.isna().mean().to_dict())
    note = posterior.provenance["data"]["notes"][-1]
    largest = np.ptp(members, axis=0).max()
    cells = int(gappy.isna().to_numpy().sum())
    assert note.startswith(f"{cells} of 480 cells ({100 * cells / 480:.2g} %) were missing and imputed 4 times; ")
    assert f"differs between imputations by up to {largest:.2f} (for '" in note
    assert posterior.status.code == "ok"
    assert posterior.provenance["data"]["fingerprint"] == data.fingerprint


def test_draws_come_from_all_fillings(posterior):
    """Shares of 4,000 graphs have a standard error of at most .5 / sqrt(4000) = .008."""
    samples = posterior.sample(4000, seed=1)
    np.testing.assert_allclose(samples.edge_probabilities(), posterior.edge_probabilities, atol=0.032)
    fresh = pd.DataFrame(chain(50, seed=9), columns=list(NAMES))
    reports = posterior.held_out(fresh, graphs=40)
    alone = [
        member.predict(np.random.default_rng(0), fresh.to_numpy(), 40) for member in posterior.graph_posterior.members
    ]
    errors = [one.mse for one in alone]
    assert min(errors) - 0.1 < reports["mse"] < max(errors) + 0.1
    densities = [np.mean(one.log_density) for one in alone]
    assert min(densities) - 0.1 < reports["log_likelihood"] < max(densities) + 0.1
    models = list(posterior.graph_posterior.models(np.random.default_rng(0), NAMES, 30))
    assert len(models) == 30
    assert len({model.scaling.centre.tobytes() for model in models[:12]}) > 1
    # The direction of a chain is open: the effect of a on c is about 1 along it, and otherwise nothing.
    found = posterior.effect("a", "c")
    connected = found.draws[found.draws != 0]
    assert 0 < found.probability_zero < 1
    assert connected.mean() == pytest.approx(1.0, abs=0.3)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_posterior(gappy, posterior):
    again = vcuda.fit(gappy, model="linear", engine="exact", imputations=4, seed=3)
    pd.testing.assert_frame_equal(again.edge_probabilities, posterior.edge_probabilities)
    assert np.array_equal(again.sample(20).dense(), posterior.sample(20).dense())
    other = vcuda.fit(gappy, model="linear", engine="exact", imputations=4, seed=4)
    assert not np.allclose(other.edge_probabilities, posterior.edge_probabilities, atol=1e-6)


ENGINES = {
    "exact": (vcuda.Exact(samples=50), "linear"),
    "orders": (vcuda.Orders(replicas=2), "linear"),
    "variational": (vcuda.Variational(restarts=2), "linear"),
    "straight-through": (vcuda.StraightThrough(epochs=3, restarts=2), vcuda.Linear()),
    "baseline": ("variance-sort", "auto"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_and_the_run_folder(name, gappy, tmp_path):
    engine, model = ENGINES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = vcuda.fit(gappy, model=model, engine=engine, imputations=2)
    assert len(fitted.graph_posterior.members) == 2
    fitted.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    np.testing.assert_allclose(
        again.graph_posterior.member_probabilities(), fitted.graph_posterior.member_probabilities(), atol=1e-12
    )
    assert np.array_equal(again.sample(30, seed=2).dense(), fitted.sample(30, seed=2).dense())
    assert again.status == fitted.status
    assert json.loads(json.dumps(fitted.provenance)) == again.provenance
    if name != "baseline":
        fresh = chain(20, seed=9)
        draws = [
            one.graph_posterior.predict(np.random.default_rng(1), fresh, 10, names=NAMES).mean
            for one in (fitted, again)
        ]
        np.testing.assert_allclose(draws[0], draws[1], rtol=1e-6, atol=1e-6)


def test_the_model_is_chosen_once_and_told(gappy, monkeypatch):
    calls = []
    original = route.imputed_tables
    monkeypatch.setattr(
        route, "imputed_tables", lambda *args, **more: calls.append(more["logarithm"]) or original(*args, **more)
    )
    fitted = vcuda.fit(np.exp(gappy), imputations=2)
    assert set(fitted.provenance["logarithm"]) >= {"a", "b", "c"}
    choice = fitted.provenance["choice"]["sentences"]
    assert "Model, noise and logarithms were chosen on the first imputation of the missing values." in choice
    assert "The posterior is the mean over 2 imputations of the missing values, all fitted in this way." in choice
    assert choice.count("Engine exact: 4 columns are few enough to count every graph.") == 1
    # The last fillings were drawn on the scale on which the columns are fitted.
    taken = [name in fitted.provenance["logarithm"] for name in NAMES]
    np.testing.assert_array_equal(calls[-1], taken)
    for member in fitted.graph_posterior.members:
        np.testing.assert_array_equal(member.predictive.scaling.logarithm, taken)


def test_asked_logarithms_are_taken_in_every_filling(gappy):
    fitted = vcuda.fit(np.exp(gappy), model="linear", log=["a", "b"], engine="exact", imputations=2)
    assert fitted.provenance["logarithm"] == ["a", "b"]
    raw = vcuda.fit(np.exp(gappy), model="linear", engine="exact", imputations=2)
    assert raw.provenance["logarithm"] == []


def test_knowledge_holds_in_every_filling(gappy):
    known = vcuda.Knowledge(required=["b -> a"], forbidden=["b -> c"])
    fitted = vcuda.fit(gappy, model="linear", knowledge=known, engine="exact", imputations=3)
    assert fitted.edge_probabilities.loc["b", "a"] == 1.0
    assert fitted.edge_probabilities.loc["b", "c"] == 0.0


def test_one_filling_tells_that_it_cannot_tell(gappy):
    fitted = vcuda.fit(gappy, model="linear", engine="exact", imputations=1)
    assert "imputed once" in fitted.provenance["data"]["notes"][-1]
    assert fitted.diagnostics["imputation_sd_largest"] == 0
    for wrong in (0, -1, 2.5, True, "many"):
        with pytest.raises(ConfigError, match="imputations must be a whole number"):
            vcuda.fit(gappy, imputations=wrong)


def test_a_complete_table_is_not_filled_in():
    fitted = vcuda.fit(chain(60), model="linear", engine="exact", imputations=7)
    assert "imputations" not in fitted.provenance
    assert not isinstance(fitted.graph_posterior, ImputedMixture)


# Interrupts and limits --------------------------------------------------------------------------------------


def interrupt_at(filling: int, *, of: int, seen: list | None = None):
    def progress(step):
        if seen is not None:
            seen.append(step)
        if step.detail.startswith(f"imputation {filling} of {of}"):
            raise KeyboardInterrupt

    return progress


def test_an_interrupt_keeps_the_fillings_that_are_done(gappy):
    seen: list = []
    with pytest.warns(ConvergenceWarning, match="Stopped by the user after 2 of 5 imputations of the missing"):
        fitted = vcuda.fit(
            gappy, model="linear", engine="exact", imputations=5, progress=interrupt_at(3, of=5, seen=seen)
        )
    assert len(fitted.graph_posterior.members) == fitted.diagnostics["imputations"] == 2
    assert fitted.status.code == "interrupted"
    assert "imputed 2 times" in fitted.provenance["data"]["notes"][-1]
    assert seen[0].detail == "imputation 1 of 5: imputing the missing values"
    assert all(0 <= step.done <= step.total == 5 for step in seen)
    at_work = [int(step.detail.split()[1]) for step in seen]
    assert at_work == sorted(at_work)
    assert all(number - 1 <= step.done <= number for number, step in zip(at_work, seen, strict=True))
    with pytest.raises(KeyboardInterrupt):
        vcuda.fit(gappy, model="linear", engine="exact", imputations=5, progress=interrupt_at(1, of=5))


@pytest.mark.slow
def test_a_filling_that_was_interrupted_half_way_is_not_kept_beside_others(gappy):
    """The orders engine catches the interrupt and returns what it has; of the first filling that is all there is."""

    def half_way(filling):
        def progress(step):
            if step.detail.startswith(f"imputation {filling} of 3: sampling orders"):
                raise KeyboardInterrupt

        return progress

    reports = {
        1: "In the first of 3 imputations of the missing values: stopped by the user",
        2: "Stopped by the user after 1 of 3 imputations of the missing values",
    }
    for filling, sentence in reports.items():
        with pytest.warns(ConvergenceWarning, match=sentence):
            fitted = vcuda.fit(
                gappy, model="linear", engine=vcuda.Orders(replicas=2), imputations=3, progress=half_way(filling)
            )
        assert len(fitted.graph_posterior.members) == 1
        assert fitted.status.code == "interrupted"


def stopped_outcome(code, member):
    return member._replace(status=vcuda.Status(code, f"It was {code}."))


def test_the_status_is_the_worst_of_the_fillings(gappy, monkeypatch):
    codes = iter(["ok", "warning", "warning"])
    from vcuda.fitting import fit as verb

    scored = verb.fit_scored
    monkeypatch.setattr(
        verb, "fit_scored", lambda *asked: (stopped_outcome(next(codes), (found := scored(*asked))[0]), found[1])
    )
    with pytest.warns(ConvergenceWarning):
        fitted = vcuda.fit(gappy, model="linear", engine="exact", imputations=3)
    assert fitted.status.code == "warning"
    assert fitted.status.arithmetic.sentence == "In 2 of 3 imputations of the missing values: it was warning."


def few_values_of_b(seed: int) -> pd.DataFrame:
    """a -> b and a -> c; three fifths of b are missing, so that some tables leave a -> b to the imputed cells."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((60, 3))
    values[:, 1] += 0.6 * values[:, 0]
    values[:, 2] += values[:, 0]
    values[rng.random(60) < 0.6, 1] = np.nan
    return pd.DataFrame(values, columns=["a", "b", "c"])


EQUAL = {"model": "linear", "noise": "equal", "engine": "exact"}


@pytest.mark.slow
def test_edges_that_the_imputed_cells_decide_are_a_warning_by_name():
    with pytest.warns(ConvergenceWarning, match="imputed cells decide"):
        fitted = vcuda.fit(few_values_of_b(0), **EQUAL)
    members = fitted.graph_posterior.member_probabilities()
    assert members[:, 0, 1].min() < 0.2
    assert members[:, 0, 1].max() > 0.99
    assert fitted.status.code == "warning"
    assert fitted.status.sentence.startswith("The imputed cells decide the edges 'a' -> 'b', 'c' -> 'b': their ")
    largest = np.ptp(members, axis=0).max()
    assert f"differ between imputations by up to {largest:.2f}; take such an edge as open" in fitted.status.sentence


@pytest.mark.slow
def test_imputations_that_agree_or_differ_by_chance_alone_are_no_warning(monkeypatch):
    from vcuda.fitting import fit as verb

    agreeing = vcuda.fit(few_values_of_b(1), **EQUAL)
    assert agreeing.diagnostics["imputation_sd_largest"] < 0.1
    assert agreeing.status.code == "ok"
    scored = verb.fit_scored

    def noisy(*asked):
        """As if the engine knew no probability better than to .2, which explains the differences."""
        outcome, reports = scored(*asked)
        return outcome._replace(diagnostics=outcome.diagnostics | {"standard_error": 0.2}), reports

    monkeypatch.setattr(verb, "fit_scored", noisy)
    assert vcuda.fit(few_values_of_b(0), **EQUAL).status.code == "ok"


def test_the_time_is_shared_by_the_fillings(gappy, monkeypatch):
    """A clock that moves by a second at each fit: of ten seconds for five fillings, each has what is left over those
    that are left; the exact engine, which has no partial answer, has all of it, and what is done by its end counts."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    from vcuda.fitting import fit as verb

    scored, deadlines = verb.fit_scored, []

    def slow(request, model, noise, engine):
        deadlines.append(request.deadline)
        found = scored(request._replace(deadline=None), model, noise, "exact")
        now[0] += 4.0
        return found

    monkeypatch.setattr(verb, "fit_scored", slow)
    with pytest.warns(ConvergenceWarning, match="Stopped by the time limit after 3 of 5 imputations"):
        fitted = vcuda.fit(gappy, model="linear", engine="exact", imputations=5, time_limit=10.0)
    assert len(fitted.graph_posterior.members) == 3
    assert deadlines == [110.0] * 3
    now[0], deadlines[:] = 100.0, []
    with pytest.warns(ConvergenceWarning, match="Stopped by the time limit after 3 of 5 imputations"):
        vcuda.fit(gappy, model="linear", engine=vcuda.Orders(replicas=2), imputations=5, time_limit=10.0)
    assert deadlines == [102.0, 104.0 + 6 / 4, 108.0 + 2 / 3]


def test_fillings_cut_short_do_not_blur_the_others(gappy, monkeypatch):
    codes = iter(["interrupted", "ok", "ok"])
    from vcuda.fitting import fit as verb

    scored = verb.fit_scored

    def first_is_late(request, *asked):
        outcome, reports = scored(request._replace(deadline=None), *asked)
        return stopped_outcome(next(codes), outcome), reports

    monkeypatch.setattr(verb, "fit_scored", first_is_late)
    monkeypatch.setattr(route, "_was_interrupted", lambda *reports: False)
    with pytest.warns(ConvergenceWarning, match="Stopped by the time limit after 2 of 3 imputations"):
        fitted = vcuda.fit(gappy, model="linear", engine="exact", imputations=3, time_limit=1000)
    assert len(fitted.graph_posterior.members) == 2


# The command line and the documentation ---------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_fits_and_checks_a_table_with_gaps(run, gappy, tmp_path):
    gappy.to_csv(tmp_path / "gaps.csv", index=False)
    answer = run("check", tmp_path / "gaps.csv")
    assert answer.code == 0
    assert "missing" in answer.out.splitlines()[1] + answer.out.splitlines()[2]
    for name in NAMES:
        line = next(line for line in answer.out.splitlines() if line.split()[:1] == [name])
        assert line.split()[-1] == str(gappy[name].isna().sum())
    assert f"{gappy.isna().to_numpy().sum()} of 480 cells are missing" in answer.out
    options = ("--model", "linear", "--engine", "exact", "--imputations", 3)
    answer = run("fit", tmp_path / "gaps.csv", "-o", tmp_path / "run", *options)
    assert answer.code == 0
    assert "were missing and imputed 3 times" in answer.out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "were missing and imputed 3 times" in page
    assert "imputation sd largest" in page
    assert vcuda.Posterior.load(tmp_path / "run").diagnostics["imputations"] == 3
    assert run("fit", tmp_path / "gaps.csv", "-o", tmp_path / "other", "--imputations", 0).code == 2


def test_the_estimator_fills_gaps(gappy, posterior):
    learned = vcuda.CausalPosterior(model="linear", engine="exact", imputations=4, random_state=3).fit(gappy)
    pd.testing.assert_frame_equal(learned.edge_probabilities_, posterior.edge_probabilities)
    with pytest.raises(DataError, match="values are missing"):
        learned.score(gappy)


@pytest.mark.slow
def test_every_block_of_the_page_runs_and_prints_as_it_shows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, flags=re.DOTALL)
    assert len(blocks) >= 4
    scope: dict = {}
    for code, shown in blocks:
        exec(compile(code, str(PAGE), "exec"), scope)
        printed = capsys.readouterr().out
        assert len(printed.splitlines()) == len(shown.splitlines())
        # Words stay what they are; numbers may differ in their last digits on other machines.
        assert re.findall(r"[a-z]{4,}", printed) == re.findall(r"[a-z]{4,}", shown)
