"""``vcuda.toml``: written by ``vcuda init``, read by ``fit`` and ``check``; completion; examples in the help."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

import vcuda
import vcuda.fitting.fit
from vcuda.cli import app
from vcuda.cli.config import PLACES, read_config
from vcuda.fitting.spec import OPTIONS, FitSpec
from vcuda.posterior.run_folders import variables_of

COMMANDS = typer.main.get_command(app).commands
RUN = Path(__file__).parent / "fixtures" / "run-format-1" / "exact-linear"


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A folder with a table of several kinds, in which commands run."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = 64
    pd.DataFrame(
        {
            "customer_id": [f"C{k:03}" for k in range(rows)],
            'a "b"': rng.normal(size=rows),
            "grade": rng.integers(1, 6, rows),
            "plan": rng.choice(["basic", "plus", "pro"], rows),
        }
    ).to_csv("table.csv", index=False)
    return tmp_path / "table.csv"


@pytest.fixture
def asked(monkeypatch):
    """Records what the command asks of ``fit``, which then refuses: options can be tested without a fit."""
    seen: dict = {}

    def fit_table(data, call):
        seen.update(vars(call), names=data.names)
        raise vcuda.ConfigError("enough")

    monkeypatch.setattr(vcuda.fitting.fit, "fit_table", fit_table)
    return seen


def test_the_file_has_every_option_and_says_nothing_until_it_is_changed(table, run, asked):
    assert run("init", "table.csv").code == 0
    text = Path("vcuda.toml").read_text(encoding="utf-8")
    stated = tomllib.loads(text)
    assert stated == {"table": "table.csv", "output": "run", "kinds": {}, "knowledge": {}}
    for name in (*PLACES, *OPTIONS):
        assert re.search(rf"^(# )?{name} = |^\[{name}\]", text, re.M), name
    assert "customer_id" in text, "what was left out"
    assert run("fit").code == 2
    assert asked.pop("names") == ('a "b"', "grade", "plan")
    plain = FitSpec()
    assert all(asked[name] == getattr(plain, name) for name in OPTIONS if name not in ("knowledge", "kinds"))
    assert not asked["knowledge"]
    assert not asked["kinds"]


def test_without_its_marks_the_file_is_toml_of_known_options(table, run):
    run("init", "table.csv")
    text = Path("vcuda.toml").read_text(encoding="utf-8")
    free = re.sub(r"^# (?=[\w\"][^ ]*(?: \\\"b\\\"\")? = )", "", text, flags=re.M).replace(
        'knowledge = "known.toml"', ""
    )
    found = tomllib.loads(free)
    assert set(found) == {*PLACES, *OPTIONS}
    assert found["kinds"] == {'a "b"': "number", "grade": "ordered", "plan": "label"}
    assert vcuda.Knowledge.from_dict(found["knowledge"]).sinks
    for name, value in found.items():
        if name in OPTIONS and name != "knowledge":
            assert OPTIONS[name].is_plain(value), name


def test_a_config_counts_where_the_command_line_says_nothing(table, run, asked):
    lines = ['table = "table.csv"', "seed = 7", 'exclude = ["plan"]', 'model = "linear"', "[knowledge]"]
    Path("vcuda.toml").write_text("\n".join([*lines, """forbidden = [["grade", 'a "b"']]"""]))
    answer = run("fit", "--seed", "9", "--forbid", 'a "b" -> grade')
    assert "come from vcuda.toml: seed, exclude, model, knowledge" in answer.err
    assert asked["seed"] == 9
    assert asked["model"] == "linear"
    assert "plan" not in asked["names"]
    assert asked["knowledge"].forbidden == (("grade", 'a "b"'), ('a "b"', "grade"))


def test_a_config_elsewhere_names_its_own_files(table, run, asked):
    Path("deep").mkdir()
    Path("deep/known.toml").write_text('roots = ["grade"]\n')
    Path("deep/mine.toml").write_text(
        'table = "../table.csv"\noutput = "r"\nknowledge = "known.toml"\nmissing_values = [-999]\n'
    )
    found = read_config(Path("deep/mine.toml"))
    assert (found.table, found.output) == ("deep/../table.csv", Path("deep/r"))
    run("fit", "--config", "deep/mine.toml")
    assert asked["knowledge"].roots == ("grade",)
    assert asked["missing_values"] == ("-999",)


def test_a_config_about_another_table_is_not_used(table, run, asked):
    Path("vcuda.toml").write_text('table = "other.csv"\nseed = 7\n')
    assert "not used for table.csv" in run("fit", "table.csv").err
    assert asked["seed"] == 0
    run("fit", "table.csv", "--config", "vcuda.toml")
    assert asked["seed"] == 7


def test_check_takes_the_options_of_the_table(table, run):
    Path("vcuda.toml").write_text('exclude = ["plan"]\nkinds = {grade = "number"}\n')
    answer = run("check", "table.csv", "--json")
    assert [line for line in answer.out.splitlines() if '"plan"' in line] == []
    assert '"kind": "number"' in answer.out.split("grade")[1].split("}")[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sed = 1", "no option 'sed' (did you mean 'seed'?)"),
        ("seed = 'x'", "seed must be a whole number, not 'x'"),
        ("seed = -1", "seed must be a whole number from 0"),
        ("columns = 'a'", "columns must be a list of texts in quotes"),
        ("model = 'linaer'", "model must be one of auto"),
        ("table = 3", "table must be a text in quotes"),
        ("knowledge = 3", "knowledge must be a section, or the path"),
        ("[knowledge]\nroot = ['a']", "knowledge has no key 'root'"),
        ("seed = ", "vcuda.toml: this is not TOML"),
        ("[kinds]\ngrade = 3", "kinds must be a section with a text in quotes for each column"),
    ],
)
def test_what_a_config_cannot_say(table, text, words, run):
    Path("vcuda.toml").write_text(text)
    answer = run("fit", "table.csv")
    assert answer.code == 2
    assert words in answer.err


def test_init_replaces_nothing_and_keeps_what_is_given(table, run):
    assert run("init", "table.csv", "--exclude", "plan", "--kind", "grade=number").code == 0
    found = tomllib.loads(Path("vcuda.toml").read_text(encoding="utf-8"))
    assert found["exclude"] == ["plan"]
    assert found["kinds"] == {"grade": "number"}
    again = run("init", "table.csv")
    assert again.code == 2
    assert "is there already" in again.err
    assert run("init", "-o", "no/such/place.toml").code == 2
    missing = run("fit", "table.csv", "--config", "nowhere.toml")
    assert missing.code == 2
    assert "vcuda init" in missing.err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_are_lines_that_it_takes(name):
    examples = re.findall(r"vcuda (.*)", COMMANDS[name].epilog)
    assert examples
    for line in examples:
        command, *arguments = shlex.split(line.split(", and")[0])
        assert command == name
        COMMANDS[name].make_context(name, arguments)


def completed(line: str, folder: Path) -> list[str]:
    """What a shell offers at the end of a line."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_VCUDA_COMPLETE": "complete_bash"}
    code = "import sys; sys.argv = ['vcuda']; from vcuda.__main__ import main\ntry: main()\nfinally: "
    code += "sys.stderr.write(' '.join(name for name in ('numpy', 'pandas', 'jax') if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, cwd=folder, capture_output=True, text=True, check=True
    )
    assert "pandas" not in done.stderr
    assert "jax" not in done.stderr
    return done.stdout.split("\n")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("vcuda ef", ["effect"]),
        ("vcuda fit table.csv --engine ex", ["exact"]),
        ("vcuda fit table.csv --model lin", ["linear"]),
        ("vcuda fit table.csv --exclude plan,gr", ["plan,grade"]),
        ("vcuda effect RUN a", ["age"]),
    ],
)
def test_completion(line, offered, table):
    assert "age" in variables_of(RUN)
    assert completed(line.replace("RUN", str(RUN)), table.parent)[: len(offered)] == offered
