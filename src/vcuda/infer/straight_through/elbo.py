"""The ELBO of the paper: likelihood of the rows under sampled graphs, less the divergence from the prior."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.dags.base import DagDistribution, DagPrior, Kl
from vcuda.dags.lifting import Lift
from vcuda.models.functional.base import FunctionalModel, ModelParams, log_density


class Trained(NamedTuple):
    """What the gradient changes."""

    dags: Any
    model: ModelParams


class Terms(NamedTuple):
    """The ELBO of all training rows, by its terms: ``elbo = likelihood - kl_edges - kl_order``."""

    likelihood: jax.Array
    kl_edges: jax.Array
    kl_order: jax.Array

    @property
    def elbo(self) -> jax.Array:
        return self.likelihood - self.kl_edges - self.kl_order


class Known(NamedTuple):
    """What is known of the edges: prior log odds (d, d) or one probability for all (None), and the required ones."""

    log_odds: Any = None
    lift: Lift | None = None


NOTHING_KNOWN = Known()


class Rows(NamedTuple):
    """Rows padded with zeros to a length that few programs are compiled for; ``weight`` is 0 on the padding.

    ``free`` (n, d) is 0 where a cell was set by an experiment, and None where there was none.
    """

    values: jax.Array
    weight: jax.Array
    total: jax.Array
    free: jax.Array | None = None

    def take(self, which: jax.Array, total: jax.Array) -> Rows:
        """Some of the rows, which stand for ``total`` that are not padding."""
        free = None if self.free is None else self.free[which]
        return Rows(self.values[which], self.weight[which], total, free)


def elbo_terms(
    spec: DagDistribution[Any],
    model: FunctionalModel,
    prior: DagPrior,
    trained: Trained,
    keys: jax.Array,
    rows: Rows,
    total_rows: jax.Array | float,
    allowed: jax.Array,
    known: Known = NOTHING_KNOWN,
) -> Terms:
    """Estimate the ELBO of ``total_rows`` rows from the given ones, with one graph for each key (Eq. 9 of the paper).

    The likelihood is averaged over graphs and scaled to all rows, so that its expectation is the ELBO's whatever the
    batch size; the KL terms are exact.
    """

    def likelihood(key: jax.Array) -> jax.Array:
        graph = spec.sample(key, trained.dags, allowed, known.lift)
        cells = rows.weight[:, None] * log_density(model, trained.model, rows.values, graph)
        return jnp.sum(cells if rows.free is None else cells * rows.free)

    kl: Kl = spec.kl(trained.dags, prior, allowed, known.log_odds)
    scale = total_rows / rows.total
    return Terms(scale * jnp.mean(jax.vmap(likelihood)(keys)), kl.edges, kl.order)


def split_rows(
    values: np.ndarray, *, held_out_share: float, batch_size: int | None, interventions: np.ndarray | None = None
) -> tuple[Rows, Rows]:
    """Training and validation rows, after the authors' shuffle (always the same, whatever the seed of the fit)."""
    order = np.random.RandomState(0).permutation(len(values))
    held_out = max(1, round(len(values) * held_out_share))
    parts = ((order[held_out:], batch_size or 1), (order[:held_out], 1))
    train, validation = (
        pad_rows(values[rows], multiple, None if interventions is None else interventions[rows])
        for rows, multiple in parts
    )
    return train, validation


def pad_rows(values: np.ndarray, multiple: int, interventions: np.ndarray | None = None) -> Rows:
    """To one of a few lengths (at most an eighth more), so that tables of similar length share one program."""
    count = len(values)
    grain = max(2 ** max(int(np.log2(count)) - 3, 0), 1)
    length = -(-count // grain) * grain
    length = -(-length // multiple) * multiple
    padded = np.zeros((length, values.shape[1]), dtype=np.float32)
    padded[:count] = values
    weight = (np.arange(length) < count).astype(np.float32)
    rows = Rows(jnp.asarray(padded), jnp.asarray(weight), jnp.asarray(count, dtype=jnp.float32))
    if interventions is None:
        return rows
    free = np.zeros_like(padded)
    free[:count] = ~interventions
    return rows._replace(free=jnp.asarray(free))


def shuffled_rows(rng: np.random.Generator, rows: Rows, restarts: int) -> np.ndarray:
    """An order of the rows for each restart, ``(r, padded rows)``, with the padding at the end."""
    padded, total = len(rows.weight), int(rows.total)
    order = np.tile(np.arange(padded, dtype=np.int32), (restarts, 1))
    rng.permuted(order[:, :total], axis=1, out=order[:, :total])
    return order
