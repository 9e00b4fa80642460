"""Fits on a Dask cluster are the same as without one, to the last bit, and outlive their workers."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.cluster import DaskWorkers, connected
from vcuda.data.streaming import open_table
from vcuda.data.streaming.passes import gather, gather_features
from vcuda.errors import ClusterError, ConfigError, DataError
from vcuda.infer import prefetch, restarts
from vcuda.infer.compilation import double_precision, single_precision
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.infer.orders import hubs, ladders, run_orders, score_tables
from vcuda.infer.orders.ladders import Ladders, Record, SweepClock
from vcuda.infer.orders.score_tables import build_tables
from vcuda.infer.progress import Pace
from vcuda.infer.restarts import Elsewhere
from vcuda.infer.straight_through import training as straight_through
from vcuda.infer.workers import SERIAL, Serial, chunked
from vcuda.models.additive import AdditiveBasis
from vcuda.models.caching import cached
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.linear import BGe

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")

# Workers are reached by sockets, of this machine only.
pytestmark = pytest.mark.network


class Pretended(Serial):
    """This process, which says that it is several: engines divide their work, and the seam alone is tested."""

    def __init__(self, count: int, settings=nullcontext) -> None:
        self.count, self.settings = count, settings
        self.asked: list[str] = []

    def map(self, function, items, **given):
        self.asked.append(function.__name__)
        with self.settings():
            return super().map(function, items, **given)


@pytest.fixture(scope="module")
def client():
    # An item may take one worker with it; with the second it is given up, which Dask does with the fourth.
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}), vcuda.local_cluster(2) as started:
        yield started


@pytest.fixture(scope="module")
def workers(client):
    return DaskWorkers(client)


def wavy(nodes: int, rows: int, seed: int = 0) -> np.ndarray:
    """A chain of columns, each a bent function of the one before."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((rows, nodes))
    for k in range(1, nodes):
        table[:, k] = np.sin(2 * table[:, k - 1]) + 0.3 * table[:, k]
    return table


def fitted(table, **given) -> vcuda.Posterior:
    """A fit that may be too short to be trusted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcuda.ConvergenceWarning)
        return vcuda.fit(table, **given)


def same(first: vcuda.Posterior, second: vcuda.Posterior) -> bool:
    """Whether two posteriors are equal in every bit."""
    one, other = first.graph_posterior.arrays(), second.graph_posterior.arrays()
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


# Functions that workers run; a worker imports nothing of the tests, so that they must be Dask's to pickle.


def _scaled(shared, item):
    return shared["factor"] * item


def _slow(shared, item):
    time.sleep(0.3)
    return item, os.getpid()


def _deadly(shared, item):
    os._exit(1)


def _refusing(shared, item):
    if item % 2:
        raise DataError(f"item {item} is odd")
    return item


def _broken(shared, item):
    raise ZeroDivisionError("by nothing")


@pytest.fixture(autouse=True, scope="module")
def _by_value():
    """Send the functions above as they are."""
    import sys

    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


# The seam ---------------------------------------------------------------------------------------------------------


def test_items_are_dealt_like_cards():
    assert chunked([1, 2, 3, 4, 5], 2) == [[1, 3, 5], [2, 4]]
    assert chunked([1], 4) == [[1]]


def test_results_come_in_the_order_of_the_items(workers):
    shared = {"factor": 3.0, "much": np.arange(1000)}
    assert workers.map(_scaled, list(range(20)), shared=shared) == [3.0 * k for k in range(20)]
    assert workers.map(_scaled, [], shared=shared) == []
    assert workers.count == 2


def test_what_is_shared_is_sent_once_for_the_same_content(workers):
    first, second = ({"factor": 2.0, "much": np.arange(10)} for _ in range(2))
    assert workers._held(first) is workers._held(first)
    assert workers._held(second).key == workers._held(first).key
    assert workers._held({"factor": 2.5, "much": np.arange(10)}).key != workers._held(first).key


def test_a_refusal_is_that_of_the_first_item_and_an_error_is_a_sentence(workers):
    kept = {}
    with pytest.raises(DataError, match=r"^item 1 is odd$"):
        workers.map(_refusing, [0, 1, 2, 3], kept=kept)
    assert kept == {0: 0, 2: 2}
    with pytest.raises(ClusterError, match=r"failed on a worker, 3 times \(ZeroDivisionError: by nothing\)$"):
        workers.map(_broken, [0])


def test_an_interrupt_ends_the_waiting_and_nothing_else(workers):
    began = time.monotonic()

    def impatient(share):
        if time.monotonic() - began > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workers.map(_slow, list(range(200)), on_progress=impatient)
    assert workers.map(_scaled, [1, 2], shared={"factor": 1}) == [1, 2]


@pytest.mark.slow
def test_a_worker_that_dies_is_survived(client, workers):
    shared = {"factor": 1.0, "much": np.ones(1000)}
    workers.map(_scaled, [1, 2], shared=shared)
    victim = next(iter(client.run(os.getpid).values()))
    killer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
    killer.start()
    done = workers.map(_slow, list(range(12)))
    killer.join()
    assert [item for item, _ in done] == list(range(12))
    # Whatever was shared with the dead is shared again.
    assert workers.map(_scaled, list(range(8)), shared=shared) == [float(k) for k in range(8)]


@pytest.mark.slow
def test_an_item_that_kills_its_workers_ends_with_a_sentence(workers):
    with pytest.raises(ClusterError, match="several workers died on the same part of the fit"):
        workers.map(_deadly, [0])
    assert workers.map(_scaled, [2], shared={"factor": 2}) == [4]


def test_workers_of_other_versions_are_refused(client, monkeypatch):
    from vcuda.cluster import on_workers

    known = on_workers.version
    monkeypatch.setattr(on_workers, "version", lambda package: "1.0.0" if package == "numpy" else known(package))
    with pytest.raises(ClusterError, match=rf"has numpy {np.__version__} and not 1\.0\.0: the same seed might give"):
        DaskWorkers(client)


def test_what_is_no_client_is_refused():
    with pytest.raises(ConfigError, match=r"client must be a dask\.distributed Client, not a str"):
        vcuda.fit(wavy(3, 30), client="tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match="'somewhere' is no Dask cluster"), connected("somewhere"):
        pass
    with pytest.raises(ConfigError, match="at least one worker, not 0"), connected("0"):
        pass


def test_all_processes_listen_to_this_machine_only(client):
    import psutil

    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    links = [link for process in processes for link in process.net_connections("inet")]
    heard = [link.laddr.ip for link in links if link.status == "LISTEN"]
    assert len(heard) >= 3
    assert set(heard) == {"127.0.0.1"}


# What engines hand out, without a cluster -------------------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch):
    """Everything that can be done elsewhere is, however little it is."""
    monkeypatch.setattr(prefetch, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(hubs, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(ladders, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(restarts, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(straight_through, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(score_tables, "SPREAD_ENTRIES", 0)
    monkeypatch.setattr(score_tables, "SPREAD_CHEAP_ENTRIES", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_scores_ahead_change_no_bit_of_a_growing_table(monkeypatch):
    table, spec = wavy(16, 60), vcuda.Orders(sweeps=20, max_sweeps=20, annealing=20, round_sweeps=10, rounds=3)
    monkeypatch.setattr(ladders, "WORTH_SECONDS", np.inf)
    score = GaussianProcess()
    alone = run_orders(spec, score.prepare(table), edge_prior(table.shape[1], 0.1), samples=20, seed=1)
    several = Pretended(3)
    apart = run_orders(spec, score.prepare(table), edge_prior(table.shape[1], 0.1), samples=20, seed=1, workers=several)
    assert {"evaluated", "_promising"} <= set(several.asked)
    assert np.array_equal(alone.edge_probabilities, apart.edge_probabilities)
    assert np.array_equal(alone.trace["log_score"], apart.trace["log_score"])


@pytest.mark.usefixtures("eager")
def test_nothing_is_left_to_score_for_exact_tables():
    table, prior = wavy(5, 60), edge_prior(5, 0.2)
    alone = exact_posterior(GaussianProcess().prepare(table), prior, samples=10, rng=np.random.default_rng(0))
    several, score = Pretended(2), cached(GaussianProcess().prepare(table))
    apart = exact_posterior(score, prior, samples=10, rng=np.random.default_rng(0), workers=several)
    assert several.asked == ["evaluated"] * len(several.asked)
    assert not score.cache.ahead, "sets were foreseen that no table holds"
    assert np.array_equal(alone.edge_probabilities, apart.edge_probabilities)
    assert alone.log_evidence == apart.log_evidence


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("spec", [BGe(), AdditiveBasis()], ids=["linear", "additive"])
def test_tables_filled_elsewhere_are_the_same(spec):
    score, prior = spec.prepare(wavy(6, 80)), edge_prior(6, 0.2)
    candidates = [np.delete(np.arange(6), k) for k in range(6)]
    several = Pretended(2)
    alone = build_tables(score, prior, candidates, order=np.arange(6))
    apart = build_tables(score, prior, candidates, order=np.arange(6), workers=several)
    assert several.asked == ["_filled"]
    assert np.array_equal(alone.weights, apart.weights)
    assert np.array_equal(alone.sums, apart.sums)
    assert np.array_equal(alone.shifts, apart.shifts)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("settings", [nullcontext, double_precision], ids=["usual", "double"])
def test_a_chain_depends_neither_on_those_beside_it_nor_on_settings_of_a_worker(settings):
    score, prior = BGe().prepare(wavy(9, 80)), edge_prior(9, 0.2)
    candidates = build_tables(score, prior, [np.delete(np.arange(9), k) for k in range(9)])

    @single_precision()
    def run(workers):
        chains = Ladders(np.random.default_rng(3), replicas=3, betas=np.geomspace(1.0, 0.4, 3), workers=workers)
        chains.use(candidates, width=8)
        chains.place_at_random(())
        record = Record()
        schedule = np.broadcast_to(chains.betas, (25, *chains.shape))
        chains.advance(schedule, record, swap=True, clock=SweepClock(None, lambda step: None, 1.0), detail="")
        seen = [record.energies, record.cold, record.edges, record.swapped]
        return [*(np.array(each) for each in seen), chains._orders, chains._holders, chains.rng.random(3)]

    several = Pretended(2, settings)
    for alone, apart in zip(run(SERIAL), run(several), strict=True):
        assert np.array_equal(alone, apart)
        assert alone.dtype == apart.dtype
    assert "run_group" in several.asked


# Too short to converge; the variational engine takes restarts apart above 20 columns.
RESTARTED = {
    "variational": {"model": "linear", "noise": "equal", "engine": vcuda.Variational(steps=30, restarts=3)},
    "straight-through": {
        "model": "mlp",
        "engine": vcuda.StraightThrough(epochs=6, check_every=2, restarts=3, batch_size=30, patience=1),
    },
}


def columns_for(name: str) -> int:
    return 5 if name == "straight-through" else 22


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", RESTARTED)
def test_a_restart_depends_neither_on_those_beside_it_nor_on_settings_of_a_worker(name, monkeypatch):
    several, table = Pretended(2, double_precision), wavy(columns_for(name), 100)
    monkeypatch.setattr("vcuda.fitting.fit.as_workers", lambda client: client or SERIAL)
    alone, apart = (fitted(table, seed=3, client=client, **RESTARTED[name]) for client in (None, several))
    assert "run_part" in several.asked
    assert same(alone, apart)
    assert all(np.array_equal(alone.trace[part], apart.trace[part]) for part in alone.trace)


class Interrupted(Pretended):
    """Workers of which one waits in vain, because somebody presses Ctrl-C."""

    def map(self, function, items, **given):
        if len(self.asked) == 2:
            raise KeyboardInterrupt
        return super().map(function, items, **given)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", RESTARTED)
def test_a_fit_begun_on_workers_goes_on_without_them(name, monkeypatch, tmp_path):
    several, table = Interrupted(3), wavy(columns_for(name), 100)
    monkeypatch.setattr("vcuda.fitting.fit.as_workers", lambda client: client or SERIAL)
    # One after the other they may be slower than all here, and would be left before the third request.
    monkeypatch.setattr(Pace, "note", lambda self, steps, seconds: setattr(self, "seconds_a_step", 1e-3))
    given = {"seed": 3, "checkpoint": tmp_path / "kept", **RESTARTED[name]}
    assert fitted(table, client=several, **given).status.code == "interrupted"
    assert several.asked == ["run_part"] * 2
    assert same(fitted(table, **given, resume=True), fitted(table, seed=3, **RESTARTED[name]))


@pytest.mark.slow
def test_restarts_stay_where_they_are_unless_it_is_worth_it(monkeypatch):
    several, given = Pretended(2), RESTARTED["variational"]
    monkeypatch.setattr("vcuda.fitting.fit.as_workers", lambda client: client or SERIAL)
    fitted(wavy(22, 100), client=several, **given)
    assert several.asked == []


def test_workers_that_are_slower_are_left(monkeypatch):
    monkeypatch.setattr(restarts, "WORTH_SECONDS", 10.0)
    here = Pace()
    elsewhere = Elsewhere(Pretended(2), here, None)
    assert elsewhere.steps(100, restarts=2) == 0, "nothing is known of the time yet"
    here.seconds_a_step, here.steps = 0.5, 2
    assert elsewhere.steps(19, restarts=2) == 0
    assert elsewhere.steps(100, restarts=1) == 0
    assert elsewhere.steps(100, restarts=2) == 2
    assert Elsewhere(Pretended(2), here, time.monotonic() + 9).steps(100, restarts=2) == 0
    assert Elsewhere(SERIAL, here, None).steps(100, restarts=2) == 0
    elsewhere.there.seconds_a_step, elsewhere.there.steps = 0.3, 13
    assert elsewhere.steps(5, restarts=2) == 5, "what is compiled is used to the end"
    elsewhere.there.seconds_a_step = 0.6
    assert elsewhere.steps(100, restarts=2) == 0


# Fits on the cluster ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_gaussian_process_is_the_same_on_a_cluster(client, monkeypatch):
    monkeypatch.setattr(ladders, "WORTH_SECONDS", np.inf)  # replicas have a test of their own, and compile for seconds
    given = {
        "model": "gp",
        "engine": vcuda.Orders(sweeps=20, max_sweeps=20, annealing=20, round_sweeps=10, rounds=2),
        "seed": 4,
    }
    table = wavy(15, 60)
    alone, together = fitted(table, **given), fitted(table, client=client, **given)
    assert same(alone, together)
    assert alone.summary().keys() == together.summary().keys()


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_replicas_and_tables_are_the_same_on_a_cluster(client):
    given = {"model": "linear", "engine": vcuda.Orders(sweeps=20, max_sweeps=20), "seed": 2}
    assert same(fitted(wavy(6, 100), **given), fitted(wavy(6, 100), client=client, **given))


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["variational", "straight-through"])
def test_restarts_are_the_same_on_a_cluster(client, name, monkeypatch):
    asked, handed = [], DaskWorkers.map

    def map_seen(self, function, *given, **more):
        asked.append(function.__name__)
        return handed(self, function, *given, **more)

    monkeypatch.setattr(DaskWorkers, "map", map_seen)
    client.wait_for_workers(2, timeout=60)  # tests before this one have killed some
    table = wavy(columns_for(name), 100)
    alone, together = (fitted(table, seed=3, client=used, **RESTARTED[name]) for used in (None, client))
    assert "run_part" in asked
    assert same(alone, together)


@pytest.mark.slow
def test_fillings_are_the_same_on_a_cluster(client):
    table = wavy(4, 120)
    table[np.random.default_rng(1).random(table.shape) < 0.1] = np.nan
    given = {"model": "linear", "engine": "exact", "imputations": 4, "seed": 7}
    alone, together = vcuda.fit(table, **given), vcuda.fit(table, client=client, **given)
    assert same(alone, together)
    assert alone.summary()["notes"] == together.summary()["notes"]


# Parts of tables --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same rows as three CSV files and as three Parquet files; the first file has two regimes."""
    root, frame = tmp_path_factory.mktemp("parts"), pd.DataFrame(wavy(4, 900) + 5.0, columns=list("abcd"))
    frame["set"] = ["c" if 50 <= k < 120 or k > 700 else "" for k in range(len(frame))]
    for kind in ("csv", "parquet"):
        (root / kind).mkdir()
    for k, part in enumerate(np.split(np.arange(900), [200, 650])):
        frame.iloc[part].to_csv(root / "csv" / f"{k}.csv", index=False)
        frame.iloc[part].to_parquet(root / "parquet" / f"{k}.parquet", index=False)
    return root, frame


def _squares(rows):
    return np.concatenate([rows, rows**2], axis=1)


def _equal(first, second):
    assert first.fingerprint == second.fingerprint
    assert list(first.regimes) == list(second.regimes)
    moments = [(found.moments, *found.regimes.values()) for found in (first, second)]
    for one, other in zip(*moments, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(first.sample, second.sample, strict=True))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_statistics_of_files_read_elsewhere_are_the_same(folders, kind):
    path, several = folders[0] / kind, Pretended(2)
    given = {"interventions": "set", "sample_rows": 100, "seed": 5}
    here, there = gather(path, **given), gather(path, mapped=several.map, **given)
    assert several.asked == ["_rows_of_part", "_see_part"]
    _equal(here, there)
    features = [gather_features(path, _squares, statistics=here, mapped=mapped) for mapped in (None, several.map)]
    assert np.array_equal(features[0].moments.gram, features[1].moments.gram)


def test_a_bad_cell_is_refused_in_the_same_words_wherever_it_is_read(folders, tmp_path):
    frame = folders[1].drop(columns="set")
    frame.iloc[:300].to_csv(tmp_path / "0.csv", index=False)
    frame.iloc[300:].assign(b="much").to_csv(tmp_path / "1.csv", index=False)
    with pytest.raises(DataError) as here:
        gather(tmp_path)
    with pytest.raises(DataError) as there:
        gather(tmp_path, mapped=Pretended(2).map)
    assert str(here.value) == str(there.value)


@pytest.mark.slow
def test_a_dask_dataframe_is_a_table_like_any_other(folders, client, workers):
    import dask.dataframe as dd

    frame = dd.from_pandas(folders[1], npartitions=3, sort=False)
    small = vcuda.as_dataset(frame, interventions="set")
    assert small.source == "Dask table"
    assert np.array_equal(small.values, folders[1][list("abcd")].to_numpy())
    assert small.interventions.sum() == (folders[1]["set"] == "c").sum()
    # As large ones are read: partition by partition, here and on the workers.
    given = {"interventions": "set", "sample_rows": 100, "seed": 5}
    here, there = gather(frame, **given), gather(frame, mapped=workers.map, **given)
    _equal(here, there)
    assert here.fingerprint == gather(folders[0] / "parquet", **given).fingerprint
    large = open_table(frame, interventions="set", streamed=True, mapped=workers.map)
    assert (large.n, large.names) == (900, ("a", "b", "c", "d"))
    fits = [
        vcuda.fit(frame, interventions="set", streamed=True, model="linear", engine="exact", client=used)
        for used in (None, client)
    ]
    assert same(*fits)
    gappy = folders[1].drop(columns="set")
    gappy.loc[800, "a"] = np.nan
    bad = dd.from_pandas(gappy, npartitions=3)
    with pytest.raises(DataError, match=r"^Dask table: a value is missing in column 'a', in data row 801"):
        gather(bad)


# The command line -------------------------------------------------------------------------------------------------


def test_the_command_takes_an_address(client, tmp_path, capsys, monkeypatch):
    from vcuda.cli import main

    monkeypatch.chdir(tmp_path)
    pd.DataFrame(wavy(3, 60), columns=list("abc")).to_csv("table.csv", index=False)
    for name, more in (("alone", []), ("together", ["--dask", client.scheduler.address])):
        with pytest.raises(SystemExit) as ended:
            main(["fit", "table.csv", "-o", name, "--model", "gp", "--no-report", "-q", "--no-checks", *more])
        assert ended.value.code == 0, capsys.readouterr().err
    assert Path("alone/edges.csv").read_text() == Path("together/edges.csv").read_text()
    with pytest.raises(SystemExit) as ended:
        main(["fit", "table.csv", "--dask", "tcp//host"])
    assert ended.value.code == 2
    assert "'tcp//host' is no Dask cluster" in capsys.readouterr().err


def test_without_dask_the_install_line_is_told(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(vcuda.MissingExtraError, match=r"pip install 'vcuda\[cluster\]'"), vcuda.local_cluster(1):
        pass


# The grid, and the page -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbered:
    """A case that is nothing but a number."""

    index: int

    def what(self):
        return {"index": self.index}

    def words(self):
        return f"case {self.index}"


@pytest.mark.slow
def test_groups_of_the_grid_are_measured_by_workers_and_written_here(workers, tmp_path):
    from benchmarks.processes import Runner
    from benchmarks.records import Records

    records, seen = Records("paper", folder=tmp_path), []
    cases = [_Numbered(k) for k in range(3)]
    runner = Runner[_Numbered](
        "benchmarks.paper.measuring",
        records,
        sent={"processor_limit": 1.0, "clock_limit": 1.0},
        jobs=1,
        deadline=np.inf,
        report=lambda case, line: seen.append(case.index),
        patience=0.05,  # a process needs longer to start, and is told to have been ended
    )
    assert runner.run([cases[:2], cases[2:]], workers=workers)
    assert sorted(seen) == [0, 1, 2]
    assert all("ended from outside" in line["error"] and line["jobs"] == 2 for line in records.lines)
    assert runner.run([cases], workers=workers)
    assert len(seen) == 3, "what is stored is not measured again"


@pytest.mark.slow
def test_the_page_runs_as_it_stands(capsys):
    page = (Path(__file__).parent.parent / "docs" / "clusters.md").read_text(encoding="utf-8")
    ((code, shown),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(code, "clusters.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == shown
