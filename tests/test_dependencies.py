"""Which versions of dependencies are asked for, and which were tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ASKED = [
    *PROJECT["dependencies"],
    *(
        each
        for extra in ("plots", "notebook", "cluster", "excel", "stats", "sql", "docs", "dev")
        for each in PROJECT["optional-dependencies"][extra]
    ),
]


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_versions() -> dict[str, str]:
    lines = (ROOT / "requirements-lock.txt").read_text(encoding="utf-8").splitlines()
    return {normalised(name): version for name, _, version in (line.partition("==") for line in lines[1:])}


@pytest.mark.parametrize("asked", [each for each in ASKED if not each.startswith("vcuda")])
def test_the_locked_versions_are_among_those_that_are_asked_for(asked):
    requirement = Requirement(asked)
    assert requirement.specifier.contains(locked_versions()[normalised(requirement.name)])
    assert any(each.operator == ">=" for each in requirement.specifier), "a lower bound is what make test-oldest tests"


def test_the_lock_names_versions_and_no_places():
    lines = (ROOT / "requirements-lock.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", line) for line in lines)
