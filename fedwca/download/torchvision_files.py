"""Remote files whose addresses and checksums are read from torchvision instead of being copied here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from fedwca.core.remote_files import RemoteFile, TorchvisionFiles


def torchvision_files(source: TorchvisionFiles) -> Iterator[RemoteFile]:
    """Yield the files of one of torchvision's data sets."""
    from torchvision import datasets

    name, folder = source.name, PurePosixPath(source.folder)
    if name in ("MNIST", "FashionMNIST"):
        dataset = datasets.FashionMNIST if name == "FashionMNIST" else datasets.MNIST
        for file, md5 in dataset.resources:
            urls, path = tuple(f"{mirror}{file}" for mirror in dataset.mirrors), str(folder / file)
            yield RemoteFile(urls, path, md5=md5, unpack="gzip", unpacked_path=path.removesuffix(".gz"))
    elif name == "EMNIST":
        dataset = datasets.EMNIST
        yield RemoteFile(
            (dataset.url,), str(folder / "gzip.zip"), md5=dataset.md5, unpack="zip", unpacked_path=str(folder / "gzip")
        )
    elif name == "USPS":
        for url, file, md5 in datasets.USPS.split_list.values():
            yield RemoteFile((url,), str(folder / file), md5=md5)
    else:
        for part in ("train", "test"):  # published tables do not use the third part, of 1.3 GB
            url, file, md5 = datasets.SVHN.split_list[part]
            yield RemoteFile((url,), str(folder / file), md5=md5)
