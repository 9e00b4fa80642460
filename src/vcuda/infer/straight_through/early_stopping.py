"""What is known of every restart after each look at the validation rows: which go on, and the best states so far."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.infer.straight_through.elbo import Terms, Trained


def choose(which: np.ndarray | jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """The new value of the restarts ``which`` says, the old one of the others; the first axis is that of restarts."""
    return jnp.where(jnp.asarray(which).reshape((-1,) + (1,) * (new.ndim - 1)), new, old)


class EarlyStopping(NamedTuple):
    """Validation losses, the best states, and which of r restarts go on.

    ``terms`` (checks, 3, r) are the mean terms of the ELBO between looks, ``losses`` (checks, r) those of validation
    rows; the others are (r,) each. No array is ever changed: a device may read it after the call that was given it.
    """

    kept: Trained
    active: np.ndarray
    failed: np.ndarray
    best_loss: np.ndarray
    best_check: np.ndarray
    stopped_at: np.ndarray
    terms: np.ndarray
    losses: np.ndarray

    @classmethod
    def start(cls, trained: Trained, restarts: int) -> EarlyStopping:
        """Before the first look."""
        return cls(
            kept=trained,
            active=np.ones(restarts, dtype=bool),
            failed=np.zeros(restarts, dtype=bool),
            best_loss=np.full(restarts, np.inf),
            best_check=np.zeros(restarts, dtype=int),
            stopped_at=np.zeros(restarts, dtype=int),
            terms=np.zeros((0, len(Terms._fields), restarts)),
            losses=np.zeros((0, restarts), dtype=np.float32),
        )

    @property
    def checks(self) -> int:
        """How many looks there were."""
        return len(self.losses)

    def look(
        self, trained: Trained, terms: Terms, loss: np.ndarray, *, patience: int, keep_best: bool
    ) -> EarlyStopping:
        """Take in the mean terms of the ELBO since the last look, and the validation losses; both ``(r,)`` each."""
        if self.checks:
            # A stopped restart goes back to its state after every chunk: its terms would depend on the chunks' length.
            terms = Terms(*np.where(self.active, np.array(terms), self.terms[-1]))
        finite = np.isfinite(loss) & np.isfinite(terms.elbo)
        checks = self.checks + 1
        sound = self.active & finite
        better = sound & (loss < self.best_loss)
        best_check = np.where(better, checks, self.best_check)
        return EarlyStopping(
            kept=jax.tree.map(partial(choose, better if keep_best else sound), trained, self.kept),
            active=sound & (checks - best_check < patience),
            failed=self.failed | (self.active & ~finite),
            best_loss=np.where(better, loss, self.best_loss),
            best_check=best_check,
            stopped_at=np.where(self.active, checks, self.stopped_at),
            terms=np.concatenate([self.terms, np.array(terms)[None]]),
            losses=np.concatenate([self.losses, loss[None]]),
        )

    @property
    def last_elbo(self) -> np.ndarray:
        """Of each restart, ``(r,)``: the mean over the steps since the look before."""
        return np.asarray(Terms(*self.terms[-1]).elbo)

    def describe(self) -> str:
        learning = f"{int(self.active.sum())} of {len(self.active)} restarts still learning"
        if not self.checks or not np.isfinite(self.last_elbo).any():
            return learning
        return f"ELBO {np.nanmax(self.last_elbo):,.1f}, {learning}"

    def trace(self) -> dict[str, np.ndarray]:
        """Each ``(checks, restarts)``."""
        series = {name: self.terms[:, k] for k, name in enumerate(Terms._fields)}
        return {**series, "validation_loss": self.losses}
