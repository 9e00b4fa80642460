"""``python -m benchmarks NAME``: every number in the documentation comes from one of these."""

from __future__ import annotations

import sys
from importlib import import_module

BENCHMARKS = {
    "sampling": "milliseconds a graph for every DAG distribution, up to 100,000 nodes",
    "paper": "the paper's experiments, every method on the same data sets (see paper --help)",
    "accuracy": "every engine and score on data with a known graph, in suites (see accuracy --help)",
    "kinds": "mixed tables, noise of every shape, times: what the default makes of them (see kinds --help)",
    "honesty": "tables that break the model: how often sure edges are wrong, and is it said (see honesty --help)",
    "worlds": "rows from several environments, and single rows, beside peers (see worlds --help)",
    "peers": "our baselines beside the published numbers, dibs-lib and gcastle (see peers --help)",
    "effects": "coverage of total effects and worth of suggested experiments, against a known truth",
    "interventions": "what knock-outs are worth, on simulated tables and on the Sachs cells",
    "rows": "tables with many rows: read and fitted in bounded memory, beside a plain scan and beside all in memory",
    "size": "seconds and memory against the number of columns, and the laws by which a fit is foreseen",
    "longlife": "300 fits of mixed shapes in one process: its memory after each",
    "missing": "a tenth of the cells taken away: what imputation loses against the complete tables",
    "kills": "fits killed at random moments and resumed, beside the same fits left alone",
    "cluster": "a Dask cluster of local processes against one: the same posterior, and what it gains",
    "picture": "the README's picture, from a fit of the Sachs cells",
}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help"}:
        print("usage: python -m benchmarks NAME [options]; NAME is 'all' or one of\n")
        for name, what in BENCHMARKS.items():
            print(f"  {name:<14} {what}")
        return 0
    name, *rest = arguments
    if name == "all":
        return max(_run(each, rest) for each in BENCHMARKS)
    if name not in BENCHMARKS:
        print(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    return _run(name, rest)


def _run(name: str, arguments: list[str]) -> int:
    return import_module(f"benchmarks.{name.replace('-', '_')}").main(arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
