"""What a report says in words: the question, what came out, and how far to trust it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vcuda.baselines import BASELINES
from vcuda.data.kinds import KINDS
from vcuda.data.missing_codes import LIKE_A_CODE
from vcuda.data.series import parted
from vcuda.errors import ConfigError
from vcuda.infer.engines import ENGINES
from vcuda.models import model_words
from vcuda.posterior.mixed_graphs import HiddenCausesPosterior
from vcuda.posterior.posterior import Posterior, as_sentence
from vcuda.posterior.status import Status, edges_in_doubt, in_percent
from vcuda.summaries.categorical_effects import CategoryEffect, category_effect
from vcuda.summaries.effects import Effect, effect, effects
from vcuda.summaries.simulated_effects import SimulatedEffect, simulated_effect
from vcuda.summaries.structures import NamedGraph

NOISE_WORDS = {
    "unit": "variance one for every variable",
    "equal": "one variance shared by all variables",
    "unequal": "a variance of its own for each variable",
}
METHODS = ENGINES | BASELINES
# What the weakest part of the status comes to, in a few words.
VERDICTS = {
    "failed": "Do not use these numbers",
    "interrupted": "The fit was stopped before it was done",
    "edges in doubt": "Some of the sure edges are likely wrong",
    "warning": "The computation has not settled",
    "perhaps missing": "A number may stand for missing values",
    "ok": "No model check warns",
    "not checked": "The model was not checked against the rows",
}
DIAGNOSTIC_WORDS = {
    "imputations": "number of imputations of the missing values; the probabilities are means over them",
    "imputation_sd_mean": "standard deviation of the probability of an edge between imputations, mean over all edges",
    "imputation_sd_largest": "the same, for the edge that depends most on the missing values; 0 is best",
    "missing_cells": "cells that were missing",
    "disagreement": "largest difference between two halves of the runs about the probability of one edge; 0 is best",
    "standard_error": "largest sampling error of the probability of an edge; 0 is best",
    "effective_draws": "effective sample size of the least certain edge, in independent graphs; more is better",
    "replicas": "independent runs of the sampler",
    "replicas_kept": "replicas that reached the best graphs and are used",
    "sweeps": "rounds of the sampler over all variables",
    "missing_edges": "edges that would improve the fit but were not considered; 0 is best",
    "left_out_edges": "edges expected among those that were not considered; near 0 is best",
    "left_out_probability": "of the most probable edge that was not considered; near 0 is best",
    "doubtful_parents": "causes that were taken for certain; 0 is best",
    "restart_disagreement": "largest difference between restarts about the probability of one edge; 0 is best",
    "restarts_failed": "restarts that failed; 0 is best",
    "elbo_rise": "relative improvement at the end of the fit; 0 is best",
    "most_expected_parents": "expected direct causes of the variable that has most",
    "parents_left_out": "share of the last steps with more causes than max_parents; 0 is best",
    "log_evidence": "log probability of the table under this model; only differences between models mean something",
    "noise_variance": "the variance of the noise that all variables share, in the units of the fit",
}
LIKELY, SURE = 0.5, 0.9
# The direction of an edge is open when its opposite has this probability.
OPEN_DIRECTION = 0.2
# A hidden cause that is less probable is not named beside an edge.
SHOWN_HIDDEN = 0.1
# Edges on the first screen: as many as one looks at.
EDGES_FIRST = 5
# Effects of all pairs cost one function a variable and draw; curves cost simulations of single pairs.
MOST_VARIABLES_FOR_ALL_EFFECTS, FUNCTIONS_DRAWN = 250, 20_000
MOST_EFFECTS, CURVE_DRAWS = 40, 40
# An effect on categories takes about a millisecond a draw when there are few variables above it.
MOST_CATEGORY_EFFECTS, FEW_VARIABLES, CATEGORY_DRAWS = 12, 30, 200
# Of several kinds it takes some milliseconds a draw, and some tenths of a second for each set of causes.
SIMULATED_DRAWS = 100


def asked(posterior: Posterior) -> list[tuple[str, str]]:
    """What was asked: labels and answers."""
    made = posterior.provenance
    data = made["data"]
    answers = [("Data", data["source"]), ("Size", f"{data['rows']:,} rows, {data['columns']:,} columns")]
    if made.target is not None:
        answers.append(("Question", f"What drives {made.target}?"))
    if posterior.kinds is not None:
        answers.append(("Kinds of columns", _kinds(posterior)))
    if posterior.categories is not None:
        answers.append(("Labels", _categories(posterior)))
    answers += [("Knowledge", sentence) for sentence in _knowledge(made.get("knowledge") or {})]
    if made.get("time_limit") is not None:
        answers.append(("Time limit", f"{made['time_limit']:g} seconds"))
    return answers


def computed(posterior: Posterior) -> list[tuple[str, str]]:
    """How it was computed: labels and answers."""
    made = posterior.provenance
    model, engine = made["model"], made["engine"]
    answers = [("Model", model_words(model["name"]))]
    if model.get("noise"):
        answers.append(("Noise", NOISE_WORDS.get(model["noise"], model["noise"])))
    if made.get("logarithm"):
        answers.append(("Log-transformed columns", ", ".join(made["logarithm"])))
    if made.get("standardise"):
        answers.append(("Columns", "standardised to mean 0 and variance 1"))
    known = METHODS.get(engine["name"])
    answers.append(("Engine", f"{engine['name']}: {known.words}" if known else engine["name"]))
    if made.get("prior"):
        answers.append(("Prior", prior_words(made.prior_name, made["prior"]["edge_probability"])))
    return answers


def prior_words(name: str | None, probability: float) -> str:
    """What was assumed about graphs before data were seen."""
    if name != "uniform":
        return f"an edge has the probability {probability:.3g} where the order of the two allows it"
    if probability == 0.5:
        return "all DAGs are equally likely"
    odds = probability / (1 - probability)
    return f"all DAGs with the same number of edges are equally likely, and each edge has odds of {odds:.3g}"


def _kinds(posterior: Posterior, most: int = 12) -> str:
    """The columns of each kind."""
    kinds = posterior.kinds or ()
    parts = []
    for kind in KINDS:
        own = [name for name, other in zip(posterior.names, kinds, strict=True) if other == kind]
        if own:
            parts.append(f"{kind}: {', '.join(own[:most])}{f' and {len(own) - most} more' if len(own) > most else ''}")
    return "; ".join(parts)


def _categories(posterior: Posterior, most: int = 12) -> str:
    """The labels of the first columns that have some, in the order in which they are coded."""
    coded = [(name, own) for name, own in zip(posterior.names, posterior.categories or (), strict=True) if own]
    sentences = [
        f"{name}: {', '.join(labels[:6])}{f' and {len(labels) - 6} more' if len(labels) > 6 else ''}"
        for name, labels in coded[:most]
    ]
    more = len(coded) - most
    return "; ".join(sentences) + (f"; and {more:,} more columns" if more > 0 else "")


def _knowledge(known: dict[str, Any]) -> list[str]:
    said = []
    for key, words in (("required", "required"), ("forbidden", "forbidden"), ("upstream", "upstream, by any way")):
        if known.get(key):
            said.append(f"{words}: " + "; ".join(f"{source} → {target}" for source, target in known[key]))
    if known.get("tiers"):
        within = "" if known.get("within_tiers", True) else ", no edges inside a tier"
        said.append("tiers, earlier first: " + " | ".join(", ".join(tier) for tier in known["tiers"]) + within)
    for key, words in (("roots", "without causes"), ("sinks", "without effects")):
        if known.get(key):
            said.append(f"{words}: " + ", ".join(known[key]))
    if known.get("probabilities"):
        said.append(
            "prior probabilities of single edges: "
            + "; ".join(
                f"{source} → {target} {probability:g}" for source, target, probability in known["probabilities"]
            )
        )
    return said


class Pairs(NamedTuple):
    """Of how many pairs of variables an edge, in either direction, is likely or sure, and its direction settled.

    A hidden cause joins two columns as well, and then no end of the pair is the cause.
    """

    total: int
    likely: int
    sure: int
    settled: int

    @classmethod
    def of(cls, posterior: Posterior) -> Pairs:
        probabilities = posterior.edge_probabilities.to_numpy()
        joined = probabilities + probabilities.T
        if isinstance(posterior, HiddenCausesPosterior):
            joined = joined + posterior.bidirected_probabilities.to_numpy()
        pairs = np.triu(joined, k=1)
        directions = np.triu(np.maximum(probabilities, probabilities.T), k=1)
        likely = pairs >= LIKELY
        settled = likely & (directions >= SURE * pairs)
        lagged, nodes = posterior.lagged, len(probabilities)
        total = nodes * (nodes - 1) // 2
        if lagged is not None:  # earlier steps have no causes
            total = lagged.nodes * (lagged.nodes - 1) // 2 + lagged.lags * lagged.nodes**2
        return cls(total, int(likely.sum()), int((pairs >= SURE).sum()), int(settled.sum()))


class FirstEdge(NamedTuple):
    """An edge on the first screen: whether its direction is open, how probable it is, and whether it is in doubt.

    ``note`` says what else belongs to it: how much later it acts, or that a hidden cause may be there instead.
    """

    source: str
    target: str
    is_open: bool
    probability: float
    in_doubt: bool
    note: str = ""


def pairs_in_doubt(posterior: Posterior) -> set[frozenset[str]]:
    """Pairs with an edge in doubt: where its direction is open, so is what is drawn the other way round."""
    return set(map(frozenset, edges_in_doubt(posterior.checks())))


def first_edges(posterior: Posterior, consensus: NamedGraph) -> list[FirstEdge]:
    """The pairs that are joined with the highest probability; of a settled direction, how probable that one is."""
    edges = consensus.edges()
    doubted, found = pairs_in_doubt(posterior), []
    lines = zip(edges.source, edges.target, edges.probability.tolist(), edges.opposite.tolist(), strict=True)
    for source, target, probability, opposite in lines:
        is_open = probability < SURE * (probability + opposite)
        shown = probability + opposite if is_open else probability
        column, note = _noted(posterior, source, target)
        found.append(FirstEdge(column, target, is_open, shown, frozenset((source, target)) in doubted, note))
    return sorted(found, key=lambda edge: -edge.probability)[:EDGES_FIRST]


def _noted(posterior: Posterior, source: str, target: str) -> tuple[str, str]:
    """The column that is the source of an edge, and what else is to be said of the edge."""
    if posterior.lagged is not None:
        column, lag = parted(source, posterior.lagged.names) or (source, 0)
        return column, posterior.lagged.later(lag)
    if isinstance(posterior, HiddenCausesPosterior):
        place = posterior.names.index(source), posterior.names.index(target)
        hidden = float(posterior.bidirected_probabilities.to_numpy()[place])
        return source, f"or a hidden cause of both ({in_percent(hidden)})" if hidden >= SHOWN_HIDDEN else ""
    return source, ""


def found_in_short(posterior: Posterior, consensus: NamedGraph) -> str:
    """How many edges there are, in a sentence above the first of them."""
    pairs, shown = Pairs.of(posterior), int(consensus.graph.sum())
    if not pairs.likely:
        return f"No pair has an edge with a probability of {LIKELY} or more: the data leave every edge open."
    lagged = posterior.lagged
    if lagged is not None:
        likely = "1 is" if pairs.likely == 1 else f"{pairs.likely:,} are"
        when = f"at once or up to {lagged.later(lagged.lags)}"
        lead = f"Of {pairs.total:,} ways in which one column may act on another, or on itself, {when}, {likely} likely"
    else:
        joined = "1 pair is" if pairs.likely == 1 else f"{pairs.likely:,} pairs are"
        lead = f"Of {pairs.total:,} pairs of columns, {joined} likely to be joined by a direct cause"
    if isinstance(posterior, HiddenCausesPosterior):
        lead += " or a hidden one"
    return f"{lead}; the surest:" if shown > EDGES_FIRST else f"{lead}:"


def how_sure(posterior: Posterior) -> list[str]:
    """How sure the answer is, for a reader who knows no statistics."""
    pairs = Pairs.of(posterior)
    meaning = "90 % means: if the model is right, nine of ten such edges exist. It is not the strength of an effect."
    careful = posterior.provenance.get("careful")
    meanings = [meaning]
    if careful:
        meanings.insert(
            0,
            "The checks warn of these rows, so this is what small parts of them agree on; all rows together would call "
            f"{careful['sure_before']:,} edges sure.",
        )
    if not pairs.likely:
        return meanings
    if pairs.likely == 1:
        sure = f"The one likely connection is {'' if pairs.sure else 'not '}sure, at {100 * SURE:.0f} % or more"
        settled = "settled" if pairs.settled else "open"
    else:
        sure = f"{_share(pairs.sure, pairs.likely)} connections are sure, at {100 * SURE:.0f} % or more"
        settled = f"settled for {_share(pairs.settled, pairs.likely).lower()}"
    return [f"{sure}. Which end is the cause is {settled}.", *meanings]


def _share(part: int, whole: int) -> str:
    if part == whole == 2:
        return "Both"
    if part in (0, whole):
        return f"All of the {whole:,}" if part else f"None of the {whole:,}"
    return f"{part:,} of the {whole:,}"


def perhaps_missing(posterior: Posterior) -> list[str]:
    """Notes on numbers that may stand for missing values: taken as numbers, they can spoil the whole answer."""
    return [note for note in posterior.provenance.notes if LIKE_A_CODE in note]


def verdict(posterior: Posterior) -> str:
    """What the weakest part of the status comes to, in a few words."""
    status = posterior.status
    if status.code == "ok" and perhaps_missing(posterior):
        return VERDICTS["perhaps missing"]
    if status.code == "warning" and status.description.severity:
        return VERDICTS["edges in doubt"]
    if status.code == "ok":
        return VERDICTS[status.description.code]
    return VERDICTS[status.code]


def could_be_wrong(posterior: Posterior) -> list[str]:
    """What could make the answer wrong, the weakest part first; sound arithmetic is said further below.

    Of the warnings of the model checks the first, without what to do: the section on checks has all of that.
    """
    return perhaps_missing(posterior) + _by_status(posterior)


def _by_status(posterior: Posterior) -> list[str]:
    status, warnings = posterior.status, posterior.checks().warnings
    described = status.description.sentence
    if warnings:
        count, others = len(edges_in_doubt(posterior.checks())), len(warnings) - 1
        described = f"{count:,} sure {'edge is' if count == 1 else 'edges are'} in doubt. {warnings[0].sentence} "
        described += f"What to do, and {others} more: see Checks." if others else "What to do: see Checks."
    if status.code == "failed":
        return [status.arithmetic.sentence]
    if not status.arithmetic.severity:
        # That nothing was found is the verdict itself.
        checks = posterior.checks()
        is_quiet = status.code == "ok" and checks.made and not checks.findings and not checks.not_made
        return [status.unseen.sentence] if is_quiet else [described, status.unseen.sentence]
    sentences = [status.arithmetic.sentence, described]
    if status.description.severity >= status.arithmetic.severity:
        sentences.reverse()
    return [*sentences, status.unseen.sentence]


def supported(posterior: Posterior, consensus: NamedGraph) -> list[str]:
    """What the data support, in sentences: first how the model was chosen, then what it found."""
    pairs, expected = Pairs.of(posterior), posterior.edge_probabilities.to_numpy().sum()
    sentences = list(posterior.provenance.get("choice", {}).get("sentences", []))
    sentences.append(f"The posterior expects {expected:.1f} edges between the {pairs.total:,} pairs of variables.")
    if not pairs.likely:
        sentences.append(f"No pair has an edge with a probability of {LIKELY} or more: the data leave every edge open.")
        return sentences
    sentences.append(
        f"Pairs with an edge, in either direction, with a probability of at least {LIKELY}: {pairs.likely:,}; with at "
        f"least {SURE}: {pairs.sure:,}. "
        f"The direction is settled (nine to one or better) for {pairs.settled:,} of the {pairs.likely:,}, and open for "
        f"{pairs.likely - pairs.settled:,}."
    )
    sentences.append(consensus.rule)
    return sentences


def trust(status: Status) -> list[tuple[str, str]]:
    """The parts of the status, with the question that each answers."""
    return [
        (
            "Does the model describe the rows?",
            "Not well enough: see Checks." if status.description.severity else status.description.sentence,
        ),
        ("What shows in no table?", status.unseen.sentence),
        ("Is the computation sound?", status.arithmetic.sentence),
    ]


def assumptions(posterior: Posterior) -> list[str]:
    """What the reading of an arrow as a cause rests on, whatever the computation did."""
    model = posterior.provenance["model"]
    rests = [
        "An arrow is a direct cause only if no unmeasured variable drives both of its ends (confounding), no row is in "
        "the table because of what its columns hold (selection), columns are measured without error, and nothing feeds "
        "back on its own causes.",
        "A probability of 0.8 means: if the model is right, eight of ten such edges exist.",
    ]
    if model.get("score") in ("BGe", "BDeu"):
        rests.append(
            "This model gives all graphs of one Markov equivalence class the same score: where the direction of "
            "an edge is open, more rows will not settle it, but an experiment or knowledge can."
        )
    return rests


def diagnostics(posterior: Posterior) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """Numbers with their meaning, and all others by their names."""
    sentences, others = [], []
    for key, value in posterior.diagnostics.items():
        name = key.replace("_", " ")
        if key in DIAGNOSTIC_WORDS and isinstance(value, int | float) and not isinstance(value, bool):
            sentences.append((name, _brief(value), DIAGNOSTIC_WORDS[key]))
        elif value is not None and key != "targets":  # these have a section of their own
            others.append((name, _brief(value)))
    order = list(DIAGNOSTIC_WORDS)
    return sorted(sentences, key=lambda row: order.index(row[0].replace(" ", "_"))), others


def _brief(value: Any, most: int = 300) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list) and value and all(isinstance(item, int | float) for item in value):
        text = ", ".join(f"{item:.4g}" for item in value)
    else:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= most else text[:most] + " …"


def strongest_effects(
    posterior: Posterior, consensus: NamedGraph, *, most_curves: int, seed: int
) -> tuple[pd.DataFrame | None, list[Effect] | list[CategoryEffect] | list[SimulatedEffect], str]:
    """Total effects: a line for each of the surest pairs where effects are numbers, curves of few where they bend.

    Of categories, which have no lines, and of tables of several kinds, a table for each of some pairs.

    The last is the sentence that says what they are, or why there are none.
    """
    nodes = len(posterior.names)
    if posterior.kinds is not None:
        return _simulated_effects(posterior, consensus, most_curves=most_curves, seed=seed)
    if posterior.categories is not None:
        return _category_effects(posterior, consensus, most_curves=most_curves, seed=seed)
    reason = ""
    if nodes <= MOST_VARIABLES_FOR_ALL_EFFECTS:
        draws = int(np.clip(FUNCTIONS_DRAWN // nodes, 100, 1000))
        try:
            table = effects(posterior, draws=draws, seed=seed)
        except ConfigError as error:
            reason = str(error)
        else:
            likely = table[table.probability_zero < 1 - LIKELY].head(MOST_EFFECTS)
            return likely, [], _effects_sentence(len(likely), draws)
    pairs = consensus.edges().sort_values("probability", ascending=False, kind="stable").head(most_curves)
    curves: list[Effect] = []
    for row in pairs.itertuples():
        try:
            at = _usual_range(posterior, str(row.source), seed)
            found = effect(posterior, str(row.source), str(row.target), at=at, draws=CURVE_DRAWS, seed=seed)
            assert isinstance(found, Effect)
            curves.append(found)
        except ConfigError as error:
            return None, [], as_sentence([reason or str(error)])
    if not curves:
        sentences = "Curves were not asked for." if not most_curves else "No edge is sure enough for a curve."
        return None, [], sentences
    sentence = (
        "The expected value of the effect when the cause is set to a value, for the surest edges; it lies inside of "
        f"the band with 90 %, the uncertainty of the graph included ({CURVE_DRAWS} causal models drawn for each)."
    )
    return None, curves, sentence


def _surest_pairs(posterior: Posterior, consensus: NamedGraph, *, most_curves: int) -> list[tuple[str, str]]:
    """Of few variables all edges of the consensus, up to a dozen; of many only as many as curves were asked for."""
    most = max(most_curves, MOST_CATEGORY_EFFECTS) if len(posterior.names) <= FEW_VARIABLES else most_curves
    edges = consensus.edges().sort_values("probability", ascending=False, kind="stable").head(most)
    return [(str(row.source), str(row.target)) for row in edges.itertuples()]


def _why_no_effects(posterior: Posterior, *, most_curves: int) -> str:
    asked_for = most_curves > 0 or len(posterior.names) <= FEW_VARIABLES
    return "No edge is sure enough for its effect." if asked_for else "Effects were not asked for."


def _simulated_effects(
    posterior: Posterior, consensus: NamedGraph, *, most_curves: int, seed: int
) -> tuple[None, list[SimulatedEffect], str]:
    pairs = _surest_pairs(posterior, consensus, most_curves=most_curves)
    found = [simulated_effect(posterior, *pair, draws=SIMULATED_DRAWS, seed=seed) for pair in pairs]
    if not found:
        return None, [], _why_no_effects(posterior, most_curves=most_curves)
    sentence = (
        "What setting the cause changes in the effect, along all paths, for the surest edges: probabilities in "
        "percentage points, numbers and counts in their own units; the effect lies inside of the interval with 90 %, "
        f"the uncertainty of the graph included ({SIMULATED_DRAWS} causal models drawn for each)."
    )
    return None, found, sentence


def _category_effects(
    posterior: Posterior, consensus: NamedGraph, *, most_curves: int, seed: int
) -> tuple[None, list[CategoryEffect], str]:
    pairs = _surest_pairs(posterior, consensus, most_curves=most_curves)
    try:
        found = [category_effect(posterior, *pair, draws=CATEGORY_DRAWS, seed=seed) for pair in pairs]
    except ConfigError as error:
        return None, [], as_sentence([str(error)])
    if not found:
        return None, [], _why_no_effects(posterior, most_curves=most_curves)
    sentence = (
        "How probable each category of the effect is when the cause is set to one of its own, along all paths, for the "
        "surest edges; it lies inside of the interval with 90 %, the uncertainty of the graph included "
        f"({CATEGORY_DRAWS} causal models drawn for each)."
    )
    return None, found, sentence


def _usual_range(posterior: Posterior, cause: str, seed: int) -> list[float] | None:
    """1.5 standard deviations around the mean of a column that was standardised for the fit; None for others.

    Saves the models that would otherwise be drawn to find the range: as many again as for a curve, or more.
    """
    model = next(iter(posterior.graph_posterior.models(np.random.default_rng(seed), posterior.names, 1)))
    scaling = model.scaling.of(posterior.names.index(cause))
    if scaling.centre[0] == 0 and scaling.scale[0] == 1:
        return None
    return scaling.undo(np.linspace(-1.5, 1.5, 21)[:, None])[:, 0].tolist()


def _effects_sentence(number: int, draws: int) -> str:
    if not number:
        return f"No pair of variables has a directed path between them with a probability above {LIKELY}."
    return (
        "By how much the effect changes when the cause is set one unit higher, along all paths, in the units of the "
        f"table. The change lies inside of the interval with 90 %, the uncertainty of the graph included ({draws:,} "
        f"causal models drawn). Pairs with a directed path in at least {LIKELY:.0%} of the graphs, the surest first."
    )
