"""Single rows: what one row would have been, had a column been set, with the noise that it had.

For every drawn causal model the noise of a row is reconstructed from the row, columns are set, and what follows from
them is computed again with the same noise (Pearl's abduction, action, prediction). The noise of a number is known from
the row. That of a label or a count is a quantile, of which a value leaves an interval: one of it is drawn, so that what
is said of such a column is as uncertain as the row leaves it, given that quantiles are what stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from vcuda.arguments import check_draws, position, seed_of
from vcuda.data.categorical import number_label
from vcuda.data.messages import listed, nearest, shortened
from vcuda.errors import ConfigError, DataError
from vcuda.graphs import topological_order_edges
from vcuda.posterior.mechanisms import CausalModel
from vcuda.posterior.posterior import Posterior

# Causal models that are drawn.
DRAWS = 200
# What an interval leaves out at each end.
TAIL = 0.05


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """What a row would have been.

    ``table`` has a line for each column: ``observed``, ``counterfactual`` (the mean, or the most probable label),
    ``low`` and ``high`` (90 % of the causal models; for labels their names), and ``unchanged``, the probability that
    nothing would have changed. ``draws`` ``(s, d)`` are the counterfactual rows, codes in place of labels.
    """

    do: dict[str, Any]
    table: pd.DataFrame
    draws: np.ndarray
    notes: tuple[str, ...]
    caveat: str

    @property
    def sentence(self) -> str:
        """What would have changed, in words."""
        done = ", ".join(f"{name} = {_shown(value)}" for name, value in self.do.items())
        changed = self.table[(self.table.unchanged < 0.5) & ~self.table.index.isin(list(self.do))]
        if changed.empty:
            said = "most likely nothing else would have changed"
        else:
            said = "; ".join(
                f"{name} would have been {_shown(row.counterfactual)} and not {_shown(row.observed)}"
                + ("" if isinstance(row.low, str) else f" (90 % interval {_shown(row.low)} to {_shown(row.high)})")
                for name, row in changed.iterrows()
            )
        return f"Had {done} been set in this row, {said}. {self.caveat}"

    def __repr__(self) -> str:
        return f"<Counterfactual: {self.sentence}>"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{float(value):.4g}"


def counterfactual(
    posterior: Posterior, row: Any, *, do: Mapping[str, Any], draws: int | None = None, seed: int = 0
) -> Counterfactual:
    """What a row would have been, had columns been set to other values.

    Parameters
    ----------
    row
        A mapping, a pandas Series or a table of one row, with a value for every column.
    do
        The columns that are set, with their values in the units of the table.
    draws
        How many causal models, by default 200.
    """
    number = DRAWS if draws is None else draws
    check_draws(number)
    if not isinstance(do, Mapping) or not do:
        raise ConfigError('do says what is set, as in do={"dose": 20}')
    names = posterior.names
    observed = row_values(posterior, row)
    setting = {position(names, name): _code(posterior, position(names, name), value) for name, value in do.items()}
    rng = np.random.default_rng([seed_of(seed), 5])
    found, drawn_noise = [], set[int]()
    for model in posterior.graph_posterior.models(rng, names, number):
        changed, unknown = counterfactual_row(model, observed, setting, rng, names)
        found.append(changed)
        drawn_noise |= unknown
    every = np.array(found)
    return Counterfactual(
        dict(do),
        _table(posterior, observed, every),
        every,
        _notes(names, drawn_noise),
        posterior.caveat,
    )


def counterfactual_row(
    model: CausalModel,
    observed: np.ndarray,
    setting: Mapping[int, float],
    rng: np.random.Generator,
    names: Sequence[str] | None = None,
) -> tuple[np.ndarray, set[int]]:
    """The row ``(d,)`` under one model, in the user's units, and the columns whose noise was drawn."""
    row = model.scaling.apply(observed[None], names)[0]
    after = observed.copy()
    after[list(setting)] = list(setting.values())
    now = model.scaling.apply(after[None], names)[0]
    moved, unknown = set(setting), set[int]()
    for node in topological_order_edges(model.sources, model.targets, observed.size).tolist():
        parents = model.parents(node)
        if node in setting or not moved & set(parents.tolist()):
            continue
        mechanism = model.mechanism(node, parents)
        noise = mechanism.noise_of(row[None, parents], row[[node]], rng)
        now[node] = mechanism.with_noise(now[None, parents], noise)[0]
        moved.add(node)
        if not mechanism.noise_is_identified:
            unknown.add(node)
    follows = [node for node in moved if node not in setting]
    after[follows] = model.scaling.undo(now[None])[0, follows]
    return after, unknown


def row_values(posterior: Posterior, row: Any) -> np.ndarray:
    """One row ``(d,)`` as numbers, in the user's units; labels as codes."""
    if posterior.categories is not None and posterior.kinds is None:
        raise ConfigError(
            "model categorical has probabilities of labels, and no noise that a row could keep; fit model mixed "
            '(model="mixed", --model mixed) to ask about single rows'
        )
    if posterior.provenance.get("series"):
        raise ConfigError("single rows are answered for independent rows, and this is a fit of a time series")
    if isinstance(row, pd.DataFrame):
        if len(row) != 1:
            raise DataError(f"a row is asked for, and the table has {len(row):,}: give one of them, as table.iloc[[0]]")
        row = row.iloc[0]
    if isinstance(row, pd.Series):
        row = row.to_dict()
    if not isinstance(row, Mapping):
        raise DataError(
            f"a row is a mapping of columns to values, a Series or a table of one row, not {type(row).__name__}"
        )
    lacking = [name for name in posterior.names if name not in row]
    if lacking:
        raise DataError(
            f"the row has no value for {listed(lacking)}{nearest(lacking[0], map(str, row))}: all columns of the fit "
            "are needed to know its noise."
        )
    return np.array([_code(posterior, k, row[name]) for k, name in enumerate(posterior.names)])


def _code(posterior: Posterior, column: int, value: Any) -> float:
    """A value of a column as a number; of a label its code."""
    labels = None if posterior.categories is None else posterior.categories[column]
    name = posterior.names[column]
    if labels is not None:
        said = number_label(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
        if said not in labels:
            raise DataError(f"column {shortened(name)} has no label {shortened(said)}: they are {listed(labels)}.")
        return float(labels.index(said))
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DataError(f"column {shortened(name)} holds numbers, and this is {shortened(value)}.") from None
    if not np.isfinite(number):
        raise DataError(f"column {shortened(name)} is missing in the row: give all of its values.")
    return number


def _table(posterior: Posterior, observed: np.ndarray, draws: np.ndarray) -> pd.DataFrame:
    lines: list[dict[str, Any]] = []
    for k in range(observed.size):
        own, labels = draws[:, k], None if posterior.categories is None else posterior.categories[k]
        same = float(np.mean(np.isclose(own, observed[k], rtol=1e-9, atol=0.0)))
        if labels is None:
            low, high = np.quantile(own, [TAIL, 1 - TAIL])
            line = {"observed": observed[k], "counterfactual": own.mean(), "low": low, "high": high}
        else:
            counts = np.bincount(own.astype(np.int64), minlength=len(labels))
            order = np.argsort(own, kind="stable")
            ends = [labels[int(own[order[int(share * (own.size - 1))]])] for share in (TAIL, 1 - TAIL)]
            line = {"observed": labels[int(observed[k])], "counterfactual": labels[int(counts.argmax())]}
            line |= {"low": ends[0], "high": ends[1]}
        lines.append(line | {"unchanged": same})
    return pd.DataFrame(lines, index=pd.Index(posterior.names, name="column"))


def _notes(names: Sequence[str], drawn: set[int]) -> tuple[str, ...]:
    if not drawn:
        return ()
    which = listed([names[k] for k in sorted(drawn)])
    return (
        f"The noise of {which} is not known from the row: a value leaves an interval of quantiles, of which one was "
        "drawn for every model. That quantiles stay what they are is assumed.",
    )
