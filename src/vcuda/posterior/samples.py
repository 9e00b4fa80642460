"""GraphSamples: a weighted set of DAGs over named variables, the one currency of the package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vcuda.data.spreadsheets import as_cell, quoting
from vcuda.errors import ConfigError, RunError
from vcuda.graphs import is_acyclic_edges, y_structures
from vcuda.posterior.archives import UNREADABLE, read_arrays, save_arrays

# Edges are stored in few bytes, and take forty where they are counted or followed.
NODES_AT_A_TIME, EDGES_AT_A_TIME = 1 << 20, 1 << 22


@dataclass(frozen=True, eq=False)
class GraphSamples:
    """DAGs over the same named variables, each with a weight; a point estimate is one sample.

    Stored as edge lists, because a sampled DAG is sparse: 1,000 samples of 1,000 nodes with one parent a node take
    8 MB instead of the gigabyte of a boolean cube.

    Parameters
    ----------
    names
        The d variables.
    offsets
        ``(s + 1,)``: the edges of sample k are ``offsets[k]:offsets[k + 1]`` of the next two.
    sources, targets
        The edges of all samples, one after the other.
    weights
        ``(s,)``, not negative, summing to one.

    Examples
    --------
    >>> chain = GraphSamples.from_dense(("a", "b"), [[False, True], [False, False]])
    >>> len(chain), chain.edge_probabilities().tolist()
    (1, [[0.0, 1.0], [0.0, 0.0]])
    """

    names: tuple[str, ...]
    offsets: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def __post_init__(self) -> None:
        size = len(self.offsets) - 1
        edges = int(self.offsets[-1]) if size >= 0 else -1
        if self.offsets.dtype.kind != "i" or any(ends.dtype.kind not in "iu" for ends in (self.sources, self.targets)):
            raise ConfigError("offsets, sources and targets of graph samples must be whole numbers")
        if size < 1 or self.offsets[0] != 0 or np.any(np.diff(self.offsets) < 0):
            raise ConfigError("graph samples need at least one graph and offsets that rise from 0")
        if self.sources.shape != (edges,) or self.targets.shape != (edges,) or self.weights.shape != (size,):
            raise ConfigError(
                f"graph samples with {size} graphs and {edges} edges cannot have sources of shape "
                f"{self.sources.shape}, targets of shape {self.targets.shape}, weights of shape {self.weights.shape}"
            )
        if edges and int(np.diff(self.offsets).max()) > self.nodes * (self.nodes - 1) // 2:
            raise ConfigError(f"a graph of {self.nodes} nodes has more edges than it can have without a cycle")
        for ends in (self.sources, self.targets):
            if edges and (ends.min() < 0 or ends.max() >= self.nodes):
                raise ConfigError(f"an edge of the graph samples names a node outside 0..{self.nodes - 1}")
        if not np.all(self.weights >= 0) or not np.isclose(self.weights.sum(), 1.0, atol=1e-6):
            raise ConfigError("the weights of graph samples must not be negative and must sum to one")

    @classmethod
    def joined(cls, several: Sequence[GraphSamples], shares: Sequence[float]) -> GraphSamples:
        """All graphs of several samples of the same variables; ``shares`` are their total weights, summing to one."""
        ends = np.cumsum([0, *(int(one.offsets[-1]) for one in several)])
        offsets = [one.offsets[1:] + shift for one, shift in zip(several, ends, strict=False)]
        return cls(
            several[0].names,
            np.concatenate([np.zeros(1, dtype=several[0].offsets.dtype), *offsets]),
            np.concatenate([one.sources for one in several]),
            np.concatenate([one.targets for one in several]),
            np.concatenate([share * one.weights for one, share in zip(several, shares, strict=True)]),
        )

    @classmethod
    def from_dense(
        cls, names: Sequence[str], graphs: np.ndarray | Sequence[Any], weights: np.ndarray | None = None
    ) -> GraphSamples:
        """From ``(s, d, d)`` boolean graphs, or one ``(d, d)`` graph; equal weights unless given."""
        cube = np.asarray(graphs, dtype=bool)
        cube = cube[None] if cube.ndim == 2 else cube
        if cube.ndim != 3 or cube.shape[1:] != (len(names), len(names)):
            raise ConfigError(f"graphs of shape {cube.shape} do not fit {len(names)} names; expected (s, d, d)")
        which, sources, targets = np.nonzero(cube)
        return cls.from_counts(names, np.bincount(which, minlength=len(cube)), sources, targets, weights)

    @classmethod
    def from_counts(
        cls,
        names: Sequence[str],
        counts: np.ndarray,
        sources: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> GraphSamples:
        """From the number of edges of each sample and the edges of all samples, one after the other."""
        size = len(counts)
        return cls(
            names=tuple(names),
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            sources=np.asarray(sources, dtype=np.int32),
            targets=np.asarray(targets, dtype=np.int32),
            weights=np.full(size, 1.0 / size) if weights is None else np.asarray(weights, dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.weights)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.graph(k) for k in range(len(self)))

    @property
    def nodes(self) -> int:
        return len(self.names)

    def edges(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Sources and targets of sample k."""
        span = slice(self.offsets[k], self.offsets[k + 1])
        return self.sources[span], self.targets[span]

    def graph(self, k: int) -> np.ndarray:
        """Sample k as a ``(d, d)`` boolean matrix."""
        graph = np.zeros((self.nodes, self.nodes), dtype=bool)
        graph[self.edges(k)] = True
        return graph

    def dense(self) -> np.ndarray:
        """All samples as ``(s, d, d)`` booleans; s d² bytes."""
        return np.stack(list(self))

    def edge_counts(self) -> np.ndarray:
        """The number of edges of each sample, ``(s,)``."""
        return np.diff(self.offsets)

    def edge_probabilities(self) -> np.ndarray:
        """The weighted share of samples that have each edge, ``(d, d)``."""
        shares = np.zeros(self.nodes**2)
        counts = self.edge_counts()
        for first, last in self._stretches():
            span = slice(self.offsets[first], self.offsets[last])
            flat = self.sources[span].astype(np.int64) * self.nodes + self.targets[span]
            np.add.at(shares, flat, np.repeat(self.weights[first:last], counts[first:last]))
        return np.minimum(shares, 1.0, out=shares).reshape(self.nodes, self.nodes)

    def y_structure_shares(self) -> np.ndarray:
        """The weighted share of samples in which each edge is there and stands in a strict Y-structure, ``(d, d)``."""
        shares = np.zeros(self.nodes**2)
        for first, last in self._stretches():
            sources, targets, which = self._side_by_side(first, last)
            holds = y_structures(sources, targets, (last - first) * self.nodes)
            flat = sources[holds] % self.nodes * self.nodes + targets[holds] % self.nodes
            np.add.at(shares, flat, self.weights[first:last][which[holds]])
        return np.minimum(shares, 1.0, out=shares).reshape(self.nodes, self.nodes)

    def all_acyclic(self) -> bool:
        """Whether every sample is a DAG."""
        for first, last in self._stretches():
            sources, targets, _ = self._side_by_side(first, last)
            if not is_acyclic_edges(sources, targets, (last - first) * self.nodes):
                return False
        return True

    def _side_by_side(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Some samples as one graph of separate parts: sources, targets, and the sample of each edge."""
        span = slice(self.offsets[first], self.offsets[last])
        which = np.repeat(np.arange(last - first), self.edge_counts()[first:last])
        return self.sources[span] + which * self.nodes, self.targets[span] + which * self.nodes, which

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """First and last samples, the latter not included, of as many as make one large graph of separate parts.

        That saves calls; a sample that has more edges by itself stands alone.
        """
        step, first = max(1, NODES_AT_A_TIME // max(self.nodes, 1)), 0
        while first < len(self):
            fitting = int(np.searchsorted(self.offsets, self.offsets[first] + EDGES_AT_A_TIME, side="right")) - 1
            last = min(first + step, max(fitting, first + 1), len(self))
            yield first, last
            first = last

    def take(self, which: np.ndarray) -> GraphSamples:
        """The samples with these indices, in this order, with equal weights."""
        starts, counts = self.offsets[which], self.edge_counts()[which]
        ends = np.cumsum(counts)
        position = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
        return GraphSamples.from_counts(self.names, counts, self.sources[position], self.targets[position])

    def save(self, path: str | PathLike[str]) -> None:
        """Write a table of edges (.csv: sample, source, target) or all arrays (.npz), by the ending of the name.

        A graph without edges has no line in the table, and the table has no weights; the arrays lose nothing.
        """
        ending = Path(path).suffix.lower()
        if ending == ".npz":
            arrays = {field: getattr(self, field) for field in ("offsets", "sources", "targets", "weights")}
            with open(path, "wb") as file:
                save_arrays(file, {"names": np.array(self.names), **arrays}, compressed=True)
        elif ending == ".csv":
            names = np.array([as_cell(name) for name in self.names], dtype=object)
            sample = np.repeat(np.arange(len(self)), self.edge_counts())
            lines = {"sample": sample, "source": names[self.sources], "target": names[self.targets]}
            pd.DataFrame(lines).to_csv(path, index=False, quoting=quoting(self.names))
        else:
            raise ConfigError(f"{path}: graphs are written as .csv or .npz; end the name with one of them")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> GraphSamples:
        """Read the .npz file that :meth:`save` wrote; nothing in it is ever executed."""
        try:
            arrays = read_arrays(path, kinds="biufU")
            names = tuple(str(name) for name in arrays.pop("names"))
            samples = cls(names=names, **arrays)
            if not samples.all_acyclic():
                raise ConfigError("one of its graphs has a cycle")
            return samples
        except UNREADABLE as error:
            raise RunError(f"{path} is not a file of graph samples ({str(error)[:200]})") from error
