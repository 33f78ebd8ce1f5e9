"""Deal the domains of a labelled data set to clients, and split each client for training, validation and test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedwca.core.check_type import check_type
from fedwca.data.dataset import Domain, FederatedDataset, Integers
from fedwca.data.federation import ClientImages, Federation, name_test_image_needs
from fedwca.data.metrics import Metrics
from fedwca.data.split_domain import DealDomain, split_domain
from fedwca.errors import DataError, UsageError

PUBLISHED = "an image of the published test part"


def partition(
    dataset: FederatedDataset,
    source: str,
    *,
    clients: int,
    samples: int | None,
    seed: int,
    published_split: bool = False,
    deal: DealDomain | None = None,
) -> Federation:
    """Spread every domain but ``source`` over ``clients`` clients each, and split each client 64/16/20.

    Domain d (its position in the data set, whatever the source) draws from ``numpy.random.default_rng([seed, d])``; see
    `split_domain`. Clients come in the order of the data set's domains.

    Args:
        dataset: the labelled data; its images are copied.
        source: the domain that is left out, because the server's model was trained on it.
        clients: clients per domain, at least 1.
        samples: most images per client, before the split; None: as many as there are.
        seed: 0 or more.
        published_split: take the published training and test parts in place of 64/16/20.
        deal: decides which images of a domain each client gets; None: i.i.d. It may use labels; clients get none.

    Raises:
        UsageError: no data set, no such domain, a number out of bounds, no domain left, or more clients than a domain
            has images (groups, where it has groups), or a domain without published parts.
        DataError: ``deal`` leaves a client without images.
    """
    check_type("dataset", dataset, FederatedDataset, "fedwca.find_dataset('digits_mini').load(32)")
    source = dataset.domain(source).name
    if len(dataset.domains) == 1:
        raise UsageError(f"data set {dataset.name!r} has only the source domain {source!r}; no client would be left")
    targets = [name for name in dataset.domains if name != source]
    return _federation(dataset, targets, clients, samples, seed, published_split, deal=deal)


def leave_one_out(
    dataset: FederatedDataset,
    target: str | None,
    *,
    clients: int,
    samples: int | None,
    seed: int,
    published_split: bool = False,
) -> Federation:
    """Spread every domain over ``clients`` clients each, split 64/16/20; all have labels but those of the target.

    Domains are drawn and split as `partition` does it, so a domain's clients are the same whatever its role.

    Args:
        dataset: the labelled data; its images are copied.
        target: the domain whose clients are unlabeled; its labels are in the metrics, which count only its clients.
            None: all clients have labels, and all are counted.
        clients: clients per domain, at least 1.
        samples: most images per client, before the split; None: as many as there are.
        seed: 0 or more.
        published_split: take the published training and test parts in place of 64/16/20.

    Raises:
        UsageError: no such domain, a number out of bounds, no domain left, more clients than a domain has images, or a
            domain without published parts.
        DataError: a source has no image of a class or a client of it too few to train on, or the target has none to
            test.
    """
    if target is not None:
        target = dataset.domain(target).name
    sources = [name for name in dataset.domains if name != target]
    if not sources:
        raise UsageError(f"data set {dataset.name!r} has only the target domain {target!r}; no labelled one is left")
    for name in sources:
        counts = dataset.domains[name].class_counts(len(dataset.classes))
        if missing := [label for label, count in zip(dataset.classes, counts, strict=True) if not count]:
            raise DataError(
                f"source domain {name!r} has no image of class {missing[0]!r}, and a labelled source needs some "
                "of each; leave the domain out, or the class"
            )
    federation = _federation(dataset, list(dataset.domains), clients, samples, seed, published_split, labelled=sources)
    for client, name in zip(federation.clients, federation.metrics.domains, strict=True):
        if name != target and len(client.train) < 2:
            raise DataError(f"a client of source domain {name!r} has 1 training image; it needs 2 to train on")
        if name == target and not len(client.test):
            raise DataError(
                f"a client of target domain {name!r} has no test image; it needs {federation.test_image_needs}"
            )
    return federation


def _federation(
    dataset: FederatedDataset,
    names: Sequence[str],
    clients: int,
    samples: int | None,
    seed: int,
    published_split: bool,
    labelled: Sequence[str] = (),
    deal: DealDomain | None = None,
) -> Federation:
    """A federation of the domains ``names``; if only some of these are ``labelled``, tables count the others."""
    if clients < 1 or seed < 0 or (samples is not None and samples < 1):
        raise UsageError(
            f"a partition needs clients >= 1, samples >= 1 and seed >= 0, not clients={clients}, samples={samples}, "
            f"seed={seed}"
        )
    images, owners, train, test, untested = [], [], [], [], []
    for index, domain in enumerate(dataset.domains.values()):
        if domain.name not in names:
            continue
        random = np.random.default_rng([seed, index])
        for split in split_domain(domain, clients, samples, random, published_split, deal):
            train_images, test_images = (_tensor(domain, part) for part in (split.train, split.test))
            if not len(split.test) and (domain.name not in labelled or set(names) == set(labelled)):
                untested.append(len(split.train) + len(split.validation))
            owners.append(domain.name)
            train.append(torch.from_numpy(domain.labels[split.train]))
            test.append(torch.from_numpy(domain.labels[split.test]))
            labels = train[-1] if domain.name in labelled else None
            images.append(ClientImages(train_images, test_images, labels=labels))
    counted = [name not in labelled for name in owners]
    return Federation(
        tuple(images),
        Metrics(tuple(owners), tuple(train), tuple(test), counted if any(counted) else None),
        test_image_needs=PUBLISHED if published_split else name_test_image_needs(untested, least=3),
    )


def _tensor(domain: Domain, positions: Integers) -> Tensor:
    """A copy of the images ``[n, 3, H, W]`` uint8, channels last in memory."""
    return torch.from_numpy(np.asarray(domain.images[positions])).permute(0, 3, 1, 2)
