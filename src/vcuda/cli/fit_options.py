"""What people may say to ``vcuda fit``, and the knowledge that they say by options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vcuda.baselines import BASELINES
from vcuda.infer.engines import ENGINES

if TYPE_CHECKING:
    from vcuda.data.knowledge import Knowledge

Models = Literal["auto", "linear", "mlp", "gp", "additive", "discrete"]
Noises = Literal["unit", "equal", "unequal"]
if TYPE_CHECKING:
    Engines = str
else:
    Engines = Literal[("auto", *ENGINES, *BASELINES)]
Presets = Literal["default", "paper"]

Output = Annotated[Path, typer.Option("--output", "-o", help="The folder to write; an earlier run there is replaced.")]
Model = Annotated[
    Models,
    typer.Option(
        help="How a variable depends on its causes; auto: what the data support best, discrete for categories."
    ),
]
Noise = Annotated[
    Noises | None,
    typer.Option(
        help="Noise variances: all one, one shared, or one for each variable. By default what the data support "
        "with model auto, unit with preset paper, else unequal.",
        show_default=False,
    ),
]
Logged = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="COLUMN",
        help="Take this column by its logarithm; repeat for more. By default the data decide with model auto.",
        show_default=False,
    ),
]
Raw = Annotated[bool, typer.Option("--raw", help="Take no column by its logarithm.")]
Engine = Annotated[
    Engines,
    typer.Option(
        help="How the posterior is found; auto: the best for the size of the table. From empty on: other methods, "
        "to compare with."
    ),
]
Preset = Annotated[Presets, typer.Option(help="paper: the authors' program as it was run, of other methods too.")]
Standardise = Annotated[bool, typer.Option("--standardise", help="Bring every column to mean 0 and variance 1 first.")]
EdgePrior = Annotated[
    float | None,
    typer.Option(
        help="Probability of an edge before data are seen, if the order of the two variables allows it. "
        "By default one expected cause for each variable.",
        show_default=False,
    ),
]
KnowledgeFile = Annotated[
    Path | None,
    typer.Option(
        "--knowledge",
        metavar="FILE",
        help="A .toml or .csv file with what is known of the causes; every graph obeys.",
        show_default=False,
    ),
]
Required = Annotated[
    list[str] | None,
    typer.Option(
        "--require", metavar='"A -> B"', help="A is a direct cause of B; repeat for more.", show_default=False
    ),
]
Forbidden = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid", metavar='"A -> B"', help="A is no direct cause of B; repeat for more.", show_default=False
    ),
]
Tiers = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        metavar='"A,B"',
        help="Columns that come before those of the next --tier: no edge points back.",
        show_default=False,
    ),
]
WithinTiers = Annotated[
    bool, typer.Option("--within-tiers/--no-within-tiers", help="Whether columns of one tier may cause each other.")
]
Roots = Annotated[
    list[str] | None,
    typer.Option("--root", metavar="COLUMN", help="A column without causes; repeat for more.", show_default=False),
]
Sinks = Annotated[
    list[str] | None,
    typer.Option("--sink", metavar="COLUMN", help="A column without effects; repeat for more.", show_default=False),
]
Imputations = Annotated[
    int,
    typer.Option(
        "--imputations",
        metavar="N",
        min=1,
        help="Fill missing cells in so many times, and take the mean over the fillings.",
    ),
]
Streamed = Annotated[
    bool | None,
    typer.Option(
        "--streamed/--in-memory",
        help="Read the table block by block, or all at once. By default folders and large files are streamed.",
        show_default=False,
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="End after so many seconds with what there is; the status says so.",
        show_default=False,
    ),
]
Samples = Annotated[
    int,
    typer.Option(
        min=0,
        help="Also write so many posterior graphs to samples.npz; vcuda sample can do it later.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="RUN",
        help="Go on with the fit in this folder that was killed or stopped; nothing else need be given.",
        show_default=False,
    ),
]
DaskAddress = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Let a Dask cluster share the work: the address of its scheduler (tcp://host:8786), local for one "
        "process a core of this machine, or a number of local processes. The result is the same.",
        show_default=False,
    ),
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.html; vcuda report can do it later.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors and warnings.")]


def knowledge_from_options(
    file: Path | None,
    require: list[str] | None,
    forbid: list[str] | None,
    tier: list[str] | None,
    within_tiers: bool,
    root: list[str] | None,
    sink: list[str] | None,
) -> Knowledge:
    """What the file and the options say together."""
    from vcuda.data.columns import names_in
    from vcuda.data.knowledge import Knowledge, as_knowledge

    stated = Knowledge.from_dict(
        {
            "required": require or (),
            "forbidden": forbid or (),
            "tiers": [names_in(line) for line in tier or ()],
            "within_tiers": within_tiers,
            "roots": root or (),
            "sinks": sink or (),
        }
    )
    return as_knowledge(file).joined(stated)
