"""What enters one step of each method, ours against the peers' at the same parameters.

Everything here is deterministic, so that differences are rounding or mistakes, where fits differ by chance.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.programs import Peers, Table
from vcuda.baselines import dibs_likelihoods, dibs_program, grandag, mcsl
from vcuda.baselines.augmented_lagrangian import acyclicity, penalty
from vcuda.baselines.networks import path_strengths
from vcuda.infer.compilation import double_precision
from vcuda.models.functional.mlp import Layers

MULTIPLIER, WEIGHT = 0.3, 0.01
HIDDEN: tuple[tuple[int, ...], ...] = ((), (6, 6))


def compare(peers: Peers, table: Table) -> dict[str, dict[str, float]]:
    """The largest difference, relative to the largest entry, of everything that enters a step, for each method."""
    with double_precision():
        found = {}
        for hidden in HIDDEN:
            label = "networks" if hidden else "linear"
            found[f"GraN-DAG, {label}"] = _grandag(peers, table, hidden)
            found[f"MCSL, {label}"] = _mcsl(peers, table, hidden)
        return found | {"DiBS": _dibs(peers, table)}


def _difference(one: Any, other: Any) -> float:
    ours, theirs = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-300))


def _layers(seen: dict[str, Any], key: str) -> tuple[np.ndarray, ...]:
    """Weights ``(node, input, unit)`` as ours are, with the inputs first in the first layer."""
    first, *others = (np.asarray(each) for each in seen[key])
    return np.swapaxes(first, 0, 1), *others


def _grandag(peers: Peers, table: Table, hidden: tuple[int, ...]) -> dict[str, float]:
    seen = peers.ask("gcastle GraNDAG, one step", {"hidden": hidden}, table, seed=0)
    program, mask, rows = grandag.Program(hidden, 1e-3), np.asarray(seen["mask"]), table.data.values

    def lagrangian(trained: grandag.Trained) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        strengths = path_strengths(trained.layers, mask)
        constraint = acyclicity(strengths)
        loss = program.loss(trained, mask, rows)
        return loss + penalty(constraint, MULTIPLIER, WEIGHT), (loss, strengths)

    biases = tuple(np.asarray(each) for each in seen["biases"])
    layers = jax.tree.map(jnp.asarray, Layers(_layers(seen, "weights"), biases))  # type: ignore[arg-type]
    trained = grandag.Trained(layers, jnp.asarray(seen["log_scale"]))
    slope, (loss, strengths) = jax.grad(lagrangian, has_aux=True)(trained)
    jacobian = np.asarray(program.jacobian(trained, mask, rows)) / len(rows)
    edges = ~np.eye(len(mask), dtype=bool)
    return {
        "loss": _difference(loss, seen["loss"]),
        "constraint": _difference(acyclicity(strengths), seen["constraint"]),
        "strengths": _difference(strengths, seen["strengths"]),
        "jacobian": _difference(jacobian[edges], np.asarray(seen["jacobian"])[edges]),
        "by weights": max(map(_difference, slope.layers.weights, _layers(seen, "by_weights"))),
        "by noise": _difference(slope.log_scale, seen["by_log_scale"]),
    }


class _GivenNoise(mcsl.Program):
    """Our program with the peer's noise in the place of its own."""

    noise: np.ndarray

    def _mask(self, logits: jax.Array, key: jax.Array, allowed: mcsl.Array) -> jax.Array:
        return jax.nn.sigmoid((logits + self.noise) / self.spec.temperature) * allowed


def _mcsl(peers: Peers, table: Table, hidden: tuple[int, ...]) -> dict[str, float]:
    seen = peers.ask("gcastle MCSL, one step", {"hidden": hidden}, table, seed=0)
    program = _GivenNoise(mcsl.Mcsl.reference(hidden=hidden))
    program.noise = np.asarray(seen["noise"])
    biases = tuple(np.asarray(each) for each in seen["biases"])
    layers = jax.tree.map(jnp.asarray, Layers(_layers(seen, "weights"), biases))  # type: ignore[arg-type]
    trained = mcsl.Trained(layers, jnp.asarray(seen["logits"]))
    allowed = 1.0 - np.eye(table.data.d)
    both = jax.value_and_grad(program.lagrangian, has_aux=True)
    (loss, constraint), slope = both(
        trained, jax.random.key(0), jnp.asarray(table.data.values), allowed, MULTIPLIER, WEIGHT
    )
    return {
        "loss": _difference(loss, seen["loss"]),
        "constraint": _difference(constraint, seen["constraint"]),
        "by logits": _difference(slope.logits, seen["by_logits"]),
        "by weights": max(map(_difference, slope.layers.weights, _layers(seen, "by_weights"))),
    }


def _dibs(peers: Peers, table: Table) -> dict[str, float]:
    rng, nodes = np.random.default_rng(0), table.data.d
    graphs = (rng.random((8, nodes, nodes)) < 0.3) & ~np.eye(nodes, dtype=bool)
    latent, slopes = rng.normal(scale=nodes**-0.5, size=(2, 5, 2, nodes, nodes))
    options = {"graphs": graphs.tolist(), "latent": latent.tolist(), "slopes": slopes.tolist()}
    seen = peers.ask("dibs-lib, one step", options, table, seed=0)
    likelihood = dibs_likelihoods.BGeLikelihood()
    prepared = likelihood.prepare(table.data.values)
    kernel = dibs_program.kernel(jnp.asarray(latent), 5.0)
    moved = dibs_program.stein_direction(kernel, kernel, 5.0, jnp.asarray(latent), jnp.asarray(slopes))
    return {
        "score": _difference(likelihood.local_many(prepared, (), jnp.asarray(graphs)[None]).sum(-1)[0], seen["scores"]),
        "cycles": _difference(dibs_program.cycles(jnp.asarray(graphs, dtype=float))[0], seen["cycles"]),
        "direction": _difference(moved, seen["direction"]),
    }
