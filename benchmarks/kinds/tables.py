"""Markdown tables made of stored lines: a row for each setting and method, what should hold, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from benchmarks.kinds.cases import NOISES, SUITES, TIMES, Case
from benchmarks.records import Line, grouped, markdown

SETTING = ("data", "mechanism", "nodes", "rows", "method")
METHODS = {
    "default": "`vcuda.fit`, by default",
    "bge": "BGe, labels as codes",
    "degenerate": "degenerate Gaussian (BGe, labels one-hot, roots of counts)",
    "lingam": "DirectLiNGAM",
}
FUNCTIONS = {"linear": "linear", "gp": "nonlinear", None: ""}
OPENING = """# Mixed tables and noise of every shape

`python -m benchmarks kinds --write-docs` makes this page from the lines in `benchmarks/results/kinds-*.jsonl`, one a
run, with its commit and versions; do not edit it. `vcuda.fit` is given nothing but the table, as a file would give it.
Simulated tables have as many expected edges as columns ([how they are made](simulation.md)); all sets are reported.

AP (average precision) and AUC rank ordered pairs of columns. The log loss is the mean over pairs of columns of minus
the logarithm of the probability of what is true of it: an edge, the opposite edge, or none. Sure edges have a
probability of at least 0.9; DirectLiNGAM states no probabilities, and each edge of its graph counts as sure. Where
functions are linear and the noise is Gaussian, the table leaves directions open, so that no method can have an AP of
1; the skeleton's AP ignores directions.
"""
TITLES = {
    "mixed": "Tables of several kinds",
    "shapes": "Noise of every shape, and columns that look like numbers",
    "gaussian": "Gaussian noise",
    "times": "Seconds and memory",
    "bundled": "The bundled tables",
}
# What the default should reach: average precision, and the share of sure edges that are true.
MIXED_AP, MIXED_TRUE, SHAPES_AP, SHAPES_TRUE, GAUSSIAN_KEPT = 0.95, 0.95, 0.95, 0.92, 2 / 3
# Linear functions with these data, or any nonlinear ones, tell every direction.
IDENTIFIED = (*NOISES, "spread by causes")


def page(stored: Mapping[str, Sequence[Line]]) -> str:
    """The whole page of results."""
    parts = [f"## {TITLES[suite]}\n\n{tables(suite, lines)}" for suite, lines in stored.items()]
    return "\n\n".join([OPENING.rstrip("\n"), *parts]) + "\n"


def tables(suite: str, lines: Sequence[Line]) -> str:
    """All tables of a suite, and the runs that failed or have not been run."""
    lines = _in_order(suite, lines)
    parts = [_accuracy(suite, lines), _aims(suite, lines), _failures(suite, lines)]
    return "\n\n".join(part for part in parts if part)


def _planned(suite: str) -> list[Case]:
    return [case for group in SUITES[suite]() for case in group]


def _in_order(suite: str, lines: Sequence[Line]) -> list[Line]:
    """As the suite has them, whatever the order in which they were measured."""
    places = {tuple(case.what()[key] for key in SETTING): k for k, case in enumerate(_planned(suite))}
    return sorted(lines, key=lambda line: places.get(tuple(line[key] for key in SETTING), len(places)))


def _accuracy(suite: str, lines: Sequence[Line]) -> str:
    planned = Counter(tuple(case.what()[key] for key in SETTING) for case in _planned(suite))
    rows = []
    for setting, group in grouped(lines, SETTING).items():
        measured = [line for line in group if "error" not in line]
        data, mechanism, nodes, count, method = setting
        first, later = ([line["seconds"] for line in measured if line.get("first") is flag] for flag in (True, False))
        rows.append(
            [
                *(data, FUNCTIONS[mechanism], nodes, f"{count:,}", METHODS[method]),
                f"{len(measured)} of {max(planned[setting], len(group))}",
                *(_spread(measured, "ap"), _mean(measured, "auc"), _mean(measured, "skeleton_ap")),
                *(_mean(measured, "pair_log_loss"), _sure(measured)),
                *(f"{np.mean(first):.1f}" if first else "", f"{np.median(later):.1f}" if later else ""),
                *(_mean(measured, "seconds_cpu", ".1f"), _most(measured, "peak_mb"), _statuses(group)),
                _chosen(measured),
            ]
        )
    header = ["data", "functions", "columns", "rows", "method", "sets", "AP", "AUC", "skeleton AP", "log loss"]
    header += ["sure edges: true", "s, first with compilation", "s, later", "CPU s", "peak MB", "status", "model"]
    return markdown(header, rows) if rows else ""


def _values(group: Iterable[Line], key: str) -> list[float]:
    return [line[key] for line in group if line.get(key) is not None]


def _mean(group: Sequence[Line], key: str, form: str = ".3f") -> str:
    values = _values(group, key)
    return format(np.mean(values), form) if values else ""


def _spread(group: Sequence[Line], key: str) -> str:
    values = _values(group, key)
    return f"{np.mean(values):.3f} (min {min(values):.3f})" if values else ""


def _most(group: Sequence[Line], key: str) -> str:
    values = _values(group, key)
    return f"{max(values):.0f}" if values else ""


def _sure(group: Sequence[Line]) -> str:
    sure, true = (int(sum(_values(group, key))) for key in ("sure", "sure_true"))
    if not group:
        return ""
    return f"{true} of {sure}" + (f" ({true / sure:.2f})" if sure else "")


def _statuses(group: Sequence[Line]) -> str:
    counts = Counter("error" if "error" in line else line["status"] for line in group)
    return ", ".join(f"{code} {count}" for code, count in sorted(counts.items()))


def _chosen(group: Sequence[Line]) -> str:
    counts = Counter(
        " ".join(str(line["chosen"][key]) for key in ("model", "engine")) for line in group if "chosen" in line
    )
    return ", ".join(f"{name}: {count}" for name, count in counts.most_common())


# What should hold ---------------------------------------------------------------------------------------------


def _aims(suite: str, lines: Sequence[Line]) -> str:
    """What the default should reach in this suite, and whether it does."""
    measured = [line for line in lines if "error" not in line and line["method"] == "default"]
    rows = {"mixed": _mixed_aims, "shapes": _shapes_aims, "gaussian": _gaussian_aims, "times": _time_aims}.get(suite)
    if rows is None:
        return ""
    found = rows(measured, lines)
    return markdown(["what should hold", "found", "holds"], found) if found else ""


def _row(words: str, found: str, holds: bool) -> list[str]:
    return [words, found, "yes" if holds else "**no**"]


def _share_row(words: str, group: Sequence[Line], least: float) -> list[list[str]]:
    sure, true = (sum(_values(group, key)) for key in ("sure", "sure_true"))
    words = f"{words}: at least {least:.0%} of the sure edges are true"
    return [_row(words, f"{_sure(group)}", true >= least * sure)] if sure else []


def _mixed_aims(measured: Sequence[Line], _: Sequence[Line]) -> list[list[str]]:
    rows = []
    for (mechanism, nodes, count), group in grouped(measured, ("mechanism", "nodes", "rows")).items():
        words = f"{FUNCTIONS[mechanism]}, {nodes} columns, {count:,} rows"
        if (nodes, count) == (8, 500):
            ap = float(np.mean(_values(group, "ap")))
            rows.append(_row(f"{words}: AP at least {MIXED_AP}", f"{ap:.3f}", ap >= MIXED_AP))
        rows += _share_row(words, group, MIXED_TRUE)
    return rows


def _shapes_aims(measured: Sequence[Line], _: Sequence[Line]) -> list[list[str]]:
    rows = []
    for (data, mechanism, count), group in grouped(measured, ("data", "mechanism", "rows")).items():
        words = f"{data}, {FUNCTIONS[mechanism]}, {count:,} rows"
        rows += _share_row(words, group, SHAPES_TRUE)
        if mechanism != "linear" or data in IDENTIFIED:
            ap = float(np.mean(_values(group, "ap")))
            rows.append(_row(f"{words}: AP at least {SHAPES_AP}", f"{ap:.3f}", ap >= SHAPES_AP))
    return rows


def _gaussian_aims(measured: Sequence[Line], lines: Sequence[Line]) -> list[list[str]]:
    """Sure edges against those of BGe alone, on the sets that both have."""
    rows = []
    for (mechanism, count), group in grouped(measured, ("mechanism", "rows")).items():
        words = f"{FUNCTIONS[mechanism]}, {count:,} rows"
        rows += _share_row(words, group, SHAPES_TRUE)
        alone = {
            line["index"]: line
            for line in lines
            if (line["method"], line["mechanism"], line["rows"]) == ("bge", mechanism, count) and "error" not in line
        }
        both = [line for line in group if line["index"] in alone]
        if both:
            sure, before = (sum(_values(each, "sure")) for each in (both, [alone[line["index"]] for line in both]))
            words = f"{words}: sure edges, at least two thirds of those of BGe alone"
            rows.append(_row(words, f"{sure:.0f} against {before:.0f}", sure >= GAUSSIAN_KEPT * before))
    return rows


def _time_aims(measured: Sequence[Line], _: Sequence[Line]) -> list[list[str]]:
    rows = []
    for nodes, count, data, seconds in TIMES:
        found = [line for line in measured if (line["nodes"], line["rows"], line["data"]) == (nodes, count, data)]
        words = f"{nodes:,} columns, {count:,} rows, {'mixed' if data == 'mixed' else 'numbers'}: under {seconds} s"
        rows += [_row(words, f"{line['seconds']:.0f} s", line["seconds"] < seconds) for line in found]
    return rows


def _failures(suite: str, lines: Sequence[Line]) -> str:
    """What failed, with its words, and what the suite still lacks."""
    by_error = grouped([line for line in lines if "error" in line], (*SETTING, "error"))
    failed = [
        f"- failed: {data}, {FUNCTIONS[mechanism]}, {nodes} columns, {count:,} rows, {METHODS[method]}, sets "
        f"{', '.join(str(line['index']) for line in group)}: {error}"
        for (data, mechanism, nodes, count, method, error), group in by_error.items()
    ]
    keys = (*SETTING, "index")
    stored = {tuple(line[key] for key in keys) for line in lines}
    planned = _planned(suite)
    missing = sum(tuple(case.what()[key] for key in keys) not in stored for case in planned)
    errors = sum("error" in line for line in lines)
    seen = f"{len(planned) - missing} of {len(planned)} runs are stored, {errors} of them failed."
    commits = sorted({line["commit"] for line in lines})
    seen += f" Commits: {', '.join(commits)}." if commits else ""
    if any(line.get("jobs", 1) > 1 for line in lines):
        seen += " Some runs shared the machine with another one (two jobs): their seconds are upper bounds."
    return "\n".join([seen, *failed])
