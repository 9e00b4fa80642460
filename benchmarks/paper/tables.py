"""Markdown tables made of the stored lines: accuracy, costs, Sachs, the ablation, samplers, and what is not there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.paper.lines import Group, Results, Setting, complete, leaders, paired, running_seconds, shown
from benchmarks.paper.published import (
    BESIDE,
    SACHS_ALL_RUNS,
    SACHS_COLUMNS,
    SACHS_OFF_DIAGONAL_AUC,
    SACHS_TABLE,
    Spread,
    theirs,
)
from benchmarks.records import Line, grouped, markdown

# Their AP is the share of true edges and their AUC one half, whatever the data.
UNINFORMED = {"base-rate", "empty"}


def all_tables(results: Results) -> str:
    """Every table that has lines, under its heading."""
    parts = [
        ("By method", by_method(results)),
        ("By size: AP / AUC", overview(results)),
        ("By setting", accuracy(results)),
        ("Beside the published numbers", beside_published(results)),
        ("Sachs: the paper's Table 1", sachs(results)),
        ("The temperature t", ablation(results)),
        ("Seconds and memory", costs(results)),
        ("Sampling DAGs", sampling(results)),
        ("What is not there", missing(results)),
    ]
    return _under_headings(parts)


def main_tables(results: Results) -> str:
    """The tables that a reader of the page needs."""
    return _under_headings(
        [
            ("By method", by_method(results)),
            ("By size: AP / AUC", overview(results)),
            ("Sachs: the paper's Table 1", sachs(results)),
            ("Seconds", seconds(results)),
            ("What is not there", missing(results)),
        ]
    )


def _under_headings(parts: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"## {title}\n\n{body}" for title, body in parts if body)


def by_method(results: Results) -> str:
    """One row a method: how often it is best, how often worse than no learning, and whether its probabilities hold."""
    settings = results.compared()
    rows = []
    for name, title in results.titles.items():
        own = [(setting, group) for setting, groups in settings.items() for group in groups if group.method == name]
        if not own:
            continue
        ranked = [setting for setting, group in own if len(complete(settings[setting], "ap")) > 1]
        best = [setting for setting in ranked if name in {group.method for group in leaders(settings[setting], "ap")}]
        changes = [
            (pair.one, pair.other)
            for setting, group in own
            for same in settings.get(setting._replace(columns="standardised"), [])
            if setting.columns == "raw" and setting.source != "sachs" and same.method == name
            if (pair := paired(group, same, "ap")) is not None
        ]
        mean = np.mean(changes, axis=0) if changes else None
        briers = [(shown(group.mean("brier")), shown(group.mean("base_rate_brier"))) for _, group in own]
        known = [(brier, base) for brier, base in briers if not math.isnan(brier + base)]
        errors = [error for _, group in own if (error := group.mean("calibration_error")) is not None]
        rows.append(
            [
                *(title, len(own), f"{len(best)} of {len(ranked)}"),
                "" if own[0][1].family == "floor" else _behind_floor(settings, own),
                "" if mean is None else f"{mean[0]:.3f} → {mean[1]:.3f} ({len(changes)})",
                f"{sum(brier < base for brier, base in known)} of {len(known)}" if known else "",
                _number(float(np.mean(errors)) if errors else None, ".3f"),
            ]
        )
    if not rows:
        return ""
    remark = (
        "Counts are of settings, means are over settings, on the sets that both sides have. A *floor* learns nothing: "
        "an empty graph, the base rate, or columns sorted and regressed. A method's settings are not all those of "
        "another: compare methods in the tables by size."
    )
    header = ["method", "settings", "highest AP in", "AP below a floor in", "AP, raw → standardised (settings)"]
    header += ["Brier score below that of the base rate in", "calibration error"]
    return f"{remark}\n\n{markdown(header, rows)}"


def _behind_floor(settings: dict[Setting, list[Group]], own: Sequence[tuple[Setting, Group]]) -> str:
    behind = known = 0
    for setting, group in own:
        floors = [floor for floor in settings[setting] if floor.family == "floor"]
        pairs = [pair for floor in floors if (pair := paired(group, floor, "ap")) is not None]
        known += bool(pairs)
        behind += any(shown(pair.one) < shown(pair.other) for pair in pairs)
    return f"{behind} of {known}"


def seconds(results: Results) -> str:
    """Methods by size and kind of functions: median seconds of a run without compilation."""
    found: dict[str, dict[str, list[float]]] = {}
    for group in results.groups:
        if group.family != "ablation" and group.done and group.setting.edges in (None, group.setting.nodes):
            kind = {"gp": " nonlinear", "linear": " linear"}.get(group.setting.mechanism or "", "")
            place = f"d = {group.setting.nodes}{kind}" if kind else "Sachs"
            own = found.setdefault(place, {}).setdefault(group.method, [])
            own += [running_seconds(line) for line in group.done]
    if not found:
        return ""
    names = [name for name in results.titles if any(name in methods for methods in found.values())]
    rows = [[results.titles[name], *(_median(methods.get(name, [])) for methods in found.values())] for name in names]
    remark = (
        "Median seconds of a run, compilation apart, with as many edges as nodes, over graph families, raw and "
        "standardised columns."
    )
    return f"{remark}\n\n{markdown(['method', *found], rows)}"


def overview(results: Results) -> str:
    """One table a size: methods by settings, mean AP and AUC without the diagonal."""
    parts = []
    for size, settings in results.sizes().items():
        found = {group.method for groups in settings.values() for group in groups} - UNINFORMED
        names = [name for name in results.titles if name in found]
        best = {
            setting: {g.method for g in leaders(groups, "ap")} if len(complete(groups, "ap")) > 1 else set()
            for setting, groups in settings.items()
        }
        rows = []
        for name in names:
            row = [results.titles[name]]
            for setting, groups in settings.items():
                group = next((each for each in groups if each.method == name), None)
                row.append(_pair(group, groups, bold=name in best[setting]) if group else "")
            rows.append(row)
        kinds = [f"{setting.kind} ({_most(groups)})" for setting, groups in settings.items()]
        parts.append(f"**{size}**\n\n{markdown(['method', *kinds], rows)}")
    if not parts:
        return ""
    remark = (
        "Mean AP / AUC over all ordered pairs of different nodes. In brackets the number of data sets, at the methods "
        "that have fewer of them. Bold: the highest AP of the methods that have all. The empty graph and the base rate "
        "have an AUC of one half everywhere."
    )
    return "\n\n".join([remark, *parts])


def _most(groups: Sequence[Group]) -> int:
    return max(len(group.done) for group in groups)


def _pair(group: Group, groups: Sequence[Group], *, bold: bool) -> str:
    ap, auc = group.mean("ap"), group.mean("auc")
    if ap is None or auc is None:
        return "no number"
    mark = "**" if bold else ""
    fewer = "" if group in complete(groups, "ap") else f" ({len(group.values('ap'))})"
    return f"{mark}{ap:.3f}{mark} / {auc:.3f}{fewer}"


def accuracy(results: Results) -> str:
    """One table a simulated setting, with every measure."""
    parts = []
    for settings in results.sizes().values():
        for setting, groups in settings.items():
            rows = [[group.title, _sets(group), *_measures(group)] for group in groups]
            header = ["method", "sets", "AP", "AUC", "AP, full matrix", "AUC, full matrix", "skeleton AP"]
            header += ["expected SHD", "edges expected / true", "Brier", "calibration error", "held-out MSE", "status"]
            parts.append(f"**{setting.words}**\n\n{markdown(header, rows)}")
    if not parts:
        return ""
    remark = (
        "Mean ± standard deviation over data sets. *Full matrix* counts the diagonal as negatives, as the paper does. "
        "The held-out error is that of 1,000 fresh rows of the same functions, in the units of the columns; methods "
        "without functions have none. Runs that did not end within the limit count for nothing here."
    )
    return "\n\n".join([remark, *parts])


def _measures(group: Group) -> list[str]:
    true, expected = group.mean("true_edges"), group.mean("expected_edges")
    return [
        *(spread(group, key) for key in ("ap", "auc", "ap_full", "auc_full", "skeleton_ap")),
        _number(group.mean("expected_shd"), ".1f"),
        f"{_number(expected, '.1f')} / {_number(true, '.1f')}",
        *(_number(group.mean(key), ".4f") for key in ("brier", "calibration_error")),
        _number(group.mean("mse"), ".3f"),
        statuses(group.lines),
    ]


def spread(group: Group, key: str) -> str:
    """Mean ± standard deviation, or the one number that there is."""
    values = list(group.values(key).values())
    return _spread(Spread(float(np.mean(values)), float(np.std(values)) if len(values) > 1 else None)) if values else ""


def _spread(numbers: Spread, digits: int = 3) -> str:
    deviation = "" if numbers.sd is None else f" ± {numbers.sd:.{digits}f}"
    return f"{numbers.mean:.{digits}f}{deviation}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _sets(group: Group) -> str:
    return f"{len(group.done)} of {group.planned}"


def statuses(lines: Iterable[Line]) -> str:
    """How many ended how: over the limit, with an error, or as their status says."""
    counts = Counter(
        "error" if "error" in line else "over the limit" if line.get("over_limit") else line["status"] for line in lines
    )
    return ", ".join(f"{code} {count}" for code, count in sorted(counts.items()))


def beside_published(results: Results) -> str:
    """The methods of the paper on its own settings: our numbers, the published ones, and the difference."""
    rows = []
    for setting, groups in results.compared().items():
        for group in groups if setting.columns == "raw" else []:
            found = theirs(group.method, setting.nodes, setting.edges, setting.graph, setting.mechanism)
            if found is None:
                continue
            row = [setting.words, group.title, _sets(group), found.statistic]
            for key in ("auc_full", "ap_full", "mse"):
                ours = statistic(group, key, found.statistic)
                published = found.numbers.get(key)
                row += [_number(ours, ".3f"), _number(published, ".3f")]
                row.append("" if ours is None or published is None else f"{ours - published:+.3f}")
            rows.append(row)
    if not rows:
        return ""
    header = ["data", "method", "sets", "statistic", "AUC", "published", "difference", "AP", "published", "difference"]
    header += ["held-out MSE", "published", "difference"]
    remark = (
        "AUC and AP of the full matrix. At d = 10 the published numbers are means over all ten runs that the authors "
        "stored; at d = 50 and 100 they are medians of the five runs in the paper's figures, on data sets that need "
        "not be ours. Errors stand here only where the published ones are mean squared errors on rows of the same "
        "functions."
    )
    return f"{remark}\n\n{markdown(header, rows)}"


def statistic(group: Group, key: str, which: str) -> float | None:
    """The mean or the median over sets, whichever is published."""
    values = list(group.values(key).values())
    return float((np.mean if which == "mean" else np.median)(values)) if values else None


def sachs(results: Results) -> str:
    """Table 1 of the paper: our restarts, its own numbers, and all ten runs of its authors."""
    rows = []
    for setting, groups in results.sachs().items():
        for group in groups:
            name = BESIDE.get(group.method, "")
            given = SACHS_COLUMNS.get(name) == setting.columns
            printed, stored = (table[name] if given else None for table in (SACHS_TABLE, SACHS_ALL_RUNS))
            rows.append(
                [
                    *(group.title, setting.columns, _sets(group)),
                    spread(group, "auc_full"),
                    *("" if each is None else _spread(each.auc) for each in (printed, stored)),
                    spread(group, "ap_full"),
                    *("" if each is None else _spread(each.ap) for each in (printed, stored)),
                    spread(group, "auc"),
                    _number(SACHS_OFF_DIAGONAL_AUC.get(name) if given else None, ".3f"),
                    spread(group, "ap"),
                    *(_number(group.mean(key), ".1f") for key in ("expected_edges", "expected_shd")),
                    _number(group.mean("calibration_error"), ".4f"),
                    statuses(group.lines),
                ]
            )
    if not rows:
        return ""
    header = ["method", "columns", "restarts", "AUC, full matrix", "Table 1", "their ten runs", "AP, full matrix"]
    header += ["Table 1", "their ten runs", "AUC", "their ten runs", "AP", "expected edges", "expected SHD"]
    header += ["calibration error", "status"]
    remark = (
        "853 cells, 11 proteins, a consensus network of 17 edges. Table 1 has the five restarts that ended first of "
        "the ten that the authors stored. Published numbers stand at the columns that the authors gave to the method."
    )
    return f"{remark}\n\n{markdown(header, rows)}"


def ablation(results: Results) -> str:
    """The paper's VCUDA by its temperature."""
    rows = [
        [setting.words, f"{group.temperature:g}", _sets(group)]
        + [spread(group, key) for key in ("auc_full", "ap_full", "auc", "ap", "mse")]
        for setting, groups in results.ablation().items()
        for group in groups
    ]
    header = ["data", "t", "sets", "AUC, full matrix", "AP, full matrix", "AUC", "AP", "held-out MSE"]
    return markdown(header, rows) if rows else ""


def costs(results: Results) -> str:
    """By size and kind of functions: seconds with and without compilation, memory, and what did not end."""
    rows = []
    pooled: dict[tuple[str, str, str], list[Line]] = {}
    for group in results.groups:
        if group.family != "ablation" and group.lines:
            key = group.setting.size, group.setting.mechanism or "", group.method
            pooled.setdefault(key, []).extend(line for line in group.lines if "error" not in line)
    for (size, mechanism, method), lines in pooled.items():
        ended = [line for line in lines if not line["over_limit"]]
        if not lines:
            continue
        rows.append(
            [
                f"{size}, {'nonlinear' if mechanism == 'gp' else mechanism}".rstrip(", "),
                *(results.titles[method], len(ended)),
                _median([running_seconds(line) for line in ended]),
                _median([line["seconds"] for line in ended if line["first"]]),
                _median([line["processor_seconds"] for line in ended]),
                f"{max(line['peak_mb'] for line in lines):.0f}",
                _over([line for line in lines if line["over_limit"]]),
            ]
        )
    if not rows:
        return ""
    header = ["data", "method", "runs that ended", "s, compilation apart", "s, first of a process with compilation"]
    header += ["processor s", "peak MB", "over the limit"]
    shared = any(line.get("jobs", 1) > 1 for line in results.lines)
    remark = "Medians over graph families, raw and standardised columns; the peak is the largest of all."
    if shared:
        remark += " Some runs had another one beside them on the machine: their seconds by the clock are upper bounds."
    return f"{remark}\n\n{markdown(header, rows)}"


def _median(seconds: Sequence[float]) -> str:
    return f"{np.median(seconds):.3g}" if len(seconds) else ""


def _over(lines: Sequence[Line]) -> str:
    """How many, and the hours that those which were given up early would have needed."""
    foreseen = sorted(line["foreseen_seconds"] / 3600 for line in lines if "foreseen_seconds" in line)
    ends = dict.fromkeys(f"{hours:.1f}" for hours in foreseen[:1] + foreseen[-1:])
    seen = f"; foreseen {' to '.join(ends)} hours" if ends else ""
    return f"{len(lines)}{seen}" if lines else ""


def sampling(results: Results) -> str:
    """Milliseconds for one graph, beside the published ones."""
    rows = []
    for each in sorted(results.timings(), key=lambda each: each["nodes"]):
        times, published = each["milliseconds"], each["published_gpu_milliseconds"]
        rows.append([f"{each['nodes']:,}", each["distribution"], each["method"], f"{times['clock']:.2f}"])
        rows[-1] += [f"{times['processor']:.2f}", "" if published is None else f"{published:g}"]
    if not rows:
        return ""
    remark = "Median milliseconds for one graph, compilation apart; published: the authors' means, on a GPU."
    header = ["nodes", "distribution", "method", "ms", "processor ms", "published, GPU (ms)"]
    return f"{remark}\n\n{markdown(header, rows)}"


def missing(results: Results) -> str:
    """Runs that failed or were ended, with their words, and planned ones that have no line."""
    seen, not_run = [], dict[str, list[Group]]()
    for group in results.groups:
        where = f"{group.title}; {group.setting.words}"
        for (error,), lines in grouped(group.failed, ("error",)).items():
            seen.append(f"- failed: {where}, {_numbers(lines)}: {error}")
        for (sentence,), lines in grouped(group.over, ("status_sentence",)).items():
            seen.append(f"- over the limit: {where}, {_numbers(lines)}: {sentence}")
        not_run.setdefault(group.setting.words, []).append(group)
    for words, groups in not_run.items():
        lacking = [group for group in groups if len(group.lines) < group.planned]
        if not any(group.lines for group in groups):
            seen.append(f"- not run: {words}: nothing of {sum(group.planned for group in groups)} planned runs")
        elif lacking:
            counts = (f"{group.title} ({group.planned - len(group.lines)} of {group.planned})" for group in lacking)
            seen.append(f"- not run: {words}: {', '.join(counts)}")
    without = results.planned_draws - len(results.sampling)
    if without:
        seen.append(f"- not run, or failed: {without} of {results.planned_draws} measurements of samplers")
    return "\n".join(seen)


def _numbers(lines: Sequence[Line]) -> str:
    return ("sets " if len(lines) > 1 else "set ") + ", ".join(str(line["index"]) for line in lines)
