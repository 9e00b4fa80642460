"""Tempered sampling over node orders, near-exact for thousands of columns.

``settings`` holds the spec, ``sampling`` puts together: ``search`` finds candidate parents in rounds (``candidates``,
``greedy_parents``, ``top_down`` for equal noise, ``growing``, ``matched`` and ``hubs`` for Gaussian processes,
``second_opinion`` where it may have erred), ``filling`` scores all their subsets, which ``tables`` holds, ``networks``
lays them out for ``sweeps``, the compiled Gibbs updates of priorities; ``ladders`` has the temperatures, ``groups``
runs them on workers, and ``agreement`` has the diagnostics.
"""

from vcuda.infer.orders.engine import OrderSampling
from vcuda.infer.orders.sampling import OrdersResult, run_orders
from vcuda.infer.orders.settings import Orders

__all__ = ["OrderSampling", "Orders", "OrdersResult", "run_orders"]
