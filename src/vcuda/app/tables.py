"""What the page asks before a fit: the columns of a table, whether what is known can be true, and the command."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.examination import described
from vcuda.data.knowledge import Knowledge
from vcuda.data.missing_codes import missing_codes
from vcuda.data.streaming import StreamedTable
from vcuda.errors import ConfigError, KnowledgeError
from vcuda.fitting.contexts import check_contexts
from vcuda.fitting.hidden import check_hidden
from vcuda.fitting.series import open_series
from vcuda.fitting.spec import OF_TIME, OPTIONS, FitSpec

BARS = 16
MOST_COLUMNS = 2_000
# Options of a fit that the page may set, beside the table and what is known.
SETTABLE = (
    "kinds", "exclude", "missing_values", "sheet", "query", "time_limit", "seed", "target", "interventions",
    "lags", *OF_TIME, "contexts", "reference", "changes", "hidden",
)  # fmt: skip


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The options that the page sent and that this version has; the others have their defaults."""
    for name in given:
        if name not in SETTABLE:
            raise ConfigError(f"the app cannot set the option {name!r}; use the command line")
    empty: tuple[Any, ...] = (None, [], {}, "")
    return {name: value for name, value in given.items() if value not in empty and value != OPTIONS[name].default}


def inspect(table: str, options: dict[str, Any]) -> dict[str, Any]:
    """Every column with its kind, a histogram, its missing values, how rows are taken, and the notes on the table."""
    spec = FitSpec(**_options(options))
    opened = spec.open(table)
    data = opened.sample if isinstance(opened, StreamedTable) else opened
    reports = {one.name: one for one in described(data)}
    codes = {k: {"code": f"{code:g}"} for code, own in missing_codes(data.values, data.categories).items() for k in own}
    columns = [
        {"name": name, "kind": reports[name].kind, "why": reports[name].why, **_pictured(data, k), **codes.get(k, {})}
        for k, name in enumerate(data.names[:MOST_COLUMNS])
    ]
    columns += [{"name": one.name, "kind": None, "why": one.why} for one in reports.values() if one.kind is None]
    return {
        "source": opened.source,
        "rows": opened.n,
        "sampled": data.n < opened.n,
        "taken_as": _rows_in_words(opened, spec),
        "columns": columns,
        "notes": list(opened.notes),
        "interventions": opened.target_column,
    }


def _rows_in_words(table: Dataset | StreamedTable, spec: FitSpec) -> list[str]:
    """How the rows are taken, in sentences; what the fit would refuse is refused here, before it is started."""
    if spec.hidden:
        check_hidden(spec, table)
    check_contexts(spec, table.contexts, by_scores=True)
    if spec.lags is None:
        return [] if table.contexts is None else [table.contexts.in_words()]
    if spec.lags == "auto":  # which takes its time: only what would be refused is looked for
        open_series(table, replace(spec, lags=1))
        return ["How many steps back causes lie is found by the fit."]
    return list(open_series(table, spec).sentences)


def _pictured(data: Dataset, k: int) -> dict[str, Any]:
    """The cells of a column in numbers: a bar for each label, or for each of a few stretches."""
    values = data.values[:, k]
    present = values[~np.isnan(values)]
    labels = None if data.categories is None else data.categories[k]
    found: dict[str, Any] = {"missing": int(len(values) - len(present))}
    if labels is not None:
        counts = np.bincount(present.astype(int), minlength=len(labels))
        order = range(len(labels)) if len(labels) <= BARS else np.argsort(-counts, kind="stable")[:BARS]
        found["bars"] = [[str(labels[at]), int(counts[at])] for at in order]
        found["more_labels"] = max(len(labels) - BARS, 0)
        return found
    if not len(present):
        return found | {"bars": []}
    different = np.unique(present)
    if len(different) <= BARS:
        found["bars"] = [[f"{value:g}", int((present == value).sum())] for value in different]
    else:
        counts, ends = np.histogram(present, bins=BARS)
        found["bars"] = [
            [f"{low:.4g} to {high:.4g}", int(count)]
            for low, high, count in zip(ends[:-1], ends[1:], counts, strict=True)
        ]
    numbers = {"mean": present.mean(), "sd": present.std(), "min": present.min(), "max": present.max()}
    return found | {name: float(number) for name, number in numbers.items()}


def check_knowledge(knowledge: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Whether what is known can be true of these columns, in a sentence; and the file that says it."""
    known = Knowledge.from_dict(knowledge)
    known.for_columns(names, edge_probability=0.5)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "knowledge.toml"
        known.write(file)
        text = file.read_text(encoding="utf-8")
    return {"sentence": known.sentence() if known else "", "toml": text}


def read_knowledge(name: str, text: str) -> dict[str, Any]:
    """What a knowledge file says, in any format that `vcuda fit` reads."""
    ending = Path(name).suffix.lower() or ".toml"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"knowledge{ending}"
        file.write_text(text, encoding="utf-8")
        try:
            return Knowledge.read(file).to_dict()
        except KnowledgeError as error:
            raise KnowledgeError(str(error).replace(str(file), name)) from None


def request(
    table: str, options: dict[str, Any], knowledge: dict[str, Any] | None, file: str, run: str
) -> dict[str, Any]:
    """The words of ``vcuda fit`` for what was asked, all checked; what is known is written to its file."""
    chosen = _options(options)
    FitSpec(**chosen)
    words = ["vcuda", "fit", table, "-o", run]
    for name, value in chosen.items():
        words += OPTIONS[name].flag_words(value)
    known = Knowledge.from_dict(knowledge or {})
    if known:
        known.write(file)
        words += ["--knowledge", file]
    if any("\0" in word for word in words):
        raise ConfigError("a column name holds a zero byte, which no command line can: rename the column")
    return {"words": words, "knowledge": known.to_dict() if known else None}
