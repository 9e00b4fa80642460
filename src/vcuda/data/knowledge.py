"""What is known of the graph before the data are seen: by column name, checked, and turned into matrices."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vcuda.data.knowledge_files import read_parameters, written
from vcuda.data.messages import listed, nearest, shortened
from vcuda.errors import ConfigError, KnowledgeError
from vcuda.specs import to_json

ARROW = "->"
# Columns of a cycle that a message names.
LONGEST_CYCLE = 8

Edge = tuple[str, str]


class EdgeRules(NamedTuple):
    """Knowledge for the d columns of a table, as engines take it; each is (d, d).

    ``allowed`` and ``required`` are booleans, and what is required is allowed. ``log_odds`` are those of every edge
    given that the order admits it, or None when no edge has a probability of its own.
    """

    allowed: np.ndarray
    required: np.ndarray
    log_odds: np.ndarray | None

    def hold(self, probabilities: np.ndarray) -> np.ndarray:
        """Edge probabilities (d, d) without the rounding of what is certain: 1 if required, 0 if forbidden."""
        return np.where(self.required, 1.0, np.where(self.allowed, probabilities, 0.0))


@dataclass(frozen=True)
class Knowledge:
    """What is known of the causes, by column name; every sampled graph obeys it.

    An edge is a pair ``("a", "b")``, or the text ``"a -> b"``, and means that a is a direct cause of b.

    Parameters
    ----------
    required
        Edges that are in every graph.
    forbidden
        Edges that are in none.
    tiers
        Groups of columns from early to late: no edge points from a later group to an earlier one. Columns in no group
        are free.
    within_tiers
        Whether there may be edges between columns of one group.
    roots
        Columns without causes.
    sinks
        Columns without effects.
    upstream
        Pairs of columns of which the first is a cause of the second, directly or by others: every graph has a way.
        Engines exact and orders obey it.
    probabilities
        The prior probability of single edges, ``{("a", "b"): 0.9}``, given that a comes before b in the order of the
        variables: in place of the one that all other edges have.

    Examples
    --------
    >>> Knowledge(required=["dose -> response"], roots=["age"]).required
    (('dose', 'response'),)
    """

    required: tuple[Edge, ...] = ()
    forbidden: tuple[Edge, ...] = ()
    tiers: tuple[tuple[str, ...], ...] = ()
    within_tiers: bool = True
    roots: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    probabilities: tuple[tuple[str, str, float], ...] = ()
    upstream: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        def put(field: str, value: tuple[Any, ...]) -> None:
            object.__setattr__(self, field, tuple(dict.fromkeys(value)))

        for field in ("required", "forbidden", "upstream"):
            put(field, tuple(_edge(edge, field) for edge in _each(getattr(self, field), field)))
        for field in ("roots", "sinks"):
            put(field, tuple(str(name) for name in _each(getattr(self, field), field)))
        tiers = tuple(tuple(str(name) for name in _each(tier, "tiers")) for tier in _each(self.tiers, "tiers"))
        object.__setattr__(self, "tiers", tiers)
        put("probabilities", _probabilities(self.probabilities))
        if not isinstance(self.within_tiers, bool):
            raise KnowledgeError(f"within_tiers must be true or false, not {shortened(self.within_tiers)}")
        self._check()

    def __bool__(self) -> bool:
        return any(
            (self.required, self.forbidden, self.tiers, self.roots, self.sinks, self.probabilities, self.upstream)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that is named, in the order of naming."""
        edges = (*self.required, *self.forbidden, *self.upstream, *(triple[:2] for triple in self.probabilities))
        ends = [name for edge in edges for name in edge]
        grouped = [name for tier in self.tiers for name in tier]
        return tuple(dict.fromkeys([*ends, *grouped, *self.roots, *self.sinks]))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Knowledge:
        """From a TOML file with the names of the parameters as keys, a CSV file of edges, or a file of another program.

        The columns of the CSV file are source, target, kind (required, forbidden or probability) and, where there
        are probabilities, probability. Knowledge of Tetrad (.txt, .knowledge) is read as it is; of a graph of Tetrad
        (.tetrad, .txt), DAGitty (.dagitty) or a Bayesian network (.bif) all edges are required.
        """
        file, described = read_parameters(path)
        try:
            return cls.from_dict(described)
        except KnowledgeError as error:
            raise KnowledgeError(f"{file}: {error}") from None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write what is known to a file; its ending says the format, as :meth:`read` takes it (.txt is Tetrad's).

        All but .toml hold less than this class does, and what does not fit is refused.
        """
        text = written(Path(path), self.to_dict(), self.names)
        try:
            Path(path).write_bytes(text.encode("utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Knowledge:
        """From the parameters by name, as a TOML file or the config of a run has them."""
        known = [field.name for field in fields(cls)]
        for key in described:
            if key not in known:
                raise KnowledgeError(
                    f"knowledge has no key {shortened(key)}{nearest(str(key), known)}: the keys are {listed(known, 9)}"
                )
        return cls(**described)

    def to_dict(self) -> dict[str, Any]:
        """All parameters as lists that JSON can hold; :meth:`from_dict` reads them."""
        described: dict[str, Any] = to_json(self)
        if not self.upstream:
            # Runs without it read as those of versions that did not have it.
            del described["upstream"]
        return described

    def joined(self, other: Knowledge) -> Knowledge:
        """Both together; only one of them may have tiers."""
        if self.tiers and other.tiers:
            raise KnowledgeError("tiers are given twice; leave out those of the file or those of the options")
        return Knowledge(
            required=self.required + other.required,
            forbidden=self.forbidden + other.forbidden,
            tiers=self.tiers or other.tiers,
            within_tiers=self.within_tiers and other.within_tiers,
            roots=self.roots + other.roots,
            sinks=self.sinks + other.sinks,
            probabilities=self.probabilities + other.probabilities,
            upstream=self.upstream + other.upstream,
        )

    def check_columns(self, names: Sequence[str], left_out: Sequence[tuple[str, str]] = ()) -> None:
        """Refuse a name that is no column of a table; ``left_out`` has columns that are none, with the reason."""
        reasons, columns = dict(left_out), set(names)
        for name in self.names:
            if name in reasons:
                raise KnowledgeError(
                    f"knowledge names {shortened(name)}, which was left out of the table, since it {reasons[name]}; "
                    "leave it out of the knowledge too, or make it a variable"
                )
            if name not in columns:
                hint = nearest(name, names) or f": the columns are {listed(list(names))}"
                raise KnowledgeError(f"knowledge names {shortened(name)}, which is no column of the table{hint}")

    def for_columns(
        self, names: Sequence[str], *, edge_probability: float, left_out: Sequence[tuple[str, str]] = ()
    ) -> EdgeRules:
        """As matrices for the columns of a table; ``edge_probability`` is that of edges without one of their own.

        ``left_out`` has columns that are no variables, with the reason.
        """
        self.check_columns(names, left_out)
        position = {name: k for k, name in enumerate(names)}
        allowed = ~np.eye(len(names), dtype=bool)
        required = np.zeros_like(allowed)
        for source, target in self.forbidden:
            allowed[position[source], position[target]] = False
        allowed[:, [position[name] for name in self.roots]] = False
        allowed[[position[name] for name in self.sinks]] = False
        tier = np.full(len(names), -1)
        for number, members in enumerate(self.tiers):
            tier[[position[name] for name in members]] = number
        later = tier[:, None] > tier if self.within_tiers else tier[:, None] >= tier
        allowed &= ~(later & (tier[:, None] >= 0) & (tier >= 0))
        for source, target in self.required:
            required[position[source], position[target]] = True
        log_odds = None
        if self.probabilities:
            log_odds = np.full(allowed.shape, math.log(edge_probability) - math.log1p(-edge_probability))
            for source, target, probability in self.probabilities:
                log_odds[position[source], position[target]] = math.log(probability) - math.log1p(-probability)
        return EdgeRules(allowed, required, log_odds)

    def sentence(self) -> str:
        """How much is known, for the summary of a fit."""
        counted = (
            (len(self.required), "edge required", "edges required"),
            (len(self.forbidden), "edge forbidden", "edges forbidden"),
            (len(self.tiers), "tier", "tiers"),
            (len(self.roots), "root", "roots"),
            (len(self.sinks), "sink", "sinks"),
            (len(self.upstream), "column upstream of another", "columns upstream of others"),
            (len(self.probabilities), "edge with its own probability", "edges with their own probability"),
        )
        shown_text = [f"{number} {one if number == 1 else many}" for number, one, many in counted if number]
        return f"Every graph obeys the stated knowledge: {', '.join(shown_text)}."

    def _check(self) -> None:
        """Refuse what contradicts itself, each contradiction by its own sentence."""
        named = self.required + self.forbidden + self.upstream
        for source, target in named + tuple((s, t) for s, t, _ in self.probabilities):
            if source == target:
                raise KnowledgeError(f"the edge {_arrow(source, target)} goes from a column to itself: remove it")
        tier: dict[str, int] = {}
        for number, members in enumerate(self.tiers):
            for name in members:
                if tier.setdefault(name, number) != number:
                    raise KnowledgeError(
                        f"column {shortened(name)} is in tiers {tier[name] + 1} and {number + 1}: keep one"
                    )
        required = set(self.required)
        why_forbidden = self._reasons(tier)
        for source, target in self.required:
            reason = why_forbidden(source, target)
            if reason:
                raise KnowledgeError(
                    f"the edge {_arrow(source, target)} is required, but {reason}: drop one of the two"
                )
        for source, target in self.upstream:
            if target in self.roots or source in self.sinks:
                end = f"{shortened(target)} is a root" if target in self.roots else f"{shortened(source)} is a sink"
                raise KnowledgeError(
                    f"{shortened(source)} is to be upstream of {shortened(target)}, but {end}: drop one of the two"
                )
        cycle = _cycle(self.required + self.upstream)
        if cycle:
            shown = cycle if len(cycle) <= LONGEST_CYCLE else [*cycle[: LONGEST_CYCLE - 1], "...", cycle[-1]]
            shown_text = f" {ARROW} ".join(shortened(name) for name in shown)
            raise KnowledgeError(
                f"the required {'edges and ways' if self.upstream else 'edges'} {shown_text} form a cycle, and no "
                "variable causes itself: drop one of them"
            )
        seen: dict[Edge, float] = {}
        for source, target, probability in self.probabilities:
            edge = source, target
            if not 0 < probability < 1:
                raise KnowledgeError(
                    f"the probability of {_arrow(*edge)} is {probability:g}, but must lie between 0 and 1: say what is "
                    "certain as a required or a forbidden edge"
                )
            if seen.setdefault(edge, probability) != probability:
                raise KnowledgeError(
                    f"{_arrow(*edge)} has the probabilities {seen[edge]:g} and {probability:g}: keep one"
                )
            if edge in required:
                raise KnowledgeError(f"{_arrow(*edge)} has a probability, but is required as well: drop one of the two")
            reason = why_forbidden(source, target)
            if reason:
                raise KnowledgeError(f"{_arrow(*edge)} has a probability, but {reason}: drop one of the two")

    def _reasons(self, tier: Mapping[str, int]) -> Callable[[str, str], str | None]:
        """The question why an edge must not be, with None for one that may be; sets, as it is asked for every edge."""
        forbidden, roots, sinks = set(self.forbidden), set(self.roots), set(self.sinks)

        def why_forbidden(source: str, target: str) -> str | None:
            early, late = shortened(source), shortened(target)
            if (source, target) in forbidden:
                return "it is forbidden as well"
            if target in roots:
                return f"{late} is a root, which has no causes"
            if source in sinks:
                return f"{early} is a sink, which has no effects"
            if source in tier and target in tier:
                if tier[source] > tier[target]:
                    return f"{early} is in tier {tier[source] + 1}, after {late} in tier {tier[target] + 1}"
                if tier[source] == tier[target] and not self.within_tiers:
                    return f"both are in tier {tier[source] + 1}, and within_tiers is false"
            return None

        return why_forbidden


def as_knowledge(knowledge: Knowledge | str | os.PathLike[str] | None) -> Knowledge:
    """Knowledge as it is, from a file, or none at all."""
    if isinstance(knowledge, Knowledge):
        return knowledge
    if knowledge is None:
        return Knowledge()
    if isinstance(knowledge, str | os.PathLike):
        return Knowledge.read(knowledge)
    raise KnowledgeError(
        f"knowledge must be a vcuda.Knowledge or the path of a file, such as known.toml, not {type(knowledge).__name__}"
    )


def _arrow(source: str, target: str) -> str:
    return f"{shortened(source)} {ARROW} {shortened(target)}"


def _each(value: Any, field: str) -> tuple[Any, ...]:
    """The members of a list; a text would fall apart into letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise KnowledgeError(f"{field} must be a list, not {shortened(value)}: put it in brackets")
    return tuple(value)


def _edge(edge: Any, field: str) -> Edge:
    ends = [end.strip() for end in edge.split(ARROW)] if isinstance(edge, str) else edge
    if not isinstance(ends, Iterable) or len(pair := tuple(ends)) != 2 or not all(str(end) for end in pair):
        raise KnowledgeError(f"{field} must hold edges such as ('a', 'b') or 'a -> b', not {shortened(edge)}")
    return str(pair[0]), str(pair[1])


def _probabilities(given: Any) -> tuple[tuple[str, str, float], ...]:
    """Source, target and probability, from a mapping of edges or from such triples."""
    if isinstance(given, Mapping):
        pairs = [(_edge(edge, "probabilities"), value) for edge, value in given.items()]
    else:
        triples = [_each(triple, "probabilities") for triple in _each(given, "probabilities")]
        if any(len(triple) != 3 for triple in triples):
            raise KnowledgeError("probabilities must map edges to numbers, such as {('a', 'b'): 0.9}")
        pairs = [(_edge(triple[:2], "probabilities"), triple[2]) for triple in triples]
    for edge, value in pairs:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise KnowledgeError(f"the probability of {_arrow(*edge)} must be a number, not {shortened(value)}")
    return tuple((*edge, _float(value)) for edge, value in pairs)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # of a whole number
        return math.inf


def _cycle(edges: Sequence[Edge]) -> list[str]:
    """One cycle among the edges, its first column repeated at the end; empty when there is none."""
    effects: dict[str, list[str]] = {}
    for source, target in edges:
        effects.setdefault(source, []).append(target)
    done: set[str] = set()
    for start in effects:
        way, choices = {start: None}, [iter(effects[start])]  # a dict for its order, and because it is asked often
        while way:
            step = next(choices[-1], None)
            if step is None:
                done.add(way.popitem()[0])
                choices.pop()
            elif step in way:
                passed = list(way)
                return [*passed[passed.index(step) :], step]
            elif step not in done:
                way[step] = None
                choices.append(iter(effects.get(step, ())))
    return []
