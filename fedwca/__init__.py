"""Federated learning without labels: FedWCA, its rivals, and the bench that compares them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedwca._version import __version__

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset, Federation, partition
    from fedwca.datasets import find
    from fedwca.engine.loop import Loop
    from fedwca.engine.randomness import Keys
    from fedwca.engine.task import Training
    from fedwca.round import Method, begin, play
    from fedwca.source import SourceTraining, checkpoint, pretrain

_HOMES = {
    "FederatedDataset": "fedwca.data",
    "Federation": "fedwca.data",
    "Keys": "fedwca.engine.randomness",
    "Loop": "fedwca.engine.loop",
    "Method": "fedwca.round",
    "SourceTraining": "fedwca.source",
    "Training": "fedwca.engine.task",
    "begin": "fedwca.round",
    "checkpoint": "fedwca.source",
    "find": "fedwca.datasets",
    "partition": "fedwca.data",
    "play": "fedwca.round",
    "pretrain": "fedwca.source",
}

__all__ = [
    "FederatedDataset",
    "Federation",
    "Keys",
    "Loop",
    "Method",
    "SourceTraining",
    "Training",
    "__version__",
    "begin",
    "checkpoint",
    "find",
    "partition",
    "play",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    """Public names, imported when first asked for: `import fedwca` alone imports no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedwca' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
