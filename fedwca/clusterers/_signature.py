"""What clients are clustered by: shared by every clusterer that reads model parameters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from fedwca.kinds import Clusterer
from fedwca.types import Signatures


class Signed(Clusterer):
    """A clusterer of parameter vectors."""

    signature: Annotated[int, Field(ge=1)] | Literal["all", "batch_norm"] = 1
    """Number of the convolution or linear layer to read (from 1, weights and bias); or all, or BatchNorm statistics."""
    reference: Literal["none", "source"] = "none"
    """none: the raw weights, as in the paper; source: the update since the source model."""

    def read(self, signatures: Signatures) -> Tensor:
        """Signature of each client ``[K, …]``."""
        x = self._pick(signatures).double()
        return x - self._pick(signatures.reference()).double() if self.reference == "source" else x

    def _pick(self, signatures: Signatures) -> Tensor:
        if self.signature == "all":
            return signatures.everything()
        if self.signature == "batch_norm":
            return signatures.statistics()
        return signatures.layer(self.signature)
