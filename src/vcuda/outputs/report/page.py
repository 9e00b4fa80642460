"""One HTML file that says what was found, how sure it is, what could be wrong, and how to make it again.

Self-contained: no request leaves the page, and its Content-Security-Policy allows this style sheet and these scripts
alone, by their hashes. Column names are untrusted text: html.py escapes them, the script sets them by ``textContent``.
"""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from string import Template

from vcuda.errors import RunError
from vcuda.outputs.report import drivers, edges, graph, sentences
from vcuda.outputs.report.assets import asset
from vcuda.outputs.report.contents import CONTENTS
from vcuda.outputs.report.html import Html, embedded_json, joined, paragraphs, tag, text
from vcuda.outputs.report.sections import Request, Section
from vcuda.outputs.reproduction import is_readable
from vcuda.posterior.drafts import check_new_file, workshop
from vcuda.posterior.posterior import Posterior

POLICY = "default-src 'none'; style-src 'sha256-{style}'; script-src {scripts}; base-uri 'none'; form-action 'none'"


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
    request = Request(posterior, curves, seed)
    picture = graph.section(request)
    sections = [section for make in CONTENTS if (section := make(request)) is not None]
    style = "\n".join(map(asset, ("graph.css", "report.css")))
    scripts = [asset("graph.js"), asset("report.js")]
    links = (tag("a", section.link, href=f"#{section.id}") for section in sections if section.link)
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return Template(asset("report.html")).substitute(
        policy=text(POLICY.format(style=_hash(style), scripts=hashes)),
        title=text(_headline(posterior)),
        about=text(_about(posterior)),
        picture=picture.body,
        finding=_finding(request, sections),
        links=Html(" ".join(links)),
        sections=joined(map(_section, sections)),
        data=embedded_json({section.id: section.data for section in (picture, *sections) if section.data}),
        style=style,
        graph_script=scripts[0],
        script=scripts[1],
    )


def _headline(posterior: Posterior) -> str:
    source, target = posterior.provenance.source, posterior.provenance.target
    asked = "What causes what" if target is None else f"What drives {target}"
    return f"{asked} in {Path(source).name}" if is_readable(source) else asked


def _about(posterior: Posterior) -> str:
    made = posterior.provenance
    return f"Learned from {made.rows:,} rows and {made.columns:,} columns."


def _finding(request: Request, sections: list[Section]) -> Html:
    """Beside the picture: what was found, how sure it is, what could be wrong."""
    posterior = request.posterior
    target, status = posterior.provenance.target, posterior.status
    if target is not None:
        title, found = f"What drives {target}", [drivers.first_drivers(request.drivers)]
    else:
        title = "What was found"
        found = [tag("p", sentences.found_in_short(posterior, request.consensus)), edges.first_edges(request)]
    found.append(paragraphs(sentence for section in sections for sentence in section.found))
    wrong = sentences.could_be_wrong(posterior)
    wrong += [sentence for section in sections for sentence in section.doubts]
    verdict = tag("p", tag("strong", f"{sentences.verdict(posterior)}."))
    colour = "warning" if status.code == "ok" and sentences.perhaps_missing(posterior) else status.code
    return joined(
        (
            tag("div", tag("h2", title), *found),
            tag("div", tag("h2", "How sure it is"), paragraphs(sentences.how_sure(posterior))),
            tag(
                "div",
                tag("h2", "What could be wrong"),
                verdict,
                paragraphs(wrong),
                class_=f"verdict {colour}",
            ),
        )
    )


def _section(section: Section) -> Html:
    title = tag("h2", section.title, id=f"{section.id}-title")
    return tag("section", title, section.body, id=section.id, aria_labelledby=f"{section.id}-title")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
