"""What happens to one variable when another is set: total causal effects, with graph, weights and noise uncertain.

Every draw is a whole causal model: a DAG, and functions of its nodes. The arrows into the cause are cut, the cause is
set to x, and the expectation of the outcome is computed, exactly for linear functions and by simulation for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import solve_triangular

from vcuda.arguments import check_draws, seed_of, two_positions
from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError
from vcuda.graphs import ancestor_sets, topological_order_edges
from vcuda.posterior.mechanisms import CausalModel
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.status import ASSUMED
from vcuda.summaries.categorical_effects import CategoryEffect, category_effect
from vcuda.summaries.display import answer_html
from vcuda.summaries.sensitivity import holding_strengths, line_beside
from vcuda.summaries.simulated_effects import SimulatedEffect, checked_settings, simulated_effect
from vcuda.summaries.upstream import Upstream

LINEAR_DRAWS, SIMULATED_DRAWS = 1000, 200
GRID_POINTS, GRID_REACH = 21, 1.5
# Models that say where the cause usually lies, when nobody says where to look.
RANGE_MODELS = 100
# What the draws of all effects at once may take.
MOST_BYTES = 1e9


@dataclass(frozen=True, eq=False)
class Effect:
    """The total causal effect of ``cause`` on ``outcome``, in the user's units.

    Parameters
    ----------
    draws
        ``(s,)``: by how much the expected outcome changes when the cause is set one unit higher. For functions that
        bend, and for columns that were fitted on their logarithm, the average over the range of ``curve``.
    probability_zero
        That there is no directed path from cause to outcome, and so exactly no effect.
    curve
        The expected outcome when the cause is set to x: ``x``, ``mean``, and the band from ``low`` to ``high`` that
        holds 90 % of the posterior at each x.
    linear
        Whether the curve is a straight line in every draw.
    caveat
        What no table can show and the effect assumes; where the model checks warn, that they do.
    hidden_cause
        How strong a hidden common cause would have to be to explain the effect away; empty where that is not known.
    """

    cause: str
    outcome: str
    draws: np.ndarray
    probability_zero: float
    curve: pd.DataFrame
    linear: bool
    caveat: str = ASSUMED
    hidden_cause: str = ""

    @property
    def mean(self) -> float:
        """The posterior mean, graphs without a path counted as zero."""
        return float(self.draws.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """What holds 90 % of the posterior, 5 % on each side."""
        return self.quantiles(0.05, 0.95)

    def quantiles(self, low: float, high: float) -> tuple[float, float]:
        """Two quantiles of the posterior."""
        return float(np.quantile(self.draws, low)), float(np.quantile(self.draws, high))

    @property
    def answer(self) -> str:
        """The change in words, without what it assumes."""
        low, high = self.interval
        first, last = self.curve.x.iloc[0], self.curve.x.iloc[-1]
        where = "" if self.linear else f", on average between {first:.4g} and {last:.4g}"
        return (
            f"Setting {self.cause} one unit higher changes {self.outcome} by {self.mean:.4g} (90 % interval {low:.4g} "
            f"to {high:.4g}){where}; with probability {self.probability_zero:.2f} not at all."
        )

    @property
    def sentence(self) -> str:
        """The answer in words, and what it assumes."""
        return " ".join(filter(None, (self.answer, self.caveat, self.hidden_cause)))

    def __repr__(self) -> str:
        return f"<Effect: {self.sentence}>"

    def _repr_html_(self) -> str:
        return answer_html([self.answer], None if self.linear else self.curve, caveat=self.caveat)


def effect(
    posterior: Posterior,
    cause: str,
    outcome: str,
    *,
    at: Sequence[float] | None = None,
    draws: int | None = None,
    seed: int = 0,
) -> Effect | CategoryEffect | SimulatedEffect:
    """The posterior of the total causal effect of one variable on another; of categories by their labels.

    Parameters
    ----------
    at
        Values of the cause for the curve, at least two; by default 21 over 1.5 standard deviations around its mean, as
        the fitted models themselves have them.
    draws
        How many causal models; by default 1,000 where functions are linear and 200 where they are simulated.
    """
    if posterior.kinds is not None:
        return simulated_effect(posterior, cause, outcome, at=at, draws=draws, seed=seed)
    if posterior.categories is not None:
        if at is not None:
            raise ConfigError("the columns hold labels: the effect covers all labels of the cause, so leave out at")
        return category_effect(posterior, cause, outcome, draws=draws, seed=seed)
    first, last = two_positions(posterior.names, cause, outcome)
    if draws is not None:
        check_draws(draws)
    seed = seed_of(seed)
    rng, range_rng = (np.random.default_rng([seed, stream]) for stream in (1, 2))
    if at is None:
        values = _usual_range(
            posterior.graph_posterior.models(range_rng, posterior.names, RANGE_MODELS), first, range_rng
        )
    else:
        values = checked_settings(at, cause)
    responses: list[_Response] = []
    for model in posterior.graph_posterior.models(rng, posterior.names, draws or LINEAR_DRAWS):
        if model.scaling.logarithm[first] and values[0] <= 0:
            raise ConfigError(f"{cause!r} was fitted on its logarithm; give positive values, not {values[0]:g}")
        responses.append(_response(model, first, last, values, rng))
        if draws is None and responses[0].simulated and len(responses) == SIMULATED_DRAWS:
            break
    curves = np.stack([response.curve for response in responses])
    slopes = np.array([response.slope for response in responses])
    linear = all(response.straight for response in responses)
    if linear:
        _check_finite(slopes)
    low, high = np.quantile(curves, [0.05, 0.95], axis=0)
    return Effect(
        cause=cause,
        outcome=outcome,
        draws=slopes,
        probability_zero=float(np.mean([not response.connected for response in responses])),
        curve=pd.DataFrame({"x": values, "mean": curves.mean(axis=0), "low": low, "high": high}),
        linear=linear,
        caveat=posterior.caveat,
        hidden_cause=line_beside(posterior, cause, outcome),
    )


def effects(posterior: Posterior, *, draws: int = LINEAR_DRAWS, seed: int = 0) -> pd.DataFrame:
    """The total effects of all ordered pairs at once, for linear models of columns as they are.

    ``cause``, ``outcome``, posterior ``mean``, the 90 % interval from ``low`` to ``high``, and ``probability_zero``,
    that there is no directed path; the surest first. ``holds_up_to`` is the share of both columns that a hidden common
    cause may explain while the effect still holds with a probability of .9 (see :func:`sensitivity`).
    ``attrs["caveat"]`` says what they assume.
    """
    check_draws(draws)
    nodes = len(posterior.names)
    if 8 * draws * nodes**2 > MOST_BYTES:
        raise ConfigError(
            f"all effects of {nodes:,} variables in {draws:,} draws do not fit into {MOST_BYTES / 1e9:.0f} GB; ask for "
            f"at most {int(MOST_BYTES / (8 * nodes**2)):,} draws, or for single effects"
        )
    drawn, apart = np.zeros((draws, nodes, nodes)), np.zeros((nodes, nodes))
    rng = np.random.default_rng([seed_of(seed), 1])
    for number, model in enumerate(posterior.graph_posterior.models(rng, posterior.names, draws)):
        if model.scaling.logarithm.any():
            raise ConfigError(
                "columns were fitted on their logarithms, so that effects are curves; ask for single ones"
            )
        weights = np.zeros((nodes, nodes))
        for node in range(nodes):
            parents = model.parents(node)
            slopes = model.mechanism(node, parents).slopes
            if slopes is None:
                raise ConfigError("the functions of this model bend, so that effects are curves; ask for single ones")
            weights[parents, node] = slopes
        sets = ancestor_sets(model.sources, model.targets, nodes)
        upstream = np.array([[bits >> node & 1 for bits in sets] for node in range(nodes)], dtype=bool)
        order = topological_order_edges(model.sources, model.targets, nodes)
        with np.errstate(over="ignore", invalid="ignore"):
            ratios = model.scaling.scale / model.scaling.scale[:, None]
            drawn[number] = np.where(upstream, _total(weights, order) * ratios, 0.0)
        apart += ~upstream
    _check_finite(drawn)
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    mean, zero = drawn.mean(axis=0), apart / draws
    causes, outcomes = np.nonzero(~np.eye(nodes, dtype=bool))
    order = np.argsort(zero[causes, outcomes], kind="stable")
    which = causes[order], outcomes[order]
    names = np.asarray(posterior.names, dtype=object)
    strengths = holding_strengths(posterior, draws=draws, seed=seed)
    table = pd.DataFrame(
        {
            "cause": names[which[0]],
            "outcome": names[which[1]],
            "mean": mean[which],
            "low": low[which],
            "high": high[which],
            "probability_zero": zero[which],
            **({} if strengths is None else {"holds_up_to": strengths[which]}),
        }
    )
    table.attrs["caveat"] = posterior.caveat
    return table


def slopes_on(posterior: Posterior, outcome: int, *, draws: int, seed: int = 0) -> np.ndarray | None:
    """By how much one unit of each node changes the outcome, ``(s, d)``; None where functions bend.

    One pass backwards from the outcome in each causal model: no arrow into a cause lies between it and the outcome.
    """
    rng = np.random.default_rng([seed_of(seed), 1])
    found = np.zeros((draws, len(posterior.names)))
    for number, model in enumerate(posterior.graph_posterior.models(rng, posterior.names, draws)):
        upstream = Upstream.of(model, outcome)
        if model.scaling.logarithm.any() or not upstream.linear:
            return None
        for node, reach in upstream.reach(None).items():
            found[number, node] = reach * float(model.scaling.scale[outcome] / model.scaling.scale[node])
    _check_finite(found)
    return found


def central_range(posterior: Posterior, node: int, low: float, high: float, *, seed: int = 0) -> tuple[float, float]:
    """Two quantiles of a column as the fitted models have it, in the user's units."""
    rng = np.random.default_rng([seed_of(seed), 2])
    quantiles = np.array([NormalDist().inv_cdf(share) for share in (low, high)])
    models = posterior.graph_posterior.models(rng, posterior.names, RANGE_MODELS)
    first = next(models)
    own = first.scaling.of(node)
    if own.centre[0] != 0 or own.scale[0] != 1:  # the mean and standard deviation of the table
        ends = own.undo(quantiles[:, None])[:, 0]
    else:
        mean, spread = _usual_place(chain([first], models), node, rng)
        ends = mean + spread * quantiles
        ends = np.exp(ends) if own.logarithm[0] else ends
    return float(ends[0]), float(ends[1])


def _total(weights: np.ndarray, order: np.ndarray) -> np.ndarray:
    """(I - W)^-1 of the weights ``(d, d)`` of a DAG: what a unit of each node does to every other, along all paths.

    In an order in which causes come first it is solved with ones on the diagonal, and so there is always an answer, as
    exact as the weights are. Solvers that choose their pivots lose those ones beside weights of 1e6 and more, and give
    other numbers or none. Fits have no such weights in their own units; a run from elsewhere may.
    """
    among = np.ix_(order, order)
    solved = solve_triangular(
        np.eye(len(order)) - weights[among], np.eye(len(order)), unit_diagonal=True, check_finite=False
    )
    total = np.empty_like(weights)
    total[among] = solved
    return total


def _check_finite(numbers: np.ndarray) -> None:
    """No table that is accepted has effects beyond all numbers; a run that somebody changed may."""
    if not np.isfinite(numbers).all():
        raise ConfigError(
            "the stored weights make effects that are larger than any number of double precision; fit the table again"
        )


class _Response(NamedTuple):
    """One model: the expected outcome ``(g,)`` at each value of the cause, and by how much a unit changes it."""

    curve: np.ndarray
    slope: float
    straight: bool
    simulated: bool
    connected: bool


def _response(model: CausalModel, cause: int, outcome: int, values: np.ndarray, rng: np.random.Generator) -> _Response:
    upstream = Upstream.of(model, outcome, cut=cause)
    own, target = model.scaling.of(cause), model.scaling.of(outcome)
    scaled = own.apply(values[:, None])[:, 0]
    connected, linear = cause in upstream.parents, upstream.linear
    straight = linear and not (own.logarithm[0] or target.logarithm[0])
    if linear:
        intercept, slope, variance = upstream.line(cause)
        curve = _expected(target, intercept + slope * scaled, variance)
        if straight:
            return _Response(curve, slope * float(target.scale[0] / own.scale[0]), True, False, connected)
    else:
        heights = _expected(target, upstream.simulate(rng, cause, scaled), upstream.own_variance).mean(axis=1)
        curve = np.broadcast_to(heights, values.shape)
    change = float((curve[-1] - curve[0]) / (values[-1] - values[0])) if connected else 0.0
    return _Response(curve, change, straight, not linear, connected)


def _expected(scaling: Scaling, means: np.ndarray, variance: float) -> np.ndarray:
    """The expectation in the user's units of a normal variable; that of a log-normal one is above its median."""
    excess = 0.5 * variance * scaling.scale[0] if scaling.logarithm[0] else 0.0
    return scaling.undo((means + excess).reshape(-1, 1)).reshape(means.shape)


def _usual_range(models: Iterator[CausalModel], node: int, rng: np.random.Generator) -> np.ndarray:
    """Values ``(g,)`` around where the models put a node when nobody sets it, in the user's units."""
    first = next(models)
    mean, spread = _usual_place(chain([first], models), node, rng)
    values = mean + spread * np.linspace(-GRID_REACH, GRID_REACH, GRID_POINTS)
    return np.exp(values) if first.scaling.logarithm[node] else values


def _usual_place(models: Iterable[CausalModel], node: int, rng: np.random.Generator) -> tuple[float, float]:
    """Mean and standard deviation of a node when nobody sets it; of its logarithm where that was fitted."""
    means, variances = [], []
    for model in models:
        upstream = Upstream.of(model, node)
        if upstream.linear:
            mean, _, variance = upstream.line(None)
        else:
            simulated = upstream.simulate(rng, None, np.empty(0))
            mean, variance = float(simulated.mean()), float(simulated.var()) + upstream.own_variance
        own = model.scaling.of(node)
        means.append(own.centre[0] + own.scale[0] * mean)
        variances.append(own.scale[0] ** 2 * variance)
    return float(np.mean(means)), float(np.sqrt(np.mean(variances) + np.var(means)))
