"""How many edges are expected, where nobody said it: as many as make the table most probable.

A prior that expects one cause for each column holds weak edges to be none. In a table where most columns hang together
the best graphs are then the ones that save edges, and their directions are sure and wrong.
"""

from __future__ import annotations

from vcuda.dags.base import DagPrior

# The odds of every edge are so many times those that were expected.
TIMES = (1, 4, 16)
# In tables of more columns one search takes long, and edges are few.
MOST_COLUMNS = 60


def denser(prior: DagPrior, times: float) -> DagPrior:
    """The prior with so many times the odds of an edge."""
    odds = times * prior.edge_probability / (1 - prior.edge_probability)
    return prior if times == 1 else DagPrior(odds / (1 + odds), prior.order_scale)


def in_words(prior: DagPrior, columns: int) -> str:
    """What was learned of the number of edges."""
    expected = prior.edge_probability * (columns - 1) / 2
    return f"The table has more edges than was expected: {expected:.1f} causes for each column rather than one."
