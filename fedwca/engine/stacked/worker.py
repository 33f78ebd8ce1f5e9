"""Many clients' work between two messages, each step of it at once: evidence on what they were sent, labels, training.

Clients with the same number of images go through a function together; nothing is padded there, so a component sees
what it would see of each client alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from fedwca.engine.stacked.targets import StackedContext, split_targets, targets_tree
from fedwca.engine.stacked.train import Capture, train
from fedwca.engine.stacked.vmap import Tree, join_trees, map_tree, vmap_or_loop
from fedwca.engine.test_time_adaptation import make_step
from fedwca.engine.timing import Clock, Mark
from fedwca.functional import alignment, soft_neighborhood_density

SIMILARITIES = 2**26
"""Entries of neighbourhood matrices at a time, over clients: 256 MiB in float32."""


@dataclass(frozen=True)
class StackedReceived:
    """The models that G clients were sent, as mixtures of the server's rows."""

    weights: Tensor
    """``[G, Q+S, R]``"""
    personal: int
    """Q"""
    resolve: Callable[[Tensor], Tensor]
    """Mixtures of server rows ``[G, R]`` to the models ``[G, P]`` they are at these clients."""
    resolve_common: Callable[[Tensor], Tensor] | None
    """Mixture of server rows ``[R]`` to the model ``[P]`` it is at every client; None: it is another at each."""
    source: Tensor
    """``[P]``, the model everybody was sent before round 0."""

    def mix(self, mixtures: Tensor) -> Tensor:
        """The models ``[G, P]`` that mixtures ``[G, Q+S]`` of what was sent stand for."""
        return self.resolve((mixtures.to(self.weights)[:, None] @ self.weights)[:, 0])


class StackedWorker(Clock):
    """A `fedwca.engine.interface.ClientWork` for the G clients of a batch, in its order.

    Args:
        batch: the clients.
        received: what they were sent.
        bank: all clients' models ``[K, P]``; trained ones are left there.
        tasks: what each of them is to do.
        capture: what carries out training steps, see `fedwca.engine.stacked.train.Capture`.
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
        sent = self.weights.shape[1]
        self._identity = torch.eye(sent, dtype=self.weights.dtype, device=self.weights.device)
        self.own = self.model(0)
        self.shared = self._identity[received.personal :]
        self.passes = 0
        self._memory = program.PassMemory()
        self._keys: dict[str, Tensor] = {}

    @property
    def task(self) -> Task:
        """What is the same for all of them."""
        return self.tasks[0]

    def model(self, column: int) -> Tensor:
        """The mixture ``[G, Q+S]`` that is one of the models sent."""
        return self._identity[column].expand(len(self.tasks), -1)

    def predict(self, mixtures: Tensor) -> Predictions:
        """Predictions of mixtures ``[G, Q+S]`` on the clients' images; asking again for the same ones is free."""
        return self._memory.recall(mixtures, lambda asked: self._pass(self.received.mix(asked)))

    def outputs(self, mixtures: Tensor) -> list[Predictions]:
        """What each client's own mixture says of its images."""
        return self._of_each(self.predict(mixtures))

    def outputs_after_step(self, mixtures: Tensor) -> list[Predictions]:
        """As `outputs`, and what each model says after a step of the task's adaptation on all the client's images."""
        adaptation, models = self.task.adaptation, self.received.mix(mixtures)
        assert adaptation is not None
        found = self._pass(models)
        _, logits = make_step(BatchToAdapt(self.batch), adaptation, models, found.logits, self.task.inner_lr)
        self.passes += 1
        each = zip(self._of_each(found), logits, self.batch.sizes, strict=True)
        return [replace(own, adapted=after[:size]) for own, after, size in each]

    def _of_each(self, found: Predictions) -> list[Predictions]:
        cut = zip(found.logits, found.features, self.batch.sizes, strict=True)
        return [Predictions(logits[:size], features[:size]) for logits, features, size in cut]

    def _pass(self, models: Tensor) -> Predictions:
        """A pass by the clients' own models ``[G, P]``."""
        self.passes += 1
        return self.batch.outputs(models, "evidence")

    def _pass_of_one(self, model: Tensor) -> Predictions:
        """A pass by one model ``[P]`` at every client."""
        self.passes += 1
        return self.batch.outputs_of_one(model, "evidence")

    def _passes_by(self, mixtures: Tensor) -> Iterator[tuple[Predictions, Tensor]]:
        """A pass by each of the mixtures ``[M, Q+S]`` at every client, by one model for all where it is one; and the
        models ``[G, P]``.
        """
        common = self.received.resolve_common if mixtures is self.shared else None
        for mixture in mixtures:
            if common is not None:
                model = common(mixture @ self.weights[0])
                yield self._pass_of_one(model), model.expand(len(self.tasks), -1)
            else:
                models = self.received.mix(mixture.expand(len(self.tasks), -1))
                yield self._pass(models), models

    def _each(self, what: str, function: Any, trees: Tree, chunk: int | None = None) -> list[Tree]:
        """A function of each client's samples, for the clients of one size after those of another.

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
                map_tree(lambda x, group=group: x[group.first : group.stop, : group.images], trees),  # type: ignore[misc]
                chunk=None if chunk is None else max(1, chunk // max(1, min(group.images, 1024) * group.images)),
            )
            for group in self.batch.alike
        ]

    def alignment(self, mixtures: Tensor) -> Tensor:
        """Mean cosine to the nearest classifier vector: ``[M, Q+S] -> [G, M]``."""
        values = [self._aligned(found.features, models) for found, models in self._passes_by(mixtures)]
        return torch.stack(values, 1).to(self.weights)

    def _aligned(self, features: Tensor, models: Tensor) -> Tensor:
        """Alignment ``[G]`` of features ``[G, N, q]`` with the classifiers of the models ``[G, P]`` that gave them."""
        network = self.batch.network
        if not network.network.whole:
            vectors = network.network.class_vectors
            return torch.cat(self._each("alignment", lambda own: alignment(own, vectors), features))
        every = StackedClassifiers.among(self.batch.named(models)[0]).weight.transpose(1, 2)
        parts = [
            vmap_or_loop("alignment", alignment, features[g.first : g.stop, : g.images], every[g.first : g.stop])
            for g in self.batch.alike
        ]
        return torch.cat(parts)

    def density(self, mixtures: Tensor) -> Tensor:
        """Soft neighborhood density of the mixed models: ``[G, Q+S] -> [G]``, nats."""
        probabilities = self.predict(mixtures).probabilities
        found = self._each("density", soft_neighborhood_density, probabilities, SIMILARITIES)
        return torch.cat(found).to(self.weights)

    @torch.no_grad()
    def loss(self, mixtures: Tensor) -> Tensor:
        """The task's objectives over all images, with the clients' labels or those that the mixed model itself gives:
        ``[M, Q+S] -> [G, M]``, nats.
        """
        task, draws, labels = self.task, self._draws("partners"), self._known_labels()
        shared = program.place_like(task.shared, self.bank)
        teaches = "source" in program.teacher_names(task.objectives)
        source = {"source": self._pass_of_one(self.received.source).logits} if teaches else {}

        def value(tree: dict[str, Any]) -> Tensor:
            found = Predictions(tree["logits"], tree["features"])
            return program.loss_of_all(task, found, tree["draws"], tree["source"], shared, tree.get("labels"))

        values = []
        for p, _ in self._passes_by(mixtures):
            tree = {"logits": p.logits, "features": p.features, "draws": draws, "source": source, **labels}
            values.append(torch.cat(self._each("the loss", value, tree)))
        return torch.stack(values, 1).to(self.weights)

    def models(self, name: str, blend: Blend) -> Tensor:
        """Named models ``[G, P]``: start, cluster, source, or one of the blend's references."""
        if name == "source":
            return self.received.source.expand(len(self.tasks), -1)
        return self.received.mix(program.named_mixture(name, blend, self.own))

    def predictions(self, name: str, blend: Blend) -> Predictions:
        """What a named model says of the clients' images."""
        if name == "source":
            return self._pass_of_one(self.received.source)
        return self.predict(program.named_mixture(name, blend, self.own))

    def _draws(self, purpose: str) -> Tensor:
        """A uniform number for each client's images ``[G, N]``."""
        if purpose not in self._keys:
            self._keys[purpose] = keys_tensor((task.keys(purpose) for task in self.tasks), self._device)
        places = torch.arange(max(1, *self.batch.sizes), device=self._device)
        return uniform(self._keys[purpose][:, None], places[None])

    def _known_labels(self) -> dict[str, Tensor]:
        """The clients' labels ``[G, N]`` as an entry of a tree; nothing where they have none."""
        labels = self.batch.padded_labels()
        return {} if labels is None else {"labels": labels}

    def _trusted(self) -> dict[str, Tensor]:
        """How far each client's labels are trusted ``[G, 1]`` as an entry of a tree; nothing where all are."""
        trusted = [task.trusted for task in self.tasks]
        return {} if min(trusted) == 1 else {"trusted": to_device(torch.tensor(trusted)[:, None], self._device)}

    def label(
        self, blend: Blend, purpose: str, models: Tensor | None = None
    ) -> tuple[Mapping[str, Tree], Mapping[str, Tensor]]:
        """Targets by the models the labeler reads, and what objectives observe of the start.

        Args:
            blend: says which models these are.
            purpose: of the draws.
            models: stand in for the starts once training has moved them ``[G, P]``.
        """
        task, labels = self.task, self._known_labels()
        found = {
            name: self._pass(models) if name == "start" and models is not None else self.predictions(name, blend)
            for name in program.label_models(task, bool(labels))
        }

        def one(tree: dict[str, Any]) -> dict[str, Any]:
            said = {name: Predictions(*both) for name, both in tree["said"].items()}
            targets, observed = program.make_targets(task, said, tree["draws"], tree.get("labels"), tree.get("trusted"))
            return {"targets": targets_tree(targets), "observed": observed}

        said = {name: (p.logits, p.features) for name, p in found.items()}
        with torch.no_grad():
            tree = {"said": said, "draws": self._draws(purpose), **labels, **self._trusted()}
            parts = self._each(f"labels by {task.labeler.name!r}", one, tree)
        if not labels:
            for part in parts:
                program.check_target_values(
                    Targets(**part["targets"]), self.batch.network.network.classifier.out_features, task.labeler
                )
        return join_trees([part["targets"] for part in parts]), join_trees([part["observed"] for part in parts])

    def context(self, blend: Blend) -> StackedContext:
        """What the clients are trained towards at first, by the models they start with."""
        task, width = self.task, self.batch.layout.trained
        with self.clock("label"):
            targets, observed = self.label(blend, "partners")
            taught = {name: self.predictions(name, blend).logits for name in program.teacher_names(task.objectives)}
            sent = program.place_like(task.taught, self.bank)
            taught |= {name: value.expand(len(self.tasks), *value.shape) for name, value in sent.items()}
        anchors = {
            name: self.models(name, blend)[:, :width].contiguous() for name in program.anchor_names(task.objectives)
        }
        if task.labeler.renew == "round":
            self._memory.forget()
        return StackedContext(targets, taught, anchors, observed, program.place_like(task.shared, self.bank))

    def train(self, blend: Blend) -> list[Targets]:
        """Label and train for one round; the trained models are left in the bank."""
        context = self.context(blend)
        started, models = self.mark(), self.received.mix(blend.start)
        if self.task.idle:  # as all of them are then
            self.batch.recalibrate(models)
            return self.keep(models, context.targets, started)

        def relabel(epoch: int, moved: Tensor) -> dict[str, Any]:
            return dict(zip(("targets", "observed"), self.label(blend, f"partners {epoch}", moved), strict=True))

        context = train(TrialBatch([self.batch], [self.tasks]), models, context, relabel, self.capture)
        return self.keep(models, context.targets, started)

    def keep(self, models: Tensor, targets: Mapping[str, Tree], started: Mark, share: float = 1.0) -> list[Targets]:
        """Leave trained models ``[G, P]`` in the bank; each client's targets.

        Args:
            models: as training left them.
            targets: of the last epoch, see `StackedContext`.
            started: when training began.
            share: how much of the time since then was these clients'.
        """
        self.bank[self.batch.numbers] = models
        self.lap("train", started, share)
        return split_targets(targets, self.batch.sizes)

    def collect(self, targets: Sequence[Targets]) -> list[dict[str, Tensor]]:
        """What is uploaded beside the trained models, one entry a client; costs a pass where any is asked for."""
        objectives = self.task.objectives
        if not program.collecting_objectives(objectives):
            return [{} for _ in targets]
        with self.clock("collect"), torch.no_grad():
            trained = self._of_each(self._pass(self.bank[self.batch.numbers]))
            return [
                {name: to_host_async(value) for name, value in program.collect(objectives, found, own).items()}
                for found, own in zip(trained, targets, strict=True)
            ]
