"""Random parts of the rows, and the mean of what is found in them.

No model is true of a table that people have. A fit to all rows is then too sure: what a wrong model reads from
thousands of rows is beyond doubt to it. What only some parts of the rows support is not beyond doubt, and the mean says
so. Where a model is true the parts agree, and little is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from vcuda.data.dataset import Dataset
from vcuda.fitting.targets import mean_targets
from vcuda.infer.checkpoint import NO_CHECKPOINT
from vcuda.posterior.posterior import Outcome, Status, as_sentence
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples

if TYPE_CHECKING:
    from vcuda.fitting.routes import Request

Info = dict[str, Any]

# Parts have two thirds of the rows of a small table. No model is quite true, so that what can be learned from more rows
# is bounded: the odds of a part (rows in it to rows that are not) fall to half at so many rows.
LARGEST_SHARE = 2 / 3
ENOUGH_ROWS = 3000
# Parts of a small table are not smaller than this, if it has as many rows.
LEAST_ROWS = 100
# Where the rows break the model in a way that no model describes, a part has this share: what hidden causes, selection
# and mixed populations feign in all rows, small parts do not agree on.
CAREFUL_SHARE = 1 / 5
# Of rows that depend on each other, so few may be left.
FEWEST_ROWS = 20
# Up to this share of the searches may be unsound before the mean of all is.
FEW_UNSOUND = 0.2
# Rows further apart than a tenth of a table are not compared.
LAGS_LOOKED_AT = 10
# A value more than APART robust standard deviations from the median of its column stands apart, if at most two thirds
# as many lie between NEAR_TAIL and there: noise with heavy tails thins out, wrong entries do not.
APART, NEAR_TAIL, THINNING = 4.5, 3.0, 1.5
# They are at most this share of a column: more are a part of its shape.
MOST_APART = 0.05
# So many parts with all rows to choose from are followed by as many without those that have a value apart.
ALTERNATION = 6


class Careful(NamedTuple):
    """How to be careful: rows of a part are at least ``distance`` apart, as far as they depend on their neighbours."""

    distance: int = 1


def share_of(rows: int) -> float:
    """The share of the rows that a part has."""
    odds = LARGEST_SHARE / (1 - LARGEST_SHARE) / (1 + rows / ENOUGH_ROWS)
    return odds / (1 + odds)


def parts_of(table: Dataset, count: int, seed: int, careful: Careful | None = None) -> list[np.ndarray]:
    """Random parts of the rows; all rows where none are asked for."""
    if count == 0:
        return [np.arange(table.n)]
    rng = np.random.default_rng([seed, 11])
    if table.environment is not None:
        share = share_of(table.n) if careful is None else CAREFUL_SHARE
        return [_from_each(table.environment, share, rng) for _ in range(count)]
    if careful is None:
        size = min(table.n, max(round(share_of(table.n) * table.n), LEAST_ROWS))
        every, others = np.arange(table.n), np.flatnonzero(~rows_apart(table))
        others = others if others.size > table.n / 2 else every
        chosen_from = [others if number // ALTERNATION % 2 else every for number in range(count)]
        return [np.sort(rng.choice(rows, min(size, rows.size), replace=False)) for rows in chosen_from]
    found = []
    for _ in range(count):
        distance = min(careful.distance, max(1, table.n // FEWEST_ROWS))
        rows = np.arange(int(rng.integers(distance)), table.n, distance)
        size = min(rows.size, max(round(CAREFUL_SHARE * table.n), LEAST_ROWS))
        found.append(np.sort(rng.choice(rows, size, replace=False)))
    return found


def _from_each(environment: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A share of the rows of each environment, and enough of a small one to be fitted."""
    found = []
    for own in range(int(environment.max()) + 1):
        rows = np.flatnonzero(environment == own)
        size = min(rows.size, max(round(share * rows.size), LEAST_ROWS // 4))
        found.append(rng.choice(rows, size, replace=False))
    return np.sort(np.concatenate(found))


def rows_apart(table: Dataset) -> np.ndarray:
    """The rows (n,) with a number that stands apart from all others of its column."""
    found = np.zeros(table.n, dtype=bool)
    for k, kind in enumerate(table.kinds):
        if kind == "number":
            found |= _apart(table.values[:, k])
    return found


def _apart(values: np.ndarray) -> np.ndarray:
    """The values (n,) that stand apart; of a positive column only those that do so on the scale of logarithms too."""
    away = _robustly_scaled(values)
    if np.nanmin(values) > 0:
        away = np.minimum(away, _robustly_scaled(np.log(values)))
    apart = away > APART
    thins_out = apart.sum() < THINNING * ((away > NEAR_TAIL) & ~apart).sum()
    return np.zeros_like(apart) if thins_out or apart.mean() > MOST_APART else apart


def _robustly_scaled(values: np.ndarray) -> np.ndarray:
    """How far values (n,) lie from their median; missing ones, and those that most rows share, nowhere."""
    low, centre, high = np.nanquantile(values, [0.16, 0.5, 0.84])
    return np.nan_to_num(np.abs(values - centre) / ((high - low) / 2 if high > low else np.inf))


def distance_of_rows(values: np.ndarray) -> int:
    """How far apart rows (n, d) must be to count as independent, by how like columns are to themselves some rows later.

    The correlation of two columns is as uncertain as that of n / (1 + 2 sum_k r_i(k) r_j(k)) independent rows, where
    r(k) is how like a column is to itself k rows later (Bartlett, 1946): a column that is like itself misleads only
    beside another one. What the other columns explain of a column is taken out first: an effect takes after its causes.
    """
    n, d = values.shape
    # A missing value counts as an average one: it is like no other.
    ranks = np.asarray(rankdata(values, axis=0, nan_policy="omit"))
    ranks = np.nan_to_num(ranks - np.nanmean(ranks, axis=0))
    lags = n // LAGS_LOOKED_AT
    if d < 2 or lags == 0:
        return 1
    if d < n // LAGS_LOOKED_AT:
        # Rows of the inverse are what is left of each column beside all others, up to a factor.
        ranks = ranks @ np.linalg.pinv(ranks.T @ ranks / n)
    power = np.abs(np.fft.rfft(ranks, 2 * n, axis=0)) ** 2
    covariance = np.fft.irfft(power, axis=0)[: lags + 1]
    like = covariance[1:] / np.maximum(covariance[0], 1e-300)
    together = like.T @ like
    np.fill_diagonal(together, 0.0)
    return max(1, round(1 + 2 * float(together.max())))


def averaged(
    outcomes: Sequence[Outcome],
    shares: Sequence[float],
    predictive: Any,
    *,
    parts: int,
    stopped: str | None = None,
) -> Outcome:
    """The mean of the edge probabilities, and the drawn graphs of all members in one pool.

    Members are of ``parts`` of the rows, several of each if it was looked at in several ways. ``stopped`` says what
    ended the search for more of them, and when.
    """
    found = [outcome.graph_posterior for outcome in outcomes]
    marginals = np.stack([np.asarray(one.edge_probabilities()) for one in found])
    pools = [one.pool for one in found if isinstance(one, SampledGraphs)]
    spread = marginals.std(axis=0)
    diagnostics = {
        "parts": parts,
        "part_sd_largest": float(spread.max()),
        "part_sd_mean": float(spread[~np.eye(len(spread), dtype=bool)].mean()),
        "members": [outcome.diagnostics for outcome in outcomes],
        **mean_targets([outcome.diagnostics for outcome in outcomes], shares),
    }
    trace = {
        f"part_{number}_{name}": series
        for number, outcome in enumerate(outcomes, start=1)
        for name, series in outcome.trace.items()
    }
    mean = np.minimum(np.tensordot(np.asarray(shares), marginals, axes=1), 1.0)  # a sum of shares may round beyond one
    posterior = SampledGraphs(GraphSamples.joined(pools, shares), mean, predictive)
    return Outcome(posterior, _status(outcomes, stopped), diagnostics, trace)


def _status(outcomes: Sequence[Outcome], stopped: str | None) -> Status:
    if stopped is not None:
        return Status("interrupted", as_sentence([f"stopped by {stopped}"]))
    order = ("ok", "warning", "interrupted", "failed")
    worst = max((outcome.status for outcome in outcomes), key=lambda status: order.index(status.code))
    sound = [outcome.status for outcome in outcomes if outcome.status.code == "ok"]
    unsound = len(outcomes) - len(sound)
    if worst.code != "warning" or unsound > FEW_UNSOUND * len(outcomes):
        return worst
    share = f"{unsound} of {len(outcomes)} searches did not settle, too few to change the mean by much"
    return Status("ok", f"{sound[0].sentence} {as_sentence([share])}")


def carefully(request: Request, fit: Callable[[Request], tuple[Outcome, Info]]) -> tuple[Outcome, Info]:
    """The mean over parts where that is asked for, each with its model chosen again; else one fit to all rows.

    Effects and predictions are those of the last part, until somebody knows a fit to all rows.
    """
    table = request.table
    if request.careful is None or not isinstance(table, Dataset):
        return fit(request)
    outcomes: list[Outcome] = []
    info: Info = {}
    parts = parts_of(table, max(request.parts, 1), request.seed, request.careful)
    for number, rows in enumerate(parts):
        one = request._replace(table=table.select(rows), seed=request.seed + number, careful=None, parts=0)
        outcome, info = fit(one._replace(checkpointer=NO_CHECKPOINT, scored=None))
        outcomes.append(outcome)
    count, last = len(outcomes), outcomes[-1].graph_posterior
    predictive = last.predictive if isinstance(last, SampledGraphs) else None
    return averaged(outcomes, [1 / count] * count, predictive, parts=count), info
