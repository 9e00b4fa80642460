"""The grid of every suite: which data sets, engines and models are run, and which share a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

from benchmarks.accuracy.cases import Case
from benchmarks.problems import Columns
from vcuda.data.simulate import GraphFamily, Mechanism

# Cases that run one after the other in a process of their own.
Group = list[Case]

FAMILIES: tuple[GraphFamily, ...] = ("er", "sf")
MECHANISMS: tuple[Mechanism, ...] = ("linear", "gp")
SCALES: tuple[Columns, ...] = ("raw", "standardised")
EQUAL, BGE = ("linear", "equal"), ("linear", "unequal")
GP, ADDITIVE = ("gp", "unequal"), ("additive", "unequal")
ENGINES = ("exact", "orders", "variational")
PAPER_SETS, FRESH_SETS, DENSE_SETS, LARGE_SETS = 10, 5, 3, 2
# The probability of an edge given the order in the authors' own runs: of e = d sets, and of Sachs.
PAPER_PRIOR, SACHS_PRIOR = 0.1, 0.01
CALIBRATION_NODES, CALIBRATION_ROWS, CALIBRATION_SETS = (5, 6, 7, 8), (30, 100, 300, 1000), 25
RESTARTS = 3


def paper_d10() -> list[Group]:
    """The authors' ten data sets of each setting, as they are and standardised."""
    # BGe standardises by itself, so that raw columns give the same numbers.
    linear = [*product([("raw", EQUAL), ("standardised", BGE)], ENGINES)]
    nonlinear = [
        ((columns, model), engine)
        for columns in SCALES
        for model, engine in ((GP, "exact"), (GP, "orders"), (ADDITIVE, "exact"), (ADDITIVE, "variational"))
    ]
    return [
        _sets(
            PAPER_SETS,
            suite="paper-d10",
            source="paper",
            graph=graph,
            mechanism=mechanism,
            nodes=10,
            edges=10,
            columns=columns,
            prior=PAPER_PRIOR,
            **_fit(engine, model),
        )
        for mechanism, runs in (("linear", linear), ("gp", nonlinear))
        for graph in FAMILIES
        for (columns, model), engine in runs
    ]


def d50_d100() -> list[Group]:
    """Fresh data sets of 50 and 100 nodes, as many edges as nodes; linear ones of 50 nodes also denser."""
    runs: list[tuple[Mechanism, Columns, str, tuple[str, str]]] = [
        ("linear", "raw", "orders", EQUAL),
        ("linear", "raw", "variational", EQUAL),
        ("linear", "standardised", "orders", BGE),
        ("gp", "raw", "variational", ADDITIVE),
        ("gp", "raw", "orders", ADDITIVE),
        ("gp", "raw", "orders", GP),
        ("gp", "raw", "oracle", GP),
    ]
    groups = [
        _fresh(FRESH_SETS, "d50-d100", graph, mechanism, nodes, nodes, columns, engine, model)
        for nodes in (50, 100)
        for mechanism, columns, engine, model in runs
        # Only hubs have parents that nothing can show, and so need an oracle beside them.
        for graph in (FAMILIES if engine != "oracle" else ("sf",))
    ]
    identified: tuple[tuple[Columns, tuple[str, str]], ...] = (("raw", EQUAL), ("standardised", BGE))
    dense = [
        _fresh(DENSE_SETS, "d50-d100", graph, "linear", 50, 50 * density, columns, engine, model)
        for density in (2, 4)
        for columns, model in identified
        for engine in ("orders", "variational")
        for graph in FAMILIES
    ]
    return dense + groups


def scale() -> list[Group]:
    """Linear raw sets of 500 to 5,000 nodes; each size in a process of its own, for its memory."""
    groups = [
        _fresh(LARGE_SETS, "scale", graph, "linear", nodes, nodes, "raw", engine, EQUAL)
        for nodes, engines in ((500, ENGINES[1:]), (1000, ENGINES[1:]), (2000, ENGINES[1:2]))
        for engine in engines
        for graph in FAMILIES
    ]
    return [*groups, _fresh(1, "scale", "er", "linear", 5000, 5000, "raw", "orders", EQUAL)]


def calibration() -> list[Group]:
    """Blocks of small data sets whose graph, weights and noise are drawn from the model's own prior."""
    runs: list[tuple[Columns, str, str]] = [
        ("prior units", noise, engine) for noise in ("unit", "equal", "unequal") for engine in ENGINES
    ]
    # As `fit` sees the same tables: centred, and scaled by what the table itself tells.
    runs += [("raw", noise, "exact") for noise in ("unit", "equal", "unequal")]
    return [
        [
            Case(
                suite="calibration",
                kind="calibration",
                source="prior",
                engine=engine,
                model="linear",
                noise=noise,
                nodes=nodes,
                rows=rows,
                columns=columns,
            )
            for nodes, rows in product(CALIBRATION_NODES, CALIBRATION_ROWS)
        ]
        for columns, noise, engine in runs
    ]


def auto() -> list[Group]:
    """What the evidence chooses, how well that does, and that units do not matter where they should not."""
    settings = [*product(MECHANISMS, SCALES)]
    chosen = {"engine": "auto", "model": "auto", "noise": None}
    small = [
        _sets(
            PAPER_SETS,
            suite="auto",
            source="paper",
            graph=graph,
            mechanism=mechanism,
            nodes=10,
            edges=10,
            columns=columns,
            prior=PAPER_PRIOR,
            **chosen,
        )
        for mechanism, columns in settings
        for graph in FAMILIES
    ]
    larger = [
        _sets(
            2 * FRESH_SETS,
            suite="auto",
            source="fresh",
            graph="er",
            mechanism=mechanism,
            nodes=50,
            edges=50,
            columns=columns,
            **chosen,
        )
        for mechanism, columns in settings
    ]
    rescaled = [
        _sets(
            FRESH_SETS,
            suite="auto",
            kind="rescaling",
            source="paper",
            graph="er",
            mechanism=mechanism,
            nodes=10,
            edges=10,
            prior=PAPER_PRIOR,
            **_fit(engine, model),
        )
        for mechanism, engine, model in (
            ("linear", "exact", BGE),
            ("gp", "exact", ADDITIVE),
            ("gp", "exact", GP),
            ("linear", "orders", BGE),
            ("linear", "variational", BGE),
            ("gp", "variational", ADDITIVE),
        )
    ]
    sachs = _sets(1, suite="auto", source="sachs", nodes=11, rows=853, **chosen)
    return [*small, sachs, *rescaled, *larger]


def sachs() -> list[Group]:
    """Every engine and score on the Sachs cells, on three scales, and the authors' program."""
    common: dict[str, Any] = {"suite": "sachs", "source": "sachs", "nodes": 11, "rows": 853}
    scales: tuple[Columns, ...] = ("raw", "logarithm", "standardised")
    runs = [*product(ENGINES[:2], (EQUAL, BGE, ADDITIVE, GP)), *product(ENGINES[2:], (EQUAL, BGE, ADDITIVE))]
    groups = [
        _sets(1, columns=columns, **_fit(engine, model), **common) for columns in scales for engine, model in runs
    ]
    groups += [_sets(1, columns=columns, engine="auto", model="auto", noise=None, **common) for columns in scales]
    paper = [
        _sets(RESTARTS, columns=columns, prior=SACHS_PRIOR, **_fit("straight-through", (model, "unit")), **common)
        for columns in scales
        for model in ("linear", "mlp")
    ]
    return groups + paper


def crossover() -> list[Group]:
    """The same two sets by several engines, the second without compilation: which one is quicker from where on."""
    models: list[tuple[Mechanism, tuple[str, str], tuple[str, ...]]] = [
        ("linear", EQUAL, ENGINES),
        ("linear", BGE, ENGINES[:2]),
        ("gp", GP, ENGINES[:2]),
        ("gp", ADDITIVE, ENGINES),
    ]
    small = [
        (mechanism, nodes, model, engine)
        for mechanism, model, engines in models
        for nodes in (12, 16, 20)
        for engine in engines
    ]
    large: list[tuple[Mechanism, int, tuple[str, str], str]] = [
        ("gp", nodes, ADDITIVE, engine) for nodes in (100, 200) for engine in ENGINES[1:]
    ]
    return [
        _fresh(2, "crossover", "er", mechanism, nodes, nodes, "raw", engine, model)
        for mechanism, nodes, model, engine in small + large
    ]


SUITES: dict[str, Callable[[], list[Group]]] = {
    "paper-d10": paper_d10,
    "d50-d100": d50_d100,
    "scale": scale,
    "calibration": calibration,
    "auto": auto,
    "sachs": sachs,
    "crossover": crossover,
}


def _sets(count: int, **settings: Any) -> Group:
    first = Case(**settings)
    return [replace(first, index=index) for index in range(count)]


def _fit(engine: str, model: tuple[str, str]) -> dict[str, Any]:
    kind = "oracle" if engine == "oracle" else "fit"
    seen = {"engine": engine, "model": model[0], "noise": model[1]}
    return seen | ({"kind": kind} if kind == "oracle" else {})


def _fresh(
    count: int,
    suite: str,
    graph: GraphFamily,
    mechanism: Mechanism,
    nodes: int,
    edges: int,
    columns: Columns,
    engine: str,
    model: tuple[str, str],
) -> Group:
    return _sets(
        count,
        suite=suite,
        source="fresh",
        graph=graph,
        mechanism=mechanism,
        nodes=nodes,
        edges=edges,
        columns=columns,
        **_fit(engine, model),
    )
