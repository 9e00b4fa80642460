"""Rows that break every model: what is stated, and what it says of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.data.reading import as_dataset
from vcuda.fitting.parts import (
    ALTERNATION,
    CAREFUL_SHARE,
    Careful,
    averaged,
    distance_of_rows,
    parts_of,
    rows_apart,
    share_of,
)
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples


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


def test_one_column_that_is_like_itself_misleads_nobody():
    rng = np.random.default_rng(4)
    walk, noise = np.cumsum(rng.normal(size=2000)), rng.normal(size=2000)
    assert distance_of_rows(np.stack([walk, noise], axis=1)) == 1
    # An effect takes after a cause by which the table is sorted; its own noise does not.
    assert distance_of_rows(np.stack([np.sort(walk), np.sort(walk) + noise], axis=1)) == 1


def with_entries(rng: np.random.Generator, values: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The values (n,) with some of them eight standard deviations away, and which these are."""
    wrong = rng.random(values.size) < share
    return np.where(wrong, 8.0 * values.std() * rng.choice([-1.0, 1.0], values.size), values), wrong


def test_wrong_entries_stand_apart_and_heavy_tails_do_not():
    rng = np.random.default_rng(5)
    spoiled, wrong = with_entries(rng, rng.normal(size=1000), 0.01)
    frame = pd.DataFrame({"a": spoiled, "b": rng.normal(size=1000)})
    np.testing.assert_array_equal(rows_apart(as_dataset(frame)), wrong)
    for tail in (rng.standard_t(3, 1000), rng.exponential(size=1000), rng.lognormal(0, 1.5, 1000)):
        assert not rows_apart(as_dataset(frame.assign(a=tail))).any()
    # So many are no mistakes, and a column of labels has none.
    many, _ = with_entries(rng, rng.normal(size=1000), 0.1)
    assert not rows_apart(as_dataset(frame.assign(a=many))).any()
    assert not rows_apart(as_dataset(frame.assign(a=rng.choice(["u", "v"], 1000))).select(np.arange(500))).any()


def test_half_of_the_parts_leave_out_rows_with_a_value_apart():
    rng = np.random.default_rng(6)
    spoiled, wrong = with_entries(rng, rng.normal(size=600), 0.02)
    data = as_dataset(pd.DataFrame({"a": spoiled, "b": rng.normal(size=600)}))
    has_wrong = [bool(wrong[rows].any()) for rows in parts_of(data, 2 * ALTERNATION, 0)]
    assert has_wrong == [True] * ALTERNATION + [False] * ALTERNATION


def test_a_mean_over_many_searches_is_sound_when_one_of_them_is_not():
    graphs = GraphSamples.from_dense(("a", "b"), np.zeros((1, 2, 2), dtype=bool))

    def outcome(code: str) -> Outcome:
        return Outcome(SampledGraphs(graphs, np.zeros((2, 2)), None), Status(code, f"It is {code}."), {}, {})

    def status(codes: list[str]) -> Status:
        count = len(codes)
        members = [outcome(code) for code in codes]
        return averaged(members, [1 / count] * count, None, parts=count).status

    assert status(["ok"] * 9 + ["warning"]).code == "ok"
    assert "1 of 10 searches" in status(["ok"] * 9 + ["warning"]).sentence
    assert status(["ok"] * 7 + ["warning"] * 3).code == "warning"
    assert status(["ok"] * 9 + ["failed"]).code == "failed"


def test_a_sure_edge_of_all_parts_has_a_probability_of_one_at_most():
    sure = np.array([[[False, True], [False, False]]])
    member = SampledGraphs(GraphSamples.from_dense(("a", "b"), sure), sure[0].astype(float), None)
    outcome = Outcome(member, Status("ok", "It is ok."), {}, {})
    for count in range(2, 60):
        shares = np.repeat([0.48, 0.27, 0.25], count) / count
        found = averaged([outcome] * len(shares), (shares / shares.sum()).tolist(), None, parts=count)
        assert np.asarray(found.graph_posterior.edge_probabilities()).max() <= 1


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
