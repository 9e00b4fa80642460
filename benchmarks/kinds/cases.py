"""What one line is about: a data set, a method, and the grid of every suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Literal

from vcuda.data import library
from vcuda.data.simulate import Mechanism

Method = Literal["default", "bge", "degenerate", "lingam"]
# Cases that run one after the other in a process of their own: the sets of one setting.
Group = list["Case"]

MIXED_SETS, SHAPE_SETS, GAUSSIAN_SETS = 10, 3, 10
FUNCTIONS: tuple[Mechanism, ...] = ("linear", "gp")
NOISES = ("uniform", "laplace", "exponential", "t3", "two-humped")
OUTLIERS, STEP = 0.01, 0.5


def _halves(kind: str) -> Callable[[int], list[str]]:
    """Every second column is of this kind, the others are numbers."""
    return lambda nodes: [("number", kind)[k % 2] for k in range(nodes)]


# What `simulate` is asked for beside the graph, by the name of the data; kinds may depend on the number of columns.
DATA: dict[str, dict[str, Any]] = {
    "mixed": {"kinds": "mixed"},
    "gaussian": {},
    **{noise: {"noise_family": noise} for noise in NOISES},
    "spread by causes": {"spread": "causes"},
    "outliers": {"outliers": OUTLIERS},
    "half counts": {"kinds": _halves("count")},
    "half yes/no": {"kinds": _halves("yes/no")},
    "rounded": {"rounded": STEP},
}
SHAPES = tuple(name for name in DATA if name not in ("mixed", "gaussian"))
# Columns, rows, data, and the seconds within which a fit should end on two cores.
TIMES = (
    (11, 1_000, "mixed", 20),
    (12, 1_600, "gaussian", 30),
    (30, 2_000, "mixed", 180),
    (100, 1_000, "mixed", 600),
    (1_000, 500, "mixed", 300),
)


@dataclass(frozen=True)
class Case:
    """One run, in words and numbers that go into its line as they are.

    Parameters
    ----------
    suite
        The suite that it belongs to.
    data
        A name of ``DATA``, or of a bundled table.
    mechanism
        The functions of simulated tables; None for bundled ones.
    nodes, rows
        Columns and rows; a simulated table has as many expected edges as columns.
    method
        ``"default"``: `vcuda.fit` with nothing but the table, as a file would give it. ``"bge"``: linear with
        Gaussian noise, on the codes of labels. ``"degenerate"``: the same with a column for each label, see
        `benchmarks.kinds.degenerate`. ``"lingam"``: DirectLiNGAM of the package ``lingam``, on codes.
    index
        The seed of the data set and of the fit.
    """

    suite: str
    data: str
    mechanism: Mechanism | None
    nodes: int
    rows: int
    method: Method = "default"
    index: int = 0

    def what(self) -> dict[str, Any]:
        """The part of the line that says what was run."""
        return asdict(self)

    def words(self) -> str:
        """One line for people, and what ``--only`` is looked for in."""
        shown = (self.suite, self.data, self.mechanism, f"d={self.nodes}", f"n={self.rows}", self.method)
        return " ".join(str(part) for part in (*shown, f"index={self.index}") if part is not None)


def mixed() -> list[Group]:
    """Numbers, counts, yes/no, ordered columns and labels in one table."""
    return [
        _sets(MIXED_SETS, Case("mixed", "mixed", mechanism, nodes, rows, method))
        for nodes, rows, mechanism in product((8, 20), (200, 500, 5_000), FUNCTIONS)
        for method in _methods("default", "bge", "degenerate")
    ]


def shapes() -> list[Group]:
    """Numbers whose noise is not Gaussian or not constant, and columns that only look like such numbers."""
    return [
        _sets(SHAPE_SETS, Case("shapes", data, mechanism, 8, rows, method))
        for rows, mechanism, data in product((500, 5_000), FUNCTIONS, SHAPES)
        for method in (_methods("default", "lingam") if mechanism == "linear" else _methods("default"))
    ]


def gaussian() -> list[Group]:
    """Where the noise is Gaussian: linear sets, which leave directions open, and nonlinear ones."""
    linear = [
        _sets(GAUSSIAN_SETS, Case("gaussian", "gaussian", "linear", 8, rows, method))
        for rows in (500, 5_000)
        for method in _methods("default", "bge", "lingam")
    ]
    return linear + [_sets(SHAPE_SETS, Case("gaussian", "gaussian", "gp", 8, rows)) for rows in (500, 5_000)]


def times() -> list[Group]:
    """One table of each size, each in a process of its own that compiles everything anew."""
    return [[Case("times", data, "linear", nodes, rows)] for nodes, rows, data, _ in TIMES]


def bundled() -> list[Group]:
    """The tables that come with the package."""
    cards = [library.card(name) for name in library.names()]
    return [[Case("bundled", card.name, None, len(card.columns), card.rows)] for card in cards]


SUITES: dict[str, Callable[[], list[Group]]] = {
    "mixed": mixed,
    "shapes": shapes,
    "gaussian": gaussian,
    "times": times,
    "bundled": bundled,
}


def _sets(count: int, first: Case) -> Group:
    return [replace(first, index=index) for index in range(count)]


def _methods(*methods: Method) -> tuple[Method, ...]:
    return methods
