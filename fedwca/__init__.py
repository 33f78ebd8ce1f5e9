"""Federated learning when labels are missing: FedWCA, MDMGB, FedTTA, and what they are compared with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedwca._deprecated import forward_modules, forward_names
from fedwca._version import __version__

if TYPE_CHECKING:
    from fedwca import functional
    from fedwca.core.training_settings import SourceTraining, Training
    from fedwca.data import FederatedDataset, Federation, partition
    from fedwca.datasets import find_dataset
    from fedwca.engine.randomness import Keys
    from fedwca.engine.sequential.engine import SequentialEngine
    from fedwca.federated.method import Method
    from fedwca.federated.round import init_server, run_round
    from fedwca.federated.source_model import load_source, pretrain
    from fedwca.runs.python_api import bench, compare, resume
    from fedwca.runs.write_report import write_report

_HOMES = {
    "FederatedDataset": "fedwca.data",
    "Federation": "fedwca.data",
    "Keys": "fedwca.engine.randomness",
    "Method": "fedwca.federated.method",
    "SequentialEngine": "fedwca.engine.sequential.engine",
    "SourceTraining": "fedwca.core.training_settings",
    "Training": "fedwca.core.training_settings",
    "bench": "fedwca.runs.python_api",
    "compare": "fedwca.runs.python_api",
    "find_dataset": "fedwca.datasets",
    "init_server": "fedwca.federated.round",
    "load_source": "fedwca.federated.source_model",
    "partition": "fedwca.data",
    "pretrain": "fedwca.federated.source_model",
    "resume": "fedwca.runs.python_api",
    "run_round": "fedwca.federated.round",
    "write_report": "fedwca.runs.write_report",
}
_RENAMED = {
    "Loop": "fedwca.SequentialEngine",
    "begin": "fedwca.init_server",
    "checkpoint": "fedwca.load_source",
    "compare_methods": "fedwca.compare",
    "find": "fedwca.find_dataset",
    "play": "fedwca.run_round",
    "resume_experiment": "fedwca.resume",
    "run_experiment": "fedwca.bench",
}

__all__ = [
    "FederatedDataset",
    "Federation",
    "Keys",
    "Method",
    "SequentialEngine",
    "SourceTraining",
    "Training",
    "__version__",
    "bench",
    "compare",
    "find_dataset",
    "functional",
    "init_server",
    "load_source",
    "partition",
    "pretrain",
    "resume",
    "run_round",
    "write_report",
]

_old_name = forward_names(__name__, _RENAMED, stacklevel=4)
forward_modules()


def __getattr__(name: str) -> Any:
    """Import a public name on first access, so that `import fedwca` alone does not import torch."""
    if name == "functional":
        return importlib.import_module("fedwca.functional")
    return getattr(importlib.import_module(_HOMES[name]), name) if name in _HOMES else _old_name(name)


def __dir__() -> list[str]:
    """The public names only, for tab completion."""
    return __all__
