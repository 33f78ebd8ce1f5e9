"""The proximal term, which keeps parameters near those of a reference model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import NonNegativeFloat
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.objectives import register


@register("proximal")
class Proximal(Objective):
    """(mu/2)·|w - w0|² over the trained parameters; BatchNorm statistics and the frozen classifier are left out.

    Source: Li et al. (FedProx), MLSys 2020, eq. 2; Huang et al. (FedAMP), AAAI 2021, with mu = lambda/alpha_k.
    """

    label = "proximal term"
    paper = "Li et al. 2020 (FedProx)"

    mu: NonNegativeFloat = 0.01
    """Weight of the term; 0 switches it off."""
    to: Literal["start", "cluster", "source"] = "start"
    """w0: the model the round starts from, the cluster's, or the source."""

    @property
    def anchors(self) -> tuple[str, ...]:  # type: ignore[override]
        """The model it stays near."""
        return (self.to,)

    def __call__(self, batch: Batch) -> Tensor:
        """Zero on a batch: a sum over no rows, so that there is a gradient, which is 0."""
        return batch.logits[:0].sum()

    def penalty(self, parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor:
        """(mu/2)·|w - w0|²."""
        return self.mu / 2 * (parameters - anchors[self.to]).square().sum()
