"""Fits that were killed go on where they were, and end in the posterior of a fit that was left alone, bit for bit."""

import errno
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda import baselines
from vcuda.cli.resuming import place_of
from vcuda.errors import ConfigError, ConvergenceWarning, RunError
from vcuda.fitting.outcomes import described, restored
from vcuda.fitting.resuming import keeping
from vcuda.infer import checkpoint_files
from vcuda.infer.checkpoint import (
    NO_CHECKPOINT,
    cached,
    fingerprint,
    generator_state,
    ragged,
    remembering,
    set_generator,
    split,
    tree_arrays,
    tree_like,
)
from vcuda.infer.checkpoint_files import Checkpoint, CheckpointFiles
from vcuda.infer.progress import Pace
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.posterior.locks import LOCK, FolderLock
from vcuda.posterior.storage import check_folder

REQUEST = {"arguments": {"seed": 1}, "versions": {"numpy": "2"}}


@pytest.fixture
def at_once(monkeypatch):
    """Every step is written as soon as it is known."""
    monkeypatch.setattr(checkpoint_files, "PATIENCE", 0.0)
    monkeypatch.setattr(checkpoint_files, "APART", 0.0)
    monkeypatch.setattr(checkpoint_files, "WRITING", 1e9)


def opened(folder: Path, **changes) -> CheckpointFiles:
    return CheckpointFiles(Checkpoint(folder, **changes), REQUEST)


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.npz"))


def numbers(*values: float) -> dict[str, np.ndarray]:
    return {"numbers": np.array(values, dtype=np.float64)}


# The journal --------------------------------------------------------------------------------------------------


def test_steps_come_back_if_they_were_given_the_same(tmp_path, at_once):
    checkpointer = opened(tmp_path)
    checkpointer.keep("a step", "one", lambda: numbers(1.5))
    checkpointer.scope("part").scope("of it").keep("a step", "two", lambda: {"words": np.array(["ä", "b"])})
    again = opened(tmp_path, resume=True)
    assert again.recall("part/a step", "one") is None
    np.testing.assert_array_equal(again.recall("a step", "one")["numbers"], [1.5])
    assert again.scope("part").scope("of it").recall("a step", "other") is None
    third = opened(tmp_path, resume=True).scope("part").scope("of it")
    assert third.recall("a step", "two")["words"].tolist() == ["ä", "b"]


def test_a_later_step_of_the_same_name_replaces_the_earlier_and_its_file(tmp_path, at_once):
    checkpointer = opened(tmp_path)
    checkpointer.keep("once", "", lambda: numbers(0))
    for step in range(5):
        checkpointer.keep("state", "", lambda step=step: numbers(step))
    assert parts(tmp_path) == ["000001.npz", "000006.npz"]
    assert opened(tmp_path, resume=True).recall("state", "")["numbers"] == [4]


def test_what_is_forgotten_loses_its_files(tmp_path, at_once):
    checkpointer = opened(tmp_path)
    for step in range(3):
        checkpointer.scope("inner").keep(f"block {step}", "", lambda: numbers(1))
    checkpointer.scope("inner").forget()
    checkpointer.keep("outer", "", lambda: numbers(2))
    assert parts(tmp_path) == ["000004.npz"]


def test_a_short_fit_writes_nothing(tmp_path):
    checkpointer = opened(tmp_path / "kept")
    for step in range(100):
        checkpointer.keep(f"block {step}", "", lambda: numbers(1))
    assert not (tmp_path / "kept").exists()
    checkpointer.close("by itself")
    assert not (tmp_path / "kept").exists()


def test_writing_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(checkpoint_files.time, "monotonic", lambda: now[0])
    checkpointer, writes = opened(tmp_path), []
    put = checkpointer._put

    def slow(name, write):
        put(name, write)
        now[0] += 0.5
        writes.append(now[0])

    monkeypatch.setattr(checkpointer, "_put", slow)
    while now[0] < 10_000:
        now[0] += 1.0
        checkpointer.keep("state", "", lambda: numbers(1))
    # Half a second for each file, of which the first time there are two.
    assert 0.5 * len(writes) < 0.021 * 10_000
    assert len(writes) > 100


def with_index(part: Path, **changes) -> None:
    """A part whose index says something else."""
    with np.load(part) as stored:
        arrays = dict(stored)
    heard = json.loads(arrays["index"].tobytes()) | changes
    arrays["index"] = np.frombuffer(json.dumps(heard).encode(), dtype=np.uint8)
    np.savez(part, **arrays)


class Payload:
    """What a pickle would do if anybody opened it: leave a folder behind."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


# What somebody might do to a part on purpose.
HARMS = {
    "a pickle": lambda part: np.savez(part, index=np.array([Payload()], dtype=object)),
    "a link": lambda part: os.symlink(part.rename(part.parent.parent / "elsewhere.npz"), part),
    "an endless axis": lambda part: np.savez(part, **dict(np.load(part)), more=np.zeros((1 << 40, 0))),
    "brackets in brackets": lambda part: with_index(part, entries=json.loads("[" * 60 + "]" * 60)),
    "infinite time": lambda part: with_index(part, seconds=float("inf")),
    "time below zero": lambda part: with_index(part, spent=-1e9),
    "a name that is a number": lambda part: with_index(part, entries=[{"name": 1, "given": "", "arrays": []}]),
    "arrays that are not there": lambda part: with_index(
        part, entries=[{"name": "", "given": "", "arrays": ["a"] * 9}]
    ),
    "no entries": lambda part: with_index(part, entries=5),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_part_that_somebody_changed_is_dropped_with_what_follows(tmp_path, at_once, harm, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "kept"
    checkpointer = opened(folder)
    for step in range(3):
        checkpointer.keep(f"block {step}", "", lambda step=step: numbers(step))
    HARMS[harm](folder / "000002.npz")
    elsewhere = tmp_path / "elsewhere.npz"
    before = elsewhere.read_bytes() if elsewhere.exists() else None
    again = opened(folder, resume=True)
    assert [again.recall(f"block {step}", "") is not None for step in range(3)] == [True, False, False]
    assert parts(folder) == ["000001.npz"]
    assert (elsewhere.read_bytes() if elsewhere.exists() else None) == before
    assert not (tmp_path / "executed").exists()


def test_only_names_that_are_written_are_parts(tmp_path, at_once):
    checkpointer = opened(tmp_path)
    checkpointer.keep("a step", "", lambda: numbers(1))
    others = ["1.npz", "9" * 200 + ".npz", "٠٠٠٠٠٢.npz", "-00002.npz"]
    for name in others:
        (tmp_path / name).write_bytes(b"somebody else's")
    os.mkfifo(tmp_path / "000003.npz")
    again = opened(tmp_path, resume=True)
    assert again.recall("a step", "") is not None
    again.keep("a step", "", lambda: numbers(2))
    again.checkpoint.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "000003.npz"])


def test_a_part_that_does_not_fit_is_refused_before_it_is_read_and_kept(tmp_path, at_once, monkeypatch):
    opened(tmp_path).keep("a step", "", lambda: numbers(*range(10_000)))
    with monkeypatch.context() as little:
        little.setattr("vcuda.posterior.archives.memory_available", lambda: 100_000)
        with pytest.raises(
            RunError, match=r"does not fit into the memory .*000001\.npz.*resume it where there is more"
        ):
            opened(tmp_path, resume=True)
    assert opened(tmp_path, resume=True).recall("a step", "") is not None


def test_scores_of_sets_that_cannot_be_are_not_used(tmp_path, at_once):
    checkpointer = opened(tmp_path)
    bad = {
        "lengths": {"sets": np.zeros((2, 1), dtype=np.int32), "scores": np.ones((3, 4))},
        "types": {"sets": np.zeros((2, 1)), "scores": np.ones((2, 4))},
        "shapes": {"sets": np.zeros(2, dtype=np.int32), "scores": np.ones((2, 4))},
        "names": {"other": np.zeros(2)},
    }
    for name, arrays in bad.items():
        checkpointer.keep(f"sets x/{name}", "", lambda arrays=arrays: arrays)
    assert opened(tmp_path, resume=True).sets("x").recall((0,)) is None


def test_a_request_that_is_a_link_or_a_pipe_is_not_followed(tmp_path, at_once):
    opened(tmp_path / "kept").keep("a step", "", lambda: numbers(1))
    request = tmp_path / "kept" / "request.json"
    os.symlink(request.rename(tmp_path / "elsewhere.json"), request)
    with pytest.raises(RunError, match=r"request.json is a link"):
        opened(tmp_path / "kept", resume=True)
    request.unlink()
    os.mkfifo(request)
    assert not Checkpoint(tmp_path / "kept").has_request
    assert Checkpoint(tmp_path / "kept").stored_request() is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")], ids=type)
def test_what_ends_the_writing_of_an_array_is_told_as_it_was(tmp_path, at_once, monkeypatch, error):
    """An archive cannot be closed in the middle of an array, and NumPy says that in place of it."""
    heard = []
    checkpointer = opened(tmp_path, on_warning=heard.append)
    checkpointer.keep("a step", "", lambda: numbers(1))

    def ended(*arguments, **options):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(zipfile, "_ZipWriteFile", ended)
        if isinstance(error, OSError):
            checkpointer.keep("another", "", lambda: numbers(2))
            assert "No space left on device" in heard[0]
        else:
            with pytest.raises(KeyboardInterrupt):
                checkpointer.keep("another", "", lambda: numbers(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001.npz", "request.json"]


@pytest.mark.parametrize("damage", ["cut", "changed", "compressed", "empty", "not an archive"])
def test_a_damaged_part_is_dropped_with_what_follows(tmp_path, at_once, damage):
    checkpointer = opened(tmp_path)
    for step in range(4):
        checkpointer.keep(f"block {step}", "", lambda step=step: numbers(*[step] * 50))
    part = tmp_path / "000003.npz"
    whole = part.read_bytes()
    if damage == "cut":
        part.write_bytes(whole[: len(whole) // 2])
    elif damage == "changed":
        middle = whole.index(np.full(50, 2.0).tobytes()) + 100
        part.write_bytes(whole[:middle] + b"\xff" + whole[middle + 1 :])
    elif damage == "compressed":
        with zipfile.ZipFile(part) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        part.write_bytes(b"" if damage == "empty" else b"PK but no archive")
    (tmp_path / ".writing-000005.npz").write_bytes(whole[:10])
    again = opened(tmp_path, resume=True)
    assert [again.recall(f"block {step}", "") is not None for step in range(4)] == [True, True, False, False]
    assert parts(tmp_path) == ["000001.npz", "000002.npz"]
    assert not list(tmp_path.glob(".writing*"))
    again.keep("block 2", "", lambda: numbers(2))
    assert opened(tmp_path, resume=True).recall("block 2", "") is not None


def test_another_fit_is_refused_and_told_how_it_differs(tmp_path, at_once):
    opened(tmp_path).keep("a step", "", lambda: numbers(1))
    other = {"arguments": {"seed": 2}, "versions": {"numpy": "2"}}
    with pytest.raises(RunError, match=r"belongs to another fit: seed was 1 and is 2; .*start anew"):
        CheckpointFiles(Checkpoint(tmp_path, resume=True), other)
    other = {"arguments": {"seed": 1}, "versions": {"numpy": "3"}}
    with pytest.raises(RunError, match='other versions, whose numbers may differ: numpy was "2" and is "3"'):
        CheckpointFiles(Checkpoint(tmp_path, resume=True), other)
    # Without resuming it begins anew, and the old parts go with the first new one.
    checkpointer = CheckpointFiles(Checkpoint(tmp_path), other)
    assert parts(tmp_path) == ["000001.npz"]
    assert checkpointer.recall("a step", "") is None
    checkpointer.keep("another step", "", lambda: numbers(2))
    assert CheckpointFiles(Checkpoint(tmp_path, resume=True), other).recall("a step", "") is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 200_000,
        '{"format": NaN}',
        "9" * 5000,
        '{"format": 9, "arguments": {}, "versions": {}, "notes": {}}',
    ],
)
def test_a_request_that_is_none_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "request.json").write_text(content)
    with pytest.raises(RunError, match="start the fit again"):
        opened(tmp_path, resume=True)


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_disk_stops_the_checkpoints_and_not_the_fit(tmp_path, at_once, monkeypatch, fault):
    heard = []
    checkpointer = opened(tmp_path, on_warning=heard.append, keep=True)
    checkpointer.keep("block 1", "", lambda: numbers(1))
    fsync = os.fsync

    def full(number):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "fsync", full)
    for step in range(2, 6):
        checkpointer.keep(f"block {step}", "", lambda: numbers(1))
    monkeypatch.setattr(os, "fsync", fsync)
    checkpointer.close("by itself")
    assert len(heard) == 1
    assert os.strerror(fault) in heard[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001.npz", "request.json"]
    assert opened(tmp_path, resume=True).recall("block 1", "") is not None


def test_scores_of_sets_are_read_and_not_scored_again(tmp_path, at_once, monkeypatch):
    table = np.random.default_rng(0).normal(size=(40, 4))
    score = remembering(GaussianProcess().prepare(table), opened(tmp_path))
    sets = [(), (2,), (0, 3), (0, 1)]
    for parents in sets:
        score.score(2 if 2 not in parents else 1, parents)
    expected = dict(score.cache.asked)
    assert list(expected) == sets
    resumed = opened(tmp_path, resume=True)
    again = remembering(GaussianProcess().prepare(table), resumed)
    other = remembering(GaussianProcess(length_scale=2.0).prepare(table), resumed)
    assert other.score(1, (2,)) != expected[(2,)][1]
    monkeypatch.setattr(type(again.inner), "evaluate", None)
    for parents, scores in expected.items():
        target = 2 if 2 not in parents else 1
        assert again.score(target, parents) == scores[target]
    assert list(again.cache.asked) == list(expected)
    copy = pickle.loads(pickle.dumps(again))
    assert copy.cache.memory is None


def test_a_copy_of_a_journal_is_forgetful(tmp_path):
    checkpointer = opened(tmp_path)
    for one in (checkpointer, checkpointer.scope("part"), NO_CHECKPOINT):
        copy = pickle.loads(pickle.dumps(one))
        assert copy.recall("anything", "") is None
        copy.keep("anything", "", lambda: pytest.fail("nothing is to be kept"))
        assert copy.sets("") is None


def test_generators_go_on_where_they_were():
    rng = np.random.default_rng(3)
    rng.integers(7, dtype=np.uint32)  # which leaves half of a word behind
    state = generator_state(rng)
    other = np.random.default_rng(4)
    set_generator(other, state)
    assert (
        other.integers(1 << 30, size=5, dtype=np.uint32).tolist()
        == rng.integers(1 << 30, size=5, dtype=np.uint32).tolist()
    )
    assert other.standard_normal() == rng.standard_normal()
    with pytest.raises(ValueError, match="PCG64"):
        generator_state(np.random.Generator(np.random.MT19937(0)))


def test_small_things_of_the_journal():
    lists = [np.array([3, 1]), np.array([], dtype=np.int64), np.array([7])]
    assert [part.tolist() for part in split("l", ragged("l", lists))] == [[3, 1], [], [7]]
    assert split("l", ragged("l", [])) == []
    tree = {"a": np.ones(2), "b": (np.zeros(3), None)}
    back = tree_like("t", tree, tree_arrays("t", tree))
    assert back["b"][1] is None
    np.testing.assert_array_equal(back["a"], tree["a"])
    assert fingerprint([1, 2], 3) != fingerprint([1], 2, 3)
    assert fingerprint(np.zeros(2)) != fingerprint(np.zeros((1, 2)))
    assert fingerprint(np.zeros(2)) != fingerprint(np.zeros(2, dtype=np.float32))
    calls = []
    cached(NO_CHECKPOINT, "a", "", lambda: calls.append(1) or {})
    assert calls == [1]


# Locks --------------------------------------------------------------------------------------------------------


def test_two_fits_into_one_folder_exclude_each_other(tmp_path):
    folder = tmp_path / "run"
    with FolderLock(folder):
        with pytest.raises(RunError, match="another fit is writing into"), FolderLock(folder):
            pass
        assert (folder / LOCK).exists()
    assert not folder.exists()
    with FolderLock(folder):
        (folder / "kept").touch()
    assert [path.name for path in folder.iterdir()] == ["kept"]


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_no_obstacle(tmp_path):
    holding = (
        "import sys, time; from vcuda.posterior.locks import FolderLock\n"
        "with FolderLock(sys.argv[1]): print('locked', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", holding, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(RunError, match="another fit"), FolderLock(tmp_path):
        pass
    process.kill()
    process.communicate()
    assert (tmp_path / LOCK).exists()
    with FolderLock(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="cannot write into"), FolderLock(tmp_path / "run"):
        pass


def test_what_a_killed_fit_leaves_is_no_obstacle(tmp_path):
    for name in (".lock", "posterior.npz"):
        (tmp_path / name).touch()
    for name in ("checkpoint", ".writing-abc"):
        (tmp_path / name).mkdir()
    assert check_folder(tmp_path) == tmp_path
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunError, match="holds other files"):
        check_folder(tmp_path)


# Fits ---------------------------------------------------------------------------------------------------------


def table(*, nodes: int, rows: int, gaps: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    weights = np.triu(rng.normal(size=(nodes, nodes)) * (rng.random((nodes, nodes)) < 2.5 / nodes), 1)
    values = np.zeros((rows, nodes))
    for node in range(nodes):
        values[:, node] = np.tanh(values @ weights[:, node]) + 0.5 * values @ weights[:, node] + rng.normal(size=rows)
    values[rng.random(values.shape) < gaps] = np.nan
    return values


FEW = {"sweeps": 20, "max_sweeps": 20, "rounds": 2, "round_sweeps": 10, "annealing": 10}
FITS = {
    "orders": ({"nodes": 20, "rows": 60}, {"model": "linear", "engine": vcuda.Orders(**FEW)}),
    "processes": (
        {"nodes": 6, "rows": 40},
        {"model": "gp", "engine": vcuda.Orders(full=4, max_candidates=5, fill=2, **FEW)},
    ),
    "chosen": ({"nodes": 13, "rows": 60}, {"engine": vcuda.Orders(**FEW)}),
    "variational": ({"nodes": 6, "rows": 60}, {"model": "linear", "engine": vcuda.Variational(steps=30, restarts=3)}),
    "straight-through": (
        {"nodes": 4, "rows": 60},
        # With so little patience restarts stop at different times.
        {
            "model": "linear",
            "engine": vcuda.StraightThrough(epochs=60, check_every=3, patience=1, restarts=4, batch_size=9),
        },
    ),
    "gaps": ({"nodes": 4, "rows": 60, "gaps": 0.05}, {"model": "linear", "noise": "unequal", "imputations": 3}),
}
# Through every stage of each method: inputs are selected, costs tried, networks trained again, graphs drawn.
BASELINE_FITS = {
    "grandag": baselines.GranDag.corrected(hidden=(), iterations=250, warm_up=30, preselect_from=2),
    "mcsl": baselines.Mcsl.corrected(hidden=(), rounds=3, steps=12, preselect_from=2),
    "dds": baselines.Dds.corrected(hidden=(), epochs=12, patience=2, preselect_from=2),
    "dibs": baselines.Dibs.corrected(particles=3, steps=70, samples=8, constraint_samples=4),
    "bayesdag": baselines.BayesDag.corrected(chains=2, samples=5, epochs=12, thin=3, sparsity=(1.0, 5.0)),
    "variance-sort": baselines.VarianceSort(),
}
FITS |= {name: ({"nodes": 5, "rows": 60}, {"engine": engine}) for name, engine in BASELINE_FITS.items()}


def arrays_of(posterior: vcuda.Posterior) -> dict[str, np.ndarray]:
    return {
        "probabilities": posterior.edge_probabilities.to_numpy(),
        **{f"law {name}": array for name, array in posterior.graph_posterior.arrays().items()},
        **{f"trace {name}": array for name, array in posterior.trace.items()},
    }


def assert_same(one: vcuda.Posterior, other: vcuda.Posterior) -> None:
    left, right = arrays_of(one), arrays_of(other)
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype
        assert array.tobytes() == right[name].tobytes(), name
    assert one.status == other.status
    assert one.provenance["choice"] == other.provenance["choice"]


def fitted(*arguments, **options) -> vcuda.Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return vcuda.fit(*arguments, **options)


@pytest.fixture
def snapshots(tmp_path, monkeypatch, at_once):
    """The checkpoint as it was after each write: what a fit that is killed then leaves."""
    taken: list[Path] = []
    write = CheckpointFiles._write

    def writing(checkpointer):
        write(checkpointer)
        taken.append(tmp_path / f"snapshot {len(taken)}")
        shutil.copytree(checkpointer.folder, taken[-1])

    monkeypatch.setattr(CheckpointFiles, "_write", writing)
    return taken


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_a_fit_that_was_killed_ends_as_if_it_had_not_been(name, tmp_path, snapshots):
    shape, options = FITS[name]
    data = table(**shape)
    alone = fitted(data, **options)
    kept = fitted(data, **options, checkpoint=tmp_path / "kept")
    assert_same(alone, kept)
    assert not (tmp_path / "kept").exists()
    moments = list(snapshots)
    assert len(moments) >= 3
    rng = np.random.default_rng(1)
    for moment in rng.choice(len(moments) - 1, size=2, replace=False):
        folder = tmp_path / "resumed"
        shutil.copytree(moments[moment], folder)
        resumed = fitted(data, **options, checkpoint=folder, resume=True)
        assert_same(alone, resumed)
        assert resumed.summary()["resumed"] == 1
        assert resumed.provenance["resumed"]["seconds_before"] > 0
        assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["variational", "straight-through", *BASELINE_FITS])
def test_the_length_of_chunks_changes_nothing(name, monkeypatch):
    # It depends on the clock, and after a fit was resumed it begins with one step again.
    found = []
    shape, options = FITS[name]
    for steps in (1, 5):
        pace = type("FixedPace", (Pace,), {"steps": property(lambda self, steps=steps: steps, lambda self, _: None)})
        monkeypatch.setattr("vcuda.infer.driver.Pace", pace)
        found.append(fitted(table(**shape), **options))
    if name == "straight-through":
        assert len(set(found[0].diagnostics["epochs"])) > 1, "all restarts stopped at the same time"
    assert_same(*found)


@pytest.mark.slow
def test_what_is_known_is_not_worked_out_again(tmp_path, snapshots, monkeypatch):
    shape, options = FITS["orders"]
    data = table(**shape)
    kept = fitted(data, **options, checkpoint=tmp_path / "kept")
    monkeypatch.setattr("vcuda.infer.orders.ladders.run_block", None)
    assert_same(kept, fitted(data, **options, checkpoint=snapshots[-1], resume=True))


@pytest.mark.slow
def test_an_interrupted_fit_goes_on_and_ends(tmp_path, at_once):
    shape, options = FITS["orders"]
    data = table(**shape)
    reports = []

    def stop(progress):
        reports.append(progress)
        if len(reports) == 12:
            raise KeyboardInterrupt

    stopped = fitted(data, **options, checkpoint=tmp_path / "kept", progress=stop)
    assert stopped.status.code == "interrupted"
    assert parts(tmp_path / "kept")
    seen = []
    resumed = fitted(data, **options, checkpoint=tmp_path / "kept", resume=True, progress=seen.append)
    assert_same(fitted(data, **options), resumed)
    # It tells of its progress from where it was.
    assert next(step.done for step in seen if step.done > 0) >= max(step.done for step in reports)


@pytest.mark.slow
def test_seconds_before_a_kill_count_for_the_time_limit(tmp_path, monkeypatch, at_once):
    shape, options = FITS["orders"]
    data = table(**shape)
    real, lost = time.monotonic, [0.0]

    def die(progress):
        lost[0] += 1000.0
        if lost[0] >= 5000.0:
            raise SystemExit

    monkeypatch.setattr(checkpoint_files.time, "monotonic", lambda: real() + lost[0])
    with pytest.raises(SystemExit):
        fitted(data, **options, checkpoint=tmp_path, progress=die, time_limit=1e5)
    monkeypatch.setattr(checkpoint_files.time, "monotonic", real)
    checkpointer = CheckpointFiles(
        Checkpoint(tmp_path, resume=True), json.loads((tmp_path / "request.json").read_text())
    )
    assert 4000 < checkpointer.spent_before < 6000
    resumed = fitted(data, **options, checkpoint=tmp_path, resume=True, time_limit=3000.0)
    assert resumed.status.code == "interrupted"
    # That one was saved: who resumes it now asks for more time, and gets it.
    again = fitted(data, **options, checkpoint=tmp_path, resume=True, time_limit=3000.0)
    assert_same(fitted(data, **options), again)


@pytest.mark.slow
def test_other_data_or_arguments_are_refused(tmp_path, snapshots):
    shape, options = FITS["variational"]
    data = table(**shape)
    fitted(data, **options, checkpoint=tmp_path / "kept")
    with pytest.raises(RunError, match="seed was 0 and is 1"):
        fitted(data, **options, checkpoint=snapshots[0], resume=True, seed=1)
    with pytest.raises(RunError, match="data was"):
        fitted(data + 1, **options, checkpoint=snapshots[0], resume=True)
    with pytest.raises(RunError, match=r"engine was .*Variational"):
        fitted(data, model="linear", checkpoint=snapshots[0], resume=True)
    with pytest.raises(ConfigError, match="give its folder"):
        fitted(data, **options, resume=True)


def test_a_fit_that_fails_on_its_checkpoint_says_so(tmp_path, at_once):
    def failing(error: Exception, *, resume: bool) -> None:
        with keeping(Checkpoint(tmp_path, resume=resume), {"seed": 1}, {"numpy": "2"}) as kept:
            kept.checkpointer.keep("a step", "one", lambda: numbers(1.5))
            raise error

    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError(), resume=False)
    with pytest.raises(RunError, match=r"ZeroDivisionError.*begin anew"):
        failing(ZeroDivisionError(), resume=True)
    with pytest.raises(ConfigError, match="a fault of the user's"):
        failing(ConfigError("a fault of the user's"), resume=True)


@pytest.mark.slow
def test_outcomes_come_back_as_they_were():
    shape, options = FITS["variational"]
    posterior = fitted(table(**shape), **options)
    from vcuda.posterior.posterior import Outcome, Status

    outcome = Outcome(
        posterior.graph_posterior,
        Status(*posterior.status.arithmetic),
        {"a": np.float32(0.5), "b": [1, None]},
        posterior.trace,
    )
    again, heard = restored(described(outcome, {"model": {"name": "linear"}}))
    assert heard == {"model": {"name": "linear"}}
    assert again.status == outcome.status
    assert again.diagnostics == {"a": 0.5, "b": [1, None]}
    for name, array in outcome.graph_posterior.arrays().items():
        assert again.graph_posterior.arrays()[name].tobytes() == array.tobytes()


# The command line -------------------------------------------------------------------------------------------------

COMMAND = ("--model", "linear", "--engine", "variational", "--no-report", "--samples", "3")


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "table.csv"
    names = ",".join("abcdef")
    np.savetxt(path, table(nodes=6, rows=60), delimiter=",", header=names, comments="", fmt="%.17g")
    return path


def result_of(run: Path) -> dict[str, bytes]:
    with np.load(run / "posterior.npz") as stored:
        found = {name: stored[name].tobytes() for name in stored.files}
    return found | {"graphs": (run / "edges.csv").read_bytes()}


@pytest.mark.slow
def test_a_command_that_is_killed_goes_on(run, csv, tmp_path):
    program = (
        "import sys; import vcuda.infer.checkpoint_files as files; files.PATIENCE = 0.0; files.APART = 0.0; "
        "files.WRITING = 1e9; from vcuda.cli import main; main(sys.argv[1:])"
    )
    folder = tmp_path / "killed"
    arguments = ["fit", str(csv), "-o", str(folder), *COMMAND]
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not parts(folder / "checkpoint"):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was too quick to be killed"
    assert not (folder / "config.json").exists()
    answer = run("fit", "--resume", folder)
    assert answer.code == 0
    assert "resumed once" in answer.out
    assert run("fit", csv, "-o", tmp_path / "alone", *COMMAND).code == 0
    assert result_of(folder) == result_of(tmp_path / "alone")
    assert {path.name for path in folder.iterdir()} == {path.name for path in (tmp_path / "alone").iterdir()}
    answer = run("fit", "--resume", folder)
    assert answer.code == 2
    assert "has finished" in answer.err


@pytest.mark.slow
def test_a_full_disk_at_the_end_loses_nothing(run, csv, tmp_path, at_once, monkeypatch):
    folder = tmp_path / "run"
    save = np.savez_compressed

    def full(*arguments, **arrays):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez_compressed", full)
    monkeypatch.chdir(tmp_path)
    answer = run("fit", csv.name, "-o", folder, *COMMAND)
    assert answer.code == 2
    assert "No space left on device" in answer.err
    assert f"vcuda fit --resume {folder}" in answer.err
    assert [path.name for path in folder.iterdir()] == ["checkpoint"]
    monkeypatch.setattr(np, "savez_compressed", save)
    monkeypatch.setattr("vcuda.infer.variational.training.advance", None)
    # The table is found from anywhere.
    monkeypatch.chdir(Path(__file__).parent)
    assert run("fit", "--resume", folder).code == 0
    assert not (folder / "checkpoint").exists()
    assert len(np.load(folder / "samples.npz")["weights"]) == 3


def test_a_fit_into_a_folder_at_work_is_refused(run, csv, tmp_path):
    with FolderLock(tmp_path / "run"):
        answer = run("fit", csv, "-o", tmp_path / "run", *COMMAND)
    assert answer.code == 2
    assert "another fit is writing into" in answer.err


@pytest.mark.slow
def test_a_table_from_a_pipe_must_be_given_again(run, csv, tmp_path, at_once, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setattr("vcuda.cli.fitting.place_of", lambda table: {"table": None, "folder": None})
    assert run("fit", csv, "-o", folder, *COMMAND, "--time-limit", 1e-9).code == 0
    answer = run("fit", "--resume", folder)
    assert answer.code == 2
    assert f"give it: vcuda fit TABLE --resume {folder}" in answer.err
    assert run("fit", csv, "--resume", folder, "--time-limit", 1000, "--samples", 2).code == 0
    assert len(np.load(folder / "samples.npz")["weights"]) == 2
    monkeypatch.undo()
    assert place_of("sachs")["table"] == "sachs"
    assert place_of(str(csv))["table"] == str(csv)
    assert place_of("/dev/null")["table"] is None
    assert place_of("-")["table"] is None
    assert place_of("postgresql://me:secret@host/shop#orders")["table"] is None


def test_a_part_of_a_file_is_found_again_from_another_folder(run, tmp_path, at_once, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(50, 3))
    connection = sqlite3.connect("shop.sqlite")
    for name in ("orders", "others"):
        pd.DataFrame(values, columns=["a", "b", "c"]).to_sql(name, connection, index=False)
    connection.close()
    assert run("fit", "shop.sqlite#orders", "-o", "run", *COMMAND, "--time-limit", 1e-9).code == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert run("fit", "--resume", "../run", "--time-limit", 1000).code == 0
    request = tmp_path / "run" / "checkpoint" / "request.json"
    monkeypatch.chdir(tmp_path)
    assert run("fit", "shop.sqlite#orders", "-o", "run", *COMMAND, "--time-limit", 1e-9).code == 0
    sound = json.loads(request.read_text())
    request.write_text(json.dumps(sound | {"notes": sound["notes"] | {"table": "postgresql://host/shop"}}))
    answer = run("fit", "--resume", "run")
    assert (answer.code, "give it: vcuda fit TABLE" in " ".join(answer.err.split())) == (2, True)


def test_resume_says_what_it_lacks(run, csv, tmp_path):
    answer = run("fit")
    assert answer.code == 2
    assert "give a table to fit, or --resume" in answer.err
    answer = run("fit", "--resume", tmp_path)
    assert answer.code == 2
    assert "holds no checkpoint" in answer.err
    answer = run("fit", "--resume", tmp_path, "--seed", 3)
    assert answer.code == 2
    assert "leave --seed out" in answer.err


def test_a_checkpoint_of_somebody_else_names_no_other_folder_and_no_odd_options(run, csv, tmp_path):
    folder, other = tmp_path / "run", tmp_path / "other"
    assert run("fit", csv, "-o", folder, *COMMAND, "--time-limit", 1e-9).code == 0
    request = folder / "checkpoint" / "request.json"
    sound = json.loads(request.read_text())
    for name, value in (("folder", 5), ("table", ["a"]), ("knowledge", ["a"]), ("seed", "1"), ("samples", True)):
        request.write_text(json.dumps(sound | {"notes": sound["notes"] | {name: value}}))
        answer = run("fit", "--resume", folder)
        assert answer.code == 2
        assert "was not written by vcuda fit" in answer.err
    request.write_text(json.dumps(sound))
    (folder / "checkpoint").rename(other)
    os.symlink(other, folder / "checkpoint")
    before = sorted(path.name for path in other.iterdir())
    for arguments in (("--resume", folder), (csv, "-o", folder, *COMMAND)):
        answer = run("fit", *arguments)
        assert answer.code == 2
        assert "is a link, and files would be written and deleted where it leads" in answer.err
    assert sorted(path.name for path in other.iterdir()) == before
