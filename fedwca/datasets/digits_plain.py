"""Handwritten digits that come with the dependencies, in one domain: for federations that differ in classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.datasets import DatasetSource, register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedwca.data import FederatedDataset

IMAGES = 1797
BRIGHTEST = 16
"""Value of white in scikit-learn's digits."""


@register("digits_plain")
class DigitsPlain(DatasetSource):
    """1,797 handwritten digits in one domain, grey; needs no download.

    scikit-learn's digits of 8×8 pixels, from black to white, enlarged bilinearly to what a model reads.
    """

    label = "Digits-plain"
    domains = ("digits",)
    classes = tuple("0123456789")
    image_counts = {"digits": IMAGES}  # as of the other data sets
    licence = "BSD-3-Clause (scikit-learn)"
    source_url = "https://scikit-learn.org/stable/datasets/toy_dataset.html#digits-dataset"
    origin = "comes with fedwca"
    layout = "  drawn from scikit-learn when needed"
    citation = "Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI Repository, 1998"

    def load(self, size: int = 28) -> FederatedDataset:
        """The only domain; see `DatasetSource.load`."""
        import numpy as np
        from sklearn.datasets import load_digits

        from fedwca.data import Domain, FederatedDataset
        from fedwca.data.dataset import to_three_channels

        digits = load_digits()
        grey = np.rint(digits.images * (255 / BRIGHTEST)).astype(np.uint8)
        domain = Domain("digits", to_three_channels(grey), digits.target.astype(np.int64))
        return FederatedDataset(self.name, self.classes, {"digits": domain}).resized(size)

    def count_images(self) -> Mapping[str, int]:
        """Number of images, known without reading them."""
        return self.image_counts

    def find_default_domain(self) -> str:
        """The only domain."""
        return "digits"
