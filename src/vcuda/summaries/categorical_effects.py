"""What happens to one category when another is set: P(outcome = label | do(cause = label)), graph and tables uncertain.

Every draw is a whole causal model: a DAG, and for each node a distribution over its labels for every combination of
its parents' labels. The arrows into the cause are cut, the cause is set to each of its labels, and the probabilities of
the outcome's labels are summed over all that lies between: exactly, by eliminating one variable after the other, or by
simulation where the sums have too many terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from vcuda.arguments import check_draws, seed_of, two_positions
from vcuda.errors import ConfigError
from vcuda.graphs import topological_order_edges
from vcuda.models.categorical import CategoricalPredictive, draw_distributions
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.status import ASSUMED
from vcuda.summaries.display import answer_html
from vcuda.summaries.sensitivity import line_beside
from vcuda.summaries.simulated_effects import POINTS, Change, Measure

DRAWS = 1000
# The largest table that eliminating a variable may make; beyond it the model is simulated with so many rows.
LARGEST_FACTOR, SIMULATED_ROWS = 200_000, 4096


class Difference(NamedTuple):
    """By how much setting the cause changes the probability of a label: posterior mean and 90 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class CategoryEffect:
    """The total causal effect of one column of categories on another.

    Parameters
    ----------
    cause_labels, outcome_labels
        The labels of the two columns.
    draws
        ``(s, a, b)``: in each draw the probability of each label of the outcome when the cause is set to each of its
        labels.
    probability_zero
        That there is no directed path from cause to outcome, and so exactly no effect.
    caveat
        What no table can show and the effect assumes; where the model checks warn, that they do.
    hidden_cause
        How strong a hidden common cause would have to be to explain the effect away; empty where that is not known.
    """

    cause: str
    outcome: str
    cause_labels: tuple[str, ...]
    outcome_labels: tuple[str, ...]
    draws: np.ndarray
    probability_zero: float
    caveat: str = ASSUMED
    hidden_cause: str = ""

    @property
    def table(self) -> pd.DataFrame:
        """P(outcome = label | do(cause = label)) for all pairs of labels: posterior mean, 90 % from low to high."""
        low, high = np.quantile(self.draws, [0.05, 0.95], axis=0)
        return pd.DataFrame(
            {
                "cause": np.repeat(np.array(self.cause_labels, dtype=object), len(self.outcome_labels)),
                "outcome": np.tile(np.array(self.outcome_labels, dtype=object), len(self.cause_labels)),
                "probability": self.draws.mean(axis=0).reshape(-1),
                "low": low.reshape(-1),
                "high": high.reshape(-1),
            }
        )

    @property
    def risk_difference(self) -> Difference | None:
        """For two columns of two labels: P(second label | do(second)) - P(second label | do(first)); otherwise None."""
        if len(self.cause_labels) != 2 or len(self.outcome_labels) != 2:
            return None
        return self.difference(*self.cause_labels, self.outcome_labels[1])

    def difference(self, before: str, after: str, outcome: str) -> Difference:
        """By how much P(outcome = label) changes when the cause is set to ``after`` and not to ``before``."""
        first, last = (_place(self.cause_labels, label, self.cause) for label in (before, after))
        changes = self.draws[:, last] - self.draws[:, first]
        own = changes[:, _place(self.outcome_labels, outcome, self.outcome)]
        low, high = np.quantile(own, [0.05, 0.95])
        return Difference(float(own.mean()), float(low), float(high))

    def contrast(self) -> Change:
        """The largest change from one label of the cause to a later one, in percentage points.

        Of an outcome of two labels it is about the second one.
        """
        means = self.draws.mean(axis=0)
        changes = np.abs(means[None, :, :] - means[:, None, :])
        changes[np.tril_indices(len(means))] = -1.0
        if len(self.outcome_labels) == 2:
            changes[..., 0] = -1.0
        first, last, label = (int(k) for k in np.unravel_index(np.argmax(np.round(changes, 9)), changes.shape))
        own = 100 * self.draws[:, :, label]
        measure = Measure(f"the probability that {self.outcome} is {self.outcome_labels[label]}", POINTS)
        values = (float(own[:, first].mean()), float(own[:, last].mean()))
        return Change(measure, self.cause_labels[first], self.cause_labels[last], *values, own[:, last] - own[:, first])

    @property
    def answer(self) -> str:
        """The change in words, without what it assumes: of more than two labels, those between which most changes."""
        means = self.draws.mean(axis=0)
        if self.risk_difference is not None:
            first, last, label = 0, 1, 1
        else:
            changes = means[None, :, :] - means[:, None, :]
            # A rise is reported rather than the same fall.
            first, last, label = (int(k) for k in np.unravel_index(np.argmax(np.round(changes, 9)), changes.shape))
        before, after, outcome_label = self.cause_labels[first], self.cause_labels[last], self.outcome_labels[label]
        found = self.difference(before, after, outcome_label)
        return (
            f"Setting {self.cause} to {after} and not to {before} changes the probability that {self.outcome} is "
            f"{outcome_label} by {found.mean:+.3f} (90 % interval {found.low:+.3f} to {found.high:+.3f}), from "
            f"{means[first, label]:.3f} to {means[last, label]:.3f}; with probability {self.probability_zero:.2f} not "
            "at all."
        )

    @property
    def sentence(self) -> str:
        """The answer in words, and what it assumes."""
        return " ".join(filter(None, (self.answer, self.caveat, self.hidden_cause)))

    def __repr__(self) -> str:
        return f"<CategoryEffect: {self.sentence}>"

    def _repr_html_(self) -> str:
        return answer_html([self.answer], self.table, caveat=self.caveat)


def _place(labels: Sequence[str], label: str, column: str) -> int:
    if label not in labels:
        raise ConfigError(f"{column!r} has no label {label!r}; it has {', '.join(map(repr, labels))}")
    return list(labels).index(label)


def category_effect(
    posterior: Posterior, cause: str, outcome: str, *, draws: int | None = None, seed: int = 0
) -> CategoryEffect:
    """The posterior of the total causal effect of one column of categories on another.

    ``draws`` says how many causal models are drawn, 1,000 by default.
    """
    first, last = two_positions(posterior.names, cause, outcome)
    number = DRAWS if draws is None else draws
    check_draws(number)
    predictive = getattr(posterior.graph_posterior, "predictive", None)
    if not isinstance(predictive, CategoricalPredictive):
        raise ConfigError("this posterior has no tables of probabilities for categories")
    rng = np.random.default_rng([seed_of(seed), 1])
    graphs = posterior.graph_posterior.sample(rng, posterior.names, number)
    known: dict[tuple[int, bytes], np.ndarray] = {}
    found, apart = [], 0
    for k in range(len(graphs)):
        sources, targets = graphs.edges(k)
        upstream = _Upstream.of(sources, targets, last, cut=first, nodes=graphs.nodes)
        tables = {}
        for node, parents in upstream.parents.items():
            key = (node, parents.tobytes())
            if key not in known:
                known[key] = predictive.concentration(node, parents)
            tables[node] = draw_distributions(rng, known[key])
        found.append(upstream.response(tables, predictive.levels, rng))
        apart += not upstream.connected
    return CategoryEffect(
        cause=cause,
        outcome=outcome,
        cause_labels=predictive.labels[first],
        outcome_labels=predictive.labels[last],
        draws=np.stack(found),
        probability_zero=apart / number,
        caveat=posterior.caveat,
        hidden_cause=line_beside(posterior, cause, outcome),
    )


class _Upstream(NamedTuple):
    """All nodes above the outcome when the cause is cut off from its parents, each after its parents, itself last."""

    cause: int
    outcome: int
    parents: dict[int, np.ndarray]  # of all nodes but the cause
    connected: bool

    @classmethod
    def of(cls, sources: np.ndarray, targets: np.ndarray, outcome: int, *, cut: int, nodes: int) -> _Upstream:
        kept = targets != cut
        sources, targets = sources[kept].astype(np.int64), targets[kept].astype(np.int64)
        above, waiting = {outcome}, [outcome]
        while waiting:
            for parent in sources[targets == waiting.pop()].tolist():
                if parent not in above:
                    above.add(parent)
                    waiting.append(parent)
        order = [int(node) for node in topological_order_edges(sources, targets, nodes) if node in above]
        parents = {node: np.sort(sources[targets == node]) for node in order if node != cut}
        return cls(cut, outcome, parents, cut in above)

    def response(self, tables: dict[int, np.ndarray], levels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """P(outcome | do(cause)), ``(a, b)``, given a table of each node: an axis for each parent, its own last."""
        summed = _eliminated(self, tables, levels)
        if summed is None:
            summed = self._simulated(tables, int(levels[self.cause]), rng)
        return np.broadcast_to(summed, (int(levels[self.cause]), int(levels[self.outcome])))

    def _simulated(self, tables: dict[int, np.ndarray], settings: int, rng: np.random.Generator) -> np.ndarray:
        """The same from rows that are drawn node by node, with the same chances for every setting of the cause."""
        codes = {self.cause: np.repeat(np.arange(settings), SIMULATED_ROWS)}
        for node, parents in self.parents.items():
            shape = (settings * SIMULATED_ROWS, tables[node].shape[-1])
            shares = np.broadcast_to(tables[node][tuple(codes[parent] for parent in parents.tolist())], shape)
            if node == self.outcome:
                return np.asarray(shares.reshape(settings, SIMULATED_ROWS, -1).mean(axis=1))
            chances = np.tile(rng.random(SIMULATED_ROWS), settings)
            above = np.cumsum(shares, axis=1)[:, :-1] < chances[:, None]
            codes[node] = above.sum(axis=1)
        raise AssertionError("the outcome comes last")


def _eliminated(upstream: _Upstream, tables: dict[int, np.ndarray], levels: np.ndarray) -> np.ndarray | None:
    """Sum the product of all tables over every variable but cause and outcome; None if a table grew too large.

    The variable that makes the smallest table goes first. Returns ``(a, b)``, or ``(1, b)`` where the cause is not
    among the variables.
    """
    factors = [((*parents.tolist(), node), tables[node]) for node, parents in upstream.parents.items()]
    left = set(upstream.parents) - {upstream.outcome}
    while left:
        reach = {node: {k for scope, _ in factors if node in scope for k in scope} for node in left}
        cells = {node: float(np.prod([levels[k] for k in reach[node]], dtype=np.float64)) for node in left}
        node = min(left, key=lambda k: (cells[k], k))
        if cells[node] > LARGEST_FACTOR:
            return None
        touched = [factor for factor in factors if node in factor[0]]
        factors = [factor for factor in factors if node not in factor[0]]
        factors.append(_product(touched, tuple(sorted(reach[node] - {node}))))
        left.remove(node)
    kept = (upstream.cause, upstream.outcome) if upstream.connected else (upstream.outcome,)
    return _product(factors, kept)[1].reshape(-1, int(levels[upstream.outcome]))


def _product(
    factors: Sequence[tuple[tuple[int, ...], np.ndarray]], kept: tuple[int, ...]
) -> tuple[tuple[int, ...], np.ndarray]:
    """The product of some tables, summed over all variables but those that are kept."""
    places = {node: place for place, node in enumerate(sorted({node for scope, _ in factors for node in scope}))}
    operands: list[object] = []
    for scope, table in factors:
        operands += [table, [places[node] for node in scope]]
    return kept, np.einsum(*operands, [places[node] for node in kept])  # type: ignore[call-overload]
