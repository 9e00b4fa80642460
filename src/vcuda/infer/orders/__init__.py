"""Tempered sampling over node orders, near-exact for thousands of columns.

``search`` finds candidate parents in rounds (``candidates``, ``top_down`` for equal noise, ``growing`` and ``matched``
for Gaussian processes, ``second_opinion`` where it may have erred), ``tables`` holds the scores of all their subsets,
``sweeps`` the compiled Gibbs updates of priorities, ``ladders`` the temperatures, ``agreement`` the diagnostics, and
``sampling`` puts them together.
"""

from vcuda.infer.orders.sampling import OrdersResult, run_orders
from vcuda.infer.orders.search import Orders

__all__ = ["Orders", "OrdersResult", "run_orders"]
