"""Read the five domains of Digit-Five from their published files, training images before test images.

==========  =============================================================  ==========================================
domain      files                                                          from
==========  =============================================================  ==========================================
mnist       MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte         torchvision
..          mnist_data.mat                                                 Digit-Five of M3SDA's authors
mnistm      mnistm_with_label.mat                                          Digit-Five of M3SDA's authors
svhn        {train,test}_32x32.mat                                         torchvision (md5 checked)
..          svhn_{train,test}_32x32.mat                                    Digit-Five of M3SDA's authors
synth       synth_{train,test}_32x32.mat                                   SynthDigits of Ganin
..          syn_number.mat                                                 Digit-Five of M3SDA's authors
usps        usps.bz2, usps.t.bz2                                           torchvision (md5 checked)
..          usps_28x28.mat                                                 Digit-Five of M3SDA's authors
==========  =============================================================  ==========================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedwca.data.archives import Archive, check_fits_memory
from fedwca.data.dataset import Images, Integers, to_three_channels
from fedwca.errors import DataError

Parts = list[tuple[Images, Integers]]
"""Images and labels of the training part and of the test part."""


def read_raw_domain(folder: Path, domain: str) -> Archive | None:
    """Read one domain, training part then test part, with the part of each image; None: its files are not there.

    If a domain is there in two forms, the first one in the module's table is read.

    Raises:
        DataError: a file is damaged, does not hold what its name says, or does not fit into memory; the message names
            it.
    """
    for files, reader in _forms_there(folder, domain):
        return _read(folder, files, domain, reader)
    return None


def is_raw_domain_there(folder: Path, domain: str) -> bool:
    """Whether `read_raw_domain` finds a domain's files, whatever they hold."""
    return next(_forms_there(folder, domain), None) is not None


def _forms_there(folder: Path, domain: str) -> Iterator[tuple[list[Path], Callable[[Path], Parts]]]:
    for names, reader in READERS[domain]:
        files = [folder / name for name in names]
        if all(file.is_file() for file in files):
            yield files, reader


def _read(folder: Path, files: list[Path], domain: str, reader: Callable[[Path], Parts]) -> Archive:
    names = ", ".join(str(file) for file in files)
    try:
        parts = reader(folder)
        images = np.concatenate([part for part, _ in parts])
        labels = np.concatenate([part for _, part in parts]).astype(np.int64)
        part = np.repeat(np.arange(2), [len(part_images) for part_images, _ in parts])
    except DataError:
        raise
    except Exception as error:  # parsers raise exceptions of many kinds for damaged files
        raise DataError(f"{names} cannot be read as {domain}: {error}") from error
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or labels.shape != images.shape[:1]:
        raise DataError(
            f"{names} should hold uint8 images, one label each, not {images.dtype} {list(images.shape)} and "
            f"{list(labels.shape)} labels"
        )
    return Archive(to_three_channels(images), labels, part=part)


def _mnist(folder: Path) -> Parts:
    from torchvision.datasets import MNIST

    parts = [MNIST(folder, train=train, download=False) for train in (True, False)]
    return [(part.data.numpy(), part.targets.numpy()) for part in parts]


def _svhn(folder: Path) -> Parts:
    from torchvision.datasets import SVHN

    parts = [SVHN(folder, split=split, download=False) for split in ("train", "test")]
    return [(part.data.transpose(0, 2, 3, 1), np.atleast_1d(part.labels)) for part in parts]


def _usps(folder: Path) -> Parts:
    from torchvision.datasets import USPS
    from torchvision.datasets.utils import check_integrity

    for _, name, md5 in USPS.split_list.values():
        if not check_integrity(str(folder / name), md5):
            raise ValueError(f"the md5 of {name} is not {md5}")
    parts = [USPS(folder, train=train, download=False) for train in (True, False)]
    return [(part.data, np.array(part.targets, np.int64)) for part in parts]


def _mnist_matlab(folder: Path) -> Parts:
    """``train_28`` ``[N, 28, 28, 1]`` and ``label_train`` one-hot, and the same of ``test``."""
    arrays = _matlab(folder / "mnist_data.mat")
    return [(_greys(arrays[f"{part}_28"]), _numbers(arrays[f"label_{part}"])) for part in ("train", "test")]


def _mnistm(folder: Path) -> Parts:
    arrays = _matlab(folder / "mnistm_with_label.mat")
    return [(arrays[part], _numbers(arrays[f"label_{part}"])) for part in ("train", "test")]


def _synth(folder: Path) -> Parts:
    arrays = _matlab(folder / "syn_number.mat")
    return [(arrays[f"{part}_data"], _numbers(arrays[f"{part}_label"])) for part in ("train", "test")]


def _usps_matlab(folder: Path) -> Parts:
    """``dataset`` ``[2, 2]``: by part, images ``[N, 1, 28, 28]`` in [0, 1] and labels ``[N, 1]``."""
    return [(_greys(images), _numbers(labels)) for images, labels in _matlab(folder / "usps_28x28.mat")["dataset"]]


def _greys(images: Any) -> Images:
    """uint8 images ``[N, 28, 28]`` from values in 0…255, or from floats in 0…1."""
    scale = 255 if images.dtype.kind == "f" and images.max(initial=0) <= 1 else 1
    greys: Images = (images * scale).round().clip(0, 255).astype(np.uint8).reshape(len(images), 28, 28)
    return greys


def _house_number_files(prefix: str) -> Callable[[Path], Parts]:
    return lambda folder: [_house_numbers(folder / f"{prefix}{part}_32x32.mat") for part in ("train", "test")]


def _house_numbers(file: Path) -> tuple[Images, Integers]:
    """SVHN's own format: ``X`` ``[H, W, 3, N]`` and ``y`` ``[N, 1]``."""
    arrays = _matlab(file)
    return arrays["X"].transpose(3, 0, 1, 2), _numbers(arrays["y"])


def _numbers(labels: Any) -> Integers:
    """Labels ``[N]`` int64 from ``[N]``, ``[N, 1]`` or one-hot ``[N, 10]``; 10 stands for 0, as M3SDA reads it."""
    numbers = labels.argmax(1) if labels.ndim == 2 and labels.shape[1] == 10 else labels.reshape(-1)
    return np.where(numbers == 10, 0, numbers).astype(np.int64)


def _matlab(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat, whosmat

    # What cells hold is not told before it is read; they count as pointers.
    check_fits_memory(file, sum(math.prod(shape) * ITEM_BYTES.get(kind, 8) for _, shape, kind in whosmat(file)))
    arrays: dict[str, Any] = loadmat(file)
    return arrays


ITEM_BYTES = {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32)} | {"single": 4}
"""Bytes of a number by its kind in MATLAB; those of other kinds have 8 or fewer."""
MNIST_FILES = tuple(
    f"MNIST/raw/{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)
READERS: dict[str, tuple[tuple[tuple[str, ...], Callable[[Path], Parts]], ...]] = {
    "mnist": ((MNIST_FILES, _mnist), (("mnist_data.mat",), _mnist_matlab)),
    "mnistm": ((("mnistm_with_label.mat",), _mnistm),),
    "svhn": (
        (("train_32x32.mat", "test_32x32.mat"), _svhn),
        (("svhn_train_32x32.mat", "svhn_test_32x32.mat"), _house_number_files("svhn_")),
    ),
    "synth": (
        (("synth_train_32x32.mat", "synth_test_32x32.mat"), _house_number_files("synth_")),
        (("syn_number.mat",), _synth),
    ),
    "usps": (
        (("usps.bz2", "usps.t.bz2"), _usps),
        (("usps_28x28.mat",), _usps_matlab),
    ),
}
"""Forms of each domain: files below the folder of the data set, and the function that reads them."""
