"""Environments with unknown targets, beside known targets, the pooled table, indicators as causes, and CD-NOD."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import vcuda
from benchmarks.records import Line, grouped, markdown
from benchmarks.worlds.peers import ask
from vcuda.data.moments import merged
from vcuda.infer.edge_prior import prior_of_rules
from vcuda.infer.exact import exact_posterior
from vcuda.metrics import average_precision
from vcuda.models import interventions
from vcuda.models.contexts import strata_of_rows, summed
from vcuda.models.environment_sets import Prior, change_probability, piece_score
from vcuda.models.linear import BGe

TITLE = "Environments that changed nobody knows what"
NODES, ROWS, SETS = 8, 300, 20
# What environments do, and how many there are.
WORLDS = (("shift", 4), ("soft", 3), ("soft", 5), ("hard", 4), ("shuffled", 4))
METHODS = ("pooled", "indicators", "unknown targets", "default", "targets known", "CD-NOD")
SURE = 0.9


def cases() -> list[dict[str, Any]]:
    return [
        {"world": world, "environments": count, "method": method, "set": number}
        for number in range(SETS)
        for world, count in WORLDS
        for method in METHODS
        if not (world == "shuffled" and method != "unknown targets")
    ]


class World(NamedTuple):
    """A table with its graph (d, d), and what each environment but the first changed (e - 1, d)."""

    table: pd.DataFrame
    graph: np.ndarray
    changed: np.ndarray


def drawn(world: str, environments: int, seed: int) -> World:
    """A linear model of 8 columns with normal noise; each environment changes one or two columns.

    shift: the mean, by 1 to 3 standard deviations of the noise. soft: the effects of the causes are drawn again, and
    the noise is 0.5 or 2 times as strong. hard: the column no longer follows its causes. shuffled: as soft, and the
    labels of the rows mean nothing.
    """
    kind = "soft" if world == "shuffled" else world
    rng = np.random.default_rng([seed, environments, ("shift", "soft", "hard").index(kind)])
    order = rng.permutation(NODES)
    graph = np.zeros((NODES, NODES), dtype=bool)
    for late in range(1, NODES):
        for early in range(late):
            graph[order[early], order[late]] = rng.random() < 3 / (NODES - 1)
    weights, noise = _weights(rng, graph), rng.uniform(0.5, 1.5, NODES)
    changed, parts = np.zeros((environments - 1, NODES), dtype=bool), []
    for environment in range(environments):
        own, spread, shift = weights.copy(), noise.copy(), np.zeros(NODES)
        if environment:
            targets = rng.choice(NODES, rng.integers(1, 3), replace=False)
            changed[environment - 1, targets] = True
            for target in targets:
                if kind == "shift":
                    shift[target] = rng.choice([-1, 1]) * rng.uniform(1, 3) * noise[target]
                elif kind == "soft":
                    own[:, target] = _weights(rng, graph)[:, target]
                    spread[target] *= rng.choice([0.5, 2.0])
                else:
                    own[:, target] = 0.0
                    shift[target], spread[target] = rng.normal(0, 2), rng.uniform(0.5, 1.5)
        values = np.zeros((ROWS, NODES))
        for node in order:
            values[:, node] = values @ own[:, node] + shift[node] + spread[node] * rng.standard_normal(ROWS)
        parts.append(values)
    table = pd.DataFrame(np.concatenate(parts), columns=[f"X{k + 1}" for k in range(NODES)])
    labels = np.repeat([f"site {e + 1}" for e in range(environments)], ROWS)
    table["site"] = rng.permutation(labels) if world == "shuffled" else labels
    return World(table, graph, changed)


def _weights(rng: np.random.Generator, graph: np.ndarray) -> np.ndarray:
    return graph * rng.choice([-1, 1], graph.shape) * rng.uniform(0.4, 1.2, graph.shape)


def measure(case: dict[str, Any], peers: str | None) -> dict[str, Any] | None:
    """The edges and the targets that a method finds; None for a peer that is not there."""
    world = drawn(case["world"], case["environments"], case["set"])
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = _answers(case["method"], world, peers)
    if answer is None:
        return None
    edges, targets, seconds = answer
    truth = world.graph
    found: dict[str, Any] = {"seconds": time.process_time() - begun if seconds is None else seconds}
    off = ~np.eye(NODES, dtype=bool)
    if case["world"] != "shuffled":
        sure = off & (edges >= SURE)
        found |= {
            "ap": average_precision(edges, truth),
            "sure": int(sure.sum()),
            "sure_true": int((sure & truth).sum()),
        }
    if targets is not None:
        found["largest_target"] = float(targets.max())
        if case["world"] != "shuffled":
            found |= {
                "targets_ap": _ap(targets, world.changed),
                "sure_targets": int((targets >= SURE).sum()),
                "sure_targets_true": int(((targets >= SURE) & world.changed).sum()),
            }
    return found


def _ap(scores: np.ndarray, truth: np.ndarray) -> float:
    """Average precision over all cells."""
    order = np.argsort(-scores.ravel(), kind="stable")
    right = truth.ravel()[order]
    precision = np.cumsum(right) / np.arange(1, right.size + 1)
    return float(precision[right].mean())


Answer = tuple[np.ndarray, np.ndarray | None, float | None]


def _answers(method: str, world: World, peers: str | None) -> Answer | None:
    names = list(world.table.columns[:-1])
    plain = world.table[names]
    if method == "pooled":
        return vcuda.fit(plain, model="linear", checks=False).edge_probabilities.to_numpy(), None, None
    if method == "indicators":
        return _indicators(world, names)
    if method == "targets known":
        return _known(world)
    if method == "CD-NOD":
        found = ask(peers, "cdnod", {"values": plain.to_numpy(), "context": pd.factorize(world.table["site"])[0]})
        return None if found is None else (np.array(found["edges"]), None, found["seconds"])
    asked: dict[str, Any] = {"checks": False, "model": "linear"} if method == "unknown targets" else {}
    posterior = vcuda.fit(world.table, contexts="site", reference="site 1", **asked)
    targets = np.array(posterior.diagnostics["targets"])
    return posterior.edge_probabilities.to_numpy(), targets, None


def _indicators(world: World, names: list[str]) -> Answer:
    """An indicator of each environment as a column without causes: what could be done without contexts."""
    dummies = pd.get_dummies(world.table["site"]).iloc[:, 1:].astype(float)
    knowledge = vcuda.Knowledge(tiers=(tuple(dummies.columns), tuple(names)))
    joint = pd.concat([world.table[names], dummies], axis=1)
    found = vcuda.fit(joint, model="linear", knowledge=knowledge, checks=False).edge_probabilities
    return found.loc[names, names].to_numpy(), found.loc[list(dummies.columns), names].to_numpy(), None


def _known(world: World) -> Answer:
    """The score of the true sets of environments, in place of the sum over all."""
    table = vcuda.as_dataset(world.table, contexts="site", reference="site 1")
    _, scale = BGe().common_units(table.values)
    strata, count = strata_of_rows(table), len(world.changed) + 1
    moments = [merged([one for (_, e), one in strata.items() if e == k], table.d) for k in range(count)]
    rows = tuple(one.rows for one in moments)
    prior = Prior(count, tuple(range(count)), rows, change_probability(table.d), "mechanisms", 1.0)
    parts = []
    for column in range(table.d):
        change = prior.change(tuple((np.flatnonzero(world.changed[:, column]) + 1).tolist()))
        pieces = {piece: piece_score(BGe(), moments, piece, scale) for piece in (*change.pieces, (prior.active,))}
        parts.append(summed([change], pieces, prior))
    counts = np.full(table.d, table.n)
    shifts = np.zeros((table.d, table.d))
    score = interventions.joined(parts[0], parts, np.arange(table.d), counts, scale, shifts)
    edges = prior_of_rules(table.d, vcuda.DagPrior.for_nodes(table.d).edge_probability, None)
    found = exact_posterior(score, edges, samples=1, rng=np.random.default_rng(0))
    return found.edge_probabilities, None, None


def tables(lines: Sequence[Line]) -> str:
    """A row for each method, a column for each world: AP of edges, and of targets in brackets."""
    by_case = grouped(lines, ("method", "world", "environments"))
    worlds = [own for own in WORLDS if own[0] != "shuffled"]
    rows = []
    for method in METHODS:
        cells, known = [], []
        for world, count in worlds:
            own = by_case.get((method, world, count), [])
            known += own
            cells.append(_cell(own))
        if known:
            sure = f"{sum(line['sure_true'] for line in known):,} of {sum(line['sure'] for line in known):,}"
            targets = [line for line in known if "sure_targets" in line]
            named = (
                f"{sum(line['sure_targets_true'] for line in targets):,} of "
                f"{sum(line['sure_targets'] for line in targets):,}"
                if targets
                else ""
            )
            rows.append([method, *cells, sure, named, f"{np.mean([line['seconds'] for line in known]):.2f}"])
    header = ["", *(f"{world}, {count} environments" for world, count in worlds)]
    text = markdown([*header, "sure edges that are true", "sure targets that are true", "processor seconds"], rows)
    shuffled = [line for line in lines if line["world"] == "shuffled"]
    largest = sorted(line["largest_target"] for line in shuffled) or [float("nan")]
    usual = sum(one < 0.05 for one in largest)
    return (
        f"Linear tables of {NODES} columns, {ROWS} rows in each environment, {SETS} sets; each environment but the "
        "first changed one or two columns. Mean AP of directed edges, in brackets of the targets. `unknown targets` is "
        '`fit(table, model="linear", contexts="site")`, `default` the same without a model, checks included. '
        "`indicators`: columns of 0 and 1 for the environments, without causes. CD-NOD of causal-learn has Fisher's z "
        f"test.\n\n{text}\n\nWith shuffled labels ({len(shuffled)} fits of {3 * NODES} possible targets) "
        f"the most probable target of a fit has less than 0.05 in {usual} fits, and at most {largest[-1]:.2f}."
    )


def _cell(lines: Sequence[Line]) -> str:
    if not lines:
        return ""
    targets = [line["targets_ap"] for line in lines if "targets_ap" in line]
    shown = f"{np.mean([line['ap'] for line in lines]):.3f}"
    return f"{shown} ({np.mean(targets):.3f})" if targets else shown
