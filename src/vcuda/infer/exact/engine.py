"""Exact posterior by dynamic programming over sets of nodes, for up to about 24 columns.

Prior: every order of the nodes is equally likely, 1 / d!, and given the order each pair (i before j) is an
edge i -> j with probability pi, so that p(graph | order) = pi^e (1 - pi)^(d(d-1)/2 - e). A graph counts once
for every order that it is compatible with, as in the paper.

With score_j(U) = log p(x_j | x_U), V the nodes that come before j, and sums over the subsets U of V,

    H_j(V) = log sum_U exp(score_j(U)) prod_{i in U} pi_ij prod_{i in V - U} (1 - pi_ij)
    L(V)   = log sum over j in V of exp(L(V - j) + H_j(V - j))            orders of V, which come first
    R(V)   = log sum over j not in V of exp(H_j(V) + R(V + j))            orders of the rest, after V

and P(V are the nodes before j) = exp(L(V) + H_j(V) + R(V + j) - L(all)). Everything stays in the log domain:
scores of 1,000 rows span thousands of nats, and sums of their exponentials underflow to quiet nonsense. Time
O(d² 2^d), memory three times d 2^(d-1) float64 numbers, or two when the scores must be computed again for the
draws.

With a prior over graphs instead of orders each DAG counts once; ``partitions`` has those sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from vcuda.errors import ConfigError
from vcuda.infer.edge_prior import EdgePrior, Over
from vcuda.infer.engine import Info, Plan, ScoredEngine
from vcuda.infer.exact.drawing import DrawnOrders, ancestor_shares, sample_graphs, sample_orders
from vcuda.infer.exact.lattice import (
    SCORING,
    build_lattice,
    edge_marginals,
    log_order_count,
)
from vcuda.infer.exact.limits import check_size, until
from vcuda.infer.exact.noise_grid import noise_grid
from vcuda.infer.exact.partitions import (
    build_partitions,
    log_dag_weight,
    partition_edge_marginals,
    sample_partitions,
)
from vcuda.infer.prefetch import Prefetch
from vcuda.infer.progress import Progress, ProgressCallback, silent
from vcuda.infer.workers import SERIAL, Workers
from vcuda.models.caching import cached
from vcuda.models.protocol import LocalScore
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples


@dataclass(frozen=True)
class Exact:
    """Dynamic programming over all sets of variables: no approximation, for up to about 20 of them.

    Parameters
    ----------
    samples
        How many independent DAGs to draw and keep.
    memory_gb
        What needs more is refused before it starts.
    """

    samples: int = 1000
    memory_gb: float = 4.0

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError(f"samples must be at least 1, not {self.samples}")
        if not self.memory_gb > 0:
            raise ConfigError(f"memory_gb must be positive, not {self.memory_gb}")


class ExactResult(NamedTuple):
    """The posterior over DAGs, without approximation.

    ``edge_probabilities`` (d, d) and ``log_evidence`` (of the table in the user's units) are exact.
    ``samples`` are independent draws; the graph of sample k belongs to the order in row k of ``orders`` (s,
    d), first node first. ``ancestor_probabilities`` (d, d), that there is a directed path from i to j, are
    shares of the samples. ``noise_variance`` is the posterior mean of a shared unknown noise variance, in
    units of the smallest column variance, and None for other scores.
    """

    edge_probabilities: np.ndarray
    ancestor_probabilities: np.ndarray
    log_evidence: float
    samples: GraphSamples
    orders: np.ndarray
    noise_variance: float | None


class _Sums(NamedTuple):
    """How graphs are summed over: what builds the sums, their edge probabilities, what draws from them, and the log sum
    of the prior alone."""

    build: Callable[..., Any]
    edge_marginals: Callable[..., np.ndarray]
    draw: Callable[..., DrawnOrders]
    log_prior_total: Callable[[EdgePrior], float]


SUMS: dict[Over, _Sums] = {
    "orders": _Sums(build_lattice, edge_marginals, sample_orders, lambda prior: log_order_count(prior.required)),
    "graphs": _Sums(build_partitions, partition_edge_marginals, sample_partitions, log_dag_weight),
}


def exact_posterior(
    score: LocalScore,
    prior: EdgePrior,
    *,
    samples: int = 1000,
    rng: np.random.Generator,
    names: Sequence[str] | None = None,
    memory_gb: float = 4.0,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
    workers: Workers = SERIAL,
) -> ExactResult:
    """Compute edge probabilities and evidence exactly, and draw independent orders and DAGs.

    Parameters
    ----------
    score
        A prepared local score. A shared unknown noise variance is averaged over by the trapezoid rule on its
        logarithm.
    prior
        pi_ij of every edge that the order allows. What is not allowed never occurs, what is required is in every graph:
        their pi_ij are 0 and 1, and orders stay equally likely, among those that point every required edge forward.
        With a prior over graphs each DAG that obeys has the product of the odds of its edges.
    samples
        Number of DAGs to draw.
    rng
        Source of all randomness; only what comes from samples depends on it.
    names
        Names of the d columns; their indices unless given.
    memory_gb
        Problems that need more are refused.
    progress
        Called between the steps.
    deadline
        On the clock of ``time.monotonic``. There is no partial answer, so that a run which comes to it is
        refused with a ConfigError, at the next step; :func:`seconds_needed` says so beforehand.
    workers
        Where sets of parents are scored that take long; they change no number.
    """
    nodes, score = score.nodes, cached(score)
    keep = check_size(score, samples, memory_gb, over=prior.over)
    progress = until(deadline, progress)
    ways = SUMS[prior.over]
    log_prior_total = ways.log_prior_total(prior)
    labels = tuple(names) if names is not None else tuple(str(j) for j in range(nodes))
    if score.nuisance is not None:
        lattices, log_weights, variances = noise_grid(
            score.nuisance, lambda known: ways.build(known, prior, progress, keep=keep)
        )
    else:
        Prefetch(workers, on_progress=lambda: progress(Progress(0, nodes, SCORING))).full_tables(score, prior)
        lattices = [ways.build(score, prior, progress, keep=keep)]
        log_weights, variances = np.array([lattices[0].log_total]), np.ones(1)
    log_total = float(logsumexp(log_weights))
    shares = np.exp(log_weights - log_total)
    counts = rng.multinomial(samples, shares / shares.sum())
    edges = np.zeros((nodes, nodes))
    graphs = np.zeros((samples, nodes, nodes), dtype=bool)
    orders = np.zeros((samples, nodes), dtype=np.int64)
    # Draws under different noise variances are mixed, so that the first few samples are as good as any.
    places = np.split(rng.permutation(samples), np.cumsum(counts)[:-1])
    for lattice, share, place in zip(lattices, shares, places, strict=True):
        edges += share * ways.edge_marginals(lattice, prior, progress)
        drawn = ways.draw(lattice, place.size, rng)
        orders[place] = drawn.orders
        graphs[place] = sample_graphs(lattice.parents, prior, drawn, rng, progress)
    return ExactResult(
        # Shares of the noise grid add up to one only as far as rounding goes.
        edge_probabilities=np.minimum(edges, 1.0),
        ancestor_probabilities=ancestor_shares(graphs),
        log_evidence=log_total - log_prior_total + score.log_jacobian,
        samples=GraphSamples.from_dense(labels, graphs),
        orders=orders,
        noise_variance=float(shares @ variances) if score.nuisance is not None else None,
    )


class Counting(ScoredEngine[ExactResult | None]):
    """Count every graph in one step: there is no partial answer, so a time limit that comes before is an error."""

    stores_state = False

    def init(self) -> ExactResult | None:
        return None

    def advance(self, state: ExactResult | None, plan: Plan) -> tuple[ExactResult, Info]:
        problem, clock = self.problem, self.resources.clock
        found = exact_posterior(
            self.table.score,
            problem.edge_prior(),
            samples=self.spec.samples,
            rng=np.random.default_rng(problem.seed),
            names=problem.table.names,
            memory_gb=self.spec.memory_gb,
            progress=clock.progress,
            deadline=clock.deadline,
            workers=self.resources.workers,
        )
        return found, Info(0, 1, 1, "all graphs counted")

    def is_done(self, state: ExactResult | None) -> bool:
        return state is not None

    def has_result(self, state: ExactResult | None) -> bool:
        return state is not None

    def finish(self, state: ExactResult | None, stopped: str | None) -> Outcome:
        assert state is not None
        status = Status(
            "ok",
            "Exact: every graph was counted, so the uncertainty is due to the data, not to the computation.",
        )
        edges, table = self.problem.edge_prior().hold(state.edge_probabilities), self.table
        graph_posterior = SampledGraphs(state.samples, edges, table.predictive(state.noise_variance))
        numbers = {"log_evidence": state.log_evidence + table.log_jacobian, "noise_variance": state.noise_variance}
        return Outcome(graph_posterior, status, numbers, {})
