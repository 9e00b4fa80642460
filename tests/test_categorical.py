"""Tables of categories, from the file to the effect: how they are read, refused, fitted, asked and shown."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from scipy.special import gammaln, logsumexp

import vcuda
from vcuda.data.categorical import as_categories
from vcuda.errors import ConfigError, DataError
from vcuda.fitting.kinds import resolve_kinds
from vcuda.fitting.spec import FitSpec
from vcuda.graphs import enumerate_dags
from vcuda.models.categorical import BDeu, CategoricalPredictive, draw_distributions
from vcuda.summaries import categorical_effects
from vcuda.summaries.categorical_effects import CategoryEffect

# A network whose tables are known: parents, labels, and for each combination of the parents' labels the probabilities.
LABELS = {
    "smoker": ("no", "yes"),
    "gene": ("aa", "ab", "bb"),
    "tar": ("high", "low"),
    "cancer": ("no", "yes"),
    "cough": ("never", "often", "rarely"),
}
PARENTS = {"smoker": (), "gene": (), "tar": ("smoker",), "cancer": ("gene", "tar"), "cough": ("cancer",)}
TABLES = {
    "smoker": np.array([0.6, 0.4]),
    "gene": np.array([0.5, 0.3, 0.2]),
    "tar": np.array([[0.15, 0.85], [0.8, 0.2]]),
    "cancer": np.array([[[0.7, 0.3], [0.95, 0.05]], [[0.5, 0.5], [0.9, 0.1]], [[0.2, 0.8], [0.6, 0.4]]]),
    "cough": np.array([[0.6, 0.1, 0.3], [0.1, 0.7, 0.2]]),
}
NAMES = tuple(LABELS)
TIERS = vcuda.Knowledge(tiers=[["smoker", "gene"], ["tar"], ["cancer"], ["cough"]])


def simulated(rows: int, *, seed: int = 0, cause: str | None = None, label: str | None = None) -> pd.DataFrame:
    """Rows of the network, drawn node by node; a cause may be set to one of its labels."""
    rng = np.random.default_rng(seed)
    codes: dict[str, np.ndarray] = {}
    for name in NAMES:
        shares = TABLES[name][tuple(codes[parent] for parent in PARENTS[name])]
        shares = np.broadcast_to(shares, (rows, len(LABELS[name])))
        codes[name] = (shares.cumsum(axis=1) < rng.random(rows)[:, None]).sum(axis=1)
        if name == cause:
            codes[name] = np.full(rows, LABELS[name].index(str(label)))
    return pd.DataFrame({name: np.array(LABELS[name], dtype=object)[codes[name]] for name in NAMES})


def true_effect(cause: str, outcome: str) -> np.ndarray:
    """P(outcome | do(cause)) by summing over all states of the network."""
    found = np.zeros((len(LABELS[cause]), len(LABELS[outcome])))
    for state in itertools.product(*(range(len(LABELS[name])) for name in NAMES)):
        code = dict(zip(NAMES, state, strict=True))
        factors = [TABLES[name][(*(code[parent] for parent in PARENTS[name]), code[name])] for name in NAMES]
        factors[NAMES.index(cause)] = 1.0
        found[code[cause], code[outcome]] += np.prod(factors)
    return found


TABLE = simulated(300)


@pytest.fixture(scope="module")
def posterior():
    return vcuda.fit(simulated(2000, seed=1), knowledge=TIERS)


# Reading ----------------------------------------------------------------------------------------------------


def written(ending: str, write):
    def make(folder: Path) -> Path:
        write(folder / f"t.{ending}")
        return folder / f"t.{ending}"

    return make


def arrow_table(*, encoded: bool) -> pa.Table:
    columns = {name: pa.chunked_array([TABLE[name][:100].tolist(), TABLE[name][100:].tolist()]) for name in NAMES}
    return pa.table({name: own.dictionary_encode() if encoded else own for name, own in columns.items()})


READERS = {
    "csv": written("csv", lambda path: TABLE.to_csv(path, index=False)),
    "csv with spaces": written("csv", lambda path: (" " + TABLE + "  ").to_csv(path, index=False)),
    "tsv": written("tsv", lambda path: TABLE.to_csv(path, index=False, sep="\t")),
    "parquet": written("parquet", lambda path: pa.parquet.write_table(arrow_table(encoded=False), path)),
    "parquet, encoded": written("parquet", lambda path: pa.parquet.write_table(arrow_table(encoded=True), path)),
    "feather": written("feather", lambda path: pa.feather.write_feather(arrow_table(encoded=True), str(path))),
    "pandas": lambda folder: TABLE,
    "pandas objects": lambda folder: TABLE.astype(object),
    "pandas strings": lambda folder: TABLE.astype("string"),
    "pandas on Arrow": lambda folder: TABLE.convert_dtypes(dtype_backend="pyarrow"),
    "pandas categories": lambda folder: TABLE.astype("category"),
    "polars strings": lambda folder: pl.DataFrame(TABLE.to_dict("list")),
    "polars categories": lambda folder: pl.DataFrame(TABLE.to_dict("list")).cast(pl.Categorical),
    "arrow strings": lambda folder: arrow_table(encoded=False),
    "arrow dictionaries": lambda folder: arrow_table(encoded=True),
}


@pytest.mark.parametrize("name", READERS)
def test_every_kind_of_table_gives_the_same_categories(name, tmp_path):
    data = vcuda.as_dataset(READERS[name](tmp_path))
    assert data.categories == tuple(LABELS.values())
    expected = [[LABELS[column].index(cell) for cell in TABLE[column]] for column in NAMES]
    np.testing.assert_array_equal(data.values, np.array(expected, dtype=float).T)
    assert data.notes == ()
    assert data.fingerprint == vcuda.as_dataset(TABLE).fingerprint
    pd.testing.assert_frame_equal(data.to_frame().astype(object), TABLE.astype(object))


def test_an_array_of_text_is_read_too():
    data = vcuda.as_dataset(TABLE.to_numpy(), names=NAMES)
    assert data.categories == tuple(LABELS.values())
    assert vcuda.as_dataset(TABLE.to_numpy().astype(str)).categories == data.categories


def test_labels_keep_an_order_that_somebody_chose_and_are_sorted_otherwise():
    sizes = ["mid", "low", "high", "low", "mid", "high"] * 3
    numbers = ["10", "9", "1", "9", "1", "10"] * 3
    dtypes = {
        "ordered": pd.CategoricalDtype(["low", "mid", "high", "huge"], ordered=True),
        "chosen": pd.CategoricalDtype(["low", "mid", "high"]),
        "inferred": "category",
    }
    frame = pd.DataFrame({name: pd.Series(sizes, dtype=dtype) for name, dtype in dtypes.items()})
    frame["numbers"] = pd.Series(numbers, dtype="category")
    data = vcuda.as_dataset(frame)
    assert data.categories == (("low", "mid", "high"), ("low", "mid", "high"), ("high", "low", "mid"), ("1", "9", "10"))
    assert vcuda.as_dataset(data.to_frame()).categories == data.categories
    enum = pl.DataFrame({"a": pl.Series(sizes, dtype=pl.Enum(["low", "mid", "high", "huge"])), "b": sizes})
    assert vcuda.as_dataset(enum).categories == (("low", "mid", "high"), ("high", "low", "mid"))
    cut = pd.qcut(np.random.default_rng(0).normal(size=18), 3)
    assert vcuda.as_dataset(frame.assign(cut=cut)).categories[-1] == tuple(map(str, cut.categories))


def test_truth_values_go_with_their_table(tmp_path):
    truth = np.random.default_rng(0).random((20, 2)) < 0.5
    frame = pd.DataFrame(truth, columns=["a", "b"])
    for table in (frame, frame.astype(object), frame.astype("boolean"), truth, pl.DataFrame(frame.to_dict("list"))):
        data = vcuda.as_dataset(table)
        assert data.categories == (("false", "true"),) * 2
        np.testing.assert_array_equal(data.values, truth)
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert vcuda.as_dataset(tmp_path / "t.csv").categories == (("false", "true"),) * 2
    assert vcuda.as_dataset(frame.assign(c=["x", "y"] * 10)).categories[0] == ("false", "true")
    beside_numbers = vcuda.as_dataset(frame.assign(c=np.linspace(0, 1, 20)))
    assert beside_numbers.categories is None
    np.testing.assert_array_equal(beside_numbers.values[:, :2], truth)


def test_few_whole_numbers_beside_labels_stay_numbers(tmp_path):
    frame = TABLE.assign(visits=np.arange(300) % 10 - 5, year=2020 + np.arange(300) % 3)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for table in (frame, tmp_path / "t.csv"):
        data = vcuda.as_dataset(table)
        assert data.categories == (*LABELS.values(), None, None)
        assert data.kinds[5:] == ("number", "ordered")
        np.testing.assert_array_equal(data.values[:, 5:], frame[["visits", "year"]])


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("cells", "model"),
    [
        (RNG.poisson(1.5, 300).clip(max=8), "mixed"),
        (RNG.integers(1, 6, 300), "mixed"),
        (RNG.integers(0, 10, 300) - 5, "mixed"),
        (RNG.integers(0, 2, 300) * 3, "categorical"),
    ],
    ids=["count", "ordered", "number", "yes/no"],
)
def test_numbers_beside_labels_keep_their_order_however_few_there_are(cells, model, request):
    data = vcuda.as_dataset(TABLE.assign(odd=cells))
    assert data.kinds[-1] == request.node.callspec.id
    table, chosen, (sentence,) = resolve_kinds(data, FitSpec())
    assert chosen == model
    if model == "mixed":
        assert table is data
        assert f"{data.kinds[-1]}: 'odd'" in sentence
    else:
        assert table.categories[-1] == ("0", "3")
        assert sentence == (
            "Column 'odd' holds two different numbers beside columns of labels: the model is categorical, which takes "
            "each number as a label; no other was compared."
        )


def test_labels_beside_numbers_are_read_and_models_for_numbers_refuse_them():
    table = TABLE.assign(weight=np.linspace(0, 1, 300))
    data = vcuda.as_dataset(table)
    assert data.categories == (*LABELS.values(), None)
    assert data.kinds == ("yes/no", "label", "yes/no", "yes/no", "label", "number")
    with pytest.raises(ConfigError, match=r"column 'smoker' holds labels .* and model linear is for numbers"):
        vcuda.fit(table, model="linear")


@pytest.mark.parametrize("more", [{}, {"weight": np.linspace(0, 1, 300)}])
def test_missing_labels_are_kept_and_imputed_but_for_model_categorical(more):
    table = TABLE.assign(gene=TABLE["gene"].where(np.arange(300) % 9 > 0), **more)
    data = vcuda.as_dataset(table, missing="keep")
    assert data.categories[1] == LABELS["gene"]
    np.testing.assert_array_equal(np.isnan(data.values[:, 1]), np.arange(300) % 9 == 0)
    pd.testing.assert_series_equal(data.to_frame()["gene"].astype(object), table["gene"].astype(object))
    with pytest.raises(DataError, match=r"34 labels are missing in column 'gene', the first in data row 1: .*unknown"):
        vcuda.fit(table, model="categorical")
    posterior = vcuda.fit(table, imputations=2, subsamples=2)
    assert posterior.provenance["model"]["name"] == "mixed"
    assert posterior.diagnostics["missing_share"] == {"gene": 34 / 300}


def test_columns_that_divide_the_rows_in_the_same_way_are_named():
    data = vcuda.as_dataset(TABLE.assign(growth=TABLE["cancer"].map({"no": "benign", "yes": "malign"})))
    assert data.notes == (
        "Columns 'cancer' and 'growth' divide the rows in the same way: the data cannot distinguish them, leave out "
        "all but one.",
    )
    assert "6 rows are few for 5 columns" in vcuda.as_dataset(TABLE.iloc[[0, 3, 4, 6, 13, 23]]).notes[0]


def column(cells, **others) -> pd.DataFrame:
    return pd.DataFrame({"kind": ["x", "y"] * 30, "odd": cells, **others})


REFUSED = {
    "an identifier": (
        column([f"P{k}" for k in range(60)]),
        "pandas table: column 'odd' ('P0' in data row 1) holds another label in every row, as an identifier or free "
        "text does: leave the column out (exclude=, --exclude), or join its labels into few categories.",
    ),
    "too many labels": (
        column([f"word {k % 51}" for k in range(60)]),
        "pandas table: column 'odd' ('word 0' in data row 1) has 51 different labels, more than 50, as an identifier "
        "or free text does: leave the column out (exclude=, --exclude), or join its labels into fewer categories.",
    ),
    "too many categories": (column(pd.Categorical([f"word {k % 51}" for k in range(60)])), "51 different labels"),
    "a missing label": (
        column([None, *["a", "b"] * 29, "a"]),
        "pandas table: one value is missing in column 'odd', in data row 1: fill it in, or leave out the row or the "
        "column; a fit (vcuda.fit, vcuda fit) imputes missing values by itself.",
    ),
    "missing labels": (
        column(pd.Categorical(["a", None, "", "a", "b", "c"] * 10)),
        "20 values are missing in column 'odd', the first in data row 2: fill them in",
    ),
    "a missing truth value": (column(pd.array([True, False, None] * 20, "boolean")), "20 values are missing"),
    "a missing whole number": (column(pd.array([1, 2, None] * 20, "Int64")), "20 values are missing"),
    "no label at all": (column(pd.Categorical([None] * 60, categories=["a"])), "column 'odd' has no value"),
    "one label": (
        column("same"),
        "pandas table: column 'odd' does not vary ('same' in every row): leave the column out (exclude=, --exclude); "
        "it has neither causes nor effects. A graph needs at least two columns, and only 'kind' would be left.",
    ),
    "one truth value": (column([True] * 60), "'odd' does not vary ('true' in every row)"),
    "dates as text": (column(["01.02.2024", "03/04/2023"] * 30), "column 'odd' holds dates or times"),
    "dates": (column(pd.to_datetime(["2024-02-01", "2023-04-03"] * 30)), "column 'odd' holds dates or times"),
    "numbers as text": (column(["1", "2"] * 29 + ["many", "1"]), "data row 1 of column 'odd' holds '1', which is text"),
    "text among numbers": (
        column([1, 2] * 29 + ["many", 1]),
        "data row 59 of column 'odd' holds 'many', which is text",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tables_that_cannot_be_categories_are_refused_in_one_sentence(name):
    table, expected = REFUSED[name]
    with pytest.raises(DataError) as caught:
        vcuda.as_dataset(table)
    message = str(caught.value)
    assert expected in message
    assert message.startswith("pandas table: ")
    assert message.endswith(".")
    assert "\n" not in message


def test_a_text_file_with_few_bad_cells_is_one_of_numbers(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{k % 4},{k % 7}" for k in range(20)]
    path.write_text("a,b\n" + "\n".join([*lines, "1,unknown"]) + "\n")
    with pytest.raises(DataError, match=r"data row 21 \(line 22 of the file\) of column 'b' holds 'unknown', which is"):
        vcuda.as_dataset(path)
    path.write_text("a;b\n" + "\n".join(f"x{k % 4};{k % 7},5" for k in range(20)) + "\n")
    np.testing.assert_array_equal(vcuda.as_dataset(path).to_frame()["b"].to_numpy()[:3], [0.5, 1.5, 2.5])
    path.write_text("a,b\n" + "\n".join(f"x{k % 4},{'many' if k % 2 else k % 7}" for k in range(20)) + "\n")
    # Half of the cells are text: labels, of which those that are numbers come first.
    assert vcuda.as_dataset(path).categories[1] == ("0", "1", "2", "3", "4", "5", "6", "many")


def test_a_part_of_a_table_keeps_its_labels_and_a_fit_takes_those_that_occur():
    data = vcuda.as_dataset(TABLE)
    part = data.select(np.flatnonzero(data.values[:, 1] != 0))
    assert part.categories == data.categories
    taken = as_categories(part)
    assert taken.categories[1] == ("ab", "bb")
    np.testing.assert_array_equal(taken.values[:, 1], part.values[:, 1] - 1)
    with pytest.raises(DataError, match="labels of 1 columns do not fit 2 names"):
        vcuda.Dataset(("a", "b"), np.zeros((3, 2)), categories=(("x", "y"),))


# Fitting ----------------------------------------------------------------------------------------------------


def local_evidence(codes: np.ndarray, levels: np.ndarray, target: int, parents: list[int]) -> float:
    """The evidence of a column given its parents, one distribution for each combination of their labels."""
    total = 0.0
    combinations = list(itertools.product(*(range(levels[parent]) for parent in parents)))
    weight = 1.0 / len(combinations)
    for combination in combinations:
        rows = (codes[:, parents] == combination).all(axis=1)
        counts = np.bincount(codes[rows, target], minlength=levels[target])
        share = weight / levels[target]
        total += gammaln(weight) - gammaln(weight + counts.sum()) + np.sum(gammaln(share + counts) - gammaln(share))
    return float(total)


def test_exact_is_the_sum_over_all_graphs_of_four_columns():
    table = simulated(60, seed=5)[["gene", "tar", "cancer", "cough"]]
    posterior = vcuda.fit(table, engine="exact", prior=0.3)
    data = vcuda.as_dataset(table)
    codes, levels = data.values.astype(int), np.array([len(labels) for labels in data.categories])
    graphs = enumerate_dags(4)
    orders = list(itertools.permutations(range(4)))
    known: dict = {}
    log_joint = []
    for graph in graphs:
        forward = sum(all(order.index(i) < order.index(j) for i, j in np.argwhere(graph)) for order in orders)
        edges = int(graph.sum())
        total = np.log(forward / 24) + edges * np.log(0.3) + (6 - edges) * np.log(0.7)
        for node in range(4):
            parents = np.flatnonzero(graph[:, node]).tolist()
            key = (node, *parents)
            known[key] = known.get(key) or local_evidence(codes, levels, node, parents)
            total += known[key]
        log_joint.append(total)
    evidence = logsumexp(log_joint)
    expected = np.einsum("g,gij->ij", np.exp(np.array(log_joint) - evidence), graphs)
    # Sums of 543 terms in double precision.
    np.testing.assert_allclose(posterior.edge_probabilities, expected, atol=1e-9)
    assert posterior.diagnostics["log_evidence"] == pytest.approx(evidence, abs=1e-7)


@pytest.mark.slow
def test_orders_agrees_with_exact():
    table = simulated(400, seed=2)
    exact = vcuda.fit(table, model="categorical", engine="exact")
    orders = vcuda.fit(table, model="categorical", engine=vcuda.Orders(), seed=3)
    difference = np.abs(exact.edge_probabilities - orders.edge_probabilities).to_numpy()
    # Twenty probabilities, each of which has at most the standard error that the engine tells.
    assert difference.max() < 5 * orders.diagnostics["standard_error"] + 1e-6


def test_auto_takes_the_categorical_model_without_comparing_and_says_so(posterior):
    assert posterior.provenance["model"]["name"] == "categorical"
    assert posterior.provenance["model"]["score"] == "BDeu"
    assert "noise" not in posterior.provenance["model"]
    sentences = posterior.summary()["choice"]
    assert sentences[0] == "Every column holds labels, so the model is categorical; no other was compared."
    assert sentences[1].startswith("Engine exact: 5 columns")
    assert posterior.categories == tuple(LABELS.values())
    # With the order of time and 2,000 rows every edge of the network is found, and no other.
    truth = np.array([[source in PARENTS[target] for target in NAMES] for source in NAMES])
    np.testing.assert_array_equal(posterior.edge_probabilities.to_numpy() > 0.5, truth)


def test_numbers_are_categories_when_the_discrete_model_is_asked_for():
    coded = vcuda.as_dataset(TABLE)
    numbers = vcuda.as_dataset(coded.values * [1.0, 2.5, -1.0, 10.0, 1.0], names=NAMES)
    by_name = vcuda.fit(numbers, model="categorical")
    assert by_name.categories[1] == ("0", "2.5", "5")
    assert by_name.categories[2] == ("-1", "0")
    assert by_name.provenance["data"]["fingerprint"] == numbers.fingerprint
    expected = vcuda.fit(coded)
    np.testing.assert_allclose(by_name.edge_probabilities, expected.edge_probabilities, atol=1e-12)
    by_spec = vcuda.fit(numbers, model=BDeu(equivalent_sample_size=5.0), engine="exact")
    assert by_spec.categories == by_name.categories
    assert np.abs(by_spec.edge_probabilities - expected.edge_probabilities).to_numpy().max() > 0.01
    assert by_name.predict(numbers.to_frame())["gene"].cat.categories.tolist() == ["0", "2.5", "5"]


FIT_REFUSED = {
    "linear": ({"model": "linear"}, r"column 'smoker' holds labels .'no' and 'yes'., and model linear is for numbers"),
    "a spec": ({"model": vcuda.MLP()}, "model MLP is for numbers"),
    "noise": ({"noise": "equal"}, "has no choice of noise variances; leave noise out"),
    "log": ({"log": ["gene"]}, "has no logarithms; leave log out"),
    "standardise": ({"standardise": True}, "standardises numbers by itself; leave standardise out"),
    "variational": ({"engine": "variational"}, "engine variational is for numbers; .* engine exact or orders"),
    "a variational spec": ({"engine": vcuda.Variational()}, "engine Variational is for numbers"),
    "straight-through": ({"engine": "straight-through"}, "engine straight-through is for numbers"),
    "a baseline": ({"engine": "variance-sort"}, "engine variance-sort is for numbers"),
    "the paper": ({"preset": "paper"}, "preset paper is for numbers"),
}


@pytest.mark.parametrize("name", FIT_REFUSED)
def test_what_does_not_go_with_categories_is_refused(name):
    options, message = FIT_REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        vcuda.fit(TABLE, **options)


def test_too_many_numbers_are_no_categories():
    numbers = np.column_stack([np.arange(60)[::-1], np.arange(60) % 2])
    with pytest.raises(DataError, match=r"column 'X1' has 60 different values, more than the 50 .*pandas.qcut"):
        vcuda.fit(numbers, model="categorical")
    assert len(vcuda.fit(numbers, model=BDeu(max_levels=60)).categories[0]) == 60


def test_cells_that_were_set_do_not_tell_of_their_causes():
    free, held = simulated(1500, seed=8), simulated(1500, seed=9, cause="tar", label="high")
    table = pd.concat([free.assign(was_set=""), held.assign(was_set="tar")], ignore_index=True)
    posterior = vcuda.fit(table, interventions="was_set")
    assert posterior.categories == tuple(LABELS.values())
    # Where tar was set it does not depend on smoking; only with those rows left out is their edge as strong as it is.
    assert posterior.edge_probabilities.loc["smoker", "tar"] > 0.9
    predictive = posterior.graph_posterior.predictive
    counts = predictive.concentration(2, np.array([0])) - predictive.equivalent_sample_size / 4
    np.testing.assert_allclose(counts, pd.crosstab(free["smoker"], free["tar"]).to_numpy())


# Predictions ------------------------------------------------------------------------------------------------


def test_new_rows_are_predicted_by_counts_and_prior():
    data = vcuda.as_dataset(TABLE)
    predictive = CategoricalPredictive.of(data, 2.0)
    codes = data.values.astype(int)
    found = predictive.probabilities(3, np.array([1, 2]), codes[:20])
    for row, seen in zip(codes[:20], found, strict=True):
        same = (codes[:, [1, 2]] == row[[1, 2]]).all(axis=1)
        counts = np.bincount(codes[same, 3], minlength=2)
        np.testing.assert_allclose(seen, (counts + 2.0 / 12) / (counts.sum() + 2.0 / 6), rtol=1e-12)
    alone = predictive.column(4, np.empty(0, dtype=np.int64), data.values[:5])
    shares = (np.bincount(codes[:, 4]) + 2.0 / 3) / (300 + 2.0)
    np.testing.assert_allclose(alone.log_density, np.log(shares[codes[:5, 4]]))
    assert (alone.mean == np.argmax(shares)).all()


def test_what_a_row_adds_to_the_evidence_is_its_log_probability():
    # One graph, so that the law's prediction is that of the graph.
    data = vcuda.as_dataset(TABLE)
    part, codes = data.select(slice(0, 200)), data.values.astype(int)
    edges = {("gene", "cancer"), ("tar", "cancer")}
    others = set(itertools.permutations(NAMES, 2)) - edges
    graph = vcuda.Knowledge(required=sorted(edges), forbidden=sorted(others))
    posterior = vcuda.fit(part, knowledge=graph)
    levels = np.array([len(labels) for labels in data.categories])
    sets = [[], [], [], [1, 2], []]
    before, after = (
        sum(local_evidence(codes[:rows], levels, node, parents) for node, parents in enumerate(sets))
        for rows in (200, 201)
    )
    held_out = posterior._predict(data.select(slice(200, 206)), 10, 0)
    assert held_out.log_density[0] == pytest.approx(after - before, abs=1e-9)


def test_predictions_are_labels_and_new_tables_are_matched_by_label(posterior):
    test = simulated(500, seed=7)
    predicted = posterior.predict(test)
    assert list(predicted) == list(NAMES)
    assert predicted["cough"].cat.categories.tolist() == list(LABELS["cough"])
    numbers = posterior.held_out(test)
    assert set(numbers) == {"accuracy", "log_likelihood", "nll"}
    right = (predicted.astype(object).to_numpy() == test.to_numpy()).mean()
    assert numbers["accuracy"] == pytest.approx(right)
    assert numbers["nll"] == pytest.approx(-numbers["log_likelihood"] / 5)
    # The entropy of the network is the best that can be; a posterior of 2,000 rows comes within .05 nats of it.
    entropy = 0.0
    for state in itertools.product(*(range(len(LABELS[name])) for name in NAMES)):
        code = dict(zip(NAMES, state, strict=True))
        joint = np.prod([TABLES[name][(*(code[p] for p in PARENTS[name]), code[name])] for name in NAMES])
        entropy -= joint * np.log(joint)
    # A mean of 500 rows whose log probability has a standard deviation of about 1 is known within .05.
    assert numbers["log_likelihood"] == pytest.approx(-entropy, abs=4 * 0.05 + 0.05)
    turned = test[test["gene"] != "aa"][list(NAMES[::-1])].astype("category")
    same = posterior.held_out(test[test["gene"] != "aa"])
    assert posterior.held_out(turned) == pytest.approx(same)
    with pytest.raises(DataError, match=r"data row 3 of column 'gene' holds 'cc', which the fitted table did not"):
        posterior.held_out(test.assign(gene=["aa", "bb", *["cc"] * 498]))
    with pytest.raises(DataError, match="columns names 'gene', and there is no such column"):
        posterior.held_out(test.drop(columns="gene"))


def test_a_run_is_saved_and_read_again(posterior, tmp_path):
    posterior.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    assert again.categories == posterior.categories
    pd.testing.assert_frame_equal(again.edge_probabilities, posterior.edge_probabilities)
    test = simulated(50, seed=4)
    assert again.held_out(test) == posterior.held_out(test)
    first, second = posterior.effect("tar", "cancer", draws=20), again.effect("tar", "cancer", draws=20)
    np.testing.assert_array_equal(first.draws, second.draws)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["law"]["predictive"]["labels"][0] = ["no"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(vcuda.RunError, match="codes without a label"):
        vcuda.Posterior.load(tmp_path / "run")


# Effects ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cause", "outcome"), [("tar", "cancer"), ("smoker", "cough"), ("gene", "cancer")])
def test_effects_are_those_of_the_network(cause, outcome, posterior):
    found = posterior.effect(cause, outcome, draws=400)
    assert isinstance(found, CategoryEffect)
    assert found.probability_zero < 0.01
    np.testing.assert_allclose(found.draws.sum(axis=2), 1.0)
    # The posterior knows how far off it may be; four of its standard deviations.
    error = np.abs(found.draws.mean(axis=0) - true_effect(cause, outcome))
    assert (error < 4 * found.draws.std(axis=0)).all()
    assert (found.draws.std(axis=0) < 0.06).all()
    table = found.table
    assert list(table) == ["cause", "outcome", "probability", "low", "high"]
    assert list(zip(table.cause, table.outcome, strict=True)) == list(itertools.product(LABELS[cause], LABELS[outcome]))
    assert ((table.low < table.probability) & (table.probability < table.high)).all()


def test_the_risk_difference_and_the_sentence(posterior):
    found = posterior.effect("tar", "cancer", draws=200)
    risk = found.risk_difference
    changes = found.draws[:, 1, 1] - found.draws[:, 0, 1]
    assert risk == pytest.approx((changes.mean(), *np.quantile(changes, [0.05, 0.95])))
    assert risk.mean == pytest.approx(true_effect("tar", "cancer")[1, 1] - true_effect("tar", "cancer")[0, 1], abs=0.1)
    assert f"Setting tar to low and not to high changes the probability that cancer is yes by {risk.mean:+.3f}" in str(
        found.sentence
    )
    of_three = posterior.effect("gene", "cancer", draws=200)
    assert of_three.risk_difference is None
    # The largest change is named, as a rise.
    assert "Setting gene to bb and not to aa changes the probability that cancer is yes by +" in repr(of_three)
    assert of_three.difference("bb", "aa", "yes").mean < 0
    with pytest.raises(ConfigError, match="'gene' has no label 'cc'; it has 'aa', 'ab', 'bb'"):
        of_three.difference("cc", "aa", "yes")


def test_what_is_downstream_has_no_effect(posterior):
    found = posterior.effect("cough", "cancer", draws=50)
    assert found.probability_zero == 1.0
    assert found.risk_difference is None
    np.testing.assert_array_equal(found.draws[:, 0], found.draws[:, 2])
    assert "by +0.000 (90 % interval +0.000 to +0.000)" in found.sentence
    assert "with probability 1.00 not at all" in found.sentence


def random_model(rng: np.random.Generator, nodes: int):
    """A random DAG with random tables, as effects are computed from."""
    levels = rng.integers(2, 4, nodes)
    graph = np.triu(rng.random((nodes, nodes)) < 0.6, k=1)
    place = rng.permutation(nodes)
    sources, targets = place[np.argwhere(graph).T]
    tables = {}
    for node in range(nodes):
        parents = np.sort(sources[targets == node])
        shape = tuple(levels[[*parents, node]])
        tables[node] = rng.dirichlet(np.ones(shape[-1]), shape[:-1]).reshape(shape)
    return levels, sources, targets, tables


def test_elimination_is_the_sum_over_all_states_and_simulation_comes_near(monkeypatch):
    rng = np.random.default_rng(0)
    for _ in range(12):
        levels, sources, targets, tables = random_model(rng, 5)
        cause, outcome = rng.permutation(5)[:2].tolist()
        expected = np.zeros((levels[cause], levels[outcome]))
        for state in itertools.product(*map(range, levels)):
            share = 1.0
            for node in set(range(5)) - {cause}:
                parents = np.sort(sources[targets == node])
                share *= tables[node][(*(state[parent] for parent in parents), state[node])]
            expected[state[cause], state[outcome]] += share
        upstream = categorical_effects._Upstream.of(sources, targets, outcome, cut=cause, nodes=5)
        own = {node: tables[node] for node in upstream.parents}
        np.testing.assert_allclose(upstream.response(own, levels, rng), expected, atol=1e-12)
        with monkeypatch.context() as few:
            few.setattr(categorical_effects, "LARGEST_FACTOR", 1)
            near = upstream.response(own, levels, rng)
        # A mean of 4,096 probabilities has a standard error of at most .5 / 64.
        assert np.abs(near - expected).max() < 5 * 0.5 / 64
        if not upstream.connected:
            assert (np.abs(near - near[0]) < 1e-12).all()


def test_drawn_distributions_have_the_means_of_their_prior_even_when_it_is_tiny():
    concentration = np.array([[0.001, 0.003], [20.0, 60.0]])
    rng = np.random.default_rng(1)
    drawn = np.stack([draw_distributions(rng, concentration) for _ in range(4000)])
    np.testing.assert_allclose(drawn.sum(axis=-1), 1.0)
    # Variance p (1 - p) / (sum + 1) <= .1875 for each of 4,000 draws: five standard errors are .034.
    np.testing.assert_allclose(drawn.mean(axis=0), [[0.25, 0.75]] * 2, atol=0.034)


def test_tables_that_are_too_large_to_draw_are_refused():
    codes = np.random.default_rng(0).integers(0, 40, (200, 5)).astype(np.uint16)
    predictive = CategoricalPredictive(codes, (tuple(map(str, range(40))),) * 5, 1.0)
    with pytest.raises(ConfigError, match=r"102,400,000 combinations of labels .* join labels into fewer categories"):
        predictive.concentration(0, np.array([1, 2, 3, 4]))


def test_numbers_for_the_cause_and_all_effects_at_once_are_refused(posterior):
    with pytest.raises(ConfigError, match="covers all labels of the cause, so leave out at"):
        posterior.effect("tar", "cancer", at=[0.0, 1.0])
    with pytest.raises(ConfigError, match="probabilities of labels and no numbers; ask for single ones"):
        posterior.effects()
    with pytest.raises(ConfigError, match="draws must be a whole number at least 1"):
        posterior.effect("tar", "cancer", draws=0)


# Everything else --------------------------------------------------------------------------------------------


def test_every_question_has_an_answer(posterior, tmp_path):
    assert posterior.consensus().edges().shape[0] == 4
    assert posterior.map(draws=100).graph.sum() == 4
    best = vcuda.fit(TABLE).map(draws=300)
    assert best.rule.startswith("Highest posterior probability among")
    assert posterior.paths("smoker", "cancer", draws=100).probability > 0.9
    assert set(posterior.blanket("cancer", draws=100).members.variable[:3]) == {"gene", "tar", "cough"}
    assert len(posterior.cpdag(draws=100)) == 10
    assert posterior.ancestors(draws=100).loc["smoker", "cough"] > 0.9
    assert posterior.compare(posterior).sum_of_differences == 0
    assert set(posterior.next_experiment(draws=100).variable) == set(NAMES)
    from vcuda.outputs.exports import write_edges

    for ending in ("csv", "json", "dot"):
        write_edges(posterior, tmp_path / f"edges.{ending}")
    posterior.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "gene: aa, ab, bb" in page
    assert "probabilities of each variable" in page
    assert "P(cancer = yes)" in page
    assert "Setting tar to low and not to high changes the probability that cancer is yes" in page
    assert "model=&#x27;categorical&#x27;" in page


@pytest.mark.slow
def test_commands(run, tmp_path):
    simulated(300, seed=1).to_csv(tmp_path / "t.csv", index=False)
    simulated(200, seed=2).to_csv(tmp_path / "test.csv", index=False)
    vcuda.write_graph(tmp_path / "graph.csv", np.array([[a in PARENTS[b] for b in NAMES] for a in NAMES]), NAMES)
    checked = run("check", tmp_path / "t.csv")
    assert checked.code == 0
    assert "300 rows, 5 columns." in checked.out
    counts = simulated(300, seed=1)["gene"].value_counts()
    line = next(line for line in checked.out.splitlines() if "gene" in line)
    described = ["gene", "label", "3", "labels", "aa", f"{counts['aa'] / 300:.0%}", str(counts.min())]
    assert line.split() == described
    assert "mean" not in checked.out
    fitted = run("fit", tmp_path / "t.csv", "-o", tmp_path / "run", "--model", "categorical", "--engine", "exact")
    assert fitted.code == 0, fitted.err
    assert "model categorical, engine exact" in fitted.out
    assert (tmp_path / "run" / "report.html").exists()
    asked = ("effect", tmp_path / "run", "tar", "cancer", "--draws", "50")
    posterior = vcuda.Posterior.load(tmp_path / "run")
    expected = posterior.effect("tar", "cancer", draws=50)
    spoken = run(*asked)
    assert expected.sentence in " ".join(spoken.out.split())
    assert f"{expected.table.probability[0]:.2f}" in spoken.out
    seen = json.loads(run(*asked, "--json").out)
    assert seen["probability_zero"] == expected.probability_zero
    assert seen["risk_difference"]["mean"] == expected.risk_difference.mean
    pd.testing.assert_frame_equal(pd.DataFrame(seen["table"]), expected.table)
    truth_and_test = ("--truth", tmp_path / "graph.csv", "--test", tmp_path / "test.csv")
    numbers = run("evaluate", tmp_path / "run", *truth_and_test, "--json")
    assert json.loads(numbers.out)["accuracy"] == posterior.held_out(tmp_path / "test.csv")["accuracy"]
    refused = run("fit", tmp_path / "t.csv", "-o", tmp_path / "other", "--model", "linear")
    assert refused.code == 2
    assert "model linear is for numbers" in refused.err


PAGE = Path(__file__).parent.parent / "docs" / "categorical.md"


@pytest.mark.slow
def test_the_page_runs_as_it_stands_and_prints_what_it_shows(capsys):
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == text.count("```python")
    scope: dict = {}
    for code, shown in blocks:
        exec(compile(code, str(PAGE), "exec"), scope)
        printed = capsys.readouterr().out
        assert len(printed.splitlines()) == len(shown.splitlines())
        # Words stay what they are; numbers may differ in their last digits on other machines.
        assert re.findall(r"[a-z]{4,}", printed) == re.findall(r"[a-z]{4,}", shown)
