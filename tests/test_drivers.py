"""What drives a column: probabilities from the graphs, effects from the causal models, and what they hang on."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.checks.findings import Checks, Finding
from vcuda.errors import ConfigError
from vcuda.outputs.report import report_page
from vcuda.summaries.drivers import _directions

ROWS = 60


@pytest.fixture(scope="module")
def chain() -> pd.DataFrame:
    """a -> b -> c, and d apart."""
    rng = np.random.default_rng(5)
    a, b, c, d = rng.normal(size=(4, ROWS))
    b = b + 1.5 * a
    return pd.DataFrame({"a": a, "b": b, "c": c - 2 * b, "d": d})


@pytest.fixture(scope="module")
def posterior(chain) -> vcuda.Posterior:
    known = vcuda.Knowledge(tiers=[["a"], ["b"], ["c"]])
    return vcuda.fit(chain, model="linear", engine="exact", knowledge=known, target="c", seed=0)


def test_probabilities_and_effects_are_those_of_the_posterior(posterior):
    found = posterior.drivers()
    assert found.target == "c"
    table = found.table.set_index("driver")
    assert set(table.index) == {"a", "b"}
    assert found.others == 1
    ancestors = posterior.ancestors(draws=1000, seed=0)
    for name, row in table.iterrows():
        assert row.direct == posterior.edge_probabilities.loc[name, "c"]
        assert row.upstream == pytest.approx(max(ancestors.loc[name, "c"], row.direct))
    # The table of all effects draws other models: slopes have a relative standard deviation of about .15, so that means
    # of 1,000 differ by .7 %; .03 is four times that, and quantiles have at most twice the error.
    effects = posterior.effects(draws=1000, seed=0).set_index(["cause", "outcome"])
    for name in table.index:
        low, high = float(table.before[name]), float(table.after[name])
        assert table.effect[name] == pytest.approx(effects.loc[(name, "c"), "mean"] * (high - low), rel=0.03)
        assert table.low[name] == pytest.approx(effects.loc[(name, "c"), "low"] * (high - low), rel=0.06)


def test_the_largest_effect_comes_first_and_the_range_is_that_of_the_column(chain, posterior):
    table = posterior.drivers("c").table
    assert table.driver.tolist() == ["b", "a"]
    assert table.effect.abs().is_monotonic_decreasing
    expected = chain["b"].mean() + 1.2816 * chain["b"].std(ddof=0) * np.array([-1, 1])
    assert [float(table.before[0]), float(table.after[0])] == pytest.approx(expected, rel=1e-3)


def test_it_is_said_in_words(posterior):
    first, second = posterior.drivers().drivers
    assert first.sentence.startswith(
        f"b up from {first.change.before} to {first.change.after} lowers the expected c by "
    )
    assert "; it is a direct cause (over 99 %). The direction was stated as known." in first.sentence
    # Tiers say that b does not cause a, and of a and c no more than that c does not drive a.
    assert (
        "it is an upstream cause (over 99 %), through b. That c does not drive a was stated as known."
        in second.sentence
    )
    assert posterior.drivers().caveat in repr(posterior.drivers())
    assert json.loads(json.dumps(posterior.drivers().to_dict()))["drivers"][0]["sentence"] == first.sentence


def test_few_effects_are_computed_and_the_rest_is_named(posterior):
    found = posterior.drivers("c", most=1)
    assert len(found.drivers) + len(found.left_out) == 2
    assert f"Also likely, without an effect: {found.left_out[0]}." in found.sentences


def test_what_the_checks_doubt_stands_beside_it(posterior):
    finding = Finding("order of the rows", "warning", ("a",), (("b", "a"),), "Rows drift.", "", "")
    doubted = posterior.with_checks(Checks((finding,))).drivers("c")
    by_name = {one.name: one for one in doubted.drivers}
    assert any("put b -> a in doubt" in said for said in by_name["a"].hangs_on)
    assert not any("in doubt" in said for said in by_name["b"].hangs_on)  # a is not between b and c
    assert "b -> a" in doubted.caveat


def test_an_open_direction_is_said(chain):
    free = vcuda.fit(chain, model="linear", engine="exact", seed=0).drivers("b")
    by_name = {one.name: one for one in free.drivers}
    # All orders along a chain have the same score: two of the three DAGs have a -> b.
    assert any("the direction is open" in said and "b that drives a" in said for said in by_name["a"].hangs_on)


def test_open_directions_on_the_way_are_counted():
    edges = [("a", "b"), ("b", "c"), ("c", "d")]
    said = [_directions(edges[:number], ("is", "are"), "open") for number in (1, 2, 3)]
    assert said == [
        "the direction of a -> b is open",
        "the directions of a -> b and b -> c are open",
        "the directions of a -> b, b -> c and 1 more are open",
    ]


def test_nothing_that_drives_it_and_nothing_to_compute_with(chain):
    empty = vcuda.fit(chain, engine="empty").drivers("a")
    assert empty.drivers == ()
    assert empty.sentences == ["No column is likely to drive a: none is upstream of it with 20 % or more."]
    assert empty.table.empty
    rated = vcuda.fit(chain, engine="base-rate", seed=0).drivers("c")
    assert all(one.change is None for one in rated.drivers)
    assert rated.note.startswith("There are no effects: this method gives graphs")
    assert rated.table.effect.isna().all()
    assert json.loads(json.dumps(rated.to_dict(), allow_nan=False))["drivers"][0]["effect"] is None


def test_a_target_is_a_column_of_the_fit(chain, tmp_path):
    with pytest.raises(ConfigError, match=r"target is 'C', which is no column of the table \(did you mean 'c'\?\)"):
        vcuda.fit(chain, target="C")
    dated = chain.assign(day=pd.date_range("2020-01-01", periods=ROWS).astype(str))
    with pytest.raises(ConfigError, match="which was left out of the table, since it"):
        vcuda.fit(dated, target="day")
    with pytest.raises(ConfigError, match="target must be a text"):
        vcuda.fit(chain, target=3)
    with pytest.raises(ConfigError, match="the fit has no target"):
        vcuda.fit(chain, engine="empty").drivers()
    with pytest.raises(ConfigError, match="the posterior has no variable 'e'"):
        vcuda.fit(chain, engine="empty").drivers("e")


def test_the_run_keeps_its_target(posterior, tmp_path, run):
    posterior.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    assert again.provenance.target == "c"
    pd.testing.assert_frame_equal(again.drivers().table, posterior.drivers().table)
    answer = run("drivers", tmp_path / "run", "--json")
    assert answer.code == 0
    assert json.loads(answer.out) == json.loads(json.dumps(posterior.drivers().to_dict()))
    spoken = run("drivers", tmp_path / "run", "b")
    assert spoken.out.startswith("What drives b:\n- a up from ")
    assert run("drivers", tmp_path / "run", "e").code == 2


def test_a_number_that_may_mean_missing_is_the_first_doubt(chain, tmp_path, run):
    chain.assign(grade=[-999 if row % 10 == 0 else row % 5 for row in range(ROWS)]).to_csv(tmp_path / "t.csv")
    words = ("--model", "linear", "--subsamples", 0, "--no-checks", "--no-report")
    answer = run("fit", tmp_path / "t.csv", "-o", tmp_path / "run", *words)
    doubt = "-999 in column 'grade' lies far from all other cells, as a code for missing values does"
    assert f"What could be wrong: A number may stand for missing values.\n{doubt}" in answer.out
    assert answer.out.count(doubt) == 1
    posterior = vcuda.Posterior.load(tmp_path / "run")
    for page in (report_page(posterior), posterior._repr_html_()):
        assert page.index("A number may stand for missing values") < page.index("-999 in column")
    assert (
        "-999"
        not in run("fit", tmp_path / "t.csv", "-o", tmp_path / "run", *words, "--missing", -999).out.split(
            "How it was made"
        )[0]
    )


@pytest.mark.slow
def test_the_command_answers_before_it_says_how(chain, tmp_path, run):
    chain.to_csv(tmp_path / "t.csv", index=False)
    answer = run("fit", tmp_path / "t.csv", "-o", tmp_path / "run", "--target", "c", "--model", "linear")
    assert answer.out.startswith("What drives c:\n- b up from ")
    assert (
        answer.out.index("What drives c") < answer.out.index("What could be wrong") < answer.out.index("fitted 60 rows")
    )


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["mixed", "labels"])
def test_kinds_and_labels_are_in_percentage_points_and_ratios(kinds):
    rng = np.random.default_rng(1)
    n = 300
    plan = rng.choice(["basic", "plus", "pro"], n, p=[0.5, 0.3, 0.2])
    left = np.where(rng.random(n) < np.select([plan == "basic", plan == "plus"], [0.6, 0.3], 0.1), "yes", "no")
    table = pd.DataFrame({"plan": plan, "left": left})
    options = {"model": "categorical", "engine": "exact"}
    if kinds == "mixed":
        table["calls"], options = rng.poisson(np.where(left == "yes", 6.0, 2.0)), {"subsamples": 0}
    known = vcuda.Knowledge(tiers=[[name] for name in table], required=[("plan", "left")])
    posterior = vcuda.fit(table, knowledge=known, **options)
    # The rows are many against the prior, so an effect is near what the table shows: .05 is more than the prior moves.
    shares = 100 * (table["left"] == "yes").groupby(table["plan"]).mean()
    row = posterior.drivers("left").table.set_index("driver").loc["plan"]
    assert row.unit == "percentage points"
    assert {row.before, row.after} == {"basic", "pro"}
    assert row.effect == pytest.approx(shares[row.after] - shares[row.before], abs=5)
    assert row.low < row.effect < row.high
    assert row.hangs_on == "the edge was stated as known"
    if kinds == "mixed":
        calls = table.groupby("left")["calls"].mean()
        ratio = posterior.drivers("calls").table.set_index("driver").loc["left"]
        assert (ratio.unit, ratio.before, ratio.after) == ("times", "no", "yes")
        assert ratio.effect == pytest.approx(calls["yes"] / calls["no"], rel=0.05)
        assert ratio.low < ratio.effect < ratio.high
