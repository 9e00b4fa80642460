"""How many edges, and how strong effects, are expected: what the table shows, where nobody said it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.fitting.independences import independences_of, joined_by, likely_prior_rows
from vcuda.fitting.routes import Request
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.models.linear import BGe

COLUMNS = 7


def hanging_together(seed: int, *, share: float, strength: float, rows: int = 600) -> tuple[pd.DataFrame, np.ndarray]:
    """Linear columns in random order, so large a share of the pairs joined; and the graph (d, d)."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5 * strength, 1.5 * strength, (COLUMNS, COLUMNS)) * rng.choice([-1, 1], (COLUMNS, COLUMNS))
    weights *= np.triu(rng.random((COLUMNS, COLUMNS)) < share, 1)
    # Variances differ, so that no direction is read from them.
    values = rng.normal(size=(rows, COLUMNS)) * rng.permutation(np.geomspace(0.4, 2.5, COLUMNS))
    for column in range(COLUMNS):
        values[:, column] += (values @ weights)[:, column]
    order = rng.permutation(COLUMNS)
    names = [f"x{k}" for k in range(COLUMNS)]
    return pd.DataFrame(values[:, order], columns=names), weights[np.ix_(order, order)] != 0


def sure_and_wrong(seeds: range, **options: object) -> tuple[int, int, list[float]]:
    """Sure edges, those that are wrong, and the probability of an edge that was expected, over tables."""
    sure, wrong, expected = 0, 0, []
    for seed in seeds:
        table, graph = hanging_together(seed, share=0.9, strength=0.3)
        posterior = vcuda.fit(table, seed=0, **options)  # type: ignore[arg-type]
        found = posterior.edge_probabilities.to_numpy() >= 0.9
        sure, wrong = sure + int(found.sum()), wrong + int((found & ~graph).sum())
        expected.append(posterior.provenance.edge_probability)
    return sure, wrong, expected


def test_dense_tables_are_not_sure_of_what_only_saves_edges():
    usual = vcuda.DagPrior.for_nodes(COLUMNS)
    sure, wrong, expected = sure_and_wrong(range(6))
    assert all(probability > usual.edge_probability for probability in expected)
    assert wrong == 0
    stubborn, wrong_then, stated = sure_and_wrong(range(6), prior=usual)
    assert stated == [usual.edge_probability] * 6  # what somebody says is not learned
    assert stubborn > 2 * sure
    assert wrong_then >= 5


def test_sparse_tables_keep_the_prior_and_say_nothing_of_it():
    table, _ = hanging_together(0, share=0.25, strength=0.8)
    posterior = vcuda.fit(table, seed=0)
    assert posterior.provenance.edge_probability == vcuda.DagPrior.for_nodes(COLUMNS).edge_probability
    assert not any("more edges" in sentence for sentence in posterior.provenance.sentences)


def test_a_denser_table_says_so():
    table, _ = hanging_together(1, share=0.9, strength=0.3)
    posterior = vcuda.fit(table, seed=0)
    sentences = posterior.provenance.sentences
    assert any("more edges than was expected" in sentence for sentence in sentences)
    assert any("weaker than usual" in sentence for sentence in sentences)
    assert posterior.provenance["model"]["name"] == "linear"
    assert posterior.provenance["model"]["excess"] > 2


def test_denser_priors_are_priors_of_the_odds():
    prior = edge_prior(5, 0.2)
    more = prior.denser(4)
    same = edge_prior(5, 0.5)  # odds of a quarter, four times
    np.testing.assert_allclose(more.log_odds, same.log_odds, atol=1e-12)
    np.testing.assert_allclose(more.log_absent, same.log_absent)
    assert more.edge_probability == pytest.approx(0.5)
    assert more.log_no_edges == pytest.approx(10 * np.log(0.5))


def test_denser_priors_leave_alone_what_is_known():
    allowed, required = np.ones((4, 4), bool), np.zeros((4, 4), bool)
    allowed[0, 1], required[2, 3] = False, True
    more = edge_prior(4, 0.3, allowed=allowed, required=required).denser(16)
    assert more.log_odds[0, 1] == -np.inf
    assert more.log_absent[0, 1] == more.log_odds[2, 3] == more.log_absent[2, 3] == 0


def test_joining_pairs_prefers_no_direction():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(300, 4))
    values[:, 1] += values[:, 0]
    score, likely = BGe().prepare(values), np.zeros((4, 4))
    likely[2, 3] = 0.999
    joined = edge_prior(4, 0.3).raised(joined_by(likely))
    found = exact_posterior(score, joined, samples=1, rng=rng).edge_probabilities
    plain = exact_posterior(score, edge_prior(4, 0.3), samples=1, rng=rng).edge_probabilities
    assert found[2, 3] == pytest.approx(found[3, 2], abs=1e-3)
    assert found[2, 3] + found[3, 2] > 0.9 > plain[2, 3] + plain[3, 2]
    # The other pair has nothing to do with it.
    assert found[0, 1] == pytest.approx(plain[0, 1], abs=0.01)


def test_how_weak_effects_are_is_learned():
    found = []
    for strength in (0.12, 1.0):
        table, _ = hanging_together(2, share=0.5, strength=strength)
        found.append(likely_prior_rows(vcuda.as_dataset(table), edge_prior(COLUMNS, 0.3), 0))
    assert found[0] >= 10
    assert found[1] == 1


def test_independences_of_markov_equivalent_graphs_are_alike():
    table = vcuda.as_dataset(hanging_together(4, share=0.3, strength=0.5)[0])
    for rows in (1, 20):
        score = independences_of(table, rows)
        assert score.score_equivalent
        forward = score.score(1, [0]) + score.score(0, [])
        assert forward == pytest.approx(score.score(0, [1]) + score.score(1, []), abs=1e-8)


def test_what_is_learned_of_the_first_imputation_holds_for_all(tmp_path, monkeypatch):
    table, _ = hanging_together(1, share=0.9, strength=0.3)
    holes = table.mask(np.random.default_rng(0).random(table.shape) < 0.03)
    given = []
    prepared = Request.prepared

    def noted(request: Request, spec: Any) -> Any:
        given.append((request.prior.edge_probability, getattr(spec, "excess", None)))
        return prepared(request, spec)

    monkeypatch.setattr(Request, "prepared", noted)
    posterior = vcuda.fit(holes, seed=0, imputations=3, checkpoint=tmp_path / "steps")
    learned = posterior.provenance.edge_probability, posterior.provenance["model"]["excess"]
    assert learned[0] > vcuda.DagPrior.for_nodes(COLUMNS).edge_probability
    assert learned[1] > 2
    assert given[-2:] == [learned] * 2  # the other imputations try nothing else
    posterior.save(tmp_path / "run")
    assert vcuda.Posterior.load(tmp_path / "run").provenance.edge_probability == learned[0]
