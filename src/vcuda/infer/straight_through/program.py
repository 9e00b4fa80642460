"""The compiled steps of the paper's engine, for all restarts at once."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from vcuda.dags.base import DagPrior
from vcuda.infer.devices import WHOLE, divide, divided
from vcuda.infer.restarts import Members
from vcuda.infer.straight_through.early_stopping import choose
from vcuda.infer.straight_through.elbo import NOTHING_KNOWN, Known, Rows, Terms, Trained, elbo_terms
from vcuda.infer.straight_through.settings import StraightThrough
from vcuda.models.functional.base import FunctionalModel, ModelParams

Array = jax.Array | np.ndarray

FINAL_GRAPHS = 64
# Seconds of a processor for one parameter of the functions, one row and one graph: 5e-10 to 7.5e-10 with MLPs of 11 to
# 60 columns and linear functions of 50. It decides how restarts are run, so that it must not hang on the clock.
SECONDS_A_PRODUCT = 6e-10


class State(NamedTuple):
    """One restart between two steps."""

    trained: Trained
    optimiser: Any
    key: jax.Array


class Problem(NamedTuple):
    """What does not change during a fit."""

    train: Rows
    validation: Rows
    allowed: jax.Array
    known: Known = NOTHING_KNOWN


class Stretch(NamedTuple):
    """What the host tells of the steps to take next: ``steps`` of the epoch from step ``first`` on.

    They are ordinary arguments, so one program serves however far the host lets it run. ``order`` is ``(r, rows)``, the
    shuffle of this epoch's rows, ``rate`` the share of the learning rates, ``number`` counts all steps before, and
    ``sums`` are the terms of the ELBO added up since the last look: so the last digits do not hang on the chunks.
    """

    active: Array
    order: Array
    first: Array | int
    steps: Array | int
    number: Array | int
    rate: Array | float
    sums: Terms


# How restarts are divided among devices.
DIVIDED_STRETCH = Stretch(divided(), divided(), WHOLE, WHOLE, WHOLE, WHOLE, divided())  # type: ignore[arg-type]


def _optimiser(engine: StraightThrough) -> optax.GradientTransformation:
    functions = optax.chain(optax.add_decayed_weights(engine.weight_decay), optax.adam(engine.learning_rate))
    rest = optax.adam(engine.graph_learning_rate)
    groups = Trained(dags="rest", model=ModelParams(functions="functions", log_variance="rest"))  # type: ignore[arg-type]
    return optax.multi_transform({"functions": functions, "rest": rest}, groups)


class Program:
    """The compiled pieces of a fit, vectorised over restarts, for one choice of engine, model and prior; the devices of
    a ``mesh`` share the restarts."""

    def __init__(
        self, engine: StraightThrough, model: FunctionalModel, prior: DagPrior, mesh: Mesh | None = None
    ) -> None:
        self.engine = engine
        self.model = model
        self.terms = partial(elbo_terms, engine.dags, model, prior)
        self.optimiser = _optimiser(engine)
        self.init = jax.jit(jax.vmap(self._init, in_axes=(0, 0, None)), static_argnums=2)
        self.advance = jax.jit(divide(self._advance, mesh, (divided(), DIVIDED_STRETCH, WHOLE), divided()))
        self.advance_apart = jax.jit(self._advance_apart)
        of_each = ((divided(), WHOLE, WHOLE), divided())
        self.validate = jax.jit(divide(jax.vmap(self._validate, in_axes=(0, None, None)), mesh, *of_each))
        self.final_elbo = jax.jit(divide(self._final_elbo, mesh, *of_each))

    def batch(self, train: Rows) -> int:
        padded = train.values.shape[0]
        return padded if self.engine.batch_size is None else min(self.engine.batch_size, padded)

    def steps_an_epoch(self, train: Rows) -> int:
        """Batches that hold a row which is not padding."""
        return -(-int(train.total) // self.batch(train))

    def _init(self, key: jax.Array, step_key: jax.Array, nodes: int) -> State:
        dags_key, model_key = jax.random.split(key)
        trained = Trained(self.engine.dags.init(dags_key, nodes), self.model.init(model_key, nodes))
        return State(trained, self.optimiser.init(trained), step_key)

    def _weights(self, train: Rows) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Rows of a full batch, the weight of the KL, and the unit of the loss.

        The loss is the negative ELBO in the authors' units, (sum of squares of a batch + KL) / d for unit noise:
        Adam does not feel the factor, but the coupled weight decay does.
        """
        batch_rows = jnp.minimum(float(self.batch(train)), train.total)
        if self.engine.kl_weight == "batch":
            kl_weight = train.total / (2 * batch_rows)
        else:
            kl_weight = jnp.asarray(self.engine.kl_weight)
        return batch_rows, kl_weight, 2 * batch_rows / (train.total * train.values.shape[1])

    def _step(
        self, problem: Problem, rate: Array | float, number: Array, start: Array, state: State, order: Array
    ) -> tuple[State, Terms]:
        """One step of one restart on the rows from ``start`` on; also the terms of the ELBO before it."""
        train = problem.train
        batch = self.batch(train)
        batch_rows, kl_weight, unit = self._weights(train)
        if batch == train.values.shape[0]:
            rows = train
        else:
            taken = jax.lax.dynamic_slice(order, (start,), (batch,))
            rows = train.take(taken, batch_rows)

        def loss(trained: Trained) -> tuple[jax.Array, Terms]:
            keys = jax.random.split(jax.random.fold_in(state.key, number), self.engine.graph_samples)
            terms = self.terms(trained, keys, rows, train.total, problem.allowed, problem.known)
            return -unit * (terms.likelihood - kl_weight * (terms.kl_edges + terms.kl_order)), terms

        (_, terms), gradient = jax.value_and_grad(loss, has_aux=True)(state.trained)
        updates, optimiser = self.optimiser.update(gradient, state.optimiser, state.trained)
        trained = jax.tree.map(lambda value, update: value + rate * update, state.trained, updates)
        return State(trained, optimiser, state.key), terms

    def _advance(self, state: State, stretch: Stretch, problem: Problem) -> tuple[State, Terms]:
        """Take a stretch of steps; restarts that are not active stay as they are.

        Returns the sum of the ELBO's terms since the last look, for each restart.
        """
        batch = self.batch(problem.train)

        def body(step: jax.Array, carry: tuple[State, Terms]) -> tuple[State, Terms]:
            one = partial(self._step, problem, stretch.rate, stretch.number + step, (stretch.first + step) * batch)
            moved, terms = jax.vmap(one)(carry[0], stretch.order)
            return moved, jax.tree.map(jnp.add, carry[1], terms)

        moved, total = jax.lax.fori_loop(0, stretch.steps, body, (state, stretch.sums))
        return jax.tree.map(partial(choose, stretch.active), moved, state), total

    def _advance_apart(self, state: State, stretch: Stretch, members: Members, problem: Problem) -> tuple[State, Terms]:
        """The same, one restart after the other, and only those of ``members``: none depends in any bit on which others
        there are."""
        batch = self.batch(problem.train)

        def one(member: jax.Array, carry: tuple[State, Terms]) -> tuple[State, Terms]:
            place = members.places[member]
            mine, order, sums = jax.tree.map(lambda array: array[place], (carry[0], stretch.order, carry[1]))

            def body(step: jax.Array, own: tuple[State, Terms]) -> tuple[State, Terms]:
                number, start = stretch.number + step, (stretch.first + step) * batch
                moved, terms = self._step(problem, stretch.rate, number, start, own[0], order)
                return moved, jax.tree.map(jnp.add, own[1], terms)

            moved = jax.lax.fori_loop(0, stretch.steps, body, (mine, sums))
            return jax.tree.map(lambda array, new: array.at[place].set(new), carry, moved)

        return jax.lax.fori_loop(0, members.size, one, (state, jax.tree.map(jnp.asarray, stretch.sums)))

    def _validate(self, state: State, key: jax.Array, problem: Problem) -> jax.Array:
        """The loss of the validation rows."""
        batch_rows, kl_weight, unit = self._weights(problem.train)
        rows = problem.validation
        authors = self.engine.validation == "authors"
        keys = jax.random.split(key, 1 if authors else self.engine.validation_graphs)
        scaled_to = rows.total if authors else batch_rows
        terms = self.terms(state.trained, keys, rows, scaled_to, problem.allowed, problem.known)
        nodes = rows.values.shape[1]
        return -2 / nodes * terms.likelihood + unit * kl_weight * (terms.kl_edges + terms.kl_order)

    def _final_elbo(self, trained: Trained, key: jax.Array, problem: Problem) -> jax.Array:
        """The ELBO of the training rows, from many graphs: the mixture's weights hang on it."""
        keys = jax.random.split(key, FINAL_GRAPHS)
        rows = problem.train
        return jax.lax.map(
            lambda one: self.terms(one, keys, rows, rows.total, problem.allowed, problem.known).elbo, trained
        )


def foreseen_seconds(program: Program, trained: Trained, train: Rows) -> float:
    """About how long a step of all restarts takes on one core."""
    parameters = sum(leaf.size for leaf in jax.tree.leaves(trained.model.functions))
    return SECONDS_A_PRODUCT * parameters * program.batch(train) * program.engine.graph_samples


# Kept so that equal fits in one process compile once.
program_for = lru_cache(maxsize=16)(Program)
