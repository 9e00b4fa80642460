"""Runs that earlier versions saved are read for ever: the same edges, graphs and predictions as when they were saved.

How they were made stands in ``fixtures/make_runs.py``. When one of these tests fails, fix the reading, not the folder.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.posterior.storage import FORMAT, GRAPH_POSTERIORS

FOLDERS = sorted(path.parent for path in (Path(__file__).parent / "fixtures").glob("run-format-*/*/config.json"))
# Averages over draws may change with the way of drawing: by the spread between seeds that was stored, which comes from
# twenty of them. Eight such spreads happen to no cell out of a million by chance.
SPREADS = 8
DRAWS = 2000


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def run(request):
    expected = json.loads((request.param / "expected.json").read_text(encoding="utf-8"))
    return vcuda.Posterior.load(request.param), expected


def test_every_law_of_every_format_has_a_run():
    for number in range(1, FORMAT + 1):
        kinds = {
            json.loads((folder / "config.json").read_text(encoding="utf-8"))["law"]["kind"]
            for folder in FOLDERS
            if folder.parent.name == f"run-format-{number}"
        }
        assert kinds == set(GRAPH_POSTERIORS)


def test_edges_are_what_they_were(run):
    posterior, expected = run
    assert list(posterior.names) == expected["names"]
    assert posterior.graph_posterior.kind == expected["law"]
    stored = np.array(expected["edge_probabilities"])
    if getattr(getattr(posterior.graph_posterior, "dags", None), "exact_marginals", True):
        np.testing.assert_allclose(posterior.edge_probabilities, stored, rtol=1e-5, atol=1e-7)
    else:
        # Shares of 2,000 draws, now and then.
        error = np.sqrt(2 * stored * (1 - stored) / 2000) + 1e-3
        assert (np.abs(posterior.edge_probabilities - stored) < 5 * error).to_numpy().all()
    assert posterior.edges()["probability"].is_monotonic_decreasing


def test_graphs_are_drawn_with_these_probabilities(run):
    posterior, expected = run
    samples = posterior.sample(DRAWS, seed=1)
    assert samples.all_acyclic()
    assert list(samples.names) == expected["names"]
    stored = np.array(expected["edge_probabilities"])
    # The standard error of a share of 2,000 draws, twice that variance where the probability is one of draws too or
    # where a pool of graphs stands for it, of which there are at least 1,000 unless it is the whole posterior.
    error = np.sqrt(stored * (1 - stored) * (1 / DRAWS + 1 / 1000)) + 1e-3
    assert (np.abs(samples.edge_probabilities() - stored) < 5 * error).all()
    np.testing.assert_allclose(samples.edge_probabilities()[stored == 1], 1, rtol=1e-9)
    assert (samples.edge_probabilities()[stored == 0] == 0).all()


def test_rows_are_predicted_as_they_were(run):
    posterior, expected = run
    rows = pd.DataFrame(expected["rows"], columns=expected["names"])
    if "held_out" in expected:
        again = posterior.held_out(rows, graphs=expected["graphs"], seed=99)
        # Other graphs of the same pool: about as likely.
        assert again == pytest.approx(expected["held_out"], rel=0.05)
        return
    if "prediction" not in expected:
        with pytest.raises(vcuda.ConfigError, match="no functions to predict with"):
            posterior.predict(rows)
        return
    predicted = posterior.predict(rows, graphs=expected["graphs"], seed=99).to_numpy()
    stored, spread = np.array(expected["prediction"]), np.array(expected["prediction_spread"])
    assert (np.abs(predicted - stored) <= SPREADS * spread + 1e-4 * rows.std().to_numpy()).all()
    density = posterior.held_out(rows, graphs=expected["graphs"], seed=99)["log_likelihood"]
    assert abs(density - expected["log_likelihood"]) <= SPREADS * expected["log_likelihood_spread"] + 1e-3


def test_how_it_was_made_is_still_told(run):
    posterior, _ = run
    summary = posterior.summary()
    assert summary["rows"] == 54
    assert summary["seed"] == 1
    assert posterior.status.description.code == "not checked"
    assert posterior.status.code == posterior.status.arithmetic.code
    assert posterior.status.arithmetic.sentence in posterior.status.sentence
    assert "posterior.checks(table) makes them" in posterior.status.sentence
    assert posterior.provenance["versions"]["vcuda"]
    assert posterior.consensus().graph.shape == (4, 4)


def test_a_run_that_is_saved_again_is_the_same(run, tmp_path):
    posterior, _ = run
    posterior.save(tmp_path / "again")
    again = vcuda.Posterior.load(tmp_path / "again")
    pd.testing.assert_frame_equal(again.edge_probabilities, posterior.edge_probabilities)
    assert again.provenance == posterior.provenance
    np.testing.assert_array_equal(again.sample(20, seed=2).dense(), posterior.sample(20, seed=2).dense())
