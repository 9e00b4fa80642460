"""The page that sets vcuda beside other libraries: every yes has its test, every row has all its cells."""

import ast
import re
from pathlib import Path

import pytest

import vcuda

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "comparison.md"
TEXT = PAGE.read_text(encoding="utf-8")
LIBRARIES = ["DiBS", "BayesDAG", "DDS", "GraN-DAG", "MCSL", "BiDAG", "sumu"]
LIBRARIES += ["causal-learn", "pgmpy", "gCastle", "lingam", "AVICI", "DoWhy"]
TEST_LINK = re.compile(r'\[(\w+)\]\(\.\./tests/(test_\w+\.py) "(test_\w+)"\)')


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_of_features() -> dict[str, list[str]]:
    """The cells of every row below a header that starts with "feature", by the name of the feature."""
    rows: dict[str, list[str]] = {}
    inside = False
    for line in TEXT.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith("| feature "):
            inside = True
            assert cells(line) == ["feature", "vcuda", *LIBRARIES]
        elif inside and not line.startswith("|---"):
            feature, *found = cells(line)
            assert feature not in rows
            rows[feature] = found
    return rows


ROWS = rows_of_features()


def functions_of(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_there_are_four_tables_of_features():
    assert TEXT.count("| feature | vcuda |") == 4
    assert len(ROWS) > 35


@pytest.mark.parametrize("feature", ROWS)
def test_a_row_has_a_cell_for_every_library(feature):
    ours, *others = ROWS[feature]
    assert len(others) == len(LIBRARIES)
    assert set(others) <= {"yes", "partly", "no", "?"}
    assert re.match(r"no$|\[(yes|partly)\]", ours)
    # Nothing but links to tests: a yes without one would be left over.
    assert TEST_LINK.sub("", ours).strip() in ("", "no")


@pytest.mark.parametrize(("file", "test"), sorted({link.groups()[1:] for link in TEST_LINK.finditer(TEXT)}))
def test_a_link_names_a_test_that_exists(file, test):
    assert test in functions_of(file)


def test_every_link_to_a_test_names_it():
    assert len(TEST_LINK.findall(TEXT)) == TEXT.count("../tests/")


def test_links_to_pages_and_sections_lead_somewhere():
    for page in re.findall(r"\]\((\w[\w-]*\.md)\)", TEXT):
        assert (PAGE.parent / page).exists(), page
    headings = {re.sub(r"[^\w-]", "", line[3:].lower().replace(" ", "-")) for line in re.findall("^## .*", TEXT, re.M)}
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= headings


@pytest.mark.parametrize("feature", [feature for feature, row in ROWS.items() if "partly" in " ".join(row)])
def test_partly_is_explained_for_every_library(feature):
    note = re.search(rf"^- \*{re.escape(feature)}\*: (.*?)(?=^- |^$)", TEXT, re.M | re.S)
    assert note, feature
    ours, *others = ROWS[feature]
    partly = [name for name, cell in zip(LIBRARIES, others, strict=True) if cell == "partly"]
    partly += ["vcuda"] * ("partly" in ours)
    assert [name for name in partly if name not in note[1]] == []


def test_what_was_looked_at_is_told_for_every_library():
    seen = TEXT[TEXT.index("## What was looked at") :]
    assert [cells(line)[0] for line in seen.splitlines() if line.startswith("| ")] == ["library", *LIBRARIES]


@pytest.mark.slow
def test_two_hundred_columns_are_fitted():
    """With 300 rows a weight of 0.5 at unit noise is 8 standard errors from zero, so that nothing is left in doubt."""
    truth = vcuda.simulate("er", nodes=200, edges=200, rows=300, test_rows=1, seed=0)
    posterior = vcuda.fit(truth.train, model="linear", noise="equal", engine="orders", seed=0)
    assert posterior.status.code == "ok"
    assert posterior.sample(20, seed=0).all_acyclic()
    assert vcuda.evaluate(posterior, truth.graph)["average_precision"] > 0.99
    # The prior expects 200 edges as well. Weak false edges, each far below 1/2, may add up to a tenth of them.
    assert posterior.edge_probabilities.to_numpy().sum() == pytest.approx(200, abs=20)
