"""A data set is several domains over the same classes; both are checked when they are made."""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from fedwca.errors import DataError, UsageError
from fedwca.registry import canonical_name

Images = NDArray[np.uint8]
"""``[N, H, W, 3]``, 0…255."""
Integers = NDArray[np.int64]


class DatasetWarning(UserWarning):
    """A data set is usable but not what its name promises, such as a subset of a published one."""


@dataclass(frozen=True, eq=False)
class Domain:
    """Labelled images that look alike.

    Raises:
        DataError: a wrong type or shape, different lengths, or no image at all.
    """

    name: str
    images: Images
    """``[N, H, W, 3]`` uint8"""
    labels: Integers
    """``[N]`` int64, 0…M-1"""
    groups: Integers | None = None
    """``[N]`` int64: images of the same number are variants of one base; no split ever separates them."""
    part: Integers | None = None
    """``[N]`` int64: 0 where an image belongs to the published training part, 1 where to the published test part."""
    units: Integers | None = None
    """``[N]`` int64: what an image belongs to by nature, such as its writer or its superclass."""

    def __post_init__(self) -> None:
        images = self.images
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or 0 in images.shape[1:]:
            raise self._wrong("images", "uint8 [N, H, W, 3]", images)
        if len(images) == 0:
            raise DataError(f"domain {self.name!r} is empty: it needs at least one image")
        for what, numbers in (
            ("labels", self.labels),
            ("groups", self.groups),
            ("part", self.part),
            ("units", self.units),
        ):
            if numbers is None:
                continue
            if numbers.dtype != np.int64 or numbers.ndim != 1:
                raise self._wrong(what, "int64 [N]", numbers)
            if len(numbers) != len(images):
                raise DataError(
                    f"domain {self.name!r} has {len(images)} images but {len(numbers)} {what}; one for each is right"
                )
        if self.part is not None and (set(np.unique(self.part).tolist()) - {0, 1}):
            raise DataError(f"part of domain {self.name!r} must be 0 (training) or 1 (test) for each image")

    def _wrong(self, what: str, right: str, given: NDArray[np.generic]) -> DataError:
        return DataError(f"{what} of domain {self.name!r} must be {right}, not {given.dtype} {list(given.shape)}")

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        count, height, width, _ = self.images.shape
        return f"<Domain {self.name!r}: {count} images of {height}×{width}>"

    def counts(self, classes: int) -> list[int]:
        """Images of each class."""
        counts: list[int] = np.bincount(self.labels, minlength=classes).tolist()
        return counts


@dataclass(frozen=True, eq=False)
class FederatedDataset:
    """Domains over one list of classes.

    Raises:
        DataError: no domain, no class, a repeated name, or a domain that does not fit; the message names both.
    """

    name: str
    classes: tuple[str, ...]
    domains: Mapping[str, Domain]
    """By name, in the order in which tables and partitions take them."""

    def __post_init__(self) -> None:
        where = f"data set {self.name!r}"
        if not self.domains:
            raise DataError(f"{where} has no domain; it needs at least one")
        if not self.classes or len(set(self.classes)) != len(self.classes):
            raise DataError(f"{where} needs at least one class and no class twice, not {list(self.classes)}")
        if len({canonical_name(name) for name in self.domains}) != len(self.domains):
            raise DataError(f"{where} has domains of the same name: {', '.join(self.domains)}")
        last = len(self.classes) - 1
        for name, domain in self.domains.items():
            if name != domain.name:
                raise DataError(f"{where} lists domain {domain.name!r} as {name!r}; both must be the same")
            low, high = int(domain.labels.min()), int(domain.labels.max())
            if low < 0 or high > last:
                raise DataError(f"{where}, domain {name!r}: labels must be 0 to {last}, not {low} to {high}")
        object.__setattr__(self, "domains", MappingProxyType(dict(self.domains)))

    def __repr__(self) -> str:
        found = ", ".join(f"{name} ({len(domain)})" for name, domain in self.domains.items())
        return f"<FederatedDataset {self.name!r}: {len(self.classes)} classes, images by domain: {found}>"

    @cached_property
    def _digest(self) -> str:
        sha = hashlib.sha256()
        for text in (self.name, *self.classes):
            sha.update(text.encode() + b"\0")
        for domain in self.domains.values():
            sha.update(domain.name.encode() + b"\0" + str(domain.images.shape).encode())
            sha.update(np.ascontiguousarray(domain.images).data)
            sha.update(np.ascontiguousarray(domain.labels, "<i8").data)
        return sha.hexdigest()

    def digest(self) -> str:
        """Sha256 over names, classes, images and labels, as 64 hex digits; computed once.

        Groups, parts and units do not count: they say how images may be split, not what they are.
        """
        return self._digest

    def split_digest(self) -> str | None:
        """Sha256 over groups, parts and units, as 64 hex digits; None where no domain has any."""
        sha, said = hashlib.sha256(), False
        for domain in self.domains.values():
            for what, numbers in (("groups", domain.groups), ("part", domain.part), ("units", domain.units)):
                if numbers is not None:
                    sha.update(f"{domain.name}\0{what}\0".encode())
                    sha.update(np.ascontiguousarray(numbers, "<i8").data)
                    said = True
        return sha.hexdigest() if said else None

    def resized(self, size: int) -> FederatedDataset:
        """All images ``size`` × ``size`` pixels: bilinear, antialiased when shrinking; other shapes are stretched.

        Raises:
            UsageError: ``size`` is not positive.
        """
        if size < 1:
            raise UsageError(f"images cannot be resized to {size} pixels; 1 or more is right")
        if all(domain.images.shape[1:3] == (size, size) for domain in self.domains.values()):
            return self
        domains = {
            name: replace(domain, images=resize_images(domain.images, size)) for name, domain in self.domains.items()
        }
        return FederatedDataset(self.name, self.classes, domains)

    def domain(self, name: str) -> Domain:
        """The domain called ``name``; upper case, dashes and blanks do not matter.

        Raises:
            UsageError: there is none of that name; says which one comes near.
        """
        known = {canonical_domain(key): domain for key, domain in self.domains.items()}
        asked = canonical_domain(name)
        if asked not in known:
            close = difflib.get_close_matches(asked, list(known), 1)
            hint = f"; did you mean {known[close[0]].name!r}?" if close else "."
            raise UsageError(f"data set {self.name!r} has no domain {name!r}{hint} Known: {', '.join(self.domains)}")
        return known[asked]


def canonical_domain(name: str) -> str:
    """Domains are compared in snake_case.

    >>> canonical_domain("Real World")
    'real_world'
    """
    return canonical_name(name).replace(" ", "_")


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Class names in the order of their labels: by number where all are numbers, else by letter.

    >>> sorted_classes({"10", "9", "1"})
    ('1', '9', '10')
    """
    unique = set(names)
    if all(name.isascii() and name.isdigit() for name in unique):
        return tuple(sorted(unique, key=lambda name: (int(name), name)))
    return tuple(sorted(unique))


def resize_images(images: Images, size: int) -> Images:
    """``[N, H, W, 3]`` to ``[N, size, size, 3]``; see `FederatedDataset.resized`.

    Raises:
        DataError: the images have no pixels.
    """
    import torch
    from torch.nn.functional import interpolate

    if images.shape[1:3] == (size, size):
        return images
    if 0 in images.shape[1:3]:
        raise DataError(f"images of {images.shape[1]} × {images.shape[2]} pixels show nothing; 1 × 1 is the least")
    resized = np.empty((len(images), size, size, 3), np.uint8)
    some = max(1, min(1024, 2**26 // math.prod(images.shape[1:])))  # at most 256 MB of floats at a time
    for start in range(0, len(images), some):
        part = torch.from_numpy(np.ascontiguousarray(images[start : start + some])).permute(0, 3, 1, 2).float()
        part = interpolate(part, (size, size), mode="bilinear", antialias=True)
        resized[start : start + some] = part.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    return resized
