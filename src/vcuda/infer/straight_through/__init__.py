"""The paper's engine: a distribution over DAGs and the functions of all nodes, trained together by gradients.

``settings`` holds the spec, ``program`` the compiled steps, ``training`` the loop around them, ``elbo`` the objective
and the padded rows it is computed on, ``early_stopping`` early stopping and the best states.
"""

from vcuda.infer.straight_through.settings import StraightThrough
from vcuda.infer.straight_through.training import run_straight_through

__all__ = ["StraightThrough", "run_straight_through"]
