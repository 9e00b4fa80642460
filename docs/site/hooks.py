"""What MkDocs does beside rendering pages.

Pages that stand in the root of the repository join the site, links to files that are not part of it become plain text,
pages that nobody has put into the navigation find a place there, pages of the reference list every public name, and
references of docstrings (:func:`fit`) become code.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# Pages of the root of the repository, by their names here.
FROM_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}
PLACES = (("example-", "Gallery"), ("results-", "How good it is"), ("", "How to"))
MADE = re.compile(r"!?\[([^\]]+)\]\((results-[\w-]+\.md|figures/[\w-]+\.png)\)")
# The pages of the reference: a title, what they are about, and the modules whose public names they show.
ENGINES = ("exact", "orders", "variational", "straight_through")
REFERENCE = {
    "data": ("Tables and knowledge", "What goes in.", ("vcuda.data",)),
    "posterior": ("Posterior", "What comes out, and every question that it answers.", ("vcuda.posterior",)),
    "models": (
        "Models, priors and engines",
        "What `model=`, `prior=` and `engine=` take beside names.",
        ("vcuda.dags", "vcuda.models", *(f"vcuda.infer.{engine}" for engine in ENGINES)),
    ),
    "errors": ("Errors", "What can be caught.", ("vcuda.errors",)),
    "fitting": ("Fitting", "From a table to a posterior.", ("vcuda",)),
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every page to the navigation that is not there, under its own title."""
    listed = set(_pages(config.nav))
    sections = {title: pages for one in config.nav for title, pages in one.items() if isinstance(pages, list)}
    for page in sorted(Path(config.docs_dir).glob("*.md")):
        if page.name not in listed and page.name not in FROM_ROOT:
            section = next(section for prefix, section in PLACES if page.name.startswith(prefix))
            sections[section].append(page.name)
    return config


def _pages(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for one in (nav.values() if isinstance(nav, dict) else nav) for page in _pages(one)]


def reference_pages() -> dict[str, str]:
    """The pages of the reference, by name: every public name of the package, also those that are new."""
    import vcuda
    from vcuda import baselines, summaries
    from vcuda.checks import findings
    from vcuda.outputs import exports
    from vcuda.summaries import why

    shown: dict[str, list[str]] = {page: [] for page in REFERENCE}
    for home, names in vcuda._HOMES.items():
        page = next(page for page, (*_, homes) in REFERENCE.items() if home.startswith(homes))
        shown[page] += [f"{getattr(vcuda, name).__module__}.{name}" for name in names]
    pages = {page: (title, about, shown[page]) for page, (title, about, _) in REFERENCE.items()}
    answers = [getattr(summaries, name) for name in summaries.__all__] + [why.Why, findings.Checks, findings.Finding]
    pages["answers"] = (
        "Answers",
        "What the methods of `Posterior` return: the fields of each.",
        [f"{one.__module__}.{one.__name__}" for one in answers if isinstance(one, type)],
    )
    pages["baselines"] = (
        "Other methods",
        "Baselines on the same table: `engine=` takes their names, or one of these.",
        [f"{getattr(baselines, name).__module__}.{name}" for name in baselines.__all__ if name != "BASELINES"],
    )
    pages["exports"] = (
        "Exports",
        "`vcuda.outputs.exports`: edges and graphs for files and other libraries.",
        [f"{one.__module__}.{one.__name__}" for one in map(exports.__dict__.get, exports.__all__) if callable(one)],
    )
    written = {
        page: "\n".join([f"# {title}", "", about, "", *(f"::: {name}\n" for name in names)])
        for page, (title, about, names) in pages.items()
    }
    lines = ["# Reference", "", "Every public name, in the order in which data goes through them.", ""]
    lines += ["| page | names |", "|---|---|"]
    for page in ("data", "fitting", "posterior", "answers", "models", "baselines", "exports", "errors"):
        title, _, names = pages[page]
        lines.append(f"| [{title}]({page}.md) | {', '.join('`' + name.rpartition('.')[2] + '`' for name in names)} |")
    return written | {"index": "\n".join(lines) + "\n"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the pages of the root of the repository, and make those of the reference."""
    for page, text in reference_pages().items():
        files.append(File.generated(config, f"reference/{page}.md", content=text))
    for name, source in FROM_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=re.sub(r"\]\(docs/", "](", text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links into the root of the repository: pages that are here, and names of files that are not."""
    up = "../" * (page.file.src_uri.count("/"))
    for name, source in FROM_ROOT.items():
        markdown = re.sub(rf"\]\((?:\.\./)?{source}(#[\w-]+)?\)", rf"]({up}{name}\1)", markdown)
    markdown = re.sub(r'\[([^\]]+)\]\(\.\./tests/(\w+\.py) "(\w+)"\)', r'<abbr title="\2: \3">\1</abbr>', markdown)
    markdown = re.sub(r"\[([^\]]+)\]\((?:\.\./)+(?:tests|benchmarks|src|LICENSE)[^)]*\)", r"\1", markdown)
    # Results and screenshots are made by programs, and a page may be there before them.
    return MADE.sub(lambda link: link[0] if files.get_file_from_path(link[2]) else link[1], markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """References of docstrings as code."""
    return re.sub(r":(?:func|class|meth|mod|doc|attr):<code>~?([^<]*)</code>", r"<code>\1</code>", html)
