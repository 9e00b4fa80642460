"""Three hundred fits of mixed shapes in one process: how its memory grows, and how many programs it holds.

Tables of 3 to 40 columns and 50 to 2,000 rows, hardly two alike, go through every engine and model in turn by a fixed
schedule; fits are short, since what is kept of them does not hang on their length. ``--keep`` says how many compiled
programs are held at most: a very large number shows what JAX would keep by itself. The persistent cache of programs is
a fresh folder, so that every program is compiled here. Lines are of one run and are written anew by the next.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import Line, Records, markdown

FITS = 300
SETTLED = 50
# Multiples of these, which no fraction comes near to, fill both ranges evenly without a pattern.
GOLDEN, PLASTIC = 0.6180339887498949, 0.7548776662466927


@dataclass(frozen=True)
class Case:
    """One fit of the schedule."""

    number: int
    engine: str
    model: str
    noise: str | None
    nodes: int
    rows: int


# Engine, model, noise, most columns and rows: what takes long with many of them gets few.
KINDS: tuple[tuple[str, str, str | None, int, int], ...] = (
    ("orders", "linear", "equal", 40, 2000),
    ("exact", "linear", "unequal", 9, 2000),
    ("variational", "linear", "equal", 40, 2000),
    ("orders", "linear", "unequal", 40, 2000),
    ("straight-through", "linear", "unequal", 40, 2000),
    ("exact", "gp", None, 5, 200),
    ("orders", "additive", None, 16, 2000),
    ("variance-sort", "auto", None, 40, 2000),
    ("variational", "additive", None, 12, 2000),
    ("orders", "gp", None, 6, 200),
    ("straight-through", "mlp", "equal", 16, 2000),
    ("exact", "categorical", None, 8, 2000),
    ("variational", "linear", "unequal", 16, 2000),
    ("dibs", "linear", None, 10, 2000),
    ("auto", "auto", None, 5, 200),
    ("bayesdag", "linear", None, 10, 2000),
    ("grandag", "linear", None, 8, 2000),
    ("dds", "linear", None, 10, 2000),
    ("mcsl", "linear", None, 8, 2000),
    ("r2-sort", "auto", None, 40, 2000),
)
LEAST_COLUMNS, LEAST_ROWS = 3, 50


def cases(count: int) -> Iterator[Case]:
    """The schedule: kinds in turn, sizes spread evenly over their ranges."""
    for number in range(count):
        engine, model, noise, columns, most = KINDS[number % len(KINDS)]
        nodes = LEAST_COLUMNS + int((columns - LEAST_COLUMNS + 1) * (number * GOLDEN % 1.0))
        rows = int(LEAST_ROWS * (most / LEAST_ROWS) ** (number * PLASTIC % 1.0))
        yield Case(number, engine, model, noise, nodes, rows)


def short_engine(case: Case) -> Any:
    """The engine with so few steps that a fit is mostly what surrounds it."""
    from vcuda.baselines.bayesdag import BayesDag
    from vcuda.baselines.dds import Dds
    from vcuda.baselines.dibs import Dibs
    from vcuda.baselines.grandag import GranDag
    from vcuda.baselines.mcsl import Mcsl
    from vcuda.infer.orders import Orders
    from vcuda.infer.straight_through import StraightThrough
    from vcuda.infer.variational import Variational

    made: dict[str, Any] = {
        "orders": Orders(sweeps=40, max_sweeps=40, annealing=20, replicas=4),
        "variational": Variational(steps=20),
        "straight-through": StraightThrough(epochs=4, check_every=2, batch_size=128),
        "dibs": Dibs(particles=8, steps=10, samples=8),
        "bayesdag": BayesDag.corrected(
            epochs=2, chains=2, samples=4, thin=1, sparsity=(25.0,), sinkhorn_iterations=100
        ),
        "grandag": GranDag.corrected(hidden=(), iterations=20),
        "dds": Dds.corrected(hidden=(), epochs=2),
        "mcsl": Mcsl.corrected(hidden=(), rounds=1, steps=20),
    }
    return made.get(case.engine, case.engine)


def table_of(case: Case) -> np.ndarray:
    """Rows (n, d) of a sparse linear model; three categories a column for the categorical one."""
    rng = np.random.default_rng(case.number)
    present = rng.random((case.nodes, case.nodes)) < min(1.0, 1.5 / case.nodes)
    weights = np.triu(rng.uniform(0.5, 2.0, present.shape) * present, 1)
    values = rng.standard_normal((case.rows, case.nodes)) @ np.linalg.inv(np.eye(case.nodes) - weights)
    if case.model == "categorical":
        return np.digitize(values, (-0.5, 0.5)).astype(float)
    return values


def resident_megabytes() -> float:
    """What the process holds now, not at most; only Linux tells."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(case: Case) -> dict[str, Any]:
    import vcuda
    from vcuda.infer import compilation

    engine = short_engine(case)
    options: dict[str, Any] = {"engine": engine, "noise": case.noise, "seed": case.number}
    if isinstance(engine, str) or case.engine in ("orders", "variational", "straight-through"):
        options["model"] = case.model
    started = time.perf_counter()
    posterior = vcuda.fit(table_of(case), **options)
    seconds, status = time.perf_counter() - started, posterior.status.code
    del posterior
    gc.collect()
    return {
        "seconds": seconds,
        "status": status,
        "megabytes": resident_megabytes(),
        "programs": compilation._programs.count,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks longlife", description=__doc__)
    parser.add_argument("--fits", type=int, default=FITS)
    parser.add_argument("--keep", type=int, help="compiled programs that are held at most; by default as in every fit")
    parser.add_argument("--table", action="store_true", help="only print the table of what is stored")
    parser.add_argument("--results", type=Path, help="folder of the lines, if not the one of the repository")
    options = parser.parse_args(arguments)
    records = Records("longlife", folder=options.results)
    if options.table:
        print(table(records.lines))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["VCUDA_CACHE"] = folder
        from vcuda.errors import ConvergenceWarning
        from vcuda.infer import compilation

        warnings.simplefilter("ignore", ConvergenceWarning)  # fits that short are not expected to converge
        if options.keep is not None:
            compilation.KEPT_PROGRAMS = options.keep
        kept = {"kept_programs": compilation.KEPT_PROGRAMS}
        runs = list(cases(options.fits))
        records.forget(asdict(case) | kept for case in runs)
        for case in runs:
            line = records.add(asdict(case) | kept, measure(case))
            seen = f"{line['seconds']:5.1f} s  {line['megabytes']:6.0f} MB  {line['programs']:4d} programs"
            print(f"{case.number:3d}  {seen}  {case.engine} {case.model} {case.nodes} x {case.rows}", file=sys.stderr)
    print(table(records.lines))
    return 0


def table(lines: list[Line]) -> str:
    """Memory after the first fit, after the first 50, at its highest after that, and at the end."""
    rows = []
    for kept in sorted({line["kept_programs"] for line in lines}):
        run = sorted((line for line in lines if line["kept_programs"] == kept), key=lambda line: line["number"])
        held = [line["megabytes"] for line in run]
        later = held[SETTLED:] or held
        rows.append(
            [
                kept,
                len(run),
                f"{held[0]:.0f}",
                f"{held[min(SETTLED, len(held)) - 1]:.0f}",
                f"{max(held[:SETTLED]):.0f}",
                f"{max(later):.0f}",
                f"{held[-1]:.0f}",
                f"{sum(line['seconds'] for line in run):.0f}",
            ]
        )
    header = ["programs kept", "fits", "MB after 1", "after 50", "most up to 50", "most later", "at the end", "seconds"]
    return markdown(header, rows)
