"""``fit(hidden=True)``: a posterior over graphs in which hidden variables may cause two columns."""

from __future__ import annotations

from typing import Any

from vcuda.data.dataset import Dataset
from vcuda.data.messages import listed
from vcuda.data.streaming import StreamedTable
from vcuda.errors import ConfigError
from vcuda.fitting.routes import Request
from vcuda.fitting.spec import FitSpec
from vcuda.infer.driver import run
from vcuda.infer.engine import Problem
from vcuda.infer.method import Method
from vcuda.models import FAMILIES
from vcuda.posterior.posterior import Outcome
from vcuda.specs import to_json

MOST_COLUMNS = 15
METHOD = Method(
    "vcuda.infer.admg", "MixedGraphs", "MixedGraphSampling", "tempered sampling over graphs with hidden causes"
)
SENTENCE = (
    "Hidden causes are allowed for: graphs have directed edges and bidirected ones, which stand for a hidden cause of "
    "two columns; functions are linear and noise is normal."
)


def check_hidden(spec: FitSpec, table: Dataset | StreamedTable) -> None:
    """Refuse what a fit with hidden causes cannot take, before any work is done."""
    if table.d > MOST_COLUMNS:
        raise ConfigError(
            f"a fit with hidden causes (hidden=True, --hidden) takes at most {MOST_COLUMNS} columns, and the table has "
            f"{table.d:,}: choose some (columns=, --columns), or fit without it and read the column "
            "holds_with_hidden_causes of posterior.edges() (vcuda edges) and posterior.sensitivity(cause, outcome) "
            "(vcuda sensitivity)"
        )
    coded = [
        name for name, kind in zip(table.names, table.kinds, strict=True) if kind in ("label", "yes/no", "ordered")
    ]
    if coded:
        raise ConfigError(
            "a fit with hidden causes (hidden=True, --hidden) is for numbers with normal noise; leave out columns of "
            f"labels, of levels and of yes and no (--exclude): {listed(coded)}"
        )
    for given, words in (
        (table.missing is not None, "missing values: leave those rows out, or impute them first"),
        (table.design is not None, "interventions: fit the rows that were only observed"),
        (spec.lags is not None, "lags: fit rows that are independent"),
        (table.contexts is not None, "contexts: fit one environment by itself"),
        (spec.model not in ("auto", "linear"), f"model {spec.model!r}: its functions are linear"),
        (spec.noise not in (None, "unequal"), f"noise {spec.noise!r}: every column has its own"),
        (spec.engine != "auto", "another engine: leave engine out"),
        (spec.preset != "default", "a preset: leave it out"),
        (bool(spec.robust), "robust=True: leave it out"),
    ):
        if given:
            raise ConfigError(f"a fit with hidden causes (hidden=True, --hidden) does not go with {words}")


def fit_hidden(request: Request, model: Any, noise: Any, engine: Any) -> tuple[Outcome, dict[str, Any]]:
    """Sample graphs with directed and bidirected edges."""
    family = FAMILIES["linear"]
    spec = family.spec_for("unequal")
    scored, settings = request.prepared(spec), METHOD.spec()
    problem = Problem.of_score(scored, seed=request.seed, edges=request.edges, prior=request.prior)
    outcome = run(
        METHOD,
        settings,
        problem,
        progress=request.progress,
        deadline=request.deadline,
        checkpointer=request.checkpointer.scope("hidden causes"),
    )
    logarithm = [name for name, taken in zip(request.table.names, scored.units.logarithm, strict=True) if taken]
    return outcome, {
        "engine": {"name": "admg", **to_json(settings)},
        "model": {"name": "linear", "noise": "unequal", "score": "BIC"},
        "logarithm": logarithm,
        "choice": {"sentences": [SENTENCE]},
    }
