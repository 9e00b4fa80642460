"""The workers of a Dask client, as engines take them.

What is shared by many items, such as a table with its score, is the result of a small job of the scheduler's, named by
its content: it is sent once, and made again by the scheduler when the worker that held it dies. So are the items
themselves; only when one of them has taken several workers with it the fit ends, with a sentence.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from vcuda.cluster.on_workers import Answer, disagreement, run_item, unpacked, versions
from vcuda.errors import ClusterError, ConfigError, VcudaError
from vcuda.infer.workers import OnProgress, no_progress

Item = TypeVar("Item")
Result = TypeVar("Result")
# So many shared things are kept on the workers, those used last; a fit uses two or three at a time.
KEPT_SHARED = 8
# A part that fails by an error of the machine, such as a full disk, is tried again so many times.
RETRIES = 2
# The first look at what is done comes at once, later ones further apart.
SHORTEST_WAIT, LONGEST_WAIT = 0.001, 0.05
SECONDS_BETWEEN_TELLING = 0.2
# How long a cluster may be without any worker, or without its scheduler: a dead worker takes seconds to be replaced.
PATIENCE_SECONDS = 60.0


class _Shared(NamedTuple):
    """Something that workers hold: the object itself, a name made from its content, and its future on the cluster."""

    object: Any
    name: str
    future: Any


class DaskWorkers:
    """The workers of a Dask client, as engines take them.

    Parameters
    ----------
    client
        A connected ``distributed.Client``. It is neither changed nor closed.

    Raises
    ------
    ClusterError
        When there are no workers, or when they have other versions of what makes numbers.
    """

    def __init__(self, client: Any) -> None:
        if not hasattr(client, "submit") or not hasattr(client, "scheduler_info"):
            raise ConfigError(f"client must be a dask.distributed Client, not a {type(client).__name__}")
        if getattr(client, "asynchronous", False):
            raise ConfigError("client must be a blocking one: make it without asynchronous=True")
        self.client = client
        self._versions = versions()
        self._kept: list[_Shared] = []
        threads = _threads(client)
        _check_versions(client, self._versions)
        self._count = sum(threads.values())

    @property
    def count(self) -> int:
        """How many items are worked on at once, as it was when the fit began."""
        return self._count

    def map(
        self,
        function: Callable[[Any, Item], Result],
        items: Sequence[Item],
        *,
        shared: Any = None,
        on_progress: OnProgress = no_progress,
        kept: dict[int, Result] | None = None,
    ) -> list[Result]:
        """See :class:`vcuda.infer.workers.Workers`. Items may hold Dask collections, which become what they compute."""
        results: dict[int, Any] = {} if kept is None else kept
        if not items:
            return []
        refused: dict[int, VcudaError] = {}
        futures: dict[Any, int] = {}
        try:
            held = self._held(shared)
            for place, item in enumerate(items):
                arguments = (self._versions, function, held, self._computed(item))
                futures[self.client.submit(run_item, *arguments, pure=False, retries=RETRIES)] = place
            waiting = _Waiting(self.client, on_progress, len(futures))
            for future, answer in waiting.answers(list(futures)):
                if answer.refusal is None:
                    results[futures[future]] = answer.result
                else:
                    refused[futures[future]] = answer.refusal
        except BaseException:
            self.release()  # what could not be shared must not be taken for shared the next time
            with suppress(Exception):  # of a connection that is lost already
                self.client.cancel(list(futures), force=True)
            raise
        if refused:
            raise refused[min(refused)]
        return [results[place] for place in range(len(items))]

    def release(self) -> None:
        """Let the workers forget what they share."""
        self._kept.clear()

    def _held(self, shared: Any) -> Any:
        """The future of a shared thing: one that is there already, known as the same object or by its content."""
        if shared is None:
            return None
        import cloudpickle
        import dask

        for place, entry in enumerate(self._kept):
            if entry.object is shared:
                self._kept.append(self._kept.pop(place))
                return entry.future
        payload = cloudpickle.dumps(shared)
        name = f"vcuda-shared-{hashlib.sha256(payload).hexdigest()}"
        future = next((entry.future for entry in self._kept if entry.name == name), None)
        if future is None:
            # Dask warns of large arguments, which it would rather have scattered: but that dies with its worker.
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                future = self.client.submit(unpacked, payload, key=name)
        self._kept = [*self._kept, _Shared(shared, name, future)][-KEPT_SHARED:]
        return future

    def _computed(self, item: Any) -> Any:
        """The item with futures for the Dask collections in it."""
        from dask.base import is_dask_collection

        if isinstance(item, tuple) and any(is_dask_collection(part) for part in item):
            return tuple(self.client.compute(part) if is_dask_collection(part) else part for part in item)
        return item


class _Waiting:
    """Waits for answers, reports progress, can be interrupted, and does not wait for the dead."""

    def __init__(self, client: Any, on_progress: OnProgress, total: int) -> None:
        self.client, self.on_progress, self.total = client, on_progress, total
        self._last_sign = self._last_told = time.monotonic()

    def answers(self, pending: list[Any]) -> Iterator[tuple[Any, Answer]]:
        """Yield futures with their answers as they come."""
        pause = SHORTEST_WAIT
        while pending:
            done = [future for future in pending if future.done()]
            for future in done:
                _check_status(future)
            if done:
                yield from zip(done, self._gathered(done), strict=True)
                finished = set(done)
                pending = [future for future in pending if future not in finished]
                self._last_sign, pause = time.monotonic(), SHORTEST_WAIT
            now = time.monotonic()
            if done or now - self._last_told > SECONDS_BETWEEN_TELLING:
                self._last_told = now
                self.on_progress(1 - len(pending) / self.total)
            if pending and not done:
                self._check_alive(now)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_WAIT)

    def _gathered(self, done: list[Any]) -> list[Answer]:
        try:
            answers: list[Answer] = self.client.gather(done)
        except Exception as error:
            raise _failure(error) from error
        return answers

    def _check_alive(self, now: float) -> None:
        """Refuse to wait any longer where nobody is left to wait for."""
        if now - self._last_sign < PATIENCE_SECONDS:
            return
        if self.client.status != "running":
            raise ClusterError(
                f"the Dask scheduler has not answered for {PATIENCE_SECONDS:.0f} seconds: see whether it still runs, "
                "and fit again"
            )
        if not self.client.nthreads():
            raise ClusterError(
                f"the cluster has had no workers for {PATIENCE_SECONDS:.0f} seconds: start some, and fit again"
            )
        self._last_sign = now


def _check_status(future: Any) -> None:
    if future.status == "error":
        error = future.exception()
        raise _failure(error) from error
    if future.status != "finished":
        raise ClusterError(
            f"the Dask scheduler gave up a part of the fit ({future.status}): was it restarted? Fit again"
        )


def _failure(error: BaseException) -> ClusterError:
    """What stopped a part of the fit for good, in a sentence."""
    if type(error).__name__ == "KilledWorker":
        return ClusterError(
            "several workers died on the same part of the fit, most often for lack of memory: give them more, or run "
            "fewer of them on a machine"
        )
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return ClusterError(f"a part of the fit failed on a worker, {1 + RETRIES} times ({what})")


def _threads(client: Any) -> dict[str, int]:
    """The threads of each worker, which may be a moment in coming."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            threads: dict[str, int] = dict(client.nthreads())
        except Exception as error:
            raise ClusterError(f"the Dask client is not connected ({error}): make another one") from error
        if threads:
            return threads
        if time.monotonic() > deadline:
            raise ClusterError(f"the cluster has no workers, after {PATIENCE_SECONDS:.0f} seconds: start some")
        time.sleep(0.1)


def _check_versions(client: Any, expected: dict[str, str]) -> None:
    """Refuse workers on which the same program may give other numbers."""
    found = _asked_of_all(client, versions)
    broken = {worker: error for worker, error in found.items() if isinstance(error, BaseException)}
    if broken:
        worker, error = next(iter(broken.items()))
        raise ClusterError(
            f"the worker {worker} cannot use vcuda ({type(error).__name__}: {error}): install version "
            f"{expected['vcuda']} of it there"
        )
    differing = {worker: info for worker, info in found.items() if info != expected}
    if differing:
        raise disagreement(differing, expected)


def _asked_of_all(client: Any, question: Callable[[], Any]) -> dict[str, Any]:
    """What each worker answers, or the error that it answers with; one that dies meanwhile is not waited for."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answers: dict[str, Any] = client.run(question, on_error="return")
        except OSError as error:
            if time.monotonic() > deadline:
                raise ClusterError(f"the workers do not answer ({error}): see whether they still run") from error
            time.sleep(1.0)
            continue
        # An answer that got lost on the way is no answer.
        if time.monotonic() > deadline or not any(isinstance(answer, OSError) for answer in answers.values()):
            return answers
        time.sleep(1.0)
