"""Rows of a time series predicted from the rows before them, and how well that goes for rows that were not fitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vcuda.arguments import seed_of, whole_number
from vcuda.data.categorical import codes_by_label
from vcuda.data.columns import ColumnChoice
from vcuda.data.dataset import Dataset
from vcuda.data.examination import ReadOptions
from vcuda.data.reading import read_table
from vcuda.data.series import SeriesOptions
from vcuda.data.series.clock import Clock, index_as_column
from vcuda.data.series.lagged import new_windows
from vcuda.data.series.levels import Levels
from vcuda.errors import ConfigError
from vcuda.posterior.lagged import Lagged
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.predictions import parent_sets, predictive_of
from vcuda.summaries.impulses import drawn_steps, simulated

# Draws of the noise within a step, for functions that bend.
REPEATS = 16


class _New(NamedTuple):
    """New rows as windows ``(n, D)`` in the units of the fit, their clock and levels, and the columns as they are."""

    table: Dataset
    windows: np.ndarray
    clock: Clock
    levels: Levels
    lagged: Lagged
    logarithms: np.ndarray


def _opened(posterior: Posterior, data: Any) -> _New:
    lagged, made = posterior.lagged, posterior.provenance
    assert lagged is not None
    options = made.options
    if options["time"] is None and (indexed := index_as_column(data)) is not None:
        data, options = indexed[0], options | {"time": indexed[1]}
    time, unit = options["time"], options["unit"]
    beside = tuple(name for name in (time, unit) if name is not None)
    how = ReadOptions({}, are_variables=True, beside=beside)
    table = read_table(data, choice=ColumnChoice.of(lagged.names, None), how=how, missing="refuse")
    table = table.take([table.names.index(name) for name in lagged.names])
    labels = None if posterior.categories is None else posterior.categories[: lagged.nodes]
    values = codes_by_label(table, labels or (None,) * lagged.nodes)
    table = replace(table, values=values, categories=labels)
    asked = SeriesOptions(lagged.lags, time, unit, resample=options["resample"])
    windows, clock, levels = new_windows(table, made["series"], asked)
    marked = np.isin(np.array(lagged.names), np.array(made["series"]["logarithms"]))
    return _New(table, windows, clock, levels, lagged, marked)


def forecast(posterior: Posterior, data: Any, *, graphs: int = 100, seed: int = 0) -> pd.DataFrame:
    """Each row of a table from the rows before it alone: the mean over posterior graphs, in the user's units.

    Rows without the steps before them are left out. A column that was fitted on its logarithm has the median.
    """
    new = _opened(posterior, data)
    mean = _ahead(posterior, new, graphs, seed)
    return _frame(new, mean)


def _frame(new: _New, mean: np.ndarray) -> pd.DataFrame:
    back = mean + new.levels.at(new.clock.steps, new.clock.units)
    back[:, new.logarithms] = np.exp(back[:, new.logarithms])
    frame = pd.DataFrame(back, columns=list(new.lagged.names))
    frame.insert(0, "step", new.clock.steps)
    if len(new.clock.unit_names) > 1:
        frame.insert(0, "unit", [new.clock.unit_names[own] for own in new.clock.units])
    return frame


def _ahead(posterior: Posterior, new: _New, graphs: int, seed: int) -> np.ndarray:
    """The present step ``(n, d)`` given those before it, in the units of the fit less the levels."""
    graphs, nodes = whole_number("graphs", graphs, least=1), new.lagged.nodes
    rng = np.random.default_rng([seed_of(seed), 2])
    total, count = np.zeros((len(new.windows), nodes)), 0
    for model in posterior.graph_posterior.models(rng, posterior.names, graphs):
        drawn, scaling = drawn_steps(model, nodes), model.scaling
        repeats = 1 if drawn.is_linear else REPEATS
        wide = np.repeat(scaling.apply(new.windows), repeats, axis=0)
        for node in drawn.order:
            mechanism, inputs = drawn.mechanisms[node], wide[:, drawn.parents[node]]
            if drawn.is_linear:
                wide[:, node] = mechanism.function(inputs)
            else:
                wide[:, node] = simulated(mechanism, inputs, rng.random(len(wide)))
        total += scaling.undo(wide)[:, :nodes].reshape(-1, repeats, nodes).mean(axis=1)
        count += 1
    return total / count


def held_out_steps(posterior: Posterior, data: Any, *, graphs: int = 100, seed: int = 0) -> dict[str, float]:
    """How well the rows of a table are predicted from the rows before them: ``mse`` of one step ahead,
    ``log_likelihood``, the mean over rows of the log density of a row given those before it, and ``nll`` for each
    cell."""
    new = _opened(posterior, data)
    predictive = predictive_of(posterior.graph_posterior)
    if predictive is None:
        raise ConfigError("this model gives no predictions; fit model linear, additive or mixed for those")
    nodes = new.lagged.nodes
    drawn = posterior.sample(whole_number("graphs", graphs, least=1), seed=seed)
    sets = [one for one in parent_sets(drawn) if one[0] < nodes]
    found = predictive.predict(iter(sets), len(drawn), new.windows, posterior.names)
    # Densities of earlier steps are no part of it.
    log_density = found.log_density + np.log(predictive.scaling.scale[nodes:]).sum()
    values = new.windows[:, :nodes] + new.levels.at(new.clock.steps, new.clock.units)
    log_density = log_density - values[:, new.logarithms].sum(axis=1)
    likelihood = float(np.mean(log_density))
    kinds = posterior.kinds
    numbers = [k for k in range(nodes) if kinds is None or kinds[k] in ("number", "count")]
    error: dict[str, float] = {}
    if numbers:
        ahead = _frame(new, _ahead(posterior, new, graphs, seed))
        actual = np.where(new.logarithms, np.exp(np.where(new.logarithms, values, 0.0)), values)
        away = ahead[[new.lagged.names[k] for k in numbers]].to_numpy() - actual[:, numbers]
        error["mse"] = float(np.mean(away**2))
    return error | {"log_likelihood": likelihood, "nll": -likelihood / nodes}
