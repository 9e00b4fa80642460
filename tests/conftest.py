"""What several test files share.

Compiled programs are kept between tests, workers and runs: compiling is most of what the suite would wait for.
"""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

os.environ.setdefault("VCUDA_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "compiled"))


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys):
    """One command, as the shell would run it."""
    from vcuda.cli import main

    def run(*arguments: object) -> Answer:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Answer(left.value.code, captured.out, captured.err)

    return run
