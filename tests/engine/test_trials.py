"""Trials stacked in one engine end as each does alone: for every kind of method, with trials of unequal size."""

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
from fedwca.errors import FedwcaError
from fedwca.federated.close_round import Outcome, close_round
from fedwca.federated.method import Method
from fedwca.federated.open_round import open_round
from fedwca.federated.round import init_server
from fedwca.federated.server import Server
from fedwca.models.lenet import LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel
from tests.engine.federations import (
    DOMAINS,
    KINDS,
    SIDE,
    TRAINING,
    ShortResNet,
    Thin,
    clients,
    needed_rounds,
    same,
    trained,
)

SIZES = ((12, 19, 12, 9), (15, 8, 21, 10), (12, 12, 17, 24))
"""Images of each client of three trials: some full and last batches have the same size in several trials."""


def networks(dtype: torch.dtype = torch.float64) -> list[Network]:
    """Source models of three trials; the third trial starts from the first one's."""
    first, second = (Thin(bottleneck=16).build(3, seed=seed).to(dtype) for seed in (1, 2))
    return [first, second, first]


def played(
    trials: TrialsInTurn,
    method: Method,
    rounds: int | None = None,
    training: Training = TRAINING,
    domains: Tensor = DOMAINS,
    **options: object,
) -> list[tuple[Server, list[Outcome]]]:
    """The server and the outcomes of each trial after some rounds."""
    servers = [init_server(engine) for engine in trials.engines]
    outcomes: list[list[Outcome]] = [[] for _ in servers]
    for number in range(needed_rounds(method) if rounds is None else rounds):
        opened_rounds = {
            i: open_round(
                number, servers[i], method, engine, training, Keys(i), domains[: len(engine.images)], **options
            )  # type: ignore[arg-type]
            for i, engine in enumerate(trials.engines)
        }
        for i, uploads in trials.run(opened_rounds).items():
            servers[i], outcome = close_round(opened_rounds[i], uploads)
            outcomes[i].append(outcome)
    return list(zip(servers, outcomes, strict=True))


def compare(
    alone: TrialsInTurn, together: StackedTrials, method: Method, tolerance: float = 1e-9, **options: object
) -> None:
    """Check that `needed_rounds` of each trial give the same models, server states, reports, uploads and targets."""
    alone_runs, together_runs = played(alone, method, **options), played(together, method, **options)
    for i, (engine_alone, engine_together) in enumerate(zip(alone.engines, together.engines, strict=True)):
        assert (engine_alone.bank - alone_runs[i][0].source).abs().max() > 1e-3
        assert float((engine_alone.bank - engine_together.bank).abs().max()) <= tolerance
        assert float((alone_runs[i][0].rows - together_runs[i][0].rows).abs().max()) <= tolerance
        same(alone_runs[i][0].state, together_runs[i][0].state, tolerance)
        for expected, actual in zip(alone_runs[i][1], together_runs[i][1], strict=True):
            assert torch.equal(expected.labels, actual.labels)
            same(expected.report, actual.report, tolerance)
            assert list(expected.uploads) == list(actual.uploads)
            for client, upload in expected.uploads.items():
                assert upload.passes == actual.uploads[client].passes
                same(upload.collected, actual.uploads[client].collected, tolerance)
                for name in ("labels", "weights", "partners", "partner_weights", "models_agree"):
                    assert torch.equal(getattr(upload.targets, name), getattr(actual.uploads[client].targets, name))


def both(models: list[Network], side: int = SIDE, sizes=SIZES, batch_norm: str = "mixed"):  # type: ignore[no-untyped-def]
    """The same trials twice: in turn, and together in one stacked engine."""
    images_by_trial = [clients(side, trial_sizes) for trial_sizes in sizes]
    alone = TrialsInTurn(
        [StackedEngine(n, c, "cpu", None, batch_norm) for n, c in zip(models, images_by_trial, strict=True)]
    )
    return alone, StackedTrials(models, images_by_trial, "cpu", batch_norm)


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
    # Full batches alone: a BatchNorm over three values would amplify the rounding errors of so many layers.
    compare(*both([first, second], architecture.stored_side, ((8, 8), (16, 8))), method, rounds=2)


def test_networks_that_cannot_go_together() -> None:
    first, second = networks()[:2]
    assert can_share_step([first, second, first])
    assert not can_share_step([first, LeNet(bottleneck=8).build(3, seed=1).double()])
    frozen = ResNet18.model_validate({"weights": "none", "side": 32, "frozen": True})
    assert can_share_step([frozen.build(3, seed=1), frozen.build(3, seed=1)])
    assert not can_share_step([frozen.build(3, seed=1), frozen.build(3, seed=2)])


def test_images_lie_in_one_tensor() -> None:
    _, together = both(networks())
    storages = [engine.images[0].untyped_storage().data_ptr() for engine in together.engines]
    assert len(set(storages)) == 1
    for engine, sizes in zip(together.engines, SIZES, strict=True):
        assert engine.sizes.tolist() == list(sizes)
        for client, (actual, expected) in enumerate(zip(engine.images, clients(sizes=sizes), strict=True)):
            assert torch.equal(actual, expected.train), client


class Sharing(Objective):
    """Pools a value whose shape differs between trials."""

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


class Remembering(Objective):
    """Observes a row for each of the client's images."""

    name = "remembering"

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        return {"bank": predictions.features}

    def __call__(self, batch: Batch) -> Tensor:
        return (batch.features @ batch.observed["bank"].T).mean()


def test_trials_with_observed_values_of_several_shapes_are_refused() -> None:
    method = Method("r", "R", FedAvg(), TwoModel(), (Remembering(),))
    with pytest.raises(FedwcaError, match=r"observations 'bank' have shapes such as \(12, 16\) and \(13, 16\) in"):
        played(both(networks()[:2], sizes=((12, 13), (12, 13)))[1], method)
