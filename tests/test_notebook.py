"""In a notebook: a posterior and its answers are shown as HTML, progress below the cell, errors in one line."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.checks.findings import Checks, Finding, Made
from vcuda.fitting import notebook
from vcuda.infer.progress import Progress

HOSTILE = ("<img src=x onerror=alert(1)>", "</svg><script>alert(2)</script>", "\u202eabc & '\"", "plain")


def chain(names: tuple[str, ...]) -> pd.DataFrame:
    values = np.random.default_rng(5).normal(size=(60, len(names)))
    for column in range(1, len(names)):
        values[:, column] += 1.5 * values[:, column - 1]
    return pd.DataFrame(values, columns=list(names))


@pytest.fixture(scope="module")
def posterior() -> vcuda.Posterior:
    return vcuda.fit(chain(("rain", "river", "mill", "flour")), model="linear", engine="exact", seed=0)


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {key for key, _ in attrs}

    def handle_data(self, data):
        self.words += data


def is_harmless(text: str) -> Elements:
    found = Elements(text)
    assert found.tags.isdisjoint({"script", "img", "iframe", "style", "link", "object", "form"})
    assert not any(key.startswith("on") or key in ("src", "href") for key in found.attributes)
    assert "\u202e" not in text
    return found


def test_a_posterior_shows_picture_findings_and_doubts(posterior):
    found = is_harmless(posterior._repr_html_())
    assert "svg" in found.tags
    for part in ("What was found", "How sure it is", "What could be wrong", "No model check warns", "60 rows", "river"):
        assert part in found.words
    assert posterior.status.unseen.sentence in found.words
    assert "nats" not in found.words


def test_edges_in_doubt_are_shown_as_such(posterior):
    edge = posterior.edges().iloc[0]
    finding = Finding("order of the rows", "warning", (), ((edge.source, edge.target),), "Rows drift.", "", "")
    doubted = posterior.with_checks(Checks((finding,), (Made("order of the rows", 1e-9, 0.1, 60),)))
    words = is_harmless(doubted._repr_html_()).words
    assert "in doubt" in words
    assert "Rows drift." in words
    assert "#b26a00" in doubted._repr_html_()


def test_a_target_shows_what_drives_it():
    posterior = vcuda.fit(chain(("a", "b", "c")), model="linear", engine="exact", target="c", seed=0)
    words = is_harmless(posterior._repr_html_()).words
    assert "What drives c" in words
    assert "Change in the expected c, in the units of the table" in words


@pytest.mark.parametrize(("nodes", "engine"), [(2, "empty"), (60, "variance-sort")])
def test_any_number_of_columns_has_a_picture(nodes, engine):
    posterior = vcuda.fit(chain(tuple(f"column {k}" for k in range(nodes))), engine=engine, seed=0)
    found = is_harmless(posterior._repr_html_())
    assert "svg" in found.tags
    assert ("of 60 columns" in found.words) == (nodes == 60)


def test_hostile_names_stay_text():
    posterior = vcuda.fit(chain(HOSTILE), model="linear", engine="exact", target=HOSTILE[3], seed=0)
    assert HOSTILE[0] in is_harmless(posterior._repr_html_()).words
    assert HOSTILE[0] in is_harmless(posterior.drivers()._repr_html_()).words
    is_harmless(posterior.effect(HOSTILE[0], HOSTILE[3], draws=20)._repr_html_())


def test_answers_have_their_sentence_and_caveat(posterior):
    effect = posterior.effect("rain", "flour", draws=50)
    words = is_harmless(effect._repr_html_()).words
    assert effect.answer in words
    assert effect.caveat in words
    drivers = posterior.drivers("flour", draws=50)
    words = is_harmless(drivers._repr_html_()).words
    assert all(sentence in words for sentence in drivers.sentences)
    assert drivers.caveat in words


def test_labels_of_the_still_picture_do_not_overlap(posterior):
    texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*font-size="(\d+)">([^<]*)<', posterior._repr_html_())
    boxes = [(float(x), float(y), 3.0 * len(words), int(size) / 2) for x, y, size, words in texts]
    for k, (x, y, width, height) in enumerate(boxes):
        for other in boxes[k + 1 :]:
            assert abs(x - other[0]) > width + other[2] or abs(y - other[1]) > height + other[3]


def test_edges_have_a_style(posterior):
    pytest.importorskip("jinja2")
    shown = posterior.edges().style.bar(subset="probability", vmin=0, vmax=1).hide(axis="index").to_html()
    assert shown.count("<tr>") == 1 + len(posterior.edges())


# In a real shell ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(monkeypatch):
    """IPython as a kernel runs it: it keeps what is displayed."""
    pytest.importorskip("IPython")
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    published = CapturingDisplayPublisher()
    monkeypatch.setattr(shell, "display_pub", published)
    shell.user_ns["vcuda"] = vcuda
    shell.user_ns["table"] = chain(("rain", "river", "mill", "flour"))
    yield shell
    InteractiveShell.clear_instance()


def test_progress_is_shown_in_a_notebook_and_goes(shell, monkeypatch):
    assert not notebook.in_notebook()  # a terminal, where nothing is shown unasked
    object.__setattr__(shell, "kernel", object())
    assert notebook.in_notebook()
    monkeypatch.setattr(notebook, "SECONDS_BETWEEN", 0.0)
    shell.run_cell("posterior = vcuda.fit(table, model='linear', engine='exact')")
    shown = [one["data"].get("text/html", "") for one in shell.display_pub.outputs]
    assert "preparing" in shown[0]
    assert any("<progress" in text for text in shown)
    assert shown[-1] == ""
    before = len(shell.display_pub.outputs)
    shell.run_cell("vcuda.fit(table, model='linear', engine='exact', progress=lambda step: None);")
    assert not any("<progress" in str(one) for one in shell.display_pub.outputs[before:])


def test_without_a_notebook_nothing_is_shown():
    with notebook.progress_below_the_cell(None) as progress:
        progress(Progress(1, 2, ""))
    assert not notebook.in_notebook()


def test_an_error_is_one_line(shell, monkeypatch, capsys):
    shell.run_cell("vcuda.fit(table, target='flower')")
    printed = capsys.readouterr().out + capsys.readouterr().err
    assert "ConfigError: target is 'flower', which is no column of the table (did you mean 'flour'?)" in printed
    assert "File" not in printed
    monkeypatch.setenv("VCUDA_DEBUG", "1")
    shell.run_cell("vcuda.fit(table, target='flower')")
    assert "fit.py" in capsys.readouterr().out


def test_a_figure_is_shown_without_pyplot(posterior):
    pytest.importorskip("matplotlib")
    assert posterior.plot()._repr_png_().startswith(b"\x89PNG")
    figure = vcuda.plots.drivers(posterior, "flour")
    labels = [label.get_text().splitlines()[0] for label in figure.axes[0].get_yticklabels()]
    assert labels == posterior.drivers("flour").table.driver.tolist()
    with pytest.raises(vcuda.ConfigError, match="no effect to draw"):
        vcuda.plots.drivers(vcuda.fit(chain(("a", "b")), engine="empty"), "a")
