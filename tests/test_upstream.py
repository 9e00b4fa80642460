"""Knowledge that one column is upstream of another."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

import vcuda
from vcuda.errors import ConfigError, KnowledgeError
from vcuda.graphs import ancestors, enumerate_dags
from vcuda.models.linear import BGe

KNOWN = vcuda.Knowledge(upstream=["a -> c"])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    a = rng.standard_normal(60)
    b = 0.5 * a + rng.standard_normal(60)
    return pd.DataFrame({"a": a, "b": b, "c": 0.5 * b + rng.standard_normal(60)})


def test_the_posterior_is_that_of_all_graphs_that_obey(table):
    """Against the sum over all DAGs of three columns with a path; 20,000 draws, of which about 2,000 obey: a share has
    a standard error of at most .011, and four of them are .045."""
    score = BGe().prepare(table.to_numpy())
    graphs = np.array([graph for graph in enumerate_dags(3) if ancestors(graph)[0, 2]])
    parents = [[np.flatnonzero(graph[:, j]).tolist() for j in range(3)] for graph in graphs]
    totals = np.array([sum(score.score(j, own[j]) for j in range(3)) for own in parents])
    totals += graphs.sum(axis=(1, 2)) * np.log(0.3 / 0.7)
    expected = np.tensordot(np.exp(totals - logsumexp(totals)), graphs, 1)
    posterior = vcuda.fit(table, model="linear", prior="uniform:0.3", knowledge=KNOWN, checks=False)
    np.testing.assert_allclose(posterior.edge_probabilities, expected, atol=0.045)
    assert posterior.ancestors().loc["a", "c"] == 1.0
    without = vcuda.fit(table, model="linear", prior="uniform:0.3", checks=False).ancestors(draws=1000).loc["a", "c"]
    assert posterior.diagnostics["upstream_share"] == pytest.approx(without, abs=0.05)
    assert any("a is upstream of c" in sentence for sentence in posterior.provenance.sentences)
    assert "drawn graphs obey" in posterior.status.arithmetic.sentence


@pytest.mark.slow
def test_sampled_orders_and_missing_values_obey_too(table, tmp_path):
    # Of about 1,000 graphs few are left, and the status says so.
    with pytest.warns(vcuda.ConvergenceWarning, match="drawn graphs obey"):
        posterior = vcuda.fit(table, model="linear", engine="orders", knowledge=KNOWN, checks=False)
    assert posterior.ancestors().loc["a", "c"] == 1.0
    lacking = table.copy()
    lacking.loc[::9, "b"] = np.nan
    imputed = vcuda.fit(lacking, model="linear", imputations=2, knowledge=KNOWN, checks=False)
    assert imputed.ancestors().loc["a", "c"] == 1.0
    imputed.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    assert again.provenance["knowledge"]["upstream"] == [["a", "c"]]


@pytest.mark.parametrize("name", ["known.toml", "known.csv"])
def test_it_is_kept_in_files(name, tmp_path):
    KNOWN.write(tmp_path / name)
    assert vcuda.Knowledge.read(tmp_path / name).upstream == (("a", "c"),)
    with pytest.raises(ConfigError, match="upstream"):
        KNOWN.write(tmp_path / "known.txt")


def test_what_cannot_be_obeyed_is_refused(table):
    for options, sentence in (
        ({"upstream": ["a -> b"], "required": ["b -> a"]}, "form a cycle"),
        ({"upstream": ["a -> b", "b -> a"]}, "form a cycle"),
        ({"upstream": ["a -> a"]}, "to itself"),
        ({"upstream": ["a -> b"], "roots": ["b"]}, "'b' is a root"),
        ({"upstream": ["a -> b"], "sinks": ["a"]}, "'a' is a sink"),
    ):
        with pytest.raises(KnowledgeError, match=sentence):
            vcuda.Knowledge(**options)
    with pytest.raises(ConfigError, match="engine exact and engine orders"):
        vcuda.fit(table, model="linear", engine="variational", knowledge=KNOWN)
    blocked = vcuda.Knowledge(upstream=["a -> c"], forbidden=["a -> b", "a -> c"])
    with pytest.raises(KnowledgeError, match="only 0 of 20,000 drawn graphs"):
        vcuda.fit(table, model="linear", knowledge=blocked)


@pytest.mark.slow
def test_the_command_line_takes_it(table, run, tmp_path):
    table.to_csv(tmp_path / "table.csv", index=False)
    line = ["fit", tmp_path / "table.csv", "-o", tmp_path / "run", "--model", "linear", "--no-report", "--no-checks"]
    assert run(*line, "--upstream", "a -> c").code == 0
    assert vcuda.Posterior.load(tmp_path / "run").ancestors().loc["a", "c"] == 1.0
    assert run(*line, "--upstream", "a -> d").code == 2
