"""Tables read block by block: the same numbers, names and refusals as tables in memory, and sums that merge."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import vcuda
from benchmarks import rows
from vcuda.data.moments import Moments, merge, merged
from vcuda.data.streaming import file_readers, streams
from vcuda.data.streaming.blocks import Reading
from vcuda.data.streaming.passes import gather, gather_features
from vcuda.data.streaming.streams import open_stream
from vcuda.errors import ConfigError, DataError
from vcuda.models.additive import AdditiveBasis, ColumnBasis

WORDS = ["a", " b", "c"]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    """Blocks of 7 rows, and pieces of text of few lines, so that small tables are cut as large ones are."""
    monkeypatch.setattr(streams, "MOST_BLOCK_ROWS", 7)
    monkeypatch.setattr(streams, "FEWEST_BLOCK_ROWS", 7)
    monkeypatch.setattr(file_readers, "TEXT_PIECE", 500)


def frame_of(rng: np.random.Generator, rows: int = 60) -> pd.DataFrame:
    return pd.DataFrame(rng.normal(size=(rows, 3)).round(6), columns=["a", "b", "c"])


def write_as(frame: pd.DataFrame, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if ".csv" in path.name or ".tsv" in path.name:
        text = frame.to_csv(index=False, sep="\t" if ".tsv" in path.name else ",").encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=25)
    elif path.suffix == ".feather":
        pa.feather.write_feather(table, path, chunksize=25)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=25)
    return path


FORMATS = ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "t.feather", "t.arrow"]


# Reading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_blocks_are_the_table(name, tmp_path, rng, small_blocks):
    frame = frame_of(rng)
    blocks = list(open_stream(write_as(frame, tmp_path / name)).blocks())
    assert len(blocks) > 5
    assert all(len(block.values) <= 7 and block.values.flags.f_contiguous for block in blocks)
    assert [block.start for block in blocks] == np.cumsum([0, *(len(block.values) for block in blocks[:-1])]).tolist()
    np.testing.assert_array_equal(np.concatenate([block.values for block in blocks]), frame.to_numpy())
    for block in blocks:
        np.testing.assert_array_equal(block.least, block.values.min(axis=0))
        np.testing.assert_array_equal(block.largest, block.values.max(axis=0))


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_is_its_files_one_after_the_other(name, tmp_path, rng, small_blocks):
    parts = [frame_of(rng, rows) for rows in (20, 1, 30)]
    for number, part in zip((2, 0, 1), parts, strict=True):
        # Another order of columns, and whole numbers in one file, are the same table still.
        own = part[["c", "a", "b"]] if number == 2 else part.round().astype(int) if number == 0 else part
        write_as(own, tmp_path / "parts" / f"{number}_{name}")
    (tmp_path / "parts" / "_SUCCESS").touch()
    stream = open_stream(tmp_path / "parts")
    found = np.concatenate([block.values for block in stream.blocks()])
    whole = np.concatenate([parts[1].round(), parts[2], parts[0]])
    np.testing.assert_array_equal(found, whole)
    assert stream.names == ("a", "b", "c")


def test_telling_where_it_is(tmp_path, rng, small_blocks):
    for number in range(3):
        write_as(frame_of(rng), tmp_path / "parts" / f"{number}.parquet")
    seen: list[Reading] = []
    gather(tmp_path / "parts", on_progress=seen.append)
    assert [reading.rows for reading in seen] == sorted(reading.rows for reading in seen)
    shares = [reading.share for reading in seen]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.1
    assert seen[-1] == Reading(180, 1.0)


def test_text_that_arrow_does_not_take_for_numbers_is_read_all_the_same(tmp_path, small_blocks):
    lines = [f"{k},+{k % 7}.5,{'true' if k % 2 else 'false'}" for k in range(200)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b,c", *[line.replace("+", "") for line in lines[:150]], *lines[150:]]))
    found = np.concatenate([block.values for block in open_stream(path).blocks()])
    np.testing.assert_array_equal(found[:, 0], np.arange(200))
    np.testing.assert_array_equal(found[:, 1], np.arange(200) % 7 + 0.5)
    np.testing.assert_array_equal(found[:, 2], np.arange(200) % 2)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.feather"])
@pytest.mark.parametrize(
    ("cell", "fragments"),
    [
        (np.nan, ("a value is missing in column 'b', in data row 52",)),
        (-np.inf, ("data row 52", "column 'b' holds -inf, which is not finite")),
        (1e200, ("data row 52", "column 'b' holds 1e+200, too large to be squared")),
    ],
)
def test_a_bad_cell_is_refused_with_file_column_and_row(name, cell, fragments, tmp_path, rng, small_blocks):
    write_as(frame_of(rng), tmp_path / "parts" / f"0_{name}")
    frame = frame_of(rng)
    frame.loc[51, "b"] = cell
    path = write_as(frame, tmp_path / "parts" / f"1_{name}")
    with pytest.raises(DataError) as refused:
        gather(tmp_path / "parts")
    assert all(fragment in str(refused.value) for fragment in (str(path), *fragments))
    assert ("line 53 of the file" in str(refused.value)) == ("csv" in name)


@pytest.mark.parametrize(
    ("line", "fragments"),
    [
        ("1,high,2", ("data row 52 (line 53 of the file) of column 'b' holds 'high', which is not a number",)),
        ('1,"0,5",2', ("data row 52", "'0,5'", "same decimal mark")),
        ("1,2", ("line 53 has 2 cells where the header has 3 names",)),
        ("1,,2", ("a value is missing in column 'b', in data row 52",)),
        ("1,\xff,2", ("line 53 of the file", "holds 'ÿ', which is not a number")),
    ],
)
def test_a_bad_line_of_text_is_refused(line, fragments, tmp_path, rng, small_blocks):
    lines = frame_of(rng, 300).to_csv(index=False).splitlines()
    lines[52] = line
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(DataError) as refused:
        gather(tmp_path / "t.csv")
    assert all(fragment in str(refused.value) for fragment in fragments), str(refused.value)


def test_a_column_of_few_numbers_among_words_is_refused_at_a_word(tmp_path, rng):
    frame = frame_of(rng, 6).assign(d=["1", "2", "low", "high", "low", "mid"])
    with pytest.raises(DataError, match=r"data row 3 \(line 4 of the file\) of column 'd' holds 'low', which is not a"):
        gather(write_as(frame, tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("column", "fragment"),
    [
        (pa.array(["x", "y"] * 30), "data row 1 of column 'd' holds 'x', which is not a number"),
        (pa.array([None, "y"] * 30), "data row 2 of column 'd' holds 'y', which is not a number"),
        (
            pa.array(["x", "y"] * 30).dictionary_encode(),
            "column 'd' holds labels: leave the column out",
        ),
        (pa.array([pd.Timestamp(2020, 1, 1)] * 60), "column 'd' holds dates or times"),
        (pa.array([[1.0]] * 60), "column 'd' holds values of type list"),
        (pa.nulls(60), "a value is missing in column 'd', in data row 1,"),
    ],
)
def test_a_column_that_holds_no_numbers_is_refused(column, fragment, tmp_path, rng):
    table = pa.Table.from_pandas(frame_of(rng), preserve_index=False).append_column("d", column)
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError) as refused:
        gather(tmp_path / "t.parquet")
    assert fragment in str(refused.value)


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float32(), pa.float16(), pa.bool_(), pa.decimal128(22, 3)], ids=str
)
def test_numbers_of_every_kind_are_taken(kind, tmp_path, rng):
    whole = np.arange(60) % 2
    column = pa.array(whole.astype(np.float16) if kind == pa.float16() else whole).cast(kind)
    table = pa.Table.from_pandas(frame_of(rng), preserve_index=False).append_column("d", column)
    pa.feather.write_feather(table, tmp_path / "t.feather")
    (block,) = open_stream(tmp_path / "t.feather").blocks()
    np.testing.assert_array_equal(block.values[:, 3], whole)


@pytest.mark.parametrize(
    ("header", "fragment"),
    [
        ("a,a,c", "the name 'a' is used by columns 1 and 2"),
        ("1,2,3", "the first line holds only numbers"),
    ],
)
def test_names_are_refused_as_those_of_small_tables(header, fragment, tmp_path):
    (tmp_path / "t.csv").write_text("\n".join([header, *["1,2,3", "4,5,7"] * 5]))
    with pytest.raises(DataError) as refused:
        open_stream(tmp_path / "t.csv")
    with pytest.raises(DataError) as small:
        vcuda.as_dataset(tmp_path / "t.csv")
    assert fragment in str(refused.value)
    assert str(refused.value) == str(small.value)


def test_spaces_around_names_are_taken_away_with_a_note(tmp_path):
    (tmp_path / "t.csv").write_text("\n".join([",".join(WORDS), *["1,2,3", "4,5,7"] * 5]))
    found = gather(tmp_path / "t.csv")
    assert found.names == ("a", "b", "c")
    assert "Spaces around the name 'b'" in found.notes[0]


@pytest.mark.parametrize(
    ("others", "fragment"),
    [
        ({"b.csv": "a,x\n1,2\n"}, "b.csv: the file has no column 'b'"),
        ({"b.csv": "a,b,x\n1,2,3\n"}, "b.csv: the file has a column 'x'"),
        ({"b.doc": "a,b\n1,2\n"}, "'b.doc' in it is no table"),
        ({"b.xlsx": "a,b\n1,2\n"}, "'b.xlsx' in it is a file of another kind (workbook)"),
        ({"b.parquet": ""}, "'a.csv' and 'b.parquet' are of different kinds"),
        ({"b.csv": ""}, "b.csv: the file is empty"),
    ],
)
def test_a_folder_that_is_not_one_table_is_refused(others, fragment, tmp_path):
    for name, text in {"a.csv": "a,b\n1,2\n", **others}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as refused:
        open_stream(tmp_path)
    assert fragment in str(refused.value)


def test_folders_in_folders_empty_folders_and_missing_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="holds no files"):
        open_stream(tmp_path)
    (tmp_path / "year=2020").mkdir()
    with pytest.raises(DataError, match="'year=2020' in it is a folder"):
        open_stream(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        open_stream(tmp_path / "t.csv")


@pytest.mark.parametrize("name", ["t.parquet", "t.csv.gz"])
def test_a_broken_file_is_refused(name, tmp_path, rng):
    path = write_as(frame_of(rng, 3000), tmp_path / name)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(DataError, match="cannot be read"):
        gather(path)


# Moments ----------------------------------------------------------------------------------------------------


def exact(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and centred Gram matrix in extended precision."""
    long = values.astype(np.longdouble)
    mean = long.mean(axis=0)
    return mean.astype(float), ((long - mean).T @ (long - mean)).astype(float)


def badly_scaled(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Means of 1e8 with standard deviation 1, and tiny and huge units; columns are correlated."""
    mixed = rng.normal(size=(rows, 4)) @ rng.normal(size=(4, 4))
    return mixed * [1, 1, 1e-9, 1e9] + [1e8, -1e8, 1e-3, 0]


def assert_same(found: Moments, values: np.ndarray) -> None:
    mean, gram = exact(values)
    scale = np.sqrt(np.diag(gram))
    assert found.rows == len(values)
    # Doubles near 1e8 are 1.5e-8 apart: a mean is rounded by half of that, and so is each factor of a product of
    # deviations, which are of size one or more here. Products that were not centred would have no digit left.
    np.testing.assert_allclose((found.mean - mean) / (scale / np.sqrt(len(values))), 0, atol=1e-7)
    np.testing.assert_allclose((found.gram - gram) / np.outer(scale, scale), 0, atol=1.5e-8)
    np.testing.assert_array_equal(found.least, values.min(axis=0))
    np.testing.assert_array_equal(found.largest, values.max(axis=0))
    np.testing.assert_array_equal(found.gram, found.gram.T)


def test_random_partitions_merge_to_the_whole_in_any_order(rng):
    values = badly_scaled(rng, 5000)
    for _ in range(20):
        cuts = np.sort(rng.integers(0, len(values) + 1, size=rng.integers(0, 40)))
        parts = [Moments.of(part) for part in np.split(values, cuts)]
        assert_same(merged(parts, 4), values)
        while len(parts) > 1:
            at = int(rng.integers(len(parts) - 1))
            parts[at : at + 2] = [merge(parts[at], parts[at + 1])]
        assert_same(parts[0], values)


def test_one_row_at_a_time(rng):
    values = badly_scaled(rng, 300)
    assert_same(merged((Moments.of(row[None]) for row in values), 4), values)


def test_no_rows_change_nothing(rng):
    values, nothing = Moments.of(badly_scaled(rng, 50)), Moments.of(np.empty((0, 4)))
    assert merge(values, nothing) is values
    assert merge(nothing, values) is values
    assert merge(nothing, nothing).rows == 0
    one = Moments.of(np.ones((1, 4)))
    assert (one.gram == 0).all()
    assert (one.scale == 0).all()
    assert (nothing.scale == 0).all()


def test_a_drift_of_many_standard_deviations_is_no_harm(rng):
    values = rng.normal(size=(4000, 3)) + np.linspace(-1e8, 1e8, 4000)[:, None] * [1, 0, 0] + [0, 1e8, 0]
    assert_same(merged((Moments.of(part) for part in np.array_split(values, 50)), 3), values)


# Statistics -------------------------------------------------------------------------------------------------


def test_gathered_moments_are_those_of_the_table_in_memory(tmp_path, rng, small_blocks):
    frame = frame_of(rng, 500) * [1, 1e-4, 1e5] + [1e6, 0, 3]
    found = gather(write_as(frame, tmp_path / "t.parquet"))
    data = vcuda.as_dataset(tmp_path / "t.parquet")
    assert_same(found.moments, data.values)
    # Means are at most 1e6 standard deviations: 1e-16 of the mean is 1e-10 of them.
    np.testing.assert_allclose(found.mean, data.mean, rtol=1e-12)
    np.testing.assert_allclose(found.scale, data.scale, rtol=1e-10)
    assert found.regimes.keys() == {()}
    assert found.rows == 500
    assert "500 rows x 3 columns" in repr(found)


def test_the_fingerprint_is_that_of_the_cells_and_not_of_the_files(tmp_path, rng, monkeypatch):
    frame = frame_of(rng)
    whole = gather(write_as(frame, tmp_path / "t.parquet"))
    prints = {whole.fingerprint, gather(write_as(frame, tmp_path / "t.csv.gz")).fingerprint}
    write_as(frame[:13], tmp_path / "parts" / "0.feather")
    write_as(frame[13:], tmp_path / "parts" / "1.feather")
    monkeypatch.setattr(streams, "MOST_BLOCK_ROWS", 4)
    parts = gather(tmp_path / "parts")
    assert prints == {parts.fingerprint}
    np.testing.assert_array_equal(parts.sample.values, whole.sample.values)
    changed = [frame.copy() for _ in range(3)]
    changed[0].iloc[3, 1] += 1e-9
    changed[1].iloc[[5, 6]] = frame.iloc[[6, 5]]
    changed[2].columns = ["a", "b", "d"]
    others = [gather(write_as(other, tmp_path / "u.parquet")).fingerprint for other in changed]
    others.append(gather(write_as(frame[:-1], tmp_path / "u.parquet")).fingerprint)
    assert len({whole.fingerprint, *others}) == 5


def test_rows_of_whole_numbers_that_change_places_change_the_fingerprint(tmp_path):
    frame = pd.DataFrame({"a": np.arange(300.0) % 2, "b": np.arange(300.0) % 3})
    prints = {gather(write_as(frame, tmp_path / "t.parquet")).fingerprint}
    for other in (1, 3, 129, 257):
        swapped = frame.copy()
        swapped.iloc[[0, other], 0] = [1.0, 0.0]
        prints.add(gather(write_as(swapped, tmp_path / "t.parquet")).fingerprint)
    assert len(prints) == 5


def test_the_sample_is_of_rows_of_the_table_and_uniform(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(streams, "MOST_BLOCK_ROWS", 70)
    frame = frame_of(rng, 200)
    path = write_as(frame, tmp_path / "t.feather")
    counts = np.zeros(200)
    for seed in range(60):
        sample = gather(path, sample_rows=20, seed=seed).sample
        assert (np.diff(sample.rows) > 0).all()
        assert sample.rows.size == 20
        np.testing.assert_array_equal(sample.values, frame.to_numpy()[sample.rows])
        counts[sample.rows] += 1
    # The count of a row is binomial, 60 draws of probability 0.1; 20 of 200 without replacement leave 199 degrees of
    # freedom. Chi² over these has a standard deviation of sqrt(2 / 199) = 0.1, and five of them are allowed; the first
    # half has 10 rows of a sample, with a standard deviation of sqrt(20 / 4 * 180 / 199) = 2.13.
    assert abs(((counts - 6) ** 2).sum() / 5.4 * (199 / 200) / 199 - 1) < 0.5
    assert abs(counts[:100].sum() - 600) < 5 * 2.13 * np.sqrt(60)
    everything = gather(path, seed=3)
    np.testing.assert_array_equal(everything.sample.values, frame.to_numpy())
    np.testing.assert_array_equal(everything.sampled().values, frame.to_numpy())


def test_the_sample_of_a_wide_table_is_smaller(tmp_path, rng, monkeypatch):
    monkeypatch.setattr("vcuda.data.streaming.passes.SAMPLE_CELLS", 33)
    assert gather(write_as(frame_of(rng), tmp_path / "t.parquet")).sample.values.shape == (11, 3)


def test_logarithms_are_taken_on_the_way(tmp_path, rng, small_blocks):
    frame = np.exp(frame_of(rng))
    path = write_as(frame, tmp_path / "t.parquet")
    plain, found = gather(path), gather(path, logarithm=[True, False, True])
    logged = frame.assign(a=np.log(frame.a), c=np.log(frame.c)).to_numpy()
    assert_same(found.moments, logged)
    np.testing.assert_array_equal(found.sample.values, logged)
    assert found.fingerprint == plain.fingerprint
    frame.loc[30, "c"] = 0
    with pytest.raises(DataError, match=r"column 'c' reaches down to 0"):
        gather(write_as(frame, path), logarithm=[True, False, True])
    with pytest.raises(ConfigError, match="3 columns"):
        gather(path, logarithm=[True])
    with pytest.raises(ConfigError, match="sample_rows"):
        gather(path, sample_rows=0)


@pytest.mark.parametrize(
    ("column", "fragment"),
    [([2.0] * 60, "column 'c' does not vary (2 in every row)"), ([0, 1e-170] * 30, "column 'c' varies by only")],
)
def test_a_column_that_does_not_vary_is_refused(column, fragment, tmp_path, rng, small_blocks):
    with pytest.raises(DataError) as refused:
        gather(write_as(frame_of(rng).assign(c=column), tmp_path / "t.parquet"))
    assert fragment in str(refused.value)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_too_few_rows_are_refused(rows, tmp_path, rng):
    for name in ("t.csv", "t.parquet", "t.feather", "t.arrow"):
        path = write_as(frame_of(rng, rows), tmp_path / name)
        with pytest.raises(DataError, match="no rows" if rows == 0 else "the table has only"):
            gather(path)


# Interventions ----------------------------------------------------------------------------------------------


def with_targets(rng: np.random.Generator, labels: list[str | None], rows: int = 120) -> pd.DataFrame:
    return frame_of(rng, rows).assign(target=[labels[k] for k in rng.integers(0, len(labels), rows)])


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.feather"])
def test_regimes_have_their_own_moments(name, tmp_path, rng, small_blocks):
    frame = with_targets(rng, [None, "none", "a", "b;c", "c; b"])
    path = write_as(frame, tmp_path / name)
    found, data = gather(path, interventions="target"), vcuda.as_dataset(path, interventions="target")
    values = frame[["a", "b", "c"]].to_numpy()
    assert found.names == ("a", "b", "c")
    assert found.regimes.keys() == {(), ("a",), ("b", "c")}
    for targets, labels in {(): [None, "none"], ("a",): ["a"], ("b", "c"): ["b;c", "c; b"]}.items():
        assert_same(found.regimes[targets], values[frame.target.isin(labels).to_numpy()])
    assert_same(found.moments, values)
    assert data.interventions is not None
    for k, column in enumerate(found.names):
        assert_same(found.where_free(column), values[~data.interventions[:, k]])
    np.testing.assert_array_equal(found.sampled().interventions, data.interventions)
    np.testing.assert_array_equal(found.sampled().values, data.values)


def test_the_fingerprint_depends_on_what_was_set(tmp_path, rng):
    frame = with_targets(rng, ["none", "a"])
    first = gather(write_as(frame, tmp_path / "t.parquet"), interventions="target")
    other = frame.assign(target=frame.target.to_numpy()[::-1])
    second = gather(write_as(other, tmp_path / "t.parquet"), interventions="target")
    assert first.fingerprint != second.fingerprint


def test_targets_that_cannot_be_are_refused(tmp_path, rng, small_blocks, monkeypatch):
    frame = with_targets(rng, ["none", "a"])
    frame.loc[100, "target"] = "z"
    path = write_as(frame, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="data row 101 of column 'target' says that 'z' was set"):
        gather(path, interventions="target")
    with pytest.raises(DataError, match=r"no column 'targets' .*did you mean 'target'"):
        gather(path, interventions="targets")
    frame = frame.assign(target=["none"] * 3 + ["a"] * 117)
    with pytest.raises(DataError, match="column 'a' was set in all but 3 of 120 rows"):
        gather(write_as(frame, path), interventions="target")
    frame = frame.assign(target=["none"] * 10 + ["a"] * 110, a=[1.0] * 10 + list(range(110)))
    with pytest.raises(DataError, match="column 'a' does not vary in the rows in which it was not set"):
        gather(write_as(frame, path), interventions="target")
    monkeypatch.setattr("vcuda.data.streaming.accumulators.REGIME_BYTES", 100)
    with pytest.raises(DataError, match="2 or more sets of targets"):
        gather(path, interventions="target")


# Features ---------------------------------------------------------------------------------------------------


def additive_features(values: np.ndarray):
    """The uncentred functions of model additive, their places chosen from standardised values."""
    spec = AdditiveBasis(features=4)
    bases = [ColumnBasis(*spec.expand(column)[0][:2], np.zeros(4)) for column in values.T]
    return spec, lambda rows: np.concatenate([b.at(x) for b, x in zip(bases, rows.T, strict=True)], axis=1)


def test_features_are_those_of_model_additive(tmp_path, rng, small_blocks):
    frame = frame_of(rng, 400) * [1, 1e-3, 1e3] + [5, 0, 1e4]
    path = write_as(frame, tmp_path / "t.parquet")
    statistics = gather(path)
    spec, expand = additive_features((statistics.sample.values - statistics.mean) / statistics.scale)
    found = gather_features(path, expand, statistics=statistics)
    score = spec.prepare(frame.to_numpy())
    # Sums of 400 products of size one, each with roundings of 1e-16 times what the functions amplify, some hundreds.
    np.testing.assert_allclose(found.gram, score.gram, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.products, score.products, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.squares, score.squares, rtol=1e-10)
    np.testing.assert_allclose(found.means, score.bases.means.reshape(-1), rtol=0, atol=1e-10)
    assert found.rows == 400
    assert found.features == 12


def test_features_by_regime(tmp_path, rng, small_blocks):
    frame = with_targets(rng, ["none", "a", "b"])
    path = write_as(frame, tmp_path / "t.parquet")
    statistics = gather(path, interventions="target")
    found = gather_features(path, lambda rows: rows**2, statistics=statistics).where_free("a")
    rows = ((frame[["a", "b", "c"]] - statistics.mean) / statistics.scale)[frame.target != "a"].to_numpy()
    features, centred = rows**2 - (rows**2).mean(axis=0), rows - rows.mean(axis=0)
    np.testing.assert_allclose(found.gram, features.T @ features, rtol=1e-10)
    np.testing.assert_allclose(found.products, features.T @ centred, rtol=0, atol=1e-10)
    assert found.rows == (frame.target != "a").sum()
    assert found.regimes.keys() == {(), ("b",)}


def test_another_table_than_the_first_time_is_refused(tmp_path, rng):
    path = write_as(frame_of(rng), tmp_path / "t.parquet")
    statistics = gather(path)
    with pytest.raises(DataError, match="has changed since"):
        gather_features(write_as(frame_of(rng), path), lambda rows: rows, statistics=statistics)
    write_as(frame_of(rng).rename(columns={"a": "z"}), path)
    with pytest.raises(DataError, match="columns names 'a', and there is no such column"):
        gather_features(path, lambda rows: rows, statistics=statistics)
    write_as(frame_of(rng).iloc[:, ::-1], path)
    with pytest.raises(DataError, match="not those that the statistics are about"):
        gather_features(path, lambda rows: rows, statistics=statistics)


# Memory and the benchmark -----------------------------------------------------------------------------------


def test_blocks_shrink_with_the_width_and_not_below_what_pays():
    def rows_for(columns: int) -> int:
        return streams.Stream("t", tuple(f"X{k}" for k in range(columns)), ()).block_rows()

    assert rows_for(2) == 65_536
    assert rows_for(64) == 16_384
    assert rows_for(100_000) == 256


def test_one_large_row_group_is_never_held_whole(tmp_path):
    """Arrow's own count of what it holds: 19 MB of cells in one row group, pages of 64 kB, blocks of 4,096 rows."""
    table = pa.table({f"X{k}": np.random.default_rng(k).normal(size=300_000) for k in range(8)})
    pa.parquet.write_table(
        table, tmp_path / "t.parquet", row_group_size=300_000, data_page_size=1 << 16, use_dictionary=False
    )
    del table
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in open_stream(tmp_path / "t.parquet").blocks(rows=4096)]
    # A buffer of 1 MB for each column, a batch of 262 kB, and pages: well below the 19 MB.
    assert max(held) < 12e6


def test_the_benchmark_compares_the_ways(monkeypatch, capsys):
    # In this process: its memory is not of interest here, and starting five others would take longer than all else.
    monkeypatch.setattr(rows, "measure", lambda way, folder: rows.measure_line({"way": way}, folder))
    assert rows.main(["--rows", "300", "--nodes", "3", "--features"]) == 0
    seen = capsys.readouterr().out
    assert all(f"| 300 | {way} |" in seen for way in rows.WAYS)
    assert "300 rows: the Gram matrices differ by at most" in seen


def test_the_benchmark_writes_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "WRITTEN_ROWS", 100)
    rows.write_table(tmp_path / "t.parquet", rows=250, nodes=2, seed=0)
    assert gather(tmp_path / "t.parquet").rows == 250


def test_what_python_alone_takes_for_a_number_is_a_name_and_no_number(tmp_path, rng):
    frame = frame_of(rng).set_axis(["1_1", "1_2", "1_3"], axis="columns")
    path = write_as(frame, tmp_path / "t.csv")
    assert open_stream(path).names == vcuda.as_dataset(path).names == ("1_1", "1_2", "1_3")
    frame["1_3"] = ["7", *["1_000"] * 59]
    with pytest.raises(DataError, match=r"data row 2 .*'1_3' holds '1_000', which is not a number"):
        gather(write_as(frame, tmp_path / "t.csv"))
