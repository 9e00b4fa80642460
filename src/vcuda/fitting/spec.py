"""FitSpec: every option of a fit, described once.

The signature and docstring of :func:`vcuda.fit`, the options of ``vcuda fit``, the parameters of ``CausalPosterior``,
what a run stores, what a resumed fit may change and the lines that repeat a fit all come from the fields below. To add
an option, add a field: its annotation, its default and its help. The rest of the package reads it from
``request.spec``.

The command line reads this module to answer ``--help``, so it imports nothing heavy before a value is checked.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from vcuda.arguments import LARGEST_SEED, flag, number, plain, seed_of, time_limit_of, whole_number
from vcuda.baselines import BASELINES
from vcuda.deprecation import warn_renamed
from vcuda.errors import ConfigError
from vcuda.infer.engines import ENGINES
from vcuda.models import MODEL_NAMES as NAMED_MODELS
from vcuda.specs import to_json

if TYPE_CHECKING:
    from vcuda.dags.base import GraphPrior
    from vcuda.data.dataset import Dataset
    from vcuda.data.knowledge import Knowledge
    from vcuda.data.streaming import StreamedTable
    from vcuda.fitting.routes import Engine
    from vcuda.infer.checkpoint_files import Checkpoint
    from vcuda.infer.progress import ProgressCallback
    from vcuda.models.functional.base import FunctionalModel
    from vcuda.models.protocol import Noise, ScoreSpec

Preset = Literal["default", "paper"]
# The names that people give; a test compares them with what the package has.
MODEL_NAMES = ("auto", *NAMED_MODELS)
NOISE_NAMES = ("unit", "equal", "unequal")
ENGINE_NAMES = ("auto", *ENGINES, *BASELINES)
PRESETS = ("default", "paper")
TRENDS = ("auto", "linear", "none")
# Steps back that a fit takes, and steps of a season.
MOST_LAGS, MOST_SEASON = 100, 10_000
# Options that mean nothing for independent rows.
OF_TIME = ("time", "unit", "season", "trend", "resample", "contemporaneous")

# Options that had other names; each old name works for one release.
RENAMED_OPTIONS = {"without": "exclude", "logarithm": "log"}
# Those that were flags of the command line too.
RENAMED_FLAGS = ("without",)

# The types in which the command line and JSON say the value of an option.
PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "float | str": (float, int, str),
    "int | str": (int, str),
    "Sequence[str]": (list, tuple),
    "dict": (dict,),
    "dict[str, str]": (dict,),
}

P = ParamSpec("P")
R = TypeVar("R")


# One option --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """What there is to say about one option of a fit.

    Parameters
    ----------
    name, annotation, default
        As in the signature of :func:`vcuda.fit`.
    help
        What the option does, for the command line and the docstring.
    in_python
        What only holds in Python; it follows ``help`` in the docstring.
    plain
        The type in which the command line and JSON say it, one of ``PLAIN_TYPES``; by default the annotation.
    choices, renamed
        The names that the option takes, and old names with what they are called now.
    least, most
        Bounds of a number.
    check
        Turns what was passed into the value that the fit uses, or refuses it; by default a check of the plain type.
    flag, metavar
        The option on the command line and what stands for its value; no flag if it is not there.
    part
        ``"fit"`` decides the result, ``"table"`` says how the table is read, ``"run"`` says how the call runs and is
        not stored.
    changeable
        Whether a fit may go on with another value when it is resumed.
    other_flags
        Flags of the command line that do the same.
    stored_at
        The keys that lead to the value in the provenance of a run; by default the name.
    as_passed
        Turns what is stored there into a plain value that can be passed again; by default it is one.
    as_found
        Whether the run stores what the fit found or chose, rather than the value that was passed.
    """

    name: str
    annotation: str
    default: Any
    help: str
    in_python: str = ""
    plain: str = ""
    choices: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    least: float | None = None
    most: float | None = None
    check: Callable[[Any], Any] | None = None
    flag: str | None = None
    metavar: str | None = None
    other_flags: tuple[str, ...] = ()
    part: Literal["fit", "table", "run"] = "fit"
    changeable: bool = False
    stored_at: tuple[str, ...] = ()
    as_passed: Callable[[Any], Any] | None = None
    as_found: bool = False

    def checked(self, value: Any) -> Any:
        """The value that the fit uses; a ConfigError for one that cannot be."""
        if value is None and self.default is None:
            return None
        if self.check is not None:
            return self.check(value)
        if self.choices:
            return one_of(self.name, value, self.choices)
        if self.plain == "bool":
            return flag(self.name, value)
        if self.plain == "int":
            most = None if self.most is None else int(self.most)
            return whole_number(self.name, value, least=int(self.least or 0), most=most)
        if self.plain == "float":
            return number(self.name, value)
        return names(self.name, value) if self.plain == "Sequence[str]" else value

    def is_plain(self, value: Any) -> bool:
        """Whether a value from a file is of the type that was written there."""
        if type(value) not in PLAIN_TYPES[self.plain]:
            return value is None and self.default is None
        texts = [*value, *value.values()] if self.plain == "dict[str, str]" else value
        return "[" not in self.plain or all(isinstance(one, str) for one in texts)

    def stored_in(self, provenance: Mapping[str, Any]) -> Any:
        """The value in the provenance of a run; None where it says nothing of it."""
        found: Any = provenance
        for key in self.stored_at:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if found is None or self.as_passed is None else self.as_passed(found)

    def is_worth_repeating(self, value: Any) -> bool:
        """Whether a line that repeats a fit says this value: numbers always, since a later default may differ."""
        if value is None or value == [] or value == {}:
            return False
        return value != self.default or (isinstance(value, int | float) and not isinstance(value, bool))

    def flag_words(self, value: Any) -> list[str]:
        """A value of the option as it stands on the command line."""
        assert self.flag is not None
        positive, _, negative = self.flag.partition("/")
        if isinstance(value, bool):
            return [positive if value else negative]
        if self.metavar == '"A,B"':
            from vcuda.data.columns import line_of

            return [positive, line_of(value)]
        if isinstance(value, Mapping):
            value = [f"{name}={own}" for name, own in value.items()]
        if isinstance(value, list | tuple):
            return [word for one in value for word in (positive, one)]
        return [positive, value if isinstance(value, str) else repr(value)]


def option(default: Any, sentence: str, **described: Any) -> Any:
    """A field of `FitSpec` with its help; for what else is ``described`` see `Option`."""
    return field(default=default, metadata={"option": {"help": sentence, **described}})


def options_of(spec: type) -> dict[str, Option]:
    """The options that are the fields of a class, by name."""
    found = {}
    for one in fields(spec):
        described = dict(one.metadata["option"])
        described.setdefault("plain", str(one.type).removesuffix(" | None"))
        described.setdefault("stored_at", (one.name,))
        if described.get("part") != "run":
            described.setdefault("flag", f"--{one.name.replace('_', '-')}")
        found[one.name] = Option(name=one.name, annotation=str(one.type), default=one.default, **described)
    return found


# What single options take ------------------------------------------------------------------------------------


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of several names."""
    if not isinstance(value, str) or value not in choices:
        known = " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
        raise ConfigError(f"{name} must be {known}, not {value!r}")
    return value


def names(option: str, value: Any) -> tuple[str, ...]:
    """Names of columns; one name may stand alone."""
    given = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{option} must be a list of column names, not {value!r}")
    return tuple(map(str, given))


def text_of(option: str, value: Any) -> str:
    """A text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{option} must be a text, not {value!r}")
    return value


def model_of(value: Any) -> Any:
    """The name of a model, or a spec of one."""
    if isinstance(value, str):
        return one_of("model", value, MODEL_NAMES)
    from vcuda.models import MODELS
    from vcuda.models.protocol import ScoreSpec

    return _spec_of("model", value, (*MODELS.values(), ScoreSpec), "MLP(hidden=(64,))")


def engine_of(value: Any) -> Any:
    """The name of an engine or another method, or a spec of one."""
    if isinstance(value, str):
        return one_of("engine", value, ENGINE_NAMES)
    kinds = tuple(method.spec for method in (*ENGINES.values(), *BASELINES.values()))
    return _spec_of("engine", value, kinds, "Orders(replicas=8)")


def _spec_of(name: str, value: Any, kinds: tuple[type, ...], example: str) -> Any:
    if isinstance(value, type) and issubclass(value, kinds):
        raise ConfigError(f"{name} is the class {value.__name__}; make a spec of it: {value.__name__}()")
    if not isinstance(value, kinds):
        known = MODEL_NAMES if name == "model" else ENGINE_NAMES
        raise ConfigError(f"{name} must be one of {', '.join(known)}, or a spec such as {example}, not {value!r}")
    return value


def prior_of(value: Any) -> Any:
    """The probability of an edge, the name of a prior, or a spec of one."""
    given = plain(value)
    if isinstance(given, int | float) and not isinstance(given, bool):
        probability = number("prior", given)
        if not 0 < probability < 1:
            raise ConfigError(f"prior must lie strictly between 0 and 1, not {value!r}")
        return probability
    from vcuda.dags.base import PRIORS, UniformDags

    if isinstance(given, str):
        name, colon, probability_text = given.partition(":")
        if name == UniformDags.name:
            try:
                return UniformDags(float(probability_text)) if colon else UniformDags()
            except ValueError:
                pass  # no number: refused below
    if not isinstance(given, tuple(PRIORS.values())):
        raise ConfigError(
            "prior must be a number between 0 and 1, 'uniform' or 'uniform:0.1', or a spec such as DagPrior(0.1) or "
            f"UniformDags(), not {value!r}"
        )
    return given


def prior_as_passed(stored: Any) -> Any:
    """A stored prior as the number or text that `prior_of` takes."""
    probability = stored.get("edge_probability")
    return f"uniform:{probability!r}" if stored.get("name") == "uniform" else probability


def knowledge_of(value: Any) -> Any:
    """Knowledge, read if it is in a file; None if it says nothing."""
    from vcuda.data.knowledge import as_knowledge

    return as_knowledge(value) or None


def kinds_of(value: Any) -> Any:
    """Kinds by column name."""
    from vcuda.data.kinds import checked_kinds

    return checked_kinds(value)


def missing_values_of(value: Any) -> Any:
    """Cells that stand for missing values, as text."""
    from vcuda.data.missing_codes import checked_missing_values

    return checked_missing_values(value)


def steps_of(name: str, value: Any, *, least: int, most: int) -> Any:
    """A number of steps in time, or ``"auto"``."""
    given = plain(value)
    if given == "auto":
        return given
    if isinstance(given, str):
        raise ConfigError(f"{name} must be a whole number of steps or auto, not {value!r}")
    return whole_number(name, given, least=least, most=most)


def progress_of(value: Any) -> Any:
    """A function that is called with each `Progress`."""
    if not callable(value):
        raise ConfigError(f"progress must be a function that takes a vcuda.Progress, or None, not {value!r}")
    return value


# All options -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class FitSpec:
    """What a fit is asked for; every value is checked when it is made."""

    model: str | FunctionalModel | ScoreSpec = option(
        "auto",
        "How a variable depends on its causes. auto: what the data support best; categorical for labels.",
        in_python="""The others are ``"linear"``; ``"gp"``, a smooth function of all causes together; ``"additive"``, a
        sum of smooth functions of single causes; ``"mlp"``, trained by gradient. Or a spec such as
        ``MLP(hidden=(64,))`` or ``BGe()``. ``"categorical"`` is a distribution for every combination of the causes'
        labels; asked for by name it takes each different number for a category.""",
        plain="str",
        choices=MODEL_NAMES,
        renamed={"discrete": "categorical"},
        check=model_of,
        stored_at=("model", "name"),
        as_found=True,
    )
    noise: Noise | None = option(
        None,
        "Noise variances: all one, one shared, or one for each variable. By default what the data support with model "
        "auto, unit with preset paper, else unequal.",
        in_python="Only with a model given by name. Unequal noise does not depend on the units of the columns.",
        plain="str",
        choices=NOISE_NAMES,
        stored_at=("model", "noise"),
        as_found=True,
    )
    log: Sequence[str] | None = option(
        None,
        "Columns of which the logarithm is taken. By default the data decide with model auto, and no logarithm is "
        "taken with any other.",
        in_python="``()`` for none.",
        metavar="COLUMN",
        stored_at=("logarithm",),
        as_found=True,
    )
    engine: str | Engine = option(
        "auto",
        "How the posterior is computed. auto: the best for the size of the table. The methods from empty on are "
        "baselines.",
        in_python="""``"exact"`` goes up to about 20 columns, ``"orders"`` up to thousands, then ``"variational"``;
        ``"straight-through"`` is the paper's, for mlp. Or a spec such as ``Orders(replicas=8)`` or
        ``baselines.Dibs.corrected()``.""",
        plain="str",
        choices=ENGINE_NAMES,
        check=engine_of,
        stored_at=("engine", "name"),
        as_found=True,
    )
    prior: float | str | GraphPrior | None = option(
        None,
        "Probability of an edge before data are seen, if the order of the two variables allows it. By default one "
        "expected cause for each variable, or more where the table shows more. uniform: all DAGs equally likely; "
        "uniform:0.1: all DAGs with the same number of edges, each edge with the odds of that probability.",
        in_python="Or a :class:`DagPrior` or :class:`UniformDags`.",
        plain="float | str",
        check=prior_of,
        metavar="NUMBER|uniform[:NUMBER]",
        other_flags=("--edge-prior",),
        as_passed=prior_as_passed,
    )
    knowledge: Knowledge | str | PathLike[str] | None = option(
        None,
        "A file with what is known of the causes (.toml, .csv, or of Tetrad, DAGitty, BIF); every graph obeys.",
        in_python="Or a :class:`Knowledge`. What contradicts itself is refused before the fit.",
        plain="dict",
        check=knowledge_of,
        metavar="FILE",
    )
    target: str | None = option(
        None,
        "The column that the question is about: the report and the summary say what drives it.",
        in_python=":meth:`Posterior.drivers` answers for it. The posterior is the same without.",
        check=lambda value: text_of("target", value),
        metavar="COLUMN",
        changeable=True,
    )
    interventions: Any = option(
        None,
        "A column that names what an experiment set in each row: empty, a variable, or several joined by ';'.",
        in_python="""Or a mask of the table's shape, true for each cell that was set. Such a cell says nothing about its
        own causes. A column that was set in every row has no causes.""",
        plain="str",
        metavar="COLUMN",
        part="table",
        stored_at=("interventions", "column"),
        as_found=True,
    )
    contexts: Sequence[str] | None = option(
        None,
        "A column that says which environment (site, batch, experiment) a row comes from; nobody need know what each "
        "environment changed.",
        in_python="""Several columns name combinations. They are no variables. :meth:`Posterior.targets` says what
        changed.""",
        check=lambda value: names("contexts", value),
        metavar="COLUMN",
        part="table",
        stored_at=("contexts", "columns"),
        as_found=True,
    )
    reference: str | None = option(
        None,
        "The environment that the others are compared with. By default the one with most rows.",
        check=lambda value: text_of("reference", value),
        metavar="ENVIRONMENT",
        part="table",
        stored_at=("contexts", "reference"),
        as_found=True,
    )
    changes: str = option(
        "mechanisms",
        "What environments may change: whole mechanisms (effects and noise of a column), or only its level (shifts).",
        in_python="Only with ``contexts``.",
        choices=("mechanisms", "shifts"),
    )
    columns: Sequence[str] | None = option(
        None,
        "Take only these columns. The others are not read.",
        in_python="The column of ``interventions`` need not be among them. By default all columns are taken.",
        check=lambda value: value,  # with the table, which has its own words for what is wrong
        metavar='"A,B"',
        part="table",
        stored_at=("data", "chosen"),
        as_found=True,
    )
    exclude: Sequence[str] | None = option(
        None,
        "Leave out these columns, such as an identifier or a date.",
        in_python="They are neither read nor checked.",
        check=lambda value: value,
        metavar='"A,B"',
        part="table",
        stored_at=("data", "without"),
        as_found=True,
    )
    lags: int | str | None = option(
        None,
        "The rows are steps in time, and each may depend on so many steps before it. auto: as many as the data "
        "support. By default rows are taken as independent.",
        in_python="The earlier steps of column x are called x.lag1, x.lag2; :doc:`time` has the rest.",
        plain="int | str",
        check=lambda value: steps_of("lags", value, least=1, most=MOST_LAGS),
        metavar="N|auto",
    )
    time: str | None = option(
        None,
        "The column that says when each row was measured, dates or numbers, with lags. By default the rows are in "
        "their order, one step apart.",
        in_python="An index of dates is taken without being named.",
        check=lambda value: text_of("time", value),
        metavar="COLUMN",
        part="table",
    )
    unit: str | None = option(
        None,
        "The column that says which unit (shop, patient, machine) a row belongs to, with lags. The level of each unit "
        "is taken out, and no unit depends on the past of another.",
        check=lambda value: text_of("unit", value),
        metavar="COLUMN",
        part="table",
    )
    season: int | str = option(
        "auto",
        "How many steps a season has, with lags, such as 12 for months; it is taken out of numbers. 0: none. auto: "
        "that of the calendar, if the columns show it.",
        plain="int | str",
        check=lambda value: steps_of("season", value, least=0, most=MOST_SEASON),
        metavar="N|auto",
    )
    trend: str = option(
        "auto",
        "Whether a straight trend is taken out of numbers, with lags. auto: if a column has one.",
        choices=TRENDS,
    )
    resample: str | None = option(
        None,
        "Take the mean of the rows of each minute, hour, day, week, month, quarter or year, or of each such number of "
        "steps where times are numbers.",
        check=lambda value: text_of("resample", value),
        metavar="PERIOD",
        part="table",
    )
    contemporaneous: bool = option(
        True,
        "Whether columns may have effects within one step, with lags.",
        flag="--contemporaneous/--no-contemporaneous",
    )
    subsamples: int | None = option(
        None,
        "Random parts of the rows whose answers are averaged, so that a model that is not quite true is not too sure. "
        "By default 12, of few columns more; 0 is one fit to all rows.",
        in_python="Only with the models that auto chooses for mixed kinds of columns, and noise of any shape.",
        least=0,
        most=1000,
    )
    kinds: Mapping[str, str] | None = option(
        None,
        "The kind of a column: number, count, yes/no, ordered or label. By default it is found from the cells.",
        in_python="""By column name, as in ``{"grade": "ordered"}``. :doc:`kinds` has the rules.""",
        plain="dict[str, str]",
        check=kinds_of,
        flag="--kind",
        metavar="COLUMN=KIND",
        part="table",
        stored_at=("data", "kinds"),
        as_found=True,
    )
    missing_values: Sequence[str] | None = option(
        None,
        "A cell that stands for a missing value in this table, such as -999.",
        in_python="A list of cells, or one.",
        check=missing_values_of,
        flag="--missing",
        metavar="CELL",
        part="table",
    )
    strict: bool = option(
        False,
        "Refuse a table with identifiers, dates, free text or columns that do not vary. By default these are left out, "
        "and a note says so.",
        part="table",
    )
    header: bool = option(
        True,
        "Whether the first line of a text file holds names. Without them the columns are X1, X2, ...",
        flag="--header/--no-header",
        part="table",
        stored_at=("data", "header"),
        as_found=True,
    )
    sheet: str | None = option(
        None,
        "The sheet of an Excel or OpenDocument file. By default the first with a table.",
        in_python="""The table ``"book.xlsx#Sheet"`` says the same.""",
        check=lambda value: text_of("sheet", value),
        metavar="SHEET",
        part="table",
    )
    query: str | None = option(
        None,
        "A query in SQL, for a SQLite or DuckDB file or the address of a database.",
        in_python="""The table ``"shop.sqlite#orders"`` is all of one table.""",
        check=lambda value: text_of("query", value),
        metavar="SQL",
        part="table",
    )
    imputations: int = option(
        10,
        "Impute missing values so many times, fit each imputed table, and take the mean of the posteriors.",
        in_python="Nothing is imputed in a complete table.",
        least=1,
        metavar="N",
        as_found=True,
    )
    preset: Preset = option(
        "default",
        "paper: the settings with which the paper's authors ran their program, and the baselines.",
        in_python="""That is engine straight-through, functions without bias, unit noise, one graph a step and edge
        prior 0.1.""",
        plain="str",
        choices=PRESETS,
    )
    standardise: bool = option(
        False,
        "Standardise every column to mean 0 and variance 1 first.",
        in_python="Unequal noise does so anyway.",
    )
    streamed: bool | None = option(
        None,
        "Read the table block by block, or all at once. By default folders and large files are streamed.",
        in_python="""A streamed table is fitted from its statistics. Models that need rows take a random sample of
        them, and the summary says so.""",
        flag="--streamed/--in-memory",
        part="table",
    )
    time_limit: float | None = option(
        None,
        "Stop after so many seconds with the current result; the status says so.",
        check=time_limit_of,
        metavar="SECONDS",
        changeable=True,
    )
    robust: bool | None = option(
        None,
        "Whether to state only what random fifths of the rows agree on, or (False) all that one fit to all rows says. "
        "By default the first, where the checks find that the rows break every model here: they depend on each other, "
        "or on causes that are not in the table, or come from several populations.",
        flag="--robust/--not-robust",
    )
    hidden: bool = option(
        False,
        "Whether hidden variables may cause two columns. Edges are then directed or bidirected (a hidden cause), "
        "with linear functions and normal noise, for up to 15 columns.",
        in_python="The result is a :class:`HiddenCausesPosterior`.",
        check=lambda value: flag("hidden", value),
        flag="--hidden",
    )
    checks: bool = option(
        True,
        "Whether to check at the end how far the model describes the rows, in at most a fifth of the fit's time, or a "
        "second.",
        in_python=":meth:`Posterior.checks` has what was found.",
        flag="--checks/--no-checks",
        changeable=True,
    )
    seed: int | None = option(
        0,
        "The same seed gives the same result.",
        in_python="""That holds on one machine with the same versions. None draws a seed, which ``provenance`` and
        ``summary()`` say.""",
        check=seed_of,
        least=0,
        most=LARGEST_SEED,
    )

    def __post_init__(self) -> None:
        for one in options_of(type(self)).values():
            object.__setattr__(self, one.name, one.checked(getattr(self, one.name)))
        if self.noise is not None and not isinstance(self.model, str):
            raise ConfigError("noise goes with a model given by name; set it inside the spec instead")
        if self.lags is None:
            for name in OF_TIME:
                if getattr(self, name) != OPTIONS[name].default:
                    raise ConfigError(
                        f"{name} is for rows that are steps in time: say how many steps back they depend on "
                        "(lags=2, --lags 2, or auto)"
                    )
        elif self.streamed:
            raise ConfigError("lags need the rows in their order: read the table at once (streamed=False, --in-memory)")

    def open(self, data: Any, **how: Any) -> Dataset | StreamedTable:
        """The table, opened and checked; ``how`` is passed on to ``open_table``."""
        from vcuda.data.columns import ColumnChoice
        from vcuda.data.contexts import ContextOptions
        from vcuda.data.conversion.kinds import TablePart
        from vcuda.data.examination import ReadOptions
        from vcuda.data.streaming import open_table

        options: dict[str, Any] = {
            "interventions": self.interventions,
            "contexts": ContextOptions.of(self.contexts, self.reference),
            "streamed": self.streamed if self.lags is None else False,
            "choice": ColumnChoice.of(self.columns, self.exclude, header=self.header),
            "how": ReadOptions.of(self.kinds, self.missing_values, self.strict, (self.time, self.unit)),
            "part": TablePart(self.sheet, self.query),
        }
        return open_table(data, **options, **how)

    def resolved(self, **found: Any) -> FitSpec:
        """The spec once the table is known: with values in place of what was left open, and without what it holds."""
        read = {name: one.default for name, one in OPTIONS.items() if one.part == "table" and one.as_found}
        return replace(FitSpec(**{name: getattr(self, name) for name in OPTIONS} | read), **found)

    def to_provenance(self) -> dict[str, Any]:
        """What a run stores of the values that were passed, as JSON."""
        kept = {name: getattr(self, name) for name, one in OPTIONS.items() if not one.as_found}
        return {name: value.to_dict() if hasattr(value, "to_dict") else to_json(value) for name, value in kept.items()}

    def deciding(self) -> dict[str, Any]:
        """The values that decide the result: a fit cannot go on with others when it is resumed."""
        return {name: getattr(self, name) for name, one in OPTIONS.items() if one.part == "fit" and not one.changeable}


@dataclass(frozen=True, kw_only=True, eq=False)
class FitCall(FitSpec):
    """A fit, and how this call of it runs: what belongs to the process and is not stored."""

    progress: ProgressCallback | None = option(
        None,
        "Called with a :class:`Progress` between compiled chunks. By default a notebook shows a bar below the cell.",
        check=progress_of,
        part="run",
    )
    checkpoint: str | PathLike[str] | Checkpoint | None = option(
        None,
        "A folder for checkpoints, written every few seconds, from which a killed fit can go on. It is removed when "
        "the fit ends by itself.",
        check=lambda value: value,
        part="run",
    )
    resume: bool = option(
        False,
        "Whether to go on from what an earlier fit with the same data and arguments left in ``checkpoint``, if there "
        "is anything; the posterior is that of a fit that was never killed. Seconds spent before count for "
        "``time_limit``.",
        part="run",
    )
    client: Any = option(
        None,
        "A Dask client (``dask.distributed.Client``), on whose workers parts of the fit are done; the posterior is the "
        "same as without. :func:`vcuda.local_cluster` makes one of processes on this machine.",
        check=lambda value: value,
        part="run",
    )

    def __post_init__(self) -> None:
        resumes = self.resume or getattr(self.checkpoint, "resume", False)
        if self.seed is None and resumes:
            raise ConfigError("a fit that is resumed goes on with its own seed; give it, since None draws another one")
        super().__post_init__()


OPTIONS = options_of(FitSpec)
CALL_OPTIONS = options_of(FitCall)


# In Python ---------------------------------------------------------------------------------------------------


def current_names(given: Mapping[str, Any], on_rename: Callable[[str, str], None]) -> dict[str, Any]:
    """Options by the names and values that they have now; ``on_rename`` is called with each old one and its new one."""
    found = {}
    for old, value in given.items():
        name = RENAMED_OPTIONS.get(old, old)
        if name != old:
            if given.get(name) is not None:
                raise ConfigError(f"{old} is the old name of {name}; give one of them")
            if value is None:
                continue
            on_rename(f"{old}=", f"{name}=")
        renamed = OPTIONS[name].renamed if name in OPTIONS else {}
        if isinstance(value, str) and value in renamed:
            on_rename(f"{name}={value!r}", f"{name}={renamed[value]!r}")
            value = renamed[value]
        found[name] = value
    return found


def signature_of(chosen: Iterable[Option], *before: inspect.Parameter) -> inspect.Signature:
    """A signature that takes these options by keyword, after other parameters."""
    return inspect.Signature(
        [
            *before,
            *(
                inspect.Parameter(
                    one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation
                )
                for one in chosen
            ),
        ]
    )


def described(chosen: Iterable[Option]) -> str:
    """The section Parameters of a docstring, for these options."""
    entries = []
    for one in chosen:
        text = " ".join(f"{one.help} {one.in_python}".split())
        entries.append(f"{one.name}\n{textwrap.indent(textwrap.fill(text, 112), '    ')}")
    return "\n".join(entries)


def takes_options(
    call: Callable[P, FitCall],
) -> Callable[[Callable[[Any, FitCall], R]], Callable[Concatenate[Any, P], R]]:
    """Let a function of a table and a `FitCall` take the options by keyword.

    Type checkers see the fields of `FitCall`, and ``help`` the signature and the docstring that are made of them.
    """

    make: Callable[..., FitCall] = call

    def decorated(run: Callable[[Any, FitCall], R]) -> Callable[Concatenate[Any, P], R]:
        @wraps(run)
        def fit(data: Any, *more: P.args, **given: P.kwargs) -> R:
            if more:
                raise TypeError(f"{run.__name__}() takes one table; give options by name, as in seed=1")
            options = current_names(given, lambda old, new: warn_renamed(old, new, stacklevel=5))
            check_known(run.__name__, options, CALL_OPTIONS)
            return run(data, make(**options))

        before = inspect.Parameter("data", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Any")
        signature = signature_of(CALL_OPTIONS.values(), before)
        fit.__signature__ = signature.replace(return_annotation="Posterior")  # type: ignore[attr-defined]
        fit.__doc__ = inspect.cleandoc(run.__doc__ or "").replace("{options}", described(CALL_OPTIONS.values()))
        return fit

    return decorated


def check_known(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that are none, as Python does."""
    every = list(known)
    for name in given:
        if name not in every:
            near = get_close_matches(name, every, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant}")
