"""The page of questions is run as it stands, block after block in one session."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "questions.md"
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.slow
def test_every_block_runs_and_prints_as_much_as_the_page_shows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == PAGE.read_text(encoding="utf-8").count("```python")
    scope: dict = {}
    for code, shown in BLOCKS:
        exec(compile(code, str(PAGE), "exec"), scope)
        printed = capsys.readouterr().out
        assert len(printed.splitlines()) == len(shown.splitlines())
        # Words stay what they are; numbers may differ in their last digits on other machines.
        assert re.findall(r"[a-z]{4,}", printed.splitlines()[0]) == re.findall(r"[a-z]{4,}", shown.splitlines()[0])
