"""The page of results, made of the stored lines: what was found, the figures, the tables, what is not there."""

from __future__ import annotations

from pathlib import Path

from benchmarks.paper.figures import draw_all, pictures
from benchmarks.paper.findings import all_findings
from benchmarks.paper.lines import Results
from benchmarks.paper.tables import all_tables

DOCS = Path(__file__).parents[2] / "docs"
OPENING = """# The paper's experiments, run again

This page is made by `python -m benchmarks paper --write-docs` from the lines in `benchmarks/results/paper.jsonl`, one a
run, with its commit and versions; do not edit it. What was to be run stands in `benchmarks/paper/grid.toml`.

The data sets are the paper's own, made again by its authors' seeds: 1,000 rows with as many edges as nodes (e = d),
or two or four times as many. Every method has the same sets, and all of them are reported. *Reference* competitors,
which have plain names here, do what the paper's authors ran, mistakes included; those called *fixed* do what their
own papers mean. AP (average precision) and AUC count ordered pairs of different nodes, unless *full matrix* says that
the diagonal counts as well, as in the paper. Raw columns betray the order of the nodes by their variance, which is
why the same sets are also run standardised."""


def written(results: Results) -> str:
    """The whole page."""
    figures = "\n\n".join(
        f"![{picture.caption}](figures/{picture.name}.png)\n\n{picture.caption} ([PDF](figures/{picture.name}.pdf))"
        for picture in pictures(results)
    )
    parts = [OPENING, f"## What was found\n\n{all_findings(results)}"]
    parts += [f"## Figures\n\n{figures}"] if figures else []
    parts += [all_tables(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


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
