"""Markdown tables made of stored lines: what is true of sure edges, what was flagged, and what should hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.honesty.cases import METHODS, NODES, ROWS, Method, grid
from benchmarks.honesty.departures import DEPARTURES
from benchmarks.records import Line, grouped, markdown

SETTING = ("departure", "rows", "method")
OPENING = f"""# Honesty: tables that break the model

`python -m benchmarks honesty --write-docs` makes this page from the lines in `benchmarks/results/honesty.jsonl`, one a
run, with its commit and versions; do not edit it. `vcuda.fit` is given nothing but the table. Tables have {NODES}
columns and as many expected edges; each departs from the model in one way, and all sets are reported.

Sure edges have a probability of at least 0.9. A table is flagged when the status of its fit is not `ok`. Effects are
total effects of five random ordered pairs of columns: how often the 90 % interval holds the truth, and its mean width
in standard deviations of the outcome. Most pairs have no effect, and an interval that is exactly zero then holds the
truth always. What an interval promises shows in pairs whose effect is stated with certainty (a probability of at least
0.95 that there is one), and in those that have one. The truth comes from the weights along all paths where functions
are linear, else from many rows drawn under do(). A number is set from its 5 % to its 95 % quantile. Where values are
measured with errors, or rows are selected, the truth is about the values without errors, and about all rows.
"""
# Two or more sure edges that are wrong make a table dishonest.
DISHONEST = 2
# An effect whose probability to be exactly zero is no larger is stated with certainty.
SURELY_NOT_ZERO = 0.05
# What should hold.
CONTROLS_FLAGGED, CONTROLS_LOST = 0.05, 0.02
SHAPE_TRUE, ROWS_TRUE, DISHONEST_FLAGGED = 0.92, 0.85, 0.9
COVERED = (0.85, 0.95)
GROUPS = {"control": "controls", "shape": "departures of shape", "rows": "departures that no family covers"}


def page(lines: Sequence[Line]) -> str:
    """The whole page of results."""
    return f"{OPENING}\n{_departures()}\n\n{tables(lines)}\n"


def tables(lines: Sequence[Line]) -> str:
    """All tables, and the runs that failed or have not been run."""
    parts = [_title("What was stated, and what is true", _stated(lines))]
    parts += [_title("What should hold", _aims(lines)), _title("Effects", _effects(lines))]
    parts += [_title("What the checks found", _findings(lines)), _title("Runs", _runs(lines))]
    return "\n\n".join(part for part in parts if part)


def _title(words: str, text: str) -> str:
    return f"## {words}\n\n{text}" if text else ""


def _departures() -> str:
    rows = [[name, GROUPS[one.group], one.words] for name, one in DEPARTURES.items()]
    return markdown(["departure", "group", "tables"], rows)


# One row for each departure, number of rows and method --------------------------------------------------------


def _settings(lines: Sequence[Line]) -> list[tuple[tuple[str, int, Method], list[Line]]]:
    """The lines of each setting that were measured, in the order of the page."""
    found = grouped(_measured(lines), SETTING)
    order = [(name, rows, method) for name in DEPARTURES for rows in ROWS for method in METHODS]
    # Other numbers of rows, as small trials have them, come last.
    order += [setting for setting in found if setting not in order]
    return [(setting, found[setting]) for setting in order if setting in found]


def _measured(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if "error" not in line]


def _table(lines: Sequence[Line], columns: dict[str, Callable[[Sequence[Line]], str]]) -> str:
    """A row for each setting; the method is said only where there are several."""
    settings = _settings(lines)
    several = len({method for (_, _, method), _ in settings}) > 1
    rows = [
        [name, f"{count:,}", *([METHODS[method]] if several else []), *(show(group) for show in columns.values())]
        for (name, count, method), group in settings
    ]
    return markdown(["departure", "rows", *(["fit"] if several else []), *columns], rows) if rows else ""


def _stated(lines: Sequence[Line]) -> str:
    return _table(
        lines,
        {
            "sets": lambda group: str(len(group)),
            "AP": lambda group: _mean(group, "ap"),
            "sure edges": lambda group: str(_sum(group, "sure")),
            "true among sure": _true_share,
            "true among sure, unflagged tables": lambda group: _true_share(_unflagged(group)),
            "flagged tables": lambda group: _share(line["flagged"] for line in group),
            "flagged of those with two or more sure edges wrong": lambda group: _share(
                line["flagged"] for line in _dishonest(group)
            ),
            "s": lambda group: f"{np.median([line['seconds'] for line in group]):.1f}",
        },
    )


def _effects(lines: Sequence[Line]) -> str:
    return _table(
        lines,
        {
            "pairs": lambda group: str(len(_pairs(group))),
            "90 % intervals hold the truth": lambda group: _share(one["covered"] for one in _pairs(group)),
            "of pairs stated to have an effect": lambda group: _share(one["covered"] for one in _stated_pairs(group)),
            "of pairs that have one": lambda group: _share(one["covered"] for one in _pairs(group) if one["truth"]),
            "mean width": lambda group: _number([one["high"] - one["low"] for one in _pairs(group)]),
        },
    )


def _findings(lines: Sequence[Line]) -> str:
    if not any("checks" in line for line in lines):
        return ""
    return _table(
        lines,
        {
            "warnings": lambda group: _checks(group, "warning"),
            "notes": lambda group: _checks(group, "note"),
            "s of checks": lambda group: _number([line["seconds_checks"] for line in group if "checks" in line], ".1f"),
        },
    )


def _checks(group: Sequence[Line], severity: str) -> str:
    """In how many tables each check found something."""
    counts = Counter(
        name
        for line in group
        for name in {one["check"] for one in line.get("checks", ()) if one["severity"] == severity}
    )
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def _unflagged(group: Iterable[Line]) -> list[Line]:
    return [line for line in group if not line["flagged"]]


def _dishonest(group: Iterable[Line]) -> list[Line]:
    return [line for line in group if line["sure_wrong"] >= DISHONEST]


def _pairs(group: Iterable[Line]) -> list[dict[str, Any]]:
    return [one for line in group for one in line["effects"]]


def _stated_pairs(group: Iterable[Line]) -> list[dict[str, Any]]:
    return [one for one in _pairs(group) if one["probability_zero"] <= SURELY_NOT_ZERO]


def _sum(group: Iterable[Line], key: str) -> int:
    return sum(line[key] for line in group)


def _mean(group: Iterable[Line], key: str) -> str:
    return _number([line[key] for line in group if line[key] is not None], ".3f")


def _number(values: Sequence[float], form: str = ".2f") -> str:
    return format(float(np.mean(values)), form) if values else ""


def _share(flags: Iterable[bool]) -> str:
    several = list(flags)
    return f"{sum(several)} of {len(several)} ({np.mean(several):.2f})" if several else ""


def _true_share(group: Sequence[Line]) -> str:
    sure = _sum(group, "sure")
    return f"{_sum(group, 'sure_true')} of {sure} ({_sum(group, 'sure_true') / sure:.2f})" if sure else ""


# What should hold ---------------------------------------------------------------------------------------------


def _aims(lines: Sequence[Line]) -> str:
    """What the default should reach, and whether it does."""
    measured = [line for line in _measured(lines) if line["method"] == "default"]
    rows = _control_aims(measured, lines)
    for (name, count, _), group in _settings(measured):
        words = f"{name}, {count:,} rows"
        least = {"control": None, "shape": SHAPE_TRUE, "rows": ROWS_TRUE}[DEPARTURES[name].group]
        quiet = _unflagged(group)
        if least is not None and name != "random walks":
            wanted = f"{words}: at least {least} of the sure edges are true in tables that are not flagged"
            found = _true_share(quiet) or f"no sure edges, {len(quiet)} of {len(group)} tables not flagged"
            rows.append(_row(wanted, found, _sum(quiet, "sure_true") >= least * _sum(quiet, "sure")))
        if name == "random walks":
            silent = sum(line["sure"] > 0 for line in quiet)
            rows.append(
                _row(f"{words}: no sure edge without a flag", f"{silent} of {len(group)} tables have one", not silent)
            )
        if dishonest := _dishonest(group):
            seen = [line["flagged"] for line in dishonest]
            wanted = (
                f"{words}: at least {DISHONEST_FLAGGED:.0%} of tables with two or more sure edges wrong are flagged"
            )
            rows.append(_row(wanted, _share(seen), sum(seen) >= DISHONEST_FLAGGED * len(seen)))
    if dishonest := _dishonest(measured):
        wanted = "all departures: the same"
        seen = [line["flagged"] for line in dishonest]
        rows.append(_row(wanted, _share(seen), sum(seen) >= DISHONEST_FLAGGED * len(seen)))
    return markdown(["what should hold", "found", "holds"], rows) if rows else ""


def _control_aims(measured: Sequence[Line], lines: Sequence[Line]) -> list[list[str]]:
    controls = [line for line in measured if DEPARTURES[line["departure"]].group == "control"]
    if not controls:
        return []
    flags = [line["flagged"] for line in controls]
    few = sum(flags) <= CONTROLS_FLAGGED * len(flags)
    rows = [_row(f"controls: at most {CONTROLS_FLAGGED:.0%} of the tables are flagged", _share(flags), few)]
    keys = ("departure", "rows", "index")
    plain = {tuple(line[key] for key in keys): line for line in _measured(lines) if line["method"] == "unrobust"}
    both = [(line, plain[key]) for line in controls if (key := tuple(line[name] for name in keys)) in plain]
    for field, words in (("ap", "AP"), ("sure", "sure edges")):
        pairs = [(one[field], other[field]) for one, other in both if one[field] is not None]
        if pairs:
            own, other = np.mean(pairs, axis=0)
            kept = bool(own >= (1 - CONTROLS_LOST) * other)
            wanted = f"controls: {words} within {CONTROLS_LOST:.0%} of the fit with `robust=False`"
            rows.append(_row(wanted, f"{own:.3f} against {other:.3f}", kept))
    covered = [one["covered"] for one in _pairs(controls)]
    held = bool(np.mean(covered) >= COVERED[0])
    rows.append(_row(f"controls: 90 % intervals hold the truth in at least {COVERED[0]:.0%}", _share(covered), held))
    if covered := [one["covered"] for one in _stated_pairs(controls)]:
        wanted = f"controls: those of effects stated with certainty, in {COVERED[0]:.0%} to {COVERED[1]:.0%}"
        rows.append(_row(wanted, _share(covered), bool(COVERED[0] <= np.mean(covered) <= COVERED[1])))
    return rows


def _row(words: str, found: str, holds: bool) -> list[str]:
    return [words, found, "yes" if holds else "**no**"]


# Runs ---------------------------------------------------------------------------------------------------------


def _runs(lines: Sequence[Line]) -> str:
    """What failed, with its words, and what is still to be run."""
    keys = (*SETTING, "index")
    stored = {tuple(line[key] for key in keys) for line in lines}
    planned = [case.what() for group in grid() for case in group]
    done = sum(tuple(what[key] for key in keys) in stored for what in planned)
    failed = [line for line in lines if "error" in line]
    text = f"{done} of {len(planned)} runs are stored, {len(failed)} of them failed."
    commits = sorted({line["commit"] for line in lines})
    text += f" Commits: {', '.join(commits)}." if commits else ""
    if any(line.get("jobs", 1) > 1 for line in lines):
        text += " Some runs shared the machine with another one (two jobs): their seconds are upper bounds."
    words = [
        f"- failed: {name}, {count:,} rows, {METHODS[method]}, sets {', '.join(str(one['index']) for one in group)}: "
        f"{error}"
        for (name, count, method, error), group in grouped(failed, (*SETTING, "error")).items()
    ]
    return "\n".join([text, *([""] if words else []), *words])
