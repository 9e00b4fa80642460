"""What a fit does with categories: when the categorical model is taken, and what does not go with it."""

from __future__ import annotations

from typing import Any

from vcuda.data.categorical import MOST_LABELS, as_categories
from vcuda.data.messages import listed, shortened
from vcuda.errors import ConfigError
from vcuda.fitting.spec import FitSpec
from vcuda.infer.exact import Exact
from vcuda.infer.orders import Orders
from vcuda.models import FAMILIES
from vcuda.models.protocol import ScoreSpec

ENGINES_FOR_CATEGORIES = ("auto", "exact", "orders")


def resolve_categorical(table: Any, spec: FitSpec) -> tuple[Any, Any, list[str]]:
    """The table and the model of a fit that may be one of categories, and sentences about the choice.

    A table of categories has one model, which is taken for ``auto``; a table of numbers is one of categories when
    that model is asked for. Everything else passes as it is.
    """
    model: Any = spec.model
    known = FAMILIES[model].usual if isinstance(model, str) and model in FAMILIES else model
    asked = isinstance(known, ScoreSpec) and known.takes_categories
    if table.categories is None and not asked:
        return table, model, []
    sentences = []
    if not asked:
        if not isinstance(model, str) or model != "auto":
            name = model if isinstance(model, str) else type(model).__name__
            raise ConfigError(
                f"model {name} is for numbers, and column {shortened(table.names[0])} holds categories "
                f"({listed(table.categories[0], 3)}): use model categorical or auto, or code the categories as numbers "
                "(0 and 1 for two of them)"
            )
        model = "categorical"
        sentences = ["Every column holds categories, so the model is categorical: it was not compared with others."]
    _check(spec)
    return as_categories(table, most=MOST_LABELS if isinstance(model, str) else model.max_levels), model, sentences


def _check(spec: FitSpec) -> None:
    engine = spec.engine
    name = engine if isinstance(engine, str) else type(engine).__name__
    known = engine in ENGINES_FOR_CATEGORIES if isinstance(engine, str) else isinstance(engine, Exact | Orders)
    if spec.preset == "paper" or not known:
        setting = "preset paper" if spec.preset == "paper" else f"engine {name}"
        raise ConfigError(
            f"{setting} is for numbers; categories (model categorical) are fitted by engine exact or orders"
        )
    for option, fault in (
        ("noise", "have no noise variances"),
        ("log", "have no logarithms"),
        ("standardise", "cannot be standardised"),
    ):
        if getattr(spec, option):
            raise ConfigError(f"categories (model categorical) {fault}; leave {option} out")
