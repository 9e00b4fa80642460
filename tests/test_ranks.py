"""Regressions on the scale of ranks: blind to how a column was bent, no judge of direction where lines suffice."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp, ndtri
from scipy.stats import kstest, rankdata

import vcuda
from vcuda.data.dataset import Dataset
from vcuda.models.mixed import MixedPredictive
from vcuda.models.mixed.columns import columns_of
from vcuda.models.mixed.evidence import EVERY, NUMBER, RANKS, ColumnEvidence, Rows, View
from vcuda.models.mixed.ranks import NormalScores, normal_scores

BY_LINES, BY_CURVES = RANKS


def evidences(values: np.ndarray) -> list[ColumnEvidence]:
    rows = Rows(columns_of(["number"] * values.shape[1], values), values)
    return [ColumnEvidence(k, rows) for k in range(values.shape[1])]


def gains(ends: list[ColumnEvidence], how, target: int, *sets: tuple[int, ...]) -> np.ndarray:
    found = ends[target].evidence(how, [(), *sets])
    return found[1:] - found[0]


def linear(rng: np.random.Generator, rows: int) -> np.ndarray:
    """a -> b -> c, and a -> c."""
    a, b, c = rng.normal(size=(3, rows))
    b += a
    c += b - a / 2
    return np.stack([a, b, c], axis=1)


def test_normal_scores_are_those_of_ranks():
    values = np.array([3.0, 1.0, 3.0, 7.0, 2.0])
    found = normal_scores(values)
    np.testing.assert_allclose(found, ndtri((rankdata(values) - 0.5) / 5))
    scale = NormalScores.of(values)
    np.testing.assert_allclose(scale.of_values(values), found)
    new = np.array([-2.0, 1.5, 6.0, 9.0])
    np.testing.assert_allclose(scale.to_values(scale.of_values(new)), new)
    assert (np.diff(scale.of_values(new)) > 0).all()


def test_bending_changes_nothing_of_what_causes_explain():
    plain = linear(np.random.default_rng(0), 300)
    bent = np.stack([np.exp(plain[:, 0]), np.tanh(plain[:, 1]), plain[:, 2] ** 3], axis=1)
    one, other = evidences(plain), evidences(bent)
    for target in range(3):
        sets = [own for size in (1, 2) for own in combinations([k for k in range(3) if k != target], size)]
        assert gains(one, BY_LINES, target, *sets) == pytest.approx(gains(other, BY_LINES, target, *sets), abs=1e-6)
    # Curves take causes as they are: only the column itself may be bent.
    bent[:, :2] = plain[:, :2]
    other = evidences(bent)
    assert gains(one, BY_CURVES, 2, (0,), (0, 1)) == pytest.approx(gains(other, BY_CURVES, 2, (0,), (0, 1)), abs=1e-6)


def test_lines_prefer_no_order_of_the_columns():
    """All complete DAGs have the same evidence, whatever the columns look like."""
    values = linear(np.random.default_rng(1), 400)
    ends = evidences(np.stack([np.exp(values[:, 0]), np.tanh(values[:, 1]), values[:, 2]], axis=1))
    totals = []
    for first, second, third in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        pair = gains(ends, BY_LINES, second, (first,))[0]
        totals.append(pair + gains(ends, BY_LINES, third, tuple(sorted((first, second))))[0])
    assert totals[0] > 50
    assert totals == pytest.approx([totals[0]] * 3, abs=1e-6)


def test_they_change_nothing_where_noise_is_normal():
    values = linear(np.random.default_rng(2), 400)
    sets = [(), (0,), (1,), (0, 1)]
    found = ColumnEvidence(2, Rows(columns_of(["number"] * 3, values), values))
    without = found.average(sets, View(NUMBER, odds=True))
    assert found.average(sets, EVERY) == pytest.approx(without, abs=0.02)
    assert not found.likeliest((0, 1)).ranks


def test_a_scale_with_a_ceiling_is_described_by_ranks():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 500))
    c = np.tanh(2 * (np.sin(2 * a) + b + 0.3 * rng.normal(size=500)))
    ends = evidences(np.stack([a, b, c], axis=1))
    assert ends[2].likeliest((0, 1)) is BY_CURVES
    # Without causes the column is as the densities have it on average.
    alone = {name: float(one[0]) for name, one in ends[2].by_description([()]).items()}
    assert alone[BY_CURVES.name] == pytest.approx(alone[BY_LINES.name])
    others = [alone[how.name] for how in NUMBER if not how.together]
    assert min(others) < alone[BY_LINES.name] < max(others)


def test_bent_effects_keep_their_direction():
    """Each step is squashed: no noise that is added describes the effects, and the wrong directions look better."""
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 500))
    c = np.tanh(1.5 * a + 1.5 * b + 0.7 * rng.normal(size=500))
    d = np.tanh(2.5 * c + 0.7 * rng.normal(size=500))
    posterior = vcuda.fit(pd.DataFrame({"a": a, "b": b, "c": c, "d": d}), seed=0)
    likely = posterior.edge_probabilities
    for source, target in (("a", "c"), ("b", "c"), ("c", "d")):
        assert likely.loc[source, target] > 0.9, (source, target)
    assert any("on the scale of ranks: 'c'" in said for said in posterior.summary()["choice"])


def test_a_bent_column_is_predicted_drawn_and_judged_as_such():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 600))
    noise = 0.5 * rng.normal(size=600)
    values = np.stack([np.tanh(2 * np.sin(a) + b + noise), a, b], axis=1)
    predictive = MixedPredictive.of(Dataset(("c", "a", "b"), values), np.zeros(3, dtype=bool))
    node = predictive.node(0, np.array([1, 2]))
    assert node.weights[node.names.index(BY_CURVES.name)] > 0.99
    new = rng.uniform(-1.8, 1.8, size=(400, 2))
    location = 2 * np.sin(new[:, 0]) + new[:, 1]
    draws = 0.5 * rng.normal(size=(200, 1))
    truth, seen = np.tanh(location + draws).mean(axis=0), np.tanh(location + 0.5 * rng.normal(size=400))
    found = node.predict(new, seen)
    assert np.sqrt(np.mean((found.mean - truth) ** 2)) < 0.06
    drawn = [node.draw(rng, None) for _ in range(20)]
    assert np.sqrt(np.mean((np.mean([one.expected(new) for one in drawn], axis=0) - truth) ** 2)) < 0.06
    # What the causes tell of a row is what they tell under the true model, and the quantiles of the rows are uniform.
    many = rng.normal(size=(4000, 2))
    spread = (2 * np.sin(many[:, 0]) + many[:, 1] - np.arctanh(seen)[:, None]) / 0.5
    explained = -0.5 * ((location - np.arctanh(seen)) / 0.5) ** 2 - (logsumexp(-0.5 * spread**2, axis=1) - np.log(4000))
    alone = predictive.node(0, np.zeros(0, dtype=np.int64)).predict(np.zeros((400, 0)), seen)
    assert np.mean(found.log_density - alone.log_density) == pytest.approx(explained.mean(), abs=0.1)
    assert kstest(node.tails(new, seen).below, "uniform").pvalue > 0.01
    # Noise that is read from a row gives the row back.
    kept = drawn[0].noise_of(new, seen, rng)
    np.testing.assert_allclose(drawn[0].with_noise(new, kept), seen, atol=1e-9)
    quantiles = drawn[0].simulate(np.repeat(new[:1], 2000, axis=0), (np.arange(2000) + 0.5) / 2000)
    assert quantiles.mean() == pytest.approx(drawn[0].expected(new[:1])[0], abs=0.01)
