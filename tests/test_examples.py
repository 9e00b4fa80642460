"""The worked examples run as they stand, block after block, in an empty folder."""

import re
import shlex
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
# Python with what it printed, if anything, and lines for the shell.
BLOCKS = re.compile(r"```(python|sh)\n(.*?)```(?:\n\n```text\n(.*?)```)?", flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["example-sachs", "example-clinic"])
def test_every_block_prints_what_the_page_shows(page, tmp_path, monkeypatch, capsys, run):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for kind, content, shown in BLOCKS.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
        if kind == "sh":
            scope["clinic"].to_csv("clinic.csv", index=False)
            for line in content.splitlines():
                assert run(*shlex.split(line)[1:]).code == 0
            continue
        exec(compile(content, page, "exec"), scope)
        printed = capsys.readouterr().out
        assert len(printed.splitlines()) == len(shown.splitlines())
        # Words stay what they are; numbers may differ in their last digits on other machines.
        assert set(re.findall(r"[A-Za-z]{4,}", printed)) == set(re.findall(r"[A-Za-z]{4,}", shown))
    assert list(tmp_path.glob("*.html"))
