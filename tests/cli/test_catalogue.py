"""`fedwca list`, `fedwca show`, `fedwca --version`."""

from __future__ import annotations

import json

import pytest

import fedwca
from fedwca.cli import make_command
from fedwca.cli.complete import baselines, complete_names, pictures, presets, reproductions
from fedwca.config.component_registries import PLURALS, registry_of
from fedwca.config.run_config import TABLES, RunConfig
from fedwca.core.training_settings import Training

from .conftest import call


def test_version() -> None:
    run = call("--version")
    assert (run.code, run.out) == (0, f"fedwca {fedwca.__version__}\n")


def test_list_prints_every_kind() -> None:
    lines = dict(line.split(maxsplit=1) for line in call("list").out.splitlines())
    assert set(lines) == {*PLURALS.values(), "baselines", "baselines_of_sfda", "baselines_of_upfl", "presets"}
    assert "wca" in lines["aggregators"]
    assert "fedavg" in lines["baselines"]
    assert json.loads(call("list", "--json").out)["presets"] == [
        "default",
        "paper",
        "sfda",
        "skewed",
        "upfl",
        "upfl_released",
    ]


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        *(("aggregator", "aggregators"), ("aggregators", "aggregators"), ("pseudo-labelers", "pseudo_labelers")),
        *(("Pseudo_Labeler", "pseudo_labelers"), ("presets", "presets"), ("preset", "presets"), ("model", "models")),
    ],
)
def test_list_one_kind_says_what_each_is(kind: str, plural: str) -> None:
    run, names = call("list", kind), json.loads(call("list", kind, "--json").out)
    assert run.code == 0
    assert list(names) == [plural]
    lines = dict(line.split(maxsplit=1) for line in run.out.splitlines())
    assert list(lines) == names[plural]
    assert not any(line.endswith((" eq.", " sec.", " App.")) for line in lines.values())


def test_a_pattern_may_match_nothing() -> None:
    assert call("list", "aggregators", "nosuch*").code == 2
    assert json.loads(call("list", "aggregators", "nosuch*", "--json").out) == {"aggregators": []}
    run = call("list", "baselines", "fedwca*")
    assert (run.code, run.out.split()[0], run.out.count("of_")) == (0, "baselines:", 0)


def test_list_knows_the_names_that_it_prints() -> None:
    kinds = [line.split(maxsplit=1)[0] for line in call("list").out.splitlines()]
    for name in kinds:
        assert name in json.loads(call("list", name, "--json").out)
    assert call("list", "baseline").out == call("list", "baselines").out


def test_a_setting_without_a_baseline_is_refused() -> None:
    assert call("show", "baseline", "upfl/fedavg").code == 0
    for setting in ("ulpf", "sfda"):
        refused = call("show", "baseline", f"{setting}/fedavg")
        assert (refused.code, "Known: ffreeda, upfl" in refused.err) == (2, True)


def test_show_says_how_a_field_is_set() -> None:
    assert "Set one with --set aggregator.FIELD=VALUE or wca:FIELD=VALUE" in call("show", "aggregator", "wca").out
    assert "Set one with --logger mlflow:FIELD=VALUE" in call("show", "logger", "mlflow").out
    sentence = "Set one with --set central.dan.FIELD=VALUE or METHOD/central=dan:FIELD=VALUE"
    assert sentence in call("show", "central", "dan").out


def test_show_prints_a_components_fields() -> None:
    output = call("show", "aggregator", "WCA").out
    for part in ("FedWCA", "sec. 4.2, eqs. 1-3, 7-8", "ta", "0.01", "number > 0", "column, row", "T_a of eq. 1"):
        assert part in output
    assert "--set aggregator.FIELD=VALUE or wca:FIELD=VALUE" in output


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in PLURALS for name in registry_of(kind).names()])
def test_everything_that_is_listed_can_be_shown(kind: str, name: str) -> None:
    run = call("show", kind, name)
    assert run.code == 0, run.err
    as_json = json.loads(call("show", kind, name, "--json").out)
    assert as_json["name"] == name
    cls = registry_of(kind).get(name)
    assert set(as_json["fields"]) == set(cls.model_fields)
    assert all(field in run.out for field in cls.model_fields)


@pytest.mark.parametrize("name", ["run", *TABLES])
def test_tables_of_the_configuration_are_shown(name: str) -> None:
    cls = TABLES.get(name, RunConfig)
    fields = set(cls.model_fields) - ({*TABLES, "components", "methods"} if name == "run" else set())
    run = call("show", name.replace("_", "-"))
    assert run.code == 0, run.err
    assert all(field in run.out for field in fields)
    assert (f"--set {name}.FIELD=VALUE" in run.out) == (name != "run")
    assert set(json.loads(call("show", name, "--json").out)["fields"]) == fields


def test_show_baseline() -> None:
    run = call("show", "baseline", "source-only")
    assert "label: Source Only" in run.out
    assert json.loads(call("show", "baseline", "fedavg", "--json").out)["aggregator"] == "fedavg"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "agregators"], "no kind 'agregators'; did you mean 'aggregator'? Known: dataset, model"),
        (["show", "agregator", "wca"], "no kind 'agregator'"),
        (["show", "aggregator", "wac"], "did you mean 'wca'?"),
        (["show", "aggregator"], "fedwca show aggregator needs a name; fedwca list aggregator names all"),
        (["show", "presets"], "fedwca show presets needs a name; fedwca list presets names all"),
        (["show", "agregator"], "no kind 'agregator'"),
        (["show", "mdmgb"], "lacks the kind: fedwca show aggregator mdmgb or fedwca show baseline mdmgb"),
        (["show", "upfl"], "fedwca show upfl lacks the kind: fedwca show preset upfl"),
        (["show", "training", "lr"], "fedwca show training takes no name, but 'lr' was given"),
        (["show", "baseline", "wca"], "no baseline 'wca'"),
        (["show", "baseline", "mdmg"], "did you mean 'mdmgb'?"),
        (["show", "baseline", "One-Hott"], "did you mean 'one_hot'?"),
        (["show", "baseline", "sfda/mdmg"], "did you mean 'mdmgb'? Known: dan, dann"),
        (["list", "aggregators", "nothing"], "no aggregators like 'nothing'; fedwca list aggregators names all"),
    ],
)
def test_an_unknown_kind_or_name_is_refused(arguments: list[str], sentence: str) -> None:
    run = call(*arguments)
    assert run.code == 2
    assert run.err.startswith("Error: ")
    assert sentence in run.err


def test_completion_knows_both_spellings() -> None:
    assert complete_names("aggregator")("one-h") == ["one-hot"]
    assert complete_names("aggregator")("one_h") == ["one_hot"]  # shells leave out what does not begin as typed
    assert "source-only" in baselines("")
    assert presets("p") == ["paper"]
    assert "upfl-table1" in reproductions("upfl-")
    assert reproductions("sfda_table4") == ["sfda_table4"]
    assert pictures("weights_") == ["weights_animation"]


def test_list_takes_a_pattern() -> None:
    assert json.loads(call("list", "aggregators", "W*A", "--json").out) == {"aggregators": ["wca"]}
    names_by_kind = json.loads(call("list", "--json").out)
    assert json.loads(call("list", "baselines", "fed*", "--json").out)["baselines"] == [
        name for name in names_by_kind["baselines"] if name.startswith("fed")
    ]


@pytest.mark.parametrize("words", [["bench"], ["deploy", "init"]])
def test_an_option_says_what_its_field_says(words: list[str]) -> None:
    command = make_command()
    for word in words:
        command = command.commands[word]
    options = {option.name: option for option in command.params}
    for name in ("model", "batch_size", "precision", "aggregator", "objectives", "source"):
        field = (Training if name == "batch_size" else RunConfig).model_fields[name]
        assert options[name].help.startswith(" ".join(str(field.description).split()))
    assert options["model"].help.endswith("Default: lenet.")
    assert "Unset: the data set's own default" in options["source"].help
