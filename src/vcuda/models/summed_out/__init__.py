"""Local scores that sum out a nuisance set of each node.

Some columns may be parents and are no nodes of the graph that is searched: in a time series the columns of earlier
steps. The score of a node given parents U among the nodes is then a sum over all sets N of such columns,

    score(j, U) = log sum_N exp(inner(j, U and N) + log p(N)),

where ``inner`` is any score of the wide table. Engines take it as it is, on d nodes. Given U the sets N have a
posterior of their own, from which the whole graph is drawn afterwards (:class:`NuisancePosterior`).

The sum is exact where a node has up to eight such columns. Of more, the best ones are taken by forward selection
given U, all of their subsets are summed, and each of the others counts by its odds beside them, as if the others were
independent of each other.
"""

from __future__ import annotations

from vcuda.models.additive.score import AdditiveBasisScore
from vcuda.models.linear.score import GramScore
from vcuda.models.protocol import LocalScore
from vcuda.models.summed_out.base import NuisancePosterior, NuisancePrior, SummedOutScore
from vcuda.models.summed_out.regressions import SummedRegressions
from vcuda.models.summed_out.sets import SummedSets, SummedTables
from vcuda.models.tabulated import TabulatedScore

__all__ = [
    "NuisancePosterior",
    "NuisancePrior",
    "SummedOutScore",
    "SummedRegressions",
    "SummedSets",
    "SummedTables",
    "summed_out",
]


def summed_out(inner: LocalScore, prior: NuisancePrior, log_jacobian: float) -> LocalScore:
    """The score of the first d columns, with the others summed out; ``log_jacobian`` is that of the d columns."""
    if isinstance(inner, TabulatedScore):
        return SummedTables.summing(inner, prior)
    if isinstance(inner.parts[0], GramScore | AdditiveBasisScore):
        return SummedRegressions(inner, prior, log_jacobian)
    return SummedSets(inner, prior, log_jacobian)
