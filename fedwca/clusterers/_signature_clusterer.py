"""The base class of clusterers that read model parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from fedwca.core.interfaces import Clusterer
from fedwca.core.messages import Signatures
from fedwca.functional import Metric


class SignatureClusterer(Clusterer):
    """A clusterer of parameter vectors.

    A layer that no client trained (frozen) tells nothing: the next trained one is read instead, with a warning.
    """

    signature: Annotated[int, Field(ge=1)] | Literal["all", "batch_norm"] = 1
    """Number of the convolution or linear layer to read (from 1, weights and bias); or all, or BatchNorm statistics."""
    reference: Literal["none", "source"] = "none"
    """none: the raw weights, as in the paper; source: the update since the source model."""

    @property
    def neighbour_metric(self) -> Metric | None:
        """Cosine, as in FINCH, so that the records of all clusterers of parameters can be compared."""
        return "cosine"

    @property
    def layer_number(self) -> int | None:
        """``signature`` where it is a number."""
        return self.signature if isinstance(self.signature, int) else None

    def client_vectors(self, signatures: Signatures) -> tuple[Tensor, Metric] | None:
        """The signatures, by Euclidean distance."""
        return self.read(signatures), "euclidean"

    def read(self, signatures: Signatures) -> Tensor:
        """Signature of each client ``[K, …]``."""
        layer = None if self.layer_number is None else self._layer(signatures)

        def pick(of: Signatures) -> Tensor:
            if layer is not None:
                return of.layer_weights(layer).double()
            return (of.parameters() if self.signature == "all" else of.batch_norm_statistics()).double()

        # The source model is read at the layer that the clients trained.
        return (
            pick(signatures) - pick(signatures.source_signatures()) if self.reference == "source" else pick(signatures)
        )

    def _layer(self, signatures: Signatures) -> int:
        """The configured layer, or the first one after it that differs from the source model's at some client."""
        first, source = int(self.signature), signatures.source_signatures()
        for index in range(first, signatures.layer_count + 1):
            if bool((signatures.layer_weights(index) != source.layer_weights(index)).any()):
                return index
        return first

    def notes(self, signatures: Signatures) -> Mapping[str, Any]:
        """``layer``: the number of the layer that was read; ``warning`` where it is not the configured one."""
        if self.layer_number is None:
            return {}
        layer = self._layer(signatures)
        message = f"layer {self.signature} is the source model's at every client, so layer {layer} is compared"
        return {"layer": layer} if layer == self.signature else {"layer": layer, "warning": message}
