"""Numbers as people and spreadsheets write them: 2,5 and 1.257,30, $1,257.30, 1.3 %, (12), 1'250.

The cells of a column decide together what a comma means. Where they leave it open, as 1,250 does, the other columns of
the file and its separator decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vcuda.data.messages import listed, shortened

CURRENCIES = "$€£¥₹₩₽₺₪₫฿₴"
PER_CENT = "%"
# Between thousands, whatever the decimal mark is: spaces of several widths, and apostrophes.
_GROUPING = " \u00a0\u202f\u2009'\u2019"
_DRESSED = re.compile(
    rf"(?P<open>\()?(?P<minus>[+\-\u2212])?\s?(?P<before>[{CURRENCIES}])?\s?(?P<body>[+\-\u2212]?[\d.,][\deE.,+\-{_GROUPING}]*?)"
    rf"\s?(?P<after>[{CURRENCIES}{PER_CENT}])?(?(open)\))",
    flags=re.ASCII,
)


def _pattern(decimal: str, grouping: str) -> re.Pattern[str]:
    # A code such as 080 123 is no number.
    whole = rf"[1-9]\d{{0,2}}(?P<mark>[{grouping}{_GROUPING}])\d{{3}}(?:(?P=mark)\d{{3}})*|\d+"
    return re.compile(rf"[+\-\u2212]?(?:(?:{whole})(?:{decimal}\d*)?|{decimal}\d+)(?:[eE][+\-]?\d+)?", flags=re.ASCII)


_PATTERNS = {".": _pattern(r"\.", ","), ",": _pattern(",", r"\.")}
CONFLICTS = {
    "decimal": "write all numbers of the column with the same decimal mark",
    "sign": "give all amounts of the column in one currency, or all or none of them in per cent",
}


class NumberStyle(NamedTuple):
    """How the numbers of a column are written.

    ``decimal`` is the mark before decimals and ``sign`` that of a currency or per cent, empty without one; ``certain``
    if the cells leave no other reading, and ``example`` is one of them.
    """

    decimal: str
    sign: str = ""
    certain: bool = True
    example: str = ""


class _Parts(NamedTuple):
    body: str
    negative: bool
    sign: str


def _parts(text: str) -> _Parts | None:
    """A text taken apart; None where it is no number in any style."""
    match = _DRESSED.fullmatch(text)
    if match is None:
        return None
    signs = [sign for sign in (match["before"], match["after"]) if sign]
    if len(signs) > 1 or (match["minus"] and match["body"][0] in "+-\u2212"):
        return None
    body = match["body"]
    if not any(pattern.fullmatch(body) for pattern in _PATTERNS.values()):
        return None
    negative = bool(match["open"]) != ((match["minus"] or "+") != "+")
    return _Parts(body, negative, signs[0] if signs else "")


def is_dressed(text: str) -> bool:
    """Whether a text is a number in some style; a point alone between thousands does not make one.

    Examples
    --------
    >>> [is_dressed(text) for text in ("$1,257.30", "2,5", "1.3%", "1'250", "10.1.2024", "1,2,3")]
    [True, True, True, True, False, False]
    """
    return _parts(text) is not None


def number_in_style(text: str, style: NumberStyle) -> float | None:
    """The number that a text stands for in a style; None where it is none.

    Examples
    --------
    >>> number_in_style("1.257,30 €", NumberStyle(",", "€")), number_in_style("(1,257)", NumberStyle("."))
    (1257.3, -1257.0)
    """
    parts = _parts(text)
    if parts is None or parts.sign not in ("", style.sign) or not _PATTERNS[style.decimal].fullmatch(parts.body):
        return None
    if style.sign == PER_CENT and not parts.sign and any(digit in "123456789" for digit in parts.body):
        return None
    digits = re.sub(rf"[{_GROUPING}{'.' if style.decimal == ',' else ','}]", "", parts.body)
    number = float(digits.replace(style.decimal, ".").replace("\u2212", "-"))
    return -number if parts.negative else number


def found_style(texts: Sequence[str], *, comma_first: bool = False) -> NumberStyle | str | None:
    """The style of the numbers among some texts; where two styles contradict each other, the key of `CONFLICTS`.

    None if no text is a number. ``comma_first``: where the cells leave it open, a comma stands before decimals.
    """
    found = {text: parts for text in texts if (parts := _parts(text)) is not None}
    if not found:
        return None
    signs = {parts.sign for parts in found.values() if parts.sign}
    sign = next(iter(signs), "")
    bare = [parts.body for parts in found.values() if not parts.sign and any(one in "123456789" for one in parts.body)]
    if len(signs) > 1 or (sign == PER_CENT and bare):
        return "sign"
    fitting = [mark for mark, one in _PATTERNS.items() if all(one.fullmatch(parts.body) for parts in found.values())]
    if not fitting:
        return "decimal"
    # Whole numbers mean the same in both styles.
    certain = len(fitting) == 1 or not any(set(parts.body) & set(".,") for parts in found.values())
    decimal = fitting[0] if len(fitting) == 1 else "," if comma_first else "."
    example = next((text for text in found if set(text) & set(".,")), next(iter(found)))
    return NumberStyle(decimal, sign, certain, example)


def style_notes(styles: Mapping[int, NumberStyle], names: Sequence[str]) -> list[str]:
    """How numbers were read that are not written plainly, in words."""
    groups: dict[str, list[int]] = {}
    for k, style in styles.items():
        parts = _parts(style.example)
        grouped = parts is not None and bool(
            re.search(rf"\d[{_GROUPING}{'.' if style.decimal == ',' else ','}]\d", parts.body)
        )
        said = []
        if style.sign == PER_CENT:
            said.append("per cent signs were left out, so that 1 % is 1")
        elif style.sign:
            said.append(f"the sign {style.sign} was left out")
        if style.decimal == "," and (parts is None or "," in parts.body):
            said.append("a comma is the decimal mark")
        if grouped:
            said.append("marks between thousands were left out")
        if said:
            groups.setdefault("; ".join(said), []).append(k)
    notes = []
    for sentence, columns in groups.items():
        subject, has = ("Columns", "have") if len(columns) > 1 else ("Column", "has")
        example = shortened(styles[columns[0]].example)
        which = listed([names[k] for k in columns])
        notes.append(f"{subject} {which} {has} numbers such as {example}: {sentence}.")
    return notes
