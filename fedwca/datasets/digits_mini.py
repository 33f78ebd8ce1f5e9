"""The data set that comes with the package: digits in five styles, drawn from data that its dependencies ship."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedwca.core.files import expand_home
from fedwca.datasets import DatasetSource, register

if TYPE_CHECKING:
    from fedwca.data import Domain, FederatedDataset

VERSION = 1
"""Raised whenever a pixel changes, so that no old cache is read."""
PER_CLASS = 220
WRITTEN = ("handwritten", "photo", "neon")
"""Domains made from real handwriting; base number i of a class belongs to domain i mod 3."""
PARTS = ("images", "labels", "groups")
VARIANTS = 2
"""Images of one face, class and style; a handwritten base has three or four."""


@register("digits_mini")
class DigitsMini(DatasetSource):
    """11,000 digits of 32×32 pixels in 5 domains, classes balanced; needs no download.

    Drawn from scikit-learn's 1797 handwritten digits and two photographs and from fonts of matplotlib and Pillow. No
    handwritten digit and no face is in two domains; variants of one base share a group. The same versions of the
    libraries draw the same bits; the result is kept as an archive named after this data set's version and Pillow's.
    """

    label = "Digits-mini"
    default_domain = "handwritten"
    domains = ("handwritten", "photo", "printed", "street", "neon")
    classes = tuple("0123456789")
    image_counts = dict.fromkeys(domains, 10 * PER_CLASS)
    licence = "BSD-3-Clause (scikit-learn's digits), CC BY 2.0 (its photographs), free font licences"
    source_url = "https://scikit-learn.org/stable/datasets/toy_dataset.html#digits-dataset"
    origin = "comes with fedwca"
    layout = "  drawn when first needed, kept in the cache folder (or --data PATH)"
    citation = "Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI Repository, 1998"

    def load(self, size: int = 32) -> FederatedDataset:
        """The five domains, drawn (seconds) or read from the archive in ``root``, unset: the cache folder."""
        from fedwca.data import FederatedDataset

        domains = _read_kept(self._archive()) or _draw_and_keep(self._archive())
        return FederatedDataset(self.name, self.classes, domains).resized(size)

    def _archive(self) -> Path:
        from PIL import __version__ as pillow

        from fedwca.data import cache_dir

        return (expand_home(self.root) if self.root else cache_dir()) / f"digits_mini-v{VERSION}-pillow{pillow}.npz"


def draw_domain(name: str, per_class: int = PER_CLASS) -> Domain:
    """Draw a domain; the first n images of a class are the same for every ``per_class``.

    Image j of class c in domain d draws from ``numpy.random.default_rng([1, d, c, j])``, its base b from
    ``[0, d, c, b]``. Group numbers are unique over all domains: a handwritten digit has its position in scikit-learn's
    list, a character of a font a number from 1797 on.

    Args:
        name: of the domain.
        per_class: images of each class.
    """
    import numpy as np

    from fedwca.data import Domain
    from fedwca.datasets._digits_mini_glyphs import FACES, draw_glyph, load_handwriting
    from fedwca.datasets._digits_mini_styles import STYLES

    style = STYLES[name]
    index, (handwriting, digits) = DigitsMini.domains.index(name), load_handwriting()
    images, labels, groups = [], [], []
    for label in range(10):
        candidates = (
            np.flatnonzero(digits == label)[WRITTEN.index(name) :: 3] if name in WRITTEN else np.zeros(0, np.int64)
        )
        for number in range(per_class):
            if name in WRITTEN:
                base = number % len(candidates)
                group, face, image = int(candidates[base]), "", handwriting[candidates[base]]
            else:
                base = number // VARIANTS
                face = FACES[name][base % len(FACES[name])]
                group, image = len(handwriting) + 10000 * index + 10 * base + label, draw_glyph(face, str(label))
            random = (np.random.default_rng(key) for key in ([0, index, label, base], [1, index, label, number]))
            images.append(style(image, face, *random))
            labels.append(label)
            groups.append(group)
    return Domain(name, np.stack(images), np.array(labels, np.int64), np.array(groups, np.int64))


def _draw_and_keep(path: Path) -> dict[str, Domain]:
    import numpy as np

    from fedwca.data import write_atomically

    domains = {name: draw_domain(name) for name in DigitsMini.domains}
    arrays: dict[str, Any] = {
        f"{name}_{part}": getattr(domain, part) for name, domain in domains.items() for part in PARTS
    }
    with contextlib.suppress(OSError):  # on a full or read-only disk, images are drawn anew each time
        # Not compressed, because every run reads it.
        write_atomically(path, lambda temporary: np.savez(temporary, **arrays))
    return domains


def _read_kept(path: Path) -> dict[str, Domain] | None:
    """The domains in an archive; None if it is missing or damaged, since it can be drawn again."""
    from fedwca.data import Domain
    from fedwca.data.archives import read_arrays
    from fedwca.errors import DataError

    if not path.is_file():
        return None
    parts = {name: tuple(f"{name}_{part}" for part in PARTS) for name in DigitsMini.domains}
    try:
        arrays = read_arrays(path, sum(parts.values(), ()))
        return {name: Domain(name, *(arrays[key] for key in keys)) for name, keys in parts.items()}
    except (DataError, KeyError):
        return None
