"""Small charts of effects in SVG, with axes and units, that fit any width without a script.

Places are percentages of the width, so that a chart becomes narrower and its text does not become smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vcuda.outputs.report.html import Html, joined, name, tag, text

STRIP, TICKS = 26, 5
HEIGHT, BOTTOM = 180, 22
# So near to an end of an axis, as a share of it, half a number would be outside.
EDGE = 0.04


class Interval(NamedTuple):
    """A row of `interval_chart`: its label, the mean, and the ends of the interval."""

    label: Html
    mean: float
    low: float
    high: float
    doubted: bool = False


def interval_chart(rows: Sequence[Interval], *, axis: str, nothing: float | None = 0.0) -> Html:
    """One row for each interval, on one axis; a line marks ``nothing``, where there is no effect."""
    ends = np.array([value for row in rows for value in row[1:4]] + ([] if nothing is None else [nothing]), dtype=float)
    ends = ends[np.isfinite(ends)] if np.isfinite(ends).any() else np.zeros(1)
    ticks = nice_ticks(float(ends.min()), float(ends.max()))
    at = _scale(ticks[0], ticks[-1])
    strips = []
    for row in rows:
        drawn = []
        if nothing is not None:
            drawn.append(tag("line", x1=at(nothing), x2=at(nothing), y1=0, y2=STRIP, class_="zero"))
        if np.isfinite([row.low, row.high, row.mean]).all():
            kind = "interval doubted" if row.doubted else "interval"
            drawn.append(tag("line", x1=at(row.low), x2=at(row.high), y1=STRIP / 2, y2=STRIP / 2, class_=kind))
            drawn.append(tag("circle", cx=at(row.mean), cy=STRIP / 2, r=5, class_="point"))
        picture = tag("svg", *drawn, width="100%", height=STRIP, role="presentation", focusable="false")
        strips.append(tag("div", tag("div", row.label, class_="row-label"), picture, class_="row"))
    numbers = [
        tag("text", tick_words(tick, ticks), x=at(tick), y=14, text_anchor=_anchor(number, len(ticks)))
        for number, tick in enumerate(ticks)
    ]
    scale = tag("svg", *numbers, width="100%", height=18, class_="axis", role="presentation")
    foot = tag(
        "div", tag("div", class_="row-label"), tag("div", scale, tag("p", axis, class_="axis-words")), class_="row"
    )
    return tag("div", *strips, foot, class_="intervals")


def curve_chart(x: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray, *, across: str, up: str) -> Html:
    """A curve with its band, both axes with numbers and words."""
    sideways = nice_ticks(float(x.min()), float(x.max()))
    upright = nice_ticks(float(low.min()), float(high.max()))
    left, right, bottom, top = float(x.min()), float(x.max()), upright[0], upright[-1]

    def path(values: np.ndarray, places: np.ndarray) -> str:
        over = 100 * (places - left) / max(right - left, 1e-300)
        down = 100 - 100 * (values - bottom) / max(top - bottom, 1e-300)
        return " ".join(f"{a:.2f},{b:.2f}" for a, b in zip(over, down, strict=True))

    band = path(np.concatenate([high, low[::-1]]), np.concatenate([x, x[::-1]]))
    inside = tag(
        "svg",
        tag("polygon", class_="band", points=band),
        tag("polyline", class_="mean", points=path(mean, x), vector_effect="non-scaling-stroke"),
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
        x="0",
        y="6",
        width="100%",
        height=HEIGHT - BOTTOM - 6,
    )
    height = HEIGHT - BOTTOM - 6
    lines, beside, below = [], [], []
    for tick in upright:
        y = 6 + height * (1 - (tick - bottom) / max(top - bottom, 1e-300))
        lines.append(tag("line", x1="0%", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"))
        beside.append(tag("text", tick_words(tick, upright), x="94%", y=f"{y + 4:.1f}", text_anchor="end"))
    for tick in sideways:
        share = (tick - left) / max(right - left, 1e-300)
        if 0 <= share <= 1:
            # At the ends the number stays inside of the chart.
            anchor = "start" if share < EDGE else "end" if share > 1 - EDGE else "middle"
            place = f"{100 * share:.2f}%"
            below.append(tag("text", tick_words(tick, sideways), x=place, y=HEIGHT - 6, text_anchor=anchor))

    def picture(*drawn: Html) -> Html:
        return tag("svg", *drawn, width="100%", height=HEIGHT, class_="axis", role="presentation")

    return joined(
        (
            tag("p", up, class_="axis-words"),
            tag("div", picture(*beside), picture(*lines, inside, *below), class_="curve"),
            tag("p", across, class_="axis-words across"),
        )
    )


def nice_ticks(low: float, high: float, most: int = TICKS) -> list[float]:
    """Round numbers that cover a range.

    Examples
    --------
    >>> nice_ticks(-36.6, 20.9)
    [-40.0, -20.0, 0.0, 20.0, 40.0]
    """
    if not high > low:
        low, high = low - max(abs(low), 1.0) / 2, high + max(abs(high), 1.0) / 2
    raw = (high - low) / most
    power = 10.0 ** np.floor(np.log10(raw))
    step = float(power * next(factor for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9)))
    first, last = np.floor(low / step + 1e-9), np.ceil(high / step - 1e-9)
    return [float(k * step) for k in np.arange(first, last + 1)]


def tick_words(tick: float, ticks: Sequence[float]) -> str:
    """A number of an axis, with the decimals that its step needs."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    largest = max(abs(one) for one in ticks)
    if largest >= 1e6 or step < 1e-4:
        return f"{tick:.3g}"
    return f"{tick:,.{max(0, -int(np.floor(np.log10(step) + 1e-9)))}f}"


def _scale(low: float, high: float) -> Callable[[float], str]:
    span = max(high - low, 1e-300)
    return lambda value: f"{2 + 96 * (value - low) / span:.2f}%"


def _anchor(number: int, count: int) -> str:
    return "start" if number == 0 else "end" if number == count - 1 else "middle"


def labelled(title: str, *below: str) -> Html:
    """A label of a row: a name, and smaller words below it."""
    return joined((name(title), *(tag("small", text(words)) for words in below if words)))
