"""One client's round against a plain PyTorch loop with torch.optim.SGD on the same draws."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedwca.data.partition import ClientImages
from fedwca.engine.bank import Layout, mix
from fedwca.engine.client import Desk, Received, Task, Training
from fedwca.engine.loop import Loop
from fedwca.engine.randomness import Keys, permutation
from fedwca.engine.replica import Replica, masks
from fedwca.kinds import Objective, PseudoLabeler
from fedwca.network import Network
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.shot import Shot
from fedwca.types import Blend, Offer, Targets

KEYS = Keys(5)


class Fixed(PseudoLabeler):
    """Gives the same targets whatever models say: labels cycle, every third image is mixed with its successor."""

    mixing: bool = True

    def __call__(self, predictions, draws, mask=None):  # type: ignore[no-untyped-def]
        n = len(draws)
        index = torch.arange(n)
        mix = torch.where((index % 3 == 0) & self.mixing, 0.55, 0.0)
        weights = torch.where(index % 5 == 4, 0.0, 1.0)
        return Targets(index % 3, weights, (index + 1) % n, mix, mix == 0)


def reference(network: Network, images: Tensor, targets: Targets, training: Training, key: int, mu: float) -> Network:
    """The same round written plainly: explicit images, torch's SGD, cross-entropy by class index."""
    model = copy.deepcopy(network)
    for parameter in model.classifier.parameters():
        parameter.requires_grad_(False)
    optimiser = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad],
        training.lr,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
    )
    x = (images.to(model.bottleneck.weight.dtype) / 255 - 0.5) / 0.5
    mix = targets.mix.to(x.dtype)[:, None, None, None]
    mixed = (1 - mix) * x + mix * x[targets.partners]
    model.train()
    step = 0
    for epoch in range(training.epochs):
        for batch in permutation(KEYS(2, 0, f"order {epoch}"), len(x)).split(training.batch_size):
            if len(batch) > 1:
                extra = (targets.mix[batch] > 0).nonzero()[:, 0]
                positions = torch.cat([torch.arange(len(batch)), training.batch_size + extra])
                drop = masks(model.drops, key, step, positions, 2 * training.batch_size)
                logits, _ = model(torch.cat([x[batch], mixed[batch[extra]]]), [m.to(x.dtype) for m in drop])
                plain = logits[: len(batch)]
                labelled = plain.clone()
                labelled[extra] = logits[len(batch) :]
                p = plain.softmax(1)
                im = -(p * (p + 1e-5).log()).sum(1).mean() + (p.mean(0) * (p.mean(0) + 1e-5).log()).sum()
                use = targets.weights[batch] > 0
                ce = F.cross_entropy(labelled[use], targets.labels[batch][use])
                near = sum(
                    (p - q).square().sum() for p, q in zip(model.parameters(), network.parameters(), strict=True)
                )
                optimiser.zero_grad()
                (im + 0.1 * ce + mu / 2 * near).backward()
                optimiser.step()
            step += 1
    return model


@pytest.mark.parametrize("mixing", [False, True])
@pytest.mark.parametrize("n", [13, 17])  # 17 = 2·8 + 1: the last batch has one image and is skipped
@pytest.mark.parametrize("more", [[], [Proximal(mu=0.5)]])
def test_equals_a_plain_loop(network: Network, mixing: bool, n: int, more: list[Objective]) -> None:
    network = network.double()
    layout = Layout.of(network)
    images = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))
    training = Training(epochs=2, lr=0.05, batch_size=8)
    labeler = Fixed(mixing=mixing)
    row = layout.read(network)
    slot = torch.zeros_like(row)
    received = Received(torch.ones(1, 1, dtype=torch.float64), lambda weights: mix(weights, row[None]), row)
    task = Task(labeler, [Shot(), *more], training, lambda purpose: KEYS(2, 0, purpose))
    desk = Desk(Replica(network, layout), images, received, 1, slot, task)
    targets = desk.train(Blend(desk.own))
    plain = reference(network, images, targets, training, KEYS(2, 0, "dropout"), mu=0.5 if more else 0.0)
    moved = (slot - row).abs().max()
    assert moved > 1e-3
    assert (slot - layout.read(plain)).abs().max() < 1e-10 * max(1.0, float(moved))


def run(loop: Loop, training: Training, labeler: PseudoLabeler) -> Tensor:
    """One round of every client from the network's own weights."""
    row = loop.layout.read(loop.network)
    offer = Offer(torch.ones(len(loop.images), 1, 1, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64))
    loop.run(
        offer,
        row[None],
        lambda client: Task(labeler, [Shot()], training, lambda purpose: KEYS(0, client, purpose)),
        lambda client, desk: desk.train(Blend(desk.own)),
        range(len(loop.images)),
    )
    return loop.bank.clone()


def test_workers_do_not_change_a_bit(network: Network, images: list[ClientImages]) -> None:
    training = Training(epochs=2, batch_size=8)
    banks = [run(Loop(network, images, "cpu", workers), training, Fixed()) for workers in (1, 3)]
    assert torch.equal(*banks)


def test_a_client_does_not_depend_on_the_others(network: Network, images: list[ClientImages]) -> None:
    training = Training(epochs=1, batch_size=8)
    together = run(Loop(network, images, "cpu", 1), training, Fixed())
    alone = run(Loop(network, images[:1], "cpu", 1), training, Fixed())
    assert torch.equal(together[0], alone[0])


def test_one_image_is_labelled_but_not_trained_on(network: Network, images: list[ClientImages]) -> None:
    single = ClientImages(images[0].train[:1], images[0].validation, images[0].test)
    loop = Loop(network, [single, images[1]], "cpu", 1)
    bank = run(loop, Training(epochs=1, batch_size=8), Fixed(mixing=False))
    row = loop.layout.read(network)
    assert torch.equal(bank[0], row)
    assert not torch.equal(bank[1], row)


def test_an_error_in_a_client_surfaces(loop: Loop) -> None:
    offer = Offer(torch.ones(4, 1, 1, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64))

    def idle(client: int) -> Task:
        return Task(Fixed(), [Shot()], Training(), lambda purpose: 0)

    def fail(client: int, desk: Desk) -> None:
        raise RuntimeError(f"client {client} is ill")

    with pytest.raises(RuntimeError, match="is ill"):
        loop.run(offer, loop.layout.read(loop.network)[None], idle, fail, range(4))


def test_labels_are_renewed_each_epoch_only_when_asked(network: Network, images: list[ClientImages]) -> None:
    calls: list[int] = []

    class Counting(Fixed):
        def __call__(self, predictions, draws, mask=None):  # type: ignore[no-untyped-def]
            calls.append(len(draws))
            return super().__call__(predictions, draws, mask)

    loop = Loop(network, images[:1], "cpu", 1)
    run(loop, Training(epochs=3, batch_size=8), Counting())
    assert len(calls) == 1
    run(loop, Training(epochs=3, batch_size=8), Counting(renew="epoch"))
    assert len(calls) == 1 + 3


def test_steps_leave_torch_threads_as_they_were(loop: Loop) -> None:
    before = torch.get_num_threads()
    run(loop, Training(epochs=1, batch_size=8), Fixed())
    assert torch.get_num_threads() == before
