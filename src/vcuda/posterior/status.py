"""Status: how far to trust a posterior, by its arithmetic, by how it describes the rows, and by what no table shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from vcuda.checks.findings import Checks, Edge

StatusCode = Literal["ok", "warning", "interrupted", "failed"]
PartCode = Literal["ok", "warning", "interrupted", "failed", "not checked"]
# From the best to the worst.
STATUS_CODES: tuple[StatusCode, ...] = ("ok", "warning", "interrupted", "failed")
# Of the edges in doubt so many are named; checks() has all of them.
EDGES_NAMED = 3


class StatusPart(NamedTuple):
    """One part of a status: its code, and what it says."""

    code: PartCode
    sentence: str

    @property
    def severity(self) -> int:
        """0 where nothing speaks against the posterior, more where it is worse."""
        return 0 if self.code == "not checked" else STATUS_CODES.index(self.code)


NOT_CHECKED = StatusPart("not checked", "It was not checked whether the model describes these rows.")
# In the words of epidemiology, whose readers look for exactly these three.
UNSEEN = StatusPart(
    "not checked",
    "No check of a table can rule out unmeasured confounding, selection into the table or measurement error.",
)
ASSUMED = "This assumes no unmeasured confounding, no selection into the table and no measurement error."


@dataclass(frozen=True)
class Status:
    """How far to trust a posterior: a code for programs, a sentence for people, and the parts that they are made of.

    An engine returns ``Status(code, sentence)``, which is about its arithmetic alone. :meth:`described_by` adds what
    the model checks found: then ``code`` is the worse of arithmetic and description, and ``sentence`` leads with the
    weakest part.

    Parameters
    ----------
    code
        ``"ok"``, ``"warning"``, ``"interrupted"`` or ``"failed"``.
    sentence
        The same in words.
    parts
        Arithmetic and description; None before the checks.
    """

    code: StatusCode
    sentence: str
    parts: tuple[StatusPart, StatusPart] | None = None

    @property
    def arithmetic(self) -> StatusPart:
        """Whether the computation finished and agrees with itself."""
        return StatusPart(self.code, self.sentence) if self.parts is None else self.parts[0]

    @property
    def description(self) -> StatusPart:
        """Whether the model describes the rows, by the model checks; ``"not checked"`` where none were made."""
        return NOT_CHECKED if self.parts is None else self.parts[1]

    @property
    def unseen(self) -> StatusPart:
        """What could make the posterior wrong and shows in no table."""
        return UNSEEN

    def described_by(self, checks: Checks) -> Status:
        """The status with what these checks found in place of what earlier ones did."""
        arithmetic, description = self.arithmetic, _description(checks)
        parts = (arithmetic, description)
        code = STATUS_CODES[max(part.severity for part in parts)]
        if code == "failed":
            # Numbers that must not be used need no further remark.
            return Status(code, arithmetic.sentence, parts)
        if arithmetic.severity > description.severity:
            order = [arithmetic, description, UNSEEN]
        else:
            order = [description, UNSEEN, arithmetic]
        return Status(code, " ".join(part.sentence for part in order), parts)

    def to_json(self) -> dict[str, Any]:
        """Every part with its code and sentence."""
        named = {"arithmetic": self.arithmetic, "description": self.description, "unseen": self.unseen}
        return {name: part._asdict() for name, part in named.items()}

    def __str__(self) -> str:
        lines = (f"{name}: {part['code']}. {part['sentence']}" for name, part in self.to_json().items())
        return "\n".join([f"Status: {self.code}", *lines])


def edges_in_words(edges: Iterable[Edge], *, most: int = EDGES_NAMED, arrow: str = "->") -> str:
    """``a -> b, c -> d and 4 more``."""
    found = list(edges)
    named = ", ".join(f"{source} {arrow} {target}" for source, target in found[:most])
    return named if len(found) <= most else f"{named} and {len(found) - most:,} more"


def in_percent(probability: float) -> str:
    """A probability as people read it; nothing that was learned from data is certain."""
    if probability > 0.99:
        return "over 99 %"
    return "under 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"


def edges_in_doubt(checks: Checks) -> list[Edge]:
    """The sure edges that warnings are about, each once."""
    return list(dict.fromkeys(edge for finding in checks.warnings for edge in finding.edges))


def caveat_of_effects(checks: Checks) -> str:
    """What stands beside every effect: edges that the checks put in doubt, and what no table can show."""
    doubted = edges_in_doubt(checks)
    if not doubted:
        return ASSUMED
    those = "it" if len(doubted) == 1 else "them"
    named = edges_in_words(doubted)
    return f"The model checks put {named} in doubt, and with {those} every effect that hangs on {those}. {ASSUMED}"


def _description(checks: Checks) -> StatusPart:
    if not checks.made:
        return NOT_CHECKED._replace(sentence=f"{NOT_CHECKED.sentence} {checks.summary}")
    warnings = checks.warnings
    if not warnings:
        noted = ", ".join(dict.fromkeys(finding.check for finding in checks))
        notes = f" (noted: {noted})" if noted else ""
        skipped = f"; {checks.not_made}" if checks.not_made else ""
        return StatusPart("ok", f"The model checks found nothing that puts a sure edge in doubt{notes}{skipped}.")
    doubted = edges_in_doubt(checks)
    what = f"{len(doubted):,} sure edge{'' if len(doubted) == 1 else 's'} ({edges_in_words(doubted)})"
    first, others = warnings[0], len(warnings) - 1
    more = f"The checks have {others} more warning{'' if others == 1 else 's'}." if others else ""
    lead = f"The model checks put {what if doubted else 'the result'} in doubt:"
    return StatusPart("warning", " ".join(filter(None, (lead, first.sentence, first.remedy, more))))
