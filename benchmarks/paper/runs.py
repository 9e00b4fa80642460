"""What one line of the paper's grid is about: a data set and the method that is run on it; or a sampler."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from benchmarks.problems import Columns, Source
from vcuda.data.simulate import GraphFamily, Mechanism


@dataclass(frozen=True)
class Fit:
    """A method on a data set, in words and numbers that go into its line as they are.

    Parameters
    ----------
    source, graph, mechanism, nodes, edges, rows, columns, index
        The data set, as `benchmarks.problems.problem` makes it; ``index`` is the seed of the method as well. Sachs has
        one table, and ``index`` is the restart.
    method
        Its name in the grid.
    engine, preset, options
        What that name means for this data set.
    """

    source: Source
    graph: GraphFamily | None
    mechanism: Mechanism | None
    nodes: int
    edges: int | None
    rows: int
    columns: Columns
    method: str
    engine: str
    preset: str
    options: dict[str, Any] = field(default_factory=dict)
    index: int = 0
    kind: Literal["fit"] = "fit"

    def what(self) -> dict[str, Any]:
        """The part of the line that says what was run."""
        return asdict(self)

    def words(self) -> str:
        """One line for people, and what ``--only`` is looked for in."""
        size = f"d={self.nodes} e={self.edges}" if self.source != "sachs" else None
        shown = (self.source, self.graph, self.mechanism, size, self.columns, self.method, f"index={self.index}")
        return " ".join(str(part) for part in shown if part is not None)


@dataclass(frozen=True)
class Draw:
    """The time to draw DAGs of so many nodes from a distribution of `vcuda.dags`, or by the host's own samplers."""

    nodes: int
    distribution: str
    kind: Literal["sampling"] = "sampling"

    def what(self) -> dict[str, Any]:
        """The part of the line that says what was run."""
        return asdict(self)

    def words(self) -> str:
        """One line for people, and what ``--only`` is looked for in."""
        return f"sampling d={self.nodes} {self.distribution}"


Run = Fit | Draw
