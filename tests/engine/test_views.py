import torch

from fedwca.core.network import Network
from fedwca.engine.augmentation import weak_views
from fedwca.engine.randomness import uniform
from fedwca.models.resnet18 import ResNet18

IMAGES = torch.randint(0, 256, (6, 3, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_a_network_that_does_not_augment_sees_the_prepared_images(network: Network) -> None:
    images = IMAGES[..., :32, :32]
    assert torch.equal(weak_views(network, images, 1, 2, torch.arange(6), 12), network.prepare(images))


def test_images_of_floats_stay_as_they_are(network: Network) -> None:
    images = torch.arange(2 * 3 * 32 * 32).remainder(256).view(2, 3, 32, 32)
    floats = images.float().to(memory_format=torch.channels_last)
    assert torch.equal(network.prepare(floats), network.prepare(images.to(torch.uint8)))
    assert torch.equal(floats, images.float())


def test_every_place_of_every_step_draws_its_own_crop() -> None:
    network = ResNet18(side=32, weights="none", bottleneck=4).build(2)
    plain, mixed = torch.arange(6), 8 + torch.arange(6)  # a batch of at most 8: partners of mixup come after it
    draws = uniform(9, torch.stack([4 * (3 * 16 + plain) + j for j in range(4)], 1))
    assert torch.equal(weak_views(network, IMAGES, 9, 3, plain, 16), network.weak_view(IMAGES, draws))
    views = [weak_views(network, IMAGES, 9, 3, plain, 16), weak_views(network, IMAGES, 9, 3, mixed, 16)]
    views += [weak_views(network, IMAGES, 9, 4, plain, 16), weak_views(network, IMAGES, 8, 3, plain, 16)]
    for i, view in enumerate(views):
        for earlier_view in views[:i]:
            assert not torch.equal(view, earlier_view)
    few = weak_views(network, IMAGES[[4]], 9, 3, torch.tensor([4]), 16)
    assert torch.equal(few, views[0][[4]])
