"""Outcomes of whole fits in the journal: a filling of a table that is fitted need not be fitted again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from vcuda.fitting.routes import Request
from vcuda.infer.journal import Arrays, Journal, fingerprint
from vcuda.posterior.imputed import MEMBER_LAWS
from vcuda.posterior.posterior import Outcome, Status

Told = dict[str, Any]


def once_fitted(
    journal: Journal, name: str, request: Request, route: Callable[..., tuple[Outcome, Told]], asked: tuple[Any, ...]
) -> tuple[Outcome, Told]:
    """The outcome of a fit and what is told of it, now or from before the whole was resumed.

    The steps of a fit that is kept as a whole are forgotten; one that was ended early is not kept.
    """
    given = fingerprint(request.table.fingerprint, request.logarithm, request.seed, tuple(asked))
    known = journal.recall(name, given)
    if known is not None:
        return restored(known)
    outcome, told = route(request, *asked)
    if outcome.status.code != "interrupted":
        journal.keep(name, given, lambda: described(outcome, told))
        request.journal.forget()
    return outcome, told


def described(outcome: Outcome, told: Told) -> Arrays:
    """An outcome as named arrays, what is no array as JSON."""
    law = outcome.law
    words = {
        "law": {"kind": law.kind, **law.config()},
        "status": [outcome.status.code, outcome.status.sentence],
        "diagnostics": outcome.diagnostics,
        "told": told,
    }
    text = json.dumps(words, default=_plain).encode()
    return {
        "words": np.frombuffer(text, dtype=np.uint8),
        **{f"law {name}": array for name, array in law.arrays().items()},
        **{f"trace {name}": array for name, array in outcome.trace.items()},
    }


def restored(arrays: Arrays) -> tuple[Outcome, Told]:
    """What :func:`described` told."""
    words = json.loads(arrays["words"].tobytes())
    law = MEMBER_LAWS[words["law"]["kind"]].restore(words["law"], _part(arrays, "law "))
    return Outcome(law, Status(*words["status"]), words["diagnostics"], _part(arrays, "trace ")), words["told"]


def _part(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be kept as JSON")
