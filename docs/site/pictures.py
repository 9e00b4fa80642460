"""The pictures of docs/pictures.md: ``python docs/site/pictures.py`` writes them to docs/figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import hypot
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "figures"
INK, SOFT, MARK, DOUBT = "#1f2937", "#9ca3af", "#3949ab", "#c2410c"
RADIUS = 34
# The corners of an arrowhead: how far along the arrow, and on which side of it.
TIP = ((1, 0), (0, 1), (0, -1))
Place = tuple[float, float]


def text(place: Place, words: str, *, size: int = 15, colour: str = INK, weight: str = "normal") -> str:
    """Words in the middle of a place."""
    return (
        f'<text x="{place[0]}" y="{place[1]}" font-size="{size}" fill="{colour}" font-weight="{weight}" '
        f'text-anchor="middle" dominant-baseline="central">{escape(words)}</text>'
    )


def arrow(start: Place, end: Place, *, colour: str = INK, width: float = 2, dashed: bool = False) -> str:
    """An arrow between two nodes, from rim to rim."""
    length = hypot(end[0] - start[0], end[1] - start[1])
    step = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
    first = (start[0] + RADIUS * step[0], start[1] + RADIUS * step[1])
    last = (end[0] - (RADIUS + 8) * step[0], end[1] - (RADIUS + 8) * step[1])
    dash = ' stroke-dasharray="5 5"' if dashed else ""
    corners = (
        (8 * along * step[0] - 5 * side * step[1], 8 * along * step[1] + 5 * side * step[0]) for along, side in TIP
    )
    head = " ".join(f"{last[0] + x:.1f},{last[1] + y:.1f}" for x, y in corners)
    return (
        f'<line x1="{first[0]:.1f}" y1="{first[1]:.1f}" x2="{last[0]:.1f}" y2="{last[1]:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dash}/><polygon points="{head}" fill="{colour}"/>'
    )


def graph(
    places: Mapping[str, Place],
    edges: Sequence[tuple[str, str]],
    *,
    hidden: Sequence[str] = (),
    doubted: Sequence[tuple[str, str]] = (),
) -> str:
    """Nodes and arrows; hidden nodes and their arrows are dashed, arrows in doubt have another colour."""
    drawn = [
        arrow(places[a], places[b], colour=DOUBT if (a, b) in doubted else INK, dashed=a in hidden) for a, b in edges
    ]
    for name, (x, y) in places.items():
        dash = ' stroke-dasharray="5 5"' if name in hidden else ""
        drawn.append(f'<circle cx="{x}" cy="{y}" r="{RADIUS}" fill="white" stroke="{INK}" stroke-width="1.5"{dash}/>')
        words = name.split(" ")
        drawn += [text((x, y + 13 * (k - (len(words) - 1) / 2)), word, size=12) for k, word in enumerate(words)]
    return "".join(drawn)


def picture(name: str, title: str, width: int, height: int, *parts: str) -> None:
    """Write one file."""
    (FIGURES / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="system-ui, sans-serif"><title>{escape(title)}</title>'
        f'<rect width="{width}" height="{height}" rx="8" fill="white"/>{"".join(parts)}</svg>\n',
        encoding="utf-8",
    )


def shifted(places: Mapping[str, Place], x: float, y: float = 0) -> dict[str, Place]:
    """The same nodes elsewhere."""
    return {name: (own[0] + x, own[1] + y) for name, own in places.items()}


def write_all() -> None:
    """Write every picture."""
    corners = {"price": (60.0, 60.0), "visits": (170.0, 60.0), "sales": (115.0, 160.0)}
    chain = [("price", "visits"), ("visits", "sales")]
    kinds = [
        (chain, "60 %"),
        ([*chain, ("price", "sales")], "30 %"),
        ([("visits", "price"), ("visits", "sales")], "10 %"),
    ]
    parts = []
    for k, (edges, share) in enumerate(kinds):
        parts += [graph(shifted(corners, 230 * k), edges), text((115 + 230 * k, 225), share, size=18, weight="bold")]
    parts.append(text((345, 262), "price → visits: 60 + 30 = 90 %;   price → sales: 30 %", colour=MARK, size=16))
    picture("concept-posterior", "Three graphs with their probabilities", 690, 285, *parts)

    row = {"a": (50.0, 60.0), "b": (150.0, 60.0), "c": (250.0, 60.0)}
    same = [[("a", "b"), ("b", "c")], [("b", "a"), ("b", "c")], [("c", "b"), ("b", "a")]]
    parts = [graph(shifted(row, 0, 95 * k), edges) for k, edges in enumerate(same)]
    parts.append(text((150, 330), "alike: a and c independent given b", colour=MARK))
    parts.append(graph(shifted(row, 370, 95), [("a", "b"), ("c", "b")]))
    parts.append(text((520, 330), "not alike: they depend given b", colour=MARK))
    picture("concept-equivalence", "Three graphs that look alike, and one that does not", 700, 355, *parts)

    places = {"satis- faction": (150.0, 50.0), "discount": (60.0, 170.0), "churned": (240.0, 170.0)}
    back = [("satis- faction", "discount"), ("satis- faction", "churned")]
    parts = [graph(places, [*back, ("discount", "churned")])]
    parts.append(text((150, 235), "seen: more leave with a discount", colour=MARK))
    parts.append(graph(shifted(places, 340), [("satis- faction", "churned"), ("discount", "churned")]))
    parts.append(text((490, 235), "set: nobody looks at satisfaction first", colour=MARK))
    picture("concept-setting", "To see a discount and to set it", 650, 260, *parts)

    places = {"hidden cause": (150.0, 50.0), "a": (60.0, 170.0), "b": (240.0, 170.0)}
    parts = [graph(places, [("hidden cause", "a"), ("hidden cause", "b")], hidden=["hidden cause"])]
    parts.append(text((150, 235), "what is true", colour=MARK))
    parts.append(graph({"a": (400.0, 170.0), "b": (580.0, 170.0)}, [("a", "b")], doubted=[("a", "b")]))
    parts.append(text((490, 235), "what the table seems to say", colour=MARK))
    picture("concept-hidden", "A hidden common cause looks like an arrow", 650, 260, *parts)


if __name__ == "__main__":
    write_all()
