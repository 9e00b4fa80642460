"""The command line: words, files, exit codes, Ctrl-C, and every table that must be refused."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from bad_tables import BAD_TABLES
from rich.console import Console

import vcuda
import vcuda.fitting.fit
from vcuda import interrupts
from vcuda.checks.findings import Checks, Finding
from vcuda.cli import fitting, main, runs, tables, terminal
from vcuda.fitting.spec import FitSpec
from vcuda.outputs.reproduction import shell_line
from vcuda.posterior.status import in_percent

FILES = {"edges.csv", "summary.json", "config.json", "posterior.npz", "report.html"}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    with pytest.raises(SystemExit) as left:
        main(
            [
                "simulate",
                "-o",
                str(folder),
                "--nodes",
                "3",
                "--edges",
                "2",
                "--rows",
                "64",
                "--test-rows",
                "20",
            ]
        )
    assert left.value.code == 0
    return folder


@pytest.fixture(scope="module")
def fitted(simulated, tmp_path_factory):
    """A run folder that the command line wrote, with 20 graphs."""
    folder = tmp_path_factory.mktemp("runs") / "deeper" / "run"
    with pytest.raises(SystemExit) as left:
        main(["fit", str(simulated / "train.csv"), "-o", str(folder), "--seed", "3", "--samples", "20"])
    assert left.value.code == 0
    return folder


@pytest.fixture
def asked(monkeypatch):
    """Records what the command asks of ``fit``, which then refuses: options can be tested without a fit."""
    seen = {}

    def fit_table(table, call):
        seen.update(vars(call))
        raise vcuda.ConfigError("enough")

    monkeypatch.setattr(vcuda.fitting.fit, "fit_table", fit_table)
    return seen


@pytest.mark.slow
def test_version_and_help(run):
    assert run("--version").out == f"vcuda {vcuda.__version__}\n"
    commands = ("fit", "check", "sample", "evaluate", "simulate", "datasets")
    overview = run("--help")
    assert overview.code == 0
    for command in commands:
        assert command in overview.out
        helped = run(command, "--help")
        assert helped.code == 0
        _, examples = helped.out.split("Examples:")
        assert f"vcuda {command}" in examples


def test_choices_are_those_of_the_package():
    from vcuda.data import simulate

    for name in ("GraphFamily", "Mechanism", "NoiseScales", "NoiseFamily", "Spread"):
        assert get_args(getattr(tables, name)) == get_args(getattr(simulate, name))


# fit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_bad_table_is_refused_in_one_sentence(name, run, tmp_path):
    table = BAD_TABLES[name].write(tmp_path)
    answer = run("fit", table, "-o", tmp_path / "run")
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("vcuda: ")
    assert answer.err.count("\n") == 1
    for fragment in BAD_TABLES[name].fragments:
        assert fragment in answer.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--model", "quadratic"),
        ("--noise", "loud"),
        ("--engine", "steam"),
        ("--preset", "mine"),
        ("--seed", "-1"),
        ("--samples", "-1"),
        ("--edge-prior", "often"),
        ("--edge-prior", "1.5"),
        ("--prior", "uniform:2"),
        ("--prior", "uniform", "--engine", "variational"),
        ("--time-limit", "0"),
        ("--log", "nobody"),
        ("--log", "X1", "--raw"),
        ("--engine", "variational", "--model", "gp"),
        ("--engine", "exact", "--preset", "paper"),
        ("--unknown",),
    ],
    ids=" ".join,
)
def test_a_bad_option_is_refused(options, run, simulated, tmp_path):
    answer = run("fit", simulated / "train.csv", "-o", tmp_path / "run", *options)
    assert answer.code == 2
    assert answer.out == ""
    assert not (tmp_path / "run").exists()


def test_the_output_folder_is_checked_before_the_fit(run, simulated, tmp_path, asked):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    for name, reason in (("file", "is a file"), ("folder", "holds other files")):
        answer = run("fit", simulated / "train.csv", "-o", tmp_path / name)
        assert answer.code == 2
        assert reason in answer.err
    assert asked == {}
    assert (tmp_path / "folder" / "notes.txt").read_text() == "mine"


def test_options_reach_the_fit(run, tmp_path, asked):
    common = ("fit", "sachs", "-o", tmp_path / "run", "--no-report")
    assert run(*common, "--model", "mlp", "--noise", "equal", "--seed", "9", "--edge-prior", "0.3").code == 2
    expected = {"model": "mlp", "noise": "equal", "seed": 9, "prior": 0.3, "preset": "default"}
    assert expected.items() <= asked.items()
    assert asked["engine"] == "auto"

    run(*common)
    assert {
        "model": "auto",
        "noise": None,
        "log": None,
        "time_limit": None,
        "seed": 0,
        "prior": None,
        "preset": "default",
    }.items() <= asked.items()

    assert not asked["standardise"]

    run(*common, "--log", "Erk", "--log", "Akt", "--time-limit", "30", "--engine", "orders")
    assert (asked["log"], asked["time_limit"], asked["engine"]) == (("Erk", "Akt"), 30.0, "orders")
    run(*common, "--raw")
    assert asked["log"] == ()

    run(*common, "--preset", "paper", "--standardise")
    assert asked["preset"] == "paper"
    assert asked["standardise"]


def test_a_run_has_all_its_files(fitted, simulated):
    assert {path.name for path in fitted.iterdir()} == FILES | {"samples.npz"}
    edges = pd.read_csv(fitted / "edges.csv")
    assert list(edges.columns) == ["source", "target", "probability", "holds_with_hidden_causes"]
    assert edges["probability"].between(1e-4, 1).all()
    assert edges["probability"].is_monotonic_decreasing
    assert set(edges["source"]) | set(edges["target"]) <= set(pd.read_csv(simulated / "train.csv").columns)

    summary = json.loads((fitted / "summary.json").read_text())
    keys = {"engine", "model", "status", "seconds", "rows", "columns", "seed", "versions", "diagnostics"}
    assert keys <= summary.keys()
    assert (summary["rows"], summary["columns"], summary["seed"]) == (64, 3, 3)

    posterior = vcuda.Posterior.load(fitted)
    probabilities = posterior.edge_probabilities
    for row in edges.itertuples():
        assert probabilities.loc[row.source, row.target] == pytest.approx(row.probability, abs=1e-6)

    graphs = posterior.sample(20, seed=3)
    with np.load(fitted / "samples.npz", allow_pickle=False) as stored:
        for name in ("offsets", "sources", "targets", "weights"):
            np.testing.assert_array_equal(stored[name], getattr(graphs, name))
        assert tuple(stored["names"]) == posterior.names


@pytest.mark.slow
def test_one_seed_one_result(run, simulated, tmp_path):
    def edges(seed: int) -> str:
        folder = tmp_path / "run"
        options = ("-o", folder, "--seed", seed, "--quiet", "--engine", "straight-through", "--model", "linear")
        assert run("fit", simulated / "train.csv", *options).code == 0
        return (folder / "edges.csv").read_text()

    first = edges(3)
    assert edges(4) != first
    assert edges(3) == first


@pytest.mark.slow
def test_the_report_of_a_fit(run, simulated, tmp_path):
    folder = tmp_path / "my run"
    answer = run("fit", simulated / "train.csv", "-o", folder, "--samples", "5")
    assert answer.code == 0
    posterior = vcuda.Posterior.load(folder)
    assert all(sentence in answer.out for sentence in posterior.summary()["choice"])
    assert "Engine exact" in answer.out
    assert "fitted 64 rows and 3 columns" in answer.out
    assert posterior.status.sentence in answer.out
    surest = posterior.edges().iloc[0]
    line = next(line for line in answer.out.splitlines() if line.split()[:2] == [surest.source, surest.target])
    assert line.split(maxsplit=2)[2].strip() == in_percent(surest.probability)
    # The answer comes before how it was made.
    parts = ("What was found: ", "How sure it is: ", "What could be wrong: ", "Status: ", "fitted 64 rows")
    assert sorted(map(answer.out.index, parts)) == list(map(answer.out.index, parts))
    assert f"vcuda effect '{folder}' CAUSE OUTCOME" in answer.out
    assert "samples.npz" in answer.out
    assert "Comparing models" in answer.err
    assert "% done; at most" in answer.err
    assert "Warning" not in answer.err

    # A second fit replaces the first, and its samples with it.
    assert "samples.npz" not in run("fit", simulated / "train.csv", "-o", folder).out
    assert {path.name for path in folder.iterdir()} == FILES


@pytest.mark.slow
def test_json_and_quiet(run, simulated, tmp_path):
    spoken = run("fit", simulated / "train.csv", "-o", tmp_path / "run", "--json")
    summary = json.loads(spoken.out)
    assert summary.pop("run") == str(tmp_path / "run")
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "% done" in spoken.err

    quiet = run("fit", simulated / "train.csv", "-o", tmp_path / "run", "--quiet")
    assert quiet.out == ""
    assert quiet.err == ("" if summary["status"] == "ok" else f"vcuda: {summary['status_sentence']}\n")


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), [("warning", 0), ("failed", 1), ("interrupted", 130)])
def test_a_doubtful_status_is_told_even_when_quiet(status, code, run, fitted, tmp_path, monkeypatch):
    posterior = replace(vcuda.Posterior.load(fitted), status=vcuda.Status(status, "Do not trust it."))
    monkeypatch.setattr(vcuda.fitting.fit, "fit_table", lambda table, call: posterior)
    answer = run("fit", "sachs", "-o", tmp_path / "run", "--quiet")
    assert answer == (code, "", "vcuda: Do not trust it.\n")
    assert vcuda.Posterior.load(tmp_path / "run").status.code == status
    assert "Do not trust it." in run("fit", "sachs", "-o", tmp_path / "run").out


def test_edges_in_doubt_have_an_exit_code_of_their_own(run, fitted, tmp_path, monkeypatch):
    found = Finding("order of the rows", "warning", ("X1",), (("X1", "X2"),), "Rows drift.", "", "Take differences.")
    posterior = vcuda.Posterior.load(fitted)
    doubted = posterior.with_checks(Checks((found,), posterior.checks().made))
    monkeypatch.setattr(vcuda.fitting.fit, "fit_table", lambda table, call: doubted)
    quiet = run("fit", "sachs", "-o", tmp_path / "run", "--quiet")
    assert quiet == (3, "", f"vcuda: {doubted.status.sentence}\n")
    spoken = run("fit", "sachs", "-o", tmp_path / "run")
    assert spoken.code == 3
    assert f"Status: warning. {doubted.status.sentence}" in spoken.out
    assert f"What the model checks found: vcuda check {tmp_path / 'run'}" in spoken.out
    as_json = run("fit", "sachs", "-o", tmp_path / "run", "--json")
    assert as_json.code == 3
    summary = json.loads(as_json.out)
    assert (summary["status"], summary["edges_in_doubt"]) == ("warning", [["X1", "X2"]])


def test_a_fit_that_ends_at_its_time_limit_succeeds_with_a_warning(run, fitted, tmp_path, monkeypatch):
    status = vcuda.Status("interrupted", "Stopped by the time limit.")
    posterior = replace(vcuda.Posterior.load(fitted), status=status)
    monkeypatch.setattr(vcuda.fitting.fit, "fit_table", lambda table, call: posterior)
    answer = run("fit", "sachs", "-o", tmp_path / "run", "--quiet", "--time-limit", 60)
    assert answer == (0, "", "vcuda: Stopped by the time limit.\n")


def test_names_are_neither_markup_nor_control_codes(run, simulated, tmp_path):
    table = pd.read_csv(simulated / "train.csv")
    table.columns = ["[red]a[/red]", "b\x1b[31m", ":smile: " + "c" * 60]
    path = tmp_path / "[bold]t.csv"
    table.to_csv(path, index=False)
    for arguments in (("check", path), ("fit", path, "-o", tmp_path / "run")):
        answer = run(*arguments)
        assert answer.code == 0
        assert "[bold]t.csv" in answer.out
        assert "[red]a[/red]" in answer.out
        assert r"b\x1b[31m" in answer.out
        assert ":smile: ccc" in answer.out
        assert "\x1b" not in answer.out
    refused = run("fit", tmp_path / "\x1b[31mnothing.csv")
    assert refused.code == 2
    assert "\x1b" not in refused.err


def test_an_unexpected_error_is_short(run, tmp_path, monkeypatch):
    def fit_table(table, call):
        raise RuntimeError("the cat is on the keyboard")

    monkeypatch.setattr(vcuda.fitting.fit, "fit_table", fit_table)
    arguments = ("fit", "sachs", "-o", str(tmp_path / "run"))
    answer = run(*arguments)
    assert answer.code == 1
    assert "RuntimeError: the cat is on the keyboard" in answer.err
    assert "VCUDA_DEBUG=1" in answer.err
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("VCUDA_DEBUG", "1")
    with pytest.raises(RuntimeError, match="the cat"):
        main(arguments)


# What the system refuses ------------------------------------------------------------------------------------

LONG = "a" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", f"{LONG}.csv"),
        ("fit", f"{LONG}.csv", "-o", "somewhere"),
        ("fit", "sachs", "-o", LONG),
        ("fit", "--resume", LONG),
        ("report", "RUN", "-o", f"{LONG}.html"),
        ("export", "RUN", "-o", f"{LONG}.csv"),
        ("sample", "RUN", "-o", f"{LONG}.csv"),
        ("simulate", "-o", LONG),
    ],
    ids=lambda arguments: " ".join(arguments).replace(LONG, "LONG"),
)
def test_names_that_no_file_can_have_are_refused(arguments, run, fitted):
    answer = run(*(fitted if each == "RUN" else each for each in arguments))
    assert answer.code == 2
    assert "File name too long" in answer.err
    assert len(answer.err) < 200


def shell(command: str, **options) -> subprocess.CompletedProcess:
    """A command line of a shell in which ``vcuda`` is the command."""
    script = f'vcuda() {{ "{sys.executable}" -m vcuda "$@"; }}; {command}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, **options)
    assert "Traceback" not in done.stderr
    assert "fault of vcuda" not in done.stderr
    return done


needs_linux = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize("closed", ["/dev/full", "&-"])
def test_results_that_cannot_be_printed_are_told_and_the_run_is_kept(closed, simulated, tmp_path):
    done = shell(f"vcuda fit {simulated / 'train.csv'} -o {tmp_path / 'run'} >{closed}")
    assert done.returncode == 2
    assert f"the result is saved in {tmp_path / 'run'}" in done.stderr.splitlines()[-1]
    assert vcuda.Posterior.load(tmp_path / "run").status.code == "ok"
    assert shell(f"vcuda edges {tmp_path / 'run'} --json >{closed}").returncode == 2
    assert shell(f"vcuda check nothing.csv 2>{closed}").returncode == 2


@needs_linux
def test_help_that_cannot_be_printed_is_no_fault():
    done = shell("vcuda --help >/dev/full")
    assert (done.returncode, done.stderr) == (2, "vcuda: the operating system reports: No space left on device.\n")


@pytest.mark.slow
def test_a_deleted_working_directory_is_told(simulated, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    with_absolute_paths = f"vcuda fit {simulated / 'train.csv'} -o {tmp_path / 'run'} -q --model linear"
    assert shell(f"rmdir {gone}; {with_absolute_paths}", cwd=gone).returncode == 0
    gone.mkdir()
    done = shell(f"rmdir {gone}; vcuda fit {simulated / 'train.csv'} -o run", cwd=gone)
    assert done.returncode == 2
    assert "no run can be written into 'run'" in done.stderr


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize("megabytes", [400, 1000])
def test_too_little_address_space_is_told(megabytes, simulated, tmp_path):
    for command in (f"fit {simulated / 'train.csv'} -o {tmp_path / 'run'}", f"check {simulated / 'train.csv'}"):
        done = shell(f"ulimit -v {1024 * megabytes}; vcuda {command}")
        assert done.returncode == 2
        assert "(ulimit -v)" in done.stderr


# Files without a line of names -------------------------------------------------------------------------------


@pytest.fixture
def headerless(simulated, tmp_path):
    """The simulated rows without their names, as CSV."""
    for name in ("train", "test"):
        lines = (simulated / f"{name}.csv").read_text().splitlines(keepends=True)
        (tmp_path / f"{name}.csv").write_text("".join(lines[1:]))
    return tmp_path


def test_a_file_without_names_is_fitted_as_one_with_names(headerless, fitted, simulated, run):
    refused = run("check", headerless / "train.csv")
    assert refused.code == 2
    assert "--no-header" in refused.err
    checked = run("check", headerless / "train.csv", "--no-header")
    assert checked.code == 0
    assert "--no-header -o run" in checked.out.replace("\n", " ")
    options = ("-o", headerless / "run", "--seed", 3, "--samples", 20, "--no-header")
    assert run("fit", headerless / "train.csv", *options).code == 0
    with_names, without = vcuda.Posterior.load(fitted), vcuda.Posterior.load(headerless / "run")
    assert without.names == with_names.names == tuple(f"X{k}" for k in range(1, len(without.names) + 1))
    assert np.array_equal(without.edge_probabilities, with_names.edge_probabilities)
    assert without.provenance.options["header"] is False
    assert "--no-header" in shell_line(without)
    truth = ("--truth", simulated / "graph.csv", "--json")
    own = run("evaluate", headerless / "run", *truth, "--test", headerless / "test.csv", "--no-header")
    assert own.code == 0
    assert json.loads(own.out) == json.loads(run("evaluate", fitted, *truth, "--test", simulated / "test.csv").out)


def test_a_file_without_names_is_streamed_as_it_is_read_at_once(headerless, simulated):
    opened = [
        FitSpec(streamed=streamed, header=False, exclude=("X2",)).open(headerless / "train.csv")
        for streamed in (True, False)
    ]
    named = FitSpec(streamed=True, exclude=("X2",)).open(simulated / "train.csv")
    assert opened[0].names == opened[1].names == named.names
    assert opened[0].n == opened[1].n == named.n
    assert opened[0].fingerprint == named.fingerprint
    # Features need a second pass, which must not lose the first line either.
    assert opened[0].with_logarithms(np.zeros(opened[0].d, dtype=bool)).n == named.n
    fits = [
        vcuda.fit(path, model="additive", streamed=True, header=header, engine="exact").edge_probabilities
        for path, header in ((headerless / "train.csv", False), (simulated / "train.csv", True))
    ]
    assert np.array_equal(*fits)


@pytest.mark.parametrize("line", ["1,2\n", "1,2,3,4\n"])
def test_a_ragged_file_without_names_is_refused_by_its_first_line(line, tmp_path, run):
    (tmp_path / "table.csv").write_text("1,2,3\n4,5,7\n" * 4 + line)
    answer = run("check", tmp_path / "table.csv", "--no-header")
    assert answer.code == 2
    assert "line 9 has" in answer.err
    assert "where the first has 3" in answer.err


def test_only_text_files_can_be_without_names(tmp_path, simulated, run):
    frame = pd.read_csv(simulated / "train.csv")
    frame.to_parquet(tmp_path / "table.parquet")
    for table in (tmp_path / "table.parquet", "sachs"):
        answer = run("check", table, "--no-header")
        assert answer.code == 2
        assert "is for CSV and TSV files" in answer.err
    with pytest.raises(vcuda.ConfigError, match="CSV and TSV"):
        vcuda.fit(frame, header=False)


# Ctrl-C -----------------------------------------------------------------------------------------------------


def start(*arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-m", "vcuda", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_ctrl_c_saves_what_is_learned(tmp_path, run):
    # Large enough that the fit goes on for seconds after its first line.
    assert run("simulate", "-o", tmp_path, "--rows", 2000, "--test-rows", 5).code == 0
    with start("fit", tmp_path / "train.csv", "-o", tmp_path / "run", "--preset", "paper") as process:
        heard = next(line for line in process.stderr if "% done" in line)
        assert "left" in heard
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "Status: interrupted" in out
    posterior = vcuda.Posterior.load(tmp_path / "run")
    assert posterior.status.code == "interrupted"
    # What was worked out stays, so that the fit can be finished.
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES | {"checkpoint"}


@pytest.fixture
def leaving(monkeypatch):
    """Leaving at once ends the command, and not the process of the tests."""

    def end(text):
        sys.stderr.write(text)
        sys.exit(interrupts.EXIT_CODE)

    monkeypatch.setattr(interrupts, "end", end)


def interrupting(*reports: int):
    """A stand-in for the progress bar that presses Ctrl-C at the given checks; 0 is before the first report."""

    @contextmanager
    def shown_progress(console, *, quiet, doing="Fitting"):
        count = 0

        def show(progress):
            nonlocal count
            # Slow machines report between checks as well.
            if doing != "Fitting" or progress.done != int(progress.done):
                return
            count += 1
            for _ in range(reports.count(count)):
                signal.raise_signal(signal.SIGINT)

        if 0 in reports and doing == "Fitting":
            signal.raise_signal(signal.SIGINT)
        yield show

    return shown_progress


def test_ctrl_c_before_the_first_report_saves_nothing(run, simulated, tmp_path, monkeypatch, leaving):
    monkeypatch.setattr(fitting, "shown_progress", interrupting(0))
    before = signal.getsignal(signal.SIGINT)
    answer = run("fit", simulated / "train.csv", "-o", tmp_path / "run", "--quiet")
    assert answer == (130, "", "vcuda: stopped before there was a result; nothing was saved.\n")
    assert not (tmp_path / "run").exists()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_ctrl_c_between_reports_ends_the_fit(run, simulated, tmp_path, monkeypatch, leaving):
    monkeypatch.setattr(fitting, "shown_progress", interrupting(2))
    trained = ("--engine", "straight-through", "--model", "linear")
    answer = run("fit", simulated / "train.csv", "-o", tmp_path / "run", "--json", *trained)
    assert answer.code == 130
    assert json.loads(answer.out)["status"] == "interrupted"
    posterior = vcuda.Posterior.load(tmp_path / "run")
    assert len(posterior.trace["validation_loss"]) == 2


def test_ctrl_c_twice_between_reports_says_that_nothing_was_saved(run, simulated, tmp_path, monkeypatch, leaving):
    def fit_table(table, call):
        call.progress(vcuda.Progress(1, 2, "half"))
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(vcuda.fitting.fit, "fit_table", fit_table)
    answer = run("fit", simulated / "train.csv", "-o", tmp_path / "run", "--quiet")
    assert answer == (130, "", "vcuda: stopped before there was a result; nothing was saved.\n")
    assert not (tmp_path / "run").exists()


def test_ctrl_c_while_the_result_is_saved_waits_for_it(run, simulated, tmp_path, monkeypatch, leaving):
    save = vcuda.Posterior.save

    def interrupted(posterior, folder):
        signal.raise_signal(signal.SIGINT)
        save(posterior, folder)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(vcuda.Posterior, "save", interrupted)
    answer = run("fit", simulated / "train.csv", "-o", tmp_path / "run", "--quiet")
    assert answer == (130, "", f"vcuda: stopped; the result so far is saved in {tmp_path / 'run'}.\n")
    assert vcuda.Posterior.load(tmp_path / "run").status.code == "ok"


def test_ctrl_c_while_the_report_is_written_says_that_the_result_is_saved(
    run, simulated, tmp_path, monkeypatch, leaving
):
    def report(posterior, path, **options):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(vcuda.Posterior, "report", report)
    answer = run("fit", simulated / "train.csv", "-o", tmp_path / "run", "--quiet")
    assert answer == (130, "", f"vcuda: stopped; the result so far is saved in {tmp_path / 'run'}.\n")
    assert vcuda.Posterior.load(tmp_path / "run").status.code == "ok"


def processor_seconds(process: subprocess.Popen) -> float:
    """What a process has used so far; what the machine does beside it does not count."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time is read from /proc")
@pytest.mark.parametrize("seconds", [0.1, 0.4, 0.9, 1.6, 2.4])
def test_ctrl_c_at_any_moment_is_one_true_sentence(seconds, tmp_path):
    folder = tmp_path / "run"
    with start("fit", "sachs", "-o", folder, "--quiet") as process:
        while process.poll() is None and processor_seconds(process) < seconds:
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    sentences = [line for line in err.splitlines() if line.startswith("vcuda: stopped")]
    assert "Traceback" not in err
    assert out == ""
    if process.returncode == 0:  # it had ended before
        assert sentences == []
        assert (folder / "config.json").exists()
        return
    assert process.returncode == 130
    assert len(sentences) == 1
    assert ("nothing was saved" in sentences[0]) == (not (folder / "config.json").exists())
    assert ("is saved in" in sentences[0]) == (folder / "config.json").exists()
    if "nothing was saved." in sentences[0]:
        assert not folder.exists()


INTERRUPTED_IMPORT = """
import runpy, signal, sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["vcuda", "datasets"]
{entry}
"""
ENTRIES = {
    "python -m": "runpy.run_module('vcuda', run_name='__main__', alter_sys=True)",
    "console script": "from vcuda.__main__ import main; sys.exit(main())",
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("module", ["vcuda.interrupts", "vcuda.cli", "typer", "vcuda.data.library"])
def test_ctrl_c_while_the_program_is_imported_is_one_sentence(entry, module):
    code = INTERRUPTED_IMPORT.format(module=module, entry=ENTRIES[entry])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"vcuda: {interrupts.NOTHING_SAVED}\n"


def test_ctrl_c_is_answered_before_anything_is_imported():
    code = (
        "import os, sys; before = set(sys.modules); import vcuda.__main__; print(*set(sys.modules) - before); "
        "import signal; assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler"
    )
    here = os.environ | {"PYTHONPATH": str(Path(vcuda.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=here)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["vcuda", "vcuda.__main__"]


# What is shown ----------------------------------------------------------------------------------------------


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere():
    from vcuda.infer.progress import Progress

    def shown(**options) -> str:
        console = Console(file=io.StringIO(), width=120, **options)
        with terminal.shown_progress(console, quiet=False) as show:
            for done in range(1, 41):
                show(Progress(done, 40, "learning [b]"))
        return console.file.getvalue()

    bar = shown(force_terminal=True, color_system=None)
    assert "100%" in bar
    assert "left; learning [b]" in bar

    lines = shown(force_terminal=False).splitlines()
    assert lines[0] == "Preparing ..."
    # The pace is known from the first tenth on, and then there is one line a tenth.
    assert [line.split("%")[0] for line in lines[1:]] == [f"Fitting: {share}" for share in range(10, 101, 10)]
    assert all(line.endswith("left; learning [b]") for line in lines[1:])


def test_a_reader_that_leaves_is_no_error():
    with start("datasets") as process:
        process.stdout.close()
        err = process.stderr.read()
    assert err == ""


@pytest.mark.slow
def test_an_encoding_without_the_names_is_no_error(tmp_path):
    pd.DataFrame(np.eye(6)[:, :3] + np.arange(6)[:, None], columns=["größe", "länge", "höhe"]).to_csv(
        tmp_path / "t.csv", index=False
    )
    done = subprocess.run(
        [sys.executable, "-m", "vcuda", "check", str(tmp_path / "t.csv")],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
    )
    assert done.returncode == 0
    assert rb"gr\xf6\xdfe" in done.stdout


# The other commands -----------------------------------------------------------------------------------------


def test_check(run, simulated, tmp_path):
    answer = run("check", simulated / "train.csv")
    assert answer.code == 0
    assert "64 rows, 3 columns" in answer.out
    table = pd.read_csv(simulated / "train.csv")
    line = next(line for line in answer.out.splitlines() if line.split()[:1] == [table.columns[1]])
    column = table.iloc[:, 1]
    numbers = (column.mean(), column.std(ddof=0), column.min(), column.max())
    assert line.split()[1:] == ["number", "numbers", "with", "decimals", *(f"{number:.4g}" for number in numbers)]
    assert "It can be used, nothing odd was found." in answer.out

    wide = np.random.default_rng(0).normal(size=(20, 210))
    wide[:, 7] = wide[:, 3]
    pd.DataFrame(wide, columns=[f"gene{k}" for k in range(210)]).to_csv(tmp_path / "wide.csv", index=False)
    answer = run("check", tmp_path / "wide.csv")
    assert answer.code == 0
    assert "10 more columns" in answer.out
    assert "Note: Columns 'gene3' and 'gene7' hold the same values" in answer.out
    assert "with the notes above in mind" in answer.out

    answer = run("check", tmp_path / "nothing.csv")
    assert answer.code == 2
    assert "no such file" in answer.err


def test_check_reads_a_folder_block_by_block(run, simulated, tmp_path):
    table = pd.read_csv(simulated / "train.csv")
    for part, rows in (("a", table[:40]), ("b", table[40:])):
        rows.to_csv(tmp_path / f"{part}.csv", index=False)
    whole, parts = run("check", simulated / "train.csv"), run("check", tmp_path)
    assert parts.code == 0
    assert "64 rows, 3 columns, read block by block." in parts.out
    assert all(line in whole.out for line in parts.out.splitlines() if line.split()[:1] == [table.columns[1]])


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_sample(ending, run, fitted, tmp_path):
    path = tmp_path / f"graphs.{ending}"
    assert run("sample", fitted, "-n", 30, "--seed", 5, "-o", path).code == 0
    graphs = vcuda.Posterior.load(fitted).sample(30, seed=5)
    if ending == "npz":
        with np.load(path, allow_pickle=False) as stored:
            samples = vcuda.GraphSamples(
                names=tuple(stored["names"].tolist()),
                **{name: stored[name] for name in ("offsets", "sources", "targets", "weights")},
            )
        np.testing.assert_array_equal(samples.dense(), graphs.dense())
    else:
        with open(path, newline="") as file:
            header, *lines = csv.reader(file)
        assert header == ["sample", "source", "target"]
        position = {name: k for k, name in enumerate(graphs.names)}
        dense = np.zeros((30, 3, 3), dtype=bool)
        for k, source, target in lines:
            dense[int(k), position[source], position[target]] = True
        np.testing.assert_array_equal(dense, graphs.dense())
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_sample_refuses(run, fitted, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for run_folder, output, reason in (
        (tmp_path, "graphs.csv", "is not a run of vcuda"),
        (fitted, "graphs.txt", ".csv or .npz"),
        (fitted, "folder.csv", "is a folder"),
        (fitted, "nowhere/graphs.csv", "does not exist"),
    ):
        answer = run("sample", run_folder, "-o", tmp_path / output)
        assert answer.code == 2
        assert answer.out == ""
        assert reason in answer.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.csv"]


@pytest.mark.slow
def test_evaluate(run, fitted, simulated):
    arguments = ("evaluate", fitted, "--truth", simulated / "graph.csv", "--seed", 2, "--samples", 50)
    posterior = vcuda.Posterior.load(fitted)
    truth = vcuda.read_graph(simulated / "graph.csv", posterior.names)
    numbers = vcuda.evaluate(posterior, truth, samples=50, seed=2)
    spoken = json.loads(run(*arguments, "--json").out)
    assert spoken == {name: None if np.isnan(value) else value for name, value in numbers.items()}

    with_test = (*arguments, "--test", simulated / "test.csv")
    numbers |= posterior.held_out(simulated / "test.csv", seed=2)
    assert json.loads(run(*with_test, "--json").out) == numbers

    heard = run(*with_test)
    assert heard.code == 0
    assert numbers.keys() == runs.MEANINGS.keys() - {"accuracy"}  # which is for categories
    for name, value in numbers.items():
        assert any(
            line.startswith(f" {name.replace('_', ' ')} ") and f" {value:.4g} " in line
            for line in heard.out.splitlines()
        )


def test_evaluate_refuses(run, fitted, simulated, tmp_path):
    (tmp_path / "graph.csv").write_text("source,target\nX1,Y\n")
    for truth, reason in (
        ("sachs", "differ in"),
        (tmp_path / "graph.csv", "'Y'"),
        ("nothing.csv", "no such file"),
    ):
        answer = run("evaluate", fitted, "--truth", truth)
        assert answer.code == 2
        assert answer.out == ""
        assert reason in answer.err
    answer = run("evaluate", fitted, "--truth", simulated / "graph.csv", "--test", "sachs")
    assert answer.code == 2
    assert "column" in answer.err


def test_simulate(run, tmp_path):
    options = ("--graph", "sf", "--nodes", 6, "--edges", 6, "--mechanism", "mlp", "--noise", "unequal")
    more = ("--noise-family", "laplace", "--rows", 40, "--test-rows", 30, "--seed", 7)
    folder = tmp_path / "a" / "b"
    assert run("simulate", "-o", folder, *options, *more).code == 0
    drawn = vcuda.simulate(
        "sf",
        nodes=6,
        edges=6,
        mechanism="mlp",
        noise="unequal",
        noise_family="laplace",
        rows=40,
        test_rows=30,
        seed=7,
    )
    assert {path.name for path in folder.iterdir()} == {"train.csv", "test.csv", "graph.csv"}
    for name, part in (("train", drawn.train), ("test", drawn.test)):
        table = vcuda.as_dataset(folder / f"{name}.csv")
        assert table.names == part.names
        np.testing.assert_array_equal(table.values, part.values)
    np.testing.assert_array_equal(vcuda.read_graph(folder / "graph.csv", drawn.train.names), drawn.graph)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("mixed", "mixed"),
        ("count", "count"),
        ("number,label,ordered", ["number", "label", "ordered"]),
        ("X1=yes/no, X3=label", {"X1": "yes/no", "X3": "label"}),
    ],
)
def test_simulate_takes_kinds_and_shapes(said, meant, run, tmp_path):
    shape = {"noise_family": "two-humped", "spread": "causes", "outliers": 0.1, "rounded": 0.5}
    options = [word for name, value in shape.items() for word in (f"--{name.replace('_', '-')}", value)]
    sizes = ("--nodes", 3, "--edges", 3, "--rows", 60, "--test-rows", 5)
    assert run("simulate", "-o", tmp_path, *sizes, "--kinds", said, *options).code == 0
    drawn = vcuda.simulate("er", nodes=3, edges=3, rows=60, test_rows=5, kinds=meant, **shape)
    written = pd.read_csv(tmp_path / "train.csv")
    pd.testing.assert_frame_equal(written, drawn.train.to_frame(), check_dtype=False, check_categorical=False)


def test_simulate_refuses(run, tmp_path):
    for kinds, message in (
        ("X1=label,count", "expected COLUMN=KIND"),
        ("grade", "one of number, count"),
        ("X99=count", "X99"),
    ):
        answer = run("simulate", "-o", tmp_path / "bad", "--kinds", kinds)
        assert answer.code == 2
        assert message in answer.err
    assert run("simulate", "-o", tmp_path / "bad", "--nodes", 1).code == 2
    assert not (tmp_path / "bad").exists()
    (tmp_path / "train.csv").write_text("mine")
    answer = run("simulate", "-o", tmp_path)
    assert answer.code == 2
    assert "already holds train.csv" in answer.err
    assert (tmp_path / "train.csv").read_text() == "mine"
    answer = run("simulate", "-o", tmp_path / "train.csv")
    assert answer.code == 2
    assert "is a file" in answer.err


def test_datasets(run):
    answer = run("datasets")
    assert answer.code == 0
    assert "853 rows, 11 columns: Raf" in answer.out
    assert "Licence: MIT" in answer.out


def test_sachs_needs_no_file(run):
    answer = run("check", "sachs")
    assert answer.code == 0
    assert "sachs: 853 rows, 11 columns." in answer.out
