"""Which model do the data support: linear or nonlinear, equal or unequal noise, and which columns by their logarithm?

Every score gives the probability of the same table in the user's units, so their evidences are compared in one
currency, nats. The evidence is exact for few columns. For more of them it is replaced by the joint probability of the
table and the best graph that a greedy search finds for the model, and for very many by that of a random part of the
columns given one order: what both leave out, the number of graphs that are about as good, is tens of nats where the
models differ by hundreds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.infer.climbing import climb
from vcuda.infer.edge_prior import EdgePrior, edge_prior
from vcuda.infer.exact import TimeLimitError, exact_posterior
from vcuda.infer.orders.candidates import choose_parents
from vcuda.infer.orders.top_down import top_down_order
from vcuda.infer.progress import Progress, ProgressCallback, silent
from vcuda.infer.scored import ScoredTable, rescaled
from vcuda.models.additive import AdditiveBasis
from vcuda.models.base import Noise
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.scores import BGe, EqualNoise, LocalScore, ScoreSpec, SharedNoise
from vcuda.posterior.laws import Scaling

EXACT_COLUMNS = 12
CLIMBED_COLUMNS = 200
# Columns whose local scores stand for all, where there are more than CLIMBED_COLUMNS; the same for every model, since
# columns differ from each other by far more than models do.
SAMPLED_COLUMNS = 60
# Possible causes of such a column that nonlinear models are asked about.
POOLED = 30
# Products of features take 8 (6 d)² bytes: .3 GB at this number of columns.
NONLINEAR_COLUMNS = 1000
# A Gaussian process factorises hundreds of n by n matrices: 5 seconds at ten columns and 1,000 rows, and by n³ more.
PROCESS_ROWS = 2000
CLIMBS = 3
MOST_PARENTS = 10
# A logarithm is taken when it wins by this: odds of 150 to 1. Where both fit alike, a column stays as it is.
LOGARITHM_MARGIN = 5.0
# Below this, odds of 20 to 1, the sentence says that the data hardly tell.
CLEAR_LEAD = 3.0
SCALE_ROUNDS = 4

Method = Literal["exact", "best graph", "one order"]


class Candidate(NamedTuple):
    """A model that may be chosen, by the names that people give."""

    model: str
    noise: Noise
    spec: EqualNoise | ScoreSpec

    @property
    def words(self) -> str:
        return {"linear": f"linear, {self.noise} noise", "additive": "nonlinear, additive"}.get(
            self.model, "nonlinear, Gaussian process"
        )


CANDIDATES = (
    Candidate("linear", "equal", EqualNoise()),
    Candidate("linear", "unequal", BGe()),
    Candidate("additive", "unequal", AdditiveBasis()),
    Candidate("gp", "unequal", GaussianProcess()),
)


class Measured(NamedTuple):
    """A model of the table on some scale, with its evidence; the score where all of it was needed."""

    candidate: Candidate
    table: Dataset
    units: Scaling
    score: LocalScore | SharedNoise | None
    log_evidence: float

    @property
    def words(self) -> str:
        return self.candidate.words + (", logarithms" if self.units.logarithm.any() else "")


@dataclass(frozen=True, eq=False)
class Choice:
    """The model that the data support best, ready to be fitted.

    ``log_evidence`` maps all models that were compared, in words, to nats, by ``method``; ``sentences`` tell the result
    to people.
    """

    candidate: Candidate
    scored: ScoredTable
    log_evidence: dict[str, float]
    method: Method
    sentences: tuple[str, ...]

    def told(self) -> dict[str, Any]:
        """What is kept in the run's config."""
        return {"method": self.method, "log_evidence": self.log_evidence, "sentences": list(self.sentences)}


def choose_model(
    data: Dataset,
    *,
    edge_probability: float,
    models: Sequence[str] = ("linear", "additive", "gp"),
    noise: Noise | None = None,
    logarithm: np.ndarray | None = None,
    standardise: bool = False,
    seed: int = 0,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
) -> Choice:
    """Compare models of the table by their evidence.

    Parameters
    ----------
    data
        The table in the user's units.
    edge_probability
        Prior probability of an edge that the order allows.
    models, noise
        What may be chosen.
    logarithm
        (d,) columns that are taken by their logarithm; decided by the evidence unless given.
    standardise
        Whether all columns are standardised first.
    seed
        For the greedy searches and the choice of columns.
    progress
        Told which model is being looked at.
    deadline
        On the clock of ``time.monotonic``: models that are not compared by then are left out, and the sentences say so.
    """
    prior = edge_prior(data.d, edge_probability)
    method: Method = "exact" if data.d <= EXACT_COLUMNS else "best graph" if data.d <= CLIMBED_COLUMNS else "one order"
    raw = np.zeros(data.d, dtype=bool)
    scales, gains = [raw if logarithm is None else logarithm], np.full(data.d, np.nan)
    if logarithm is None:
        progress(Progress(0, 1, "comparing the scales of columns"))
        chosen, gains = choose_logarithms(data, prior, np.random.default_rng(seed))
        if chosen.any():
            scales = [chosen, raw]
    if data.d > NONLINEAR_COLUMNS:
        models = [model for model in models if model == "linear"]
    elif data.n > PROCESS_ROWS:
        models = [model for model in models if model != "gp"]
    candidates = [one for one in CANDIDATES if one.model in models and noise in (None, one.noise)]
    if not candidates:
        raise ConfigError(f"no model to choose from has {noise} noise; name the model, for example model='linear'")
    evidence = _Evidence(method, prior, np.random.default_rng(seed), deadline)
    measured: list[Measured] = []
    late: list[str] = []
    for candidate in candidates:
        for mask in _scales_worth_trying(candidate, scales, measured):
            if measured and deadline is not None and time.monotonic() > deadline:
                late.append(candidate.words)
                continue
            progress(Progress(0, 1, f"comparing models: {candidate.words}"))
            table, units = rescaled(data, logarithm=mask, standardise=standardise)
            try:
                # There is always a first model to fall back on.
                total, score = evidence.measure(candidate, table, may_stop=bool(measured))
            except TimeLimitError:
                late.append(candidate.words)
                continue
            measured.append(Measured(candidate, table, units, score, total + evidence.log_jacobian(data, units)))
    best = max(measured, key=lambda one: one.log_evidence)
    score = best.score or best.candidate.spec.prepare(best.table.values)
    sentences = _sentences(data, best, measured, gains, method, late)
    compared = {one.words: one.log_evidence for one in measured}
    return Choice(best.candidate, ScoredTable(best.table, score, best.units), compared, method, tuple(sentences))


def _scales_worth_trying(
    candidate: Candidate, scales: Sequence[np.ndarray], measured: Sequence[Measured]
) -> Sequence[np.ndarray]:
    """All scales; for the Gaussian process, which takes longest, the one that the best of the others has."""
    if candidate.model == "gp" and measured:
        return [max(measured, key=lambda one: one.log_evidence).units.logarithm]
    return scales


class _Evidence:
    """The evidence of models of tables with the same columns, by one method, in the units of the table."""

    def __init__(self, method: Method, prior: EdgePrior, rng: np.random.Generator, deadline: float | None) -> None:
        self.method, self.prior, self.rng, self.deadline = method, prior, rng, deadline
        nodes = len(prior.required)
        self.columns = rng.permutation(nodes)[:SAMPLED_COLUMNS] if method == "one order" else np.arange(nodes)
        self.orders: dict[bytes, np.ndarray] = {}
        self.graphs: list[np.ndarray] = []

    def log_jacobian(self, data: Dataset, units: Scaling) -> float:
        """What the density of the table gains by going from its own units to the user's."""
        each = -data.n * np.log(units.scale)
        each[units.logarithm] -= np.log(data.values[:, units.logarithm]).sum(axis=0)
        return float(each[self.columns].mean() * data.d)

    def measure(
        self, candidate: Candidate, table: Dataset, *, may_stop: bool
    ) -> tuple[float, LocalScore | SharedNoise | None]:
        """The evidence in the units of the table, and the score if it was prepared for all columns."""
        if self.method == "one order":
            return self._by_one_order(candidate, table) * table.d / self.columns.size, None
        score = candidate.spec.prepare(table.values)
        if self.method == "best graph":
            return self._by_best_graph(candidate, score, table), score
        deadline = self.deadline if may_stop else None
        found = exact_posterior(score, log_odds=self.prior.log_odds, samples=1, rng=self.rng, deadline=deadline)
        return found.log_evidence, score

    def _by_best_graph(self, candidate: Candidate, score: LocalScore | SharedNoise, table: Dataset) -> float:
        order = self._order(table)
        if isinstance(score, SharedNoise):
            graph = _graph_of_order(score.at(1.0), self.prior, order)
            variance, _ = _best_variance(score, graph)
            graph = _graph_of_order(score.at(variance), self.prior, order)
            return _best_variance(score, graph)[1] + self._log_odds(graph) + score.log_jacobian
        graphs = list(self.graphs)
        if candidate.model != "gp":
            graphs.append(_graph_of_order(score, self.prior, order))
            climbs = CLIMBS if candidate.model == "linear" else 1
            graphs += [climb(score, self.prior, self.rng, max_parents=MOST_PARENTS)[1] for _ in range(climbs)]
        totals = [_total(score, graph) + self._log_odds(graph) for graph in graphs]
        best = int(np.argmax(totals))
        # A Gaussian process is asked about the graphs of the additive model: a search of its own would take minutes.
        if candidate.model == "additive":
            self.graphs = [graphs[best]]
        return totals[best] + score.log_jacobian

    def _by_one_order(self, candidate: Candidate, table: Dataset) -> float:
        rank = np.argsort(self._order(table))
        if candidate.model != "linear":
            return sum(self._nonlinear(candidate, table, int(node), rank) for node in self.columns)
        score = candidate.spec.prepare(table.values)
        if isinstance(score, SharedNoise):
            parents = {int(node): self._parents(score.at(1.0), int(node), rank) for node in self.columns}
            known: LocalScore = score.at(_best_variance(score, parents)[0])
            total = self.columns.size * score.log_jacobian / score.nodes
        else:
            known, total = score, -table.n * float(np.log(table.scale[self.columns]).sum())
        for node in self.columns.tolist():
            chosen = self._parents(known, node, rank)
            total += known.score(node, chosen.tolist()) + float(self.prior.log_odds[chosen, node].sum())
        return total

    def _nonlinear(self, candidate: Candidate, table: Dataset, node: int, rank: np.ndarray) -> float:
        """The score of one column with the causes that additive functions choose from the most promising ones."""
        before = np.flatnonzero(rank < rank[node])
        target, others = table.values[:, node], table.values[:, before]
        centred = others - others.mean(axis=0)
        promise = np.zeros(before.size)
        for feature in (centred, centred**2):
            spread = np.maximum(feature.std(axis=0) * target.std(), np.finfo(float).tiny)
            promise = np.maximum(promise, np.abs((target - target.mean()) @ feature) / (table.n * spread))
        pool = before[np.argsort(-promise, kind="stable")[:POOLED]]
        columns = np.append(pool, node)
        screen = AdditiveBasis().prepare(table.values[:, columns])
        prior = EdgePrior(*(part[np.ix_(columns, columns)] for part in self.prior))
        usable = np.arange(columns.size) < pool.size
        chosen = choose_parents(screen, prior, pool.size, usable, tolerance=0.0, most=MOST_PARENTS)[0]
        small = candidate.spec.prepare(table.values[:, np.append(pool[chosen], node)])
        assert not isinstance(small, SharedNoise)
        local = small.score(chosen.size, list(range(chosen.size)))
        return local + float(prior.log_odds[chosen, -1].sum()) - table.n * float(np.log(table.scale[node]))

    def _parents(self, score: LocalScore, node: int, rank: np.ndarray) -> np.ndarray:
        return choose_parents(score, self.prior, node, rank < rank[node], tolerance=0.0, most=MOST_PARENTS)[0]

    def _order(self, table: Dataset) -> np.ndarray:
        """An order that equal noise would have; found once for each table."""
        key = table.mean.tobytes()
        if key not in self.orders:
            shared = EqualNoise().prepare(table.values)
            assert isinstance(shared, SharedNoise)
            self.orders[key] = top_down_order(shared.at(1.0), self.prior)
        return self.orders[key]

    def _log_odds(self, graph: np.ndarray) -> float:
        return float(self.prior.log_odds[graph].sum())


def _graph_of_order(score: LocalScore, prior: EdgePrior, order: np.ndarray) -> np.ndarray:
    """The graph (d, d) of the best parents among the predecessors of every node, as far as greed goes."""
    rank = np.argsort(order)
    graph = np.zeros((score.nodes, score.nodes), dtype=bool)
    for node in range(score.nodes):
        chosen, _ = choose_parents(score, prior, node, rank < rank[node], tolerance=0.0, most=MOST_PARENTS)
        graph[chosen, node] = True
    return graph


def _total(score: LocalScore, graph: np.ndarray) -> float:
    return sum(score.score(node, np.flatnonzero(graph[:, node]).tolist()) for node in range(len(graph)))


def _best_variance(shared: SharedNoise, graph: np.ndarray | dict[int, np.ndarray]) -> tuple[float, float]:
    """The best shared noise variance given a graph, and the log evidence with it integrated out (Laplace)."""
    if isinstance(graph, np.ndarray):
        graph = {node: np.flatnonzero(graph[:, node]) for node in range(len(graph))}

    def height(log_variance: float) -> float:
        score = shared.at(float(np.exp(log_variance)))
        local = sum(score.score(node, parents.tolist()) for node, parents in graph.items())
        return local + shared.log_prior(float(np.exp(log_variance))) + log_variance

    # Some node has no parents, so the noise is about the smallest variance, which is the unit.
    found = minimize_scalar(lambda u: -height(u), bounds=(-6.0, 6.0), method="bounded", options={"xatol": 1e-4})
    width = (0.5 * shared.rows * len(graph)) ** -0.5
    return float(np.exp(found.x)), -float(found.fun) + float(np.log(width * np.sqrt(2 * np.pi)))


def choose_logarithms(data: Dataset, prior: EdgePrior, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns (d,) that are better explained by their logarithm, and how much each gains (d,) in nats.

    Under linear functions with unequal noise: at first each column alone, then given its parents and children in the
    best graph found, again until nothing changes.
    """
    positive = (data.values > 0).all(axis=0)
    gains = np.full(data.d, -np.inf)
    chosen = np.zeros(data.d, dtype=bool)
    if not positive.any():
        return chosen, gains
    logs = np.log(np.where(positive, data.values, 1.0))
    # A density gains the mean of -log x a row by going from x to its logarithm.
    jacobian = np.where(positive, -logs.sum(axis=0), 0.0)

    def local(node: int, parents: np.ndarray, mask: np.ndarray) -> float:
        columns = np.append(parents, node)
        values = np.where(mask[columns], logs[:, columns], data.values[:, columns])
        score = BGe().prepare(values)
        own = -data.n * float(np.log(np.std(values[:, -1]))) + (jacobian[node] if mask[node] else 0.0)
        return score.score(len(parents), list(range(len(parents)))) + own

    def flip_gain(node: int, graph: np.ndarray, mask: np.ndarray) -> float:
        """What the logarithm of this column gains over the column itself, the others being as they are."""
        told = [mask.copy(), mask.copy()]
        told[0][node], told[1][node] = False, True
        touched = [node, *np.flatnonzero(graph[node])]
        before, after = (sum(local(j, np.flatnonzero(graph[:, j]), m) for j in touched) for m in told)
        return float(after - before)

    graph = np.zeros((data.d, data.d), dtype=bool)
    for _ in range(SCALE_ROUNDS):
        before = chosen.copy()
        for node in np.flatnonzero(positive):
            gains[node] = flip_gain(int(node), graph, chosen)
            chosen[node] = gains[node] > LOGARITHM_MARGIN
        if np.array_equal(before, chosen) or data.d > CLIMBED_COLUMNS:
            break
        score = BGe().prepare(np.where(chosen, logs, data.values))
        graph = climb(score, prior, rng, max_parents=MOST_PARENTS)[1]
    return chosen, gains


def _sentences(
    data: Dataset,
    best: Measured,
    measured: Sequence[Measured],
    gains: np.ndarray,
    method: Method,
    late: Sequence[str],
) -> list[str]:
    """What was found, in plain words."""
    told = []
    linear = [one for one in measured if one.candidate.model == "linear"]
    curved = [one for one in measured if one.candidate.model != "linear"]

    def compared(winner: str, winners: Sequence[Measured], loser: str, losers: Sequence[Measured]) -> str:
        lead = max(one.log_evidence for one in winners) - max(one.log_evidence for one in losers)
        if lead < CLEAR_LEAD:
            return f"The data hardly tell {winner} from {loser}: they favour the former by {lead:.1f} nats."
        return f"The data favour {winner} by {lead:,.0f} nats over {loser}."

    if linear and curved:
        straight, bent = "linear mechanisms", "nonlinear ones"
        if best.candidate.model == "linear":
            told.append(compared(straight, linear, bent, curved))
        else:
            kind = "a smooth function of all causes" if best.candidate.model == "gp" else "a sum of smooth functions"
            told.append(compared(f"nonlinear mechanisms ({kind})", curved, "linear ones", linear))
    if best.candidate.model == "linear":
        equal = [one for one in linear if one.candidate.noise == "equal"]
        unequal = [one for one in linear if one.candidate.noise == "unequal"]
        if equal and unequal:
            shared, own = "one noise variance for all columns", "a noise variance for each column"
            if best.candidate.noise == "equal":
                told.append(compared(shared, equal, own, unequal))
            else:
                told.append(compared(own, unequal, shared, equal))
    taken = np.flatnonzero(best.units.logarithm)
    if taken.size and np.isfinite(gains[taken]).all():
        strongest = taken[np.argsort(-gains[taken], kind="stable")]
        listed = ", ".join(f"{data.names[j]} by {gains[j]:,.0f}" for j in strongest[:5])
        more = f" and {taken.size - 5} other columns" if taken.size > 5 else ""
        told.append(f"The data favour the logarithm of {listed} nats{more}.")
    if method == "best graph":
        told.append(
            f"{data.d} columns are too many for the exact evidence: models were compared by the best graph found for "
            "each."
        )
    elif method == "one order":
        told.append(
            f"{data.d:,} columns are too many for the exact evidence: models were compared on a random part of the "
            "columns, given one order."
        )
    if not curved and data.d > NONLINEAR_COLUMNS:
        told.append(f"Nonlinear models are not considered above {NONLINEAR_COLUMNS:,} columns.")
    elif best.candidate.model == "additive" and data.n > PROCESS_ROWS:
        told.append(f"A Gaussian process is not considered above {PROCESS_ROWS:,} rows; ask for it by model gp.")
    if late:
        told.append(f"Not compared within the time limit: {', '.join(dict.fromkeys(late))}.")
    return told
