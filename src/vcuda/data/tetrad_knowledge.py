"""Knowledge in the files of Tetrad: tiers, required and forbidden edges, read and written.

A file begins with ``/knowledge``; after ``addtemporal`` stand tiers, each with its number (with ``*`` no edges inside
it), after ``forbiddirect`` and ``requiredirect`` edges, and after ``forbiddengroup`` and ``requiredgroup`` pairs of
lines, of which all names of the first cause, or do not cause, all of the second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import permutations, product
from typing import Any

from vcuda.data.graph_texts import check_tetrad_name
from vcuda.data.messages import listed, shortened
from vcuda.errors import ConfigError, KnowledgeError

SECTIONS = ("addtemporal", "forbiddirect", "requiredirect", "forbiddengroup", "requiredgroup")
_WORD = re.compile(r'"([^"]*)"|([^\s,]+)')


def is_tetrad_knowledge(text: str) -> bool:
    """Whether a text is knowledge as Tetrad saves it."""
    first = next((line.strip().lower() for line in text.splitlines() if line.strip()), "")
    return first.startswith("/knowledge") or first in SECTIONS


def read_tetrad_knowledge(text: str) -> dict[str, Any]:
    """The parameters of `Knowledge`; errors name the line."""
    tiers: dict[int, list[str]] = {}
    closed: set[int] = set()
    edges: dict[str, list[tuple[str, str]]] = {"required": [], "forbidden": []}
    section, sources = "", None
    for number, line in enumerate(text.splitlines(), start=1):
        words = [quoted or plain for quoted, plain in _WORD.findall(line)]
        if not words or line.strip().startswith("//") or line.strip().lower().startswith("/knowledge"):
            continue
        if len(words) == 1 and words[0].lower() in SECTIONS:
            section, sources = words[0].lower(), None
        elif section == "addtemporal":
            tier = re.fullmatch(r"(\d+)(\*?)", words[0])
            if tier is None or int(tier[1]) < 1:
                raise KnowledgeError(f"line {number:,} begins with {shortened(words[0])}: write the number of a tier")
            tiers.setdefault(int(tier[1]), []).extend(words[1:])
            closed |= {int(tier[1])} if tier[2] else set()
        elif section in ("forbiddirect", "requiredirect"):
            if len(words) != 2:
                raise KnowledgeError(f"line {number:,} has {len(words)} names: write the cause and the effect")
            edges[_kind(section)].append((words[0], words[1]))
        elif section:
            if sources is None:
                sources = words
            else:
                edges[_kind(section)] += [pair for pair in product(sources, words) if pair[0] != pair[1]]
                sources = None
        else:
            raise KnowledgeError(f"line {number:,} stands before any section: begin with one of {', '.join(SECTIONS)}")
    if sources is not None:
        raise KnowledgeError("the last group has causes and no line of effects below them: add it")
    ordered = {number: tiers[number] for number in sorted(tiers) if tiers[number]}
    wide = {number for number, names in ordered.items() if len(names) > 1}
    all_closed = bool(closed) and wide <= closed
    if not all_closed:
        edges["forbidden"] += [pair for number in sorted(closed & wide) for pair in permutations(ordered[number], 2)]
    return {**edges, "tiers": list(ordered.values()), "within_tiers": not all_closed}


def _kind(section: str) -> str:
    return "required" if section.startswith("required") else "forbidden"


def write_tetrad_knowledge(known: Mapping[str, Any], names: Sequence[str]) -> str:
    """The text of a file, from all parameters of `Knowledge` and the names in it."""
    beyond = [field for field in ("roots", "sinks", "probabilities", "upstream") if known.get(field)]
    if beyond:
        raise ConfigError(
            f"the files of Tetrad hold tiers, required and forbidden edges, and no {listed(beyond)}: write a .toml file"
        )
    for name in names:
        check_tetrad_name(name)
    star = "" if known["within_tiers"] else "*"
    lines = ["/knowledge", "addtemporal"]
    lines += [f"{number}{star} {' '.join(tier)}" for number, tier in enumerate(known["tiers"], start=1)]
    for section, field in (("forbiddirect", "forbidden"), ("requiredirect", "required")):
        lines += ["", section, *(" ".join(edge) for edge in known[field])]
    return "\n".join(lines) + "\n"
