"""Training of a cohort: all steps of a round."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from fedwca.core.messages import Blend
from fedwca.engine.stacked.images import StepGroup
from fedwca.engine.stacked.schedule import StepSchedule
from fedwca.engine.stacked.sgd import StackedSgd
from fedwca.engine.stacked.step import Step
from fedwca.engine.stacked.targets import StackedContext
from fedwca.engine.stacked.trial_batch import TrialBatch

Capture = Callable[[Mapping[Hashable, int]], Callable[..., None]]
"""Takes how many steps of each kind there are between two labellings, and gives what carries them out: called with a
step's kind, its values and the step as a function of these. Steps of one kind differ in their values alone."""


def train(cohort: TrialBatch, blends: Sequence[Blend], models: Tensor, lesson: StackedContext) -> StackedContext:
    """Train ``models [G, P]`` in place for one round; the lesson of the last epoch.

    Args:
        cohort: whose models.
        blends: what labels are renewed by, one for each of its desks.
        models: where training starts; afterwards where it ended.
        lesson: what the first epoch is trained towards.
    """
    training = cohort.task.training
    sgd = StackedSgd(cohort.engine.layout, training, models)
    renews = cohort.task.labeler.renew == "epoch"
    capture, plan, run = cohort.engine.capture, None, None
    for epoch in range(training.epochs):
        if renews and epoch:
            asked = zip(cohort.desks, blends, cohort.parted(models), strict=True)
            found = [desk.label(blend, f"partners {epoch}", own) for desk, blend, own in asked]
            observed = cohort.named("observations", [seen for _, seen in found])
            lesson = replace(lesson, targets=cohort.targets([targets for targets, _ in found]), observed=observed)
        if plan is None or renews:
            epochs = range(epoch, epoch + 1) if renews else range(training.epochs)
            # What is captured cannot depend on how many images are mixed.
            plan = StepSchedule(cohort, lesson, epochs, counted=capture is None)
            run = capture(plan.kinds) if capture else None
        for step in range(plan.steps):
            for span in plan.spans[step]:
                mixed = plan.places(epoch, step, span)
                values, take = plan.values(epoch, step, span), partial(_take, cohort, lesson, sgd, span, mixed)
                if run is None:
                    take(*values)
                else:
                    run(span, values, take)
    return lesson


def _take(
    cohort: TrialBatch,
    lesson: StackedContext,
    sgd: StackedSgd,
    span: StepGroup,
    mixed: int,
    here: Tensor,
    number: Tensor,
) -> None:
    Step(cohort, lesson, span, mixed, here, number).take(sgd)
