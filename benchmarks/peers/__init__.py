"""Our baselines beside what others have: the published numbers, and the programs of the authors on the same tables.

``published`` runs the preset `reference` of each method on the paper's ten sets of a setting (d=10, e=10) and puts the
mean AUC of the full matrix, diagonal included, beside that of the ten runs which the authors stored. ``programs`` runs
dibs-lib and gcastle and ours, one after the other on each table with the same settings; ``steps`` puts what enters one
step of each beside ours, to the last digits. They need the extra ``peers``, here or in an environment of their own
(``--python``). Every set is reported; the seed of a run is the set's number. One seed a set leaves the mean of ten sets
uncertain by some hundredths: ``seeds`` repeats our side of ``programs`` with ten seeds, which costs little, and
``theirs`` the other side with two more, which costs twice as much as ``programs``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from benchmarks.peers.programs import Peers, ours, tables
from benchmarks.peers.steps import compare
from benchmarks.records import Records, markdown
from vcuda.data.simulate import GraphFamily, Mechanism
from vcuda.infer.compilation import cache_folder

Setting = tuple[GraphFamily, Mechanism]
Seeds = dict[int, list[float]]  # of each set, the AUC with each seed
SETTINGS: list[Setting] = [("er", "linear"), ("sf", "linear"), ("er", "gp"), ("sf", "gp")]

# Over the ten stored runs of the authors' programs: mean and standard deviation of the AUC, mean AP; the full matrix.
PUBLISHED: dict[str, dict[Setting, tuple[float, float, float]]] = {
    "dds": {
        ("er", "linear"): (0.822, 0.097, 0.662),
        ("sf", "linear"): (0.836, 0.125, 0.646),
        ("er", "gp"): (0.820, 0.103, 0.611),
        ("sf", "gp"): (0.812, 0.124, 0.607),
    },
    "dibs": {
        ("er", "linear"): (0.950, 0.024, 0.614),
        ("sf", "linear"): (0.959, 0.024, 0.670),
        ("er", "gp"): (0.849, 0.065, 0.505),
        ("sf", "gp"): (0.831, 0.083, 0.474),
    },
    "grandag": {
        ("er", "linear"): (0.743, 0.112, 0.548),
        ("sf", "linear"): (0.723, 0.123, 0.520),
        ("er", "gp"): (0.775, 0.143, 0.556),
        ("sf", "gp"): (0.777, 0.118, 0.594),
    },
    "mcsl": {
        ("er", "linear"): (0.866, 0.085, 0.430),
        ("sf", "linear"): (0.775, 0.096, 0.361),
        ("er", "gp"): (0.808, 0.031, 0.232),
        ("sf", "gp"): (0.794, 0.045, 0.205),
    },
}
PARTS = ["published", "steps", "seeds", "theirs", "programs"]
SEEDS = range(10)
# Added to the set's number. Far apart, as gcastle's MCSL takes a new seed, the next but one, at each of its steps.
MORE_SEEDS = (100_000, 200_000)
CHOSEN = ["dds", "grandag", "mcsl", "dibs"]


def options_of(method: str, setting: Setting) -> dict[str, Any]:
    """What VCUDA's authors changed for a setting: no hidden layers for linear data, DiBS's prior as the generator."""
    graph, mechanism = setting
    if method == "dibs":
        return {"graph_prior": graph}
    return {"hidden": ()} if mechanism == "linear" else {}


class Pair(NamedTuple):
    """A program of others with its options, and the method of ours with the same."""

    program: str
    theirs: dict[str, Any]
    method: str
    ours: dict[str, Any]


LENGTHS = ("short", "full")


def pairs(setting: Setting, length: str) -> list[Pair]:
    """What is run side by side: both programs at full length, or both cut short alike.

    At full length, that of the paper's figures, one table takes dibs-lib about half an hour of the processor, gcastle's
    MCSL some minutes and its GraN-DAG more than one.
    """
    linear, short = setting[1] == "linear", length == "short"
    mcsl, grandag = ([], []) if linear else ([16] * 4, [10] * 2)
    iterations, steps = (3_000, 100) if short else (10_000, 1_000)
    dibs = {"particles": 10 if short else 100, "steps": 200 if short else 3_000, "graph_prior": setting[0]}
    subproblems = {"rounds": 25, "steps": steps}
    return [
        Pair(
            "gcastle GraNDAG",
            {"hidden": grandag, "iterations": iterations},
            "grandag",
            {"hidden": tuple(grandag), "iterations": iterations},
        ),
        Pair(
            "gcastle MCSL",
            {"hidden": mcsl, **subproblems, "same_noise": False},
            "mcsl",
            {"hidden": tuple(mcsl), **subproblems},
        ),
        Pair("dibs-lib", {**dibs, "chunk": 50}, "dibs", dibs),
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--methods", nargs="+", default=CHOSEN, choices=CHOSEN)
    parser.add_argument("--graphs", nargs="+", default=["er", "sf"], choices=get_args(GraphFamily))
    parser.add_argument("--mechanisms", nargs="+", default=["linear", "gp"], choices=["linear", "gp"])
    parser.add_argument("--sets", type=int, default=10, help="data sets of each setting, from the first on")
    parser.add_argument("--lengths", nargs="+", default=["short"], choices=LENGTHS, help="of runs side by side")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the extra `peers`")
    parser.add_argument("--tables", type=Path, help="where data sets are kept between runs")
    parser.add_argument("--stored", action="store_true", help="only print what is stored")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored already")
    parser.add_argument("--quick", action="store_true", help="one set of each setting; nothing is stored")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets = 1
    folder = options.tables or (cache_folder() or Path.cwd()).parent / "peers"
    records = Records("peers", keep=not options.quick)
    chosen = [each for each in SETTINGS if each[0] in options.graphs and each[1] in options.mechanisms]
    indices = range(options.sets)

    def lines(runs: Iterable[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]) -> list[dict[str, Any]]:
        runs = list(runs)
        if options.fresh:
            records.forget(what for what, _ in runs)
        found = []
        for what, measure in runs:
            line = records.find(what) if options.stored else records.run(what, measure)
            if line is not None:
                found.append(line)
                print(*what.values(), file=sys.stderr, flush=True)
        return found

    if "published" in options.parts:
        several = [(m, s, i) for m, s, i in product(options.methods, chosen, indices)]
        print(_published_table(lines(_alone(folder, *each) for each in several)), end="\n\n")
    if "steps" in options.parts:
        with Peers(options.python) as peers:
            print(_steps_table(lines([_steps(folder, peers)])), end="\n\n")
    sides = [
        (pair, setting, index)
        for length, setting in product(options.lengths, chosen)
        for pair in pairs(setting, length)
        if pair.method in options.methods
        for index in indices
    ]
    repeated = lines(_repeated(folder, *each) for each in sides) if "seeds" in options.parts else []
    with Peers(options.python) as peers:
        again = lines(_theirs_again(folder, peers, *each) for each in sides) if "theirs" in options.parts else []
        if "programs" in options.parts:
            print(_programs_table(lines(_side_by_side(folder, peers, *each) for each in sides), repeated, again))
    return 0


def _what(benchmark: str, method: str, setting: Setting, index: int) -> dict[str, Any]:
    return {
        "benchmark": benchmark,
        "method": method,
        "graph": setting[0],
        "mechanism": setting[1],
        "index": index,
    }


def _what_of(pair: Pair, benchmark: str, setting: Setting, index: int) -> dict[str, Any]:
    return {**_what(benchmark, pair.method, setting, index), "program": pair.program, "options": pair.theirs}


def _alone(
    folder: Path, method: str, setting: Setting, index: int
) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    measure = partial(ours, method, options_of(method, setting), lambda: tables(folder, setting, index), seed=index)
    return _what("published", method, setting, index), measure


def _side_by_side(
    folder: Path, peers: Peers, pair: Pair, setting: Setting, index: int
) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    def measure() -> dict[str, Any]:
        table = tables(folder, setting, index)
        theirs = peers.run(pair.program, pair.theirs, table, seed=index)
        return {"ours": ours(pair.method, pair.ours, lambda: table, seed=index), "theirs": theirs}

    return _what_of(pair, "programs", setting, index), measure


def _repeated(
    folder: Path, pair: Pair, setting: Setting, index: int
) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    def measure() -> dict[str, Any]:
        table = tables(folder, setting, index)
        return {"auc_full": [ours(pair.method, pair.ours, lambda: table, seed=seed)["auc_full"] for seed in SEEDS]}

    return _what_of(pair, "seeds", setting, index), measure


def _theirs_again(
    folder: Path, peers: Peers, pair: Pair, setting: Setting, index: int
) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    def measure() -> dict[str, Any]:
        table = tables(folder, setting, index)
        runs = (peers.run(pair.program, pair.theirs, table, seed=index + far) for far in MORE_SEEDS)
        return {"auc_full": [run["auc_full"] for run in runs]}

    return _what_of(pair, "theirs", setting, index), measure


def _steps(folder: Path, peers: Peers) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    setting, index = SETTINGS[0], 0

    def measure() -> dict[str, Any]:
        return {"differences": compare(peers, tables(folder, setting, index))}

    return _what("steps", "all", setting, index), measure


def _steps_table(lines: list[dict[str, Any]]) -> str:
    rows = [
        [method, ", ".join(f"{name} {value:.0e}" for name, value in parts.items())]
        for line in lines
        for method, parts in line["differences"].items()
    ]
    return markdown(["one step at the same parameters", "largest difference, relative"], rows)


def _published_table(lines: list[dict[str, Any]]) -> str:
    rows = []
    for method, setting in product(CHOSEN, SETTINGS):
        group = [each for each in lines if (each["method"], each["graph"], each["mechanism"]) == (method, *setting)]
        if not group:
            continue
        auc, auc_spread, ap = PUBLISHED[method][setting]
        mean = {key: np.mean([each[key] for each in group]) for key in ("auc_full", "ap_full", "auc", "seconds_cpu")}
        spread = np.std([each["auc_full"] for each in group], ddof=min(1, len(group) - 1))
        rows.append(
            [
                *(method, f"{setting[0].upper()} {setting[1]}", len(group)),
                *(
                    f"{mean['auc_full']:.3f} ({spread:.3f})",
                    f"{auc:.3f} ({auc_spread:.3f})",
                    f"{mean['auc_full'] - auc:+.3f}",
                ),
                *(f"{mean['ap_full']:.3f}", f"{ap:.3f}", f"{mean['auc']:.3f}", f"{mean['seconds_cpu']:.1f}"),
            ]
        )
    header = ["preset `reference`", "data (d=10, e=10)", "sets", "AUC full", "published", "difference"]
    header += ["AP full", "published", "AUC off-diagonal", "CPU seconds a set"]
    return markdown(header, rows) + "\n\nIn brackets: the standard deviation over sets."


def _programs_table(
    lines: list[dict[str, Any]], repeated: list[dict[str, Any]], theirs_again: list[dict[str, Any]]
) -> str:
    rows = []
    for setting, length in product(SETTINGS, LENGTHS):
        for pair in pairs(setting, length):
            same = {"program": pair.program, "graph": setting[0], "mechanism": setting[1], "options": pair.theirs}
            group, ours_again, more = (
                [each for each in kind if all(each[key] == value for key, value in same.items())]
                for kind in (lines, repeated, theirs_again)
            )
            if not group:
                continue
            auc, wall, cpu = (
                {side: float(np.mean([each[side][key] for each in group])) for side in ("ours", "theirs")}
                for key in ("auc_full", "seconds", "seconds_cpu")
            )
            one_seed = {each["index"]: [each["theirs"]["auc_full"]] for each in group}
            ours_seeds = {each["index"]: each["auc_full"] for each in ours_again}
            their_seeds = {i: one_seed[i] + each["auc_full"] for each in more if (i := each["index"]) in one_seed}
            rows.append(
                [
                    *(pair.program, length, f"{setting[0].upper()} {setting[1]}", len(group)),
                    *(f"{auc['ours']:.3f}", f"{auc['theirs']:.3f}"),
                    _difference([each["ours"]["auc_full"] - each["theirs"]["auc_full"] for each in group]),
                    *_with_seeds(ours_seeds, their_seeds, one_seed),
                    *(f"{each['ours']:.1f} / {each['theirs']:.1f}" for each in (wall, cpu)),
                    f"{cpu['theirs'] / cpu['ours']:.1f}",
                ]
            )
    header = ["program", "length", "data (d=10, e=10)", "sets", "AUC full, ours", "theirs", "difference"]
    header += ["ours, ten seeds", "theirs, three seeds", "difference"]
    header += ["seconds, ours / theirs", "CPU seconds, ours / theirs", "times faster (CPU)"]
    return markdown(header, rows) + "\n\nIn brackets: the standard error of the mean difference."


def _with_seeds(ours: Seeds, theirs: Seeds, one_seed: Seeds) -> list[str]:
    """The mean of each side over its seeds and the difference, to one seed of theirs where there are no more."""
    of_ours, of_theirs, of_one = (
        {index: float(np.mean(aucs)) for index, aucs in side.items()} for side in (ours, theirs, one_seed)
    )
    has_ours, has_theirs = (side.keys() >= of_one.keys() for side in (of_ours, of_theirs))
    beside = of_theirs if has_theirs else of_one
    return [
        f"{np.mean(list(of_ours.values())):.3f}" if has_ours else "",
        f"{np.mean(list(of_theirs.values())):.3f}" if has_theirs else "",
        _difference([of_ours[index] - beside[index] for index in of_one]) if has_ours else "",
    ]


def _difference(gaps: list[float]) -> str:
    error = f" ({np.std(gaps, ddof=1) / len(gaps) ** 0.5:.3f})" if len(gaps) > 1 else ""
    return f"{np.mean(gaps):+.3f}{error}"
