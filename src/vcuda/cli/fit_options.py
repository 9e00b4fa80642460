"""The options of ``vcuda fit``: the fields of `FitSpec` as flags, and flags for knowledge."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from vcuda.cli.completion import choice_of, listed_columns, table_columns
from vcuda.cli.terminal import remarks, say
from vcuda.errors import ConfigError
from vcuda.fitting.spec import OPTIONS, RENAMED_FLAGS, RENAMED_OPTIONS, Option

if TYPE_CHECKING:
    from vcuda.data.knowledge import Knowledge

F = TypeVar("F", bound=Callable[..., Any])

TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "float | str": str,
    "int | str": str,
    "Sequence[str]": list[str],
    "dict[str, str]": list[str],
    "dict": Path,  # what is stored as a mapping is given as a file
}
# Options that say how a table is read.
TABLE_OPTIONS = tuple(name for name, one in OPTIONS.items() if one.part == "table")
# Options that name columns, by what stands for their value, and what completes it.
COLUMN_NAMES = {"COLUMN": table_columns, '"A,B"': listed_columns}
# Options whose values are lists of names, several to a line.
LISTS_OF_NAMES = ("columns", "exclude")
# Options that say something of single columns.
PAIRS = ("kinds",)
# Where help shows options that only the command line has: before all others, or after the one that they belong to.
SHOWN_FIRST = {"context", "table", "output", "config"}
SHOWN_AFTER = {
    "raw": "log",
    **dict.fromkeys(("require", "forbid", "upstream", "tier", "within_tiers", "root", "sink"), "knowledge"),
}


def _name_parser(option: Option) -> Callable[[str], str]:
    """Takes the names of an option; an old one counts as the new one, with a note, and help does not show it."""

    def parsed(value: str) -> str:
        name = option.renamed.get(value, value)
        if name not in option.choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, option.choices))}.")
        if name != value:
            note_renamed(f"{option.flag} {value}", f"{option.flag} {name}")
        return name

    return parsed


def number_or_text(value: str) -> float | str:
    """A number where the text is one."""
    try:
        return float(value)
    except ValueError:
        return value


def whole_or_text(value: str) -> int | str:
    """A whole number where the text is one."""
    try:
        return int(value)
    except ValueError:
        return value


def note_renamed(old: str, new: str) -> None:
    """Say on standard error which name to use instead of an old one."""
    say(remarks(), f"vcuda: {old} is now {new}; the next release removes the old name")


def flag_of(name: str) -> Any:
    """The annotation with which a command takes an option of a fit."""
    return _annotated(OPTIONS[name], [OPTIONS[name].flag or "", *OPTIONS[name].other_flags])


def hidden_flag_of(old: str) -> Any:
    """The same under the old name of the option, not shown by help."""
    return _annotated(OPTIONS[RENAMED_OPTIONS[old]], [f"--{old}"], hidden=True)


def _annotated(option: Option, declarations: list[str], *, hidden: bool = False) -> Any:
    kind = Literal[option.choices] if option.choices else TYPES[option.plain]
    repeated = " Repeat it for more." if option.plain in ("Sequence[str]", "dict[str, str]") else ""
    described: dict[str, Any] = {"help": option.help + repeated, "metavar": option.metavar, "hidden": hidden}
    if option.renamed:
        kind = str
        described |= {"parser": _name_parser(option), "metavar": f"<{'|'.join(option.choices)}>"}
        described["autocompletion"] = choice_of(option.choices)
    if option.plain == "float | str":
        described["parser"] = number_or_text
    if option.plain == "int | str":
        described["parser"] = whole_or_text
    if option.default is None:
        kind, described["show_default"] = kind | None, False
    if option.metavar in COLUMN_NAMES:
        described["autocompletion"] = COLUMN_NAMES[option.metavar]
    if option.plain == "int":
        described |= {"min": option.least, "max": option.most}
    return Annotated[kind, typer.Option(*declarations, **described)]


def takes_fit_options(*names: str) -> Callable[[F], F]:
    """Give a command, in place of its ``**given``, these options of `FitSpec`, and their old names, hidden."""
    by_keyword = inspect.Parameter.KEYWORD_ONLY

    def decorated(command: F) -> F:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        shown = [one for one in own if SHOWN_FIRST & {one.name}]
        for name in names:
            shown.append(inspect.Parameter(name, by_keyword, default=OPTIONS[name].default, annotation=flag_of(name)))
            shown += [one for one in own if SHOWN_AFTER.get(one.name) == name]
        shown += [one for one in own if one not in shown]
        shown += [
            inspect.Parameter(old, by_keyword, default=None, annotation=hidden_flag_of(old)) for old in RENAMED_FLAGS
        ]
        parameters = [one.replace(kind=by_keyword) for one in shown]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in shown}
        return command

    return decorated


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def names_of(lines: list[str] | None) -> list[str] | None:
    """The names in all lines of an option that can be repeated; None where it was not given."""
    from vcuda.data.columns import names_in

    return None if lines is None else [name for line in lines for name in names_in(line)]


def pairs_of(name: str, lines: list[str]) -> dict[str, str]:
    """What an option says of columns, from all lines of the form COLUMN=WHAT; a name may hold = itself."""
    found = {}
    for line in lines:
        column, equals, what = line.rpartition("=")
        if not equals or not column.strip() or not what.strip():
            raise ConfigError(f"{OPTIONS[name].flag} takes {OPTIONS[name].metavar}, not {line!r}")
        found[column.strip()] = what.strip()
    return found


def current_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, by their names of today, as values for `FitSpec`."""
    found = dict(given)
    for old in RENAMED_FLAGS:
        name, value = RENAMED_OPTIONS[old], found.pop(old, None)
        if value is not None:
            note_renamed(f"--{old}", f"--{name}")
            if found.get(name) is not None:
                raise ConfigError(f"--{old} is the old name of --{name}; give one of them")
            found[name] = value
    found |= {name: names_of(found.get(name)) for name in LISTS_OF_NAMES if name in found}
    return found | {name: pairs_of(name, found[name]) for name in PAIRS if found.get(name) is not None}


def with_config(context: typer.Context, given: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, and of a config those that were not."""
    return {name: config[name] if name in config and not is_given(context, name) else given[name] for name in given}


def knowledge_from_options(
    file: Path | Knowledge | None,
    require: list[str] | None,
    forbid: list[str] | None,
    upstream: list[str] | None,
    tier: list[str] | None,
    within_tiers: bool,
    root: list[str] | None,
    sink: list[str] | None,
) -> Knowledge:
    """What the file, or a config, and the options say together."""
    from vcuda.data.columns import names_in
    from vcuda.data.knowledge import Knowledge, as_knowledge

    stated = Knowledge.from_dict(
        {
            "required": require or (),
            "forbidden": forbid or (),
            "upstream": upstream or (),
            "tiers": [names_in(line) for line in tier or ()],
            "within_tiers": within_tiers,
            "roots": root or (),
            "sinks": sink or (),
        }
    )
    return as_knowledge(file).joined(stated)
