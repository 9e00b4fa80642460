"""Smooth functions of all parents together: Gaussian processes, with functions and noise integrated out."""

from vcuda.models.additive import MOST_COLUMNS, AdditiveBasis
from vcuda.models.gaussian_process.prediction import GaussianProcessPredictive
from vcuda.models.gaussian_process.score import GaussianProcess, GaussianProcessScore
from vcuda.models.protocol import Candidate, Family

# Hundreds of n by n matrices are factorised: 5 seconds at ten columns and 1,000 rows, and by n³ more.
MOST_ROWS = 2000

FAMILY = Family(
    name="gp",
    words="Gaussian process: each variable is a smooth function of all its direct causes together, plus noise",
    specs={"unequal": GaussianProcess()},
    predictive=GaussianProcessPredictive,
    candidates=(
        Candidate(
            "gp",
            "unequal",
            GaussianProcess(),
            "nonlinear, Gaussian process",
            phrase="a smooth function of all causes",
            article="A Gaussian process",
            screen=AdditiveBasis(),
            slow=True,
            most_columns=MOST_COLUMNS,
            most_rows=MOST_ROWS,
        ),
    ),
)

__all__ = ["FAMILY", "GaussianProcess", "GaussianProcessPredictive", "GaussianProcessScore"]
