"""Posterior: what people ask of it, in their own units, saved and loaded without loss."""

import json

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.checks.findings import Checks, Finding, Made
from vcuda.errors import DataError, RunError
from vcuda.infer.straight_through import StraightThrough
from vcuda.posterior.status import ASSUMED, UNSEEN, Status
from vcuda.posterior.storage import FILES

ENGINE = StraightThrough(epochs=60, restarts=2, graph_samples=2, check_every=5)


@pytest.fixture(scope="module")
def simulation():
    return vcuda.simulate("er", nodes=6, edges=6, rows=200, test_rows=100, seed=1)


@pytest.fixture(scope="module")
def posterior(simulation):
    with pytest.warns(vcuda.ConvergenceWarning):
        return vcuda.fit(simulation.train, model="linear", engine=ENGINE, seed=4)


def test_edges_are_named_and_sorted(posterior):
    edges = posterior.edges()
    assert list(edges.columns) == ["source", "target", "probability", "holds_with_hidden_causes"]
    assert len(edges) == 30
    assert edges.probability.is_monotonic_decreasing
    matrix = posterior.edge_probabilities
    assert list(matrix.index) == list(matrix.columns) == list(posterior.names)
    for row in edges.itertuples():
        assert matrix.loc[row.source, row.target] == row.probability
    assert (np.diag(matrix) == 0).all()
    assert (posterior.edges(minimum=0.5).probability >= 0.5).all()


def test_the_matrix_handed_out_is_a_copy(posterior):
    before = posterior.edge_probabilities
    handed_out = posterior.edge_probabilities
    handed_out.iloc[0, 1] = 9.0
    pd.testing.assert_frame_equal(posterior.edge_probabilities, before)


def test_samples_are_dags_with_the_marginals_told(posterior):
    samples = posterior.sample(4000, seed=2)
    assert samples.all_acyclic()
    expected = posterior.edge_probabilities.to_numpy()
    # A share of 4,000 independent draws has a standard error of at most 0.008; 30 shares, five errors: 1 in 60,000.
    error = np.sqrt(expected * (1 - expected) / 4000) + 1e-4
    assert (np.abs(samples.edge_probabilities() - expected) < 5 * error).all()
    np.testing.assert_array_equal(posterior.sample(5, seed=3).dense(), posterior.sample(5, seed=3).dense())


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda posterior, data: posterior.sample(0), "size must be a whole number at least 1, not 0"),
        (lambda posterior, data: posterior.sample(-1), "size must be a whole number at least 1, not -1"),
        (lambda posterior, data: posterior.sample(2.5), "size must be a whole number, not 2.5"),
        (lambda posterior, data: posterior.sample(1, seed=-1), "seed must be a whole number from 0"),
        (lambda posterior, data: posterior.predict(data, graphs=0), "graphs must be a whole number at least 1"),
        (lambda posterior, data: posterior.held_out(data, seed="x"), "seed must be a whole number"),
        (lambda posterior, data: posterior.effect("X1", "X2", seed=-1), "seed must be a whole number"),
        (lambda posterior, data: posterior.paths("X1", "X2", draws=1.5), "draws must be a whole number"),
    ],
)
def test_impossible_numbers_are_refused_in_a_sentence(simulation, posterior, ask, message):
    with pytest.raises(vcuda.ConfigError, match=message):
        ask(posterior, simulation.test)


def test_prediction_is_in_the_users_units(simulation, posterior):
    """The same fit of the same table in other units predicts the same things in those units."""
    units, offset = np.array([1.0, 1e3, 1e-3, 7.0, 1.0, 2.0]), np.array([0.0, 5e4, 1.0, -3.0, 0.0, 0.0])
    train = simulation.train.to_frame() * units + offset
    test = simulation.test.to_frame() * units + offset
    with pytest.warns(vcuda.ConvergenceWarning):
        other = vcuda.fit(train, model="linear", engine=ENGINE, seed=4)
    np.testing.assert_allclose(other.edge_probabilities, posterior.edge_probabilities, atol=0.02)
    expected = posterior.predict(simulation.test).to_numpy() * units + offset
    spread = test.to_numpy().std(axis=0)
    assert (np.abs(other.predict(test).to_numpy() - expected) / spread).mean() < 0.02
    seen, told_in_units = posterior.held_out(simulation.test), other.held_out(test)
    assert told_in_units["log_likelihood"] == pytest.approx(seen["log_likelihood"] - np.log(units).sum(), abs=0.1)
    assert seen["nll"] == pytest.approx(-seen["log_likelihood"] / 6)


def test_held_out_error_beats_the_mean_and_not_the_noise(simulation, posterior):
    mse = posterior.held_out(simulation.test)["mse"]
    assert 0.8 < mse < (simulation.test.scale**2).mean()


def test_columns_may_come_in_another_order_but_must_be_there(simulation, posterior):
    table = simulation.test.to_frame()
    shuffled = posterior.predict(table[list(reversed(table.columns))])
    pd.testing.assert_frame_equal(shuffled, posterior.predict(table))
    with pytest.raises(DataError, match="X1"):
        posterior.predict(table.drop(columns="X1"))


def test_save_and_load_give_the_same_posterior(simulation, posterior, tmp_path):
    posterior.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    pd.testing.assert_frame_equal(again.edge_probabilities, posterior.edge_probabilities)
    np.testing.assert_array_equal(again.sample(20, seed=1).dense(), posterior.sample(20, seed=1).dense())
    assert again.held_out(simulation.test) == posterior.held_out(simulation.test)
    assert again.status == posterior.status
    assert again.provenance == json.loads(json.dumps(posterior.provenance))
    assert repr(again) == repr(posterior)
    listed = pd.read_csv(tmp_path / "run" / "edges.csv")
    assert (listed.probability >= 1e-4).all()
    assert len(listed) == (posterior.edges().probability >= 1e-4).sum()
    again.save(tmp_path / "again")
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


@pytest.mark.parametrize("unit", [1e-60, 1e60, 1e140])
def test_runs_of_tables_in_extreme_units_are_read_back(tmp_path, unit):
    first, second = np.random.default_rng(0).normal(size=(2, 100))
    table = pd.DataFrame({"a": unit * first, "b": unit * (first + second)})
    kept = vcuda.fit(table, model="linear", noise="equal")
    kept.save(tmp_path / "run")
    assert vcuda.Posterior.load(tmp_path / "run").edge_probabilities.equals(kept.edge_probabilities)


def test_a_saved_run_is_replaced_but_other_folders_are_not_touched(posterior, tmp_path):
    posterior.save(tmp_path / "run")
    posterior.save(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(FILES)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(RunError, match="other files"):
        posterior.save(tmp_path / "mine")
    with pytest.raises(RunError, match="is a file"):
        posterior.save(tmp_path / "mine" / "thesis.txt")


def rewrite(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda run: (run / "config.json").unlink(), "no config.json"),
        (lambda run: (run / "config.json").write_text("{"), "damaged"),
        (lambda run: (run / "posterior.npz").write_bytes(b"PK\x03\x04"), "damaged"),
        (lambda run: (run / "posterior.npz").unlink(), "damaged"),
        (lambda run: rewrite(run / "config.json", lambda c: c.update(format=99)), "newer vcuda"),
        (lambda run: rewrite(run / "config.json", lambda c: c["names"].pop()), "another set of columns"),
        (lambda run: rewrite(run / "config.json", lambda c: c["law"].update(kind="other")), "damaged"),
        (
            lambda run: rewrite(run / "config.json", lambda c: c["law"]["model"].update(name="mlp", hidden=[3])),
            "shape|damaged",
        ),
        (lambda run: np.savez(run / "posterior.npz", harm=np.array([object()])), "damaged"),
    ],
)
def test_a_damaged_run_is_refused_with_a_sentence(posterior, tmp_path, harm, message):
    posterior.save(tmp_path / "run")
    harm(tmp_path / "run")
    with pytest.raises(RunError, match=message):
        vcuda.Posterior.load(tmp_path / "run")


def test_summary_tells_what_the_issue_asks(posterior):
    summary = posterior.summary()
    for key in ("engine", "model", "status", "seconds", "rows", "columns", "seed", "versions", "diagnostics"):
        assert key in summary
    assert summary["engine"] == "straight-through"
    assert summary["seed"] == 4


# ---- the status and its parts

MADE = (Made("order of the rows", 1e-9, 0.1, 500),)
DRIFT = Finding(
    check="order of the rows",
    severity="warning",
    columns=("X1", "X2"),
    edges=(("X1", "X2"), ("X2", "X3"), ("X4", "X3"), ("X4", "X5")),
    sentence="The rows depend on those before them.",
    changes="These edges may be two columns that drift side by side.",
    remedy="Take differences of neighbouring rows.",
    statistic=9.0,
    p_value=1e-9,
)
NOTE = Finding("shape of residuals", "note", ("X1",), (), "Tails are heavy.", "It changes no sure edge.", "")


def test_before_the_checks_a_status_speaks_of_the_arithmetic():
    status = Status("ok", "The chains agree.")
    assert (status.code, status.sentence) == ("ok", "The chains agree.")
    assert status.arithmetic == ("ok", "The chains agree.")
    assert status.description.code == "not checked"
    assert status.unseen == UNSEEN


@pytest.mark.parametrize("arithmetic", ["ok", "warning", "interrupted", "failed"])
@pytest.mark.parametrize("findings", [(), (NOTE,), (NOTE, DRIFT)], ids=["nothing", "note", "warning"])
def test_the_code_is_the_worse_part_and_the_sentence_leads_with_the_weakest(arithmetic, findings):
    status = Status(arithmetic, "The arithmetic.").described_by(Checks(findings, MADE))
    described = "warning" if DRIFT in findings else "ok"
    assert status.arithmetic == (arithmetic, "The arithmetic.")
    assert status.description.code == described
    order = ["ok", "warning", "interrupted", "failed"]
    assert status.code == max(arithmetic, described, key=order.index)
    if arithmetic == "failed":
        assert status.sentence == "The arithmetic."
        return
    leads = "The arithmetic." if order.index(arithmetic) > order.index(described) else status.description.sentence
    assert status.sentence.startswith(leads)
    for part in (status.arithmetic, status.description, status.unseen):
        assert status.sentence.count(part.sentence) == 1
    for word in ("unmeasured confounding", "selection", "measurement error"):
        assert word in status.sentence


def test_a_warning_names_the_edges_the_reason_and_the_remedy():
    sentence = Status("ok", "Fine.").described_by(Checks((DRIFT, NOTE), MADE)).description.sentence
    assert sentence == (
        "The model checks put 4 sure edges (X1 -> X2, X2 -> X3, X4 -> X3 and 1 more) in doubt: The rows depend on "
        "those before them. Take differences of neighbouring rows."
    )
    quiet = Status("ok", "Fine.").described_by(Checks((NOTE,), MADE, "time was too short for: outliers"))
    assert quiet.description.sentence == (
        "The model checks found nothing that puts a sure edge in doubt (noted: shape of residuals); time was too short "
        "for: outliers."
    )
    unchecked = Status("ok", "Fine.").described_by(Checks(not_made="12 rows are too few"))
    assert (unchecked.code, unchecked.description.code) == ("ok", "not checked")
    assert "12 rows are too few" in unchecked.description.sentence


def test_other_checks_take_the_place_of_earlier_ones():
    status = Status("ok", "Fine.").described_by(Checks((DRIFT,), MADE))
    assert status.described_by(Checks((), MADE)) == Status("ok", "Fine.").described_by(Checks((), MADE))


def test_the_status_of_checks_is_stored(posterior, tmp_path):
    doubted = posterior.with_checks(Checks((DRIFT,), MADE))
    doubted.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    assert again.checks() == doubted.checks()
    assert again.status == doubted.status
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == json.loads(json.dumps(again.summary()))
    assert summary["edges_in_doubt"] == [list(edge) for edge in DRIFT.edges]
    assert {name: part["code"] for name, part in summary["status_parts"].items()} == {
        "arithmetic": posterior.status.arithmetic.code,
        "description": "warning",
        "unseen": "not checked",
    }
    # Programs of before find the arithmetic where it was.
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["status"]
    assert stored == posterior.status.arithmetic._asdict()


def test_effects_say_what_they_assume(posterior):
    assert posterior.caveat == ASSUMED
    doubted = posterior.with_checks(Checks((DRIFT,), MADE))
    found = doubted.effect("X1", "X2", draws=10)
    assert found.sentence.startswith(f"{found.answer} {doubted.caveat}")
    assert found.sentence.endswith(found.hidden_cause)
    assert (
        "The model checks put X1 -> X2, X2 -> X3, X4 -> X3 and 1 more in doubt, and with them every effect that hangs "
        "on them."
    ) in found.sentence
    assert found.caveat.endswith(ASSUMED)
    assert f"not at all. {ASSUMED}" in posterior.effect("X1", "X2", draws=10).sentence
