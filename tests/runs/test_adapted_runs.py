"""Runs of methods with an adaptation: options, refusals, records, resuming to the same bits, export and join."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.config.resolve_config import resolve_plan
from fedwca.deploy.deployable_checks import check_deployable
from fedwca.errors import UsageError
from fedwca.export.delivered_accuracy import classify
from fedwca.export.load_model import read_exported
from fedwca.export.model_from_run import model_of
from fedwca.models.lenet import LeNet
from fedwca.results.read_run_files import read_records
from fedwca.results.shown_records import accuracy_of_all
from fedwca.runs.final_model_predictions import predict_for_pictures
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import bench, resume
from tests.cli.conftest import call
from tests.read_rounds import read_rounds
from tests.runs.stopping import check_same_bits, stop

FEDTTA = {
    "aggregator": "fedavg",
    "objectives": ["adapted:mu=0.1"],
    "adaptation": "learned:lr=0.05,rate=0.01,width=4,steps=3,patience=1",
    "finish": [],
}
SMALL: dict[str, Any] = {
    "target": "neon",
    "samples": 16,
    "rounds": 2,
    "batch_size": 4,
    "lr": 0.01,
    "baselines": ["fedavg_labelled", "TENT=fedavg_labelled/adaptation=entropy:lr=0.01"],
    "device": "cpu",
    **FEDTTA,
}
OVERRIDES = {"model.bottleneck": 4}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("adapted") / "run"
    return bench(**SMALL, overrides=OVERRIDES, out=out, keep="all").path


def test_records_of_adaptations(run: Path) -> None:
    last = {record["method"]: record for record in read_rounds(run, number=1)}
    assert list(last) == ["fedavg_labelled", "tent", "fedavg_learned"]
    assert "adaptation" not in last["fedavg_labelled"]
    adaptation = last["fedavg_learned"]["adaptation"]
    clients = len(last["tent"]["accuracy"])
    assert all(len(adaptation[key]) == clients for key in ("accuracy_before", "steps", "taken", "entropy"))
    assert all(1 <= taken <= steps <= 3 for taken, steps in zip(adaptation["taken"], adaptation["steps"], strict=True))
    assert last["tent"]["adaptation"]["steps"] == [1] * clients
    # Both methods train the same model; TENT adapts it only after training.
    plain = last["fedavg_labelled"]
    plain_accuracies = [[a, b][a is None] for a, b in zip(plain["accuracy"], plain["accuracy_sources"], strict=True)]
    assert last["tent"]["adaptation"]["accuracy_before"] == plain_accuracies
    # The adaptation network is a part of the model and is sent with it.
    extra_bytes = last["fedavg_learned"]["bytes_up"] - plain["bytes_up"]
    assert extra_bytes == 4 * 4 * (10 * 4 + 4 + 2 * (4 * 4 + 4) + 4 + 1)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(run: Path, tmp_path: Path) -> None:
    # Two rounds of each method: the second of the last one.
    stop(lambda: bench(**SMALL, overrides=OVERRIDES, out=tmp_path / "run", keep="all"), call=6)
    check_same_bits(resume(tmp_path / "run").path, run)


def test_all_methods_begin_with_the_same_weights(run: Path) -> None:
    plain, learned = open_run(run, "fedavg_labelled", round=0), open_run(run, round=0)
    assert list(learned.layout.extras) == ["adaptation"]
    assert torch.equal(learned.layout.without_extras(learned.server.rows), plain.server.rows)
    assert learned.server.rows[0, learned.layout.extras["adaptation"]].std() > 0


def test_what_leaves_is_the_network_that_predicts(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    result = call("export", str(run), "--client", "4", "--out", str(file))
    assert result.code == 0, result.err
    network, about = read_exported(file)
    opened = open_run(run)
    layout = opened.layout
    assert not list(network.extras.parameters())
    state = {**network.state_dict()}
    for slot in layout.parameters:
        if not slot.name.startswith("extras."):
            assert torch.equal(state[slot.name], slot.of(opened.delivered[4]))
    assert about.label == "FedAvg + FedTTA"


@pytest.mark.parametrize("method", ["tent", "fedavg_learned"])
def test_the_card_is_of_the_model_before_its_steps_and_pictures_are_of_it_after_them(method: str, run: Path) -> None:
    opened, pictured = open_run(run, method), predict_for_pictures(run, method)
    last = next(record for record in read_records(run) if (record["method"], record["round"]) == (method, 1))
    assert last["adaptation"]["accuracy_before"] != accuracy_of_all(last)
    for client, images in enumerate(opened.federation.clients):
        network, about = model_of(opened, client)
        measured = opened.federation.metrics.accuracy(client, classify(network, images.test))
        assert about.accuracy == pytest.approx(measured)
        assert "this model is as it was before them" in " ".join(about.notes)
        accuracy = 100 * float((pictured.predicted[client] == pictured.truth[client]).mean())
        assert accuracy == pytest.approx(accuracy_of_all(last)[client])
    assert not model_of(open_run(run, "fedavg_labelled"), 0)[1].notes


def test_a_newcomer_does_what_the_method_says(run: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "late.npz", images=images)
    arguments = ["join", str(run), "--data", str(tmp_path / "late.npz"), "--json", "--out"]
    joined = json.loads(call(*arguments, str(tmp_path / "own")).out)
    assert joined["adaptation"]["name"] == "learned"
    assert joined["adaptation"]["fields"]["patience"] == 1
    two_steps = json.loads(call(*arguments, str(tmp_path / "more"), "--adapt", "learned:steps=2,width=4").out)
    assert (two_steps["adaptation"]["steps"], two_steps["adaptation"]["taken"]) == (2, 2)
    wide = call(*arguments, str(tmp_path / "wide"), "--adapt", "learned")
    assert (wide.code, "or one of other widths" in wide.err) == (2, True)
    tent = json.loads(call(*arguments, str(tmp_path / "tent"), "--method", "tent").out)
    assert tent["adaptation"]["name"] == "entropy"
    plain = call(*arguments, str(tmp_path / "plain"), "--method", "fedavg_labelled")
    assert (plain.code, "nothing to adapt by; take --adapt entropy" in plain.err) == (2, True)
    entropy = call(*arguments, str(tmp_path / "plain"), "--method", "fedavg_labelled", "--adapt", "entropy:steps=2")
    assert json.loads(entropy.out)["adaptation"]["steps"] == 2


def test_an_adaptation_by_batches_does_not_depend_on_the_order_of_files(run: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 60, (64, 32, 32, 3), dtype=np.uint8)
    images = noise + np.arange(64, dtype=np.uint8)[:, None, None, None] // 32 * 150  # dark ones, then bright ones
    entropies = []
    for name, order in (("sorted", np.arange(64)), ("mixed", np.random.default_rng(1).permutation(64))):
        np.savez(tmp_path / f"{name}.npz", images=images[order])
        words = ["--data", str(tmp_path / f"{name}.npz"), "--adapt", "learned:batch=8,width=4,lr=0.5"]
        joined = call("join", str(run), *words, "--json", "--out", str(tmp_path / name))
        entropies.append(json.loads(joined.out)["adaptation"]["entropies"])
    assert entropies[0][1] < entropies[0][0] - 1
    assert entropies[0] == pytest.approx(entropies[1], abs=0.002)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"adaptation": None}, "say which, such as adaptation learned"),
        ({"objectives": ["cross_entropy"]}, "which no objective of this method trains"),
        ({"finish": ["shot"]}, "take finish none or adaptation none"),
        ({"training": {"trains": "extractor"}}, "leave out trains = extractor"),
        ({"adaptation": "entropie"}, "no adaptation 'entropie'; did you mean 'entropy'"),
        ({"adaptation": "entropy:candidates=all"}, "set patience too"),
        ({"baselines": ["fedavg_labelled/adaptation=learned"]}, "which no objective of this method trains"),
    ],
)
def test_what_does_not_fit_is_refused(layer: dict[str, Any], sentence: str) -> None:
    settings = {"target": "neon", "baselines": [], **FEDTTA, **layer}
    with pytest.raises(UsageError) as caught:
        resolve_plan({key: value for key, value in settings.items() if value is not None})
    assert sentence in str(caught.value)


def test_words_of_methods_and_options() -> None:
    word = "X=fedavg_labelled/objective=adapted/adaptation=learned:steps=50,patience=5"
    settings = {"target": "neon", "finish": [], "baselines": [word, "Y=fedavg_labelled/adaptation=none"]}
    plan = resolve_plan(settings)
    by_name = {method.name: method for method, _ in plan.methods}
    adaptation = by_name["x"].adaptation
    assert adaptation is not None
    assert (adaptation.name, adaptation.steps, adaptation.patience) == ("learned", 50, 5)
    assert by_name["y"].adaptation is None
    plan_by_options = resolve_plan({"target": "neon", **FEDTTA}, pairs=[("adaptation.steps", "7")])
    method = plan_by_options.methods[-1][0]
    assert method.adaptation is not None
    assert (method.name, method.label, method.adaptation.steps) == ("fedavg_learned", "FedAvg + FedTTA", 7)
    assert resolve_plan(json.loads(plan_by_options.config.model_dump_json())).methods[-1][0] == method


def test_unlabeled_clients_may_adapt_too_and_deployments_may_not() -> None:
    plan = resolve_plan({"adaptation": "entropy", "baselines": [], "aggregator": "fedavg", "pseudo_labeler": "argmax"})
    method, rounds = plan.methods[-1]
    with pytest.raises(UsageError, match="cannot be deployed: adaptation 'entropy'"):
        check_deployable(method, rounds, LeNet().build(2), 4)


UPFL: dict[str, Any] = {
    "partition": "shards",
    "dataset": "digits_plain",
    "clients": 5,
    "new_clients": 6,
    "samples": 20,
    "rounds": 2,
    "source_models": 1,
    "composed": False,
    "device": "cpu",
}


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_new_clients_adapt_and_training_does_not_know_it(engine: str, tmp_path: Path) -> None:
    names = ["fedavg", "tent", "fedtta_prox", "fedtta_pp"]
    settings = {**UPFL, "baselines": names, "engine": engine}
    overrides = {"training.steps": 2, "model.mlp.width": 8}
    finished = bench(**settings, overrides=overrides, out=tmp_path / "run", preset="upfl")
    last = {record["method"]: record for record in read_rounds(finished.path, number=1)}
    assert list(last) == names
    for name in names[1:]:
        adaptation = last[name]["adaptation"]
        assert all(len(adaptation[key]) == 5 + 6 for key in ("accuracy_before", "steps", "taken", "entropy"))
    plain, tent = last["fedavg"], last["tent"]
    assert tent["adaptation"]["accuracy_before"] == [*plain["accuracy_validation"][:5], *plain["accuracy"][5:]]
    opened = open_run(finished.path, "fedavg")
    with pytest.raises(UsageError, match=r"clients 0 to 4 that train; new ones are sent the server's model"):
        model_of(opened, 5)
    about = model_of(opened, 0)[1]
    assert (about.domain, about.source) == (None, "all domains")
    assert "validation images, which choose the round" in about.notes[-1]
    prox, plus_plus = (open_run(finished.path, name) for name in names[2:])
    assert torch.equal(prox.server.rows, plus_plus.server.rows)  # steps at test time change no training
    images = np.random.default_rng(0).integers(0, 255, (6, 28, 28, 3), dtype=np.uint8)
    np.savez(tmp_path / "late.npz", images=images)
    late = ["--data", str(tmp_path / "late.npz"), "--out", str(tmp_path / "late")]
    joined = call("join", str(finished.path), "--method", "fedtta_pp", *late, "--json")
    assert joined.code == 0, joined.err
    assert json.loads(joined.out)["adaptation"]["fields"]["steps"] == 50


def test_the_released_codes_plus_plus_predicts_by_the_model_as_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, Any] = {"clients": 3, "new_clients": 2, "samples": 12, "batch_size": 8, "rounds": 1}
    method: dict[str, Any] = {"baselines": ["fedtta_pp"], "composed": False, "source_models": 2, "device": "cpu"}
    small = {"training.steps": 2, "model.width": 8}
    request = partial(bench, preset="upfl-released", **sizes, **method, overrides=small, out=tmp_path / "run")
    path = request().path
    last = read_rounds(path, number=0)
    assert len(last) == 2
    for record in last:
        adaptation, shown = record["adaptation"], [*record["accuracy_validation"][:3], *record["accuracy"][3:]]
        assert (set(adaptation["taken"]), set(adaptation["steps"])) == ({0}, {1})
        assert adaptation["accuracy_before"] == shown
    first, second = (open_run(path, "fedtta_pp", source_model=number).federation for number in (0, 1))
    assert all(torch.equal(a.train, b.train) for a, b in zip(first.clients, second.clients, strict=True))
    # A finished run of all domains is read without its images.
    monkeypatch.setattr("fedwca.runs.resuming.resume_checks.load", lambda config: pytest.fail("images are read"))
    assert request(resume=True).path == path


def test_pictures_of_an_adapted_source_model_are_of_what_the_table_shows(tmp_path: Path) -> None:
    method = "source_only/adaptation=entropy:lr=5,steps=5"
    settings = {"clients": 1, "samples": 60, "rounds": 1, "baselines": [f"Adapted={method}"], "composed": False}
    overrides = {"model.bottleneck": 4, "source_training.epochs": 1}
    folder = bench(**settings, overrides=overrides, out=tmp_path / "run").path
    (last,) = read_rounds(folder)
    assert last["adaptation"]["accuracy_before"] != accuracy_of_all(last)
    description = model_of(open_run(folder, "Adapted"), 0)[1]  # the model as it was delivered, so the source model
    assert description.accuracy == description.source_accuracy == last["adaptation"]["accuracy_before"][0]
    pictured = predict_for_pictures(folder)
    right = [100 * float((p == t).mean()) for p, t in zip(pictured.predicted, pictured.truth, strict=True)]
    assert right == pytest.approx(accuracy_of_all(last))
