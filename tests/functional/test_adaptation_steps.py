"""The learned loss, the gradient step on it, and the choice of a step by entropy."""

import math

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from fedwca.errors import UsageError
from fedwca.functional import inner_step, learned_loss, least_entropy, prediction_entropy


def test_learned_loss_by_hand() -> None:
    outputs = torch.tensor([3.0, 4.0, 0.0, -12.0])
    assert learned_loss(outputs).item() == 13
    assert learned_loss(outputs[:, None]).item() == 13
    assert learned_loss(outputs, reduction="rms").item() == 6.5
    doubles = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert learned_loss(doubles, reduction="rms").item() == pytest.approx(math.sqrt(14 / 3), rel=1e-15)
    assert learned_loss(outputs, torch.tensor([1, 1, 0, 0]), "rms").item() == pytest.approx(5 / math.sqrt(2))


def test_learned_loss_in_batches_by_hand() -> None:
    outputs = torch.tensor([3.0, 4.0, 6.0, 8.0, 1.0])
    assert learned_loss(outputs, batch=2).item() == pytest.approx((5 + 10 + 1) / 3)
    assert learned_loss(outputs, None, "rms", 2).item() == pytest.approx((5 / math.sqrt(2) + 10 / math.sqrt(2) + 1) / 3)
    assert learned_loss(outputs, batch=64).item() == pytest.approx(learned_loss(outputs).item())
    assert learned_loss(outputs, batch=1).item() == pytest.approx((3 + 4 + 6 + 8 + 1) / 5)


def test_padding_does_not_count_in_batches_of_the_learned_loss() -> None:
    outputs = torch.tensor([math.nan, 3.0, 7.0, 4.0, 6.0, 8.0, 9.0, 1.0, 5.0, 5.0])
    mask = torch.tensor([0, 1, 0, 1, 1, 1, 0, 1, 0, 0])
    assert learned_loss(outputs, mask, batch=2).item() == pytest.approx((5 + 10 + 1) / 3)


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("reduction", ["norm", "rms"])
def test_a_dead_network_has_gradient_zero_twice(batch: int | None, reduction: str) -> None:
    outputs = torch.zeros(5, requires_grad=True)
    loss = learned_loss(outputs, None, reduction, batch)
    (gradient,) = torch.autograd.grad(loss, outputs, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum() + (gradient * torch.arange(5)).sum(), outputs)
    assert loss.item() == 0
    assert (gradient == 0).all()
    assert (second == 0).all()


@pytest.mark.parametrize("batch", [None, 3])
def test_learned_loss_of_no_samples_is_zero(batch: int | None) -> None:
    assert learned_loss(torch.zeros(0), batch=batch).item() == 0
    assert learned_loss(torch.ones(4), torch.zeros(4), "rms", batch).item() == 0


@pytest.mark.parametrize("batch", [None, 2])
def test_learned_loss_is_twice_differentiable(batch: int | None) -> None:
    outputs = torch.randn(5, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([1, 0, 1, 1, 1])
    assert torch.autograd.gradcheck(lambda z: learned_loss(z, mask, "norm", batch), outputs)
    assert torch.autograd.gradgradcheck(lambda z: learned_loss(z, mask, "rms", batch), outputs)


def test_learned_loss_refuses_invalid_arguments() -> None:
    with pytest.raises(UsageError, match="one number a sample"):
        learned_loss(torch.zeros(3, 2))
    with pytest.raises(UsageError, match="no reduction 'sum'"):
        learned_loss(torch.zeros(3), reduction="sum")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="batch"):
        learned_loss(torch.zeros(3), batch=0)


def model(parameters: dict[str, Tensor], images: Tensor) -> Tensor:
    return (images @ parameters["one"]).tanh() @ parameters["two"]


def made(seed: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    parameters = {
        "one": torch.randn(4, 5, generator=draw, dtype=torch.float64),
        "two": torch.randn(5, 3, generator=draw, dtype=torch.float64),
    }
    return (
        parameters,
        torch.randn(6, 4, generator=draw, dtype=torch.float64),
        torch.randn(3, 1, generator=draw).double(),
    )


def test_a_step_by_hand() -> None:
    # loss = (w·x)²/2 at w = 3, x = 2: derivative 12, step 0.1: 1.8; outputs before: 6.
    x = torch.tensor([[2.0]])
    moved, logits = inner_step(lambda p: p["w"] * x, lambda z: z.square().sum() / 2, {"w": torch.tensor(3.0)}, 0.1)
    assert moved["w"].item() == pytest.approx(1.8)
    assert logits.item() == 6


def test_the_step_has_its_second_derivatives() -> None:
    """Gradients through the step, of parameters and of the adaptation network, against finite differences."""
    parameters, images, phi = made(0)

    def after(one: Tensor, two: Tensor, phi: Tensor) -> Tensor:
        moved, logits = inner_step(
            lambda p: model(p, images), lambda z: learned_loss(z @ phi), {"one": one, "two": two}, 0.3
        )
        return (model(moved, images) * logits.cos()).sum()

    inputs = [tensor.clone().requires_grad_() for tensor in (parameters["one"], parameters["two"], phi)]
    assert torch.autograd.gradcheck(after, inputs)
    # Without second derivatives the step would be a constant, and phi would have no gradient.
    assert torch.autograd.grad(after(*inputs), inputs[2])[0].abs().min() > 0


def test_steps_of_several_clients_at_once() -> None:
    stacks = [made(seed) for seed in range(3)]
    parameters = {name: torch.stack([client[0][name] for client in stacks]) for name in ("one", "two")}
    images, phi = torch.stack([client[1] for client in stacks]), torch.stack([client[2] for client in stacks])

    def step(parameters: dict[str, Tensor], images: Tensor, phi: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        return inner_step(lambda p: model(p, images), lambda z: learned_loss(z @ phi), parameters, 0.2)

    together, logits = vmap(step)(parameters, images, phi)
    for k, (client_parameters, client_images, client_phi) in enumerate(stacks):
        alone, client_logits = step(client_parameters, client_images, client_phi)
        torch.testing.assert_close(logits[k], client_logits)
        for name, value in alone.items():
            torch.testing.assert_close(together[name][k], value)


def test_no_step_size_changes_nothing_and_a_frozen_parameter_stays() -> None:
    parameters, images, _ = made(1)
    moved, logits = inner_step(
        lambda p: model(p, images), prediction_entropy, {**parameters, "idle": torch.ones(2)}, 0.0
    )
    assert torch.equal(logits, model(parameters, images))
    assert all(torch.equal(moved[name], value) for name, value in parameters.items())
    assert torch.equal(moved["idle"], torch.ones(2))


@pytest.mark.parametrize(
    ("entropies", "patience", "chosen", "seen"),
    [
        ([3.0, 2.0, 1.0], 1, 2, 3),  # never stops
        ([3.0, 2.0, 2.5, 1.0], 1, 1, 3),  # stops before the least of all
        ([3.0, 2.0, 2.5, 1.0], 2, 3, 4),
        ([3.0, 2.0, 2.5, 2.0, 1.0], 2, 1, 4),  # equal is no lower
        ([2.0, 2.0, 2.0], 5, 0, 3),  # of equals the first
        ([1.0], 1, 0, 1),
        ([math.nan, 2.0, math.nan, 1.0], 1, 1, 3),
        ([math.nan, math.nan, math.nan], 1, 0, 2),
        ([2.0, math.nan, math.nan, 1.0], 2, 0, 3),
    ],
)
def test_the_least_is_chosen(entropies: list[float], patience: int, chosen: int, seen: int) -> None:
    result = least_entropy(torch.tensor(entropies), patience)
    assert [tensor.dtype for tensor in result] == [torch.int64] * 2
    assert [tensor.tolist() for tensor in result] == [chosen, seen]


def test_least_of_several_rows_and_under_vmap() -> None:
    rows = torch.rand(4, 5, 9, generator=torch.Generator().manual_seed(2))
    chosen, seen = least_entropy(rows, 2)
    nested = vmap(vmap(lambda row: least_entropy(row, 2)))(rows)
    assert torch.equal(chosen, nested[0])
    assert torch.equal(seen, nested[1])
    for row, index, count in zip(rows.flatten(0, 1), chosen.flatten(), seen.flatten(), strict=True):
        best, waited, stop = 0, 0, len(row)
        for step in range(1, len(row)):
            best, waited = (step, 0) if row[step] < row[best] else (best, waited + 1)
            if waited == 2:
                stop = step + 1
                break
        assert (int(index), int(count)) == (best, stop)


def test_least_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no entropy"):
        least_entropy(torch.zeros(3, 0), 1)
    with pytest.raises(UsageError, match="patience"):
        least_entropy(torch.zeros(3), 0)
