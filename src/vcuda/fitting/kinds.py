"""Kinds of columns in a fit: which model takes them, and which options do not apply."""

from __future__ import annotations

from typing import Any

from vcuda.data.categorical import as_categories, check_no_label_missing
from vcuda.data.kinds import HOW_TO_SET_KINDS, KINDS, MOST_LABELS
from vcuda.data.messages import listed, shortened
from vcuda.data.streaming import StreamedTable
from vcuda.errors import ConfigError
from vcuda.fitting.spec import FitSpec
from vcuda.infer.exact import Exact
from vcuda.infer.orders import Orders
from vcuda.models import FAMILIES
from vcuda.models.mixed.spec import Mixed
from vcuda.models.protocol import ScoreSpec

ENGINES_OF_SETS = ("auto", "exact", "orders")


def resolve_kinds(table: Any, spec: FitSpec) -> tuple[Any, Any, list[str]]:
    """The table and the model of a fit, by the kinds of the columns, and sentences about the choice.

    Model categorical is taken for ``auto`` where all columns are labels, or yes/no beside labels, and no cell is
    missing; by name it takes every different number as a label. Model mixed is taken for ``auto`` where numbers, counts
    or ordered numbers stand beside labels, however few values they have, or labels are missing. A table of numbers
    passes as it is.
    """
    model: Any = spec.model
    known = FAMILIES[model].usual if isinstance(model, str) and model in FAMILIES else model
    asked = isinstance(known, ScoreSpec) and known.takes_categories
    labels = _label_columns(table)
    if labels and isinstance(table, StreamedTable):
        raise ConfigError(
            f"column {_example(table, labels[0])}, and labels need a table in memory: leave its kind out, or read the "
            "table at once (streamed=False, --in-memory)"
        )
    if isinstance(known, Mixed):
        _check(spec, "mixed", noise=True)
        return table, model, []
    if not labels and not asked:
        if model == "auto" and _takes_any_kind(spec) and set(table.kinds) != {"number"}:
            return table, "mixed", [_mixed_sentence(table)]
        return table, model, []
    if labels and asked:
        check_no_label_missing(table, labels)
    sentences = []
    if not asked:
        if not isinstance(model, str) or model != "auto":
            name = model if isinstance(model, str) else type(model).__name__
            raise ConfigError(
                f"column {_example(table, labels[0])}, and model {name} is for numbers: use model mixed or auto, "
                "or code the labels as numbers (0 and 1 for two of them)"
            )
        others = [k for k in range(table.d) if k not in labels]
        # As labels, numbers would have no order, and each of them probabilities of its own: docs/decisions.md.
        varied = any(table.kinds[k] != "yes/no" for k in others)
        # Cells of any kind are imputed; model categorical takes complete tables.
        if varied or table.missing is not None:
            _check(spec, "mixed", noise=True)
            return table, "mixed", [_mixed_sentence(table)]
        model = "categorical"
        sentences = ["Every column holds labels, so the model is categorical; no other was compared."]
        if others:
            which = listed([table.names[k] for k in others])
            holds = f"Columns {which} hold" if len(others) > 1 else f"Column {which} holds"
            sentences = [
                f"{holds} two different numbers beside columns of labels: the model is categorical, which takes each "
                "number as a label; no other was compared."
            ]
    _check(spec, "categorical")
    return as_categories(table, most=MOST_LABELS if isinstance(model, str) else model.max_levels), model, sentences


def takes_sets(engine: Any) -> bool:
    """Whether an engine, a name or a spec, takes scores of any sets of parents."""
    return engine in ENGINES_OF_SETS if isinstance(engine, str) else isinstance(engine, Exact | Orders)


def _takes_any_kind(spec: FitSpec) -> bool:
    """Whether nothing was asked for that numbers alone have."""
    return takes_sets(spec.engine) and spec.preset != "paper" and spec.noise is None and not spec.standardise


def _mixed_sentence(table: Any) -> str:
    """Which kinds there are, with the columns of each."""
    found = []
    for kind in KINDS:
        names = [name for name, own in zip(table.names, table.kinds, strict=True) if own == kind]
        if names:
            found.append(f"{kind}: {listed(names)}")
    return f"Each column is described by a regression of its kind ({'; '.join(found)})."


def _label_columns(table: Any) -> list[int]:
    """The columns that hold labels, and the numbers that somebody calls labels."""
    categories = table.categories or (None,) * table.d
    return [k for k in range(table.d) if categories[k] is not None or table.kinds[k] == "label"]


def _example(table: Any, column: int) -> str:
    """A column of labels, with some of them."""
    labels = None if table.categories is None else table.categories[column]
    if labels is None:
        return f"{shortened(table.names[column])} has kind label {HOW_TO_SET_KINDS}"
    return f"{shortened(table.names[column])} holds labels ({listed(labels, 3)})"


def _check(spec: FitSpec, model: str, *, noise: bool = False) -> None:
    """Refuse what labels do not have; ``noise``: other columns have logarithms, but no choice of noise either."""
    engine = spec.engine
    name = engine if isinstance(engine, str) else type(engine).__name__
    if spec.preset == "paper" or not takes_sets(engine):
        setting = "preset paper" if spec.preset == "paper" else f"engine {name}"
        raise ConfigError(f"{setting} is for numbers; model {model} is fitted by engine exact or orders")
    refused = [("noise", "has no choice of noise variances"), ("standardise", "standardises numbers by itself")]
    if not noise:
        refused.append(("log", "has no logarithms"))
    for option, fault in refused:
        if getattr(spec, option):
            raise ConfigError(f"model {model} {fault}; leave {option} out")
