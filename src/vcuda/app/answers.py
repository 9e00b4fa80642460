"""Answers to what the page asks about tables and runs, as JSON. They are given in processes of their own."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vcuda.app.tables import check_knowledge, inspect, read_knowledge, request
from vcuda.data.series import lagged_name
from vcuda.outputs.exports.files import FORMATS, STRUCTURES
from vcuda.outputs.report import report_page, sentences
from vcuda.outputs.report.contexts import changes
from vcuda.outputs.report.hidden import hidden_causes
from vcuda.outputs.report.sections import TableSection
from vcuda.outputs.report.time import over_time
from vcuda.outputs.reproduction import python_lines, shell_line
from vcuda.posterior.mixed_graphs import HiddenCausesPosterior
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.status import edges_in_doubt
from vcuda.summaries.categorical_effects import CategoryEffect
from vcuda.summaries.effects import Effect
from vcuda.summaries.impulses import ImpulseResponse
from vcuda.summaries.simulated_effects import SimulatedEffect

# Edges that are sent: every pair at 200 columns; less probable ones are not drawn.
MOST_EDGES, SMALLEST_PROBABILITY = 40_000, 0.01
MOST_ROWS = 200
LOADED_RUNS = 4
DRAWS = 500


@lru_cache(maxsize=LOADED_RUNS)
def _loaded(run: str, stamp: tuple[int, int]) -> Posterior:
    return Posterior.load(run)


def _load(run: str) -> Posterior:
    """A run; one that was loaded before and has not changed is not read again."""
    try:
        state = (Path(run) / "config.json").stat()
        stamp = state.st_mtime_ns, state.st_size
    except OSError:
        stamp = 0, 0
    return _loaded(run, stamp)


def result(run: str) -> dict[str, Any]:
    """What a run found: the graph, the finding in words, how far to trust it, checks, notes, and how to repeat it."""
    posterior = _load(run)
    agreed, checks, made = posterior.consensus(), posterior.checks(), posterior.provenance
    lagged, shell = posterior.lagged, shell_line(posterior)
    sections = [one for make in (changes, over_time, hidden_causes) if (one := make(posterior)) is not None]
    return {
        "names": list(posterior.names if lagged is None else lagged.names),
        "kinds": None if posterior.kinds is None else list(posterior.kinds),
        "edges": _edges(posterior),
        "when": None if lagged is None else [lagged.later(lag) for lag in range(lagged.lags + 1)],
        "sections": [_table_section(one) for one in sections],
        "cannot": _cannot(posterior),
        "found": sentences.found_in_short(posterior, agreed),
        "found_more": [sentence for one in sections for sentence in one.found],
        "first": [one._asdict() for one in sentences.first_edges(posterior, agreed)],
        "sure": sentences.how_sure(posterior),
        "wrong": sentences.could_be_wrong(posterior),
        "verdict": sentences.verdict(posterior),
        "status": posterior.status.code,
        "trust": [list(pair) for pair in sentences.trust(posterior.status)],
        "checks": {"summary": checks.summary, "findings": [_finding(one) for one in checks]},
        "notes": list(made.notes),
        "settings": [list(pair) for pair in sentences.asked(posterior)],
        "source": made.source,
        "rows": made.rows,
        "seconds": made.seconds,
        "seed": made.seed,
        "python": "\n".join(python_lines(posterior)),
        "shell": shell,
        "exports": {name: list(one.endings) for name, one in (FORMATS | STRUCTURES).items()},
    }


def _edges(posterior: Posterior) -> list[list[Any]]:
    """Edges as the page draws them: ends, probability, whether in doubt, whether known, lag, and the probability that
    a hidden cause joins the two instead."""
    doubted = {frozenset(edge) for edge in edges_in_doubt(posterior.checks())}
    known = posterior.provenance.get("knowledge") or {}
    required = {tuple(edge) for edge in known.get("required", ())}

    def edge(source: str, target: str, probability: float, lag: int = 0, hidden: float = 0.0) -> list[Any]:
        pair = lagged_name(source, lag), target
        shares = round(float(probability), 4), round(float(hidden), 4)
        return [source, target, shares[0], frozenset(pair) in doubted, pair in required, lag, shares[1]]

    if isinstance(posterior, HiddenCausesPosterior):
        pairs = posterior.pairs(minimum=SMALLEST_PROBABILITY).drop(columns="none")
        return [
            one
            for source, target, forth, back, hidden in pairs.itertuples(index=False, name=None)
            for one in (edge(source, target, forth, 0, hidden), edge(target, source, back, 0, hidden))
        ]
    columns = ["source", "target", "probability", *(["lag"] if posterior.lagged is not None else [])]
    found = posterior.edges(minimum=SMALLEST_PROBABILITY).head(MOST_EDGES)[columns]
    return [edge(*one) for one in found.itertuples(index=False, name=None)]


def _table_section(section: TableSection) -> dict[str, Any]:
    table = {
        "title": section.title,
        "head": list(section.head),
        "numeric": [k in section.numbers for k in range(len(section.head))],
        "rows": [list(row) for row in section.rows],
        "more": 0,
    }
    return {"id": section.id, "title": section.link, "sentences": list(section.sentences), "table": table}


def _cannot(posterior: Posterior) -> dict[str, str]:
    """Questions that this kind of result does not answer, in sentences; the page does not ask them."""
    if posterior.lagged is not None:
        return {
            "why": "Why an arrow is sure is answered for independent rows only.",
            "next": "Which experiment to make next is answered for independent rows only.",
        }
    if isinstance(posterior, HiddenCausesPosterior):
        again = "ask again without hidden causes to see them."
        return {
            "why": f"With hidden causes there is no breakdown of where a probability comes from: {again}",
            "effects": f"Graphs with hidden causes have no functions, and so no effects: {again}",
            "next": f"With hidden causes experiments are not compared: {again}",
        }
    if posterior.provenance.get("contexts"):
        return {"why": "Why an arrow is sure is answered for rows of one environment only."}
    return {}


def _finding(finding: Any) -> dict[str, Any]:
    fields = ("check", "severity", "sentence", "changes", "remedy")
    return {name: getattr(finding, name) for name in fields} | {"edges": [list(edge) for edge in finding.edges[:12]]}


def effect(run: str, cause: str, outcome: str) -> dict[str, Any]:
    """What happens to one column when another is set."""
    found = _load(run).effect(cause, outcome)
    shown: dict[str, Any] = {
        "cause": cause,
        "outcome": outcome,
        "answer": found.answer,
        "caveat": found.caveat,
        "probability_zero": found.probability_zero,
    }
    if isinstance(found, CategoryEffect):
        return shown | {"tables": [_table("Probabilities when it is set", found.table)]}
    if isinstance(found, ImpulseResponse):
        response = found.table.rename(columns={"horizon": "steps_later"})
        step = "step" if found.step == "row" or not found.step.isalpha() else found.step
        return shown | {
            "later": f"{step}s",
            "curve": _records(found.table.rename(columns={"horizon": "x"})),
            "tables": [_table("Changes so many steps later, with 90 % intervals", response)],
        }
    low, high = found.interval
    shown |= {"mean": found.mean, "low": low, "high": high}
    if isinstance(found, SimulatedEffect):
        main = found.main
        unit = {"measure": main.measure.words, "unit": main.measure.unit, "before": main.before, "after": main.after}
        return shown | unit | {"tables": [_table("Changes when it is set, with 90 % intervals", found.table)]}
    assert isinstance(found, Effect)
    unit = {"measure": f"expected {outcome}", "unit": "", "before": "x", "after": "x + 1"}
    return shown | unit | {"curve": _records(found.curve), "tables": []}


def paths(run: str, cause: str, outcome: str) -> dict[str, Any]:
    """Whether one column is upstream of another, and by which way."""
    found = _load(run).paths(cause, outcome, draws=DRAWS)
    return {"probability": found.probability, "table": _table("Ways from one to the other", found.table)}


def why(run: str, cause: str, effect: str, data: str | None) -> dict[str, Any]:
    """Where the probability of an edge comes from."""
    found = _load(run).why(cause, effect, data=data)
    return {
        "sentences": list(found.sentences),
        "tables": [_table(title, table) for title, table in found.tables()],
        "notes": list(found.notes),
    }


def drivers(run: str, target: str) -> dict[str, Any]:
    """What drives a column: its causes, by what they change in it."""
    found = _load(run).drivers(target)
    return found.to_dict() | {"sentences": found.sentences}


def experiments(run: str) -> dict[str, Any]:
    """Which column to set next in an experiment."""
    found = _load(run).next_experiment(draws=DRAWS)
    settles = bool((found.information > 0).any())
    said = {"variable": "column", "information": "information, bits", "edges_oriented": "directions it settles"}
    return {
        "settles": settles,
        "table": _table("What setting a column is expected to teach", found.rename(columns=said)),
    }


def compare(run: str, other: str) -> dict[str, Any]:
    """What changed between two runs."""
    found = _load(run).compare(_load(other))
    return {
        "sum_of_differences": found.sum_of_differences,
        "pairs_that_differ": found.pairs_that_differ,
        "only_here": list(found.only_here),
        "only_there": list(found.only_there),
        "edges": _records(found.edges[found.edges.difference.abs() >= 0.005].head(MOST_ROWS)),
    }


def download(run: str, kind: str, asked: dict[str, Any]) -> dict[str, Any]:
    """A file to keep: the report, the edges in a format for another program, or the lines that repeat the fit."""
    posterior = _load(run)
    if kind == "report":
        return {"ending": ".html", "text": report_page(posterior)}
    if kind == "python":
        return {"ending": ".py", "text": "\n".join(python_lines(posterior)) + "\n"}
    if kind == "shell":
        line = shlex.join(asked["words"]) if asked.get("words") else shell_line(posterior)
        return {"ending": ".sh", "text": f"{line or '# see the lines of Python'}\n"}
    every = FORMATS | STRUCTURES
    known = every[kind]
    graph = posterior.consensus() if kind in STRUCTURES else posterior
    minimum = 0.0 if kind in STRUCTURES else SMALLEST_PROBABILITY
    return {"ending": known.endings[0], "text": known.to_text(graph, minimum=minimum)}


def _table(title: str, table: pd.DataFrame) -> dict[str, Any]:
    """A table as people read it: numbers to four digits."""
    shown = table.head(MOST_ROWS)
    numeric = [table[name].dtype.kind in "fi" for name in table.columns]
    return {
        "title": title,
        "head": [str(name).replace("_", " ") for name in table.columns],
        "numeric": numeric,
        "rows": [[_cell(value) for value in row] for row in shown.itertuples(index=False, name=None)],
        "more": len(table) - len(shown),
    }


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{round(value, 2) + 0.0:.2f}" if abs(value) <= 1 else f"{value:.4g}"
    return str(value)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): _plain(value) for key, value in row.items()} for row in table.to_dict("records")]


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def ready() -> bool:
    """That everything is imported."""
    return True


QUESTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        ready, inspect, check_knowledge, read_knowledge, request,
        result, effect, paths, why, drivers, experiments, compare, download,
    )
}  # fmt: skip
