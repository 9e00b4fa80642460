"""Posteriors over graphs with hidden causes: their score, their sampling, what they obey and how they are kept."""

import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import vcuda
from vcuda.ancestral import ARROW, CIRCLE, TAIL, mag_of, pag_of
from vcuda.graphs import ancestors, is_dag
from vcuda.infer.admg import chains, districts
from vcuda.outputs import exports
from vcuda.posterior.mixed_graphs import APART, BACKWARD, BIDIRECTED, FORWARD, pairs_of


def problem_of(values, log_odds=-1.0):
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    pairs = pairs_of(values.shape[1])
    prior = np.tile([0.0, log_odds, log_odds, log_odds], (len(pairs), 1))
    return chains.Problem(values.T @ values / len(values), len(values), pairs, prior)


def masks(states, pairs, nodes):
    parents, spouses = np.zeros((2, nodes), dtype=np.int64)
    for (i, j), state in zip(pairs.tolist(), states, strict=True):
        chains.set_pair(i, j, state, parents, spouses)
    return parents, spouses


def enumerated(problem):
    """The probability of every state of every pair, by all graphs."""
    nodes, memory = len(problem.covariance), chains.Memory.empty(len(problem.covariance), 1 << 12)
    every, scores = [], []
    for states in itertools.product(range(4), repeat=len(problem.pairs)):
        parents, spouses = masks(states, problem.pairs, nodes)
        if not any(districts.is_ancestor(parents, node, node) for node in range(nodes)):
            every.append(states)
            prior = sum(problem.log_prior[pair, state] for pair, state in enumerate(states))
            scores.append(chains.total_score(parents, spouses, problem, memory) + prior)
    weights = np.exp(np.array(scores) - max(scores))
    every = np.array(every)
    shares = [[weights[every[:, pair] == state].sum() for state in range(4)] for pair in range(len(problem.pairs))]
    return np.array(shares) / weights.sum(), len(every)


@pytest.mark.slow
def test_a_district_is_fitted_by_maximum_likelihood():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    covariance = np.cov(values.T, ddof=0)
    # 0 <-> 1 <-> 2, 3 -> 0, 0 -> 2.
    parents, spouses = np.array([8, 0, 1, 0]), np.array([2, 5, 2, 0])

    def minus_log_likelihood(given):
        residuals, noise = np.eye(4)[:3], np.diag(np.exp(given[2:5]))
        residuals[0, 3], residuals[2, 0] = -given[0], -given[1]
        noise[0, 1] = noise[1, 0] = given[5]
        noise[1, 2] = noise[2, 1] = given[6]
        if np.linalg.eigvalsh(noise)[0] <= 1e-9:
            return 1e10
        spread = residuals @ covariance @ residuals.T
        return 100 * (np.linalg.slogdet(noise)[1] + np.trace(np.linalg.solve(noise, spread)))

    start = np.concatenate([[0.0, 0.0], np.log(np.diag(covariance)[:3]), [0.0, 0.0]])
    best = minimize(minus_log_likelihood, start, method="Nelder-Mead", options={"maxiter": 20_000, "maxfev": 20_000})
    # Seven parameters: two effects, three variances, two covariances. Both stop within hundredths of a nat.
    found = districts.district_score(7, parents, spouses, covariance, 200)
    assert found == pytest.approx(-best.fun - 3.5 * np.log(200), abs=0.05)


@pytest.mark.slow
def test_without_hidden_causes_the_score_is_that_of_regressions():
    rng = np.random.default_rng(1)
    problem = problem_of(rng.normal(size=(100, 4)) @ rng.normal(size=(4, 4)))
    memory = chains.Memory.empty(4, 1 << 12)
    parents, spouses = masks((FORWARD, APART, FORWARD, FORWARD, BACKWARD, APART), problem.pairs, 4)
    expected = 0.0
    for node in range(4):
        above = districts.places(parents[node])
        among, own = problem.covariance[np.ix_(above, above)], problem.covariance[above, node]
        left = 1 - own @ np.linalg.solve(among, own)
        expected += -50 * (np.log(left) + 1) - 0.5 * np.log(100) * (1 + len(above))
    assert chains.total_score(parents, spouses, problem, memory) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [3, 4])
def test_chains_have_the_probabilities_of_all_graphs(nodes):
    rng = np.random.default_rng(nodes)
    problem = problem_of(rng.normal(size=(300, nodes)) @ rng.normal(size=(nodes, nodes)))
    expected, number = enumerated(problem)
    # DAGs of 3 have 0 to 3 edges in 1, 6, 12 and 6 ways, and each pair without one has two states: 8 + 24 + 24 + 6.
    assert number == {3: 62, 4: 3608}[nodes]
    size, sweeps, replicas, heats = len(problem.pairs), 3000, 2, np.array([1.0, 0.6])
    parents, spouses = np.zeros((2, replicas, len(heats), nodes), dtype=np.int64)
    shape = (sweeps, replicas, len(heats), size)
    found, _ = chains.run_sweeps(
        parents,
        spouses,
        heats,
        problem,
        chains.Memory.empty(nodes, 1 << 14),
        rng.integers(0, size, shape),
        rng.random(shape),
        rng.random((sweeps, replicas, len(heats) - 1)),
    )
    shares = np.stack([(found[100:] == state).mean(axis=(0, 1)) for state in range(4)], axis=-1)
    # 5,800 sweeps; neighbours are alike for some ten of them: 500 independent draws have a standard error of .022.
    assert np.abs(shares - expected).max() < 0.08


# What fit returns ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    """c -> a <- e and a -> b; a hidden variable causes a and d."""
    rng = np.random.default_rng(0)
    c, e, u = rng.normal(size=(3, 1500))
    a = 0.8 * c + 0.8 * e + 0.9 * u + rng.normal(size=1500)
    b, d = 0.8 * a + rng.normal(size=1500), 0.9 * u + rng.normal(size=1500)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d, "e": e})


@pytest.fixture(scope="module")
def posterior(table):
    return vcuda.fit(table, hidden=True, prior=0.1, seed=1)


@pytest.mark.slow
def test_what_independences_show_is_sure_and_the_rest_is_shared_out(posterior):
    assert isinstance(posterior, vcuda.HiddenCausesPosterior)
    assert posterior.status.arithmetic.code == "ok"
    pairs = posterior.pairs()
    np.testing.assert_allclose(pairs[["directed", "reversed", "bidirected", "none"]].sum(axis=1), 1)
    pairs = pairs.set_index(["source", "target"])
    assert pairs.loc[("a", "b"), "directed"] > 0.95
    # Arrowheads at a are sure; whether c, d and e cause it or share a hidden cause with it no table shows.
    for other in "cde":
        own = pairs.loc[(other, "a")]
        assert own.reversed < 0.02
        assert own.bidirected == pytest.approx(0.5, abs=0.15)
    edges = posterior.edges().set_index(["source", "target"])
    assert edges.loc[("d", "a"), "hidden_cause"] == pairs.loc[("d", "a"), "bidirected"]
    assert edges.loc[("d", "a"), "probability"] == pairs.loc[("d", "a"), "directed"]
    assert "hidden causes" in repr(posterior)
    assert posterior.bidirected_probabilities.loc["a", "d"] == pairs.loc[("d", "a"), "bidirected"]
    assert posterior.ancestors().loc["a", "b"] > 0.95


@pytest.mark.slow
def test_the_pag_has_circles_where_a_cause_may_be_hidden(posterior):
    found = {(row.source, row.target): row.edge for row in posterior.pag().itertuples()}
    assert found == {("a", "b"): "-->", ("c", "a"): "o->", ("d", "a"): "o->", ("e", "a"): "o->"}
    admg = {(row.source, row.target): row.edge for row in posterior.admg().itertuples()}
    assert admg["a", "b"] == "->"
    assert len(admg) == 4


@pytest.mark.slow
def test_it_is_kept_shown_and_handed_on(posterior, tmp_path, run):
    posterior.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    assert type(again) is vcuda.HiddenCausesPosterior
    pd.testing.assert_frame_equal(again.pairs(), posterior.pairs())
    pd.testing.assert_frame_equal(again.pag(), posterior.pag())
    posterior.report(tmp_path / "report.html")
    assert "allows for hidden variables" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "hidden cause" in run("edges", tmp_path / "run").out
    assert '"a" -> "b"' in exports.to_dagitty(posterior)
    assert re.search(r"\d\. d o-> a", exports.to_tetrad(posterior))
    run("export", tmp_path / "run", "-o", tmp_path / "graph.tetrad")
    assert (tmp_path / "graph.tetrad").read_text() == exports.to_tetrad(posterior)
    assert posterior.plot("graph").axes
    for question in (
        lambda: posterior.effect("a", "b"),
        lambda: posterior.sensitivity("a", "b"),
        lambda: posterior.cpdag(),
        lambda: posterior.map(),
        lambda: posterior.why("a", "b"),
        lambda: posterior.next_experiment(),
        lambda: posterior.blanket("a"),
        lambda: posterior.predict(pd.DataFrame(np.arange(25.0).reshape(5, 5), columns=list("abcde"))),
    ):
        with pytest.raises(vcuda.ConfigError, match="hidden=True"):
            question()


@pytest.mark.slow
def test_knowledge_is_obeyed_and_seeds_repeat(table):
    known = vcuda.Knowledge(
        required=(("c", "a"),), forbidden=(("d", "a"), ("a", "d")), tiers=(("c", "e"), ("a", "b", "d"))
    )
    options = {"hidden": True, "knowledge": known, "seed": 3}
    found = vcuda.fit(table[:300], **options)
    pairs = found.pairs().set_index(["source", "target"])
    assert pairs.loc[("c", "a"), "directed"] == 1
    edges = found.edge_probabilities
    assert edges.loc["d", "a"] == edges.loc["a", "d"] == 0
    assert found.bidirected_probabilities.loc["a", "d"] > 0.9
    assert edges.loc[["a", "b", "d"], ["c", "e"]].to_numpy().max() == 0
    pd.testing.assert_frame_equal(vcuda.fit(table[:300], **options).pairs(), found.pairs())


@pytest.mark.slow
def test_a_time_limit_keeps_what_is_done(table):
    with pytest.warns(vcuda.ConvergenceWarning, match="Stopped by the time limit"):
        found = vcuda.fit(table[:300], hidden=True, time_limit=0.01)
    assert found.status.code == "interrupted"
    assert 0 < found.diagnostics["sweeps"] < 1000
    np.testing.assert_allclose(found.pairs()[["directed", "reversed", "bidirected", "none"]].sum(axis=1), 1)


@pytest.mark.slow
def test_the_command_fits_with_hidden_causes(table, tmp_path, run):
    table[:300].to_csv(tmp_path / "table.csv", index=False)
    answer = run("fit", tmp_path / "table.csv", "-o", tmp_path / "run", "--hidden", "--no-report")
    assert answer.code == 0, answer.err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["provenance"]["hidden"] is True
    assert list(pd.read_csv(tmp_path / "run" / "edges.csv").columns)[-1] == "hidden_cause"


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (lambda table: pd.concat([table.add_suffix(str(k)) for k in range(4)], axis=1), {}, "at most 15 columns"),
        (
            lambda table: table.assign(f=list("xyz") * 20),
            {},
            "leave out columns of labels, of levels and of yes and no",
        ),
        (lambda table: table.mask(table > 2), {}, "missing values"),
        (lambda table: table, {"model": "gp"}, "its functions are linear"),
        (lambda table: table, {"noise": "equal"}, "every column has its own"),
        (lambda table: table, {"engine": "orders"}, "leave engine out"),
        (lambda table: table, {"lags": 1}, "rows that are independent"),
        (lambda table: table, {"interventions": np.eye(60, 5, dtype=bool)}, "interventions"),
    ],
)
def test_what_it_cannot_take_is_refused_with_a_remedy(table, change, options, sentence):
    with pytest.raises(vcuda.ConfigError, match=sentence):
        vcuda.fit(change(table[:60]), hidden=True, **options)


# Ancestral graphs ------------------------------------------------------------------------------------------------


def connected(marks, i, j, given):
    """Whether some path joins two nodes of a MAG, given others."""
    arrows = (marks == ARROW) & (marks.T == TAIL)
    above = ancestors(arrows) | np.eye(len(marks), dtype=bool)
    open_colliders = above[:, list(given)].any(axis=1)

    def goes_on(path):
        if path[-1] == j:
            return True
        for node in np.flatnonzero(marks[path[-1]]).tolist():
            if node in path:
                continue
            if len(path) > 1:
                middle = path[-1]
                collider = marks[path[-2], middle] == ARROW and marks[node, middle] == ARROW
                if not (open_colliders[middle] if collider else middle not in given):
                    continue
            if goes_on([*path, node]):
                return True
        return False

    return goes_on([i])


def test_pags_of_three_have_the_marks_that_equivalent_graphs_share():
    pairs, classes = pairs_of(3), {}
    for states in itertools.product(range(4), repeat=3):
        directed, bidirected = np.zeros((2, 3, 3), dtype=bool)
        for (i, j), state in zip(pairs.tolist(), states, strict=True):
            directed[i, j] |= state == FORWARD
            directed[j, i] |= state == BACKWARD
            bidirected[i, j] = bidirected[j, i] = state == BIDIRECTED
        if is_dag(directed):
            marks = mag_of(directed, bidirected)
            given = [((i, j), own) for i, j in pairs.tolist() for own in ((), (3 - i - j,))]
            key = tuple(connected(marks, *pair, own) for pair, own in given)
            classes.setdefault(key, []).append((marks, directed, bidirected))
    assert len(classes) == 11
    for members in classes.values():
        every = np.array([marks for marks, _, _ in members])
        shared = np.where((every == every[0]).all(axis=0), every[0], CIRCLE)
        for _, directed, bidirected in members:
            np.testing.assert_array_equal(pag_of(directed, bidirected), shared)


def test_a_discriminating_path_decides_a_collider():
    # 0 -> 1 <-> 2 <-> 3 and 1 -> 3: the path 0, 1, 2, 3 shows that 2 is a collider.
    directed, bidirected = np.zeros((2, 4, 4), dtype=bool)
    directed[0, 1] = directed[1, 3] = True
    for i, j in ((1, 2), (2, 3)):
        bidirected[i, j] = bidirected[j, i] = True
    marks = pag_of(directed, bidirected)
    assert marks[1, 2] == marks[3, 2] == marks[2, 3] == ARROW
    assert marks[3, 1] == TAIL
