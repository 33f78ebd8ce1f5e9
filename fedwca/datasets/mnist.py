"""MNIST: handwritten digits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedwca.core.remote_files import TorchvisionFiles
from fedwca.datasets import register
from fedwca.datasets._pooled_images import PooledImages

if TYPE_CHECKING:
    from fedwca.data.archives import Archive


@register("mnist")
class Mnist(PooledImages):
    """70,000 handwritten digits in one domain, grey, 28×28."""

    label = "MNIST"
    paper = "FedTTA sec. 4.1"
    domains = ("mnist",)
    classes = tuple("0123456789")
    image_counts: ClassVar[dict[str, int]] = {"mnist": 70000}
    checksums: ClassVar[dict[str, str]] = {
        "raw/train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "raw/train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "raw/t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "raw/t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    }
    downloads = (TorchvisionFiles("MNIST", "raw"),)
    download_size = 11_600_000
    licence = "CC BY-SA 3.0"
    source_url = "https://yann.lecun.com/exdb/mnist"
    layout = (
        "  <root>/mnist.npz, or <root>/mnist/{train,test}.npz, or as torchvision has it\n"
        "  <root>/MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]"
    )
    citation = "LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998"
    published_folders = ("MNIST",)

    def find_published(self, folder: Path) -> Callable[[], Archive] | None:
        """Find the files as torchvision lays them out."""
        from fedwca.data.idx_files import find_idx_parts

        return find_idx_parts(folder)
