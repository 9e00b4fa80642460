"""Seconds and memory against the number of columns, and power laws through them, for tables of 1,000 rows.

Random graphs with one edge a node, each fitted in a process of its own. The laws seconds = start + a d^b + sweep s d,
with s hundreds of sweeps over orders, and gigabytes = base + c d^e are fitted to all runs of a model and engine by
least squares in logarithms; ``vcuda.infer.selection.cost`` foresees fits by them.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import Line, Records, grouped, markdown
from vcuda.infer.orders import Orders
from vcuda.infer.selection.cost import cost_by_law, expected_sweeps
from vcuda.infer.variational import Variational
from vcuda.models import FAMILIES
from vcuda.models.protocol import Noise

# Columns by model, noise and engine: the largest end in some minutes.
SIZES: dict[tuple[str, Noise, str], tuple[int, ...]] = {
    ("linear", "equal", "orders"): (25, 100, 300, 1000, 2000, 5000),
    ("linear", "unequal", "orders"): (25, 100, 300, 1000, 2000),
    ("additive", "unequal", "orders"): (25, 50, 100, 200, 400),
    ("gp", "unequal", "orders"): (15, 25, 50, 100),
    ("linear", "equal", "variational"): (25, 100, 300),
    ("linear", "unequal", "variational"): (25, 100, 300),
    ("additive", "unequal", "variational"): (25, 50, 100),
}
ENGINES = {"orders": Orders, "variational": Variational}
SETS = 2
# One set is enough to see that the largest ones end.
ONE_SET_FROM = 2000
ROWS = 1000


@dataclass(frozen=True)
class Case:
    """A table of so many columns, and the model that is fitted to it."""

    model: str
    noise: Noise
    engine: str
    nodes: int
    index: int
    rows: int = ROWS

    def what(self) -> dict[str, Any]:
        return asdict(self)

    def words(self) -> str:
        return f"{self.model} {self.noise} {self.engine} d={self.nodes} index={self.index}"


def cases() -> Iterator[Case]:
    for (model, noise, engine), sizes in SIZES.items():
        for nodes in sizes:
            for index in range(SETS if nodes < ONE_SET_FROM else 1):
                yield Case(model, noise, engine, nodes, index)


def measure_line(what: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Fit one table, and tell what that took."""
    import vcuda
    from benchmarks.measures import peak_memory, ranked
    from vcuda.data.simulate import Mechanism, simulate
    from vcuda.errors import ConvergenceWarning

    case = Case(**what)
    mechanism: Mechanism = "linear" if case.model == "linear" else "gp"
    made = simulate("er", nodes=case.nodes, edges=case.nodes, mechanism=mechanism, rows=case.rows, seed=case.index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        started, worked = time.perf_counter(), time.process_time()
        posterior = vcuda.fit(
            made.train,
            model=case.model,
            noise=case.noise,
            standardise=case.noise == "unequal",
            engine=case.engine,
            seed=case.index,
        )
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "peak_mb": peak_memory(),
        "status": posterior.status.code,
        **ranked(posterior.edge_probabilities.to_numpy(), made.graph),
    }


def time_law(sizes: np.ndarray, sweeps: np.ndarray, seconds: np.ndarray) -> tuple[float, ...]:
    """start, a, b and sweep of seconds = start + a d^b + sweep * hundreds of sweeps * d."""

    def law(start: float, a: float, b: float, sweep: float) -> np.ndarray:
        return start + a * sizes**b + sweep * sweeps / 100 * sizes

    most_sweep = np.inf if sweeps.any() else 1e-12
    first = (seconds.min() / 2, seconds.max() / sizes.max() / 2, 1.2, min(1e-3, most_sweep))
    return _fitted(law, seconds, first, least=(0, 0, 1, 0), most=(np.inf, np.inf, 3, most_sweep))


def memory_law(sizes: np.ndarray, gigabytes: np.ndarray) -> tuple[float, ...]:
    """base, c and e of gigabytes = base + c d^e."""
    first, least, most = (gigabytes.min() / 2, 1e-4, 1.2), (0, 0, 1), (np.inf, np.inf, 3)
    return _fitted(lambda base, c, e: base + c * sizes**e, gigabytes, first, least=least, most=most)


def _fitted(
    law: Callable[..., np.ndarray],
    values: np.ndarray,
    first: tuple[float, ...],
    *,
    least: tuple[float, ...],
    most: tuple[float, ...],
) -> tuple[float, ...]:
    """No term is negative, and none grows more slowly than the columns: larger tables are foreseen by it too."""
    from scipy.optimize import least_squares

    found = least_squares(lambda at: np.log(law(*at) / values), first, bounds=(least, most), x_scale=np.array(first))
    return tuple(float(value) for value in found.x)


def tables(lines: list[Line]) -> str:
    """All runs, and the laws through them."""
    header = ["model", "columns", "engine", "seconds", "processor seconds", "peak MB", "AP", "foreseen", "status"]
    done = [line for line in lines if "error" not in line]
    rows = [
        [
            f"{line['model']}, {line['noise']} noise",
            f"{line['nodes']:,}",
            line["engine"],
            f"{line['seconds']:.1f}",
            f"{line['processor_seconds']:.1f}",
            f"{line['peak_mb']:,.0f}",
            f"{line['ap']:.3f}",
            _foreseen(line),
            line["status"],
        ]
        for line in done
    ]
    laws = []
    for (model, noise, engine), members in grouped(done, ("model", "noise", "engine")).items():
        sizes = np.array([line["nodes"] for line in members], dtype=float)
        if np.unique(sizes).size < 3:
            continue
        sweeps = np.array([expected_sweeps(ENGINES[engine](), line["nodes"]) for line in members])
        start, a, b, sweep = time_law(sizes, sweeps, np.array([line["processor_seconds"] for line in members]))
        base, c, e = memory_law(sizes, np.array([line["peak_mb"] / 1e3 for line in members]))
        seconds = _sum(sizes.max(), f"{start:.1f}", (a, b, "d^{:.2f}"), (sweep, 1.0, "s d"))
        gigabytes = _sum(sizes.max(), f"{base:.2f}", (c, e, "d^{:.2f}"))
        laws.append([f"{model}, {noise} noise", engine, seconds, gigabytes])
    failed = [f"{line['model']} d={line['nodes']}: {line['error']}" for line in lines if "error" in line]
    parts = [markdown(header, rows), markdown(["model", "engine", "processor seconds", "peak GB"], laws), *failed]
    return "\n\n".join(parts)


def _foreseen(line: Line) -> str:
    """What the laws that fits are foreseen by say of a run now."""
    engine = ENGINES[line["engine"]]()
    # The laws belong to scores, whatever the table.
    score = FAMILIES[line["model"]].specs[line["noise"]].prepare(np.random.default_rng(0).normal(size=(9, 2)))
    cost = cost_by_law(score.costs[line["engine"]], engine, line["nodes"])
    return f"{cost.seconds:.0f} s, {cost.gigabytes:.1f} GB"


def _sum(largest: float, first: str, *terms: tuple[float, float, str]) -> str:
    """A law in one line, without terms that vanish at all sizes."""
    seen = [f"{factor:.2g} {words.format(power)}" for factor, power, words in terms if factor * largest**power > 1e-3]
    return " + ".join([first, *seen])


def main(arguments: list[str]) -> int:
    from benchmarks.processes import Runner, selected

    parser = argparse.ArgumentParser(prog="python -m benchmarks size", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", help="only runs whose words contain this")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored already")
    parser.add_argument("--results", type=Path, help="folder of the lines, if not the one of the repository")
    parser.add_argument("--table", action="store_true", help="only print what is stored")
    options = parser.parse_args(arguments)
    records = Records("size", fresh=options.fresh, folder=options.results)
    if not options.table:

        def report(case: Case, line: Line) -> None:
            seen = line.get("error") or f"{line['seconds']:.1f} s, {line['peak_mb']:,.0f} MB, AP {line['ap']:.3f}"
            print(f"{case.words()}: {seen}", file=sys.stderr, flush=True)

        runner = Runner[Case]("benchmarks.size", records, jobs=1, deadline=math.inf, report=report)
        runner.run(selected([[case] for case in cases()], options.only))
    print(tables(records.lines))
    return 0
