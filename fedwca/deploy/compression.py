"""Uploads that leave small changes out: the largest entries of an update, against the model the client was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedwca.deploy.half_precision import DTYPES, Transport, cast_in_range, wire_types
from fedwca.deploy.wire_messages import tensors_problem
from fedwca.engine.parameter_layout import Layout, Slot
from fedwca.federated.upload_checks import tensor_problem
from fedwca.functional import largest_entries, scatter_entries

NamedModels = Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True)
class TopKCompressor:
    """Which parts of a model travel whole, and how many of the other entries.

    The first layer travels whole, because clients are clustered by it, and so do BatchNorm's statistics, whose sizes
    have nothing to do with those of weights.
    """

    layout: Layout
    share: float
    """Of the entries that do not travel whole, above 0."""
    transport: Transport = "full"
    """Precision of values; positions are int32."""

    @property
    def whole_slots(self) -> list[Slot]:
        """Tensors that travel as they are."""
        return [*self.layout.layers()[0], *self.layout.statistics]

    @cached_property
    def sparse_positions(self) -> Tensor:
        """Positions in a row of all other entries ``[L]``."""
        sparse = torch.ones(self.layout.width, dtype=torch.bool)
        for slot in self.whole_slots:
            sparse[slot.start : slot.stop] = False
        return sparse.nonzero()[:, 0]

    @property
    def count(self) -> int:
        """k, entries that travel."""
        return max(1, round(self.share * len(self.sparse_positions)))

    def compress(self, row: Tensor, own: Tensor, residual: Tensor | None = None) -> tuple[NamedModels, Tensor]:
        """What is uploaded of a model, and what is left out.

        Args:
            row: the trained model ``[P]``.
            own: what the client was sent first ``[P]``.
            residual: what it left out before ``[L]``, added to the update (Stich et al. 2018, Algorithm 1); None:
                nothing.

        Returns:
            Models for a parcel, and what of the update they lack ``[L]``.
        """
        update = (row - own)[self.sparse_positions] + (0 if residual is None else residual)
        positions, values = largest_entries(update, self.count)
        sent, types = cast_in_range(values, DTYPES[self.transport]), wire_types(self.layout, self.transport)
        whole = {slot.name: cast_in_range(slot.of(row), types[slot.name]) for slot in self.whole_slots}
        rest = update - scatter_entries(positions, sent.to(update.dtype), len(update))
        return {"model": whole, "largest": {"positions": positions.int(), "values": sent}}, rest

    def decompress(self, models: NamedModels, own: Tensor) -> Tensor:
        """The model ``[P]`` that the server goes on with; see `tensors_problem` for what must hold."""
        row = own.clone()
        for slot in self.whole_slots:
            row[slot.start : slot.stop] = models["model"][slot.name].reshape(-1).to(row)
        largest = models["largest"]
        positions, values = largest["positions"].long(), largest["values"].to(row)
        row[self.sparse_positions] += scatter_entries(positions, values, len(self.sparse_positions))
        return row

    def models_problem(self, models: NamedModels) -> str:
        """Why uploaded models are none that `compress` makes; empty if they are."""
        if set(models) != {"model", "largest"}:
            return f"holds {len(models)} models by other names than 'model' and 'largest'; right are those two"
        if why := tensors_problem(models["model"], self.whole_slots, wire_types(self.layout, self.transport)):
            return why
        largest = models["largest"]
        if set(largest) != {"positions", "values"}:
            return f"holds {len(largest)} lists of largest entries; right are 'positions' and 'values'"
        for name, kind in (("positions", torch.int32), ("values", DTYPES[self.transport])):
            if why := tensor_problem(largest[name], (self.count,), kind):
                return f"{name} {why}"
        positions, last = largest["positions"].long(), len(self.sparse_positions) - 1
        if int(positions[0]) < 0 or int(positions[-1]) > last or bool((positions.diff() < 1).any()):
            return f"positions do not ascend from 0 or more to {last} or less"
        return ""
