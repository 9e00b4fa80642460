"""Which environment changed which column."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vcuda.arguments import number
from vcuda.errors import ConfigError
from vcuda.posterior.posterior import Posterior


def targets(posterior: Posterior, *, minimum: float = 0.0) -> pd.DataFrame:
    """The probability that each environment changed the mechanism of each column, the surest first.

    The sum over graphs of P(graph) P(change | graph): of the drawn graphs, with the change given each column's parents
    summed exactly.
    """
    made, found = posterior.provenance.get("contexts"), posterior.diagnostics.get("targets")
    if not made or found is None:
        raise ConfigError(
            "this posterior knows no environments; fit the table with contexts, the column that names the site or "
            'batch of each row: vcuda.fit(table, contexts="site")'
        )
    least = number("minimum", minimum)
    environments = [name for name in made["rows"] if name != made["reference"]]
    table = np.array(found, dtype=np.float64)
    rows, columns = np.nonzero(table >= least)
    order = np.argsort(-table[rows, columns], kind="stable")
    return pd.DataFrame(
        {
            "environment": np.array(environments, dtype=object)[rows[order]],
            "column": np.array(posterior.names, dtype=object)[columns[order]],
            "probability": table[rows[order], columns[order]],
        }
    )
