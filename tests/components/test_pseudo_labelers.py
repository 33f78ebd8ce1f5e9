"""Pseudo-labelers on predictions that are made up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Predictions, Targets
from fedwca.functional import mutual_information, prototype_labels, prototype_similarity, select_labels
from fedwca.pseudo_labelers import pseudo_labelers
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.pseudo_labelers.prototype import Prototype
from fedwca.pseudo_labelers.trusted import Trusted
from fedwca.pseudo_labelers.two_model import TwoModel

from .fakes import predictions

every = pytest.mark.parametrize("labeler", [pseudo_labelers.build(n) for n in pseudo_labelers.names()], ids=str)


def drawn(n: int, seed: int = 0) -> Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ask(labeler: PseudoLabeler, n: int, classes: int = 3) -> Targets:
    models = {name: predictions(seed, n, classes) for seed, name in enumerate(labeler.models)}
    return labeler(models, drawn(n))


def facing(*classes: int, sure: float = 4.0, of: int = 3) -> Predictions:
    """A model whose features point at the classes it predicts, plus a tenth of the next class to break ties."""
    hot = torch.nn.functional.one_hot(torch.tensor(classes), of).double()
    return Predictions(sure * hot, hot + 0.1 * torch.roll(hot, 1, 1))


@every
@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize("classes", [1, 2, 5])
def test_targets_are_in_range(labeler: PseudoLabeler, n: int, classes: int) -> None:
    targets = ask(labeler, n, classes)
    for tensor in (targets.labels, targets.weights, targets.partners, targets.partner_weights, targets.models_agree):
        assert tensor.shape == (n,)
    assert targets.labels.dtype == torch.int64
    assert 0 <= int(targets.labels.min()) <= int(targets.labels.max()) < classes
    assert 0 <= int(targets.partners.min()) <= int(targets.partners.max()) < n
    for weights in (targets.weights, targets.partner_weights):
        assert bool(((weights >= 0) & (weights <= 1)).all())


@every
def test_the_same_draws_give_the_same_targets(labeler: PseudoLabeler) -> None:
    first, second = ask(labeler, 9), ask(labeler, 9)
    assert all(
        torch.equal(getattr(first, field), getattr(second, field))
        for field in ("labels", "weights", "partners", "partner_weights")
    )


@every
def test_one_class_only(labeler: PseudoLabeler) -> None:
    targets = labeler(dict.fromkeys(labeler.models, facing(1, 1, 1, 1)), drawn(4))
    # With equal features all prototypes are parallel: a tie, which is decided alike for all images.
    assert len(targets.labels.unique()) == 1
    assert targets.weights.tolist() == [1, 1, 1, 1]
    assert targets.partner_weights.sum() == 0


def test_prototype_labels_are_those_of_equation_4() -> None:
    model = predictions(3, 20)
    targets = Prototype()({"start": model}, drawn(20))
    expected = prototype_labels(model.features, model.probabilities)[0]
    assert torch.equal(targets.labels, expected)
    assert targets.weights.tolist() == [1] * 20
    assert targets.partner_weights.sum() == 0
    assert bool(targets.models_agree.all())


def test_options_of_prototypes_reach_the_equation() -> None:
    model = predictions(4, 40)
    options: list[dict[str, Any]] = [{}, {"refine": 3}, {"append_one": True}, {"normalize_first": True}]
    labels_by_options = [Prototype(**fields)({"start": model}, drawn(40)).labels for fields in options]
    for fields, labels in zip(options, labels_by_options, strict=True):
        assert torch.equal(labels, prototype_labels(model.features, model.probabilities, **fields)[0])
    by_default, *changed = labels_by_options
    assert not any(torch.equal(by_default, labels) for labels in changed)


@pytest.mark.parametrize("selection", ["margin", "ratio"])
@pytest.mark.parametrize("fallback", ["drop", "keep", "any"])
def test_two_equal_models_are_one(selection: str, fallback: str) -> None:
    model = predictions(5, 20)
    labeler = TwoModel(selection=selection, fallback=fallback)
    targets = labeler({"start": model, "cluster": model}, drawn(20))
    assert torch.equal(targets.labels, Prototype()({"start": model}, drawn(20)).labels)
    assert targets.partner_weights.sum() == 0
    assert targets.weights.tolist() == [1] * 20
    assert bool(targets.models_agree.all())


START, CLUSTER = (0, 0, 1, 1, 2, 2), (0, 0, 1, 1, 2, 1)


def test_a_mismatch_is_mixed_with_a_match_of_its_class() -> None:
    models = {"start": facing(*START), "cluster": facing(*CLUSTER)}
    targets = TwoModel(mu=0.55)(models, drawn(6))
    assert targets.models_agree.tolist() == [True] * 5 + [False]
    assert targets.partner_weights.tolist() == [0] * 5 + [0.55]
    partner = int(targets.partners[5])
    assert bool(targets.models_agree[partner])
    assert targets.labels[partner] == targets.labels[5]
    assert targets.weights.tolist() == [1] * 6


def test_mu_0_leaves_images_alone() -> None:
    models = {"start": facing(*START), "cluster": facing(*CLUSTER)}
    targets = TwoModel(mu=0)(models, drawn(6))
    assert targets.partner_weights.sum() == 0
    assert targets.partners.tolist() == list(range(6))
    assert targets.weights.tolist() == [1] * 6
    off = TwoModel(mixup=False)(models, drawn(6))
    assert torch.equal(off.labels, targets.labels)
    assert off.partner_weights.sum() == 0
    assert off.weights.tolist() == [1] * 6, "an image whose two labels differ is trained on like the others"
    assert off.models_agree.tolist() == [True] * 5 + [False]


@pytest.mark.parametrize(
    ("fallback", "weight", "mix", "itself"),
    [("drop", 0.0, 0.0, True), ("keep", 1.0, 0.0, True), ("any", 1.0, 0.55, False)],
)
def test_fallbacks_where_no_match_has_the_label(fallback: str, weight: float, mix: float, itself: bool) -> None:
    # The two models give the last image the labels 2 and 1, which no other image has.
    models = {"start": facing(0, 0, 0, 2), "cluster": facing(0, 0, 0, 1)}
    targets = TwoModel(fallback=fallback)(models, drawn(4))
    assert targets.models_agree.tolist() == [True, True, True, False]
    assert float(targets.weights[3]) == weight
    assert float(targets.partner_weights[3]) == mix
    assert (int(targets.partners[3]) == 3) == itself
    assert targets.weights[:3].tolist() == [1, 1, 1]


@pytest.mark.parametrize(("fallback", "weight"), [("drop", 0.0), ("keep", 1.0), ("any", 0.0)])
def test_all_mismatched(fallback: str, weight: float) -> None:
    models = {"start": facing(0, 1, 2), "cluster": facing(1, 2, 0)}
    targets = TwoModel(fallback=fallback)(models, drawn(3))
    assert not bool(targets.models_agree.any())
    assert targets.partner_weights.sum() == 0
    assert targets.weights.tolist() == [weight] * 3


def test_the_rules_differ_where_prototypes_point_apart() -> None:
    # After BatchNorm, prototypes may have negative cosines: dividing by them reverses the preference (A13).
    has_negative_divisors = set()
    for seed in range(5):
        models = {"start": predictions(seed, 30), "cluster": predictions(seed + 50, 30)}
        margin = TwoModel(selection="margin", mixup=False)(models, drawn(30))
        ratio = TwoModel(selection="ratio", mixup=False)(models, drawn(30))
        assert bool((margin.notes["divisors"] > 0).all())
        has_negative_divisors.add(bool((ratio.notes["divisors"] <= 0).any()))
        assert torch.equal(margin.models_agree, ratio.models_agree)
    assert True in has_negative_divisors


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", ["margin", "ratio"])
def test_the_nearer_models_label_wins(seed: int, rule: Any) -> None:
    """Algorithm 2, lines 5 to 7."""
    models = {"start": predictions(seed, 30), "cluster": predictions(seed + 50, 30)}
    selected = TwoModel(selection=rule, mixup=False)(models, drawn(30)).labels
    first, second = (prototype_labels(model.features, model.probabilities) for model in models.values())
    both = [(labels, cosines, prototype_similarity(prototypes)) for labels, cosines, prototypes in (first, second)]
    right = select_labels(both[0][:2], both[1][:2], both[0][2], both[1][2], rule)
    assert torch.equal(selected, right)
    assert not torch.equal(selected, first[0])
    assert not torch.equal(selected, second[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [16, 512])
def test_classes_of_one_image_in_both_models_are_a_tie(size: int, dtype: torch.dtype) -> None:
    for seed in range(20):
        draws = torch.Generator().manual_seed(seed)
        sure = 1e3 * torch.eye(10, dtype=dtype)
        models = {
            name: Predictions(logits, torch.randn(5, size, generator=draws, dtype=dtype))
            for name, logits in (("start", sure[:5]), ("cluster", sure[5:]))
        }
        # Each image is its own prototype in both models, so both margins are exactly 1 but for rounding.
        assert TwoModel(mixup=False)(models, drawn(5)).labels.tolist() == [0, 1, 2, 3, 4]


def sure(*probabilities: float, label: int = 0) -> list[list[float]]:
    """Rows of two classes whose largest probability, at the label, is given."""
    return [[p, 1 - p] if label == 0 else [1 - p, p] for p in probabilities]


def test_argmax_keeps_everything_without_a_gate() -> None:
    model = predictions(6, 25)
    targets = Argmax()({"start": model}, drawn(25))
    assert torch.equal(targets.labels, model.logits.argmax(1))
    assert targets.weights.tolist() == [1] * 25
    assert targets.partner_weights.sum() == 0


def test_ladds_gate_by_hand() -> None:
    # Class 0: 0.95 by confidence; of four, floor(0.66 · 4) = 2 are the surest. Class 1: floor(0.66 · 1) = 0.
    rows = torch.tensor([*sure(0.7, 0.95, 0.6, 0.8), *sure(0.85, label=1)], dtype=torch.float64)
    model = Predictions(rows.log(), torch.zeros(5, 2, dtype=torch.float64))
    targets = Argmax(confidence=0.9, share=0.66, model="teacher")({"teacher": model}, drawn(5))
    assert targets.labels.tolist() == [0, 0, 0, 0, 1]
    assert targets.weights.tolist() == [0, 1, 0, 1, 0]
    assert Argmax(confidence=0.9)({"start": model}, drawn(5)).weights.tolist() == [0, 1, 0, 0, 0]
    assert Argmax(confidence=1, share=0.5)({"start": model}, drawn(5)).weights.tolist() == [0, 1, 0, 1, 0]
    assert Argmax(confidence=1, share=1)({"start": model}, drawn(5)).weights.tolist() == [1] * 5


def test_argmax_asks_one_model_only() -> None:
    assert Argmax().models == ("start",)
    assert Argmax(model="teacher").models == ("teacher",)


def test_a_class_the_model_never_predicts_is_left_out_where_asked() -> None:
    # Outputs never favour class 1, but the second image's feature is nearest to its soft prototype.
    rows = torch.tensor([[0.6, 0.4, 0.0], [0.55, 0.45, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    features = torch.tensor([[1.0, 0.0], [0.8, 0.5], [-1.0, 0.3]], dtype=torch.float64)
    model = Predictions((rows + 1e-12).log(), features)
    assert Prototype(refine=0)({"start": model}, drawn(3)).labels.tolist() == [0, 1, 2]
    assert Prototype(refine=0, min_count=1)({"start": model}, drawn(3)).labels.tolist() == [0, 0, 2]
    assert Prototype(refine=0, min_count=2)({"start": model}, drawn(3)).labels.tolist()[:2] == [0, 0]
    # No class has nine images: then the rule is ignored, since it would leave no class.
    assert Prototype(refine=0, min_count=9)({"start": model}, drawn(3)).labels.tolist() == [0, 1, 2]
    both = {"start": model, "cluster": model}
    assert TwoModel(refine=0, min_count=1)(both, drawn(3)).labels.tolist() == [0, 0, 2]


def test_whom_trusted_trusts() -> None:
    sure, one_class, unsure = facing(0, 1, 2, sure=9.0), facing(0, 0, 0, sure=9.0), facing(0, 1, 2, sure=0.5)
    half = facing(0, 1, 2, sure=2.0)
    information = mutual_information(half.logits.double())
    assert 0.1 < float(information) < 0.5

    def trust(**options: Any) -> list[float]:
        labeler = Trusted(**options)
        return [float(labeler.trust(model)) for model in (sure, half, unsure, one_class)]

    assert trust() == [1, 0, 0, 0]
    assert trust(least=2) == [0, 0, 0, 0]
    assert trust(measure="confidence") == [1, 1, 0, 1]
    assert trust(untrusted="plain") == [1, 0.5, 0.5, 0.5]
    assert trust(untrusted=float(information)) == [1, 0.5, 0, 0]
    assert trust(untrusted=float(information) + 1e-9) == [1, 0, 0, 0]
    assert trust(least=0.05, untrusted=0.04) == [1, 1, float(mutual_information(unsure.logits.double()) >= 0.05), 0]
    # Two equal outputs of two classes: no information, and a largest output of exactly a half.
    even = Predictions(torch.zeros(2, 2), torch.zeros(2, 2))
    assert Trusted(least=0).trust(even) == Trusted(measure="confidence").trust(even) == 1
    with pytest.raises(ValidationError, match=r"is not below least=0\.05, so nobody trains"):
        Trusted(least=0.05, untrusted=0.05)
    assert Trusted().selects_clients
    assert not Prototype().selects_clients


def test_trusted_labels_as_prototype_does_or_by_the_predicted_class() -> None:
    models = {"start": predictions(3, 20)}
    assert torch.equal(Trusted()(models, drawn(20)).labels, Prototype()(models, drawn(20)).labels)
    assert torch.equal(Trusted(labels="predicted")(models, drawn(20)).labels, models["start"].logits.argmax(-1))
