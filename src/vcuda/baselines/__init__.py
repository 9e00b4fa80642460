"""BASELINES: other methods on the same data, with the same answers; to compare with, and to know the floor.

A new one is one line in ``BASELINES``.
"""

from vcuda.baselines.base import BaselineSpec
from vcuda.baselines.bayesdag import BayesDag, Chains
from vcuda.baselines.dds import Dds, SampledTraining
from vcuda.baselines.dibs import Dibs, Moving
from vcuda.baselines.floors import (
    BaseRate,
    EmptyGraph,
    NoGraph,
    R2Sort,
    RandomGraphs,
    RandomSort,
    SortedRegressions,
    VarianceSort,
)
from vcuda.baselines.grandag import GranDag, PathTraining
from vcuda.baselines.mcsl import MaskTraining, Mcsl
from vcuda.infer.engine import Method

BASELINES: dict[str, Method] = {
    EmptyGraph.name: Method(EmptyGraph, NoGraph),
    BaseRate.name: Method(BaseRate, RandomGraphs),
    VarianceSort.name: Method(VarianceSort, SortedRegressions),
    R2Sort.name: Method(R2Sort, SortedRegressions),
    RandomSort.name: Method(RandomSort, SortedRegressions),
    GranDag.name: Method(GranDag, PathTraining),
    Mcsl.name: Method(Mcsl, MaskTraining),
    Dds.name: Method(Dds, SampledTraining),
    BayesDag.name: Method(BayesDag, Chains),
    Dibs.name: Method(Dibs, Moving),
}

__all__ = [
    "BASELINES",
    "BaseRate",
    "BaselineSpec",
    "BayesDag",
    "Dds",
    "Dibs",
    "EmptyGraph",
    "GranDag",
    "Mcsl",
    "R2Sort",
    "RandomSort",
    "VarianceSort",
]
