"""The worked examples run as they stand, block after block, in an empty folder.

``python tests/test_examples.py PAGE`` runs a page and writes below each block what it prints now.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
# Python with what it printed, if anything, and lines for the shell.
BLOCKS = re.compile(r"```(python|sh)\n(.*?)```(?:\n\n```text\n(.*?)```)?", flags=re.DOTALL)
# The second where model checks put sure edges in doubt.
DONE = (0, 3)
PAGES = [
    "tutorial",
    "faq",
    "notebook",
    "report",
    "command-line",
    "example-sachs",
    "example-clinic",
    "example-outcomes",
    "example-hospitals",
    "single-rows",
    "example-shop",
    "why",
    "hidden-causes",
]


def shapes(text: str) -> list[str]:
    """The lines of what was printed, without what may differ between machines: numbers, rules and spaces."""
    return [" ".join(re.sub(r"[-+]?[\d.,]*\d%?|over \d+|[─ ]+", " ", line).split()) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_block_prints_what_the_page_shows(page, tmp_path, monkeypatch, capsys, run):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for kind, content, shown in BLOCKS.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
        if kind == "sh":
            for name in {"clinic", "table"} & scope.keys():
                scope[name].to_csv(f"{name}.csv", index=False)
            for line in content.splitlines():
                answer = run(*shlex.split(line)[1:])
                assert answer.code in DONE
            printed_lines = shapes(answer.out)
            assert [line for line in shapes(shown) if line != "..." and line not in printed_lines] == []
            continue
        exec(compile(content, page, "exec"), scope)
        printed = capsys.readouterr().out
        assert len(printed.splitlines()) == len(shown.splitlines())
        # Words stay what they are; numbers may differ in their last digits on other machines.
        assert set(re.findall(r"[A-Za-z]{4,}", printed)) == set(re.findall(r"[A-Za-z]{4,}", shown))
    assert list(tmp_path.glob("*.html")) or not page.startswith("example")


def test_the_patients_of_the_example_are_what_the_page_says(tmp_path, monkeypatch, capsys):
    # The blocks up to the first for the shell make the table and the truth, without a fit.
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    text = (DOCS / "example-outcomes.md").read_text(encoding="utf-8")
    for _, content, shown in BLOCKS.findall(text[: text.index("```sh")]):
        exec(compile(content, "example-outcomes", "exec"), scope)
        assert capsys.readouterr().out == shown
    table, trial = scope["table"], scope["trial"]
    assert len(table) == 2000
    assert trial["untreated"] > trial["one drug"] > trial["two drugs"], "the treatment saves lives"
    rates = table.groupby("treatment")["death"].apply(lambda own: (own == "yes").mean())
    assert rates["two drugs"] > rates["untreated"], "and yet the treated die more often"


def rewritten(page: str) -> str:
    """The page with what its blocks print now; run in an empty folder."""
    scope: dict = {}

    def block(match: re.Match) -> str:
        kind, content, _ = match.groups()
        code = f"```{kind}\n{content}```"
        if kind == "sh":
            for name in {"clinic", "table"} & scope.keys():
                scope[name].to_csv(f"{name}.csv", index=False)
            for line in content.splitlines():
                command = [sys.executable, "-m", "vcuda", *shlex.split(line)[1:]]
                assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode in DONE
            return match[0]  # what it printed is shown in part, chosen by hand
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(content, page, "exec"), scope)
        return f"{code}\n\n```text\n{printed.getvalue()}```" if printed.getvalue() else code

    return BLOCKS.sub(block, (DOCS / f"{page}.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in sys.argv[1:]:
            (DOCS / f"{name}.md").write_text(rewritten(name), encoding="utf-8")
