"""The section on the target: what drives it, by how much, how sure that is and on what it hangs."""

from __future__ import annotations

from vcuda.outputs.report.charts import Interval, interval_chart, labelled
from vcuda.outputs.report.html import Html, folded, joined, name, paragraphs, table, tag, with_arrows
from vcuda.outputs.report.sections import Request, Section
from vcuda.posterior.posterior import as_sentence
from vcuda.posterior.status import in_percent
from vcuda.summaries.drivers import Driver, Drivers
from vcuda.summaries.simulated_effects import Measure, signed

# Drivers on the first screen: as many as one looks at.
DRIVERS_FIRST = 5


def section(request: Request) -> Section | None:
    """What drives the target of the fit; nothing if there is none."""
    target = request.posterior.provenance.target
    if target is None:
        return None
    found = request.drivers
    parts = [_intro(found)]
    if any(one.change is not None for one in found.drivers):
        parts.append(drivers_chart(found))
        parts.append(tag("p", found.caveat))
    parts.append(tag("ul", *(tag("li", with_arrows(sentence)) for sentence in found.sentences), class_="sentences"))
    if found.drivers:
        parts.append(folded("The same as a table", _table(found)))
    return Section("drivers", f"What drives {target}", joined(parts), link="Drivers")


def first_drivers(found: Drivers) -> Html:
    """The largest effects in short, for the first screen."""
    if not found.drivers:
        return paragraphs(found.sentences)
    measures = {one.change.measure for one in found.drivers if one.change is not None}
    same = next(iter(measures)) if len(measures) == 1 else None
    lead = "Its likely causes:" if not measures else "The largest effects:"
    if same is not None:
        lead = f"{_axis(same)}:"
    items = []
    for one in found.drivers[:DRIVERS_FIRST]:
        said = [tag("strong", name(one.name)), " "]
        if one.change is not None:
            low, high = (_short(one.change.measure, end) for end in one.change.interval)
            if low == high:  # a narrow range needs more digits
                low, high = _between(one).split(" to ")
            unit = f" {one.change.measure.unit}" if same is None and one.change.measure.unit != "times" else ""
            shown = f"{_short(one.change.measure, one.change.mean)}{unit}"
            said += [f"{_step(one)}: ", tag("strong", shown), f" ({low} to {high}) "]
        said.append(tag("span", f"{_role(one)}{'.' if one.hangs_on else ''}", class_="open"))
        if one.hangs_on:
            said += [" ", tag("span", with_arrows(as_sentence(one.hangs_on[:1])), class_="doubt")]
        items.append(tag("li", *said))
    more = len(found.drivers) + len(found.left_out) - DRIVERS_FIRST
    ranges = "In brackets: where the effect lies with 90 %, if the model is right." if measures else ""
    after = tag("p", " ".join(filter(None, (ranges, f"{more} more below." if more > 0 else ""))))
    return joined((tag("p", lead), tag("ul", *items), after))


def _axis(measure: Measure) -> str:
    """What changes, and its unit."""
    if measure.unit == "times":
        return f"Factor by which {measure.of} changes"
    return f"Change in {measure.of}, {measure.unit or 'in the units of the table'}"


def _short(measure: Measure, value: float) -> str:
    """Two digits, which is as much as one remembers."""
    if measure.unit == "times":
        return f"{value:.2g} times"
    return f"{value:+.0f}" if 10 <= abs(value) < 100 else signed(float(f"{value:.2g}"))


def drivers_chart(found: Drivers) -> Html:
    """Effects with their intervals on one axis; one chart for each measure of the target."""
    charts = []
    changed = [one for one in found.drivers if one.change is not None]
    for measure in dict.fromkeys(one.change.measure for one in changed if one.change is not None):
        rows = []
        for one in changed:
            if one.change is None or one.change.measure != measure:
                continue
            low, high = one.change.interval
            below = (f"{_step(one)}", _role(one))
            rows.append(Interval(labelled(one.name, *below), one.change.mean, low, high, bool(one.hangs_on)))
        charts.append(interval_chart(rows, axis=_axis(measure), nothing=1.0 if measure.unit == "times" else 0.0))
    return joined(charts)


def _intro(found: Drivers) -> Html:
    if not found.drivers:
        return Html()
    sentence = (
        "Total effects, along all paths. The dot is the mean, and the effect lies inside of the bar with 90 %, the "
        "uncertainty of the graph included. A number is moved from a low to a high value (one row in ten is lower, one "
        "in ten is higher), a label is compared with another one."
    )
    others = f" {found.others:,} other columns are unlikely to drive it." if found.others else ""
    return tag("p", sentence + others)


def _step(one: Driver) -> str:
    assert one.change is not None
    if one.ordered:
        return f"from {one.change.before} to {one.change.after}"
    return f"{one.change.after} instead of {one.change.before}"


def _role(one: Driver) -> str:
    if one.direct >= 0.5:
        return f"direct cause, {in_percent(one.direct)}"
    through = f" through {' and '.join(one.through[:2])}" if one.through else ""
    return f"upstream{through}, {in_percent(one.upstream)}"


def _effect(one: Driver) -> str:
    assert one.change is not None
    unit = one.change.measure.unit
    if unit == "times":
        return f"{one.change.mean:.3g} times"
    return f"{signed(one.change.mean)} {unit}".strip()


def _between(one: Driver) -> str:
    assert one.change is not None
    low, high = one.change.interval
    if one.change.measure.unit == "times":
        return f"{low:.3g} to {high:.3g}"
    return f"{signed(low)} to {signed(high)}"


def _table(found: Drivers) -> Html:
    head = ("Driver", "Direct", "Upstream", "Changed", "Effect", "90 % interval", "Hangs on")
    rows = []
    for one in found.drivers:
        numbers = ("", "", "") if one.change is None else (_step(one), _effect(one), _between(one))
        rows.append((one.name, in_percent(one.direct), in_percent(one.upstream), *numbers, "; ".join(one.hangs_on)))
    return table(head, rows, right=(1, 2))
