"""Tables of categories: how probable each label of a column is given its parents, and what drawn tables say of it.

The score integrates over one distribution for every combination of the parents' labels, each with a Dirichlet prior.
Given the table these are Dirichlet again: their means predict new rows, draws from them are causal models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import logsumexp

from vcuda.data.categorical import Categories, all_labels
from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling, check_shapes
from vcuda.errors import ConfigError
from vcuda.models.interventions import prepare
from vcuda.models.prediction import NodePosterior, ParentSets, Predicted, Prediction, Predictive, Tails
from vcuda.models.protocol import LocalScore

# A distribution for each combination of the parents' labels: more numbers than this are not drawn.
MOST_CELLS = 2_000_000


@dataclass(frozen=True, eq=False)
class CategoricalPredictive(Predictive):
    """New rows of categories under BDeu, with the probabilities of labels integrated out.

    Parameters
    ----------
    codes
        ``(n, d)`` the fitted rows, in small integers.
    labels
        What the codes of each column stand for.
    equivalent_sample_size
        How many rows the prior is worth.
    free
        ``(n, d)`` the cells that no experiment set, from which a column's probabilities are learned; None for all.
    """

    codes: np.ndarray
    labels: Categories = field()
    equivalent_sample_size: float
    free: np.ndarray | None = None
    kind: ClassVar[str] = "categorical"
    earlier_kinds: ClassVar[tuple[str, ...]] = ("discrete",)

    @classmethod
    def of(cls, data: Any, equivalent_sample_size: float) -> Self:
        """From the table of categories that was fitted."""
        labels = all_labels(data)
        assert labels is not None
        free = None
        if data.interventions is not None:
            # Of a column that was set in every row the table shows what it was set to.
            free = ~data.interventions | data.interventions.all(axis=0)
        return cls(data.values.astype(np.uint16), labels, equivalent_sample_size, free)

    @cached_property
    def levels(self) -> np.ndarray:
        """How many labels each column has, ``(d,)``."""
        return np.array([len(labels) for labels in self.labels], dtype=np.int64)

    @property
    def scaling(self) -> Scaling:
        """Codes are what they are."""
        return Scaling(np.zeros(len(self.labels)), np.ones(len(self.labels)))

    def probabilities(self, target: int, parents: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The probability of each label of a column ``(m, r)``, given the parents' codes in new rows ``(m, d)``."""
        fitted = self._fitted(target)
        combination = self._combinations(np.concatenate([fitted, codes])[:, parents], parents)
        known, new = combination[: len(fitted)], combination[len(fitted) :]
        # Only combinations of new rows are counted: of all that were fitted there may be too many to hold.
        asked, new = np.unique(new, return_inverse=True)
        place = np.searchsorted(asked, known)
        here = np.take(asked, place, mode="clip") == known if asked.size else np.zeros(len(known), dtype=bool)
        levels, met = int(self.levels[target]), len(asked)
        cells = place[here] * levels + fitted[here, target]
        counts = np.bincount(cells, minlength=met * levels).reshape(met, levels)
        weight = self.equivalent_sample_size / np.prod(self.levels[[*parents, target]], dtype=np.float64)
        found = counts[new] + weight
        return found / found.sum(axis=1, keepdims=True)

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        """The most probable codes of a column as ``mean``, and the log probabilities of those that the rows have."""
        codes = scaled.astype(np.int64)
        shares = self.probabilities(target, parents, codes)
        own = shares[np.arange(len(codes)), codes[:, target]]
        return Predicted(shares.argmax(axis=1).astype(np.float64), np.log(own))

    def tails(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Tails:
        """By the order of the codes."""
        codes = scaled.astype(np.int64)
        return Tails.of_shares(self.probabilities(target, parents, codes), codes[:, target])

    def concentration(self, target: int, parents: np.ndarray) -> np.ndarray:
        """The Dirichlet posterior: prior weight plus count of each label, an axis for each parent, the target last."""
        columns = [*parents, target]
        shape = tuple(self.levels[columns].tolist())
        cells = float(np.prod(self.levels[columns], dtype=np.float64))
        if cells > MOST_CELLS:
            raise ConfigError(
                f"the {len(parents)} causes of a column have {cells:,.0f} combinations of labels with it, too many to "
                "draw a probability for each: join labels into fewer categories, or allow fewer parents, BDeu("
                "max_parents=2)"
            )
        counts = np.bincount(
            np.ravel_multi_index(tuple(self._fitted(target)[:, columns].T), shape), minlength=int(cells)
        )
        return counts.reshape(shape) + self.equivalent_sample_size / cells

    def node(self, target: int, parents: np.ndarray) -> NodePosterior:
        raise ConfigError(
            "the columns hold labels, whose effects are probabilities of labels and no numbers; ask for single ones"
        )

    def fitted_table(self, names: Sequence[str]) -> Dataset:
        held = None if self.free is None else ~self.free
        return Dataset(tuple(names), self.codes.astype(np.float64), interventions=held, categories=self.labels)

    def local_score(self) -> LocalScore:
        """The score of sets of parents, of any size."""
        # The score predicts by this module.
        from vcuda.models.categorical.score import BDeu

        spec = BDeu(self.equivalent_sample_size, len(self.labels), int(self.levels.max()))
        return prepare(spec, self.codes, None if self.free is None else ~self.free)

    def predict(self, sets: ParentSets, graphs: int, values: np.ndarray, names: Sequence[str] | None) -> Prediction:
        """The most probable label of every cell, its probability averaged over graphs; values are codes."""
        codes = values.astype(np.int64)
        rows = np.arange(len(codes))
        shares = [np.zeros((len(codes), levels)) for levels in self.levels.tolist()]
        log_density = np.zeros((graphs, len(codes)))
        for target, parents, members in sets:
            prediction = self.probabilities(target, parents, codes)
            shares[target] += len(members) / graphs * prediction
            log_density[members] += np.log(prediction[rows, codes[:, target]])
        likely = np.stack([share.argmax(axis=1) for share in shares], axis=1)
        total = logsumexp(log_density, axis=0) - np.log(graphs)
        return Prediction(likely.astype(np.float64), np.nan, total, accuracy=float(np.mean(likely == codes)))

    def _fitted(self, target: int) -> np.ndarray:
        codes = self.codes if self.free is None else self.codes[self.free[:, target]]
        return codes.astype(np.int64)

    def _combinations(self, codes: np.ndarray, parents: np.ndarray) -> np.ndarray:
        """A number for each different row ``(m,)`` of the parents' codes ``(m, k)``, counted from 0."""
        combination = np.zeros(len(codes), dtype=np.int64)
        for place, parent in enumerate(parents):
            # Numbered anew each time, so that the product of many levels cannot overflow.
            _, combination = np.unique(combination * self.levels[parent] + codes[:, place], return_inverse=True)
        return combination

    def config(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "labels": [list(labels) for labels in self.labels],
            "equivalent_sample_size": self.equivalent_sample_size,
        }

    def arrays(self) -> dict[str, np.ndarray]:
        return {"codes": self.codes} | ({} if self.free is None else {"free": self.free})

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        labels = tuple(tuple(own) for own in config["labels"])
        codes, free = arrays["codes"], arrays.get("free")
        check_shapes(arrays, {"codes": (len(codes), len(labels))} | ({} if free is None else {"free": codes.shape}))
        if not (codes < [len(own) for own in labels]).all():
            raise ConfigError("the fitted rows have codes without a label")
        return cls(codes, labels, config["equivalent_sample_size"], free)


def draw_distributions(rng: np.random.Generator, concentration: np.ndarray) -> np.ndarray:
    """One draw of each of the Dirichlet distributions along the last axis.

    By logarithms: of a combination that never occurs the prior's weights are so small that gamma variables with them
    would all be zero.
    """
    logs = np.log(rng.standard_gamma(concentration + 1.0)) + np.log(rng.random(concentration.shape)) / concentration
    shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))
