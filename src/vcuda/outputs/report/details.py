"""The sections behind the finding: model checks, trust, the model, what was asked, the table, how to make it again."""

from __future__ import annotations

from vcuda.outputs.report import sentences
from vcuda.outputs.report.html import Html, definitions, folded, joined, paragraphs, program, table, tag
from vcuda.outputs.report.sections import Request, Section
from vcuda.outputs.reproduction import python_lines, shell_line
from vcuda.posterior.posterior import as_sentence
from vcuda.posterior.status import edges_in_words

# Edges that a finding names.
EDGES_OF_A_FINDING = 12


def checks(request: Request) -> Section:
    """What was checked, what was found, which edges hang on it, and what to do."""
    made = request.posterior.checks()
    parts = [tag("p", made.summary)]
    for finding in made:
        said = (
            ("Found", finding.sentence),
            ("What hangs on it", finding.changes),
            ("Edges", edges_in_words(finding.edges, most=EDGES_OF_A_FINDING, arrow="→")),
            ("What to do", finding.remedy),
        )
        title = tag("h3", f"{finding.severity.capitalize()}: {finding.check}")
        parts.append(
            tag(
                "article",
                title,
                definitions(pair for pair in said if pair[1]),
                class_=f"finding {finding.severity}",
            )
        )
    if made.made and made.not_made:
        parts.append(tag("p", as_sentence([made.not_made])))
    if made.made:
        rows = ((one.check, "" if one.p_value is None else f"{one.p_value:.2g}", f"{one.rows:,}") for one in made.made)
        explained = (
            "A p-value is small where the model itself would rarely show such rows. A small one alone is no warning: a "
            "check warns when what it found would change a sure edge."
        )
        shown = table(("Check", "p-value", "Rows"), rows, right=(1, 2))
        parts.append(folded("What was checked", joined((tag("p", explained), shown))))
    return Section("checks", "Checks: does the model describe the rows?", joined(parts), link="Checks")


def trust(request: Request) -> Section:
    posterior = request.posterior
    body = (definitions(sentences.trust(posterior.status)), paragraphs(sentences.assumptions(posterior)))
    return Section("trust", "How far to trust it", joined(body), link="Trust")


def asked(request: Request) -> Section:
    return Section("asked", "What was asked", definitions(sentences.asked(request.posterior)), link="Asked")


def statistics(request: Request) -> Section:
    """How it was computed, for readers who know the method."""
    posterior = request.posterior
    numbers, others = sentences.diagnostics(posterior)
    body = (
        definitions(sentences.computed(posterior)),
        paragraphs(sentences.supported(posterior, request.consensus)),
        table(("Number", "Value", "Meaning"), numbers, right=(1,)) if numbers else Html(),
        folded("All other numbers of the computation", definitions(others)) if others else Html(),
    )
    return Section("statistics", "For statisticians: how it was computed", joined(body), link="Statistics")


def notes(request: Request) -> Section:
    found = request.posterior.provenance["data"]["notes"] or ["Nothing odd was found in the table."]
    return Section("notes", "What is odd about the table", paragraphs(found), link="Table")


def again(request: Request) -> Section:
    posterior = request.posterior
    made, shell = posterior.provenance, shell_line(posterior)
    about = [
        ("Seed", str(made["seed"])),
        ("Fingerprint of the data", made["data"]["fingerprint"]),
        ("Seconds", f"{made['seconds']:.1f}"),
        *((package, number) for package, number in made["versions"].items()),
    ]
    lines = program("\n".join(python_lines(posterior)))
    return Section(
        "again",
        "How to reproduce it",
        joined((lines, program(shell) if shell else Html(), definitions(about))),
        link="Reproduce",
    )
