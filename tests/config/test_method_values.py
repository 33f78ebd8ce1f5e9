"""Values of single methods: stronger than those of the run and of the method's file, weaker than a user's for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwca.config.config_layers import resolve
from fedwca.config.resolve_config import RunPlan, resolve_plan
from fedwca.config.run_config import Layer
from fedwca.errors import InvalidConfig, UsageError
from fedwca.federated.method import Method
from tests.cli.conftest import call
from tests.read_rounds import read_rounds

WORDS = ["fedprox", "tent", "fedtta", "fedtta_prox", "fedtta_pp"]
# Table 4: rates of FedAvg, of FedProx, and (outer, inner, adaptation network) of FedTTA and its variants; mu; patience.
TABLE_4 = [
    ("mnist", 0.1, 0.3, (0.3, 0.5, 0.01), (0.3, 0.5, 0.001), 0.01, 1),
    ("cifar10", 0.1, 0.1, (0.05, 0.5, 0.005), (0.1, 0.3, 0.003), 0.001, 1),
    ("femnist", 0.1, 0.3, (0.1, 0.3, 0.003), (0.1, 0.3, 0.003), 0.001, 5),
    ("cifar100", 0.1, 0.1, (0.1, 0.5, 0.001), (0.1, 0.5, 0.001), 0.01, 5),
    ("fashion_mnist", 0.3, 0.3, (0.1, 0.05, 0.001), (0.1, 0.05, 0.001), 0.001, 5),
]


def plan(*pairs: tuple[str, str], **layer: Any) -> tuple[RunPlan, dict[str, Method]]:
    run_plan = resolve_plan({"baselines": WORDS, "dataset": "mnist", **layer}, pairs, preset_name="upfl")
    return run_plan, {method.name: method for method, _ in run_plan.methods}


def rates(run_plan: RunPlan, method: Method) -> tuple[float, ...]:
    """Learning rates of a method: of its training, then of its adaptation's step and networks."""
    outer = (method.training or run_plan.config.training).lr
    if method.adaptation is None or method.adaptation.lr is None:
        return (outer,)
    return outer, method.adaptation.lr, *method.adaptation.learning_rates().values()


@pytest.mark.parametrize(("dataset", "fedavg", "fedprox", "fedtta", "variants", "mu", "patience"), TABLE_4)
def test_every_method_has_its_rates_of_table_4(
    dataset: str,
    fedavg: float,
    fedprox: float,
    fedtta: tuple[float, ...],
    variants: tuple[float, ...],
    mu: float,
    patience: int,
) -> None:
    run_plan, methods = plan(dataset=dataset)
    expected: dict[str, tuple[float, ...]] = {
        **{"fedavg": (fedavg,), "tent": (fedavg,), "fedprox": (fedprox,)},
        **{"fedtta": fedtta, "fedtta_prox": variants, "fedtta_pp": variants},
    }
    assert {name: rates(run_plan, method) for name, method in methods.items()} == expected
    assert {methods[name].objectives[0].model_dump()["mu"] for name in ("fedtta_prox", "fedtta_pp")} == {mu}
    assert methods["fedtta"].objectives[0].model_dump()["mu"] == 0
    assert methods["fedprox"].objectives[1].model_dump()["mu"] == 0.001
    assert [methods[name].adaptation.patience for name in ("fedtta_prox", "fedtta_pp")] == [None, patience]
    assert all((methods[name].training or run_plan.config.training).steps == 20 for name in methods)
    assert [methods[name].training.clip for name in ("fedprox", "fedtta")] == [None, 10]


def test_a_runs_own_file_gives_the_same_methods() -> None:
    run_plan, _ = plan()
    again = resolve_plan(json.loads(run_plan.config.model_dump_json()))
    assert again.described()["methods"] == run_plan.described()["methods"]
    assert again.config == run_plan.config


def test_what_the_user_gives_all_methods_holds_for_all() -> None:
    run_plan, methods = plan(("adaptation.learned.lr", "0.2"), training={"lr": 0.07})
    assert rates(run_plan, methods["fedtta"]) == (0.07, 0.2, 0.01)
    assert rates(run_plan, methods["fedtta_pp"]) == (0.07, 0.2, 0.001)
    assert rates(run_plan, methods["fedprox"]) == (0.07,)
    assert "methods.fedtta.training.lr" not in run_plan.origins
    assert run_plan.origins["methods.fedtta.components.adaptation.learned.rate"] == "preset upfl"


def test_a_rounds_length_is_said_in_steps_or_in_epochs() -> None:
    values = {"fedtta": {"training": {"lr": 0.1, "steps": 3}}}
    run_plan, methods = plan(methods=values)
    assert (methods["fedtta"].training or run_plan.config.training).steps == 3
    assert resolve_plan(json.loads(run_plan.config.model_dump_json())).config.methods["fedtta"].training["steps"] == 3
    layers: dict[str, Layer] = {"config": {"methods": values}, "CLI": {"training": {"epochs": 2}}}
    assert resolve(layers)[0].methods["fedtta"].training == {"lr": 0.1}


def test_a_variant_has_its_heads_values_and_its_words_win() -> None:
    run_plan, methods = plan(baselines=["mine=fedtta/adaptation=learned:lr=0.25", "fedtta/objective=adapted:mu=1"])
    assert rates(run_plan, methods["mine"]) == (0.3, 0.25, 0.01)
    assert rates(run_plan, methods["fedtta/objectives=adapted:mu=1"]) == (0.3, 0.5, 0.01)
    # Those of Table 4 for FedTTA-Prox on MNIST stay where a component is named again.
    run_plan, methods = plan(baselines=["x=fedtta-pp/adaptation=learned:steps=20", "y=fedtta_prox/objective=adapted"])
    assert rates(run_plan, methods["x"])[1:] == rates(run_plan, methods["y"])[1:] == (0.5, 0.001)
    assert methods["x"].adaptation is not None
    assert methods["x"].adaptation.model_dump()["steps"] == 20
    assert methods["y"].objectives[0].model_dump()["mu"] == 0.01


def test_fields_of_a_component_that_is_replaced_are_not_kept() -> None:
    values = {"fedtta": {"components": {"adaptation": {"learned": {"lr": 1.0}}, "objective": {"adapted": {"mu": 2.0}}}}}
    _, methods = plan(baselines=["fedtta", "x=fedtta/adaptation=none/objective=cross-entropy"], methods=values)
    assert methods["x"].adaptation is None
    assert [objective.name for objective in methods["x"].objectives] == ["cross_entropy"]


def test_values_of_a_users_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        "methods.FedTTA = { training.lr = 0.02, components.adaptation.learned.rate = 0.5 }\ntraining.momentum = 0.5\n"
        'methods.mine.training.lr = 0.25\nname = "mine"\n'
    )
    run_plan = resolve_plan({"baselines": WORDS, "dataset": "mnist"}, (), "upfl", file)
    methods = {method.name: method for method, _ in run_plan.methods}
    assert rates(run_plan, methods["fedtta"]) == (0.02, 0.5, 0.5)
    assert rates(run_plan, methods["mine"]) == (0.25,)
    assert {(method.training or run_plan.config.training).momentum for method in methods.values()} == {0.5}


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        ({"fedrox": {"training": {"lr": 1}}}, UsageError, "methods.fedrox.training.lr is given"),
        ({"tent": {"components": {"adaptation": {"learned": {"lr": 1}}}}}, UsageError, "methods.tent.components"),
        ({"tent": {"training": {"lr": -1}}}, InvalidConfig, "tent: training.lr"),
        ({"tent": {"training": {"rate": 1}}}, InvalidConfig, "tent: training.rate"),
        ({"tent": {"trainings": {"lr": 1}}}, InvalidConfig, "methods.tent.trainings"),
        ({"tent": 3}, InvalidConfig, "methods.tent"),
        (3, InvalidConfig, "methods"),
    ],
)
def test_what_cannot_be_meant_is_refused(values: Any, kind: type[UsageError], said: str) -> None:
    with pytest.raises(kind, match=said.replace(".", r"\.")):
        plan(methods=values)


def test_values_of_a_method_are_typed_whatever_they_were_given_as() -> None:
    given = {"batch_size": "32", "lr": np.float64(0.5), "steps": np.int64(3), "clip": "2"}
    run_plan, _ = plan(methods={"tent": {"training": given}}, engine="stacked")
    dumped = run_plan.config.model_dump(mode="json")["methods"]["tent"]["training"]
    assert dumped == {"batch_size": 32, "lr": 0.5, "steps": 3, "clip": 2.0}
    assert [type(value) for value in dumped.values()] == [int, float, int, float]


def test_a_run_trains_each_method_by_its_own_values(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("methods.fedprox.training = { steps = 1, lr = 1e-9 }\n")
    words = "--clients 3 --new-clients 2 --samples 10 --rounds 1 --source-models 1 --batch-size 8 --device cpu"
    args = ["--set", "model.width=8", "--set", "partition.per_client=4", "--baseline", "fedprox", "--config", str(file)]
    call("bench", "--preset", "upfl", *words.split(), *args, "--out", str(tmp_path / "run"))
    methods = json.loads((tmp_path / "run" / "summary.json").read_text())["methods"]
    accuracy = {(r["method"], r["round"]): r["accuracy"] for r in read_rounds(tmp_path / "run")}
    assert accuracy["fedprox", 0] == accuracy["fedprox", -1] != accuracy["fedavg", 0]
    assert set(methods) >= {"fedavg", "fedprox"}
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["methods"]["fedprox"]["training"]["steps"] == 1
    assert config["methods"]["fedprox"]["training"]["lr"] == 1e-9


def test_what_the_released_code_does_otherwise() -> None:
    run_plan = resolve_plan({"baselines": WORDS, "dataset": "cifar10"}, preset_name="upfl-released")
    config, methods = run_plan.config, {method.name: method for method, _ in run_plan.methods}
    training = config.training
    assert (training.weight_decay, training.momentum, training.decay, training.decay_rounds) == (1e-4, 0, 0.99, 10)
    assert (methods["fedtta"].training or training).extra_momentum == 0.9
    assert config.components["partition"]["shards"] == {"distinct": True, "seed": 24}
    assert rates(run_plan, methods["fedtta"]) == (0.05, 0.5, 0.005)
    assert rates(run_plan, methods["tent"]) == (0.1,)  # the training's, as for its entropy in bits
    for name in WORDS[2:]:
        method = methods[name]
        assert method.aggregator.model_dump()["weighting"] == "samples"
        assert method.adaptation is not None
        adaptation = method.adaptation.model_dump()
        assert (adaptation["batch"], adaptation["clip"], adaptation["weight_decay"]) == (64, 10, 1e-4)
        assert adaptation["candidates"] == ("unadapted" if name == "fedtta_pp" else "adapted")
        assert method.objectives[0].model_dump()["reverse"] == (name != "fedtta")
    assert methods["tent"].adaptation is not None
    tent = methods["tent"].adaptation.model_dump()
    assert (tent["unit"], tent["clip"], tent["weight_decay"]) == ("bits", 10, 1e-4)


def test_what_the_released_code_does_otherwise_with_models_of_several_sizes() -> None:
    layer = {"baselines": ["hetero_fedtta", "hetero_tent"], "composed": False, "model": "mlp:sizes=4+6+8"}
    data = {"partition": "rotations:public=0.1", "dataset": "digits_plain"}
    run_plan = resolve_plan({**layer, **data}, preset_name="upfl-released")
    rotations = {"public": 0.1, "seed": 24, "train": [0, 15, 30], "new": [45, 60, 75]}
    assert run_plan.config.components["partition"]["rotations"] == rotations
    for method, _ in run_plan.methods:
        assert method.adaptation is not None
        assert (method.adaptation.clip, method.adaptation.weight_decay) == (10, 1e-4)
        assert method.adaptation.model_dump().get("unit", "bits") == "bits"
        assert method.adaptation.model_dump().get("layers", 3) == 3
        assert method.adaptation.model_dump().get("batch", 32) == run_plan.config.training.batch_size == 32
        assert method.training is not None
        assert method.training.clip == 10
        assert method.public_objective is not None
        assert method.public_objective.model_dump()["reverse"]


# Table 4: rates of SCAFFOLD, AFL, FedGMA, FedADG and FedSR; of ODPFL-HN's model, encoder and hypernetwork.
REST = [
    ("mnist", (0.1, 1.5), (0.3, 0.001), (0.3, 1.0), 0.3, 0.3, (0.3, 0.5, 0.5)),
    ("cifar10", (0.1, 1.5), (0.1, 0.3), (0.1, 1.5), 0.1, 0.05, (0.05, 0.1, 0.5)),
    ("femnist", (0.1, 1.5), (0.1, 0.5), (0.3, 1.0), 0.3, 0.3, (0.01, 0.1, 0.5)),
    ("cifar100", (0.1, 1.5), (0.1, 0.3), (0.1, 1.5), 0.1, 0.1, None),
    ("fashion_mnist", (0.1, 1.5), (0.3, 0.001), (0.3, 1.5), 0.3, 0.3, (0.1, 0.5, 0.5)),
]


@pytest.mark.parametrize(("dataset", "scaffold", "afl", "fedgma", "fedadg", "fedsr", "odpfl"), REST)
def test_the_other_methods_have_theirs(
    dataset: str,
    scaffold: tuple[float, float],
    afl: tuple[float, float],
    fedgma: tuple[float, float],
    fedadg: float,
    fedsr: float,
    odpfl: tuple[float, float, float] | None,
) -> None:
    run_plan, methods = plan(dataset=dataset, baselines=["scaffold", "afl", "fedgma", "fedadg", "fedsr", "odpfl_hn"])
    lr = {name: (method.training or run_plan.config.training).lr for name, method in methods.items()}
    servers = {name: method.aggregator.model_dump() for name, method in methods.items()}
    assert (lr["scaffold"], servers["scaffold"]["server_lr"]) == scaffold
    assert (lr["afl"], servers["afl"]["rate"]) == afl
    assert (lr["fedgma"], servers["fedgma"]["server_lr"]) == fedgma
    assert servers["fedgma"]["threshold"] == 0.1
    assert (lr["fedadg"], lr["fedsr"]) == (fedadg, fedsr)
    if odpfl is not None:
        adaptation = methods["odpfl_hn"].adaptation
        assert adaptation is not None
        assert (lr["odpfl_hn"], *adaptation.learning_rates().values()) == odpfl


def test_how_a_method_trains_is_read_by_the_steps_of_its_adaptation() -> None:
    values = {"source_only": {"training": {"lr": 0.5}}}
    run_plan = resolve_plan({"baselines": ["source_only/adaptation=entropy"], "composed": False, "methods": values})
    assert run_plan.methods[0][0].training is not None
    with pytest.raises(UsageError, match=r"methods\.source_only\.training\.lr is given, but no method of this run"):
        resolve_plan({"baselines": ["source_only"], "composed": False, "methods": values})


def test_a_value_for_all_takes_the_place_of_the_presets_where_a_baselines_file_states_another() -> None:
    baselines = [*WORDS, "y=fedtta_prox/objective=adapted"]
    run_plan, methods = plan(("objective.adapted.mu", "0.1"), dataset="cifar10", baselines=baselines)
    for name, mu in {"fedtta": 0, "fedtta_prox": 0.1, "y": 0.1}.items():  # FedTTA is FedTTA-Prox without its mu
        assert methods[name].objectives[0].model_dump()["mu"] == mu, name
    assert run_plan.origins["methods.fedtta_prox.components.objective.adapted.mu"] == "CLI"


def test_what_makes_another_method_of_a_baseline_does_not_reach_it() -> None:
    layer = {"target": "neon", "aggregator": "mdmgb:temperature=0.1", "baselines": ["mdmgb", "pooled"]}
    methods = {method.label: method for method, _ in resolve_plan(layer).methods}
    temperatures = {label: method.aggregator.model_dump().get("temperature") for label, method in methods.items()}
    assert temperatures == {"MDMGB": None, "Source-only": None, "MDMGB + SHOT": 0.1}  # the last is not called SFDA
    assert methods["Source-only"].objectives[0].model_dump()["smoothing"] == 0
    own = {"adaptation": "learned:steps=50,patience=5", "objectives": ["adapted:mu=0.01"], "name": "mine"}
    _, methods = plan(baselines=["fedtta", "fedtta_prox"], **own)
    steps = {name: method.adaptation and method.adaptation.model_dump()["steps"] for name, method in methods.items()}
    assert steps == {"fedtta": 1, "fedtta_prox": 1, "mine": 50}


def test_the_word_none_unsets_a_number() -> None:
    pairs = [("training.clip", "none"), ("adaptation.generated.clip", "none")]
    run_plan, _ = plan(*pairs, baselines=["odpfl_hn"])
    adaptations = {method.name: method.adaptation for method, _ in run_plan.methods}
    assert adaptations["odpfl_hn"] is not None
    assert adaptations["odpfl_hn"].model_dump()["clip"] is None
    assert run_plan.config.training.clip is None
