"""Early stopping, between compiled chunks: which restarts go on, whose state is the best, and what is reported."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.infer.checkpoint import Arrays, tree_arrays, tree_like
from vcuda.infer.straight_through.elbo import Terms, Trained

NUMBERS = ("checks", "active", "failed", "best_loss", "best_check", "stopped_at")


def choose(which: np.ndarray | jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """The new value of the restarts ``which`` says, the old one of the others; the first axis is that of restarts."""
    return jnp.where(jnp.asarray(which).reshape((-1,) + (1,) * (new.ndim - 1)), new, old)


class EarlyStopping:
    """What the host remembers between chunks: validation losses, the best states, who goes on."""

    def __init__(self, trained: Trained, *, restarts: int, patience: int, keep_best: bool) -> None:
        self.keep_best = keep_best
        self.patience = patience
        self.checks = 0
        self.active = np.ones(restarts, dtype=bool)
        self.failed = np.zeros(restarts, dtype=bool)
        self.best_loss = np.full(restarts, np.inf)
        self.best_check = np.zeros(restarts, dtype=int)
        self.stopped_at = np.zeros(restarts, dtype=int)
        self._kept = trained
        self._terms: list[Terms] = []
        self._losses: list[np.ndarray] = []

    def look(self, trained: Trained, terms: Terms, loss: np.ndarray) -> None:
        """Take in the mean terms of the ELBO since the last look, and the validation losses; both ``(r,)`` each."""
        if self._terms:
            # A restart that has stopped is put back after every chunk: its terms would depend on the length of chunks.
            terms = jax.tree.map(partial(np.where, self.active), terms, self._terms[-1])
        finite = np.isfinite(loss) & np.isfinite(terms.elbo)
        self.checks += 1
        self._terms.append(terms)
        self._losses.append(loss)
        self.stopped_at[self.active] = self.checks
        self.failed |= self.active & ~finite
        # Never changed in place: what was given to the device may be the same memory, and is read later.
        self.active = self.active & finite
        better = self.active & (loss < self.best_loss)
        keeping = better if self.keep_best else self.active
        self._kept = jax.tree.map(partial(choose, keeping), trained, self._kept)
        self.best_loss = np.where(better, loss, self.best_loss)
        self.best_check[better] = self.checks
        self.active = self.active & (self.checks - self.best_check < self.patience)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is remembered, for the checkpoint."""
        numbers = {name: np.array(getattr(self, name)) for name in NUMBERS}
        looks = {"terms": np.array(self._terms), "losses": np.array(self._losses)}
        return numbers | looks | tree_arrays("kept", self._kept)

    def restore(self, arrays: Arrays) -> None:
        """Restore what :meth:`arrays` stored before the fit was resumed."""
        for name in NUMBERS:
            setattr(self, name, np.array(arrays[name]))
        self.checks = int(self.checks)
        self._terms = [Terms(*terms) for terms in arrays["terms"]]
        self._losses = list(arrays["losses"])
        self._kept = tree_like("kept", self._kept, arrays)

    def kept(self) -> Trained:
        return self._kept

    @property
    def last_elbo(self) -> np.ndarray:
        """Of each restart, ``(r,)``: the mean over the steps since the look before."""
        return np.asarray(self._terms[-1].elbo)

    def describe(self) -> str:
        learning = f"{int(self.active.sum())} of {len(self.active)} restarts still learning"
        if not self._terms or not np.isfinite(self._terms[-1].elbo).any():
            return learning
        return f"ELBO {np.nanmax(self._terms[-1].elbo):,.1f}, {learning}"

    def trace(self) -> dict[str, np.ndarray]:
        """Each ``(checks, restarts)``."""
        series = {name: np.stack([getattr(terms, name) for terms in self._terms]) for name in Terms._fields}
        return {**series, "validation_loss": np.stack(self._losses)}
