"""What drives a variable: its direct and upstream causes, ranked by what they change in it.

Whether a variable is upstream is counted over drawn graphs. Effects cost more, and are computed for the likeliest
causes alone: the change of the target, along all paths, for a change of the cause that the table shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vcuda.arguments import check_draws, position, whole_number
from vcuda.checks.findings import Edge
from vcuda.data.knowledge import Knowledge
from vcuda.errors import ConfigError, KnowledgeError
from vcuda.posterior.posterior import Posterior, as_sentence
from vcuda.posterior.predictions import predictive_of
from vcuda.posterior.samples import GraphSamples
from vcuda.posterior.status import edges_in_doubt, edges_in_words, in_percent
from vcuda.summaries.categorical_effects import CategoryEffect, category_effect
from vcuda.summaries.display import answer_html
from vcuda.summaries.effects import Effect, central_range, effect, slopes_on
from vcuda.summaries.lags import refuse_lags
from vcuda.summaries.simulated_effects import Change, Measure, SimulatedEffect, simulated_effect
from vcuda.summaries.structures import NamedGraph, consensus

# Graphs in which causes are sought, and how often one must be upstream to be listed.
GRAPHS, LEAST_UPSTREAM = 1000, 0.2
# From where to where a number is changed.
LOW, HIGH = 0.1, 0.9
# Causal models drawn for each effect: of several kinds or labels, and where functions bend. Of lines, all effects at
# once, so many functions are drawn together.
SIMULATED_DRAWS, CURVE_DRAWS, FUNCTIONS_DRAWN = 200, 40, 20_000
# A direction is called open when the target is upstream with this probability, or an edge on the way the other way
# round; a cause is called direct from the last one on.
OPEN, OPEN_ON_THE_WAY, DIRECT = 0.1, 0.2, 0.5
COLUMNS = [
    "driver",
    "direct",
    "upstream",
    "before",
    "after",
    "measure",
    "unit",
    "effect",
    "low",
    "high",
    "value_before",
    "value_after",
    "hangs_on",
]


class Driver(NamedTuple):
    """One cause of the target.

    ``direct`` and ``upstream`` are the probabilities of an edge and of any directed path. ``change`` is what the cause
    changes when it is set from one value to another; None where the model has no functions. ``through`` names
    the variables that the effect passes, of one that is not direct. ``hangs_on`` says what it depends on beyond what
    every effect assumes.
    """

    name: str
    direct: float
    upstream: float
    change: Change | None
    ordered: bool
    through: tuple[str, ...]
    hangs_on: tuple[str, ...]

    @property
    def role(self) -> str:
        """Whether it is a direct cause, and how sure that is."""
        if self.direct >= DIRECT:
            return f"a direct cause ({in_percent(self.direct)})"
        through = f", through {' and '.join(self.through[:2])}" if self.through else ""
        return f"an upstream cause ({in_percent(self.upstream)}){through}"

    @property
    def doing(self) -> str:
        """What is changed, as the beginning of a sentence."""
        assert self.change is not None
        if self.ordered:
            return f"{self.name} up from {self.change.before} to {self.change.after}"
        return f"{self.name} set to {self.change.after} instead of {self.change.before}"

    @property
    def sentence(self) -> str:
        """What it changes, by how much, how sure that is and on what it hangs."""
        hangs = f" {as_sentence(self.hangs_on)}" if self.hangs_on else ""
        if self.change is None:
            return f"{self.name} is {self.role}.{hangs}"
        return f"{self.doing} {self.change.in_words}; it is {self.role}.{hangs}"


@dataclass(frozen=True, eq=False)
class Drivers:
    """What drives ``target``: its likely causes, the largest effect first.

    Parameters
    ----------
    drivers
        Each with its probabilities, its effect and what that hangs on.
    others
        How many further variables are upstream with at most ``least``.
    least
        The probability from which on a variable is listed.
    left_out
        Likely causes for which no effect was computed, as more were found than asked for.
    note
        Why there are no effects; empty if there are.
    caveat
        What no table can show and every effect assumes; where the model checks warn, that they do.
    """

    target: str
    drivers: tuple[Driver, ...]
    others: int
    least: float
    left_out: tuple[str, ...]
    note: str
    caveat: str

    @property
    def table(self) -> pd.DataFrame:
        """One row for each driver.

        ``direct`` and ``upstream`` are probabilities. ``effect`` is the change of ``measure`` in ``unit`` when the
        driver is set from ``before`` to ``after``; ``low`` to ``high`` holds 90 % of the posterior, and
        ``value_before`` and ``value_after`` are posterior means. A ratio has the unit ``times``.
        """
        lines = []
        for one in self.drivers:
            lead = (one.name, one.direct, one.upstream)
            hangs = "; ".join(one.hangs_on)
            if one.change is None:
                lines.append((*lead, "", "", "", "", *[np.nan] * 5, hangs))
                continue
            made = one.change
            ends = (made.value_before, made.value_after)
            lines.append((*lead, made.before, made.after, *made.measure, made.mean, *made.interval, *ends, hangs))
        table = pd.DataFrame(lines, columns=COLUMNS)
        table.attrs["caveat"] = self.caveat
        return table

    @property
    def sentences(self) -> list[str]:
        """What drives the target, by how much and how sure, without what all of it assumes."""
        if not self.drivers:
            least = in_percent(self.least)
            return [f"No column is likely to drive {self.target}: none is upstream of it with {least} or more."]
        found = [one.sentence for one in self.drivers]
        if self.note:
            found.append(self.note)
        if self.left_out:
            found.append(f"Also likely, without an effect: {', '.join(self.left_out)}.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dict: target, drivers with the columns of ``table`` and their sentences, others, note, caveat."""
        rows = self.table.astype(object).where(self.table.notna(), None).to_dict("records")
        sentences = (one.sentence for one in self.drivers)
        return {
            "target": self.target,
            "drivers": [row | {"sentence": sentence} for row, sentence in zip(rows, sentences, strict=True)],
            "left_out": list(self.left_out),
            "others": self.others,
            "note": self.note,
            "caveat": self.caveat,
        }

    def _repr_html_(self) -> str:
        columns = ["driver", "direct", "upstream", "before", "after", "effect", "low", "high", "unit", "hangs_on"]
        title = [f"What drives {self.target}:", *self.sentences]
        return answer_html(title, self.table[columns].rename(columns={"hangs_on": "hangs on"}), caveat=self.caveat)

    def __repr__(self) -> str:
        lines = "\n".join(f"  {sentence}" for sentence in self.sentences)
        return f"<What drives {self.target}:\n{lines}\n  {self.caveat}>"


def drivers(posterior: Posterior, target: str, *, most: int = 10, draws: int | None = None, seed: int = 0) -> Drivers:
    """What drives a variable, the largest effect first.

    Parameters
    ----------
    most
        Of how many variables, the likeliest to be upstream, an effect is computed.
    draws
        How many causal models are drawn for an effect; by default as many as take about a second or less.
    """
    refuse_lags(posterior, "drivers")
    most = whole_number("most", most, least=1)
    if draws is not None:
        check_draws(draws)
    goal = position(posterior.names, target)
    samples = posterior.sample(GRAPHS, seed=seed)
    above, below = _shares(samples, goal)
    direct = posterior.edge_probabilities.to_numpy()[:, goal]
    upstream = np.maximum(above, direct)
    upstream[goal] = 0.0
    order = np.argsort(-upstream, kind="stable")
    likely = [int(node) for node in order if upstream[node] >= LEAST_UPSTREAM]
    shown, left = likely[:most], likely[most:]
    try:
        changes, note = _changes(posterior, goal, shown, draws, seed), ""
    except ConfigError as error:
        changes, note = {}, as_sentence([f"there are no effects: {error}"])
    agreed = consensus(posterior)
    kinds = posterior.kinds
    found = [
        Driver(
            name=posterior.names[node],
            direct=float(direct[node]),
            upstream=float(upstream[node]),
            change=changes.get(node),
            ordered=kinds[node] in ("number", "count", "ordered") if kinds else posterior.categories is None,
            through=_through(agreed, node, goal),
            hangs_on=_hangs_on(posterior, agreed, node, goal, min(float(below[node]), 1 - float(upstream[node]))),
        )
        for node in shown
    ]
    found.sort(key=lambda one: -_size(one.change))
    return Drivers(
        target=target,
        drivers=tuple(found),
        others=len(posterior.names) - 1 - len(likely),
        least=LEAST_UPSTREAM,
        left_out=tuple(posterior.names[node] for node in left),
        note=note,
        caveat=posterior.caveat,
    )


def _size(change: Change | None) -> float:
    if change is None:
        return 0.0
    mean = abs(np.log(max(change.mean, 1e-300))) if change.measure.unit == "times" else abs(change.mean)
    return round(float(mean), 12)


def _shares(samples: GraphSamples, goal: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each node is upstream of the goal, and downstream of it, ``(d,)`` each."""
    above, below = np.zeros(samples.nodes), np.zeros(samples.nodes)
    for k, weight in enumerate(samples.weights):
        sources, targets = samples.edges(k)
        above[_reached(targets, sources, goal)] += weight
        below[_reached(sources, targets, goal)] += weight
    return np.minimum(above, 1.0), np.minimum(below, 1.0)


def _reached(start: np.ndarray, end: np.ndarray, goal: int) -> list[int]:
    """The nodes that edges lead to from the goal, without it."""
    reached, new = {goal}, [goal]
    while new:
        new = list(set(end[np.isin(start, new)].tolist()) - reached)
        reached.update(new)
    return sorted(reached - {goal})


def _on_the_way(agreed: NamedGraph, node: int, goal: int) -> tuple[set[int], set[int]]:
    """In the consensus graph: the node and all below it, and the goal and all above it."""
    sources, targets = np.nonzero(agreed.graph)
    return {node, *_reached(sources, targets, node)}, {goal, *_reached(targets, sources, goal)}


def _through(agreed: NamedGraph, node: int, goal: int) -> tuple[str, ...]:
    """The last variables that the effect passes before the goal."""
    below, _ = _on_the_way(agreed, node, goal)
    last = set(np.flatnonzero(agreed.graph[:, goal]).tolist())
    return tuple(agreed.names[k] for k in sorted(last & below - {node}))


def _hangs_on(posterior: Posterior, agreed: NamedGraph, node: int, goal: int, below: float) -> tuple[str, ...]:
    """Edges on the way that the checks put in doubt, an open direction, and what was stated as known."""
    names, said = posterior.names, []
    first, last = _on_the_way(agreed, node, goal)

    def between(edges: Iterable[Edge]) -> list[Edge]:
        """Those of the edges that are on the way, as the consensus graph has them."""
        found = []
        for edge in edges:
            i, j = (names.index(name) if name in names else -1 for name in edge)
            i, j = (j, i) if min(i, j) >= 0 and agreed.graph[j, i] else (i, j)
            if i in first and j in last:
                found.append(edge)
        return found

    doubted, by_shape = between(edges_in_doubt(posterior.checks())), between(posterior.provenance.by_shape)
    edges = agreed.edges()
    uncertain = edges[edges.opposite >= OPEN_ON_THE_WAY * (edges.probability + edges.opposite)]
    unsettled = between(zip(uncertain.source, uncertain.target, strict=True))
    if agreed.graph[node, goal]:
        # Of a direct cause the other ways matter less.
        own = {names[node], names[goal]}
        by_shape, unsettled = ([edge for edge in some if set(edge) == own] for some in (by_shape, unsettled))
    if doubted:
        said.append(f"the model checks put {edges_in_words(doubted, most=2)} in doubt")
    if by_shape:
        said.append(_directions(by_shape, ("rests", "rest"), "on the shape of the noise alone"))
    if below >= OPEN:
        said.append(f"the direction is open: with {in_percent(below)} it is {names[goal]} that drives {names[node]}")
    elif unsettled:
        said.append(_directions(unsettled, ("is", "are"), "open"))
    known = posterior.provenance.get("knowledge")
    if known:
        try:
            rules = Knowledge.from_dict(known).for_columns(names, edge_probability=0.5)
        except KnowledgeError:  # it names what is no variable here
            return tuple(said)
        if rules.required[node, goal]:
            said.append("the edge was stated as known")
        elif not rules.allowed[goal, node]:
            direct = agreed.graph[node, goal]
            said.append(
                "the direction was stated as known"
                if direct
                else f"that {names[goal]} does not drive {names[node]} was stated as known"
            )
    return tuple(said)


def _directions(edges: Sequence[Edge], verbs: tuple[str, str], rest: str) -> str:
    """What holds of the directions of some edges, the first two by name."""
    first, *others = (f"{source} -> {target}" for source, target in edges)
    if not others:
        return f"the direction of {first} {verbs[0]} {rest}"
    named = f"{first} and {others[0]}" if len(others) == 1 else f"{first}, {others[0]} and {len(others) - 1:,} more"
    return f"the directions of {named} {verbs[1]} {rest}"


# Effects --------------------------------------------------------------------------------------------------------------


def _changes(posterior: Posterior, goal: int, causes: Sequence[int], draws: int | None, seed: int) -> dict[int, Change]:
    """What each cause changes in the goal."""
    if posterior.kinds is not None:
        return {k: _of_kinds(posterior, k, goal, draws or SIMULATED_DRAWS, seed) for k in causes}
    if posterior.categories is not None:
        return {k: _of_labels(posterior, k, goal, draws or SIMULATED_DRAWS, seed) for k in causes}
    return _of_numbers(posterior, goal, causes, draws, seed)


def _of_kinds(posterior: Posterior, cause: int, goal: int, draws: int, seed: int) -> Change:
    predictive: Any = predictive_of(posterior.graph_posterior)
    own, at = predictive.rows[:, cause], None
    ends = np.quantile(own, [LOW, HIGH], method="inverted_cdf")
    if ends[0] == ends[1]:
        ends = np.array([own.min(), own.max()])
    if predictive.kinds[cause] in ("number", "count") and not predictive.columns[cause].levels.size:
        at = ends.tolist()
    names = posterior.names
    found: SimulatedEffect = simulated_effect(posterior, names[cause], names[goal], at=at, draws=draws, seed=seed)
    if predictive.kinds[cause] == "ordered":
        levels = predictive.columns[cause].levels
        return found.contrast(*(int(np.argmin(np.abs(levels - end))) for end in ends))
    return found.contrast()


def _of_labels(posterior: Posterior, cause: int, goal: int, draws: int, seed: int) -> Change:
    names = posterior.names
    found: CategoryEffect = category_effect(posterior, names[cause], names[goal], draws=draws, seed=seed)
    return found.contrast()


def _of_numbers(
    posterior: Posterior, goal: int, causes: Sequence[int], draws: int | None, seed: int
) -> dict[int, Change]:
    names = posterior.names
    measure = Measure(f"the expected {names[goal]}")
    ranges = {k: central_range(posterior, k, LOW, HIGH, seed=seed) for k in causes}
    number = draws or int(np.clip(FUNCTIONS_DRAWN // len(names), 100, 1000))
    slopes = slopes_on(posterior, goal, draws=number, seed=seed)
    found = {}
    for k in causes:
        low, high = ranges[k]
        if slopes is not None:
            values, changed = (np.nan, np.nan), slopes[:, k] * (high - low)
        else:
            one = effect(posterior, names[k], names[goal], at=[low, high], draws=draws or CURVE_DRAWS, seed=seed)
            assert isinstance(one, Effect)
            heights = one.curve["mean"].tolist()
            values, changed = (heights[0], heights[-1]), one.draws * (high - low)
        found[k] = Change(measure, f"{low:.4g}", f"{high:.4g}", *values, changed)
    return found
