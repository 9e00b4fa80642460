"""Column names in CSV files, escaped so that a spreadsheet does not read one as a formula.

Such a name gets an apostrophe in front, which spreadsheets show, and which our readers take away again.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import Literal

# The signs that begin a formula, and their forms of full width; control characters in front of one are passed over.
FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def as_cell(name: str) -> str:
    """The name as a cell that is text in every spreadsheet.

    Examples
    --------
    >>> as_cell("=1+1"), as_cell("dose")
    ("'=1+1", 'dose')
    """
    return f"'{name}" if FORMULA.match(name) else name


def from_cell(cell: str) -> str:
    """The name that `as_cell` was given.

    Examples
    --------
    >>> from_cell("'=1+1"), from_cell("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def quoting(names: Iterable[str]) -> Literal[0, 1]:
    """How the csv module must quote these names: all of them if a carriage return in one would else end its line."""
    return csv.QUOTE_ALL if any("\r" in name for name in names) else csv.QUOTE_MINIMAL
