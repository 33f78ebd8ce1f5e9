"""FADA: adversarial alignment source by source, disentangled features, and gradients weighed by the target's clusters.

A re-implementation without official code, unverified: no number of the publication has been met with it.
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
"""Of k-means on one batch of the target."""
LARGEST_SCORE = 5.0
"""Of a pair of halves, in nats; ours, as Song and Ermon (SMILE), ICLR 2020, bound the estimate."""


@register("fada")
class Fada(Central):
    """Per source: cross-entropy, a domain classifier against the target, and a disentangler of the features.

    RE-IMPLEMENTATION WITHOUT OFFICIAL CODE, UNVERIFIED. Sources and target exchange parameters after each mini-batch,
    so all have one network; what a source has of its own are its gradient, its disentangler and the nets that judge
    it. Adversaries are faded in. The network moves by the sum of the sources' gradients,
    weighed by the softmax of how much each makes the target's k-means clusters tighter.

    Source: Peng et al. (FADA), ICLR 2020, eqs. 2-7 and Algorithm 1; SFDA, sec. 1 (exchange after each mini-batch).
    """

    label = "FADA (unverified)"
    paper = "Peng et al. 2020; re-implementation without official code, unverified"
    by_source = True

    align: NonNegativeFloat = 1.0
    """Factor of the reversed gradient of the domain classifiers."""
    disentangle: NonNegativeFloat = 1.0
    """Weight, once faded in, of what keeps the classes, and the other half, out of a source's own half."""
    reconstruct: NonNegativeFloat = 1.0
    """Weight of the squared error with which features are put together again."""
    width: PositiveInt = 256
    """Hidden units of each of the nets."""

    def parts(self, features: int, classes: int, sources: int) -> nn.Module:
        """The nets of each source."""
        return nn.ModuleList(_SourceNets(features, classes, self.width) for _ in range(sources))

    def __call__(self, step: DomainBatch) -> Tensor:
        """The losses ``[K]`` of one step."""
        fade = reversal_scale(step.progress)
        every = cast(list[_SourceNets], list(step.parts.children()))
        return torch.stack(
            [
                nn.functional.cross_entropy(logits, labels)
                + self._align(nets, features, step.target_features, fade)
                + self._disentangle(nets, features, labels, fade)
                for nets, features, logits, labels in zip(every, step.features, step.logits, step.labels, strict=True)
            ]
        )

    def _align(self, nets: _SourceNets, source: Tensor, target: Tensor, fade: float) -> Tensor:
        """Loss of the domain classifier, the network's turned round (eqs. 4 and 5)."""
        reversed_ = gradient_reversal(torch.cat([source, target]), self.align * fade)
        return domain_loss(nets.domain(reversed_), len(source))

    def _disentangle(self, nets: _SourceNets, features: Tensor, labels: Tensor, fade: float) -> Tensor:
        """Losses of the two halves that features are taken apart into (eqs. 6 and 7).

        Each judge learns from halves that it leaves alone, and halves learn from judges that they leave alone, towards
        what has an end: equal chances of all classes, and no mutual information. Reversed gradients have none: the
        estimate fell to -1000 within 13 epochs on digits, then nothing was finite.
        """
        halves: Tensor = nets.disentangler(features)
        common, own = halves.chunk(2, -1)
        useful = nn.functional.cross_entropy(nets.classifier(common), labels)
        again = (nets.reconstructor(halves) - features.detach()).square().mean()
        identified = nn.functional.cross_entropy(nets.identifier(own.detach()), labels)
        estimate = mutual_information_bound(nets.statistic, common.detach(), own.detach())
        confusing = -_frozen(nets.identifier)(own).log_softmax(-1).mean()
        shared = mutual_information_bound(_frozen(nets.statistic), common, own).clamp_min(0)
        judges, apart = identified - estimate, confusing + shared
        loss: Tensor = useful + self.reconstruct * again + judges + self.disentangle * fade * apart
        return loss

    def mix(self, before: Tensor, after: Tensor, classes: int) -> Tensor:
        """The softmax of what each source's step takes off the gap of the target's clusters (eq. 2)."""
        gaps = torch.stack([cluster_gap(features, classes) for features in (before, *after)])
        return (gaps[0] - gaps[1:]).softmax(0)


class _SourceNets(nn.Module):
    """What a source trains beside the network."""

    def __init__(self, features: int, classes: int, width: int) -> None:
        super().__init__()

        def perceptron(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))

        # Normalised, because mutual information could be made small by halves without bound.
        self.disentangler = nn.Sequential(perceptron(features, 2 * features), nn.BatchNorm1d(2 * features))
        self.classifier = nn.Linear(features, classes)
        self.identifier = nn.Linear(features, classes)
        self.reconstructor = perceptron(2 * features, features)
        # Bounded, because pairs of one batch can be told from others without end.
        self.statistic = nn.Sequential(perceptron(2 * features, 1), nn.Hardtanh(-LARGEST_SCORE, LARGEST_SCORE))
        self.domain = perceptron(features, 2)


def _frozen(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """A net as a function of its input alone."""
    values = {name: value.detach() for name, value in net.named_parameters()}
    return lambda x: cast(Tensor, torch.func.functional_call(net, values, (x,)))


def mutual_information_bound(statistic: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Take the Donsker-Varadhan bound of the mutual information of two features, pairs of others as the product.

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
    apart = statistic(torch.cat([x, y.roll(1, 0)], -1))[:, 0]
    return joint - apart.logsumexp(0) + math.log(len(apart))


def cluster_gap(features: Tensor, clusters: int) -> Tensor:
    """Take the gap statistic of k-means clusters: over them, the sum of pairwise distances over twice their size.

    Source: FADA (Peng et al., ICLR 2020), before eq. 2; Tibshirani et al. 2001.

    Args:
        features: ``[N, q]``, at least one.
        clusters: at most; k-means begins at rows that are far from one another, and does not draw.

    Returns:
        ``[]`` in units of the features, at least 0; lower is tighter; 0 with a cluster for each row.

    >>> cluster_gap(torch.tensor([[0.0], [2.0], [9.0], [9.0]]), clusters=2)  # 2 · 2 / (2 · 2)
    tensor(1.)
    """
    if clusters >= len(features):
        return features.new_zeros(())
    # A matrix product would leave a distance to a row from itself.
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
    inside = (members * (distances @ members)).sum(0)
    return (inside / (2 * members.sum(0)).clamp_min(1)).sum()
