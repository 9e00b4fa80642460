"""How graphs with hidden causes are sampled: lengths and temperatures."""

from __future__ import annotations

from dataclasses import dataclass

from vcuda.errors import ConfigError


@dataclass(frozen=True)
class MixedGraphs:
    """How to sample graphs of directed and bidirected edges.

    Parameters
    ----------
    sweeps
        Every sweep draws the state of as many pairs as there are; the first quarter is dropped.
    replicas
        Independent ladders of chains; at least 2, since their disagreement says how far to trust the sampling.
    levels, hottest
        Number of temperatures in a ladder, and the inverse temperature of the hottest.
    kept
        Graphs that are kept of all replicas together.
    """

    sweeps: int = 1000
    replicas: int = 4
    levels: int = 4
    hottest: float = 0.25
    kept: int = 2000

    def __post_init__(self) -> None:
        for name, least in (("sweeps", 8), ("replicas", 2), ("levels", 1), ("kept", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.hottest <= 1:
            raise ConfigError(f"hottest is an inverse temperature above 0 and at most 1, got {self.hottest}")
