"""Which causes made a row unusual: Shapley values of the noise of everything upstream.

For every drawn causal model the noise of a row is reconstructed. Let S be columns that keep the noise that they had in
the row, while all others draw theirs anew; v(S) is the logarithm of the probability that the outcome is then at least
as far from its centre as in the row. With no column fixed, -v is how surprising the row is, in nats; with all columns
fixed v is 0. The Shapley value of a column is what fixing its noise adds to v, averaged over the orders in which
columns may be fixed: values sum up to the surprise (Budhathoki, Minorics, Blöbaum and Janzing, ICML 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import log_ndtr

from vcuda.arguments import check_draws, position, seed_of
from vcuda.posterior.mechanisms import CausalModel
from vcuda.posterior.posterior import Posterior
from vcuda.summaries.single_rows import TAIL, row_values
from vcuda.summaries.upstream import Upstream

# Causal models that are drawn: of linear ones probabilities have a formula, others are simulated.
LINEAR_DRAWS, SIMULATED_DRAWS = 200, 40
# Rows that one set of fixed columns is simulated with.
SIMULATED_ROWS = 500
# So many columns have all of their sets computed; of more, orders are drawn.
ALL_SETS, ALL_SETS_SIMULATED = 12, 5
ORDERS, ORDERS_SIMULATED = 300, 24
NOT_KNOWN = (
    "The noise of columns with steps (counts, yes/no, ordered, labels) is not known from the row: one that fits was "
    "drawn for every model."
)


@dataclass(frozen=True, eq=False)
class Attribution:
    """Which causes made a row unusual in one column.

    ``table`` has a line for each column, the largest contribution first: ``contribution`` (the mean over causal
    models, in nats), ``low`` and ``high`` (90 % of the models), ``share`` of what makes the row unusual, and
    ``upstream``, the probability that the column has a way to the outcome. A negative contribution made the row less
    unusual, and has no share. ``surprise`` ``(s,)`` is that of the row in each model.
    """

    outcome: str
    table: pd.DataFrame
    surprise: np.ndarray
    notes: tuple[str, ...]
    caveat: str

    @property
    def sentence(self) -> str:
        """The answer in words."""
        total = float(self.surprise.mean())
        rare = 100 * float(np.exp(-total))
        odd = f"{self.outcome} of this row is as far from its usual place in {rare:.2g} % of rows"
        if total < np.log(10):
            return f"{odd}: nothing to explain. {self.caveat}"
        shares = [
            f"{name} ({100 * share:.0f} %)"
            for name, share in zip(self.table.index, self.table["share"].tolist(), strict=True)
            if share >= 0.1
        ]
        return f"{odd}. What is unusual comes from {', '.join(shares) or 'many columns together'}. {self.caveat}"

    def __repr__(self) -> str:
        return f"<Attribution: {self.sentence}>"


def attribute(posterior: Posterior, row: Any, outcome: str, *, draws: int | None = None, seed: int = 0) -> Attribution:
    """Which causes made a row unusual in a column: what the noise of each adds to the surprise.

    Parameters
    ----------
    row
        A mapping, a pandas Series or a table of one row, with a value for every column.
    outcome
        The column whose value is to be explained.
    draws
        How many causal models: by default 200 linear ones, and 40 of other kinds.
    """
    if draws is not None:
        check_draws(draws)
    names, target = posterior.names, position(posterior.names, outcome)
    observed = row_values(posterior, row)
    rng = np.random.default_rng([seed_of(seed), 6])
    values, above, unknown = list[np.ndarray](), np.zeros(len(names)), set[int]()
    number = draws or LINEAR_DRAWS
    for count, model in enumerate(posterior.graph_posterior.models(rng, names, number)):
        found, upstream = contributions(model, observed, target, rng)
        values.append(found)
        above[upstream.order] += 1
        unknown |= {node for node, own in upstream.mechanisms.items() if not own.noise_is_identified}
        if draws is None and not upstream.linear and count + 1 >= SIMULATED_DRAWS:
            break
    every = np.array(values)
    surprise, mean = every.sum(axis=1), every.mean(axis=0)
    low, high = np.quantile(every, [TAIL, 1 - TAIL], axis=0)
    order = np.argsort(-mean, kind="stable")
    table = pd.DataFrame(
        {
            "contribution": mean[order],
            "low": low[order],
            "high": high[order],
            "share": _shares(mean[order]),
            "upstream": above[order] / len(every),
        },
        index=pd.Index([names[k] for k in order], name="column"),
    )
    notes = (NOT_KNOWN,) if unknown else ()
    return Attribution(outcome, table, surprise, notes, posterior.caveat)


def _shares(contributions: np.ndarray) -> np.ndarray:
    """Of the positive contributions, which sum up to one."""
    positive = np.maximum(contributions, 0.0)
    return positive / max(float(positive.sum()), 1e-12)


def contributions(
    model: CausalModel, observed: np.ndarray, target: int, rng: np.random.Generator
) -> tuple[np.ndarray, Upstream]:
    """The Shapley values ``(d,)`` under one model, zero for columns that are not upstream, and what is upstream."""
    upstream = Upstream.of(model, target)
    row = model.scaling.apply(observed[None])[0]
    noise = np.array(
        [
            upstream.mechanisms[node].noise_of(row[None, upstream.parents[node]], row[[node]], rng)[0]
            for node in upstream.order
        ]
    )
    count = noise.size
    if upstream.linear:
        reach = upstream.reach(None)
        weights = np.array([reach[node] * upstream.mechanisms[node].noise for node in upstream.order])
        shares = _shapley(lambda fixed: _linear(fixed, weights, noise), count, rng, ALL_SETS, ORDERS)
    else:
        surprise = _simulated(upstream, row[target], noise, rng)
        shares = _shapley(surprise, count, rng, ALL_SETS_SIMULATED, ORDERS_SIMULATED)
    found = np.zeros(observed.size)
    found[upstream.order] = shares
    return found, upstream


def _linear(fixed: np.ndarray, weights: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """v ``(m,)`` of sets of fixed columns ``(m, k)``: the outcome is a sum of independent normal terms."""
    place = fixed @ (weights * noise)
    spread = np.sqrt(~fixed @ weights**2)
    away = abs(float(weights @ noise))
    with np.errstate(divide="ignore", invalid="ignore"):
        tails = np.logaddexp(log_ndtr((place - away) / spread), log_ndtr((-place - away) / spread))
    return np.where(spread > 0, np.minimum(tails, 0.0), 0.0)


def _simulated(
    upstream: Upstream, value: float, noise: np.ndarray, rng: np.random.Generator
) -> Callable[[np.ndarray], np.ndarray]:
    """v of sets of fixed columns, from simulated rows that are the same for all sets.

    Of an outcome that is a label or yes/no: the probability of the value itself.
    """
    last = upstream.mechanisms[upstream.order[-1]]
    drawn = np.stack([upstream.mechanisms[node].any_noise(rng, SIMULATED_ROWS) for node in upstream.order], axis=1)
    is_label = getattr(last, "levels", None) is not None
    centre = float(np.median(_outcomes(upstream, drawn)))

    def surprise(fixed: np.ndarray) -> np.ndarray:
        rows = np.where(fixed[:, None, :], noise, drawn[None]).reshape(-1, noise.size)
        outcome = _outcomes(upstream, rows).reshape(len(fixed), SIMULATED_ROWS)
        # Rounding must not make the row itself less far than it is.
        far = abs(value - centre) * (1 - 1e-9) - 1e-12
        hits = (outcome == value) if is_label else np.abs(outcome - centre) >= far
        found = np.log((hits.sum(axis=1) + 0.5) / (SIMULATED_ROWS + 1))
        return np.where(fixed.all(axis=1), 0.0, found)

    return surprise


def _outcomes(upstream: Upstream, noise: np.ndarray) -> np.ndarray:
    """The last node ``(m,)`` when all nodes have the noise of a row ``(m, k)``."""
    found: dict[int, np.ndarray] = {}
    for k, node in enumerate(upstream.order):
        parents = upstream.parents[node].tolist()
        inputs = np.stack([found[parent] for parent in parents], axis=1) if parents else np.empty((len(noise), 0))
        found[node] = upstream.mechanisms[node].with_noise(inputs, noise[:, k])
    return found[upstream.order[-1]]


def _shapley(
    surprise: Callable[[np.ndarray], np.ndarray], count: int, rng: np.random.Generator, all_sets: int, orders: int
) -> np.ndarray:
    """The Shapley values ``(k,)`` of a function of sets ``(m, k)``: exact, or the mean over some orders."""
    if count <= all_sets:
        numbers = np.arange(1 << count)
        sets = (numbers[:, None] >> np.arange(count) & 1).astype(bool)
        heights, sizes = surprise(sets), sets.sum(axis=1)
        found = np.zeros(count)
        for k in range(count):
            without = numbers[~sets[:, k]]
            weight = np.array([1.0 / (count * comb(count - 1, int(size))) for size in sizes[without]])
            found[k] = weight @ (heights[without | (1 << k)] - heights[without])
        return found
    found = np.zeros(count)
    for _ in range(orders):
        order = rng.permutation(count)
        sets = np.zeros((count + 1, count), dtype=bool)
        for place, k in enumerate(order):
            sets[place + 1 :, k] = True
        found[order] += np.diff(surprise(sets)) / orders
    return found
