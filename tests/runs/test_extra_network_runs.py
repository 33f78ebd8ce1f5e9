"""Runs of methods with networks beside the model: records, resuming to the same bits, export, join, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.config.resolve_config import resolve_plan
from fedwca.deploy.deployable_checks import check_deployable
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import UsageError
from fedwca.export.load_model import read_exported
from fedwca.models.lenet import LeNet
from fedwca.runs.final_model_predictions import predict_for_pictures
from fedwca.runs.load_data import build_network
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import bench, resume
from fedwca.runs.resources.memory_estimate import shape_network
from tests.cli.conftest import call
from tests.read_rounds import read_rounds
from tests.runs.stopping import check_same_bits, stop

NAMES = ["fedsr", "fedadg", "odpfl_hn"]
WIDTH, PIXELS, CLASSES, TRAIN, NEW = 8, 64, 10, 5, 6
LAST = WIDTH * WIDTH + WIDTH
GENERATOR = (10 + CLASSES) * 128 + 128 + 128 * WIDTH + WIDTH
MODEL = PIXELS * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES
ENCODER = PIXELS * 200 + 200 + 200 * 32 + 32
HYPERNETWORK = 32 * 100 + 100 + 3 * (100 * 100 + 100) + 101 * MODEL
SENT_BESIDE = {"fedsr": LAST, "fedadg": GENERATOR, "odpfl_hn": ENCODER + HYPERNETWORK - MODEL}
"""Values sent in addition to FedAvg's: FedSR's second last layer; FedADG's generator, without its discriminator;
ODPFL-HN's encoder and hypernetwork in place of the model."""
SMALL: dict[str, Any] = {
    "preset": "upfl",
    "clients": TRAIN,
    "new_clients": NEW,
    "samples": 20,
    "rounds": 2,
    "source_models": 1,
    "composed": False,
    "device": "cpu",
    "baselines": ["fedavg", *NAMES],
}
OVERRIDES = {"training.steps": 2, "model.mlp.width": WIDTH}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("beside") / "run"
    return bench(**SMALL, overrides=OVERRIDES, out=out, keep="all").path


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_of_what_travels(run: Path, name: str) -> None:
    for number in (0, 1):
        by_name = {record["method"]: record for record in read_rounds(run, number=number)}
        for direction in ("bytes_up", "bytes_down"):
            assert by_name[name][direction] - by_name["fedavg"][direction] == 4 * TRAIN * SENT_BESIDE[name]


@pytest.mark.parametrize("name", NAMES)
def test_all_methods_begin_with_the_same_weights(run: Path, name: str) -> None:
    plain, extended = open_run(run, "fedavg", round=0), open_run(run, name, round=0)
    assert torch.equal(extended.layout.without_extras(extended.server.rows), plain.server.rows)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    # Two rounds of each method: in the second of the second method, then in the second of each next one.
    stop(lambda: bench(**SMALL, overrides=OVERRIDES, out=out, keep="all"), call=4)
    for _ in NAMES[1:]:
        stop(lambda: resume(out), call=3)
    check_same_bits(resume(out).path, run)


@pytest.mark.parametrize("name", ["fedsr", "fedadg"])
def test_what_leaves_is_the_network_that_predicts(run: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "model.safetensors"
    result = call("export", str(run), "--method", name, "--client", "1", "--out", str(file))
    assert result.code == 0, result.err
    network, about = read_exported(file)
    opened = open_run(run, name)
    assert not list(network.extras.parameters())
    state = network.state_dict()
    for slot in opened.layout.parameters:
        if not slot.name.startswith("extras."):
            assert torch.equal(state[slot.name], slot.of(opened.delivered[1]))
    assert ("means over 20 draws" in " ".join(about.notes)) == (name == "fedsr")


@pytest.mark.parametrize("name", ["fedsr", "fedadg"])
def test_a_client_that_joins_needs_an_adaptation(run: Path, tmp_path: Path, name: str) -> None:
    images = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "late.npz", images=images)
    arguments = ["join", str(run), "--method", name, "--data", str(tmp_path / "late.npz"), "--json", "--out"]
    plain = call(*arguments, str(tmp_path / "plain"))
    assert (plain.code, "nothing to adapt by; take --adapt entropy" in plain.err) == (2, True)
    joined = call(*arguments, str(tmp_path / "own"), "--adapt", "entropy:steps=2")
    assert joined.code == 0, joined.err
    assert json.loads(joined.out)["adaptation"]["steps"] == 2


def test_a_client_that_joins_is_given_a_model_of_its_own(run: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "late.npz", images=images)
    arguments = ["join", str(run), "--data", str(tmp_path / "late.npz"), "--json", "--out"]
    joined = call(*arguments, str(tmp_path / "own"), "--method", "odpfl_hn")
    assert joined.code == 0, joined.err
    assert json.loads(joined.out)["adaptation"]["name"] == "generated"
    network, _ = read_exported(tmp_path / "own/model.safetensors")
    opened = open_run(run, "odpfl_hn")
    model = opened.network
    opened.layout.write(model, opened.server.rows[0])
    x = model.prepare(torch.from_numpy(images).permute(0, 3, 1, 2))
    theta = model.extras["hypernetwork"](model.extras["encoder"](x).mean(0)).detach()
    state, slots = network.state_dict(), opened.layout.parameters
    parameters = [state[slot.name].flatten() for slot in slots if not slot.name.startswith("extras.")]
    torch.testing.assert_close(torch.cat(parameters), theta)
    said = call(*arguments[:-2], "--out", str(tmp_path / "said"), "--method", "odpfl_hn")
    assert "Its model was generated from its images (generated); it took no steps\n" in said.out
    assert "by step" not in said.out
    card = (tmp_path / "said/model.safetensors.md").read_text()
    assert "Joined the only cluster after training, with 6 images and no labels; its model was generated from" in card
    assert "| Made from | labelled images of digits_plain: all domains |" in card
    step = call(*arguments, str(tmp_path / "no"), "--method", "odpfl_hn", "--adapt", "entropy")
    assert (step.code, "which no steps go with; leave --adapt out" in step.err) == (2, True)
    untrained = call(*arguments, str(tmp_path / "no"), "--method", "fedsr", "--adapt", "generated")
    assert (untrained.code, "which method 'fedsr' has not trained" in untrained.err) == (2, True)
    exported = call(
        "export", str(run), "--method", "odpfl_hn", "--client", "1", "--out", str(tmp_path / "a.safetensors")
    )
    assert (exported.code, "`fedwca join` makes one for a client's images" in exported.err) == (2, True)


def test_models_are_generated_for_those_who_predict(run: Path) -> None:
    (last,) = read_rounds(run, "odpfl_hn", number=1)
    assert last["adaptation"]["taken"] == [1] * (TRAIN + NEW)
    (initial,) = read_rounds(run, "fedavg", number=-1)
    # Without a generated model, new clients would have the untrained one.
    assert last["adaptation"]["accuracy_before"][TRAIN:] == initial["accuracy"][TRAIN:]


def test_pictures_are_of_the_generated_models(run: Path) -> None:
    pictured = predict_for_pictures(run, "odpfl_hn")
    assert pictured.title.endswith("; training clients' validation images")
    (last,) = read_rounds(run, "odpfl_hn", number=1)
    accuracies = [100 * float((a == b).mean()) for a, b in zip(pictured.predicted, pictured.truth, strict=True)]
    assert accuracies == pytest.approx(last["accuracy_validation"][:TRAIN])
    assert accuracies != pytest.approx(last["adaptation"]["accuracy_before"][:TRAIN])


GENERATES = {"baselines": ["odpfl_hn"], "composed": False}


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({**GENERATES, "engine": "stacked"}, "a model for each client, one by one; take --engine loop, or auto"),
        ({**GENERATES, "training": {"trains": "extractor"}}, "'generated' trains networks beside the model"),
        ({"adaptation": "generated:steps=2", "baselines": []}, "a generated model takes no steps"),
        ({"adaptation": "generated", "objectives": ["cross_entropy", "proximal:to=start"]}, "which there is none"),
        ({"adaptation": "generated", "aggregator": "afl"}, "needs the model that was sent, of which there is none"),
        ({"adaptation": "generated", "aggregator": "fedper"}, "needs the model that was sent, of which there is none"),
        ({"adaptation": "generated", "objectives": ["simple_representation"]}, "has no other networks beside it"),
    ],
)
def test_what_does_not_go_with_generated_models_is_refused(layer: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_plan({**({} if "composed" in layer else {"aggregator": "fedavg"}), **layer}, preset_name="upfl")
    assert sentence in str(caught.value)


def test_clients_without_labels_train_no_generated_model() -> None:
    settings = {"adaptation": "generated", "baselines": [], "aggregator": "fedavg", "pseudo_labeler": "argmax"}
    with pytest.raises(UsageError, match="which clients with labels train; it needs a partition of such"):
        resolve_plan(settings)


def test_memory_counts_what_a_method_puts_beside_the_model() -> None:
    plan = resolve_plan({"baselines": ["odpfl_hn", "fedavg"]}, preset_name="upfl")
    network = build_network(plan.config, CLASSES, pretrained=False)
    values = {method.name: Layout.of(shape_network(network, method)).width for method, _ in plan.methods}
    assert values["fedavg"] == 55_210
    assert values["odpfl_hn"] == 102 * 55_210 + ENCODER + 32 * 100 + 100 + 3 * (100 * 100 + 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_methods_with_extra_networks_learn(name: str, tmp_path: Path) -> None:
    """The best of twelve rounds gains 30 points over random weights on validation images, and 10 on new clients."""
    settings = {**SMALL, "clients": 10, "new_clients": 10, "samples": 45, "rounds": 12, "baselines": [name]}
    finished = bench(**settings, overrides={"model.mlp.width": 50}, out=tmp_path / "run")
    means = {
        key: [
            float(np.nanmean([np.nan if x is None else x for x in record[key]]))
            for record in read_rounds(finished.path)
        ]
        for key in ("accuracy", "accuracy_validation")
    }
    assert max(means["accuracy_validation"]) > means["accuracy_validation"][0] + 30
    assert max(means["accuracy"]) > means["accuracy"][0] + 10


BESIDE = {"fedsr": "simple_representation", "fedadg": "reference_distribution"}


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"training": {"trains": "extractor"}}, "which trains = extractor leaves as they are"),
        ({"finish": ["simple_representation"]}, "which a last phase does not"),
        (
            {"objectives": ["cross_entropy"], "finish": ["prototype_contrastive"]},
            "'prototype_contrastive' learns from what other clients upload, of which a last phase sends nothing",
        ),
        ({"adaptation": "learned"}, "which no objective of this method trains"),
    ],
)
def test_what_does_not_fit_is_refused(layer: dict[str, Any], sentence: str) -> None:
    settings = {"target": "neon", "aggregator": "fedavg", "objectives": ["simple_representation"], "finish": []}
    with pytest.raises(UsageError) as caught:
        resolve_plan({"baselines": [], **settings, **layer})
    assert sentence in str(caught.value)


@pytest.mark.parametrize("name", BESIDE.values())
def test_deployments_refuse_extra_networks(name: str) -> None:
    plan = resolve_plan({"objectives": [name], "baselines": [], "aggregator": "fedavg", "pseudo_labeler": "argmax"})
    method, rounds = plan.methods[-1]
    with pytest.raises(UsageError, match=f"cannot be deployed: objective '{name}' trains networks beside the model"):
        check_deployable(method, rounds, LeNet().build(2), 4)
