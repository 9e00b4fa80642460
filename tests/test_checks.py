"""Model checks: silent on tables that were drawn from the model, and a finding for each way to depart from it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, kstest

import vcuda
from vcuda.checks import latent, run
from vcuda.checks.findings import Checks, Finding, Made
from vcuda.checks.rows import copies, sorted_keys
from vcuda.checks.statistics import added_features_test, moments_test, normal_scores, smallest
from vcuda.data.reading import as_dataset, new_rows
from vcuda.errors import DataError
from vcuda.infer.edge_prior import edge_prior
from vcuda.posterior.predictions import predictive_of
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples

COLUMNS = list("abcd")
PAGE = Path(__file__).parent.parent / "docs" / "checks.md"
BLOCKS = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", flags=re.DOTALL)


def linear_table(rows: int, seed: int, columns: int = 4) -> pd.DataFrame:
    """Drawn from a linear model with normal noise."""
    rng = np.random.default_rng(seed)
    values = np.zeros((rows, columns))
    for k in range(columns):
        weights = np.where(rng.random(k) < 0.5, rng.uniform(0.5, 1.5, k) * rng.choice([-1, 1], k), 0.0)
        values[:, k] = values[:, :k] @ weights + rng.normal(size=rows)
    return pd.DataFrame(values, columns=COLUMNS[:columns])


def checks_of(table: pd.DataFrame, **options) -> Checks:
    return vcuda.fit(table, **{"model": "linear", "engine": "exact", "robust": False, **options}).checks()


def names_of(checks: Checks) -> set[str]:
    return {finding.check for finding in checks}


# Error rates -------------------------------------------------------------------------------------------------------


def test_p_values_of_single_tests_are_uniform():
    rng = np.random.default_rng(0)
    shapes, curves = [], []
    for _ in range(400):
        base, noise = rng.normal(size=(80, 2)), rng.normal(size=80)
        design = np.column_stack([np.ones(80), base])
        residuals = noise - design @ np.linalg.lstsq(design, noise, rcond=None)[0]
        shapes.append(moments_test(residuals).p_value)
        curves.append(added_features_test(residuals, base, base**2).p_value)
    assert kstest(curves, "uniform").pvalue > 0.01
    # The moments of 80 rows are not quite normal after their transformation.
    assert np.mean(np.array(shapes) < 0.05) < 0.09
    assert 0.4 < np.mean(shapes) < 0.6


SLOW = [pytest.param(rows, 100, marks=pytest.mark.slow) for rows in (300, 20_000)]


@pytest.mark.parametrize(("rows", "tables"), [(200, 5), *SLOW])
def test_tables_from_the_model_are_quiet_and_p_values_uniform(rows, tables):
    p_values: dict[str, list[float]] = {}
    found = warned = 0
    for seed in range(tables):
        checks = checks_of(linear_table(rows, 1000 + seed))
        found += len(checks) > 0
        warned += len(checks.warnings) > 0
        for made in checks.made:
            if made.p_value is not None:
                p_values.setdefault(made.check, []).append(made.p_value)
    assert found <= binom.ppf(0.99, tables, 0.05), "findings are more than 5 %"
    assert warned <= 0.05 * tables
    for name in ("order of the rows", "shape of residuals", "spread and causes", "curves"):
        assert kstest(p_values[name], "uniform").pvalue > 0.005, name
    for name, own in p_values.items():
        # What the fit has adapted to, or what is looked for only where another check fails, is rarer than that.
        assert np.sum(np.array(own) < 0.1) <= binom.ppf(0.999, len(own), 0.1), name


def test_the_smallest_of_several_p_values_is_corrected():
    draws = np.random.default_rng(1).random((2000, 7))
    assert kstest([smallest(row) for row in draws], "uniform").pvalue > 0.01
    assert smallest([]) == 1.0
    assert smallest([1e-20, 0.5]) == pytest.approx(2e-20)


# Residuals ---------------------------------------------------------------------------------------------------------


def mixed_table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=rows)
    b = np.tanh(2 * a) + 0.4 * (rng.exponential(size=rows) - 1)
    visits = rng.poisson(np.exp(0.6 * b + 1))
    well = np.where(rng.random(rows) < 1 / (1 + np.exp(-2 * a)), "yes", "no")
    town = np.array(["north", "south", "west"])[rng.integers(3, size=rows)]
    return pd.DataFrame({"a": a, "b": b, "visits": visits, "well": well, "town": town})


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (["a", "b"], {"model": "linear"}),
        (["a", "b"], {"model": "additive"}),
        (["a", "b"], {"model": "gp"}),
        (["well", "town"], {}),
        (["a", "b", "visits", "well", "town"], {"subsamples": 1}),
    ],
    ids=["linear", "additive", "gp", "categorical", "mixed"],
)
def test_residuals_of_every_family_are_standard_normal(columns, options):
    table = mixed_table(400, 3)
    if "model" in options:
        # Their noise is normal, and the first has no curves.
        line = table["a"] if options["model"] == "linear" else np.tanh(2 * table["a"])
        table["b"] = line + 0.4 * np.random.default_rng(5).normal(size=400)
    table = table[columns]
    posterior = vcuda.fit(table, checks=False, **options)
    predictive = predictive_of(posterior.graph_posterior)
    rows = as_dataset(table)
    scaled = predictive.scaling.apply(rows.values, posterior.names)
    names = list(posterior.names)
    parents = np.array([0])
    for target in range(1, len(names)):
        own = predictive.residuals(target, parents, scaled, np.random.default_rng(4))
        again = predictive.residuals(target, parents, scaled, np.random.default_rng(4))
        np.testing.assert_array_equal(own, again)
        assert kstest(own, "norm").pvalue > 0.01, names[target]
        if predictive.kind == "mixed":
            tails = predictive.tails(target, parents, scaled)
            assert np.all(tails.below + tails.above <= 1 + 1e-9)
            exact = names[target] == "b"
            assert np.allclose(tails.below + tails.above, 1) == exact


def test_tails_agree_with_the_density():
    table = mixed_table(300, 5)[["a", "b", "visits"]]
    posterior = vcuda.fit(table, subsamples=1, checks=False)
    predictive = predictive_of(posterior.graph_posterior)
    scaled = predictive.scaling.apply(new_rows(table, posterior.names).values, posterior.names)
    # Along a grid of values the probability of less is the sum of densities.
    grid = np.repeat(scaled[:1], 4001, axis=0)
    grid[:, 1] = np.linspace(-12, 12, 4001)
    density = np.exp(predictive.column(1, np.array([0]), grid).log_density)
    below = predictive.tails(1, np.array([0]), grid).below
    heaps = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid[:, 1]))])
    np.testing.assert_allclose(below - below[0], heaps, atol=2e-4)
    counts = np.repeat(scaled[:1], 200, axis=0)
    counts[:, 2] = np.arange(200)
    chances = np.exp(predictive.column(2, np.array([1]), counts).log_density)
    tails = predictive.tails(2, np.array([1]), counts)
    np.testing.assert_allclose(1 - tails.below - tails.above, chances, atol=1e-9)
    np.testing.assert_allclose(tails.below[1:], np.cumsum(chances)[:-1], atol=1e-9)


# Departures --------------------------------------------------------------------------------------------------------


def test_independent_random_walks_are_a_warning_that_names_the_edges():
    walks = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 4)).cumsum(axis=0), columns=COLUMNS)
    checks = checks_of(walks)
    (warning,) = checks.warnings
    assert warning.check == "order of the rows"
    assert warning.edges
    assert warning.p_value < 1e-6
    assert abs(warning.statistic) > 5
    assert "standard errors" in warning.sentence
    assert "differences" in warning.remedy


def test_autoregressive_rows_are_a_warning():
    table = linear_table(400, 0).to_numpy(copy=True)
    for row in range(1, len(table)):
        table[row] += 0.9 * table[row - 1]
    checks = checks_of(pd.DataFrame(table, columns=COLUMNS))
    assert {warning.check for warning in checks.warnings} == {"order of the rows"}


@pytest.mark.parametrize("by", ["a", "b", "group"])
def test_a_sorted_table_is_no_departure(by):
    table = linear_table(600, 4)
    table["group"] = (table["c"] + np.random.default_rng(0).normal(size=600) > 0).astype(float)
    shuffled = checks_of(table)
    ordered = checks_of(table.sort_values(by, kind="stable", ignore_index=True))
    assert "order of the rows" not in names_of(shuffled) | names_of(ordered)
    assert "order of the rows" in {made.check for made in ordered.made}


def test_sorted_columns_are_found_one_inside_the_other():
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.integers(4, size=300), rng.integers(9, size=300), rng.normal(size=300)])
    values = values[np.lexsort((values[:, 1], values[:, 0]))]
    keys, groups = sorted_keys(values)
    assert keys == [0, 1]
    assert groups.max() == len(np.unique(values[:, :2], axis=0))
    assert sorted_keys(rng.normal(size=(300, 2)).cumsum(axis=0))[0] == []


def test_a_series_beside_its_years_is_still_a_warning():
    walks = pd.DataFrame(np.random.default_rng(2).normal(size=(400, 3)).cumsum(axis=0), columns=list("abc"))
    walks["year"] = np.arange(400) + 1600.0
    assert "order of the rows" in {warning.check for warning in checks_of(walks).warnings}


def test_two_populations_are_a_warning():
    rng = np.random.default_rng(0)
    other = linear_table(250, 5).to_numpy() * [1, -1, 1, -1] + [3, -3, 2, 1]
    both = np.concatenate([linear_table(250, 0).to_numpy(), other])
    checks = checks_of(pd.DataFrame(rng.permutation(both), columns=COLUMNS))
    warning = next(one for one in checks.warnings if one.check == "two populations")
    assert len(warning.columns) >= 2
    assert 0.3 < warning.statistic <= 0.5


def test_copied_rows_are_a_warning_where_edges_are_sure_by_them_alone():
    table = linear_table(150, 0)
    checks = checks_of(pd.concat([table, table], ignore_index=True))
    (warning,) = checks.warnings
    assert warning.check == "copied rows"
    assert warning.statistic == 0.5
    assert warning.edges
    assert not checks_of(table).warnings
    # Of strong effects the copies change nothing that is said.
    strong = pd.DataFrame({"a": table["a"], "b": table["a"] + 0.1 * table["b"]})
    found = checks_of(pd.concat([strong, strong], ignore_index=True))
    assert ("copied rows", "note") in [(one.check, one.severity) for one in found]


def test_equal_rows_of_labels_and_rounded_numbers_are_no_copies():
    rng = np.random.default_rng(0)
    few = pd.DataFrame({"a": rng.integers(2, size=500), "b": rng.integers(3, size=500)}).astype(float)
    assert not copies(as_dataset(few)).are_many
    rounded = linear_table(500, 0)[["a", "b"]].round(1)
    assert copies(as_dataset(rounded)).copies > 5
    assert not copies(as_dataset(rounded)).are_many


def test_an_outlier_that_makes_an_edge_is_named():
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 4)), columns=COLUMNS)
    assert not checks_of(table).warnings
    table.loc[7, ["a", "b"]] = 15.0
    checks = checks_of(table)
    (warning,) = checks.warnings
    assert warning.check == "few rows"
    assert set(warning.edges[0]) == {"a", "b"}
    assert "data row 8)" in warning.sentence
    assert "predicted values" in names_of(checks)


def test_spread_that_depends_on_causes_is_found_by_a_linear_fit():
    rng = np.random.default_rng(0)
    cause = rng.normal(size=500)
    table = pd.DataFrame({"a": cause, "b": 0.8 * cause + np.exp(0.5 * cause) * rng.normal(size=500)})
    checks = checks_of(table)
    assert "spread and causes" in names_of(checks)
    finding = next(one for one in checks if one.check == "spread and causes")
    assert finding.statistic > 0.1


def test_curves_and_skewed_noise_are_found_by_a_linear_fit():
    rng = np.random.default_rng(0)
    cause = rng.normal(size=500)
    table = pd.DataFrame({"a": cause, "b": cause + 0.5 * cause**2 + rng.normal(size=500)})
    assert "curves" in names_of(checks_of(table))
    skewed = pd.DataFrame({"a": rng.exponential(size=500), "b": rng.normal(size=500)})
    assert names_of(checks_of(skewed)) >= {"shape of residuals"}


def test_unequal_spread_is_found_by_a_fit_with_equal_noise():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=400), "b": 3 * rng.normal(size=400)})
    finding = next(one for one in checks_of(table, noise="equal") if one.check == "predicted values")
    assert "times what is expected" in finding.sentence


def test_sizes_of_residuals_that_go_together_are_found():
    rng = np.random.default_rng(0)
    common = np.exp(0.7 * rng.normal(size=(800, 1)))
    table = pd.DataFrame(common * rng.normal(size=(800, 3)), columns=list("abc"))
    assert "residuals of two columns" in names_of(checks_of(table))


def test_a_departure_without_a_sure_edge_is_no_warning():
    skewed = pd.DataFrame(np.random.default_rng(0).exponential(size=(400, 3)), columns=list("abc"))
    checks = checks_of(skewed)
    assert len(checks)
    assert not checks.warnings


def test_a_wrong_direction_by_the_shape_of_the_noise_is_a_warning():
    """Curves with normal noise explain skewed noise by turning the arrow round."""
    rng = np.random.default_rng(1)
    cause = rng.normal(size=1500)
    table = pd.DataFrame({"a": cause, "b": cause + 0.7 * (rng.exponential(size=1500) - 1), "c": rng.normal(size=1500)})
    posterior = vcuda.fit(table, model="additive", engine="exact")
    sure = posterior.edges(minimum=0.9)
    assert len(sure), "the example should have a sure direction"
    warning = next(one for one in posterior.checks().warnings if one.check == "shape of residuals")
    assert set(warning.edges[0]) == {"a", "b"}


def test_what_a_wrong_edge_leaves_is_no_fault_of_the_model():
    """With a curve only one direction describes the rows; a posterior that allows both must not be flagged."""
    rng = np.random.default_rng(3)
    cause = rng.normal(size=400)
    table = pd.DataFrame({"a": cause, "b": np.tanh(1.5 * cause) + 0.2 * rng.normal(size=400)})
    posterior = vcuda.fit(table, model="additive", engine="exact", checks=False)
    assert not posterior.checks(table).findings
    wrong = GraphSamples.from_counts(("a", "b"), np.array([1]), np.array([1]), np.array([0]))
    right = GraphSamples.from_counts(("a", "b"), np.array([1]), np.array([0]), np.array([1]))

    def open_between(share: float) -> Checks:
        pool = GraphSamples.joined([wrong, right], [share, 1 - share])
        both = SampledGraphs(pool, np.array([[0, 1 - share], [share, 0]]), posterior.graph_posterior.predictive)
        return replace(posterior, graph_posterior=both).checks(table)

    assert {"curves", "spread and causes"} & names_of(open_between(1.0))
    assert not open_between(0.6).findings


# Hidden causes -----------------------------------------------------------------------------------------------------


def hidden_cause_table(rows: int, seed: int) -> pd.DataFrame:
    """Seven columns with one hidden cause, and three edges."""
    rng = np.random.default_rng(seed)
    values = np.outer(rng.normal(size=rows), [1.0, -1.2, 0.8, 1.5, -1.0, 0.9, 1.1]) + rng.normal(size=(rows, 7))
    for source, target in ((0, 1), (2, 3), (4, 5)):
        values[:, target] += 0.8 * values[:, source]
    return pd.DataFrame(values, columns=list("abcdefg"))


def chain_with_errors(rows: int, seed: int, share: float) -> pd.DataFrame:
    """A chain of six columns, each measured with an error that has a share of its variance."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 6))
    for k in range(1, 6):
        values[:, k] += values[:, k - 1]
    errors = values.std(axis=0) * np.sqrt(share / (1 - share)) * rng.normal(size=values.shape)
    return pd.DataFrame(values + errors, columns=list("abcdef"))


def hidden_findings(checks: Checks) -> list[Finding]:
    return [finding for finding in checks if finding.check == "hidden causes"]


def test_a_hidden_cause_of_all_columns_is_a_warning():
    table = hidden_cause_table(3000, 1)
    posterior = vcuda.fit(table, model="linear", noise="unequal", engine="exact", robust=False)
    (found,) = hidden_findings(posterior.checks())
    assert found.severity == "warning"
    assert found.statistic > 0
    assert "one hidden cause of " in found.sentence
    either = posterior.edge_probabilities + posterior.edge_probabilities.T
    assert all(either.loc[edge] >= 0.9 for edge in found.edges)
    # All pairs are in doubt that are joined by the hidden cause alone.
    sure = {frozenset((one.source, one.target)) for one in posterior.edges(minimum=0.9).itertuples()}
    false = sure - {frozenset("ab"), frozenset("cd"), frozenset("ef")}
    assert false <= {frozenset(edge) for edge in found.edges}
    assert false
    assert posterior.status.code == "warning"


def test_errors_of_measurement_are_a_warning():
    (found,) = hidden_findings(checks_of(chain_with_errors(5000, 0, 0.3), noise="unequal"))
    assert found.severity == "warning"
    assert "errors of measurement in every column" in found.sentence
    neighbours = {frozenset(pair) for pair in zip("abcde", "bcdef", strict=True)}
    assert any(frozenset(edge) not in neighbours for edge in found.edges)
    assert not hidden_findings(checks_of(chain_with_errors(5000, 0, 0.0), noise="unequal"))


@pytest.mark.parametrize("rows", [300, 5000])
@pytest.mark.parametrize("tables", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_nothing_hidden_is_found_in_tables_of_the_model(rows, tables):
    found = 0
    for seed in range(tables):
        made = vcuda.simulate(
            "er", nodes=7, edges=7 * (1 + seed % 2), mechanism="linear", noise="unequal", rows=rows, seed=seed
        )
        found += len(hidden_findings(checks_of(made.train.to_frame(), noise="unequal")))
    assert found <= 0.05 * tables


def test_nothing_hidden_is_looked_for_where_rows_were_set_or_missing_or_the_model_is_another():
    table = hidden_cause_table(400, 0)
    assert "hidden causes" in {made.check for made in checks_of(table).made}
    holes = table.copy()
    holes.loc[::20, "a"] = np.nan
    for options in ({"data": holes}, {"data": table, "model": "additive"}, {"data": table[["a", "b", "c"]]}):
        assert "hidden causes" not in {made.check for made in checks_of(options.pop("data"), **options).made}


@pytest.mark.parametrize(("share", "loaded"), [(0.0, False), (0.0, True), (0.3, False)])
def test_a_fit_with_something_hidden_has_the_likelihood_of_its_covariance(share, loaded):
    rows, d = 500, 5
    table = chain_with_errors(rows, 0, 0.3).to_numpy()[:, :d]
    correlations = np.corrcoef(table.T)
    parents = np.array([0, 1, 2, 4, 8]) | ((1 << d) if loaded else 0)
    loads, weights, noise = np.full(d, 0.3 if loaded else 0.0), np.zeros((d, d)), np.full(d, 0.5)
    found = latent.fit(correlations, rows, share, parents, loads, weights, noise, 500)
    mixed = np.linalg.inv(np.eye(d) - weights)
    covariance = mixed.T @ (np.diag(noise) + np.outer(loads, loads)) @ mixed + share * np.eye(d)
    expected = -0.5 * rows * (np.linalg.slogdet(covariance)[1] + np.trace(np.linalg.solve(covariance, correlations)))
    parameters = d + (d - 1) + (d if loaded else 0) + (share > 0)
    assert found == pytest.approx(expected - 0.5 * np.log(rows) * parameters, abs=0.1)
    # No numbers nearby have a larger likelihood.
    for change in np.random.default_rng(0).normal(0, 0.01, (20, d)):
        other = mixed.T @ (np.diag(noise * np.exp(change)) + np.outer(loads, loads)) @ mixed + share * np.eye(d)
        less = -0.5 * rows * (np.linalg.slogdet(other)[1] + np.trace(np.linalg.solve(other, correlations)))
        assert less < expected + 0.1


# Tables of other kinds ---------------------------------------------------------------------------------------------


def test_missing_values_and_experiments_leave_the_checks_quiet():
    rng, warned = np.random.default_rng(0), 0
    for _ in range(2):
        a, b = rng.normal(size=(2, 200))
        held = np.zeros((200, 3), dtype=bool)
        held[:80, 1] = True
        b = np.where(held[:, 1], b, a + b)
        table = pd.DataFrame({"a": a, "b": b, "c": b - a + rng.normal(size=200)})
        warned += len(checks_of(table, interventions=held).warnings)
        table = linear_table(200, int(rng.integers(1000)))
        table[rng.random(table.shape) < 0.05] = np.nan
        checks = checks_of(table, imputations=2)
        warned += len(checks.warnings)
        assert checks.made
    assert warned <= 1


def test_mixed_kinds_are_checked():
    checks = vcuda.fit(mixed_table(400, 1), subsamples=2).checks()
    assert {"shape of residuals", "order of the rows"} <= {made.check for made in checks.made}
    assert not checks.warnings


def test_large_tables_are_checked_by_runs_of_rows():
    checks = checks_of(linear_table(5000, 0))
    assert {made.rows for made in checks.made if made.check != "copied rows"} == {2000}
    walks = pd.DataFrame(np.random.default_rng(0).normal(size=(5000, 4)).cumsum(axis=0), columns=COLUMNS)
    warning = checks_of(walks).warnings[0]
    assert warning.check == "order of the rows"
    assert "2,000 of 5,000 rows" in warning.sentence


def test_checks_keep_to_their_time():
    """Columns are left out when time is short, and what was not looked at is said."""
    table = as_dataset(linear_table(300, 0))
    posterior = vcuda.fit(table, model="linear", engine="exact", checks=False)
    edges = edge_prior(4, 0.3)
    hurried = run.check(posterior, table, edges, seed=0, fit_seconds=-1.0, least_seconds=0.0)
    assert "3 of 4 columns" in hurried.not_made
    assert "few rows" in hurried.not_made
    assert "shape of residuals" in {made.check for made in hurried.made}
    assert not run.check(posterior, table, edges, seed=0, fit_seconds=10.0).not_made


def test_methods_without_residuals_say_so():
    checks = vcuda.fit(linear_table(100, 0), engine="r2-sort").checks()
    assert not checks.made
    assert "no residuals" in checks.not_made
    assert "No model checks were made" in str(checks)


# What is kept ------------------------------------------------------------------------------------------------------

FOUND = Checks(
    (
        Finding("curves", "note", ("a<b",), (), "Found.", "Changes nothing.", "Do nothing."),
        Finding("order of the rows", "warning", ("a<b", "c"), (("a<b", "c"),), "S.", "C.", "R.", 7.5, 1e-9),
    ),
    (Made("curves", 0.01, 0.1, 500), Made("copied rows", None, 0.2, 500)),
)


def test_findings_survive_json_and_warnings_come_first():
    again = Checks.from_json(json.loads(json.dumps(FOUND.to_json())))
    assert again == FOUND
    assert again[0].severity == "warning"
    assert again[0].edges == (("a<b", "c"),)
    assert again[1:] == (FOUND[1],)
    assert FOUND.seconds == pytest.approx(0.3)
    frame = FOUND.to_frame()
    assert list(frame["severity"]) == ["warning", "note"]
    assert frame["edges"][0] == "a<b -> c"
    assert str(FOUND).startswith("2 model checks were made: 1 warning and 1 note.")
    assert "S." in FOUND._repr_html_()
    assert list(Checks().to_frame().columns) == list(frame.columns)
    with pytest.raises(DataError, match="severity"):
        Finding("curves", "error", (), (), "", "", "")


def test_html_shows_names_as_they_are():
    odd = Finding("curves", "note", (), (), "<script>", "", "")
    assert "<script>" not in Checks((odd,), FOUND.made)._repr_html_()


def test_checks_are_stored_with_the_run_and_made_again_from_the_table(tmp_path):
    table = linear_table(150, 0)
    twice = pd.concat([table, table], ignore_index=True)
    posterior = vcuda.fit(twice, model="linear", engine="exact")
    posterior.save(tmp_path / "run")
    loaded = vcuda.Posterior.load(tmp_path / "run")
    assert loaded.checks().to_json() == posterior.checks().to_json()
    assert loaded.checks(twice).findings == posterior.checks().findings
    with pytest.raises(DataError, match="give the table that was fitted"):
        loaded.checks(twice[["a", "b"]])


def test_runs_from_before_the_checks_load(tmp_path):
    posterior = vcuda.fit(linear_table(100, 0), model="linear", engine="exact")
    posterior.save(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["checks"], config["provenance"]["checks"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    checks = vcuda.Posterior.load(tmp_path / "run").checks()
    assert not checks.made
    assert "checks(table)" in checks.not_made


def test_no_checks_are_made_when_nobody_wants_them():
    posterior = vcuda.fit(linear_table(100, 0), model="linear", engine="exact", checks=False)
    assert posterior.provenance["checks"] is False
    assert not posterior.checks().made
    assert "not asked for" in str(posterior.checks())


def test_normal_scores_have_ranks_whatever_is_missing():
    values = np.array([3.0, np.nan, 1.0, 2.0, 2.0])
    scores = normal_scores(values, np.random.default_rng(0))
    assert scores[2] < min(scores[3], scores[4]) < max(scores[3], scores[4]) < scores[0]
    assert np.isfinite(scores).all()


def test_the_page_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    text = PAGE.read_text(encoding="utf-8")
    for content, shown in BLOCKS.findall(text):
        exec(compile(content, "checks.md", "exec"), scope)
        assert capsys.readouterr().out == shown
    assert (tmp_path / "lags.png").exists()
    for name in run.WORDS:
        assert f"`{name}`" in text


def test_every_check_has_words():
    assert set(run.WORDS) == set(run.WITH_P_VALUE)
