"""Figures of a posterior, each a matplotlib Figure of its own: save it with ``figure.savefig("edges.png")``.

No window is opened and no global state of pyplot is touched. Names of columns are shown as they are, never as formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vcuda.arguments import whole_number
from vcuda.checks.subject import Subject
from vcuda.data.messages import listed
from vcuda.errors import ConfigError, MissingExtraError
from vcuda.fitting.checking import residuals_of_table
from vcuda.metrics import calibration as calibration_of
from vcuda.outputs.labels import shortened
from vcuda.outputs.layout import Layout, bends, curve, layered, overhang
from vcuda.posterior.posterior import Posterior
from vcuda.summaries.effects import Effect
from vcuda.summaries.simulated_effects import SimulatedEffect
from vcuda.summaries.structures import consensus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, EDGE, TRUTH, FAINT = "#1b2733", "#23527c", "#c0392b", "#8895a3"
# More names than this do not fit beside a matrix, and more series than this into one figure.
MOST_TICKS, MOST_SERIES = 60, 6
# As in the report: an edge is dashed when its opposite has this probability.
OPEN_DIRECTION = 0.2
# Half of a node's box, in units of the layout.
HALF_NODE = np.array([0.42, 0.16])


def edge_heatmap(posterior: Posterior, *, truth: npt.ArrayLike | pd.DataFrame | None = None) -> Figure:
    """The probability of every edge as a matrix: causes in rows, effects in columns.

    Parameters
    ----------
    truth
        A ``(d, d)`` matrix of true edges, or a table with the names of the columns: each of them gets a ring.
    """
    nodes = len(posterior.names)
    side = float(np.clip(2.5 + 0.28 * nodes, 4.5, 14.0))
    figure = _figure(side + 0.8, side)
    axes = figure.add_subplot()
    image = axes.imshow(posterior.edge_probabilities.to_numpy(), cmap="Blues", vmin=0, vmax=1)
    if truth is not None:
        sources, targets = np.nonzero(_truth(truth, posterior.names))
        size = (0.55 * 72 * side / nodes) ** 2
        axes.scatter(targets, sources, s=size, facecolors="none", edgecolors=TRUTH, linewidths=1.4)
    if nodes <= MOST_TICKS:
        places = range(nodes)
        _set_ticks(axes, places, posterior.names)
    axes.set_xlabel("effect")
    axes.set_ylabel("cause")
    axes.set_title("Probability of each edge" + ("" if truth is None else " (rings: true edges)"), fontsize=11)
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def graph(posterior: Posterior, *, minimum: float = 0.5) -> Figure:
    """The edges of at least a probability ``minimum``: the surer, the wider and darker; causes above effects.

    The places are those of the consensus graph, whatever the minimum; an edge is dashed when its opposite has a
    probability of .2 or more.
    """
    if not 0 < minimum <= 1:
        raise ConfigError(f"minimum must be a probability above 0 and at most 1, not {minimum}")
    probabilities = posterior.edge_probabilities.to_numpy()
    layout = layered(consensus(posterior).graph)
    sources, targets = np.nonzero((probabilities >= minimum) & ~np.eye(len(probabilities), dtype=bool))
    order = np.argsort(-probabilities[sources, targets], kind="stable")
    sources, targets = sources[order], targets[order]
    bent = bends(layout, sources, targets)
    left, right = (max(0.6, reach + 0.1) for reach in overhang(layout, sources, targets, bent))
    figure = _figure(min(max(1.6 * (left + layout.width + right), 4.2), 40.0), min(1.1 * (layout.height + 1.1), 40.0))
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(-left, layout.width + right)
    axes.set_ylim(layout.height + 0.5, -0.5)
    _draw_nodes(axes, layout, posterior.names)
    places = np.stack([layout.x, layout.y], axis=1)
    for i, j, bend in zip(sources.tolist(), targets.tolist(), bent.tolist(), strict=True):
        # Both directions of a pair would lie on each other.
        beside = bend or (0.06 if probabilities[j, i] >= minimum else 0.0)
        _draw_edge(axes, places[i], places[j], beside, probabilities[i, j], probabilities[j, i])
    number = len(sources)
    edges = "1 edge" if number == 1 else f"{number:,} edges"
    axes.set_title(f"{edges} with a probability of at least {minimum:g}", fontsize=11)
    return figure


def calibration(posterior: Posterior, truth: npt.ArrayLike | pd.DataFrame, *, bins: int = 10) -> Figure:
    """How often edges of a stated probability are true; on the diagonal the posterior is honest.

    The area of a point grows with the number of ordered pairs in its bin.
    """
    found = calibration_of(posterior, truth, bins=bins)
    figure = _figure(4.8, 4.6)
    axes = figure.add_subplot(aspect="equal")
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle="--")
    used = found.pairs > 0
    probability, frequency, pairs = found.probability[used], found.frequency[used], found.pairs[used]
    axes.plot(probability, frequency, color=EDGE, linewidth=1)
    axes.scatter(probability, frequency, s=20 + 180 * pairs / pairs.max(), color=EDGE, alpha=0.8)
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("stated probability")
    axes.set_ylabel("share of true edges")
    axes.set_title(f"Calibration (expected error {found.error:.3f})", fontsize=11)
    return figure


def trace(posterior: Posterior) -> Figure:
    """How the fit went: each series that the engine kept, a line for each restart or replica."""
    series = {name: np.asarray(values) for name, values in posterior.trace.items() if np.asarray(values).size}
    if not series:
        engine = posterior.provenance["engine"]["name"]
        raise ConfigError(f"engine {engine} keeps no trace; orders, variational and straight-through do")
    shown = dict(list(series.items())[:MOST_SERIES])
    figure = _figure(7.0, 1.0 + 2.1 * len(shown))
    for number, (name, values) in enumerate(shown.items(), start=1):
        axes = figure.add_subplot(len(shown), 1, number)
        lines = values.reshape(len(values), -1)
        # What was cut out or came to nothing leaves a space.
        axes.plot(np.where(np.isfinite(lines), lines, np.nan), linewidth=0.9)
        axes.set_ylabel(name.replace("_", " "))
        if number == len(shown):
            axes.set_xlabel("step, sweep or look")
    return figure


def effect(found: Effect) -> Figure:
    """The posterior of a total effect, and beside it the curve where it is not a straight line in every draw."""
    cause, outcome = shortened(found.cause), shortened(found.outcome)
    figure = _figure(5.6 if found.linear else 10.0, 3.8)
    axes = figure.add_subplot(1, 1 if found.linear else 2, 1)
    there = found.draws[np.isfinite(found.draws) & (found.draws != 0)]
    if there.size:
        axes.hist(there, bins=40, weights=np.full(there.size, 1 / found.draws.size), color=EDGE, alpha=0.8)
    axes.axvspan(*found.interval, color=EDGE, alpha=0.12)
    axes.axvline(found.mean, color=TRUTH, linewidth=1.2)
    _label(axes.set_xlabel, f"change of {outcome} for one unit of {cause}")
    axes.set_ylabel("share of draws")
    axes.set_title(f"P(no effect) {found.probability_zero:.2f}; band: 90 %, line: mean", fontsize=10)
    if not found.linear:
        axes = figure.add_subplot(1, 2, 2)
        axes.fill_between(found.curve.x, found.curve.low, found.curve.high, color=EDGE, alpha=0.2)
        axes.plot(found.curve.x, found.curve["mean"], color=EDGE)
        _label(axes.set_xlabel, f"{cause} is set to")
        _label(axes.set_ylabel, f"expected {outcome}")
        axes.set_title("Mean and 90 % band", fontsize=10)
    return figure


def simulated_effect(found: SimulatedEffect) -> Figure:
    """The posterior of a total effect in a table of several kinds, and the outcome at each setting of the cause."""
    main, cause = found.main, shortened(found.cause)
    figure = _figure(10.0, 3.8)
    axes = figure.add_subplot(1, 2, 1)
    there = main.draws[np.isfinite(main.draws) & (main.draws != 0)]
    if there.size:
        axes.hist(there, bins=40, weights=np.full(there.size, 1 / main.draws.size), color=EDGE, alpha=0.8)
    axes.axvspan(*main.interval, color=EDGE, alpha=0.12)
    axes.axvline(main.mean, color=TRUTH, linewidth=1.2)
    unit = f", {main.measure.unit}" if main.measure.unit else ""
    _label(axes.set_xlabel, f"change from {shortened(main.before)} to {shortened(main.after)}{unit}")
    axes.set_ylabel("share of draws")
    axes.set_title(f"P(no effect) {found.probability_zero:.2f}; band: 90 %, line: mean", fontsize=10)
    axes = figure.add_subplot(1, 2, 2)
    curve = found.curve[found.curve.measure == main.measure.words]
    if found.x is None:
        places = np.arange(len(found.settings))
        errors = np.stack([curve["mean"] - curve.low, curve.high - curve["mean"]])
        axes.errorbar(places, curve["mean"], yerr=errors, fmt="o", color=EDGE, capsize=3)
        axes.set_xticks(places)
        axes.set_xticklabels([shortened(setting, 14) for setting in found.settings], parse_math=False)
    else:
        axes.fill_between(curve.x.astype(float), curve.low, curve.high, color=EDGE, alpha=0.2)
        axes.plot(curve.x.astype(float), curve["mean"], color=EDGE)
    _label(axes.set_xlabel, f"{cause} is set to")
    _label(axes.set_ylabel, shortened(main.measure.words, 60) + (", %" if main.measure.percent else ""))
    axes.set_title("Mean and 90 % band", fontsize=10)
    return figure


def effect_of(posterior: Posterior, cause: str, outcome: str, *, draws: int | None = None, seed: int = 0) -> Figure:
    """The figure of the total effect of ``cause`` on ``outcome``; categories have a table instead."""
    found = posterior.effect(cause, outcome, draws=draws, seed=seed)
    if isinstance(found, SimulatedEffect):
        return simulated_effect(found)
    if not isinstance(found, Effect):
        raise ConfigError("the effect of a category has no figure; posterior.effect(...).table lists its probabilities")
    return effect(found)


def drivers(posterior: Posterior, target: str | None = None, *, most: int = 10, seed: int = 0) -> Figure:
    """What drives the target: the effect of each likely cause with the interval that holds 90 %, the largest first."""
    found = posterior.drivers(target, most=most, seed=seed)
    changed = [(one, one.change) for one in found.drivers if one.change is not None]
    if not changed:
        raise ConfigError(f"there is no effect to draw: {' '.join(found.sentences)}")
    figure = _figure(7.5, 1.4 + 0.55 * len(changed))
    axes = figure.add_subplot()
    places = np.arange(len(changed))[::-1]
    means = np.array([change.mean for _, change in changed])
    ends = np.array([change.interval for _, change in changed])
    ratios = changed[0][1].measure.unit == "times"
    axes.axvline(1.0 if ratios else 0.0, color=FAINT, linewidth=1, linestyle="--")
    axes.errorbar(means, places, xerr=np.abs(ends.T - means), fmt="o", color=EDGE, capsize=3)
    axes.set_yticks(places)
    labels = [
        f"{shortened(one.name)}\n{shortened(change.before, 14)} to {shortened(change.after, 14)}"
        for one, change in changed
    ]
    axes.set_yticklabels(labels, parse_math=False, fontsize=9)
    axes.set_ylim(-0.6, len(changed) - 0.4)
    units = {change.measure.unit for _, change in changed}
    unit = units.pop() if len(units) == 1 else ""
    _label(axes.set_xlabel, f"change of {shortened(found.target)}{f', {unit}' if unit else ''}")
    axes.set_title("Total effects: mean and 90 % interval", fontsize=11)
    return figure


def sensitivity(
    posterior: Posterior, cause: str, outcome: str, *, data: Any = None, draws: int = 1000, seed: int = 0
) -> Figure:
    """The probability that the effect of ``cause`` on ``outcome`` holds against hidden causes of each strength.

    The line across is a probability of .9; those upright are measured causes of the cause, as a yardstick.
    """
    found = posterior.sensitivity(cause, outcome, data=data, draws=draws, seed=seed)
    figure = _figure(5.6, 4.0)
    axes = figure.add_subplot()
    axes.plot(100 * found.curve.strength, found.curve.probability, color=EDGE)
    axes.axhline(0.9, color=FAINT, linewidth=0.8, linestyle="--")
    for row in found.covariates.head(MOST_SERIES).itertuples():
        axes.axvline(100 * float(row.strength), color=TRUTH, linewidth=0.9, linestyle=":")  # type: ignore[arg-type]
        axes.text(
            100 * float(row.strength),  # type: ignore[arg-type]
            1.01,
            shortened(str(row.covariate), 14),
            ha="center",
            va="bottom",
            fontsize=8,
            color=TRUTH,
            parse_math=False,
        )
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1.1)
    axes.set_xlabel("what a hidden cause explains of what is left of both, %")
    _label(axes.set_ylabel, f"P(effect of {shortened(cause, 14)} on {shortened(outcome, 14)} holds)")
    axes.set_title("How strong a hidden cause would have to be", fontsize=11)
    return figure


def residuals(posterior: Posterior, data: Any, column: str) -> Figure:
    """The residuals of a column against what its causes predict: a band of even width around zero if all is well.

    Residuals are those of the model checks, standard normal under the model; ``data`` is the table that was fitted.
    """
    subject, place = _checked_column(posterior, data, column)
    fitted = subject.predictive.column(place, subject.parents(place), subject.scaled).mean
    own = subject.predictive.scaling.of(place).undo(fitted[:, None])[:, 0]
    figure = _figure(5.6, 4.2)
    axes = figure.add_subplot()
    _residual_lines(axes)
    axes.scatter(own, subject.residuals[:, place], s=8, color=EDGE, alpha=0.5, linewidths=0)
    _label(axes.set_xlabel, f"{shortened(column)}, as its causes predict")
    axes.set_ylabel("residual")
    axes.set_title(f"Residuals against fit ({subject.rows_in_words()})", fontsize=11)
    return figure


def residual_quantiles(posterior: Posterior, data: Any, column: str) -> Figure:
    """The residuals of a column in order, against those that the model expects: on the diagonal if all is well."""
    subject, place = _checked_column(posterior, data, column)
    expected = NormalDist().inv_cdf
    places = [expected((k + 0.5) / subject.n) for k in range(subject.n)]
    figure = _figure(4.8, 4.6)
    axes = figure.add_subplot()
    axes.plot([places[0], places[-1]], [places[0], places[-1]], color=FAINT, linewidth=1, linestyle="--")
    axes.scatter(places, np.sort(subject.residuals[:, place]), s=8, color=EDGE, linewidths=0)
    axes.set_xlabel("expected residual")
    _label(axes.set_ylabel, f"residual of {shortened(column)}")
    axes.set_title(f"Quantiles of residuals ({subject.rows_in_words()})", fontsize=11)
    return figure


def residual_lags(posterior: Posterior, data: Any, column: str, *, lag: int = 1) -> Figure:
    """The residual of each row against that of the row ``lag`` before: a round cloud if rows are independent."""
    distance = whole_number("lag", lag, least=1)
    subject, place = _checked_column(posterior, data, column)
    same = subject.runs[distance:] == subject.runs[:-distance]
    own = subject.residuals[:, place]
    figure = _figure(4.8, 4.6)
    axes = figure.add_subplot(aspect="equal")
    axes.scatter(own[:-distance][same], own[distance:][same], s=8, color=EDGE, alpha=0.5, linewidths=0)
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.axvline(0, color=FAINT, linewidth=0.8)
    before = "the row before" if distance == 1 else f"{distance:,} rows before"
    axes.set_xlabel(f"residual {before}")
    _label(axes.set_ylabel, f"residual of {shortened(column)}")
    axes.set_title(f"Residuals along the rows ({subject.rows_in_words()})", fontsize=11)
    return figure


def _checked_column(posterior: Posterior, data: Any, column: str) -> tuple[Subject, int]:
    """The rows that the checks look at, and the place of a column."""
    if column not in posterior.names:
        raise ConfigError(f"column must be one of {listed(posterior.names)}, not {column!r}")
    return residuals_of_table(posterior, data), posterior.names.index(column)


def _residual_lines(axes: Axes) -> None:
    """Zero, and where nineteen of twenty residuals lie."""
    axes.axhline(0, color=FAINT, linewidth=1)
    for edge in (-1.96, 1.96):
        axes.axhline(edge, color=FAINT, linewidth=0.8, linestyle="--")


# What ``Posterior.plot`` draws, by name.
PLOTS: dict[str, Callable[..., Figure]] = {
    "graph": graph,
    "edges": edge_heatmap,
    "effect": effect_of,
    "drivers": drivers,
    "sensitivity": sensitivity,
    "calibration": calibration,
    "trace": trace,
    "residuals": residuals,
    "quantiles": residual_quantiles,
    "lags": residual_lags,
}


def plot(posterior: Posterior, kind: str, **options: Any) -> Figure:
    """One of the figures by its name."""
    if kind not in PLOTS:
        raise ConfigError(f"kind of plot must be one of {', '.join(PLOTS)}, not {kind!r}")
    return PLOTS[kind](posterior, **options)


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plots", "drawing a figure") from None

    class ShownFigure(Figure):
        """A figure that a notebook shows, whether or not pyplot was imported."""

        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, format="png", dpi=110)
            return file.getvalue()

    return ShownFigure(figsize=(width, height), layout="constrained")


def _truth(truth: npt.ArrayLike | pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    if isinstance(truth, pd.DataFrame):
        missing = [name for name in names if name not in truth.index or name not in truth.columns]
        if missing:
            raise ConfigError(f"the true graph has no variable {missing[0]!r}, which the posterior has")
        truth = truth.loc[list(names), list(names)].to_numpy()
    matrix = np.asarray(truth).astype(bool)
    if matrix.shape != (len(names), len(names)):
        raise ConfigError(f"the true graph must have the shape {(len(names), len(names))}, not {matrix.shape}")
    return matrix


def _set_ticks(axes: Axes, places: Any, names: Sequence[str]) -> None:
    labels = [shortened(name) for name in names]
    axes.set_xticks(places, labels, rotation=60, ha="right", rotation_mode="anchor", fontsize=8, parse_math=False)
    axes.set_yticks(places, labels, fontsize=8, parse_math=False)


def _label(setter: Any, text: str) -> None:
    setter(text, parse_math=False)


def _draw_nodes(axes: Axes, layout: Layout, names: Sequence[str]) -> None:
    from matplotlib.patches import FancyBboxPatch

    width, height = 2 * HALF_NODE
    for x, y, name in zip(layout.x, layout.y, names, strict=True):
        corner = (x - width / 2, y - height / 2)
        style = f"round,pad=0,rounding_size={height / 4}"
        axes.add_patch(FancyBboxPatch(corner, width, height, style, facecolor="white", edgecolor=FAINT, zorder=2))
        axes.text(
            x, y, shortened(name, 14), ha="center", va="center", fontsize=9, color=INK, parse_math=False, zorder=3
        )


def _draw_edge(
    axes: Axes, start: np.ndarray, end: np.ndarray, bend: float, probability: float, opposite: float
) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    points = curve(start, end, np.array([bend]), np.linspace(0, 1, 81))[0]
    outside = np.any(np.abs(points - start) > HALF_NODE, axis=1) & np.any(np.abs(points - end) > HALF_NODE, axis=1)
    axes.add_patch(
        FancyArrowPatch(
            path=Path(points[outside]),
            arrowstyle="-|>",
            mutation_scale=8 + 6 * probability,
            linewidth=0.5 + 2.2 * probability,
            linestyle="--" if opposite >= OPEN_DIRECTION else "-",
            color=EDGE,
            alpha=0.2 + 0.8 * probability,
            zorder=1,
        )
    )
