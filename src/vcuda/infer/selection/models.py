"""Which model do the data support: linear or nonlinear, equal or unequal noise, and which columns by their logarithm?

Every score gives the probability of the same table in the user's units, so their evidences are compared in one
currency, nats. The evidence is exact for few columns. For more of them it is replaced by the joint probability of the
table and the best graph that a greedy search finds for the model, and for very many by that of a random part of the
columns given one order: what both leave out, the number of graphs that are about as good, is tens of nats where the
models differ by hundreds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError
from vcuda.infer.checkpoint import NO_CHECKPOINT, Arrays, Checkpointer, cached, fingerprint
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact import RoundingError, TimeLimitError
from vcuda.infer.progress import Progress, ProgressCallback, in_time, silent
from vcuda.infer.scored import ScoredTable, rescaled
from vcuda.infer.selection.evidence import Evidence, Method
from vcuda.infer.selection.logarithms import choose_logarithms
from vcuda.models import FAMILIES
from vcuda.models.interventions import prepare
from vcuda.models.protocol import Candidate, LocalScore, Noise

EXACT_COLUMNS = 12
CLIMBED_COLUMNS = 200
# Below this, odds of 20 to 1, the sentence says that the data hardly decide.
CLEAR_LEAD = 3.0


class Measured(NamedTuple):
    """A model of the table on some scale, with its evidence; the score where all of it was needed."""

    candidate: Candidate
    table: Dataset
    units: Scaling
    score: LocalScore | None
    log_evidence: float

    @property
    def words(self) -> str:
        return self.candidate.words + (", logarithms" if self.units.logarithm.any() else "")


@dataclass(frozen=True, eq=False)
class Choice:
    """The model that the data support best, ready to be fitted.

    ``log_evidence`` maps all models that were compared, in words, to nats, by ``method``; ``sentences`` say the result
    in words.
    """

    candidate: Candidate
    scored: ScoredTable
    log_evidence: dict[str, float]
    method: Method
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """What is kept in the run's config."""
        return {"method": self.method, "log_evidence": self.log_evidence, "sentences": list(self.sentences)}


def choose_model(
    data: Dataset,
    prior: EdgePrior,
    *,
    models: Sequence[str] = tuple(FAMILIES),
    noise: Noise | None = None,
    logarithm: np.ndarray | None = None,
    positive: np.ndarray | None = None,
    standardise: bool = False,
    seed: int = 0,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
    checkpointer: Checkpointer = NO_CHECKPOINT,
) -> Choice:
    """Compare models of the table by their evidence.

    Parameters
    ----------
    data
        The table in the user's units.
    prior
        Of the edges that the order allows; the evidence is that of the graphs that obey what is known.
    models, noise
        What may be chosen.
    logarithm
        (d,) columns that are taken by their logarithm; decided by the evidence unless given.
    positive
        (d,) columns that have a logarithm, where ``data`` is a sample; by default those that are positive in it.
    standardise
        Whether all columns are standardised first.
    seed
        For the greedy searches and the choice of columns.
    progress
        Called with the model that is compared.
    deadline
        On the clock of ``time.monotonic``: models that are not compared by then are left out, and the sentences say so.
    checkpointer
        Where the evidence of every model is kept, also that there was no time for it.
    """
    method: Method = "exact" if data.d <= EXACT_COLUMNS else "best graph" if data.d <= CLIMBED_COLUMNS else "one order"
    given = fingerprint(data.fingerprint, prior, models, noise, logarithm, positive, standardise, seed)
    raw = np.zeros(data.d, dtype=bool)
    scales, gains = [raw if logarithm is None else logarithm], np.full(data.d, np.nan)
    if logarithm is None:
        progress(Progress(0, 1, "comparing the scales of columns"))

        def scales_of_columns() -> Arrays:
            chosen, gains = choose_logarithms(
                data,
                prior,
                np.random.default_rng(seed),
                positive=positive,
                given_graph=data.d <= CLIMBED_COLUMNS,
                go_on=in_time(deadline),
            )
            return {"chosen": chosen, "gains": gains}

        known = cached(checkpointer, "logarithms", given, scales_of_columns, complete=in_time(deadline))
        chosen, gains = known["chosen"], known["gains"]
        if chosen.any():
            scales = [chosen, raw]
    known_models = [one for one in FAMILIES.candidates() if one.model in models]
    candidates = [one for one in known_models if _fits(one, data) and noise in (None, one.noise)]
    if not candidates:
        raise ConfigError(f"no model to choose from has {noise} noise; name the model, for example model='linear'")
    evidence = Evidence(method, prior, np.random.default_rng(seed), deadline, checkpointer)
    measured: list[Measured] = []
    late: list[str] = []
    refused: RoundingError | None = None
    steps: list[str] = []
    # What there was no time for is left out when the fit is resumed, too: it went on without it.
    decided = checkpointer.recall("compared", given)
    for candidate in candidates:
        for mask in _scales_worth_trying(candidate, scales, measured):
            step = f"{candidate.words}, {int(mask.sum())} logarithms"
            if decided is not None:
                has_time = step in decided["steps"]
            else:
                has_time = not measured or deadline is None or time.monotonic() <= deadline
            if not has_time:
                late.append(candidate.words)
                continue
            progress(Progress(0, 1, f"comparing models: {candidate.words}"))
            table, units = rescaled(data, logarithm=mask, standardise=standardise)
            if candidate.spec.out_of_range(table.scale).size:
                continue
            try:
                # There is always a first model to fall back on.
                total, score = evidence.measure(candidate, table, may_stop=bool(measured) and decided is None)
            except TimeLimitError:
                late.append(candidate.words)
                continue
            except RoundingError as error:
                refused = error
                continue
            measured.append(Measured(candidate, table, units, score, total + evidence.log_jacobian(data, units)))
            steps.append(step)
    if refused is not None and not measured:
        raise refused
    if not measured:
        candidates[0].spec.check_spreads(table.source, table.names, table.scale)
    checkpointer.keep("compared", given, lambda: {"steps": np.array(steps)})
    best = max(measured, key=lambda one: one.log_evidence)
    score = best.score or prepare(best.candidate.spec, best.table.values, best.table.interventions)
    sentences = _sentences(data, best, measured, gains, method, late, noise)
    if refused is not None:
        sentences.append("One noise variance for all columns was not compared: their scales differ too much for it.")
    compared = {one.words: one.log_evidence for one in measured}
    scored = ScoredTable.of(data, best.table, score, best.units)
    return Choice(best.candidate, scored, compared, method, tuple(sentences))


def _too_wide(candidate: Candidate, data: Dataset) -> bool:
    return candidate.most_columns is not None and data.d > candidate.most_columns


def _too_long(candidate: Candidate, data: Dataset) -> bool:
    return candidate.most_rows is not None and data.n > candidate.most_rows


def _fits(candidate: Candidate, data: Dataset) -> bool:
    return not (_too_wide(candidate, data) or _too_long(candidate, data))


def _scales_worth_trying(
    candidate: Candidate, scales: Sequence[np.ndarray], measured: Sequence[Measured]
) -> Sequence[np.ndarray]:
    """All scales; for a slow model the one that the best of the others has."""
    if candidate.slow and measured:
        return [max(measured, key=lambda one: one.log_evidence).units.logarithm]
    return scales


def _sentences(
    data: Dataset,
    best: Measured,
    measured: Sequence[Measured],
    gains: np.ndarray,
    method: Method,
    late: Sequence[str],
    noise: Noise | None,
) -> list[str]:
    """What was found, in plain words."""
    sentences = []
    linear = [one for one in measured if one.candidate.phrase is None]
    curved = [one for one in measured if one.candidate.phrase is not None]

    def compared(winner: str, winners: Sequence[Measured], loser: str, losers: Sequence[Measured]) -> str:
        lead = max(one.log_evidence for one in winners) - max(one.log_evidence for one in losers)
        if lead < CLEAR_LEAD:
            return f"The data hardly distinguish {winner} from {loser}: they favour the former by {lead:.1f} nats."
        return f"The data favour {winner} by {lead:,.0f} nats over {loser}."

    if linear and curved:
        straight, bent = "linear mechanisms", "nonlinear ones"
        if best.candidate.phrase is None:
            sentences.append(compared(straight, linear, bent, curved))
        else:
            winner = f"nonlinear mechanisms ({best.candidate.phrase})"
            sentences.append(compared(winner, curved, "linear ones", linear))
    equal = [one for one in linear if one.candidate.noise == "equal"]
    if best.candidate.phrase is None:
        unequal = [one for one in linear if one.candidate.noise == "unequal"]
        if equal and unequal:
            shared, own = "one noise variance for all columns", "a noise variance for each column"
            if best.candidate.noise == "equal":
                sentences.append(compared(shared, equal, own, unequal))
            else:
                sentences.append(compared(own, unequal, shared, equal))
    taken = np.flatnonzero(best.units.logarithm)
    if taken.size and np.isfinite(gains[taken]).all():
        strongest = taken[np.argsort(-gains[taken], kind="stable")]
        listed = ", ".join(f"{data.names[j]} by {gains[j]:,.0f}" for j in strongest[:5])
        more = f" and {taken.size - 5} other columns" if taken.size > 5 else ""
        sentences.append(f"The data favour the logarithm of {listed} nats{more}.")
    if method == "best graph":
        sentences.append(
            f"{data.d} columns are too many for the exact evidence: models were compared by the best graph found for "
            "each."
        )
    elif method == "one order":
        sentences.append(
            f"{data.d:,} columns are too many for the exact evidence: models were compared on a random part of the "
            "columns, given one order."
        )
    everything = FAMILIES.candidates()
    if not curved and any(_too_wide(one, data) for one in everything):
        widest = max(one.most_columns or 0 for one in everything)
        sentences.append(f"Nonlinear models are not considered above {widest:,} columns.")
    elif best.candidate.phrase is not None:
        sentences += [
            f"{one.article} is not considered above {one.most_rows:,} rows; ask for it by model {one.model}."
            for one in everything
            if _too_long(one, data)
        ]
    was_late = any(one.words in late for one in everything if one.phrase is None and one.noise == "equal")
    if noise is None and linear and not equal and not was_late:
        sentences.append(
            "One noise variance for all columns was not considered: the columns vary by too different amounts."
        )
    if late and len({one.candidate for one in measured}) == 1:
        apart = "" if best.candidate.spec.depends_on_scale else ", which does not depend on the units of the columns"
        sentences.append(f"There was no time to compare models: the fit takes {best.candidate.words}{apart}.")
    if late:
        sentences.append(f"Not compared within the time limit: {', '.join(dict.fromkeys(late))}.")
    return sentences
