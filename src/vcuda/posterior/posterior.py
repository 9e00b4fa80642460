"""Posterior: what the data say about the graph, how it was found, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from vcuda.arguments import seed_of, whole_number
from vcuda.checks.findings import Checks
from vcuda.data.categorical import codes_by_label, labelled_frame
from vcuda.data.kinds import ColumnLabels, Kind
from vcuda.data.reading import new_rows
from vcuda.deprecation import warn_renamed
from vcuda.errors import ConfigError
from vcuda.models.prediction import Prediction
from vcuda.posterior.graph_posterior import GraphPosterior
from vcuda.posterior.lagged import Lagged
from vcuda.posterior.predictions import predictive_of
from vcuda.posterior.provenance import Provenance
from vcuda.posterior.samples import GraphSamples
from vcuda.posterior.status import Status as Status
from vcuda.posterior.status import caveat_of_effects, edges_in_doubt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vcuda.summaries.attribution import Attribution
    from vcuda.summaries.categorical_effects import CategoryEffect
    from vcuda.summaries.comparison import Comparison
    from vcuda.summaries.drivers import Drivers
    from vcuda.summaries.effects import Effect
    from vcuda.summaries.impulses import ImpulseResponse
    from vcuda.summaries.relations import Blanket, Paths
    from vcuda.summaries.sensitivity import Sensitivity
    from vcuda.summaries.simulated_effects import SimulatedEffect
    from vcuda.summaries.single_rows import Counterfactual
    from vcuda.summaries.structures import NamedGraph
    from vcuda.summaries.why import Why


def as_sentence(parts: Sequence[str]) -> str:
    """Several remarks as one sentence, with a capital and a full stop."""
    joined = "; ".join(parts)
    return f"{joined[:1].upper()}{joined[1:]}."


class Outcome(NamedTuple):
    """What an engine returns: its posterior over graphs, how far to trust it, and the series that it recorded."""

    graph_posterior: GraphPosterior
    status: Status
    diagnostics: dict[str, Any]
    trace: dict[str, np.ndarray]


# Graphs that are looked at for edges that hold with hidden causes: a share has a standard error of at most .016. Of
# more columns a quarter of them, so that this takes a second at 1,000.
HOLDING_DRAWS, MANY_COLUMNS = 1000, 200
NOT_CHECKED = Checks(not_made="this posterior was made without them; posterior.checks(table) makes them")


@dataclass(frozen=True, eq=False)
class Posterior:
    """A posterior distribution over DAGs on named variables.

    Made by :func:`vcuda.fit` or :meth:`load`. ``provenance`` says how it was made (engine, model, prior, seed,
    versions, fingerprint of the data, seconds), ``status`` and ``diagnostics`` how far to trust it; ``checked`` is what
    :meth:`checks` returns.
    """

    names: tuple[str, ...]
    graph_posterior: GraphPosterior
    status: Status
    diagnostics: dict[str, Any]
    trace: dict[str, np.ndarray]
    provenance: Provenance
    checked: Checks = NOT_CHECKED

    def __post_init__(self) -> None:
        if not isinstance(self.provenance, Provenance):
            object.__setattr__(self, "provenance", Provenance(self.provenance))

    @cached_property
    def _probabilities(self) -> np.ndarray:
        probabilities = np.asarray(self.graph_posterior.edge_probabilities(), dtype=np.float64)
        probabilities.flags.writeable = False
        return probabilities

    @cached_property
    def _drivers(self) -> dict[tuple[Any, ...], Drivers]:
        """Answers that were given: the summary and the report of a fit ask for the same."""
        return {}

    @property
    def law(self) -> GraphPosterior:
        """The old name of ``graph_posterior``."""
        warn_renamed("Posterior.law", "Posterior.graph_posterior")
        return self.graph_posterior

    @cached_property
    def lagged(self) -> Lagged | None:
        """The columns of the present step and how many steps back the others go; None where rows are independent."""
        return Lagged.of(self.provenance)

    @property
    def categories(self) -> ColumnLabels | None:
        """The labels of each column that holds labels, None for a column of numbers and where no column has labels."""
        predictive = predictive_of(self.graph_posterior)
        return None if predictive is None else predictive.labels

    @property
    def kinds(self) -> tuple[Kind, ...] | None:
        """The kind of each column where the model is mixed, otherwise None."""
        predictive = predictive_of(self.graph_posterior)
        return None if predictive is None else predictive.kinds

    @property
    def edge_probabilities(self) -> pd.DataFrame:
        """The posterior probability of every edge: rows are sources, columns are targets."""
        return pd.DataFrame(
            self._probabilities.copy(),
            index=pd.Index(self.names, name="source"),
            columns=pd.Index(self.names, name="target"),
        )

    @cached_property
    def _holding(self) -> np.ndarray:
        """The share of graphs in which each edge holds with hidden causes; never more than those that have it."""
        draws = HOLDING_DRAWS if len(self.names) <= MANY_COLUMNS else HOLDING_DRAWS // 4
        return np.minimum(self.sample(draws).y_structure_shares(), self._probabilities)

    def edges(self, *, minimum: float = 0.0) -> pd.DataFrame:
        """Every ordered pair with its probability, the surest first; of a time series with the ``lag`` of the source.

        ``holds_with_hidden_causes`` is the share of sampled graphs in which the edge is also there if hidden
        variables may cause several columns: the cause then has two causes of its own that are not joined to each other
        nor to the effect (a strict Y-structure), and no other cause of the effect is an effect of the cause. It is
        small for most edges, also for many that are true.

        Parameters
        ----------
        minimum
            Leave out pairs below this probability.
        """
        if self.lagged is not None:
            return self.lagged.table(self._probabilities, minimum)
        sources, targets = np.nonzero(~np.eye(len(self.names), dtype=bool) & (self._probabilities >= minimum))
        probability = self._probabilities[sources, targets]
        order = np.argsort(-probability, kind="stable")
        names = np.asarray(self.names, dtype=object)
        return pd.DataFrame(
            {
                "source": names[sources[order]],
                "target": names[targets[order]],
                "probability": probability[order],
                "holds_with_hidden_causes": self._holding[sources[order], targets[order]],
            }
        )

    def sample(self, size: int = 1000, *, seed: int = 0) -> GraphSamples:
        """Draw DAGs from the posterior; every one is acyclic."""
        count = whole_number("size", size, least=1)
        return self.graph_posterior.sample(np.random.default_rng(seed_of(seed)), self.names, count)

    def predict(self, data: Any, *, graphs: int = 100, seed: int = 0) -> pd.DataFrame:
        """Predict every cell of ``data`` from its row's other cells: the mean over posterior graphs of f_j(parents).

        In the units of the data; for a column that was fitted on its logarithm, the median. Of yes/no, ordered and
        other labels the most probable one. ``graphs`` says how many posterior graphs are averaged.

        Of a time series each row is predicted from the rows before it, one step ahead: rows that have all of these
        before them, with the number of their ``step``.
        """
        if self.lagged is not None:
            from vcuda.summaries.forecasts import forecast

            return forecast(self, data, graphs=graphs, seed=seed)
        mean = self._predict(data, graphs, seed).mean
        if self.categories is None:
            return pd.DataFrame(mean, columns=list(self.names))
        return labelled_frame(self.names, mean, self.categories, self.kinds)

    def held_out(self, data: Any, *, graphs: int = 100, seed: int = 0) -> dict[str, float]:
        """How well rows that were not fitted are predicted, in their own units.

        ``mse`` is the mean squared error of all cells, averaged over posterior graphs; ``log_likelihood`` is the mean
        over rows of the logarithm of the posterior predictive density, and ``nll`` its negative for each cell. Instead
        of ``mse`` categories have ``accuracy``, the share of cells whose most probable label is the right one. Tables
        of several kinds have both: ``mse`` of numbers and counts, ``accuracy`` of all other columns. Rows of a time
        series are predicted one step ahead, and the density is that of a row given those before it.
        """
        if self.lagged is not None:
            from vcuda.summaries.forecasts import held_out_steps

            return held_out_steps(self, data, graphs=graphs, seed=seed)
        prediction = self._predict(data, graphs, seed)
        log_likelihood = float(np.mean(prediction.log_density))
        error = {} if prediction.accuracy is None else {"accuracy": prediction.accuracy}
        if prediction.accuracy is None or not np.isnan(prediction.mse):
            error = {"mse": prediction.mse} | error
        return error | {"log_likelihood": log_likelihood, "nll": -log_likelihood / len(self.names)}

    def _predict(self, data: Any, graphs: int, seed: int) -> Prediction:
        graphs, rng = whole_number("graphs", graphs, least=1), np.random.default_rng(seed_of(seed))
        table = new_rows(data, self.names)
        values = codes_by_label(table, self.categories or (None,) * len(self.names))
        return self.graph_posterior.predict(rng, values, graphs, names=self.names)

    def with_checks(self, checked: Checks) -> Posterior:
        """The same posterior with these model checks, and a status that says what they found."""
        return replace(self, checked=checked, status=self.status.described_by(checked))

    def checks(self, data: Any = None) -> Checks:
        """How far the model describes the rows: what the model checks found, and which edges hang on it.

        They are made at the end of a fit and stored with the run. Of a run without them ``made`` is empty, and
        ``not_made`` says why.

        Parameters
        ----------
        data
            The table that was fitted, to make the checks anew.
        """
        if data is None:
            return self.checked
        from vcuda.fitting.checking import checks_of_table

        return checks_of_table(self, data)

    @property
    def caveat(self) -> str:
        """What every effect assumes, and which edges the model checks put in doubt."""
        return caveat_of_effects(self.checked)

    # The questions below are answered in vcuda.summaries, which stands above this module: it is imported when asked.

    def summary_graph(self, *, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Of a time series, the probability that each column (rows) acts on each other one (columns) at any lag.

        On the diagonal, that a column depends on its own past.
        """
        from vcuda.summaries.lags import summary_graph

        return summary_graph(self, draws=draws, seed=seed)

    def consensus(self) -> NamedGraph:
        """The DAG that is expected to agree with the posterior about most pairs; it never has a cycle.

        Edges are taken in the order of P(i -> j) - P(no edge between i and j) while that is positive, and one that
        would close a cycle is left out.
        """
        from vcuda.summaries.structures import consensus

        return consensus(self)

    def map(self, *, draws: int = 1000, seed: int = 0) -> NamedGraph:
        """The best of ``draws`` graphs: of the highest posterior probability where the score is at hand (linear,
        additive, categorical and mixed models), otherwise the one drawn most often. Its ``rule`` says which.
        """
        from vcuda.summaries.structures import best_graph

        return best_graph(self, draws=draws, seed=seed)

    def cpdag(self, *, minimum: float = 0.0, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """For each pair of variables the probabilities of how it stands in the Markov equivalence class.

        Columns ``directed`` (source -> target in the whole class), ``reversed``, ``undirected``, ``none``; pairs whose
        edge is less probable than ``minimum`` are left out.
        """
        from vcuda.summaries.structures import edge_types

        return edge_types(self, minimum=minimum, draws=draws, seed=seed)

    def ancestors(self, *, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """The probability that each variable (rows) is upstream of each other one (columns), by any directed path."""
        from vcuda.summaries.relations import ancestor_probabilities

        return ancestor_probabilities(self, draws=draws, seed=seed)

    def paths(self, source: str, target: str, *, most: int = 10, draws: int = 1000, seed: int = 0) -> Paths:
        """The probability that ``source`` is upstream of ``target``, and the ``most`` probable directed paths."""
        from vcuda.summaries.relations import paths

        return paths(self, source, target, most=most, draws=draws, seed=seed)

    def blanket(self, variable: str, *, most: int = 10, draws: int = 1000, seed: int = 0) -> Blanket:
        """The Markov blanket of a variable: probabilities of its members, and the ``most`` probable blankets."""
        from vcuda.summaries.relations import blanket

        return blanket(self, variable, most=most, draws=draws, seed=seed)

    def effect(
        self,
        cause: str,
        outcome: str,
        *,
        at: Sequence[float] | None = None,
        horizon: int | None = None,
        draws: int | None = None,
        seed: int = 0,
    ) -> Effect | CategoryEffect | SimulatedEffect | ImpulseResponse:
        """The total causal effect of ``cause`` on ``outcome``, in the units of the table.

        With the uncertainty of graph, weights and noise; its ``curve`` is E[outcome | do(cause = x)] at the values
        ``at``, by default around where the cause usually lies. Of categories it has a ``table`` of P(outcome = label |
        do(cause = label)) for all labels. In tables of several kinds its ``table`` has changes of probabilities in
        percentage points, of expected counts also as ratios, and of mean levels; a cause without an order is compared
        level by level.

        Of a time series it is the impulse response: what follows at each step up to ``horizon``, by default 12, when
        the cause is one unit higher at one step.
        """
        if self.lagged is not None or horizon is not None:
            from vcuda.summaries.impulses import impulse_response

            if at is not None:
                raise ConfigError("at gives values of a curve; the effect in a time series is asked for by horizon")
            return impulse_response(self, cause, outcome, horizon=horizon, draws=draws, seed=seed)
        from vcuda.summaries.effects import effect

        return effect(self, cause, outcome, at=at, draws=draws, seed=seed)

    def effects(self, *, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """The total effects of all ordered pairs at once, for linear models: mean, 90 % interval, P(exactly zero).

        Of a time series those within a step, and on each of the next ones that a cause may act on directly, as
        ``horizon`` counts them.
        """
        if self.lagged is not None:
            from vcuda.summaries.impulses import impulse_responses

            return impulse_responses(self, horizon=self.lagged.lags, draws=draws, seed=seed)
        from vcuda.summaries.effects import effects

        return effects(self, draws=draws, seed=seed)

    def counterfactual(
        self, row: Any, *, do: Mapping[str, Any], draws: int | None = None, seed: int = 0
    ) -> Counterfactual:
        """What one row would have been, had columns been set: ``do={"dose": 20}``, averaged over graphs and mechanisms.

        ``row`` is a mapping, a Series or a table of one row with a value for every column. Its noise is reconstructed
        and kept; that of labels and counts is not known from the row, and one that fits is drawn for every model.
        """
        from vcuda.summaries.single_rows import counterfactual

        return counterfactual(self, row, do=do, draws=draws, seed=seed)

    def attribute(self, row: Any, outcome: str, *, draws: int | None = None, seed: int = 0) -> Attribution:
        """Which causes made a row unusual in the column ``outcome``: Shapley values of the noise of all that is
        upstream, which sum up to the surprise of the row in nats, averaged over graphs and mechanisms."""
        from vcuda.summaries.attribution import attribute

        return attribute(self, row, outcome, draws=draws, seed=seed)

    def sensitivity(
        self, cause: str, outcome: str, *, data: Any = None, draws: int = 1000, seed: int = 0
    ) -> Sensitivity:
        """How strong a hidden common cause would have to be to explain the effect of ``cause`` on ``outcome`` away.

        Its ``curve`` is the probability that the cause is upstream of the outcome and stays so if a hidden variable
        explains up to such a share of what is left of both; ``covariates`` are the measured causes of the cause, as a
        yardstick.

        Parameters
        ----------
        data
            The table that was fitted, where the run does not keep what is needed of it; linear, mixed, gp and
            categorical models do.
        """
        from vcuda.summaries.sensitivity import sensitivity

        return sensitivity(self, cause, outcome, data=data, draws=draws, seed=seed)

    def targets(self, *, minimum: float = 0.0) -> pd.DataFrame:
        """For a fit with ``contexts``: the probability that each environment changed each column, the surest first.

        Columns ``environment``, ``column``, ``probability``; changes are against the reference environment, whose
        mechanisms effects and predictions are about. Changes below ``minimum`` are left out.
        """
        from vcuda.summaries.contexts import targets

        return targets(self, minimum=minimum)

    def drivers(self, target: str | None = None, *, most: int = 10, draws: int | None = None, seed: int = 0) -> Drivers:
        """What drives ``target``, by default that of the fit: its likely causes, the largest effect first.

        Of each how probable it is that it is direct, and upstream by any path; what it changes in the target, in
        percentage points, ratios of counts or units of the table, for a stated change of the driver (its 10th to its
        90th percentile, or one label against another); and what that hangs on. ``most`` bounds the cost.
        """
        from vcuda.summaries.drivers import drivers

        asked = (self._target(target), most, draws, seed)
        if asked not in self._drivers:
            self._drivers[asked] = drivers(self, asked[0], most=most, draws=draws, seed=seed)
        return self._drivers[asked]

    def _target(self, target: str | None) -> str:
        chosen = self.provenance.target if target is None else target
        if chosen is None:
            raise ConfigError("the fit has no target: say which column, as in posterior.drivers('churn')")
        return str(chosen)

    def compare(self, other: Posterior) -> Comparison:
        """Edge by edge, what another posterior says of the same variables; they are matched by name."""
        from vcuda.summaries.comparison import compare

        return compare(self, other)

    def why(
        self,
        cause: str,
        effect: str,
        *,
        data: Any = None,
        subsamples: int | None = None,
        progress: Callable[[Any], None] | None = None,
    ) -> Why:
        """Where the probability of ``cause`` -> ``effect`` comes from: conditional independences, the form of the
        functions, the noise, experiments or knowledge; and how it changes without one of them.

        Parameters
        ----------
        data
            The table that was fitted, where the run does not keep what is needed of it; linear, categorical and mixed
            models do.
        subsamples
            On how many of the parts of the rows that were fitted the table is described, for mixed models; by default
            as many as take about 20 seconds.
        progress
            Called with a :class:`Progress`.
        """
        from vcuda.summaries.why import why

        return why(self, cause, effect, data=data, subsamples=subsamples, progress=progress)

    def next_experiment(
        self, *, already: Sequence[str] | None = None, draws: int = 1000, seed: int = 0
    ) -> pd.DataFrame:
        """The variables ranked by what an experiment that sets one of them is expected to teach about the graph.

        ``already`` names those that were set in experiments of their own, by default the interventions of the fit.
        """
        from vcuda.summaries.experiments import next_experiment

        return next_experiment(self, already=already, draws=draws, seed=seed)

    def what_next(self, *, already: Sequence[str] | None = None, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """The old name of :meth:`next_experiment`."""
        warn_renamed("what_next()", "next_experiment()")
        return self.next_experiment(already=already, draws=draws, seed=seed)

    def report(self, path: str | PathLike[str], *, curves: int = 3, seed: int = 0) -> None:
        """Write one self-contained HTML file: what was asked, what the data support, how far to trust it.

        ``curves`` says of how many effects that are no straight lines the curves are drawn; each takes seconds.
        """
        from vcuda.outputs.report import write_report

        write_report(self, path, curves=curves, seed=seed)

    def plot(self, kind: str = "graph", **options: Any) -> Figure:
        """Draw a matplotlib figure (extra ``plots``), by default the graph; a notebook shows it.

        Save it with ``figure.savefig("graph.png")``. ``vcuda.plots`` has the same figures as functions.

        Parameters
        ----------
        kind
            ``"graph"``: the edges of at least a probability ``minimum``, causes above effects. ``"edges"``: the
            probability of every edge as a matrix, with rings around those of a known graph ``truth``. ``"effect"``: the
            total effect of ``cause`` on ``outcome``. ``"drivers"``: what drives ``target``. ``"sensitivity"``: how
            strong a hidden cause of ``cause`` and ``outcome`` would have to be. ``"calibration"``: how often edges of a
            stated probability are in ``truth``. ``"trace"``: how the fit went. Of the residuals of a ``column`` in the
            table ``data`` that was fitted: ``"residuals"`` against fit, ``"quantiles"`` against expected ones,
            ``"lags"`` against the row ``lag`` before.
        **options
            The words in code above, by keyword: ``posterior.plot("graph", minimum=0.8)``.
        """
        from vcuda.outputs.plots import plot

        return plot(self, kind, **options)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the run folder: edges.csv, summary.json, config.json, posterior.npz."""
        from vcuda.posterior.storage import save

        save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Posterior:
        """Read a run folder; nothing in it is ever executed."""
        from vcuda.posterior.storage import load

        return load(folder)

    def summary(self) -> dict[str, Any]:
        """What summary.json holds: engine, model, status, seconds, rows, columns, seed, versions, diagnostics."""
        return self.provenance.summary(
            self.status,
            expected_edges=float(self._probabilities.sum()),
            edges_in_doubt=edges_in_doubt(self.checks()),
            diagnostics=self.diagnostics,
        )

    def __repr__(self) -> str:
        summary = self.summary()
        return (
            f"<Posterior over DAGs of {len(self.names)} variables from {summary['rows']} rows: "
            f"{summary['engine']}, {summary['model']}, {summary['expected_edges']:.1f} expected edges, "
            f"status {self.status.code}>"
        )

    def _repr_html_(self) -> str:
        """In a notebook: the picture, what was found, how sure it is, what could be wrong."""
        from vcuda.outputs.report.notebook import posterior_html

        return posterior_html(self)
