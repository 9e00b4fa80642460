"""The page of results, made of the stored lines: what was found, the figures, the tables, what is not there."""

from __future__ import annotations

from pathlib import Path

from benchmarks.paper.figures import draw_all, pictures
from benchmarks.paper.findings import main_findings
from benchmarks.paper.lines import Results
from benchmarks.paper.tables import main_tables

DOCS = Path(__file__).parents[2] / "docs"
OPENING = """# The paper's experiments, run again

`python -m benchmarks paper --write-docs` makes this page, all its tables and its figures from the lines in
`benchmarks/results/paper.jsonl`, one a run, with its commit and versions; do not edit it. `benchmarks/paper/grid.toml`
says what is run. This page is a summary: `python -m benchmarks paper --tables` prints every table, with all measures
of every setting, and `--findings` prints a sentence for every setting.

The data sets are the paper's own, made again by its authors' seeds: 1,000 rows with as many edges as nodes (e = d),
or two or four times as many. Every method has the same sets, and all of them are reported. *Reference* competitors,
which have plain names here, do what the paper's authors ran, mistakes included; those called *fixed* do what their
own papers mean. AP (average precision) and AUC count ordered pairs of different nodes, unless *full matrix* says that
the diagonal counts as well, as in the paper. Raw columns betray the order of the nodes by their variance, which is
why the same sets are also run standardised."""
# Shown on the page; the figures of single settings are linked.
SHOWN = ("paper-sachs", "paper-time", "paper-temperature", "paper-sampling")


def written(results: Results) -> str:
    """The whole page."""
    parts = [OPENING, f"## What was found\n\n{main_findings(results)}", main_tables(results), figures(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def figures(results: Results) -> str:
    """Those that stand for all settings, and links to the others."""
    drawn = list(pictures(results))
    if not drawn:
        return ""
    large = [
        f"![{picture.caption}](figures/{picture.name}.png)\n\n{picture.caption} ([PDF](figures/{picture.name}.pdf))"
        for picture in drawn
        if picture.name in SHOWN
    ]
    linked = [
        f"[{picture.caption.partition('. ')[0]}](figures/{picture.name}.png) ([PDF](figures/{picture.name}.pdf))"
        for picture in drawn
        if picture.name not in SHOWN
    ]
    return "\n\n".join(["## Figures", *large, *([f"Of single settings: {'; '.join(linked)}."] if linked else [])])


def write(results: Results, folder: Path = DOCS) -> Path:
    """Draw the figures and write the page beside them; figures of settings that are gone are removed."""
    figures = folder / "figures"
    drawn = set(draw_all(results, figures))
    for path in figures.glob("paper-*"):
        if path not in drawn:
            path.unlink()
    page = folder / "results.md"
    page.write_text(written(results), encoding="utf-8")
    return page
