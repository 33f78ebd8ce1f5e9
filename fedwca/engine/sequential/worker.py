"""One client's work between two messages: labels and training, after the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from fedwca.core.messages import Batch, Blend, Latent, Targets
from fedwca.engine import client_program as program
from fedwca.engine.augmentation import StepDraws, pick_images
from fedwca.engine.check_targets import check_target_values
from fedwca.engine.client_task import ORDER, EpochContext
from fedwca.engine.device_copy import to_device
from fedwca.engine.randomness import permutation
from fedwca.engine.sequential.evidence import ClientEvidence
from fedwca.engine.sequential.generated_model import generate_model, train_generators


class ClientWorker(ClientEvidence):
    """Work of one client: a `ClientWork` for K = 1 that caches predictions and trains in ``slot [P]``, its bank row."""

    def label(self, blend: Blend, purpose: str, row: Tensor | None = None) -> tuple[Targets, dict[str, Tensor]]:
        """Targets by the models that the labeler reads, and what objectives observe of the start model.

        Args:
            blend: gives these models.
            purpose: of the draws.
            row: replaces the start model once training has changed it; None: does not.
        """
        predictions = {
            name: self._pass(row) if name == "start" and row is not None else self.predictions(name, blend)
            for name in program.label_models(self.task, self.labels[0] is not None)
        }
        with torch.no_grad():
            trusted = None if self.task.trusted == 1 else torch.full((), self.task.trusted, device=self.images.device)
            result = program.make_targets(self.task, predictions, self._draws(purpose), self.labels[0], trusted)
        if self.labels[0] is None:
            check_target_values(result[0], self.replica.network.classifier.out_features, self.task.labeler)
        return result

    def context(self, blend: Blend) -> EpochContext:
        """Targets and values to compare with at the start of training."""
        task, width = self.task, self.replica.layout.trained
        with self.clock("label"):
            targets, observed = self.label(blend, "partners")
            taught = {name: self.predictions(name, blend).logits for name in program.teacher_names(task.objectives)}
            taught |= program.place_like(task.taught, self.slot)
        anchors = {name: self.row(name, blend)[:width].clone() for name in program.anchor_names(task.objectives)}
        if task.labeler.renew == "round":
            self._cache.clear()
        return EpochContext(targets, taught, anchors, observed, program.place_like(task.shared, self.slot))

    def train(self, blend: Blend) -> list[Targets]:
        """Label and train for one round; the trained model is stored in the client's row of the bank.

        Args:
            blend: the models to start from and to compare with.

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
        generated = None
        if adaptation is not None and adaptation.generates_models:
            with torch.no_grad():
                generated = generate_model(self.replica, adaptation, self.images)
                row[self.replica.layout.base] = generated
        self.replica.begin(training.trains, extras=generated is None)
        count, least = len(self.images), self.replica.layout.least_images
        part = task.cut(count)
        for epoch, steps in enumerate(task.passes(part.stop - part.start, least)):
            # With `Training.steps`, clients begin passes at different steps, so labels are not renewed.
            if epoch and task.labeler.renew == "epoch" and training.steps is None:
                targets, observed = self.label(blend, f"partners {epoch}", row)
                context = replace(context, targets=targets, observed=observed)
                self.replica.bind(row)
                self.replica.prepare_training(training.trains, extras=generated is None)
            order = permutation(task.keys(f"{ORDER}{epoch}"), count)[part]
            # Which images are mixed decides the shapes of steps, so it is read once per epoch and not once per step.
            mixed_batches = (context.targets.partner_weights > 0).cpu()[order].split(training.batch_size)
            batches = zip(to_device(order, self.images.device).split(training.batch_size), mixed_batches, strict=True)
            for indices, is_mixed in islice(batches, steps):
                if len(indices) >= least:
                    self._step(indices, to_device(is_mixed.nonzero()[:, 0], indices.device), context, step)
                step += 1
        if generated is not None and adaptation is not None:
            train_generators(self.replica, adaptation, self.images, generated, task.learning_rates, task.training.lr)
        self.lap("train", started)
        return [context.targets]

    def collect(self, targets: Sequence[Targets]) -> list[dict[str, Tensor]]:
        """What is uploaded beside the trained model, by ``<objective>.<name>``; takes a pass if there is anything."""
        if not program.collecting_objectives(self.task.objectives):
            return [{}]
        with self.clock("collect"), torch.no_grad():
            uploads = program.collect(self.task.objectives, self._pass(self.slot), targets[0])
            return [{name: value.cpu() for name, value in uploads.items()}]

    def _step(self, indices: Tensor, places: Tensor, context: EpochContext, step: int) -> None:
        """One training step; plain, mixed and strong images share one pass, so that BatchNorm never sees a tiny batch.

        Args:
            indices: images of the step ``[B]``.
            places: places in the step whose image is mixed with another.
            context: the targets, and values to compare with.
            step: number of the step.
        """
        training, targets, objectives = self.task.training, context.targets, self.task.objectives
        draws = StepDraws(self.replica.network, self.task.keys, step, training.batch_size, training.trains)
        all_places = positions = torch.arange(len(indices), device=indices.device)
        strong, inputs = program.wants_strong_views(objectives), []
        if not draws.plain:
            inputs.append(draws.weak(pick_images(self.images, indices), all_places))
        if len(places):
            samples, mixed_places = indices[places], training.batch_size + places
            originals = inputs[0][places] if inputs else draws.weak(pick_images(self.images, samples), places)
            partners = draws.weak(pick_images(self.images, targets.partners[samples]), mixed_places)
            inputs.append(
                torch.lerp(originals, partners, targets.partner_weights[samples].to(originals.dtype).view(-1, 1, 1, 1))
            )
            positions = torch.cat([all_places, mixed_places])
        if strong:
            inputs.append(draws.strong(pick_images(self.images, indices), all_places))
        drop_masks = draws.masks(positions, all_places if strong else None)
        parts = [self.replica.network.embed(torch.cat(inputs) if len(inputs) > 1 else inputs[0])] if inputs else []
        if draws.plain:
            parts.insert(0, self.plain[indices.to(self.plain.device)].to(indices.device))
        x = torch.cat(parts) if len(parts) > 1 else parts[0]
        adapts, masks = program.adapts(objectives), [mask.to(x.dtype) for mask in drop_masks]
        # What is differentiated twice is in full precision: in bfloat16 the inner gradient would be off by 1 %.
        logits, features = self.replica.forward(x, masks, None if adapts else "train", twice=adapts)
        ends = (len(indices), len(indices) + len(places))
        only_plain = len(x) == len(indices)
        plain, mixed, strong_logits = (logits, logits[:0], logits[:0]) if only_plain else logits.tensor_split(ends)
        adapted = None
        if adapts:
            adaptation = self.task.adaptation
            assert adaptation is not None
            stepped = self.replica.forward_adapted(plain, x, masks, adaptation, self.task.inner_lr)
            adapted = stepped[: len(indices)].index_copy(0, places, stepped[len(indices) : ends[1]])
        plain_features, latent = self.replica.network.split_latent(features if only_plain else features[: len(indices)])
        noise = draws.noise(all_places, program.noise_numbers(objectives))
        batch = Batch(
            logits=plain,
            features=plain_features,
            target_logits=plain if not len(places) else plain.index_copy(0, places, mixed),
            labels=targets.labels.index_select(0, indices),
            weights=targets.weights.index_select(0, indices).to(plain.dtype),
            reference_logits={name: value.index_select(0, indices) for name, value in context.taught.items()},
            view_logits={"plain": plain, "weak": plain, **({"strong": strong_logits} if strong else {})},
            observed=context.observed,
            pooled_uploads=context.shared,
            adapted_logits=adapted,
            latent=latent and Latent(*latent),
            networks=self.replica.extras,
            frozen_networks=self.replica.frozen,
            noise=None if noise is None else noise.to(plain.dtype),
        )
        loss = program.batch_loss(objectives, batch)
        program.check_is_trained(loss, objectives)
        self.replica.step(loss, self._pull(context.anchors), training, self.task.learning_rates)

    def _pull(self, anchors: Mapping[str, Tensor]) -> Tensor | None:
        """Gradient ``[P]`` of the objectives' penalties on the model itself; None if none depends on it."""
        if not program.penalizing(self.task.objectives):
            return None
        # .data has a version counter of its own: else other clients' steps on the bank invalidate this row.
        leaf = self.slot[: self.replica.layout.trained].data.requires_grad_()
        value = program.penalty(self.task.objectives, leaf, anchors)
        return torch.autograd.grad(value, leaf)[0] if value.requires_grad else None
