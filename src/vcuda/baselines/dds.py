"""DDS, or VI-DP-DAG (Charpentier, Kibler and Günnemann 2022): sampled orders and edges, trained with the networks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import numpy as np
from scipy.special import expit, log_expit

from vcuda.baselines.base import appended, check_options, found, is_finite, ranking
from vcuda.baselines.dds_program import Batches, Program, State, Trained, shuffled_batches
from vcuda.baselines.networks import as_networks
from vcuda.baselines.selection import Candidates
from vcuda.dags.bulk import BulkSampler
from vcuda.dags.permutation import SinkhornDags, SinkhornParams, TopKDags, TopKParams
from vcuda.errors import ConfigError
from vcuda.infer.checkpoint import LastDraw, generator_state
from vcuda.infer.compilation import single_precision
from vcuda.infer.engine import Engine, Info, Plan, Problem, Resources, interrupted
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.samples import GraphSamples

Order = Literal["topk", "sinkhorn"]
Prior = Literal["kl", "original"]
Scores = Literal["marginals", "settled order"]

# Of Gumbel-Sinkhorn, whose marginals have no closed form: an admitted pair is then known to half a per cent.
ORDERS = 10_000


@dataclass(frozen=True)
class Dds:
    """How DDS is trained; the presets are :meth:`reference` and :meth:`fixed`.

    Parameters
    ----------
    hidden
        Units of each hidden layer; none makes the model linear.
    bias
        The copy of VCUDA's authors has none: a network of one parent is then two rays through the origin.
    order
        ``"topk"`` sorts one perturbed number a node, ``"sinkhorn"`` solves a perturbed assignment of ranks to nodes.
    order_temperature, edge_temperature
        Of the relaxations in the backward pass; graphs themselves are always drawn whole.
    epochs, batch_size
        At most so many passes over the training rows, and rows a step; each step draws one graph.
    learning_rate, graph_learning_rate
        Of two Adams: for the networks, and for edges and order.
    prior, prior_weight, edge_probability
        What is added to the mean of the squared errors, ``prior_weight`` times the mean over all d² pairs: ``"kl"``
        the divergence of an edge from one of this probability. ``"original"`` is the authors' formula, which takes
        logits for log-probabilities, so that its gradient *raises* every edge by the same amount.
    validation_share, check_every, patience
        Rows held out, epochs between two looks at them, and looks without a better value before training stops. They
        are predicted with the likeliest edges in the likeliest order, and the best state is kept.
    preselect_from
        From so many nodes on, inputs are chosen by random trees first; None never does.
    samples
        Graphs drawn at the end.
    scores
        ``"marginals"``: the probability of each edge; ``"settled order"``: its probability where the likeliest order
        admits it, and zero elsewhere, as in the paper's figures.
    """

    hidden: tuple[int, ...] = (16, 16, 16)
    bias: bool = True
    order: Order = "topk"
    order_temperature: float = 1.0
    edge_temperature: float = 1.0
    epochs: int = 200
    batch_size: int = 64
    learning_rate: float = 1e-3
    graph_learning_rate: float = 1e-2
    prior: Prior = "kl"
    prior_weight: float = 0.01
    edge_probability: float = 0.01
    validation_share: float = 0.1
    check_every: int = 2
    patience: int = 10
    preselect_from: int | None = None
    samples: int = 100
    scores: Scores = "marginals"
    name: ClassVar[str] = "dds"
    models: ClassVar[dict[str, dict[str, Any]]] = {"linear": {"hidden": ()}, "mlp": {}}

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if any(not isinstance(width, int) or width < 1 for width in self.hidden):
            raise ConfigError(f"hidden of dds must be layers of at least one unit, not {self.hidden}")
        counts = ("epochs", "batch_size", "check_every", "patience", "samples")
        rates = ("learning_rate", "graph_learning_rate", "prior_weight")
        check_options(
            self,
            at_least={**dict.fromkeys(counts, 1.0), **dict.fromkeys(rates, 0.0), "preselect_from": 2},
            choices={"order": get_args(Order), "prior": get_args(Prior), "scores": get_args(Scores)},
        )
        for name in ("validation_share", "edge_probability"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"{name} of dds must lie between 0 and 1, not {getattr(self, name)}")
        _ = self.dags  # refuses temperatures that are not positive

    @property
    def dags(self) -> TopKDags | SinkhornDags:
        """The family of distributions that is trained."""
        if self.order == "topk":
            return TopKDags(order_temperature=self.order_temperature, edge_temperature=self.edge_temperature)
        return SinkhornDags(order_temperature=self.order_temperature, edge_temperature=self.edge_temperature)

    @classmethod
    def reference(cls, **changes: Any) -> Dds:
        """As VCUDA's authors ran it; ``hidden=()`` made their linear figures."""
        return replace(cls(bias=False, prior="original", scores="settled order"), **changes)

    @classmethod
    def corrected(cls, **changes: Any) -> Dds:
        """As its paper has it: networks with biases, a divergence that keeps graphs sparse, and marginals."""
        return replace(cls(), **changes)


# Kept so that fits in one process that differ only in what the host does compile once.
_kept = lru_cache(maxsize=8)(Program)


def _program(spec: Dds) -> Program:
    host: dict[str, Any] = {"epochs": 1, "validation_share": 0.1, "check_every": 1, "patience": 1, "samples": 1}
    return _kept(replace(spec, batch_size=1, preselect_from=None, scores="marginals", **host))


def settled_order(params: TopKParams | SinkhornParams) -> np.ndarray:
    """The nodes in the order that comes without noise, ``(d,)``."""
    logits = np.asarray(params.order_logits, dtype=np.float64)
    if logits.ndim == 1:
        return np.argsort(-logits, kind="stable")
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(log_expit(logits), maximize=True)[1]


def admitted(order: np.ndarray) -> np.ndarray:
    """The pairs whose first node comes before the second one, ``(d, d)``."""
    ranks = np.argsort(order)
    return ranks[:, None] < ranks[None, :]


def settled_graph(params: TopKParams | SinkhornParams, allowed: np.ndarray) -> np.ndarray:
    """The edges that are likelier than not, along the settled order, ``(d, d)``."""
    return (np.asarray(params.edge_logits) > 0) & allowed & admitted(settled_order(params))


def marginals(
    spec: Dds, rng: np.random.Generator, params: TopKParams | SinkhornParams, allowed: np.ndarray
) -> np.ndarray:
    """The probability of every edge, ``(d, d)``: exact for Top-k; for Sinkhorn the order is averaged over draws."""
    present = expit(np.asarray(params.edge_logits, dtype=np.float64)) * allowed
    if spec.order == "topk":
        early = np.asarray(params.order_logits, dtype=np.float64)
        return present * expit(early[:, None] - early[None, :])
    # An assignment of d ranks takes O(d³): fewer orders of many nodes.
    draws = max(100, min(ORDERS, 100_000_000 // len(present) ** 3))
    before = np.zeros_like(present)
    for ranks in spec.dags.priorities(rng, params, draws):  # type: ignore[arg-type]
        before += ranks[:, None] < ranks[None, :]
    return present * before / draws


class Course(NamedTuple):
    """Between two chunks of steps.

    ``best`` is what predicted the held-out rows best so far, and the start before the first look; ``looks`` are the
    losses. ``batches`` is the generator before the rows of the epochs at work were shuffled, of whose steps ``first``
    are taken.
    """

    candidates: Candidates
    now: State
    best: Trained
    looks: np.ndarray
    epoch: int
    batches: np.ndarray
    first: int
    broken: bool


class SampledTraining(Engine[Course]):
    """Train a distribution over DAGs together with one network a node, until held-out rows are predicted no better.

    A step costs O(b d² h) for the networks and O(d²) for the graph, and O(d³) with Sinkhorn's assignment.
    """

    def __init__(self, spec: Dds, problem: Problem, resources: Resources) -> None:
        super().__init__(spec, problem, resources)
        data = problem.rows
        self.start_rng, self.batch_rng, split_rng, self.draw_rng = np.random.default_rng(problem.seed).spawn(4)
        values, shuffle = data.values.astype(np.float32), split_rng.permutation(data.n)
        held_out = min(max(round(spec.validation_share * data.n), 1), data.n - 1)
        self.rows, self.held_out = values[shuffle[held_out:]], values[shuffle[:held_out]]
        self.program, self.key = _program(spec), jax.random.key(problem.seed)
        self.batches = LastDraw[Batches]()

    @staticmethod
    def precision() -> AbstractContextManager[Any]:
        return single_precision()

    def init(self) -> Course:
        nodes = self.problem.table.d
        first = self.program.init(self.start_rng, nodes)
        candidates = Candidates.start(nodes, self.spec.preselect_from)
        return Course(candidates, first, first.trained, np.zeros(0), 0, generator_state(self.batch_rng), 0, False)

    def is_done(self, state: Course) -> bool:
        return state.epoch >= self.spec.epochs or state.broken or self._is_at_rest(state)

    def _is_at_rest(self, state: Course) -> bool:
        """Whether the held-out loss of ``patience`` looks ago was as low as any since."""
        recent = state.looks[-1 - self.spec.patience :]
        return len(recent) > self.spec.patience and bool(recent[0] <= recent.min())

    def advance(self, state: Course, plan: Plan) -> tuple[Course, Info]:
        spec, allowed = self.spec, state.candidates.allowed
        if not state.candidates.is_complete:
            candidates = state.candidates.select(self.problem.rows.values, self.problem.seed)
            return state._replace(candidates=candidates), candidates.info()
        epochs = min(spec.check_every, spec.epochs - state.epoch)
        size = min(spec.batch_size, len(self.rows))
        batches, after = self.batches.of(state.batches, lambda rng: shuffled_batches(rng, len(self.rows), size, epochs))
        first, steps = state.first, len(batches.rows)
        last = min(first + plan.steps, steps)
        moved = self.program.advance(state.now, self.key, self.rows, batches, first, last, allowed)
        later = state._replace(now=jax.block_until_ready(moved), first=last)
        detail = f"held-out loss {state.looks[-1]:.4g}" if len(state.looks) else "training"
        info = Info(last - first, state.epoch + epochs * last / steps, spec.epochs, detail)
        if last == steps:
            later = self._look(later._replace(epoch=state.epoch + epochs, batches=after, first=0))
        return later, info

    def _look(self, state: Course) -> Course:
        trained, allowed = state.now.trained, state.candidates.allowed
        graph = settled_graph(trained.dags, allowed).astype(np.float32)
        everyone = np.ones(len(self.held_out), dtype=np.float32)
        look = float(self.program.loss(trained, graph, self.held_out, everyone, allowed))
        if not np.isfinite(look) or not is_finite(trained):
            return state._replace(broken=True)
        better = look < state.looks.min(initial=np.inf)
        return state._replace(best=trained if better else state.best, looks=appended(state.looks, look))

    def finish(self, state: Course, stopped: str | None) -> Outcome:
        spec, allowed, rng, names = self.spec, state.candidates.allowed, self.draw_rng, self.problem.table.names
        trained, looks = jax.device_get(state.best), state.looks
        present = expit(np.asarray(trained.dags.edge_logits, dtype=np.float64)) * allowed
        drawn = BulkSampler.from_probabilities(present).sample_many(
            rng, spec.dags.priorities(rng, trained.dags, spec.samples)
        )
        if spec.scores == "marginals":
            scores = marginals(spec, rng, trained.dags, allowed)
        else:
            scores = present * admitted(settled_order(trained.dags))
        diagnostics = {
            "steps": int(state.now.taken),
            "epochs": state.epoch,
            "best_epoch": min(spec.check_every * (1 + int(looks.argmin())), spec.epochs) if len(looks) else 0,
            "validation_loss": float(looks.min()) if len(looks) else None,
            "settled_edges": int(settled_graph(trained.dags, allowed).sum()),
            "mean_edges": float(drawn.counts.mean()),
        }
        return found(
            self.problem,
            GraphSamples.from_counts(names, *drawn),
            ranking(scores),
            self._status(state, stopped),
            diagnostics,
            {"validation": looks},
            as_networks(trained.layers, np.zeros(len(names)), 0.0),
        )

    def _status(self, state: Course, stopped: str | None) -> Status:
        if state.broken:
            return Status(
                "failed",
                "Training broke down (numbers that are not finite); what is left is the best sound state: do not use "
                "it. Standardised columns usually help.",
            )
        early = interrupted(stopped, f"{state.epoch:,} epochs")
        if early is not None:
            return early
        if not self._is_at_rest(state):
            return Status(
                "warning", f"After all {state.epoch:,} epochs held-out rows were still predicted better: give it more."
            )
        return Status("ok", f"After {state.epoch:,} epochs held-out rows were predicted no better; the best was kept.")
