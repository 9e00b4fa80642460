"""From a table to a validated dataset."""

from vcuda.data.dataset import Dataset, as_dataset
from vcuda.data.library import BundledTable, Card, read_graph, write_graph

__all__ = ["BundledTable", "Card", "Dataset", "as_dataset", "read_graph", "write_graph"]
