"""Tables with many rows: read and fitted in bounded memory, beside a plain scan of the same file and all in memory.

Rows of a linear model are written to a Parquet file by blocks, in a folder that is deleted afterwards. Then each way of
reading it runs in a process of its own: Arrow's scans, which do nothing with what they read; `gather`, one pass for the
statistics; with ``--features`` also `gather_features` with the functions of model additive; and a whole linear fit,
``fit``. Up to ``--in-memory`` rows the last two are also done with the table in memory: the Gram matrix must be the
same, and so must the posterior. Wall-clock time tells little on a busy machine: the processor's is told beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

WRITTEN_ROWS = 100_000
EDGE_PROBABILITY = 0.2
# Means are up to 300 and standard deviations about 1: products that were not centred would lose five digits of sixteen.
SAME = 1e-12
SAME_POSTERIOR = 1e-6


def write_table(path: Path, *, rows: int, nodes: int, seed: int) -> None:
    """Write rows of a linear model with unit noise and columns in units of their own, a block at a time."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    rng = np.random.default_rng(seed)
    weights = np.triu(rng.standard_normal((nodes, nodes)) * (rng.random((nodes, nodes)) < EDGE_PROBABILITY), 1)
    mixing = np.linalg.inv(np.eye(nodes) - weights) * np.exp(rng.standard_normal(nodes))
    means = 100 * rng.standard_normal(nodes)
    schema = pa.schema([(f"X{k}", pa.float64()) for k in range(1, nodes + 1)])
    with ParquetWriter(path, schema) as writer:
        for start in range(0, rows, WRITTEN_ROWS):
            block = rng.standard_normal((min(WRITTEN_ROWS, rows - start), nodes)) @ mixing + means
            writer.write_table(pa.table([pa.array(column) for column in block.T], schema=schema))


# In the measuring process -----------------------------------------------------------------------------------


def _scan(path: Path) -> None:
    from pyarrow.parquet import ParquetFile

    for _ in ParquetFile(path).iter_batches():
        pass


def _scan_buffered(path: Path) -> None:
    from pyarrow.parquet import ParquetFile

    for _ in ParquetFile(path, buffer_size=1 << 20, pre_buffer=False).iter_batches():
        pass


def _scan_dataset(path: Path) -> None:
    from pyarrow import dataset

    for _ in dataset.dataset(path).to_batches():
        pass


def _gather(path: Path) -> np.ndarray:
    from vcuda.data.streaming.passes import gather

    return gather(path).moments.gram


def _features(path: Path) -> None:
    from vcuda.data.streaming.passes import gather, gather_features
    from vcuda.models.additive import AdditiveBasis, ColumnBasis

    statistics = gather(path)
    spec = AdditiveBasis()
    sample = (statistics.sample.values - statistics.mean) / statistics.scale
    bases = [ColumnBasis(*spec.expand(column)[0][:2], np.zeros(spec.features)) for column in sample.T]

    def expand(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([basis.at(column) for basis, column in zip(bases, rows.T, strict=True)], axis=1)

    gather_features(path, expand, statistics=statistics)


def _in_memory(path: Path) -> np.ndarray:
    import vcuda

    data = vcuda.as_dataset(path)
    centred = data.values - data.mean
    return np.asarray(centred.T @ centred)


def _fit(path: Path, *, streamed: bool) -> np.ndarray:
    import vcuda

    return vcuda.fit(path, model="linear", streamed=streamed).edge_probabilities.to_numpy()


WAYS: dict[str, Callable[[Path], np.ndarray | None]] = {
    "scan": _scan,
    "scan by pieces": _scan_buffered,
    "scan as a dataset": _scan_dataset,
    "gather": _gather,
    "gather, then features": _features,
    "in memory": _in_memory,
    "fit": partial(_fit, streamed=True),
    "fit in memory": partial(_fit, streamed=False),
}
HELD = ("in memory", "fit in memory")


def measure_line(what: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Read the table once in one of the ways; the matrix that comes of it stays in the folder."""
    path, way = folder / "table.parquet", WAYS[what["way"]]
    _warm(folder, way)
    at_rest = _peak_memory()
    started, worked = time.perf_counter(), time.process_time()
    found = way(path)
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    if found is not None:
        np.save(folder / f"{what['way']}.npy", found)
    return {"seconds": seconds, "processor": processor, "at_rest_mb": at_rest, "peak_mb": _peak_memory()}


def _peak_memory() -> float:
    """As `benchmarks.measures` has it, in MB, but without JAX, which that imports: 200 MB that have no part in this."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        kilobytes = 1024 if sys.platform == "darwin" else 1
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / kilobytes / 1024


def _warm(folder: Path, way: Callable[[Path], np.ndarray | None]) -> None:
    """Import everything, and start Arrow's threads, on a few rows."""
    few = folder / "few.parquet"
    if not few.exists():
        write_table(few, rows=100, nodes=3, seed=0)
    way(few)


# In the process that asks -----------------------------------------------------------------------------------


def measure(way: str, folder: Path) -> dict[str, Any]:
    """One way in a process of its own, because memory that one has held is not given back to the next."""
    from benchmarks.processes import ROOT, SINGLE_THREADED

    asked = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", "benchmarks.rows", str(folder)],
        input=json.dumps({"way": way}) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | SINGLE_THREADED,
        check=True,
    )
    found: dict[str, Any] = json.loads(asked.stdout)
    if "error" in found:
        raise RuntimeError(f"{way}: {found['error']}")
    return found


def differences(folder: Path) -> tuple[float, float]:
    """How far the Gram matrices of `gather` and of the table in memory are apart, as correlations, and how far the
    edge probabilities of the two fits."""
    gathered, direct = np.load(folder / "gather.npy"), np.load(folder / "in memory.npy")
    scale = np.sqrt(np.diag(direct))
    apart = np.abs((gathered - direct) / np.outer(scale, scale)).max()
    return float(apart), float(np.abs(np.load(folder / "fit.npy") - np.load(folder / "fit in memory.npy")).max())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks rows", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000, 20_000_000])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--in-memory", type=int, default=2_000_000, help="most rows that are also read all at once")
    parser.add_argument("--features", action="store_true", help="also the products of basis functions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    from benchmarks.records import markdown

    lines, compared = [], []
    for rows in options.rows:
        ways = [way for way in WAYS if way != "gather, then features" or options.features]
        if rows > options.in_memory:
            ways = [way for way in ways if way not in HELD]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_table(folder / "table.parquet", rows=rows, nodes=options.nodes, seed=options.seed)
            for way in ways:
                found = measure(way, folder)
                lines.append(_cells(rows, way, found))
                print(" | ".join(lines[-1]), file=sys.stderr, flush=True)
            if rows <= options.in_memory:
                compared.append((rows, *differences(folder)))
    print(f"\n{options.nodes} columns of numbers in double precision, one Parquet file\n")
    header = ["rows", "way", "seconds", "processor seconds", "rows a second", "peak MB", "of which before"]
    print(markdown(header, lines))
    print()
    for rows, grams, posteriors in compared:
        print(
            f"{rows:,} rows: the Gram matrices differ by at most {grams:.1e} as correlations, the edge probabilities "
            f"by {posteriors:.1e}"
        )
    return int(any(grams > SAME or posteriors > SAME_POSTERIOR for _, grams, posteriors in compared))


def _cells(rows: int, way: str, found: dict[str, Any]) -> list[str]:
    return [
        f"{rows:,}",
        way,
        f"{found['seconds']:.2f}",
        f"{found['processor']:.2f}",
        f"{rows / found['seconds']:,.0f}",
        f"{found['peak_mb']:,.0f}",
        f"{found['at_rest_mb']:,.0f}",
    ]
