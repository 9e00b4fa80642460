"""``--json``: every command has it, and prints what the schema that comes with the package says.

``python tests/test_cli_json.py`` writes the tables of fields in docs/command-line.md.
"""

import json
import re
from importlib.resources import files
from pathlib import Path

import jsonschema
import pandas as pd
import pytest
import typer

import vcuda
from vcuda.cli import app, main

SCHEMA = json.loads(files("vcuda.cli").joinpath("schema.json").read_text(encoding="utf-8"))
PAGE = Path(__file__).parent.parent / "docs" / "command-line.md"
RUNS = Path(__file__).parent / "fixtures" / "run-format-1"
COMMANDS = typer.main.get_command(app).commands
# It serves until it is stopped, and prints the address.
WITHOUT_JSON = {"app"}


def described(command: str) -> dict[str, dict]:
    """The fields of a command, also where it has several answers."""
    found = SCHEMA["$defs"][command]
    parts = [SCHEMA["$defs"][part["$ref"].rpartition("/")[2]] for part in found.get("oneOf", ())] or [found]
    return {name: one for part in parts for name, one in part.get("properties", {}).items()}


def fields_of(command: str) -> str:
    """The fields of a command as the page lists them."""
    about = SCHEMA["$defs"][command].get("description", "")
    rows = [f"| `{name}` | {one.get('description', '')} |" for name, one in described(command).items()]
    table = ["| field | meaning |", "|---|---|", *rows] if rows else []
    return "\n".join(
        [f"#### `vcuda {command} --json`", "", *([about, ""] if about else []), *table, *([""] if table else [])]
    )


def page_with_fields(text: str) -> str:
    shown = "\n".join(fields_of(command) for command in COMMANDS if command not in WITHOUT_JSON)
    return re.sub(
        r"(<!-- fields -->\n).*?(\n<!-- end of fields -->)", lambda m: f"{m[1]}{shown}{m[2]}", text, flags=re.S
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, its truth, and a run of three columns."""
    made = tmp_path_factory.mktemp("json")
    for line in (
        ["simulate", "-o", f"{made}/sim", "--nodes", "3", "--edges", "2", "--rows", "64", "--test-rows", "20"],
        ["fit", f"{made}/sim/train.csv", "-o", f"{made}/run", "--model", "linear", "-q", "--no-report"],
    ):
        with pytest.raises(SystemExit) as left:
            main(line)
        assert left.value.code == 0
    return made


SLOW = ("fit", "report")
LINES = [
    ("init", ["new.toml"], "init sim/train.csv -o new.toml"),
    ("init", ["empty.toml"], "init -o empty.toml"),
    ("fit", [], "fit sim/train.csv -o again --model linear"),
    ("check", [], "check sim/train.csv"),
    ("check", [], "check bad.csv"),
    ("check", [], "check run"),
    ("edges", [], "edges run"),
    ("edges", [], "edges run --consensus"),
    ("paths", [], "paths run X1 X2"),
    ("drivers", [], "drivers run X3"),
    ("effect", [], "effect run X1 X2"),
    ("effect", [], "effect LABELS age <response>"),
    ("effect", [], "effect CURVES age <response> --draws 5"),
    ("sensitivity", [], "sensitivity run X1 X2"),
    ("why", [], "why run X1 X2"),
    ("next", [], "next run"),
    ("targets", [], "targets sites"),
    ("counterfactual", [], "counterfactual run sim/test.csv --row 2 --do X1=0 --draws 20"),
    ("attribute", [], "attribute run sim/test.csv X3 --draws 20"),
    ("compare", [], "compare run run"),
    ("report", ["page.html"], "report run -o page.html --curves 0"),
    ("export", ["graph.csv"], "export run -o graph.csv"),
    ("sample", ["graphs.csv"], "sample run -n 5 -o graphs.csv"),
    ("evaluate", [], "evaluate run --truth sim/graph.csv --test sim/test.csv --samples 10"),
    ("simulate", ["more"], "simulate -o more --kinds mixed --rows 10 --test-rows 5"),
    ("datasets", [], "datasets"),
]


@pytest.mark.parametrize(
    ("command", "made", "line"),
    [pytest.param(*each, marks=[pytest.mark.slow] * (each[0] in SLOW), id=each[2]) for each in LINES],
)
def test_a_command_prints_what_the_schema_says(command, made, line, folder, monkeypatch, run):
    monkeypatch.chdir(folder)
    if command == "targets":
        table = pd.read_csv("sim/train.csv").assign(site=["a", "b"] * 32)
        vcuda.fit(table, contexts="site", model="linear", checks=False).save("sites")
    Path("bad.csv").write_text("a,b\n" + "1,2\n2,3\n" * 9 + "2,inf\n")
    runs = {"LABELS": RUNS / "orders-discrete", "CURVES": RUNS / "exact-gp"}
    answer = run(*(runs.get(word, word) for word in line.split()), "--json")
    printed = json.loads(answer.out)
    schema = {"$ref": f"#/$defs/{command}", "$defs": SCHEMA["$defs"], "$schema": SCHEMA["$schema"]}
    jsonschema.Draft202012Validator(schema).validate(printed)
    # What is printed is documented too.
    assert command == "evaluate" or set(printed) <= set(described(command))
    assert all(Path(name).exists() for name in made)


def test_the_schema_is_one_and_refuses_what_is_not_described():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    schema = {"$ref": "#/$defs/edges", "$defs": SCHEMA["$defs"]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"rule": "", "edges": [{"source": "a", "target": "b", "probability": 2}]}, schema)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_its_schema(command):
    if command not in WITHOUT_JSON:
        assert any("--json" in one.opts for one in COMMANDS[command].params)
        assert command in SCHEMA["$defs"]


def test_every_command_is_tried():
    assert {command for command, _, _ in LINES} >= set(COMMANDS) - WITHOUT_JSON


def test_the_page_lists_the_fields():
    text = PAGE.read_text(encoding="utf-8")
    assert "<!-- fields -->" in text
    assert page_with_fields(text) == text, "write them with: python tests/test_cli_json.py"


if __name__ == "__main__":
    PAGE.write_text(page_with_fields(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
