"""Processes that answer questions about tables and runs, so that the server itself stays light and quick.

Each is ``python -m vcuda.app.answering``: a question is a line of JSON on its standard input, the answer one on its
standard output. It ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from vcuda.errors import ConfigError, VcudaError

# Bytes of one answer; reports of hundreds of columns have a few million.
LONGEST_ANSWER = 256_000_000
SECONDS = 900.0
MOST_WAITING = 60


class RefusedError(VcudaError):
    """An answer that is a sentence about what is wrong, with what else is known."""

    def __init__(self, sentence: str, details: dict[str, Any]) -> None:
        super().__init__(sentence)
        self.details = details


class Workers:
    """A few such processes, started when they are first needed and again when one has died."""

    def __init__(self, number: int = 2) -> None:
        self._idle: asyncio.Queue[asyncio.subprocess.Process | None] = asyncio.Queue()
        for _ in range(number):
            self._idle.put_nowait(None)
        self._started: set[asyncio.subprocess.Process] = set()
        self._waiting = 0

    async def ask(self, question: str, **arguments: Any) -> Any:
        """The answer to a question of `vcuda.app.answers`; what it refuses is raised."""
        if self._waiting >= MOST_WAITING:
            raise ConfigError("too many questions are waiting for an answer; ask again when some have it")
        self._waiting += 1
        try:
            process = await self._idle.get()
            try:
                if process is None or process.returncode is not None:
                    process = await self._start()
                line = await asyncio.wait_for(_exchange(process, question, arguments), SECONDS)
            except BaseException as error:
                # Of a question that nobody waits for any more, or that took its process along, nothing is kept.
                await self._end(process)
                process = None
                if isinstance(error, TimeoutError):
                    raise ConfigError(f"no answer in {SECONDS / 60:.0f} minutes: ask on the command line") from None
                raise
            finally:
                self._idle.put_nowait(process)
        finally:
            self._waiting -= 1
        if not line:
            raise ConfigError(
                "the process that answers ended before it did, perhaps for lack of memory: close other programs, or "
                "ask about a smaller table"
            )
        answer = json.loads(line)
        if "refused" in answer:
            raise RefusedError(answer["refused"], answer.get("details", {}))
        return answer["answer"]

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "vcuda.app.answering",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_ANSWER,
        )
        self._started.add(process)
        return process

    async def _end(self, process: asyncio.subprocess.Process | None) -> None:
        if process is None:
            return
        self._started.discard(process)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def close(self) -> None:
        """End all of them."""
        for process in list(self._started):
            await self._end(process)


async def _exchange(process: asyncio.subprocess.Process, question: str, arguments: dict[str, Any]) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"question": question, "arguments": arguments}).encode() + b"\n")
    with suppress(ConnectionError):
        await process.stdin.drain()
    line = await process.stdout.readline()
    if not line:
        await process.wait()
    return line
