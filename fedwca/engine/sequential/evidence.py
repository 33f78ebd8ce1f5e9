"""One client's evidence on the models it was sent: predictions, alignment, density and loss, without training."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedwca.core.messages import Blend, Predictions
from fedwca.engine import client_program as program
from fedwca.engine.client_task import SentModels, Task
from fedwca.engine.randomness import uniform
from fedwca.engine.sequential.images_to_adapt import ImagesToAdapt
from fedwca.engine.sequential.replica import Replica
from fedwca.engine.test_time_adaptation import make_step
from fedwca.engine.timing import Clock
from fedwca.functional import alignment, soft_neighborhood_density


class ClientEvidence(Clock):
    """Passes of one client over its images, without training, and what is measured; ``slot [P]`` is its bank row."""

    def __init__(
        self,
        replica: Replica,
        images: Tensor,
        labels: Tensor | None,
        received: SentModels,
        personal: int,
        slot: Tensor,
        task: Task,
        plain: Tensor,
    ) -> None:
        super().__init__(slot.device)
        self.plain = plain
        """The images as passes over all of them read them, see `fedwca.engine.embeddings.embed_images`."""
        self.replica, self.images, self.received, self.slot, self.task = replica, images, received, slot, task
        self.labels = [labels]
        self._identity = torch.eye(received.weights.shape[0], dtype=received.weights.dtype)
        self.own = self.model(0)
        self.shared = self._identity[personal:]
        self.passes = 0
        self._cache = program.PredictionCache()

    @property
    def weights(self) -> Tensor:
        """``[1, Q+S, R]``"""
        return self.received.weights[None]

    def model(self, column: int) -> Tensor:
        """The mixture ``[1, Q+S]`` that selects one of the sent models."""
        return self._identity[column : column + 1]

    def predict(self, mixtures: Tensor) -> Predictions:
        """Predictions of a mixture ``[1, Q+S]`` on the client's images; computed only once for the same tensor."""
        return self._cache.get(mixtures, lambda mixture: self._pass(self.received.mix(mixture[0])))

    def outputs(self, mixtures: Tensor) -> list[Predictions]:
        """As `predict`, in a list of one."""
        return [self.predict(mixtures)]

    def outputs_after_step(self, mixtures: Tensor) -> list[Predictions]:
        """As `outputs`, with the logits after one step of the task's adaptation on all the images."""
        adaptation, row = self.task.adaptation, self.received.mix(mixtures[0])
        assert adaptation is not None
        predictions, work = self._pass(row), ImagesToAdapt(self.replica, self.plain)
        _, logits = make_step(work, adaptation, row[None], predictions.logits[None], self.task.inner_lr)
        self.passes += 1
        return [replace(predictions, adapted_logits=logits[0])]

    def _pass(self, row: Tensor) -> Predictions:
        self.passes += 1
        self.replica.bind(row)
        return self.replica.predict(self.plain, phase="evidence")

    def alignment(self, mixtures: Tensor) -> Tensor:
        """Mean cosine to the nearest classifier vector, one value per mixture: ``[M, Q+S] -> [1, M]``."""
        # The pass comes first: it binds the model, with a classifier that is trained, to the replica.
        values = [alignment(self._pass(self.received.mix(w)).features, self.replica.class_vectors) for w in mixtures]
        return torch.stack(values)[None].double().cpu()

    def density(self, mixtures: Tensor) -> Tensor:
        """Soft neighborhood density of the mixed model: ``[1, Q+S] -> [1]``, nats."""
        program.check_one_each(mixtures, self.own)
        return soft_neighborhood_density(self.predict(mixtures).probabilities)[None].double().cpu()

    @torch.no_grad()
    def loss(self, mixtures: Tensor) -> Tensor:
        """Loss of the task's objectives over all images: ``[M, Q+S] -> [1, M]``, in nats.

        Labels are the client's own or, if it has none, those that the mixed model itself gives.
        """
        draws, shared = self._draws("partners"), program.place_like(self.task.shared, self.slot)
        reads_source = "source" in program.teacher_names(self.task.objectives)
        source = {"source": self._pass(self.received.source).logits} if reads_source else {}
        values = [
            program.loss_of_all(self.task, self._pass(self.received.mix(w)), draws, source, shared, self.labels[0])
            for w in mixtures
        ]
        return torch.stack(values)[None].double().cpu()

    def row(self, name: str, blend: Blend) -> Tensor:
        """A named model ``[P]``: start, cluster, source, or one of the blend's references."""
        if name == "source":
            return self.received.source
        return self.received.mix(program.named_mixture(name, blend, self.own)[0])

    def predictions(self, name: str, blend: Blend) -> Predictions:
        """Predictions of the client's images by a named model."""
        if name == "source":
            return self._pass(self.received.source)
        return self.predict(program.named_mixture(name, blend, self.own))

    def _draws(self, purpose: str) -> Tensor:
        return uniform(self.task.keys(purpose), torch.arange(len(self.images), device=self.images.device))
