"""Answers in a notebook: sentences and a table, with every text escaped."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from html import escape

import pandas as pd

TURNING = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))


def answer_html(sentences: Iterable[str], table: pd.DataFrame | None = None, *, caveat: str = "") -> str:
    """Sentences as paragraphs, a table below them, and what it all assumes in small letters."""
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    shown = ""
    if table is not None and not table.empty:
        shown = table.to_html(index=False, border=0, float_format=lambda value: f"{value:.3g}", na_rep="")
    small = f"<p><small>{escape(caveat)}</small></p>" if caveat else ""
    return "".join(map(_visible, f"<div>{said}{shown}{small}</div>"))


def _visible(character: str) -> str:
    """What would turn the text after it round is spelt out."""
    turns = unicodedata.bidirectional(character) in TURNING
    return character.encode("unicode_escape").decode("ascii") if turns else character
