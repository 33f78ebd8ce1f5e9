"""One client's work between two messages: evidence on the models it was sent, labels, training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from fedwca.core.messages import Batch, Blend, Latent, Predictions, Targets
from fedwca.engine import client_program as program
from fedwca.engine.augmentation import StepDraws, pick_images
from fedwca.engine.client_task import ORDER, EpochContext, SentModels, Task
from fedwca.engine.device_copy import to_device
from fedwca.engine.randomness import permutation, uniform
from fedwca.engine.sequential.generated_model import generate_model, train_generators
from fedwca.engine.sequential.images_to_adapt import ImagesToAdapt
from fedwca.engine.sequential.replica import Replica
from fedwca.engine.test_time_adaptation import make_step
from fedwca.engine.timing import Clock
from fedwca.functional import alignment, soft_neighborhood_density


class ClientWorker(Clock):
    """A client at work: a `View` for K = 1 that remembers passes and trains into its ``slot [P]``."""

    def __init__(
        self,
        replica: Replica,
        images: Tensor,
        labels: Tensor | None,
        received: SentModels,
        personal: int,
        slot: Tensor,
        task: Task,
        plain: Tensor | None = None,
    ) -> None:
        super().__init__(slot.device)
        self.plain = images if plain is None else plain
        """What passes over all images read of them, see `fedwca.engine.embeddings.embed_images`."""
        self.replica, self.images, self.received, self.slot, self.task = replica, images, received, slot, task
        self.labels = [labels]
        self._identity = torch.eye(received.weights.shape[0], dtype=received.weights.dtype)
        self.own = self.model(0)
        self.shared = self._identity[personal:]
        self.passes = 0
        self._memory = program.PassMemory()

    @property
    def weights(self) -> Tensor:
        """``[1, Q+S, R]``"""
        return self.received.weights[None]

    def model(self, column: int) -> Tensor:
        """The mixture ``[1, Q+S]`` that is one of the models sent."""
        return self._identity[column : column + 1]

    def predict(self, mixtures: Tensor) -> Predictions:
        """Predictions of a mixture ``[1, Q+S]`` on the client's images; asking again for the same one is free."""
        return self._memory.recall(mixtures, lambda asked: self._pass(self.received.mix(asked[0])))

    def outputs(self, mixtures: Tensor) -> list[Predictions]:
        """As `predict`, in a list of one."""
        return [self.predict(mixtures)]

    def outputs_after_step(self, mixtures: Tensor) -> list[Predictions]:
        """As `outputs`, and what the model says after a step of the task's adaptation on all the images."""
        adaptation, row = self.task.adaptation, self.received.mix(mixtures[0])
        assert adaptation is not None
        found, work = self._pass(row), ImagesToAdapt(self.replica, self.plain)
        _, logits = make_step(work, adaptation, row[None], found.logits[None], self.task.inner_lr)
        self.passes += 1
        return [replace(found, adapted=logits[0])]

    def _pass(self, row: Tensor) -> Predictions:
        self.passes += 1
        self.replica.bind(row)
        return self.replica.predict(self.plain, phase="evidence")

    def alignment(self, mixtures: Tensor) -> Tensor:
        """Mean cosine to the nearest classifier vector, one value a mixture: ``[M, Q+S] -> [1, M]``."""
        # The pass comes first: it puts the model, and a classifier of its own, on the replica.
        values = [alignment(self._pass(self.received.mix(w)).features, self.replica.class_vectors) for w in mixtures]
        return torch.stack(values)[None].double().cpu()

    def density(self, mixtures: Tensor) -> Tensor:
        """Soft neighborhood density of the mixed model: ``[1, Q+S] -> [1]``, nats."""
        return soft_neighborhood_density(self.predict(mixtures).probabilities)[None].double().cpu()

    @torch.no_grad()
    def loss(self, mixtures: Tensor) -> Tensor:
        """The task's objectives over all images, with the client's labels or those that the mixed model itself gives:
        ``[M, Q+S] -> [1, M]``, nats.
        """
        draws, shared = self._draws("partners"), program.place_like(self.task.shared, self.slot)
        teaches = "source" in program.teacher_names(self.task.objectives)
        source = {"source": self._pass(self.received.source).logits} if teaches else {}
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
        """What a named model says of the client's images."""
        if name == "source":
            return self._pass(self.received.source)
        return self.predict(program.named_mixture(name, blend, self.own))

    def _draws(self, purpose: str) -> Tensor:
        return uniform(self.task.keys(purpose), torch.arange(len(self.images), device=self.images.device))

    def label(self, blend: Blend, purpose: str, row: Tensor | None = None) -> tuple[Targets, dict[str, Tensor]]:
        """Targets by the models the labeler reads, and what objectives observe of the start.

        Args:
            blend: says which models these are.
            purpose: of the draws.
            row: stands in for the start once training has moved it.
        """
        found = {
            name: self._pass(row) if name == "start" and row is not None else self.predictions(name, blend)
            for name in program.label_models(self.task, self.labels[0] is not None)
        }
        with torch.no_grad():
            trusted = None if self.task.trusted == 1 else torch.full((), self.task.trusted, device=self.images.device)
            made = program.make_targets(self.task, found, self._draws(purpose), self.labels[0], trusted)
        if self.labels[0] is None:
            program.check_target_values(made[0], self.replica.network.classifier.out_features, self.task.labeler)
        return made

    def context(self, blend: Blend) -> EpochContext:
        """What the client is trained towards at first, by the model it starts with."""
        task, width = self.task, self.replica.layout.trained
        with self.clock("label"):
            targets, observed = self.label(blend, "partners")
            taught = {name: self.predictions(name, blend).logits for name in program.teacher_names(task.objectives)}
            taught |= program.place_like(task.taught, self.slot)
        anchors = {name: self.row(name, blend)[:width].clone() for name in program.anchor_names(task.objectives)}
        if task.labeler.renew == "round":
            self._memory.forget()
        return EpochContext(targets, taught, anchors, observed, program.place_like(task.shared, self.slot))

    def train(self, blend: Blend) -> list[Targets]:
        """Label and train for one round; the trained model is left in the client's row of the bank.

        Args:
            blend: where to start and what to compare with.

        Returns:
            The targets of the last epoch, in a list of one.
        """
        task, training, context = self.task, self.task.training, self.context(blend)
        row = self.slot.copy_(self.received.mix(blend.start[0]))
        started = self.mark()
        if task.idle:
            self.replica.bind(row)
            self.replica.recalibrate(self.plain)
            self.lap("train", started)
            return [context.targets]
        step, adaptation = 0, task.adaptation
        self.replica.bind(row)
        begun = None
        if adaptation is not None and adaptation.by_client:
            with torch.no_grad():
                begun = generate_model(self.replica, adaptation, self.images)
                row[self.replica.layout.base] = begun
        self.replica.begin(training.trains, extras=begun is None)
        count, least = len(self.images), self.replica.layout.least_images
        part = task.cut(count)
        for epoch, steps in enumerate(task.passes(part.stop - part.start, least)):
            # Where steps are counted, passes begin at another step of each client, and labels stay.
            if epoch and task.labeler.renew == "epoch" and training.steps is None:
                targets, observed = self.label(blend, f"partners {epoch}", row)
                context = replace(context, targets=targets, observed=observed)
                self.replica.bind(row)
                self.replica.prepare_training(training.trains, extras=begun is None)
            order = permutation(task.keys(f"{ORDER}{epoch}"), count)[part]
            # What each step mixes decides shapes, so it is read once an epoch and not once a step.
            mixed = (context.targets.mix > 0).cpu()[order].split(training.batch_size)
            batches = zip(to_device(order, self.images.device).split(training.batch_size), mixed, strict=True)
            for here, mixing in islice(batches, steps):
                if len(here) >= least:
                    self._step(here, to_device(mixing.nonzero()[:, 0], here.device), context, step)
                step += 1
        if begun is not None and adaptation is not None:
            train_generators(self.replica, adaptation, self.images, begun, task.rates)
        self.lap("train", started)
        return [context.targets]

    def collect(self, targets: Sequence[Targets]) -> list[dict[str, Tensor]]:
        """What is uploaded beside the trained model, by ``<objective>.<name>``; costs a pass where any is asked for."""
        if not program.collecting_objectives(self.task.objectives):
            return [{}]
        with self.clock("collect"), torch.no_grad():
            found = program.collect(self.task.objectives, self._pass(self.slot), targets[0])
            return [{name: value.cpu() for name, value in found.items()}]

    def _step(self, here: Tensor, places: Tensor, context: EpochContext, step: int) -> None:
        """One forward over plain, mixed and strong images together, so BatchNorm never sees a tiny batch.

        Args:
            here: images of the step ``[B]``.
            places: those of its places whose image is mixed.
            context: what they are trained towards.
            step: its number.
        """
        training, targets, objectives = self.task.training, context.targets, self.task.objectives
        draws = StepDraws(self.replica.network, self.task.keys, step, training.batch_size, training.trains)
        everyone = positions = torch.arange(len(here), device=here.device)
        strong, inputs = program.wants_strong_views(objectives), []
        if not draws.plain:
            inputs.append(draws.weak(pick_images(self.images, here), everyone))
        if len(places):
            chosen, beyond = here[places], training.batch_size + places
            own = inputs[0][places] if inputs else draws.weak(pick_images(self.images, chosen), places)
            partners = draws.weak(pick_images(self.images, targets.partners[chosen]), beyond)
            inputs.append(torch.lerp(own, partners, targets.mix[chosen].to(own.dtype).view(-1, 1, 1, 1)))
            positions = torch.cat([everyone, beyond])
        if strong:
            inputs.append(draws.strong(pick_images(self.images, here), everyone))
        drop = draws.masks(positions, everyone if strong else None)
        read = [self.replica.network.embed(torch.cat(inputs) if len(inputs) > 1 else inputs[0])] if inputs else []
        if draws.plain:
            read.insert(0, self.plain[here.to(self.plain.device)].to(here.device))
        x = torch.cat(read) if len(read) > 1 else read[0]
        adapts, masks = program.adapts(objectives), [mask.to(x.dtype) for mask in drop]
        # What is differentiated twice is in full: an inner gradient would be off by a hundredth in bfloat16.
        logits, features = self.replica.forward(x, masks, None if adapts else "train", twice=adapts)
        ends = (len(here), len(here) + len(places))
        alone = len(x) == len(here)
        plain, blended, other = (logits, logits[:0], logits[:0]) if alone else logits.tensor_split(ends)
        adapted = None
        if adapts:
            adaptation = self.task.adaptation
            assert adaptation is not None
            after = self.replica.forward_adapted(plain, x, masks, adaptation, self.task.inner_lr)
            adapted = after[: len(here)].index_copy(0, places, after[len(here) : ends[1]])
        shown, latent = self.replica.network.split_latent(features if alone else features[: len(here)])
        noise = draws.noise(everyone, program.noise_numbers(objectives))
        batch = Batch(
            logits=plain,
            features=shown,
            target_logits=plain if not len(places) else plain.index_copy(0, places, blended),
            labels=targets.labels.index_select(0, here),
            weights=targets.weights.index_select(0, here).to(plain.dtype),
            reference_logits={name: value.index_select(0, here) for name, value in context.taught.items()},
            view_logits={"plain": plain, "weak": plain, **({"strong": other} if strong else {})},
            observed=context.observed,
            shared=context.shared,
            adapted_logits=adapted,
            latent=latent and Latent(*latent),
            networks=self.replica.extras,
            frozen=self.replica.frozen,
            noise=None if noise is None else noise.to(plain.dtype),
        )
        loss = program.batch_loss(objectives, batch)
        program.check_is_trained(loss, objectives)
        self.replica.step(loss, self._pull(context.anchors), training, self.task.rates)

    def _pull(self, anchors: Mapping[str, Tensor]) -> Tensor | None:
        """Gradient ``[P]`` of the objectives' penalties on the model itself; None where there is none."""
        if not program.penalizing(self.task.objectives):
            return None
        # .data: a version counter of its own, else other clients' steps on the bank make autograd distrust this row.
        leaf = self.slot[: self.replica.layout.trained].data.requires_grad_()
        value = program.penalty(self.task.objectives, leaf, anchors)
        return None if value is None else torch.autograd.grad(value, leaf)[0]
