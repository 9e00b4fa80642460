"""Columns that are no variables: identifiers, dates, free text, and columns with one value, few or none, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from vcuda.data.checks import MINIMUM_PRESENT
from vcuda.data.kinds import HOW_TO_SET_KINDS, MOST_LABELS
from vcuda.data.messages import HOW_TO_LEAVE_OUT, listed, shortened

# A column that counts its rows from 0 or 1 is an identifier if there are so many of them.
FEWEST_COUNTED_ROWS = 20
# Names of identifiers, if all cells are different whole numbers; and names of what may well count the rows.
IDENTIFIER_NAME = re.compile(
    r"(.*[\s_.-])?(id|ids|uid|uuid|guid|key|no|nr)[\s_.-]?\d*|index|idx|row|rows|row[\s_.-]?(names?|numbers?|nr|no)",
    flags=re.IGNORECASE,
)
CAMEL_IDENTIFIER_NAME = re.compile(r".*[a-z](Id|ID)")
TIME_NAME = re.compile(
    r"(.*[\s_.-])?(t|time|date|day|week|month|quarter|year|hour|minute|second|step|trial|round|period|epoch|age|dose|"
    r"depth|position|distance|rank)s?([\s_.-].*)?",
    flags=re.IGNORECASE,
)


class Unfit(NamedTuple):
    """Why a column is no variable. Pairs are what is said of one column and of several.

    ``fault`` follows the names, ``use`` says what to do to use the column, ``why`` that nothing can be done, and
    ``where`` has an example of the cells.
    """

    fault: tuple[str, str]
    use: tuple[str, str] | None = None
    why: tuple[str, str] | None = None
    where: str = ""

    def refusal(self, name: str) -> str:
        """The sentence that refuses the column, without the source of the table."""
        use = "" if self.use is None else f", or {self.use[0]}"
        why = "" if self.why is None else f"; {self.why[0]}"
        column = f"column {shortened(name)}{self.where}"
        return f"{column} {self.fault[0]}: leave the column out {HOW_TO_LEAVE_OUT}{use}{why}."


DATES = Unfit(
    ("holds dates or times", "hold dates or times"),
    (
        "turn it into a number, such as days since the start, or into labels, such as the weekday",
        "turn them into a number, such as days since the start, or into labels, such as the weekday",
    ),
)
EMPTY = Unfit(("has no value", "have no value"))
FEW_VALUES = Unfit(
    (
        f"has fewer than {MINIMUM_PRESENT} values, too few to impute the others",
        f"have fewer than {MINIMUM_PRESENT} values, too few to impute the others",
    )
)
IDENTIFIER_NUMBERS = Unfit(
    (
        "holds another whole number in every row, as an identifier does",
        "hold another whole number in every row, as identifiers do",
    ),
    (
        f"say that it is a variable by its kind {HOW_TO_SET_KINDS}",
        f"say that they are variables by their kinds {HOW_TO_SET_KINDS}",
    ),
)
IDENTIFIER_LABELS = Unfit(
    (
        "holds another label in every row, as an identifier or free text does",
        "hold another label in every row, as identifiers or free text do",
    ),
    ("join its labels into few categories", "join their labels into few categories"),
)


def many_labels(count: int | None = None) -> Unfit:
    """A column with so many labels, if their number is known."""
    most = f"more than {MOST_LABELS}"
    how_many = f"{most} different labels" if count is None else f"{count:,} different labels, {most}"
    return Unfit(
        (
            f"has {how_many}, as an identifier or free text does",
            f"have more than {MOST_LABELS} different labels, as identifiers or free text do",
        ),
        ("join its labels into fewer categories", "join their labels into fewer categories"),
    )


def constant(value: str, *, everywhere: bool = True) -> Unfit:
    """A column with one value, in every row or in those in which it is not missing."""
    where = "in every row" if everywhere else "wherever it is not missing"
    return Unfit(
        (f"does not vary ({value} {where})", "do not vary"),
        why=("it has neither causes nor effects", "they have neither causes nor effects"),
    )


def left_out_notes(unfit: Mapping[str, Unfit]) -> list[str]:
    """A sentence for every reason to leave out columns, with what else could be done."""
    groups: dict[str, list[str]] = {}
    for name, one in unfit.items():
        groups.setdefault(one.fault[1], []).append(name)
    notes = []
    for names in groups.values():
        one, several = unfit[names[0]], len(names) > 1
        column, was, them = ("Columns", "were", "them") if several else ("Column", "was", "it")
        fault = one.fault[several]
        comma = "," if "," in fault else ""
        use = "" if one.use is None else f": to use {them}, {one.use[several]}"
        why = "" if one.why is None else f"; {one.why[several]}"
        notes.append(f"{column} {listed(names)} {fault}{comma} and {was} left out{use}{why}.")
    return notes
