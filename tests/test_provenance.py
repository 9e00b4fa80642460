"""Provenance is a dict of JSON with typed parts; runs of every version are read, checked and kept as they are."""

import json
from pathlib import Path

import pytest

import vcuda
from vcuda.errors import ConfigError
from vcuda.fitting.spec import OPTIONS
from vcuda.posterior.provenance import PASSED, Provenance

FIXTURES = Path(__file__).parent / "fixtures"
STORED = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FIXTURES.glob("*/*/config.json"))]


def stored() -> dict:
    return json.loads(json.dumps(STORED[0]["provenance"]))


def test_it_is_still_a_dict():
    made = Provenance(stored())
    assert isinstance(made, dict)
    assert made["seed"] == made.seed == 1
    assert json.loads(json.dumps(made)) == made == stored()
    assert made.get("nothing") is None


@pytest.mark.parametrize("config", STORED, ids=lambda config: config["provenance"]["engine"]["name"])
def test_runs_of_earlier_versions_say_what_they_said(config):
    said = config["provenance"]
    made = Provenance.from_json(said)
    assert {key: made[key] for key in said if key != "model"} == {key: said[key] for key in said if key != "model"}
    assert made.engine_name == said["engine"]["name"]
    assert (made.rows, made.columns, made.seed) == (said["data"]["rows"], said["data"]["columns"], said["seed"])
    assert set(made.options) == set(OPTIONS)
    assert made.model_name != "discrete"


def test_the_old_name_of_a_model_becomes_the_new_one(tmp_path):
    posterior = vcuda.Posterior.load(FIXTURES / "run-format-1" / "orders-discrete")
    assert posterior.provenance.model_name == posterior.summary()["model"] == "categorical"
    posterior.save(tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text(encoding="utf-8"))
    assert config["provenance"]["model"]["name"] == config["law"]["predictive"]["kind"] == "categorical"
    assert vcuda.Posterior.load(tmp_path / "again").edge_probabilities.equals(posterior.edge_probabilities)


def test_fields_of_later_versions_are_kept(tmp_path):
    posterior = vcuda.Posterior.load(FIXTURES / "run-format-1" / "exact-linear")
    posterior.provenance["weather"] = {"rain": [1, 2]}
    posterior.save(tmp_path / "run")
    assert vcuda.Posterior.load(tmp_path / "run").provenance["weather"] == {"rain": [1, 2]}


def test_what_an_early_run_did_not_say_has_its_default():
    early = {key: value for key, value in stored().items() if key not in ("preset", "standardise", "time_limit")}
    made = Provenance.from_json(early)
    assert (made["preset"], made["standardise"], made.options["time_limit"]) == ("default", False, None)


@pytest.mark.parametrize("name", PASSED)
def test_a_stored_value_of_another_type_is_refused(name):
    with pytest.raises(ConfigError, match=f"no {name} that vcuda can use"):
        Provenance.from_json(stored() | {name: [["x"]]})


def test_a_stored_text_cannot_begin_another_line():
    with pytest.raises(ConfigError, match="no preset that vcuda can use"):
        Provenance.from_json(stored() | {"preset": "default\nimport os"})
    for key in ("chosen", "without"):
        with pytest.raises(ConfigError, match="no data that vcuda can use"):
            Provenance.from_json(stored() | {"data": stored()["data"] | {key: "a"}})
