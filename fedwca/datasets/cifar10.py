"""CIFAR-10: small photographs of ten kinds of things."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedwca.core.remote_files import RemoteFile
from fedwca.datasets import register
from fedwca.datasets._pooled_images import PooledImages

if TYPE_CHECKING:
    from fedwca.data.archives import Archive

FILES = (tuple(f"data_batch_{number}.bin" for number in range(1, 6)), ("test_batch.bin",))


@register("cifar10")
class Cifar10(PooledImages):
    """60,000 photographs in one domain, 32×32."""

    label = "CIFAR-10"
    paper = "FedTTA sec. 4.1"
    domains = ("cifar10",)
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    image_counts: ClassVar[dict[str, int]] = {"cifar10": 60000}
    downloads = (
        RemoteFile(
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            "cifar-10-binary.tar.gz",
            md5="c32a1d4ab5d03f1284b67883e8d87530",
            unpack="tar",
            unpacked_path="cifar-10-batches-bin",
        ),
    )
    download_size = 170_052_171
    licence = "none is stated"
    source_url = "https://www.cs.toronto.edu/~kriz/cifar.html"
    layout = (
        "  <root>/cifar10.npz, or <root>/cifar10/{train,test}.npz, or the binary version\n"
        "  <root>/cifar-10-batches-bin/{data_batch_1 … data_batch_5,test_batch}.bin, or in <root>/cifar10/"
    )
    citation = "Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009"
    published_folders = ("cifar-10-batches-bin",)

    def find_published(self, folder: Path) -> Callable[[], Archive] | None:
        """Find the binary version: class, pixels."""
        from fedwca.data.cifar_files import find_record_parts

        return find_record_parts(folder, FILES, 1)
