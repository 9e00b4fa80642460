"""Outcomes of whole fits in the checkpoint: an imputation that was fitted is not fitted again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from vcuda.fitting.routes import Request
from vcuda.infer.checkpoint import Arrays, Checkpointer, fingerprint
from vcuda.posterior.imputed import MEMBER_KINDS
from vcuda.posterior.posterior import Outcome, Status

Info = dict[str, Any]


def cached_fit(
    checkpointer: Checkpointer,
    name: str,
    request: Request,
    route: Callable[..., tuple[Outcome, Info]],
    asked: tuple[Any, ...],
) -> tuple[Outcome, Info]:
    """The outcome of a fit and what the run records about it, computed now or before the whole was resumed.

    The steps of a fit that is kept as a whole are forgotten; one that was ended early is not kept.
    """
    given = fingerprint(request.table.fingerprint, request.logarithm, request.seed, tuple(asked))
    known = checkpointer.recall(name, given)
    if known is not None:
        return restored(known)
    outcome, info = route(request, *asked)
    if outcome.status.code != "interrupted":
        checkpointer.keep(name, given, lambda: described(outcome, info))
        request.checkpointer.forget()
    return outcome, info


def described(outcome: Outcome, info: Info) -> Arrays:
    """An outcome as named arrays, what is no array as JSON."""
    graph_posterior = outcome.graph_posterior
    words = {
        "law": {"kind": graph_posterior.kind, **graph_posterior.config()},
        "status": [outcome.status.code, outcome.status.sentence],
        "diagnostics": outcome.diagnostics,
        "told": info,
    }
    text = json.dumps(words, default=_plain).encode()
    return {
        "words": np.frombuffer(text, dtype=np.uint8),
        **{f"law {name}": array for name, array in graph_posterior.arrays().items()},
        **{f"trace {name}": array for name, array in outcome.trace.items()},
    }


def restored(arrays: Arrays) -> tuple[Outcome, Info]:
    """The inverse of :func:`described`."""
    words = json.loads(arrays["words"].tobytes())
    graph_posterior = MEMBER_KINDS[words["law"]["kind"]].restore(words["law"], _part(arrays, "law "))
    return Outcome(graph_posterior, Status(*words["status"]), words["diagnostics"], _part(arrays, "trace ")), words[
        "told"
    ]


def _part(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be kept as JSON")
