"""What a fit does with categories: when the discrete model is taken, and what does not go with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vcuda.data.categorical import MOST_LABELS, as_categories
from vcuda.data.dataset import Dataset
from vcuda.data.messages import listed, shortened
from vcuda.errors import ConfigError
from vcuda.infer.exact import Exact
from vcuda.infer.orders import Orders
from vcuda.models import FAMILIES
from vcuda.models.protocol import Noise, ScoreSpec

ENGINES_FOR_CATEGORIES = ("auto", "exact", "orders")


def resolve_categorical(
    table: Dataset,
    model: Any,
    *,
    engine: Any,
    noise: Noise | None,
    logarithm: Sequence[str] | None,
    preset: str,
    standardise: bool,
) -> tuple[Dataset, Any, list[str]]:
    """The table and the model of a fit that may be one of categories, and what is told of the choice.

    A table of categories has one model, which is taken for ``auto``; a table of numbers is one of categories when
    that model is asked for. Everything else passes as it is.
    """
    spec = model if isinstance(model, ScoreSpec) else FAMILIES[model].usual if model in FAMILIES else None
    asked = spec is not None and spec.takes_categories
    if table.categories is None and not asked:
        return table, model, []
    sentences = []
    if not asked:
        assert table.categories is not None
        if not isinstance(model, str) or model != "auto":
            name = model if isinstance(model, str) else type(model).__name__
            raise ConfigError(
                f"model {name} is for numbers, and column {shortened(table.names[0])} holds categories "
                f"({listed(table.categories[0], 3)}): use model discrete or auto, or code the categories as numbers "
                "(0 and 1 for two of them)"
            )
        model = "discrete"
        sentences = ["Every column holds categories, so the model is discrete: it was not compared with others."]
    _check(engine, noise, logarithm, preset, standardise)
    return as_categories(table, most=MOST_LABELS if isinstance(model, str) else model.max_levels), model, sentences


def _check(engine: Any, noise: Noise | None, logarithm: Sequence[str] | None, preset: str, standardise: bool) -> None:
    name = engine if isinstance(engine, str) else type(engine).__name__
    known = engine in ENGINES_FOR_CATEGORIES if isinstance(engine, str) else isinstance(engine, Exact | Orders)
    if preset == "paper" or not known:
        setting = "preset paper" if preset == "paper" else f"engine {name}"
        raise ConfigError(f"{setting} is for numbers; categories (model discrete) are fitted by engine exact or orders")
    if noise is not None:
        raise ConfigError("categories (model discrete) have no noise variances; leave noise out")
    if logarithm:
        raise ConfigError("categories (model discrete) have no logarithms; leave logarithm out")
    if standardise:
        raise ConfigError("categories (model discrete) cannot be standardised; leave standardise out")
