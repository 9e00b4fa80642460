"""What happens to one variable when another is set, in tables of several kinds.

Every draw is a whole causal model: a DAG, and for each node a mechanism of its kind. The arrows into the cause are cut,
the cause is set to each of some settings, all that lies between is simulated with the same random numbers for every
setting, and the outcome is described by its expected value (number, count), by the probabilities of its values (yes/no,
label), or by its mean level and the probability of the highest (ordered).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from vcuda.arguments import check_draws, seed_of, two_positions
from vcuda.data.kinds import Kind
from vcuda.errors import ConfigError
from vcuda.models.mixed import MixedPredictive
from vcuda.posterior.mechanisms import CausalModel
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.predictions import predictive_of
from vcuda.posterior.status import ASSUMED
from vcuda.summaries.display import answer_html
from vcuda.summaries.sensitivity import line_beside
from vcuda.summaries.upstream import Upstream

DRAWS, ROWS = 200, 128
# Numbers and counts are set to so many values between these quantiles of the table.
GRID_POINTS, GRID_REACH = 11, (0.05, 0.95)
POINTS = "percentage points"


class Measure(NamedTuple):
    """One number that describes the outcome: what it is in words, and the unit of its changes."""

    words: str
    unit: str = ""

    @property
    def of(self) -> str:
        """What changes: of a ratio, what is divided."""
        return self.words.removeprefix("ratio of ")

    @property
    def percent(self) -> str:
        """What follows a value of it."""
        return " %" if self.unit == POINTS else ""


class Change(NamedTuple):
    """By how much a measure of the outcome changes, in each draw ``(s,)``: from one setting of the cause to another."""

    measure: Measure
    before: str
    after: str
    value_before: float
    value_after: float
    draws: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.draws.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """What holds 90 % of the posterior, 5 % on each side."""
        low, high = np.quantile(self.draws, [0.05, 0.95])
        return float(low), float(high)

    @property
    def words(self) -> str:
        """``+12.3 percentage points (90 % interval +8.1 to +16.0)``."""
        low, high = self.interval
        unit = f" {self.measure.unit}" if self.measure.unit else ""
        return f"{signed(self.mean)}{unit} (90 % interval {signed(low)} to {signed(high)})"

    @property
    def in_words(self) -> str:
        """``lowers the expected sales by 33 (90 % interval 29 to 36), from 42 to 9``.

        The verb has the sign where all of the interval has the same.
        """
        low, high = self.interval
        where = ""
        if np.isfinite([self.value_before, self.value_after]).all():
            ends = (_value(value, self.measure) for value in (self.value_before, self.value_after))
            where = ", from {} to {}".format(*ends)
        if self.measure.unit == "times":
            verb = "multiplies" if low >= 1 or high <= 1 else "changes"
            return f"{verb} {self.measure.of} by {self.mean:.3g} (90 % interval {low:.3g} to {high:.3g}){where}"
        unit = f" {self.measure.unit}" if self.measure.unit else ""
        if low >= 0 or high <= 0:
            verb, (least, most) = ("raises", (low, high)) if low >= 0 else ("lowers", (-high, -low))
            return (
                f"{verb} {self.measure.words} by {_plain(abs(self.mean), '')}{unit} (90 % interval "
                f"{_plain(least, '')} to {_plain(most, '')}){where}"
            )
        return f"changes {self.measure.words} by {self.words}{where}"


@dataclass(frozen=True, eq=False)
class SimulatedEffect:
    """The total causal effect of ``cause`` on ``outcome`` in a table of several kinds, in the user's units.

    Parameters
    ----------
    cause_kind, outcome_kind
        The kinds of the two columns.
    settings
        What the cause is set to, in words.
    x
        ``(g,)`` the same as numbers, of which one more is one unit higher; None where the settings have no order.
    measures
        What describes the outcome; probabilities are in percent.
    responses
        ``(s, g, r)``: in each draw every measure of the outcome at every setting.
    reference
        Which setting others are compared with, the most common one; for causes without an order.
    probability_zero
        That there is no directed path from cause to outcome, and so exactly no effect.
    caveat
        What no table can show and the effect assumes; where the model checks warn, that they do.
    hidden_cause
        How strong a hidden common cause would have to be to explain the effect away; empty where that is not known.
    """

    cause: str
    outcome: str
    cause_kind: Kind
    outcome_kind: Kind
    settings: tuple[str, ...]
    x: np.ndarray | None
    measures: tuple[Measure, ...]
    responses: np.ndarray
    reference: int
    probability_zero: float
    caveat: str = ASSUMED
    hidden_cause: str = ""

    # What changes -----------------------------------------------------------------------------------------------------

    def _change(self, measure: int, before: int, after: int) -> Change:
        own = self.responses[:, :, measure]
        means = own.mean(axis=0)
        ends = (self.settings[before], self.settings[after], float(means[before]), float(means[after]))
        return Change(self.measures[measure], *ends, own[:, after] - own[:, before])

    def _for_one_unit(self, measure: int) -> Change:
        """On average over the range of the settings."""
        assert self.x is not None
        whole = self._change(measure, 0, len(self.x) - 1)
        return whole._replace(before="x", after="x + 1", draws=whole.draws / (self.x[-1] - self.x[0]))

    def changes(self) -> list[Change]:
        """Of every measure: for one unit and over the whole range, or of every setting against the reference."""
        found = []
        for measure in range(len(self.measures)):
            if self.x is not None:
                found += [self._for_one_unit(measure), self._change(measure, 0, len(self.x) - 1)]
            else:
                others = [k for k in range(len(self.settings)) if k != self.reference]
                found += [self._change(measure, self.reference, k) for k in others]
        return found

    @property
    def main(self) -> Change:
        """The change that the sentence is about: of several settings or labels the largest one."""
        if self.x is not None:
            every = [self._for_one_unit(measure) for measure in range(len(self.measures))]
        elif len(self.settings) == 2:
            every = [self._change(measure, 0, 1) for measure in range(len(self.measures))]
        else:
            every = self.changes()
        # The mean level comes first, and what it means for the highest level is said beside it.
        if self.outcome_kind == "ordered":
            every = [change for change in every if change.measure == self.measures[0]]
        return max(every, key=lambda change: abs(round(change.mean, 9)))

    def contrast(self, before: int | None = None, after: int | None = None) -> Change:
        """The change between two settings, in the measure that people ask for: a ratio of counts.

        By default between the ends of the range, and of several settings without an order the largest change from the
        most common one. Of several labels it is about the one that changes most.
        """
        if before is not None and after is not None:
            pairs = [(before, after)]
        elif self.x is not None or len(self.settings) == 2:
            pairs = [(0, len(self.settings) - 1)]
        else:
            pairs = [(self.reference, k) for k in range(len(self.settings)) if k != self.reference]
        measures = range(len(self.measures)) if self.outcome_kind in ("yes/no", "label") else [0]
        found = [self._change(measure, *pair) for measure in measures for pair in pairs]
        if self.outcome_kind == "count":
            logs = np.log(self.responses[:, :, 0])
            ratios = [np.exp(logs[:, last] - logs[:, first]) for first, last in pairs]
            found = [one._replace(measure=self._ratio, draws=own) for one, own in zip(found, ratios, strict=True)]
            return max(found, key=lambda change: abs(round(float(np.log(change.draws).mean()), 9)))
        return max(found, key=lambda change: abs(round(change.mean, 9)))

    @property
    def _ratio(self) -> Measure:
        return Measure(f"ratio of {self.measures[0].words}", "times")

    @property
    def draws(self) -> np.ndarray:
        """The change of ``main`` in every draw ``(s,)``."""
        return self.main.draws

    @property
    def mean(self) -> float:
        """Its posterior mean, graphs without a path counted as zero."""
        return self.main.mean

    @property
    def interval(self) -> tuple[float, float]:
        """What holds 90 % of its posterior, 5 % on each side."""
        return self.main.interval

    @property
    def linear(self) -> bool:
        return False

    # What is shown ----------------------------------------------------------------------------------------------------

    @property
    def table(self) -> pd.DataFrame:
        """All changes: what ``measure`` of the outcome, when the cause is set to ``after`` and not to ``before``.

        ``value_before`` and ``value_after`` are posterior means, in percent for probabilities, whose ``change`` is in
        percentage points; for one unit they are those at both ends of the range. ``low`` to ``high`` holds 90 %.
        Expected counts also have their ratio.
        """
        lines = []
        for change in [*self.changes(), *self.ratios()]:
            low, high = change.interval
            lines.append((*change[1:3], *change[0], *change[3:5], change.mean, low, high))
        names = ["before", "after", "measure", "unit", "value_before", "value_after", "change", "low", "high"]
        return pd.DataFrame(lines, columns=names)

    @property
    def curve(self) -> pd.DataFrame:
        """Each ``measure`` of the outcome when the cause is set to ``x``: ``mean``, and the band from ``low`` to
        ``high`` that holds 90 %."""
        low, high = np.quantile(self.responses, [0.05, 0.95], axis=0)
        x = np.array(self.settings, dtype=object) if self.x is None else self.x
        return pd.DataFrame(
            {
                "x": np.tile(x, len(self.measures)),
                "measure": np.repeat([measure.words for measure in self.measures], len(x)),
                "mean": self.responses.mean(axis=0).T.reshape(-1),
                "low": low.T.reshape(-1),
                "high": high.T.reshape(-1),
            }
        )

    def ratios(self) -> list[Change]:
        """Of an expected count: by which factor it changes."""
        if self.outcome_kind != "count":
            return []
        found = []
        logs = np.log(self.responses[:, :, 0])
        for change in self.changes():
            if change.before == "x" and self.x is not None:
                draws = np.exp((logs[:, -1] - logs[:, 0]) / (self.x[-1] - self.x[0]))
            else:
                before, after = (self.settings.index(setting) for setting in (change.before, change.after))
                draws = np.exp(logs[:, after] - logs[:, before])
            found.append(change._replace(measure=self._ratio, draws=draws))
        return found

    @property
    def answer(self) -> str:
        """The change in words, without what it assumes."""
        main = self.main
        if self.probability_zero == 1:
            return f"Setting {self.cause} changes nothing in {self.outcome}: with probability 1.00 not at all."
        if self.x is None:
            doing = f"Setting {self.cause} to {main.after} and not to {main.before}"
            where = f", from {_value(main.value_before, main.measure)} to {_value(main.value_after, main.measure)}"
        else:
            unit = {"number": " unit", "count": "", "ordered": " level"}[self.cause_kind]
            doing = f"Setting {self.cause} one{unit} higher"
            where = (
                f", on average between {self.settings[0]} and {self.settings[-1]}, where it goes from "
                f"{_value(main.value_before, main.measure)} to {_value(main.value_after, main.measure)}"
            )
        return (
            f"{doing} changes {main.measure.words} by {main.words}{self._beside(main)}{where}; with probability "
            f"{self.probability_zero:.2f} not at all."
        )

    def _beside(self, main: Change) -> str:
        """What else is said of an ordered outcome, and of a count."""
        same = [c for c in [*self.changes(), *self.ratios()] if (c.before, c.after) == (main.before, main.after)]
        if self.outcome_kind == "count":
            for change in same:
                if change.measure.unit == "times":
                    low, high = change.interval
                    return f", {change.mean:.3g} times as many ({low:.3g} to {high:.3g})"
        if self.outcome_kind == "ordered":
            return "".join(
                f" and {change.measure.words} by {change.words}" for change in same if change.measure.unit == POINTS
            )
        return ""

    @property
    def sentence(self) -> str:
        """The answer in words, and what it assumes."""
        return " ".join(filter(None, (self.answer, self.caveat, self.hidden_cause)))

    def __repr__(self) -> str:
        return f"<SimulatedEffect: {self.sentence}>"

    def _repr_html_(self) -> str:
        return answer_html([self.answer], self.table, caveat=self.caveat)


def _value(value: float, measure: Measure) -> str:
    return f"{value:.1f}{measure.percent}" if measure.percent else _plain(value, "")


def signed(value: float) -> str:
    """A number with its sign, in three or four digits."""
    return _plain(value, "+")


def _plain(value: float, sign: str) -> str:
    """Three or four digits, and no powers of ten before a million."""
    if value == 0:
        return "0"
    return f"{value:{sign},.0f}" if 1000 <= abs(value) < 1e9 else f"{value:{sign}.3g}"


# From models to measures ----------------------------------------------------------------------------------------------


def simulated_effect(
    posterior: Posterior,
    cause: str,
    outcome: str,
    *,
    at: Sequence[float] | None = None,
    draws: int | None = None,
    seed: int = 0,
) -> SimulatedEffect:
    """The posterior of the total causal effect of one column on another, in a table of several kinds.

    Parameters
    ----------
    at
        Values of a cause that is a number or a count, at least two; by default 11 that cover the middle 90 % of the
        table. Other causes are set to all of their values.
    draws
        How many causal models, by default 200.
    """
    first, last = two_positions(posterior.names, cause, outcome)
    number = DRAWS if draws is None else draws
    check_draws(number)
    predictive = predictive_of(posterior.graph_posterior)
    assert isinstance(predictive, MixedPredictive)
    values = _settings(predictive, first, cause, at)
    ordered = predictive.kinds[first] in ("number", "count", "ordered")
    measures, levels = _measures(predictive, last, outcome)
    rng = np.random.default_rng([seed_of(seed), 1])
    scaled = predictive.scaling.of(first).apply(values[:, None])[:, 0]
    responses, apart = [], 0
    for model in posterior.graph_posterior.models(rng, posterior.names, number):
        response, connected = _response(model, first, last, scaled, levels, rng)
        responses.append(response)
        apart += not connected
    x = None
    if ordered:
        x = np.arange(1.0, values.size + 1) if predictive.kinds[first] == "ordered" else values
    counts = [int((predictive.rows[:, first] == value).sum()) for value in values]
    return SimulatedEffect(
        cause=cause,
        outcome=outcome,
        cause_kind=predictive.kinds[first],
        outcome_kind=predictive.kinds[last],
        settings=tuple(
            f"{value:.4g}" if predictive.kinds[first] == "number" else predictive.value_words(first, value)
            for value in values.tolist()
        ),
        x=x,
        measures=measures,
        responses=np.stack(responses),
        reference=int(np.argmax(counts)),
        probability_zero=apart / number,
        caveat=posterior.caveat,
        hidden_cause=line_beside(posterior, cause, outcome),
    )


def checked_settings(at: Sequence[float], cause: str) -> np.ndarray:
    """Values of a cause that somebody gave, in order."""
    values = np.unique(np.asarray(at, dtype=np.float64))
    if values.size < 2 or not np.isfinite(values).all():
        raise ConfigError(f"the curve needs at least two different finite values of {cause!r}, got {list(at)}")
    return values


def _settings(predictive: MixedPredictive, column: int, name: str, at: Sequence[float] | None) -> np.ndarray:
    """What the cause is set to ``(g,)``, in the user's units."""
    kind, own = predictive.kinds[column], predictive.columns[column]
    logarithm = bool(predictive.scaling.logarithm[column])
    if own.levels.size:
        if at is not None:
            raise ConfigError(f"{name!r} has {own.levels.size} values, and the effect covers all of them: leave out at")
        return own.levels
    if at is not None:
        values = checked_settings(at, name)
        if kind == "count" and values[0] < 0:
            raise ConfigError(f"{name!r} is a count; give values from 0 on, not {values[0]:g}")
        if logarithm and values[0] <= 0:
            raise ConfigError(f"{name!r} was fitted on its logarithm; give positive values, not {values[0]:g}")
        return values
    low, high = np.quantile(predictive.rows[:, column], GRID_REACH)
    if kind == "count":
        return np.unique(np.round(np.linspace(np.floor(low), max(np.ceil(high), np.floor(low) + 1), GRID_POINTS)))
    if low == high:
        low, high = predictive.rows[:, column].min(), predictive.rows[:, column].max()
    return np.geomspace(low, high, GRID_POINTS) if logarithm else np.linspace(low, high, GRID_POINTS)


def _measures(predictive: MixedPredictive, column: int, name: str) -> tuple[tuple[Measure, ...], np.ndarray | None]:
    """What describes an outcome; and a matrix ``(l, r)`` that makes it of the probabilities of its levels."""
    kind, levels = predictive.kinds[column], predictive.columns[column].levels
    if not levels.size:
        return (Measure(f"the expected {'number of ' if kind == 'count' else ''}{name}"),), None
    words = [predictive.value_words(column, level) for level in levels.tolist()]
    chances = [Measure(f"the probability that {name} is {word}", POINTS) for word in words]
    every = 100 * np.eye(levels.size)
    if kind == "ordered":
        labelled = predictive.labels is not None and predictive.labels[column] is not None
        heights = np.arange(1.0, levels.size + 1) if labelled else levels
        scale = f" (1 = {words[0]} to {levels.size} = {words[-1]})" if labelled else ""
        return (Measure(f"the mean level of {name}{scale}"), chances[-1]), np.stack([heights, every[-1]], axis=1)
    if levels.size == 2:
        return (chances[1],), every[:, 1:]
    return tuple(chances), every


def _response(
    model: CausalModel,
    cause: int,
    outcome: int,
    values: np.ndarray,
    levels: np.ndarray | None,
    rng: np.random.Generator,
) -> tuple[np.ndarray, bool]:
    """One model: the measures of the outcome ``(g, r)`` at each value of the cause, and whether a path leads to it."""
    upstream = Upstream.of(model, outcome, cut=cause)
    # Each node has one row in every ROWS-th part of its distribution, in random order: more even than random ones.
    order = rng.permuted(np.tile(np.arange(ROWS), (len(upstream.order), 1)), axis=1)
    chances = (order + rng.random(order.shape)) / ROWS
    rows = upstream.rows(cause, values, chances)
    flat, mechanism = rows.reshape(len(rows) * ROWS, rows.shape[2]), upstream.mechanisms[outcome]
    found = mechanism.expected(flat)[:, None] if levels is None else mechanism.probabilities(flat) @ levels
    means = found.reshape(len(rows), ROWS, -1).mean(axis=1)
    return np.broadcast_to(means, (values.size, means.shape[1])), cause in upstream.parents
