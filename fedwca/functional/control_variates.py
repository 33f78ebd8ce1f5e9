"""SCAFFOLD's control variates, and its server as one matrix of weights."""

from __future__ import annotations

import torch
from torch import Tensor


def control_update(
    control: Tensor, own: Tensor, start: Tensor, end: Tensor, steps: float | Tensor, lr: float | Tensor
) -> Tensor:
    """Renew a client's control: c_i - c + (x - y_i) / (steps·lr); unchanged where there was no step.

    Source: SCAFFOLD (Karimireddy et al., ICML 2020), eq. 4, option II.

    Args:
        control: ``[..., P]``, c of the server.
        own: ``[..., P]``, c_i of the client.
        start: ``[..., P]``, x, the model that the round began from.
        end: ``[..., P]``, y_i, the model that the client trained.
        steps: number of its steps, or ``[..., 1]``.
        lr: learning rate of the steps.

    Returns:
        ``[..., P]``.

    >>> one = torch.tensor([1.0])
    >>> control_update(one, 2 * one, 3 * one, one, steps=4, lr=0.5)  # 2 - 1 + 2/2
    tensor([2.])
    """
    moved = torch.as_tensor(steps * lr, device=own.device)
    return torch.where(moved > 0, own - control + (start - end) / torch.where(moved > 0, moved, 1).to(own.dtype), own)


def scaffold_weights(present: Tensor, steps: Tensor, lr: float, server_lr: float, begun: bool) -> Tensor:
    """Give SCAFFOLD's next server rows x, c, c_1 … c_K as sums of the rows before and the clients' models.

    Clients that are absent, or took no step, keep their c_i. x moves by ``server_lr`` times the mean of y_i - x over
    those present, c by 1/K times the changes of all c_i.

    Source: SCAFFOLD (Karimireddy et al., ICML 2020), eqs. 4 and 5 and Algorithm 1, lines 16-17.

    Args:
        present: ``[K]`` bool, clients that report.
        steps: ``[K]``, steps that each took.
        lr: learning rate of the steps.
        server_lr: eta_g; 1 makes x the mean of the models.
        begun: whether the server has its 2 + K rows; if not, it has x alone, and all controls are 0.

    Returns:
        ``[2 + K, R + K]`` float64, R = 2 + K, or 1 if not ``begun``: a row of weights for each next row, of the rows
        before and then the clients' models. Weights of x's row sum to 1; those of controls do not.

    >>> scaffold_weights(torch.tensor([True]), torch.tensor([2]), lr=0.25, server_lr=1.0, begun=False)  # of x and y_1
    tensor([[ 0.,  1.],
            [ 2., -2.],
            [ 2., -2.]], dtype=torch.float64)
    """
    present = present != 0
    clients = len(present)
    here = present.double()
    some = here.sum().clamp_min(1)
    moved = steps.double() * lr
    renewed = present & (moved > 0)
    slope = torch.where(renewed, 1 / torch.where(moved > 0, moved, 1), 0)
    unit = torch.eye(clients, dtype=torch.float64, device=present.device)
    # Of x, c, c_1 … c_K and y_1 … y_K, in blocks of rows.
    of_x = torch.cat([(1 - server_lr * here.sum() / some)[None], here.new_zeros(1 + clients), server_lr * here / some])
    change = torch.cat([slope[:, None], -renewed.double()[:, None], torch.zeros_like(unit), -slope[:, None] * unit], 1)
    own = torch.cat([here.new_zeros(clients, 2), unit, torch.zeros_like(unit)], 1) + change
    of_c = torch.cat([here.new_zeros(1), here.new_ones(1), here.new_zeros(2 * clients)]) + change.sum(0) / clients
    weights = torch.cat([of_x[None], of_c[None], own])
    return weights if begun else torch.cat([weights[:, :1], weights[:, 2 + clients :]], 1)
