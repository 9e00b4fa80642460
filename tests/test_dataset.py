"""Every way into a Dataset, and every table that is refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from bad_tables import BAD_TABLES, GOOD_ROWS, TABLES_WITH_GAPS

from vcuda.data import Dataset, as_dataset, checks, text_files
from vcuda.data.findings import copies, relations
from vcuda.errors import ConfigError, DataError

FRAME = pd.DataFrame(
    {
        "length": np.random.default_rng(1).normal(170.0, 8.0, 40),
        "count": np.random.default_rng(2).integers(0, 50, 40),
        "smokes": np.random.default_rng(3).random(40) < 0.4,
    }
)
VALUES = FRAME.to_numpy(dtype=float)
NAMES = ("length", "count", "smokes")


def csv_with(separator: str, name: str):
    def write(folder: Path) -> Path:
        FRAME.to_csv(folder / name, sep=separator, index=False)
        return folder / name

    return write


def parquet(folder: Path) -> Path:
    pa.parquet.write_table(pa.Table.from_pandas(FRAME, preserve_index=False), folder / "t.parquet")
    return folder / "t.parquet"


def feather(folder: Path) -> Path:
    pa.feather.write_feather(pa.Table.from_pandas(FRAME, preserve_index=False), str(folder / "t.feather"))
    return folder / "t.feather"


def arrow_stream(folder: Path) -> Path:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    with pa.ipc.new_stream(str(folder / "t.arrow"), table.schema) as writer:
        writer.write_table(table)
    return folder / "t.arrow"


GOOD_TABLES = {
    "csv": csv_with(",", "t.csv"),
    "csv as text": lambda folder: str(csv_with(",", "t.csv")(folder)),
    "csv, upper case": csv_with(",", "T.CSV"),
    "csv.gz": csv_with(",", "t.csv.gz"),
    "semicolons": csv_with(";", "t.csv"),
    "tabs in csv": csv_with("\t", "t.csv"),
    "tsv": csv_with("\t", "t.tsv"),
    "parquet": parquet,
    "feather": feather,
    "arrow stream": arrow_stream,
    "pandas": lambda folder: FRAME,
    "pandas nullable": lambda folder: FRAME.convert_dtypes(),
    "pandas on Arrow": lambda folder: FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "pandas objects": lambda folder: FRAME.astype(object),
    "polars": lambda folder: pl.DataFrame({name: FRAME[name].to_numpy() for name in FRAME}),
    "arrow table": lambda folder: pa.Table.from_pandas(FRAME, preserve_index=False),
    "arrow batches": lambda folder: pa.Table.from_pandas(FRAME, preserve_index=False).to_reader(max_chunksize=7),
}


@pytest.mark.parametrize("name", GOOD_TABLES)
def test_every_kind_of_table_gives_the_same_dataset(name, tmp_path):
    data = as_dataset(GOOD_TABLES[name](tmp_path))
    assert data.names == NAMES
    np.testing.assert_array_equal(data.values, VALUES)
    assert data.values.dtype == np.float64
    assert data.values.flags.c_contiguous
    assert data.notes == ()
    assert data.fingerprint == as_dataset(FRAME).fingerprint


@pytest.mark.parametrize(
    ("array", "names", "expected"),
    [
        (VALUES, NAMES, NAMES),
        (VALUES, None, ("X1", "X2", "X3")),
        (VALUES.tolist(), list(NAMES), NAMES),
        (np.asfortranarray(VALUES), NAMES, NAMES),
        (VALUES.astype(object), NAMES, NAMES),
        (np.ma.masked_array(VALUES, mask=False), NAMES, NAMES),
    ],
)
def test_arrays(array, names, expected):
    data = as_dataset(array, names=names)
    assert data.names == expected
    np.testing.assert_array_equal(data.values, VALUES)
    assert type(data.values) is np.ndarray


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.float32, np.longdouble, bool])
def test_array_types(dtype):
    array = np.random.default_rng(0).integers(0, 2, (20, 3)).astype(dtype)
    np.testing.assert_array_equal(as_dataset(array).values, array.astype(float))


@pytest.mark.parametrize("name", BAD_TABLES | TABLES_WITH_GAPS)
def test_bad_tables_are_refused_in_one_sentence(name, tmp_path):
    write, fragments = (BAD_TABLES | TABLES_WITH_GAPS)[name]
    path = write(tmp_path)
    with pytest.raises(DataError) as caught:
        as_dataset(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert message.endswith(".")
    for fragment in fragments:
        assert fragment in message


def frame_with(column: object) -> pd.DataFrame:
    return pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0, 6.0], "odd": column})


BAD_OBJECTS = {
    "one dimension": (np.arange(5.0), {}, ("shape is (5,)", "two-dimensional")),
    "three dimensions": (np.zeros((5, 2, 2)), {}, ("shape is (5, 2, 2)", "two-dimensional")),
    "ragged lists": ([[1, 2], [3]], {}, ("same length", "make them equal")),
    "names too few": (VALUES, {"names": ["a", "b"]}, ("3 columns", "2 names", "one name for each")),
    "names repeated": (VALUES, {"names": ["a", "b", "b"]}, ("'b'", "columns 2 and 3")),
    "complex array": (VALUES * 1j, {"names": NAMES}, ("'length'", "complex", "two columns")),
    "date array": (VALUES.astype("datetime64[s]"), {}, ("'X1'", "dates or times")),
    "text array": (VALUES.astype(str), {}, ("data row 1", "'X1'", "text and not a number")),
    "structured array": (np.zeros(5, dtype=[("a", float), ("b", float)]), {}, ("structured", "DataFrame")),
    "masked cell": (np.ma.masked_equal(VALUES, VALUES[3, 1]), {"names": NAMES}, ("missing", "'count'")),
    "NaN in an array": (np.where(VALUES[6, 0] == VALUES, np.nan, VALUES), {}, ("'X1'", "data row 7")),
    "a dict": ({"a": [1, 2]}, {}, ("a dict is no table", "pass a path")),
    "a series": (FRAME["length"], {}, ("shape is (40,)", "two-dimensional")),
    "a Polars series": (pl.Series([1.0, 2.0]), {}, ("shape is (2,)", "two-dimensional")),
    "a lazy table": (pl.LazyFrame({"a": [1.0], "b": [2.0]}), {}, ("lazy", "collect()")),
    "pandas dates": (frame_with(pd.date_range("2024", periods=5)), {}, ("'odd'", "dates or times")),
    "pandas periods": (frame_with(pd.period_range("2024", periods=5)), {}, ("'odd'", "dates or times")),
    "pandas durations": (frame_with(pd.to_timedelta(range(5), unit="s")), {}, ("'odd'", "dates or times")),
    "pandas complex": (frame_with(np.arange(5) * 1j), {}, ("'odd'", "complex", "two columns")),
    "pandas text": (frame_with(["1", "2", "3", "4", "5"]), {}, ("data row 1", "'odd'", "'1'", "to_numeric")),
    "pandas mixed": (frame_with([1, 2, "few", 4, 5]), {}, ("data row 3", "'odd'", "'few'", "to_numeric")),
    "pandas date cell": (
        frame_with([1, 2, 3, pd.Timestamp("2024"), 5]),
        {},
        ("data row 4", "'odd'", "days since"),
    ),
    "pandas complex cell": (
        frame_with(np.array([1, 2j, 3, 4, 5], object)),
        {},
        ("data row 2", "'odd'", "complex"),
    ),
    "pandas NA": (
        frame_with(pd.array([1, None, 3, 4, None], "Int64")),
        {},
        ("2 values", "'odd'", "data row 2"),
    ),
    "pandas None": (frame_with(np.array([1, 2, 3, None, 5], object)), {}, ("'odd'", "data row 4", "fill")),
    "a huge integer": (
        frame_with(np.array([1, 2, 10**400, 4, 5], object)),
        {},
        ("data row 3", "'odd'", "finite"),
    ),
    "pandas levels": (
        pd.DataFrame(VALUES, columns=pd.MultiIndex.from_tuples([("x", "a"), ("x", "b"), ("y", "a")])),
        {},
        ("2 levels",),
    ),
    "pandas nameless": (pd.DataFrame(VALUES, columns=["a", None, "c"]), {}, ("column 2 has no name",)),
    "pandas duplicates": (pd.DataFrame(VALUES, columns=["a", "b", "a"]), {}, ("'a'", "columns 1 and 3")),
    "Polars text": (
        pl.DataFrame({"a": [1.0, 2.0] * 2 + [3.0], "odd": list("vwxyz")}),
        {},
        ("data row 1", "'odd'", "'v'"),
    ),
    "Polars objects": (
        pl.DataFrame({"a": [object()] * 5, "b": [1.0] * 5}),
        {},
        ("Polars table", "'a'", "leave the column out"),
    ),
    "Arrow duplicates": (
        pa.Table.from_arrays([pa.array(VALUES[:, 0])] * 2, names=["a", "a"]),
        {},
        ("'a'", "columns 1 and 2"),
    ),
    "no columns": (pd.DataFrame(index=range(9)), {}, ("no columns", "at least two")),
}


@pytest.mark.parametrize("name", BAD_OBJECTS)
def test_bad_tables_in_memory_are_refused_in_one_sentence(name):
    table, options, fragments = BAD_OBJECTS[name]
    with pytest.raises(DataError) as caught:
        as_dataset(table, **options)
    message = str(caught.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


def test_sparse_matrices_are_refused_with_the_remedy():
    from scipy.sparse import csr_array

    with pytest.raises(DataError, match=r"toarray\(\)"):
        as_dataset(csr_array(VALUES))


def test_names_are_only_for_arrays():
    for table in (FRAME, "sachs", as_dataset(FRAME)):
        with pytest.raises(ConfigError, match="rename its columns"):
            as_dataset(table, names=["a", "b", "c"])
    with pytest.raises(ConfigError, match="list of names"):
        as_dataset(VALUES, names="abc")


def test_a_dataset_comes_back_as_it_is():
    data = as_dataset(FRAME)
    assert as_dataset(data) is data


def test_the_nearest_bundled_name_is_suggested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="did you mean 'sachs'"):
        as_dataset("Sacks")


def test_a_file_without_extension_does_not_hide_the_bundled_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sachs").write_text("a,b\n1,2\n")
    assert as_dataset("sachs").n == 853


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")  # as open does; chmod does not bind the superuser

    path = csv_with(",", "t.csv")(tmp_path)
    monkeypatch.setattr(text_files, "unpacked", refuse)
    with pytest.raises(DataError, match=r"\(Permission denied\).* you may open it"):
        as_dataset(path)


def test_width_is_refused_by_the_memory_that_is_free_before_a_cell_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "memory_available", lambda: 16_000_000_000)
    # 12 arrays x 50,000² x 4 bytes = 120 GB; sqrt(16 GB / 48 bytes) = 18,257 columns.
    expected = r"50,000 columns would need about 120\.0 GB .* 16\.0 GB are free: choose at most 18,257 columns"
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"g{k}" for k in range(50_000)) + "\nbroken\n")
    with pytest.raises(DataError, match=expected):
        as_dataset(path)
    with pytest.raises(DataError, match=expected):
        as_dataset(np.zeros((5, 50_000), dtype=np.int8))
    wide = pa.table({f"g{k}": pa.array([], pa.float32()) for k in range(50_000)})
    with pytest.raises(DataError, match=expected):
        as_dataset(wide)


def test_available_memory_is_a_plausible_number():
    assert 1e7 < checks.memory_available() < 1e14


@pytest.mark.slow
def test_a_wide_text_table_is_read(tmp_path):
    # A line of 3,000 cells of 24 characters is longer than most blocks of a reader are meant for.
    values = np.random.default_rng(0).standard_normal((6, 3000))
    names = [f"gene{k}" for k in range(3000)]
    lines = [",".join(names), *(",".join(f"{cell:.17e}" for cell in row) for row in values)]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    data = as_dataset(tmp_path / "wide.csv")
    assert data.names == tuple(names)
    np.testing.assert_array_equal(data.values, values)


def test_spelling_of_numbers_and_truth_values(tmp_path):
    path = tmp_path / "t.csv"
    rows = ["+1.5,true,1", " 2 ,False,0", ".5,TRUE,1", "1e3,false,0", "-4.25E-2,True,1"]
    path.write_text("\ufeff a ,b,c\n\n" + "\n".join(rows) + "\n", encoding="utf-8")
    data = as_dataset(path)
    assert data.names == ("a", "b", "c")
    assert data.values[:, 0].tolist() == [1.5, 2.0, 0.5, 1000.0, -0.0425]
    assert data.values[:, 1].tolist() == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert any("name 'a'" in note for note in data.notes)


def test_quoted_names_keep_separators_and_line_breaks(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('"dose, mg";"two\nlines";plain\n' + "\n".join(GOOD_ROWS).replace(",", ";").replace("2.0", "x"))
    with pytest.raises(DataError, match=r"data row 3 \(line 5 of the file\) of column 'two\\nlines' holds 'x'"):
        as_dataset(path)


def test_the_pandas_index_in_a_parquet_file_is_no_column(tmp_path):
    FRAME[FRAME["count"] > 10].to_parquet(tmp_path / "t.parquet")
    data = as_dataset(tmp_path / "t.parquet")
    assert data.names == NAMES
    assert any("index" in note for note in data.notes)
    np.testing.assert_array_equal(data.values, VALUES[VALUES[:, 1] > 10])


def test_integer_labels_of_pandas_become_names():
    assert as_dataset(pd.DataFrame(VALUES)).names == ("0", "1", "2")


@pytest.mark.parametrize("make", [lambda v: v, pd.DataFrame, lambda v: pa.table({f"c{k}": v[:, k] for k in range(3)})])
def test_the_callers_table_is_neither_changed_nor_watched(make):
    mine = VALUES.copy()
    data = as_dataset(make(mine))
    np.testing.assert_array_equal(mine, VALUES)
    mine[:] = -1.0
    np.testing.assert_array_equal(data.values, VALUES)
    with pytest.raises(ValueError, match="read-only"):
        data.values[0, 0] = 1.0


def test_the_constructor_copies_what_could_change():
    mine = VALUES.copy()
    data = Dataset(NAMES, mine)
    mine[:] = 0.0
    np.testing.assert_array_equal(data.values, VALUES)
    with pytest.raises(DataError, match="do not fit"):
        Dataset(("a",), VALUES)


def test_moments_in_the_users_units():
    data = as_dataset(FRAME)
    np.testing.assert_allclose(data.mean, VALUES.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(data.scale, VALUES.std(axis=0), rtol=1e-13)
    standardised = data.standardised()
    np.testing.assert_allclose(standardised * data.scale + data.mean, VALUES, rtol=1e-13)
    np.testing.assert_allclose(standardised.std(axis=0), 1.0, rtol=1e-12)
    for array in (data.mean, data.scale):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_extreme_units_do_not_overflow_or_vanish():
    tiny = as_dataset(VALUES * [1e-140, 1e140, 1.0])
    np.testing.assert_allclose(tiny.standardised(), as_dataset(VALUES).standardised(), rtol=1e-9, atol=1e-12)


def test_select_and_to_frame():
    data = as_dataset(FRAME)
    for rows in (np.array([3, 1, 30]), np.arange(40) % 3 == 0, slice(5, 20), [0, 2]):
        part = data.select(rows)
        assert part.names == NAMES
        np.testing.assert_array_equal(part.values, VALUES[rows])
        assert part.values.flags.owndata
    constant = data.select([0, 0])
    np.testing.assert_array_equal(constant.standardised(), np.zeros((2, 3)))
    frame = data.to_frame()
    frame.iloc[0, 0] = -1.0
    assert list(frame) == list(NAMES)
    np.testing.assert_array_equal(data.values, VALUES)


def test_the_fingerprint_tells_tables_apart():
    changed = VALUES.copy()
    changed[0, 0] = np.nextafter(changed[0, 0], np.inf)
    prints = {
        as_dataset(VALUES).fingerprint,
        as_dataset(changed).fingerprint,
        as_dataset(VALUES, names=NAMES).fingerprint,
        as_dataset(VALUES[:, ::-1]).fingerprint,
        as_dataset(VALUES[:20]).fingerprint,
    }
    assert len(prints) == 5
    assert "40 rows x 3 columns" in repr(as_dataset(VALUES))


# Notes ------------------------------------------------------------------------------------------------------


def normal(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((rows, columns))


def notes_of(values: np.ndarray) -> str:
    return " ".join(as_dataset(values).notes)


def test_sound_tables_have_no_notes():
    assert notes_of(normal(200, 20)) == ""


def test_copies_are_named():
    values = normal(100, 8)
    values[:, 5] = values[:, 2]
    assert "'X3' and 'X6' hold the same values" in notes_of(values)
    values[:, 5] = 32 - 1.8 * values[:, 2]
    values[:, 0] = 10 * values[:, 2]
    assert "'X1', 'X3' and 'X6' are the same up to unit and sign" in notes_of(values)


def test_copies_are_found_among_many_columns_and_few_rows():
    values = normal(12, 3000)
    values[:, 2900] = -2 * values[:, 17]
    assert copies((values - values.mean(axis=0)) / values.std(axis=0)) == [(17, 2900)]


def test_a_total_is_named_with_its_parts():
    values = normal(100, 10) + 5
    values[:, 3] = values[:, 1] + values[:, 6] + values[:, 8]
    note = notes_of(values)
    assert "exact linear function" in note
    assert all(f"'X{k}'" in note for k in (2, 4, 7, 9))
    assert not any(f"'X{k}'" in note for k in (1, 3, 5, 6, 8, 10))


def test_two_relations_are_two_notes():
    values = normal(300, 12)
    values[:, 0] = values[:, 1] - values[:, 2]
    values[:, 9] = 2 * values[:, 10] + 3 * values[:, 11]
    named = [set(relation) for relation in relations(values - values.mean(axis=0))]
    assert sorted(map(sorted, named)) == [[0, 1, 2], [9, 10, 11]]


def test_a_relation_rounded_to_six_digits_counts_and_a_noisy_one_does_not():
    values = normal(100, 5)
    values[:, 4] = np.float32(values[:, 0] + values[:, 1])
    assert "exact linear function" in notes_of(values)
    values[:, 4] += 1e-3 * normal(100, 6)[:, 5]
    assert notes_of(values) == ""


def test_a_relation_in_some_rows_only_is_none():
    # 2 * 6 + 100 of the 5,000 rows, evenly spaced, are looked at first; only there X6 is a sum.
    values = normal(5000, 6)
    looked_at = np.unique(np.linspace(0, 4999, 112).astype(int))
    values[looked_at, 5] = values[looked_at, 0] + values[looked_at, 1]
    assert notes_of(values) == ""


def test_more_columns_than_rows_are_few_rows_and_not_collinear():
    note = notes_of(normal(10, 30))
    assert "10 rows are few for 30 columns" in note
    assert "linear function" not in note


def test_row_numbers_and_lost_digits_are_noted():
    values = normal(100, 3)
    values[:, 0] = np.arange(100) + 7
    assert "'X1' only counts the rows" in notes_of(values)
    values = normal(100, 3)
    values[:, 2] = 1e12 + np.round(values[:, 2])
    assert "'X3' varies by" in notes_of(values)


def test_importing_the_data_package_is_light():
    heavy = "{'jax', 'pandas', 'pyarrow', 'polars', 'scipy', 'matplotlib', 'networkx'}"
    program = f"import sys, vcuda.data; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
