"""Gradients through decisions: noise, temperatures and straight-through estimates.

A Bernoulli variable with logit L is 1[L + z > 0] with z logistic, since P(z > -L) = sigmoid(L). Its
relaxation at temperature t is sigmoid((L + z) / t). This is the two-class Gumbel-softmax with half of the
noise: the difference of two Gumbel variables is logistic, and softmax over two classes is the sigmoid of
their difference.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


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
