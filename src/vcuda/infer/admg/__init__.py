"""Graphs with hidden causes: tempered sampling over acyclic graphs with directed and bidirected edges."""

from vcuda.infer.admg.engine import MixedGraphSampling
from vcuda.infer.admg.settings import MixedGraphs

__all__ = ["MixedGraphSampling", "MixedGraphs"]
