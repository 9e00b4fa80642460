"""The paper's family of distributions over DAGs with the weights integrated out, trained on exact gains of edges.

``settings`` holds the spec, ``training`` the loop, ``starts`` where restarts begin, ``natural_steps`` the compiled
steps, ``edge_gains`` what every edge gains, and ``mixtures`` what the restarts say together.
"""

from vcuda.infer.variational.mixtures import VariationalResult
from vcuda.infer.variational.settings import Variational
from vcuda.infer.variational.training import run_variational

__all__ = ["Variational", "VariationalResult", "run_variational"]
