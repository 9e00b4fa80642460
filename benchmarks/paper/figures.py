"""Figures of the stored lines: box plots as in the paper, curves, times; only those that have lines.

What can be drawn is told without matplotlib, which is needed only to draw it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.paper.lines import MECHANISMS, Group, Results, Setting, running_seconds
from benchmarks.paper.measuring import RECALLS
from benchmarks.paper.published import BESIDE, SACHS_ALL_RUNS, SACHS_COLUMNS, theirs
from vcuda.errors import MissingExtraError

MEASURES = {"auc_full": "AUC (full matrix)", "ap_full": "AP (full matrix)", "mse": "held-out MSE"}
FACES = {"ours": "#4c78a8", "paper": "#e45756", "competitor": "#72b7b2", "floor": "#bab0ac", "ablation": "#e45756"}
STYLES = {"ours": "-", "paper": "-", "competitor": "--", "floor": ":", "ablation": "-"}
PALETTE = "tab20"
TIMED_NODES = (10, 30, 50)
# Curves leave out what has none: constants, and the corrected competitors, which have few sets.
WITHOUT_CURVE = ("random-sort", "base-rate", "empty")
LEAST_PAIRS = 10
RESOLUTION = 130


class Picture(NamedTuple):
    """A figure by its file name, what it shows in a sentence, its size in inches, and how it is drawn."""

    name: str
    caption: str
    size: tuple[float, float]
    draw: Callable[[Any], None]


def draw_all(results: Results, folder: Path) -> list[Path]:
    """Draw every figure that has lines, as PNG and as PDF; the same lines give the same files."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plots", "drawing the figures") from None
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for picture in pictures(results):
        figure = Figure(figsize=picture.size, layout="constrained")
        picture.draw(figure)
        for ending, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None, "Producer": None})):
            written.append(folder / f"{picture.name}.{ending}")
            figure.savefig(written[-1], dpi=RESOLUTION, metadata=metadata)
            figure.set_layout_engine("none")  # the places that were found, which take most of the time, stay
    return written


def pictures(results: Results) -> Iterator[Picture]:
    """All figures that have lines, in the order of the document."""
    yield from _boxes(results)
    yield from _sachs(results)
    yield from _times(results)
    yield from _curves(results)
    yield from _temperatures(results)
    yield from _samplers(results)


# ------------------------------------------------------------------------------------------------------------ boxes --


def _boxes(results: Results) -> Iterator[Picture]:
    """The paper's figures of simulated data: AUC, AP and held-out error by graph family."""
    together: dict[tuple[Any, ...], list[tuple[Setting, list[Group]]]] = {}
    for settings in results.sizes().values():
        for setting, groups in settings.items():
            key = setting.nodes, setting.edges, setting.mechanism, setting.columns
            together.setdefault(key, []).append((setting, groups))
    for (nodes, edges, mechanism, columns), panels in together.items():
        kind = MECHANISMS[mechanism]
        published = any(_theirs(group) for _, groups in panels for group in groups)
        marks = ""
        if published:
            marks = (
                " Diamonds: published means of ten runs." if nodes == 10 else " Bars: published medians of five runs."
            )
        caption = f"{kind.capitalize()} functions, {columns} columns, d = {nodes}, e = {edges}. Dots: data sets.{marks}"
        titles = [(setting.kind, groups) for setting, groups in panels]
        yield Picture(
            f"paper-d{nodes}-e{edges}-{kind}-{columns}",
            caption,
            (1.5 + 5.2 * len(panels), 9.0),
            partial(_draw_boxes, panels=titles, measures=MEASURES, marks=_theirs),
        )


def _theirs(group: Group) -> tuple[dict[str, float], str] | None:
    setting = group.setting
    if setting.columns != "raw":
        return None
    return theirs(group.method, setting.nodes, setting.edges, setting.graph, setting.mechanism)


def _sachs(results: Results) -> Iterator[Picture]:
    panels = [(setting.kind, groups) for setting, groups in results.sachs().items()]
    if panels:
        yield Picture(
            "paper-sachs",
            "The Sachs cells. Dots: restarts. Diamonds: means of the authors' ten restarts, at the columns that they "
            "gave to the method.",
            (1.5 + 5.2 * len(panels), 6.5),
            partial(_draw_boxes, panels=panels, measures=dict(list(MEASURES.items())[:2]), marks=_their_restarts),
        )


def _their_restarts(group: Group) -> tuple[dict[str, float], str] | None:
    name = BESIDE.get(group.method, "")
    if SACHS_COLUMNS.get(name) != group.setting.columns:
        return None
    both = SACHS_ALL_RUNS[name]
    return {"auc_full": both.auc.mean, "ap_full": both.ap.mean}, "mean"


def _draw_boxes(
    figure: Any,
    *,
    panels: Sequence[tuple[str, Sequence[Group]]],
    measures: dict[str, str],
    marks: Callable[[Group], tuple[dict[str, float], str] | None],
) -> None:
    """Rows of measures, a column for each panel; each method's box, its single runs, and what is published."""
    axes = figure.subplots(len(measures), len(panels), squeeze=False, sharey="row", sharex="col")
    for column, (title, groups) in enumerate(panels):
        axes[0, column].set_title(title)
        for row, (key, label) in enumerate(measures.items()):
            axis = axes[row, column]
            for place, group in enumerate(groups):
                _draw_box(axis, place, list(group.values(key).values()), FACES[group.family], group.corrected)
                found = marks(group)
                if found is not None and key in found[0]:
                    shape = {"marker": "D", "s": 28} if found[1] == "mean" else {"marker": "_", "s": 260}
                    axis.scatter([place], [found[0][key]], color="black", zorder=4, linewidths=1.6, **shape)
            _grid(axis)
            if column == 0:
                axis.set_ylabel(label)
        _named_methods(axes[-1, column], [group.title for group in groups])
    for row, key in enumerate(measures):
        together = [group for _, groups in panels for group in groups]
        values = [value for group in together for value in group.values(key).values()]
        values += [found[0][key] for found in map(marks, together) if found is not None and key in found[0]]
        if key == "mse" and values and max(values) > 5 * min(values) > 0:
            axes[row, 0].set_yscale("log")


def _draw_box(axis: Any, place: float, values: Sequence[float], face: str, pale: bool) -> None:
    if not values:
        return
    if len(values) > 2:
        drawn = axis.boxplot([values], positions=[place], widths=0.6, patch_artist=True, showfliers=False)
        for box in drawn["boxes"]:
            box.set(facecolor=face, alpha=0.35 if pale else 0.75)
        for median in drawn["medians"]:
            median.set(color="black")
    # Spread by the place in the list and not by chance, so that the same lines give the same figure.
    offsets = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
    axis.scatter(place + offsets, values, s=9, color=face, edgecolors="black", linewidths=0.4, zorder=3)


def _named_methods(axis: Any, titles: Sequence[str]) -> None:
    axis.set_xlim(-0.7, len(titles) - 0.3)
    axis.set_xticks(range(len(titles)), [title.replace("`", "") for title in titles], rotation=90)


def _grid(axis: Any) -> None:
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)


# ------------------------------------------------------------------------------------------------------------ times --


def _times(results: Results) -> Iterator[Picture]:
    """Nonlinear, ER, raw, as in the paper."""
    groups = [
        group
        for group in results.groups
        if (group.setting.mechanism, group.setting.graph, group.setting.columns) == ("gp", "er", "raw")
        and group.setting.nodes in TIMED_NODES
        and group.setting.edges == group.setting.nodes
        and group.family not in ("floor", "ablation")
        and not group.corrected
        and (group.done or group.over)
    ]
    if len({group.setting.nodes for group in groups if group.done}) > 1:
        yield Picture(
            "paper-time",
            "Seconds of a fit without compilation (medians) against the number of nodes; nonlinear, ER, raw. "
            "Triangles: not ended within the limit.",
            (7.5, 4.8),
            partial(_draw_times, groups=groups, order=list(results.titles)),
        )


def _draw_times(figure: Any, *, groups: Sequence[Group], order: Sequence[str]) -> None:
    axis = figure.subplots()
    for method in dict.fromkeys(group.method for group in groups):
        same = [group for group in groups if group.method == method]
        points = [
            (each.setting.nodes, float(np.median([running_seconds(line) for line in each.done])))
            for each in same
            if each.done
        ]
        color, title = _color(method, order), same[0].title.replace("`", "")
        axis.plot(*np.array(points).reshape(-1, 2).T, STYLES[same[0].family], marker="o", color=color, label=title)
        for each in same:
            if each.over and not each.done:
                axis.scatter([each.setting.nodes], [each.over[0]["limit_seconds"]], marker="^", s=60, color=color)
    axis.set(xlabel="nodes d", ylabel="seconds", yscale="log", xticks=sorted({each.setting.nodes for each in groups}))
    _grid(axis)
    figure.legend(loc="outside right center", fontsize=8)


def _color(method: str, order: Sequence[str]) -> Any:
    """The same one for a method in every figure."""
    from matplotlib import colormaps

    return colormaps[PALETTE](order.index(method) % colormaps[PALETTE].N)


# ----------------------------------------------------------------------------------------------------------- curves --


def _curves(results: Results) -> Iterator[Picture]:
    """Precision by recall and stated against true, each setting in a panel of its own."""
    order = list(results.titles)
    by_size: dict[tuple[str, str], dict[Setting, list[Group]]] = {}
    for setting, groups in results.compared().items():
        sachs = setting.source == "sachs"
        key = ("sachs", "Sachs") if sachs else (f"d{setting.nodes}-e{setting.edges}", setting.size)
        drawn = [group for group in groups if not group.corrected and group.method not in WITHOUT_CURVE]
        if drawn:
            by_size.setdefault(key, {})[setting] = drawn
    for (name, words), panels in by_size.items():
        yield Picture(
            f"paper-precision-recall-{name}",
            f"Precision by recall, {words}: the mean over the runs of a method of the best precision at this recall or "
            "more. Methods can have fewer runs than others; the tables say how many.",
            _size_of(panels),
            partial(_draw_curves, panels=panels, order=order, curve=_precision, labels=("recall", "precision")),
        )
        curved = {
            setting: [group for group in groups if len(_stated(group)[0]) > 2] for setting, groups in panels.items()
        }
        curved = {setting: groups for setting, groups in curved.items() if groups}
        if curved:
            labels = ("stated probability", "share of true edges")
            yield Picture(
                f"paper-calibration-{name}",
                f"Stated probability against the share of true edges, {words}: bins of at least {LEAST_PAIRS} pairs, "
                "methods that have at least three of them. On the diagonal, what is stated is true.",
                _size_of(curved),
                partial(_draw_curves, panels=curved, order=order, curve=_stated, labels=labels, diagonal=True),
            )


def _shape(panels: Sized) -> tuple[int, int]:
    """Rows and columns of panels, at most four beside each other."""
    return -(-len(panels) // 4), min(len(panels), 4)


def _size_of(panels: Sized) -> tuple[float, float]:
    rows, columns = _shape(panels)
    return 2.2 + 3.4 * columns, 0.8 + 3.4 * rows


def _precision(group: Group) -> tuple[np.ndarray, np.ndarray]:
    return RECALLS, np.mean([line["precision_at_recall"] for line in group.done], axis=0)


def _stated(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Mean probability and share of true edges in each bin that has enough pairs."""
    keys = ("bin_pairs", "bin_stated", "bin_true")
    pairs, stated, true = (np.sum([line[key] for line in group.done], axis=0, dtype=float) for key in keys)
    enough = pairs >= LEAST_PAIRS
    return stated[enough] / pairs[enough], true[enough] / pairs[enough]


def _draw_curves(
    figure: Any,
    *,
    panels: dict[Setting, list[Group]],
    order: Sequence[str],
    curve: Callable[[Group], tuple[np.ndarray, np.ndarray]],
    labels: tuple[str, str],
    diagonal: bool = False,
) -> None:
    axes = figure.subplots(*_shape(panels), squeeze=False, sharex=True, sharey=True)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    drawn: dict[str, Any] = {}
    for axis, (setting, groups) in zip(axes.flat, panels.items(), strict=False):
        if diagonal:
            axis.plot([0, 1], [0, 1], color="black", linewidth=0.6)
        for group in groups:
            look = {"color": _color(group.method, order), "linestyle": STYLES[group.family]}
            look |= {"marker": "." if diagonal else "", "linewidth": 2.2 if group.family == "ours" else 1.3}
            (drawn[group.method],) = axis.plot(*curve(group), **look)
        axis.set(title=setting.kind, xlim=(0, 1), ylim=(0, 1.02))
        axis.grid(alpha=0.3)
    figure.supxlabel(labels[0])
    figure.supylabel(labels[1])
    titles = {group.method: group.title.replace("`", "") for groups in panels.values() for group in groups}
    shown = [method for method in order if method in drawn]
    figure.legend([drawn[each] for each in shown], [titles[each] for each in shown], loc="outside right center")


# ---------------------------------------------------------------------------------------- temperatures and samplers --


def _temperatures(results: Results) -> Iterator[Picture]:
    panels = [(setting.kind, groups) for setting, groups in results.ablation().items()]
    if panels:
        yield Picture(
            "paper-temperature",
            "VCUDA as published by its temperature t, linear, d = 10. Dots: data sets.",
            (1.5 + 3.2 * len(panels), 8.0),
            partial(_draw_boxes, panels=panels, measures=MEASURES, marks=lambda group: None),
        )


def _samplers(results: Results) -> Iterator[Picture]:
    timings = list(results.timings())
    if len({each["nodes"] for each in timings}) > 1:
        yield Picture(
            "paper-sampling",
            "Milliseconds to draw one DAG, compilation apart. Dashed: the authors' means, on a GPU.",
            (7.5, 4.6),
            partial(_draw_samplers, timings=timings),
        )


def _draw_samplers(figure: Any, *, timings: Sequence[dict[str, Any]]) -> None:
    axis = figure.subplots()
    plain = [each for each in timings if "gradient" not in each["method"] and "copy" not in each["method"]]
    for name, method in dict.fromkeys((each["distribution"], each["method"]) for each in plain):
        same = sorted(
            (each for each in plain if (each["distribution"], each["method"]) == (name, method)),
            key=lambda each: each["nodes"],
        )
        label = method if name == "any" else f"{name}, {method}"
        clock = [each["milliseconds"]["clock"] for each in same]
        (line,) = axis.plot([each["nodes"] for each in same], clock, marker="o", label=label)
        published = [each for each in same if each["published_gpu_milliseconds"] is not None]
        if published:
            milliseconds = [each["published_gpu_milliseconds"] for each in published]
            look = {"color": line.get_color(), "linestyle": "--", "marker": "D"}
            axis.plot([each["nodes"] for each in published], milliseconds, label=f"{name}, published (GPU)", **look)
    axis.set(xlabel="nodes d", ylabel="milliseconds a graph", xscale="log", yscale="log")
    sizes = sorted({each["nodes"] for each in plain})
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.set_xticks([], minor=True)
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right center", fontsize=8)
