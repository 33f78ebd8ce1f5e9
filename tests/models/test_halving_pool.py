from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fedwca.models import models
from fedwca.models._halving_pool import max_pool_2x2


@pytest.mark.parametrize("size", [(3, 20, 28, 28), (2, 5, 7, 9), (1, 4, 2, 3)])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_without_gradient_pooling_is_torchs_own_to_the_bit(size: tuple[int, ...], order: torch.memory_format) -> None:
    x = torch.randn(size, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=order)
    x[0, 0, 0, 0] = torch.nan
    with torch.no_grad():
        pooled = max_pool_2x2(x)
    torch.testing.assert_close(pooled, F.max_pool2d(x, 2), rtol=0, atol=0, equal_nan=True)
    assert pooled.is_contiguous(memory_format=order)


@pytest.mark.parametrize("name", ["lenet", "convnet:side=28"])
def test_a_model_says_the_same_with_and_without_gradient(name: str) -> None:
    architecture = models.build(name)
    network = architecture.build(3, seed=0).eval()
    images = torch.randint(0, 256, (5, 3, architecture.stored_side, architecture.stored_side), dtype=torch.uint8)
    logits, _ = network(network.prepare(images))
    with torch.no_grad():
        again, _ = network(network.prepare(images))
    assert torch.equal(logits, again)
