"""A try of a model before anything is trained: what a backbone of one's own must be like."""

from __future__ import annotations

import torch
from torch.nn.modules.dropout import _DropoutNd

from fedwca.core.describe_value import describe_value
from fedwca.core.network import Network
from fedwca.errors import FedwcaError


def check_model(network: Network, name: str) -> None:
    """See that a backbone gives features as it says, and draws nothing by itself.

    Args:
        network: freshly built.
        name: of its architecture.

    Raises:
        FedwcaError: it does not; says what, and what would be right.
    """
    backbone, side = network.backbone, network.side
    drops = [part for part in backbone.modules() if isinstance(part, _DropoutNd) and part.p > 0]
    if drops and not backbone.frozen:
        raise FedwcaError(
            f"model {name!r}: its backbone has {type(drops[0]).__name__}, whose masks no seed decides; name the place "
            "in `drops` and multiply by the mask that forward is given (docs/interfaces.md)"
        )
    images = torch.zeros(2, 3, side, side, dtype=torch.uint8)
    with torch.no_grad():
        was, found = network.training, None
        try:
            found = backbone.eval()(network.prepare(images), [])
        except Exception as error:
            what = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise FedwcaError(
                f"model {name!r}: a pass over two images of {side}×{side} pixels raises {what}"
            ) from error
        finally:
            network.train(was)
    right = f"right is torch.float32 of shape (2, {backbone.width}), its `width`"
    if not isinstance(found, torch.Tensor) or found.shape != (2, backbone.width) or found.dtype != torch.float32:
        raise FedwcaError(f"model {name!r}: its backbone gives {describe_value(found)} for two images; {right}")
    if not bool(torch.isfinite(found).all()):
        raise FedwcaError(f"model {name!r}: its backbone gives values that are not finite for two black images")
