"""``vcuda.toml``: the options of a fit in a file, which ``vcuda init`` writes and ``fit`` and ``check`` read.

Its keys are the fields of `FitSpec`, by their names in Python, and the table and the folder to write.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcuda.cli.fit_options import TABLE_OPTIONS, current_flags, note_renamed, takes_fit_options
from vcuda.cli.options import Json, OptionalTable
from vcuda.cli.terminal import OUTPUT_FOLDER, remarks, results, say, show_json, suggest
from vcuda.data.messages import nearest, shortened
from vcuda.data.paths import ADDRESS, BUNDLED, STANDARD_INPUT, check_is_there
from vcuda.data.toml_files import read_toml, toml_of
from vcuda.errors import ConfigError, DataError
from vcuda.fitting.spec import OPTIONS, FitSpec, Option, current_names

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.data.streaming import StreamedTable

CONFIG = "vcuda.toml"
# Names and kinds of 100,000 columns have less.
LARGEST_CONFIG = 20_000_000
# What only the command line has, beside the options of the fit.
PLACES = {
    "table": "The table, as vcuda fit takes it; a path starts at the folder of this file.",
    "output": "The folder to write.",
}
# An example where the default is None, by the type of the option.
EXAMPLES: dict[str, Any] = {
    "bool": True,
    "int": 0,
    "float": 60.0,
    "float | str": 0.1,
    "int | str": "auto",
}
TYPES_IN_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text in quotes",
    "float | str": "a number or a text in quotes",
    "int | str": "a whole number or a text in quotes",
    "Sequence[str]": "a list of texts in quotes",
    "dict[str, str]": "a section with a text in quotes for each column",
}
KNOWLEDGE_EXAMPLES = {
    "tiers": [["age", "region"], ["price"], ["churned"]],
    "required": ["price -> churned"],
    "forbidden": ["churned -> price"],
    "upstream": ["age -> churned"],
    "roots": ["age"],
    "sinks": ["churned"],
}


@dataclass(frozen=True)
class Config:
    """What a config file says: the table and the folder, if any, and options of a fit."""

    path: Path
    table: str | None = None
    output: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)


# Reading -----------------------------------------------------------------------------------------------------


def config_for(path: Path | None, table: str | None, *, quiet: bool = False) -> Config | None:
    """The config that holds for a table: the one that is named, or that of this folder if it is about the table."""
    if path is None:
        try:
            if not Path(CONFIG).is_file():
                return None
        except OSError:  # the folder is gone, or locked
            return None
    found = read_config(path or Path(CONFIG))
    if path is None and table is not None and found.table is not None and Path(found.table) != Path(table):
        if not quiet:
            say(remarks(), f"{CONFIG} is about {found.table}, and its options are not used for {table}.")
        return None
    if found.options and not quiet:
        say(remarks(), f"Options that are not given here come from {found.path}: {', '.join(found.options)}.")
    return found


def read_config(path: Path) -> Config:
    """A config file, checked as far as that is possible without a table."""
    try:
        if not path.is_file():
            raise ConfigError(f"{path}: there is no such file; write one with: vcuda init TABLE -o {path}")
        if path.stat().st_size > LARGEST_CONFIG:
            raise ConfigError(f"{path}: it is larger than {LARGEST_CONFIG / 1e6:.0f} MB: this is no config")
        content = read_toml(path)
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from None
    known = [*PLACES, *OPTIONS]
    content = current_names(content, lambda old, new: note_renamed(f"{path}: {old}", new))
    for name in content:
        if name not in known:
            raise ConfigError(f"{path}: there is no option {shortened(name)}{nearest(name, known)}")
    for name in PLACES:
        if not isinstance(content.get(name, ""), str):
            raise ConfigError(f"{path}: {name} must be a text in quotes, not {toml_of(content[name])}")
    # A section without a line says nothing.
    content = {name: value for name, value in content.items() if value != {}}
    table, output = content.pop("table", None), content.pop("output", None)
    return Config(
        path,
        table=None if table is None else _beside(path, table),
        output=None if output is None else path.parent / output,
        options={name: _value(path, OPTIONS[name], value) for name, value in content.items()},
    )


def _beside(path: Path, table: str) -> str:
    """A table by a path that starts at the folder of the config."""
    if table in BUNDLED or table == STANDARD_INPUT or ADDRESS.match(table):
        return table
    return str(path.parent / table)


def _value(path: Path, option: Option, value: Any) -> Any:
    """A value in the types of Python."""
    if option.name == "knowledge":
        from vcuda.data.knowledge import Knowledge

        if isinstance(value, str):
            return path.parent / value
        if isinstance(value, Mapping):
            return Knowledge.from_dict(value)
        raise ConfigError(f"{path}: knowledge must be a section, or the path of a file in quotes, not {toml_of(value)}")
    if option.plain == "Sequence[str]" and isinstance(value, list):
        # Such as -999 among the cells that stand for missing values.
        value = [str(one) if isinstance(one, int | float) and not isinstance(one, bool) else one for one in value]
    if not option.is_plain(value):
        expected = TYPES_IN_WORDS.get(option.plain, option.plain)
        raise ConfigError(f"{path}: {option.name} must be {expected}, not {shortened(value)}")
    try:
        option.checked(value)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return value


# Writing -----------------------------------------------------------------------------------------------------


@takes_fit_options(*TABLE_OPTIONS)
def init(
    table: OptionalTable = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path(CONFIG),
    as_json: Json = False,
    **given: Any,
) -> None:
    """Write a config with every option of a fit and what it does; vcuda fit reads it.

    With a table its columns and their kinds are in it. All options but those that you give are comments: remove the #
    of those that you want.
    """
    if output.exists():
        raise ConfigError(f"{output} is there already; delete it, or give another name with -o")
    if table is not None:
        check_is_there(table)
    options = current_flags(given)
    data = None if table is None else FitSpec(**options).open(table)
    text = config_text(table, data, {name: one for name, one in options.items() if one != OPTIONS[name].default})
    try:
        with open(output, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise DataError(f"{output}: it cannot be written ({error.strerror or error}): choose another place") from None
    if as_json:
        show_json({"config": str(output), "table": table, "columns": None if data is None else list(data.names)})
        return
    console = results()
    say(console, f"Wrote {output}: {len(OPTIONS):,} options, each with what it does. Change it in an editor.")
    fit = "vcuda fit" if table is not None else "vcuda fit TABLE"
    suggest(console, fit if output == Path(CONFIG) else f"{fit} --config {output}")


def config_text(table: str | None, data: Dataset | StreamedTable | None, given: Mapping[str, Any]) -> str:
    """The commented file; only the table, the folder and what is ``given`` are no comments."""
    lines = [
        "# Options of vcuda fit, which reads this file in the folder where it runs, or with --config FILE.",
        "# What is given on the command line comes first. A line that begins with # does not count.",
    ]
    if data is not None:
        lines += _comment(f"{data.source}: {data.n:,} rows, {data.d:,} columns.", *data.notes)
    places = {"table": table, "output": OUTPUT_FOLDER}
    for name, sentence in PLACES.items():
        lines += ["", *_comment(sentence), _line(name, places[name] or "table.csv", used=places[name] is not None)]
    sections = ("kinds", "knowledge")
    for part, title in (("table", "How the table is read"), ("fit", "The fit")):
        lines += ["", "", f"# {title} {'-' * (110 - len(title))}"]
        for one in OPTIONS.values():
            if one.part == part and one.name not in sections:
                value = given.get(one.name, _example(one))
                lines += ["", *_comment(one.help), _line(one.name, value, used=one.name in given)]
    lines += ["", "", *_comment(OPTIONS["kinds"].help), "[kinds]", *_kind_lines(data, given.get("kinds", {}))]
    lines += ["", "", *_comment('What is known of the causes; every graph obeys. Or above: knowledge = "known.toml"')]
    lines += ["[knowledge]", *(_line(name, value, used=False) for name, value in KNOWLEDGE_EXAMPLES.items())]
    return "\n".join(lines) + "\n"


def _kind_lines(data: Dataset | StreamedTable | None, given: Mapping[str, str]) -> Iterator[str]:
    found = dict(zip(data.names, data.kinds, strict=True)) if data is not None else {"grade": "ordered"}
    for name, kind in found.items():
        yield _line(toml_of(name), given.get(name, kind), used=name in given)


def _example(option: Option) -> Any:
    if option.default is not None:
        return option.default
    if option.choices:
        return option.choices[-1]
    # What stands for the value in the help of the command line.
    text = (option.metavar or "TEXT").strip('"')
    return EXAMPLES.get(option.plain, text if option.plain == "str" else text.split(","))


def _line(key: str, value: Any, *, used: bool) -> str:
    return f"{'' if used else '# '}{key} = {toml_of(value)}"


def _comment(*sentences: str) -> list[str]:
    # A name of the table may hold line breaks.
    each = (" ".join("".join(c if c.isprintable() else " " for c in one).split()) for one in sentences)
    return [f"# {line}" for one in each for line in textwrap.wrap(one, 112)]
