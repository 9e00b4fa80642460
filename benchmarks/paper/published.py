"""The numbers of the paper and of its authors' stored runs, beside which ours are set.

AUC and AP are of the full matrix, diagonal included, as the authors computed them. Of their mean squared errors only
those stand here that are what they are called: on linear sets, of VCUDA, DDS and MCSL. (For the other methods the
column has likelihoods or a faulty average, and on nonlinear sets the test rows came from other functions.)
"""

from __future__ import annotations

from typing import NamedTuple


class Spread(NamedTuple):
    """Mean and standard deviation over runs."""

    mean: float
    sd: float | None = None


class Both(NamedTuple):
    """AUC and AP of one method in one setting."""

    auc: Spread
    ap: Spread


# Methods of the grid that stand beside a published one.
BESIDE = {
    "vcuda-paper": "VCUDA",
    "dds-reference": "DDS",
    "dibs-reference": "DiBS",
    "bayesdag-reference": "BaDAG",
    "grandag-reference": "GraN-DAG",
    "mcsl-reference": "MCSL",
}
# The claim of its caption: VCUDA is faster than three of these four on nonlinear ER sets.
TIMED = ("DDS", "GraN-DAG", "MCSL", "DiBS")
SETTINGS = (("er", "linear"), ("sf", "linear"), ("er", "gp"), ("sf", "gp"))


def _row(*cells: tuple[float, float, float, float]) -> dict[tuple[str, str], Both]:
    """Mean AUC, its deviation, mean AP, its deviation; for each of the four settings."""
    return {
        setting: Both(Spread(auc, auc_sd), Spread(ap, ap_sd))
        for setting, (auc, auc_sd, ap, ap_sd) in zip(SETTINGS, cells, strict=True)
    }


# d = 10, e = 10, raw columns: all ten runs that the authors stored, not the five that their figures show.
TEN_NODES = {
    "VCUDA": _row(
        (0.951, 0.071, 0.786, 0.156),
        (0.946, 0.118, 0.768, 0.248),
        (0.916, 0.056, 0.716, 0.152),
        (0.888, 0.059, 0.609, 0.146),
    ),
    "DDS": _row(
        (0.822, 0.097, 0.662, 0.143),
        (0.836, 0.125, 0.646, 0.212),
        (0.820, 0.103, 0.611, 0.146),
        (0.812, 0.124, 0.607, 0.178),
    ),
    "DiBS": _row(
        (0.950, 0.024, 0.614, 0.097),
        (0.959, 0.024, 0.670, 0.151),
        (0.849, 0.065, 0.505, 0.128),
        (0.831, 0.083, 0.474, 0.159),
    ),
    "BaDAG": _row(
        (0.889, 0.081, 0.556, 0.217),
        (0.886, 0.153, 0.641, 0.297),
        (0.521, 0.050, 0.142, 0.095),
        (0.515, 0.037, 0.130, 0.071),
    ),
    "GraN-DAG": _row(
        (0.743, 0.112, 0.548, 0.211),
        (0.723, 0.123, 0.520, 0.206),
        (0.775, 0.143, 0.556, 0.228),
        (0.777, 0.118, 0.594, 0.213),
    ),
    "MCSL": _row(
        (0.866, 0.085, 0.430, 0.152),
        (0.775, 0.096, 0.361, 0.170),
        (0.808, 0.031, 0.232, 0.052),
        (0.794, 0.045, 0.205, 0.039),
    ),
}

# d = 50 and 100, raw columns: medians of five runs, read from the vector graphics of the figures; AUC, AP.
MEDIANS: dict[tuple[int, str, str], dict[str, tuple[float, float]]] = {
    (50, "er", "linear"): {
        "VCUDA": (0.995, 0.711), "DDS": (0.890, 0.639), "GraN-DAG": (0.648, 0.195),
        "DiBS": (0.634, 0.131), "BaDAG": (0.829, 0.301), "MCSL": (0.466, 0.020),
    },
    (50, "sf", "linear"): {
        "VCUDA": (0.995, 0.746), "DDS": (0.880, 0.528), "GraN-DAG": (0.597, 0.159),
        "DiBS": (0.969, 0.635), "BaDAG": (0.842, 0.433), "MCSL": (0.535, 0.023),
    },
    (50, "er", "gp"): {
        "VCUDA": (0.916, 0.523), "DDS": (0.724, 0.391), "GraN-DAG": (0.552, 0.077),
        "DiBS": (0.687, 0.194), "BaDAG": (0.518, 0.061), "MCSL": (0.466, 0.020),
    },
    (50, "sf", "gp"): {
        "VCUDA": (0.892, 0.350), "DDS": (0.699, 0.278), "GraN-DAG": (0.532, 0.060),
        "DiBS": (0.765, 0.215), "BaDAG": (0.519, 0.044), "MCSL": (0.531, 0.023),
    },
    (100, "er", "linear"): {"VCUDA": (0.997, 0.719), "DDS": (0.938, 0.791), "GraN-DAG": (0.613, 0.144)},
    (100, "sf", "linear"): {"VCUDA": (0.992, 0.613), "DDS": (0.904, 0.504), "GraN-DAG": (0.590, 0.139)},
    (100, "er", "gp"): {"VCUDA": (0.931, 0.520), "DDS": (0.662, 0.292), "GraN-DAG": (0.506, 0.012)},
    (100, "sf", "gp"): {"VCUDA": (0.900, 0.414), "DDS": (0.717, 0.228), "GraN-DAG": (0.509, 0.011)},
}  # fmt: skip

# Held-out mean squared error, linear, raw columns: means of ten runs at d = 10, else medians of five.
LINEAR_MSE: dict[tuple[int, str], dict[str, float]] = {
    (10, "er"): {"VCUDA": 1.275, "DDS": 1.204, "MCSL": 1.770},
    (10, "sf"): {"VCUDA": 1.262, "DDS": 1.191, "MCSL": 1.561},
    (50, "er"): {"VCUDA": 1.330, "DDS": 1.283, "MCSL": 9.06},
    (50, "sf"): {"VCUDA": 1.202, "DDS": 1.209, "MCSL": 10.1},
    (100, "er"): {"VCUDA": 1.309, "DDS": 1.188},
    (100, "sf"): {"VCUDA": 1.268, "DDS": 1.271},
}

# Sachs: the paper's Table 1, of the five restarts that ended first.
SACHS_TABLE = {
    "VCUDA": Both(Spread(0.71, 0.04), Spread(0.32, 0.05)),
    "DiBS": Both(Spread(0.66, 0.03), Spread(0.34, 0.07)),
    "MCSL": Both(Spread(0.58, 0.04), Spread(0.21, 0.03)),
    "GraN-DAG": Both(Spread(0.57, 0.02), Spread(0.26, 0.03)),
    "DDS": Both(Spread(0.43, 0.02), Spread(0.16, 0.04)),
    "BaDAG": Both(Spread(0.48, 0.01), Spread(0.17, 0.02)),
}
# All ten restarts that the authors stored.
SACHS_ALL_RUNS = {
    "VCUDA": Both(Spread(0.714, 0.048), Spread(0.335, 0.045)),
    "DiBS": Both(Spread(0.685, 0.057), Spread(0.359, 0.060)),
    "MCSL": Both(Spread(0.592, 0.046), Spread(0.245, 0.055)),
    "GraN-DAG": Both(Spread(0.567, 0.015), Spread(0.254, 0.028)),
    "DDS": Both(Spread(0.403, 0.051), Spread(0.144, 0.032)),
    "BaDAG": Both(Spread(0.478), Spread(0.169)),
}
SACHS_OFF_DIAGONAL_AUC = {"VCUDA": 0.686, "DiBS": 0.654, "MCSL": 0.544, "GraN-DAG": 0.567, "DDS": 0.375}
# What the authors gave to each method.
SACHS_COLUMNS = {name: "standardised" if name in ("VCUDA", "BaDAG") else "raw" for name in SACHS_TABLE}


class Theirs(NamedTuple):
    """Published AUC, AP and, where it is one, mean squared error, by the names of our measures; and what they are."""

    numbers: dict[str, float]
    statistic: str


def theirs(method: str, nodes: int, edges: int | None, graph: str | None, mechanism: str | None) -> Theirs | None:
    """What is published beside a method of the grid, for raw columns of a simulated setting; None if nothing is."""
    name = BESIDE.get(method)
    if name is None or edges != nodes or graph is None or mechanism is None:
        return None
    squares = LINEAR_MSE.get((nodes, graph), {}) if mechanism == "linear" else {}
    more = {"mse": squares[name]} if name in squares else {}
    if nodes == 10:
        both = TEN_NODES[name][graph, mechanism]
        return Theirs({"auc_full": both.auc.mean, "ap_full": both.ap.mean, **more}, "mean")
    medians = MEDIANS.get((nodes, graph, mechanism), {})
    if name not in medians:
        return None
    auc, ap = medians[name]
    return Theirs({"auc_full": auc, "ap_full": ap, **more}, "median")
