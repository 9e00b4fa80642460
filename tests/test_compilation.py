"""The cache of compiled programs: where it is, and that it can be moved and switched off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vcuda.infer.compilation import VARIABLE, cache_folder


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no"])
def test_it_can_be_switched_off(monkeypatch, word):
    monkeypatch.setenv(VARIABLE, word)
    assert cache_folder() is None


def test_it_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "elsewhere"))
    assert cache_folder() == tmp_path / "elsewhere"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other cache folders")
def test_it_is_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vcuda" / "compiled"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "vcuda" / "compiled"


def used_folder(**environment):
    """Which folder JAX is told, in a process of its own, because JAX remembers the first."""
    code = (
        "import jax; from vcuda.infer.compilation import use_compilation_cache; use_compilation_cache();"
        "print(jax.config.jax_compilation_cache_dir)"
    )
    # The tests have a cache of their own.
    bare = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    seen = subprocess.run(
        [sys.executable, "-c", code], env=bare | environment, capture_output=True, text=True, check=True
    )
    return seen.stdout.strip()


@pytest.mark.slow
def test_a_users_own_cache_is_left_alone_and_an_unwritable_one_is_done_without(tmp_path):
    own = str(tmp_path / "own")
    assert used_folder(JAX_COMPILATION_CACHE_DIR=own, **{VARIABLE: str(tmp_path / "ours")}) == own
    (tmp_path / "file").write_text("not a folder")
    assert used_folder(**{VARIABLE: str(tmp_path / "file" / "below")}) == "None"
