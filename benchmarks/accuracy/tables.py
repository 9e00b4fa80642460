"""Markdown tables made of stored lines: every suite's own, with means, worst sets, costs, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.accuracy.lines import SETTING, difference_to_exact
from benchmarks.accuracy.suites import SUITES
from benchmarks.records import Line, grouped, markdown

BIN_KEYS = ("bin_pairs", "bin_stated", "bin_true")
NOISE_WORDS = {"unit": "known", "equal": "shared, unknown", "unequal": "BGe"}

# AUC and AP with the diagonal, mean and standard deviation: the paper's Table 1, of the five restarts that ended
# first, and all ten restarts that the authors stored.
PUBLISHED_SACHS = {
    "VCUDA": ("0.71 ± 0.04", "0.32 ± 0.05", "0.714 ± 0.048", "0.335 ± 0.045", "0.686"),
    "DiBS": ("0.66 ± 0.03", "0.34 ± 0.07", "0.685 ± 0.057", "0.359 ± 0.060", "0.654"),
    "MCSL": ("0.58 ± 0.04", "0.21 ± 0.03", "0.592 ± 0.046", "0.245 ± 0.055", "0.544"),
    "GraN-DAG": ("0.57 ± 0.02", "0.26 ± 0.03", "0.567 ± 0.015", "0.254 ± 0.028", "0.567"),
    "DDS": ("0.43 ± 0.02", "0.16 ± 0.04", "0.403 ± 0.051", "0.144 ± 0.032", "0.375"),
    "BaDAG": ("0.48 ± 0.01", "0.17 ± 0.02", "0.478", "0.169", ""),
}


def tables(suite: str, lines: Sequence[Line]) -> str:
    """All tables of a suite, and the runs that failed or have not been run."""
    parts = [*LAYOUTS[suite](lines), _failures(suite, lines)]
    return "\n\n".join(part for part in parts if part)


def _in_order(suite: str, lines: Sequence[Line]) -> list[Line]:
    """As the suite has them, whatever the order in which they were measured."""
    places = {tuple(case.what()[key] for key in SETTING): k for k, g in enumerate(SUITES[suite]()) for case in g}
    return sorted(lines, key=lambda line: places.get(tuple(line[key] for key in SETTING), len(places)))


def _numbers(group: Sequence[Line], key: str) -> list[float]:
    """What the runs found; one that failed found nothing."""
    return [line[key] for line in group if line.get(key) is not None]


def _mean(group: Sequence[Line], key: str, form: str = ".3f") -> str:
    values = _numbers(group, key)
    return format(np.mean(values), form) if values else ""


def _spread(group: Sequence[Line], key: str) -> str:
    """Mean over the sets, the worst one, and the standard deviation between sets."""
    values = _numbers(group, key)
    return f"{np.mean(values):.3f} (min {min(values):.3f}, sd {np.std(values):.3f})" if values else ""


def _differences(group: Sequence[Line], lines: Sequence[Line]) -> str:
    found = [value for value in (difference_to_exact(line, lines) for line in group) if value is not None]
    return f"{np.mean(found):.3f} (max {max(found):.3f})" if found else ""


def _seconds(group: Sequence[Line]) -> tuple[str, str]:
    """The first run of a process, with compilation, and the median of the others."""
    first, later = (
        _numbers([line for line in group if line.get("first") is flag], "seconds") for flag in (True, False)
    )
    return (f"{np.mean(first):.1f}" if first else "", f"{np.median(later):.1f}" if later else "")


def _statuses(group: Sequence[Line]) -> str:
    counts = Counter("error" if "error" in line else line["status"] for line in group)
    return ", ".join(f"{code} {count}" for code, count in sorted(counts.items()))


def _memory(group: Sequence[Line]) -> str:
    values = _numbers(group, "peak_mb")
    return f"{max(values):.0f}" if values else ""


def _measured(suite: str, group: Sequence[Line]) -> str:
    """How many of the planned sets have a result; those that failed have none."""
    setting = [group[0][key] for key in SETTING]
    planned = sum([case.what()[key] for key in SETTING] == setting for g in SUITES[suite]() for case in g)
    return f"{sum('error' not in line for line in group)} of {max(planned, len(group))}"


def _data(line: Line) -> str:
    if line["source"] == "sachs":
        return "Sachs"
    return f"{line['graph'].upper()} {line['mechanism']} d={line['nodes']} e={line['edges']}"


def _model(line: Line) -> str:
    names = {("linear", "equal"): "linear, equal noise", ("linear", "unequal"): "linear, BGe"}
    model: str = line["model"]
    return names.get((model, line["noise"]), model)


def _accuracy(suite: str, lines: Sequence[Line]) -> str:
    rows = []
    for group in grouped(_in_order(suite, lines), SETTING).values():
        one = group[0]
        rows.append(
            [
                *(_data(one), one["columns"], one["engine"], _model(one), _measured(suite, group)),
                *(_spread(group, "ap"), *(_mean(group, key) for key in ("auc", "skeleton_ap", "ap_full"))),
                *(_mean(group, key, ".2g") for key in ("brier", "calibration_error")),
                f"{_mean(group, 'expected_edges', '.1f')} / {_mean(group, 'true_edges', '.1f')}",
                _differences(group, lines),
                *_seconds(group),
                *(_memory(group), _statuses(group)),
            ]
        )
    header = ["data", "columns", "engine", "model", "sets", "AP", "AUC", "skeleton AP", "AP with diagonal", "Brier"]
    header += ["calibration error", "edges expected / true", "sum of differences to exact"]
    header += ["s, first with compilation", "s, later", "peak MB", "status"]
    return markdown(header, rows) if rows else ""


def _simulated(suite: str) -> Callable[[Sequence[Line]], list[str]]:
    return lambda lines: [_accuracy(suite, lines)]


def _scale(lines: Sequence[Line]) -> list[str]:
    """The growth between one size and the next is told as an exponent of d."""
    rows = []
    by_engine = grouped(_in_order("scale", lines), ("engine", "graph"))
    for (engine, graph), group in by_engine.items():
        sizes = grouped(group, ("nodes",))
        before: tuple[int, float, float] | None = None
        for (nodes,), same in sorted(sizes.items()):
            firsts = _numbers([line for line in same if line.get("first")], "seconds")
            if not firsts:
                continue
            seconds, memory = float(np.mean(firsts)), max(_numbers(same, "peak_mb"))
            growth = ["", ""]
            if before is not None:
                ratio = np.log(nodes / before[0])
                growth = [
                    f"{np.log(now / then) / ratio:.1f}" for now, then in ((seconds, before[1]), (memory, before[2]))
                ]
            rows.append(
                [engine, graph.upper(), nodes, _mean(same, "ap"), f"{seconds:.1f}", _seconds(same)[1], growth[0]]
            )
            rows[-1] += [f"{memory:.0f}", growth[1]]
            before = nodes, seconds, memory
    header = ["engine", "graph", "d", "AP", "s, first with compilation", "s, later", "seconds grow as d to the"]
    header += ["peak MB", "memory grows as d to the"]
    return [_accuracy("scale", lines), markdown(header, rows) if rows else ""]


def _calibration(lines: Sequence[Line]) -> list[str]:
    header = ["noise", "prior", "engine", "rows", "data sets", "pairs", "calibration error", "Brier"]
    header += ["edges given 90 % or more", "true of them", "s a set", "status"]
    rows, curves = [], []
    measured = [line for line in _in_order("calibration", lines) if "error" not in line]
    for group in grouped(measured, ("noise", "columns", "engine")).values():
        by_rows = [(str(count), part) for (count,), part in sorted(grouped(group, ("rows",)).items())]
        for rows_told, part in [("all", group), *by_rows]:
            pairs, stated, true = (np.sum([line[key] for line in part], axis=0) for key in BIN_KEYS)
            sets = sum(line["sets"] for line in part)
            statuses: Counter[str] = Counter()
            for line in part:
                statuses.update(line["statuses"])
            words = [NOISE_WORDS[part[0]["noise"]], _prior_words(part[0]), part[0]["engine"]]
            rows.append(
                [
                    *words,
                    *(rows_told, sets, pairs.sum(), f"{np.abs(true - stated).sum() / pairs.sum():.4f}"),
                    f"{sum(line['squared_errors'] for line in part) / pairs.sum():.4f}",
                    *(pairs[-1], f"{true[-1] / pairs[-1]:.3f}" if pairs[-1] else ""),
                    f"{sum(line['seconds'] for line in part) / sets:.2f}",
                    ", ".join(f"{code} {count}" for code, count in sorted(statuses.items())),
                ]
            )
            if rows_told == "all":
                points = zip(pairs, stated, true, strict=True)
                curves.append(words + [f"{s / p:.3f} → {t / p:.3f} ({p})" if p else "" for p, s, t in points])
    bins = [f"{10 * k} to {10 * (k + 1)} %" for k in range(10)]
    curve = "The curve: mean probability → share of true edges (pairs in the bin).\n\n"
    curve += markdown(["noise", "prior", "engine", *bins], curves)
    return [markdown(header, rows), curve] if rows else []


def _prior_words(line: Line) -> str:
    return "exactly that of the truth" if line["columns"] == "prior units" else "scaled by the table, as `fit` does"


def _auto(lines: Sequence[Line]) -> list[str]:
    fits = [line for line in lines if line["kind"] == "fit"]
    rows = []
    for group in grouped(_in_order("auto", fits), SETTING).values():
        chosen = Counter(_chosen(line) for line in group if "chosen" in line)
        rows.append(
            [
                *(_data(group[0]), group[0]["columns"], _measured("auto", group)),
                ", ".join(f"{name}: {count}" for name, count in chosen.most_common()),
                *(_spread(group, "ap"), _mean(group, "skeleton_ap"), _mean(group, "calibration_error", ".2g")),
                *(*_seconds(group), _memory(group), _statuses(group)),
            ]
        )
    header = ["data", "columns", "sets", "chosen", "AP", "skeleton AP", "calibration error"]
    header += ["s, first with compilation", "s, later", "peak MB", "status"]
    parts = [markdown(header, rows)] if rows else []
    for line in fits:
        if line["source"] == "sachs" and "chosen" in line:
            seen = f"Sachs, columns taken by their logarithm: {', '.join(line['chosen']['logarithm']) or 'none'}."
            parts.append("\n".join([seen, *(line.get("choice") or {}).get("sentences", [])]))
    rescaled = grouped(_in_order("auto", [line for line in lines if line["kind"] == "rescaling"]), SETTING)
    if rescaled:
        units = (
            "Columns in random units (factors of a thousandth to a thousand): largest change of an edge probability."
        )
        body = []
        for group in rescaled.values():
            changes = _numbers(group, "largest_change")
            body.append([_data(group[0]), group[0]["engine"], _model(group[0]), _measured("auto", group)])
            body[-1] += [f"{max(changes):.1e}" if changes else "", _statuses(group)]
        header = ["data", "engine", "model", "sets", "largest change over all sets", "status"]
        parts.append(f"{units}\n\n{markdown(header, body)}")
    return parts


def _chosen(line: Line) -> str:
    chosen = line["chosen"]
    noise = f", {chosen['noise']} noise" if chosen["model"] == "linear" and chosen["noise"] else ""
    return f"{chosen['model']}{noise}{' of logarithms' if chosen['logarithm'] else ''} ({chosen['engine']})"


def _sachs(lines: Sequence[Line]) -> list[str]:
    rows = []
    for group in grouped(_in_order("sachs", lines), SETTING).values():
        one = group[0]
        chosen = f": {_chosen(one)}" if "chosen" in one else ""
        rows.append(
            [
                *(one["columns"], one["engine"], _model(one) + chosen, _measured("sachs", group)),
                *(_mean(group, key) for key in ("auc", "ap", "auc_full", "ap_full", "skeleton_ap")),
                *(_mean(group, key, ".1f") for key in ("expected_shd", "expected_edges")),
                *(
                    _mean(group, "brier"),
                    _mean(group, "calibration_error"),
                    _mean(group, "log_evidence_of_cells", ".0f"),
                ),
                _differences(group, lines),
                *(*_seconds(group), _memory(group), _statuses(group)),
            ]
        )
    header = ["columns", "engine", "model", "runs", "AUC", "AP", "AUC with diagonal", "AP with diagonal", "skeleton AP"]
    header += ["expected SHD", "expected edges", "Brier", "calibration error", "log evidence"]
    header += ["sum of differences to exact", "s, first with compilation", "s, later", "peak MB", "status"]
    published = markdown(
        ["published", "AUC, Table 1", "AP, Table 1", "AUC, all ten runs", "AP, all ten runs", "AUC without diagonal"],
        [[name, *numbers] for name, numbers in PUBLISHED_SACHS.items()],
    )
    remark = (
        "The network has 17 edges, which is the SHD of the empty graph. The log evidence is that of the cells in their "
        "own units, whatever the columns were turned into."
    )
    return [markdown(header, rows) if rows else "", remark, published]


def _failures(suite: str, lines: Sequence[Line]) -> str:
    """What failed, with its words, and what the suite still lacks."""
    by_error = grouped([line for line in lines if "error" in line], (*SETTING, "error"))
    failed = [f"- failed: {_words(g[0])}, sets {_sets(g)}: {g[0]['error']}" for g in by_error.values()]
    planned = [case.what() for group in SUITES[suite]() for case in group]
    keys = (*SETTING, "index")
    stored = {tuple(line[key] for key in keys) for line in lines}
    missing = sum(tuple(what[key] for key in keys) not in stored for what in planned)
    count = sum("error" in line for line in lines)
    seen = f"{len(planned) - missing} of {len(planned)} runs are stored, {count} of them failed."
    commits = sorted({line["commit"] for line in lines})
    seen += f" Commits: {', '.join(commits)}." if commits else ""
    if any(line.get("jobs", 1) > 1 for line in lines):
        seen += " Some runs shared the machine with another one (two jobs): their seconds are upper bounds."
    return "\n".join([seen, *failed])


def _sets(group: Sequence[Line]) -> str:
    return ", ".join(str(line["index"]) for line in group)


def _words(line: Line) -> str:
    return ", ".join(f"{key} {line[key]}" for key in SETTING if line[key] is not None)


LAYOUTS: dict[str, Callable[[Sequence[Line]], list[str]]] = {
    "paper-d10": _simulated("paper-d10"),
    "d50-d100": _simulated("d50-d100"),
    "scale": _scale,
    "crossover": _simulated("crossover"),
    "calibration": _calibration,
    "auto": _auto,
    "sachs": _sachs,
}
