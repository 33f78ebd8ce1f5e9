"""What a crowd knows of the models it was sent: passes over its images, and evidence from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Predictions
from fedwca.engine.device_copy import to_device
from fedwca.engine.randomness import keys_tensor, uniform
from fedwca.engine.stacked.batch import ClientBatch
from fedwca.engine.stacked.vmap import vmap_or_loop
from fedwca.engine.task import Task
from fedwca.engine.timing import Clock
from fedwca.functional import alignment, soft_neighborhood_density

if TYPE_CHECKING:
    from fedwca.engine.stacked.engine import StackedEngine

SIMILARITIES = 2**26
"""Entries of neighbourhood matrices at a time, over clients: 256 MiB in float32."""


class StackedView(Clock):
    """A `fedwca.core.messages.View` for the G clients of a crowd, in its order.

    Clients with the same number of images go through a function together; nothing is padded there, so a component
    sees what it would see of each client alone.
    """

    def __init__(
        self,
        engine: StackedEngine,
        crowd: ClientBatch,
        weights: Tensor,
        personal: int,
        rows: Tensor,
        tasks: Sequence[Task],
    ) -> None:
        super().__init__(engine.device)
        self.engine, self.crowd, self.weights, self.rows, self.tasks = engine, crowd, weights, rows, tasks
        self.source = engine.layout.read(engine.network)
        sent = weights.shape[1]
        self._identity = torch.eye(sent, dtype=weights.dtype, device=weights.device)
        self.own = self.model(0)
        self.shared = self._identity[personal:]
        self.passes = 0
        self.seen: dict[int, tuple[Tensor, Predictions]] = {}
        self._keys: dict[str, Tensor] = {}
        self.vectors = engine.network.class_vectors

    @property
    def task(self) -> Task:
        """What is the same for all of them."""
        return self.tasks[0]

    def keys(self, purpose: str) -> Tensor:
        """Each client's key of its draws ``[G]`` int64; made and sent to the device once."""
        if purpose not in self._keys:
            self._keys[purpose] = keys_tensor((task.keys(purpose) for task in self.tasks), self.crowd.device)
        return self._keys[purpose]

    def model(self, column: int) -> Tensor:
        """The mixture ``[G, Q+S]`` that is one of the models sent."""
        return self._identity[column].expand(len(self.tasks), -1)

    def mixed(self, mixtures: Tensor) -> Tensor:
        """The models ``[G, P]`` that mixtures ``[G, Q+S]`` of what was sent stand for at their clients."""
        weights = (mixtures.to(self.weights)[:, None] @ self.weights)[:, 0]
        return self.engine.settled(self.crowd, self.engine.mix(weights, self.rows))

    def predict(self, mixtures: Tensor) -> Predictions:
        """Predictions of mixtures ``[G, Q+S]`` on the clients' images; asking again for the same ones is free."""
        if (found := self.seen.get(id(mixtures))) is not None:
            return found[1]
        predictions = self.passed(self.mixed(mixtures))
        # The mixtures are kept beside their answer so that their id stays taken.
        self.seen[id(mixtures)] = (mixtures, predictions)
        return predictions

    def passed(self, models: Tensor) -> Predictions:
        """A pass by the clients' own models ``[G, P]``."""
        self.passes += 1
        return self.crowd.outputs(models, "evidence")

    def _passed_by(self, mixtures: Tensor) -> Iterator[Predictions]:
        """A pass by each of the mixtures ``[M, Q+S]`` at every client; by one model for all where it is one."""
        common = mixtures is self.shared and self.engine.statistics in ("mixed", "pooled")
        for mixture in mixtures:
            if common:
                self.passes += 1
                yield self.crowd.outputs_of_one(self.engine.mix(mixture @ self.weights[0], self.rows), "evidence")
            else:
                yield self.passed(self.mixed(mixture.expand(len(self.tasks), -1)))

    def by_source(self) -> Predictions:
        """A pass by the model everybody was sent first."""
        self.passes += 1
        return self.crowd.outputs_of_one(self.source, "evidence")

    def outputs(self, mixtures: Tensor) -> list[Predictions]:
        """What each client's own mixture says of its images."""
        found = self.predict(mixtures)
        cut = zip(found.logits, found.features, self.crowd.sizes, strict=True)
        return [Predictions(logits[:size], features[:size]) for logits, features, size in cut]

    def each(self, what: str, function: Any, trees: Any, chunk: int | None = None) -> list[Any]:
        """A function of each client's samples, for the clients of each span; see `fedwca.engine.stacked.vmap`.

        Args:
            what: names the function.
            function: of one client's tree.
            trees: with tensors ``[G, N, …]``, cut to the samples that are there.
            chunk: entries of a quadratic matrix at a time, which decides how many clients go at once.
        """
        return [
            vmap_or_loop(
                what,
                function,
                _cut(trees, span.first, span.stop, span.images),
                chunk=None if chunk is None else max(1, chunk // max(1, min(span.images, 1024) * span.images)),
            )
            for span in self.crowd.alike
        ]

    def alignment(self, mixtures: Tensor) -> Tensor:
        """Mean cosine to the nearest classifier vector: ``[M, Q+S] -> [G, M]``."""
        values = []
        for found in self._passed_by(mixtures):
            values.append(torch.cat(self.each("alignment", lambda f: alignment(f, self.vectors), found.features)))
        return torch.stack(values, 1).to(self.weights)

    def density(self, mixtures: Tensor) -> Tensor:
        """Soft neighborhood density of the mixed models: ``[G, Q+S] -> [G]``, nats."""
        probabilities = self.predict(mixtures).probabilities
        found = self.each("density", soft_neighborhood_density, probabilities, SIMILARITIES)
        return torch.cat(found).to(self.weights)

    def loss(self, mixtures: Tensor) -> Tensor:
        """The task's objectives over all images, labelled by the mixed model itself: ``[M, Q+S] -> [G, M]``, nats."""
        task, draws = self.task, self.draws("partners")
        teachers = {name for objective in task.objectives for name in objective.teachers}
        source = {"source": self.by_source().logits} if "source" in teachers else {}
        shared = self.common(task.shared)

        def value(tree: dict[str, Any]) -> Tensor:
            p = Predictions(tree["logits"], tree["features"])
            targets = task.labeler(dict.fromkeys(task.labeler.models, p), tree["draws"])
            taught = dict.fromkeys(teachers, p.logits) | tree["source"]
            views, seen = dict.fromkeys(("weak", "strong"), p.logits), observed(task.objectives, p)
            weights = targets.weights.to(p.logits.dtype)
            batch = Batch(p.logits, p.features, p.logits, targets.labels, weights, taught, views, seen, shared)
            return torch.stack([objective(batch) for objective in task.objectives]).sum()

        values = []
        with torch.no_grad():
            for p in self._passed_by(mixtures):
                tree = {"logits": p.logits, "features": p.features, "draws": draws, "source": source}
                values.append(torch.cat(self.each("the loss", value, tree)))
        return torch.stack(values, 1).to(self.weights)

    def draws(self, purpose: str) -> Tensor:
        """A uniform number for each client's images ``[G, N]``."""
        places = torch.arange(max(1, *self.crowd.sizes), device=self.crowd.device)
        return uniform(self.keys(purpose)[:, None], places[None])

    def common(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is the same for all clients, where and as models are."""
        return {name: to_device(value.to(self.vectors.dtype), self.vectors.device) for name, value in values.items()}


def _cut(tree: Any, first: int, stop: int, images: int) -> Any:
    if isinstance(tree, Tensor):
        return tree[first:stop, :images]
    if isinstance(tree, Mapping):
        return {name: _cut(value, first, stop, images) for name, value in tree.items()}
    return tuple(_cut(value, first, stop, images) for value in tree)


def observed(objectives: Sequence[Objective], start: Predictions) -> dict[str, Tensor]:
    """What objectives measure of one client's start, by name."""
    return {name: value for o in objectives for name, value in o.observe(start).items()}
