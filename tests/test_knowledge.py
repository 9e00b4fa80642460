"""What people know: refused where it contradicts itself, obeyed in every graph of every engine."""

from __future__ import annotations

import json
import re
import warnings
from itertools import permutations
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcuda
from vcuda.cli import main
from vcuda.dags import DAG_DISTRIBUTIONS
from vcuda.dags.base import DagPrior
from vcuda.dags.lifting import Lift
from vcuda.data.knowledge import as_knowledge
from vcuda.errors import ConfigError, KnowledgeError
from vcuda.graphs import enumerate_dags, is_dag
from vcuda.infer.edge_prior import edge_prior, prior_of_rules
from vcuda.infer.exact import exact_posterior
from vcuda.infer.selection import models as choice_models
from vcuda.infer.selection.models import choose_model
from vcuda.infer.variational.edge_gains import regressions_of
from vcuda.infer.variational.settings import tiers_of
from vcuda.models.additive import AdditiveBasis
from vcuda.models.linear import BGe, EqualNoise
from vcuda.posterior.mixture import OrderMixture

Knowledge = vcuda.Knowledge
NAMES = ("a", "b", "c", "d", "e")
SAMPLES = 1000


def random_knowledge(rng: np.random.Generator, names=NAMES, *, required: int | None = None) -> Knowledge:
    """Consistent knowledge of every kind: all of it is true of one random DAG."""
    order = rng.permutation(len(names))
    truth = np.triu(rng.random((len(names), len(names))) < 0.6, k=1)
    truth = truth[np.ix_(np.argsort(order), np.argsort(order))]
    pairs = rng.permutation(np.argwhere(truth))
    kept = pairs[: rng.integers(len(pairs) + 1) if required is None else required]
    required_edges = {(int(i), int(j)) for i, j in kept}
    targets, sources = {j for _, j in required_edges}, {i for i, _ in required_edges}
    cuts = np.sort(rng.choice(np.arange(1, len(names)), size=rng.integers(3), replace=False))
    tiers = [tier[rng.random(len(tier)) < 0.8] for tier in np.split(order, cuts)] if cuts.size else []
    home = {int(node): number for number, tier in enumerate(tiers) for node in tier}
    apart = bool(rng.random() < 0.3) and all(home.get(i, -1) != home.get(j, -2) for i, j in required_edges)
    roots = {node for node in range(len(names)) if node not in targets and rng.random() < 0.15}
    sinks = {node for node in range(len(names)) if node not in sources and rng.random() < 0.15}
    free = [(i, j) for i, j in permutations(range(len(names)), 2) if (i, j) not in required_edges]
    forbidden = {pair for pair in free if rng.random() < 0.2}

    def open_pair(i: int, j: int) -> bool:
        both = i in home and j in home
        held = both and (home[i] > home[j] or (apart and home[i] == home[j]))
        return not held and (i, j) not in forbidden and j not in roots and i not in sinks

    odd = {
        (names[i], names[j]): float(rng.uniform(0.05, 0.95)) for i, j in free if open_pair(i, j) and rng.random() < 0.2
    }
    return Knowledge(
        required=[(names[i], names[j]) for i, j in sorted(required_edges)],
        forbidden=[(names[i], names[j]) for i, j in sorted(forbidden)],
        tiers=[[names[i] for i in tier] for tier in tiers],
        within_tiers=not apart,
        roots=[names[i] for i in sorted(roots)],
        sinks=[names[i] for i in sorted(sinks)],
        probabilities=odd,
    )


def forbidden_pairs(knowledge: Knowledge, names=NAMES) -> set[tuple[str, str]]:
    """All that is not allowed, pair by pair and not by matrices."""
    tier = {name: number for number, members in enumerate(knowledge.tiers) for name in members}
    found = set(knowledge.forbidden)
    for source, target in permutations(names, 2):
        gap = tier[source] - tier[target] if source in tier and target in tier else -1
        backwards = gap > 0 or (gap == 0 and not knowledge.within_tiers)
        if backwards or target in knowledge.roots or source in knowledge.sinks:
            found.add((source, target))
    return found


def check_obedience(knowledge: Knowledge, graphs: np.ndarray, names=NAMES) -> None:
    position = {name: k for k, name in enumerate(names)}
    assert all(is_dag(graph) for graph in np.unique(graphs, axis=0))
    for source, target in knowledge.required:
        assert graphs[:, position[source], position[target]].all(), f"{source} -> {target} is missing"
    for source, target in forbidden_pairs(knowledge, names):
        assert not graphs[:, position[source], position[target]].any(), f"{source} -> {target} is there"


def table(rows: int = 40, nodes: int = 5, seed: int = 0, noise: float = 1.0) -> vcuda.Dataset:
    """A chain with some noise, under the names of the alphabet."""
    rng = np.random.default_rng(seed)
    values = noise * rng.normal(size=(rows, nodes))
    for node in range(1, nodes):
        values[:, node] += values[:, node - 1]
    return vcuda.as_dataset(vcuda.Dataset(tuple("abcdefghijklmnopqrst"[:nodes]), values))


# One entry for each engine, and for each way through one, as short as they may be.
ENGINES = {
    "exact": {"engine": "exact", "model": "linear"},
    "exact, shared noise": {"engine": "exact", "model": "linear", "noise": "equal"},
    "exact, nonlinear": {"engine": "exact", "model": "additive"},
    "orders": {"engine": vcuda.Orders(sweeps=20, max_sweeps=20, replicas=2), "model": "linear"},
    "orders, shared noise": {
        "engine": vcuda.Orders(sweeps=20, max_sweeps=20, replicas=2, full=0),
        "model": "linear",
        "noise": "equal",
    },
    "variational": {"engine": vcuda.Variational(steps=10, restarts=2), "model": "linear"},
    "straight-through": {"engine": vcuda.StraightThrough(epochs=2, restarts=2, check_every=1), "model": "linear"},
    "paper": {"engine": vcuda.StraightThrough.paper(epochs=2, check_every=1), "preset": "paper"},
}


def fit(data, **options) -> vcuda.Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcuda.ConvergenceWarning)  # they are too short to converge
        return vcuda.fit(data, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_a_thousand_samples_of_every_engine_obey(name, tmp_path):
    # The same number of required edges each time, so that one compiled program serves.
    for seed in (0, 1, 2):
        knowledge = random_knowledge(np.random.default_rng(seed), required=3)
        posterior = fit(table(), knowledge=knowledge, seed=seed, **ENGINES[name])
        marginals = posterior.edge_probabilities
        check_obedience(knowledge, posterior.sample(SAMPLES, seed=seed).dense())
        assert all(marginals.loc[edge] == 1.0 for edge in knowledge.required)
        assert all(marginals.loc[edge] == 0.0 for edge in forbidden_pairs(knowledge))
    posterior.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    check_obedience(knowledge, again.sample(SAMPLES, seed=5).dense())
    np.testing.assert_array_equal(again.edge_probabilities, marginals)
    assert Knowledge.from_dict(again.provenance["knowledge"]) == knowledge
    assert "obeys the stated knowledge" in again.summary()["choice"][-1]


def random_mixture(seed: int, required: np.ndarray) -> OrderMixture:
    rng = np.random.default_rng(seed)
    shape = (2, len(required), len(required))
    return OrderMixture.of(
        rng.normal(scale=2.0, size=shape),
        means=rng.normal(size=shape[:2]),
        log_scale=rng.normal(-0.5, 0.7, size=shape[:2]),
        weights=np.array([0.3, 0.7]),
        predictive=None,
        required=required,
    )


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_any_consistent_knowledge_is_obeyed_by_the_law_of_lifted_priorities(seed):
    knowledge = random_knowledge(np.random.default_rng(seed))
    rules = knowledge.for_columns(NAMES, edge_probability=0.3)
    assert set(zip(*np.nonzero(~rules.allowed), strict=True)) == {
        *((NAMES.index(s), NAMES.index(t)) for s, t in forbidden_pairs(knowledge)),
        *((k, k) for k in range(5)),
    }
    graph_posterior = random_mixture(seed, rules.required)
    graph_posterior.edge_logits[:, ~rules.allowed] = -np.inf
    graphs = graph_posterior.sample(np.random.default_rng(seed), NAMES, 4 * SAMPLES).dense()
    check_obedience(knowledge, graphs)
    # 4,000 draws have a standard error of at most .008, the integral an error of some 1e-3: four of the former.
    assert np.abs(graphs.mean(axis=0) - graph_posterior.edge_probabilities()).max() < 0.033


@pytest.mark.slow
@pytest.mark.parametrize("family", [spec() for spec in DAG_DISTRIBUTIONS.values()], ids=lambda family: family.name)
def test_families_over_dags_obey_in_traced_programs_and_on_the_host(family):
    required = np.zeros((5, 5), dtype=bool)
    required[3, 1] = required[1, 0] = required[4, 0] = True
    lift = Lift.of(required)
    allowed = ~np.eye(5, dtype=bool) & ~required
    allowed[2, 4] = False
    params = family.init(jax.random.key(1), 5)
    draw = jax.jit(jax.vmap(lambda key: family.sample(key, params, allowed, lift)))
    graphs = np.asarray(draw(jax.random.split(jax.random.key(2), SAMPLES))) > 0
    knowledge = Knowledge(required=["d -> b", "b -> a", "e -> a"], forbidden=["c -> e"])
    check_obedience(knowledge, graphs)
    places = lift.lifted_ranks(family.priorities(np.random.default_rng(0), params, SAMPLES))
    before = (places[:, :, None] < places[:, None, :]).mean(axis=0)
    on_host = np.where(required, 1.0, before / (1 + np.exp(-np.asarray(params.edge_logits))) * allowed)
    # Both are shares of 1,000 draws: the difference has a standard error of at most .022, and four of these are enough.
    assert np.abs(graphs.mean(axis=0) - on_host).max() < 0.09


@pytest.mark.slow
def test_prior_odds_of_single_edges_are_in_the_divergence_of_every_family():
    prior, allowed = DagPrior(0.2), ~np.eye(4, dtype=bool)
    odds = np.full((4, 4), np.log(0.2 / 0.8))
    for spec in DAG_DISTRIBUTIONS.values():
        family = spec()
        params = family.init(jax.random.key(0), 4)
        same = family.kl(params, prior, allowed, odds)
        assert float(same.edges) == pytest.approx(float(family.kl(params, prior, allowed).edges), rel=1e-5)
        likely = odds.copy()
        likely[0, 1] = np.log(0.9 / 0.1)
        share = 1 / (1 + np.exp(-float(params.edge_logits[0, 1])))
        # KL(q || .9) - KL(q || .2) of one coin: q log(.2 / .9) + (1 - q) log(.8 / .1).
        expected = share * np.log(0.2 / 0.9) + (1 - share) * np.log(0.8 / 0.1)
        changed = float(family.kl(params, prior, allowed, likely).edges) - float(same.edges)
        assert changed == pytest.approx(expected, abs=1e-4)


def enumerated(knowledge: Knowledge, data: vcuda.Dataset, probability: float) -> np.ndarray:
    """Edge probabilities by summing over all DAGs and, for the prior, over all orders."""
    names, nodes = data.names, data.d
    position = {name: k for k, name in enumerate(names)}
    pi = np.full((nodes, nodes), probability)
    for source, target, own in knowledge.probabilities:
        pi[position[source], position[target]] = own
    for source, target in forbidden_pairs(knowledge, names):
        pi[position[source], position[target]] = 0.0
    for source, target in knowledge.required:
        pi[position[source], position[target]] = 1.0
    graphs = enumerate_dags(nodes)
    prior = np.zeros(len(graphs))
    for order in permutations(range(nodes)):
        before = np.argsort(order)[:, None] < np.argsort(order)
        if all(before[position[s], position[t]] for s, t in knowledge.required):
            factors = np.where(graphs, pi, 1 - pi)
            prior += ~graphs[:, ~before].any(axis=1) * np.prod(factors[:, before], axis=1)
    score = BGe().prepare(data.values)
    fits = np.array([sum(score.score(j, np.flatnonzero(g[:, j]).tolist()) for j in range(nodes)) for g in graphs])
    weights = prior * np.exp(fits - fits.max())
    return np.tensordot(weights / weights.sum(), graphs, axes=1)


@pytest.mark.parametrize("seed", range(4))
def test_exact_marginals_equal_enumeration_of_all_dags(seed):
    data = table(nodes=4, rows=15, seed=seed)
    knowledge = random_knowledge(np.random.default_rng(seed), data.names)
    posterior = fit(data, engine="exact", model="linear", prior=0.3, knowledge=knowledge)
    np.testing.assert_allclose(posterior.edge_probabilities, enumerated(knowledge, data, 0.3), atol=1e-9)


@pytest.mark.slow
def test_orders_agree_with_exact():
    data = table(rows=60, seed=3)
    knowledge = Knowledge(required=["c -> a"], forbidden=["d -> e"], probabilities={("b", "d"): 0.9})
    exact = fit(data, engine="exact", model="linear", knowledge=knowledge).edge_probabilities
    sampled = fit(data, engine="orders", model="linear", knowledge=knowledge).edge_probabilities
    # The sampling goes on until the largest standard error is below .006: four of them.
    assert np.abs(exact.to_numpy() - sampled.to_numpy()).max() < 0.024


@pytest.mark.slow
def test_variational_agrees_roughly_with_exact_where_the_data_decide():
    # Equal noise is identifiable; what is required is true of the chain or points against it.
    for required in (["a -> b", "b -> c", "a -> e"], ["b -> a", "c -> d", "a -> e"]):
        options = {"model": "linear", "noise": "equal", "knowledge": Knowledge(required=required, forbidden=["d -> e"])}
        data = table(rows=200, seed=4)
        exact = fit(data, engine="exact", **options).edge_probabilities.to_numpy()
        posterior = fit(data, engine=vcuda.Variational(restarts=2), **options)
        check_obedience(options["knowledge"], posterior.sample(SAMPLES).dense())
        learned = posterior.edge_probabilities.to_numpy()
        # A variational posterior is no exact one, but no edge may come out on the other side, nor most be far off.
        assert np.abs(exact - learned).max() < 0.3
        assert np.abs(exact - learned).mean() < 0.03


def test_nothing_known_changes_nothing():
    data = table()
    plain, empty = (fit(data, knowledge=known, **ENGINES["exact"]) for known in (None, Knowledge()))
    assert plain.provenance["knowledge"] is empty.provenance["knowledge"] is None
    np.testing.assert_array_equal(plain.edge_probabilities, empty.edge_probabilities)


def test_a_probability_moves_its_edge_and_the_other_direction_is_left():
    data = table(rows=8, seed=1)
    rare, likely = (
        fit(data, engine="exact", model="linear", knowledge=Knowledge(probabilities={("a", "b"): p})).edge_probabilities
        for p in (0.01, 0.99)
    )
    assert rare.loc["a", "b"] < 0.1 < 0.4 < likely.loc["a", "b"]


@pytest.mark.parametrize("method", ["exact", "best graph", "one order"])
def test_models_are_compared_on_graphs_that_obey(method, monkeypatch):
    data = table(rows=60, seed=2)
    knowledge = Knowledge(required=["e -> a", "c -> a"], forbidden=["b -> c", "c -> b"])
    rules = knowledge.for_columns(data.names, edge_probability=0.3)
    monkeypatch.setattr(choice_models, "EXACT_COLUMNS", 12 if method == "exact" else 0)
    monkeypatch.setattr(choice_models, "CLIMBED_COLUMNS", 0 if method == "one order" else 200)
    options = {"logarithm": np.zeros(5, dtype=bool), "models": ("linear", "additive")}
    prior = prior_of_rules(5, 0.3, rules)
    seen = choose_model(data, prior, **options)
    free = choose_model(data, edge_prior(5, 0.3), **options)
    assert seen.method == method
    # No graph that obeys is as good as the chain: 60 rows make its edge b -> c worth some 30 nats.
    for words, evidence in seen.log_evidence.items():
        assert evidence < free.log_evidence[words] - 10
    if method == "exact":
        found = exact_posterior(EqualNoise().prepare(data.values), prior, rng=np.random.default_rng(0))
        assert seen.log_evidence["linear, equal noise"] == pytest.approx(found.log_evidence, abs=1e-6)


CONTRADICTIONS = [
    ({"required": ["a -> b", "b -> c", "c -> a"]}, "required edges 'a' -> 'b' -> 'c' -> 'a' form a cycle"),
    ({"required": ["a -> b"], "forbidden": ["a -> b"]}, "'a' -> 'b' is required, but it is forbidden as well"),
    ({"required": ["a -> b"], "tiers": [["b"], ["a"]]}, "'a' is in tier 2, after 'b' in tier 1"),
    ({"required": ["a -> b"], "tiers": [["a", "b"]], "within_tiers": False}, "both are in tier 1, and within_tiers"),
    ({"required": ["a -> b"], "roots": ["b"]}, "'b' is a root, which has no causes"),
    ({"required": ["a -> b"], "sinks": ["a"]}, "'a' is a sink, which has no effects"),
    ({"probabilities": {("a", "b"): 1.0}}, "is 1, but must lie between 0 and 1: say what is certain as a required"),
    ({"probabilities": {("a", "b"): 0.0}}, "is 0, but must lie between 0 and 1"),
    ({"probabilities": {("a", "b"): float("nan")}}, "is nan, but must lie between 0 and 1"),
    ({"probabilities": {("a", "b"): "often"}}, "must be a number, not 'often'"),
    ({"probabilities": [("a", "b", 0.2), ("a", "b", 0.3)]}, "has the probabilities 0.2 and 0.3: keep one"),
    ({"probabilities": [("a", "b")]}, "must map edges to numbers"),
    ({"probabilities": {("a", "b"): 0.5}, "forbidden": ["a -> b"]}, "has a probability, but it is forbidden as well"),
    ({"probabilities": {("a", "b"): 0.5}, "required": ["a -> b"]}, "has a probability, but is required as well"),
    ({"probabilities": {("a", "b"): 0.5}, "roots": ["b"]}, "has a probability, but 'b' is a root"),
    ({"tiers": [["a"], ["b"], ["a"]]}, "column 'a' is in tiers 1 and 3"),
    ({"forbidden": ["a -> a"]}, "'a' -> 'a' goes from a column to itself"),
    ({"required": "a -> b"}, "required must be a list, not 'a -> b': put it in brackets"),
    ({"required": ["a, b"]}, "must hold edges such as"),
    ({"required": ["a -> b -> c"]}, "must hold edges such as"),
    ({"within_tiers": "yes"}, "within_tiers must be true or false, not 'yes'"),
    ({"requird": ["a -> b"]}, "no key 'requird' (did you mean 'required'?)"),
]


@pytest.mark.parametrize(("given_", "message"), CONTRADICTIONS, ids=[message[:40] for _, message in CONTRADICTIONS])
def test_every_contradiction_has_its_message(given_, message):
    with pytest.raises(KnowledgeError, match=re.escape(message)):
        Knowledge.from_dict(given_)


def test_unknown_names_are_refused_before_the_fit_with_the_nearest():
    data = vcuda.Dataset(("Raf", "Mek", "PIP2"), np.random.default_rng(0).normal(size=(20, 3)))
    with pytest.raises(
        KnowledgeError, match=r"names 'pip2', which is no column of the table \(did you mean 'PIP2'\?\)"
    ):
        vcuda.fit(data, knowledge=Knowledge(required=[("Raf", "pip2")]))
    with pytest.raises(KnowledgeError, match="the columns are 'Raf', 'Mek' and 'PIP2'"):
        vcuda.fit(data, knowledge=Knowledge(sinks=["quux"]))
    with pytest.raises(KnowledgeError, match=r"such as known.toml, not dict"):
        vcuda.fit(data, knowledge={"required": []})
    with pytest.raises(ConfigError, match="engine dibs cannot obey knowledge: leave it out, or use engine exact"):
        vcuda.fit(data, engine="dibs", knowledge=Knowledge(roots=["Raf"]))


def test_the_variational_engine_has_room_for_all_required_causes():
    required = np.zeros((40, 40), dtype=bool)
    required[:11, 30] = True
    values = np.random.default_rng(0).normal(size=(50, 40))
    for score, spec in ((BGe(), vcuda.Variational(max_parents=2)), (AdditiveBasis(), vcuda.Variational())):
        tables = regressions_of(score.prepare(values))
        free, crowded = (tiers_of(spec, tables, 40, edge_prior(40, 0.1, required=edges)) for edges in (None, required))
        assert free.wide < 11
        assert crowded.narrow == crowded.wide == 11


def test_files_say_the_same_as_python(tmp_path):
    toml, csv = tmp_path / "known.toml", tmp_path / "known.csv"
    toml.write_text(
        'required = [["a", "b"], "b -> c"]\nforbidden = ["e -> a"]\ntiers = [["a"], ["d", "e"]]\nwithin_tiers = false\n'
        'roots = ["a"]\nsinks = ["e"]\n\n[probabilities]\n"b -> d" = 0.9\n'
    )
    csv.write_text(
        "source,target,kind,probability\na,b,required,\nb,c,required,\ne,a,forbidden,\nb,d,probability,0.9\n"
    )
    edges = {"required": [("a", "b"), ("b", "c")], "forbidden": [("e", "a")], "probabilities": {("b", "d"): 0.9}}
    more = {"tiers": [["a"], ["d", "e"]], "within_tiers": False, "roots": ["a"], "sinks": ["e"]}
    assert Knowledge.read(toml) == as_knowledge(str(toml)) == Knowledge(**edges, **more)
    assert Knowledge.read(csv) == Knowledge(**edges)
    assert Knowledge.from_dict(json.loads(json.dumps(Knowledge(**edges, **more).to_dict()))) == Knowledge(
        **edges, **more
    )
    assert hash(Knowledge.read(toml)) == hash(Knowledge(**edges, **more))


TETRAD = """/knowledge
addtemporal
1* a b
3 c
2 d "e"

forbiddirect
// in this direction
a d

requiredirect
b,c
requiredgroup
a
c d
forbiddengroup
b
d e
"""


def test_knowledge_of_tetrad(tmp_path):
    (tmp_path / "k.txt").write_text(TETRAD.replace("a d\n", "").replace("forbiddirect\n", ""))
    known = Knowledge.read(tmp_path / "k.txt")
    assert known.tiers == (("a", "b"), ("d", "e"), ("c",))
    assert known.within_tiers
    assert known.required == (("b", "c"), ("a", "c"), ("a", "d"))
    # Inside the tier with a star nothing causes anything.
    assert known.forbidden == (("b", "d"), ("b", "e"), ("a", "b"), ("b", "a"))
    known.write(tmp_path / "again.knowledge")
    assert Knowledge.read(tmp_path / "again.knowledge") == known
    closed = Knowledge(tiers=[["a", "b"], ["c"]], within_tiers=False)
    closed.write(tmp_path / "closed.txt")
    assert Knowledge.read(tmp_path / "closed.txt") == closed
    (tmp_path / "k.txt").write_text(TETRAD)
    with pytest.raises(KnowledgeError, match="'a' -> 'd' is required, but it is forbidden as well"):
        Knowledge.read(tmp_path / "k.txt")


def test_knowledge_is_written_and_read_again(tmp_path):
    every = Knowledge(
        required=[('a "b"', "c\\d")],
        forbidden=[("c\\d", "é\t→")],
        tiers=[['a "b"'], ["c\\d"]],
        within_tiers=False,
        roots=["r"],
        sinks=["s"],
        probabilities={("r", "s"): 0.25},
    )
    every.write(tmp_path / "k.toml")
    assert Knowledge.read(tmp_path / "k.toml") == every
    edges = Knowledge(required=["a -> b"], forbidden=["b -> c"], probabilities={("a", "c"): 0.9})
    edges.write(tmp_path / "k.csv")
    assert Knowledge.read(tmp_path / "k.csv") == edges
    for ending, words in (
        (".csv", "no 'tiers', 'roots' and 'sinks'"),
        (".txt", "no 'roots', 'sinks' and"),
        (".bif", "no "),
    ):
        with pytest.raises(ConfigError, match=words):
            every.write(tmp_path / f"k{ending}")
    with pytest.raises(ConfigError, match=r"files that end in \.toml"):
        edges.write(tmp_path / "k.docx")
    with pytest.raises(ConfigError, match="cannot write"):
        edges.write(tmp_path / "no" / "k.toml")


BAD_FILES = [
    ("k.txt", "hello\n", "neither knowledge of Tetrad"),
    ("k.txt", "/knowledge\na b\n", "line 2 stands before any section"),
    ("k.txt", "/knowledge\naddtemporal\nfirst a b\n", "line 3 begins with 'first'"),
    ("k.txt", "/knowledge\nforbiddirect\na b c\n", "line 3 has 3 names"),
    ("k.knowledge", "/knowledge\nrequiredgroup\na b\n", "no line of effects"),
    ("k.dagitty", "dag { a <-> b }", "another end than an arrow"),
    ("k.dagitty", "pdag { a -- b }", "between 'a' and 'b' has no direction"),
    ("k.dagitty", "dag { a -> b b -> a }", "form a cycle"),
    ("known.toml", "required = [", "known.toml: this is not TOML"),
    ("known.toml", 'required = ["a -> b"]\nsink = ["b"]', "known.toml: knowledge has no key 'sink'"),
    ("known.csv", "source,target\na,b\n", "line 1 names no column 'kind': begin with source,target,kind"),
    ("known.csv", "source,target,kind,tier\na,b,required,1\n", "tiers, roots and sinks go into a .toml file"),
    ("known.csv", "source,target,kind\na,b,needed\n", "line 2 has the kind 'needed': write one of required"),
    ("known.csv", "source,target,kind\na,b,required\na,,forbidden\n", "line 3 lacks a source or a target"),
    ("known.csv", "source,target,kind\na,b\n", "line 2 has 2 cells for 3 columns"),
    ("known.csv", "source,target,kind,probability\na,b,probability,\n", "line 2 must have a number under probability"),
    ("known.csv", "source,target,kind,probability\na,b,probability,x\n", "line 2 has the probability 'x'"),
    (
        "known.csv",
        "source,target,kind\na,b,required\nb,a,required\n",
        "known.csv: the required edges 'a' -> 'b' -> 'a'",
    ),
    ("known.csv", "", "line 1 names no column 'source'"),
    (
        "known.yaml",
        "required: []",
        "read from files that end in .toml, .csv, .dagitty, .tetrad, .txt, .bif, .knowledge, not in '.yaml'",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES, ids=[message[:30] for *_, message in BAD_FILES])
def test_unreadable_files_are_refused_with_row_and_remedy(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(KnowledgeError, match=re.escape(message)):
        Knowledge.read(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(KnowledgeError, match="no such file"):
        vcuda.fit(table(), knowledge=tmp_path / "known.toml")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return int(left.value.code or 0)


def test_flags_of_the_command_line(tmp_path, capsys):
    data, known, folder = tmp_path / "data.csv", tmp_path / "known.csv", tmp_path / "run"
    frame = table().to_frame().rename(columns={"e": "e, late"})
    frame.to_csv(data, index=False)
    known.write_text("source,target,kind\na,c,required\n")
    seen = ["--require", "c -> b", "--forbid", "a->d", "--tier", "a, c", "--tier", '"e, late",b']
    more = ["--no-within-tiers", "--root", "d", "--sink", "b", "--knowledge", known]
    assert run("fit", data, "-o", folder, "--model", "linear", *seen, *more) == 2
    assert "'a' -> 'c' is required, but both are in tier 1" in capsys.readouterr().err
    assert run("fit", data, "-o", folder, "--model", "linear", *seen, *more[1:]) == 0
    assert "2 edges required, 1 edge forbidden, 2 tiers, 1 root, 1 sink" in " ".join(capsys.readouterr().out.split())
    posterior = vcuda.Posterior.load(folder)
    expected = Knowledge(
        required=["a -> c", "c -> b"],
        forbidden=["a -> d"],
        tiers=[["a", "c"], ["e, late", "b"]],
        roots=["d"],
        sinks=["b"],
    )
    assert Knowledge.from_dict(posterior.provenance["knowledge"]) == expected
    check_obedience(expected, posterior.sample(SAMPLES).dense(), posterior.names)
    assert run("fit", data, "--root", "dd") == 2
    assert "did you mean 'd'?" in capsys.readouterr().err
    assert run("fit", data, "--root", "a", "--engine", "dds") == 2
    assert "engine dds cannot obey knowledge" in capsys.readouterr().err
    known.with_suffix(".toml").write_text('tiers = [["a"], ["b"]]')
    assert run("fit", data, "--tier", "a", "--knowledge", known.with_suffix(".toml")) == 2
    assert "tiers are given twice" in capsys.readouterr().err


PAGE = Path(__file__).parent.parent / "docs" / "knowledge.md"
BLOCKS = re.findall(
    r"```(python|toml|csv)(?: title=(\S+))?\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL
)


def test_the_page_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for kind, title, content in BLOCKS:
        if kind == "python":
            exec(compile(content, str(PAGE), "exec"), scope)
        else:
            Path(title).write_text(content)
    assert "obeys the stated knowledge" in capsys.readouterr().out
