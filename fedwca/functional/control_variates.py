"""SCAFFOLD's control variates, and its server step as one matrix of weights."""

from __future__ import annotations

import torch
from torch import Tensor


def control_update(
    control: Tensor, own: Tensor, start: Tensor, end: Tensor, steps: float | Tensor, lr: float | Tensor
) -> Tensor:
    """Update a client's control variate: c_i - c + (x - y_i) / (steps·lr); unchanged where there was no step.

    Source: SCAFFOLD (Karimireddy et al., ICML 2020), eq. 4, option II.

    Args:
        control: ``[..., P]``, c of the server.
        own: ``[..., P]``, c_i of the client.
        start: ``[..., P]``, x, the model that the round started from.
        end: ``[..., P]``, y_i, the model that the client trained.
        steps: number of the client's steps, or ``[..., 1]``.
        lr: learning rate of the steps.

    Returns:
        ``[..., P]``.

    >>> one = torch.tensor([1.0])
    >>> control_update(one, 2 * one, 3 * one, one, steps=4, lr=0.5)  # 2 - 1 + 2/2
    tensor([2.])
    """
    reach = torch.as_tensor(steps, dtype=torch.float64, device=own.device) * lr
    return torch.where(reach > 0, own - control + (start - end) / torch.where(reach > 0, reach, 1).to(own.dtype), own)


def scaffold_weights(present: Tensor, steps: Tensor, lr: float, server_lr: float, begun: bool) -> Tensor:
    """Compute SCAFFOLD's next server rows x, c, c_1 … c_K, as weights of the previous rows and the clients' models.

    Clients that are absent, or took no step, keep their c_i. x changes by ``server_lr`` times the mean of y_i - x over
    the present clients, c by 1/K times the sum of the changes of all c_i.

    Source: SCAFFOLD (Karimireddy et al., ICML 2020), eqs. 4 and 5 and Algorithm 1, lines 16-17.

    Args:
        present: ``[K]`` bool, clients that report.
        steps: ``[K]``, steps that each took.
        lr: learning rate of the steps.
        server_lr: eta_g; 1 makes x the mean of the models.
        begun: whether the server has its 2 + K rows; if not, it has x alone, and all controls are 0.

    Returns:
        ``[2 + K, R + K]`` float64, R = 2 + K, or 1 if not ``begun``: a row of weights for each next row; its columns
        are the previous rows, then the clients' models. Weights of x's row sum to 1; those of controls do not.

    >>> scaffold_weights(torch.tensor([True]), torch.tensor([2]), lr=0.25, server_lr=1.0, begun=False)  # of x and y_1
    tensor([[ 0.,  1.],
            [ 2., -2.],
            [ 2., -2.]], dtype=torch.float64)
    """
    present = present != 0
    clients = len(present)
    mask = present.double()
    n = mask.sum().clamp_min(1)
    reach = steps.double() * lr
    updated = present & (reach > 0)
    slope = torch.where(updated, 1 / torch.where(reach > 0, reach, 1), 0)
    eye = torch.eye(clients, dtype=torch.float64, device=present.device)
    # Columns are x, c, c_1 … c_K and y_1 … y_K.
    of_x = torch.cat([(1 - server_lr * mask.sum() / n)[None], mask.new_zeros(1 + clients), server_lr * mask / n])
    change = torch.cat([slope[:, None], -updated.double()[:, None], torch.zeros_like(eye), -slope[:, None] * eye], 1)
    of_controls = torch.cat([mask.new_zeros(clients, 2), eye, torch.zeros_like(eye)], 1) + change
    of_c = torch.cat([mask.new_zeros(1), mask.new_ones(1), mask.new_zeros(2 * clients)]) + change.sum(0) / clients
    weights = torch.cat([of_x[None], of_c[None], of_controls])
    return weights if begun else torch.cat([weights[:, :1], weights[:, 2 + clients :]], 1)
