"""Steps of plain SGD are those of torch's optimiser, bit by bit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import fedwca
from fedwca.engine.sgd import SGD


def make_parameters() -> list[nn.Parameter]:
    draws = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=draws)) for shape in ((3, 5), (7,), (2, 2), (4,))]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_steps_are_those_of_torch(momentum: float, weight_decay: float) -> None:
    mine, torchs = make_parameters(), make_parameters()
    optimiser = SGD(iter(mine), 0.1, momentum, weight_decay)
    reference = torch.optim.SGD(torchs, 0.1, momentum, weight_decay=weight_decay)
    for step in range(4):
        for parameters in (mine, torchs):
            # One gets no gradient in the first step, one in the second and one never.
            used = [p for i, p in enumerate(parameters) if i not in (step, 3)]
            torch.stack([(p**2).sin().sum() for p in used]).sum().backward()
        optimiser.step()
        reference.step()
        assert all(torch.equal(p, q) for p, q in zip(mine, torchs, strict=True))
        optimiser.zero_grad()
        reference.zero_grad()
        assert all(p.grad is None for p in mine)
    assert not torch.equal(mine[0], make_parameters()[0])


def test_no_run_makes_an_optimiser_of_torch() -> None:
    """Each of them imports torch's compiler when it is made, which takes longer than a small run."""
    files = Path(fedwca.__file__).parent.rglob("*.py")
    assert not [
        file for file in files if re.search(r"torch\.optim\.[A-Z]\w*\(|from torch\.optim import", file.read_text())
    ]
