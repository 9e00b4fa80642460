"""Which engine for which problem: exact where it is quick, else sampling over orders.

``seconds_needed`` foresees the exact engine's time from measured runs; ``python -m benchmarks accuracy --suite
crossover`` sets the engines side by side. The variational engine is taken only where it is asked for: with additive
functions, where its time is nearest, it took four times as long as the orders engine at 100 columns (63 and 15 seconds)
and seven times at 200 (195 and 29), for an AP that was .005 and .010 higher.
"""

from __future__ import annotations

from typing import NamedTuple

from vcuda.infer.edge_prior import Over
from vcuda.infer.exact import Exact, gigabytes_needed, seconds_needed
from vcuda.infer.orders import Orders
from vcuda.models.protocol import LocalScore

# Exact has no sampling error, so it may take longer than sampling would, but not longer than people like to wait.
PATIENCE_SECONDS = 20.0
# The start of any other engine takes longer than this, so that exact is taken even where time is over.
QUICK_SECONDS = 0.5


class EngineChoice(NamedTuple):
    """An engine, why, in a sentence, and whether it is so quick that it needs no time limit."""

    engine: Exact | Orders
    sentence: str
    is_quick: bool = False


def choose_engine(
    score: LocalScore, *, over: Over = "orders", seconds: float | None = None, searches: int = 1
) -> EngineChoice:
    """Choose by the kind of score, the number of columns, what the prior is over, the seconds that are left (None: no
    limit), and how many searches of this size one answer needs."""
    exact = Exact()
    patience = PATIENCE_SECONDS if seconds is None else max(min(PATIENCE_SECONDS, 0.5 * seconds), QUICK_SECONDS)
    needed = searches * seconds_needed(score, over=over)
    if gigabytes_needed(score, over=over) <= exact.memory_gb and needed <= patience:
        sentence = f"Engine exact: {score.nodes} columns are few enough to count every graph."
        return EngineChoice(exact, sentence, is_quick=needed <= QUICK_SECONDS)
    return EngineChoice(
        Orders(), f"Engine orders: {score.nodes:,} columns are too many to count every graph in {patience:.2g} seconds."
    )
