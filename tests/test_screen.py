"""The degenerate Gaussian: BGe of one-hot blocks, against BGe itself, its definition, and sums over graphs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

from vcuda.data.streaming import open_table
from vcuda.errors import ConfigError, DataError
from vcuda.graphs import cpdag, enumerate_dags
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.infer.orders import Orders, run_orders
from vcuda.infer.scored import ScoredTable
from vcuda.infer.selection.cost import cost_of
from vcuda.models.interventions import prepare
from vcuda.models.linear import BGe
from vcuda.models.mixed import screen
from vcuda.models.mixed.screen import Blocks, DegenerateGaussian
from vcuda.models.protocol import LocalScore

KINDS = ("number", "label", "count", "yes/no", "ordered", "label", "number", "label", "yes/no", "number")
NONE = np.zeros((1, 0), dtype=np.int64)


def mixed_table(columns: int = 10, rows: int = 150, seed: int = 0) -> np.ndarray:
    """Columns of all kinds, in the codes of a user: yes/no as 1 and 2, ordered from 1 to 5, labels of any number."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, len(KINDS)))
    for node in range(1, len(KINDS)):
        hidden[:, node] += 0.7 * hidden[:, node - 1] - 0.5 * hidden[:, node // 2]
    table = 3 * hidden + 20
    for node, kind in enumerate(KINDS):
        if kind == "count":
            table[:, node] = rng.poisson(np.exp(1 + 0.4 * hidden[:, node]))
        elif kind == "yes/no":
            table[:, node] = 1 + (hidden[:, node] > 0.3)
        elif kind == "ordered":
            table[:, node] = 1 + np.digitize(hidden[:, node], [-1, 0, 0.5, 2])
        elif kind == "label":
            cuts = np.digitize(hidden[:, node], [-1.0, 0.2] if node == 5 else [-1.2, -0.5, 0.1, 0.8])
            table[:, node] = np.array([4.0, 0.0, 7.0, 2.0, 3.0])[cuts]
    return table[:, :columns]


def prepared(columns: int = 10, **settings):
    return DegenerateGaussian(kinds=KINDS[:columns], **settings).prepare(mixed_table(columns))


# Against BGe and the definition ----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"mean_rows": 0.5, "excess": 3.0}, {"max_parents": 2}])
@pytest.mark.parametrize("kinds", [None, ("number",) * 6])
def test_is_bge_where_all_columns_are_numbers(settings, kinds):
    rng = np.random.default_rng(3)
    table = rng.normal(size=(60, 6)) @ rng.normal(size=(6, 6)) * [1, 1e3, 1e-3, 1, 5, 1] + [0, 1e4, 0, 0, 0, 3]
    expected, found = BGe(**settings).prepare(table), DegenerateGaussian(kinds=kinds, **settings).prepare(table)
    np.testing.assert_array_equal(found.gram, expected.gram)
    assert found.log_jacobian == expected.log_jacobian
    assert found.score(2, [0, 4]) == pytest.approx(expected.score(2, [0, 4]), abs=1e-9)
    np.testing.assert_allclose(found.table(2, [5, 0, 4]), expected.table(2, [5, 0, 4]), atol=1e-9)
    batch = [2, 3], np.array([[5, 0], [0, 1]]), np.array([[1], [4]])
    np.testing.assert_allclose(found.tables(*batch), expected.tables(*batch), atol=1e-9)
    np.testing.assert_allclose(found.gains(2, [0, 4]), expected.gains(2, [0, 4]), atol=1e-9)
    np.testing.assert_allclose(found.losses(2, np.array([0, 4])), expected.losses(2, np.array([0, 4])), atol=1e-9)


def test_is_bge_of_the_blocks_one_number_after_the_other():
    table, score = mixed_table(), prepared()
    blocks, names = [], []
    for node, kind in enumerate(KINDS):
        column = table[:, node]
        if kind == "label":
            hot = column[:, None] == np.unique(column)
            centred = hot - hot.mean(axis=0)
            # Any columns of variance one that span the same and are uncorrelated will do.
            block = np.linalg.svd(centred, full_matrices=False)[0][:, :-1]
        elif kind == "number":
            block = column[:, None]
        else:
            block = (np.sqrt(column) if kind == "count" else np.unique(column, return_inverse=True)[1])[:, None]
        blocks.append(block)
        names += [node] * block.shape[1]
    expanded, owners = BGe().prepare(np.concatenate(blocks, axis=1)), np.array(names)
    for target, parents in ((1, [0, 5, 3]), (0, []), (5, [1, 2, 7]), (2, [4]), (7, [])):
        given = np.flatnonzero(np.isin(owners, parents)).tolist()
        expected = 0.0
        for number in np.flatnonzero(owners == target).tolist():
            expected += expanded.score(number, given)
            given.append(number)
        # Sums of a few hundred logarithms of size ten, rounded in the sixteenth digit.
        assert score.score(target, parents) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("most", [None, 2])
def test_tables_gains_and_losses_are_those_of_single_sets(most):
    score = prepared(max_parents=most)
    for target, others in ((1, [7, 0, 5, 2]), (0, [6, 1, 4, 5, 7]), (3, [])):
        candidates = np.array(others, dtype=np.int64)
        np.testing.assert_allclose(score.table(target, candidates), LocalScore.table(score, target, candidates))
        np.testing.assert_allclose(score.gains(target, others), LocalScore.gains(score, target, others), atol=1e-9)
        np.testing.assert_allclose(
            score.losses(target, candidates), LocalScore.losses(score, target, candidates), atol=1e-9
        )


def test_nothing_is_gained_beside_all_others():
    score = prepared()
    for target in range(score.nodes):
        others = [k for k in range(score.nodes) if k != target]
        assert (score.gains(target, others) == -np.inf).all()


def test_tables_of_several_targets_hold_fixed_parents_and_fit_into_the_cache(monkeypatch):
    score = prepared()
    batch = [1, 0, 3], np.array([[7, 0, 5], [1, 2, 5], [6, 7, 1]]), np.array([[2, 5 - 1], [7, 8], [5, 9]])
    expected = LocalScore.tables(score, *batch)
    np.testing.assert_allclose(score.tables(*batch), expected)
    # So few numbers that every batch of matrices is cut.
    monkeypatch.setattr(screen, "SIDE_BY_SIDE", 8)
    np.testing.assert_allclose(score.tables(*batch), expected)


def test_markov_equivalent_graphs_score_alike():
    score = prepared(4)
    totals: dict[bytes, list[float]] = {}
    for graph in enumerate_dags(4):
        total = sum(score.score(node, np.flatnonzero(graph[:, node]).tolist()) for node in range(4))
        totals.setdefault(cpdag(graph).tobytes(), []).append(total)
    assert len(totals) == 185
    assert max(np.ptp(alike) for alike in totals.values()) < 1e-9
    assert score.score_equivalent


def test_codes_of_labels_and_units_do_not_matter():
    table, score = mixed_table(), prepared()
    other = table.copy()
    for node, kind in enumerate(KINDS):
        if kind == "number":
            other[:, node] = 100 - 3 * table[:, node]
        elif kind == "label":
            # The last label, which has no number of its own, becomes the first.
            other[:, node] = (table[:, node] * 3 + 1) % 11
        elif kind in ("yes/no", "ordered"):
            other[:, node] = table[:, node] ** 3 - 5
    changed = DegenerateGaussian(kinds=KINDS).prepare(other)
    for target in range(len(KINDS)):
        np.testing.assert_allclose(changed.gains(target, []), score.gains(target, []), atol=1e-9)
        assert changed.score(target, []) == pytest.approx(score.score(target, []), abs=1e-9)


# Through engines -------------------------------------------------------------------------------------------------


def test_exact_engine_is_the_sum_over_all_graphs():
    score = prepared(4)
    graphs = enumerate_dags(4)
    fits = np.array(
        [sum(score.score(node, np.flatnonzero(graph[:, node]).tolist()) for node in range(4)) for graph in graphs]
    )
    prior = edge_prior(4, 0.3, over="graphs")
    log_joint = fits + graphs.sum(axis=(1, 2)) * np.log(0.3 / 0.7)
    weights = np.exp(log_joint - logsumexp(log_joint))
    found = exact_posterior(score, prior, samples=10, rng=np.random.default_rng(0))
    assert np.abs(found.edge_probabilities - np.einsum("g,gij->ij", weights, graphs)).max() < 1e-9


@pytest.mark.slow
def test_orders_engine_agrees_with_the_exact_one():
    score, prior = prepared(), edge_prior(10, 0.2)
    expected = exact_posterior(score, prior, samples=10, rng=np.random.default_rng(0)).edge_probabilities
    # Fewer columns than there are are tabulated in full, so that candidates are searched by gains and losses.
    spec = Orders(levels=5, hottest=0.1, sweeps=400, max_sweeps=4000, precision=0.004, full=5)
    found = run_orders(spec, score, prior, seed=1, samples=100)
    error = found.diagnostics["standard_error"]
    assert error < 0.02
    # Five standard errors of the edge that is known worst, and what the search says that it left out.
    left_out = found.diagnostics["left_out_probability"]
    assert np.abs(found.edge_probabilities - expected).max() < 5 * error + left_out + 1e-3


def test_wide_blocks_make_narrow_tables_and_memory_is_foreseen():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 30, size=(300, 4)).astype(np.float64)
    wide = DegenerateGaussian(kinds=("label",) * 4).prepare(labels)
    assert prepared().cheap_tables
    assert not wide.cheap_tables
    assert wide.table_seconds() > 100 * prepared(4).table_seconds()
    costs = [cost_of(Orders(), score, over="orders") for score in (prepared(4), wide)]
    assert costs[1].gigabytes > costs[0].gigabytes


# Interventions and streams ---------------------------------------------------------------------------------------


def test_cells_that_were_set_do_not_count_for_their_causes():
    table = mixed_table(6)
    held = np.zeros(table.shape, dtype=bool)
    held[:40, 1] = held[:40, 3] = True
    held[40:60, 0] = True
    # Some label occurs only where it was set: all parts have the same blocks still.
    table[:10, 5] = 9.0
    held[:10, 5] = True
    spec = DegenerateGaussian(kinds=KINDS[:6])
    score = prepare(spec, table, held)
    assert [score.of(target).rows for target in (1, 0, 5)] == [110, 130, 140]
    # A column that was never set is scored by all rows.
    assert score.score(2, [1, 5]) == pytest.approx(spec.prepare(table).score(2, [1, 5]), abs=1e-9)
    for target in range(6):
        others = np.array([k for k in range(6) if k != target])
        np.testing.assert_allclose(score.table(target, others), LocalScore.table(score, target, others))


def test_a_stream_gives_the_score_of_the_table_in_memory(tmp_path):
    names = [f"x{k}" for k in range(10)]
    frame = pd.DataFrame(mixed_table(), columns=names)
    frame.to_csv(tmp_path / "table.csv", index=False)
    spec = DegenerateGaussian(kinds=KINDS)
    opened = open_table(tmp_path / "table.csv", streamed=True)
    nothing = np.zeros(10, dtype=bool)
    streamed = ScoredTable.stream(opened, spec, logarithm=nothing, standardise=False, on_progress=lambda *_: None).score
    expected = spec.prepare(frame.to_numpy())
    # Sums of 150 products of size one, rounded.
    np.testing.assert_allclose(streamed.gram, expected.gram, rtol=0, atol=1e-9)
    assert streamed.log_jacobian == pytest.approx(expected.log_jacobian)
    assert streamed.score(1, [0, 5, 7]) == pytest.approx(expected.score(1, [0, 5, 7]), abs=1e-7)
    assert DegenerateGaussian().features_of(np.zeros((3, 10)), zero=np.zeros(10)) is None


def test_labels_that_a_sample_lacks_count_with_the_last_one():
    seen, shift = np.array([[0.0], [1.0], [3.0], [3.0]]), np.array([2.0])
    blocks = Blocks.of(("label",), seen, zero=np.zeros(1), max_levels=50)
    expanded = blocks.expand(np.array([[0.0], [1.0], [2.0], [3.0], [8.0]]))
    assert expanded.shape == (5, 2)
    np.testing.assert_array_equal(expanded[2], expanded[3])
    np.testing.assert_array_equal(expanded[4], expanded[3])
    np.testing.assert_allclose(blocks.shifted(shift).expand(seen - shift), blocks.expand(seen))


def test_columns_that_do_not_vary_in_a_sample_are_taken_as_numbers():
    blocks = Blocks.of(("yes/no", "label", "count"), np.full((5, 3), -0.01), zero=np.full(3, -0.01), max_levels=50)
    rows = np.array([[-0.01, -0.01, -0.01], [100.0, 50.0, 3.0]])
    np.testing.assert_array_equal(blocks.expand(rows), rows)
    assert blocks.widths.tolist() == [1, 1, 1]


# What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ("number", "text")}, "one of number, count, yes/no, ordered, label; got 'text'"),
        ({"excess": 1.0}, "excess must be above 1"),
        ({"max_parents": 0}, "max_parents must be at least 1"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        DegenerateGaussian(**settings)


def test_tables_are_checked():
    with pytest.raises(ConfigError, match="3 kinds, and the table 4 columns"):
        DegenerateGaussian(kinds=KINDS[:3]).prepare(mixed_table(4))
    table = mixed_table(4)
    table[3, 2] = -1
    with pytest.raises(DataError, match="column 2 holds -1, and counts are never negative"):
        DegenerateGaussian(kinds=KINDS[:4]).prepare(table)
    with pytest.raises(DataError, match="column 0 has 150 different labels, more than the 50"):
        DegenerateGaussian(kinds=("label", *KINDS[1:4])).prepare(mixed_table(4))
    table[:, 1] = 2.0
    with pytest.raises(DataError, match="column 1 is constant"):
        DegenerateGaussian(kinds=KINDS[:4]).prepare(table)
