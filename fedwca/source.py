"""Old name of `fedwca.federated.source_model`."""

from __future__ import annotations

from fedwca._deprecated import forward_module

RENAMED = {"split": "split_source", "digest": "source_digest", "checkpoint": "load_source", "Source": "TrainedSource"}

__getattr__ = forward_module(__name__, "fedwca.federated.source_model", RENAMED)
