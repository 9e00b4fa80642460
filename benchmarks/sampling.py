"""How long it takes to sample a DAG, by distribution and number of nodes, and that every sample is one."""

import argparse
import dataclasses
import json
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.dags import DAG_DISTRIBUTIONS
from vcuda.dags.base import DagPrior, no_self_loops
from vcuda.dags.bulk import BulkSampler
from vcuda.graphs import is_acyclic_edges

SIZES = (500, 1000, 3000, 5000)
SPARSE_NODES = 100_000
COPY = "copy of a boolean matrix"
HOST = "any"
DISTRIBUTIONS = (HOST, *DAG_DISTRIBUTIONS)
# Means that the authors stored, in milliseconds, on a GPU with the copy to the host.
PUBLISHED = {
    "priority": dict(zip(SIZES, (1.25, 3.1, 27.0, 75.0), strict=True)),
    "topk": dict(zip(SIZES, (1.0, 3.8, 36.0, 115.0), strict=True)),
    "sinkhorn": dict(zip(SIZES, (13.0, 55.0, 1680.0, 2420.0), strict=True)),
}


@dataclasses.dataclass(frozen=True)
class Times:
    """Medians for one graph in milliseconds: by the clock, and of all processors together.

    On a busy machine the clock is unfair to everything that takes longer than a slice of the scheduler; the
    processor time of the host methods, which use one thread, is then the better measure.
    """

    clock: float
    processor: float

    def over(self, other: "Times") -> "Times":
        return Times(self.clock / other.clock, self.processor / other.processor)


@dataclasses.dataclass(frozen=True)
class Timing:
    """One line of the table; the ratios are to the copy of a boolean matrix at the same number of nodes."""

    nodes: int
    distribution: str
    method: str
    milliseconds: Times
    ratio: Times | None = None
    published_gpu_milliseconds: float | None = None


def median_times(run: Callable[[], Any], *, least: int, seconds: float) -> Times:
    """Medians over calls, after one that is not counted: at least so many, and up to 50 while time allows."""
    run()
    clock: list[float] = []
    processor: list[float] = []
    while len(clock) < least or (sum(clock) < seconds and len(clock) < 50):
        clock_start, processor_start = time.perf_counter(), time.process_time()
        run()
        processor.append(time.process_time() - processor_start)
        clock.append(time.perf_counter() - clock_start)
    return Times(1000.0 * float(np.median(clock)), 1000.0 * float(np.median(processor)))


def compiled_timings(name: str, nodes: int, seed: int, **effort: Any) -> Iterator[Timing]:
    """Time the JAX sampler of one distribution: graphs alone, and with the gradient of the parameters."""
    spec = DAG_DISTRIBUTIONS[name]()
    params = spec.init(jax.random.key(seed), nodes)
    allowed = jnp.asarray(no_self_loops(nodes))
    weights = jax.random.normal(jax.random.key(seed + 1), (nodes, nodes))
    keys = iter(jax.random.split(jax.random.key(seed + 2), 1000))

    def loss(params: Any, key: jax.Array) -> jax.Array:
        return jnp.sum(weights * spec.sample(key, params, allowed))

    programs = {
        "JAX, graph": jax.jit(lambda params, key: spec.sample(key, params, allowed)),
        "JAX, graph and gradient": jax.jit(jax.value_and_grad(loss)),
    }
    for method, program in programs.items():

        def run(program: Callable[..., Any] = program) -> None:
            jax.block_until_ready(program(params, next(keys)))

        published = PUBLISHED[name].get(nodes) if method == "JAX, graph" else None
        yield Timing(nodes, name, method, median_times(run, **effort), None, published)


def host_timings(nodes: int, seed: int, **effort: Any) -> Iterator[Timing]:
    """Time the copy and the host sampler, the same for every distribution once the priorities are drawn."""
    rng = np.random.default_rng(seed)
    probabilities = rng.uniform(0.5, 0.73, (nodes, nodes))
    priorities = rng.standard_normal(nodes)
    dense = BulkSampler.from_probabilities(probabilities)
    sparse = BulkSampler.from_probabilities(
        2.0 * DagPrior.for_nodes(nodes).edge_probability * rng.random((nodes, nodes))
    )
    graph = dense.sample_dense(rng, priorities)
    runs: dict[str, Callable[[], Any]] = {
        COPY: graph.copy,
        "host, dense": lambda: dense.sample_dense(rng, priorities),
        "host, edge list, one expected edge a node": lambda: sparse.sample_sparse(rng, priorities),
    }
    for method, run in runs.items():
        yield Timing(nodes, HOST, method, median_times(run, **effort))


def timings_of(distribution: str, nodes: int, seed: int, **effort: Any) -> Iterator[Timing]:
    """Time one distribution, or the samplers of the host, which serve all of them."""
    if distribution == HOST:
        return host_timings(nodes, seed, **effort)
    return compiled_timings(distribution, nodes, seed, **effort)


def large_timing(seed: int, **effort: Any) -> Timing:
    """Time an edge list of 100,000 nodes, of which a tenth have a likely parent, with its priorities."""
    rng = np.random.default_rng(seed)
    sampler = BulkSampler.from_sparse(
        SPARSE_NODES,
        background=1.9 / (SPARSE_NODES - 1),
        sources=rng.permutation(SPARSE_NODES)[: SPARSE_NODES // 10],
        targets=rng.permutation(SPARSE_NODES)[: SPARSE_NODES // 10],
        probabilities=np.ones(SPARSE_NODES // 10),
    )
    milliseconds = median_times(lambda: sampler.sample_sparse(rng, rng.standard_normal(SPARSE_NODES)), **effort)
    return Timing(SPARSE_NODES, HOST, "host, edge list, one expected edge a node", milliseconds)


def all_acyclic(name: str, nodes: int, size: int, seed: int) -> dict[str, bool]:
    """Whether so many graphs are all acyclic, from the compiled and from the host sampler."""
    spec = DAG_DISTRIBUTIONS[name]()
    params = spec.init(jax.random.key(seed), nodes)
    allowed = no_self_loops(nodes)
    batch = min(size, max(1, 10_000_000 // nodes**2))
    draw = jax.jit(jax.vmap(lambda key: spec.sample(key, params, allowed)))
    compiled = True
    for start in range(0, size, batch):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), start), min(batch, size - start))
        which, sources, targets = np.nonzero(np.asarray(draw(keys)))
        compiled &= is_acyclic_edges(which * nodes + sources, which * nodes + targets, len(keys) * nodes)
    rng = np.random.default_rng(seed)
    host_params = jax.device_get(params)
    sampler = BulkSampler.from_probabilities(np.asarray(jax.nn.sigmoid(host_params.edge_logits)) * allowed)
    host = True
    for start in range(0, size, batch):
        many = min(batch, size - start)
        lists = sampler.sample_many(rng, spec.priorities(rng, host_params, many))
        which = np.repeat(np.arange(many), lists.counts)
        host &= is_acyclic_edges(which * nodes + lists.sources, which * nodes + lists.targets, many * nodes)
    return {"compiled": compiled, "host": host}


def with_ratios(timings: list[Timing]) -> list[Timing]:
    """Set each time beside that of the copy at its number of nodes."""
    copies = {each.nodes: each.milliseconds for each in timings if each.method == COPY}
    return [
        dataclasses.replace(each, ratio=each.milliseconds.over(copies[each.nodes])) if each.nodes in copies else each
        for each in timings
    ]


def markdown(timings: list[Timing]) -> str:
    lines = [
        "| nodes | distribution | method | ms a graph | times the copy | processor ms | published, GPU (ms) |",
        "|---:|---|---|---:|---:|---:|---:|",
    ]
    for each in timings:
        ratio = "" if each.ratio is None else f"{each.ratio.clock:.1f}"
        published = "" if each.published_gpu_milliseconds is None else f"{each.published_gpu_milliseconds:g}"
        lines.append(
            f"| {each.nodes:,} | {each.distribution} | {each.method} | {each.milliseconds.clock:.2f} | {ratio} "
            f"| {each.milliseconds.processor:.2f} | {published} |"
        )
    return "\n".join(lines)


def targets(timings: list[Timing]) -> list[str]:
    """Set each target beside what this run found."""
    lines = []
    for each in timings:
        if each.nodes == 5000 and each.method == "host, dense" and each.ratio is not None:
            lines.append(
                f"dense, 5,000 nodes: {each.ratio.clock:.1f} times the copy by the clock, "
                f"{each.ratio.processor:.1f} times in processor time (target 12)"
            )
        if each.method.startswith("host, edge list") and each.nodes in (5000, SPARSE_NODES):
            limit = 10 if each.nodes == 5000 else 1000
            lines.append(f"edge list, {each.nodes:,} nodes: {each.milliseconds.clock:.1f} ms (target {limit})")
    return lines


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks sampling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only 500 and 1,000 nodes, and fewer repeats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    effort = {"least": 3, "seconds": 0.2} if options.quick else {"least": 3, "seconds": 3.0}
    timings: list[Timing] = []
    for nodes in SIZES[:2] if options.quick else SIZES:
        for name in DISTRIBUTIONS:
            timings.extend(timings_of(name, nodes, options.seed, **effort))
    timings.append(large_timing(options.seed, **effort))
    timings = with_ratios(timings)
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, JAX {jax.__version__}"
    print(f"Median milliseconds for one graph, compilation apart ({versions}, on {jax.default_backend()}).\n")
    print(markdown(timings), end="\n\n")
    print("Published: the authors' own means, on a GPU, with the copy to the host.")
    print("Sinkhorn: each sample solves an assignment problem, of cubic cost, on one core.\n")
    for line in targets(timings):
        print(f"- {line}")
    size = 1_000 if options.quick else 10_000
    acyclic = {
        f"{name}, {nodes} nodes, {many:,} graphs": all_acyclic(name, nodes, many, options.seed)
        for name in DAG_DISTRIBUTIONS
        for nodes, many in ((50, size), (500, 20))
    }
    for what, found in acyclic.items():
        print(f"- {what}: " + ", ".join(f"{how} {'all acyclic' if fine else 'A CYCLE'}" for how, fine in found.items()))
    if options.json:
        record = {
            "versions": versions,
            "seed": options.seed,
            "timings": [dataclasses.asdict(each) for each in timings],
            "acyclic": acyclic,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(all(found.values()) for found in acyclic.values()) else 1
