"""One HTML file that says what was asked, what the data support, and how far to trust it.

Self-contained: no request leaves the page, and its Content-Security-Policy allows this style sheet and this script
alone, by their hashes. Column names are untrusted text: Python escapes them, the script sets them by ``textContent``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd

from vcuda.checks.findings import Checks
from vcuda.errors import RunError
from vcuda.outputs import report_text
from vcuda.outputs.labels import shortened, visible
from vcuda.outputs.layout import bends, layered, overhang
from vcuda.outputs.reproduction import is_readable, python_lines, shell_line
from vcuda.posterior.drafts import check_new_file, workshop
from vcuda.posterior.posterior import Posterior, as_sentence
from vcuda.posterior.status import edges_in_words
from vcuda.summaries.categorical_effects import CategoryEffect
from vcuda.summaries.effects import Effect
from vcuda.summaries.relations import ancestor_probabilities
from vcuda.summaries.simulated_effects import SimulatedEffect
from vcuda.summaries.structures import NamedGraph, consensus

# Edges that a report holds: every pair at 200 variables. Those that are less probable than what it shows are left out.
MOST_EDGES, SMALLEST_PROBABILITY = 40_000, 0.001
ROWS_WITHOUT_SCRIPT = 25
# Letters of a name in tables and in the picture, and of a sentence: with names of 100,000 letters a browser would be
# busy for minutes.
LONGEST_NAME, LONGEST_TEXT = 300, 20_000
# Graphs that are searched for paths, and for how many variables; smaller shares are not listed.
UPSTREAM_DRAWS, MOST_VARIABLES_UPSTREAM, SMALLEST_UPSTREAM = 400, 250, 0.05
# Edges that a finding names.
EDGES_OF_A_FINDING = 12
# Pixels for a unit of the layout, and the box of a node.
UNIT, BOX, MARGIN = (150, 110), (126, 34), (80, 36)
POLICY = (
    "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; form-action 'none'"
)


def write_report(posterior: Posterior, path: str | os.PathLike[str], *, curves: int = 3, seed: int = 0) -> None:
    """Write the report of a posterior as one HTML file; the same posterior and seed give the same file.

    Parameters
    ----------
    path
        The file, whose name ends in .html or .htm; one that is there is replaced.
    curves
        Of how many edges at most the effect is drawn where effects are no straight lines: each takes seconds when
        functions are Gaussian processes of a thousand rows.
    seed
        For the graphs that paths and effects are counted over.
    """
    file = Path(path)
    if file.suffix.lower() not in (".html", ".htm"):
        raise RunError(f"{file}: a report is written as HTML; end the name with .html")
    check_new_file(file)
    page = report_page(posterior, curves=curves, seed=seed).encode()
    try:
        # Under another name first, so that there is never half a report.
        with workshop(file.parent) as folder:
            draft = folder / file.name
            draft.write_bytes(page)
            os.replace(draft, file)
    except OSError as error:
        raise RunError(f"cannot write the report {file}: {error.strerror or error}; choose another place") from error


def report_page(posterior: Posterior, *, curves: int = 3, seed: int = 0) -> str:
    """The report as a text of HTML; arguments as in `write_report`."""
    agreed = consensus(posterior)
    edges = _listed_edges(posterior, agreed)
    effects, drawn, about_effects = report_text.strongest_effects(posterior, agreed, most_curves=curves, seed=seed)
    made = posterior.provenance
    style, script = _asset("report.css"), _asset("report.js")
    numbers, others = report_text.diagnostics(posterior)
    shell = shell_line(posterior)
    source, status = made["data"]["source"], posterior.status
    headline = f"What causes what in {Path(source).name}" if is_readable(source) else "What causes what"
    return Template(_asset("report.html")).substitute(
        policy=escape(POLICY.format(style=_hash(style), script=_hash(script))),
        title=_text(headline),
        found=_text(report_text.found_in_short(posterior, agreed)),
        found_edges=_found_edges(report_text.first_edges(posterior, agreed)),
        sure=_paragraphs(report_text.how_sure(posterior)),
        verdict=escape(report_text.verdict(status)),
        status=status.code,
        wrong=_paragraphs(report_text.could_be_wrong(posterior)),
        trust=_definitions(report_text.trust(status)),
        asked=_definitions(report_text.asked(posterior)),
        supported=_paragraphs(report_text.supported(posterior, agreed)),
        diagnostics=_table(("Number", "Value", "Meaning"), numbers, right=(1,)) if numbers else "",
        other_diagnostics=_folded("All other numbers of the computation", _definitions(others)) if others else "",
        assumptions=_paragraphs(report_text.assumptions(posterior)),
        first_edges=_first_edges(posterior, edges),
        edge_sentence=escape(_edge_sentences(posterior, edges)),
        about_effects=_paragraphs([about_effects]),
        effects=_effects(effects, drawn),
        caveat=_paragraphs([posterior.caveat]) if effects is not None or drawn else "",
        checks=_model_checks(posterior.checks()),
        doubt_legend=' <span class="doubt">Amber arrows are in doubt: see Checks.</span>'
        if posterior.checks().warnings
        else "",
        notes=_paragraphs(made["data"]["notes"] or ["Nothing odd was found in the table."]),
        python=_text("\n".join(python_lines(posterior)), keep_lines=True),
        shell=f"<pre><code>{_text(shell)}</code></pre>" if shell else "",
        made=_definitions(
            [
                ("Seed", str(made["seed"])),
                ("Fingerprint of the data", made["data"]["fingerprint"]),
                ("Seconds", f"{made['seconds']:.1f}"),
                *((package, number) for package, number in made["versions"].items()),
            ]
        ),
        data=embedded_json(_drawn(posterior, agreed, edges, seed=seed)),
        style=style,
        script=script,
    )


def embedded_json(content: Any) -> str:
    """JSON that stays inside its script element and its line, whatever texts it holds."""
    plain = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _listed_edges(posterior: Posterior, agreed: NamedGraph) -> dict[str, np.ndarray]:
    """The edges of the report, the surest first: sources, targets, probabilities, and which are in the consensus."""
    probabilities = posterior.edge_probabilities.to_numpy()
    kept = (probabilities >= SMALLEST_PROBABILITY) | agreed.graph
    sources, targets = np.nonzero(kept & ~np.eye(len(probabilities), dtype=bool))
    order = np.argsort(-probabilities[sources, targets], kind="stable")[:MOST_EDGES]
    sources, targets = sources[order], targets[order]
    return {
        "source": sources,
        "target": targets,
        "probability": probabilities[sources, targets],
        "opposite": probabilities[targets, sources],
        "agreed": agreed.graph[sources, targets],
    }


def _edge_sentences(posterior: Posterior, edges: dict[str, np.ndarray]) -> str:
    shown, nodes = len(edges["source"]), len(posterior.names)
    left_out = nodes * (nodes - 1) - shown
    if not shown:
        return f"No pair has a probability of {SMALLEST_PROBABILITY} or more."
    least = edges["probability"][-1] if shown == MOST_EDGES else SMALLEST_PROBABILITY
    return f"{shown:,} ordered pairs." + (
        f" {left_out:,} others, with probabilities below {least:.3g}, are left out." if left_out else ""
    )


def _drawn(posterior: Posterior, agreed: NamedGraph, edges: dict[str, np.ndarray], *, seed: int) -> dict[str, Any]:
    """What the script draws: names, places, edges, and who is upstream of whom."""
    layout = layered(agreed.graph)
    bent = bends(layout, edges["source"], edges["target"])
    left, right = overhang(layout, edges["source"], edges["target"], bent)
    margin = max(MARGIN[0], UNIT[0] * left + 8)
    names, nodes, doubted = posterior.names, len(posterior.names), report_text.pairs_in_doubt(posterior)
    upstream: dict[str, list[Any]] | None = None
    if nodes <= MOST_VARIABLES_UPSTREAM:
        shares = ancestor_probabilities(posterior, draws=UPSTREAM_DRAWS, seed=seed).to_numpy()
        first, last = np.nonzero(shares >= SMALLEST_UPSTREAM)
        upstream = {"source": first.tolist(), "target": last.tolist(), "share": _rounded(shares[first, last])}
    return {
        "names": [shortened(name, LONGEST_NAME) for name in posterior.names],
        "x": np.round(margin + UNIT[0] * layout.x, 1).tolist(),
        "y": np.round(MARGIN[1] + UNIT[1] * layout.y, 1).tolist(),
        "width": round(margin + UNIT[0] * layout.width + max(MARGIN[0], UNIT[0] * right + 8), 1),
        "height": round(2 * MARGIN[1] + UNIT[1] * layout.height, 1),
        "box": BOX,
        "source": edges["source"].tolist(),
        "target": edges["target"].tolist(),
        "probability": _rounded(edges["probability"]),
        "opposite": _rounded(edges["opposite"]),
        "agreed": edges["agreed"].astype(int).tolist(),
        "doubted": [
            int(frozenset((names[i], names[j])) in doubted)
            for i, j in zip(edges["source"], edges["target"], strict=True)
        ],
        "bend": np.round(UNIT[0] * bent).astype(int).tolist(),
        "upstream": upstream,
    }


def _rounded(probabilities: np.ndarray) -> list[float]:
    return np.round(probabilities, 3).tolist()


def _first_edges(posterior: Posterior, edges: dict[str, np.ndarray]) -> str:
    """The surest edges as rows of the table, for a reader whose program runs no script; the script replaces them."""
    first = slice(ROWS_WITHOUT_SCRIPT)
    columns = (edges[key][first] for key in ("source", "target", "probability", "opposite", "agreed"))
    rows = (
        (
            posterior.names[i],
            posterior.names[j],
            f"{p:.3f}",
            f"{q:.3f}",
            f"{max(1 - p - q, 0.0):.3f}",
            "yes" if a else "",
        )
        for i, j, p, q, a in zip(*columns, strict=True)
    )
    return _rows(rows, right=(2, 3, 4))


def _found_edges(edges: Sequence[report_text.FirstEdge]) -> str:
    """The surest edges as a list: ends, arrow, probability, and what is open about them."""
    items = []
    for edge in edges:
        ends = (f"<bdi>{escape(shortened(name, LONGEST_NAME))}</bdi>" for name in (edge.source, edge.target))
        said = ' <span class="open">direction open</span>' if edge.is_open else ""
        if edge.in_doubt:
            said = ' <span class="doubt">in doubt</span>'
        arrow, percent = " — " if edge.is_open else " → ", report_text.in_percent(edge.probability)
        items.append(f"<li>{arrow.join(ends)} <strong>{percent}</strong>{said}</li>")
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _model_checks(checks: Checks) -> str:
    """What was checked, what was found, which edges hang on it, and what to do."""
    parts = [f"<p>{_text(checks.summary)}</p>"]
    for finding in checks:
        edges = edges_in_words(finding.edges, most=EDGES_OF_A_FINDING, arrow="→")
        said = (
            ("Found", finding.sentence),
            ("What hangs on it", finding.changes),
            ("Edges", edges),
            ("What to do", finding.remedy),
        )
        parts.append(
            f'<article class="finding {finding.severity}"><h3>{_text(finding.severity.capitalize())}: '
            f"{_text(finding.check)}</h3>{_definitions(pair for pair in said if pair[1])}</article>"
        )
    if checks.made and checks.not_made:
        parts.append(_paragraphs([as_sentence([checks.not_made])]))
    if checks.made:
        rows = (
            (made.check, "" if made.p_value is None else f"{made.p_value:.2g}", f"{made.rows:,}")
            for made in checks.made
        )
        table = _table(("Check", "p-value", "Rows"), rows, right=(1, 2))
        explained = (
            "<p>A p-value is small where the model itself would rarely show such rows. A small one alone is no "
            "warning: a check warns when what it found would change a sure edge.</p>"
        )
        parts.append(_folded("What was checked", explained + table))
    return "".join(parts)


def _effects(
    table: pd.DataFrame | None, curves: Sequence[Effect] | Sequence[CategoryEffect] | Sequence[SimulatedEffect]
) -> str:
    if table is not None and len(table):
        head = ("Cause", "Effect", "Change for one unit", "90 % interval", "P(no effect)")
        rows = (
            (cause, outcome, f"{mean:.4g}", f"{low:.4g} to {high:.4g}", f"{zero:.2f}")
            for cause, outcome, mean, low, high, zero in table.itertuples(index=False, name=None)
        )
        return _table(head, rows, right=(2, 3, 4))
    drawn = [_figure(found) for found in curves]
    shape = "curves" if all(isinstance(found, Effect) for found in curves) else "changes"
    return f'<div class="{shape}">{"".join(drawn)}</div>' if drawn else ""


def _figure(found: Effect | CategoryEffect | SimulatedEffect) -> str:
    if isinstance(found, SimulatedEffect):
        return _changes(found)
    return _categories(found) if isinstance(found, CategoryEffect) else _curve(found)


def _changes(found: SimulatedEffect) -> str:
    """What each setting of the cause changes, a row for each."""
    head = (f"{found.cause} set to", "instead of", "Measure", "Change", "90 % interval")
    rows = []
    for change in [*found.changes(), *found.ratios()]:
        (low, high), unit = change.interval, change.measure.unit
        shown = f"{change.mean:.3g} {unit}".strip()
        rows.append((change.after, change.before, change.measure.words, shown, f"{low:.3g} to {high:.3g}"))
    return f"<figure><figcaption>{_text(found.answer)}</figcaption>{_table(head, rows, right=(3, 4))}</figure>"


def _categories(found: CategoryEffect) -> str:
    """P(outcome = label | do(cause = label)), a row for each label of the cause."""
    table = found.table
    cells = [f"{row.probability:.2f} ({row.low:.2f} to {row.high:.2f})" for row in table.itertuples()]
    width = len(found.outcome_labels)
    head = (f"{found.cause} set to", *(f"P({found.outcome} = {label})" for label in found.outcome_labels))
    rows = [(label, *cells[k * width : (k + 1) * width]) for k, label in enumerate(found.cause_labels)]
    shown = _table(head, rows, right=range(1, width + 1))
    return f"<figure><figcaption>{_text(found.answer)}</figcaption>{shown}</figure>"


def _curve(found: Effect) -> str:
    """E[outcome | do(cause = x)] with its band, as a small picture of numbers alone."""
    x, mean, low, high = (found.curve[column].to_numpy() for column in ("x", "mean", "low", "high"))
    if not np.isfinite([x, mean, low, high]).all():
        return f"<figure><figcaption>{_text(found.answer)}</figcaption></figure>"
    width, height = 300.0, 160.0
    left, span = x[0], x[-1] - x[0]
    bottom, rise = low.min(), max(float(high.max() - low.min()), 1e-12 * max(float(np.abs(mean).max()), 1.0))

    def path(values: np.ndarray, places: np.ndarray) -> str:
        across, up = (places - left) / span * width, height - (values - bottom) / rise * height
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, up, strict=True))

    band = path(np.concatenate([high, low[::-1]]), np.concatenate([x, x[::-1]]))
    return (
        f'<figure><svg viewBox="-4 -4 308 168" role="img" aria-label="{_text(found.answer)}">'
        f'<polygon class="band" points="{band}"/><polyline class="mean" points="{path(mean, x)}"/></svg>'
        f"<p class=range>Across: <bdi>{_text(found.cause)}</bdi> {x[0]:.4g} to {x[-1]:.4g}. "
        f"Up: <bdi>{_text(found.outcome)}</bdi> {bottom:.4g} to {bottom + rise:.4g}.</p>"
        f"<figcaption>{_text(found.answer)}</figcaption></figure>"
    )


def _text(text: str, *, keep_lines: bool = False) -> str:
    """Escaped for HTML, with everything in it visible; what is no program is cut where it is too long to be read."""
    if keep_lines:
        return "\n".join(escape(visible(line)) for line in text.split("\n"))
    return escape(shortened(text, LONGEST_TEXT))


def _paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{_text(sentence)}</p>" for sentence in sentences)


def _definitions(pairs: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{_text(label)}</dt><dd><bdi>{_text(answer)}</bdi></dd>" for label, answer in pairs)
    return f"<dl>{items}</dl>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int]) -> str:
    cells = "".join(
        f"<th scope=col{' class=number' if number in right else ''}>{_text(label)}</th>"
        for number, label in enumerate(head)
    )
    body = _rows(rows, right=right)
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _rows(rows: Iterable[Sequence[str]], *, right: Sequence[int]) -> str:
    return "".join(
        "<tr>"
        + "".join(
            f"<td{' class=number' if number in right else ''}><bdi>{escape(shortened(cell, LONGEST_NAME))}</bdi></td>"
            for number, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{_text(summary)}</summary>{content}</details>"


def _asset(name: str) -> str:
    return files("vcuda.outputs").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
