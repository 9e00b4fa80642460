"""The interface of a model family: LocalScore for engines, ScoreSpec for users, Family for all the rest.

A spec, such as ``BGe()``, says which model; ``spec.prepare(values)`` reduces the table once to what all sets of parents
share; the prepared :class:`LocalScore` then answers log p(x_target | x_parents). Summed over the nodes of a graph, plus
``log_jacobian``, the answers give the log marginal likelihood of the table in the user's units, so that evidences of
different models can be compared. A :class:`Family` says the rest: names, words, what it costs, how it is stored.

Engines never ask what kind of score they have. What they must know of it is a trait with a default that suits
every score which only knows how to score one set.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import comb
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, get_args

import numpy as np

from vcuda.data.moments import Moments
from vcuda.data.scaling import Scaling
from vcuda.data.streaming.statistics import FeatureStatistics
from vcuda.errors import ConfigError, DataError
from vcuda.models.checks import centred_columns
from vcuda.models.prediction import Predictive
from vcuda.models.regressions import Regressions
from vcuda.models.sets import Ask, checked_candidates, gains_by_sets, losses_by_sets, sets_of, table_steps

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.data.streaming import StreamedTable

Noise = Literal["unit", "equal", "unequal"]
SetKey = tuple[int, ...]


def check_noise(noise: str) -> None:
    if noise not in get_args(Noise):
        raise ConfigError(f"noise must be one of {', '.join(get_args(Noise))}, not {noise!r}")


class PowerLaw(NamedTuple):
    """seconds = start + a d^b + sweep * hundreds of sweeps * d, gigabytes = base + c d^e, for d columns.

    With fewer than 1,000 rows, what depends on d grows by the power ``rows`` of what is lacking.
    """

    start: float
    a: float
    b: float
    sweep: float
    base: float
    c: float
    e: float
    rows: float = 0.0


class RoundingError(DataError):
    """What all nodes share cannot be computed for columns of so different scales: rounding leaves nothing of it."""


class Nuisance(Protocol):
    """A positive parameter that all nodes share, such as one noise variance: engines average over it.

    Given its value the score adds up over nodes. Given a graph the log evidence is nearly c - A u - B exp(-u) in the
    logarithm u of the value, with A half the number of ``cells``. ``prior`` are shape and scale of its inverse gamma.
    """

    @property
    def cells(self) -> int: ...

    @property
    def prior(self) -> tuple[float, float]: ...

    @property
    def nodes(self) -> int: ...

    def at(self, value: float) -> LocalScore:
        """Return the score under this value."""
        ...

    def log_prior(self, value: float) -> float: ...

    def guess(self) -> float:
        """Return a value near the best, in the time of a factorisation of all columns."""
        ...

    def quick_guess(self) -> float:
        """Return a likely value, in the time of a look at every column."""
        ...

    def least(self) -> float:
        """Return the value below which rounding spoils the scores; a RoundingError where that is any value."""
        ...

    def rounded_away(self) -> RoundingError:
        """What to raise where values count that are smaller than this."""
        ...


class LocalScore:
    """A score prepared for a table; it adds up over the nodes of a graph.

    A family must give ``nodes``, ``rows``, ``log_jacobian``, ``max_parents`` and :meth:`score`; everything else has a
    default, by single sets, that a family replaces where it knows better.

    ``nodes`` is d, ``rows`` n; ``log_jacobian`` turns a sum of scores into the evidence of the table in the user's
    units; sets of more than ``max_parents`` parents (if not None) have the score minus infinity in tables.
    """

    if TYPE_CHECKING:
        # Not there at run time: a dataclass would take a property of its base for the default of its field.
        @property
        def nodes(self) -> int: ...

        @property
        def rows(self) -> int: ...

        @property
        def log_jacobian(self) -> float: ...

        @property
        def max_parents(self) -> int | None: ...

        @property
        def full_parents(self) -> int | None:
            """Tables hold all sets of up to so many parents (None: of any number), and larger ones only as extensions
            of sets that are at most ``margin`` nats below the best."""

        @property
        def margin(self) -> float: ...

        @property
        def columns(self) -> np.ndarray | None:
            """The standardised rows (n, d), in which parents are searched that show only together; None to search
            none."""

    else:
        # Families have some of these as fields, declared by ``field()`` so that they do not take the default.
        full_parents, margin, columns = None, np.inf, None

    # Scores of sets -----------------------------------------------------------------------------------------------

    def score(self, target: int, parents: Sequence[int]) -> float:
        """Return log p(x_target | x_parents)."""
        raise NotImplementedError

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        """Return the scores (2**c,) of all subsets of c candidates; bit t of the index is candidates[t]."""
        steps = self.table_steps(self.score, target, checked_candidates(target, candidates, self.nodes))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return np.asarray(end.value)

    def table_steps(self, ask: Ask, target: int, chosen: np.ndarray) -> Generator[list[list[int]], None, np.ndarray]:
        """Fill a table by scores that are asked for; yields the sets before it asks."""
        full, margin = self.full_parents, self.margin
        return table_steps(ask, target, chosen, full=full, margin=margin, most=self.max_parents)

    def tables(self, targets: Sequence[int], free: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        """Return the scores (t, 2**c) of all subsets of c candidates each, ``free`` (t, c), together with the parents
        that each target has in any case, ``fixed`` (t, k)."""
        width, certain = free.shape[1], fixed.shape[1]
        # The fixed ones have the highest bits, all of which are set.
        bits = ((1 << certain) - 1) << width
        both = np.concatenate([free, fixed], axis=1)
        return np.stack(
            [
                np.array(self.table(target, chosen)[bits : bits + (1 << width)], dtype=np.float64)
                for target, chosen in zip(targets, both, strict=True)
            ]
        )

    def all_tables(
        self,
        targets: np.ndarray,
        candidates: Sequence[np.ndarray],
        *,
        threads: int,
        on_progress: Callable[[float], None],
    ) -> np.ndarray | None:
        """Do what is cheaper for many targets at once, before the table of each is asked for.

        Returns the tables (d, 2**(d - 1)) with all other columns as candidates, right for the ``targets`` at least, or
        None where tables are made one by one. ``candidates`` are what each target's table will be asked for.
        """
        return None

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        """Return what adding each column to the parents gains (d,); -inf for the target and the parents."""
        return gains_by_sets(self.score, self.nodes, target, parents)

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        """Return what leaving out each of the parents (k,) loses (k,)."""
        return losses_by_sets(self.score, target, parents)

    # Traits -------------------------------------------------------------------------------------------------------

    @property
    def score_equivalent(self) -> bool:
        """Whether Markov equivalent graphs score alike."""
        return False

    @property
    def tells_direction(self) -> bool:
        """Whether every direction is worth hundreds of nats, as with noise of equal variance."""
        return False

    @property
    def linear(self) -> bool:
        """Whether a node is a weighted sum of its parents."""
        return False

    @property
    def cheap_tables(self) -> bool:
        """Whether tables come from a recursion in NumPy, a set for some ten operations: they may be larger, threads
        help, and greedy searches over whole graphs are quick."""
        return False

    @property
    def makes_all_tables(self) -> bool:
        """Whether :meth:`all_tables` returns tables, which must then be held all at once."""
        return False

    @property
    def slow_sets(self) -> bool:
        """Whether a set takes milliseconds: sets are then cached, and beyond some columns only those are scored that
        the :meth:`screen` proposes, which must not be None then."""
        return False

    @property
    def shares_sets(self) -> bool:
        """Whether one evaluation of a set serves all targets."""
        return False

    @property
    def is_stateless(self) -> bool:
        """Whether a copy in another process says the same in the same time."""
        return True

    @property
    def known_variance(self) -> float:
        """The noise variance that all nodes share where it is known, in the units of the score; otherwise one."""
        return 1.0

    # Parts, and what all nodes share ------------------------------------------------------------------------------

    @property
    def parts(self) -> tuple[LocalScore, ...]:
        """The scores of the sets of rows that targets are judged by: itself, unless experiments set some cells."""
        return (self,)

    @property
    def part_of(self) -> np.ndarray:
        """Which part each target belongs to (d,)."""
        return np.zeros(self.nodes, dtype=np.int64)

    @property
    def free_rows(self) -> np.ndarray:
        """In how many rows each target was left free by experiments (d,)."""
        return np.full(self.nodes, self.rows)

    def of(self, target: int) -> LocalScore:
        """Return the part that a target is judged by."""
        return self

    def mapped(self, change: Callable[[Any], LocalScore]) -> LocalScore:
        """Return the same score with each of its parts changed."""
        return change(self)

    @property
    def nuisance(self) -> Nuisance | None:
        """What engines must average over; such a score answers only at a value of it."""
        return None

    def given_nuisance(self) -> LocalScore:
        """Return the score at some value of what engines average over, to be changed later."""
        return self

    def over_parts(self, by_parts: LocalScore) -> LocalScore:
        """Return the score of a table whose free cells have the score ``by_parts``; this one is that of all rows."""
        return by_parts

    def changes(self, target: int, parents: Sequence[int]) -> np.ndarray | None:
        """Return the probability (e,) that each environment changed the target, given its parents; None of rows that
        come from one."""
        return None

    # Slow sets ----------------------------------------------------------------------------------------------------

    def set_key(self, target: int, parents: Sequence[int]) -> SetKey:
        """What an evaluation is known by: the sorted parents, behind the target unless it serves all of them."""
        members = tuple(sorted(int(parent) for parent in parents))
        return members if self.shares_sets else (int(target), *members)

    def evaluate(self, key: SetKey) -> np.ndarray:
        """Compute the scores of a set: (d,) of all targets where it serves all of them, otherwise (1,)."""
        return np.array([self.score(key[0], key[1:])])

    def screen(self) -> LocalScore | None:
        """Return a score a hundred times cheaper, which finds the columns that are worth trying."""
        return None

    @property
    def content(self) -> tuple[Any, ...]:
        """All that decides the scores of sets, by which they are known when a fit is resumed."""
        return tuple(getattr(self, own.name) for own in fields(self))  # type: ignore[arg-type]

    # Engines ------------------------------------------------------------------------------------------------------

    def start_order(self, log_odds: np.ndarray, *, go_on: Callable[[], bool] = lambda: True) -> np.ndarray | None:
        """Construct a good order (d,), first node first, given prior log odds (d, d) of the edges; None without one.

        Where ``go_on`` says no (time is short), it may be any order.
        """
        return None

    def regressions(self) -> Regressions | None:
        """Return what the variational engine needs to know the gain of every edge; None where it cannot be used."""
        return None

    def without_last_digits(self) -> LocalScore:
        """Return a score whose last digits do not depend on units, where a greedy search would follow them."""
        return self

    # Costs --------------------------------------------------------------------------------------------------------

    @property
    def costs(self) -> Mapping[str, PowerLaw]:
        """What engines take, by the name of the engine, as measured; nothing for those that were not measured."""
        return {}

    def table_seconds(self) -> float:
        """Return roughly how long the tables of the exact engine take on one core; by default .1 ms a set."""
        others = self.nodes - 1
        if self.max_parents is None or self.max_parents >= others:
            return 1e-4 * self.nodes * sets_of(others)
        return 1e-4 * self.nodes * sum(comb(others, size) for size in range(self.max_parents + 1))

    # Predictions --------------------------------------------------------------------------------------------------

    def predictive(
        self, data: Dataset | StreamedTable, *, scaling: Scaling | None = None, value: float | None = None
    ) -> Predictive | None:
        """Return the predictions of a score that was prepared on ``data``, or None if it has none.

        Parameters
        ----------
        scaling
            What had been done to the user's columns to make ``data`` of them; by default nothing.
        value
            Of what all nodes share where it is unknown, in the units of the score.
        """
        inner = self.units(data)
        return self.predictive_in(inner if scaling is None else scaling.then(inner))

    def units(self, data: Dataset | StreamedTable) -> Scaling:
        """The way from the units of the data to those of the score; by default standardised columns."""
        return Scaling(data.mean, data.scale)

    def predictive_in(self, units: Scaling) -> Predictive | None:
        """Return the predictions, to whose units ``units`` leads."""
        return None


def _of_inner(name: str) -> Any:
    return property(lambda self: getattr(self.inner, name))


class WrappedScore(LocalScore):
    """A score around another one, ``inner``, whose traits it has; what it does not answer otherwise goes by its own
    :meth:`score`."""

    inner: LocalScore

    nodes = _of_inner("nodes")
    rows = _of_inner("rows")
    log_jacobian = _of_inner("log_jacobian")
    max_parents = _of_inner("max_parents")
    full_parents = _of_inner("full_parents")
    margin = _of_inner("margin")
    columns = _of_inner("columns")
    score_equivalent = _of_inner("score_equivalent")
    tells_direction = _of_inner("tells_direction")
    linear = _of_inner("linear")
    cheap_tables = _of_inner("cheap_tables")
    makes_all_tables = _of_inner("makes_all_tables")
    slow_sets = _of_inner("slow_sets")
    shares_sets = _of_inner("shares_sets")
    is_stateless = _of_inner("is_stateless")
    known_variance = _of_inner("known_variance")
    content = _of_inner("content")
    costs = _of_inner("costs")

    def screen(self) -> LocalScore | None:
        return self.inner.screen()

    def start_order(self, log_odds: np.ndarray, *, go_on: Callable[[], bool] = lambda: True) -> np.ndarray | None:
        return self.inner.start_order(log_odds, go_on=go_on)

    def regressions(self) -> Regressions | None:
        return self.inner.regressions()

    def table_seconds(self) -> float:
        return self.inner.table_seconds()

    def units(self, data: Dataset | StreamedTable) -> Scaling:
        return self.inner.units(data)

    def predictive_in(self, units: Scaling) -> Predictive | None:
        return self.inner.predictive_in(units)


class Features(Protocol):
    """Functions of standardised columns, of which a pass over a table on disk sums up the products."""

    def expand(self, rows: np.ndarray) -> np.ndarray:
        """Return the functions (n, d m) of standardised rows (n, d)."""
        ...

    def shifted(self, shifts: np.ndarray) -> Features:
        """Return the same functions of columns from which shifts (d,) were taken away."""
        ...


class ScoreSpec:
    """A spec of a score: a frozen dataclass that can be prepared for a table, and says what it takes.

    ``is_tabulated``: all sets are scored before a search begins, by ``vcuda.fit``; there is no score to prepare.
    ``takes_categories``: columns are labels, not numbers. ``depends_on_scale``: rescaling single columns changes the
    model. ``streams``: statistics of a table are enough, which need not fit into memory.
    """

    is_tabulated: ClassVar[bool] = False
    takes_categories: ClassVar[bool] = False
    depends_on_scale: ClassVar[bool] = False
    streams: ClassVar[bool] = False

    def prepare(self, values: np.ndarray, *, scale: np.ndarray | None = None) -> LocalScore:
        """Reduce a table (n, d); ``scale`` (d,) are the units in which the columns are scored, if not those that the
        table itself gives."""
        raise NotImplementedError

    def out_of_range(self, scale: np.ndarray) -> np.ndarray:
        """Return the columns (k,) that vary too much to be scored beside the others, given the standard deviations (d,)
        of all; none where columns are standardised."""
        return np.zeros(0, dtype=np.int64)

    def check_spreads(self, source: str, names: Sequence[str], scale: np.ndarray) -> None:
        """Refuse a table with columns that are out of range."""

    # Tables of which experiments set some cells ---------------------------------------------------------------------

    def common_units(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns less their means (n, d) and the units (d,) that all parts of a table have."""
        return centred_columns(values)

    def one_unit(self, free_scales: Sequence[float]) -> float | None:
        """Return the unit that all columns have in common, from the spreads of their free cells; None for none."""
        return None

    def prepare_parts(
        self, values: np.ndarray, rows: Sequence[np.ndarray], *, scale: np.ndarray, shifts: np.ndarray
    ) -> tuple[LocalScore, list[LocalScore]]:
        """Prepare the score of all rows, and those of some ``rows`` each, whose means are ``shifts`` (p, d) away from
        those of all rows."""
        return self.prepare(values, scale=scale), [self.prepare(values[some], scale=scale) for some in rows]

    # Tables that need not fit into memory ---------------------------------------------------------------------------

    def features_of(self, sample: np.ndarray, *, zero: np.ndarray) -> Features | None:
        """Choose functions of the columns by a standardised sample (n, d); None where products of columns do.

        ``zero`` (d,) is what zero of each column became, from which counts are counted.
        """
        return None

    def from_statistics(
        self, moments: Moments, features: FeatureStatistics | None, functions: Any, *, scale: np.ndarray
    ) -> LocalScore:
        """Prepare the score from the moments of a table, or from products of its features, which are ``functions``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Candidate:
    """A model that the evidence may choose (``model="auto"``).

    Parameters
    ----------
    model, noise
        The names that people give.
    words
        What it is called in a list of models.
    phrase
        What its mechanisms are, in a sentence; None for linear ones.
    article
        What it is called at the beginning of a sentence.
    screen
        A cheaper spec that chooses the parents of a column where the score cannot be prepared for all columns.
    climbs
        How many greedy searches are made for its best graph.
    slow
        Too slow for any search: it is judged by the graphs that the candidate before it found.
    most_columns, most_rows
        Larger tables are not compared with it.
    """

    model: str
    noise: Noise
    spec: ScoreSpec
    words: str
    phrase: str | None = None
    article: str = "This model"
    screen: ScoreSpec | None = None
    climbs: int = 1
    slow: bool = False
    most_columns: int | None = None
    most_rows: int | None = None


@dataclass(frozen=True, eq=False)
class Family:
    """One kind of model, whole: what it is called, which specs it has, how its predictions are stored.

    Parameters
    ----------
    name
        What people give as ``model``.
    words
        How it is explained in a report.
    specs
        The spec for each kind of noise, the usual one first; one spec under None where there is no choice of noise.
    predictive
        The class of its predictions, whose ``kind`` names them in stored runs.
    candidates
        What ``model="auto"`` compares, in this order.
    """

    name: str
    words: str
    specs: Mapping[Noise | None, ScoreSpec]
    predictive: type[Predictive]
    candidates: tuple[Candidate, ...] = field(default=())

    @property
    def usual(self) -> ScoreSpec:
        """The spec that the name alone stands for."""
        return next(iter(self.specs.values()))

    @property
    def usual_noise(self) -> Noise | None:
        return next(iter(self.specs))

    def spec_for(self, noise: Noise | None) -> ScoreSpec:
        """The spec with this noise; None for the usual one."""
        if noise is None:
            return self.usual
        check_noise(noise)
        if noise not in self.specs:
            only = " or ".join(str(known) for known in self.specs if known is not None) or "no"
            raise ConfigError(f"model {self.name} has {only} noise; leave noise out")
        return self.specs[noise]
