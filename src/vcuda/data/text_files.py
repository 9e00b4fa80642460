"""Tables in text files: how they are encoded, what separates their cells, and their records."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from vcuda.data.checks import CELL_COPIES
from vcuda.data.formats import FILE_KINDS, extension_of, guessed_ending, unreadable_refused
from vcuda.data.messages import HOW_TO_CHOOSE
from vcuda.data.number_styles import is_dressed
from vcuda.data.packing import HIGHEST_COMPRESSION, packing_of, unpacked
from vcuda.data.raw_table import is_number
from vcuda.errors import DataError
from vcuda.memory import memory_available

# Characters of a line, or of all lines that a cell in quotes goes over: 100,000 names of 160 letters.
LONGEST_RECORD = 1 << 24
# A line counts as so many characters more, since going on to the next takes time as well: 16 million blank ones, which
# a small archive can hold, would take half a minute.
LINE_COST = 64
# What ends a cell; decimal commas are counted with them, which errs on the safe side.
CELL_ENDS = (b",", b";", b"\t", b"|", b"\n", b"\r")
# So many bytes are looked at to find the encoding; what is longer and begins as UTF-8 is taken as UTF-8.
SCANNED = 1 << 28
UTF_8, UTF_16, WINDOWS = "utf-8-sig", "utf-16", "cp1252"
ENCODING_NOTES = {
    UTF_8: (),
    UTF_16: ("The text is encoded as UTF-16, and was read so.",),
    WINDOWS: (
        "The text is not UTF-8 and was read as Windows-1252: if letters of names or labels look wrong, save the file "
        "as UTF-8.",
    ),
}
# So many lines show what separates cells, or fewer if they are very long.
LINES_SHOWN, CHARACTERS_SHOWN = 50, 1 << 20
# Columns that are aligned with spaces; text of other endings has names with spaces in them.
SPACED_ENDINGS = (".txt", ".dat", ".tab")


class TextFormat(NamedTuple):
    """The encoding of a text file, by its name in Python, what separates its cells, and whether R has numbered its rows
    in a first column that has no name."""

    encoding: str
    separator: str
    numbered: bool = False

    @property
    def arrow_encoding(self) -> str:
        """The name of the encoding for Arrow, which drops a mark of byte order by itself."""
        return "utf8" if self.encoding == UTF_8 else self.encoding

    @property
    def notes(self) -> tuple[str, ...]:
        return ENCODING_NOTES[self.encoding]


def text_format(path: Path) -> TextFormat:
    """How a text file is to be read, found from its first lines and bytes."""
    with unreadable_refused(path):
        status = path.stat()
        return _found_format(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _found_format(path: Path, changed: int, size: int) -> TextFormat:
    # ``changed`` and ``size`` make the answer one about this state of the file.
    encoding = _found_encoding(path)
    lines = _first_lines(path, encoding)
    separator = _found_separator(extension_of(path)[0], lines)
    return TextFormat(encoding, separator, _is_numbered(_records(lines, separator)))


def is_irregular(path: Path) -> bool:
    """Whether Arrow cannot read a text file as it is: several spaces between cells, or rows that R has numbered."""
    if FILE_KINDS.get(extension_of(path)[0]) != "text":
        return False
    found = text_format(path)
    return found.separator == " " or found.numbered


# Encoding -----------------------------------------------------------------------------------------------------


def _found_encoding(path: Path) -> str:
    decoder, read, beyond_ascii = codecs.getincrementaldecoder("utf-8")(), 0, False
    with unpacked(path) as (content, _):
        block = content.read(1 << 20)
        if block[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return UTF_16
        try:
            while block and read < SCANNED:
                beyond_ascii = beyond_ascii or not block.isascii()
                decoder.decode(block)
                read += len(block)
                block = content.read(1 << 20)
            if not block:
                decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            _refuse_binary(path, block)
            if beyond_ascii and _is_damaged(error.object):
                raise
            # Fails where a byte has no meaning in Windows-1252 either.
            error.object.decode(WINDOWS)
            return WINDOWS
    return UTF_8


def _refuse_binary(path: Path, block: bytes) -> None:
    """Refuse what is no text at all."""
    if b"\0" not in block:
        return
    meant = guessed_ending(path)
    remedy = "save the table as text" if meant is None else f"if it is a {meant} file, give it that ending"
    raise DataError(f"{path}: the file cannot be read (it is not text, whatever its ending says): {remedy}.")


def _is_damaged(block: bytes) -> bool:
    """Whether bytes are UTF-8 for the most part, so that another encoding would make every letter wrong."""
    text = block.decode("utf-8", errors="replace")
    bad = text.count("\ufffd")
    return sum(not letter.isascii() for letter in text) - bad > bad


# What separates cells -----------------------------------------------------------------------------------------


def _found_separator(ending: str, lines: Sequence[str]) -> str:
    """The mark that cuts the first lines into equally many cells; of several the one that leaves most numbers."""
    marks = "\t,;|" if ending in (".tsv", ".tab") else ",;\t|"
    if not lines:
        return marks[0]
    cut = [mark for mark in marks if len(lines[0].split(mark)) > 1]
    found = {mark: table for mark in cut if (table := _cut(lines, mark)) is not None}
    if len(found) > 1:
        return max(found, key=lambda mark: (_share_of_numbers(found[mark]), -marks.index(mark)))
    if found:
        return next(iter(found))
    unquoted = re.sub(r'"[^"]*"', "", lines[0])
    in_header = next((mark for mark in marks if mark in unquoted), None)
    if in_header is None and ending in SPACED_ENDINGS and _cut(lines, " ") is not None:
        return " "
    return in_header or marks[0]


def _first_lines(path: Path, encoding: str) -> list[str]:
    lines, left = [], CHARACTERS_SHOWN
    with _decoded(path, encoding) as text:
        for line in _BoundedLines(text):
            if line.strip():
                lines.append(line)
                left -= len(line)
            if left < 0 or len(lines) == LINES_SHOWN:
                break
    return lines


def _cut(lines: Sequence[str], mark: str) -> list[list[str]] | None:
    """The cells of some lines; None where the lines do not have the same number of them, or one each."""
    records = _records(lines, mark)
    widths = {len(record) for record in (records[1:] if _is_numbered(records) else records)}
    return records if len(widths) == 1 and widths != {1} else None


def _records(lines: Sequence[str], mark: str) -> list[list[str]]:
    """The cells of some lines; none where quotes make them endless."""
    spaced = mark == " "
    plain = [line.strip() for line in lines] if spaced else lines
    try:
        records = [record for record in csv.reader(plain, delimiter=mark, skipinitialspace=spaced) if record]
    except csv.Error:
        return []
    if len(lines) == LINES_SHOWN and len(records) > 1:
        records.pop()  # a cell in quotes may go on beyond the last line
    return records


def _is_numbered(records: Sequence[Sequence[str]]) -> bool:
    """Whether rows begin with their number and have a cell more than there are names, as write.table of R does it."""
    return len(records) > 1 and all(
        len(record) == len(records[0]) + 1 and record[0] == str(number) for number, record in enumerate(records[1:], 1)
    )


def _share_of_numbers(records: Sequence[Sequence[str]]) -> float:
    cells = [cell.strip() for record in islice(records, 1, None) for cell in record[:1000]]
    return sum(is_number(cell) or is_dressed(cell) for cell in cells) / max(1, len(cells))


# Records ------------------------------------------------------------------------------------------------------


def text_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The records of a text file, each with the line on which it ends; blank lines are left out."""
    with unreadable_refused(path):
        encoding, separator, _ = text_format(path)
        spaced = separator == " "
        with _decoded(path, encoding) as lines:
            bounded = _BoundedLines(lines, stripped=spaced)
            reader = csv.reader(bounded, delimiter=separator, skipinitialspace=spaced)
            for record in reader:
                if record:
                    bounded.left = LONGEST_RECORD
                    yield reader.line_num, record


class _BoundedLines:
    """The lines of a text, of which those of one record, and blank ones, must not go on for ever."""

    def __init__(self, text: IO[str], *, stripped: bool = False) -> None:
        self._text, self._stripped, self.left = text, stripped, LONGEST_RECORD

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(self.left + 1):
            self.left -= len(line) + LINE_COST
            if self.left < 0:
                raise ValueError(f"one of its lines has more than {LONGEST_RECORD:,} characters, or too many are blank")
            yield f"{line.strip()}\n" if self._stripped else line


@contextmanager
def _decoded(path: Path, encoding: str) -> Iterator[IO[str]]:
    with unpacked(path) as (content, _), io.TextIOWrapper(content, encoding=encoding, newline="") as text:
        yield text


def refuse_ragged(path: Path, width: int, *, header: bool) -> None:
    """Refuse a text with a line that has more or fewer cells than the first one, which is said to have ``width``."""
    expected, given = (f"the header has {width:,} names", "names") if header else (f"the first has {width:,}", "in it")
    for number, (line, record) in enumerate(text_records(path)):
        if len(record) != width:
            remedy = f"give every line as many cells as there are {given}"
            if header and number == 1 and len(record) == width + 1:
                remedy += " (R writes row names that have no name: use write.csv with row.names = FALSE)"
            cells = "one cell" if len(record) == 1 else f"{len(record):,} cells"
            raise DataError(f"{path}: line {line:,} has {cells} where {expected}: {remedy}.")


# Size ---------------------------------------------------------------------------------------------------------


def check_text_size(path: Path, *, share: float = 1.0) -> None:
    """Refuse text whose cells the memory cannot hold, also where a small archive unfolds to it.

    ``share`` is that of the columns that are wanted.
    """
    available, cell = memory_available() / share, 8 * CELL_COPIES
    most_text = path.stat().st_size * HIGHEST_COMPRESSION.get(packing_of(path), float("inf"))
    if (1 + cell) * most_text <= available:  # even if it has nothing but empty cells
        return
    needed = 0
    with unreadable_refused(path), unpacked(path) as (content, _):
        while needed <= available and (block := content.read(1 << 20)):
            needed += len(block) + cell * sum(map(block.count, CELL_ENDS))
    if needed > available:
        raise DataError(
            f"{path}: the cells of the table would need more than the {share * available / 1e9:,.2g} GB of memory "
            f"that are free: take fewer rows or columns {HOW_TO_CHOOSE}, or use a machine with more memory."
        )


def unpacked_cells(path: Path, *, enough: float) -> float:
    """About how many cells a compressed text holds: counted up to ``enough``, beyond that by the part that is left."""
    found = 0
    with unreadable_refused(path), unpacked(path) as (content, packed):
        while block := content.read(1 << 20):
            found += sum(map(block.count, CELL_ENDS))
            if found > enough:
                return found * max(1.0, path.stat().st_size / max(1, packed.tell()))
    return float(found)
