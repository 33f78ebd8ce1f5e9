"""Work of many clients between two messages, all at once: evidence on the models they were sent, labels, training.

Components run for all clients with the same number of images together; nothing is padded there, so a component sees
the same as it would for each client alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedwca.core.messages import Blend, Predictions, Targets
from fedwca.engine import client_program as program
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_device, to_host_async
from fedwca.engine.randomness import keys_tensor, uniform
from fedwca.engine.stacked.batch_to_adapt import BatchToAdapt
from fedwca.engine.stacked.client_batch import ClientBatch, TrialBatch
from fedwca.engine.stacked.network import StackedClassifiers
from fedwca.engine.stacked.received_models import StackedReceived
from fedwca.engine.stacked.targets import StackedContext, split_targets, targets_tree
from fedwca.engine.stacked.train import Capture, train
from fedwca.engine.stacked.vmap import Tree, UnequalTensors, join_trees, map_tree, stack_trees, vmap_or_loop
from fedwca.engine.test_time_adaptation import make_step
from fedwca.engine.timing import Clock, Mark
from fedwca.functional import alignment, soft_neighborhood_density

SIMILARITIES = 2**26
"""Entries of similarity matrices at a time, over all clients: 256 MiB in float32."""


class StackedWorker(Clock):
    """A `fedwca.engine.interface.ClientWork` for the G clients of a batch, in its order.

    Args:
        batch: the clients.
        received: the models they were sent.
        bank: all clients' models ``[K, P]``; trained ones are stored there.
        tasks: one for each of the G clients.
        capture: runs training steps, see `fedwca.engine.stacked.train.Capture`; None: they are called directly.
    """

    def __init__(
        self,
        batch: ClientBatch,
        received: StackedReceived,
        bank: Tensor,
        tasks: Sequence[Task],
        capture: Capture | None = None,
    ) -> None:
        super().__init__(batch.device)
        self.batch, self.received, self.bank, self.tasks, self.capture = batch, received, bank, tasks, capture
        self.weights, self.labels = received.weights, batch.labels
        sent_models = self.weights.shape[1]
        self._identity = torch.eye(sent_models, dtype=self.weights.dtype, device=self.weights.device)
        self.own = self.model(0)
        self.shared = self._identity[received.personal :]
        self.passes = 0
        self._memory = program.PassMemory()
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
        return self._memory.recall(mixtures, lambda requested: self._pass(self.received.mix(requested)))

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

    def _trusted(self) -> dict[str, Tensor]:
        """How far each client's labels are trusted ``[G, 1]`` as an entry of a tree; empty if all are trusted fully."""
        trusted = [task.trusted for task in self.tasks]
        return {} if min(trusted) == 1 else {"trusted": to_device(torch.tensor(trusted)[:, None], self._device)}

    def label(
        self, blend: Blend, purpose: str, models: Tensor | None = None
    ) -> tuple[Mapping[str, Tree], Mapping[str, Tensor | UnequalTensors]]:
        """Targets by the models that the labeler reads, and what objectives observe of the start models.

        Args:
            blend: gives these models.
            purpose: of the draws.
            models: replace the start models once training has changed them ``[G, P]``; None: do not.
        """
        task, labels = self.task, self._known_labels()
        predictions = {
            name: self._pass(models) if name == "start" and models is not None else self.predictions(name, blend)
            for name in program.label_models(task, bool(labels))
        }

        def label_client(tree: dict[str, Any]) -> dict[str, Any]:
            outputs = {name: Predictions(*both) for name, both in tree["said"].items()}
            targets, observed = program.make_targets(
                task, outputs, tree["draws"], tree.get("labels"), tree.get("trusted")
            )
            return {"targets": targets_tree(targets), "observed": observed}

        outputs = {name: (p.logits, p.features) for name, p in predictions.items()}
        with torch.no_grad():
            tree = {"said": outputs, "draws": self._draws(purpose), **labels, **self._trusted()}
            parts = self._each(f"labels by {task.labeler.name!r}", label_client, tree)
        if not labels:
            for part in parts:
                program.check_target_values(
                    Targets(**part["targets"]), self.batch.network.network.classifier.out_features, task.labeler
                )
        # What is observed may differ in shape between clients: padding would be read as if it were observed.
        observed = [
            map_tree(lambda values, i=i: values[i], part["observed"])  # type: ignore[misc]
            for part, group in zip(parts, self.batch.alike, strict=True)
            for i in range(group.stop - group.first)
        ]
        return join_trees([part["targets"] for part in parts]), stack_trees(observed)

    def context(self, blend: Blend) -> StackedContext:
        """Targets and values to compare with at the start of training."""
        task, width = self.task, self.batch.layout.trained
        with self.clock("label"):
            targets, observed = self.label(blend, "partners")
            taught = {name: self.predictions(name, blend).logits for name in program.teacher_names(task.objectives)}
            server_logits = program.place_like(task.taught, self.bank)
            taught |= {name: value.expand(len(self.tasks), *value.shape) for name, value in server_logits.items()}
        anchors = {
            name: self.models(name, blend)[:, :width].contiguous() for name in program.anchor_names(task.objectives)
        }
        if task.labeler.renew == "round":
            self._memory.forget()
        return StackedContext(targets, taught, anchors, observed, program.place_like(task.shared, self.bank))

    def train(self, blend: Blend) -> list[Targets]:
        """Label and train for one round; the trained models are stored in the bank."""
        context = self.context(blend)
        started, models = self.mark(), self.received.mix(blend.start)
        if self.task.idle:  # then all of them are
            self.batch.recalibrate(models)
            return self.keep(models, context.targets, started)

        def relabel(epoch: int, moved: Tensor) -> dict[str, Any]:
            return dict(zip(("targets", "observed"), self.label(blend, f"partners {epoch}", moved), strict=True))

        context = train(TrialBatch([self.batch], [self.tasks]), models, context, relabel, self.capture)
        return self.keep(models, context.targets, started)

    def keep(self, models: Tensor, targets: Mapping[str, Tree], started: Mark, share: float = 1.0) -> list[Targets]:
        """Store trained models ``[G, P]`` in the bank, and return each client's targets.

        Args:
            models: as training left them.
            targets: of the last epoch, see `StackedContext`.
            started: when training began.
            share: share of the time since then that counts for these clients.
        """
        self.bank[self.batch.numbers] = models
        self.lap("train", started, share)
        return split_targets(targets, self.batch.sizes)

    def collect(self, targets: Sequence[Targets]) -> list[dict[str, Tensor]]:
        """What is uploaded beside the trained models, one entry per client; takes a pass if there is anything."""
        objectives = self.task.objectives
        if not program.collecting_objectives(objectives):
            return [{} for _ in targets]
        with self.clock("collect"), torch.no_grad():
            trained = self._of_each(self._pass(self.bank[self.batch.numbers]))
            return [
                {name: to_host_async(value) for name, value in program.collect(objectives, p, t).items()}
                for p, t in zip(trained, targets, strict=True)
            ]
