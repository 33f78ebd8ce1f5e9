"""EMNIST: handwritten digits and letters in the form of MNIST."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from string import ascii_uppercase, digits
from typing import TYPE_CHECKING, ClassVar

from fedwca.core.remote_files import TorchvisionFiles
from fedwca.datasets import register
from fedwca.datasets._pooled_images import PooledImages

if TYPE_CHECKING:
    from fedwca.data.archives import Archive


@register("emnist")
class Emnist(PooledImages):
    """131,600 digits and letters, grey, 28×28: the balanced split, where letters that look alike are one."""

    label = "EMNIST"
    paper = "Cohen, Afshar, Tapson, van Schaik, arXiv 1702.05373"
    domains = ("emnist",)
    classes = (*digits, *ascii_uppercase, *"abdefghnqrt")
    image_counts: ClassVar[dict[str, int]] = {"emnist": 131_600}
    downloads = (TorchvisionFiles("EMNIST"),)
    download_size = 561_753_746
    licence = "public domain (NIST Special Database 19)"
    source_url = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
    layout = (
        "  <root>/emnist.npz, or <root>/emnist/{train,test}.npz, or as torchvision or NIST have it\n"
        "  <root>/EMNIST/raw/ or <root>/emnist/gzip/emnist-balanced-{train,test}-{images-idx3,labels-idx1}-ubyte[.gz]"
    )
    citation = "Cohen, Afshar, Tapson, van Schaik: EMNIST, an extension of MNIST to handwritten letters, 2017"
    published_folders = ("EMNIST",)

    def find_published(self, folder: Path) -> Callable[[], Archive] | None:
        """Find the files of the balanced split, which store images column by column."""
        from fedwca.data.idx_files import find_idx_parts

        return find_idx_parts(folder, ("emnist-balanced-train", "emnist-balanced-test"), transposed=True)
