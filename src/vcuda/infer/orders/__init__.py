"""Tempered sampling over node orders, near-exact for thousands of columns.

``settings`` holds the spec, ``sampling`` puts together: ``search`` finds candidate parents in rounds (``candidates``,
``greedy_parents``; ``lazy_tables``, ``interaction_filter`` and ``hubs`` for slow scores; ``hill_climb_check``), ``score_tables`` scores all their subsets, which ``tables`` holds, ``table_layout`` lays them out for
``sweeps``, the compiled Gibbs updates of priorities; ``ladders`` has the temperatures, ``groups`` runs them on workers,
and ``diagnostics`` judges the result.
"""

from vcuda.infer.orders.sampling import OrdersResult, run_orders
from vcuda.infer.orders.settings import Orders

__all__ = ["Orders", "OrdersResult", "run_orders"]
