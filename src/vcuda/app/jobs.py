"""Fits that the app runs: ``vcuda fit`` in a process of its own, a few at once, the others in a queue.

They write ordinary run folders with checkpoints, so that stopping keeps what is done, and going on is ``--resume``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vcuda.errors import ConfigError, RunError

State = Literal["waiting", "running", "stopping", "finished", "stopped", "failed"]
PROGRESS = {"VCUDA_PROGRESS": "json"}
# Exit codes of ``vcuda fit`` that leave a result: done, done with edges in doubt.
WITH_RESULT = (0, 3)
INTERRUPTED = 130
KEPT_LINES, LONGEST_LINE = 30, 2_000
MOST_ENDED = 200
SECONDS_TO_SAVE = 20.0


@dataclass
class Job:
    """A fit of this app: where it is, and what it said."""

    run: str
    arguments: list[str]
    state: State = "waiting"
    progress: dict[str, Any] | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    begun: float | None = None
    ended: float | None = None
    process: asyncio.subprocess.Process | None = None

    @property
    def is_alive(self) -> bool:
        return self.state in ("waiting", "running", "stopping")

    def to_json(self) -> dict[str, Any]:
        now = time.time() if self.ended is None else self.ended
        return {
            "run": self.run,
            "state": self.state,
            "progress": self.progress,
            "lines": list(self.lines),
            "seconds": 0.0 if self.begun is None else now - self.begun,
        }


class Jobs:
    """All fits of this app; ``most`` run at once, and a bounded number waits.

    They run in ``folder``, so that no vcuda.toml of another folder speaks into them.
    """

    def __init__(self, folder: Path, *, most: int, most_waiting: int = 20) -> None:
        self.folder, self.most, self.most_waiting = folder, most, most_waiting
        self._jobs: dict[str, Job] = {}
        self._turns = asyncio.Semaphore(most)
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, run: str) -> Job | None:
        return self._jobs.get(run)

    def every(self) -> dict[str, dict[str, Any]]:
        return {run: job.to_json() for run, job in self._jobs.items()}

    def check_room(self) -> None:
        """Refuse one more fit where many wait already."""
        if sum(job.state == "waiting" for job in self._jobs.values()) >= self.most_waiting:
            raise ConfigError(f"{self.most_waiting} fits are waiting already; stop one, or wait until one has ended")

    def start(self, run: str, arguments: list[str]) -> Job:
        """Run ``vcuda`` with these arguments as soon as there is a turn."""
        if (before := self._jobs.get(run)) is not None and before.is_alive:
            raise RunError(f"the fit {run} is under way; stop it first")
        self.check_room()
        ended = [name for name, job in self._jobs.items() if not job.is_alive]
        for name in ended[: max(len(self._jobs) - MOST_ENDED, 0)]:
            del self._jobs[name]
        job = self._jobs[run] = Job(run, arguments)
        task = asyncio.get_running_loop().create_task(self._run(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def _run(self, job: Job) -> None:
        async with self._turns:
            if job.state != "waiting":  # it was stopped before its turn
                return
            job.state, job.begun = "running", time.time()
            try:
                job.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "vcuda", *job.arguments,
                    stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
                    env=os.environ | PROGRESS, cwd=self.folder, limit=1 << 20, start_new_session=True,
                )  # fmt: skip
                await self._listen(job, job.process)
                code = await job.process.wait()
            except (OSError, ValueError) as error:
                job.lines.append(f"the fit could not be started: {error}")
                code = 1
            job.ended = time.time()
            if code in WITH_RESULT:
                job.state = "finished"
            else:
                job.state = "stopped" if code == INTERRUPTED else "failed"

    async def _listen(self, job: Job, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # longer than anybody reads
                continue
            if not line:
                return
            text = line.decode(errors="replace").strip()
            if text.startswith('{"progress"'):
                with suppress(ValueError):
                    job.progress = json.loads(text)["progress"]
            elif text:
                # People know a table that they uploaded by its name.
                said = text.removeprefix("vcuda: ").replace(f"{self.folder.parent / 'tables'}{os.sep}", "")
                job.lines.append(said[:LONGEST_LINE])

    def stop(self, run: str) -> Job:
        """Stop a fit and keep what it has; one that waits is taken out of the queue."""
        job = self._jobs.get(run)
        if job is None or not job.is_alive:
            raise RunError(f"no fit {run} is under way")
        if job.state == "waiting":
            job.state, job.ended = "stopped", time.time()
            job.lines.append("It was stopped before it began.")
        elif job.process is not None:
            job.state = "stopping"
            _interrupt(job.process)
        return job

    async def close(self) -> None:
        """Stop all fits, and give them some seconds to keep what they have."""
        for job in self._jobs.values():
            if job.is_alive:
                self.stop(job.run)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=SECONDS_TO_SAVE)
            for job in self._jobs.values():
                if late and job.process is not None and job.process.returncode is None:
                    with suppress(ProcessLookupError):
                        job.process.kill()


def _interrupt(process: asyncio.subprocess.Process) -> None:
    """What Ctrl-C does; on Windows a process without a window gets none, and only its checkpoint is kept."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.terminate()
        else:
            process.send_signal(signal.SIGINT)


def resume_arguments(run: Path) -> list[str]:
    return ["fit", "--resume", str(run)]
