"""One step of a cohort: one forward, one backward and one update of the flat rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedwca.core.messages import Batch
from fedwca.engine.randomness import uniform
from fedwca.engine.stacked.images import StepGroup
from fedwca.engine.stacked.sgd import StackedSgd
from fedwca.engine.stacked.targets import StackedContext
from fedwca.engine.stacked.trial_batch import TrialBatch
from fedwca.engine.stacked.vmap import vmap_or_loop
from fedwca.functional import strong_augment


class Step:
    """One step of the clients of a span; the same places, draws and sums as `ClientWorker` has.

    Args:
        cohort: all clients.
        lesson: what they are trained towards.
        span: those that take the step.
        mixed: places for mixed images that each of them has.
        here: their images ``[g, B]``.
        number: steps that each of them has taken in this round ``[g]``.
    """

    def __init__(
        self, cohort: TrialBatch, lesson: StackedContext, span: StepGroup, mixed: int, here: Tensor, number: Tensor
    ) -> None:
        self.cohort, self.lesson, self.span = cohort, lesson, span
        self.here, self.number, self.most = here, number, mixed
        self.task, self.batch = cohort.task, cohort.task.training.batch_size
        self.rows = slice(span.first, span.stop)
        self.everyone = torch.arange(span.images, device=self.here.device).expand(len(self.here), -1)

    def take(self, sgd: StackedSgd) -> None:
        """Forward over plain, mixed and strong images together, backward, update."""
        cohort, lesson, n = self.cohort, self.lesson, self.span.images
        x = self._weak(cohort.take(self.rows, self.here), "crop", self.everyone)
        inputs, real, positions = [x], [torch.ones_like(self.here, dtype=torch.bool)], [self.everyone]
        if self.most:
            blended, valid, places = self._mixed(x)
            inputs, real, positions = [x, blended], [*real, valid], [self.everyone, self.batch + places]
        drop = self._masks("dropout", 2 * self.batch, torch.cat(positions, 1))
        seeing = any("strong" in objective.views for objective in self.task.objectives)
        if seeing:
            distorted = strong_augment(
                cohort.take(self.rows, self.here),
                self._numbers("strong", 2 * self.batch, self.everyone, 4).flatten(0, 1),
            )
            inputs.append(self._weak(distorted, "crop strong", self.everyone))
            real.append(real[0])
            more = self._masks("dropout strong", self.batch, self.everyone)
            drop = [torch.cat(pair, 1) for pair in zip(drop, more, strict=True)]
        leaf, parameters, statistics = sgd.leaf(self.span)
        logits, features, fresh = cohort.engine.stacked(
            parameters,
            statistics,
            torch.cat(inputs, 1),
            [mask.to(x.dtype) for mask in drop],
            torch.cat(real, 1) if self.most else None,
            training=True,
            phase="train",
            heads=None if cohort.heads is None else cohort.heads[self.rows],
        )
        plain, other = logits[:, :n], logits[:, n + self.most :]
        target = plain
        if self.most:
            index = places[..., None].expand(-1, -1, plain.shape[-1])
            chosen = torch.where(valid[..., None], logits[:, n : n + self.most], plain.gather(1, index))
            target = plain.scatter(1, index, chosen)
        tree = {
            "logits": plain,
            "features": features[:, :n],
            "target_logits": target,
            "labels": self._of(lesson.targets.labels),
            "weights": self._of(lesson.targets.weights).to(plain.dtype),
            "reference_logits": {name: self._of(value) for name, value in lesson.taught.items()},
            "view_logits": {"weak": plain, **({"strong": other} if seeing else {})},
            "observed": {name: value[self.rows] for name, value in lesson.observed.items()},
        }
        if cohort.several:
            tree["shared"] = {name: value[self.rows] for name, value in lesson.shared.items()}
        # A client's loss depends on no other client's model, so the gradient of the sum is every client's own.
        losses: Tensor = vmap_or_loop("the objectives", self._loss, tree) + self._penalties(leaf)
        sgd.step(self.span, torch.autograd.grad(losses.sum(), leaf)[0], fresh)

    def _loss(self, tree: dict[str, Any]) -> Tensor:
        batch = Batch(**{"shared": self.lesson.shared, **tree})
        return torch.stack([objective(batch) for objective in self.task.objectives]).sum()

    def _mixed(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mixed images ``[g, most, …]``, which of them are real, and the places of their samples ``[g, most]``."""
        targets = self.lesson.targets
        mixed = self._of(targets.mix) > 0
        places = (~mixed).to(torch.uint8).argsort(dim=1, stable=True)[:, : self.most]
        valid = mixed.gather(1, places)
        samples = self.here.gather(1, places)
        partners = targets.partners[self.rows].gather(1, samples).clamp_min(0)
        other = self._weak(self.cohort.take(self.rows, partners), "crop", self.batch + places)
        share = targets.mix[self.rows].gather(1, samples).to(x.dtype)
        index = places.view(*places.shape, 1, 1, 1).expand(-1, -1, *x.shape[2:])
        return torch.lerp(x.gather(1, index), other, share.view(*share.shape, 1, 1, 1)), valid, places

    def _of(self, values: Tensor) -> Tensor:
        """Values ``[G, N, …]`` of the images in this step ``[g, B, …]``."""
        values = values[self.rows]
        index = self.here.view(*self.here.shape, *(1,) * (values.ndim - 2))
        return values.gather(1, index.expand(*self.here.shape, *values.shape[2:]))

    def _numbers(self, purpose: str, stride: int, positions: Tensor, count: int) -> Tensor:
        """Uniform numbers ``[g, B, count]`` of places in a step; ``stride`` places a step."""
        counters = (self.number[:, None] * stride + positions)[..., None] * count
        counters = counters + torch.arange(count, device=positions.device)
        return uniform(self.cohort.keys(purpose)[self.rows, None, None], counters)

    def _weak(self, images: Tensor, purpose: str, positions: Tensor) -> Tensor:
        """Images ``[g·B, …]`` as training shows them ``[g, B, 3, H, W]``."""
        network = self.cohort.engine.network
        if not network.augments:
            return torch.unflatten(network.prepare(images), 0, positions.shape)
        draws = self._numbers(purpose, 2 * self.batch, positions, 4)
        return torch.unflatten(network.weak(images, draws.flatten(0, 1)), 0, positions.shape)

    def _masks(self, purpose: str, stride: int, positions: Tensor) -> list[Tensor]:
        """Dropout masks ``[g, B, *shape]``, one for each place where units are dropped, scaled by 1/(1-p)."""
        drops = self.cohort.engine.network.drops
        counts = [torch.Size(drop.shape).numel() for drop in drops]
        drawn = self._numbers(purpose, stride, positions, sum(counts)).split(counts, -1)
        return [
            ((u >= drop.p).float() / (1 - drop.p)).unflatten(-1, drop.shape)
            for u, drop in zip(drawn, drops, strict=True)
        ]

    def _penalties(self, leaf: Tensor) -> Tensor:
        """The objectives' penalties on the models themselves ``[g]``, or a plain 0."""
        pulling = [o for o in self.task.objectives if o.penalizes]
        anchors = {name: value[self.rows] for name, value in self.lesson.anchors.items()}

        def penalties(tree: dict[str, Any]) -> Tensor:
            found = [o.penalty(tree["leaf"], tree["anchors"]) for o in pulling]
            zero: Tensor = tree["leaf"][:0].sum()
            return sum((value for value in found if value is not None), zero)

        if not pulling:
            return leaf[:0].sum()
        found: Tensor = vmap_or_loop("the penalties", penalties, {"leaf": leaf, "anchors": anchors})
        return found
