"""Sampling many or very large graphs on the host, with NumPy alone.

All distributions over DAGs have one form: independent edges, of which those stay that point from lower to
higher priority. Given the probabilities of the edges and a draw of the priorities, a graph comes as a
boolean matrix, at about the price of d^2 random bytes, or as a list of edges, at the price of the expected
number of edges, for 100,000 nodes and more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from vcuda.errors import ConfigError

# So many entries at a time: few calls of NumPy, and temporary arrays that stay in the cache.
STRIPE_ENTRIES = 1 << 21


class EdgeLists(NamedTuple):
    """Several graphs: how many edges each has (s,), and all edges, graph after graph, sorted within each."""

    counts: np.ndarray
    sources: np.ndarray
    targets: np.ndarray


class _Band(NamedTuple):
    """Listed pairs whose probabilities lie between ``bound`` / 2 and ``bound``, as indices into the list."""

    bound: float
    members: np.ndarray


@dataclass(frozen=True, eq=False)
class BulkSampler:
    """Edge probabilities, prepared for sampling; make one with ``from_probabilities`` or ``from_sparse``.

    A probability is that of the edge given that the priorities admit it. It is kept in float32, and the distribution
    of the samples is exact to that precision. The state of ``rng`` alone determines the result.

    Attributes
    ----------
    nodes
        Number of nodes, d.
    probabilities
        Of the listed pairs, (m,) float32.
    positions
        Where the listed pairs stand in the flattened (d, d) matrix, rising; None when all d^2 are listed.
    background
        Probability of every pair that is not listed.
    """

    nodes: int
    probabilities: np.ndarray
    positions: np.ndarray | None
    background: float

    @classmethod
    def from_probabilities(cls, probabilities: npt.ArrayLike) -> Self:
        """Prepare a (d, d) matrix of edge probabilities; its diagonal is ignored."""
        dense = np.asarray(probabilities)
        if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
            raise ConfigError(f"expected a square matrix of edge probabilities, but its shape is {dense.shape}")
        return cls(len(dense), _checked_probabilities(dense.ravel()), None, 0.0)

    @classmethod
    def from_sparse(
        cls,
        nodes: int,
        *,
        background: float,
        sources: npt.ArrayLike = (),
        targets: npt.ArrayLike = (),
        probabilities: npt.ArrayLike = (),
    ) -> Self:
        """Prepare listed pairs (m,) with a probability each, and one probability for all other pairs."""
        from_nodes, to_nodes = np.asarray(sources, dtype=np.int64), np.asarray(targets, dtype=np.int64)
        listed = _checked_probabilities(np.asarray(probabilities, dtype=np.float32))
        if not from_nodes.shape == to_nodes.shape == listed.shape or listed.ndim != 1:
            raise ConfigError(
                "sources, targets and probabilities must be three lists of one length, but their shapes are "
                f"{from_nodes.shape}, {to_nodes.shape} and {listed.shape}"
            )
        for ends in (from_nodes, to_nodes):
            if ends.size and (ends.min() < 0 or ends.max() >= nodes):
                raise ConfigError(f"a listed edge names a node outside 0..{nodes - 1}")
        if not 0.0 <= background <= 1.0:
            raise ConfigError(f"background is {background}, but must be a probability between 0 and 1")
        positions = from_nodes * nodes + to_nodes
        order = np.argsort(positions, kind="stable")
        if np.any(np.diff(positions[order]) == 0):
            raise ConfigError("an edge is listed twice; give each pair of nodes one probability")
        return cls(nodes, listed[order], positions[order], float(background))

    def sample_dense(self, rng: np.random.Generator, priorities: npt.ArrayLike) -> np.ndarray:
        """Draw one graph as a (d, d) boolean matrix, given the priorities (d,) of the nodes.

        Costs O(d^2): a random byte for each pair, and more bits for one pair in 256.
        """
        graph = np.zeros((self.nodes, self.nodes), dtype=bool)
        if self.positions is not None:
            graph[self.sample_sparse(rng, priorities)] = True
            return graph
        ranks = _ranks(self._checked_priorities(np.asarray(priorities)[None])[0])
        # The random bytes are a third of the cost, and this generator is the fastest of NumPy's.
        stream = np.random.Generator(np.random.SFC64(rng.integers(0, 1 << 32, size=4, dtype=np.uint32).tolist()))
        rows = max(1, STRIPE_ENTRIES // max(self.nodes, 1))
        for start in range(0, self.nodes, rows):
            stripe = slice(start, start + rows)
            admitted = ranks[stripe, None] < ranks[None, :]
            first = start * self.nodes
            probabilities = self.probabilities[first : first + admitted.size]
            _draw_admitted(stream, probabilities, self._thresholds[stripe], admitted, out=graph[stripe])
        return graph

    @cached_property
    def _thresholds(self) -> np.ndarray:
        # A probability of one has the threshold 255 and the remainder 1. Scaling by 256 and taking the
        # integer part away are both exact in float32.
        scaled = np.minimum(self.probabilities * np.float32(256), np.float32(255))
        return scaled.astype(np.uint8).reshape(self.nodes, self.nodes)

    def sample_sparse(self, rng: np.random.Generator, priorities: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Draw one graph as its edges, sources and targets, given the priorities (d,) of the nodes."""
        lists = self.sample_many(rng, np.asarray(priorities)[None])
        return lists.sources, lists.targets

    def sample_many(self, rng: np.random.Generator, priorities: npt.ArrayLike) -> EdgeLists:
        """Draw one graph for each row of priorities (s, d); time and memory grow with all expected edges."""
        by_graph = self._checked_priorities(np.asarray(priorities))
        size, pairs = len(by_graph), self.nodes**2
        # One number names graph and edge; sorting it sorts both.
        codes = np.concatenate([np.empty(0, dtype=np.int64), *self._candidates(rng, size)])
        graphs, positions = np.divmod(codes, pairs)
        sources, targets = np.divmod(positions, self.nodes)
        codes = np.sort(codes[by_graph[graphs, sources] < by_graph[graphs, targets]])
        graphs, positions = np.divmod(codes, pairs)
        sources, targets = np.divmod(positions, self.nodes)
        return EdgeLists(np.bincount(graphs, minlength=size), sources.astype(np.int32), targets.astype(np.int32))

    def _candidates(self, rng: np.random.Generator, size: int) -> Iterator[np.ndarray]:
        """Edges of ``size`` graphs before the priorities are asked, as graph * d^2 + source * d + target."""
        pairs = self.nodes**2
        for bound, members in self._bands:
            trials = successes(rng, size * len(members), bound)
            graphs, chosen = np.divmod(trials, len(members))
            listed = members[chosen].astype(np.int64)
            accepted = rng.random(len(listed)) * bound < self.probabilities[listed]
            graphs, listed = graphs[accepted], listed[accepted]
            yield graphs * pairs + (listed if self.positions is None else self.positions[listed])
        if self.background > 0.0 and self.positions is not None:
            trials = successes(rng, size * pairs, self.background)
            positions = trials % pairs
            next_listed = np.append(self.positions, pairs)[np.searchsorted(self.positions, positions)]
            yield trials[next_listed != positions]

    @cached_property
    def _bands(self) -> list[_Band]:
        # Pairs of one band are proposed at its bound, which is at most twice their probability: the work is
        # at most twice the expected number of edges, for any set of probabilities. What is so small that the
        # whole band gives less than one proposal needs no band of its own.
        deepest = int(np.ceil(np.log2(max(len(self.probabilities), 2))))
        halvings = np.clip(-np.frexp(self.probabilities)[1], 0, deepest).astype(np.uint8)
        halvings[self.probabilities == 0.0] = deepest + 1
        sizes = np.bincount(halvings)[: deepest + 1]
        index = np.int32 if len(self.probabilities) < 1 << 31 else np.int64
        return [
            _Band(0.5 ** int(depth), np.flatnonzero(halvings == depth).astype(index)) for depth in np.flatnonzero(sizes)
        ]

    def _checked_priorities(self, priorities: np.ndarray) -> np.ndarray:
        if priorities.ndim != 2 or priorities.shape[1] != self.nodes:
            raise ConfigError(f"expected {self.nodes} priorities for each graph, but the shape is {priorities.shape}")
        if np.isnan(priorities).any():
            raise ConfigError("a priority is not a number; the parameters that it was drawn from are not finite")
        return priorities


def successes(rng: np.random.Generator, trials: int, probability: float) -> np.ndarray:
    """Which of so many independent trials succeed, as rising numbers, at a cost of their expected number.

    The distances between successes are geometric: floor(E / -log(1 - p)) trials fail before the next success,
    with E exponential.
    """
    if probability >= 1.0:
        return np.arange(trials)
    found = [np.empty(0, dtype=np.int64)]
    start, rate = 0, -np.log1p(-probability)
    while start < trials and rate > 0.0:
        expected = (trials - start) * probability
        draws = int(expected + 4.0 * np.sqrt(expected)) + 8
        # No distance needs to be longer than all trials, and longer ones would overflow.
        failures = np.minimum(rng.standard_exponential(draws) / rate, trials).astype(np.int64)
        reached = start + np.cumsum(failures + 1)
        found.append(reached[: np.searchsorted(reached, trials, side="right")] - 1)
        start = int(reached[-1])
    return np.concatenate(found)


def _draw_admitted(
    rng: np.random.Generator,
    probabilities: np.ndarray,
    thresholds: np.ndarray,
    admitted: np.ndarray,
    *,
    out: np.ndarray,
) -> None:
    """Draw the admitted entries, each true with its probability, and leave the others false.

    A uniform number U decides U < p. Its first eight bits decide unless they equal those of p, one case in
    256; only then the remaining bits of both are compared.
    """
    words = rng.integers(0, 1 << 64, size=-(-out.size // 8), dtype=np.uint64)
    octets = words.view(np.uint8)
    first_bits = octets[: out.size].reshape(out.shape)
    np.less(first_bits, thresholds, out=out)
    out &= admitted
    tied = np.equal(first_bits, thresholds, out=first_bits.view(bool))
    tied &= admitted
    octets[out.size :] = 0
    undecided = _true_octets(words)
    remainders = probabilities[undecided] * np.float32(256) - thresholds.reshape(-1)[undecided]
    out.reshape(-1)[undecided[rng.random(len(undecided)) < remainders]] = True


def _true_octets(words: np.ndarray) -> np.ndarray:
    """Positions of the octets that are one among those of 64-bit words that are zero or one each.

    Few are: looking for non-zero words first takes half the time of ``flatnonzero`` on the octets.
    """
    occupied = np.flatnonzero(words != 0)
    within = np.flatnonzero(words[occupied].view(bool))
    return occupied[within >> 3] * 8 + (within & 7)


def _ranks(priorities: np.ndarray) -> np.ndarray:
    """Integers that compare as the priorities do, ties included, but narrow: d^2 comparisons are fast."""
    ranks = np.unique(priorities, return_inverse=True)[1]
    return ranks.astype(np.uint16 if len(priorities) <= 1 << 16 else np.uint32)


def _checked_probabilities(probabilities: np.ndarray) -> np.ndarray:
    stored = probabilities.astype(np.float32)
    # Written so that nan fails it.
    if not np.all((stored >= 0.0) & (stored <= 1.0)):
        raise ConfigError("edge probabilities must be numbers between 0 and 1")
    stored.setflags(write=False)
    return stored
