"""Parts of the page that are no Python: markup, style and script."""

from __future__ import annotations

from importlib.resources import files


def asset(name: str) -> str:
    """The text of one of these files."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
