"""Values of one method alone: over the run's and its file's, under what a user gives all methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedwca.config.resolve_config import RunPlan, resolve_plan
from fedwca.config.run_config import Layer, RunConfig, resolve, restore_config
from fedwca.errors import InvalidConfig, UsageError
from fedwca.federated.method import Method
from tests.cli.conftest import call
from tests.read_rounds import read_rounds

WORDS = ["fedprox", "tent", "fedtta", "fedtta_prox", "fedtta_pp"]
# Table 4: FedAvg's rate, FedProx's, (outer, inner, adaptation network's) of FedTTA and of its variants, mu, patience.
TABLE_4 = [
    ("mnist", 0.1, 0.3, (0.3, 0.5, 0.01), (0.3, 0.5, 0.001), 0.01, 1),
    ("cifar10", 0.1, 0.1, (0.05, 0.5, 0.005), (0.1, 0.3, 0.003), 0.001, 1),
    ("femnist", 0.1, 0.3, (0.1, 0.3, 0.003), (0.1, 0.3, 0.003), 0.001, 5),
    ("cifar100", 0.1, 0.1, (0.1, 0.5, 0.001), (0.1, 0.5, 0.001), 0.01, 5),
    ("fashion_mnist", 0.3, 0.3, (0.1, 0.05, 0.001), (0.1, 0.05, 0.001), 0.001, 5),
]


def plan(*pairs: tuple[str, str], **layer: Any) -> tuple[RunPlan, dict[str, Method]]:
    made = resolve_plan({"baselines": WORDS, "dataset": "mnist", **layer}, pairs, preset_name="upfl")
    return made, {method.name: method for method, _ in made.methods}


def rates(made: RunPlan, method: Method) -> tuple[float, ...]:
    outer = (method.training or made.config.training).lr
    if method.adaptation is None or method.adaptation.lr is None:
        return (outer,)
    return outer, method.adaptation.lr, *method.adaptation.rates().values()


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
    made, found = plan(dataset=dataset)
    expected: dict[str, tuple[float, ...]] = {
        **{"fedavg": (fedavg,), "tent": (fedavg,), "fedprox": (fedprox,)},
        **{"fedtta": fedtta, "fedtta_prox": variants, "fedtta_pp": variants},
    }
    assert {name: rates(made, method) for name, method in found.items()} == expected
    assert {found[name].objectives[0].model_dump()["mu"] for name in ("fedtta_prox", "fedtta_pp")} == {mu}
    assert found["fedtta"].objectives[0].model_dump()["mu"] == 0
    assert found["fedprox"].objectives[1].model_dump()["mu"] == 0.001
    assert [found[name].adaptation.patience for name in ("fedtta_prox", "fedtta_pp")] == [None, patience]
    assert all((found[name].training or made.config.training).steps == 20 for name in found)
    assert [found[name].training.clip for name in ("fedprox", "fedtta")] == [None, 10]


def test_a_runs_own_file_gives_the_same_methods() -> None:
    made, _ = plan()
    again = resolve_plan(json.loads(made.config.model_dump_json()))
    assert again.described()["methods"] == made.described()["methods"]
    assert again.config == made.config


def test_what_the_user_gives_all_methods_holds_for_all() -> None:
    made, found = plan(("adaptation.learned.lr", "0.2"), training={"lr": 0.07})
    assert rates(made, found["fedtta"]) == (0.07, 0.2, 0.01)
    assert rates(made, found["fedtta_pp"]) == (0.07, 0.2, 0.001)
    assert rates(made, found["fedprox"]) == (0.07,)
    assert "methods.fedtta.training.lr" not in made.origins
    assert made.origins["methods.fedtta.components.adaptation.learned.rate"] == "preset upfl"


def test_a_rounds_length_is_said_in_steps_or_in_epochs() -> None:
    values = {"fedtta": {"training": {"lr": 0.1, "steps": 3}}}
    made, found = plan(methods=values)
    assert (found["fedtta"].training or made.config.training).steps == 3
    assert resolve_plan(json.loads(made.config.model_dump_json())).config.methods["fedtta"].training["steps"] == 3
    layers: dict[str, Layer] = {"config": {"methods": values}, "CLI": {"training": {"epochs": 2}}}
    assert resolve(layers)[0].methods["fedtta"].training == {"lr": 0.1}


def test_a_variant_has_its_heads_values_and_its_words_win() -> None:
    made, found = plan(baselines=["mine=fedtta/adaptation=learned:lr=0.25", "fedtta/objective=adapted:mu=1"])
    assert rates(made, found["mine"]) == (0.3, 0.25, 0.001)
    assert rates(made, found["fedtta/objectives=adapted:mu=1"]) == (0.3, 0.5, 0.01)


def test_values_of_a_users_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        "methods.FedTTA = { training.lr = 0.02, components.adaptation.learned.rate = 0.5 }\ntraining.momentum = 0.5\n"
        'methods.mine.training.lr = 0.25\nname = "mine"\n'
    )
    made = resolve_plan({"baselines": WORDS, "dataset": "mnist"}, (), "upfl", file)
    found = {method.name: method for method, _ in made.methods}
    assert rates(made, found["fedtta"]) == (0.02, 0.5, 0.5)
    assert rates(made, found["mine"]) == (0.25,)
    assert {(method.training or made.config.training).momentum for method in found.values()} == {0.5}


def test_other_runs_say_nothing_of_it() -> None:
    assert "methods" not in RunConfig().model_dump()
    assert "methods" not in resolve_plan({}).described()["config"]


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


def test_a_run_trains_each_method_by_its_own_values(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("methods.fedprox.training = { steps = 1, lr = 1e-9 }\n")
    words = "--clients 3 --new-clients 2 --samples 10 --rounds 1 --source-models 1 --batch-size 8 --device cpu"
    more = ["--set", "model.width=8", "--set", "partition.per_client=4", "--baseline", "fedprox", "--config", str(file)]
    call("bench", "--preset", "upfl", *words.split(), *more, "--out", str(tmp_path / "run"))
    methods = json.loads((tmp_path / "run" / "summary.json").read_text())["methods"]
    accuracy = {(r["method"], r["round"]): r["accuracy"] for r in read_rounds(tmp_path / "run")}
    assert accuracy["fedprox", 0] == accuracy["fedprox", -1] != accuracy["fedavg", 0]
    assert set(methods) >= {"fedavg", "fedprox"}
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    assert about["methods"]["fedprox"]["training"]["steps"] == 1
    assert about["methods"]["fedprox"]["training"]["lr"] == 1e-9


def test_what_the_released_code_does_otherwise() -> None:
    made = resolve_plan({"baselines": WORDS, "dataset": "cifar10"}, preset_name="upfl-released")
    config, found = made.config, {method.name: method for method, _ in made.methods}
    said = config.training
    assert (said.weight_decay, said.momentum, said.decay, said.decay_rounds) == (1e-4, 0, 0.99, 10)
    assert (found["fedtta"].training or said).extra_momentum == 0.9
    assert config.components["partition"]["shards"] == {"distinct": True, "seed": 24}
    assert rates(made, found["fedtta"]) == (0.05, 0.5, 0.005)
    assert rates(made, found["tent"]) == (0.1, 0.1443)
    for name in WORDS[2:]:
        method = found[name]
        assert method.aggregator.model_dump()["weighting"] == "samples"
        assert method.adaptation is not None
        own = method.adaptation.model_dump()
        assert (own["batch"], own["clip"], own["weight_decay"]) == (64, 10, 1e-4)
        assert own["candidates"] == ("unadapted" if name == "fedtta_pp" else "adapted")
        assert method.objectives[0].model_dump()["reverse"] == (name != "fedtta")
    assert found["tent"].adaptation is not None
    assert (found["tent"].adaptation.clip, found["tent"].adaptation.weight_decay) == (6.931, 6.931e-5)


def test_what_the_released_code_does_otherwise_with_models_of_several_sizes() -> None:
    given = {"baselines": ["hetero_fedtta", "hetero_tent"], "composed": False, "model": "mlp:sizes=4+6+8"}
    more = {"partition": "rotations:public=0.1", "dataset": "digits_plain"}
    made = resolve_plan({**given, **more}, preset_name="upfl-released")
    turned = {"public": 0.1, "seed": 24, "train": [0, 15, 30], "new": [45, 60, 75]}
    assert made.config.components["partition"]["rotations"] == turned
    for method, _ in made.methods:
        assert method.adaptation is not None
        bits = method.name == "hetero_tent"
        limits = method.adaptation.clip, method.adaptation.weight_decay
        assert limits == ((6.931, 6.931e-5) if bits else (10, 1e-4))
        assert method.adaptation.model_dump().get("layers", 3) == 3
        assert method.adaptation.model_dump().get("batch", 32) == made.config.training.batch_size == 32
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
    made, found = plan(dataset=dataset, baselines=["scaffold", "afl", "fedgma", "fedadg", "fedsr", "odpfl_hn"])
    lr = {name: (method.training or made.config.training).lr for name, method in found.items()}
    servers = {name: method.aggregator.model_dump() for name, method in found.items()}
    assert (lr["scaffold"], servers["scaffold"]["server_lr"]) == scaffold
    assert (lr["afl"], servers["afl"]["rate"]) == afl
    assert (lr["fedgma"], servers["fedgma"]["server_lr"]) == fedgma
    assert servers["fedgma"]["threshold"] == 0.1
    assert (lr["fedadg"], lr["fedsr"]) == (fedadg, fedsr)
    if odpfl is not None:
        own = found["odpfl_hn"].adaptation
        assert own is not None
        assert (lr["odpfl_hn"], *own.rates().values()) == odpfl


def test_how_a_method_trains_is_read_by_the_steps_of_its_adaptation() -> None:
    values = {"source_only": {"training": {"lr": 0.5}}}
    made = resolve_plan({"baselines": ["source_only/adaptation=entropy"], "composed": False, "methods": values})
    assert made.methods[0][0].training is not None
    with pytest.raises(UsageError, match=r"methods\.source_only\.training\.lr is given, but no method of this run"):
        resolve_plan({"baselines": ["source_only"], "composed": False, "methods": values})


def test_a_schedule_of_the_last_phase_in_an_earlier_run_is_left_out() -> None:
    values = resolve_plan({"target": "neon"}).config.model_dump(mode="json")
    values["finish_training"] |= {"cosine": 5, "decay": 0.5}
    assert restore_config(values).finish_training.cosine is None
