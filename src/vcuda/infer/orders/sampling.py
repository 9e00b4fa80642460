"""Orders engine: the posterior over DAGs by tempered sampling of node orders, for any number of columns.

Given an order everything is in closed form: the parents of a node are independent of those of the others, and
sums over parent sets are table look-ups (``tables``). So only orders are sampled (``sweeps``): several
replicas, each a ladder of temperatures whose chains trade places. Edge probabilities are averages of their
exact values given the order, and a sampled DAG is a sampled order with parent sets drawn from the tables. The
only approximation beside the sampling is the choice of candidate parents (``candidates``); up to ``full``
columns all others are candidates and there is none.

With a prior over graphs instead of orders, what is sampled counts a graph once for each of its orders; so graphs are
drawn from the sampled orders and weighted by one over the number of their orders (``graph_weights``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import log
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from vcuda.errors import ConfigError
from vcuda.graphs import count_orders
from vcuda.infer.checkpoint import NO_CHECKPOINT, Checkpointer
from vcuda.infer.compilation import single_precision, use_compilation_cache
from vcuda.infer.devices import devices_of
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact.partitions import log_dag_weight
from vcuda.infer.orders.diagnostics import compare_replicas, differ, judge
from vcuda.infer.orders.graph_weights import GraphWeights, weigh_by_orders
from vcuda.infer.orders.ladders import BLOCK, Ladders, Record, SweepClock, annealing_schedule, log_evidence_estimates
from vcuda.infer.orders.search import Search
from vcuda.infer.orders.settings import Orders
from vcuda.infer.orders.tables import ParentTables
from vcuda.infer.progress import USER, ProgressCallback, silent
from vcuda.infer.workers import SERIAL, Workers
from vcuda.models.caching import cached
from vcuda.models.protocol import LocalScore, Nuisance
from vcuda.posterior.posterior import Status
from vcuda.posterior.samples import GraphSamples

LARGE = 500
# For each column, after the sampling: about 4.5 seconds at 2,000 columns.
SECONDS_TO_END = 2.3e-3
# Annealing that was too fast gives estimates of the log evidence that are too low by about half the square of their
# spread, so that beyond this many nats they say nothing.
MOST_SPREAD = 5.0
# With a prior over graphs: graphs drawn for each one that was asked for, since weights make some of them count little.
DRAWS_EACH = 5
# The weight of all DAGs under knowledge takes time 4^d; with more columns the evidence is left out.
MOST_NODES_SUMMED = 12


class OrdersResult(NamedTuple):
    """The posterior over DAGs by sampling orders.

    ``edge_probabilities`` (d, d) are averages of exact values given the order, or, with a prior over graphs, weighted
    shares of the samples. The graph of sample k belongs to the order in row k of ``orders`` (s, d), first node first.
    ``log_evidence`` (of the table in the user's units) is an estimate from annealing and the ladder, and None where its
    estimates by single chains spread by more than 5 nats, as with many columns and hubs. ``noise_variance`` is the
    value of a shared unknown noise variance, in units of the smallest column variance, and None for other scores.
    ``trace`` holds the log scores of the cold chains.
    """

    edge_probabilities: np.ndarray
    samples: GraphSamples
    orders: np.ndarray
    log_evidence: float | None
    noise_variance: float | None
    status: Status
    diagnostics: dict[str, Any]
    trace: dict[str, np.ndarray]


@single_precision()
def run_orders(
    spec: Orders,
    score: LocalScore,
    prior: EdgePrior,
    *,
    samples: int = 1000,
    seed: int = 0,
    names: Sequence[str] | None = None,
    start_order: np.ndarray | None = None,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
    checkpointer: Checkpointer = NO_CHECKPOINT,
    workers: Workers = SERIAL,
) -> OrdersResult:
    """Sample orders and DAGs from the posterior.

    Parameters
    ----------
    spec
        How long, how many chains, how many candidates.
    score
        A prepared local score. A shared unknown noise variance is set to its posterior value given the
        sampled graphs, again in every round; its posterior is narrow, with a relative width of sqrt(2 / (n
        d)).
    prior
        Of the edges, as in :func:`vcuda.infer.exact.exact_posterior`. Where forbidden edges or single log odds make the
        two directions of a pair differ, the prior of an order depends on it; that is kept for all pairs of candidates,
        and left out for pairs that are none, where it is below pi nats a pair.
    samples
        Number of DAGs to draw.
    seed
        The same seed gives the same result on the same machine and versions.
    names
        Names of the d columns; their indices unless given.
    start_order
        (d,) an order, first node first, to find candidates and to start half of the replicas from.
    progress
        Called between compiled blocks.
    deadline
        On the clock of ``time.monotonic``: the run then ends after the current block and returns what there
        is.
    journal
        What is known from before the fit was resumed, and is kept for the next time.
    workers
        Where tables are filled, sets of parents scored, and replicas run; they change no number.

    Notes
    -----
    An interrupt from the keyboard during the sampling does the same as the deadline.
    """
    use_compilation_cache()
    nodes = score.nodes
    if samples < 1:
        raise ConfigError(f"samples must be at least 1, got {samples}")
    if start_order is not None and not np.array_equal(np.sort(start_order), np.arange(nodes)):
        raise ConfigError(f"start_order must hold each of the columns 0 to {nodes - 1} once")
    score = cached(score)
    rng = np.random.default_rng(seed)
    betas = _inverse_temperatures(spec, score)
    annealing = spec.annealing or (120 if nodes >= LARGE else 60)
    clock = SweepClock(
        _with_time_to_end(deadline, nodes), progress, total=spec.sweeps + annealing + 4 * spec.round_sweeps + 60
    )
    ladders = Ladders(rng, replicas=spec.replicas, betas=betas, checkpointer=checkpointer, workers=workers)
    search = Search(spec, score, prior, ladders, clock, start_order, workers)
    final = Record()
    log_ratios = np.full((0, betas.size), np.nan)
    try:
        search.run()
        if clock.in_time():
            log_ratios = _anneal(search, annealing)
        elif not search.record.energies:
            _anneal(search, BLOCK)  # too late for anything but one block, which is better than nothing
        if clock.in_time():
            _sample_until_precise(search, final)
    except KeyboardInterrupt:
        if not (final.energies or search.record.energies):
            raise
        clock.stopped = USER
    record = final if final.energies else search.record
    return _summarise(search, record, log_ratios, samples, names)


def _with_time_to_end(deadline: float | None, nodes: int) -> float | None:
    """The deadline less the seconds that drawing graphs takes, but not less than nine tenths of the time left."""
    if deadline is None:
        return None
    return deadline - min(SECONDS_TO_END * nodes, 0.1 * max(deadline - time.monotonic(), 0.0))


def _sample_until_precise(search: Search, record: Record) -> None:
    """Run the ladders until the edges are known well enough, half as long again each time."""
    spec, ladders, nodes = search.spec, search.ladders, search.score.nodes
    usual, most = spec.usual_sweeps(nodes), spec.most_sweeps(nodes)
    done, more = 0, spec.sweeps
    while done < most and search.clock.in_time():
        more = min(more, most - done)
        schedule = np.broadcast_to(ladders.betas, (more, *ladders.shape))
        ladders.advance(schedule, record, swap=True, clock=search.clock, detail="sampling orders")
        done += more
        numbers = compare_replicas(record, ladders.fresh).numbers
        if numbers["standard_error"] <= spec.precision or (done >= usual and not differ(numbers)):
            return
        more = min(done // 2, usual - done) if done < usual else done // 2


def _inverse_temperatures(spec: Orders, score: LocalScore) -> np.ndarray:
    # Experiments tell only some of the equivalent graphs apart.
    equivalent = any(part.score_equivalent for part in score.parts)
    levels = spec.levels or (6 if equivalent else 4)
    hottest = spec.hottest or (0.2 if equivalent else 0.5)
    return np.geomspace(1.0, hottest, levels) if levels > 1 else np.ones(1)


def _anneal(search: Search, sweeps: int) -> np.ndarray:
    """Start the final chains, and return the log ratios of normalisers (f, l) that the f fresh replicas saw.

    Half of the replicas go on from what the search found, if there was one; the others forget it, so that
    their agreement says something.
    """
    ladders, record = search.ladders, Record()
    if search.order is not None and search.record.energies:
        ladders.place_at_random(ladders.cold_orders())
    else:
        ladders.place_at_random(() if search.order is None else [search.order])
    start = ladders.energies()
    schedule = annealing_schedule(ladders, sweeps)
    ladders.advance(schedule, record, swap=False, clock=search.clock, detail="annealing")
    search.record = record
    energies = np.concatenate([start[None], *record.energies])[:sweeps]
    if len(energies) < sweeps:
        return np.full((0, ladders.shape[1]), np.nan)
    steps = np.diff(schedule, axis=0, prepend=0.0)
    return np.sum(energies * steps, axis=0)[ladders.fresh]


def _summarise(
    search: Search, record: Record, log_ratios: np.ndarray, samples: int, names: Sequence[str] | None
) -> OrdersResult:
    ladders, tables, rng = search.ladders, record.tables, search.ladders.rng
    assert tables is not None
    search.clock.tell(0, "comparing replicas")
    agreement = compare_replicas(record, ladders.fresh)
    energies = np.concatenate(record.energies[agreement.first :])
    estimates = log_evidence_estimates(log_ratios, energies[:, agreement.kept], ladders.betas)
    constant = tables.log_constant + search.score.log_jacobian + _log_share_of_orders(tables, search.prior)
    if search.shared is not None:
        constant += _log_noise_volume(search.shared, search.variance)
    spread = float(np.std(estimates)) if estimates.size else None
    usable = spread is not None and spread <= MOST_SPREAD and _share_is_exact(tables, search.prior)
    evidence = float(logsumexp(estimates) - np.log(estimates.size)) + constant if usable else None
    totals = np.array(search.totals)
    fixed, required = int(sum(parents.size for parents in tables.fixed)), int(search.prior.required.sum())
    numbers = {
        **agreement.numbers,
        "candidate_rounds": search.rounds,
        "candidates_converged": search.converged,
        "candidates_mean": float(np.mean([free.size for free in tables.candidates])),
        "fixed_parents": fixed,
        # Under equal noise a direction is worth hundreds of nats; elsewhere a fixed one can be wrong.
        "doubtful_parents": 0 if search.score.tells_direction else fixed - required,
        **search.missing(),
        "second_opinion_above": search.above_sampled(),
        "log_score_fell": float(np.max(np.maximum.accumulate(totals) - totals)) if totals.size else 0.0,
        "log_evidence_spread": spread,
        "devices": devices_of(ladders.mesh),
    }
    states = np.concatenate(record.cold[agreement.first :])[:, agreement.kept].reshape(-1, tables.nodes)
    search.clock.tell(0, "drawing graphs")
    labels = tuple(names) if names is not None else tuple(str(j) for j in range(tables.nodes))
    draws = samples if search.prior.over == "orders" else DRAWS_EACH * samples
    drawn, orders = _draw(tables, states, draws, rng, labels)
    edges = tables.dense(agreement.edges)
    if search.prior.over == "graphs":
        weighted = weigh_by_orders(drawn)
        drawn = weighted.samples
        edges = drawn.edge_probabilities()
        numbers["effective_graphs"] = weighted.effective
        evidence = _log_evidence_over_graphs(evidence, weighted, search.prior)
    status = judge(numbers, stopped=search.clock.stopped)
    return OrdersResult(
        edge_probabilities=edges,
        samples=drawn,
        orders=orders,
        log_evidence=evidence,
        noise_variance=search.variance if search.shared is not None else None,
        status=status,
        diagnostics=numbers,
        trace={"log_score": np.concatenate(record.energies)[..., 0] + tables.log_constant},
    )


def _draw(
    tables: ParentTables, states: np.ndarray, samples: int, rng: np.random.Generator, names: Sequence[str]
) -> tuple[GraphSamples, np.ndarray]:
    """Draw graphs given the sampled priorities (n, d), and return them with their orders (s, d)."""
    # Evenly over all kept states, replicas mixed; every state once before any comes twice.
    repeats = -(-samples // len(states))
    picked = np.floor(np.arange(samples) * (repeats * len(states) / samples)).astype(np.int64) % len(states)
    priorities = states[rng.permutation(picked)]
    which, sources, targets = tables.draw(rng, priorities)
    counts = np.bincount(which, minlength=samples)
    return GraphSamples.from_counts(names, counts, sources, targets), np.argsort(priorities, axis=1, kind="stable")


def _log_evidence_over_graphs(log_evidence: float | None, weighted: GraphWeights, prior: EdgePrior) -> float | None:
    """Turn an evidence that is a mean over orders into one that counts each graph once; None where the weight of all
    DAGs takes too long to sum."""
    if log_evidence is None or not (prior.treats_edges_alike or prior.nodes <= MOST_NODES_SUMMED):
        return None
    log_orders = log(count_orders(prior.required))
    return log_evidence + log_orders + weighted.log_mean - log_dag_weight(prior)


def _log_noise_volume(shared: Nuisance, variance: float) -> float:
    """Return the log prior mass under the posterior of a shared noise variance, a Gaussian in its
    logarithm."""
    width = (0.5 * shared.cells) ** -0.5
    return shared.log_prior(variance) + float(np.log(variance * width * np.sqrt(2 * np.pi)))


def _log_share_of_orders(tables: ParentTables, prior: EdgePrior) -> float:
    """Return the log share of orders in which fixed parents come first, among those that obey what is
    required.

    A node comes after its k fixed ancestors in 1 / (k + 1) of the orders; the product over nodes is exact
    when the fixed edges form trees that run together, and an approximation otherwise.
    """

    def log_share(parents: Sequence[np.ndarray]) -> float:
        return -sum(float(np.log1p(len(_reach(parents, node)))) for node in range(len(parents)))

    required = [np.flatnonzero(prior.required[:, node]) for node in range(tables.nodes)]
    return log_share(tables.fixed) - log_share(required)


def _share_is_exact(tables: ParentTables, prior: EdgePrior) -> bool:
    """Whether the share of orders is more than a guess: nothing is fixed beyond what is required, or no node is a
    fixed parent of two others."""
    sources = np.concatenate(tables.fixed)
    return sources.size == int(prior.required.sum()) or np.unique(sources).size == sources.size


def _reach(parents: Sequence[np.ndarray], node: int) -> set[int]:
    """Return all ancestors of a node."""
    found: set[int] = set()
    waiting = [node]
    while waiting:
        for parent in parents[waiting.pop()]:
            if int(parent) not in found:
                found.add(int(parent))
                waiting.append(int(parent))
    return found
