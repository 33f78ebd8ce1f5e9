"""The memory estimate against hand-worked and measured values, and memory that does not grow over rounds."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import nn

from fedwca.core.architecture import Architecture
from fedwca.core.network import Network
from fedwca.engine.memory import Footprint, MeasuredMemory, MemoryEstimate, estimate_memory, free_bytes, slice_size
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.stacked.network import StackedInput, StackedNetwork
from fedwca.engine.stacked.split_leaves import split_leaves
from fedwca.errors import UsageError
from fedwca.models.lenet import LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.runs.resources.memory_estimate import check_run_fits, describe_memory, memory_record

from ..fork_server import CommandLine, ForkServer

MEGABYTE = 2**20
FLAT = 6 * MEGABYTE
"""Bytes by which resident memory may be higher in the last five of twenty rounds than in the first five.

Allocators keep a little more now and then; one model of this test kept by mistake in each round would be more."""


def test_a_lenet_by_hand() -> None:
    footprint = Footprint.of(LeNet().build(10))
    assert footprint.values == 347_850
    assert footprint.frozen == 10 * 256 + 10
    assert footprint.largest == 20 * 28 * 28 * 4  # the first convolution's output
    # Pixels and both convolutions' outputs; of both max poolings the indices (int64) and outputs, or ReLU's of these.
    first, second, pixels = 20 * 28 * 28, 50 * 10 * 10, 3 * 32 * 32
    lower_bound = 4 * (pixels + first + second) + (8 + 4) * (20 * 14 * 14 + 50 * 5 * 5)
    assert lower_bound <= footprint.saved <= 1.2 * lower_bound


@pytest.mark.parametrize("images", [4, 16])
def test_what_waits_for_the_backward_pass_is_counted(images: int) -> None:
    network: Network = LeNet(bottleneck=16).build(10)
    network.train()
    saved: dict[int, torch.Tensor] = {}
    own_storages = {t.untyped_storage()._cdata for t in (*network.parameters(), *network.buffers())}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        x = torch.zeros(images, 3, 32, 32).to(memory_format=torch.channels_last)
        network(x, [torch.ones(images, *drop.shape) for drop in network.drops])
    saved_bytes = sum(t.untyped_storage().nbytes() for storage, t in saved.items() if storage not in own_storages)
    # Statistics of a batch are saved once, whatever its size; the footprint spreads them over two images.
    assert images * Footprint.of(network).saved == pytest.approx(saved_bytes, rel=0.002)


def saved_by_stack(network: Network, models: int, images: int) -> int:
    """Bytes saved for the backward pass of stacked models, on images some of which are mixed."""
    layout = Layout.of(network)
    rows = layout.read(network).repeat(models, 1)
    leaf, parameters, statistics = split_leaves(layout, rows)
    shape = (models, images, 3, network.side, network.side)
    masks = [torch.empty(models, images, *drop.shape, device="meta") for drop in network.drops]
    real = torch.empty(shape[:2], dtype=torch.bool, device="meta")
    batch = StackedInput(torch.empty(shape, device="meta"), masks, real)
    own_storages = {t.untyped_storage()._cdata for t in (rows, leaf, *network.parameters(), *network.buffers())}
    saved: dict[int, torch.Tensor] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        StackedNetwork(network, layout, "fp32", "eager")(parameters, statistics, batch, training=True, phase=None)
    return sum(t.untyped_storage().nbytes() for storage, t in saved.items() if storage not in own_storages)


@pytest.mark.parametrize("architecture", [LeNet(), ResNet18(side=64, weights="none")], ids=["lenet", "resnet18"])
def test_what_the_stacked_engine_saves_of_mixed_images_is_counted(architecture: Architecture) -> None:
    network = architecture.build(10).to("meta")
    footprint = Footprint.of(network)
    # Weights are saved once, however many images there are.
    bytes_per_image = (saved_by_stack(network, 3, 16) - saved_by_stack(network, 3, 8)) / (3 * 8)
    assert bytes_per_image <= footprint.saved + 2 * footprint.largest
    assert footprint.saved <= 1.02 * bytes_per_image


def test_the_footprint_of_a_resnet() -> None:
    network = ResNet18().build(10, pretrained=False)
    footprint = Footprint.of(network)
    assert footprint.largest == 64 * 112 * 112 * 4
    assert 1.2e9 < 64 * footprint.saved < 1.8e9  # docs/engines.md
    assert not any(parameter.is_meta for parameter in network.parameters())
    assert isinstance(network.norm, nn.BatchNorm1d)


def test_the_memory_estimate_by_hand() -> None:
    footprint = Footprint(values=10, frozen=2, saved=100, largest=50)
    assert footprint.training(3) == 4 * 40 + 8 + 3 * 200
    assert footprint.evaluation(8) == 40 + 8 + 8 * 150
    estimate = estimate_memory(footprint, [4, 6, 5], side=2, rows=3, step=3, chunk=1, at_once=2)
    assert estimate == MemoryEstimate(bank=120, rows=280 + 24 * 3 * 6, images=180, work=2 * 768)
    assert estimate.total == 2548
    assert slice_size(2116, 580, 768, 9) == 2
    assert slice_size(10**6, 580, 768, 9) == 9
    assert slice_size(600, 580, 768, 9) == 0


def test_what_cannot_fit_is_refused_with_what_would_help() -> None:
    check_run_fits(MemoryEstimate(10, 10, 10, 10), 40, "cpu")
    check_run_fits(MemoryEstimate(10, 10, 10, 10), None, "cpu")
    with pytest.raises(UsageError) as caught:
        check_run_fits(MemoryEstimate(bank=10**9, rows=10**6, images=10**6, work=9 * 10**9), 4 * 10**9, "cuda:1")
    assert str(caught.value) == (
        "this run needs about 10.0 GB of memory on cuda:1, and 4.0 GB are free; most of it, 9.0 GB, is models at work: "
        "take a smaller --batch-size or --workers 1"
    )
    for name in asdict(MemoryEstimate(0, 0, 0, 0)):
        with pytest.raises(UsageError, match="take"):
            check_run_fits(
                MemoryEstimate(**{**dict.fromkeys(asdict(MemoryEstimate(0, 0, 0, 0)), 1), name: 100}), 50, "cpu"
            )


def test_free_bytes_and_the_description_of_an_estimate() -> None:
    free = free_bytes("cpu")
    assert free is None or free > MEGABYTE
    assert describe_memory(MemoryEstimate(10**6, 10**6, 10**6, 10**6)).startswith(
        "about 4.0 MB (the clients' models 1.0 MB, "
    )
    assert memory_record(MemoryEstimate(1, 2, 3, 4), "cuda:0", 11)["estimated"]["total"] == 10


def test_ranks_of_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    free: list[int | None] = [16 * 10**9]
    monkeypatch.setattr("fedwca.engine.memory.free_memory", lambda: free[0])
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert free_bytes("cpu") == 16 * 10**9
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert free_bytes("cpu") == 4 * 10**9
    free[0] = None
    assert free_bytes("cpu") is None


GROWTH = """
import json, os, sys, tempfile
from pathlib import Path
import numpy as np
import torch
from fedwca.data.dataset import Domain, FederatedDataset
from fedwca.runs.resources import memory_estimate as memory
from fedwca.runs.run_trials_and_methods import run_bench
from fedwca.runs.split_trials import TrialSplits
from fedwca.runs.split_trials import split_trial
from fedwca.runs.load_data import build_network
from fedwca.runs.resuming.checkpointer import Checkpointer
from fedwca.config.resolve_config import resolve_plan
from fedwca.engine.memory import MeasuredMemory
from fedwca.results.checkpoints import Checkpoints
from fedwca.results.retention_policy import RetentionPolicy

torch.set_num_threads(1)
random = np.random.default_rng(0)
domains = {}
for name in "abc":
    labels = np.arange(45) % 3
    pixels = random.integers(0, 99, (45, 32, 32, 3)) + 50 * labels[:, None, None, None]
    domains[name] = Domain(name, pixels.astype(np.uint8), labels)
dataset = FederatedDataset("tiny", tuple("xyz"), domains)
decided = resolve_plan({
    "clients": 1, "rounds": 25, "aggregator": "wca", "clusterer": "true", "baselines": [], "device": "cpu",
    "model": "mlp:width=110", "training": {"epochs": 1, "batch_size": 16}, "source_training": {"epochs": 1},
    "workers": 1})
config, methods = decided.config, decided.methods
needed = memory.estimate_run(config, methods, build_network(config, 3), split_trial(config, dataset, "a", 0, 0))
measured, held = MeasuredMemory("cpu"), []
with tempfile.TemporaryDirectory() as folder:
    checkpointer = Checkpointer(Checkpoints(Path(folder), "tiny", RetentionPolicy.parse("last")))
    for record in run_bench(config, methods, TrialSplits(config, dataset, "a"), checkpointer=checkpointer):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        held.append(pages * os.sysconf("SC_PAGE_SIZE"))
print(json.dumps({"held": held, "needed": needed.total, "measured": measured.growth()}))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_flat_over_twenty_rounds(fork_server: ForkServer, tmp_path: Path) -> None:
    ended = fork_server.run(CommandLine(["--version"], str(tmp_path), dict(os.environ), GROWTH))
    assert ended.code == 0, ended.err
    measurements = json.loads(ended.out.splitlines()[0])
    held = measurements["held"][6:]  # after the source model, round 0 and a few more
    assert len(held) == 20
    assert max(held[-5:]) - max(held[:5]) < FLAT
    # The process also loads libraries on first use, and a checkpoint is a second bank while it is written.
    assert measurements["measured"] < measurements["needed"] + 250 * MEGABYTE


def test_a_peak_that_is_older_than_the_run_is_not_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([500, 500, 700])
    monkeypatch.setattr(MeasuredMemory, "_held", lambda self: 200)
    monkeypatch.setattr(MeasuredMemory, "_peak", lambda self: next(peaks))
    measured = MeasuredMemory("cpu")
    assert (measured.growth(), measured.growth()) == (None, 500)
