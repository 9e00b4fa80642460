"""Kinds of columns: how they are found, asked for and refused, what is left out of a table, and what is missing."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import vcuda
from vcuda.data.categorical import codes_by_label
from vcuda.data.examination import TableError
from vcuda.data.kinds import KINDS, grid_step
from vcuda.data.streaming import StreamedTable, open_table
from vcuda.errors import ConfigError, DataError, KnowledgeError
from vcuda.infer import checkpoint_files
from vcuda.outputs.reproduction import python_lines, shell_line

PAGE = Path(__file__).parent.parent / "docs" / "kinds.md"
ROWS = 200
RNG = np.random.default_rng(7)
WEIGHT, HEIGHT = RNG.normal(80, 5, ROWS), RNG.normal(170, 9, ROWS)


def beside_numbers(column, name: str = "odd") -> pd.DataFrame:
    """A column beside two that hold numbers with decimals."""
    return pd.DataFrame({"weight": WEIGHT, "height": HEIGHT, name: column})


def kind_of(column) -> str:
    data = vcuda.as_dataset(beside_numbers(column), missing="keep")
    assert data.kinds[:2] == ("number", "number")
    return data.kinds[2]


# The rules ---------------------------------------------------------------------------------------------------

LIKERT = RNG.integers(1, 6, ROWS)
FOUND = {
    "decimals": (RNG.normal(size=ROWS), "number"),
    "0 and 1": (RNG.integers(0, 2, ROWS), "yes/no"),
    "1 and 2": (RNG.integers(1, 3, ROWS), "yes/no"),
    "two decimals": (np.where(WEIGHT > 80, 0.5, 1.5), "yes/no"),
    "0 and 1 with missing cells": (np.where(WEIGHT > 85, np.nan, WEIGHT > 80), "yes/no"),
    "truth values": (WEIGHT > 80, "yes/no"),
    "two labels": (np.where(WEIGHT > 80, "heavy", "light"), "yes/no"),
    "labels": (RNG.choice(["red", "green", "blue"], ROWS), "label"),
    "categories": (pd.Categorical(RNG.choice(["red", "green", "blue"], ROWS)), "label"),
    "ordered categories": (pd.Categorical(RNG.choice(["lo", "mid", "hi"], ROWS), ["lo", "mid", "hi"], True), "ordered"),
    "a scale": (LIKERT, "ordered"),
    "a scale in a column of decimals": (LIKERT.astype(float), "ordered"),
    "a scale with missing cells": (np.where(WEIGHT > 85, np.nan, LIKERT), "ordered"),
    "years": (RNG.integers(2020, 2024, ROWS), "ordered"),
    "five far numbers": (RNG.choice([1, 10, 100, 1000, 10000], ROWS), "number"),
    "counts": (RNG.poisson(3, ROWS), "count"),
    "counts from one": (1 + RNG.negative_binomial(1, 0.2, ROWS), "count"),
    "mostly zeros": (RNG.negative_binomial(0.2, 0.05, ROWS), "count"),
    "large counts": (RNG.poisson(50, ROWS), "number"),
    "months": (RNG.integers(1, 13, ROWS), "number"),
    "grades of 20": (np.clip(RNG.normal(11, 3, ROWS).round(), 0, 20), "number"),
    "ages": (RNG.integers(20, 70, ROWS), "number"),
    "differences": (RNG.integers(-9, 10, ROWS), "number"),
}


@pytest.mark.parametrize("name", FOUND)
def test_kinds_are_found_from_the_cells(name, tmp_path):
    column, kind = FOUND[name]
    assert kind_of(column) == kind
    beside_numbers(column).to_csv(tmp_path / "t.csv", index=False)
    if name != "ordered categories":  # a text file has no types
        assert vcuda.as_dataset(tmp_path / "t.csv", missing="keep").kinds[2] == kind


def test_types_of_other_libraries_say_kinds():
    sizes = RNG.choice(["lo", "mid", "hi"], ROWS).tolist()
    truth, whole = (WEIGHT > 80).tolist(), pd.array(RNG.poisson(3, ROWS), "Int64")
    whole[4] = pd.NA
    enum = pl.DataFrame({"w": WEIGHT, "size": pl.Series(sizes, dtype=pl.Enum(["lo", "mid", "hi"])), "t": truth})
    assert vcuda.as_dataset(enum).kinds == ("number", "ordered", "yes/no")
    assert vcuda.as_dataset(pl.DataFrame({"w": WEIGHT, "size": sizes, "t": truth})).kinds[1] == "label"
    arrow = pa.table({"w": WEIGHT, "size": pa.array(sizes).dictionary_encode(), "t": truth})
    assert vcuda.as_dataset(arrow).kinds == ("number", "label", "yes/no")
    frame = pd.DataFrame({"w": WEIGHT, "visits": whole, "t": pd.array(truth, "boolean")})
    assert vcuda.as_dataset(frame, missing="keep").kinds == ("number", "count", "yes/no")


def test_few_rows_show_no_scale_and_no_count():
    data = vcuda.as_dataset([[1, 2.5], [2, 0.5], [3, 2.0], [4, 1.0], [6, 1.5]])
    assert data.kinds == ("number", "number")


def test_a_choice_that_may_be_wrong_is_noted():
    data = vcuda.as_dataset(beside_numbers(LIKERT).assign(visits=RNG.poisson(3, ROWS), more=LIKERT[::-1]))
    assert data.notes == (
        "Columns 'odd' and 'more' hold few different whole numbers, taken as ordered: if their order means nothing, or "
        "they count something, say their kind (kinds=, --kind).",
        "Column 'visits' holds small whole numbers from 0 or 1 on, taken as count: if they count nothing, say their "
        "kind (kinds=, --kind).",
    )
    kinds = {"odd": "label", "more": "ordered", "visits": "count"}
    asked = vcuda.as_dataset(beside_numbers(LIKERT).assign(visits=RNG.poisson(3, ROWS), more=LIKERT[::-1]), kinds=kinds)
    assert asked.kinds[2:] == ("label", "count", "ordered")
    assert asked.notes == ()


def test_a_table_made_by_hand_has_usual_kinds():
    assert vcuda.Dataset(("a", "b"), np.eye(5)[:, :2]).kinds == ("number", "number")
    labels = (("x", "y"), None, ("p", "q", "r"))
    assert vcuda.Dataset(tuple("abc"), np.zeros((5, 3)), categories=labels).kinds == ("yes/no", "number", "label")
    assert vcuda.Dataset(tuple("ab"), np.zeros((5, 2)), categories=(None, None)).categories is None
    with pytest.raises(DataError, match="kinds of 1 columns do not fit 2 names"):
        vcuda.Dataset(("a", "b"), np.zeros((5, 2)), kinds=("number",))


def test_columns_rows_and_logarithms_keep_kinds():
    data = vcuda.as_dataset(beside_numbers(LIKERT).assign(colour=RNG.choice(["red", "green", "blue"], ROWS)))
    assert data.select(slice(20)).kinds == data.kinds == ("number", "number", "ordered", "label")
    assert vcuda.as_dataset(data, exclude=["height"]).kinds == ("number", "ordered", "label")
    taken = data.take([3, 0])
    assert (taken.names, taken.kinds, taken.categories[1]) == (("colour", "weight"), ("label", "number"), None)
    assert data.with_logarithms([False, False, True, False]).kinds == ("number", "number", "number", "label")
    again = vcuda.as_dataset(data.to_frame())
    assert (again.kinds, again.categories) == (data.kinds, data.categories)


def test_fingerprints_know_kinds():
    numbers = np.random.default_rng(0).normal(size=(30, 3))
    assert vcuda.as_dataset(numbers).fingerprint == vcuda.Dataset(("X1", "X2", "X3"), numbers).fingerprint
    # As versions that knew no kinds computed them: their checkpoints can be resumed.
    rounded = np.round(np.random.default_rng(0).normal(size=(30, 3)), 6)
    labels = pd.DataFrame({"a": ["x", "y", "z"] * 4, "b": ["p", "q"] * 6})
    assert vcuda.as_dataset(rounded).fingerprint.startswith("5d64d1e216a53935")
    assert vcuda.as_dataset(labels).fingerprint.startswith("5f6bf60ec8de5f63")
    prints = {
        vcuda.as_dataset(beside_numbers(LIKERT), kinds=kinds).fingerprint
        for kinds in ({}, {"odd": "label"}, {"odd": "number"}, {"odd": "ordered"})
    }
    assert len(prints) == 3


STEPS = {
    "cents": (np.round(RNG.normal(5, 1, 500), 2), 0.01),
    "halves": (np.round(2 * RNG.normal(60, 4, 500)) / 2, 0.5),
    "whole": (RNG.integers(20, 70, 500).astype(float), 1.0),
    "tens": (10.0 * RNG.integers(20, 70, 500), 10.0),
    "inches in cm": (2.54 * RNG.integers(60, 75, 500), 2.54),
    "thirds": (RNG.integers(0, 30, 500) / 3, 1 / 3),
    "missing cells": (np.where(np.arange(500) % 7, RNG.integers(20, 70, 500), np.nan), 1.0),
    "far from zero": (1e6 + np.round(RNG.normal(5, 1, 500), 1), 0.1),
    "no grid": (RNG.normal(size=500), None),
    "ties without a grid": (RNG.choice(RNG.normal(size=40), 500), None),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_grid_of_rounded_numbers_is_found(name):
    column, step = STEPS[name]
    assert grid_step(column) == (step if step is None else pytest.approx(step, rel=1e-6))


def test_steps_are_those_of_numbers_and_counts():
    data = vcuda.as_dataset(beside_numbers(LIKERT).assign(visits=RNG.poisson(3, ROWS), rounded=WEIGHT.round(1)))
    assert data.steps == (None, None, None, 1.0, 0.1)


# Kinds that are asked for ------------------------------------------------------------------------------------

LEVELS = [f"word {k}" for k in RNG.permutation(10_000)]
IMPOSSIBLE = {
    "number of text": ("number", RNG.choice(["red", "green"], ROWS), "cannot be a number, since it holds text"),
    "count of text": ("count", RNG.choice(["red", "green"], ROWS), "cannot be a count, since it holds text"),
    "count below zero": (
        "count",
        np.r_[1, 2, -4, RNG.poisson(3, ROWS - 3)],
        "column 'odd' cannot be a count, since it holds a negative number ('-4' in data row 3): take it as a number "
        "(kinds=, --kind), or correct the cell.",
    ),
    "count with decimals": ("count", WEIGHT, "cannot be a count, since it holds no whole number"),
    "yes/no of three": (
        "yes/no",
        RNG.choice(["red", "green", "blue"], ROWS),
        "cannot be yes/no, since it has 3 different values ('red' in data row",
    ),
    "label of numbers": ("label", WEIGHT, "cannot be a label, since it has 200 different values"),
    "ordered numbers": ("ordered", WEIGHT, "cannot be ordered, since it has 200 different values"),
    "a constant": ("number", np.ones(ROWS), "column 'odd' does not vary (1 in every row)"),
    "dates": ("number", pd.date_range("2024", periods=ROWS), "column 'odd' holds dates or times"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_kind_that_cannot_be_is_refused(name):
    kind, column, message = IMPOSSIBLE[name]
    with pytest.raises(DataError) as caught:
        vcuda.as_dataset(beside_numbers(column), kinds={"odd": kind})
    assert message in str(caught.value)
    assert str(caught.value).startswith("pandas table: column 'odd' ")


def test_labels_with_ten_thousand_levels(tmp_path, run):
    words = pd.DataFrame({"w": RNG.normal(size=10_000), "v": RNG.normal(size=10_000), "word": LEVELS})
    data = vcuda.as_dataset(pd.concat([words, words]))
    assert data.names == ("w", "v")
    assert "Column 'word' has 10,000 different labels, more than 50" in data.notes[0]
    path = tmp_path / "t.csv"
    words.to_csv(path, index=False)
    answer = run("fit", path, "--kind", "word=label")
    assert answer.code == 2
    assert "'word' cannot be a label, since it has 10,000 different values ('word " in answer.err
    assert "join its labels into fewer, or leave the column out (exclude=, --exclude)" in answer.err


def test_numbers_that_another_library_calls_categories_can_be_numbers():
    column = pd.Categorical(RNG.integers(1, 13, ROWS).astype(str))
    data = vcuda.as_dataset(beside_numbers(column), kinds={"odd": "number"})
    assert data.categories is None
    np.testing.assert_array_equal(data.values[:, 2], column.astype(int))
    assert vcuda.as_dataset(beside_numbers(column)).kinds[2] == "label"


def test_wrong_words_are_refused(run, tmp_path):
    beside_numbers(LIKERT).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ConfigError, match=r"kind of column 'odd' must be one of number, count, yes/no, .*, not 'rank'"):
        vcuda.as_dataset(beside_numbers(LIKERT), kinds={"odd": "rank"})
    with pytest.raises(ConfigError, match="kinds must say the kind of columns by name"):
        vcuda.fit(beside_numbers(LIKERT), kinds=["ordered"])
    with pytest.raises(DataError, match=r"kinds names 'old', and no such column is taken \(did you mean 'odd'\?\)"):
        vcuda.as_dataset(beside_numbers(LIKERT), kinds={"old": "label"})
    with pytest.raises(DataError, match="kinds names 'odd', and no such column is taken"):
        vcuda.as_dataset(beside_numbers(LIKERT), kinds={"odd": "label"}, exclude=["odd"])
    with pytest.raises(ConfigError, match="missing_values must be a list of cells"):
        vcuda.as_dataset(beside_numbers(LIKERT), missing_values=[None])
    answer = run("check", tmp_path / "t.csv", "--kind", "odd")
    assert answer.code == 2
    assert "--kind takes COLUMN=KIND, not 'odd'" in answer.err


def test_kinds_of_a_dataset_can_be_changed():
    data = vcuda.as_dataset(beside_numbers(LIKERT))
    assert vcuda.as_dataset(data, kinds={"odd": "count"}).kinds == ("number", "number", "count")
    with pytest.raises(DataError, match="'weight' cannot be a count"):
        vcuda.as_dataset(data, kinds={"weight": "count"})


def test_notes_on_kinds_follow_the_columns_and_kinds_of_a_dataset():
    data = vcuda.as_dataset(beside_numbers(LIKERT).assign(more=LIKERT[::-1]))
    assert "Columns 'odd' and 'more' hold" in data.notes[0]
    assert "Column 'odd' holds few" in vcuda.as_dataset(data, exclude=["more"]).notes[0]
    assert "Column 'more' holds few" in vcuda.as_dataset(data, kinds={"odd": "count"}).notes[0]
    assert vcuda.as_dataset(data, kinds={"odd": "count", "more": "ordered"}).notes == ()
    asked = vcuda.as_dataset(beside_numbers(LIKERT), kinds={"odd": "ordered"})
    assert vcuda.as_dataset(asked, exclude=["height"]).notes == ()


def test_kinds_are_stored_and_repeated(run, tmp_path):
    path = tmp_path / "t.csv"
    beside_numbers(LIKERT, "how = good").to_csv(path, index=False)
    flags = ("--kind", "how = good=number", "--missing", "-999", "--model", "linear", "--engine", "exact")
    assert run("fit", path, "-o", tmp_path / "run", *flags, "--no-report").code == 0
    posterior = vcuda.Posterior.load(tmp_path / "run")
    assert posterior.provenance["data"]["kinds"] == {"how = good": "number"}
    assert posterior.provenance.options["missing_values"] == ["-999"]
    line = shell_line(posterior)
    assert "--kind 'how = good=number' --missing -999" in line
    assert run(*shlex.split(line)[1:], "-o", tmp_path / "again", "--no-report").code == 0
    assert vcuda.Posterior.load(tmp_path / "again").provenance["data"] == posterior.provenance["data"]
    assert "    kinds={'how = good': 'number'}," in python_lines(posterior)
    estimator = vcuda.CausalPosterior(kinds={"odd": "number"}, model="linear", engine="exact")
    assert estimator.fit(beside_numbers(LIKERT)).posterior_.provenance["data"]["kinds"] == {"odd": "number"}


@pytest.mark.slow
def test_a_fit_that_is_resumed_keeps_the_kinds(run, tmp_path, monkeypatch):
    for name, value in (("PATIENCE", 0.0), ("APART", 0.0), ("WRITING", 1e9)):
        monkeypatch.setattr(checkpoint_files, name, value)
    path, folder = tmp_path / "t.csv", tmp_path / "run"
    beside_numbers(LIKERT).to_csv(path, index=False)
    flags = ("--model", "linear", "--no-report", "--engine", "variational", "--kind", "odd=count", "--missing", "-999")
    assert run("fit", path, "-o", folder, *flags, "--time-limit", 1e-9).code == 0
    answer = run("fit", "--resume", folder, "--kind", "odd=number")
    assert answer.code == 2
    assert "leave --kind out" in answer.err
    assert run("fit", "--resume", folder, "--time-limit", 1000).code == 0
    assert vcuda.Posterior.load(folder).provenance["data"]["kinds"] == {"odd": "count"}
    assert vcuda.Posterior.load(folder).provenance["missing_values"] == ["-999"]


def test_labels_that_are_numbers_need_a_model_for_labels():
    assert vcuda.fit(beside_numbers(LIKERT), kinds={"odd": "label"}).provenance.model_name == "mixed"
    scales = pd.DataFrame({"a": LIKERT, "b": LIKERT[::-1]})
    assert vcuda.fit(scales, kinds={"a": "label"}, subsamples=2).provenance.model_name == "mixed"
    assert vcuda.fit(scales, kinds={"a": "label", "b": "label"}).provenance.model_name == "categorical"


# What is left out --------------------------------------------------------------------------------------------

DAYS = pd.date_range("2024-01-01", periods=ROWS)
VISITS = RNG.poisson(3, ROWS)
LEFT_OUT = {
    "words that identify": (
        [f"P{k:03}" for k in range(ROWS)],
        "Column 'odd' holds another label in every row, as an identifier or free text does, and was left out: to use "
        "it, join its labels into few categories.",
        "or join its labels into few categories",
    ),
    "many words": (
        [f"P{k % 60}" for k in range(ROWS)],
        "Column 'odd' has 60 different labels, more than 50, as an identifier or free text does, and was left out: to "
        "use it, join its labels into fewer categories.",
        "or join its labels into fewer categories",
    ),
    "codes with letters": (
        [f"{k % 90}{'A' if k == 5 else ''}" for k in range(ROWS)],
        "Column 'odd' has 91 different labels",
        "or join its labels into fewer categories",
    ),
    "row numbers": (
        range(1, ROWS + 1),
        "Column 'odd' holds another whole number in every row, as an identifier does, and was left out: to use it, say "
        "that it is a variable by its kind (kinds=, --kind).",
        "or say that it is a variable by its kind (kinds=, --kind)",
    ),
    "dates": (
        DAYS.strftime("%Y-%m-%d"),
        "Column 'odd' holds dates or times and was left out: to use it, turn it into a number, such as days since the "
        "start, or into labels, such as the weekday.",
        "or turn it into a number, such as days since the start",
    ),
    "dates of another land": (DAYS.strftime("%d.%m.%Y"), "Column 'odd' holds dates or times and was left out", "days"),
    "times": (DAYS.strftime("%Y-%m-%d %H:%M:%S"), "Column 'odd' holds dates or times and was left out", "days since"),
    "a constant": (
        7,
        "Column 'odd' does not vary (7 in every row) and was left out; it has neither causes nor effects.",
        "it has neither causes nor effects",
    ),
    "counts with zeros only": (0, "Column 'odd' does not vary (0 in every row) and was left out", "neither causes"),
    "one label": ("same", "Column 'odd' does not vary ('same' in every row) and was left out", "neither causes"),
    "nothing": ("", "Column 'odd' has no value and was left out.", "leave the column out (exclude=, --exclude)."),
    "four values": (
        [1.5, 2.5, 3.5, 4.5, *[""] * (ROWS - 4)],
        "Column 'odd' has fewer than 5 values, too few to impute the others, and was left out.",
        "too few to impute the others",
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_no_variable_is_left_out_or_refused(name, run, tmp_path):
    column, note, remedy = LEFT_OUT[name]
    path = tmp_path / "t.csv"
    beside_numbers(column).to_csv(path, index=False)
    answer = run("check", path)
    assert answer.code == 0
    assert f"Note: {note}" in answer.out.replace("\n", " ")
    data = vcuda.as_dataset(path, missing="keep")
    assert data.names == ("weight", "height")
    assert note in data.notes[0]
    assert [left for left, _ in data.left_out] == ["odd"]
    for flags in (("--strict",), ("--columns", "weight,height,odd")):
        answer = run("check", path, *flags)
        assert answer.code == 2
        said = " ".join(answer.err.split())
        assert "column 'odd' " in said
        assert "leave the column out (exclude=, --exclude)" in said
        assert remedy in said
        assert run("fit", path, "-o", tmp_path / "run", *flags).code == 2
    answer = run("check", path, "--exclude", "odd")
    assert answer.code == 0
    assert "nothing odd was found" in answer.out
    two = beside_numbers(column).drop(columns="height")
    with pytest.raises(TableError, match="A graph needs at least two columns, and only 'weight' would be left"):
        vcuda.as_dataset(two.replace("", np.nan), missing="keep")


def test_several_columns_share_a_sentence():
    table = beside_numbers(1).assign(b=2, day=DAYS, other=DAYS, x=[f"x{k}" for k in range(ROWS)])
    assert vcuda.as_dataset(table.assign(y=table["x"])).notes == (
        "Columns 'odd' and 'b' do not vary and were left out; they have neither causes nor effects.",
        "Columns 'day' and 'other' hold dates or times and were left out: to use them, turn them into a number, such "
        "as days since the start, or into labels, such as the weekday.",
        "Columns 'x' and 'y' hold another label in every row, as identifiers or free text do, and were left out: to "
        "use them, join their labels into few categories.",
    )


def test_knowledge_of_a_column_that_is_left_out_is_refused_with_the_reason():
    known = vcuda.Knowledge(tiers=[["day"], ["weight", "height"]])
    with pytest.raises(KnowledgeError, match="'day', which was left out of the table, since it holds dates"):
        vcuda.fit(beside_numbers(DAYS, "day"), knowledge=known)


IDENTIFIERS = RNG.choice(10**6, ROWS, replace=False)


@pytest.mark.parametrize("name", ["id", "ID", "customer_id", "patientId", "user id", "order_no", "key", "index", "id2"])
def test_whole_numbers_named_like_identifiers_are_left_out(name):
    assert vcuda.as_dataset(beside_numbers(IDENTIFIERS, name)).names == ("weight", "height")
    assert vcuda.as_dataset(beside_numbers(IDENTIFIERS, name), kinds={name: "number"}).names[2] == name
    # Cells that repeat identify nothing.
    assert vcuda.as_dataset(beside_numbers(IDENTIFIERS % 90 + 20, name)).names[2] == name


@pytest.mark.parametrize("name", ["income", "video", "paid", "price_index", "grid"])
def test_other_whole_numbers_are_variables(name):
    assert vcuda.as_dataset(beside_numbers(IDENTIFIERS, name)).names[2] == name


@pytest.mark.parametrize("name", ["month", "time", "day", "year_of_study", "age", "t"])
def test_time_may_count_the_rows(name):
    data = vcuda.as_dataset(beside_numbers(range(1, ROWS + 1), name))
    assert data.names[2] == name
    assert "only counts the rows" in data.notes[0]


def test_new_rows_are_read_as_the_fitted_ones():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"odd": rng.integers(1, 90, 100), "weight": rng.normal(size=100)})
    posterior = vcuda.fit(table, model="linear", engine="exact")
    new = pd.DataFrame({"weight": rng.normal(size=30), "odd": range(1, 31)})
    assert list(posterior.predict(new, graphs=2).columns) == ["odd", "weight"]
    estimator = vcuda.CausalPosterior(model="linear", engine="exact")
    wide = np.column_stack([np.arange(1, 101), table.to_numpy()])
    assert estimator.fit(wide).posterior_.names == ("X2", "X3")
    assert estimator.n_features_in_ == 3
    assert np.isfinite(estimator.score(wide))


def test_new_rows_of_all_kinds_are_coded_by_the_fitted_labels():
    table = beside_numbers(np.resize(["red", "green", "blue"], ROWS), "colour").assign(sex=np.resize(["f", "m"], ROWS))
    known = vcuda.as_dataset(table).categories
    assert known == (None, None, ("blue", "green", "red"), ("f", "m"))
    some = vcuda.as_dataset(table[table["colour"] != "blue"])
    np.testing.assert_array_equal(np.unique(codes_by_label(some, known)[:, 2]), [1, 2])
    np.testing.assert_array_equal(codes_by_label(some, known)[:, :2], some.values[:, :2])
    strange = vcuda.as_dataset(table.replace("green", "teal"))
    with pytest.raises(DataError, match=r"data row 2 of column 'colour' holds 'teal', which the fitted table did not"):
        codes_by_label(strange, known)
    with pytest.raises(DataError, match=r"column 'sex' holds labels \('f' and 'm'\), and that of the fitted"):
        codes_by_label(some, (*known[:3], None))


# What is missing ---------------------------------------------------------------------------------------------


def with_cells(column, cell, rows=(3, 50, 99)) -> list:
    return [cell if row in rows else own for row, own in enumerate(column)]


MARKS = ("?", "*", "-", "--", ".", "n/a", "N/A", "n.a.", "NA", "#N/A", "null")


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("column", [WEIGHT, RNG.choice(["red", "green", "blue"], ROWS)], ids=["numbers", "labels"])
def test_marks_of_missing_values_are_missing(column, mark, tmp_path, run):
    path = tmp_path / "t.csv"
    beside_numbers(with_cells(column, mark)).to_csv(path, index=False)
    data = vcuda.as_dataset(path, missing="keep")
    np.testing.assert_array_equal(np.flatnonzero(data.missing[:, 2]), [3, 50, 99])
    in_memory = vcuda.as_dataset(beside_numbers(with_cells(column, mark)), missing="keep")
    assert in_memory.fingerprint == data.fingerprint
    assert in_memory.notes[0] == f"Cells {mark!r} of column 'odd' were taken as missing values."
    if mark == "?":
        answer = run("check", path)
        assert answer.code == 0
        assert "Note: Cells '?' of column 'odd' were taken as missing values." in answer.out


FORMS = {
    "${:,.2f}": "the sign $ was left out; marks between thousands were left out",
    "{:.1f}%": "per cent signs were left out, so that 1 % is 1",
    "{:.0f} €": "the sign € was left out",
    "{:,.2f}": "marks between thousands were left out",
}


@pytest.mark.parametrize("form", FORMS)
def test_numbers_as_spreadsheets_show_them_are_numbers(form, tmp_path):
    path, cells = tmp_path / "t.csv", 1000 * np.abs(np.asarray(WEIGHT)) + 1000
    beside_numbers([form.format(cell) for cell in cells]).to_csv(path, index=False)
    data = vcuda.as_dataset(path)
    np.testing.assert_allclose(data.values[:, 2], cells, atol=0.6)
    assert data.notes[0].startswith("Column 'odd' has numbers such as ")
    assert data.notes[0].endswith(f": {FORMS[form]}.")


def test_plus_and_minus_are_labels():
    data = vcuda.as_dataset(beside_numbers(RNG.choice(["+", "-"], ROWS)))
    assert data.categories[2] == ("+", "-")


CODES = {
    "-999": (with_cells(WEIGHT, -999.0), "-999"),
    "-99 among positive ones": (with_cells(RNG.integers(0, 500, ROWS), -99), "-99"),
    "9999": (with_cells(RNG.integers(1, 90, ROWS), 9999), "9999"),
}


@pytest.mark.parametrize("name", CODES)
def test_codes_of_missing_values_are_named_and_can_be_missing(name, run, tmp_path):
    column, code = CODES[name]
    path = tmp_path / "t.csv"
    beside_numbers(column).to_csv(path, index=False)
    answer = run("check", path)
    assert answer.code == 0
    note = (
        f"{code} in column 'odd' lies far from all other cells, as a code for missing values does: if it is one, say "
        f"so (missing_values=, --missing {code})."
    )
    assert note in " ".join(answer.out.split())
    answer = run("check", path, "--missing", code)
    assert answer.code == 0
    assert f"3 cells that hold '{code}' were taken as missing values." in answer.out
    assert "3 of 600 cells are missing" in answer.out
    data = vcuda.as_dataset(beside_numbers(column), missing_values=[float(code)], missing="keep")
    np.testing.assert_array_equal(np.flatnonzero(data.missing[:, 2]), [3, 50, 99])
    assert vcuda.as_dataset(data, missing_values=[-7], missing="keep").notes[-1].startswith("No cell holds '-7'")


def test_what_is_no_code_is_not_named():
    table = pd.DataFrame(
        {"w": RNG.integers(0, 1000, ROWS), "v": 99 * RNG.integers(0, 2, ROWS), "z": with_cells(WEIGHT, 0)}
    )
    assert not [note for note in vcuda.as_dataset(table).notes if "far from all" in note]


def test_labels_can_be_missing_values():
    table = beside_numbers(with_cells(RNG.choice(["red", "green", "blue"], ROWS), "unknown"))
    data = vcuda.as_dataset(table, missing_values=["unknown"], missing="keep")
    assert data.categories[2] == ("blue", "green", "red")
    assert data.missing[:, 2].sum() == 3


# Check -------------------------------------------------------------------------------------------------------


def test_check_lists_all_findings_at_once(run, tmp_path):
    path = tmp_path / "t.csv"
    table = beside_numbers(with_cells(WEIGHT, "oops", rows=(4,)), "typo")
    table = table.assign(id=range(ROWS), when=DAYS, large=np.where(np.arange(ROWS) == 9, np.inf, WEIGHT))
    table.assign(colour=RNG.choice(["red", "green", "blue"], ROWS), fixed=3).to_csv(path, index=False)
    answer = run("check", path)
    assert answer.code == 2
    faults = [line for line in answer.err.splitlines() if line.startswith("vcuda: ")]
    assert len(faults) == 2
    assert "data row 5 (line 6 of the file) of column 'typo' holds 'oops', which is not a number" in answer.err
    assert "data row 10 (line 11 of the file) of column 'large' holds inf, which is not finite" in answer.err
    lines = {line.split()[0]: line.split()[1] for line in answer.out.splitlines() if len(line.split()) > 1}
    assert {name: lines[name] for name in table.columns} == {
        "weight": "number",
        "height": "number",
        "typo": "-",
        "id": "-",
        "when": "-",
        "large": "-",
    }
    assert lines["colour"] == "label"
    found = json.loads(run("check", path, "--json").out)
    assert found["usable"] is False
    assert len(found["faults"]) == 2
    kinds = {column["name"]: column["kind"] for column in found["columns"]}
    assert kinds == dict.fromkeys(kinds) | {"weight": "number", "height": "number", "colour": "label"}
    with pytest.raises(TableError, match="There are faults in one more column: vcuda check lists all of them"):
        vcuda.as_dataset(path)


def test_check_says_the_kind_of_every_column_and_why(run, tmp_path):
    path = tmp_path / "t.csv"
    beside_numbers(LIKERT).assign(id=range(ROWS), colour=RNG.choice(["a", "b", "c"], ROWS)).to_csv(path, index=False)
    found = json.loads(run("check", path, "--kind", "weight=number", "--json").out)
    assert (found["usable"], found["rows"], found["missing"], found["faults"]) == (True, ROWS, 0, [])
    assert found["columns"] == [
        {"name": "weight", "kind": "number", "why": "numbers with decimals"},
        {"name": "height", "kind": "number", "why": "numbers with decimals"},
        {"name": "odd", "kind": "ordered", "why": "5 different whole numbers, close together"},
        {"name": "colour", "kind": "label", "why": "3 labels"},
        {"name": "id", "kind": None, "why": "holds another whole number in every row, as an identifier does"},
    ]
    answer = run("check", path, "--kind", "odd=label")
    assert "as asked for, or by the type of the column" in answer.out
    assert "vcuda fit" in answer.out
    assert "--kind odd=label" in answer.out


# Tables that are not in memory -------------------------------------------------------------------------------


def test_streamed_tables_have_kinds(tmp_path):
    table = beside_numbers(LIKERT).assign(sex=WEIGHT > 80, visits=RNG.poisson(3, ROWS))
    table.astype(float).to_csv(tmp_path / "t.csv", index=False)
    found = open_table(tmp_path / "t.csv", streamed=True)
    assert isinstance(found, StreamedTable)
    assert found.kinds == ("number", "number", "ordered", "yes/no", "count")
    assert found.kinds == found.sample.kinds == vcuda.as_dataset(tmp_path / "t.csv").kinds
    from vcuda.data.examination import ReadOptions

    asked = open_table(tmp_path / "t.csv", streamed=True, how=ReadOptions.of({"odd": "label"}))
    assert asked.kinds[2] == "label"
    assert asked.fingerprint != found.fingerprint
    with pytest.raises(ConfigError, match=r"'odd' has kind label .*, and labels need a table in memory"):
        vcuda.fit(tmp_path / "t.csv", streamed=True, kinds={"odd": "label"})
    with pytest.raises(DataError, match="kinds names 'old'"):
        open_table(tmp_path / "t.csv", streamed=True, how=ReadOptions.of({"old": "label"}))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_no_variable_is_left_out_of_streamed_tables(ending, tmp_path, run):
    table = beside_numbers(7).assign(id=IDENTIFIERS, day=DAYS, name=[f"P{k}" for k in range(ROWS)], visits=VISITS)
    path = tmp_path / f"t.{ending}"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    found = open_table(path, streamed=True)
    assert isinstance(found, StreamedTable)
    assert found.names == ("weight", "height", "visits")
    assert [name for name, _ in found.sample.left_out] == ["id", "day", "name", "odd"]
    assert found.notes == (
        "Column 'id' holds another whole number in every row, as an identifier does, and was left out: to use it, say "
        "that it is a variable by its kind (kinds=, --kind).",
        "Column 'day' holds dates or times and was left out: to use it, turn it into a number, such as days since the "
        "start, or into labels, such as the weekday.",
        "Column 'name' has more than 50 different labels, as an identifier or free text does, and was left out: to use "
        "it, join its labels into fewer categories.",
        "Column 'odd' does not vary (7 in every row) and was left out; it has neither causes nor effects.",
        "Column 'visits' holds small whole numbers from 0 or 1 on, taken as count: if they count nothing, say their "
        "kind (kinds=, --kind).",
    )
    in_memory = vcuda.as_dataset(path)
    assert (in_memory.names, in_memory.kinds) == (found.names, found.kinds)
    assert vcuda.fit(path, streamed=True, model="linear", engine="exact").names == found.names
    for wish in ({"strict": True}, {"columns": ["weight", "height", "name"]}, {"columns": ["weight", "height", "odd"]}):
        with pytest.raises(DataError, match=r"leave the column out \(exclude=, --exclude\)"):
            vcuda.fit(path, streamed=True, **wish)
    with pytest.raises(TableError, match="'odd' does not vary"):
        vcuda.fit(path, streamed=True, exclude=["height", "visits"])


# Tables that people have -------------------------------------------------------------------------------------


def shaped(rows: int = 300) -> dict[str, tuple[pd.DataFrame, dict[str, str]]]:
    """Columns like those of public tables, and their kinds; those without one are left out."""
    rng = np.random.default_rng(1)
    lengths = rng.normal(0.5, 0.1, rows).round(3)

    def choose(*labels):
        return rng.choice(labels, rows)

    return {
        "shells": (
            pd.DataFrame({"Sex": choose("F", "I", "M"), "Length": lengths, "Rings": 2 + rng.poisson(8, rows)}),
            {"Sex": "label", "Length": "number", "Rings": "number"},
        ),
        "cars": (
            pd.DataFrame(
                {
                    "mpg": rng.normal(23, 7, rows).round(1),
                    "cylinders": rng.choice([3, 4, 5, 6, 8], rows),
                    "horsepower": rng.integers(46, 230, rows),
                    "modelyear": rng.integers(70, 83, rows),
                    "origin": rng.integers(1, 4, rows),
                    "name": [f"car {k % 250}" for k in range(rows)],
                }
            ),
            {
                "mpg": "number",
                "cylinders": "ordered",
                "horsepower": "number",
                "modelyear": "number",
                "origin": "ordered",
            },
        ),
        "plans": (
            pd.DataFrame(
                {"sex": rng.integers(1, 3, rows), "iq": rng.integers(1, 5, rows), "ses": rng.integers(1, 5, rows)}
            ),
            {"sex": "yes/no", "iq": "ordered", "ses": "ordered"},
        ),
        "children": (
            pd.DataFrame(
                {
                    "age": rng.integers(16, 50, rows),
                    "children": rng.poisson(3.2, rows),
                    "work": rng.integers(0, 2, rows),
                }
            ),
            {"age": "number", "children": "count", "work": "yes/no"},
        ),
        "families": (
            pd.DataFrame(
                {
                    "family": [f"{k % 190}{'A' if k == 130 else ''}" for k in range(rows)],
                    "father": (rng.normal(69, 2.5, rows) * 2).round() / 2,
                    "Gender": rng.integers(0, 2, rows),
                }
            ),
            {"father": "number", "Gender": "yes/no"},
        ),
        "clinic": (
            pd.DataFrame(
                {
                    "Pregnancies": rng.negative_binomial(2, 0.35, rows),
                    "Insulin": np.where(rng.random(rows) < 0.4, 0, rng.integers(15, 800, rows)),
                    "BMI": rng.normal(32, 6, rows).round(1),
                    "Outcome": rng.integers(0, 2, rows),
                }
            ),
            {"Pregnancies": "count", "Insulin": "number", "BMI": "number", "Outcome": "yes/no"},
        ),
        "school": (
            pd.DataFrame(
                {
                    "school": choose("GP", "MS"),
                    "age": rng.integers(15, 23, rows).astype(float),
                    "Mjob": choose("at_home", "health", "other", "services", "teacher"),
                    "failures": rng.choice([0, 1, 2, 3], rows, p=[0.7, 0.15, 0.1, 0.05]),
                    "absences": rng.negative_binomial(0.6, 0.1, rows).astype(float),
                    "G3": rng.binomial(20, 0.55, rows).astype(float),
                }
            ),
            {"school": "yes/no", "age": "number", "Mjob": "label", "failures": "ordered", "absences": "count"}
            | {"G3": "number"},
        ),
        "beans": (
            pd.DataFrame(
                {"Area": rng.integers(20_000, 220_000, rows), "Extent": rng.random(rows), "Class": choose(*"ABCDEFG")}
            ),
            {"Area": "number", "Extent": "number", "Class": "label"},
        ),
        "yachts": (
            pd.DataFrame(
                {"boy": rng.choice([-5, -4.4, -2.4, -2.3, 0], rows), "resist": rng.lognormal(1, 2, rows).round(2)}
            ),
            {"boy": "number", "resist": "number"},
        ),
    }


@pytest.mark.parametrize("name", shaped())
def test_tables_that_people_have_are_read_as_they_are(name, tmp_path):
    table, kinds = shaped()[name]
    table.to_csv(tmp_path / "t.csv", index=False)
    for data in (vcuda.as_dataset(table), vcuda.as_dataset(tmp_path / "t.csv")):
        assert dict(zip(data.names, data.kinds, strict=True)) == kinds
        assert set(data.kinds) <= set(KINDS)
        for k, own in enumerate(data.categories or (None,) * data.d):
            assert (own is not None) == (not pd.api.types.is_numeric_dtype(table[data.names[k]]))


def test_every_block_of_the_page_prints_what_it_shows(capsys):
    scope: dict = {}
    blocks = re.findall(
        r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert len(blocks) == 3
    for code, shown in blocks:
        exec(compile(code, str(PAGE), "exec"), scope)
        assert capsys.readouterr().out == shown


def test_answers_of_numbers_and_words_are_labels(run, tmp_path):
    grades = RNG.choice(["9", "10", "11", "12"], ROWS).astype(object)
    grades[:6] = "other"
    as_objects = [cell if cell == "other" else int(cell) for cell in grades]
    for cells in (grades, as_objects):
        data = vcuda.as_dataset(beside_numbers(cells))
        assert data.kinds[2] == "label"
        assert set(data.categories[2]) == {"9", "10", "11", "12", "other"}
    path = tmp_path / "t.csv"
    beside_numbers(grades, "grade").to_csv(path, index=False)
    answer = run("check", path)
    assert answer.code == 0
    assert "'grade' holds numbers and words, taken as label: correct the words if they are slips" in answer.out
    # A word that stands once is a slip, and so is one among many different numbers.
    rare, among_many = np.where(grades == "other", "9", grades), WEIGHT.round(1).astype(str).astype(object)
    rare[0] = "other"
    among_many[:6] = "other"
    for cells in (rare, among_many):
        beside_numbers(cells, "grade").to_csv(path, index=False)
        assert run("check", path).code == 2
