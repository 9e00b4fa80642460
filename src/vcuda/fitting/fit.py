"""``fit``: from a table to a posterior over causal graphs, in one call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np

from vcuda.baselines import BASELINES
from vcuda.checks.findings import Checks
from vcuda.cluster import as_workers
from vcuda.dags.base import DagPrior, GraphPrior
from vcuda.data.dataset import Dataset
from vcuda.data.interventions import in_words
from vcuda.data.series.clock import index_as_column
from vcuda.data.streaming import StreamedTable
from vcuda.errors import ConfigError, ConvergenceWarning, ModelCheckWarning
from vcuda.fitting.checking import checks_of_fit
from vcuda.fitting.contexts import changes_in_words, check_contexts, fit_contexts
from vcuda.fitting.design import design_to_dict, rules_of_design
from vcuda.fitting.hidden import check_hidden, fit_hidden
from vcuda.fitting.imputed import Asked, Route, fit_imputed
from vcuda.fitting.kinds import resolve_kinds, takes_sets
from vcuda.fitting.mixed import MOST_COLUMNS, fit_mixed
from vcuda.fitting.names import check_table_names
from vcuda.fitting.notebook import progress_below_the_cell
from vcuda.fitting.numbers import fit_numbers
from vcuda.fitting.parts import Careful, carefully
from vcuda.fitting.resuming import as_checkpoint, keeping
from vcuda.fitting.robust import care_for, stated_carefully
from vcuda.fitting.routes import Request, fit_baseline, fit_by_gradient, fit_scored, reading, subsamples_of
from vcuda.fitting.series import edges_of_series, fit_series, open_series
from vcuda.fitting.spec import FitCall, FitSpec, takes_options
from vcuda.fitting.targets import KEY, contexts_to_dict
from vcuda.fitting.upstream import check_upstream, obeying, sentence_of
from vcuda.infer.blas import one_blas_thread
from vcuda.infer.checkpoint import NO_CHECKPOINT
from vcuda.infer.compilation import bounded_programs
from vcuda.infer.edge_prior import prior_of_rules
from vcuda.infer.exact import TimeLimitError
from vcuda.infer.progress import Progress, silent
from vcuda.infer.selection import density
from vcuda.infer.straight_through import StraightThrough
from vcuda.infer.variational import Variational
from vcuda.infer.workers import mapped_by
from vcuda.models import FAMILIES, MODELS
from vcuda.models.linear import BGe
from vcuda.models.mixed.spec import Mixed
from vcuda.models.protocol import ScoreSpec
from vcuda.posterior import Posterior
from vcuda.posterior.mixed_graphs import HiddenCausesPosterior
from vcuda.posterior.posterior import Outcome
from vcuda.posterior.provenance import Provenance
from vcuda.posterior.sampled import SampledGraphs


@takes_options(FitCall)
def fit(data: Any, call: FitCall) -> Posterior:
    """Learn which variable causes which, and how sure that is.

    Parameters
    ----------
    data
        A path (CSV, Excel, Parquet, JSON, SPSS, Stata, SAS, SQLite, DuckDB and others: docs/files.md; a folder of CSV
        or Parquet files), ``"-"`` for standard input, the address of a database, a pandas, Polars, Arrow or Dask table,
        an array, a :class:`Dataset`, or the name of a bundled table (``"sachs"``).
    {options}

    Returns
    -------
    Posterior
        An interrupt from the keyboard ends the fit early and returns what is there, with status ``interrupted``.
    """
    as_checkpoint(call.checkpoint, call.resume)  # refused before the table is read
    mapped = mapped_by(as_workers(call.client))
    if call.lags is not None and call.time is None and (indexed := index_as_column(data)) is not None:
        data, call = indexed[0], replace(call, time=indexed[1])
    with progress_below_the_cell(call.progress) as progress:
        table = call.open(data, on_progress=reading(progress), mapped=mapped)
        return fit_table(table, replace(call, progress=progress))


def fit_table(table: Dataset | StreamedTable, call: FitCall) -> Posterior:
    """Fit a table that was opened by ``call.open``."""
    workers, kept_in = as_workers(call.client), as_checkpoint(call.checkpoint, call.resume)
    progress = call.progress or silent
    if _is_baseline(call.engine):
        _check_baseline(call, table)
    else:
        _check_engine(call)
    check_table_names(call, table)
    if call.hidden:
        check_hidden(call, table)
    given, row_sentences = table, []
    series = None
    if call.lags is not None:
        series = open_series(table, call)
        table, row_sentences = series.table, list(series.sentences)
    elif isinstance(table, StreamedTable) and not _needs_no_rows(call):
        table = table.sample_to_fit()
        row_sentences = [f"This model needs rows: it was fitted to {table.n:,} of {given.n:,}, drawn at random."]
    table, model, kind_sentences = resolve_kinds(table, call)
    graph_prior = _prior(call, given.d)
    known: Any = call.knowledge
    marked = None if call.log is None else _marked(call.log, given.names)
    log = None if marked is None else [name for name, taken in zip(given.names, marked, strict=True) if taken]
    if series is not None:
        assert isinstance(table, Dataset)
        edges = edges_of_series(replace(series, table=table), call, graph_prior, given.left_out)
    else:
        probability = graph_prior.edge_probability
        rules = known.for_columns(table.names, edge_probability=probability, left_out=table.left_out) if known else None
        edges = prior_of_rules(table.d, probability, rules_of_design(table, rules), over=graph_prior.over)
    spec = call.resolved(model=model, prior=graph_prior, log=log)
    assert spec.seed is not None  # None has drawn one
    started = time.perf_counter()
    found = versions()
    arguments = {"data": given.fingerprint, "streamed": isinstance(given, StreamedTable), **spec.deciding()}
    asked, route = Asked(model, spec.noise, spec.engine), _route(spec)
    if spec.robust:
        _check_robust(spec, table)
    by_sampling = route is fit_by_scores and not _is_variational(spec.engine)
    check_contexts(spec, table.contexts, by_scores=by_sampling)
    check_upstream(spec, by_sampling=by_sampling)
    with keeping(kept_in, arguments, found) as kept, one_blas_thread(), bounded_programs():
        deadline = None if spec.time_limit is None else time.monotonic() + spec.time_limit - kept.spent_before
        request = Request(
            table=table,
            spec=spec,
            edges=edges,
            logarithm=marked,
            standardise=spec.standardise,
            seed=spec.seed,
            progress=progress,
            deadline=deadline,
            checkpointer=kept.checkpointer,
            workers=workers,
            parts=_parts(spec, given.d),
            series=series,
            careful=Careful() if spec.robust else None,
            learns_density=call.prior is None and call.preset != "paper" and series is None,
            scored={},
        )
        outcome, info = _routed(request, route, asked)
        kept.status = outcome.status
    notes = [*table.notes, *info.pop("notes", ())]
    info["choice"]["sentences"][:0] = kind_sentences + row_sentences
    if known:
        info["choice"]["sentences"].append(known.sentence())
        if known.upstream:
            info["choice"]["sentences"].append(sentence_of(known, outcome))
    info["choice"]["sentences"] += in_words(table.design, table.names)
    if table.contexts is not None and KEY in outcome.diagnostics:
        changed = changes_in_words(table.contexts, table.names, np.array(outcome.diagnostics[KEY]))
        info["choice"]["sentences"].append(changed)
    times = info.pop("odds_times", 1)
    if times > 1:
        assert isinstance(graph_prior, DagPrior)
        learned = density.denser(graph_prior, times)
        spec = spec.resolved(prior=learned)
        info["choice"]["sentences"].append(density.in_words(learned, table.d))
    passed = spec.resolved(prior=None) if _is_baseline(spec.engine) else spec
    provenance = Provenance(
        {
            **info,
            **passed.to_provenance(),
            "interventions": design_to_dict(table),
            "contexts": contexts_to_dict(given.contexts),
            "data": {
                "source": given.source,
                "fingerprint": given.fingerprint,
                "rows": given.n,
                "columns": given.d if series is not None else table.d,
                **given.choice.to_dict(),
                **({"kinds": call.kinds} if call.kinds else {}),
                "notes": notes,
            },
            **({} if series is None else {"series": series.to_dict()}),
            "versions": found,
            "seconds": kept.seconds_before + time.perf_counter() - started,
            **kept.to_dict(),
        }
    )
    kind = HiddenCausesPosterior if spec.hidden else Posterior
    posterior = kind(
        names=table.names,
        graph_posterior=outcome.graph_posterior,
        status=outcome.status,
        diagnostics=outcome.diagnostics,
        trace=outcome.trace,
        provenance=provenance,
    )
    posterior = _careful(_checked(posterior, request), request, route, asked)
    status = posterior.status
    for part, category in ((status.arithmetic, ConvergenceWarning), (status.description, ModelCheckWarning)):
        if part.severity:
            warnings.warn(part.sentence, category, stacklevel=4)
    return posterior


def _careful(posterior: Posterior, request: Request, route: Route, asked: Asked) -> Posterior:
    """The posterior, or what small parts of the rows agree on where the checks ask for it and time is left."""
    table, left = request.table, request.seconds_left()
    has_graphs = isinstance(posterior.graph_posterior, SampledGraphs)
    if not (isinstance(table, Dataset) and has_graphs and _may_be_careful(request.spec)):
        return posterior
    careful = care_for(posterior.checked, table)
    if careful is None or careful == request.careful or (left is not None and left <= 0):
        return posterior
    try:
        with one_blas_thread(), bounded_programs():
            again, _ = _routed(request._replace(careful=careful, checkpointer=NO_CHECKPOINT), route, asked)
        return _checked(stated_carefully(posterior, again, careful), request)
    except (KeyboardInterrupt, TimeLimitError):
        request.progress(Progress(1, 1, "stopped: what all rows say is kept"))
        return posterior


def _checked(posterior: Posterior, request: Request) -> Posterior:
    """The posterior with what the model checks found; an interrupt ends the checks, and keeps the fit."""
    code = posterior.status.arithmetic.code
    why = "the fit was interrupted" if code == "interrupted" else "the fit failed" if code == "failed" else ""
    if not request.spec.checks:
        why = "they were not asked for"
    if not why:
        try:
            with one_blas_thread():
                request.progress(Progress(1, 1, "checking the model"))
                return posterior.with_checks(checks_of_fit(posterior, request.table, request.edges))
        except KeyboardInterrupt:
            why = "they were interrupted"
    return posterior.with_checks(Checks(not_made=f"{why}; posterior.checks(table) makes them"))


def _check_robust(spec: FitSpec, table: Dataset | StreamedTable) -> None:
    if _route(spec) is not fit_by_scores or _is_variational(spec.engine):
        raise ConfigError("robust=True averages drawn graphs of engines exact and orders; leave it out for others")
    if isinstance(table, StreamedTable):
        raise ConfigError("robust=True takes parts of the rows: use streamed=False (--in-memory) to have them at hand")


def _parts(spec: FitSpec, columns: int) -> int:
    """Parts of the rows whose answers are averaged."""
    if spec.subsamples is not None:
        return spec.subsamples
    return 0 if spec.robust is False else subsamples_of(columns)


def _may_be_careful(spec: FitSpec) -> bool:
    """Whether the checks may ask for another fit: of models with scores, unless that was declined."""
    return spec.robust is not False and spec.subsamples is None and spec.lags is None and _route(spec) is fit_by_scores


def _routed(request: Request, route: Route, asked: Asked) -> tuple[Outcome, dict[str, Any]]:
    if request.table.missing is None:
        return route(request, *asked)
    by_evidence = asked.model == "auto" and request.spec.preset != "paper"
    return fit_imputed(request, route, asked, count=request.spec.imputations, by_evidence=by_evidence)


def _needs_no_rows(spec: FitSpec) -> bool:
    """Whether statistics of the table are enough."""
    if _is_baseline(spec.engine) or spec.preset == "paper" or _is_gradient_trained(spec.model, spec.engine):
        return False
    if spec.contexts is not None:
        # The moments of each environment are kept, and no products of features.
        return spec.model in ("auto", "linear") or isinstance(spec.model, BGe)
    if isinstance(spec.model, str):
        return spec.model == "auto" or (spec.model in FAMILIES and FAMILIES[spec.model].usual.streams)
    return isinstance(spec.model, ScoreSpec) and spec.model.streams


def _route(spec: FitSpec) -> Route:
    """The way from a request to an outcome, the same for all imputed tables."""
    preset = spec.preset
    if spec.hidden:
        return fit_hidden
    if _is_baseline(spec.engine):
        return lambda request, model, noise, engine: fit_baseline(request, model, engine, preset)
    if preset == "paper" or _is_gradient_trained(spec.model, spec.engine):
        return lambda request, model, noise, engine: fit_by_gradient(request, model, noise, engine, preset)
    return fit_by_scores


def fit_by_scores(request: Request, model: Any, noise: Any, engine: Any) -> tuple[Outcome, dict[str, Any]]:
    """By local scores, obeying what is known to be upstream."""
    outcome, info = _fit_by_scores(request, model, noise, engine)
    return obeying(outcome, request.knowledge, request.table.names), info


def _fit_by_scores(request: Request, model: Any, noise: Any, engine: Any) -> tuple[Outcome, dict[str, Any]]:
    """By local scores: of a model that was asked for, or of what the kinds of the columns and the data support."""
    if request.series is not None:
        return fit_series(request, model, noise, engine)
    if request.table.contexts is not None:
        return fit_contexts(request, model, noise, engine)
    if model == "mixed" or isinstance(model, Mixed):
        return fit_mixed(request, model, noise, engine)
    open_choice = model == "auto" and noise is None and not request.standardise
    if open_choice and request.table.d <= MOST_COLUMNS and takes_sets(engine):
        return fit_numbers(request, model, noise, engine)
    return carefully(request, lambda one: fit_scored(one, model, noise, engine))


def versions() -> dict[str, str]:
    """Of everything that may change a number."""
    packages = ("vcuda", "jax", "jaxlib", "numpy", "scipy", "optax", "numba")
    return {"python": python_version(), **{package: version(package) for package in packages}}


def _check_engine(spec: FitSpec) -> None:
    model, engine, preset = spec.model, spec.engine, spec.preset
    by_gradient = isinstance(engine, StraightThrough) or engine == "straight-through" or preset == "paper"
    if by_gradient and not isinstance(model, (str, *MODELS.values())):
        raise ConfigError(f"engine straight-through takes a spec such as Linear() or MLP(), not {type(model).__name__}")
    if not by_gradient and engine != "auto" and isinstance(model, tuple(MODELS.values())):
        raise ConfigError(
            f"{type(model).__name__}() is trained by gradient: use engine straight-through, or model linear, gp or "
            "additive"
        )
    over = getattr(spec.prior, "over", "orders")
    if over == "graphs" and (preset == "paper" or _is_gradient_trained(model, engine) or _is_variational(engine)):
        named = "variational" if _is_variational(engine) else "straight-through"
        raise ConfigError(
            f"engine {named} learns orders of the columns, so it takes no uniform prior over DAGs; use engine exact or "
            "orders with a model such as linear, or a prior over orders, such as prior=0.1"
        )
    if preset == "paper" and not (engine in ("auto", "straight-through") or isinstance(engine, StraightThrough)):
        raise ConfigError("preset paper belongs to engine straight-through and to the methods that it is compared with")


def _check_baseline(spec: FitSpec, table: Dataset | StreamedTable) -> None:
    """Other methods have noise and prior of their own, and a spec says all of their model."""
    engine: Any = spec.engine
    name = engine if isinstance(engine, str) else engine.name
    for given, fault in (
        (bool(spec.knowledge), "cannot obey knowledge: leave it out"),
        (table.design is not None, "knows nothing of interventions: leave them out"),
    ):
        if given:
            raise ConfigError(f"engine {name} {fault}, or use engine exact, orders, variational or straight-through")
    if spec.noise is not None or spec.prior is not None:
        setting = "noise" if spec.noise is not None else "prior"
        raise ConfigError(
            f"this method has a {setting} of its own; leave it out, or give a spec such as "
            "vcuda.baselines.Dibs.corrected(...)"
        )
    known = ("auto", *(BASELINES[engine].spec.models if isinstance(engine, str) else ()))
    if not isinstance(spec.model, str) or spec.model not in known:
        asked = spec.model if isinstance(spec.model, str) else type(spec.model).__name__
        raise ConfigError(f"engine {name} takes model {', '.join(known)}, not {asked!r}")


def _is_baseline(engine: Any) -> bool:
    kinds = tuple(method.spec for method in BASELINES.values())
    return engine in BASELINES if isinstance(engine, str) else isinstance(engine, kinds)


def _is_variational(engine: Any) -> bool:
    return isinstance(engine, Variational) or engine == "variational"


def _marked(log: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """The named columns as (d,) booleans."""
    for name in log:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; they are {', '.join(names[:10])}"
            raise ConfigError(f"log names {name!r}, which is no column{meant}")
    return np.isin(np.array(names, dtype=object), np.array(log, dtype=object))


def _is_gradient_trained(model: Any, engine: Any) -> bool:
    """Whether the functions are trained rather than integrated out."""
    if isinstance(engine, StraightThrough) or engine == "straight-through":
        return True
    return engine == "auto" and (model == "mlp" or isinstance(model, tuple(MODELS.values())))


def _prior(spec: FitSpec, columns: int) -> GraphPrior:
    if isinstance(spec.prior, float):
        return DagPrior(edge_probability=spec.prior)
    if spec.prior is not None:
        assert not isinstance(spec.prior, str)  # the check of the option made it a spec
        return spec.prior
    return DagPrior(edge_probability=0.1) if spec.preset == "paper" else DagPrior.for_nodes(columns)
