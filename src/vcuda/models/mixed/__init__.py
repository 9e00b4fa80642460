"""Regressions for tables of any mix of kinds: numbers, counts, yes/no, ordered and other labels."""

from __future__ import annotations

from vcuda.models.mixed.prediction import MixedPredictive
from vcuda.models.mixed.spec import Mixed
from vcuda.models.protocol import Family

__all__ = ["FAMILY", "Mixed", "MixedPredictive"]

FAMILY = Family(
    name="mixed",
    words="a regression of its kind for every column, with lines or curves and noise of any shape, averaged over them",
    specs={None: Mixed()},
    predictive=MixedPredictive,
)
