"""What is known of the causes of a series: names of columns mean all steps, ``x.lag1`` means one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vcuda.data.knowledge import EdgeRules, Knowledge
from vcuda.data.messages import listed, nearest, shortened
from vcuda.data.series.lagged import LAGGED, lagged_name, parted
from vcuda.errors import KnowledgeError


def rules_of_lags(
    knowledge: Knowledge | None,
    names: Sequence[str],
    lags: int,
    *,
    log_odds: np.ndarray,
    contemporaneous: bool,
    left_out: Sequence[tuple[str, str]] = (),
) -> EdgeRules:
    """Matrices for the d columns of the present step and, behind them, those of earlier steps.

    Earlier steps have no causes. What is forbidden for ``x``, by an edge, tiers, roots or sinks, is forbidden at every
    lag, apart from what a column takes over from its own past; ``x.lag0`` is the present step alone. A required edge,
    and the probability of one, are those of the present step unless they name a lag. ``log_odds`` are those of edges
    without a probability of their own.
    """
    d = len(names)
    wide, place = d * (lags + 1), {name: k for k, name in enumerate(names)}
    allowed = np.zeros((wide, wide), dtype=bool)
    allowed[:, :d] = True
    allowed[np.arange(d), np.arange(d)] = False
    if not contemporaneous:
        allowed[:d, :d] = False
    required, odds = np.zeros((wide, wide), dtype=bool), log_odds.copy()
    if not knowledge:
        return EdgeRules(allowed, required, odds)
    for name in knowledge.names:
        _check(name, names, lags, dict(left_out))

    def steps(name: str, *, every: bool) -> list[int]:
        """Where the steps stand that a name means."""
        found = parted(name, names)
        assert found is not None
        column, lag = place[found[0]], found[1]
        bare = name in place
        return [column + d * step for step in (range(lags + 1) if bare and every else [lag])]

    def present(source: str, target: str) -> int:
        found = parted(target, names)
        assert found is not None
        if found[1]:
            raise KnowledgeError(
                f"the edge {shortened(source)} -> {shortened(target)} has an effect in the past: name the present "
                f"step, {shortened(found[0])}, and count the lag of the cause from it"
            )
        return place[found[0]]

    others = ~np.tile(np.eye(d, dtype=bool), (lags + 1, 1))
    for source, target in knowledge.forbidden:
        own = present(source, target)
        for step in steps(source, every=True):
            allowed[step, own] = False
    for name in knowledge.roots:
        own = steps(name, every=False)[0] % d
        allowed[others[:, own], own] = False
    for name in knowledge.sinks:
        for step in steps(name, every=True):
            allowed[step, :d] &= ~others[step]
    tier = np.full(d, -1)
    for number, members in enumerate(knowledge.tiers):
        tier[[steps(name, every=False)[0] % d for name in members]] = number
    later = tier[:, None] > tier if knowledge.within_tiers else tier[:, None] >= tier
    later &= (tier[:, None] >= 0) & (tier >= 0)
    allowed[:, :d] &= ~(np.tile(later, (lags + 1, 1)) & others)
    for source, target in knowledge.required:
        own, step = present(source, target), steps(source, every=False)[0]
        if not allowed[step, own]:
            why = "there are to be no effects within a step" if step < d and not contemporaneous else "it is forbidden"
            raise KnowledgeError(
                f"the edge {shortened(source)} -> {shortened(target)} is required, but {why}: drop one of the two"
            )
        required[step, own] = True
    for source, target, probability in knowledge.probabilities:
        odds[steps(source, every=False)[0], present(source, target)] = math.log(probability / (1 - probability))
    return EdgeRules(allowed, required, odds)


def _check(name: str, names: Sequence[str], lags: int, left_out: dict[str, str]) -> None:
    if name in left_out:
        raise KnowledgeError(
            f"knowledge names {shortened(name)}, which was left out of the table, since it {left_out[name]}; leave it "
            "out of the knowledge too, or make it a variable"
        )
    found = parted(name, names)
    if found is None:
        bare = LAGGED.fullmatch(name)
        known = [lagged_name(one, int(bare[2])) for one in names] if bare else list(names)
        hint = nearest(name, known) or f": the columns are {listed(list(names))}"
        raise KnowledgeError(f"knowledge names {shortened(name)}, which is no column of the table{hint}")
    if found[1] > lags:
        raise KnowledgeError(
            f"knowledge names {shortened(name)}, and the fit goes back {lags} {'step' if lags == 1 else 'steps'}: ask "
            f"for lags={found[1]} or more, or leave it out"
        )
