"""The section on lags and on what follows later, for a fit of rows that are steps in time."""

from __future__ import annotations

from vcuda.outputs.report.html import name, paragraphs, table, tag
from vcuda.outputs.report.sections import Request, Section, TableSection, in_short
from vcuda.posterior.posterior import Posterior
from vcuda.summaries.impulses import ImpulseResponse, impulse_response

# Edges that the table shows and how probable they must be; pairs of columns whose responses are shown, and steps later.
MOST_ROWS, SHOWN, SURE = 40, 0.1, 0.9
MOST_PAIRS, STEPS_LATER, DRAWS = 6, 6, 200


def section(request: Request) -> Section | None:
    posterior = request.posterior
    found = over_time(posterior)
    if found is None:
        return None
    body = [paragraphs([f"The picture calls earlier steps by names such as {posterior.names[0]}.lag1."])]
    responses = _responses(posterior, _edges(posterior), request.seed)
    if responses:
        body += [
            tag("h3", "What follows when a cause is one unit higher at one step"),
            table(
                ("Cause", "Effect", *("at once", *(f"+{step}" for step in range(1, STEPS_LATER + 1)))),
                [(name(one.cause), name(one.outcome), *_cells(one)) for one in responses],
                right=range(2, STEPS_LATER + 3),
            ),
            paragraphs([f"In brackets the band that holds 90 %. {posterior.caveat}"]),
        ]
    return found.section(*body)


def over_time(posterior: Posterior) -> TableSection | None:
    """Which column acts on which, and how much later; None where rows were taken as independent."""
    lagged = posterior.lagged
    if lagged is None:
        return None
    edges = _edges(posterior)
    sentences = [
        "Rows are steps in time. A column may depend on all columns of its own step, and of up to "
        f"{lagged.step_in_words(lagged.lags)} before it."
    ]
    if len(edges) > MOST_ROWS:
        sentences.append(f"{len(edges) - MOST_ROWS:,} less probable edges are not shown.")
    later = [
        f"{source} acts on {target} {lagged.later(lag)}"
        for source, target, lag, likely in edges
        if lag and source != target and likely >= SURE
    ]
    return TableSection(
        id="time",
        title="Over time",
        link="Time",
        sentences=tuple(sentences),
        head=("Cause", "Effect", "When", "Probability"),
        rows=[
            (source, target, lagged.later(lag), f"{likely:.2f}") for source, target, lag, likely in edges[:MOST_ROWS]
        ],
        numbers=(3,),
        found=in_short("With a delay, surely", later, MOST_PAIRS),
    )


def _edges(posterior: Posterior) -> list[tuple[str, str, int, float]]:
    found = posterior.edges(minimum=SHOWN)
    return list(
        zip(found["source"], found["target"], found["lag"].tolist(), found["probability"].tolist(), strict=True)
    )


def _responses(posterior: Posterior, edges: list[tuple[str, str, int, float]], seed: int) -> list[ImpulseResponse]:
    """Of the surest pairs of two columns, where functions are lines: curves take seconds each."""
    pairs = [(source, target) for source, target, _, likely in edges if source != target and likely > 0.5]
    if posterior.provenance.model_name != "linear":
        return []
    return [
        impulse_response(posterior, source, target, horizon=STEPS_LATER, draws=DRAWS, seed=seed)
        for source, target in list(dict.fromkeys(pairs))[:MOST_PAIRS]
    ]


def _cells(response: ImpulseResponse) -> list[str]:
    shown = response.table
    return [
        f"{mean:.3g} ({low:.2g} to {high:.2g})"
        for mean, low, high in zip(shown["mean"], shown["low"], shown["high"], strict=True)
    ]
