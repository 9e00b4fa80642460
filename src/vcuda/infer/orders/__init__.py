"""Tempered sampling over node orders, near-exact for thousands of columns.

``settings`` holds the spec, and ``sampling`` runs the engine. ``search`` finds candidate parents in rounds, with
``candidates``, ``greedy_parents``, ``lazy_tables``, ``interaction_filter`` and ``hubs``; ``hill_climb_check`` looks for
better graphs. ``score_tables`` scores all subsets of the candidates, ``tables`` holds them, and ``table_layout`` lays
them out for ``sweeps``, the compiled Gibbs updates of priorities. ``ladders`` has the temperatures, ``groups`` runs
replicas on workers, and ``diagnostics`` judges the result.
"""

from vcuda.infer.orders.engine import OrderSampling
from vcuda.infer.orders.sampling import OrdersResult, run_orders
from vcuda.infer.orders.settings import Orders

__all__ = ["OrderSampling", "Orders", "OrdersResult", "run_orders"]
