"""One client's round against a plain PyTorch loop with torch.optim.SGD on the same draws."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.core.interfaces import Objective, PseudoLabeler
from fedwca.core.messages import Batch, Blend, Offer, Predictions, Targets
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.client_program import loss_of_all
from fedwca.engine.client_task import SentModels, Task
from fedwca.engine.dropout import dropout_masks
from fedwca.engine.interface import SingleStep
from fedwca.engine.parameter_layout import Layout, mix_rows
from fedwca.engine.randomness import Keys, permutation, place_counters, uniform
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.replica import Replica
from fedwca.engine.sequential.worker import ClientWorker
from fedwca.engine.stacked import StackedEngine
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.functional import strong_augment
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.argmax import Argmax

KEYS = Keys(5)


class Fixed(PseudoLabeler):
    """The same targets whatever the models predict: labels cycle, every third image is mixed with the next one."""

    mixing: bool = True

    def __call__(self, predictions, draws):  # type: ignore[no-untyped-def]
        n = len(draws)
        index = torch.arange(n)
        mix = torch.where((index % 3 == 0) & self.mixing, 0.55, 0.0)
        weights = torch.where(index % 5 == 4, 0.0, 1.0)
        return Targets(index % 3, weights, (index + 1) % n, mix, mix == 0)


def reference(network: Network, images: Tensor, targets: Targets, training: Training, key: int, mu: float) -> Network:
    """The model after the same round in plain PyTorch: explicit images, torch's SGD, cross-entropy by class index."""
    model = copy.deepcopy(network)
    for parameter in model.classifier.parameters():
        parameter.requires_grad_(False)
    optimiser = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad],
        training.lr,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        nesterov=training.nesterov,
    )
    x = (images.to(model.bottleneck.weight.dtype) / 255 - 0.5) / 0.5
    mix = targets.partner_weights.to(x.dtype)[:, None, None, None]
    mixed = (1 - mix) * x + mix * x[targets.partners]
    model.train()
    step = 0
    for epoch in range(training.epochs):
        for batch in permutation(KEYS(2, 0, f"order {epoch}"), len(x)).split(training.batch_size):
            if len(batch) > 1:
                mixed_places = (targets.partner_weights[batch] > 0).nonzero()[:, 0]
                positions = torch.cat([torch.arange(len(batch)), training.batch_size + mixed_places])
                drop = dropout_masks(model.drops, key, step, positions, 2 * training.batch_size)
                logits, _ = model(torch.cat([x[batch], mixed[batch[mixed_places]]]), [m.to(x.dtype) for m in drop])
                plain = logits[: len(batch)]
                labelled = plain.clone()
                labelled[mixed_places] = logits[len(batch) :]
                p = plain.softmax(1)
                im = -(p * (p + 1e-5).log()).sum(1).mean() + (p.mean(0) * (p.mean(0) + 1e-5).log()).sum()
                has_label = targets.weights[batch] > 0
                ce = F.cross_entropy(labelled[has_label], targets.labels[batch][has_label])
                squared_distance = sum(
                    (p - q).square().sum() for p, q in zip(model.parameters(), network.parameters(), strict=True)
                )
                optimiser.zero_grad()
                (im + 0.1 * ce + mu / 2 * squared_distance).backward()
                if training.clip is not None:
                    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], training.clip)
                optimiser.step()
            step += 1
    return model


@pytest.mark.parametrize("mixing", [False, True])
@pytest.mark.parametrize("n", [13, 17])  # 17 = 2·8 + 1: the last batch has one image and is skipped
@pytest.mark.parametrize("more", [[], [Proximal(mu=0.5)]])
@pytest.mark.parametrize("recipe", [{}, {"nesterov": True, "clip": 0.3}, {"clip": 1e3}], ids=str)
def test_equals_a_plain_loop(
    network: Network, mixing: bool, n: int, more: list[Objective], recipe: dict[str, object]
) -> None:
    network = network.double()
    layout = Layout.of(network)
    images = torch.randint(0, 256, (n, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))
    training = Training(epochs=2, lr=0.05, batch_size=8, **recipe)  # type: ignore[arg-type]
    labeler = Fixed(mixing=mixing)
    row = layout.read(network)
    slot = torch.zeros_like(row)
    received = SentModels(torch.ones(1, 1, dtype=torch.float64), lambda weights: mix_rows(weights, row[None]), row)
    task = Task(labeler, [Shot(), *more], training, lambda purpose: KEYS(2, 0, purpose))
    worker = ClientWorker(Replica(network, layout), images, None, received, 1, slot, task, images)
    (targets,) = worker.train(Blend(worker.own))
    plain = reference(network, images, targets, training, KEYS(2, 0, "dropout"), mu=0.5 if more else 0.0)
    largest_update = (slot - row).abs().max()
    assert largest_update > 1e-3
    assert (slot - layout.read(plain)).abs().max() < 1e-10 * max(1.0, float(largest_update))


def run(loop: SequentialEngine, training: Training, labeler: PseudoLabeler, *extra_objectives: Objective) -> Tensor:
    """The bank after one round of every client from the network's own weights."""
    row = loop.layout.read(loop.network)
    offer = Offer(torch.ones(len(loop.images), 1, 1, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64))

    def task(client: int) -> Task:
        return Task(labeler, [Shot(), *extra_objectives], training, lambda purpose: KEYS(0, client, purpose))

    loop.run(
        SingleStep(offer, row[None], task, range(len(loop.images)), lambda worker: worker.train(Blend(worker.own)))
    )
    return loop.bank.clone()


def test_workers_do_not_change_a_bit(network: Network, images: list[ClientImages]) -> None:
    training = Training(epochs=2, batch_size=8)
    banks = [run(SequentialEngine(network, images, "cpu", workers), training, Fixed()) for workers in (1, 3)]
    assert torch.equal(*banks)


def test_a_client_does_not_depend_on_the_others(network: Network, images: list[ClientImages]) -> None:
    training = Training(epochs=1, batch_size=8)
    together = run(SequentialEngine(network, images, "cpu", 1), training, Fixed())
    alone = run(SequentialEngine(network, images[:1], "cpu", 1), training, Fixed())
    assert torch.equal(together[0], alone[0])


def test_one_image_is_labelled_but_not_trained_on(network: Network, images: list[ClientImages]) -> None:
    single = ClientImages(images[0].train[:1], images[0].test)
    loop = SequentialEngine(network, [single, images[1]], "cpu", 1)
    bank = run(loop, Training(epochs=1, batch_size=8), Fixed(mixing=False))
    row = loop.layout.read(network)
    assert torch.equal(bank[0], row)
    assert not torch.equal(bank[1], row)


def test_an_error_in_a_client_surfaces(loop: SequentialEngine) -> None:
    offer = Offer(torch.ones(4, 1, 1, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64))

    def idle(client: int) -> Task:
        return Task(Fixed(), [Shot()], Training(), lambda purpose: 0)

    def fail(worker: ClientWorker) -> list[None]:
        raise RuntimeError("a client is ill")

    with pytest.raises(RuntimeError, match="is ill"):
        loop.run(SingleStep(offer, loop.layout.read(loop.network)[None], idle, range(4), fail))


def test_labels_are_renewed_each_epoch_only_when_asked(network: Network, images: list[ClientImages]) -> None:
    calls: list[int] = []

    class Counting(Fixed):
        def __call__(self, predictions, draws):  # type: ignore[no-untyped-def]
            calls.append(len(draws))
            return super().__call__(predictions, draws)

    loop = SequentialEngine(network, images[:1], "cpu", 1)
    run(loop, Training(epochs=3, batch_size=8), Counting())
    assert len(calls) == 1
    run(loop, Training(epochs=3, batch_size=8), Counting(renew="epoch"))
    assert len(calls) == 1 + 3


def test_steps_leave_torch_threads_as_they_were(loop: SequentialEngine) -> None:
    threads = torch.get_num_threads()
    run(loop, Training(epochs=1, batch_size=8), Fixed())
    assert torch.get_num_threads() == threads


class Watched(Objective):
    """The mean squared logit of the strong view; keeps every batch it gets."""

    views = ("weak", "strong")
    seen: list = []

    def __call__(self, batch: Batch) -> Tensor:
        self.seen.append(batch)
        return batch.view_logits["strong"].square().mean()


def test_strong_views_come_when_asked_and_in_the_same_forward(network: Network, images: list[ClientImages]) -> None:
    shapes: list[int] = []
    loop = SequentialEngine(network, images[:1], "cpu", 1)
    replica = loop._replicas.get()
    replica.network.norm.register_forward_pre_hook(lambda module, inputs: shapes.append(len(inputs[0])))
    loop._replicas.put(replica)
    training = Training(epochs=1, batch_size=8)
    run(loop, training, Fixed(mixing=False))
    assert shapes == [13, 8, 5]  # all images in eval mode, then two steps
    shapes.clear()
    watched = Watched()
    watched.seen.clear()
    run(loop, training, Fixed(mixing=False), watched)
    assert shapes == [13, 16, 10]
    assert [len(batch.view_logits["strong"]) for batch in watched.seen] == [8, 5]
    assert all(batch.view_logits["weak"] is batch.logits for batch in watched.seen)
    shapes.clear()
    run(loop, training, Fixed(mixing=True), watched)
    mixed = sum(shapes[1:]) - 2 * 13
    assert mixed == 5  # every third image of 13 is mixed, and its strong view is not


def test_strong_views_are_of_the_steps_images_with_draws_of_each_step(
    network: Network, images: list[ClientImages]
) -> None:
    inputs: list[Tensor] = []
    loop = SequentialEngine(network, images[:1], "cpu", 1)
    replica = loop._replicas.get()
    embed = replica.network.embed
    replica.network.embed = lambda x: inputs.append(x) or embed(x)  # type: ignore[func-returns-value, method-assign]
    loop._replicas.put(replica)
    run(loop, Training(epochs=1, batch_size=8), Fixed(mixing=False), Watched())
    steps = permutation(KEYS(0, 0, "order 0"), 13).split(8)
    for step, (batch, shown) in enumerate(zip(steps, inputs[-2:], strict=True)):
        originals, count = images[0].train[batch], len(batch)
        draws = uniform(KEYS(0, 0, "strong"), place_counters(4, step, torch.arange(count), 16))
        assert torch.equal(shown[:count], network.prepare(originals))
        assert torch.equal(shown[count:], network.prepare(strong_augment(originals, draws)))
        assert not torch.allclose(shown[count:], shown[:count], atol=0.1)


def test_an_objective_that_asks_for_views_does_not_change_the_others_draws(
    network: Network, images: list[ClientImages]
) -> None:
    # With weight 0 the strong images still pass through BatchNorm in training, so only its statistics may differ.
    watched = Watched()
    watched.seen.clear()
    loop, training = SequentialEngine(network, images[:1], "cpu", 1), Training(epochs=1, batch_size=20, lr=1e-9)
    run(loop, training, Fixed(), watched)
    with_views = watched.seen[-1]
    second_objective = Watched()
    run(loop, training, Fixed(), second_objective)
    assert torch.equal(with_views.logits, watched.seen[-1].logits)
    assert torch.equal(with_views.view_logits["strong"], watched.seen[-1].view_logits["strong"])


def test_strong_views_do_not_depend_on_workers(network: Network, images: list[ClientImages]) -> None:
    training = Training(epochs=2, batch_size=8)
    banks = [run(SequentialEngine(network, images, "cpu", workers), training, Fixed(), Watched()) for workers in (1, 3)]
    assert torch.equal(*banks)


def test_the_networks_own_augmentation_is_what_training_shows(network: Network, images: list[ClientImages]) -> None:
    drawn: list[Tensor] = []

    def weak(shown: Tensor, draws: Tensor) -> Tensor:
        drawn.append(draws)
        return network.prepare(shown) * (1 + draws[:, :1, None, None].float())

    loop = SequentialEngine(network, images[:1], "cpu", 1)
    plain_bank = run(loop, Training(epochs=1, batch_size=8), Fixed())
    replica = loop._replicas.get()
    replica.network.weak_view = weak  # type: ignore[method-assign]
    replica.network.backbone.augments = True
    loop._replicas.put(replica)
    augmented_bank = run(loop, Training(epochs=1, batch_size=8), Fixed())
    assert not torch.equal(plain_bank, augmented_bank)
    # 13 images and 5 mixed ones in two steps, each with random numbers of its own.
    numbers = torch.cat(drawn)
    assert numbers.shape == (18, 4)
    assert len(numbers.unique()) == 18 * 4


@pytest.mark.parametrize(("confidence", "expected"), [(0.0, 0.1569), (0.9, -0.1308)])
def test_a_loss_over_all_images_is_of_all_objectives_by_weight(confidence: float, expected: float) -> None:
    # CE is log 4/3 = 0.2877, or 0 if no label is confident enough; L_IM is -0.1308.
    logits = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64).log()
    labeler = Argmax(confidence=confidence, share=0.0) if confidence else Argmax()
    task = Task(labeler, (CrossEntropy(), Shot(lam=0, eps=1e-15)), Training(), lambda purpose: 0)
    loss = loss_of_all(task, Predictions(logits, logits), torch.zeros(2), {}, {}, None)
    assert float(loss) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", [SequentialEngine, StackedEngine])
def test_the_source_model_is_the_servers_and_not_the_engines(
    network: Network, images: list[ClientImages], kind: type[SequentialEngine | StackedEngine]
) -> None:
    start = copy.deepcopy(network)  # as a central method trains it
    with torch.no_grad():
        for parameter in start.parameters():
            parameter.add_(0.1)
    engine = kind(network, images)
    method = Method("near", "near", FedAvg(), Fixed(), (Proximal(mu=1.0, to="source"),))
    server = init_server(engine, start)
    run_round(
        0, server, method, engine, Training(epochs=1, batch_size=8, weight_decay=0), Keys(0), torch.zeros(len(images))
    )
    trained = engine.layout.trained
    assert torch.equal(engine.bank[:, :trained], server.source[:trained].expand(len(images), -1))
    assert not torch.equal(server.source, engine.layout.read(network))
