"""Whatever comes in is accepted or refused in one short sentence: no traceback, no hang, no code, no file elsewhere."""

import gzip
import os
import shutil
import sys
import tempfile
import tracemalloc
import zipfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import fuzzing
import hostile
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vcuda
import vcuda.data.library
from vcuda.cli import main
from vcuda.data.knowledge import as_knowledge
from vcuda.data.streaming.streams import open_stream
from vcuda.errors import ConfigError, DataError, KnowledgeError, RunError, VcudaError
from vcuda.posterior.archives import read_arrays
from vcuda.posterior.point import Networks, ScoredGraphs
from vcuda.posterior.samples import GraphSamples
from vcuda.summaries.effects import effect, effects

RUN = Path(__file__).parent / "fixtures" / "run-format-1" / "exact-linear"
COLUMNS = ("a", "b", "c")
# The path stands in every sentence, and is the user's own.
LONGEST_SENTENCE = 800


def exit_code(*words):
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def refused(kind, refusal, act):
    with pytest.raises(kind, match=refusal) as caught:
        act()
    assert len(str(caught.value)) < LONGEST_SENTENCE


@pytest.mark.parametrize("name", hostile.TABLES)
def test_tables(name, tmp_path, capsys):
    file, content, refusal = hostile.TABLES[name]
    path = tmp_path / file
    path.write_bytes(content)
    if refusal is None:
        assert vcuda.as_dataset(path).n in (6, 7)
        assert exit_code("check", str(path)) == 0
    else:
        refused(DataError, refusal, lambda: vcuda.as_dataset(path))
        assert exit_code("check", str(path)) == 2
        if file.endswith((".arrow", ".feather")):
            refused(DataError, refusal, lambda: list(open_stream(path).blocks()))
    assert "Traceback" not in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("name", hostile.KNOWLEDGE)
def test_knowledge(name, tmp_path):
    file, content, refusal = hostile.KNOWLEDGE[name]
    (tmp_path / file).write_bytes(content)
    refused(KnowledgeError, refusal, lambda: as_knowledge(tmp_path / file).for_columns(COLUMNS, edge_probability=0.1))


@pytest.mark.parametrize("name", hostile.RUNS)
def test_runs(name, tmp_path, monkeypatch):
    harm, refusal = hostile.RUNS[name]
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    harm(run)
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path)), sorted(os.listdir(run))
    if refusal is None:
        posterior = vcuda.Posterior.load(run)
        assert len(posterior.edges()) == 12
        assert posterior.sample(5).all_acyclic()
        assert np.isfinite(effects(posterior)["mean"]).all()
    else:
        refused(RunError, refusal, lambda: vcuda.Posterior.load(run))
    assert (sorted(os.listdir(tmp_path)), sorted(os.listdir(run))) == before


def test_a_run_of_somebody_else_makes_a_report_and_nothing_else(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    os.symlink("../victim", run / "report.html")
    (tmp_path / "victim").write_text("untouched")
    hostile.config(lambda seen: seen["provenance"]["data"].update(source="../../victim.csv", notes=["</script><b>"]))(
        run
    )
    opened = []

    def hear(event, arguments):
        if opened is not None and event == "open" and str(arguments[0]).startswith(str(tmp_path)):
            opened.append(Path(arguments[0]).name)

    sys.addaudithook(hear)
    assert exit_code("report", str(run)) == 0
    heard, opened = opened, None
    written = {name for name in heard if not name.startswith(".writing-")}
    assert written == {"config.json", "posterior.npz", "report.html"}
    # The link was replaced, and what it led to is as it was.
    assert (tmp_path / "victim").read_text() == "untouched"
    assert not (run / "report.html").is_symlink()
    assert "</script><b>" not in (run / "report.html").read_text(encoding="utf-8")


def test_a_small_archive_that_unfolds_to_much_is_refused_unread(tmp_path, monkeypatch):
    for module in ("vcuda.data.text_files", "vcuda.posterior.archives"):
        monkeypatch.setattr(f"{module}.memory_available", lambda: 4_000_000)
    table = tmp_path / "t.csv.gz"
    table.write_bytes(gzip.compress(b"a,b,c\n" + b"1,2,3\n" * 500_000))
    refused(DataError, "the 0.004 GB of memory that are free", lambda: vcuda.as_dataset(table))
    refused(DataError, "the 0.004 GB of memory that are free", lambda: vcuda.data.library.read_graph(table, COLUMNS))
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    hostile.array("law.gram", lambda old: np.zeros((800, 800)))(run)
    assert (run / "posterior.npz").stat().st_size < 20_000
    refused(RunError, "more than half of the memory", lambda: vcuda.Posterior.load(run))


def test_columns_whose_pairs_do_not_fit_are_refused_before_their_tables_are_made(tmp_path, monkeypatch):
    """A megabyte of truth values, which is a kilobyte in the file, makes tables of real numbers."""
    names = tuple(f"v{k}" for k in range(1000))
    graph = GraphSamples.from_counts(names, np.array([0]), np.empty(0), np.empty(0))
    graph_posterior = ScoredGraphs(graph, np.zeros((1000, 1000), dtype=bool))
    replace(vcuda.Posterior.load(RUN), names=names, graph_posterior=graph_posterior).save(tmp_path / "run")
    hostile.array("edge_probabilities", lambda old: old[:1])(tmp_path / "run")
    assert vcuda.Posterior.load(tmp_path / "run").names == names
    monkeypatch.setattr("vcuda.posterior.archives.memory_available", lambda: 40_000_000)
    refused(
        RunError,
        "does not fit into the memory .*all pairs of its 1,000 columns would take 0.048 GB.*open it where there is",
        lambda: vcuda.Posterior.load(tmp_path / "run"),
    )


def most_memory(act):
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_array_is_not_held_twice_while_it_is_read(save, tmp_path):
    """Or what fits into half of the memory would take all of it."""
    save(tmp_path / "arrays.npz", first=np.zeros(1_000_000), second=np.asfortranarray(np.ones((1000, 3000))))
    assert most_memory(lambda: read_arrays(tmp_path / "arrays.npz")) < 1.2 * 32_000_000


def test_edges_of_a_byte_are_followed_and_counted_in_little_memory(monkeypatch):
    for name in ("NODES_AT_A_TIME", "EDGES_AT_A_TIME"):
        monkeypatch.setattr(f"vcuda.posterior.samples.{name}", 1 << 14, raising=False)
    size, names = 100_000, tuple("abcdef")
    ends = (np.tile(np.array(nodes, dtype=np.int8), size) for nodes in ((0, 1, 2, 3, 4), (1, 2, 3, 4, 5)))
    samples = GraphSamples(names, np.arange(size + 1) * 5, *ends, np.full(size, 1 / size))
    assert most_memory(samples.all_acyclic) < 4_000_000  # the edges have a megabyte
    assert most_memory(samples.edge_probabilities) < 4_000_000
    np.testing.assert_allclose(samples.edge_probabilities(), np.eye(6, k=1), rtol=1e-9)
    # In stretches the sums are the same to the last bit, since they go on where they were.
    uneven = np.random.default_rng(0).dirichlet(np.ones(size))
    weighted = replace(samples, weights=uneven)
    stretched = weighted.edge_probabilities()
    for name in ("NODES_AT_A_TIME", "EDGES_AT_A_TIME"):
        monkeypatch.setattr(f"vcuda.posterior.samples.{name}", 1 << 30)
    np.testing.assert_array_equal(stretched, weighted.edge_probabilities())


@pytest.mark.slow
def test_graphs_that_are_too_many_at_once_are_counted_in_turn(monkeypatch):
    """2,000 draws of probabilities that are known: five standard errors of a share are at most .056."""
    graph_posterior = vcuda.Posterior.load(RUN.parent / "straight-through-linear").graph_posterior
    sizes, draw = [], type(graph_posterior)._draw

    def counted(self, rng, index, size, names):
        sizes.append(size)
        return draw(self, rng, index, size, names)

    monkeypatch.setattr(type(graph_posterior), "_draw", counted)
    monkeypatch.setattr("vcuda.posterior.trained.EDGES_AT_ONCE", 1500)
    found = graph_posterior._drawn_probabilities(np.random.default_rng(0), 0)
    assert sum(sizes) == 2000
    assert 1 < len(sizes) < 2000
    np.testing.assert_allclose(found, graph_posterior.component_probabilities()[0], atol=0.056)


def test_effects_of_weights_of_any_size_are_sums_over_paths():
    """All effects at once against single ones, which follow the paths; in double precision both are exact to 1e-13."""
    rng, nodes = np.random.default_rng(0), 5
    order = rng.permutation(nodes)
    graph = np.zeros((nodes, nodes), dtype=bool)
    graph[np.ix_(order, order)] = np.triu(np.ones((nodes, nodes), dtype=bool), k=1)
    for size in (1.0, 1e6, 1e9, 1e12):
        weights = size * rng.normal(size=(1, nodes, nodes, 1))
        names = tuple("abcde")
        networks = Networks((weights,), (), np.zeros((1, nodes)))
        graph_posterior = ScoredGraphs(GraphSamples.from_dense(names, graph), graph.astype(float), networks)
        posterior = replace(vcuda.Posterior.load(RUN), names=names, graph_posterior=graph_posterior)
        for row in effects(posterior, draws=1).itertuples():
            single = effect(posterior, row.cause, row.outcome, draws=1).mean
            np.testing.assert_allclose(row.mean, single, rtol=1e-12)
    graph_posterior = replace(graph_posterior, networks=Networks((weights * 1e200,), (), np.zeros((1, nodes))))
    refused(
        ConfigError,
        "larger than any number",
        lambda: effects(replace(posterior, graph_posterior=graph_posterior), draws=1),
    )


def test_rows_that_a_file_only_claims_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    path.write_bytes(hostile.parquet(a=np.zeros(1_000_000), b=np.ones(1_000_000)))
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("vcuda.data.checks.memory_available", lambda: 50_000_000)
    refused(DataError, "1,000,000 rows of 2 columns would need about 0.1 GB", lambda: vcuda.as_dataset(path))


def test_memory_that_runs_out_is_told_in_a_sentence(monkeypatch):
    def empty(*_, **__):
        raise MemoryError

    monkeypatch.setattr("vcuda.data.reading.check_rows", empty)
    refused(DataError, "does not fit into the", lambda: vcuda.as_dataset(np.ones((9, 3))))


def test_names_of_100000_letters_make_short_sentences(tmp_path):
    """Each pair of such names would take minutes to compare letter by letter."""
    names = [hostile.LONG + str(k) for k in range(3)]
    values = np.random.default_rng(0).normal(size=(9, 3))
    refused(DataError, "there is no column", lambda: _with_targets(tmp_path, names, values))
    with pytest.raises(KnowledgeError) as caught:
        vcuda.Knowledge(roots=[hostile.LONG]).for_columns(names, edge_probability=0.1)
    assert len(str(caught.value)) < LONGEST_SENTENCE


def _with_targets(folder, names, values):
    lines = [",".join(names), *(",".join(map(str, row)) for row in values)]
    (folder / "t.csv").write_text("\n".join(lines))
    vcuda.as_dataset(folder / "t.csv", interventions=hostile.LONG)


def test_paths_that_cannot_be(tmp_path):
    for path in ("x" * 5000 + ".csv", "~nobody-has-this-name/t.csv", "a\0b.csv", tmp_path / ("y" * 300) / "t.csv"):
        refused(DataError, "check the path", lambda path=path: vcuda.as_dataset(path))
        refused(RunError, "is not a run of vcuda", lambda path=path: vcuda.Posterior.load(str(path)[:300]))


def test_many_required_edges_are_checked_in_no_time():
    """20,000 edges in a chain, as many forbidden ones, roots and sinks: by lists, 400 million comparisons of each."""
    chain = [(f"v{k}", f"v{k + 1}") for k in range(20_000)]
    back = [(target, source) for source, target in chain]
    others = [f"w{k}" for k in range(20_000)]
    known = vcuda.Knowledge(required=chain, forbidden=back, roots=others, sinks=others[:10_000])
    assert len(known.required) == 20_000


def test_lines_and_blank_lines_that_do_not_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("vcuda.data.text_files.LONGEST_RECORD", 1000)
    for name, content in (
        ("line", b"a,b,c\n" + b"1" * 1001 + b",2,3\n"),
        ("blank", b"\n" * 1001 + b"a,b\n1,2\n"),
        ("blank later", b"a,b\n" + b"\n" * 1001 + b"1,2,3\n"),
        ("header", b"a," * 501 + b"b\n"),
    ):
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(content))
        refused(
            DataError,
            "has more than 1,000 characters",
            lambda name=name: vcuda.data.library.read_graph(tmp_path / f"{name}.csv.gz", COLUMNS),
        )


def test_graph_samples_in_a_file_are_checked(tmp_path):
    path = tmp_path / "graphs.npz"
    cycle = {"offsets": np.array([0, 2]), "sources": np.array([0, 1]), "targets": np.array([1, 0])}
    np.savez(path, names=np.array(["a", "b", "c"]), weights=np.ones(1), **cycle)
    refused(RunError, "has a cycle", lambda: GraphSamples.load(path))
    np.savez(path, names=np.array(["a", "b", "c"]), weights=np.ones(1), **cycle | {"offsets": np.array([0.0, 2.0])})
    refused(RunError, "whole numbers", lambda: GraphSamples.load(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("names.npy", hostile.header("{'descr': '<U99', 'fortran_order': False, 'shape': (9,), }"))
    refused(RunError, "declares the shape", lambda: GraphSamples.load(path))


# What nobody thought of: the same with whatever Hypothesis (or HypoFuzz, guided by coverage) comes up with ----------

cells = st.one_of(st.floats().map(repr), st.integers().map(str), st.text(max_size=8), st.sampled_from(["", "NA", '"']))
lines = st.lists(st.lists(cells, min_size=1, max_size=4).map(",".join), max_size=9).map("\n".join)
# More of them, and others each time, when the benchmark asks for it.
EXAMPLES = os.environ.get("HOSTILE_EXAMPLES")
anything = settings(
    max_examples=int(EXAMPLES or 40),
    derandomize=EXAMPLES is None,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def opened(path, act):
    seen = None
    try:
        act(path)
    except VcudaError as error:
        seen = str(error)
    assert seen is None or 10 < len(seen) < LONGEST_SENTENCE


def written(name, content, act):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(content)
        opened(Path(folder) / name, act)


@pytest.mark.slow
@anything
@given(content=st.one_of(st.binary(max_size=300), lines.map(lambda text: text.encode(errors="replace"))))
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.feather", "t.parquet"])
def test_any_table(name, content):
    written(name, gzip.compress(content) if name.endswith("gz") else content, vcuda.as_dataset)


@pytest.mark.slow
@anything
@given(
    content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
)
@pytest.mark.parametrize("name", ["k.toml", "k.csv"])
def test_any_knowledge(name, content):
    written(name, content, lambda path: as_knowledge(path).for_columns(COLUMNS, edge_probability=0.1))


@anything
@given(at=st.integers(0, 10**6), content=st.binary(max_size=8), name=st.sampled_from(["config.json", "posterior.npz"]))
def test_any_change_of_a_run(at, content, name):
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        shutil.copytree(RUN, run)
        whole = (run / name).read_bytes()
        at %= len(whole)
        (run / name).write_bytes(whole[:at] + content + whole[at + len(content) :])
        opened(run, questions)


def questions(run):
    posterior = vcuda.Posterior.load(run)
    assert np.isfinite(posterior.edges()["probability"]).all()
    assert posterior.sample(5).all_acyclic()


@pytest.mark.slow
def test_the_first_cases_of_fuzzing_are_accepted_or_refused(tmp_path):
    """``make fuzz`` opens thousands of each kind."""
    child = fuzzing.Child(tmp_path, patience=20.0, memory=1.0, runs=False)
    try:
        for kind, number in product(fuzzing.CASES, range(5)):
            files = tmp_path / f"{kind}-{number}"
            case = fuzzing.grown(kind, 0, number)
            case.write(files)
            answer = child.ask({"kind": kind, "seed": 0, "number": number, "files": str(files), "entry": case.entry})
            assert answer["end"] in ("accepted", "refused"), (kind, number, answer)
    finally:
        child.end()
    assert child.begun == 1
