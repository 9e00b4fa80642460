"""Regressions for tables of any mix of kinds: numbers, counts, yes/no, ordered and other labels."""

from vcuda.models.mixed.prediction import MixedPredictive
from vcuda.models.mixed.spec import Mixed
from vcuda.models.protocol import Family

FAMILY = Family(
    name="mixed",
    words="mixed: a regression of each variable on its direct causes, by its kind, with noise of any shape",
    specs={None: Mixed()},
    predictive=MixedPredictive,
)

__all__ = ["FAMILY", "Mixed", "MixedPredictive"]
