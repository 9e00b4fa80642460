"""Provenance: how a posterior was made. It owns what config.json and summary.json say of that.

A stored run may come from an earlier version or from somebody else: `Provenance.from_json` checks what it says, turns
old names into those of today, and keeps fields that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vcuda.checks.findings import SEVERITIES, Edge
from vcuda.data.kinds import KINDS
from vcuda.data.knowledge import Knowledge
from vcuda.errors import ConfigError, KnowledgeError
from vcuda.fitting.spec import OPTIONS
from vcuda.posterior.checks import (
    Check,
    check_fields,
    check_graph_posterior,
    each,
    is_count,
    is_number,
    is_text,
    is_whole,
    is_word,
    mapping_of,
    named,
    or_none,
)
from vcuda.posterior.status import STATUS_CODES

if TYPE_CHECKING:
    from vcuda.posterior.status import Status


# A test compares them with those that the package has.
PRIOR_NAMES = ("orders", "uniform")


def _settings(**words: Check) -> Check:
    """Settings with a name, some of which are words; their keys are written as names of arguments."""
    described = named(name=is_word, **words)
    return lambda value: described(value) and all(map(str.isidentifier, value))


# What the fit writes beside the options that were passed to it.
REQUIRED: dict[str, Check] = {
    # An engine may have a setting called noise that is a number.
    "engine": _settings(),
    "model": _settings(noise_=or_none(is_word), score_=or_none(is_word)),
    "data": named(
        source_=is_text,
        fingerprint_=lambda value: isinstance(value, str) and bool(re.fullmatch(r"[0-9a-f]{0,64}", value)),
        rows=lambda value: is_count(value) and value > 0,
        columns=is_count,
        chosen_=each(is_text),
        without_=each(is_text),
        kinds_=mapping_of(is_text, lambda value: value in KINDS),
        notes=each(is_text),
    ),
    "versions": mapping_of(is_word, is_text),
    "seconds": is_number,
    "seed": is_whole,
}
IF_THERE: dict[str, Check] = {
    "logarithm": each(is_text),
    "target": or_none(is_text),
    "choice": named(sentences_=each(is_text), by_shape_=each(lambda edge: each(is_text)(edge) and len(edge) == 2)),
    "interventions": or_none(
        named(column=or_none(is_text), rows=mapping_of(is_text, named(set=is_count, alone=is_count)))
    ),
    "contexts": or_none(named(columns=each(is_text), reference=is_text, rows=mapping_of(is_text, is_count))),
    "imputations": or_none(is_count),
    "series": named(
        names=each(is_text),
        lags=lambda value: is_count(value) and value > 0,
        step=is_text,
        unit_names=each(is_text),
        logarithms=each(is_text),
        grid=lambda value: isinstance(value, list) and len(value) == 3 and is_text(value[0]),
    ),
    "careful": named(distance=is_count, sure_before=is_count, sure=is_count),
    "prior": or_none(
        named(
            name_=lambda value: value in PRIOR_NAMES,
            edge_probability=lambda value: is_number(value) and 0 < value < 1,
        )
    ),
}


class Provenance(dict[str, Any]):
    """How a posterior was made, as config.json stores it; properties give the parts that programs ask for most.

    It is a dict of JSON values, so ``provenance["seed"]`` and ``json.dumps(provenance)`` work. Values of options are
    those that were passed to the fit; ``engine``, ``model`` and ``logarithm`` are what was found or chosen.

    Examples
    --------
    >>> made = Provenance(engine={"name": "exact"}, model={"name": "linear", "noise": "equal"}, seed=3)
    >>> made.engine_name, made.model_name, made.noise, made["seed"], made.options["preset"]
    ('exact', 'linear', 'equal', 3, 'default')
    """

    @classmethod
    def from_json(cls, stored: Any) -> Provenance:
        """From config.json, checked and with the names of today; a ConfigError for what cannot be shown or used."""
        if not isinstance(stored, dict):
            raise ConfigError(f"provenance must be a mapping, not {type(stored).__name__}")
        defaults = {"preset": "default", "standardise": False}
        made = cls(stored | {key: value for key, value in defaults.items() if key not in stored})
        if isinstance(made.get("data"), dict):
            made["data"] = made["data"] | {
                key: value for key, value in (("source", "a table"), ("fingerprint", "")) if key not in made["data"]
            }
        check_fields(made, REQUIRED, "provenance")
        check_fields(made, {key: check for key, check in IF_THERE.items() if key in made}, "provenance")
        check_fields(made, {key: check for key, check in PASSED.items() if key in made}, "provenance")
        name = made["model"]["name"]
        made["model"] = made["model"] | {"name": OPTIONS["model"].renamed.get(name, name)}
        if made.get("knowledge"):
            try:
                made["knowledge"] = Knowledge.from_dict(made["knowledge"]).to_dict()
            except (KnowledgeError, TypeError) as error:
                raise ConfigError(f"its knowledge cannot be: {error}") from None
        return made

    @property
    def engine_name(self) -> str:
        return self["engine"]["name"]

    @property
    def model_name(self) -> str:
        return self["model"]["name"]

    @property
    def noise(self) -> str | None:
        """Which noise variances the model has; None if it has none."""
        return self["model"].get("noise")

    @property
    def log(self) -> list[str]:
        """The columns of which the logarithm was taken."""
        return self.get("logarithm") or []

    @property
    def sentences(self) -> list[str]:
        """What was chosen, and why, in words."""
        return list(self.get("choice", {}).get("sentences", []))

    @property
    def by_shape(self) -> list[tuple[str, str]]:
        """Edges of surely joined pairs, the direction of which is read from the shapes of noise and effects alone."""
        return [(source, target) for source, target in self.get("choice", {}).get("by_shape", [])]

    @property
    def target(self) -> str | None:
        """The column that the question is about."""
        return self.get("target")

    @property
    def source(self) -> str:
        """Where the table came from."""
        return self["data"]["source"]

    @property
    def rows(self) -> int:
        return self["data"]["rows"]

    @property
    def columns(self) -> int:
        return self["data"]["columns"]

    @property
    def notes(self) -> list[str]:
        """What is worth knowing about the table."""
        return self["data"]["notes"]

    @property
    def versions(self) -> dict[str, str]:
        return self["versions"]

    @property
    def seconds(self) -> float:
        return self["seconds"]

    @property
    def seed(self) -> int:
        return self["seed"]

    @property
    def edge_probability(self) -> float | None:
        """The prior probability of an edge; None for methods with a prior of their own."""
        return (self.get("prior") or {}).get("edge_probability")

    @property
    def prior_name(self) -> str | None:
        """``"orders"`` or ``"uniform"``; None for methods with a prior of their own."""
        return (self.get("prior") or {}).get("name", "orders") if self.get("prior") else None

    @property
    def times_resumed(self) -> int:
        return self.get("resumed", {}).get("times", 0)

    @property
    def options(self) -> dict[str, Any]:
        """Every option of :func:`vcuda.fit` with the value that repeats this fit, or its default."""
        found = {name: one.stored_in(self) for name, one in OPTIONS.items()}
        return {name: OPTIONS[name].default if value is None else value for name, value in found.items()}

    def summary(
        self, status: Status, *, expected_edges: float, edges_in_doubt: Sequence[Edge], diagnostics: dict[str, Any]
    ) -> dict[str, Any]:
        """What summary.json holds: how the posterior was made, how far to trust it, and how many edges it expects."""
        return {
            "engine": self.engine_name,
            "model": self.model_name,
            "noise": self.noise,
            "logarithm": self.log,
            "choice": self.sentences,
            "status": status.code,
            "status_sentence": status.sentence,
            "status_parts": status.to_json(),
            "edges_in_doubt": [list(edge) for edge in edges_in_doubt],
            "seconds": self.seconds,
            **({"resumed": self.times_resumed} if "resumed" in self else {}),
            "rows": self.rows,
            "columns": self.columns,
            "seed": self.seed,
            "expected_edges": expected_edges,
            "notes": self.notes,
            "versions": self.versions,
            "diagnostics": diagnostics,
        }


def _passed(name: str) -> Check:
    """Whether a stored value of an option may be one that was passed."""
    one = OPTIONS[name]

    def check(value: Any) -> bool:
        texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        return one.is_plain(value) and all(map(is_word, texts))

    return check


PASSED = {name: _passed(name) for name, one in OPTIONS.items() if not one.as_found and name not in IF_THERE}
CONFIG: dict[str, Check] = {
    "names": lambda value: each(is_text)(value) and bool(value) and len(set(value)) == len(value),
    "law": named(kind=is_word),
    # Of the arithmetic alone: how the model describes the rows follows from the checks.
    "status": named(code=lambda value: value in STATUS_CODES, sentence=is_text),
    "diagnostics": lambda value: isinstance(value, dict),
    "provenance": lambda value: isinstance(value, dict),
}

# Runs from before there were model checks lack them.
CHECKS = named(
    findings=each(
        named(
            check=is_text,
            severity=lambda value: value in SEVERITIES,
            columns=each(is_text),
            edges=each(lambda edge: each(is_text)(edge) and len(edge) == 2),
            sentence=is_text,
            changes=is_text,
            remedy=is_text,
            statistic=or_none(is_number),
            p_value=or_none(is_number),
        )
    ),
    made=each(named(check=is_text, p_value=or_none(is_number), seconds=is_number, rows=is_count)),
    not_made=is_text,
)


def checked_config(config: Any) -> dict[str, Any]:
    """What config.json holds, with its provenance; a ConfigError for what cannot be shown or used."""
    check_fields(config, CONFIG | ({"checks": CHECKS} if "checks" in config else {}), "config.json")
    provenance = Provenance.from_json(config["provenance"])
    check_graph_posterior(config["law"])
    return config | {"provenance": provenance}
