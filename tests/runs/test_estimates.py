"""How much memory and disk a run will need, estimated before its first round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca.config.resolve_config import RunPlan, resolve_plan
from fedwca.data.federation import ClientImages, Federation
from fedwca.engine.memory import Footprint
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.federated.public_images import holders_of
from fedwca.models.resnet18 import ResNet18
from fedwca.results.checkpoints import Checkpoints
from fedwca.runs.load_data import build_network, load
from fedwca.runs.python_api import bench
from fedwca.runs.resources.clients_at_once import _bytes, clients_at_once, footprint
from fedwca.runs.resources.disk_estimate import checkpoint_size, estimate_checkpoints
from fedwca.runs.resources.memory_estimate import estimate_run
from fedwca.runs.split_trials import split_trial

SMALL: dict[str, Any] = {
    "clients": 4,
    "new_clients": 2,
    "samples": 16,
    "rounds": 1,
    "device": "cpu",
    "source_models": 1,
}
PUBLIC = {"partition": "shards:public=0.1", "composed": False, "engine": "loop", "workers": 1}


def planned(**settings: Any) -> tuple[RunPlan, Federation]:
    plan = resolve_plan({**SMALL, **settings}, preset_name="upfl")
    return plan, split_trial(plan.config, *load(plan.config), 0, 0)


def test_public_images_count() -> None:
    plan, federation = planned(**PUBLIC, baselines=["hetero_tent", "pfl_sampled"])
    without = resolve_plan({**SMALL, **PUBLIC, "baselines": ["pfl_sampled"]}, preset_name="upfl")
    estimate, reference = (
        estimate_run(plan.config, plan.methods, build_network(plan.config, 10), federation) for plan in (plan, without)
    )
    images = federation.public_images
    assert images is not None
    assert estimate.images - reference.images == 2 * images.numel()
    width = Layout.of(build_network(plan.config, 10)).width
    assert estimate.bank - reference.bank == 4 * width * (4 + 2)  # a model of each client, and two of the only size
    assert (
        estimate.rows - reference.rows == 2 * 4 * 2 * 4 * len(images) * 10
    )  # both logits of four clients, before and now


def test_clients_that_have_the_very_same_images_share_them() -> None:
    plan, _ = planned(**PUBLIC, baselines=["pfl_sampled"])
    public = torch.zeros(5, 3, 8, 8, dtype=torch.uint8)
    engine = SequentialEngine(build_network(plan.config, 10), holders_of(public, 3), workers=1)
    assert len({images.data_ptr() for images in engine.images}) == 1
    separate = [ClientImages(public.clone(), public[:0]) for _ in range(3)]
    assert len({images.data_ptr() for images in SequentialEngine(engine.network, separate, workers=1).images}) == 3


@pytest.mark.parametrize(
    ("method", "more"),
    [("scaffold", {}), ("pfl_sampled", {}), ("fedsr", {}), ("hetero_fedtta", PUBLIC)],
)
def test_the_estimate_of_the_disk_is_what_checkpoints_take(method: str, more: dict[str, Any], tmp_path: Path) -> None:
    settings = {**SMALL, **more, "baselines": [method], "composed": False, "training": {"steps": 1}}
    plan, federation = planned(**settings)
    needed = estimate_checkpoints(plan, "last", federation, build_network(plan.config, 10))
    bench(preset="upfl", **settings, out=tmp_path / "run", keep="all")
    written = [file.stat().st_size for file in (tmp_path / "run" / "checkpoints").glob("*/000001.safetensors")]
    # The estimate is of two checkpoints at a time, here with the one before the first round; headers take a few kB.
    assert abs(needed / 2 - written[0]) < 6000


def test_a_frozen_backbone_is_in_every_checkpoint() -> None:
    plan, federation = planned(composed=False, baselines=["fedavg"])
    network = ResNet18(side=32, weights="none", frozen=True).build(10)
    backbone = sum(tensor.nbytes for tensor in network.backbone.state_dict().values())
    rows = (4 + 1 + 1) * 4 * Layout.of(network).width
    assert rows < backbone  # a row has the bottleneck and its normalization
    classifier = sum(tensor.nbytes for tensor in network.classifier.state_dict().values())
    counters = 8 * sum(name.endswith("num_batches_tracked") for name in network.state_dict())
    size = checkpoint_size(network, plan.methods[0][0], federation, 10)
    assert rows + backbone <= size <= rows + backbone + classifier + counters


def test_central_training_counts() -> None:
    settings: dict[str, Any] = {"target": "neon", "clients": 2, "samples": 16, "rounds": 1, "device": "cpu"}
    plans = [
        resolve_plan({**settings, "composed": False, "baselines": [name]}, preset_name="sfda")
        for name in ("fedavg_labelled", "pooled", "dann")
    ]
    federation = split_trial(plans[0].config, *load(plans[0].config), 0, 0)
    network = build_network(plans[0].config, 10)
    without, pooled, dann = (estimate_run(plan.config, plan.methods, network, federation) for plan in plans)
    assert pooled.images - without.images == sum(client.train.numel() for client in federation.clients)
    # A step has 64 images of each of five domains, or of all together.
    assert dann.work == max(without.work, Footprint.of(network).training(5 * 64))
    assert pooled.work == max(without.work, Footprint.of(network).training(64))


def test_the_disk_has_room_for_what_ended_methods_keep_and_one_at_work() -> None:
    plan, federation = planned(baselines=["fedprox", "fedavg"], composed=False, trials=2, rounds=9)
    one = (
        estimate_checkpoints(plan, "none", federation, build_network(plan.config, 10)) / 3
    )  # two, and one that is written before one is removed
    of_ended_methods = {"last": 4, "selected": 8, "1": 4, "5": 20}
    for keep, ended in of_ended_methods.items():
        running = {"5": 1}.get(keep, 2)  # besides those that stay
        assert estimate_checkpoints(plan, keep, federation, build_network(plan.config, 10)) == (ended + running) * one
        assert (
            estimate_checkpoints(plan, keep, federation, build_network(plan.config, 10), subgroups=2)
            == (ended + 2 * running) * one
        )
    assert estimate_checkpoints(plan, "all", federation, build_network(plan.config, 10)) == 4 * 10 * one


def test_the_estimate_of_the_disk_is_the_most_that_checkpoints_take_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "baselines": ["fedprox", "fedavg"], "composed": False, "rounds": 5, "training": {"steps": 1}}
    plan, federation = planned(**settings)
    taken: list[int] = []
    prune = Checkpoints._prune

    def measure(self: Checkpoints, *arguments: Any) -> None:
        taken.append(sum(file.stat().st_size for file in self.path.rglob("*.safetensors")))
        prune(self, *arguments)

    monkeypatch.setattr(Checkpoints, "_prune", measure)
    for keep in ("last", "none", "3"):
        taken.clear()
        bench(preset="upfl", **settings, out=tmp_path / keep, keep=keep)
        needed = estimate_checkpoints(plan, keep, federation, build_network(plan.config, 10))
        assert abs(needed - max(taken)) < 0.01 * needed  # headers take a few kB


def test_a_methods_own_batch_counts() -> None:
    layer: dict[str, Any] = {"source": "handwritten", "clients": 2, "samples": 64, "device": "cpu", "composed": False}
    layer |= {"baselines": ["fedavg"], "training": {"batch_size": 16}}
    work = {}
    for batch_size in (16, 32, 1000):
        plan = resolve_plan({**layer, "methods": {"fedavg": {"training": {"batch_size": batch_size}}}})
        federation = split_trial(plan.config, *load(plan.config), 0, 0)
        work[batch_size] = estimate_run(plan.config, plan.methods, build_network(plan.config, 10), federation).work
    assert work[16] < work[32] < work[1000]
    largest = resolve_plan({**layer, "training": {"batch_size": 64}})
    assert (
        work[1000] == estimate_run(largest.config, largest.methods, build_network(largest.config, 10), federation).work
    )  # no client has more


def test_the_stacked_engine_makes_room_for_a_methods_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedwca.runs.resources.clients_at_once.free_bytes", lambda device: 2**28)
    layer: dict[str, Any] = {"source": "handwritten", "clients": 4, "samples": 64, "device": "cpu", "composed": False}
    layer |= {"baselines": ["fedavg"], "engine": "stacked"}
    at_once = []
    for batch_size in (16, 512):
        plan = resolve_plan({**layer, "methods": {"fedavg": {"training": {"batch_size": batch_size}}}})
        federation = split_trial(plan.config, *load(plan.config), 0, 0)
        at_once.append(clients_at_once(plan.config, build_network(plan.config, 10), federation.clients))
    assert at_once[0] > at_once[1]


@pytest.mark.parametrize(("name", "adapts"), [("fedavg", False), ("tent", True), ("fedavg/adaptation=entropy", True)])
def test_steps_on_the_images_that_are_predicted_count(name: str, adapts: bool) -> None:
    settings: dict[str, Any] = {"samples": 64, "composed": False, "training": {"batch_size": 4}, "workers": 2}
    plan, federation = planned(**settings, baselines=[name], engine="loop")
    network = build_network(plan.config, 10)
    cost, all_images = Footprint.of(network), [len(c.train) + len(c.test) for c in federation.all_clients]
    work = estimate_run(plan.config, plan.methods, network, federation).work
    _, per_client = _bytes(plan.config, network, federation.clients)
    assert (work == 2 * cost.training(max(all_images))) == adapts
    assert (per_client == cost.training(network.eval_batch_size)) == adapts


def test_images_that_clients_share_are_counted_once() -> None:
    plan, _ = planned()
    public = torch.zeros(10, 3, 32, 32, dtype=torch.uint8)
    network = build_network(plan.config, 10)
    (alone, _), (many, _) = (_bytes(plan.config, network, holders_of(public, clients)) for clients in (1, 50))
    assert many - alone == 49 * 3 * footprint(plan.config, network).model


def test_trials_that_go_together_have_their_checkpoints_at_once() -> None:
    settings: dict[str, Any] = {"baselines": ["fedprox"], "trials": 4}
    alone, federation = planned(**settings)
    together, _ = planned(**settings, trials_at_once=3)
    estimates = [
        estimate_checkpoints(plan, "none", federation, build_network(plan.config, 10)) for plan in (alone, together)
    ]
    assert estimates[1] == 3 * estimates[0]
