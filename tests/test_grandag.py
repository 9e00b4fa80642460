"""GraN-DAG: its constraint, its paths, its Jacobian, its schedule, and what it finds."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import run_baseline
from scipy.linalg import expm

from vcuda.baselines.augmented_lagrangian import StationarySchedule, acyclic_part, acyclicity
from vcuda.baselines.grandag import SLOPE, GranDag, Program, Trained
from vcuda.baselines.networks import as_networks, path_strengths, predict, slopes, xavier_layers
from vcuda.baselines.selection import Candidates, likely_inputs, significant_parents
from vcuda.errors import ConfigError
from vcuda.infer.compilation import double_precision
from vcuda.models.functional.mlp import Layers


@pytest.fixture(autouse=True)
def _double():
    with double_precision():
        yield


class TestConstraint:
    @pytest.mark.slow
    @pytest.mark.parametrize("size", [1e-3, 0.3, 4.0])
    def test_value_and_gradient_are_those_of_the_exponential(self, size):
        matrix = size * np.random.default_rng(0).random((6, 6))
        value, slope = jax.jit(jax.value_and_grad(acyclicity))(jnp.asarray(matrix))
        np.testing.assert_allclose(value, np.trace(expm(matrix)) - 6, rtol=1e-9)
        np.testing.assert_allclose(slope, expm(matrix).T, rtol=1e-12)

    @pytest.mark.parametrize("weight", [1e-6, 1e-3, 0.5, 3.0])
    def test_a_single_cycle_has_a_closed_form_however_weak(self, weight):
        matrix = np.zeros((3, 3))
        matrix[0, 1] = matrix[1, 2] = matrix[2, 0] = weight
        # Closed walks of a triangle have 3, 6, ... steps, one from each node; at 1e-6 this is 5e-19.
        expected = 3 * sum(weight ** (3 * k) / math.factorial(3 * k) for k in range(1, 12))
        np.testing.assert_allclose(jax.jit(acyclicity)(jnp.asarray(matrix)), expected, rtol=1e-12)

    def test_a_dag_has_exactly_none(self):
        assert float(jax.jit(acyclicity)(jnp.asarray(np.triu(np.full((8, 8), 7.0), 1)))) == 0.0

    def test_large_graphs_do_not_overflow(self):
        # All entries 1/4 at 200 nodes: one eigenvalue of 50, and the rest is zero.
        np.testing.assert_allclose(jax.jit(acyclicity)(jnp.full((200, 200), 0.25)), math.expm1(50), rtol=1e-9)


class TestNetworks:
    def test_path_strengths_of_three_nodes_by_hand(self):
        first = np.zeros((3, 3, 2))
        first[0, 2], first[1, 2] = [1.0, -2.0], [0.0, 3.0]
        last = np.zeros((3, 2, 1))
        last[2, :, 0] = [-4.0, 0.5]
        layers = Layers((first, last), (np.zeros((3, 2)), np.zeros((3, 1))))
        mask = 1.0 - np.eye(3)
        # Node 2 by two paths: from 0 it is (1*4 + 2*0.5) / 2, from 1 it is (0*4 + 3*0.5) / 2.
        expected = np.zeros((3, 3))
        expected[0, 2], expected[1, 2] = 2.5, 0.75
        np.testing.assert_allclose(path_strengths(layers, mask), expected)
        mask[0, 2] = 0
        expected[0, 2] = 0
        np.testing.assert_allclose(path_strengths(layers, mask), expected)

    def test_the_start_is_the_authors(self):
        """Of two hidden layers of ten and 10 nodes a mean strength of .076 and h = 0.32; of none h near 100."""
        mask = 1.0 - np.eye(10)

        def strengths(hidden):
            start, rng = jax.jit(path_strengths), np.random.default_rng(0)
            return [start(xavier_layers(rng, 10, hidden), mask) for _ in range(20)]

        found, constraint = strengths((10, 10)), jax.jit(acyclicity)
        # The 20 draws vary by a few per cent of the mean.
        np.testing.assert_allclose(np.sum(found) / 20 / 90, 0.076, rtol=0.05)
        np.testing.assert_allclose(np.mean([constraint(matrix) for matrix in found]), 0.32, rtol=0.1)
        assert 70 < np.median([constraint(matrix) for matrix in strengths(())]) < 160

    def test_predictions_are_those_of_the_stored_law(self):
        layers = xavier_layers(np.random.default_rng(0), 4, (3, 5))
        layers = Layers(layers.weights, tuple(bias + 0.3 for bias in layers.biases))
        rows = np.random.default_rng(0).normal(size=(7, 4))
        graph = np.triu(np.ones((4, 4)), 1)
        stored = as_networks(layers, np.zeros(4), SLOPE).predict(graph > 0, rows)
        compiled = jax.jit(predict, static_argnums=3)(layers, graph, rows, SLOPE)
        np.testing.assert_allclose(compiled, stored, rtol=1e-12)

    def test_slopes_are_differences(self):
        layers = xavier_layers(np.random.default_rng(1), 3, (4,))
        mask = 1.0 - np.eye(3)
        row = np.array([0.3, -1.2, 0.7])
        found = np.asarray(jax.jit(slopes, static_argnums=3)(layers, mask, row, SLOPE))
        networks = as_networks(layers, np.zeros(3), SLOPE)
        step = 1e-6
        for source in range(3):
            up, down = (networks.predict(mask, (row + sign * step * np.eye(3)[source])[None])[0] for sign in (1, -1))
            np.testing.assert_allclose(found[source], (up - down) / (2 * step), atol=1e-8)

    def test_the_jacobian_is_that_of_the_log_density_given_its_own_value(self):
        program = Program((4,), 1e-3)
        trained = Trained(xavier_layers(np.random.default_rng(2), 3, (4,)), jnp.asarray([0.1, -0.2, 0.4]))
        mask = 1.0 - np.eye(3)
        networks = as_networks(trained.layers, np.zeros(3), SLOPE)
        rows = np.random.default_rng(3).normal(size=(5, 3))
        total = np.zeros((3, 3))
        step = 1e-6
        for row in rows:
            for source in range(3):
                moved = [networks.predict(mask, (row + sign * step * np.eye(3)[source])[None])[0] for sign in (1, -1)]
                scale = np.exp(np.asarray(trained.log_scale))
                density = [-0.5 * ((row - mean) / scale) ** 2 for mean in moved]
                total[source] += np.abs((density[0] - density[1]) / (2 * step))
        np.testing.assert_allclose(program.jacobian(trained, mask, rows), total, atol=1e-7)


def recorded(schedule, constraint, losses):
    """The schedule after these held-out losses, and which of them changed λ and μ."""
    changes = []
    for loss in losses:
        before, schedule = len(schedule.constraints), schedule.record(loss, constraint)
        changes.append(len(schedule.constraints) > before)
    return schedule, changes


class TestSchedule:
    def test_it_waits_for_rest_and_then_tightens(self):
        schedule = StationarySchedule()
        # Falling fast: (1.0 - 3.0) / 100 is far below -1e-4.
        schedule, changes = recorded(schedule, 0.5, (3.0, 2.0, 1.0))
        assert changes == [False, False, False]
        # At rest, falling by 0.004 over a window: λ = μ h, and μ stays since there is no h to compare with.
        schedule, changes = recorded(schedule, 0.5, (0.998, 0.996))
        assert changes == [False, True]
        assert (schedule.multiplier, schedule.weight) == (1e-3 * 0.5, 1e-3)
        # The value of the last look is raised by what the penalty gained, λ h.
        np.testing.assert_allclose(schedule.values[-1], 0.996 + 0.5e-3 * 0.5**2 + 0.5e-3 * 0.5)
        # At rest again, and h has fallen to 0.48 only: more than 0.9 of 0.5, so that μ grows tenfold.
        schedule, changes = recorded(schedule, 0.48, (0.9955, 0.995))
        assert changes == [False, True]
        np.testing.assert_allclose([schedule.multiplier, schedule.weight], [1e-3 * 0.98, 1e-2])

    def test_a_value_that_went_up_and_down_changes_nothing(self):
        schedule, changes = recorded(StationarySchedule(), 0.5, (1.0, 1.1, 1.0001))
        assert changes == [False] * 3
        assert schedule.multiplier == 0

    def test_a_rising_value_tightens(self):
        assert recorded(StationarySchedule(), 0.5, (1.0, 2.0, 3.0))[1] == [False, False, True]

    def test_on_a_toy_it_leaves_one_of_two_opposite_edges(self):
        """Minimise (a - 1)² + (b - 0.8)² by noisy steps, where a² and b² are the weights of 0 -> 1 and 1 -> 0."""
        schedule, rng = StationarySchedule(), np.random.default_rng(0)
        edges, best, looks = np.array([0.5, 0.5]), np.array([1.0, 0.8]), 0
        constraint = math.inf
        while constraint > 1e-5 and looks < 2000:
            for noise in rng.normal(scale=0.2, size=(schedule.window, 2)):
                product = edges.prod()
                constraint = 2 * math.cosh(product) - 2
                pull = (schedule.multiplier + schedule.weight * constraint) * 2 * math.sinh(product)
                slope = 2 * (edges - best) + pull * edges[::-1] + noise
                edges = edges - 1e-3 * slope / (np.abs(slope) + 1e-3)  # of nearly one length, as RMSprop's steps are
            schedule = schedule.record(float(((edges - best) ** 2).sum()), constraint)
            looks += 1
        assert looks < 2000
        assert schedule.weight > 1e-3
        # The weaker edge went: a² b² = 1e-5 leaves it 0.003, and a step is 0.001 long; the noise moves the other.
        np.testing.assert_allclose(edges, [1.0, 0.0], atol=0.1)


class TestAcyclicPart:
    def test_the_lowest_threshold_without_a_cycle(self):
        scores = np.array([[0.0, 0.9, 0.1], [0.4, 0.0, 0.8], [0.3, 0.05, 0.0]])
        graph, threshold = acyclic_part(scores > 0, scores)
        # 0 -> 1 -> 2 -> 0 has its weakest edge at 0.3 and 0 -> 1 -> 0 at 0.4.
        assert threshold == 0.4
        np.testing.assert_array_equal(graph, scores > 0.4)

    def test_a_dag_comes_back_whole(self):
        dag = np.triu(np.ones((4, 4), dtype=bool), 1)
        graph, threshold = acyclic_part(dag, np.zeros((4, 4)))
        np.testing.assert_array_equal(graph, dag)
        assert threshold == -math.inf


class TestSelection:
    def values(self):
        rng = np.random.default_rng(0)
        a, b, c = rng.normal(size=(3, 400))
        return np.column_stack([a, b, c, a**2 + 0.5 * rng.normal(size=400)])  # no correlation with a

    @pytest.mark.slow
    def test_neighbours_by_trees_find_a_square(self):
        kept = likely_inputs(self.values(), 3, seed=0, trees=50)
        assert kept.tolist() == [True, False, False, False]
        assert max(likely_inputs(self.values(), node, seed=0, trees=5, most=1).sum() for node in range(4)) == 1

    def test_pruning_keeps_a_square_and_drops_the_rest(self):
        graph = np.zeros((4, 4), dtype=bool)
        graph[:3, 3] = True
        graph[0, 1] = True
        kept = significant_parents(self.values(), graph)
        assert np.argwhere(kept).tolist() == [[0, 3]]
        assert graph.sum() == 4  # not changed in place

    def test_pruning_at_level_one_keeps_all_and_p_values_are_honest(self):
        rng = np.random.default_rng(1)
        graph = np.zeros((3, 3), dtype=bool)
        graph[:2, 2] = True
        kept = [significant_parents(rng.normal(size=(120, 3)), graph, level=0.2).sum() for _ in range(200)]
        # 400 idle edges at level 0.2: 80 expected, standard deviation 8; four of them.
        assert abs(np.sum(kept) - 80) < 32
        assert significant_parents(rng.normal(size=(120, 3)), graph, level=1.1).sum() == 2

    def test_few_rows_and_few_values_are_no_obstacle(self):
        rng = np.random.default_rng(2)
        binary = rng.integers(0, 2, size=(30, 3)).astype(float)
        binary[:, 2] = binary[:, 0] + 0.1 * rng.normal(size=30)
        graph = np.zeros((3, 3), dtype=bool)
        graph[:2, 2] = True
        assert np.argwhere(significant_parents(binary, graph)).tolist() == [[0, 2]]
        assert significant_parents(binary[:3], graph).sum() <= 2


class TestFits:
    @pytest.mark.slow
    def test_curves_are_found_with_their_directions(self, curved):
        data = curved()
        result = run_baseline(GranDag.corrected(), data, seed=0)
        assert result.status.code == "ok"
        assert np.argwhere(result.graph_posterior.graphs.graph(0)).tolist() == [[0, 1], [1, 2]]
        strongest = np.sort(np.argsort(result.graph_posterior.scores.ravel())[-2:]).tolist()
        assert strongest == [1, 6]
        assert result.trace["constraint"][-1] <= 1e-8
        assert np.all(np.diff(result.trace["weight"]) >= 0)
        # Noise of 1, 1/4, 1/4 and 1 in four columns; a network with 600 rows comes near it.
        graph_posterior = result.graph_posterior
        seen = graph_posterior.predict(np.random.default_rng(0), curved(seed=1).values, 1)
        assert seen.mse < 1.15 * (1 + 0.25 + 0.25 + 1) / 4

    @pytest.mark.slow
    def test_reference_ranks_the_final_graph_alone(self, curved):
        result = run_baseline(GranDag.reference(iterations=2000), curved(), seed=0)
        np.testing.assert_array_equal(result.graph_posterior.scores > 0, result.graph_posterior.graphs.graph(0))
        whole = run_baseline(GranDag.reference(iterations=2000, scores="paths"), curved(), seed=0)
        on_graph = result.graph_posterior.graphs.graph(0)
        np.testing.assert_allclose(whole.graph_posterior.scores[on_graph], result.graph_posterior.scores[on_graph])
        assert np.count_nonzero(whole.graph_posterior.scores) > np.count_nonzero(result.graph_posterior.scores)

    @pytest.mark.slow
    def test_a_linear_model_warms_up_unless_told_otherwise(self, curved):
        assert GranDag.corrected(hidden=()).warm_up == 2000
        assert GranDag.corrected(hidden=(), warm_up=7).warm_up == 7
        assert GranDag.corrected().warm_up == 0
        result = run_baseline(
            GranDag.corrected(hidden=(), iterations=100, retrain=False, prune=False), curved(), seed=0
        )
        # Hardly constrained so far, so that the weights are those of least squares of b on a, c and d.
        values = curved().values - curved().mean
        expected = np.abs(np.linalg.lstsq(values[:, [0, 2, 3]], values[:, 1], rcond=None)[0])
        found = np.abs(result.graph_posterior.networks.weights[0][0, [0, 2, 3], 1, 0])
        np.testing.assert_allclose(found, expected, atol=0.1)

    @pytest.mark.slow
    def test_neighbours_are_chosen_first_where_asked(self, curved):
        data = curved(rows=100)
        result = run_baseline(GranDag.corrected(preselect_from=4, iterations=200, retrain=False), data, seed=0)
        candidates = Candidates.start(4, select_from=4)
        while not candidates.is_complete:
            candidates = candidates.select(data.values, seed=0)
        allowed = candidates.allowed
        assert not allowed.diagonal().any()
        assert allowed.sum() < 12
        assert not result.graph_posterior.scores[~allowed].any()

    def test_bad_options_are_refused(self):
        with pytest.raises(ConfigError, match="hidden of grandag"):
            GranDag(hidden=(0,))
        with pytest.raises(ConfigError, match="validation_share of grandag"):
            GranDag(validation_share=1.0)
