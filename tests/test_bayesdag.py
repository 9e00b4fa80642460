"""BayesDAG: its order and its derivative, its sampler's stationary law, its losses by hand, and what it finds."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import run_baseline
from scipy.linalg import solve_discrete_lyapunov
from scipy.special import expit

import vcuda
from vcuda.baselines.bayesdag import BayesDag, Draws, _graphs, _program
from vcuda.baselines.bayesdag_chains import Batch, Chain, Helped, Problem, hamiltonian_step
from vcuda.baselines.bayesdag_model import (
    SLOPE,
    Dense,
    edge_logits,
    helper_layers,
    messages_of,
    ordered,
    predict,
    soft_ranks,
    start_functions,
)
from vcuda.errors import ConfigError
from vcuda.graphs import is_dag
from vcuda.infer.compilation import double_precision, use_compilation_cache

NODES, CHAINS = 4, 3


@pytest.fixture(autouse=True)
def _cache():
    use_compilation_cache()


def balanced(numbers):
    """Sinkhorn's fixed point as the authors write it, in double precision and to the end."""
    matrix = np.exp(np.outer(numbers, 10.0 * np.arange(1, len(numbers) + 1)) / 0.2)
    for _ in range(2000):
        matrix /= matrix.sum(axis=1, keepdims=True)
        matrix /= matrix.sum(axis=0)
    return matrix


class TestOrder:
    numbers = np.array([0.02, -0.01, 0.05, 0.03])

    def test_soft_ranks_are_sinkhorns_fixed_point(self):
        found = np.asarray(jax.jit(soft_ranks, static_argnums=1)(jnp.asarray(self.numbers, dtype=jnp.float32), 3000))
        # Sums are within 1e-3 of one, and so is what differs from the fixed point, times a small factor.
        np.testing.assert_allclose(found, balanced(self.numbers), atol=3e-3)
        np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-3)
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-3)

    @pytest.mark.slow
    def test_derivatives_are_those_of_the_fixed_point(self, monkeypatch):
        monkeypatch.setattr("vcuda.baselines.bayesdag_model.TOLERANCE", 1e-13)
        upstream = np.random.default_rng(0).normal(size=(NODES, NODES))
        with double_precision():
            slope = jax.jit(jax.grad(lambda numbers: jnp.sum(upstream * soft_ranks(numbers, 50_000))))
            found = np.asarray(slope(jnp.asarray(self.numbers)))
        step = 1e-5 * np.eye(NODES)
        expected = [
            (upstream * (balanced(self.numbers + up) - balanced(self.numbers - up))).sum() / 2e-5 for up in step
        ]
        # The system, whose smallest eigenvalue but one is 0.5, is solved with 1e-5 added to its diagonal.
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    @pytest.mark.slow
    def test_a_node_far_off_leaves_the_derivatives_of_the_others(self):
        near = np.array([0.0091, 0.0097, 0.011, 0.0116, 0.012, 0.0121, 0.014, 0.0125, 0.0105])
        upstream = np.random.default_rng(2).normal(size=(10, 10)).astype(np.float32)

        @partial(jax.jit, static_argnums=1)
        def slope(numbers, nodes):
            return jax.grad(lambda numbers: jnp.sum(upstream[:nodes, :nodes] * soft_ranks(numbers, 3000)))(numbers)

        found = np.asarray(slope(jnp.asarray([*near, 0.5875], dtype=jnp.float32), 10))
        alone = np.asarray(slope(jnp.asarray(near, dtype=jnp.float32), 9))
        # The far one has the last rank for sure, and is beyond any change; the ranks of the others are 1 to 9 either
        # way. Sums are off by up to 1e-3, and exponents of 50 * 0.5 * 4.5 by 1e-5.
        np.testing.assert_allclose(found[:9], alone, rtol=1e-2, atol=1e-2 * np.abs(alone).max())
        assert abs(found[9]) < 1e-3 * np.abs(alone).max()

    @pytest.mark.parametrize("scale", [1e-6, 1.0, 30.0])
    def test_near_numbers_give_flat_ranks_and_far_ones_the_order_at_once(self, scale):
        numbers = np.array([0.2, -0.1, 0.5, 0.3]) * scale
        found = np.asarray(jax.jit(soft_ranks, static_argnums=1)(jnp.asarray(numbers, dtype=jnp.float32), 3))
        expected = np.full((4, 4), 0.25) if scale < 1 else np.eye(4)[[1, 0, 3, 2]]
        # Far numbers leave exp(-50 * 0.1 / 2) = 0.08 to neighbours at scale 1, and nothing at scale 30.
        np.testing.assert_allclose(found, expected, atol={1e-6: 1e-3, 1.0: 0.12, 30.0: 1e-6}[scale])

    @pytest.mark.slow
    def test_the_larger_number_is_the_cause_and_gradients_are_those_of_the_dense_product(self):
        lower, upstream = np.tril(np.ones((4, 4)), -1), np.random.default_rng(1).normal(size=(4, 4))
        numbers = jnp.asarray(self.numbers, dtype=jnp.float32)

        def dense(numbers):
            soft = soft_ranks(numbers, 3000)
            hard = jnp.eye(4)[jnp.argsort(jnp.argsort(numbers))]
            permutation = hard + soft - jax.lax.stop_gradient(soft)
            return jnp.sum(upstream * (permutation @ lower @ permutation.T)), permutation

        def ours(numbers):
            order = ordered(numbers, 3000)
            return jnp.sum(upstream * order.admitted), order

        (_, order), found = jax.jit(jax.value_and_grad(ours, has_aux=True))(numbers)
        (_, permutation), expected = jax.jit(jax.value_and_grad(dense, has_aux=True))(numbers)
        np.testing.assert_array_equal(order.admitted, self.numbers[:, None] > self.numbers[None, :])
        np.testing.assert_allclose(order.ranks, permutation, atol=1e-6)
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    def test_graphs_are_always_dags(self):
        program = _program(BayesDag.corrected(chains=CHAINS))
        state = program.init(np.random.default_rng(0), NODES)
        rng, edges = np.random.default_rng(1), 0
        for _ in range(100):
            values = rng.normal(size=(CHAINS, NODES)).astype(np.float32)
            graphs = _graphs(program, Draws(values, state.helped, np.zeros(0)), rng)
            assert all(is_dag(graph) for graph in graphs)
            assert not np.any(graphs & (values[:, :, None] <= values[:, None, :]))
            edges += graphs.sum()
        # 300 graphs of six pairs with logits about zero.
        assert 0.3 < edges / 1800 < 0.7


class TestSampler:
    def test_one_step_by_hand(self):
        rng = np.random.default_rng(0)
        value, momentum, square, gradient, kick = rng.normal(size=(5, 3))
        square = square**2
        moved = hamiltonian_step(
            Chain(*(jnp.asarray(array) for array in (value, momentum, square))),
            jnp.asarray(gradient),
            jnp.asarray(kick),
            noise=0.3,
            learning_rate=3e-4,
        )
        step = np.sqrt(3e-4)
        friction = (1 - 0.9) / step
        mean = 0.99 * square + 0.01 * gradient**2
        scale = 1 / np.sqrt(1e-8 + np.sqrt(1e-8 + mean))
        after = 0.9 * momentum + step * scale * gradient + 0.3 * kick * np.sqrt(2 * step * (friction - step / 2))
        np.testing.assert_allclose(moved.square, mean, rtol=1e-5)
        np.testing.assert_allclose(moved.momentum, after, rtol=1e-5)
        np.testing.assert_allclose(moved.value, value - step * scale * after, rtol=1e-5)

    @pytest.mark.slow
    @pytest.mark.parametrize("noise", [1.0, 0.5])
    def test_the_stationary_law_of_a_known_target(self, noise):
        """Normal targets of three widths, many chains at once, with the preconditioner held fast at one.

        Every step is then linear, so that the stationary covariance of value and momentum solves a Lyapunov equation;
        and it must be that of the target at temperature noise², up to the length of the steps.
        """
        widths, size, rate = np.array([0.2, 0.3, 0.5]), 4000, 3e-4
        precision = jnp.asarray(1 / widths[:, None] ** 2, dtype=jnp.float32)

        def body(k, carry):
            chain, key = carry
            kick = jax.random.normal(jax.random.fold_in(key, k), chain.value.shape)
            moved = hamiltonian_step(
                chain, chain.value * precision, kick, noise=noise, learning_rate=rate, square_decay=1.0
            )
            return moved, key

        still = jnp.zeros((3, size))
        # The slowest forgets its start as exp(-rate / 0.1 / 0.5² k): by exp(-12) in 1,000 steps.
        run = jax.jit(lambda chain, key: jax.lax.fori_loop(0, 1000, body, (chain, key))[0])
        chain = run(Chain(still, still, jnp.ones((3, size))), jax.random.key(0))
        step, spread = np.sqrt(rate), noise * np.sqrt(2 * 0.1 - rate)
        for k, width in enumerate(widths):
            momentum = np.array([step / width**2, 0.9])  # of value and momentum
            moves = np.array([[1 - step * momentum[0], -step * momentum[1]], momentum])
            kicks = spread * np.array([[-step], [1.0]])
            exact = solve_discrete_lyapunov(moves, kicks @ kicks.T)
            for found, variance in ((chain.value[k], exact[0, 0]), (chain.momentum[k], exact[1, 1])):
                mean_z = np.mean(found) / np.sqrt(variance / size)
                # A variance from normal draws has the relative standard deviation sqrt(2 / size).
                variance_z = (np.var(found) / variance - 1) / np.sqrt(2 / size)
                assert abs(mean_z) < 4
                assert abs(variance_z) < 4
            # The error of the steps is of the order (step / width)² = 0.75 % for the narrowest, measured in its units.
            np.testing.assert_allclose(exact[0, 0], (noise * width) ** 2, rtol=2 * (step / width) ** 2)

    @pytest.mark.slow
    def test_averaging_the_chains_heats_them_by_their_number(self):
        """With the preconditioner held fast, a tenth of the gradient is the target at ten times the temperature."""
        size, rate, width = 4000, 3e-4, 0.2

        def body(k, carry):
            chain, key = carry
            kick = jax.random.normal(jax.random.fold_in(key, k), chain.value.shape)
            slope = chain.value / width**2 / 10
            return hamiltonian_step(chain, slope, kick, noise=1.0, learning_rate=rate, square_decay=1.0), key

        still = jnp.zeros(size)
        run = jax.jit(lambda chain, key: jax.lax.fori_loop(0, 1600, body, (chain, key))[0])
        found = np.var(run(Chain(still, still, jnp.ones(size)), jax.random.key(1)).value)
        # Forgotten by exp(-2 * 1600 * 3e-3 / 0.4) = exp(-24); four standard deviations, and 0.1 % for the steps.
        assert abs(found / (10 * width**2) - 1) < 4 * np.sqrt(2 / size) + 1e-3


def start(spec, seed=0):
    program, rng = _program(spec), np.random.default_rng(seed)
    state = program.init(rng, NODES)
    scales = (0.2 * rng.normal(size=(CHAINS, NODES))).astype(np.float32)
    return program, state._replace(helped=state.helped._replace(log_scale=scales))


class TestLosses:
    rows = np.random.default_rng(5).normal(size=(8, NODES)).astype(np.float32)
    weight = np.array([1, 1, 1, 1, 1, 1, 0, 0], dtype=np.float32)
    noise = np.random.default_rng(6).logistic(size=(CHAINS, NODES, NODES)).astype(np.float32)

    def problem(self, part=1.0):
        return Problem(self.rows, 50.0, 7.0, part)

    def losses(self, program, state, problem):
        messages = np.broadcast_to(self.rows, (CHAINS, *self.rows.shape))
        sampled = (state.orders.value, state.functions.value, messages, state.helped, self.noise)
        return jax.jit(program.losses)(*sampled, problem, Batch(self.rows, self.weight))

    def by_hand(self, state, offset):
        """All three losses, each chain with part one, and the gradient of the second by the weights of the edges."""
        (first, second, last), (bias, second_bias, last_bias) = (
            [np.asarray(array, dtype=np.float64) for array in arrays] for arrays in state.helped.helper[:2]
        )
        off, used = ~np.eye(NODES, dtype=bool), self.rows[:6].astype(np.float64)
        losses, slopes = np.zeros(3), []
        for chain in range(CHAINS):
            numbers = np.asarray(state.orders.value[chain], dtype=np.float64)
            weights = np.asarray(state.functions.value.weights[chain], dtype=np.float64)
            log_scale = np.asarray(state.helped.log_scale[chain], dtype=np.float64)
            units = np.maximum(numbers @ first + bias, 0)
            units = units + np.maximum(units @ second + second_bias, 0)
            raw = (units @ last + last_bias).reshape(NODES, NODES)
            graph = (raw + offset + self.noise[chain] > 0) & off & (numbers[:, None] > numbers[None, :])
            residual = used - used @ (graph * weights)
            density = -0.5 * (residual / np.exp(log_scale)) ** 2 - log_scale - 0.5 * np.log(2 * np.pi)
            shared = density.sum(axis=1).mean() - 7 / 50 * graph.sum()
            present = expit(raw[off])
            entropy = -(present * np.log(present) + (1 - present) * np.log(1 - present)).sum()
            priors = (-(numbers**2).sum() / (2 * 0.1**2), -(weights**2).sum() / 2, entropy)
            losses -= shared + np.array(priors) / 50
            slopes.append(-(graph * (used.T @ (residual / np.exp(2 * log_scale)))) / 6 + weights / 50)
        return losses, np.array(slopes)

    @pytest.mark.slow
    def test_they_are_what_is_written(self):
        program, state = start(BayesDag.reference(chains=CHAINS, sparse_start=True))
        expected, _ = self.by_hand(state, -1.0)
        found = self.losses(program, state, self.problem(part=1 / CHAINS))
        np.testing.assert_allclose(found, expected / CHAINS, rtol=1e-5)

    def test_one_step_of_the_functions_by_hand(self):
        program, state = start(BayesDag.corrected(chains=CHAINS))
        _, slopes = self.by_hand(state, 0.0)
        kick = np.random.default_rng(7).normal(size=slopes.shape).astype(np.float32)
        still = state.functions.value._replace(weights=jnp.asarray(kick))
        step = jax.jit(program._move_functions)
        moved = step(state, self.noise, still, self.problem(), Batch(self.rows, self.weight))
        gradient = 50 * slopes
        scale = 1 / np.sqrt(1e-8 + np.sqrt(1e-8 + 0.01 * gradient**2))
        momentum = np.sqrt(3e-4) * scale * gradient + 0.01 * np.sqrt(0.2 - 3e-4) * kick
        expected = np.asarray(state.functions.value.weights) - np.sqrt(3e-4) * scale * momentum
        np.testing.assert_allclose(moved.functions.value.weights, expected, atol=1e-5)
        np.testing.assert_array_equal(moved.orders.value, state.orders.value)

    def test_an_edge_costs_only_where_it_is(self):
        """The cost pulls an edge that is there down by its helper's logit, and leaves one that is not alone."""
        program, state = start(BayesDag.corrected(chains=CHAINS))
        messages = np.broadcast_to(self.rows, (CHAINS, *self.rows.shape))
        batch = Batch(self.rows, self.weight)

        def loss(biases, sparsity):
            weights, (first, second, _), *rest = state.helped.helper
            helper = Dense(weights, (first, second, biases), *rest)
            sampled = (state.orders.value, state.functions.value, messages, Helped(helper, state.helped.log_scale))
            return program.losses(*sampled, self.noise, Problem(self.rows, 50.0, sparsity), batch)[2]

        slope, last = jax.jit(jax.grad(loss)), state.helped.helper.biases[-1]
        pull = np.asarray(slope(last, 7.0) - slope(last, 0.0)).reshape(NODES, NODES)
        numbers, drawn = np.asarray(state.orders.value), self.noise.astype(np.float64)
        logits = np.asarray(program.logits(state.helped.helper, state.orders.value), dtype=np.float64)
        admitted = numbers[:, :, None] > numbers[:, None, :]
        there = admitted & (logits + drawn > 0)
        soft = expit((logits + drawn) / 0.2)
        expected = (7 / 50 * there * soft * (1 - soft) / 0.2).sum(axis=0)
        np.testing.assert_allclose(pull, expected, atol=1e-6)
        assert np.any(~there.any(axis=0) & admitted.any(axis=0))

    def test_the_entropy_counts_as_often_as_the_problem_says(self):
        program, state = start(BayesDag.corrected(chains=CHAINS))
        cached, thrice = (self.losses(program, state, self.problem()._replace(entropy_weight=w)) for w in (1.0, 3.0))
        logits = np.asarray(program.logits(state.helped.helper, state.orders.value), dtype=np.float64)
        present = expit(logits[:, ~np.eye(NODES, dtype=bool)])
        entropy = -(present * np.log(present) + (1 - present) * np.log(1 - present)).sum()
        np.testing.assert_allclose(cached[2] - thrice[2], 2 * entropy / 50, rtol=1e-4)
        assert cached[:2] == thrice[:2]

    @pytest.mark.slow
    def test_entropy_with_and_without_the_constant(self):
        seen = []
        for raw in (True, False):
            program, state = start(BayesDag.corrected(chains=CHAINS, sparse_start=True, entropy_of_raw_logits=raw))
            seen.append(self.losses(program, state, self.problem())[2])
        # Raw logits near zero are less sure than those near minus one, and entropy lowers the loss.
        assert seen[0] < seen[1]

    @pytest.mark.parametrize("normalise", [False, True])
    def test_shared_networks_by_their_formula(self, normalise):
        rng = np.random.default_rng(0)
        functions = start_functions(rng, NODES, nonlinear=True, normalise=normalise)
        assert functions.messages.weights[0].shape == (2 * NODES, 64)
        assert len(functions.outputs.gains) == len(functions.outputs.offsets) == normalise
        # Away from the start, where gains are one and offsets zero.
        functions = jax.tree.map(lambda leaf: (leaf + 0.1 * rng.normal(size=leaf.shape)).astype(np.float32), functions)
        graph = np.triu(np.ones((NODES, NODES)), 1)

        def network(layers, inputs):
            units = inputs @ layers.weights[0] + layers.biases[0]
            units = np.where(units > 0, units, SLOPE * units)
            if normalise:
                units = (units - units.mean()) / np.sqrt(units.var() + 1e-5) * layers.gains[0] + layers.offsets[0]
            return units @ layers.weights[1] + layers.biases[1]

        expected = np.zeros((3, NODES))
        for b, row in enumerate(self.rows[:3]):
            messages = []
            for k in range(NODES):
                place = np.eye(NODES)[k] * row[k]
                messages.append(network(functions.messages, np.concatenate([place, functions.embeddings[k]])))
            for i in range(NODES):
                received = sum(graph[k, i] * functions.weights[k, i] * messages[k] for k in range(NODES))
                both = np.concatenate([received, functions.embeddings[i]])
                expected[b, i] = network(functions.outputs, both)[i]
        found = jax.jit(lambda rows: predict(functions, graph, messages_of(functions, rows)))(self.rows[:3])
        np.testing.assert_allclose(found, expected, atol=1e-5)

    @pytest.mark.slow
    @pytest.mark.parametrize("sees_ranks", [False, True])
    def test_a_normalised_helper_by_its_formula(self, sees_ranks):
        rng = np.random.default_rng(3)
        helper = helper_layers(rng, NODES, sees_ranks=sees_ranks, normalise=True)
        helper = jax.tree.map(lambda leaf: leaf + 0.1 * rng.normal(size=leaf.shape), helper)
        numbers, ranks = rng.normal(size=NODES), np.eye(NODES)[[2, 0, 3, 1]]

        def standard(units):
            return (units - units.mean()) / np.sqrt(units.var() + 1e-5)

        inputs = ranks.ravel() if sees_ranks else standard(numbers)
        first = np.maximum(inputs @ helper.weights[0] + helper.biases[0], 0)
        given = standard(first) * helper.gains[0] + helper.offsets[0]
        second = first + np.maximum(given @ helper.weights[1] + helper.biases[1], 0)
        given = standard(second) * helper.gains[1] + helper.offsets[1]
        expected = (given @ helper.weights[2] + helper.biases[2]).reshape(NODES, NODES)
        found = edge_logits(helper, jnp.asarray(numbers), jnp.asarray(ranks), sees_ranks=sees_ranks)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def chain(rows=250, seed=0):
    """c -> a -> b with equal noise, far from zero and of different scales, and d apart."""
    rng = np.random.default_rng(seed)
    c = rng.normal(size=rows)
    a = 1.5 * c + rng.normal(size=rows)
    b = -1.5 * a + rng.normal(size=rows)
    values = np.column_stack([10 * a + 3, b - 50, c, 0.1 * rng.normal(size=rows)])
    return vcuda.as_dataset(values, names=["a", "b", "c", "d"])


class TestFits:
    @pytest.mark.slow
    def test_neighbours_are_found_and_predictions_are_in_the_units_of_the_data(self):
        spec = BayesDag.reference(chains=CHAINS, samples=30, epochs=600, sparsity=20)
        result = run_baseline(spec, chain(), seed=0)
        assert result.status.code == "ok"
        assert len(result.graph_posterior.graphs) == 30
        either = result.graph_posterior.scores + result.graph_posterior.scores.T
        # c - a and a - b are worth n/2 log(1 / (1 - r²)) = 146 and 265 nats against a cost of 20: all chains should
        # have them, so that draws lack them by chance alone (seeds 0 to 7: 0 to 2 draws of 30).
        assert either[0, 2] > 0.8
        assert either[0, 1] > 0.8
        # An edge to d is worth half a nat. The cost, which pulls where the edge is there, in half of the orders, meets
        # the entropy, counted three times, at the logit -20 / 4 / 3: a pair has an edge with probability 0.16. The mean
        # of three pairs in as many chains, taken for one draw each, has the standard deviation 0.12: three of them.
        assert either[3, :3].mean() < 0.16 + 3 * 0.12
        graph_posterior = result.graph_posterior
        seen = graph_posterior.predict(np.random.default_rng(0), chain(seed=1).values, 30)
        # A graph with the right neighbours and no false collider leaves 1/3.25 of one variance and 1/8.3 of another, or
        # as much in other columns: log(1/27) = -3.3 together. The mean over graphs and the training cost some of it.
        left = ((chain(seed=1).values - seen.mean) ** 2).mean(axis=0) / chain(seed=1).values.var(axis=0)
        assert np.log(left).sum() < -2

    @pytest.mark.slow
    def test_too_dear_edges_leave_nothing_and_say_so(self):
        spec = BayesDag.reference(chains=CHAINS, samples=30, epochs=600, sparsity=3000)
        result = run_baseline(spec, chain(), seed=0)
        assert result.status.code == "warning"
        assert "all but empty" in result.status.sentence

    @pytest.mark.slow
    def test_the_cost_that_predicts_best_is_kept(self):
        spec = BayesDag.reference(chains=CHAINS, samples=30, epochs=600, sparsity=(3000, 20))
        result = run_baseline(spec, chain(), seed=0)
        assert result.diagnostics["sparsity"] == 20
        assert result.diagnostics["held_out_fits"][1] > result.diagnostics["held_out_fits"][0]

    def test_signed_weights_are_the_means_of_the_samples(self):
        few = {"chains": CHAINS, "samples": 8, "epochs": 3, "sparsity": 1.0}
        signed = run_baseline(BayesDag.reference(**few, scores="signed weights", standardise=False), chain(), seed=0)
        weights = (signed.graph_posterior.networks.weights[0][..., 0] * signed.graph_posterior.graphs.dense()).mean(
            axis=0
        )
        off = ~np.eye(4, dtype=bool)
        np.testing.assert_allclose(
            signed.graph_posterior.scores[off], (weights - min(weights.min(), 0))[off], atol=1e-6
        )

    def test_numbers_that_are_not_finite_end_in_a_failure_with_a_sound_state(self):
        values = chain().values * 1e25  # their squares are not finite in single precision
        few = {"chains": CHAINS, "samples": 8, "epochs": 3, "sparsity": 1.0}
        result = run_baseline(BayesDag.reference(**few, standardise=False), vcuda.as_dataset(values), seed=0)
        assert result.status.code == "failed"
        assert np.isfinite(result.graph_posterior.scores).all()
        assert result.graph_posterior.graphs.all_acyclic()

    @pytest.mark.slow
    def test_curves_run_and_give_graphs_only(self):
        spec = BayesDag.corrected(nonlinear=True, chains=2, samples=4, epochs=2, thin=2, sparsity=1.0)
        assert spec.helper_sees_ranks
        result = run_baseline(spec, chain(rows=60), seed=0)
        assert result.status.code in ("ok", "warning")
        assert result.graph_posterior.networks is None
        assert result.graph_posterior.graphs.all_acyclic()

    def test_presets(self):
        assert BayesDag.reference().sparsity == (100.0,)
        assert BayesDag.reference(nonlinear=True).sparsity == (500.0,)
        assert BayesDag.reference(nonlinear=True, epochs=3).epochs == 3
        assert not BayesDag.corrected().average_chains

    def test_bad_options_are_refused(self):
        with pytest.raises(ConfigError, match="sparsity of bayesdag"):
            BayesDag(sparsity=())
        with pytest.raises(ConfigError, match="learning_rate of bayesdag must lie between"):
            BayesDag(learning_rate=0.3)
        with pytest.raises(ConfigError, match="scores of bayesdag must be one of graphs, signed weights"):
            BayesDag(scores="weights")
        with pytest.raises(ConfigError, match="chains of bayesdag must be at least 1"):
            BayesDag(chains=0)
