"""BASELINES: other methods on the same data, with the same answers; to compare with, and to know the floor."""

from vcuda.baselines.base import Baseline, BaselineResult, BaselineSpec, as_outcome
from vcuda.baselines.bayesdag import BayesDag, run_bayesdag
from vcuda.baselines.dds import Dds, run_dds
from vcuda.baselines.dibs import Dibs, run_dibs
from vcuda.baselines.floors import (
    BaseRate,
    EmptyGraph,
    R2Sort,
    RandomSort,
    VarianceSort,
    run_base_rate,
    run_empty,
    run_sorted,
)
from vcuda.baselines.grandag import GranDag, run_grandag
from vcuda.baselines.mcsl import Mcsl, run_mcsl

BASELINES: dict[str, tuple[type[BaselineSpec], Baseline]] = {
    EmptyGraph.name: (EmptyGraph, run_empty),
    BaseRate.name: (BaseRate, run_base_rate),
    VarianceSort.name: (VarianceSort, run_sorted),
    R2Sort.name: (R2Sort, run_sorted),
    RandomSort.name: (RandomSort, run_sorted),
    GranDag.name: (GranDag, run_grandag),
    Mcsl.name: (Mcsl, run_mcsl),
    Dds.name: (Dds, run_dds),
    BayesDag.name: (BayesDag, run_bayesdag),
    Dibs.name: (Dibs, run_dibs),
}

__all__ = [
    "BASELINES",
    "BaseRate",
    "Baseline",
    "BaselineResult",
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
    "as_outcome",
]
