"""Sampling of orders as an engine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from vcuda.infer.compilation import single_precision
from vcuda.infer.engine import Info, Plan, ScoredEngine
from vcuda.infer.orders.sampling import OrdersResult, run_orders
from vcuda.posterior.posterior import Outcome
from vcuda.posterior.sampled import SampledGraphs

SAMPLED_GRAPHS = 1000


class OrderSampling(ScoredEngine[OrdersResult | None]):
    """Search, anneal and sample in one step: between compiled blocks of sweeps the deadline is watched and what is
    done is stored."""

    stores_state = False

    @staticmethod
    def precision() -> AbstractContextManager[Any]:
        return single_precision()

    def init(self) -> OrdersResult | None:
        return None

    def advance(self, state: OrdersResult | None, plan: Plan) -> tuple[OrdersResult, Info]:
        problem, resources = self.problem, self.resources
        found = run_orders(
            self.spec,
            self.table.score,
            problem.edge_prior(),
            samples=SAMPLED_GRAPHS,
            seed=problem.seed,
            names=problem.table.names,
            progress=resources.clock.progress,
            deadline=resources.clock.deadline,
            checkpointer=resources.checkpointer,
            workers=resources.workers,
        )
        return found, Info(0, 1, 1, "orders sampled")

    def is_done(self, state: OrdersResult | None) -> bool:
        return state is not None

    def has_result(self, state: OrdersResult | None) -> bool:
        return state is not None

    def finish(self, state: OrdersResult | None, stopped: str | None) -> Outcome:
        assert state is not None
        edges, table = self.problem.edge_prior().hold(state.edge_probabilities), self.table
        graph_posterior = SampledGraphs(state.samples, edges, table.predictive(state.noise_variance))
        evidence = None if state.log_evidence is None else state.log_evidence + table.log_jacobian
        numbers = {"log_evidence": evidence, "noise_variance": state.noise_variance} | state.diagnostics
        return Outcome(graph_posterior, state.status, numbers, state.trace)
