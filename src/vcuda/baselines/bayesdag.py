"""BayesDAG (Annadani et al. 2023): chains of orders and functions by noisy gradients, edges by a helper network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_args

import jax
import numpy as np
from scipy.special import expit

from vcuda.baselines.base import BaselineResult, Course, check_options, ranking
from vcuda.baselines.bayesdag_chains import MOMENTUM_DECAY, Problem, Program, State
from vcuda.baselines.dds_program import Batches, shuffled_batches
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.infer.compilation import single_precision, use_compilation_cache
from vcuda.infer.devices import devices_of, mesh_for, taking_turns
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.posterior.point import Networks
from vcuda.posterior.posterior import Status
from vcuda.posterior.samples import GraphSamples

Scores = Literal["graphs", "signed weights"]

DRAWING_ROWS = 500
# Epochs whose batches are made at a time.
WINDOW = 10


@dataclass(frozen=True)
class BayesDag:
    """How BayesDAG is run; the presets are :meth:`reference` and :meth:`fixed`.

    Parameters
    ----------
    nonlinear
        Networks that all nodes of a chain share, or else a weighted sum of the parents.
    chains, samples
        Chains, and the graphs drawn from all of them together.
    thin
        Steps between two draws of a chain. 1 takes consecutive steps, as the authors' program does: the draws of a
        chain are then all but the same.
    epochs, batch_size
        Passes over the rows, and rows a step.
    sparsity
        Nats that an edge costs. Several values are tried one after the other on nine tenths of the rows, and the one
        that predicts the last tenth best is kept.
    learning_rate, helper_learning_rate
        The square of the chains' step, and the rate of the helper's Adam.
    noise, order_noise
        Factors of the chains' noise, for functions and orders; the square is the temperature of what is sampled.
    sinkhorn_iterations
        At most so many, for the derivative by the order.
    normalise_layers, normalise_helper, helper_sees_ranks, sparse_start
        Layer normalisation in the nonlinear functions and in the helper; the order as a permutation matrix rather than
        as numbers for the helper; and a start at edges of probability 0.27 rather than about a half.
    standardise
        Train on z-scores, as the paper's authors did whatever the data; predictions are in the units of the data.
    average_chains
        Divide the gradient of each chain by their number, as the authors' program does by averaging their losses; the
        chains then sample at a higher temperature.
    entropy_of_raw_logits, entropy_of_all_chains
        Two slips of the authors' program in the entropy of the edges: the constant of ``sparse_start`` is left out,
        and each chain is given the sum over all chains. The second keeps edges that nothing speaks for at a
        probability of about a tenth.
    scores
        ``"graphs"``: the share of the samples that have the edge; ``"signed weights"``: the mean weight of the edge,
        sign and all, which is what the paper's Sachs figures rank.
    """

    nonlinear: bool = False
    chains: int = 10
    samples: int = 100
    thin: int = 50
    epochs: int = 500
    batch_size: int = 256
    sparsity: tuple[float, ...] = (5.0, 25.0, 100.0)
    learning_rate: float = 3e-4
    helper_learning_rate: float = 5e-3
    noise: float = 0.01
    order_noise: float = 0.1
    sinkhorn_iterations: int = 3000
    normalise_layers: bool = False
    normalise_helper: bool = False
    helper_sees_ranks: bool = False
    sparse_start: bool = False
    standardise: bool = False
    average_chains: bool = False
    entropy_of_raw_logits: bool = False
    entropy_of_all_chains: bool = False
    scores: Scores = "graphs"
    name: ClassVar[str] = "bayesdag"
    models: ClassVar[dict[str, dict[str, Any]]] = {"linear": {}, "mlp": {"nonlinear": True}}

    def __post_init__(self) -> None:
        costs = self.sparsity if isinstance(self.sparsity, tuple | list) else (self.sparsity,)
        object.__setattr__(self, "sparsity", tuple(costs))
        if not costs or any(not cost >= 0 for cost in costs):
            raise ConfigError(f"sparsity of bayesdag must be one cost of at least 0 or several, not {self.sparsity}")
        counts = ("chains", "samples", "thin", "epochs", "batch_size", "sinkhorn_iterations")
        rates = ("helper_learning_rate", "noise", "order_noise")
        check_options(
            self,
            at_least={**dict.fromkeys(counts, 1.0), **dict.fromkeys(rates, 0.0)},
            choices={"scores": get_args(Scores)},
        )
        # The noise of a step has the variance 2 (1 - decay) - step², which must be positive.
        if not 0 < self.learning_rate < 2 * (1 - MOMENTUM_DECAY):
            raise ConfigError(f"learning_rate of bayesdag must lie between 0 and 0.2, not {self.learning_rate}")

    @classmethod
    def _preset(cls, changes: dict[str, Any], linear: dict[str, Any], nonlinear: dict[str, Any]) -> BayesDag:
        return cls(**(nonlinear if changes.get("nonlinear") else linear) | changes)

    @classmethod
    def reference(cls, **changes: Any) -> BayesDag:
        """As VCUDA's authors ran it, ``nonlinear=True`` for their curves.

        Their Sachs figures come from ``sparsity=1200, normalise_helper=True, batch_size=128, scores="signed weights"``.
        """
        slips = ("average_chains", "entropy_of_raw_logits", "entropy_of_all_chains")
        both: dict[str, Any] = {"thin": 1, "standardise": True, **dict.fromkeys(slips, True)}
        ranked = {"normalise_layers": True, "normalise_helper": True, "helper_sees_ranks": True}
        curves = both | ranked | {"sparsity": (500.0,), "epochs": 800}
        return cls._preset(changes, both | {"sparsity": (100.0,)}, curves)

    @classmethod
    def corrected(cls, **changes: Any) -> BayesDag:
        """As its paper has it: every chain at its own temperature, thinned draws, and a tuned cost of edges."""
        ranked = {"normalise_layers": True, "normalise_helper": True, "helper_sees_ranks": True}
        return cls._preset(changes, {}, ranked | {"epochs": 800})


# Kept so that fits in one process that differ only in what the host does compile once.
_kept = lru_cache(maxsize=8)(Program)


def _program(spec: BayesDag) -> Program:
    host: dict[str, Any] = {"samples": 1, "thin": 1, "epochs": 1, "batch_size": 1, "sparsity": (0.0,)}
    flags: dict[str, Any] = {"standardise": False, "average_chains": False, "entropy_of_all_chains": False}
    raw = spec.entropy_of_raw_logits and spec.sparse_start  # without a constant there is nothing to leave out
    shown = replace(spec, entropy_of_raw_logits=raw, scores="graphs", **host, **flags)
    return _kept(shown, mesh_for(spec.chains))


class _Run:
    """One run; what is kept between compiled chunks is in ``state``."""

    def __init__(self, spec: BayesDag, values: np.ndarray, seed: int, course: Course) -> None:
        self.spec, self.values, self.seed, self.course = spec, values, seed, course
        self.program, self.key = _program(spec), jax.random.key(seed)
        self.size = min(spec.batch_size, len(values))
        # Batches are handed over in arrays of one length, because each length is compiled anew.
        self.capacity = WINDOW * -(-len(values) // self.size)
        self.broken = False

    def train(self, rows: np.ndarray, sparsity: float, detail: str, share: tuple[float, float]) -> np.ndarray:
        """Start anew, on rows with these indices. ``share`` is the part of the whole work.

        What comes back is the mean logarithm of the noise scales, which falls as the functions fit, after each window.
        """
        spec = self.spec
        start_rng, batch_rng = np.random.default_rng(self.seed).spawn(2)
        part = 1 / spec.chains if spec.average_chains else 1.0
        entropies = float(spec.chains) if spec.entropy_of_all_chains else 1.0
        self.problem = Problem(self.values, float(len(rows)), float(sparsity), part, entropies)
        self.state = self.program.init(start_rng, self.values.shape[1])
        self.broken = False
        scales: list[float] = []
        for begun in range(0, spec.epochs, WINDOW):
            epochs = min(WINDOW, spec.epochs - begun)
            batches = shuffled_batches(batch_rng, len(rows), self.size, epochs)
            whole = (share[1] - share[0]) / spec.epochs
            span = (share[0] + whole * begun, share[0] + whole * (begun + epochs))
            chosen = Batches(rows[batches.rows].astype(np.int32), batches.weight)
            self._go(chosen, True, f"{detail}, epoch {begun + epochs}", span)
            if self.broken:
                break
            scales.append(float(np.mean(self.state.helped.log_scale)))
        return np.array(scales)

    def draw(self, rng: np.random.Generator) -> list[State]:
        """States of all chains, ``thin`` steps apart; where the time runs out, the last one again."""
        spec, rows = self.spec, len(self.values)
        wanted, size = -(-spec.samples // spec.chains), min(DRAWING_ROWS, rows)
        drawn: list[State] = []
        with self.course.underway():
            while self.course.stopped_by is None and not self.broken and len(drawn) < wanted:
                picked = [rng.choice(rows, size, replace=False, shuffle=False) for _ in range(spec.thin)]
                batches = Batches(np.array(picked, dtype=np.int32), np.ones((spec.thin, size), dtype=np.float32))
                span = (0.95 + 0.05 * len(drawn) / wanted, 0.95 + 0.05 * (len(drawn) + 1) / wanted)
                self._go(batches, False, "drawing graphs", span)
                if not self.broken:
                    drawn.append(jax.device_get(self.state))
        last = drawn[-1] if drawn else jax.device_get(self.state)
        return drawn + [last] * (wanted - len(drawn))

    def _go(self, batches: Batches, helping: bool, detail: str, share: tuple[float, float]) -> None:
        """Take all batches in chunks of about a second; a state that is not finite is given up for the one before."""
        steps = len(batches.rows)
        for begun in range(0, steps, self.capacity):
            length, first = min(self.capacity, steps - begun), 0
            filler = ((0, self.capacity - length), (0, 0))
            padded = Batches(*(np.pad(array[begun : begun + length], filler) for array in batches))
            while first < length and not self.broken:
                last = min(first + self.course.pace.steps, length)
                with taking_turns(), self.course.pace.timing(last - first):
                    moved = self.program.advance(self.state, self.key, self.problem, padded, first, last, helping)
                    jax.block_until_ready(moved)
                sampled = (moved.orders.value, moved.functions.value, moved.helped)
                self.broken = not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(sampled))
                if not self.broken:
                    self.state, first = moved, last
                self.course.tell(share[0] + (share[1] - share[0]) * (begun + first) / steps, 1.0, detail)


@single_precision()
def run_bayesdag(
    spec: BayesDag,
    data: Dataset,
    *,
    seed: int,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
) -> BaselineResult:
    """Run the chains, and draw graphs with the functions that belong to them.

    A step costs O(c b d²) for a linear model and O(c b d² h) for curves with h = 4d, three times over, and O(c d³) for
    the order. Nonlinear functions are not returned: they normalise their layers, which :class:`Networks` cannot hold,
    and to write out those of every node, which the nodes of a graph share, would take O(d³ h) numbers for each graph.
    """
    use_compilation_cache()
    course = Course(progress, deadline)
    centre, scale = np.zeros(data.d), np.ones(data.d)
    if spec.standardise:
        centre, scale = data.values.mean(axis=0), data.values.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
    values = ((data.values - centre) / scale).astype(np.float32)
    draw_rng, split_rng = np.random.default_rng([seed, 1]).spawn(2)
    run = _Run(spec, values, seed, course)
    scales, sparsity = np.empty(0), spec.sparsity[0]
    looks: list[float] = []
    with course.underway():
        if len(spec.sparsity) > 1:
            looks = _tried(run, split_rng)
            sparsity = spec.sparsity[int(np.argmax(looks))]
        begin = 0.95 * (1 - 1 / (len(looks) + 1))
        scales = run.train(np.arange(data.n), sparsity, f"{sparsity:g} nats an edge", (begin, 0.95))
    states = run.draw(draw_rng)
    graphs = np.concatenate([_graphs(run.program, state, draw_rng) for state in states])[-spec.samples :]
    weights = np.concatenate([state.functions.value.weights for state in states])[-spec.samples :] * graphs
    samples = GraphSamples.from_dense(data.names, graphs)
    scores = samples.edge_probabilities() if spec.scores == "graphs" else weights.mean(axis=0)
    diagnostics = {
        "steps": int(run.state.taken),
        "epochs": min(WINDOW * len(scales), spec.epochs),
        "sparsity": float(run.problem.sparsity),
        "held_out_fits": looks,
        "mean_edges": float(graphs.sum() / len(graphs)),
        "distinct_graphs": len(np.unique(graphs.reshape(len(graphs), -1), axis=0)),
        "devices": devices_of(run.program.mesh),
        **course.seconds(),
    }
    return BaselineResult(
        samples=samples,
        scores=ranking(scores),
        status=_status(course, spec, diagnostics, run.broken),
        diagnostics=diagnostics,
        trace={"log_scale": scales},
        functions=None if spec.nonlinear else _networks(states, weights, centre, scale),
    )


def _tried(run: _Run, rng: np.random.Generator) -> list[float]:
    """How well a tenth of the rows is predicted under each cost of an edge; a run that broke down comes last."""
    shuffle, costs = rng.permutation(len(run.values)), run.spec.sparsity
    held_out = max(len(shuffle) // 10, 1)
    looks = []
    for k, cost in enumerate(costs):
        share = (0.95 * k / (len(costs) + 1), 0.95 * (k + 1) / (len(costs) + 1))
        run.train(shuffle[held_out:], cost, f"trying {cost:g} nats an edge", share)
        with taking_turns():
            look = float(run.program.held_out(run.state, jax.random.key(run.seed), run.values[shuffle[:held_out]]))
        looks.append(look if np.isfinite(look) and not run.broken else -1e30)
    return looks


def _graphs(program: Program, state: State, rng: np.random.Generator) -> np.ndarray:
    """One graph of each chain, ``(c, d, d)``."""
    numbers = np.asarray(state.orders.value)
    present = expit(np.asarray(program.logits(state.helped.helper, state.orders.value), dtype=np.float64))
    return (rng.random(present.shape) < present) & (numbers[:, :, None] > numbers[:, None, :])


def _networks(states: list[State], weights: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> Networks:
    """The linear functions of graphs whose edges have these weights ``(s, d, d)``, in the units of the data."""
    in_units = weights.astype(np.float64) * scale[None, None, :] / scale[None, :, None]
    bias = centre - np.einsum("i,sij->sj", centre, in_units)
    log_scale = np.concatenate([state.helped.log_scale for state in states])[-len(weights) :].astype(np.float64)
    return Networks((in_units[..., None],), (bias[..., None],), 2 * (log_scale + np.log(scale)))


def _status(course: Course, spec: BayesDag, info: dict[str, Any], broken: bool) -> Status:
    if broken:
        return Status(
            "failed",
            "The chains broke down (numbers that are not finite); what is left is the last sound state: do not use it. "
            "Standardised columns usually help.",
        )
    stopped = course.interrupted(f"{info['steps']:,} steps")
    if stopped is not None:
        return stopped
    if info["mean_edges"] < 0.5:
        return Status(
            "warning", "The graphs are all but empty: an edge costs too much against this many rows. Lower sparsity."
        )
    return Status(
        "ok", f"The {spec.chains} chains ran to their end; no diagnostic says whether they have forgotten their start."
    )
