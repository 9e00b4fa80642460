"""What several test files share.

Compiled programs are kept between tests, workers and runs: compiling is most of what the suite would wait for. No test
opens a connection over a network, nor does a process that it starts, unless it is marked ``network``.
"""

import os
import runpy
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from browser import Browser, installed

NO_NETWORK = Path(__file__).parent / "no_network"
ALLOWED = runpy.run_path(str(NO_NETWORK / "sitecustomize.py"))["ALLOWED"]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(NO_NETWORK), os.environ.get("PYTHONPATH"))))
COMPILED = Path(__file__).parent.parent / ".pytest_cache" / "compiled"
# Every program, also of tests that call JAX without a fit, and however quickly it compiles: the suite has thousands of
# them, and reading one takes a tenth of compiling it. Workers and processes that tests start have the same folder.
os.environ.setdefault("VCUDA_CACHE", str(COMPILED))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.environ["VCUDA_CACHE"])
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
MOST_COMPILED = 1 << 29


def pytest_configure(config):
    # Programs of code that was changed since are never read again.
    if COMPILED.exists() and sum(file.stat().st_size for file in COMPILED.iterdir()) > MOST_COMPILED:
        shutil.rmtree(COMPILED, ignore_errors=True)
    config.addinivalue_line("markers", "network: opens connections, to this machine only; all other tests must not")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    # Around fixtures of every scope as well: a module may share a cluster of processes.
    if item.get_closest_marker("network"):
        os.environ[ALLOWED] = "yes"
    yield
    os.environ.pop(ALLOWED, None)


def processor_seconds() -> float:
    """What this process and its children have computed so far; the clock also counts what others compute."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    began = processor_seconds()
    yield
    item.user_properties.append(("processor_seconds", processor_seconds() - began))


def pytest_terminal_summary(terminalreporter, config):
    """Name the tests that make a quick run slow."""
    if config.option.markexpr != "not slow":
        return
    seen = {report.nodeid: dict(report.user_properties) for report in terminalreporter.stats.get("passed", [])}
    # Twice what the mark says: the first to compile a program pays for all that use it.
    long = {test: each["processor_seconds"] for test, each in seen.items() if each.get("processor_seconds", 0.0) > 1.0}
    if long:
        terminalreporter.section("computed for more than a second; mark them slow, or make them shorter")
        for test, seconds in sorted(long.items(), key=lambda each: -each[1]):
            terminalreporter.write_line(f"{seconds:5.1f} s  {test}")


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


@pytest.fixture
def curved():
    """Tables of a -> b -> c by curves that cannot be turned round, and d apart."""
    from vcuda.data.reading import as_dataset

    def curved(rows=600, seed=0):
        rng = np.random.default_rng(seed)
        a = rng.normal(size=rows)
        b = 2 * np.tanh(2 * a) + 0.5 * rng.normal(size=rows)
        c = 1.5 * np.sin(1.5 * b) + 0.5 * rng.normal(size=rows)
        return as_dataset(np.column_stack([a, b, c, rng.normal(size=rows)]), names=["a", "b", "c", "d"])

    return curved


@pytest.fixture(scope="module")
def browser():
    """Chromium, for reports as people see them."""
    program = installed()
    if program is None:
        pytest.skip("there is no Chromium here: the report was not tried in a browser (apt-get install chromium)")
    opened = Browser(program)
    yield opened
    opened.close()
