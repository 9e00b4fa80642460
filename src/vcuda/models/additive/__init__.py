"""Sums of smooth functions of single parents, with the weights of their basis functions integrated out."""

from vcuda.models.additive.basis import ColumnBasis
from vcuda.models.additive.prediction import AdditivePredictive
from vcuda.models.additive.score import AdditiveBasis, AdditiveBasisScore
from vcuda.models.protocol import Candidate, Family

# Products of features take 8 (6 d)² bytes: .3 GB at this number of columns.
MOST_COLUMNS = 1000

FAMILY = Family(
    name="additive",
    words="additive: each variable is a sum of smooth functions of its direct causes, plus noise",
    specs={"unequal": AdditiveBasis()},
    predictive=AdditivePredictive,
    candidates=(
        Candidate(
            "additive",
            "unequal",
            AdditiveBasis(),
            "nonlinear, additive",
            phrase="a sum of smooth functions",
            screen=AdditiveBasis(),
            most_columns=MOST_COLUMNS,
        ),
    ),
)

__all__ = ["FAMILY", "AdditiveBasis", "AdditiveBasisScore", "AdditivePredictive", "ColumnBasis"]
