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
from vcuda.data.knowledge import EdgeRules
from vcuda.errors import ConfigError
from vcuda.infer.checkpoint import NO_CHECKPOINT, Arrays, Checkpointer, cached, fingerprint
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import RoundingError, TimeLimitError
from vcuda.infer.progress import Progress, ProgressCallback, in_time, silent
from vcuda.infer.scored import ScoredTable, check_one_unit, rescaled
from vcuda.infer.selection.evidence import CANDIDATES, Candidate, Evidence, Method
from vcuda.infer.selection.logarithms import choose_logarithms
from vcuda.models.base import Noise
from vcuda.models.interventions import prepare
from vcuda.models.scores import EqualNoise, LocalScore, SharedNoise
from vcuda.posterior.graph_posterior import Scaling

EXACT_COLUMNS = 12
CLIMBED_COLUMNS = 200
# Products of features take 8 (6 d)² bytes: .3 GB at this number of columns.
NONLINEAR_COLUMNS = 1000
# A Gaussian process factorises hundreds of n by n matrices: 5 seconds at ten columns and 1,000 rows, and by n³ more.
PROCESS_ROWS = 2000
# Below this, odds of 20 to 1, the sentence says that the data hardly tell.
CLEAR_LEAD = 3.0


class Measured(NamedTuple):
    """A model of the table on some scale, with its evidence; the score where all of it was needed."""

    candidate: Candidate
    table: Dataset
    units: Scaling
    score: LocalScore | SharedNoise | None
    log_evidence: float

    @property
    def words(self) -> str:
        return self.candidate.words + (", logarithms" if self.units.logarithm.any() else "")


@dataclass(frozen=True, eq=False)
class Choice:
    """The model that the data support best, ready to be fitted.

    ``log_evidence`` maps all models that were compared, in words, to nats, by ``method``; ``sentences`` tell the result
    to people.
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
    *,
    edge_probability: float,
    rules: EdgeRules | None = None,
    models: Sequence[str] = ("linear", "additive", "gp"),
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
    edge_probability
        Prior probability of an edge that the order allows.
    rules
        What is known of the edges; the evidence is that of the graphs that obey.
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
        Told which model is being looked at.
    deadline
        On the clock of ``time.monotonic``: models that are not compared by then are left out, and the sentences say so.
    journal
        Where the evidence of every model is kept, also that there was no time for it.
    """
    prior = edge_prior(data.d, edge_probability, **({} if rules is None else rules._asdict()))
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
    if data.d > NONLINEAR_COLUMNS:
        models = [model for model in models if model == "linear"]
    elif data.n > PROCESS_ROWS:
        models = [model for model in models if model != "gp"]
    candidates = [one for one in CANDIDATES if one.model in models and noise in (None, one.noise)]
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
            if isinstance(candidate.spec, EqualNoise) and candidate.spec.out_of_range(table.scale).size:
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
        check_one_unit(candidates[0].spec, table)
    checkpointer.keep("compared", given, lambda: {"steps": np.array(steps)})
    best = max(measured, key=lambda one: one.log_evidence)
    score = best.score or prepare(best.candidate.spec, best.table.values, best.table.interventions)
    sentences = _sentences(data, best, measured, gains, method, late, noise)
    if refused is not None:
        sentences.append("One noise variance for all columns was not compared: their scales differ too much for it.")
    compared = {one.words: one.log_evidence for one in measured}
    return Choice(best.candidate, ScoredTable.of(best.table, score, best.units), compared, method, tuple(sentences))


def _scales_worth_trying(
    candidate: Candidate, scales: Sequence[np.ndarray], measured: Sequence[Measured]
) -> Sequence[np.ndarray]:
    """All scales; for the Gaussian process, which takes longest, the one that the best of the others has."""
    if candidate.model == "gp" and measured:
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
    linear = [one for one in measured if one.candidate.model == "linear"]
    curved = [one for one in measured if one.candidate.model != "linear"]

    def compared(winner: str, winners: Sequence[Measured], loser: str, losers: Sequence[Measured]) -> str:
        lead = max(one.log_evidence for one in winners) - max(one.log_evidence for one in losers)
        if lead < CLEAR_LEAD:
            return f"The data hardly tell {winner} from {loser}: they favour the former by {lead:.1f} nats."
        return f"The data favour {winner} by {lead:,.0f} nats over {loser}."

    if linear and curved:
        straight, bent = "linear mechanisms", "nonlinear ones"
        if best.candidate.model == "linear":
            sentences.append(compared(straight, linear, bent, curved))
        else:
            kind = "a smooth function of all causes" if best.candidate.model == "gp" else "a sum of smooth functions"
            sentences.append(compared(f"nonlinear mechanisms ({kind})", curved, "linear ones", linear))
    equal = [one for one in linear if one.candidate.noise == "equal"]
    if best.candidate.model == "linear":
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
    if not curved and data.d > NONLINEAR_COLUMNS:
        sentences.append(f"Nonlinear models are not considered above {NONLINEAR_COLUMNS:,} columns.")
    elif best.candidate.model == "additive" and data.n > PROCESS_ROWS:
        sentences.append(f"A Gaussian process is not considered above {PROCESS_ROWS:,} rows; ask for it by model gp.")
    if noise is None and linear and not equal:
        sentences.append(
            "One noise variance for all columns was not considered: the columns vary by too different amounts."
        )
    if late:
        sentences.append(f"Not compared within the time limit: {', '.join(dict.fromkeys(late))}.")
    return sentences
