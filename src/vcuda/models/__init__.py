"""2b. MODELS: how a node depends on its parents.

Each family has a package of its own, which says everything of itself; what all promise is in ``protocol``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcuda.models.functional import MLP as MLP
    from vcuda.models.functional import MODELS as MODELS
    from vcuda.models.functional import Linear as Linear
    from vcuda.models.prediction import Predictive
    from vcuda.models.protocol import Candidate, Family

__all__ = ["FAMILIES", "MLP", "MODELS", "MODEL_NAMES", "Linear", "model_words"]


class Families(Mapping[str, "Family"]):
    """The families by the names that people give; each is imported when it is first asked for."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes

    def __getitem__(self, name: str) -> Family:
        family: Family = import_module(self._homes[name]).FAMILY
        return family

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def candidates(self) -> list[Candidate]:
        """What ``model="auto"`` compares, in the order in which it does."""
        return [candidate for family in self.values() for candidate in family.candidates]

    def predictives(self) -> dict[str, type[Predictive]]:
        """The classes of predictions by their kinds in stored runs."""
        kinds = [family.predictive for family in self.values()]
        return {name: kind for kind in kinds for name in (kind.kind, *kind.earlier_kinds)}


FAMILIES = Families(
    {
        "linear": "vcuda.models.linear",
        "additive": "vcuda.models.additive",
        "gp": "vcuda.models.gaussian_process",
        "categorical": "vcuda.models.categorical",
        "mixed": "vcuda.models.mixed",
    }
)

# What people may give as ``model``: the families, and what is trained by gradient.
MODEL_NAMES = (*FAMILIES, "mlp")


def model_words(name: str) -> str:
    """How a model is explained in a report; a spec of somebody's own goes by its name."""
    if name in FAMILIES:
        return FAMILIES[name].words
    if name != "mlp":
        return name
    from vcuda.models.functional import MLP

    return MLP.words


if not TYPE_CHECKING:
    # Functional models need JAX, which the names of families do not.
    def __getattr__(name):
        if name not in ("MLP", "MODELS", "Linear"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("vcuda.models.functional"), name)
