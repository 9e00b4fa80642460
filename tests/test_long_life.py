"""A process that fits for long: memory is bounded, threads do not disturb each other, an interrupt breaks nothing."""

import json
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import vcuda
from vcuda.infer import compilation
from vcuda.infer.blas import one_blas_thread

SHORT = vcuda.Orders(sweeps=10, max_sweeps=10, annealing=10, replicas=2, levels=2)


def table_of(nodes, rows=60):
    rng = np.random.default_rng(nodes)
    return rng.standard_normal((rows, nodes)) @ np.triu(np.ones((nodes, nodes)))


def short_fit(nodes, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcuda.ConvergenceWarning)
        asked = {"model": "linear", "noise": "equal", "engine": SHORT} | options
        return vcuda.fit(table_of(nodes), **asked).edge_probabilities.to_numpy()


class TestPrograms:
    """Compiled programs are kept, but not all of them for ever."""

    @pytest.mark.slow
    def test_a_shape_that_comes_again_is_not_compiled_again(self, monkeypatch):
        monkeypatch.setattr(compilation, "KEPT_PROGRAMS", 10**6)  # tests before this one may have left many
        short_fit(4)
        before = compilation._programs.count
        short_fit(4, seed=1)
        assert compilation._programs.count == before

    @pytest.mark.slow
    def test_too_many_are_dropped_and_numbers_stay(self, monkeypatch):
        first = short_fit(4)
        monkeypatch.setattr(compilation, "KEPT_PROGRAMS", compilation._programs.count)
        short_fit(5)  # another shape, so at least one program more
        assert compilation._programs.count == 0
        np.testing.assert_array_equal(short_fit(4), first)
        assert compilation._programs.count > 0

    def test_the_folder_on_disk_loses_what_was_not_used_for_longest(self, tmp_path):
        for age in range(10):
            path = tmp_path / f"program-{age}"
            path.write_bytes(b"x" * 100)
            os.utime(path, (1e9 - age, 1e9 - age))
        compilation._prune(tmp_path, 1000)
        assert len(list(tmp_path.iterdir())) == 10
        compilation._prune(tmp_path, 999)
        assert sorted(path.name for path in tmp_path.iterdir()) == [f"program-{age}" for age in range(4)]


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_the_last_of_several_fits_lifts_the_limit_of_blas():
    second_is_in, first_is_out = threading.Event(), threading.Event()
    seen = []

    def stay_longer():
        with one_blas_thread():
            second_is_in.set()
            assert first_is_out.wait(20)
            seen.append(blas_threads())

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        other = threading.Thread(target=stay_longer)
        with one_blas_thread():
            other.start()
            assert second_is_in.wait(20)
            assert blas_threads() == {1}
        first_is_out.set()
        other.join()
        assert seen == [{1}]
        assert blas_threads() == before


@pytest.mark.slow
def test_four_threads_find_what_one_after_the_other_finds():
    # Single and double precision, programs and BLAS, and filters of warnings, all at the same time.
    jobs = [
        {"engine": SHORT},
        {"engine": vcuda.Variational(steps=30, restarts=2)},
        {"engine": vcuda.StraightThrough(epochs=2, check_every=1, restarts=2), "noise": "unequal"},
        {"engine": "exact", "model": "gp", "noise": None},
        {"engine": "variance-sort", "model": "auto", "noise": None},
    ]

    def run(job):
        return vcuda.fit(table_of(5), **({"model": "linear", "noise": "equal"} | job)).edge_probabilities.to_numpy()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcuda.ConvergenceWarning)
        filters = list(warnings.filters)
        alone = [run(job) for job in jobs]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(run, 3 * jobs))
        assert warnings.filters == filters
    for found, expected in zip(together, 3 * alone, strict=True):
        np.testing.assert_array_equal(found, expected)


def fit_under_interrupts(folder: Path, interrupts: int) -> None:
    """Interrupt fits and saves at moments spread over their time, then do them again; runs in a process of its own."""
    import signal
    import time

    import jax

    warnings.simplefilter("ignore", vcuda.ConvergenceWarning)
    engines = {"orders": SHORT, "variational": vcuda.Variational(steps=20, restarts=2)}
    rng, found, ended = np.random.default_rng(0), {}, []
    filters, threads = list(warnings.filters), blas_threads()

    def ring(number, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, ring)

    def interrupted(work, seconds):
        """What the work returns, or None if it was interrupted."""
        try:
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))
            result = work()
            signal.setitimer(signal.ITIMER_REAL, 0)
            return result
        except KeyboardInterrupt:
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    for name, engine in engines.items():

        def fit(nodes, engine=engine):
            return vcuda.fit(table_of(nodes), model="linear", noise="equal", engine=engine)

        if interrupts:
            started = time.perf_counter()
            fit(4)
            usual = time.perf_counter() - started
            # The first comes before there is anything to return, however slow the machine is at this moment.
            shares = (np.arange(interrupts) + rng.random(interrupts)) / interrupts
            for share in [0.0, *rng.permutation(shares)]:
                posterior = interrupted(lambda: fit(5), share * usual)
                ended.append("no" if posterior is None else posterior.status.code)
        posterior = fit(5)
        found[name] = posterior.edge_probabilities.to_numpy()

        started = time.perf_counter()
        posterior.save(folder / "uninterrupted")
        usual = time.perf_counter() - started
        for number, share in enumerate(rng.random(10 * interrupts)):
            # Into new folders and over earlier runs.
            run = folder / f"{name}-{number % interrupts}"
            interrupted(lambda: posterior.save(run), share * usual)  # noqa: B023
            if (run / "config.json").exists():
                np.testing.assert_array_equal(vcuda.Posterior.load(run).edge_probabilities.to_numpy(), found[name])
        for number in range(interrupts):
            posterior.save(folder / f"{name}-{number}")
            np.testing.assert_array_equal(
                vcuda.Posterior.load(folder / f"{name}-{number}").edge_probabilities.to_numpy(), found[name]
            )

    # pandas sets this one for a moment whenever it looks at a type, and an interrupt just then leaves it behind.
    of_pandas = ("always", None, DeprecationWarning, None, 0)
    assert [each for each in warnings.filters if each != of_pandas or each in filters] == filters
    assert blas_threads() == threads
    assert jax.numpy.zeros(1).dtype == np.float32
    np.savez(folder / "found.npz", **found)
    (folder / "ended.json").write_text(json.dumps(ended))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no alarms")
def test_an_interrupt_at_any_moment_leaves_a_session_that_fits_as_before(tmp_path):
    found = []
    for interrupts in (0, 3):
        folder = tmp_path / str(interrupts)
        folder.mkdir()
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_long_life as here; "
        code += f"from pathlib import Path; here.fit_under_interrupts(Path({str(folder)!r}), {interrupts})"
        # Without a cache on disk, so that interrupts come while programs are compiled.
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {compilation.VARIABLE: "off"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with np.load(folder / "found.npz") as stored:
            found.append({name: stored[name] for name in stored.files})
    ended = json.loads((tmp_path / "3" / "ended.json").read_text())
    assert "no" in ended
    assert found[0].keys() == found[1].keys()
    for name, expected in found[0].items():
        np.testing.assert_array_equal(found[1][name], expected, err_msg=name)
