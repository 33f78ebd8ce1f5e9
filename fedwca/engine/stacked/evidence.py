"""Evidence of many clients on the models they were sent: predictions, alignment, density and loss, without training.

Components run for all clients with the same number of images together; nothing is padded there, so a component sees
the same as it would for each client alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedwca.core.messages import Blend, Predictions
from fedwca.engine import client_program as program
from fedwca.engine.client_task import Task
from fedwca.engine.randomness import keys_tensor, uniform
from fedwca.engine.stacked.batch_to_adapt import BatchToAdapt
from fedwca.engine.stacked.client_batch import ClientBatch
from fedwca.engine.stacked.network import StackedClassifiers
from fedwca.engine.stacked.received_models import StackedReceived
from fedwca.engine.stacked.vmap import Tree, map_tree, vmap_or_loop
from fedwca.engine.test_time_adaptation import make_step
from fedwca.engine.timing import Clock
from fedwca.functional import alignment, soft_neighborhood_density

SIMILARITIES = 2**26
"""Entries of similarity matrices at a time, over all clients: 256 MiB in float32."""


class StackedEvidence(Clock):
    """Passes of the G clients of a batch over their images, without training, and what is measured in them.

    Args:
        batch: the clients.
        received: the models they were sent.
        bank: all clients' models ``[K, P]``.
        tasks: one for each of the G clients.
    """

    def __init__(self, batch: ClientBatch, received: StackedReceived, bank: Tensor, tasks: Sequence[Task]) -> None:
        super().__init__(batch.device)
        self.batch, self.received, self.bank, self.tasks = batch, received, bank, tasks
        self.weights, self.labels = received.weights, batch.labels
        sent_models = self.weights.shape[1]
        self._identity = torch.eye(sent_models, dtype=self.weights.dtype, device=self.weights.device)
        self.own = self.model(0)
        self.shared = self._identity[received.personal :]
        self.passes = 0
        self._cache = program.PredictionCache()
        self._keys: dict[str, Tensor] = {}

    @property
    def task(self) -> Task:
        """The first client's task, for what is the same for all of them."""
        return self.tasks[0]

    def model(self, column: int) -> Tensor:
        """The mixture ``[G, Q+S]`` that selects one of the sent models."""
        return self._identity[column].expand(len(self.tasks), -1)

    def predict(self, mixtures: Tensor) -> Predictions:
        """Predictions of mixtures ``[G, Q+S]`` on the clients' images; computed only once for the same tensor."""
        return self._cache.get(mixtures, lambda requested: self._pass(self.received.mix(requested)))

    def outputs(self, mixtures: Tensor) -> list[Predictions]:
        """Predictions of each client's images by the client's own mixture."""
        return self._of_each(self.predict(mixtures))

    def outputs_after_step(self, mixtures: Tensor) -> list[Predictions]:
        """As `outputs`, with the logits after one step of the task's adaptation on all the client's images."""
        adaptation, models = self.task.adaptation, self.received.mix(mixtures)
        assert adaptation is not None
        predictions = self._pass(models)
        _, logits = make_step(BatchToAdapt(self.batch), adaptation, models, predictions.logits, self.task.inner_lr)
        self.passes += 1
        entries = zip(self._of_each(predictions), logits, self.batch.sizes, strict=True)
        return [replace(p, adapted_logits=adapted[:size]) for p, adapted, size in entries]

    def _of_each(self, predictions: Predictions) -> list[Predictions]:
        entries = zip(predictions.logits, predictions.features, self.batch.sizes, strict=True)
        return [Predictions(logits[:size], features[:size]) for logits, features, size in entries]

    def _pass(self, models: Tensor) -> Predictions:
        """A pass by the clients' own models ``[G, P]``."""
        self.passes += 1
        return self.batch.outputs(models, "evidence")

    def _pass_of_one(self, model: Tensor) -> Predictions:
        """A pass by one model ``[P]`` at every client."""
        self.passes += 1
        return self.batch.outputs_of_one(model, "evidence")

    def _passes_by(self, mixtures: Tensor) -> Iterator[tuple[Predictions, Tensor]]:
        """Predictions by each of the mixtures ``[M, Q+S]`` at every client, and the models ``[G, P]``.

        A mixture that is the same model at every client takes one ordinary pass.
        """
        common = self.received.resolve_common if mixtures is self.shared else None
        for mixture in mixtures:
            if common is not None:
                model = common(mixture @ self.weights[0])
                yield self._pass_of_one(model), model.expand(len(self.tasks), -1)
            else:
                models = self.received.mix(mixture.expand(len(self.tasks), -1))
                yield self._pass(models), models

    def _each(self, description: str, function: Any, trees: Tree, chunk: int | None = None) -> list[Tree]:
        """Results of a function of one client, for all clients of the same size at once.

        Args:
            description: of the function, for warnings.
            function: of one client's tree.
            trees: with tensors ``[G, N, …]``, which are cut to the clients' samples.
            chunk: entries of a matrix of samples by samples at a time, which limits the number of clients at once.
        """
        return [
            vmap_or_loop(
                description,
                function,
                map_tree(lambda x, group=group: x[group.first : group.stop, : group.images], trees),  # type: ignore[misc]
                chunk=None if chunk is None else max(1, chunk // max(1, min(group.images, 1024) * group.images)),
            )
            for group in self.batch.alike
        ]

    def alignment(self, mixtures: Tensor) -> Tensor:
        """Mean cosine to the nearest classifier vector: ``[M, Q+S] -> [G, M]``."""
        values = [self._aligned(predictions.features, models) for predictions, models in self._passes_by(mixtures)]
        return torch.stack(values, 1).to(self.weights)

    def _aligned(self, features: Tensor, models: Tensor) -> Tensor:
        """Alignment ``[G]`` of features ``[G, N, q]`` with the classifiers of the models ``[G, P]`` that gave them."""
        network = self.batch.network
        if not network.network.trains_classifier:
            vectors = network.network.class_vectors
            return torch.cat(self._each("alignment", lambda x: alignment(x, vectors), features))
        classifiers = StackedClassifiers.among(self.batch.named(models)[0]).weight.transpose(1, 2)
        parts = [
            vmap_or_loop(
                "alignment",
                alignment,
                features[group.first : group.stop, : group.images],
                classifiers[group.first : group.stop],
            )
            for group in self.batch.alike
        ]
        return torch.cat(parts)

    def density(self, mixtures: Tensor) -> Tensor:
        """Soft neighborhood density of the mixed models: ``[G, Q+S] -> [G]``, nats."""
        program.check_one_each(mixtures, self.own)
        probabilities = self.predict(mixtures).probabilities
        densities = self._each("density", soft_neighborhood_density, probabilities, SIMILARITIES)
        return torch.cat(densities).to(self.weights)

    @torch.no_grad()
    def loss(self, mixtures: Tensor) -> Tensor:
        """Losses of the task's objectives over all images: ``[M, Q+S] -> [G, M]``, in nats.

        Labels are the clients' own or, if they have none, those that the mixed model itself gives.
        """
        task, draws, labels = self.task, self._draws("partners"), self._known_labels()
        shared = program.place_like(task.shared, self.bank)
        reads_source = "source" in program.teacher_names(task.objectives)
        source = {"source": self._pass_of_one(self.received.source).logits} if reads_source else {}

        def client_loss(tree: dict[str, Any]) -> Tensor:
            predictions = Predictions(tree["logits"], tree["features"])
            return program.loss_of_all(task, predictions, tree["draws"], tree["source"], shared, tree.get("labels"))

        values = []
        for p, _ in self._passes_by(mixtures):
            tree = {"logits": p.logits, "features": p.features, "draws": draws, "source": source, **labels}
            values.append(torch.cat(self._each("the loss", client_loss, tree)))
        return torch.stack(values, 1).to(self.weights)

    def models(self, name: str, blend: Blend) -> Tensor:
        """Named models ``[G, P]``: start, cluster, source, or one of the blend's references."""
        if name == "source":
            return self.received.source.expand(len(self.tasks), -1)
        return self.received.mix(program.named_mixture(name, blend, self.own))

    def predictions(self, name: str, blend: Blend) -> Predictions:
        """Predictions of the clients' images by a named model."""
        if name == "source":
            return self._pass_of_one(self.received.source)
        return self.predict(program.named_mixture(name, blend, self.own))

    def _draws(self, purpose: str) -> Tensor:
        """A uniform random number for each of the clients' images ``[G, N]``."""
        if purpose not in self._keys:
            self._keys[purpose] = keys_tensor((task.keys(purpose) for task in self.tasks), self._device)
        places = torch.arange(max(1, *self.batch.sizes), device=self._device)
        return uniform(self._keys[purpose][:, None], places[None])

    def _known_labels(self) -> dict[str, Tensor]:
        """The clients' labels ``[G, N]`` as an entry of a tree; empty if they have none."""
        labels = self.batch.padded_labels()
        return {} if labels is None else {"labels": labels}
