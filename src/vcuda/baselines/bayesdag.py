"""BayesDAG (Annadani et al. 2023): chains of orders and functions by noisy gradients, edges by a helper network."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import numpy as np
from scipy.special import expit

from vcuda.baselines.base import appended, check_options, found, is_finite, ranking
from vcuda.baselines.bayesdag_chains import MOMENTUM_DECAY, Helped, Program, State
from vcuda.baselines.bayesdag_chains import Problem as ChainProblem
from vcuda.baselines.dds_program import Batches, shuffled_batches
from vcuda.errors import ConfigError
from vcuda.infer.checkpoint import LastDraw, generator_of, generator_state
from vcuda.infer.compilation import single_precision
from vcuda.infer.devices import devices_of, mesh_for, taking_turns
from vcuda.infer.engine import Engine, Info, Plan, Problem, Resources, interrupted
from vcuda.posterior.point import Networks
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.samples import GraphSamples

Scores = Literal["graphs", "signed weights"]
Array = jax.Array | np.ndarray

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


class Draws(NamedTuple):
    """What graphs are drawn from, of k states ``(k, c, ...)``: numbers that order nodes, helper, scales and weights."""

    orders: Array
    helped: Helped
    weights: Array

    @classmethod
    def of(cls, state: State) -> Draws:
        """From one state."""
        one = cls(state.orders.value, state.helped, state.functions.value.weights)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], one)

    def joined(self, other: Draws) -> Draws:
        return jax.tree.map(lambda mine, more: np.concatenate([mine, more]), self, other)


class Course(NamedTuple):
    """Between two chunks of steps.

    Stages 0 to t - 1 try the t costs of an edge, t trains on all rows, t + 1 draws. ``epoch`` epochs of a stage are
    done, and ``first`` steps on the batches at work, before which ``batches`` was their generator; ``drawing`` is that
    of the draws. ``looks`` is how well held-out rows were predicted under each cost, ``scales`` (k,) the mean logarithm
    of the noise scales, which falls as the functions fit, after each window of epochs.
    """

    stage: int
    now: State
    sparsity: float
    epoch: int
    first: int
    batches: np.ndarray
    drawing: np.ndarray
    looks: np.ndarray
    scales: np.ndarray
    draws: Draws
    broken: bool


class Chains(Engine[Course]):
    """Run the chains, and draw graphs with the functions that belong to them.

    A step costs O(c b d²) for a linear model and O(c b d² h) for curves with h = 4d, three times over, and O(c d³) for
    the order. Nonlinear functions are not returned: they normalise their layers, which :class:`Networks` cannot hold,
    and to write out those of every node, which the nodes of a graph share, would take O(d³ h) numbers for each graph.
    """

    def __init__(self, spec: BayesDag, problem: Problem, resources: Resources) -> None:
        super().__init__(spec, problem, resources)
        data = problem.rows
        self.centre, self.scale = np.zeros(data.d), np.ones(data.d)
        if spec.standardise:
            self.centre, scale = data.values.mean(axis=0), data.values.std(axis=0)
            self.scale = np.where(scale > 0, scale, 1.0)
        self.values = ((data.values - self.centre) / self.scale).astype(np.float32)
        self.draw_rng, split_rng = np.random.default_rng([problem.seed, 1]).spawn(2)
        self.shuffle = split_rng.permutation(data.n)
        self.held_out = max(data.n // 10, 1)
        self.trials = len(spec.sparsity) if len(spec.sparsity) > 1 else 0
        self.wanted = -(-spec.samples // spec.chains)
        self.program, self.key = _program(spec), jax.random.key(problem.seed)
        self.size = min(spec.batch_size, data.n)
        # Batches are handed over in arrays of one length, because each length is compiled anew.
        self.capacity = WINDOW * -(-data.n // self.size)
        # Every stage begins with the same generator, but not with the same rows.
        self.shuffled = [LastDraw[Batches]() for _ in range(self.trials + 1)]
        self.picked = LastDraw[Batches]()

    @staticmethod
    def precision() -> AbstractContextManager[Any]:
        return single_precision()

    def init(self) -> Course:
        now, batches = self._start()
        return Course(
            stage=0,
            now=now,
            sparsity=float(self.spec.sparsity[0]),
            epoch=0,
            first=0,
            batches=batches,
            drawing=generator_state(self.draw_rng),
            looks=np.zeros(0),
            scales=np.zeros(0),
            draws=jax.tree.map(lambda leaf: leaf[:0], Draws.of(now)),
            broken=False,
        )

    def _start(self) -> tuple[State, np.ndarray]:
        """Chains that have seen nothing, the same for every cost, and the generator of their batches."""
        start_rng, batch_rng = np.random.default_rng(self.problem.seed).spawn(2)
        return self.program.init(start_rng, self.problem.table.d), generator_state(batch_rng)

    def is_done(self, state: Course) -> bool:
        return self._is_drawing(state) and (state.broken or len(state.draws.orders) >= self.wanted)

    def _is_drawing(self, state: Course) -> bool:
        return state.stage > self.trials

    def advance(self, state: Course, plan: Plan) -> tuple[Course, Info]:
        """Steps on the batches at work; a state that is not finite is given up for the one before."""
        batches, after = self._batches(state)
        begun, steps = state.first - state.first % self.capacity, len(batches.rows)
        length = min(self.capacity, steps - begun)
        filler = ((0, self.capacity - length), (0, 0))
        padded = Batches(*(np.pad(array[begun : begun + length], filler) for array in batches))
        first = state.first - begun
        last = min(first + plan.steps, length)
        helping = not self._is_drawing(state)
        with taking_turns():
            moved = self.program.advance(state.now, self.key, self._problem(state), padded, first, last, helping)
            jax.block_until_ready(moved)
        if is_finite((moved.orders.value, moved.functions.value, moved.helped)):
            later = state._replace(now=moved, first=begun + last)
        else:
            later = state._replace(broken=True)
        info = self._info(later, last - first, later.first / steps)
        if later.first < steps and not later.broken:
            return later, info
        return (self._drawn if self._is_drawing(state) else self._window_done)(later, after), info

    def _rows(self, state: Course) -> np.ndarray:
        """The rows that are trained on: all but a tenth while costs are tried."""
        return self.shuffle[self.held_out :] if state.stage < self.trials else np.arange(len(self.values))

    def _problem(self, state: Course) -> ChainProblem:
        spec = self.spec
        part = 1 / spec.chains if spec.average_chains else 1.0
        entropies = float(spec.chains) if spec.entropy_of_all_chains else 1.0
        # Draws are taken with the weights of the training before them.
        return ChainProblem(self.values, float(len(self._rows(state))), state.sparsity, part, entropies)

    def _batches(self, state: Course) -> tuple[Batches, np.ndarray]:
        """The batches of a window of epochs, or of a draw, and their generator after that."""
        if self._is_drawing(state):
            return self.picked.of(state.drawing, self._draw_batches)
        return self.shuffled[state.stage].of(state.batches, lambda rng: self._epoch_batches(rng, state))

    def _epoch_batches(self, rng: np.random.Generator, state: Course) -> Batches:
        rows = self._rows(state)
        batches = shuffled_batches(rng, len(rows), self.size, min(WINDOW, self.spec.epochs - state.epoch))
        return Batches(rows[batches.rows].astype(np.int32), batches.weight)

    def _draw_batches(self, rng: np.random.Generator) -> Batches:
        thin, rows = self.spec.thin, len(self.values)
        size = min(DRAWING_ROWS, rows)
        picked = [rng.choice(rows, size, replace=False, shuffle=False) for _ in range(thin)]
        return Batches(np.array(picked, dtype=np.int32), np.ones((thin, size), dtype=np.float32))

    def _info(self, state: Course, steps: int, share: float) -> Info:
        """Training is 95 % of the whole, in equal parts for the costs that are tried and the rest."""
        if self._is_drawing(state):
            return Info(steps, 0.95 + 0.05 * (len(state.draws.orders) + share) / self.wanted, 1.0, "drawing graphs")
        epochs = min(WINDOW, self.spec.epochs - state.epoch)
        done = 0.95 * (state.stage + (state.epoch + share * epochs) / self.spec.epochs) / (self.trials + 1)
        doing = "trying " if state.stage < self.trials else ""
        return Info(steps, done, 1.0, f"{doing}{state.sparsity:g} nats an edge, epoch {state.epoch + epochs}")

    def _window_done(self, state: Course, after: np.ndarray) -> Course:
        """After a window of epochs, or when the chains broke down."""
        later = state
        if not state.broken:
            epoch = min(state.epoch + WINDOW, self.spec.epochs)
            scale = float(np.mean(state.now.helped.log_scale))
            later = state._replace(epoch=epoch, first=0, batches=after, scales=appended(state.scales, scale))
            if epoch < self.spec.epochs:
                return later
        return self._tried(later) if state.stage < self.trials else later._replace(stage=state.stage + 1, first=0)

    def _tried(self, state: Course) -> Course:
        """Judge a cost by how well a tenth of the rows is predicted, one that broke down last, and begin the next."""
        rows = self.values[self.shuffle[: self.held_out]]
        with taking_turns():
            look = float(self.program.held_out(state.now, jax.random.key(self.problem.seed), rows))
        looks = appended(state.looks, look if np.isfinite(look) and not state.broken else -1e30)
        stage, costs = state.stage + 1, self.spec.sparsity
        now, batches = self._start()
        return state._replace(
            stage=stage,
            now=now,
            sparsity=float(costs[stage] if stage < self.trials else costs[int(np.argmax(looks))]),
            epoch=0,
            first=0,
            batches=batches,
            looks=looks,
            scales=np.zeros(0),
            broken=False,
        )

    def _drawn(self, state: Course, after: np.ndarray) -> Course:
        if state.broken:
            return state
        return state._replace(first=0, drawing=after, draws=state.draws.joined(Draws.of(jax.device_get(state.now))))

    def finish(self, state: Course, stopped: str | None) -> Outcome:
        """Where the time runs out, the last draw is repeated."""
        spec, rng = self.spec, generator_of(state.drawing)
        draws = state.draws if len(state.draws.orders) else Draws.of(jax.device_get(state.now))
        which = np.minimum(np.arange(self.wanted), len(draws.orders) - 1)
        states: list[Draws] = [jax.tree.map(lambda leaf, k=k: leaf[k], draws) for k in which]
        graphs = np.concatenate([_graphs(self.program, one, rng) for one in states])[-spec.samples :]
        weights = np.concatenate([one.weights for one in states])[-spec.samples :] * graphs
        samples = GraphSamples.from_dense(self.problem.table.names, graphs)
        scores = samples.edge_probabilities() if spec.scores == "graphs" else weights.mean(axis=0)
        scales = state.scales if state.stage >= self.trials else np.zeros(0)
        diagnostics = {
            "steps": int(state.now.taken),
            "epochs": min(WINDOW * len(scales), spec.epochs),
            "sparsity": state.sparsity,
            "held_out_fits": state.looks.tolist(),
            "mean_edges": float(graphs.sum() / len(graphs)),
            "distinct_graphs": len(np.unique(graphs.reshape(len(graphs), -1), axis=0)),
            "devices": devices_of(self.program.mesh),
        }
        log_scale = np.concatenate([one.helped.log_scale for one in states])[-len(weights) :]
        return found(
            self.problem,
            samples,
            ranking(scores),
            _status(spec, diagnostics, state.broken, stopped),
            diagnostics,
            {"log_scale": scales},
            None if spec.nonlinear else _networks(weights, log_scale, self.centre, self.scale),
        )


def _graphs(program: Program, one: Draws, rng: np.random.Generator) -> np.ndarray:
    """One graph of each chain, ``(c, d, d)``, from the draws of one state."""
    numbers = np.asarray(one.orders)
    present = expit(np.asarray(program.logits(one.helped.helper, one.orders), dtype=np.float64))
    return (rng.random(present.shape) < present) & (numbers[:, :, None] > numbers[:, None, :])


def _networks(weights: np.ndarray, log_scale: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> Networks:
    """The linear functions of graphs whose edges have these weights ``(s, d, d)``, in the units of the data."""
    in_units = weights.astype(np.float64) * scale[None, None, :] / scale[None, :, None]
    bias = centre - np.einsum("i,sij->sj", centre, in_units)
    return Networks((in_units[..., None],), (bias[..., None],), 2 * (log_scale.astype(np.float64) + np.log(scale)))


def _status(spec: BayesDag, info: dict[str, Any], broken: bool, stopped: str | None) -> Status:
    if broken:
        return Status(
            "failed",
            "The chains broke down (numbers that are not finite); what is left is the last sound state: do not use it. "
            "Standardised columns usually help.",
        )
    early = interrupted(stopped, f"{info['steps']:,} steps")
    if early is not None:
        return early
    if info["mean_edges"] < 0.5:
        return Status(
            "warning", "The graphs are all but empty: an edge costs too much against this many rows. Lower sparsity."
        )
    return Status(
        "ok", f"The {spec.chains} chains ran to their end; nothing here tells whether they have forgotten their start."
    )
