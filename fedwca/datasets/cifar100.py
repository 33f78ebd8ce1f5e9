"""CIFAR-100: small photographs of a hundred kinds of things, in twenty superclasses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedwca.core.remote_files import RemoteFile
from fedwca.datasets import register
from fedwca.datasets._pooled_images import PooledImages

if TYPE_CHECKING:
    from fedwca.data.archives import Archive

FINE_LABELS = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
"""The names in ``fine_label_names.txt`` of the binary version, by label."""


@register("cifar100")
class Cifar100(PooledImages):
    """60,000 photographs in one domain, 32×32; units are the 20 superclasses."""

    label = "CIFAR-100"
    paper = "FedTTA sec. 4.1"
    domains = ("cifar100",)
    classes = tuple(map(str, range(100)))
    published_classes = tuple(FINE_LABELS.split())
    image_counts: ClassVar[dict[str, int]] = {"cifar100": 60000}
    downloads = (
        RemoteFile(
            ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
            "cifar-100-binary.tar.gz",
            md5="03b5dce01913d631647c71ecec9e9cb8",
            unpack="tar",
            unpacked_path="cifar-100-binary",
        ),
    )
    download_size = 168_513_733
    licence = "none is stated"
    source_url = "https://www.cs.toronto.edu/~kriz/cifar.html"
    layout = (
        "  <root>/cifar100.npz with key units (the superclass), or <root>/cifar100/{train,test}.npz, or the binary\n"
        "  version <root>/cifar-100-binary/{train,test}.bin, or in <root>/cifar100/"
    )
    citation = "Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009"
    published_folders = ("cifar-100-binary",)

    def find_published(self, folder: Path) -> Callable[[], Archive] | None:
        """Find the binary version: superclass, class, pixels."""
        from fedwca.data.cifar_files import find_record_parts

        return find_record_parts(folder, (("train.bin",), ("test.bin",)), 2)
