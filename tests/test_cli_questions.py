"""The commands that ask a run folder something say the same as the methods of the posterior."""

import json

import pandas as pd
import pytest

import vcuda
from vcuda.checks.findings import Checks, Finding
from vcuda.outputs.exports import read_edges


@pytest.fixture(scope="module")
def posterior():
    table = vcuda.simulate("er", nodes=4, edges=4, rows=80, test_rows=1, seed=0).train
    return vcuda.fit(table.to_frame(), model="linear", noise="unequal", engine="exact")


@pytest.fixture(scope="module")
def folder(posterior, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    posterior.save(folder)
    return folder


def parsed(answer) -> dict:
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def same(records: list[dict], table: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(pd.DataFrame(records, columns=table.columns), table.reset_index(drop=True))


@pytest.mark.slow
def test_edges(run, posterior, folder):
    same(parsed(run("edges", folder, "--minimum", "0.2", "--json"))["edges"], posterior.edges(minimum=0.2))
    graph = posterior.consensus()
    found = parsed(run("edges", folder, "--consensus", "--minimum", "0", "--json"))
    assert found["rule"] == graph.rule
    same(found["edges"], graph.edges())
    spoken = run("edges", folder, "--minimum", "0", "--most", "3").out
    first = posterior.edges().iloc[0]
    assert f"{first.probability:.2f}" in spoken
    assert "... and 9 more" in spoken
    assert "None." in run("edges", folder, "--minimum", "1").out or posterior.edges(minimum=1.0).size


def test_paths(run, posterior, folder):
    first, last = posterior.edges().iloc[0][["source", "target"]]
    expected = posterior.paths(first, last, draws=200, seed=2)
    found = parsed(run("paths", folder, first, last, "--draws", "200", "--seed", "2", "--json"))
    assert found["probability"] == expected.probability
    same(found["paths"], expected.table)
    assert f"probability {posterior.paths(first, last).probability:.2f}" in run("paths", folder, first, last).out


def test_effect(run, posterior, folder):
    first, last = posterior.edges().iloc[0][["source", "target"]]
    expected = posterior.effect(first, last, at=[0.0, 1.0], draws=50)
    found = parsed(run("effect", folder, first, last, "--at", "0", "--at", "1", "--draws", "50", "--json"))
    assert (found["low"], found["high"]) == expected.interval
    assert found["mean"] == expected.mean
    same(found["curve"], expected.curve)
    assert found["caveat"] == posterior.caveat
    assert posterior.effect(first, last).sentence in run("effect", folder, first, last).out


def test_check_of_a_run(run, posterior, folder, tmp_path):
    quiet = run("check", folder)
    assert quiet.code == 0
    assert posterior.checks().summary in quiet.out
    assert posterior.status.unseen.sentence in quiet.out

    finding = Finding(
        "outliers", "warning", ("X1",), (("X1", "X2"),), "One row is far out.", "It hangs on it.", "Look."
    )
    doubted = posterior.with_checks(Checks((finding,), posterior.checks().made))
    doubted.save(tmp_path / "doubted")
    spoken = run("check", tmp_path / "doubted")
    assert spoken.code == 3
    for sentence in ("One row is far out.", "It hangs on it.", "Look.", "Edges in doubt: X1 -> X2."):
        assert sentence in spoken.out
    answer = run("check", tmp_path / "doubted", "--json")
    assert answer.code == 3
    found = json.loads(answer.out)
    assert (found["status"], found["status_sentence"]) == ("warning", doubted.status.sentence)
    assert found["status_parts"] == json.loads(json.dumps(doubted.status.to_json()))
    assert Checks.from_json(found) == doubted.checks()
    refused = run("check", folder, "--kind", "X1=label")
    assert refused.code == 2
    assert "--kind is about a table" in refused.err


@pytest.mark.slow
def test_next(run, posterior, folder):
    same(parsed(run("next", folder, "--json"))["experiments"], posterior.next_experiment())
    name = posterior.names[0]
    expected = posterior.next_experiment(already=[name])
    same(parsed(run("next", folder, "--already", name, "--json"))["experiments"], expected)


def test_compare(run, posterior, folder, tmp_path):
    table = vcuda.simulate("er", nodes=4, edges=4, rows=80, test_rows=1, seed=1).train.to_frame().iloc[:, :3]
    other = vcuda.fit(table, model="linear", noise="unequal", engine="exact")
    other.save(tmp_path / "other")
    expected = posterior.compare(other)
    found = parsed(run("compare", folder, tmp_path / "other", "--json"))
    assert found["sum_of_differences"] == expected.sum_of_differences
    assert found["only_here"] == [posterior.names[3]]
    same(found["edges"], expected.edges)
    spoken = run("compare", folder, tmp_path / "other").out
    assert f"Only in {folder}: {posterior.names[3]}." in spoken


@pytest.mark.parametrize("ending", [".csv", ".json", ".dot", ".graphml", ".gml"])
def test_export(run, posterior, folder, tmp_path, ending):
    file = tmp_path / f"edges{ending}"
    assert run("export", folder, "-o", file).code == 0
    found = read_edges(file, names=posterior.names)
    pd.testing.assert_frame_equal(found, posterior.edge_probabilities, atol=1e-6, check_names=False)
    assert run("export", folder, "-o", file, "--consensus").code == 0
    kept = read_edges(file, names=posterior.names).to_numpy() > 0
    assert (kept == posterior.consensus().graph).all()


def test_export_refuses_what_it_does_not_know(run, folder, tmp_path):
    answer = run("export", folder, "-o", tmp_path / "edges.xyz")
    assert answer.code == 2
    assert ".xyz" in answer.err


def test_report(run, folder, tmp_path):
    assert run("report", folder, "-o", tmp_path / "page.html").code == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert run("report", folder, "-o", tmp_path / "page.pdf").code == 2


@pytest.mark.parametrize("command", ["paths", "effect"])
def test_an_unknown_name_is_refused_with_exit_code_2(run, folder, command):
    answer = run(command, folder, "X1", "Y")
    assert answer.code == 2
    assert "'Y'" in answer.err


@pytest.mark.parametrize(
    "question", [("effect", "RUN", "X1", "Y1"), ("paths", "RUN", "Y1", "X1"), ("next", "RUN", "--already", "Y1")]
)
def test_a_wrong_name_is_refused_before_the_run_is_loaded(question, run, folder, monkeypatch):
    monkeypatch.setattr(vcuda.Posterior, "load", lambda folder: pytest.fail("the run was loaded"))
    answer = run(*(folder if word == "RUN" else word for word in question))
    assert answer.code == 2
    assert "the posterior has no variable 'Y1'; did you mean 'X1'?" in answer.err


def test_why(run, posterior, folder, tmp_path):
    first, last = posterior.edges().iloc[0][["source", "target"]]
    expected = posterior.why(first, last)
    assert parsed(run("why", folder, first, last, "--json")) == expected.to_dict()
    spoken = run("why", folder, first, last).out
    assert all(sentence in " ".join(spoken.split()) for sentence in expected.sentences)
    assert "independences" in spoken
    table = vcuda.simulate("er", nodes=4, edges=4, rows=80, test_rows=1, seed=0).train.to_frame()
    vcuda.fit(table, model="additive", engine="exact").save(tmp_path / "additive")
    refused = run("why", tmp_path / "additive", first, last)
    assert refused.code == 2
    assert "--data TABLE" in refused.err
    table.to_csv(tmp_path / "table.csv", index=False)
    answer = parsed(run("why", tmp_path / "additive", first, last, "--data", tmp_path / "table.csv", "--json"))
    assert [line["source"] for line in answer["ladder"]] == ["prior", "independences", "functions"]
