"""``import vcuda`` is light, its public names are there, and imports in the package point one way only."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import vcuda
from vcuda.models import FAMILIES

ROOT = Path(vcuda.__file__).parent
# Each may import from itself and from what stands above it, never from its neighbours on the same line.
LAYERS = [
    {"errors", "interrupts", "memory"},
    {"arguments", "specs", "graphs", "deprecation", "machine_code"},
    {"ancestral"},
    {"data"},
    {"dags", "models"},
    {"posterior"},
    {"infer", "baselines"},
    {"cluster"},
    {"checks"},
    {"fitting"},
    {"summaries", "metrics"},
    {"outputs", "estimator"},
    {"app"},
    {"cli"},
    {"__main__"},
]
# What some may import all the same. Baselines: what an engine is and where it is found, how programs are compiled, on
# which devices, how generators become arrays. A posterior: the description of the options that it was made with, and
# the findings of model checks, both of which import nothing heavy themselves.
ALSO_ALLOWED = {
    "baselines": tuple(
        f"vcuda.infer.{name}" for name in ("engine.", "method.", "compilation", "devices", "checkpoint.")
    ),
    "posterior": ("vcuda.fitting.spec", "vcuda.checks.findings."),
}
# A posterior answers questions by what stands above it: one file may import that, inside its methods alone.
WHEN_ASKED = {"posterior/posterior.py": ("vcuda.summaries.", "vcuda.outputs.", "vcuda.fitting.checking.")}
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
JAX_LIVES_IN = {"dags", "models", "infer", "baselines"}
RUN = str(Path(__file__).parent / "fixtures" / "run-format-1" / "exact-linear")
HEAVY = ("jax", "pandas", "scipy", "sklearn", "numpy", "pyarrow", "matplotlib")


def imported_by(path: Path, *, at_top: bool = False) -> set[str]:
    """Full names of all that a file imports, inside functions too unless only the top is asked for."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in tree.body if at_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    here = part_of(path)
    assert here in RANK, f"{here} has no place in the layers"
    for name in imported_by(path):
        if name.split(".")[0] != "vcuda":
            continue
        if name.startswith(ALSO_ALLOWED.get(here, ())):
            continue
        lazily = WHEN_ASKED.get(path.relative_to(ROOT).as_posix())
        if lazily and name.startswith(lazily) and name not in imported_by(path, at_top=True):
            continue
        there = name.split(".")[1]
        assert there in RANK, f"{path.name} imports {name}: import it from the module that defines it"
        assert there == here or RANK[there] < RANK[here], f"{here} must not import {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_jax_stays_in_its_layers(path):
    if part_of(path) not in JAX_LIVES_IN:
        assert not {name for name in imported_by(path, at_top=True) if name.split(".")[0] == "jax"}


def test_engines_import_no_family():
    """A new family must not need a line in an engine: what engines must know of a score is a trait of all of them."""
    homes = (*(f"{home}." for home in FAMILIES._homes.values()), "vcuda.models.functional.")
    # The protocol of models that are trained by gradient.
    allowed = "vcuda.models.functional.base."
    for path in MODULES:
        if part_of(path) == "infer":
            found = {name for name in imported_by(path) if name.startswith(homes) and not name.startswith(allowed)}
            assert not found, f"{path.relative_to(ROOT)} imports {found}"


def test_engines_do_not_ask_what_kind_of_score_they_have():
    for path in MODULES:
        if part_of(path) != "infer":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        models = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vcuda.models")
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                assert not asked & models, f"{path.relative_to(ROOT)}:{node.lineno} asks for {asked & models}"


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has imported after some code."""
    report = "import sys; sys.stderr.write(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_import_vcuda_is_light():
    assert modules_after("import vcuda; dir(vcuda)").isdisjoint(HEAVY)


def test_names_of_models_are_light():
    assert modules_after("from vcuda.models import MODEL_NAMES").isdisjoint(HEAVY)


def test_help_is_light():
    modules = modules_after("from vcuda.cli import main\ntry: main(['fit', '--help'])\nexcept SystemExit: pass")
    assert "typer" in modules
    assert modules.isdisjoint(HEAVY)


def modules_of(*arguments: object) -> set[str]:
    """The top-level modules that a command has imported when it ends."""
    given = [str(argument) for argument in arguments]
    return modules_after(f"from vcuda.cli import main\ntry: main({given!r})\nexcept SystemExit: pass")


@pytest.mark.parametrize(
    "arguments",
    [
        ["fti"],
        ["fit", "--engin", "exact"],
        ["fit", "nowhere.csv"],
        ["check", "nowhere.csv"],
        ["edges", "nowhere"],
        ["effect", RUN, "a", "zz"],
    ],
    ids=" ".join,
)
def test_mistakes_are_answered_without_heavy_imports(arguments):
    assert modules_of(*arguments).isdisjoint(HEAVY)


def test_a_column_that_is_not_there_is_refused_without_what_fits(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1.5,2\n2,3.5\n4,4\n" * 9)
    for option in (["--exclude", "c"], ["--target", "c"], ["--forbid", "a -> c"]):
        modules = modules_of("fit", tmp_path / "t.csv", *option)
        assert modules.isdisjoint({"jax", "pandas", "scipy", "sklearn", "matplotlib"})


def test_questions_to_a_run_of_a_linear_model_need_no_jax():
    assert "jax" not in modules_of("edges", RUN)


@pytest.mark.slow
def test_data_needs_no_jax():
    code = "import vcuda; vcuda.as_dataset('sachs'); vcuda.simulate('er', nodes=3, edges=2, rows=5, test_rows=5)"
    assert "jax" not in modules_after(code)


@pytest.mark.slow
def test_public_names_resolve_and_are_told_to_type_checkers():
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen.pop("baselines") == "vcuda"
    assert seen.pop("plots") == "vcuda.outputs"
    assert seen == vcuda._HOME_OF
    for name in vcuda.__all__:
        assert getattr(vcuda, name).__name__ == name
    assert set(vcuda.__all__) < set(dir(vcuda))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'fti'"):
        _ = vcuda.fti


def test_version_is_that_of_the_project():
    project = ROOT.parents[1] / "pyproject.toml"
    assert vcuda.__version__ == tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
