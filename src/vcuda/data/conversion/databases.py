"""Databases: SQLite by Python itself, DuckDB, and others by SQLAlchemy (extra ``sql``). Nothing is ever written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from vcuda.data.copies import BATCH_ROWS, ArrowCopy, arrow_column
from vcuda.data.messages import listed, nearest, shortened
from vcuda.errors import ConfigError, DataError, MissingExtraError

HOW_TO_CHOOSE_TABLE = "(shop.sqlite#orders, or query=, --query)"


def read_sqlite(path: Path, query: str | None, table: str | None, copy: ArrowCopy) -> list[str]:
    """Add the rows of a table of a SQLite file, or those that a query gives."""
    try:
        # Read only, so that a query cannot change the file.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            for setting in ("trusted_schema = off", "query_only = on"):
                connection.execute(f"pragma {setting}")
            known = connection.execute("select name from sqlite_master where type in ('table', 'view')")
            names = [str(name) for (name,) in known if not str(name).startswith("sqlite_")]
            cursor = connection.execute(query or _all_of(str(path), names, table))
            if cursor.description is None:
                raise _no_rows(str(path))
            _add_rows([str(column[0]) for column in cursor.description], lambda: cursor.fetchmany(BATCH_ROWS), copy)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise _refused(str(path), query, error) from None
    return []


def read_duckdb(path: Path, query: str | None, table: str | None, copy: ArrowCopy) -> list[str]:
    """Add the rows of a table of a DuckDB file, or those that a query gives."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError("duckdb", "sql", f"{path}: reading DuckDB files") from error
    # Views of a file from somebody else may read other files, or the network.
    settings: dict[str, Any] = {"enable_external_access": "false", "autoinstall_known_extensions": "false"}
    try:
        with closing(duckdb.connect(str(path), read_only=True, config=settings)) as connection:
            known = "select table_name from information_schema.tables"
            names = [str(row[0]) for row in connection.execute(known).fetchall()]
            found = connection.sql(query or _all_of(str(path), names, table))
            if found is None:
                raise _no_rows(str(path))
            batches = found.to_arrow_reader if hasattr(found, "to_arrow_reader") else found.fetch_arrow_reader
            reader, columns = batches(BATCH_ROWS), list(found.columns)
            copy.add(columns, [_nothing(kind) for kind in reader.schema.types])
            for batch in reader:
                copy.add(columns, batch.columns)
    except duckdb.Error as error:
        raise _refused(str(path), query, error) from None
    return []


def read_address(address: str, query: str | None, table: str | None, copy: ArrowCopy) -> list[str]:
    """Add the rows of a query, or of a table, of a database with an address of SQLAlchemy."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingExtraError("sqlalchemy", "sql", f"{shown_address(address)}: asking a database") from error
    shown = shown_address(address)
    try:
        engine = sqlalchemy.create_engine(address)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{shown}: the package {error.name} connects to this kind of database and is not installed: install it "
            f"(pip install {error.name})."
        ) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise DataError(
            f"{shown}: this is no address of a database ({_reason(error, address)}): write it as "
            "dialect://user@host/database, such as postgresql://me@localhost/shop or sqlite:///shop.sqlite."
        ) from None
    try:
        # The connection is closed without a commit: whatever a query does is taken back.
        with engine.connect().execution_options(stream_results=True) as connection:
            if query is None:
                names = sqlalchemy.inspect(connection).get_table_names()
                names += sqlalchemy.inspect(connection).get_view_names()
                quoted = engine.dialect.identifier_preparer.quote_identifier
                query = _all_of(shown, names, table, quoted=quoted)
            result = connection.execute(sqlalchemy.text(query))
            if not result.returns_rows:
                raise _no_rows(shown)
            _add_rows(list(result.keys()), lambda: result.fetchmany(BATCH_ROWS), copy)
    except (sqlalchemy.exc.SQLAlchemyError, OSError) as error:
        raise DataError(
            f"{shown}: the database refuses ({_reason(error, address)}): check the address, the query, and that you "
            "may read the table."
        ) from None
    finally:
        engine.dispose()
    return []


def shown_address(address: str) -> str:
    """An address without its password, as messages and stored runs have it; any other text as it is."""
    before, mark, rest = address.partition("://")
    user, at, host = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{before}{mark}{name}:***@{host}" if at and colon else address


def _reason(error: Exception, address: str) -> str:
    origin = getattr(error, "orig", None) or error
    reason = str(origin).strip().split("\n")[0].rstrip(".")[:200] or type(origin).__name__
    password = address.partition("://")[2].rpartition("@")[0].partition(":")[2]
    return reason.replace(password, "***") if password else reason


def _all_of(source: str, names: Sequence[str], table: str | None, *, quoted: Callable[[str], str] | None = None) -> str:
    """The query for all rows of a table; without a name, of the only one that there is."""
    if not names:
        raise DataError(f"{source}: the database holds no table: check that it is the right one.")
    if table is None and len(names) > 1:
        raise DataError(
            f"{source}: the database holds the tables {listed(list(names))}: choose one {HOW_TO_CHOOSE_TABLE}."
        )
    chosen = names[0] if table is None else table
    if chosen not in names:
        raise DataError(
            f"{source}: there is no table {shortened(chosen)}{nearest(chosen, names)}: the tables are "
            f"{listed(list(names))}."
        )
    name = quoted(chosen) if quoted else '"' + chosen.replace('"', '""') + '"'
    return f"select * from {name}"


def _no_rows(source: str) -> ConfigError:
    return ConfigError(f"{source}: the query gives no table: write one that begins with select")


def _refused(source: str, query: str | None, error: Exception) -> DataError:
    reason = str(error).strip().split("\n")[0].rstrip(".")[:200]
    remedy = "check that it is complete, and that its extension names its format"
    what = "the file cannot be read"
    if query is not None and "not a database" not in reason and "not a valid" not in reason:
        what, remedy = "the query fails", "correct the query"
    return DataError(f"{source}: {what} ({reason}): {remedy}.")


def _add_rows(names: Sequence[str], fetched: Callable[[], Sequence[Sequence[Any]]], copy: ArrowCopy) -> None:
    copy.add(names, [arrow_column([]) for _ in names])
    for rows in _batches(fetched):
        copy.add(names, [arrow_column(_decoded(cells)) for cells in zip(*rows, strict=True)])


def _batches(fetched: Callable[[], Sequence[Sequence[Any]]]) -> Iterator[Sequence[Sequence[Any]]]:
    while rows := fetched():
        yield rows


def _decoded(cells: Sequence[Any]) -> Sequence[Any]:
    """Cells with text in place of identifiers and the like, which some drivers have as objects of their own."""
    odd = {type(cell) for cell in cells} - {type(None), bool, int, float, str}
    return [str(cell) if type(cell).__name__ == "UUID" else cell for cell in cells] if odd else cells


def _nothing(kind: Any) -> Any:
    import pyarrow as pa

    return pa.array([], kind)
