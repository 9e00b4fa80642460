"""Progress of a fit below its cell, in a notebook; nothing is imported that is not loaded there already."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from vcuda.infer.progress import Progress, ProgressCallback, Remaining, silent

# Between two updates: each is a message to the browser.
SECONDS_BETWEEN = 0.3


def in_notebook() -> bool:
    """Whether a kernel runs this process, and so a browser can show HTML."""
    loaded = sys.modules.get("IPython")
    shell = loaded.get_ipython() if loaded is not None and hasattr(loaded, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def progress_below_the_cell(given: ProgressCallback | None) -> Iterator[ProgressCallback]:
    """The callback that was given; or in a notebook one that shows a bar, which goes when the fit ends; or silence."""
    if given is not None or not in_notebook():
        yield given or silent
        return
    from IPython.display import HTML, display

    shown: Any = display(HTML(_bar(Progress(0, 1, "preparing"), "")), display_id=True)
    remaining, last = Remaining(), 0.0

    def show(progress: Progress) -> None:
        nonlocal last
        note, now = remaining(progress), time.monotonic()
        if now - last >= SECONDS_BETWEEN:
            last = now
            shown.update(HTML(_bar(progress, note)))

    try:
        yield show
    finally:
        shown.update(HTML(""))


def _bar(progress: Progress, note: str) -> str:
    words = "; ".join(filter(None, ("Fitting", note, escape(progress.detail))))
    value = f' value="{progress.done / progress.total:.3f}"' if progress.done else ""
    return f'<div><progress max="1"{value}></progress> <span>{words}</span></div>'
