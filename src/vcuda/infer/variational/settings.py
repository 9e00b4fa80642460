"""How the variational engine climbs: its spec, and the lengths, rates and sizes that follow from it for a score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcuda.errors import ConfigError
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.variational.edge_gains import Tiers
from vcuda.infer.variational.natural_gradient import Schedule
from vcuda.models.protocol import LocalScore
from vcuda.models.regressions import Regressions

SMALL = 20
LARGE = 500
# Steps at the end in which nothing moves, for the ELBO of what was learned.
STILL_STEPS = 32
# A restart that begins with an order learns its edges first; its order moves in the rest of the steps.
ORDER_WAITS = 0.4
LINEAR_PARENTS = 32
ADDITIVE_PARENTS = 5


@dataclass(frozen=True)
class Variational:
    """How the ELBO with integrated weights is climbed.

    Parameters
    ----------
    steps
        By default 600 for linear scores of more than 20 columns, and 300 otherwise.
    graph_samples
        K, the graphs drawn for each step.
    restarts
        Independent starts; by default 4 up to 20 columns and 2 above; 16 and 8 for BGe, which has more modes.
    constructed
        Whether the first restart begins with an order that is constructed from the table, where that can be done
        (equal noise); the others begin at random.
    learning_rate
        Adam's, for the order; it falls to a fiftieth in the second half.
    pairs
        Share of the pairs whose edges move in a step.
    first_rate, last_rate
        r, how far they move: from the first to the last step.
    first_temper, tempered
        b at the first step (by default .3 / n for linear and 1 / n for additive scores), and the share of the steps
        after which it is 1.
    max_parents
        Most parents of a node in a drawn graph; by default 32 for linear and 5 for additive scores. If there are
        more, the least sure are left out, and the status says so.
    """

    steps: int | None = None
    graph_samples: int = 2
    restarts: int | None = None
    constructed: bool = True
    learning_rate: float = 0.05
    pairs: float = 0.3
    first_rate: float = 0.3
    last_rate: float = 0.03
    first_temper: float | None = None
    tempered: float = 0.8
    max_parents: int | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "graph_samples", "restarts", "max_parents"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        for name in ("learning_rate", "pairs", "first_rate", "last_rate", "first_temper", "tempered"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ConfigError(f"{name} must lie above 0 and be at most 1, got {value}")


def tiers_of(spec: Variational, table: Regressions, nodes: int, prior: EdgePrior) -> Tiers:
    """How many parents there is room for in most nodes, and in the few with more."""
    linear = table.block == 1
    narrow, wide = (8, LINEAR_PARENTS) if linear else (3, ADDITIVE_PARENTS)
    # There must be room for all that is required.
    most = int(prior.required.sum(axis=0).max())
    narrow, wide = max(narrow, most), max(min(spec.max_parents or wide, nodes - 1), most)
    if linear and nodes - 1 <= 16:
        return Tiers(0, max(wide, 1), nodes)
    return Tiers(max(min(narrow, wide), 1), max(wide, 1), min(nodes, max(nodes // 8, 8 if linear else 3)))


def schedule_of(
    spec: Variational, score: LocalScore, steps: int, restarts: int, nodes: int, *, ordered: int
) -> Schedule:
    """Temperatures and rates of all steps; the first ``ordered`` restarts begin with an order."""
    done = np.arange(steps) / steps
    waiting = np.maximum(0.0, 1 - done / spec.tempered)
    coldest = min(1.0, spec.first_temper or (0.3 if score.linear else 1.0) / score.parts[0].rows)
    temper = np.repeat((coldest**waiting)[:, None], restarts, axis=1)
    speed = np.repeat(spec.learning_rate * (0.02 ** np.maximum(0.0, 2 * done - 1))[:, None], restarts, axis=1)
    temper[:, :ordered] = 1.0
    speed[:, :ordered] *= 0.5 * (done >= ORDER_WAITS)[:, None]
    still = [(0, STILL_STEPS)]
    return Schedule(
        temper=np.pad(temper, [*still, (0, 0)], constant_values=1.0),
        speed=np.pad(speed, [*still, (0, 0)]),
        edge_temper=np.pad((0.01 if nodes >= LARGE else 1.0) ** waiting, still, constant_values=1.0),
        rate=np.pad(spec.first_rate * (spec.last_rate / spec.first_rate) ** done, still),
        noise=np.pad(np.where(done >= 0.6, 0.3, 0.0), still),
    )
