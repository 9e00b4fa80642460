"""The picture of the README: what the defaults find in the Sachs cells, beside the consensus network."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

import vcuda
from vcuda.data import library
from vcuda.errors import ConvergenceWarning

PICTURE = Path(__file__).parent.parent / "docs" / "sachs.svg"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks picture", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=PICTURE)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ConvergenceWarning)
    table = library.load("sachs")
    posterior = vcuda.fit(table.dataset, seed=0)
    draw(posterior.edge_probabilities.to_numpy(), table.truth, posterior.names, options.output)
    print(f"wrote {options.output}")
    return 0


def draw(probabilities: np.ndarray, truth: np.ndarray, names: tuple[str, ...], path: Path) -> None:
    """A heat map of the probabilities; a ring marks each edge of the known network."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "vcuda"  # the same picture gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 5.2), layout="constrained")
    image = axes.imshow(probabilities, cmap="Blues", vmin=0, vmax=1)
    sources, targets = np.nonzero(truth)
    axes.scatter(targets, sources, s=120, facecolors="none", edgecolors="#d1495b", linewidths=1.6)
    ticks = range(len(names))
    axes.set_xticks(ticks, names, rotation=60)
    axes.set_yticks(ticks, names)
    axes.set_xlabel("effect")
    axes.set_ylabel("cause")
    axes.set_title("Sachs: posterior edge probability (rings: consensus network)", fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.8)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
