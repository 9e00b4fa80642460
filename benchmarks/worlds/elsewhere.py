"""Run by the interpreter that has the peers installed: one JSON line a job on standard input, one a result on output.

It imports nothing of this repository, so that the peers may need other versions than we do.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np


def cdnod(values: Any, context: Any) -> dict[str, Any]:
    """CD-NOD of causal-learn with the environment as its context; an edge it leaves open counts half each way."""
    run = import_module("causallearn.search.ConstraintBased.CDNOD").cdnod
    begun = time.process_time()
    graph = run(np.array(values), np.array(context, dtype=float)[:, None], 0.05, "fisherz", show_progress=False)
    seconds = time.process_time() - begun
    # Its matrix has -1 at [i, j] and 1 at [j, i] for i -> j, and -1 in both for an edge that is open.
    marks = np.array(graph.G.graph)
    d = len(values[0])
    directed = (marks == -1) & (marks.T == 1)
    both = (marks == -1) & (marks.T == -1)
    return {
        "edges": (directed + 0.5 * both)[:d, :d].astype(float).tolist(),
        "seconds": seconds,
        "package": "causal-learn",
    }


def fci(values: Any) -> dict[str, Any]:
    """FCI of causal-learn: -> and <-> of its graph with hidden causes; a mark that it leaves open counts half."""
    run = import_module("causallearn.search.ConstraintBased.FCI").fci
    begun = time.process_time()
    graph, _ = run(np.array(values), "fisherz", 0.05, show_progress=False, verbose=False)
    seconds = time.process_time() - begun
    # Turned: the mark at the end j of the edge between i and j stands at [i, j]; 1 an arrowhead, -1 a tail, 2 open.
    marks = np.array(graph.graph).T
    head = np.where(marks == 1, 1.0, np.where(marks == 2, 0.5, 0.0))
    tail = np.where(marks == -1, 1.0, np.where(marks == 2, 0.5, 0.0))
    joined = marks != 0
    return {
        "directed": (joined * head * tail.T).tolist(),
        "bidirected": (joined * head * head.T).tolist(),
        "seconds": seconds,
        "package": "causal-learn",
    }


def pcmci_plus(values: Any, lags: int, test: str = "parcorr.ParCorr") -> dict[str, Any]:
    """PCMCI+ of Tigramite; edges of its graph before all others, those that it leaves open half each way."""
    module, name = test.split(".")
    independence = getattr(import_module(f"tigramite.independence_tests.{module}"), name)(significance="analytic")
    frame = import_module("tigramite.data_processing").DataFrame(np.array(values))
    run = import_module("tigramite.pcmci").PCMCI(dataframe=frame, cond_ind_test=independence, verbosity=0)
    begun = time.process_time()
    found = run.run_pcmciplus(tau_min=0, tau_max=lags, pc_alpha=0.01)
    seconds = time.process_time() - begun
    graph, strength, p = found["graph"], np.abs(found["val_matrix"]), found["p_matrix"]
    # An edge of the graph counts by its strength, one that is not by its p-value, below all that are.
    scores = np.where(graph == "-->", 1 + strength, np.where(np.isin(graph, ["", "<--"]), 0.0, 0.5 + 0.5 * strength))
    scores = np.where(graph == "", 0.4 * (1 - p), scores)
    return {"scores": scores.transpose(2, 0, 1).tolist(), "seconds": seconds, "package": "tigramite"}


def pcmci_plus_curves(values: Any, lags: int) -> dict[str, Any]:
    """PCMCI+ with Gaussian processes and distance correlations."""
    return pcmci_plus(values, lags, "gpdc.GPDC")


def varlingam(values: Any, lags: int) -> dict[str, Any]:
    """VARLiNGAM of lingam: the sizes of its weights, on standardised columns."""
    columns = np.array(values)
    columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    begun = time.process_time()
    model = import_module("lingam").VARLiNGAM(lags=lags, criterion=None, prune=True, random_state=0)
    model.fit(columns)
    seconds = time.process_time() - begun
    # Its matrices have the cause in the column.
    scores = np.abs(np.array(model.adjacency_matrices_)).transpose(0, 2, 1)
    return {"scores": scores.tolist(), "seconds": seconds, "package": "lingam"}


def _module(name: str) -> Any:
    return import_module(name)


def gcm_attribution(
    values: Any, names: Any, edges: Any, target: Any, rows: Any, linear: bool, seed: int
) -> dict[str, Any]:
    """Anomaly attribution of DoWhy's gcm with the true graph, and linear functions or boosted trees, as is right."""
    pandas, networkx, gcm = _module("pandas"), _module("networkx"), _module("dowhy.gcm")
    gcm.config.disable_progress_bars()
    gcm.config.set_default_n_jobs(1)
    gcm.util.general.set_random_seed(seed)
    table, graph = pandas.DataFrame(values, columns=names), networkx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from([tuple(edge) for edge in edges])
    begun = time.process_time()
    model = gcm.InvertibleStructuralCausalModel(graph)
    for name in names:
        if graph.in_degree(name) == 0:
            model.set_causal_mechanism(name, gcm.EmpiricalDistribution())
        else:
            regressor = gcm.ml.create_linear_regressor if linear else gcm.ml.create_hist_gradient_boost_regressor
            model.set_causal_mechanism(name, gcm.AdditiveNoiseModel(regressor()))
    gcm.fit(model, table)
    found = gcm.attribute_anomalies(
        model, target, anomaly_samples=pandas.DataFrame(rows, columns=names), num_distribution_samples=1000
    )
    shares = {str(name): np.asarray(own, dtype=float).tolist() for name, own in found.items()}
    return {"contributions": shares, "seconds": time.process_time() - begun, "package": "dowhy"}


PROGRAMS: dict[str, Any] = {
    "cdnod": cdnod,
    "fci": fci,
    "PCMCI+": pcmci_plus,
    "PCMCI+ (GPDC)": pcmci_plus_curves,
    "VARLiNGAM": varlingam,
    "gcm": gcm_attribution,
}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # the peers may print
    for line in sys.stdin:
        job = json.loads(line)
        found = PROGRAMS[job.pop("program")](**job)
        found["version"] = version(found.pop("package"))
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
