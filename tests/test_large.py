"""Tables that stay on disk: fitted from their statistics, they have the posterior of the same table in memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.data.large import LargeTable, open_table
from vcuda.errors import DataError

OPTIONS = {
    "equal": {"model": "linear", "noise": "equal"},
    "equal, standardised": {"model": "linear", "noise": "equal", "standardise": True},
    "unit": {"model": "linear", "noise": "unit"},
    "unequal": {"model": "linear", "noise": "unequal"},
    "logarithms": {"model": "linear", "logarithm": ["b", "d"]},
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
    told, before = streamed.held_out(rows, graphs=20), known.held_out(rows, graphs=20)
    assert told == pytest.approx(before, rel=1e-4)


def test_without_experiments_too(tmp_path):
    frame = table().drop(columns="target")
    frame.to_parquet(tmp_path / "table.parquet")
    for options in OPTIONS.values():
        streamed = vcuda.fit(tmp_path / "table.parquet", streamed=True, engine="exact", **options)
        known = vcuda.fit(frame, engine="exact", **options)
        assert np.abs(streamed.edge_probabilities - known.edge_probabilities).to_numpy().max() < 1e-6


def test_the_model_is_chosen_on_the_sample_and_that_is_said(tmp_path):
    table().to_parquet(tmp_path / "table.parquet")
    posterior = vcuda.fit(tmp_path / "table.parquet", interventions="target", streamed=True)
    assert posterior.provenance["model"]["name"] == "additive"
    assert any("chosen on 600 of 600 rows" in sentence for sentence in posterior.summary()["choice"])


def test_models_that_need_rows_take_the_sample(tmp_path):
    table(300).drop(columns="target").to_parquet(tmp_path / "table.parquet")
    posterior = vcuda.fit(tmp_path / "table.parquet", streamed=True, model="gp")
    assert any("it was fitted to 300 of 300" in sentence for sentence in posterior.summary()["choice"])


def test_size_decides(tmp_path, monkeypatch):
    path = tmp_path / "table.parquet"
    table().drop(columns="target").to_parquet(path)
    assert not isinstance(open_table(path), LargeTable)
    monkeypatch.setattr("vcuda.data.large.STREAMED_CELLS", 1000)
    assert isinstance(open_table(path), LargeTable)
    assert not isinstance(open_table(path, streamed=False), LargeTable)
    assert not isinstance(open_table("sachs"), LargeTable)
    # What statistics cannot tell is read into memory.
    gaps = table().drop(columns="target")
    gaps.loc[3, "a"] = np.nan
    gaps.to_parquet(path)
    assert open_table(path).missing.sum() == 1
    with pytest.raises(DataError, match="missing"):
        open_table(path, streamed=True)


def test_the_command_line(tmp_path, run):
    table().to_csv(tmp_path / "table.csv", index=False)
    options = ("--interventions", "target", "--model", "linear", "-o", tmp_path / "run", "--no-report")
    answer = run("fit", tmp_path / "table.csv", "--streamed", *options)
    assert answer.code == 0
    assert "600 rows" in answer.out
