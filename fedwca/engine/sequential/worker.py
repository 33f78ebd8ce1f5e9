"""One client's work between two messages: evidence on the models it was sent, labels, training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from fedwca.core.messages import Batch, Blend, Predictions, Targets
from fedwca.engine.draws import pick_images, weak_views
from fedwca.engine.randomness import permutation, uniform
from fedwca.engine.sequential.replica import Replica, dropout_masks
from fedwca.engine.task import EpochContext, Received, Task
from fedwca.engine.timing import Clock
from fedwca.functional import alignment, soft_neighborhood_density, strong_augment


class ClientWorker(Clock):
    """A client at work: a `View` for K = 1 that remembers passes and trains into its ``slot [P]``."""

    def __init__(
        self, replica: Replica, images: Tensor, received: Received, personal: int, slot: Tensor, task: Task
    ) -> None:
        super().__init__(slot.device)
        self.replica, self.images, self.received, self.slot, self.task = replica, images, received, slot, task
        self._identity = torch.eye(received.weights.shape[0], dtype=received.weights.dtype)
        self.own = self.model(0)
        self.shared = self._identity[personal:]
        self.passes = 0
        self._seen: dict[int, tuple[Tensor, Predictions]] = {}

    @property
    def weights(self) -> Tensor:
        """``[1, Q+S, R]``"""
        return self.received.weights[None]

    def model(self, column: int) -> Tensor:
        """The mixture ``[1, Q+S]`` that is one of the models sent."""
        return self._identity[column : column + 1]

    def predict(self, mixture: Tensor) -> Predictions:
        """Predictions of a mixture ``[1, Q+S]`` on the client's images; asking again for the same one is free."""
        if (found := self._seen.get(id(mixture))) is not None:
            return found[1]
        predictions = self._pass(self.received.mix(mixture[0]))
        # The mixture is kept beside its answer so that its id stays taken.
        self._seen[id(mixture)] = (mixture, predictions)
        return predictions

    def outputs(self, mixtures: Tensor) -> list[Predictions]:
        """As `predict`, in a list of one."""
        return [self.predict(mixtures)]

    def _pass(self, row: Tensor) -> Predictions:
        self.passes += 1
        self.replica.bind(row)
        return self.replica.predict(self.images, phase="evidence")

    def alignment(self, mixtures: Tensor) -> Tensor:
        """Mean cosine to the nearest classifier vector, one value a mixture: ``[M, Q+S] -> [1, M]``."""
        vectors = self.replica.class_vectors
        values = [alignment(self._pass(self.received.mix(w)).features, vectors) for w in mixtures]
        return torch.stack(values)[None].double().cpu()

    def density(self, mixtures: Tensor) -> Tensor:
        """Soft neighborhood density of the mixed model: ``[1, Q+S] -> [1]``, nats."""
        return soft_neighborhood_density(self.predict(mixtures).probabilities)[None].double().cpu()

    def loss(self, mixtures: Tensor) -> Tensor:
        """The task's objectives over all images, labelled by the mixed model itself: ``[M, Q+S] -> [1, M]``, nats."""
        draws, values, task = self._draws("partners"), [], self.task
        teachers = {name for objective in task.objectives for name in objective.teachers}
        source = {"source": self._pass(self.received.source).logits} if "source" in teachers else {}
        for w in mixtures:
            p = self._pass(self.received.mix(w))
            with torch.no_grad():
                targets = task.labeler(dict.fromkeys(task.labeler.models, p), draws)
                weights, taught = targets.weights.to(p.logits.dtype), dict.fromkeys(teachers, p.logits) | source
                views, observed = dict.fromkeys(("weak", "strong"), p.logits), self._observed(p)
                shared = self._here(task.shared)
                batch = Batch(p.logits, p.features, p.logits, targets.labels, weights, taught, views, observed, shared)
                values.append(torch.stack([objective(batch) for objective in task.objectives]).sum())
        return torch.stack(values)[None].double().cpu()

    def _named(self, name: str, blend: Blend) -> Tensor:
        return {**blend.references, "start": blend.start}.get(name, self.own)

    def row(self, name: str, blend: Blend) -> Tensor:
        """A named model ``[P]``: start, cluster, source, or one of the blend's references."""
        if name == "source":
            return self.received.source
        return self.received.mix(self._named(name, blend)[0])

    def predictions(self, name: str, blend: Blend) -> Predictions:
        """What a named model says of the client's images."""
        if name == "source":
            return self._pass(self.received.source)
        return self.predict(self._named(name, blend))

    def _draws(self, purpose: str) -> Tensor:
        return uniform(self.task.keys(purpose), torch.arange(len(self.images))).to(self.images.device)

    def label(self, blend: Blend, purpose: str, row: Tensor | None = None) -> tuple[Targets, dict[str, Tensor]]:
        """Targets by the models the labeler reads, and what objectives observe of the start.

        Args:
            blend: says which models these are.
            purpose: of the draws.
            row: stands in for the start once training has moved it.
        """
        observing = any(o.observes for o in self.task.objectives)
        found = {
            name: self._pass(row) if name == "start" and row is not None else self.predictions(name, blend)
            for name in dict.fromkeys((*self.task.labeler.models, *(("start",) if observing else ())))
        }
        with torch.no_grad():
            return self.task.labeler(found, self._draws(purpose)), self._observed(found["start"]) if observing else {}

    def _observed(self, start: Predictions) -> dict[str, Tensor]:
        return {name: value for o in self.task.objectives for name, value in o.observe(start).items()}

    def _here(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        like = self.replica.class_vectors
        return {name: value.to(like.device, like.dtype) for name, value in values.items()}

    def train(self, blend: Blend) -> list[Targets]:
        """Label and train for one round; the trained model is left in the client's row of the bank.

        Args:
            blend: where to start and what to compare with.

        Returns:
            The targets of the last epoch, in a list of one.
        """
        task, training = self.task, self.task.training
        with self.clock("label"):
            targets, observed = self.label(blend, "partners")
            teachers = {name for objective in task.objectives for name in objective.teachers}
            taught = {name: self.predictions(name, blend).logits for name in sorted(teachers)}
        width = self.replica.layout.trained
        names = {name for objective in task.objectives for name in objective.anchors}
        anchors = {name: self.row(name, blend)[:width].clone() for name in sorted(names)}
        if task.labeler.renew == "round":
            self._seen.clear()
        row = self.slot.copy_(self.received.mix(blend.start[0]))
        lesson = EpochContext(targets, taught, anchors, observed, self._here(task.shared))
        started = self.mark()
        step = 0
        self.replica.bind(row)
        self.replica.begin()
        for epoch in range(training.epochs):
            if epoch and task.labeler.renew == "epoch":
                targets, observed = self.label(blend, f"partners {epoch}", row)
                lesson = replace(lesson, targets=targets, observed=observed)
                self.replica.bind(row)
                self.replica.network.train()
            order = permutation(task.keys(f"order {epoch}"), len(self.images))
            # What each step mixes decides shapes, so it is read once an epoch and not once a step.
            mixed = (targets.mix > 0).cpu()[order].split(training.batch_size)
            for here, mixing in zip(order.to(self.images.device).split(training.batch_size), mixed, strict=True):
                if len(here) > 1:
                    self._step(here, mixing.nonzero()[:, 0].to(here.device), lesson, step)
                step += 1
        self.lap("train", started)
        return [targets]

    def collect(self, targets: Sequence[Targets]) -> list[dict[str, Tensor]]:
        """What is uploaded beside the trained model, by ``<objective>.<name>``; costs a pass where any is asked for."""
        asking = [o for o in self.task.objectives if o.collects]
        if not asking:
            return [{}]
        with self.clock("collect"), torch.no_grad():
            trained = self._pass(self.slot)
            found = [(o.name, o.collect(trained, targets[0])) for o in asking]
            return [{f"{own}.{name}": x.cpu() for own, values in found for name, x in values.items()}]

    def _step(self, here: Tensor, places: Tensor, lesson: EpochContext, step: int) -> None:
        """One forward over plain, mixed and strong images together, so BatchNorm never sees a tiny batch.

        Args:
            here: images of the step ``[B]``.
            places: those of its places whose image is mixed.
            lesson: what they are trained towards.
            step: its number.
        """
        network, training, targets = self.replica.network, self.task.training, lesson.targets
        everyone = positions = torch.arange(len(here), device=here.device)
        images = pick_images(self.images, here)
        x = self._weak(images, "crop", step, everyone)
        inputs = [x]
        if len(places):
            chosen, beyond = here[places], training.batch_size + places
            partners = self._weak(pick_images(self.images, targets.partners[chosen]), "crop", step, beyond)
            inputs.append(torch.lerp(x[places], partners, targets.mix[chosen].to(x.dtype).view(-1, 1, 1, 1)))
            positions = torch.cat([everyone, beyond])
        drop = dropout_masks(network.drops, self.task.keys("dropout"), step, positions, 2 * training.batch_size)
        if any("strong" in objective.views for objective in self.task.objectives):
            distorted = strong_augment(images, self._numbers("strong", 4, step, everyone))
            inputs.append(self._weak(distorted, "crop strong", step, everyone))
            more = dropout_masks(network.drops, self.task.keys("dropout strong"), step, everyone, training.batch_size)
            drop = [torch.cat(pair) for pair in zip(drop, more, strict=True)]
        x = x if len(inputs) == 1 else torch.cat(inputs)
        logits, features = self.replica.forward(x, [mask.to(x.dtype) for mask in drop], "train")
        ends = (len(here), len(here) + len(places))
        plain, blended, other = logits.tensor_split(ends) if len(inputs) > 1 else (logits, logits[:0], logits[:0])
        batch = Batch(
            plain,
            features if len(inputs) == 1 else features[: len(here)],
            plain if not len(places) else plain.index_copy(0, places, blended),
            targets.labels.index_select(0, here),
            targets.weights.index_select(0, here).to(plain.dtype),
            {name: value.index_select(0, here) for name, value in lesson.taught.items()},
            {"weak": plain, **({"strong": other} if len(other) else {})},
            lesson.observed,
            lesson.shared,
        )
        loss = reduce(torch.add, [objective(batch) for objective in self.task.objectives])
        self.replica.step(loss, self._pull(lesson.anchors), training)

    def _weak(self, images: Tensor, purpose: str, step: int, positions: Tensor) -> Tensor:
        """Images as training shows them; the draws belong to a place in the step, whatever image is there."""
        network, stride = self.replica.network, 2 * self.task.training.batch_size
        return weak_views(network, images, self.task.keys(purpose), step, positions, stride)

    def _numbers(self, purpose: str, count: int, step: int, positions: Tensor) -> Tensor:
        """Uniform numbers ``[B, count]`` of places in a step; a partner's is batch size + the place of its sample."""
        base = (2 * self.task.training.batch_size * step + positions)[:, None] * count
        return uniform(self.task.keys(purpose), base + torch.arange(count, device=positions.device))

    def _pull(self, anchors: Mapping[str, Tensor]) -> Tensor | None:
        """Gradient ``[P]`` of the objectives' penalties on the model itself; None where there is none."""
        pulling = [o for o in self.task.objectives if o.penalizes]
        if not pulling:
            return None
        # .data: a version counter of its own, else other clients' steps on the bank make autograd distrust this row.
        leaf = self.slot[: self.replica.layout.trained].data.requires_grad_()
        values = [value for o in pulling if (value := o.penalty(leaf, anchors)) is not None]
        return torch.autograd.grad(torch.stack(values).sum(), leaf)[0] if values else None
