"""The README's Python is run as it stands."""

import re
import warnings
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_there_is_a_quick_start():
    assert BLOCKS


@pytest.mark.parametrize("code", BLOCKS)
def test_the_quick_start_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a convergence warning is part of the answer, not a failure
        exec(compile(code, str(README), "exec"), scope)
    printed = capsys.readouterr().out
    assert "source" in printed
    assert scope["again"].edges().equals(scope["posterior"].edges())
