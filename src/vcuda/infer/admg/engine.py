"""Sampling of graphs with directed and bidirected edges as an engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vcuda.infer.admg import chains
from vcuda.infer.checkpoint import generator_of, generator_state
from vcuda.infer.engine import Info, Plan, Problem, Resources, ScoredEngine, interrupted
from vcuda.posterior.mixed_graphs import APART, BACKWARD, BIDIRECTED, FORWARD, STATES, MixedGraphSamples, pairs_of
from vcuda.posterior.posterior import Outcome, Status, as_sentence

DROPPED = 0.25
# Replicas that differ by more on the state of a pair have not met.
WARN_DISAGREEMENT = 0.1
WARN_SWEEPS = 200
# Short chains over DAGs, to compare with.
SHORT_SWEEPS, SHORT_REPLICAS = 100, 2
# Nats that the best graph with hidden causes must be ahead of the best without to be said to describe the table better.
# Of 160 simulated tables of 7 columns without hidden causes one had more.
BETTER = 4.0
NOT_BETTER = "graphs without hidden causes describe the table as well"
# An edge of a kind that was not said: directed in either direction, or bidirected.
KINDS_OF_EDGE = 3


class ChainState(NamedTuple):
    """Chains (r, l, d) as bit masks, states (t, r, p) of the coldest ones so far, and their log scores (t, r)."""

    parents: np.ndarray
    spouses: np.ndarray
    states: np.ndarray
    scores: np.ndarray
    generator: np.ndarray


class MixedGraphSampling(ScoredEngine[ChainState]):
    """Tempered Gibbs sampling over the states of pairs."""

    def __init__(self, spec: Any, problem: Problem, resources: Resources) -> None:
        super().__init__(spec, problem, resources)
        predictive = self.table.predictive(None)
        products = None if predictive is None else predictive.column_products(0)
        assert products is not None  # fit asks for a linear score
        rows, gram = products
        scale = np.sqrt(np.diag(gram))
        self.pairs = pairs_of(len(gram))
        self.memory = chains.Memory.empty(len(gram))
        self.target = chains.Problem(gram / np.outer(scale, scale), rows, self.pairs, self._log_prior())
        self.heats = np.geomspace(1.0, self.spec.hottest, self.spec.levels) if self.spec.levels > 1 else np.ones(1)

    def _log_prior(self) -> np.ndarray:
        """Log odds (p, 4) of the states of each pair against none: the odds of an edge are shared out among the kinds
        of edge, so that as many edges are expected as without hidden causes."""
        edges = self.problem.edge_prior()
        base = self.problem.prior.edge_probability
        odds = np.log(base) - np.log1p(-base) - np.log(KINDS_OF_EDGE)
        found = np.zeros((len(self.pairs), STATES))
        for number, (i, j) in enumerate(self.pairs.tolist()):
            found[number, FORWARD] = edges.log_odds[i, j] - np.log(KINDS_OF_EDGE)
            found[number, BACKWARD] = edges.log_odds[j, i] - np.log(KINDS_OF_EDGE)
            found[number, BIDIRECTED] = odds
            for state, required in ((FORWARD, edges.required[i, j]), (BACKWARD, edges.required[j, i])):
                if required:
                    found[number] = -np.inf
                    found[number, state] = 0.0
        return found

    def init(self) -> ChainState:
        rng = np.random.default_rng(self.problem.seed)
        shape = (self.spec.replicas, self.spec.levels, len(self.target.covariance))
        parents, spouses = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for mine, mates in zip(parents.reshape(-1, shape[2]), spouses.reshape(-1, shape[2]), strict=True):
            self._set_required(mine, mates)
            # A draw from the prior: chains begin far apart.
            chosen, chances = rng.permutation(len(self.pairs)), rng.random(len(self.pairs))
            chains.sweep(mine, mates, 0.0, self.target, self.memory, chosen, chances)
        kept = np.zeros((0, self.spec.replicas, len(self.pairs)), np.int8)
        return ChainState(parents, spouses, kept, np.zeros((0, self.spec.replicas)), generator_state(rng))

    def advance(self, state: ChainState, plan: Plan) -> tuple[ChainState, Info]:
        done = len(state.scores)
        steps = min(plan.steps, self.spec.sweeps - done)
        rng, size = generator_of(state.generator), len(self.pairs)
        parents, spouses = state.parents.copy(), state.spouses.copy()
        states, scores = [state.states], [state.scores]
        for _ in range(steps):
            # Numbers of one sweep at a time: they do not depend on how many sweeps are taken together.
            shape = (1, self.spec.replicas, self.spec.levels, size)
            chosen, chances = rng.integers(0, size, shape), rng.random(shape)
            exchanges = rng.random((1, self.spec.replicas, self.spec.levels - 1))
            found = chains.run_sweeps(
                parents, spouses, self.heats, self.target, self.memory, chosen, chances, exchanges
            )
            states.append(found[0])
            scores.append(found[1])
        later = ChainState(parents, spouses, np.concatenate(states), np.concatenate(scores), generator_state(rng))
        return later, Info(steps, done + steps, self.spec.sweeps, "sampling graphs with hidden causes")

    def is_done(self, state: ChainState) -> bool:
        return len(state.scores) >= self.spec.sweeps

    def has_result(self, state: ChainState) -> bool:
        return len(state.scores) >= 4

    def finish(self, state: ChainState, stopped: str | None) -> Outcome:
        first = int(DROPPED * len(state.scores))
        states, scores = state.states[first:], state.scores[first:]
        shares = np.stack([(states == kind).mean(axis=0) for kind in range(STATES)], axis=-1)
        disagreement = float(np.abs(shares - shares.mean(axis=0)).max())
        every = states.reshape(-1, states.shape[-1])
        chosen = np.linspace(0, len(every) - 1, min(self.spec.kept, len(every))).astype(np.int64)
        found = MixedGraphSamples(self.problem.table.names, every[chosen], shares.mean(axis=0))
        numbers = {
            "sweeps": len(state.scores),
            "replicas": self.spec.replicas,
            "disagreement": disagreement,
            "best_log_score": float(state.scores.max()),
            # Of what is measured here, what speaks for hidden causes at all.
            "gain_over_dags": float(state.scores.max()) - self._best_without(),
            "replica_log_scores": scores.mean(axis=0).tolist(),
        }
        return Outcome(found, self._status(numbers, stopped), numbers, {"log_score": state.scores})

    def _best_without(self) -> float:
        """The best score of a graph without hidden causes, as far as short chains find it."""
        log_prior = self.target.log_prior.copy()
        log_prior[:, BIDIRECTED] = -np.inf
        target = self.target._replace(log_prior=log_prior)
        rng, size, levels = np.random.default_rng(self.problem.seed), len(self.pairs), self.heats.size
        parents, spouses = np.zeros((2, SHORT_REPLICAS, levels, len(target.covariance)), dtype=np.int64)
        for mine, mates in zip(
            parents.reshape(-1, parents.shape[2]), spouses.reshape(-1, parents.shape[2]), strict=True
        ):
            self._set_required(mine, mates)
        shape = (SHORT_SWEEPS, SHORT_REPLICAS, levels, size)
        chosen, chances = rng.integers(0, size, shape), rng.random(shape)
        exchanges = rng.random((SHORT_SWEEPS, SHORT_REPLICAS, levels - 1))
        found = chains.run_sweeps(parents, spouses, self.heats, target, self.memory, chosen, chances, exchanges)
        return float(found[1].max())

    def _set_required(self, parents: np.ndarray, spouses: np.ndarray) -> None:
        for number, (i, j) in enumerate(self.pairs.tolist()):
            if np.isneginf(self.target.log_prior[number, APART]):
                chains.set_pair(i, j, int(np.argmax(self.target.log_prior[number])), parents, spouses)

    def _status(self, numbers: dict[str, Any], stopped: str | None) -> Status:
        if (early := interrupted(stopped, f"{numbers['sweeps']:,} sweeps")) is not None:
            return early
        differ = (
            f"{numbers['replicas']} replicas differ by {numbers['disagreement']:.2f} at most on the state of a pair"
        )
        if numbers["sweeps"] < WARN_SWEEPS:
            return Status("warning", as_sentence([f"{numbers['sweeps']} sweeps are too few to judge the chains by"]))
        if numbers["disagreement"] > WARN_DISAGREEMENT:
            return Status(
                "warning",
                as_sentence([differ, "that is too far for chains that have met; run it longer, or with fewer columns"]),
            )
        gain = numbers["gain_over_dags"]
        better = f"the best graph with hidden causes is {gain:.1f} nats better than the best without"
        return Status("ok", as_sentence([differ, better if gain > BETTER else NOT_BETTER]))
