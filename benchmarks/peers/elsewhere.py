"""Run by the interpreter that has the peers installed: one JSON line a job on standard input, one a result on output.

It imports nothing of this repository, so that the peers may need other versions than we do.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np


class Clock(NamedTuple):
    """Seconds on the wall and seconds of the processor; the latter do not grow when others use the machine."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Clock:
        return cls(time.perf_counter(), time.process_time())

    def since(self, before: Clock) -> Clock:
        return Clock(self.wall - before.wall, self.cpu - before.cpu)


class Answer(NamedTuple):
    """The ``(d, d)`` scores of edges, and how long they took, with nothing compiled in between."""

    scores: np.ndarray
    took: Clock
    compiling: Clock
    extra: dict[str, Any]


def gcastle_grandag(values: np.ndarray, *, seed: int, hidden: list[int], iterations: int) -> Answer:
    """Its `GraNDAG`; scores are the path strengths of the final graph, as VCUDA's authors took them."""
    import_module("torch").set_num_threads(1)
    learner = import_module("castle.algorithms").GraNDAG(
        input_dim=values.shape[1],
        hidden_num=len(hidden),
        hidden_dim=hidden[0] if hidden else 10,
        iterations=iterations,
        random_seed=seed,
    )
    begun = Clock.now()
    learner.learn(values)
    took = Clock.now().since(begun)
    scores = learner.model.get_w_adj().detach().numpy()
    return Answer(scores, took, Clock(0.0, 0.0), {"edges": int(learner.model.adjacency.sum())})


def gcastle_mcsl(
    values: np.ndarray, *, seed: int, hidden: list[int], rounds: int, steps: int, same_noise: bool
) -> Answer:
    """Its `MCSL`; scores are the logistic function of the mask's logits.

    Without hidden layers its last layer expects as many inputs as it has hidden units. Unless ``same_noise``, the noise
    of the mask is drawn anew at every step, where the package starts its generator again each time.
    """
    torch = import_module("torch")
    torch.set_num_threads(1)
    learner_of = import_module("castle.algorithms").MCSL
    model: Any = import_module("castle.algorithms.gradient.mcsl.torch.models.masked_model")
    draw, taken = model.gumbel_sigmoid, 0

    def anew(logits: Any, temperature: Any, seed: int, device: Any) -> Any:
        nonlocal taken
        taken += 1
        return draw(logits, temperature, seed=seed + (0 if same_noise else 2 * taken), device=device)

    learner = learner_of(
        num_hidden_layers=max(len(hidden), 1),
        hidden_dim=hidden[0] if hidden else values.shape[1] - 1,
        max_iter=rounds,
        iter_step=steps,
        random_seed=seed,
    )
    learner.num_hidden_layers = len(hidden)
    model.gumbel_sigmoid = anew
    try:
        begun = Clock.now()
        learner.learn(values)
        took = Clock.now().since(begun)
    finally:
        model.gumbel_sigmoid = draw
    scores = np.asarray(learner.causal_matrix_weight)
    return Answer(scores, took, Clock(0.0, 0.0), {"edges": int(np.sum(learner.causal_matrix)), "steps": taken})


def dibs_lib(values: np.ndarray, *, seed: int, graph_prior: str, particles: int, steps: int, chunk: int) -> Answer:
    """Its `MarginalDiBS` with the BGe score; scores are the shares of the particles.

    It compiles anew for every table. What the first of several equal chunks of steps takes longer than the median of
    the others is taken for that.
    """
    jax = import_module("jax")
    graph_model = import_module("dibs.target").make_graph_model(n_vars=values.shape[1], graph_prior_str=graph_prior)
    sampler = import_module("dibs.inference").MarginalDiBS(
        x=jax.numpy.asarray(values),
        graph_model=graph_model,
        likelihood_model=import_module("dibs.models").BGe(n_vars=values.shape[1]),
    )
    times = [Clock.now()]

    def report(*, zs: Any, **_: Any) -> None:
        jax.block_until_ready(zs)
        times.append(Clock.now())

    graphs = sampler.sample(
        key=jax.random.PRNGKey(seed), n_particles=particles, steps=steps, callback=report, callback_every=chunk
    )
    chunks = [later.since(earlier) for earlier, later in pairwise(times)]
    usual = Clock(*(float(np.median([getattr(each, name) for each in chunks[1:]])) for name in Clock._fields))
    total, compiling = times[-1].since(times[0]), chunks[0].since(usual)
    return Answer(np.asarray(graphs).mean(axis=0), total.since(compiling), compiling, {"steps": steps})


def lingam_direct(values: np.ndarray, *, seed: int) -> Answer:
    """Its `DirectLiNGAM` as it is by default; scores are the sizes of the coefficients of standardised columns."""
    learner = import_module("lingam").DirectLiNGAM(random_state=seed)
    begun = Clock.now()
    learner.fit((values - values.mean(axis=0)) / values.std(axis=0))
    took = Clock.now().since(begun)
    # Its matrix has effects as rows.
    scores = np.abs(learner.adjacency_matrix_).T
    return Answer(scores, took, Clock(0.0, 0.0), {"edges": int((scores > 0).sum())})


def gcastle_grandag_step(values: np.ndarray, *, seed: int, hidden: list[int]) -> dict[str, Any]:
    """Its augmented Lagrangian with multiplier 0.3 and weight 0.01 at random parameters, with the gradients."""
    torch = import_module("torch")
    base: Any = import_module("castle.algorithms.gradient.gran_dag.torch.base")
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    nodes = values.shape[1]
    model = base.NonlinearGaussANM(nodes, len(hidden), hidden[0] if hidden else 10, 1)
    with torch.no_grad():
        model.adjacency[0, nodes - 1] = 0
        for parameter in (*model.extra_params, *model.biases):
            parameter.add_(0.2 * torch.randn_like(parameter))
    weights, biases, scales = model.get_parameters("wbx")
    rows = torch.tensor(values)
    loss = -torch.mean(model.compute_log_likelihood(rows, weights, biases, scales))
    strengths = model.get_w_adj()
    constraint = base.compute_constraint(model, strengths)
    (loss + 0.3 * constraint + 0.005 * constraint**2).backward()

    class Everyone:
        def sample(self, _: int) -> tuple[Any, None]:
            return rows.clone(), None

    return {
        "mask": _lists(model.adjacency),
        "weights": [_lists(weight.permute(0, 2, 1)) for weight in weights],
        "biases": [_lists(bias) for bias in biases],
        "log_scale": [float(scale) for scale in scales],
        "loss": float(loss),
        "constraint": float(constraint),
        "strengths": _lists(strengths),
        "jacobian": _lists(base.compute_jacobian_avg(model, Everyone(), len(values)).t()),
        "by_weights": [_lists(weight.grad.permute(0, 2, 1)) for weight in weights],
        "by_log_scale": [float(scale.grad) for scale in scales],
    }


def gcastle_mcsl_step(values: np.ndarray, *, seed: int, hidden: list[int]) -> dict[str, Any]:
    """Its augmented Lagrangian, with the same weights, for one mask at random parameters, and the gradients."""
    torch = import_module("torch")
    import_module("castle.algorithms")  # makes double precision torch's default
    nodes = values.shape[1]
    model_of: Any = import_module("castle.algorithms.gradient.mcsl.torch.models.masked_model").MaskedModel
    gumbel: Any = import_module("castle.algorithms.gradient.mcsl.torch.helpers.utils").sample_gumbel
    torch.manual_seed(seed)
    units = hidden[0] if hidden else nodes - 1
    everyone = torch.ones(nodes, nodes)
    model = model_of("nn", len(values), nodes, everyone, len(hidden), units, 2e-3, seed, torch.device("cpu"))
    with torch.no_grad():
        model.w.copy_(0.3 * torch.randn(nodes, nodes))
    loss, constraint, _ = model(torch.tensor(values), torch.tensor(0.01), torch.tensor(0.3), torch.tensor(0.2))
    loss.backward()
    networks = [model.masked_model.nets[str(node)].modules() for node in range(nodes)]
    layers = list(zip(*([each for each in one if hasattr(each, "in_features")] for one in networks), strict=True))

    def inputs(arrays: list[np.ndarray], first: bool) -> list[Any]:
        """Weights of all nodes; in the first layer with a row of zeros for the node itself, which theirs leave out."""
        return [
            np.insert(each, node, 0, axis=0).tolist() if first else each.tolist() for node, each in enumerate(arrays)
        ]

    return {
        "logits": _lists(model.w),
        "noise": _lists(gumbel((nodes, nodes), seed=seed) - gumbel((nodes, nodes), seed=seed + 1)),
        "weights": [inputs([one.weight.detach().numpy().T for one in each], k == 0) for k, each in enumerate(layers)],
        "biases": [[_lists(one.bias) for one in each] for each in layers],
        "loss": float(loss),
        "constraint": float(constraint),
        "by_logits": _lists(model.w.grad),
        "by_weights": [inputs([one.weight.grad.numpy().T for one in each], k == 0) for k, each in enumerate(layers)],
    }


def dibs_lib_step(
    values: np.ndarray, *, seed: int, graphs: list[Any], latent: list[Any], slopes: list[Any]
) -> dict[str, Any]:
    """Its BGe score and measure of cycles of graphs, and where Stein's method moves particles with given slopes."""
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    nodes = values.shape[1]
    score = import_module("dibs.models").BGe(n_vars=nodes)
    cycles: Any = import_module("dibs.graph_utils").acyclic_constr_nograd
    prior = import_module("dibs.target").make_graph_model(n_vars=nodes, graph_prior_str="er")
    rows = jax.numpy.asarray(values)
    sampler = import_module("dibs.inference").MarginalDiBS(x=rows, graph_model=prior, likelihood_model=score)
    # Its particles have u and v as their last axis.
    particles, towards = (jax.numpy.moveaxis(jax.numpy.asarray(each), 1, -1) for each in (latent, slopes))
    kernel = sampler._f_kernel_mat(particles, particles)
    moved = -sampler._parallel_update_z(particles, kernel, particles, towards)
    each, no_progress = [jax.numpy.asarray(graph, dtype=float) for graph in graphs], jax.numpy.zeros_like(rows)
    found = {
        "scores": [float(score.log_marginal_likelihood(g=graph, x=rows, interv_targets=no_progress)) for graph in each],
        "cycles": [float(cycles(graph, nodes)) for graph in each],
        "direction": np.moveaxis(np.asarray(moved), -1, 1).tolist(),
    }
    jax.config.update("jax_enable_x64", False)
    return found


def _lists(tensor: Any) -> Any:
    return tensor.detach().numpy().tolist()


def timed(found: Answer) -> dict[str, Any]:
    return {
        "scores": found.scores.tolist(),
        "seconds": found.took.wall,
        "seconds_cpu": found.took.cpu,
        "seconds_compilation": found.compiling.wall,
        **found.extra,
    }


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "dibs-lib": (dibs_lib, ("dibs-lib", "jax")),
    "gcastle GraNDAG": (gcastle_grandag, ("gcastle", "torch")),
    "gcastle MCSL": (gcastle_mcsl, ("gcastle", "torch")),
    "lingam DirectLiNGAM": (lingam_direct, ("lingam",)),
    "dibs-lib, one step": (dibs_lib_step, ("dibs-lib", "jax")),
    "gcastle GraNDAG, one step": (gcastle_grandag_step, ("gcastle", "torch")),
    "gcastle MCSL, one step": (gcastle_mcsl_step, ("gcastle", "torch")),
}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # the peers may print
    for line in sys.stdin:
        job = json.loads(line)
        program, packages = PROGRAMS[job["program"]]
        with np.load(job["table"]) as stored:
            values = stored["values"]
        found = program(values, seed=job["seed"], **job["options"])
        seen = timed(found) if isinstance(found, Answer) else found
        seen["versions"] = {package: version(package) for package in packages}
        print(json.dumps(seen), file=answers, flush=True)


if __name__ == "__main__":
    main()
