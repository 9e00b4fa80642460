"""Regressions on the odds of values: symmetric, true to their integrals, and no judge of direction."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_t

import vcuda
from vcuda.models.glm.compiled_odds import UNIT, fit_odds
from vcuda.models.mixed.columns import columns_of
from vcuda.models.mixed.evidence import CODED, ColumnEvidence, Rows
from vcuda.models.mixed.odds import cuts_of

YEARS = np.array([8.0, 9, 10, 11, 12, 13, 14, 16, 18])
SHARES = np.array([2.0, 2, 3, 3, 40, 6, 12, 25, 7])


def schooling(rng: np.random.Generator, rows: int, push: np.ndarray | float = 0.0) -> np.ndarray:
    """Years of school: most rows have 12 or 16, and a push upwards changes the odds."""
    odds = np.log(SHARES) + np.multiply.outer(push, (YEARS - 13) / 2) * np.ones((rows, 1))
    chances = np.exp(odds - odds.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return YEARS[(rng.random((rows, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=YEARS.size - 1)]


def evidences(kinds: list[str], values: np.ndarray) -> list[ColumnEvidence]:
    rows = Rows(columns_of(kinds, values), values)
    return [ColumnEvidence(k, rows) for k in range(len(kinds))]


def log_posterior(groups: np.ndarray, scores: np.ndarray, features: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """As the module says it, in a few lines of NumPy, for draws (s, k - 1 + m p), with all constants."""
    k, m = scores.shape
    own = theta[:, : k - 1]
    weights = theta[:, k - 1 :].reshape(len(theta), m, -1)
    base = np.log(np.bincount(groups, minlength=k)) + np.pad(own, ((0, 0), (0, 1)))
    eta = base[:, :, None] + UNIT * np.einsum("km,smp,pn->skn", scores, weights, features)
    heights = eta[:, groups, np.arange(groups.size)] - logsumexp(eta, axis=1)
    constant = -0.5 * theta.shape[1] * np.log(2 * np.pi)
    return heights.sum(axis=1) + constant - 0.5 * (weights**2).sum(axis=(1, 2))


def sampled_evidence(groups: np.ndarray, scores: np.ndarray, features: np.ndarray, best: np.ndarray) -> float:
    """By draws around the best weights, from the curvature there by differences."""

    def height(theta: np.ndarray) -> np.ndarray:
        return log_posterior(groups, scores, features, theta)

    size, step = best.size, 1e-3
    moves = step * np.eye(size)
    plus = height(best + moves)
    corners = np.array([best + moves[a] + moves[b] for a in range(size) for b in range(size)])
    bent = -(height(corners).reshape(size, size) - plus[:, None] - plus[None] + height(best[None])) / step**2
    proposal = multivariate_t(best, 1.1 * np.linalg.inv((bent + bent.T) / 2), df=20, seed=1)
    draws = proposal.rvs(20_000)
    heights = np.concatenate([height(some) for some in np.split(draws, 20)])
    return float(logsumexp(heights - proposal.logpdf(draws)) - np.log(20_000))


@pytest.mark.parametrize("smooth", [False, True])
def test_what_causes_explain_is_near_importance_sampling(smooth):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    values = np.stack([schooling(rng, 200, 0.5 * x), x], axis=1)
    rows = Rows(columns_of(["number", "number"], values), values)
    own, cause = rows.columns
    groups, scores = rows.groups[0], own.groups.scores(smooth).T[:, :2]
    counts = (np.arange(len(scores))[:, None] == groups).astype(float)
    every = cause.groups.scores(smooth)[:2, rows.groups[1]]
    found, sampled = [], []
    for features in (every[:0], every):
        fitted = fit_odds(counts, scores, features)
        found.append(fitted.log_evidence)
        sampled.append(sampled_evidence(groups, scores, features, fitted.weights))
    # Groups with two or three rows have skewed odds: that error is the same with and without causes.
    assert found == pytest.approx(sampled, abs=0.2)
    assert found[1] - found[0] == pytest.approx(sampled[1] - sampled[0], abs=0.1)


@pytest.mark.parametrize("smooth", [False, True])
def test_a_column_explains_as_much_as_it_is_explained(smooth):
    rng = np.random.default_rng(1)
    x = rng.normal(size=600)
    years = schooling(rng, 600, 0.6 * x)
    yes = (rng.random(600) < 1 / (1 + np.exp(-0.4 * (years - 13)))).astype(float)
    ends = evidences(["number", "yes/no", "number"], np.stack([years, yes, x], axis=1))
    for first, second in ((0, 1), (0, 2), (1, 2)):
        one = ends[first].odds.gain((second,), smooth)
        other = ends[second].odds.gain((first,), smooth)
        assert one > 3
        assert one == pytest.approx(other, abs=0.01)
    # Of a yes/no column it is the logistic regression that the fit has anyway, whose numbers are not in groups.
    how = CODED[smooth]
    logistic = ends[1].evidence(how, [(), (0,)])
    assert logistic[1] - logistic[0] == pytest.approx(ends[1].odds.gain((0,), smooth), abs=0.5)


def test_parts_of_the_rows_have_the_groups_of_all():
    rng = np.random.default_rng(2)
    values = np.stack([schooling(rng, 400), rng.normal(size=400)], axis=1)
    columns = columns_of(["number", "number"], values)
    every, part = Rows(columns, values), Rows(columns, values[:90])
    assert (part.groups[0] == every.groups[0][:90]).all()
    before = ColumnEvidence(0, every)
    before.odds.gain((1,), True)
    begun, anew = ColumnEvidence(0, part, before), ColumnEvidence(0, part)
    assert begun.odds.gain((1,), True) == pytest.approx(anew.odds.gain((1,), True), abs=0.02)


def test_groups_keep_what_many_rows_share_apart():
    values = np.concatenate([np.full(50, 3.0), np.arange(50) / 10, np.full(30, 4.5)])
    cuts = cuts_of(values)
    for shared in (3.0, 4.5):
        below, above = np.searchsorted(cuts, [np.nextafter(shared, -9), np.nextafter(shared, 9)])
        assert below == above
        assert (np.searchsorted(cuts, values) == below).sum() <= 60
    assert cuts_of(np.zeros(5)).size == 0


def test_steps_are_values_that_many_rows_share():
    rng = np.random.default_rng(3)
    smooth, steps, spike = rng.normal(size=300), schooling(rng, 300), rng.exponential(size=300)
    spike[:90] = 0.0
    columns = columns_of(["number"] * 3, np.stack([smooth, steps, spike], axis=1))
    assert [column.has_steps for column in columns] == [False, True, True]
    # Zeros beside numbers without a grid have no density at all.
    assert [column.has_density for column in columns] == [True, True, False]


@pytest.mark.parametrize("cause", ["years", "woman"])
def test_no_direction_is_read_from_steps(cause):
    """A yes/no column and years of school, either way round: odds are all that a table shows, and they say nothing."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        if cause == "woman":
            woman = (rng.random(800) < 0.5).astype(float)
            years = schooling(rng, 800, 0.5 * (2 * woman - 1))
        else:
            years = schooling(rng, 800)
            woman = (rng.random(800) < 1 / (1 + np.exp(-0.5 * (years - 13)))).astype(float)
        found = vcuda.fit(pd.DataFrame({"years": years, "woman": woman}), seed=0).edge_probabilities.to_numpy()
        assert found[0, 1] + found[1, 0] > 0.95
        assert max(found[0, 1], found[1, 0]) < 0.9
