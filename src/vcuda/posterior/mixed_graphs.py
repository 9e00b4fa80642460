"""Posteriors over graphs with directed and bidirected edges (acyclic directed mixed graphs, ADMGs)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import pandas as pd

from vcuda.ancestral import ARROW, edge_symbol, pag_of
from vcuda.arguments import check_draws, seed_of
from vcuda.errors import ConfigError
from vcuda.models.prediction import Prediction
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.samples import GraphSamples

if TYPE_CHECKING:
    from vcuda.posterior.mechanisms import CausalModel

# The states of a pair (i, j) with i < j.
APART, FORWARD, BACKWARD, BIDIRECTED = 0, 1, 2, 3
STATES = 4


def pairs_of(nodes: int) -> np.ndarray:
    """All pairs ``(p, 2)`` of nodes, the smaller first."""
    return np.stack(np.triu_indices(nodes, k=1), axis=1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class MixedGraphSamples:
    """Sampled graphs, each pair of columns apart, joined by an arrow, or by a bidirected edge: a hidden common cause.

    Parameters
    ----------
    names
        The d columns.
    states
        ``(s, p)``: the state of each pair in each graph.
    marginals
        ``(p, 4)``: the probability of each state.
    """

    names: tuple[str, ...]
    states: np.ndarray
    marginals: np.ndarray
    kind: ClassVar[str] = "mixed graphs"

    def __post_init__(self) -> None:
        pairs = len(self.names) * (len(self.names) - 1) // 2
        if self.states.ndim != 2 or self.states.shape[1] != pairs or self.marginals.shape != (pairs, STATES):
            raise ConfigError(f"states and marginals do not fit {len(self.names)} columns")
        if not len(self.states) or self.states.min(initial=0) < 0 or self.states.max(initial=0) >= STATES:
            raise ConfigError(f"states of pairs are whole numbers from 0 to {STATES - 1}")

    @property
    def pool(self) -> GraphSamples:
        """The directed edges of all graphs, each of which is a DAG."""
        return self._directed(self.names, self.states)

    @staticmethod
    def _directed(names: Sequence[str], states: np.ndarray) -> GraphSamples:
        pairs = pairs_of(len(names))
        which, pair = np.nonzero((states == FORWARD) | (states == BACKWARD))
        turned = states[which, pair] == BACKWARD
        first, second = pairs[pair].T
        sources, targets = np.where(turned, second, first), np.where(turned, first, second)
        return GraphSamples.from_counts(names, np.bincount(which, minlength=len(states)), sources, targets)

    def probabilities(self, state: int) -> np.ndarray:
        """The probability of a state of each pair: directed edges i -> j, or a symmetric matrix, ``(d, d)``."""
        nodes, (first, second) = len(self.names), pairs_of(len(self.names)).T
        found = np.zeros((nodes, nodes))
        if state in (FORWARD, BACKWARD):
            found[first, second], found[second, first] = self.marginals[:, FORWARD], self.marginals[:, BACKWARD]
        else:
            found[first, second] = found[second, first] = self.marginals[:, state]
        return found

    def edge_probabilities(self) -> np.ndarray:
        return self.probabilities(FORWARD)

    def sample(self, rng: np.random.Generator, names: Sequence[str], size: int) -> GraphSamples:
        """The directed edges of drawn graphs."""
        return self._directed(names, self.draw(rng, size))

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """States ``(size, p)`` of drawn graphs, different ones as long as there are enough."""
        return self.states[rng.choice(len(self.states), size, replace=size > len(self.states))]

    def predict(
        self, rng: np.random.Generator, values: np.ndarray, graphs: int, *, names: Sequence[str] | None = None
    ) -> Prediction:
        raise ConfigError("a posterior with hidden causes has no functions to predict with; fit without hidden=True")

    def models(self, rng: np.random.Generator, names: Sequence[str], size: int) -> Iterator[CausalModel]:
        raise ConfigError("a posterior with hidden causes has no functions, and so no effects; fit without hidden=True")

    def config(self) -> dict[str, Any]:
        return {"names": list(self.names)}

    def arrays(self) -> dict[str, np.ndarray]:
        return {"states": self.states, "marginals": self.marginals}

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> MixedGraphSamples:
        return cls(tuple(config["names"]), arrays["states"], arrays["marginals"])


def _matrices(nodes: int, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directed and bidirected edges ``(d, d)`` of one graph."""
    directed, bidirected = np.zeros((2, nodes, nodes), dtype=bool)
    first, second = pairs_of(nodes).T
    directed[first, second], directed[second, first] = states == FORWARD, states == BACKWARD
    bidirected[first, second] = bidirected[second, first] = states == BIDIRECTED
    return directed, bidirected


@dataclass(frozen=True, eq=False)
class HiddenCausesPosterior(Posterior):
    """A posterior over graphs in which hidden variables may cause two columns: what ``fit(hidden=True)`` returns.

    :meth:`pairs` has the probabilities of all ways in which two columns may be joined. Questions about paths and
    ancestors are answered by the directed edges; those that need functions, or a DAG of all edges, are refused.
    """

    @property
    def _graphs(self) -> MixedGraphSamples:
        assert isinstance(self.graph_posterior, MixedGraphSamples)
        return self.graph_posterior

    @property
    def bidirected_probabilities(self) -> pd.DataFrame:
        """The probability that a hidden variable causes both columns of a pair, and neither the other directly."""
        table = self._graphs.probabilities(BIDIRECTED)
        return pd.DataFrame(table, index=pd.Index(self.names), columns=pd.Index(self.names))

    def edges(self, *, minimum: float = 0.0) -> pd.DataFrame:
        """Every ordered pair with the probability of a direct effect, the surest first, and ``hidden_cause``, the
        probability that the two share a hidden cause instead."""
        found = super().edges(minimum=minimum).drop(columns="holds_with_hidden_causes")
        place = {name: number for number, name in enumerate(self.names)}
        where = found["source"].map(place).to_numpy(dtype=int), found["target"].map(place).to_numpy(dtype=int)
        return found.assign(hidden_cause=self._graphs.probabilities(BIDIRECTED)[where])

    def pairs(self, *, minimum: float = 0.0) -> pd.DataFrame:
        """For each pair of columns the probabilities that ``source`` causes ``target`` (``directed``), the other way
        round (``reversed``), that they share a hidden cause (``bidirected``), or ``none``.

        Those that are most likely joined come first; those that are joined with a probability below ``minimum`` are
        left out.
        """
        marginals, (first, second) = self._graphs.marginals, pairs_of(len(self.names)).T
        turned = marginals[:, BACKWARD] > marginals[:, FORWARD]
        source, target = np.where(turned, second, first), np.where(turned, first, second)
        names = np.asarray(self.names, dtype=object)
        found = pd.DataFrame(
            {
                "source": names[source],
                "target": names[target],
                "directed": np.maximum(marginals[:, FORWARD], marginals[:, BACKWARD]),
                "reversed": np.minimum(marginals[:, FORWARD], marginals[:, BACKWARD]),
                "bidirected": marginals[:, BIDIRECTED],
                "none": marginals[:, APART],
            }
        )
        found = found[1 - found.none >= minimum]
        return found.sort_values("none", kind="stable", ignore_index=True)

    def admg(self) -> pd.DataFrame:
        """One graph to show, the one drawn most often: ``source``, ``target``, ``edge`` (-> or <->) and the
        ``probability`` of each of its edges."""
        graphs, counts = np.unique(self._graphs.states, axis=0, return_counts=True)
        best, (first, second) = graphs[int(np.argmax(counts))], pairs_of(len(self.names)).T
        joined = np.flatnonzero(best != APART)
        turned = best[joined] == BACKWARD
        names = np.asarray(self.names, dtype=object)
        return pd.DataFrame(
            {
                "source": names[np.where(turned, second[joined], first[joined])],
                "target": names[np.where(turned, first[joined], second[joined])],
                "edge": np.where(best[joined] == BIDIRECTED, "<->", "->"),
                "probability": self._graphs.marginals[joined, best[joined]],
            }
        )

    def pag(self, *, draws: int = 500, seed: int = 0) -> pd.DataFrame:
        """What can be known from independences alone: the partial ancestral graph that most drawn graphs have.

        ``source``, ``target``, ``edge`` (``-->``, ``<->``, ``o->`` or ``o-o``; a circle is an end that independences
        leave open) and the ``probability`` that the PAG of a drawn graph has this edge.
        """
        check_draws(draws)
        drawn = self._graphs.draw(np.random.default_rng(seed_of(seed)), draws)
        graphs, counts = np.unique(drawn, axis=0, return_counts=True)
        found = [pag_of(*_matrices(len(self.names), states)) for states in graphs]
        shares: dict[bytes, int] = {}
        for marks, count in zip(found, counts.tolist(), strict=True):
            shares[marks.tobytes()] = shares.get(marks.tobytes(), 0) + count
        likely = np.frombuffer(max(shares, key=lambda key: shares[key]), dtype=np.int8).reshape(found[0].shape)
        lines = []
        for i, j in np.argwhere(np.triu(likely != 0)).tolist():
            first, second = (j, i) if likely[i, j] != ARROW and likely[j, i] == ARROW else (i, j)
            same = [bool(marks[i, j] == likely[i, j] and marks[j, i] == likely[j, i]) for marks in found]
            share = float(counts[same].sum() / counts.sum())
            lines.append((self.names[first], self.names[second], edge_symbol(likely, first, second), share))
        return pd.DataFrame(lines, columns=["source", "target", "edge", "probability"])

    def _needs_a_dag(self) -> NoReturn:
        raise ConfigError(
            "this fit allows for hidden causes (hidden=True), and this question is about DAGs with functions; "
            "fit the table without hidden=True to ask it"
        )

    def cpdag(self, **options: Any) -> NoReturn:
        self._needs_a_dag()

    def map(self, **options: Any) -> NoReturn:
        self._needs_a_dag()

    def blanket(self, *asked: Any, **options: Any) -> NoReturn:
        self._needs_a_dag()

    def sensitivity(self, *asked: Any, **options: Any) -> NoReturn:
        self._needs_a_dag()

    def why(self, *asked: Any, **options: Any) -> NoReturn:
        self._needs_a_dag()

    def next_experiment(self, **options: Any) -> NoReturn:
        self._needs_a_dag()

    def __repr__(self) -> str:
        summary = self.summary()
        hidden = float(self._graphs.marginals[:, BIDIRECTED].sum())
        return (
            f"<Posterior over graphs with hidden causes of {len(self.names)} variables from {summary['rows']} rows: "
            f"{summary['expected_edges']:.1f} expected edges, {hidden:.1f} expected hidden causes, "
            f"status {self.status.code}>"
        )
