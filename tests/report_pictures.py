"""The pictures of reports in docs/figures: ``python tests/report_pictures.py [FOLDER]``.

Fits the Sachs cells and simulated tables of 30, 100 and 200 columns (some minutes), and shows their reports in a
browser. Runs are kept in FOLDER, and taken from there when they exist.
"""

from __future__ import annotations

import io
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from browser import Browser, installed
from PIL import Image

import vcuda

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
DESKTOP, PHONE, SHOWN_WIDTH, COLOURS = (1280, 900), (390, 844), 1000, 200
THINGS = ("order", "visit", "price", "stock", "click", "basket", "return", "delivery", "campaign", "discount", "email")
SIDES = ("count", "rate", "value", "delay", "score", "share", "total", "index", "level", "time", "cost", "size", "age")
PLACES = ("", "_north", "_south")


def fitted(columns: int, folder: Path) -> vcuda.Posterior:
    """Sachs has 11 columns; the others are random graphs, sparse as those of large tables are."""
    run = folder / f"columns-{columns}"
    if not run.exists():
        if columns == 11:
            posterior = vcuda.fit("sachs")
        else:
            kind = "er" if columns == 30 else "sf"
            edges = int(1.3 * columns)
            made = vcuda.simulate(kind, nodes=columns, edges=edges, rows=1000, test_rows=1, seed=1)
            table = made.train.to_frame()
            names = [f"{thing}_{side}{place}" for place in PLACES for thing in THINGS for side in SIDES]
            order = np.random.default_rng(columns).permutation(len(THINGS) * len(SIDES) * (3 if columns > 140 else 1))
            table.columns = [names[k] for k in order[:columns]]
            busiest = int(np.bincount(made.targets).argmax())  # the column with most causes
            target = table.columns[busiest] if columns == 30 else None
            posterior = vcuda.fit(table, model="linear", target=target)
        posterior.save(run)
    return vcuda.Posterior.load(run)


def picture(browser: Browser, report: Path, size: tuple[int, int]) -> Image.Image:
    browser.open(report, width=size[0], height=size[1])
    browser.run("new Promise(done => setTimeout(done, 300))")
    return Image.open(io.BytesIO(browser.screenshot())).convert("RGB")


def write(image: Image.Image, name: str) -> None:
    width = min(SHOWN_WIDTH, image.width)
    small = image.resize((width, image.height * width // image.width), Image.Resampling.LANCZOS)
    small.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).save(FIGURES / name, optimize=True)


def beside(images: list[Image.Image]) -> Image.Image:
    """Several pictures in a row, as high as the highest."""
    space = 24
    whole = Image.new(
        "RGB", (sum(one.width + space for one in images) - space, max(one.height for one in images)), "#888"
    )
    at = 0
    for one in images:
        whole.paste(one, (at, 0))
        at += one.width + space
    return whole


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    program = installed()
    assert program is not None, "there is no Chromium here"
    browser = Browser(program)
    phones = []
    for columns in (11, 30, 100, 200):
        report = folder / f"report-{columns}.html"
        fitted(columns, folder).report(report, curves=0)
        write(picture(browser, report, DESKTOP), f"report-{columns}.png")
        phones.append(picture(browser, report, PHONE))
    write(beside(phones), "report-phone.png")
    browser.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
