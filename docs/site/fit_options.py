"""What cannot be read from the source: the signature and docstring of fit are made from FitSpec on import."""

from __future__ import annotations

import inspect
from typing import Any

import griffe

KINDS = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
}


class FitOptions(griffe.Extension):
    """Take them from the function itself."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Describe fit, and leave all other functions as they are."""
        if func.path != "vcuda.fitting.fit.fit" or func.docstring is None:
            return
        from vcuda import fit

        func.docstring.value = inspect.getdoc(fit) or ""
        func.parameters = griffe.Parameters(*map(_parameter, inspect.signature(fit).parameters.values()))


def _parameter(one: inspect.Parameter) -> griffe.Parameter:
    default = None if one.default is inspect.Parameter.empty else repr(one.default)
    return griffe.Parameter(one.name, kind=KINDS[one.kind], default=default)
