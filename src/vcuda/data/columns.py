"""Which columns of a table are taken: names that people give, turned into positions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcuda.data.messages import listed, nearest, shortened
from vcuda.data.raw_table import RawTable
from vcuda.errors import ConfigError, DataError

FEWEST_COLUMNS = 2
# What pandas calls a row index that was saved with a table, once or several times.
INDEX_NAME = re.compile(r"Unnamed: \d+(\.\d+)*|__index_level_\d+__")


@dataclass(frozen=True)
class ColumnChoice:
    """The columns that somebody wants of a table: those named in ``columns``, or all but those in ``exclude``.

    Build it with `ColumnChoice.of`; where both are None, all columns are taken. ``header`` says whether the first line
    of a text file holds their names; without it they are X1 ... Xd.
    """

    columns: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    header: bool = True

    @classmethod
    def of(cls, columns: Sequence[str] | None, exclude: Sequence[str] | None, *, header: bool = True) -> ColumnChoice:
        """From what was asked for, which is checked as far as that is possible without a table."""
        if columns is not None and exclude is not None:
            raise ConfigError("columns says what to take and exclude what to leave out of a table: give one of them.")
        return cls(_as_names("columns", columns), _as_names("exclude", exclude) or None, header)

    def __bool__(self) -> bool:
        """Whether some columns were asked for."""
        return self.columns is not None or self.exclude is not None

    def to_dict(self) -> dict[str, Any]:
        """What a run stores of the choice, by the keys of its format; nothing where all columns are taken."""
        asked = {"chosen": self.columns, "without": self.exclude}
        found: dict[str, Any] = {key: list(names) for key, names in asked.items() if names is not None}
        return found if self.header else found | {"header": False}

    def then(self, later: ColumnChoice, left: Sequence[str]) -> ColumnChoice:
        """One choice in place of this and a later one of what it took, which leaves the columns ``left``."""
        if not (self and later):
            return replace(later or self, header=self.header)
        if self.exclude is not None and later.exclude is not None:
            return replace(self, exclude=tuple(dict.fromkeys((*self.exclude, *later.exclude))))
        return ColumnChoice(columns=tuple(left), header=self.header)

    def positions(
        self,
        names: Sequence[str],
        *,
        source: str,
        target_column: str | None = None,
        contexts: Sequence[str] = (),
        all_known: bool = True,
    ) -> list[int]:
        """Where the columns stand that are taken, in the order of the table, whatever the order of the choice.

        The columns that say what was set in each row, and which environment it comes from, are never among them.
        ``all_known`` refuses names that the table does not have, and a choice that leaves too little of it.
        """
        if self.exclude is not None and target_column in self.exclude:
            raise ConfigError(
                f"exclude leaves out {shortened(target_column)}, the column that says what was set in each row: name "
                "it in one place only."
            )
        for name in contexts:
            if self.exclude is not None and name in self.exclude:
                raise ConfigError(
                    f"exclude leaves out {shortened(name)}, a context column: name it in one place only, since context "
                    "columns are no variables in any case."
                )
        asked = self.exclude if self.columns is None else self.columns
        named = set(asked or ())
        taken = self.columns is not None  # what is named is taken, or left out
        aside = {target_column, *contexts}
        kept = [k for k, name in enumerate(names) if name not in aside and (name in named) == taken]
        if asked is None or not all_known:
            return kept
        known = {*names, *aside}
        unknown = [name for name in asked if name not in known]
        option = "exclude" if self.columns is None else "columns"
        if unknown:
            near = nearest(unknown[0], [name for name in names if name])
            raise DataError(
                f"{source}: {option} names {shortened(unknown[0])}, and there is no such column{near}: the columns are "
                f"{listed([name for name in names if name])}."
            )
        if len(kept) < FEWEST_COLUMNS:
            left = listed([names[k] for k in kept])
            raise DataError(
                f"{source}: {option} leaves {left} of its {len(names):,} columns: a graph needs at least two."
            )
        return kept


EVERY_COLUMN = ColumnChoice()


def variable_columns(
    raw: RawTable,
    target_column: str | None,
    choice: ColumnChoice = EVERY_COLUMN,
    *,
    contexts: Sequence[str] = (),
    all_known: bool = True,
) -> list[int]:
    """The positions of the columns that are taken; those that say what was set in each row, and which environment it
    comes from, must be there."""
    every = [name.strip() for name in raw.names]
    wanted = [name for name in (*(choice.columns or ()), target_column, *contexts) if name]
    index = saved_index(raw.names, wanted=wanted)
    if target_column is not None and target_column not in every:
        raise DataError(
            f"{raw.source}: there is no column {shortened(target_column)} that could say what was set in each "
            f"row{nearest(target_column, every)}: give the name of such a column."
        )
    lacking = [name for name in contexts if name not in every]
    if lacking:
        raise DataError(
            f"{raw.source}: contexts names {shortened(lacking[0])}, and there is no such "
            f"column{nearest(lacking[0], every)}: the columns are {listed([name for name in every if name])}."
        )
    kept = choice.positions(
        every, source=raw.source, target_column=target_column, contexts=contexts, all_known=all_known
    )
    return kept if len(kept) - len(index) < 1 else [k for k in kept if k not in index]


def saved_index(names: Sequence[str], *, wanted: Sequence[str] = ()) -> list[int]:
    """The positions of leading columns that are a row index of pandas or R, saved with the table.

    pandas calls it Unnamed: 0 when it reads it back; in a text file the first name is empty. A column that somebody
    names is not one.
    """
    found: list[int] = []
    for k, name in enumerate(names):
        stripped = name.strip()
        if stripped in wanted or not (INDEX_NAME.fullmatch(stripped) or (k == 0 and not stripped)):
            break
        found.append(k)
    return found


def left_out(raw: RawTable, names: Sequence[str], target_column: str | None) -> set[str]:
    """The names of the columns that are not taken, which an experiment may have set all the same."""
    return {name.strip() for name in raw.names} - {*names, target_column or "", ""}


def _as_names(option: str, given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, (str, bytes)):
        raise ConfigError(f"{option} must be a list of names, not the text {shortened(given)}.")
    try:
        names = tuple(dict.fromkeys(str(name).strip() for name in given))
    except TypeError:
        raise ConfigError(f"{option} must be a list of names of columns, not a {type(given).__name__}.") from None
    if "" in names:
        raise ConfigError(f"{option} holds an empty name: give the names of columns.")
    return names


# Names in one line, as options of the command line take them ---------------------------------------------------


def names_in(line: str) -> list[str]:
    """The names in a line, separated by commas; one that holds a comma stands in quotes.

    Examples
    --------
    >>> names_in('age, "height, in cm"')
    ['age', 'height, in cm']
    """
    try:
        return [name.strip() for name in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error as error:
        raise ConfigError(f"{shortened(line)} is no line of names with commas between them ({error}).") from None


def line_of(names: Sequence[str]) -> str:
    """The line that `names_in` reads as these names."""
    line = io.StringIO()
    # What ends a line is what is put into quotes inside a name.
    csv.writer(line, lineterminator="\r\n").writerow(names)
    return line.getvalue().removesuffix("\r\n")
