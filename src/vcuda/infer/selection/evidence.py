"""How well a model explains a table: its evidence, exact or by the best graph, or by some columns given one order."""

from __future__ import annotations

import time
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling
from vcuda.infer.checkpoint import (
    NO_CHECKPOINT,
    Arrays,
    Checkpointer,
    cached,
    fingerprint,
    generator_state,
    remembering,
    set_generator,
)
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact import TimeLimitError, exact_posterior
from vcuda.infer.hill_climbing import climb
from vcuda.infer.orders.greedy_parents import MOST_PARENTS, best_parents, parents_in_order
from vcuda.infer.orders.ladders import parents_first
from vcuda.infer.progress import in_time
from vcuda.infer.scored import column_log_jacobians
from vcuda.models import FAMILIES
from vcuda.models.interventions import prepare
from vcuda.models.protocol import Candidate, LocalScore, Nuisance, RoundingError

# Columns whose local scores stand for all, where one order is used; the same for every model, since columns differ from
# each other by far more than models do.
SAMPLED_COLUMNS = 60
# Possible causes of such a column that nonlinear models are asked about.
POOLED = 30
# The part of the time left that an order may take, so that at least the linear models are compared by it.
ORDER_SHARE = 0.5

Method = Literal["exact", "best graph", "one order"]


class Evidence:
    """The evidence of models of tables with the same columns, by one method, in the units of the table."""

    def __init__(
        self,
        method: Method,
        prior: EdgePrior,
        rng: np.random.Generator,
        deadline: float | None,
        checkpointer: Checkpointer = NO_CHECKPOINT,
    ) -> None:
        self.method, self.prior, self.rng, self.deadline, self.checkpointer = method, prior, rng, deadline, checkpointer
        nodes = len(prior.required)
        self.columns = rng.permutation(nodes)[:SAMPLED_COLUMNS] if method == "one order" else np.arange(nodes)
        self.orders: dict[str, np.ndarray] = {}
        self.graphs: list[np.ndarray] = []
        self._go_on = in_time(deadline)
        self._may_stop = False

    def log_jacobian(self, data: Dataset, units: Scaling) -> float:
        """What the density of the table gains by going from its own units to the user's."""
        return float(column_log_jacobians(data, units)[self.columns].mean() * data.d)

    def measure(self, candidate: Candidate, table: Dataset, *, may_stop: bool) -> tuple[float, LocalScore | None]:
        """The evidence in the units of the table, and the score if it was prepared for all columns.

        What the checkpoint knows is not measured again, except of a slow score: there the scores of sets are known, and
        those that it was asked for are what its lazy tables hold later. Raises a TimeLimitError when the deadline comes
        and the measurement ``may_stop``; one that may not is brought to an end in haste.
        """
        self._may_stop = may_stop
        if candidate.slow:
            return self._measured(candidate, table)
        score: LocalScore | None = None

        def work() -> Arrays:
            nonlocal score
            total, score = self._measured(candidate, table)
            self._check_time()
            graphs = np.array(self.graphs, dtype=bool)
            return {"total": np.array(total), "graphs": graphs, "generator": generator_state(self.rng)}

        given = fingerprint(table.fingerprint, candidate, self.method, self.prior, self.rng, self.graphs)
        known = cached(self.checkpointer, f"evidence {given}", given, work)
        set_generator(self.rng, known["generator"])
        self.graphs = list(known["graphs"])
        return float(known["total"]), score

    def _check_time(self) -> None:
        if self._may_stop and not self._go_on():
            raise TimeLimitError("the time limit came while models were compared; allow more time")

    def _measured(self, candidate: Candidate, table: Dataset) -> tuple[float, LocalScore | None]:
        if self.method == "one order":
            return self._by_one_order(candidate, table) * table.d / self.columns.size, None
        score = remembering(prepare(candidate.spec, table.values, table.interventions), self.checkpointer)
        if self.method == "best graph":
            return self._by_best_graph(candidate, score, table), score
        deadline = self.deadline if self._may_stop else None
        found = exact_posterior(score, self.prior, samples=1, rng=self.rng, deadline=deadline)
        return found.log_evidence, score

    def _by_best_graph(self, candidate: Candidate, score: LocalScore, table: Dataset) -> float:
        order, shared = self._order(table), score.nuisance
        if shared is not None:
            graph = self._graph_of_order(shared.at(1.0), order)
            variance, _ = _best_variance(shared, graph)
            graph = self._graph_of_order(shared.at(variance), order)
            return _best_variance(shared, graph)[1] + self.prior.log_odds_of(graph) + score.log_jacobian
        graphs = list(self.graphs)
        # A slow score is asked about the graphs that another one found: a search of its own would take minutes.
        if not (candidate.slow and graphs):
            graphs.append(self._graph_of_order(score, order))
            for _ in range(candidate.climbs):
                self._check_time()
                graphs.append(climb(score, self.prior, self.rng, max_parents=MOST_PARENTS, go_on=self._go_on)[1])
        totals = [self._total(score, graph) + self.prior.log_odds_of(graph) for graph in graphs]
        best = int(np.argmax(totals))
        if candidate.screen is not None and not candidate.slow:
            self.graphs = [graphs[best]]
        return totals[best] + score.log_jacobian

    def _by_one_order(self, candidate: Candidate, table: Dataset) -> float:
        rank = np.argsort(self._order(table))
        if candidate.screen is not None:
            return sum(self._with_few_columns(candidate, table, int(node), rank) for node in self.columns)
        score = prepare(candidate.spec, table.values, table.interventions)
        shared = score.nuisance
        if shared is not None:
            parents = {int(node): self._parents(shared.at(1.0), int(node), rank) for node in self.columns}
            known = shared.at(_best_variance(shared, parents)[0])
            total = self.columns.size * score.log_jacobian / score.nodes
        else:
            known, total = score, self._own_log_jacobian(table, self.columns)
        for node in self.columns.tolist():
            chosen = self._parents(known, node, rank)
            total += known.score(node, chosen.tolist()) + float(self.prior.log_odds[chosen, node].sum())
        return total

    def _own_log_jacobian(self, table: Dataset, columns: np.ndarray) -> float:
        """What the density of some columns gains by going from standardised ones to those of the table."""
        return float(column_log_jacobians(table, Scaling(table.mean, table.scale))[columns].sum())

    def _with_few_columns(self, candidate: Candidate, table: Dataset, node: int, rank: np.ndarray) -> float:
        """The score of one column with the causes that the screen chooses from the most promising ones."""
        self._check_time()
        free = table.values[table.free_rows(node)]
        if not len(free):
            return 0.0
        assert candidate.screen is not None
        before = np.flatnonzero(rank < rank[node])
        target, others = free[:, node], free[:, before]
        centred = others - others.mean(axis=0)
        promise = np.zeros(before.size)
        for feature in (centred, centred**2):
            spread = np.maximum(feature.std(axis=0) * target.std(), np.finfo(float).tiny)
            promise = np.maximum(promise, np.abs((target - target.mean()) @ feature) / (len(free) * spread))
        promise[self.prior.required[before, node]] = np.inf
        pool = before[np.argsort(-promise, kind="stable")[:POOLED]]
        columns = np.append(pool, node)
        screen = candidate.screen.prepare(free[:, columns], scale=table.scale[columns])
        prior = self.prior.among(columns)
        usable = np.arange(columns.size) < pool.size
        chosen = _best_parents(screen, prior, pool.size, usable)
        few = np.append(pool[chosen], node)
        small = candidate.spec.prepare(free[:, few], scale=table.scale[few])
        local = small.score(chosen.size, list(range(chosen.size)))
        gained = float(prior.log_odds[chosen, -1].sum())
        return local + gained + self._own_log_jacobian(table, np.array([node]))

    def _parents(self, score: LocalScore, node: int, rank: np.ndarray) -> np.ndarray:
        return _best_parents(score, self.prior, node, rank < rank[node])

    def _order(self, table: Dataset) -> np.ndarray:
        """An order that equal noise would have; found once for each table."""
        key = table.fingerprint
        if key not in self.orders:
            left = None if self.deadline is None else ORDER_SHARE * (self.deadline - time.monotonic())
            until = None if left is None else time.monotonic() + left
            spec = FAMILIES["linear"].specs["equal"]

            def found(values: np.ndarray) -> np.ndarray | None:
                return spec.prepare(values).start_order(self.prior.log_odds, go_on=in_time(until))

            try:
                order = found(table.values)
            except RoundingError:
                order = found(table.standardised())
            assert order is not None
            if self.prior.required.any():
                order = parents_first(order, self.prior.required_parents())
            self.orders[key] = order
        return self.orders[key]

    def _graph_of_order(self, score: LocalScore, order: np.ndarray) -> np.ndarray:
        """The graph (d, d) of the best parents among the predecessors of every node.

        A node has as many parents as a fit would give it: with fewer a hub would keep variance that its parents
        explain, which unequal noise can call the hub's own noise and equal noise cannot.
        """
        graph = np.zeros((score.nodes, score.nodes), dtype=bool)
        chosen = parents_in_order(score, self.prior, order, required=self.prior.required, go_on=self._go_on)
        for node, parents in enumerate(chosen):
            graph[parents, node] = True
        return graph

    def _total(self, score: LocalScore, graph: np.ndarray) -> float:
        total = 0.0
        for node in range(len(graph)):
            self._check_time()
            total += score.score(node, np.flatnonzero(graph[:, node]).tolist())
        return total


def _best_parents(score: LocalScore, prior: EdgePrior, node: int, pool: np.ndarray) -> np.ndarray:
    return best_parents(score, prior, node, pool, required=prior.required)


def _best_variance(shared: Nuisance, graph: np.ndarray | dict[int, np.ndarray]) -> tuple[float, float]:
    """The best shared noise variance given a graph, and the log evidence with it integrated out (Laplace)."""
    if isinstance(graph, np.ndarray):
        graph = {node: np.flatnonzero(graph[:, node]) for node in range(len(graph))}

    def height(log_variance: float) -> float:
        score = shared.at(float(np.exp(log_variance)))
        local = sum(score.score(node, parents.tolist()) for node, parents in graph.items())
        return local + shared.log_prior(float(np.exp(log_variance))) + log_variance

    # Some node has no parents, so the noise is about the smallest variance, which is the unit.
    least = max(-6.0, float(np.log(shared.least())))
    found = minimize_scalar(lambda u: -height(u), bounds=(least, 6.0), method="bounded", options={"xatol": 1e-4})
    width = (0.5 * shared.cells * len(graph) / shared.nodes) ** -0.5
    return float(np.exp(found.x)), -float(found.fun) + float(np.log(width * np.sqrt(2 * np.pi)))
