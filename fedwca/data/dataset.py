"""Data sets of several domains over the same classes, checked when they are created."""

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

from fedwca.core.printable import join_accents
from fedwca.errors import DataError, UsageError
from fedwca.registry import canonical_name

Images = NDArray[np.uint8]
"""``[N, H, W, 3]``, 0…255."""
Integers = NDArray[np.int64]


class DatasetWarning(UserWarning):
    """A data set is usable but may not be what the user expects, such as a subset of a published one."""


def _is_array(value: object, dtype: type[np.generic], axes: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == dtype and value.ndim == axes


@dataclass(frozen=True, eq=False)
class Domain:
    """Labelled images of one domain.

    Raises:
        DataError: an array has the wrong type, shape or length, or there is no image.
    """

    name: str
    images: Images
    """``[N, H, W, 3]`` uint8"""
    labels: Integers
    """``[N]`` int64, 0…M-1"""
    groups: Integers | None = None
    """``[N]`` int64: images with the same number are variants of one base image; no split of the domain separates them.

    A split of several domains together (`ImagePool`) keeps groups whole over domains, too."""
    part: Integers | None = None
    """``[N]`` int64: 0 for images of the published training part, 1 for those of the published test part."""
    units: Integers | None = None
    """``[N]`` int64: what an image belongs to by nature, such as its writer or its superclass."""

    def __post_init__(self) -> None:
        images = self.images
        if not _is_array(images, np.uint8, 4) or images.shape[3] != 3 or 0 in images.shape[1:]:
            raise self._wrong("images", "uint8 [N, H, W, 3]", images)
        if len(images) == 0:
            raise DataError(f"domain {self.name!r} is empty: it needs at least one image")
        for field, numbers in (
            ("labels", self.labels),
            ("groups", self.groups),
            ("part", self.part),
            ("units", self.units),
        ):
            if numbers is None:
                continue
            if not _is_array(numbers, np.int64, 1):
                raise self._wrong(field, "int64 [N]", numbers)
            if len(numbers) != len(images):
                raise DataError(
                    f"domain {self.name!r} has {len(images)} images but {len(numbers)} {field}; one for each is right"
                )
        if self.part is not None and (set(np.unique(self.part).tolist()) - {0, 1}):
            raise DataError(f"part of domain {self.name!r} must be 0 (training) or 1 (test) for each image")
        for field in ("images", "labels", "groups", "part", "units"):
            array = getattr(self, field)
            if array is not None and min(array.strides) < 0:  # such as mirrored images, of which torch makes no tensor
                object.__setattr__(self, field, np.ascontiguousarray(array))

    def subset(self, positions: Integers) -> Domain:
        """The domain with only the images at ``positions``, in that order."""
        groups, part, units = (
            None if numbers is None else numbers[positions] for numbers in (self.groups, self.part, self.units)
        )
        return Domain(self.name, self.images[positions], self.labels[positions], groups, part, units)

    def _wrong(self, field: str, expected: str, value: object) -> DataError:
        prefix = f"{field} of domain {self.name!r} must be"
        if isinstance(value, np.ndarray):
            return DataError(f"{prefix} {expected}, not {value.dtype} {list(value.shape)}")
        return DataError(f"{prefix} an array of numpy, {expected}, not a {type(value).__name__}")

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        count, height, width, _ = self.images.shape
        return f"<Domain {self.name!r}: {count} images of {height}×{width}>"

    def class_counts(self, classes: int) -> list[int]:
        """Number of images of each class, from class 0 on."""
        counts: list[int] = np.bincount(self.labels, minlength=classes).tolist()
        return counts


@dataclass(frozen=True, eq=False)
class FederatedDataset:
    """Domains that share one list of classes.

    Raises:
        DataError: there is no domain or no class, a name is repeated, or a domain has another name than its key or a
            label without a class; the message names the data set and the domain.
    """

    name: str
    classes: tuple[str, ...]
    """Names of the M classes, by label."""
    domains: Mapping[str, Domain]
    """Domains by name, in the order that tables and partitions follow."""

    def __post_init__(self) -> None:
        prefix = f"data set {self.name!r}"
        if not isinstance(self.domains, Mapping) or not self.domains:
            raise DataError(f"{prefix} needs at least one domain, in a mapping by name, not {self.domains!r}")
        names: object = self.classes
        if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{prefix} needs the names of its classes as a tuple of texts, not {names!r}")
        if not self.classes or len(set(self.classes)) != len(self.classes):
            raise DataError(f"{prefix} needs at least one class and no class twice, not {list(self.classes)}")
        if len({canonical_domain(name) for name in self.domains}) != len(self.domains):
            raise DataError(f"{prefix} has domains of the same name: {', '.join(self.domains)}")
        last_label = len(self.classes) - 1
        for name, domain in self.domains.items():
            if name != domain.name:
                raise DataError(f"{prefix} lists domain {domain.name!r} as {name!r}; both must be the same")
            low, high = int(domain.labels.min()), int(domain.labels.max())
            if low < 0 or high > last_label:
                raise DataError(f"{prefix}, domain {name!r}: labels must be 0 to {last_label}, not {low} to {high}")
        object.__setattr__(self, "domains", MappingProxyType(dict(self.domains)))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} ({len(domain)})" for name, domain in self.domains.items())
        return f"<FederatedDataset {self.name!r}: {len(self.classes)} classes, images by domain: {sizes}>"

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
        """SHA-256 of names, classes, images and labels as 64 hex digits; computed once.

        Groups, parts and units are left out: they say how images may be split, not what they are.
        """
        return self._digest

    def split_digest(self) -> str | None:
        """SHA-256 of groups, parts and units as 64 hex digits; None if no domain has any."""
        sha, has_any = hashlib.sha256(), False
        for domain in self.domains.values():
            for field, numbers in (("groups", domain.groups), ("part", domain.part), ("units", domain.units)):
                if numbers is not None:
                    sha.update(f"{domain.name}\0{field}\0".encode())
                    sha.update(np.ascontiguousarray(numbers, "<i8").data)
                    has_any = True
        return sha.hexdigest() if has_any else None

    def resized(self, size: int) -> FederatedDataset:
        """The data set with all images resized to ``size`` × ``size`` pixels.

        Interpolation is bilinear, antialiased when shrinking; images that are not square are stretched.

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
        """The domain called ``name``, whatever its upper case, dashes and blanks.

        Raises:
            UsageError: no domain has that name; the message suggests a similar one.
        """
        domain_by_key = {canonical_domain(domain_name): domain for domain_name, domain in self.domains.items()}
        key = canonical_domain(name)
        if key not in domain_by_key:
            close = difflib.get_close_matches(key, list(domain_by_key), 1)
            hint = f"; did you mean {domain_by_key[close[0]].name!r}?" if close else "."
            raise UsageError(f"data set {self.name!r} has no domain {name!r}{hint} Known: {', '.join(self.domains)}")
        return domain_by_key[key]


def canonical_domain(name: str) -> str:
    """A domain's name in snake_case and with composed letters, in which names are compared.

    >>> canonical_domain("Real World")
    'real_world'
    """
    return canonical_name(join_accents(name)).replace(" ", "_")


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Class names in the order of their labels: by number if all are numbers, else alphabetically.

    >>> sorted_classes({"10", "9", "1"})
    ('1', '9', '10')
    """
    unique = set(names)
    if all(name.isascii() and name.isdigit() for name in unique):
        return tuple(sorted(unique, key=lambda name: (int(name), name)))
    return tuple(sorted(unique))


def to_three_channels(images: Images) -> Images:
    """Images ``[N, H, W, 3]``, of which grey ones ``[N, H, W]`` get equal channels."""
    return np.repeat(images[..., None], 3, axis=3) if images.ndim == 3 else images


def resize_images(images: Images, size: int) -> Images:
    """Resize images ``[N, H, W, 3]`` to ``[N, size, size, 3]``; see `FederatedDataset.resized`.

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
    batch_size = max(1, min(1024, 2**26 // max(math.prod(images.shape[1:]), 3 * size**2)))  # at most 256 MB of floats
    for start in range(0, len(images), batch_size):
        batch = torch.from_numpy(np.ascontiguousarray(images[start : start + batch_size])).permute(0, 3, 1, 2).float()
        batch = interpolate(batch, (size, size), mode="bilinear", antialias=True)
        resized[start : start + batch_size] = batch.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    return resized
