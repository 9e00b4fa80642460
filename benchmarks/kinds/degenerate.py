"""Edge probabilities of the degenerate Gaussian, the package's score for thousands of columns of any kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vcuda.dags.base import DagPrior
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.infer.orders import Orders, run_orders
from vcuda.models.mixed.screen import DegenerateGaussian

# Up to so many columns all graphs are counted.
EXACT_NODES = 12


def edge_probabilities(values: np.ndarray, kinds: Sequence[str], *, seed: int) -> tuple[np.ndarray, str]:
    """Those of every edge (d, d) of a table (n, d) in which labels are codes, under the usual prior, and the status:
    exact where that is quick, or by orders."""
    score = DegenerateGaussian(kinds=tuple(kinds)).prepare(values)
    prior = edge_prior(score.nodes, DagPrior.for_nodes(score.nodes).edge_probability)
    if score.nodes <= EXACT_NODES:
        found = exact_posterior(score, prior, samples=1, rng=np.random.default_rng(seed))
        return found.edge_probabilities, "ok"
    sampled = run_orders(Orders(), score, prior, samples=1, seed=seed)
    return sampled.edge_probabilities, sampled.status.code
