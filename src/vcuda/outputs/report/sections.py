"""What a section of the report is, and what it is made from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from vcuda.outputs.report.html import Html, joined, name, paragraphs, table
from vcuda.posterior.posterior import Posterior
from vcuda.summaries.drivers import Drivers
from vcuda.summaries.structures import NamedGraph, consensus


@dataclass(frozen=True)
class Section:
    """One section of the report.

    Parameters
    ----------
    id
        Its anchor and its place in the data of the script: small letters and hyphens.
    title
        The heading.
    body
        What stands below it, made by the functions of html.py.
    link
        The word in the list of sections; none if it should not be listed.
    found, doubts
        Sentences for the first screen: among what was found, and among what could be wrong.
    data
        What the script needs of it, as JSON; it finds it under the id.
    """

    id: str
    title: str
    body: Html
    link: str = ""
    found: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]+(-[a-z]+)*", self.id):
            raise ValueError(f"the id of a section has small letters and hyphens, unlike {self.id!r}")
        if not isinstance(self.body, Html):
            raise TypeError(f"the body of section {self.id} must be made by the functions of vcuda.outputs.report.html")


@dataclass(frozen=True)
class Request:
    """The posterior that is reported, and how.

    Parameters
    ----------
    curves
        Of how many edges at most the effect is drawn where effects are no straight lines.
    seed
        For graphs and causal models that are drawn.
    """

    posterior: Posterior
    curves: int = 3
    seed: int = 0

    @cached_property
    def drivers(self) -> Drivers:
        """What drives the target of the fit."""
        return self.posterior.drivers(seed=self.seed)

    @cached_property
    def consensus(self) -> NamedGraph:
        """The one DAG that agrees with the posterior best."""
        return consensus(self.posterior)


class TableSection(NamedTuple):
    """What only some fits have to tell, in sentences and a table whose first two columns are names.

    ``numbers`` are the columns of the table that hold some, and ``found`` the sentences for the first screen.
    """

    id: str
    title: str
    link: str
    sentences: tuple[str, ...]
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numbers: tuple[int, ...]
    found: tuple[str, ...]

    def section(self, *more: Html) -> Section:
        """The same as a section of the report, with what else stands below the table."""
        rows = [(name(first), name(second), *rest) for first, second, *rest in self.rows]
        shown = (table(self.head, rows, right=self.numbers),) if rows else ()
        body = joined((paragraphs(self.sentences), *shown, *more))
        return Section(self.id, self.title, body, link=self.link, found=self.found)


def in_short(lead: str, named: Sequence[str], most: int) -> tuple[str, ...]:
    """A sentence for the first screen that names the first of several findings; none where there are none."""
    more = " and more" if len(named) > most else ""
    return (f"{lead}: {'; '.join(named[:most])}{more}.",) if named else ()


Maker = Callable[[Request], Section | None]
