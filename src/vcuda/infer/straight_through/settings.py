"""How the paper's engine climbs the ELBO: its spec, and presets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from vcuda.dags.base import DagDistribution
from vcuda.dags.priority import PriorityDags
from vcuda.data.scaling import ColumnScaling
from vcuda.errors import ConfigError
from vcuda.models.functional.base import FunctionalModel
from vcuda.models.protocol import Noise

ScalingRule = Literal["auto", "raw", "common", "columns"]
Validation = Literal["averaged", "authors"]


@dataclass(frozen=True)
class StraightThrough:
    """How the ELBO is climbed; presets are :meth:`for_rows` and :meth:`paper`.

    Parameters
    ----------
    dags
        The family of distributions over DAGs, with its temperatures and its straight-through variant.
    epochs, batch_size
        Passes over the training rows, and rows a step (None: all of them).
    graph_samples
        K, the graphs drawn for each step; the variance of the gradient falls with 1/K.
    restarts
        Independent starts, trained in parallel and mixed with weights softmax(ELBO).
    kl_weight
        Weight of the KL terms against the likelihood of all rows. 1 is the ELBO with the functions' weights taken as
        known; because they are fitted to the same rows, a false edge then gains more than it costs, and 5 ranks edges
        better. ``"batch"`` is n / (2 batch_size), which is what the authors' program does without saying so.
    learning_rate, graph_learning_rate
        Adam's, for the functions and for everything else.
    final_learning_rate
        The share of both that is left at the last epoch, falling along a cosine; 1 keeps them.
    weight_decay
        Coupled L2 on the functions (added to the gradient, as in Adam and not AdamW).
    validation_share, check_every, patience
        Rows held out, epochs between two looks at them, and looks without a better value before a restart stops.
    validation
        ``"averaged"`` estimates the ELBO of the held-out rows with ``validation_graphs`` graphs and the same random
        numbers each time, and keeps the best state; ``"authors"`` takes one fresh graph and keeps the last state.
    scaling
        What is done to the columns first: nothing (``raw``), one factor for all (``common``), or z-scores
        (``columns``). ``auto`` takes what leaves the model's noise assumption true: raw for unit noise, common for
        equal, columns for unequal.
    """

    dags: DagDistribution[Any] = field(default_factory=PriorityDags)
    epochs: int = 500
    batch_size: int | None = 64
    graph_samples: int = 2
    restarts: int = 4
    kl_weight: float | Literal["batch"] = 5.0
    learning_rate: float = 5e-3
    graph_learning_rate: float = 1e-2
    final_learning_rate: float = 1.0
    weight_decay: float = 1e-4
    validation_share: float = 0.1
    validation_graphs: int = 16
    validation: Validation = "averaged"
    check_every: int = 10
    patience: int = 10
    scaling: ScalingRule = "auto"

    def __post_init__(self) -> None:
        positive = ("epochs", "graph_samples", "restarts", "validation_graphs", "check_every", "patience")
        for name in positive:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, or None for all rows, not {self.batch_size}")
        if not 0 < self.validation_share < 1:
            raise ConfigError(f"validation_share must lie between 0 and 1, not {self.validation_share}")
        if self.kl_weight != "batch" and not (isinstance(self.kl_weight, int | float) and self.kl_weight >= 0):
            raise ConfigError(f"kl_weight must be a number of at least 0, or 'batch', not {self.kl_weight!r}")
        if self.validation not in get_args(Validation) or self.scaling not in get_args(ScalingRule):
            raise ConfigError(
                f"validation must be one of {get_args(Validation)} and scaling one of {get_args(ScalingRule)}"
            )

    @classmethod
    def for_rows(cls, rows: int) -> StraightThrough:
        """Preset ``default``: about 14 steps an epoch, however long the table."""
        return cls(batch_size=max(64, rows // 14))

    @classmethod
    def paper(cls, *, batch_size: int = 64, **changes: Any) -> StraightThrough:
        """The authors' program: 64 rows a step made their linear figures, 256 their nonlinear ones and Sachs."""
        authors: dict[str, Any] = {
            "batch_size": batch_size,
            "graph_samples": 1,
            "restarts": 1,
            "kl_weight": "batch",
            "validation": "authors",
        }
        return cls(**authors | changes)


def scaling_rule(engine: StraightThrough, model: FunctionalModel) -> ColumnScaling:
    """What is done to the columns first."""
    if engine.scaling != "auto":
        return engine.scaling
    natural: dict[Noise, ColumnScaling] = {"unit": "raw", "equal": "common", "unequal": "columns"}
    return natural[model.noise]


def rate_at(engine: StraightThrough, share_done: float) -> float:
    """The share of the learning rates when a share of the epochs is done."""
    cosine = 0.5 * (1 + np.cos(np.pi * share_done))
    return engine.final_learning_rate + (1 - engine.final_learning_rate) * cosine
