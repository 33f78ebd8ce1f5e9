"""Describes a model that a deployment made; the other clients and the accuracy are unknown."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedwca._version import __version__
from fedwca.core.model_description import ModelDescription, weights_hash
from fedwca.deploy.composition import Composition


def describe_deployed(
    composition: Composition, tensors: Mapping[str, Tensor], holder: str, rounds: int, **fields: Any
) -> ModelDescription:
    """Return the description of a model of a deployment, without an accuracy.

    Args:
        composition: the composition that was run.
        tensors: the model's tensors.
        holder: whose model it is, such as ``client 3``.
        rounds: communication rounds behind it.
        fields: further fields of `ModelDescription`.
    """
    model = composition.architecture()
    text = composition.model_dump_json()
    return ModelDescription(
        fedwca=__version__,
        classes=composition.names or tuple(map(str, range(composition.classes))),
        side=model.stored_side,
        stretch=composition.stretch,
        model=model.shareable_values(),
        method=composition.method or str(composition.aggregator["name"]),
        label=composition.label or str(composition.aggregator["name"]),
        holder=holder,
        dataset="a deployment's server",
        source="",  # no domain: clients are told nothing about the server's images
        rounds=rounds,
        config_hash=hashlib.sha256(text.encode()).hexdigest()[:16],
        weights_hash=weights_hash(tensors),
        **fields,
    )
