"""Tables of local scores over candidate parents, and what an order draws from them.

For node j with candidates C_j (bit t of a mask is candidate t) and log weights w_j(U) = log p(x_j | x_U) +
the log odds of the edges in U, two tables of 2**|C_j| single-precision numbers are kept: the weights
themselves, to draw parent sets, and the sums H_j(m) = log sum over U in m of exp w_j(U), to weigh orders and
to give edge probabilities. Parents that are *fixed* (required, or so certain that a hub needs no bit for
them) belong to every parent set and must come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vcuda.errors import ConfigError
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact.lattice import THREADS, subset_sums, sum_over_subsets
from vcuda.infer.orders.growing import GrowingScore
from vcuda.infer.orders.sweeps import ORDER_COST, Classes, Network, pad_up
from vcuda.infer.workers import HERE, Workers
from vcuda.models.gaussian_process import GaussianProcessScore
from vcuda.models.interventions import InterventionalScore, kind_of
from vcuda.models.scores import GramScore, LocalScore, schur_tables, set_sizes

# Tables of several nodes are computed together up to this many entries: enough for long rows, little memory.
BATCH_ENTRIES = 1 << 17
# Tables grow with the rounds; with room for 4 MB most never outgrow it, and the sweeps are compiled once.
LEAST_TABLE = 1 << 20
NEGLIGIBLE = 1e-6
NEIGHBOUR_STEPS = (8, 16, 32, 48, 64, 96)
# Tables of fewer entries in all are filled here. Guessed, not measured: filling should take longer than sending.
SPREAD_ENTRIES = {"linear": 1 << 22, "other": 1 << 14}


@dataclass(frozen=True, eq=False)
class ParentTables:
    """Score tables of all nodes.

    Attributes
    ----------
    candidates, fixed
        For each node its candidate parents in the order of their bits, and its fixed parents.
    offsets
        (d + 1,): the tables of node j are ``offsets[j]:offsets[j + 1]``.
    weights, sums
        (t,) float32: w_j and H_j of all nodes, less ``shifts[j]``.
    shifts
        (d,): what was subtracted, so that single precision is best where the posterior lies.
    corrections
        For each node (c,): the part of H_j(m + t) - H_j(m) that comes from the prior of the order.
    log_absent
        The log prior probability that no edge is there, as far as no table holds it.
    """

    candidates: tuple[np.ndarray, ...]
    fixed: tuple[np.ndarray, ...]
    offsets: np.ndarray
    weights: np.ndarray
    sums: np.ndarray
    shifts: np.ndarray
    corrections: tuple[np.ndarray, ...]
    log_absent: float

    @property
    def nodes(self) -> int:
        return len(self.candidates)

    @property
    def log_constant(self) -> float:
        """What the log score of an order lacks of its log joint density with the data."""
        return float(self.shifts.sum()) + self.log_absent

    def masks(self, priorities: np.ndarray) -> np.ndarray:
        """Return the masks (s, d) of the candidates that come first, for priorities (s, d)."""
        masks = np.zeros(priorities.shape, dtype=np.int64)
        for node, candidates in enumerate(self.candidates):
            before = priorities[:, candidates] < priorities[:, node, None]
            masks[:, node] = before @ (1 << np.arange(candidates.size))
        return masks

    def network(self, *, width: int = 1, before: Classes | None = None) -> tuple[Network, Classes]:
        """Return the arrays for the compiled sweeps, and the classes of nodes.

        ``width`` is the least number of candidates to make room for, ``before`` are the classes of an earlier
        round: with the same sizes the program need not be compiled again.
        """
        nodes = self.nodes
        pairs = _neighbour_pairs(self.candidates, self.fixed)
        counts = np.bincount(pairs[0], minlength=nodes)
        width = max(width, *(c.size for c in self.candidates))
        classes = _classes(counts, before)
        most = classes.widths[-1]
        node, other, own_bit, child_bit, own_cost, child_cost = pairs
        position = np.arange(node.size) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = (nodes + 1, most)
        neighbours = np.full(shape, nodes, dtype=np.int32)
        own_bits, child_bits = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int32)
        own_costs, child_costs = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
        for array, values in zip(
            (neighbours, own_bits, child_bits, own_costs, child_costs),
            (other, own_bit, child_bit, own_cost, child_cost),
            strict=True,
        ):
            array[node, position] = values
        candidates = np.full((nodes, width), nodes, dtype=np.int32)
        corrections = np.zeros((nodes, width), dtype=np.float32)
        for j, (chosen, terms) in enumerate(zip(self.candidates, self.corrections, strict=True)):
            candidates[j, : chosen.size] = chosen
            corrections[j, : chosen.size] = terms
        table = np.zeros(pad_up(max(self.sums.size + 1, LEAST_TABLE)), dtype=np.float32)
        table[: self.sums.size] = self.sums
        offsets = self.offsets.astype(np.int32)
        return (
            Network(
                table,
                offsets,
                neighbours,
                own_bits,
                child_bits,
                own_costs,
                child_costs,
                candidates,
                corrections,
            ),
            classes,
        )

    def dense(self, per_candidate: np.ndarray) -> np.ndarray:
        """Spread values (d, k) of candidates over a matrix (d, d) of edges; fixed parents get a one."""
        edges = np.zeros((self.nodes, self.nodes))
        for node, (chosen, certain) in enumerate(zip(self.candidates, self.fixed, strict=True)):
            edges[chosen, node] = per_candidate[node, : chosen.size]
            edges[certain, node] = 1.0
        return edges

    def draw(self, rng: np.random.Generator, priorities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw one graph for each row of priorities (s, d): which sample, sources and targets of all edges,
        by sample."""
        size = len(priorities)
        masks = self.masks(priorities)
        which, sources, targets = [], [], []
        for node, candidates in enumerate(self.candidates):
            chosen = self._draw_sets(rng, node, masks[:, node])
            for bit, candidate in enumerate(candidates):
                holds = np.flatnonzero(chosen >> bit & 1)
                which.append(holds)
                sources.append(np.full(holds.size, candidate))
                targets.append(np.full(holds.size, node))
            for certain in self.fixed[node]:
                which.append(np.arange(size))
                sources.append(np.full(size, certain))
                targets.append(np.full(size, node))
        if not which:
            return (np.zeros(0, dtype=np.int64),) * 3
        joined = np.concatenate(which)
        by_sample = np.argsort(joined, kind="stable")
        return joined[by_sample], np.concatenate(sources)[by_sample], np.concatenate(targets)[by_sample]

    def best_parents(self, rank: np.ndarray) -> list[np.ndarray]:
        """Return for every node its best parents among those that come before it by their ranks (d,)."""
        masks = self.masks(rank[None])[0]
        best = []
        for node in range(self.nodes):
            subsets, weights = self._subsets(node, int(masks[node]))
            best.append(self.parents_of(node, int(subsets[np.argmax(weights)])))
        return best

    def parents_of(self, node: int, mask: int) -> np.ndarray:
        """Return the parents (k,) in a mask of the node's candidates, and its fixed parents."""
        candidates = self.candidates[node]
        return np.concatenate([candidates[mask >> np.arange(candidates.size) & 1 == 1], self.fixed[node]])

    def _subsets(self, node: int, mask: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the subsets of a mask that matter, and their log weights.

        Candidates that are in or out with a probability above 1 - 1e-6 do not vary: few of a hub's 2**18 sets
        remain.
        """
        start, bits = self.offsets[node], 1 << np.arange(self.candidates[node].size)
        inside = (mask & bits) != 0
        change = self.sums[start + (mask & ~bits)] + self.corrections[node] - self.sums[start + mask]
        absent = np.exp(np.minimum(change, 0.0))
        subsets = np.array([int(bits[inside & (absent <= NEGLIGIBLE)].sum())], dtype=np.int64)
        for bit in bits[inside & (absent > NEGLIGIBLE) & (absent < 1 - NEGLIGIBLE)]:
            subsets = np.concatenate([subsets, subsets | bit])
        return subsets, self.weights[start + subsets].astype(np.float64)

    def _draw_sets(self, rng: np.random.Generator, node: int, masks: np.ndarray) -> np.ndarray:
        """Draw a parent set (s,) inside each mask (s,)."""
        drawn = np.zeros_like(masks)
        distinct, inverse = np.unique(masks, return_inverse=True)
        by_mask = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
        for mask, rows in zip(distinct, by_mask, strict=True):
            subsets, weights = self._subsets(node, int(mask))
            cumulated = np.cumsum(np.exp(weights - weights.max()))
            picks = np.searchsorted(cumulated, rng.random(rows.size) * cumulated[-1], side="right")
            drawn[rows] = subsets[np.minimum(picks, subsets.size - 1)]
        return drawn


def build_tables(
    score: LocalScore,
    prior: EdgePrior,
    candidates: Sequence[np.ndarray],
    *,
    fixed: Sequence[np.ndarray] | None = None,
    order: np.ndarray | None = None,
    known: ParentTables | None = None,
    workers: Workers = HERE,
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
        Where tables are filled if they are large; those of scores that grow are filled here.
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
    linear = isinstance(kind_of(score), GramScore)
    entries = sum(1 << int(widths[node]) for task in tasks for node in task)
    if workers.count > 1 and entries >= SPREAD_ENTRIES["linear" if linear else "other"] and _is_sendable(score):
        if not linear:
            tasks = [[node] for task in tasks for node in task]
        found = workers.map(_filled, [plan(task) for task in tasks], shared=(score, prior))
        for task, filled in zip(tasks, found, strict=True):
            keep(task, filled)
    elif linear:
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
    batch = _score_tables(score, plans)
    for plan, values in zip(plans, batch, strict=True):
        values += subset_sums(prior.log_odds[plan.free, plan.node])
        values += _fixed_odds(prior, plan.fixed, plan.node)
        total = values.copy()
        sum_over_subsets(total)
        total += subset_sums(plan.corrections)
        shift = total[plan.centre]
        tables.append(_Filled((values - shift).astype(np.float32), (total - shift).astype(np.float32), float(shift)))
    return tables


def _is_sendable(score: LocalScore) -> bool:
    """Whether a copy of the score says the same in the same time: Gaussian processes live on what they remember."""
    return not isinstance(kind_of(score), GrowingScore | GaussianProcessScore)


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


def _score_tables(score: LocalScore, plans: Sequence[_Plan]) -> np.ndarray:
    """Return the scores (t, 2**c) of all subsets of the candidates, together with the fixed parents."""
    width, certain = plans[0].free.size, plans[0].fixed.size
    members = [plan.node for plan in plans]
    if isinstance(score, InterventionalScore):
        found = np.concatenate([_score_tables(score.of(plan.node), [plan]) for plan in plans])
        return np.where(score.free_rows[members, None] > 0, found, np.where(np.isfinite(found), 0.0, found))
    if not isinstance(score, GramScore):
        bits = ((1 << certain) - 1) << width
        both = [np.concatenate([plan.free, plan.fixed]) for plan in plans]
        return np.stack(
            [
                np.array(score.table(node, chosen)[bits : bits + (1 << width)], dtype=np.float64)
                for node, chosen in zip(members, both, strict=True)
            ]
        )
    columns = np.array([np.concatenate([plan.fixed, plan.free, [plan.node]]) for plan in plans], dtype=np.int64)
    added = np.append(np.full(certain + width, score.ridge), score.target_ridge)
    gram = score.gram[columns[:, :, None], columns[:, None, :]] + np.diag(added)
    log_fixed = 0.0
    if certain:
        inner, cross = gram[:, :certain, :certain], gram[:, :certain, certain:]
        log_fixed = np.linalg.slogdet(inner)[1][:, None] - certain * np.log(score.ridge)
        gram = gram[:, certain:, certain:] - np.swapaxes(cross, 1, 2) @ np.linalg.solve(inner, cross)
    residual, log_det = schur_tables(gram)
    sizes = set_sizes(width)
    scores = score.local(residual, log_det - sizes * np.log(score.ridge) + log_fixed, sizes + certain)
    if score.max_parents is not None:
        scores[:, sizes + certain > max(score.max_parents, certain)] = -np.inf
    return scores


def _classes(counts: np.ndarray, before: Classes | None) -> Classes:
    """Divide the nodes by their number of neighbours (d,) into few classes, since each is compiled for
    itself."""
    nodes = counts.size
    most = pad_up(int(counts.max(initial=1)), steps=NEIGHBOUR_STEPS)
    if before is not None and before.widths[-1] >= most:
        widths, lengths = before.widths, [members.size for members in before.members]
    else:
        usual = pad_up(int(np.quantile(counts, 0.8)), steps=NEIGHBOUR_STEPS)
        many = pad_up(int(np.quantile(counts, 0.97)), steps=NEIGHBOUR_STEPS)
        widths = tuple(sorted({usual, many, most} if most > 2 * many else {usual, most}))
        lengths = [0] * len(widths)
    which = np.searchsorted(widths, counts)
    members = []
    for index in range(len(widths)):
        inside = np.flatnonzero(which == index)
        # Lengths in steps of an eighth: little is wasted, and a few nodes that change class change no shape, nor
        # do those that leave it while a quarter more is not yet too long.
        step = max(4, 1 << max(int(inside.size).bit_length() - 3, 0))
        length = -(-max(inside.size, 1) // step) * step
        if length < lengths[index] <= 1.25 * length + 4:
            length = lengths[index]
        members.append(np.append(inside, np.full(length - inside.size, nodes)).astype(np.int32))
    return Classes(tuple(members), widths)


def _neighbour_pairs(candidates: Sequence[np.ndarray], fixed: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return, sorted by node, for all pairs of neighbours: node, other, own bit, child bit, own cost, child
    cost."""
    nodes = len(candidates)
    sources = np.concatenate([*candidates, *fixed]).astype(np.int64)
    targets = np.repeat(np.tile(np.arange(nodes), 2), [c.size for c in (*candidates, *fixed)])
    bits = np.concatenate(
        [1 << np.arange(c.size, dtype=np.int64) for c in candidates] + [np.zeros(f.size, dtype=np.int64) for f in fixed]
    )
    costs = np.where(bits == 0, ORDER_COST, 0.0)
    # Seen from the target the source is a candidate of its own, seen from the source the target is a child.
    keys = np.concatenate([targets * nodes + sources, sources * nodes + targets])
    distinct, inverse = np.unique(keys, return_inverse=True)
    as_own, as_child = inverse[: sources.size], inverse[sources.size :]
    own_bit, child_bit = np.zeros(distinct.size, dtype=np.int64), np.zeros(distinct.size, dtype=np.int64)
    own_cost, child_cost = np.zeros(distinct.size), np.zeros(distinct.size)
    own_bit[as_own], child_bit[as_child] = bits, bits
    own_cost[as_own], child_cost[as_child] = costs, costs
    return distinct // nodes, distinct % nodes, own_bit, child_bit, own_cost, child_cost
