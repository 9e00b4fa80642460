"""Tables with missing cells against the same tables without: how much of the graph is lost, and is it told?

The paper's linear data sets of ten variables and ten edges, as they are with equal noise and standardised with unequal
noise. A tenth of the cells is taken away, at random ("mcar": every cell alike) or by what is left ("mar": from half of
the columns, with a probability that rises with the value of one of the others). Beside the mean over imputations stands
what the rows without a gap say alone. Every data set is reported.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

import vcuda
from benchmarks.measures import ranked, stated
from benchmarks.problems import Columns, Source, problem
from benchmarks.records import Line, Records, grouped, markdown
from vcuda.data.dataset import Dataset
from vcuda.data.simulate import GraphFamily, Mechanism
from vcuda.errors import ConvergenceWarning

Gaps = Literal["none", "mcar", "mar"]
GAPS: tuple[Gaps, ...] = ("none", "mcar", "mar")
FAMILIES: tuple[GraphFamily, ...] = ("er", "sf")
SETTINGS: tuple[tuple[Columns, str], ...] = (("raw", "equal"), ("standardised", "unequal"))
SETS = 10
SHARE = 0.1
# By how much the log odds of a gap rise with a standard deviation of the column that it depends on.
SLOPE = 1.5


@dataclass(frozen=True)
class Case:
    """One run: a data set, what was taken away of it, and how it is fitted."""

    graph: GraphFamily
    index: int
    columns: Columns
    noise: str
    gaps: Gaps
    share: float = SHARE
    imputations: int = 10
    engine: str = "exact"
    source: Source = "paper"
    mechanism: Mechanism = "linear"
    nodes: int = 10
    edges: int = 10
    rows: int = 1000


def cases(imputations: int) -> Iterator[Case]:
    for columns, noise in SETTINGS:
        for graph in FAMILIES:
            for index in range(SETS):
                for gaps in GAPS:
                    yield Case(graph, index, columns, noise, gaps, imputations=imputations)


def with_gaps(values: np.ndarray, case: Case) -> np.ndarray:
    """The table (n, d) with NaN in about the share of its cells that the case says; the same for all fits of a set."""
    if case.gaps == "none":
        return values
    rng = np.random.default_rng([case.index, FAMILIES.index(case.graph), GAPS.index(case.gaps)])
    if case.gaps == "mcar":
        return np.where(rng.random(values.shape) < case.share, np.nan, values)
    nodes = values.shape[1]
    gappy, whole = np.split(rng.permutation(nodes), [nodes // 2])
    wanted = case.share * nodes / len(gappy)
    cells = values.copy()
    for column in gappy:
        cause = values[:, rng.choice(whole)]
        rise = SLOPE * (cause - cause.mean()) / cause.std()
        level = brentq(lambda level, rise=rise: expit(level + rise).mean() - wanted, -20, 20)
        cells[rng.random(len(values)) < expit(level + rise), column] = np.nan
    return cells


def measure(case: Case) -> dict[str, Any]:
    made = problem(case)
    cells = with_gaps(made.data.values, case)
    options: dict[str, Any] = {"model": "linear", "noise": case.noise, "engine": case.engine, "seed": case.index}
    started = time.perf_counter()
    posterior = vcuda.fit(cells, imputations=case.imputations, **options)
    seconds = time.perf_counter() - started
    edges = posterior.edge_probabilities.to_numpy()
    found: dict[str, Any] = ranked(edges, made.truth) | stated(edges, made.truth)
    found |= {"status": posterior.status.code, "seconds": seconds, "missing": float(np.isnan(cells).mean())}
    if case.gaps == "none":
        return found
    seen = ("imputation_sd_mean", "imputation_sd_largest")
    whole = ~np.isnan(cells).any(axis=1)
    alone = vcuda.fit(Dataset(made.data.names, cells[whole]), **options).edge_probabilities.to_numpy()
    rows_alone = ranked(alone, made.truth) | stated(alone, made.truth)
    return (
        found
        | {name: posterior.diagnostics[name] for name in seen}
        | {"complete_rows": int(whole.sum())}
        | {f"complete_rows_{name}": rows_alone[name] for name in ("ap", "calibration_error", "brier")}
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks missing", description=__doc__)
    parser.add_argument("--imputations", type=int, default=10)
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored already")
    parser.add_argument("--limit-minutes", type=float, default=float("inf"), help="begin no run after that")
    parser.add_argument("--table", action="store_true", help="only print the tables of what is stored")
    parser.add_argument("--results", type=Path, help="folder of the lines, if not the one of the repository")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ConvergenceWarning)
    deadline = time.monotonic() + 60 * options.limit_minutes
    runs = list(cases(options.imputations))
    records = Records("missing", folder=options.results)
    if options.fresh and not options.table:
        records.forget(asdict(case) for case in runs)
    lines = []
    for case in runs:
        line = records.find(asdict(case))
        if line is None and (options.table or time.monotonic() > deadline):
            continue
        if line is None:
            line = records.add(asdict(case), measure(case))
            print(
                *(line[field.name] for field in fields(case)[:5]), f"AP {line['ap']:.3f}", file=sys.stderr, flush=True
            )
        lines.append(line)
    if len(lines) < len(runs):
        print(f"{len(runs) - len(lines)} of {len(runs)} runs are left; the same command goes on.", file=sys.stderr)
    print(tables(lines))
    return 0


def tables(lines: list[Line]) -> str:
    """Means over the data sets of each setting, and below every data set."""
    setting, means, every = ("columns", "noise", "graph"), [], []
    for key, group in grouped(lines, setting).items():
        complete = {line["index"]: line for line in group if line["gaps"] == "none"}
        for gaps in GAPS[1:]:
            some = [line for line in group if line["gaps"] == gaps and line["index"] in complete]
            if some:
                means.append([*key, gaps, len(some), *_numbers(some, complete)])
        for index in complete:
            aps = [next((f"{x['ap']:.3f}" for x in group if (x["index"], x["gaps"]) == (index, g)), "") for g in GAPS]
            every.append([*key, index, *aps])
    first = markdown(
        [
            *setting,
            "missing",
            "sets",
            "AP complete",
            "AP imputed",
            "difference",
            "worst set",
            "AP complete rows",
            "calibration complete",
            "calibration imputed",
            "sd between",
            "largest",
            "seconds",
        ],
        means,
    )
    return f"{first}\n\n{markdown([*setting, 'set', 'AP complete', 'AP mcar', 'AP mar'], every)}"


def _numbers(some: list[Line], complete: dict[int, Line]) -> list[str]:
    def mean(name: str, lines: list[Line]) -> float:
        return float(np.mean([line[name] for line in lines]))

    before = [complete[line["index"]] for line in some]
    differences = [line["ap"] - first["ap"] for line, first in zip(some, before, strict=True)]
    shown = [mean("ap", before), mean("ap", some), float(np.mean(differences)), min(differences)]
    shown += [mean("complete_rows_ap", some), mean("calibration_error", before), mean("calibration_error", some)]
    shown += [mean("imputation_sd_mean", some), mean("imputation_sd_largest", some)]
    return [*(f"{number:.3f}" for number in shown), f"{mean('seconds', some):.1f}"]
