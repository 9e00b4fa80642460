"""Columns that are chosen, or left out, of every kind of table: the others are neither read nor checked."""

import re
import shlex
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import vcuda
from vcuda.data import checks, text_files
from vcuda.data.columns import ColumnChoice, line_of, names_in
from vcuda.data.streaming import StreamedTable, open_table
from vcuda.data.streaming.passes import gather, gather_features
from vcuda.errors import ConfigError, DataError
from vcuda.infer import checkpoint_files
from vcuda.outputs.reproduction import python_lines, shell_line

ROWS = 120
WITHOUT = ["when", "id"]
LEFT = ("a", "b", "c", "e")


def made(rows: int = ROWS) -> pd.DataFrame:
    """Four variables among an identifier, a date, and what an experiment set."""
    rng = np.random.default_rng(5)
    a = np.exp(rng.normal(size=rows))
    b = a + 0.5 * rng.normal(size=rows)
    c = b - 0.5 * rng.normal(size=rows)
    frame = pd.DataFrame({"id": [f"P{k}" for k in range(rows)], "a": a, "b": b})
    frame["when"] = pd.date_range("2024-01-01", periods=rows).strftime("%Y-%m-%d")
    return frame.assign(c=c, e=rng.normal(size=rows), target=["", "a", "id", "when;a"] * (rows // 4))


FRAME = made()
PLAIN = FRAME.drop(columns="target")


def folder_of(frame, folder):
    (folder / "parts").mkdir()
    frame.iloc[:50].to_csv(folder / "parts" / "1.csv", index=False)
    frame.iloc[50:].to_csv(folder / "parts" / "2.csv", index=False)
    return folder / "parts"


def saved(name, save):
    def saved(frame, folder):
        save(frame, folder / name)
        return folder / name

    return saved


def dask_of(frame, folder):
    dd = pytest.importorskip("dask.dataframe")
    return dd.from_pandas(frame, npartitions=3)


KINDS = {
    "csv": saved("t.csv", lambda frame, path: frame.to_csv(path, index=False)),
    "csv.gz": saved("t.csv.gz", lambda frame, path: frame.to_csv(path, index=False)),
    "tsv": saved("t.tsv", lambda frame, path: frame.to_csv(path, index=False, sep="\t")),
    "parquet": saved("t.parquet", lambda frame, path: frame.to_parquet(path, index=False)),
    "feather": saved("t.feather", lambda frame, path: frame.to_feather(path)),
    "pandas": lambda frame, folder: frame,
    "polars": lambda frame, folder: pl.DataFrame(frame.to_dict("list")),
    "arrow": lambda frame, folder: pa.Table.from_pandas(frame),
    "dask": dask_of,
}
ON_DISK = ("csv", "csv.gz", "tsv", "parquet", "feather", "dask")


@pytest.mark.parametrize("kind", KINDS)
def test_the_others_are_neither_read_nor_checked(kind, tmp_path):
    table = KINDS[kind](PLAIN, tmp_path)
    with pytest.raises(DataError, match=r"leave"):
        vcuda.as_dataset(table, strict=True)
    expected = vcuda.as_dataset(PLAIN[list(LEFT)])
    for wish in ({"exclude": WITHOUT}, {"columns": ["e", "b", "a", "c", "a"]}):
        data = vcuda.as_dataset(table, **wish)
        assert data.names == LEFT
        assert data.fingerprint == expected.fingerprint
        assert data.notes == expected.notes


@pytest.mark.parametrize("kind", [*ON_DISK, "folder"])
def test_what_is_streamed_is_what_is_chosen_in_memory(kind, tmp_path):
    table = folder_of(FRAME, tmp_path) if kind == "folder" else KINDS[kind](FRAME, tmp_path)
    found = open_table(table, interventions="target", streamed=True, choice=ColumnChoice.of(None, WITHOUT))
    assert isinstance(found, StreamedTable)
    assert found.names == LEFT
    expected = vcuda.as_dataset(FRAME, interventions="target", exclude=WITHOUT)
    np.testing.assert_array_equal(found.sample.values, expected.values)
    np.testing.assert_array_equal(found.sample.interventions, expected.interventions)
    # All of it is kept by later passes.
    logged = found.with_logarithms([True, False, False, False])
    assert logged.names == LEFT
    assert logged.choice == found.choice == ColumnChoice(exclude=("when", "id"))
    assert gather_features(table, np.square, statistics=logged.statistics).features == 4


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet", "dask"])
def test_the_posterior_is_that_of_a_table_saved_without_the_columns(kind, streamed, tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "rest").mkdir()
    options = {"model": "additive", "engine": "exact", "streamed": streamed}
    rest = vcuda.fit(KINDS[kind](PLAIN[list(LEFT)], tmp_path / "rest"), **options)
    found = vcuda.fit(KINDS[kind](PLAIN, tmp_path / "whole"), exclude=WITHOUT, **options)
    assert found.names == rest.names == LEFT
    assert found.edge_probabilities.to_numpy().tobytes() == rest.edge_probabilities.to_numpy().tobytes()
    assert found.provenance["data"]["fingerprint"] == rest.provenance["data"]["fingerprint"]
    assert found.provenance["data"]["columns"] == 4
    assert found.provenance["data"]["without"] == WITHOUT
    assert not {"chosen", "without"} & set(rest.provenance["data"])


def test_arrays_datasets_and_bundled_tables():
    values = PLAIN[list(LEFT)].to_numpy()
    assert vcuda.as_dataset(values, names=LEFT, exclude=["b"]).names == ("a", "c", "e")
    assert vcuda.as_dataset(values, columns=["X3", "X1"]).names == ("X1", "X3")
    # A column of an array of objects that is left out may hold anything.
    assert vcuda.as_dataset(PLAIN.to_numpy(), names=list(PLAIN), exclude=WITHOUT).names == LEFT
    counted = vcuda.as_dataset(PLAIN[list(LEFT)].assign(day=range(ROWS)))
    assert "'day' only counts the rows" in counted.notes[0]
    data = vcuda.as_dataset(counted, exclude=["day"])
    assert data.notes == ()
    assert data.fingerprint == vcuda.as_dataset(values, names=LEFT).fingerprint
    assert vcuda.as_dataset(data, columns=LEFT) is data
    assert data.choice == ColumnChoice(exclude=("day",))
    assert vcuda.as_dataset(data, exclude=["b"]).choice == ColumnChoice(exclude=("day", "b"))
    assert vcuda.as_dataset(data, columns=["e", "a"]).choice == ColumnChoice(columns=("a", "e"))
    whole = vcuda.as_dataset("sachs-experiments")
    some = vcuda.as_dataset("sachs-experiments", exclude=["PKC"])
    kept = [k for k, name in enumerate(whole.names) if name != "PKC"]
    np.testing.assert_array_equal(some.values, whole.values[:, kept])
    np.testing.assert_array_equal(some.interventions, whole.interventions[:, kept])


def test_labels_and_gaps_are_chosen_like_numbers():
    labels = pd.DataFrame({"x": ["u", "v"] * 10, "y": ["p", "q", "q", "p"] * 5, "z": np.linspace(0, 1, 20)})
    data = vcuda.as_dataset(labels, exclude=["z"])
    assert data.categories == (("u", "v"), ("p", "q"))
    three = vcuda.as_dataset(labels.assign(z=["r", "s", "r", "r"] * 5))
    assert vcuda.as_dataset(three, columns=["y", "z"]).categories == (("p", "q"), ("r", "s"))
    gaps = PLAIN[list(LEFT)].copy()
    gaps.loc[:2, ["a", "b"]] = np.nan
    kept = vcuda.as_dataset(gaps, missing="keep")
    assert kept.n == ROWS
    assert vcuda.as_dataset(kept, columns=["a", "b"], missing="keep").n == ROWS - 3
    assert vcuda.as_dataset(gaps, columns=["a", "b"], missing="keep").n == ROWS - 3
    assert vcuda.as_dataset(kept, exclude=["a", "b"]).missing is None


def test_what_was_set_and_left_out_marks_no_cell():
    data = vcuda.as_dataset(FRAME, interventions="target", columns=["target", *LEFT])
    assert data.names == LEFT
    assert data.interventions[:, 0].tolist() == [False, True, False, True] * (ROWS // 4)
    assert not data.interventions[:, 1:].any()
    assert vcuda.as_dataset(FRAME, interventions="target", exclude=["id", "when", "a"]).interventions is None
    # A mask is about the table as it is given.
    mask = np.zeros(PLAIN.shape, dtype=bool)
    mask[::2, 0] = mask[::3, 1] = True
    for given in (mask, pd.DataFrame(mask, columns=PLAIN.columns)):
        held = vcuda.as_dataset(PLAIN, interventions=given, exclude=WITHOUT).interventions
        np.testing.assert_array_equal(held, mask[:, [1, 2, 4, 5]])
    numbers = vcuda.as_dataset(PLAIN[list(LEFT)])
    held = vcuda.as_dataset(numbers, interventions=mask[:, 1:5], exclude=["b"]).interventions
    np.testing.assert_array_equal(held[:, 0], mask[:, 1])
    with pytest.raises(DataError, match="says that 'nobody' was set, which is no column"):
        vcuda.as_dataset(FRAME.replace({"target": {"id": "nobody"}}), interventions="target", exclude=WITHOUT)


REFUSED = {
    "both": ({"columns": ["a", "b"], "exclude": ["c"]}, ConfigError, "give one of them"),
    "a text": ({"columns": "ab"}, ConfigError, "columns must be a list of names, not the text 'ab'"),
    "a number": ({"exclude": 3}, ConfigError, "exclude must be a list of names of columns, not a int"),
    "an empty name": ({"exclude": [" "]}, ConfigError, "exclude holds an empty name"),
    "an unknown name": ({"columns": ["a", "Be", "wehn"]}, DataError, "columns names 'Be', and there is no such column"),
    "a near name": ({"exclude": ["whne"]}, DataError, "exclude names 'whne', .* (did you mean 'when'?)"),
    "one column": ({"columns": ["a"]}, DataError, "columns leaves 'a' of its 6 columns: a graph needs at least two"),
    "no column": ({"columns": []}, DataError, "columns leaves nothing of its 6 columns"),
    "nearly all": ({"exclude": ["id", "when", "a", "b", "c"]}, DataError, "exclude leaves 'e' of its 6 columns"),
}


@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("kind", ["csv", "pandas", "dask"])
def test_what_cannot_be_chosen_is_refused(kind, why, tmp_path):
    wish, error, sentence = REFUSED[why]
    pattern = re.escape(sentence).replace(r"\.\*", ".*")
    table = KINDS[kind](PLAIN, tmp_path)
    with pytest.raises(error, match=pattern):
        vcuda.as_dataset(table, **wish)
    for streamed in (None, True) if kind != "pandas" else (None,):
        with pytest.raises(error, match=pattern):
            vcuda.fit(table, streamed=streamed, **wish)


def test_the_column_of_targets_is_not_left_out(tmp_path):
    path = KINDS["csv"](FRAME, tmp_path)
    for given in (FRAME, path):
        with pytest.raises(ConfigError, match="the column that says what was set in each row"):
            vcuda.as_dataset(given, interventions="target", exclude=["target", *WITHOUT])
    with pytest.raises(ConfigError, match="the column that says what was set"):
        open_table(path, interventions="target", streamed=True, choice=ColumnChoice.of(None, ["target"]))


def test_names_of_the_others_do_not_matter(tmp_path):
    lines = ["a,twice,,b,twice,c", *(f"{k},x,y,{k * k},z,{k % 3}" for k in range(8))]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    for streamed in (False, True):
        assert open_table(path, streamed=streamed, choice=ColumnChoice.of(["c", "a"], None)).names == ("a", "c")
    with pytest.raises(DataError, match="column 3 has no name"):
        vcuda.as_dataset(path, exclude=["twice"])
    with pytest.raises(DataError, match="the name 'twice' is used by columns 2 and 5"):
        vcuda.as_dataset(path, columns=["a", "twice"])
    # Columns of text files with spaces around their names, and numbers for names among others.
    path.write_text("\n".join([" a ,1,2,t", *(f"{k},{k * k},{k % 3},x" for k in range(8))]) + "\n")
    assert vcuda.as_dataset(path, columns=["1", "2"]).names == ("1", "2")
    table = pa.Table.from_arrays([pa.array(range(8)), pa.array(["x"] * 8), pa.array(["y"] * 8)], names=["a", "t", "t"])
    table = table.append_column("a.b", pa.array(np.arange(8.0) ** 2))
    pq.write_table(table, tmp_path / "t.parquet")
    pa.feather.write_feather(table, str(tmp_path / "t.feather"))
    for name in ("t.parquet", "t.feather"):
        for streamed in (False, True):
            assert open_table(tmp_path / name, streamed=streamed, choice=ColumnChoice.of(None, ["t"])).names == (
                "a",
                "a.b",
            )


def test_files_of_a_folder_may_differ_in_what_is_left_out(tmp_path):
    folder = folder_of(PLAIN, tmp_path)
    PLAIN.iloc[50:].drop(columns="id").to_csv(folder / "2.csv", index=False)
    assert gather(folder, choice=ColumnChoice.of(None, WITHOUT)).names == LEFT
    PLAIN.iloc[50:].drop(columns="a").to_csv(folder / "2.csv", index=False)
    for wish in (ColumnChoice.of(None, WITHOUT), ColumnChoice.of(LEFT, None)):
        with pytest.raises(DataError, match=r"2\.csv: the file has no column 'a', and .*1\.csv has one"):
            gather(folder, choice=wish)


def test_only_what_is_chosen_must_fit_into_memory(tmp_path, monkeypatch):
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 400)), columns=[f"x{k}" for k in range(400)])
    paths = [KINDS[kind](wide, tmp_path) for kind in ("csv", "csv.gz", "parquet")]
    # 12 square arrays of 400 columns in single precision take 7.7 MB, those of 3 columns nothing to speak of.
    for module in (checks, text_files):
        monkeypatch.setattr(module, "memory_available", lambda: 1_000_000)
    for path in paths:
        with pytest.raises(DataError, match=r"choose at most 144 columns \(columns=, --columns\)"):
            vcuda.as_dataset(path)
        assert vcuda.as_dataset(path, columns=["x399", "x7", "x0"]).names == ("x0", "x7", "x399")


def test_few_columns_of_a_large_file_are_read_into_memory(tmp_path, monkeypatch):
    path = KINDS["parquet"](PLAIN, tmp_path)
    monkeypatch.setattr("vcuda.data.streaming.table.STREAMED_CELLS", 4 * ROWS)
    assert isinstance(open_table(path, choice=ColumnChoice.of(LEFT[:3], None)), vcuda.Dataset)
    monkeypatch.setattr("vcuda.data.streaming.table.STREAMED_CELLS", 2 * ROWS)
    assert isinstance(open_table(path, choice=ColumnChoice.of(LEFT[:3], None)), StreamedTable)


def test_a_polars_column_without_an_arrow_form_can_be_left_out():
    table = pl.DataFrame(
        {"odd": pl.Series([object()] * 8, dtype=pl.Object), "a": range(8), "b": [1, 5, 2, 7, 1, 9, 3, 0]}
    )
    with pytest.raises(DataError, match="exclude="):
        vcuda.as_dataset(table)
    assert vcuda.as_dataset(table, exclude=["odd"]).names == ("a", "b")


def test_new_rows_may_hold_what_was_left_out():
    posterior = vcuda.fit(PLAIN, exclude=WITHOUT, model="linear", engine="exact")
    assert posterior.held_out(PLAIN) == posterior.held_out(PLAIN[list(LEFT)])
    assert posterior.held_out(PLAIN[list(LEFT[::-1])]) == posterior.held_out(PLAIN[list(LEFT)])


@pytest.mark.parametrize("names", [["a"], ["a, b", 'say "x"'], ["two\nlines", "c"], ["é", "-x", "'"]])
def test_names_come_back_from_a_line(names):
    assert names_in(line_of(names)) == names


def test_a_line_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="no line of names"):
        names_in("a\rb,c")


# The command line -------------------------------------------------------------------------------------------------

COMMAND = ("--model", "linear", "--no-report", "--engine")


@pytest.fixture
def odd(tmp_path):
    """A table in which a name has a comma."""
    path = tmp_path / "odd.csv"
    PLAIN.rename(columns={"when": "when, exactly"}).to_csv(path, index=False)
    return path


def test_check_takes_columns_and_says_how_to_fit_them(run, odd, tmp_path):
    answer = run("check", odd, "--strict")
    assert answer.code == 2
    assert "(exclude=, --exclude)" in answer.err
    answer = run("check", odd, "--exclude", 'id, "when, exactly"')
    assert answer.code == 0
    assert "120 rows, 4 columns" in answer.out
    assert "--exclude 'id,\"when, exactly\"'" in answer.out
    answer = run("check", odd, "--columns", "a,b", "--columns", "e")
    assert "120 rows, 3 columns" in answer.out
    assert "--columns a,b,e" in answer.out
    answer = run("check", odd, "--columns", "a,b", "--exclude", "id")
    assert answer.code == 2
    assert "give one of them" in answer.err


def test_the_run_tells_the_choice_and_how_to_make_it_again(run, odd, tmp_path):
    wish = ("--exclude", "id", "--exclude", '"when, exactly"')
    assert run("fit", odd, "-o", tmp_path / "run", *COMMAND, "exact", *wish).code in (0, 3)
    posterior = vcuda.Posterior.load(tmp_path / "run")
    assert posterior.provenance["data"]["without"] == ["id", "when, exactly"]
    line = shell_line(posterior)
    assert line is not None
    assert run(*shlex.split(line)[1:], "-o", tmp_path / "again", "--no-report").code in (0, 3)
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("\n".join(python_lines(posterior)), names)
    for other in (vcuda.Posterior.load(tmp_path / "again"), names["posterior"]):
        assert other.edge_probabilities.equals(posterior.edge_probabilities)
        assert other.provenance["data"] == posterior.provenance["data"]
    by_name = vcuda.fit(odd, columns=["b", "a"], model="linear", engine="exact")
    assert "    columns=['b', 'a']," in python_lines(by_name)
    assert "--columns b,a" in (shell_line(by_name) or "")


@pytest.mark.slow
def test_a_fit_that_is_resumed_takes_the_same_columns(run, odd, tmp_path, monkeypatch):
    for name, value in (("PATIENCE", 0.0), ("APART", 0.0), ("WRITING", 1e9)):
        monkeypatch.setattr(checkpoint_files, name, value)
    folder, wish = tmp_path / "run", ("--columns", "a,b,c")
    assert run("fit", odd, "-o", folder, *COMMAND, "variational", *wish, "--time-limit", 1e-9).code in (0, 3)
    answer = run("fit", "--resume", folder, "--exclude", "a")
    assert answer.code == 2
    assert "leave --exclude out" in answer.err
    assert run("fit", "--resume", folder, "--time-limit", 1000).code in (0, 3)
    assert run("fit", odd, "-o", tmp_path / "alone", *COMMAND, "variational", *wish).code in (0, 3)
    assert (folder / "edges.csv").read_bytes() == (tmp_path / "alone" / "edges.csv").read_bytes()
    assert vcuda.Posterior.load(folder).provenance["data"]["chosen"] == ["a", "b", "c"]
