"""Rows from several environments: the score that sums over what they changed, and fits with contexts."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_t

import vcuda
from vcuda.data.contexts import Contexts
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError, DataError
from vcuda.graphs import enumerate_dags
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.models import contexts
from vcuda.models.additive import AdditiveBasis
from vcuda.models.categorical import BDeu
from vcuda.models.contexts import prepare, prepare_rows
from vcuda.models.environment_sets import change_probability
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.linear import BGe
from vcuda.models.mixed.columns import columns_of
from vcuda.models.mixed.tables import MixedTable, Tabulation

ROWS = 40


def small_table(environments=3, interventions=None, kinds=(), codes=False):
    """Three columns, x -> y -> z; the second environment changes the effect on y, the third the level of z."""
    rng = np.random.default_rng(1)
    environment = np.repeat(np.arange(environments), ROWS)
    x = rng.standard_normal(environment.size)
    y = np.where(environment == 1, -0.4, 1.0) * x + 0.5 * rng.standard_normal(environment.size)
    z = 0.8 * y + 2.0 * (environment == 2) + 0.6 * rng.standard_normal(environment.size)
    values = np.column_stack([x, y, z])
    if codes:
        values = (values > 0).astype(float) + (values > 1)
    if kinds:
        values[:, 2] = values[:, 2] > 0.5
    names = tuple(f"site {k}" for k in range(environments))
    return Dataset(
        ("x", "y", "z"),
        values,
        interventions=interventions,
        kinds=kinds,
        contexts=Contexts(("site",), names, (ROWS,) * environments),
        environment=environment,
    )


def frame_of(table):
    return table.to_frame().assign(site=np.array(table.contexts.names)[table.environment])


def by_hand(table, score_of_rows, target, parents):
    """The logarithm of the sum over all sets of environments, and the probability of each change (e,)."""
    count, probability = len(table.contexts.names), change_probability(table.d)
    free = np.ones(table.n, bool) if table.interventions is None else ~table.interventions[:, target]
    terms, sets = [], []
    for own in itertools.product([False, True], repeat=count - 1):
        changed = np.flatnonzero([False, *own])
        log_prior = sum(np.log(probability if one else 1 - probability) for one in own)
        pieces = [free & ~np.isin(table.environment, changed), *(free & (table.environment == e) for e in changed)]
        scores = [score_of_rows(np.flatnonzero(piece), target, parents) for piece in pieces]
        terms.append(log_prior + sum(scores))
        sets.append([False, *own])
    return logsumexp(terms), np.exp(np.array(terms) - logsumexp(terms)) @ np.array(sets)


SETS = [(j, list(u)) for j in range(3) for size in range(3) for u in itertools.combinations({0, 1, 2} - {j}, size)]


@pytest.mark.parametrize(
    "spec", [BGe(), AdditiveBasis(), GaussianProcess(), BDeu()], ids=lambda spec: type(spec).__name__
)
def test_the_score_is_the_sum_over_all_sets_of_environments(spec):
    """Against every set by itself, from rows: the same numbers, and the same probabilities of changes."""
    table = small_table(codes=isinstance(spec, BDeu))
    score = prepare(spec, table)
    centred, scale = spec.common_units(table.values)

    def of_rows(rows, target, parents):
        shifts = (centred[rows].mean(axis=0) / scale)[None]
        return spec.prepare_parts(table.values, [rows], scale=scale, shifts=shifts)[1][0].score(target, parents)

    for target, parents in SETS:
        expected, changed = by_hand(table, of_rows, target, parents)
        assert score.score(target, parents) == pytest.approx(expected, abs=1e-8)
        np.testing.assert_allclose(score.changes(target, parents), changed, atol=1e-8)
        # What adding and leaving out parents changes follows from the scores.
        for other in {0, 1, 2} - {target, *parents}:
            gain = score.gains(target, parents)[other]
            assert gain == pytest.approx(score.score(target, [*parents, other]) - expected, abs=1e-7)
        for place, parent in enumerate(parents):
            rest = [one for one in parents if one != parent]
            loss = score.losses(target, np.array(parents))[place]
            assert loss == pytest.approx(expected - score.score(target, rest), abs=1e-7)
        if len(parents) == 2:
            listed = [score.score(target, u) for u in ([], parents[:1], parents[1:], parents)]
            np.testing.assert_allclose(score.table(target, np.array(parents)), listed, atol=1e-8)


def test_the_score_of_mixed_kinds_is_the_sum_over_all_sets_of_environments():
    table = small_table(kinds=("number", "number", "yes/no"))
    columns = columns_of(table.kinds, table.values)
    others = [[k for k in range(3) if k != j] for j in range(3)]
    tabulation = Tabulation(MixedTable(columns, table.values), others, [[], [], []])
    known = {}

    def of_rows(rows, target, parents):
        key = rows.tobytes()
        if key not in known:
            (known[key],) = tabulation.of_part(rows)
        return known[key].score(target, parents)

    score = prepare_rows(table, lambda chosen: [tabulation.of_part(rows)[0] for rows in chosen], table.scale)
    for target, parents in SETS:
        expected, changed = by_hand(table, of_rows, target, parents)
        assert score.score(target, parents) == pytest.approx(expected, abs=1e-8)
        np.testing.assert_allclose(score.changes(target, parents), changed, atol=1e-8)


def test_the_posterior_is_that_of_all_graphs_and_all_changes():
    """Every DAG of three columns with every set of environments of every column, one by one, each graph once."""
    table = small_table()
    _, scale = BGe().common_units(table.values)

    def of_rows(rows, target, parents):
        return BGe().prepare(table.values[rows], scale=scale).score(target, parents)

    graphs = np.array(list(enumerate_dags(3)))
    odds = 0.3 / 0.7
    local = {(j, tuple(u)): by_hand(table, of_rows, j, u) for j, u in SETS}
    totals, changed = [], []
    for graph in graphs:
        own = [local[j, tuple(np.flatnonzero(graph[:, j]).tolist())] for j in range(3)]
        totals.append(sum(one[0] for one in own) + graph.sum() * np.log(odds))
        changed.append([one[1] for one in own])
    weights = np.exp(totals - logsumexp(totals))
    prior = edge_prior(3, 0.3, over="graphs")
    found = exact_posterior(prepare(BGe(), table), prior, samples=1, rng=np.random.default_rng(0))
    np.testing.assert_allclose(found.edge_probabilities, np.tensordot(weights, graphs, 1), atol=1e-9)
    # A fit says the same; its targets come from 1,000 drawn graphs, of which few kinds count: a share has a standard
    # error of at most .016, and probabilities of changes differ between graphs by at most one.
    posterior = vcuda.fit(frame_of(table), contexts="site", model="linear", prior="uniform:0.3", checks=False)
    expected = np.tensordot(weights, np.array(changed), 1).T[1:]
    np.testing.assert_allclose(posterior.diagnostics["targets"], expected, atol=0.05)


def test_shifts_have_means_of_their_own_and_one_spread():
    """Without parents the score is a multivariate t distribution: means around those of the rows, one variance."""
    table, spec = small_table(environments=2), BGe()
    score = prepare(spec, table, "shifts")
    _, scale = spec.common_units(table.values)
    ridge = spec.prepare(table.values).ridge
    column = table.values[:, 2] / scale[2]
    same = table.environment[:, None] == table.environment
    freedom = spec.excess + 1
    terms = []
    for groups in (np.ones_like(same), same):
        means = (groups @ column) / groups.sum(axis=1)
        shape = (ridge / freedom) * (np.eye(column.size) + groups / spec.mean_rows)
        terms.append(multivariate_t(means, shape, df=freedom, allow_singular=True).logpdf(column))
    probability = change_probability(3)
    expected = logsumexp([np.log(1 - probability) + terms[0], np.log(probability) + terms[1]])
    assert score.score(2, []) == pytest.approx(expected, abs=1e-6)


def test_known_and_unknown_targets_together():
    """What an experiment set says nothing of its causes; where it was always set, nothing is said of a change."""
    held = np.zeros((3 * ROWS, 3), dtype=bool)
    held[2 * ROWS :, 2] = True
    held[: ROWS // 2, 1] = True
    table = small_table(interventions=held)
    score, (_, scale) = prepare(BGe(), table), BGe().common_units(table.values)

    def of_rows(rows, target, parents):
        return BGe().prepare(table.values[rows], scale=scale).score(target, parents) if rows.size else 0.0

    for target, parents in SETS:
        if target != 2:
            assert score.score(target, parents) == pytest.approx(by_hand(table, of_rows, target, parents)[0], abs=1e-8)
    assert score.changes(2, [1])[2] == 0.0
    assert score.changes(1, [0])[1] > 0.9


@pytest.mark.slow
def test_more_sets_than_can_be_summed_are_searched(monkeypatch):
    """With the true limit of 12 environments 14 are searched; on five the search says what the sum says."""
    table = small_table(environments=5)
    whole = prepare(BGe(), table)
    monkeypatch.setattr(contexts, "MOST_SETS", 4)
    some = prepare(BGe(), table)
    assert max(len(part.pieces) for part in some.parts) < len(whole.pieces) + 12
    for target, parents in SETS:
        best = max(whole.score(target, other) for node, other in SETS if node == target)
        # Sets of parents that are far below the best never count, whatever changed.
        assert whole.score(target, parents) - 0.5 <= some.score(target, parents) <= whole.score(target, parents) + 1e-9
        if whole.score(target, parents) > best - 30:
            np.testing.assert_allclose(some.changes(target, parents), whole.changes(target, parents), atol=0.01)
    monkeypatch.undo()
    posterior = vcuda.fit(frame_of(small_table(environments=14)), contexts="site", model="linear", checks=False)
    found = posterior.targets(minimum=0.9)
    # The direction of x and y is open; the level of z is not.
    assert ("site 2", "z") in set(zip(found.environment, found.column, strict=True))
    assert found.column.isin(["x", "y", "z"]).all()
    assert set(found.environment) <= {"site 1", "site 2"}
    assert any("searched for" in sentence for sentence in posterior.provenance.sentences)


@pytest.fixture(scope="module")
def sites():
    """A chain a -> b -> c -> d of numbers; site 2 changed the effect on b, site 3 the level of d."""
    rng = np.random.default_rng(3)
    site = np.repeat(["site 1", "site 2", "site 3"], 150)
    a = rng.standard_normal(450)
    b = np.where(site == "site 2", 0.2, 1.2) * a + 0.7 * rng.standard_normal(450)
    c = 0.9 * b + rng.standard_normal(450)
    d = 0.8 * c + 3.0 * (site == "site 3") + rng.standard_normal(450)
    return pd.DataFrame({"a": a, "b": b, "site": site, "c": c, "d": d})


@pytest.mark.slow
def test_a_fit_finds_graph_and_targets_and_keeps_them(sites, run, tmp_path):
    posterior = vcuda.fit(sites, contexts="site")
    assert posterior.names == ("a", "b", "c", "d")
    assert posterior.status.code == "ok"
    truth = [("a", "b"), ("b", "c"), ("c", "d")]
    assert all(posterior.edge_probabilities.loc[edge] > 0.9 for edge in truth)
    sure = posterior.targets(minimum=0.9)
    assert set(zip(sure.environment, sure.column, strict=True)) == {("site 2", "b"), ("site 3", "d")}
    # Mechanisms are those of the reference: one unit of a changes b by 1.2, with a standard error of .05 or so.
    assert posterior.effect("a", "b").mean == pytest.approx(1.2, abs=0.2)
    reference = sites[sites.site == "site 1"]
    assert posterior.predict(reference).d.sub(reference.d.to_numpy()).abs().mean() < 1.2
    posterior.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    pd.testing.assert_frame_equal(again.targets(), posterior.targets())
    assert again.provenance.options["contexts"] == ["site"]
    assert again.effect("a", "b").mean == posterior.effect("a", "b").mean
    assert again.checks(sites).findings == posterior.checks().findings
    shown = run("targets", tmp_path / "run", "--minimum", "0.9", "--json")
    assert shown.code == 0, shown.err
    said = json.loads(shown.out)
    assert said["reference"] == "site 1"
    assert {one["column"] for one in said["targets"]} == {"b", "d"}
    assert "site 3" in run("targets", tmp_path / "run").out
    with pytest.raises(ConfigError, match="knows no environments"):
        vcuda.fit(sites.drop(columns="site"), model="linear", checks=False).targets()


@pytest.mark.slow
def test_shuffled_labels_change_nothing(sites):
    rng = np.random.default_rng(0)
    found = vcuda.fit(sites.assign(site=rng.permutation(sites.site)), contexts="site", model="linear", checks=False)
    assert found.targets().probability.max() < 0.1


@pytest.mark.slow
def test_files_that_are_streamed_give_the_same(sites, tmp_path):
    path = tmp_path / "sites.csv"
    sites.assign(month=np.tile([1, 2], 225)).to_csv(path, index=False)
    options = {"contexts": "site", "exclude": ["month"], "model": "linear", "checks": False}
    whole = vcuda.fit(path, **options)
    streamed = vcuda.fit(path, streamed=True, **options)
    np.testing.assert_allclose(streamed.edge_probabilities, whole.edge_probabilities, atol=1e-9)
    np.testing.assert_allclose(streamed.diagnostics["targets"], whole.diagnostics["targets"], atol=1e-9)
    row = sites.head(5)
    np.testing.assert_allclose(streamed.predict(row), whole.predict(row), atol=1e-9)
    # Two columns name combinations, numbers among them as they stand in the file.
    both = vcuda.fit(path, streamed=True, contexts=["site", "month"], model="linear", checks=False)
    assert "site=site 3, month=2" in set(both.targets().environment)
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, start in enumerate(range(0, 450, 100)):
        sites.iloc[start : start + 100].to_csv(parts / f"part{number}.csv", index=False)
    folder = vcuda.fit(parts, contexts="site", model="linear", checks=False)
    np.testing.assert_allclose(folder.edge_probabilities, whole.edge_probabilities, atol=1e-9)


@pytest.mark.slow
def test_dask_tables_are_read_partition_by_partition(sites):
    dask = pytest.importorskip("dask.dataframe")
    options = {"contexts": "site", "model": "linear", "checks": False}
    found = vcuda.fit(dask.from_pandas(sites, npartitions=3), streamed=True, **options)
    whole = vcuda.fit(sites, **options)
    np.testing.assert_allclose(found.diagnostics["targets"], whole.diagnostics["targets"], atol=1e-9)


@pytest.mark.slow
def test_knowledge_missing_values_and_mixed_kinds(sites):
    knowledge = vcuda.Knowledge(forbidden=[("a", "b")])
    posterior = vcuda.fit(sites, contexts="site", model="linear", knowledge=knowledge, checks=False)
    assert posterior.sample(200).dense()[:, 0, 1].sum() == 0
    lacking = sites.copy()
    lacking.loc[::9, "c"] = np.nan
    imputed = vcuda.fit(lacking, contexts="site", model="linear", imputations=2, checks=False)
    assert imputed.targets(minimum=0.9).column.tolist() == ["b", "d"]
    labels = sites.drop(columns="d").assign(d=np.where(sites.d > 1, "high", "low"))
    mixed = vcuda.fit(labels, contexts="site", checks=False, subsamples=2)
    assert mixed.provenance.model_name == "mixed"
    assert ("site 3", "d") in set(
        mixed.targets(minimum=0.8)[["environment", "column"]].itertuples(index=False, name=None)
    )
    assert mixed.predict(labels.head(5)).shape == (5, 4)


REFUSED = {
    "a column that is not there": ({"contexts": "sit"}, lambda t: t, "there is no such column .did you mean 'site'"),
    "one environment": ({}, lambda t: t.assign(site="one"), "all rows come from one environment, 'one'"),
    "an environment a row": ({}, lambda t: t.assign(site=range(len(t))), "an environment of its own"),
    "one row": ({}, lambda t: t.assign(site=["alone", *["site 1"] * 449]), "environment 'alone' .* has 1 row,"),
    "an empty cell": ({}, lambda t: t.assign(site=[None, *t.site[1:]]), "data row 1 of context column 'site' is empty"),
    "a reference that is none": ({"reference": "site 9"}, lambda t: t, "no such environment"),
    "a reference of nothing": ({"contexts": None, "reference": "site 1"}, lambda t: t, "there are none"),
    "changes of nothing": ({"contexts": None, "changes": "shifts"}, lambda t: t.drop(columns="site"), "give contexts"),
    "equal noise": ({"model": "linear", "noise": "equal"}, lambda t: t, "noise is not equal"),
    "shifts of curves": ({"model": "gp", "changes": "shifts"}, lambda t: t, "is for linear models"),
    "variational": ({"engine": "variational"}, lambda t: t, "engine exact and engine orders"),
    "excluded too": ({"exclude": ["site"]}, lambda t: t, "name it in one place only"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_fitted_is_refused_in_a_sentence(sites, name):
    options, change, sentence = REFUSED[name]
    with pytest.raises((DataError, ConfigError), match=sentence):
        vcuda.fit(change(sites), **{"contexts": "site"} | options)


@pytest.mark.slow
def test_the_command_line_refuses_with_exit_code_2(sites, run, tmp_path):
    path = tmp_path / "sites.csv"
    sites.assign(site=["alone", *["site 1"] * 449]).to_csv(path, index=False)
    answer = run("fit", path, "-o", tmp_path / "run", "--contexts", "site")
    assert answer.code == 2
    assert "environment 'alone'" in answer.err
    assert run("fit", path, "-o", tmp_path / "run", "--contexts", "where").code == 2


@pytest.mark.slow
def test_report_check_and_estimator_know_environments(sites, run, tmp_path):
    sites.to_csv(tmp_path / "sites.csv", index=False)
    posterior = vcuda.fit(tmp_path / "sites.csv", contexts="site", model="linear", checks=False)
    posterior.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What environments changed" in page
    assert "--contexts site" in page
    assert "site 1 (150 rows), the reference" in run("check", tmp_path / "sites.csv", "--contexts", "site").out
    estimator = vcuda.CausalPosterior(contexts="site", model="linear", checks=False).fit(sites)
    assert np.isfinite(estimator.score(sites[sites.site == "site 1"]))
    with pytest.raises(ConfigError, match="why does not know"):
        posterior.why("a", "b")
