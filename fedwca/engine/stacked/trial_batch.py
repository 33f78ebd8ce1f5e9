"""Clients that are trained in one step: those of a crowd, or of the crowds of several trials side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedwca.engine.device_copy import to_device
from fedwca.engine.randomness import keys_tensor
from fedwca.engine.stacked.heads import StackedClassifiers
from fedwca.engine.stacked.targets import StackedContext, StackedTargets, join_targets
from fedwca.errors import FedwcaError

if TYPE_CHECKING:
    from fedwca.engine.stacked.worker import StackedWorker


class TrialBatch:
    """G clients in order of falling size, whatever trial they belong to.

    Args:
        desks: one for each trial; of one method, one way of training, and with images in one tensor. One desk alone is
            its own cohort: nothing is copied or reordered.
    """

    def __init__(self, desks: Sequence[StackedWorker]) -> None:
        first = desks[0]
        self.desks, self.engine, self.task = list(desks), first.engine, first.task
        self.device, self._images = first.crowd.device, first.crowd.pile
        self._counts = [len(desk.crowd.sizes) for desk in desks]
        sizes = [size for desk in desks for size in desk.crowd.sizes]
        order = sorted(range(len(sizes)), key=lambda client: -sizes[client])
        self.sizes = [sizes[client] for client in order]
        # Where each client is among the desks' clients, one desk behind the other, and the way back.
        self._places = order
        self._order = to_device(order if self.several else [], self.device)
        self._back = self._order.argsort() if self.several else self._order
        self._keys: dict[str, Tensor] = {}
        self.counts = self.joined([desk.crowd.counts for desk in desks])
        """Images of each client ``[G]``."""
        self._starts = self.joined([desk.crowd.pile.starts[desk.crowd.numbers] for desk in desks])
        networks = [desk.engine.network for desk in desks]
        alike = all(network.classifier is networks[0].classifier for network in networks)
        self.heads = None if alike else StackedClassifiers.of(networks, self._counts)[self._order]
        """Their classifiers; None: one for all."""

    @property
    def several(self) -> bool:
        """Whether there is more than one trial."""
        return len(self.desks) > 1

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Values ``[G_t, …]`` of each desk's clients as those of the cohort ``[G, …]``."""
        return torch.cat(list(parts))[self._order] if self.several else parts[0]

    def parted(self, values: Tensor) -> list[Tensor]:
        """The opposite of `joined`."""
        return list(values[self._back].split(self._counts)) if self.several else [values]

    def keys(self, purpose: str) -> Tensor:
        """Each client's key of its draws ``[G]`` int64."""
        if not self.several:
            return self.desks[0].keys(purpose)
        if purpose not in self._keys:
            keys = [task.keys(purpose) for desk in self.desks for task in desk.tasks]
            self._keys[purpose] = keys_tensor((keys[place] for place in self._places), self.device)
        return self._keys[purpose]

    def take(self, rows: slice, places: Tensor) -> Tensor:
        """Images at ``places [g, B]`` of some clients, end to end: ``[g·B, 3, H, W]``."""
        return self._images.at(self._starts[rows], places)

    def targets(self, parts: Sequence[StackedTargets]) -> StackedTargets:
        """Targets of the desks' clients as those of the cohort, shorter ones filled up."""
        return StackedTargets(**self._filled([part.tree() for part in parts])) if self.several else parts[0]

    def _filled(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        def ordered(tree: Mapping[str, Any]) -> dict[str, Any]:
            return {name: ordered(x) if isinstance(x, Mapping) else x[self._order] for name, x in tree.items()}

        return ordered(join_targets(parts))

    def named(self, what: str, parts: Sequence[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
        """Mappings of values ``[G_t, …]`` as one of values ``[G, …]``.

        Raises:
            FedwcaError: trials have values of different shapes; ``what`` says which.
        """
        if not self.several:
            return parts[0]
        for name in parts[0]:
            shapes = {tuple(part[name].shape[1:]) for part in parts}
            if len(shapes) > 1:
                raise FedwcaError(
                    f"{what} {name!r} have shapes {', '.join(map(str, sorted(shapes)))} in trials that go through a "
                    "round together; take --trials-at-once 1"
                )
        return {name: self.joined([part[name] for part in parts]) for name in parts[0]}

    def lesson(self, parts: Sequence[StackedContext]) -> StackedContext:
        """What the desks' clients are trained towards, as one; what was shared by a trial's clients becomes each's."""
        if not self.several:
            return parts[0]
        shared = [
            {name: value.expand(count, *value.shape) for name, value in part.shared.items()}
            for part, count in zip(parts, self._counts, strict=True)
        ]
        return StackedContext(
            self.targets([part.targets for part in parts]),
            self._filled([part.taught for part in parts]),
            self.named("anchors", [part.anchors for part in parts]),
            self.named("observations", [part.observed for part in parts]),
            self.named("shared values", shared),
        )

    def apart(self, targets: StackedTargets) -> list[StackedTargets]:
        """The opposite of `targets`."""
        if not self.several:
            return [targets]
        tree, notes = targets.tree(), targets.notes
        whole = {name: self.parted(value) for name, value in tree.items() if name != "notes"}
        noted = {name: self.parted(value) for name, value in notes.items()}
        return [
            StackedTargets(
                **{name: values[i] for name, values in whole.items()},
                notes={name: values[i] for name, values in noted.items()},
            )
            for i in range(len(self.desks))
        ]
