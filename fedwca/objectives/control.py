"""SCAFFOLD's control term, which corrects a client's gradient for its drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.objectives import register


@register("control")
class Control(Objective):
    """⟨w, c - c_i⟩ over the trained parameters, which adds c - c_i to every step's gradient.

    c and c_i are the control variates that aggregator ``scaffold`` sends. In round 0 there are none yet, and the term
    is 0, because both names then stand for the received model.
    Source: Karimireddy et al., SCAFFOLD, ICML 2020, eq. 3.
    """

    label = "control term"
    paper = "Karimireddy et al. 2020 (SCAFFOLD)"
    anchors: ClassVar[tuple[str, ...]] = ("control", "own_control")

    def __call__(self, batch: Batch) -> Tensor:
        """Zero on a batch: a sum over no rows, so that there is a gradient, which is 0."""
        return batch.logits[:0].sum()

    def penalty(self, parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor:
        """⟨w, c - c_i⟩."""
        return (parameters * (anchors["control"] - anchors["own_control"])).sum()
