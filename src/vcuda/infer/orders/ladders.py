"""Ladders of tempered chains over orders: running them in blocks, annealing, and the evidence that they
give."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from scipy.special import logsumexp

from vcuda.infer.checkpoint import NO_CHECKPOINT, Arrays, Checkpointer, fingerprint, generator_state, set_generator
from vcuda.infer.devices import mesh_for, place
from vcuda.infer.orders.groups import Stage, run_in_groups, seconds_of
from vcuda.infer.orders.sweeps import (
    DIVIDED_CHAINS,
    Chains,
    Classes,
    Network,
    draw_noise,
    energies_of_priorities,
    run_block,
    spread,
)
from vcuda.infer.orders.table_layout import network_of
from vcuda.infer.orders.tables import ParentTables
from vcuda.infer.progress import TIME_LIMIT, Clock, ProgressCallback, always, in_time
from vcuda.infer.workers import SECONDS_A_STRETCH, SERIAL, WORTH_SECONDS, OnProgress, Workers

BLOCK = 10
# Practically zero: chains at this inverse temperature feel only the costs of fixed parents.
FLAT = 1e-8


class SweepClock(Clock):
    """Says between compiled blocks how many of about ``total`` sweeps are done, and whether to go on."""

    def __init__(self, deadline: float | None, progress: ProgressCallback, total: float) -> None:
        super().__init__(progress, deadline)
        self.total, self.done = total, 0.0
        self.stopped: str | None = None

    def in_time(self) -> bool:
        """Whether to go on; if not, ``stopped`` says why."""
        if self.stopped is None and self.is_late():
            self.stopped = TIME_LIMIT
        return self.stopped is None

    def for_share(self, share: float) -> Callable[[], bool]:
        """Return a question: is this share of the time that is left now still left?"""
        if self.deadline is None:
            return always
        return in_time(time.monotonic() + share * (self.deadline - time.monotonic()))

    def count(self, sweeps: float, detail: str) -> None:
        """Count and report sweeps that are done."""
        self.done += sweeps
        self.working(detail)

    def working(self, detail: str) -> None:
        """Report what is being done."""
        self.report(min(self.done, self.total), self.total, detail)


@dataclass
class Record:
    """What was seen, one entry for each block of b sweeps.

    ``energies`` (b, r, l) are log scores by temperature, ``cold`` (b, r, d) the priorities of the cold chains,
    ``edges`` (r, d, k) mean edge probabilities given their orders, ``swapped`` (l,) counts of swaps. ``tables`` are
    those that were sampled from: bits of candidates mean nothing without them.
    """

    energies: list[np.ndarray] = field(default_factory=list)
    cold: list[np.ndarray] = field(default_factory=list)
    edges: list[np.ndarray] = field(default_factory=list)
    swapped: list[np.ndarray] = field(default_factory=list)
    tables: ParentTables | None = None


class Ladders:
    """Replicas of a ladder of chains; everything random comes from one generator, so that a seed fixes the
    result.

    ``betas`` (l,) are the inverse temperatures of a ladder, the first being 1; ``fresh`` (r,) says which
    replicas started from random orders. Blocks that the ``checkpointer`` knows are not run again; long schedules run
    on ``workers``, replicas apart.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        replicas: int,
        betas: np.ndarray,
        checkpointer: Checkpointer = NO_CHECKPOINT,
        workers: Workers = SERIAL,
    ) -> None:
        self.rng, self.betas, self.checkpointer, self.workers = rng, betas, checkpointer, workers
        self._blocks = 0
        self.shape = (replicas, betas.size)
        self.mesh = mesh_for(replicas)
        self.fresh = np.ones(replicas, dtype=bool)
        self._classes: Classes | None = None
        self._network: Network | None = None
        self._stage: Stage | None = None
        self._orders = np.zeros((0, 0), dtype=np.int64)

    def use(self, tables: ParentTables, *, width: int) -> None:
        """Take new tables; the chains keep their orders, as far as fixed parents come first in them."""
        # The arrays of the tables before go first: both together would take much memory.
        self._network = self._stage = None
        network, self._classes = network_of(tables, width=width, before=self._classes)
        self._network = place(network, self.mesh)
        self._tables, self._nodes = tables, tables.nodes
        self._stage = Stage(network, self._classes) if self.workers.count > 1 else None
        # The shifts are sums over whole tables, so that other scores show in them.
        self._given = fingerprint(tables.candidates, tables.fixed, tables.shifts, tables.corrections)
        self._constrained = any(fixed.size for fixed in tables.fixed)
        self._obey_fixed()

    def place_at_random(self, known: Sequence[np.ndarray] | np.ndarray) -> None:
        """Start from random orders, the second half of the replicas from the first of ``known`` orders (d,)
        if there are any."""
        replicas, levels = self.shape
        self._orders = np.array([self.rng.permutation(self._nodes) for _ in range(replicas * levels)])
        self._holders = np.arange(replicas * levels, dtype=np.int32).reshape(self.shape)
        self.fresh = np.ones(replicas, dtype=bool)
        if len(known):
            self.fresh[replicas // 2 :] = False
        for position, replica in enumerate(np.flatnonzero(~self.fresh)):
            self._orders[self._holders[replica]] = known[position % len(known)]
        self._obey_fixed()
        if self._constrained and self.fresh.any():
            flat = np.where(self.fresh[:, None], FLAT, self.betas)
            no_progress = SweepClock(None, lambda progress: None, 1.0)
            self.advance(np.broadcast_to(flat, (1, *self.shape)), Record(), swap=False, clock=no_progress, detail="")

    def _obey_fixed(self) -> None:
        """Move nodes behind their fixed parents: single moves need many sweeps for it, and until then the parents that
        an order allows would form cycles."""
        if not self._constrained:
            return
        for chain, order in enumerate(self._orders):
            self._orders[chain] = parents_first(order, self._tables.fixed)

    def energies(self) -> np.ndarray:
        """Return the log scores (r, l) of the present orders, by temperature."""
        assert self._network is not None
        found = energies_of_priorities(self._network, spread(self.rng, self._orders))
        return np.asarray(found, dtype=np.float64)[self._holders]

    def cold_orders(self) -> np.ndarray:
        """Return the orders (r, d) of the coldest chains, the best first."""
        best_first = np.argsort(-self.energies()[:, 0], kind="stable")
        return self._orders[self._holders[best_first, 0]]

    def advance(self, schedule: np.ndarray, record: Record, *, swap: bool, clock: SweepClock, detail: str) -> None:
        """Run the sweeps of a schedule (b, r, l) of inverse temperatures in compiled blocks, until the clock
        stops it.

        Priorities are drawn anew given the order before each block, which keeps them apart in single
        precision.
        """
        replicas, levels = self.shape
        assert self._classes is not None
        assert self._network is not None
        elsewhere: list[dict[str, np.ndarray]] = []
        for start in range(0, len(schedule), BLOCK):
            betas = _block_betas(schedule, start)
            state = (self._given, self.rng, self._orders, self._holders, betas, swap)
            given = "" if self.checkpointer is NO_CHECKPOINT else fingerprint(*state)
            self._blocks += 1
            known = self.checkpointer.recall(f"block {self._blocks}", given)
            if known is not None:
                self._replay(known, record)
                clock.done += BLOCK
                if not clock.in_time():
                    break
                continue
            elsewhere = elsewhere or self._run_elsewhere(schedule[start:], swap, lambda _: clock.working(detail))
            if elsewhere:
                seen = elsewhere.pop(0)
                self._replay(seen, record)
                self.checkpointer.keep(f"block {self._blocks}", given, partial(self._after, seen))
                clock.count(BLOCK, detail)
                if not clock.in_time():
                    break
                continue
            noise = draw_noise(self.rng, self._classes, sweeps=BLOCK, replicas=replicas, levels=levels, swap=swap)
            chains = Chains(spread(self.rng, self._orders), self._holders)
            chains = chains if self.mesh is None else place(chains, self.mesh, DIVIDED_CHAINS)
            widths = self._classes.widths
            chains, block = run_block(self._network, chains, noise, betas, widths=widths, mesh=self.mesh)
            # Slices of an array of JAX are programs of their own, which take longer than a small block.
            self._orders = np.argsort(np.asarray(chains.priorities)[:-1], axis=0, kind="stable").T
            self._holders = np.asarray(chains.holders)
            seen = {name: np.asarray(getattr(block, name)) for name in ("energies", "cold", "edges", "swapped")}
            seen["swapped"] = seen["swapped"].reshape(-1, levels).sum(axis=0, dtype=np.int32)
            self._note(seen, record)
            self.checkpointer.keep(f"block {self._blocks}", given, partial(self._after, seen))
            clock.count(BLOCK, detail)
            if not clock.in_time():
                break

    def _run_elsewhere(self, schedule: np.ndarray, swap: bool, on_progress: OnProgress) -> list[dict[str, np.ndarray]]:
        """Run the next blocks of a schedule on workers, if that is worth it; returns what each leaves behind."""
        assert self._classes is not None
        if self.workers.count == 1:
            return []
        seconds = seconds_of(self._classes, sweeps=len(schedule), chains=self._holders.size)
        if seconds < WORTH_SECONDS:
            return []
        assert self._stage is not None
        blocks = -(-len(schedule) // BLOCK)
        stretch = max(1, min(blocks, round(SECONDS_A_STRETCH / seconds * blocks * self.workers.count)))
        return run_in_groups(
            self.workers,
            self._stage,
            orders=self._orders,
            holders=self._holders,
            rng=self.rng,
            betas=np.stack([_block_betas(schedule, start) for start in range(0, stretch * BLOCK, BLOCK)]),
            swap=swap,
            on_progress=on_progress,
        )

    def _note(self, seen: Arrays, record: Record) -> None:
        record.tables = self._tables
        record.energies.append(seen["energies"].astype(np.float64))
        record.cold.append(seen["cold"])
        record.edges.append(seen["edges"].astype(np.float64) / BLOCK)
        record.swapped.append(seen["swapped"])

    def _after(self, seen: Arrays) -> Arrays:
        """All that a block leaves behind; orders in as few bytes as hold them."""
        orders = self._orders.astype(np.min_scalar_type(self._nodes))
        return {**seen, "orders": orders, "holders": self._holders, "generator": generator_state(self.rng)}

    def _replay(self, known: Arrays, record: Record) -> None:
        """Leave behind what a block left when it was run."""
        self._orders, self._holders = known["orders"].astype(np.int64), known["holders"]
        set_generator(self.rng, known["generator"])
        self._note(known, record)


def _block_betas(schedule: np.ndarray, start: int) -> np.ndarray:
    """The inverse temperatures (BLOCK, r, l) of the block that begins at a sweep.

    A shorter block would be compiled anew; a few more sweeps at the last temperatures do no harm.
    """
    part = schedule[start : start + BLOCK]
    return np.concatenate([part, np.repeat(part[-1:], BLOCK - len(part), axis=0)]).astype(np.float32)


def parents_first(order: np.ndarray, parents: Sequence[np.ndarray]) -> np.ndarray:
    """Return the order (d,) changed as little as parents that must come first demand: each is put right before the
    first node that needs it."""
    placed = np.zeros(len(parents), dtype=bool)
    result: list[int] = []
    for node in order:
        waiting = [int(node)]
        while waiting:
            lacking = [int(parent) for parent in parents[waiting[-1]] if not placed[parent]]
            if lacking:
                waiting += lacking
                continue
            ready = waiting.pop()
            if not placed[ready]:
                placed[ready] = True
                result.append(ready)
    return np.array(result, dtype=order.dtype)


def annealing_schedule(ladders: Ladders, sweeps: int) -> np.ndarray:
    """Return inverse temperatures (sweeps, r, l): geometric up to the ladder for fresh replicas, the ladder
    for others.

    They start where random orders differ by half a nat, so that the first step loses nothing.
    """
    fresh = ladders.fresh
    schedule = np.broadcast_to(ladders.betas, (sweeps, *ladders.shape)).copy()
    if fresh.any() and sweeps > 1:
        deviation = float(np.std(ladders.energies()[fresh]))
        first = min(0.5 / max(deviation, 1e-6), 0.5)
        schedule[:, fresh] *= np.geomspace(first, 1.0, sweeps)[:, None, None]
    return schedule


def log_evidence_estimates(log_ratios: np.ndarray, energies: np.ndarray, betas: np.ndarray) -> np.ndarray:
    """Return estimates (f * l,) of the log mean over orders of exp(score).

    ``log_ratios`` (f, l) come from annealing each of f replicas to each temperature (annealed importance
    sampling); from there on the ladder's own samples ``energies`` (t, r, l) bridge to temperature one.
    """
    levels = betas.size
    bridges = np.zeros(levels)
    for level in range(1, levels):
        step = betas[level - 1] - betas[level]
        warm, cold = energies[..., level].reshape(-1), energies[..., level - 1].reshape(-1)
        up = logsumexp(step * warm) - np.log(warm.size)
        down = logsumexp(-step * cold) - np.log(cold.size)
        bridges[level] = bridges[level - 1] + 0.5 * (up - down)
    return (log_ratios + bridges).reshape(-1)
