"""5. SUMMARIES: the questions that people ask of a posterior, one function each; `Posterior` has them as methods."""

from vcuda.summaries.categorical_effects import CategoryEffect
from vcuda.summaries.comparison import Comparison, compare
from vcuda.summaries.drivers import Driver, Drivers, drivers
from vcuda.summaries.effects import Effect, effect, effects
from vcuda.summaries.experiments import next_experiment
from vcuda.summaries.relations import Blanket, Paths, ancestor_probabilities, blanket, paths
from vcuda.summaries.simulated_effects import SimulatedEffect
from vcuda.summaries.structures import NamedGraph, best_graph, consensus, edge_types

# vcuda.summaries.why fits tables, and so it takes longer to load: it is imported when asked for.

__all__ = [
    "Blanket",
    "CategoryEffect",
    "Comparison",
    "Driver",
    "Drivers",
    "Effect",
    "NamedGraph",
    "Paths",
    "SimulatedEffect",
    "ancestor_probabilities",
    "best_graph",
    "blanket",
    "compare",
    "consensus",
    "drivers",
    "edge_types",
    "effect",
    "effects",
    "next_experiment",
    "paths",
]
