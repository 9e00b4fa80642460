"""Which of the families, a node and its parents, that DiBS samples are the same: each is then scored once."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# Different families of a node that are distinguished one by one; where a node has more, all are sorted.
FEW_KINDS = 64


class Distinct(NamedTuple):
    """The different ones of many families, each of which is a place in ``(b, m, d)``, the target last.

    ``number`` says which of the ``total`` different ones a family is, ``first`` where one of each stands, with room
    for all.
    """

    number: jax.Array
    first: jax.Array
    total: jax.Array


class Kinds(NamedTuple):
    """Which of its node's families each one is, ``(b, d, m)`` or -1, and ``shown`` ``(b, d, k)`` a sample of each."""

    kind: jax.Array
    shown: jax.Array
    found: jax.Array


def distinct_families(by_sample: jax.Array, *, room: int) -> Distinct:
    """Of graphs ``(b, d, d, m)``, the samples last, where sums over parents run along rows.

    When edges are nearly settled a node has few different families in all samples, and these are taken one after the
    other: sorting takes three times as long. Equal ones are found by a hash of 62 bits, or of 52 where they are sorted;
    to mistake one for another has a chance of 10^-8 or less a particle and step.
    """
    nodes = by_sample.shape[1]
    marks = np.random.default_rng(0).integers(0, 2**62, (nodes, nodes))
    hashes = jnp.sum(jnp.where(by_sample, marks[..., None], 0), axis=1)
    kinds = _kinds(hashes)

    def sort() -> Distinct:
        return _by_sorting(jnp.sum(by_sample, axis=1), hashes + np.diag(marks)[:, None], room)

    return jax.lax.cond((kinds.kind >= 0).all(), lambda: _by_kind(kinds, room), sort)


def _kinds(hashes: jax.Array) -> Kinds:
    """Of hashes ``(b, d, m)``; some are left at -1 if a node has too many."""

    def unfinished(kinds: Kinds) -> jax.Array:
        return (kinds.found < FEW_KINDS) & (kinds.kind < 0).any()

    def one_more(kinds: Kinds) -> Kinds:
        left = kinds.kind < 0
        sample = jnp.argmax(left, axis=-1)
        same = left & (hashes == jnp.take_along_axis(hashes, sample[..., None], -1))
        kind = jnp.where(same, kinds.found, kinds.kind)
        return Kinds(kind, kinds.shown.at[..., kinds.found].set(sample), kinds.found + 1)

    shown = jnp.zeros((*hashes.shape[:-1], FEW_KINDS), dtype=int)
    return jax.lax.while_loop(unfinished, one_more, Kinds(jnp.full(hashes.shape, -1), shown, jnp.array(0)))


def _by_kind(kinds: Kinds, room: int) -> Distinct:
    """Numbered node by node."""
    particles, nodes, samples = kinds.kind.shape
    counts = kinds.kind.max(axis=-1) + 1
    before = (jnp.cumsum(counts.reshape(-1)).reshape(counts.shape) - counts)[..., None]
    number = jnp.moveaxis(before + kinds.kind, -1, 1).reshape(-1)
    place = (np.arange(particles)[:, None, None] * samples + kinds.shown) * nodes + np.arange(nodes)[:, None]
    each = np.arange(FEW_KINDS)
    to = jnp.where(each < counts[..., None], before + each, room)
    first = jnp.zeros(room, dtype=place.dtype).at[to.reshape(-1)].set(place.reshape(-1), mode="drop")
    return Distinct(number, first, counts.sum())


def _by_sorting(sizes: jax.Array, hashes: jax.Array, room: int) -> Distinct:
    """Numbered in order of their size, so that neighbours have about the same."""
    keys = (sizes.astype(jnp.int64) << 52) + (hashes & (2**52 - 1))
    keys = jnp.moveaxis(keys, -1, 1).reshape(-1)
    order = jnp.argsort(keys)
    ordered = keys[order]
    rank = jnp.cumsum(jnp.concatenate([jnp.zeros(1, dtype=bool), ordered[1:] != ordered[:-1]]))
    number = jnp.zeros(len(order), dtype=rank.dtype).at[order].set(rank)
    return Distinct(number, jnp.zeros(room, dtype=order.dtype).at[rank].set(order), rank[-1] + 1)
