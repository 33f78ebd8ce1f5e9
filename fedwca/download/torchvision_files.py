"""Files whose addresses and checksums torchvision keeps: its mirrors and digests are taken, not copied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from fedwca.core.remote_files import RemoteFile, TorchvisionFiles


def torchvision_files(given: TorchvisionFiles) -> Iterator[RemoteFile]:
    """The files of one of torchvision's data sets."""
    from torchvision import datasets

    name, folder = given.name, PurePosixPath(given.below)
    if name in ("MNIST", "FashionMNIST"):
        kept = datasets.FashionMNIST if name == "FashionMNIST" else datasets.MNIST
        for file, md5 in kept.resources:
            urls, path = tuple(f"{mirror}{file}" for mirror in kept.mirrors), str(folder / file)
            yield RemoteFile(urls, path, md5=md5, unpack="gzip", gives=path.removesuffix(".gz"))
    elif name == "EMNIST":
        kept = datasets.EMNIST
        yield RemoteFile((kept.url,), str(folder / "gzip.zip"), md5=kept.md5, unpack="zip", gives=str(folder / "gzip"))
    elif name == "USPS":
        for url, file, md5 in datasets.USPS.split_list.values():
            yield RemoteFile((url,), str(folder / file), md5=md5)
    else:
        for part in ("train", "test"):  # the third, 1.3 GB, is in nobody's tables
            url, file, md5 = datasets.SVHN.split_list[part]
            yield RemoteFile((url,), str(folder / file), md5=md5)
