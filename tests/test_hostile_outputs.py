"""Names and words that somebody chose to do harm: in a report, in a run folder, in CSV files for spreadsheets."""

import csv
import json
import os
import shutil
import sys
from pathlib import Path

import hostile
import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.cli import main
from vcuda.data.library import read_graph, write_graph
from vcuda.data.spreadsheets import FORMULA, as_cell, from_cell
from vcuda.outputs.exports import read_edges
from vcuda.posterior.samples import GraphSamples

RUN = Path(__file__).parent / "fixtures" / "run-format-1" / "exact-linear"
FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(1)", "'=1", "\uff1d1", "plain", "x\r=1+1")
# Four at a time, as the run has four columns.
NAMES = {
    "scripts": (
        "<script>window.hacked='a script'</script>",
        "</script><img src=x onerror=\"window.hacked='an image'\">",
        "\"'><svg onload=window.hacked='a picture'><a href=\"",
        "javascript:window.hacked='an address'",
    ),
    "places": ("../../escaped", "/etc/passwd", "~/.bashrc", "file:///etc/passwd"),
    "letters": (
        "\u202ereversed\u2066",
        "nul\0 and escape\x1b[31m",
        "line\nbreak\rand\u2028more",
        "👩‍👩‍👧‍👦 e\u0301",
    ),
    "lengths": (hostile.LONG, "\U0001d56c" * 5000, "a", "word " * 20_000 + "end"),
    "templates": ("$python ${verdict} $$", "{{7*7}} {0} %s %(x)s", "=cmd|' /C calc'!A0", "<!-- ]]> &lt;b&gt;"),
}
WORDS = "</script><script>window.hacked='a word'</script><img src='https://example.invalid/x.png'>"


def hostile_run(folder, names):
    """A sound run with these names, and with hostile words wherever a run has words."""
    shutil.copytree(RUN, folder)

    def change(seen):
        seen["names"] = seen["law"]["names"] = list(names)
        seen["status"]["sentence"] = WORDS
        seen["diagnostics"][WORDS] = WORDS
        made = seen["provenance"]
        made["data"] |= {"source": f"../../{WORDS}/t.csv", "notes": [WORDS]}
        made["choice"]["sentences"] = [WORDS]
        made["versions"]["vcuda"] = WORDS
        finding = {"severity": "warning", "columns": [WORDS], "edges": [list(names[:2])], "statistic": 1.0}
        finding |= dict.fromkeys(("check", "sentence", "changes", "remedy"), WORDS)
        checked = {"check": WORDS, "p_value": 0.5, "seconds": 0.1, "rows": 9}
        seen["checks"] = {"findings": [finding | {"p_value": 0.1}], "made": [checked], "not_made": WORDS}
        made["target"] = names[3]
        made["knowledge"] = {"roots": [names[0]], "tiers": [[names[1]], [names[2]]]}

    hostile.config(change)(folder)
    return folder


def exit_code(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_a_report_of_hostile_names_is_harmless_in_a_browser(browser, kind, tmp_path):
    run = hostile_run(tmp_path / "run", NAMES[kind])
    assert exit_code("report", run) == 0
    file = run / "report.html"
    assert file.stat().st_size < 20e6
    for width, height in ((1280, 900), (375, 812)):
        browser.open(file, width=width, height=height)
        for variable in range(4):
            browser.run(f"location.hash = '#threshold=0.50&variable={variable}'")
            browser.run("new Promise(done => setTimeout(done, 50))")
        assert not browser.run("document.getElementById('focus').hidden")
        browser.run("document.querySelector('.gv-threshold').focus()")
        browser.press("Home", 36)
        # No script but the page's own has run, and nothing but the page was asked for.
        assert browser.run("window.hacked === undefined && document.images.length === 0")
        assert browser.run("document.querySelectorAll('script').length") == 3
        assert browser.run("[...document.links].every(link => link.getAttribute('href').startsWith('#'))")
        assert browser.requests == [file.resolve().as_uri()]
        assert browser.complaints == []
        # It can still be read: it fits the window, and says what every report says.
        assert browser.run("document.documentElement.scrollWidth") <= width
        shown = browser.run("document.body.innerText")
        for heading in ("What drives", "What was asked", "What could be wrong", "How far to trust it"):
            assert heading.lower() in shown.lower()
        assert not set("\u202e\u2066\0\x1b\u2028") & set(shown)
        assert browser.run("document.querySelectorAll('#edge-table tbody tr').length") == 12


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_whatever_is_done_with_it_nothing_outside_is_touched(kind, tmp_path, monkeypatch, capsys):
    inside, outside = tmp_path / "a" / "b" / "inside", tmp_path / "victim"
    inside.mkdir(parents=True)
    outside.write_text("untouched")
    monkeypatch.chdir(inside)
    run = hostile_run(inside / "run", NAMES[kind])
    # Links that lead out, under every name that is written.
    for name in ("report.html", "edges.csv", "summary.json", "samples.csv", "edges.json"):
        (run / name).unlink(missing_ok=True)
        os.symlink(outside, run / name)
    written = []

    def hear(event, arguments):
        if written is None:
            return
        if event == "open" and isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(arguments[0])
        elif event in ("os.mkdir", "os.symlink", "os.link"):
            written.append(str(arguments[0]))
        elif event == "os.rename":
            written.append(str(arguments[1]))

    sys.addaudithook(hear)
    posterior = vcuda.Posterior.load(run)
    assert exit_code("edges", run) == 0
    assert exit_code("report", run) == 0
    assert exit_code("sample", run, "-o", run / "samples.csv") == 0
    for ending in ("csv", "json", "dot", "graphml", "gml"):
        assert exit_code("export", run, "-o", run / f"edges.{ending}") == 0
    posterior.save(run)
    heard, written = written, None
    assert heard
    assert [path for path in heard if not os.path.abspath(path).startswith((str(run), os.devnull))] == []
    assert outside.read_text() == "untouched"
    assert not [path for path in run.iterdir() if path.is_symlink()]
    assert sorted(os.listdir(tmp_path)) == ["a", "victim"]
    assert os.listdir(inside) == ["run"]
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert not set("\x1b\u202e\0\r") & set(said.out + said.err)
    again = vcuda.Posterior.load(run)
    assert again.names == NAMES[kind]
    np.testing.assert_array_equal(again.edge_probabilities, posterior.edge_probabilities)


@pytest.mark.slow
def test_a_table_with_such_a_header_goes_all_the_way(tmp_path, monkeypatch):
    """From the file through fit and report, and back from the run folder, with the names as they were."""
    monkeypatch.chdir(tmp_path)
    names = ("</script><b>", "line\nbreak", "../../x", "=cmd|' /C calc'!A0")
    rng = np.random.default_rng(0)
    with open("t.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([names, *rng.normal(size=(40, 4)).tolist()])
    assert exit_code("fit", "t.csv", "-o", "run", "--model", "linear", "--engine", "exact", "--quiet") == 0
    assert vcuda.Posterior.load("run").names == names
    assert sorted(os.listdir(tmp_path)) == ["run", "t.csv"]
    assert "</script><b>" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


# Spreadsheets -----------------------------------------------------------------------------------------------


def first_letters(file):
    with open(file, encoding="utf-8", newline="") as lines:
        return [cell for record in list(csv.reader(lines))[1:] for cell in record if FORMULA.match(cell)]


@pytest.mark.parametrize("names", [FORMULAS[:4], FORMULAS[4:]], ids=["signs", "others"])
def test_no_cell_of_a_csv_file_is_a_formula(names, tmp_path):
    run = hostile_run(tmp_path / "run", names)
    posterior = vcuda.Posterior.load(run)
    posterior.save(run)
    posterior.sample(20).save(tmp_path / "samples.csv")
    assert exit_code("export", run, "-o", tmp_path / "exported.csv") == 0
    for file in (run / "edges.csv", tmp_path / "samples.csv", tmp_path / "exported.csv"):
        guarded = first_letters(file)
        assert guarded
        assert all(cell.startswith("'") for cell in guarded), file
    # The names come back, and a carriage return inside one ends no line.
    table = read_edges(tmp_path / "exported.csv", names=names)
    np.testing.assert_array_equal(table, posterior.edge_probabilities)
    edges = pd.read_csv(run / "edges.csv")
    assert [from_cell(name) for name in edges["source"]] == list(posterior.edges(minimum=1e-4)["source"])
    graph = np.triu(np.ones((4, 4), dtype=bool), k=1)
    write_graph(tmp_path / "graph.csv", graph, names)
    np.testing.assert_array_equal(read_graph(tmp_path / "graph.csv", names), graph)


def test_every_name_comes_back_from_its_cell():
    for name in (*FORMULAS, "''=1", "'", "", "'tis", "''", "\t=1"):
        assert from_cell(as_cell(name)) == name
    assert as_cell("plain-name=x") == "plain-name=x"


@pytest.mark.slow
def test_drawn_graphs_keep_every_name_in_arrays(tmp_path):
    names = tuple(name for group in NAMES.values() for name in group if "\0" not in name)
    graphs = GraphSamples.from_counts(names, np.array([1]), np.array([0]), np.array([1]))
    graphs.save(tmp_path / "graphs.npz")
    assert GraphSamples.load(tmp_path / "graphs.npz").names == names
    assert json.loads(json.dumps(names)) == list(names)
