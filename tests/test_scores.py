"""Local scores against independent formulations: densities of whole columns, predictive sequences, numerical
integrals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, multivariate_normal, multivariate_t, norm

from vcuda.errors import ConfigError, DataError
from vcuda.graphs import cpdag, enumerate_dags
from vcuda.models.additive import AdditiveBasis
from vcuda.models.categorical import BDeu
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.linear import BGe, EqualNoise, SharedNoise
from vcuda.models.sets import schur_tables


def number_table(rows: int = 80, seed: int = 0) -> np.ndarray:
    """Five columns in different units, with linear and curved dependence."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, 5))
    table[:, 1] += table[:, 0]
    table[:, 3] += np.sin(2 * table[:, 1]) - 0.5 * table[:, 2]
    table[:, 4] += table[:, 0] * table[:, 3]
    return table * np.array([1.0, 2.0, 0.5, 1.5, 3.0]) + np.array([0.0, 5.0, -1.0, 2.0, 0.0])


def category_table(rows: int = 80, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, [2, 3, 2, 4, 2], size=(rows, 5))
    table[:, 1] = (table[:, 0] + (rng.random(rows) < 0.3)) % 3
    table[:, 3] = (table[:, 1] + table[:, 2]) % 4
    return table.astype(np.float64)


SPECS = {
    "equal known": EqualNoise(variance=1.3),
    "equal shared": EqualNoise(),
    "bge": BGe(),
    "gp": GaussianProcess(max_parents=4),
    "additive": AdditiveBasis(),
    "additive mixed": AdditiveBasis(features=4, amplitudes=(0.5, 2.0)),
    "bdeu": BDeu(),
}
UNIT_FREE = {name: SPECS[name] for name in ("bge", "gp", "additive", "additive mixed")}


def prepared(spec, table=None):
    if table is None:
        table = category_table() if isinstance(spec, BDeu) else number_table()
    score = spec.prepare(table)
    return score.at(0.8) if isinstance(score, SharedNoise) else score


def standardised(table: np.ndarray) -> np.ndarray:
    return (table - table.mean(axis=0)) / table.std(axis=0)


# --- what every score promises ------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_table_and_gains_agree_with_single_scores(spec):
    score = prepared(spec)
    candidates = np.array([4, 0, 2, 1])
    table = score.table(3, candidates)
    assert table.shape == (16,)
    for index, present in enumerate(product([False, True], repeat=4)):
        parents = candidates[list(present[::-1])]
        assert table[index] == pytest.approx(score.score(3, parents.tolist()), abs=1e-8)
    gains = score.gains(3, [4])
    assert np.all(gains[[3, 4]] == -np.inf)
    for other in (0, 1, 2):
        expected = score.score(3, [4, other]) - score.score(3, [4])
        assert gains[other] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    "spec",
    [
        EqualNoise(variance=1.0, max_parents=2),
        BGe(max_parents=2),
        GaussianProcess(max_parents=2),
        AdditiveBasis(max_parents=2),
        BDeu(max_parents=2),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_sets_beyond_the_largest_are_minus_infinity_in_tables(spec):
    table = prepared(spec).table(0, np.array([1, 2, 3]))
    assert np.isfinite(table[:7]).all()
    assert table[7] == -np.inf


@pytest.mark.parametrize("spec", UNIT_FREE.values(), ids=UNIT_FREE)
def test_units_change_only_the_jacobian(spec):
    table = number_table()
    factors = np.array([100.0, -0.003, 1.0, 7.7, -2.0])
    before, after = prepared(spec, table), prepared(spec, table * factors + [1e3, 0.0, -4.0, 20.0, 1e-3])
    for parents in ([], [0], [0, 2], [0, 1, 2], [0, 1, 2, 4]):
        assert after.score(3, parents) == pytest.approx(before.score(3, parents), abs=1e-6)
    change = -len(table) * np.log(np.abs(factors)).sum()
    assert after.log_jacobian - before.log_jacobian == pytest.approx(change, abs=1e-6)


@pytest.mark.parametrize("spec", [BGe(), BDeu(), BGe(mean_rows=2.0, excess=3.5)], ids=["bge", "bdeu", "bge other"])
def test_equivalent_graphs_have_equal_scores(spec):
    score = prepared(spec)
    classes: dict[bytes, list[float]] = {}
    for graph in enumerate_dags(4):
        total = sum(score.score(j, np.flatnonzero(graph[:, j]).tolist()) for j in range(4))
        classes.setdefault(cpdag(graph).tobytes(), []).append(total)
    assert len(classes) == 185
    assert max(np.ptp(totals) for totals in classes.values()) < 1e-9
    assert np.ptp([totals[0] for totals in classes.values()]) > 10


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_table_is_left_alone(spec):
    table = category_table() if isinstance(spec, BDeu) else number_table()
    table.flags.writeable = False
    prepared(spec, table).table(0, np.array([1, 2]))


# --- linear -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parents", [[], [1], [0, 2, 4]])
def test_equal_noise_is_the_normal_density_of_the_column(parents):
    table, variance, weight_variance = number_table(rows=40), 1.3, 0.7
    centred = table - table.mean(axis=0)
    design = centred[:, parents]
    # Intercept N(0, variance) around the mean, weights N(0, weight_variance), noise N(0, variance).
    covariance = variance * (np.eye(40) + 1.0) + weight_variance * design @ design.T
    expected = multivariate_normal(np.zeros(40), covariance).logpdf(centred[:, 3])
    score = EqualNoise(variance=variance, weight_variance=weight_variance).prepare(table)
    assert score.score(3, parents) == pytest.approx(expected, abs=1e-8)


def test_shared_noise_agrees_with_known_noise_in_the_users_units():
    table = number_table()
    unit = table.std(axis=0).min()
    shared = EqualNoise().prepare(table)
    known = EqualNoise(variance=0.6 * unit**2).prepare(table)
    in_units = sum(shared.at(0.6).score(j, list(range(j))) for j in range(5)) + shared.log_jacobian
    assert in_units == pytest.approx(sum(known.score(j, list(range(j))) for j in range(5)), abs=1e-8)


def test_one_unit_for_all_columns_does_not_matter_to_shared_noise():
    table = number_table()
    metres, feet = EqualNoise().prepare(table), EqualNoise().prepare(table / 0.3048)
    assert feet.at(0.8).score(3, [1, 2]) == pytest.approx(metres.at(0.8).score(3, [1, 2]), abs=1e-8)
    assert feet.log_jacobian - metres.log_jacobian == pytest.approx(table.size * np.log(0.3048))


def test_the_prior_of_the_shared_noise_is_a_density():
    shared = EqualNoise(noise_shape=2.0, noise_scale=0.5).prepare(number_table())
    assert isinstance(shared, SharedNoise)
    assert quad(lambda v: np.exp(shared.log_prior(v)), 0, np.inf)[0] == pytest.approx(1.0, abs=1e-6)


def bge_by_prediction(table: np.ndarray, columns: list[int], spec: BGe) -> float:
    """log p of standardised columns as the product of the Student densities of each row given those before
    it."""
    rows = standardised(table)[:, columns]
    count = len(columns)
    if count == 0:
        return 0.0
    mean, mean_rows, degrees = np.zeros(count), spec.mean_rows, spec.excess + count
    scatter = np.eye(count) * spec.mean_rows * (spec.excess - 1) / (spec.mean_rows + 1)
    total = 0.0
    for row in rows:
        freedom = degrees - count + 1
        shape = scatter * (mean_rows + 1) / (mean_rows * freedom)
        total += multivariate_t(loc=mean, shape=shape, df=freedom).logpdf(row)
        scatter = scatter + mean_rows / (mean_rows + 1) * np.outer(row - mean, row - mean)
        mean = (mean_rows * mean + row) / (mean_rows + 1)
        mean_rows, degrees = mean_rows + 1, degrees + 1
    return total


@pytest.mark.parametrize("spec", [BGe(), BGe(mean_rows=0.5, excess=4.0)], ids=["default", "other"])
@pytest.mark.parametrize("parents", [[], [1], [0, 2, 4]])
def test_bge_is_a_ratio_of_student_predictions(spec, parents):
    table = number_table(rows=30)
    expected = bge_by_prediction(table, [*parents, 3], spec) - bge_by_prediction(table, parents, spec)
    assert spec.prepare(table).score(3, parents) == pytest.approx(expected, abs=1e-8)


def test_bge_of_one_column_by_numerical_integration():
    column = np.array([0.3, -1.2, 0.9, 2.0])
    score = BGe().prepare(np.column_stack([column, [1.0, 0.0, 0.0, 1.0]]))
    values = standardised(column[:, None])[:, 0]
    # Precision ~ Wishart of one dimension with excess + 1 = 3 degrees of freedom, scatter 1/2: gamma(3/2,
    # rate 1/4).
    mean = np.linspace(-12, 12, 1201)[:, None]
    log_precision = np.linspace(-12, 5, 301)
    precision = np.exp(log_precision)
    prior = gamma.pdf(precision, 1.5, scale=4.0) * norm.pdf(mean, scale=precision**-0.5)
    density = prior * np.prod([norm.pdf(x, loc=mean, scale=precision**-0.5) for x in values], axis=0)
    integral = np.trapezoid(np.trapezoid(density, mean[:, 0], axis=0) * precision, log_precision)
    assert score.score(0, []) == pytest.approx(np.log(integral), abs=1e-5)


def test_schur_recursion_of_a_batch_with_blocks():
    rng = np.random.default_rng(3)
    factors = rng.normal(size=(2, 12, 7))
    gram = np.swapaxes(factors, 1, 2) @ factors
    residual, log_det = schur_tables(gram, block=2)
    assert residual.shape == log_det.shape == (2, 8)
    for index in range(8):
        chosen = [2 * t + part for t in range(3) if index >> t & 1 for part in (0, 1)]
        for batch in range(2):
            inner, cross = gram[batch][np.ix_(chosen, chosen)], gram[batch][chosen, 6]
            assert residual[batch, index] == pytest.approx(gram[batch, 6, 6] - cross @ np.linalg.solve(inner, cross))
            assert log_det[batch, index] == pytest.approx(np.linalg.slogdet(inner)[1], abs=1e-9)


# --- nonlinear ----------------------------------------------------------------------------------------------


def student_evidence(target: np.ndarray, kernels: list[np.ndarray], shape: float = 1.0, scale: float = 1.0) -> float:
    """log of the mean over kernels of p(y), y ~ N(0, sigma2 (K + 1 1' + I)), sigma2 ~ inverse gamma: a
    Student density."""
    base = np.eye(target.size) + 1.0
    logs = [multivariate_t(shape=scale / shape * (kernel + base), df=2 * shape).logpdf(target) for kernel in kernels]
    return float(np.logaddexp.reduce(logs) - np.log(len(logs)))


# Features leave out little of the kernel: .05 nats (three parents), .03 nats below; single precision costs
# .01.
@pytest.mark.parametrize(("parents", "tolerance"), [([], 1e-8), ([1], 0.03), ([1, 2], 0.03), ([0, 1, 2, 4], 0.01)])
@pytest.mark.parametrize("heavy", [False, True])
def test_gaussian_process_against_the_full_kernel(parents, tolerance, heavy):
    table = number_table(rows=300)
    if heavy:
        table[:, 1] = np.random.default_rng(5).standard_t(2.5, size=300) + table[:, 1]
    columns = standardised(table)
    spec = GaussianProcess(noise_shape=1.5, noise_scale=0.7)
    inputs = columns[:, parents]
    distances = ((inputs[:, None] - inputs[None]) ** 2).sum(axis=-1)
    kernel = np.exp(-0.5 * distances) if parents else np.zeros((300, 300))
    expected = student_evidence(columns[:, 3], [0.5 * kernel, 2.0 * kernel], 1.5, 0.7)
    assert spec.prepare(table).score(3, parents) == pytest.approx(expected, abs=tolerance)


def test_gaussian_process_of_three_parents_uses_features_when_rows_are_many():
    table = number_table(rows=1000)
    score = GaussianProcess().prepare(table)
    features = score._set_features((0, 1, 2))
    assert features is not None
    assert features.shape[1] < 500
    columns = standardised(table)
    distances = ((columns[:, None, :3] - columns[None, :, :3]) ** 2).sum(axis=-1)
    kernel = np.exp(-0.5 * distances)
    expected = student_evidence(columns[:, 3], [0.5 * kernel, 2.0 * kernel])
    assert score.score(3, [0, 1, 2]) == pytest.approx(expected, abs=0.05)


def test_gaussian_process_tables_extend_promising_sets_only():
    table, candidates = number_table(rows=300), np.array([0, 1, 2, 4])
    everything = GaussianProcess(full_parents=4).prepare(table).table(3, candidates)
    some = GaussianProcess(full_parents=1, margin=5.0).prepare(table).table(3, candidates)
    sizes = np.bitwise_count(np.arange(16))
    for index in range(16):
        smaller = [index & ~(1 << bit) for bit in range(4) if index >> bit & 1]
        best = max(some[sizes < sizes[index]], default=0.0)
        if sizes[index] <= 1 or any(some[subset] >= best - 5.0 for subset in smaller):
            assert some[index] == everything[index]
        else:
            assert some[index] == -np.inf
    assert 5 < np.isfinite(some).sum() < 16
    assert np.argmax(some) == np.argmax(everything)


@pytest.mark.parametrize("parents", [[], [1], [0, 1, 2, 4]])
def test_additive_basis_is_a_student_density(parents):
    table = number_table(rows=60)
    columns = standardised(table)
    spec = AdditiveBasis(features=5, amplitudes=(0.5, 2.0), noise_shape=1.5, noise_scale=0.7)
    kernel = np.zeros((60, 60))
    for parent in parents:
        basis = spec.basis(columns[:, parent])
        assert np.abs(basis.mean(axis=0)).max() < 1e-12
        kernel += basis @ basis.T
    expected = student_evidence(columns[:, 3], [0.5 * kernel, 2.0 * kernel], 1.5, 0.7)
    assert spec.prepare(table).score(3, parents) == pytest.approx(expected, abs=1e-8)


def test_additive_basis_spans_the_leading_part_of_the_kernel():
    column = standardised(np.random.default_rng(0).normal(size=(400, 1)))[:, 0]
    basis = AdditiveBasis(features=12).basis(column)
    kernel = np.exp(-0.5 * (column[:, None] - column) ** 2)
    centring = np.eye(400) - 1 / 400
    # Twelve functions of 32 quantile points miss only tails beyond the outermost quantile.
    assert np.linalg.norm(basis @ basis.T - centring @ kernel @ centring, 2) < 0.02 * np.linalg.norm(kernel, 2)


def test_additive_basis_of_a_binary_column_is_finite():
    table = number_table()
    table[:, 1] = table[:, 1] > 5
    scores = AdditiveBasis().prepare(table).table(3, np.array([0, 1, 2, 4]))
    assert np.isfinite(scores).all()


# --- categories ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parents", [[], [1], [1, 2, 4], [0, 1, 2, 4]])
def test_bdeu_is_a_sequence_of_urn_predictions(parents):
    table, size = category_table(rows=40), 1.7
    levels = [np.unique(column).size for column in table.T]
    cells = np.prod([levels[p] for p in parents], dtype=float)
    counts: dict[tuple, np.ndarray] = {}
    expected = 0.0
    for row in table.astype(int):
        seen = counts.setdefault(tuple(row[parents]), np.zeros(levels[3]))
        value = row[3] - int(table[:, 3].min())
        expected += np.log((seen[value] + size / cells / levels[3]) / (seen.sum() + size / cells))
        seen[value] += 1
    assert BDeu(equivalent_sample_size=size).prepare(table).score(3, parents) == pytest.approx(expected, abs=1e-9)


def test_bdeu_by_hand():
    # x = 0 0 1 1, y = 0 0 0 1, prior worth 4 rows. p(y) = (2/4)(3/5)(4/6)(2/7) = 2/35;
    # p(y | x): x = 0 gives (1/2)(2/3) = 1/3, x = 1 gives (1/2)(1/3) = 1/6: together 1/18.
    score = BDeu(equivalent_sample_size=4).prepare(np.array([[0, 0], [0, 0], [1, 0], [1, 1]]))
    assert score.score(1, []) == pytest.approx(np.log(2 / 35))
    assert score.score(1, [0]) == pytest.approx(np.log(1 / 18))


def test_bdeu_counts_many_levels_without_overflow():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 40, size=(50, 14)).astype(float)
    score = BDeu().prepare(table)
    # 40**13 combinations of the parents, nearly all rows alone in theirs: each predicts 1/40 of its own cell.
    assert score.score(13, list(range(13))) == pytest.approx(50 * np.log(1 / score.levels[13]), abs=1e-6)


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", [EqualNoise(), BGe(), GaussianProcess(), AdditiveBasis()], ids=lambda s: type(s).__name__
)
def test_a_large_offset_changes_no_score(spec):
    """Multiples of 2^-11 stay exact when 2^40 is added, so that the scores must not see it."""
    table = np.round(number_table() * 2**11) / 2**11
    scores = [
        prepared.at(1.0) if isinstance(prepared, SharedNoise) else prepared
        for prepared in (spec.prepare(table), spec.prepare(table + 2.0**40))
    ]
    plain, moved = (score.score(2, [0, 1]) for score in scores)
    assert moved == pytest.approx(plain, abs=1e-6)


@pytest.mark.parametrize(
    "spec", [EqualNoise(), BGe(), GaussianProcess(), AdditiveBasis()], ids=lambda s: type(s).__name__
)
def test_unusable_columns_are_named(spec):
    table = number_table()
    table[:, 2] = 0.1
    with pytest.raises(DataError, match="column 2 is constant"):
        spec.prepare(table)
    table[3, 1] = np.nan
    with pytest.raises(DataError, match="column 1 holds missing"):
        spec.prepare(table)


def test_numbers_are_not_categories():
    with pytest.raises(DataError, match="column 0 has 80 distinct values"):
        BDeu().prepare(number_table())


@pytest.mark.parametrize(
    "make",
    [
        lambda: EqualNoise(variance=0.0),
        lambda: EqualNoise(weight_variance=-1.0),
        lambda: BGe(excess=1.0),
        lambda: BGe(max_parents=0),
        lambda: GaussianProcess(amplitudes=()),
        lambda: GaussianProcess(length_scale=float("nan")),
        lambda: AdditiveBasis(features=40),
        lambda: BDeu(equivalent_sample_size=0.0),
        lambda: BGe().prepare(number_table()).score(0, [0]),
        lambda: BGe().prepare(number_table()).table(0, np.array([1, 1])),
        lambda: BGe().prepare(number_table()).gains(0, [5]),
    ],
)
def test_settings_that_cannot_be_are_refused(make):
    with pytest.raises(ConfigError):
        make()
