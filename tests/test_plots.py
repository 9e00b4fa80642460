"""Figures: what they show is what the posterior says, whatever the names, and pyplot knows nothing of them."""

from __future__ import annotations

import builtins
import io
import sys

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.errors import ConfigError, DataError, MissingExtraError
from vcuda.metrics import calibration as calibration_of
from vcuda.outputs import plots
from vcuda.posterior import GraphSamples, Posterior, Status
from vcuda.posterior.point import ScoredGraphs

pytest.importorskip("matplotlib")
NAMES = ("$\\frac{", "price <€>", "a_b^c", "x" * 200)
TRUTH = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    """Half of the graphs are the truth, a third are another one, the rest are empty."""
    other = np.zeros_like(TRUTH)
    other[1, 0] = other[1, 2] = other[0, 3] = True
    graphs = [TRUTH, other, np.zeros_like(TRUTH)]
    samples = GraphSamples(
        NAMES,
        np.cumsum([0, *(graph.sum() for graph in graphs)]),
        np.concatenate([np.nonzero(graph)[0] for graph in graphs]),
        np.concatenate([np.nonzero(graph)[1] for graph in graphs]),
        np.array([1 / 2, 1 / 3, 1 / 6]),
    )
    trace = {"elbo": np.arange(20.0).reshape(10, 2), "validation_loss": np.array([3.0, np.inf, 1.0])}
    provenance = {"engine": {"name": "exact"}}
    return Posterior(NAMES, ScoredGraphs(samples, TRUTH.astype(float)), Status("ok", "Fine."), {}, trace, provenance)


def png(figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=60)
    return file.getvalue()


def words(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_heat_map_shows_every_probability_and_every_name(posterior):
    figure = plots.edge_heatmap(posterior, truth=TRUTH)
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), posterior.edge_probabilities)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:3] == list(NAMES[:3])
    assert len(labels[3]) == 24
    rings = axes.collections[0].get_offsets()
    assert sorted(map(tuple, np.asarray(rings).astype(int)[:, ::-1].tolist())) == sorted(
        zip(*np.nonzero(TRUTH), strict=True)
    )
    assert png(figure).startswith(b"\x89PNG")


def test_a_truth_with_names_is_brought_into_order(posterior):
    backwards = list(NAMES[::-1])
    named = pd.DataFrame(TRUTH, index=list(NAMES), columns=list(NAMES)).loc[backwards, backwards]
    rings = [
        np.asarray(plots.edge_heatmap(posterior, truth=truth).axes[0].collections[0].get_offsets())
        for truth in (TRUTH, named)
    ]
    np.testing.assert_array_equal(*rings)
    with pytest.raises(ConfigError, match="shape"):
        plots.edge_heatmap(posterior, truth=TRUTH[:2])
    with pytest.raises(ConfigError, match="no variable"):
        plots.edge_heatmap(posterior, truth=named.iloc[:3, :3])


@pytest.mark.parametrize(("minimum", "edges"), [(0.1, 4), (0.4, 2), (0.9, 0)])
def test_graph_has_the_edges_above_the_minimum(posterior, minimum, edges):
    figure = plots.graph(posterior, minimum=minimum)
    axes = figure.axes[0]
    kinds = [type(patch).__name__ for patch in axes.patches]
    assert kinds.count("FancyArrowPatch") == edges == (posterior.edge_probabilities.to_numpy() >= minimum).sum()
    assert kinds.count("FancyBboxPatch") == len(NAMES)
    assert words(axes)[0] == NAMES[0]
    assert png(figure).startswith(b"\x89PNG")


def test_surer_edges_are_wider_and_open_directions_dashed(posterior):
    arrows = [patch for patch in plots.graph(posterior, minimum=0.1).axes[0].patches if "Arrow" in type(patch).__name__]
    # 1 -> 2 has 5/6, 0 -> 1 has 1/2, and 1 -> 0 and 0 -> 3 have 1/3: the surest is drawn first.
    widths = [arrow.get_linewidth() for arrow in arrows]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > widths[1] > widths[2] == widths[3]
    assert [arrow.get_alpha() for arrow in arrows] == sorted((arrow.get_alpha() for arrow in arrows), reverse=True)
    assert [arrow.get_linestyle() for arrow in arrows].count("--") == 2
    assert arrows[0].get_linestyle() == "-"


@pytest.mark.parametrize("minimum", [0.0, -1, 1.5])
def test_a_minimum_that_is_no_probability_is_refused(posterior, minimum):
    with pytest.raises(ConfigError, match="minimum must be a probability"):
        plots.graph(posterior, minimum=minimum)


def test_calibration_shows_the_filled_bins(posterior):
    figure = plots.calibration(posterior, TRUTH, bins=5)
    found = calibration_of(posterior, TRUTH, bins=5)
    filled = found.pairs > 0
    assert 1 < filled.sum() < 5
    points = np.asarray(figure.axes[0].collections[0].get_offsets())
    np.testing.assert_allclose(points, np.stack([found.probability[filled], found.frequency[filled]], axis=1))
    assert f"{found.error:.3f}" in figure.axes[0].get_title()
    assert png(figure)


@pytest.mark.slow
def test_trace_has_a_line_for_each_series_and_restart(posterior):
    figure = plots.trace(posterior)
    assert [axes.get_ylabel() for axes in figure.axes] == ["elbo", "validation loss"]
    assert [len(axes.lines) for axes in figure.axes] == [2, 1]
    np.testing.assert_array_equal(figure.axes[0].lines[1].get_ydata(), posterior.trace["elbo"][:, 1])
    assert np.isnan(figure.axes[1].lines[0].get_ydata()[1])
    assert png(figure)


def test_an_engine_without_a_trace_is_told():
    with pytest.raises(ConfigError, match="engine exact keeps no trace"):
        plots.trace(fitted("linear"))


def fitted(model: str) -> Posterior:
    rng = np.random.default_rng(2)
    cause = rng.normal(size=60)
    table = pd.DataFrame({NAMES[0]: cause, "b": cause**2 + cause + 0.3 * rng.normal(size=60)})
    return vcuda.fit(table, model=model, engine="exact", seed=0)


def test_a_straight_effect_is_a_histogram_of_its_draws():
    found = fitted("linear").effect(NAMES[0], "b")
    figure = plots.effect(found)
    assert len(figure.axes) == 1
    bars = [patch for patch in figure.axes[0].patches if type(patch).__name__ == "Rectangle" and patch.get_y() == 0]
    heights = sum(bar.get_height() for bar in bars[:40])
    # Draws without a path are exactly zero: they are told in the title, and are no bar.
    assert heights == pytest.approx(1 - found.probability_zero)
    assert found.probability_zero > 0
    assert NAMES[0] in figure.axes[0].get_xlabel()
    assert png(figure)


def test_an_effect_that_bends_has_its_curve_beside_it():
    found = fitted("additive").effect(NAMES[0], "b", draws=20)
    figure = plots.effect(found)
    assert len(figure.axes) == 2
    np.testing.assert_array_equal(figure.axes[1].lines[0].get_ydata(), found.curve["mean"])
    assert png(figure)


def test_pyplot_is_not_touched(posterior):
    if "matplotlib.pyplot" in sys.modules:
        figures = sys.modules["matplotlib.pyplot"].get_fignums()
        plots.graph(posterior)
        assert sys.modules["matplotlib.pyplot"].get_fignums() == figures
    else:
        plots.graph(posterior)
        assert "matplotlib.pyplot" not in sys.modules


def test_without_matplotlib_the_install_line_is_told(posterior, monkeypatch):
    usual = builtins.__import__

    def refuse(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return usual(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"pip install 'vcuda\[plots\]'"):
        plots.edge_heatmap(posterior)


def test_a_posterior_draws_its_figures_by_name(posterior):
    for kind, options in {
        "graph": {"minimum": 0.4},
        "edges": {"truth": TRUTH},
        "calibration": {"truth": TRUTH},
    }.items():
        assert png(posterior.plot(kind, **options))
    assert len(posterior.plot("trace").axes) == 2
    assert posterior.plot().axes[0].get_title() == plots.graph(posterior).axes[0].get_title()
    with pytest.raises(ConfigError, match=r"one of graph, edges, effect, drivers, sensitivity, .*, not 'pie'"):
        posterior.plot("pie")


def test_a_posterior_draws_an_effect():
    learned = fitted("linear")
    figure = learned.plot("effect", cause=NAMES[0], outcome="b", draws=50)
    assert figure.axes[0].get_title() == plots.effect(learned.effect(NAMES[0], "b", draws=50)).axes[0].get_title()
    labels = pd.DataFrame(np.random.default_rng(0).choice(["u", "v"], size=(40, 2)), columns=["a", "b"])
    with pytest.raises(ConfigError, match=r"posterior.effect\(...\).table"):
        vcuda.fit(labels).plot("effect", cause="a", outcome="b")


@pytest.fixture(scope="module")
def checked() -> tuple[Posterior, pd.DataFrame]:
    rng = np.random.default_rng(0)
    cause = rng.normal(size=150)
    table = pd.DataFrame({NAMES[0]: cause, "b": cause + rng.normal(size=150)})
    return vcuda.fit(table, model="linear", engine="exact", checks=False), table


def test_figures_of_residuals_show_every_row(checked):
    posterior, table = checked
    against_fit = posterior.plot("residuals", data=table, column="b")
    quantiles = posterior.plot("quantiles", data=table, column="b")
    lags = posterior.plot("lags", data=table, column=NAMES[0], lag=2)
    shown = [np.asarray(figure.axes[0].collections[0].get_offsets()) for figure in (against_fit, quantiles, lags)]
    assert [len(points) for points in shown] == [150, 150, 148]
    np.testing.assert_allclose(np.sort(shown[0][:, 1]), shown[1][:, 1])
    assert abs(np.corrcoef(shown[1].T)[0, 1]) > 0.98
    # What the causes predict is in the units of the table.
    assert shown[0][:, 0].std() < table["b"].std()
    for figure in (against_fit, quantiles, lags):
        assert png(figure).startswith(b"\x89PNG")


def test_figures_of_residuals_need_the_table_and_one_of_its_columns(posterior, checked):
    fitted, table = checked
    with pytest.raises(ConfigError, match="column must be one of"):
        fitted.plot("residuals", data=table, column="c")
    with pytest.raises(DataError, match="give the table that was fitted"):
        fitted.plot("lags", data=table.assign(more=table["b"] ** 2), column="b")
    with pytest.raises(ConfigError, match="no residuals"):
        posterior.plot("quantiles", data=table, column=NAMES[0])
