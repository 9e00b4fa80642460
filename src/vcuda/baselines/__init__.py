"""BASELINES: other methods on the same data, with the same answers; to compare with, and to know the floor.

A new one is one line in ``BASELINES``. The options of each, such as ``vcuda.baselines.Dibs``, are imported when they
are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcuda.infer.method import Method

if TYPE_CHECKING:
    from vcuda.baselines.base import BaselineSpec as BaselineSpec
    from vcuda.baselines.bayesdag import BayesDag as BayesDag
    from vcuda.baselines.dds import Dds as Dds
    from vcuda.baselines.dibs import Dibs as Dibs
    from vcuda.baselines.floors import BaseRate as BaseRate
    from vcuda.baselines.floors import EmptyGraph as EmptyGraph
    from vcuda.baselines.floors import R2Sort as R2Sort
    from vcuda.baselines.floors import RandomSort as RandomSort
    from vcuda.baselines.floors import VarianceSort as VarianceSort
    from vcuda.baselines.grandag import GranDag as GranDag
    from vcuda.baselines.mcsl import Mcsl as Mcsl

BASELINES: dict[str, Method] = {
    "empty": Method("vcuda.baselines.floors", "EmptyGraph", "NoGraph", "no edge at all"),
    "base-rate": Method("vcuda.baselines.floors", "BaseRate", "RandomGraphs", "random graphs"),
    "variance-sort": Method(
        "vcuda.baselines.floors", "VarianceSort", "SortedRegressions", "regressions in the order of the variances"
    ),
    "r2-sort": Method(
        "vcuda.baselines.floors", "R2Sort", "SortedRegressions", "regressions in the order of the explained variances"
    ),
    "random-sort": Method("vcuda.baselines.floors", "RandomSort", "SortedRegressions", "regressions in a random order"),
    "grandag": Method("vcuda.baselines.grandag", "GranDag", "PathTraining", "one graph by GraN-DAG"),
    "mcsl": Method("vcuda.baselines.mcsl", "Mcsl", "MaskTraining", "one graph by MCSL"),
    "dds": Method("vcuda.baselines.dds", "Dds", "SampledTraining", "a distribution over graphs by DDS (VI-DP-DAG)"),
    "bayesdag": Method("vcuda.baselines.bayesdag", "BayesDag", "Chains", "graphs sampled by BayesDAG"),
    "dibs": Method("vcuda.baselines.dibs", "Dibs", "Moving", "graphs sampled by DiBS"),
}

_HOME_OF = {method.spec_name: method.module for method in BASELINES.values()} | {"BaselineSpec": "vcuda.baselines.base"}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME_OF[name]), name)
