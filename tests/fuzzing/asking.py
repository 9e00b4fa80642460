"""The process that asks: it sends cases to another one, ends it when a case takes too long, and begins it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

from benchmarks.processes import ROOT, SINGLE_THREADED


class _Patience(Thread):
    """Ends a process that has computed for so many seconds, or waited for thirty times as many.

    Not by the clock alone: on a machine that is busy with something else, a case waits longer than it computes.
    """

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        super().__init__(daemon=True)
        self.process, self.seconds = process, seconds
        self.over, self.late = Event(), False

    def run(self) -> None:
        began, used = time.monotonic(), self._computed()
        while not self.over.wait(0.5):
            if self._computed() - used > self.seconds or time.monotonic() - began > 30 * self.seconds:
                self.late = True
                self.process.kill()
                return

    def _computed(self) -> float:
        try:
            seen = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(seen[11]) + int(seen[12])) / os.sysconf("SC_CLK_TCK")


class Child:
    """The process that opens cases, begun when it is needed."""

    def __init__(self, folder: Path, *, patience: float, memory: float, runs: bool) -> None:
        self.folder, self.patience = folder, patience
        self._sent = {"memory": memory, "runs": runs}
        self._process: subprocess.Popen[str] | None = None
        self.begun = 0

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        fresh = self._process is None
        process = self._process or self._begin()
        assert process.stdin is not None
        assert process.stdout is not None
        # A process that has just begun imports and compiles before its first case.
        watch = _Patience(process, self.patience + (300 if fresh else 0))
        watch.start()
        try:
            process.stdin.write(json.dumps(what | self._sent) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.over.set()
        if line.endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer if "end" in answer else {"end": "broken", "told": answer["error"]}
        code = process.wait()
        self.end()
        seen = f"no answer in {self.patience:.0f} seconds" if watch.late else f"the process died with code {code}"
        return {"end": "broken", "told": seen}

    def _begin(self) -> subprocess.Popen[str]:
        self.begun += 1
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", "fuzzing.opening", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=os.environ
            | SINGLE_THREADED
            | {"VCUDA_CACHE": "off", "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("src", "tests", ""))},
        )
        return self._process

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
