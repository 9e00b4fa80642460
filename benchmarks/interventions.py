"""What experiments are worth: the same number of rows with and without knock-outs, and the Sachs cells.

Simulated: linear tables with unequal noise, where observation leaves directions open. One table has only observed rows,
the other as many rows of which half are knock-outs: ten of them, each of one variable, set to a value of its own.
Fitted with the knock-outs told, with the knock-outs not told, and on the observed table.

Sachs: the 853 observed cells, all 7,466 cells with the targets told, and the same cells with the targets not told,
against the consensus network.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import vcuda
from benchmarks.records import Records
from vcuda.data import library
from vcuda.data.dataset import Dataset
from vcuda.errors import ConvergenceWarning
from vcuda.graphs import topological_order

TARGETS = 10
MEASURED = ("expected_shd", "average_precision", "auroc", "skeleton_average_precision", "brier", "expected_edges")


def knocked_out(
    simulation: Any, *, rows: int, observed: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) of a linear simulation and the cells that were set: first ``observed`` free rows, then knock-outs of
    ``TARGETS`` variables in blocks of one length, each set to zero with a tenth of its usual spread."""
    nodes = simulation.graph.shape[0]
    values = rng.standard_normal((rows, nodes)) * simulation.noise_scales
    mask = np.zeros((rows, nodes), dtype=bool)
    chosen = rng.permutation(nodes)[:TARGETS]
    for target, block in zip(chosen, np.array_split(np.arange(observed, rows), chosen.size), strict=True):
        mask[block, target] = True
        values[block, target] = 0.1 * rng.standard_normal(block.size)
    weights = simulation.weights
    for node in topological_order(simulation.graph):
        caused = values @ (weights[:, node] * simulation.graph[:, node])
        values[:, node] += np.where(mask[:, node], 0.0, caused)
    return values, mask


def simulated(sets: int, *, nodes: int, rows: int) -> Iterator[tuple[dict[str, Any], Dataset, np.ndarray]]:
    """Every data set three times, with what it is and its graph."""
    for index in range(sets):
        made = vcuda.simulate("er", nodes=nodes, edges=nodes, noise="unequal", rows=rows, test_rows=5, seed=index)
        rng = np.random.default_rng([index, 1])
        what = {"source": "simulated", "nodes": nodes, "rows": rows, "index": index}
        yield what | {"given": "observed only"}, made.train, made.graph
        values, mask = knocked_out(made, rows=rows, observed=rows // 2, rng=rng)
        table = vcuda.as_dataset(values)
        yield what | {"given": "targets told"}, vcuda.as_dataset(values, interventions=mask), made.graph
        yield what | {"given": "targets not told"}, table, made.graph


def sachs() -> Iterator[tuple[dict[str, Any], Dataset, np.ndarray]]:
    """The observed cells, and all cells with and without their targets."""
    few, every = library.load("sachs"), library.load("sachs-experiments")
    what = {"source": "sachs", "nodes": 11, "index": 0}
    yield what | {"given": "observed only", "rows": few.dataset.n}, few.dataset, few.truth
    yield what | {"given": "targets told", "rows": every.dataset.n}, every.dataset, every.truth
    bare = Dataset(every.dataset.names, every.dataset.values, every.dataset.source)
    yield what | {"given": "targets not told", "rows": every.dataset.n}, bare, every.truth


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks interventions", description=__doc__)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--table", action="store_true", help="only print what is stored")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ConvergenceWarning)
    records = Records("interventions")
    if not options.table:
        for models, problems in (
            (("linear",), simulated(options.sets, nodes=options.nodes, rows=options.rows)),
            (("linear", "additive"), sachs()),
        ):
            for what, data, truth in problems:
                for model in models:
                    case = what | {"model": model}
                    if records.find(case) is None:
                        records.add(case, _measured(data, truth, model))
    lines = pd.DataFrame(records.lines)
    means = lines.groupby(["source", "model", "given"], sort=False)[[*MEASURED, "seconds"]].mean()
    counts = lines.groupby(["source", "model", "given"], sort=False).size().rename("sets")
    print(means.join(counts).round(3).to_string())
    return 0


def _measured(data: Dataset, truth: np.ndarray, model: str) -> dict[str, Any]:
    log = data.names if data.source.startswith("sachs") else ()
    posterior = vcuda.fit(data, model=model, noise="unequal", log=log)
    found = vcuda.evaluate(posterior, truth)
    seen = {name: found[name] for name in MEASURED}
    print(f"{data!r} {model}: {seen}", flush=True)
    return seen | {"seconds": posterior.provenance["seconds"], "status": posterior.status.code}
