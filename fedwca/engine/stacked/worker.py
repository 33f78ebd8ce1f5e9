"""The work of a crowd between two messages: labels, training, uploads; evidence is its view's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedwca.core.messages import Blend, Predictions, Targets
from fedwca.engine.device_copy import to_host_async
from fedwca.engine.stacked.targets import StackedContext, StackedTargets, join_targets
from fedwca.engine.stacked.training import train
from fedwca.engine.stacked.trial_batch import TrialBatch
from fedwca.engine.stacked.view import StackedView, observed


class StackedWorker(StackedView):
    """A `fedwca.engine.interface.ClientWork` for the G clients of a crowd, in its order."""

    def _named(self, name: str, blend: Blend) -> Tensor:
        return {**blend.references, "start": blend.start}.get(name, self.own)

    def predictions(self, name: str, blend: Blend) -> Predictions:
        """What a named model says of the clients' images."""
        return self.by_source() if name == "source" else self.predict(self._named(name, blend))

    def label(
        self, blend: Blend, purpose: str, models: Tensor | None = None
    ) -> tuple[StackedTargets, dict[str, Tensor]]:
        """Targets by the models the labeler reads, and what objectives observe of the start.

        Args:
            blend: says which models these are.
            purpose: of the draws.
            models: stand in for the starts once training has moved them ``[G, P]``.
        """
        task = self.task
        observing = any(o.observes for o in task.objectives)
        found = {
            name: self.passed(models) if name == "start" and models is not None else self.predictions(name, blend)
            for name in dict.fromkeys((*task.labeler.models, *(("start",) if observing else ())))
        }

        def one(tree: dict[str, Any]) -> dict[str, Any]:
            said = {name: Predictions(*both) for name, both in tree["said"].items()}
            targets = task.labeler({name: said[name] for name in task.labeler.models}, tree["draws"])
            noticed = observed(task.objectives, said["start"]) if observing else {}
            return {"targets": StackedTargets.of(targets).tree(), "observed": noticed}

        said = {name: (p.logits, p.features) for name, p in found.items()}
        with torch.no_grad():
            parts = self.each(f"labels by {task.labeler.name!r}", one, {"said": said, "draws": self.draws(purpose)})
        targets = StackedTargets(**join_targets([part["targets"] for part in parts]))
        return targets, join_targets([part["observed"] for part in parts])

    def lesson(self, blend: Blend) -> StackedContext:
        """What the clients are trained towards at first, by the models they start with."""
        task = self.task
        with self.clock("label"):
            targets, noticed = self.label(blend, "partners")
            teachers = {name for objective in task.objectives for name in objective.teachers}
            taught = {name: self.predictions(name, blend).logits for name in sorted(teachers)}
        names = sorted({name for objective in task.objectives for name in objective.anchors})
        width = self.engine.layout.trained
        anchors = {name: self._models(name, blend)[:, :width].contiguous() for name in names}
        if task.labeler.renew == "round":
            self.seen.clear()
        return StackedContext(targets, taught, anchors, noticed, self.common(task.shared))

    def train(self, blend: Blend) -> list[Targets]:
        """Label and train for one round; the trained models are left in the bank."""
        (targets,) = train_together([self], [blend])
        return targets

    def _models(self, name: str, blend: Blend) -> Tensor:
        if name == "source":
            return self.source.expand(len(self.tasks), -1)
        return self.mixed(self._named(name, blend))

    def collect(self, targets: Sequence[Targets]) -> list[dict[str, Tensor]]:
        """What is uploaded beside the trained models, one entry a client; costs a pass where any is asked for."""
        asking = [o for o in self.task.objectives if o.collects]
        if not asking:
            return [{} for _ in targets]
        with self.clock("collect"), torch.no_grad():
            found = self.passed(self.engine.bank[self.crowd.numbers])
            trained = zip(found.logits, found.features, self.crowd.sizes, targets, strict=True)
            return [
                {
                    f"{objective.name}.{name}": to_host_async(value)
                    for objective in asking
                    for name, value in objective.collect(Predictions(logits[:n], features[:n]), own).items()
                }
                for logits, features, n, own in trained
            ]


def train_together(desks: Sequence[StackedWorker], blends: Sequence[Blend]) -> list[list[Targets]]:
    """Label and train the clients of one or several trials together; trained models are left in each trial's bank.

    Args:
        desks: one for each trial, see `fedwca.engine.stacked.trial_batch.TrialBatch`.
        blends: where its clients start.

    Returns:
        The targets of the last epoch, for each desk one a client.
    """
    cohort = TrialBatch(desks)
    lesson = cohort.lesson([desk.lesson(blend) for desk, blend in zip(desks, blends, strict=True)])
    started = desks[0].mark()
    models = cohort.joined([desk.mixed(blend.start) for desk, blend in zip(desks, blends, strict=True)])
    lesson = train(cohort, blends, models, lesson)
    for desk, own in zip(desks, cohort.parted(models), strict=True):
        desk.engine.bank[desk.crowd.numbers] = own
        desk.lap("train", started, len(desk.crowd.sizes) / len(cohort.sizes))
    return [targets.split(desk.crowd.sizes) for desk, targets in zip(desks, cohort.apart(lesson.targets), strict=True)]
