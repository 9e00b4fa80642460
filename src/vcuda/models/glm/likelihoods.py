"""How a column scatters around its predictors: the log density of every row, with its first two derivatives.

Rows lie on the last axis and sets of parents on the first, so that B sets are evaluated side by side: ``eta`` (B, q, n)
are q predictors of n rows, ``psi`` (B, m) are m numbers that all rows of a set share (scales and shapes of the noise).
The derivatives are written out by hand: automatic ones take minutes to compile, and these are short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
from scipy.special import digamma, expit, gammaln, log_expit, polygamma

LOG_TWO_PI = float(np.log(2 * np.pi))


class Rows(NamedTuple):
    """The log density of each row, and its derivatives; the second ones by ``psi`` alone are summed over the rows.

    ``value`` (B, n), ``slope`` (B, q, n), ``curvature`` (B, q, q, n), ``shared_slope`` (B, m, n), ``mixed``
    (B, m, q, n) by psi and eta, ``shared_curvature`` (B, m, m).
    """

    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    shared_slope: np.ndarray
    mixed: np.ndarray
    shared_curvature: np.ndarray


class Likelihood(Protocol):
    """A family of distributions of one column."""

    @property
    def predictors(self) -> int:
        """q, how many predictors a row has."""
        ...

    @property
    def shared(self) -> int:
        """m, how many numbers the rows share."""
        ...

    def rows(self, y: np.ndarray, eta: np.ndarray, psi: np.ndarray) -> Rows:
        """Evaluate the column (n,) for B sets."""
        ...

    def log_prior(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The log density of ``psi`` (B,), its slope (B, m) and the diagonal of its curvature (B, m)."""
        ...

    def take(self, items: np.ndarray) -> Likelihood:
        """The same for some of the B sets."""
        ...


class Sieve:
    """Noise of any shape: a mixture of fixed normal components whose weights alone are free.

    The weights are a softmax of ``logits``, normal around ``centres``: mostly a standard normal distribution unless the
    rows say otherwise. Fixed components cannot change places, and express skew, two humps, bounds and heavy tails.
    Sharper ones would describe the edges of exponential noise; in real tables they describe rounding, and directions
    that were read from it were wrong (docs/decisions.md).
    """

    means = np.array([0.0, -0.4, 0.4, -1.2, 1.2, -2.0, 2.0, 0.0, 0.0])
    scales = np.array([1.0, 0.45, 0.45, 0.45, 0.45, 0.45, 0.45, 3.0, 9.0])
    centres = np.array([0.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -3.0, -3.0])
    spread = 1.5
    size = centres.size


@dataclass(frozen=True, eq=False)
class Number:
    """A number: location, one scale, noise that is normal or of any shape, and a scale that may depend on the parents.

    z = (y exp(-tau) - eta_1) exp(-eta_2), log density h(z) - tau - eta_2; ``eta_2`` only with ``spread``. Predictors
    are in units of the noise: a function may be as large as the noise lets it be. sigma² = exp(2 tau) is inverse
    gamma (``alpha`` (B,), ``beta``).
    """

    shape: bool
    spread: bool
    alpha: np.ndarray
    beta: float

    @property
    def predictors(self) -> int:
        return 2 if self.spread else 1

    @property
    def shared(self) -> int:
        return 1 + (Sieve.size if self.shape else 0)

    def take(self, items: np.ndarray) -> Number:
        return Number(self.shape, self.spread, self.alpha[items], self.beta)

    def rows(self, y: np.ndarray, eta: np.ndarray, psi: np.ndarray) -> Rows:
        sets, rows = len(psi), y.size
        scaled = y * np.exp(-psi[:, :1])
        z, shrink = scaled - eta[:, 0], None
        if self.spread:
            # Beyond this the scale of a row is nonsense, and its square would overflow.
            rho = np.clip(eta[:, 1], -15.0, 15.0)
            shrink = np.exp(-rho)
            z *= shrink
            scaled = scaled * shrink
        if self.shape:
            logits = psi[:, 1:]
            log_weights = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
            weights = np.exp(log_weights)
            # (K, B, n): components first, so that each is one long loop.
            inverse = 1.0 / Sieve.scales[:, None, None]
            away = (z - Sieve.means[:, None, None]) * inverse
            terms = -0.5 * away * away
            terms += (log_weights.T - np.log(Sieve.scales)[:, None] - 0.5 * LOG_TWO_PI)[:, :, None]
            top = terms.max(axis=0)
            terms -= top
            np.exp(terms, out=terms)
            total = terms.sum(axis=0)
            share = terms / total
            height = top + np.log(total)
            pull = -away * inverse
            first = np.einsum("kbn,kbn->bn", share, pull)
            second = np.einsum("kbn,kbn->bn", share, pull * pull - inverse * inverse) - first * first
        else:
            height, first, second = -0.5 * (z * z + LOG_TWO_PI), -z, np.full_like(z, -1.0)
        value = height - psi[:, :1]
        m = self.shared
        slope = np.empty((sets, self.predictors, rows))
        curvature = np.empty((sets, self.predictors, self.predictors, rows))
        mixed = np.empty((sets, m, self.predictors, rows))
        shared_slope = np.empty((sets, m, rows))
        shared_curvature = np.zeros((sets, m, m))
        if shrink is None:
            slope[:, 0] = -first
            curvature[:, 0, 0] = second
            mixed[:, 0, 0] = second * scaled
        else:
            value -= rho
            slope[:, 0], slope[:, 1] = -first * shrink, -first * z - 1.0
            bent = second * z + first
            curvature[:, 0, 0] = second * shrink * shrink
            curvature[:, 0, 1] = curvature[:, 1, 0] = bent * shrink
            curvature[:, 1, 1] = bent * z
            mixed[:, 0, 0] = second * scaled * shrink
            mixed[:, 0, 1] = bent * scaled
        shared_slope[:, 0] = -first * scaled - 1.0
        shared_curvature[:, 0, 0] = np.einsum("bn,bn->b", second * scaled + first, scaled)
        if self.shape:
            turn = share * (pull - first)
            shared_slope[:, 1:] = np.swapaxes(share, 0, 1) - weights[:, :, None]
            mixed[:, 1:, 0] = np.swapaxes(-turn if shrink is None else -turn * shrink, 0, 1)
            if shrink is not None:
                mixed[:, 1:, 1] = np.swapaxes(-turn * z, 0, 1)
            cross = -np.einsum("kbn,bn->bk", turn, scaled)
            shared_curvature[:, 0, 1:] = shared_curvature[:, 1:, 0] = cross
            by_set = np.swapaxes(share, 0, 1)
            block = rows * weights[:, :, None] * weights[:, None, :] - by_set @ np.swapaxes(by_set, 1, 2)
            block[:, np.arange(m - 1), np.arange(m - 1)] += share.sum(axis=2).T - rows * weights
            shared_curvature[:, 1:, 1:] = block
        return Rows(value, slope, curvature, shared_slope, mixed, shared_curvature)

    def log_prior(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tau = psi[:, 0]
        tail = self.beta * np.exp(-2 * tau)
        value = np.log(2.0) + self.alpha * np.log(self.beta) - gammaln(self.alpha) - 2 * self.alpha * tau - tail
        slope, curvature = np.empty_like(psi), np.empty_like(psi)
        slope[:, 0], curvature[:, 0] = -2 * self.alpha + 2 * tail, -4 * tail
        if self.shape:
            away = (psi[:, 1:] - Sieve.centres) / Sieve.spread
            value = value - 0.5 * (away**2).sum(axis=1) - away.shape[1] * (0.5 * LOG_TWO_PI + np.log(Sieve.spread))
            slope[:, 1:], curvature[:, 1:] = -away / Sieve.spread, -1.0 / Sieve.spread**2
        return value, slope, curvature

    def location_and_scale(self, eta: np.ndarray, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each row lies and the scale of its noise, both (B, n): y is location + scale times z, z from h."""
        unit = np.exp(psi[:, :1])
        spread = np.exp(np.clip(eta[:, 1], -15.0, 15.0)) if self.spread else np.ones_like(eta[:, 0])
        return unit * eta[:, 0], unit * spread

    def start(self, tau: np.ndarray) -> np.ndarray:
        """Shared numbers (B, m) to begin with: the scale ``tau`` (B,) of the residuals, and nearly normal noise."""
        if not self.shape:
            return tau[:, None]
        return np.concatenate([tau[:, None], np.tile(Sieve.centres, (len(tau), 1))], axis=1)


class Unshared:
    """What families without shared numbers have in common."""

    shared = 0

    def take(self, items: np.ndarray) -> Self:
        return self

    def log_prior(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.zeros(len(psi)), np.zeros_like(psi), np.zeros_like(psi)


def _unshared(value: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> Rows:
    sets, q, n = slope.shape
    return Rows(value, slope, curvature, np.zeros((sets, 0, n)), np.zeros((sets, 0, q, n)), np.zeros((sets, 0, 0)))


@dataclass(frozen=True, eq=False)
class Bernoulli(Unshared):
    """Yes or no, 1 or 0: log odds ``centre`` + ``unit`` times the predictor."""

    centre: float
    unit: float
    predictors = 1

    @classmethod
    def of(cls, y: np.ndarray) -> Bernoulli:
        """In the units of the column: what one row tells of the log odds where nothing is known of the parents."""
        share = (y.sum() + 0.5) / (y.size + 1.0)
        return cls(float(np.log(share / (1 - share))), float((share * (1 - share)) ** -0.5))

    def rows(self, y: np.ndarray, eta: np.ndarray, psi: np.ndarray) -> Rows:
        odds = self.centre + self.unit * eta[:, 0]
        chance = expit(odds)
        value = y * odds + log_expit(-odds)
        slope = self.unit * (y - chance)
        curvature = -(self.unit**2) * chance * (1 - chance)
        return _unshared(value, slope[:, None], curvature[:, None, None])

    def probabilities(self, eta: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """Of no and yes (B, 2, n)."""
        odds = self.centre + self.unit * eta[:, 0]
        return np.stack([expit(-odds), expit(odds)], axis=1)


@dataclass(frozen=True, eq=False)
class Softmax(Unshared):
    """One of several labels: log odds against the last, ``centre`` (L - 1,) + ``unit`` (L - 1, L - 1) @ predictors."""

    centre: np.ndarray
    unit: np.ndarray

    @property
    def predictors(self) -> int:
        return self.centre.size

    @classmethod
    def of(cls, y: np.ndarray, levels: int) -> Softmax:
        shares = (np.bincount(y.astype(np.int64), minlength=levels) + 0.5) / (y.size + 0.5 * levels)
        rest = shares[:-1]
        information = np.diag(rest) - np.outer(rest, rest)
        # information = C C', so that predictors times C'^-1 have unit information a row.
        factor = np.linalg.cholesky(information)
        return cls(np.log(rest / shares[-1]), np.linalg.inv(factor).T)

    def rows(self, y: np.ndarray, eta: np.ndarray, psi: np.ndarray) -> Rows:
        odds = self.centre[:, None] + np.einsum("lk,bkn->bln", self.unit, eta)
        top = np.maximum(odds.max(axis=1), 0.0)
        raised = np.exp(odds - top[:, None])
        total = raised.sum(axis=1) + np.exp(-top)
        chances = raised / total[:, None]
        label = y.astype(np.int64)
        hit = (label[None, :] == np.arange(self.predictors)[:, None]).astype(np.float64)
        value = np.einsum("ln,bln->bn", hit, odds) - (top + np.log(total))
        slope = np.einsum("lk,bln->bkn", self.unit, hit - chances)
        # C' (p p' - diag p) C by rows.
        turned = np.einsum("lk,bln->bkn", self.unit, chances)
        curvature = turned[:, :, None] * turned[:, None]
        q = self.predictors
        for k in range(q):
            for other in range(k, q):
                spread = np.tensordot(chances, self.unit[:, k] * self.unit[:, other], axes=([1], [0]))
                curvature[:, k, other] -= spread
                if other != k:
                    curvature[:, other, k] = curvature[:, k, other]
        return _unshared(value, slope, curvature)

    def probabilities(self, eta: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """Of every label (B, L, n)."""
        odds = self.centre[:, None] + np.matmul(self.unit, eta)
        raised = np.concatenate([odds, np.zeros_like(odds[:, :1])], axis=1)
        raised = np.exp(raised - raised.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Ordered:
    """One of several ordered labels: P(label <= l) = expit(threshold_l - ``unit`` eta).

    The thresholds are shared numbers, the first as it is and the others by the logarithm of their distances; they are
    normal around those of the column as a whole, with the information of one row.
    """

    first: float
    log_steps: np.ndarray
    unit: float
    factor: np.ndarray
    predictors = 1

    @property
    def shared(self) -> int:
        return 1 + self.log_steps.size

    def take(self, items: np.ndarray) -> Self:
        return self

    @classmethod
    def of(cls, y: np.ndarray, levels: int) -> Ordered:
        shares = (np.bincount(y.astype(np.int64), minlength=levels) + 0.5) / (y.size + 0.5 * levels)
        below = np.cumsum(shares)[:-1]
        thresholds = np.log(below / (1 - below))
        steep = np.concatenate([[0.0], below * (1 - below), [0.0]])
        information = float(np.sum((np.diff(steep)) ** 2 / shares))
        log_steps = np.log(np.diff(thresholds))
        bare = cls(float(thresholds[0]), log_steps, information**-0.5, np.eye(levels - 1))
        # What one row tells of the thresholds: the curvature of the column as a whole, expected under its shares.
        every = np.arange(levels, dtype=np.float64)
        psi = np.zeros((1, levels - 1))
        own = np.zeros((levels - 1, levels - 1))
        for level, share in zip(every, shares, strict=True):
            own -= share * bare.rows(np.array([level]), np.zeros((1, 1, 1)), psi).shared_curvature[0]
        factor = np.linalg.inv(np.linalg.cholesky(own)).T
        return cls(bare.first, log_steps, bare.unit, factor)

    def _thresholds(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Thresholds (B, L - 1), and the steps (B, L - 2) between them."""
        moved = psi @ self.factor.T
        steps = np.exp(np.clip(self.log_steps + moved[:, 1:], -30.0, 30.0))
        first = self.first + moved[:, :1]
        return np.concatenate([first, first + np.cumsum(steps, axis=1)], axis=1), steps

    def rows(self, y: np.ndarray, eta: np.ndarray, psi: np.ndarray) -> Rows:
        sets, rows = len(psi), y.size
        label = y.astype(np.int64)
        thresholds, steps = self._thresholds(psi)
        m = self.shared
        padded = np.concatenate([np.full((sets, 1), -np.inf), thresholds, np.full((sets, 1), np.inf)], axis=1)
        upper, lower = padded[:, label + 1] - self.unit * eta[:, 0], padded[:, label] - self.unit * eta[:, 0]
        above, beneath = expit(upper), expit(lower)
        # log(F(u) - F(l)) = log F(u) + log(1 - F(l)) + log(1 - exp(l - u)), which loses no digits in the tails.
        apart = np.where(np.isinf(upper) | np.isinf(lower), np.inf, upper - lower)
        chance_log = log_expit(upper) + log_expit(-lower) + np.log(-np.expm1(-apart))
        chance = np.exp(np.maximum(chance_log, -700.0))
        f_up, f_low = above * (1 - above), beneath * (1 - beneath)
        g_up, g_low = f_up * (1 - 2 * above), f_low * (1 - 2 * beneath)
        # Slopes by the upper and the lower threshold of each row.
        s_up, s_low = f_up / chance, -f_low / chance
        c_up = g_up / chance - s_up**2
        c_low = -g_low / chance - s_low**2
        c_both = -s_up * s_low
        slope = -self.unit * (s_up + s_low)
        curvature = self.unit**2 * (c_up + 2 * c_both + c_low)
        by_threshold = -self.unit * np.stack([c_up + c_both, c_low + c_both])
        mixed = np.zeros((sets, m, 1, rows))
        own_slope = np.zeros((sets, m, rows))
        own = np.zeros((sets, m, m))
        for level in range(m):
            top, bottom = label == level, label == level + 1
            mixed[:, level, 0, top] += by_threshold[0][:, top]
            mixed[:, level, 0, bottom] += by_threshold[1][:, bottom]
            own_slope[:, level, top] = s_up[:, top]
            own_slope[:, level, bottom] = s_low[:, bottom]
            own[:, level, level] = c_up[:, top].sum(axis=1) + c_low[:, bottom].sum(axis=1)
            if level + 1 < m:
                own[:, level, level + 1] = own[:, level + 1, level] = c_both[:, bottom].sum(axis=1)
        # From thresholds to the numbers that are free: threshold_l = first + sum of the steps up to l.
        turn = np.zeros((sets, m, m))
        turn[:, :, 0] = 1.0
        for step in range(m - 1):
            turn[:, step + 1 :, step + 1] = steps[:, step, None]
        bend = np.zeros((sets, m))
        for step in range(m - 1):
            bend[:, step + 1] = own_slope[:, step + 1 :].sum(axis=(1, 2)) * steps[:, step]
        free = np.swapaxes(turn, 1, 2) @ own @ turn
        free[:, np.arange(m), np.arange(m)] += bend
        shared_slope = np.swapaxes(turn @ self.factor, 1, 2) @ own_slope
        shared_curvature = self.factor.T @ free @ self.factor
        mixed = np.einsum("bli,blqn->biqn", turn @ self.factor, mixed)
        return Rows(chance_log, slope[:, None], curvature[:, None, None], shared_slope, mixed, shared_curvature)

    def probabilities(self, eta: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """Of every label (B, L, n)."""
        thresholds, _ = self._thresholds(psi)
        below = expit(thresholds[:, :, None] - self.unit * eta)
        nothing, all_of_it = np.zeros_like(below[:, :1]), np.ones_like(below[:, :1])
        return np.diff(np.concatenate([nothing, below, all_of_it], axis=1), axis=1)

    def log_prior(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        value = -0.5 * (psi**2).sum(axis=1) - 0.5 * psi.shape[1] * LOG_TWO_PI
        return value, -psi, np.full_like(psi, -1.0)


@dataclass(frozen=True, eq=False)
class Poisson(Unshared):
    """A count: log rate ``centre`` + ``unit`` times the predictor."""

    centre: float
    unit: float
    predictors = 1

    @classmethod
    def of(cls, y: np.ndarray) -> Poisson:
        mean = (y.sum() + 0.5) / (y.size + 0.5)
        return cls(float(np.log(mean)), float(mean**-0.5))

    def rows(self, y: np.ndarray, eta: np.ndarray, psi: np.ndarray) -> Rows:
        log_rate = np.clip(self.centre + self.unit * eta[:, 0], -30.0, 30.0)
        rate = np.exp(log_rate)
        value = y * log_rate - rate - gammaln(y + 1.0)
        return _unshared(value, (self.unit * (y - rate))[:, None], (-(self.unit**2) * rate)[:, None, None])

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """The expected count (B, n)."""
        return np.exp(np.clip(self.centre + self.unit * eta[:, 0], -30.0, 30.0))


@dataclass(frozen=True, eq=False)
class NegativeBinomial:
    """A count that varies more than a Poisson one: log mean ``centre`` + ``unit`` eta, and a shared log size.

    The log size is normal around 1.5 with standard deviation 1.5, and at most 9, where the family is Poisson.
    """

    centre: float
    unit: float
    predictors = 1
    shared = 1
    size_centre, size_spread, most = 1.5, 1.5, 9.0

    @classmethod
    def of(cls, y: np.ndarray) -> NegativeBinomial:
        mean = (y.sum() + 0.5) / (y.size + 0.5)
        size = mean**2 / max(float(np.var(y)) - mean, 1e-3 * mean)
        return cls(float(np.log(mean)), float((mean * size / (mean + size)) ** -0.5))

    def take(self, items: np.ndarray) -> Self:
        return self

    def rows(self, y: np.ndarray, eta: np.ndarray, psi: np.ndarray) -> Rows:
        sets, rows = len(psi), y.size
        log_size = np.clip(psi[:, :1], -6.0, self.most)
        inside = ((psi[:, :1] > -6.0) & (psi[:, :1] < self.most)).astype(np.float64)
        size = np.exp(log_size)
        log_mean = np.clip(self.centre + self.unit * eta[:, 0], -30.0, 30.0)
        mean = np.exp(log_mean)
        whole = mean + size
        value = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
        value = value + size * (log_size - np.log(whole)) + y * (log_mean - np.log(whole))
        share = mean / whole
        slope = self.unit * (y - (y + size) * share)
        curvature = -(self.unit**2) * (y + size) * share * (1 - share)
        by_size = digamma(y + size) - digamma(size) + log_size + 1.0 - np.log(whole) - (y + size) / whole
        twice = polygamma(1, y + size) - polygamma(1, size) + 1.0 / size - 2.0 / whole + (y + size) / whole**2
        mixed = self.unit * ((y + size) * share / whole - share) * size * inside
        own_slope = by_size * size * inside
        own = ((twice * size**2 + by_size * size) * inside).sum(axis=1)
        return Rows(
            value,
            slope[:, None],
            curvature[:, None, None],
            own_slope[:, None],
            mixed.reshape(sets, 1, 1, rows),
            own[:, None, None],
        )

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """The expected count (B, n)."""
        return np.exp(np.clip(self.centre + self.unit * eta[:, 0], -30.0, 30.0))

    def size(self, psi: np.ndarray) -> np.ndarray:
        """How little the counts vary beyond Poisson ones (B,): their variance is mean + mean² / size."""
        return np.exp(np.clip(psi[:, 0], -6.0, self.most))

    def log_prior(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        away = (psi - self.size_centre) / self.size_spread
        value = -0.5 * (away**2).sum(axis=1) - 0.5 * LOG_TWO_PI - np.log(self.size_spread)
        return value, -away / self.size_spread, np.full_like(psi, -1.0 / self.size_spread**2)
