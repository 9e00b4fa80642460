"""Regressions of every kind: their evidence, the sets that count, and whole fits."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

import vcuda
from vcuda.graphs import is_dag
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.models.linear import BGe
from vcuda.models.mixed import tables
from vcuda.models.mixed.columns import columns_of
from vcuda.models.mixed.evidence import ANY_SPREAD, EVERY, NUMBER, ColumnEvidence, Rows
from vcuda.models.mixed.relevance import losses
from vcuda.models.mixed.scales import choose_logarithms
from vcuda.models.mixed.tables import MixedTable, Tabulation
from vcuda.models.tabulated import TabulatedScore

KINDS = ("number", "label", "count", "yes/no")


def mixed_values(seed: int, rows: int) -> np.ndarray:
    """number -> label, number -> count, count -> yes/no."""
    rng = np.random.default_rng(seed)
    x = rng.exponential(size=rows)
    label = np.argmax(np.stack([0 * x, x - 1, 1 - x], axis=1) + rng.gumbel(size=(rows, 3)), axis=1)
    count = rng.poisson(np.exp(0.2 + 0.5 * x))
    yes = rng.random(rows) < 1 / (1 + np.exp(2.0 - 0.8 * count))
    return np.stack([x, label, count, yes], axis=1).astype(float)


def tabulation(values: np.ndarray, kinds: tuple[str, ...], required: list[list[int]] | None = None) -> Tabulation:
    d = values.shape[1]
    others = [[k for k in range(d) if k != j] for j in range(d)]
    return Tabulation(MixedTable(columns_of(kinds, values), values), others, required or [[]] * d)


def dags_of_four() -> list[np.ndarray]:
    pairs, found = [(i, j) for i in range(4) for j in range(4) if i != j], []
    for chosen in product([False, True], repeat=len(pairs)):
        graph = np.zeros((4, 4), dtype=bool)
        for (i, j), there in zip(pairs, chosen, strict=True):
            graph[i, j] = there
        if is_dag(graph):
            found.append(graph)
    return found


def test_edge_probabilities_are_those_of_enumeration():
    """All 543 DAGs of a table of four kinds, summed one by one."""
    score = tabulation(mixed_values(0, 300), KINDS).score
    prior = edge_prior(4, 0.3, over="graphs")
    graphs = dags_of_four()
    totals = [
        sum(score.score(j, np.flatnonzero(graph[:, j]).tolist()) for j in range(4)) + graph.sum() * np.log(0.3 / 0.7)
        for graph in graphs
    ]
    weights = np.exp(np.array(totals) - logsumexp(totals))
    expected = np.tensordot(weights, np.array(graphs, dtype=float), axes=1)
    found = exact_posterior(score, prior, samples=1, rng=np.random.default_rng(0)).edge_probabilities
    assert len(graphs) == 543
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_linear_normal_columns_score_as_bge():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(150, 4)) @ rng.normal(size=(4, 4))
    rows = Rows(columns_of(("number",) * 4, values), values)
    reference = BGe().prepare(values)
    sets = [own for size in range(4) for own in combinations((0, 1, 3), size)]
    found = ColumnEvidence(2, rows).evidence(NUMBER[0], sets)
    np.testing.assert_allclose(found, [reference.score(2, own) for own in sets], atol=1e-8)


@pytest.mark.parametrize("kind", ["label", "yes/no", "ordered", "count"])
def test_no_direction_is_preferred_between_independent_columns(kind):
    """What each gains as a cause of the other is the same on the mean of many tables."""
    leads = []
    for seed in range(40):
        rng = np.random.default_rng([seed, len(kind)])
        other = {
            "label": rng.choice(3, p=[0.5, 0.3, 0.2], size=400),
            "yes/no": rng.random(400) < 0.4,
            "ordered": rng.choice(4, size=400),
            "count": rng.poisson(3.0, size=400),
        }[kind]
        values = np.stack([rng.normal(size=400), other.astype(float)], axis=1)
        rows = Rows(columns_of(("number", kind), values), values)
        # Straight lines and normal noise: the descriptions that both have.
        number = ColumnEvidence(0, rows).evidence(NUMBER[0], [(), (1,)])
        linear = next(iter(ColumnEvidence(1, rows).by_description([(), (0,)]).values()))
        leads.append((number[1] - number[0]) - (linear[1] - linear[0]))
    assert abs(np.mean(leads)) < 0.05 + 2 * np.std(leads) / np.sqrt(len(leads))


def test_sets_that_a_subset_dominates_do_not_matter(monkeypatch):
    values = mixed_values(2, 400)
    prior = edge_prior(4, 0.3)

    def probabilities() -> np.ndarray:
        score = tabulation(values, KINDS).score
        return exact_posterior(score, prior, samples=1, rng=np.random.default_rng(0)).edge_probabilities

    quick = probabilities()
    monkeypatch.setattr(tables, "DOMINATED", np.inf)
    np.testing.assert_allclose(quick, probabilities(), atol=0.03)


def test_parts_of_the_rows_score_as_tables_of_their_own():
    """Fits of a part begin at the best of all rows, and end where those of its own would."""
    values = mixed_values(3, 600)
    table = MixedTable(columns_of(KINDS, values), values)
    whole, rows = tabulation(values, KINDS), np.arange(0, 600, 2)
    (part,) = whole.of_part(rows)
    for target, alone in enumerate(table.evidences(rows)):
        sets = whole.sets[target].fitted
        expected = alone.average(sets)
        found = np.array([part.scores[target][own] for own in sets])
        near = expected > expected.max() - 15
        # Noise with a sharp edge has more than one best point.
        np.testing.assert_allclose(found[near], expected[near], atol=4.0)


def test_views_of_a_part_share_fits_and_keep_their_scores():
    values = mixed_values(3, 600)
    whole, rows = tabulation(values, KINDS), np.arange(0, 600, 2)
    every, other = whole.of_part(rows, (EVERY, ANY_SPREAD))
    for found, view in ((every, EVERY), (other, ANY_SPREAD)):
        (alone,) = whole.of_part(rows, (view,))
        for here, there in zip(found.scores, alone.scores, strict=True):
            np.testing.assert_allclose([here[own] for own in there], list(there.values()), atol=1e-6)
    number = KINDS.index("number")
    assert every.scores[number] != other.scores[number]


def test_the_loss_of_a_set_is_that_of_the_best_graph_with_it():
    rng = np.random.default_rng(5)
    scores = [
        {
            own: float(10 * rng.normal())
            for size in range(4)
            for own in combinations([k for k in range(4) if k != j], size)
        }
        for j in range(4)
    ]
    best = [dict.fromkeys(column, -np.inf) for column in scores]
    for graph in dags_of_four():
        chosen = [tuple(np.flatnonzero(graph[:, j]).tolist()) for j in range(4)]
        total = sum(column[own] for column, own in zip(scores, chosen, strict=True))
        for column, own in zip(best, chosen, strict=True):
            column[own] = max(column[own], total)
    top = max(best[0].values())
    for found, expected in zip(losses(scores), best, strict=True):
        assert found == pytest.approx({own: top - total for own, total in expected.items()})


def test_sets_that_cannot_matter_are_not_fitted_to_parts_and_change_nothing():
    # Five columns that are nearly functions of the first: most sets of parents lose hundreds of nats.
    rng = np.random.default_rng(6)
    first = rng.gamma(2.0, size=400)
    others = [np.abs(first) ** power + 0.02 * rng.normal(size=400) for power in (0.5, 1.0, 1.5, 2.0)]
    values, kinds = np.stack([first, *others], axis=1), ("number",) * 5
    whole, views = tabulation(values, kinds), (EVERY, ANY_SPREAD)
    sets = whole.relevant_sets(views)
    assert sum(len(own.fitted) for own in sets) < 0.9 * sum(len(own.fitted) for own in whole.sets)
    rows, prior = np.arange(0, 400, 2), edge_prior(5, 0.3)
    for one, other in zip(whole.of_part(rows, views), whole.of_part(rows, views, sets=sets), strict=True):
        assert [column.keys() for column in one.scores] == [column.keys() for column in other.scores]
        expected, found = (
            exact_posterior(score, prior, samples=1, rng=np.random.default_rng(0)).edge_probabilities
            for score in (one, other)
        )
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_required_parents_are_in_every_set():
    whole = tabulation(mixed_values(4, 200), KINDS, [[], [3], [], []])
    assert all(3 in own for own in whole.score.scores[1])


def test_larger_sets_are_tried_where_three_parents_are_better_than_two():
    rng = np.random.default_rng(5)
    values = rng.normal(size=(400, 6))
    values[:, 5] = values[:, :5].sum(axis=1) + 0.5 * rng.normal(size=400)
    whole = tabulation(values, ("number",) * 6)
    best = max(whole.score.scores[5], key=whole.score.scores[5].__getitem__)
    assert best == (0, 1, 2, 3, 4)


def test_tabulated_scores_answer_like_their_sets():
    scores = ({(): -3.0, (1,): -1.0}, {(): -2.0, (0,): -2.5})
    score = TabulatedScore(scores, rows=10, log_jacobian=0.0, max_parents=1)
    assert score.table(0, np.array([1])).tolist() == [-3.0, -1.0]
    assert score.gains(0, [])[1] == 2.0
    assert score.score(1, [0]) == -2.5


def test_scale_of_a_skewed_column_depends_on_its_causes():
    """Sums with skewed noise stay as they are; products are described by their logarithm."""
    rng = np.random.default_rng(6)
    cause = rng.normal(size=800)
    added = 8 + 2 * cause + rng.exponential(size=800)
    added -= added.min() - 0.1
    multiplied = np.exp(cause + 0.5 * rng.normal(size=800))
    values = np.stack([cause, added, multiplied], axis=1)
    free = np.ones(values.shape, dtype=bool)
    assert choose_logarithms(("number",) * 3, values, free, 0).tolist() == [False, False, True]


@pytest.fixture(scope="module")
def posterior() -> vcuda.Posterior:
    values = mixed_values(7, 600)
    frame = pd.DataFrame(values, columns=["dose", "group", "visits", "death"])
    frame["group"] = np.array(["none", "light", "heavy"])[frame["group"].astype(int)]
    frame["death"] = np.array(["no", "yes"])[frame["death"].astype(int)]
    return vcuda.fit(frame, seed=0)


def test_a_mixed_table_is_fitted_by_default(posterior):
    assert posterior.provenance["model"]["name"] == "mixed"
    found = posterior.edge_probabilities.to_numpy()
    assert found[0, 2] > 0.75
    assert found[2, 3] > 0.8
    assert any("regression of its kind" in sentence for sentence in posterior.provenance["choice"]["sentences"])


def test_the_same_seed_gives_the_same_answer(posterior):
    values = mixed_values(7, 600)
    frame = pd.DataFrame(values, columns=["dose", "group", "visits", "death"])
    frame["group"] = np.array(["none", "light", "heavy"])[frame["group"].astype(int)]
    frame["death"] = np.array(["no", "yes"])[frame["death"].astype(int)]
    again = vcuda.fit(frame, seed=0)
    np.testing.assert_array_equal(again.edge_probabilities, posterior.edge_probabilities)


def test_normal_linear_numbers_are_left_to_the_linear_model():
    rng = np.random.default_rng(8)
    values = rng.normal(size=(400, 4))
    values[:, 1] += values[:, 0]
    fitted = vcuda.fit(values, seed=0)
    assert fitted.provenance["model"]["name"] == "linear"


def test_skewed_noise_directs_an_edge_that_normal_noise_cannot():
    rng = np.random.default_rng(9)
    cause = rng.normal(size=600)
    values = np.stack([cause + rng.exponential(size=600), cause], axis=1)
    fitted = vcuda.fit(values, seed=0)
    assert fitted.provenance["model"]["name"] == "mixed"
    # A quarter of the answer reads no direction from shapes, and two skewed columns are told apart by little.
    assert 0.65 < fitted.edge_probabilities.iloc[1, 0] < 0.9
