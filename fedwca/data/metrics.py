"""The only holder of the clients' labels and true domains: what experiments report, and training never sees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedwca.core.mean import mean
from fedwca.errors import UsageError
from fedwca.functional import expected_calibration_error


class Metrics:
    """Measures predictions and clusterings against what the clients do not have.

    Args:
        domains: true domain of each of K clients.
        train_labels: ``[N_train]`` int64 of each client.
        test_labels: ``[N_test]`` int64 of each client; may be empty.
        counted: whether tables average a client's accuracy; None: everybody's.
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
        """Clients whose accuracy tables average ``[K]`` bool: where some have labels, those without."""
        self._train_labels, self._test_labels = tuple(train_labels), tuple(test_labels)

    @staticmethod
    def joined(parts: Sequence[Metrics]) -> Metrics:
        """Metrics of several groups of clients as one, a group behind the other."""
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
        """True domain of each client as a number ``[K]`` int64, in order of appearance; for oracles."""
        names = list(dict.fromkeys(self._domains))
        return torch.tensor([names.index(name) for name in self._domains], dtype=torch.int64)

    def training_truth(self, client: int) -> Tensor:
        """Class of each of a client's training images ``[N_train]``; for oracles."""
        return self._train_labels[client]

    def test_images(self) -> list[int]:
        """Test images of each client, K numbers."""
        return [len(labels) for labels in self._test_labels]

    def class_counts(self, classes: int) -> list[list[int]]:
        """Training images of each class at each client, K lists of M numbers; for whoever reads of a run."""
        return [torch.bincount(labels, minlength=classes).tolist() for labels in self._train_labels]

    def truth(self, client: int) -> Tensor:
        """Class of each of a client's test images ``[N_test]``; for pictures of what went wrong."""
        return self._test_labels[client]

    def accuracy(self, client: int, predicted: Tensor) -> float:
        """Percent of the client's test images predicted right; NaN for a client without any.

        Args:
            client: 0…K-1.
            predicted: class of each test image ``[N_test]``.

        Raises:
            UsageError: another number of predictions than of images.
        """
        return _percent(predicted, self._test_labels[client], None, client)

    def calibration_error(self, predicted: Mapping[int, tuple[Tensor, Tensor]]) -> float:
        """How far some clients' models are from being as right as they are sure, in points of percent.

        All test images together fill the bins: those of one client are too few, and few images look badly calibrated.

        Args:
            predicted: class of each test image ``[N_test]`` and output of that class ``[N_test]``, 0 to 1, by client.

        Returns:
            `fedwca.functional.expected_calibration_error`, times 100; NaN without test images.

        Raises:
            UsageError: another number of predictions than of images.
        """
        for client, said in predicted.items():
            _check_shapes(client, self._test_labels[client], *said)
        right = [classes == self._test_labels[client] for client, (classes, _) in predicted.items()]
        nothing = torch.zeros(0)
        sure = [confidences for _, confidences in predicted.values()]
        return 100 * float(expected_calibration_error(torch.cat([nothing, *right]), torch.cat([nothing, *sure])))

    def confusion(self, predicted: Mapping[int, Tensor]) -> list[list[int]]:
        """How often test images of a class are predicted as one, over some clients together.

        Args:
            predicted: class of each test image ``[N_test]``, by client.

        Returns:
            ``[true class, predicted class, images]``, in order of the classes; pairs without images are left out.

        Raises:
            UsageError: another number of predictions than of images.
        """
        for client, classes in predicted.items():
            _check_shapes(client, self._test_labels[client], classes)
        pairs = [torch.stack([self._test_labels[client], classes], 1) for client, classes in predicted.items()]
        found, images = torch.cat([torch.zeros(0, 2, dtype=torch.int64), *pairs]).unique(dim=0, return_counts=True)
        return torch.cat([found, images[:, None]], 1).tolist()

    def pseudo_label_counts(self, labels: Mapping[int, Tensor]) -> list[list[int]]:
        """Training images by class, over some clients together: pseudo-labels, and what is true.

        Args:
            labels: pseudo-labels ``[N_train]``, by client.

        Returns:
            ``[given, true]`` for each class, to the last that occurs.

        Raises:
            UsageError: another number of labels than of images.
        """
        for client, own in labels.items():
            _check_shapes(client, self._train_labels[client], own)
        nothing = torch.zeros(0, dtype=torch.int64)
        given = torch.cat([nothing, *labels.values()])
        true = torch.cat([nothing, *(self._train_labels[client] for client in labels)])
        classes = int(torch.cat([given, true]).max()) + 1 if len(given) else 0
        counts = [given.bincount(minlength=classes), true.bincount(minlength=classes)]
        return torch.stack(counts, 1).tolist()

    def pseudo_label_accuracy(self, client: int, labels: Tensor, weights: Tensor | None = None) -> float:
        """Percent of the client's training images labelled right, weighted; NaN where all weights are 0.

        Args:
            client: 0…K-1.
            labels: ``[N_train]`` pseudo-labels.
            weights: ``[N_train]``, at least 0; None: all alike.

        Raises:
            UsageError: another number of labels or weights than of images.
        """
        return _percent(labels, self._train_labels[client], weights, client)

    def by_domain(self, values: Tensor | Sequence[float]) -> dict[str, float]:
        """Mean over the clients of each domain, all alike, without NaN ones; NaN where none is left.

        Args:
            values: one number for each client ``[K]``.

        Raises:
            UsageError: another number of values than of clients.
        """
        numbers = [float(value) for value in values]
        if len(numbers) != len(self):
            raise UsageError(f"{len(numbers)} values for {len(self)} clients; one for each is right")
        return {
            name: mean(value for value, domain in zip(numbers, self._domains, strict=True) if domain == name)
            for name in dict.fromkeys(self._domains)
        }

    def clustering(self, labels: Tensor) -> dict[str, float | list[int]]:
        """How a grouping of the clients ``[K]`` compares with the true domains.

        Returns:
            ``ari`` and ``nmi`` (1 is perfect), ``purity`` (share of clients whose domain is the most common one of
            their cluster, 0…1) and ``sizes`` (clients in each cluster, by label).

        Raises:
            UsageError: another number of labels than of clients.
        """
        from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

        if labels.shape != (len(self),):
            raise UsageError(f"cluster labels have shape {list(labels.shape)} for {len(self)} clients; [K] is right")
        true, found = self.domain_labels().numpy(), labels.cpu().numpy()
        clusters = [true[found == cluster] for cluster in np.unique(found)]
        return {
            "ari": float(adjusted_rand_score(true, found)),
            "nmi": float(normalized_mutual_info_score(true, found)),
            "purity": sum(int(np.bincount(cluster).max()) for cluster in clusters) / len(true),
            "sizes": [len(cluster) for cluster in clusters],
        }


def _percent(given: Tensor, true: Tensor, weights: Tensor | None, client: int) -> float:
    _check_shapes(client, true, given, weights)
    right = (given.cpu() == true).double()
    weight = torch.ones_like(right) if weights is None else weights.cpu().double()
    total = float(weight.sum())
    return 100 * float((right * weight).sum()) / total if total > 0 else math.nan


def _check_shapes(client: int, true: Tensor, given: Tensor, weights: Tensor | None = None) -> None:
    for what, tensor in (("labels", given), ("weights", weights)):
        if tensor is not None and tensor.shape != true.shape:
            raise UsageError(f"client {client} has {len(true)} images, but {what} of shape {list(tensor.shape)} came")
