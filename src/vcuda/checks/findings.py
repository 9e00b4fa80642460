"""What the model checks found: Finding, and Checks, the findings of one fit together with the checks that were made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from typing import Any, Literal, overload

import pandas as pd

from vcuda.errors import DataError

Edge = tuple[str, str]
Severity = Literal["note", "warning"]
SEVERITIES: tuple[Severity, ...] = ("note", "warning")


@dataclass(frozen=True)
class Finding:
    """One thing in which the rows differ from the fitted model.

    Attributes
    ----------
    check
        The name of the check, as in ``Checks.made``.
    severity
        ``"warning"``: edges that the posterior is sure of may be wrong. ``"note"``: worth knowing, but it changes
        little.
    columns
        The columns it concerns.
    edges
        The sure edges (source, target) that hang on it, the surest first.
    sentence
        What was found.
    changes
        What it would change: which edges, and which way.
    remedy
        What to do about it.
    statistic
        The size of the departure, on the scale that ``sentence`` names; None if it has no single number.
    p_value
        How often the model itself would show so large a departure, before the correction for the number of checks;
        None for findings that need no test, such as duplicated rows.
    """

    check: str
    severity: Severity
    columns: tuple[str, ...]
    edges: tuple[Edge, ...]
    sentence: str
    changes: str
    remedy: str
    statistic: float | None = None
    p_value: float | None = None

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise DataError(f"severity of a finding: expected one of {', '.join(SEVERITIES)}, found {self.severity!r}")

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict of the fields."""
        return asdict(self) | {"columns": list(self.columns), "edges": [list(edge) for edge in self.edges]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Finding:
        """The finding that :meth:`to_json` described."""
        known = {field.name: stored[field.name] for field in fields(cls)}
        edges = tuple((str(source), str(target)) for source, target in stored["edges"])
        return cls(**{**known, "columns": tuple(stored["columns"]), "edges": edges})


@dataclass(frozen=True)
class Made:
    """One check that was made: its smallest p-value over columns after their correction, its seconds and rows.

    ``p_value`` is None for a check that has none.
    """

    check: str
    p_value: float | None
    seconds: float
    rows: int


@dataclass(frozen=True)
class Checks(Sequence[Finding]):
    """The findings of the model checks, warnings first; ``made`` says which checks were made.

    Without findings and with ``made`` the checks found nothing. Where no check was made, ``made`` is empty and
    ``not_made`` says why.
    """

    findings: tuple[Finding, ...] = ()
    made: tuple[Made, ...] = ()
    not_made: str = ""

    def __post_init__(self) -> None:
        ordered = sorted(self.findings, key=lambda finding: finding.severity != "warning")
        object.__setattr__(self, "findings", tuple(ordered))
        object.__setattr__(self, "made", tuple(self.made))

    @overload
    def __getitem__(self, index: int) -> Finding: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...

    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self.findings[index]

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that say that sure edges may be wrong."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    @property
    def seconds(self) -> float:
        """How long all checks took."""
        return sum(made.seconds for made in self.made)

    def to_frame(self) -> pd.DataFrame:
        """One row for each finding; columns and edges as text."""
        return pd.DataFrame(
            [
                {
                    "check": finding.check,
                    "severity": finding.severity,
                    "columns": ", ".join(finding.columns),
                    "edges": ", ".join(f"{source} -> {target}" for source, target in finding.edges),
                    "sentence": finding.sentence,
                    "changes": finding.changes,
                    "remedy": finding.remedy,
                    "statistic": finding.statistic,
                    "p_value": finding.p_value,
                }
                for finding in self.findings
            ],
            columns=["check", "severity", "columns", "edges", "sentence", "changes", "remedy", "statistic", "p_value"],
        )

    @property
    def summary(self) -> str:
        """One sentence: how many checks were made and what they found."""
        if not self.made:
            return f"No model checks were made{f': {self.not_made}' if self.not_made else ''}."
        done = f"{len(self.made)} model checks were made"
        warnings, notes = len(self.warnings), len(self) - len(self.warnings)
        found = [
            f"{count} {word}{'' if count == 1 else 's'}"
            for count, word in ((warnings, "warning"), (notes, "note"))
            if count
        ]
        return f"{done}: {' and '.join(found) if found else 'nothing was found'}."

    def __str__(self) -> str:
        found = [f"{one.severity}: {one.sentence} {one.changes} {one.remedy}".rstrip() for one in self.findings]
        return "\n".join([self.summary, *found])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(finding.severity)}</td><td>{escape(finding.sentence)}</td>"
            f"<td>{escape(finding.changes)}</td><td>{escape(finding.remedy)}</td></tr>"
            for finding in self.findings
        )
        head = "<tr><th></th><th>what was found</th><th>what it would change</th><th>what to do</th></tr>"
        table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>" if rows else ""
        return f"<p>{escape(self.summary)}</p>{table}"

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict: findings, made, not_made."""
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "made": [asdict(made) for made in self.made],
            "not_made": self.not_made,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Checks:
        """The checks that :meth:`to_json` described."""
        return cls(
            tuple(Finding.from_json(finding) for finding in stored["findings"]),
            tuple(Made(*(made[field.name] for field in fields(Made))) for made in stored["made"]),
            str(stored.get("not_made", "")),
        )
