"""What holds for every function of samples: padding changes nothing, and vmap equals a loop."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from fedwca import functional as F

K, N, PAD, M, Q = 4, 13, 6, 3, 5
CLASSIFIER = torch.randn(M, Q, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

Data = dict[str, Tensor]


def clients(dtype: torch.dtype, seed: int = 0) -> Data:
    """K clients of N samples; client 2 predicts the first class only, and client 3 has no label of class 2."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(K, N, M, generator=draw, dtype=torch.float64)
    logits[2, :, 0] += 50
    labels = torch.randint(0, M, (K, N), generator=draw)
    labels[3] = torch.arange(N) % 2  # class 2 is empty
    return {
        "features": torch.randn(K, N, Q, generator=draw, dtype=torch.float64).to(dtype),
        "logits": logits.to(dtype),
        "probabilities": logits.softmax(-1).to(dtype),
        "labels": labels,
        "matched": torch.rand(K, N, generator=draw) < torch.tensor([0.5, 0.0, 1.0, 0.3])[:, None],
        "uniform": torch.rand(K, N, generator=draw),
        "weights": torch.rand(K, N, generator=draw, dtype=torch.float64).round(decimals=1).to(dtype),
        "std": 0.1 + torch.rand(K, N, Q, generator=draw, dtype=torch.float64).to(dtype),
        "mask": torch.ones(K, N, dtype=torch.bool),
    }


def padded(data: Data, garbage: float) -> Data:
    """The data with ``PAD`` more rows, half in front and half behind: values and labels are garbage, the mask is 0."""
    order = torch.arange(N + PAD).roll(3)
    longer = {}
    for name, rows in data.items():
        if name == "mask":
            junk = torch.zeros(K, PAD, dtype=torch.bool)
        elif rows.dtype == torch.bool:
            junk = torch.ones(K, PAD, dtype=torch.bool)
        elif name == "labels":
            junk = torch.tensor([-1, 0, 1, 2, M + 4, -7]).expand(K, PAD)
        else:
            junk = torch.full((K, PAD, *rows.shape[2:]), garbage, dtype=rows.dtype)
            junk[:, ::2] *= -0.5
        longer[name] = torch.cat([rows, junk], 1)[:, order]
    return longer


def place() -> Tensor:
    """Positions of the N samples in the rows of `padded`."""
    return (torch.arange(N) + 3) % (N + PAD)


def labelled(d: Data) -> Tensor:
    labels, similarities, means = F.prototype_labels(d["features"], d["probabilities"], d["mask"])
    return torch.cat([labels.to(means.dtype), similarities, means.flatten()])


def shot(d: Data) -> Tensor:
    return F.prototype_labels(d["features"], d["probabilities"], d["mask"], normalize_first=True, append_one=True)[2]


def selected(d: Data) -> Tensor:
    first = F.prototype_labels(d["features"], d["probabilities"], d["mask"])
    second = F.prototype_labels(d["features"].flip(-1), d["probabilities"], d["mask"], refine=0)
    p, q = F.prototype_similarity(first[2]), F.prototype_similarity(second[2])
    return torch.stack([F.select_labels(first[:2], second[:2], p, q, r) for r in ("margin", "ratio")])


SCALARS: dict[str, Callable[[Data], Tensor]] = {
    "alignment": lambda d: F.alignment(d["features"], CLASSIFIER.to(d["features"].dtype), d["mask"]),
    "density": lambda d: F.soft_neighborhood_density(d["probabilities"], mask=d["mask"], chunk=5),
    "class_entropy": lambda d: F.class_entropy(d["probabilities"], d["mask"]),
    "prototypes": lambda d: F.prototypes(d["features"], d["probabilities"], d["mask"]),
    "shot": shot,
    "information_maximization": lambda d: F.information_maximization(d["logits"], d["mask"]),
    "distillation": lambda d: F.distillation(d["logits"], d["logits"].flip(-1), 0.5, d["weights"], d["mask"]),
    "prototype_contrast": lambda d: F.prototype_contrast(
        d["features"], d["labels"], CLASSIFIER.to(d["features"].dtype), 0.5, mask=d["mask"]
    ),
    "threshold": lambda d: F.adaptive_threshold(d["probabilities"], mask=d["mask"]),
    "cross_entropy": lambda d: F.weighted_cross_entropy(d["logits"], d["labels"], d["weights"], d["mask"]),
    "smoothed": lambda d: F.smoothed_cross_entropy(d["logits"], d["labels"], 0.2, d["weights"], d["mask"]),
    "smoothed, unweighted": lambda d: F.smoothed_cross_entropy(d["logits"], d["labels"], mask=d["mask"]),
    "centroids": lambda d: F.class_centroids(d["features"], d["probabilities"], d["mask"]),
    "entropy": lambda d: F.prediction_entropy(d["logits"], d["mask"]),
    "information": lambda d: F.mutual_information(d["logits"], d["mask"]),
    "diversity": lambda d: F.diversity_loss(d["logits"], d["mask"]),
    "divergence": lambda d: F.prediction_divergence(d["logits"], d["logits"].flip(-1), d["mask"]),
    "pairs": lambda d: F.paired_distillation(
        d["logits"], d["logits"] / 2, d["logits"].flip(-1), d["logits"].roll(1, -1), 0.8, d["mask"], reverse=True
    ),
    "learned": lambda d: F.learned_loss(d["logits"][:, 0], d["mask"], "rms", batch=4),
    "norm": lambda d: F.representation_norm(d["features"], d["mask"]),
    "gaussian": lambda d: F.gaussian_divergence(
        d["features"], d["std"], d["features"].flip(-1), d["std"].flip(-1), d["mask"]
    ),
}
PER_SAMPLE: dict[str, Callable[[Data], Tensor]] = {
    "selected": selected,
    "confident": lambda d: F.confident_mask(d["probabilities"], 0.8, 0.5, d["mask"]),
    "partners": lambda d: F.mixup_partners(d["labels"], d["matched"], d["uniform"], d["mask"], classes=M),
}
EVERY = {**SCALARS, **PER_SAMPLE, "labelled": labelled}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EVERY)
def test_vmap_equals_a_loop(name: str, dtype: torch.dtype) -> None:
    for data in (clients(dtype), padded(clients(dtype), 100.0)):
        together = vmap(EVERY[name])(data)
        for k in range(K):
            torch.testing.assert_close(together[k], EVERY[name]({n: rows[k] for n, rows in data.items()}))
        assert together.double().isfinite().all()


@pytest.mark.parametrize("garbage", [0.0, 1e4, 1e37, float("inf"), float("nan")])
@pytest.mark.parametrize("name", SCALARS)
def test_padding_changes_nothing(name: str, garbage: float) -> None:
    data = clients(torch.float32)
    torch.testing.assert_close(vmap(SCALARS[name])(padded(data, garbage)), vmap(SCALARS[name])(data))


@pytest.mark.parametrize("garbage", [0.0, 1e4, float("nan")])
def test_padding_changes_no_label_and_no_similarity(garbage: float) -> None:
    data = clients(torch.float32)
    longer = padded(data, garbage)
    labels, similarities, means = vmap(F.prototype_labels)(data["features"], data["probabilities"], data["mask"])
    padded_result = vmap(F.prototype_labels)(longer["features"], longer["probabilities"], longer["mask"])
    torch.testing.assert_close(padded_result[0][:, place()], labels)
    torch.testing.assert_close(padded_result[1][:, place()], similarities)
    torch.testing.assert_close(padded_result[2], means)
    assert (padded_result[1][~longer["mask"]] == 0).all()
    assert ((padded_result[0] >= 0) & (padded_result[0] < M)).all()
    torch.testing.assert_close(vmap(selected)(longer)[..., place()], vmap(selected)(data))
    whole = data["mask"].all(1)
    for client in whole.nonzero()[:, 0]:  # a mask that hides nothing is as good as none
        unmasked = F.prototype_labels(data["features"][client], data["probabilities"][client])
        assert torch.equal(unmasked[0], labels[client])
        assert not torch.equal(unmasked[0], data["probabilities"][client].argmax(1))
    assert whole.any()


def test_padding_changes_no_partner() -> None:
    data = clients(torch.float32)
    longer = padded(data, 0.5)
    before, after = vmap(PER_SAMPLE["partners"])(data), vmap(PER_SAMPLE["partners"])(longer)
    # The padded rows were rolled, so a number may pick another partner; which samples have a partner must not change.
    assert torch.equal(after[:, place()] >= 0, before >= 0)
    assert (after[~longer["mask"]] == -1).all()
    picked = after.clamp_min(0)
    assert (longer["mask"] & longer["matched"]).gather(1, picked)[after >= 0].all()
    doubled = {n: torch.cat([r, r], 1) for n, r in data.items()}
    doubled["mask"] = torch.cat([data["mask"], ~data["mask"]], 1)
    assert torch.equal(vmap(PER_SAMPLE["partners"])(doubled)[:, :N], before)


@pytest.mark.parametrize("garbage", [0.0, 1e4, float("nan")])
def test_padding_is_never_confident_and_takes_no_place(garbage: float) -> None:
    data = clients(torch.float32)
    longer = padded(data, garbage)
    confident = vmap(PER_SAMPLE["confident"])(longer)
    assert torch.equal(confident[:, place()], vmap(PER_SAMPLE["confident"])(data))
    assert not confident[~longer["mask"]].any()


LOSSES = "information_maximization cross_entropy distillation smoothed entropy diversity divergence pairs learned"


@pytest.mark.parametrize("name", LOSSES.split())
def test_padding_gets_no_gradient(name: str) -> None:
    longer = padded(clients(torch.float64), 1e30)
    longer["logits"].requires_grad_()
    vmap(SCALARS[name])(longer).sum().backward()
    gradient = longer["logits"].grad
    assert gradient is not None
    assert gradient.isfinite().all()
    assert (gradient[~longer["mask"]] == 0).all()


@pytest.mark.parametrize("name", EVERY)
def test_all_padding_is_finite(name: str) -> None:
    data = clients(torch.float32)
    data["mask"] = torch.zeros_like(data["mask"])
    assert vmap(EVERY[name])(data).isfinite().all()


def test_a_mask_of_numbers_is_a_mask() -> None:
    longer = padded(clients(torch.float32), 3.0)
    for name, function in EVERY.items():
        numbers = {**longer, "mask": longer["mask"].float()}
        torch.testing.assert_close(vmap(function)(numbers), vmap(function)(longer), msg=name)


def test_weights_run_under_vmap() -> None:
    """The server's weights run under vmap too, for several trials at once."""
    draw = torch.Generator().manual_seed(0)
    scores, pair_scores = torch.randn(5, 6, 3, generator=draw), torch.randn(5, 6, 2, generator=draw)
    labels = torch.randint(0, 3, (5, 6), generator=draw)
    present = torch.rand(5, 6, generator=draw) < 0.7

    def blended(s: Tensor, t: Tensor, c: Tensor, p: Tensor) -> Tensor:
        alpha, beta = F.tempered_softmax(s, 0.1), F.tempered_softmax(t, 0.05)
        soft = F.soft_cluster_weights(alpha, beta, c, "column", p)
        membership = (c[:, None] == torch.arange(3)).double()
        return torch.cat([F.blend_weights(membership, alpha, beta, soft), F.cluster_means(c, 3, None, p).mT], 1)

    together = vmap(blended)(scores, pair_scores, labels, present)
    for t in range(5):
        torch.testing.assert_close(together[t], blended(scores[t], pair_scores[t], labels[t], present[t]))
