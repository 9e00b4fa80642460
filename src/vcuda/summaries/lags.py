"""Questions about the lags of a time series."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vcuda.arguments import check_draws
from vcuda.errors import ConfigError
from vcuda.posterior.posterior import Posterior


def summary_graph(posterior: Posterior, *, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
    """The probability ``(d, d)`` that one column acts on another at any lag, by drawn graphs."""
    check_draws(draws)
    lagged = posterior.lagged
    if lagged is None:
        raise ConfigError("the rows were taken as independent, so there are no lags to sum up: fit with lags=")
    samples = posterior.sample(draws, seed=seed)
    shares = np.zeros((lagged.nodes, lagged.nodes))
    for k, weight in enumerate(samples.weights):
        sources, targets = samples.edges(k)
        there = np.zeros(shares.shape, dtype=bool)
        there[sources % lagged.nodes, targets] = True
        shares += weight * there
    # What single edges are known to have, the sum cannot have less of.
    shares = np.maximum(shares, lagged.by_lag(posterior.edge_probabilities.to_numpy()).max(axis=0))
    names = list(lagged.names)
    return pd.DataFrame(
        np.minimum(shares, 1.0), index=pd.Index(names, name="source"), columns=pd.Index(names, name="target")
    )


def refuse_lags(posterior: Posterior, question: str) -> None:
    """Refuse a question that means nothing where causes act with a delay."""
    if posterior.lagged is not None:
        raise ConfigError(
            f"{question} is for rows that are independent; of a time series ask edges(), summary_graph() or effect()"
        )
