"""Uploads that leave small changes out: the largest entries of an update, against the model the client was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedwca.deploy.messages import DTYPES, Transport, kinds, narrow_types, parcel_problem, type_problem
from fedwca.engine.layout import Layout, Slot
from fedwca.functional import largest_entries, scatter_entries

Models = Mapping[str, Mapping[str, Tensor]]


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
    def whole(self) -> list[Slot]:
        """Tensors that travel as they are."""
        return [*self.layout.layers()[0], *self.layout.statistics]

    @cached_property
    def loose(self) -> Tensor:
        """Positions in a row of all other entries ``[L]``."""
        left = torch.ones(self.layout.width, dtype=torch.bool)
        for slot in self.whole:
            left[slot.start : slot.stop] = False
        return left.nonzero()[:, 0]

    @property
    def count(self) -> int:
        """k, entries that travel."""
        return max(1, round(self.share * len(self.loose)))

    def thin(self, row: Tensor, own: Tensor, left: Tensor | None = None) -> tuple[Models, Tensor]:
        """What is uploaded of a model, and what is left out.

        Args:
            row: the trained model ``[P]``.
            own: what the client was sent first ``[P]``.
            left: what it left out before ``[L]``, added to the update (Stich et al. 2018, Algorithm 1); None: nothing.

        Returns:
            Models for a parcel, and what of the update they lack ``[L]``.
        """
        update = (row - own)[self.loose] + (0 if left is None else left)
        positions, values = largest_entries(update, self.count)
        sent, types = narrow_types(values, DTYPES[self.transport]), kinds(self.layout, self.transport)
        whole = {slot.name: narrow_types(slot.of(row), types[slot.name]) for slot in self.whole}
        rest = update - scatter_entries(positions, sent.to(update.dtype), len(update))
        return {"model": whole, "largest": {"positions": positions.int(), "values": sent}}, rest

    def restore(self, models: Models, own: Tensor) -> Tensor:
        """The model ``[P]`` that the server goes on with; see `parcel_problem` for what must hold."""
        row = own.clone()
        for slot in self.whole:
            row[slot.start : slot.stop] = models["model"][slot.name].reshape(-1).to(row)
        largest = models["largest"]
        row[self.loose] += scatter_entries(largest["positions"].long(), largest["values"].to(row), len(self.loose))
        return row

    def misfit(self, models: Models) -> str:
        """Why uploaded models are none that `thin` makes; empty if they are."""
        if set(models) != {"model", "largest"}:
            return f"holds {len(models)} models by other names than 'model' and 'largest'; right are those two"
        if why := parcel_problem(models["model"], self.whole, kinds(self.layout, self.transport)):
            return why
        largest = models["largest"]
        if set(largest) != {"positions", "values"}:
            return f"holds {len(largest)} lists of largest entries; right are 'positions' and 'values'"
        for name, kind in (("positions", torch.int32), ("values", DTYPES[self.transport])):
            if why := type_problem(name, largest[name], (self.count,), kind):
                return why
        positions = largest["positions"].long()
        if int(positions[0]) < 0 or int(positions[-1]) >= len(self.loose) or bool((positions.diff() < 1).any()):
            return f"positions do not ascend from 0 or more to {len(self.loose) - 1} or less"
        return ""
