"""DiBS: gradients against enumeration and differences, likelihoods, kernel, and what it makes of its particles."""

from dataclasses import replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import run_baseline
from scipy import stats
from scipy.special import gammaln, logsumexp

import vcuda
from vcuda.baselines import dibs, dibs_families, dibs_likelihoods
from vcuda.baselines.dibs import Dibs
from vcuda.baselines.dibs_likelihoods import BGeLikelihood, LinearLikelihood, NetworkLikelihood
from vcuda.baselines.dibs_program import (
    Particles,
    Program,
    cycles,
    graph_prior_slopes,
    kernel,
    stein_direction,
    uniforms,
    weighted_slope,
)
from vcuda.errors import ConfigError, ConvergenceWarning
from vcuda.graphs import is_dag
from vcuda.infer.compilation import double_precision
from vcuda.models.linear import BGe


@pytest.fixture(autouse=True)
def _double():
    with double_precision():
        yield


def compiled(function, *arguments):
    """As one program: JAX compiles every single operation otherwise, which takes many times as long."""
    return jax.tree.map(np.asarray, jax.jit(function)(*arguments))


def all_graphs():
    """All 2^6 directed graphs of three nodes, with and without cycles."""
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    graphs = np.zeros((64, 3, 3), dtype=bool)
    for k, bits in enumerate(product([False, True], repeat=6)):
        for (i, j), bit in zip(pairs, bits, strict=True):
            graphs[k, i, j] = bit
    return graphs


EDGES = ~np.eye(3, dtype=bool)


def little_table(rows=6, nodes=3, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, nodes)) @ np.triu(np.ones((nodes, nodes))) + 0.3


def probabilities_of(logits):
    """Of every edge, and of each of the 64 graphs."""
    edge = np.where(EDGES, 1 / (1 + np.exp(-logits)), 0.0)
    graphs = all_graphs()
    return edge, np.prod(np.where(graphs, edge, np.where(EDGES, 1 - edge, 1.0)), axis=(1, 2))


def differences(function, at, step=1e-5):
    slope = np.zeros_like(at)
    for place in np.ndindex(*at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        slope[place] = (float(function(at + moved)) - float(function(at - moved))) / (2 * step)
    return slope


class TestAcyclicity:
    def test_known_graphs(self):
        """(I + G/3)³ = I + G + G²/3 + G³/27: two edges of a 2-cycle give tr G²/3 = 2/3, a triangle tr G³/27 = 1/9."""
        chain, pair, triangle = np.zeros((3, 3, 3))
        chain[0, 1] = chain[1, 2] = chain[0, 2] = 1
        pair[0, 1] = pair[1, 0] = 1
        triangle[0, 1] = triangle[1, 2] = triangle[2, 0] = 1
        values, _ = compiled(cycles, np.array([chain, pair, triangle]))
        np.testing.assert_allclose(values, [0, 2 / 3, 1 / 9], atol=1e-12)

    def test_its_gradient(self):
        graph = np.random.default_rng(0).uniform(size=(4, 4))
        slope = compiled(cycles, graph)[1]
        expected = differences(lambda at: np.trace(np.linalg.matrix_power(np.eye(4) + at / 4, 4)), graph)
        np.testing.assert_allclose(slope, expected, rtol=1e-7)

    def test_the_expectation_over_soft_graphs(self):
        program, key, alpha = Program(Dibs(constraint_samples=8)), jax.random.key(3), jnp.array(1.7)
        scores = np.random.default_rng(1).normal(size=(1, 3, 3))
        drawn = compiled(lambda key: uniforms(key, (1, 8, 3, 3)), key).astype(np.float64)

        def expected(at):
            graphs = np.where(EDGES, 1 / (1 + (1 / drawn - 1) * np.exp(-1.7 * at)), 0.0)[0]
            return np.mean([np.trace(np.linalg.matrix_power(np.eye(3) + graph / 3, 3)) for graph in graphs])

        slope = compiled(program.constraint_slope, scores, key, alpha)
        np.testing.assert_allclose(slope, differences(expected, scores), rtol=1e-4, atol=1e-6)  # single precision


class TestGraphPrior:
    def test_slopes_are_those_of_the_densities(self):
        edge = np.where(~np.eye(8, dtype=bool), np.random.default_rng(0).uniform(size=(8, 8)), 0.0)
        share = 2 * 2 / 7

        def erdos_renyi(at):
            return at.sum() * np.log(share) + (28 - at.sum()) * np.log(1 - share)

        def scale_free(at):
            return -3 * np.log(1 + at.sum(axis=0)).sum()

        for name, density in (("er", erdos_renyi), ("sf", scale_free)):
            slope = compiled(partial(graph_prior_slopes, Dibs(graph_prior=name)), edge[None])[0]
            np.testing.assert_allclose(slope, differences(density, edge), rtol=1e-6)

    def test_log_odds_of_the_sizes_of_the_paper(self):
        odds = {d: float(graph_prior_slopes(Dibs(), jnp.zeros((1, d, d)))[0, 0, 0]) for d in (5, 10, 50, 100)}
        np.testing.assert_allclose([odds[10], odds[50], odds[100]], [-0.22, -2.42, -3.17], atol=0.005)
        assert odds[5] == pytest.approx(np.log(9))  # a probability of one would be infinite


class TestLikelihoodSlope:
    """By the edge scores, for three nodes, where the expectation is a sum over 64 graphs."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("weighting", "tabulated"), [("graph", True), ("graph", False), ("node", True)])
    def test_score_estimator_against_enumeration(self, weighting, tabulated, monkeypatch):
        monkeypatch.setattr(dibs_likelihoods, "TABLE_NODES", 16 if tabulated else 0)
        copies, alpha, values = 20, 1.5, little_table()
        program = Program(Dibs(samples=20_000, weighting=weighting))
        scores = np.random.default_rng(2).normal(size=(3, 3))
        edge, graph_probability = probabilities_of(alpha * scores)
        bge = BGeLikelihood().score(values)
        logs = np.array([sum(bge.score(j, np.flatnonzero(graph[:, j])) for j in range(3)) for graph in all_graphs()])
        posterior = graph_probability * np.exp(logs - logs.max())
        exact = alpha * (np.einsum("g,gij->ij", posterior / posterior.sum(), all_graphs()) - edge)
        prepared, spread = program.likelihood.prepare(values), np.tile(scores, (copies, 1, 1))
        found = compiled(program.likelihood_slope, spread, (), jax.random.key(0), np.array(alpha), prepared)
        # Self-normalised weights are off by O(1/20,000), a hundredth of what 20 x 20,000 draws are uncertain by.
        error = found.std(axis=0, ddof=1)[EDGES] / np.sqrt(copies)
        assert np.all(error < 0.01)
        # Six entries with 19 degrees of freedom: beyond 5 by chance once in 2,000 tests.
        assert np.abs((found.mean(axis=0) - exact)[EDGES] / error).max() < 5
        assert not found[:, ~EDGES].any()

    @pytest.mark.slow
    @pytest.mark.parametrize("likelihood", ["bge", "linear", "nonlinear"])
    def test_reparameterised_estimator_against_differences(self, likelihood):
        """With the same noise the estimate is the exact gradient of a function that can be written down."""
        program = Program(Dibs(likelihood=likelihood, estimator="reparam", samples=6, hidden=(2,)))
        values, key = little_table(rows=5), jax.random.key(1)
        theta = program.likelihood.start(np.random.default_rng(0), 1, 3)
        own = jax.tree.map(lambda array: array[0], theta)
        prepared = program.likelihood.prepare(values)
        scores = np.random.default_rng(3).normal(size=(3, 3))
        drawn = compiled(lambda key: uniforms(key, (1, 6, 3, 3)), key)[0].astype(np.float64)
        local = jax.jit(jax.vmap(lambda graph: program.likelihood.local(prepared, own, graph).sum()))

        def log_mean(at):
            graphs = np.where(EDGES, 1 / (1 + (1 / drawn - 1) * np.exp(-1.5 * at)), 0.0)
            return logsumexp(np.asarray(local(graphs)))

        slope = compiled(program.likelihood_slope, scores[None], theta, key, np.array(1.5), prepared)[0]
        # The networks are in single precision, where differences need longer steps and are that much coarser.
        coarse = likelihood == "nonlinear"
        expected = differences(log_mean, scores, step=1e-2 if coarse else 1e-5)
        np.testing.assert_allclose(slope, expected, rtol=2e-2 if coarse else 1e-5, atol=2e-2 if coarse else 1e-5)

    @pytest.mark.slow
    def test_parameters_against_enumeration(self):
        copies, values = 20, little_table()
        program = Program(Dibs(likelihood="linear", samples=20_000))
        likelihood, prepared = program.likelihood, program.likelihood.prepare(values)
        theta = np.random.default_rng(1).normal(size=(3, 3))
        edge, graph_probability = probabilities_of(np.random.default_rng(2).normal(size=(3, 3)))
        every = all_graphs().astype(np.float64)

        def log_mean(at):
            logs = jax.vmap(lambda graph: likelihood.local(prepared, at, graph).sum())(every)
            return jax.scipy.special.logsumexp(logs, b=graph_probability)

        exact = compiled(jax.grad(log_mean), theta)
        spread = [np.tile(array, (copies, 1, 1)) for array in (edge, theta)]
        found = compiled(program.theta_slope, *spread, jax.random.key(0), prepared)
        error = found.std(axis=0, ddof=1)[EDGES] / np.sqrt(copies)
        assert np.abs((found.mean(axis=0) - exact)[EDGES] / error).max() < 5  # as above

    def test_in_chunks_it_is_the_same(self):
        draws, at = np.random.default_rng(0).normal(size=(12, 3)), np.array([0.3, -1.0, 2.0])

        def function(parameters, draw):
            return 40 * jnp.sum(parameters * draw) - jnp.sum(parameters**2)

        whole = differences(lambda p: logsumexp(40 * draws @ p - np.sum(p**2)), at)
        for chunk in (1, 4, 12):
            found = compiled(lambda at, chunk=chunk: weighted_slope(function, at, jnp.asarray(draws), chunk), at)
            np.testing.assert_allclose(found, whole, rtol=1e-7)


class TestBGe:
    def test_standardised_columns_have_the_score_of_the_engines(self):
        values = little_table(rows=30, nodes=4)
        values = (values - values.mean(axis=0)) / values.std(axis=0)
        ours, engines = BGeLikelihood().score(values), BGe().prepare(values)
        for target, parents in ((0, []), (1, [0]), (3, [0, 2]), (2, [0, 1, 3])):
            assert ours.score(target, parents) == pytest.approx(engines.score(target, parents), rel=1e-12)

    @pytest.mark.slow
    def test_a_node_alone_is_a_chain_of_student_predictions(self):
        """Precision ~ Gamma(3/2, rate 1/4) and mean ~ N(0, variance): each row given those before is Student's t."""
        column = little_table(rows=7, nodes=2)[:, 1]
        shape, rate, mean, rows, expected = 1.5, 0.25, 0.0, 1.0, 0.0
        for value in column:
            scale = np.sqrt(rate * (rows + 1) / (shape * rows))
            expected += stats.t.logpdf(value, 2 * shape, mean, scale)
            rate += 0.5 * rows / (rows + 1) * (value - mean) ** 2
            mean, rows, shape = (rows * mean + value) / (rows + 1), rows + 1, shape + 0.5
        likelihood = BGeLikelihood()
        prepared = likelihood.prepare(little_table(rows=7, nodes=2))
        assert compiled(likelihood.local, prepared, (), np.zeros((2, 2)))[1] == pytest.approx(expected, rel=1e-12)

    def test_the_formula_with_determinants(self):
        """As it is written, on columns with means and scales of their own."""
        values = little_table(rows=9, nodes=4) * [1, 5, 0.2, 3]
        rows, nodes = values.shape
        centred = values - values.mean(axis=0)
        matrix = 0.5 * np.eye(nodes) + centred.T @ centred
        matrix += rows / (rows + 1) * np.outer(values.mean(axis=0), values.mean(axis=0))
        graph = np.array([[0, 1, 1, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)
        expected = []
        for node in range(nodes):
            parents = np.flatnonzero(graph[:, node])
            size, family = len(parents), np.append(parents, node)
            expected.append(
                0.5 * np.log(1 / (rows + 1))
                + gammaln((rows + 2 + size + 1) / 2)
                - gammaln((2 + size + 1) / 2)
                - rows / 2 * np.log(np.pi)
                + 0.5 * (2 + 2 * size + 1) * np.log(0.5)
                + 0.5 * (rows + 2 + size) * np.linalg.slogdet(matrix[np.ix_(parents, parents)])[1]
                - 0.5 * (rows + 2 + size + 1) * np.linalg.slogdet(matrix[np.ix_(family, family)])[1]
            )
        likelihood = BGeLikelihood()
        prepared = likelihood.prepare(values)
        np.testing.assert_allclose(compiled(likelihood.local, prepared, (), graph.astype(float)), expected)
        np.testing.assert_allclose(compiled(likelihood.local_many, prepared, (), graph[None, None])[0, 0], expected)

    def test_equivalent_graphs_are_equal_in_any_units(self):
        likelihood, forward = BGeLikelihood(), np.array([[0.0, 1.0], [0.0, 0.0]])
        prepared = likelihood.prepare(little_table(nodes=2) * [1, 100])
        totals = [compiled(likelihood.local, prepared, (), graph).sum() for graph in (forward, forward.T)]
        assert totals[0] == pytest.approx(totals[1], rel=1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize("few_kinds", [64, 3], ids=["told apart one by one", "sorted"])
    def test_tables_and_families_say_the_same_of_graphs_of_all_sizes(self, monkeypatch, few_kinds):
        monkeypatch.setattr(dibs_families, "FEW_KINDS", few_kinds)
        nodes = 12
        rng = np.random.default_rng(0)
        density = rng.uniform(size=(3, 10, 1, nodes)) ** 2
        graphs = (rng.uniform(size=(3, 10, nodes, nodes)) < density) & ~np.eye(nodes, dtype=bool)
        graphs[1, 5:] = graphs[0, :5]
        likelihood = BGeLikelihood()
        values = little_table(rows=40, nodes=nodes)
        tabulated = compiled(likelihood.local_many, likelihood.prepare(values), (), graphs)
        monkeypatch.setattr(dibs_likelihoods, "TABLE_NODES", 0)
        by_family = compiled(likelihood.local_many, likelihood.prepare(values), (), graphs)
        assert by_family.shape == (3, 10, nodes)
        np.testing.assert_allclose(by_family, tabulated, rtol=1e-9)


class TestJointModels:
    def test_linear(self):
        values, rng = little_table(rows=8), np.random.default_rng(0)
        theta, graph = rng.normal(size=(3, 3)), np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]])
        likelihood = LinearLikelihood(noise_variance=0.1, min_edge=0.5)
        found = compiled(likelihood.local, likelihood.prepare(values), theta, graph.astype(float))
        expected = stats.norm.logpdf(values, values @ (graph * theta), np.sqrt(0.1)).sum(axis=0)
        expected += (graph * stats.norm.logpdf(theta)).sum(axis=0)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert np.abs(likelihood.start(rng, 50, 3)).min() >= 0.5

    def test_networks(self):
        values, rng = little_table(rows=8), np.random.default_rng(0)
        likelihood = NetworkLikelihood(hidden=(4,), noise_variance=0.1)
        theta = jax.tree.map(lambda array: array[0], likelihood.start(rng, 1, 3))
        graph = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
        (first, last), (first_bias, last_bias) = theta
        expected = []
        for node in range(3):
            units = np.maximum((values * graph[:, node]) @ first[:, node] + first_bias[node], 0)
            mean = units @ last[node] + last_bias[node]
            prior = (graph[:, node, None] * stats.norm.logpdf(first[:, node])).sum()
            prior += sum(stats.norm.logpdf(array[node]).sum() for array in (last, first_bias, last_bias))
            expected.append(stats.norm.logpdf(values[:, node], mean[:, 0], np.sqrt(0.1)).sum() + prior)
        prepared = likelihood.prepare(values)
        found = compiled(likelihood.local, prepared, theta, graph.astype(float))
        np.testing.assert_allclose(found, expected, rtol=1e-5)  # single precision
        one = jax.tree.map(lambda array: array[None], theta)
        many = compiled(likelihood.local_many, prepared, one, np.stack([graph, ~graph & EDGES])[None])
        np.testing.assert_allclose(many[0, 0], expected, rtol=1e-5)


class TestSteinSteps:
    def test_the_kernel_and_its_direction_by_hand(self):
        """Two particles at 0 and 2 with h = 5: k = exp(-4/5), and each is pushed off by (2/5) 2 k."""
        positions, slopes = np.array([[0.0], [2.0]]), np.array([[1.0], [-3.0]])
        near = np.exp(-4 / 5)
        found = compiled(lambda at: kernel(at, 5.0), positions)
        np.testing.assert_allclose(found, [[1, near], [near, 1]], rtol=1e-12)
        direction = self.direction(found, found, 5.0, positions, slopes)
        expected = [[(1 - 3 * near - 0.8 * near) / 2], [(near - 3 + 0.8 * near) / 2]]
        np.testing.assert_allclose(direction, expected, rtol=1e-12)

    def direction(self, *arguments):
        return compiled(stein_direction, *arguments)

    def test_the_direction_is_the_formula_for_joint_particles(self):
        latent, theta, latent_slope, theta_slope = np.random.default_rng(0).normal(size=(4, 5, 6))

        def pair(a, b, bandwidth):
            return np.exp(-np.sum((a - b) ** 2) / bandwidth)

        expected_latent, expected_theta = np.zeros((2, 5, 6))
        for i, j in np.ndindex(5, 5):
            of_latent, of_theta = pair(latent[j], latent[i], 5.0), pair(theta[j], theta[i], 500.0)
            both = of_latent + of_theta
            expected_latent[i] += both * latent_slope[j] - 2 / 5 * (latent[j] - latent[i]) * of_latent
            expected_theta[i] += both * theta_slope[j] - 2 / 500 * (theta[j] - theta[i]) * of_theta
        own, of_theta = (compiled(lambda at, h=h: kernel(at, h), at) for at, h in ((latent, 5.0), (theta, 500.0)))
        found = self.direction(own + of_theta, own, 5.0, latent, latent_slope)
        np.testing.assert_allclose(found, expected_latent / 5, rtol=1e-9)
        found = self.direction(own + of_theta, of_theta, 500.0, theta, theta_slope)
        np.testing.assert_allclose(found, expected_theta / 5, rtol=1e-9)

    @pytest.mark.slow
    def test_two_steps_by_hand(self):
        """At alpha = 0 only the normal prior with variance 1/k pulls; the second step has alpha = beta = 1."""
        program = Program(Dibs(particles=3, samples=4, constraint_samples=2))
        prepared, key = program.likelihood.prepare(little_table()), jax.random.key(5)
        start = program.init(np.random.default_rng(0), 3)
        state = program.advance(start, key, prepared, 2)
        latent, squares = start.particles.latent, 0.0
        for step in range(2):
            own = compiled(lambda at: kernel(at, 5.0), latent)
            step_key = jax.random.fold_in(key, step)
            slopes = compiled(program.slopes, Particles(latent, ()), step_key, np.array(step), prepared).latent
            if step == 0:
                np.testing.assert_allclose(slopes, -3 * latent, rtol=1e-12)
            direction = self.direction(own, own, 5.0, latent, slopes)
            squares = 0.9 * squares + 0.1 * direction**2
            latent = latent + 0.005 * direction / np.sqrt(squares + 1e-8)
        np.testing.assert_allclose(state.particles.latent, latent, rtol=1e-6)
        assert int(state.taken) == 2

    @pytest.mark.slow
    def test_slopes_are_the_sum_of_their_terms(self):
        """The chain from the edge scores to the vectors of the nodes, for all of the terms."""
        program = Program(Dibs(particles=2, samples=4, constraint_samples=2, graph_prior="sf", beta=0.5))
        prepared, key, alpha = program.likelihood.prepare(little_table()), jax.random.key(5), np.array(3.0)
        latent = np.random.default_rng(0).normal(size=(2, 2, 3, 4))
        found = compiled(program.slopes, Particles(latent, ()), key, np.array(3), prepared).latent
        latent_key, _, constraint_key = jax.random.split(jax.random.fold_in(key, 0), 3)
        scores = np.einsum("pik,pjk->pij", latent[:, 0], latent[:, 1])
        fixed = compiled(program.likelihood_slope, scores, (), latent_key, alpha, prepared)
        fixed = fixed - 1.5 * compiled(program.constraint_slope, scores, constraint_key, alpha)

        def density(at):
            own = np.einsum("pik,pjk->pij", at[:, 0], at[:, 1])
            edge = np.where(EDGES, 1 / (1 + np.exp(-3 * own)), 0.0)
            return (fixed * own).sum() - 3 * np.log(1 + edge.sum(axis=1)).sum() - 0.5 * 4 * (at**2).sum()

        np.testing.assert_allclose(found, differences(density, latent), rtol=1e-5, atol=1e-6)


class TestRandomNumbers:
    def test_they_are_uniform_and_independent(self):
        keys = jax.random.split(jax.random.key(0))
        first, second = compiled(lambda keys: [uniforms(key, (200_000,)) for key in (keys[0], keys[1])], keys)
        assert first.min() > 0
        assert first.max() < 1
        counts = np.bincount((first * 128).astype(int) * 128 + (second * 128).astype(int), minlength=128**2)
        lagged = np.bincount((first[:-1] * 128).astype(int) * 128 + (first[1:] * 128).astype(int), minlength=128**2)
        # Goodness of fit over pairs, between two keys and between neighbours: fixed seeds, so these never change.
        for pairs in (counts, lagged):
            assert 1e-3 < stats.chisquare(pairs).pvalue < 1 - 1e-3


def chain(rows=300, shift=0.0):
    """a -> b -> c, and d apart."""
    rng = np.random.default_rng(0)
    a, noise_b, noise_c, d = rng.normal(size=(4, rows))
    b = 1.5 * a + noise_b
    return vcuda.as_dataset(np.column_stack([a, b, -1.2 * b + noise_c, d]) + shift, names=list("abcd"))


FEW = {"particles": 10, "samples": 32, "constraint_samples": 8}


class TestFits:
    @pytest.mark.slow
    def test_neighbours_are_found(self):
        """Of a chain BGe can tell the pairs but not the directions; so the two directions are counted together."""
        result = run_baseline(Dibs.corrected(**FEW, steps=600, edges_per_node=0.5), chain(), seed=0)
        either = result.graph_posterior.scores + result.graph_posterior.scores.T
        assert result.diagnostics["acyclic_particles"] >= 9
        assert min(either[0, 1], either[1, 2]) > 0.9
        assert either[3].max() < 0.5
        assert result.graph_posterior.graphs.all_acyclic()
        np.testing.assert_array_equal(result.trace["step"], np.arange(50, 601, 50))

    @pytest.mark.slow
    def test_units_of_location_do_not_matter_when_centred(self):
        near, far = (
            run_baseline(Dibs.corrected(**FEW, steps=60), chain(shift=shift), seed=0) for shift in (0.0, 1000.0)
        )
        np.testing.assert_array_equal(near.graph_posterior.scores, far.graph_posterior.scores)
        rows = chain().values[:5]
        for k in range(len(near.graph_posterior.graphs)):
            graph = near.graph_posterior.graphs.graph(k)
            moved = far.graph_posterior.networks.predict(graph, rows + 1000.0, index=k)
            np.testing.assert_allclose(
                moved, near.graph_posterior.networks.predict(graph, rows, index=k) + 1000.0, atol=1e-6
            )

    @pytest.mark.slow
    @pytest.mark.parametrize("likelihood", ["linear", "nonlinear"])
    def test_joint_models_keep_a_function_for_each_sample(self, likelihood):
        spec = Dibs.corrected(
            **FEW | {"particles": 4}, likelihood=likelihood, steps=40, hidden=(3,), weights="likelihood"
        )
        result = run_baseline(spec, chain(rows=50), seed=0)
        assert result.graph_posterior.networks.log_variance.shape == (len(result.graph_posterior.graphs), 4)
        np.testing.assert_array_equal(result.graph_posterior.networks.log_variance, 0.0)
        assert result.graph_posterior.graphs.all_acyclic()

    @pytest.mark.slow
    def test_numbers_that_are_not_finite_end_in_a_failure_with_a_sound_state(self):
        result = run_baseline(Dibs.corrected(**FEW, steps=60, learning_rate=1e200), chain(), seed=0)
        assert result.status.code == "failed"
        assert np.isfinite(result.graph_posterior.scores).all()
        assert result.graph_posterior.graphs.all_acyclic()

    def test_functions_of_bge_are_posterior_means(self):
        """Ridge regressions with weight 1/2 around means shrunk by n / (n + 1), as R has them."""
        values = little_table(rows=12)
        graph = np.array([[[0, 0, 1], [0, 0, 1], [0, 0, 0]]], dtype=bool)
        networks = BGeLikelihood().networks(values, (), graph)
        mean = values.mean(axis=0) * 12 / 13
        # The prior mean counts as one more row at zero.
        rows = np.vstack([values, np.zeros(3)]) - mean
        moment = rows.T @ rows + 0.5 * np.eye(3)
        slopes = np.linalg.solve(moment[:2, :2], moment[:2, 2])
        np.testing.assert_allclose(networks.predict(graph[0], values)[:, 2], mean[2] + (values - mean)[:, :2] @ slopes)
        np.testing.assert_allclose(networks.predict(graph[0], values)[:, :2], np.tile(mean[:2], (12, 1)))
        residual = moment[2, 2] - moment[:2, 2] @ slopes
        assert networks.log_variance[0, 2] == pytest.approx(np.log(residual / (12 + 2 + 2 - 1)))


class TestParticles:
    def graphs(self):
        """A DAG twice, another DAG, and a graph with a cycle."""
        graphs = np.zeros((4, 3, 3), dtype=bool)
        graphs[:2, 0, 1] = graphs[2, 1, 2] = True
        graphs[3, 0, 1] = graphs[3, 1, 0] = True
        return graphs

    def choose(self, spec, graphs, logs=(0.0, 0.0, 0.0, 0.0)):
        return dibs._choose(spec, graphs, np.arange(9.0).reshape(1, 3, 3) + 0 * graphs, lambda: np.array(logs))

    def test_cyclic_ones_count_in_the_scores_as_the_preset_says_but_are_no_samples(self):
        for spec, expected in ((Dibs.reference(), (3 / 4, 1 / 4)), (Dibs.corrected(), (2 / 3, 0))):
            chosen = self.choose(spec, self.graphs())
            assert (chosen.scores[0, 1], chosen.scores[1, 0]) == pytest.approx(expected)
            assert (chosen.acyclic, chosen.which.tolist(), len(chosen.graphs)) == (3, [0, 1, 2], 3)
            np.testing.assert_allclose(chosen.weights, 1 / 3)

    def test_weights_by_likelihood(self):
        logs = np.log([1.0, 1.0, 2.0, 4.0]) - 5000
        fixed = self.choose(Dibs.corrected(weights="likelihood"), self.graphs(), logs)
        np.testing.assert_allclose(fixed.weights, [1 / 4, 1 / 4, 1 / 2])
        np.testing.assert_allclose([fixed.scores[0, 1], fixed.scores[1, 2]], [1 / 2, 1 / 2])
        reference = self.choose(Dibs.reference(weights="likelihood"), self.graphs(), logs)
        np.testing.assert_allclose([reference.scores[0, 1], reference.scores[1, 0]], [6 / 8, 4 / 8])

    def test_if_none_is_a_dag_the_likeliest_is_cut(self):
        graphs = np.repeat(self.graphs()[3:], 2, axis=0)
        graphs[1, 1, 2] = True
        chosen = self.choose(Dibs.corrected(), graphs, (0.0, 1.0))
        assert chosen.acyclic == 0
        assert chosen.which.tolist() == [1]
        assert is_dag(chosen.graphs[0])
        # Edge scores are 0..8 by rows: 0 -> 1 has the lowest of the cycle.
        assert np.argwhere(chosen.graphs[0]).tolist() == [[1, 0], [1, 2]]
        assert chosen.scores[0, 1] == 1.0


def test_bad_options_are_refused():
    with pytest.raises(ConfigError, match="likelihood of dibs must be one of bge, linear, nonlinear, not 'gp'"):
        Dibs(likelihood="gp")
    with pytest.raises(ConfigError, match="noise_variance of dibs must be positive, not 0"):
        Dibs(noise_variance=0)
    with pytest.raises(ConfigError, match="goes with the estimator 'score'"):
        Dibs(likelihood="linear", weighting="node")
    with pytest.raises(ConfigError, match="estimator of dibs must be one of score, reparam"):
        replace(Dibs(), estimator="exact")


def test_defaults_of_the_likelihoods():
    assert (Dibs().alpha_used, Dibs().estimator_used) == (1.0, "score")
    joint = Dibs.reference(likelihood="linear")
    assert (joint.alpha_used, joint.estimator_used, joint.noise_variance, joint.min_edge) == (0.05, "reparam", 0.1, 0.5)


class TestMinutes:
    def test_the_joint_models_are_made_smaller_until_they_end_in_time(self):
        full = Dibs.corrected(likelihood="nonlinear")
        short = full.within(300.0, rows=1000, columns=10)
        # 128 graphs go down to the least, 8; 100 particles to the 17 that then have time for 3,000 steps.
        assert (short.samples, short.particles, short.steps) == (8, 17, 3000)
        assert full.within(1e5, rows=1000, columns=10) == full
        least = full.within(1.0, rows=1000, columns=50)
        assert (least.samples, least.particles, least.steps) == (8, 10, 1000)

    def test_what_is_smaller_already_or_quick_stays(self):
        assert Dibs.corrected().within(1.0, rows=1000, columns=10) == Dibs.corrected()
        small = Dibs.corrected(likelihood="linear", particles=4, samples=2, steps=10)
        assert small.within(1e-9, rows=1000, columns=10) == small

    @pytest.mark.slow
    def test_a_fit_by_name_says_so(self):
        asked = []

        def stop(progress):
            asked.append(progress)
            raise KeyboardInterrupt

        table = np.random.default_rng(0).normal(size=(400, 3))
        with pytest.warns(ConvergenceWarning):
            fitted = vcuda.fit(table, engine="dibs", model="mlp", time_limit=1.0, progress=stop)
        assert fitted.provenance["engine"]["particles"] < 100
        assert any(
            "so that this fit ends in minutes" in sentence for sentence in fitted.provenance["choice"]["sentences"]
        )
