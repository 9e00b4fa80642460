"""Files of SPSS, Stata and SAS, by pyreadstat of the extra ``stats``; value labels become labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vcuda.data.copies import BATCH_ROWS, ArrowCopy, arrow_column
from vcuda.data.in_memory import LABELS_IN_ORDER
from vcuda.data.messages import listed, shortened
from vcuda.errors import MissingExtraError

READERS = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
# A column with more different values is no list of answers, whatever labels it has.
MOST_CODES = 1_000
ORDINAL = "ordinal"


def read_statistics(path: Path, copy: ArrowCopy) -> list[str]:
    """Add the rows of a file; a column of numbers of which each has a value label becomes one of labels."""
    try:
        import pyreadstat
    except ImportError as error:
        raise MissingExtraError("pyreadstat", "stats", f"{path}: reading files of SPSS, Stata and SAS") from error
    reader = getattr(pyreadstat, READERS[path.suffix.lower()])
    codes: dict[str, set[float]] = {}
    labels: dict[str, dict[Any, str]] = {}
    names: list[str] = []
    measures: dict[str, str] = {}
    for frame, meta in _chunks(path, reader):
        names, measures = [str(name) for name in meta.column_names], dict(meta.variable_measure or {})
        labels = {name: dict(own) for name, own in (meta.variable_value_labels or {}).items() if name in names}
        columns = []
        for k, name in enumerate(names):
            cells = frame.iloc[:, k]
            if name in labels and cells.dtype.kind in "biuf":
                seen = codes.setdefault(name, set())
                if len(seen) <= MOST_CODES:
                    seen |= {float(code) for code in np.unique(cells.dropna())}
            columns.append(_column(cells, labels.get(name, {})))
        copy.add(names, columns)
    full = {name: own for name, own in labels.items() if codes.get(name) and codes[name] <= _numbers(own)}
    copy.relabel({names.index(name): _relabelled(name, own, measures.get(name)) for name, own in full.items()})
    partly = {name: own for name, own in labels.items() if name not in full and codes.get(name, set()) & _numbers(own)}
    return _notes(partly, codes)


def _chunks(path: Path, reader: Any) -> Iterator[tuple[Any, Any]]:
    """Some rows at a time, with what the file says of its columns."""
    done = 0
    while True:
        frame, meta = reader(str(path), row_offset=done, row_limit=BATCH_ROWS)
        if len(frame) or not done:
            yield frame, meta
        done += len(frame)
        if len(frame) < BATCH_ROWS:
            return


def _column(cells: Any, labels: dict[Any, str]) -> Any:
    import pyarrow as pa

    if cells.dtype.kind in "biuf":
        return pa.array(cells.to_numpy(), from_pandas=True)
    if cells.dtype.kind in "mM":
        return pa.nulls(len(cells), pa.timestamp("us"))
    return arrow_column([None if _is_missing(cell) else labels.get(cell, cell) for cell in cells.tolist()])


def _is_missing(cell: Any) -> bool:
    return cell is None or cell != cell or cell == ""


def _numbers(labels: dict[Any, str]) -> set[float]:
    return {float(code) for code in labels if isinstance(code, int | float)}


def _relabelled(name: str, labels: dict[Any, str], measure: str | None) -> tuple[Any, Any]:
    """The field of labels in the order of their codes, and what turns codes into them."""
    import pyarrow as pa

    codes = sorted(_numbers(labels))
    texts = pa.array([str(labels[code]) for code in codes], pa.string())
    kind = pa.dictionary(pa.int32(), pa.string(), ordered=measure == ORDINAL)

    def coded(column: Any) -> Any:
        values = column.cast("float64").to_numpy(zero_copy_only=False)
        missing = np.isnan(values)
        found = np.searchsorted(codes, np.where(missing, codes[0], values)).astype(np.int32)
        indices = pa.array(found, pa.int32(), mask=missing)
        return pa.DictionaryArray.from_arrays(indices, texts, ordered=measure == ORDINAL)

    return pa.field(name, kind, metadata=LABELS_IN_ORDER), coded


def _notes(partly: dict[str, dict[Any, str]], codes: dict[str, set[float]]) -> list[str]:
    if not partly:
        return []
    name = next(iter(partly))
    code = min(codes[name] & _numbers(partly[name]))
    subject, has, were = ("Columns", "have", "were") if len(partly) > 1 else ("Column", "has", "was")
    return [
        f"{subject} {listed(list(partly))} {has} labels for some values alone, such as {code:g} "
        f"({shortened(partly[name][code])}), and {were} read as numbers: if such a value is missing, say so "
        "(missing_values=, --missing)."
    ]
