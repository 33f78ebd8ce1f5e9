"""Serialisation of values that one rank of a run sends to another."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch import Tensor

from fedwca.core.messages import Targets
from fedwca.engine.test_time_adaptation import AdaptedModel


class _Pickler(pickle.Pickler):
    """Pickles tensors by their values alone, from any device, and leaves out what other ranks do not read."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Targets):
            no_partners = value.partners[:0]
            return Targets, (
                value.labels,
                value.weights,
                no_partners,
                value.partner_weights,
                value.models_agree,
                value.notes,
            )
        if isinstance(value, AdaptedModel):
            return AdaptedModel, (value.model[:0], value.logits, value.entropies, value.taken)
        if type(value) is Tensor and value.dtype is not torch.bfloat16:
            return torch.tensor, (value.detach().cpu().numpy(),)
        return NotImplemented


def to_bytes(value: Any) -> Tensor:
    """A value as bytes ``[n]`` uint8."""
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8)


def from_bytes(payload: Tensor) -> Any:
    """The value that `to_bytes` serialised; safe only for bytes from this run's own ranks, since it unpickles them."""
    return pickle.loads(payload.numpy().tobytes())
