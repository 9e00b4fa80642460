"""From a table to a validated dataset; each name is imported on first use: a missing file is refused at once."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset as Dataset
    from vcuda.data.library import BundledTable as BundledTable
    from vcuda.data.library import Card as Card
    from vcuda.data.library import read_graph as read_graph
    from vcuda.data.library import write_graph as write_graph
    from vcuda.data.reading import as_dataset as as_dataset

_HOME_OF = {
    "Dataset": "dataset",
    "as_dataset": "reading",
    **dict.fromkeys(("BundledTable", "Card", "read_graph", "write_graph"), "library"),
}

__all__ = ["BundledTable", "Card", "Dataset", "as_dataset", "read_graph", "write_graph"]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"vcuda.data.{_HOME_OF[name]}"), name)
