"""What follows when one variable of a time series is changed at one step: the impulse response.

Every draw is a whole causal model of a step given those before it. For linear functions the answer has a closed form:
with A_0 the effects within a step and A_l those of l steps back, Phi_0 = (I - A_0)^-1 and Phi_h = sum_l Phi_(h-l) A_l
Phi_0 (A[i, j] is the effect of i on j). For others two series are simulated with the same noise, in which the cause is
set a little higher and a little lower at one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vcuda.arguments import check_draws, position, seed_of, whole_number
from vcuda.data.series import parted
from vcuda.errors import ConfigError
from vcuda.graphs import topological_order_edges
from vcuda.models.prediction import Mechanism
from vcuda.posterior.lagged import Lagged
from vcuda.posterior.mechanisms import CausalModel
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.predictions import predictive_of
from vcuda.posterior.status import ASSUMED

HORIZON, MOST_STEPS = 12, 1000
LINEAR_DRAWS, SIMULATED_DRAWS = 1000, 100
# Series that are simulated for each draw, and steps before the change.
PATHS, STEPS_BEFORE = 64, 20
# Simulated values stay so many standard deviations around the mean: functions say nothing beyond.
FARTHEST = 6.0


@dataclass(frozen=True, eq=False)
class ImpulseResponse:
    """What follows for ``outcome`` when ``cause`` is one unit higher at one step, in the user's units.

    Parameters
    ----------
    table
        For each number of steps later, ``horizon``: the posterior ``mean``, the band from ``low`` to ``high`` that
        holds 90 % of the posterior, and ``probability_zero``, that nothing leads there.
    draws
        ``(s, horizons)``.
    linear
        Whether it is the same for changes of any size; otherwise it is the mean over a standard deviation.
    step
        What a step is called.
    """

    cause: str
    outcome: str
    table: pd.DataFrame
    draws: np.ndarray
    linear: bool
    step: str
    caveat: str = ASSUMED

    @property
    def probability_zero(self) -> float:
        """That nothing leads from the cause to the outcome within the horizon."""
        return float(self.table["probability_zero"].min())

    @property
    def answer(self) -> str:
        """In words, without what it assumes."""
        sizes = self.table["mean"].abs().to_numpy()
        most = int(np.argmax(sizes))
        row = self.table.iloc[most]
        plural = "" if most == 1 else "s"
        called = f"{self.step}{plural}" if self.step.isalpha() and self.step != "row" else f"step{plural}"
        when = "at once" if most == 0 else f"{most} {called} later"
        return (
            f"{self.cause} one unit higher at one step changes {self.outcome} most {when}, by {row['mean']:.4g} (90 % "
            f"interval {row['low']:.4g} to {row['high']:.4g}); with probability {row['probability_zero']:.2f} not at "
            "all."
        )

    @property
    def sentence(self) -> str:
        """The answer in words, and what it assumes."""
        return f"{self.answer} {self.caveat}"

    def __repr__(self) -> str:
        return f"<ImpulseResponse: {self.sentence}>"


def impulse_response(
    posterior: Posterior,
    cause: str,
    outcome: str,
    *,
    horizon: int | None = None,
    draws: int | None = None,
    seed: int = 0,
) -> ImpulseResponse:
    """The impulse response of one variable to another, up to ``horizon`` steps later, by default 12."""
    lagged = _lagged(posterior)
    first, last = _present(lagged, cause), _present(lagged, outcome)
    steps = HORIZON if horizon is None else whole_number("horizon", horizon, least=0, most=MOST_STEPS)
    if draws is not None:
        check_draws(draws)
    rng = np.random.default_rng([seed_of(seed), 1])
    models = posterior.graph_posterior.models(rng, posterior.names, draws or LINEAR_DRAWS)
    found, open_paths, linear = [], np.zeros(steps + 1), True
    simulator = None
    for number, model in enumerate(models):
        own = drawn_steps(model, lagged.nodes)
        linear = own.is_linear
        if linear:
            found.append(_responses(own, steps)[:, first, last])
        else:
            if draws is None and number == SIMULATED_DRAWS:
                break
            simulator = simulator or _Simulator.of(posterior, lagged, first, last)
            found.append(simulator.response(own, steps, rng))
        open_paths += _reached(own, steps)[:, first, last]
    numbers = np.stack(found)
    low, high = np.quantile(numbers, [0.05, 0.95], axis=0)
    table = pd.DataFrame(
        {
            "horizon": np.arange(steps + 1),
            "mean": numbers.mean(axis=0),
            "low": low,
            "high": high,
            "probability_zero": 1 - open_paths / len(numbers),
        }
    )
    return ImpulseResponse(cause, outcome, table, numbers, linear, lagged.step, posterior.caveat)


def impulse_responses(
    posterior: Posterior, *, horizon: int = 1, draws: int = LINEAR_DRAWS, seed: int = 0
) -> pd.DataFrame:
    """The impulse responses of all ordered pairs, for linear models: ``cause``, ``outcome``, ``horizon``, posterior
    ``mean``, the 90 % interval from ``low`` to ``high``, and ``probability_zero``."""
    lagged = _lagged(posterior)
    check_draws(draws)
    rng = np.random.default_rng([seed_of(seed), 1])
    every, reached = [], np.zeros((horizon + 1, lagged.nodes, lagged.nodes))
    for model in posterior.graph_posterior.models(rng, posterior.names, draws):
        own = drawn_steps(model, lagged.nodes)
        if not own.is_linear:
            raise ConfigError("the functions of this model bend; ask for single effects: effect(cause, outcome)")
        every.append(_responses(own, horizon))
        reached += _reached(own, horizon)
    numbers = np.stack(every)
    low, high = np.quantile(numbers, [0.05, 0.95], axis=0)
    names = np.asarray(lagged.names, dtype=object)
    steps, causes, outcomes = (grid.reshape(-1) for grid in np.indices(low.shape))
    kept = ~((steps == 0) & (causes == outcomes))
    where = steps[kept], causes[kept], outcomes[kept]
    zero = 1 - reached / len(numbers)
    table = pd.DataFrame(
        {
            "cause": names[where[1]],
            "outcome": names[where[2]],
            "horizon": where[0],
            "mean": numbers.mean(axis=0)[where],
            "low": low[where],
            "high": high[where],
            "probability_zero": zero[where],
        }
    ).sort_values("probability_zero", kind="stable", ignore_index=True)
    table.attrs["caveat"] = posterior.caveat
    return table


def _lagged(posterior: Posterior) -> Lagged:
    if posterior.lagged is None:
        raise ConfigError(
            "the rows were taken as independent, so nothing follows later: fit with lags=, or ask without horizon"
        )
    return posterior.lagged


def _present(lagged: Lagged, name: str) -> int:
    found = parted(name, lagged.names)
    if found is not None and found[1]:
        raise ConfigError(
            f"{name!r} is an earlier step of {found[0]!r}: ask for the effect of {found[0]!r}, whose horizon counts "
            "the steps that follow"
        )
    return position(lagged.names, name)


class _Drawn(NamedTuple):
    """One model: for each node of the present step its parents among all columns and its mechanism, causes first."""

    order: list[int]
    parents: list[np.ndarray]
    mechanisms: list[Any]
    model: CausalModel

    @property
    def is_linear(self) -> bool:
        return all(mechanism.slopes is not None for mechanism in self.mechanisms)


def drawn_steps(model: CausalModel, nodes: int) -> _Drawn:
    within = (model.sources < nodes) & (model.targets < nodes)
    order = topological_order_edges(model.sources[within], model.targets[within], nodes)
    parents = [model.parents(node) for node in range(nodes)]
    mechanisms = [model.mechanism(node, own) for node, own in enumerate(parents)]
    return _Drawn([int(node) for node in order], parents, mechanisms, model)


def _by_lag(drawn: _Drawn, entries: Iterator[np.ndarray]) -> np.ndarray:
    """Numbers of edges as (lags + 1, d, d)."""
    nodes, wide = len(drawn.order), drawn.model.scaling.scale.size
    found = np.zeros((wide, nodes))
    for node, numbers in enumerate(entries):
        found[drawn.parents[node], node] = numbers
    return found.reshape(wide // nodes, nodes, nodes)


def _responses(drawn: _Drawn, steps: int) -> np.ndarray:
    """Phi (steps + 1, d, d) of linear functions, in the user's units."""
    scale = drawn.model.scaling.scale
    effects = _by_lag(
        drawn,
        (
            mechanism.slopes * scale[node] / scale[parents]
            for node, (parents, mechanism) in enumerate(zip(drawn.parents, drawn.mechanisms, strict=True))
        ),
    )
    return _impulses(effects, steps)


def _impulses(effects: np.ndarray, steps: int) -> np.ndarray:
    nodes = effects.shape[1]
    at_once = np.linalg.inv(np.eye(nodes) - effects[0])
    found = np.zeros((steps + 1, nodes, nodes))
    found[0] = at_once
    for step in range(1, steps + 1):
        for lag in range(1, min(step, len(effects) - 1) + 1):
            found[step] += found[step - lag] @ effects[lag]
        found[step] = found[step] @ at_once
    return found


def _reached(drawn: _Drawn, steps: int) -> np.ndarray:
    """Whether a directed path leads from one node to another in so many steps (steps + 1, d, d)."""
    there = _by_lag(drawn, (np.ones(parents.size) for parents in drawn.parents))
    # Positive weights cannot cancel.
    return _impulses(there / (2 * there.shape[1] * there.shape[0]), steps) > 0


class _Simulator(NamedTuple):
    """Two series with the same noise, one of which has a higher cause at one step."""

    lagged: Lagged
    cause: int
    outcome: int
    low: np.ndarray
    high: np.ndarray
    spread: float
    start: np.ndarray | None

    @classmethod
    def of(cls, posterior: Posterior, lagged: Lagged, cause: int, outcome: int) -> _Simulator:
        predictive = predictive_of(posterior.graph_posterior)
        rows = getattr(predictive, "rows", None)
        kinds = posterior.kinds
        if isinstance(rows, np.ndarray):
            assert kinds is not None
            for name, node in ((lagged.names[cause], cause), (lagged.names[outcome], outcome)):
                levels = np.unique(rows[:, node]).size
                if kinds[node] == "label" and levels > 2:
                    raise ConfigError(
                        f"{name!r} has {levels} labels without an order, so that no number says how far it changes: "
                        "code the label of interest as yes/no"
                    )
            present = rows[:, : lagged.nodes]
            low, high = present.min(axis=0), present.max(axis=0)
            reach = 0.5 * (high - low)
            is_number = np.array([kind in ("number", "count") for kind in kinds[: lagged.nodes]])
            low, high = np.where(is_number, low - reach, low), np.where(is_number, high + reach, high)
            spread = float(present[:, cause].std()) if is_number[cause] else float(np.ptp(present[:, cause]))
            return cls(lagged, cause, outcome, low, high, spread, rows)
        ones = np.ones(lagged.nodes)
        return cls(lagged, cause, outcome, -FARTHEST * ones, FARTHEST * ones, 1.0, None)

    def response(self, drawn: _Drawn, steps: int, rng: np.random.Generator) -> np.ndarray:
        """By how much the outcome changes for each unit of the cause (steps + 1,)."""
        nodes, lags = self.lagged.nodes, self.lagged.lags
        if self.start is None:
            past = np.zeros((PATHS, lags, nodes))
            for _ in range(STEPS_BEFORE + lags):
                past = self._after(past, self._step(drawn, past, rng.random((nodes, PATHS)), None))
        else:
            rows = self.start[rng.integers(len(self.start), size=PATHS)]
            past = rows[:, nodes:].reshape(PATHS, lags, nodes)
        chances = rng.random((nodes, PATHS))
        base = self._step(drawn, past, chances, None)[:, self.cause]
        half = 0.5 * self.spread
        if self.start is None or np.unique(self.start[:, self.cause]).size > 2:
            settings = (base - half, base + half)
        else:
            settings = (np.full(PATHS, self.low[self.cause]), np.full(PATHS, self.high[self.cause]))
        pasts = [past, past]
        found = np.zeros(steps + 1)
        for step in range(steps + 1):
            chances = chances if step == 0 else rng.random((nodes, PATHS))
            nows = [
                self._step(drawn, own, chances, setting if step == 0 else None)
                for own, setting in zip(pasts, settings, strict=True)
            ]
            found[step] = float((nows[1] - nows[0])[:, self.outcome].mean())
            pasts = [self._after(own, now) for own, now in zip(pasts, nows, strict=True)]
        scale = drawn.model.scaling.scale
        return found / self.spread * scale[self.outcome] / scale[self.cause]

    def _after(self, past: np.ndarray, now: np.ndarray) -> np.ndarray:
        return np.concatenate([now[:, None], past[:, :-1]], axis=1)

    def _step(self, drawn: _Drawn, past: np.ndarray, chances: np.ndarray, setting: np.ndarray | None) -> np.ndarray:
        """The present step (paths, d) given those before it (paths, lags, d)."""
        wide = np.concatenate([np.zeros((len(past), self.lagged.nodes)), past.reshape(len(past), -1)], axis=1)
        for node in drawn.order:
            if setting is not None and node == self.cause:
                wide[:, node] = setting
                continue
            value = simulated(drawn.mechanisms[node], wide[:, drawn.parents[node]], chances[node])
            wide[:, node] = np.clip(value, self.low[node], self.high[node])
        return wide[:, : self.lagged.nodes]


def simulated(mechanism: Any, inputs: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """A node (n,) given its parents (n, k), at the quantiles ``chances`` of its noise."""
    if isinstance(mechanism, Mechanism):
        from scipy.special import ndtri

        return np.asarray(mechanism.function(inputs) + mechanism.noise * ndtri(chances))
    return np.asarray(mechanism.simulate(inputs, chances))
