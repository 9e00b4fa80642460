"""Pictures of the app for docs/app.md: ``python tests/app_pictures.py`` fits the tables that it shows, and writes them.

Fits that are there from an earlier run are kept: ``python tests/app_pictures.py FOLDER``.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from browser import Browser, installed
from PIL import Image
from report_pictures import beside, write
from test_app import write_months
from test_app_browser import DESKTOP, PHONE, Served, visit, write_table

SIZES = {30: 36, 100: 130, 200: 260}  # columns, and edges of the simulated graph


def fit(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "vcuda", *words])
    assert done.returncode in (0, 3), words


def main(folder: Path) -> None:
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    # What an earlier call uploaded and fitted on the page.
    for made in (*runs.glob("clinic*"), runs / "tables", runs / ".vcuda-app"):
        shutil.rmtree(made, ignore_errors=True)
    if not (runs / "sachs" / "config.json").exists():
        fit("fit", "sachs", "-o", str(runs / "sachs"), "--quiet")
    if not (runs / "months" / "config.json").exists():
        table = write_months(folder / "months.csv")
        steps = ["--lags", "1", "--time", "month", "--unit", "shop", "--exclude", "open"]
        fit("fit", table, "-o", str(runs / "months"), "--quiet", *steps)
    for columns, edges in SIZES.items():
        made = folder / f"simulated-{columns}"
        if not made.exists():
            size = ["--nodes", str(columns), "--edges", str(edges), "--rows", "500", "--seed", "1"]
            fit("simulate", "-o", str(made), *size, "--noise", "equal")
        if not (runs / f"columns-{columns}" / "config.json").exists():
            table, run = str(made / "train.csv"), str(runs / f"columns-{columns}")
            fit("fit", table, "-o", run, "--quiet", "--no-report", "--model", "linear", "--noise", "equal")
    os.environ["VCUDA_TESTS_NETWORK"] = "yes"
    served, browser = Served(runs), Browser(str(installed()))

    def seen() -> Image.Image:
        time.sleep(0.6)
        return Image.open(io.BytesIO(browser.screenshot())).convert("RGB")

    def keep(name: str) -> None:
        write(seen(), f"app-{name}.png")

    def top(selector: str) -> None:
        browser.run(f"document.querySelector('{selector}').scrollIntoView({{block: 'start'}})")

    try:
        visit(browser, served, DESKTOP)
        browser.wait("document.body.innerText.includes('as the command line writes them')")
        # Where people see their own folder.
        browser.run(
            "const p = document.querySelector('#runs > p');"
            f"p.textContent = p.textContent.replace({json.dumps(str(runs))}, 'vcuda-runs')"
        )
        keep("start")
        browser.drop("#drop", write_table(folder / "clinic.csv", rows=300))
        browser.wait("document.querySelectorAll('.column').length === 6")
        keep("columns")
        browser.click("#tab-rows")
        browser.click("#row-is-time")
        browser.run("window.scrollTo(0, 0)")
        keep("rows")
        browser.click("#row-is-each")
        browser.wait("document.querySelector('#question-target:not([disabled])')")
        browser.click("#tab-known")
        browser.wait("document.querySelector('#known-stage canvas')")
        for source, how, target in (("dose", "required", "level"), ("colour", "forbidden", "dose")):
            browser.pick("#known-from", source)
            browser.pick("#known-how", how)
            browser.pick("#known-to", target)
            browser.click("#known-add")
        browser.wait("document.querySelector('#known-said').textContent")
        browser.run("window.scrollTo(0, 0)")
        keep("knowledge")
        browser.click("#question-target")
        browser.pick("#target", "well")
        browser.click("#start")
        browser.wait("document.querySelector('#driver-table')", seconds=900)
        keep("drivers")
        shown = ("sachs", *(f"columns-{columns}" for columns in SIZES))
        for run in ("months", *shown):
            visit(browser, served, DESKTOP, f"#/run/{run}")
            browser.wait("document.querySelector('.gv-stage canvas')")
            top(".tabs")
            keep(f"graph-{run.removeprefix('columns-').replace('sachs', '11')}")
        browser.pick("#graph select", "all")
        keep("graph-200-all")
        phones = []
        for run in shown:
            visit(browser, served, PHONE, f"#/run/{run}")
            browser.wait("document.querySelector('.gv-stage canvas')")
            top(".gv-bar")
            phones.append(seen())
        write(beside(phones), "app-phone.png")
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        visit(browser, served, DESKTOP, "#/run/sachs")
        browser.wait("document.querySelector('.gv-stage canvas')")
        browser.click(".gv-edge")
        browser.click("#why")
        browser.wait("document.querySelector('.why')", seconds=600)
        top("#edge")
        keep("why-dark")
        assert browser.complaints == []
    finally:
        browser.close()
        served.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
