"""``fit``: from a table to a posterior over causal graphs, in one call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version
from os import PathLike
from platform import python_version
from typing import Any, Literal

import numpy as np

from vcuda.baselines import BASELINES, BaselineSpec
from vcuda.cluster import as_workers
from vcuda.dags.base import DagPrior
from vcuda.data.columns import ColumnChoice
from vcuda.data.dataset import Dataset
from vcuda.data.interventions import in_words
from vcuda.data.knowledge import Knowledge, as_knowledge
from vcuda.data.streaming import StreamedTable, open_table
from vcuda.errors import ConfigError, ConvergenceWarning
from vcuda.fitting.categorical import resolve_categorical
from vcuda.fitting.design import design_to_dict, rules_of_design
from vcuda.fitting.imputed import Asked, Route, check_imputations, fit_imputed
from vcuda.fitting.resuming import as_checkpoint, keeping
from vcuda.fitting.routes import ENGINES, STREAMED, Engine, Request, fit_baseline, fit_by_gradient, fit_scored, reading
from vcuda.infer.blas import one_blas_thread
from vcuda.infer.checkpoint_files import Checkpoint
from vcuda.infer.compilation import bounded_programs
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.infer.scored import SCORES
from vcuda.infer.straight_through import StraightThrough
from vcuda.infer.workers import mapped_by
from vcuda.models import MODELS
from vcuda.models.base import FunctionalModel, Noise, check_noise
from vcuda.models.scores import ScoreSpec
from vcuda.posterior import Posterior
from vcuda.specs import to_json

Preset = Literal["default", "paper"]
ENGINE_NAMES = ("auto", *ENGINES, *BASELINES)
MODEL_NAMES = ("auto", *MODELS, *SCORES)


def fit(
    data: Any,
    *,
    model: str | FunctionalModel | ScoreSpec = "auto",
    noise: Noise | None = None,
    logarithm: Sequence[str] | None = None,
    prior: float | DagPrior | None = None,
    knowledge: Knowledge | str | PathLike[str] | None = None,
    interventions: Any = None,
    columns: Sequence[str] | None = None,
    without: Sequence[str] | None = None,
    engine: str | Engine = "auto",
    preset: Preset = "default",
    standardise: bool = False,
    imputations: int = 10,
    streamed: bool | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    progress: ProgressCallback = silent,
    checkpoint: str | PathLike[str] | Checkpoint | None = None,
    resume: bool = False,
    client: Any = None,
) -> Posterior:
    """Learn which variable causes which, and how sure that is.

    Parameters
    ----------
    data
        A path (CSV, TSV, Parquet, Feather, or a folder of such files), a pandas, Polars, Arrow or Dask table, an array,
        a :class:`Dataset`, or the name of a bundled table (``"sachs"``).
    model
        ``"auto"`` lets the evidence decide between the others; ``"linear"``; ``"gp"``, a smooth function of all causes
        together; ``"additive"``, a sum of smooth functions of single causes; ``"mlp"``, trained by gradient; or a spec
        such as ``MLP(hidden=(64,))`` or ``BGe()``. A table of categories has model ``"discrete"``, a distribution for
        every combination of the causes' labels; asked for by name it takes each different number for a category.
    noise
        ``"unit"``, ``"equal"`` or ``"unequal"`` noise variances; only with a model given by name. With ``"auto"`` the
        evidence decides; otherwise unequal, which does not depend on the units of the columns; preset ``paper`` has
        unit noise.
    logarithm
        Names of columns that are taken by their logarithm; ``()`` for none. By default the evidence decides with
        model ``"auto"``, and none with any other.
    prior
        The probability of an edge between two variables when the order allows it, or a :class:`DagPrior`. By default
        one expected parent a variable.
    knowledge
        What is known of the graph, by column name: a :class:`Knowledge`, or the path of a .toml or .csv file with it.
        Every graph obeys; what contradicts itself is refused before the fit.
    interventions
        Which cells an experiment set: the name of a column that says for each row what was set (nothing, one variable
        or several), or a mask of the table's shape. Such a cell tells nothing of its own causes. What was set in every
        row has no causes.
    columns, without
        Names of the columns to take, or of those to leave out, such as an identifier or a date; by default all are
        taken. The others are neither read nor checked. The column of ``interventions`` need not be among them.
    engine
        ``"auto"`` takes the best one for the size of the problem: ``"exact"`` (up to about 20 columns), ``"orders"``
        (up to thousands), ``"variational"``; ``"straight-through"`` is the paper's, for mlp. Other methods, to compare
        with, are engines too: ``"dibs"``, ``"dds"``, ``"bayesdag"``, ``"grandag"``, ``"mcsl"`` (models linear and mlp),
        and floors such as ``"empty"`` and ``"variance-sort"``. Or a spec such as ``Orders(replicas=8)``.
    preset
        ``"default"``, or ``"paper"`` for the authors' program as it was run (engine straight-through, bias-free
        functions, unit noise, one graph a step, edge prior 0.1; or another method as it was run for the paper).
    standardise
        Bring every column to mean 0 and variance 1 first, whatever the noise; unequal noise does so anyway.
    imputations
        How many times missing cells are filled in; every filling is fitted, and the posterior is the mean over them.
        Of a complete table nothing is filled in.
    streamed
        Whether a file is read block by block and fitted from its statistics, whatever its size; by default a folder of
        files, and a file of more than four million cells. Models that need rows take a random sample of them, and the
        summary says so.
    time_limit
        Seconds after which the fit ends with what it has; the status says so.
    seed
        The same seed gives the same posterior on the same machine and versions.
    progress
        Called with a :class:`Progress` between compiled chunks.
    checkpoint
        A folder in which the fit keeps every few seconds what it has worked out, so that it can go on there when it was
        killed. It is removed when the fit ends by itself.
    resume
        Whether to go on from what an earlier fit with the same data and arguments left in ``checkpoint``, if there is
        anything; the posterior is that of a fit that was never killed. Seconds spent before count for ``time_limit``.
    client
        A Dask client (``dask.distributed.Client``), on whose workers parts of the fit are done; the posterior is the
        same as without. :func:`vcuda.local_cluster` makes one of processes on this machine.

    Returns
    -------
    Posterior
        An interrupt from the keyboard ends the fit early and returns what is there, with status ``interrupted``.
    """
    workers = as_workers(client)
    table = open_table(
        data,
        interventions=interventions,
        streamed=streamed,
        choice=ColumnChoice.of(columns, without),
        on_progress=reading(progress),
        mapped=mapped_by(workers),
    )
    _check(model, engine, noise, preset, time_limit)
    check_imputations(imputations)
    known = as_knowledge(knowledge)
    if _is_baseline(engine):
        _check_baseline(model, engine, noise, prior, known, table)  # type: ignore[arg-type]
    else:
        _check_engine(model, engine, preset)
    kept_in = as_checkpoint(checkpoint, resume)
    given, row_sentences = table, []
    if isinstance(table, StreamedTable) and not _needs_no_rows(model, engine, preset):
        table = table.sample_to_fit()
        row_sentences = [f"This model needs rows: it was fitted to {table.n:,} of {given.n:,}, drawn at random."]
    table, model, category_sentences = resolve_categorical(
        table, model, engine=engine, noise=noise, logarithm=logarithm, preset=preset, standardise=standardise
    )
    dag_prior = _prior(prior, table, preset)
    rules = known.for_columns(table.names, edge_probability=dag_prior.edge_probability) if known else None
    rules = rules_of_design(table, rules)
    marked = None if logarithm is None else _marked(logarithm, table)
    started = time.perf_counter()
    arguments = {
        "data": given.fingerprint,
        "streamed": isinstance(given, StreamedTable),
        "model": model,
        "noise": noise,
        "logarithm": None
        if marked is None
        else [name for name, taken in zip(table.names, marked, strict=True) if taken],
        "prior": dag_prior,
        "knowledge": known,
        "engine": engine,
        "preset": preset,
        "standardise": standardise,
        "imputations": imputations,
        "seed": seed,
    }
    asked, route = Asked(model, noise, engine), _route(model, engine, preset)
    with keeping(kept_in, arguments, versions()) as kept, one_blas_thread(), bounded_programs():
        deadline = None if time_limit is None else time.monotonic() + time_limit - kept.spent_before
        request = Request(
            table,
            dag_prior,
            rules,
            marked,
            standardise,
            seed,
            progress,
            deadline,
            time_limit,
            kept.checkpointer,
            workers,
        )
        if table.missing is None:
            outcome, info = route(request, *asked)
        else:
            by_evidence = model == "auto" and preset != "paper"
            outcome, info = fit_imputed(request, route, asked, count=imputations, by_evidence=by_evidence)
        kept.status = outcome.status
    notes = [*table.notes, *info.pop("notes", ())]
    info["choice"]["sentences"][:0] = category_sentences + row_sentences
    if known:
        info["choice"]["sentences"].append(known.sentence())
    info["choice"]["sentences"] += in_words(table.design, table.names)
    provenance = {
        **info,
        "prior": None if _is_baseline(engine) else to_json(dag_prior),
        "knowledge": known.to_dict() if known else None,
        "interventions": design_to_dict(table),
        "preset": preset,
        "standardise": standardise,
        "time_limit": time_limit,
        "seed": seed,
        "data": {
            "source": given.source,
            "fingerprint": given.fingerprint,
            "rows": given.n,
            "columns": table.d,
            **given.choice.to_dict(),
            "notes": notes,
        },
        "versions": versions(),
        "seconds": kept.seconds_before + time.perf_counter() - started,
        **kept.to_dict(),
    }
    if outcome.status.code != "ok":
        warnings.warn(outcome.status.sentence, ConvergenceWarning, stacklevel=2)
    return Posterior(
        names=table.names,
        graph_posterior=outcome.graph_posterior,
        status=outcome.status,
        diagnostics=outcome.diagnostics,
        trace=outcome.trace,
        provenance=provenance,
    )


def _needs_no_rows(model: Any, engine: Any, preset: Preset) -> bool:
    """Whether statistics of the table are enough: for linear and additive scores."""
    if _is_baseline(engine) or preset == "paper" or _is_gradient_trained(model, engine):
        return False
    return model in ("auto", "linear", "additive") if isinstance(model, str) else isinstance(model, STREAMED)


def _route(model: Any, engine: Any, preset: Preset) -> Route:
    """The way from a request to an outcome, the same for all fillings of a table."""
    if _is_baseline(engine):
        return lambda request, model, noise, engine: fit_baseline(request, model, engine, preset)
    if preset == "paper" or _is_gradient_trained(model, engine):
        return lambda request, model, noise, engine: fit_by_gradient(request, model, noise, engine, preset)
    return fit_scored


def versions() -> dict[str, str]:
    """Of everything that may change a number."""
    packages = ("vcuda", "jax", "jaxlib", "numpy", "scipy", "optax")
    return {"python": python_version(), **{package: version(package) for package in packages}}


def _check(model: Any, engine: Any, noise: Noise | None, preset: Preset, time_limit: float | None) -> None:
    """What can be said to be wrong before anything is computed."""
    if preset not in ("default", "paper"):
        raise ConfigError(f"preset must be default or paper, not {preset!r}")
    if isinstance(engine, str) and engine not in ENGINE_NAMES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINE_NAMES)}, not {engine!r}")
    if isinstance(model, str) and model not in MODEL_NAMES:
        raise ConfigError(f"model must be one of {', '.join(MODEL_NAMES)}, not {model!r}")
    if noise is not None:
        if not isinstance(model, str):
            raise ConfigError("noise goes with a model given by name; set it inside the spec instead")
        check_noise(noise)
    if time_limit is not None and not time_limit > 0:
        raise ConfigError(f"time_limit must be a positive number of seconds, not {time_limit}")


def _check_engine(model: Any, engine: Any, preset: Preset) -> None:
    by_gradient = isinstance(engine, StraightThrough) or engine == "straight-through" or preset == "paper"
    if by_gradient and not isinstance(model, (str, *MODELS.values())):
        raise ConfigError(f"engine straight-through takes a spec such as Linear() or MLP(), not {type(model).__name__}")
    if not by_gradient and engine != "auto" and isinstance(model, tuple(MODELS.values())):
        raise ConfigError(
            f"{type(model).__name__}() is trained by gradient: use engine straight-through, or model linear, gp or "
            "additive"
        )
    if preset == "paper" and not (engine in ("auto", "straight-through") or isinstance(engine, StraightThrough)):
        raise ConfigError("preset paper belongs to engine straight-through and to the methods that it is compared with")


def _check_baseline(
    model: Any,
    engine: str | BaselineSpec,
    noise: Noise | None,
    prior: Any,
    knowledge: Knowledge,
    table: Dataset | StreamedTable,
) -> None:
    """Other methods have noise and prior of their own, and a spec says all of their model."""
    name = engine if isinstance(engine, str) else engine.name
    for given, fault in (
        (bool(knowledge), "cannot obey knowledge: leave it out"),
        (table.design is not None, "knows nothing of interventions: leave them out"),
    ):
        if given:
            raise ConfigError(f"engine {name} {fault}, or use engine exact, orders, variational or straight-through")
    if noise is not None or prior is not None:
        setting = "noise" if noise is not None else "prior"
        raise ConfigError(
            f"this method has a {setting} of its own; leave it out, or give a spec such as Dibs.corrected(...)"
        )
    known = ("auto", *(BASELINES[engine].spec.models if isinstance(engine, str) else ()))
    if not isinstance(model, str) or model not in known:
        asked = model if isinstance(model, str) else type(model).__name__
        raise ConfigError(f"engine {name} takes model {', '.join(known)}, not {asked!r}")


def _is_baseline(engine: Any) -> bool:
    kinds = tuple(method.spec for method in BASELINES.values())
    return engine in BASELINES if isinstance(engine, str) else isinstance(engine, kinds)


def _marked(logarithm: Sequence[str], table: Dataset) -> np.ndarray:
    """The named columns as (d,) booleans."""
    asked = (logarithm,) if isinstance(logarithm, str) else tuple(logarithm)
    for name in asked:
        if name not in table.names:
            near = get_close_matches(name, table.names, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; they are {', '.join(table.names[:10])}"
            raise ConfigError(f"logarithm names {name!r}, which is no column{meant}")
    return np.isin(np.array(table.names, dtype=object), np.array(asked, dtype=object))


def _is_gradient_trained(model: Any, engine: Any) -> bool:
    """Whether the functions are trained rather than integrated out."""
    if isinstance(engine, StraightThrough) or engine == "straight-through":
        return True
    return engine == "auto" and (model == "mlp" or isinstance(model, tuple(MODELS.values())))


def _prior(prior: float | DagPrior | None, table: Dataset, preset: Preset) -> DagPrior:
    if isinstance(prior, DagPrior):
        return prior
    if prior is not None:
        return DagPrior(edge_probability=prior)
    return DagPrior(edge_probability=0.1) if preset == "paper" else DagPrior.for_nodes(table.d)
