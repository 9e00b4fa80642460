"""How often the check for hidden causes flags tables: ``python -m benchmarks.honesty.hidden``, about four minutes.

Every table is fitted by the linear model with unequal noise, which the fit by default chooses for nearly all of them,
and the checks have as much time as they ask for.
"""

from __future__ import annotations

import argparse
import warnings

import vcuda
from benchmarks.honesty.cases import FIRST_SET, NODES, ROWS
from benchmarks.honesty.departures import make
from vcuda.checks.run import HIDDEN, check
from vcuda.checks.subject import SURE
from vcuda.data.reading import as_dataset
from vcuda.infer.edge_prior import edge_prior

TABLES = ("linear, unequal noise", "one hidden cause", "errors of measurement", "hidden causes of pairs")
SETS = 30
# The seconds that a fit is taken to last, so that no check is cut short.
LONG = 1e6


def flagged(name: str, rows: int, seed: int) -> tuple[bool, int, int]:
    """Whether the check finds something in a table; its sure edges, and those that are wrong."""
    made = make(name, nodes=NODES, rows=rows, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        posterior = vcuda.fit(
            made.table, model="linear", noise="unequal", engine="exact", seed=seed, checks=False, robust=False
        )
    table, probability = as_dataset(made.table), posterior.provenance.edge_probability or 0.5
    found = check(posterior, table, edge_prior(table.d, probability), seed=seed, fit_seconds=LONG)
    sure = posterior.edge_probabilities.to_numpy() >= SURE
    return any(one.check == HIDDEN for one in found), int(sure.sum()), int((sure & ~made.truth).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=SETS, help="tables of each kind")
    sets = parser.parse_args().sets
    print(
        "| tables | rows | flagged | of those with two or more sure edges wrong | true among sure, unflagged tables |"
    )
    print("|---|---|---|---|---|")
    for name in TABLES:
        for rows in ROWS:
            found = [flagged(name, rows, seed) for seed in range(FIRST_SET, FIRST_SET + sets)]
            wrong = [one for one, _, false in found if false >= 2]
            sure = sum(edges for one, edges, _ in found if not one)
            true = sure - sum(false for one, _, false in found if not one)
            print(f"| {name} | {rows:,} | {sum(one for one, _, _ in found)} of {sets} ", end="")
            print(f"| {sum(wrong)} of {len(wrong)} | {true} of {sure} |", flush=True)


if __name__ == "__main__":
    main()
