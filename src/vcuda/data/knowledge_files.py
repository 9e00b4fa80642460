"""Files of knowledge (TOML, CSV, Tetrad, and graphs of DAGitty and BIF) as the parameters of `Knowledge`, and back.

They may come from somebody else.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vcuda.data.graph_texts import GRAPH_ENDINGS, GRAPH_FORMATS, GraphText, graph_format_of, oriented
from vcuda.data.messages import listed, shortened
from vcuda.data.paths import existing_file
from vcuda.data.tetrad_knowledge import is_tetrad_knowledge, read_tetrad_knowledge, write_tetrad_knowledge
from vcuda.data.text_files import text_records
from vcuda.data.toml_files import read_toml, toml_of
from vcuda.errors import ConfigError, DataError, KnowledgeError

# A million edges; what is larger is no file of knowledge.
LARGEST_FILE = 20_000_000
TEXT_ENDINGS = (*GRAPH_ENDINGS, ".knowledge")
CSV_KINDS = ("required", "forbidden", "upstream", "probability")


def read_parameters(path: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """The file that was meant, and the parameters of `Knowledge` that it gives; they are not checked yet."""
    try:
        file = existing_file(Path(path))
    except DataError as error:
        raise KnowledgeError(str(error)) from None
    size = file.stat().st_size
    if size > LARGEST_FILE:
        raise KnowledgeError(
            f"{file}: it has {size / 1e6:,.0f} MB, and a knowledge file may have {LARGEST_FILE / 1e6:.0f}: give "
            "a smaller file"
        )
    ending = file.suffix.lower()
    if ending == ".toml":
        return file, _from_toml(file)
    if ending in (".csv", ".tsv"):
        return file, _from_csv(file)
    if ending in TEXT_ENDINGS:
        return file, _from_text(file, ending)
    known = ", ".join((".toml", ".csv", *TEXT_ENDINGS))
    raise KnowledgeError(f"{file}: knowledge is read from files that end in {known}, not in {ending!r}")


def _from_text(file: Path, ending: str) -> dict[str, Any]:
    """Knowledge of Tetrad, or a graph, whose edges are all required."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error)[:200]
        raise KnowledgeError(f"{file}: the file cannot be read ({reason}): save it as UTF-8 text") from None
    try:
        if ending == ".knowledge" or is_tetrad_knowledge(text):
            return read_tetrad_knowledge(text)
        kind = graph_format_of(ending, text)
        if kind is None:
            raise KnowledgeError("this is neither knowledge of Tetrad (/knowledge) nor a graph of Tetrad or DAGitty")
        return {"required": list(oriented(GRAPH_FORMATS[kind].read(text)).edges)}
    except (KnowledgeError, DataError) as error:
        raise KnowledgeError(f"{file}: {error}") from None


def written(path: Path, known: Mapping[str, Any], names: Sequence[str]) -> str:
    """The text of a file of knowledge, from all parameters; its ending says the format."""
    ending = path.suffix.lower()
    if ending == ".toml":
        return "".join(f"{key} = {toml_of(value)}\n" for key, value in known.items() if value not in ([], ()))
    if ending in (".txt", ".knowledge"):
        return write_tetrad_knowledge(known, names)
    allowed = ("required",) if ending in GRAPH_ENDINGS else ("required", "forbidden", "upstream", "probabilities")
    beyond = [
        field for field in ("forbidden", "tiers", "roots", "sinks", "probabilities", "upstream") if field not in allowed
    ]
    if beyond := [field for field in beyond if known.get(field)]:
        raise ConfigError(f"a {ending} file holds no {listed(beyond)}: write a .toml file")
    if ending == ".csv":
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("source", "target", "kind", "probability"))
        for kind in ("required", "forbidden", "upstream"):
            writer.writerows((*edge, kind, "") for edge in known.get(kind, ()))
        writer.writerows((source, target, "probability", number) for source, target, number in known["probabilities"])
        return text.getvalue()
    if ending in GRAPH_ENDINGS:
        edges = [(str(source), str(target)) for source, target in known["required"]]
        return GRAPH_FORMATS[str(graph_format_of(ending))].write(GraphText(tuple(names), tuple(edges)))
    raise ConfigError(f"{path}: knowledge is written to files that end in .toml, .csv, {', '.join(TEXT_ENDINGS)}")


def _from_toml(file: Path) -> dict[str, Any]:
    try:
        return read_toml(file)
    except ValueError as error:
        raise KnowledgeError(str(error)) from None


def _from_csv(file: Path) -> dict[str, Any]:
    try:
        records = list(text_records(file))
    except DataError as error:
        raise KnowledgeError(str(error)) from None
    header = [cell.strip().lower() for cell in records[0][1]] if records else []
    for column in ("source", "target", "kind"):
        if column not in header:
            raise KnowledgeError(f"{file}: line 1 names no column {column!r}: begin with source,target,kind")
    for column in header:
        if column not in ("source", "target", "kind", "probability"):
            raise KnowledgeError(
                f"{file}: line 1 names a column {shortened(column)}: there may be source, target, kind and "
                "probability; tiers, roots and sinks go into a .toml file"
            )
    found: dict[str, list[Any]] = {kind: [] for kind in CSV_KINDS}
    for line, record in records[1:]:
        kind, edge = _edge_of_line(f"{file}: line {line:,}", header, record)
        found[kind].append(edge)
    found["probabilities"] = found.pop("probability")
    return found


def _edge_of_line(place: str, header: list[str], record: list[str]) -> tuple[str, tuple[Any, ...]]:
    """The kind of a line, and its edge: source, target, and the probability if that is its kind."""
    if len(record) != len(header):
        raise KnowledgeError(f"{place} has {len(record)} cells for {len(header)} columns: give one for each")
    row = dict(zip(header, (cell.strip() for cell in record), strict=True))
    if not row["source"] or not row["target"]:
        raise KnowledgeError(f"{place} lacks a source or a target: give both, or remove the line")
    kind, given = row["kind"], row.get("probability", "")
    if kind not in CSV_KINDS:
        raise KnowledgeError(f"{place} has the kind {shortened(kind)}: write one of {', '.join(CSV_KINDS)}")
    if (kind == "probability") != bool(given):
        raise KnowledgeError(
            f"{place} must have a number under probability if its kind is probability, and none otherwise"
        )
    edge = row["source"], row["target"]
    if not given:
        return kind, edge
    try:
        return kind, (*edge, float(given))
    except ValueError:
        raise KnowledgeError(
            f"{place} has the probability {shortened(given)}: write a number between 0 and 1"
        ) from None
