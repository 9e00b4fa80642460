"""4. POSTERIOR: graphs drawn, how they were made, how far to trust them."""

from vcuda.posterior.posterior import Posterior, Status
from vcuda.posterior.samples import GraphSamples

__all__ = ["GraphSamples", "Posterior", "Status"]
