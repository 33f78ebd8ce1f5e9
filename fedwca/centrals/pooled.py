"""Supervised training on one pool of labelled images: of all sources, or, as an oracle, of the target."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from fedwca.centrals import register
from fedwca.core.central import Central, DomainBatch


@register("pooled")
class Pooled(Central):
    """Plain cross-entropy on the images of all sources together: Source-only; on the target's own: Oracle.

    Source: SFDA, sec. 4.2 (Source-only and Oracle).
    """

    label = "pooled"
    paper = "SFDA sec. 4.2"
    pooled = True

    on: Literal["sources", "target"] = "sources"
    """Whose images and labels; target is the ORACLE, which knows what no method may know."""

    @property
    def oracle(self) -> bool:
        """Whether it is trained on the target's labels."""
        return self.on == "target"

    def __call__(self, step: DomainBatch) -> Tensor:
        """The cross-entropy of one step."""
        return step.cross_entropy()
