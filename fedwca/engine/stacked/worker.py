"""Work of many clients between two messages, all at once: labels and training, after the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedwca.core.component_answers import only_reads
from fedwca.core.messages import Blend, Predictions, Targets
from fedwca.engine import client_program as program
from fedwca.engine.check_targets import check_target_values
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_device, to_host_async
from fedwca.engine.stacked.client_batch import ClientBatch, TrialBatch
from fedwca.engine.stacked.evidence import StackedEvidence
from fedwca.engine.stacked.received_models import StackedReceived
from fedwca.engine.stacked.targets import StackedContext, split_targets, targets_tree
from fedwca.engine.stacked.train import Capture, train
from fedwca.engine.stacked.vmap import Tree, UnequalTensors, join_trees, join_unpadded
from fedwca.engine.timing import Mark


class StackedWorker(StackedEvidence):
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
        super().__init__(batch, received, bank, tasks)
        self.capture = capture

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
            return {"targets": targets_tree(targets), "by_client": {"observed": observed, "notes": targets.notes}}

        outputs = {name: (p.logits, p.features) for name, p in predictions.items()}
        with torch.no_grad():
            tree = {"said": outputs, "draws": self._draws(purpose), **labels, **self._trusted()}
            # Around all clients, since under vmap tensors count no changes.
            with only_reads(f"pseudo-labeler {task.labeler.name!r}, or an objective's observe,", tree):
                parts = self._each(f"labels by {task.labeler.name!r}", label_client, tree)
        if not labels:
            for part in parts:
                check_target_values(
                    Targets(**part["targets"]), self.batch.network.network.classifier.out_features, task.labeler
                )
        # These may differ in shape between clients: padding would be read as if it were observed.
        by_client = join_unpadded([part["by_client"] for part in parts])
        targets = join_trees([part["targets"] for part in parts])
        return {**targets, "notes": by_client["notes"]}, by_client["observed"]

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
            self._cache.clear()
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
