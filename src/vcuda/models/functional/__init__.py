"""Models trained by gradient, the paper's own: functions of all nodes with parameters, and Gaussian noise."""

from vcuda.models.functional.linear import Linear
from vcuda.models.functional.mlp import MLP

MODELS: dict[str, type] = {Linear.name: Linear, MLP.name: MLP}

__all__ = ["MLP", "MODELS", "Linear"]
