"""The search that precedes the sampling of orders: candidate parents, in rounds, and a shared noise
variance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vcuda.infer.checkpoint import cached, fingerprint, generator_state, ragged, set_generator, split
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.orders.candidates import (
    Candidates,
    GainsCache,
    all_others,
    closure,
    completed,
    first_candidates,
    left_out,
    settle,
    widen,
)
from vcuda.infer.orders.greedy_parents import parents_in_order
from vcuda.infer.orders.hill_climb_check import HillClimbCheck, hill_climb_check, log_score_of
from vcuda.infer.orders.hubs import search_hubs
from vcuda.infer.orders.ladders import Ladders, Record, SweepClock, annealing_schedule, parents_first
from vcuda.infer.orders.lazy_tables import (
    foresee_gains,
    foresee_tables,
    forget_unasked,
    grow_tables,
    screen_of,
    with_lazy_tables,
)
from vcuda.infer.orders.score_tables import OutOfTimeError, build_tables
from vcuda.infer.orders.settings import Orders
from vcuda.infer.orders.tables import ParentTables
from vcuda.infer.prefetch import Prefetch
from vcuda.infer.progress import always
from vcuda.infer.workers import SERIAL, Workers
from vcuda.models.protocol import LocalScore

STUCK_BELOW = 100.0
# A graph of another search must be this many nats better to be another mode, not one of the sampled one's neighbours.
BETTER = 3.0
# How many candidates a node keeps where tables of all of them take too long.
SHORT_OF_TIME = (8, 3)
# Edges of at least this probability are candidates, or of this times the number of columns where that is more.
LEAST_PROBABILITY = 0.005
PROBABILITY_A_COLUMN = 1e-4
# Orders that are asked about edges left out, times the number of columns; and the most of them.
ORDERS_TO_ASK = 1000
MOST_ORDERS = 40


class Search:
    """Finds candidate parents (and a shared noise variance) in rounds of short sampling."""

    def __init__(
        self,
        spec: Orders,
        score: LocalScore,
        prior: EdgePrior,
        ladders: Ladders,
        clock: SweepClock,
        start_order: np.ndarray | None,
        workers: Workers = SERIAL,
    ) -> None:
        self.spec, self.prior, self.ladders, self.clock = spec, prior, ladders, clock
        self.workers = workers
        self.prefetch = Prefetch(
            workers, go_on=clock.in_time, on_progress=lambda: clock.working("scores of sets of parents")
        )
        self.shared = score.nuisance
        self.variance = 1.0 if self.shared is None else self.shared.quick_guess()
        self.score = score if self.shared is None else self.shared.at(self.variance)
        self.full = spec.full if spec.full is not None else (18 if score.cheap_tables else 14)
        self.grows = score.slow_sets and score.nodes > self.full
        if self.grows:
            self.score = with_lazy_tables(self.score, prior)
        self.cap = spec.max_candidates or (18 if score.cheap_tables else 12)
        self.order = None if start_order is None else np.asarray(start_order, dtype=np.int64)
        self.record = Record()
        self.rounds = 0
        self.converged = False
        self.totals: list[float] = []
        self.opinion: HillClimbCheck | None = None
        self._seen: set[tuple[int, int]] = set()
        self.candidates: Candidates
        self.tables: ParentTables
        self._built_with: LocalScore | None = None
        self._known_gains = GainsCache(self.score)

    def run(self) -> None:
        """Leave ``candidates``, ``tables`` and, if anything was sampled, ``record`` and a likely
        ``order``."""
        nodes, spec = self.score.nodes, self.spec
        if nodes <= self.full:
            self.candidates = all_others(self.prior)
            self.prefetch.full_tables(self.score, self.prior)
            self._build()
            if self.shared is None:
                self.converged = True
                return
        else:
            if self.order is None:
                self.order = self.score.start_order(self.prior.log_odds, go_on=self.clock.in_time)
            if self.order is not None and self.prior.required.any():
                self.order = parents_first(self.order, self.prior.required_parents())
            if self.shared is not None and self.order is not None:
                self._settle_noise([parents_in_order(self.score, self.prior, self.order, go_on=self.clock.in_time)])
            self.candidates = self._first_candidates()
            self._build()
        self._seen = self.candidates.pairs()
        self._start()
        # What a Gaussian process gains must be worked out set by set, which takes too long for all edges.
        hubs_searched, opinion_asked, is_complete = False, False, self.grows or nodes <= self.full
        while self.rounds < spec.rounds and self.clock.in_time():
            self.rounds += 1
            graphs, ranks = self._best_graphs()
            settled = self._settle_noise(graphs)
            new = 0
            if nodes > self.full:
                if self.grows:
                    foresee_gains(self.score, graphs, self.prefetch)
                widened = widen(
                    self._gains(),
                    self.prior,
                    self.candidates,
                    graphs,
                    ranks,
                    # Of millions of pairs some are always nearly worth it; late rounds look for what is worth it.
                    tolerance=0.5 * spec.tolerance if self.rounds <= spec.rounds // 2 else 0.0,
                    cap=self.cap,
                    go_on=self._say("candidate parents"),
                )
                # A hub may lose a candidate for another and get it back; only what was never there is new.
                new = len(widened.pairs() - self._seen)
                if new:
                    self.candidates = widened
                    self._seen |= widened.pairs()
            if not self.clock.in_time():
                break
            if self.grows:
                new += grow_tables(self.score, self.candidates.free, graphs, ranks, prefetch=self.prefetch)
                if new == 0 and not hubs_searched:
                    hubs_searched = True
                    self.candidates, new = search_hubs(
                        self.score,
                        self.candidates,
                        graphs[0],
                        cap=self.cap,
                        go_on=self._say("parents that show only together"),
                        prefetch=self.prefetch,
                    )
            if new == 0 and settled and nodes > self.full and not opinion_asked:
                opinion_asked = True
                if self._was_wrong(graphs):
                    continue
            if new == 0 and settled and not is_complete:
                is_complete = True
                new = self._complete()
            if new == 0 and settled:
                self.converged = self.clock.in_time()
                break
            if not self._build():
                break
            self._sample(np.broadcast_to(self.ladders.betas, (spec.round_sweeps, *self.ladders.shape)), swap=True)

    def _first_candidates(self) -> Candidates:
        spec = self.spec

        def find() -> dict[str, np.ndarray]:
            found = first_candidates(
                screen_of(self.score) if self.grows else self.score,
                self.prior,
                order=self.order,
                tolerance=spec.tolerance,
                fill=spec.fill if spec.fill is not None else (8 if self.score.nodes < 200 else 0),
                cap=self.cap,
                go_on=self._say("candidate parents"),
            )
            return ragged("free", found.free) | ragged("fixed", found.fixed)

        given = fingerprint(spec, self.order, self.variance)
        known = cached(self.ladders.checkpointer, "first candidates", given, find, complete=self.clock.in_time)
        return Candidates(tuple(split("free", known)), tuple(split("fixed", known)))

    def _was_wrong(self, graphs: Sequence[Sequence[np.ndarray]]) -> bool:
        """Run the hill-climbing check; where it finds a better graph than the best sampled one, start again from it."""

        def go_on() -> bool:
            self.clock.working("hill-climbing check")
            return self.clock.in_time()

        rng = self.ladders.rng

        def ask() -> dict[str, np.ndarray]:
            found = hill_climb_check(self.score, self.prior, rng, graphs[0], go_on=go_on)
            if found is None:
                return {"generator": generator_state(rng)}
            result = {"log score": np.array(found.log_score), "order": found.order, "generator": generator_state(rng)}
            return result | ragged("graph", found.graph)

        given = fingerprint(graphs[0], rng, self.variance)
        known = cached(self.ladders.checkpointer, "second opinion", given, ask, complete=self.clock.in_time)
        set_generator(rng, known["generator"])
        self.opinion = None
        if "order" in known:
            self.opinion = HillClimbCheck(float(known["log score"]), split("graph", known), known["order"])
        if self.opinion is None or self.opinion.log_score <= log_score_of(self.score, self.prior, graphs[0]) + BETTER:
            return False
        parts = zip(self.candidates.free, self.candidates.fixed, self.opinion.graph, strict=True)
        wanted = closure([np.unique(np.concatenate(part)) for part in parts], self.prior)
        self.candidates = settle(self.score, self.prior, wanted, graphs=[self.opinion.graph], cap=self.cap)
        self._seen |= self.candidates.pairs()
        self.order = self.opinion.order
        if self._build():
            self._start()
        return True

    def above_sampled(self) -> float | None:
        """Return by how many nats the hill-climbing check is better than the best sampled graph; None without one."""
        if self.opinion is None:
            return None
        graphs, _ = self._best_graphs()
        known = log_score_of(self.score, self.prior, self.opinion.graph)
        return known - max(log_score_of(self.score, self.prior, graph) for graph in graphs)

    def missing(self) -> dict[str, float | int | None]:
        """Return what the candidates leave out, for the diagnostics: how many edges that would improve the best sampled
        graphs, how many edges are expected, and the most probable one; None where there is no time to look."""
        if self.score.nodes <= self.full:
            return {"missing_edges": 0, "left_out_edges": 0.0, "left_out_probability": 0.0}
        nothing = dict.fromkeys(("missing_edges", "left_out_edges", "left_out_probability"))
        if not self.clock.in_time():
            return nothing
        graphs, ranks = self._best_graphs()
        best = len(graphs)
        if self.grows:
            foresee_gains(self.score, graphs, self.prefetch)
        else:
            graphs, ranks = self._sampled_graphs()
        say = self._say("edges left out")
        lost = left_out(self._gains(), self.prior, self.candidates, graphs, ranks, best=best, go_on=say)
        if not self.clock.in_time():
            return nothing
        return {
            "missing_edges": int(lost.improves.sum()),
            "left_out_edges": float(lost.probability.sum()),
            "left_out_probability": float(lost.probability.max(initial=0.0)),
        }

    def _complete(self) -> int:
        """Add edges that are improbable, but not so much that their probability may be called zero; return how many."""
        graphs, ranks = self._sampled_graphs()
        say = self._say("candidate parents")
        lost = left_out(self._gains(), self.prior, self.candidates, graphs, ranks, go_on=say).probability
        # An edge and its reverse widen two tables. With many columns there are too many such edges.
        least = max(LEAST_PROBABILITY, PROBABILITY_A_COLUMN * self.score.nodes)
        if not (lost >= least).any() or not self.clock.in_time():
            return 0
        wider = completed(self.prior, self.candidates, lost, least=least, cap=self.cap)
        new = len(wider.pairs() - self._seen)
        if new:
            self.candidates = wider
            self._seen |= wider.pairs()
        return new

    def _sampled_graphs(self) -> tuple[list[list[np.ndarray]], np.ndarray]:
        """Return the best parents of every node under orders of the cold chains, and their ranks: more orders the fewer
        columns there are. The last of each chain comes first."""
        best, ranks = self._best_graphs()
        wanted = int(np.clip(ORDERS_TO_ASK / self.score.nodes, len(best), MOST_ORDERS))
        if not self.record.cold or self.record.tables is not self.tables:
            return best, ranks
        energies = np.concatenate(self.record.energies)[..., 0]
        states = np.concatenate(self.record.cold)[energies > energies.max() - STUCK_BELOW]
        picked = np.unique(np.linspace(0, len(states) - 1, wanted).round().astype(np.int64))
        more = np.argsort(np.argsort(states[picked], axis=1, kind="stable"), axis=1)
        ranks = np.concatenate([ranks, more])
        return best + self.tables.best_graphs(more), ranks

    def _gains(self) -> GainsCache:
        """What is known of gains; nothing after a shared noise variance has moved."""
        if self._known_gains.score is not self.score:
            self._known_gains = GainsCache(self.score)
        return self._known_gains

    def _say(self, detail: str) -> Callable[[int], bool]:
        def go_on(node: int) -> bool:
            if node % 50 == 0:
                self.clock.working(detail)
            return self.clock.in_time()

        return go_on

    def _build(self) -> bool:
        """Make the tables of the candidates; false where time is short, and those of the round before stay.

        The first tables must come to an end: where half of the time left is not enough, every node keeps a few of its
        candidates, then the fewest.
        """
        built = self._built_with is not None
        for most in (None,) if built else (None, *SHORT_OF_TIME):
            if most is not None:
                self.candidates = self._fewer_candidates(most)
            first = always if most == SHORT_OF_TIME[-1] else self.clock.for_share(0.5)
            try:
                self.tables = self._tables(self.clock.in_time if built else first)
            except OutOfTimeError:
                continue
            self._built_with = self.score
            self.ladders.use(self.tables, width=1 if self.score.nodes <= self.full else self.cap)
            return True
        return False

    def _fewer_candidates(self, most: int) -> Candidates:
        """The first candidates of every node that the columns explain best alone."""
        free = []
        for node, chosen in enumerate(self.candidates.free):
            alone = self.score.gains(node, ())[chosen]
            free.append(np.sort(chosen[np.argsort(-alone, kind="stable")[:most]]))
        return Candidates(tuple(free), self.candidates.fixed)

    def _tables(self, go_on: Callable[[], bool]) -> ParentTables:
        # Lazy tables score more sets each time; others stay the same for the same candidates.
        same = not self.grows and self.score is self._built_with
        if self.grows:
            foresee_tables(self.score, self.candidates, self.prior, self.prefetch)
        found = build_tables(
            self.score,
            self.prior,
            self.candidates.free,
            fixed=self.candidates.fixed,
            order=self.order,
            known=self.tables if same else None,
            workers=self.workers,
            go_on=go_on,
        )
        if self.grows:
            forget_unasked(self.score)
        return found

    def _start(self) -> None:
        """Anneal from random orders, half of the replicas from the constructed order if there is one."""
        self.ladders.place_at_random(() if self.order is None else [self.order])
        self._sample(annealing_schedule(self.ladders, self.spec.round_sweeps + 20), swap=False)

    def _sample(self, schedule: np.ndarray, *, swap: bool) -> None:
        record = Record()
        try:
            self.ladders.advance(schedule, record, swap=swap, clock=self.clock, detail="short run")
        finally:
            if record.energies:
                self.record = record
        cold = self.ladders.energies()[:, 0]
        self.order = self.ladders.cold_orders()[0]
        self.totals.append(float(cold.max()) + self.tables.log_constant)

    def _best_graphs(self) -> tuple[list[list[np.ndarray]], np.ndarray]:
        """Return the best parents of every node under the orders of the cold chains, best chain first, and
        their ranks."""
        energies = self.ladders.energies()[:, 0]
        # A chain that is stuck far below would ask for candidates that only its own mistakes need.
        orders = self.ladders.cold_orders()[: np.sum(energies > energies.max() - STUCK_BELOW)]
        ranks = np.argsort(orders, axis=1)
        return self.tables.best_graphs(ranks), ranks

    def _settle_noise(self, graphs: Sequence[Sequence[np.ndarray]]) -> bool:
        """Move a shared noise variance to its best value given graphs; true when it hardly moved."""
        if self.shared is None or not graphs:
            return True
        shared = self.shared
        width = (0.5 * shared.cells) ** -0.5

        def height(log_variance: float) -> float:
            score = shared.at(float(np.exp(log_variance)))
            fits = [score.score(j, parents.tolist()) for graph in graphs for j, parents in enumerate(graph)]
            return sum(fits) / len(graphs) + shared.log_prior(float(np.exp(log_variance))) + log_variance

        here = start = float(np.log(self.variance))
        for _ in range(10):
            if not self.clock.in_time():
                break
            low, middle, high = (height(here + step * width) for step in (-1, 0, 1))
            curvature = 2 * middle - low - high
            move = width * (0.5 * (high - low) / curvature if curvature > 0 else np.sign(high - low) * 5)
            here += float(np.clip(move, -0.5, 0.5))
            if abs(move) < 0.1 * width:
                break
        self.variance = float(np.exp(here))
        if here != start:
            self.score = shared.at(self.variance)
        return abs(here - start) < 0.2 * width
