"""The paper's engine: a distribution over DAGs and the functions of all nodes, trained together by gradients.

``settings`` holds the spec, ``program`` the compiled steps, ``training`` the engine around them, ``elbo`` the objective
and the padded rows it is computed on, ``early_stopping`` the best states and which restarts go on.
"""

from vcuda.infer.straight_through.settings import StraightThrough
from vcuda.infer.straight_through.training import Training

__all__ = ["StraightThrough", "Training"]
