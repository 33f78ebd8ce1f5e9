"""Objectives on values worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Predictions, Targets
from fedwca.objectives import objectives
from fedwca.objectives.adapted import AdaptedCrossEntropy
from fedwca.objectives.control import Control
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.objectives.prototype_contrastive import PrototypeContrastive
from fedwca.objectives.self_training import SelfTraining
from fedwca.objectives.server_client_alignment import ServerClientAlignment
from fedwca.objectives.shot import Shot
from fedwca.objectives.strong_views import StrongViews

every = pytest.mark.parametrize("objective", [objectives.build(name) for name in objectives.names()], ids=str)


def batch(logits: Tensor, labels: list[int], weights: list[float], target: Tensor | None = None) -> Batch:
    features = 0 * logits[:, :2]
    target = logits if target is None else target
    label_weights = torch.tensor(weights, dtype=logits.dtype)
    names = ("start", "cluster", "source", "teacher", "adapted", "base")
    teachers, views = dict.fromkeys(names, logits.detach()), dict.fromkeys(("weak", "strong"), logits)
    observed = {"threshold": torch.tensor(0.8)}
    return Batch(logits, features, target, torch.tensor(labels), label_weights, teachers, views, observed, {}, target)


def logits_of(*probabilities: list[float]) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def test_information_maximization_by_hand() -> None:
    # Outputs (3/4, 1/4) and (1/4, 3/4): mean entropy h = log 4 - 3/4 log 3, entropy of the mean log 2.
    data = batch(logits_of([0.75, 0.25], [0.25, 0.75]), [0, 1], [0, 0])
    expected = math.log(4) - 0.75 * math.log(3) - math.log(2)
    assert float(Shot(eps=1e-15)(data)) == pytest.approx(expected, abs=1e-12)
    # Labels of weight 0 leave nothing else of `strong_views`.
    assert float(StrongViews(eps=1e-15)(data)) == pytest.approx(expected, abs=1e-12)
    # With 1e-5 in the logarithms, each of the four terms p·log(p + eps) moves by about eps.
    assert float(Shot()(data)) == pytest.approx(expected, abs=5e-5)


def test_strong_views_by_hand() -> None:
    # Both rows (1/2, 1/2): L_IM is 0 and each cross-entropy log 2; the strong view (3/4, 1/4) costs log 4/3 or log 4.
    plain, strong = logits_of([0.5, 0.5], [0.5, 0.5]), logits_of([0.75, 0.25], [0.75, 0.25])

    def loss(*weights: float) -> float:
        data = replace(batch(plain, [0, 1], list(weights)), view_logits={"strong": strong})
        return float(StrongViews(plain=0.3, strong=2, eps=1e-15)(data))

    assert loss(1, 1) == pytest.approx(0.3 * math.log(2) + (math.log(4 / 3) + math.log(4)))
    assert loss(1, 0.5) == pytest.approx(0.3 * math.log(2) + 2 * math.log(4 / 3))  # only labels of weight 1 count
    assert loss(0, 0) == pytest.approx(0, abs=1e-12)


def test_cross_entropy_is_over_labelled_samples_only() -> None:
    # -log 3/4 and -log 1/4 at weights 1 and 0, then 1 and 1.
    logits = logits_of([0.75, 0.25], [0.75, 0.25])
    first = float(Shot(im=0, lam=2)(batch(logits, [0, 1], [1, 0])))
    both = float(Shot(im=0, lam=2)(batch(logits, [0, 1], [1, 1])))
    assert first == pytest.approx(-2 * math.log(0.75))
    assert both == pytest.approx(-math.log(0.75) - math.log(0.25))


def test_the_control_term_adds_the_difference_of_controls_to_the_gradient() -> None:
    parameters = torch.tensor([1.0, -2.0], requires_grad=True)
    controls = {"control": torch.tensor([3.0, 1.0]), "own_control": torch.tensor([1.0, 1.5])}
    value = Control().penalty(parameters, controls)
    assert (float(value.detach()), torch.autograd.grad(value, parameters)[0].tolist()) == (3.0, [2.0, -0.5])


def test_cross_entropy_after_a_step_and_the_divergence_before_it() -> None:
    # -log 0.9 after the step; before it KL((3/4, 1/4) || (1/2, 1/2)) = log 2 - H(3/4), the other way log 2/sqrt(3).
    start, before = logits_of([0.5, 0.5]), logits_of([0.75, 0.25])
    data = replace(batch(before, [0], [1], logits_of([0.9, 0.1])), reference_logits={"start": start})
    assert float(AdaptedCrossEntropy()(data)) == pytest.approx(-math.log(0.9))
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert float(AdaptedCrossEntropy(mu=2)(data)) == pytest.approx(-math.log(0.9) + 2 * (math.log(2) - entropy))
    reverse = AdaptedCrossEntropy(mu=2, reverse=True)
    assert float(reverse(data)) == pytest.approx(-math.log(0.9) + 2 * math.log(2 / math.sqrt(3)))
    assert (AdaptedCrossEntropy().teachers, reverse.teachers) == ((), ("start",))


def test_labels_belong_to_the_mixed_image_and_information_to_the_plain_one() -> None:
    plain, mixed = logits_of([0.75, 0.25], [0.25, 0.75]), logits_of([0.9, 0.1], [0.9, 0.1])
    data = batch(plain, [0, 1], [1, 1], mixed)
    expected = 0.5 * (-math.log(0.9) - math.log(0.1))
    assert float(Shot(im=0, lam=1)(data)) == pytest.approx(expected)
    assert float(Shot(lam=0)(data)) == pytest.approx(float(Shot(lam=0)(batch(plain, [0, 0], [0, 0]))))


def test_best_and_worst_information() -> None:
    # Confident and balanced: -log M; all equal: 0.
    sure = batch(60 * torch.eye(3, dtype=torch.float64), [0, 1, 2], [0, 0, 0])
    assert float(Shot()(sure)) == pytest.approx(-math.log(3), abs=5e-5)
    alike = batch(torch.zeros(3, 3, dtype=torch.float64), [0, 1, 2], [0, 0, 0])
    assert float(Shot()(alike)) == pytest.approx(0, abs=1e-9)


def test_smoothed_labels_by_hand() -> None:
    # Three classes, s = 0.3: 0.8 on the label and 0.1 on each other one; the second image has no label.
    data = batch(logits_of([0.5, 0.25, 0.25], [0.1, 0.1, 0.8]), [0, 2], [1, 0])
    assert float(CrossEntropy()(data)) == pytest.approx(-math.log(0.5))
    assert float(CrossEntropy(smoothing=0.3)(data)) == pytest.approx(-0.8 * math.log(0.5) - 0.2 * math.log(0.25))


@every
@pytest.mark.parametrize("n", [1, 4])
def test_a_finite_number_with_gradients_even_where_nothing_is_labelled(objective: Objective, n: int) -> None:
    logits = torch.full((n, 3), -200.0)
    logits[:, 0] = 200.0
    logits.requires_grad_(True)
    loss = objective(batch(logits, [0] * n, [0.0] * n))
    assert loss.shape == ()
    loss.backward()
    assert logits.grad is not None
    assert bool(torch.isfinite(loss))
    assert bool(torch.isfinite(logits.grad).all())


@every
def test_it_names_rates_and_what_stays_of_its_own_networks_alone(objective: Objective) -> None:
    networks = objective.networks(3, 8)
    assert {*objective.learning_rates(), *objective.local_networks} <= set(networks)
    assert not [name for module in networks.values() for name, _ in module.named_buffers()]


def test_self_training_by_hand() -> None:
    # Labels at weights 1 and 0: the cross-entropy counts the second as 0, mean over both.
    data = batch(logits_of([0.75, 0.25], [0.75, 0.25]), [0, 1], [1, 0])
    alone = SelfTraining(distillation=0)
    assert alone.teachers == ()
    assert float(alone(replace(data, reference_logits={}))) == pytest.approx(-math.log(0.75) / 2)
    # Source (4/5, 1/5) with alpha 1/2: odds 2, so (2/3, 1/3); mean over classes of target times -log output.
    source = replace(data, reference_logits={"source": logits_of([0.8, 0.2], [0.8, 0.2])})
    distillation = (-math.log(0.75) * 2 / 3 - math.log(0.25) / 3) / 2
    assert float(SelfTraining(lam=0, distillation=10)(source)) == pytest.approx(10 * distillation)
    # With alpha 1 the target is the source's own (4/5, 1/5).
    sharp = (-math.log(0.75) * 0.8 - math.log(0.25) * 0.2) / 2
    assert float(SelfTraining(lam=0, alpha=1)(source)) == pytest.approx(sharp)
    # Both outputs have confidence 0.8; of equals, the first is in the more confident half of its class.
    assert float(SelfTraining(lam=0, confidence=0.75)(source)) == pytest.approx(distillation)
    assert float(SelfTraining(lam=0, confidence=0.9)(source)) == 0
    assert float(SelfTraining(lam=0, confidence=0.9, share=0.5)(source)) == pytest.approx(distillation / 2)


def test_self_training_teaches_the_student_alone() -> None:
    logits = logits_of([0.75, 0.25]).requires_grad_()
    teacher = logits_of([0.9, 0.1]).requires_grad_()
    SelfTraining()(replace(batch(logits, [0], [1]), reference_logits={"source": teacher.detach()})).backward()
    assert logits.grad is not None
    assert bool((logits.grad != 0).all())


PROTOTYPES = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)


def test_prototype_contrast_by_hand() -> None:
    features = torch.tensor([[2.0, 0.0], [3.0, 0.0], [0.0, 5.0]], dtype=torch.float64)
    data = replace(batch(torch.zeros(3, 2, dtype=torch.float64), [0, 0, 1], [1, 1, 1]), features=features)
    # Round 0: no prototypes were sent.
    assert float(PrototypeContrastive()(data)) == 0
    objective = PrototypeContrastive(tau=2, base_tau=0.5)
    sent = objective.pool({"prototypes": PROTOTYPES})
    assert sent["prototypes"][1].tolist() == [[1, 0], [0, 1]]  # the second client's gap is filled by the first's
    # Images 0 and 1 each see the other at cosine 1 and image 2 at 0; image 2 is alone and costs nothing. Both clients
    # have the same prototypes: a mean over them.
    expected = 2 / 0.5 * math.log(1 + math.exp(-1 / 2))
    assert float(objective(replace(data, pooled_uploads=sent))) == pytest.approx(expected)
    # If image 1 has no label, no label occurs twice, so there is no pair.
    assert float(objective(replace(data, pooled_uploads=sent, weights=torch.tensor([1.0, 0, 1]).double()))) == 0


def test_prototypes_are_means_of_unit_features_of_labelled_images() -> None:
    features = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]], dtype=torch.float64)
    predictions = Predictions(torch.zeros(3, 3, dtype=torch.float64), features)
    mix = torch.zeros(3)
    targets = Targets(torch.tensor([0, 0, 2]), torch.tensor([1.0, 1, 0]), torch.arange(3), mix, mix == 0)
    prototypes = PrototypeContrastive().collect(predictions, targets)["prototypes"]
    assert prototypes.tolist() == [[0.5, 0.5], [0, 0], [0, 0]]


def test_tau_does_not_shrink_the_gradient() -> None:
    draw = torch.Generator().manual_seed(0)
    norms = []
    for tau in (7.0, 70.0):
        features = torch.randn(12, 4, generator=draw.manual_seed(1), dtype=torch.float64).requires_grad_()
        data = batch(torch.zeros(12, 3, dtype=torch.float64), [0, 1, 2] * 4, [1] * 12)
        sent = {"prototypes": torch.randn(2, 3, 4, generator=draw.manual_seed(2), dtype=torch.float64)}
        PrototypeContrastive(tau=tau)(replace(data, features=features, pooled_uploads=sent)).backward()
        assert features.grad is not None
        norms.append(float(features.grad.norm()))
    assert norms[0] == pytest.approx(norms[1], rel=0.2)


def test_alignment_by_hand() -> None:
    weak, strong = logits_of([0.9, 0.1], [0.7, 0.3]), logits_of([0.6, 0.4], [0.6, 0.4])
    server = logits_of([0.3, 0.7], [0.05, 0.95])
    data = replace(
        batch(weak, [0, 0], [0, 0]),
        view_logits={"weak": weak, "strong": strong},
        reference_logits={"start": server},
    )
    # Own label 0 counts for the first image only, the server's label 1 for the second only; means over both.
    assert float(ServerClientAlignment(client=3, server=0)(data)) == pytest.approx(-3 * math.log(0.6) / 2)
    assert float(ServerClientAlignment(client=0, server=0.3)(data)) == pytest.approx(-0.3 * math.log(0.4) / 2)
    # Averaged over the one image whose label counts: twice as much.
    counted = ServerClientAlignment(client=3, server=0.3, over="counted")
    assert float(counted(data)) == pytest.approx(-3 * math.log(0.6) - 0.3 * math.log(0.4))
    nobody = replace(data, observed={"threshold": torch.tensor(0.99)})
    assert float(ServerClientAlignment()(nobody)) == float(counted(nobody)) == 0


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_alignment_reads_no_weights_of_pseudo_labels(weight: float) -> None:
    # So half-trusted clients train on strong views under it, and not under `strong_views` (decisions, T8).
    weak, strong = logits_of([0.9, 0.1]), logits_of([0.6, 0.4])
    data = replace(batch(weak, [0], [weight]), view_logits={"weak": weak, "strong": strong})
    assert float(ServerClientAlignment(client=3, server=0)(data)) == pytest.approx(-3 * math.log(0.6))


def test_a_label_at_the_threshold_counts() -> None:
    weak = logits_of([0.75, 0.25])
    data = replace(
        batch(weak, [0], [0]),
        view_logits={"weak": weak, "strong": logits_of([0.6, 0.4])},
        observed={"threshold": weak.softmax(-1).max()},
    )
    assert float(ServerClientAlignment(client=3, server=0)(data)) == pytest.approx(-3 * math.log(0.6))


def test_alignment_moves_the_strong_view_only() -> None:
    weak, strong = logits_of([0.9, 0.1]).requires_grad_(), logits_of([0.6, 0.4]).requires_grad_()
    data = replace(batch(weak, [0], [0]), view_logits={"weak": weak, "strong": strong})
    ServerClientAlignment()(data).backward()
    assert weak.grad is None
    assert strong.grad is not None


def test_the_threshold_moves_with_the_skewness_of_entropies() -> None:
    def threshold(*probabilities: list[float], **fields: float) -> float:
        logits = logits_of(*[[p + 1e-300 for p in row] for row in probabilities])
        return float(ServerClientAlignment(**fields).observe(Predictions(logits, logits))["threshold"])

    sure, unsure = [1.0, 0.0], [0.5, 0.5]
    assert threshold(sure, sure, sure) == pytest.approx(0.8)  # no spread
    assert threshold(sure, sure, unsure) == pytest.approx(0.95)  # 3·(1/3)/(1/√3) = 1.7, clipped
    assert threshold(sure, unsure, unsure) == pytest.approx(0.7)  # the other way round
    assert threshold(sure, sure, unsure, threshold=0.5, highest=0.3) == pytest.approx(0.8)
    assert threshold(sure, unsure, unsure, threshold=0.5, lowest=-0.2) == pytest.approx(0.3)
    # Entropies 0, h and log 2 in a row with mean 0.99 of the median: 3·(mean - median)/std unclipped.
    middle = 0.11
    h = -(middle * math.log(middle) + (1 - middle) * math.log(1 - middle))
    values = [0.0, h, math.log(2)]
    mean = sum(values) / 3
    std = math.sqrt(sum((v - mean) ** 2 for v in values) / 2)
    expected = 0.8 + 3 * (mean - h) / std
    assert 0.7 < expected < 0.95
    assert threshold(sure, [1 - middle, middle], unsure) == pytest.approx(expected)
