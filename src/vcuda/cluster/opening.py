"""Opens clusters and closes them again: local processes, or a scheduler that runs already."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vcuda.cluster.dask_workers import DaskWorkers
from vcuda.errors import ClusterError, ConfigError, MissingExtraError
from vcuda.infer.workers import SERIAL, Workers

# Ctrl-C in a terminal reaches all processes started there; the fit's own process decides what it means.
IGNORE_INTERRUPTS = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"


def as_workers(client: Any) -> Workers:
    """What engines hand work to: the workers of a Dask client, or this process where there is none."""
    if client is None:
        return SERIAL
    return client if isinstance(client, DaskWorkers) else DaskWorkers(client)


@contextmanager
def local_cluster(workers: int | None = None) -> Iterator[Any]:
    """Start worker processes on this machine, as many as it has cores unless said, and stop them at the end.

    Yields a ``distributed.Client``. All of them listen on 127.0.0.1 only, and there is no dashboard. In a script this
    belongs under ``if __name__ == "__main__":``, since new processes import the script.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"a local cluster needs at least one worker, not {workers}")
    distributed = _distributed()
    with (
        distributed.LocalCluster(
            n_workers=workers or os.cpu_count() or 1,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            # Whether there is a dashboard or not, the scheduler answers HTTP; any free port will do.
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            preload=[IGNORE_INTERRUPTS],
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def connected(where: str) -> Iterator[Any]:
    """A Dask client for what people type: the address of a scheduler, ``local``, or a number of local workers."""
    if where == "local" or where.isdigit():
        with local_cluster(None if where == "local" else int(where)) as client:
            yield client
        return
    distributed = _distributed()
    if "://" not in where:
        raise ConfigError(
            f"{where!r} is no Dask cluster: give the address of its scheduler, such as tcp://host:8786, or local, or a "
            "number of local workers"
        )
    try:
        client = distributed.Client(where, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(f"no Dask scheduler answers at {where}: start it, or correct the address") from error
    with client:
        yield client


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("dask", "cluster", "fitting on a cluster") from error
    return distributed
