"""The stored lines of the grid, put together by setting and method: what tables, figures and findings are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.paper.plan import Plan
from benchmarks.paper.runs import Fit
from benchmarks.records import Line, Records

OURS = ("auto", "exact", "orders", "variational")
FLOORS = ("variance-sort", "r2-sort", "random-sort", "base-rate", "empty")
Family = Literal["ours", "paper", "competitor", "floor", "ablation"]
MECHANISMS = {"linear": "linear", "gp": "nonlinear"}


class Setting(NamedTuple):
    """The data sets that differ in nothing but their number."""

    source: str
    nodes: int
    edges: int | None
    mechanism: str | None
    graph: str | None
    columns: str

    @property
    def kind(self) -> str:
        """In words, without the size."""
        if self.source == "sachs" or self.graph is None or self.mechanism is None:
            return f"Sachs, {self.columns}"
        return f"{self.graph.upper()} {MECHANISMS[self.mechanism]}, {self.columns}"

    @property
    def words(self) -> str:
        """In words, with the size."""
        return self.kind if self.edges is None else f"{self.kind}, {self.size}"

    @property
    def size(self) -> str:
        return f"d = {self.nodes}, e = {self.edges}" if self.edges is not None else "Sachs"


@dataclass(frozen=True)
class Group:
    """The runs of one method in one setting, of so many that are planned."""

    setting: Setting
    method: str
    title: str
    family: Family
    corrected: bool
    temperature: float | None
    planned: int
    lines: tuple[Line, ...]

    @cached_property
    def done(self) -> list[Line]:
        """Those that ended by themselves; only these count for accuracy."""
        return [line for line in self.lines if "error" not in line and not line.get("over_limit")]

    @property
    def over(self) -> list[Line]:
        """Those that the limit ended."""
        return [line for line in self.lines if line.get("over_limit")]

    @property
    def failed(self) -> list[Line]:
        return [line for line in self.lines if "error" in line]

    def values(self, key: str) -> dict[int, float]:
        """A measure by the number of the set, where it is a number."""
        found = {line["index"]: line.get(key) for line in self.done}
        return {index: value for index, value in found.items() if value is not None and math.isfinite(value)}

    def mean(self, key: str) -> float | None:
        values = self.values(key)
        return float(np.mean(list(values.values()))) if values else None


class Paired(NamedTuple):
    """Two methods on the sets that both have: their means, and the standard error of the difference over data sets.

    There is none for one set, and none for restarts on the same table, which are no sample of tables.
    """

    one: float
    other: float
    error: float | None
    sets: int

    @property
    def difference(self) -> float:
        return self.one - self.other

    @property
    def clear(self) -> bool:
        """Whether zero is outside the 95 % interval of a paired t test, which for three sets is wide."""
        if self.error is None:
            return False
        return abs(self.difference) > float(stats.t.ppf(0.975, self.sets - 1)) * self.error


def paired(one: Group, other: Group, key: str) -> Paired | None:
    """Compare on common sets; None if there are none."""
    left, right = one.values(key), other.values(key)
    common = sorted(left.keys() & right.keys())
    if not common:
        return None
    first, second = (np.array([side[index] for index in common]) for side in (left, right))
    several = len(common) > 1 and one.setting.source != "sachs"
    error = float(np.std(first - second, ddof=1) / math.sqrt(len(common))) if several else None
    return Paired(float(first.mean()), float(second.mean()), error, len(common))


class Results:
    """Every planned run beside its stored line, if it has one.

    Lines that the plan does not have (of an earlier plan, say) are counted and used for nothing else.
    """

    def __init__(self, plan: Plan, records: Records) -> None:
        self.titles = plan.titles()
        self.limit_minutes = plan.limit_minutes
        self.sampling: list[Line] = []
        self.groups: list[Group] = []
        self.planned, self.planned_draws, self.lines = 0, 0, list[Line]()
        by_name: dict[tuple[Setting, str], list[tuple[int, list[Line]]]] = {}
        for runs in plan.groups:
            found = [line for line in (records.find(run.what()) for run in runs) if line is not None]
            self.planned += len(runs)
            self.lines += found
            first = runs[0]
            if isinstance(first, Fit):
                by_name.setdefault((_setting(first), first.method), []).append((len(runs), found))
            else:
                self.planned_draws += len(runs)
                self.sampling += [line for line in found if "error" not in line]
        for (setting, name), parts in by_name.items():
            method = plan.methods[name]
            self.groups.append(
                Group(
                    setting,
                    name,
                    method.title,
                    _family(method.engine, method.options),
                    method.preset == "fixed",
                    method.options.get("order_temperature"),
                    sum(count for count, _ in parts),
                    tuple(sorted((line for _, lines in parts for line in lines), key=lambda line: line["index"])),
                )
            )
        order = list(self.titles)
        self.groups.sort(key=lambda group: (_place(group.setting), order.index(group.method)))
        self.outside = len(records.lines) - len(self.lines)

    def compared(self) -> dict[Setting, list[Group]]:
        """By setting, the methods that have results there; the ablation apart."""
        return self._by_setting(group for group in self.groups if group.family != "ablation")

    def ablation(self) -> dict[Setting, list[Group]]:
        return self._by_setting(group for group in self.groups if group.family == "ablation")

    def sizes(self) -> dict[str, dict[Setting, list[Group]]]:
        """Simulated settings with results, by number of nodes and edges."""
        found: dict[str, dict[Setting, list[Group]]] = {}
        for setting, groups in self.compared().items():
            if setting.source != "sachs":
                found.setdefault(setting.size, {})[setting] = groups
        return found

    def sachs(self) -> dict[Setting, list[Group]]:
        return {setting: groups for setting, groups in self.compared().items() if setting.source == "sachs"}

    def timings(self) -> Iterator[dict[str, Any]]:
        """What was measured of the samplers, one method and size at a time."""
        for line in self.sampling:
            yield from line["timings"]

    @staticmethod
    def _by_setting(groups: Iterable[Group]) -> dict[Setting, list[Group]]:
        found: dict[Setting, list[Group]] = {}
        for group in groups:
            if group.done:
                found.setdefault(group.setting, []).append(group)
        return found


def complete(groups: Sequence[Group], key: str) -> list[Group]:
    """The methods that have this measure on as many sets as any method has, and so can be ranked by their means."""
    most = max((len(group.values(key)) for group in groups), default=0)
    return [group for group in groups if most and len(group.values(key)) == most]


def leaders(groups: Sequence[Group], key: str, *, least: bool = False) -> list[Group]:
    """The best of those by their mean, to the three digits that are shown; several if they tie."""
    ranked = complete(groups, key)
    means = [shown(group.mean(key)) for group in ranked]
    best = (min if least else max)(means, default=math.nan)
    return [group for group, mean in zip(ranked, means, strict=True) if mean == best]


def shown(value: float | None) -> float:
    """With three digits, as sentences and tables have it: what looks the same counts as the same."""
    return math.nan if value is None else float(f"{value:.3f}")


def running_seconds(line: Line) -> float:
    """Without compilation."""
    return float(line["seconds"] - line["seconds_compilation"])


def _setting(run: Fit) -> Setting:
    return Setting(run.source, run.nodes, run.edges, run.mechanism, run.graph, run.columns)


def _place(setting: Setting) -> tuple[Any, ...]:
    """Sachs last; small before large, linear before nonlinear, raw before standardised within a kind."""
    order = (setting.source == "sachs", setting.nodes, setting.edges or 0, setting.mechanism != "linear")
    return (*order, setting.graph or "", setting.columns)


def _family(engine: str, options: dict[str, Any]) -> Family:
    if "order_temperature" in options:
        return "ablation"
    if engine in OURS:
        return "ours"
    if engine in FLOORS:
        return "floor"
    return "paper" if engine == "straight-through" else "competitor"
