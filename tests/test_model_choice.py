"""The evidence chooses the model: on data of which the model is known, and by every method."""

import numpy as np
import pytest

from vcuda.data.dataset import Dataset
from vcuda.data.reading import as_dataset
from vcuda.data.simulate import simulate
from vcuda.errors import DataError
from vcuda.fitting.fit import fit
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import RoundingError, exact_posterior
from vcuda.infer.selection import evidence, models
from vcuda.infer.selection.logarithms import choose_logarithms
from vcuda.infer.selection.models import choose_model

NODES = 6


def linear(seed: int = 0) -> Dataset:
    return simulate("er", nodes=NODES, edges=NODES, rows=500, test_rows=1, seed=seed).train


def curved(seed: int = 0) -> Dataset:
    return simulate("er", nodes=NODES, edges=NODES, mechanism="gp", rows=500, test_rows=1, seed=seed).train


def standardised(data: Dataset) -> Dataset:
    return as_dataset(data.standardised())


METHODS = {
    "exact": {},
    "best graph": {"EXACT_COLUMNS": 2},
    "one order": {"EXACT_COLUMNS": 2, "CLIMBED_COLUMNS": 2, "SAMPLED_COLUMNS": 5},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_model_that_made_the_data(method, monkeypatch):
    for name, value in METHODS[method].items():
        monkeypatch.setattr(evidence if name == "SAMPLED_COLUMNS" else models, name, value)
    wanted = {
        ("linear", "equal"): linear(),
        ("linear", "unequal"): standardised(linear()),
        ("gp", "unequal"): curved(),
    }
    for (model, noise), data in wanted.items():
        choice = choose_model(data, edge_prior(data.d, 0.3))
        assert (choice.candidate.model, choice.candidate.noise) == (model, noise)
        assert choice.method == method
        assert len(choice.log_evidence) == 4
        assert choice.scored.score.nodes == NODES


@pytest.mark.parametrize("method", ["best graph", "one order"])
def test_equal_noise_is_found_where_a_column_has_many_causes(method, monkeypatch):
    """A hub of 16 causes: what a graph with fewer of them leaves unexplained must not count against equal noise."""
    for name, value in METHODS[method].items():
        monkeypatch.setattr(evidence if name == "SAMPLED_COLUMNS" else models, name, value)
    monkeypatch.setattr(evidence, "SAMPLED_COLUMNS", 18)
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(500, 16))
    hub = causes @ rng.choice([-1.0, 1.0], size=16) + rng.normal(size=500)
    child = hub + rng.normal(size=500)
    choice = choose_model(as_dataset(np.column_stack([causes, hub, child])), edge_prior(18, 0.1), models=("linear",))
    assert choice.method == method
    assert choice.candidate.noise == "equal"


@pytest.mark.parametrize("method", METHODS)
def test_scales_too_far_apart_for_one_unit_leave_equal_noise_out(method, monkeypatch):
    """Units of 1e-80 and of 1e80, as often: the evidence is that of the table in ordinary units."""
    for name, value in METHODS[method].items():
        monkeypatch.setattr(evidence if name == "SAMPLED_COLUMNS" else models, name, value)
    data = standardised(linear())
    units = np.array([1e-80, 1e80, 1.0, 1e-80, 1e80, 1.0])
    far = Dataset(data.names, data.values * units)
    choice = choose_model(far, edge_prior(far.d, 0.3), models=("linear",))
    assert list(choice.log_evidence) == ["linear, unequal noise"]
    same = choose_model(data, edge_prior(data.d, 0.3), models=("linear",)).log_evidence["linear, unequal noise"]
    assert np.isfinite(choice.log_evidence["linear, unequal noise"])
    if method != "one order":  # there five of six columns stand for all, and with them their units
        assert choice.log_evidence["linear, unequal noise"] == pytest.approx(same, abs=1e-3)
    assert "One noise variance for all columns was not considered" in choice.sentences[-1]
    with pytest.raises(DataError, match=r"column 'X2' varies by 1e[+]80, column 'X1' by 1e-80.*in one unit"):
        choose_model(far, edge_prior(far.d, 0.3), noise="equal")


@pytest.mark.slow
def test_the_evidence_does_not_depend_on_the_units_but_for_their_jacobian():
    """Centimetres for metres: the density of every cell falls by the factor, for all models alike."""
    data = standardised(linear())
    units = np.array([1e3, 1e-3, 7.0, 1.0, 50.0, 0.2])
    other = Dataset(data.names, data.values * units)
    for name in ("linear, unequal noise", "nonlinear, additive", "nonlinear, Gaussian process"):
        one = choose_model(data, edge_prior(data.d, 0.3)).log_evidence[name]
        two = choose_model(other, edge_prior(other.d, 0.3)).log_evidence[name]
        assert two == pytest.approx(one - data.n * np.log(units).sum(), abs=1e-3)


def test_estimates_are_close_to_the_exact_evidence_where_both_can_be_had(monkeypatch):
    """What the best graph leaves out, how many orders and graphs are about as good, differs little between models."""
    for data in (linear(1), curved(1)):
        exact = choose_model(data, edge_prior(data.d, 0.3)).log_evidence
        monkeypatch.setattr(models, "EXACT_COLUMNS", 2)
        estimated = choose_model(data, edge_prior(data.d, 0.3)).log_evidence
        monkeypatch.undo()
        gaps = {name: exact[name] - estimated[name] for name in exact}
        process = gaps.pop("nonlinear, Gaussian process")
        # All leave out the 15 absent or present pairs, 15 log(.7) = -5, and the share of orders of one graph, between
        # -log 6! = -6.6 and 0; on four tables the three gaps lay between -9.4 and -5.6.
        assert np.ptp(list(gaps.values())) < 6
        # The process is asked about another model's graph, so that its estimate is too low, but never too high.
        assert process > min(gaps.values()) - 3


def test_logarithms_are_found_one_by_one():
    """Exponentials of some columns: their logarithms are what was simulated, and the others stay as they are."""
    data = linear(3)
    shifted = data.values - data.values.min(axis=0) + 5.0
    mixed = shifted.copy()
    mixed[:, [1, 4]] = np.exp(data.standardised()[:, [1, 4]])
    chosen, gains = choose_logarithms(as_dataset(mixed), edge_prior(NODES, 0.3), np.random.default_rng(0))
    assert np.flatnonzero(chosen).tolist() == [1, 4]
    assert (gains[[1, 4]] > 50).all()


def test_columns_with_zeros_have_no_logarithm():
    counts = np.abs(linear().values)
    counts[0] = 0.0
    choice = choose_model(as_dataset(counts), edge_prior(NODES, 0.3))
    assert not choice.scored.units.logarithm.any()


def test_the_sentences_name_columns_and_nats():
    values = np.exp(linear().standardised())
    choice = choose_model(Dataset(("a", "b", "c", "d", "e", "f"), values), edge_prior(NODES, 0.3))
    seen = " ".join(choice.sentences)
    assert "favour linear mechanisms by" in seen
    assert "the logarithm of" in seen
    assert choice.scored.units.logarithm.all()
    assert not any(np.isnan(value) for value in choice.log_evidence.values())


def test_a_deadline_leaves_models_out_and_says_so():
    choice = choose_model(linear(), edge_prior(NODES, 0.3), deadline=0.0)
    assert len(choice.log_evidence) == 1
    assert "Not compared within the time limit: linear, equal noise" in choice.sentences[-1]
    assert not any("was not considered" in sentence for sentence in choice.sentences)


@pytest.mark.parametrize("nodes", [NODES, 15, 201])
def test_without_time_for_a_comparison_units_do_not_decide(nodes):
    data = simulate("er", nodes=nodes, edges=nodes, rows=100, test_rows=1, seed=0).train
    choice = choose_model(data, edge_prior(nodes, 0.1), deadline=0.0)
    assert (choice.candidate.model, choice.candidate.noise) == ("linear", "unequal")
    assert any("takes linear, unequal noise, which does not depend on the units" in said for said in choice.sentences)
    # A comparison that was asked to have equal noise keeps it.
    asked = choose_model(data, edge_prior(nodes, 0.1), noise="equal", models=("linear",), deadline=0.0)
    assert asked.candidate.noise == "equal"


def test_a_deadline_during_a_comparison_leaves_that_model_out(monkeypatch):
    ticks = iter(range(10_000))
    monkeypatch.setattr(models.time, "monotonic", lambda: float(next(ticks)))
    # Scoring six nodes takes some ten looks at the clock a model: the second or third one is out of time.
    choice = choose_model(linear(), edge_prior(NODES, 0.3), deadline=20.0)
    assert 1 <= len(choice.log_evidence) < 4
    assert "Not compared within the time limit" in choice.sentences[-1]


def test_many_rows_are_too_many_for_a_gaussian_process():
    data = curved()
    many = as_dataset(np.tile(data.values, (5, 1)) + 1e-3 * np.random.default_rng(0).normal(size=(2500, NODES)))
    choice = choose_model(many, edge_prior(many.d, 0.3))
    assert choice.candidate.model == "additive"
    assert "not considered above 2,000 rows" in choice.sentences[-1]


def test_what_is_asked_for_is_not_compared():
    assert choose_model(curved(), edge_prior(NODES, 0.3), models=("linear",)).candidate.model == "linear"
    assert choose_model(standardised(linear()), edge_prior(NODES, 0.3), noise="equal").candidate.noise == "equal"
    assert choose_model(curved(), edge_prior(NODES, 0.3), models=("linear", "additive")).candidate.model == "additive"


def test_a_model_that_rounding_spoils_is_left_out_and_the_sentences_say_so(monkeypatch):
    def spoilt(score, prior, **options):
        if score.nuisance is not None:
            raise RoundingError("equal noise cannot be computed")
        return exact_posterior(score, prior, **options)

    monkeypatch.setattr(evidence, "exact_posterior", spoilt)
    choice = choose_model(linear(), edge_prior(NODES, 0.3), models=("linear",))
    assert choice.candidate.noise == "unequal"
    assert any("their scales differ too much" in sentence for sentence in choice.sentences)
    with pytest.raises(DataError, match="equal noise cannot be computed"):
        choose_model(linear(), edge_prior(NODES, 0.3), models=("linear",), noise="equal")


@pytest.mark.parametrize("method", METHODS)
def test_columns_whose_variances_grow_by_powers_of_ten_get_unequal_noise(method, monkeypatch):
    for name, value in METHODS[method].items():
        monkeypatch.setattr(evidence if name == "SAMPLED_COLUMNS" else models, name, value)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((200, 9))
    for node in range(1, 9):
        values[:, node] += 30 * values[:, node - 1]
    data = as_dataset(values)
    raw = np.zeros(9, dtype=bool)
    choice = choose_model(data, edge_prior(9, 0.2), models=("linear",), logarithm=raw)
    assert choice.candidate.noise == "unequal"
    assert any("their scales differ too much" in sentence for sentence in choice.sentences)
    with pytest.raises(RoundingError, match="use unequal noise"):
        choose_model(data, edge_prior(9, 0.2), models=("linear",), noise="equal", logarithm=raw)


@pytest.mark.parametrize("engine", ["orders", "variational"])
def test_an_engine_says_that_equal_noise_cannot_be_computed(engine):
    values = np.random.default_rng(0).standard_normal((50, 3)) * [1e-9, 1.0, 1e9]
    with pytest.raises(DataError, match=r"the largest varies .* times as much as the smallest; use unequal noise"):
        fit(values, model="linear", noise="equal", engine=engine)
