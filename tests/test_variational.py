"""The variational engine with integrated weights: near the exact posterior, always allowed, and honest about itself."""

import time

import numpy as np
import pytest
from problems import run_variational
from scipy.special import expit

from vcuda.data.paper_tables import paper_dataset
from vcuda.data.simulate import simulate
from vcuda.errors import ConfigError
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.infer.variational import Variational
from vcuda.metrics import average_precision
from vcuda.models.additive import AdditiveBasis
from vcuda.models.linear import BGe, EqualNoise

SHORT = Variational(steps=60, restarts=2)


def six_columns(rows: int, seed: int) -> np.ndarray:
    return simulate("er", nodes=6, edges=6, rows=rows, test_rows=1, seed=seed).train.values


def exact_probabilities(score) -> tuple[np.ndarray, float]:
    found = exact_posterior(score, edge_prior(score.nodes, 0.2), rng=np.random.default_rng(0), samples=1)
    return found.edge_probabilities, found.log_evidence


# All ten sets, none left out. Measured sums of absolute differences over the 30 edges: .03 to .34 in nine of them and
# .93 in one (largest single difference .31), mean .20; the bounds leave room for other builds. The gap between evidence
# and ELBO was 2 to 5 nats, of which an identified order of six nodes takes up to log 6! = 6.6.
@pytest.mark.slow
def test_equal_noise_is_near_the_exact_posterior():
    sums = []
    for rows, seed in [(rows, seed) for rows in (200, 1000) for seed in range(5)]:
        score = EqualNoise(variance=1.0).prepare(six_columns(rows, seed))
        exact, evidence = exact_probabilities(score)
        found = run_variational(Variational(), score, edge_prior(score.nodes, 0.2), seed=seed)
        sums.append(np.abs(found.graph_posterior.edge_probabilities() - exact).sum())
        assert np.abs(found.graph_posterior.edge_probabilities() - exact).max() < 0.4
        assert -0.5 < evidence - max(found.diagnostics["elbo"]) < 7
    assert np.mean(sums) < 0.3
    assert max(sums) < 1.2


@pytest.mark.slow
def test_unknown_shared_noise_is_near_the_exact_posterior():
    # In units that hide that the noise has variance 1.
    score = EqualNoise().prepare(7.0 * six_columns(1000, 1))
    exact, _ = exact_probabilities(score)
    found = run_variational(Variational(), score, edge_prior(score.nodes, 0.2), seed=0)
    assert np.abs(found.graph_posterior.edge_probabilities() - exact).sum() < 0.5
    # The variance is known to sqrt(2 / (n d)) = 2 %; it is in units of the smallest column variance.
    noise = found.diagnostics["noise_variance"] * six_columns(1000, 1).var(axis=0).min()
    assert noise == pytest.approx(1.0, abs=0.08)


@pytest.mark.slow
def test_additive_model_is_near_the_exact_posterior():
    values = simulate("er", nodes=5, edges=5, mechanism="mlp", rows=400, test_rows=1, seed=1).train.values
    score = AdditiveBasis(features=4).prepare(values)
    exact, _ = exact_probabilities(score)
    found = run_variational(Variational(), score, edge_prior(score.nodes, 0.2), seed=0)
    assert np.abs(found.graph_posterior.edge_probabilities() - exact).sum() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("family", ["er", "sf"])
def test_paper_sets_of_ten_columns(family):
    precisions = []
    for index in range(10):
        data = paper_dataset(family, index=index)
        found = run_variational(
            Variational(), EqualNoise().prepare(data.train.values), edge_prior(data.train.d, 0.1), seed=index
        )
        precisions.append(average_precision(found.graph_posterior.edge_probabilities(), data.graph))
    assert np.mean(precisions) >= 0.99


@pytest.mark.slow
def test_what_is_not_allowed_never_occurs():
    values = six_columns(200, 0)
    allowed = np.ones((6, 6), dtype=bool)
    allowed[:, 2] = False
    allowed[4] = False
    found = run_variational(SHORT, EqualNoise().prepare(values), edge_prior(6, 0.2, allowed=allowed), seed=0)
    assert (found.graph_posterior.edge_probabilities()[~allowed] == 0).all()
    assert (expit(found.graph_posterior.edge_logits)[:, ~allowed] == 0).all()
    assert (np.diag(found.graph_posterior.edge_probabilities()) == 0).all()


@pytest.mark.slow
def test_same_seed_same_result_and_input_untouched():
    values = six_columns(200, 0)
    before = values.copy()
    one, two, other = (
        run_variational(SHORT, EqualNoise().prepare(values), edge_prior(6, 0.2), seed=seed) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(one.graph_posterior.edge_logits, two.graph_posterior.edge_logits)
    np.testing.assert_array_equal(one.graph_posterior.edge_probabilities(), two.graph_posterior.edge_probabilities())
    assert not np.array_equal(one.graph_posterior.edge_logits, other.graph_posterior.edge_logits)
    np.testing.assert_array_equal(values, before)
    assert one.graph_posterior.weights.sum() == pytest.approx(1.0)


def test_shared_units_do_not_matter():
    values = six_columns(200, 0)
    one = run_variational(SHORT, EqualNoise().prepare(values), edge_prior(6, 0.2), seed=0)
    two = run_variational(SHORT, EqualNoise().prepare(8.0 * values), edge_prior(6, 0.2), seed=0)
    np.testing.assert_allclose(
        one.graph_posterior.edge_probabilities(), two.graph_posterior.edge_probabilities(), atol=1e-6
    )
    # A density of 200 x 6 numbers in units eight times as small.
    lower = np.array(one.diagnostics["elbo"]) - 200 * 6 * np.log(8.0)
    np.testing.assert_allclose(two.diagnostics["elbo"], lower, atol=1e-4)


@pytest.mark.slow
def test_units_of_single_columns_do_not_matter_to_bge():
    values = six_columns(200, 0)
    factors = np.array([1e-3, 0.7, 3.1, 55.0, 1e4, 1.0])
    one, two = (
        run_variational(SHORT, BGe().prepare(table), edge_prior(6, 0.2), seed=0) for table in (values, factors * values)
    )
    np.testing.assert_allclose(
        one.graph_posterior.edge_probabilities(), two.graph_posterior.edge_probabilities(), atol=1e-9
    )


def test_deadline_returns_what_there_is():
    found = run_variational(
        SHORT,
        EqualNoise().prepare(six_columns(200, 0)),
        edge_prior(6, 0.2),
        seed=0,
        deadline=time.monotonic() - 1,
    )
    assert found.status.code == "interrupted"
    assert "time limit" in found.status.sentence
    assert found.diagnostics["steps"] == 1
    assert np.isfinite(found.graph_posterior.edge_probabilities()).all()


@pytest.mark.slow
def test_interrupt_returns_what_there_is():
    seen = []

    def interrupt(progress):
        seen.append(progress)
        if len(seen) == 1:
            raise KeyboardInterrupt

    long = Variational(steps=100_000, restarts=2)
    found = run_variational(
        long, EqualNoise().prepare(six_columns(200, 0)), edge_prior(6, 0.2), seed=0, progress=interrupt
    )
    assert found.status.code == "interrupted"
    assert found.diagnostics["steps"] < 100_000


@pytest.mark.slow
def test_too_small_a_cap_is_told():
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(500, 5))
    values = np.column_stack([causes, causes.sum(axis=1) + rng.normal(size=500)])
    spec = Variational(steps=60, restarts=2, max_parents=2)
    names = ["a", "b", "c", "d", "e", "effect"]
    found = run_variational(spec, EqualNoise().prepare(values), edge_prior(6, 0.2), seed=0, names=names)
    assert found.status.code == "warning"
    assert "effect" in found.status.sentence


@pytest.mark.slow
def test_restarts_of_an_equivalence_class_take_both_sides():
    # One edge that cannot be directed: the exact posterior gives half to either direction.
    rng = np.random.default_rng(0)
    cause = rng.normal(size=300)
    values = np.column_stack([cause, cause + rng.normal(size=300)])
    score = BGe().prepare(values)
    found = run_variational(Variational(), score, edge_prior(score.nodes, 0.2), seed=0)
    exact, _ = exact_probabilities(score)
    np.testing.assert_allclose(found.graph_posterior.edge_probabilities(), exact, atol=0.15)
    assert found.status.code == "warning"
    assert "orders engine" in found.status.sentence


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match="restarts"):
        Variational(restarts=0)
    with pytest.raises(ConfigError, match="pairs"):
        Variational(pairs=1.5)
