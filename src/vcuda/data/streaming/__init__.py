"""Tables that need not fit into memory, fitted from statistics of them.

``table`` is what a fit holds: a table on disk, or on a cluster, with its statistics. ``passes`` reads such a table once
or twice; ``streams`` opens it, ``blocks`` checks its cells, which ``file_readers`` and ``partitions`` (of Dask) bring;
``accumulators`` add up what becomes the ``statistics``.
"""

from vcuda.data.streaming.table import StreamedTable, open_table

__all__ = ["StreamedTable", "open_table"]
