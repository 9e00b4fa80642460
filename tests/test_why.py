"""Where the probability of an edge comes from, on tables whose source is known."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.errors import ConfigError, DataError

ROWS = 300
LINEAR = {"model": "linear", "noise": "unequal"}


def chain(seed: int = 1, rows: int = ROWS) -> pd.DataFrame:
    """a -> b -> c, linear with normal noise of one variance."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=rows)
    b = a + rng.normal(size=rows)
    return pd.DataFrame({"a": a, "b": b, "c": b + rng.normal(size=rows)})


def experiment(seed: int = 2, rows: int = ROWS) -> pd.DataFrame:
    """a -> b; in a third of the rows each of the two was set, as column ``set`` says."""
    rng = np.random.default_rng(seed)
    which = np.array(["", "a", "b"])[np.arange(rows) % 3]
    a = rng.normal(size=rows)
    b = np.where(which == "b", rng.normal(size=rows), 0.8 * a + rng.normal(size=rows))
    return pd.DataFrame({"a": a, "b": b, "c": rng.normal(size=rows), "set": which})


def probabilities(posterior, cause="a", effect="b"):
    found = posterior.edge_probabilities
    forward, backward = found.loc[cause, effect], found.loc[effect, cause]
    return [forward, backward, 1 - forward - backward]


def row(table, source):
    return table.set_index("source").loc[source, ["probability", "opposite", "none"]].tolist()


def sources(found):
    return found.ladder.source.tolist()


# Sources that are known ------------------------------------------------------------------------------------------


def test_a_collider_is_seen_by_independences():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 600))
    posterior = vcuda.fit(pd.DataFrame({"a": a, "b": b, "c": a + b + 0.5 * rng.normal(size=600)}), **LINEAR)
    found = posterior.why("a", "c")
    assert sources(found) == ["prior", "independences"]
    assert row(found.ladder, "prior") == pytest.approx([0.25, 0.25, 0.5])  # an edge has probability 1/2 in either order
    assert found.ladder.adds.sum() == pytest.approx(found.stated.probability)
    assert found.stated.probability > 0.9
    assert "Independences alone say so" in found.sentence
    assert found.dropped.empty


def test_independent_columns_have_no_edge_by_independences():
    found = vcuda.fit(pd.DataFrame(np.random.default_rng(0).normal(size=(ROWS, 3)), columns=list("abc")), **LINEAR).why(
        "a", "b"
    )
    assert found.sentences[0].endswith("says no edge.")
    assert "Independences alone say so" in found.sentence


def test_equal_noise_decides_the_direction_of_a_chain():
    found = vcuda.fit(chain(), model="linear", noise="equal").why("a", "b")
    assert sources(found) == ["prior", "independences", "equal noise"]
    assert "Independences alone leave the direction open" in found.sentence
    assert "Equal noise variances decide: without them" in found.sentence
    without = vcuda.fit(chain(), **LINEAR)
    assert row(found.dropped, "equal noise") == pytest.approx(probabilities(without), abs=1e-9)


@pytest.mark.parametrize(
    "stated", [{"required": ["a -> b"]}, {"forbidden": ["b -> a"]}, {"tiers": [["a"], ["b", "c"]]}]
)
def test_knowledge_decides_what_the_table_leaves_open(stated):
    found = vcuda.fit(chain(), knowledge=vcuda.Knowledge(**stated), **LINEAR).why("a", "b")
    assert "Knowledge decides: without it" in found.sentence
    assert row(found.ladder, "knowledge") == pytest.approx(list(found.stated), abs=1e-9)
    assert row(found.dropped, "knowledge") == pytest.approx(probabilities(vcuda.fit(chain(), **LINEAR)), abs=1e-9)


@pytest.mark.parametrize("noise", ["unequal", "equal"])
def test_an_experiment_decides_what_rows_as_observed_leave_open(noise, tmp_path):
    table = experiment()
    posterior = vcuda.fit(table, model="linear", noise=noise, interventions="set")
    posterior.save(tmp_path / "run")
    found = vcuda.Posterior.load(tmp_path / "run").why("a", "b")
    assert row(found.ladder, sources(found)[-1]) == pytest.approx(list(found.stated), abs=1e-9)
    as_observed = vcuda.fit(table.drop(columns="set"), model="linear", noise=noise)
    # The units of equal noise are those of the cells that were free.
    assert row(found.dropped, "experiments") == pytest.approx(probabilities(as_observed), abs=1e-3)
    independent = row(found.ladder, "independences")
    assert max(independent) < 0.8
    assert row(found.ladder, "experiments")[0] > 0.99
    if noise == "unequal":
        assert "The experiments decide: without them" in found.sentence


def test_experiments_on_every_column_need_the_table_to_be_dropped():
    table = experiment().drop(columns="c")
    posterior = vcuda.fit(table, interventions="set", **LINEAR)
    found = posterior.why("a", "b")
    assert "experiments" not in found.dropped.source.tolist()
    assert any("data=table" in note for note in found.notes)
    found = posterior.why("a", "b", data=table)
    as_observed = vcuda.fit(table.drop(columns="set"), **LINEAR)
    assert row(found.dropped, "experiments") == pytest.approx(probabilities(as_observed), abs=1e-9)


@pytest.mark.slow
def test_the_shape_of_the_noise_decides_a_linear_effect():
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, size=ROWS)
    posterior = vcuda.fit(pd.DataFrame({"a": a, "b": 1.5 * a + rng.uniform(-1, 1, size=ROWS)}), subsamples=6)
    found = posterior.why("a", "b")
    assert posterior.provenance.model_name == "mixed"
    assert sources(found) == ["prior", "independences", "functions", "shape", "spread"]
    # A quarter of the answer reads no direction from shapes.
    assert 0.82 < found.stated.probability < 0.9
    assert "Independences alone leave the direction open" in found.sentence
    assert "The shape of the noise decides: without it" in found.sentence
    # All parts of the rows, as in the fit; only descriptions that hardly count differ.
    assert row(found.ladder, "spread") == pytest.approx(list(found.stated), abs=0.01)
    fewer = posterior.why("a", "b", subsamples=2)
    assert any("2 of 6 random parts" in note for note in fewer.notes)


@pytest.mark.slow
def test_the_form_of_the_functions_decides_a_square():
    rng = np.random.default_rng(1)
    a = rng.normal(size=ROWS)
    table = pd.DataFrame({"a": a, "b": a**2 + 0.3 * rng.normal(size=ROWS)})
    found = vcuda.fit(table, subsamples=6).why("a", "b")
    assert 0.82 < found.stated.probability < 0.9
    assert found.stated.none < 0.05  # what curves join is joined in the whole answer
    assert "leave it open" in found.sentence
    assert "The form of the functions decides: without it" in found.sentence
    assert row(found.ladder, "functions")[0] > 0.8


# The same as fits that assume less -------------------------------------------------------------------------------


@pytest.mark.slow
def test_regressions_agree_with_fits_that_are_asked_for_less():
    table = experiment(rows=150)
    options = {"model": "mixed", "subsamples": 0}
    known = vcuda.Knowledge(required=["c -> a"])
    posterior = vcuda.fit(table, interventions="set", knowledge=known, **options)
    found = posterior.why("a", "b")
    assert row(found.ladder, "knowledge") == pytest.approx(list(found.stated), abs=1e-6)
    without = vcuda.fit(table, interventions="set", **options)
    assert row(found.dropped, "knowledge") == pytest.approx(probabilities(without), abs=1e-6)
    as_observed = vcuda.fit(table.drop(columns="set"), knowledge=known, **options)
    # Fits begin at the best subset, and there are more subsets where the required edge can be dropped.
    assert row(found.dropped, "experiments") == pytest.approx(probabilities(as_observed), abs=2e-3)


def test_labels_are_described_by_independences():
    rng = np.random.default_rng(3)
    x = rng.choice(["p", "q"], ROWS)
    table = pd.DataFrame({"a": x, "b": np.where(rng.random(ROWS) < 0.8, x, "p"), "c": rng.choice(["u", "v"], ROWS)})
    found = vcuda.fit(table).why("a", "b")
    assert sources(found) == ["prior", "independences"]
    assert row(found.ladder, "independences") == pytest.approx(list(found.stated), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["additive", "gp"])
def test_functions_are_those_of_the_model_that_was_fitted(model):
    table = chain()
    found = vcuda.fit(table, model=model).why("a", "b", data=table)
    # A Gaussian process keeps its rows in single precision.
    assert row(found.ladder, "functions") == pytest.approx(list(found.stated), abs=1e-4)


def test_missing_values_are_those_of_the_imputations():
    table = chain()
    table.loc[::7, "c"] = np.nan
    found = vcuda.fit(table, imputations=3, **LINEAR).why("a", "b")
    assert row(found.ladder, "independences") == pytest.approx(list(found.stated), abs=1e-9)


@pytest.mark.parametrize("prior", ["uniform", 0.1])
def test_the_prior_is_that_of_the_fit(prior):
    found = vcuda.fit(chain(), prior=prior, **LINEAR).why("a", "b")
    assert row(found.ladder, "independences") == pytest.approx(list(found.stated), abs=1e-9)
    # There are 25 DAGs of three nodes, and 8 of them have a given edge.
    expected = 8 / 25 if prior == "uniform" else 0.05
    assert row(found.ladder, "prior")[:2] == pytest.approx([expected, expected])


@pytest.mark.slow
def test_of_many_columns_those_near_the_pair_are_described():
    table = vcuda.simulate("er", nodes=15, edges=15, rows=ROWS, test_rows=1, seed=0).train
    posterior = vcuda.fit(table, **LINEAR)
    first = posterior.edges().iloc[0]
    found = posterior.why(first.source, first.target)
    assert any("Of 15 columns, the pair and the 10" in note for note in found.notes)
    assert row(found.ladder, "independences") == pytest.approx(list(found.stated), abs=0.05)


# Rows that are not at hand ---------------------------------------------------------------------------------------


def test_rows_that_a_run_does_not_keep_are_asked_for():
    posterior = vcuda.fit(chain(rows=80), model="additive")
    with pytest.raises(ConfigError, match=r"model additive keeps no rows .* data=table or --data TABLE"):
        posterior.why("a", "b")
    with pytest.raises(DataError, match="give the table that was fitted"):
        posterior.why("a", "b", data=chain(rows=80).rename(columns={"c": "d"}))
    notes = posterior.why("a", "b", data=chain(rows=60)).notes
    assert any("60 rows, the fit had 80" in note for note in notes)
    incomplete = chain(rows=80)
    incomplete.loc[:9, "c"] = np.nan
    assert any("70 of 80 remain" in note for note in posterior.why("a", "b", data=incomplete).notes)


def test_a_mask_of_experiments_comes_with_the_table():
    table = experiment(rows=90)
    mask = np.stack([table.set == name for name in "abc"], axis=1)
    values = table.drop(columns="set")
    posterior = vcuda.fit(values, model="additive", interventions=mask)
    with pytest.raises(ConfigError, match="interventions=mask"):
        posterior.why("a", "b", data=values)
    found = posterior.why("a", "b", data=vcuda.as_dataset(values, interventions=mask))
    assert row(found.ladder, "functions") == pytest.approx(list(found.stated), abs=1e-9)


EARLIER_RUNS = sorted((Path(__file__).parent / "fixtures" / "run-format-1").iterdir())


KEEP_NO_ROWS = ("baseline", "straight-through", "exact-additive", "orders-additive", "exact-gp-interventions")


@pytest.mark.parametrize("folder", EARLIER_RUNS, ids=lambda folder: folder.name)
def test_runs_of_earlier_versions_answer_or_ask_for_the_table(folder):
    posterior = vcuda.Posterior.load(folder)
    first, second = posterior.names[1], posterior.names[3]
    if folder.name.startswith(KEEP_NO_ROWS):
        with pytest.raises(ConfigError, match="give the table"):
            posterior.why(first, second)
        return
    if folder.name == "hidden-causes":
        with pytest.raises(ConfigError, match="without hidden=True"):
            posterior.why(first, second)
        return
    found = posterior.why(first, second)
    np.testing.assert_allclose(found.ladder[["probability", "opposite", "none"]].sum(axis=1), 1.0)
    if folder.name.startswith("exact-"):
        # The Gaussian process keeps its rows in single precision.
        assert row(found.ladder, sources(found)[-1]) == pytest.approx(list(found.stated), abs=1e-4)


def test_settings_that_cannot_be_are_refused():
    posterior = vcuda.fit(chain(rows=80), **LINEAR)
    posterior.provenance["model"]["excess"] = "much"
    with pytest.raises(ConfigError):
        posterior.why("a", "b")


@pytest.mark.slow
def test_imputed_tables_of_any_kind_are_described_by_the_first():
    rng = np.random.default_rng(5)
    label = rng.choice(["p", "q", "r"], 150)
    table = pd.DataFrame({"a": label, "b": (label == "p") * 1.5 + rng.normal(size=150), "c": rng.poisson(2, 150)})
    table.loc[::9, "b"] = np.nan
    found = vcuda.fit(table, imputations=2, subsamples=2).why("a", "b")
    assert any("first of 2 imputed" in note for note in found.notes)
    assert row(found.ladder, "spread")[2] < 0.1


@pytest.mark.slow
def test_another_method_is_not_explained_by_the_table():
    table = chain(rows=80)
    found = vcuda.fit(table, engine="empty").why("a", "b", data=table)
    assert found.sentences[0] == "100 % says no edge."
    assert "does not explain what is stated" in found.sentence


def test_two_different_names_are_needed():
    posterior = vcuda.fit(chain(rows=80), **LINEAR)
    with pytest.raises(ConfigError, match="two different variables"):
        posterior.why("a", "a")
    with pytest.raises(ConfigError, match="subsamples must be a whole number at least 1"):
        posterior.why("a", "b", subsamples=0)


# How it is shown -------------------------------------------------------------------------------------------------


def test_answers_are_frames_text_and_safe_html():
    table = chain(rows=80).rename(columns={"a": "<b>a</b>"})
    found = vcuda.fit(table, model="linear", noise="equal").why("<b>a</b>", "b")
    frame = found.to_frame()
    assert frame.columns.tolist() == ["step", "source", "probability", "opposite", "none", "change"]
    assert frame.step.tolist() == ["with", "with", "with", "without"]
    np.testing.assert_allclose(frame[["probability", "opposite", "none"]].sum(axis=1), 1.0)
    page = found._repr_html_()
    assert "&lt;b&gt;a" in page
    assert "<b>a" not in page
    assert found.sentence in repr(found)
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
