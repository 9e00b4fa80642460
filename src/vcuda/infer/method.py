"""An engine or baseline by the names of its classes, which are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from vcuda.infer.engine import Engine


class Method(NamedTuple):
    """The options that a user sets, the engine that follows them, and what the method does, in a few words.

    ``module`` holds the classes called ``spec_name`` and ``engine_name``. So the list of all methods is quick to
    import, and the command line and the report read names and words from it without JAX.
    """

    module: str
    spec_name: str
    engine_name: str
    words: str

    @property
    def spec(self) -> type[Any]:
        found: type[Any] = getattr(import_module(self.module), self.spec_name)
        return found

    @property
    def engine(self) -> type[Engine[Any]]:
        found: type[Engine[Any]] = getattr(import_module(self.module), self.engine_name)
        return found
