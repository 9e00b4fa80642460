"""How strong a hidden common cause would have to be to explain an effect away.

In a graph in which a is upstream of b, the effect of a is what a regression of b on a and the parents Z of a shows. If
a hidden cause of a and b is left out of that regression, and it explains at most a share r of what Z leaves of a, and
at most r of what a and Z leave of b, then the sign of the effect holds as long as r is below the robustness value

    RV = (sqrt(f^4 + 4 f^2) - f^2) / 2,    f^2 = rho^2 / (1 - rho^2),

where rho is the partial correlation of a and b given Z (Cinelli and Hazlett, 2020). Graphs differ in Z and in whether
a is upstream at all, so that the answer is a curve and no single number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri
from scipy.stats import rankdata

from vcuda.arguments import check_draws, seed_of, two_positions
from vcuda.data.categorical import codes_by_label
from vcuda.data.kinds import Kind
from vcuda.data.reading import new_rows
from vcuda.errors import ConfigError
from vcuda.graphs import ancestor_sets
from vcuda.models.prediction import Predictive
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.samples import GraphSamples
from vcuda.summaries.lags import refuse_lags
from vcuda.summaries.relations import leads_to

DRAWS = 1000
# The curve is given at these strengths.
STRENGTHS = np.linspace(0.0, 1.0, 101)
# What is said in words holds with this probability.
SURE = 0.9
# Measured causes of the cause are named if they are that in at least this share of the graphs.
LEAST_SHARE = 0.1
# Relative to the variance of a column: below this nothing is left of it but rounding.
ROUNDING = 1e-9


def robustness_value(correlation: np.ndarray) -> np.ndarray:
    """The share of both columns that a hidden cause must explain to turn a partial correlation to zero."""
    return _equal_strength(correlation**2 / np.maximum(1 - correlation**2, ROUNDING))


def _equal_strength(squared: np.ndarray) -> np.ndarray:
    """The share r of two columns for which r^2 / (1 - r) is a squared bias f^2."""
    return 0.5 * (np.sqrt(squared**2 + 4 * squared) - squared)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """How strong a hidden common cause of ``cause`` and ``outcome`` would have to be to explain the effect away.

    Parameters
    ----------
    draws
        ``(s,)`` the robustness value in each drawn graph, 0 where the cause is not upstream of the outcome.
    probability
        That the cause is upstream of the outcome at all, if there are no hidden causes.
    covariates
        The measured causes of the cause, the strongest first: ``covariate``; the ``probability`` that it is one, in
        graphs with an effect; ``with_cause`` and ``with_outcome``, the shares that it explains of what the other causes
        leave; and its ``strength``, the share of both that a hidden cause with the same bias would explain.
    scale
        In which units shares are taken.
    """

    cause: str
    outcome: str
    draws: np.ndarray
    probability: float
    covariates: pd.DataFrame
    scale: str

    @property
    def curve(self) -> pd.DataFrame:
        """``probability`` that the cause is upstream of the outcome and stays so against each ``strength``."""
        return pd.DataFrame({"strength": STRENGTHS, "probability": [self.holds(r) for r in STRENGTHS.tolist()]})

    def holds(self, strength: float) -> float:
        """The probability that the effect holds against hidden causes that explain such a share of both columns."""
        if not 0 <= strength <= 1:
            raise ConfigError(f"strength is a share between 0 and 1, not {strength}")
        return float(np.mean(self.draws > strength))

    def holds_up_to(self, probability: float = SURE) -> float:
        """The largest strength against which the effect holds with this probability; 0 if there is none."""
        if not 0 < probability < 1:
            raise ConfigError(f"probability must lie between 0 and 1, not {probability}")
        # The value that at least this share of the draws reaches.
        return float(np.quantile(self.draws, 1 - probability, method="lower"))

    @property
    def yardstick(self) -> str | None:
        """The strongest measured cause of the cause; None where there is none."""
        return None if self.covariates.empty else str(self.covariates.covariate.iloc[0])

    @property
    def line(self) -> str:
        """In one sentence, for a place beside the effect."""
        strength = self.holds_up_to()
        if strength > 0:
            said = (
                f"A hidden common cause that explains less than {_percent(strength)} of what is left of both "
                f"{self.cause} and {self.outcome} cannot explain this effect away (probability {SURE:.2f})"
            )
            return f"{said}{self._comparison()}."
        if self.probability < SURE:
            return (
                f"That {self.cause} is upstream of {self.outcome} has a probability of {self.probability:.2f}, so no "
                "strength of a hidden cause can be named."
            )
        return "A weak hidden common cause could explain this effect away."

    def _comparison(self) -> str:
        if self.covariates.empty:
            return ""
        first = self.covariates.iloc[0]
        return f"; the strongest measured cause of {self.cause}, {first.covariate}, is worth {_percent(first.strength)}"

    @property
    def sentence(self) -> str:
        """The answer in words, and the units in which it holds."""
        return f"{self.line} Shares are {self.scale}."

    def __repr__(self) -> str:
        return f"<Sensitivity: {self.sentence}>"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def sensitivity(
    posterior: Posterior, cause: str, outcome: str, *, data: Any = None, draws: int = DRAWS, seed: int = 0
) -> Sensitivity:
    """The curve of one effect against the strength of a hidden common cause.

    Parameters
    ----------
    data
        The table that was fitted, where the run does not keep what is needed of it.
    draws
        Graphs drawn from the posterior. Each has its partial correlation drawn as well, by Fisher's transformation: few
        rows make the curve less steep.
    """
    check_draws(draws)
    refuse_lags(posterior, "sensitivity")
    first, last = two_positions(posterior.names, cause, outcome)
    rng = np.random.default_rng([seed_of(seed), 3])
    values, found, scale = [], _Covariates(), ""
    for predictive, samples in _drawn(posterior, rng, draws):
        products = _products(posterior, predictive, last, data)
        scale = products.scale
        _check_single(products, posterior, (first, last))
        for parents in _adjusted_for(samples, first, last):
            if parents is None:
                values.append(0.0)
                continue
            correlation = products.partial_correlation(first, last, parents)
            correlation = _drawn_again(correlation, products.rows, len(parents), rng)
            values.append(float(robustness_value(correlation)))
            found.note(products, first, last, parents)
    return Sensitivity(
        cause=cause,
        outcome=outcome,
        draws=np.array(values),
        probability=found.graphs / draws,
        covariates=found.table(posterior.names),
        scale=scale,
    )


def holding_strengths(posterior: Posterior, *, draws: int = DRAWS, seed: int = 0) -> np.ndarray | None:
    """Of all effects ``(d, d)`` of a linear model, the largest strength of a hidden cause against which each holds with
    a probability of .9; None where the posterior does not keep the products of its columns."""
    check_draws(draws)
    nodes, number = len(posterior.names), 0
    rng = np.random.default_rng([seed_of(seed), 3])
    values = np.zeros((draws, nodes, nodes), dtype=np.float32)
    for predictive, samples in _drawn(posterior, rng, draws):
        kept = [None if predictive is None else predictive.column_products(outcome) for outcome in range(nodes)]
        # With experiments, outcomes have rows of their own.
        by_rows = {id(one[1]): _of_products(*one) for one in kept if one is not None}
        if any(one is None for one in kept):
            return None
        groups = {key: [j for j, one in enumerate(kept) if one is not None and id(one[1]) == key] for key in by_rows}
        for k in range(len(samples)):
            sources, targets = samples.edges(k)
            sets = ancestor_sets(sources, targets, nodes)
            for cause in np.unique(sources).tolist():
                parents = np.sort(sources[targets == cause]).astype(np.int64)
                for key, outcomes in groups.items():
                    below = [j for j in outcomes if sets[j] >> cause & 1]
                    if below:
                        found = by_rows[key].partial_correlations(cause, parents)[below]
                        drawn = _drawn_again(found, by_rows[key].rows, len(parents), rng)
                        values[number, cause, below] = robustness_value(drawn)
            number += 1
    return np.asarray(np.quantile(values, 1 - SURE, axis=0, method="lower"), dtype=np.float64)


def line_beside(posterior: Posterior, cause: str, outcome: str) -> str:
    """What stands beside an effect: how strong a hidden cause would have to be; empty where that is not known."""
    try:
        return sensitivity(posterior, cause, outcome).line
    except ConfigError:
        return ""


def _drawn(
    posterior: Posterior, rng: np.random.Generator, draws: int
) -> Iterator[tuple[Predictive | None, GraphSamples]]:
    """Graphs, with what they predict by: each imputed table has products of its own, and the same share of graphs."""
    members = getattr(posterior.graph_posterior, "members", (posterior.graph_posterior,))
    for member, part in zip(members, np.array_split(np.arange(draws), len(members)), strict=True):
        if part.size:
            yield getattr(member, "predictive", None), member.sample(rng, posterior.names, part.size)


def _adjusted_for(samples: GraphSamples, cause: int, outcome: int) -> Iterator[np.ndarray | None]:
    """The parents of the cause in each graph; None where it is not upstream of the outcome."""
    upstream = leads_to(samples, outcome)[cause]
    for k in range(len(samples)):
        sources, targets = samples.edges(k)
        yield np.sort(sources[targets == cause]).astype(np.int64) if upstream[k] else None


def _drawn_again(correlation: np.ndarray, rows: int, given: int, rng: np.random.Generator) -> np.ndarray:
    """Partial correlations as the rows leave them open: normal on Fisher's scale."""
    spread = 1 / np.sqrt(max(rows - given - 3, 1))
    centre = np.arctanh(np.clip(correlation, -1 + ROUNDING, 1 - ROUNDING))
    return np.asarray(np.tanh(centre + spread * rng.standard_normal(np.shape(correlation))))


class _Products:
    """Products of standardised columns, each of one feature or of several (labels), and what follows from them."""

    def __init__(self, gram: np.ndarray, features: list[np.ndarray], rows: int, scale: str) -> None:
        self.gram, self.features, self.rows, self.scale = gram, features, rows, scale
        self._rows_left: dict[tuple[int, bytes], np.ndarray] = {}

    def _left(self, column: int, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What some columns leave of the products of a column with all features ``(f,)``, and of all variances."""
        (own,) = self.features[column]
        where = np.concatenate([self.features[k] for k in given]) if len(given) else np.zeros(0, dtype=np.int64)
        solved = np.linalg.solve(self.gram[np.ix_(where, where)] + ROUNDING * np.eye(where.size), self.gram[where])
        variances = np.diag(self.gram) - np.einsum("kf,kf->f", self.gram[where], solved)
        return self.gram[own] - self.gram[own, where] @ solved, np.maximum(variances, ROUNDING)

    def partial_correlations(self, column: int, given: np.ndarray) -> np.ndarray:
        """Of one column with all features ``(f,)``."""
        key = (column, given.tobytes())
        if key not in self._rows_left:
            (own,) = self.features[column]
            products, variances = self._left(column, given)
            self._rows_left[key] = np.clip(products / np.sqrt(variances[own] * variances), -1, 1)
        return self._rows_left[key]

    def partial_correlation(self, cause: int, outcome: int, given: np.ndarray) -> np.ndarray:
        (place,) = self.features[outcome]
        return np.asarray(self.partial_correlations(cause, given)[place])

    def explained(self, column: int, by: int, given: list[int]) -> float:
        """The share of what some columns leave of a column that another one explains: its partial R squared."""
        (own,) = self.features[column]
        before, after = (self._left(column, np.array(which))[1][own] for which in (given, [*given, by]))
        return 0.0 if before <= ROUNDING else float(np.clip(1 - after / before, 0.0, 1 - ROUNDING))


def _check_single(products: _Products, posterior: Posterior, columns: Sequence[int]) -> None:
    for column in columns:
        if len(products.features[column]) > 1:
            raise ConfigError(
                f"{posterior.names[column]!r} has more than two labels without an order, and no share of its variance "
                "can be given; sensitivity is there for numbers, counts, ordered labels and yes/no"
            )


def _of_products(rows: int, gram: np.ndarray) -> _Products:
    units = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    singles = [np.array([k]) for k in range(len(gram))]
    return _Products(gram / np.outer(units, units), singles, rows, "of the variance of the columns as they were fitted")


def _products(posterior: Posterior, predictive: Predictive | None, outcome: int, data: Any) -> _Products:
    """The products of the fitted columns: as the model keeps them, or of the rows that it keeps or that are given."""
    if data is not None:
        known = posterior.categories or (None,) * len(posterior.names)
        return _of_rows(codes_by_label(new_rows(data, posterior.names), known), _kinds(posterior))
    kept = None if predictive is None else predictive.column_products(outcome)
    if kept is not None:
        return _of_products(*kept)
    table = None if predictive is None else predictive.fitted_table(posterior.names)
    if table is None:
        raise ConfigError(
            "this run does not keep the rows that it was fitted to: give the table, posterior.sensitivity(cause, "
            "outcome, data=table) or --data TABLE"
        )
    values = table.values if table.interventions is None else table.values[~table.interventions[:, outcome]]
    return _of_rows(values, _kinds(posterior))


def _kinds(posterior: Posterior) -> Sequence[Kind]:
    if posterior.kinds is not None:
        return posterior.kinds
    labels = posterior.categories or (None,) * len(posterior.names)
    return ["number" if known is None else "label" for known in labels]


def _of_rows(values: np.ndarray, kinds: Sequence[Kind]) -> _Products:
    """Columns by their ranks, as normal quantiles; labels by one indicator for each label but the first."""
    blocks = []
    for column, kind in zip(values.T, kinds, strict=True):
        levels = np.unique(column)
        if kind == "label" and len(levels) > 2:
            blocks.append((column[:, None] == levels[1:]).astype(np.float64))
        else:
            blocks.append(ndtri((rankdata(column) - 0.5) / len(column))[:, None])
    ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
    features = [np.arange(start, stop) for start, stop in pairwise(ends.tolist())]
    joined = np.concatenate(blocks, axis=1)
    joined = joined - joined.mean(axis=0)
    joined /= np.maximum(np.linalg.norm(joined, axis=0), np.finfo(float).tiny)
    return _Products(joined.T @ joined, features, len(values), "of the variance of the columns on the scale of ranks")


class _Covariates:
    """The measured causes of a cause, over graphs: how strong each is with cause and outcome."""

    def __init__(self) -> None:
        self.graphs = 0
        self.sums: dict[int, np.ndarray] = {}
        self.known: dict[tuple[int, bytes, int], np.ndarray] = {}

    def note(self, products: _Products, cause: int, outcome: int, parents: np.ndarray) -> None:
        self.graphs += 1
        for parent in parents.tolist():
            key = (id(products), parents.tobytes(), parent)
            if key not in self.known:
                others = [other for other in parents.tolist() if other != parent]
                with_cause = products.explained(cause, parent, others)
                with_outcome = products.explained(outcome, parent, [*others, cause])
                bias = np.array(with_outcome * with_cause / (1 - with_cause))
                self.known[key] = np.array([1.0, with_cause, with_outcome, float(_equal_strength(bias))])
            self.sums[parent] = self.sums.get(parent, np.zeros(4)) + self.known[key]

    def table(self, names: Sequence[str]) -> pd.DataFrame:
        lines = [
            (names[parent], total[0] / self.graphs, *(total[1:] / total[0]).tolist())
            for parent, total in self.sums.items()
            if total[0] >= LEAST_SHARE * self.graphs
        ]
        columns = ["covariate", "probability", "with_cause", "with_outcome", "strength"]
        found = pd.DataFrame(lines, columns=columns)
        return found.sort_values("strength", ascending=False, kind="stable", ignore_index=True)
