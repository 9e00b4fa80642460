"""DDS: one step by hand, the limits of its temperatures, when it stops, and what it finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import run_baseline
from scipy.special import expit, log_softmax

from vcuda.baselines.dds import Dds, admitted, marginals, settled_graph, settled_order
from vcuda.baselines.dds_program import Program, Trained, predict, shuffled_batches
from vcuda.baselines.networks import as_networks
from vcuda.dags.permutation import SinkhornDags, SinkhornParams, TopKDags, TopKParams
from vcuda.errors import ConfigError
from vcuda.graphs import is_dag
from vcuda.infer.compilation import use_compilation_cache
from vcuda.models.functional.mlp import Layers

NODES = 4


@pytest.fixture(autouse=True)
def _cache():
    use_compilation_cache()


def rows_of(size, seed=0):
    return np.random.default_rng(seed).normal(size=(size, NODES)).astype(np.float32)


def start(spec, seed=0):
    """A program and a state with an order that is no longer uniform."""
    program, rng = Program(spec), np.random.default_rng(seed)
    state = program.init(rng, NODES)
    shape = state.trained.dags.order_logits.shape
    dags = state.trained.dags._replace(order_logits=jnp.asarray(rng.normal(size=shape), dtype=jnp.float32))
    return program, state._replace(trained=state.trained._replace(dags=dags))


class TestStep:
    """A linear model with Top-k orders, where all that a step does can be written down in a few lines."""

    def by_hand(self, trained, key, rows, spec):
        """The loss of one step and its gradient by logits, order and weights, in NumPy alone but for the noise."""
        edge_key, order_key = jax.random.split(key)
        logits, early = (np.asarray(array, dtype=np.float64) for array in trained.dags)
        weights = np.asarray(trained.layers.weights[0], dtype=np.float64)[:, :, 0]
        off = ~np.eye(NODES, dtype=bool)
        drawn = logits + np.asarray(jax.random.logistic(edge_key, (NODES, NODES)))
        soft, hard = expit(drawn) * off, (drawn > 0) * off
        noise = np.asarray(jax.random.gumbel(order_key, (NODES,)))

        def relaxed(early):
            scores = log_softmax(early) + noise
            distances = -np.abs(np.sort(scores)[::-1][:, None] - scores[None, :])
            return np.exp(distances) / np.exp(distances).sum(axis=1, keepdims=True)

        scores = log_softmax(early) + noise
        permutation = np.eye(NODES)[np.argsort(-scores)]
        upper = np.triu(np.ones((NODES, NODES)), 1)
        mask = permutation.T @ upper @ permutation
        graph = hard * mask
        residual = rows.astype(np.float64) @ (weights * graph) - rows
        probabilities = expit(logits)
        divergence = probabilities * np.log(probabilities / 0.01) + (1 - probabilities) * np.log(
            (1 - probabilities) / 0.99
        )
        original = 0.01 * (np.log(0.01) - logits)
        cost = divergence if spec.prior == "kl" else original
        loss = (residual**2).mean() + 0.01 * (cost * off).sum() / NODES**2
        by_product = 2 * rows.T @ residual / residual.size  # the derivative by weights * graph
        by_graph = by_product * weights
        slope = probabilities * (1 - probabilities) * (logits - np.log(0.01 / 0.99)) if spec.prior == "kl" else -0.01
        by_logits = by_graph * mask * soft * (1 - soft) + 0.01 * slope * off / NODES**2
        by_mask = by_graph * hard
        by_permutation = upper @ permutation @ by_mask.T + upper.T @ permutation @ by_mask
        by_order = np.zeros(NODES)
        for node, step in enumerate(1e-5 * np.eye(NODES)):
            change = relaxed(early + step) - relaxed(early - step)
            by_order[node] = (by_permutation * change).sum() / 2e-5
        return loss, by_logits, by_order, by_product * graph

    @pytest.mark.slow
    @pytest.mark.parametrize("prior", ["kl", "original"])
    def test_loss_gradient_and_step_are_what_is_written(self, prior):
        spec = Dds(hidden=(), bias=False, prior=prior)
        program, state = start(spec)
        rows, key, allowed = rows_of(30), jax.random.key(3), ~np.eye(NODES, dtype=bool)
        step_key = jax.random.fold_in(key, 0)
        ones = np.ones(len(rows), dtype=np.float32)
        loss, by_logits, by_order, by_weights = self.by_hand(state.trained, step_key, rows, spec)
        slope = jax.jit(jax.value_and_grad(program.sampled_loss))
        value, gradient = slope(state.trained, step_key, rows, ones, allowed)
        # Single precision against double, and differences of 1e-5 for the order.
        np.testing.assert_allclose(value, loss, rtol=1e-5)
        np.testing.assert_allclose(gradient.dags.edge_logits, by_logits, atol=1e-6)
        np.testing.assert_allclose(gradient.dags.order_logits, by_order, atol=1e-5)
        np.testing.assert_allclose(gradient.layers.weights[0][:, :, 0], by_weights, atol=1e-5)
        assert np.abs(by_order).max() > 1e-2

        batches = shuffled_batches(np.random.default_rng(0), len(rows), len(rows), 1)
        moved = program.advance(state, key, rows, batches, 0, 1, allowed)
        # The first step of Adam has the length of the learning rate wherever the gradient is well above 1e-8.
        for after, before, slope, rate in (
            (moved.trained.dags.edge_logits, state.trained.dags.edge_logits, by_logits, 1e-2),
            (moved.trained.dags.order_logits, state.trained.dags.order_logits, by_order, 1e-2),
            (moved.trained.layers.weights[0][:, :, 0], state.trained.layers.weights[0][:, :, 0], by_weights, 1e-3),
        ):
            felt = np.abs(slope) > 1e-5
            assert felt.any()
            np.testing.assert_allclose((after - before)[felt], -rate * np.sign(slope)[felt], rtol=1e-2)

    def test_the_original_prior_raises_every_edge_and_the_divergence_lowers_them(self):
        for prior, sign in (("original", -1), ("kl", 1)):
            program, state = start(Dds(hidden=(), prior=prior))
            nothing = np.zeros((5, NODES), dtype=np.float32)
            graph, allowed = np.zeros((NODES, NODES), dtype=np.float32), ~np.eye(NODES, dtype=bool)
            gradient = jax.jit(jax.grad(program.loss))(state.trained, graph, nothing, np.ones(5), allowed)
            assert np.all(np.sign(gradient.dags.edge_logits)[allowed] == sign)
            if prior == "original":
                np.testing.assert_allclose(gradient.dags.edge_logits[allowed], -0.01 * 0.01 / NODES**2, rtol=1e-5)

    def test_a_short_batch_counts_its_rows_only(self):
        program, state = start(Dds(hidden=(3,)))
        rows, graph = rows_of(6), np.triu(np.ones((NODES, NODES), dtype=np.float32), 1)
        allowed, weight = ~np.eye(NODES, dtype=bool), np.array([1, 1, 1, 1, 0, 0], dtype=np.float32)
        whole = program.loss(state.trained, graph, rows[:4], np.ones(4, dtype=np.float32), allowed)
        np.testing.assert_allclose(program.loss(state.trained, graph, rows, weight, allowed), whole, rtol=1e-6)

    def test_an_epoch_has_every_row_once(self):
        batches = shuffled_batches(np.random.default_rng(0), 10, 4, 3)
        assert batches.rows.shape == batches.weight.shape == (9, 4)
        for epoch in range(3):
            part = slice(3 * epoch, 3 * epoch + 3)
            assert sorted(batches.rows[part][batches.weight[part] > 0].tolist()) == list(range(10))

    @pytest.mark.slow
    @pytest.mark.parametrize("bias", [False, True])
    def test_predictions_are_those_of_the_stored_law(self, bias):
        layers = Program(Dds(hidden=(3, 5), bias=bias)).init(np.random.default_rng(0), NODES).trained.layers
        assert bool(layers.biases) == bias
        rows, graph = rows_of(7), np.triu(np.ones((NODES, NODES)), 1)
        stored = as_networks(layers, np.zeros(NODES), 0.0).predict(graph > 0, rows)
        np.testing.assert_allclose(predict(layers, jnp.asarray(graph), jnp.asarray(rows)), stored, atol=1e-6)

    @pytest.mark.slow
    def test_without_biases_a_node_without_parents_is_not_drawn_to_any(self):
        layers = Program(Dds(hidden=(3,), bias=False)).init(np.random.default_rng(0), NODES).trained.layers
        slope = jax.grad(lambda graph: predict(layers, graph, jnp.asarray(rows_of(9))).sum())
        assert not np.any(slope(jnp.zeros((NODES, NODES))))


class TestTemperature:
    def slopes(self, order, temperature):
        program, state = start(Dds(hidden=(), order=order, order_temperature=temperature))
        ones, allowed = np.ones(30, dtype=np.float32), ~np.eye(NODES, dtype=bool)
        gradient = jax.jit(jax.grad(program.sampled_loss))(state.trained, jax.random.key(1), rows_of(30), ones, allowed)
        return gradient.dags

    @pytest.mark.slow
    @pytest.mark.parametrize(("order", "extreme"), [("topk", 1e6), ("topk", 1e-5), ("sinkhorn", 1e6)])
    def test_hot_and_cold_orders_feel_nothing_and_edges_do_not_care(self, order, extreme):
        """Hot, all permutations are the same mean; cold, the nearest one does not change. Edges have their own.

        Cold, Sinkhorn's twenty iterations do not settle, so there is no limit to look at.
        """
        warm, limit = self.slopes(order, 1.0), self.slopes(order, extreme)
        size = np.abs(warm.order_logits).max()
        assert size > 1e-3
        assert np.abs(limit.order_logits).max() < 1e-3 * size
        np.testing.assert_array_equal(warm.edge_logits, limit.edge_logits)

    def test_a_cold_soft_permutation_is_the_order_and_a_hot_one_is_flat(self):
        scores = jnp.array([0.3, -1.0, 2.0, 0.9])
        order = jnp.argsort(-scores)
        cold = TopKDags(order_temperature=1e-3).soft_permutation(scores, order)
        np.testing.assert_allclose(cold, np.eye(NODES)[[2, 3, 0, 1]], atol=1e-6)
        hot = TopKDags(order_temperature=1e6).soft_permutation(scores, order)
        np.testing.assert_allclose(hot, 1 / NODES, atol=1e-5)


def parameters(order, seed=0):
    rng = np.random.default_rng(seed)
    if order == "topk":
        return TopKParams(rng.normal(size=(NODES, NODES)), rng.normal(size=NODES))
    return SinkhornParams(rng.normal(size=(NODES, NODES)), 2 * rng.normal(size=(NODES, NODES)))


class TestOutput:
    @pytest.mark.parametrize("order", ["topk", "sinkhorn"])
    def test_settled_graphs_are_dags_however_tied(self, order):
        everything = ~np.eye(NODES, dtype=bool)
        for seed in range(50):
            assert is_dag(settled_graph(parameters(order, seed), everything))
        flat = parameters(order)
        flat = flat._replace(edge_logits=np.ones((NODES, NODES)), order_logits=np.zeros_like(flat.order_logits))
        tied = settled_graph(flat, everything)
        assert is_dag(tied)
        assert tied.sum() == NODES * (NODES - 1) / 2

    def test_the_settled_order_by_hand(self):
        assert settled_order(TopKParams(np.zeros((3, 3)), np.array([0.1, 2.0, -1.0]))).tolist() == [1, 0, 2]
        ranks = np.array([[0.0, 0.0, 9.0], [9.0, 0.0, 0.0], [0.0, 9.0, 0.0]])  # rank by node
        assert settled_order(SinkhornParams(np.zeros((3, 3)), ranks)).tolist() == [2, 0, 1]
        assert np.argwhere(admitted(np.array([2, 0, 1]))).tolist() == [[0, 1], [2, 0], [2, 1]]

    @pytest.mark.slow
    @pytest.mark.parametrize("order", ["topk", "sinkhorn"])
    def test_marginals_are_those_of_the_draws(self, order):
        params, allowed = parameters(order), ~np.eye(NODES, dtype=bool)
        allowed[0, 2] = False
        seen = marginals(Dds(order=order), np.random.default_rng(0), params, allowed)
        assert not seen[~allowed].any()
        dags = TopKDags() if order == "topk" else SinkhornDags()
        size = 4000
        sample = jax.jit(jax.vmap(lambda key: dags.sample(key, jax.tree.map(jnp.asarray, params), allowed)))
        share = np.asarray(sample(jax.random.split(jax.random.key(0), size))).mean(axis=0)
        # Twelve pairs at four standard deviations; ten thousand orders add to those of four thousand graphs.
        spread = np.sqrt(seen * (1 - seen) * (1 / size + (order == "sinkhorn") / 10_000))
        assert np.all(np.abs(share - seen) <= 4 * spread)


class TestFits:
    @pytest.mark.slow
    def test_the_best_state_is_kept_and_patience_ends_it(self, curved):
        spec = Dds.corrected(hidden=(), patience=3, epochs=2000, learning_rate=0.05, graph_learning_rate=0.1)
        result = run_baseline(spec, curved(rows=200), seed=0)
        assert result.status.code == "ok"
        looks = result.trace["validation"]
        assert result.diagnostics["validation_loss"] == looks.min()
        assert looks[-4] <= looks[-3:].min()
        assert all(looks[k] > looks[k + 1 : k + 4].min() for k in range(len(looks) - 4))
        assert result.diagnostics["best_epoch"] == 2 * (1 + int(looks.argmin()))

    @pytest.mark.slow
    def test_scores_of_the_two_presets(self, curved):
        few = {"hidden": (4,), "epochs": 6, "graph_learning_rate": 0.1}
        settled = run_baseline(Dds.reference(**few), curved(rows=500), seed=0)
        assert is_dag(settled.graph_posterior.scores > 0)
        assert (
            np.count_nonzero(settled.graph_posterior.scores) == 6
        )  # every pair in one direction, as no logit is minus infinity
        assert settled.graph_posterior.networks.biases == ()
        free = run_baseline(Dds.reference(**few, scores="marginals", samples=3000), curved(rows=500), seed=0)
        assert np.count_nonzero(free.graph_posterior.scores) == 12
        share, seen = free.graph_posterior.graphs.edge_probabilities(), free.graph_posterior.scores
        assert np.all(np.abs(share - seen) <= 4 * np.sqrt(seen * (1 - seen) / 3000))

    @pytest.mark.slow
    def test_the_divergence_expects_fewer_edges_than_the_original_prior(self, curved):
        options = {"hidden": (), "epochs": 60, "patience": 100, "graph_learning_rate": 0.05, "scores": "marginals"}
        original, divergence = (
            run_baseline(preset(**options), curved(rows=500), seed=0).graph_posterior.scores.sum()
            for preset in (Dds.reference, Dds.corrected)
        )
        assert divergence < original

    @pytest.mark.slow
    def test_numbers_that_are_not_finite_end_in_a_failure_with_a_sound_state(self, curved):
        result = run_baseline(Dds.corrected(hidden=(4,), epochs=4, learning_rate=1e30), curved(rows=50), seed=0)
        assert result.status.code == "failed"
        assert np.isfinite(result.graph_posterior.scores).all()
        assert result.graph_posterior.graphs.all_acyclic()

    @pytest.mark.slow
    def test_what_was_not_preselected_has_no_score(self, curved):
        result = run_baseline(Dds.corrected(hidden=(), epochs=2, preselect_from=2), curved(rows=100), seed=0)
        assert result.graph_posterior.scores[3, 1] == 0
        assert not result.graph_posterior.graphs.dense()[:, 3, 1].any()

    def test_bad_options_are_refused(self):
        with pytest.raises(ConfigError, match="order of dds must be one of topk, sinkhorn"):
            Dds(order="sorted")
        with pytest.raises(ConfigError, match="edge_probability of dds must lie between 0 and 1"):
            Dds(edge_probability=0.0)
        with pytest.raises(ConfigError, match="order_temperature"):
            Dds(order_temperature=0.0)
        with pytest.raises(ConfigError, match="hidden of dds"):
            Dds(hidden=(0,))


@pytest.mark.slow
def test_types_of_the_state_do_not_change_between_steps():
    """Or else the first chunk would be compiled twice."""
    program, state = start(Dds(hidden=(3,)))
    batches = shuffled_batches(np.random.default_rng(0), 8, 4, 1)
    moved = program.advance(state, jax.random.key(0), rows_of(8), batches, 0, 2, ~np.eye(NODES, dtype=bool))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), moved) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), state
    )
    assert isinstance(moved.trained, Trained)
    assert isinstance(moved.trained.layers, Layers)
