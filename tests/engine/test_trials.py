"""Trials that go through a round together end as each does alone: every kind of method, unequal trials."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.wca import WCA
from fedwca.clusterers.true import TrueDomains
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Predictions, Targets
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.engine.interface import TrialsInTurn
from fedwca.engine.randomness import Keys
from fedwca.engine.stacked import StackedEngine, StackedTrials, can_share_step
from fedwca.federated.method import Method
from fedwca.federated.round import Outcome, close_round, init_server, open_round
from fedwca.federated.server import Server
from fedwca.models.lenet import LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel
from tests.engine.federations import DOMAINS, KINDS, TRAINING, ShortResNet, Thin, clients, same, trained

SIZES = ((12, 19, 12, 9), (15, 8, 21, 10), (12, 12, 17, 24))
"""Images of each client of three trials: full batches and last ones that trials share, and some they do not."""


def networks(dtype: torch.dtype = torch.float64) -> list[Network]:
    """Two source models; the third trial begins from the first one's."""
    first, second = (Thin(bottleneck=16).build(3, seed=seed).to(dtype) for seed in (1, 2))
    return [first, second, first]


def played(
    trials: TrialsInTurn,
    method: Method,
    rounds: int = 2,
    training: Training = TRAINING,
    domains: Tensor = DOMAINS,
    **options: object,
) -> list[tuple[Server, list[Outcome]]]:
    servers = [init_server(engine) for engine in trials.engines]
    outcomes: list[list[Outcome]] = [[] for _ in servers]
    for number in range(rounds):
        parts = {
            i: open_round(
                number, servers[i], method, engine, training, Keys(i), domains[: len(engine.images)], **options
            )  # type: ignore[arg-type]
            for i, engine in enumerate(trials.engines)
        }
        for i, uploads in trials.run(parts).items():
            servers[i], outcome = close_round(parts[i], uploads)
            outcomes[i].append(outcome)
    return list(zip(servers, outcomes, strict=True))


def compare(
    alone: TrialsInTurn, together: StackedTrials, method: Method, tolerance: float = 1e-9, **options: object
) -> None:
    here, there = played(alone, method, **options), played(together, method, **options)
    for i, (engine, other) in enumerate(zip(alone.engines, together.engines, strict=True)):
        assert (engine.bank - here[i][0].source).abs().max() > 1e-3
        assert float((engine.bank - other.bank).abs().max()) <= tolerance
        assert float((here[i][0].rows - there[i][0].rows).abs().max()) <= tolerance
        same(here[i][0].state, there[i][0].state, tolerance)
        for one, found in zip(here[i][1], there[i][1], strict=True):
            assert torch.equal(one.labels, found.labels)
            same(one.report, found.report, tolerance)
            assert list(one.uploads) == list(found.uploads)
            for client, upload in one.uploads.items():
                assert upload.passes == found.uploads[client].passes
                same(upload.collected, found.uploads[client].collected, tolerance)
                for name in ("labels", "weights", "partners", "mix", "matched"):
                    assert torch.equal(getattr(upload.targets, name), getattr(found.uploads[client].targets, name))


def both(models: list[Network], side: int = 32, sizes=SIZES, batch_norm: str = "mixed"):  # type: ignore[no-untyped-def]
    own = [clients(side, some) for some in sizes]
    alone = TrialsInTurn([StackedEngine(n, c, "cpu", None, batch_norm) for n, c in zip(models, own, strict=True)])
    return alone, StackedTrials(models, own, "cpu", batch_norm)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_method(name: str) -> None:
    compare(*both(networks()), trained(name))


def test_trials_of_other_numbers_of_clients_that_share_more_than_models() -> None:
    compare(*both(networks(), sizes=(SIZES[0], SIZES[1][:3], SIZES[2])), trained("fedpcl_pl"))


@pytest.mark.parametrize("batch_norm", ["pooled", "local", "recalibrated"])
def test_every_policy_with_absent_clients(batch_norm: str) -> None:
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(), Proximal(to="cluster")), TrueDomains())
    compare(*both(networks(), batch_norm=batch_norm), method, participation=0.5)


@pytest.mark.parametrize(
    "options", [pytest.param({"classifier": "wn"}, marks=pytest.mark.slow), {"frozen": True}], ids=str
)
def test_residual_networks(options: dict[str, object]) -> None:
    architecture = ShortResNet.model_validate({"weights": "none", "side": 32, "bottleneck": 8, **options})
    first = architecture.build(3, seed=1).double()
    second = first if architecture.frozen else architecture.build(3, seed=2).double()
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(),), TrueDomains())
    # Full batches alone: a BatchNorm over three values would blow up the rounding of so many layers.
    compare(*both([first, second], architecture.stored, ((8, 8), (16, 8))), method, rounds=2)


def test_networks_that_cannot_go_together() -> None:
    one, other = networks()[:2]
    assert can_share_step([one, other, one])
    assert not can_share_step([one, LeNet(bottleneck=8).build(3, seed=1).double()])
    frozen = ResNet18.model_validate({"weights": "none", "side": 32, "frozen": True})
    assert can_share_step([frozen.build(3, seed=1), frozen.build(3, seed=1)])
    assert not can_share_step([frozen.build(3, seed=1), frozen.build(3, seed=2)])


def test_images_lie_in_one_tensor() -> None:
    _, together = both(networks())
    images = [engine.images[0].untyped_storage().data_ptr() for engine in together.engines]
    assert len(set(images)) == 1
    for engine, sizes in zip(together.engines, SIZES, strict=True):
        assert engine.sizes.tolist() == list(sizes)
        for client, (shown, given) in enumerate(zip(engine.images, clients(sizes=sizes), strict=True)):
            assert torch.equal(shown, given.train), client


class Sharing(Objective):
    """What its server shares has another shape in each trial."""

    name = "sharing"

    def collect(self, predictions: Predictions, targets: Targets) -> dict[str, Tensor]:
        return {"size": torch.zeros(len(targets.labels) // 12)}

    def pool(self, collected: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(collected)

    def __call__(self, batch: Batch) -> Tensor:
        return batch.logits.square().mean()


def test_trials_that_share_values_of_other_shapes_go_in_turn() -> None:
    method = Method("sharing", "Sharing", FedAvg(), TwoModel(), (Sharing(),))
    compare(*both(networks()[:2], sizes=((12, 13), (24, 25))), method)
