"""Two populations: whether rows fall into two groups that differ in several columns at once.

Two groups are fitted to one half of the rows, and must describe the other half better than a model that was fitted to
that half too. The ratio of likelihoods is then a valid test, whatever its distribution: P(ratio >= 1 / p) <= p.

For tables of numbers each group is jointly normal, and is compared with the fitted model itself. Of any table the
residuals can be asked: they are described by a mixture of two regressions on the causes for each column. Under one
hypothesis every column has groups of its own, so that noise of any shape is covered; under the other all columns share
them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from vcuda.checks.subject import Subject

ITERATIONS = 40
STARTS = 4
LEAST_SD = 0.15
MOST_CAUSES = 4
LEAST_ROWS = 100
# Normal groups of more columns have too many numbers.
MOST_NORMAL = 20
# A population of a smaller share is called outliers.
LEAST_SHARE = 0.05


class Populations(NamedTuple):
    """The p-value of two populations against one, the share of the smaller, and the columns in which they differ."""

    p_value: float
    share: float
    columns: tuple[int, ...]


class _Groups(NamedTuple):
    """Two groups ``(2,)`` by log share, and for each column weights ``(2, q)`` and standard deviations ``(2,)``."""

    log_shares: np.ndarray
    weights: list[np.ndarray]
    deviations: list[np.ndarray]

    def log_densities(self, designs: list[np.ndarray], residuals: np.ndarray) -> np.ndarray:
        """Of each row under each group and column ``(2, d, n)``."""
        found = np.empty((2, len(designs), len(residuals)))
        for k, design in enumerate(designs):
            away = (residuals[:, k] - self.weights[k] @ design) / self.deviations[k][:, None]
            found[:, k] = -0.5 * away**2 - np.log(self.deviations[k])[:, None] - 0.5 * np.log(2 * np.pi)
        return found


def takes_normal_groups(subject: Subject) -> bool:
    """Whether all columns are numbers that nobody set, few, and known in enough rows."""
    table, d = subject.table, len(subject.names)
    if not 2 <= d <= MOST_NORMAL or len(subject.columns) < d or set(table.kinds) != {"number"}:
        return False
    return table.interventions is None and int(_known(subject).sum()) >= max(LEAST_ROWS, 20 * d)


def _known(subject: Subject) -> np.ndarray:
    """The rows ``(n,)`` in which nothing is missing."""
    missing = subject.table.missing
    return np.ones(subject.n, dtype=bool) if missing is None else ~missing[subject.rows].any(axis=1)


def normal_populations(subject: Subject) -> Populations:
    """Whether two jointly normal groups describe the rows better than the model."""
    d, known = len(subject.names), _known(subject)
    values = subject.scaled[known]
    scale = np.maximum(values.std(axis=0), 1e-9)
    values = (values - values.mean(axis=0)) / scale
    rng = subject.rng(7)
    shuffled = rng.permutation(len(values))
    first, second = shuffled[: len(values) // 2], shuffled[len(values) // 2 :]
    groups = max(
        (_normal_groups(values[first], start) for start in _starts(values[first], [], rng)),
        key=lambda found: float(np.logaddexp(*_normal_joint(found, values[first])).sum()),
    )
    described = float(np.logaddexp(*_normal_joint(groups, values[second])).sum()) - second.size * np.log(scale).sum()
    rows = subject.scaled[known][second]

    @cache
    def log_density(column: int, parents: tuple[int, ...]) -> float:
        chosen = np.array(parents, dtype=np.int64)
        return float(subject.predictive.column(column, chosen, rows).log_density.sum())

    def log_likelihood(graph: np.ndarray) -> float:
        return sum(log_density(column, tuple(np.flatnonzero(graph[:, column]).tolist())) for column in range(d))

    model = log_likelihood(subject.graph)
    if model < described:
        # Another probable graph may describe them better.
        others = [] if subject.late else subject.best_other_graphs()
        model = max([model, *map(log_likelihood, others)])
    unit = [np.sqrt(np.diag(own)) for own in groups.covariances]
    apart = np.abs(groups.means[0] - groups.means[1]) / np.sqrt(0.5 * (unit[0] ** 2 + unit[1] ** 2))
    correlations = [own / np.outer(u, u) for own, u in zip(groups.covariances, unit, strict=True)]
    turned = np.abs(correlations[0] - correlations[1]).max(axis=1)
    differ = np.flatnonzero((apart > 0.5) | (turned > 0.4) | (np.abs(np.log(unit[0] / unit[1])) > 0.4))
    p_value = float(np.exp(min(0.0, model - described)))
    return Populations(p_value, float(np.exp(groups.log_shares.min())), tuple(differ.tolist()))


class _NormalGroups(NamedTuple):
    """Two groups by log share ``(2,)``, means ``(2, d)`` and covariances ``(2, d, d)``."""

    log_shares: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


def _normal_joint(groups: _NormalGroups, values: np.ndarray) -> np.ndarray:
    """The log density ``(2, n)`` of each row in each group, with the group's share."""
    found = np.empty((2, len(values)))
    for g in range(2):
        factor = np.linalg.cholesky(groups.covariances[g])
        away = np.linalg.solve(factor, (values - groups.means[g]).T)
        found[g] = groups.log_shares[g] - 0.5 * (away**2).sum(axis=0) - np.log(np.diag(factor)).sum()
    return found - 0.5 * values.shape[1] * np.log(2 * np.pi)


def _normal_groups(values: np.ndarray, chances: np.ndarray) -> _NormalGroups:
    """Two jointly normal groups by expectation and maximisation, from chances ``(n,)`` of the second."""
    n, d = values.shape
    member, before = np.stack([1 - chances, chances]), -np.inf
    for _ in range(ITERATIONS):
        counts = member.sum(axis=1)
        means = (member @ values) / counts[:, None]
        covariances = np.empty((2, d, d))
        for g in range(2):
            centred = values - means[g]
            # As if some rows of the usual spread, without correlations, belonged to each group.
            covariances[g] = ((centred.T * member[g]) @ centred + d * LEAST_SD * np.eye(d)) / (counts[g] + d)
        shares = np.clip(counts / n, 0.02, 0.98)
        groups = _NormalGroups(np.log(shares / shares.sum()), means, covariances)
        joint = _normal_joint(groups, values)
        total = np.logaddexp(*joint)
        member = np.clip(np.exp(joint - total), 1e-9, 1.0)
        if total.sum() - before < 1e-5 * n:
            break
        before = float(total.sum())
    return groups


def populations(subject: Subject) -> Populations:
    """Test for two populations among the rows that are looked at, by their residuals."""
    rng, columns = subject.rng(5), list(subject.columns)
    nothing = Populations(1.0, 0.0, ())
    if subject.n < LEAST_ROWS or len(columns) < 2:
        return nothing
    designs = []
    for column in columns:
        causes = subject.scores[:, subject.parents(column)[:MOST_CAUSES]]
        designs.append(np.concatenate([np.ones((1, subject.n)), causes.T]))
    residuals = np.stack([_bare(subject, column) for column in columns], axis=1)
    shuffled = rng.permutation(subject.n)
    first, second = np.sort(shuffled[: subject.n // 2]), np.sort(shuffled[subject.n // 2 :])
    own, other = [design[:, first] for design in designs], [design[:, second] for design in designs]
    shared = max(
        (_fitted(own, residuals[first], start) for start in _starts(residuals[first], own, rng)),
        key=lambda groups: _log_likelihood(groups, own, residuals[first]),
    )
    gained = _log_likelihood(shared, other, residuals[second])
    for k in range(len(columns)):
        alone = residuals[second][:, k : k + 1]
        gained -= max(
            _log_likelihood(_fitted([other[k]], alone, start), [other[k]], alone)
            for start in _starts(alone, [other[k]], rng)[1:3]
        )
    share = float(np.exp(shared.log_shares.min()))
    differ = [
        column
        for k, column in enumerate(columns)
        if np.abs(np.diff(shared.weights[k], axis=0)).max() > 0.4 or np.ptp(np.log(shared.deviations[k])) > 0.4
    ]
    return Populations(float(np.exp(min(0.0, -gained))), share, tuple(differ))


def _bare(subject: Subject, column: int) -> np.ndarray:
    """Residuals of a column without curves, and with the same spread whatever the causes."""
    own = subject.residuals[:, column]
    causes = subject.scores[:, subject.parents(column)[:MOST_CAUSES]]
    features = np.column_stack([np.ones(own.size), causes, causes**2])
    own = own - features @ np.linalg.lstsq(features, own, rcond=None)[0]
    sizes = np.log(np.abs(own) + 0.05)
    spread = np.exp(features @ np.linalg.lstsq(features, sizes, rcond=None)[0])
    scaled = own / spread
    return np.asarray(scaled / scaled.std())


def _starts(residuals: np.ndarray, designs: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Chances ``(n,)`` of belonging to the second group, to begin with: by a direction in which rows are far apart, by
    what goes with the causes, and by size."""
    products = [residuals, *(residuals * causes[1:2].T for causes in designs if len(causes) > 1)]
    together = np.concatenate(products, axis=1)
    together = together - together.mean(axis=0)
    turned = np.linalg.svd(together, full_matrices=False)[0]
    size = (residuals**2).sum(axis=1)
    found = [turned[:, 0], turned[:, min(1, turned.shape[1] - 1)], size]
    found += [together @ rng.standard_normal(together.shape[1]) for _ in range(STARTS - 3)]
    return [np.where(one > np.median(one), 0.9, 0.1) for one in found]


def _fitted(designs: list[np.ndarray], residuals: np.ndarray, chances: np.ndarray) -> _Groups:
    """Two groups by expectation and maximisation, from chances ``(n,)`` of the second."""
    n, before = len(residuals), -np.inf
    member = np.stack([1 - chances, chances])
    for _ in range(ITERATIONS):
        shares = np.clip(member.mean(axis=1), 0.02, 0.98)
        weights, deviations = [], []
        for k, design in enumerate(designs):
            own, spread = np.empty((2, len(design))), np.empty(2)
            for g in range(2):
                weighted = design * member[g]
                own[g] = np.linalg.solve(weighted @ design.T + np.eye(len(design)), weighted @ residuals[:, k])
                left = residuals[:, k] - own[g] @ design
                # As if a few rows of the usual spread belonged to each group.
                spread[g] = np.sqrt((member[g] @ left**2 + 3.0) / (member[g].sum() + 3.0))
            weights.append(own)
            deviations.append(np.maximum(spread, LEAST_SD))
        groups = _Groups(np.log(shares / shares.sum()), weights, deviations)
        joint = groups.log_densities(designs, residuals).sum(axis=1) + groups.log_shares[:, None]
        total = np.logaddexp(joint[0], joint[1])
        member = np.exp(joint - total)
        if total.sum() - before < 1e-3 * n / 100:
            break
        before = float(total.sum())
    return groups


def _log_likelihood(groups: _Groups, designs: list[np.ndarray], residuals: np.ndarray) -> float:
    joint = groups.log_densities(designs, residuals).sum(axis=1) + groups.log_shares[:, None]
    return float(np.logaddexp(joint[0], joint[1]).sum())
