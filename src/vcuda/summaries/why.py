"""Why an edge is as probable as it is: what independences, functions, noise, experiments and knowledge say of it.

The table is described several times, by more and more assumptions, and each description has a posterior of its own.
What an answer hangs on shows where its probability changes, and by dropping one assumption at a time.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vcuda.arguments import two_positions, whole_number
from vcuda.dags.base import DagPrior, GraphPrior, prior_from_json
from vcuda.data.categorical import as_categories
from vcuda.data.dataset import Dataset
from vcuda.data.knowledge import EdgeRules, Knowledge
from vcuda.data.messages import listed
from vcuda.errors import ConfigError, DataError
from vcuda.fitting import mixed
from vcuda.fitting.independences import by_ranks, joined_by
from vcuda.fitting.mixed import VIEWS, first_rows, view_of
from vcuda.fitting.parts import Careful, parts_of
from vcuda.fitting.routes import subsamples_of
from vcuda.fitting.spec import OPTIONS, FitSpec
from vcuda.infer.blas import one_blas_thread
from vcuda.infer.edge_prior import EdgePrior, prior_of_rules
from vcuda.infer.exact import exact_posterior
from vcuda.infer.progress import Progress, ProgressCallback, silent
from vcuda.infer.scored import rescaled
from vcuda.models import FAMILIES
from vcuda.models.categorical import BDeu
from vcuda.models.interventions import InterventionalPredictive
from vcuda.models.linear import BGe, EqualNoise, LinearPredictive
from vcuda.models.mixed.screen import DegenerateGaussian
from vcuda.models.protocol import LocalScore, ScoreSpec
from vcuda.posterior.posterior import Posterior, as_sentence
from vcuda.posterior.predictions import predictive_of
from vcuda.posterior.provenance import Provenance
from vcuda.summaries.assumptions import (
    EQUAL_NOISE,
    FUNCTIONS,
    NO_ASSUMPTIONS,
    SHAPE,
    SPREAD,
    Assumptions,
    DescribedTable,
    LinearStatistics,
    NothingSeen,
    Part,
    RegressionTable,
    ScoredRows,
)
from vcuda.summaries.lags import refuse_lags

# Columns whose graphs are all counted; of more columns, those that matter most to the pair are taken.
MOST_COLUMNS = {"orders": 12, "graphs": 9}
# Rows of a part that are described, at most.
MOST_ROWS = 1000
# Sets of parents, times rows to which all descriptions of a set are fitted: about 20 seconds of one core.
SETS_AND_ROWS = 1_750_000
# Sentences call an answer sure from the first on and open below the second; an assumption decides it that changes its
# probability by the third. A difference from what is stated is mentioned from the fourth on, and from the last on what
# is found does not explain what is stated.
SURE, OPEN, DECISIVE, NOTICEABLE, UNEXPLAINED = 0.8, 0.6, 0.2, 0.1, 0.3
# Sums over graphs are rounded by less than this.
EXACT = 1e-9
PRIOR, INDEPENDENCES, EXPERIMENTS, KNOWLEDGE = "prior", "independences", "experiments", "knowledge"


class Words(NamedTuple):
    """How people speak of a source: in a table, in a sentence, and by a pronoun."""

    short: str
    full: str
    pronoun: str

    @property
    def decides(self) -> str:
        return f"{self.full[:1].upper()}{self.full[1:]} {'decides' if self.pronoun == 'it' else 'decide'}"

    @property
    def matters(self) -> str:
        return f"{self.full[:1].upper()}{self.full[1:]} {'matters' if self.pronoun == 'it' else 'matter'} as well"


WORDS = {
    PRIOR: Words("prior", "the prior", "it"),
    INDEPENDENCES: Words("independences", "independences", "them"),
    EXPERIMENTS: Words("experiments", "the experiments", "them"),
    FUNCTIONS: Words("form of functions", "the form of the functions", "it"),
    SHAPE: Words("shape of noise", "the shape of the noise", "it"),
    SPREAD: Words("spread by causes", "a spread that depends on the causes", "it"),
    EQUAL_NOISE: Words("equal noise", "equal noise variances", "them"),
    KNOWLEDGE: Words("knowledge", "knowledge", "it"),
}


class Pair(NamedTuple):
    """Probabilities of a pair of variables: the edge, the opposite edge, and neither."""

    probability: float
    opposite: float
    none: float

    @classmethod
    def of(cls, probability: float, opposite: float) -> Pair:
        return cls(probability, opposite, max(0.0, 1.0 - probability - opposite))

    @classmethod
    def mean(cls, pairs: Sequence[Pair], weights: Sequence[float] | None = None) -> Pair:
        return cls(*(float(value) for value in np.average(np.array(pairs), axis=0, weights=weights)))


@dataclass(frozen=True, eq=False)
class Why:
    """Where the probability of an edge comes from.

    ``stated`` has the probabilities of ``cause`` -> ``effect``, of the ``opposite`` edge, and of neither (``none``), as
    the posterior states them. ``ladder`` has the same under more and more assumptions, each row with those above, and
    what each ``adds`` to the first of them. ``dropped`` has all assumptions but one, and the ``change`` of the first
    beside all of them. ``sentences`` say what decides, ``notes`` how it was computed.
    """

    cause: str
    effect: str
    stated: Pair
    ladder: pd.DataFrame
    dropped: pd.DataFrame
    sentences: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return " ".join(self.sentences)

    def to_frame(self) -> pd.DataFrame:
        """Ladder and what is dropped in one table; ``step`` is ``"with"`` or ``"without"`` the ``source``."""
        adding = self.ladder.rename(columns={"adds": "change"}).assign(step="with")
        frame = pd.concat([adding, self.dropped.assign(step="without")], ignore_index=True)
        return frame[["step", "source", "probability", "opposite", "none", "change"]]

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {
            "cause": self.cause,
            "effect": self.effect,
            **self.stated._asdict(),
            "sentences": list(self.sentences),
            "ladder": self.ladder.to_dict("records"),
            "dropped": self.dropped.to_dict("records"),
            "notes": list(self.notes),
        }

    def tables(self) -> list[tuple[str, pd.DataFrame]]:
        """Both tables as people read them, each with its title."""
        edges = {"probability": f"{self.cause} -> {self.effect}", "opposite": f"{self.effect} -> {self.cause}"}
        headings = {**edges, "none": "no edge"}
        adding = self.ladder.assign(source=[WORDS[name].short for name in self.ladder.source])
        found = [("Each source with those above it:", _rounded(adding).rename(columns=headings))]
        if len(self.dropped):
            without = self.dropped.assign(source=[WORDS[name].short for name in self.dropped.source])
            found.append(
                ("All sources without one:", _rounded(without).rename(columns=headings | {"source": "without"}))
            )
        return found

    def __repr__(self) -> str:
        lines = [f"<{self.sentence}"]
        for title, table in self.tables():
            lines += [title, table.to_string(index=False, float_format="{:.2f}".format)]
        return "\n".join([*lines, *self.notes]) + ">"

    def _repr_html_(self) -> str:
        parts = [
            f"<p><strong>{html.escape(self.sentences[0])}</strong> {html.escape(' '.join(self.sentences[1:]))}</p>"
        ]
        for title, table in self.tables():
            parts.append(f"<p>{html.escape(title)}</p>{table.to_html(index=False, float_format='{:.2f}'.format)}")
        if self.notes:
            parts.append(f"<p><small>{html.escape(' '.join(self.notes))}</small></p>")
        return "".join(parts)


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    """To two decimals, without minus zero."""
    return table.assign(**{name: table[name].round(2) + 0.0 for name in table.columns if name != "source"})


def why(
    posterior: Posterior,
    cause: str,
    effect: str,
    *,
    data: Any = None,
    subsamples: int | None = None,
    progress: ProgressCallback | None = None,
) -> Why:
    """Which part of the probability of an edge comes from where, and how it changes without one assumption.

    Every description has an exact posterior. Linear and categorical models take less than a second; regressions of 11
    columns and 1,000 rows about 20.
    """
    refuse_lags(posterior, "why")
    pair = two_positions(posterior.names, cause, effect)
    if posterior.provenance.get("contexts"):
        raise ConfigError(
            "why does not know what environments add to the certainty of an edge: posterior.targets() (vcuda targets) "
            "says what they changed; for the other sources fit the rows of one environment, without contexts"
        )
    if subsamples is not None:
        subsamples = whole_number("subsamples", subsamples, least=1)
    asked = _Asked(posterior, pair, data, subsamples, progress or silent)
    with one_blas_thread():
        described = asked.described()
        ladder, dropped = _Ladder(asked, described).climbed()
    stated = asked.stated
    sentences = _sentences(cause, effect, stated, ladder, dropped)
    adds = np.diff([row.probability for row in ladder.values()], prepend=0.0)
    last = list(ladder.values())[-1]
    return Why(
        cause,
        effect,
        stated,
        _frame(ladder).assign(adds=adds),
        _frame(dropped).assign(change=[row.probability - last.probability for row in dropped.values()]),
        tuple(sentences),
        tuple(asked.notes),
    )


def _frame(rows: dict[str, Pair]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows.values()), columns=list(Pair._fields), dtype=np.float64)
    frame.insert(0, "source", pd.Series(list(rows), dtype=object))
    return frame


# The table ---------------------------------------------------------------------------------------------------------


class _Asked:
    """A pair of columns of a posterior, with what the run keeps of its table; ``notes`` say what is not as in the
    fit."""

    def __init__(
        self,
        posterior: Posterior,
        pair: tuple[int, int],
        data: Any,
        subsamples: int | None,
        progress: ProgressCallback,
    ) -> None:
        self.posterior, self.made, self.names = posterior, posterior.provenance, posterior.names
        self.data, self.subsamples, self.progress = data, subsamples, progress
        self.notes: list[str] = []
        self.probabilities = posterior.edge_probabilities.to_numpy()
        self.stated = Pair.of(float(self.probabilities[pair]), float(self.probabilities[pair[::-1]]))
        self.prior: GraphPrior = DagPrior.for_nodes(len(self.names))
        if self.made.get("prior"):
            self.prior = prior_from_json(self.made["prior"])
        self.known = Knowledge.from_dict(self.made["knowledge"]) if self.made.get("knowledge") else None
        self.columns = self._neighbourhood(pair)
        where = {int(column): place for place, column in enumerate(self.columns)}
        self.pair = where[pair[0]], where[pair[1]]

    @property
    def always_set(self) -> np.ndarray:
        """The columns (d,) that experiments set in every row."""
        rows = (self.made.get("interventions") or {}).get("rows", {})
        return np.array([rows.get(name, {}).get("set") == self.made.rows for name in self.names])

    @property
    def has_experiments(self) -> bool:
        return bool((self.made.get("interventions") or {}).get("rows"))

    def edges(self, *, experiments: bool, knowledge: bool) -> EdgePrior:
        """The prior of the edges between the columns."""
        probability, d = self.prior.edge_probability, len(self.names)
        rules = None
        if knowledge and self.known:
            rules = self.known.for_columns(self.names, edge_probability=probability)
        if experiments and self.always_set.any():
            every = ~np.eye(d, dtype=bool)
            rules = rules or EdgeRules(every, np.zeros((d, d), dtype=bool), None)
            rules = rules._replace(allowed=rules.allowed & ~self.always_set)
        return prior_of_rules(d, probability, rules, over=self.prior.over).among(self.columns)

    def _neighbourhood(self, pair: tuple[int, int]) -> np.ndarray:
        """The columns (k,) that are described: all, or those most closely linked with the pair."""
        d, most = len(self.names), MOST_COLUMNS[self.prior.over]
        if d <= most:
            return np.arange(d)
        link = np.minimum(self.probabilities + self.probabilities.T, 1.0)
        near = np.maximum(link[pair[0]], link[pair[1]])
        # By one more step as well: what a neighbour is linked with may settle its direction.
        strength = np.maximum(near, (near[:, None] * link).max(axis=0))
        strength[list(pair)] = np.inf
        chosen = np.sort(np.argsort(-strength, kind="stable")[:most])
        self.notes.append(
            f"Of {d:,} columns, the pair and the {most - 2} that are most closely linked with it were described."
        )
        return chosen

    def described(self) -> DescribedTable:
        """The table as the model of the fit describes it, from what the run keeps or from the rows that are given."""
        predictive = predictive_of(self.posterior.graph_posterior)
        if _is_linear(predictive):
            found = self._linear()
            if found.knows_all_rows or self.data is None or not self.has_experiments:
                return found
        kept = None if predictive is None or not hasattr(predictive, "fitted_table") else predictive
        table = None if kept is None else kept.fitted_table(self.names)
        imputations = self.made.get("imputations") or 0
        if table is not None and imputations > 1:
            self.notes.append(f"The table that was described is the first of {imputations} imputed ones.")
        return self._of_rows(table if table is not None else self._opened())

    def _linear(self) -> LinearStatistics:
        posterior: Any = self.posterior.graph_posterior
        members = getattr(posterior, "members", (posterior,))
        kept: Any = [member.predictive for member in members] if _imputed(self.made) else [predictive_of(posterior)]
        model = self.made["model"]
        equal = _spec_of(EqualNoise, model) if model.get("score") == "EqualNoise" else None
        plain = BGe() if equal is not None else _spec_of(BGe, model)
        found = LinearStatistics(kept, self.columns, self.always_set, self.made.rows, plain=plain, equal=equal)
        self.notes.append(
            "The model is linear with normal noise: it reads no direction from curves, nor from the shape of the noise."
        )
        return found

    def _opened(self) -> Dataset:
        """The table that was given, read as the fit read it."""
        made = self.made
        if self.data is None:
            raise ConfigError(
                f"a run of model {made.model_name} keeps no rows of its table ({made.source}), and they are needed "
                "here: give the table, data=table or --data TABLE"
            )
        if isinstance(self.data, Dataset):
            table = self.data
        else:
            has_mask = self.has_experiments and made["interventions"]["column"] is None
            if has_mask:
                raise ConfigError(
                    "experiments were given to the fit as a mask, which the run does not keep: give the table with "
                    "them, data=vcuda.as_dataset(table, interventions=mask)"
                )
            options = {name: made.options[name] for name, one in OPTIONS.items() if one.part == "table"}
            opened = FitSpec(**options | {"streamed": False}).open(self.data)
            assert isinstance(opened, Dataset)
            table = opened
        if table.names != self.names:
            raise DataError(
                f"the table has the columns {listed(list(table.names))}, the posterior {listed(list(self.names))}: "
                "give the table that was fitted"
            )
        if table.missing is not None:
            complete = ~table.missing.any(axis=1)
            self.notes.append(f"Rows with missing values were left out: {complete.sum():,} of {table.n:,} remain.")
            table = table.select(complete)
        elif table.n != made.rows:
            self.notes.append(f"The table that was given has {table.n:,} rows, the fit had {made.rows:,}.")
        return table

    def _of_rows(self, table: Dataset) -> DescribedTable:
        """Rows by the family of the fit; regressions of any kind where that has no scores of sets of parents."""
        made, model = self.made, self.made["model"]
        logarithm = np.isin(np.array(self.names, dtype=object), np.array(made.log, dtype=object))
        scaled, _ = rescaled(table, logarithm=logarithm, standardise=bool(made.get("standardise")))
        scaled = _of_columns(scaled, self.columns)
        held, score = scaled.interventions, model.get("score")
        if score == "BDeu":
            spec = _spec_of(BDeu, model)
            coded = scaled if scaled.categories is not None else as_categories(scaled, most=spec.max_levels)
            return ScoredRows(coded.values, held, spec, (spec, coded.values), None)
        ranks, kinds = by_ranks(scaled)
        plain: tuple[ScoreSpec, np.ndarray] = DegenerateGaussian(kinds=kinds), ranks
        if score == "BGe":
            linear = _spec_of(BGe, model)
            return ScoredRows(scaled.values, held, linear, (linear, scaled.values), None)
        if score != "Mixed" and _care_taken(made) is not None:
            self.notes.append("Stated is what small parts of the rows agree on; here all rows are described.")
        if score == "EqualNoise":
            return ScoredRows(scaled.values, held, _spec_of(EqualNoise, model), (BGe(), scaled.values), EQUAL_NOISE)
        if score == "DegenerateGaussian":
            return ScoredRows(ranks, held, plain[0], plain, None)
        if model["name"] in FAMILIES and score not in (None, "Mixed"):
            noise: Any = made.noise
            own = FAMILIES[model["name"]].spec_for(noise)
            fewer = _at_most(scaled, MOST_ROWS, made.seed)
            if fewer.n < scaled.n:
                self.notes.append(f"Described were {fewer.n:,} rows, drawn at random.")
            ranks, kinds = by_ranks(fewer)
            plain = DegenerateGaussian(kinds=kinds), ranks
            return ScoredRows(fewer.values, fewer.interventions, own, plain, FUNCTIONS)
        if score != "Mixed":
            self.notes.append(
                f"Stated is what {made.engine_name} found with model {model['name']}; the table was described by "
                "regressions instead."
            )
        return self._regressions(scaled, logarithm[self.columns])

    def _regressions(self, table: Dataset, logarithm: np.ndarray) -> RegressionTable:
        made = self.made
        usually = 0 if made.get("robust") is False else subsamples_of(len(self.names))
        fitted = usually if made.get("subsamples") is None else int(made["subsamples"])
        every = parts_of(table, fitted, made.seed, _care_taken(made))
        size = min(len(every[0]), MOST_ROWS)
        first = first_rows(table, made.seed) if fitted else None
        ways = 2 if self.has_experiments else 1
        # The first rows take as long as four parts of as many rows.
        usual = 4 * (SETS_AND_ROWS // ways // _sets(table.d) - (0 if first is None else len(first))) // size
        count = min(max(usual, 1) if self.subsamples is None else self.subsamples, len(every))
        rng = np.random.default_rng([made.seed, 13])
        parts = [np.sort(rng.choice(own, size, replace=False)) if len(own) > size else own for own in every[:count]]
        if count < len(every) or size < len(every[0]):
            which = f"{count} of {len(every)} random parts" if len(every) > 1 else "a random part"
            self.notes.append(
                f"The table was described on {which} of its rows, {size:,} in each; what is stated is that of the fit."
            )
        words = "describing the table by more and fewer assumptions"
        return RegressionTable(
            table,
            logarithm,
            parts[0] if first is None else first,
            [] if first is None else _in_views(parts, len(every), made.seed),
            self.edges(experiments=True, knowledge=True),
            seed=made.seed,
            experiments_dropped=self.has_experiments,
            is_averaged=made["model"].get("score") == "Mixed" and fitted > 0,
            on_progress=lambda share: self.progress(Progress(share, 1, words)),
        )


def _care_taken(made: Provenance) -> Careful | None:
    """How careful the fit was with rows that break every model."""
    if "careful" in made:
        return Careful(int(made["careful"]["distance"]))
    return Careful() if made.get("robust") else None


def _sets(columns: int) -> int:
    """About how many sets of parents are fitted: those of up to three columns."""
    others = columns - 1
    return columns * (1 + others + others * (others - 1) // 2 + others * (others - 1) * (others - 2) // 6)


def _in_views(parts: Sequence[np.ndarray], fitted: int, seed: int) -> list[Part]:
    """Parts of the rows as the fit takes them: each in its own view if all are there, otherwise in all of them."""
    if len(parts) < fitted:
        return [Part(own, VIEWS) for own in parts]
    return [Part(own, (view_of(seed, number),)) for number, own in enumerate(parts, start=1)]


def _is_linear(predictive: Any) -> bool:
    parts = predictive.parts if isinstance(predictive, InterventionalPredictive) else (predictive,)
    return all(isinstance(part, LinearPredictive) for part in parts)


def _imputed(made: Provenance) -> bool:
    return (made.get("imputations") or 0) > 1


def _spec_of(kind: Any, model: dict[str, Any]) -> Any:
    """A score with the settings that a run stored."""
    stored = {one.name: model[one.name] for one in fields(kind) if one.name in model}
    try:
        return kind(**stored)
    except (TypeError, ValueError):  # of a run that somebody changed
        raise ConfigError(f"the settings of {kind.__name__} in this run cannot be: {stored}") from None


def _of_columns(table: Dataset, columns: np.ndarray) -> Dataset:
    """Some columns (k,) of a table."""
    held = None if table.interventions is None else table.interventions[:, columns]
    labels = None if table.categories is None else tuple(table.categories[k] for k in columns)
    return Dataset(
        tuple(table.names[k] for k in columns),
        table.values[:, columns],
        interventions=held if held is not None and held.any() else None,
        categories=labels,
        kinds=tuple(table.kinds[k] for k in columns),
    )


def _at_most(table: Dataset, rows: int, seed: int) -> Dataset:
    if table.n <= rows:
        return table
    return table.select(np.sort(np.random.default_rng([seed, 13]).choice(table.n, rows, replace=False)))


# The ladder --------------------------------------------------------------------------------------------------------


class _Ladder:
    """Posteriors of one table under more and fewer assumptions."""

    def __init__(self, asked: _Asked, described: DescribedTable) -> None:
        self.asked, self.described = asked, described
        self._known: dict[tuple[Assumptions, bool, bool], Pair] = {}

    def climbed(self) -> tuple[dict[str, Pair], dict[str, Pair]]:
        """By source: the pair with this source and all before, and the pair with all sources but this one."""
        asked, own = self.asked, self.described.assumptions
        full, tries = frozenset(own), asked.has_experiments
        ladder = {
            PRIOR: self._pair(
                self._edges(NothingSeen(len(asked.columns)), asked.edges(experiments=False, knowledge=False))
            ),
            INDEPENDENCES: self.under(NO_ASSUMPTIONS, experiments=False, knowledge=False),
        }
        dropped = {}
        if tries:
            ladder[EXPERIMENTS] = self.under(NO_ASSUMPTIONS, experiments=True, knowledge=False)
            if self._knows_all_rows():
                dropped[EXPERIMENTS] = self.under(full, experiments=False, knowledge=True)
        for k, source in enumerate(own):
            ladder[source] = self.under(frozenset(own[: k + 1]), experiments=True, knowledge=False)
            dropped[source] = self.under(full - {source}, experiments=True, knowledge=True)
        if asked.known:
            ladder[KNOWLEDGE] = self.under(full, experiments=True, knowledge=True)
            dropped[KNOWLEDGE] = self.under(full, experiments=True, knowledge=False)
        return ladder, dropped

    def _knows_all_rows(self) -> bool:
        if getattr(self.described, "knows_all_rows", True):
            return True
        self.asked.notes.append(
            "Every column was set in some rows, so that the run cannot say what it would find without experiments: "
            "give the table for that, data=table or --data TABLE."
        )
        return False

    def under(self, assumed: Assumptions, *, experiments: bool, knowledge: bool) -> Pair:
        asked = assumed, experiments, knowledge
        if asked not in self._known:
            edges = self.asked.edges(experiments=experiments, knowledge=knowledge)
            found = self._mean(self.described.scores(assumed, experiments=experiments), edges)
            if assumed and self.described.with_independences:
                # As in the fit: what shapes join is joined, and a part of the answer reads its direction without them.
                joined = edges.raised(joined_by(found))
                apart = self._mean(self.described.scores(NO_ASSUMPTIONS, experiments=experiments), joined)
                found = (1 - mixed.SHARES[mixed.INDEPENDENCES]) * found + mixed.SHARES[mixed.INDEPENDENCES] * apart
            self._known[asked] = self._pair(found)
        return self._known[asked]

    def _mean(self, scores: Sequence[LocalScore], edges: EdgePrior) -> np.ndarray:
        by_score = {score: self._edges(score, edges) for score in dict.fromkeys(scores)}
        return np.mean([by_score[score] for score in scores], axis=0)

    def _edges(self, score: LocalScore, edges: EdgePrior) -> np.ndarray:
        rng = np.random.default_rng(0)
        return edges.hold(exact_posterior(score, edges, samples=1, rng=rng).edge_probabilities)

    def _pair(self, found: np.ndarray) -> Pair:
        i, j = self.asked.pair
        return Pair.of(float(found[i, j]), float(found[j, i]))


# In words ----------------------------------------------------------------------------------------------------------


def _sentences(cause: str, effect: str, stated: Pair, ladder: dict[str, Pair], dropped: dict[str, Pair]) -> list[str]:
    answers = (f"{cause} -> {effect}", f"{effect} -> {cause}", "no edge")
    best = int(np.argmax(stated))
    everything = list(ladder.values())[-1]
    is_open = stated[best] < OPEN
    sentences = [
        f"The posterior leaves it open ({_shown(stated, answers)})."
        if is_open
        else as_sentence([f"{_percent(stated[best])} says {answers[best]}"]),
        _of_independences(ladder[INDEPENDENCES], None if is_open else best, answers),
    ]
    if abs(everything[best] - stated[best]) > UNEXPLAINED:
        return [
            *sentences,
            f"All sources together give {_shown(everything, answers)} here, which does not explain what is stated.",
        ]
    if is_open:
        for source, left in dropped.items():
            other = int(np.argmax(left))
            if left[other] >= SURE:
                sentences.append(f"Without {WORDS[source].full} {_percent(left[other])} says {answers[other]}.")
        return sentences
    falls = {source: everything[best] - left[best] for source, left in dropped.items()}
    deciding = sorted((source for source in falls if falls[source] >= DECISIVE), key=lambda source: -falls[source])
    for place, source in enumerate(deciding):
        words = WORDS[source]
        verb = words.decides if place == 0 else words.matters
        sentences.append(f"{verb}: without {words.pronoun} {_instead(dropped[source], best, answers)}.")
    if not deciding and dropped:
        least = min(left[best] for left in dropped.values())
        words_of_all = [WORDS[source].full for source in dropped]
        either = words_of_all[0] if len(dropped) == 1 else f"any one of the others ({', '.join(words_of_all)})"
        sentences.append(f"Without {either} it is {_at_least(least)}.")
    if abs(everything[best] - stated[best]) >= NOTICEABLE:
        sentences.append(f"All sources together give {_percent(everything[best])} on the rows that were described.")
    return sentences


def _of_independences(found: Pair, best: int | None, answers: Sequence[str]) -> str:
    if best is not None and found[best] >= SURE:
        return f"Independences alone say so ({_percent(found[best])})."
    if best is not None and best < 2 and found.none >= SURE:
        return f"Independences alone, as far as correlations show them, see no edge ({_percent(found.none)})."
    if best is not None and best < 2 and found[1 - best] >= SURE:
        return f"Independences alone say the opposite ({_percent(found[1 - best])})."
    what = "the direction" if found.none <= 1 - SURE else "it"
    if max(found) < SURE:
        return f"Independences alone leave {what} open ({_shown(found, answers)})."
    likely = int(np.argmax(found))
    return f"Independences alone say {answers[likely]} ({_percent(found[likely])})."


def _instead(left: Pair, best: int, answers: Sequence[str]) -> str:
    """What is left of an answer, and which one takes its place, if one does."""
    other = int(np.argmax(left))
    if other != best and left[other] >= SURE:
        return f"{_percent(left[best])}, and {_percent(left[other])} says {answers[other]}"
    return _percent(left[best])


def _shown(pair: Pair, answers: Sequence[str]) -> str:
    return ", ".join(f"{answer} {_percent(share)}" for answer, share in zip(answers, pair, strict=True))


def _percent(share: float) -> str:
    """A probability as people say it; what is not certain is never called 0 or 100 %."""
    if EXACT < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1 - EXACT:
        return "more than 99 %"
    return f"{share:.0%}".replace("%", " %")


def _at_least(share: float) -> str:
    shown = _percent(share)
    return shown if shown in ("100 %", "more than 99 %") else f"{shown} or more"
