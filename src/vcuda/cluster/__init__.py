"""Dask clusters: the workers that a fit hands its work to, and a cluster of local processes.

``dask_workers`` hands parts of a fit to the workers of a client and waits for them, ``on_workers`` is what runs there,
``opening`` starts local processes or finds a scheduler. ``dask`` itself is imported only when it is used.
"""

from vcuda.cluster.dask_workers import DaskWorkers
from vcuda.cluster.opening import as_workers, connected, local_cluster

__all__ = ["DaskWorkers", "as_workers", "connected", "local_cluster"]
