"""Tables that stay on disk: fitted from their statistics, they have the posterior of the same table in memory."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.data.columns import ColumnChoice
from vcuda.data.examination import ReadOptions
from vcuda.data.streaming import StreamedTable, open_table
from vcuda.errors import ConfigError, DataError
from vcuda.infer.workers import Serial

OPTIONS = {
    "equal": {"model": "linear", "noise": "equal"},
    "equal, standardised": {"model": "linear", "noise": "equal", "standardise": True},
    "unit": {"model": "linear", "noise": "unit"},
    "unequal": {"model": "linear", "noise": "unequal"},
    "logarithms": {"model": "linear", "log": ["b", "d"]},
    "additive": {"model": "additive"},
}


def table(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=rows)
    b = np.exp(0.5 * a + 0.3 * rng.normal(size=rows))
    c = np.sin(a) + 0.5 * rng.normal(size=rows) + 1000.0
    d = np.exp(0.3 * rng.normal(size=rows) + 0.2 * c - 200)
    target = np.where(np.arange(rows) < rows // 5, "b", np.where(np.arange(rows) < rows // 4, "c;d", "none"))
    b = np.where(target == "b", np.exp(rng.normal(size=rows)), b)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d, "target": target})


@pytest.fixture(params=["parquet", "csv", "folder"])
def stored(request, tmp_path):
    frame = table()
    if request.param == "folder":
        folder = tmp_path / "parts"
        folder.mkdir()
        for k in range(3):
            frame[200 * k : 200 * (k + 1)].to_parquet(folder / f"part-{k}.parquet")
        return folder
    path = tmp_path / f"table.{request.param}"
    frame.to_csv(path, index=False) if request.param == "csv" else frame.to_parquet(path)
    return path


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_posterior_is_that_of_the_table_in_memory(stored, options):
    streamed = vcuda.fit(stored, interventions="target", streamed=True, engine="exact", **options)
    known = vcuda.fit(table(), interventions="target", engine="exact", **options)
    # Bases are chosen by quantiles of the sample, here of all rows; the rest is rounding.
    assert np.abs(streamed.edge_probabilities - known.edge_probabilities).to_numpy().max() < 1e-6
    assert streamed.diagnostics["log_evidence"] == pytest.approx(known.diagnostics["log_evidence"], abs=1e-5)
    assert streamed.provenance["interventions"] == known.provenance["interventions"]
    rows = table(50, seed=1).drop(columns="target")
    seen, before = streamed.held_out(rows, graphs=20), known.held_out(rows, graphs=20)
    assert seen == pytest.approx(before, rel=1e-4)


def test_without_experiments_too(tmp_path):
    frame = table().drop(columns="target")
    frame.to_parquet(tmp_path / "table.parquet")
    for options in OPTIONS.values():
        streamed = vcuda.fit(tmp_path / "table.parquet", streamed=True, engine="exact", **options)
        # Parts of the rows, which the checks may ask for, need rows.
        known = vcuda.fit(frame, engine="exact", robust=False, **options)
        assert np.abs(streamed.edge_probabilities - known.edge_probabilities).to_numpy().max() < 1e-6


def test_the_model_is_chosen_on_the_sample_and_that_is_said(tmp_path):
    table().to_parquet(tmp_path / "table.parquet")
    posterior = vcuda.fit(tmp_path / "table.parquet", interventions="target", streamed=True, standardise=True)
    assert posterior.provenance["model"]["name"] == "additive"
    assert any("chosen on 600 of 600 rows" in sentence for sentence in posterior.summary()["choice"])


def test_models_that_need_rows_take_the_sample(tmp_path):
    table(300).drop(columns="target").to_parquet(tmp_path / "table.parquet")
    posterior = vcuda.fit(tmp_path / "table.parquet", streamed=True, model="gp")
    assert any("it was fitted to 300 of 300" in sentence for sentence in posterior.summary()["choice"])


def test_size_decides(tmp_path, monkeypatch):
    path = tmp_path / "table.parquet"
    table().drop(columns="target").to_parquet(path)
    assert not isinstance(open_table(path), StreamedTable)
    monkeypatch.setattr("vcuda.data.streaming.table.STREAMED_CELLS", 1000)
    assert isinstance(open_table(path), StreamedTable)
    assert not isinstance(open_table(path, streamed=False), StreamedTable)
    assert not isinstance(open_table("sachs"), StreamedTable)
    # What statistics cannot tell is read into memory.
    gaps = table().drop(columns="target")
    gaps.loc[3, "a"] = np.nan
    gaps.to_parquet(path)
    assert open_table(path).missing.sum() == 1
    with pytest.raises(DataError, match="missing"):
        open_table(path, streamed=True)


def test_compressed_text_is_streamed_by_what_it_unfolds_to(tmp_path, monkeypatch):
    monkeypatch.setattr("vcuda.data.streaming.table.STREAMED_CELLS", 1000)
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"a,b,c\n" + b"1,2,0\n2,1,0\n1,1,1\n" * 200))
    assert path.stat().st_size < 200
    assert isinstance(open_table(path), StreamedTable)
    assert isinstance(open_table(path, choice=ColumnChoice.of(["a", "b"], None)), StreamedTable)
    path.write_bytes(gzip.compress(b"a,b,c\n" + b"1,2,0\n2,1,0\n1,1,1\n" * 100))
    assert not isinstance(open_table(path), StreamedTable)


@pytest.mark.parametrize(
    ("last", "told"),
    [(b"", "column 'c' does not vary"), (b"1,inf,0\n", "which is not finite"), (b"1,2\n", "line 602 has 2 cells")],
    ids=["constant", "infinite", "ragged"],
)
def test_what_memory_cannot_help_is_refused_without_reading_into_it(last, told, tmp_path, monkeypatch):
    monkeypatch.setattr("vcuda.data.streaming.table.STREAMED_CELLS", 1000)
    monkeypatch.setattr(
        "vcuda.data.streaming.table.read_table", lambda *_, **__: pytest.fail("it was read into memory")
    )
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"a,b,c\n" + b"1,2,0\n2,1,0\n1,1,0\n" * 200 + last))
    with pytest.raises(DataError, match=told):
        open_table(path, how=ReadOptions.of(strict=True))


def test_files_that_are_no_tables_are_refused_with_a_sentence(tmp_path):
    for name, content, seen in (
        ("words.feather", b"no mark of Arrow", "no mark of an Arrow"),
        ("words.parquet", b"no mark of Parquet", "cannot be read"),
        ("empty.feather", b"", "the file is empty"),
        ("empty.parquet", b"", "the file is empty"),
        ("empty.csv", b"", "the file is empty"),
    ):
        (tmp_path / name).write_bytes(content)
        for streamed in (None, True, False):
            with pytest.raises(DataError, match=seen):
                open_table(tmp_path / name, streamed=streamed)


def test_masks_and_tables_in_memory_are_not_for_what_is_read_in_blocks(tmp_path):
    frame = table().drop(columns="target")
    frame.to_parquet(tmp_path / "0.parquet")
    mask = np.zeros(frame.shape, dtype=bool)
    mask[:100, 1] = True
    for data, streamed in ((tmp_path, None), (tmp_path, True), (tmp_path / "0.parquet", True)):
        with pytest.raises(ConfigError, match="give the name of a column that says for each row what was set"):
            open_table(data, interventions=mask, streamed=streamed)
    assert open_table(tmp_path / "0.parquet", interventions=mask).interventions.sum() == 100
    with pytest.raises(ConfigError, match="is a folder, whose files are read block by block"):
        open_table(tmp_path, streamed=False)


# What meets what ------------------------------------------------------------------------------------------------


class Elsewhere(Serial):
    """Two workers that are this process, to which everything goes as it would over a wire."""

    count = 2

    def map(self, function, items, *, shared=None, **given):
        import cloudpickle

        sent = cloudpickle.loads(cloudpickle.dumps((function, list(items), shared)))
        return super().map(sent[0], sent[1], shared=sent[2], **given)


def tables() -> dict[str, pd.DataFrame]:
    """One of each kind: numbers and labels, whole and with gaps."""
    numbers = table(240)
    gaps = numbers.copy()
    gaps.loc[5:15, "a"] = np.nan
    gaps.loc[100:110, "b"] = np.nan
    labels = numbers.assign(**{name: np.where(numbers[name] > numbers[name].median(), "hi", "lo") for name in "abcd"})
    holes = labels.copy()
    holes.loc[5:15, "a"] = None
    mixed = numbers.assign(a=labels["a"])
    return {"numbers": numbers, "gaps": gaps, "labels": labels, "holes": holes, "mixed": mixed}


IN_MEMORY = {
    "mixed": "column 'a' holds labels .'hi' and 'lo'.* numbers|model mixed has no choice of noise",
}
IN_BLOCKS = {
    "gaps": "a fit imputes missing values only in tables that fit into memory",
    "labels": "categories are taken from tables that fit into memory",
    "holes": "categories are taken from tables that fit into memory",
    "mixed": "categories are taken from tables that fit into memory",
}


@pytest.mark.parametrize("interventions", ["target", None])
@pytest.mark.parametrize("way", ["in memory", "streamed", "folder"])
@pytest.mark.parametrize("kind", tables())
def test_every_kind_of_table_is_fitted_or_refused_here_and_elsewhere(kind, way, interventions, tmp_path, monkeypatch):
    pytest.importorskip("cloudpickle")
    frame = tables()[kind]
    if interventions is None:
        frame = frame.drop(columns="target")
    for k in range(2):
        (tmp_path / "parts").mkdir(exist_ok=True)
        frame[120 * k : 120 * (k + 1)].to_parquet(tmp_path / "parts" / f"{k}.parquet")
    frame.to_parquet(tmp_path / "table.parquet")
    path = tmp_path / ("parts" if way == "folder" else "table.parquet")
    options = {"interventions": interventions, "streamed": way == "streamed" or None, "imputations": 2}
    refusal = (IN_MEMORY if way == "in memory" else IN_BLOCKS).get(kind)
    posteriors = []
    models = [{}] if kind in ("labels", "holes") else [{"model": "linear", "log": ["b"]}, {"noise": "equal"}]
    for workers in (Serial(), Elsewhere()):
        monkeypatch.setattr("vcuda.fitting.fit.as_workers", lambda client, workers=workers: workers)
        for more in models:
            if refusal is not None:
                with pytest.raises((DataError, ConfigError), match=refusal):
                    vcuda.fit(path, **options, **more)
            else:
                posteriors.append(vcuda.fit(path, **options, **more))
    alone, together = posteriors[: len(posteriors) // 2], posteriors[len(posteriors) // 2 :]
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one.edge_probabilities, other.edge_probabilities)
        assert one.summary()["notes"] == other.summary()["notes"]
        assert one.provenance["choice"] == other.provenance["choice"]


@pytest.fixture
def sampled(tmp_path, monkeypatch):
    """A table of 600 rows of which 100 are drawn, and the places of those that are not."""
    monkeypatch.setattr("vcuda.data.streaming.passes.SAMPLE_CELLS", 400)
    frame = table().drop(columns="target")
    frame.to_parquet(tmp_path / "table.parquet")
    drawn = open_table(tmp_path / "table.parquet", streamed=True).statistics.sample.rows
    assert len(drawn) == 100
    return tmp_path / "table.parquet", frame, np.setdiff1d(np.arange(600), drawn)


def test_no_logarithm_is_chosen_that_a_row_outside_the_sample_does_not_have(sampled):
    path, frame, others = sampled
    assert "b" in vcuda.fit(path, streamed=True, noise="equal").provenance["logarithm"]
    frame.loc[others[0], "b"] = 0.0
    frame.to_parquet(path)
    assert "b" not in vcuda.fit(path, streamed=True, noise="equal").provenance["logarithm"]
    with pytest.raises(DataError, match="column 'b' reaches down to 0"):
        vcuda.fit(path, streamed=True, model="linear", log=["b"])


@pytest.mark.parametrize("options", [{}, {"model": "gp"}, {"engine": "variance-sort"}], ids=["auto", "gp", "baseline"])
def test_a_column_that_does_not_vary_in_the_sample_is_named(sampled, options):
    path, frame, others = sampled
    frame["c"] = 0.0
    frame.loc[others[:9], "c"] = 1.0
    frame.to_parquet(path)
    with pytest.raises(DataError, match=r"column 'c' does not vary in the 100 of 600 rows"):
        vcuda.fit(path, streamed=True, **options)
    assert vcuda.fit(path, streamed=True, model="linear").status.arithmetic.code == "ok"


def test_other_methods_take_the_sample_and_no_experiments(sampled):
    path = sampled[0]
    posterior = vcuda.fit(path, streamed=True, engine="variance-sort")
    assert any("it was fitted to 100 of 600" in sentence for sentence in posterior.summary()["choice"])
    table().to_parquet(path)
    for streamed in (True, False):
        with pytest.raises(ConfigError, match="engine variance-sort knows nothing of interventions"):
            vcuda.fit(path, streamed=streamed, interventions="target", engine="variance-sort")


def test_the_discrete_model_takes_the_sample_of_a_streamed_table(sampled):
    path, frame, _ = sampled
    frame.gt(frame.median()).astype(int).to_parquet(path)
    posterior = vcuda.fit(path, streamed=True, model="categorical")
    assert any("it was fitted to 100 of 600" in sentence for sentence in posterior.summary()["choice"])


def test_the_command_line(tmp_path, run):
    table().to_csv(tmp_path / "table.csv", index=False)
    options = ("--interventions", "target", "--model", "linear", "-o", tmp_path / "run", "--no-report")
    answer = run("fit", tmp_path / "table.csv", "--streamed", *options)
    assert answer.code == 0
    assert "600 rows" in answer.out
