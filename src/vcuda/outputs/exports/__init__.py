"""A posterior, or one graph of it, handed on to other programs and libraries, and taken back from them.

What is taken back is a table of edges ``(d, d)``, as ``Posterior.edge_probabilities`` is: rows are sources, columns
are targets.
"""

from vcuda.outputs.exports.dags import AveragedEstimate, WeightedDag, average_over_dags, dowhy_estimate, weighted_dags
from vcuda.outputs.exports.dot import from_dot, to_dot
from vcuda.outputs.exports.edges import edge_table
from vcuda.outputs.exports.files import (
    FORMATS,
    STRUCTURES,
    from_bif,
    from_csv,
    from_dagitty,
    from_gml,
    from_graphml,
    from_json,
    from_tetrad,
    read_edges,
    to_bif,
    to_csv,
    to_dagitty,
    to_gml,
    to_graphml,
    to_json,
    to_tetrad,
    write_edges,
)
from vcuda.outputs.exports.libraries import (
    from_causal_learn,
    from_lingam,
    from_networkx,
    to_arviz,
    to_causal_learn,
    to_lingam,
    to_networkx,
    to_pgmpy,
    to_tigramite,
)

__all__ = [
    "FORMATS",
    "STRUCTURES",
    "AveragedEstimate",
    "WeightedDag",
    "average_over_dags",
    "dowhy_estimate",
    "edge_table",
    "from_bif",
    "from_causal_learn",
    "from_csv",
    "from_dagitty",
    "from_dot",
    "from_gml",
    "from_graphml",
    "from_json",
    "from_lingam",
    "from_networkx",
    "from_tetrad",
    "read_edges",
    "to_arviz",
    "to_bif",
    "to_causal_learn",
    "to_csv",
    "to_dagitty",
    "to_dot",
    "to_gml",
    "to_graphml",
    "to_json",
    "to_lingam",
    "to_networkx",
    "to_pgmpy",
    "to_tetrad",
    "to_tigramite",
    "weighted_dags",
    "write_edges",
]
