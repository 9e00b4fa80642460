"""A posterior as a weighted set of DAGs, and estimates averaged over them: by DoWhy, or by any other method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from vcuda.arguments import check_draws, two_positions
from vcuda.errors import ConfigError, MissingExtraError
from vcuda.posterior import GraphSamples, Posterior

if TYPE_CHECKING:
    import networkx as nx

# A number; a number and its standard error; or None where the graph does not identify the effect.
Estimate = float | tuple[float, float] | None


class WeightedDag(NamedTuple):
    """One DAG and its share of the posterior."""

    weight: float
    graph: nx.DiGraph


def weighted_dags(
    posterior: Posterior | GraphSamples, *, draws: int = 1000, seed: int = 0, most: int | None = None
) -> list[WeightedDag]:
    """The different DAGs among ``draws`` from a posterior, the most probable first, as networkx graphs.

    Equal graphs are one, with their weights added. The weights sum to one, unless ``most`` keeps only so many graphs:
    then they sum to the share that these have. Drawn graphs can be given in place of a posterior.
    """
    check_draws(draws)
    if most is not None and most < 1:
        raise ConfigError(f"most must be at least 1, or None for all graphs, not {most}")
    samples = posterior if isinstance(posterior, GraphSamples) else posterior.sample(draws, seed=seed)
    first: dict[bytes, int] = {}
    weights: dict[bytes, float] = {}
    for k, weight in enumerate(samples.weights.tolist()):
        sources, targets = samples.edges(k)
        code = np.sort(sources.astype(np.int64) * samples.nodes + targets).tobytes()
        first.setdefault(code, k)
        weights[code] = weights.get(code, 0.0) + weight
    heaviest = sorted(weights, key=lambda code: -weights[code])[:most]
    return [WeightedDag(weights[code], _digraph(samples, first[code])) for code in heaviest]


def _digraph(samples: GraphSamples, k: int) -> nx.DiGraph:
    import networkx as nx

    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(samples.names)
    graph.add_edges_from((samples.names[i], samples.names[j]) for i, j in zip(*samples.edges(k), strict=True))
    return graph


@dataclass(frozen=True, eq=False)
class AveragedEstimate:
    """An estimate averaged over weighted DAGs, those in which the effect is identified.

    Parameters
    ----------
    mean
        The weighted mean; not a number when no DAG identifies the effect.
    between
        The standard deviation between DAGs: what not knowing the graph contributes.
    within
        The root mean square of the standard errors, as far as they were told: what few rows contribute.
    identified
        The share of the weight whose DAGs identify the effect.
    covered
        The share of the posterior that the DAGs hold.
    table
        A line for each DAG: ``weight``, ``edges``, ``estimate``, ``standard_error``.
    """

    mean: float
    between: float
    within: float
    identified: float
    covered: float
    table: pd.DataFrame

    @property
    def spread(self) -> float:
        """The standard deviation of the whole, between DAGs and within them."""
        return math.hypot(self.between, self.within)

    def __repr__(self) -> str:
        return (
            f"<Estimate over {len(self.table)} DAGs: mean {self.mean:.4g}, spread {self.spread:.3g} "
            f"({self.between:.3g} between DAGs), identified in {self.identified:.0%} of them by weight>"
        )


def average_over_dags(
    dags: Iterable[WeightedDag] | Posterior, estimate: Callable[[nx.DiGraph], Estimate]
) -> AveragedEstimate:
    """Average what ``estimate`` says of each DAG by the weights of the DAGs.

    Parameters
    ----------
    dags
        From :func:`weighted_dags`; a posterior is taken with that function's defaults.
    estimate
        Called once for each DAG, a networkx ``DiGraph``. It returns a number, or a number and its standard error, or
        None (or not a number) where that DAG does not identify the effect.

    Examples
    --------
    >>> import networkx as nx
    >>> two = [WeightedDag(0.75, nx.DiGraph([("a", "b")])), WeightedDag(0.25, nx.DiGraph([("b", "a")]))]
    >>> average_over_dags(two, lambda graph: 2.0 if graph.has_edge("a", "b") else 0.0).mean
    1.5
    """
    members = weighted_dags(dags) if isinstance(dags, Posterior) else list(dags)
    if not members:
        raise ConfigError("there are no DAGs to average over; expected the list that weighted_dags gives")
    weights = np.array([member.weight for member in members])
    if not (np.all(weights >= 0) and 0 < weights.sum() < 1 + 1e-6):
        raise ConfigError("the weights of DAGs must not be negative and must sum to at most one")
    answer = np.array([_number_and_error(estimate(member.graph)) for member in members])
    values, errors = answer[:, 0], answer[:, 1]
    known = np.isfinite(values)
    identified = float(weights[known].sum() / weights.sum())
    mean = between = within = math.nan
    if weights[known].sum() > 0:
        shares = weights[known] / weights[known].sum()
        mean = float(shares @ values[known])
        between = math.sqrt(max(0.0, float(shares @ (values[known] - mean) ** 2)))
        within = math.sqrt(float(shares @ np.nan_to_num(errors[known]) ** 2))
    table = pd.DataFrame(
        {
            "weight": weights,
            "edges": [member.graph.number_of_edges() for member in members],
            "estimate": values,
            "standard_error": errors,
        }
    )
    return AveragedEstimate(mean, between, within, identified, float(min(weights.sum(), 1.0)), table)


def _number_and_error(answer: Estimate) -> tuple[float, float]:
    if answer is None:
        return math.nan, math.nan
    if isinstance(answer, tuple):
        return float(answer[0]), float(answer[1])
    return float(answer), math.nan


def dowhy_estimate(
    data: pd.DataFrame,
    treatment: str,
    outcome: str,
    *,
    method: str = "backdoor.linear_regression",
    confounded: Sequence[tuple[str, str]] = (),
    standard_errors: bool = False,
) -> Callable[[nx.DiGraph], Estimate]:
    """The effect of ``treatment`` on ``outcome`` by DoWhy, as a function of the DAG, for :func:`average_over_dags`.

    Where no directed path leads to the outcome the effect is 0.

    Parameters
    ----------
    data
        The table, with columns named as in the posterior.
    method
        DoWhy's ``method_name``; what it needs to identify the effect it must find in the DAG.
    confounded
        Pairs of variables that are thought to have a hidden common cause, which is added to every DAG.
    standard_errors
        Ask DoWhy for them too. For many methods, and for regressions with effect modifiers, it fits a hundred
        bootstrap samples, which takes a minute or more for each DAG.
    """
    two_positions([str(name) for name in data.columns], treatment, outcome)
    try:
        from dowhy import CausalModel
    except ImportError:
        raise MissingExtraError("dowhy", "dowhy", "an estimate by DoWhy") from None

    def estimate(graph: nx.DiGraph) -> Estimate:
        assumed = graph.copy()
        for number, pair in enumerate(confounded):
            hidden = f"hidden cause {number + 1}"
            assumed.add_edges_from((hidden, member) for member in pair)
        model = CausalModel(data, treatment, outcome, graph=assumed)
        found = model.identify_effect(proceed_when_unidentifiable=False)
        if getattr(found, "no_directed_path", False):
            return 0.0
        answer = model.estimate_effect(found, method_name=method)
        if answer.value is None:
            return None
        value = float(np.ravel(answer.value)[0])
        return (value, float(np.ravel(answer.get_standard_error())[0])) if standard_errors else value

    return estimate
