"""The evidence of sets of parents for one column, by each of its descriptions.

A number has eight descriptions: its noise is normal or of any shape, its spread is constant or depends on the causes,
and its causes act in straight lines, in curves, or all together in one smooth function. Those with normal noise of
constant spread have closed forms, the others go by Laplace's method. Columns of other kinds have one likelihood each
(counts two), with lines or curves.

Two kinds of descriptions say only what causes add to a column, and leave its distribution to the others: beside columns
with steps regressions on the odds of values, and for numbers regressions on the scale of ranks, which hold however an
increasing function bent what causes and noise add up to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from vcuda.models.caching import cached
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.glm.laplace import Fitted, better, fit
from vcuda.models.glm.likelihoods import Bernoulli, Likelihood, NegativeBinomial, Number, Ordered, Poisson, Softmax
from vcuda.models.mixed.columns import Column
from vcuda.models.mixed.features import LINE
from vcuda.models.mixed.odds import OddsRegressions, log_evidence_of_values
from vcuda.models.protocol import LocalScore

Set = tuple[int, ...]

# sigma² of a number: inverse gamma with these. A line is BGe; a curve may explain nearly all of a column.
STRAIGHT_BETA = 0.25
SMOOTH_ALPHA, SMOOTH_BETA = 0.5, 0.02
# What a cause may change in the spread has a quarter of the prior variance of what it may change in the mean.
SPREAD_PRECISION = 4.0
# A description that is so many nats worse than others on all rows is not tried on a part of them.
NEAR = 15.0
# How plausible descriptions by ranks are before the table is seen: where the others come near, directions that these
# read from shapes are right more often than not (docs/decisions.md).
SHARE_OF_RANKS = 0.001
# Designs have a multiple of so many features.
PADDING = 4
# Designs of so many numbers are evaluated at once: more do not fit into the processor's cache.
CHUNK = 400_000


@dataclass(frozen=True)
class Description:
    """One way to describe a column given its parents.

    ``smooth``: by curves, otherwise by lines. ``shape``: noise of any shape. ``spread``: depends on the parents.
    ``together``: one function of all parents. ``size``: counts vary more than Poisson ones.
    ``odds``: causes change the odds of the column's values. ``ranks``: they move it on the scale of its ranks, by
    curves, or by lines on the scale of theirs, so that cause and effect can change places.
    """

    name: str
    smooth: bool
    shape: bool = False
    spread: bool = False
    together: bool = False
    size: bool = False
    odds: bool = False
    ranks: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether the evidence of a number has a closed form."""
        return not (self.shape or self.spread or self.odds)

    @property
    def has_distribution(self) -> bool:
        """Whether it describes the column without causes, too."""
        return not (self.odds or self.ranks)


TOGETHER = Description("one function of all causes", smooth=True, together=True)
ODDS = (
    Description("linear, odds of values", smooth=False, odds=True),
    Description("smooth, odds of values", smooth=True, odds=True),
)
RANKS = (
    Description("linear, ranks", smooth=False, ranks=True),
    Description("smooth, ranks", smooth=True, ranks=True),
)
NUMBER = (
    Description("linear", smooth=False),
    Description("smooth", smooth=True),
    Description("linear, any noise", smooth=False, shape=True),
    Description("smooth, any noise", smooth=True, shape=True),
    Description("smooth, spread by causes", smooth=True, spread=True),
    Description("linear, any noise, spread by causes", smooth=False, shape=True, spread=True),
    Description("smooth, any noise, spread by causes", smooth=True, shape=True, spread=True),
    TOGETHER,
)
COUNT = tuple(
    Description(f"{words}, {name}", smooth=smooth, size=size)
    for words, smooth in (("linear", False), ("smooth", True))
    for name, size in (("Poisson", False), ("negative binomial", True))
)
CODED = (Description("linear", smooth=False), Description("smooth", smooth=True))


class View(NamedTuple):
    """Which descriptions compete: those of a number, and ``odds`` of values where columns have steps."""

    of_numbers: tuple[Description, ...]
    odds: bool


# What a direction may hang on: with shapes, all descriptions but odds compete; in the other views columns with steps go
# by odds, and the noise of numbers is of any shape, with a spread that is constant or one that depends on the causes.
# Ranks compete in all of them.
EVERY = View((*NUMBER, *RANKS), odds=True)
SHAPES = View((*NUMBER, *RANKS), odds=False)
CONSTANT_SPREAD = View((*(how for how in NUMBER if how.shape and not how.spread), *RANKS), odds=True)
ANY_SPREAD = View((*(how for how in NUMBER if how.shape and how.spread), *RANKS), odds=True)


def descriptions_of(kind: str, view: View = EVERY) -> tuple[Description, ...]:
    """The descriptions of a column of some kind that compete in a view."""
    plain = view.of_numbers if kind == "number" else COUNT if kind == "count" else CODED
    return (*plain, *ODDS) if view.odds and kind in ("number", "count", "ordered") else plain


@lru_cache(maxsize=256)
def shares_of(competing: tuple[Description, ...], of_odds: float) -> np.ndarray:
    """How plausible descriptions (h,) are before the table is seen, given the share of those by odds, if there are any
    others."""
    odds, ranks = np.array([how.odds for how in competing]), np.array([how.ranks for how in competing])
    by_odds = of_odds if odds.any() and not odds.all() else float(odds.all())
    by_ranks = SHARE_OF_RANKS * (1 - by_odds) if ranks.any() else 0.0
    groups = (odds, by_odds), (ranks, by_ranks), (~(odds | ranks), 1 - by_odds - by_ranks)
    found = np.asarray(sum(share / max(group.sum(), 1) * group for group, share in groups))
    found.flags.writeable = False  # many share it
    return found


def log_mean(every: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The log of a mean over the first axis of evidences (h, s), weighted by shares (h, s)."""
    counted = np.where(shares > 0, every, -np.inf)
    top = counted.max(axis=0)
    return np.asarray(top + np.log((shares * np.exp(counted - top)).sum(axis=0)))


def padded(width: int) -> int:
    """How many features stand for so many: those that are zero change nothing, and more sets are fitted at once."""
    return -(-width // PADDING) * PADDING


def prior_precision(how: Description, likelihood: Likelihood, width: int) -> np.ndarray:
    """Of each weight (q, width), the intercept first; infinite where a predictor has no such weight."""
    precision = np.ones((likelihood.predictors, width))
    if isinstance(likelihood, Ordered):
        precision[0, 0] = np.inf  # the thresholds are its intercepts
    if how.spread:
        precision[1] = SPREAD_PRECISION
        precision[1, 0] = np.inf  # the scale of the noise is its intercept
    return precision


class _Products(NamedTuple):
    """Products (p, p) of all features, a row of ones, one of zeros, and what is explained; where they stand."""

    matrix: np.ndarray
    features: list[np.ndarray]
    ones: int
    zeros: int
    responses: list[np.ndarray]


class Rows:
    """Some rows of a table, as features of causes and as what is to be explained, shared by all columns.

    Parameters
    ----------
    columns
        What the family knows of the columns, from all rows.
    values
        (n, d) rows, logarithms of some columns among them.
    are_shared
        Whether they are the rows of most columns: a Gaussian process takes long, and is fitted for all at once.
    """

    def __init__(self, columns: Sequence[Column], values: np.ndarray, *, are_shared: bool = True) -> None:
        self.columns, self.count, self.are_shared = columns, len(values), are_shared
        self.values = values
        self.groups = [column.groups.place(values[:, k]) for k, column in enumerate(columns)]
        self.scaled = [column.to_explain(values[:, k]) for k, column in enumerate(columns)]
        expanded = [column.expand(values[:, k]) for k, column in enumerate(columns)]
        self._features = {False: [one.straight for one in expanded], True: [one.smooth for one in expanded]}
        self._products: dict[tuple[bool, bool], _Products] = {}

    def features(self, smooth: bool, *, ranks: bool = False) -> list[np.ndarray]:
        """Of each column as a cause; what is straight is so on the scale of ``ranks`` if asked."""
        return self._straight_by_ranks if ranks and not smooth else self._features[smooth]

    @cached_property
    def _straight_by_ranks(self) -> list[np.ndarray]:
        return [column.straight_by_ranks(self.values[:, k]) for k, column in enumerate(self.columns)]

    @cached_property
    def _stacked(self) -> dict[bool, tuple[np.ndarray, list[np.ndarray]]]:
        found = {}
        for smooth, features in self._features.items():
            ends = 1 + np.cumsum([len(some) for some in features])
            places = [np.arange(end - len(some), end) for some, end in zip(features, ends, strict=True)]
            found[smooth] = np.concatenate([np.ones((1, self.count)), *features]), places
        return found

    def stacked(self, smooth: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        """All features (f, n) behind a row of ones, and where those of each column stand."""
        return self._stacked[smooth]

    def products(self, smooth: bool, *, ranks: bool = False) -> _Products:
        """Products of features and of what they explain, which has the scale of ``ranks`` or that of the values."""
        if (smooth, ranks) not in self._products:
            self._products[smooth, ranks] = self._multiplied(smooth, ranks)
        return self._products[smooth, ranks]

    def _multiplied(self, smooth: bool, ranks: bool) -> _Products:
        # Every column in units of its standard deviation, labels by one uncorrelated number for each but the last.
        features = self.features(smooth, ranks=ranks)
        responses = [straight / LINE for straight in self.features(False, ranks=ranks)]
        constant = [np.ones((1, self.count)), np.zeros((1, self.count))]
        every = [*features, *constant, *responses]
        stacked = np.concatenate(every)
        ends = np.cumsum([len(some) for some in every])
        places = [np.arange(end - len(some), end) for some, end in zip(every, ends, strict=True)]
        width = len(features)
        ones, zeros = int(places[width][0]), int(places[width + 1][0])
        return _Products(stacked @ stacked.T, places[:width], ones, zeros, places[width + 2 :])

    @cached_property
    def process(self) -> LocalScore:
        """A Gaussian process of causes of any kind, which fits a set once for all numbers."""
        nothing = np.zeros(self.count)
        numbers = [own if column.is_number else nothing for own, column in zip(self.scaled, self.columns, strict=True)]
        points = [column.points(self.values[:, k]) for k, column in enumerate(self.columns)]
        scale = np.ones(len(self.columns))
        return cached(GaussianProcess().prepare(np.stack(numbers, axis=1), scale=scale, points=points))


class ColumnEvidence:
    """The evidence of sets of parents for one column, on some rows.

    Parameters
    ----------
    target
        Which column.
    rows
        Those in which no experiment set it.
    before
        The same column on all rows, where the fits begin if ``rows`` are a part of them.
    """

    def __init__(self, target: int, rows: Rows, before: ColumnEvidence | None = None) -> None:
        self.target, self.rows, self.before = target, rows, before
        self.own = rows.columns[target]
        self.y = rows.scaled[target]
        earlier = None if before is None else before.odds
        self.odds: OddsRegressions = OddsRegressions(target, rows.columns, rows.groups, earlier)
        # The evidence without causes, by description.
        self._alone: dict[Description, float] = {}
        # The best weights and shared numbers of sets that were evaluated, where others begin.
        self.best: dict[str, dict[Set, tuple[float, np.ndarray, np.ndarray]]] = {}
        # The evidence of sets by the name of the description, of those that were worth trying.
        self.heights: dict[str, dict[Set, float]] = {}

    def average(self, sets: Sequence[Set], view: View = EVERY, *, together: bool = True) -> np.ndarray:
        """The log evidence (s,), averaged over the descriptions that compete."""
        every = np.stack(list(self.by_description(sets, view, together=together).values()))
        competing = self._competing(view, together)
        shares = [self._shares(competing, own) for own in sets]
        return log_mean(every, np.reshape(shares, (len(sets), len(competing))).T)

    def by_description(
        self, sets: Sequence[Set], view: View = EVERY, *, together: bool = True
    ) -> dict[str, np.ndarray]:
        """The log evidence (s,) of sets, which come after their subsets, by the name of the description.

        ``together``: also with one function of all parents, which takes longest.
        """
        competing = self._competing(view, together)
        offset = self.offset_of_gains(competing)
        worth = [self._worth_trying(competing, own) for own in sets]
        found = {}
        for how in competing:
            known = self.heights.setdefault(how.name, {})
            new = [own for own, tried in zip(sets, worth, strict=True) if how in tried and own not in known]
            if new:
                known |= zip(new, self.evidence(how, new).tolist(), strict=True)
            heights = np.array([known.get(own, -np.inf) for own in sets])
            found[how.name] = heights + (0.0 if how.has_distribution else offset)
        return found

    def likeliest(self, parents: Set) -> Description:
        """The description that the table makes the most probable, given the causes."""
        competing = self._competing(EVERY, together=True)
        heights = np.concatenate(list(self.by_description([parents]).values()))
        with np.errstate(divide="ignore"):
            return competing[int(np.argmax(heights + np.log(self._shares(competing, parents))))]

    def _competing(self, view: View, together: bool) -> tuple[Description, ...]:
        every = descriptions_of(self.own.kind, view)
        return every if together else tuple(how for how in every if not how.together)

    def _shares(self, competing: tuple[Description, ...], parents: Set) -> np.ndarray:
        return shares_of(competing, self.share_of_odds(parents))

    def share_of_odds(self, parents: Set) -> float:
        """Where odds compete, how plausible they are before the table is seen: half where the column or a cause has
        steps, all where the column has no density, and not at all between numbers."""
        if not self.own.has_density:
            return 1.0
        return 0.5 if any(self.rows.columns[k].has_steps for k in (self.target, *parents)) else 0.0

    def _worth_trying(self, competing: tuple[Description, ...], parents: Set) -> list[Description]:
        """The descriptions that may count: on a part of the rows those that came near the best on all rows."""
        counted = [how for how, share in zip(competing, self._shares(competing, parents), strict=True) if share > 0]
        if not (self.rows.are_shared and len(parents) > 1):
            counted = [how for how in counted if not how.together]
        if self.before is None:
            return counted
        known = {how: self.before.heights.get(how.name, {}).get(parents, -np.inf) for how in counted}
        best = max(known.values())
        # What was not tried on all rows has nothing to be judged by.
        return [how for how in counted if known[how] > best - NEAR] if best > -np.inf else counted

    def evidence(self, how: Description, sets: Sequence[Set]) -> np.ndarray:
        """The log evidence (s,) of sets by one description."""
        if how.has_distribution:
            return np.minimum(self.density(how, sets) + self._gain_by_values, self._most)
        alone = self.alone + self._gain_by_values
        if how.odds:
            return alone + np.array([self.odds.gain(parents, how.smooth) for parents in sets])
        return np.minimum(alone + self.gain_by_ranks(how, sets), self._most)

    def gain_by_ranks(self, how: Description, sets: Sequence[Set]) -> np.ndarray:
        """What sets explain of the ranks of the column (s,), in nats."""
        return self.density(how, sets) - self.density(how, [()])

    def density(self, how: Description, sets: Sequence[Set]) -> np.ndarray:
        """The log evidence (s,) of sets by one description, values that many rows share taken as any others."""
        found = np.empty(len(sets))
        for some in self._batches(how, sets):
            chosen = [sets[place] for place in some]
            if how.together:
                found[some] = [self._together(parents) for parents in chosen]
            elif self.own.is_number and how.is_closed:
                found[some] = self._closed(how, chosen)
            else:
                # Probabilities of labels are at most one, whatever the approximation says.
                evidence = self.fitted(how, chosen)[1].log_evidence
                found[some] = evidence if self.own.is_number else np.minimum(evidence, 0.0)
        return found

    def offset_of_gains(self, competing: Sequence[Description]) -> float:
        """What descriptions without a distribution gain or lose beside some others: they say what causes explain, and
        all else of the column is as these others have it."""
        if len({how.has_distribution for how in competing}) < 2:
            return 0.0
        return self._without_causes(competing) - self.alone

    @property
    def alone(self) -> float:
        """The log evidence of the column without causes, by all densities or probabilities."""
        return self._without_causes(descriptions_of(self.own.kind))

    def _without_causes(self, competing: Sequence[Description]) -> float:
        """The log evidence of the column without causes, by the densities or probabilities among some descriptions."""
        plain = tuple(how for how in competing if how.has_distribution and not how.together)
        self._alone |= {how: float(self.density(how, [()])[0]) for how in plain if how not in self._alone}
        every = np.array([[self._alone[how]] for how in plain])
        return float(log_mean(every, shares_of(plain, 0.0)[:, None])[0])

    @cached_property
    def _most(self) -> float:
        """No column is more probable, as a density in the units of the likelihood: each row has the value it has."""
        own = self.own
        if not (own.has_steps and own.has_density and own.kind in ("number", "count")):
            return np.inf
        return -own.log_width(self.rows.values[:, self.target])

    @cached_property
    def _gain_by_values(self) -> float:
        """What a column gains where each value has a probability of its own: causes change nothing of it."""
        if not np.isfinite(self._most):
            return 0.0
        by_values = log_evidence_of_values(self.rows.values[:, self.target]) + self._most
        return max(by_values - self.alone, 0.0)

    def cheap(self, sets: Sequence[Set], *, smooth: bool = True) -> np.ndarray:
        """A score (s,) that needs products of features alone: normal regressions of the column, whatever its kind."""
        how = Description("cheap", smooth=smooth)
        found = np.empty(len(sets))
        for some in self._batches(how, sets):
            chosen = [sets[place] for place in some]
            found[some] = self._closed(how, chosen)
        return found

    def _batches(self, how: Description, sets: Sequence[Set]) -> Iterator[list[int]]:
        """Places of sets that have about as many features, in the order of their sizes."""
        features = self.rows.features(how.smooth)
        by_width: dict[tuple[int, int], list[int]] = {}
        for place, parents in enumerate(sets):
            width = padded(sum(len(features[parent]) for parent in parents))
            by_width.setdefault((len(parents), width), []).append(place)
        for (_, width), places in sorted(by_width.items()):
            most = max(1, CHUNK // ((width + 1) * self.rows.count))
            for start in range(0, len(places), most):
                yield places[start : start + most]

    # Closed forms ---------------------------------------------------------------------------------------------------

    def alpha(self, smooth: bool, sets: Sequence[Set]) -> np.ndarray:
        if smooth:
            return np.full(len(sets), SMOOTH_ALPHA)
        columns = self.rows.columns
        return np.array([0.5 * (3 + sum(columns[parent].is_number for parent in parents)) for parents in sets])

    def _explaining(self, products: _Products, sets: Sequence[Set]) -> np.ndarray:
        """Where the intercept and the features of each set stand (s, 1 + p) in the products."""
        width = padded(max(sum(products.features[k].size for k in own) for own in sets))
        chosen = np.full((len(sets), 1 + width), products.zeros)
        chosen[:, 0] = products.ones
        for place, own in enumerate(sets):
            found = np.concatenate([chosen[0, :0], *(products.features[k] for k in own)])
            chosen[place, 1 : 1 + found.size] = found
        return chosen

    def _closed(self, how: Description, sets: Sequence[Set]) -> np.ndarray:
        """Normal noise of constant spread, weights and variance integrated out; labels add up over their numbers."""
        products = self.rows.products(how.smooth, ranks=how.ranks)
        matrix, explained, alpha = products.matrix, products.responses[self.target], self.alpha(how.smooth, sets)
        chosen = self._explaining(products, sets)
        factor = np.linalg.cholesky(matrix[chosen[:, :, None], chosen[:, None, :]] + np.eye(chosen.shape[1]))
        half = np.linalg.solve(factor, matrix[chosen[:, :, None], explained])
        left = matrix[explained, explained] - (half**2).sum(axis=1)
        log_det = 2 * np.log(np.einsum("sii->si", factor)).sum(axis=1)
        beta, n = SMOOTH_BETA if how.smooth else STRAIGHT_BETA, self.rows.count
        constant = alpha * np.log(beta) - gammaln(alpha) + gammaln(alpha + n / 2) - 0.5 * n * np.log(2 * np.pi)
        fit = (alpha + n / 2) * np.log(beta + np.maximum(left, 1e-12).T / 2)
        return np.asarray((constant - 0.5 * log_det - fit).sum(axis=0))

    def _together(self, parents: Set) -> float:
        """A Gaussian process of two parents or more."""
        return self.rows.process.score(self.target, parents)

    def _ridge(self, smooth: bool, sets: Sequence[Set]) -> tuple[np.ndarray, np.ndarray]:
        """Of a number: weights (s, 1 + p) in units of the noise, the intercept first, and the log of its scale (s,)."""
        products = self.rows.products(smooth)
        matrix, explained = products.matrix, int(products.responses[self.target][0])
        chosen = self._explaining(products, sets)
        inner = matrix[chosen[:, :, None], chosen[:, None, :]] + np.eye(chosen.shape[1])
        outer = matrix[chosen, explained]
        weights = np.linalg.solve(inner, outer[..., None])[..., 0]
        left = matrix[explained, explained] - (weights * outer).sum(axis=1)
        scale = np.sqrt(np.maximum(left / self.rows.count, 1e-6))
        return weights / scale[:, None], np.log(scale)

    # Laplace --------------------------------------------------------------------------------------------------------

    def likelihood(self, how: Description, sets: Sequence[Set]) -> Likelihood:
        """How the column scatters around its predictors."""
        kind, levels = self.own.kind, self.own.levels.size
        if kind == "number":
            beta = SMOOTH_BETA if how.smooth else STRAIGHT_BETA
            return Number(how.shape, how.spread, self.alpha(how.smooth, sets), beta)
        if kind == "count":
            return NegativeBinomial.of(self.y) if how.size else Poisson.of(self.y)
        if kind == "ordered":
            return Ordered.of(self.y, levels)
        return Bernoulli.of(self.y) if levels == 2 else Softmax.of(self.y, levels)

    def fitted(self, how: Description, sets: Sequence[Set]) -> tuple[Likelihood, Fitted]:
        """Fit sets that have about as many features; behind the weights of a set are those of features of zeros."""
        likelihood, features = self.likelihood(how, sets), self.rows.features(how.smooth)
        width = 1 + padded(max(sum(len(features[parent]) for parent in parents) for parents in sets))
        start = self._start(how, likelihood, sets, width)
        stacked, places = self.rows.stacked(how.smooth)
        chosen = np.full((len(sets), width), -1)
        chosen[:, 0] = 0
        for place, parents in enumerate(sets):
            own = np.concatenate([chosen[0, :0], *(places[parent] for parent in parents)])
            chosen[place, 1 : 1 + own.size] = own
        if isinstance(likelihood, Number):
            # What compiles takes a while to import, and linear fits do without.
            from vcuda.models.glm.compiled import fit_numbers

            found = fit_numbers(likelihood, self.y, stacked, chosen, SPREAD_PRECISION, *start)
            if self.before is None:
                # Noise of any shape may have several best fits: begin once more, from normal noise.
                again = self._ridge_start(how, likelihood, sets, width)
                found = better(found, fit_numbers(likelihood, self.y, stacked, chosen, SPREAD_PRECISION, *again))
        else:
            design = np.where(chosen[:, :, None] >= 0, stacked[chosen], 0.0)
            found = fit(likelihood, self.y, design, prior_precision(how, likelihood, width), *start)
        best = self.best.setdefault(how.name, {})
        for place, parents in enumerate(sets):
            best[parents] = float(found.log_evidence[place]), found.weights[place], found.shared[place]
        return likelihood, found

    def _ridge_start(
        self, how: Description, likelihood: Number, sets: Sequence[Set], width: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weights and shared numbers of normal noise whose spread is constant."""
        weights = np.zeros((len(sets), likelihood.predictors, width))
        weights[:, 0], scale = self._ridge(how.smooth, sets)
        return weights, likelihood.start(scale)

    def _start(
        self, how: Description, likelihood: Likelihood, sets: Sequence[Set], width: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where to begin: at the same set on all rows, or at the best subset, with the mean that normal noise has."""
        weights = np.zeros((len(sets), likelihood.predictors, width))
        shared = np.zeros((len(sets), likelihood.shared))
        everywhere = {} if self.before is None else self.before.best.get(how.name, {})
        if all(parents in everywhere for parents in sets):
            for place, parents in enumerate(sets):
                _, weights[place], shared[place] = everywhere[parents]
            return weights, shared
        if isinstance(likelihood, Number):
            weights, shared = self._ridge_start(how, likelihood, sets, width)
        elif isinstance(likelihood, NegativeBinomial):
            shared[:] = likelihood.size_centre
        known, features = self.best.get(how.name, {}), self.rows.features(how.smooth)
        first = 1 if isinstance(likelihood, Number) else 0
        for place, parents in enumerate(sets):
            subsets = [parents[:k] + parents[k + 1 :] for k in range(len(parents))]
            subset = max((some for some in subsets if some in known), key=lambda some: known[some][0], default=None)
            if subset is None:
                continue
            _, old, old_shared = known[subset]
            shared[place, first:] = old_shared[first:]
            weights[place, first:, 0] = old[first:, 0]
            here, there = 1, 1
            for parent in parents:
                size = len(features[parent])
                if parent in subset:
                    weights[place, first:, here : here + size] = old[first:, there : there + size]
                    there += size
                here += size
        return weights, shared
