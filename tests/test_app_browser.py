"""``vcuda app`` in a real browser: clicks, keys and files, from a table to an answer."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_app import HIDDEN, write_months
from test_hostile_outputs import NAMES, hostile_run

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "tests" / "fixtures" / "run-format-1"
AXE = ROOT / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
DESKTOP, PHONE = (1280, 900), (390, 844)
TAB, ENTER, SPACE = ("Tab", 9), ("Enter", 13, "\r"), (" ", 32, " ")
DOWN, UP, END = ("ArrowDown", 40), ("ArrowUp", 38), ("End", 35)
REFUSED = "status of 400"
ARROWS = "Number(document.querySelector('.gv-stage').dataset.arrows)"

pytestmark = [pytest.mark.network, pytest.mark.slow]


def write_table(path, rows=80):
    """Columns of several kinds: a dose that raises a level, which decides about two others; a colour apart."""
    rng = random.Random(0)
    lines = ["id,dose,level,well,colour,visits"]
    for row in range(rows):
        dose = rng.gauss(0, 1)
        level = dose + rng.gauss(0, 0.6)
        well, colour = level + rng.gauss(0, 0.5) > 0, rng.choice(["red", "green", "blue"])
        visits = int(max(0, rng.gauss(2 + level, 1)))
        lines.append(f"C{row:04d},{dose:.2f},{level:.2f},{'yes' if well else 'no'},{colour},{visits}")
    path.write_text("\n".join(lines) + "\n")
    return path


class Served:
    """The app as people start it."""

    def __init__(self, folder):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vcuda", "app", "--no-browser", "--folder", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self.address = self.process.stdout.readline().split(": ", 1)[1].strip()
        self.origin = self.address.partition("/?")[0]

    def close(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=60) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("app") / "runs"
    app = Served(folder)
    for name in ("exact-linear", "exact-gp", HIDDEN.name):
        shutil.copytree(RUNS / name, folder / name)
    yield app
    app.close()


def visit(browser, served, size, hash_=""):
    browser.visit(served.address, width=size[0], height=size[1])
    browser.wait("document.querySelector('#screen h1')")
    if hash_:
        browser.run(f"location.hash = {json.dumps(hash_)}")


def is_quiet(browser, served, *, but=None):
    """No complaint in the console ``but`` those with these words, and no request to anybody else."""
    assert [complaint for complaint in browser.complaints if but is None or but not in complaint] == []
    assert all(address.startswith((served.origin, "blob:", "data:")) for address in browser.requests)


def fits(browser, width):
    assert browser.run("document.documentElement.scrollWidth") <= width


def place_on_stage(browser, selector, at):
    """Where a node of a graph is on the screen; the canvas has no elements to ask."""
    box = browser.run(
        f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
        " const b = e.getBoundingClientRect(); return [b.x, b.y]; })()"
    )
    return box[0] + at[0], box[1] + at[1]


def test_from_a_dropped_file_to_an_answer(browser, served, tmp_path):
    table = write_table(tmp_path / "clinic.csv")
    visit(browser, served, DESKTOP)
    browser.drop("#drop", table)
    browser.wait("document.querySelectorAll('.column').length === 6")
    fits(browser, DESKTOP[0])

    # Columns: an identifier is left out; kinds change, and columns leave, by clicking.
    row = "document.querySelector('[data-column=\"{}\"]')"
    assert browser.run(f"{row.format('id')}.classList.contains('out')")
    visits = browser.run(f"{row.format('visits')}.querySelector('select').id")
    browser.pick(f"#{visits}", "count")
    browser.wait(f"{row.format('visits')}.textContent.includes('as asked for')")
    browser.click("[data-column='colour'] input")
    browser.wait(f"{row.format('colour')}.classList.contains('out')")
    assert browser.run("document.querySelector('#ask').innerText.includes('4 columns are taken')")

    # What is known: drawn with the pointer, from the first box to the second.
    browser.click("#tab-known")
    browser.wait("document.querySelector('#known-stage canvas')")
    first, second = browser.run("window.vcudaKnown.places(['dose', 'level'])")
    browser.drag(place_on_stage(browser, "#known-stage", first), place_on_stage(browser, "#known-stage", second))
    browser.wait("document.querySelector('#known-list')?.innerText.includes('dose causes level')")
    browser.click("#tool-forbidden")
    well = browser.run("window.vcudaKnown.places(['well'])")[0]
    browser.drag(place_on_stage(browser, "#known-stage", well), place_on_stage(browser, "#known-stage", second))
    browser.wait("document.querySelector('#known-list').innerText.includes('well does not cause level')")
    browser.wait("document.querySelector('#known-said').textContent.includes('1 edge required, 1 edge forbidden')")

    # The question, and the fit to its end.
    browser.click("#question-target")
    browser.pick("#target", "well")
    browser.click("#start")
    browser.wait("document.querySelector('#progress')")
    browser.wait("document.querySelector('#driver-table')", seconds=400)
    assert browser.run("document.querySelector('#driver-table tbody').rows[0].innerText").startswith("level")
    config = json.loads((served.folder / "clinic" / "config.json").read_text())
    assert config["provenance"]["knowledge"]["required"] == [["dose", "level"]]
    assert config["provenance"]["data"]["kinds"]["visits"] == "count"
    assert sorted(config["names"]) == ["dose", "level", "visits", "well"]

    # An effect with its interval.
    browser.click("#driver-table button")
    browser.wait("document.querySelector('#effect figcaption')")
    assert "level" in browser.run("document.querySelector('#effect figcaption').textContent")
    assert browser.run("document.querySelectorAll('#effect svg.chart').length") >= 1

    # The graph: slider, a node, an edge and its why.
    browser.click("#tab-graph")
    browser.wait("document.querySelector('.gv-stage canvas')")
    before = browser.run(ARROWS)
    browser.run("document.querySelector('.gv-threshold').focus()")
    browser.press(*END)
    browser.wait(f"{ARROWS} < {before}")
    assert "as you said" in browser.run("document.querySelector('.gv-list').innerText")  # what is known stays
    for _ in range(49):
        browser.press("ArrowLeft", 37)
    browser.wait(f"{ARROWS} === {before}")
    node = browser.run("document.querySelector('#graph').view.place('level')")
    browser.click_at(*place_on_stage(browser, ".gv-stage", node))
    browser.wait("document.querySelector('.gv-chosen')?.innerText.includes('level')")
    assert browser.run("document.querySelector('.gv-list').innerText.includes('dose → level')")
    browser.click(".gv-edge")
    browser.wait("!document.querySelector('#edge').hidden")
    browser.click("#why")
    browser.wait("document.querySelector('.why')", seconds=300)
    assert "knowledge" in browser.run("document.querySelector('.why').innerText").lower()

    # Files to keep.
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "kept"))
    browser.click("#tab-downloads")
    for kind, ending in (("report", "html"), ("csv", "csv"), ("graphml", "graphml"), ("shell", "sh")):
        browser.click(f"#download-{kind}")
        file = tmp_path / "kept" / f"clinic-{kind}.{ending}"
        for _ in range(600):
            if file.exists():
                break
            time.sleep(0.1)
        assert file.stat().st_size > 20
    command = (tmp_path / "kept" / "clinic-shell.sh").read_text()
    assert command.startswith("vcuda fit ")
    assert "--kind visits=count" in command
    is_quiet(browser, served)


def test_a_number_that_may_mean_missing_is_taken_so_by_a_click(browser, served, tmp_path):
    table = tmp_path / "grades.csv"
    table.write_text("grade,price\n" + "".join(f"{-999 if k % 9 == 0 else k % 5},{k * 1.5}\n" for k in range(60)))
    visit(browser, served, DESKTOP)
    browser.drop("#drop", table)
    row = "document.querySelector('[data-column=\"grade\"]')"
    browser.wait(f"{row}?.innerText.includes('-999 may mean that a value is missing.')")
    # Above the button that starts the fit as well, which on a phone comes before the columns.
    assert "-999 in grade may mean" in browser.run("document.querySelector('#ask').innerText")
    browser.click("[data-column='grade'] button")
    browser.wait(f"{row}.innerText.includes('7 missing')")
    assert "-999" not in browser.run("document.querySelector('#ask').innerText")
    assert "-999" not in browser.run(f"{row}.innerText")
    assert browser.run("document.querySelector('#missing').value") == "-999"
    is_quiet(browser, served)


def test_a_fit_is_stopped_kept_and_resumed(browser, served, tmp_path):
    visit(browser, served, DESKTOP)
    browser.drop("#drop", write_table(tmp_path / "longer.csv", rows=400))
    browser.wait("document.querySelector('#start:not([disabled])')")
    browser.click("#start")
    browser.wait("document.querySelector('#progress')?.value > 0.15", seconds=300)
    assert browser.run("document.querySelector('#progress-text').textContent").startswith("Fitting")
    browser.click("#stop")
    browser.wait("document.querySelector('#resume')", seconds=300)
    run = served.folder / "longer"
    assert (run / "checkpoint" / "request.json").exists()
    assert json.loads((run / "config.json").read_text())["status"]["code"] == "interrupted"
    assert browser.run("document.querySelector('.cards')") is not None
    browser.click("#resume")
    browser.wait("document.querySelector('#progress')")
    browser.wait("document.querySelector('.cards') && !document.querySelector('#resume')", seconds=400)
    made = json.loads((run / "config.json").read_text())
    assert made["provenance"]["resumed"]["times"] == 1
    assert made["status"]["code"] == "ok"
    is_quiet(browser, served)


def test_with_the_keyboard_alone_on_a_narrow_screen(browser, served, tmp_path):
    """File, question, start, slider, node, effect: by Tab, arrows, Space and Enter; the file comes from a dialogue."""
    width = PHONE[0]

    def tab_to(selector, most=120):
        for _ in range(most):
            if browser.run(f"document.activeElement.matches({json.dumps(selector)})"):
                return
            browser.press(*TAB)
        raise AssertionError(f"Tab does not lead to {selector}")

    visit(browser, served, PHONE)
    fits(browser, width)
    browser.call("Page.setInterceptFileChooserDialog", enabled=True)
    tab_to("#choose")
    browser.press(*ENTER)
    chooser = browser.event("Page.fileChooserOpened")
    table = write_table(tmp_path / "phone.csv", rows=60)
    browser.call("DOM.setFileInputFiles", files=[str(table)], backendNodeId=chooser["backendNodeId"])
    browser.call("Page.setInterceptFileChooserDialog", enabled=False)
    browser.wait("document.querySelector('#start:not([disabled])')")
    fits(browser, width)
    tab_to("#tab-known")
    browser.press(*ENTER)
    tab_to("#known-from")
    browser.press(*DOWN)  # level
    tab_to("#known-how")
    browser.press(*DOWN)  # does not cause
    tab_to("#known-to")
    browser.press(*UP)  # dose
    tab_to("#known-add")
    browser.press(*ENTER)
    browser.wait("document.querySelector('#known-list')?.innerText.includes('level does not cause dose')")
    fits(browser, width)
    browser.run("document.querySelector('#screen').focus()")
    tab_to("[name=question]")
    browser.press(*DOWN)
    browser.press(*DOWN)
    browser.wait("document.querySelector('#cause')")
    tab_to("#cause")
    browser.press(*DOWN)
    tab_to("#outcome")
    browser.press(*DOWN)
    browser.press(*DOWN)
    tab_to("#start")
    browser.press(*ENTER)
    browser.wait("document.querySelector('#effect figcaption')", seconds=400)
    assert "dose" in browser.run("document.querySelector('#effect figcaption').textContent")
    fits(browser, width)
    tab_to("#tab-graph")
    browser.press(*SPACE)
    browser.wait("document.querySelector('.gv-stage canvas')")
    before = browser.run(ARROWS)
    tab_to(".gv-threshold")
    browser.press("Home", 36)
    browser.wait(f"{ARROWS} > {before}")
    tab_to(".gv-bar input[type=search]")
    browser.call("Input.insertText", text="level")
    browser.press(*ENTER)
    browser.wait("document.querySelector('.gv-chosen')?.innerText.includes('level')")
    tab_to(".gv-edge")
    browser.press(*ENTER)
    browser.wait("!document.querySelector('#edge').hidden")
    fits(browser, width)
    is_quiet(browser, served)


def test_rows_are_steps_in_time_or_come_from_several_places(browser, served, tmp_path):
    write_months(tmp_path / "months.csv")
    visit(browser, served, DESKTOP)
    browser.drop("#drop", tmp_path / "months.csv")
    browser.wait("document.querySelectorAll('.column').length === 5")
    browser.click("[data-column='open'] input")
    browser.wait("document.querySelector('[data-column=open]').classList.contains('out')")
    browser.click("#tab-rows")

    # What cannot be is one sentence, and there is nothing to start.
    browser.click("#row-is-time")
    browser.pick("#rows-time", "shop")
    browser.wait("document.querySelector('.problem')?.textContent.includes('which is no time')")
    assert browser.run("document.querySelector('#start').disabled && !document.querySelector('#ask .problem')")
    browser.pick("#rows-time", "month")
    browser.pick("#rows-unit", "shop")
    browser.pick("#rows-lags", "1")
    browser.wait("document.querySelector('#rows-said').textContent.includes('2 units')")
    assert browser.run("document.querySelector('#question-target').disabled && !document.querySelector('.problem')")
    assert browser.run("document.querySelector('[data-column=month] input').disabled")
    browser.click("#start")
    browser.wait("document.querySelector('.gv-stage canvas')", seconds=400)
    assert "ads → visits > 99 % 1 month later" in browser.run("document.querySelector('.gv-edge').innerText")
    browser.click(".gv-edge")
    browser.wait("!document.querySelector('#edge').hidden")
    assert browser.run("!document.querySelector('#why') && document.querySelector('#edge').innerText.includes('later')")
    browser.click("#edge-effect")
    browser.wait("document.querySelector('#edge svg.chart')", seconds=60)
    assert "months after ads" in browser.run("document.querySelector('#edge svg.chart').textContent")
    browser.click("#tab-time")
    assert browser.run("document.querySelector('#panel-time tbody').rows[0].innerText").startswith("ads")
    is_quiet(browser, served, but=REFUSED)

    # The same table as rows of two shops, at 390 pixels; the column must be said first.
    visit(browser, served, PHONE, "#/table/months.csv")
    browser.wait("document.querySelectorAll('.column').length === 5")
    browser.click("#tab-rows")
    browser.click("#row-is-places")
    browser.wait("document.querySelector('#rows-place')")
    browser.click("#start")
    browser.wait("document.querySelector('#start-said')?.textContent.includes('says where a row comes from')")
    browser.pick("#rows-place", "shop")
    browser.wait("document.querySelector('#rows-said').textContent.includes('2 environments')")
    fits(browser, PHONE[0])
    browser.click("#start")
    browser.wait("document.querySelector('#tab-changes')", seconds=400)
    browser.click("#tab-changes")
    assert browser.run("document.querySelector('#panel-changes tbody').rows[0].innerText").startswith("south")
    fits(browser, PHONE[0])
    is_quiet(browser, served, but=REFUSED)
    for run in ("months", "months-2"):
        made = json.loads((served.folder / run / "config.json").read_text())
        assert "open" not in made["names"]


def test_hidden_causes_are_lines_with_two_heads(browser, served, tmp_path):
    visit(browser, served, PHONE, f"#/run/{HIDDEN.name}")
    browser.wait("document.querySelector('.gv-stage canvas')")
    browser.run("document.querySelector('.gv-threshold').focus()")
    browser.press("Home", 36)
    browser.wait("document.querySelector('.gv-list').textContent.includes('↔')")
    assert "hidden cause of both" in browser.run("document.querySelector('.gv-legend').textContent")
    browser.click(".gv-edge")
    browser.wait("!document.querySelector('#edge').hidden")
    assert "no effects" in browser.run("document.querySelector('#edge').textContent")
    for tab in ("hidden-causes", "effects", "next"):
        browser.click(f"#tab-{tab}")
        assert browser.run(f"document.querySelector('#panel-{tab} p').textContent")
        fits(browser, PHONE[0])
    # Labels and yes/no are refused before the fit, in words of the page.
    browser.run("location.hash = '#/'")
    browser.wait("document.querySelector('#drop')")
    browser.drop("#drop", write_table(tmp_path / "labels.csv", rows=40))
    browser.wait("document.querySelector('#start:not([disabled])')")
    browser.click("#tab-rows")
    browser.click("#rows-hidden-box")
    browser.wait("document.querySelector('.problem')")
    said = browser.run("document.querySelector('.problem').textContent")
    assert "leave out columns of labels" in said
    assert "--" not in said
    is_quiet(browser, served, but=REFUSED)


def test_two_runs_are_compared_in_a_second_tab(browser, served):
    visit(browser, served, PHONE, "#/compare/exact-linear/exact-gp")
    browser.wait("document.querySelector('#comparison, .problem')")
    assert browser.run("document.querySelectorAll('#comparison tbody tr').length") > 0
    fits(browser, PHONE[0])
    is_quiet(browser, served)


def test_the_report_opens_in_an_origin_of_its_own(browser, served):
    visit(browser, served, DESKTOP)
    browser.visit(f"{served.origin}/api/runs/exact-linear/download/report?look=1", width=1280, height=900)
    browser.wait("document.querySelector('h1')")
    assert browser.run("window.origin") == "null"
    assert browser.complaints == []
    visit(browser, served, DESKTOP)


def test_a_file_of_two_gigabytes_is_refused_with_a_sentence(browser, served, tmp_path):
    huge = tmp_path / "huge.csv"
    with open(huge, "wb") as file:
        file.truncate(2_100_000_000)  # a hole: it takes no room on the disk
    visit(browser, served, DESKTOP)
    browser.drop("#drop", huge)
    browser.wait("document.querySelector('.problem')")
    said = browser.run("document.querySelector('.problem').textContent")
    assert "2.1 GB" in said
    assert "vcuda app FILE" in said
    assert not list((served.folder / "tables").glob("huge*"))
    is_quiet(browser, served)


@pytest.mark.parametrize("kind", ["scripts", "letters", "lengths"])
def test_hostile_names_are_harmless_on_every_screen(browser, served, kind, tmp_path):
    run = f"hostile-{kind}"
    hostile_run(served.folder / run, NAMES[kind])
    visit(browser, served, PHONE, f"#/run/{run}")
    browser.wait("document.querySelector('.gv-stage canvas')")
    browser.run("document.querySelector('.gv-threshold').focus()")
    browser.press("Home", 36)
    for tab in ("effects", "checks", "downloads", "graph"):
        browser.click(f"#tab-{tab}")
        fits(browser, PHONE[0])
    browser.click(".gv-edge")
    browser.wait("!document.querySelector('#edge').hidden")
    assert browser.run("window.hacked === undefined && document.images.length === 0")
    assert browser.run("document.querySelectorAll('script').length") == 1
    is_quiet(browser, served)

    names = [name.replace("\0", "").replace("\n", " ").replace("\r", " ")[:5000] for name in NAMES[kind]]
    quoted = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    cells = "\n".join(f"{k % 7},{k % 5 + 0.5 * (k % 3)},<b onclick=x>{k % 2}</b>,{(k * 7) % 11}" for k in range(60))
    table = tmp_path / f"{kind}.csv"
    table.write_text(f"{quoted}\n{cells}\n", encoding="utf-8")
    visit(browser, served, PHONE)
    browser.drop("#drop", table)
    browser.wait("document.querySelectorAll('.column').length === 4 || document.querySelector('.problem')")
    assert browser.run("document.querySelectorAll('.column').length") == 4
    browser.click("#tab-known")
    browser.wait("document.querySelector('#known-stage canvas')")
    fits(browser, PHONE[0])
    assert browser.run("window.hacked === undefined && document.images.length === 0")
    is_quiet(browser, served)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["wide", "narrow"])
def test_axe_finds_nothing_serious(browser, served, size, tmp_path):
    if not AXE.exists():
        pytest.skip("axe-core is not installed (make frontend installs it)")
    visit(browser, served, size)
    browser.drop("#drop", write_table(tmp_path / f"axe-{size[0]}.csv", rows=40))
    browser.wait("document.querySelector('#start:not([disabled])')")
    # The policy of the page allows no script of others, which a test may pass over.
    browser.run(AXE.read_text(encoding="utf-8") + "; 0")

    def check(screen):
        found = browser.run(
            "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations"
            ".map(one => [one.impact, one.id, one.nodes.map(node => node.html.slice(0, 200))]))"
        )
        assert [one for one in found if one[0] in ("critical", "serious")] == [], screen

    check("table")
    for rows in ("places", "time"):
        browser.click("#tab-rows")
        browser.click(f"#row-is-{rows}")
        browser.wait("document.querySelector('.rows-more select')")
        check(f"rows, {rows}")
    browser.click("#tab-known")
    browser.wait("document.querySelector('#known-stage canvas')")
    check("known")
    for theme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        browser.run("location.hash = '#/'")
        browser.wait("document.querySelector('#drop')")
        check(f"home, {theme}")
        browser.run(f"location.hash = '#/run/{HIDDEN.name}'")
        browser.wait("document.querySelector('.gv-stage canvas')")
        check(f"hidden causes, {theme}")
        browser.click("#tab-hidden-causes")
        check(f"pairs with hidden causes, {theme}")
        browser.run("location.hash = '#/run/exact-gp'")
        browser.wait("document.querySelector('.gv-stage canvas')")
        browser.click(".gv-edge")
        for tab in ("graph", "checks", "next", "downloads", "effects"):
            browser.click(f"#tab-{tab}")
            if tab == "next":
                browser.wait("document.querySelector('#panel-next .scrolled, #panel-next div > p:not(.busy)')")
            check(f"{tab}, {theme}")
        browser.click("#effect-ask")
        browser.wait("document.querySelector('#effect figcaption')")
        check(f"effect, {theme}")
        browser.run("location.hash = '#/compare/exact-linear/exact-gp'")
        browser.wait("document.querySelector('#comparison')")
        check(f"compare, {theme}")
    browser.call("Emulation.setEmulatedMedia", features=[])
