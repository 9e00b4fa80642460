"""Checks of a stored run before it is used: its config, its numbers, its graphs.

A run may come from somebody else. Whatever passes can be asked every question: texts stand where texts are shown,
numbers where numbers are computed with, and what is shown as a line of a program cannot begin another line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from vcuda.errors import ConfigError

Check = Callable[[Any], bool]

LONGEST_WORD = 200
MOST_LAYERS = 64
# Factorising more columns takes longer than reading the run; of those only signs and symmetry are checked.
MOST_FACTORISED = 4000
# Rounding of probabilities and of products that were computed in double precision.
ROUNDING, LEAST = 1e-6, 1e-9


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_word(value: Any) -> bool:
    """A text for one line, also of a program."""
    return isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_WORD


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_positive(value: Any) -> bool:
    return is_number(value) and value > 0


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return is_whole(value) and value >= 0


def each(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def named(**checks: Check) -> Check:
    """A mapping that has these keys; those that end in _ may be absent."""

    def check(value: Any) -> bool:
        return isinstance(value, dict) and all(
            one(value[name]) if (name := key.removesuffix("_")) in value else key.endswith("_")
            for key, one in checks.items()
        )

    return check


def mapping_of(keys: Check, values: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(keys(k) and values(v) for k, v in value.items())


FIELDS: dict[str, Check] = {
    "names": each(is_text),
    "labels": each(lambda own: each(is_text)(own) and bool(own)),
    "column_labels": each(or_none(lambda own: each(is_text)(own) and bool(own))),
    "kinds": each(is_text),
    "amplitudes": lambda value: each(is_positive)(value) and bool(value),
    "hidden": lambda value: each(is_count)(value) and len(value) <= MOST_LAYERS,
    "noise_prior": or_none(lambda value: each(is_positive)(value) and len(value) == 2),
    "variance": or_none(is_positive),
    "rows": lambda value: is_count(value) and value > 0,
    "layers": lambda value: is_count(value) and value <= MOST_LAYERS,
    "slope": is_number,
    **dict.fromkeys(("ridge", "excess", "mean_rows", "length_scale"), is_positive),
    # The noise of a trained posterior has a name only.
    "noise": lambda value: is_word(value) or named(rows=is_count, shape=is_positive, scale=is_positive)(value),
    "equivalent_sample_size": is_positive,
}
# The types of elements by the names of arrays, without what says whose they are; all others are real numbers.
ELEMENTS = {
    **dict.fromkeys(("offsets", "sources", "targets", "part_of"), "i"),
    **dict.fromkeys(("required", "allowed", "logarithm", "free", "held"), "b"),
    "codes": "u",
    "states": "i",
    "scores": "biuf",
}
# A logarithm of odds may be infinite, and scores only rank edges.
MAY_BE_INFINITE = ("edge_logits", "scores")
OWNER = re.compile(r"(\d+\.)?(part\d+_)?")


def check_fields(value: Any, checks: Mapping[str, Check], where: str) -> None:
    """Refuse a mapping that lacks one of these fields, or has one that cannot be."""
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a mapping, not {type(value).__name__}")
    for key, check in checks.items():
        if key not in value or not check(value[key]):
            raise ConfigError(f"{where} has no {key} that vcuda can use")


def check_graph_posterior(described: Any) -> None:
    """Check every number and list of a stored graph posterior by its key, at any depth."""
    if isinstance(described, dict):
        check_fields(described, {key: FIELDS[key] for key in described if key in FIELDS}, "the posterior")
    if isinstance(described, dict | list):
        for inner in described.values() if isinstance(described, dict) else described:
            check_graph_posterior(inner)


def check_graph_posterior_arrays(arrays: Mapping[str, np.ndarray], nodes: int) -> None:
    """Refuse arrays of a graph posterior that have the wrong type or shape, or numbers that are not finite."""
    for name, array in arrays.items():
        own = OWNER.sub("", name, count=1)
        if array.dtype.kind not in ELEMENTS.get(own, "f"):
            raise ConfigError(f"{name[:40]} holds elements of type {array.dtype}")
        if own in ("centre", "scale", "codes", "rows") and array.shape[-1:] != (nodes,):
            raise ConfigError(f"{name[:40]} has the shape {array.shape}, for another set of columns")
        if array.dtype.kind != "f":
            continue
        if not (~np.isnan(array) if own in MAY_BE_INFINITE else np.isfinite(array)).all():
            raise ConfigError(f"{name[:40]} holds numbers that are not finite")
        if own == "scale" and not (array > 0).all():
            raise ConfigError(f"{name[:40]} must be positive")
        if own == "weights" and not ((array >= 0).all() and abs(float(array.sum()) - 1) < ROUNDING):
            raise ConfigError(f"{name[:40]} must not be negative and must sum to one")
        if own == "gram":
            _check_products(array, arrays, name.removesuffix("gram"))


def _check_products(gram: np.ndarray, arrays: Mapping[str, np.ndarray], owner: str) -> None:
    """Products of columns with each other: symmetric, not negative in any direction, and no larger than they can be."""
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ConfigError(f"gram must be square, not {gram.shape}")
    diagonal = gram.diagonal()
    largest = float(diagonal.max(initial=0.0))
    if (diagonal < 0).any() or np.abs(gram - gram.T).max(initial=0.0) > ROUNDING * largest:
        raise ConfigError("gram is not a matrix of cross products")
    if len(gram) > MOST_FACTORISED:
        return
    try:
        factor = np.linalg.cholesky(gram + LEAST * max(largest, 1e-100) * np.eye(len(gram)))
    except np.linalg.LinAlgError:
        raise ConfigError("gram is not a matrix of cross products") from None
    products, squares = arrays.get(f"{owner}products"), arrays.get(f"{owner}squares")
    if products is None or squares is None:
        return
    if products.shape[:1] != gram.shape[:1] or products.shape[1:] != squares.shape:
        raise ConfigError(f"products and squares have the shapes {products.shape} and {squares.shape}")
    explained = (solve_triangular(factor, products, lower=True) ** 2).sum(axis=0)
    if (explained > squares * (1 + ROUNDING) + ROUNDING).any():
        raise ConfigError("products are larger than their columns allow")


def check_probabilities(probabilities: np.ndarray, nodes: int) -> None:
    """Refuse what is no (d, d) matrix of probabilities of edges, with none from a variable to itself."""
    if probabilities.shape != (nodes, nodes):
        raise ConfigError(f"it has {nodes} names but numbers for another set of columns")
    if not ((probabilities >= -ROUNDING) & (probabilities <= 1 + ROUNDING)).all():
        raise ConfigError("it has probabilities of edges that do not lie between 0 and 1")
    if np.abs(probabilities.diagonal()).max(initial=0.0) > ROUNDING:
        raise ConfigError("it has edges from a variable to itself")
