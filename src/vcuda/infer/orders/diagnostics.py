"""Do the chains agree? Numbers that say how far sampled orders can be trusted, and the sentence that tells
it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vcuda.infer.orders.ladders import BLOCK, Record
from vcuda.posterior.posterior import Status, as_sentence

# A replica whose mean log score is this many nats below the best one, beyond the spread of both, sits in a
# lesser mode.
FAR_BELOW = 10.0
WARN_DISAGREEMENT = 0.25
WARN_SWAPS = 0.05
WARN_DRAWS = 30.0
# Graphs of a prior over graphs that are worth fewer than this many unweighted ones give an edge an error above .05.
WARN_EFFECTIVE_GRAPHS = 100.0
# Fewer sweeps than this make too few blocks to tell from each other whether the chains still drift.
WARN_SWEEPS = 40
# An edge that is no candidate may not be more probable than this.
WARN_LEFT_OUT = 0.25
# Below this, what the candidates leave out is not worth a word.
WORTH_TELLING = 0.01


class ReplicaAgreement(NamedTuple):
    """What the cold chains say together.

    ``edges`` (d, k) are mean probabilities of the candidates' edges, ``kept`` (r,) the replicas that count,
    ``first`` the block from which on they do, and ``numbers`` the diagnostics.
    """

    edges: np.ndarray
    kept: np.ndarray
    first: int
    numbers: dict[str, Any]


def compare_replicas(record: Record, fresh: np.ndarray) -> ReplicaAgreement:
    """Average the replicas after the first quarter, leaving out those that are stuck far below the best.

    The disagreement is the largest difference of an edge's probability between two halves of the replicas:
    those that started from random orders (``fresh``, (r,)) against the others where there are both.
    """
    first = len(record.energies) // 4
    energies = np.concatenate(record.energies[first:])
    cold = energies[..., 0]
    means, spreads = cold.mean(axis=0), cold.std(axis=0)
    best = int(np.argmax(means))
    kept = means[best] - means <= FAR_BELOW + 3 * (spreads + spreads[best])
    by_block = np.stack(record.edges[first:])[:, kept]
    by_replica = by_block.mean(axis=0)
    edges = by_replica.mean(axis=0)

    sides = fresh[kept] if fresh[kept].any() and not fresh[kept].all() else np.arange(kept.sum()) % 2 == 0
    alone = kept.sum() == 1
    difference = np.abs(by_replica[sides].mean(axis=0) - by_replica[~sides].mean(axis=0)) if not alone else None
    error, draws = _effective_draws(by_block, edges)
    attempts = BLOCK / 2 * cold.shape[1] * (len(record.energies) - first)
    swaps = np.sum(record.swapped[first:], axis=0)[:-1] / attempts
    numbers = {
        "disagreement": float(difference.max(initial=0.0)) if difference is not None else None,
        "replicas": int(kept.size),
        "replicas_kept": int(kept.sum()),
        "replica_log_scores": [float(mean) for mean in means],
        "swap_rates": [float(rate) for rate in swaps],
        "standard_error": error,
        "effective_draws": draws,
        "sweeps": BLOCK * len(record.energies),
    }
    return ReplicaAgreement(edges, kept, first, numbers)


def _effective_draws(by_block: np.ndarray, edges: np.ndarray) -> tuple[float, float | None]:
    """Return the largest standard error of an edge probability, and the least number of independent graphs
    that would
    know an open edge (probability .05 to .95) as well; None where no edge is open.

    The error is the larger one of two: from means of blocks (b, r, d, k) taken as independent, and from the
    replicas.
    """
    blocks, replicas = by_block.shape[:2]
    variance = by_block.reshape(blocks * replicas, -1).var(axis=0) / max(blocks * replicas - 1, 1)
    if replicas > 1:
        between = by_block.mean(axis=0).reshape(replicas, -1).var(axis=0) / (replicas - 1)
        variance = np.maximum(variance, between)
    flat = edges.reshape(-1)
    is_open = (flat > 0.05) & (flat < 0.95)
    error = float(np.sqrt(variance.max(initial=0.0)))
    if not is_open.any():
        return error, None
    draws = flat[is_open] * (1 - flat[is_open]) / np.maximum(variance[is_open], 1e-12)
    return error, float(draws.min())


def differ(numbers: dict[str, Any]) -> bool:
    """Whether more sweeps are needed, by the diagnostics."""
    disagreement, draws = numbers["disagreement"], numbers["effective_draws"]
    return (disagreement is not None and disagreement > WARN_DISAGREEMENT) or (draws is not None and draws < WARN_DRAWS)


def judge(numbers: dict[str, Any], *, stopped: str | None) -> Status:
    """Turn the diagnostics into a code and a sentence."""
    if stopped is not None:
        # What else is wrong has the same remedy: more time.
        moment = "before the sampling began" if numbers["sweeps"] < WARN_SWEEPS else "before it was done"
        differ = f"halves of the replicas differ by {numbers['disagreement'] or 0.0:.2f} on an edge"
        return Status("interrupted", as_sentence([f"stopped by {stopped} {moment}", differ]))
    troubles = []
    if numbers["replicas_kept"] <= numbers["replicas"] // 2:
        gap = max(numbers["replica_log_scores"]) - min(numbers["replica_log_scores"])
        troubles.append(
            f"only {numbers['replicas_kept']} of {numbers['replicas']} replicas reached the best orders "
            f"(the others ended up to {gap:.0f} nats below); run more sweeps or annealing"
        )
    if numbers["sweeps"] < WARN_SWEEPS:
        troubles.append(f"{numbers['sweeps']} sweeps are too few to judge the chains by; run more sweeps")
    disagreement = numbers["disagreement"]
    if disagreement is not None and disagreement > WARN_DISAGREEMENT:
        troubles.append(f"halves of the replicas differ by {disagreement:.2f} on an edge; run more sweeps")
    draws = numbers["effective_draws"]
    if draws is not None and draws < WARN_DRAWS:
        troubles.append(f"an open edge is known only as well as from {draws:.0f} independent graphs; run more sweeps")
    effective = numbers.get("effective_graphs")
    if effective is not None and effective < WARN_EFFECTIVE_GRAPHS:
        troubles.append(
            f"the graphs have so different numbers of orders that their weights leave {effective:.0f} effective ones; "
            "use engine exact, fewer columns, or a prior over orders"
        )
    if numbers["swap_rates"] and min(numbers["swap_rates"]) < WARN_SWAPS:
        troubles.append("neighbouring temperatures hardly trade places; use more levels")
    if not numbers["candidates_converged"]:
        troubles.append("the search for candidate parents did not come to an end; allow more rounds")
    if numbers["missing_edges"]:
        troubles.append(
            f"{numbers['missing_edges']} edges that would improve the fit are not among the candidates; "
            "raise max_candidates or rounds"
        )
    elif (numbers["left_out_probability"] or 0.0) > WARN_LEFT_OUT:
        troubles.append(
            f"an edge of probability {numbers['left_out_probability']:.2f} is not among the candidates; raise "
            "max_candidates"
        )
    if numbers["log_score_fell"] > FAR_BELOW:
        troubles.append(
            f"the best log score fell by {numbers['log_score_fell']:.0f} nats when candidates were added; "
            "run more sweeps"
        )
    if numbers["doubtful_parents"]:
        troubles.append(
            f"{numbers['doubtful_parents']} parents were taken for certain because their nodes have more candidates "
            "than a table holds, and this score tells few directions for sure; raise max_candidates"
        )
    above = numbers["second_opinion_above"]
    if above is not None and above > FAR_BELOW:
        troubles.append(f"a greedy search found a graph {above:.0f} nats better than the sampled ones; run more sweeps")
    if troubles:
        return Status("warning", as_sentence(troubles))
    agree = f"{numbers['replicas_kept']} replicas agree within {disagreement or 0.0:.3f} on every edge"
    left = numbers["replicas"] - numbers["replicas_kept"]
    if left:
        agree += f" ({left} of {numbers['replicas']} ended far below the best and were left out)"
    sentences = [agree, "nothing new in the last round of candidate parents"]
    if effective is not None:
        sentences.append(f"graphs are weighted by one over the number of their orders: {effective:.0f} effective ones")
    expected, largest = numbers["left_out_edges"] or 0.0, numbers["left_out_probability"] or 0.0
    if largest > WORTH_TELLING:
        sentences.append(
            f"edges that are no candidates get 0: about {expected:.1f} are expected among them, none with a "
            f"probability above {largest:.2f}"
        )
    return Status("ok", as_sentence(sentences))
