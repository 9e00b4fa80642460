"""Options that name columns, against the columns of a table. Imports nothing that fits: a typo is refused at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from vcuda.data.formats import FILE_KINDS, STREAMED_KINDS, extension_of
from vcuda.data.knowledge import Knowledge
from vcuda.data.messages import listed, nearest
from vcuda.data.paths import BUNDLED, file_of
from vcuda.errors import ConfigError, DataError
from vcuda.fitting.spec import FitSpec

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.data.streaming import StreamedTable


def check_names(spec: FitSpec, names: Sequence[str], left_out: Sequence[tuple[str, str]] = ()) -> None:
    """Refuse a target, or knowledge, of a column that is not there, or was left out as no variable."""
    if spec.target is not None:
        _check_target(spec.target, names, dict(left_out))
    # With lags knowledge also names steps before, which the fit checks.
    if isinstance(spec.knowledge, Knowledge) and spec.lags is None:
        spec.knowledge.check_columns(names, left_out)


def check_header(spec: FitSpec, table: str) -> None:
    """The same by the first line of a file, where there is one; what is wrong with the file its reader says."""
    if table in BUNDLED or (spec.target is None and not spec.knowledge):
        return
    file = file_of(table)
    if file is None or not file.is_file() or FILE_KINDS.get(extension_of(file)[0]) not in STREAMED_KINDS:
        return
    from vcuda.data.files import from_path
    from vcuda.data.text_files import is_irregular

    names: Sequence[str] = ()
    with suppress(DataError, OSError):
        if extension_of(file) == (file.suffix.lower(), False) and not is_irregular(file):
            names = from_path(file, header=spec.header).names
    if names:
        check_names(spec, names)


def check_table_names(spec: FitSpec, table: Dataset | StreamedTable) -> None:
    """The same of a table that was read."""
    check_names(spec, table.names, table.left_out)


def _check_target(target: str, names: Sequence[str], reasons: dict[str, str]) -> None:
    if target in reasons:
        raise ConfigError(
            f"target is {target!r}, which was left out of the table, since it {reasons[target]}; choose another one, "
            "or make it a variable"
        )
    if target not in names:
        hint = nearest(target, names) or f"; they are {listed(list(names))}"
        raise ConfigError(f"target is {target!r}, which is no column of the table{hint}")
