"""Which kernels a run takes, what it records about them, and that a resumed run measures nothing again."""

from __future__ import annotations

import pytest
import torch

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.errors import UsageError
from fedwca.models import models
from fedwca.runs.load_data import build_network
from fedwca.runs.resources import select_kernels as kernels
from fedwca.runs.resources.select_engine import choose_engine, choose_engines
from fedwca.runs.resources.select_kernels import choose_kernels, measure_kernels, restore_kernels
from tests.conftest import SMALL_MODEL


def config(**options: object) -> RunConfig:
    name, fields = models.parse(SMALL_MODEL)
    defaults = {"device": "cpu", "baselines": [], "model": name, "components": {"model": {name: fields}}}
    return RunConfig.model_validate({**defaults, **options})


def choice(images: list[ClientImages], **options: object) -> kernels.KernelChoice:
    run_config = config(**options)
    return choose_kernels(run_config, compose(run_config), build_network(run_config, 3), images)


def test_the_loop_has_eager_kernels_alone(images: list[ClientImages]) -> None:
    assert choice(images).chosen == "eager"
    with pytest.raises(UsageError, match="--kernels channels-last needs --engine stacked; the loop has eager alone"):
        choice(images, kernels="channels-last")


def test_what_is_asked_for_is_taken(images: list[ClientImages]) -> None:
    result = choice(images, engine="stacked", kernels="channels-last")
    assert result.record == {"chosen": "channels-last", "why": "asked for", "measured": {}}
    assert result.sentence == "channels-last (asked for)"


def test_graphs_need_a_gpu(images: list[ClientImages]) -> None:
    with pytest.raises(UsageError, match="--kernels graphs needs a CUDA device, not cpu; take eager"):
        choice(images, engine="stacked", kernels="graphs", device="cpu")
    assert restore_kernels("graphs", "cuda:1") == "graphs"
    assert restore_kernels("graphs", "cpu") == "eager"
    assert restore_kernels("channels-last", "cpu") == "channels-last"


def test_nothing_is_measured_unless_asked_for(images: list[ClientImages], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "benchmark_kernels", None)
    result = choice(images, engine="stacked", device="cpu")
    assert result.record == {"chosen": "channels-last", "why": "the default", "measured": {}}
    monkeypatch.setattr(kernels, "measure_kernels", lambda *arguments: kernels.KernelChoice("eager", "measured"))
    assert choice(images, engine="stacked", device="cpu", kernels="measure").why == "measured"
    with pytest.raises(UsageError, match="--kernels measure needs --engine stacked"):
        choice(images, kernels="measure")


def test_a_measurement_on_the_runs_own_shapes(images: list[ClientImages], monkeypatch: pytest.MonkeyPatch) -> None:
    run_config, shapes, tried = config(engine="stacked"), [], []
    original = kernels.benchmark_kernels

    def watched(network: Network, batch: torch.Tensor, precision: str, candidates: list[str], mixes: bool) -> object:
        assert mixes, "FedWCA is among the methods"
        shapes.append(tuple(batch.shape))
        tried.append(candidates)
        return original(network, batch, precision, candidates, 1, mixes=mixes)

    monkeypatch.setattr(kernels, "benchmark_kernels", watched)
    result = measure_kernels(run_config, compose(run_config), build_network(run_config, 3), images, torch.device("cpu"))
    smallest = min(len(client.train) for client in images)
    assert shapes == [(len(images), min(64, smallest), *images[0].train.shape[1:])]
    assert tried == [["eager", "channels-last", "graphs"]]
    assert result.why == "measured"
    assert result.chosen in ("eager", "channels-last")
    assert "graphs failed" in result.sentence, "there are none on a CPU"
    assert "ms a step" in result.sentence


@pytest.mark.parametrize(
    ("asked", "taken"), [("auto", "channels-last"), ("measure", "channels-last"), ("eager", "eager")]
)
def test_the_engine_has_the_kernels(network: Network, images: list[ClientImages], asked: str, taken: str) -> None:
    run_config = config(engine="stacked", kernels=asked)
    assert choose_engine(run_config, network, images).stacked.kernels == taken  # type: ignore[attr-defined]
    together = choose_engines(run_config, [(network, images), (network, images)])
    assert {engine.stacked.kernels for engine in together.engines} == {taken}  # type: ignore[attr-defined]


def test_there_is_nothing_to_measure_on_without_a_batch(images: list[ClientImages]) -> None:
    run_config = config(engine="stacked")
    few = [ClientImages(client.train[:1], client.test) for client in images]
    assert (
        measure_kernels(run_config, compose(run_config), build_network(run_config, 3), few, torch.device("cpu")).chosen
        == "eager"
    )
