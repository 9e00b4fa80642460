"""Gibbs steps on the state of a pair of columns, in tempered chains, compiled.

A pair is apart, joined by an arrow in one direction or the other, or by a bidirected edge: never by two of these
(bow-free graphs). A step draws the state of one pair given all others, among those that leave no directed cycle.
Scores of districts are kept in a table by a fingerprint of the district, so that what was fitted once is read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcuda.infer.admg.districts import district_of, district_score, is_ancestor, places
from vcuda.machine_code import compiled
from vcuda.posterior.mixed_graphs import APART, BACKWARD, BIDIRECTED, FORWARD, STATES

# Scores that are kept: a power of two.
KEPT_SCORES = 1 << 21


class Memory(NamedTuple):
    """Scores of districts by fingerprint: ``keys`` and ``values`` (m,), random words (d, d) of all kinds of edge."""

    keys: np.ndarray
    values: np.ndarray
    nodes: np.ndarray
    directed: np.ndarray
    bidirected: np.ndarray

    @classmethod
    def empty(cls, nodes: int, size: int = KEPT_SCORES) -> Memory:
        rng = np.random.default_rng(0)  # words without a meaning: any will do

        def words(*shape: int) -> np.ndarray:
            return rng.integers(1, 1 << 62, shape, dtype=np.int64)

        return cls(np.zeros(size, np.int64), np.zeros(size), words(nodes), words(nodes, nodes), words(nodes, nodes))


class Problem(NamedTuple):
    """What chains sample from: a covariance (d, d) of so many rows, and log odds (p, 4) of the states of pairs."""

    covariance: np.ndarray
    rows: int
    pairs: np.ndarray
    log_prior: np.ndarray


@compiled
def scored(
    district: int, parents: np.ndarray, spouses: np.ndarray, covariance: np.ndarray, rows: int, memory: Memory
) -> float:
    """The score of a district, from memory if it is known."""
    key = np.int64(0)
    for node in places(district):
        key ^= memory.nodes[node]
        for parent in places(parents[node]):
            key ^= memory.directed[parent, node]
        for mate in places(spouses[node]):
            if mate > node:
                key ^= memory.bidirected[node, mate]
    size = len(memory.keys)
    place = key & (size - 1)
    for _ in range(8):
        if memory.keys[place] == key:
            return memory.values[place]
        if memory.keys[place] == 0:
            break
        place = (place + 1) & (size - 1)
    found = district_score(district, parents, spouses, covariance, rows)
    # Where all eight places are taken, the last gives way.
    memory.keys[place] = key
    memory.values[place] = found
    return found


@compiled
def both(
    i: int, j: int, parents: np.ndarray, spouses: np.ndarray, covariance: np.ndarray, rows: int, memory: Memory
) -> float:
    """The score of the districts of two nodes, once if they are the same."""
    first = district_of(spouses, i)
    total = scored(first, parents, spouses, covariance, rows, memory)
    if not (first >> j) & 1:
        total += scored(district_of(spouses, j), parents, spouses, covariance, rows, memory)
    return total


@compiled
def set_pair(i: int, j: int, state: int, parents: np.ndarray, spouses: np.ndarray) -> None:
    """Join two nodes in this way, however they were joined before."""
    parents[j] &= ~(1 << i)
    parents[i] &= ~(1 << j)
    spouses[i] &= ~(1 << j)
    spouses[j] &= ~(1 << i)
    if state == FORWARD:
        parents[j] |= 1 << i
    elif state == BACKWARD:
        parents[i] |= 1 << j
    elif state == BIDIRECTED:
        spouses[i] |= 1 << j
        spouses[j] |= 1 << i


@compiled
def sweep(
    parents: np.ndarray,
    spouses: np.ndarray,
    heat: float,
    problem: Problem,
    memory: Memory,
    chosen: np.ndarray,
    chances: np.ndarray,
) -> None:
    """Steps of one chain: the pairs ``chosen`` (s,), with one uniform number for each."""
    weights = np.empty(STATES)
    for step in range(len(chosen)):
        pair = chosen[step]
        i, j = problem.pairs[pair]
        for state in range(STATES):
            weights[state] = -np.inf
            if problem.log_prior[pair, state] == -np.inf:
                continue
            set_pair(i, j, APART, parents, spouses)
            if state == FORWARD and is_ancestor(parents, j, i):
                continue
            if state == BACKWARD and is_ancestor(parents, i, j):
                continue
            set_pair(i, j, state, parents, spouses)
            score = both(i, j, parents, spouses, problem.covariance, problem.rows, memory)
            weights[state] = heat * score + problem.log_prior[pair, state]
        largest = weights.max()
        total = 0.0
        for state in range(STATES):
            weights[state] = np.exp(weights[state] - largest)
            total += weights[state]
        left, state = chances[step] * total, 0
        while left >= weights[state] and state < STATES - 1:
            left -= weights[state]
            state += 1
        while weights[state] == 0.0:
            state -= 1
        set_pair(i, j, state, parents, spouses)


@compiled
def total_score(parents: np.ndarray, spouses: np.ndarray, problem: Problem, memory: Memory) -> float:
    """The score of a whole graph, without its prior."""
    seen, total = 0, 0.0
    for node in range(len(parents)):
        if not (seen >> node) & 1:
            district = district_of(spouses, node)
            total += scored(district, parents, spouses, problem.covariance, problem.rows, memory)
            seen |= district
    return total


@compiled
def states_of(parents: np.ndarray, spouses: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The state (p,) of every pair."""
    found = np.zeros(len(pairs), np.int8)
    for pair in range(len(pairs)):
        i, j = pairs[pair]
        if (parents[j] >> i) & 1:
            found[pair] = FORWARD
        elif (parents[i] >> j) & 1:
            found[pair] = BACKWARD
        elif (spouses[i] >> j) & 1:
            found[pair] = BIDIRECTED
    return found


@compiled
def run_sweeps(
    parents: np.ndarray,
    spouses: np.ndarray,
    heats: np.ndarray,
    problem: Problem,
    memory: Memory,
    chosen: np.ndarray,
    chances: np.ndarray,
    exchanges: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Sweeps of tempered chains: ``parents`` and ``spouses`` (r, l, d) change in place, the coldest chain first.

    ``chosen`` and ``chances`` are (t, r, l, s), ``exchanges`` (t, r, l - 1). After every sweep neighbours in heat may
    change places. Returns the states (t, r, p) of the coldest chains, and their scores (t, r).
    """
    sweeps, replicas, levels = chosen.shape[:3]
    states = np.empty((sweeps, replicas, len(problem.pairs)), np.int8)
    scores = np.empty((sweeps, replicas))
    own = np.empty(levels)
    for t in range(sweeps):
        for r in range(replicas):
            for level in range(levels):
                sweep(
                    parents[r, level],
                    spouses[r, level],
                    heats[level],
                    problem,
                    memory,
                    chosen[t, r, level],
                    chances[t, r, level],
                )
                own[level] = total_score(parents[r, level], spouses[r, level], problem, memory)
            for low in range(levels - 1):
                gain = (heats[low] - heats[low + 1]) * (own[low + 1] - own[low])
                if np.log(exchanges[t, r, low]) < gain:
                    for node in range(parents.shape[2]):
                        parents[r, low, node], parents[r, low + 1, node] = (
                            parents[r, low + 1, node],
                            parents[r, low, node],
                        )
                        spouses[r, low, node], spouses[r, low + 1, node] = (
                            spouses[r, low + 1, node],
                            spouses[r, low, node],
                        )
                    own[low], own[low + 1] = own[low + 1], own[low]
            states[t, r] = states_of(parents[r, 0], spouses[r, 0], problem.pairs)
            scores[t, r] = own[0]
    return states, scores
