"""Every option of a fit is described once; what is derived from the description agrees with it."""

import inspect
import json
import pickle
from typing import get_args

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.baselines import BASELINES
from vcuda.cli import app
from vcuda.cli.fit_options import SHOWN_AFTER
from vcuda.dags.base import PRIORS, prior_from_json
from vcuda.data import streaming
from vcuda.errors import ConfigError
from vcuda.fitting.routes import ENGINES
from vcuda.fitting.spec import (
    CALL_OPTIONS,
    ENGINE_NAMES,
    MODEL_NAMES,
    NOISE_NAMES,
    OPTIONS,
    PLAIN_TYPES,
    PRESETS,
    FitCall,
    FitSpec,
    Preset,
    prior_as_passed,
    prior_of,
)
from vcuda.models import FAMILIES, MODELS
from vcuda.models.protocol import Noise
from vcuda.outputs.reproduction import python_lines, shell_line
from vcuda.posterior.provenance import PRIOR_NAMES
from vcuda.specs import to_json

TABLE = pd.DataFrame(np.random.default_rng(5).lognormal(size=(60, 3)), columns=["a", "b", "c"])
QUICK = {"model": "linear", "engine": "exact"}


def test_names_are_those_that_the_package_has():
    assert set(MODEL_NAMES) == {"auto", *FAMILIES, *MODELS}
    assert ("auto", *ENGINES, *BASELINES) == ENGINE_NAMES
    assert get_args(Noise) == NOISE_NAMES
    assert get_args(Preset) == PRESETS


def test_the_signature_and_the_docstring_of_fit_have_every_option():
    parameters = inspect.signature(vcuda.fit).parameters
    assert list(parameters) == ["data", *CALL_OPTIONS]
    for name, option in CALL_OPTIONS.items():
        assert parameters[name].default == option.default
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"\n{name}\n    " in vcuda.fit.__doc__
    assert max(map(len, vcuda.fit.__doc__.splitlines())) <= 120
    assert vcuda.fit.__name__ == "fit"


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_is_described_in_full(name):
    option = OPTIONS[name]
    assert option.plain in PLAIN_TYPES
    assert option.help.endswith(".")
    assert option.default is None or option.is_plain(option.default)
    assert option.checked(option.default) == option.default
    assert option.flag is not None


def test_the_command_line_has_every_option_and_hides_old_names():
    import typer

    command = typer.main.get_command(app).commands["fit"]
    flags = {parameter.name: parameter for parameter in command.params}
    for name, option in OPTIONS.items():
        assert "/".join((*flags[name].opts, *flags[name].secondary_opts)) == "/".join(
            (option.flag, *option.other_flags)
        )
        assert option.help in flags[name].help
    assert flags["without"].hidden
    assert not flags["exclude"].hidden
    assert set(SHOWN_AFTER) <= set(flags)


def test_priors_go_to_json_and_back():
    for prior in (vcuda.DagPrior(0.2, order_scale=0.3), vcuda.UniformDags(), vcuda.UniformDags(0.2)):
        assert prior_from_json(json.loads(json.dumps(to_json(prior)))) == prior
        assert prior_of(prior_as_passed(to_json(prior))) in (prior, prior.edge_probability)
    # Runs of earlier versions have no name.
    assert prior_from_json({"edge_probability": 0.2, "order_scale": 0.1}) == vcuda.DagPrior(0.2)
    assert tuple(PRIORS) == PRIOR_NAMES


def test_a_spec_goes_to_workers_and_holds_plain_values():
    spec = FitSpec(
        seed=np.int64(3), standardise=np.bool_(True), prior=np.float32(0.25), log="a", imputations=np.int8(2)
    )
    assert (spec.seed, spec.standardise, spec.prior, spec.log, spec.imputations) == (3, True, 0.25, ("a",), 2)
    assert type(spec.seed) is int
    assert pickle.loads(pickle.dumps(spec)).seed == 3
    call = FitCall(progress=lambda progress: None, interventions=np.ones((2, 2)), knowledge=vcuda.Knowledge())
    resolved = call.resolved(prior=vcuda.DagPrior(0.2))
    assert type(resolved) is FitSpec
    assert resolved.interventions is None
    assert resolved.knowledge is None
    assert json.dumps(resolved.to_provenance())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": True}, "seed must be a whole number"),
        ({"seed": -1}, "from 0 to"),
        ({"standardise": 1}, "standardise must be True or False"),
        ({"streamed": "yes"}, "streamed must be True or False"),
        ({"imputations": 0}, "at least 1"),
        ({"time_limit": True}, "time_limit must be a number"),
        ({"prior": "often"}, "number between 0 and 1, 'uniform' or"),
        ({"prior": 1}, "strictly between 0 and 1"),
        ({"log": 3}, "log must be a list of column names"),
        ({"model": vcuda.MLP}, r"make a spec of it: MLP\(\)"),
        ({"model": 3}, "or a spec such as MLP"),
        ({"engine": vcuda.MLP()}, "or a spec such as Orders"),
        ({"progress": 3}, "progress must be a function"),
        ({"seed": None, "resume": True, "checkpoint": "somewhere"}, "goes on with its own seed"),
    ],
)
def test_a_value_that_cannot_be_is_refused_before_the_table_is_read(options, message):
    with pytest.raises(ConfigError, match=message):
        vcuda.fit("no such table.csv", **options)


def test_an_unknown_option_is_a_type_error_that_names_a_near_one():
    with pytest.raises(TypeError, match=r"fit\(\) got an unexpected keyword argument 'modle'; did you mean 'model'"):
        vcuda.fit(TABLE, modle="linear")
    with pytest.raises(TypeError, match="give options by name"):
        vcuda.fit(TABLE, "linear")
    with pytest.raises(TypeError, match=r"CausalPosterior\(\) got an unexpected keyword argument 'columns'"):
        vcuda.CausalPosterior(columns=["a"])


def test_old_names_work_and_warn_at_the_line_that_has_them():
    new = vcuda.fit(TABLE, **QUICK, log=["a"], exclude=["c"])
    with pytest.warns(DeprecationWarning, match="is now") as warned:
        old = vcuda.fit(TABLE, **QUICK, logarithm=["a"], without=["c"])
    assert [str(one.message).partition(";")[0] for one in warned] == [
        "logarithm= is now log=",
        "without= is now exclude=",
    ]
    assert {one.filename for one in warned} == {__file__}
    assert old.edge_probabilities.equals(new.edge_probabilities)
    assert old.names == ("a", "b")
    with pytest.warns(DeprecationWarning, match="model='discrete' is now model='categorical'") as warned:
        posterior = vcuda.fit(TABLE.round().clip(upper=2), model="discrete", engine="exact")
    assert warned[0].filename == __file__
    assert posterior.provenance["model"]["name"] == "categorical"
    with pytest.warns(DeprecationWarning, match="without= is now exclude=") as warned:
        assert vcuda.as_dataset(TABLE, without=["c"]).names == ("a", "b")
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="logarithm= is now log="):
        assert vcuda.CausalPosterior(logarithm=["a"]).log == ["a"]
    with pytest.warns(DeprecationWarning, match="logarithm= is now log="):
        assert vcuda.CausalPosterior().set_params(logarithm=["a"]).get_params()["log"] == ["a"]
    with pytest.raises(ConfigError, match="without is the old name of exclude"):
        vcuda.fit(TABLE, exclude=["c"], without=["c"])


def test_old_flags_work_with_a_note(run, tmp_path):
    TABLE.round().clip(upper=2).to_csv(tmp_path / "t.csv", index=False)
    wish = ("--without", "c", "--model", "discrete", "--engine", "exact", "--no-report", "--quiet")
    answer = run("fit", tmp_path / "t.csv", "-o", tmp_path / "run", *wish)
    assert answer.code == 0
    assert "vcuda: --without is now --exclude; the old name goes with the next release\n" in answer.err
    assert "vcuda: --model discrete is now --model categorical; the old name goes with the next release\n" in answer.err
    posterior = vcuda.Posterior.load(tmp_path / "run")
    assert posterior.names == ("a", "b")
    assert posterior.provenance.model_name == "categorical"
    assert run("check", tmp_path / "t.csv", "--without", "c").code == 0
    assert run("fit", tmp_path / "t.csv", "--without", "c", "--exclude", "c").code == 2
    assert "discrete" not in run("fit", "--help").out


def test_the_command_opens_a_table_once(run, tmp_path, monkeypatch):
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    opened = []
    open_table = streaming.open_table
    monkeypatch.setattr(
        streaming, "open_table", lambda *given, **how: opened.append(given) or open_table(*given, **how)
    )
    flags = ("--model", "linear", "--engine", "exact", "--quiet", "--no-report")
    assert run("fit", tmp_path / "t.csv", "-o", tmp_path / "run", *flags).code == 0
    assert len(opened) == 1


@pytest.mark.parametrize("prior", [0.2, "uniform:0.2"])
def test_every_option_that_was_passed_is_stored_and_repeated(tmp_path, prior):
    """An option that the report leaves out, or that a run forgets, makes another posterior."""
    path = tmp_path / "t.csv"
    TABLE.to_csv(path, index=False)
    passed = {
        **QUICK,
        "noise": "equal",
        "log": ["a"],
        "prior": prior,
        "exclude": ["c"],
        "standardise": True,
        "streamed": False,
        "time_limit": 1000.0,
        "seed": 7,
    }
    posterior = vcuda.fit(path, **passed)
    posterior.save(tmp_path / "run")
    stored = vcuda.Posterior.load(tmp_path / "run").provenance
    for name, value in passed.items():
        assert stored.options[name] == value
        assert f"    {name}={value!r}," in python_lines(posterior)
    line = shell_line(posterior)
    for words in (
        f"--prior {prior}",
        "--log a",
        "--exclude c",
        "--standardise",
        "--in-memory",
        "--time-limit 1000.0",
        "--seed 7",
    ):
        assert words in line
