"""The paper's family of distributions over DAGs with the weights integrated out, trained on exact gains of edges.

``training`` holds the spec and the loop, ``natural_steps`` the compiled steps, ``toggles`` what every edge gains.
"""

from vcuda.infer.variational.training import Variational, VariationalResult, run_variational

__all__ = ["Variational", "VariationalResult", "run_variational"]
