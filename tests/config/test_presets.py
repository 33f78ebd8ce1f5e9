"""The paper's numbers: each value of Table 9 and of App. C reaches its component."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedwca.aggregators.revised_wca import RevisedWCA
from fedwca.aggregators.wca import WCA
from fedwca.clusterers.kmeans import KMeans
from fedwca.clusterers.ladd import LaddClusterer
from fedwca.config.baselines import baseline, baseline_names
from fedwca.config.build_component import architecture
from fedwca.config.resolve_config import RunPlan, provenance, resolve_plan
from fedwca.errors import InvalidConfig, UsageError
from fedwca.objectives.digest import Digest
from fedwca.objectives.simple_representation import SimpleRepresentation

# data set, source, lr, lambda, mu, T_a, T_b, rounds, clients
TABLE_9 = [
    ("digit-five", "mnist", 1e-3, 0.1, 0.55, 0.01, 0.05, 100, 8),
    ("digit-five", "mnistm", 1e-3, 0.1, 0.55, 0.01, 0.05, 100, 8),
    ("digit-five", "svhn", 1e-3, 0.1, 0.55, 0.01, 0.05, 100, 8),
    ("digit-five", "usps", 1e-3, 0.1, 0.55, 0.01, 0.05, 100, 8),
    ("digit-five", "synth", 1e-3, 0.1, 0.55, 0.001, 0.05, 100, 8),
    ("pacs", "art_painting", 1e-4, 0.3, 0.55, 0.1, 0.05, 100, 3),
    ("pacs", "sketch", 1e-4, 0.3, 0.55, 0.1, 0.05, 100, 3),
    ("office-home", "art", 1e-4, 0.3, 0.55, 0.01, 0.05, 50, 3),
    ("office-home", "Real World", 1e-4, 0.3, 0.55, 0.01, 0.05, 50, 3),
    ("office-home", "Clipart", 1e-4, 0.3, 0.55, 0.1, 0.05, 50, 3),
]


def values(plan: RunPlan) -> dict[str, dict[str, Any]]:
    method = plan.methods[-1][0]
    return {
        "aggregator": method.aggregator.model_dump(),
        "pseudo_labeler": method.pseudo_labeler.model_dump(),
        "objective": method.objectives[0].model_dump(),
    }


@pytest.mark.parametrize(("dataset", "source", "lr", "lam", "mu", "ta", "tb", "rounds", "clients"), TABLE_9)
def test_preset_paper_has_the_values_of_table_9(
    dataset: str, source: str, lr: float, lam: float, mu: float, ta: float, tb: float, rounds: int, clients: int
) -> None:
    plan = resolve_plan({"dataset": dataset, "source": source}, preset_name="paper")
    config, by_kind = plan.config, values(plan)
    assert (config.rounds, config.clients) == (rounds, clients)
    assert config.training.model_dump() == {
        "epochs": 5,
        "lr": lr,
        "batch_size": 64,
        "momentum": 0.9,
        "weight_decay": 1e-3,
        "nesterov": False,
        "clip": None,
        "cosine": None,
        "trains": "all",
    }
    assert (config.source_training.lr, config.source_training.momentum) == (1e-3, 0.9)
    assert config.source_training.weight_decay == 1e-3
    assert (config.source_models, config.trials) == (5, 3)
    assert (by_kind["aggregator"]["ta"], by_kind["aggregator"]["tb"]) == (ta, tb)
    assert by_kind["pseudo_labeler"]["mu"] == mu
    assert by_kind["objective"]["lam"] == lam
    # Baselines are compared on equal terms: their objectives have the run's values too.
    assert [method.objectives[0].model_dump()["lam"] for method, _ in plan.methods] == [lam] * len(plan.methods)


@pytest.mark.parametrize(
    ("dataset", "model", "epochs"),
    [("digit-five", "lenet", 30), ("pacs", "resnet18", 20), ("office-home", "resnet50", 20)],
)
def test_paper_models(dataset: str, model: str, epochs: int) -> None:
    config = resolve_plan({"dataset": dataset}, preset_name="paper").config
    assert (config.model, config.source_training.epochs) == (model, epochs)
    built = architecture(config)
    assert built.bottleneck == 256
    if model != "lenet":
        assert (built.model_dump()["weights"], built.side, built.stored_side) == ("imagenet", 224, 256)


def test_the_source_that_nobody_names_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedwca.config.resolve_config.default_domain", lambda config: "synth")
    assert values(resolve_plan({"dataset": "digit-five"}, preset_name="paper"))["aggregator"]["ta"] == 0.001
    with_source = resolve_plan({"dataset": "digit-five", "source": "mnist"}, preset_name="paper")
    assert values(with_source)["aggregator"]["ta"] == 0.01


@pytest.mark.parametrize("preset_name", ["default", "paper", "skewed"])
@pytest.mark.parametrize(("dataset", "targets"), [("pacs", 3), ("office-home", 3), ("domainnet", 5)])
def test_ifca_is_told_how_many_target_domains_there_are(preset_name: str, dataset: str, targets: int) -> None:
    plan = resolve_plan({"dataset": dataset, "baselines": ["ifca"], "composed": False}, preset_name=preset_name)
    assert plan.methods[0][0].aggregator.model_dump()["clusters"] == targets


UNLABELED = ["default", "paper"]


@pytest.mark.parametrize(
    ("dataset", "model", "lam", "rounds", "last"),
    [("digit-five", "cnn3", 0.1, 36, 30), ("domainnet", "resnet101", 0.3, 4, 15)],
)
def test_preset_sfda_has_its_papers_values(dataset: str, model: str, lam: float, rounds: int, last: int) -> None:
    plan = resolve_plan({"dataset": dataset, "target": "sketch", "baselines": []}, preset_name="sfda")
    config, (method, count) = plan.config, plan.methods[-1]
    assert (config.model, config.split, config.rounds, count) == (model, "published", rounds, rounds + 1)
    assert (config.source_models, config.trials, config.clients) == (3, 1, 1)
    assert (config.training.epochs, config.training.lr, config.training.batch_size) == (5, 0.01, 64)
    assert (config.finish_training.epochs, config.finish_training.trains) == (last, "classifier")
    assert method.name == "sfda"
    assert method.finish[0].model_dump()["lam"] == lam
    assert method.objectives[0].model_dump()["smoothing"] == 0.1


@pytest.mark.parametrize(
    ("name", "layer", "sentence"),
    [
        (
            "sfda",
            {"dataset": "digit-five", "source": "mnist"},
            "preset sfda is for the setting sfda (--target DOMAIN), and this run has ffreeda (--source DOMAIN); ",
        ),
        (
            "paper",
            {"dataset": "digit-five", "target": "mnist"},
            "preset paper is for the setting ffreeda (--source DOMAIN), and this run has sfda (--target DOMAIN)",
        ),
        ("upfl", {"partition": "all_labelled"}, "and this run has sfda_dg (--partition all_labelled, or another"),
    ],
)
def test_a_preset_of_another_setting_is_refused(name: str, layer: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(sentence)):
        resolve_plan(layer, preset_name=name)


@pytest.mark.parametrize("name", UNLABELED)
@pytest.mark.parametrize("dataset", ["digits-mini", "digit-five", "pacs", "office-home", "folder"])
def test_every_preset_composes_for_every_data_set(name: str, dataset: str) -> None:
    plan = resolve_plan({"dataset": dataset}, preset_name=name)
    assert plan.methods[-1][0].name == "wca"
    assert all(origin == f"preset {name}" for key, origin in plan.origins.items() if key != "dataset")


@pytest.mark.parametrize("name", UNLABELED)
def test_a_preset_does_not_stand_in_the_way_of_another_composition(name: str) -> None:
    layer = {"dataset": "pacs", "aggregator": "local", "pseudo_labeler": "prototype", "name": "x", "baselines": []}
    plan = resolve_plan(layer, preset_name=name)
    assert "aggregator" not in {kind for kind, names in plan.config.components.items() if any(names.values())}


@pytest.mark.parametrize("name", baseline_names())
def test_every_baseline_composes_and_says_where_it_comes_from(name: str) -> None:
    definition = baseline(name.replace("_", "-"))
    assert definition.label
    assert definition.paper
    assert definition.reading
    plan = resolve_plan({"baselines": [name], "name": "own"})
    assert plan.methods[0][0].label == definition.label


def test_fedwcas_reading_holds_in_preset_paper() -> None:
    plan = resolve_plan({"dataset": "pacs", "baselines": ["fedwca"], "name": "own"}, preset_name="paper")
    method = plan.methods[0][0]
    assert method.pseudo_labeler.selection == "ratio"
    assert "in preset paper by ratio" in baseline("fedwca").reading


def test_what_baselines_are_made_of() -> None:
    methods = {method.name: (method, rounds) for method, rounds in resolve_plan({"rounds": 4}).methods}
    assert methods["source_only"][1] == 0
    assert (methods["local"][1], methods["fedavg"][1]) == (4, 4)
    assert methods["local"][0].aggregator.grouping.keeps_models_apart
    assert methods["local"][0].pseudo_labeler.renew == "epoch"
    assert methods["fedavg"][0].pseudo_labeler.renew == "round"
    assert methods["fedavg"][0].aggregator.weighting == "samples"
    for name in ("source_only", "local", "fedavg"):
        assert methods[name][0].pseudo_labeler.name == "prototype"
        assert methods[name][0].clusterer is None


def test_values_of_papers_that_only_classes_state() -> None:
    """Neither preset default nor a baseline's file repeats them."""
    parts = (WCA(), RevisedWCA(), LaddClusterer(), KMeans(), Digest(), SimpleRepresentation())
    wca, revised, ladd, kmeans, digest, fedsr = parts
    assert (wca.ta, wca.tb, revised.ta, revised.tb, revised.u) == (0.01, 0.05, 0.01, 0.05, 5)
    assert (ladd.share, ladd.images, ladd.restarts, kmeans.restarts) == (0.05, 100, 10, 10)
    assert (digest.lam, fedsr.norm, fedsr.divergence) == (0.8, 0.01, 0.0005)


def test_the_runs_fields_reach_baselines_but_do_not_change_what_they_are() -> None:
    pairs = [("objective.lam", "0.7"), ("pseudo_labeler.prototype.refine", "2")]
    methods = {method.name: method for method, _ in resolve_plan({}, pairs).methods}
    for name in ("local", "fedavg", "wca"):
        assert methods[name].objectives[0].model_dump()["lam"] == 0.7
    assert methods["fedavg"].pseudo_labeler.model_dump()["refine"] == 2
    fixed = {m.name: m for m, _ in resolve_plan({}, [("pseudo_labeler.prototype.renew", "round")]).methods}
    assert fixed["local"].pseudo_labeler.renew == "epoch"


@pytest.mark.parametrize("change", [{"aggregator": "fedavg"}, {"model": "mlp"}])
def test_a_runs_file_repeats_the_presets_clusterer_and_does_not_ask_for_it(
    change: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(resolve_plan({}).described()))
    assert resolve_plan({}, file=file).config.clusterer == "ada_bn"
    assert resolve_plan(change, file=file).config.clusterer is None
    assert resolve_plan({"clusterer": "kmeans"}, file=file).config.clusterer == "kmeans"
    if "aggregator" in change:
        with pytest.raises(UsageError, match="clusterer 'ada_bn' is not used"):
            resolve_plan({**change, "clusterer": "ada_bn"}, file=file)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"aggregator": None}, "aggregator"),
        ({"model": None}, "model"),
        ({"components": {"model": None}}, "components.model"),
        ({"components": {"model": {"lenet": 3}}}, "components.model.lenet"),
    ],
)
def test_values_of_a_wrong_kind_are_named(values: dict[str, Any], key: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(values))
    with pytest.raises(InvalidConfig, match=rf"^{key}: Input should be a valid"):
        resolve_plan({}, file=tmp_path / "c.json")


def test_who_named_the_clusterer_is_said_where_a_field_is_not_its_own() -> None:
    with pytest.raises(UsageError, match="preset default takes clusterer ada_bn, --clusterer another, such as finch"):
        resolve_plan({}, [("clusterer.signature", "2")])


def test_methods_with_one_label_are_told_apart_by_name() -> None:
    plan = resolve_plan({"composed": False, "baselines": ["fedavg", "fedwca", "wca"]})
    assert [method.label for method, _ in plan.methods] == ["FedAvg", "FedWCA (fedwca)", "FedWCA (wca)"]


def test_parts_of_a_composed_method_are_no_news_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(resolve_plan({"aggregator": "one_hot", "pseudo_labeler": "argmax"}).described()))
    origins = provenance(resolve_plan({"composed": False, "baselines": ["fedavg"], "rounds": 3}, file=file))
    assert not any(
        line.startswith(("aggregator", "clusterer", "pseudo")) for lines in origins.values() for line in lines
    )
