"""Rows that break every model: what is stated, and what it says of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.fitting.parts import CAREFUL_SHARE, Careful, distance_of_rows, parts_of, share_of


def table(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(values, columns=[f"x{k}" for k in range(values.shape[1])])


def chain(rng: np.random.Generator, rows: int) -> np.ndarray:
    first = rng.normal(size=rows)
    second = first + 2.0 * rng.normal(size=rows)
    other = 0.5 * rng.normal(size=rows)
    return np.stack([first, other, second + other], axis=1)


def test_parts_become_a_smaller_share_of_more_rows():
    assert share_of(1) == pytest.approx(2 / 3, abs=0.001)
    assert share_of(3000) == pytest.approx(1 / 2)
    rows = np.arange(100, 20000, 100)
    shares = np.array([share_of(int(n)) for n in rows])
    assert (np.diff(shares) < 0).all()
    # The strength of a part grows with the rows nevertheless.
    assert (np.diff(rows * shares / (1 - shares)) > 0).all()


def test_rows_of_a_careful_part_are_apart():
    data = vcuda.simulate(nodes=3, edges=2, rows=1000, seed=0).train
    for rows in parts_of(data, 3, 0, Careful(4)):
        assert np.diff(rows).min() >= 4
        assert rows.size == round(CAREFUL_SHARE * 1000)


def test_distance_of_rows_is_one_for_independent_rows_and_grows_with_their_likeness():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(4000, 2))
    assert distance_of_rows(noise) == 1
    rows = np.zeros_like(noise)
    for k in range(1, len(rows)):
        rows[k] = 0.9 * rows[k - 1] + noise[k]
    assert 7 <= distance_of_rows(rows) <= 13  # (1 + .81) / (1 - .81) = 9.5
    assert distance_of_rows(np.cumsum(noise, axis=0)) > 100
    # Cells that are missing say nothing; the others still do.
    assert distance_of_rows(np.where(noise > 1.5, np.nan, noise)) == 1
    assert 3 <= distance_of_rows(np.where(noise > 1.5, np.nan, rows)) <= 13


@pytest.mark.slow
def test_independent_random_walks_have_no_sure_edge():
    walks = table(np.cumsum(np.random.default_rng(2).normal(size=(400, 4)), axis=0))
    plain = vcuda.fit(walks, seed=0, robust=False)
    assert len(plain.edges(minimum=0.9)) > 0
    assert plain.checks().warnings
    found = vcuda.fit(walks, seed=0)
    assert len(found.edges(minimum=0.9)) == 0
    said = found.provenance["choice"]["sentences"][0]
    assert "order of the rows" in said
    assert "robust=False" in said
    assert found.provenance["careful"]["sure"] == 0


@pytest.mark.slow
def test_rows_of_the_model_are_fitted_as_they_are():
    values = chain(np.random.default_rng(3), 500)
    found, plain = vcuda.fit(table(values), seed=0), vcuda.fit(table(values), seed=0, robust=False)
    assert "careful" not in found.provenance
    np.testing.assert_array_equal(found.edge_probabilities, plain.edge_probabilities)
    careful = vcuda.fit(table(values), seed=0, robust=True)
    # Fifths of the rows are less sure.
    assert careful.edge_probabilities.to_numpy().max() < found.edge_probabilities.to_numpy().max()


@pytest.mark.slow
def test_two_populations_are_not_sure_of_what_they_feign(tmp_path):
    """Two groups with other means: all columns differ between them, and seem to cause each other."""
    rng = np.random.default_rng(4)
    group = rng.random(600) < 0.4
    walks = table(rng.normal(size=(600, 4)) + np.where(group[:, None], 3.0, 0.0) * np.array([1.0, -1.0, 1.0, 1.0]))
    plain, found = vcuda.fit(walks, seed=0, robust=False), vcuda.fit(walks, seed=0)
    sure = [len(one.edges(minimum=0.9)) for one in (plain, found)]
    assert sure[1] <= sure[0]
    found.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    assert again.provenance.get("careful") == found.provenance.get("careful")
    np.testing.assert_array_equal(again.edge_probabilities, found.edge_probabilities)


@pytest.mark.parametrize(
    "options", [{"engine": "straight-through"}, {"engine": "variational"}, {"preset": "paper"}, {"streamed": True}]
)
def test_parts_that_cannot_be_averaged_are_refused(options, tmp_path):
    path = tmp_path / "table.csv"
    table(chain(np.random.default_rng(5), 60)).to_csv(path, index=False)
    with pytest.raises(vcuda.ConfigError, match="robust=True"):
        vcuda.fit(path, robust=True, **options)
