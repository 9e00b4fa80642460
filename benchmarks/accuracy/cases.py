"""What one line of an accuracy suite is about: a data set, and how it is fitted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.problems import Columns, Source
from vcuda.data.simulate import GraphFamily, Mechanism

Kind = Literal["fit", "oracle", "rescaling", "calibration"]


@dataclass(frozen=True)
class Case:
    """One run, in words and numbers that go into its line as they are.

    Parameters
    ----------
    suite
        The suite that it belongs to.
    kind
        ``"fit"``; ``"oracle"``, told the true order; ``"rescaling"``, a fit beside one of the same columns in
        random units; ``"calibration"``, a block of small data sets whose truth is drawn from the prior.
    source
        ``"paper"`` and ``"fresh"`` sets are made by `paper_dataset` and `simulate` with ``index`` as index or
        seed; ``"prior"`` by the model itself; ``"sachs"`` has one table, and ``index`` is the restart.
    columns
        How they are given to the fit; ``"prior units"``: neither standardised nor centred, so that the prior of
        the score is exactly that of the drawn truth.
    engine, model, noise, prior
        As `vcuda.fit` takes them; None is its default. Engine ``"straight-through"`` is the preset ``paper``.
    index
        Of the data set; the seed of the fit as well.
    """

    suite: str
    source: Source
    engine: str
    model: str
    noise: str | None
    kind: Kind = "fit"
    graph: GraphFamily | None = None
    mechanism: Mechanism | None = None
    nodes: int = 10
    edges: int | None = None
    rows: int = 1_000
    columns: Columns = "raw"
    prior: float | None = None
    index: int = 0

    def what(self) -> dict[str, Any]:
        """The part of the line that says what was run."""
        return asdict(self)

    def words(self) -> str:
        """One line for people, and what ``--only`` is looked for in."""
        size = f"d={self.nodes}" + ("" if self.edges is None else f" e={self.edges}") + f" n={self.rows}"
        shown = (self.kind, self.source, self.graph, self.mechanism, size, self.columns, self.engine, self.model)
        return " ".join(str(part) for part in (*shown, self.noise, f"index={self.index}") if part is not None)


def in_random_units(values: np.ndarray, seed: int) -> np.ndarray:
    """Multiply every column by its own factor between a thousandth and a thousand."""
    return values * 10.0 ** np.random.default_rng(seed).uniform(-3, 3, values.shape[1])
