"""The paper's family of distributions over DAGs with the weights integrated out, trained on exact gains of edges.

``settings`` holds the spec, ``training`` the engine, ``starts`` where restarts begin, ``natural_gradient`` the compiled
steps, ``edge_gains`` what every edge gains, and ``mixtures`` what the restarts say together.
"""

from vcuda.infer.variational.settings import Variational
from vcuda.infer.variational.training import Climbing

__all__ = ["Climbing", "Variational"]
