"""Layers of a configuration, the origins of its values, and reading it back from files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedwca.adaptations import adaptations
from fedwca.aggregators.wca import WCA
from fedwca.component import Component
from fedwca.config.added_fields import with_added_fields
from fedwca.config.compose_methods import changed_training
from fedwca.config.config_layers import layer_from_words, resolve
from fedwca.config.describe_method import describe_method
from fedwca.config.read_config_file import read_file
from fedwca.config.resolve_config import RunPlan, provenance, resolve_plan
from fedwca.config.run_config import TABLES, RunConfig, validate
from fedwca.config.spell_out import spell_out
from fedwca.core.objective import Objective
from fedwca.core.plain_values import to_plain
from fedwca.core.training_settings import SourceTraining, Training
from fedwca.errors import InvalidConfig, UnknownComponent, UsageError
from fedwca.objectives import objectives
from fedwca.results.differing_settings import differing_settings

METHOD_FIELDS = {"aggregator": "ta", "objective": "lam", "pseudo_labeler": "mu", "clusterer": "level"}


def part(plan: RunPlan, name: str, kind: str) -> Component:
    method = next(method for method, _ in plan.methods if method.name == name)
    return method.objectives[0] if kind == "objective" else getattr(method, kind)  # type: ignore[no-any-return]


def toml(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults_compose_four_methods() -> None:
    plan = resolve_plan({})
    assert [(method.name, rounds) for method, rounds in plan.methods] == [
        ("source_only", 0),
        ("local", 10),
        ("fedavg", 10),
        ("wca", 10),
    ]
    assert plan.config.dataset == "digits_mini"
    assert set(plan.origins.values()) <= {"preset default"}
    composed = plan.methods[-1][0]
    assert (composed.clusterer and composed.clusterer.name, composed.pseudo_labeler.name) == ("ada_bn", "two_model")
    assert composed.label == "FedWCA, moments"


@pytest.mark.parametrize(
    ("layer", "pairs", "preset_name", "clusterer"),
    [
        ({}, [], "default", "ada_bn"),
        ({"dataset": "digit_five", "source": "synth", "aggregator": "one_hot"}, [], "default", "ada_bn"),
        ({"clusterer": "finch"}, [("clusterer.signature", "2")], "default", "finch"),
        ({}, [("clusterer.layers", "all")], "default", "ada_bn"),
        # No BatchNorm in front of the classifier, no source model, no clusters, or nothing composed.
        ({"model": "mlp"}, [], "default", None),
        ({"model": "lenet:head=hidden"}, [], "default", None),
        ({}, [("model.head", "direct")], "default", None),
        ({"target": "neon"}, [], "default", None),
        ({"partition": "shards"}, [], "default", None),
        ({"aggregator": "fedavg", "baselines": ["fedwca"]}, [("clusterer.signature", "2")], "default", None),
        ({"composed": False, "baselines": ["fedwca"]}, [], "default", None),
        ({"dataset": "digit_five", "source": "synth"}, [], "paper", "finch"),
        ({"dataset": "digit_five", "source": "synth", "aggregator": "fedavg"}, [], "paper", None),
    ],
    ids=str,
)
def test_a_presets_clusterer_is_taken_where_it_is_of_use(
    layer: dict[str, Any], pairs: list[tuple[str, str]], preset_name: str, clusterer: str | None
) -> None:
    plan = resolve_plan(layer, pairs, preset_name)
    assert plan.config.clusterer == clusterer
    wca = [method for method, _ in plan.methods if method.name in ("wca", "fedwca", "one_hot")]
    assert [method.clusterer and method.clusterer.name for method in wca] == [clusterer or "finch"] * len(wca)


def test_an_older_run_keeps_its_clusters(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"config": {"clusterer": None, "rounds": 3}}))
    (method, _) = resolve_plan({}, file=file).methods[-1]
    assert method.clusterer
    assert (method.clusterer.name, method.label) == ("finch", "FedWCA")


def test_each_layer_wins_over_those_below(tmp_path: Path) -> None:
    from_preset = resolve_plan({"dataset": "pacs"}, preset_name="paper")
    assert (from_preset.config.rounds, from_preset.config.clients, from_preset.config.training.lr) == (100, 3, 1e-4)
    file = toml(tmp_path / "c.toml", "dataset = 'pacs'\nrounds = 7\n[training]\nlr = 0.5\nepochs = 2\n")
    from_file = resolve_plan({}, preset_name="paper", file=file)
    assert (from_file.config.rounds, from_file.config.clients, from_file.config.training.lr) == (7, 3, 0.5)
    from_cli = resolve_plan({"rounds": 3, "training": {"lr": 0.25}}, [("training.epochs", "9")], "paper", file)
    assert from_cli.config.rounds == 3
    assert from_cli.config.training.lr == 0.25
    assert from_cli.config.training.epochs == 9
    assert from_cli.config.training.weight_decay == 1e-3
    assert from_cli.origins["rounds"] == from_cli.origins["training.lr"] == from_cli.origins["training.epochs"] == "CLI"
    assert from_cli.origins["dataset"] == "config"
    assert from_cli.origins["clients"] == from_cli.origins["training.weight_decay"] == "preset paper"
    assert "seed" not in from_cli.origins
    shown = provenance(from_cli)
    assert list(shown) == ["CLI", "config", "preset paper"]
    assert "rounds = 3" in shown["CLI"]
    assert "aggregator.wca.ta = 0.1" in shown["preset paper"]


@pytest.mark.parametrize(
    ("kind", "layer", "pairs"),
    [
        ("aggregator", {"aggregator": "wca:ta=0.5"}, []),
        ("aggregator", {"aggregator": {"name": "wca", "ta": 0.5}}, []),
        ("aggregator", {}, [("aggregator.ta", "0.5")]),
        ("aggregator", {}, [("aggregator.wca.ta", "0.5")]),
        ("aggregator", {}, [("Aggregator.TA", "0.5")]),
        ("aggregator", {"aggregator": "wca:ta=0.2"}, [("aggregator.ta", "0.5")]),
        ("pseudo_labeler", {}, [("pseudo-labeler.mu", "0.5")]),
        ("pseudo_labeler", {}, [("pseudo_labeler.two-model.mu", "0.5")]),
        ("pseudo_labeler", {"pseudo_labeler": "two-model:mu=0.5"}, []),
        ("objective", {"objectives": ["shot:lam=0.5"]}, []),
        ("objective", {}, [("objective.lam", "0.5")]),
    ],
    ids=str,
)
def test_fields_of_components_in_every_form(kind: str, layer: dict[str, Any], pairs: list[tuple[str, str]]) -> None:
    plan = resolve_plan(layer, pairs)
    component = part(plan, "wca", kind)
    assert getattr(component, METHOD_FIELDS[kind]) == 0.5
    assert plan.origins[f"components.{kind}.{component.name}.{METHOD_FIELDS[kind]}"] == "CLI"


def test_a_clusterer_is_set_though_it_was_not_named() -> None:
    plan = resolve_plan({}, [("clusterer.level", "1")])
    assert part(plan, "wca", "clusterer").model_dump()["level"] == 1


def test_a_field_that_every_method_states_itself_is_refused() -> None:
    layer: dict[str, Any] = {"baselines": ["fedprox"], "aggregator": "fedavg"}
    assert resolve_plan(layer, [("objective.proximal.mu", "1e-2")])  # the value that its file states
    with pytest.raises(UsageError) as caught:
        resolve_plan(layer, [("objective.proximal.mu", "0.1")])
    assert str(caught.value) == (
        "objective.proximal.mu is given, but each method of this run that has the objective 'proximal' states mu "
        "itself; a method named with its part, as METHOD/objective=proximal, leaves the part's fields open"
    )
    assert resolve_plan(layer | {"baselines": ["fedprox/objective=shot+proximal"]}, [("objective.proximal.mu", "0.1")])
    assert resolve_plan(layer | {"objectives": ["shot", "proximal"]}, [("objective.proximal.mu", "0.1")])


def test_a_training_value_that_every_method_states_itself_is_refused() -> None:
    layer: dict[str, Any] = {"baselines": ["sfda_ls_pl"], "composed": False, "target": "neon"}
    sentence = "training.lr is given, but each method of this run has its own, SFDA-LS-PL 0.05; give it under "
    for given in ({"pairs": [("training.lr", "0.1")]}, {"tried": [("Training. lr", "0.1")]}):
        with pytest.raises(UsageError, match=re.escape(f"{sentence}[methods.sfda_ls_pl] in a file for --config")):
            resolve_plan(layer, **given)
    with pytest.raises(UsageError, match=r"^finish_training.lr is given, .* SFDA-LS-PL 0.05; leave it out$"):
        resolve_plan(layer, [("finish_training.lr", "0.1")])
    assert resolve_plan(layer, [("training.lr", "0.05"), ("training.batch_size", "8")])
    assert resolve_plan(layer | {"baselines": ["sfda_ls_pl", "sfda"]}, [("training.lr", "0.1")])
    assert resolve_plan(layer | {"training": {"lr": 0.1}}), "of all methods of a table, or of a preset"


def test_a_problem_of_several_fields_has_the_place_that_a_problem_of_one_has() -> None:
    with pytest.raises(InvalidConfig, match=r"^tent: training: steps = 5 says how long a round is"):
        changed_training(Training(), {"steps": 5, "epochs": 2}, "tent")
    with pytest.raises(InvalidConfig, match=r"^tent: training\.steps: .*greater than 0 \(given 0\)$"):
        changed_training(Training(), {"steps": 0}, "tent")
    with pytest.raises(InvalidConfig, match=r"^adaptation entropy: candidates says which model is taken"):
        adaptations.build("entropy:candidates=all")


def test_where_a_training_value_is_to_be_given_is_right_for_a_changed_method(tmp_path: Path) -> None:
    file = toml(tmp_path / "c.toml", "[methods.sfda_ls_pl.training]\nlr = 0.1\n")
    for word in ("mine=sfda_ls_pl", "sfda_ls_pl/objective=cross_entropy"):
        layer: dict[str, Any] = {"baselines": [word], "composed": False, "target": "neon"}
        with pytest.raises(UsageError, match=r"give it under \[methods\.sfda_ls_pl\] in a file for --config"):
            resolve_plan(layer, [("training.lr", "0.1")])
        ((method, _),) = resolve_plan(layer, file=file).methods
        assert method.training_in(RunConfig().training).lr == 0.1


def test_a_partition_of_a_file_comes_from_the_file(tmp_path: Path) -> None:
    file = toml(tmp_path / "c.toml", "partition = 'dirichlet'\n")
    assert resolve_plan({}, file=file).origins["partition"] == "config"
    assert resolve_plan({"partition": "dirichlet"}).origins["partition"] == "CLI"
    assert resolve_plan({"target": "neon"}).origins["partition"] == "CLI"


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (
            [("agregator.ta", "1")],
            "--set agregator.ta=1: no kind 'agregator'; did you mean 'aggregator'? Known: dataset, model",
        ),
        ([("aggregator.wca.ta.x", "1")], "has not the right number of parts"),
        ([("training", "1")], "has not the right number of parts"),
        ([("training.speed", "1")], "training.speed: there is no such field (given '1')"),
        ([("training.epoch", "1")], "training.epoch: there is no such field; did you mean 'epochs'? (given '1')"),
        ([("training.lr", "-1")], "training.lr: Input should be greater than 0 (given '-1')"),
        ([("aggregator.tc", "1")], "aggregator wca.tc: there is no such field (given '1')"),
        ([("aggregator.ta", "0")], "aggregator wca.ta: Input should be greater than 0"),
        ([("aggregator.one_hot.weighting", "samples")], "no method of this run uses the aggregator 'one_hot'"),
        ([("model.resnet.depth", "18")], "no method of this run uses the model 'resnet'"),
        (
            [("model.name", "resnet18")],
            "model.lenet.name: there is no such field; another model is named by itself, as --model resnet18",
        ),
        ([("pseudo-labeler.two-model.name", "x")], "another pseudo_labeler is named by itself, as --pseudo-labeler x"),
        ([("central.dann.name", "dan")], "another central is named by itself, as METHOD/central=dan"),
    ],
    ids=str,
)
def test_wrong_set_options_are_refused(pairs: list[tuple[str, str]], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_plan({}, pairs)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"rounds": 0}, "rounds: Input should be greater than 0 (given 0)"),
        ({"training": {"batch_size": 0}}, "training.batch_size: Input should be greater than or equal to 2 (given 0)"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0 (given -1)"),
        ({"engine": "warp"}, "engine: Input should be 'auto', 'loop' or 'stacked' (given 'warp')"),
        ({"aggregator": "wac"}, "no aggregator 'wac'; did you mean 'wca'?"),
        ({"clusterer": "finsh"}, "no clusterer 'finsh'; did you mean 'finch'?"),
        ({"pseudo_labeler": "two-models"}, "no pseudo-labeler 'two_models'; did you mean 'two_model'?"),
        ({"objectives": ["shoot"]}, "no objective 'shoot'; did you mean 'shot'?"),
        ({"baselines": ["fed-avg"]}, "no baseline 'fed_avg'; did you mean 'fedavg'?"),
        ({"aggregator": "fedavg", "clusterer": "finch", "baselines": []}, "clusterer 'finch' is not used"),
        ({"aggregator": "local", "clusterer": "true", "baselines": []}, "clusterer 'true' is not used"),
        (
            {"aggregator": "fedavg", "baselines": ["fedavg"]},
            "two methods are called 'fedavg'; give the composed one another --name",
        ),
        ({"name": "local"}, "two methods are called 'local'"),
        ({"name": "Local"}, "two methods are called 'local'; give the composed one another --name"),
        ({"aggregator": 3}, "aggregator: needs a name or a table, not 3"),
        ({"aggregator": WCA}, "WCA'>; WCA() would be an instance"),
        ({"objectives": 3}, "objective: needs a name or a table, not 3"),
        ({"components": "x"}, "components: needs tables kind.name.field, not 'x'"),
        ({"components": {"aggregator": 3}}, "components.aggregator: Input should be a valid dictionary (given 3)"),
        ({"training": 3}, "training: Input should be a valid dictionary"),
        ({"components": {"agregator": {"wca": {"ta": 1}}}}, "no method of this run uses the agregator 'wca'"),
        (
            {"components": {"model": {"timm:a.b": {"head": "direct"}}}},
            "no method of this run uses the model 'timm:a.b'",
        ),
        (
            {"components": {"clusterer": {"kmeans": {"k": {"a": 1}}}}},
            "no method of this run uses the clusterer 'kmeans'",
        ),
        ({"components": {"clusterer": {"kmeans": {"k": {}}}}}, "no method of this run uses the clusterer 'kmeans'"),
        ({"model": "lenet:name=resnet"}, "model.lenet.name: there is no such field"),
        ({"components": {"objective": {"shot": {"name": "x"}}}}, "objective.shot.name: there is no such field"),
        (
            {"methods": {"fedavg": {"components": {"aggregator": {"fedavg": {"name": "wca"}}}}}},
            "aggregator.fedavg.name: there is no such field",
        ),
        ({"baselines": ["fedwca:name=fedavg"]}, "aggregator.wca.name: there is no such field"),
        ({"baselines": ["fedwca/clusterer=true:name=finch"]}, "clusterer.true.name: there is no such field"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(layer: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_plan(layer)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(InvalidConfig, match=r"deep\.json: not valid JSON"):
        read_file(tmp_path / "deep.json")


def test_no_target_means_one_partition() -> None:
    assert resolve_plan({"target": "none", "partition": "all-labelled"}).config.partition == "all_labelled"
    with pytest.raises(UsageError, match="means partition all_labelled, not leave_one_out; leave one out"):
        resolve_plan({"target": "none", "partition": "leave_one_out"})


def test_no_such_preset() -> None:
    with pytest.raises(InvalidConfig, match="no preset 'papers'; did you mean 'paper'"):
        resolve_plan({}, preset_name="papers")


def test_a_composed_method_equal_to_a_baseline_is_that_baseline() -> None:
    plan = resolve_plan({"aggregator": "fedavg", "pseudo_labeler": "prototype"})
    assert [method.name for method, _ in plan.methods] == ["source_only", "local", "fedavg"]
    renamed = resolve_plan({"aggregator": "fedavg", "name": "mine"})
    assert [method.name for method, _ in renamed.methods] == ["source_only", "local", "fedavg", "mine"]


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ({"clusterer": "finch"}, "FedWCA"),
        ({"clusterer": "finch", "pseudo_labeler": "prototype"}, "FedWCA, prototypes"),
        ({"clusterer": "finch", "objectives": ["shot", "proximal"]}, "FedWCA, SHOT + proximal term"),
        ({"aggregator": "fedavg", "pseudo_labeler": "prototype"}, "FedAvg"),
        ({"aggregator": "fedavg"}, "FedAvg, two models + mixup"),
        ({"aggregator": "fedavg", "name": "mine"}, "mine"),
        ({"target": "neon", "aggregator": "fedavg", "pseudo_labeler": "argmax", "finish": []}, "FedAvg, argmax"),
    ],
)
def test_a_label_names_the_parts_that_its_paper_has_not(values: dict[str, Any], label: str) -> None:
    assert resolve_plan(values).methods[-1][0].label == label


def test_names_are_canonical_and_baselines_come_once() -> None:
    plan = resolve_plan(
        {"aggregator": "One-Hot", "baselines": ["Source-Only", "source_only"], "dataset": "digits-mini"}
    )
    assert (plan.config.aggregator, plan.config.baselines, plan.config.dataset) == (
        "one_hot",
        ("source_only",),
        "digits_mini",
    )


def test_oracles_are_marked() -> None:
    assert resolve_plan({"clusterer": "true"}).methods[-1][0].label == "FedWCA, True (ORACLE)"
    assert "ORACLE" not in resolve_plan({}).methods[-1][0].label


def test_a_folder_without_a_data_set_is_the_folder_of_domains(tmp_path: Path) -> None:
    file = toml(tmp_path / "c.toml", f"data = {json.dumps(str(tmp_path))}\n")
    assert resolve_plan({"data": tmp_path}).config.dataset == "folder"
    assert resolve_plan({}, file=file).config.dataset == "folder"
    assert resolve_plan({}, file=file).origins["dataset"] == "config"
    rounds_file = toml(tmp_path / "d.toml", "rounds = 3\n")
    assert resolve_plan({"data": tmp_path}, file=rounds_file).config.dataset == "folder"
    assert resolve_plan({"data": tmp_path, "dataset": "pacs"}).config.dataset == "pacs"


ROUND_TRIPS: list[tuple[dict[str, Any], list[tuple[str, str]], str]] = [
    ({}, [], "default"),
    ({"aggregator": "wca:ta=0.5", "clusterer": "finch:level=1"}, [("objective.lam", "0.3")], "default"),
    ({"dataset": "pacs"}, [], "paper"),
    # The preset has values for wca and two_model, which this run does not use.
    ({"dataset": "pacs", "aggregator": "local", "pseudo_labeler": "prototype", "baselines": []}, [], "paper"),
    ({"dataset": "digit-five", "source": "synth", "aggregator": "one-hot", "name": "x", "baselines": []}, [], "paper"),
]


@pytest.mark.parametrize(("layer", "pairs", "preset_name"), ROUND_TRIPS, ids=str)
@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_a_runs_config_given_back_is_the_same_run(
    tmp_path: Path, layer: dict[str, Any], pairs: list[tuple[str, str]], preset_name: str, suffix: str
) -> None:
    first = resolve_plan(layer, pairs, preset_name)
    values = first.config.model_dump(mode="json")
    file = tmp_path / f"config{suffix}"
    file.write_text(json.dumps(to_plain(first.described())) if suffix == ".json" else as_toml(values))
    again = resolve_plan({}, file=file)
    assert again.config == first.config
    assert again.methods == first.methods
    assert RunConfig(**json.loads(first.config.model_dump_json())) == first.config


def as_toml(values: dict[str, Any], prefix: str = "") -> str:
    """The values as TOML; TOML has no null, so unset fields are left out."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if not isinstance(value, dict | None)]
    text = "\n".join(lines) + "\n"
    for key, value in values.items():
        if isinstance(value, dict):
            text += f"[{prefix}{key}]\n" + as_toml(value, f"{prefix}{key}.")
    return text


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("c.toml", "rounds = ", "not valid TOML"),
        ("c.json", "{", "not valid JSON"),
        ("c.JSON", "{", "not valid JSON"),
        ("c.yaml", "rounds: 3", "not valid TOML"),
        ("c.toml", "[methods.one-hot]\nrounds = 'x'", "methods.one_hot.rounds: there is no such field"),
        ("c.json", "[1]", "needs a table of fields, such as rounds = 10"),
        ("c.json", '{"config": 3}', "needs a table of fields"),
        ("c.toml", "ronds = 3", "no field 'ronds'; did you mean 'rounds'? Known: dataset, data, source"),
        ("c.toml", "rounds = 'many'", "rounds: Input should be a valid integer"),
        ("c.toml", "rounds = true", "rounds: is true or false, which is no value here (given True)"),
        ("c.json", '{"training": {"lr": true}}', "training.lr: is true or false, which is no value here (given True)"),
        ("c.toml", "aggregator = 3", "aggregator: needs a name"),
        ("c.toml", "[aggregator]\nta = 1", "aggregator: a table needs a name"),
        ("c.toml", "[training]\nlr = 1\nspeed = 2", "training.speed: there is no such field"),
        (
            "c.toml",
            "[components.aggregator.one_hot]\nweighting = 'samples'",
            "weighting is given in the configuration's file, but no method of this run uses",
        ),
    ],
    ids=str,
)
def test_wrong_files_are_told_apart(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_plan({}, file=toml(tmp_path / name, text))
    assert sentence in str(caught.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"--config .*nothing\.toml: No such file"):
        read_file(tmp_path / "nothing.toml")
    with pytest.raises(InvalidConfig, match="Is a directory"):
        read_file(tmp_path)
    (tmp_path / "image.toml").write_bytes(bytes(range(128, 256)))
    with pytest.raises(InvalidConfig, match="not valid TOML"):
        read_file(tmp_path / "image.toml")


def test_specs_in_a_file(tmp_path: Path) -> None:
    text = (
        "aggregator = 'wca:ta=0.5'\nobjectives = 'shot:lam=0.2'\nbaselines = []\n[clusterer]\nname='finch'\nlevel=2\n"
    )
    plan = resolve_plan({}, file=toml(tmp_path / "c.toml", text))
    assert plan.config.components == {
        "aggregator": {"wca": {"ta": 0.5}},
        "objective": {"shot": {"lam": 0.2}},
        "clusterer": {"finch": {"level": 2}},
    }
    assert [method.name for method, _ in plan.methods] == ["wca"]


def test_fields_of_several_layers_meet(tmp_path: Path) -> None:
    file = toml(tmp_path / "c.toml", "aggregator = 'wca:ta=0.5,tb=0.5'\n")
    plan = resolve_plan({"aggregator": "wca:ta=0.25"}, file=file)
    assert part(plan, "wca", "aggregator").model_dump() == {
        "weighting": "uniform",
        "ta": 0.25,
        "tb": 0.5,
        "direction": "column",
    }


def test_resolve_keeps_the_strongest_origin() -> None:
    config, origins = resolve({"low": {"rounds": 3, "seed": 1}, "high": {"rounds": 4}})
    assert (config.rounds, config.seed) == (4, 1)
    assert origins == {"rounds": "high", "seed": "low"}


def test_unknown_names_in_a_resolved_configuration() -> None:
    with pytest.raises(UnknownComponent):
        resolve_plan(spell_out({"aggregator": "nobody"}))
    with pytest.raises(InvalidConfig, match="there is no such field"):
        validate({"round": 3})


def test_how_to_train_a_source_model_that_is_given(tmp_path: Path) -> None:
    layer = {"checkpoint": "own.pt"}
    plan = resolve_plan(layer)
    # The preset's values have no use then; they are dropped without an error, because the user did not give them.
    assert plan.config.source_training == RunConfig().source_training
    assert not [key for key in plan.origins if key.startswith("source_training")]
    message = "is given, but with a checkpoint no source model is trained; leave out one of both"
    with pytest.raises(UsageError, match=f"source_training.lr {message}"):
        resolve_plan(layer, [("source_training.lr", "0.001")])
    file = toml(tmp_path / "c.toml", "checkpoint = 'own.pt'\nsource_training.epochs = 7\n")
    with pytest.raises(UsageError, match=f"source_training.epochs {message}"):
        resolve_plan({}, file=file)
    run = tmp_path / "config.json"
    run.write_text(json.dumps({"config": plan.config.model_dump(mode="json")}))
    assert resolve_plan({}, file=run).config == plan.config


def test_a_field_without_default_that_was_added_since_a_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exacting(Objective):
        strength: float
        share: float = 0.5

    monkeypatch.setitem(objectives._classes, "exacting", Exacting)
    stored = {"kind": "objective", "name": "exacting"}
    assert with_added_fields({"m": {"components": [stored]}}) == {"m": {"components": [{"share": 0.5, **stored}]}}


@pytest.mark.parametrize("words", [{}, {"lr": 0.01}, {"batch_size": 8, "target": "neon"}])
def test_a_training_may_be_an_instance(words: dict[str, Any]) -> None:
    values = {"momentum": 0.5, "epochs": 2, "decay": 1.0, "rounds_per_epoch": 1}
    for table in ("training", *(() if "target" in words else ("source_training",))):
        table_values = values if table == "training" else {"epochs": 2}
        instance = TABLES[table](**table_values)
        layers = [layer_from_words({table: given, **words}) for given in (instance, table_values)]
        assert layers[0] == layers[1]
        first, second = (resolve_plan(layer) for layer in layers)
        assert (first.config, first.origins) == (second.config, second.origins)
    with pytest.raises(UsageError, match=r"source_training\.epochs is given"):
        resolve_plan(layer_from_words({"target": "neon", "source_training": SourceTraining(epochs=2)}))


def test_a_training_value_beside_its_own_word_is_refused_in_a_table_and_changed_in_an_instance() -> None:
    with pytest.raises(UsageError, match=r"^lr and training\.lr are the same; leave one out$"):
        layer_from_words({"lr": 0.2, "training": {"lr": 0.1}})
    assert layer_from_words({"lr": 0.2, "training": Training(lr=0.1)}) == {"training": {"lr": 0.2}}
    for table in ({"lr": 0.1}, Training(lr=0.1)):
        assert layer_from_words({"batch_size": 8, "training": table}) == {"training": {"lr": 0.1, "batch_size": 8}}


def test_an_iterator_is_read_once() -> None:
    layer = layer_from_words({"baselines": iter(["fedavg", "local"]), "probes": (name for name in ["true"])})
    assert [method.name for method, _ in resolve_plan(layer).methods] == ["fedavg", "local", "wca"]
    assert resolve_plan(layer).config.probes == ("true",)


def test_an_objective_of_the_rounds_and_of_the_last_phase_is_not_lost() -> None:
    plan = resolve_plan({"target": "neon", "objectives": ["cross_entropy", "shot"]})
    composed, _ = plan.methods[-1]
    assert [objective.name for objective in composed.objectives] == ["cross_entropy", "shot"]
    described = describe_method(composed)
    plain = describe_method(resolve_plan({"target": "neon", "baselines": ["sfda"], "composed": False}).methods[0][0])
    assert described != plain
    assert "objectives" not in plain
    differences = differing_settings(
        *({"config": {}, "methods": {"x": {"rounds": 1, **method}}} for method in (described, plain))
    )
    assert differences == {"x.objectives": (["cross_entropy", "shot"], None)}


def test_parts_beside_a_file_without_a_composed_method_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(resolve_plan({"baselines": ["fedavg"], "composed": False}).described()))
    with pytest.raises(UsageError, match="aggregator is given, but this run has baselines alone"):
        resolve_plan({"aggregator": "one_hot"}, file=file)
    assert resolve_plan({"aggregator": "one_hot", "composed": True}, file=file).methods[-1][0].name == "one_hot"


def test_last_layers_are_not_averaged_over_drawn_features() -> None:
    with pytest.raises(UsageError, match="'simple_representation' draws features; take new=sampled"):
        resolve_plan({"baselines": ["pfl_ensemble/objective=simple_representation"]}, preset_name="upfl")
