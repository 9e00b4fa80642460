"""All model checks of one posterior: each in its time, one correction for all of them, and findings in words.

A departure is found when its p-value, corrected for the number of columns and of checks, is below 5 %, and it is large
enough to matter: in a large table even harmless departures are significant. It is a warning when there are sure edges
that hang on it, otherwise a note.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from vcuda.checks import residuals, rows
from vcuda.checks.descriptions import OtherView, other_view
from vcuda.checks.findings import Checks, Finding, Made, Severity
from vcuda.checks.hidden import hidden, products_of
from vcuda.checks.populations import LEAST_SHARE, Populations, normal_populations, populations, takes_normal_groups
from vcuda.checks.residuals import Departure, Tested
from vcuda.checks.series import series_findings
from vcuda.checks.statistics import corrected
from vcuda.checks.subject import MOST_COLUMNS, SURE, Subject, no_residuals, subject_of
from vcuda.data.messages import listed

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.infer.edge_prior import EdgePrior
    from vcuda.posterior.posterior import Posterior

# How often a table that was drawn from the model may have a finding.
ERROR = 0.05
# The names of the checks with a p-value, among which the error is shared.
SHAPE, SPREAD, CURVES, PAIRS = "shape of residuals", "spread and causes", "curves", "residuals of two columns"
PREDICTIVE, ORDER, POPULATIONS = "predicted values", "order of the rows", "two populations"
WITH_P_VALUE = (SHAPE, SPREAD, CURVES, PAIRS, PREDICTIVE, ORDER, POPULATIONS)
# Those without.
COPIES, INFLUENCE, IMPUTATIONS, DESCRIPTIONS = "copied rows", "few rows", "imputations", "another description"
HIDDEN = "hidden causes"
# Those that speak against whole edges; the others against directions.
ABOUT_EDGES = (ORDER, POPULATIONS, PAIRS)
# Those of which small parts of the rows are free.
ABOUT_ROWS = (ORDER, POPULATIONS)
# Those that regress columns again, and are not made when the time is over.
SLOW = (POPULATIONS, INFLUENCE)
# The share of a fit's time that checks may take, and the seconds that they may take in any case.
SHARE_OF_TIME, LEAST_SECONDS = 0.2, 1.0
# So many edges and columns are named in a sentence.
NAMED = 5
# Rows with fewer residuals than this tell nothing.
LEAST_ROWS = 20
# The probability of an edge differs between imputations by more than this.
IMPUTED_RANGE = 0.8
# Turned edges beyond this, together with a residual check that fails, are a finding of their own.
MOST_TURNED = 2

Edges = list[tuple[int, int]]
T = TypeVar("T")


OF_RESIDUALS: dict[str, Callable[[Subject], Tested]] = {
    SHAPE: residuals.shape,
    SPREAD: residuals.spread,
    CURVES: residuals.curves,
    PREDICTIVE: residuals.predictive,
    PAIRS: residuals.pairs,
}


class _Words(NamedTuple):
    """How the finding of one check begins, what it may change, and what to do."""

    found: str
    changes: str
    remedy: str


WORDS = {
    SHAPE: _Words(
        "The noise has another shape than the model's",
        "directions that were read from shapes of noise and effects may be the other way round",
        'Fit model="mixed", whose noise may have any shape, or take the logarithm of columns that are skewed.',
    ),
    SPREAD: _Words(
        "The spread of the noise depends on the causes",
        "directions that were read from shapes of noise and effects may be the other way round, and intervals of "
        "effects are too narrow where the spread is large",
        'Fit model="mixed", whose spread may depend on the causes, or take the logarithm of the column.',
    ),
    CURVES: _Words(
        "Effects are curved, or causes act together, in a way that the model does not describe",
        "directions that were read from shapes of noise and effects may be the other way round",
        'Fit model="mixed" or model="gp".',
    ),
    PAIRS: _Words(
        "Residuals of two columns go together, as if they had a common cause that is not in the table",
        "edges at these columns may stand for a hidden common cause",
        "Measure what the columns may have in common and add it, or take these edges as open.",
    ),
    PREDICTIVE: _Words(
        "The model does not predict how the values scatter",
        "edges at these columns may hang on a few extreme values, or on an assumption about the noise",
        'Look at the extreme values, and fit model="mixed" or noise="unequal".',
    ),
    ORDER: _Words(
        "The rows depend on those before them, and the model takes them as independent",
        "edges may be no more than two columns that drift side by side",
        "Take differences of neighbouring rows or keep only rows far apart, add time as a column, or take these edges "
        "as open.",
    ),
    POPULATIONS: _Words(
        "Two groups of rows describe the table better than the model does",
        "edges may stand for the difference between two populations",
        "If the rows come from two populations, add the column that says which, or fit each by itself; otherwise fit "
        'model="mixed".',
    ),
}


# Of a series: what the fitted lags do not explain.
LATER_STEPS = _Words(
    "What is left of the columns still depends on earlier steps",
    "edges may stand for what earlier steps would explain",
    "Fit with more lags (lags=, or lags='auto'), or take out a trend or a season (trend=, season=).",
)


def words_of(name: str, posterior: Posterior, table: Dataset) -> _Words:
    """What a check says; of rows that depend on each other, with the option that takes them as steps in time."""
    words = WORDS[name]
    if name != ORDER:
        return words
    if posterior.lagged is not None:
        return LATER_STEPS
    dates = [column for column, why in table.left_out if "dates" in why]
    named = f", time={dates[0]!r} (--lags 2 --time {shlex.quote(dates[0])})" if dates else " (--lags 2)"
    otherwise = f"{words.remedy[:1].lower()}{words.remedy[1:]}"
    return words._replace(remedy=f"If the rows are steps in time, fit with lags=2{named}; otherwise {otherwise}")


def check(
    posterior: Posterior,
    table: Dataset,
    edges: EdgePrior,
    *,
    seed: int,
    fit_seconds: float,
    least_seconds: float = LEAST_SECONDS,
    ordered: bool = True,
) -> Checks:
    """Make all checks that the time allows.

    Parameters
    ----------
    table
        The table that was fitted, or a sample of it; ``ordered`` says whether its rows are in their order.
    edges
        The prior of the fit.
    fit_seconds, least_seconds
        What the fit took: the checks take at most a fifth of it, or so many seconds.
    """
    why = no_residuals(posterior)
    if not why and table.n < LEAST_ROWS:
        why = f"{table.n} rows are too few"
    if why:
        return Checks(not_made=why)
    return _Run(posterior, table, edges, seed, max(SHARE_OF_TIME * fit_seconds, least_seconds), ordered).all()


def _no_p_value(found: object) -> None:
    """Of a check that counts rather than tests."""


class _Run:
    """The checks of one posterior, as they are made."""

    def __init__(
        self, posterior: Posterior, table: Dataset, edges: EdgePrior, seed: int, seconds: float, ordered: bool
    ) -> None:
        self.posterior, self.made, self.findings = posterior, list[Made](), list[Finding]()
        self.in_time = posterior.lagged is not None
        self.skipped: list[str] = []
        started = time.perf_counter()
        self.copies, deadline = rows.copies(table), time.process_time() + seconds
        self.made.append(Made(COPIES, None, time.perf_counter() - started, self.copies.rows))
        if self.copies.are_many and self.copies.rows - self.copies.copies >= LEAST_ROWS:
            # Copies depend on each other; what else there is shows in the rest.
            table = table.select(self.copies.first)
        self.started = time.perf_counter()
        self.subject = subject_of(posterior, table, edges, ordered=ordered, seed=seed, deadline=deadline)
        looked_at = table.d if posterior.lagged is None else posterior.lagged.nodes
        if len(self.subject.columns) < min(looked_at, MOST_COLUMNS):
            self.skipped.append(f"{looked_at - len(self.subject.columns):,} of {looked_at:,} columns")

    def all(self) -> Checks:
        subject = self.subject
        failed = self._tests()
        looks = bool(failed and subject.sure) and not self.in_time
        view = self._timed(DESCRIPTIONS, lambda: other_view(subject)) if looks else None
        if self.in_time:
            self.findings += series_findings(self.posterior, subject)
        self._copies()
        self._imputations()
        if subject.joined:
            self._influence()
            # Rows that go together make columns go together, as hidden causes do.
            if not (self.in_time or self.copies.are_many or {ORDER, POPULATIONS} & set(failed)):
                self._hidden()
        for name, departures in failed.items():
            self.findings.append(self._finding(name, departures, view))
        self._turned(failed, view)
        why = f"time was too short for: {', '.join(self.skipped)}" if self.skipped else ""
        return Checks(tuple(self.findings), tuple(self.made), why)

    def _timed(self, name: str, run: Callable[[], T], p_value: Callable[[T], float | None] = _no_p_value) -> T | None:
        """Make one check, unless the time is over and it takes long."""
        if name in SLOW and self.subject.late:
            self.skipped.append(name)
            return None
        found = run()
        # The first check has the residuals in its time.
        now = time.perf_counter()
        self.made.append(Made(name, p_value(found), now - self.started, self.subject.n))
        self.started = now
        return found

    def _tests(self) -> dict[str, list[Departure]]:
        """The departures that are significant and matter, by check."""
        subject = self.subject
        if subject.ordered:
            dependent = self._tested({ORDER: lambda one: rows.order(one).tested})
            if dependent:
                # Other checks take the rows as independent: what they found would be the same thing again.
                return dependent
        if self.in_time:
            return self._tested(OF_RESIDUALS)
        normal = takes_normal_groups(subject)
        mixture = self._tested({POPULATIONS: _of(normal_populations)}) if normal else {}
        failed = self._tested(OF_RESIDUALS)
        if failed and not normal:
            mixture = self._tested({POPULATIONS: _of(populations)})
        return failed | mixture

    def _tested(self, checks: dict[str, Callable[[Subject], Tested]]) -> dict[str, list[Departure]]:
        """Make some checks; returns their departures that are significant and matter."""
        failed = dict[str, list[Departure]]()
        for name, run in checks.items():
            found = self._timed(name, partial(self._departures, name, run), lambda one: one[0])
            if found is not None and found[1]:
                failed[name] = found[1]
        return failed

    def _departures(self, name: str, run: Callable[[Subject], Tested]) -> tuple[float | None, list[Departure]]:
        """The p-value of a check, and its departures that are significant and matter, whichever graph is true."""
        tested = run(self.subject)

        def counts(one: Departure) -> bool:
            return one.matters and corrected(one.p_value, tested.tests) <= ERROR / len(WITH_P_VALUE)

        def holds(one: Departure) -> bool:
            """Whether other probable graphs leave a departure there too: what a wrong edge leaves is no fault of the
            model."""
            if name in (ORDER, POPULATIONS):
                return True
            for other in self.subject.others(one.columns):
                # What there is no time to look at is not said.
                if self.subject.late:
                    return False
                if not any(counts(found) for again in OF_RESIDUALS.values() for found in again(other()).departures):
                    return False
            return True

        return tested.p_value, [one for one in tested.departures if counts(one) and holds(one)]

    def _finding(self, name: str, departures: list[Departure], view: OtherView | None) -> Finding:
        subject, words = self.subject, words_of(name, self.posterior, self.subject.table)
        departures = sorted(departures, key=lambda one: one.p_value)
        columns = list(dict.fromkeys(column for one in departures for column in one.columns))
        pool = subject.joined if name in ABOUT_EDGES else subject.sure
        # Rows that depend on each other feign an edge only between two columns that both do.
        concerns = set(columns).issuperset if name == ORDER else set(columns).intersection
        touched = [edge for edge in pool if concerns(edge)]
        edges = self._hanging(name, touched, view)
        severity: Severity = "warning" if edges else "note"
        worst = departures[0]
        where = f"in {listed([subject.names[k] for k in columns], NAMED)}"
        which = f"{' and '.join(repr(subject.names[k]) for k in worst.columns)}: " if len(columns) > 1 else ""
        sentence = f"{words.found} ({where}, {subject.rows_in_words()}; {which}{worst.words})."
        return Finding(
            check=name,
            severity=severity,
            columns=tuple(subject.names[k] for k in columns),
            edges=self._named(edges),
            sentence=sentence,
            changes=self._changes(name, edges, touched, view),
            remedy=words.remedy,
            statistic=worst.statistic,
            p_value=min(one.p_value for one in departures),
        )

    def _hanging(self, name: str, touched: Edges, view: OtherView | None) -> Edges:
        """The sure edges that may be wrong because of a departure at their columns."""
        if name in ABOUT_EDGES:
            return touched
        if view is None:
            return []
        doubted = view.doubted
        return [edge for edge in doubted if edge in set(touched)]

    def _changes(self, name: str, edges: Edges, touched: Edges, view: OtherView | None) -> str:
        if not edges:
            if not touched:
                return "No sure edge hangs on it."
            if self.in_time:
                return "The sure edges at these columns were not looked at without it."
            return "The sure edges at these columns stay when the table is described by ranks, without shapes."
        words = words_of(name, self.posterior, self.subject.table)
        said = f"{words.changes[:1].upper()}{words.changes[1:]}: {self._listed(edges)}."
        if name not in ABOUT_EDGES and view is not None:
            turned = [edge for edge in edges if edge in set(view.turned)]
            absent = [edge for edge in edges if edge in set(view.absent)]
            if turned:
                said += f" A description by ranks turns {self._listed(turned)} round."
            if absent:
                said += f" A description by ranks does not have {self._listed(absent)}."
        return said

    def _turned(self, failed: dict[str, list[Departure]], view: OtherView | None) -> None:
        """Sure edges that another description turns round, where a residual check fails as well."""
        if view is None or len(view.turned) <= MOST_TURNED or not failed:
            return
        if any(set(self._named(view.turned)) <= set(one.edges) for one in self.findings if one.severity == "warning"):
            return
        columns = list(dict.fromkeys(k for edge in view.turned for k in edge))
        self.findings.append(
            Finding(
                check=DESCRIPTIONS,
                severity="warning",
                columns=tuple(self.subject.names[k] for k in columns),
                edges=self._named(view.turned),
                sentence=(
                    f"Another description of the table, jointly normal on the scale of ranks, turns "
                    f"{len(view.turned)} sure edges round, and residuals differ from the model."
                ),
                changes=f"These edges may be the other way round: {self._listed(view.turned)}.",
                remedy="Take their directions as open unless something else than this table supports them.",
                statistic=float(len(view.turned)),
            )
        )

    def _influence(self) -> None:
        found = self._timed(INFLUENCE, lambda: rows.influence(self.subject))
        if not found:
            return
        numbers = np.unique(np.concatenate([one.rows for one in found]))
        named = ", ".join(f"{row + 1:,}" for row in numbers[:NAMED].tolist())
        edges = [one.edge for one in found]
        self.findings.append(
            Finding(
                check=INFLUENCE,
                severity="warning",
                columns=tuple(dict.fromkeys(self.subject.names[k] for edge in edges for k in edge)),
                edges=self._named(edges),
                sentence=(
                    f"All evidence for {self._listed(edges)} comes from {len(numbers)} of {self.subject.n:,} rows "
                    f"(data {'row' if len(numbers) == 1 else 'rows'} {named}"
                    f"{' and others' if len(numbers) > NAMED else ''})."
                ),
                changes=f"{self._listed(edges)}: the other rows speak against an edge.",
                remedy="Look at what is special there: if it is an error, correct it or leave it out, and fit again.",
                statistic=float(len(numbers)),
            )
        )

    def _hidden(self) -> None:
        subject, products = self.subject, products_of(self.posterior, self.subject)
        if products is None:
            return
        found = self._timed(HIDDEN, lambda: hidden(subject, products))
        if found is None:
            return
        columns = dict.fromkeys(k for edge in found.doubted for k in edge)
        self.findings.append(
            Finding(
                check=HIDDEN,
                severity="warning",
                columns=tuple(subject.names[k] for k in columns),
                edges=self._named(found.doubted),
                sentence=(
                    f"A model with {found.words(subject.names, NAMED)} describes the table better than any graph "
                    f"of these columns alone ({found.gain:+.1f} nats of BIC, {products.rows:,} rows)."
                ),
                changes=(
                    "These edges would then not be there, or their direction would be open: "
                    f"{self._listed(found.doubted)}."
                ),
                remedy=(
                    "Measure what the columns may have in common, or measure them with less error, and fit again; "
                    "otherwise take these edges as open. edges() has those that hold with hidden causes, sensitivity() "
                    "how strong one would have to be, and fit(hidden=True) (--hidden) those of pairs."
                ),
                statistic=found.gain,
            )
        )

    def _copies(self) -> None:
        found = self.copies
        if not found.are_many:
            return
        # Of an edge whose direction is open, that the two columns are joined at all.
        either = self.subject.probabilities + self.subject.probabilities.T
        chances = np.where(self.subject.probabilities >= SURE, self.subject.probabilities, either)
        chances = np.clip(chances, 1e-12, 1 - 1e-12)
        logits = np.log(chances / (1 - chances)) / found.inflation
        edges = [edge for edge in self.subject.joined if logits[edge] < np.log(SURE / (1 - SURE))]
        share = found.copies / found.rows
        changes = "The sure edges would stay sure if each of these rows counted once."
        if edges:
            changes = f"These edges would not be sure if each of these rows counted once: {self._listed(edges)}."
        self.findings.append(
            Finding(
                check=COPIES,
                severity="warning" if edges else "note",
                columns=(),
                edges=self._named(edges),
                sentence=(
                    f"{found.copies:,} of {found.rows:,} rows ({share:.0%}) are copies of other rows in all columns, "
                    "more than chance makes. The model takes each of them as new evidence."
                ),
                changes=changes,
                remedy="If they are the same observation, keep one of each and fit again.",
                statistic=share,
            )
        )

    def _imputations(self) -> None:
        differ = getattr(self.posterior.graph_posterior, "disagreement", None)
        if differ is None:
            return
        found = self._timed(IMPUTATIONS, differ)
        if found is None:
            return
        _, ranges = found
        wide = np.argwhere(ranges > IMPUTED_RANGE)
        edges = [(int(i), int(j)) for i, j in wide[np.argsort(-ranges[tuple(wide.T)], kind="stable")]]
        if not edges:
            return
        self.findings.append(
            Finding(
                check=IMPUTATIONS,
                severity="note",
                columns=tuple(dict.fromkeys(self.subject.names[k] for edge in edges for k in edge)),
                edges=self._named(edges),
                sentence=(
                    "The missing values decide some edges: their probabilities differ between imputations by up to "
                    f"{float(ranges.max()):.2f}."
                ),
                changes=f"{self._listed(edges)} may be there or not, whatever their mean probability says.",
                remedy="Take these edges as open, or obtain the missing values.",
                statistic=float(ranges.max()),
            )
        )

    def _named(self, edges: Edges) -> tuple[tuple[str, str], ...]:
        return tuple((self.subject.names[i], self.subject.names[j]) for i, j in edges)

    def _listed(self, edges: Edges) -> str:
        sure = self.subject.probabilities >= SURE
        names = self.subject.names
        # Where only the pair is sure, no direction is named.
        shown = [f"{names[i]} {'->' if sure[i, j] else '-'} {names[j]}" for i, j in edges[:NAMED]]
        more = f" and {len(edges) - NAMED:,} more" if len(edges) > NAMED else ""
        return ", ".join(shown) + more


def _of(look: Callable[[Subject], Populations]) -> Callable[[Subject], Tested]:
    """Two populations as a check with one departure."""

    def tested(subject: Subject) -> Tested:
        found = look(subject)
        words = f"{found.share:.0%} of the rows differ from the others"
        matters = found.share >= LEAST_SHARE and len(found.columns) >= 2
        named: Sequence[int] = found.columns or subject.columns
        return Tested(found.p_value, 1, [Departure(tuple(named), found.p_value, found.share, matters, words)])

    return tested
