"""The variational engine: the ELBO is the paper's, the loop stops well, the numbers repeat."""

from dataclasses import replace
from itertools import permutations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import run_trained
from scipy.special import expit
from scipy.stats import multivariate_normal

from vcuda.dags.base import DagPrior, no_self_loops
from vcuda.dags.permutation import TopKDags
from vcuda.dags.priority import PriorityDags, PriorityParams
from vcuda.data.reading import as_dataset
from vcuda.data.simulate import simulate
from vcuda.errors import ConfigError
from vcuda.infer.straight_through import StraightThrough
from vcuda.infer.straight_through.early_stopping import EarlyStopping, choose
from vcuda.infer.straight_through.elbo import Rows, Terms, Trained, elbo_terms, pad_rows, split_rows
from vcuda.infer.straight_through.program import Problem, Program
from vcuda.models import MLP, Linear
from vcuda.models.functional.base import log_density

QUICK = StraightThrough(epochs=20, restarts=2, graph_samples=2, validation_graphs=4)


@pytest.fixture(scope="module")
def data():
    return simulate("er", nodes=5, edges=5, rows=120, test_rows=50, seed=3)


@pytest.mark.slow
def test_monte_carlo_elbo_agrees_with_enumeration_of_all_edges_and_orders():
    """Every W (2^6) and every order (3!) of three nodes, with the order's probability by a Gaussian integral."""
    nodes, model, prior, family = 3, Linear(noise="unit"), DagPrior(0.2), PriorityDags()
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(size=(8, nodes)), dtype=jnp.float32)
    logits, means, scale = rng.normal(size=(nodes, nodes)), np.array([0.4, -0.3, 0.1]), 0.6
    params = PriorityParams(jnp.asarray(logits, jnp.float32), jnp.asarray(means, jnp.float32), jnp.log(scale))
    trained = Trained(params, model.init(jax.random.key(1), nodes))

    likelihood = 0.0
    pairs = [(i, j) for i in range(nodes) for j in range(nodes) if i != j]
    covariance = scale**2 * (np.eye(2) * 2 - np.eye(2)[::-1])
    for order in permutations(range(nodes)):
        gaps = np.diff(means[list(order)])  # both must be positive: p rises along the order
        order_probability = multivariate_normal.cdf(gaps, cov=covariance)
        rank = np.argsort(order)
        for bits in product((0, 1), repeat=len(pairs)):
            graph, edge_probability = np.zeros((nodes, nodes), np.float32), 1.0
            for (i, j), bit in zip(pairs, bits, strict=True):
                edge_probability *= expit(logits[i, j]) if bit else expit(-logits[i, j])
                graph[i, j] = bit and rank[i] < rank[j]
            likelihood += (
                order_probability * edge_probability * float(log_density(model, trained.model, rows, graph).sum())
            )

    draws = 4000
    table = Rows(rows, jnp.ones(len(rows)), jnp.asarray(float(len(rows))))
    estimate = jax.jit(
        lambda key: elbo_terms(family, model, prior, trained, key[None], table, 16.0, no_self_loops(nodes))
    )
    terms = jax.vmap(estimate)(jax.random.split(jax.random.key(2), draws))
    # Sixteen rows were asked for and eight given: the likelihood is scaled by two. Four standard errors: one failure
    # in 16,000 for a right formula; the wrong orientation is off by more than 100 of them.
    error = float(terms.likelihood.std()) / np.sqrt(draws)
    assert abs(float(terms.likelihood.mean()) - 2 * likelihood) < 4 * error

    probability = expit(logits)[~np.eye(nodes, dtype=bool)]
    kl_edges = np.sum(probability * np.log(probability / 0.2) + (1 - probability) * np.log((1 - probability) / 0.8))
    ratio = scale / prior.order_scale
    kl_order = np.sum(0.5 * (ratio**2 + (means / prior.order_scale) ** 2 - 1) - np.log(ratio))
    np.testing.assert_allclose(terms.kl_edges, kl_edges, rtol=1e-5)
    np.testing.assert_allclose(terms.kl_order, kl_order, rtol=1e-5)
    np.testing.assert_allclose(terms.elbo, terms.likelihood - kl_edges - kl_order, rtol=1e-5)


@pytest.mark.slow
def test_paper_preset_minimises_the_authors_loss(data):
    """One step of Adam with the gradient of (sum of squares + KL) / d, coupled decay, done by hand."""
    engine = StraightThrough.paper(batch_size=1000)
    model, prior, nodes = Linear(noise="unit", bias=False), DagPrior(0.1), data.train.d
    train, validation = split_rows(data.train.values, held_out_share=0.1, batch_size=1000)
    key = jax.random.key(5)
    allowed = jnp.asarray(no_self_loops(nodes))
    program = Program(engine, model, prior)
    state = program._init(key, key, nodes)
    start = state.trained
    after, _ = program._step(Problem(train, validation, allowed), 1.0, 3, 0, state, np.arange(len(train.weight)))
    sample_key = jax.random.split(jax.random.fold_in(key, 3), 1)[0]

    def authors_loss(trained):
        graph = engine.dags.sample(sample_key, trained.dags, allowed)
        predicted = train.values @ (graph * trained.model.functions.weights)
        squares = jnp.sum(train.weight[:, None] * (train.values - predicted) ** 2)
        kl = engine.dags.kl(trained.dags, prior, allowed)
        return (squares + kl.edges + kl.order) / nodes

    gradient = jax.grad(authors_loss)(start)
    weights, slope = (
        start.model.functions.weights,
        gradient.model.functions.weights + 1e-4 * start.model.functions.weights,
    )
    # The first step of Adam is learning rate * g / (|g| + eps), whatever the size of g: so compare Adam's memory too.
    np.testing.assert_allclose(
        after.trained.model.functions.weights, weights - 5e-3 * slope / (jnp.abs(slope) + 1e-8), atol=2e-6
    )
    means, pull = start.dags.means, gradient.dags.means
    np.testing.assert_allclose(after.trained.dags.means, means - 1e-2 * pull / (jnp.abs(pull) + 1e-8), atol=2e-6)
    first_moments = [leaf for leaf in jax.tree.leaves(after.optimiser) if leaf.shape == slope.shape]
    assert any(np.allclose(moment, 0.1 * slope, rtol=1e-3, atol=1e-4) for moment in first_moments)


@pytest.mark.slow
def test_padding_does_not_count():
    values = np.random.default_rng(0).normal(size=(37, 3))
    padded = pad_rows(values, 16)
    assert padded.values.shape[0] % 16 == 0
    assert padded.values.shape[0] > 37
    model, family, prior = Linear(), PriorityDags(), DagPrior(0.3)
    trained = Trained(family.init(jax.random.key(0), 3), model.init(jax.random.key(1), 3))
    plain = Rows(jnp.asarray(values, jnp.float32), jnp.ones(37), jnp.asarray(37.0))
    both = [
        elbo_terms(family, model, prior, trained, jax.random.split(jax.random.key(2), 4), rows, 37.0, no_self_loops(3))
        for rows in (padded, plain)
    ]
    np.testing.assert_allclose(both[0].elbo, both[1].elbo, rtol=1e-5)


def test_few_lengths_are_compiled_for():
    lengths = {pad_rows(np.zeros((n, 2)), 1).values.shape[0] for n in range(512, 1025)}
    assert len(lengths) == 9


def watched(losses, *, keep_best=True):
    restarts = len(losses[0])
    states = [Trained(dags=jnp.full((restarts, 1), float(k)), model=()) for k in range(len(losses) + 1)]
    watch = EarlyStopping.start(states[0], restarts)
    for k, loss in enumerate(losses, start=1):
        terms = Terms(*np.zeros((3, restarts)))
        watch = watch.look(states[k], terms, np.array(loss), patience=2, keep_best=keep_best)
    return watch


def test_each_restart_stops_by_itself_and_its_best_state_is_kept():
    watch = watched([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0], [2.0, 0.0]])
    assert watch.active.tolist() == [True, False]
    assert watch.kept.dags[:, 0].tolist() == [3.0, 1.0]
    assert watch.stopped_at.tolist() == [4, 3]


def test_the_authors_variant_keeps_the_last_state():
    watch = watched([[1.0], [2.0], [3.0]], keep_best=False)
    assert not watch.active[0]
    assert watch.kept.dags[0, 0] == 3.0


@pytest.mark.parametrize("keep_best", [True, False])
def test_what_the_device_reads_later_is_not_changed_meanwhile(keep_best, monkeypatch):
    """An array of the host may be handed over without a copy, and computed with after the call has returned."""
    given = []

    def report(which, new, old):
        given.append((which, which.copy()))
        return choose(which, new, old)

    monkeypatch.setattr("vcuda.infer.straight_through.early_stopping.choose", report)
    assert not watched([[1.0], [2.0], [3.0]], keep_best=keep_best).active[0]
    assert len(given) == 3
    assert all(np.array_equal(now, then) for now, then in given)


def test_a_restart_that_breaks_down_goes_back_to_its_last_finite_state():
    watch = watched([[3.0, 3.0], [2.0, np.nan], [1.0, 1.0]])
    assert watch.failed.tolist() == [False, True]
    assert watch.kept.dags[:, 0].tolist() == [3.0, 1.0]


@pytest.mark.slow
def test_same_seed_same_posterior_and_another_seed_another_one(data):
    def probabilities(seed):
        return run_trained(
            QUICK, data.train, model=Linear(), prior=DagPrior(0.2), seed=seed
        ).graph_posterior.edge_probabilities()

    np.testing.assert_array_equal(probabilities(1), probabilities(1))
    assert np.abs(probabilities(1) - probabilities(2)).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("model", [Linear(noise="equal"), MLP(hidden=(4,), noise="unequal")], ids=str)
def test_mini_batches_and_other_families_train(data, model):
    engine = replace(QUICK, batch_size=32, dags=TopKDags(), restarts=1)
    outcome = run_trained(engine, data.train, model=model, prior=DagPrior(0.2), seed=0)
    elbo = outcome.trace["likelihood"] - outcome.trace["kl_edges"] - outcome.trace["kl_order"]
    assert elbo[-1] > elbo[0]
    assert np.isfinite(outcome.graph_posterior.edge_probabilities()).all()


@pytest.mark.slow
def test_a_clear_cause_is_found():
    """x -> y with a strong effect, raw scales and unit noise: the direction is identified, and the ELBO rises."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    table = as_dataset(np.column_stack([2 * x + rng.normal(size=600), x]), names=["y", "x"])
    outcome = run_trained(StraightThrough(), table, model=Linear(noise="unit"), prior=DagPrior(0.5), seed=0)
    probabilities = outcome.graph_posterior.edge_probabilities()
    assert probabilities[1, 0] > 0.9
    assert probabilities[0, 1] < 0.1


@pytest.mark.slow
def test_breakdown_is_told_not_raised(data):
    engine = replace(QUICK, learning_rate=1e30)
    outcome = run_trained(engine, data.train, model=Linear(), prior=DagPrior(0.2), seed=0)
    assert outcome.status.code == "failed"
    assert "do not use" in outcome.status.sentence
    assert np.isfinite(outcome.graph_posterior.edge_probabilities()).all()


@pytest.mark.slow
def test_how_far_the_host_lets_a_chunk_run_changes_no_number(data, monkeypatch):
    def probabilities():
        engine = replace(QUICK, batch_size=32)
        return run_trained(
            engine, data.train, model=Linear(), prior=DagPrior(0.2), seed=1
        ).graph_posterior.edge_probabilities()

    usual = probabilities()
    monkeypatch.setattr("vcuda.infer.progress.SECONDS_A_CHUNK", 1e-9)
    np.testing.assert_array_equal(probabilities(), usual)


@pytest.mark.slow
def test_an_interrupt_returns_what_is_done(data):
    def impatient(progress):
        if progress.done == 1:
            raise KeyboardInterrupt

    outcome = run_trained(QUICK, data.train, model=Linear(), prior=DagPrior(0.2), seed=0, progress=impatient)
    assert outcome.status.code == "interrupted"
    assert outcome.trace["likelihood"].shape == (1, 2)


@pytest.mark.slow
def test_an_interrupt_before_the_first_check_returns_what_is_done(data, monkeypatch):
    monkeypatch.setattr("vcuda.infer.progress.SECONDS_A_CHUNK", 0.0)  # so that every stretch of steps is reported

    def impatient(progress):
        assert 0 < progress.done < 1
        raise KeyboardInterrupt

    outcome = run_trained(QUICK, data.train, model=Linear(), prior=DagPrior(0.2), seed=0, progress=impatient)
    assert outcome.status.code == "interrupted"
    assert np.isfinite(outcome.graph_posterior.edge_probabilities()).all()


def test_too_few_epochs_are_a_warning(data):
    outcome = run_trained(QUICK, data.train, model=Linear(), prior=DagPrior(0.2), seed=0)
    assert outcome.status.code == "warning"
    assert "more epochs" in outcome.status.sentence


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"validation_share": 1.0},
        {"kl_weight": -1.0},
        {"kl_weight": "auto"},
        {"scaling": "log"},
        {"validation": "none"},
    ],
    ids=str,
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError):
        StraightThrough(**options)
