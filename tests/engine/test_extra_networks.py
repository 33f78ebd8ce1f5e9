"""Objectives with networks of their own: both engines, what stays with clients, sampled features, gradients by hand."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedwca.adaptations.entropy import Entropy
from fedwca.adaptations.generated import Generated
from fedwca.aggregators.fedavg import FedAvg
from fedwca.config.method_checks import check_views_are_known
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Latent
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.engine.augmentation import StepDraws
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys, normal, permutation
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.generated_model import train_generators
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.extra_networks import grow_network, remove_extras
from fedwca.federated.method import Method
from fedwca.models.convnet import ConvNet
from fedwca.models.mlp import Mlp
from fedwca.objectives.adapted import AdaptedCrossEntropy
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.objectives.reference_distribution import DISCRIMINATOR, GENERATOR, ReferenceDistribution
from fedwca.objectives.shot import Shot
from fedwca.objectives.simple_representation import REFERENCE, ClassGaussians, SimpleRepresentation
from fedwca.objectives.strong_views import StrongViews
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.pseudo_labelers.two_model import TwoModel
from tests.engine.federations import SIDE, Thin
from tests.engine.test_adaptation import ENGINES, clients, engines, play

TRAINING = Training(epochs=2, lr=0.02, batch_size=8, clip=5)
FEDSR = SimpleRepresentation(norm=0.1, divergence=0.01, draws=3)
FEDADG = ReferenceDistribution(rate=0.05, width=7)
MODELS: dict[str, Any] = {
    "lenet": Thin(bottleneck=8),
    "mlp": Mlp(width=6, side=SIDE),
    "convnet": ConvNet(width=2, side=SIDE, channels=1, bottleneck=8),
}


def method(*objectives: Objective, adaptation: Any = None, labeler: Any = None) -> Method:
    return Method("own", "Own", FedAvg(), labeler or Argmax(), objectives, adaptation=adaptation)


def network(composed: Method, model: str = "lenet", whole: bool = True) -> Network:
    return grow_network(MODELS[model].build(3, seed=1, trains_classifier=whole).double(), composed.trained, 1)


CASES: dict[str, tuple[Method, str, bool]] = {
    "fedsr": (method(FEDSR), "lenet", True),
    "fedsr, direct head": (method(FEDSR), "mlp", True),
    "fedsr, hidden head": (method(FEDSR), "convnet", True),
    "fedadg": (method(FEDADG), "lenet", True),
    "fedadg, direct head": (method(FEDADG), "mlp", True),
    "fedadg without labels": (method(FEDADG, Shot(), labeler=TwoModel(mu=0.3)), "lenet", False),
    "both": (method(FEDSR, FEDADG), "mlp", True),
    "fedsr and a step": (method(FEDSR, AdaptedCrossEntropy(), adaptation=Entropy(lr=0.1)), "lenet", True),
    "fedsr without labels": (method(FEDSR, Shot(), StrongViews(), labeler=TwoModel(mu=0.3)), "lenet", False),
}


@pytest.mark.parametrize("case", CASES)
def test_engines_agree(case: str) -> None:
    composed, model, known = CASES[case]
    rows, banks, adapted = [], [], []
    for name in ENGINES:
        engine = ENGINES[name](network(composed, model, known), clients(known=known))
        rows.append(play(engine, composed, TRAINING))
        banks.append(engine.bank)
        adapted.append(engine.adapt(Entropy(lr=0.1, steps=2), 0.1))
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(banks[0], banks[1], rtol=1e-9, atol=1e-9)
    for expected, actual in zip(*adapted, strict=True):
        torch.testing.assert_close(expected.logits, actual.logits, rtol=1e-9, atol=1e-9)


@engines
def test_what_stays_is_the_clients_own(name: str) -> None:
    composed = method(FEDSR)
    engine = ENGINES[name](network(composed), clients())
    start_row, layout = engine.layout.read(engine.network), engine.layout
    rows = play(engine, composed, TRAINING)
    (reference,) = layout.staying
    assert reference == layout.extras[REFERENCE]
    assert layout.sent == layout.width - (reference.stop - reference.start)
    assert torch.equal(rows[0, reference], start_row[reference])
    assert len({tuple(row) for row in engine.bank[:, reference].tolist()}) == len(engine.bank)
    delivered = engine.deliver(torch.ones(len(engine.bank), 1, dtype=torch.float64), rows)
    assert torch.equal(delivered[:, reference], engine.bank[:, reference])
    assert torch.equal(delivered[:, : reference.start], rows[:, : reference.start].expand(len(delivered), -1))
    # The second round started from each client's own values, not from the server's.
    one_round = ENGINES[name](network(composed), clients())
    play(one_round, composed, TRAINING, count=1)
    assert float((engine.bank[:, reference] - start_row[reference]).norm()) > float(
        (one_round.bank[:, reference] - start_row[reference]).norm()
    )


def size_and_relus(net: nn.Module) -> tuple[int, int]:
    """Numbers of a network's parameters and of its ReLU layers."""
    return sum(p.numel() for p in net.parameters()), sum(isinstance(part, nn.ReLU) for part in net.modules())


def test_fedadgs_networks_by_hand() -> None:
    nets = ReferenceDistribution().networks(3, 8)
    generator, discriminator = nets[GENERATOR], nets[DISCRIMINATOR]
    assert size_and_relus(generator) == ((10 + 3 + 1) * 128 + (128 + 1) * 8, 1)
    assert size_and_relus(discriminator) == ((3 + 8 + 1) * 128 + 128 + 1, 1)
    for parameter in discriminator.parameters():
        nn.init.zeros_(parameter)
    assert discriminator(torch.ones(1, 11)).tolist() == [[0.5]]


def test_fedsrs_distributions_by_hand() -> None:
    assert ClassGaussians(2, 1)(torch.tensor([1])).tolist() == [[0, pytest.approx(math.log1p(math.e)), 1]]
    # KL(N(-1, 1) ‖ N(0, 2)) = log 2 + (1 + 1) / 8 - 1/2: a factor of -1 turns the mean, not the deviation.
    one = torch.ones(1, 1)
    drawn = Batch(torch.zeros(1, 2), one, torch.zeros(1, 2), torch.tensor([0]), torch.ones(1), latent=Latent(one, one))
    drawn = replace(drawn, networks={REFERENCE: lambda labels: torch.tensor([[0.0, 2.0, -1.0]])})
    loss = SimpleRepresentation(divergence=1, norm=0)
    added = float(loss(drawn) - loss(replace(drawn, latent=None)))
    assert added == pytest.approx(math.log(2) - 0.25, rel=1e-5)


def test_generating_networks_by_hand() -> None:
    nets = Generated().generators({"weight": (3, 8), "bias": (3,)}, (1, 8))
    assert size_and_relus(nets["encoder"]) == ((64 + 1) * 200 + (200 + 1) * 32, 1)
    assert size_and_relus(nets["hypernetwork"]) == ((32 + 1) * 100 + 3 * (100 + 1) * 100 + (100 + 1) * (24 + 3), 4)
    convolutional = Generated().generators({"weight": (3, 1, 5, 5)}, (1, 28))["encoder"]
    assert size_and_relus(convolutional) == ((25 + 1) * 32 + (32 * 25 + 1) * 64 + (64 * 7 * 7 + 1) * 32, 2)


def test_networks_beside_it_leave_the_weights_of_the_base() -> None:
    for model in MODELS:
        plain, grown = network(method(CrossEntropy()), model), network(method(FEDSR), model)
        layout = Layout.of(grown)
        assert torch.equal(layout.read(grown)[layout.base], Layout.of(plain).read(plain)[layout.base])
        assert list(layout.extras) == [REFERENCE, "spread"]
        x = plain.prepare(clients((4,))[0].train)
        stripped = remove_extras(copy.deepcopy(grown)).eval()
        assert torch.equal(stripped(x)[0], plain.eval()(x)[0])
        assert stripped.state_dict().keys() == plain.state_dict().keys()


def test_predictions_are_means_over_draws() -> None:
    model = network(method(FEDSR), "mlp").eval()
    x = model.prepare(clients((5,))[0].train)
    logits, features = model(x)
    z = model.backbone(x, ())
    std, draws = F.softplus(model.extras["spread"](z)), model.draws
    assert draws is not None
    assert torch.equal(features, z)
    probabilities = torch.stack([model.classifier(z + std * e).softmax(-1) for e in draws]).mean(0)
    torch.testing.assert_close(logits.exp(), probabilities, rtol=1e-12, atol=1e-12)
    # An image's prediction does not depend on the rest of its batch.
    torch.testing.assert_close(model(x[3:4])[0], logits[3:4], rtol=1e-12, atol=1e-12)


def test_standard_normal_numbers() -> None:
    numbers = normal(5, torch.arange(20_000))
    assert abs(float(numbers.mean())) < 0.02
    assert abs(float(numbers.std()) - 1) < 0.02
    assert bool(numbers.isfinite().all())
    assert abs(float((numbers.abs() < 1).double().mean()) - 0.6827) < 0.01


def test_a_step_is_that_of_autograd_on_the_loss_as_it_is_written() -> None:
    composed, training = method(FEDSR), Training(epochs=1, lr=0.5, batch_size=8, momentum=0, weight_decay=0)
    model = network(composed, "mlp")
    client = clients((8,))[0]
    seen: list[Batch] = []

    class Watching(SimpleRepresentation):
        def __call__(self, batch: Batch) -> Tensor:
            seen.append(batch)
            return super().__call__(batch)

    engine = SequentialEngine(model, [client], workers=1)
    play(engine, method(Watching(**FEDSR.model_dump())), training, 1)
    (batch,) = seen
    assert batch.latent is not None
    noise = ((batch.features - batch.latent.mean) / batch.latent.std).detach()
    exact = copy.deepcopy(model)
    order = (batch.latent.mean[:, None] - exact.backbone(exact.prepare(client.train), ())).abs().sum(-1).argmin(1)
    for parameter in exact.parameters():
        parameter.requires_grad_(True)
    m = exact.backbone(exact.prepare(client.train[order]), ())
    s = F.softplus(exact.extras["spread"](m))
    z = m + s * noise
    assert client.labels is not None
    y, reference = client.labels[order], exact.extras[REFERENCE]
    r, w = reference.mean[y], F.softplus(reference.spread[y])
    kl = (
        (w / (reference.scale * s)).log()
        + ((reference.scale * s) ** 2 + (reference.scale * m - r) ** 2) / (2 * w**2)
        - 0.5
    )
    loss = F.cross_entropy(exact.classifier(z), y) + 0.1 * z.norm(dim=1).mean() + 0.01 * kl.sum(1).mean()
    loss.backward()
    for slot in engine.layout.parameters:
        parameter = exact.get_parameter(slot.name)
        assert parameter.grad is not None
        torch.testing.assert_close(slot.of(engine.bank[0]), parameter.data - 0.5 * parameter.grad, rtol=1e-9, atol=1e-9)


def test_fedadg_by_hand() -> None:
    """D(y, f) = f and G(u, y) = u: with F = 0.2 and u = 0.6, (1 - 0.6)² + 0.2² + 0.15 (1 - 0.2)² + 0.6 + 0.85 CE."""
    logits = torch.tensor([[0.75, 0.25]], dtype=torch.float64).log()
    one = torch.ones(1, dtype=torch.float64)
    nets = {GENERATOR: lambda x: x[:, :1], DISCRIMINATOR: lambda x: x[:, 2:]}
    batch = Batch(logits, 0.2 * one[:, None], logits, torch.tensor([0]), one)
    batch = replace(batch, networks=nets, frozen_networks=nets, noise=torch.full((1, 10), 0.6, dtype=torch.float64))
    smooth = -(0.95 * math.log(0.75) + 0.05 * math.log(0.25))
    expected = 0.4**2 + 0.2**2 + 0.15 * 0.8**2 + 0.6 + 0.85 * smooth
    assert float(ReferenceDistribution()(batch)) == pytest.approx(expected)
    # With smoothing 0.4 the label has 0.8 and the other class 0.2; with share 0.5 the terms weigh alike.
    other = -(0.8 * math.log(0.75) + 0.2 * math.log(0.25))
    changed = ReferenceDistribution(smoothing=0.4, share=0.5)
    assert float(changed(batch)) == pytest.approx(0.4**2 + 0.2**2 + 0.5 * 0.8**2 + 0.6 + 0.5 * other)
    # Without noise, as in `View.loss`.
    assert float(ReferenceDistribution()(replace(batch, noise=None))) == pytest.approx(smooth)


@engines
def test_one_backward_gives_each_network_the_gradient_of_its_own_loss(name: str) -> None:
    composed, training = method(FEDADG), Training(epochs=1, lr=0.5, batch_size=8, momentum=0, weight_decay=0)
    model, client = network(composed, "mlp"), clients((8,))[0]
    engine = ENGINES[name](model, [client])
    play(engine, composed, training, 1)
    step = StepDraws(model, lambda purpose: Keys(1)(0, 0, purpose), 0, 8)
    noise, order = step.noise(torch.arange(8), 10), permutation(Keys(1)(0, 0, "order 0"), 8)
    assert noise is not None
    assert client.labels is not None
    images, y, label = client.train[order], client.labels[order], F.one_hot(client.labels[order], 3).double()

    def gradients(part: str) -> dict[str, Tensor]:
        """Gradients of one network's loss by all parameters."""
        exact = copy.deepcopy(model).requires_grad_(True)
        discriminator = lambda f: exact.extras[DISCRIMINATOR](torch.cat([label, f], 1))  # noqa: E731
        features = exact.backbone(exact.prepare(images), ())
        fake = exact.extras[GENERATOR](torch.cat([noise, label], 1))
        ce = F.cross_entropy(exact.classifier(features), y, label_smoothing=0.1)
        loss = {
            DISCRIMINATOR: ((1 - discriminator(fake)) ** 2 + discriminator(features) ** 2).mean(),
            GENERATOR: discriminator(fake).mean(),
            "base": 0.85 * ce + 0.15 * ((1 - discriminator(features)) ** 2).mean(),
        }[part]
        loss.backward()
        return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in exact.named_parameters()}

    gradients_by_part = {part: gradients(part) for part in (DISCRIMINATOR, GENERATOR, "base")}
    for slot in engine.layout.parameters:
        part = next((part for part in (DISCRIMINATOR, GENERATOR) if slot.name.startswith(f"extras.{part}.")), "base")
        rate = 0.5 if part == "base" else 0.05
        expected = model.get_parameter(slot.name).data - rate * gradients_by_part[part][slot.name]
        torch.testing.assert_close(slot.of(engine.bank[0]), expected, rtol=1e-9, atol=1e-9)


GENERATED = Generated(encoder_rate=0.3, rate=0.2, clip=None, embedding=8, width=16, layers=2)


@pytest.mark.parametrize("renew", ["round", "epoch"])
@pytest.mark.parametrize("model", MODELS)
def test_generating_networks_move_towards_what_training_found(model: str, renew: str) -> None:
    """E and H get the gradient of half the squared distance of theta from theta', with theta' constant."""
    composed = method(CrossEntropy(), adaptation=GENERATED, labeler=Argmax(renew=renew))
    training = Training(epochs=2, lr=0.1, batch_size=4, momentum=0.9, weight_decay=1e-3)
    grown, client = network(composed, model), clients((8,))[0]
    engine = SequentialEngine(grown, [client], workers=1)
    layout = engine.layout
    assert list(layout.extras) == ["encoder", "hypernetwork"]
    play(engine, composed, training, 1)
    exact = copy.deepcopy(grown).requires_grad_(True)
    theta = exact.extras["hypernetwork"](exact.extras["encoder"](exact.prepare(client.train)).mean(0))
    ((theta - engine.bank[0, layout.base]) ** 2).sum().div(2).backward()
    for slot in layout.parameters[len(Layout.of(network(method(CrossEntropy()), model)).parameters) :]:
        parameter = exact.get_parameter(slot.name)
        assert parameter.grad is not None
        rate = 0.3 if slot.name.startswith("extras.encoder.") else 0.2
        torch.testing.assert_close(
            slot.of(engine.bank[0]), parameter.data - rate * parameter.grad, rtol=1e-9, atol=1e-9
        )
    # Training started from the generated model, as if the server had sent it.
    plain = network(method(CrossEntropy()), model)
    start = Layout.of(plain).read(plain)
    start[layout.base] = theta.detach()
    Layout.of(plain).write(plain, start)
    plain_engine = SequentialEngine(plain, [client], workers=1)
    play(plain_engine, method(CrossEntropy()), training, 1)
    torch.testing.assert_close(engine.bank[0, layout.base], plain_engine.bank[0, layout.base], rtol=0, atol=1e-12)


def test_gradients_of_generating_networks_are_cut_apart() -> None:
    composed = method(CrossEntropy(), adaptation=GENERATED.model_copy(update={"clip": 1e-3}))
    engine = SequentialEngine(network(composed, "mlp"), clients((8,)), workers=1)
    start_row, layout = engine.layout.read(engine.network), engine.layout
    play(engine, composed, TRAINING, 1)
    moved = {
        name: float((engine.bank[0, columns] - start_row[columns]).norm()) for name, columns in layout.extras.items()
    }
    assert moved == pytest.approx({"encoder": 0.3 * 1e-3, "hypernetwork": 0.2 * 1e-3}, rel=1e-2)


def test_models_are_generated_from_the_images_that_are_predicted() -> None:
    composed = method(CrossEntropy(), adaptation=GENERATED)
    engine = SequentialEngine(network(composed, "mlp"), clients(tests=(5, 0, 7, 1)), workers=2)
    rows, layout = play(engine, composed, TRAINING, 2), engine.layout
    # The networks travel; the model itself stays, and is each client's own.
    assert [layout.base] == [slice(layout.staying[0].start, layout.staying[-1].stop)]
    assert layout.sent == layout.width - layout.base.stop
    assert torch.equal(rows[0, layout.base], layout.read(engine.network)[layout.base])
    assert not torch.equal(rows[0, layout.base.stop :], layout.read(engine.network)[layout.base.stop :])
    bank = engine.bank.clone()
    adapted = engine.adapt(GENERATED, 0.1, torch.ones(4, 1, dtype=torch.float64), rows)
    assert torch.equal(engine.bank, bank)
    exact = copy.deepcopy(engine.network)
    layout.write(exact, rows[0])
    for k, result in enumerate(adapted):
        images = engine._test[k]
        assert (result.taken, result.steps, len(result.logits)) == ((1, 1, len(images)) if len(images) else (0, 0, 0))
        if len(images):
            theta = exact.extras["hypernetwork"](exact.extras["encoder"](exact.prepare(images)).mean(0))
            torch.testing.assert_close(result.model[layout.base], theta.detach(), rtol=0, atol=1e-12)
        else:
            assert torch.equal(result.model[layout.base], bank[k, layout.base])


def test_view_of_a_loss_is_the_cross_entropy_alone() -> None:
    """Where a model's loss on all images is evaluated, batches have no draws and no extra networks."""
    logits = torch.tensor([[0.75, 0.25]], dtype=torch.float64).log()
    batch = Batch(logits, logits, logits, torch.tensor([0]), torch.ones(1, dtype=torch.float64))
    assert float(FEDSR(batch)) == pytest.approx(-math.log(0.75))


class Judged(Objective):
    """Cross-entropy, with an extra network that the loss does not use."""

    name = "judged"
    last: str = "plain"

    def networks(self, classes: int, features: int) -> dict[str, nn.Module]:
        """One network, with a last layer by `last`."""
        kinds = {"plain": nn.Identity(), "norm": nn.BatchNorm1d(features), "drop": nn.Dropout()}
        judge = nn.Sequential(nn.Linear(features, features), kinds.get(self.last, nn.Identity()))
        answers: dict[str, Any] = {"nothing": None, "function": {"judge": len}, "dotted": {"the.judge": judge}}
        answers |= {name: {name: judge} for name in ("backbone", "bottleneck", "classifier", "spread")}
        answer: dict[str, nn.Module] = answers.get(self.last, {"judge": judge})
        return answer

    def __call__(self, batch: Batch) -> Tensor:
        """The cross-entropy of the model alone."""
        return F.cross_entropy(batch.logits, batch.labels)


class Misspelt(Judged):
    """Lets a network stay with clients that it does not have."""

    local_networks = ("jugde",)


class Hurried(Judged):
    """Has a learning rate for a network that it does not have."""

    def learning_rates(self) -> dict[str, float]:
        """A rate for an unknown name."""
        return {"judges": 0.1}


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (
            Judged(last="norm"),
            "the network 'judge' of 'judged' has the buffer '1.running_mean'; parameters alone travel",
        ),
        (Judged(last="drop"), "the network 'judge' of 'judged' draws at random by itself"),
        (Misspelt(), "a rate for the network 'jugde', or lets it stay, and has none of that name; there are judge"),
        (Hurried(), "a rate for the network 'judges'"),
        (Judged(last="nothing"), "'judged': networks gave nothing; right is a mapping of names to modules"),
        (Judged(last="function"), "'judged': networks gave 'judge' as a builtin_function_or_method; right is"),
        (Judged(last="dotted"), "'judged': networks gave a network called 'the.judge'; right is a name without a dot"),
        *(
            (Judged(last=part), f"'judged': networks gave a network called '{part}', as a part of the model; rename it")
            for part in ("backbone", "bottleneck", "classifier", "spread")
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_networks_that_cannot_be_trained_so_are_refused(objective: Objective, said: str) -> None:
    assert "judge" in network(method(Judged())).extras
    with pytest.raises(FedwcaError) as error:
        network(method(objective))
    assert said in str(error.value)


class Constant(Entropy):
    """A loss that the outputs do not change."""

    name = "constant"

    def loss(self, logits: Tensor, networks: Any) -> Tensor:
        """Of constants."""
        return super().loss(logits.detach(), networks)


@engines
def test_a_step_needs_a_loss_of_the_outputs(name: str) -> None:
    engine = ENGINES[name](network(method(CrossEntropy()), "mlp"), clients())
    with pytest.raises(FedwcaError, match="adaptation 'constant': the loss does not depend on the outputs, so no step"):
        engine.adapt(Constant(), 0.1)


class Short(Generated):
    """Generates too few parameters."""

    name = "short"

    def generate(self, networks: Any, images: Tensor) -> Tensor:
        """All but the first."""
        return super().generate(networks, images)[1:]


class Ungenerated(Generated):
    """Has no networks."""

    name = "ungenerated"

    def generators(self, *given: Any) -> dict[str, nn.Module]:
        """Nothing."""
        nothing: Any = None
        return nothing  # type: ignore[no-any-return]


def test_a_generated_model_is_whole() -> None:
    with pytest.raises(FedwcaError, match="'ungenerated': generators gave nothing; right is a mapping of names to mod"):
        network(method(CrossEntropy(), adaptation=Ungenerated(**GENERATED.model_dump())), "mlp")
    composed = method(CrossEntropy(), adaptation=Short(**GENERATED.model_dump()))
    engine = SequentialEngine(network(composed, "mlp"), clients((8,)), workers=1)
    with pytest.raises(
        FedwcaError, match=r"adaptation 'short': generate gave torch.float64 of shape \(\d+,\); right are"
    ):
        play(engine, composed, TRAINING, 1)


def test_generating_weights_that_are_added_are_clipped_once() -> None:
    weights = [nn.Parameter(torch.tensor([3.0, 4.0])) for _ in range(2)]  # autograd gives both the same gradient
    replica: Any = SimpleNamespace(
        row=torch.zeros(2),
        layout=SimpleNamespace(base=slice(0, 2)),
        network=SimpleNamespace(prepare=lambda images: images),
        extras={},
        train_extras=lambda: {"generator": weights},
    )
    adaptation: Any = SimpleNamespace(name="sum", generate=lambda networks, images: sum(weights), clip=1.0)
    # The gradient of each is (6, 8), of length 10; that of both is as long as the square root of 200.
    train_generators(replica, adaptation, torch.zeros(1), torch.tensor([6.0, 8.0]), {}, 1.0)
    expected = torch.tensor([3.0, 4.0]) - torch.tensor([6.0, 8.0]) / 200**0.5
    for weight in weights:
        torch.testing.assert_close(weight.detach(), expected)


def test_a_view_that_there_is_not_is_refused() -> None:
    class Blurred(CrossEntropy):
        """Reads a view that does not exist."""

        @property
        def views(self) -> tuple[str, ...]:  # type: ignore[override]
            return ("plain", "medium")

    check_views_are_known([CrossEntropy(), StrongViews()])
    with pytest.raises(UsageError, match="reads the view 'medium'; there are plain, weak, strong"):
        check_views_are_known([Blurred()])
