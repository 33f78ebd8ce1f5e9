"""The only holder of the clients' true labels and domains, which experiments report on.

Training sees none of them. Only oracles are given them: a clusterer the domains, a central method the target's labels.
Central methods, which have all images in one place, also know which images are of which domain.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedwca.core.clustering_scores import adjusted_rand_index, normalized_mutual_information
from fedwca.core.mean import mean
from fedwca.errors import UsageError
from fedwca.functional import expected_calibration_error


class Metrics:
    """Measures predictions and clusterings of K clients against their true labels and domains.

    Args:
        domains: true domain of each client.
        train_labels: true labels of each client's training images ``[N_train]`` int64.
        test_labels: true labels of each client's test images ``[N_test]`` int64; may be empty.
        counted: for each client, whether tables average its accuracy; None: all count.
    """

    def __init__(
        self,
        domains: tuple[str, ...],
        train_labels: Sequence[Tensor],
        test_labels: Sequence[Tensor],
        counted: Sequence[bool] | None = None,
    ) -> None:
        if not len(domains) == len(train_labels) == len(test_labels):
            raise UsageError(
                f"metrics need domains and labels of the same clients, not {len(domains)}, {len(train_labels)} and "
                f"{len(test_labels)}"
            )
        self._domains = domains
        self.counted = torch.ones(len(domains), dtype=torch.bool) if counted is None else torch.tensor(counted)
        """``[K]`` bool, clients whose accuracy tables average: if some clients have labels, those without."""
        self._train_labels, self._test_labels = tuple(train_labels), tuple(test_labels)

    @staticmethod
    def joined(parts: Sequence[Metrics]) -> Metrics:
        """Metrics of several groups of clients concatenated, group by group."""
        return Metrics(
            sum((part._domains for part in parts), ()),
            [labels for part in parts for labels in part._train_labels],
            [labels for part in parts for labels in part._test_labels],
            torch.cat([part.counted for part in parts]).tolist(),
        )

    def __len__(self) -> int:
        return len(self._domains)

    @property
    def domains(self) -> tuple[str, ...]:
        """True domain of each client, K names."""
        return self._domains

    def domain_labels(self) -> Tensor:
        """True domain of each client ``[K]`` int64, numbered in order of appearance; for oracles."""
        names = list(dict.fromkeys(self._domains))
        return torch.tensor([names.index(name) for name in self._domains], dtype=torch.int64)

    def training_truth(self, client: int) -> Tensor:
        """True class of each of a client's training images ``[N_train]``; for oracles."""
        return self._train_labels[client]

    def test_images(self) -> list[int]:
        """Number of test images of each client, K numbers."""
        return [len(labels) for labels in self._test_labels]

    def class_counts(self, classes: int) -> list[list[int]]:
        """Number of training images of each class at each client, K lists of M numbers; for reports of a run."""
        return [torch.bincount(labels, minlength=classes).tolist() for labels in self._train_labels]

    def test_truth(self, client: int) -> Tensor:
        """True class of each of a client's test images ``[N_test]``; for pictures of wrong predictions."""
        return self._test_labels[client]

    def accuracy(self, client: int, predicted: Tensor) -> float:
        """Percent of the client's test images that are predicted correctly; NaN if it has none.

        Args:
            client: 0…K-1.
            predicted: class of each test image ``[N_test]``.

        Raises:
            UsageError: the numbers of predictions and images differ.
        """
        return _percent(predicted, self._test_labels[client], None, client)

    def calibration_error(self, predicted: Mapping[int, tuple[Tensor, Tensor]]) -> float:
        """Expected calibration error of some clients' models over all their test images, in percentage points.

        The test images of all clients share the bins: one client has too few, and few images look badly calibrated.

        Args:
            predicted: by client, predicted class of each test image ``[N_test]`` and its probability ``[N_test]``.

        Returns:
            `fedwca.functional.expected_calibration_error`, times 100; NaN without test images.

        Raises:
            UsageError: the numbers of predictions and images differ.
        """
        for client, outputs in predicted.items():
            _check_shapes(client, self._test_labels[client], *outputs)
        correct = [classes == self._test_labels[client] for client, (classes, _) in predicted.items()]
        empty = torch.zeros(0)
        confidences = [confidence for _, confidence in predicted.values()]
        return 100 * float(expected_calibration_error(torch.cat([empty, *correct]), torch.cat([empty, *confidences])))

    def confusion(self, predicted: Mapping[int, Tensor]) -> list[list[int]]:
        """Confusion counts of the test images of some clients together.

        Args:
            predicted: by client, predicted class of each test image ``[N_test]``.

        Returns:
            ``[true class, predicted class, images]``, in order of the classes; pairs without images are left out.

        Raises:
            UsageError: the numbers of predictions and images differ.
        """
        for client, classes in predicted.items():
            _check_shapes(client, self._test_labels[client], classes)
        pairs = [torch.stack([self._test_labels[client], classes], 1) for client, classes in predicted.items()]
        unique_pairs, counts = torch.cat([torch.zeros(0, 2, dtype=torch.int64), *pairs]).unique(
            dim=0, return_counts=True
        )
        return torch.cat([unique_pairs, counts[:, None]], 1).tolist()

    def pseudo_label_counts(self, labels: Mapping[int, Tensor]) -> list[list[int]]:
        """Number of training images of each class, by pseudo-label and by true label, over some clients together.

        Args:
            labels: by client, pseudo-labels ``[N_train]``.

        Returns:
            ``[images pseudo-labelled so, images of that true class]`` for each class, up to the last that occurs.

        Raises:
            UsageError: the numbers of labels and images differ.
        """
        for client, pseudo_labels in labels.items():
            _check_shapes(client, self._train_labels[client], pseudo_labels)
        empty = torch.zeros(0, dtype=torch.int64)
        assigned = torch.cat([empty, *labels.values()])
        true = torch.cat([empty, *(self._train_labels[client] for client in labels)])
        classes = int(torch.cat([assigned, true]).max()) + 1 if len(assigned) else 0
        counts = [assigned.bincount(minlength=classes), true.bincount(minlength=classes)]
        return torch.stack(counts, 1).tolist()

    def pseudo_label_accuracy(self, client: int, labels: Tensor, weights: Tensor | None = None) -> float:
        """Weighted percent of the client's training images with correct pseudo-labels; NaN if all weights are 0.

        Args:
            client: 0…K-1.
            labels: pseudo-labels ``[N_train]``.
            weights: ``[N_train]``, at least 0; None: equal weights.

        Raises:
            UsageError: the number of labels or weights differs from that of images.
        """
        return _percent(labels, self._train_labels[client], weights, client)

    def by_domain(self, values: Tensor | Sequence[float]) -> dict[str, float]:
        """Unweighted mean over the clients of each domain, ignoring NaN; NaN if no value is left.

        Args:
            values: one number for each client ``[K]``.

        Raises:
            UsageError: the numbers of values and clients differ.
        """
        numbers = [float(value) for value in values]
        if len(numbers) != len(self):
            raise UsageError(f"{len(numbers)} values for {len(self)} clients; one for each is right")
        return {
            name: mean(value for value, domain in zip(numbers, self._domains, strict=True) if domain == name)
            for name in dict.fromkeys(self._domains)
        }

    def clustering(self, labels: Tensor) -> dict[str, float | list[int]]:
        """Compare cluster labels of the clients ``[K]`` with their true domains.

        Returns:
            ``ari`` and ``nmi`` (1 is perfect), ``purity`` (share of clients whose domain is the most common one of
            their cluster, 0…1) and ``sizes`` (number of clients in each cluster, in order of the cluster labels).

        Raises:
            UsageError: the numbers of labels and clients differ.
        """
        if labels.shape != (len(self),):
            raise UsageError(f"cluster labels have shape {list(labels.shape)} for {len(self)} clients; [K] is right")
        assigned = labels.tolist()
        clusters: dict[int, Counter[str]] = {cluster: Counter() for cluster in sorted(set(assigned))}
        for cluster, domain in zip(assigned, self._domains, strict=True):
            clusters[cluster][domain] += 1
        return {
            "ari": adjusted_rand_index(self._domains, assigned),
            "nmi": normalized_mutual_information(self._domains, assigned),
            "purity": sum(max(domains.values()) for domains in clusters.values()) / len(self),
            "sizes": [domains.total() for domains in clusters.values()],
        }


def _percent(predicted: Tensor, true: Tensor, weights: Tensor | None, client: int) -> float:
    _check_shapes(client, true, predicted, weights)
    correct = (predicted.cpu() == true).double()
    weight = torch.ones_like(correct) if weights is None else weights.cpu().double()
    total = float(weight.sum())
    return 100 * float((correct * weight).sum()) / total if total > 0 else math.nan


def _check_shapes(client: int, true: Tensor, predicted: Tensor, weights: Tensor | None = None) -> None:
    for name, tensor in (("labels", predicted), ("weights", weights)):
        if tensor is not None and tensor.shape != true.shape:
            raise UsageError(f"client {client} has {len(true)} images, but {name} of shape {list(tensor.shape)} came")
