"""Top-k compression of uploads: the largest entries of an update, relative to the model that the client was sent."""

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
    """Compresses an update to some whole tensors and the largest of all other entries.

    The first layer is sent whole because clients are clustered by it, and BatchNorm's statistics because their
    magnitudes are not comparable with those of weights.
    """

    layout: Layout
    share: float
    """Share of the entries outside whole tensors that is sent, above 0."""
    transport: Transport = "full"
    """Precision of values; positions are int32."""

    @property
    def whole_slots(self) -> list[Slot]:
        """Tensors that are sent whole."""
        return [*self.layout.layers()[0], *self.layout.statistics]

    @cached_property
    def sparse_positions(self) -> Tensor:
        """Positions in a row ``[P]`` of the entries outside whole tensors ``[L]``."""
        sparse = torch.ones(self.layout.width, dtype=torch.bool)
        for slot in self.whole_slots:
            sparse[slot.start : slot.stop] = False
        return sparse.nonzero()[:, 0]

    @property
    def count(self) -> int:
        """k, the number of those entries that is sent."""
        return max(1, round(self.share * len(self.sparse_positions)))

    def compress(self, row: Tensor, start: Tensor, residual: Tensor | None = None) -> tuple[NamedModels, Tensor]:
        """Compress a trained model.

        Args:
            row: the trained model ``[P]``.
            start: the model ``[P]`` that the update is measured from.
            residual: what earlier uploads left out ``[L]``, added to the update (Stich et al. 2018, Algorithm 1); None:
                nothing.

        Returns:
            Models for a parcel, and the part of the update that they leave out ``[L]``.
        """
        update = (row - start)[self.sparse_positions] + (0 if residual is None else residual)
        positions, values = largest_entries(update, self.count)
        sent_values, types = cast_in_range(values, DTYPES[self.transport]), wire_types(self.layout, self.transport)
        whole_tensors = {slot.name: cast_in_range(slot.of(row), types[slot.name]) for slot in self.whole_slots}
        left_out = update - scatter_entries(positions, sent_values.to(update.dtype), len(update))
        return {"model": whole_tensors, "largest": {"positions": positions.int(), "values": sent_values}}, left_out

    def decompress(self, models: NamedModels, start: Tensor) -> Tensor:
        """Return the model ``[P]`` of an upload in which `models_problem` finds nothing.

        Args:
            models: the upload.
            start: the model ``[P]`` that the update is measured from.
        """
        row = start.clone()
        for slot in self.whole_slots:
            row[slot.start : slot.stop] = models["model"][slot.name].reshape(-1).to(row)
        largest = models["largest"]
        positions, values = largest["positions"].long(), largest["values"].to(row)
        row[self.sparse_positions] += scatter_entries(positions, values, len(self.sparse_positions))
        return row

    def models_problem(self, models: NamedModels) -> str:
        """Return why uploaded models do not have the form of `compress`'s; empty if they do."""
        if set(models) != {"model", "largest"}:
            return f"holds {len(models)} models by other names than 'model' and 'largest'; right are those two"
        if problem := tensors_problem(models["model"], self.whole_slots, wire_types(self.layout, self.transport)):
            return problem
        largest = models["largest"]
        if set(largest) != {"positions", "values"}:
            return f"holds {len(largest)} lists of largest entries; right are 'positions' and 'values'"
        for name, dtype in (("positions", torch.int32), ("values", DTYPES[self.transport])):
            if problem := tensor_problem(largest[name], (self.count,), dtype):
                return f"{name} {problem}"
        positions, last = largest["positions"].long(), len(self.sparse_positions) - 1
        if int(positions[0]) < 0 or int(positions[-1]) > last or bool((positions.diff() < 1).any()):
            return f"positions do not ascend from 0 or more to {last} or less"
        return ""
