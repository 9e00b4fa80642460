"""4. POSTERIOR: graphs drawn, how they were made, how far to trust them; each name is imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcuda.posterior.posterior import Posterior as Posterior
    from vcuda.posterior.posterior import Status as Status
    from vcuda.posterior.samples import GraphSamples as GraphSamples

_HOME_OF = {"GraphSamples": "samples", "Posterior": "posterior", "Status": "posterior"}

__all__ = ["GraphSamples", "Posterior", "Status"]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"vcuda.posterior.{_HOME_OF[name]}"), name)
