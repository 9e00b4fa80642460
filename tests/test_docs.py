"""The documentation: every page and public name has its place, notebooks run, and nothing comes from other hosts."""

import re
import runpy
from pathlib import Path

import pytest

import vcuda
from vcuda import baselines
from vcuda.outputs import exports

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))


@pytest.fixture(scope="module")
def hooks():
    pytest.importorskip("mkdocs", reason="the extra docs is not installed: pip install '.[docs]'")
    return runpy.run_path(str(DOCS / "site" / "hooks.py"))


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(hooks):
    pages = "\n".join(hooks["reference_pages"]().values())
    shown = {line.rpartition(".")[2] for line in re.findall(r"^::: (.*)$", pages, re.M)}
    assert set(vcuda.__all__) <= shown
    assert set(baselines.__all__) - {"BASELINES"} <= shown
    assert {name for name in exports.__all__ if callable(getattr(exports, name))} <= shown


def test_every_page_has_a_place_in_the_navigation(hooks):
    import yaml

    class Config:
        docs_dir = str(DOCS)
        nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]

    listed = hooks["_pages"](hooks["on_config"](Config).nav)
    assert len(set(listed)) == len(listed)
    assert {page.name for page in PAGES} <= set(listed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    # By the site, or by programs that measure and photograph: a page may be there before them.
    made = re.compile(r"(contributing|changelog|security)\.md|reference/.*|results-.*\.md|figures/.*\.png")
    for target in re.findall(
        r"\]\(([\w./-]+\.(?:md|csv|svg|png|ipynb))(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")
    ):
        assert (page.parent / target).exists() or made.fullmatch(target), target


def test_the_table_of_the_tutorial_is_the_one_to_download(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", (DOCS / "tutorial.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(compile(code[1], "tutorial", "exec"), {})
    assert Path("churn.csv").read_bytes() == (DOCS / "data" / "churn.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.network  # a kernel is a process that is spoken to over local connections
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
@pytest.mark.filterwarnings("ignore")  # of the packages that run notebooks
def test_notebooks_run(notebook):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    found = nbformat.read(notebook, as_version=4)
    assert not any(cell.get("outputs") for cell in found.cells), "outputs that are stored would grow old"
    # Raises with the traceback of the first cell that fails.
    nbclient.NotebookClient(found, timeout=300, resources={"metadata": {"path": str(notebook.parent)}}).execute()
    shown = "".join(str(one) for cell in found.cells for one in cell.get("outputs", ()))
    assert "probability" in shown
    assert "Traceback" not in shown


def test_nothing_of_the_site_comes_from_other_hosts():
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert not re.findall(r"https?://", settings)
    assert not re.findall(r"https?://", (DOCS / "site" / "style.css").read_text(encoding="utf-8"))


def test_the_pictures_are_those_of_their_program(tmp_path):
    made = runpy.run_path(str(DOCS / "site" / "pictures.py"))
    made["write_all"].__globals__["FIGURES"] = tmp_path
    made["write_all"]()
    for picture in tmp_path.iterdir():
        assert picture.read_bytes() == (DOCS / "figures" / picture.name).read_bytes()
