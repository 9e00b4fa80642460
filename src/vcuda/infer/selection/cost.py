"""The expected time and memory of a fit, before it begins; refused where memory or time are too small.

The exact engine's needs follow from its arrays (``vcuda.infer.exact.limits``). Those of the other engines are power
laws through measured runs, ``python -m benchmarks size``, on tables of 1,000 rows and graphs with one edge a node: hubs
and dense graphs take longer, because their tables are wider. So do fewer rows, where chance makes more candidate
parents: 2,000 columns took 2.3 times as long with 300 rows as with 1,000.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

from vcuda.data.messages import HOW_TO_CHOOSE
from vcuda.errors import ConfigError
from vcuda.infer.edge_prior import Over
from vcuda.infer.exact import Exact, gigabytes_in_words, gigabytes_needed, seconds_needed
from vcuda.infer.orders import Orders
from vcuda.infer.orders.candidates import TABLE_ENTRIES
from vcuda.infer.variational import Variational
from vcuda.models.protocol import LocalScore, PowerLaw

# Python, JAX and its compiled programs, in GB, and how much of it is there before a fit begins.
BASE, HELD = 0.45, 0.3
A_CENTURY = 3.2e9
# Rows of the tables that the power laws were measured on.
MEASURED_ROWS = 1000
# GB of an entry of the score tables: its weight and its sum, both again while new tables are made, and two copies for
# the compiled sweeps. And of an entry of the matrices of d by d, such as products of columns and prior odds.
ENTRY, MATRICES = 24e-9, 8e-8
# What each further regime of an experiment adds: GB of an entry of its products, and a share of the time. 100 columns
# that were knocked out in a table of 2,000 took 3.2 GB more.
PRODUCTS, REGIME_SECONDS = 8e-9, 0.1


class Cost(NamedTuple):
    """Seconds on one core, and gigabytes at the most."""

    seconds: float
    gigabytes: float

    def in_words(self) -> str:
        """For people: rounded to what such a guess can say."""
        return f"about {_duration(self.seconds)} and {max(self.gigabytes, 0.1):,.1f} GB of memory"


def cost_of(engine: Exact | Orders | Variational, score: LocalScore, *, over: Over = "orders") -> Cost | None:
    """What an engine will take for a score; None for one that was not measured (categories)."""
    return _cost(engine, score, score.nodes, over)


def check_cost(
    engine: Exact | Orders | Variational,
    score: LocalScore,
    *,
    over: Over = "orders",
    available: int,
    seconds: float | None,
) -> Cost | None:
    """Refuse what needs more than the ``available`` bytes, or an exact engine that cannot end in the ``seconds`` left.

    What is refused is refused with what would do. Limits of time are kept by the other engines themselves.
    """
    cost = cost_of(engine, score, over=over)
    if cost is None:
        return None
    if isinstance(engine, Exact) and seconds is not None and cost.seconds > 3 * max(seconds, 1.0):
        raise ConfigError(
            f"the exact engine would take about {_duration(cost.seconds)} for {score.nodes} columns, more than the "
            f"{_duration(seconds)} that are left of the time limit, and it has no partial answer; use the orders "
            "engine, which returns what it has, or allow more time"
        )
    free = available / 1e9 + HELD
    if cost.gigabytes <= free:
        return cost
    remedies = []
    for other in (Orders(), Variational()) if over == "orders" else (Orders(),):
        wants = None if isinstance(engine, type(other)) else cost_of(other, score)
        if wants is not None and wants.gigabytes <= free:
            remedies.append(f"use engine {type(other).__name__.lower()} ({wants.gigabytes:,.1f} GB)")
    most = _most_columns(engine, score, free, over)
    remedies.append(f"choose at most {most:,} columns {HOW_TO_CHOOSE}" if most > 1 else "close other programs")
    raise ConfigError(
        f"engine {type(engine).__name__.lower()} would need about {gigabytes_in_words(cost.gigabytes)} of "
        f"memory for {score.nodes:,} columns, and {available / 1e9:,.1f} GB are free: {', or '.join(remedies)}, or use "
        "a machine with more memory"
    )


def _cost(engine: Exact | Orders | Variational, score: LocalScore, nodes: int, over: Over) -> Cost | None:
    if isinstance(engine, Exact):
        gigabytes = BASE + gigabytes_needed(score, nodes=nodes, over=over)
        # For other numbers of nodes only the memory is asked for.
        return Cost(seconds_needed(score, over=over) if nodes == score.nodes else nan, gigabytes)
    law = score.costs.get(type(engine).__name__.lower())
    if law is None:
        return None
    cost, chains = cost_by_law(law, engine, nodes, score.parts[0].rows), 1.0
    if isinstance(engine, Orders):
        chains = engine.replicas / 4
    elif engine.restarts is not None:
        chains = engine.restarts / (4 if nodes <= 20 else 2)
    # Regimes of an experiment have tables of their own kind, made part by part, and products of columns of their own.
    regimes = len((score if score.nuisance is None else score.nuisance.at(1.0)).parts) - 1
    held = PRODUCTS * regimes * nodes**2
    return Cost(cost.seconds * chains * (1 + REGIME_SECONDS * regimes), cost.gigabytes + held)


def cost_by_law(law: PowerLaw, engine: Exact | Orders | Variational, nodes: int, rows: int = MEASURED_ROWS) -> Cost:
    """What a power law predicts. Memory for tables of the orders engine is bounded (``TABLE_ENTRIES``); beside
    it there are some matrices of d by d."""
    lacking = max(MEASURED_ROWS / rows, 1.0) ** law.rows
    sweeps = expected_sweeps(engine, nodes)
    seconds = law.start + lacking * (law.a * nodes**law.b + law.sweep * sweeps / 100 * nodes)
    most = TABLE_ENTRIES * ENTRY if isinstance(engine, Orders) else inf
    return Cost(seconds, law.base + min(lacking * law.c * nodes**law.e, most + MATRICES * nodes**2))


def expected_sweeps(engine: Exact | Orders | Variational, nodes: int) -> float:
    """How many sweeps over orders to reckon with; few columns may have 6,000, but seldom need them."""
    return min(engine.usual_sweeps(nodes), max(1500, engine.sweeps)) if isinstance(engine, Orders) else 0.0


def _most_columns(engine: Exact | Orders | Variational, score: LocalScore, free: float, over: Over) -> int:
    most = score.nodes
    while most > 1:
        cost = _cost(engine, score, most, over)
        if cost is None or cost.gigabytes <= free:
            break
        most = min(most - 1, int(0.95 * most))
    return most


def _duration(seconds: float) -> str:
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{round(seconds)} seconds"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    if seconds < 36_000:
        return f"{seconds / 3600:.1f} hours"
    return f"{round(seconds / 3600):,} hours" if seconds < A_CENTURY else "more than a century"
