"""Fills the tables of local scores: all subsets of every node's candidates, here or on workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from vcuda.errors import ConfigError
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact.lattice import THREADS, subset_sums, sum_over_subsets
from vcuda.infer.orders.tables import ParentTables
from vcuda.infer.progress import always
from vcuda.infer.workers import SERIAL, Workers
from vcuda.models.protocol import LocalScore

# Tables of several nodes are computed together up to this many entries: enough for long rows, little memory.
BATCH_ENTRIES = 1 << 17
# Tables of fewer entries in all are filled here. Guessed, not measured: filling should take longer than sending.
SPREAD_ENTRIES, SPREAD_CHEAP_ENTRIES = 1 << 14, 1 << 22
# Scores of columns whose scales differ by a factor of 1e20 and more are such; sums of them must stay numbers, too.
LARGEST_SINGLE = 1e30


class OutOfTimeError(Exception):
    """There is no time to fill all tables."""


def build_tables(
    score: LocalScore,
    prior: EdgePrior,
    candidates: Sequence[np.ndarray],
    *,
    fixed: Sequence[np.ndarray] | None = None,
    order: np.ndarray | None = None,
    known: ParentTables | None = None,
    workers: Workers = SERIAL,
    go_on: Callable[[], bool] = always,
) -> ParentTables:
    """Score all subsets of every node's candidates.

    Parameters
    ----------
    score
        A prepared, decomposable score.
    prior
        Of the edges; what is forbidden must not be a candidate, what is required is taken as fixed.
    candidates, fixed
        For each node its candidate parents, and the parents that it has for certain; none unless given.
    order
        (d,) a likely order, first node first. Tables are stored relative to it, which keeps single precision
        for the orders that matter; without it they are relative to all candidates coming first.
    workers
        Where tables are filled if they are large; those of lazy tables are filled here.
    go_on
        Asked between tables whether there is time for more; if not, an OutOfTimeError is raised.
    """
    nodes = score.nodes
    certain = [
        np.union1d(np.flatnonzero(prior.required[:, j]), [] if fixed is None else fixed[j]).astype(np.int64)
        for j in range(nodes)
    ]
    free = [np.setdiff1d(np.asarray(c, dtype=np.int64), f) for c, f in zip(candidates, certain, strict=True)]
    rank = np.zeros(nodes) if order is None else np.argsort(order).astype(np.float64)
    widths = np.array([c.size for c in free])
    offsets = np.concatenate([[0], np.cumsum(1 << widths)]).astype(np.int64)
    if offsets[-1] >= 1 << 31:
        raise ConfigError(
            f"the score tables would have {offsets[-1]:,} entries; lower the largest number of candidate parents"
        )
    weights, sums = np.empty(offsets[-1], dtype=np.float32), np.empty(offsets[-1], dtype=np.float32)
    shifts = np.zeros(nodes)
    corrections, log_absent = _order_terms(prior, free)

    def plan(members: list[int]) -> list[_Plan]:
        return [
            _Plan(
                node,
                free[node],
                certain[node],
                corrections[node],
                int(((rank[free[node]] < rank[node]) << np.arange(widths[node])).sum()) if order is not None else -1,
            )
            for node in members
        ]

    def keep(members: list[int], filled: list[_Filled]) -> None:
        for node, table in zip(members, filled, strict=True):
            span = slice(offsets[node], offsets[node + 1])
            weights[span], sums[span], shifts[node] = table

    def fill(members: list[int]) -> None:
        if not go_on():
            raise OutOfTimeError
        keep(members, _filled((score, prior), plan(members)))

    groups: dict[tuple[int, int], list[int]] = {}
    for node in range(nodes):
        if known is not None and all(
            np.array_equal(new, old)
            for new, old in (
                (free[node], known.candidates[node]),
                (certain[node], known.fixed[node]),
                (corrections[node], known.corrections[node]),
            )
        ):
            span = slice(offsets[node], offsets[node + 1])
            before = slice(known.offsets[node], known.offsets[node + 1])
            weights[span], sums[span] = known.weights[before], known.sums[before]
            shifts[node] = known.shifts[node]
        else:
            groups.setdefault((free[node].size, certain[node].size), []).append(node)
    tasks = [
        members[start : start + max(1, BATCH_ENTRIES >> width)]
        for (width, _), members in groups.items()
        for start in range(0, len(members), max(1, BATCH_ENTRIES >> width))
    ]
    cheap = score.cheap_tables
    entries = sum(1 << int(widths[node]) for task in tasks for node in task)
    least = SPREAD_CHEAP_ENTRIES if cheap else SPREAD_ENTRIES
    if workers.count > 1 and entries >= least and score.is_stateless:
        if not cheap:
            tasks = [[node] for task in tasks for node in task]
        found = workers.map(_filled, [plan(task) for task in tasks], shared=(score, prior))
        for task, filled in zip(tasks, found, strict=True):
            keep(task, filled)
    elif cheap:
        # NumPy releases the lock in its loops; two threads are nearly twice as fast for large tables.
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(fill, tasks))
    else:
        for task in tasks:
            fill(task)
    return ParentTables(tuple(free), tuple(certain), offsets, weights, sums, shifts, tuple(corrections), log_absent)


class _Plan(NamedTuple):
    """What is needed to fill the tables of a node beside its score: candidates and fixed parents, the terms (c,) of the
    order, and the entry that the tables are stored relative to."""

    node: int
    free: np.ndarray
    fixed: np.ndarray
    corrections: np.ndarray
    centre: int


class _Filled(NamedTuple):
    """The tables of a node, and what was subtracted from them."""

    weights: np.ndarray
    sums: np.ndarray
    shift: float


def _filled(shared: tuple[LocalScore, EdgePrior], plans: Sequence[_Plan]) -> list[_Filled]:
    """Fill the tables of nodes with as many candidates and fixed parents each."""
    score, prior = shared
    tables = []
    members = [plan.node for plan in plans]
    free = np.array([plan.free for plan in plans], dtype=np.int64)
    fixed = np.array([plan.fixed for plan in plans], dtype=np.int64)
    batch = score.tables(members, free, fixed)
    for plan, values in zip(plans, batch, strict=True):
        values += subset_sums(prior.log_odds[plan.free, plan.node])
        values += _fixed_odds(prior, plan.fixed, plan.node)
        total = values.copy()
        sum_over_subsets(total)
        total += subset_sums(plan.corrections)
        shift = total[plan.centre]
        tables.append(_Filled(_single(values - shift), _single(total - shift), float(shift)))
    return tables


def _single(values: np.ndarray) -> np.ndarray:
    """The values in single precision, with what is beyond it at its bounds; minus infinity stays what it is."""
    values[values < -LARGEST_SINGLE] = np.where(np.isneginf(values[values < -LARGEST_SINGLE]), -np.inf, -LARGEST_SINGLE)
    return np.minimum(values, LARGEST_SINGLE).astype(np.float32)


def _fixed_odds(prior: EdgePrior, certain: np.ndarray, node: int) -> float:
    return float(prior.log_odds[certain, node].sum())


def _order_terms(prior: EdgePrior, free: Sequence[np.ndarray]) -> tuple[list[np.ndarray], float]:
    """Spread the factors (1 - pi_ij) of absent edges, which depend on the order only where pi_ij and pi_ji
    differ.

    Returns for every node the terms (c,) that a candidate adds when it comes first, and the constant. A pair
    without any candidate counts with the mean of its two directions.
    """
    nodes = len(free)
    absent = prior.log_absent
    off_diagonal = ~np.eye(nodes, dtype=bool)
    difference = absent - absent.T
    constant = 0.5 * float(absent[off_diagonal].sum())
    if not difference[off_diagonal].any():
        return [np.zeros(c.size) for c in free], constant
    is_candidate = np.zeros((nodes, nodes), dtype=bool)
    for node, chosen in enumerate(free):
        is_candidate[chosen, node] = True
    both = is_candidate & is_candidate.T
    terms = np.where(both, 0.5 * difference, difference)
    # One-sided: the pair counts absent_ji unless i comes first, instead of the mean.
    one_sided = is_candidate & ~is_candidate.T
    constant -= 0.5 * float(difference[one_sided].sum())
    return [terms[chosen, node] for node, chosen in enumerate(free)], constant
