"""The cases by kind; each follows from its kind, a seed and a number alone."""

from __future__ import annotations

import random
from collections.abc import Callable

from fuzzing.checkpoints import checkpoint
from fuzzing.files import Files
from fuzzing.knowledge import knowledge
from fuzzing.runs import run
from fuzzing.tables import table

GROWN: dict[str, Callable[[Files], None]] = {
    "tables": table,
    "knowledge": knowledge,
    "runs": run,
    "checkpoints": checkpoint,
}


def grown(kind: str, seed: int, number: int) -> Files:
    """The files of one case."""
    case = Files(random.Random(f"{kind}/{seed}/{number}"))
    GROWN[kind](case)
    return case
