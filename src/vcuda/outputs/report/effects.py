"""The section with effects: numbers in a table, curves where they bend, changes where columns are of several kinds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from vcuda.outputs.report import sentences
from vcuda.outputs.report.charts import Interval, curve_chart, interval_chart, labelled
from vcuda.outputs.report.html import Html, folded, joined, paragraphs, table, tag
from vcuda.outputs.report.sections import Request, Section
from vcuda.summaries.categorical_effects import CategoryEffect
from vcuda.summaries.effects import Effect
from vcuda.summaries.simulated_effects import SimulatedEffect


def section(request: Request) -> Section | None:
    """Of the surest pairs; of a target, and of a time series, another section has them."""
    posterior = request.posterior
    if posterior.provenance.target is not None or posterior.lagged is not None:
        return None
    found, drawn, about = sentences.strongest_effects(
        posterior, request.consensus, most_curves=request.curves, seed=request.seed
    )
    caveat = [posterior.caveat] if found is not None or drawn else []
    return Section("effects", "Effects", joined((paragraphs([about, *caveat]), _effects(found, drawn))), link="Effects")


def _effects(
    found: pd.DataFrame | None, curves: Sequence[Effect] | Sequence[CategoryEffect] | Sequence[SimulatedEffect]
) -> Html:
    if found is not None and len(found):
        head = ("Cause", "Effect", "Change for one unit", "90 % interval", "P(no effect)", *_hidden_head(found))
        rows = (
            (
                cause,
                outcome,
                f"{mean:.4g}",
                f"{low:.4g} to {high:.4g}",
                f"{zero:.2f}",
                *(_hidden(one) for one in strength),
            )
            for cause, outcome, mean, low, high, zero, *strength in found.itertuples(index=False, name=None)
        )
        return joined((table(head, rows, right=range(2, len(head))), _about_hidden(found)))
    shape = "curves" if all(isinstance(one, Effect) for one in curves) else "changes"
    return tag("div", *map(_figure, curves), class_=shape) if curves else Html()


def _hidden_head(found: pd.DataFrame) -> list[str]:
    return ["Holds up to"] if "holds_up_to" in found else []


def _hidden(strength: float) -> str:
    """The strength of a hidden cause against which an effect holds; none where the effect itself is not sure."""
    return f"{100 * strength:.0f} %" if strength > 0 else "-"


def _about_hidden(found: pd.DataFrame) -> Html:
    if "holds_up_to" not in found:
        return Html()
    said = (
        "Holds up to: a hidden common cause that explains less than this share of what is left of cause and effect "
        "cannot explain the effect away, with a probability of .90. A dash: the effect itself is less sure than that."
    )
    return paragraphs([said])


def _figure(found: Effect | CategoryEffect | SimulatedEffect) -> Html:
    if isinstance(found, SimulatedEffect):
        return _changes(found)
    return _categories(found) if isinstance(found, CategoryEffect) else _curve(found)


def _caption(found: Effect | CategoryEffect | SimulatedEffect) -> Html:
    return tag("figcaption", " ".join(filter(None, (found.answer, found.hidden_cause))))


def _changes(found: SimulatedEffect) -> Html:
    """What each setting of the cause makes of the outcome, drawn, and every change as a table."""
    head = (f"{found.cause} set to", "instead of", "Measure", "Change", "90 % interval")
    rows = []
    for change in [*found.changes(), *found.ratios()]:
        (low, high), unit = change.interval, change.measure.unit
        shown = f"{change.mean:.3g} {unit}".strip()
        rows.append((change.after, change.before, change.measure.words, shown, f"{low:.3g} to {high:.3g}"))
    numbers = folded("All changes as a table", table(head, rows, right=(3, 4)))
    measure = found.main.measure
    curve = found.curve[found.curve.measure == measure.words]
    axis = f"{capital(measure.words)}{', %' if measure.percent else ''}"
    ends = curve[["mean", "low", "high"]].to_numpy(dtype=float)
    if not np.isfinite(ends).all():
        return tag("figure", _caption(found), numbers)
    if found.x is not None and found.cause_kind in ("number", "count"):
        x = curve.x.to_numpy(dtype=float)
        drawn = curve_chart(x, *ends.T, across=f"{found.cause} is set to", up=axis)
    else:
        settings = zip(found.settings, ends.tolist(), strict=True)
        strips = [Interval(labelled(f"{found.cause}: {setting}"), *three) for setting, three in settings]
        drawn = interval_chart(strips, axis=axis, nothing=None)
    return tag("figure", _caption(found), drawn, numbers)


def _categories(found: CategoryEffect) -> Html:
    """P(outcome = label | do(cause = label)), a row for each label of the cause."""
    cells = [f"{row.probability:.2f} ({row.low:.2f} to {row.high:.2f})" for row in found.table.itertuples()]
    width = len(found.outcome_labels)
    head = (f"{found.cause} set to", *(f"P({found.outcome} = {label})" for label in found.outcome_labels))
    rows = [(label, *cells[k * width : (k + 1) * width]) for k, label in enumerate(found.cause_labels)]
    return tag("figure", _caption(found), table(head, rows, right=range(1, width + 1)))


def _curve(found: Effect) -> Html:
    """E[outcome | do(cause = x)] with its band."""
    x, mean, low, high = (found.curve[column].to_numpy() for column in ("x", "mean", "low", "high"))
    if not np.isfinite([x, mean, low, high]).all():
        return tag("figure", _caption(found))
    drawn = curve_chart(x, mean, low, high, across=f"{found.cause} is set to", up=f"Expected {found.outcome}")
    return tag("figure", drawn, _caption(found))


def capital(words: str) -> str:
    """With a capital letter, and the rest as it is."""
    return f"{words[:1].upper()}{words[1:]}"
