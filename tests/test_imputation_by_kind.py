"""Missing values of tables of several kinds: imputed cells are values of their kind, and depend on others."""

from __future__ import annotations

from dataclasses import replace

import mixed_tables
import numpy as np
import pytest
from mixed_tables import KINDS, LOGARITHM, NAMES

import vcuda
from vcuda.data.dataset import Dataset
from vcuda.data.imputation import imputations
from vcuda.errors import ConfigError
from vcuda.fitting.imputation_by_kind import imputed_tables

COMPLETE = mixed_tables.dataset(6000, seed=1)
RICH = float(np.median(COMPLETE.values[:, NAMES.index("income")]))
COUNT = 3


def with_missing(data: Dataset, share: float = 0.1, seed: int = 2) -> Dataset:
    """The table without this share of its cells, at random."""
    lost = np.random.default_rng(seed).random(data.values.shape) < share
    return replace(data, values=np.where(lost, np.nan, data.values))


@pytest.fixture(scope="module")
def table() -> Dataset:
    return with_missing(COMPLETE)


@pytest.fixture(scope="module")
def imputed(table) -> list[Dataset]:
    return list(imputed_tables(table, COUNT, logarithm=LOGARITHM))


# Means of 600 imputed cells rest on regressions on 2,000 rows, which add this share to the variance of a mean.
REGRESSION = 600 / 2000


def standard_error(cells: np.ndarray, count: int) -> float:
    """Of the mean of so many cells of one imputation, which are distributed as these; that of several is smaller."""
    return float(cells.std() * np.sqrt((1 + REGRESSION) / count))


def test_imputed_cells_have_values_of_their_kind(table, imputed):
    for one in imputed:
        assert one.missing is None
        np.testing.assert_array_equal(one.values[~table.missing], table.values[~table.missing])
        assert (one.kinds, one.categories) == (table.kinds, table.categories)
        for k, kind in enumerate(KINDS):
            own = one.values[:, k]
            if kind == "count":
                assert (own >= 0).all()
                np.testing.assert_array_equal(own, own.round())
            if kind in ("number", "count"):
                seen = table.values[~table.missing[:, k], k]
                lost = own[table.missing[:, k]]
                # The logarithm and back may be off by rounding; no cells pile up at the ends.
                assert seen.min() * (1 - 1e-12) <= lost.min()
                assert lost.max() <= seen.max() * (1 + 1e-12)
                assert kind == "count" or np.isclose(lost[:, None], [seen.min(), seen.max()]).sum() <= 1
            else:
                assert set(own) == set(COMPLETE.values[:, k])


@pytest.mark.parametrize("name", NAMES)
def test_imputed_cells_are_distributed_as_the_others(name, table, imputed):
    k = NAMES.index(name)
    lost, every = table.missing[:, k], COMPLETE.values[:, k]
    drawn = np.concatenate([one.values[lost, k] for one in imputed])
    if KINDS[k] in ("number", "count"):
        measures = [np.asarray, lambda cells: (cells - every.mean()) ** 2]
    else:
        measures = [lambda cells, level=level: cells == level for level in np.unique(every)]
    for measured in measures:
        error = standard_error(measured(every), int(lost.sum()))
        assert abs(measured(drawn).mean() - measured(every).mean()) < 4 * error


# What differs between rows by another column: a mean, or a share.
CONTRASTS = {
    "yes/no by yes/no": ("smoker", np.asarray, "sex", lambda cells: cells == 1),
    "yes/no by its effect": ("sex", np.asarray, "smoker", lambda cells: cells == 1),
    "count by yes/no": ("visits", np.asarray, "smoker", lambda cells: cells == 1),
    "count by number": ("visits", np.asarray, "age", lambda cells: cells > 50),
    "ordered by yes/no": ("grade", np.asarray, "smoker", lambda cells: cells == 1),
    "number by label": ("income", np.log, "region", lambda cells: cells == 1),
    "label by number": ("plan", lambda cells: cells == 2, "income", lambda cells: cells > RICH),
    "label by its effect": ("region", lambda cells: cells == 1, "income", lambda cells: cells > RICH),
    "number by its effect": ("age", np.asarray, "income", lambda cells: cells > RICH),
}


@pytest.mark.parametrize("name", CONTRASTS)
def test_imputed_cells_depend_on_the_other_columns(name, table, imputed):
    """Contrasts of imputed cells are those of the complete table within three standard errors, and no contrast at all
    is six of them away."""
    effect, measure, cause, split = CONTRASTS[name]
    k, other = NAMES.index(effect), NAMES.index(cause)
    lost = table.missing[:, k] & ~table.missing[:, other]
    every, group = measure(COMPLETE.values[:, k]), split(COMPLETE.values[:, other])

    def contrast(cells, groups):
        return cells[groups].mean() - cells[~groups].mean()

    expected = contrast(every, group)
    error = np.hypot(*(standard_error(every[own], int((lost & own).sum())) for own in (group, ~group)))
    assert abs(expected) > 6 * error  # the table shows enough
    found = np.mean([contrast(measure(one.values[lost, k]), group[lost]) for one in imputed])
    assert abs(found - expected) < 3 * error


def test_the_same_seed_gives_the_same_imputations_whatever_their_number():
    small = with_missing(mixed_tables.dataset(200))
    first, second = imputed_tables(small, 2, seed=3)
    again = list(imputed_tables(small, 1, seed=3, first=1))
    np.testing.assert_array_equal(again[0].values, second.values)
    assert not np.array_equal(first.values, second.values)
    assert not np.array_equal(next(imputed_tables(small, 1, seed=4)).values, first.values)
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        imputed_tables(small, 0)
    complete = mixed_tables.dataset(50)
    assert [one is complete for one in imputed_tables(complete, 2)] == [True, True]


def test_tables_of_numbers_are_imputed_as_before():
    rng = np.random.default_rng(0)
    numbers = with_missing(Dataset(("a", "b", "c"), rng.normal(size=(80, 3)) @ rng.normal(size=(3, 3))))
    for one, other in zip(imputed_tables(numbers, 2, seed=5), imputations(numbers, 2, seed=5), strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_counts_that_a_model_takes_by_their_logarithm_stay_counts():
    rng = np.random.default_rng(1)
    load = rng.normal(size=300)
    values = np.stack([load, 1 + rng.poisson(np.exp(2 + load))], axis=1)
    data = with_missing(Dataset(("load", "calls"), values, kinds=("number", "count")))
    one = next(imputed_tables(data, 1, logarithm=[False, True]))
    np.testing.assert_array_equal(one.values[:, 1], one.values[:, 1].round())
    assert one.values[:, 1].min() >= 1


def test_cells_that_an_experiment_set_do_not_follow_their_causes():
    """The dose follows age unless an experiment sets it at random; missing doses of the experiment do not follow age.

    Of 1,000 rows each, a tenth is missing: a correlation of 0 has the standard error 0.1.
    """
    rng = np.random.default_rng(6)
    age = rng.normal(size=2000)
    held = np.arange(2000) < 1000
    dose = np.where(held, rng.normal(size=2000), age + 0.3 * rng.normal(size=2000))
    sick = (age + rng.logistic(size=2000) > 0).astype(float)
    experiment = np.stack([np.zeros(2000, dtype=bool), held, np.zeros(2000, dtype=bool)], axis=1)
    lost = rng.random(2000) < 0.1
    values = np.stack([age, np.where(lost, np.nan, dose), sick], axis=1)
    kinds = ("number", "number", "yes/no")
    data = Dataset(("age", "dose", "sick"), values, interventions=experiment, kinds=kinds)
    imputed = next(imputed_tables(data, 1)).values
    assert abs(np.corrcoef(imputed[lost & held, :2].T)[0, 1]) < 0.4
    assert np.corrcoef(imputed[lost & ~held, :2].T)[0, 1] > 0.8


def test_wide_tables_and_labels_of_many_levels_are_imputed():
    """Only some of the others are tried as predictors, and a label of 40 levels gets few of them."""
    rng = np.random.default_rng(3)
    cause = rng.normal(size=(400, 30))
    many = rng.integers(0, 40, size=400).astype(float)
    alarm = (cause[:, 7] + 0.3 * rng.normal(size=400) > 0).astype(float)
    names = (*(f"x{k}" for k in range(30)), "city", "alarm")
    labels = (*[None] * 30, tuple(f"c{k}" for k in range(40)), ("no", "yes"))
    complete = Dataset(names, np.column_stack([cause, many, alarm]), categories=labels)
    lost = np.zeros(complete.values.shape, dtype=bool)
    lost[:, -2:] = rng.random((400, 2)) < 0.2
    data = replace(complete, values=np.where(lost, np.nan, complete.values))
    one = next(imputed_tables(data, 1))
    assert np.isin(one.values[:, -2], np.arange(40)).all()
    # 0.9 of the cells agree with the sign of their cause; of 80 cells drawn without it 0.5 would, give or take 0.06.
    agree = one.values[lost[:, -1], -1] == (cause[lost[:, -1], 7] > 0)
    assert agree.mean() > 0.75


# Fits ---------------------------------------------------------------------------------------------------------------

FEW = ("age", "sex", "smoker", "visits", "grade")


@pytest.fixture(scope="module")
def few() -> Dataset:
    return with_missing(mixed_tables.dataset(600, seed=1).take([NAMES.index(name) for name in FEW]))


def test_a_fit_finds_what_the_complete_table_has(few):
    posterior = vcuda.fit(few, seed=1, imputations=4, subsamples=8)
    assert posterior.provenance["model"]["name"] == "mixed"
    found = posterior.edge_probabilities.to_numpy()
    either = found + found.T
    for one, other in (("sex", "smoker"), ("smoker", "visits"), ("age", "visits")):
        assert either[FEW.index(one), FEW.index(other)] > 0.8
    assert either[FEW.index("age"), FEW.index("sex")] < 0.3
    assert posterior.diagnostics["imputations"] == 4
    # Eight subsamples are shared out.
    assert [one["parts"] for one in posterior.diagnostics["fillings"]] == [2] * 4
    said = posterior.provenance["choice"]["sentences"]
    assert said[-1] == "The posterior is the mean over 4 imputations of the missing values, all fitted in this way."
    note = posterior.provenance["data"]["notes"][-1]
    assert "were missing and imputed 4 times" in note
    assert "between imputations, each of which was fitted to random rows of its own," in note
    assert posterior.status.code == "ok"
    again = vcuda.fit(few, seed=1, imputations=4, subsamples=8)
    np.testing.assert_array_equal(again.edge_probabilities, posterior.edge_probabilities)


def test_without_subsamples_the_note_speaks_of_imputations_alone(few):
    posterior = vcuda.fit(few.take([1, 2, 4]), seed=1, imputations=2, subsamples=0)
    assert "random rows" not in posterior.provenance["data"]["notes"][-1]
    assert posterior.diagnostics["imputations"] == 2


def test_a_file_with_marks_of_missing_values_is_fitted(run, tmp_path):
    frame = with_missing(mixed_tables.dataset(300, seed=4)).to_frame()[["sex", "smoker", "visits", "plan"]]
    frame.astype(object).fillna("?").to_csv(tmp_path / "table.csv", index=False)
    answer = run("fit", tmp_path / "table.csv", "-o", tmp_path / "run", "--imputations", 2, "--no-report")
    assert answer.code == 0, answer.err
    posterior = vcuda.Posterior.load(tmp_path / "run")
    assert posterior.provenance["model"]["name"] == "mixed"
    assert posterior.kinds == ("yes/no", "yes/no", "count", "label")
    assert len(posterior.graph_posterior.members) == 2
    assert "were missing and imputed 2 times" in posterior.provenance["data"]["notes"][-1]
