"""Tables that come through a pipe: the same as from a file, named and bounded."""

from __future__ import annotations

import contextlib
import os
import threading

import numpy as np
import pandas as pd
import pytest

from vcuda.data.reading import as_dataset
from vcuda.data.streaming import open_table
from vcuda.errors import DataError


def piped(content: bytes) -> str:
    """A path at which the content comes through a pipe once, as a shell has it for <(...)."""
    reading, writing = os.pipe()

    def write():
        with os.fdopen(writing, "wb") as pipe, contextlib.suppress(BrokenPipeError):
            pipe.write(content)

    threading.Thread(target=write, daemon=True).start()
    return f"/dev/fd/{reading}"


needs_dev_fd = pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="there is no /dev/fd")
PIPED = pd.DataFrame(np.random.default_rng(0).normal(size=(3000, 3)), columns=["a", "b", "c"])


@needs_dev_fd
@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet", "feather"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_table_may_come_through_a_pipe(ending, streamed, tmp_path):
    file = tmp_path / f"table.{ending}"
    if ending in ("parquet", "feather"):
        getattr(PIPED, f"to_{ending}")(file)
    else:
        PIPED.to_csv(file, index=False, sep="\t" if ending == "tsv" else ",")
    known = open_table(file, streamed=streamed)
    path = piped(file.read_bytes())
    found = open_table(path, streamed=streamed)
    assert found.source == path
    assert (found.names, found.fingerprint) == (known.names, known.fingerprint)
    if not streamed:
        assert as_dataset(piped(file.read_bytes())).fingerprint == known.fingerprint
        # What is asked for holds for a pipe, too.
        assert as_dataset(piped(file.read_bytes()), exclude=["b"]).names == ("a", "c")
        if "csv" in ending:
            assert as_dataset(piped(b"1,2\n2,1\n3,5\n4,4\n5,9\n"), header=False).names == ("X1", "X2")


@needs_dev_fd
def test_what_is_wrong_with_a_table_in_a_pipe_is_told_by_the_name_of_the_pipe(monkeypatch):
    path = piped(b"a,b\n" + b"1,2\n2,1\n" * 4 + b"3,x\n")
    with pytest.raises(DataError, match=f"^{path}: .*column 'b'"):
        as_dataset(path)
    monkeypatch.setattr("vcuda.data.copies.memory_available", lambda: 1_000)
    path = piped(b"a,b\n" + b"1,2\n2,1\n3,4\n" * 100_000)
    with pytest.raises(DataError, match=f"^{path}: more than 1e-06 GB come out of it"):
        as_dataset(path)


def test_a_device_is_no_file():
    with pytest.raises(DataError, match="/dev/null: this is a device"):
        as_dataset("/dev/null")
