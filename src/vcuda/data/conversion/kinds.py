"""Which module reads which kind of file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from vcuda.data.conversion.databases import read_duckdb, read_sqlite
from vcuda.data.conversion.json_files import read_json
from vcuda.data.conversion.statistics_files import read_statistics
from vcuda.data.conversion.workbooks import read_workbook
from vcuda.data.copies import ArrowCopy
from vcuda.data.formats import DUCKDB_MARK, FILE_KINDS, extension_of, unreadable
from vcuda.errors import ConfigError, VcudaError


class TablePart(NamedTuple):
    """Which table is meant where a file or a database holds several: a sheet, a query, or a name after ``#``."""

    sheet: str | None = None
    query: str | None = None
    name: str | None = None

    def refuse(self, given: str, *, sheet: bool = False, query: bool = False, name: bool = False) -> None:
        """Refuse what cannot be said of this table."""
        if self.sheet is not None and not sheet:
            raise ConfigError(
                f"sheet= (--sheet) chooses a sheet of an Excel or OpenDocument file, which {given} is not"
            )
        if self.query is not None and not query:
            raise ConfigError(
                "query= (--query) asks a database: SQLite, DuckDB, or one with an address of SQLAlchemy, which "
                f"{given} is not"
            )
        if self.name is not None and (self.sheet or self.query or not name):
            raise ConfigError(
                f"#{self.name} names a part of {given}, and so does another option: leave out one of them"
            )


WHOLE = TablePart()
READERS: dict[str, Callable[[Path, TablePart, ArrowCopy], list[str]]] = {
    "workbook": lambda path, part, copy: read_workbook(path, part.sheet or part.name, copy),
    "json": lambda path, part, copy: read_json(path, copy),
    "json lines": lambda path, part, copy: read_json(path, copy),
    "statistics": lambda path, part, copy: read_statistics(path, copy),
    "sqlite": lambda path, part, copy: read_sqlite(path, part.query, part.name, copy),
    "duckdb": lambda path, part, copy: read_duckdb(path, part.query, part.name, copy),
}


def converted_file(path: Path, part: TablePart, folder: Path) -> tuple[Path, list[str]]:
    """A copy of a table as an Arrow file, and what is to be noted of it."""
    kind = FILE_KINDS[extension_of(path)[0]]
    if kind == "sqlite" and _is_duckdb(path):  # both are called .db
        kind = "duckdb"
    is_database = kind in ("sqlite", "duckdb")
    part.refuse(str(path), sheet=kind == "workbook", query=is_database, name=is_database or kind == "workbook")
    copy = ArrowCopy(folder, str(path), size=path.stat().st_size)
    try:
        notes = READERS[kind](path, part, copy)
        return copy.finish(), notes
    except VcudaError:
        raise
    except Exception as error:  # readers of other libraries raise whatever they come upon in a broken file
        raise unreadable(path, error) from error
    finally:
        copy.close()


def _is_duckdb(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(64)[DUCKDB_MARK[0]] == DUCKDB_MARK[1]
