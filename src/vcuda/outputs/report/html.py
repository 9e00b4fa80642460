"""HTML that is safe with any text: names and cells of a table are untrusted, and reach a page only through here.

`Html` is text that is markup already. Every function below takes plain text and escapes it, takes `Html` as it is, and
returns `Html`; so a name cannot become an element unless somebody writes ``Html(name)``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Any

from vcuda.outputs.labels import shortened, visible

# Letters of a name in tables and pictures, and of a sentence: with names of 100,000 letters a browser would be busy for
# minutes.
LONGEST_NAME, LONGEST_TEXT = 300, 20_000


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(plain: str, *, most: int = LONGEST_TEXT) -> Html:
    """Escaped, with control characters and changes of direction spelt out, and cut where it is too long to be read."""
    return plain if isinstance(plain, Html) else Html(escape(shortened(plain, most)))


def name(plain: str) -> Html:
    """The name of a column inside a sentence; one that is written from right to left turns nothing else round."""
    return Html(f"<bdi>{text(plain, most=LONGEST_NAME)}</bdi>")


def with_arrows(sentence: str) -> str:
    """Arrows of one sign: a browser breaks a line inside of ``->``."""
    return sentence.replace(" -> ", " → ")


def program(lines: str) -> Html:
    """Lines of a program, which keep their breaks and are never cut."""
    shown = "\n".join(escape(visible(line)) for line in lines.split("\n"))
    return Html(f"<pre><code>{shown}</code></pre>")


def tag(element: str, *children: str, **attributes: str | int | float | None) -> Html:
    """An element with its children and attributes; ``class_`` stands for class, and None leaves an attribute out.

    Examples
    --------
    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    words = "".join(f' {key}="{text(str(value))}"' for key, value in given.items())
    return Html(f"<{element}{words}>{joined(children)}</{element}>")


def joined(parts: Iterable[str]) -> Html:
    """One after the other."""
    return Html("".join(map(text, parts)))


def paragraphs(sentences: Iterable[str]) -> Html:
    """Each in a paragraph of its own."""
    return joined(tag("p", sentence) for sentence in sentences)


def definitions(pairs: Iterable[tuple[str, str]]) -> Html:
    """Labels, each with its answer."""
    items = (joined((tag("dt", label), tag("dd", tag("bdi", answer)))) for label, answer in pairs)
    return tag("dl", *items)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> Html:
    """A table that scrolls by itself where it is too wide; ``right`` are the columns of numbers."""
    cells = (
        tag("th", label, scope="col", class_="number" if number in right else None) for number, label in enumerate(head)
    )
    shown = tag("table", tag("thead", tag("tr", *cells)), tag("tbody", table_rows(rows, right=right)))
    return tag("div", shown, class_="wide", tabindex=0, role="group", aria_label="Table")


def table_rows(rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> Html:
    """The rows of a table."""
    return joined(
        tag(
            "tr",
            *(
                tag("td", name(cell), class_="number" if number in right else None)
                if not isinstance(cell, Html)
                else tag("td", cell, class_="number" if number in right else None)
                for number, cell in enumerate(row)
            ),
        )
        for row in rows
    )


def folded(summary: str, content: Html) -> Html:
    """Content that is shown on a click."""
    return tag("details", tag("summary", summary), content)


def embedded_json(content: Any) -> Html:
    """JSON that stays inside its script element and its line, whatever texts it holds."""
    plain = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Html(plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
