"""2b. MODELS: how a node depends on its parents."""

from vcuda.models.linear import Linear
from vcuda.models.mlp import MLP

MODELS: dict[str, type] = {Linear.name: Linear, MLP.name: MLP}

__all__ = ["MLP", "MODELS", "Linear"]
