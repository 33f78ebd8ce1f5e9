"""FADA: adversarial alignment of each source, disentangled features, and gradients weighted by the target's clusters.

A re-implementation without official code, unverified: it has reproduced no number of the publication.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from fedwca.centrals import register
from fedwca.core.central import Central, DomainBatch
from fedwca.functional import domain_loss, gradient_reversal, reversal_scale

LLOYD_STEPS = 10
"""Iterations of k-means on one batch of the target."""
LARGEST_SCORE = 5.0
"""Bound of a pair's score, in nats; our choice, as Song and Ermon (SMILE), ICLR 2020, bound the estimate."""


@register("fada")
class Fada(Central):
    """Per source: cross-entropy, a domain classifier against the target, and a disentangler of the features.

    RE-IMPLEMENTATION WITHOUT OFFICIAL CODE, UNVERIFIED. Sources and target exchange parameters after each mini-batch,
    so all share one network; each source has its own gradient, disentangler, and nets that judge it. Adversaries are
    faded in. The network moves by the sum of the sources' gradients, weighted by the softmax of how much tighter each
    makes the target's k-means clusters.

    Source: Peng et al. (FADA), ICLR 2020, eqs. 2-7 and Algorithm 1; SFDA, sec. 1 (exchange after each mini-batch).
    """

    label = "FADA (unverified)"
    paper = "Peng et al. 2020; re-implementation without official code, unverified"
    loss_per_source = True

    align: NonNegativeFloat = 1.0
    """Factor of the reversed gradient of the domain classifiers."""
    disentangle: NonNegativeFloat = 1.0
    """Weight, once faded in, of the loss that keeps the classes, and the common half, out of a source's own half."""
    reconstruct: NonNegativeFloat = 1.0
    """Weight of the squared error of features that are reconstructed from their halves."""
    width: PositiveInt = 256
    """Hidden units of each of the nets."""

    def extra_modules(self, features: int, classes: int, sources: int) -> nn.Module:
        """The nets of each source."""
        return nn.ModuleList(_SourceNets(features, classes, self.width) for _ in range(sources))

    def __call__(self, step: DomainBatch) -> Tensor:
        """The losses ``[K]`` of one step."""
        fade = reversal_scale(step.progress)
        source_nets = cast(list[_SourceNets], list(step.extra_modules.children()))
        return torch.stack(
            [
                nn.functional.cross_entropy(logits, labels)
                + self._align(nets, features, step.target_features, fade)
                + self._disentangle(nets, features, labels, fade)
                for nets, features, logits, labels in zip(
                    source_nets, step.features, step.logits, step.labels, strict=True
                )
            ]
        )

    def _align(self, nets: _SourceNets, source: Tensor, target: Tensor, fade: float) -> Tensor:
        """Loss of the domain classifier, with its gradient reversed for the network (eqs. 4 and 5)."""
        reversed_ = gradient_reversal(torch.cat([source, target]), self.align * fade)
        return domain_loss(nets.domain(reversed_), len(source))

    def _disentangle(self, nets: _SourceNets, features: Tensor, labels: Tensor, fade: float) -> Tensor:
        """Losses of the two halves that features are split into (eqs. 6 and 7).

        Judges are trained on detached halves, and halves by frozen judges, towards goals that can be reached: equal
        probabilities of all classes, and no mutual information. Reversed gradients have no such end: the estimate fell
        to -1000 within 13 epochs on digits, then nothing was finite.
        """
        halves: Tensor = nets.disentangler(features)
        common, own = halves.chunk(2, -1)
        class_loss = nn.functional.cross_entropy(nets.classifier(common), labels)
        reconstruction_loss = (nets.reconstructor(halves) - features.detach()).square().mean()
        identifier_loss = nn.functional.cross_entropy(nets.identifier(own.detach()), labels)
        estimate = mutual_information_bound(nets.statistic, common.detach(), own.detach())
        confusion_loss = -_frozen(nets.identifier)(own).log_softmax(-1).mean()
        shared_information = mutual_information_bound(_frozen(nets.statistic), common, own).clamp_min(0)
        judge_loss, separation_loss = identifier_loss - estimate, confusion_loss + shared_information
        loss: Tensor = (
            class_loss + self.reconstruct * reconstruction_loss + judge_loss + self.disentangle * fade * separation_loss
        )
        return loss

    def gradient_weights(self, before: Tensor, after: Tensor, classes: int) -> Tensor:
        """The softmax of how much each source's step reduces the gap statistic of the target's clusters (eq. 2)."""
        gaps = torch.stack([cluster_gap(features, classes) for features in (before, *after)])
        return (gaps[0] - gaps[1:]).softmax(0)


class _SourceNets(nn.Module):
    """The nets that a source trains beside the shared network."""

    def __init__(self, features: int, classes: int, width: int) -> None:
        super().__init__()

        def perceptron(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))

        # Normalised, because halves without bound could make the mutual information small.
        self.disentangler = nn.Sequential(perceptron(features, 2 * features), nn.BatchNorm1d(2 * features))
        self.classifier = nn.Linear(features, classes)
        self.identifier = nn.Linear(features, classes)
        self.reconstructor = perceptron(2 * features, features)
        # Bounded, because the scores of true and shuffled pairs of one batch could be driven apart without end.
        self.statistic = nn.Sequential(perceptron(2 * features, 1), nn.Hardtanh(-LARGEST_SCORE, LARGEST_SCORE))
        self.domain = perceptron(features, 2)


def _frozen(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """A net with constant parameters, as a function of its input."""
    values = {name: value.detach() for name, value in net.named_parameters()}
    return lambda x: cast(Tensor, torch.func.functional_call(net, values, (x,)))


def mutual_information_bound(statistic: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Compute the Donsker-Varadhan bound of the mutual information of two features; shuffled pairs are the product.

    Source: FADA, eq. 7; Belghazi et al. (MINE), ICML 2018.

    Args:
        statistic: gives ``[N, 1]`` for pairs ``[N, a + b]``.
        x: ``[N, a]``.
        y: ``[N, b]``, of the same images.

    Returns:
        ``[]`` in nats.

    >>> mutual_information_bound(lambda pairs: pairs[:, :1], torch.ones(4, 1), torch.zeros(4, 1))
    tensor(0.)
    """
    joint = statistic(torch.cat([x, y], -1)).mean()
    shuffled = statistic(torch.cat([x, y.roll(1, 0)], -1))[:, 0]
    return joint - shuffled.logsumexp(0) + math.log(len(shuffled))


def cluster_gap(features: Tensor, clusters: int) -> Tensor:
    """Compute the gap statistic of k-means: the sum over clusters of pairwise distances over twice the cluster's size.

    Source: FADA (Peng et al., ICLR 2020), before eq. 2; Tibshirani et al. 2001.

    Args:
        features: ``[N, q]``, at least one.
        clusters: largest number of clusters; k-means starts from rows that are far from one another, without draws.

    Returns:
        ``[]`` in units of the features, at least 0; lower is tighter; 0 with a cluster for each row.

    >>> cluster_gap(torch.tensor([[0.0], [2.0], [9.0], [9.0]]), clusters=2)  # 2 · 2 / (2 · 2)
    tensor(1.)
    """
    if clusters >= len(features):
        return features.new_zeros(())
    # By a matrix product, the distance of a row to itself would not be exactly 0.
    distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
    nearest, chosen = distances[0], [torch.zeros(1, dtype=torch.int64, device=features.device)]
    for _ in range(clusters - 1):
        chosen.append(nearest.argmax()[None])
        nearest = torch.minimum(nearest, distances.index_select(0, chosen[-1])[0])
    centres = features.index_select(0, torch.cat(chosen))
    for _ in range(LLOYD_STEPS):
        members = nn.functional.one_hot(torch.cdist(features, centres).argmin(1), len(centres)).to(features.dtype)
        sizes = members.sum(0)[:, None]
        centres = torch.where(sizes > 0, members.mT @ features / sizes.clamp_min(1), centres)
    within = (members * (distances @ members)).sum(0)
    return (within / (2 * members.sum(0)).clamp_min(1)).sum()
