"""Digit-Five: MNIST, MNIST-M, SVHN, SYNTH and USPS."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from pydantic import NonNegativeInt, PositiveInt

from fedwca.core.remote_files import HubCopy, ManualDownload, TorchvisionFiles
from fedwca.datasets import DatasetSource, register

if TYPE_CHECKING:
    from pathlib import Path

    from fedwca.data import FederatedDataset
    from fedwca.data.archives import Archive
    from fedwca.data.dataset import Integers


@register("digit_five")
class DigitFive(DatasetSource):
    """34,000 digits of each domain's pooled training and test part, and all 9,298 of USPS.

    With its published parts: 25,000 images to train on and 9,000 to test; of USPS, all images of both parts.
    """

    label = "Digit-Five"
    paper = "FedWCA, App. C.1 (34,000 per domain, drawn at random); Peng et al. 2019 (25,000 and 9,000)"
    domains = ("mnist", "mnistm", "svhn", "synth", "usps")
    classes = tuple("0123456789")
    image_counts: ClassVar[dict[str, int]] = {
        "mnist": 34000,
        "mnistm": 34000,
        "svhn": 34000,
        "synth": 34000,
        "usps": 9298,
    }
    checksums: ClassVar[dict[str, str]] = {
        "MNIST/raw/train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "MNIST/raw/train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "MNIST/raw/t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "MNIST/raw/t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        "usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197",
        "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118",
    }
    downloads = (
        TorchvisionFiles("MNIST", "MNIST/raw"),
        HubCopy(
            *("Mike0307/MNIST-M", "f73924ff442ed85397d79215d04704a12af086ec"),
            only_domain="mnistm",
            saved_as="archive",
        ),
        TorchvisionFiles("SVHN"),
        ManualDownload(
            "synth", "https://github.com/VisionLearningGroup/VisionLearningGroup.github.io/tree/master/M3SDA"
        ),
        TorchvisionFiles("USPS"),
    )
    download_size = 430_000_000
    licence = "research use; SVHN non-commercial"
    source_url = "https://github.com/VisionLearningGroup/VisionLearningGroup.github.io/tree/master/M3SDA"
    layout = (
        "  <root>/digit_five/{mnist,mnistm,svhn,synth,usps}.npz, or in place of any of them\n"
        "  <root>/digit_five/MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte\n"
        "  <root>/digit_five/mnistm_with_label.mat\n"
        "  <root>/digit_five/{train,test}_32x32.mat (SVHN)\n"
        "  <root>/digit_five/synth_{train,test}_32x32.mat\n"
        "  <root>/digit_five/{usps,usps.t}.bz2, or as in M3SDA's Digit-Five\n"
        "  <root>/digit_five/{mnist_data,svhn_train_32x32,svhn_test_32x32,syn_number,usps_28x28}.mat"
    )
    citation = "Peng et al.: Moment Matching for Multi-Source Domain Adaptation, ICCV 2019"

    images: PositiveInt = 34000
    """Images drawn at random from a domain that has more."""
    train_images: PositiveInt = 25000
    """Images drawn of a domain's training part, where the published parts are taken."""
    test_images: PositiveInt = 9000
    """Images drawn of a domain's test part, where the published parts are taken."""
    seed: NonNegativeInt = 0
    """Decides which images are drawn."""

    def load(self, size: int = 32) -> FederatedDataset:
        """The five domains, each from its archive or from the published files; see `DatasetSource.load`."""
        return self._read(size, self._drawn)

    def load_published(self, size: int = 32) -> FederatedDataset:
        """As `load`, with ``train_images`` and ``test_images`` of each domain; see `DatasetSource.load_published`."""
        return self._check_parts(self._read(size, self._drawn_by_part))

    def _read(self, size: int, draw: Callable[[Archive, int], Archive]) -> FederatedDataset:
        from fedwca.data.archives import read_npz
        from fedwca.data.find_domains import find_domains, is_archive
        from fedwca.data.read_domains import assemble_dataset
        from fedwca.datasets._digit_five_raw import read_raw_domain

        folder = self.own_folder
        path_by_domain = find_domains(folder) if folder.is_dir() else {}
        archives: dict[str, Archive] = {}
        for index, domain in enumerate(self.domains):
            path = path_by_domain.get(domain)
            archive = read_npz(path) if path and is_archive(path) else read_raw_domain(folder, domain)
            if archive is not None:
                archives[domain] = draw(archive, index)
        if len(archives) < 2:
            raise self.missing_files_error(
                f"there is no {next(domain for domain in self.domains if domain not in archives)}"
            )
        dataset = assemble_dataset(self.name, archives, self.classes).resized(size)
        self.compare_with_published(dataset)
        return dataset

    def has_domain(self, domain: str, folder: Path) -> bool:
        """Whether a folder holds an archive of a domain, or one of its published forms."""
        from fedwca.data.find_domains import find_domains, is_archive
        from fedwca.datasets._digit_five_raw import is_raw_domain_there

        # A folder of that name does not count: an interrupted download of a published form may have left it.
        path = find_domains(folder).get(domain) if folder.is_dir() else None
        return (path is not None and is_archive(path)) or is_raw_domain_there(folder, domain)

    def _drawn(self, archive: Archive, index: int) -> Archive:
        import numpy as np

        return archive.subset(_draw(np.arange(len(archive.images)), self.images, [self.seed, index]))

    def _drawn_by_part(self, archive: Archive, index: int) -> Archive:
        import numpy as np

        if archive.part is None:
            return archive
        positions = [
            _draw(np.flatnonzero(archive.part == part), most, [self.seed, index, part])
            for part, most in enumerate((self.train_images, self.test_images))
        ]
        return archive.subset(np.concatenate(positions))


def _draw(positions: Integers, most: int, seed: list[int]) -> Integers:
    """Draw at most ``most`` of the positions at random; their order is kept."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(positions))
    drawn: Integers = np.sort(positions[order[:most]])
    return drawn
