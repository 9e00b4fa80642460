"""Which predictions go with a score, with a stored run, and with a table of which experiments set some cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.streaming import StreamedTable
from vcuda.errors import ConfigError
from vcuda.models.additive import AdditiveBasisScore
from vcuda.models.categorical import BDeuScore
from vcuda.models.gaussian_process import GaussianProcessScore
from vcuda.models.integrated_noise import NoiseIntegrated
from vcuda.models.interventions import InterventionalScore, kind_of
from vcuda.models.scores import BGeScore, EqualNoiseScore, LocalScore, SharedNoise
from vcuda.posterior.categorical import CategoricalPredictive
from vcuda.posterior.graph_posterior import Predicted, Scaling, check_shapes
from vcuda.posterior.predictive import AdditivePredictive, GaussianProcessPredictive, LinearPredictive, Predictive

# Rows that a Gaussian process keeps: its predictions cost their cube for large sets of parents.
KERNEL_ROWS = 4000

PREDICTIVES: dict[str, type[Predictive]] = {
    LinearPredictive.kind: LinearPredictive,
    AdditivePredictive.kind: AdditivePredictive,
    GaussianProcessPredictive.kind: GaussianProcessPredictive,
    CategoricalPredictive.kind: CategoricalPredictive,
    "discrete": CategoricalPredictive,  # as earlier versions wrote it
}


@dataclass(frozen=True, eq=False)
class InterventionalPredictive:
    """Predictions of parts of a table, joined: the part of a column has the rows in which the column was free.

    Parameters
    ----------
    parts
        What each part predicts, in common units less the means of its own rows.
    part_of
        ``(d,)`` which part each column belongs to.
    shifts
        ``(p, d)`` the means of the parts, in common units.
    scaling
        From the user's units to the common ones.
    cells
        How many cells were free.
    """

    parts: tuple[Predictive, ...]
    part_of: np.ndarray
    shifts: np.ndarray
    scaling: Scaling
    cells: int
    kind: ClassVar[str] = "interventional"

    def of(self, target: int) -> tuple[Predictive, np.ndarray]:
        """The predictions of a column's part, and the means ``(d,)`` of its rows."""
        part = int(self.part_of[target])
        return self.parts[part], self.shifts[part]

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        part, shift = self.of(target)
        prediction = part.column(target, parents, scaled - shift)
        return Predicted(prediction.mean + shift[target], prediction.log_density)

    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "cells": self.cells, "parts": [part.config() for part in self.parts]}

    def arrays(self) -> dict[str, np.ndarray]:
        stored = {"part_of": self.part_of, "shifts": self.shifts} | self.scaling.arrays()
        for number, part in enumerate(self.parts):
            stored |= {f"part{number}_{name}": array for name, array in part.arrays().items()}
        return stored

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        scaling, parts = Scaling.restore(arrays), []
        for number, stored in enumerate(config["parts"]):
            start = f"part{number}_"
            own = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            parts.append(PREDICTIVES[stored["kind"]].restore(stored, own))
        nodes, part_of = len(scaling.centre), arrays["part_of"]
        check_shapes(arrays, {"part_of": (nodes,), "shifts": (len(parts), nodes)})
        if not np.isin(part_of, np.arange(len(parts))).all():
            raise ConfigError(f"part_of must name parts 0 to {len(parts) - 1}")
        return cls(tuple(parts), part_of, arrays["shifts"], scaling, int(config["cells"]))


def restore_predictive(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, nodes: int) -> Predictive | None:
    """What a law of ``nodes`` columns had stored under ``predictive``; the first runs had linear ones only."""
    if "predictive" not in config:
        return None
    stored = config["predictive"]
    kinds = PREDICTIVES | {InterventionalPredictive.kind: InterventionalPredictive}
    predictive = kinds[stored.get("kind", LinearPredictive.kind)].restore(stored, arrays)
    if predictive.scaling.centre.shape != (nodes,):
        raise ConfigError(f"the predictions are for {predictive.scaling.centre.size} columns, the graphs for {nodes}")
    return predictive


def predictive_for(
    score: LocalScore | SharedNoise,
    data: Dataset | StreamedTable,
    *,
    noise_variance: float | None = None,
    scaling: Scaling | None = None,
) -> Predictive | None:
    """The predictions of a score that was prepared on ``data``; None for codes without labels.

    Parameters
    ----------
    noise_variance
        For a score with one shared unknown noise variance: the value to predict with, in the units of the score.
    scaling
        What had been done to the user's columns to make ``data`` of them; by default nothing.
    """
    discrete = kind_of(score)
    if isinstance(discrete, BDeuScore):
        return None if data.categories is None else CategoricalPredictive.of(data, discrete.equivalent_sample_size)
    noise_prior = None
    if isinstance(score, SharedNoise):
        if noise_variance is None:
            raise ConfigError("noise_variance is needed to predict with a score whose shared noise is unknown")
        noise_prior = (score.shape, score.scale)
        score = score.at(noise_variance)

    def to_units(centre: np.ndarray, scale: np.ndarray) -> Scaling:
        inner = Scaling(centre, scale)
        return inner if scaling is None else scaling.then(inner)

    if isinstance(score, InterventionalScore):
        in_units = to_units(data.mean, score.scale)
        parts = tuple(_of(part, in_units, noise_prior) for part in score.parts)
        return InterventionalPredictive(parts, score.part_of, score.shifts, in_units, int(score.free_rows.sum()))
    if isinstance(score, EqualNoiseScore):
        # Its Gram matrix is in a unit common to all columns.
        unit = data.scale[0] * np.sqrt(data.n / score.gram[0, 0])
        return _of(score, to_units(data.mean, np.full(data.d, unit)), noise_prior)
    return _of(score, to_units(data.mean, data.scale), noise_prior)


def _of(score: LocalScore, in_units: Scaling, noise_prior: tuple[float, float] | None) -> Predictive:
    """The predictions of an ordinary score, to whose units ``in_units`` leads."""
    if isinstance(score, EqualNoiseScore):
        return LinearPredictive(
            score.gram, in_units, score.rows, score.ridge, variance=score.variance, noise_prior=noise_prior
        )
    if isinstance(score, BGeScore):
        return LinearPredictive(
            score.gram, in_units, score.rows, score.ridge, excess=score.excess, mean_rows=score.mean_rows
        )
    if isinstance(score, AdditiveBasisScore):
        return AdditivePredictive(
            score.gram, score.products, score.squares, score.bases, in_units, score.noise, score.amplitudes
        )
    if isinstance(score, GaussianProcessScore):
        columns = score.columns
        if len(columns) > KERNEL_ROWS:
            columns = columns[np.sort(np.random.default_rng(0).choice(len(columns), KERNEL_ROWS, replace=False))]
        noise = NoiseIntegrated(len(columns), score.noise.shape, score.noise.scale)
        kept = columns.astype(np.float32)
        return GaussianProcessPredictive(kept, in_units, noise, score.amplitudes, score.length_scale)
    raise ConfigError(f"{type(score).__name__} has no predictions")
