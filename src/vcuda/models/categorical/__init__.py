"""Columns of labels: a distribution for every combination of the parents' labels, integrated out."""

from vcuda.models.categorical.prediction import CategoricalPredictive, draw_distributions
from vcuda.models.categorical.score import BDeu, BDeuScore
from vcuda.models.protocol import Family

FAMILY = Family(
    name="categorical",
    words="categorical: probabilities of each variable's labels for every combination of its direct causes",
    specs={None: BDeu()},
    predictive=CategoricalPredictive,
)

__all__ = ["FAMILY", "BDeu", "BDeuScore", "CategoricalPredictive", "draw_distributions"]
