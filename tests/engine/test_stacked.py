"""The stacked engine gives what the plain loop gives: every registered method, clients of unequal size, two rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.wca import WCA
from fedwca.clusterers.true import TrueDomains
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.architecture import Architecture
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Predictions, Targets
from fedwca.core.network import Backbone
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.engine.stacked.step_groups import group_neighbours, step_groups
from fedwca.errors import FedwcaError
from fedwca.federated.method import Method
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.pseudo_labelers.two_model import TwoModel
from tests.engine import federations
from tests.engine.federations import METHODS, SIZES, ShortResNet, ThinCnn3, clients, compare, lenet, rounds, trained


@pytest.mark.parametrize("name", METHODS)
def test_every_registered_method(name: str) -> None:
    compare(SequentialEngine(lenet(), clients(), "cpu", 1), StackedEngine(lenet(), clients()), trained(name))


@pytest.mark.parametrize(
    ("batch_norm", "at_once"), [("mixed", 1), ("mixed", 3), ("pooled", 3), ("local", 2), ("recalibrated", 3)]
)
def test_every_policy_and_slice(batch_norm: str, at_once: int | None) -> None:
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(), Proximal(to="cluster")), TrueDomains())
    loop = SequentialEngine(lenet(), clients(), "cpu", 1, batch_norm)
    compare(loop, StackedEngine(lenet(), clients(), "cpu", at_once, batch_norm), method)


@pytest.mark.parametrize("name", ["fedwca", "revised_fedwca", "fedpcl_pl", "ifca"])
def test_partial_participation(name: str) -> None:
    method = compose(RunConfig(baselines=(name,)))[0][0]
    compare(
        SequentialEngine(lenet(), clients(), "cpu", 1),
        StackedEngine(lenet(), clients(), workers=2),
        method,
        participation=0.5,
    )


@pytest.mark.parametrize("name", ["fedwca", "fedavg", "fedscal"])
def test_float32_stays_within_a_thousandth_of_the_update(name: str) -> None:
    method = compose(RunConfig(baselines=(name,)))[0][0]
    # No last batch of three: BatchNorm over so few values would amplify rounding errors.
    client_images = clients(sizes=(16, 24, 16, 8))
    loop, stacked = (
        SequentialEngine(lenet(torch.float32), client_images, "cpu", 1),
        StackedEngine(lenet(torch.float32), client_images),
    )
    start = loop.bank.clone()
    rounds(loop, method), rounds(stacked, method)
    assert ((stacked.bank - loop.bank).norm(dim=1) / (loop.bank - start).norm(dim=1)).max() < 1e-3


@pytest.mark.parametrize("options", [{"classifier": "wn"}, {"frozen": True}], ids=str)
def test_residual_networks(options: dict[str, object]) -> None:
    architecture = ShortResNet.model_validate({"weights": "none", "side": 32, "bottleneck": 8, **options})
    networks = [architecture.build(3, seed=1).double() for _ in range(2)]
    # Full batches alone: a BatchNorm over three values would amplify the rounding errors of so many layers.
    client_images = clients(architecture.stored_side, (8, 8))
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(),), TrueDomains())
    compare(SequentialEngine(networks[0], client_images, "cpu", 1), StackedEngine(networks[1], client_images), method)


class Doubled(Backbone):
    """Doubles its features in training mode."""

    out_features = 4

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, self.out_features, 3), nn.BatchNorm2d(self.out_features)

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        features = self.norm(self.conv(x)).relu().mean((2, 3))
        return 2 * features if self.training else features


class OtherInTraining(Architecture):
    """An architecture with that backbone."""

    name = "other_in_training"

    def backbone(self) -> Backbone:
        return Doubled()


def test_a_backbone_that_does_otherwise_in_training() -> None:
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(),), TrueDomains())
    loop, stacked = (OtherInTraining(side=8, bottleneck=6).build(3, seed=1).double() for _ in range(2))
    client_images = clients(8, (16, 8, 16, 8))
    compare(
        SequentialEngine(loop, client_images, "cpu", 1, "recalibrated"),
        StackedEngine(stacked, client_images, "cpu", 3, "recalibrated"),
        method,
    )


class Shared(Backbone):
    """Has one BatchNorm under two names, and uses it three times in a pass."""

    out_features = 4

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, self.out_features, 3), nn.Conv2d(self.out_features, self.out_features, 3)
        self.norm = self.other = nn.BatchNorm2d(self.out_features)

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        x = self.norm(self.first(x)).tanh()
        return self.other(self.norm(self.second(x)).tanh()).mean((2, 3))


class SharedNorm(Architecture):
    """An architecture with that backbone."""

    name = "shared_norm"

    def backbone(self) -> Backbone:
        return Shared()


def test_a_batch_norm_that_is_used_several_times_in_a_pass() -> None:
    method = Method("avg", "FedAvg", FedAvg(), TwoModel(), (Shot(),))
    loop, stacked = (SharedNorm(side=8, bottleneck=6).build(3, seed=1).double() for _ in range(2))
    client_images = clients(8, (16, 12))
    compare(SequentialEngine(loop, client_images, "cpu", 1), StackedEngine(stacked, client_images), method)


class Sums(Backbone):
    """A layer whose weights are the sum of two, which autograd gives one gradient."""

    out_features = 4

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(3, self.out_features, bias=False) for _ in range(2))

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        return nn.functional.linear(x.mean((2, 3)), self.first.weight + self.second.weight)


class SumOfWeights(Architecture):
    """An architecture with that backbone."""

    name = "sum_of_weights"

    def backbone(self) -> Backbone:
        return Sums()


def test_weights_that_are_added_are_pulled_and_clipped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federations, "TRAINING", federations.TRAINING.model_copy(update={"clip": 0.1, "lr": 0.05}))
    method = Method("prox", "FedProx", FedAvg(), TwoModel(), (Shot(), Proximal(mu=10)))
    loop, stacked = (SumOfWeights(side=8, bottleneck=6).build(3, seed=1).double() for _ in range(2))
    client_images = clients(8, (16, 12))
    compare(SequentialEngine(loop, client_images, "cpu", 1), StackedEngine(stacked, client_images), method)


def test_a_network_with_a_hidden_layer_and_an_activation() -> None:
    networks = [ThinCnn3(bottleneck=12).build(3, seed=1).double() for _ in range(2)]
    client_images = clients(sizes=(8, 8))
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(),), TrueDomains())
    compare(SequentialEngine(networks[0], client_images, "cpu", 1), StackedEngine(networks[1], client_images), method)


class SumOfParameters(Objective):
    """A penalty alone: the sum of all parameters times a factor, or a constant where that is 0."""

    name = "sum_of_parameters"
    factor: float = 0.0

    def __call__(self, batch: Batch) -> Tensor:
        """Nothing."""
        return torch.zeros(())

    def penalty(self, parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor:
        """Its gradient is one number, or there is none."""
        return self.factor * parameters.sum() if self.factor else torch.zeros(())


@pytest.mark.parametrize("beside", [(), (Shot(),)], ids=["alone", "beside_shot"])
@pytest.mark.parametrize("factor", [0.0, 0.1])
def test_a_penalty_that_is_constant_or_linear(factor: float, beside: tuple[Objective, ...]) -> None:
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (SumOfParameters(factor=factor), *beside), TrueDomains())
    compare(SequentialEngine(lenet(), clients(), "cpu", 1), StackedEngine(lenet(), clients()), method)


class Curious(Objective):
    """Branches on a value, which cannot be done for many clients at once."""

    name = "curious"

    def __call__(self, batch: Batch) -> Tensor:
        return batch.logits.sum() * (1e-3 if float(batch.logits.detach().sum()) > 0 else 2e-3)


def test_what_cannot_be_batched_runs_one_by_one_and_says_so() -> None:
    method = Method("wca", "FedWCA", WCA(), TwoModel(), (Shot(), Curious()), TrueDomains())
    loop, stacked = SequentialEngine(lenet(), clients(), "cpu", 1), StackedEngine(lenet(), clients())
    rounds(loop, method, 1)
    with pytest.warns(UserWarning, match="the loss of 'shot', 'curious' cannot be run for all clients at once"):
        rounds(stacked, method, 1)
    assert float((loop.bank - stacked.bank).abs().max()) <= 1e-9


class Unsure(Objective):
    """A zero of its own, as plugins return where there is nothing to learn from."""

    name = "unsure"

    def __call__(self, batch: Batch) -> Tensor:
        return torch.zeros((), requires_grad=True)


def test_a_loss_that_is_a_zero_of_its_own_trains_nothing_on_both_engines() -> None:
    method = Method("unsure", "Unsure", WCA(), TwoModel(), (Unsure(),), TrueDomains())
    compare(SequentialEngine(lenet(), clients(), "cpu", 1), StackedEngine(lenet(), clients()), method)


class Remembering(Objective):
    """Pulls features towards those of all of the client's images, or towards some of these: their number differs."""

    name = "remembering"
    some: bool = False

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        features = predictions.features
        return {"bank": features[features[:, 0] > features[:, 0].mean()] if self.some else features}

    def __call__(self, batch: Batch) -> Tensor:
        return (batch.features @ batch.observed["bank"].T).mean()


@pytest.mark.filterwarnings("ignore:(labels by|the loss of).* one by one")
@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("renew", ["round", "epoch"])
def test_observed_values_may_differ_in_shape_between_clients(renew: str, some: bool) -> None:
    method = Method("r", "R", WCA(), TwoModel(renew=renew), (Remembering(some=some), Shot()), TrueDomains())
    compare(SequentialEngine(lenet(), clients(), "cpu", 1), StackedEngine(lenet(), clients()), method)


class Noting(Argmax):
    """Notes a value for each image, or one for some of them."""

    name = "noting"
    some: bool = False

    def __call__(self, models: Mapping[str, Predictions], draws: Tensor) -> Targets:
        largest = models["start"].logits.softmax(-1).amax(-1)
        return replace(
            super().__call__(models, draws), notes={"largest": largest[largest > 0.4] if self.some else largest}
        )


@pytest.mark.filterwarnings("ignore:(labels by|the loss of).* one by one")
@pytest.mark.parametrize("some", [False, True])
def test_notes_of_labels_may_differ_in_shape_between_clients(some: bool) -> None:
    method = Method("n", "N", WCA(), Noting(some=some), (Shot(),), TrueDomains())
    compare(SequentialEngine(lenet(), clients(), "cpu", 1), StackedEngine(lenet(), clients()), method)


class Forgetful(Objective):
    """Observes nothing at the client with the fewest images."""

    name = "forgetful"

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        return {"bank": predictions.features.mean(0)} if len(predictions.logits) > min(SIZES) else {}

    def __call__(self, batch: Batch) -> Tensor:
        return batch.logits.mean()


def test_what_is_observed_of_some_clients_alone_is_refused() -> None:
    method = Method("forgetful", "Forgetful", WCA(), TwoModel(), (Forgetful(),), TrueDomains())
    with pytest.raises(FedwcaError, match="'bank' is there for some clients alone; right are the same names"):
        rounds(StackedEngine(lenet(), clients()), method, 1)


class Choosy(Objective):
    """A constant at the client with the fewest images."""

    name = "choosy"

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        return {"images": torch.tensor(len(predictions.logits))}

    def __call__(self, batch: Batch) -> Tensor:
        return batch.logits.mean() if int(batch.observed["images"]) > min(SIZES) else torch.zeros(())


@pytest.mark.parametrize("engine", [SequentialEngine, StackedEngine])
def test_a_loss_that_is_a_constant_at_one_client_is_refused(engine: type[SequentialEngine | StackedEngine]) -> None:
    method = Method("choosy", "Choosy", WCA(), TwoModel(), (Choosy(),), TrueDomains())
    with pytest.raises(FedwcaError, match="objective 'choosy': the loss does not depend on the model"):
        rounds(engine(lenet(), clients()), method, 1)


def test_step_groups_leave_no_client_out() -> None:
    sizes = sorted(SIZES, reverse=True)
    trained = [0] * len(sizes)
    for step in range(4):
        for group in step_groups(sizes, step, 8):
            assert all(sizes[k] - 8 * step == group.images or group.images == 8 for k in range(group.first, group.stop))
            for client in range(group.first, group.stop):
                trained[client] += group.images
    assert [size - count for size, count in zip(sizes, trained, strict=True)] == [int(size % 8 == 1) for size in sizes]
    assert [(group.first, group.stop) for group in group_neighbours(sizes)] == [(0, 1), (1, 3), (3, 4)]


class Far(TwoModel):
    """Names partners that do not exist, where there is no mixing."""

    name = "far"

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """As usual but for the partners of images that are not mixed."""
        targets = super().__call__(predictions, draws)
        unmixed = targets.partner_weights == 0
        return replace(targets, partners=targets.partners.masked_fill(unmixed, 10**6))


def test_partners_of_images_that_are_not_mixed_are_not_read() -> None:
    method = Method("far", "far", WCA(), Far(), (Shot(),), TrueDomains())
    compare(SequentialEngine(lenet(), clients(), "cpu", 1), StackedEngine(lenet(), clients()), method)
