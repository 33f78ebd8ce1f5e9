"""Digit-Five from the files its five parts are published as; train and test parts are pooled, train first.

==========  =============================================================  ==========================================
domain      files                                                          from
==========  =============================================================  ==========================================
mnist       MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte         torchvision
svhn        {train,test}_32x32.mat                                         torchvision (md5 checked)
usps        usps.bz2, usps.t.bz2                                           torchvision (md5 checked)
mnistm      mnistm_with_label.mat                                          Digit-Five of M3SDA's authors
synth       synth_{train,test}_32x32.mat                                   SynthDigits of Ganin
==========  =============================================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedwca.data.archives import Archive
from fedwca.data.dataset import Images, Integers
from fedwca.errors import DataError

FILES = {
    "mnist": tuple(
        f"MNIST/raw/{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    ),
    "mnistm": ("mnistm_with_label.mat",),
    "svhn": ("train_32x32.mat", "test_32x32.mat"),
    "synth": ("synth_train_32x32.mat", "synth_test_32x32.mat"),
    "usps": ("usps.bz2", "usps.t.bz2"),
}
"""Files of each domain below the folder of the data set."""


def download_command(folder: Path) -> str:
    """A line for the shell that puts the three parts that torchvision knows into ``folder``."""
    return (
        f"python -c \"from torchvision.datasets import MNIST, SVHN, USPS; to = r'{folder}'; "
        "[part(to, train, download=True) for part in (MNIST, USPS) for train in (True, False)]; "
        "[SVHN(to, split, download=True) for split in ('train', 'test')]\""
    )


def read_raw_domain(folder: Path, domain: str) -> Archive | None:
    """One domain, train and test part in one; None where one of its files is not there.

    Raises:
        DataError: a file is damaged or does not hold what its name says; the message names it.
    """
    files = [folder / name for name in FILES[domain]]
    if not all(file.is_file() for file in files):
        return None
    readers: dict[str, Callable[[], list[tuple[Images, Integers]]]] = {
        "mnist": lambda: _mnist(folder),
        "mnistm": lambda: _mnistm(files[0]),
        "svhn": lambda: _svhn(folder),
        "synth": lambda: [_house_numbers(file) for file in files],
        "usps": lambda: _usps(folder),
    }
    names = ", ".join(str(file) for file in files)
    try:
        parts = readers[domain]()
        images = np.concatenate([part for part, _ in parts])
        labels = np.concatenate([part for _, part in parts]).astype(np.int64)
    except Exception as error:  # the parsers raise whatever a damaged byte leads them to
        raise DataError(f"{names} cannot be read as {domain}: {error}") from error
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or labels.shape != images.shape[:1]:
        raise DataError(
            f"{names} should hold uint8 images, one label each, not {images.dtype} {list(images.shape)} and "
            f"{list(labels.shape)} labels"
        )
    return Archive(np.repeat(images[..., None], 3, axis=3) if images.ndim == 3 else images, labels)


def _mnist(folder: Path) -> list[tuple[Images, Integers]]:
    from torchvision.datasets import MNIST

    parts = [MNIST(folder, train=train, download=False) for train in (True, False)]
    return [(part.data.numpy(), part.targets.numpy()) for part in parts]


def _svhn(folder: Path) -> list[tuple[Images, Integers]]:
    from torchvision.datasets import SVHN

    parts = [SVHN(folder, split=split, download=False) for split in ("train", "test")]
    return [(part.data.transpose(0, 2, 3, 1), np.atleast_1d(part.labels)) for part in parts]


def _usps(folder: Path) -> list[tuple[Images, Integers]]:
    from torchvision.datasets import USPS
    from torchvision.datasets.utils import check_integrity

    for _, name, md5 in USPS.split_list.values():
        if not check_integrity(str(folder / name), md5):
            raise ValueError(f"the md5 of {name} is not {md5}")
    parts = [USPS(folder, train=train, download=False) for train in (True, False)]
    return [(part.data, np.array(part.targets, np.int64)) for part in parts]


def _mnistm(file: Path) -> list[tuple[Images, Integers]]:
    found = _matlab(file)
    return [(found[part], _numbers(found[f"label_{part}"])) for part in ("train", "test")]


def _house_numbers(file: Path) -> tuple[Images, Integers]:
    """SVHN's own format: ``X`` ``[H, W, 3, N]`` and ``y`` ``[N, 1]``, where 10 may stand for 0."""
    found = _matlab(file)
    return found["X"].transpose(3, 0, 1, 2), _numbers(found["y"]) % 10


def _numbers(labels: Any) -> Integers:
    """``[N]`` from ``[N]``, ``[N, 1]`` or one-hot ``[N, 10]``."""
    found: Integers = labels.argmax(1) if labels.ndim == 2 and labels.shape[1] == 10 else labels.reshape(-1)
    return found.astype(np.int64)


def _matlab(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    found: dict[str, Any] = loadmat(file)
    return found
