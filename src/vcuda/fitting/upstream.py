"""Knowledge that one column is upstream of another: obeyed by the drawn graphs, of which the others are left out.

That a directed path exists is no rule about single edges, so the sums of the engines cannot hold it. Graphs that are
drawn from the posterior and have the path are draws from the posterior given the path: exactly, where draws are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcuda.data.knowledge import Knowledge
from vcuda.data.messages import shortened
from vcuda.errors import ConfigError, KnowledgeError
from vcuda.infer.exact import Exact
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples

if TYPE_CHECKING:
    from vcuda.fitting.spec import FitSpec

# Graphs that the exact engine draws in place of its 1,000, since some are left out.
DRAWN = 20_000
# Fewer say too little of what is probable; below the second the arithmetic warns.
FEWEST, FEW = 50, 500


def check_upstream(spec: FitSpec, *, by_sampling: bool) -> None:
    """Refuse engines that cannot leave graphs out."""
    known: Any = spec.knowledge
    if not known or not known.upstream:
        return
    if spec.lags is not None:
        raise ConfigError("upstream is for independent rows; with lags forbid or require edges instead")
    if not by_sampling:
        raise ConfigError(
            "that a column is upstream of another is obeyed by leaving out drawn graphs, which engine exact and engine "
            "orders can: use one of them, or require an edge instead"
        )


def with_more_graphs(engine: Any, knowledge: Knowledge | None) -> Any:
    """The engine, with more graphs where some will be left out."""
    if knowledge and knowledge.upstream and engine == Exact():
        return replace(engine, samples=DRAWN)
    return engine


def obeying(outcome: Outcome, knowledge: Knowledge | None, names: Sequence[str]) -> Outcome:
    """The outcome with the graphs in which what is known to be upstream is so, and their edge probabilities."""
    found = outcome.graph_posterior
    if not knowledge or not knowledge.upstream or not isinstance(found, SampledGraphs):
        return outcome
    at = {name: k for k, name in enumerate(names)}
    pairs = [(at[source], at[target]) for source, target in knowledge.upstream]
    pool = found.pool
    kept = np.array([_has_paths(*pool.edges(k), pairs) for k in range(len(pool))])
    share = float(pool.weights[kept].sum())
    if kept.sum() < FEWEST:
        source, target = knowledge.upstream[0]
        raise KnowledgeError(
            f"only {int(kept.sum()):,} of {len(pool):,} drawn graphs have a way from {shortened(source)} to "
            f"{shortened(target)}{' and the others' if len(pairs) > 1 else ''}: the data speak against it, or nothing "
            "between them is left allowed; drop it, or require the edges of the way"
        )
    chosen = pool.take(np.flatnonzero(kept))
    weights = pool.weights[kept] / share
    chosen = GraphSamples(chosen.names, chosen.offsets, chosen.sources, chosen.targets, weights)
    effective = 1.0 / float(np.sum(weights**2))
    marginals = chosen.edge_probabilities()
    diagnostics = outcome.diagnostics | {"upstream_share": share, "graphs_that_obey": int(kept.sum())}
    status = outcome.status
    if status.code in ("ok", "warning"):
        error = 0.5 / np.sqrt(effective)
        words = f"{int(kept.sum()):,} drawn graphs obey what is upstream: probabilities are known within {error:.2g}."
        code: Any = "warning" if effective < FEW or status.code == "warning" else "ok"
        said = words if status.code == "ok" else f"{status.sentence} {words}"
        status = Status(code, said)
    posterior = replace(found, pool=chosen, marginals=marginals)
    return outcome._replace(graph_posterior=posterior, diagnostics=diagnostics, status=status)


def sentence_of(knowledge: Knowledge, outcome: Outcome) -> str:
    """How far the data agree with what is known to be upstream."""
    said = " and ".join(f"{source} is upstream of {target}" for source, target in knowledge.upstream)
    share = outcome.diagnostics.get("upstream_share")
    found = "" if share is None else f" Without this knowledge it has the probability {share:.2g}."
    return f"In every graph {said}.{found}"


def _has_paths(sources: np.ndarray, targets: np.ndarray, pairs: Sequence[tuple[int, int]]) -> bool:
    effects: dict[int, list[int]] = {}
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        effects.setdefault(source, []).append(target)
    for source, target in pairs:
        seen, waiting = {source}, [source]
        while waiting and target not in seen:
            new = [node for node in effects.get(waiting.pop(), ()) if node not in seen]
            seen.update(new)
            waiting += new
        if target not in seen:
            return False
    return True
