"""Gradients through decisions: noise, temperatures and straight-through estimates.

A Bernoulli variable with logit L is 1[L + z > 0] with z logistic, since P(z > -L) = sigmoid(L). Its
relaxation at temperature t is sigmoid((L + z) / t). This is the two-class Gumbel-softmax with half of the
noise: the difference of two Gumbel variables is logistic, and softmax over two classes is the sigmoid of
their difference.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# From this many entries on (256 nodes), noise and gradients are written for one pass over memory. Below, a call takes
# well under a millisecond, and results keep every bit that they had before there were two ways.
LARGE = 1 << 16
# The Threefry-2x32 generator of JAX's keys counts in 32 bits.
_MOST = 1 << 32
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def uniform_noise(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw float32 numbers between 0 and 1, neither of them included.

    They are those of ``jax.random.uniform``, which on a processor runs the rounds of the generator as a loop over whole
    arrays. Written out, the rounds become part of the one pass that uses the numbers: they are never stored, and take a
    sixth of the time at 5,000 nodes.
    """
    tiny = jnp.finfo(jnp.float32).tiny
    size = int(np.prod(shape))
    if not LARGE <= size < _MOST:
        return jax.random.uniform(key, shape, jnp.float32, minval=tiny)
    words = jax.random.key_data(key)
    if words.shape != (2,):
        # The key of another generator, which the settings of the process can choose.
        words = jax.random.bits(key, (2,), jnp.uint32)
    bits = _threefry(words, jax.lax.iota(jnp.uint32, size).reshape(shape))
    # 23 bits are the mantissa of a number between 1 and 2.
    from_one = jax.lax.bitcast_convert_type((bits >> np.uint32(9)) | np.uint32(0x3F800000), jnp.float32)
    return jnp.maximum(tiny, from_one - np.float32(1.0))


def _threefry(words: Array, counts: Array) -> Array:
    """32 random bits for each count: 20 rounds on (0, count), and the two words that result combined.

    This is what JAX does with a key of two words when ``jax_threefry_partitionable`` is on, its default.
    """
    schedule = (words[0], words[1], words[0] ^ words[1] ^ _PARITY)
    first, second = jnp.broadcast_to(schedule[0], counts.shape), counts + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            first = first + second
            second = first ^ ((second << np.uint32(rotation)) | (second >> np.uint32(32 - rotation)))
        first = first + schedule[(group + 1) % 3]
        second = second + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return first ^ second


def logistic_noise(uniform: Array) -> Array:
    """Turn uniform into standard logistic noise."""
    if uniform.size < LARGE:
        return jnp.log(uniform) - jnp.log1p(-uniform)
    # Two logarithms would be two passes, each with numbers of its own.
    return jnp.log(uniform / (1.0 - uniform))


def sigmoid_slope(values: Array) -> Array:
    """Derivative of the sigmoid, as exact far above zero as far below."""
    small = jnp.exp(-jnp.abs(values))
    return small / ((1.0 + small) * (1.0 + small))


@jax.custom_jvp
def straight_through(hard: Array, soft: Array) -> Array:
    """Take the value of ``hard`` and the derivative of ``soft``, two arrays of one shape.

    Written as a rule rather than as hard + soft - stop_gradient(soft): the value is then exactly 0 or 1
    whatever the rounding, and a program that asks for no gradient never computes ``soft``.
    """
    del soft
    return hard


@straight_through.defjvp
def _straight_through_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return straight_through(*primals), tangents[1]


class Relaxed(NamedTuple):
    """A decision in two forms of one shape: ``hard`` is 0 or 1, ``soft`` lies between, with a derivative."""

    hard: Array
    soft: Array

    def straight_through(self) -> Array:
        """Return the hard value with the derivative of the soft one."""
        return straight_through(self.hard, self.soft)


def threshold(values: Array, *, temperature: float) -> Relaxed:
    """Decide whether each value is positive; the soft form is sigmoid(value / temperature)."""
    # From the sign and not from soft > 1/2: the sigmoid of a small value rounds to one half.
    return Relaxed((values > 0.0).astype(values.dtype), jax.nn.sigmoid(values / temperature))


def bernoulli(logits: Array, noise: Array, *, temperature: float) -> Relaxed:
    """Turn standard logistic noise into Bernoulli variables with these logits."""
    return threshold(logits + noise, temperature=temperature)


def masked_bernoulli(logits: Array, noise: Array, allowed: Array, *, temperature: float) -> Relaxed:
    """Bernoulli variables that are zero, without derivative, wherever they are not allowed."""
    # The logit is masked first: an infinite one would turn the zero derivative into nan.
    drawn = bernoulli(jnp.where(allowed, logits, 0.0), noise, temperature=temperature)
    return Relaxed(jnp.where(allowed, drawn.hard, 0.0), jnp.where(allowed, drawn.soft, 0.0))
