"""What holds for every registered adaptation, and the networks of the learned one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedwca.adaptations import adaptations
from fedwca.adaptations.entropy import Entropy
from fedwca.adaptations.learned import Learned
from fedwca.core.adaptation import Adaptation
from fedwca.functional import learned_loss, prediction_entropy

every = pytest.mark.parametrize("adaptation", [adaptations.build(name) for name in adaptations.names()], ids=str)


def networks(adaptation: Adaptation) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    modules = {**adaptation.networks(3, 8), **adaptation.generators({"weight": (3, 8), "bias": (3,)}, (1, 8))}
    return {name: module.double() for name, module in modules.items()}


def logits(n: int = 6) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@every
def test_its_loss_is_differentiable_twice_and_the_order_of_images_changes_nothing(adaptation: Adaptation) -> None:
    modules = networks(adaptation)
    outputs = logits().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda z: adaptation.loss(z, modules), (outputs,))
    order = torch.tensor([3, 1, 0, 2, 5, 4])
    torch.testing.assert_close(adaptation.loss(outputs[order], modules), adaptation.loss(outputs, modules))
    assert float(adaptation.loss(outputs[:0], modules).detach()) == 0


@every
def test_it_names_rates_of_its_own_networks_alone(adaptation: Adaptation) -> None:
    modules = networks(adaptation)
    assert set(adaptation.learning_rates()) <= set(modules)
    assert not [name for module in modules.values() for name, _ in module.named_buffers()]


@every
def test_one_that_generates_models_generates_all_parameters(adaptation: Adaptation) -> None:
    if not adaptation.generates_models:
        with pytest.raises(NotImplementedError):
            adaptation.generate({}, torch.zeros(1, 1, 8, 8))
        return
    images = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    modules = networks(adaptation)
    parameters = adaptation.generate(modules, images)
    assert parameters.shape == (3 * 8 + 3,)
    # The order of images does not matter, because they are averaged; other images give other parameters.
    torch.testing.assert_close(adaptation.generate(modules, images.flip(0)), parameters)
    assert not torch.equal(adaptation.generate(modules, images[:3]), parameters)


def test_the_losses_are_their_equations() -> None:
    assert torch.equal(Entropy().loss(logits(), {}), prediction_entropy(logits()))
    modules = networks(Learned())
    outputs = modules["adaptation"](logits())
    for fields in ({}, {"reduction": "rms"}, {"batch": 2}):
        learned = Learned.model_validate(fields)
        assert torch.equal(learned.loss(logits(), modules), learned_loss(outputs, **fields))  # type: ignore[arg-type]


def test_the_learned_network_is_that_of_the_paper() -> None:
    (module,) = Learned().networks(10, 200).values()
    assert isinstance(module, nn.Sequential)
    linear = [part for part in module if isinstance(part, nn.Linear)]
    assert [(part.in_features, part.out_features) for part in linear] == [(10, 32), (32, 32), (32, 32), (32, 1)]
    assert sum(isinstance(part, nn.ReLU) for part in module) == 3
    assert Learned(rate=0.01).learning_rates() == {"adaptation": 0.01}
    (small,) = Learned(width=4, layers=1).networks(10, 200).values()
    assert sum(parameter.numel() for parameter in small.parameters()) == 10 * 4 + 4 + 4 + 1
