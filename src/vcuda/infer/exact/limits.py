"""What the exact engine needs, told before it starts: memory and time."""

from __future__ import annotations

import time

from vcuda.errors import ConfigError
from vcuda.infer.edge_prior import Over
from vcuda.infer.exact.noise_grid import NOISE_POINTS
from vcuda.infer.progress import Progress, ProgressCallback
from vcuda.models.protocol import LocalScore
from vcuda.models.sets import sets_of


def memory_needed(nodes: int, *, lattices: int = 1, keep: bool = True, over: Over = "orders") -> float:
    """Return the bytes that the exact engine needs: lattices, stages of one transform, working arrays.

    With ``keep`` the scores of all sets are held until graphs are drawn from them. A prior ``over`` graphs has sums
    over layers, 3**d numbers for each lattice and once more for what follows them.
    """
    half = sets_of(max(nodes - 1, 0))
    layers = 8 * 3.0**nodes * (lattices + 1) + 32 * nodes * half if over == "graphs" and nodes < 600 else 0.0
    return 8 * half * (((2 if keep else 1) * nodes + 2) * lattices + nodes + 8) + layers


def seconds_needed(score: LocalScore, *, over: Over = "orders") -> float:
    """Return roughly how long the exact engine takes on one core, for a choice between engines.

    Fitted to CPU seconds at 8 to 20 columns and 1,000 rows: one lattice takes 1.6e-8 d² 2^d seconds, a shared
    noise variance needs five or six of them, and to this comes the making of the tables, which the score foresees.
    Measured and foreseen at 14, 16, 18, 20 columns: BGe .1, .4, 1.5, 7.3 and .05, .3, 1.4, 6.7; shared noise .3, 1.6,
    6.4, 35 and .3, 1.5, 7.5, 37; additive .2, .9, 3.7, 16 and .2, 1, 4.2, 19; Gaussian process 12.5, 20, 27, 52
    and 15, 23, 34, 51. With a prior ``over`` graphs and BGe, 10, 12, 13 and 15 columns took .3, 1.7, 3.3 and 17
    seconds, foreseen .4, 1.7, 3.6 and 17.
    """
    lattice = 1.6e-8 * score.nodes**2 * sets_of(score.nodes)
    if over == "graphs":
        lattice += 4e-4 * sets_of(score.nodes) + 4e-9 * sets_of(2 * score.nodes)
    return 5.5 * lattice if score.nuisance is not None else lattice + score.table_seconds()


class TimeLimitError(ConfigError):
    """The deadline came before the exact engine was done, which has no partial answer."""


def until(deadline: float | None, progress: ProgressCallback) -> ProgressCallback:
    """Return a callback that also refuses to go on after the deadline."""
    if deadline is None:
        return progress

    def tell(step: Progress) -> None:
        if time.monotonic() > deadline:
            raise TimeLimitError(
                f"the time limit came while the exact engine was at '{step.detail}', and it has no partial answer; "
                "use the orders engine, which returns what it has, or allow more time"
            )
        progress(step)

    return tell


def gigabytes_needed(
    score: LocalScore, *, nodes: int | None = None, keep: bool = False, over: Over = "orders"
) -> float:
    """Return the memory for a score, or for one of its kind with another number of nodes; ``keep`` as above."""
    lattices = NOISE_POINTS if score.nuisance is not None else 1
    # Tables that are made all at once must be held all at once.
    together = keep or score.makes_all_tables
    return memory_needed(score.nodes if nodes is None else nodes, lattices=lattices, keep=together, over=over) / 1e9


def gigabytes_in_words(gigabytes: float) -> str:
    """For people; beyond what any machine has the number says nothing."""
    return f"{gigabytes:,.1f} GB" if gigabytes < 1e6 else "more than a million GB"


def check_size(score: LocalScore, samples: int, memory_gb: float, *, over: Over = "orders") -> bool:
    """Refuse what does not fit into memory; return whether scores can be kept as well."""
    if samples < 1:
        raise ConfigError(f"samples must be at least 1, got {samples}")
    needed = gigabytes_needed(score, over=over)
    if needed > memory_gb:
        most = score.nodes
        while gigabytes_needed(score, nodes=most, over=over) > memory_gb:
            most -= 1
        raise ConfigError(
            f"the exact engine needs {gigabytes_in_words(needed)} of memory for {score.nodes:,} columns, more than the "
            f"limit of {memory_gb:g} GB (memory_gb), which is enough for {most}; use the orders engine, "
            "or fewer columns"
        )
    return gigabytes_needed(score, keep=True, over=over) <= memory_gb
