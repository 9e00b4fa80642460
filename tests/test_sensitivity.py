"""Edges that hold with hidden causes, and how strong a hidden cause would have to be to explain an effect away."""

import json

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.graphs import enumerate_dags, y_structures
from vcuda.posterior.samples import GraphSamples
from vcuda.summaries.sensitivity import holding_strengths, robustness_value


def by_definition(graph):
    adjacent, found = graph | graph.T, np.zeros_like(graph)
    for a, b in np.argwhere(graph):
        causes = np.flatnonzero(graph[:, a])
        apart = [c for c in causes if not adjacent[c, b]]
        between = graph[a] & graph[:, b]
        found[a, b] = any(not adjacent[c, e] for c in apart for e in apart if c < e) and not between.any()
    return found


def test_y_structures_of_every_graph_of_four_are_those_of_the_definition():
    graphs = enumerate_dags(4)
    for graph in graphs:
        sources, targets = np.nonzero(graph)
        expected = by_definition(graph)[sources, targets]
        np.testing.assert_array_equal(y_structures(sources, targets, 4), expected)
    # 12 ordered pairs of a and b, and the edge between c and b, e and b, c and e is never there: one graph each.
    assert sum(by_definition(graph).any() for graph in graphs) == 12
    samples = GraphSamples.from_dense("abcd", graphs)
    np.testing.assert_allclose(
        samples.y_structure_shares(), np.mean([by_definition(graph) for graph in graphs], axis=0)
    )


def test_y_structures_of_larger_graphs_side_by_side():
    # Seven nodes have room for causes of b that are effects of a.
    rng = np.random.default_rng(0)
    orders = [rng.permutation(7) for _ in range(200)]
    graphs = np.array([np.triu(rng.random((7, 7)) < 0.35, k=1)[np.ix_(order, order)] for order in orders])
    expected = np.array([by_definition(graph) for graph in graphs])
    assert expected.any(axis=(1, 2)).sum() > 20
    np.testing.assert_allclose(GraphSamples.from_dense("abcdefg", graphs).y_structure_shares(), expected.mean(axis=0))


def test_an_edge_that_a_hidden_cause_further_down_makes_does_not_hold():
    # c -> a <- e, a -> s, f -> b <- g, and a hidden variable causes s and b: a and b are independent, but not given s.
    # A DAG has s -> b and a -> b, or b -> s and two edges more.
    rng = np.random.default_rng(0)
    c, e, f, g, u = rng.normal(size=(5, 2000))
    a = 0.8 * c + 0.8 * e + rng.normal(size=2000)
    s, b = a + u + 0.5 * rng.normal(size=2000), f + g + u + 0.5 * rng.normal(size=2000)
    table = pd.DataFrame({"a": a, "b": b, "c": c, "e": e, "f": f, "g": g, "s": s})
    posterior = vcuda.fit(table, model="linear", noise="unequal", checks=False)
    edges = posterior.edges().set_index(["source", "target"])
    assert edges.probability["a", "b"] > 0.9
    assert edges.holds_with_hidden_causes["a", "b"] < 0.05
    assert edges.holds_with_hidden_causes["a", "s"] > 0.8  # true


@pytest.fixture(scope="module")
def table():
    """c -> a <- e, a -> b: the effect of a on b holds with hidden causes."""
    rng = np.random.default_rng(3)
    c, e = rng.normal(size=(2, 2000))
    a = 0.9 * c + 0.9 * e + rng.normal(size=2000)
    b = 0.8 * a + rng.normal(size=2000)
    return pd.DataFrame({"a": a, "b": b, "c": c, "e": e})


@pytest.fixture(scope="module")
def posterior(table):
    return vcuda.fit(table, model="linear", noise="unequal", engine="exact", prior=0.05)


def test_edges_say_which_hold_with_hidden_causes(posterior, tmp_path):
    edges = posterior.edges().set_index(["source", "target"])
    assert edges.loc[("a", "b"), "holds_with_hidden_causes"] > 0.9
    assert edges.drop(index=("a", "b")).holds_with_hidden_causes.max() < 0.1
    assert (edges.holds_with_hidden_causes <= edges.probability).all()
    posterior.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    pd.testing.assert_frame_equal(again.edges(), posterior.edges())
    stored = pd.read_csv(tmp_path / "run" / "edges.csv")
    assert stored.holds_with_hidden_causes[0] == pytest.approx(posterior.edges().holds_with_hidden_causes[0])


def test_the_robustness_value_is_where_the_bias_reaches_the_effect():
    # A hidden cause that explains r of both moves a partial correlation by at most r / sqrt(1 - r) in units of
    # f = rho / sqrt(1 - rho^2) (omitted variable bias): at the robustness value that is f itself.
    rho = np.array([0.01, 0.3, -0.6, 0.99])
    value = robustness_value(rho)
    np.testing.assert_allclose(value / np.sqrt(1 - value), np.abs(rho) / np.sqrt(1 - rho**2), rtol=1e-9)


def adjusted(columns, cause, outcome, given):
    """The slope of the outcome on the cause in the least squares regression with others."""
    design = np.column_stack([columns[cause], *(columns[name] for name in given)])
    return np.linalg.lstsq(design, columns[outcome], rcond=None)[0][0]


def share(columns, of, by, given):
    def left(names):
        if not names:
            return columns[of].var()
        design = np.column_stack([columns[name] for name in names])
        return (columns[of] - design @ np.linalg.lstsq(design, columns[of], rcond=None)[0]).var()

    return 1 - left([*given, by]) / left(given)


def test_no_weaker_hidden_cause_turns_the_sign():
    """The promise, in tables with a confounder u that is left out: if it explains less than the robustness value of
    both, the effect adjusted for it has the sign of the one that is not. An identity of least squares: no exception."""
    rng = np.random.default_rng(0)
    kept = turned = 0
    for _ in range(300):
        u, z = rng.normal(size=(2, 60))
        strength = rng.uniform(-2, 2, 3)
        a = strength[0] * u + z + rng.normal(size=60)
        b = strength[1] * u + 0.3 * strength[2] * a + z + rng.normal(size=60)
        columns = {name: own - own.mean() for name, own in {"a": a, "b": b, "u": u, "z": z}.items()}
        slopes = [adjusted(columns, "a", "b", given) for given in (["z"], ["z", "u"])]
        left = [columns[k] - columns["z"] * (columns[k] @ columns["z"]) / (columns["z"] @ columns["z"]) for k in "ab"]
        value = robustness_value(np.array(np.corrcoef(*left)[0, 1]))
        strongest = max(share(columns, "a", "u", ["z"]), share(columns, "b", "u", ["a", "z"]))
        same = np.sign(slopes[0]) == np.sign(slopes[1])
        kept += strongest < value
        turned += not same
        assert same or strongest >= value
    assert kept > 50, "the promise was never used"
    assert turned > 20, "no hidden cause was strong enough to turn a sign"


def test_the_curve_of_a_sure_effect_is_that_of_its_regression(posterior, table):
    found = posterior.sensitivity("a", "b", draws=500)
    assert found.probability > 0.99
    columns = {name: table[name].to_numpy() - table[name].mean() for name in table}
    left = []
    for name in "ab":
        design = np.column_stack([columns["c"], columns["e"]])
        left.append(columns[name] - design @ np.linalg.lstsq(design, columns[name], rcond=None)[0])
    rho = np.corrcoef(*left)[0, 1]
    # Fisher's z has a standard error of 1 / sqrt(1995): so far do the draws spread around the value of the table.
    low, high = (robustness_value(np.tanh(np.arctanh(rho) + step / np.sqrt(1995))) for step in (-1.282, 1.282))
    assert found.holds_up_to(0.9) == pytest.approx(float(low), abs=0.02)
    assert found.holds_up_to(0.1) == pytest.approx(float(high), abs=0.02)
    curve = found.curve
    assert curve.probability.is_monotonic_decreasing
    assert found.holds(0.0) == curve.probability[0] == found.probability
    # Two causes of a that have no effect on b of their own.
    assert set(found.covariates.covariate) == {"c", "e"}
    np.testing.assert_allclose(found.covariates.with_cause, 0.45, atol=0.08)
    assert found.covariates.with_outcome.max() < 0.02
    assert f"less than {100 * found.holds_up_to():.0f} %" in found.sentence
    assert found.yardstick in found.sentence
    assert found.line in posterior.effect("a", "b", draws=50).sentence


def test_an_effect_that_is_not_sure_has_no_strength(posterior):
    found = posterior.sensitivity("b", "a")
    assert found.probability < 0.1
    assert found.holds_up_to() == 0
    assert "no strength of a hidden cause can be named" in found.line
    with pytest.raises(vcuda.ConfigError, match="a share between 0 and 1"):
        found.holds(2.0)
    with pytest.raises(vcuda.ConfigError, match="between 0 and 1"):
        found.holds_up_to(1.0)


def test_all_effects_have_the_strength_of_each(posterior):
    table = posterior.effects(draws=300).set_index(["cause", "outcome"])
    for pair in (("a", "b"), ("c", "b"), ("b", "c")):
        # Quantiles of 300 and of 1,000 draws.
        assert table.loc[pair, "holds_up_to"] == pytest.approx(posterior.sensitivity(*pair).holds_up_to(), abs=0.03)
    strengths = holding_strengths(posterior, draws=50)
    assert strengths.shape == (4, 4)
    assert np.diag(strengths).max() == 0


def test_the_command_says_the_same(posterior, run, tmp_path):
    posterior.save(tmp_path / "run")
    expected = posterior.sensitivity("a", "b", draws=200, seed=1)
    answer = run("sensitivity", tmp_path / "run", "a", "b", "--draws", "200", "--seed", "1", "--json")
    found = json.loads(answer.out)
    assert found["sentence"] == expected.sentence
    assert found["holds_up_to"] == expected.holds_up_to()
    pd.testing.assert_frame_equal(pd.DataFrame(found["curve"]), expected.curve)
    pd.testing.assert_frame_equal(pd.DataFrame(found["covariates"]), expected.covariates)
    spoken = run("sensitivity", tmp_path / "run", "a", "b").out
    assert "Measured causes of a" in spoken
    assert run("sensitivity", tmp_path / "run", "a", "nobody").code == 2


def test_experiments_count_in_the_rows_where_the_outcome_was_free(table):
    held = np.zeros((2000, 4), dtype=bool)
    held[:100, 1] = True
    changed = table.copy()
    changed.loc[:99, "b"] = np.random.default_rng(0).normal(size=100)
    fitted = vcuda.fit(changed, model="linear", noise="unequal", engine="exact", interventions=held)
    plain = vcuda.fit(table[100:], model="linear", noise="unequal", engine="exact")
    found, expected = (one.sensitivity("a", "b").holds_up_to() for one in (fitted, plain))
    assert found == pytest.approx(expected, abs=0.02)
    assert "holds_up_to" in fitted.effects(draws=50)


@pytest.mark.slow
def test_tables_of_several_kinds_are_taken_by_ranks_and_labels_as_causes():
    rng = np.random.default_rng(1)
    place = rng.choice(["north", "south", "west"], size=300)
    dose = rng.normal(size=300) + (place == "west")
    sick = np.where(rng.random(300) < 1 / (1 + np.exp(-1.5 * dose)), "yes", "no")
    frame = pd.DataFrame({"place": place, "dose": dose, "sick": sick})
    known = vcuda.Knowledge(tiers=[["place"], ["dose"], ["sick"]])
    fitted = vcuda.fit(frame, knowledge=known, subsamples=0)
    found = fitted.sensitivity("dose", "sick")
    assert found.holds_up_to() > 0.2
    assert found.yardstick == "place"
    assert "ranks" in found.sentence
    assert found.line == fitted.effect("dose", "sick", draws=20).hidden_cause
    with pytest.raises(vcuda.ConfigError, match="'place' has more than two labels"):
        fitted.sensitivity("place", "sick")
    assert fitted.effect("place", "sick", draws=20).hidden_cause == ""


def test_a_run_without_rows_asks_for_the_table(table):
    fitted = vcuda.fit(table, model="additive", engine="exact")
    with pytest.raises(vcuda.ConfigError, match="data=table"):
        fitted.sensitivity("a", "b")
    found = fitted.sensitivity("a", "b", data=table)
    assert found.holds_up_to() > 0.3
    assert fitted.effect("a", "b", draws=10).hidden_cause == ""


def test_imputed_tables_have_products_of_their_own(table, posterior):
    holes = table.mask(np.random.default_rng(0).random(table.shape) < 0.05)
    fitted = vcuda.fit(holes, model="linear", noise="unequal", engine="exact", imputations=3, prior=0.05)
    # Imputations add their spread to that of the rows.
    expected = posterior.sensitivity("a", "b").holds_up_to()
    assert fitted.sensitivity("a", "b").holds_up_to() == pytest.approx(expected, abs=0.04)


def test_the_report_has_the_strengths_beside_the_effects(posterior, tmp_path):
    posterior.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Holds up to" in page
    assert f">{100 * posterior.effects().holds_up_to[0]:.0f} %<" in page


def test_the_curve_is_drawn(posterior):
    figure = posterior.plot("sensitivity", cause="a", outcome="b")
    assert {text.get_text() for text in figure.axes[0].texts} == {"c", "e"}
