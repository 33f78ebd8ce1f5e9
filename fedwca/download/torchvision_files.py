"""Files whose addresses and checksums torchvision keeps: its mirrors and digests are taken, not copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fedwca.core.remote_files import RemoteFile


def torchvision_files(name: Literal["MNIST", "FashionMNIST", "USPS", "SVHN"]) -> Iterator[RemoteFile]:
    """The files of one of torchvision's data sets, where torchvision's own class looks for them."""
    from torchvision import datasets

    if name in ("MNIST", "FashionMNIST"):
        kept = datasets.FashionMNIST if name == "FashionMNIST" else datasets.MNIST
        for file, md5 in kept.resources:
            urls, path = tuple(f"{mirror}{file}" for mirror in kept.mirrors), f"{name}/raw/{file}"
            yield RemoteFile(urls, path, md5=md5, unpack="gzip", gives=path.removesuffix(".gz"))
    elif name == "USPS":
        for url, file, md5 in datasets.USPS.split_list.values():
            yield RemoteFile((url,), file, md5=md5)
    else:
        for part in ("train", "test"):  # the third, 1.3 GB, is in nobody's tables
            url, file, md5 = datasets.SVHN.split_list[part]
            yield RemoteFile((url,), file, md5=md5)
