"""From a table to a validated dataset."""

from vcuda.data.dataset import Dataset
from vcuda.data.library import BundledTable, Card, read_graph, write_graph
from vcuda.data.reading import as_dataset

__all__ = ["BundledTable", "Card", "Dataset", "as_dataset", "read_graph", "write_graph"]
