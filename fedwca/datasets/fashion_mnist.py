"""Fashion-MNIST: clothes in the form of MNIST."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedwca.core.remote_files import TorchvisionFiles
from fedwca.datasets import register
from fedwca.datasets._pooled_images import PooledImages

if TYPE_CHECKING:
    from fedwca.data.archives import Archive


@register("fashion_mnist")
class FashionMnist(PooledImages):
    """70,000 pictures of clothes in one domain, grey, 28×28."""

    label = "Fashion-MNIST"
    paper = "FedTTA sec. 4.1"
    domains = ("fashion_mnist",)
    classes = (
        *("t_shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle_boot"),
    )
    published_classes = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
    image_counts: ClassVar[dict[str, int]] = {"fashion_mnist": 70000}
    checksums: ClassVar[dict[str, str]] = {
        "raw/train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "raw/train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "raw/t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "raw/t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    }
    downloads = (TorchvisionFiles("FashionMNIST", "raw"),)
    download_size = 30_900_000
    licence = "MIT"
    source_url = "https://github.com/zalandoresearch/fashion-mnist"
    layout = (
        "  <root>/fashion_mnist.npz, or <root>/fashion_mnist/{train,test}.npz, or as torchvision has it\n"
        "  <root>/FashionMNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]"
    )
    citation = "Xiao, Rasul, Vollgraf: Fashion-MNIST, arXiv 1708.07747"
    published_folders = ("FashionMNIST",)

    def find_published(self, folder: Path) -> Callable[[], Archive] | None:
        """Find the files as torchvision lays them out."""
        from fedwca.data.idx_files import find_idx_parts

        return find_idx_parts(folder)
