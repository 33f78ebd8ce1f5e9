"""One client's work between two messages: evidence on the models it was sent, labels, training."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from fedwca.engine.bank import mix
from fedwca.engine.randomness import permutation, uniform
from fedwca.engine.replica import Replica, masks
from fedwca.functional import alignment, soft_neighborhood_density
from fedwca.kinds import Objective, PseudoLabeler
from fedwca.types import Batch, Blend, Predictions, Targets


class Training(BaseModel):
    """How a client trains; a fresh optimiser every round, constant learning rate."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    epochs: PositiveInt = 5
    """E, passes over the client's images in a round."""
    lr: PositiveFloat = 1e-3
    """Learning rate of SGD."""
    batch_size: PositiveInt = 64
    """Images per step; the last, smaller batch is kept unless it holds a single image (BatchNorm needs two)."""
    momentum: NonNegativeFloat = 0.9
    """Heavy-ball momentum."""
    weight_decay: NonNegativeFloat = 1e-3
    """L2 decay of all trained parameters."""


@dataclass(frozen=True)
class Received:
    """The models one client was sent, as mixtures of the server's rows."""

    weights: Tensor
    """``[Q+S, R]``"""
    rows: Tensor
    """``[R, P]``"""

    def mix(self, mixture: Tensor) -> Tensor:
        """The model ``[P]`` that a mixture ``[Q+S]`` of what was sent stands for."""
        return mix(mixture.to(self.weights) @ self.weights, self.rows)


class Desk:
    """A client at work: a `fedwca.types.View` for K = 1 that remembers passes and trains into its ``slot [P]``."""

    def __init__(self, replica: Replica, images: Tensor, received: Received, personal: int, slot: Tensor) -> None:
        self.replica, self.images, self.received, self.slot = replica, images, received, slot
        self._identity = torch.eye(received.weights.shape[0], dtype=received.weights.dtype)
        self.own = self._identity[:1]
        self.shared = self._identity[personal:]
        self.seconds: dict[str, float] = defaultdict(float)
        self.passes = 0
        self._seen: dict[int, tuple[Tensor, Predictions]] = {}

    @contextmanager
    def clock(self, phase: str) -> Iterator[None]:
        """Adds the time spent inside to ``seconds[phase]``."""
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start

    def predict(self, mixture: Tensor) -> Predictions:
        """Predictions of a mixture ``[1, Q+S]`` on the client's images; asking again for the same one is free."""
        if (found := self._seen.get(id(mixture))) is not None:
            return found[1]
        predictions = self._pass(self.received.mix(mixture[0]))
        # The mixture is kept beside its answer so that its id stays taken.
        self._seen[id(mixture)] = (mixture, predictions)
        return predictions

    def _pass(self, row: Tensor) -> Predictions:
        self.passes += 1
        self.replica.bind(row)
        return self.replica.predict(self.images)

    def alignment(self, mixtures: Tensor) -> Tensor:
        """Mean cosine to the nearest classifier vector, one value a mixture: ``[M, Q+S] -> [1, M]``."""
        vectors = self.replica.class_vectors
        values = [alignment(self._pass(self.received.mix(w)).features, vectors) for w in mixtures]
        return torch.stack(values)[None].double().cpu()

    def density(self, mixtures: Tensor) -> Tensor:
        """Soft neighborhood density of the mixed model: ``[1, Q+S] -> [1]``, nats."""
        return soft_neighborhood_density(self.predict(mixtures).probabilities)[None].double().cpu()

    def labels(self, labeler: PseudoLabeler, blend: Blend, key: int, row: Tensor | None = None) -> Targets:
        """Targets from the models the labeler reads; ``row`` stands in for the start once training has moved it."""
        known: Mapping[str, Tensor] = {"cluster": self.own, **blend.references, "start": blend.start}
        predictions = {
            name: self._pass(row) if name == "start" and row is not None else self.predict(known[name])
            for name in labeler.models
        }
        draws = uniform(key, torch.arange(len(self.images))).to(self.images.device)
        with torch.no_grad():
            return labeler(predictions, draws)

    def train(
        self,
        blend: Blend,
        labeler: PseudoLabeler,
        objectives: Sequence[Objective],
        training: Training,
        keys: Callable[[str], int],
    ) -> Targets:
        """Label and train for one round; the trained model is left in the client's row of the bank.

        Args:
            blend: where to start and what to compare with.
            labeler: makes the targets, once or before each epoch.
            objectives: their sum is minimised.
            training: epochs, batch size and optimiser.
            keys: a purpose to the key of this client's draws in this round.

        Returns:
            The targets of the last epoch.
        """
        with self.clock("label"):
            targets = self.labels(labeler, blend, keys("partners"))
        row = self.slot.copy_(self.received.mix(blend.start[0]))
        self._seen.clear()
        started = time.perf_counter()
        step, n = 0, len(self.images)
        self.replica.bind(row)
        self.replica.begin()
        for epoch in range(training.epochs):
            if epoch and labeler.renew == "epoch":
                targets = self.labels(labeler, blend, keys(f"partners {epoch}"), row)
                self.replica.bind(row)
                self.replica.network.train()
            mixed = (targets.mix > 0).cpu()
            for indices in permutation(keys(f"order {epoch}"), n).split(training.batch_size):
                if len(indices) > 1:
                    self._step(indices, mixed[indices], targets, objectives, training, step, keys("dropout"))
                step += 1
        self.seconds["train"] += time.perf_counter() - started
        return targets

    def _step(
        self,
        indices: Tensor,
        mixed: Tensor,
        targets: Targets,
        objectives: Sequence[Objective],
        training: Training,
        step: int,
        key: int,
    ) -> None:
        """One forward over the plain images and the mixed ones together, so BatchNorm never sees a tiny batch."""
        network, device = self.replica.network, self.images.device
        places = mixed.nonzero()[:, 0]
        positions = torch.cat([torch.arange(len(indices)), training.batch_size + places]).to(device)
        here = indices.to(device)
        x = network.prepare(self.images[here])
        inputs = x
        if len(places):
            places = places.to(device)
            other = network.prepare(self.images[targets.partners[here[places]]])
            share = targets.mix[here[places]].to(x.dtype).view(-1, 1, 1, 1)
            inputs = torch.cat([x, torch.lerp(x[places], other, share)])
        drop = masks(network.drops, key, step, positions, 2 * training.batch_size)
        logits, features = network(inputs, [mask.to(x.dtype) for mask in drop])
        plain = logits[: len(indices)]
        labelled = plain if not len(places) else plain.index_copy(0, places, logits[len(indices) :])
        batch = Batch(
            plain,
            features[: len(indices)],
            labelled,
            targets.labels[here],
            targets.weights[here].to(plain.dtype),
        )
        loss = torch.stack([objective(batch) for objective in objectives]).sum()
        self.replica.step(loss, training.lr, training.momentum, training.weight_decay)
