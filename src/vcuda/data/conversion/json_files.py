"""JSON: a list of records, a record on each line, columns by name, or what pandas writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from vcuda.data.copies import BATCH_ROWS, ArrowCopy, arrow_column
from vcuda.data.messages import listed, shortened
from vcuda.errors import DataError
from vcuda.memory import memory_available

# Python's objects take about so many times the bytes of their text.
OBJECT_COPIES = 12
EXPECTED = (
    'expected a list of records ([{"a": 1, "b": 2}, ...]), a record on each line, or columns by name ({"a": [1, ...]})'
)
# Keys under which services put their records.
WRAPPERS = ("data", "records", "rows", "results", "items", "values")


def read_json(path: Path, copy: ArrowCopy) -> list[str]:
    """Add the rows of a JSON file; its content says which form it has."""
    with open(path, encoding="utf-8-sig") as text:
        if _is_lines(text):
            text.seek(0)
            _add(_records_of_lines(path, text), copy)
            return []
    needed, available = OBJECT_COPIES * path.stat().st_size, memory_available()
    if needed > available:
        raise DataError(
            f"{path}: reading the file takes about {needed / 1e9:,.1f} GB of memory and {available / 1e9:,.1f} GB are "
            "free: write a record on each line (.jsonl), which is read piece by piece, or use Parquet."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise DataError(f"{path}: the brackets of the file are nested too deeply: {EXPECTED}.") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: line {error.lineno:,} is not JSON ({error.msg}): {EXPECTED}.") from None
    _add(_records_in(path, content), copy)
    return []


def _is_lines(text: Iterable[str]) -> bool:
    """Whether the first line that is not blank is a whole record, and another line follows."""
    lines = (line for line in text if line.strip())
    first = next(lines, "").strip()
    if not first.startswith("{") or next(lines, None) is None:
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _records_of_lines(path: Path, text: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}: line {number:,} is not JSON ({getattr(error, 'msg', error)}): write a record on each line."
            ) from None
        yield _checked(path, record, f"line {number:,}")


def _records_in(path: Path, content: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, dict) and isinstance(content.get("columns"), list) and isinstance(content.get("data"), list):
        names, rows = [str(name) for name in content["columns"]], content["data"]
        return (dict(zip(names, row, strict=True)) for row in _equal_rows(path, rows, len(names)))
    if isinstance(content, dict):
        inside = [key for key in WRAPPERS if isinstance(content.get(key), list) and _are_records(content[key])]
        if inside:
            content = content[inside[0]]
        elif content and all(isinstance(cells, list | dict) for cells in content.values()):
            return _records_of_columns(path, content)
    if not isinstance(content, list):
        raise DataError(f"{path}: the file holds {_described(content)}: {EXPECTED}.")
    if content and all(isinstance(row, list) for row in content):
        names, rows = [str(name) for name in content[0]], content[1:]
        return (dict(zip(names, row, strict=True)) for row in _equal_rows(path, rows, len(names)))
    return (_checked(path, record, f"record {number:,}") for number, record in enumerate(content, start=1))


def _are_records(rows: list[Any]) -> bool:
    return bool(rows) and all(isinstance(row, dict) for row in rows)


def _records_of_columns(path: Path, content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Columns as lists, or by the labels of rows, as pandas writes them."""
    columns = {name: list(cells.values()) if isinstance(cells, dict) else cells for name, cells in content.items()}
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        first, *others = lengths
        other = next(name for name in others if lengths[name] != lengths[first])
        raise DataError(
            f"{path}: column {shortened(first)} has {lengths[first]:,} cells and column {shortened(other)} "
            f"{lengths[other]:,}: give all columns the same number."
        )
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _equal_rows(path: Path, rows: list[Any], width: int) -> Iterator[list[Any]]:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != width:
            count = f"{len(row):,} cells" if isinstance(row, list) else _described(row)
            raise DataError(f"{path}: row {number:,} has {count} for {width:,} names: give one for each.")
        yield row


def _checked(path: Path, record: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(record, dict):
        raise DataError(f"{path}: {where} is {_described(record)}, and not a record with names: {EXPECTED}.")
    return record


def _described(content: Any) -> str:
    if isinstance(content, dict):
        return f"an object with the keys {listed(list(content), 3)}" if content else "an empty object"
    return (
        "a list" if isinstance(content, list) else "nothing" if content is None else f"the value {shortened(content)}"
    )


def _add(records: Iterator[Mapping[str, Any]], copy: ArrowCopy) -> None:
    names: dict[str, None] = {}
    while batch := list(islice(records, BATCH_ROWS)):
        for record in batch:
            names |= dict.fromkeys(record)
        copy.add(list(names), [arrow_column([record.get(name) for record in batch]) for name in names])
