"""The posterior without approximation, by dynamic programming over sets of nodes, for up to about 20 columns.

``engine`` puts together: ``lattice``, sums over sets; ``noise_grid``, a shared unknown noise variance; ``drawing``,
independent orders and graphs; ``limits``, memory and time told beforehand.
"""

from vcuda.infer.exact.engine import Counting, Exact, ExactResult, exact_posterior
from vcuda.infer.exact.limits import TimeLimitError, gigabytes_in_words, gigabytes_needed, memory_needed, seconds_needed
from vcuda.models.protocol import RoundingError

__all__ = [
    "Counting",
    "Exact",
    "ExactResult",
    "RoundingError",
    "TimeLimitError",
    "exact_posterior",
    "gigabytes_in_words",
    "gigabytes_needed",
    "memory_needed",
    "seconds_needed",
]
