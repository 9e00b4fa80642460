"""Cells that experiments set: what scores, engines and questions make of them."""

from __future__ import annotations

import re
import shlex
from functools import partial
from itertools import permutations
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from problems import run_variational
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import vcuda
from vcuda.dags.base import DagPrior
from vcuda.dags.priority import PriorityDags
from vcuda.data import as_dataset
from vcuda.data.imputation import imputations
from vcuda.errors import ConfigError, DataError, KnowledgeError
from vcuda.graphs import enumerate_dags
from vcuda.infer.compilation import double_precision
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.infer.orders import Orders, run_orders
from vcuda.infer.straight_through.elbo import Trained, elbo_terms, pad_rows
from vcuda.infer.variational import Variational
from vcuda.infer.variational.edge_gains import edge_gains_of, regressions_of
from vcuda.models.additive import AdditiveBasis
from vcuda.models.categorical import BDeu
from vcuda.models.functional import Linear
from vcuda.models.functional.base import log_density
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.interventions import InterventionalScore, prepare
from vcuda.models.linear import BGe, EqualNoise

CHAIN = np.array([0.9, -0.8, 0.7])


def chain(rows: int, held: dict[int, int], *, nodes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) of 0 -> 1 -> 2 -> 3 with noise of one variance, and which cells were set.

    ``held`` says in how many rows each node is set, to values that have nothing to do with its cause; these rows come
    first, node after node.
    """
    rng = np.random.default_rng(seed)
    mask = np.zeros((rows, nodes), dtype=bool)
    start = 0
    for node, count in held.items():
        mask[start : start + count, node] = True
        start = (start + count) % rows
    values = rng.normal(size=(rows, nodes))
    values[mask] = rng.normal(2.0, 1.5, size=mask.sum())
    for node in range(1, nodes):
        caused = values[:, node] + CHAIN[node - 1] * values[:, node - 1]
        values[:, node] = np.where(mask[:, node], values[:, node], caused)
    return values, mask


def enumerated(score, probability: float) -> tuple[np.ndarray, float]:
    """Edge probabilities (d, d) and evidence by a sum over all DAGs and all orders."""
    nodes = score.nodes
    graphs = enumerate_dags(nodes)
    prior = np.zeros(len(graphs))
    for order in permutations(range(nodes)):
        rank = np.argsort(order)
        before = rank[:, None] < rank
        fits = ~(graphs & ~before).any(axis=(1, 2))
        prior += fits * np.prod(np.where(graphs, probability, 1 - probability), axis=(1, 2), where=before[None])
    fits = [sum(score.score(j, np.flatnonzero(g[:, j]).tolist()) for j in range(nodes)) for g in graphs]
    joint = np.log(prior / prior.sum()) + np.array(fits)
    weights = np.exp(joint - logsumexp(joint))
    return np.einsum("g,gij->ij", weights, graphs), float(logsumexp(joint) + score.log_jacobian)


SPECS = {
    "equal known": EqualNoise(variance=1.2),
    "bge": BGe(),
    "gp": GaussianProcess(),
    "additive": AdditiveBasis(features=3),
    "bdeu": BDeu(),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("held", [{1: 10}, {0: 40}, {1: 8, 2: 8, 3: 8}], ids=["one", "always", "three"])
def test_exact_equals_enumeration(spec, held):
    values, mask = chain(40, held)
    score = prepare(spec, np.round(values) if isinstance(spec, BDeu) else values, mask)
    assert isinstance(score, InterventionalScore)
    result = exact_posterior(score, edge_prior(score.nodes, 0.3), samples=5, rng=np.random.default_rng(0))
    edges, evidence = enumerated(score, 0.3)
    assert np.abs(result.edge_probabilities - edges).max() < 1e-9
    assert result.log_evidence == pytest.approx(evidence, abs=1e-8 * abs(evidence))


def test_a_linear_score_is_the_density_of_the_free_cells():
    values, mask = chain(30, {1: 9, 2: 6})
    score = prepare(EqualNoise(variance=0.8, weight_variance=1.5), values, mask)
    for target, parents in ((1, [0]), (2, [0, 3]), (3, []), (1, [0, 2, 3])):
        free = ~mask[:, target]
        rows = values[free] - values[free].mean(axis=0)
        inputs = rows[:, parents]
        # Weights N(0, 1.5) and an intercept around the mean with the variance of the noise, both integrated out.
        covariance = 0.8 * (np.eye(len(rows)) + 1.0) + 1.5 * inputs @ inputs.T
        known = multivariate_normal(np.zeros(len(rows)), covariance).logpdf(rows[:, target])
        assert score.score(target, parents) + 0.0 == pytest.approx(known, abs=1e-8)


def test_a_shared_noise_is_that_of_the_free_cells():
    values, mask = chain(2000, {0: 300, 1: 300, 2: 300, 3: 300})
    values[mask] *= 30.0
    for node in range(1, 4):
        redone = values[:, node - 1] * CHAIN[node - 1] + np.random.default_rng(node).normal(size=2000)
        values[:, node] = np.where(mask[:, node], values[:, node], redone)
    shared = prepare(EqualNoise(), values, mask)
    result = exact_posterior(shared, edge_prior(shared.nodes, 0.3), samples=5, rng=np.random.default_rng(0))
    unit = min(values[~mask[:, node], node].var() for node in range(4))
    # 8,000 - 1,200 cells tell a variance of 1 with a standard error of sqrt(2 / 6800) = .017.
    assert result.noise_variance * unit == pytest.approx(1.0, abs=0.07)
    assert result.edge_probabilities[[0, 1, 2], [1, 2, 3]].min() > 0.99


def test_what_was_always_set_is_judged_by_the_prior():
    values, mask = chain(40, {2: 40})
    score = prepare(BGe(), values, mask)
    assert score.score(2, [0, 1]) == score.score(2, []) == 0.0
    assert np.array_equal(score.gains(2, [0]), [-np.inf, 0.0, -np.inf, 0.0])
    assert np.array_equal(score.losses(2, np.array([0, 1])), [0.0, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("spec", [EqualNoise(), BGe(), AdditiveBasis()], ids=["equal", "bge", "additive"])
def test_orders_agree_with_exact(spec):
    values, mask = chain(120, {1: 20, 3: 20})
    score = prepare(spec, values, mask)
    exact = exact_posterior(score, edge_prior(score.nodes, 0.3), samples=5, rng=np.random.default_rng(0))
    sampled = run_orders(Orders(), score, edge_prior(score.nodes, 0.3), samples=200, seed=0)
    assert np.abs(exact.edge_probabilities - sampled.edge_probabilities).sum() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("held", [{1: 60, 3: 60}, {0: 300, 2: 60}], ids=["some", "always"])
@pytest.mark.parametrize(
    "spec", [EqualNoise(), EqualNoise(variance=1.0), AdditiveBasis()], ids=["shared", "known", "additive"]
)
def test_the_variational_engine_agrees_with_exact(spec, held):
    values, mask = chain(300, held)
    score = prepare(spec, values, mask)
    allowed = np.broadcast_to(~mask.all(axis=0), (4, 4))
    prior = edge_prior(score.nodes, 0.3, allowed=allowed)
    exact = exact_posterior(score, prior, samples=5, rng=np.random.default_rng(0))
    found = run_variational(Variational(), score, prior, seed=0)
    # Independent edges given the order: single probabilities err by some hundredths, twelve of them by less than .3.
    assert np.abs(exact.edge_probabilities - found.graph_posterior.edge_probabilities()).sum() < 0.3
    assert max(found.diagnostics["elbo"]) < exact.log_evidence + 0.5


@pytest.mark.slow
def test_edge_gains_of_parts_are_the_gains_of_the_score():
    values, mask = chain(60, {1: 10, 2: 10, 3: 60})
    for spec in (BGe(), AdditiveBasis(features=3)):
        score = prepare(spec, values, mask)
        problem = regressions_of(score)
        for target, parents in ((1, [0, 2]), (2, [3]), (0, [1]), (3, [0])):
            slots = np.array([*parents, *({0, 1, 2, 3} - {*parents, target})])
            real = np.arange(slots.size) < len(parents)
            with double_precision():
                toggled = edge_gains_of(problem, np.int32(target), slots, real, np.float64(1.0))
            expected = score.gains(target, parents)
            expected[parents] = score.losses(target, np.array(parents))
            others = np.arange(4) != target
            # The additive problem is in single precision, and its scores are about 100.
            assert np.allclose(np.asarray(toggled.gains)[others], expected[others], atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [BGe(), GaussianProcess()], ids=["bge", "gp"])
def test_orders_with_candidates_find_what_experiments_orient(spec):
    """More columns than the tables hold: candidates, growing tables and second opinions see the same parts."""
    rng = np.random.default_rng(3)
    nodes, rows = 20, 400
    mask = np.zeros((rows, nodes), dtype=bool)
    for node in range(0, nodes, 2):
        mask[20 * (node // 2) : 20 * (node // 2) + 20, node] = True
    values = rng.normal(size=(rows, nodes))
    for node in range(1, nodes):
        caused = np.tanh(1.5 * values[:, node - 1]) + 0.5 * values[:, node]
        values[:, node] = np.where(mask[:, node], 1.5 * values[:, node], caused)
    found = run_orders(Orders(), prepare(spec, values, mask), edge_prior(nodes, 0.05), samples=50, seed=0)
    assert found.edge_probabilities[np.arange(nodes - 1), np.arange(1, nodes)].mean() > 0.9
    assert found.status.code == "ok"


def experiments(rows: int = 400, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    values, mask = chain(rows, {1: 60, 2: 60}, seed=seed)
    frame = pd.DataFrame(values, columns=["a", "b", "c", "d"])
    frame["target"] = np.where(mask[:, 1], "b", np.where(mask[:, 2], "c", "none"))
    return frame, mask


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["exact", "orders", "variational", "straight-through"])
def test_every_engine_takes_a_column_of_targets_or_a_mask(engine):
    frame, mask = experiments()
    options = {"engine": engine, "model": "linear", "noise": "equal"}
    posterior = vcuda.fit(frame, interventions="target", **options)
    assert posterior.names == ("a", "b", "c", "d")
    edges = posterior.edge_probabilities.to_numpy()
    forward, backward = edges[[0, 1, 2], [1, 2, 3]], edges[[1, 2, 3], [0, 1, 2]]
    if engine == "straight-through":  # less sure of anything
        assert (forward > backward).all()
    else:
        assert forward.min() > 0.9
    same = vcuda.fit(frame.drop(columns="target"), interventions=mask, **options)
    assert np.array_equal(edges, same.edge_probabilities.to_numpy())


@pytest.mark.slow
def test_the_elbo_counts_the_free_cells():
    values, mask = chain(30, {1: 9, 2: 6})
    spec, model, prior = PriorityDags(), Linear(noise="unit"), DagPrior(0.2)
    trained = Trained(spec.init(jax.random.key(0), 4), model.init(jax.random.key(1), 4))
    keys, allowed = jax.random.split(jax.random.key(2), 5), ~np.eye(4, dtype=bool)
    rows = pad_rows(values, 1, mask)
    terms = elbo_terms(spec, model, prior, trained, keys, rows, 30.0, jnp.asarray(allowed))
    cells = []
    for key in keys:
        graph = spec.sample(key, trained.dags, jnp.asarray(allowed), None)
        cells.append(np.asarray(log_density(model, trained.model, jnp.asarray(values, jnp.float32), graph)))
    assert float(terms.likelihood) == pytest.approx(np.mean(cells, axis=0)[~mask].sum(), rel=1e-5)


def test_directions_that_only_experiments_tell():
    """Unequal noise alone leaves a chain undirected; setting its middle nodes directs it."""
    frame, _ = experiments(600)
    observed = frame[frame["target"] == "none"].drop(columns="target")
    without = vcuda.fit(observed, model="linear", engine="exact").edge_probabilities.to_numpy()
    given = vcuda.fit(frame, interventions="target", model="linear", engine="exact").edge_probabilities.to_numpy()
    chained = [0, 1, 2], [1, 2, 3]
    assert without[chained].max() < 0.9
    assert given[chained].min() > 0.98


def test_what_was_always_set_has_no_causes():
    values, mask = chain(300, {1: 300})
    posterior = vcuda.fit(values, interventions=mask, model="linear")
    assert posterior.edge_probabilities["X2"].sum() == 0.0
    assert posterior.edge_probabilities.loc["X2", "X3"] > 0.9
    assert any("have no causes in the table: 'X2'" in sentence for sentence in posterior.summary()["choice"])
    with pytest.raises(KnowledgeError, match="X1 -> X2 is required, but 'X2' was set in every row"):
        vcuda.fit(values, interventions=mask, knowledge=vcuda.Knowledge(required=["X1 -> X2"]))


@pytest.mark.parametrize("model", ["linear", "additive", "gp"])
def test_effects_and_predictions_are_those_of_the_free_cells(model):
    frame, _ = experiments(600)
    posterior = vcuda.fit(frame, interventions="target", model=model, engine="exact")
    effect = posterior.effect("a", "b", draws=200)
    # 0 -> 1 with weight .9; where b was set it does not follow a, so that all rows together would say .8.
    low, high = effect.interval
    assert low < 0.9 < high or abs(effect.mean - 0.9) < 0.1
    new, _ = chain(500, {}, seed=9)
    seen = posterior.held_out(pd.DataFrame(new, columns=list("abcd")), graphs=20)
    # The noise has variance 1 in four columns; a child's is all that is left of it.
    assert seen["mse"] == pytest.approx(1.0, abs=0.12)
    # log density of four standard normal variables: -4 / 2 (log 2 pi + 1) = -5.68.
    assert seen["log_likelihood"] == pytest.approx(-5.68, abs=0.25)


@pytest.mark.parametrize("model", ["linear", "additive", "gp"])
def test_a_run_keeps_its_parts(model, tmp_path):
    frame, _ = experiments(200)
    posterior = vcuda.fit(frame, interventions="target", model=model, engine="exact")
    posterior.save(tmp_path / "run")
    loaded = vcuda.Posterior.load(tmp_path / "run")
    rows = frame.drop(columns="target").head(20)
    assert loaded.held_out(rows, graphs=10) == posterior.held_out(rows, graphs=10)
    assert loaded.provenance["interventions"]["rows"]["b"] == {"set": 60, "alone": 60}
    assert loaded.map(draws=50).graph.tolist() == posterior.map(draws=50).graph.tolist()


def test_the_next_experiment_knows_those_that_were_made():
    frame, _ = experiments(600)
    posterior = vcuda.fit(frame, interventions="target", model="linear", engine="exact")
    best = posterior.next_experiment()
    assert best["information"].max() < 0.05
    assert np.array_equal(best, posterior.next_experiment(already=["b", "c"]))


def test_the_model_is_chosen_by_the_free_cells():
    """Values that were set far out, in a way no model here explains, must not hide what the free cells show."""
    frame, mask = experiments(600)
    frame.loc[mask[:, 1], "b"] = np.exp(np.random.default_rng(1).normal(3.0, 1.0, size=mask[:, 1].sum()))
    caused = CHAIN[1] * frame["b"] + np.random.default_rng(2).normal(size=600)
    frame["c"] = np.where(mask[:, 2], frame["c"], caused)
    posterior = vcuda.fit(frame, interventions="target")
    assert posterior.edge_probabilities.loc["a", "b"] > 0.9


def test_baselines_refuse_experiments():
    frame, _ = experiments(100)
    with pytest.raises(ConfigError, match="engine dds knows nothing of interventions"):
        vcuda.fit(frame, interventions="target", engine="dds")


# --- tables ---------------------------------------------------------------------------------------------------


def targets_of(cells: list[str]) -> np.ndarray:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(len(cells), 3)), columns=["x", "y", "p;q"])
    table = as_dataset(frame.assign(set=cells), interventions="set")
    return np.zeros((len(cells), 3), dtype=bool) if table.interventions is None else table.interventions


def test_cells_of_the_column_of_targets():
    cells = ["", "none", "x", "x;y", " y , x ", "p;q", "control", "x+y", *[""] * 8]
    expected = [[], [], [0], [0, 1], [0, 1], [2], [], [0, 1]]
    assert [np.flatnonzero(row).tolist() for row in targets_of(cells)[:8]] == expected
    assert not targets_of(["none"] * 10).any()


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        (["z", *["x"] * 9], r"data row 1 of column 'set' says that 'z' was set, which is no column"),
        (["X", *[""] * 9], r"did you mean 'x'\?"),
        (["x"] * 8 + [""] * 2, r"'x' was set or is missing in all but 2 of 10 rows"),
    ],
)
def test_bad_targets_are_refused(cells, fault):
    with pytest.raises(DataError, match=fault):
        targets_of(cells)


def test_bad_masks_are_refused():
    values, _ = chain(20, {})
    for mask, fault in (
        (np.zeros((20, 3)), "has the shape"),
        (np.full((20, 4), 2.0), "only true and false"),
        (pd.DataFrame({"Y": [True] * 20}), "column 'Y' that the table does not have"),
    ):
        with pytest.raises(DataError, match=fault):
            as_dataset(values, interventions=mask)
    still = values.copy()
    still[:, 2] = 0.0
    still[:5, 2] = [1.0, 2.0, 3.0, 4.0, 5.0]
    mask = np.zeros((20, 4), dtype=bool)
    mask[:5, 2] = True
    with pytest.raises(DataError, match="'X3' does not vary in the rows in which it was not set"):
        as_dataset(still, interventions=mask)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_the_command_line_takes_the_column(ending, tmp_path, run):
    frame, _ = experiments(200)
    path = tmp_path / f"table.{ending}"
    {"csv": partial(frame.to_csv, index=False), "parquet": frame.to_parquet, "feather": frame.to_feather}[ending](path)
    answer = run("fit", path, "--interventions", "target", "--model", "linear", "-o", tmp_path / "run")
    assert answer.code == 0
    assert "In 120 of 200 rows experiments set 'b' and 'c'" in " ".join(answer.out.split())
    assert "--interventions target" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert run("fit", path, "--interventions", "targets", "-o", tmp_path / "other").code == 2
    assert "set" in run("check", path, "--interventions", "target").out


def test_the_page_on_interventions_runs(tmp_path, monkeypatch, run):
    text = (Path(__file__).parent.parent / "docs" / "interventions.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(code, "interventions.md", "exec"), scope)
    scope["table"].to_csv("table.csv", index=False)
    for line in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL):
        assert run(*shlex.split(line)[1:]).code == 0
    assert (tmp_path / "run" / "edges.csv").exists()


def test_gaps_are_filled_by_experiment():
    """Where b was set it does not follow a: filled as if it did, the effect of b on c would be shrunk."""
    rng = np.random.default_rng(5)
    n = 2000
    drawn = np.arange(n) >= 1000
    a = rng.normal(size=n)
    b = np.where(drawn, 2.0 * rng.normal(size=n), 2.0 * a + 0.5 * rng.normal(size=n))
    c = a - 1.0 * b + 0.5 * rng.normal(size=n)
    frame = pd.DataFrame({"a": a, "b": b, "c": c}).mask(rng.random((n, 3)) < 0.15)
    table = as_dataset(frame, interventions=pd.DataFrame({"b": drawn}), missing="keep")
    slopes = []
    for filled in imputations(table, 3):
        rows = filled.values[filled.interventions[:, 1]]  # rows without any value are gone
        slopes.append(np.linalg.lstsq(np.column_stack([rows[:, :2], np.ones(len(rows))]), rows[:, 2], rcond=None)[0])
    # The standard error of a weight of 1,000 rows with noise .5 is .016 for a and .008 for b; gaps add to it.
    assert np.mean(slopes, axis=0)[:2] == pytest.approx([1.0, -1.0], abs=0.06)
