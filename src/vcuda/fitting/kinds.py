"""Kinds of columns in a fit: which model takes them, and which options do not apply."""

from __future__ import annotations

from typing import Any

from vcuda.data.categorical import as_categories, check_no_label_missing, has_few_values
from vcuda.data.kinds import HOW_TO_SET_KINDS, MOST_LABELS
from vcuda.data.messages import HOW_TO_LEAVE_OUT, listed, shortened
from vcuda.data.streaming import StreamedTable
from vcuda.errors import ConfigError
from vcuda.fitting.spec import FitSpec
from vcuda.infer.exact import Exact
from vcuda.infer.orders import Orders
from vcuda.models import FAMILIES
from vcuda.models.protocol import ScoreSpec

ENGINES_FOR_CATEGORIES = ("auto", "exact", "orders")


def resolve_kinds(table: Any, spec: FitSpec) -> tuple[Any, Any, list[str]]:
    """The table and the model of a fit, by the kinds of the columns, and sentences about the choice.

    Model categorical is taken for ``auto`` where all columns are labels, or few whole numbers beside labels; by name it
    takes every different number as a label. A table of numbers passes as it is. Labels beside numbers are refused.
    """
    model: Any = spec.model
    known = FAMILIES[model].usual if isinstance(model, str) and model in FAMILIES else model
    asked = isinstance(known, ScoreSpec) and known.takes_categories
    labels = _label_columns(table)
    if not labels and not asked:
        return table, model, []
    if isinstance(table, StreamedTable):
        raise ConfigError(
            f"column {_example(table, labels[0])}, and labels need a table in memory: leave its kind out, or read the "
            "table at once (streamed=False, --in-memory)"
        )
    if labels:
        check_no_label_missing(table, labels)
    sentences = []
    if not asked:
        if not isinstance(model, str) or model != "auto":
            name = model if isinstance(model, str) else type(model).__name__
            raise ConfigError(
                f"column {_example(table, labels[0])}, and model {name} is for numbers: use model categorical or auto, "
                "or code the labels as numbers (0 and 1 for two of them)"
            )
        others = [k for k in range(table.d) if k not in labels]
        numbers = [k for k in others if table.kinds[k] in ("number", "count") and not _is_few(table, k)]
        if numbers:
            raise ConfigError(
                f"column {_example(table, labels[0])} and column {shortened(table.names[numbers[0]])} holds numbers, "
                "and no model takes both: code the labels as numbers (0 and 1 for two of them), leave them out "
                f"{HOW_TO_LEAVE_OUT}, or bin the numbers into categories (pandas.qcut)"
            )
        model = "categorical"
        sentences = ["Every column holds labels, so the model is categorical; no other was compared."]
        if others:
            which = listed([table.names[k] for k in others])
            holds = f"Columns {which} hold" if len(others) > 1 else f"Column {which} holds"
            sentences = [
                f"{holds} few different numbers beside columns of labels: the model is categorical, which takes each "
                "number as a label; no other was compared."
            ]
    _check(spec)
    return as_categories(table, most=MOST_LABELS if isinstance(model, str) else model.max_levels), model, sentences


def _label_columns(table: Any) -> list[int]:
    """The columns that hold labels, and the numbers that somebody calls labels."""
    categories = table.categories or (None,) * table.d
    return [k for k in range(table.d) if categories[k] is not None or table.kinds[k] == "label"]


def _is_few(table: Any, column: int) -> bool:
    cells = table.values[:, column]
    return has_few_values(cells) and bool((cells == cells.round()).all())


def _example(table: Any, column: int) -> str:
    """A column of labels, with some of them."""
    labels = None if table.categories is None else table.categories[column]
    if labels is None:
        return f"{shortened(table.names[column])} has kind label {HOW_TO_SET_KINDS}"
    return f"{shortened(table.names[column])} holds labels ({listed(labels, 3)})"


def _check(spec: FitSpec) -> None:
    engine = spec.engine
    name = engine if isinstance(engine, str) else type(engine).__name__
    known = engine in ENGINES_FOR_CATEGORIES if isinstance(engine, str) else isinstance(engine, Exact | Orders)
    if spec.preset == "paper" or not known:
        setting = "preset paper" if spec.preset == "paper" else f"engine {name}"
        raise ConfigError(f"{setting} is for numbers; labels (model categorical) are fitted by engine exact or orders")
    for option, fault in (
        ("noise", "have no noise variances"),
        ("log", "have no logarithms"),
        ("standardise", "cannot be standardised"),
    ):
        if getattr(spec, option):
            raise ConfigError(f"labels (model categorical) {fault}; leave {option} out")
